"""Hyper-parameters and sizes of a field on the globe, from the collapsed bound.

The bound of a whole grid and its gradient take a pass over all its features. What the lengthscale, the output scale and the noise
should be is seen as well in a few strips of latitudes at full resolution: each is a data set of its own, with the inducing
latitudes that lie in it. A coarser grid would not do: it cannot tell short waves from noise. The last steps are on all rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.features import GlobeGrid, LongitudeFeatures
from harmonicgp.globe.fields import Field
from harmonicgp.globe.options import Options
from harmonicgp.inference.collapsed import Passes, collapsed_bound
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.kernels.profiles import log_scale, named_kernel
from harmonicgp.likelihoods.observation import Bound, GaussianObservation
from harmonicgp.training.minimiser import Array, minimise

#: Rows of a grid from which on strips stand for it, the share of rows that they hold, and how many there are.
STRIPS_FROM, STRIPS_SHARE, STRIPS = 120, 0.12, 6
#: The residual of the features, on average, may be this share of the noise: neighbouring cells share it, so that it does not
#: average out as noise does.
RESIDUAL_SHARE = 0.002


@dataclass(frozen=True)
class GlobeModel:
    """All that a field's model is made of, but for its posterior."""

    kernel: str  #: a name of `kernels.profiles.NAMED_PROFILES`
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
        return self.south + (torch.arange(self.m, dtype=torch.float64, device="cpu") + 0.5) * self.step

    def globe_kernel(self) -> gpytorch.kernels.ScaleKernel:
        """The kernel, in float64; raw parameters are logarithms."""
        with torch.device("cpu"):
            base = named_kernel(self.kernel, lengthscale_constraint=log_scale())
            kernel = gpytorch.kernels.ScaleKernel(GlobeKernel(base), outputscale_constraint=log_scale()).double()
        wide = torch.float64  # GPyTorch would round numbers to the default dtype
        base.lengthscale = torch.tensor(self.lengthscale, dtype=wide, device="cpu")
        kernel.outputscale = torch.tensor(self.scale, dtype=wide, device="cpu")
        return kernel

    def observation(self) -> GaussianObservation:
        """The noise, in float64; its raw parameter is a logarithm."""
        with torch.device("cpu"):
            likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=log_scale()).double()
        likelihood.noise = torch.tensor(self.s2, dtype=torch.float64, device="cpu")
        return GaussianObservation(likelihood)

    def features(self, latitudes: Tensor | None = None, dtype: torch.dtype = torch.float64) -> LongitudeFeatures:
        """With inducing points at given latitudes, or at all of its own."""
        Z = self.latitudes() if latitudes is None else latitudes
        return LongitudeFeatures(self.globe_kernel(), Z, self.t_max, self.order, self.meridian, dtype)

    def with_logarithms(self, theta: Array) -> GlobeModel:
        """The same with lengthscale, scale and noise from their logarithms."""
        lengthscale, scale, s2 = np.exp(theta).tolist()
        return replace(self, lengthscale=lengthscale, scale=scale, s2=s2)

    @property
    def logarithms(self) -> Array:
        """Of lengthscale, scale and noise."""
        return np.log([self.lengthscale, self.scale, self.s2])


def strips(field: Field, seed: int = 0) -> list[Field]:
    """A few strips of neighbouring rows, spread over the globe; all of it where it is small."""
    rows = len(field.latitudes)
    if rows < STRIPS_FROM:
        return [field]
    width = max(8, round(STRIPS_SHARE * rows / STRIPS))
    edges = np.linspace(0, rows, STRIPS + 1).astype(int)
    generator = np.random.default_rng(seed)
    firsts = [int(generator.integers(low, max(low, high - width) + 1)) for low, high in pairwise(edges.tolist())]
    parts = [field.rows(slice(first, min(first + width, rows))) for first in firsts]
    return [part for part in parts if part.n_cells]


