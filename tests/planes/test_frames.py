"""Labels of results."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.planes.frames import GridFrame, kept_attrs

pytest.importorskip("xarray")


def frame():
    values = {"y": np.array([5.0, 1.0]), "x": np.array([0.0, 1.0, 3.0]), "time": np.array(["2020-01-01"], "M8[ns]")}
    index = np.array([1, 0]), np.array([0, 1, 3])
    return GridFrame(("x", "time", "y"), ("y", "x"), values, (2, 4), index, "time", {"x": {"units": "m"}})


def test_values_go_to_the_lattice_and_back():
    values = np.arange(6.0).reshape(1, 2, 3)
    lattice = frame().on_lattice(values)
    assert lattice.shape == (1, 8)
    assert np.isnan(lattice).sum() == 2
    np.testing.assert_array_equal(frame().select(lattice), values)
    found = frame().labelled(lattice, "t", {"units": "K"})
    assert found.dims == ("x", "time", "y")
    assert float(found.sel(x=3.0, y=5.0).item()) == 2.0
    assert found.x.attrs == {"units": "m"}
    draws = frame().labelled(np.stack((lattice, lattice)), "t", {}, ("sample", np.arange(2)))
    assert draws.dims == ("sample", "x", "time", "y")


def test_state_round_trip():
    again = GridFrame.from_state(*frame().state())
    assert again.dims == frame().dims
    np.testing.assert_array_equal(again.values["time"], frame().values["time"])
    header, tensors = frame().state()
    with pytest.raises(ValueError, match="do not fit"):
        GridFrame.from_state(header | {"sizes": [1, 1]}, tensors)
    assert kept_attrs({"units": "m", "other": 1}) == {"units": "m"}
