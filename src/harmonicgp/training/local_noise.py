"""Whether the noise varies with the inputs: excesses of the training rows, and how held-out rows choose their smoothing.

Error bars of a constant noise are right on average, but too wide where the data are quiet and too narrow where they are not. The
held-out rows decide how many near rows set the noise, how far it shrinks to the average, and whether it varies at all.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import gpytorch
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from harmonicgp.features.nearest import NearestIndex, Neighbours, tiles
from harmonicgp.features.neighbours import condition
from harmonicgp.inference.closed_form import ClosedForm
from harmonicgp.inference.local_noise import LocalNoise, smoothed
from harmonicgp.training.finish import Validation
from harmonicgp.training.neighbour_scores import MAX_GIVEN, TILE, GivenRows
from harmonicgp.training.problem import Problem

#: Neighbours that predict a training row from the others, at most: the excess depends little on their number.
LEFT_OUT = 20
#: Rows at a time; the first of them say whether a constant noise is enough.
PORTION = 10_000
#: How many near rows may set the noise, and how many rows of average noise may be added to them.
NEAREST, STRENGTHS = (10, 20, 40, 80), (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: The held-out density must rise by so many nats a row. Where a row counts up to a limit, so that single outliers do not
#: decide, it must rise by so many standard errors.
GAIN, CLIPPED, SURE = 0.005, 3.0, 3.0
#: How far the scale is searched, as a factor.
REACH = 20.0
#: Rows that are enough to choose by rows that are each predicted from the others.
MIN_ROWS = 200
#: The least share of a row's variance that its own influence on the posterior leaves.
LEAST = 0.05


@dataclass(frozen=True)
class Smoothing:
    """How excesses become a noise variance, and the noise at the held-out rows by it."""

    by_kernel: bool  #: whether rows are near in the kernel's metric, or else in that of the inputs
    k: int
    strength: float
    scale: float
    variances: Tensor  #: of the noise at the held-out rows, [P, n]


@dataclass(frozen=True)
class HeldOutErrors:
    """Errors of held-out rows, and all but the noise of their variances."""

    squares: Tensor  #: squared errors, [P, n]
    variance: Tensor  #: of f, [P, n]
    noise: float  #: the constant noise variance
    counts: Tensor  #: how often each row counts, [n]

    def densities(self, noise: Tensor | float) -> Tensor:
        """The log-density of each row, summed over outputs, at noise variances [P, n]."""
        total = self.variance + noise
        return -0.5 * ((2 * math.pi * total).log() + self.squares / total).sum(0)

    def mean(self, values: Tensor) -> float:
        """The mean of values [n] over the rows."""
        return float((self.counts * values).sum() / self.counts.sum())

    def excess(self) -> Tensor:
        """What the variance of f leaves of the squared errors."""
        return (self.squares - self.variance).clamp_min(0.0)

    def positive(self, excess: Tensor) -> Tensor:
        """Excesses [P, n], with the constant noise for outputs that have none at all."""
        return torch.where(excess.sum(1, keepdim=True) > 0, excess, self.noise)


@dataclass(frozen=True)
class VaryingNoise:
    """Rows with their excesses, and the smoothing that held-out rows chose."""

    smoothing: Smoothing
    X: Tensor  #: [n, d]
    excess: Tensor  #: [P, n]

    def joined(self, X: Tensor, errors: HeldOutErrors) -> VaryingNoise:
        """The same with the held-out rows."""
        return replace(self, X=torch.cat((self.X, X)), excess=torch.cat((self.excess, errors.excess()), 1))

    def noise(self, kernel: gpytorch.kernels.Kernel | None) -> LocalNoise:
        """The noise around these rows."""
        way = self.smoothing
        return LocalNoise.of(
            kernel if way.by_kernel else None, self.X, self.excess.to(self.X.dtype), way.k, way.strength, way.scale
        )


def held_out_errors(held: Problem, mean: Tensor, variance: Tensor, noise: float) -> HeldOutErrors:
    """From the moments of f at held-out rows, less the mean function, both [P, n]."""
    counts = torch.ones_like(held.y[0]) if held.counts is None else held.counts
    squares = (held.centred().double() - mean.double()).square()
    return HeldOutErrors(squares, variance.double(), noise, counts.double())


@torch.no_grad()
def learn_local_noise(
    rows: GivenRows, form: ClosedForm, s2: float, scale: float, errors: HeldOutErrors, until: float = math.inf
) -> VaryingNoise | None:
    """The excesses of the first trained rows and the smoothing that held-out rows choose; None for a constant noise.

    Excesses are computed for 200,000 rows at most, and until a time of `time.perf_counter`.
    """
    N, excess, chosen = min(rows.trained.N, MAX_GIVEN), [], None
    for start in range(0, N, PORTION):
        if start and time.perf_counter() > until:
            break
        part = torch.arange(start, min(start + PORTION, N), device=rows.trained.X.device)
        excess.append(left_out_excess(rows, form, s2, scale, part))
        if start == 0:
            chosen = choose(errors, errors.positive(excess[0]), _near_held(rows, len(part)))
        if chosen is None:
            return None
    found = errors.positive(torch.cat(excess, 1))
    chosen = choose(errors, found, _near_held(rows, found.shape[1])) if len(excess) > 1 else chosen
    return None if chosen is None else VaryingNoise(chosen, rows.trained.X[: found.shape[1]], found)


def left_out_excess(rows: GivenRows, form: ClosedForm, s2: float, scale: float, part: Tensor) -> Tensor:
    """The excesses [P, n] of trained rows, each predicted from the others, for variances that are multiplied by `scale`.

    With d the variance of y given its neighbours and v, and q what v adds to it: an error r of a posterior that has seen the row
    is r d / (d - q) of one that has not, whose variance of y is d^2 / (d - q).
    """
    observed, others = rows.given(s2), nearest_others(rows.index, part, LEFT_OUT)
    excess = torch.empty(len(observed.y), len(part), dtype=torch.float64, device=part.device)
    for tile in tiles(rows.index.points[part], TILE):
        numbers = part[tile]
        given = condition(rows.whitened, observed.X[numbers], observed, others.part(tile))
        mean, spread = form.posterior.moments(given.evaluation)
        noise = observed.noise[numbers].double()
        d = given.evaluation.residual.variance.double() + noise
        unseen = (1 - spread.double() / d).clamp_min(LEAST)  # (d - q) / d
        squares = ((observed.y[:, numbers] - mean - given.offset).double() / unseen).square()
        excess[:, tile] = (squares - scale * (d / unseen - noise)).clamp_min(0.0)
    return excess


def nearest_others(index: NearestIndex, part: Tensor, k: int) -> Neighbours:
    """For some of the points of an index, the k nearest of the others."""
    table = index.nearest(index.points[part], min(k, len(index.points) - 1) + 1)
    own = (table.rows == part[:, None]).int()
    own[:, -1] += own.sum(1) == 0  # copies of a row may have pushed it out: then the farthest is left out
    order = own.argsort(dim=1, stable=True)[:, :-1]
    return Neighbours(table.rows.gather(1, order), table.present.gather(1, order))


@torch.no_grad()
def learn_in_turn(problem: Problem, predicted: Validation, s2: float) -> VaryingNoise | None:
    """The same for rows that were each predicted from all the others."""
    if problem.N < MIN_ROWS:
        return None
    mean = predicted.mean.double() - problem.latent(torch.zeros_like(predicted.mean))
    errors = held_out_errors(problem, mean, predicted.variance, s2)
    every, excess = torch.arange(problem.N, device=problem.X.device), errors.positive(errors.excess())
    metrics = _metrics(problem.coordinates(), problem.X)
    near = {name: nearest_others(NearestIndex(points), every, max(NEAREST)).rows for name, points in metrics.items()}
    chosen = choose(errors, excess, near)
    return None if chosen is None else VaryingNoise(chosen, problem.X, excess)


def _metrics(coordinates: Tensor, X: Tensor) -> dict[bool, Tensor]:
    """The rows in the kernel's metric (True), and as they are (False) unless a column is an angle, which has no ends."""
    return {True: coordinates} | ({False: X} if coordinates.shape == X.shape else {})


