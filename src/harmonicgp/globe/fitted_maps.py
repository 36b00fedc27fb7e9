"""A field fitted by waves: maps on a grid, or scattered points.

The posterior is in model units: the mean function is subtracted, and the values are divided by their scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from harmonicgp.features import GlobeGrid, LongitudeFeatures, WaveEvaluation
from harmonicgp.features.evaluation import Roots
from harmonicgp.features.waves import by_block, by_kind
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.model import GlobeModel
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import Place, Source, place_of
from harmonicgp.globe.reading import check_points
from harmonicgp.inference import DeviationPosterior, Predictor, RootPosterior
from harmonicgp.inference.statistics import block_roots
from harmonicgp.tables.columns import Array

#: Random features for the residual of a sample.
SAMPLE_FREQUENCIES = 1024


@dataclass(frozen=True)
class SliceGroup:
    """Slices with the same cells, and their predictor."""

    slices: list[int]
    predictor: Predictor
    latitudes: Tensor | None = None  #: of the rows of a grid; None for points
    weights: Tensor | None = None  #: of these rows in the precisions; files store them instead of the covariance


@dataclass(frozen=True)
class FittedMaps:
    """Maps, or points: one model for all slices, their posteriors, a scale and a mean function."""

    inputs: ClassVar[list[str]] = ["longitude", "latitude"]

    model: GlobeModel
    groups: list[SliceGroup]
    mean: MeanFunction
    scale: float  #: one model unit in units of the data
    source: Source | None  #: None for points

    def __post_init__(self) -> None:
        slices = sorted(i for group in self.groups for i in group.slices)
        if not slices or slices != list(range(len(slices) if self.source is None else len(self.source.slices))):
            raise ValueError(f"the posterior has the slices {slices}.")

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise, in the units of the data."""
        return math.sqrt(self.model.s2) * self.scale

    @property
    def slices(self) -> Array | None:
        """Coordinates of the slices; None without `by`."""
        return None if self.source is None or self.source.by is None else self.source.slices

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        model = self.model
        return {
            "model_": model,
            "kernel_": model.kernel,
            "lengthscale_": model.lengthscale,
            "field_std_": math.sqrt(model.scale) * self.scale,
            "noise_std_": self.noise_std,
            "n_inducing_": model.m,
            "t_max_": model.t_max,
            "n_features_": model.features().n_features,
            "regressor_": None,
            "neighbours_": 0,
            "slices_": self.slices,
        }

    # Predictions ------------------------------------------------------------------------------------------------------

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `like` or else of `where`; None is the fitted grid."""
        return place_of(self.source, where if like is None else like)

    def on_grid(self, place: Place, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field, [slices, rows, columns]."""
        return self._moments(self._grid(place), variance, self.mean(*place.axes.cells), place.slices)

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field at points, [n]; of slices, [slices, n]."""
        points = check_points(X)
        mean, spread = self._moments(self._tensor(points), variance, self.mean(points[:, 1], points[:, 0]))
        if self.slices is not None:
            return mean, spread
        return mean[0], None if spread is None else spread[0]

    def samples(self, place: Place, n: int, seed: int) -> Array:
        """Samples of the posterior, [n, slices, rows, columns]."""
        grid = self._grid(place)
        draws = [g.predictor.paths(n, seed + k, SAMPLE_FREQUENCIES)(grid) for k, g in enumerate(self.groups)]
        return self._in_order(draws, 1, place.slices) * self.scale + self.mean(*place.axes.cells)

    def frequencies(self, frequencies: Sequence[int] | None) -> list[int]:
        """The frequencies of components, checked; None is 0 to 8, or to t_max if that is smaller."""
        last = self.model.t_max
        numbers = list(range(min(8, last) + 1)) if frequencies is None else list(frequencies)
        if not numbers or not all(isinstance(t, int | np.integer) and 0 <= t <= last for t in numbers):
            raise ValueError(f"frequencies are whole numbers from 0 to {last}; got {frequencies!r}.")
        return numbers

    def components(self, place: Place, frequencies: list[int]) -> Array:
        """The mean of single frequencies, [frequencies, slices, rows, columns]."""
        grid, parts = self._grid(place), []
        for group in self.groups:
            f: Any = group.predictor.features
            blocks = [[t] if t not in range(1, f.n_sines + 1) else [t, f.t_max + t] for t in frequencies]
            parts.append(torch.stack([group.predictor.block_means(grid, pair).sum(1) for pair in blocks]))
        return self._in_order(parts, 1, place.slices) * self.scale

    @torch.no_grad()
    def spectrum(self, latitudes: Any) -> Array:
        """The power of the mean at each frequency, [t_max + 1]; of slices, [slices, t_max + 1]."""
        degrees = np.linspace(-89.5, 89.5, 180) if latitudes is None else np.asarray(latitudes, np.float64)
        if degrees.ndim != 1 or not degrees.size or not (np.abs(degrees) <= 90).all():
            raise ValueError("latitudes must be numbers from -90 to 90 degrees.")
        rows, parts = self._tensor(degrees), []
        area = torch.cos(torch.deg2rad(rows)).clamp_min(0.0)
        area = area / area.sum().clamp_min(1e-300)
        for group in self.groups:
            f: Any = group.predictor.features
            grid, power = GlobeGrid(rows, rows.new_tensor([f.meridian])), rows.new_zeros(())
            for (piece, _), part in f.pieces(grid, len(rows)):
                c = group.predictor.whitened(part).along(group.predictor.posterior.mean_vector())  # type: ignore[attr-defined]
                power = power + torch.einsum("cprt,r->pt", c.double().square(), area[piece])
            parts.append(power * torch.where(f.multiplicity() == 2, 0.5, 1.0))
        powers = self._in_order(parts, 0) * self.scale**2
        return powers if self.slices is not None else powers[0]

    def _moments(
        self, x: GlobeGrid | Tensor, variance: bool, offset: Array, slices: list[int] | None = None
    ) -> tuple[Array, Array | None]:
        """Mean and variance in the units of the data; `offset` are the values of the mean function."""
        if not variance:
            means = [group.predictor.means(x) for group in self.groups]
            return self._in_order(means, 0, slices) * self.scale + offset, None
        moments = zip(*(group.predictor.marginals(x) for group in self.groups), strict=True)
        mean, spread = (self._in_order(parts, 0, slices) for parts in moments)
        return mean * self.scale + offset, spread * self.scale**2

    def _in_order(self, parts: Sequence[Tensor], axis: int, slices: list[int] | None = None) -> Array:
        """The results of all groups along an axis, in the order of the slices; or only those of some slices."""
        order = np.argsort([i for group in self.groups for i in group.slices])
        values = torch.cat(list(parts), axis).cpu().numpy()
        return np.take(values, order if slices is None else order[slices], axis)

    def _grid(self, place: Place) -> GlobeGrid:
        return GlobeGrid(self._tensor(place.axes.latitudes), self._tensor(place.axes.longitudes))

    def _tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.groups[0].predictor.posterior.mean_vector().device)

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file. For a grid they have the weights of the rows, from which the covariance follows."""
        source, tensors = (None, {}) if self.source is None else self.source.state()
        for k, group in enumerate(self.groups):
            posterior, features = group.predictor.posterior, group.predictor.features
            ((blocks, m),), T = features.shapes, self.model.t_max + 1
            tensors[f"{k}.mean"] = by_kind(posterior.mean_vector().unflatten(-1, (blocks, m)), T)
            if isinstance(posterior, DeviationPosterior):
                tensors[f"{k}.draws"] = by_kind(posterior.deviations.unflatten(-1, (blocks, m)), T)
            elif group.weights is None:
                tensors[f"{k}.M"] = by_kind(posterior.roots.stacks[0], T)[0]
            if group.latitudes is not None and group.weights is not None:
                tensors[f"{k}.latitudes"], tensors[f"{k}.weights"] = group.latitudes, group.weights
        header = {
            "model": asdict(self.model),
            "groups": [group.slices for group in self.groups],
            "scale": self.scale,
            "mean": self.mean.kind,
            "by": None if self.source is None else self.source.by,
            "source": source,
        }
        return header, {name: tensor.cpu() for name, tensor in (tensors | self.mean.tensors()).items()}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor], options: Options) -> FittedMaps:
        """From a file; computes the covariance of a grid again. Raises a ValueError for impossible numbers."""
        bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
        if bad:
            raise ValueError(f"{', '.join(bad)} have values that are not finite")
        model, scale = GlobeModel(**header["model"]), float(header["scale"])
        for name, value in (("noise variance", model.s2), ("scale", scale)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"a {name} of {value}")
        features = model.features().to(options.torch_device()).requires_grad_(False)
        whitened, groups = features.whiten(), []
        for k, slices in enumerate(header["groups"]):
            names = [name for name in ("mean", "draws", "latitudes", "weights", "M") if f"{k}.{name}" in tensors]
            part = {name: tensors[f"{k}.{name}"].to(features.Z.device) for name in names}
            predictor = Predictor(features, whitened, _posterior_of(part, len(slices), model, features, options))
            groups.append(SliceGroup(list(map(int, slices)), predictor, part.get("latitudes"), part.get("weights")))
        source = header["source"] and Source.from_state(header["source"], tensors, header["by"])
        field = cls(model, groups, MeanFunction.from_tensors(header["mean"], tensors), scale, source)
        mean, variance = field.at_points(np.array([[0.0, model.south]]), True)
        if variance is None or not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise ValueError("predictions that are not finite")
        return field


