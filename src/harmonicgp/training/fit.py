"""The one training loop: natural gradients for the posterior, Adam for inducing inputs and hyper-parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.features.base import Features
from harmonicgp.inference.closed_form import MAX_DENSE
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.prediction import MeanFunction, Predictor
from harmonicgp.inference.refinement import Refinement
from harmonicgp.likelihoods.observation import Bound, Observation, observe
from harmonicgp.training.adam import AdamPosterior
from harmonicgp.training.finish import finish
from harmonicgp.training.problem import Problem, check_data, check_model
from harmonicgp.training.schedule import Schedule, batches

Callback: TypeAlias = Callable[[dict[str, Any]], object]


@dataclass
class Fit:
    """What a fit leaves: the posterior, the bound per row, the history of steps.

    `bound` is that of the hyper-parameters as training left them, so that fits can be compared by it; the refinement of
    noise and output scale serves prediction and lowers it.
    """

    features: Features
    observation: Observation
    posterior: Posterior
    mean: MeanFunction | None
    bound: float
    history: list[dict[str, Any]] = field(default_factory=list)
    refinement: Refinement | None = None
    iterations: int = 0  #: of conjugate gradients in the finish

    def predictor(self, chunk_size: int = 4096) -> Predictor:
        """A frozen predictor."""
        return Predictor.freeze(self.features, self.posterior, self.mean, chunk_size)


def fit(
    features: Features,
    likelihood: gpytorch.likelihoods.Likelihood,
    X: Tensor,
    y: Tensor,
    *,
    mean: MeanFunction | None = None,
    noise: Tensor | None = None,
    family: Family = "block",
    bound: Bound | None = None,
    schedule: Schedule | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Fit the features' parameters, the likelihood's, and a posterior to rows X [N, d], y [N] or [P, N].

    Give standardised inputs and targets: lengthscales, noise and output scale start near one, and the prior mean is zero but
    for `mean`, a function [n, d] -> [n], learned if it is a module. `noise` are known noise variances [N], added to the learned
    one. `bound` is "tight" (default) or "elbo" for Gaussian noise, "predictive" to train on predictive log-likelihood; "elbo" for
    other likelihoods. Parameters are changed in place. A callback gets a dict for every step and may return True to stop.
    """
    plan = Schedule() if schedule is None else schedule
    if not isinstance(plan, Schedule):
        raise TypeError(f"schedule must be a harmonicgp.training.Schedule; got {type(plan).__name__}.")
    if mean is not None and not callable(mean):
        raise TypeError(f"mean must be a function of X, [n, d] -> [n]; got {mean!r}.")
    observation = observe(likelihood)
    y, noise = check_data(X, y, noise, observation)
    check_model(features, likelihood, X)
    bound = bound or ("tight" if observation.is_gaussian else "elbo")
    observation.check_bound(bound)
    everything = Problem(features, observation, X.detach(), y.detach(), mean, noise, bound)
    streamed = features.n_features > MAX_DENSE  # then the joint matrix is never formed, in training neither
    if family not in ("block", "joint"):
        raise ValueError(f'family must be "block" or "joint"; got {family!r}.')
    training_family: Family = "block" if streamed else family
    trained, held = _hold_out(everything, plan)
    problem = everything if held is None else everything.part(trained)
    q: Posterior | AdamPosterior
    P = observation.n_latent(len(y))
    if plan.optimizer == "adam":
        q = AdamPosterior(features.shapes, training_family, P, X.dtype)
    else:
        q = Posterior.prior(features.shapes, training_family, P, shared=observation.is_gaussian)
    q, history = _loop(problem, q, plan, callbacks)
    result = Fit(features, observation, q, mean, history[-1]["bound"] if history else float("nan"), history)
    if plan.finish:
        ending = finish(everything, q, family, trained, held, plan)
        result.posterior, result.bound = ending.posterior, ending.bound
        result.refinement, result.iterations = ending.refinement, ending.iterations
    return result


def _hold_out(problem: Problem, plan: Schedule) -> tuple[Tensor, Tensor | None]:
    """Row numbers to train on and, where scalars are to be refined, rows kept out."""
    N = problem.N
    n = min(int(plan.validation_fraction * N), plan.max_validation)
    refined = plan.finish and plan.refine and problem.observation.is_gaussian and problem.noise is None
    if not refined or n < 20 or problem.features.n_features > MAX_DENSE:
        return torch.arange(N), None
    order = torch.randperm(N, generator=torch.Generator().manual_seed(plan.seed + 1))
    return order[n:].sort().values, order[:n].sort().values


def _loop(
    problem: Problem, q: Posterior | AdamPosterior, plan: Schedule, callbacks: Sequence[Callback]
) -> tuple[Posterior, list[dict[str, Any]]]:
    """Steps on batches: q by natural gradients (or with the rest), everything else by Adam."""
    by_adam = isinstance(q, AdamPosterior)
    parameters = problem.parameters() + (list(q.parameters()) if isinstance(q, AdamPosterior) else [])
    betas = (0.9, 0.999) if by_adam else (0.9, 0.99)
    optimizer = torch.optim.Adam(parameters, lr=plan.learning_rate, betas=betas) if parameters else None
    draws = batches(problem.N, plan.batch_size, torch.Generator().manual_seed(plan.seed))
    history: list[dict[str, Any]] = []
    start = time.perf_counter()
    # disable=None: quiet where there is no terminal
    with tqdm(total=plan.max_steps, desc="fit", disable=None if plan.progress else True, leave=False) as bar:
        for step in range(plan.max_steps):
            batch = problem.part(next(draws))
            evaluation = problem.features(batch.X)
            if isinstance(q, AdamPosterior):
                terms = batch.terms(q, evaluation)  # type: ignore[arg-type]
                loss = q.kl() / problem.N - terms.mean()
            else:
                if plan.gradient_batch == "before":
                    terms = batch.terms(q, evaluation)
                q = batch.step(q, evaluation, problem.N / batch.N, plan.rho_at(step))
                if plan.gradient_batch == "fresh":
                    batch = problem.part(next(draws))
                    evaluation = problem.features(batch.X)
                if plan.gradient_batch != "before":
                    terms = batch.terms(q, evaluation)
                loss = -terms.mean()  # KL does not depend on what Adam changes
            value = float(terms.detach().double().mean()) - float(q.kl().detach()) / problem.N
            _adam_step(problem, loss, optimizer, plan, step)
            record = {"step": step + 1, "bound": value, "seconds": time.perf_counter() - start}
            history.append(record)
            bar.update()
            bar.set_postfix(bound=f"{value:.3f}", refresh=False)
            if _stop(callbacks, record):
                break
    return (q.posterior() if isinstance(q, AdamPosterior) else q), history


def _stop(callbacks: Sequence[Callback], record: dict[str, Any]) -> bool:
    """Whether a callback wants to stop; each is called, whatever the others say."""
    answers = [callback(record) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


def _adam_step(problem: Problem, loss: Tensor, optimizer: Any, plan: Schedule, step: int) -> None:
    if not torch.isfinite(loss):
        raise FloatingPointError(
            f"the bound is {-float(loss.detach())} at step {step + 1}. Standardise inputs and targets, give a mean function "
            "near the targets (for counts, the logarithm of their mean), or lower the learning rate."
        )
    if optimizer is None:
        return
    for group in optimizer.param_groups:
        group["lr"] = plan.learning_rate * plan.rate_at(step)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    problem.features.tidy()
