"""Hyper-parameters and sizes of a field on the globe, from the collapsed bound.

The bound of a whole grid and its gradient take a pass over all its features. What the lengthscale, the output scale and the noise
should be is seen as well in a few strips of latitudes at full resolution: each is a data set of its own, with the inducing
latitudes that lie in it. A coarser grid would not do: it cannot tell short waves from noise. The last steps are on all rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features.longitude import LongitudeFeatures
from harmonicgp.globe.closed_form import field_bound
from harmonicgp.globe.fields import Field
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import Bound

Array: TypeAlias = "np.ndarray[Any, Any]"

#: Rows of a grid from which on strips stand for it, the share of rows that they hold, and how many there are.
STRIPS_FROM, STRIPS_SHARE, STRIPS = 120, 0.12, 6
#: The longest step of a logarithm in learning.
LONGEST = 0.7
#: The residual of the features, on average, may be this share of the noise: neighbouring cells share it, so that it does not
#: average out as noise does.
RESIDUAL_SHARE = 0.002

BASES: dict[str, Callable[[], gpytorch.kernels.Kernel]] = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5),
}


@dataclass(frozen=True)
class GlobeModel:
    """All that a field's model is made of, but for its posterior."""

    kernel: str  #: a name of `BASES`
    lengthscale: float  #: in Earth radii
    scale: float  #: the variance of the field
    s2: float  #: of the noise
    m: int  #: inducing latitudes
    t_max: int
    order: int | None  #: longitudes of the lattice, or None for the circle group
    meridian: float
    south: float = -90.0  #: the inducing latitudes lie evenly between
    north: float = 90.0

    @property
    def step(self) -> float:
        """Degrees between inducing latitudes."""
        return (self.north - self.south) / self.m

    def latitudes(self) -> Tensor:
        """Of the inducing points: never a pole, where all frequencies but t = 0 vanish."""
        return self.south + (torch.arange(self.m, dtype=torch.float64) + 0.5) * self.step

    def globe_kernel(self) -> gpytorch.kernels.ScaleKernel:
        """The kernel, in float64."""
        base = BASES[self.kernel]().double()
        kernel = gpytorch.kernels.ScaleKernel(GlobeKernel(base)).double()
        base.lengthscale, kernel.outputscale = self.lengthscale, self.scale
        return kernel

    def features(self, latitudes: Tensor | None = None) -> LongitudeFeatures:
        """With inducing points at given latitudes, or at all of its own."""
        Z = self.latitudes() if latitudes is None else latitudes
        return LongitudeFeatures(self.globe_kernel(), Z, self.t_max, self.order, self.meridian)


def strips(field: Field, seed: int = 0) -> list[Field]:
    """A few strips of neighbouring rows, spread over the globe; all of it where it is small."""
    rows = len(field.latitudes)
    if rows < STRIPS_FROM:
        return [field]
    width = max(8, round(STRIPS_SHARE * rows / STRIPS))
    edges = np.linspace(0, rows, STRIPS + 1).astype(int)
    jitter = np.random.default_rng(seed)
    found = []
    for low, high in pairwise(edges.tolist()):
        first = int(jitter.integers(low, max(low, high - width) + 1))
        strip = field.rows(slice(first, min(first + width, rows)))
        if strip.n_cells:
            found.append(strip)
    return found


