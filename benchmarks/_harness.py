"""What runs a suite: the tables, one fresh process for each cell, a file of results that a rerun goes on with."""

from __future__ import annotations

import importlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from benchmarks._data import load_npz
from benchmarks._process import Row, in_own_process, peak_memory
from benchmarks.peers import MODELS, QUICK, Array, Caps, Task
from experiments._tables import load_table
from harmonicgp import __version__
from harmonicgp.io.container import write_text_atomically

THREADS = 2
SINGLE = ("kin40k", "elevators", "pol", "keggdirected", "pumadyn32nm", "bike")
POOLED = ("energy", "concrete", "wine")
SETS = SINGLE + POOLED
LARGE = ("houseelectric", "flights3m")  #: of two and three million rows: only run when they are named


def load_task(name: str, fold: int) -> Task:
    """A table with the mask of one test fold; the first target where there are several."""
    if name == "flights3m":  # the file has no folds of its own
        X, y, _ = load_table(name)
        return Task(X, y, np.random.default_rng(0).integers(10, size=len(y)) == fold)
    data = load_npz(name)
    if name == "houseelectric":
        X, y = (np.asarray(data[key], np.float64) * data[f"{key.lower()}_scale"] for key in ("X", "y"))
        return Task(X, np.log(y).reshape(-1), np.asarray(data["test_fold"]) == fold)
    X, y = data["X"].astype(np.float64), data["y"].astype(np.float64)
    y = y.reshape(len(y), -1)[:, 0]
    masks = np.unpackbits(data["test_mask"], axis=0)[: len(y)].astype(bool)
    if masks.shape != (len(y), 10) or len(X) != len(y) or not (masks.sum(1) == 1).all():
        raise ValueError(
            f"{name}.npz needs one row of X, y and test_mask for each row, and each row in one of ten folds."
        )
    if name == "bike":
        X = _without_the_leak(X, y)
    return Task(X, y, masks[:, fold])


def _without_the_leak(X: Array, y: Array) -> Array:
    """Bike without columns 15 and 16, casual and registered users: y is the logarithm of their sum."""
    ordered = y[np.argsort(X[:, 15] + X[:, 16], kind="stable")]
    if (np.diff(ordered) < -1e-3 * y.std()).any():
        raise ValueError("bike.npz: columns 15 and 16 do not add up to the target; the leak to drop must be elsewhere.")
    return np.delete(X, [15, 16], axis=1)


class Cell(NamedTuple):
    """One measurement: a model on a fold of a set."""

    set: str
    model: str
    fold: int
    quick: bool = False

    def key(self) -> Row:
        """What a stored result must agree in, to count as this one."""
        revision = MODELS[self.model].revision
        return {**self._asdict(), "versions": versions(self.model), **({"revision": revision} if revision else {})}

    @property
    def caps(self) -> Caps:
        """What the peers may do."""
        if self.quick:
            return QUICK
        # ten minutes for the ten folds of a pooled set together
        return Caps(svgp_seconds=60.0, gpboost_seconds=60.0) if self.set in POOLED else Caps()


def versions(model: str) -> dict[str, str]:
    """The versions of the libraries that a model's results depend on; "none" for one that is not installed."""
    return {name: library_version(name) for name in MODELS[model].libraries}


def library_version(name: str) -> str:
    """The version of a library; "none" where it is not installed."""
    if name == "harmonicgp":
        return __version__  # of the sources in use, which need not be the ones installed
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


class Keyed(Protocol):
    """Something to measure, whose key a stored result must agree with."""

    def key(self) -> Row:
        """What it is, in JSON."""


Item = TypeVar("Item", bound=Keyed)


class Results:
    """Rows in a file of JSON lines, one for each cell; every change rewrites it whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        for number, line in enumerate(path.read_text("utf-8").splitlines() if path.exists() else [], 1):
            try:
                self.rows.append(json.loads(line))
            except json.JSONDecodeError:
                raise ValueError(f"line {number} of {path} is not JSON: delete that line, or the file.") from None

    def find(self, cell: Keyed) -> Row | None:
        """The row of a cell, if it is there with these versions."""
        key = cell.key()
        return next((row for row in self.rows if all(row.get(name) == value for name, value in key.items())), None)

    def add(self, row: Row) -> None:
        """Store a row."""
        self._write([*self.rows, row])

    def forget(self, models: tuple[str, ...], quick: bool) -> None:
        """Drop the rows of some models, quick or full."""
        self.drop(lambda row: row["model"] in models and row["quick"] == quick)

    def drop(self, unwanted: Callable[[Row], bool]) -> None:
        """Leave out some rows."""
        self._write([row for row in self.rows if not unwanted(row)])

    def _write(self, rows: list[Row]) -> None:
        write_text_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        self.rows = rows


def run_cell(cell: Cell) -> Row:
    """Measure a cell in a process of its own; what goes wrong there is a row with an `error`."""
    return cell.key() | in_own_process("benchmarks._harness:measured", cell._asdict(), cell.caps.timeout, THREADS)


def measured(**cell: Any) -> Row:
    """`measure` of a cell's fields."""
    return measure(Cell(**cell))


def run_missing(
    cells: Sequence[Item],
    results: Results,
    measure: Callable[[Item], Row],
    name: Callable[[Item], str],
    line: Callable[[Row], str],
) -> None:
    """Measure what is not there yet, a line for each cell."""
    missing = [cell for cell in cells if results.find(cell) is None]
    if len(missing) < len(cells):
        print(f"{len(cells) - len(missing)} of {len(cells)} cells are there already in {results.path}", flush=True)
    for number, cell in enumerate(missing, 1):
        print(f"[{number}/{len(missing)}] {name(cell)}: ", end="", flush=True)
        row = measure(cell)
        results.add(row)
        print(row.get("error") or line(row), flush=True)


def measure(cell: Cell) -> Row:
    """Run a cell in this process: scores, seconds, and the peak of memory above that after imports and data."""
    task, model = load_task(cell.set, cell.fold), MODELS[cell.model]
    for module in model.modules:
        importlib.import_module(module)
    before = peak_memory()
    outcome = model.run(task, cell.caps)
    shape = {"rows": task.X.shape[0], "columns": task.X.shape[1], "test_rows": int(task.test.sum())}
    return {**asdict(outcome), "memory": peak_memory() - before, **shape}


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, so that no cell is left running behind a suite that was ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
