"""The end of a fit whose residual is given its neighbours: starts, descent, scalars, and the closed form.

Hyper-parameters that were learned without neighbours make up for what few features miss: noise and lengthscales can be far too
large. So there are two starts, the trained model and the nearest-neighbour likelihood alone. The density of held-out rows
chooses between them, says whether descent on the combined bound has helped, and sets noise, output scale and number of
neighbours.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features.base import Features, Whitened
from harmonicgp.features.evaluation import DenseEvaluation, split_coefficients
from harmonicgp.features.nearest import NearestIndex, Neighbours, earlier, tiles
from harmonicgp.features.neighbours import Conditioned, Neighbourhood, ObservedRows, condition
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.inference.closed_form import ClosedForm, closed_form
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.statistics import RowPiece, Statistics, diagonal_blocks, sum_statistics
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.finish import Split, Validation, finish, hold_out, outputscale
from harmonicgp.training.fit import Fit, TrainingLoop
from harmonicgp.training.neighbours import NeighbourProblem, gaussian, learn_alone, repeats, row_noise
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule

#: Neighbours by default, and those tried after it where a time budget leaves time.
NEIGHBOURS, MORE = 20, 40
#: Nats a row for which neighbours are worth their cost, and for which descent goes on.
GAIN = 0.005
#: Nats a row by which a first look may be behind to be looked at again, at other noise variances.
NEAR = 0.2
#: Rows that inform the features' posterior, and that descent sees, at most; all rows are neighbours.
MAX_GIVEN, MAX_DESCENT = 50_000, 50_000
#: Rows that inform the posterior of a score, at least and for each feature.
TRIAL_ROWS, ROWS_A_FEATURE = 10_000, 4
#: Held-out rows that a score looks at, at most, and noise variances.
SCORED, TRIALS = 2000, 6
#: How far the best noise variance must be from the first, as a factor, for another posterior.
FAR = 4.0
#: Steps of the nearest-neighbour likelihood, and of a round of descent.
ALONE_STEPS, ROUND_STEPS = 200, 40
#: How far the noise is searched either way, and the output scale, as factors.
REACH, SCALES = 30.0, (1e-3, 1e3)
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
    """Rows in random order with their neighbours in the metric of a start: all that a noise variance needs."""

    @torch.no_grad()
    def __init__(self, start: Start, split: Split, k: int, most: int = MAX_GIVEN) -> None:
        self.trained = start.on(split.trained)
        self.held = None if split.held is None else start.on(split.held)
        self.whitened: Whitened = start.features.whiten()
        kernel = getattr(start.features.view, "kernel", None)
        points = metric_coordinates(kernel, self.trained.X)
        self.first = max(0, self.trained.N - most)  #: the first of the rows that inform the posterior
        self.table: Neighbours = earlier(points, k, self.first)
        self.tiles = tiles(points[self.first :], TILE)
        if self.held is not None:
            queries = metric_coordinates(kernel, self.held.X)
            self.near = NearestIndex(points).nearest(queries, k)
            self.held_tiles = tiles(queries, TILE)
        self.observed = ObservedRows(self.trained.X, self.trained.centred(), _noise(self.trained, 1.0))
        self.observed = self.observed.with_features(self.whitened)

    def given(self, s2: float) -> ObservedRows:
        """The trained rows with their noise at noise variance s2."""
        return replace(self.observed, noise=_noise(self.trained, s2))

    def statistics(self, s2: float, exact: bool | None = None) -> Statistics:
        """The sums over trained rows given their neighbours."""
        observed = self.given(s2)

        def pieces() -> Iterator[RowPiece]:
            for tile in self.tiles:
                rows = tile + self.first
                given = condition(self.whitened, observed.X[rows], observed, self.table.part(tile))
                yield given_piece(given, observed.y[:, rows], observed.noise[rows], s2)

        n = self.trained.N - self.first
        return sum_statistics(pieces(), self.trained.features.shapes, len(observed.y), n, True, exact)

    def held_out(self, s2: float) -> Iterator[tuple[Tensor, Conditioned]]:
        """The held-out rows given trained ones, tile by tile."""
        assert self.held is not None
        observed = self.given(s2)
        for rows in self.held_tiles:
            yield rows, condition(self.whitened, self.held.X[rows], observed, self.near.part(rows))

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

    def density(self, form: ClosedForm, scaled: bool, s2: float) -> tuple[float, float]:
        """The mean log-density of a held-out row at a noise variance, and the best factor of all variances."""
        assert self.held is not None
        return log_density(self.held, *self.moments(form, s2), s2, scaled)


def _noise(problem: Problem, s2: float) -> Tensor:
    """The noise variances of the rows at noise variance s2, [N]: c equal rows are one of noise s2/c."""
    noise = torch.full_like(problem.X[:, 0], s2) if problem.noise is None else s2 + problem.noise
    return noise if problem.counts is None else noise / problem.counts


def given_piece(given: Conditioned, y: Tensor, noise: Tensor, s2: float) -> RowPiece:
    """Rows given their neighbours as the closed form sees them: features a~, targets y~, noise d = s2 / w."""
    d = given.evaluation.residual.variance.double() + noise.double()
    bare = DenseEvaluation(given.evaluation.stacks, IndependentResidual(torch.zeros_like(d)))
    return RowPiece(bare, y - given.offset, s2 / d)


def log_density(held: Problem, mean: Tensor, variance: Tensor, s2: float, scaled: bool = False) -> tuple[float, float]:
    """The mean log-density of a held-out row from the moments of f, and, if `scaled`, the best factor of all variances."""
    counts = torch.ones_like(held.y[0]) if held.counts is None else held.counts
    c = counts.double() / (len(mean) * counts.double().sum())
    total = variance.double() + s2 + (0.0 if held.noise is None else held.noise.double())
    error = (held.centred().double() - mean).square() / total
    scale = min(max(float((error * c).sum()), SCALES[0]), SCALES[1]) if scaled else 1.0
    return float(-0.5 * (((2 * math.pi * scale * total).log() + error / scale) * c).sum()), scale


class NeighbourSearch:
    """Starts, descent and numbers of neighbours, compared by the density of held-out rows."""

    def __init__(self, split: Split, plan: Schedule, until: float) -> None:
        self.split, self.plan, self.until = split, plan, until
        assert split.held is not None
        every = slice(None, None, math.ceil(split.held.N / SCORED))
        self.scored = replace(split, held=split.held.part(every))
        self.longest = 0.0  # seconds that a score has taken

    def run(self, start: Start, k: int | Literal["auto"]) -> Scored:
        """The best of both starts; with a time budget also of descent from there, while it helps and there is time."""
        first = NEIGHBOURS if k == "auto" else k
        best = self.score(start, first)
        if self.has_time(2.0):
            alone = start.copy()
            rate, until = 2.5 * self.plan.learning_rate, self.until - 3 * self.longest
            learn_alone(alone.on(self.split.trained), first, ALONE_STEPS, rate, self.plan.seed, until=until)
            best = self.better(best, self.score(alone, first, best.score))
        rounds, gain = 0, math.inf
        while self.until < math.inf and gain > GAIN and self.has_time(3.0):
            lower = self.score(self.descend(best, rounds), first, best.score)
            gain, rounds = lower.score - best.score, rounds + 1
            best = self.better(best, lower)
        if k == "auto" and self.until < math.inf and self.has_time(4.0):
            more = self.score(best.start, MORE, best.score, best.s2)
            best = more if more.score > best.score + GAIN else best
        return best

    @staticmethod
    def better(first: Scored, second: Scored) -> Scored:
        """The one with the higher score."""
        return second if second.score > first.score else first

    def has_time(self, scores: float) -> bool:
        """Whether there is time for a stage that takes as long as so many scores, and for the end."""
        return time.perf_counter() + (scores + 2.0) * self.longest < self.until

    @torch.no_grad()
    def score(self, start: Start, k: int, rival: float = -math.inf, s2: float | None = None) -> Scored:
        """The best noise and output scale for k neighbours; only a first look where that is far behind a rival's score.

        The posterior of the features is that of the first noise variance, and once more that of the best if it is far from it.
        """
        begin = time.perf_counter()
        most = max(TRIAL_ROWS, ROWS_A_FEATURE * start.features.n_features)
        rows, best = GivenRows(start, self.scored, k, most), Scored(start, k, start.s2 if s2 is None else s2)
        free = is_free(rows.trained)
        scaled = free and outputscale(start.features) is not None
        for _ in range(2):
            first = best.s2
            try:
                form = closed_form(rows.statistics(first, exact=False), first, "joint", "elbo")
            except NotPositiveDefiniteError:
                break
            best = self._scalars(best, partial(rows.density, form, scaled), rival, free)
            if abs(math.log(best.s2 / first)) < math.log(FAR):
                break
        self.longest = max(self.longest, time.perf_counter() - begin)
        return best

    @staticmethod
    def _scalars(at: Scored, density: Callable[[float], tuple[float, float]], rival: float, free: bool) -> Scored:
        """The best noise variance near the present one, by a function that gives score and scale at another."""
        seen: dict[float, tuple[float, float]] = {}

        def cost(log_s2: float) -> float:
            seen[log_s2] = density(math.exp(log_s2))
            return -seen[log_s2][0]

        middle = math.log(at.s2)
        first = -cost(middle)
        if free and first > rival - NEAR:
            reach = (middle - math.log(REACH), middle + math.log(REACH))
            minimize_scalar(cost, bounds=reach, method="bounded", options={"maxiter": TRIALS, "xatol": 0.05})
        best = max(seen, key=lambda key: seen[key][0])
        return replace(at, s2=math.exp(best), scale=seen[best][1], score=seen[best][0])

    def descend(self, best: Scored, number: int) -> Start:
        """Some steps on the combined bound, all hyper-parameters and inducing inputs, from a copy of the best."""
        start = best.start.copy()
        set_scalars(start, best.s2, best.scale)
        trained = start.on(self.split.trained)
        problem = NeighbourProblem.of(trained, best.k, max(0, trained.N - MAX_DESCENT))
        plan = replace(
            self.plan,
            max_steps=ROUND_STEPS,
            batch_size=min(self.plan.batch_size, 512),
            time_budget=None,
            checkpoint=None,
            early_stopping=False,
            progress=False,
            seed=self.plan.seed + number,
        )
        left = self.until - time.perf_counter() - 3 * self.longest
        TrainingLoop(Split(problem), "block", plan, max(left, 1e-3)).run(())
        return start


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


def fit_neighbours(
    result: Fit,
    problem: Problem,
    k: int | Literal["auto"] = "auto",
    schedule: Schedule | None = None,
    family: Family | Literal["auto"] = "auto",
) -> Fit:
    """A fit with neighbours for its residual, from a fit without and the rows that it was fitted to.

    `k` is the number of neighbours. "auto" decides by the density of held-out rows: where neighbours say no more of them, the
    first fit is ended as `training.fit` ends it, in a posterior of `family`. `schedule` is that of the first fit, which need not
    have refined its scalars; its `time_budget` is what is left. Where rows are held out, the hyper-parameters are learned anew,
    in copies; without, they stay as they are.
    """
    begin, plan = time.perf_counter(), Schedule() if schedule is None else schedule
    observation = gaussian(problem)
    split = hold_out(problem, replace(plan, early_stopping=True))  # the rows that the first fit held out, if it did
    order = torch.randperm(split.trained.N, generator=torch.Generator().manual_seed(plan.seed + 2), device="cpu")
    split = replace(split, trained=split.trained.part(order.to(problem.X.device)))
    start = Start(result.features, observation).copy()
    if split.held is None:
        if k == "auto":
            return result
        ending = close(Scored(start, k, start.s2), split, plan, family)
    else:
        until = math.inf if plan.time_budget is None else begin + plan.time_budget
        ending = close(NeighbourSearch(split, plan, until).run(start, k), split, plan, family)
        if k == "auto":
            ending = _better(ending, result, problem, split, plan, family)
    seconds = {**result.seconds, "neighbours": time.perf_counter() - begin}
    return replace(ending, mean=result.mean, history=result.history, seconds=seconds)


def _better(
    ending: Fit, result: Fit, problem: Problem, split: Split, plan: Schedule, family: Family | Literal["auto"]
) -> Fit:
    """The fit with neighbours if it says more of the held-out rows than the first fit, ended at its best."""
    assert split.held is not None
    score = validation_score(ending, split.held)
    if score > validation_score(result, split.held) + NEAR:
        return ending
    refined = _refined(result, problem, split, plan, family)
    return ending if score > validation_score(refined, split.held) + GAIN else refined


def validation_score(result: Fit, held: Problem) -> float:
    """The mean log-density of the held-out rows by what a fit said of them."""
    said = result.validation
    if said is None:
        return -math.inf
    held = Start(result.features, gaussian(replace(held, observation=result.observation))).on(held)
    mean = said.mean.double() - held.latent(torch.zeros_like(said.mean))
    return log_density(held, mean, said.variance, float(gaussian(held).noise().detach()))[0]


def _refined(result: Fit, problem: Problem, split: Split, plan: Schedule, family: Family | Literal["auto"]) -> Fit:
    """The first fit, ended with noise and output scale refined on the held-out rows."""
    if not isinstance(result.posterior, Posterior) or result.refinement is not None or not plan.refine:
        return result
    ending = finish(problem, result.posterior, family, split, plan)
    return replace(
        result,
        posterior=ending.posterior,
        bound=ending.bound,
        refinement=ending.refinement,
        iterations=ending.iterations,
        validation=ending.validation,
    )


@torch.no_grad()
def close(best: Scored, split: Split, plan: Schedule, wanted: Family | Literal["auto"]) -> Fit:
    """The posterior from all rows, and what it said of held-out rows before it saw them."""
    family: Family = "block" if wanted == "block" else "joint"
    rows, s2, scale = GivenRows(best.start, split, best.k), best.s2, best.scale
    statistics, problem, held, validation = rows.statistics(s2), rows.trained, rows.held, None
    if held is not None and split.rows is not None:
        mean, variance = rows.moments(closed_form(statistics, s2, family, "elbo"), s2)
        if is_free(problem) and outputscale(best.start.features) is not None:
            scale = log_density(held, mean, variance, s2, True)[1]
        validation = Validation(split.rows, held.latent(mean), scale * variance, held.counts)
        if not plan.keep_out:
            y, noise = held.centred(), _noise(held, s2)
            pieces = (given_piece(part, y[:, i], noise[i], s2) for i, part in rows.held_out(s2))
            statistics = statistics + sum_statistics(pieces, statistics.shapes, len(y), held.N, True)
            problem = problem.joined(held)
    # y / sqrt(scale) at noise s2: the model in units of its output scale
    units = replace(statistics, b=statistics.b / math.sqrt(scale), yy=statistics.yy / scale)
    form = closed_form(units, s2, family, "elbo")
    start = best.start.copy()
    set_scalars(start, s2, scale)
    problem, P, n = start.on(problem), len(units.b), len(units.residual)
    bound = (form.bound - 0.5 * P * n * math.log(scale)) / n - float(repeats(problem).mean())
    ending = Fit(start.features, start.observation, form.posterior, problem.mean, bound, validation=validation)
    observed = ObservedRows(problem.X, problem.centred(), row_noise(problem).detach())
    ending.neighbourhood = Neighbourhood.of(getattr(start.features.view, "kernel", None), observed, best.k)
    return ending


@torch.no_grad()
def absorb_neighbours(predictor: NeighbourPredictor, problem: Problem) -> NeighbourPredictor:
    """A predictor after new rows: each is given its nearest among all rows before it, and joins them."""
    hood, posterior, s2 = predictor.neighbourhood, predictor.posterior, float(gaussian(problem).noise())
    old, new = hood.observed, ObservedRows(problem.X, problem.centred(), row_noise(problem))
    pairs = ((old.X, new.X, 0), (old.y, new.y, 1), (old.noise, new.noise, 0))
    observed = ObservedRows(*(torch.cat((a, b), axis) for a, b, axis in pairs))
    points = metric_coordinates(hood.kernel, observed.X)
    table = earlier(points, hood.k, len(old))

    def pieces() -> Iterator[RowPiece]:
        for tile in tiles(points[len(old) :], TILE):
            given = condition(predictor.whitened, new.X[tile], observed, table.part(tile))
            yield given_piece(given, new.y[:, tile], new.noise[tile], s2)

    sums = sum_statistics(pieces(), predictor.features.shapes, len(new.y), len(new), True)
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
