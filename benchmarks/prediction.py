"""Rows a second of predictions, with neighbours and without; and of a table streamed through `harmonicgp predict`.

    python -m benchmarks.prediction --output out [--million] [--ten-million] [--quick]

Mean and standard deviation, for some numbers of neighbours, features and columns, and rows at a time. The streamed tables go
through the command line in a process of their own, whose peak of memory is printed beside that for one batch of rows: what grows
is what is not bounded. --million fits a million rows with the defaults in a process of its own: seconds and peak of memory.
--ten-million streams ten million rows of Parquet, some 0.5 GB on disk. Nothing but made data is used.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._harness import THREADS
from benchmarks._process import Row, in_own_process, peak_memory
from benchmarks._rates import facts, interleaved, machine_rates, publish, table
from benchmarks.peers import Array

TIMEOUT = 14_400.0
MILLION = 1_000_000
#: What `harmonicgp predict` holds at a time.
BATCH_ROWS = 65_536


class Sizes(NamedTuple):
    """What is measured; features are the inducing points of one block."""

    train: int = 20_000
    columns: tuple[int, ...] = (3, 10)
    features: tuple[int, ...] = (128, 1024)
    neighbours: tuple[int, ...] = (0, 10, 20, 40)
    batches: tuple[int, ...] = (1, 1_000, 50_000)
    streamed: int = 1_000_000
    repeats: int = 3


QUICK = Sizes(4_000, (3,), (64,), (0, 20), (1, 1_000), 2 * BATCH_ROWS, 1)


def rows_of(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Waves long and short in noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n, d)).astype(np.float32)
    y = np.sin(X[:, 0]) + 0.3 * np.sin(5 * X[:, 1]) * np.cos(3 * X[:, 2]) + 0.1 * rng.normal(size=n)
    return X, y


def fitted(n: int, d: int, m: int, k: int) -> Any:
    """A model with k neighbours; how good its kernel is makes no difference to what a prediction costs."""
    from harmonicgp import HarmonicGPRegressor

    options: Row = {"symmetry": None, "warp": None, "n_inducing": m, "max_steps": 10, "validation_fraction": 0.0}
    X, y = rows_of(n, d)
    model = HarmonicGPRegressor(neighbours=k, progress=False, **options).fit(_frame(X), y)
    assert model.neighbours_ == k
    return model


def _frame(X: Array) -> Any:
    import pyarrow as pa

    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})


def rates(sizes: Sizes) -> list[Row]:
    """Rows a second for every size; all numbers of neighbours in turn, so that what slows the machine slows them all."""
    found = []
    for d in sizes.columns:
        for m in sizes.features:
            models = {k: fitted(sizes.train, d, m, k) for k in sizes.neighbours}
            for n in sizes.batches:
                X = _frame(rows_of(n, d, seed=1)[0])
                work = {
                    str(k): (lambda model=model, X=X: model.predict(X, return_std=True)) for k, model in models.items()
                }
                for k, timing in interleaved(work, sizes.repeats).items():
                    row = {"columns": d, "features": m, "rows": n, "neighbours": int(k)}
                    found.append({**row, "rows_per_second": n / timing.median, "seconds": list(timing)})
    return found


def stream(model: str, source: str, target: str) -> Row:
    """`harmonicgp predict` in this process: its seconds, and the most memory it held."""
    import typer

    from harmonicgp.cli.commands import app

    start = time.perf_counter()
    arguments = ["predict", model, source, "--output", target, "--quiet"]
    try:
        typer.main.get_command(app)(arguments, prog_name="harmonicgp")
    except SystemExit as done:  # how a command ends, also a good one
        if done.code:
            raise RuntimeError(f"harmonicgp predict ended with {done.code}") from None
    return {"seconds": time.perf_counter() - start, "memory": peak_memory()}


def write_rows(path: Path, n: int, d: int) -> None:
    """A table of n rows, written in pieces."""
    from harmonicgp.tables import TableWriter

    with TableWriter(path) as writer:
        for seed, first in enumerate(range(0, n, BATCH_ROWS)):
            writer.write(_frame(rows_of(min(BATCH_ROWS, n - first), d, seed)[0]))


def streams(sizes: Sizes, folder: Path, ten_million: bool) -> Iterator[Row]:
    """One batch of rows and many of them, for CSV and Parquet, with and without neighbours."""
    d, m = sizes.columns[0], sizes.features[0]
    tables = [("csv", BATCH_ROWS), ("csv", sizes.streamed), ("parquet", BATCH_ROWS), ("parquet", sizes.streamed)]
    tables += [("parquet", 10 * MILLION)] if ten_million else []
    models = {}
    for k in (0, 20):
        models[k] = folder / f"{k}.hgp"
        fitted(sizes.train, d, m, k).save(models[k])
    for form, n in tables:
        source, target = folder / f"rows.{form}", folder / f"predicted.{form}"
        write_rows(source, n, d)
        for k, model in models.items():
            given = {"model": str(model), "source": str(source), "target": str(target)}
            row = in_own_process("benchmarks.prediction:stream", given, TIMEOUT, THREADS)
            yield {"format": form, "rows": n, "neighbours": k, **row}


def fit_many(rows: int = MILLION, columns: int = 8) -> Row:
    """Fit with the defaults: seconds, and the most memory beyond that after data and imports."""
    from harmonicgp import HarmonicGPRegressor

    X, y = rows_of(rows, columns)
    before = peak_memory()
    start = time.perf_counter()
    model = HarmonicGPRegressor(progress=False).fit(X, y)
    seconds, memory = time.perf_counter() - start, peak_memory() - before
    X_test, y_test = rows_of(10_000, columns, seed=1)
    nll = -float(np.mean(model.log_density(X_test, y_test)))
    return {"rows": rows, "columns": columns, "seconds": seconds, "memory": memory, "data": X.nbytes + y.nbytes,
            "neighbours": model.neighbours_, "symmetry": model.symmetry_.name, "nll": nll}  # fmt: skip


def rates_table(found: list[Row]) -> str:
    """Rows a second, a column for each number of neighbours."""
    ks = sorted({row["neighbours"] for row in found})
    cases = dict.fromkeys((row["columns"], row["features"], row["rows"]) for row in found)
    lines = []
    for case in cases:
        speeds = {
            row["neighbours"]: row["rows_per_second"]
            for row in found
            if (row["columns"], row["features"], row["rows"]) == case
        }
        lines.append([*(f"{number:,}" for number in case), *(f"{speeds[k]:,.0f}" for k in ks)])
    names = ["no neighbours" if k == 0 else f"{k}" for k in ks]
    return table(["columns", "features", "rows at a time", *names], lines)


def streams_table(found: list[Row]) -> str:
    """Rows a second and memory of streamed tables."""
    lines = []
    for row in found:
        head = [row["format"], f"{row['rows']:,}", str(row["neighbours"])]
        if "error" in row:
            lines.append([*head, "-", row["error"].replace("|", "/")])
            continue
        lines.append([*head, f"{row['rows'] / row['seconds']:,.0f}", f"{row['memory'] / 1e6:.0f}"])
    return table(["format", "rows", "neighbours", "rows a second", "peak of memory, MB"], lines)


def million_text(row: Row) -> str:
    """The fit of a million rows."""
    if "error" in row:
        return f"Fit of {MILLION:,} rows with the defaults: {row['error']}"
    header = ["rows", "seconds", "peak above the data, MB", "data, MB", "neighbours", "symmetry", "NLL"]
    line = [f"{row['rows']:,} x {row['columns']}", f"{row['seconds']:.1f}", f"{row['memory'] / 1e6:.0f}",
            f"{row['data'] / 1e6:.0f}", str(row["neighbours"]), row["symmetry"], f"{row['nll']:+.4f}"]  # fmt: skip
    return f"A fit with the defaults:\n\n{table(header, [line])}"


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = _parser().parse_args(argv)
    sizes = QUICK if arguments.quick else Sizes()
    results: dict[str, Any] = {"rates": rates(sizes)}
    with tempfile.TemporaryDirectory() as folder:
        results["streams"] = list(streams(sizes, Path(folder), arguments.ten_million))
    if arguments.million:
        results["million"] = in_own_process("benchmarks.prediction:fit_many", {}, TIMEOUT, THREADS)
    flags = [f"--{name}" for name in ("million", "ten-million", "quick") if getattr(arguments, name.replace("-", "_"))]
    parts = [
        "## Predictions",
        f"Made by `{' '.join(['python -m benchmarks.prediction', *flags])}`. {facts(machine_rates())}.",
        f"Rows a second of mean and standard deviation, by the number of neighbours; {sizes.train:,} training rows, one block.",
        rates_table(results["rates"]),
        f"Streamed through `harmonicgp predict`, {sizes.columns[0]} columns, {sizes.features[0]} features; start and imports "
        f"of the program are in the memory. {BATCH_ROWS:,} rows are one batch:",
        streams_table(results["streams"]),
        *([million_text(results["million"])] if arguments.million else []),
    ]
    publish("prediction", "\n\n".join(parts), results, arguments.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prediction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--million", action="store_true", help="fit a million rows with the defaults, too")
    parser.add_argument("--ten-million", action="store_true", help="stream ten million rows, too")
    parser.add_argument("--quick", action="store_true", help="few sizes; to see that all runs")
    parser.add_argument("--output", type=Path, help="folder for results in JSON and Markdown")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
