"""How good predictions of a field are."""

from __future__ import annotations

import numpy as np

from harmonicgp.tables.columns import Array


def field_scores(mean: Array, variance: Array, y: Array, weights: Array) -> dict[str, float]:
    """RMSE, NLL and coverage of 95 % intervals; `..._by_area` with cells weighted by `weights`."""
    if not y.size:
        raise ValueError("no cell has both a value and a prediction: there is nothing to score.")
    error = (y - mean) ** 2
    nll = 0.5 * (np.log(2 * np.pi * variance) + error / variance)
    inside = error <= 1.959963984540054**2 * variance
    weights = weights / weights.sum()
    return {
        "rmse": float(np.sqrt(error.mean())),
        "nll": float(nll.mean()),
        "coverage": float(inside.mean()),
        "rmse_by_area": float(np.sqrt((weights * error).sum())),
        "nll_by_area": float((weights * nll).sum()),
        "coverage_by_area": float((weights * inside).sum()),
    }
