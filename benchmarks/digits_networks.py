"""Small classifiers trained on scikit-learn's digits from different seeds: latents of one architecture or several.

The latent is the last hidden layer after its ReLU. A network takes a second or two to train on one thread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

HIDDEN = {"shallow": (), "deep": (128,), "collapse": (128, 128)}  # layers before the latent one
LATENT = 64
BATCH = 64


class Digits(NamedTuple):
    """Pictures float32 (n, 64) in 0 to 1 and their classes (n,)."""

    pictures: torch.Tensor
    labels: np.ndarray


def digits(seed: int = 0) -> Digits:
    """All 1,797 of them in random order."""
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    return Digits(torch.from_numpy((pictures[order] / 16).astype(np.float32)), labels[order])


def latents(
    trained_on: Digits, shown: torch.Tensor, seed: int, kind: str = "shallow", width: int = LATENT, steps: int = 500
) -> torch.Tensor:
    """Latents (n, width) of the pictures ``shown``, in a network trained on the others from a seed.

    ``collapse`` is deeper and trained four times as long with more weight decay, so that classes shrink to points.
    """
    strong = kind == "collapse"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers: list[torch.nn.Module] = []
        sizes = (64, *HIDDEN[kind], width)
        for a, b in zip(sizes[:-1], sizes[1:], strict=True):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        body, head = torch.nn.Sequential(*layers), torch.nn.Linear(width, 10)
        labels = torch.from_numpy(trained_on.labels).long()
        settings = dict(lr=3e-3, weight_decay=5e-4 if strong else 1e-4)
        optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], **settings)
        for _ in range(4 * steps if strong else steps):
            rows = torch.randint(len(labels), (BATCH,))
            noisy = trained_on.pictures[rows] + 0.05 * torch.randn(BATCH, 64)
            loss = torch.nn.functional.cross_entropy(head(body(noisy)), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return body(shown)
