"""Posteriors of maps and predictions from them: the engine behind narrow functions of NumPy arrays.

Boundary: this module and `globe.training` are the only callers of the engine (`fields`, `closed_form`, `prediction`, `points`,
`learning`, `patches`). Everything above them handles NumPy arrays and the values that these two modules return. All numbers here
are in model units: the mean function is subtracted, and the values are divided by their scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.features.longitude import LongitudeFeatures, LongitudeWhitened
from harmonicgp.globe.closed_form import covariance, field_closed_form, joint_draws
from harmonicgp.globe.fields import Field, FieldPosterior, Parallels
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.learning import GlobeModel
from harmonicgp.globe.options import Options
from harmonicgp.globe.points import Points, points_draws, points_statistics
from harmonicgp.globe.prediction import FieldPredictor
from harmonicgp.globe.training import is_uneven, precision
from harmonicgp.tables.columns import Array


@dataclass(frozen=True)
class Group:
    """Slices that have the same cells, and their predictor."""

    slices: list[int]
    predictor: FieldPredictor
    latitudes: Tensor | None = None  #: of the rows of a grid; None for points
    weights: Tensor | None = (
        None  #: of the rows in the precisions of the blocks, from which a file makes the covariance
    )


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
        latitudes, longitudes = self._axes(axes)
        return self._moments(lambda predictor: predictor.grid(latitudes, longitudes, variance))

    def points(self, X: Array, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance at points [n, 2], longitude and latitude: [slices, n]."""
        longitudes, latitudes = (self._tensor(column) for column in X.T)
        return self._moments(lambda predictor: predictor.points(longitudes, latitudes, variance))

    def samples(self, axes: GridAxes, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, slices, rows, columns]."""
        latitudes, longitudes = self._axes(axes)
        draws = [
            group.predictor.samples(latitudes, longitudes, n, seed + k).cpu().numpy()
            for k, group in enumerate(self.groups)
        ]
        return self._in_order(draws, 1)

    def components(self, axes: GridAxes, frequencies: list[int]) -> Array:
        """The mean of single frequencies, [frequencies, slices, rows, columns]."""
        latitudes, longitudes = self._axes(axes)
        parts = [group.predictor.components(latitudes, longitudes, frequencies).cpu().numpy() for group in self.groups]
        return self._in_order(parts, 1)

    def spectrum(self, latitudes: Array) -> Array:
        """The power of the mean at each frequency, averaged over the latitudes by area: [slices, t_max + 1]."""
        rows = self._tensor(latitudes)
        return self._in_order([group.predictor.spectrum(rows).cpu().numpy() for group in self.groups], 0)

    def _moments(self, predict: Callable[[FieldPredictor], tuple[Tensor, Tensor | None]]) -> tuple[Array, Array | None]:
        """Mean and variance of all slices; the slices of a group share their variance."""
        means, variances = [], []
        for group in self.groups:
            mean, variance = predict(group.predictor)
            means.append(mean.cpu().numpy())
            if variance is not None:
                variances.append(np.broadcast_to(variance.cpu().numpy(), mean.shape))
        return self._in_order(means, 0), self._in_order(variances, 0) if variances else None

    def _in_order(self, parts: Sequence[Array], axis: int) -> Array:
        """The results of all groups in the order of the slices, which run along an axis."""
        if len(parts) == 1:
            return parts[0]
        order = np.argsort([i for group in self.groups for i in group.slices])
        return np.concatenate(parts, axis).take(order, axis)

    def _axes(self, axes: GridAxes) -> tuple[Tensor, Tensor]:
        return self._tensor(axes.latitudes), self._tensor(axes.longitudes)

    def _tensor(self, values: Array) -> Tensor:
        return _tensor(values, self.groups[0].predictor.posterior.mean.device)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file. Of the covariance of a grid it has the weights of the rows, not the blocks."""
        tensors = {}
        for k, group in enumerate(self.groups):
            posterior = group.predictor.posterior
            tensors[f"{k}.mean"] = posterior.mean
            if posterior.draws is not None:
                tensors[f"{k}.draws"] = posterior.draws
            if group.latitudes is None or group.weights is None:
                tensors[f"{k}.M"] = posterior.M
            else:
                tensors[f"{k}.latitudes"], tensors[f"{k}.weights"] = group.latitudes, group.weights
        header = {"model": asdict(self.model), "groups": [group.slices for group in self.groups]}
        return header, {name: tensor.cpu() for name, tensor in tensors.items()}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor], options: Options) -> MapPosterior:
        """From a file; computes the covariance of a grid again."""
        model = GlobeModel(**header["model"])
        if not (math.isfinite(model.s2) and model.s2 > 0):
            raise ValueError(f"a noise variance of {model.s2}")
        device = options.torch_device()
        _, whitened = _whiten(model, device)
        parallels: Parallels | None = None
        groups = []
        for k, slices in enumerate(header["groups"]):
            mean, draws = (_to(tensors.get(f"{k}.{name}"), device) for name in ("mean", "draws"))
            latitudes, weights = (_to(tensors.get(f"{k}.{name}"), device) for name in ("latitudes", "weights"))
            shape = (model.t_max + 1, model.m)
            if mean is None or mean.shape != (len(slices), 2, *shape):
                raise ValueError(f"a posterior of other than {len(slices)} slices with {shape} features")
            if draws is not None and draws.shape[1:] != (2, *shape):
                raise ValueError(f"draws of shape {tuple(draws.shape)}")
            if latitudes is None or weights is None:
                M = tensors[f"{k}.M"].to(device)
            else:
                if parallels is None:
                    parallels = Parallels.of(whitened, latitudes, precision(options.dtype, model, len(latitudes)))
                M, _ = covariance(parallels, weights.double(), parallels.A.dtype)
            predictor = FieldPredictor(whitened, FieldPosterior(mean, M, draws))
            groups.append(Group([int(i) for i in slices], predictor, latitudes, weights))
        return cls(model, groups)


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


