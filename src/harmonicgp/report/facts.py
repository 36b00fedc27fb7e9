"""What a report reads from a fitted model. A model may lack any of it."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Origin(Enum):
    """Why a model has its symmetry."""

    SEARCH = "the best of several candidates"
    REQUEST = "named by the user"
    FEW_ROWS = "too few rows for a search"
    OWN_KERNEL = "a kernel of the user's own"


def fact(model: Any, name: str, default: Any) -> Any:
    """A public attribute of a fitted model, or the default where the model lacks it."""
    value = getattr(model, name, None)
    return default if value is None else value


def symmetry_origin(model: Any) -> Origin:
    """Why a fitted model has its symmetry."""
    if getattr(model.symmetry_, "table", None):
        return Origin.SEARCH
    if not isinstance(getattr(model, "kernel", ""), str) and getattr(model.symmetry_, "action", None) is None:
        return Origin.OWN_KERNEL
    return Origin.FEW_ROWS if getattr(model, "symmetry", None) == "auto" else Origin.REQUEST


def is_exact(model: Any) -> bool:
    """Whether a fitted model has an inducing point at every row of its fit, as small tables under Gaussian noise have."""
    choice = getattr(model, "symmetry_", None)
    if getattr(model, "likelihood", None) != "gaussian" or getattr(choice, "action", None) is not None:
        return False
    validation = getattr(model, "validation_", None)
    if validation is not None:
        return bool(validation.get("method") == "leave-one-out")
    if getattr(model, "n_inducing", None) != "auto":  # files of older versions hold no scores of exact models
        return False
    return symmetry_origin(model) is Origin.FEW_ROWS or getattr(model, "validation_fraction", 0) > 0
