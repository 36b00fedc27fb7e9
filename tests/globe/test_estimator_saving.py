"""Model files of version 1: those written before the estimator was composed of parts still load with equal predictions.

`python -m tests.globe.test_estimator_saving` wrote `globe-v1-*.hgp` and `globe-v1.json`. A released format is never written
again: a new version gets new files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.estimator import FORMAT, KIND
from harmonicgp.io.container import read_container, write_container

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")

HERE = Path(__file__).parent
LAT, LON = np.arange(75.0, -90.0, -30.0), np.arange(-180.0, 180.0, 30.0)
DAYS = np.array(["2020-01-01", "2020-01-03", "2020-01-09"], "M8[ns]")
WHERE = (np.array([-170.0, -60.0, 15.5, 120.0]), np.array([-89.0, -15.0, 15.0, 62.5]))
POINTS = np.array([[-180.0, -75.0], [0.0, 15.0], [33.3, 41.7], [179.0, 90.0]])
SMALL = {"kernel": "rbf", "lengthscale": 0.4, "t_max": 3, "n_inducing": 5, "dtype": "float64", "progress": False}


def waves(lon, lat, day=0.0):
    p, q = np.deg2rad(lat), np.deg2rad(lon) - 0.1 * day
    return 4.0 + np.sin(p) + np.cos(p) * np.cos(q) + 0.5 * np.cos(p) ** 2 * np.sin(2 * q)


def a_map(day=0.0, seed=0):
    values = waves(LON[None], LAT[:, None], day) + 0.1 * np.random.default_rng(seed).normal(size=(len(LAT), len(LON)))
    return xarray.DataArray(values, {"lat": LAT, "lon": LON}, ("lat", "lon"), name="heat", attrs={"units": "K"})


def over_time():
    return xarray.concat([a_map(3.0 * k, k) for k in range(3)], "time").assign_coords(time=DAYS)


def with_depth():
    depth = a_map(seed=9).rename("depth") - 4.0
    depth[0, 0] = np.nan
    return xarray.Dataset({"heat": a_map() + depth.fillna(0.0), "depth": depth})


def fit_grid():
    data = a_map()
    data[2:4, 3:8] = np.nan
    mean = xarray.DataArray(0.7 * waves(LON[None], LAT[:, None]), {"lat": LAT, "lon": LON}, ("lat", "lon"))
    return HarmonicGPGlobe(**SMALL, posterior="joint", mean=mean).fit(data)


def fit_slices():
    return HarmonicGPGlobe(**SMALL, by="time", mean="linear").fit(over_time().where(lambda x: x > 2.8))


def fit_points():
    rng = np.random.default_rng(4)
    X = np.column_stack((rng.uniform(-180, 180, 80), rng.uniform(-85, 85, 80)))
    return HarmonicGPGlobe(**SMALL).fit(X, waves(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=80))


def fit_cells():
    return HarmonicGPGlobe(kernel="rbf", n_inducing=12, dtype="float64", progress=False).fit(with_depth(), "heat")


CASES = {"grid": fit_grid, "slices": fit_slices, "points": fit_points, "cells": fit_cells}


def predictions(name, gp):
    """What a model predicts, as lists of numbers."""
    points = np.column_stack((POINTS, [0.2, -0.3, 0.0, 0.9])) if name == "cells" else POINTS
    answers = {"points": gp.predict(points, return_std=True)}
    if name != "cells":
        answers |= {"elsewhere": gp.predict_f(WHERE, return_std=True), "spectrum": (gp.spectrum(),)}
    if name == "slices":
        answers["one"] = gp.predict(over_time().isel(time=1), return_std=True)
    if name in ("grid", "slices"):
        answers["here"] = gp.predict(return_std=True)
    if name == "cells":
        answers["here"] = gp.predict(with_depth(), return_std=True)
    plain = {key: [np.asarray(part).ravel().tolist() for part in parts] for key, parts in answers.items()}
    return plain | {"noise": gp.noise_std_, "bound": gp.elbo_, "inputs": gp.inputs_}


@pytest.mark.parametrize("name", CASES)
def test_files_of_version_1_predict_the_same(name):
    expected = json.loads((HERE / "globe-v1.json").read_text())[name]
    actual = predictions(name, HarmonicGPGlobe.load(HERE / f"globe-v1-{name}.hgp"))
    assert actual.keys() == expected.keys()
    assert actual.pop("inputs") == expected.pop("inputs")
    for key, value in expected.items():
        np.testing.assert_allclose(np.array(actual[key]), np.array(value), rtol=1e-9, err_msg=key)


def write() -> None:
    """Write the files and what they predict.

    GPyTorch rounds hyper-parameters to the default dtype, float32, when they are set. The header gets the rounded numbers, so
    that the predictions do not depend on the default dtype.
    """
    said = {}
    for name, fit in CASES.items():
        path = HERE / f"globe-v1-{name}.hgp"
        fit().save(path)
        container = read_container(path, KIND, FORMAT)
        if "model" in container.header:
            model = container.header["model"]
            model |= {key: float(np.float32(model[key])) for key in ("lengthscale", "scale")}
            write_container(path, KIND, FORMAT, container.header, container.tensors)
        said[name] = predictions(name, HarmonicGPGlobe.load(path))
    (HERE / "globe-v1.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    write()
