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
    scores = {}
    for suffix, weight in (("", None), ("_by_area", weights)):
        scores[f"rmse{suffix}"] = float(np.sqrt(np.average(error, weights=weight)))
        scores[f"nll{suffix}"] = float(np.average(nll, weights=weight))
        scores[f"coverage{suffix}"] = float(np.average(inside, weights=weight))
    return scores
