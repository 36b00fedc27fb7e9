"""Posteriors of maps and predictions from them: the engine behind narrow functions of NumPy arrays.

Boundary: this module and `globe.training` are the only callers of the engine (features, closed form, predictor, learning).
Everything above them handles NumPy arrays and the values that these two modules return. All numbers here are in model units:
the mean function is subtracted, and the values are divided by their scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.features import GlobeGrid, LongitudeFeatures, WaveEvaluation
from harmonicgp.features.evaluation import Roots
from harmonicgp.globe.fields import Field, PointSet
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.learning import GlobeModel
from harmonicgp.globe.options import Options
from harmonicgp.globe.training import is_uneven, precision
from harmonicgp.inference import DeviationPosterior, Predictor, RootPosterior, closed_form, joint_deviations
from harmonicgp.inference.statistics import EvaluationStatistics, gather_statistics, root_blocks, streaming_matvec
from harmonicgp.tables.columns import Array

#: Random features of the part of a sample that the inducing points leave open.
SAMPLE_FREQUENCIES = 1024


@dataclass(frozen=True)
class Group:
    """Slices that have the same cells, and their predictor."""

    slices: list[int]
    predictor: Predictor
    latitudes: Tensor | None = None  #: of the rows of a grid; None for points
    weights: Tensor | None = (
        None  #: of the rows in the precisions of the blocks, from which a file makes the covariance
    )


@dataclass(frozen=True)
class FileLayout:
    """How a file holds coefficients: those of cosines and sines apart, [..., 2, T, m], zero where there is no sine."""

    T: int
    n_sines: int
    m: int

    @classmethod
    def of(cls, features: LongitudeFeatures) -> FileLayout:
        """The layout of some features."""
        return cls(features.t_max + 1, features.n_sines, len(features.Z))

    def write(self, blocks: Tensor) -> Tensor:
        """Values of blocks [n, blocks, ...] as [n, 2, T, ...]."""
        out = blocks.new_zeros(len(blocks), 2, self.T, *blocks.shape[2:])
        out[:, 0], out[:, 1, 1 : self.n_sines + 1] = blocks[:, : self.T], blocks[:, self.T :]
        return out

    def read(self, values: Tensor) -> Tensor:
        """The inverse of `write`."""
        return torch.cat((values[:, 0], values[:, 1, 1 : self.n_sines + 1]), 1)


@dataclass(frozen=True)
class MapPosterior:
    """The posterior of all slices, which share one model."""

    model: GlobeModel
    groups: list[Group]

    def __post_init__(self) -> None:
        slices = sorted(i for group in self.groups for i in group.slices)
        if not slices or slices != list(range(len(slices))):
            raise ValueError(f"the posterior has the slices {slices}.")

    @property
    def n_slices(self) -> int:
        """Slices in all groups."""
        return sum(len(group.slices) for group in self.groups)

    def grid(self, axes: GridAxes, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance on a grid, [slices, rows, columns]."""
        return self._moments(self._grid(axes), variance)

    def points(self, X: Array, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance at points [n, 2], longitude and latitude: [slices, n]."""
        return self._moments(self._tensor(X), variance)

    def samples(self, axes: GridAxes, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, slices, rows, columns]."""
        grid = self._grid(axes)
        paths = [g.predictor.paths(n, seed + k, SAMPLE_FREQUENCIES)(grid) for k, g in enumerate(self.groups)]
        return self._in_order([draws.cpu().numpy() for draws in paths], 1)

    def components(self, axes: GridAxes, frequencies: list[int]) -> Array:
        """The mean of single frequencies, [frequencies, slices, rows, columns]."""
        grid, parts = self._grid(axes), []
        for group in self.groups:
            f: Any = group.predictor.features
            single = [
                group.predictor.block_means(grid, [t] if t not in range(1, f.n_sines + 1) else [t, f.t_max + t]).sum(1)
                for t in frequencies
            ]
            parts.append(torch.stack(single).cpu().numpy())
        return self._in_order(parts, 1)

    @torch.no_grad()
    def spectrum(self, latitudes: Array) -> Array:
        """The power of the mean at each frequency, averaged over the latitudes by area: [slices, t_max + 1]."""
        rows, parts = self._tensor(latitudes), []
        area = torch.cos(torch.deg2rad(rows)).clamp_min(0.0)
        area = area / area.sum().clamp_min(1e-300)
        for group in self.groups:
            f: Any = group.predictor.features
            grid, power = GlobeGrid(rows, rows.new_tensor([f.meridian])), rows.new_zeros(())
            for (chosen, _), part in f.pieces(grid, len(rows)):
                c = group.predictor.whitened(part).along(group.predictor.posterior.mean_vector())  # type: ignore[attr-defined]
                power = power + torch.einsum("cprt,r->pt", c.double().square(), area[chosen])
            parts.append((power * torch.where(f.multiplicity() == 2, 0.5, 1.0)).cpu().numpy())
        return self._in_order(parts, 0)

    def _moments(self, x: GlobeGrid | Tensor, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of all slices."""
        if not variance:
            return self._in_order([group.predictor.means(x).cpu().numpy() for group in self.groups], 0), None
        moments = [group.predictor.marginals(x) for group in self.groups]
        mean, spread = (self._in_order([pair[i].cpu().numpy() for pair in moments], 0) for i in (0, 1))
        return mean, spread

    def _in_order(self, parts: Sequence[Array], axis: int) -> Array:
        """The results of all groups in the order of the slices, which run along an axis."""
        if len(parts) == 1:
            return parts[0]
        order = np.argsort([i for group in self.groups for i in group.slices])
        return np.concatenate(parts, axis).take(order, axis)

    def _grid(self, axes: GridAxes) -> GlobeGrid:
        return GlobeGrid(self._tensor(axes.latitudes), self._tensor(axes.longitudes))

    def _tensor(self, values: Array) -> Tensor:
        return _tensor(values, self.groups[0].predictor.posterior.mean_vector().device)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file. Of the covariance of a grid it has the weights of the rows, not the blocks."""
        tensors: dict[str, Tensor] = {}
        for k, group in enumerate(self.groups):
            posterior, features = group.predictor.posterior, group.predictor.features
            assert isinstance(features, LongitudeFeatures)
            layout = FileLayout.of(features)
            tensors[f"{k}.mean"] = layout.write(posterior.mean_vector().unflatten(-1, (-1, layout.m)))
            if isinstance(posterior, DeviationPosterior):
                tensors[f"{k}.draws"] = layout.write(posterior.deviations.unflatten(-1, (-1, layout.m)))
            elif group.weights is None:
                tensors[f"{k}.M"] = layout.write(posterior.roots.stacks[0])[0]
            if group.latitudes is not None and group.weights is not None:
                tensors[f"{k}.latitudes"], tensors[f"{k}.weights"] = group.latitudes, group.weights
        header = {"model": asdict(self.model), "groups": [group.slices for group in self.groups]}
        return header, {name: tensor.cpu() for name, tensor in tensors.items()}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor], options: Options) -> MapPosterior:
        """From a file; computes the covariance of a grid again."""
        model = GlobeModel(**header["model"])
        if not (math.isfinite(model.s2) and model.s2 > 0):
            raise ValueError(f"a noise variance of {model.s2}")
        features = model.features().to(options.torch_device())
        predictor_of, groups = _predictors(features), []
        for k, slices in enumerate(header["groups"]):
            part = {
                name: None if (tensor := tensors.get(f"{k}.{name}")) is None else tensor.to(features.Z.device)
                for name in ("mean", "draws", "latitudes", "weights", "M")
            }
            posterior = _posterior_of(part, len(slices), model, features, options)
            groups.append(Group([int(i) for i in slices], predictor_of(posterior), part["latitudes"], part["weights"]))
        return cls(model, groups)


