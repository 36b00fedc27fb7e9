"""The tabular suite: HarmonicGPRegressor() with its defaults against SVGP, GPBoost, scikit-learn's GP and LightGBM.

    python -m benchmarks.tabular --output out
    python -m benchmarks.tabular --sets houseelectric,flights3m --output out

Needs the .npz files of the tables in the folder that HARMONICGP_DATA names. Each cell runs by itself in a fresh process with two
threads; results are kept in tabular.jsonl, so that the suite can be ended at any time and goes on where it was. SVGP and each
kind of GPBoost train up to ten minutes a set, so that all of it takes some five hours; --quick is shorter and says little about
quality. Tables of millions of rows are run only when they are named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks._data import DataNotFoundError
from benchmarks._harness import (
    LARGE,
    POOLED,
    SETS,
    THREADS,
    Cell,
    Results,
    Row,
    load_task,
    run_cell,
    run_missing,
    terminated_as_interrupted,
    versions,
)
from benchmarks._rates import table
from benchmarks.peers import MODELS, QUICK, VECCHIA, VIF, Caps
from harmonicgp.io.container import write_text_atomically

OURS, PEER = "harmonicgp", "svgp"
QUICK_FOLDS = 2


class Suite(NamedTuple):
    """What was asked for."""

    sets: tuple[str, ...] = SETS
    models: tuple[str, ...] = tuple(MODELS)
    quick: bool = False

    def cells(self, name: str, model: str) -> list[Cell]:
        """Fold 0 of a large set; the ten folds of a small one, or the first two when quick."""
        folds = (QUICK_FOLDS if self.quick else 10) if name in POOLED else 1
        return [Cell(name, model, fold, self.quick) for fold in range(folds)]

    def command(self) -> str:
        """How to make the table again."""
        words = ["python -m benchmarks.tabular"]
        words += [f"--sets {','.join(self.sets)}"] if self.sets != SETS else []
        words += [f"--models {','.join(self.models)}"] if self.models != tuple(MODELS) else []
        return " ".join([*words, "--quick"] if self.quick else words)


def pooled(results: Results, cells: Sequence[Cell]) -> Row:
    """One row for a set and a model: scores over all test rows, seconds summed, the largest memory; or an `error`."""
    rows = [row for cell in cells if (row := results.find(cell)) is not None]
    errors = [row["error"] for row in rows if "error" in row]
    if errors:
        return {"error": errors[0] if len(cells) == 1 else f"{len(errors)} of {len(cells)} folds: {errors[0]}"}
    if len(rows) < len(cells):
        return {"error": "not run" if not rows else f"{len(rows)} of {len(cells)} folds run"}
    weights = [row["test_rows"] for row in rows]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights))

    notes = list(dict.fromkeys(row["note"] for row in rows))
    return {
        "rmse": mean([row["rmse"] ** 2 for row in rows]) ** 0.5,
        "nll": None if rows[0]["nll"] is None else mean([row["nll"] for row in rows]),
        "coverage": mean([row["coverage"] for row in rows]),
        "seconds": sum(row["seconds"] for row in rows),
        "memory": max(row["memory"] for row in rows),
        "note": " / ".join([*notes[:2], "..."] if len(notes) > 2 else notes),
        "shape": f"{rows[0]['rows']:,} x {rows[0]['columns']}",
    }


def scores_table(results: Results, suite: Suite) -> str:
    """All scores, a line for each set and model."""
    header = ["set", "model", "RMSE", "NLL", "95 % coverage", "seconds", "memory, MB", "note"]
    lines = []
    for name in suite.sets:
        for model in suite.models:
            row = pooled(results, suite.cells(name, model))
            if "error" in row:
                lines.append([name, model, *["-"] * 5, row["error"].replace("|", "/")])
                continue
            lines.append(
                [
                    f"{name} ({row['shape']})",
                    model,
                    f"{row['rmse']:.4f}",
                    "-" if row["nll"] is None else f"{row['nll']:+.3f}",
                    f"{100 * row['coverage']:.1f} %",
                    f"{row['seconds']:.1f}",
                    f"{row['memory'] / 1e6:.0f}",
                    row["note"],
                ]
            )
    return table(header, lines)


def verdicts(results: Results, suite: Suite) -> str:
    """Ours against SVGP on each set, and the counts. A set where either has no result counts as not won."""
    lines, better, quicker, both, calibrated = [], 0, 0, 0, 0
    for name in suite.sets:
        ours, peer = (pooled(results, suite.cells(name, model)) for model in (OURS, PEER))
        covered = "error" not in ours and abs(ours["coverage"] - 0.95) <= 0.02
        calibrated += covered
        if "error" in ours or "error" in peer:
            lines.append([name, *["-"] * 4, "yes" if covered else "no" if "error" not in ours else "-"])
            continue
        wins, ratio = ours["nll"] < peer["nll"], ours["seconds"] / peer["seconds"]
        better, quicker, both = better + wins, quicker + (ratio <= 1), both + (wins and ratio <= 1)
        figures = [f"{ours['nll']:+.3f}", f"{peer['nll']:+.3f}", "yes" if wins else "no", f"{ratio:.2f}"]
        lines.append([name, *figures, "yes" if covered else "no"])
    n = len(suite.sets)
    summary = (
        f"Against SVGP: better NLL on {better} of {n}, at no more time on {quicker} of {n} (both on {both}); "
        f"coverage within 2 points on {calibrated} of {n}."
    )
    header = ["set", "NLL, ours", "NLL, SVGP", "better NLL", "time, ours / SVGP", "coverage within 2 points"]
    return f"{table(header, lines)}\n\n{summary}"


def tables(results: Results, suite: Suite) -> str:
    """The scores, and the verdicts where both sides were run."""
    parts = [scores_table(results, suite)]
    return "\n\n".join([*parts, verdicts(results, suite)] if {OURS, PEER} <= {*suite.models} else parts)


def machine(size: int = 2048, repeats: int = 5) -> str:
    """Cores, torch, and the speed of a matrix product in float32 with the threads of the suite."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    a = torch.ones(size, size, dtype=torch.float32)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    speed = 2 * size**3 / min(times) / 1e9
    return (
        f"{os.cpu_count()} cores, {THREADS} threads in use; torch {torch.__version__}; GEMM float32 {speed:.0f} GFLOP/s"
    )


