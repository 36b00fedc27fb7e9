"""The one training loop: natural gradients for the posterior, Adam for inducing inputs and hyper-parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import check_points
from harmonicgp.features.base import Evaluation, Features
from harmonicgp.inference.closed_form import MAX_DENSE, chunks, closed_form, gather_statistics, streaming_matvec
from harmonicgp.inference.natural_gradient import natural_gradient_step
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.prediction import MeanFunction, Predictor
from harmonicgp.inference.refinement import Refinement, refine
from harmonicgp.likelihoods.observation import Bound, GaussianObservation, Observation, observe
from harmonicgp.training.adam import AdamPosterior
from harmonicgp.training.finish import full_data_step

GradientBatch: TypeAlias = Literal["same", "before", "fresh"]
Callback: TypeAlias = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    max_steps: int = 400
    batch_size: int = 1024
    learning_rate: float = 0.02
    rho: float = 0.3  #: first length of natural-gradient steps
    gradient_batch: GradientBatch = "same"
    optimizer: Literal["natural", "adam"] = "natural"  #: "adam": everything by Adam, as the paper's runs
    finish: bool = True  #: closed form (Gaussian), or full-data steps
    refine: bool = True  #: noise and output scale on held-out rows (Gaussian)
    validation_fraction: float = 0.1
    max_validation: int = 4000
    full_passes: int = 3  #: full-data natural-gradient steps of the finish, where there is no closed form
    seed: int = 0


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

    `noise` are known noise variances [N], added to the learned one. `bound` is "tight" (default) or "elbo" for Gaussian noise,
    "predictive" to train on predictive log-likelihood; "elbo" for other likelihoods. Parameters are changed in place.
    A callback gets a dict for every step and may return True to stop.
    """
    plan = schedule or Schedule()
    observation = observe(likelihood)
    y, noise = check_data(X, y, noise)
    bound = bound or ("tight" if observation.is_gaussian else "elbo")
    trained, held = _hold_out(len(X), plan, observation, noise)
    Xt, yt, nt = (X, y, noise) if held is None else (X[trained], y[:, trained], None)
    P = observation.n_latent(len(y))
    if plan.optimizer == "adam":
        posterior, history = _adam(features, observation, Xt, yt, nt, mean, family, P, bound, plan, callbacks)
    else:
        posterior, history = _natural(features, observation, Xt, yt, nt, mean, family, P, bound, plan, callbacks)
    result = Fit(features, observation, posterior, mean, history[-1]["bound"] if history else math.nan, history)
    if plan.finish:
        if isinstance(observation, GaussianObservation):
            _finish_gaussian(result, observation, X, y, noise, trained, held, family, bound, plan)
        else:
            _finish_general(result, X, y, family, plan)
    return result


