"""Reading fields: bad input is right or says what to do."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.planes.reading import read_region, read_target
from tests.planes.common import scene, xarray


def read(data, y=None, noise=None, by=None):
    return read_region(data, y, noise, by, "auto")


def moved(data, x):
    return data.assign_coords(x=("x", x, {"units": "m"}))


def test_a_scene():
    found = read(scene())
    assert (found.shape, found.steps) == ((24, 30), (50.0, 50.0))
    assert (found.name, found.units) == ("height", "K")
    assert np.nanmax(np.abs(found.frame.select(found.values)[0] - scene().values)) == 0.0


def test_single_dimensions_are_dropped():
    found = read(scene().expand_dims(band=[1]))
    assert found.shape == (24, 30)
    assert found.frame.dims == ("y", "x")


def test_irregular_spacing_becomes_points_and_gaps_are_filled():
    data = scene()
    gone = read(data.isel(x=[0, 1, 2, 5, 6, 7, 8]))
    assert gone.shape == (24, 9)
    assert "added as missing" in gone.notes[0]
    x = data.x.values.copy()
    x[10:] += 17.3
    uneven = read(data.assign_coords(x=("x", x, {"units": "m"})))
    assert uneven.shape is None
    assert "x unevenly spaced" in uneven.notes[0]
    assert len(uneven.X) == data.size


def test_longitudes_across_the_date_line():
    data = scene(lat=50 + 0.1 * np.arange(24), lon=np.mod(178.5 + 0.1 * np.arange(30) + 180, 360) - 180)
    found = read(data)
    assert found.shape == (24, 30)
    assert found.steps[1] == pytest.approx(11.1195 * np.cos(np.deg2rad(51.15)), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            lambda d: d.assign_coords(x=np.where(np.arange(30) == 3, np.nan, d.x)),
            ValueError,
            "'x' is nan at position 3",
        ),
        (lambda d: moved(d, np.where(np.arange(30) == 3, d.x[4], d.x)), ValueError, "repeated value"),
        (lambda d: d.assign_coords(x=[f"c{i}" for i in range(30)]), TypeError, "numbers or dates"),
        (lambda d: d.rename(y="lon", x="lat").assign_coords(lat=np.linspace(100, 130, 30)), ValueError, "swapped"),
        (lambda d: d.astype(str), TypeError, "must be real numbers"),
        (lambda d: d * np.nan, ValueError, "no value"),
        (lambda d: d.where(np.isfinite(d), np.inf), ValueError, "infinite"),
        (lambda d: d.expand_dims(a=[0, 1], b=[0, 1]), ValueError, "one to three axes"),
    ],
)
def test_bad_grids(change, error, words):
    with pytest.raises(error, match=words):
        read(change(scene()))


def test_bad_points():
    X = np.random.default_rng(0).random((5, 2))
    with pytest.raises(ValueError, match="5 points; got shape"):
        read(X, np.ones(4))
    with pytest.raises(ValueError, match="not finite: drop"):
        read(X, np.array([1, 2, 3, 4, np.nan]))
    with pytest.raises(ValueError, match="points have none"):
        read(X, np.ones(5), by="time")
    with pytest.raises(TypeError, match="fit\\(X, y\\)"):
        read("scene.nc")
    with pytest.raises(ValueError, match="noise_std must be one number"):
        read(X, np.ones(5), np.ones(3))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="name them lon and lat"):
        read(pandas.DataFrame(X, columns=["a", "b"]), np.ones(5))


def test_bad_datasets_and_errors():
    both = xarray.Dataset({"a": scene(), "b": scene()})
    with pytest.raises(ValueError, match="name the target"):
        read(both)
    with pytest.raises(ValueError, match="covariate 'b' is missing"):
        read(both, "a")
    with pytest.raises(ValueError, match="shape of the data"):
        read(scene(), noise=np.ones(3))
    with pytest.raises(ValueError, match="slice 0"):
        read(xarray.concat([scene() * np.nan, scene()], "time"), by="time")


def test_repeated_points_are_scattered():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    assert read(X, np.arange(4.0)).shape is None


def test_targets():
    plane = read(scene()).plane
    target = read_target((np.arange(3.0), np.arange(2.0)), plane, (), "auto")
    assert target.points.shape == (6, 2)
    assert target.frame.dims == ("y", "x")
    with pytest.raises(ValueError, match="give 2 axes"):
        read_target((np.arange(3.0),), plane, (), "auto")
    with pytest.raises(ValueError, match="points are"):
        read_target(np.ones((3, 3)), plane, (), "auto")
