"""The one training loop: natural gradients for the posterior, Adam for inducing inputs and hyper-parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import gpytorch
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.backend.memory import memory_kept
from harmonicgp.backend.threads import no_threads_inside
from harmonicgp.features.base import Features
from harmonicgp.features.neighbours import Neighbourhood
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.covariances import AdamPosterior
from harmonicgp.inference.local_noise import LocalNoise
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.prediction import MeanFunction, Predictor
from harmonicgp.inference.refinement import Refinement
from harmonicgp.inference.statistics import MAX_DENSE, gather_statistics
from harmonicgp.likelihoods.observation import Bound, GaussianObservation, Observation, observe
from harmonicgp.training.checkpoints import Checkpoint, fingerprint
from harmonicgp.training.finish import Split, Validation, finish, hold_out
from harmonicgp.training.full_data import full_data_step
from harmonicgp.training.problem import Problem, check_data, check_model
from harmonicgp.training.schedule import Course, Schedule

#: The most held-out rows that are watched for early stopping.
MAX_WATCHED = 1024
#: Steps between two evaluations of KL(q || p), which only the history needs.
KL_EVERY = 5
#: The most closed forms of the refinement of scalars.
TRIALS = 36
#: A function of the record of a step; it may return True to stop.
Callback: TypeAlias = Callable[[dict[str, Any]], object]


@dataclass
class Fit:
    """The result of a fit: the posterior, the bound per row, the history of steps.

    `bound` is computed at the hyper-parameters as training left them, so fits can be compared by it. The later refinement of
    noise and output scale improves predictions and lowers the bound.

    Examples:
        >>> from harmonicgp.features import SparseFeatures
        >>> X = torch.linspace(-2, 2, 50)[:, None]
        >>> features = SparseFeatures(gpytorch.kernels.RBFKernel(), X[::10])
        >>> result = fit(
        ...     features, gpytorch.likelihoods.GaussianLikelihood(), X, X[:, 0].sin(), schedule=Schedule(max_steps=5)
        ... )
        >>> mean, variance = result.predictor().marginals(torch.zeros(3, 1))
        >>> mean.shape, len(result.history), list(result.seconds)
        (torch.Size([1, 3]), 5, ['train', 'finish'])
    """

    features: Features
    observation: Observation
    posterior: Posterior | StreamedPosterior
    mean: MeanFunction | None
    bound: float
    history: list[dict[str, Any]] = field(default_factory=list)
    refinement: Refinement | None = None
    iterations: int = 0  #: of conjugate gradients in the finish
    validation: Validation | None = None  #: predictions for held-out rows
    seconds: dict[str, float] = field(default_factory=dict)  #: "train", "finish", "neighbours"
    neighbourhood: Neighbourhood | None = None  #: the training rows near new points, if the residual has neighbours
    local_noise: LocalNoise | None = None  #: how the noise varies with the inputs, if it does
    note: str = ""  #: why a fit with neighbours ended before its time budget

    def predictor(self, chunk_size: int = 4096) -> Predictor:
        """A frozen predictor, with the same rounding as that of the model read from a file."""
        predictor = Predictor.freeze(self.features, self.posterior.settled(), self.mean, chunk_size)
        predictor = replace(predictor, local_noise=self.local_noise)
        return predictor if self.neighbourhood is None else NeighbourPredictor.of(predictor, self.neighbourhood)


def fit(
    features: Features,
    likelihood: gpytorch.likelihoods.Likelihood,
    X: Tensor,
    y: Tensor,
    *,
    mean: MeanFunction | None = None,
    noise: Tensor | None = None,
    counts: Tensor | None = None,
    family: Family | Literal["auto"] = "block",
    bound: Bound | None = None,
    schedule: Schedule | None = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Fit the parameters of features and likelihood, and a posterior, to a table. Parameters are changed in place.

    Args:
        features: block features with their kernel and inducing inputs.
        likelihood: any GPyTorch likelihood, or one of `harmonicgp.likelihoods`.
        X: rows [N, d]. Standardise inputs and targets: lengthscales, noise and output scale start near one.
        y: targets [N] or [P, N].
        mean: the prior mean, a function [n, d] -> [n]; learned if it is a module. Default: zero.
        noise: known noise variances [N], added to the learned one.
        counts: how many equal rows each row represents, [N].
        family: "block" or "joint". "auto" trains independent blocks and, for Gaussian noise, ends with the joint posterior if
            its bound is clearly higher.
        bound: for Gaussian noise "tight" (default), "elbo", or "predictive" to train on the predictive log-likelihood; for
            other likelihoods "elbo".
        schedule: length, rates and batches.
        callbacks: functions that get a dict for every step, and may return True to stop. Its "predictor" is a function that
            makes a `Predictor` of the current model.

    Examples:
        >>> from harmonicgp.actions import Negation
        >>> from harmonicgp.features import HarmonicFeatures
        >>> X = torch.linspace(-2, 2, 50)[:, None]
        >>> features = HarmonicFeatures(gpytorch.kernels.RBFKernel(), Negation(), torch.tensor([[0.5], [1.5]]))
        >>> result = fit(
        ...     features, gpytorch.likelihoods.GaussianLikelihood(), X, X[:, 0].sin(), schedule=Schedule(max_steps=5)
        ... )
        >>> result.posterior.mean_vector().shape  # [P, F]
        torch.Size([1, 4])
    """
    start, plan = time.perf_counter(), Schedule() if schedule is None else schedule
    if not isinstance(plan, Schedule):
        raise TypeError(f"schedule must be a harmonicgp.training.Schedule; got {type(plan).__name__}.")
    if mean is not None and not callable(mean):
        raise TypeError(f"mean must be a function of X, [n, d] -> [n]; got {mean!r}.")
    if family not in ("block", "joint", "auto"):
        raise ValueError(f'family must be "block", "joint" or "auto"; got {family!r}.')
    observation = observe(likelihood)
    y, noise, counts = check_data(X, y, noise, counts, observation)
    check_model(features, likelihood, X)
    bound = bound or ("tight" if observation.is_gaussian else "elbo")
    observation.check_bound(bound)
    everything = Problem(features, observation, X.detach(), y.detach(), mean, noise, bound, counts)
    split = hold_out(everything, plan)
    streamed = features.n_features > MAX_DENSE  # the joint matrix is then not computed, not even in training
    training_family: Family = "joint" if family == "joint" and not streamed else "block"
    until = math.inf
    if plan.time_budget is not None:
        spent = time.perf_counter() - start + finish_seconds(split.trained, training_family, plan)
        until = max(plan.time_budget - spent, 1e-3)
    checkpoint = None
    if plan.checkpoint is not None:
        checkpoint = Checkpoint(plan.checkpoint, fingerprint(everything, plan, family))
    q, history = TrainingLoop(split, training_family, plan, until, checkpoint).run(callbacks)
    result = Fit(features, observation, q, mean, history[-1]["bound"] if history else float("nan"), history)
    result.seconds["train"] = time.perf_counter() - start
    if plan.finish:
        ending = finish(everything, q, family, split, plan)
        result.posterior, result.bound, result.validation = ending.posterior, ending.bound, ending.validation
        result.refinement, result.iterations = ending.refinement, ending.iterations
    result.seconds["finish"] = time.perf_counter() - start - result.seconds["train"]
    if checkpoint is not None and plan.finish:
        checkpoint.remove()
    return result


