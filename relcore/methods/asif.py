"""ASIF: sparse relative representations by a reference collection, which here is the seeds."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.methods import anchored, costs
from relcore.methods.base import Alignment, Cost, Method, Needs, Snapshot, Step, param

PAPER = "arXiv 2210.01738"
FIXED = ("sparsity", ("fixed",))


@dataclass(frozen=True)
class ASIF(Method):
    """Describe a row by its cosines to the seeds of its side, but only the largest few, and those to a power.

    The paper keeps 800 of 1.6 million reference pairs. With no more seeds than that all are kept, and the power alone
    makes a row sparse; an even share of the seeds (one of 2000) would leave nothing to compare. With few seeds weaker
    settings do better, and ``left_out`` finds them.

    Deviations: a negative cosine counts as 0, where the paper's code raises it to an even power, so that what is most
    unlike a row describes it once the numbers kept reach that far.

    Source: Norelli et al., NeurIPS 2023, arXiv 2210.01738; numbers as in its code.
    """

    name = "asif"
    title = "ASIF"
    summary = "Describe each row by its few most similar seeds of its own side; nothing is learned."
    source = "Norelli et al., NeurIPS 2023, arXiv 2210.01738"
    needs = Needs(min_seeds=1)

    sparsity: str = param(
        "fixed",
        "How numbers kept and exponent are chosen. fixed: by hand; left_out: so that seeds, each described by the "
        "other seeds, find their partners best",
        choices=("fixed", "left_out"),
        source=f"{PAPER}; left_out is ours",
    )
    non_zeros: int = param(
        800, "Numbers kept of a row; at most the seeds", low=1, high=100_000, log=True, source=PAPER, only_if=FIXED
    )
    exponent: float = param(8.0, "Power of the cosines kept", low=1.0, high=64.0, source=PAPER, only_if=FIXED)

    def check(self, n, m, dx, dy, seeds):
        wanted = 3 if self.sparsity == "left_out" else self.needs.min_seeds  # one left out, and two to tell apart by
        anchored.check_pairs(self.title, wanted, seeds)
        super().check(n, m, dx, dy, seeds)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.methods.kept import Sparse
        from relcore.ops.asif import agreed
        from relcore.ops.neighbors import unit_rows

        rows = anchored.supports(x, y, seeds, device)
        non_zeros, exponent, notes, chosen = self.non_zeros, self.exponent, [], {}
        if self.sparsity == "left_out":
            found = agreed(*rows)
            non_zeros, exponent = found.non_zeros, found.exponent
            chosen = {"non_zeros": non_zeros, "exponent": exponent}
        elif non_zeros > len(seeds):
            notes.append(f"{non_zeros} numbers of a row asked for, {len(seeds)} kept: there are no more seeds")
        anchors = [unit_rows(v).cpu() for v in rows]
        numbers = torch.tensor(float(min(non_zeros, len(seeds)))), torch.tensor(float(exponent))
        encoders = [Sparse(a, *numbers) for a in anchors]
        yield Step(1, 1, "project", {}, Snapshot(*encoders))
        out = [encode(v) for encode, v in zip(encoders, (x, y), strict=True)]
        for side, v in zip("xy", out, strict=True):
            empty = int((v == 0).all(1).sum())
            if empty:
                notes.append(
                    f"{empty} rows of {side} have no positive cosine with any seed and match nothing"
                )
        return Alignment(
            x=out[0],
            y=out[1],
            encode_x=encoders[0],
            encode_y=encoders[1],
            anchors=seeds,
            anchors_x=anchors[0],
            anchors_y=anchors[1],
            chosen=chosen,
            notes=notes,
        )

    def estimate(self, n, m, dx, dy, seeds):
        kept = min(self.non_zeros, seeds)
        seconds = 1e-3 + 3e-11 * seeds * (n * dx + m * dy) + (n + m) * (3e-9 * seeds + 2e-8 * kept)
        if self.sparsity == "left_out":
            judged = min(seeds, 500)
            seconds += 40 * (4 * costs.product(judged, judged, seeds) + 4e-8 * judged * seeds)
        return Cost(memory=4.0 * (n + m) * (seeds + 3 * kept) + 4.0 * (n * dx + m * dy), seconds=seconds)
