"""The end of a fit, on all rows: the closed form for Gaussian noise, full-data natural-gradient steps for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.backend.hashes import hashes
from harmonicgp.features.base import Features, Whitened
from harmonicgp.features.evaluation import DenseEvaluation
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.refinement import Refinement, refine
from harmonicgp.inference.statistics import MAX_DENSE, Statistics, chunks, gather_statistics, streaming_matvec
from harmonicgp.likelihoods.observation import Bound, GaussianObservation
from harmonicgp.training.full_data import full_data_step
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule

#: Nats per row for which the joint posterior is worth its cost.
JOINT_GAIN = 0.01
#: The share of repeated rows that must have several targets for repeats to be new measurements, not copies.
REMEASURED = 0.1


@dataclass(frozen=True)
class Validation:
    """Predictions for held-out rows, from before they join the model: mean and variance of f, both [P, n]."""

    rows: Tensor  #: their numbers, [n]
    mean: Tensor
    variance: Tensor
    counts: Tensor | None = None  #: how many equal rows each represents
    noise: Tensor | None = None  #: the noise variance of each row where it varies, [P, n]
    in_turn: bool = False  #: whether each row is predicted from all the others


@dataclass(frozen=True)
class Split:
    """The training rows and the held-out rows: the problem on each, and the numbers of the held-out rows."""

    trained: Problem
    held: Problem | None = None
    rows: Tensor | None = None
    by_copies: bool = False  #: whether all copies of a row are on one side

    @property
    def judged(self) -> Problem | None:
        """The held-out rows with their counts in a score. If all copies of a row are held out together, they count once."""
        if self.held is None or self.held.counts is None or not self.by_copies:
            return self.held
        return replace(self.held, counts=self.held.counts.clamp_max(1.0))


@dataclass(frozen=True)
class Ending:
    """The final posterior, the bound per row, and how they were computed."""

    posterior: Posterior | StreamedPosterior
    bound: float
    refinement: Refinement | None = None
    iterations: int = 0
    validation: Validation | None = None


@torch.no_grad()
def finish(
    problem: Problem,
    q: Posterior,
    family: Family | Literal["auto"],
    split: Split,
    plan: Schedule,
) -> Ending:
    """The optimal posterior on all rows at the current parameters; with `plan.keep_out`, without the held-out rows."""
    if isinstance(problem.observation, GaussianObservation):
        return _gaussian(problem, problem.observation, family, split, plan)
    whitened = problem.features.whiten()
    few = q.n_outputs * problem.features.n_features**2 <= MAX_DENSE**2
    passes = plan.full_passes if few else 0
    problem = problem.by_orbits()
    known, validation = split.trained.by_orbits(), None
    if split.held is not None:
        if passes:
            q = full_data_step(known, whitened, q)
        validation = _said(split, _evaluate(whitened, split.held.X), q, 1.0)
    last = known if plan.keep_out else problem
    for _ in range(passes):
        q = full_data_step(last, whitened, q)
    return Ending(q, last.total(q, whitened) / last.size, validation=validation)


def _gaussian(
    problem: Problem,
    observation: GaussianObservation,
    wanted: Family | Literal["auto"],
    split: Split,
    plan: Schedule,
) -> Ending:
    """The closed form on all rows, after the scalars are refined on the held-out rows."""
    problem, features = problem.by_orbits(), problem.features
    whitened = features.whiten()
    s2 = float(observation.noise().double())
    name: Bound = "elbo" if problem.bound == "elbo" else "tight"

    def gather(part: Problem) -> Statistics:
        weights = None if part.noise is None else (s2 / (s2 + part.noise.double()))
        return gather_statistics(
            whitened, features.shapes, part.X, part.centred(), weights, plan.chunk_size, counts=part.counts
        )

    known, out = split.trained.by_orbits(), split.held
    statistics = gather(known)
    if statistics.S is None:  # too many features for their matrix: passes over the data instead
        weights = None if problem.noise is None else (s2 / (s2 + problem.noise.double()))
        matvec = streaming_matvec(whitened, problem.X, weights, counts=problem.counts)
        form = closed_form(statistics, s2, "block", name, matvec=matvec)
        joint = wanted == "joint"
        posterior = StreamedPosterior.of(form.posterior, matvec, s2) if joint else form.posterior
        return Ending(posterior, form.bound / problem.size, None, form.iterations)
    family = _better(statistics, s2, name, known.size) if wanted == "auto" else wanted
    if out is None:
        form = closed_form(statistics, s2, family, name)
        return Ending(form.posterior, form.bound / problem.size)
    evaluation = _evaluate(whitened, out.X)
    scaled = outputscale(features)
    found = Refinement(s2, 1.0, math.nan, math.nan, 0)
    if plan.refine and problem.noise is None:
        noise_free = observation.likelihood.noise_covar.raw_noise.requires_grad
        limits = (
            _limits(observation.likelihood.noise_covar.raw_noise_constraint) if noise_free else (s2, s2),
            (1.0, 1.0) if scaled is None else _limits(scaled.raw_outputscale_constraint, float(scaled.outputscale)),
        )
        found = refine(
            statistics, evaluation, out.centred(), s2, family, *limits, counts=None if split.by_copies else out.counts
        )
    said = closed_form(statistics, found.s2, family, name, found.scale).posterior
    validation = _said(split, evaluation, said, found.scale)
    last = known if plan.keep_out else problem
    if not plan.keep_out:
        statistics = statistics + gather(out)
    bound = closed_form(statistics, s2, family, name)
    if found.trials == 0:
        return Ending(bound.posterior, bound.bound / last.size, validation=validation)
    observation.likelihood.noise = found.s2
    if scaled is not None:
        scaled.outputscale = scaled.outputscale * found.scale
    posterior = closed_form(statistics, found.s2, family, name, found.scale).posterior
    return Ending(posterior, bound.bound / last.size, found, validation=validation)


def _better(statistics: Statistics, s2: float, name: Bound, size: float) -> Family:
    """The joint family if its bound is clearly higher, because it makes predictions slower."""
    if sum(blocks for blocks, _ in statistics.shapes) == 1:
        return "block"
    block, joint = (closed_form(statistics, s2, family, name).bound / size for family in ("block", "joint"))
    return "joint" if joint > block + JOINT_GAIN else "block"


def _said(split: Split, evaluation: DenseEvaluation, posterior: Posterior, scale: float) -> Validation:
    """The moments of f at the held-out rows, from a posterior without them."""
    out, rows = split.held, split.rows
    assert out is not None
    assert rows is not None
    mean, variance = posterior.moments(evaluation.scaled(math.sqrt(scale)))
    return Validation(rows, out.latent(mean), variance + scale * evaluation.residual.variance, out.counts)


def _evaluate(whitened: Whitened, X: Tensor, chunk_size: int = 4096) -> DenseEvaluation:
    parts = [whitened.dense(X[rows]) for rows in chunks(len(X), chunk_size)]
    stacks = tuple(torch.cat(stack, -1) for stack in zip(*(part.stacks for part in parts), strict=True))
    return DenseEvaluation(stacks, IndependentResidual(torch.cat([part.residual.variance for part in parts])))


def outputscale(features: Features) -> gpytorch.kernels.ScaleKernel | None:
    """The outermost kernel if it is a `ScaleKernel` with a learned output scale, else None."""
    kernel = getattr(features.view, "kernel", None)
    if not isinstance(kernel, gpytorch.kernels.ScaleKernel) or not kernel.raw_outputscale.requires_grad:
        return None
    return kernel


def _limits(constraint: gpytorch.constraints.Interval, unit: float = 1.0) -> tuple[float, float]:
    """The range that the constraint of a parameter allows, in units of its current value."""
    low, high = float(constraint.lower_bound.max()), float(constraint.upper_bound.min())
    return max(1e-6, 1.01 * low / unit), min(1e6, 0.99 * high / unit)


def hold_out(problem: Problem, plan: Schedule) -> Split:
    """Hold rows out if scalars are refined on them or the fit is watched.

    A row that represents several equal ones may be on both sides: some of these rows of the table are held out. With neighbours,
    copies are held out together, because the nearest row would be the row's own copy.
    """
    by_copies = plan.set_aside and problem.counts is not None and not _is_remeasured(problem)
    size = problem.N if by_copies else problem.size
    share = min(plan.validation_fraction, plan.max_validation / size)
    refined = plan.refine and problem.observation.is_gaussian and problem.noise is None
    wanted = plan.set_aside or (plan.finish and (refined or plan.early_stopping or plan.keep_out))
    too_many = problem.observation.is_gaussian and problem.features.n_features > MAX_DENSE
    if not wanted or share * size < 20 or too_many:
        return Split(problem)
    generator = torch.Generator().manual_seed(plan.seed + 1)
    if problem.counts is None or by_copies:
        order = torch.randperm(problem.N, generator=generator, device="cpu").to(problem.X.device)
        n = int(share * problem.N)
        rows = order[:n].sort().values
        return Split(problem.part(order[n:].sort().values), problem.part(rows), rows, by_copies)
    counts = problem.counts.double()
    units = counts.floor().clamp_min(1.0)  # a row with a weight below two is held out whole or not at all
    taken = torch.binomial(units, torch.full_like(units, share), generator=generator) * (counts / units)
    rows, left = (taken > 0).nonzero()[:, 0], counts - taken
    trained = (left > 1e-9 * counts).nonzero()[:, 0]
    if len(rows) == 0 or len(trained) == 0:
        return Split(problem)
    held = replace(problem.part(rows), counts=taken[rows].to(problem.X.dtype))
    return Split(replace(problem.part(trained), counts=left[trained].to(problem.X.dtype)), held, rows)


def _is_remeasured(problem: Problem) -> bool:
    """Whether repeated inputs are new measurements: a share `REMEASURED` of their rows, or more, has several targets."""
    assert problem.counts is not None
    if float(problem.counts.min()) < 1:  # weights, not numbers of rows
        return False
    _, place = np.unique(hashes(problem.X.double().cpu().numpy()), return_inverse=True)
    rows, targets = np.bincount(place, problem.counts.double().cpu().numpy()), np.bincount(place)
    return float(rows[targets > 1].sum()) >= REMEASURED * float(rows[rows > 1].sum())
