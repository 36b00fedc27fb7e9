"""What held-out rows are told: a view of them against a pass over them, and which rows they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonicgp.inference.closed_form import closed_form
from harmonicgp.training.neighbour_scores import GivenRows, HeldOutView, log_density, set_aside
from tests.training.test_neighbour_finish import first_fit, rough
from tests.training.test_neighbour_search import ASIDE, start_and_split


@pytest.mark.parametrize("k", [0, 7])
def test_a_view_of_held_out_rows_says_what_a_pass_over_them_says(k):
    start, split, _ = start_and_split()
    rows = GivenRows(start, split, k)
    form = closed_form(rows.statistics(0.05), 0.05, "joint", "elbo")
    view = HeldOutView(rows, form, 0.05)
    expected = log_density(rows.held, *rows.moments(form, 0.05), 0.05, True)
    torch.testing.assert_close(torch.tensor(view.density(True, 0.05)), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    # at another noise variance only the variance that v brings stays as it was
    again = log_density(rows.held, *rows.moments(form, 0.04), 0.04, False)[0]
    assert view.density(False, 0.04)[0] == pytest.approx(again, abs=0.01)
    assert view.density(False, 0.04)[0] != view.density(False, 0.05)[0]


def test_equal_rows_are_set_aside_together_and_count_once():
    X, y = rough(400)
    counts = torch.ones(400)
    counts[::3] = 5.0
    _, problem = first_fit(X, y, counts=counts)
    split = set_aside(problem, ASIDE)
    assert len(split.trained.X) + len(split.held.X) == 400
    assert not set(map(float, split.trained.X[:, 0])) & set(map(float, split.held.X[:, 0]))
    assert set(split.held.counts.tolist()) == {1.0, 5.0}
    mean = torch.zeros_like(split.held.y).double()
    once = replace(split.held, counts=None)
    assert log_density(split.judged, mean, mean + 1, 0.1) == log_density(once, mean, mean + 1, 0.1)


def test_inputs_measured_again_are_on_both_sides_and_count_as_often_as_they_occur():
    X, y = rough(400)
    X[1::2] = X[::2]  # every input has two targets
    _, problem = first_fit(X, y, counts=torch.full((400,), 5.0))
    split = set_aside(problem, ASIDE)
    assert float(split.trained.counts.sum() + split.held.counts.sum()) == 2000
    assert float(split.held.counts.sum()) == pytest.approx(400, rel=0.2)
    assert split.held.N > 100  # many rows with one of their copies, not few with all
    assert split.judged is split.held


@pytest.mark.parametrize("weight", [1e-3, 1e5])
def test_how_many_rows_are_set_aside_does_not_depend_on_the_unit_of_weights(weight):
    X, y = rough(400)
    _, problem = first_fit(X, y, counts=torch.full((400,), weight))
    assert set_aside(problem, ASIDE).held.N == 80
