"""SOLVE-GP's M+M, two sets of inducing points that are whitened one after the other, beside M, 2M and HVGP's 2 x M.

The setting of `experiments.regression`, with these four models only. Sizes: small (kin40k, M = 32, 100 steps; a minute),
medium (kin40k, keggdirected, houseelectric, flights3m, M = 256, 5,000 steps; half an hour on two cores), paper (M = 1000,
30,000 steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._runner import run, some_of
from experiments._tables import load_table
from experiments.regression import SIZES, compare, report

MODELS = ("M", "2M", "M+M", "2xM")
TABLES = ("kin40k", "keggdirected", "houseelectric", "flights3m")


def experiment(size: str, output: Path, tables: Sequence[str] | None = None) -> Mapping[str, Any]:
    """The four models on every table."""
    m, steps, _ = SIZES[size]
    rows = []
    for name in tables or (TABLES[:1] if size == "small" else TABLES):
        rows += compare(name, load_table(name), m, steps, 0, MODELS, budgets=())[0]
        report(rows, [], output, "solve_gp")
    return {"rows": rows}


if __name__ == "__main__":
    run("solve_gp", __doc__, experiment, {"tables": some_of(TABLES)})
