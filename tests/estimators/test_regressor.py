"""The regressor by itself: against an exact Gaussian process, and at the edges."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import Longitude, Negation, PrincipalNegation, Rotation, Translation
from harmonicgp.kernels import GlobeKernel
from tests.estimators.common import outputs, regressor
from tests.estimators.common import table as small_table


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    X = z * [1.0, 50.0, 0.01] + [0.0, 1000.0, 5.0]
    return X, 100 + 20 * np.sin(z[:, 0]) * z[:, 1] + 2 * rng.normal(size=n)


@pytest.mark.parametrize(
    "arguments",
    [
        {"symmetry": None},
        {"symmetry": Negation([[0], [1]])},
        {"symmetry": PrincipalNegation(2), "posterior": "joint"},
        {"symmetry": Rotation((0, 1), 3), "share_inducing": False, "resolution": "real", "kernel": "rbf"},
        {"dtype": "float32", "bound": "elbo"},
    ],
    ids=str,
)
def test_fits_and_predicts_in_the_units_of_y(arguments):
    (X, y), (Xs, ys) = table(), table(200, 1)
    settings = {"n_inducing": 40, "max_steps": 80, "batch_size": 256, "early_stopping": False}
    gp = HarmonicGPRegressor(**(settings | arguments)).fit(X, y)
    mean, std = gp.predict(Xs, return_std=True)
    assert np.sqrt(np.mean((mean - ys) ** 2)) < 6
    assert 0.85 < np.mean(np.abs(mean - ys) < 1.96 * std) <= 1
    assert np.isfinite(gp.elbo_)
    assert gp.n_steps_ == len(gp.history_) == 80
    np.testing.assert_allclose(gp.predict(Xs), mean)


# --- small tables: exact --------------------------------------------------------------------------------------------------


def reference(gp, X, y, alpha):
    """Scikit-learn's exact process at the hyper-parameters of gp, on columns and targets standardised here."""
    kernel = gp.kernel_.base_kernel
    nu = {"rbf": np.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[gp.kernel]
    lengthscale = kernel.lengthscale.detach().numpy().ravel()
    covariance = sk.ConstantKernel(float(gp.kernel_.outputscale.detach())) * sk.Matern(lengthscale, nu=nu)
    return GaussianProcessRegressor(covariance, alpha=alpha, optimizer=None).fit((X - X.mean(0)) / X.std(0), y)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("known", [False, True])
def test_small_tables_are_exact(kernel, known):
    X, y = small_table(50)
    Xs, ys = small_table(9, seed=1)
    errors = np.linspace(0, 5, 50) if known else np.zeros(50)
    gp = regressor(kernel=kernel, max_steps=15).fit(X, y, noise_std=errors if known else None)
    centre, scale = y.mean(), y.std()
    s2 = float(gp.likelihood_.noise.detach())
    exact = reference(gp, X, (y - centre) / scale, s2 + (errors / scale) ** 2)
    mean, cov = exact.predict((Xs - X.mean(0)) / X.std(0), return_cov=True)
    mean, cov = mean * scale + centre, cov * scale**2
    f_mean, f_std = gp.predict_f(Xs, return_std=True)
    np.testing.assert_allclose(f_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(f_std, np.sqrt(np.diag(cov)), rtol=1e-6)
    said, said_cov = gp.predict(Xs, return_cov=True)
    total = cov + s2 * scale**2 * np.eye(9)
    np.testing.assert_allclose(said, mean, rtol=1e-6)
    np.testing.assert_allclose(said_cov, total, rtol=1e-6, atol=1e-6 * total.max())
    y_mean, y_std = gp.predict(Xs, return_std=True)
    np.testing.assert_allclose(y_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(y_std, np.sqrt(np.diag(total)), rtol=1e-6)
    log_density = -0.5 * ((ys - mean) / y_std) ** 2 - np.log(y_std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(gp.log_density(Xs, ys), log_density, rtol=1e-5)
    evidence = exact.log_marginal_likelihood_value_ if not known else None
    if evidence is not None:
        assert gp.elbo_ * 50 == pytest.approx(evidence, rel=1e-6)


def test_several_targets_share_a_kernel_and_are_exact_one_by_one():
    X, Y = small_table(40, P=2)
    Xs, _ = small_table(7, seed=1)
    gp = regressor(max_steps=15).fit(X, Y)
    s2 = float(gp.likelihood_.noise.detach())
    mean, std = gp.predict(Xs, return_std=True)
    assert mean.shape == std.shape == (7, 2)
    for i, y in enumerate(Y.T):
        exact = reference(gp, X, (y - y.mean()) / y.std(), s2)
        m, s = exact.predict((Xs - X.mean(0)) / X.std(0), return_std=True)
        np.testing.assert_allclose(mean[:, i], m * y.std() + y.mean(), rtol=1e-6)
        np.testing.assert_allclose(std[:, i], np.sqrt(s**2 + s2) * y.std(), rtol=1e-6)


def test_equal_inputs_with_different_targets_are_exact_too():
    X, y = small_table(20)
    X, y = np.concatenate([X, X]), np.concatenate([y, y + 3])
    gp = regressor(max_steps=10).fit(X, y)
    exact = reference(gp, X, (y - y.mean()) / y.std(), float(gp.likelihood_.noise.detach()))
    mean = exact.predict((X - X.mean(0)) / X.std(0))
    np.testing.assert_allclose(gp.predict(X), mean * y.std() + y.mean(), rtol=1e-6)


# --- edges ----------------------------------------------------------------------------------------------------------------


def test_same_seed_same_numbers_and_clones():
    X, y = table(200)
    gp = HarmonicGPRegressor(n_inducing=10, max_steps=20, random_state=3, symmetry=Negation([0]))
    first = gp.fit(X, y).predict(X)
    assert np.array_equal(first, clone(gp).fit(X, y).predict(X))


def test_the_default_dtype_does_not_matter():
    X, y = small_table(40)
    one = regressor().fit(X, y)
    torch.set_default_dtype(torch.float32)  # then parameters begin at rounded values, and no more
    for a, b in zip(outputs(one, X, y), outputs(regressor().fit(X, y), X, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_few_rows_constant_columns_and_targets(n, likelihood):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=n), np.ones(n)])
    gp = HarmonicGPRegressor(max_steps=5, likelihood=likelihood).fit(X, np.full(n, 7.0))
    mean, std = gp.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 7.0, atol=1e-3)
    assert np.all(std > 0)


def test_a_table_of_constants():
    gp = regressor().fit(np.ones((10, 2)), np.arange(10.0))
    np.testing.assert_allclose(gp.predict(np.ones((2, 2))), 4.5, atol=0.5)
    assert gp.notes_


def test_bad_input():
    X, y = table(50)
    with pytest.raises(ValueError, match="NaN"):
        HarmonicGPRegressor().fit(X, np.where(np.arange(50) == 3, np.nan, y))
    with pytest.raises(ValueError, match="infinity"):
        HarmonicGPRegressor().fit(np.where(X > 1e3, np.inf, X), y)
    with pytest.raises(ValueError, match="features"):
        HarmonicGPRegressor(n_inducing=5, max_steps=2).fit(X, y).predict(X[:, :2])
    with pytest.raises(ValueError, match="y to be passed"):
        HarmonicGPRegressor().fit(X, None)
    with pytest.raises(ValueError, match="column y reaches 1e\\+"):
        HarmonicGPRegressor().fit(X, y / y.max() * 1e200)
    with pytest.raises(ValueError, match=r"^column 1 reaches"):
        HarmonicGPRegressor().fit(X * [1, 1e200, 1], y)


def test_rows_of_x_and_y_must_agree():
    X, y = small_table(20)
    gp = regressor().fit(X, y)
    for method in (gp.log_density, gp.pit):
        with pytest.raises(ValueError, match="rows"):
            method(X, y[:19])
    for method in (gp.log_density, gp.pit):
        with pytest.raises(ValueError, match="rows"):
            method(X[:10], y)
    with pytest.raises(ValueError, match="rows"):
        gp.predict(X[:10], return_std=True, noise_std=np.ones(20))


def test_a_missing_y_has_no_density():
    X, y = small_table(20)
    gp = regressor().fit(X, y)
    y[3] = np.nan
    for method in (gp.log_density, gp.pit):
        with pytest.raises(ValueError, match=r"NaN|missing"):
            method(X, y)


def test_columns_with_units_are_left_alone():
    """Degrees and hours mean something to the kernel: standardising them once made the globe a small patch."""
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


def test_a_frozen_kernel_stays():
    X, y = small_table(40)
    kernel = gk.ScaleKernel(gk.RBFKernel()).requires_grad_(False)
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, 0.7
    gp = regressor(kernel=kernel, max_steps=10).fit(X, y)
    assert float(gp.kernel_.outputscale) == pytest.approx(2.0)
    assert float(gp.kernel_.base_kernel.lengthscale) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"symmetry": "negation"}, TypeError, "symmetry must be"),
        ({"symmetry": Negation}, TypeError, "symmetry must be"),
        ({"kernel": ["rbf"]}, ValueError, "kernel must be"),
        ({"kernel": "cubic"}, ValueError, "kernel must be one of"),
        ({"resolution": "bogus"}, ValueError, "resolution"),
        ({"max_steps": -1}, ValueError, "max_steps"),
        ({"n_inducing": 0}, ValueError, "n_inducing"),
        ({"dtype": "half"}, ValueError, "dtype must be one of"),
        ({"posterior": "full"}, ValueError, "posterior must be one of"),
        ({"warp": "log"}, ValueError, "warp must be one of"),
        ({"missing": "drop"}, ValueError, "missing must be one of"),
        ({"likelihood": "laplace"}, ValueError, "likelihood must be one of"),
        ({"target_transform": "sqrt"}, ValueError, "target_transform must be one of"),
        ({"calibration": "platt"}, ValueError, "calibration must be one of"),
        ({"bound": "upper"}, ValueError, "bound must be one of"),
        ({"symmetry": PrincipalNegation(7)}, ValueError, "7"),
        ({"columns": ["longitude"]}, TypeError, "columns must be a dict"),
        ({"columns": {5: ("periodic", 24)}}, ValueError, "column 5"),
        ({"columns": ("image", (2, 2))}, ValueError, "images of 2 x 2 need 4 columns"),
        ({"likelihood": "student_t", "target_transform": "log"}, ValueError, "no mean"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate"),
        ({"time_budget": -1.0}, ValueError, "time_budget"),
    ],
    ids=str,
)
def test_bad_arguments(arguments, error, words):
    X, y = table(60)
    with pytest.raises(error, match=words):
        HarmonicGPRegressor(**{"max_steps": 2, "n_inducing": 5, **arguments}).fit(X, y)


