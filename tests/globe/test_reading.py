"""The parts of the estimator, each alone: options, reading, places, and what a fitted field refuses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.fitted_cells import FittedCells
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.fitting import fit_maps
from harmonicgp.globe.grids import GridData
from harmonicgp.globe.options import KERNELS, RULES, Options
from harmonicgp.globe.places import Source
from harmonicgp.globe.reading import PointData, read
from harmonicgp.kernels.profiles import NAMED_PROFILES
from tests.globe.test_cells import travelling, with_depth
from tests.globe.test_estimator import field

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")

GIVEN = {"kernel": "rbf", "lengthscale": 0.6, "field_std": 2.0, "noise_level": 0.1, "t_max": 3, "n_inducing": 5}


def options(**change):
    return Options.of(HarmonicGPGlobe(**{"progress": False, **change}).get_params())


def test_every_argument_has_a_rule():
    free = {"mean", "random_state", "progress"}  # the mean is checked when it is read
    assert RULES.keys() | free == HarmonicGPGlobe().get_params().keys()
    assert set(KERNELS) <= NAMED_PROFILES.keys()
    assert options(n_inducing=7.0).n_inducing == 7
    assert options().t_max is None
    assert options(device="auto").torch_device().type in ("cpu", "cuda")
    for name in RULES:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            options(**{name: -1.5})


def test_data_are_read_into_one_of_three_values():
    data = field(30.0)
    maps = read(data, None, 0.5, None)
    assert isinstance(maps, GridData)
    assert maps.values.shape == (1, 6, 12)
    np.testing.assert_array_equal(maps.noise, np.full((1, 6, 12), 0.25))
    slices = read(xarray.concat([data, data], "time"), None, None, "time")
    assert isinstance(slices, GridData)
    assert slices.template.extra == ("time",)
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    X = np.column_stack((lon.ravel(), lat.ravel()))
    found = read(X, data.values.ravel(), None, None)
    assert isinstance(found, GridData)
    assert found.template is None
    np.testing.assert_array_equal(found.values, maps.values)
    scattered = read(X + np.random.default_rng(0).uniform(0, 5, X.shape), data.values.ravel(), 0.5, None)
    assert isinstance(scattered, PointData)
    np.testing.assert_array_equal(scattered.noise, np.full(72, 0.25))
    assert isinstance(read(travelling(), None, None, None), CellTable)
    cells = read(with_depth(), "heat", 0.5, None)
    assert cells.inputs.names == ["longitude", "latitude", "depth"]
    assert cells.noise.shape == cells.grid.values.shape


def test_results_get_the_labels_of_their_place():
    data = xarray.concat([field(30.0), field(30.0)], "time").assign_coords(time=[3, 5]).transpose("lon", "time", "lat")
    source = Source.of(read(data, None, None, "time"), "time")
    values = np.arange(2.0 * 6 * 12).reshape(2, 6, 12)
    whole = source.place(data).labelled(values, "x", "m", "words")
    assert whole.dims == data.dims
    np.testing.assert_array_equal(whole.transpose("time", "lat", "lon"), values)
    one = source.place(data.sel(time=5))
    assert one.slices == [1]
    single = one.labelled(values[1:], "x", None, "words")
    assert single.dims == ("lon", "lat")
    assert int(single.time) == 5
    drawn = source.place(None).labelled(np.stack([values] * 3), "x", None, "words", ("sample", np.arange(3)))
    assert drawn.dims == ("sample", "time", "lon", "lat")
    np.testing.assert_array_equal(drawn.isel(sample=2).transpose("time", "lat", "lon"), values)


def test_a_fitted_field_works_without_the_estimator():
    data = field(30.0)
    maps, attributes = fit_maps(read(data, None, None, None), options(**GIVEN))
    assert attributes.keys() == {"history_", "kernels_", "residual_share_", "elbo_", "notes_"}
    place = maps.place(None)
    mean, variance = maps.on_grid(place, True)
    gp = HarmonicGPGlobe(**GIVEN, progress=False).fit(data)
    expected, std = gp.predict_f(return_std=True)
    np.testing.assert_array_equal(mean[0], expected)
    np.testing.assert_array_equal(np.sqrt(variance[0]), std)
    header, tensors = maps.state()
    again = FittedMaps.from_state(header, tensors, options(**GIVEN))
    np.testing.assert_allclose(again.on_grid(place, False)[0], mean, atol=1e-12)


def test_cells_refuse_what_only_maps_have():
    cells = FittedCells(None, None, CellTable.of(travelling(), {}).inputs, None)
    for call in (lambda: cells.frequencies(None), lambda: cells.components(None, [0]), lambda: cells.spectrum(None)):
        with pytest.raises(ValueError, match="maps alone: this field has the further inputs time"):
            call()


def test_one_dimension_beside_the_slices_does_no_harm():
    data = xarray.concat([field(30.0), field(30.0, seed=1)], "time").assign_coords(time=[3, 5]).expand_dims(depth=[0.0])
    gp = HarmonicGPGlobe(**GIVEN, by="time", progress=False).fit(data)
    xarray.testing.assert_equal(gp.predict(data), gp.predict())


def test_the_globe_imports_nothing_of_the_rooms_above_it():
    code = "import sys, harmonicgp.globe; print([m for m in sys.modules if m.startswith('harmonicgp.report')])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
