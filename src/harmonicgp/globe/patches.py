"""Hyper-parameters of a field from the exact marginal likelihood of a few patches of it.

Where rows are observed unevenly (a region, an ocean with land in it), frequencies of the longitude depend on each other, and
the bound of independent ones is the looser the larger the field's variance: it would be learned too small. The marginal
likelihood of some hundred places is exact whatever is missing. Patches of neighbours tell noise and short waves, places from
everywhere the long ones; their likelihoods are added up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from harmonicgp.globe.fields import Field
from harmonicgp.globe.learning import Array, GlobeModel, descend, few
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.kernels.profiles import NAMED_PROFILES

#: Places up to which one patch holds all; else so many patches of neighbours, of so many places, and places from everywhere.
ALL, NEAR, NEIGHBOURS, ANYWHERE = 1200, 4, 400, 600


@dataclass(frozen=True)
class Patch:
    """Squared distances between places [n, n] in Earth radii, values [slices, n], known variances of the noise [n]."""

    squares: Tensor
    values: Tensor
    noise: Tensor | None


def patches(X: Tensor, values: Tensor, noise: Tensor | None, seed: int = 0) -> list[Patch]:
    """Some of the places X [n, 2], longitude and latitude in degrees, with values [slices, n]."""
    n, generator = len(X), torch.Generator().manual_seed(seed)
    places = unit_vectors(X.double())
    order = torch.randperm(n, generator=generator)
    if n <= ALL:
        chosen = [torch.arange(n)]
    else:
        chosen = [(places @ places[i]).topk(NEIGHBOURS).indices for i in order[:NEAR]] + [order[:ANYWHERE]]
    return [
        Patch(
            torch.cdist(places[rows], places[rows], compute_mode="donot_use_mm_for_euclid_dist").square(),
            values[:, rows].double(),
            None if noise is None else noise[rows].double(),
        )
        for rows in chosen
    ]


def field_patches(fields: Sequence[Field], seed: int = 0) -> list[Patch]:
    """Of some of the fields."""
    found = []
    for field in few(fields):
        row, column = field.present.nonzero(as_tuple=True)
        X = torch.stack((field.longitudes[column], field.latitudes[row]), -1)
        noise = None if field.noise is None else field.noise[row, column]
        found += patches(X, field.values[:, row, column], noise, seed)
    return found


@dataclass(frozen=True)
class PatchesLearned:
    """The model of the largest likelihood, that likelihood a value, and the way there."""

    model: GlobeModel
    bound: float
    history: list[dict[str, float]]


def learn_patches(
    model: GlobeModel,
    parts: Sequence[Patch],
    fixed: tuple[bool, bool, bool] = (False, False, False),
    max_evaluations: int = 40,
    progress: Callable[[float], object] | None = None,
) -> PatchesLearned:
    """Lengthscale, scale and noise, those not `fixed`, at the largest marginal likelihood of the patches."""
    free = ~np.array(fixed)
    start = np.log([model.lengthscale, model.scale, model.s2])
    cells = sum(part.values.numel() for part in parts)
    history: list[dict[str, float]] = []
    began = time.perf_counter()

    def value_at(theta: Array) -> tuple[float, Array]:
        if progress is not None:
            progress(min(1.0, len(history) / max_evaluations))
        total, slope = 0.0, np.zeros(3)
        for part in parts:
            value, own = log_likelihood(part, model.kernel, *np.exp(theta).tolist())
            total, slope = total + value, slope + own
        lengthscale, scale, s2 = np.exp(theta).tolist()
        history.append({
            "bound": total / cells, "lengthscale": lengthscale, "scale": scale, "noise": s2,
            "rows": float(cells), "seconds": time.perf_counter() - began,
        })  # fmt: skip
        return -total / cells, -slope / cells

    def guarded(x: Array) -> tuple[float, Array]:
        theta = start.copy()
        theta[free] = x
        value, slope = value_at(theta)
        return value, slope[free]

    if not free.any():
        value, _ = value_at(start)
        return PatchesLearned(model, -value, history)
    variance = max(model.scale, 1e-12)
    shortest = min(0.3 * _spacing(parts), model.lengthscale)
    limits = np.log([(shortest, 4.0), (1e-4 * variance, 1e4 * variance), (1e-7 * variance, 10 * variance)])
    x, value, _ = descend(guarded, np.clip(start, limits[:, 0], limits[:, 1])[free], limits[free], max_evaluations)
    theta = start.copy()
    theta[free] = x
    lengthscale, scale, s2 = np.exp(theta).tolist()
    return PatchesLearned(replace(model, lengthscale=lengthscale, scale=scale, s2=s2), -value, history)


def _spacing(parts: Sequence[Patch]) -> float:
    """The median distance of a place to its nearest neighbour, in Earth radii."""
    apart = [part.squares + 9.0 * torch.eye(len(part.squares), dtype=torch.float64) for part in parts]
    return max(1e-4, min(float(squares.amin(-1).median().sqrt()) for squares in apart))


@torch.no_grad()
def log_likelihood(part: Patch, kernel: str, lengthscale: float, scale: float, s2: float) -> tuple[float, Array]:
    """The log marginal likelihood of a patch, over its slices, and its slopes by the three logarithms."""
    r2 = part.squares / lengthscale**2
    profile = NAMED_PROFILES[kernel]
    k = profile.value(r2.clone(), 0.0)
    slope = -2 * r2 * profile.slope(r2, k, 0.0)[0]
    n, slices = len(k), len(part.values)
    diagonal = torch.full((n,), s2, dtype=torch.float64) if part.noise is None else s2 + part.noise
    K = scale * k
    total = K.clone()
    total.diagonal().add_(diagonal + 1e-10 * scale)
    L, info = torch.linalg.cholesky_ex(total)
    if int(info):
        return -1e10 * n * slices, np.zeros(3)
    alpha = torch.cholesky_solve(part.values.mT, L)  # [n, slices]
    quadratic = float((part.values.mT * alpha).sum())
    value = -0.5 * (quadratic + slices * (2 * float(L.diagonal().log().sum()) + n * math.log(2 * math.pi)))
    W = alpha @ alpha.mT - slices * torch.cholesky_inverse(L)
    slopes = [
        0.5 * float((W * (scale * slope)).sum()),
        0.5 * float((W * K).sum()),
        0.5 * s2 * float(W.diagonal().sum()),
    ]
    return value, np.array(slopes)
