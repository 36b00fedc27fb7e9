"""Fields through the front door: grids and points, planes and the globe, results, files."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

import harmonicgp
from harmonicgp import HarmonicGPField, load_model
from harmonicgp.io.container import ModelFileError, read_container, write_container
from harmonicgp.planes import fitted
from tests.planes.common import QUICK, full, scene, truth, xarray

#: With a lengthscale that needs a small torus.
SHORT = QUICK | {"lengthscale": 300.0}


@pytest.fixture(scope="module")
def gp():
    return HarmonicGPField(**QUICK).fit(scene())


@pytest.fixture(params=["exact", "grid"])
def kind(request, monkeypatch):
    """Both ways of a grid."""
    if request.param == "grid":
        monkeypatch.setattr(fitted, "FEW", 0)
    return request.param


def test_it_fills_holes_and_says_how_well(kind):
    data = scene()
    gp = HarmonicGPField(**SHORT).fit(data)
    assert gp.field_.field.kind == kind
    mean, std = gp.predict(return_std=True)
    assert mean.dims == data.dims
    assert mean.attrs == {"long_name": "posterior mean", "units": "K"}
    assert std.name == "height_std"
    np.testing.assert_array_equal(mean.x, data.x)
    assert mean.x.attrs["units"] == "m"
    error = np.abs(mean - full(data)).where(np.isnan(data))
    assert float(error.max()) < 0.4
    assert float(std.where(np.isnan(data)).mean()) > float(std.where(np.isfinite(data)).mean())
    assert gp.noise_std_ == pytest.approx(0.05, rel=0.3)
    assert gp.way_ == "plane"
    assert (gp.std_error_ == 0) == (kind == "exact")
    assert set(gp.lengthscale_) == {"x", "y"}
    filled = gp.fill(data)
    assert bool(np.isfinite(filled).all())
    assert float(np.abs(filled - data).max()) == 0.0
    held = full(data).where(np.isnan(data))
    assert gp.scores(held)["coverage"] > 0.7
    assert gp.score(held) == -gp.scores(held)["nll"]
    _, latent = gp.predict_f(return_std=True)
    np.testing.assert_allclose(std.values**2, latent.values**2 + gp.noise_std_**2, rtol=1e-9)


def test_orientation_order_and_units_do_not_matter(gp):
    data = scene()
    expected = gp.predict()
    turned = data.transpose("x", "y").isel(y=slice(None, None, -1))
    found = HarmonicGPField(**QUICK).fit(turned).predict()
    assert found.dims == ("x", "y")
    np.testing.assert_allclose(found.sel(y=data.y).transpose("y", "x").values, expected.values, atol=5e-3)
    km = data.assign_coords(x=data.x / 1000, y=data.y / 1000)
    km.x.attrs["units"] = km.y.attrs["units"] = "km"
    other = HarmonicGPField(**QUICK).fit(km)
    np.testing.assert_allclose(other.predict().values, expected.values, atol=5e-3)
    assert other.lengthscale_["x"] == pytest.approx(gp.lengthscale_["x"] / 1000, rel=0.05)
    large = HarmonicGPField(**QUICK).fit(data * 1e6 - 3e9)
    np.testing.assert_allclose((large.predict().values + 3e9) / 1e6, expected.values, atol=5e-3)


def test_mixed_units_of_lengths_are_converted(gp):
    data = scene()
    mixed = data.assign_coords(y=data.y / 1000)
    mixed.y.attrs["units"] = "km"
    found = HarmonicGPField(**QUICK).fit(mixed)
    np.testing.assert_allclose(found.predict().values, gp.predict().values, atol=5e-3)


def test_new_places(gp):
    finer = gp.predict((np.linspace(0, 1150, 47), np.linspace(4e5, 4e5 + 1450, 59)))
    assert finer.dims == ("y", "x")
    assert float(np.abs(finer[::2, ::2] - gp.predict().isel(y=slice(None, None, -1))).max()) < 1e-6
    points = np.array([[600.0, 4e5 + 300], [0.0, 4e5]])
    mean, std = gp.predict(points, return_std=True)
    assert mean.shape == std.shape == (2,)
    np.testing.assert_allclose(mean[1], float(gp.predict().sel(x=4e5, y=0)), atol=1e-6)
    same = gp.predict(scene())
    xarray.testing.assert_equal(same, gp.predict())
    part = gp.predict(scene().isel(x=slice(3, 9)))
    np.testing.assert_allclose(part.values, gp.predict().isel(x=slice(3, 9)).values, atol=1e-6)
    with pytest.raises(ValueError, match="no coordinate y"):
        gp.predict(scene().rename(y="northing"))


def test_samples(kind):
    gp = HarmonicGPField(**SHORT).fit(scene())
    draws = gp.sample(n_samples=200)
    assert draws.dims == ("sample", "y", "x")
    mean, std = gp.predict_f(return_std=True)
    assert float(np.abs(draws.mean("sample") - mean).max()) < 0.6 * float(std.max())
    assert gp.clipped_ < 1e-4
    ratio = draws.std("sample") / std
    assert 0.95 < float(ratio.mean()) < 1.05
    again = gp.sample(n_samples=200)
    xarray.testing.assert_allclose(draws, again)
    some = gp.sample((np.array([0.0, 10.0]), np.array([4e5])), n_samples=2)
    assert some.shape == (2, 2, 1)


def test_a_numpy_grid_and_points_on_it_are_the_same():
    values = scene().values
    grid = HarmonicGPField(**QUICK).fit(values)
    mean, std = grid.predict(return_std=True)
    assert isinstance(mean, np.ndarray)
    assert mean.shape == values.shape
    X = np.stack(np.nonzero(np.isfinite(values)), 1).astype(float)
    y = values[np.isfinite(values)]
    order = np.random.default_rng(0).permutation(len(y))
    points = HarmonicGPField(**QUICK).fit(X[order], y[order])
    assert "lie on a grid" in " ".join(points.notes_)
    np.testing.assert_allclose(points.predict(), mean[np.isfinite(values)][order], atol=2e-2)
    np.testing.assert_allclose(points.predict(X, return_std=True)[1], std[np.isfinite(values)], rtol=0.1)
    assert grid.sample().shape == (1, *values.shape)
    np.testing.assert_array_equal(grid.fill(values)[np.isfinite(values)], y)


@pytest.mark.parametrize("few", [2000, 0])
def test_scattered_points(few, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(fitted, "FEW", few)
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"northing": rng.uniform(0, 40, 600), "easting": rng.uniform(0, 40, 600)})
    y = truth(frame.easting, frame.northing) + 0.05 * rng.normal(size=600)
    gp = HarmonicGPField(**QUICK).fit(frame[:500], y[:500])
    mean, std = gp.predict(frame[500:], return_std=True)
    assert float(np.abs(mean - y[500:]).mean()) < 0.15
    assert np.mean(np.abs(mean - y[500:]) < 2 * std) > 0.85
    assert gp.scores(frame[500:], y[500:])["rmse"] < 0.25
    assert gp.predict().shape == (500,)
    grid = gp.predict((np.arange(5.0, 20), np.arange(5.0, 15)))
    assert grid.dims == ("easting", "northing")
    expected = truth(np.arange(5.0, 20)[:, None], np.arange(5.0, 15))
    assert float(np.abs(grid.values - expected).mean()) < 0.15
    assert gp.sample(frame[500:], 3).shape == (3, 100)


def test_slices_share_hyper_parameters_and_have_holes_of_their_own(tmp_path):
    fields = [scene(seed=s).expand_dims(time=[np.datetime64("2020-01-01") + 31 * s]) for s in range(3)]
    data = xarray.concat(fields, "time")
    gp = HarmonicGPField(by="time", **QUICK).fit(data)
    mean, _std = gp.predict(return_std=True)
    assert mean.dims == data.dims
    np.testing.assert_array_equal(mean.time, data.time)
    error = np.abs(mean - full(fields[0][0]))
    assert float(error.mean()) < 0.1
    assert gp.sample(n_samples=2).dims == ("sample", "time", "y", "x")
    gp.save(tmp_path / "m.hgp")
    xarray.testing.assert_allclose(HarmonicGPField.load(tmp_path / "m.hgp").predict(), mean)
    assert gp.predict((np.array([0.0]), np.array([4e5, 4e5 + 10]))).dims == ("time", "y", "x")


def test_three_axes_and_one():
    rng = np.random.default_rng(0)
    z, y, x = np.mgrid[:5, :8, :9].astype(float)
    values = truth(x, y) + 0.3 * z + 0.05 * rng.normal(size=z.shape)
    holes = np.where(rng.random(z.shape) < 0.3, np.nan, values)
    mean = HarmonicGPField(mean="linear", **QUICK).fit(holes).predict()
    assert float(np.abs(mean - values).mean()) < 0.15
    line = xarray.DataArray(values[0, 0], {"time": np.datetime64("2020-01-01") + np.arange(9)}, ("time",))
    series = HarmonicGPField(**QUICK).fit(line.where(line.time != line.time[4]))
    assert series.predict().dims == ("time",)
    assert bool(np.isfinite(series.predict()).all())


def test_covariates_and_a_linear_mean():
    data = scene()
    rng = np.random.default_rng(1)
    height = xarray.DataArray(rng.normal(size=data.shape), data.coords, data.dims)
    both = xarray.Dataset({"t": data + 3 * height, "height": height})
    gp = HarmonicGPField(mean="linear", **QUICK).fit(both, "t")
    mean = gp.predict(both)
    assert float(np.abs(mean - full(data) - 3 * height).mean()) < 0.15
    xarray.testing.assert_allclose(mean, gp.predict(), atol=1e-6)
    with pytest.raises(ValueError, match="needs the covariates height"):
        gp.predict(data)


def test_known_errors(kind):
    data = scene(holes=0.0)
    errors = xarray.full_like(data, 0.01)
    errors[:, 20:] = 0.5
    rng = np.random.default_rng(3)
    noisy = data + errors * rng.normal(size=data.shape)
    gp = HarmonicGPField(**SHORT).fit(noisy, noise_std=errors)
    _, std = gp.predict_f(return_std=True)
    assert float(std[:, 22:].mean()) > 1.5 * float(std[:, :18].mean())
    with pytest.raises(ValueError, match="none negative"):
        HarmonicGPField(**QUICK).fit(noisy, noise_std=-1.0)


def test_the_globe_takes_what_goes_around_it(tmp_path):
    lat, lon = np.arange(-75.0, 90, 15), np.arange(0.0, 360, 15)
    values = np.cos(np.deg2rad(lat))[:, None] * np.cos(np.deg2rad(lon))
    data = xarray.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), name="wave")
    gp = HarmonicGPField(kernel="rbf", progress=False).fit(data)
    assert gp.way_ == "globe"
    assert "HarmonicGPGlobe" in gp.notes_[0]
    mean, _std = gp.predict(return_std=True)
    assert float(np.abs(mean - data).max()) < 0.1
    assert gp.sample(n_samples=1).shape == (1, 11, 24)
    assert gp.scores(data)["rmse"] < 0.1
    gp.save(tmp_path / "g.hgp")
    again = HarmonicGPField.load(tmp_path / "g.hgp")
    xarray.testing.assert_allclose(again.predict(), mean, atol=1e-5)
    assert type(load_model(tmp_path / "g.hgp")).__name__ == "HarmonicGPGlobe"
    gp.plot(tmp_path / "g.png")
    region = data.isel(lat=slice(4, 7), lon=slice(0, 5))
    assert HarmonicGPField(kernel="rbf", progress=False).fit(region).way_ == "plane"
    with pytest.raises(ValueError, match='way="globe" needs longitudes'):
        HarmonicGPField(way="globe").fit(scene())


@pytest.mark.parametrize("few", [2000, 0])
@pytest.mark.parametrize("points", [False, True])
def test_files(few, points, tmp_path, monkeypatch):
    monkeypatch.setattr(fitted, "FEW", few)
    gp = HarmonicGPField(lengthscale=300.0, mean="linear", **QUICK)
    if points:
        rng = np.random.default_rng(0)
        X = rng.uniform(0, 900, (200, 2))
        gp.fit(X, truth(*X.T / 50))
    else:
        gp.fit(scene())
    gp.save(tmp_path / "m.hgp")
    again = load_model(tmp_path / "m.hgp")
    assert isinstance(again, harmonicgp.HarmonicGPField)
    assert again.get_params() == gp.get_params()
    for a, b in zip(again.predict(return_std=True), gp.predict(return_std=True), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_allclose(np.asarray(again.sample()), np.asarray(gp.sample()), atol=1e-6)
    assert again.notes_ == gp.notes_
    container = read_container(tmp_path / "m.hgp", "field", 1)
    for name in ("y", "X", "H"):
        bad = dict(container.tensors)
        bad[name] = torch.full_like(bad[name], torch.inf)
        write_container(tmp_path / "bad.hgp", "field", 1, container.header, bad)
        if name != "H":
            with pytest.raises(ModelFileError, match=r"cannot|not a model"):
                HarmonicGPField.load(tmp_path / "bad.hgp")
    header = container.header | {"kind": "other"}
    write_container(tmp_path / "bad.hgp", "field", 1, header, container.tensors)
    with pytest.raises(ModelFileError, match="not known"):
        HarmonicGPField.load(tmp_path / "bad.hgp")


def test_a_kernel_of_your_own(tmp_path):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RQKernel())
    gp = HarmonicGPField(kernel, progress=False).fit(scene())
    assert gp.kernel_ == "ScaleKernel"
    gp.save(tmp_path / "m.hgp")
    xarray.testing.assert_allclose(HarmonicGPField.load(tmp_path / "m.hgp").predict(), gp.predict())


def test_a_failed_fit_changes_nothing(gp):
    before = gp.predict()
    with pytest.raises(ValueError, match="no value"):
        gp.fit(scene() * np.nan)
    xarray.testing.assert_equal(gp.predict(), before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kernel": "cubic"}, "kernel must be one of"),
        ({"mean": "quadratic"}, "mean must be one of"),
        ({"lengthscale": -1.0}, "must be positive"),
        ({"n_draws": 1}, "at least 2"),
        ({"lengthscale": [1.0, 2.0, 3.0]}, "one for each axis"),
        ({"by": "time"}, "no dimension 'time'"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        HarmonicGPField(**{**QUICK, **arguments}).fit(scene())


def test_hardly_any_data():
    two = xarray.DataArray([1.0, 2.0], {"x": [0.0, 1.0]}, ("x",))
    mean, std = HarmonicGPField(progress=False).fit(two).predict(return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    constant = HarmonicGPField(**QUICK).fit(np.full((5, 6), 3.0))
    np.testing.assert_allclose(constant.predict(), 3.0, atol=1e-6)
    alone = np.full((5, 6), np.nan)
    alone[2, 3] = 7.0
    np.testing.assert_allclose(HarmonicGPField(**QUICK).fit(alone).predict(), 7.0, atol=1e-6)
