"""Contrastive learning on the anchors alone: the encoders of AnchorDOT without its pools."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.methods.base import Alignment, Cost, Method, Needs, param

OPEN = "a baseline; chosen as AnchorDOT's"
HELD_OUT = 20  # pairs, with fewer of which none are held out to stop by


@dataclass(frozen=True)
class Contrastive(Method):
    """Two encoders trained by InfoNCE on the known pairs, no other row: what pairs alone can teach.

    A tenth of the pairs is held out; kept are the encoders of the step at which those are told apart best, of about
    twenty that are looked at.

    Source: van den Oord et al., arXiv 1807.03748 (InfoNCE); Radford et al., arXiv 2103.00020 (both ways).
    """

    name = "contrastive"
    title = "Contrastive on pairs"
    summary = "Two encoders trained on the known pairs alone; the baseline of AnchorDOT."
    source = "arXiv 1807.03748, arXiv 2103.00020"
    needs = Needs(min_seeds=2)

    student: str = param("mlp", "Encoders: a residual network or a matrix", choices=("mlp", "linear"), source=OPEN)
    steps_student: int = param(400, "Steps", low=1, high=1_000_000, source=OPEN)
    early_stop: bool = param(True, "Keep the step at which held-out pairs are told apart best", source=OPEN)
    width: int = param(96, "Dimensions of the common space", low=1, high=10_000, source=OPEN, advanced=True)
    hidden: int = param(
        256,
        "Hidden units of the network",
        low=1,
        high=100_000,
        source=OPEN,
        advanced=True,
        only_if=("student", ("mlp",)),
    )
    chunk: int = param(500, "Pairs in a step", low=2, high=100_000, source=OPEN, advanced=True)
    temperature: float = param(
        0.1, "Temperature of the similarities", low=1e-3, high=10.0, source=OPEN, log=True, advanced=True
    )
    learning_rate: float = param(
        1e-3, "Rate of AdamW, falling as a cosine", low=1e-8, high=1.0, source=OPEN, log=True, advanced=True
    )

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.methods.student import Count, Watch, encoder, to_cpu, trained
        from relcore.ops.distill import Training, pair_loss
        from relcore.ops.neighbors import unit_rows
        from relcore.ops.relative import Moments

        x, y = x.to(device), y.to(device)
        pairs = [torch.from_numpy(r.copy()).to(device) for r in (seeds.x, seeds.y)]
        notes, held = [], 0
        if self.early_stop and len(seeds) >= HELD_OUT:
            held = len(seeds) // 10
        elif self.early_stop:
            notes.append(f"{len(seeds)} pairs are too few to hold some out: trained for all {self.steps_student} steps")
        order = torch.randperm(len(seeds), generator=generator).to(device)
        tested, learned = ([r[part] for r in pairs] for part in (order[:held], order[held:]))
        training = Training(
            x,
            y,
            tuple(learned),
            steps=self.steps_student,
            generator=generator,
            width=self.width,
            hidden=self.hidden if self.student == "mlp" else 0,
            chunk=self.chunk,
            temperature=self.temperature,
            learning_rate=self.learning_rate,
        )
        best = [float("inf"), None, 0]

        def figures() -> dict[str, float]:
            if not held:
                return {}
            weights = training.weights
            loss = pair_loss(*(w(v[r]) for w, v, r in zip(weights, (x, y), tested, strict=True)), self.temperature)
            if loss < best[0]:
                best[:] = [float(loss), weights, training.done]
            return {"held-out loss": float(loss)}

        count = Count()
        profile = Moments(*(v[r] for v, r in zip((x, y), pairs, strict=True))).profile(1.0, 1.0)
        yield from trained(training, Watch((x, y), profile), count.step, "train", figures)
        weights = training.weights if best[1] is None else best[1]
        if best[1] is not None:
            notes.append(
                f"kept are the encoders after step {best[2]} of {self.steps_student}, the best by {held} held-out pairs"
            )
        encoders = [encoder(w) for w in weights]
        coordinates = [unit_rows(e(v)).cpu() for e, v in zip(encoders, (x, y), strict=True)]
        return Alignment(*coordinates, *(to_cpu(e) for e in encoders), notes=notes)

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        hidden = self.hidden if self.student == "mlp" else 0
        seconds = self.steps_student * costs.distil_step(min(self.chunk, max(1, seeds)), dx + dy, self.width, hidden)
        return Cost(memory=4.0 * (2 * n * dx + 2 * m * dy + (n + m) * self.width) + costs.TILE_BYTES, seconds=seconds)