class _Objective:
    """The negative bound a cell of some fields, and its gradient by log lengthscale, log scale and log noise."""

    def __init__(self, model: GlobeModel, fields: list[Field], bound: Bound, dtype: torch.dtype) -> None:
        self.model, self.fields, self.bound, self.dtype = model, fields, bound, dtype
        self.cells = sum(field.n_cells * len(field.values) for field in fields)
        self.history: list[dict[str, float]] = []
        self.began = time.perf_counter()

    def at(self, theta: Array) -> GlobeModel:
        """The model of three logarithms."""
        lengthscale, scale, s2 = np.exp(theta).tolist()
        return replace(self.model, lengthscale=lengthscale, scale=scale, s2=s2)

    def __call__(self, theta: Array) -> tuple[float, Array]:
        model = self.at(theta)
        total, slope = 0.0, np.zeros(3)
        for field in self.fields:
            value, own = self._one(model, field)
            total, slope = total + value, slope + own
        self.history.append({
            "bound": total / self.cells, "lengthscale": model.lengthscale, "scale": model.scale, "noise": model.s2,
            "rows": float(sum(len(field.latitudes) for field in self.fields)), "seconds": time.perf_counter() - self.began,
        })  # fmt: skip
        return -total / self.cells, -slope / self.cells

    def _one(self, model: GlobeModel, field: Field) -> tuple[float, Array]:
        Z, margin = model.latitudes(), model.step
        Z = Z[(field.latitudes.min() - margin < Z) & (field.latitudes.max() + margin > Z)]
        features = model.features(Z if len(Z) else field.latitudes[len(field.latitudes) // 2][None])
        s2 = torch.tensor(model.s2, dtype=torch.float64, requires_grad=True)
        fit = field_bound(features, field, s2, self.bound, self.dtype)
        kernel: Any = features.view.kernel  # type: ignore[attr-defined]
        base = kernel.base_kernel.base_kernel
        # softplus'(raw) = 1 - exp(-value); from raw to the logarithm
        by_raw = (base.raw_lengthscale.grad, kernel.raw_outputscale.grad)
        values = (model.lengthscale, model.scale)
        slopes = [-float(g) * value / -math.expm1(-value) for g, value in zip(by_raw, values, strict=True)]
        assert s2.grad is not None
        return fit.bound, np.array([*slopes, -float(s2.grad) * model.s2])


def first_guess(field: Field, step: float) -> tuple[float, float, float]:
    """A lengthscale of one and a half steps (degrees), the variance of the field, and a tenth of it as noise."""
    values = field.values[:, field.present].double()
    variance = float(values.var(-1, unbiased=False).mean()) if values.shape[-1] > 1 else 1.0
    variance = max(variance, 1e-12)
    return min(1.5 * math.radians(step), 1.0), variance, 0.1 * variance


@dataclass(frozen=True)
class Learned:
    """What the strips have shown."""

    model: GlobeModel
    bound: float  #: a cell, on the strips
    history: list[dict[str, float]]
    whole: bool  #: whether the strips are all there is
    free: Array  #: which of the three are learned
    inverse: Array  #: of the curvature, by the free logarithms

    def finished(
        self, model: GlobeModel, fields: Sequence[Field], bound: Bound, dtype: torch.dtype, evaluations: int
    ) -> tuple[GlobeModel, list[dict[str, float]]]:
        """A few steps on all rows, with the curvature that the strips have shown; the best point seen is kept."""
        objective = _Objective(model, list(fields), bound, dtype)
        theta = np.log([model.lengthscale, model.scale, model.s2])
        best, slope = objective(theta)
        for _ in range(evaluations - 1):
            step = np.zeros(3)
            step[self.free] = -(self.inverse @ slope[self.free])
            step *= min(1.0, 0.3 / max(1e-12, float(np.abs(step).max())))
            value, new_slope = objective(theta + step)
            if value >= best:
                break
            theta, best, slope = theta + step, value, new_slope
        return objective.at(theta), objective.history


def learn(
    model: GlobeModel,
    fields: Sequence[Field],
    bound: Bound = "tight",
    fixed: tuple[bool, bool, bool] = (False, False, False),
    max_evaluations: int = 40,
    seed: int = 0,
    progress: Callable[[float], object] | None = None,
) -> Learned:
    """Lengthscale, scale and noise, those not `fixed`, at the largest bound of strips of the fields."""
    parts = [strip for field in few(fields) for strip in strips(field, seed)]
    whole = len(fields) == len(parts) and all(a is b for a, b in zip(fields, parts, strict=True))
    objective = _Objective(model, parts, bound, torch.float64)
    start = np.log([model.lengthscale, model.scale, model.s2])
    free = ~np.array(fixed)
    if not free.any():
        value, _ = objective(start)
        return Learned(model, -value, objective.history, whole, free, np.zeros((0, 0)))
    variance = max(model.scale, 1e-12)
    shortest = 0.25 * min(math.radians(model.step), math.pi / (model.t_max + 1))
    limits = np.log(
        [(min(shortest, model.lengthscale), 4.0), (1e-4 * variance, 1e4 * variance), (1e-7 * variance, 10 * variance)]
    )

    def guarded(x: Array) -> tuple[float, Array]:
        if progress is not None:
            progress(min(1.0, len(objective.history) / max_evaluations))
        theta = start.copy()
        theta[free] = x
        try:
            value, slope = objective(theta)
        except NotPositiveDefiniteError:
            return 1e10, np.zeros(int(free.sum()))
        return value, slope[free]

    x, value, inverse = descend(guarded, start[free], limits[free], max_evaluations)
    theta = start.copy()
    theta[free] = x
    return Learned(objective.at(theta), -value, objective.history, whole, free, inverse)


def descend(
    function: Callable[[Array], tuple[float, Array]], x: Array, limits: Array, evaluations: int
) -> tuple[Array, float, Array]:
    """A minimum of a few logarithms by BFGS within limits: no step is longer than `LONGEST`, so that none ends in the wild.

    Gives the place, the value and the inverse of the curvature.
    """
    inverse, fresh = np.eye(len(x)), True
    value, slope = function(x)
    evaluations -= 1
    while evaluations > 0:
        step = -(inverse @ slope)
        step = step * min(1.0, LONGEST / max(1e-12, float(np.abs(step).max())))
        best = None
        while evaluations > 0 and float(np.abs(step).max()) > 1e-4:
            place = np.clip(x + step, limits[:, 0], limits[:, 1])
            new, new_slope = function(place)
            evaluations -= 1
            if new < value - 1e-4 * abs(float(slope @ (place - x))):
                best = place, new, new_slope
                break
            step = step * 0.3
        if best is None:
            if fresh:
                break
            inverse, fresh = np.eye(len(x)) * 0.1, True  # once more, downhill
            continue
        moved, turned = best[0] - x, best[2] - slope
        bend = float(moved @ turned)
        if bend > 1e-12:
            if fresh:
                inverse = np.eye(len(x)) * bend / float(turned @ turned)
            left = np.eye(len(x)) - np.outer(moved, turned) / bend
            inverse, fresh = left @ inverse @ left.T + np.outer(moved, moved) / bend, False
        gained, (x, value, slope) = value - best[1], best
        if gained < 1e-6 * max(1.0, abs(value)) and not fresh:
            break
    return x, value, inverse


def few(fields: Sequence[Field], most: int = 4) -> list[Field]:
    """Some of many fields, and of each no more than eight slices: enough to learn three numbers from."""
    chosen = [
        fields[i] for i in sorted(set(np.linspace(0, len(fields) - 1, min(most, len(fields))).astype(int).tolist()))
    ]
    return [
        field if len(field.values) <= 8 else replace(field, values=field.values[:: -(-len(field.values) // 8)])
        for field in chosen
    ]


def residual_share(model: GlobeModel, latitudes: Tensor) -> float:
    """The mean residual variance of the features over some latitudes, as a share of the noise.

    Latitudes far apart know nothing of each other: each is looked at with the inducing points around it.
    """
    Z = model.latitudes()
    reach = max(12 * model.step, math.degrees(min(3.0, 4 * model.lengthscale)))
    total = 0.0
    for latitude in latitudes:
        near = Z[(Z - latitude).abs() <= reach]
        features = model.features(near if len(near) else Z[(Z - latitude).abs().argmin()][None])
        whitened = features.whiten()
        a = whitened.parallels(latitude[None])
        total += max(0.0, whitened.variance() - float(a.square().sum()))
    return total / len(latitudes) / model.s2


def smallest_sizes(model: GlobeModel, latitudes: Tensor, share: float = RESIDUAL_SHARE) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies that leave a residual below a share of the noise.

    At most as many as it has. Both are cut in one proportion, so that the features resolve as much along as across.
    """
    rows = latitudes.sort().values
    probes = rows[torch.linspace(0, len(rows) - 1, min(5, len(rows))).long()]
    probes = torch.cat((probes, rows[rows.abs().argmin()][None]))
    if residual_share(model, probes) > share:
        return model
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = 0.5 * (low + high)
        if residual_share(_cut(model, middle), probes) <= share:
            high = middle
        else:
            low = middle
    return _cut(model, high)


def _cut(model: GlobeModel, part: float) -> GlobeModel:
    return replace(model, m=max(1, math.ceil(part * model.m)), t_max=max(0, math.ceil(part * model.t_max)))


def largest_sizes(rows: int, longitudes: int, extent: float, memory: float) -> tuple[int, int]:
    """M and t_max that fit into some bytes, for rows over an extent of degrees: resolved as much along as across.

    Held are the features of all rows (float32), two factors of each frequency (float32), the kernel's and its gradient (float64).
    """
    room = 0.75 * memory - 48.0 * rows * longitudes

    def frequencies(m: int) -> int:
        return max(0, min(longitudes // 2, round(180 * m / extent)))

    m = 1
    while m < min(rows, 4096) and (frequencies(m + 1) + 1) * (m + 1) * (4.0 * rows + 24.0 * (m + 1)) <= room:
        m += 1
    return m, frequencies(m)
