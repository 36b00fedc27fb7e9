"""Exact models for few rows and Gaussian noise: the marginal likelihood, maximised by a quasi-Newton method.

With an inducing point at every row the bound is the marginal likelihood itself. Its gradient needs one factorisation and no
derivative of it:  d log p / dK = (alpha alpha' - P (K + D)^{-1}) / 2  with alpha = (K + D)^{-1} y, D the noise, P outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.features.base import Features
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.statistics import gather_statistics
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.finish import Validation
from harmonicgp.training.fit import Callback, Fit, stop_wanted
from harmonicgp.training.local_noise import learn_in_turn
from harmonicgp.training.minimiser import Array, StopMinimisingError, minimise
from harmonicgp.training.neighbour_scores import is_free
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule

#: The time of the finish, in steps of the training.
FINISH = 2.5
#: With a time budget, this share of it goes to steps on every so-many-th row, if those are enough.
FIRST, EVERY, ENOUGH = 0.3, 4, 100
ALL = slice(None)


def log_marginal(problem: Problem, gradient: bool = False, rows: slice = ALL) -> float:
    """Log p(y), repeats counted; with `gradient`, that of *minus* log p(y) is added to the parameters' `.grad`."""
    observation = problem.observation
    assert isinstance(observation, GaussianObservation)
    noise, counts = (None if part is None else part[rows] for part in (problem.noise, problem.counts))
    K = problem.features.view.zx(problem.X[rows], problem.X[rows])
    return gaussian_log_density(K, problem.centred()[:, rows], observation.noise(noise), counts, gradient)


def gaussian_log_density(
    K: Tensor, y: Tensor, noise: Tensor, counts: Tensor | None = None, gradient: bool = False
) -> float:
    """Log N(y; 0, K + noise) of targets y [P, N] for a kernel matrix K [N, N] and noise variances [1] or [N].

    A count of c means c equal rows. With `gradient`, the gradient of *minus* the value is propagated back through K and the
    noise. The value is minus infinity if the matrix has no Cholesky factor.
    """
    y, (P, N) = y.double(), y.shape
    c = torch.ones(N, dtype=torch.float64, device=K.device) if counts is None else counts.double()
    s2 = noise.double().expand(N)
    with torch.no_grad():
        # c equal rows are one row of noise s2/c, up to a factor that depends on s2
        H = K.detach().double() + torch.diag(s2 / c)
        L, info = torch.linalg.cholesky_ex(H)
        if int(info) != 0 or not torch.isfinite(L).all():
            return -math.inf
        alpha = torch.cholesky_solve(y.mT, L)  # [N, P]
        logdet = 2 * L.diagonal().log().sum()
        repeated = ((c - 1) * (2 * math.pi * s2).log() + c.log()).sum()
        value = -0.5 * float((y.mT * alpha).sum() + P * (logdet + N * math.log(2 * math.pi) + repeated))
        if not gradient:
            return value
        G = 0.5 * (P * torch.cholesky_inverse(L) - alpha @ alpha.mT)  # of minus the value
        noise_gradient = G.diagonal() / c + 0.5 * P * (c - 1) / s2
    pairs = [(K, G.to(K.dtype)), (s2, noise_gradient)]
    free = [(tensor, slope) for tensor, slope in pairs if tensor.requires_grad]  # a kernel or a noise may be frozen
    if free:
        torch.autograd.backward([tensor for tensor, _ in free], [slope for _, slope in free])
    return value


