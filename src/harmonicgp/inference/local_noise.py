"""Noise whose variance varies with the inputs: at a new point it follows the nearest training rows.

A training row j, predicted from the other rows, has an error r_j and a variance of f v_j. What v_j leaves of the squared error is
its excess, e_j = max(r_j^2 - v_j, 0). At a new point the noise variance is

    scale (strength e + e_1 + ... + e_k) / (strength + k)        e_1 .. e_k: excesses of the k nearest rows; e: of the average row

So `strength` counts as that many further rows of average noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp.features.nearest import NearestIndex
from harmonicgp.kernels.metric import metric_coordinates


@dataclass(frozen=True)
class LocalNoise:
    """The variance of the noise around the training rows.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> X, excess = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), torch.tensor([[4.0, 4.0, 0.0, 0.0]])
        >>> noise = LocalNoise.of(RBFKernel(), X, excess, k=2, strength=2.0)
        >>> noise.variances(torch.tensor([[0.0], [5.0]]))
        tensor([[3., 1.]], dtype=torch.float64)
    """

    X: Tensor  #: the rows, [n, d]
    excess: Tensor  #: e, [P, n]
    k: int  #: how many rows set the noise at a point
    strength: float  #: how many rows of average noise are added to them
    scale: float
    kernel: gpytorch.kernels.Kernel | None  #: in whose metric rows are near; None for that of the inputs as they are
    index: NearestIndex

    @classmethod
    def of(
        cls,
        kernel: gpytorch.kernels.Kernel | None,
        X: Tensor,
        excess: Tensor,
        k: int,
        strength: float,
        scale: float = 1.0,
    ) -> LocalNoise:
        """From rows X [n, d] and their excesses [P, n]; raises a `ValueError` if these do not fit."""
        n = len(X)
        fits = X.dim() == 2 and excess.dim() == 2 and excess.shape[1] == n and 0 < k <= n
        if not (fits and bool(torch.isfinite(X).all()) and bool(torch.isfinite(excess).all())):
            raise ValueError("rows of a local noise whose shapes or values do not fit")
        positive = bool((excess >= 0).all()) and bool((excess.sum(1) > 0).all())
        if not (positive and all(0 < number < math.inf for number in (strength, scale))):
            raise ValueError("a local noise whose variances are not positive")
        return cls(X, excess, k, strength, scale, kernel, NearestIndex(metric_coordinates(kernel, X)))

    @torch.no_grad()
    def variances(self, x: Tensor) -> Tensor:
        """The noise variance at points x [n, d], [P, n]."""
        rows = self.index.nearest(metric_coordinates(self.kernel, x), self.k).rows
        return self.scale * smoothed(self.excess.double(), rows, self.strength)


def smoothed(excess: Tensor, rows: Tensor, strength: float) -> Tensor:
    """The mean of the excesses [P, N] of rows [n, k] and of `strength` rows of the average excess: [P, n]."""
    average = excess.mean(1, keepdim=True)
    return (strength * average + excess[:, rows].sum(-1)) / (strength + rows.shape[1])
