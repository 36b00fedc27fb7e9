"""Small tables and comparisons that the tests of the estimators share."""

from __future__ import annotations

import datetime as dt
import time

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.estimators.fitting import fit_model
from harmonicgp.symmetry.options import RegressionOptions
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.preprocessing import RegressionPreprocessing

QUICK = {"max_steps": 4, "progress": False}


def table(n=60, seed=0, d=3, P=None):
    """Rows X [n, d] of different scales, and y [n] or [n, P]."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, d))
    signal = 100 + 20 * np.sin(z[:, 0]) * z[:, 1 % d]
    y = signal[:, None] + 2 * rng.normal(size=(n, P or 1))
    X = z * (10.0 ** np.arange(d)) + 5
    return X, y[:, 0] if P is None else y * (1 + np.arange(P))


def labels(X, classes=2):
    """Text labels by the first column's rank."""
    rank = np.argsort(np.argsort(X[:, 0]))
    return np.array(["low", "mid", "top", "zenith"])[rank * classes // len(X)]


def regressor(**arguments):
    return HarmonicGPRegressor(**(QUICK | arguments))


def classifier(**arguments):
    return HarmonicGPClassifier(**(QUICK | arguments))


def outputs(model, X, y=None):
    """All that a model says of X."""
    if isinstance(model, HarmonicGPClassifier):
        return [model.predict_proba(X), *model.predict_f(X, return_std=True)]
    said = [*model.predict(X, return_std=True), *model.predict_f(X, return_std=True)]
    said.append(model.predict_quantiles(X, (0.1, 0.9)))
    if y is not None:
        said += [model.log_density(X, y), model.pit(X, y)]
    return said


def assert_same(one, other):
    """Equal bit for bit."""
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def columns(n=60, gaps=False):
    """A table of numbers, text and dates as plain lists."""
    X, y = table(n)
    start = dt.datetime(2021, 3, 1, 6)
    frame = {
        "size": X[:, 0].tolist(),
        "colour": [("red", "blue", "green")[i % 3] for i in range(n)],
        "when": [start + dt.timedelta(hours=31 * i) for i in range(n)],
        "weight": X[:, 1].tolist(),
    }
    if gaps:
        frame["weight"][4] = None
        frame["colour"][7] = None
        frame["when"][9] = None
    return frame, y


def frames(data):
    """The same table in each library."""
    pa = pytest.importorskip("pyarrow")
    return {
        "pandas": pytest.importorskip("pandas").DataFrame(data),
        "polars": pytest.importorskip("polars").DataFrame(data),
        "pyarrow": pa.table(data),
    }


def fitted(**arguments):
    """A model of forty rows without an estimator, and what it was made of."""
    X, y = table(40)
    options = RegressionOptions(**(QUICK | arguments))
    preprocessing, rows = RegressionPreprocessing.fit(X, y, BaseEstimator())
    data = preprocessing.model_rows(rows)
    model, held_out = fit_model(data, ModelSettings.of(options, preprocessing, len(data), time.perf_counter()))
    return options, preprocessing, data, model, held_out
