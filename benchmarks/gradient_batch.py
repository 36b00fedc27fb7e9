"""Which batch should Adam's gradient come from? Test NLL on two tables for the three choices, refinement included.

    python -m benchmarks.gradient_batch

Needs kin40k.npz in the folder that HARMONICGP_DATA names. About four minutes on two cores.
"""

from __future__ import annotations

import numpy as np

from benchmarks._data import DataNotFoundError, load_npz, standardised_fold
from experiments.engine import fit_and_score, skewed_table


def main() -> None:
    """Print one row for each table and choice."""
    try:
        data = load_npz("kin40k")
    except DataNotFoundError as error:
        print(f"gradient_batch skipped: {error}")
        return
    test = np.unpackbits(data["test_mask"], axis=0)[: len(data["y"]), 0].astype(bool)
    tables = {
        "kin40k": (standardised_fold(data["X"], data["y"], test, principal=True), 256),
        "skewed": (standardised_fold(*skewed_table(), principal=True), 128),
    }
    for name, (fold, m) in tables.items():
        for choice in ("same", "fresh", "before"):
            row = fit_and_score(fold, 3, m, "block", 250, choice)
            print(
                f"{name:7s} 8x{m} {choice:7s} {row['seconds']:5.1f} s  NLL {row['nll']:+.4f}  RMSE {row['rmse']:.4f}  "
                f"coverage {100 * row['coverage']:.1f} %"
            )


if __name__ == "__main__":
    main()