def first_guess(field: Field, step: float) -> tuple[float, float, float]:
    """A lengthscale of one and a half steps (degrees), the variance of the field, and a tenth of it as noise."""
    values = field.values[:, field.present].double()
    variance = max(1e-12, float(values.var(-1, unbiased=False).mean()) if values.shape[-1] > 1 else 1.0)
    return min(1.5 * math.radians(step), 1.0), variance, 0.1 * variance


@dataclass(frozen=True)
class Learned:
    """The model of the highest bound, that bound for each value, and the way there."""

    model: GlobeModel
    bound: float = -math.inf
    history: list[dict[str, float]] = field(default_factory=list)  #: one record for each evaluation
    kernels: dict[str, float] = field(default_factory=dict)  #: the bound of each kernel that was tried, for each value
    whole: bool = True  #: whether all data were looked at, not only strips
    inverse: Array | None = None  #: of the curvature, by the three logarithms; zero for those that are fixed


@dataclass(frozen=True)
class Objective:
    """The value of models, summed over parts of the data, and its slopes by the three logarithms."""

    value: Callable[[Any, GlobeModel], tuple[float, Array]]  #: of one part
    parts: Sequence[Any]
    cells: float  #: values in the data
    rows: float  #: rows that an evaluation looks at

    def __call__(self, model: GlobeModel) -> tuple[float, Array]:
        """The value of a model, and its slopes."""
        values = [self.value(part, model) for part in self.parts]
        return sum(value for value, _ in values), np.sum([slope for _, slope in values], axis=0)

    def record(self, model: GlobeModel, value: float, seconds: float) -> dict[str, float]:
        """An entry of the history."""
        return {
            "bound": value / self.cells, "lengthscale": model.lengthscale, "scale": model.scale, "noise": model.s2,
            "rows": self.rows, "seconds": seconds,
        }  # fmt: skip


def maximise(
    model: GlobeModel,
    evidence: Objective,
    shortest: float,
    fixed: tuple[bool, bool, bool] = (False, False, False),
    max_evaluations: int = 40,
    progress: Callable[[float], object] | None = None,
) -> Learned:
    """Lengthscale, scale and noise, those not `fixed`, at the largest evidence; `shortest` bounds the lengthscale."""
    history: list[dict[str, float]] = []
    start, free, began = model.logarithms, ~np.array(fixed), time.perf_counter()

    def candidate_of(x: Array) -> GlobeModel:
        theta = start.copy()
        theta[free] = x
        return model.with_logarithms(theta)

    def objective(x: Array) -> tuple[float, Array]:
        if progress is not None:
            progress(min(1.0, len(history) / max_evaluations))
        candidate = candidate_of(x)
        value, slope = evidence(candidate)
        history.append(evidence.record(candidate, value, time.perf_counter() - began))
        return -value / evidence.cells, -slope[free] / evidence.cells

    if not free.any():
        value, _ = objective(start[free])
        return Learned(model, -value, history)
    variance = max(model.scale, 1e-12)
    limits = np.log([
        (min(shortest, model.lengthscale), 4.0), (1e-4 * variance, 1e4 * variance), (1e-7 * variance, 10 * variance)
    ])  # fmt: skip
    first = np.clip(start, limits[:, 0], limits[:, 1])
    minimum = minimise(objective, first[free], limits[free], max_evaluations)
    inverse = np.zeros((3, 3))
    inverse[np.ix_(free, free)] = minimum.inverse
    return Learned(candidate_of(minimum.x), -minimum.value, history, inverse=inverse)


def slopes(kernel: Any, observation: Any) -> Array:
    """Slopes by the three logarithms, from the gradients that the minimisation of minus an evidence left."""
    raw = (kernel.base_kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, observation.likelihood.raw_noise)
    return np.array([0.0 if p.grad is None else -float(p.grad) for p in raw])


