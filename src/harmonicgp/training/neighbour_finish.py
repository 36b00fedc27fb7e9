"""The end of a fit with neighbours: the search, the closed form on all rows, and new rows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from harmonicgp.backend.memory import memory_kept
from harmonicgp.features.base import Whitened
from harmonicgp.features.evaluation import diagonal_blocks, split_coefficients
from harmonicgp.features.neighbours import Neighbourhood, ObservedRows
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.statistics import Statistics
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.training.finish import Split, Validation, finish, outputscale
from harmonicgp.training.fit import Fit, finish_seconds
from harmonicgp.training.local_noise import VaryingNoise, held_out_errors, learn_local_noise
from harmonicgp.training.neighbour_scores import (
    MAX_GIVEN,
    GivenRows,
    Scored,
    Start,
    family_of,
    group_statistics,
    groups_of,
    in_units,
    is_free,
    log_density,
    noise_of,
    set_aside,
    set_scalars,
)
from harmonicgp.training.neighbour_search import AHEAD, GAIN, NeighbourSearch
from harmonicgp.training.neighbours import gaussian, repeats, row_noise
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule


@memory_kept()
def fit_neighbours(
    result: Fit,
    problem: Problem,
    k: int | Literal["auto"] = "auto",
    schedule: Schedule | None = None,
    family: Family | Literal["auto"] = "auto",
) -> Fit:
    """A fit with neighbours, from a fit without and the rows that it was fitted to.

    If rows are held out, the hyper-parameters are learned again, in copies. Otherwise they stay unchanged.

    Args:
        result: the fit without neighbours. Its noise and output scale need not be refined.
        problem: its rows.
        k: the number of neighbours. "auto" decides by the density of held-out rows. If neighbours do not raise it, the first fit
            is finished as `training.fit` finishes it.
        schedule: that of the first fit; `time_budget` is the remaining time.
        family: the family of the posterior. "auto" is the joint family with neighbours.
    """
    begin, plan = time.perf_counter(), Schedule() if schedule is None else schedule
    observation = gaussian(problem)
    split = set_aside(problem, plan)
    start = Start(result.features, observation).copy()
    if split.held is None:
        if k == "auto":
            return _finished(result, problem, split, plan, family)
        ending, note = close(Scored(start, k, start.s2), split, plan, family), ""
    else:
        reserve = 0.0
        if k == "auto" and result.validation is None and plan.time_budget is not None:
            reserve = finish_seconds(split.trained, "block", plan)
        until = math.inf if plan.time_budget is None else begin + plan.time_budget
        search = NeighbourSearch(split, plan, until, reserve)
        best = search.run(start, k)
        if k == "auto" and search.first is not None and best.score == -math.inf:  # no factorisation with neighbours
            best = search.first
        if best.score == -math.inf and k == "auto":
            return _finished(result, problem, split, plan, family)
        ending, note = close(best, split, plan, family, search.given, until), search.note
        if k == "auto" and validation_score(ending, split.judged) < search.independent + AHEAD:
            others = [_finished(result, problem, split, plan, family)]
            if search.first is not None and search.first.score > best.score:
                others.append(close(search.first, split, plan, family, search.given))
            ending = _best(ending, others, split.judged)
    seconds = {**result.seconds, "neighbours": time.perf_counter() - begin}
    return replace(ending, mean=result.mean, history=result.history, seconds=seconds, note=note)


def _best(ending: Fit, others: Sequence[Fit], held: Problem | None) -> Fit:
    """The fit with neighbours if it says clearly more of the held-out rows than all others, else the best of these."""
    other = max(others, key=lambda fit: validation_score(fit, held))
    return ending if validation_score(ending, held) > validation_score(other, held) + GAIN else other


def validation_score(result: Fit, held: Problem | None) -> float:
    """The mean log-density of the held-out rows by what a fit said of them."""
    said = result.validation
    if said is None or held is None:
        return -math.inf
    held = Start(result.features, gaussian(replace(held, observation=result.observation))).on(held)
    mean = said.mean.double() - held.latent(torch.zeros_like(said.mean))
    s2 = float(gaussian(held).noise().detach())
    if said.noise is not None:
        errors = held_out_errors(held, mean, said.variance, s2)
        return errors.mean(errors.densities(said.noise)) / len(mean)
    return log_density(held, mean, said.variance, s2)[0]


def _finished(result: Fit, problem: Problem, split: Split, plan: Schedule, family: Family | Literal["auto"]) -> Fit:
    """The first fit, ended as `training.fit` ends it: with noise and output scale refined on the held-out rows."""
    if not isinstance(result.posterior, Posterior) or not plan.finish:
        return result
    if result.validation is not None and (result.refinement is not None or not plan.refine):
        return result
    ending = finish(problem, result.posterior, family, split, replace(plan, set_aside=True))
    return replace(
        result,
        posterior=ending.posterior,
        bound=ending.bound,
        refinement=ending.refinement,
        iterations=ending.iterations,
        validation=ending.validation,
    )


@torch.no_grad()
def close(
    best: Scored,
    split: Split,
    plan: Schedule,
    wanted: Family | Literal["auto"],
    most: int = MAX_GIVEN,
    until: float = math.inf,
) -> Fit:
    """The posterior, and what it said of held-out rows before it saw them.

    `most` rows inform it, each given its neighbours among all. Whether the noise varies is looked at up to the time `until`.
    """
    family = family_of(wanted)
    rows, s2, scale = GivenRows(best.start, split, best.k, most), best.s2, best.scale
    statistics, problem, validation = rows.statistics(s2), rows.trained, None
    varying: VaryingNoise | None = None
    if rows.held is not None and split.held is not None and split.rows is not None:
        form = closed_form(statistics, s2, family, "elbo")
        mean, variance = rows.moments(form, s2)
        if is_free(problem) and outputscale(best.start.features) is not None:
            scale = log_density(rows.held, mean, variance, s2, True)[1]
        validation = Validation(split.rows, rows.held.latent(mean), scale * variance, rows.held.counts)
        if best.k > 0 and is_free(problem):
            errors = held_out_errors(rows.held, mean, scale * variance, scale * s2)
            varying = learn_local_noise(rows, form, s2, scale, errors, until)
            validation = replace(validation, noise=None if varying is None else varying.smoothing.variances)
            if varying is not None and not plan.keep_out:
                varying = varying.joined(rows.held.X, errors)
        if not plan.keep_out:
            known, problem = problem.N, problem.joined(best.start.on(split.held))
            observed = ObservedRows(problem.X, problem.centred(), noise_of(problem, s2))
            statistics = statistics + _later_rows(rows.whitened, observed, known, s2, best.k > 0)
    units = in_units(statistics, scale)
    form = closed_form(units, s2, family, "elbo")
    start = best.start.copy()
    set_scalars(start, s2, scale)
    problem, P, n = start.on(problem), len(units.b), len(units.residual)
    bound = (form.bound - 0.5 * P * n * math.log(scale)) / n - float(repeats(problem).mean())
    ending = Fit(start.features, start.observation, form.posterior, problem.mean, bound, validation=validation)
    if best.k > 0:
        observed = ObservedRows(problem.X, problem.centred(), row_noise(problem).detach())
        kernel = getattr(start.features.view, "kernel", None)
        ending.neighbourhood = Neighbourhood.of(kernel, observed, min(best.k, len(observed)))
        ending.local_noise = None if varying is None else varying.noise(kernel)
    return ending


@torch.no_grad()
def absorb_neighbours(predictor: NeighbourPredictor, problem: Problem) -> NeighbourPredictor:
    """A predictor after new rows: each is given its nearest among all rows before it, and joins them."""
    hood, posterior, s2 = predictor.neighbourhood, predictor.posterior, float(gaussian(problem).noise())
    old, new = hood.observed, ObservedRows(problem.X, problem.centred(), row_noise(problem))
    pairs = ((old.X, new.X, 0), (old.y, new.y, 1), (old.noise, new.noise, 0))
    observed = ObservedRows(*(torch.cat((a, b), axis) for a, b, axis in pairs))
    sums = _later_rows(predictor.whitened, observed, len(old), s2, hood.k > 0)
    assert sums.S is not None
    Lambda, mu = posterior.dense_precision()[0], posterior.mean_vector()
    H = Lambda + sums.S / s2
    mean = torch.linalg.solve(H, (mu @ Lambda + sums.b / s2).mT).mT
    if posterior.family == "joint":
        updated = Posterior.from_precisions("joint", [mean[:, None]], [H[None, None]])
    else:
        blocks = [part[None] for part in diagonal_blocks(H, sums.shapes)]
        updated = Posterior.from_precisions("block", split_coefficients(mean, sums.shapes), blocks)
    return replace(predictor, posterior=updated, neighbourhood=Neighbourhood.of(hood.kernel, observed, hood.k))


def _later_rows(whitened: Whitened, observed: ObservedRows, known: int, s2: float, near: bool) -> Statistics:
    """The sums over the rows from number `known` on, each given rows before it; without `near` every residual is independent."""
    points = metric_coordinates(getattr(whitened.view, "kernel", None), observed.X)
    return group_statistics(whitened, observed, groups_of(points, near, len(points), known), s2)