def _posterior_of(
    part: Mapping[str, Tensor | None], n: int, model: GlobeModel, features: LongitudeFeatures, options: Options
) -> DeviationPosterior | RootPosterior:
    """The posterior of a group of n slices, from the tensors of a file."""
    layout, mean, draws = FileLayout.of(features), part["mean"], part["draws"]
    shape = (2, layout.T, layout.m)
    if mean is None or mean.shape != (n, *shape):
        raise ValueError(f"a posterior of other than {n} slices with {shape} features")
    means = layout.read(mean)
    if draws is not None:
        if draws.shape[1:] != shape:
            raise ValueError(f"draws of shape {tuple(draws.shape)}")
        return DeviationPosterior(means.flatten(1), layout.read(draws).flatten(1))
    latitudes, weights, M = part["latitudes"], part["weights"], part["M"]
    if latitudes is None or weights is None:
        if M is None:
            raise ValueError("a posterior without a covariance")
        return RootPosterior((means,), Roots((layout.read(M[None]),)))
    dtype = precision(options.dtype, model, len(latitudes))
    evaluation = _evaluate(model, GlobeGrid(latitudes, latitudes.new_tensor([model.meridian])), dtype)
    grams = partial(evaluation.grams_from_powers, weights.double())
    return root_blocks(grams, evaluation.shapes, 1.0, dtype, latitudes.device).posterior(means.flatten(1))


def _predictors(features: LongitudeFeatures) -> Callable[[Any], Predictor]:
    """Predictors of posteriors that share their features."""
    features = features.requires_grad_(False)
    whitened = features.whiten()
    return lambda posterior: Predictor(features, whitened, posterior)


@torch.no_grad()
def _evaluate(model: GlobeModel, grid: GlobeGrid, dtype: torch.dtype) -> WaveEvaluation:
    return model.features(dtype=dtype).to(grid.latitudes.device).whiten()(grid)


