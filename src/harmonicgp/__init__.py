"""Gaussian processes for 10^4 to 10^7 rows, by the harmonic decomposition of symmetric kernels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from harmonicgp._version import __version__
from harmonicgp.groups import Cyclic, Group

if TYPE_CHECKING:
    from harmonicgp.estimators import HarmonicGPClassifier, HarmonicGPRegressor, load_model

__all__ = ["Cyclic", "Group", "HarmonicGPClassifier", "HarmonicGPRegressor", "__version__", "load_model"]

_ESTIMATORS = ("HarmonicGPClassifier", "HarmonicGPRegressor", "load_model")

_SUBMODULES = (
    "actions",
    "diagnostics",
    "estimators",
    "features",
    "inducing",
    "inference",
    "kernels",
    "likelihoods",
    "testing",
    "training",
)


def __getattr__(name: str) -> Any:
    """Submodules and estimators on first use: importing the library stays quick."""
    if name in _ESTIMATORS:
        return getattr(importlib.import_module("harmonicgp.estimators"), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"harmonicgp.{name}")
    raise AttributeError(f"module 'harmonicgp' has no attribute {name!r}")
