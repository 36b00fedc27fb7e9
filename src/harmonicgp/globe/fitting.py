"""Fits of maps and of scattered points by waves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.backend.linalg import inverse_factor
from harmonicgp.backend.memory import memory_kept
from harmonicgp.features.evaluation import Roots
from harmonicgp.globe.fields import Field, Points, coupling
from harmonicgp.globe.fitted_maps import FittedMaps, SliceGroup, evaluate
from harmonicgp.globe.grids import GridAxes, GridData
from harmonicgp.globe.learning import EVEN, Learned, Progress, train_on_grid, train_on_points
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.model import GlobeModel
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import Source
from harmonicgp.globe.reading import standard_deviation
from harmonicgp.inference import DeviationPosterior, Predictor, RootPosterior, closed_form, joint_deviations
from harmonicgp.inference.statistics import EvaluationStatistics, gather_statistics, streaming_matvec
from harmonicgp.tables.columns import Array

#: A residual above this share of the noise gets a note.
LARGE_RESIDUAL = 0.5
#: The closed form of maps: their groups, the bound per value, and the mean residual variance of the features as a share of the
#: noise.
MapForm: TypeAlias = tuple[list[SliceGroup], float, float]


def fit_maps(grid: GridData, options: Options) -> tuple[FittedMaps, dict[str, Any]]:
    """Fit maps on a grid. Also returns further fitted attributes of the estimator."""
    axes, values = grid.axes, grid.values
    present = int(np.isfinite(values).sum())
    if present < 3:
        raise ValueError(f"{present} cells have a value: at least three are needed.")
    mean, scale, values, noise = _standardise(values, grid.noise, options.mean, *axes.cells)
    fields = grid_fields(axes, values, noise, options.torch_device())
    with _progress(options.progress) as progress:
        learned = train_on_grid([field for _, field in fields], axes, scale, options, progress)
        progress(70)
        form = fit_grid(learned.model, fields, options)
        progress(100)
    source = None if grid.template is None else Source.of(grid, options.by)
    return _result(learned, form, mean, scale, source, grid.notes)


def fit_scattered(data: Points, options: Options) -> tuple[FittedMaps, dict[str, Any]]:
    """Fit scattered points. Also returns further fitted attributes of the estimator."""
    (lon, lat), device = data.X.numpy().T, options.torch_device()
    noise = None if data.noise is None else data.noise.numpy()
    mean, scale, values, noise = _standardise(data.values.numpy(), noise, options.mean, lat, lon)
    points = Points(data.X.to(device), _tensor(values, device), None if noise is None else _tensor(noise, device))
    with _progress(options.progress) as progress:
        learned = train_on_points(points, scale, options, progress)
        form = fit_points(learned.model, points, options)
        progress(100)
    notes = []
    if options.posterior != "block" and not isinstance(form[0][0].predictor.posterior, DeviationPosterior):
        notes = ["too many features for a joint posterior of points: error bars are those of independent blocks."]
    return _result(learned, form, mean, scale, None, notes)


def _standardise(
    values: Array, noise: Array | None, mean: Any, latitudes: Array, longitudes: Array
) -> tuple[MeanFunction, float, Array, Array | None]:
    """The mean function, the scale, and values [slices, ...] and known variances in model units."""
    function = MeanFunction.of(mean, latitudes, longitudes, values)
    values = values - function(latitudes, longitudes)
    scale = standard_deviation(values)
    return function, scale, values / scale, None if noise is None else noise / scale**2


def _result(
    learned: Learned, form: MapForm, mean: MeanFunction, scale: float, source: Source | None, notes: Sequence[str]
) -> tuple[FittedMaps, dict[str, Any]]:
    """The fitted field, and the fitted attributes that cannot be computed from it."""
    (groups, bound, residual_share), notes = form, list(notes)
    if residual_share > LARGE_RESIDUAL:
        notes.append(
            f"{learned.model.m} inducing latitudes and frequencies up to {learned.model.t_max} miss {residual_share:.2g} times "
            "the noise, which the error bars include. A larger memory=, or n_inducing= and t_max=, misses less."
        )
    attributes = {
        "history_": learned.history,
        "kernels_": learned.kernels,
        "residual_share_": residual_share,
        "elbo_": bound - math.log(scale),
        "notes_": notes,
    }
    return FittedMaps(learned.model, groups, mean, scale, source), attributes


@contextmanager
def _progress(show: bool) -> Iterator[Progress]:
    """A progress bar on a terminal, in per cent. Inside, free memory stays with the process."""
    with memory_kept(), tqdm(total=100, desc="fit", disable=None if show else True, leave=False) as bar:
        yield lambda percent: bar.update(max(0.0, percent - bar.n))


def grid_fields(
    axes: GridAxes, values: Array, noise: Array | None, device: torch.device
) -> list[tuple[list[int], Field]]:
    """Group the slices [slices, rows, columns] that have the same cells and the same known noise variances."""
    present = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for i in range(len(values)):
        key = np.packbits(present[i]).tobytes() + (b"" if noise is None else noise[i].tobytes())
        groups.setdefault(key, []).append(i)
    latitudes, longitudes = _tensor(axes.latitudes, device), _tensor(axes.longitudes, device)
    fields = []
    for slices in groups.values():
        cells = present[slices[0]]
        if not cells.any():
            raise ValueError(f"slice {slices[0]} has no values: drop it.")
        variances = None
        if noise is not None:
            if np.isnan(noise[slices[0]][cells]).any():
                raise ValueError("noise_std is missing where the data have a value.")
            variances = _tensor(np.where(cells, noise[slices[0]], 0.0), device)
        numbers = _tensor(np.where(cells, values[slices], 0.0).astype(np.float32), device)
        fields.append((slices, Field(latitudes, longitudes, numbers, _tensor(cells, device), variances)))
    return fields


def fit_grid(model: GlobeModel, fields: Sequence[tuple[list[int], Field]], options: Options) -> MapForm:
    """The posterior of fields on one grid, in closed form."""
    grid = fields[0][1].grid
    features = model.features().to(grid.latitudes.device).requires_grad_(False)
    whitened = features.whiten()
    evaluation = evaluate(model, grid, model.precision(options.dtype, len(grid.latitudes)))
    tolerance = 1e-9 if evaluation.dtype == torch.float64 else 1e-5
    groups, bound, cells = [], 0.0, 0
    for slices, field in fields:
        noise = None if field.noise is None else model.s2 / (model.s2 + field.noise.double())
        statistics = EvaluationStatistics.of(evaluation, field.targets, noise, field.present.to(evaluation.dtype))
        form = closed_form(statistics, model.s2, "block", options.bound, tolerance=tolerance, max_iterations=200)
        posterior, weights = form.posterior, statistics.row_weights(evaluation.dtype)
        assert weights is not None
        uneven = options.posterior == "auto" and coupling(field.precision(model.s2), field.longitudes) > EVEN
        if options.posterior == "joint" or uneven:
            mu = posterior.mean_vector()
            posterior = joint_deviations(statistics, model.s2, mu, options.n_draws, options.random_state)
        powers = (evaluation.waves.powers(weights) / model.s2).float()
        groups.append(SliceGroup(slices, Predictor(features, whitened, posterior), field.latitudes, powers))
        bound, cells = bound + form.bound, cells + field.n_cells * len(slices)
    return groups, bound / cells, float(evaluation.residual.variance.mean()) / model.s2


def fit_points(model: GlobeModel, points: Points, options: Options) -> MapForm:
    """The posterior of scattered points in closed form; features are computed in chunks."""
    features = model.features().to(points.X.device).requires_grad_(False)
    whitened, size = features.whiten(), max(64, (1 << 24) // features.n_features)
    weights = None if points.noise is None else model.s2 / (model.s2 + points.noise)
    statistics = gather_statistics(whitened, features.shapes, points.X, points.values, weights, size)
    matvec = None if statistics.S is not None else streaming_matvec(whitened, points.X, weights, size)
    form = closed_form(statistics, model.s2, "block", options.bound, matvec=matvec)
    if options.posterior != "block" and statistics.S is not None:
        mu = form.posterior.mean_vector()
        posterior: Any = joint_deviations(statistics, model.s2, mu, options.n_draws, options.random_state)
    else:
        (C,) = form.posterior.factors
        posterior = RootPosterior(form.posterior.means, Roots((inverse_factor(C),)))
    groups = [SliceGroup([0], Predictor(features, whitened, posterior))]
    return groups, form.bound / len(points.X), float(statistics.residual.mean()) / model.s2


def _tensor(values: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(values)).to(device)
