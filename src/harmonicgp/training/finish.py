"""The end of a fit, on all rows: the closed form for Gaussian noise, full-data natural-gradient steps for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp.features.base import Evaluation, Features, Whitened
from harmonicgp.inference.closed_form import (
    MAX_DENSE,
    StreamedPosterior,
    chunks,
    closed_form,
    diagonal_blocks,
    gather_statistics,
    streaming_matvec,
)
from harmonicgp.inference.posterior import Family, Posterior, flatten
from harmonicgp.inference.refinement import Refinement, refine
from harmonicgp.likelihoods.observation import Bound, GaussianObservation
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule


@dataclass(frozen=True)
class Ending:
    """The final posterior, the bound per row, and how they were found."""

    posterior: Posterior
    bound: float
    refinement: Refinement | None = None
    iterations: int = 0


@torch.no_grad()
def finish(
    problem: Problem, q: Posterior, family: Family, trained: Tensor, held: Tensor | None, plan: Schedule
) -> Ending:
    """Bring q to its optimum on all rows, given the parameters."""
    if isinstance(problem.observation, GaussianObservation):
        return _gaussian(problem, problem.observation, family, trained, held)
    whitened = problem.features.whiten()
    if q.n_outputs * problem.features.n_features**2 <= MAX_DENSE**2:
        for _ in range(plan.full_passes):
            q = full_data_step(problem, whitened, q)
    return Ending(q, problem.total(q, whitened) / problem.N)


def _gaussian(
    problem: Problem, observation: GaussianObservation, family: Family, trained: Tensor, held: Tensor | None
) -> Ending:
    """The closed form on all rows, after the scalars are refined on those held out."""
    features, X, target, noise = problem.features, problem.X, problem.centred(), problem.noise
    whitened = features.whiten()
    s2 = float(observation.noise().double())
    weights = None if noise is None else (s2 / (s2 + noise.double()))
    name: Bound = "elbo" if problem.bound == "elbo" else "tight"
    statistics = gather_statistics(whitened, features.shapes, X[trained], target[:, trained], weights)
    if statistics.S is None:  # too many features for their matrix: passes over the data instead
        if held is not None:
            statistics = statistics + gather_statistics(whitened, features.shapes, X[held], target[:, held])
        matvec = streaming_matvec(whitened, X, weights)
        form = closed_form(statistics, s2, "block", name, matvec=matvec)
        joint = family == "joint"
        posterior = StreamedPosterior.of(form.posterior, matvec, s2) if joint else form.posterior
        return Ending(posterior, form.bound / problem.N, None, form.iterations)
    found = None
    if held is not None:
        out = _evaluate(whitened, X[held])
        scaled, noise_free = outputscale(features), observation.likelihood.noise_covar.raw_noise.requires_grad
        limits = (
            _limits(observation.likelihood.noise_covar.raw_noise_constraint) if noise_free else (s2, s2),
            (1.0, 1.0) if scaled is None else _limits(scaled.raw_outputscale_constraint, float(scaled.outputscale)),
        )
        found = refine(statistics, out, target[:, held], s2, family, *limits)
        statistics = statistics + gather_statistics(whitened, features.shapes, X[held], target[:, held])
    bound = closed_form(statistics, s2, family, name)
    if found is None:
        return Ending(bound.posterior, bound.bound / problem.N)
    observation.likelihood.noise = found.s2
    if scaled is not None:
        scaled.outputscale = scaled.outputscale * found.scale
    posterior = closed_form(statistics, found.s2, family, name, found.scale).posterior
    return Ending(posterior, bound.bound / problem.N, found)


def _evaluate(whitened: Whitened, X: Tensor, chunk_size: int = 4096) -> Evaluation:
    parts = [whitened(X[rows]) for rows in chunks(len(X), chunk_size)]
    stacks = tuple(torch.cat(stack, -1) for stack in zip(*(part.stacks for part in parts), strict=True))
    return Evaluation(stacks, torch.cat([part.residual for part in parts]))


@torch.no_grad()
def full_data_step(
    problem: Problem, whitened: Whitened, posterior: Posterior, rho: float = 1.0, chunk_size: int = 4096
) -> Posterior:
    """One natural-gradient step on all rows; shortened, and at last not taken, until the bound does not fall.

    The same step as on a batch, with the joint mean solved directly: S = A lambda A' is summed over chunks, one matrix [F, F]
    for each output.
    """
    P, F = posterior.n_outputs, problem.features.n_features
    S = torch.zeros(P, F, F, dtype=torch.float64)
    b = torch.zeros(P, F, dtype=torch.float64)
    for rows in chunks(problem.N, chunk_size):
        part = problem.part(torch.arange(rows.start, rows.stop))
        stacks, residual = whitened(part.X)
        m, v = posterior.moments(stacks)
        g, lam = part.observation.sites(part.y, part.latent(m), v + residual, part.noise)
        A = flatten(stacks)
        for p in range(P):
            S[p] += ((A * lam[p]) @ A.mT).double()
        b += ((g + lam * m) @ A.mT).double()
    S = 0.5 * (S + S.mT)
    old = torch.stack([_dense(posterior, p) for p in range(P)])
    before = problem.total(posterior, whitened, chunk_size)
    for _ in range(6):
        candidate = _mixed(posterior, old, S, b, rho)
        if candidate is not None and problem.total(candidate, whitened, chunk_size) >= before - 1e-8 * abs(before):
            return candidate
        rho = rho / 4
    return posterior


def _mixed(posterior: Posterior, old: Tensor, S: Tensor, b: Tensor, rho: float) -> Posterior | None:
    """The posterior after a step of length rho, None where its precision cannot be factorised."""
    P, F = b.shape
    mu = posterior.mean_vector()
    H = (1 - rho) * old + rho * (torch.eye(F, dtype=torch.float64) + S)
    rhs = (1 - rho) * (old @ mu[..., None])[..., 0] + rho * b
    L, info = torch.linalg.cholesky_ex(H)
    if bool((info != 0).any()) or not torch.isfinite(L).all():
        return None
    new = torch.cholesky_solve(rhs[..., None], L)[..., 0]
    if posterior.family == "joint":
        return Posterior.from_precisions("joint", [new[:, None]], [H[:, None]])
    shapes = [(m.shape[1], m.shape[2]) for m in posterior.means]
    by_output = [diagonal_blocks(H[p], shapes) for p in range(P)]
    precisions = [torch.stack([blocks[i] for blocks in by_output]) for i in range(len(shapes))]
    parts = new.split([n * f for n, f in shapes], -1)
    means = [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]
    return Posterior.from_precisions("block", means, precisions)


def _dense(posterior: Posterior, p: int) -> Tensor:
    """Lambda of one output as a dense matrix, block-diagonal for the block family."""
    blocks = [block for Lambda in posterior.precisions for block in Lambda[min(p, len(Lambda) - 1)]]
    return torch.block_diag(*blocks)


def outputscale(features: Features) -> gpytorch.kernels.ScaleKernel | None:
    """The kernel's output scale, where it has one for the whole of it that may be changed."""
    kernel = getattr(features.view, "kernel", None)
    if not isinstance(kernel, gpytorch.kernels.ScaleKernel) or not kernel.raw_outputscale.requires_grad:
        return None
    return kernel


def _limits(constraint: gpytorch.constraints.Interval, unit: float = 1.0) -> tuple[float, float]:
    """The range that a parameter's constraint leaves, in units of its present value."""
    low, high = float(constraint.lower_bound.max()), float(constraint.upper_bound.min())
    return max(1e-6, 1.01 * low / unit), min(1e6, 0.99 * high / unit)
