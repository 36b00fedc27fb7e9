"""The fitting problem with neighbours: rows of features, each with its own noise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from harmonicgp.features.base import Whitened
from harmonicgp.features.groups import GroupedRows, RowGroups, condition_groups
from harmonicgp.features.nearest import Neighbours, earlier
from harmonicgp.features.neighbours import ObservedRows, residual_covariances
from harmonicgp.inference.posterior import Posterior, VariationalPosterior
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.problem import Problem, Sites
from harmonicgp.training.schedule import Batches, Schedule

#: Rows that the nearest-neighbour likelihood looks at, at most.
MAX_ALONE = 20_000
#: Pairs of neighbours that a step of it looks at, at most, which bounds its memory.
PAIRS = 1 << 20


class GroupBatches(Batches):
    """Batches of whole groups, pass after pass: it draws numbers of groups."""

    def __init__(self, groups: RowGroups, size: int, seed: int) -> None:
        rows = len(groups.numbers) / len(groups)
        super().__init__(len(groups), max(1, round(size / rows)), seed)


@dataclass(frozen=True, kw_only=True)
class NeighbourProblem(Problem):
    """Groups of rows, each conditioned on the rows near it, under Gaussian noise.

    The bound is a sum over rows of E_q log N(y~; a~'v, d), less KL(q || p). At the optimum of a joint posterior it is the
    evidence of the model.
    """

    everything: Problem  #: all rows, in the order of conditioning
    groups: RowGroups  #: of the rows of this problem

    @classmethod
    def of(cls, problem: Problem, groups: RowGroups) -> NeighbourProblem:
        """The problem on the rows of these groups. The rows of `problem` are in random order."""
        some = problem.part(groups.numbers)
        return cls(**{f.name: getattr(some, f.name) for f in fields(Problem)}, everything=problem, groups=groups)

    def batch(self, numbers: Tensor | slice) -> NeighbourProblem:
        """The same on some of the groups."""
        return NeighbourProblem.of(self.everything, self.groups.part(numbers))

    def batches(self, plan: Schedule) -> Batches:
        """Batches of groups."""
        return GroupBatches(self.groups, plan.batch_size, plan.seed)

    def evaluate(self, whitened: Whitened | None = None) -> GroupedRows:
        """The rows conditioned on rows near them; factorised anew, differentiably, unless `whitened` is given."""
        rows = self.everything
        observed = ObservedRows(rows.X, rows.centred(), row_noise(rows))
        whitened = self.features.whiten() if whitened is None else whitened
        return condition_groups(self.features.view, whitened, observed, self.groups)

    def sum(self, terms: Tensor) -> Tensor:
        """The sum of the rows' terms, in which repeats are counted already."""
        return terms.sum()

    def terms(self, posterior: VariationalPosterior, evaluation: Any) -> Tensor:
        """E_q log N(y~; a~'v, d) of the rows, [N]."""
        m, v = posterior.moments(evaluation.evaluation)
        d = evaluation.d.to(m.dtype)
        fit = -0.5 * (2 * math.pi * d).log() - 0.5 * ((evaluation.y - m).square() + v) / d
        return fit.sum(0) - len(m) * repeats(self)

    @torch.no_grad()
    def sites(self, posterior: Posterior, evaluation: Any) -> Sites:
        """The slopes g = (y~ - mean)/d, lambda = 1/d."""
        features = evaluation.evaluation.detach()
        m = features.project(posterior.mean_vector())
        d = evaluation.d.to(m.dtype)
        return Sites(features, m, None, (evaluation.y - m) / d, (1 / d).expand_as(m))

    def parts(self, chunk_size: int) -> Iterator[NeighbourProblem]:
        """The groups in parts of bounded memory, whatever the chunk size."""
        return (NeighbourProblem.of(self.everything, some) for some in self.groups.split(self.features.n_features))


def row_noise(problem: Problem) -> Tensor:
    """The noise variance of every row, [N]: c equal rows are one of noise s2/c."""
    noise = gaussian(problem).noise(problem.noise).expand(problem.N)
    return noise if problem.counts is None else noise / problem.counts


def gaussian(problem: Problem) -> GaussianObservation:
    """The observation of a problem with Gaussian noise."""
    if not isinstance(problem.observation, GaussianObservation):
        raise TypeError("neighbours are for Gaussian noise: give a GaussianLikelihood, or neighbours=0.")
    return problem.observation


def learn_alone(
    problem: Problem, k: int, steps: int, rate: float, seed: int, batch: int = 512, until: float = math.inf
) -> None:
    """Learn kernel and noise from the nearest-neighbour likelihood, prod_i p(y_i | its k nearest earlier rows), without features.

    The parameters of the kernel and of the noise are changed in place; inducing inputs stay unchanged. Rows are in random order.
    The likelihood is that of the last `MAX_ALONE` rows, each given the nearest of all rows before it. Learning ends at the time
    `until` at the latest.
    """
    view, observation = problem.features.view, gaussian(problem)
    parameters = [p for m in (view, observation) if isinstance(m, torch.nn.Module) for p in m.parameters()]
    parameters = [p for p in parameters if p.requires_grad]
    if not parameters:
        return
    optimizer = torch.optim.Adam(parameters, lr=rate, betas=(0.9, 0.99))
    schedule, first = Schedule(max_steps=steps), max(0, problem.N - MAX_ALONE)
    batch = max(16, min(batch, PAIRS // max(k, 1) ** 2))
    draws, y = Batches(problem.N - first, batch, seed), problem.centred().detach()
    for step in range(steps):
        if step in (0, steps // 4, (6 * steps) // 10):  # the metric of the kernel changes
            table = earlier(problem.coordinates(), k, first)
        if time.perf_counter() > until:
            return
        rows = draws.draw().to(problem.X.device)
        loss = _cost_alone(problem, y, rows + first, table.part(rows))
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule.rate_at(step / steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def _cost_alone(problem: Problem, y: Tensor, rows: Tensor, near: Neighbours) -> Tensor:
    """Minus the mean of log p(y_i | y_N(i)) over some rows and outputs, without its constant."""
    some, noise = problem.part(rows), row_noise(problem)
    covariances = residual_covariances(problem.features.view, some.X, problem.X[near.rows], near.present)
    weights = covariances.weights(noise[near.rows])
    d = row_noise(some).double() + weights.variance
    error = y[:, rows].double() - (weights.values * y[:, near.rows].double()).sum(-1)
    cost = (0.5 * d.log() + 0.5 * error.square() / d).mean()
    return cost if problem.counts is None else cost + repeats(some).mean()


@torch.no_grad()
def density_alone(problem: Problem, k: int, first: int) -> float:
    """The mean of log p(y_i | its k nearest earlier rows) over the rows from number `first` on, without features."""
    table = earlier(problem.coordinates(), k, first)
    rows = torch.arange(first, problem.N, device=problem.X.device)
    return -float(_cost_alone(problem, problem.centred(), rows, table)) - 0.5 * math.log(2 * math.pi)


def repeats(problem: Problem) -> Tensor:
    """Minus the log-likelihood of c equal rows, less that of one row of noise s2/c, for one output: [N]."""
    if problem.counts is None:
        return torch.zeros_like(problem.X[:, 0])
    noise = gaussian(problem).noise(problem.noise)
    return 0.5 * ((problem.counts - 1) * (2 * math.pi * noise).log() + problem.counts.log())