def page(results: Results, suite: Suite, facts: str) -> str:
    """The whole page, in Markdown; with what remarks.md beside the results says of how they came about."""
    remarks = results.path.with_name("remarks.md")
    told = f"\n{remarks.read_text('utf-8').strip()}\n" if remarks.exists() else ""
    caps = QUICK if suite.quick else Caps()
    used = {name: number for model in suite.models for name, number in versions(model).items()}
    libraries = ", ".join(f"{name} {number}" for name, number in used.items())
    folds = f"first {QUICK_FOLDS}" if suite.quick else "ten"
    return f"""# Tabular benchmark{" (quick)" if suite.quick else ""}

Made by `{suite.command()}` on {facts}; {libraries}.

Scores are of y divided by the standard deviation of the training y; lower RMSE and NLL are better. {", ".join(POOLED)}: pooled
over the {folds} test folds, seconds summed; the others: test fold 0. Seconds are of fit and prediction; memory is the peak above
that after imports and data. Each cell ran by itself in a fresh process.

{tables(results, suite)}

{notes(suite, caps)}
{told}"""


def notes(suite: Suite, caps: Caps) -> str:
    """How each model was run."""
    texts = {
        "harmonicgp": "`HarmonicGPRegressor()`, no argument, on the table as it is.",
        "svgp": f"""GPyTorch, M = {caps.svgp_inducing:,} (or N) from k-means, ARD Matern-3/2, lengthscales from the median
  distance, constant mean, Adam 0.01, batches of 1024, float32, inputs and target standardised. Evaluated at
  {caps.svgp_epochs} epochs and at {caps.svgp_seconds:g} s of training, where it stops; where the epochs take longer than
  that, the second point is the only one (pooled sets:
  {caps.svgp_seconds / 10:g} s a fold). The better test NLL counts, fold by fold, with the seconds of that point (see note).""",
        "sklearn": f"""GaussianProcessRegressor, ARD Matern-3/2 + white noise; hyper-parameters by at most
  {caps.sklearn_iterations} iterations of L-BFGS on {caps.sklearn_search_rows:,} random rows, then conditioned on
  {caps.sklearn_rows:,}: its gradient is an array of rows x rows x columns, too large for a search on all of those.""",
        "lightgbm": f"""{caps.trees} trees at most, rate 0.05, 31 leaves, stopped early on a tenth of the training rows;
  RMSE of the L2 model, coverage between quantile models. Its density is normal around the L2 model, with one standard deviation
  for all rows: that of its errors on the same tenth. Its seconds are of all four models.""",
        "gpboost": f"""GPBoost's Vecchia approximation, {VECCHIA.neighbours} neighbours. {_gpboost(caps)}""",
        "gpboost-vif": f"""GPBoost's inducing points and Vecchia approximation of the rest (`full_scale_vecchia`),
  {VIF.inducing} inducing points and {VIF.neighbours} neighbours. {_gpboost(caps)}""",
    }
    lines = [f"- {model}: {texts[model]}" for model in suite.models]
    lines += [f"- {name} {text}" for name, text in TABLES.items() if name in suite.sets]
    return "\n".join(lines)