def point_set(X: Array, y: Array, errors: Array | None, device: torch.device) -> Points:
    """Points [n, 2] with values [n] and known variances of their noise."""
    return Points(_tensor(X, device), _tensor(y, device), None if errors is None else _tensor(errors, device))


def fit_grid(model: GlobeModel, fields: Sequence[tuple[list[int], Field]], options: Options) -> MapFit:
    """The posterior of fields on one grid, in closed form."""
    latitudes = fields[0][1].latitudes
    _, whitened = _whiten(model, latitudes.device)
    parallels = Parallels.of(whitened, latitudes, precision(options.dtype, model, len(latitudes)))
    tolerance = 1e-9 if parallels.A.dtype == torch.float64 else 1e-5
    groups, bound, cells = [], 0.0, 0
    for slices, field in fields:
        fit = field_closed_form(parallels, field, model.s2, options.bound, tolerance)
        posterior = fit.posterior
        uneven = options.posterior == "auto" and is_uneven(fit.parts.D, field.longitudes)
        if options.posterior == "joint" or uneven:
            draws = joint_draws(parallels, fit, options.n_draws, options.random_state)
            posterior = replace(posterior, draws=draws)
        predictor = FieldPredictor(whitened, posterior)
        groups.append(Group(slices, predictor, field.latitudes, fit.parts.weights.float()))
        bound, cells = bound + fit.bound, cells + field.n_cells * len(slices)
    return MapFit(MapPosterior(model, groups), bound / cells, float(parallels.residual.mean()) / model.s2)


def fit_points(model: GlobeModel, points: Points, options: Options) -> MapFit:
    """The posterior of scattered points, with the features of maps, in batches."""
    features, whitened = _whiten(model, points.X.device)
    form, statistics = points_statistics(features, whitened, points, model.s2, options.bound)
    posterior, joint = FieldPosterior.of_blocks(form.posterior, features), True
    if options.posterior != "block":
        draws = points_draws(features, statistics, model.s2, options.n_draws, options.random_state)
        posterior, joint = replace(posterior, draws=draws), draws is not None
    group = Group([0], FieldPredictor(whitened, posterior))
    share = float(statistics.residual.mean()) / model.s2
    return MapFit(MapPosterior(model, [group]), form.bound / len(points.y), share, joint)


def _whiten(model: GlobeModel, device: torch.device) -> tuple[LongitudeFeatures, LongitudeWhitened]:
    features = model.features().to(device)
    return features, features.whiten()


def _tensor(values: Array, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(values)).to(device)


def _to(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
