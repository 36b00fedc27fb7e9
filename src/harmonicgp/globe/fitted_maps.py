"""A fitted field whose inputs are longitude and latitude: maps on a grid, or scattered points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from tqdm import tqdm

from harmonicgp.backend.memory import memory_kept
from harmonicgp.globe.fitted import MapFit, MapPosterior, fit_grid, fit_points, grid_fields, point_set
from harmonicgp.globe.grids import axes_of
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import MapPlace, Source
from harmonicgp.globe.reading import MapData, PointData, check_points, standard_deviation
from harmonicgp.globe.training import Progress, Training, train_on_grid, train_on_points
from harmonicgp.tables.columns import Array

#: A residual above this share of the noise gets a note.
LARGE_RESIDUAL = 0.5


@dataclass(frozen=True)
class FittedMaps:
    """Maps in the units of the data: a posterior in model units, a scale and a mean function."""

    has_waves: ClassVar[bool] = True
    inputs: ClassVar[list[str]] = ["longitude", "latitude"]

    posterior: MapPosterior
    mean: MeanFunction
    scale: float  #: model units are these units of the data
    source: Source | None  #: None for points

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise, in the units of the data."""
        return math.sqrt(self.posterior.model.s2) * self.scale

    @property
    def slices(self) -> Array | None:
        """The coordinates of the slices; None without `by`."""
        return None if self.source is None or self.source.by is None else self.source.slices

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        model = self.posterior.model
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
            "slices_": self.slices,
        }

    # Predictions ------------------------------------------------------------------------------------------------------

    def place(self, where: Any, like: Any = None) -> MapPlace:
        """The grid of `like` or else of `where`; None is the fitted grid."""
        where = where if like is None else like
        if self.source is not None:
            return self.source.place(where)
        if where is None:
            raise ValueError("the model was fitted to points: say where, such as (longitudes, latitudes).")
        axes, template = axes_of(where)
        return MapPlace(axes, template.with_slices(None, np.empty(0)))

    def on_grid(self, place: MapPlace, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field, [slices, rows, columns]."""
        mean, spread = self.posterior.grid(place.axes, variance)
        mean, spread = mean * self.scale + self.mean(*place.cells), None if spread is None else spread * self.scale**2
        if place.slices is None:
            return mean, spread
        return mean[place.slices], None if spread is None else spread[place.slices]

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field at points, [n]; of slices, [slices, n]."""
        points = check_points(X)
        mean, spread = self.posterior.points(points, variance)
        mean, spread = (
            mean * self.scale + self.mean(points[:, 1], points[:, 0]),
            None if spread is None else spread * self.scale**2,
        )
        if self.slices is not None:
            return mean, spread
        return mean[0], None if spread is None else spread[0]

    def samples(self, place: MapPlace, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, slices, rows, columns]."""
        draws = self.posterior.samples(place.axes, n, seed) * self.scale + self.mean(*place.cells)
        return draws if place.slices is None else draws[:, place.slices]

    def frequencies(self, frequencies: Sequence[int] | None) -> list[int]:
        """The frequencies of components; None is the first nine, or as many as there are."""
        last = self.posterior.model.t_max
        chosen = list(range(min(8, last) + 1)) if frequencies is None else list(frequencies)
        if not chosen or not all(isinstance(t, int | np.integer) and 0 <= t <= last for t in chosen):
            raise ValueError(f"frequencies are whole numbers from 0 to {last}; got {frequencies!r}.")
        return chosen

    def components(self, place: MapPlace, frequencies: list[int]) -> Array:
        """The mean of single frequencies, [frequencies, slices, rows, columns]."""
        parts = self.posterior.components(place.axes, frequencies) * self.scale
        return parts if place.slices is None else parts[:, place.slices]

    def spectrum(self, latitudes: Any) -> Array:
        """The power of the mean at each frequency, [t_max + 1]; of slices, [slices, t_max + 1]."""
        rows = np.linspace(-89.5, 89.5, 180) if latitudes is None else np.asarray(latitudes, np.float64)
        if rows.ndim != 1 or not rows.size or not (np.abs(rows) <= 90).all():
            raise ValueError("latitudes must be numbers from -90 to 90 degrees.")
        power = self.posterior.spectrum(rows) * self.scale**2
        return power if self.slices is not None else power[0]

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        header, tensors = self.posterior.state()
        source, axes = (None, {}) if self.source is None else self.source.state()
        header |= {
            "scale": self.scale,
            "mean": self.mean.kind,
            "by": None if self.source is None else self.source.by,
            "source": source,
        }
        return header, tensors | self.mean.tensors() | axes

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor], options: Options) -> FittedMaps:
        """From a file; raises ValueError for numbers that cannot be those of a model."""
        bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
        if bad:
            raise ValueError(f"{', '.join(bad)} have values that are not finite")
        scale, source = float(header["scale"]), None
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"a scale of {scale}")
        posterior = MapPosterior.from_state(header, tensors, options)
        if header["source"] is not None:
            source = Source.from_state(header["source"], tensors, header["by"])
            if len(source.slices) != posterior.n_slices:
                raise ValueError(f"{posterior.n_slices} slices with {len(source.slices)} coordinates")
        field = cls(posterior, MeanFunction.from_tensors(header["mean"], tensors), scale, source)
        mean, variance = field.at_points(np.array([[0.0, posterior.model.south]]), True)
        if variance is None or not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise ValueError("predictions that are not finite")
        return field


# Fitting --------------------------------------------------------------------------------------------------------------


def fit_maps(data: MapData, options: Options) -> tuple[FittedMaps, dict[str, Any]]:
    """Fit maps on a grid. Also gives further fitted attributes of the estimator."""
    axes, values = data.grid.axes, data.grid.values
    cells = axes.latitudes[:, None], axes.longitudes[None, :]
    mean = MeanFunction.of(options.mean, *cells, values)
    values = values - mean(*cells)
    present = int(np.isfinite(values).sum())
    if present < 3:
        raise ValueError(f"{present} cells have a value: at least three are needed.")
    scale = standard_deviation(values)
    errors = None if data.errors is None else data.errors / scale**2
    fields = grid_fields(axes, values / scale, errors, options.torch_device())
    with _progress(options.progress) as tell:
        training = train_on_grid([field for _, field in fields], axes, scale, options, tell)
        tell(70)
        fit = fit_grid(training.model, fields, options)
        tell(100)
    field = FittedMaps(fit.posterior, mean, scale, data.source)
    return field, _describe(training, fit, scale, list(data.grid.notes))


def fit_scattered(data: PointData, options: Options) -> tuple[FittedMaps, dict[str, Any]]:
    """Fit scattered points. Also gives further fitted attributes of the estimator."""
    places = data.X[:, 1], data.X[:, 0]
    mean = MeanFunction.of(options.mean, *places, data.y[None])
    values = data.y - mean(*places)
    scale = standard_deviation(values)
    errors = None if data.errors is None else data.errors / scale**2
    points = point_set(data.X, values / scale, errors, options.torch_device())
    with _progress(options.progress) as tell:
        training = train_on_points(points, scale, options, tell)
        fit = fit_points(training.model, points, options)
        tell(100)
    notes = []
    if not fit.joint:
        notes.append("too many features for a joint posterior of points: error bars are those of blocks.")
    return FittedMaps(fit.posterior, mean, scale, None), _describe(training, fit, scale, notes)


def _describe(training: Training, fit: MapFit, scale: float, notes: list[str]) -> dict[str, Any]:
    """Fitted attributes that only the fit knows."""
    if fit.residual_share > LARGE_RESIDUAL:
        notes.append(
            f"{training.model.m} inducing latitudes and frequencies to {training.model.t_max} leave "
            f"{fit.residual_share:.2g} times the noise unexplained: error bars count it. More memory=, n_inducing= and t_max= "
            "leave less."
        )
    return {
        "history_": training.history,
        "kernels_": training.kernels,
        "residual_share_": fit.residual_share,
        "elbo_": fit.bound - math.log(scale),
        "notes_": notes,
    }


@contextmanager
def _progress(show: bool) -> Iterator[Progress]:
    """A bar on a terminal, which takes per cent. The memory of a fit stays with the process until its end."""
    with memory_kept(), tqdm(total=100, desc="fit", disable=None if show else True, leave=False) as bar:
        yield lambda percent: bar.update(max(0.0, percent - bar.n))
