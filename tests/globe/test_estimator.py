"""Fields on the globe through the front door."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.globe import HarmonicGPGlobe
from harmonicgp.io.container import ModelFileError
from tests.globe.common import QUICK, field, holes, truth, xarray


def test_it_fills_holes_and_says_how_well(fitted):
    data = field(noise=0.0)
    mean, std = fitted.predict(return_std=True)
    assert mean.dims == data.dims
    assert mean.attrs["units"] == "m"
    error = np.abs(mean - data)
    assert float(error.max()) < 0.3
    assert float((error < 3 * std).mean()) > 0.98
    assert fitted.noise_std_ == pytest.approx(0.1, rel=0.3)
    filled = fitted.fill(holes(field()))
    assert np.isfinite(filled).all()
    known = np.isfinite(holes(field()))
    assert float(np.abs(filled - field()).where(known).max()) == 0.0


def test_conventions_do_not_matter(fitted):
    expected = fitted.predict()
    data = holes(field())
    east = data.assign_coords(lon=data.lon % 360).sortby("lon")
    south = data.isel(lat=slice(None, None, -1)).transpose("lon", "lat")
    for other in (east, south):
        found = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(other).predict()
        assert found.dims == other.dims
        back = (
            found.assign_coords(lon=(found.lon + 180) % 360 - 180).sortby("lon").sortby("lat").transpose("lat", "lon")
        )
        np.testing.assert_allclose(back.values, expected.values, atol=2e-3)


def test_predictions_meet_at_the_date_line_and_at_the_poles(fitted):
    lat = np.linspace(-90, 90, 19)
    west, east = (fitted.predict_f((np.array([lon]), lat), return_std=True) for lon in (-180.0, 180.0))
    for a, b in zip(west, east, strict=True):
        np.testing.assert_allclose(a.values, b.values, atol=1e-6)
    near = fitted.predict_f((np.array([179.999, -179.999]), lat))
    np.testing.assert_allclose(near[:, 0], near[:, 1], atol=1e-3)
    poles = fitted.predict_f((np.linspace(0, 350, 36), np.array([-90.0, 90.0])), return_std=True)
    for part in poles:
        assert float(part.std("lon").max()) < 1e-6


def test_points_and_grids_agree(fitted):
    lat, lon = np.array([-60.5, 0.0, 33.3]), np.array([-170.1, 3.0, 99.9, 180.0])
    mean, std = fitted.predict((lon, lat), return_std=True)
    X = np.column_stack([a.ravel() for a in np.meshgrid(lon, lat)])
    points, errors = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(points, mean.values.ravel(), atol=1e-9)
    np.testing.assert_allclose(errors, std.values.ravel(), atol=1e-9)


def test_shuffled_points_of_a_grid_are_found_to_be_one(fitted):
    data = holes(field())
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    present = np.isfinite(data.values)
    X, y = np.column_stack((lon[present], lat[present])), data.values[present]
    order = np.random.default_rng(3).permutation(len(y))
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(X[order], y[order])
    assert gp.axes_ is not None
    np.testing.assert_allclose(gp.predict(X), fitted.predict(X), atol=2e-3)


def test_scattered_points_are_learned_from():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 360, 900), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 900)))))
    y = truth(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=900)
    gp = HarmonicGPGlobe(progress=False, max_evaluations=30).fit(X[:700], y[:700])
    scores = gp.scores(X[700:], y[700:])
    assert scores["rmse"] < 0.25
    assert 0.88 < scores["coverage"] <= 1.0


def test_saved_models_predict_the_same(fitted, tmp_path):
    path = tmp_path / "model.hgp"
    fitted.save(path)
    again = HarmonicGPGlobe.load(path)
    for a, b in zip(fitted.predict(return_std=True), again.predict(return_std=True), strict=True):
        xarray.testing.assert_allclose(a, b, atol=1e-4)
    assert again.lengthscale_ == fitted.lengthscale_
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ModelFileError):
        HarmonicGPGlobe.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "cubic"}, "kernel"),
        ({"n_inducing": 0}, "n_inducing"),
        ({"t_max": -1}, "t_max"),
        ({"lengthscale": -1.0}, "lengthscale"),
        ({"dtype": "half"}, "dtype"),
        ({"bound": "loose"}, "bound"),
        ({"mean": "quadratic"}, "mean"),
        ({"t_max": 30}, "frequencies 0 to 18"),
        ({"by": "time"}, "time"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        HarmonicGPGlobe(**{**QUICK, "kernel": "rbf", **change}).fit(field())


def test_bad_data():
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK)
    with pytest.raises(ValueError, match="three"):
        gp.fit(field().where(False).fillna(np.nan).where(field() != field()[0, 0], 1.0))
    with pytest.raises(ValueError, match="finite"):
        gp.fit(np.array([[0.0, 1.0]]), np.array([np.nan]))
    with pytest.raises(ValueError, match="longitude, latitude"):
        gp.fit(np.array([[0.0, 120.0]] * 5), np.zeros(5))
    with pytest.raises(ValueError, match="points are"):
        gp.fit(np.zeros((3, 5)), np.zeros(3))
    with pytest.raises(ValueError, match="one for each point"):
        gp.fit(np.zeros((3, 2)), np.zeros(4))


def test_bad_places(fitted):
    for X, words in (
        ([[0.0, 91.0]], "a latitude is 91"),
        ([[np.nan, 0.0]], "finite"),
        (np.zeros((0, 2)), "points are"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted.predict(np.array(X))
    with pytest.raises(ValueError, match="2 maps, the model has 1"):
        fitted.fill(xarray.concat([field(), field()], "time"))


def test_known_errors_of_points_on_a_grid():
    data = holes(field())
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    present = np.isfinite(data.values)
    X, y = np.column_stack((lon[present], lat[present])), data.values[present]
    errors = np.where(X[:, 0] > 0, 0.5, 0.0)  # of nothing, too
    gp = HarmonicGPGlobe(kernel="rbf", progress=False).fit(X, y, noise_std=errors)  # learned to the end
    assert gp.axes_ is not None
    grid = HarmonicGPGlobe(kernel="rbf", progress=False).fit(
        data, noise_std=0 * data.fillna(0.0) + 0.5 * (data.lon > 0)
    )
    np.testing.assert_allclose(gp.predict(X), grid.predict(X), atol=1e-3)


@pytest.mark.parametrize("shape", ["one latitude", "one longitude", "regional", "uneven", "poles", "constant"])
def test_odd_grids(shape):
    data = field()
    if shape == "one latitude":
        data = data[9:10]
    elif shape == "one longitude":
        data = data[:, 4:5]
    elif shape == "regional":
        data = data[4:12, 3:14]
    elif shape == "uneven":
        data = data.isel(lon=[0, 1, 3, 4, 8, 9, 11, 17, 20, 30])
        data = data.assign_coords(lon=data.lon + np.sqrt(np.arange(10)))
    elif shape == "poles":
        lat, lon = np.linspace(-90, 90, 19), np.arange(0, 360, 10.0)
        data = xarray.DataArray(truth(lon[None], lat[:, None]), {"lat": lat, "lon": lon}, ("lat", "lon"))
    else:
        data = 0 * data + 3.0
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(data)
    mean, std = gp.predict(return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert float(np.abs(mean - data).max()) < 0.6


def test_pictures(fitted, tmp_path):
    fitted.plot(tmp_path / "map.png")
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", "map-spectrum.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.iterdir())
