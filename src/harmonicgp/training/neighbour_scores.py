"""What a model with neighbours says of held-out rows: the rows given their neighbours, and the density at any noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from harmonicgp.features.base import Features, Whitened
from harmonicgp.features.evaluation import DenseEvaluation
from harmonicgp.features.groups import GroupedRows, RowGroups, condition_groups
from harmonicgp.features.nearest import NearestIndex, tiles
from harmonicgp.features.neighbours import Conditioned, ObservedRows, ResidualCovariances, condition
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.inference.closed_form import ClosedForm
from harmonicgp.inference.posterior import Family
from harmonicgp.inference.statistics import RowPiece, Statistics, sum_statistics
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.finish import Split, hold_out, outputscale
from harmonicgp.training.neighbours import gaussian
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule

#: Rows that inform the features' posterior at most; all rows are neighbours.
MAX_GIVEN = 200_000
#: How far the output scale is searched, as factors.
SCALES = (1e-3, 1e3)
#: Rows at a time: those of a tile are near each other.
TILE = 1024


@dataclass(frozen=True)
class Start:
    """Features and a likelihood, with hyper-parameters to begin from."""

    features: Features
    observation: GaussianObservation

    def copy(self) -> Start:
        """Parameters of their own."""
        features, observation = copy.deepcopy((self.features, self.observation))
        return Start(features, observation)

    def on(self, problem: Problem) -> Problem:
        """The problem of the same rows with these features and this likelihood."""
        return replace(problem, features=self.features, observation=self.observation)

    @property
    def s2(self) -> float:
        """The noise variance."""
        return float(self.observation.noise().detach())


@dataclass(frozen=True)
class Scored:
    """A start with the number of neighbours and the scalars that say most of the held-out rows."""

    start: Start
    k: int
    s2: float  #: noise variance, before all variances are multiplied by `scale`
    scale: float = 1.0
    score: float = -math.inf  #: mean log-density of a held-out row


class GivenRows:
    """Rows in random order, in groups of near ones, and held-out rows with their neighbours: all that a noise variance needs.

    Groups and neighbours are found in the metric of a start. With k = 0 every residual is independent.
    """

    @torch.no_grad()
    def __init__(self, start: Start, split: Split, k: int, most: int = MAX_GIVEN) -> None:
        self.trained = start.on(split.trained)
        self.held = None if split.judged is None else start.on(split.judged)
        self.whitened: Whitened = start.features.whiten()
        points = self.trained.coordinates()
        self.groups = groups_of(points, k > 0, most)  #: of the rows that inform the posterior
        if self.held is not None:
            self.index, self.queries = NearestIndex(points), self.held.coordinates()
            self.near = self.index.nearest(self.queries, k)
            self.held_tiles = tiles(self.queries, TILE)
        self.observed = ObservedRows(self.trained.X, self.trained.centred(), noise_of(self.trained, 1.0))
        self.observed = self.observed.with_features(self.whitened)

    def with_neighbours(self, k: int) -> GivenRows:
        """The same with another number of neighbours for held-out rows."""
        other = copy.copy(self)
        other.near = self.index.nearest(self.queries, k)
        return other

    def given(self, s2: float) -> ObservedRows:
        """The trained rows with their noise at noise variance s2."""
        return replace(self.observed, noise=noise_of(self.trained, s2))

    def statistics(self, s2: float, exact: bool | None = None) -> Statistics:
        """The sums over trained rows given those before them."""
        return group_statistics(self.whitened, self.given(s2), self.groups, s2, exact)

    def held_out(self, s2: float, keep: bool = False) -> Iterator[tuple[Tensor, Conditioned]]:
        """The held-out rows given trained ones, tile by tile; with the covariances of the residual if they are to be kept."""
        assert self.held is not None
        observed = self.given(s2)
        for rows in self.held_tiles:
            yield rows, condition(self.whitened, self.held.X[rows], observed, self.near.part(rows), keep)

    def moments(self, form: ClosedForm, s2: float) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at the held-out rows, less the mean function, both [P, n]."""
        assert self.held is not None
        mean = torch.empty_like(self.held.y, dtype=torch.float64)
        variance = torch.empty_like(mean)
        for rows, part in self.held_out(s2):
            m, v = form.posterior.moments(part.evaluation)
            mean[:, rows] = (m + part.offset).double()
            variance[:, rows] = (v + part.evaluation.residual.variance).double()
        return mean, variance

    def residuals(self, mu: Tensor) -> Tensor:
        """What the features leave of the held-out rows' neighbours, y - A'mu for coefficients mu [P, F]: [P, n, k]."""
        numbers, place = torch.unique(self.near.rows, return_inverse=True)
        some = self.observed.part(numbers)
        if some.features is not None:
            told = mu.to(some.features.dtype) @ some.features.mT
        else:
            told = torch.cat([self.whitened.dense(part).project(mu) for part in some.X.split(4096)], 1)
        return (some.y - told)[:, place].double()


