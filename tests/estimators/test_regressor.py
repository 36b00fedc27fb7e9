from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import Negation, PrincipalNegation, Rotation


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    X = z * [1.0, 50.0, 0.01] + [0.0, 1000.0, 5.0]
    return X, 100 + 20 * np.sin(z[:, 0]) * z[:, 1] + 2 * rng.normal(size=n)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"symmetry": Negation([[0], [1]])},
        {"symmetry": PrincipalNegation(2), "posterior": "joint"},
        {"symmetry": Rotation((0, 1), 3), "share_inducing": False, "resolution": "real", "kernel": "rbf"},
        {"dtype": "float64", "bound": "elbo", "refine": False},
    ],
    ids=str,
)
def test_fits_and_predicts_in_the_units_of_y(arguments):
    (X, y), (Xs, ys) = table(), table(200, 1)
    gp = HarmonicGPRegressor(n_inducing=40, max_steps=80, batch_size=256, **arguments).fit(X, y)
    mean, std = gp.predict(Xs, return_std=True)
    assert np.sqrt(np.mean((mean - ys) ** 2)) < 6
    assert 0.85 < np.mean(np.abs(mean - ys) < 1.96 * std) <= 1
    assert np.isfinite(gp.elbo_)
    assert gp.n_steps_ == 80
    np.testing.assert_allclose(gp.predict(Xs), mean)


def test_same_seed_same_numbers_and_clones():
    X, y = table(200)
    gp = HarmonicGPRegressor(n_inducing=10, max_steps=20, random_state=3)
    first = gp.fit(X, y).predict(X)
    assert np.array_equal(first, clone(gp).fit(X, y).predict(X))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows_constant_columns_and_targets(n):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=n), np.ones(n)])
    gp = HarmonicGPRegressor(n_inducing=10, max_steps=5).fit(X, np.full(n, 7.0))
    mean, std = gp.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 7.0, atol=1e-3)
    assert np.all(std > 0)


def test_bad_input():
    X, y = table(50)
    with pytest.raises(ValueError, match="NaN"):
        HarmonicGPRegressor().fit(X, np.where(np.arange(50) == 3, np.nan, y))
    with pytest.raises(ValueError, match="infinity"):
        HarmonicGPRegressor().fit(np.where(X > 1e3, np.inf, X), y)
    with pytest.raises(ValueError, match="kernel must be one of"):
        HarmonicGPRegressor(kernel="cubic").fit(X, y)
    with pytest.raises(ValueError, match="dtype"):
        HarmonicGPRegressor(dtype="half").fit(X, y)
    with pytest.raises(ValueError, match="features"):
        HarmonicGPRegressor(n_inducing=5, max_steps=2).fit(X, y).predict(X[:, :2])


def test_columns_with_units_are_left_alone():
    """Degrees and hours mean something to the kernel: standardising them once made the globe a small patch."""
    import gpytorch.kernels as gk

    from harmonicgp.actions import Longitude, Translation
    from harmonicgp.kernels import GlobeKernel

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-180, 180, 600), rng.uniform(-90, 90, 600)])
    y = np.cos(np.deg2rad(X[:, 0])) * np.cos(np.deg2rad(X[:, 1]))
    kernel = gk.ScaleKernel(GlobeKernel(gk.MaternKernel(nu=1.5)))
    for symmetry in (Longitude(6), None):
        gp = HarmonicGPRegressor(kernel=kernel, symmetry=symmetry, n_inducing=40, max_steps=60).fit(X, y)
        assert gp.score(X, y) > 0.98
        west, east = gp.predict(np.array([[-180.0, 10.0], [180.0, 10.0]]))
        assert west == pytest.approx(east, abs=1e-3)
    daily = gk.PeriodicKernel()
    daily.period_length = 24.0
    daily.raw_period_length.requires_grad_(False)
    hours = rng.uniform(0, 24, size=(400, 1))
    gp = HarmonicGPRegressor(
        kernel=gk.ScaleKernel(daily), symmetry=Translation(0, 24.0, 4), n_inducing=10, max_steps=60
    )
    assert gp.fit(hours, np.sin(2 * np.pi * hours[:, 0] / 24)).score(hours, np.sin(2 * np.pi * hours[:, 0] / 24)) > 0.99


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"symmetry": "negation"}, TypeError, "symmetry must be"),
        ({"symmetry": Negation}, TypeError, "symmetry must be"),
        ({"kernel": ["rbf"]}, ValueError, "kernel must be"),
        ({"resolution": "bogus"}, ValueError, "resolution"),
        ({"max_steps": -1}, ValueError, "max_steps"),
        ({"symmetry": PrincipalNegation(7)}, ValueError, "7"),
    ],
)
def test_bad_arguments(arguments, error, words):
    X, y = table(60)
    with pytest.raises(error, match=words):
        HarmonicGPRegressor(**{"max_steps": 2, "n_inducing": 5, **arguments}).fit(X, y)


@pytest.mark.parametrize("random_state", [None, 3, np.int64(3), np.random.RandomState(3)])
def test_random_states(random_state):
    X, y = table(60)
    HarmonicGPRegressor(n_inducing=5, max_steps=2, random_state=random_state).fit(X, y)


def test_values_too_large():
    X, y = table(60)
    with pytest.raises(ValueError, match="too large"):
        HarmonicGPRegressor().fit(X, y * 1e200)
