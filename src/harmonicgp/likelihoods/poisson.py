"""Poisson counts."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp.likelihoods.observation import Observation, register_likelihood


class PoissonLikelihood(gpytorch.likelihoods.likelihood._OneDimensionalLikelihood):
    """y ~ Poisson(exp(f)). The expectation under a Gaussian is computed in closed form.

    Examples:
        >>> PoissonLikelihood()(torch.zeros(2)).mean
        tensor([1., 1.])
    """

    @staticmethod
    def check(y: Tensor) -> None:
        """Raise a ValueError unless y are counts."""
        if bool((y < 0).any() | (y != y.round()).any()):
            raise ValueError("targets of a Poisson likelihood must be whole numbers 0, 1, 2, ...")

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Poisson:
        """p(y | f)."""
        return torch.distributions.Poisson(function_samples.exp())

    def expected_log_prob(self, observations: Tensor, function_dist: Any, *args: Any, **kwargs: Any) -> Tensor:
        """E[y f - exp(f)] - log y! = y m - exp(m + v/2) - log y!."""
        self.check(observations)
        m, v = function_dist.mean, function_dist.variance
        return observations * m - torch.exp(m + 0.5 * v) - torch.lgamma(observations + 1.0)


class PoissonObservation(Observation):
    """Poisson counts."""

    def check_targets(self, y: Tensor) -> None:
        """Raise a ValueError unless targets are counts."""
        PoissonLikelihood.check(y)


register_likelihood("PoissonLikelihood", PoissonLikelihood, observation=PoissonObservation)
