"""Sample paths of the prior by random features of the kernel: functions that can be evaluated anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.kernels.records import FeatureMap, random_features


@dataclass(frozen=True)
class PriorPath:
    """Approximate samples of GP(0, k): f(x) = phi(x) w with R random features phi and white weights w.

    In posterior sampling they represent the residual of f. So the error of the random features, of order R^{-1/2}, affects only
    the residual.

    Examples:
        >>> import gpytorch
        >>> path = PriorPath.draw(
        ...     gpytorch.kernels.RBFKernel(), 2, n_samples=3, generator=torch.Generator(), n_frequencies=16
        ... )
        >>> path(torch.zeros(5, 2)).shape
        torch.Size([5, 3])
    """

    feature_map: FeatureMap
    weights: Tensor  #: [R, samples]

    @classmethod
    def draw(
        cls, kernel: object, dim: int, n_samples: int, generator: torch.Generator, n_frequencies: int = 2048
    ) -> PriorPath:
        """Random paths on `dim` columns, for a kernel with random features (`kernels.records`)."""
        with torch.no_grad():
            feature_map = random_features(kernel, generator, n_frequencies)
            size = feature_map(torch.zeros(1, dim, dtype=torch.float64, device="cpu")).shape[-1]
        return cls(feature_map, torch.randn(size, n_samples, generator=generator, dtype=torch.float64, device="cpu"))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The values of the paths at x, [..., n, d] -> [..., n, samples]."""
        return (self.feature_map(x.double()) @ self.weights).to(x.dtype)
