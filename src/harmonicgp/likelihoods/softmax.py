"""Multi-class classification by the softmax of latent functions, with a bound in closed form."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.likelihoods.observation import ClassObservation, register_likelihood

#: Samples for class probabilities.
DRAWS = 256


class SoftmaxBoundLikelihood(gpytorch.likelihoods.Likelihood):
    """p(y | f) = exp(f_y) / sum_k exp(f_k), bounded by Jensen's inequality (Blei and Lafferty 2007):

        E log p(y | f) >= m_y - log sum_k exp(m_k + v_k / 2)        for independent f_k ~ N(m_k, v_k).

    Training needs no sampling, and the curvature of the bound is never negative. Unlike robust-max it models overlapping classes.

    Examples:
        >>> SoftmaxBoundLikelihood(2).class_probabilities(torch.zeros(1, 2), torch.ones(1, 2)).sum()
        tensor(1.)
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = whole_number(num_classes, "num_classes", 2)

    def expected_log_prob(self, observations: Tensor, function_dist: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The bound on E log p(y | f), [n], for class numbers [n] and marginals [n, K]."""
        m, v = function_dist.mean, function_dist.variance
        return m.gather(1, observations.long()[:, None])[:, 0] - torch.logsumexp(m + 0.5 * v, -1)

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """p(y = k) for every class, [n, K], from marginals [n, K]: a mean over fixed quasi-random samples."""
        points = torch.quasirandom.SobolEngine(self.num_classes, scramble=True, seed=0).draw(DRAWS).to(mean)
        white = torch.special.ndtri(points.clamp(1e-6, 1 - 1e-6))  # [samples, K]
        total = torch.zeros_like(mean)
        std = variance.sqrt()
        for z in white:
            total += torch.softmax(mean + std * z, -1)
        return total / DRAWS

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Categorical:
        """p(y | f) for samples f [..., K]."""
        return torch.distributions.Categorical(logits=function_samples)


register_likelihood("SoftmaxBoundLikelihood", SoftmaxBoundLikelihood, observation=ClassObservation, num_classes=int)
