"""What is fitted when the residual is given its neighbours: rows of features with a noise of their own."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from harmonicgp.features.base import Whitened
from harmonicgp.features.nearest import Neighbours, earlier, tiles
from harmonicgp.features.neighbours import Conditioned, ObservedRows, condition, residual_covariances
from harmonicgp.inference.posterior import Posterior, VariationalPosterior
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.problem import Problem, Sites
from harmonicgp.training.schedule import Batches, Schedule

#: Rows of a tile: those of one tile share neighbours, and batches are made of tiles.
TILE = 64
#: Rows that the nearest-neighbour likelihood looks at, at most.
MAX_ALONE = 20_000
#: Pairs of neighbours that a step of it looks at, at most, which bounds its memory.
PAIRS = 1 << 20


class TileBatches(Batches):
    """Batches of whole tiles, pass after pass."""

    def __init__(self, parts: list[Tensor], size: int, seed: int) -> None:
        super().__init__(len(parts), max(1, round(size * len(parts) / sum(map(len, parts)))), seed)
        self.parts = parts

    def draw(self) -> Tensor:
        """The rows of the next tiles."""
        return torch.cat([self.parts[i] for i in super().draw().tolist()])


@dataclass(frozen=True, kw_only=True)
class NeighbourProblem(Problem):
    """Rows given their neighbours among the rows of `everything`, under Gaussian noise.

    The bound is a sum over rows of E_q log N(y~; a~'v, d), less KL(q || p). At the optimum of a joint posterior it is the
    evidence of the model.
    """

    everything: Problem
    table: Neighbours  #: of the rows of this problem
    parts: list[Tensor]  #: tiles of the rows

    @classmethod
    def of(cls, problem: Problem, k: int, first: int = 0) -> NeighbourProblem:
        """The rows from number `first` on, each given the k nearest before it in the metric of the kernel.

        All rows come in random order.
        """
        points = metric_coordinates(getattr(problem.features.view, "kernel", None), problem.X)
        some = problem.part(slice(first, None))
        values = {f.name: getattr(some, f.name) for f in fields(Problem)}
        table = earlier(points, k, first)
        return cls(**values, everything=problem, table=table, parts=tiles(points[first:], TILE))

    def part(self, rows: Tensor | slice) -> NeighbourProblem:
        """The same on some of the rows."""
        some = super().part(rows)
        values = {f.name: getattr(some, f.name) for f in fields(Problem)}
        return replace(self, **(values | {"table": self.table.part(rows), "parts": []}))

    def batches(self, plan: Schedule) -> Batches:
        """Batches of tiles."""
        return TileBatches(self.parts, plan.batch_size, plan.seed)

    def evaluate(self, whitened: Whitened | None = None) -> Conditioned:
        """The rows given their neighbours; factorised anew, differentiably, unless `whitened` is given."""
        observed = ObservedRows(self.everything.X, self.everything.centred(), row_noise(self.everything))
        return condition(self.features.whiten() if whitened is None else whitened, self.X, observed, self.table)

    def sum(self, terms: Tensor) -> Tensor:
        """The sum of the rows' terms, in which repeats are counted already."""
        return terms.sum()

    def terms(self, posterior: VariationalPosterior, evaluation: Any) -> Tensor:
        """E_q log N(y~; a~'v, d) of the rows, [N]."""
        m, v = posterior.moments(evaluation.evaluation)
        y, d = self.targets(evaluation)
        fit = -0.5 * (2 * math.pi * d).log() - 0.5 * ((y - m).square() + v) / d
        return fit.sum(0) - len(y) * repeats(self)

    def targets(self, conditioned: Conditioned) -> tuple[Tensor, Tensor]:
        """Y~ [P, N] and the noise variances d [N]."""
        return self.centred() - conditioned.offset, row_noise(self) + conditioned.evaluation.residual.variance

    @torch.no_grad()
    def sites(self, posterior: Posterior, evaluation: Any) -> Sites:
        """The slopes g = (y~ - mean)/d, lambda = 1/d."""
        features = evaluation.evaluation.detach()
        y, d = self.targets(evaluation)
        m = posterior.mean(features)
        return Sites(features, m, None, (y - m) / d, (1 / d).expand_as(m))


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
    """Kernel and noise by the nearest-neighbour likelihood, prod_i p(y_i | its k nearest earlier rows), without features.

    The parameters of the kernel and of the noise are changed in place; inducing inputs stay. Rows come in random order; the
    last `MAX_ALONE` of them are seen, each given its nearest among all before it. It ends at the time `until`.
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
        if step in (0, steps // 4, (6 * steps) // 10):  # the kernel's metric moves
            table = earlier(metric_coordinates(getattr(view, "kernel", None), problem.X), k, first)
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
    table = earlier(metric_coordinates(getattr(problem.features.view, "kernel", None), problem.X), k, first)
    rows = torch.arange(first, problem.N, device=problem.X.device)
    return -float(_cost_alone(problem, problem.centred(), rows, table)) - 0.5 * math.log(2 * math.pi)


def repeats(problem: Problem) -> Tensor:
    """What c equal rows of one output bring to minus the log-likelihood beside one row of noise s2/c, [N]."""
    if problem.counts is None:
        return torch.zeros_like(problem.X[:, 0])
    noise = gaussian(problem).noise(problem.noise)
    return 0.5 * ((problem.counts - 1) * (2 * math.pi * noise).log() + problem.counts.log())