@torch.no_grad()
def evaluate(model: GlobeModel, grid: GlobeGrid, dtype: torch.dtype) -> WaveEvaluation:
    """The features of a model on a grid, in a dtype."""
    return model.features(dtype=dtype).to(grid.latitudes.device).whiten()(grid)


def _posterior_of(
    part: Mapping[str, Tensor], n: int, model: GlobeModel, features: LongitudeFeatures, options: Options
) -> DeviationPosterior | RootPosterior:
    """The posterior of a group of n slices, from the tensors of a file."""
    shape = (2, features.t_max + 1, len(features.Z))
    if part["mean"].shape != (n, *shape):
        raise ValueError(f"a posterior of other than {n} slices with {shape} features")
    means = by_block(part["mean"], features.n_sines)
    if "draws" in part:
        if part["draws"].shape[1:] != shape:
            raise ValueError(f"draws of shape {tuple(part['draws'].shape)}")
        return DeviationPosterior(means.flatten(1), by_block(part["draws"], features.n_sines).flatten(1))
    if "weights" not in part:
        return RootPosterior((means,), Roots((by_block(part["M"][None], features.n_sines),)))
    latitudes = part["latitudes"]
    dtype = model.precision(options.dtype, len(latitudes))
    evaluation = evaluate(model, GlobeGrid(latitudes, latitudes.new_tensor([model.meridian])), dtype)
    grams = partial(evaluation.grams_from_powers, part["weights"].double())
    return RootPosterior((means,), block_roots(grams, evaluation.shapes, 1.0, dtype, latitudes.device))
