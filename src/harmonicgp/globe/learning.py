"""How the hyper-parameters and sizes of maps are learned, and kernels compared: on strips of a grid, or on patches of points.

The bound of a whole grid and its gradient take a pass over all features. A few strips of latitudes at full resolution determine
lengthscale, output scale and noise as well: each strip is a data set with the inducing latitudes inside it. A coarser grid would
not do, because it cannot separate short waves from noise. The last steps use all rows.

Where rows are observed unevenly (a region, an ocean with land in it), the frequencies of the longitude are correlated. The bound
of independent frequencies is then loose, more so for a larger variance of the field, and learns too small a variance. The
marginal likelihood of a few hundred points is exact whatever cells are missing. Patches of near points determine the noise and
short waves, points from everywhere the long waves. Their likelihoods are summed.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from harmonicgp.features.base import PointKernel
from harmonicgp.globe.fields import Field, Points, coupling
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.model import GlobeModel, largest_sizes, point_sizes, smallest_sizes
from harmonicgp.globe.options import Options
from harmonicgp.inference.collapsed import Passes, collapsed_bound
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.tables.columns import Array
from harmonicgp.training.exact import gaussian_log_density
from harmonicgp.training.minimiser import minimise

#: A grid with at least this many rows is learned on strips; their share of the rows, and their number.
STRIPS_FROM, STRIPS_SHARE, STRIPS = 120, 0.12, 6
#: Up to ALL points one patch has all of them. Otherwise there are NEAR patches of NEIGHBOURS near points each, and one of
#: ANYWHERE random points.
ALL, NEAR, NEIGHBOURS, ANYWHERE = 1200, 4, 400, 600
#: Rows are observed evenly if no harmonic of their precision is above this share. Independent frequencies are then enough.
EVEN = 0.1
#: The number of columns, twice the highest frequency, assumed for longitudes that are not evenly spaced.
UNEVEN_COLUMNS = 720
#: Kernels that "auto" compares for waves. Rougher fields are better served by neighbours.
SMOOTH = ("rbf", "matern32", "matern52")

#: Takes the progress in per cent.
Progress: TypeAlias = Callable[[float], object]


@dataclass(frozen=True)
class Learned:
    """The model with the highest bound, and the history of the search."""

    model: GlobeModel
    bound: float = -math.inf  #: per value
    history: list[dict[str, float]] = field(default_factory=list)  #: one record for each evaluation
    kernels: dict[str, float] = field(default_factory=dict)  #: the bound per value of each kernel that was tried
    inverse: Array | None = None  #: of the curvature in the three logarithms; zero for fixed ones


# From data to a model -------------------------------------------------------------------------------------------------


def train_on_grid(
    fields: Sequence[Field], axes: GridAxes, scale: float, options: Options, progress: Progress
) -> Learned:
    """Learn from fields on one grid, in units of `scale`: on strips, or on patches if rows are observed unevenly."""
    model = _grid_model(max(fields, key=lambda field: field.n_cells), axes, scale, options)
    names = SMOOTH if options.kernel == "auto" and model.order is not None else (model.kernel,)
    sample, finished = sample_fields(fields), True
    if all(options.fixed) and len(names) == 1:
        learned = Learned(model)
    elif any(coupling(field.present, field.longitudes) > EVEN for field in sample):
        parts = [part for field in sample for part in field_patches(field, options.random_state)]
        learned = _best_kernel(model, names, patches_evidence(parts), options, options.max_evaluations, progress)
    else:
        all_strips = [strip for field in sample for strip in strips(field, options.random_state)]
        finished = len(fields) == len(all_strips) and all(map(operator.is_, fields, all_strips))
        learned = _learn_on_strips(model, names, all_strips, options, progress)
    learned = replace(learned, model=_with_smallest_sizes(learned.model, fields[0].latitudes, options))
    return learned if finished or all(options.fixed) else finish_on_all(learned, fields, options)


def train_on_points(points: Points, scale: float, options: Options, progress: Progress) -> Learned:
    """Learn from scattered points, in units of `scale`, on patches of them."""
    latitudes = points.X[:, 1]
    south, north = latitude_span(latitudes.cpu().numpy())
    lengthscale = min(1.0, 3 * math.radians(max(north - south, 1.0)) / math.sqrt(len(latitudes)) + 0.01)
    kernel = "rbf" if options.kernel == "auto" else options.kernel
    model = GlobeModel(kernel, lengthscale, 1.0, 0.1, *point_sizes(north - south), None, 0.0, south, north)
    learned = Learned(replace(model, **_user_values(options, scale)))
    if not all(options.fixed):
        evidence = patches_evidence(patches(points, options.random_state))
        learned = _best_kernel(learned.model, (kernel,), evidence, options, options.max_evaluations, progress)
    model = learned.model
    if kernel == "rbf":
        return replace(learned, model=_with_smallest_sizes(model, latitudes, options))
    # The harmonics of other kernels fall too slowly for the circle group: they need a lattice of longitudes.
    return replace(learned, model=replace(model, order=4 * model.t_max + 2))


def _user_values(options: Options, scale: float) -> dict[str, Any]:
    """The fields of the model that the user gave, in units of `scale`."""
    values = {
        "lengthscale": options.lengthscale,
        "scale": None if options.field_std is None else (options.field_std / scale) ** 2,
        "s2": None if options.noise_level is None else (options.noise_level / scale) ** 2,
        "m": options.n_inducing,
        "t_max": options.t_max,
    }
    return {name: value for name, value in values.items() if value is not None}


def _grid_model(field: Field, axes: GridAxes, scale: float, options: Options) -> GlobeModel:
    """The model that learning starts from: the largest sizes that fit into memory, and guesses from the values."""
    order, values = axes.order, _user_values(options, scale)
    south, north = grid_span(axes)
    m, t_max = largest_sizes(len(axes.latitudes), order or UNEVEN_COLUMNS, north - south, options.memory)
    kernel, meridian = "rbf" if options.kernel == "auto" else options.kernel, float(field.longitudes[0])
    model = replace(GlobeModel(kernel, 1.0, 1.0, 1.0, m, t_max, order, meridian, south, north), **values)
    if order is not None and model.t_max > order // 2:
        raise ValueError(f"{order} longitudes have the frequencies 0 to {order // 2}; got t_max={model.t_max}.")
    if order is None and kernel != "rbf":
        raise ValueError(
            f"the kernel {kernel} needs evenly spaced longitudes whose step divides 360 degrees: use kernel='rbf', which takes "
            "any longitudes."
        )
    present = field.values[:, field.present].double()
    variance = max(1e-12, float(present.var(-1, unbiased=False).mean()) if present.shape[-1] > 1 else 1.0)
    lengthscale = min(1.5 * math.radians(max(model.step, 180 / (model.t_max + 1))), 1.0)
    return replace(model, **{"lengthscale": lengthscale, "scale": variance, "s2": 0.1 * variance} | values)


def grid_span(axes: GridAxes) -> tuple[float, float]:
    """The southern and northern end of the rows of a grid: half a step beyond the outer latitudes."""
    latitudes = axes.latitudes
    # A single row is as high as its cells are wide.
    half = 0.5 * float(np.diff(latitudes).max()) if len(latitudes) > 1 else 180 / (axes.order or UNEVEN_COLUMNS)
    return max(-90.0, float(latitudes[0]) - half), min(90.0, float(latitudes[-1]) + half)


def latitude_span(latitudes: Array) -> tuple[float, float]:
    """The range of inducing latitudes for points: a little more than theirs; all latitudes for most of the globe."""
    low, high = float(latitudes.min()), float(latitudes.max())
    if high - low > 150:
        return -90.0, 90.0
    margin = max(0.05 * (high - low), 1.0)
    return max(-90.0, low - margin), min(90.0, high + margin)


def _with_smallest_sizes(model: GlobeModel, latitudes: Tensor, options: Options) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies that leave a small residual; sizes of the user stay."""
    if options.n_inducing is not None and options.t_max is not None:
        return model
    smallest = smallest_sizes(model, latitudes)
    t_max = smallest.t_max if options.t_max is None else options.t_max
    return replace(smallest, m=options.n_inducing or smallest.m, t_max=t_max)


