"""Scattered points on the globe: the closed form of the same features in batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.features.longitude import LongitudeFeatures, LongitudeWhitened
from harmonicgp.globe.closed_form import MAX_EXACT_DRAWS
from harmonicgp.globe.learning import Array
from harmonicgp.inference.closed_form import ClosedForm, Statistics, closed_form, gather_statistics, streaming_matvec
from harmonicgp.likelihoods.observation import Bound

#: Features of scattered points, at most, unless given: their matrix is held.
MOST = 4096


@dataclass(frozen=True)
class Points:
    """Places (longitude, latitude) [n, 2], values [n] and known variances of their noise."""

    X: Tensor
    y: Tensor
    noise: Tensor | None = None


def points_statistics(
    features: LongitudeFeatures, whitened: LongitudeWhitened, points: Points, s2: float, bound: Bound = "tight"
) -> tuple[ClosedForm, Statistics]:
    """The optimal posterior, in batches, and the statistics it comes from."""
    size = max(64, (1 << 24) // features.n_features)
    weights = None if points.noise is None else s2 / (s2 + points.noise)
    statistics = gather_statistics(whitened, features.shapes, points.X, points.y[None], weights, size)
    matvec = None if statistics.S is not None else streaming_matvec(whitened, points.X, weights, size)
    form = closed_form(statistics, s2, "block", bound, matvec=matvec)
    return form, statistics


def points_draws(features: LongitudeFeatures, statistics: Statistics, s2: float, n: int, seed: int) -> Tensor | None:
    """As `inference.fields.joint_draws`, from the dense statistics; None where there are none."""
    if statistics.S is None:
        return None
    F = len(statistics.S)
    C = torch.linalg.cholesky(torch.eye(F, dtype=torch.float64) + statistics.S / s2)
    if F <= MAX_EXACT_DRAWS:
        white = math.sqrt(F) * torch.eye(F, dtype=torch.float64)
    else:
        white = torch.randn(F, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    v = torch.linalg.solve_triangular(C.mT, white, upper=True).mT.unflatten(1, features.shapes[0])
    T, sines = features.t_max + 1, features.n_sines
    draws = torch.zeros(len(v), 2, T, len(features.Z), dtype=torch.float64)
    draws[:, 0], draws[:, 1, 1 : sines + 1] = v[:, :T], v[:, T:]
    return draws


def span(latitudes: Array) -> tuple[float, float]:
    """The latitudes for which points need inducing ones: theirs and a little more, or all where they cover most of the globe."""
    low, high = float(latitudes.min()), float(latitudes.max())
    if high - low > 150:
        return -90.0, 90.0
    margin = max(0.05 * (high - low), 1.0)
    return max(-90.0, low - margin), min(90.0, high + margin)


def most_features(extent: float) -> tuple[int, int]:
    """Inducing latitudes over an extent of degrees, and frequencies that resolve as much, of at most `MOST` features."""
    m = 1
    while (m + 1) * (2 * round(180 * (m + 1) / extent) + 1) <= MOST:
        m += 1
    return m, round(180 * m / extent)
