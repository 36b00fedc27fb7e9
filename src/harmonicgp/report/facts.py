"""What a report reads from a fitted model. A model may lack any of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from harmonicgp.report.scores import Array


class Origin(Enum):
    """Why a model has its symmetry."""

    SEARCH = "the best of several candidates"
    REQUEST = "named by the user"
    FEW_ROWS = "too few rows for a search"
    OWN_KERNEL = "a kernel of the user's own"


@dataclass(frozen=True)
class Facts:
    """The public attributes of a fitted model, with defaults for those that it lacks."""

    bound: float  #: per row; NaN where there is none
    history: list[dict[str, Any]]  #: step, bound, seconds; validation at some steps
    validation: dict[str, Any]  #: scores of the rows that the fit held out
    timings: dict[str, float]  #: seconds of each part of the fit
    warnings: list[str]
    notes: list[str]
    symmetry: Any  #: the `SymmetryChoice`, or None
    encoded_names: list[str]
    kinds: dict[int, Any]  #: of the encoded columns that are declared
    inducing_points: Array  #: [m, d]; none where the model does not tell

    @classmethod
    def of(cls, model: Any) -> Facts:
        """Read a model."""

        def read(name: str, default: Any) -> Any:
            value = getattr(model, name, None)
            return default if value is None else value

        names = [str(name) for name in read("encoded_names_", [])]
        points = read("inducing_points", lambda: None)()
        return cls(
            bound=float(read("elbo_", np.nan)),
            history=list(read("history_", [])),
            validation=dict(read("validation_", {})),
            timings={str(part): float(seconds) for part, seconds in read("timings_", {}).items()},
            warnings=[str(warning) for warning in read("warnings_", [])],
            notes=[str(note) for note in read("notes_", [])],
            symmetry=read("symmetry_", None),
            encoded_names=names,
            kinds=dict(read("column_kinds_", {})),
            inducing_points=np.zeros((0, len(names))) if points is None else np.reshape(points, (-1, len(names))),
        )


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