def _learn_on_strips(
    model: GlobeModel, names: Sequence[str], parts: Sequence[Field], options: Options, progress: Progress
) -> Learned:
    """Learn on strips of latitudes: a short run for each kernel, and a longer one for the best."""
    evaluations, several = options.max_evaluations, len(names) > 1
    evidence = fields_evidence(parts, options.bound, torch.float64)
    short = max(6, evaluations // 4) if several else evaluations
    first = _best_kernel(model, names, evidence, options, short, lambda percent: progress(percent / 2))
    if not several or all(options.fixed):
        return first
    learned = maximise(first.model, evidence, options.fixed, evaluations - evaluations // 4, _part(progress, 1, 2))
    kernels = first.kernels | {learned.model.kernel: learned.bound}
    return replace(learned, history=first.history + learned.history, kernels=kernels)


def _best_kernel(
    model: GlobeModel, names: Sequence[str], evidence: Objective, options: Options, evaluations: int, progress: Progress
) -> Learned:
    """The result of the kernel with the highest bound, with the history of all kernels."""
    runs = [
        maximise(replace(model, kernel=name), evidence, options.fixed, evaluations, _part(progress, k, len(names)))
        for k, name in enumerate(names)
    ]
    history = [record for run in runs for record in run.history]
    kernels = {run.model.kernel: run.bound for run in runs}
    return replace(max(runs, key=lambda run: run.bound), history=history, kernels=kernels)


def _part(progress: Progress, k: int, n: int) -> Progress:
    """The progress of the k-th of n runs, which together are 60 per cent of a fit; it takes a share of the run."""
    return lambda share: progress(60 * (k + share) / n)


def finish_on_all(learned: Learned, fields: Sequence[Field], options: Options) -> Learned:
    """A few Newton steps on all rows, with the curvature estimated on the strips. Returns the best model."""
    model = learned.model
    evidence = fields_evidence(fields, options.bound, model.precision(options.dtype, len(fields[0].latitudes)))
    theta, history, start = model.logarithms, list(learned.history), time.perf_counter()
    best = -math.inf
    for _ in range(options.full_evaluations):
        candidate = model.with_logarithms(theta)
        value, slope = evidence(candidate)
        history.append(evidence.record(candidate, value, time.perf_counter() - start))
        if value <= best:
            break
        best, model = value, candidate
        step = np.zeros(3) if learned.inverse is None else learned.inverse @ (slope / evidence.cells)
        theta = theta + step * min(1.0, 0.3 / max(1e-12, float(np.abs(step).max())))
    return replace(learned, model=model, history=history)


# Lengthscale, scale and noise of the highest evidence -----------------------------------------------------------------


@dataclass(frozen=True)
class Objective:
    """A function of the model, summed over parts of the data, and its slopes in the three logarithms."""

    value: Callable[[Any, GlobeModel], tuple[float, Array]]  #: value and slopes of one part
    parts: Sequence[Any]
    cells: float  #: number of values in the data
    rows: float  #: number of rows in one evaluation
    shortest: Callable[[GlobeModel], float]  #: the smallest lengthscale that the data can determine

    def __call__(self, model: GlobeModel) -> tuple[float, Array]:
        """The value of a model, and its slopes [3]."""
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
    fixed: tuple[bool, bool, bool],
    max_evaluations: int,
    progress: Callable[[float], object] = lambda share: None,
) -> Learned:
    """The model with the lengthscale, scale and noise, those not `fixed`, of the largest evidence."""
    history: list[dict[str, float]] = []
    first, free, start = model.logarithms, ~np.array(fixed), time.perf_counter()

    def candidate_of(x: Array) -> GlobeModel:
        theta = first.copy()
        theta[free] = x
        return model.with_logarithms(theta)

    def objective(x: Array) -> tuple[float, Array]:
        progress(min(1.0, len(history) / max_evaluations))
        candidate = candidate_of(x)
        value, slope = evidence(candidate)
        history.append(evidence.record(candidate, value, time.perf_counter() - start))
        return -value / evidence.cells, -slope[free] / evidence.cells

    if not free.any():
        value, _ = objective(first[free])
        return Learned(model, -value, history)
    variance = max(model.scale, 1e-12)
    limits = np.log([
        (min(evidence.shortest(model), model.lengthscale), 4.0), (1e-4 * variance, 1e4 * variance),
        (1e-7 * variance, 10 * variance),
    ])  # fmt: skip
    inside = np.clip(first, limits[:, 0], limits[:, 1])
    minimum = minimise(objective, inside[free], limits[free], max_evaluations)
    inverse = np.zeros((3, 3))
    inverse[np.ix_(free, free)] = minimum.inverse
    return Learned(candidate_of(minimum.x), -minimum.value, history, inverse=inverse)


def _slopes(kernel: Any, observation: Any) -> Array:
    """Slopes of an evidence in the three logarithms, from the gradients of its negative in `.grad`."""
    raw = (kernel.base_kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale, observation.likelihood.raw_noise)
    return np.array([0.0 if p.grad is None else -float(p.grad) for p in raw])


def sample_fields(fields: Sequence[Field]) -> list[Field]:
    """At most four of the fields, with at most eight slices each: enough to learn three numbers."""
    sample = [fields[i] for i in np.linspace(0, len(fields) - 1, min(4, len(fields))).astype(int)]
    return [
        field if len(field.values) <= 8 else replace(field, values=field.values[:: -(-len(field.values) // 8)])
        for field in sample
    ]


# Strips ---------------------------------------------------------------------------------------------------------------


def strips(field: Field, seed: int = 0) -> list[Field]:
    """A few strips of neighbouring rows, spread over the globe; the whole field if it is small."""
    rows = len(field.latitudes)
    if rows < STRIPS_FROM:
        return [field]
    width = max(8, round(STRIPS_SHARE * rows / STRIPS))
    edges = np.linspace(0, rows, STRIPS + 1).astype(int)
    generator = np.random.default_rng(seed)
    firsts = [int(generator.integers(low, max(low, high - width) + 1)) for low, high in pairwise(edges.tolist())]
    parts = [field.rows(slice(first, min(first + width, rows))) for first in firsts]
    return [part for part in parts if part.n_cells]


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
        return form.bound, _slopes(features.view.kernel, observation)  # type: ignore[attr-defined]

    cells = sum(field.n_cells * len(field.values) for field in fields)
    rows = sum(len(field.latitudes) for field in fields)
    return Objective(
        value,
        fields,
        float(cells),
        float(rows),
        lambda model: 0.25 * min(math.radians(model.step), math.pi / (model.t_max + 1)),
    )


# Patches --------------------------------------------------------------------------------------------------------------


def patches(points: Points, seed: int = 0) -> list[Points]:
    """Patches of points: one of all points if they are few, else a few of near points and one of random points."""
    n, device = len(points.X), points.X.device
    if n <= ALL:
        return [points]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed), device="cpu").to(device)
    vectors = unit_vectors(points.X)
    near = [(vectors @ vectors[i]).topk(NEIGHBOURS).indices for i in order[:NEAR]]
    return [points.part(rows) for rows in (*near, order[:ANYWHERE])]


def field_patches(field: Field, seed: int = 0) -> list[Points]:
    """Patches of the cells of a field."""
    row, column = field.present.nonzero(as_tuple=True)
    X = torch.stack((field.longitudes[column], field.latitudes[row]), -1)
    noise = None if field.noise is None else field.noise[row, column].double()
    return patches(Points(X.double(), field.values[:, row, column].double(), noise), seed)


def patches_evidence(parts: Sequence[Points]) -> Objective:
    """The marginal likelihood of patches."""
    spacings = []  # of neighbours, in Earth radii
    for part in parts:
        vectors = unit_vectors(part.X)
        distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
        distances.fill_diagonal_(3.0)
        spacings.append(float(distances.amin(-1).median()))
    cells = float(sum(part.values.numel() for part in parts))
    return Objective(log_likelihood, parts, cells, cells, lambda _: 0.3 * max(1e-4, min(spacings)))


def log_likelihood(part: Points, model: GlobeModel) -> tuple[float, Array]:
    """The log marginal likelihood of a patch, summed over its slices, and its slopes in the three logarithms."""
    kernel, observation = model.globe_kernel(), model.observation()
    with torch.enable_grad():
        K = PointKernel(kernel).zx(part.X, part.X)
        noise = observation.noise(part.noise) + 1e-10 * model.scale
        value = gaussian_log_density(K, part.values, noise, gradient=True)
    return value, _slopes(kernel, observation)
