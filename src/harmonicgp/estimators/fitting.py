"""Fits a model to model rows: the choice of its shape, its size, the training, and the finish."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harmonicgp.actions import Action
from harmonicgp.backend.threads import stop_spinning
from harmonicgp.estimators.choice_file import ChoiceFile
from harmonicgp.estimators.model import FittedModel
from harmonicgp.features import Features, SparseFeatures
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.likelihoods.observation import observe
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.cost import ONE_BLOCK, affordable, finish_cost, inducing_for, step_cost
from harmonicgp.symmetry.factories import make_features, make_kernel
from harmonicgp.symmetry.options import make_schedule
from harmonicgp.symmetry.selection import choose_symmetry
from harmonicgp.symmetry.settings import ModelSettings, gradients_enabled
from harmonicgp.tables.inputs import Inputs
from harmonicgp.tables.rows import ModelRows, ModelTensors
from harmonicgp.training import Fit, Schedule, fit
from harmonicgp.training.exact import fit_exact
from harmonicgp.training.finish import Validation
from harmonicgp.training.neighbour_finish import fit_neighbours
from harmonicgp.training.problem import Problem

#: Inducing points in each block, at most, for a small table whose model is not exact.
SMALL_BLOCK = 256
#: The share of the time budget, after the search, that is reserved for neighbours.
NEIGHBOUR_SHARE = 0.45


@gradients_enabled()
def fit_model(
    data: ModelRows, settings: ModelSettings, keep_out: bool = False
) -> tuple[FittedModel, Validation | None]:
    """Choose the shape of the model and fit it; with `keep_out`, held-out rows stay out of the final posterior.

    Returns the model, and the predictions at held-out rows if there are any.
    """
    stop_spinning()
    columns = settings.columns_of(data)
    prepared = settings.seconds()
    choice_file = ChoiceFile.of(data, settings)
    earlier = None if choice_file is None else choice_file.read()
    choice, m = earlier or (choose_symmetry(data, columns, settings), None)
    searched = settings.seconds() - prepared
    candidate = choice.candidate
    inputs = Inputs.fit(data.X, data.counts, columns, candidate.warp, candidate.axes == "principal")
    action = choice.action or candidate.action(inputs)
    choice = replace(choice, action=action)
    tensors = data.tensors(inputs, settings.dtype, settings.device)
    if m is None:
        m = _n_inducing(settings, action, candidate)
        if choice_file is not None:
            choice_file.write(choice, m)
    exact = settings.small and settings.is_gaussian and action is None and m >= len(data) and not keep_out
    features = _features(tensors, inputs, action, m, exact, settings)
    problem = Problem(
        features,
        observe(settings.likelihood()),
        tensors.X,
        tensors.y,
        None,
        tensors.noise,
        settings.bound,
        tensors.counts,
    )
    timings = {"prepare": settings.seconds() - searched, "search": searched}
    plan = _schedule(settings, keep_out)
    result = _run(problem, candidate, exact, plan, settings)
    if choice_file is not None:
        choice_file.delete()
    model = FittedModel(
        inputs=inputs,
        predictor=result.predictor(),
        kernel=getattr(result.features.view, "kernel", None),
        likelihood=result.observation.likelihood,
        bound=settings.bound,
        choice=choice,
        elbo=result.bound,
        history=result.history,
        timings=timings | {name: float(value) for name, value in result.seconds.items()},
        modelled_cost=_modelled_cost(features, action, choice, len(result.history), plan, settings),
        seed=settings.seed,
        ranges=np.stack((data.X.min(0), data.X.max(0)), 1).tolist(),
        notes=[*settings.encoding.notes, *columns.notes, *_neighbour_notes(result, settings), *_noise_notes(result)],
        warnings=settings.encoding.warnings,
    )
    return model, result.validation


def _features(
    data: ModelTensors, inputs: Inputs, action: Action | None, m: int, exact: bool, settings: ModelSettings
) -> Features:
    """Features with an inducing point at every row for an exact model, else with m in each block."""
    options = settings.options
    kernel = make_kernel(options.kernel, inputs, action, data.X, settings.seed)
    if exact:
        return SparseFeatures(kernel, data.X, learn_inducing=False)
    return make_features(
        kernel,
        action,
        data.X,
        m,
        share=options.share_inducing,
        resolution=options.resolution,
        counts=data.counts,
        seed=settings.seed,
    )


def _run(problem: Problem, candidate: Candidate, exact: bool, plan: Schedule, settings: ModelSettings) -> Fit:
    """The exact fit, or training by steps; with neighbours, training is followed by their finish."""
    callbacks = tuple(settings.options.callbacks or ())
    if exact:
        return fit_exact(problem, plan, callbacks)
    family: Any = settings.family or ("joint" if candidate.posterior == "joint" else "auto")
    k = settings.requested_neighbours if problem.features.n_features <= MAX_DENSE else 0
    share = 0.0 if k == 0 else NEIGHBOUR_SHARE
    first = plan if k == 0 else replace(plan, refine=False, finish=False, set_aside=True)
    if plan.time_budget is not None:
        first = replace(first, time_budget=(1 - share) * plan.time_budget)
    result = fit(
        problem.features,
        problem.observation.likelihood,
        problem.X,
        problem.y,
        noise=problem.noise,
        counts=problem.counts,
        family=family,
        bound=settings.bound,
        schedule=first,
        callbacks=callbacks,
    )
    if k == 0:
        return result
    if plan.time_budget is not None:
        plan = replace(plan, time_budget=max(settings.until() - time.perf_counter(), 1e-2))
    ending = fit_neighbours(result, problem, k, plan, family)
    if plan.checkpoint is not None:  # keep the checkpoint of the first fit until the neighbours are complete
        plan.checkpoint.unlink(missing_ok=True)
    return ending


def _neighbour_notes(result: Fit, settings: ModelSettings) -> list[str]:
    """Why a fit ended early, or why a model has no neighbours although the user asked for some."""
    k = settings.requested_neighbours
    if result.note:
        return [result.note]
    if k in (0, "auto") or result.neighbourhood is not None:
        return []
    if settings.small:
        return [f"neighbours={k} is not used: up to 2,000 rows the model is exact."]
    return [f"neighbours={k} is not used: the model has more than {MAX_DENSE:,} features."]


def _noise_notes(result: Fit) -> list[str]:
    """How far the noise varies, where it does."""
    if result.local_noise is None or result.validation is None or result.validation.noise is None:
        return []
    variances = result.validation.noise.mean(0)
    low, high = (variances.quantile(variances.new_tensor([0.05, 0.95])) / variances.mean()).sqrt().tolist()
    return [
        f"the noise varies between rows: for nine rows in ten its standard deviation is {low:.2g} to {high:.2g} times that of "
        "the average row. Error bars follow it."
    ]


def _schedule(settings: ModelSettings, keep_out: bool) -> Schedule:
    """The schedule of the fit: full batches for few rows, and the remaining time budget."""
    options = settings.options
    changes: dict[str, Any] = {"seed": settings.seed, "keep_out": keep_out}
    if settings.small:
        changes["batch_size"] = max(options.batch_size, settings.n_rows)
        if not keep_out:
            changes["validation_fraction"] = 0.0
    if options.time_budget is not None:
        changes["time_budget"] = max(settings.until() - time.perf_counter(), 1e-2)
    if options.checkpoint_dir is not None:
        changes["checkpoint"] = Path(options.checkpoint_dir) / "fit.checkpoint"
    return make_schedule(options, **changes)


def _n_inducing(settings: ModelSettings, action: Action | None, candidate: Candidate) -> int:
    """The number of inducing points in each block."""
    options, N, outputs = settings.options, settings.n_rows, settings.n_precisions
    if options.n_inducing != "auto":
        return int(options.n_inducing)
    if settings.small and action is None and settings.is_gaussian:
        return N
    batch = min(options.batch_size, N)
    # Neighbours correct what fewer points miss. With a symmetry, the search has shown that more points pay.
    share = 0.5 if outputs > 1 else (0.5 if action is None else 0.75) if settings.neighbours else 1.0
    width = int(share * ONE_BLOCK)
    allowance = step_cost(None, min(width, N), batch, "block")
    if options.time_budget is not None:
        seconds = settings.until() - time.perf_counter()
        allowance = min(allowance, affordable(seconds, N, options.max_steps, batch, settings.device))
    if settings.small:
        allowance = min(allowance, step_cost(None, min(SMALL_BLOCK, N), batch, "block"))
    most = int(MAX_DENSE / math.sqrt(outputs))
    return max(inducing_for(allowance, action, batch, candidate.posterior, outputs, N, most), 1)


def _modelled_cost(
    features: Features,
    action: Action | None,
    choice: SymmetryChoice,
    steps: int,
    plan: Schedule,
    settings: ModelSettings,
) -> float:
    """The modelled cost of the search, the training and the finish."""
    m = features.inducing()[0].shape[-2]
    family = "joint" if settings.options.posterior == "joint" else choice.candidate.posterior
    step = step_cost(action, m, min(plan.batch_size, settings.n_rows), family, settings.n_precisions)
    return choice.cost + steps * step + finish_cost(action, m, settings.n_rows)
