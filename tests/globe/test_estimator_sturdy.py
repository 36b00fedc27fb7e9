"""Fields on the globe: regions, known errors in any order, slices by name, odd numbers, edited files."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.cells import as_numbers
from harmonicgp.globe.estimator import FORMAT, KIND
from harmonicgp.io.container import ModelFileError, read_container, write_container
from tests.globe.common import QUICK, field, truth

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")

GIVEN = {"kernel": "rbf", "lengthscale": 0.6, "field_std": 2.0, "noise_level": 0.1, "progress": False}
DAYS = np.array(["2020-01-01", "2020-02-01", "2020-03-01"], "M8[ns]")


def slices():
    parts = [field(30.0, seed=k) + k for k in range(3)]
    return xarray.concat(parts, "time").assign_coords(time=DAYS)


def region(n=400, lengthscale=0.1, noise=0.3, seed=0):
    """Places of a region, and a draw of a Gaussian process there, without and with noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack((rng.uniform(-10, 40, n), rng.uniform(50, 75, n)))
    p, q = np.deg2rad(X[:, 1]), np.deg2rad(X[:, 0])
    xyz = np.stack((np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)), 1)
    square = ((xyz[:, None] - xyz) ** 2).sum(-1)
    K = 4.0 * np.exp(-0.5 * square / lengthscale**2) + 1e-9 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.normal(size=n)
    return X, f, f + noise * rng.normal(size=n)


def test_regional_points_are_learned_as_well_as_can_be():
    X, f, y = region()
    gp = HarmonicGPGlobe(progress=False).fit(X[:300], y[:300])
    assert gp.lengthscale_ == pytest.approx(0.1, rel=0.3)
    assert gp.noise_std_ == pytest.approx(0.3, rel=0.2)
    assert gp.field_std_ == pytest.approx(2.0, rel=0.5)
    mean, std = gp.predict_f(X[300:], return_std=True)
    assert np.sqrt(np.mean((mean - f[300:]) ** 2)) < 0.35
    assert 0.85 < (np.abs(mean - f[300:]) < 1.96 * std).mean() <= 1.0
    assert gp.residual_share_ < 0.01
    assert gp.model_.south > 45


def test_a_region_on_a_grid_is_not_taken_for_a_smaller_field():
    """The bound of independent frequencies would make its variance a quarter."""
    rng = np.random.default_rng(1)
    lat, lon = np.arange(72.0, 34, -2.0), np.arange(-15.0, 41, 2.0)
    P, Q = np.meshgrid(np.deg2rad(lat), np.deg2rad(lon), indexing="ij")
    xyz = np.stack((np.cos(P) * np.cos(Q), np.cos(P) * np.sin(Q), np.sin(P)), -1).reshape(-1, 3)
    K = 4.0 * np.exp(-0.5 * ((xyz[:, None] - xyz) ** 2).sum(-1) / 0.1**2) + 1e-8 * np.eye(len(xyz))
    f = (np.linalg.cholesky(K) @ rng.normal(size=len(xyz))).reshape(P.shape)
    data = xarray.DataArray(f + 0.4 * rng.normal(size=f.shape), {"lat": lat, "lon": lon}, ("lat", "lon"))
    hole = rng.random(f.shape) < 0.3
    gp = HarmonicGPGlobe(kernel="rbf", progress=False).fit(data.where(~hole))
    assert gp.field_std_ == pytest.approx(2.0, rel=0.4)
    assert gp.noise_std_ == pytest.approx(0.4, rel=0.15)
    mean, std = gp.predict_f(return_std=True)
    inside = np.abs(mean - f) < 1.96 * std
    assert float(inside.where(hole).sum() / hole.sum()) > 0.85


