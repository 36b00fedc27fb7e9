"""Uneven grids and slices through a fitted plane."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPField
from tests.planes.common import QUICK, full, scene, xarray


def test_an_uneven_grid_is_predicted_on_itself(tmp_path):
    data = scene()
    x = data.x.values.copy()
    x[10:] += 17.3
    data = data.assign_coords(x=("x", x, {"units": "m"}))
    gp = HarmonicGPField(**QUICK).fit(data)
    mean, _std = gp.predict(return_std=True)
    assert mean.dims == data.dims
    np.testing.assert_array_equal(mean.x, x)
    assert float(np.abs(mean - full(data)).mean()) < 0.1
    gp.save(tmp_path / "m.hgp")
    xarray.testing.assert_allclose(HarmonicGPField.load(tmp_path / "m.hgp").predict(), mean)
    gp.plot(tmp_path / "m.png")
    several = xarray.concat([data, data.where(data.y > 300)], "time")
    with pytest.raises(ValueError, match="same missing cells"):
        HarmonicGPField(by="time", **QUICK).fit(several)


def test_exactness_and_lengthscales_are_known():
    gp = HarmonicGPField(**QUICK).fit(scene())
    assert gp.field_.is_exact
    assert set(gp.field_.lengthscales()) == {"x", "y"}
