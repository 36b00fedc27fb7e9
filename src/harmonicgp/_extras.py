"""Optional dependencies, with a clear error if one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message says which and how to get it."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional module; if it is missing, the error says what it is for and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # it is installed, but fails to import
        raise MissingExtraError(f"{purpose} needs {top}: pip install 'harmonicgp[{extra}]'", name=top) from None
