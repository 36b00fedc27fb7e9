"""What a model is given: its arguments checked, and tables turned into numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.kernels.profiles import NAMED_PROFILES
from harmonicgp.tables.arrays import validated
from harmonicgp.tables.encoder import TableEncoder, is_frame
from harmonicgp.tables.inputs import Array, Inputs, check_size
from harmonicgp.tables.kinds import Kind, check_kinds
from harmonicgp.training import Callback, Schedule


class Reading(BaseEstimator):
    """Arguments, and rows as numbers; the fitting is HarmonicGPBase's."""

    # Arguments, set by the subclasses' __init__.
    kernel: str | gpytorch.kernels.Kernel
    symmetry: str | Action | None
    n_inducing: int | str
    share_inducing: bool
    resolution: Resolution
    posterior: str
    warp: str | None
    columns: Any
    missing: str
    max_steps: int
    batch_size: int
    learning_rate: float
    time_budget: float | None
    validation_fraction: float
    early_stopping: bool
    checkpoint_dir: str | Path | None
    callbacks: Sequence[Callback] | None
    dtype: str
    random_state: Any
    progress: bool

    _inputs: Inputs  # set by the fit

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _check_arguments(self) -> None:
        if not (self.symmetry is None or self.symmetry == "auto" or isinstance(self.symmetry, Action)):
            raise TypeError(
                'symmetry must be "auto", None for one block, or an action of harmonicgp.actions, such as Negation([0]); '
                f"got {self.symmetry!r}."
            )
        if not (
            isinstance(self.kernel, gpytorch.kernels.Kernel)
            or (isinstance(self.kernel, str) and self.kernel in NAMED_PROFILES)
        ):
            raise ValueError(
                f"kernel must be one of {sorted(NAMED_PROFILES)} or a GPyTorch kernel; got {self.kernel!r}."
            )
        for name, allowed in (
            ("posterior", ("auto", "block", "joint")),
            ("warp", ("auto", None, "quantile")),
            ("missing", ("refuse", "impute")),
            ("dtype", ("auto", "float32", "float64")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}.")
        if self.n_inducing != "auto":
            m = whole_number(self.n_inducing, "n_inducing", 1)
            if self.posterior == "joint" and isinstance(self.symmetry, Action):
                features = m * self.symmetry.group.order
                if features > MAX_DENSE:
                    raise ValueError(
                        f'a joint posterior of {features} features is too large: use posterior="block", or at most '
                        f"{MAX_DENSE // self.symmetry.group.order} inducing points a block."
                    )
        check_resolution(self.resolution)
        self._schedule()  # checks the rest

    def _schedule(self, **changes: Any) -> Schedule:
        settings: dict[str, Any] = {
            "max_steps": self.max_steps,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "time_budget": self.time_budget,
            "validation_fraction": self.validation_fraction,
            "early_stopping": bool(self.early_stopping),
            "progress": bool(self.progress),
        }
        return Schedule(**(settings | changes))

    # --- tables to numbers --------------------------------------------------------------------------------------------

    def _encode(self, X: Any, reset: bool = False, weights: Array | None = None) -> Array:
        """Rows as float64 numbers [n, d]; with `reset` the encoding is learned."""
        if is_table(X):
            self._check_names(X, reset)
            if reset:
                self._table: TableEncoder | None = TableEncoder.fit(X, self._declared(), self.missing, weights)  # type: ignore[arg-type]
                return self._table.transform(X, warn=False)  # rows of weight zero may hold what the fit does not see
            if self._table is not None:
                return self._table.transform(X, idle=self.unused_names())
        elif reset:
            self._table = None
        elif self._table is not None and len(self._table.names) != len(self._table.encoded_names):
            raise ValueError(
                "the model was fitted to a table whose columns hold text, dates or gaps: give a table with the columns "
                f"{', '.join(self._table.names)}."
            )
        rows: Array = validated(self, X, reset=reset)
        return rows

    def level_names(self) -> list[str]:
        """The columns of a table that the model reads as categories."""
        return [] if self._table is None else [c.name for c in self._table.columns if c.role == "level"]

    def unused_names(self) -> list[str]:
        """The columns of a table that the model does not use: constant ones, and those that repeat others."""
        if self._table is None:
            return []
        used, names, start = {*self._inputs.order.tolist()}, set(), 0
        for column in self._table.columns:
            stop = start + len(column.labels)
            if not used.isdisjoint(range(start, stop)):
                names.add(column.name)
            start = stop
        return [name for name in self._table.names if name not in names]

    def _check_names(self, X: Any, reset: bool) -> None:
        """Learn or compare the names of a table's columns."""
        names = getattr(X, "column_names", None)  # Arrow's, which scikit-learn does not read
        if names is None:
            validate_data(self, X, skip_check_array=True, reset=reset)
        elif reset:
            self.feature_names_in_, self.n_features_in_ = np.array(names, dtype=object), len(names)
        elif list(names) != self._needed_names(names):
            raise ValueError(
                "the columns of X should be those of fit, in the same order: "
                f"{', '.join(map(str, self.feature_names_in_))}; got {', '.join(names)}."
            )

    def _needed_names(self, names: Sequence[str]) -> list[str]:
        """The names of the fit, without those of unused columns that are not among `names`."""
        unused = self.unused_names()
        return [name for name in getattr(self, "feature_names_in_", names) if name in names or name not in unused]

    def _declared(self) -> Mapping[str | int, Kind] | None:
        if self.columns is None or self._image() is not None:
            return None
        if not isinstance(self.columns, Mapping):
            raise TypeError(
                'columns must be a dict such as {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}, or '
                f'("image", (height, width)); got {self.columns!r}.'
            )
        return self.columns

    def _image(self) -> tuple[int, int] | None:
        """The height and width, where every row is an image."""
        if isinstance(self.columns, tuple) and len(self.columns) == 2 and self.columns[0] == "image":
            size = self.columns[1]
            if not isinstance(size, Sequence) or isinstance(size, str) or len(size) != 2:
                raise TypeError(
                    f'columns=("image", (height, width)) takes two whole numbers; got {size!r}. Images have one value a pixel: '
                    "make colours grey, or give them as columns without a symmetry of images."
                )
            h, w = size
            return whole_number(h, "the height of an image", 1), whole_number(w, "the width of an image", 1)
        return None

    def _describe(self, X: Array) -> None:
        """Names and kinds of the encoded columns."""
        if self._table is not None:
            self.encoded_names_, self.column_kinds_ = list(self._table.encoded_names), dict(self._table.kinds)
        else:
            self.encoded_names_ = [f"column {j}" for j in range(X.shape[1])]
            self.column_kinds_ = check_kinds(self._declared() or {}, None, X.shape[1])
        image = self._image()
        if image is not None and image[0] * image[1] != X.shape[1]:
            raise ValueError(
                f"images of {image[0]} x {image[1]} need {image[0] * image[1]} columns; X has {X.shape[1]}."
            )
        check_size(X, self.encoded_names_)
        for j, kind in self.column_kinds_.items():
            if kind == "latitude" and np.abs(X[:, j]).max() > 90:
                raise ValueError(
                    f"column {self.encoded_names_[j]} is declared a latitude and reaches {np.abs(X[:, j]).max():g} degrees: "
                    "are longitude and latitude swapped?"
                )


def is_table(X: Any) -> bool:
    """Whether X is a frame with names; one without (numbered columns) is an array."""
    return is_frame(X) and all(isinstance(name, str) for name in getattr(X, "column_names", X.columns))
