"""Pictures of every form of field."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPField
from tests.planes.common import QUICK, scene, truth, xarray

pytest.importorskip("matplotlib")


def size(path):
    import matplotlib.image

    return matplotlib.image.imread(path).shape[:2]


@pytest.mark.parametrize("form", ["metres", "degrees", "array", "line", "cube", "points", "slices"])
def test_pictures(form, tmp_path):
    rng = np.random.default_rng(0)
    gp, path = HarmonicGPField(by="time" if form == "slices" else None, **QUICK), tmp_path / "map.png"
    if form == "points":
        X = rng.uniform(0, 30, (150, 2))
        gp.fit(X, truth(*X.T))
    elif form == "line":
        gp.fit(scene()[:, 3])
    elif form == "cube":
        gp.fit(rng.normal(size=(4, 6, 5)))
    elif form == "degrees":
        gp.fit(scene(lat=50 + 0.1 * np.arange(24), lon=8 + 0.1 * np.arange(30)).transpose("lon", "lat"))
    elif form == "slices":
        gp.fit(xarray.concat([scene(), scene(seed=1)], "time"))
    else:
        gp.fit(scene() if form == "metres" else scene().values)
    gp.plot(path)
    height, width = size(path)
    assert height > 300
    assert width > 600
