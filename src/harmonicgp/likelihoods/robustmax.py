"""Multi-class classification by the largest latent function, with a share of wrong labels."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.likelihoods.observation import ClassObservation, register_likelihood


class RobustMaxLikelihood(gpytorch.likelihoods.Likelihood):
    """p(y | f) = 1 - epsilon if f_y is the largest of f_1..f_K, else epsilon / (K - 1) (Hernandez-Lobato et al. 2011).

    Expectations need the probability that f_y is the largest, P = E_{f_y} prod_{k != y} Phi((f_y - mean_k) / std_k), a
    one-dimensional integral that is computed by Gauss-Hermite quadrature.

    Examples:
        >>> likelihood = RobustMaxLikelihood(3)
        >>> likelihood.class_probabilities(torch.zeros(1, 3), torch.ones(1, 3)).round(decimals=3)
        tensor([[0.3330, 0.3330, 0.3330]])
    """

    def __init__(self, num_classes: int, epsilon: float = 1e-3, points: int = 20) -> None:
        super().__init__()
        self.num_classes = whole_number(num_classes, "num_classes", 2)
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon, the share of wrong labels, must be in (0, 1); got {epsilon}.")
        self.epsilon = float(epsilon)
        nodes, weights = np.polynomial.hermite_e.hermegauss(whole_number(points, "points", 2))
        self.register_buffer("nodes", torch.from_numpy(nodes))
        self.register_buffer("weights", torch.from_numpy(weights / math.sqrt(2 * math.pi)))

    @property
    def points(self) -> int:
        """The number of nodes of the quadrature."""
        return len(self.nodes)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the nodes."""
        return self.nodes.dtype

    def probability_of_largest(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """P(f_y is the largest), for class numbers y [n] and independent marginals [n, K]."""
        y = y.long()
        std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        place = y[:, None]
        nodes = self.nodes.to(mean)
        f = mean.gather(1, place) + std.gather(1, place) * nodes  # [n, points]
        z = (f[..., None] - mean[:, None, :]) / std[:, None, :]  # [n, points, K]
        log_cdf = torch.special.log_ndtr(z)
        others = 1.0 - torch.nn.functional.one_hot(y, self.num_classes).to(mean)
        return ((log_cdf * others[:, None, :]).sum(-1).exp() * self.weights.to(mean)).sum(-1).clamp(0.0, 1.0)

    def expected_log_prob(self, observations: Tensor, function_dist: Any, *args: Any, **kwargs: Any) -> Tensor:
        """E log p(y | f), [n]."""
        y = observations
        if bool((y < 0).any() | (y >= self.num_classes).any() | (y != y.round()).any()):
            raise ValueError(f"targets must be class numbers 0 to {self.num_classes - 1}.")
        P = self.probability_of_largest(y, function_dist.mean, function_dist.variance)
        wrong = math.log(self.epsilon / (self.num_classes - 1))
        return P * math.log1p(-self.epsilon) + (1 - P) * wrong

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """p(y = k) for every class, [n, K], from marginals [n, K]."""
        n = mean.shape[0]
        labels = [torch.full((n,), k, device=mean.device) for k in range(self.num_classes)]
        P = torch.stack([self.probability_of_largest(y, mean, variance) for y in labels], -1)
        P = P / P.sum(-1, keepdim=True)  # the sum differs from one by the error of the quadrature
        return (1 - self.epsilon) * P + self.epsilon / (self.num_classes - 1) * (1 - P)

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> torch.distributions.Categorical:
        """p(y | f) for samples f [..., K]."""
        largest = torch.nn.functional.one_hot(function_samples.argmax(-1), self.num_classes).to(function_samples)
        wrong = self.epsilon / (self.num_classes - 1)
        return torch.distributions.Categorical(probs=largest * (1 - self.epsilon - wrong) + wrong)


register_likelihood(
    "RobustMaxLikelihood",
    RobustMaxLikelihood,
    observation=ClassObservation,
    make=lambda dtype, **arguments: RobustMaxLikelihood(**arguments).to(dtype),
    num_classes=int,
    epsilon=float,
    points=lambda fields, key: fields.whole(key, most=1000),
    dtype=torch.dtype,
)
