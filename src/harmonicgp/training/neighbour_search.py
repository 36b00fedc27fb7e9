"""The search for a model with neighbours: where it starts, what improves it, and what held-out rows say of it.

Hyper-parameters that were learned without neighbours make up for what few features miss: noise and lengthscales can be far too
large. So there are two starts, the trained model and the nearest-neighbour likelihood alone; descent on the combined bound and
more neighbours follow. The density of held-out rows judges all of them, and sets noise and output scale.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from scipy.optimize import minimize_scalar

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.training.finish import Split, outputscale
from harmonicgp.training.fit import TrainingLoop
from harmonicgp.training.neighbour_scores import (
    MAX_GIVEN,
    GivenRows,
    HeldOutView,
    Scored,
    Start,
    groups_of,
    in_units,
    is_free,
    set_aside,
    set_scalars,
)
from harmonicgp.training.neighbours import NeighbourProblem, gaussian, learn_alone
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule

#: Neighbours by default, and at most where held-out rows ask for more.
NEIGHBOURS, MOST_NEIGHBOURS = 20, 160
#: Nats a row by which a move must help to be taken again, and for which `NEIGHBOURS` more neighbours are worth their cost.
GAIN = 0.005
#: Nats a row by which a first look may be behind to be looked at again, at other noise variances.
NEAR = 0.2
#: Rows that descent sees at most.
MAX_DESCENT = 200_000
#: Rows that inform the posterior of a score, at least and for each feature.
TRIAL_ROWS, ROWS_A_FEATURE = 10_000, 4
#: Held-out rows that a score looks at, at most, and noise variances.
SCORED, TRIALS = 2000, 6
#: Rows of the trial that says how many a time budget allows, and held-out rows of it.
PROBED, PROBED_HELD = 512, 100
#: How far the best noise variance must be from the first, as a factor, for another posterior.
FAR = 4.0
#: Steps of the nearest-neighbour likelihood.
ALONE_STEPS = 200
#: Steps of the first descent, as a share of the schedule's; each later one is longer by half.
DESCENT_STEPS = 0.2
#: How long it takes to look at more and more neighbours, up to the most, in looks at the first number of them.
LOOKS = 10
#: Descents at most without a time budget, and nats a row by which one must help for the next.
DESCENTS, AGAIN = 3, 0.02
#: Rows of a step of descent.
DESCENT_BATCH = 512
#: Nats a row by which neighbours must be ahead of independent residuals for the first fit not to be ended for a comparison.
AHEAD = 0.05
#: How far the noise is searched either way, as a factor; and where the number of neighbours is all that has changed.
REACH, NEAR_REACH = 30.0, 4.0


class Descent(Schedule):
    """The course of a descent, which begins at the optimum of its posterior."""

    def rho_at(self, step: int, share: float) -> float:
        """Short steps of the posterior, as it follows hyper-parameters and sees a part of the rows each time."""
        return max(0.1 * (1 - share), 0.02)


#: From the best so far, and how often the move has been made before, to another.
Move = Callable[[Scored, int], Scored]


class NeighbourSearch:
    """Starts and moves, compared by the density of held-out rows.

    The moves are the nearest-neighbour likelihood alone and descent on the combined bound. They are made while they help, the
    most rewarding first: up to a time budget, or without one the first once and the second up to `DESCENTS` times. At last the
    number of neighbours is doubled while that is worth its cost.
    """

    def __init__(self, split: Split, plan: Schedule, until: float = math.inf, reserve: float = 0.0) -> None:
        self.split, self.plan, self.until = split, plan, until
        self.reserve = reserve  #: seconds that a comparison with the first fit takes, where it may be needed
        assert split.held is not None
        self.scored = self._scored(SCORED)
        self.given = MAX_GIVEN  #: rows that inform the posterior of the end
        self.trial_rows = TRIAL_ROWS  #: rows that inform that of a score
        self.longest = 0.0  # seconds that a score has taken
        self.seeing = 0.0  # seconds of it that held-out rows took
        self.informing = 0.0  # seconds of it that the sums over rows took
        self.more = False  #: whether more neighbours may be asked for
        self.made: dict[Move, int] = {}  # how often each move has been made
        self.first: Scored | None = None  #: the start without neighbours, where their number may be chosen
        self.converged = False  #: whether no move helped any more
        self.note = ""  #: why the search ended before its time

    def run(self, start: Start, k: int | Literal["auto"]) -> Scored:
        """The best that is found from a start, with k neighbours."""
        begin = time.perf_counter()
        if math.isfinite(self.until):
            self._afford(start, NEIGHBOURS if k == "auto" else k)
        best = self.score(start, NEIGHBOURS if k == "auto" else k)
        self.more = k == "auto"
        if self.more:
            self.first = self.score(start, 0)
        moves = [self.alone, self.descend]
        best = self.climb(best, moves)
        if self.more:
            best, self.more = self.double(best), False
            best = self.climb(best, moves) if math.isfinite(self.until) else best
        left = self.until - time.perf_counter() - self.closing(self.seeing)
        if math.isfinite(left) and left > 0.3 * (self.until - begin):
            names = "more steps" + (" and more neighbours" if self.more else "")
            why = (
                f"{names} no longer helped on held-out rows"
                if self.converged
                else "the next step might have taken longer"
            )
            self.note = f"the fit ended {left:.0f} s before its time budget: {why}."
        return best

    def _scored(self, most: int) -> Split:
        """At most so many of the rows held out."""
        assert self.split.held is not None
        every = slice(None, None, math.ceil(self.split.held.N / most))
        return replace(self.split, held=self.split.held.part(every))

    def _afford(self, start: Start, k: int) -> None:
        """Set how many rows scores and the end look at, by a trial on a few, so that both fit into the time that is left."""
        held = self.scored.held
        assert held is not None
        few = Split(self.split.trained.part(slice(-4 * PROBED, None)), held.part(slice(0, PROBED_HELD)))
        times = [time.perf_counter()]
        rows = GivenRows(start, few, k, PROBED)
        statistics = rows.statistics(start.s2, exact=False)
        times.append(time.perf_counter())
        form = closed_form(statistics, start.s2, "joint", "elbo")
        times.append(time.perf_counter())
        HeldOutView(rows, form, start.s2).density(False, start.s2)
        times.append(time.perf_counter())
        left = self.until - times[3] - self.reserve - 2 * (times[2] - times[1])
        affordable = left / (times[1] - times[0]) * PROBED
        self.given = min(max(int(0.4 * affordable), PROBED), MAX_GIVEN)
        self.trial_rows = min(max(int(0.1 * affordable), PROBED), TRIAL_ROWS)
        self.scored = self._scored(
            min(max(int(0.04 * left / (times[3] - times[2]) * PROBED_HELD), PROBED_HELD), SCORED)
        )

    def climb(self, best: Scored, moves: Sequence[Move]) -> Scored:
        """The best after these moves."""
        rewards = dict.fromkeys(moves, math.inf)  # nats a second
        while rewards and self.has_time(2.0):
            move = max(rewards, key=lambda m: rewards[m])
            if rewards[move] <= 0:
                break
            begin = time.perf_counter()
            try:
                other = move(best, self.made.get(move, 0))
            except (NotPositiveDefiniteError, FloatingPointError):  # a move that fails is one that does not help
                other = best
            gain, self.made[move] = other.score - best.score, self.made.get(move, 0) + 1
            best = self.better(best, other)
            self.reserve = 0.0 if best.score > self.independent + AHEAD else self.reserve
            rewards[move] = gain / (time.perf_counter() - begin) if gain > GAIN else 0.0
            if self.until == math.inf and (move == self.alone or self.made[move] == DESCENTS or gain < AGAIN):
                rewards[move] = 0.0
            elif self.until < math.inf and gain > GAIN:  # others may help again, from here
                rewards.update({m: 1e-9 for m in rewards if rewards[m] == 0 and m != self.alone})
        self.converged = all(reward <= 0 for reward in rewards.values())
        return best

    @property
    def independent(self) -> float:
        """The score without neighbours."""
        return -math.inf if self.first is None else self.first.score

    @staticmethod
    def better(first: Scored, second: Scored) -> Scored:
        """The one with the higher score."""
        return second if second.score > first.score else first

    @property
    def rest(self) -> float:
        """Seconds that must be left after a move: for looking at more neighbours, and for the end."""
        if not self.more:
            return self.closing(self.seeing)
        return self.longest + LOOKS * self.seeing + self.closing(0.5 * LOOKS * self.seeing)

    def has_time(self, scores: float) -> bool:
        """Whether there is time for a move that takes as long as so many scores, and for the end."""
        return time.perf_counter() + scores * self.longest + self.rest < self.until

    def closing(self, seeing: float) -> float:
        """Seconds that the end will take on all rows, if the held-out rows of a score take `seeing` seconds."""
        N, held, scored = self.split.trained.N, self.split.held, self.scored.held
        assert held is not None
        assert scored is not None
        informing = 1.3 * self.informing * max(1.0, min(N, self.given) / self.trial_rows)
        return self.reserve + self.longest + informing + seeing * held.N / scored.N

    # Moves ------------------------------------------------------------------------------------------------------------

    def alone(self, best: Scored, made: int) -> Scored:
        """Kernel and noise learned from neighbours alone."""
        start, rate = best.start.copy(), 2.5 * self.plan.learning_rate
        until, k = self.until - self.longest - self.rest, min(best.k, 2 * NEIGHBOURS)
        learn_alone(start.on(self.split.trained), k, ALONE_STEPS, rate / (1 + made), self.plan.seed + made, until=until)
        return self.score(start, best.k, best.score)

    def descend(self, best: Scored, made: int) -> Scored:
        """Some steps on the combined bound in all hyper-parameters and inducing inputs."""
        start = best.start.copy()
        rows = GivenRows(best.start, replace(self.split, held=None), best.k, self._trial_rows(start))
        statistics = in_units(rows.statistics(best.s2, exact=False), best.scale)
        set_scalars(start, best.s2, best.scale)
        trained = start.on(self.split.trained)
        problem = NeighbourProblem.of(trained, groups_of(trained.coordinates(), best.k > 0, MAX_DESCENT))
        plan = Descent(
            max_steps=math.ceil(DESCENT_STEPS * self.plan.max_steps * 1.5**made),
            batch_size=min(self.plan.batch_size, DESCENT_BATCH),
            learning_rate=self.plan.learning_rate,
            progress=False,
            seed=self.plan.seed + made,
        )
        left = self.until - time.perf_counter() - self.longest - self.rest
        loop = TrainingLoop(Split(problem), "block", plan, max(left, 1e-3))
        seen = problem.N / len(rows.groups.numbers)  # as if all rows of the descent had informed the posterior
        loop.q = closed_form(statistics.scaled(seen), best.s2, "block", "elbo").posterior
        loop.run(())
        return self.score(start, best.k, best.score)

    @torch.no_grad()
    def double(self, best: Scored) -> Scored:
        """Twice as many neighbours, and again, while they are worth their cost."""
        rows = GivenRows(best.start, self.scored, best.k, self._trial_rows(best.start))
        try:
            form = closed_form(rows.statistics(best.s2, exact=False), best.s2, "joint", "elbo")
            while 2 * best.k <= MOST_NEIGHBOURS:
                if time.perf_counter() + 2.5 * self.seeing + self.closing(2 * self.seeing) > self.until:
                    break
                begin, other = time.perf_counter(), rows.with_neighbours(2 * best.k)
                view = partial(HeldOutView(other, form, best.s2).density, self._is_scaled(rows))
                more = self._scalars(replace(best, k=2 * best.k), view, best.score, is_free(rows.trained), NEAR_REACH)
                self.seeing = time.perf_counter() - begin
                if more.score <= best.score + GAIN * best.k / NEIGHBOURS:
                    break
                best = more
        except NotPositiveDefiniteError:  # more neighbours that fail do not help
            pass
        return best

    # Scores -----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, start: Start, k: int, rival: float = -math.inf, s2: float | None = None) -> Scored:
        """The best noise and output scale for k neighbours; only a first look where that is far behind a rival's score.

        The posterior of the features is that of the first noise variance, and once more that of the best if it is far from it.
        """
        begin = time.perf_counter()
        rows = GivenRows(start, self.scored, k, self._trial_rows(start))
        best = Scored(start, k, start.s2 if s2 is None else s2)
        free, scaled = is_free(rows.trained), self._is_scaled(rows)
        for _ in range(2):
            first = best.s2
            try:
                summed = time.perf_counter()
                statistics = rows.statistics(first, exact=False)
                self.informing = max(self.informing, time.perf_counter() - summed)
                form = closed_form(statistics, first, "joint", "elbo")
            except NotPositiveDefiniteError:
                break
            looked = time.perf_counter()
            best = self._scalars(best, partial(HeldOutView(rows, form, first).density, scaled), rival, free)
            self.seeing = max(self.seeing, time.perf_counter() - looked)
            if abs(math.log(best.s2 / first)) < math.log(FAR):
                break
        self.longest = max(self.longest, time.perf_counter() - begin)
        return best

    def _trial_rows(self, start: Start) -> int:
        """How many rows inform the posterior of a score."""
        enough = ROWS_A_FEATURE * start.features.n_features
        return self.trial_rows if self.trial_rows < TRIAL_ROWS else max(TRIAL_ROWS, enough)

    @staticmethod
    def _is_scaled(rows: GivenRows) -> bool:
        """Whether all variances may be multiplied by a factor."""
        return is_free(rows.trained) and outputscale(rows.trained.features) is not None

    @staticmethod
    def _scalars(
        at: Scored, density: Callable[[float], tuple[float, float]], rival: float, free: bool, far: float = REACH
    ) -> Scored:
        """The best noise variance near the present one, by a function that gives score and scale at another."""
        seen: dict[float, tuple[float, float]] = {}

        def cost(log_s2: float) -> float:
            seen[log_s2] = density(math.exp(log_s2))
            return -seen[log_s2][0]

        middle = math.log(at.s2)
        first = -cost(middle)
        if free and first > rival - NEAR:
            reach = (middle - math.log(far), middle + math.log(far))
            minimize_scalar(cost, bounds=reach, method="bounded", options={"maxiter": TRIALS, "xatol": 0.05})
        best = max(seen, key=lambda key: seen[key][0])
        return replace(at, s2=math.exp(best), scale=seen[best][1], score=seen[best][0])


def held_out_density(problem: Problem, k: int, plan: Schedule) -> float | None:
    """What a fit says of the rows that it set aside, with k neighbours and at the best noise."""
    split = set_aside(problem, plan)
    if split.held is None:
        return None
    return NeighbourSearch(split, plan).score(Start(problem.features, gaussian(problem)), k).score
