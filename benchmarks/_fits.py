"""Fits of HarmonicGPRegressor with options, each in a process of its own: the tables, real and made, and the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._data import DataNotFoundError
from benchmarks._harness import THREADS, Results, library_version, load_task, run_missing, terminated_as_interrupted
from benchmarks._process import Row, in_own_process, peak_memory
from benchmarks.peers import Array, Task, score_harmonicgp

REAL = (
    "kin40k", "keggdirected", "elevators", "pol", "bike", "pumadyn32nm",
    "concrete", "energy", "housing", "yacht", "wine", "airfoil",
)  # fmt: skip
TIMEOUT = 7200.0
#: Test rows at most: their noise is then below what is looked for, and predictions take no longer than fits.
TEST_ROWS = 20_000
QUICK_ROWS = 2_400
QUICK: Row = {"symmetry": None, "warp": None, "max_steps": 15, "n_inducing": 24}


def _smooth(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Noiseless and smooth: nothing limits how well it can be known."""
    X = rng.uniform(-1, 1, size=(rows, 4))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + X[:, 2] * X[:, 3]


def _noise(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """The inputs say nothing."""
    return rng.normal(size=(rows, 6)), rng.normal(size=rows)


def _tails(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """A rough function, and noise of Student's t with two degrees of freedom, whose variance is not finite."""
    X = rng.uniform(-3, 3, size=(rows, 3))
    return X, np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]) + X[:, 2] + 0.2 * rng.standard_t(2, size=rows)


def _long(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Waves long and short in little noise."""
    X = rng.uniform(-3, 3, size=(rows, 3))
    waves = np.sin(X[:, 0]) + 0.3 * np.sin(9 * X[:, 0]) * np.cos(9 * X[:, 1]) * np.cos(3 * X[:, 2])
    return X, waves + 0.1 * rng.normal(size=rows)


def _wide(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Sixty columns, of which five say something: near rows are near in what does not matter."""
    X = rng.normal(size=(rows, 60))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + 0.5 * X[:, 4] + 0.3 * rng.normal(size=rows)


class Made(NamedTuple):
    """A table that is made, the same each time."""

    make: Callable[[np.random.Generator, int], tuple[Array, Array]]
    rows: int


MADE = {
    "smooth": Made(_smooth, 20_000),
    "noise": Made(_noise, 20_000),
    "tails": Made(_tails, 20_000),
    "long": Made(_long, 2_000_000),
    "wide": Made(_wide, 20_000),
}


def load_table(name: str, quick: bool = False) -> Task:
    """Test fold 0 of a table, of a few rows when quick, with `TEST_ROWS` test rows at most: others are left out altogether."""
    if name in MADE:
        rows = QUICK_ROWS if quick else MADE[name].rows
        X, y = MADE[name].make(np.random.default_rng(sorted(MADE).index(name)), rows)
        task = Task(X, y, np.arange(rows) % 10 == 0)
    else:
        task = load_task(name, 0)
    keep = np.ones(len(task.y), dtype=bool)
    if quick:
        keep = np.random.default_rng(0).permutation(len(keep)) < QUICK_ROWS
    tests = np.flatnonzero(task.test & keep)
    if len(tests) > TEST_ROWS:
        keep[np.random.default_rng(0).permutation(tests)[TEST_ROWS:]] = False
    return Task(task.X[keep], task.y[keep], task.test[keep])


class Fit(NamedTuple):
    """A fit to measure: a table, a name for the setting, and the arguments of HarmonicGPRegressor."""

    table: str
    setting: str
    options: Row
    quick: bool = False

    def key(self) -> Row:
        """What a stored result must agree in."""
        versions = {name: library_version(name) for name in ("harmonicgp", "torch")}
        return {**self._asdict(), "versions": versions}


def run_fit(fit: Fit) -> Row:
    """Measure a fit in a process of its own."""
    arguments = {"table": fit.table, "options": fit.options, "quick": fit.quick}
    return fit.key() | in_own_process("benchmarks._fits:measure", arguments, TIMEOUT, THREADS)


def measure(table: str, options: Row, quick: bool) -> Row:
    """Scores, seconds, and the peak of memory above that after data and imports."""
    import harmonicgp.estimators  # noqa: F401  (its memory is not the fit's)

    task = load_table(table, quick)
    before = peak_memory()
    outcome = score_harmonicgp(task, **{**(QUICK if quick else {}), **options, "progress": False})
    train = int((~task.test).sum())
    shape = {"train_rows": train, "columns": task.X.shape[1], "test_rows": int(task.test.sum())}
    return {**asdict(outcome), "memory": peak_memory() - before, **shape}


def run_fits(fits: Sequence[Fit], results: Results) -> list[Row]:
    """Measure what is not there yet, and give all rows."""
    run_missing(fits, results, run_fit, lambda fit: f"{fit.table} {fit.setting}", _line)
    return [row for fit in fits if (row := results.find(fit)) is not None]


def _line(row: Row) -> str:
    seconds, k = row["details"]["fit_seconds"], row["details"]["neighbours"]
    return f"NLL {row['nll']:+.4f}, RMSE {row['rmse']:.4f}, fit {seconds:.1f} s, {k} neighbours"


def fits_parser(name: str, doc: str | None, tables: Sequence[str], known: Sequence[str]) -> argparse.ArgumentParser:
    """The options that suites of fits share."""

    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return chosen

    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sets", type=names, default=tuple(tables), metavar="A,B", help=f"only these, of {', '.join(known)}"
    )
    parser.add_argument("--quick", action="store_true", help="few rows and steps; to see that all runs")
    parser.add_argument("--redo", action="store_true", help="measure these tables anew")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for results (default: out)")
    return parser


@contextmanager
def opened(name: str, arguments: argparse.Namespace) -> Iterator[Results]:
    """The results of a suite, without those to measure anew. Missing data end it with 1, an interruption with 130."""
    try:
        for table in arguments.sets:
            if table not in MADE:
                load_task(table, 0)
        arguments.output.mkdir(parents=True, exist_ok=True)
        results = Results(arguments.output / f"{name}.jsonl")
    except (DataNotFoundError, ValueError) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if arguments.redo:
        results.drop(lambda row: row["table"] in arguments.sets and row["quick"] == arguments.quick)
    try:
        with terminated_as_interrupted():
            yield results
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


def command(name: str, arguments: argparse.Namespace, tables: Sequence[str], **further: Any) -> str:
    """How to make the table again."""
    words = [f"python -m benchmarks.{name}"]
    words += [f"--sets {','.join(arguments.sets)}"] if arguments.sets != tuple(tables) else []
    words += [f"--{option} {value}" for option, value in further.items() if value is not None]
    return " ".join([*words, *["--quick"] * arguments.quick])
