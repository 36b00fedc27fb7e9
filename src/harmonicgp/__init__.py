"""Gaussian processes for 10^4 to 10^7 rows, by the harmonic decomposition of symmetric kernels."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from harmonicgp._version import __version__

if TYPE_CHECKING:
    from harmonicgp.estimators import HarmonicGPClassifier, HarmonicGPRegressor
    from harmonicgp.globe import HarmonicGPGlobe
    from harmonicgp.groups import Cyclic, Group
    from harmonicgp.loading import load_model
    from harmonicgp.planes import HarmonicGPField

if "torch" not in sys.modules:
    # PyTorch's idle threads spin by default, and on a busy machine they hold the processors that other threads wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__all__ = [
    "Cyclic",
    "Group",
    "HarmonicGPClassifier",
    "HarmonicGPField",
    "HarmonicGPGlobe",
    "HarmonicGPRegressor",
    "__version__",
    "load_model",
]

_HOMES = {
    "Cyclic": "groups",
    "Group": "groups",
    "HarmonicGPClassifier": "estimators",
    "HarmonicGPField": "planes",
    "HarmonicGPGlobe": "globe",
    "HarmonicGPRegressor": "estimators",
    "load_model": "loading",
}
_SUBMODULES = (
    "actions",
    "diagnostics",
    "estimators",
    "features",
    "globe",
    "groups",
    "inducing",
    "inference",
    "kernels",
    "likelihoods",
    "loading",
    "planes",
    "report",
    "symmetry",
    "tables",
    "testing",
    "training",
)


def __getattr__(name: str) -> Any:
    """Submodules and names on first use: importing the library stays quick."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"harmonicgp.{_HOMES[name]}"), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"harmonicgp.{name}")
    raise AttributeError(f"module 'harmonicgp' has no attribute {name!r}")
