"""Refinement of noise and output scale on held-out rows.

The noise with the best bound compensates for what the features miss, and does not predict best. So both scalars are searched for
the best mean predictive log-likelihood of held-out rows. Every trial is a closed form on stored statistics, without a pass over
the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features.evaluation import DenseEvaluation
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.posterior import Family
from harmonicgp.inference.statistics import Statistics


@dataclass(frozen=True)
class Refinement:
    """The best noise variance and output scale, and their score on held-out rows."""

    s2: float
    scale: float
    before: float  #: the mean log-likelihood of a held-out row at the start
    after: float  #: the same at (s2, scale)
    trials: int  #: the number of closed forms


@torch.no_grad()
def heldout_score(
    statistics: Statistics,
    heldout: DenseEvaluation,
    y: Tensor,
    s2: float,
    scale: float = 1.0,
    family: Family = "block",
    counts: Tensor | None = None,
) -> float:
    """The mean log-density of held-out targets y [P, n] under the closed form at (s2, scale)."""
    posterior = closed_form(statistics, s2, family, "tight", scale).posterior
    mean, variance = posterior.moments(heldout.scaled(math.sqrt(scale)))
    total = variance.double() + scale * heldout.residual.variance.double() + s2
    density = -0.5 * (2 * math.pi * total).log() - 0.5 * (y.double() - mean).square() / total
    return float(density.mean() if counts is None else (density * counts).sum() / (len(y) * counts.sum()))


def refine(
    statistics: Statistics,
    heldout: DenseEvaluation,
    y: Tensor,
    s2: float,
    family: Family = "block",
    noise_limits: tuple[float, float] = (1e-6, 1e6),
    scale_limits: tuple[float, float] = (1e-3, 1e3),
    trials: int = 9,
    counts: Tensor | None = None,
) -> Refinement:
    """Search (s2, scale) from (s2, 1): noise, then output scale, then noise again, `trials` closed forms each.

    The result is never worse on the held-out rows than the start. Limits with a single value fix that scalar.
    """
    scores: dict[tuple[float, float], float] = {}

    def score(log_s2: float, log_scale: float) -> float:
        key = (log_s2, log_scale)
        if key not in scores:
            try:
                value = heldout_score(statistics, heldout, y, math.exp(log_s2), math.exp(log_scale), family, counts)
            except NotPositiveDefiniteError:
                value = -math.inf
            scores[key] = value if math.isfinite(value) else -math.inf
        return scores[key]

    start = (math.log(s2), 0.0)
    before, best = score(*start), start
    # Below this noise the rounding of A A' is not small compared with the identity.
    largest = max(float(block.diagonal(dim1=-2, dim2=-1).max()) for block in statistics.blocks)
    least = max(noise_limits[0], statistics.rounding * largest)
    limits = (tuple(map(math.log, (least, noise_limits[1]))), tuple(map(math.log, scale_limits)))
    reach = ((math.log(0.003), math.log(4.0)), (math.log(0.1), math.log(10.0)))  # noise, output scale
    for which in (0, 1, 0):
        window = (-1.0, 1.0) if which == 0 and best != start else reach[which]
        for _ in range(3):  # the window moves while the best point is at its edge
            low, high = max(best[which] + window[0], limits[which][0]), min(best[which] + window[1], limits[which][1])
            if low >= high:
                break
            objective = _along(score, which, best)
            minimize_scalar(objective, bounds=(low, high), method="bounded", options={"maxiter": trials, "xatol": 0.05})
            best = max(scores, key=lambda key: scores[key])
            if low + 0.3 < best[which] < high - 0.3:
                break
            window = (-1.5, 1.5)
    return Refinement(math.exp(best[0]), math.exp(best[1]), before, scores[best], len(scores))


def _along(score: Callable[[float, float], float], which: int, at: tuple[float, float]) -> Callable[[float], float]:
    """The negative score along one of the two scalars."""
    return lambda value: -(score(value, at[1]) if which == 0 else score(at[0], value))
