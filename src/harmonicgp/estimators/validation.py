"""Scores of the rows that a fit held out, and the calibration that they give."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from harmonicgp.estimators.model import FittedModel
from harmonicgp.estimators.predictive import Conformal, Noise, Predictive, uneven
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.rows import ModelRows
from harmonicgp.tables.targets import Target
from harmonicgp.training.finish import Validation

#: A variance of noise, in units of that of y, that is as good as none.
NO_NOISE = 1e-5
#: Rows on which the noise of several targets is compared.
COMPARED = 2000


def validate_regression(
    model: FittedModel, held_out: Validation | None, data: ModelRows, y: Array, target: Target, calibration: str | None
) -> FittedModel:
    """The model with the scores of the rows held out, y [N, P], and a calibration where it is wanted and needed."""
    if held_out is None:
        if calibration == "conformal":
            raise ValueError(
                'calibration="conformal" needs at least 200 rows, a tenth of them held out: it cannot be had here.'
            )
        return model
    rows, noise = held_out.rows.cpu().numpy(), Noise.of(model.likelihood)
    mean, variance = held_out.mean.double().cpu().numpy(), held_out.variance.double().cpu().numpy()
    errors = None if data.noise is None else np.broadcast_to(data.noise[rows], mean.shape)
    predictive, observed = Predictive(mean, variance, noise, target, errors), y[rows]
    pit = predictive.cdf(observed)
    weights = None if held_out.counts is None else held_out.counts.double().cpu().numpy()

    def average(values: Array) -> float:
        return float(np.average(values.mean(-1), weights=weights))

    scores: dict[str, Any] = {
        "method": "leave-one-out" if held_out.in_turn else "held-out",
        "rows": float(len(rows) if weights is None else weights.sum()),
        "rmse": _root_mean_square(predictive.mean() - observed, weights),
        "nll": -average(predictive.log_density(observed)),
        "coverage": average((np.abs(pit - 0.5) < 0.475).astype(float)),
    }
    warnings = list(model.warnings)
    if held_out.in_turn and weights is not None and noise.s2 < NO_NOISE:
        missed = np.average(((mean - target.forward(observed)) ** 2).mean(0), weights=weights)
        if missed > 100 * noise.s2:
            warnings.append(
                "rows that repeat, y and all, say that there is no noise, and each row is predicted badly from the others. "
                "If they are copies, drop them; if their weights are no counts of measurements, leave the weights out."
            )
    wanted = calibration == "conformal" or (calibration == "auto" and any(uneven(column, weights) for column in pit.T))
    levels = tuple(Conformal.of(column, weights) for column in pit.T) if wanted else ()
    return replace(model, validation=scores, warnings=warnings, calibration=levels)


def compare_noise(model: FittedModel, data: ModelRows, names: list[str]) -> FittedModel:
    """The model with a warning where targets that share one level of noise differ in it."""
    if len(data.target) < 2:
        return model
    rows = np.linspace(0, len(data) - 1, min(len(data), COMPARED)).astype(int)
    mean, _ = model.moments(data.X[rows])
    left = np.sqrt(np.mean((data.target[:, rows] - mean) ** 2, axis=1))  # of each target, in its standard deviations
    if left.max() <= 1.5 * left.min():
        return model
    low, high = (names[int(k)] for k in (left.argmin(), left.argmax()))
    warning = (
        f"the targets share one level of noise (in units of their standard deviations) and differ in it: error bars of "
        f"{low!r} are too wide, those of {high!r} too narrow. Fit the targets one by one, or with calibration='conformal'."
    )
    return replace(model, warnings=[*model.warnings, warning])


def _root_mean_square(errors: Array, weights: Array | None) -> float:
    """Of errors [n, P], whatever their size: squares of large and of small numbers leave the range of floating-point ones."""
    largest = float(np.abs(errors).max())
    if not 0 < largest < math.inf:
        return largest
    return largest * math.sqrt(np.average(((errors / largest) ** 2).mean(-1), weights=weights))
