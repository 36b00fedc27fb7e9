"""Sample paths of the prior: functions one can evaluate anywhere, by random features of the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.kernels.records import FeatureMap, random_features


@dataclass(frozen=True)
class PriorPath:
    """Functions drawn from (nearly) GP(0, k): f(x) = phi(x) w with random features phi and white weights w.

    In posterior sampling they stand for the part of f that the inducing points leave open, so that the error of the random
    features, of order R^{-1/2}, touches the residual only.
    """

    feature_map: FeatureMap
    weights: Tensor  #: [R, samples]

    @classmethod
    def draw(
        cls, kernel: object, dim: int, n_samples: int, generator: torch.Generator, n_frequencies: int = 2048
    ) -> PriorPath:
        """Paths on `dim` columns, for a kernel that has random features (`kernels.records`)."""
        with torch.no_grad():
            feature_map = random_features(kernel, generator, n_frequencies)
            size = feature_map(torch.zeros(1, dim, dtype=torch.float64, device="cpu")).shape[-1]
        return cls(feature_map, torch.randn(size, n_samples, generator=generator, dtype=torch.float64, device="cpu"))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """[..., n, d] -> [..., n, samples]."""
        return (self.feature_map(x.double()) @ self.weights).to(x.dtype)
