"""Distinct rows with counts: equal rows are merged, and a weight of two counts as two rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonicgp.backend.hashes import hashes
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Inputs


class Rows(NamedTuple):
    """Distinct rows, in an order that depends on their values alone."""

    X: Array  #: [N, d]
    y: Array  #: [N, P]
    noise: Array | None  #: known standard deviations, [N]
    counts: Array | None  #: how many rows each stands for; None if each is one


@dataclass(frozen=True)
class ModelRows:
    """Distinct encoded rows with the targets that a model is fitted to."""

    X: Array  #: [N, d]
    target: Array  #: in model units, [P, N]
    noise: Array | None  #: known noise variances in model units, [N]
    counts: Array | None  #: how many rows each stands for; None if each is one

    def __len__(self) -> int:
        return len(self.X)

    def part(self, rows: Array) -> ModelRows:
        """The rows with these numbers."""
        return ModelRows(
            self.X[rows],
            self.target[:, rows],
            None if self.noise is None else self.noise[rows],
            None if self.counts is None else self.counts[rows],
        )

    def tensors(self, inputs: Inputs, dtype: torch.dtype, device: torch.device) -> ModelTensors:
        """The rows as tensors, with model inputs."""

        def tensor(a: Array) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(a)).to(device, dtype)

        return ModelTensors(
            tensor(inputs.transform(self.X)),
            tensor(self.target),
            None if self.noise is None else tensor(self.noise),
            None if self.counts is None else tensor(self.counts),
        )


class ModelTensors(NamedTuple):
    """Model inputs X [N, k], targets y [P, N], known noise variances [N] and counts [N]."""

    X: Tensor
    y: Tensor
    noise: Tensor | None
    counts: Tensor | None


def merge(X: Array, y: Array, noise: Array | None = None, weight: Array | None = None) -> Rows:
    """Drop rows X [N, d], y [N, P] of weight zero, and merge equal rows into one with their total weight."""
    if weight is not None:
        used = weight > 0
        if not used.all():
            X, y, weight = X[used], y[used], weight[used]
            noise = None if noise is None else noise[used]
    parts = [X, y] if noise is None else [X, y, noise[:, None]]
    keys = hashes(np.concatenate(parts, 1))
    _, first, inverse, repeats = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if weight is None or len(repeats) == 0:
        counts = repeats.astype(np.float64)
    else:
        order = np.lexsort((weight, inverse))  # sums that do not depend on the order of the table
        counts = np.add.reduceat(weight[order], np.concatenate(([0], np.cumsum(repeats)[:-1])))
    ones = bool((counts == 1).all())
    return Rows(X[first], y[first], None if noise is None else noise[first], None if ones else counts)
