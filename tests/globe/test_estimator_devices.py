"""A fit of a field makes every tensor on its own device, whatever the default device is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.globe import HarmonicGPGlobe
from tests.globe.common import field, holes, xarray

QUICK = {"max_evaluations": 3, "progress": False}


def points():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(-180, 180, 60), rng.uniform(-80, 80, 60)))
    return X, np.cos(np.deg2rad(X[:, 1])) + 0.1 * rng.normal(size=60)


def maps():
    data = xarray.concat([holes(field(20.0)), field(20.0, seed=1)], "time")
    return data, None, xarray.full_like(data, 0.2)


CASES = {
    "map": (QUICK, lambda: (holes(field(20.0)),)),
    "whole map": ({"kernel": "matern32", "posterior": "block", **QUICK}, lambda: (field(20.0),)),
    "slices": ({"kernel": "rbf", "by": "time", "posterior": "joint", **QUICK}, maps),
    "points": ({"n_inducing": 6, "t_max": 4, **QUICK}, points),
    "cells": ({"kernel": "rbf", "n_inducing": 12, **QUICK}, lambda: (maps()[0],)),
}


def answers(name, path):
    """Predictions, draws and components of a fit, before and after it was saved."""
    options, data = CASES[name]
    gp = HarmonicGPGlobe(**options).fit(*data())
    where = points()[0] if name == "points" else None
    parts = [*gp.predict(where, return_std=True)]
    if name != "points":
        parts.append(gp.sample(n_samples=2))
    if name != "cells":
        parts += [gp.spectrum(), gp.components((np.arange(0.0, 360, 90), np.array([-45.0, 10.0])))]
    gp.save(path)
    parts += HarmonicGPGlobe.load(path).predict(where, return_std=True)
    return [np.asarray(part) for part in parts]


@pytest.mark.parametrize("name", CASES)
def test_the_default_device_does_not_matter(name, tmp_path):
    expected = answers(name, tmp_path / "expected.hgp")
    torch.set_default_device("meta")
    try:
        found = answers(name, tmp_path / "found.hgp")
    finally:
        torch.set_default_device(None)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
