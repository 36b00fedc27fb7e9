"""What inference needs of a likelihood: e_n = E_q log p(y_n | f_n), its bound, and its derivatives.

GPyTorch's likelihoods are used through their own interface. Targets are [P, n], one row an output; for likelihoods of
several latent functions (softmax, robust-max) [1, n] class numbers and P latent functions.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import gpytorch
import torch
from gpytorch.likelihoods import MultitaskGaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from harmonicgp.features.residual import IndependentResidual, Residual
from harmonicgp.likelihoods.poisson import PoissonLikelihood
from harmonicgp.likelihoods.robustmax import RobustMaxLikelihood
from harmonicgp.likelihoods.softmax import SoftmaxBoundLikelihood

Bound: TypeAlias = Literal["elbo", "tight", "predictive"]
BOUNDS = ("elbo", "tight", "predictive")


class Observation(torch.nn.Module):
    """A likelihood as inference sees it."""

    def __init__(self, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    @property
    def is_gaussian(self) -> bool:
        """Whether closed forms apply."""
        return False

    def check_bound(self, bound: str) -> None:
        """Raise a clear error unless the bound is one that the likelihood has."""
        if bound not in BOUNDS:
            raise ValueError(f"bound must be one of {', '.join(map(repr, BOUNDS))}; got {bound!r}.")
        if bound != "elbo" and not self.is_gaussian:
            raise ValueError(f'the {bound!r} bound is for Gaussian noise; use bound="elbo" with this likelihood.')

    def check_targets(self, y: Tensor) -> None:
        """Raise a clear error for targets [P, N] that the likelihood cannot have made."""
        if self.n_latent(1) > 1:
            K = self.n_latent(1)
            if len(y) != 1 or bool((y != y.round()).any() | (y < 0).any() | (y >= K).any()):
                raise ValueError(
                    f"targets must be one row of class numbers 0 to {K - 1}, y [N]; got shape {tuple(y.shape)}."
                )
        elif isinstance(self.likelihood, gpytorch.likelihoods.BernoulliLikelihood):
            values = set(y.unique().tolist()) if y.numel() else set()
            if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
                raise ValueError(
                    f"targets of a Bernoulli likelihood are 0 and 1 (or -1 and 1); got {sorted(values)[:5]}."
                )
        elif isinstance(self.likelihood, PoissonLikelihood):
            self.likelihood.check(y)

    def n_latent(self, n_targets: int) -> int:
        """How many latent functions the targets need."""
        likelihood = self.likelihood
        if isinstance(likelihood, gpytorch.likelihoods.SoftmaxLikelihood):
            return int(likelihood.num_features)
        several = isinstance(likelihood, RobustMaxLikelihood | SoftmaxBoundLikelihood)
        return likelihood.num_classes if several else n_targets

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """e_n, [n], summed over outputs: in closed form or by Gauss-Hermite quadrature; softmax by sampling."""
        if self.n_latent(1) > 1:
            covariance = DiagLinearOperator(variance.mT.reshape(-1))
            latent = gpytorch.distributions.MultitaskMultivariateNormal(mean.mT, covariance)
            with torch.random.fork_rng(
                devices=[]
            ):  # the same draws each time: reruns agree, the global state is left alone
                torch.manual_seed(0)
                return self.likelihood.expected_log_prob(y[0], latent)
        latent = gpytorch.distributions.MultivariateNormal(mean, DiagLinearOperator(variance))
        return self.likelihood.expected_log_prob(y, latent).sum(0)

    def terms(self, y: Tensor, mean: Tensor, variance: Tensor, residual: Residual, bound: Bound,
              noise: Tensor | None = None) -> Tensor:  # fmt: skip
        """The per-row terms of the bound, [n]; mean and variance [P, n] are those of the features' part of f."""
        self.check_bound(bound)
        return self.expected(y, mean, variance + residual.variance)

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """G = d e / d mean and lambda = -2 d e / d variance, clipped at zero, both [P, n]."""
        with torch.enable_grad():
            m, v = mean.detach().requires_grad_(), variance.detach().requires_grad_()
            g, h = torch.autograd.grad(self.expected(y, m, v).sum(), (m, v))
        return g, (-2 * h).clamp_min(0.0)


class GaussianObservation(Observation):
    """Gaussian noise: of one variance that is learned, plus a known variance for each row where given."""

    def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
        super().__init__(likelihood)

    @property
    def is_gaussian(self) -> bool:
        """Yes."""
        return True

    def noise(self, known: Tensor | None = None) -> Tensor:
        """s2, [1], or [n] with known variances added."""
        s2 = self.likelihood.noise
        return s2 if known is None else s2 + known

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log N(y; f, s2)."""
        return self.terms(y, mean, variance, IndependentResidual(torch.zeros_like(variance[0])), "elbo")

    def terms(self, y: Tensor, mean: Tensor, variance: Tensor, residual: Residual, bound: Bound,
              noise: Tensor | None = None) -> Tensor:  # fmt: skip
        """The paper's bound, the tight one (Titsias 2025), or the predictive log-likelihood, which is no bound."""
        s2 = self.noise(noise)
        if bound == "predictive":
            total = s2 + variance + residual.variance
            return (-0.5 * (2 * math.pi * total).log() - 0.5 * (y - mean).square() / total).sum(0)
        fit = -0.5 * (2 * math.pi * s2).log() - 0.5 * ((y - mean).square() + variance) / s2
        if bound not in BOUNDS:
            raise ValueError(f"bound must be one of {', '.join(map(repr, BOUNDS))}; got {bound!r}.")
        return (fit - residual.cost(s2, tight=bound == "tight")).sum(0)

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """G = (y - mean) / s2, lambda = 1 / s2."""
        s2 = self.noise(noise).detach()
        return (y - mean) / s2, (1 / s2).expand_as(mean)


def observe(likelihood: gpytorch.likelihoods.Likelihood | Observation) -> Observation:
    """The likelihood as inference sees it."""
    if isinstance(likelihood, Observation):
        return likelihood
    if isinstance(likelihood, gpytorch.likelihoods.GaussianLikelihood):
        if likelihood.noise.numel() != 1:
            raise TypeError(
                "the Gaussian likelihood has a batch of noises; use one without batch_shape: outputs share it."
            )
        return GaussianObservation(likelihood)
    if isinstance(likelihood, gpytorch.likelihoods.FixedNoiseGaussianLikelihood | MultitaskGaussianLikelihood):
        raise TypeError(
            f"{type(likelihood).__name__}: use GaussianLikelihood. Known variances for each row are given to fit as noise=, "
            "several outputs as y [P, N]."
        )
    if isinstance(likelihood, gpytorch.likelihoods.Likelihood):
        return Observation(likelihood)
    raise TypeError(f"likelihood must be a GPyTorch likelihood; got {likelihood!r}.")