def fit_exact(problem: Problem, plan: Schedule, callbacks: Sequence[Callback] = ()) -> Fit:
    """Learn kernel and noise from the marginal likelihood; the posterior is in closed form. Z of the features must be X."""
    start = time.perf_counter()
    parameters = [p for p in problem.parameters() if p.requires_grad]
    history: list[dict[str, Any]] = []
    until = math.inf if plan.time_budget is None else 0.95 * plan.time_budget
    bar = tqdm(total=plan.max_steps, desc="fit", disable=None if plan.progress else True, leave=False)

    def of_some(values: Array) -> tuple[float, Array]:
        loss, gradient = _evaluate(problem, parameters, values, slice(0, None, EVERY))
        if not math.isfinite(loss):
            return math.inf, np.zeros_like(values)
        if time.perf_counter() - start > FIRST * until:
            raise StopMinimisingError(loss)
        return loss, gradient

    def objective(values: Array) -> tuple[float, Array]:
        begun = time.perf_counter()
        loss, gradient = _evaluate(problem, parameters, values)
        if not math.isfinite(loss):
            return math.inf, np.zeros_like(values)
        record = {"step": len(history) + 1, "bound": -loss, "seconds": time.perf_counter() - start}
        history.append(record)
        bar.update()
        bar.set_postfix(bound=f"{-loss:.3f}", refresh=False)
        ahead = (1 + FINISH) * (time.perf_counter() - begun)  # another step, and the finish
        if stop_wanted(callbacks, record) or record["seconds"] + ahead > until or len(history) >= plan.max_steps:
            raise StopMinimisingError(loss)
        return loss, gradient

    first = _pack(parameters)
    with bar:
        if parameters and plan.max_steps > 0:
            # wide enough for logarithms, and for raw values of a softplus such as a period of 365
            limits = np.stack((np.minimum(first, 0.0) - 14.0, np.maximum(first, 0.0) + 14.0), 1)
            if math.isfinite(until) and problem.N >= ENOUGH * EVERY:
                first = minimise(of_some, first, limits, plan.max_steps).x
            first = minimise(objective, first, limits, plan.max_steps).x
    _unpack(parameters, first)
    return _finish(problem, history, time.perf_counter() - start, start)


def _evaluate(problem: Problem, parameters: Sequence[Tensor], values: Array, rows: slice = ALL) -> tuple[float, Array]:
    """Minus the log marginal likelihood per row, and its gradient, at parameters with these values."""
    _unpack(parameters, values)
    for p in parameters:
        p.grad = None
    loss = -log_marginal(problem, gradient=True, rows=rows) / problem.size
    gradient = _pack([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
    return loss, gradient / problem.size


@torch.no_grad()
def _finish(problem: Problem, history: list[dict[str, Any]], trained: float, start: float) -> Fit:
    features: Features = problem.features
    observation = problem.observation
    assert isinstance(observation, GaussianObservation)
    s2 = float(observation.noise().double())
    weights = None if problem.noise is None else s2 / (s2 + problem.noise.double())
    statistics = gather_statistics(
        features.whiten(), features.shapes, problem.X, problem.centred(), weights, counts=problem.counts
    )
    form = closed_form(statistics, s2, "block", "elbo" if problem.bound == "elbo" else "tight")
    result = Fit(features, observation, form.posterior, problem.mean, form.bound / problem.size, history)
    result.validation = leave_one_out(problem)
    if result.validation is not None and is_free(problem):
        varying = learn_in_turn(problem, result.validation, s2)
        if varying is not None:
            result.validation = replace(result.validation, noise=varying.smoothing.variances)
            result.local_noise = varying.noise(getattr(features.view, "kernel", None))
    result.seconds = {"train": trained, "finish": time.perf_counter() - start - trained}
    return result


@torch.no_grad()
def leave_one_out(problem: Problem) -> Validation | None:
    """Predict each row from all the others at the current hyper-parameters; None if K + D has no Cholesky factor.

    With H = K + D:  y_i - mean_i = [H^{-1} y]_i / [H^{-1}]_ii  and  variance_i + D_ii = 1 / [H^{-1}]_ii. Equal rows are
    left out together.
    """
    observation = problem.observation
    assert isinstance(observation, GaussianObservation)
    D = observation.noise(problem.noise).double().expand(problem.N)
    if problem.counts is not None:
        D = D / problem.counts.double()
    L, info = torch.linalg.cholesky_ex(problem.features.view.zx(problem.X, problem.X).double() + torch.diag(D))
    if int(info) != 0 or not torch.isfinite(L).all():
        return None
    inverse = torch.cholesky_inverse(L)
    y, total = problem.centred().double(), 1 / inverse.diagonal()
    mean = y - (y @ inverse) * total
    variance = (total - D).clamp_min(0.0).expand(len(y), -1)
    return Validation(
        torch.arange(problem.N, device=problem.X.device), problem.latent(mean), variance, problem.counts, in_turn=True
    )


def _pack(parameters: Sequence[Tensor]) -> Array:
    if not parameters:
        return np.zeros(0)
    return np.concatenate([p.detach().double().reshape(-1).cpu().numpy() for p in parameters])


@torch.no_grad()
def _unpack(parameters: Sequence[Tensor], values: Array) -> None:
    start = 0
    for p in parameters:
        p.copy_(torch.from_numpy(values[start : start + p.numel()]).reshape(p.shape))
        start += p.numel()
