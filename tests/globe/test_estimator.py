"""Fields on the globe through the front door."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.globe import HarmonicGPGlobe, patches, reading
from harmonicgp.globe import learning as training
from harmonicgp.globe.scores import field_scores
from harmonicgp.io.container import ModelFileError

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")

QUICK = {"max_evaluations": 12, "progress": False}


def truth(lon, lat):
    """A few waves, smooth over poles and date line."""
    p, q = np.deg2rad(lat), np.deg2rad(lon)
    x, y, z = np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)
    return 2 * z + 3 * x * y + np.sin(4 * x) * z + 5.0


def field(step=10.0, noise=0.1, seed=0, start=-180.0, name="height"):
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(-90 + step / 2, 90, step), start + np.arange(0, 360, step)
    values = truth(lon[None, :], lat[:, None]) + noise * rng.normal(size=(len(lat), len(lon)))
    return xarray.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), name=name, attrs={"units": "m"})


def holes(data, seed=1, share=0.3):
    rng = np.random.default_rng(seed)
    masked = data.where(rng.random(data.shape) > share)
    masked[3:6, 5:12] = np.nan
    masked[1] = np.nan
    return masked


@pytest.fixture(scope="module")
def fitted():
    return HarmonicGPGlobe(kernel="rbf", **QUICK).fit(holes(field()))


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


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
def test_places_off_the_lattice_get_features_of_their_own(kernel):
    gp = HarmonicGPGlobe(kernel=kernel, posterior="block", **QUICK).fit(holes(field()))
    lat, lon = np.linspace(-80, 80, 9), np.linspace(-179, 178, 13)
    mean, std = gp.predict_f((lon, lat), return_std=True)
    assert float(np.abs(mean - truth(lon[None, :], lat[:, None])).max()) < 0.5
    X = np.column_stack([a.ravel() for a in np.meshgrid(lon, lat)])
    predictor = gp.field_.groups[0].predictor
    with torch.no_grad():
        evaluation = predictor.whitened(torch.from_numpy(X)).dense()
        m, v = predictor.posterior.moments(evaluation)
    residual = evaluation.residual.variance
    offset, scale = gp.field_.mean(X[:, 1], X[:, 0]), gp.field_.scale
    np.testing.assert_allclose(mean.values.ravel(), m[0].numpy() * scale + offset, atol=1e-8)
    np.testing.assert_allclose(std.values.ravel() ** 2, (v[0] + residual).numpy() * scale**2, atol=1e-8)


def test_the_kernel_of_the_highest_bound_is_taken():
    gp = HarmonicGPGlobe(**QUICK).fit(holes(field()))
    assert set(gp.kernels_) == {"rbf", "matern32", "matern52"}
    assert gp.kernel_ == max(gp.kernels_, key=gp.kernels_.get)


def test_shuffled_points_of_a_grid_are_found_to_be_one(fitted):
    data = holes(field())
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    present = np.isfinite(data.values)
    X, y = np.column_stack((lon[present], lat[present])), data.values[present]
    order = np.random.default_rng(3).permutation(len(y))
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(X[order], y[order])
    assert gp.axes_ is not None
    np.testing.assert_allclose(gp.predict(X), fitted.predict(X), atol=2e-3)


def test_scattered_points_in_batches_give_the_posterior_of_the_grid(monkeypatch):
    data = holes(field(6.0), share=0.5)
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    present = np.isfinite(data.values)
    X, y = np.column_stack((lon[present], lat[present])), data.values[present]
    order = np.random.default_rng(3).permutation(len(y))
    known = {"lengthscale": 0.3, "field_std": 2.0, "noise_level": 0.1, "t_max": 9, "n_inducing": 15, "kernel": "rbf",
             "dtype": "float64", "progress": False}  # fmt: skip
    grid = HarmonicGPGlobe(**known).fit(data)
    X = X[order]
    scattered = HarmonicGPGlobe(**known)
    monkeypatch.setattr(reading, "grid_from_points", lambda *_: None)  # as if they were no grid
    scattered.fit(X, y[order])
    assert scattered.axes_ is None
    where = (np.linspace(-180, 170, 36), np.linspace(-85, 85, 18))
    for a, b in zip(grid.predict_f(where, True), scattered.predict_f(where, True), strict=True):
        np.testing.assert_allclose(a.values, b.values, atol=1e-5)
    assert grid.elbo_ == pytest.approx(scattered.elbo_, rel=1e-6)


def test_scattered_points_are_learned_from():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 360, 900), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 900)))))
    y = truth(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=900)
    gp = HarmonicGPGlobe(progress=False, max_evaluations=30).fit(X[:700], y[:700])
    scores = gp.scores(X[700:], y[700:])
    assert scores["rmse"] < 0.25
    assert 0.88 < scores["coverage"] <= 1.0


def test_slices_share_hyper_parameters_and_have_masks_of_their_own():
    maps = [holes(field(seed=k), seed=10 + k) for k in range(3)] + [holes(field(seed=5), seed=10)]
    data = xarray.concat(maps, "time").assign_coords(time=np.arange(4))
    gp = HarmonicGPGlobe(kernel="rbf", by="time", **QUICK).fit(data)
    assert [group.slices for group in gp.field_.groups] == [[0, 3], [1], [2]]
    mean = gp.predict()
    assert mean.dims == data.dims
    assert (mean.time == data.time).all()
    assert float(np.abs(mean - truth(data.lon.values[None, :], data.lat.values[:, None])).max()) < 0.4
    alone = HarmonicGPGlobe(kernel="rbf", lengthscale=gp.lengthscale_, field_std=gp.field_std_, noise_level=gp.noise_std_,
                            n_inducing=gp.n_inducing_, t_max=gp.t_max_, progress=False).fit(data[1])  # fmt: skip
    np.testing.assert_allclose(alone.predict().values, mean[1].values, atol=5e-2)


def test_known_errors_count():
    data = holes(field(noise=0.0))
    rng = np.random.default_rng(5)
    errors = 0 * data.fillna(0.0) + xarray.where(data.lon > 0, 1.0, 0.02)
    noisy = data + errors * rng.normal(size=data.shape)
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(noisy, noise_std=errors)
    _, std = gp.predict_f(return_std=True)
    assert float(std.where(data.lon > 20).mean()) > 2 * float(std.where(data.lon < -20).mean())


@pytest.mark.parametrize("mean", ["constant", "linear", "field"])
def test_mean_functions(mean, tmp_path):
    data = holes(field())
    given = field(noise=0.0, step=5.0) if mean == "field" else mean
    gp = HarmonicGPGlobe(kernel="rbf", mean=given, **QUICK).fit(data)
    assert float(np.abs(gp.predict() - field(noise=0.0)).max()) < 0.4
    gp.save(tmp_path / "model.hgp")
    np.testing.assert_allclose(HarmonicGPGlobe.load(tmp_path / "model.hgp").predict(), gp.predict(), atol=1e-6)
    slices = HarmonicGPGlobe(kernel="rbf", mean=given, by="time", **QUICK).fit(xarray.concat([data, data], "time"))
    np.testing.assert_allclose(slices.predict()[1], gp.predict(), atol=0.1)
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 360, 300), rng.uniform(-80, 80, 300)))
    y = truth(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=300)
    points = HarmonicGPGlobe(kernel="rbf", mean=given, **QUICK).fit(X, y)
    assert points.scores(X, y)["rmse"] < 0.5


def test_samples_vary_as_the_error_bars_say(fitted):
    where = (np.linspace(-180, 160, 18), np.linspace(-80, 80, 9))
    draws = fitted.sample(where, 300, random_state=1)
    assert draws.dims == ("sample", "lat", "lon")
    mean, std = fitted.predict_f(where, return_std=True)
    z = (draws.mean("sample") - mean) / (std / np.sqrt(300))
    assert float(np.abs(z).max()) < 5
    ratio = draws.std("sample") / std
    assert 0.75 < float(ratio.min()) < float(ratio.max()) < 1.3


def test_components_add_up(fitted):
    parts = fitted.components(frequencies=range(fitted.t_max_ + 1))
    total = parts.sum("frequency") + fitted.field_.mean.coefficients[0]
    np.testing.assert_allclose(total.values, fitted.predict().values, atol=1e-5)
    assert fitted.components().sizes["frequency"] == min(8, fitted.t_max_) + 1
    with pytest.raises(ValueError, match="frequencies"):
        fitted.components(frequencies=[fitted.t_max_ + 1])


def test_a_known_spectrum_and_noise_are_recovered():
    """A sum of harmonics with noise and a mask of land: the power at each frequency within a tenth, the noise within 5 %."""
    rng = np.random.default_rng(2)
    step, noise = 3.0, 0.3
    lat, lon = np.arange(-90 + step / 2, 90, step), np.arange(0, 360, step)
    p, q = np.deg2rad(lat)[:, None], np.deg2rad(lon)[None, :]
    powers = {1: 1.0, 3: 0.8, 6: 0.5}
    clean = sum(a * np.cos(p) ** t * np.cos(t * q + t) for t, a in powers.items())
    data = xarray.DataArray(clean + noise * rng.normal(size=clean.shape), {"lat": lat, "lon": lon}, ("lat", "lon"))
    land = np.sin(7 * q) * np.cos(3 * p) > 0.5
    gp = HarmonicGPGlobe(progress=False, max_evaluations=25).fit(data.where(~land))
    assert gp.noise_std_ == pytest.approx(noise, rel=0.05)
    found = gp.spectrum(lat)
    area = np.cos(p[:, 0]) / np.cos(p[:, 0]).sum()
    for t, a in powers.items():
        expected = 0.5 * a**2 * (area * np.cos(p[:, 0]) ** (2 * t)).sum()
        assert found[t] == pytest.approx(expected, rel=0.1)
    others = [t for t in range(gp.t_max_ + 1) if t not in powers]
    assert found[others].sum() < 0.05 * found.sum()


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
    with pytest.raises(ValueError, match="one a point"):
        gp.fit(np.zeros((3, 2)), np.zeros(4))


def test_bad_places(fitted):
    for X, words in (
        ([[0.0, 91.0]], "a latitude is 91"),
        ([[np.nan, 0.0]], "finite"),
        (np.zeros((0, 2)), "points are"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted.predict(np.array(X))
    with pytest.raises(ValueError, match="2 maps, the model 1"):
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


def test_uneven_longitudes_need_the_rbf_kernel():
    data = field().isel(lon=[0, 1, 3, 4, 8, 9])
    data = data.assign_coords(lon=data.lon + np.sqrt(np.arange(6)))
    with pytest.raises(ValueError, match="evenly spaced"):
        HarmonicGPGlobe(kernel="matern32", **QUICK).fit(data)


def test_scores_weigh_by_area():
    mean, y = np.zeros(2), np.array([1.0, 0.0])
    found = field_scores(mean, np.ones(2), y, np.array([1.0, 3.0]))
    assert found["rmse"] == pytest.approx(np.sqrt(0.5))
    assert found["rmse_by_area"] == pytest.approx(0.5)


def test_pictures(fitted, tmp_path):
    fitted.plot(tmp_path / "map.png")
    assert {path.name for path in tmp_path.iterdir()} == {"map.png", "map-spectrum.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.iterdir())


def test_strips_tell_what_the_whole_grid_tells(monkeypatch):
    data = field(5.0, noise=0.2)
    whole = HarmonicGPGlobe(kernel="rbf", progress=False).fit(data)
    monkeypatch.setattr(training, "STRIPS_FROM", 10)
    monkeypatch.setattr(training, "STRIPS_SHARE", 0.6)
    strips = HarmonicGPGlobe(kernel="rbf", progress=False).fit(data)
    assert {record["rows"] for record in strips.history_} != {record["rows"] for record in whole.history_}
    assert strips.history_[-1]["rows"] == 36  # the last evaluations are on all rows
    assert strips.noise_std_ == pytest.approx(whole.noise_std_, rel=0.1)
    assert strips.lengthscale_ == pytest.approx(whole.lengthscale_, rel=0.5)
    np.testing.assert_allclose(strips.predict().values, whole.predict().values, atol=0.2)


def test_many_scattered_points_are_learned_from_few(monkeypatch):
    for name, value in (("ALL", 200), ("NEIGHBOURS", 40), ("ANYWHERE", 60)):
        monkeypatch.setattr(patches, name, value)
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 360, 900), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 900)))))
    y = truth(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=900)
    gp = HarmonicGPGlobe(progress=False, kernel="rbf", max_evaluations=20).fit(X[:700], y[:700])
    assert gp.history_[0]["rows"] == 4 * 40 + 60
    assert gp.scores(X[700:], y[700:])["rmse"] < 0.4


def test_sizes_follow_from_memory_and_residual():
    data = field(5.0, noise=0.2)
    small = HarmonicGPGlobe(kernel="rbf", memory=6e6, **QUICK).fit(data)
    large = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(data)
    assert small.n_inducing_ < 36
    assert large.residual_share_ < 0.1
    assert large.n_inducing_ < 36  # smooth: fewer latitudes than rows are enough
