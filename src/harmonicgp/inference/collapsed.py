"""The collapsed bound as an objective: its value and its gradient, in passes over the data.

At the optimal q the bound's derivative in q vanishes (the envelope theorem), so its gradient in inducing inputs and
hyper-parameters is that of the bound with q held fixed: no derivative goes through a solve or through conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.features.base import Features
from harmonicgp.features.evaluation import Evaluation
from harmonicgp.features.longitude import GlobeGrid
from harmonicgp.inference.closed_form import ClosedForm, closed_form
from harmonicgp.inference.posterior import Family
from harmonicgp.inference.statistics import EvaluationStatistics, chunks, gather_statistics, streaming_matvec
from harmonicgp.likelihoods.observation import Bound, GaussianObservation


@dataclass(frozen=True)
class Passes:
    """Settings of the passes over the data."""

    chunk_size: int = 4096  #: rows at a time
    dense: bool | None = None  #: whether to compute the F x F matrix; None: if it fits into memory
    tolerance: float = 1e-6  #: of conjugate gradients


def collapsed_bound(
    features: Features,
    observation: GaussianObservation,
    X: Tensor | GlobeGrid,
    y: Tensor,
    family: Family = "block",
    bound: Bound = "tight",
    noise: Tensor | None = None,
    gradient: bool = False,
    counts: Tensor | None = None,
    passes: Passes | None = None,
) -> ClosedForm:
    """The optimal posterior and the bound on log p(y) for Gaussian noise, all rows X [N, d], y [P, N].

    X may also be a `GlobeGrid` with values y [P, rows, columns]; `counts` are zero for missing cells. `noise` are known
    noise variances of the rows. With `gradient`, a second pass in chunks adds the gradients of the *negative* bound to the
    `.grad` of the parameters, as a minimiser needs them; q stays at its optimum.

    Examples:
        >>> import gpytorch, torch
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.likelihoods import observe
        >>> X = torch.linspace(0, 1, 20)[:, None]
        >>> features = SparseFeatures(gpytorch.kernels.RBFKernel(), X[::4])
        >>> form = collapsed_bound(features, observe(gpytorch.likelihoods.GaussianLikelihood()), X, X.sin().mT)
        >>> form.posterior.mean_vector().shape
        torch.Size([1, 5])
    """
    passes = Passes() if passes is None else passes
    if not isinstance(observation, GaussianObservation):
        raise TypeError("the collapsed bound is for Gaussian noise: give observe(GaussianLikelihood()).")
    s2 = float(observation.noise().detach().double())
    weights = None if noise is None else s2 / (s2 + noise.double())
    pieces: Iterable[tuple[Evaluation, slice]]
    if isinstance(X, GlobeGrid):
        with torch.set_grad_enabled(gradient):
            evaluation = features(X)
        statistics = EvaluationStatistics.of(evaluation.detach(), y, weights, counts)
        form = closed_form(statistics, s2, family, bound, tolerance=passes.tolerance, max_iterations=200)
        pieces = [(evaluation, slice(None))] if gradient else []
    else:
        y = y[None] if y.dim() == 1 else y
        with torch.no_grad():
            whitened = features.whiten()
            size = passes.chunk_size
            sums = gather_statistics(whitened, features.shapes, X, y, weights, size, dense=passes.dense, counts=counts)
            matvec = None if sums.S is not None else streaming_matvec(whitened, X, weights, size, counts=counts)
            form = closed_form(sums, s2, family, bound, matvec=matvec, tolerance=passes.tolerance)
        pieces = ((features(X[rows]), rows) for rows in chunks(len(X), size)) if gradient else ()
    for evaluation, rows in pieces:
        mean, variance = form.posterior.moments(evaluation)
        row_noise = None if noise is None else noise[rows]
        terms = observation.terms(y[:, rows], mean, variance, evaluation.residual, bound, row_noise)
        (-(terms if counts is None else terms * counts[rows]).sum()).backward()
    return form
