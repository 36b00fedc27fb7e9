"""What users give as targets and errors, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonicgp.estimators.inputs import Array


def plain_array(y: Any) -> Any:
    """Frames and series of any library as arrays."""
    if type(y).__module__.startswith("pyarrow"):
        if hasattr(y, "column_names"):
            return np.column_stack([column.to_numpy() for column in y.columns])
        return y.to_numpy() if hasattr(y, "chunks") else y.to_numpy(zero_copy_only=False)
    to_numpy = getattr(y, "to_numpy", None)
    return to_numpy() if to_numpy is not None and not isinstance(y, np.ndarray) else y


def n_rows(X: Any) -> int:
    """The number of rows of an array or a frame."""
    rows = getattr(X, "num_rows", None)  # Arrow's
    return int(rows) if rows is not None else len(X)


def target_names(y: Any) -> list[str]:
    """The names of targets, where they have any."""
    columns = getattr(y, "column_names", None) or getattr(y, "columns", None)
    if columns is not None and not callable(columns):
        return [str(name) for name in columns]
    name = getattr(y, "name", None)
    return [name] if isinstance(name, str) and name else []


def known_errors(noise_std: Any, n: int) -> Array:
    """Known standard deviations, one a row."""
    errors = np.asarray(plain_array(noise_std), dtype=np.float64).reshape(-1)
    if len(errors) != n or not np.isfinite(errors).all() or bool((errors < 0).any()):
        raise ValueError(f"noise_std must be {n} finite numbers, one a row and none negative; got {len(errors)}.")
    return errors
