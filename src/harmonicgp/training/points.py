"""Scattered points on the globe: the closed form of the same features in batches, and hyper-parameters from its bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from harmonicgp.features.longitude import LongitudeFeatures, LongitudeWhitened
from harmonicgp.inference.closed_form import ClosedForm, Statistics, closed_form, gather_statistics, streaming_matvec
from harmonicgp.inference.field_closed_form import MAX_EXACT_DRAWS
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.linalg import NotPositiveDefiniteError
from harmonicgp.training.fields import Array, GlobeModel

#: Points that hyper-parameters are learned from.
LEARNED_FROM = 4000


@dataclass(frozen=True)
class Points:
    """Places (longitude, latitude) [n, 2], values [n] and known variances of their noise."""

    X: Tensor
    y: Tensor
    noise: Tensor | None = None

    def some(self, chosen: Tensor) -> Points:
        """Some of them."""
        return Points(self.X[chosen], self.y[chosen], None if self.noise is None else self.noise[chosen])


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


def learn_points(
    model: GlobeModel,
    points: Points,
    bound: Bound = "tight",
    fixed: tuple[bool, ...] = (False, False, False),
    max_evaluations: int = 40,
    seed: int = 0,
    progress: Callable[[float], object] | None = None,
) -> tuple[GlobeModel, list[dict[str, float]]]:
    """Lengthscale, scale and noise, those not `fixed`, at the largest bound of neighbouring points, without gradients."""
    free = ~np.array(fixed)
    history: list[dict[str, float]] = []
    if not free.any():
        return model, history
    if len(points.y) > LEARNED_FROM:  # those nearest to a few places, so that they are as dense as all
        generator = torch.Generator().manual_seed(seed)
        centres = points.X[torch.randperm(len(points.y), generator=generator)[:4]]
        x, c = (_unit(a) for a in (points.X, centres))
        nearest = (x @ c.mT).topk(LEARNED_FROM // 4, dim=0).indices.flatten().unique()
        points = points.some(nearest)
    start = np.log([model.lengthscale, model.scale, model.s2])

    def at(x: Array) -> GlobeModel:
        theta = start.copy()
        theta[free] = x
        lengthscale, scale, s2 = np.exp(theta).tolist()
        return replace(model, lengthscale=lengthscale, scale=scale, s2=s2)

    def value(x: Array) -> float:
        if progress is not None:
            progress(min(1.0, len(history) / max_evaluations))
        if np.abs(x - start[free]).max() > 12:
            return 1e10
        candidate = at(x)
        features = candidate.features()
        try:
            form, _ = points_statistics(features, features.whiten(), points, candidate.s2, bound)
        except NotPositiveDefiniteError:
            return 1e10
        history.append({
            "bound": form.bound / len(points.y), "lengthscale": candidate.lengthscale, "scale": candidate.scale,
            "noise": candidate.s2, "rows": float(len(points.y)),
        })  # fmt: skip
        return -form.bound / len(points.y)

    simplex = np.vstack((start[free], start[free] + 0.7 * np.eye(int(free.sum()))))
    found = minimize(
        value, start[free], method="Nelder-Mead",
        options={"maxfev": max(4, max_evaluations), "initial_simplex": simplex, "xatol": 0.02, "fatol": 1e-4},
    )  # fmt: skip
    return at(found.x), history


def _unit(x: Tensor) -> Tensor:
    p, q = (x * (math.pi / 180)).unbind(-1)
    return torch.stack((q.cos() * p.cos(), q.cos() * p.sin(), q.sin()), -1)