def finish_seconds(problem: Problem, family: Family, plan: Schedule) -> float:
    """The seconds that the finish will take, estimated from one chunk of rows."""
    if not plan.finish:
        return 0.0
    few = problem.part(slice(0, min(plan.chunk_size, problem.N)))
    whitened = problem.features.whiten()
    start = time.perf_counter()
    if not isinstance(problem.observation, GaussianObservation):
        q = Posterior.prior(problem.features.shapes, family, problem.observation.n_latent(len(problem.y)))
        full_data_step(few, whitened, q)
        return 1.3 * (plan.full_passes + 1) * (time.perf_counter() - start) * problem.N / few.N
    statistics = gather_statistics(whitened, problem.features.shapes, few.X, few.y, dense=None)
    passed = time.perf_counter() - start
    if statistics.S is None:
        return 10 * passed * problem.N / few.N
    closed_form(statistics, 1.0, family)
    solved = time.perf_counter() - start - passed
    return 1.1 * (passed * problem.N / few.N + TRIALS * solved)


class TrainingLoop:
    """Steps on batches: natural gradients for q (or Adam), Adam for everything else."""

    def __init__(
        self,
        split: Split,
        family: Family,
        plan: Schedule,
        until: float = math.inf,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        problem, held = split.trained, split.judged
        self.problem, self.plan, self.until, self.checkpoint = problem, plan, until, checkpoint
        self.watched = held.part(slice(0, min(MAX_WATCHED, held.N))) if held and plan.early_stopping else None
        shapes, P, device = problem.features.shapes, problem.observation.n_latent(len(problem.y)), problem.X.device
        #: The posterior of natural gradients, and the one that Adam trains instead.
        self.q = Posterior.prior(shapes, family, P, shared=problem.observation.is_gaussian, device=device)
        self.by_adam = AdamPosterior(shapes, family, P, problem.X.dtype, device) if plan.optimizer == "adam" else None
        self.parameters = problem.parameters() + ([] if self.by_adam is None else list(self.by_adam.parameters()))
        betas = (0.9, 0.99) if self.by_adam is None else (0.9, 0.999)
        fused = True if self.by_adam is not None else None
        self.optimizer = (
            torch.optim.Adam(self.parameters, lr=plan.learning_rate, betas=betas, fused=fused)
            if self.parameters
            else None
        )
        self.draws = problem.batches(plan)
        # With all rows in a batch and Gaussian noise, a step of length one is the optimum.
        self.exact = self.draws.whole and problem.observation.is_gaussian and self.by_adam is None
        self.course = Course(plan)
        self.history: list[dict[str, Any]] = []

    @memory_kept()
    def run(self, callbacks: Sequence[Callback]) -> tuple[Posterior, list[dict[str, Any]]]:
        """Run all steps."""
        plan, course = self.plan, self.course
        if self.checkpoint is not None:
            found = self.checkpoint.read(self.parameters, self.optimizer, course)
            if found is not None:
                self.q, place = found[0] or self.q, found[1]
                self.draws.drawn, self.history, course.seconds = place["drawn"], place["history"], place["seconds"]
        start = time.perf_counter() - course.seconds
        # disable=None: no bar if there is no terminal
        with tqdm(
            total=plan.max_steps, initial=course.step, desc="fit", disable=None if plan.progress else True, leave=False
        ) as bar:
            while not course.done:
                before = course.share
                value = self.step()
                course.advance((time.perf_counter() - start) / self.until)
                record = {"step": course.step, "bound": value, "seconds": time.perf_counter() - start}
                if plan.early_stopping and course.step % course.check_every == 0:
                    watched = self._watch()
                    if watched is not None:
                        record["validation"] = watched
                self.history.append(record)
                bar.update(round((course.share - before) * plan.max_steps))
                bar.set_postfix(bound=f"{value:.3f}", refresh=False)
                if self.checkpoint is not None and course.step % plan.checkpoint_every == 0:
                    seconds = time.perf_counter() - start
                    place = {"drawn": self.draws.drawn, "history": self.history, "seconds": seconds}
                    q = self.q if self.by_adam is None else None
                    self.checkpoint.write(self.parameters, self.optimizer, q, course, place)
                if callbacks and stop_wanted(callbacks, {**record, "predictor": self._predictor}):
                    break
        return self.posterior(), self.history

    def posterior(self) -> Posterior:
        """The current posterior, stored by precisions."""
        return self.q if self.by_adam is None else self.by_adam.posterior()

    def _predictor(self) -> Predictor:
        """A predictor of the current model."""
        return Predictor.freeze(self.problem.features, self.posterior(), self.problem.mean)

    def step(self) -> float:
        """Take a step and return the bound per row on its batch."""
        if self.by_adam is not None:
            return self._adam_step(self.by_adam)
        with no_threads_inside(self.problem.features.shapes) if self.q.family == "block" else nullcontext():
            return self._natural_step()

    def _adam_step(self, q: AdamPosterior) -> float:
        """A step of Adam for everything, as in the paper."""
        batch = self.problem.batch(self.draws.draw())
        mean = self._mean_term(batch, batch.terms(q, batch.evaluate()))
        kl = q.kl() / self.problem.size
        self._adam(kl - mean)
        return float(mean.detach().double()) - float(kl.detach())

    def _natural_step(self) -> float:
        """A natural-gradient step for q, and a step of Adam for the rest, on the batch that the schedule names."""
        problem, plan, q = self.problem, self.plan, self.q
        batch = problem.batch(self.draws.draw())
        evaluation = batch.evaluate()
        if plan.gradient_batch == "before":
            terms = batch.terms(q, evaluation)
        rho = 1.0 if self.exact else plan.rho_at(self.course.step, self.course.share)
        self.q = q = batch.step(q, evaluation, problem.N / batch.N, rho)
        if plan.gradient_batch == "fresh":
            batch = problem.batch(self.draws.draw())
            evaluation = batch.evaluate()
        if plan.gradient_batch != "before":
            terms = batch.terms(q, evaluation)
        mean = self._mean_term(batch, terms)
        # KL does not depend on what Adam changes, and changes slowly: it need not be computed in every step.
        if self.exact or self.course.step % KL_EVERY == 0:
            self.course.kl = float(q.kl()) / problem.size
        self._adam(-mean)
        return float(mean.detach().double()) - self.course.kl

    def _mean_term(self, batch: Problem, terms: Tensor) -> Tensor:
        """The sum of the terms of the bound per row of all data, estimated from a batch."""
        return batch.sum(terms) * (self.problem.N / batch.N / self.problem.size)

    def _adam(self, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the bound is {-float(loss.detach())} at step {self.course.step + 1}. Standardise inputs and targets, give a "
                "mean function near the targets (for counts, the logarithm of their mean), or lower the learning rate."
            )
        if self.optimizer is None:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.learning_rate * self.plan.rate_at(self.course.share)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.problem.features.tidy()

    @torch.no_grad()
    def _watch(self) -> float | None:
        """The bound on held-out rows, or of the last steps where every step sees all rows."""
        if self.watched is not None:
            terms = self.watched.terms(self.by_adam or self.q, self.watched.evaluate())
            value = float(self.watched.sum(terms.double())) / self.watched.size
        elif self.draws.whole and self.history:
            value = self.history[-1]["bound"]
        else:
            return None
        self.course.watch(value)
        return value


def stop_wanted(callbacks: Sequence[Callback], record: dict[str, Any]) -> bool:
    """Whether a callback wants to stop; each is called, whatever the others say."""
    answers = [callback(record) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
