"""Data of any kind are read into maps, points or cells."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.fields import Points
from harmonicgp.globe.grids import GridData
from harmonicgp.globe.reading import read
from tests.globe.common import GIVEN, field, travelling, with_depth, xarray


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
    assert isinstance(scattered, Points)
    np.testing.assert_array_equal(scattered.noise, np.full(72, 0.25))
    assert isinstance(read(travelling(), None, None, None), CellTable)
    cells = read(with_depth(), "heat", 0.5, None)
    assert cells.inputs.names == ["longitude", "latitude", "depth"]
    assert cells.grid.noise.shape == cells.grid.values.shape


def test_one_dimension_beside_the_slices_does_no_harm():
    data = xarray.concat([field(30.0), field(30.0, seed=1)], "time").assign_coords(time=[3, 5]).expand_dims(depth=[0.0])
    gp = HarmonicGPGlobe(**GIVEN, by="time", progress=False).fit(data)
    xarray.testing.assert_equal(gp.predict(data), gp.predict())


def test_the_globe_imports_nothing_of_the_rooms_above_it():
    code = "import sys, harmonicgp.globe; print([m for m in sys.modules if m.startswith('harmonicgp.report')])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
