"""The benchmark files of the experiments, found through the environment variable HARMONICGP_DATA."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class DataNotFoundError(FileNotFoundError):
    """A data file is not there; the message says where it was looked for."""


class DataFileError(ValueError):
    """A data file is there, and is not what it should be; the message names it."""


def data_folder() -> Path:
    """The folder that HARMONICGP_DATA names."""
    folder = os.environ.get("HARMONICGP_DATA")
    if not folder:
        raise DataNotFoundError("set the environment variable HARMONICGP_DATA to the folder of the data files.")
    if not Path(folder).is_dir():
        raise DataNotFoundError(f"HARMONICGP_DATA is {folder!r}, which is no folder.")
    return Path(folder)


def load_npz(name: str, needed: Sequence[str] = ()) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of NAME.npz in the data folder; those that are `needed` (in small letters) must be there."""
    try:
        path = data_folder() / f"{name}.npz"
    except DataNotFoundError as error:
        raise DataNotFoundError(f"{name}.npz is needed: {error}") from None
    if not path.is_file():
        raise DataNotFoundError(f"there is no {path.name} in the folder that HARMONICGP_DATA names.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise DataFileError(
            f"{path.name} cannot be read as arrays: {type(error).__name__}. Is the file whole?"
        ) from None
    absent = [key for key in needed if key not in {known.lower() for known in arrays}]
    if absent:
        raise DataFileError(f"{path.name} has no {', '.join(absent)}; it has {', '.join(arrays) or 'nothing'}.")
    return arrays


class Fold(NamedTuple):
    """A standardised regression set: training and test rows, and the standard deviation of y."""

    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor
    y_scale: float


def standardised_fold(
    X: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    test: np.ndarray[Any, Any],
    principal: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Fold:
    """Rows split by the mask `test`, standardised by the training rows; `principal` turns columns to principal axes."""
    X, y, test = np.asarray(X, np.float64), np.asarray(y, np.float64).reshape(-1), np.asarray(test)
    if test.dtype != bool or test.shape != y.shape or test.all() or not test.any():
        raise ValueError("test must be a mask of True and False, one a row, with some of each.")
    mean, scale = X[~test].mean(0), X[~test].std(0)
    X = (X - mean) / np.where(scale > 0, scale, 1.0)
    if principal:
        _, axes = np.linalg.eigh(np.cov(X[~test].T).reshape(X.shape[1], -1))
        X = X @ axes[:, ::-1]
    y_scale = float(y[~test].std()) or 1.0
    y = (y - y[~test].mean()) / y_scale
    train_x, train_y, test_x, test_y = (
        torch.from_numpy(np.ascontiguousarray(a)).to(dtype) for a in (X[~test], y[~test], X[test], y[test])
    )
    return Fold(train_x, train_y, test_x, test_y, y_scale)
