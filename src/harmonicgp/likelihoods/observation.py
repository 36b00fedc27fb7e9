"""Likelihoods as inference needs them: e_n = E_q log p(y_n | f_n), its bounds, and its derivatives.

Any GPyTorch likelihood can be used. Targets are [P, n], one row for each output. Likelihoods with several latent functions
(softmax, robust-max) have targets [1, n], class numbers, and P latent functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import gpytorch
import torch
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from harmonicgp.features.residual import IndependentResidual, Residual
from harmonicgp.io.registry import LIKELIHOODS, FieldType

Bound: TypeAlias = Literal["elbo", "tight", "predictive"]


class Observation(torch.nn.Module):
    """A likelihood for inference. This class takes any GPyTorch likelihood, with one latent function for each output.

    Subclass it to check targets, or for several latent functions or slopes in closed form, and pass the subclass to
    `register_likelihood`.

    Examples:
        >>> observation = Observation(gpytorch.likelihoods.LaplaceLikelihood())
        >>> observation.expected(torch.zeros(1, 5), torch.zeros(1, 5), torch.ones(1, 5)).shape
        torch.Size([5])
    """

    is_gaussian = False  #: whether closed forms apply

    def __init__(self, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    def check_bound(self, bound: str) -> None:
        """Raise a ValueError unless the likelihood has the bound."""
        if bound not in get_args(Bound):
            raise ValueError(f"bound must be one of {', '.join(map(repr, get_args(Bound)))}; got {bound!r}.")
        if bound != "elbo" and not self.is_gaussian:
            raise ValueError(f'the {bound!r} bound is for Gaussian noise; use bound="elbo" with this likelihood.')

    def check_targets(self, y: Tensor) -> None:
        """Raise a ValueError for targets [P, N] that are impossible under the likelihood."""

    def n_latent(self, n_targets: int) -> int:
        """The number of latent functions for a number of rows of targets."""
        return n_targets

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The expectations e_n summed over outputs, [n], in closed form or by Gauss-Hermite quadrature."""
        with torch.device(mean.device):  # GPyTorch makes tensors on the default device
            latent = gpytorch.distributions.MultivariateNormal(mean, DiagLinearOperator(_raised(variance)))
            return self.likelihood.expected_log_prob(y, latent).sum(0)

    def predictive_noise(self) -> tuple[float, float | None]:
        """The squared scale of additive noise, and the degrees of freedom of Student-t noise (None: Gaussian)."""
        raise TypeError(f"{type(self.likelihood).__name__} has no additive noise.")

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The probability of every class, [n, K], from marginals of the latent functions [n, P]."""
        if not hasattr(self.likelihood, "class_probabilities"):
            raise TypeError(f"{type(self.likelihood).__name__} has no class probabilities.")
        return self.likelihood.class_probabilities(mean, variance)

    def terms(self, y: Tensor, mean: Tensor, variance: Tensor, residual: Residual, bound: Bound,
              noise: Tensor | None = None) -> Tensor:  # fmt: skip
        """The terms of the bound for each row, [n]; mean and variance [P, n] are those of f without the residual."""
        self.check_bound(bound)
        return self.expected(y, mean, variance + residual.variance)

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The slopes g = d e / d mean and lambda = -2 d e / d variance, clipped at zero, both [P, n]."""
        with torch.enable_grad():
            m, v = mean.detach().requires_grad_(), variance.detach().requires_grad_()
            g, h = torch.autograd.grad(self.expected(y, m, v).sum(), (m, v))
        return g, (-2 * h).clamp_min(0.0)


class GaussianObservation(Observation):
    """Gaussian noise with one learned variance, plus optional known variances of the rows.

    Examples:
        >>> observation = observe(gpytorch.likelihoods.GaussianLikelihood())
        >>> observation.likelihood.noise = 0.25
        >>> observation.noise(torch.tensor([0.0, 1.0])).tolist()  # [n]
        [0.25, 1.25]
    """

    is_gaussian = True

    def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
        if likelihood.noise.numel() != 1:
            raise TypeError(
                "the Gaussian likelihood has a batch of noises; use one without batch_shape, which all outputs share."
            )
        super().__init__(likelihood)

    def noise(self, row_noise: Tensor | None = None) -> Tensor:
        """The noise variance s2 [1], or its sum with known variances of the rows [n]."""
        s2 = self.likelihood.noise
        return s2 if row_noise is None else s2 + row_noise

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log N(y; f, s2)."""
        return self.terms(y, mean, variance, IndependentResidual(torch.zeros_like(variance[0])), "elbo")

    def terms(self, y: Tensor, mean: Tensor, variance: Tensor, residual: Residual, bound: Bound,
              noise: Tensor | None = None) -> Tensor:  # fmt: skip
        """The ELBO, the tight bound (Titsias 2025), or the predictive log-likelihood, which is not a bound."""
        self.check_bound(bound)
        s2 = self.noise(noise)
        if bound == "predictive":
            total = s2 + variance + residual.variance
            return (-0.5 * (2 * math.pi * total).log() - 0.5 * (y - mean).square() / total).sum(0)
        fit = -0.5 * (2 * math.pi * s2).log() - 0.5 * ((y - mean).square() + variance) / s2
        return (fit - residual.cost(s2, tight=bound == "tight")).sum(0)

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The slopes g = (y - mean) / s2, lambda = 1 / s2."""
        s2 = self.noise(noise).detach()
        return (y - mean) / s2, (1 / s2).expand_as(mean)

    def predictive_noise(self) -> tuple[float, float | None]:
        """The noise variance."""
        return float(self.likelihood.noise.detach()), None


