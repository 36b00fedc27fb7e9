"""The problem of a fit: features, a likelihood and data, with the terms of the bound that every loop needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import check_points
from harmonicgp.features.base import Features, Whitened
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation
from harmonicgp.inference.natural_gradient import natural_gradient_step
from harmonicgp.inference.posterior import Posterior, VariationalPosterior
from harmonicgp.inference.prediction import MeanFunction
from harmonicgp.inference.statistics import chunks
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.likelihoods.observation import Bound, Observation
from harmonicgp.training.schedule import Batches, Schedule


@dataclass(frozen=True)
class Sites:
    """A batch for a natural-gradient step: its features, and the slopes of its terms at the current posterior."""

    features: DenseEvaluation  #: without a graph
    mean: Tensor  #: of the features' part of f, [P, B]
    variance: Tensor | None  #: of the same; None if the slopes do not need it
    g: Tensor  #: d e / d mean, [P, B]
    lam: Tensor  #: -2 d e / d variance, [P, B]


@dataclass(frozen=True)
class Problem:
    """Rows X [N, d], y [P, N] with the features, the likelihood and the mean function that model them."""

    features: Features
    observation: Observation
    X: Tensor
    y: Tensor
    mean: MeanFunction | None
    noise: Tensor | None  #: known noise variances, [N]
    bound: Bound
    counts: Tensor | None = None  #: how many equal rows each represents, [N]; None if all are one

    @property
    def N(self) -> int:
        """The number of rows."""
        return len(self.X)

    @property
    def size(self) -> float:
        """The number of rows, repeats counted."""
        return self.N if self.counts is None else float(self.counts.double().sum())

    def part(self, rows: Tensor | slice) -> Problem:
        """The same on some of the rows."""
        noise = None if self.noise is None else self.noise[rows]
        counts = None if self.counts is None else self.counts[rows]
        return replace(self, X=self.X[rows], y=self.y[:, rows], noise=noise, counts=counts)

    def joined(self, other: Problem) -> Problem:
        """The rows of both."""
        noise, counts = (
            None if a is None or b is None else torch.cat((a, b))
            for a, b in ((self.noise, other.noise), (self.counts, other.counts))
        )
        X, y = torch.cat((self.X, other.X)), torch.cat((self.y, other.y), 1)
        return replace(self, X=X, y=y, noise=noise, counts=counts)

    def by_orbits(self) -> Problem:
        """The same with its rows in the order in which passes over them are cheap."""
        order = self.features.by_orbits(self.X)
        return self if order is None else self.part(order)

    def sum(self, terms: Tensor) -> Tensor:
        """The sum of the rows' terms, repeats counted."""
        return (terms if self.counts is None else terms * self.counts).sum()

    def parameters(self) -> list[torch.nn.Parameter]:
        """All that Adam may change, each once."""
        modules = [self.features, self.features.view, self.observation, self.mean]
        parameters = (p for m in modules if isinstance(m, torch.nn.Module) for p in m.parameters() if p.requires_grad)
        return list(dict.fromkeys(parameters))

    def centred(self) -> Tensor:
        """Targets less the mean function, [P, N]: the targets of Gaussian closed forms."""
        return self.y if self.mean is None else self.y - self._prior_mean()

    def latent(self, m: Tensor) -> Tensor:
        """The latent mean: that of the features, and the mean function."""
        return m if self.mean is None else m + self._prior_mean()

    def _prior_mean(self) -> Tensor:
        assert self.mean is not None
        value = self.mean(self.X)
        if tuple(value.shape) not in ((self.N,), (len(self.y), self.N)):
            raise ValueError(
                f"the mean function must map [n, d] to [n], or to [P, n]; for {self.N} rows it gave {tuple(value.shape)}. "
                "A torch.nn.Linear needs .squeeze(-1)."
            )
        return value

    def parts(self, chunk_size: int) -> Iterator[Problem]:
        """The rows in parts of at most `chunk_size`."""
        return (self.part(rows) for rows in chunks(self.N, chunk_size))

    def coordinates(self) -> Tensor:
        """The rows in the metric of the kernel, [N, D]: nearer rows are more alike."""
        return metric_coordinates(getattr(self.features.view, "kernel", None), self.X)

    def batches(self, plan: Schedule) -> Batches:
        """The batches of a fit: numbers for `batch`."""
        return Batches(self.N, plan.batch_size, plan.seed)

    def batch(self, numbers: Tensor) -> Problem:
        """The rows of a batch that `batches` drew."""
        return self.part(numbers)

    def evaluate(self, whitened: Whitened | None = None) -> Any:
        """The features of the rows and their residual; factorised again, differentiably, unless `whitened` is given."""
        return self.features(self.X) if whitened is None else whitened(self.X)

    def terms(self, posterior: VariationalPosterior, evaluation: Any) -> Tensor:
        """The terms of the bound for each row at a posterior, [N], from the result of `evaluate`."""
        m, v = posterior.moments(evaluation)
        return self.observation.terms(self.y, self.latent(m), v, evaluation.residual, self.bound, self.noise)

    @torch.no_grad()
    def sites(self, posterior: Posterior, evaluation: Any) -> Sites:
        """The slopes of these terms at a posterior, repeats counted, from the result of `evaluate`."""
        features, residual = evaluation.detach(), evaluation.residual.variance
        if self.observation.is_gaussian:  # its slopes do not depend on the variance
            m, v = features.project(posterior.mean_vector()), None
            total = residual.expand_as(m)
        else:
            m, v = posterior.moments(features)
            total = v + residual
        g, lam = self.observation.sites(self.y, self.latent(m), total, self.noise)
        if self.counts is not None:
            g, lam = g * self.counts, lam * self.counts
        return Sites(features, m, v, g, lam)

    @torch.no_grad()
    def step(self, posterior: Posterior, evaluation: Any, scale: float, rho: float) -> Posterior:
        """A natural-gradient step of length rho on these rows, which represent `scale` times as many.

        Under Gaussian noise the step is safe for every rho. Other likelihoods are not quadratic: the step is shortened
        until the bound on these rows does not fall, and skipped if no length helps.
        """
        sites = self.sites(posterior, evaluation)
        if self.observation.is_gaussian:
            return natural_gradient_step(posterior, sites.features, sites.g, sites.lam, scale, rho)
        assert sites.variance is not None
        before = self._value(posterior, sites.mean, sites.variance, evaluation, scale)
        for _ in range(6):
            try:
                candidate = natural_gradient_step(posterior, sites.features, sites.g, sites.lam, scale, rho)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # no Cholesky factor: the step was too long
                candidate = None
            if candidate is not None:
                after = self._value(candidate, *candidate.moments(sites.features), evaluation, scale)
                if after >= before - 1e-6 * abs(before):
                    return candidate
            rho = rho / 4
        return posterior

    def _value(self, posterior: Posterior, m: Tensor, v: Tensor, evaluation: Evaluation, scale: float) -> float:
        """The bound on these rows from the moments of the features' part."""
        terms = self.observation.terms(self.y, self.latent(m), v, evaluation.residual, self.bound, self.noise)
        return scale * float(self.sum(terms.double())) - float(posterior.kl())

    @torch.no_grad()
    def total(
        self, posterior: Posterior, whitened: Whitened, chunk_size: int = 4096, prior: Posterior | None = None
    ) -> float:
        """The bound on all rows at a posterior; `prior`, an earlier posterior, takes the place of N(0, I)."""
        value = -float(posterior.kl(prior))
        for part in self.parts(chunk_size):
            value += float(part.sum(part.terms(posterior, part.evaluate(whitened)).double()))
        return value


