"""Arrays from the targets, weights and errors that users pass."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, validate_data

from harmonicgp.tables.columns import Array


class NotNumbersError(ValueError, TypeError):
    """Values are not numbers. scikit-learn expects a TypeError, and all others a ValueError."""


def validate(estimator: Any, X: Any, *y: Any, **checks: Any) -> Any:
    """X after scikit-learn's `validate_data`. An error names the column and says what to do."""
    if getattr(getattr(X, "dtype", None), "kind", "") in ("M", "m"):
        raise ValueError("X holds dates: arrays must hold numbers; give a table (pandas, polars, Arrow) for dates.")
    try:
        return validate_data(estimator, X, *y, dtype=np.float64, **checks)
    except (ValueError, TypeError) as error:
        problem = _problem(X)
        if problem is None:
            raise
        kind = NotNumbersError if isinstance(error, TypeError) else ValueError
        raise kind(f"{problem} ({' '.join(str(error).split()).split('. ')[0]})") from None


def _problem(X: Any) -> str | None:
    """A sentence about the first value of an array that is not a finite number; None if there is no such value."""
    rows: Array = np.asarray(None if hasattr(X, "tocsr") else plain_array(X))
    if rows.ndim != 2 or rows.dtype.kind == "c":
        return None
    if rows.dtype.kind == "f":
        bad = np.argwhere(~np.isfinite(rows))
        return _gap(rows, *bad[0]) if len(bad) else None
    for j in range(rows.shape[1]):
        for i, value in enumerate(rows[:, j].tolist()):
            try:
                if not np.isfinite(float(value)):
                    return _gap(rows, i, j)
            except (TypeError, ValueError):
                shown = "a missing value" if value is None else repr(str(value)[:40])
                return (
                    f"column {j} holds {shown} in row {i}, which is not a number: arrays must hold numbers; give a table "
                    "(pandas, polars, Arrow) for text, dates and missing values"
                )
    return None


def _gap(rows: Array, i: int, j: int) -> str:
    value = "a missing value (NaN)" if rows[i, j] != rows[i, j] else "an infinite value"
    remedy = "drop or replace those rows, or give missing inputs as a table with missing='impute'"
    return f"column {j} has {value}, first in row {i}: {remedy}"


def numbers(y: Any) -> Any:
    """The targets of a regression as an array. If a value is not a number, the error says what to do."""
    values = np.asarray(plain_array(y))
    if values.dtype.kind in "Mm":
        raise ValueError("y holds dates: give numbers, such as days since a start.")
    if values.dtype.kind not in "OUST":
        return values
    flat = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
    for i, row in enumerate(flat.tolist()):
        for value in row:
            if is_missing(value):
                raise ValueError(f"y has missing values, first in row {i}: drop those rows.")
            if isinstance(value, date | timedelta):
                raise ValueError("y holds dates: give numbers, such as days since a start.")
            if isinstance(value, complex):
                return values  # scikit-learn raises the error
            try:
                float(value)
            except (TypeError, ValueError):
                raise ValueError(
                    f"y holds {str(value)[:40]!r} in row {i}, which is not a number: for classes use HarmonicGPClassifier."
                ) from None
    return values.astype(np.float64)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def plain_array(y: Any) -> Any:
    """The array of a frame or a series of any library; anything else as it is."""
    if type(y).__module__.startswith("pyarrow"):
        if hasattr(y, "column_names"):
            return np.column_stack([column.to_numpy() for column in y.columns])
        return y.to_numpy() if hasattr(y, "chunks") else y.to_numpy(zero_copy_only=False)
    to_numpy = getattr(y, "to_numpy", None)
    return to_numpy() if to_numpy is not None and not isinstance(y, np.ndarray) else y


def weights_of(sample_weight: Any, X: Any) -> Array | None:
    """The weights of the rows of X as float64 [N]; None if all are one. Raises for negative weights, or if all are zero."""
    if sample_weight is None:
        return None
    rows = np.empty((len(X), 1))
    weight: Array = _check_sample_weight(plain_array(sample_weight), rows, dtype=np.float64, ensure_non_negative=True)
    if not (weight > 0).any():
        raise ValueError("all rows have weight zero: give some a positive sample_weight.")
    return weight


def target_names(y: Any) -> list[str]:
    """The names of the targets; empty if they have none."""
    columns = getattr(y, "column_names", None) or getattr(y, "columns", None)
    if columns is not None and not callable(columns):
        return [str(name) for name in columns]
    name = getattr(y, "name", None)
    return [name] if isinstance(name, str) and name else []


def known_errors(noise_std: Any, n: int) -> Array:
    """The known standard deviations of n rows, [n]."""
    errors = np.asarray(plain_array(noise_std), dtype=np.float64).reshape(-1)
    if len(errors) != n or not np.isfinite(errors).all() or bool((errors < 0).any()):
        raise ValueError(f"noise_std must be {n} finite numbers, one a row and none negative; got {len(errors)}.")
    return errors
