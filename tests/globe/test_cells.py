"""Fields with further dimensions and covariates."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe, load_model
from harmonicgp.globe.cells import CellTable, as_numbers
from harmonicgp.io.container import ModelFileError
from tests.globe.common import DAYS, LAT, LON, travelling, with_depth, xarray


@pytest.fixture(scope="module")
def over_time():
    field = travelling()
    return HarmonicGPGlobe(kernel="rbf").fit(field.where((field.time != DAYS[2]) & (field.lon != 30)))


def test_a_dimension_is_an_input(over_time):
    truth = travelling(0.0)
    assert over_time.inputs_ == ["longitude", "latitude", "time"]
    mean, std = over_time.predict(return_std=True)
    assert mean.dims == truth.dims
    assert mean.attrs["units"] == "m"
    xarray.testing.assert_equal(mean.coords["time"], truth.coords["time"])
    assert float(abs(mean - truth).max()) < 0.25
    assert float((abs(mean - truth) < 3 * std).mean()) > 0.97
    assert over_time.noise_std_ == pytest.approx(0.02, rel=0.5)
    f, f_std = over_time.predict_f(return_std=True)
    xarray.testing.assert_allclose(f, mean)
    np.testing.assert_allclose(std**2, f_std**2 + over_time.noise_std_**2, rtol=1e-6)


def test_places_between_and_single_ones(over_time):
    new = np.datetime64("2020-01-06", "ns")
    one = travelling().isel(time=0).drop_vars("time").assign_coords(time=new)
    mean = over_time.predict(one)
    assert mean.dims == ("lat", "lon")
    truth = 10 + np.cos(np.deg2rad(LAT))[:, None] * np.cos(np.deg2rad(LON) - 0.2 * 5)
    assert float(abs(mean - truth).max()) < 0.25
    grid = xarray.Dataset(coords={"lon": LON, "lat": LAT, "time": [new]})
    xarray.testing.assert_allclose(over_time.predict(grid).squeeze("time").transpose("lat", "lon"), mean)
    days = float(as_numbers(np.array([new]), "time")[0])
    points = np.column_stack((LON, np.full(12, LAT[1]), np.full(12, days)))
    np.testing.assert_allclose(over_time.predict(points), mean.sel(lat=LAT[1]), rtol=1e-6)


def test_samples_filling_scores_and_pictures(over_time, tmp_path):
    draws = over_time.sample(n_samples=50)
    assert draws.dims == ("sample", "lat", "time", "lon")
    f, std = over_time.predict_f(return_std=True)
    assert float((abs(draws.mean("sample") - f) / std).max()) < 6 / np.sqrt(50)
    field = travelling()
    filled = over_time.fill(field.where(field.time != DAYS[2]))
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled.sel(time=DAYS[0]), field.sel(time=DAYS[0]))
    scores = over_time.scores(field)
    assert scores["rmse"] < 0.1
    assert scores["coverage"] > 0.85
    over_time.plot(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000
    for call in (over_time.spectrum, over_time.components):
        with pytest.raises(ValueError, match=r"only maps of waves.*time"):
            call()


def test_saved_models_predict_the_same(over_time, tmp_path):
    path = tmp_path / "model.hgp"
    over_time.save(path)
    again = load_model(path)
    for a, b in zip(over_time.predict(return_std=True), again.predict(return_std=True), strict=True):
        xarray.testing.assert_allclose(a, b, rtol=1e-6)
    assert again.inputs_ == over_time.inputs_
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    with pytest.raises(ModelFileError):
        HarmonicGPGlobe.load(path)


def test_a_dataset_of_one_variable_is_a_map():
    data = with_depth()[["heat"]]
    gp = HarmonicGPGlobe(kernel="rbf", t_max=3, n_inducing=5, max_evaluations=4).fit(data)
    assert gp.regressor_ is None
    assert gp.inputs_ == ["longitude", "latitude"]


def test_what_is_refused(over_time):
    field, data = travelling(), with_depth()
    two = xarray.concat([field, field], "depth").assign_coords(depth=[0.0, 10.0])
    cases = (
        (lambda: HarmonicGPGlobe(by="time").fit(two), "further inputs"),
        (lambda: HarmonicGPGlobe(t_max=4).fit(field), "t_max can be given for maps"),
        (lambda: HarmonicGPGlobe(lengthscale=0.4, noise_level=1.0).fit(field), "lengthscale, noise_level can"),
        (lambda: HarmonicGPGlobe().fit(data), "fit\\(data, NAME\\) with one of heat, depth"),
        (lambda: HarmonicGPGlobe().fit(data, "cold"), "heat, depth"),
        (lambda: HarmonicGPGlobe().fit(data.assign(word=data.heat.astype(str)), "heat"), "drop word"),
        (lambda: HarmonicGPGlobe().fit(xarray.Dataset({"a": data.heat, "b": field}), "a"), "has not"),
        (lambda: HarmonicGPGlobe().fit(field.assign_coords(time=list("abcde"))), "no numbers or times"),
        (lambda: over_time.predict((LON, LAT)), "say where as a DataArray"),
        (lambda: over_time.predict(field.isel(time=0).drop_vars("time")), "coordinates along time"),
        (lambda: over_time.predict(two), "has no input depth"),
        (lambda: over_time.predict(np.zeros((3, 2))), "longitude, latitude, time"),
    )
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()


def test_rows_are_the_cells():
    field = travelling().isel(lat=slice(None, None, -1))
    field = field.pad(lon=(0, 1), mode="wrap").assign_coords(lon=np.append(LON, 180.0))
    table = CellTable.of(field, {"twice": 2 * field.isel(time=0).drop_vars("time")})
    assert table.inputs.names == ["longitude", "latitude", "time", "twice"]
    assert table.rows.shape == (6 * 12 * 5, 4)
    values = table.grid.values.ravel()
    for row in (0, 17, 99, 300):
        lon, lat, day, twice = table.rows[row]
        when = np.datetime64("2000-01-01", "ns") + np.timedelta64(int(day), "D")
        assert float(field.sel(lon=lon, lat=lat, time=when)) == values[row]
        assert float(2 * field.sel(lon=lon, lat=lat).isel(time=0)) == twice