def _near_held(rows: GivenRows, n: int) -> dict[bool, Tensor]:
    """The nearest of the first n trained rows to each held-out row, in the kernel's metric and in that of the inputs."""
    assert rows.held is not None
    queries = _metrics(rows.queries, rows.held.X)
    near = {True: rows.index if n == rows.trained.N else NearestIndex(rows.index.points[:n])}
    if False in queries:
        near[False] = NearestIndex(rows.trained.X[:n])
    return {name: near[name].nearest(queries[name], max(NEAREST)).rows for name in queries}


def choose(errors: HeldOutErrors, excess: Tensor, tables: dict[bool, Tensor]) -> Smoothing | None:
    """The smoothing that says most of the held-out rows; None if a constant noise says as much.

    `tables` are the numbers of the rows near to each of them [n, k], in the kernel's metric (True) and in that of the inputs.
    """
    best, highest, reach = None, -math.inf, math.log(REACH)
    for by_kernel, near in tables.items():
        for k, strength in product(sorted({min(k, near.shape[1]) for k in NEAREST}), STRENGTHS):
            bare = smoothed(excess, near[:, :k], strength)
            cost = partial(_cost, errors, bare)
            found = minimize_scalar(cost, bounds=(-reach, reach), method="bounded", options={"xatol": 0.02})
            if -found.fun > highest:
                scale = math.exp(found.x)
                best, highest = Smoothing(by_kernel, k, strength, scale, scale * bare), -found.fun
    assert best is not None
    gains = errors.densities(best.variances) - errors.densities(errors.noise)
    clipped = gains.clamp(-CLIPPED, CLIPPED)
    sure = errors.mean(clipped)
    rows = float(errors.counts.sum() ** 2 / errors.counts.square().sum())  # as many of equal weight say as much
    deviation = math.sqrt(max(errors.mean(clipped.square()) - sure**2, 0.0) / rows)
    return best if errors.mean(gains) > GAIN and sure > SURE * deviation else None


def _cost(errors: HeldOutErrors, bare: Tensor, log_scale: float) -> float:
    return -errors.mean(errors.densities(math.exp(log_scale) * bare))
