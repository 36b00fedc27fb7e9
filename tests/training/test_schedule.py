"""Schedules, the course of a fit, and batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.training import Schedule
from harmonicgp.training.schedule import Batches, Course


@pytest.mark.parametrize(
    "arguments",
    [
        {"optimizer": "sgd"},
        {"gradient_batch": "samee"},
        {"max_steps": -3},
        {"batch_size": 0},
        {"full_passes": -1},
        {"validation_fraction": 1.5},
        {"rho": 5.0},
        {"rho": 0.0},
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
    ],
    ids=str,
)
def test_schedules_are_checked(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Schedule(**arguments)


# --- course -----------------------------------------------------------------------------------------------------------


@given(
    max_steps=st.integers(1, 500),
    times=st.lists(st.floats(0, 3), min_size=1, max_size=40),
    values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40),
    every=st.integers(1, 4),
)
def test_share_rises_from_nought_to_one_and_sets_sane_rates(max_steps, times, values, every):
    plan = Schedule(max_steps=max_steps, early_stopping=True)
    course = Course(plan)
    before = 0.0
    for i, (elapsed, value) in enumerate(zip(times, values, strict=False)):
        if course.done:
            break
        assert 0 < plan.rate_at(course.share) <= 1.0 + 1e-12
        assert 0.02 <= plan.rho_at(course.step, course.share) <= 0.9
        course.advance(elapsed)
        if i % every == 0:
            course.watch(value)
        assert before < course.share <= 1.0
        before = course.share
    assert course.step <= max_steps


@given(st.integers(1, 1000))
def test_a_course_without_stops_has_as_many_steps_as_asked(max_steps):
    course = Course(Schedule(max_steps=max_steps))
    while not course.done:
        course.advance()
    assert course.step == max_steps


def test_no_steps():
    assert Course(Schedule(max_steps=0)).done


@given(st.integers(50, 400), st.integers(0, 30))
def test_a_bound_that_no_longer_rises_leads_to_cooling_once(max_steps, rising):
    course = Course(Schedule(max_steps=max_steps, early_stopping=True))
    jumps = 0
    while not course.done:
        course.advance()
        if course.step % course.check_every == 0:
            share = course.share
            course.watch(float(min(course.step // course.check_every, rising)))
            jumps += course.share > share
    last_check = course.check_every * (max(rising, 1) + Course.PATIENCE)
    if last_check < 0.75 * max_steps:
        assert jumps == 1
        assert course.cooling
        start = max(last_check, 0.15 * max_steps)
        assert start - 1 <= course.step - 0.2 * max_steps <= start + course.check_every + 1
    assert course.step <= max_steps


def test_small_rises_are_none():
    course = Course(Schedule(max_steps=100, early_stopping=True))
    for _ in range(20):
        course.advance()
    for i in range(4):
        course.watch(1.0 + i * 0.9 * Course.TOLERANCE / 4)
    assert course.share == Course.COOL
    course = Course(Schedule(max_steps=100, early_stopping=True))
    course.advance()
    for _ in range(10):
        course.watch(0.0)
    assert course.share == 0.01  # too early to say


@given(st.floats(0, 1))
def test_a_time_budget_runs_the_course(share):
    course = Course(Schedule(max_steps=1000))
    course.advance(share)
    assert course.share == max(share, 0.001)
    course.advance(1.7)
    assert course.share == 1.0
    assert course.done


def test_the_rate_rises_then_falls():
    plan = Schedule()
    rates = [plan.rate_at(s) for s in np.linspace(0, 1, 101)]
    assert rates[0] == 0.5
    assert rates[10] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.025)
    assert (np.diff(rates[:11]) > 0).all()
    assert (np.diff(rates[10:]) < 0).all()
    assert Schedule(optimizer="adam").rate_at(0.7) == 1.0


def test_the_state_of_a_course_is_all_that_changes():
    course = Course(Schedule(max_steps=100))
    course.advance(0.3)
    course.watch(1.0)
    course.watch(0.5)
    course.kl = 0.7
    again = Course(course.plan, **course.state())
    assert again == course


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"max_steps": -1}, ValueError),
        ({"max_steps": 1.5}, TypeError),
        ({"batch_size": 0}, ValueError),
        ({"learning_rate": math.nan}, ValueError),
        ({"learning_rate": 0.0}, ValueError),
        ({"rho": 0.0}, ValueError),
        ({"rho": 1.1}, ValueError),
        ({"validation_fraction": 1.0}, ValueError),
        ({"time_budget": 0.0}, ValueError),
        ({"time_budget": math.inf}, ValueError),
        ({"time_budget": math.nan}, ValueError),
        ({"checkpoint_every": 0}, ValueError),
        ({"chunk_size": 0}, ValueError),
        ({"seed": -1}, ValueError),
        ({"gradient_batch": "other"}, ValueError),
        ({"optimizer": "sgd"}, ValueError),
    ],
    ids=str,
)
def test_bad_schedules_name_the_argument(change, error):
    with pytest.raises(error, match=next(iter(change))):
        Schedule(**change)


# --- batches ----------------------------------------------------------------------------------------------------------


@given(N=st.integers(1, 300), size=st.integers(1, 400), seed=st.integers(0, 2**31), k=st.integers(0, 50))
def test_the_kth_draw_depends_on_seed_and_k_alone(N, size, seed, k):
    walked, jumped = Batches(N, size, seed), Batches(N, size, seed)
    for _ in range(k):
        walked.draw()
    jumped.drawn = k
    assert torch.equal(walked.draw(), jumped.draw())
    assert walked.drawn == jumped.drawn == k + 1


@given(N=st.integers(1, 300), size=st.integers(1, 400), seed=st.integers(0, 1000))
def test_a_pass_draws_every_row_once(N, size, seed):
    batches = Batches(N, size, seed)
    for _ in range(3):
        rows = torch.cat([batches.draw() for _ in range(max(N // size, 1))])
        assert len(rows.unique()) == len(rows)
        # a rest that fills no batch waits for a later pass
        assert len(rows) == (N if size >= N else N - N % size)
        assert (rows >= 0).all()
        assert (rows < N).all()


def test_passes_and_seeds_differ_and_no_row_is_left_out_for_long():
    first = Batches(100, 30, 0)
    passes = [torch.cat([first.draw() for _ in range(3)]) for _ in range(20)]
    assert not torch.equal(passes[0], passes[1])
    assert len(torch.cat(passes).unique()) == 100
    assert not torch.equal(Batches(100, 30, 1).draw(), Batches(100, 30, 0).draw())
