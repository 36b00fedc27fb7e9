"""Gaussian processes for 10^4 to 10^7 rows, by the harmonic decomposition of symmetric kernels."""

from __future__ import annotations

import importlib
from typing import Any

from harmonicgp._version import __version__
from harmonicgp.groups import Cyclic, Group

__all__ = ["Cyclic", "Group", "__version__"]

_SUBMODULES = ("actions", "features", "inducing", "inference", "kernels", "likelihoods", "testing", "training")


def __getattr__(name: str) -> Any:
    """Submodules on first use: importing the library stays quick."""
    if name in _SUBMODULES:
        return importlib.import_module(f"harmonicgp.{name}")
    raise AttributeError(f"module 'harmonicgp' has no attribute {name!r}")
