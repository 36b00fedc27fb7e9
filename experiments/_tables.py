"""The tables of the paper's regression experiments."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from benchmarks._data import DataFileError, DataNotFoundError, Fold, data_folder, load_npz, standardised_fold

Array = np.ndarray[Any, Any]
#: Tables that the user brings as NAME.csv (numbers, with a header or not), and the column of their target.
OWN = {"3droad": -1, "song": 0, "year": 0, "buzz": -1}
#: Rows of `year` that are for training, the others for testing.
YEAR_TRAIN = 463_715


#: Rows that a table of one's own has at least.
LEAST = 100


class Table(NamedTuple):
    """Rows, targets, and a test mask where the table has a split of its own."""

    X: Array
    y: Array
    test: Array | None = None


def load_table(name: str) -> Table:
    """By name: houseelectric (the logarithm of y), flights3m (delays within -60 and 180 minutes), kin40k, keggdirected, ..."""
    if name in OWN:
        return _own(name)
    data = load_npz(name, ("x", "y"))
    X, y = np.asarray(data["X"], np.float64), np.asarray(data["y"], np.float64).reshape(len(data["y"]), -1)[:, 0]
    if name == "houseelectric":
        return Table(X * data["x_scale"], np.log(y * data["y_scale"]))
    if name == "flights3m":
        return Table(_with_places(X, data), y.clip(-60, 180))
    return Table(X, y)


def _with_places(X: Array, data: dict[str, Array]) -> Array:
    """Airports as latitude and longitude."""
    names = [str(name) for name in data["feature_names"]]
    columns = []
    for j, name in enumerate(names):
        if name in ("origin", "destination"):
            columns.append(data["airport_latlon"][X[:, j].astype(int)])
        else:
            columns.append(X[:, j : j + 1])
    return np.concatenate(columns, 1).astype(np.float64)


def _own(name: str) -> Table:
    path = data_folder() / f"{name}.csv"
    if not path.is_file():
        raise DataNotFoundError(f"{name} is not at hand: put {name}.csv into the folder that HARMONICGP_DATA names.")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        first = file.readline().strip().split(",")
        if not any(first):
            raise DataFileError(f"{path.name} is empty.")
        header = not any(_is_number(cell) for cell in first)
        try:
            rows = np.loadtxt(file if header else itertools.chain([",".join(first)], file), delimiter=",", ndmin=2)
        except ValueError as error:
            raise DataFileError(f"{path.name} is no table of numbers: {error}") from None
    if rows.shape[1] < 2 or not len(rows) or not np.isfinite(rows).all():
        raise DataFileError(f"{path.name} must have rows of two or more finite numbers, separated by commas.")
    if len(rows) < LEAST or not (np.ptp(rows, axis=0) > 0)[np.arange(rows.shape[1]) != OWN[name] % rows.shape[1]].any():
        raise DataFileError(
            f"{path.name} must have {LEAST} rows or more, and inputs that vary; it has {len(rows)} rows."
        )
    column = OWN[name] % rows.shape[1]
    X, y = np.delete(rows, column, 1), rows[:, column]
    if name == "3droad" and X.shape[1] == 3:
        X = X[:, 1:]  # the first column numbers the roads
    return Table(X, y, np.arange(len(y)) >= YEAR_TRAIN if name == "year" and len(y) > YEAR_TRAIN else None)


def split(table: Table, seed: int) -> Fold:
    """64 % to train on, 20 % to test on (16 % are left for validation), standardised, turned to principal axes."""
    X, y, test = table
    if test is None:
        u = np.random.default_rng(seed).random(len(y))
        kept = (u < 0.64) | (u >= 0.8)
        X, y, test = X[kept], y[kept], u[kept] >= 0.8
    return standardised_fold(X, y, test, principal=True)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