@dataclass(frozen=True)
class MapFit:
    """A posterior, and how good it is."""

    posterior: MapPosterior
    bound: float  #: on the log likelihood, for each value
    residual_share: float  #: the mean residual variance of the features, as a share of the noise
    joint: bool = True  #: False if a joint posterior was asked for and there are too many features


def grid_fields(
    axes: GridAxes, values: Array, errors: Array | None, device: torch.device
) -> list[tuple[list[int], Field]]:
    """Group the slices [slices, rows, columns] that have the same cells and the same known errors."""
    present = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for i in range(len(values)):
        key = np.packbits(present[i]).tobytes() + (b"" if errors is None else errors[i].tobytes())
        groups.setdefault(key, []).append(i)
    latitudes, longitudes = _tensor(axes.latitudes, device), _tensor(axes.longitudes, device)
    fields = []
    for slices in groups.values():
        cells = present[slices[0]]
        if not cells.any():
            raise ValueError(f"slice {slices[0]} has no value at all: drop it.")
        noise = None
        if errors is not None:
            if np.isnan(errors[slices[0]][cells]).any():
                raise ValueError("noise_std is missing where the data have a value.")
            noise = _tensor(np.where(cells, errors[slices[0]], 0.0), device)
        numbers = _tensor(np.where(cells, values[slices], 0.0).astype(np.float32), device)
        fields.append((slices, Field(latitudes, longitudes, numbers, _tensor(cells, device), noise)))
    return fields


def point_set(X: Array, y: Array, errors: Array | None, device: torch.device) -> PointSet:
    """Points [n, 2] with values [n] and known variances of their noise."""
    return PointSet(_tensor(X, device), _tensor(y, device), None if errors is None else _tensor(errors, device))


def fit_grid(model: GlobeModel, fields: Sequence[tuple[list[int], Field]], options: Options) -> MapFit:
    """The posterior of fields on one grid, in closed form."""
    grid = fields[0][1].grid
    predictor_of = _predictors(model.features().to(grid.latitudes.device))
    evaluation = _evaluate(model, grid, precision(options.dtype, model, len(grid.latitudes)))
    tolerance = 1e-9 if evaluation.dtype == torch.float64 else 1e-5
    groups, bound, cells = [], 0.0, 0
    for slices, field in fields:
        noise = None if field.noise is None else model.s2 / (model.s2 + field.noise.double())
        statistics = EvaluationStatistics.of(evaluation, field.targets, noise, field.present.to(evaluation.dtype))
        form = closed_form(statistics, model.s2, "block", options.bound, tolerance=tolerance, max_iterations=200)
        posterior, weights = form.posterior, statistics.row_weights(evaluation.dtype)
        assert weights is not None
        uneven = options.posterior == "auto" and is_uneven(field.precision(model.s2), field.longitudes)
        if options.posterior == "joint" or uneven:
            mu = posterior.mean_vector()
            posterior = joint_deviations(statistics, model.s2, mu, options.n_draws, options.random_state)
        powers = (evaluation.waves.powers(weights) / model.s2).float()
        groups.append(Group(slices, predictor_of(posterior), field.latitudes, powers))
        bound, cells = bound + form.bound, cells + field.n_cells * len(slices)
    share = float(evaluation.residual.variance.mean()) / model.s2
    return MapFit(MapPosterior(model, groups), bound / cells, share)


def fit_points(model: GlobeModel, points: PointSet, options: Options) -> MapFit:
    """The posterior of scattered points, with the features of maps, in batches."""
    features = model.features().to(points.X.device)
    whitened, size = features.whiten(), max(64, (1 << 24) // features.n_features)
    weights = None if points.noise is None else model.s2 / (model.s2 + points.noise)
    with torch.no_grad():
        statistics = gather_statistics(whitened, features.shapes, points.X, points.y[None], weights, size)
    matvec = None if statistics.S is not None else streaming_matvec(whitened, points.X, weights, size)
    form = closed_form(statistics, model.s2, "block", options.bound, matvec=matvec)
    joint = options.posterior == "block" or statistics.S is not None
    if options.posterior != "block" and joint:
        mu = form.posterior.mean_vector()
        posterior: Any = joint_deviations(statistics, model.s2, mu, options.n_draws, options.random_state)
    else:
        (C,) = form.posterior.factors
        eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device).expand_as(C)
        roots = Roots((torch.linalg.solve_triangular(C, eye, upper=False),))
        posterior = RootPosterior(form.posterior.means, roots)
    group = Group([0], _predictors(features)(posterior))
    share = float(statistics.residual.mean()) / model.s2
    return MapFit(MapPosterior(model, [group]), form.bound / len(points.y), share, joint)


def _tensor(values: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(values)).to(device)
