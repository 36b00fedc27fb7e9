"""Scores of rows held out, and the calibration and the warnings that they give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from harmonicgp.estimators.validation import _root_mean_square, compare_noise, validate_regression
from tests.estimators.common import fitted, regressor, table


def misspecified(n, seed):
    """Noise that is small here, large there, and of heavy tails: no Gaussian of one variance."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    scale = np.where(rng.random(n) < 0.3, 3.0, 0.15) * np.exp(X[:, 1])
    return X, np.sin(2 * X[:, 0]) + scale * rng.exponential(size=n)


def coverage(gp, X, y, level):
    low, high = gp.predict_quantiles(X, ((1 - level) / 2, (1 + level) / 2)).T
    return np.mean((y >= low) & (y <= high))


@pytest.mark.parametrize("arguments", [{}, {"target_transform": "quantile"}, {"likelihood": "student_t"}], ids=str)
def test_conformal_coverage(arguments):
    X, y = misspecified(2000, 0)
    Xs, ys = misspecified(6000, 1)
    settings = {"n_inducing": 20, "symmetry": None, "max_steps": 20, "validation_fraction": 0.4} | arguments
    gp = regressor(calibration="conformal", **settings).fit(X, y)
    assert gp.validation_["rows"] == 800
    for level in (0.5, 0.9):
        # four standard deviations: of 6000 new rows, and of two quantiles from 800
        slack = 4 * np.sqrt(level * (1 - level) * (1 / 6000 + 1 / 800))
        assert coverage(gp, Xs, ys, level) == pytest.approx(level, abs=slack)
    pit = gp.pit(Xs, ys)
    assert stats.kstest(pit, "uniform").statistic < 1.95 * np.sqrt(1 / 6000 + 1 / 800)
    low, high = gp.predict_quantiles(Xs[:9], [0.025, 0.975]).T
    std = gp.predict(Xs[:9], return_std=True)[1]
    np.testing.assert_allclose(2 * stats.norm.ppf(0.975) * std, high - low, rtol=1e-9)


def test_without_calibration_the_coverage_is_wrong():
    X, y = misspecified(2000, 0)
    Xs, ys = misspecified(6000, 1)
    gp = regressor(n_inducing=20, symmetry=None, max_steps=20, calibration=None).fit(X, y)
    assert coverage(gp, Xs, ys, 0.5) > 0.5 + 4 * np.sqrt(0.25 * (1 / 6000 + 1 / 800))


def test_exact_models_are_calibrated_by_each_row_in_turn_where_they_need_it():
    X, y = misspecified(600, 0)
    Xs, ys = misspecified(4000, 1)
    gp = regressor(max_steps=30).fit(X, y)
    assert gp.validation_["method"] == "leave-one-out"
    assert gp.validation_["rows"] == 600
    assert gp.model_.calibration
    plain = regressor(max_steps=30, calibration=None).fit(X, y)
    for level in (0.5, 0.9):
        slack = 4 * np.sqrt(level * (1 - level) * (1 / 4000 + 1 / 600))
        assert coverage(gp, Xs, ys, level) == pytest.approx(level, abs=slack)
    assert coverage(plain, Xs, ys, 0.5) > 0.5 + 4 * np.sqrt(0.25 * (1 / 4000 + 1 / 600))
    rng = np.random.default_rng(2)
    fine = regressor(max_steps=30).fit(X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=len(X)))
    assert not fine.model_.calibration
    few = regressor(max_steps=30).fit(X[:150], y[:150])  # too few to say
    assert not few.model_.calibration


def test_larger_tables_are_calibrated_where_they_need_it():
    settings = {"n_inducing": 20, "symmetry": None, "max_steps": 20, "validation_fraction": 0.3, "batch_size": 256}
    X, y = misspecified(4000, 0)
    Xs, ys = misspecified(4000, 1)
    gp = regressor(**settings).fit(X, y)
    assert gp.model_.calibration
    for level in (0.5, 0.9):
        slack = 4 * np.sqrt(level * (1 - level) * (1 / 4000 + 1 / 1200))
        assert coverage(gp, Xs, ys, level) == pytest.approx(level, abs=slack)
    rng = np.random.default_rng(2)
    fine = regressor(**settings).fit(X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=4000))
    assert not fine.model_.calibration


def test_calibration_on_larger_tables_and_of_several_targets():
    X, y = misspecified(4000, 0)
    Xs, ys = misspecified(4000, 1)
    Y, Ys = np.column_stack([y, -2 * y]), np.column_stack([ys, -2 * ys])
    gp = regressor(
        calibration="conformal", n_inducing=20, symmetry=None, max_steps=10, validation_fraction=0.3, batch_size=256
    ).fit(X, Y)
    q = gp.predict_quantiles(Xs, (0.05, 0.95))
    inside = np.mean((Ys > q[:, 0]) & (Ys < q[:, 1]), 0)
    np.testing.assert_allclose(inside, 0.9, atol=4 * np.sqrt(0.09 * (1 / 4000 + 1 / 1200)))


def test_too_few_rows_to_calibrate():
    X, y = table(60)
    with pytest.raises(ValueError, match='"conformal" needs at least 200 rows'):
        regressor(calibration="conformal", n_inducing=5).fit(X, y)


def test_targets_that_differ_in_noise_are_told():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    f = np.sin(X[:, 0])
    alike = np.column_stack([f + 0.2 * rng.normal(size=150), f + 0.2 * rng.normal(size=150)])
    apart = np.column_stack([f + 0.05 * rng.normal(size=150), f + 0.8 * rng.normal(size=150)])
    assert not any("share one noise level" in w for w in regressor().fit(X, alike).warnings_)
    (warning,) = (w for w in regressor().fit(X, apart).warnings_ if "share one noise level" in w)
    names = regressor().fit(X, apart).target_names_
    assert f"error bars of {names[0]!r} are too wide, those of {names[1]!r} too narrow" in warning


