"""What runs a suite: the tables, one fresh process for each cell, a file of results that a rerun goes on with.

`python -m benchmarks._harness SET MODEL FOLD quick|full FILE` is one cell, started by `run_cell`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from benchmarks._data import load_npz
from benchmarks.peers import MODELS, QUICK, Array, Caps, Task
from harmonicgp import __version__
from harmonicgp.io.container import write_text_atomically

THREADS = 2
SINGLE = ("kin40k", "elevators", "pol", "keggdirected", "pumadyn32nm", "bike")
POOLED = ("energy", "concrete", "wine")
SETS = SINGLE + POOLED
Row = dict[str, Any]


def load_task(name: str, fold: int) -> Task:
    """A table with the mask of one test fold; the first target where there are several."""
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
        return {**self._asdict(), "versions": versions(self.model)}

    @property
    def caps(self) -> Caps:
        """What the peers may do."""
        if self.quick:
            return QUICK
        # ten minutes for the ten folds of a pooled set together
        return Caps(svgp_seconds=60.0) if self.set in POOLED else Caps()


def versions(model: str) -> dict[str, str]:
    """The versions of the libraries that a model's results depend on; "none" for one that is not installed."""
    return {name: _version(name) for name in MODELS[model].libraries}


def _version(name: str) -> str:
    if name == "harmonicgp":
        return __version__  # of the sources in use, which need not be the ones installed
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


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

    def find(self, cell: Cell) -> Row | None:
        """The row of a cell, if it is there with these versions."""
        key = cell.key()
        return next((row for row in self.rows if all(row[name] == value for name, value in key.items())), None)

    def add(self, row: Row) -> None:
        """Store a row."""
        self._write([*self.rows, row])

    def forget(self, models: tuple[str, ...], quick: bool) -> None:
        """Drop the rows of some models, quick or full."""
        self._write([row for row in self.rows if row["model"] not in models or row["quick"] != quick])

    def _write(self, rows: list[Row]) -> None:
        write_text_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        self.rows = rows


def run_cell(cell: Cell) -> Row:
    """Measure a cell in a process of its own; what goes wrong there is a row with an `error`."""
    threads = {f"{name}_NUM_THREADS": str(THREADS) for name in ("OMP", "MKL", "OPENBLAS")}
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        command = [sys.executable, "-m", "benchmarks._harness", cell.set, cell.model, str(cell.fold)]
        command += ["quick" if cell.quick else "full", str(file)]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **threads, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=cell.caps.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {**cell.key(), "error": f"timeout after {cell.caps.timeout:g} s"}
        if done.returncode == 0:
            return {**cell.key(), **json.loads(file.read_text("utf-8"))}
    if done.returncode < 0:
        return {**cell.key(), "error": f"killed by {signal.Signals(-done.returncode).name}"}
    return {**cell.key(), "error": (done.stderr.strip().splitlines() or ["failed without a word"])[-1]}


def measure(cell: Cell) -> Row:
    """Run a cell in this process: scores, seconds, and the peak of memory above that after imports and data."""
    task, model = load_task(cell.set, cell.fold), MODELS[cell.model]
    for module in model.modules:
        importlib.import_module(module)
    before = peak_memory()
    outcome = model.run(task, cell.caps)
    shape = {"rows": task.X.shape[0], "columns": task.X.shape[1], "test_rows": int(task.test.sum())}
    return {**asdict(outcome), "memory": peak_memory() - before, **shape}


def peak_memory() -> int:
    """The most memory this process has held, in bytes.

    On Linux from /proc: the figure of `getrusage` is at least the peak of the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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


if __name__ == "__main__":
    name, model_name, fold_number, size, target = sys.argv[1:]
    result = measure(Cell(name, model_name, int(fold_number), size == "quick"))
    write_text_atomically(Path(target), json.dumps(result))