class HeldOutView:
    """What a posterior of the features says of held-out rows at any noise variance.

    Only the neighbours' weights are computed anew: the variance that v brings stays that of the first noise variance.
    """

    @torch.no_grad()
    def __init__(self, rows: GivenRows, form: ClosedForm, s2: float) -> None:
        assert rows.held is not None
        left, pieces = rows.residuals(form.posterior.mean_vector()), list(rows.held_out(s2, keep=True))
        order = torch.cat([numbers for numbers, _ in pieces])
        self.held, self.near, self.left = rows.held.part(order), rows.near.rows[order], left[:, order]
        self.noise = partial(noise_of, rows.trained)
        moments = [form.posterior.moments(part.evaluation) for _, part in pieces]
        offsets = [part.offset for _, part in pieces]
        mean = torch.cat([m + offset for (m, _), offset in zip(moments, offsets, strict=True)], 1).double()
        weights = torch.cat([part.weights for _, part in pieces])
        self.mean = mean - (weights * self.left).sum(-1)  # a'mu
        self.variance = torch.cat([v for _, v in moments], 1).double()
        known = [part.covariances for _, part in pieces if part.covariances is not None]
        self.covariances = ResidualCovariances.joined(known) if known else None
        if not known:  # no neighbours: all of the residual is left
            self.variance += torch.cat([part.evaluation.residual.variance for _, part in pieces]).double()

    @torch.no_grad()
    def density(self, scaled: bool, s2: float) -> tuple[float, float]:
        """The mean log-density of a held-out row at a noise variance, and the best factor of all variances."""
        mean, variance = self.mean, self.variance
        if self.covariances is not None:
            weights = self.covariances.weights(self.noise(s2)[self.near])
            mean, variance = mean + (weights.values * self.left).sum(-1), variance + weights.variance
        return log_density(self.held, mean, variance, s2, scaled)


def noise_of(problem: Problem, s2: float) -> Tensor:
    """The noise variances of the rows at noise variance s2, [N]: c equal rows are one of noise s2/c."""
    noise = torch.full_like(problem.X[:, 0], s2) if problem.noise is None else s2 + problem.noise
    return noise if problem.counts is None else noise / problem.counts


def groups_of(points: Tensor, near: bool, most: int, start: int = 0) -> RowGroups:
    """At most about `most` of the points from number `start` on in groups; without `near` every row is alone."""
    if near:
        return RowGroups.of(points, start, most=most if len(points) - start > most else None)
    return RowGroups.singles(len(points), max(start, len(points) - most), points.device)


def given_piece(given: GroupedRows, s2: float) -> RowPiece:
    """Rows given those before them as the closed form sees them: features a~, targets y~, noise d = s2 / w."""
    assert given.evaluation is not None
    bare = DenseEvaluation(given.evaluation.stacks, IndependentResidual(torch.zeros_like(given.d)))
    return RowPiece(bare, given.y, s2 / given.d)


@torch.no_grad()
def group_statistics(
    whitened: Whitened, observed: ObservedRows, groups: RowGroups, s2: float, exact: bool | None = None
) -> Statistics:
    """The sums over the rows of groups given those before them."""
    shapes = whitened.dense(observed.X[:1]).shapes

    def pieces() -> Iterator[RowPiece]:
        for some in groups.split(sum(blocks * f for blocks, f in shapes)):
            yield given_piece(condition_groups(whitened.view, whitened, observed, some), s2)

    return sum_statistics(pieces(), shapes, len(observed.y), len(groups.numbers), True, exact)


@torch.no_grad()
def log_density(held: Problem, mean: Tensor, variance: Tensor, s2: float, scaled: bool = False) -> tuple[float, float]:
    """The mean log-density of a held-out row from the moments of f, and, if `scaled`, the best factor of all variances."""
    counts = torch.ones_like(held.y[0]) if held.counts is None else held.counts
    c = counts.double() / (len(mean) * counts.double().sum())
    total = variance.double() + s2 + (0.0 if held.noise is None else held.noise.double())
    error = (held.centred().double() - mean).square() / total
    scale = min(max(float((error * c).sum()), SCALES[0]), SCALES[1]) if scaled else 1.0
    return float(-0.5 * (((2 * math.pi * scale * total).log() + error / scale) * c).sum()), scale


def is_free(problem: Problem) -> bool:
    """Whether the noise may be changed."""
    return problem.noise is None and bool(gaussian(problem).likelihood.noise_covar.raw_noise.requires_grad)


@torch.no_grad()
def set_scalars(start: Start, s2: float, scale: float) -> None:
    """Noise s2, then all variances times `scale`."""
    likelihood, scaled = start.observation.likelihood, outputscale(start.features)
    likelihood.noise = max(s2 * scale, 1.01 * float(likelihood.noise_covar.raw_noise_constraint.lower_bound))
    if scaled is not None and scale != 1.0:
        scaled.outputscale = scaled.outputscale * scale


def set_aside(problem: Problem, plan: Schedule) -> Split:
    """The rows that a fit set aside by this plan, if it did, and the others in random order."""
    split = hold_out(problem, replace(plan, set_aside=True))
    order = torch.randperm(split.trained.N, generator=torch.Generator().manual_seed(plan.seed + 2), device="cpu")
    return replace(split, trained=split.trained.part(order.to(problem.X.device)))


def in_units(statistics: Statistics, scale: float) -> Statistics:
    """The statistics of y / sqrt(scale), which has the noise and the kernel of before all variances were multiplied."""
    return replace(statistics, b=statistics.b / math.sqrt(scale), yy=statistics.yy / scale)


def family_of(wanted: Family | Literal["auto"]) -> Family:
    """The family of a posterior with neighbours: joint, unless blocks are asked for."""
    return "block" if wanted == "block" else "joint"