def check_data(X: Tensor, y: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Y as [P, N] in the dtype of X, after checks that name what is wrong."""
    check_points(X, "X")
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch tensor; got {type(y).__name__}.")
    y = y[None] if y.dim() == 1 else y
    if y.dim() != 2 or y.shape[-1] != len(X):
        raise ValueError(f"y must be [N] or [P, N] with N = {len(X)}, the rows of X; got shape {tuple(y.shape)}.")
    y = y.to(X.dtype)
    if not torch.isfinite(y).all():
        row = int((~torch.isfinite(y)).any(0).nonzero()[0])
        raise ValueError(f"y has NaN or infinite values, first in row {row}: drop or impute those rows.")
    if noise is not None:
        noise = torch.as_tensor(noise, dtype=X.dtype)
        if noise.shape != (len(X),) or not torch.isfinite(noise).all() or bool((noise < 0).any()):
            raise ValueError(f"noise must be {len(X)} finite variances, none negative.")
    return y, noise


def _hold_out(
    N: int, plan: Schedule, observation: Observation, noise: Tensor | None
) -> tuple[Tensor, Tensor] | tuple[Tensor, None]:
    """Row numbers to train on and, where scalars are to be refined, rows kept out."""
    everything = torch.arange(N)
    n = min(int(plan.validation_fraction * N), plan.max_validation)
    if not (plan.finish and plan.refine and observation.is_gaussian and noise is None) or n < 20:
        return everything, None
    order = torch.randperm(N, generator=torch.Generator().manual_seed(plan.seed + 1))
    return order[n:].sort().values, order[:n].sort().values


def _batches(N: int, size: int, generator: torch.Generator) -> Any:
    """Rows without replacement, pass after pass; all rows where they fit."""
    while True:
        if size >= N:
            yield torch.arange(N)
            continue
        order = torch.randperm(N, generator=generator)
        yield from order.split(size)[: N // size]


def _residual_targets(y: Tensor, mean: MeanFunction | None, x: Tensor) -> Tensor:
    return y if mean is None else y - mean(x)


def _parameters(features: Features, observation: Observation, mean: MeanFunction | None) -> list[torch.nn.Parameter]:
    modules = [features, *([features.view] if isinstance(features.view, torch.nn.Module) else []), observation]
    modules += [mean] if isinstance(mean, torch.nn.Module) else []
    seen: dict[int, torch.nn.Parameter] = {}
    for module in modules:
        for parameter in module.parameters():
            if parameter.requires_grad:
                seen[id(parameter)] = parameter
    return list(seen.values())


def _natural(
    features: Features, observation: Observation, X: Tensor, y: Tensor, noise: Tensor | None, mean: MeanFunction | None,
    family: Family, P: int, bound: Bound, plan: Schedule, callbacks: Sequence[Callback],
) -> tuple[Posterior, list[dict[str, Any]]]:  # fmt: skip
    """Natural-gradient steps on q, and Adam on the rest beside them."""
    N, posterior = len(X), Posterior.prior(features.shapes, family, P, shared=observation.is_gaussian)
    parameters = _parameters(features, observation, mean)
    optimizer, scheduler = _optimizer(parameters, plan)
    draws = _batches(N, plan.batch_size, torch.Generator().manual_seed(plan.seed))
    history: list[dict[str, Any]] = []
    start = time.perf_counter()

    def evaluate(rows: Tensor) -> tuple[Evaluation, Tensor, Tensor | None]:
        return (
            features(X[rows]),
            _targets(y[:, rows], mean, X[rows], observation),
            None if noise is None else noise[rows],
        )

    def bound_terms(batch: tuple[Evaluation, Tensor, Tensor | None]) -> Tensor:
        (stacks, residual), target, known = batch
        m, v = posterior.moments(stacks)
        return observation.terms(target, _shift(m, mean, observation, X, rows), v, residual, bound, known)

    for step in range(plan.max_steps):
        rows = next(draws)
        batch = evaluate(rows)
        if plan.gradient_batch == "before":
            terms = bound_terms(batch)
        with torch.no_grad():
            (stacks, residual), target, known = batch
            m, v = posterior.moments(stacks)
            g, lam = observation.sites(target.detach(), _shift(m, mean, observation, X, rows), v + residual, known)
            posterior = natural_gradient_step(posterior, stacks, g, lam, N / len(rows), _rho(step, plan))
        if plan.gradient_batch == "fresh":
            rows = next(draws)
            batch = evaluate(rows)
        if plan.gradient_batch != "before":
            terms = bound_terms(batch)
        _adam_step(-terms.mean(), optimizer, scheduler, step)
        record = {
            "step": step + 1,
            "bound": float(terms.detach().mean()) - float(posterior.kl()) / N,
            "seconds": time.perf_counter() - start,
        }
        history.append(record)
        if _stop(callbacks, record):
            break
    return posterior, history


def _stop(callbacks: Sequence[Callback], record: dict[str, Any]) -> bool:
    """Whether a callback wants to stop; each is called, whatever the others say."""
    answers = [callback(record) is True for callback in callbacks]
    return any(answers)


def _targets(y: Tensor, mean: MeanFunction | None, x: Tensor, observation: Observation) -> Tensor:
    """Under Gaussian noise the mean function is taken off the targets; other likelihoods see it in the latent mean."""
    return _residual_targets(y, mean, x) if observation.is_gaussian else y


def _shift(m: Tensor, mean: MeanFunction | None, observation: Observation, X: Tensor, rows: Tensor) -> Tensor:
    return m if mean is None or observation.is_gaussian else m + mean(X[rows])


def _rho(step: int, plan: Schedule) -> float:
    """Almost whole steps at first, then falling to 0.02 with the learning rate."""
    return 0.9 if step < 3 else max(plan.rho * (1 - step / plan.max_steps), 0.02)


def _optimizer(parameters: list[torch.nn.Parameter], plan: Schedule) -> tuple[Any, Any]:
    if not parameters or plan.max_steps < 1:
        return None, None
    optimizer = torch.optim.Adam(parameters, lr=plan.learning_rate, betas=(0.9, 0.99))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step / plan.max_steps))
    return optimizer, scheduler


def _rate(share: float) -> float:
    """The learning rate's course: from a half to the whole in the first tenth, then along a cosine to a fortieth."""
    if share < 0.1:
        return 0.5 + 5 * share
    return 0.025 + 0.975 * 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def _adam_step(loss: Tensor, optimizer: Any, scheduler: Any, step: int) -> None:
    if not torch.isfinite(loss):
        raise FloatingPointError(
            f"the bound is {float(loss)} at step {step + 1}: lower the learning rate, or standardise inputs and targets."
        )
    if optimizer is None:
        return
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if scheduler is not None:
        scheduler.step()


def _adam(
    features: Features, observation: Observation, X: Tensor, y: Tensor, noise: Tensor | None, mean: MeanFunction | None,
    family: Family, P: int, bound: Bound, plan: Schedule, callbacks: Sequence[Callback],
) -> tuple[Posterior, list[dict[str, Any]]]:  # fmt: skip
    """Adam on everything, at a constant rate: the paper's runs."""
    N, q = len(X), AdamPosterior(features.shapes, family, P, X.dtype)
    parameters = _parameters(features, observation, mean) + list(q.parameters())
    optimizer = torch.optim.Adam(parameters, lr=plan.learning_rate)
    draws = _batches(N, plan.batch_size, torch.Generator().manual_seed(plan.seed))
    history: list[dict[str, Any]] = []
    start = time.perf_counter()
    for step in range(plan.max_steps):
        rows = next(draws)
        stacks, residual = features(X[rows])
        m, v = q.moments(stacks)
        known = None if noise is None else noise[rows]
        target = _targets(y[:, rows], mean, X[rows], observation)
        terms = observation.terms(target, _shift(m, mean, observation, X, rows), v, residual, bound, known)
        value = terms.mean() - q.kl() / N
        _adam_step(-value, optimizer, None, step)
        record = {"step": step + 1, "bound": float(value.detach()), "seconds": time.perf_counter() - start}
        history.append(record)
        if _stop(callbacks, record):
            break
    return q.posterior(), history


@torch.no_grad()
def _finish_gaussian(
    result: Fit, observation: GaussianObservation, X: Tensor, y: Tensor, noise: Tensor | None, trained: Tensor,
    held: Tensor | None, family: Family, bound: Bound, plan: Schedule,
) -> None:  # fmt: skip
    """The closed form on all rows, after the scalars are refined on those held out."""
    features, whitened = result.features, result.features.whiten()
    target = _residual_targets(y, result.mean, X)
    s2 = float(observation.noise().detach().double())
    weights = None if noise is None else (s2 / (s2 + noise.double()))
    name: Bound = "elbo" if bound == "elbo" else "tight"
    streamed = features.n_features > MAX_DENSE
    rows = trained if held is not None else torch.arange(len(X))
    statistics = gather_statistics(whitened, features.shapes, X[rows], target[:, rows], weights)
    scale, learned = 1.0, s2
    if held is not None and not streamed:
        parts = [whitened(X[held[part]]) for part in chunks(len(held), 4096)]
        n_stacks = len(parts[0].stacks)
        stacks = tuple(torch.cat([part.stacks[i] for part in parts], -1) for i in range(n_stacks))
        kept_out = Evaluation(stacks, torch.cat([part.residual for part in parts]))
        scaled = outputscale(features)
        floor = _noise_floor(observation)
        found = refine(statistics, kept_out, target[:, held], s2, family, scaled is not None, floor)
        result.refinement = found
        s2, scale = found.s2, found.scale
        observation.likelihood.noise = s2
        if scaled is not None:
            scaled.outputscale = scaled.outputscale * scale
    if held is not None:
        statistics = statistics + gather_statistics(whitened, features.shapes, X[held], target[:, held])
    matvec = streaming_matvec(whitened, X, weights) if streamed else None
    form = closed_form(statistics, s2, "block" if streamed else family, name, scale, matvec)
    result.posterior, result.bound, result.iterations = form.posterior, form.bound / len(X), form.iterations
    if result.refinement is not None:  # the bound judges what it trained; the refined scalars serve prediction
        result.bound = closed_form(statistics, learned, family, name).bound / len(X)


def _finish_general(result: Fit, X: Tensor, y: Tensor, family: Family, plan: Schedule) -> None:
    """A few natural-gradient steps on all rows at once."""
    if result.features.n_features > MAX_DENSE:
        return
    for _ in range(plan.full_passes):
        result.posterior, terms = full_data_step(
            result.features, result.observation, result.posterior, X, y, result.mean, 0.7
        )
        result.bound = (terms - float(result.posterior.kl())) / len(X)


def outputscale(features: Features) -> gpytorch.kernels.ScaleKernel | None:
    """The kernel's output scale, where it has one for the whole of it."""
    kernel = getattr(features.view, "kernel", None)
    return kernel if type(kernel) is gpytorch.kernels.ScaleKernel else None


def _noise_floor(observation: GaussianObservation) -> float:
    """The least noise variance that the likelihood's constraint lets through."""
    constraint = getattr(observation.likelihood, "raw_noise_constraint", None)
    if constraint is None:
        constraint = observation.likelihood.noise_covar.raw_noise_constraint
    return max(1e-6, 1.01 * float(constraint.lower_bound))
