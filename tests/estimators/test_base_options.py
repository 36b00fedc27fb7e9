"""What the estimators can be told: kinds of columns, noise, transforms, frames, draws, components."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation, Rotation
from tests.estimators.common import assert_same, classifier, columns, frames, labels, outputs, regressor, table

# --- kinds of columns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetry", ["auto", None])
def test_a_periodic_column(symmetry):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=120), rng.uniform(0, 24, 120)])
    y = np.cos(2 * np.pi * X[:, 1] / 24) + 0.1 * X[:, 0] + 0.05 * rng.normal(size=120)
    gp = regressor(columns={1: ("periodic", 24)}, max_steps=30, symmetry=symmetry).fit(X, y)
    assert gp.column_kinds_ == {1: ("periodic", 24.0)}
    Xs = X[:20] + np.array([0.0, 24 * 7])
    for today, next_week in zip(outputs(gp, X[:20]), outputs(gp, Xs), strict=True):
        np.testing.assert_allclose(next_week, today, rtol=1e-8)
    assert gp.score(X, y) > 0.95
    assert np.isfinite(gp.inducing_points()).all()


@pytest.mark.parametrize("symmetry", ["auto", None])
def test_longitude_and_latitude(symmetry):
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(-180, 180, 150), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 150)))
    X = np.column_stack([lat, rng.normal(size=150), lon])
    y = np.cos(np.deg2rad(lon)) * np.cos(np.deg2rad(lat))
    gp = regressor(columns={2: "longitude", 0: "latitude"}, max_steps=30, symmetry=symmetry).fit(X, y)
    assert gp.score(X, y) > 0.95
    around = gp.predict(X[:20] + np.array([0, 0, 360]))
    np.testing.assert_allclose(around, gp.predict(X[:20]), rtol=1e-6, atol=1e-8)
    pole = np.column_stack([np.full(5, 90.0), np.zeros(5), np.linspace(-170, 150, 5)])
    np.testing.assert_allclose(gp.predict(pole), gp.predict(pole)[0], atol=1e-6)  # one place, whatever the longitude
    with pytest.raises(ValueError, match="are longitude and latitude swapped"):
        regressor(columns={0: "longitude", 2: "latitude"}).fit(X, y)
    with pytest.raises(ValueError, match="a longitude but no latitude"):
        regressor(columns={0: "longitude"}).fit(X, y)


def test_images():
    rng = np.random.default_rng(0)
    X = rng.random(size=(60, 12))
    gp = regressor(columns=("image", (3, 4))).fit(X, X.sum(1))
    assert gp.predict(X).shape == (60,)
    assert gp.model_.inputs.d == 12


# --- noise ----------------------------------------------------------------------------------------------------------------


def test_known_noise_is_believed():
    """Rows of large known error hardly count; predictions of such rows are wider by just that much."""
    rng = np.random.default_rng(0)
    X = np.linspace(0, 6, 80)[:, None]
    f = 10 * np.sin(X[:, 0])
    errors = np.where(np.arange(80) % 2, 30.0, 0.3)
    y = f + errors * rng.normal(size=80)
    gp = regressor(max_steps=60).fit(X, y, noise_std=errors)
    assert np.abs(gp.predict_f(X) - f).max() < 1.0
    assert np.abs(regressor(max_steps=60).fit(X, y).predict_f(X) - f).max() > 2.0
    mean, std = gp.predict(X, return_std=True)
    other, wide = gp.predict(X, return_std=True, noise_std=errors)
    np.testing.assert_array_equal(other, mean)
    np.testing.assert_allclose(wide**2, std**2 + errors**2, rtol=1e-9)


def test_known_noise_with_a_covariance():
    X, y = table(30)
    gp = regressor().fit(X, y, noise_std=np.ones(30))
    plain = gp.predict(X[:5], return_cov=True)[1]
    errors = np.arange(5.0)
    np.testing.assert_allclose(
        gp.predict(X[:5], return_cov=True, noise_std=errors)[1], plain + np.diag(errors**2), rtol=1e-9
    )


def test_known_noise_refused():
    X, y = table(30)
    for arguments in ({"likelihood": "student_t"}, {"target_transform": "log"}):
        with pytest.raises(ValueError, match="noise_std needs"):
            regressor(**arguments).fit(X, y, noise_std=np.ones(30))
    with pytest.raises(ValueError, match="one target"):
        regressor().fit(X, np.column_stack([y, y]), noise_std=np.ones(30))
    for bad in (np.ones(29), -np.ones(30), np.full(30, np.nan)):
        with pytest.raises(ValueError, match="noise_std must be 30 finite numbers"):
            regressor().fit(X, y, noise_std=bad)


def test_student_t_shrugs_outliers_off():
    rng = np.random.default_rng(0)
    X = np.linspace(0, 6, 150)[:, None]
    f = 10 * np.sin(X[:, 0])
    y = f + 0.5 * rng.normal(size=150)
    y[::15] += 200
    settings = {"max_steps": 80, "n_inducing": 20, "symmetry": None}
    robust, plain = regressor(likelihood="student_t", **settings).fit(X, y), regressor(**settings).fit(X, y)
    assert np.abs(robust.predict_f(X) - f).mean() < 1.0
    assert np.abs(plain.predict_f(X) - f).mean() > 5.0
    clean = np.arange(150) % 15 != 0
    assert robust.log_density(X, y)[clean].mean() > plain.log_density(X, y)[clean].mean() + 0.5
    f_std, y_std = robust.predict_f(X, return_std=True)[1], robust.predict(X, return_std=True)[1]
    likelihood = robust.likelihood_
    df, s2 = float(likelihood.deg_free.detach()), float(likelihood.noise.detach())
    np.testing.assert_allclose(y_std**2, f_std**2 + s2 * df / (df - 2) * y.std() ** 2, rtol=1e-6)


def test_student_t_on_gaussian_data_has_finite_densities():
    """Degrees of freedom then grow without end."""
    X, y = table(80)
    gp = regressor(likelihood="student_t", n_inducing=20, symmetry=None).fit(X, y)
    gp.likelihood_.deg_free = 1e4
    assert np.isfinite(gp.log_density(X, y)).all()
    assert np.isfinite(gp.predict_quantiles(X)).all()


@pytest.mark.parametrize(
    "arguments", [{}, {"likelihood": "student_t", "n_inducing": 15}, {"symmetry": Negation([0]), "n_inducing": 15}]
)
def test_f_and_noise_add_up_to_y(arguments):
    X, y = table(50)
    gp = regressor(**arguments).fit(X, y)
    (f, f_std), (mean, std) = gp.predict_f(X, return_std=True), gp.predict(X, return_std=True)
    np.testing.assert_allclose(mean, f, rtol=1e-12)
    noise = std**2 - f_std**2
    np.testing.assert_allclose(noise, noise[0], rtol=1e-6)
    if "likelihood" not in arguments:
        assert noise[0] == pytest.approx(float(gp.likelihood_.noise.detach()) * y.var(), rel=1e-6)


# --- transforms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["log", "quantile"])
def test_skewed_targets(transform):
    rng = np.random.default_rng(0)
    X, Xs = rng.normal(size=(150, 2)), rng.normal(size=(400, 2))
    y, ys = (np.exp(2 * np.sin(2 * A[:, 0]) + 0.3 * rng.normal(size=len(A)) + 5) for A in (X, Xs))
    gp, plain = regressor(target_transform=transform, max_steps=60).fit(X, y), regressor(max_steps=60).fit(X, y)
    assert gp.log_density(Xs, ys).mean() > plain.log_density(Xs, ys).mean() + 0.2
    assert (gp.predict_quantiles(X, (0.001,)) > 0).all() or transform == "quantile"
    q = gp.predict_quantiles(Xs, (0.05, 0.5, 0.95))
    assert np.mean((ys > q[:, 0]) & (ys < q[:, 2])) == pytest.approx(0.9, abs=0.1)
    np.testing.assert_allclose(gp.predict_f(Xs), q[:, 1], rtol=1e-6)  # the median
    np.testing.assert_allclose(gp.pit(Xs, q[:, 0]), 0.05, rtol=1e-6)
    with pytest.raises(ValueError, match="return_cov needs target_transform=None"):
        gp.predict(X, return_cov=True)


def test_log_targets_must_be_positive():
    X, y = table(30)
    y[7] = -3.0
    with pytest.raises(ValueError, match="the smallest y is -3"):
        regressor(target_transform="log").fit(X, y)


def test_a_level_of_zero_or_one_is_no_quantile():
    X, y = table(30)
    gp = regressor().fit(X, y)
    for levels in ((0.0, 0.5), (1.0,), (-1,), (np.nan,)):
        with pytest.raises(ValueError, match="levels must be numbers between 0 and 1"):
            gp.predict_quantiles(X, levels)
    assert gp.predict_quantiles(X, 0.5).shape == (30, 1)


# --- draws, covariances, components ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [{}, {"symmetry": Negation([0]), "n_inducing": 15}, {"n_inducing": 8, "symmetry": None}]
)
def test_draws_have_the_mean_the_std_and_the_covariance_that_predict_says(arguments):
    X, y = table(50)
    gp = regressor(max_steps=20, **arguments).fit(X, y)
    Xs = table(4, seed=1)[0]
    n = 4000
    prior = float(gp.kernel_.outputscale.detach()) * y.var()
    slack = prior / np.sqrt(2048)  # random features: see Predictor.paths
    mean, cov = gp.predict(Xs, return_cov=True)
    std = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(gp.predict(Xs, return_std=True)[1], std, rtol=1e-8)
    draws = gp.sample_y(Xs, n, random_state=1)
    assert draws.shape == (4, n)
    assert (np.abs(draws.mean(1) - mean) < 5 * std / np.sqrt(n)).all()
    np.testing.assert_allclose(np.cov(draws), cov, atol=slack + 5 * cov.max() * np.sqrt(2 / n))
    f, f_std = gp.predict_f(Xs, return_std=True)
    functions = gp.sample_y(Xs, n, random_state=1, noise=False)
    assert (np.abs(functions.mean(1) - f) < 5 * f_std / np.sqrt(n)).all()
    np.testing.assert_allclose(functions.var(1), f_std**2, rtol=5 * np.sqrt(2 / n), atol=slack)


@pytest.mark.parametrize(
    "arguments", [{"likelihood": "student_t"}, {"target_transform": "quantile"}, {"target_transform": "log"}]
)
def test_draws_follow_the_quantiles(arguments):
    X, y = table(50)
    gp = regressor(n_inducing=20, symmetry=None, **arguments).fit(X, y)
    draws = gp.sample_y(X[:3], 4000, random_state=0)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    for row, quantiles in zip(draws, gp.predict_quantiles(X[:3], levels), strict=True):
        below = (row[:, None] < quantiles).mean(0)
        np.testing.assert_allclose(below, levels, atol=0.035)


def test_draws_are_functions(monkeypatch):
    """Of many rows, the same draw at the same place, however the rows are asked for."""
    X, y = table(40)
    gp = regressor().fit(X, y)
    whole = gp.sample_y(X[:6], 3, random_state=5, noise=False)
    np.testing.assert_array_equal(gp.sample_y(X[:6], 3, random_state=5, noise=False), whole)
    monkeypatch.setattr("harmonicgp.estimators.regressor.MAX_DRAWN", 1)
    whole = gp.sample_y(X[:6], 3, random_state=5, noise=False)
    np.testing.assert_allclose(gp.sample_y(X[2:4], 3, random_state=5, noise=False), whole[2:4], rtol=1e-9)
    assert not np.allclose(gp.sample_y(X[:6], 3, random_state=6, noise=False), whole)
    X, Y = table(40, P=2)
    assert regressor().fit(X, Y).sample_y(X[:6], 3).shape == (6, 2, 3)


def test_draws_with_a_periodic_column():
    X, y = table(40)
    gp = regressor(columns={2: ("periodic", 300.0)}).fit(X, y)
    mean, std = gp.predict(X[:4], return_std=True)
    draws = gp.sample_y(X[:4], 2000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=6 * std.max() / np.sqrt(2000))
    np.testing.assert_allclose(draws.std(1), std, rtol=0.1)


def test_covariances():
    X, Y = table(40, P=2)
    gp = regressor().fit(X, Y)
    mean, cov = gp.predict(X[:6], return_cov=True)
    assert mean.shape == (6, 2)
    assert cov.shape == (2, 6, 6)
    np.testing.assert_allclose(np.sqrt(np.diagonal(cov, axis1=1, axis2=2)).T, gp.predict(X[:6], return_std=True)[1])
    assert (np.linalg.eigvalsh(cov) > 0).all()
    with pytest.raises(ValueError, match="return_std or return_cov, not both"):
        gp.predict(X, return_std=True, return_cov=True)


@pytest.mark.parametrize("symmetry", [None, Negation([[0], [1]]), Rotation((0, 1), 3)], ids=str)
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("posterior", ["block", "joint"])
def test_components_add_up(symmetry, P, posterior):
    X, y = table(50, P=P)
    gp = regressor(symmetry=symmetry, n_inducing=10, posterior=posterior).fit(X, y)
    parts = gp.predict_components(X)
    f, std = gp.predict_f(X, return_std=True)
    assert len(parts.labels) == len(parts.mean) == len(parts.std)
    assert parts.mean.shape == parts.std.shape == (len(parts.labels), *f.shape)
    assert parts.residual_std.shape == f.shape
    np.testing.assert_allclose(parts.mean.sum(0) + y.mean(0), f, rtol=1e-9)
    if posterior == "block" or symmetry is None:
        np.testing.assert_allclose((parts.std**2).sum(0) + parts.residual_std**2, std**2, rtol=1e-6)


def test_components_have_the_symmetry_of_their_frequency():
    """Under x_0 -> -x_0 about the centre the even part stays, the odd part turns its sign."""
    X, y = table(80)
    gp = regressor(symmetry=Negation([[0]]), n_inducing=15).fit(X, y)
    mirrored = X.copy()
    mirrored[:, 0] = 2 * X[:, 0].mean() - X[:, 0]
    here, there = gp.predict_components(X), gp.predict_components(mirrored)
    assert here.labels == ["t = 0", "t = 1"]
    np.testing.assert_allclose(there.mean[0], here.mean[0], atol=1e-8 * y.std())
    np.testing.assert_allclose(there.mean[1], -here.mean[1], atol=1e-8 * y.std())
    assert np.abs(here.mean[1]).max() > 0.1 * y.std()


# --- several targets ------------------------------------------------------------------------------------------------------


def test_shapes_of_several_targets():
    X, Y = table(40, P=3)
    gp = regressor().fit(X, Y)
    assert gp.target_names_ == ["y0", "y1", "y2"]
    assert [a.shape for a in outputs(gp, X, Y)] == [(40, 3)] * 4 + [(40, 2, 3)] + [(40, 3)] * 2
    assert gp.score(X, Y) > 0.3
    with pytest.raises(ValueError, match="must have 3 targets"):
        gp.log_density(X, Y[:, :2])


def test_one_column_is_two_dimensional():
    X, y = table(30)
    flat, column = regressor().fit(X, y), regressor().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X)[:, 0], flat.predict(X))
    assert column.predict_quantiles(X).shape == (30, 3, 1)
    assert column.sample_y(X, 2).shape == (30, 1, 2)


# --- frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [False, True])
def test_frames_of_every_library_give_the_same_numbers(gaps):
    data, y = columns(gaps=gaps)
    tables = frames(data)
    said = {}
    for name, frame in tables.items():
        gp = regressor(missing="impute" if gaps else "refuse").fit(frame, y)
        assert gp.feature_names_in_.tolist() == list(data)
        assert gp.n_features_in_ == 4
        assert "colour=red" in gp.encoded_names_
        assert any(name.startswith("when (") for name in gp.encoded_names_)
        said[name] = outputs(gp, frame, y)
        assert_same(said[name], outputs(gp, tables["polars"], y))  # and may be mixed
    assert_same(said["pandas"], said["polars"])
    assert_same(said["pandas"], said["pyarrow"])


def test_targets_of_every_library():
    data, y = columns()
    plain = regressor().fit(frames(data)["pandas"], y)
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    for series in (pd.Series(y, name="price"), pl.Series("price", y)):
        gp = regressor().fit(frames(data)["pandas"], series)
        assert gp.target_names_ == ["price"]
        np.testing.assert_array_equal(gp.predict(frames(data)["pandas"]), plain.predict(frames(data)["pandas"]))
        np.testing.assert_array_equal(gp.pit(frames(data)["pandas"], series), plain.pit(frames(data)["pandas"], y))
    arrow = regressor().fit(frames(data)["pyarrow"], pa.array(y))
    np.testing.assert_array_equal(arrow.predict(frames(data)["pandas"]), plain.predict(frames(data)["pandas"]))
    both = {"price": y, "weight": 2 * y}
    for frame in (pd.DataFrame(both), pl.DataFrame(both), pa.table(both)):
        gp = regressor().fit(frames(data)["pandas"], frame)
        assert gp.target_names_ == ["price", "weight"]
        assert gp.predict(frames(data)["pandas"]).shape == (60, 2)


def test_text_matters_and_dates_do():
    data, _ = columns(90)
    colour = np.array([{"red": 0.0, "blue": 5.0, "green": -5.0}[c] for c in data["colour"]])
    hour = np.array([w.hour for w in data["when"]])
    y = colour + 3 * np.cos(2 * np.pi * hour / 24)
    frame = frames(data)["polars"]
    gp = regressor(max_steps=60).fit(frame, y)
    assert gp.score(frame, y) > 0.95
    assert ("periodic", 24.0) in gp.column_kinds_.values()


def test_columns_are_found_by_name_and_kinds_may_name_them():
    data, y = columns()
    frame = frames(data)["pandas"]
    gp = regressor(columns={"size": ("periodic", 3)}).fit(frame, y)
    assert gp.column_kinds_[0] == ("periodic", 3.0)
    with pytest.raises(ValueError, match=r"lacks columns|feature names"):
        gp.predict(frame.drop(columns="weight"))
    with pytest.raises(ValueError, match="not in the table"):
        regressor(columns={"length": ("periodic", 3)}).fit(frame, y)
    with pytest.raises(ValueError, match="the model was fitted to a table"):
        gp.predict(np.zeros((3, 4)))


def test_missing_values():
    data, y = columns(gaps=True)
    frame = frames(data)["pandas"]
    with pytest.raises(ValueError, match=r"values are missing in 'colour' .*missing=\"impute\""):
        regressor().fit(frame, y)
    gp = regressor(missing="impute").fit(frame, y)
    assert "weight missing" in gp.encoded_names_
    assert "colour=missing" in gp.encoded_names_
    assert any("median" in note for note in gp.notes_)
    assert gp.warnings_ == []
    assert np.isfinite(gp.predict(frame)).all()
    X, y = table(30)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(X, y)


def test_unseen_levels_warn_in_predictions_and_not_in_a_fit():
    data, y = columns()
    frame = frames(data)["pandas"]
    weight = np.ones(60)
    frame.loc[5, "colour"], weight[5] = "violet", 0.0
    gp = regressor().fit(frame, y, sample_weight=weight)
    with pytest.warns(UserWarning, match=r"'colour' holds levels that were not in the fit \('violet'\) in 1 row"):
        gp.predict(frame)


def test_rows_beyond_the_data():
    data, y = columns()
    frame = frames(data)["pandas"]
    gp = regressor(columns={"size": ("periodic", 3)}).fit(frame, y)
    assert gp.beyond(frame) == {}
    low, high = frame.weight.min(), frame.weight.max()
    near = 0.009 * (high - low)
    far = frame.copy()
    far["size"] = 1e6  # it goes round
    far.loc[:3, "weight"] = [low - near, high + near, low - 2 * near, high + 2 * near]
    far.loc[[7, 9], "when"] = [far["when"].max() + dt.timedelta(days=d) for d in (400, -400)]
    masks = gp.beyond(far)
    assert {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()} == {
        "when (trend)": [7, 9],
        "weight": [2, 3],
    }
    gp.partial_fit(far[:8], y[:8])
    assert {name: np.flatnonzero(mask).tolist() for name, mask in gp.beyond(far).items()} == {"when (trend)": [9]}


def test_rows_beyond_the_data_of_an_array():
    X, y = table(40)
    X = np.column_stack([X, np.full(40, 3.0)])
    globe = np.column_stack([np.linspace(-170, 170, 40), np.linspace(-40, 40, 40), X])
    gp = regressor(columns={0: "longitude", 1: "latitude"}).fit(globe, y)
    new = globe[:2] + np.array([[500.0, 45.0, 0.0, 1e5, 0.0, 1.0], [0.0] * 6])  # the last column was constant
    found = {name: mask.tolist() for name, mask in gp.beyond(new).items()}
    assert found == {"column 3": [True, False], "column 5": [True, False]}
    assert gp.beyond(globe + 1e-8) == {}
    gp = regressor(columns=("image", (2, 2))).fit(X, y)
    assert gp.beyond(1e3 * X) == {}
    gp = classifier().fit(X, labels(X))
    assert list(gp.beyond(1e3 * X)) == ["column 0", "column 1", "column 2", "column 3"]
    gp.partial_fit(1e3 * X, labels(X))
    assert gp.beyond(1e3 * X) == {}
    with pytest.raises(ValueError, match="not fitted"):
        regressor().beyond(X)


def test_idle_columns_are_told_of_and_do_not_change_a_thing():
    X, y = table(40)
    wide = np.column_stack([X, np.full(40, 3.0), 2 * X[:, 0] + 1])
    gp = regressor().fit(wide, y)
    assert len(gp.notes_) == 2
    assert gp.warnings_ == []
    for a, b in zip(outputs(gp, wide, y), outputs(regressor().fit(X, y), X, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    points = gp.inducing_points()
    assert points.shape == (40, 5)
    assert np.isnan(points[:, 3:]).all()
    order = np.lexsort(X.T)
    np.testing.assert_allclose(points[np.lexsort(points[:, :3].T)][:, :3], X[order], rtol=1e-9)


def test_a_warp_that_is_asked_for_is_made():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 2))
    X, y = np.column_stack([np.exp(3 * z[:, 0]), z[:, 1]]), z[:, 0] + 0.1 * rng.normal(size=100)
    plain, warped = (regressor(warp=warp, max_steps=30).fit(X, y) for warp in (None, "quantile"))
    assert warped.elbo_ > plain.elbo_ + 0.1
    assert list(warped.model_.inputs.warps) == [0]


def test_a_warp_that_is_asked_for_is_made_under_an_action_too():
    z = np.random.default_rng(0).normal(size=(100, 2))
    X = np.column_stack([np.exp(3 * z[:, 0]), z[:, 1]])
    told = regressor(warp="quantile", symmetry=Negation([[1]]), n_inducing=10).fit(X, z[:, 0])
    assert list(told.model_.inputs.warps) == [0]


def test_predictions_in_inference_mode_with_two_threads():
    X, y = table(400)
    torch.set_num_threads(2)
    try:
        gp = regressor(max_steps=3, n_inducing=130, symmetry=Negation([0]), posterior="block").fit(X, y)
        expected = gp.predict(X)
        with torch.inference_mode():
            np.testing.assert_allclose(gp.predict(X), expected, rtol=1e-6)
    finally:
        torch.set_num_threads(1)
