"""Coordinates: kinds and units by CF attributes, planes, lattices, and bad input."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.planes.coordinates import Coordinate, Lattice, Plane, geographic_extent, middle_longitude

FLOAT = np.dtype(float)


@pytest.mark.parametrize(
    ("name", "attrs", "kind"),
    [
        ("lon", {}, "longitude"),
        ("Latitude", {"units": "degrees_north"}, "latitude"),
        ("a", {"units": "degrees_east"}, "longitude"),
        ("a", {"standard_name": "latitude"}, "latitude"),
        ("lon", {"units": "m"}, "length"),
        ("x", {}, "length"),
        ("a", {"standard_name": "projection_x_coordinate", "units": "m"}, "length"),
        ("a", {"units": "km"}, "length"),
        ("a", {"axis": "Y"}, "length"),
        ("time", {"units": "days since 2000-01-01"}, "time"),
        ("channel", {}, "number"),
    ],
)
def test_kinds(name, attrs, kind):
    assert Coordinate.of(name, FLOAT, attrs).kind == kind


def test_dates_are_days_and_text_is_refused():
    dates = np.array(["2000-01-01", "2000-01-03T12"], "M8[h]")
    assert Coordinate.of("t", dates.dtype, {}).numbers(dates).tolist() == [0.0, 2.5]
    with pytest.raises(TypeError, match="numbers or dates"):
        Coordinate.of("t", np.dtype("U3"), {})
    with pytest.raises(ValueError, match="missing date"):
        Coordinate("t", "time").numbers(np.array(["NaT"], "M8[D]"))


def test_bad_coordinates_say_what_to_do():
    with pytest.raises(ValueError, match=r"'x' is nan at position 1: drop"):
        Coordinate("x", "length").numbers([0.0, np.nan])
    with pytest.raises(ValueError, match="swapped"):
        Coordinate("lat", "latitude").numbers([0.0, 120.0])
    with pytest.raises(ValueError, match="in metres"):
        Coordinate("lon", "longitude").numbers([4e5])
    with pytest.raises(ValueError, match="mixed units: 'x' in m, 'y' in no units"):
        Plane.of([Coordinate("x", "length", "m"), Coordinate("y", "length")], np.ones((1, 2)))
    with pytest.raises(ValueError, match="mixed coordinates"):
        Plane.of([Coordinate("lon", "longitude", "degrees"), Coordinate("y", "length", "m")], np.ones((1, 2)))
    with pytest.raises(ValueError, match="one to three axes"):
        Plane.of([Coordinate(name, "number") for name in "abcd"], np.ones((1, 4)))
    with pytest.raises(ValueError, match="1 repeated value"):
        Lattice.of(np.array([0.0, 1.0, 1.0]), "x")


def test_the_plane_of_degrees_is_in_kilometres():
    found = [Coordinate("lat", "latitude", "degrees"), Coordinate("lon", "longitude", "degrees")]
    plane = Plane.of(found, np.array([[59.0, 179.0], [61.0, -179.0]]))
    assert plane.units == ("km", "km")
    np.testing.assert_allclose(plane(np.array([[60.0, 180.0], [61.0, -179.0]])), [[0, 0], [111.195, 55.6]], atol=0.01)
    again = Plane.from_state(plane.state())
    assert again == plane
    with pytest.raises(ValueError, match="do not fit"):
        Plane.from_state(plane.state() | {"factors": [float("nan"), 1.0]})


def test_extent_on_the_circle():
    found = [Coordinate("lon", "longitude"), Coordinate("lat", "latitude")]
    span, steepness = geographic_extent(found, np.array([[350.0, 50.0], [5.0, 60.0], [-5.0, 55.0]]))
    assert (span, round(steepness, 2)) == (15.0, 1.29)
    span, steepness = geographic_extent(found, np.stack((np.arange(0, 360, 10.0), np.linspace(-80, 80, 36)), 1))
    assert span == 350.0
    assert steepness > 5
    assert geographic_extent([Coordinate("x", "length")], np.ones((3, 1))) is None
    assert middle_longitude(np.array([350.0, 10.0])) == 0.0


def test_lattices():
    even = Lattice.of(np.float32(10.0) + np.float32(0.009) * np.arange(500, dtype=np.float32)[::-1], "x")
    assert even.size == 500
    assert even.index[0] == 499
    gaps = Lattice.of(np.array([0.0, 1.0, 3.0, 4.0]), "x")
    assert (gaps.step, gaps.size, gaps.index.tolist()) == (1.0, 5, [0, 1, 3, 4])
    assert Lattice.of(np.array([0.0, 1.0, 2.3, 4.0]), "x") is None
    assert Lattice.of(np.random.default_rng(0).random(50), "x") is None
    assert Lattice.of(np.array([5.0]), "x").size == 1