TABLES = {
    "bike": "is without columns 15 and 16, of whose sum the target is the logarithm.",
    "houseelectric": "has the logarithm of y as its target.",
    "flights3m": "has delays, clipped to -60 and 180 minutes, and airports as latitude and longitude; its folds are random.",
}


def _gpboost(caps: Caps) -> str:
    return f"""ARD Matern-3/2, lengthscales from the median
  distance, inputs and target standardised, float64, L-BFGS with at most {caps.gpboost_iterations} iterations: first on
  {caps.gpboost_search_rows:,} random rows, then on {caps.gpboost_rows:,} at most; fewer where {caps.gpboost_seconds:g} s
  are over (pooled sets: {caps.gpboost_seconds / 10:g} s a fold). Scored on {caps.gpboost_test_rows:,} test rows at most."""


def run(suite: Suite, results: Results) -> None:
    """Measure what is not there yet."""
    cells = [cell for name in suite.sets for model in suite.models for cell in suite.cells(name, model)]
    run_missing(cells, results, run_cell, lambda cell: f"{cell.set} fold {cell.fold} {cell.model}", _line)


def _line(row: Row) -> str:
    nll = "" if row["nll"] is None else f"NLL {row['nll']:+.3f}, "
    return f"{nll}RMSE {row['rmse']:.4f}, coverage {100 * row['coverage']:.1f} %, {row['seconds']:.1f} s"


def main(argv: list[str]) -> int:
    """Run the suite as the arguments say: 0 when the table is written, 1 without data, 130 when interrupted."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    installed = tuple(model for model in arguments.models if "none" not in versions(model).values())
    for model in arguments.models:
        if model not in installed:
            print(f"{model} is left out, not installed: pip install 'harmonicgp[bench]'", file=sys.stderr)
    suite = Suite(arguments.sets, installed, arguments.quick)
    try:
        for name in suite.sets:
            load_task(name, 0)
        arguments.output.mkdir(parents=True, exist_ok=True)
        results = Results(arguments.output / "tabular.jsonl")
    except (DataNotFoundError, ValueError) as error:
        print(f"bench tabular: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        parser.error(f"cannot write to --output {arguments.output}: {error.strerror}")
    if arguments.redo:
        results.forget(arguments.redo, suite.quick)
    try:
        with terminated_as_interrupted():
            run(suite, results)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        return 130
    path = arguments.output / "benchmarks-tabular.md"
    write_text_atomically(path, page(results, suite, machine()))
    print(f"\n{tables(results, suite)}\n\nresults in {results.path}, page in {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harmonicgp bench tabular", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sets, models = ", ".join(SETS + LARGE), ", ".join(MODELS)
    some: dict[str, Any] = {"metavar": "A,B"}
    parser.add_argument("--sets", type=_names(SETS + LARGE), default=SETS, help=f"only these sets, of {sets}", **some)
    parser.add_argument(
        "--models", type=_names(MODELS), default=tuple(MODELS), help=f"only these models, of {models}", **some
    )
    parser.add_argument("--redo", type=_names(MODELS), default=(), help="measure these models anew", **some)
    parser.add_argument(
        "--quick", action="store_true", help="small caps for the peers (SVGP 20 s), two folds; to see that all runs"
    )
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for results (default: out)")
    return parser


def _names(known: Sequence[str] | dict[str, Any]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