@pytest.mark.parametrize("random_state", [None, 3, np.int64(3), np.random.RandomState(3)])
def test_random_states(random_state):
    X, y = table(60)
    HarmonicGPRegressor(n_inducing=5, max_steps=2, random_state=random_state).fit(X, y)


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_refit_leaves_the_earlier_fit(late):
    X, y = small_table(30)
    gp = regressor().fit(X, y)
    before = gp.predict(X)

    def interrupt(record):
        raise KeyboardInterrupt

    if late:
        gp.set_params(callbacks=[interrupt])
    bad = y if late else np.where(np.arange(len(y)) == 2, np.nan, y)
    with pytest.raises(KeyboardInterrupt if late else ValueError):
        gp.fit(np.column_stack((X, X)), bad)
    np.testing.assert_array_equal(gp.predict(X), before)
    assert gp.n_features_in_ == X.shape[1]


STEP = np.where(np.random.default_rng(0).normal(size=(80, 2))[:, 0] > 0, 1.0, 1e6)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        (np.full(80, 3.0), {}),
        (3 + 1e-14 * np.random.default_rng(1).normal(size=80), {}),
        (1e-200 * np.random.default_rng(1).normal(size=80), {"target_transform": "quantile"}),
        (1e200 * np.abs(STEP) / 1e60, {"target_transform": "quantile"}),
        (STEP, {"target_transform": "log"}),
        (np.where(STEP > 1, 1e-30, 1.0), {"target_transform": "log"}),
        (np.full(80, 3.0), {"target_transform": "quantile"}),
        (np.full(2100, 3.0), {"neighbours": 4}),
    ],
    ids=["constant", "rounding", "tiny", "huge", "steps", "small steps", "one value", "many rows"],
)
def test_error_bars_are_positive(y, options):
    g = np.random.default_rng(0)
    X = g.normal(size=(len(y), 2))
    gp = regressor(n_inducing=20, **options).fit(X, y)
    where = np.concatenate((X[:30], 10 * X[:10], 1e6 * X[:5]))
    mean, std = gp.predict(where, return_std=True)
    low, high = gp.predict_quantiles(where, (0.025, 0.975)).T
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert (high[:30] > low[:30]).all()
    assert bool(gp.notes_) == (np.ptp(y) < 1e-9 * np.abs(y).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("start", "period"), [(1.6e9, 86400.0), (1e6, 1e-3), (0.0, 24.0)])