def test_copies_that_deny_all_noise_are_told_of():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=100)
    assert regressor(max_steps=60).fit(X, y).warnings_ == []
    twice = regressor(max_steps=60).fit(np.repeat(X, 2, 0), np.repeat(y, 2))
    assert any("suggest that there is no noise" in told for told in twice.warnings_)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e140])
def test_scores_of_targets_of_any_size(scale):
    X, y = table(60)
    plain, gp = (regressor(max_steps=10).fit(X, y * factor) for factor in (1.0, scale))
    assert gp.validation_["rmse"] == pytest.approx(plain.validation_["rmse"] * scale, rel=1e-6)


def test_logarithms_that_spread_over_hundreds():
    gp = regressor(target_transform="log").fit([[1.0], [1.0]], [1e30, 0.64])
    assert gp.validation_["rmse"] > 1e100
    assert np.isfinite(gp.predict([[1.0]], return_std=True)).all()


# --- scores against their definitions -------------------------------------------------------------------------------------


def repeated(held_out, counts):
    """The same rows, each as often as it counts."""
    times = torch.as_tensor(counts)
    rows, mean, variance = (
        part.repeat_interleave(times, -1) for part in (held_out.rows, held_out.mean, held_out.variance)
    )
    return replace(held_out, rows=rows, mean=mean, variance=variance, counts=None)


def test_scores_are_those_of_a_normal_distribution():
    _, preprocessing, data, model, held_out = fitted()
    y = preprocessing.target.inverse(data.target).T
    scored = validate_regression(model, held_out, data, y, preprocessing.target, None)
    scale, centre = preprocessing.target.scale[0], preprocessing.target.centre[0]
    observed = y[held_out.rows, 0]
    mean = held_out.mean[0].numpy() * scale + centre
    std = np.sqrt(held_out.variance[0].numpy() + float(model.likelihood.noise.detach())) * scale
    scores = scored.validation
    assert (scores["method"], scores["rows"]) == ("leave-one-out", 40.0)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((mean - observed) ** 2)))
    assert scores["nll"] == pytest.approx(-stats.norm.logpdf(observed, mean, std).mean())
    assert scores["coverage"] == np.mean(np.abs(observed - mean) < stats.norm.ppf(0.975) * std)
    assert model.validation is None  # a copy is scored


@pytest.mark.parametrize("calibration", [None, "conformal"])
def test_a_weight_of_two_is_two_rows_in_scores_too(calibration):
    _, preprocessing, data, model, held_out = fitted()
    y = preprocessing.target.inverse(data.target).T
    counts = np.arange(40) % 3 + 1
    weighted = replace(held_out, counts=torch.as_tensor(counts, dtype=torch.float64))
    one, other = (
        validate_regression(model, each, data, y, preprocessing.target, calibration)
        for each in (weighted, repeated(held_out, counts))
    )
    assert one.validation.pop("method") == other.validation.pop("method")
    assert one.validation == pytest.approx(other.validation, rel=1e-12)
    assert one.validation["rows"] == counts.sum()
    assert len(one.calibration) == (calibration is not None)
    for a, b in zip(one.calibration, other.calibration, strict=True):
        levels = np.linspace(0.05, 0.95, 7)
        widest = np.diff(
            (0.0, *a.pit, 1.0)
        ).max()  # levels are interpolated between the 40 values, a little differently
        np.testing.assert_allclose(a.level(levels), b.level(levels), atol=0.5 * widest)


def test_nothing_is_scored_where_nothing_is_held_out():
    _, preprocessing, data, model, _ = fitted()
    y = preprocessing.target.inverse(data.target).T
    for calibration in (None, "auto"):
        assert validate_regression(model, None, data, y, preprocessing.target, calibration) is model
    with pytest.raises(ValueError, match="needs at least 200 rows"):
        validate_regression(model, None, data, y, preprocessing.target, "conformal")


@pytest.mark.parametrize(("ratio", "told"), [(1.49, False), (1.51, True)])
def test_noise_of_targets_differs_by_a_half(ratio, told):
    _, _, data, model, _ = fitted()
    mean, _ = model.moments(data.X)
    signs = 1.0 - 2 * (np.arange(len(data)) % 2)
    both = replace(data, target=np.concatenate((mean + 0.1 * ratio * signs, mean + 0.1 * signs)))
    warned = compare_noise(model, both, ["loud", "quiet"])
    assert len(warned.warnings) - len(model.warnings) == told
    if told:
        assert "error bars of 'quiet' are too wide, those of 'loud' too narrow" in warned.warnings[-1]
    assert compare_noise(model, replace(data, target=mean + ratio), ["y"]) is model  # one target has its own noise


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_root_mean_squares_of_any_size(size):
    errors = np.random.default_rng(0).normal(size=(9, 2))
    weights = np.arange(1.0, 10.0)
    expected = np.sqrt(np.average((errors**2).mean(1), weights=weights))
    assert _root_mean_square(size * errors, weights) == pytest.approx(size * expected, rel=1e-12)
    assert _root_mean_square(size * errors, None) == pytest.approx(size * np.sqrt((errors**2).mean()), rel=1e-12)
    assert _root_mean_square(0 * errors, None) == 0
    assert _root_mean_square(errors * np.inf, None) == np.inf
