"""Inputs with a symmetry, rows of a search, and settings without an estimator, for the tests of this room."""

from __future__ import annotations

import time

import numpy as np
import torch
from sklearn.base import BaseEstimator

from harmonicgp.actions import ImageFlip, Longitude, Negation, Permutation, Rotation, Translation
from harmonicgp.symmetry.options import RegressionOptions
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.preprocessing import RegressionPreprocessing


def cloud(kind, n=1000, seed=0):
    """Inputs that an action maps to themselves, and the action."""
    rng = np.random.default_rng(seed)
    if kind == "negation":
        return rng.gamma(2.0, size=(n, 3)) * rng.choice([-1, 1], (n, 1)), Negation()
    if kind == "rotation":
        angle, radius = 2 * np.pi * (rng.integers(5, size=n) + 0.2 * rng.random(n)) / 5, 1 + rng.random(n)
        return np.column_stack((radius * np.cos(angle), radius * np.sin(angle), rng.gamma(1.0, size=n))), Rotation(
            (0, 1), 5
        )
    if kind == "permutation":
        return rng.gamma(2.0, size=(n, 1)) + rng.gamma(2.0, size=(n, 3)), Permutation([1, 2, 0])
    if kind == "translation":
        return np.column_stack((rng.integers(24, size=n), rng.gamma(1.0, size=n))), Translation(0, 24.0, 8)
    if kind == "longitude":
        return np.column_stack((rng.uniform(-180, 180, n), rng.uniform(20, 60, n))), Longitude(12)
    images = rng.gamma(1.0, size=(n, 4, 4))
    images[:, 0] *= 3
    flip = rng.random(n) < 0.5
    return np.where(flip[:, None, None], images[:, ::-1], images).reshape(n, 16), ImageFlip((4, 4), (0,))


KINDS = ("negation", "rotation", "permutation", "translation", "longitude", "flip")


def row(name, blocks, number, bound, p=None, **more):
    """A row of a search."""
    return {"name": name, "blocks": blocks, "n_inducing": 9, "round": number, "bound": bound, "p_value": p,
            "residual": 0.1 / number, "warp": False, "posterior": "block", "finish": "block", "chosen": False} | more  # fmt: skip


def lumps(n=400, seed=0):
    rng = np.random.default_rng(seed)
    angle, radius = 2 * np.pi * (rng.integers(5, size=n) + 0.2 * rng.random(n)) / 5, 1 + rng.random(n)
    return radius * np.cos(angle), radius * np.sin(angle), rng


def stations(rng, places=60, hours=24):
    """Two coordinates of each station, and an hour and a reading of each measurement."""
    at = np.repeat(rng.normal(size=(places, 2)), hours, 0)
    return np.column_stack((at, np.tile(np.arange(float(hours)), places), rng.gamma(2.0, size=len(at))))


def standardised(X):
    return torch.from_numpy((X - X.mean(0)) / X.std(0))


def prepared(n=300, **arguments):
    X = np.random.default_rng(0).normal(size=(n, 2))
    options = RegressionOptions(progress=False, **arguments)
    preprocessing, rows = RegressionPreprocessing.fit(X, np.sin(X[:, 0]), BaseEstimator(), columns=options.columns)
    data = preprocessing.model_rows(rows)
    return data, ModelSettings.of(options, preprocessing, len(data), time.perf_counter())