def test_one_row_is_the_batch_for_periodic_columns(dtype, start, period):
    g = np.random.default_rng(0)
    X = g.normal(size=(300, 2))
    X[:, 1] = start + period * g.uniform(0, 90, size=300)
    y = np.sin(2 * np.pi * X[:, 1] / period) + X[:, 0]
    gp = regressor(columns={1: ("periodic", period)}, dtype=dtype, max_steps=30).fit(X, y)
    batch = np.stack(gp.predict(X[:20], return_std=True))
    single = np.stack([gp.predict(X[i : i + 1], return_std=True) for i in range(20)])[..., 0].T
    assert np.abs(batch - single).max() < {"float32": 1e-3, "float64": 1e-6}[dtype] * y.std()
    assert np.abs(batch[0] - y[:20]).max() < 0.3 * y.std()  # the phase is read, not its rounding


@pytest.mark.parametrize("symmetry", [None, Negation([[0]])], ids=["one block", "negation"])
def test_far_away_is_the_prior(symmetry):
    g = np.random.default_rng(0)
    X, kernel = g.integers(0, 12, size=(300, 2)).astype(float), gk.ScaleKernel(gk.MaternKernel(nu=1.5, ard_num_dims=2))
    kernel.base_kernel.lengthscale = torch.tensor([1e-5, 1e-5])
    gp = regressor(kernel=kernel, symmetry=symmetry, dtype="float32", n_inducing=20).fit(X, np.exp(0.3 * X[:, 0]))
    far = np.array([[f * a, f * b] for f in (1e9, 1e15, 1e18, 1e300) for a, b in ((1, 1), (-1, 1), (1, 0), (0, -1))])
    mean, std = gp.predict_f(far, return_std=True)
    target = gp.preprocessing_.target
    np.testing.assert_allclose(mean, target.centre[0], rtol=1e-5)
    np.testing.assert_allclose(std, target.scale[0] * float(gp.kernel_.outputscale.detach().sqrt()), rtol=1e-5)