def test_known_errors_go_to_their_places():
    errors = xarray.full_like(field(30.0), 0.01)
    errors[:3] = 1.0
    data = field(30.0) + errors * np.random.default_rng(0).normal(size=errors.shape)

    def fitted(data, errors):
        mean, std = HarmonicGPGlobe(**GIVEN).fit(data, noise_std=errors).predict_f(data, return_std=True)
        return (part.sortby("lat").sortby("lon").transpose("lat", "lon").values for part in (mean, std))

    expected = list(fitted(data, errors))
    shifted = data.assign_coords(lon=data.lon % 360).sortby("lon")
    for one, other in (
        (data, errors.values),
        (data[::-1], errors[::-1].values),
        (data.T, errors.T.values),
        (data.T, errors),
        (data, errors.roll(lon=3, roll_coords=True)),
        (data[::-1], errors),
        (data, errors.assign_coords(lon=errors.lon % 360)),
        (data, errors.isel(lon=0, drop=True)),
    ):
        for a, b in zip(fitted(one, other), expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
    assert shifted.shape == data.shape
    for wrong, words in (
        (errors.values[:2], "shape of the data"),
        (errors.assign_coords(lon=errors.lon + 5), "no value at lon"),
        (errors.expand_dims("z"), "which the data have not"),
        (-errors, "none negative"),
        (errors * 1e200, "finite"),
        (errors * np.nan, "missing everywhere"),
    ):
        with pytest.raises(ValueError, match=words):
            HarmonicGPGlobe(**GIVEN).fit(data, noise_std=wrong)
    X = np.array([[0.0, 0.0], [10.0, 5.0], [20.0, -3.0], [33.3, 7.7]])
    with pytest.raises(ValueError, match="shape of the data"):
        HarmonicGPGlobe(**GIVEN).fit(X, X[:, 0], noise_std=[1.0, 2.0])


def test_a_failed_fit_leaves_the_earlier_one():
    gp = HarmonicGPGlobe(**GIVEN).fit(field(30.0))
    before = gp.predict()
    with pytest.raises(ValueError, match="missing"):
        gp.fit(1e3 * field(30.0), noise_std=field(30.0).where(field(30.0).lat > 0) * 0 + 1)
    xarray.testing.assert_equal(gp.predict(), before)
    gp.set_params(lengthscale=None, field_std=None, noise_level=None).fit(slices())  # time as an input
    assert not hasattr(gp, "t_max_")


def test_slices_are_found_by_their_coordinates():
    data = slices()
    gp = HarmonicGPGlobe(by="time", **GIVEN).fit(data)
    whole = gp.predict()
    assert whole.sizes["time"] == 3
    xarray.testing.assert_allclose(gp.predict(data.isel(time=1)), whole.isel(time=1).transpose("lat", "lon"))
    xarray.testing.assert_allclose(gp.predict(data[::-1]), whole[::-1])
    assert gp.predict(data.isel(time=[2])).time.values == DAYS[2]
    assert gp.sample(data.isel(time=0), n_samples=2).dims == ("sample", "lat", "lon")
    assert gp.scores(data[::-1])["rmse"] == pytest.approx(gp.scores(data)["rmse"])
    assert gp.scores(data.isel(time=0))["rmse"] < 0.5
    xarray.testing.assert_equal(gp.fill(data[::-1]), data[::-1])
    with pytest.raises(ValueError, match="no slice was fitted for time"):
        gp.predict(data.assign_coords(time=DAYS + np.timedelta64(400, "D")))
    with pytest.raises(ValueError, match="1 maps, the model has 3"):
        gp.scores(data.isel(time=0, drop=True))
    points = np.array([[0.0, 0.0], [50.0, 10.0]])
    scores = gp.scores(points, truth(points[:, 0], points[:, 1]))
    assert scores["rmse_by_area"] == pytest.approx(scores["rmse"], rel=0.1)


def test_times_of_any_age():
    times = np.array(["0001-01-01", "1600-01-01", "2000-01-03", "5000-01-05"], "M8[s]")
    days = as_numbers(times, "time")
    assert days[2] == 2.0
    assert (np.diff(days) > 0).all()
    assert days[3] == pytest.approx(3000 * 365.2425, rel=1e-3)
    with pytest.raises(ValueError, match="missing times"):
        as_numbers(np.array(["2000-01-01", "NaT"], "M8[ns]"), "time")
    gp = HarmonicGPGlobe(progress=False).fit(slices())
    with pytest.raises(ValueError, match="fitted to times along 'time'; these are numbers"):
        gp.predict(slices().assign_coords(time=[1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="places without coordinates"):
        gp.predict(slices().drop_vars("time"))
    with pytest.raises(ValueError, match="a dimension or a single value"):
        gp.predict(field(30.0).assign_coords(time=("lat", DAYS.repeat(2))))


@pytest.mark.parametrize("unit", [1e-140, 1e-30, 1e30, 1e140])
def test_units_do_not_matter(unit):
    expected = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(field(30.0)).predict(return_std=True)
    found = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(unit * field(30.0)).predict(return_std=True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a / unit, b, rtol=1e-3, atol=1e-3)


def test_numbers_that_cannot_be():
    for unit, words in ((1e170, "divide them"), (1e-200, "multiply them")):
        with pytest.raises(ValueError, match=words):
            HarmonicGPGlobe().fit(unit * field(30.0))
    gp = HarmonicGPGlobe(**GIVEN).fit(field(30.0))
    X = np.array([[0.0, 0.0], [50.0, 10.0]])
    for call, words in (
        (lambda: gp.spectrum([np.nan]), "latitudes"),
        (lambda: gp.spectrum([200.0]), "latitudes"),
        (lambda: gp.scores(X, np.zeros((2, 1))), "finite numbers"),
        (lambda: gp.scores(X, [0.0, np.nan]), "finite numbers"),
        (lambda: gp.sample(n_samples=0), "n_samples"),
        (lambda: gp.components(frequencies=[0.7]), "frequencies"),
        (lambda: HarmonicGPGlobe(lengthscale="a").fit(field(30.0)), "lengthscale"),
        (lambda: HarmonicGPGlobe(n_inducing=None).fit(field(30.0)), "n_inducing"),
        (lambda: HarmonicGPGlobe(max_evaluations="a").fit(field(30.0)), "max_evaluations"),
        (lambda: HarmonicGPGlobe(by=["time"]).fit(slices()), "by must be"),
        (lambda: HarmonicGPGlobe(by="foo").fit(slices()), "no dimension 'foo'"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            call()


def test_frames_say_which_column_is_which():
    X, _, y = region(60)
    frame = pandas.DataFrame({"lat": X[:, 1], "lon": X[:, 0]})
    a, b = (HarmonicGPGlobe(**GIVEN).fit(given, y).predict(X) for given in (frame, X))
    np.testing.assert_allclose(a, b)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, tensors: header.update(scale=-1.0),
        lambda header, tensors: header.update(groups=[]),
        lambda header, tensors: header.update(groups=[[7]]),
        lambda header, tensors: header["model"].update(m=3),
        lambda header, tensors: header["model"].update(s2=-1.0),
        lambda header, tensors: header["plain"].update(noise_std_="a"),
        lambda header, tensors: header.update(mean="field"),
        lambda header, tensors: header["source"].update(dims=["lat"]),
        lambda header, tensors: tensors.update({"0.mean": tensors["0.mean"][..., :1]}),
        lambda header, tensors: tensors.update({"0.mean": tensors["0.mean"] * np.nan}),
        lambda header, tensors: tensors.update({"mean.coefficients": tensors["mean.coefficients"][:1]}),
    ],
)
def test_edited_files_are_refused(change, tmp_path):
    path = tmp_path / "model.hgp"
    HarmonicGPGlobe(**GIVEN).fit(field(30.0)).save(path)
    container = read_container(path, KIND, FORMAT)
    header, tensors = dict(container.header), dict(container.tensors)
    change(header, tensors)
    write_container(path, KIND, FORMAT, header, tensors)
    with pytest.raises(ModelFileError):
        HarmonicGPGlobe.load(path)


def test_zero_is_not_the_middle_of_kelvins(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("harmonicgp.globe.maps.draw_maps", lambda path, lon, lat, panels: drawn.append(panels[0].kind))
    for offset in (0.0, 273.15):
        data = field(30.0) - 5.0 + offset
        HarmonicGPGlobe(**GIVEN).fit(data).plot(tmp_path / "map.png")
    assert drawn == ["signed", "positive"]
