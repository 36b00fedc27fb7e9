"""Mean functions: constant, linear, and a given field."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.globe import HarmonicGPGlobe
from harmonicgp.globe.mean import MeanFunction, linear_basis
from tests.globe.common import QUICK, field, holes, truth, xarray


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


LATITUDES, LONGITUDES = np.arange(-85.0, 90, 10), np.arange(-180.0, 180, 10)
PLACES = LATITUDES[:, None], LONGITUDES[None, :]


def planes(latitudes, longitudes):
    p, q = np.deg2rad(latitudes), np.deg2rad(longitudes)
    return 2.0 - np.cos(p) * np.cos(q) + 0.5 * np.cos(p) * np.sin(q) + 3 * np.sin(p)


def test_a_linear_mean_is_found_again_from_some_of_the_cells():
    values = np.stack([planes(*PLACES)] * 2)
    values[np.random.default_rng(0).random(values.shape) < 0.6] = np.nan
    mean = MeanFunction.of("linear", *PLACES, values)
    np.testing.assert_allclose(mean.coefficients, [2.0, -1.0, 0.5, 3.0], atol=1e-10)
    np.testing.assert_allclose(mean(33.3, np.array([-179.0, 500.0])), planes(33.3, np.array([-179.0, 500.0])))


def test_a_linear_mean_weighs_a_place_by_its_slices():
    """The least squares of all values, wherever some are missing."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 18, 36))
    values[1:, :9] = np.nan
    mean = MeanFunction.of("linear", *PLACES, values)
    basis = np.stack([linear_basis(*PLACES)] * 3)[np.isfinite(values)]
    np.testing.assert_allclose(
        mean.coefficients, np.linalg.lstsq(basis, values[np.isfinite(values)], rcond=None)[0], atol=1e-10
    )
    constant = MeanFunction.of("constant", *PLACES, values)
    np.testing.assert_allclose(constant(*PLACES), np.full((18, 36), np.nanmean(values)))


def test_a_field_is_interpolated_across_the_date_line_and_goes_on_beyond_its_edge():
    values = np.random.default_rng(2).normal(size=(18, 36))
    data = xarray.DataArray(values, {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"))
    mean = MeanFunction.of(data, *PLACES, values[None])
    np.testing.assert_allclose(mean(*PLACES), values, atol=1e-12)
    np.testing.assert_allclose(mean(LATITUDES, 175.0), 0.5 * (values[:, -1] + values[:, 0]), atol=1e-12)
    np.testing.assert_allclose(mean(LATITUDES, 535.0), mean(LATITUDES, 175.0), atol=1e-12)
    np.testing.assert_allclose(mean(-90.0, LONGITUDES), values[0], atol=1e-12)
    np.testing.assert_allclose(mean(-80.0, LONGITUDES), 0.5 * (values[0] + values[1]), atol=1e-12)
    region = MeanFunction.of(data[:, 10:15], *PLACES, values[None])
    np.testing.assert_allclose(region(LATITUDES, -100.0), values[:, 10], atol=1e-12)  # west of the region
    np.testing.assert_allclose(region(LATITUDES, 0.0), values[:, 14], atol=1e-12)


@pytest.mark.parametrize("kind", ["constant", "linear", "field"])
def test_mean_functions_come_back_from_their_tensors(kind):
    values = planes(*PLACES)[None]
    data = xarray.DataArray(values[0], {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"))
    mean = MeanFunction.of(data if kind == "field" else kind, *PLACES, values)
    again = MeanFunction.from_tensors(mean.kind, mean.tensors())
    np.testing.assert_array_equal(again(12.3, LONGITUDES), mean(12.3, LONGITUDES))


def test_what_is_no_mean_function_is_refused():
    values = np.zeros((1, 18, 36))
    data = xarray.DataArray(values[0], {"lat": LATITUDES, "lon": LONGITUDES}, ("lat", "lon"))
    for mean, words in (
        ("quadratic", 'must be "constant", "linear"'),
        (None, "or a DataArray"),
        (data.where(data.lat > 0), "without missing cells"),
        (xarray.concat([data, data], "time"), "one map"),
    ):
        with pytest.raises(ValueError, match=words):
            MeanFunction.of(mean, *PLACES, values)
    with pytest.raises(ValueError, match="does not have these coefficients"):
        MeanFunction("field", np.zeros(4))
