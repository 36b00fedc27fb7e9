"""What inference needs of a likelihood: e_n = E_q log p(y_n | f_n), its bound, and its derivatives.

GPyTorch's likelihoods are used through their own interface. Targets are [P, n], one row an output; for likelihoods of
several latent functions (softmax, robust-max) [1, n] class numbers and P latent functions.
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
    """A likelihood as inference sees it: one latent function for each output, any GPyTorch likelihood.

    Subclass it for a likelihood with checks of its targets, several latent functions or sites in closed form, and name the
    subclass in `register_likelihood`.
    """

    is_gaussian = False  #: whether closed forms apply

    def __init__(self, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    def check_bound(self, bound: str) -> None:
        """Raise a clear error unless the bound is one that the likelihood has."""
        if bound not in get_args(Bound):
            raise ValueError(f"bound must be one of {', '.join(map(repr, get_args(Bound)))}; got {bound!r}.")
        if bound != "elbo" and not self.is_gaussian:
            raise ValueError(f'the {bound!r} bound is for Gaussian noise; use bound="elbo" with this likelihood.')

    def check_targets(self, y: Tensor) -> None:
        """Raise a clear error for targets [P, N] that the likelihood cannot have made."""

    def n_latent(self, n_targets: int) -> int:
        """How many latent functions the targets need."""
        return n_targets

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The expectations e_n, [n], summed over outputs: in closed form or by Gauss-Hermite quadrature."""
        with torch.device(mean.device):  # GPyTorch makes tensors of its own
            latent = gpytorch.distributions.MultivariateNormal(mean, DiagLinearOperator(variance))
            return self.likelihood.expected_log_prob(y, latent).sum(0)

    def predictive_noise(self) -> tuple[float, float | None]:
        """The squared scale of additive noise, and the degrees of freedom of Student-t noise (None: Gaussian)."""
        raise TypeError(f"{type(self.likelihood).__name__} has no additive noise.")

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The probability of every class, [n, K], from marginals of the latent functions [n, P]."""
        if not hasattr(self.likelihood, "class_probabilities"):
            raise TypeError(f"{type(self.likelihood).__name__} has no probabilities of classes.")
        return self.likelihood.class_probabilities(mean, variance)

    def terms(self, y: Tensor, mean: Tensor, variance: Tensor, residual: Residual, bound: Bound,
              noise: Tensor | None = None) -> Tensor:  # fmt: skip
        """The per-row terms of the bound, [n]; mean and variance [P, n] are those of the features' part of f."""
        self.check_bound(bound)
        return self.expected(y, mean, variance + residual.variance)

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The slopes g = d e / d mean and lambda = -2 d e / d variance, clipped at zero, both [P, n]."""
        with torch.enable_grad():
            m, v = mean.detach().requires_grad_(), variance.detach().requires_grad_()
            g, h = torch.autograd.grad(self.expected(y, m, v).sum(), (m, v))
        return g, (-2 * h).clamp_min(0.0)


class GaussianObservation(Observation):
    """Gaussian noise: of one variance that is learned, plus a known variance for each row where given."""

    is_gaussian = True

    def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
        if likelihood.noise.numel() != 1:
            raise TypeError(
                "the Gaussian likelihood has a batch of noises; use one without batch_shape: outputs share it."
            )
        super().__init__(likelihood)

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
    """Two classes by a probit."""

    def check_targets(self, y: Tensor) -> None:
        """Raise a clear error unless targets are 0 and 1, or -1 and 1."""
        values = set(y.unique().tolist()) if y.numel() else set()
        if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
            raise ValueError(f"targets of a Bernoulli likelihood are 0 and 1 (or -1 and 1); got {sorted(values)[:5]}.")

    def class_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Both probabilities, [n, 2]."""
        p = torch.special.ndtr(mean[:, 0] / (1 + variance[:, 0]).sqrt())
        return torch.stack((1 - p, p), -1)


class ClassObservation(Observation):
    """Several classes, a latent function for each; targets are one row of class numbers."""

    def check_targets(self, y: Tensor) -> None:
        """Raise a clear error unless targets are class numbers."""
        K = self.n_latent(1)
        if len(y) != 1 or bool((y != y.round()).any() | (y < 0).any() | (y >= K).any()):
            raise ValueError(
                f"targets must be one row of class numbers 0 to {K - 1}, y [N]; got shape {tuple(y.shape)}."
            )

    def n_latent(self, n_targets: int) -> int:
        """One for each class."""
        return int(self.likelihood.num_classes)

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The expectations e_n, [n]. A likelihood that samples them gets the same draws each time."""
        latent = gpytorch.distributions.MultitaskMultivariateNormal(
            mean.mT, DiagLinearOperator(variance.mT.reshape(-1))
        )
        with torch.random.fork_rng(devices=[]):  # the global state is left alone
            torch.manual_seed(0)
            return self.likelihood.expected_log_prob(y[0], latent)


class _SoftmaxObservation(ClassObservation):
    """GPyTorch's softmax, whose latent functions may be mixed."""

    def n_latent(self, n_targets: int) -> int:
        """One for each of its features."""
        return int(self.likelihood.num_features)


def _refused(likelihood: gpytorch.likelihoods.Likelihood) -> Observation:
    raise TypeError(
        f"{type(likelihood).__name__}: use GaussianLikelihood. Known variances for each row are given to fit as noise=, "
        "several outputs as y [P, N]."
    )


# Which likelihoods there are ------------------------------------------------------------------------------------------

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
    """Tell the library about a class of likelihoods of your own. `training.fit` takes any GPyTorch likelihood without this.

    Args:
        name: the name in files; None if it is not to be saved. Call this before you save, and before you load.
        cls: the class. Subclasses are observed like it; files hold exactly this class.
        observation: the `Observation` that inference sees it through.
        make: builds the likelihood from its fields; the class itself by default.
        parameters: the submodule that holds the parameters, if the likelihood itself does not.
        fields: constructor arguments to save, attributes of the same name, each with its type: `int` (not negative), `float`,
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
    """The likelihood as inference sees it."""
    if isinstance(likelihood, Observation):
        return likelihood
    if not isinstance(likelihood, gpytorch.likelihoods.Likelihood):
        raise TypeError(f"likelihood must be a GPyTorch likelihood; got {likelihood!r}.")
    known = [_OBSERVATIONS[kind] for kind in type(likelihood).__mro__ if kind in _OBSERVATIONS]
    return known[0](likelihood) if known else Observation(likelihood)


register_likelihood(
    "GaussianLikelihood", gpytorch.likelihoods.GaussianLikelihood, observation=GaussianObservation,
    parameters="noise_covar",
)  # fmt: skip
register_likelihood("StudentTLikelihood", gpytorch.likelihoods.StudentTLikelihood, observation=StudentTObservation)
register_likelihood("BernoulliLikelihood", gpytorch.likelihoods.BernoulliLikelihood, observation=BernoulliObservation)
register_likelihood(None, gpytorch.likelihoods.SoftmaxLikelihood, observation=_SoftmaxObservation)
register_likelihood(None, gpytorch.likelihoods.FixedNoiseGaussianLikelihood, observation=_refused)
register_likelihood(None, gpytorch.likelihoods.MultitaskGaussianLikelihood, observation=_refused)
