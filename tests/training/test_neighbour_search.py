"""The search for a model with neighbours: what a score looks at, which moves are made, and what a time budget allows."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.training import Schedule
from harmonicgp.training import neighbour_search as module
from harmonicgp.training.neighbour_scores import Start, set_aside
from harmonicgp.training.neighbour_search import NeighbourSearch, held_out_density
from harmonicgp.training.neighbours import gaussian
from tests.training.test_neighbour_finish import PLAN, first_fit, rough

ASIDE = replace(PLAN, set_aside=True)


def start_and_split(n=900, **changes):
    X, y = rough(n)
    result, problem = first_fit(X, y, **changes)
    return Start(result.features, gaussian(problem)).copy(), set_aside(problem, ASIDE), problem


def test_repeated_rows_do_not_hide_the_noise():
    """Each row twice, y and all: the nearest row of a held-out one must not be its own copy."""
    X, y = rough(900)
    result, problem = first_fit(X, y, counts=torch.full((900,), 2.0))
    best = NeighbourSearch(set_aside(problem, ASIDE), PLAN).run(Start(result.features, gaussian(problem)).copy(), 10)
    assert best.s2 * best.scale > 0.3 * 0.05**2  # the noise that the rows were made with


@pytest.mark.parametrize(("gain", "times"), [(-1.0, 1), (0.01, 1), (1.0, module.DESCENTS)])
def test_without_a_time_budget_a_move_is_made_again_only_where_it_helps_much(gain, times):
    start, split, _ = start_and_split()
    search, made = NeighbourSearch(split, PLAN), []

    def move(best, number):
        made.append(number)
        return replace(best, score=best.score + gain)

    best = search.climb(search.score(start, 5), [move])
    assert made == list(range(times))
    assert math.isfinite(best.score)


def test_with_a_time_budget_moves_go_on_while_they_help():
    start, split, _ = start_and_split()
    search, left, made = NeighbourSearch(split, PLAN, time.perf_counter() + 600), [1.0, 0.5, 0.0], []

    def helps(best, times):
        made.append(times)
        return replace(best, score=best.score + left[times])

    def never(best, times):
        return best

    first = search.score(start, 5)
    best = search.climb(first, [helps, never])
    assert made == [0, 1, 2]
    assert best.score == pytest.approx(first.score + 1.5)


def test_a_search_says_why_it_ended_before_its_time(monkeypatch):
    monkeypatch.setattr(module, "ALONE_STEPS", 2)
    monkeypatch.setattr(module, "DESCENT_STEPS", 0.05)
    start, split, _ = start_and_split()
    search = NeighbourSearch(split, PLAN, time.perf_counter() + 600)
    search.run(start, 5)
    assert "before its time budget" in search.note
    assert NeighbourSearch(split, PLAN).note == ""


def test_little_time_means_few_rows():
    start, split, _ = start_and_split(6000)
    short = NeighbourSearch(split, PLAN, time.perf_counter() + 1e-3)
    short._afford(start, 5)
    assert (short.given, short.trial_rows) == (module.PROBED, module.PROBED)
    assert short.scored.held.N <= module.PROBED
    long = NeighbourSearch(split, PLAN, time.perf_counter() + 600)
    long._afford(start, 5)
    assert long.trial_rows == module.TRIAL_ROWS
    assert long.given > short.given


def test_the_density_of_a_fit_needs_rows_set_aside():
    _, _, problem = start_and_split()
    assert held_out_density(problem, 5, Schedule(validation_fraction=0.0)) is None
    assert math.isfinite(held_out_density(problem, 5, ASIDE))


@pytest.mark.parametrize("error", [NotPositiveDefiniteError, FloatingPointError])
def test_a_move_that_fails_is_one_that_does_not_help(error):
    start, split, _ = start_and_split()
    search = NeighbourSearch(split, PLAN)

    def fails(best, times):
        raise error("no factor")

    first = search.score(start, 5)
    assert search.climb(first, [fails]) is first