def fields_evidence(fields: Sequence[Field], bound: Bound, dtype: torch.dtype) -> Objective:
    """The collapsed bound of some fields."""

    def value(field: Field, model: GlobeModel) -> tuple[float, Array]:
        Z, margin = model.latitudes(), model.step
        Z = Z[(field.latitudes.min() - margin < Z) & (field.latitudes.max() + margin > Z)]
        features = model.features(Z if len(Z) else field.latitudes[len(field.latitudes) // 2][None], dtype)
        observation = model.observation()
        form = collapsed_bound(
            features, observation, field.grid, field.targets, bound=bound, noise=field.noise, gradient=True,
            counts=field.present.to(dtype), passes=Passes(tolerance=1e-5),
        )  # fmt: skip
        return form.bound, slopes(features.view.kernel, observation)  # type: ignore[attr-defined]

    cells = sum(field.n_cells * len(field.values) for field in fields)
    rows = sum(len(field.latitudes) for field in fields)
    return Objective(value, fields, float(cells), float(rows))


def learn(
    model: GlobeModel,
    fields: Sequence[Field],
    options: Options,
    max_evaluations: int,
    progress: Callable[[float], object],
) -> Learned:
    """Lengthscale, scale and noise, those not given, at the largest bound of strips of the fields."""
    parts = [strip for field in sample_fields(fields) for strip in strips(field, options.random_state)]
    whole = len(fields) == len(parts) and all(a is b for a, b in zip(fields, parts, strict=True))
    shortest = 0.25 * min(math.radians(model.step), math.pi / (model.t_max + 1))
    evidence = fields_evidence(parts, options.bound, torch.float64)
    learned = maximise(model, evidence, shortest, options.fixed, max_evaluations, progress)
    return replace(learned, whole=whole)


def finish_on_all(
    model: GlobeModel, learned: Learned, fields: Sequence[Field], options: Options, dtype: torch.dtype
) -> Learned:
    """A few Newton steps on all rows, with the curvature that the strips have shown; the best point seen is taken."""
    evidence = fields_evidence(fields, options.bound, dtype)
    theta, history, began = model.logarithms, list(learned.history), time.perf_counter()
    best = -math.inf
    for _ in range(options.full_evaluations):
        candidate = model.with_logarithms(theta)
        value, slope = evidence(candidate)
        history.append(evidence.record(candidate, value, time.perf_counter() - began))
        if value <= best:
            break
        best, model = value, candidate
        step = np.zeros(3) if learned.inverse is None else learned.inverse @ (slope / evidence.cells)
        theta = theta + step * min(1.0, 0.3 / max(1e-12, float(np.abs(step).max())))
    return replace(learned, model=model, history=history)


def sample_fields(fields: Sequence[Field], most: int = 4) -> list[Field]:
    """Some of many fields, and of each no more than eight slices: enough to learn three numbers from."""
    chosen = [fields[i] for i in np.linspace(0, len(fields) - 1, min(most, len(fields))).astype(int)]
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
    total, longitude = 0.0, torch.tensor([model.meridian], dtype=torch.float64, device=latitudes.device)
    for latitude in latitudes:
        near = Z[(Z - latitude).abs() <= reach]
        features = model.features(near if len(near) else Z[(Z - latitude).abs().argmin()][None])
        with torch.no_grad():
            total += float(features(GlobeGrid(latitude[None], longitude)).residual.variance)
    return total / len(latitudes) / model.s2


def smallest_sizes(model: GlobeModel, latitudes: Tensor, share: float = RESIDUAL_SHARE) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies that leave a residual below a share of the noise.

    At most as many as it has. Both are cut in one proportion, so that the features resolve as much along as across.
    """
    rows = latitudes.sort().values
    probes = rows[torch.linspace(0, len(rows) - 1, min(5, len(rows)), device=rows.device).long()]
    probes = torch.cat((probes, rows[rows.abs().argmin()][None]))
    if residual_share(model, probes) > share:
        return model
    smallest, part = model, 1.0
    for k in range(1, 8):
        trial = part - 0.5**k
        candidate = replace(model, m=max(1, math.ceil(trial * model.m)), t_max=math.ceil(trial * model.t_max))
        if residual_share(candidate, probes) <= share:
            smallest, part = candidate, trial
    return smallest


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