class StudentTObservation(Observation):
    """Student-t noise."""

    def predictive_noise(self) -> tuple[float, float | None]:
        """The squared scale and the degrees of freedom."""
        return float(self.likelihood.noise.detach()), float(self.likelihood.deg_free.detach())


class BernoulliObservation(Observation):
    """Two classes with a probit link."""

    def check_targets(self, y: Tensor) -> None:
        """Raise a ValueError unless targets are 0 and 1, or -1 and 1."""
        values = set(y.unique().tolist()) if y.numel() else set()
        if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
            raise ValueError(f"targets of a Bernoulli likelihood are 0 and 1 (or -1 and 1); got {sorted(values)[:5]}.")

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The probabilities of both classes, [n, 2]."""
        p = torch.special.ndtr(mean[:, 0] / (1 + variance[:, 0]).sqrt())
        return torch.stack((1 - p, p), -1)


class ClassObservation(Observation):
    """Several classes with a latent function for each. Targets are one row of class numbers."""

    def check_targets(self, y: Tensor) -> None:
        """Raise a ValueError unless targets are class numbers."""
        K = self.n_latent(1)
        if len(y) != 1 or bool((y != y.round()).any() | (y < 0).any() | (y >= K).any()):
            raise ValueError(
                f"targets must be one row of class numbers 0 to {K - 1}, y [N]; got shape {tuple(y.shape)}."
            )

    def n_latent(self, n_targets: int) -> int:
        """The number of classes."""
        return int(self.likelihood.num_classes)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The expectations e_n, [n]. A likelihood that estimates them by sampling gets the same random numbers each time."""
        latent = gpytorch.distributions.MultitaskMultivariateNormal(
            mean.mT, DiagLinearOperator(_raised(variance).mT.reshape(-1))
        )
        with torch.random.fork_rng(devices=[]):  # restores the global random state
            torch.manual_seed(0)
            return self.likelihood.expected_log_prob(y[0], latent)


class _SoftmaxObservation(ClassObservation):
    """GPyTorch's softmax, which may mix its latent functions."""

    def n_latent(self, n_targets: int) -> int:
        """The number of features of the softmax."""
        return int(self.likelihood.num_features)


def _raised(variance: Tensor) -> Tensor:
    """Variances that are at least the smallest that GPyTorch takes without a warning; the gradient passes through."""
    least = 2 * gpytorch.settings.min_variance.value(variance.dtype)
    return variance + (least - variance.detach()).clamp_min(0.0)


def _refused(likelihood: gpytorch.likelihoods.Likelihood) -> Observation:
    raise TypeError(
        f"{type(likelihood).__name__} is not supported: use GaussianLikelihood. Pass known variances of the rows to fit as "
        "noise=, and several outputs as y [P, N]."
    )


# Registered likelihoods -----------------------------------------------------------------------------------------------

_OBSERVATIONS: dict[type, Callable[[Any], Observation]] = {}


def register_likelihood(
    name: str | None,
    cls: type[gpytorch.likelihoods.Likelihood],
    /,
    *,
    observation: Callable[[Any], Observation] = Observation,
    make: Callable[..., Any] | None = None,
    parameters: str = "",
    **fields: FieldType,
) -> None:
    """Register your own class of likelihoods. `training.fit` accepts any GPyTorch likelihood without this.

    Args:
        name: the name in files; None if it cannot be saved. Register the class before you save and before you load.
        cls: the class. Subclasses use the same observation; files store instances of exactly this class.
        observation: the `Observation` class for inference.
        make: builds the likelihood from its fields; the class itself by default.
        parameters: the name of the submodule with the parameters, if they are not in the likelihood itself.
        fields: constructor arguments to save, each an attribute of the same name, with its type: `int` (not negative), `float`,
            `bool`, or one of these `| None`.

    Examples:
        >>> class Laplace(gpytorch.likelihoods.LaplaceLikelihood):
        ...     pass
        >>> register_likelihood("docs.Laplace", Laplace)
    """
    _OBSERVATIONS[cls] = observation
    if name is not None:
        LIKELIHOODS.add(name, cls, fields, make=make, parameters=parameters)


def observe(likelihood: gpytorch.likelihoods.Likelihood | Observation) -> Observation:
    """The observation of a likelihood, by its class.

    Examples:
        >>> observe(gpytorch.likelihoods.GaussianLikelihood()).is_gaussian
        True
    """
    if isinstance(likelihood, Observation):
        return likelihood
    if not isinstance(likelihood, gpytorch.likelihoods.Likelihood):
        raise TypeError(f"likelihood must be a GPyTorch likelihood; got {likelihood!r}.")
    make = next((_OBSERVATIONS[kind] for kind in type(likelihood).__mro__ if kind in _OBSERVATIONS), Observation)
    return make(likelihood)


register_likelihood(
    "GaussianLikelihood", gpytorch.likelihoods.GaussianLikelihood, observation=GaussianObservation,
    parameters="noise_covar",
)  # fmt: skip
register_likelihood("StudentTLikelihood", gpytorch.likelihoods.StudentTLikelihood, observation=StudentTObservation)
register_likelihood("BernoulliLikelihood", gpytorch.likelihoods.BernoulliLikelihood, observation=BernoulliObservation)
register_likelihood(None, gpytorch.likelihoods.SoftmaxLikelihood, observation=_SoftmaxObservation)
register_likelihood(None, gpytorch.likelihoods.FixedNoiseGaussianLikelihood, observation=_refused)
register_likelihood(None, gpytorch.likelihoods.MultitaskGaussianLikelihood, observation=_refused)
