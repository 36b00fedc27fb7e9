"""Noise and output scale on held-out rows: what the bound does not know.

The bound's own noise makes up for what the features miss, and is not the one that predicts best. Both scalars are searched
for the best mean predictive log-likelihood of rows that were kept out; every trial is a closed form on stored statistics,
without a pass over the data.
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
    """The scalars found, and the held-out scores before and after (mean log-likelihood of a row)."""

    s2: float
    scale: float
    before: float
    after: float
    trials: int


@torch.no_grad()
def heldout_score(
    statistics: Statistics,
    held: DenseEvaluation,
    y: Tensor,
    s2: float,
    scale: float = 1.0,
    family: Family = "block",
    counts: Tensor | None = None,
) -> float:
    """The mean log-density of held-out targets y [P, n] under the closed form at (s2, scale)."""
    posterior = closed_form(statistics, s2, family, "tight", scale).posterior
    mean, variance = posterior.moments(held.scaled(math.sqrt(scale)))
    total = variance.double() + scale * held.residual.variance.double() + s2
    density = -0.5 * (2 * math.pi * total).log() - 0.5 * (y.double() - mean).square() / total
    return float(density.mean() if counts is None else (density * counts).sum() / (len(y) * counts.sum()))


def refine(
    statistics: Statistics,
    held: DenseEvaluation,
    y: Tensor,
    s2: float,
    family: Family = "block",
    noise_limits: tuple[float, float] = (1e-6, 1e6),
    scale_limits: tuple[float, float] = (1e-3, 1e3),
    trials: int = 9,
    counts: Tensor | None = None,
) -> Refinement:
    """Search (s2, scale) from (s2, 1): noise, then output scale, then noise again, `trials` closed forms each.

    Never worse on the held-out rows: where the search finds nothing better, the start is returned. Limits that leave one
    value keep that scalar.
    """
    count = 0
    seen: dict[tuple[float, float], float] = {}

    def score(log_s2: float, log_scale: float) -> float:
        nonlocal count
        key = (log_s2, log_scale)
        if key not in seen:
            count += 1
            try:
                value = heldout_score(statistics, held, y, math.exp(log_s2), math.exp(log_scale), family, counts)
            except NotPositiveDefiniteError:
                value = -math.inf
            seen[key] = value if math.isfinite(value) else -math.inf
        return seen[key]

    start = (math.log(s2), 0.0)
    before, best = score(*start), start
    # Below this noise the rounding of A A' is no longer small against the identity.
    largest = max(float(block.diagonal(dim1=-2, dim2=-1).max()) for block in statistics.blocks)
    least = max(noise_limits[0], statistics.rounding * largest)
    limits = (tuple(map(math.log, (least, noise_limits[1]))), tuple(map(math.log, scale_limits)))
    reach = ((math.log(0.003), math.log(4.0)), (math.log(0.1), math.log(10.0)))  # noise, output scale
    for which in (0, 1, 0):
        near = (-1.0, 1.0) if which == 0 and best != start else reach[which]
        for _ in range(3):  # further on where the best lies at the edge
            low, high = max(best[which] + near[0], limits[which][0]), min(best[which] + near[1], limits[which][1])
            if low >= high:
                break
            objective = _along(score, which, best)
            minimize_scalar(objective, bounds=(low, high), method="bounded", options={"maxiter": trials, "xatol": 0.05})
            best = max(seen, key=lambda key: seen[key])
            if low + 0.3 < best[which] < high - 0.3:
                break
            near = (-1.5, 1.5)
    return Refinement(math.exp(best[0]), math.exp(best[1]), before, seen[best], count)


def _along(score: Callable[[float, float], float], which: int, at: tuple[float, float]) -> Callable[[float], float]:
    """The negative score along one of the two scalars."""
    return lambda value: -(score(value, at[1]) if which == 0 else score(at[0], value))