def check_data(
    X: Tensor, y: Tensor, noise: Tensor | None, counts: Tensor | None, observation: Observation
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Y as [P, N], noise and counts, in the dtype of X, after checks with clear errors."""
    check_points(X, "X")
    if X.dim() != 2:
        raise ValueError(f"X must hold one point a row, [N, d]; got shape {tuple(X.shape)}.")
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch tensor; got {type(y).__name__}.")
    y = y[None] if y.dim() == 1 else y
    if y.dim() != 2 or y.shape[-1] != len(X):
        raise ValueError(f"y must be [N] or [P, N] with N = {len(X)}, the rows of X; got shape {tuple(y.shape)}.")
    y = y.to(X.dtype)
    if not torch.isfinite(y).all():
        row = int((~torch.isfinite(y)).any(0).nonzero()[0])
        raise ValueError(f"y has NaN or infinite values, first in row {row}: drop or impute those rows.")
    observation.check_targets(y)
    if noise is not None:
        if not observation.is_gaussian:
            raise ValueError(
                "noise, known variances for each row, is for Gaussian noise; this likelihood would ignore it."
            )
        noise = torch.as_tensor(noise, dtype=X.dtype, device=X.device)
        if noise.shape != (len(X),) or not torch.isfinite(noise).all() or bool((noise < 0).any()):
            raise ValueError(
                f"noise must be {len(X)} finite variances, one a row and none negative; got shape {tuple(noise.shape)}."
            )
    if counts is not None:
        counts = torch.as_tensor(counts, dtype=X.dtype, device=X.device)
        if counts.shape != (len(X),) or not torch.isfinite(counts).all() or bool((counts <= 0).any()):
            raise ValueError(f"counts must be {len(X)} positive numbers, one a row; got shape {tuple(counts.shape)}.")
    return y, noise, counts


def check_model(features: Features, likelihood: gpytorch.likelihoods.Likelihood, X: Tensor) -> None:
    """Raise a clear error unless features, likelihood and data fit together."""
    if not isinstance(features, Features):
        raise TypeError(f"features must be one of harmonicgp.features; got {type(features).__name__}.")
    Z = getattr(features, "Z", None)
    if isinstance(Z, Tensor) and isinstance(X, Tensor) and Z.dtype != X.dtype:
        raise TypeError(f"X is {X.dtype} and the inducing inputs are {Z.dtype}: bring both to one dtype.")
    for part in (features.view, likelihood):
        if isinstance(part, torch.nn.Module) and X.dtype == torch.float32:
            for name, parameter in part.named_parameters():
                if parameter.dtype == torch.float64:
                    raise TypeError(
                        f"X is float32 and {name} is float64: use .float() on the one, or .double() on the other."
                    )
    features.check(X)
