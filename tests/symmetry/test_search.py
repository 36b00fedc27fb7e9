"""The search as a function from data to a choice, without an estimator."""

from __future__ import annotations

import time
from dataclasses import fields
from inspect import signature

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation, Orthogonal, Product, Rotation, Translation
from harmonicgp.symmetry import search
from harmonicgp.symmetry.cost import inducing_for, step_cost
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, check_options, pick_device
from harmonicgp.symmetry.selection import check_declared, choose_symmetry
from harmonicgp.symmetry.settings import regression_settings
from harmonicgp.tables.notices import UndeclaredColumnsError
from harmonicgp.tables.preprocessing import ColumnEncoding, RegressionPreprocessing


def prepared(n=300, **arguments):
    X = np.random.default_rng(0).normal(size=(n, 2))
    options = RegressionOptions(progress=False, **arguments)
    preprocessing, rows = RegressionPreprocessing.fit(X, np.sin(X[:, 0]), BaseEstimator(), columns=options.columns)
    data = preprocessing.model_rows(rows)
    return data, regression_settings(options, preprocessing, data, time.perf_counter())


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


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [({"symmetry": None}, "asked"), ({"symmetry": Negation([0])}, "asked"), ({}, "few rows")],
)
def test_where_a_choice_comes_from(arguments, origin):
    data, settings = prepared(**arguments)
    assert choose_symmetry(data, settings.columns_of(data), settings).origin == origin


def test_undeclared_columns_are_named_in_a_field():
    encoding = ColumnEncoding(None, ["column 0", "column 1"], {})
    with pytest.raises(UndeclaredColumnsError) as caught:
        check_declared(Translation(1, 24.0, 6), encoding)
    assert caught.value.kinds == {1: ("periodic", 24.0)}
    assert "--" not in str(caught.value)  # the library knows no command line
    check_declared(Translation(1, 24.0, 6), ColumnEncoding(None, ["column 0", "column 1"], {1: ("periodic", 24.0)}))


@pytest.mark.parametrize(
    ("options", "estimator"), [(ModelOptions, HarmonicGPClassifier), (RegressionOptions, HarmonicGPRegressor)]
)
def test_options_are_the_arguments_of_the_estimators(options, estimator):
    arguments = {name: each.default for name, each in signature(estimator).parameters.items()}
    assert {field.name: field.default for field in fields(options)} == arguments


def test_options_are_checked():
    check_options(ModelOptions())
    for arguments, words in (
        ({"device": "tpu"}, "device"),
        ({"warp": "log"}, "warp"),
        ({"n_inducing": 0}, "n_inducing"),
    ):
        with pytest.raises(ValueError, match=words):
            check_options(ModelOptions(**arguments))
    assert pick_device("cpu").type == "cpu"


def test_equal_cost():
    allowance = step_cost(None, 256, 1024, "block")
    for action in (None, Negation([[0], [1]]), Rotation((0, 1), 5)):
        m = inducing_for(allowance, action, 1024, "block", 1, 10_000, 100_000)
        assert step_cost(action, m, 1024, "block") <= allowance < step_cost(action, m + 1, 1024, "block")


def test_which_actions_print_as_they_are_made():
    matrix = Orthogonal(torch.diag(torch.tensor([1.0, -1.0])))
    assert not matrix.repr_parses
    assert not Product(matrix, Negation([0])).repr_parses
    assert Negation([0]).repr_parses
    assert Product(Negation([0]), Rotation((1, 2), 3)).repr_parses

    class Mine(Negation):
        __repr__ = object.__repr__

    assert not Mine([0]).repr_parses
