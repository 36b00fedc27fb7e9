"""The search as a function from data to a choice, without an estimator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation, Orthogonal, Rotation
from harmonicgp.diagnostics import suggest_symmetry
from harmonicgp.symmetry import search
from tests.symmetry.common import prepared


def test_a_search_needs_rows_and_settings_alone(monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", (search.TrialRound(300, 8, 2, 128), search.TrialRound(300, 8, 2, 128)))
    data, settings = prepared()
    columns = settings.columns_of(data)
    choice = search.search_symmetry(data, columns, settings, [Negation(), Rotation((0, 1), 4)])
    assert {row["name"] for row in choice.table} == {"one block, columns", "Negation()", "Rotation((0, 1), 4)"}
    assert sum(row["chosen"] for row in choice.table) == 1
    assert (choice.origin, choice.instead, choice.estimator) == ("search", "an exact model", "HarmonicGPRegressor")
    again = search.search_symmetry(data, columns, settings, [Negation(), Rotation((0, 1), 4)])
    assert again.table == choice.table


def test_a_trial_that_fails_is_a_row_with_a_reason():
    data, settings = prepared(n_inducing=4)
    trials = search.TrialSettings(settings.columns_of(data), settings, 100)
    plain = next(iter(search._generated(data, trials.columns, settings, False)))
    evidence = {}
    row = search.run_trial(data, plain, trials, search.TrialRound(300, 8, 2, 128), evidence)
    assert np.isfinite(row["bound"])
    assert evidence == {}  # one block moves nothing
    broken = data.__class__(data.X, data.target * np.nan, None, None)
    row = search.run_trial(broken, plain, trials, search.TrialRound(300, 8, 2, 128), evidence)
    assert row["bound"] is None
    assert row["failure"]


@pytest.mark.usefixtures("brief")
def test_actions_that_print_alike_are_told_apart():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.exponential(size=400), rng.normal(size=400)))
    keep, leave = (Orthogonal(torch.diag(torch.tensor(signs))) for signs in ([1.0, -1.0], [-1.0, 1.0]))
    assert repr(keep) == repr(leave)
    for offered in ([keep, leave], [leave, keep]):
        found = suggest_symmetry(X, np.sin(X[:, 0]), offered, progress=False)
        assert len({row["name"] for row in found.table}) == 3
        assert found.suggested_action is keep, str(found)
        found.instead = ""
        assert "suggest_symmetry(...).arguments" in found.advice or "does not pay" in found.advice
