"""Neighbours in the regressor: choice, predictions, files, new rows, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPRegressor


def rough(n, seed=0):
    g = np.random.default_rng(seed)
    X = g.uniform(0, 10, size=(n, 2))
    return X, 3 + 2 * np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * g.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = rough(2600)
    return HarmonicGPRegressor(symmetry=None, n_inducing=16, max_steps=20, progress=False).fit(X, y)


def test_they_carry_what_few_inducing_points_miss(fitted):
    assert fitted.neighbours_ > 0
    X, y = rough(400, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 * y.std()
    assert 0.9 < np.mean(np.abs(mean - y) < 1.96 * std) < 0.99
    plain = HarmonicGPRegressor(symmetry=None, n_inducing=16, max_steps=20, neighbours=0, progress=False)
    plain.fit(*rough(2600))
    assert plain.neighbours_ == 0
    assert np.mean((plain.predict(X) - y) ** 2) > 2 * np.mean((mean - y) ** 2)


def test_a_file_holds_the_rows_and_predicts_the_same(fitted, tmp_path):
    X, _ = rough(50, seed=2)
    fitted.save(tmp_path / "model.hgp")
    again = HarmonicGPRegressor.load(tmp_path / "model.hgp")
    assert again.neighbours_ == fitted.neighbours_
    for a, b in zip(again.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(again.sample_y(X, 2, random_state=3), fitted.sample_y(X, 2, random_state=3))


def test_files_with_false_rows_are_refused(fitted):
    from harmonicgp.estimators.saving import pack, unpack

    header, tensors = pack(fitted.to_file())
    for name, value in (("rows.y", tensors["rows.y"] * float("nan")), ("rows.X", tensors["rows.X"][:5])):
        with pytest.raises(ValueError, match="training rows|cannot be those of a fitted model"):
            unpack(header, {**tensors, name: value})
    with pytest.raises(KeyError):
        unpack(header, {k: v for k, v in tensors.items() if k != "rows.noise"})


def test_one_row_is_the_batch(fitted):
    X, _ = rough(30, seed=4)
    mean, std = fitted.predict(X, return_std=True)
    for i in (0, 7, 29):
        one, spread = fitted.predict(X[i : i + 1], return_std=True)
        assert one[0] == pytest.approx(mean[i], abs=1e-4)
        assert spread[0] == pytest.approx(std[i], rel=1e-3)


def test_components_add_up(fitted):
    X, _ = rough(20, seed=5)
    parts = fitted.predict_components(X)
    assert parts.labels[-1] == "neighbours"
    level = fitted.preprocessing_.target.centre[0]
    np.testing.assert_allclose(parts.mean.sum(0) + level, fitted.predict_f(X), atol=1e-4)


def test_covariance_and_draws(fitted):
    X, _ = rough(40, seed=6)
    mean, covariance = fitted.predict(X, return_cov=True)
    expected, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-3)
    assert np.linalg.eigvalsh(covariance).min() > 0
    draws = fitted.sample_y(X, 300)
    assert np.abs(draws.mean(1) - expected).max() < 6 * std.max() / np.sqrt(300)


def test_new_rows_are_appended(fitted):
    X, y = rough(2600)
    gp = HarmonicGPRegressor(symmetry=None, n_inducing=16, max_steps=20, neighbours=10, progress=False).fit(X, y)
    x, truth = rough(300, seed=7)
    before = np.mean((gp.predict(x) - truth) ** 2)
    gp.partial_fit(*rough(2000, seed=8))
    assert np.mean((gp.predict(x) - truth) ** 2) < before


def test_the_same_fit_twice(fitted):
    X, y = rough(2600)
    again = HarmonicGPRegressor(symmetry=None, n_inducing=16, max_steps=20, progress=False).fit(X, y)
    np.testing.assert_array_equal(again.predict(X[:20]), fitted.predict(X[:20]))


def test_several_targets_weights_and_known_errors():
    X, y = rough(2200)
    arguments = {"symmetry": None, "n_inducing": 16, "max_steps": 10, "neighbours": 8, "progress": False}
    both = HarmonicGPRegressor(**arguments).fit(X, np.column_stack((y, -y)))
    mean, std = both.predict(X[:5], return_std=True)
    np.testing.assert_allclose(mean[:, 0], -mean[:, 1], atol=1e-3)
    weighted = HarmonicGPRegressor(**arguments).fit(X, y, sample_weight=np.where(X[:, 0] > 5, 2.0, 1.0))
    known = HarmonicGPRegressor(**arguments).fit(X, y, noise_std=np.full(len(y), 0.1))
    for gp in (weighted, known):
        assert gp.neighbours_ == 8
        assert np.isfinite(gp.predict(X[:5])).all()
    assert (std > 0).all()


def test_far_away_the_prediction_ends_at_the_prior(fitted):
    mean, std = fitted.predict(np.array([[1e6, -1e6], [1e18, 1e18]]), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 1.0).all()


@pytest.mark.parametrize("wrong", ["many", None, True, -1, 2.5])
def test_what_is_no_number_of_neighbours_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="neighbours"):
        HarmonicGPRegressor(neighbours=wrong).fit(*rough(50))


def test_student_noise_has_none():
    with pytest.raises(ValueError, match="neighbours=0"):
        HarmonicGPRegressor(likelihood="student_t", neighbours=5).fit(*rough(50))
    assert HarmonicGPRegressor(likelihood="student_t", max_steps=3).fit(*rough(50)).neighbours_ == 0


def test_an_exact_model_says_that_it_needs_none():
    gp = HarmonicGPRegressor(neighbours=5).fit(*rough(60))
    assert any("exact" in note for note in gp.notes_)


@pytest.fixture(scope="module")
def uneven():
    """A model of rows whose noise is ten times larger on one side."""
    X, y = quiet_and_loud(4000)
    return HarmonicGPRegressor(symmetry=None, n_inducing=32, max_steps=30, progress=False).fit(X, y)


def quiet_and_loud(n, seed=0):
    g = np.random.default_rng(seed)
    X = g.uniform(0, 10, size=(n, 2))
    return X, 50 + 20 * np.sin(X[:, 0]) + np.where(X[:, 1] < 5, 0.5, 5.0) * g.normal(size=n)


def test_error_bars_follow_noise_that_varies(uneven):
    assert any("noise varies" in note for note in uneven.notes_)
    X, y = quiet_and_loud(4000, seed=1)
    mean, std = uneven.predict(X, return_std=True)
    quiet = X[:, 1] < 4.5
    loud = X[:, 1] > 5.5
    assert std[quiet].mean() < 0.4 * std[loud].mean()
    for side in (quiet, loud):
        assert np.mean(np.abs(y - mean)[side] < 1.96 * std[side]) > 0.92
    assert 0.92 < np.mean(np.abs(y - mean) < 1.96 * std) < 0.985
    best = np.mean(np.log(np.where(X[:, 1] < 5, 0.5, 5.0)) + 0.5 * np.log(2 * np.pi) + 0.5)
    constant = 0.5 * np.log(2 * np.pi * np.mean((y - mean) ** 2)) + 0.5
    assert best < -uneven.log_density(X, y).mean() < constant - 0.25
    draws = uneven.sample_y(X[:50], 400, random_state=0).std(1)
    np.testing.assert_allclose(draws, std[:50], rtol=0.25)
    _, covariance = uneven.predict(X[:50], return_cov=True)
    if not uneven.model_.calibration:
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std[:50], rtol=1e-3)


def test_noise_that_varies_is_kept_in_files_and_with_new_rows(uneven, tmp_path):
    X, y = quiet_and_loud(60, seed=2)
    uneven.save(tmp_path / "model.hgp")
    again = HarmonicGPRegressor.load(tmp_path / "model.hgp")
    for a, b in zip(again.predict(X, return_std=True), uneven.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    more = again.partial_fit(X, y)
    assert more.predict(X, return_std=True)[1].max() > 3 * more.predict(X, return_std=True)[1].min()


@pytest.mark.parametrize(
    ("name", "value"), [("noise.excess", -1.0), ("noise.excess", float("nan")), ("noise.excess", 0.0)]
)
def test_files_with_a_false_noise_are_refused(uneven, name, value):
    from harmonicgp.estimators.saving import pack, unpack

    header, tensors = pack(uneven.to_file())
    with pytest.raises(ValueError, match="local noise|cannot be those of a fitted model"):
        unpack(header, {**tensors, name: tensors[name] * 0 + value})
    with pytest.raises(ValueError, match="local noise"):
        unpack(header, {**tensors, name: tensors[name][:, :7]})
    with pytest.raises((ValueError, KeyError)):
        unpack({**header, "local_noise": {"by_kernel": True, "k": 5, "strength": -1.0, "scale": 1.0}}, tensors)
