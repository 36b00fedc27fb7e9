"""Which way a field takes."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.planes.routes import choose_way
from tests.planes.common import scene, xarray


def grid(lat, lon):
    return xarray.DataArray(np.zeros((len(lat), len(lon))), {"lat": lat, "lon": lon}, ("lat", "lon"))


@pytest.mark.parametrize(
    ("data", "way"),
    [
        (scene(), "plane"),
        (grid(np.arange(-89.5, 90), np.arange(0.5, 360)), "globe"),
        (grid(np.arange(36.0, 60), np.arange(-10.0, 30)), "plane"),
        (grid(np.arange(40.0, 80), np.arange(-10.0, 30)), "globe"),
        (grid(np.arange(-10.0, 10), np.arange(0.0, 200)), "globe"),
        (np.zeros((3, 4)), "plane"),
    ],
)
def test_by_extent(data, way):
    found = choose_way(data, None, None, "auto", "auto")
    assert found.name == way
    assert way in found.note


def test_asked():
    globe = grid(np.arange(-89.5, 90, 10), np.arange(0.5, 360, 10))
    assert choose_way(globe, None, None, "auto", "plane").name == "plane"
    assert choose_way(globe, None, None, "plane", "auto").name == "plane"
    points = np.random.default_rng(0).uniform(-80, 80, (20, 2))
    assert choose_way(points, np.ones(20), None, "auto", "auto").name == "plane"
    assert choose_way(points, np.ones(20), None, "geographic", "auto").name == "globe"
