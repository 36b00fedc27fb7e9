"""How the hyper-parameters and sizes of maps are learned: on strips of a grid or on patches of places, kernels compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.globe.fields import Field, Points, coupling
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.learning import (
    GlobeModel,
    Learned,
    finish_on_all,
    first_guess,
    largest_sizes,
    learn,
    sample_fields,
    smallest_sizes,
)
from harmonicgp.globe.options import KERNELS, Options
from harmonicgp.globe.patches import field_patches, learn_patches, patches
from harmonicgp.tables.columns import Array

#: Rows are observed evenly if no harmonic of their precision is above this share. Independent frequencies are enough then.
EVEN = 0.1
#: Numbers of features up to which they are stored in float64.
MOST_FLOAT64 = 20_000_000
#: Columns, and so twice the highest frequency, that stand for longitudes that are not evenly spaced.
UNEVEN_COLUMNS = 720
#: Features of scattered points, at most, unless given: their matrix is held.
MOST_POINT_FEATURES = 4096

Progress = Callable[[float], object]  #: takes per cent


def precision(dtype: str, model: GlobeModel, rows: int) -> torch.dtype:
    """The dtype of the features: "auto" is float64 for few of them."""
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.float64
    return torch.float64 if (model.t_max + 1) * model.m * rows <= MOST_FLOAT64 else torch.float32


def train_on_grid(fields: Sequence[Field], axes: GridAxes, scale: float, options: Options, tell: Progress) -> Learned:
    """Learn from fields on one grid, in units of `scale`: on strips, or on patches where rows are observed unevenly."""
    model = _grid_model(max(fields, key=lambda field: field.n_cells), axes, scale, options)
    names = KERNELS if options.kernel == "auto" and model.order is not None else (model.kernel,)
    latitudes = fields[0].latitudes
    if all(options.fixed) and len(names) == 1:
        return Learned(_with_smallest_sizes(model, latitudes, options))
    if any(coupling(field.present, field.longitudes) > EVEN for field in sample_fields(fields)):
        learned = _learn_on_patches(model, names, field_patches(fields, options.random_state), options, tell)
        return replace(learned, model=_with_smallest_sizes(learned.model, latitudes, options))
    return _learn_on_strips(model, names, fields, options, tell)


def train_on_points(points: Points, scale: float, options: Options, tell: Progress) -> Learned:
    """Learn from scattered points, in units of `scale`, on patches of them."""
    latitudes = points.X[:, 1]
    south, north = latitude_span(latitudes.cpu().numpy())
    lengthscale = min(1.0, 3 * math.radians(max(north - south, 1.0)) / math.sqrt(len(latitudes)) + 0.01)
    kernel = "rbf" if options.kernel == "auto" else options.kernel
    model = GlobeModel(kernel, lengthscale, 1.0, 0.1, *point_sizes(north - south), None, 0.0, south, north)
    learned = Learned(replace(model, **_given(options, scale)))
    if not all(options.fixed):
        parts = patches(points.X, points.values, points.noise, options.random_state)
        learned = _learn_on_patches(learned.model, (kernel,), parts, options, tell)
    model = learned.model
    if kernel == "rbf":
        return replace(learned, model=_with_smallest_sizes(model, latitudes, options))
    # The harmonics of other kernels fall too slowly for the circle group: they take a lattice of longitudes.
    return replace(learned, model=replace(model, order=4 * model.t_max + 2))


def _given(options: Options, scale: float) -> dict[str, Any]:
    """The fields of a model that the user gave, in units of `scale`."""
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
    order, given = axes.order, _given(options, scale)
    south, north = _extent(axes)
    m, t_max = largest_sizes(len(field.latitudes), order or UNEVEN_COLUMNS, north - south, options.memory)
    kernel, meridian = "rbf" if options.kernel == "auto" else options.kernel, float(field.longitudes[0])
    model = replace(GlobeModel(kernel, 1.0, 1.0, 1.0, m, t_max, order, meridian, south, north), **given)
    if order is not None and model.t_max > order // 2:
        raise ValueError(f"{order} longitudes have the frequencies 0 to {order // 2}; got t_max={model.t_max}.")
    if order is None and kernel != "rbf":
        raise ValueError(
            f"the kernel {kernel} needs evenly spaced longitudes that go into 360 degrees: use kernel='rbf', which takes any."
        )
    lengthscale, variance, s2 = first_guess(field, max(model.step, 180 / (model.t_max + 1)))
    return replace(model, **{"lengthscale": lengthscale, "scale": variance, "s2": s2} | given)


def _extent(axes: GridAxes) -> tuple[float, float]:
    """The latitudes that the rows cover, with half a step at both ends; one row is as wide as its cells."""
    latitudes = axes.latitudes
    half = 0.5 * float(np.diff(latitudes).max()) if len(latitudes) > 1 else 180 / (axes.order or UNEVEN_COLUMNS)
    return max(-90.0, float(latitudes[0]) - half), min(90.0, float(latitudes[-1]) + half)


def latitude_span(latitudes: Array) -> tuple[float, float]:
    """The latitudes for which points need inducing ones: theirs and a little more, or all where they cover most of the globe."""
    low, high = float(latitudes.min()), float(latitudes.max())
    if high - low > 150:
        return -90.0, 90.0
    margin = max(0.05 * (high - low), 1.0)
    return max(-90.0, low - margin), min(90.0, high + margin)


def point_sizes(extent: float) -> tuple[int, int]:
    """Inducing latitudes over an extent of degrees, and frequencies that resolve as much, of at most `MOST_POINT_FEATURES`."""
    m = 1
    while (m + 1) * (2 * round(180 * (m + 1) / extent) + 1) <= MOST_POINT_FEATURES:
        m += 1
    return m, round(180 * m / extent)


def _learn_on_strips(
    model: GlobeModel, names: Sequence[str], fields: Sequence[Field], options: Options, tell: Progress
) -> Learned:
    """Learn on strips of latitudes: a short run for each kernel, a longer one for the best, a few steps on all rows."""
    evaluations, several = options.max_evaluations, len(names) > 1
    short = max(6, evaluations // 4) if several else evaluations
    learned = _best_kernel(
        model,
        names,
        lambda start, progress: learn(start, fields, options, short, progress),
        lambda percent: tell(percent / 2),
    )
    if several and not all(options.fixed):
        first, rest = learned, evaluations - evaluations // 4
        learned = learn(first.model, fields, options, rest, _part(tell, 1, 2))
        kernels = first.kernels | {learned.model.kernel: learned.bound}
        learned = replace(learned, history=first.history + learned.history, kernels=kernels)
    model = _with_smallest_sizes(learned.model, fields[0].latitudes, options)
    if learned.whole or all(options.fixed):
        return replace(learned, model=model)
    dtype = precision(options.dtype, model, len(fields[0].latitudes))
    return finish_on_all(model, learned, fields, options, dtype)


def _learn_on_patches(
    model: GlobeModel, names: Sequence[str], parts: Sequence[Points], options: Options, tell: Progress
) -> Learned:
    """Learn from the exact marginal likelihood of some of the data, for each kernel; the best kernel is taken."""

    def run(start: GlobeModel, progress: Progress) -> Learned:
        return learn_patches(start, parts, options.fixed, options.max_evaluations, progress)

    return _best_kernel(model, names, run, tell)


def _best_kernel(
    model: GlobeModel, names: Sequence[str], run: Callable[[GlobeModel, Progress], Learned], tell: Progress
) -> Learned:
    """The run of the kernel with the highest bound, with the history of all runs, which are 60 per cent of a fit."""
    runs = [run(replace(model, kernel=name), _part(tell, k, len(names))) for k, name in enumerate(names)]
    history = [record for each in runs for record in each.history]
    kernels = {each.model.kernel: each.bound for each in runs}
    return replace(max(runs, key=lambda each: each.bound), history=history, kernels=kernels)


def _part(tell: Progress, k: int, n: int) -> Progress:
    return lambda share: tell(60 * (k + share) / n)


def _with_smallest_sizes(model: GlobeModel, latitudes: Tensor, options: Options) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies that leave a small residual; given sizes stay."""
    if options.n_inducing is not None and options.t_max is not None:
        return model
    smallest = smallest_sizes(model, latitudes)
    t_max = smallest.t_max if options.t_max is None else options.t_max
    return replace(smallest, m=options.n_inducing or smallest.m, t_max=t_max)
