"""Scores of the rows held out from a fit, and the calibration that follows from them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from harmonicgp.estimators.model import FittedModel
from harmonicgp.estimators.predictive import Conformal, Noise, Predictive, uneven
from harmonicgp.tables.columns import Array
from harmonicgp.tables.rows import ModelRows
from harmonicgp.tables.targets import Target
from harmonicgp.training.finish import Validation

#: A noise variance below this share of the variance of y counts as no noise.
NO_NOISE = 1e-5
#: Rows on which the noise of several targets is compared, at most.
COMPARED = 2000


def validate_regression(
    model: FittedModel, held_out: Validation | None, data: ModelRows, y: Array, target: Target, calibration: str | None
) -> FittedModel:
    """The model with the scores of held-out rows and, if necessary, a calibration; y [N, P] are the targets of all rows."""
    if held_out is None:
        if calibration == "conformal":
            raise ValueError(
                'calibration="conformal" needs at least 200 rows, a tenth of them held out, and this fit has no held-out rows.'
            )
        return model
    rows, noise = held_out.rows.cpu().numpy(), Noise.of(model.likelihood)
    mean, variance = held_out.mean.double().cpu().numpy(), held_out.variance.double().cpu().numpy()
    errors = None if data.noise is None else np.broadcast_to(data.noise[rows], mean.shape)
    varying = None if held_out.noise is None else held_out.noise.double().cpu().numpy()
    predictive, observed = Predictive(mean, variance, noise, target, errors, varying=varying), y[rows]
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
        squared_error = np.average(((mean - target.forward(observed)) ** 2).mean(0), weights=weights)
        if squared_error > 100 * noise.s2:
            warnings.append(
                "rows that repeat with equal y suggest that there is no noise, but each row is predicted badly from the others. "
                "If they are copies, drop them; if their weights are not counts of measurements, leave the weights out."
            )
    needed = calibration == "conformal" or (calibration == "auto" and any(uneven(column, weights) for column in pit.T))
    levels = tuple(Conformal.of(column, weights) for column in pit.T) if needed else ()
    return replace(model, validation=scores, warnings=warnings, calibration=levels)


def compare_noise(model: FittedModel, data: ModelRows, names: list[str]) -> FittedModel:
    """The model with a warning if targets that share one noise level have different noise."""
    if len(data.target) < 2:
        return model
    rows = np.linspace(0, len(data) - 1, min(len(data), COMPARED)).astype(int)
    mean, _ = model.moments(data.X[rows])
    residuals = np.sqrt(
        np.mean((data.target[:, rows] - mean) ** 2, axis=1)
    )  # of each target, in its standard deviations
    if residuals.max() <= 1.5 * residuals.min():
        return model
    low, high = (names[int(k)] for k in (residuals.argmin(), residuals.argmax()))
    warning = (
        f"the targets share one noise level (in units of their standard deviations), but their noise differs: error bars of "
        f"{low!r} are too wide, those of {high!r} too narrow. Fit the targets one by one, or with calibration='conformal'."
    )
    return replace(model, warnings=[*model.warnings, warning])


def _root_mean_square(errors: Array, weights: Array | None) -> float:
    """The root mean square of errors [n, P], without overflow or underflow of the squares."""
    largest = float(np.abs(errors).max())
    if not 0 < largest < math.inf:
        return largest
    return largest * math.sqrt(np.average(((errors / largest) ** 2).mean(-1), weights=weights))
