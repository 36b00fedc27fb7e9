"""How the hyper-parameters and sizes of maps are learned: on strips of a grid or on patches of places, kernels compared.

Boundary: this module and `globe.fitted` are the only callers of the engine (features, closed form, predictor, learning).
Everything above them handles NumPy arrays and the values that these two modules return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from harmonicgp.globe.fields import Field, PointSet, coupling
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.learning import (
    GlobeModel,
    Learned,
    finish_on_all,
    first_guess,
    largest_sizes,
    latitude_span,
    learn,
    point_sizes,
    sample_fields,
    smallest_sizes,
)
from harmonicgp.globe.options import KERNELS, Options
from harmonicgp.globe.patches import Patch, field_patches, learn_patches, patches

#: Rows are observed evenly if no harmonic of their precision is above this share. Independent frequencies are enough then.
EVEN = 0.1
#: Numbers of features up to which they are stored in float64.
MOST_FLOAT64 = 20_000_000
#: Columns, and so twice the highest frequency, that stand for longitudes that are not evenly spaced.
UNEVEN_COLUMNS = 720

Progress = Callable[[float], object]  #: takes per cent


@dataclass(frozen=True)
class Training:
    """The hyper-parameters that were learned."""

    model: GlobeModel
    history: list[dict[str, float]]  #: one record for each evaluation
    kernels: dict[str, float]  #: the bound of each kernel that was tried, for each value


def precision(dtype: str, model: GlobeModel, rows: int) -> torch.dtype:
    """The dtype of the features: "auto" is float64 for few of them."""
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.float64
    return torch.float64 if (model.t_max + 1) * model.m * rows <= MOST_FLOAT64 else torch.float32


def is_uneven(D: Tensor, longitudes: Tensor) -> bool:
    """Whether rows with precisions D [rows, columns] are observed so unevenly that frequencies depend on each other."""
    return coupling(D, longitudes) > EVEN


def train_on_grid(fields: Sequence[Field], axes: GridAxes, scale: float, options: Options, tell: Progress) -> Training:
    """Learn from fields on one grid, in units of `scale`: on strips, or on patches where rows are observed unevenly."""
    largest = max(fields, key=lambda field: field.n_cells)
    model = _grid_model(largest, axes, scale, options)
    names = KERNELS if options.kernel == "auto" and model.order is not None else (model.kernel,)
    latitudes = fields[0].latitudes
    if all(options.fixed) and len(names) == 1:
        return Training(_with_smallest_sizes(model, latitudes, options), [], {})
    if any(is_uneven(field.present.double(), field.longitudes) for field in sample_fields(fields)):
        training = _train_on_patches(model, names, field_patches(fields, options.random_state), options, tell)
        return replace(training, model=_with_smallest_sizes(training.model, latitudes, options))
    return _train_on_strips(model, names, fields, options, tell)


def train_on_points(points: PointSet, scale: float, options: Options, tell: Progress) -> Training:
    """Learn from scattered points, in units of `scale`, on patches of them."""
    latitudes = points.X[:, 1]
    south, north = latitude_span(latitudes.cpu().numpy())
    m, t_max = point_sizes(north - south)
    lengthscale = options.lengthscale or min(
        1.0, 3 * math.radians(max(north - south, 1.0)) / math.sqrt(len(points.y)) + 0.01
    )
    model = GlobeModel(
        kernel="rbf" if options.kernel == "auto" else options.kernel,
        lengthscale=lengthscale,
        scale=1.0 if options.field_std is None else (options.field_std / scale) ** 2,
        s2=0.1 if options.noise_level is None else (options.noise_level / scale) ** 2,
        m=m if options.n_inducing is None else options.n_inducing,
        t_max=t_max if options.t_max is None else options.t_max,
        order=None,
        meridian=0.0,
        south=south,
        north=north,
    )
    training = Training(model, [], {})
    if not all(options.fixed):
        parts = patches(points.X, points.y[None], points.noise, options.random_state)
        training = _train_on_patches(model, (model.kernel,), parts, options, tell)
    model = training.model
    if model.kernel == "rbf":
        return replace(training, model=_with_smallest_sizes(model, latitudes, options))
    # The harmonics of other kernels fall too slowly for the circle group: they take a lattice of longitudes.
    return replace(training, model=replace(model, order=4 * model.t_max + 2))


def _grid_model(field: Field, axes: GridAxes, scale: float, options: Options) -> GlobeModel:
    """The model that learning starts from: the largest sizes that fit into memory, and guesses from the values."""
    order = axes.order
    south, north = _extent(axes)
    m, t_max = largest_sizes(len(field.latitudes), order or UNEVEN_COLUMNS, north - south, options.memory)
    m = m if options.n_inducing is None else options.n_inducing
    t_max = t_max if options.t_max is None else options.t_max
    if order is not None and t_max > order // 2:
        raise ValueError(f"{order} longitudes have the frequencies 0 to {order // 2}; got t_max={t_max}.")
    lengthscale, variance, s2 = first_guess(field, max((north - south) / m, 180 / (t_max + 1)))
    name = "rbf" if options.kernel == "auto" else options.kernel
    if order is None and name != "rbf":
        raise ValueError(
            f"the kernel {name} needs evenly spaced longitudes that go into 360 degrees: use kernel='rbf', which takes any."
        )
    return GlobeModel(
        kernel=name,
        lengthscale=lengthscale if options.lengthscale is None else options.lengthscale,
        scale=variance if options.field_std is None else (options.field_std / scale) ** 2,
        s2=s2 if options.noise_level is None else (options.noise_level / scale) ** 2,
        m=m,
        t_max=t_max,
        order=order,
        meridian=float(field.longitudes[0]),
        south=south,
        north=north,
    )


def _extent(axes: GridAxes) -> tuple[float, float]:
    """The latitudes that the rows cover, with half a step at both ends; one row is as wide as its cells."""
    latitudes = axes.latitudes
    half = 0.5 * float(np.diff(latitudes).max()) if len(latitudes) > 1 else 180 / (axes.order or UNEVEN_COLUMNS)
    return max(-90.0, float(latitudes[0]) - half), min(90.0, float(latitudes[-1]) + half)


def _train_on_strips(
    model: GlobeModel, names: Sequence[str], fields: Sequence[Field], options: Options, tell: Progress
) -> Training:
    """Learn on strips of latitudes: a short run for each kernel, a longer one for the best, a few steps on all rows."""
    bound, fixed, seed = options.bound, options.fixed, options.random_state
    history: list[dict[str, float]] = []
    kernels: dict[str, float] = {}
    evaluations = options.max_evaluations
    learned: Learned | None = None
    if len(names) > 1:
        short = max(6, evaluations // 4)
        runs = [
            learn(replace(model, kernel=name), fields, bound, fixed, short, seed, _part(tell, k, 2 * len(names)))
            for k, name in enumerate(names)
        ]
        kernels = {run.model.kernel: run.bound for run in runs}
        history = [record for run in runs for record in run.history]
        learned = max(runs, key=lambda run: run.bound)
        model = learned.model
        evaluations -= evaluations // 4
    if learned is None or not all(fixed):
        learned = learn(model, fields, bound, fixed, evaluations, seed, _part(tell, 1, 2))
        model = learned.model
        history, kernels = history + learned.history, {**kernels, model.kernel: learned.bound}
    model = _with_smallest_sizes(model, fields[0].latitudes, options)
    if options.full_evaluations and not learned.whole and not all(fixed):
        dtype = precision(options.dtype, model, len(fields[0].latitudes))
        model, records = finish_on_all(model, learned, fields, bound, dtype, options.full_evaluations)
        history += records
    return Training(model, history, kernels)


def _train_on_patches(
    model: GlobeModel, names: Sequence[str], parts: Sequence[Patch], options: Options, tell: Progress
) -> Training:
    """Learn from the exact marginal likelihood of some of the data, for each kernel; the best kernel is taken."""
    runs: dict[str, Learned] = {}
    for k, name in enumerate(names):
        start = replace(model, kernel=name)
        runs[name] = learn_patches(start, parts, options.fixed, options.max_evaluations, _part(tell, k, len(names)))
    best = max(runs.values(), key=lambda run: run.bound)
    history = [record for run in runs.values() for record in run.history]
    return Training(best.model, history, {name: run.bound for name, run in runs.items()})


def _with_smallest_sizes(model: GlobeModel, latitudes: Tensor, options: Options) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies that leave a small residual; given sizes stay."""
    if options.n_inducing is not None and options.t_max is not None:
        return model
    smallest = smallest_sizes(model, latitudes)
    return replace(
        model,
        m=smallest.m if options.n_inducing is None else model.m,
        t_max=smallest.t_max if options.t_max is None else model.t_max,
    )


def _part(tell: Progress, k: int, n: int) -> Progress:
    """Progress of run k of n, which together are 60 per cent of a fit; takes the share of the run."""
    return partial(_tell_part, tell, k, n)


def _tell_part(tell: Progress, k: int, n: int, share: float) -> None:
    tell(60 * (k + share) / n)
