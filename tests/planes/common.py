"""Small fields for tests."""

from __future__ import annotations

import numpy as np
import pytest

xarray = pytest.importorskip("xarray")

QUICK = {"kernel": "matern32", "progress": False}


def truth(x, y):
    return 10 + np.sin(x / 4) + np.cos(y / 5)


def scene(shape=(24, 30), holes=0.3, noise=0.05, seed=0, name="height", **coords):
    """A field on a plane in metres, with scattered holes and a cloud."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]].astype(float)
    values = truth(rows, columns) + noise * rng.normal(size=shape)
    values[rng.random(shape) < holes] = np.nan
    values[6:10, 8:13] = np.nan
    coords = coords or {"y": 50.0 * np.arange(shape[0])[::-1], "x": 4e5 + 50.0 * np.arange(shape[1])}
    field = xarray.DataArray(values, coords, tuple(coords), name=name, attrs={"units": "K"})
    for dim in coords:
        if dim in ("x", "y"):
            field[dim].attrs["units"] = "m"
    return field


def full(field):
    """The truth at the cells of a scene."""
    rows, columns = np.mgrid[: field.shape[0], : field.shape[1]].astype(float)
    return field.copy(data=truth(rows, columns))
