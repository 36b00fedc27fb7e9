"""Predictions of a fitted field, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from harmonicgp._extras import require
from harmonicgp.data.grids import GridAxes, Template, axes_of, read_grid, to_dataarray
from harmonicgp.estimators.globe_data import MeanFunction, Source, are_points, checked_points, field_scores
from harmonicgp.estimators.inputs import Array
from harmonicgp.inference.field_prediction import FieldPredictor
from harmonicgp.training.fields import GlobeModel


class PredictsFields(BaseEstimator):
    """What a model of a field does once it is fitted."""

    by: str | None
    random_state: int
    model_: GlobeModel
    axes_: GridAxes | None
    name_: str | None
    units_: str | None
    t_max_: int
    noise_std_: float
    _groups: list[tuple[list[int], FieldPredictor]]
    _mean: MeanFunction
    _scale: float
    _source: Source | None

    def predict(self, where: Any = None, return_std: bool = False) -> Any:
        """The data's mean, and the standard deviation of a new observation, noise included.

        `where`: a DataArray or Dataset with longitudes and latitudes, or a pair (longitudes, latitudes) of axes, which gives
        DataArrays; or points [n, 2], longitude and latitude, which gives arrays. None is the grid that was fitted.
        """
        check_is_fitted(self, "_groups")
        return self._predicted(where, return_std, self.model_.s2)

    def predict_f(self, where: Any = None, return_std: bool = False) -> Any:
        """The same of the field itself, without noise."""
        check_is_fitted(self, "_groups")
        return self._predicted(where, return_std, 0.0)

    def _predicted(self, where: Any, return_std: bool, s2: float) -> Any:
        if are_points(where):
            mean, variance = self._at_points(checked_points(where), return_std)
            std = None if variance is None else np.sqrt(variance + s2 * self._scale**2)
            return (mean, std) if return_std else mean
        axes, template = self._where(where)
        mean, variance = self._on_grid(axes, return_std)
        named = self._labelled(mean, template, self.name_, "posterior mean")
        if variance is None:
            return named
        std = np.sqrt(variance + s2 * self._scale**2)
        words = "standard deviation" + (" of a new observation" if s2 else " of the field")
        return named, self._labelled(std, template, None if self.name_ is None else f"{self.name_}_std", words)

    def _at_points(self, points: Array, variance: bool) -> tuple[Array, Array | None]:
        lon, lat = torch.from_numpy(points[:, 0].copy()), torch.from_numpy(points[:, 1].copy())
        offset = self._mean(points[:, 1], points[:, 0])
        n = sum(len(slices) for slices, _ in self._groups)
        means, variances = np.empty((n, len(lon))), np.empty((n, len(lon)))
        for slices, predictor in self._groups:
            m, v = predictor.points(lon, lat, variance)
            means[slices] = m.numpy() * self._scale + offset
            if v is not None:
                variances[slices] = v.numpy() * self._scale**2
        if self.by is None:
            return means[0], variances[0] if variance else None
        return means, variances if variance else None

    def _on_grid(self, axes: GridAxes, variance: bool) -> tuple[Array, Array | None]:
        lat, lon = torch.from_numpy(axes.latitudes.copy()), torch.from_numpy(axes.longitudes.copy())
        n = sum(len(slices) for slices, _ in self._groups)
        shape = (n, len(lat), len(lon))
        means, variances = np.empty(shape), np.empty(shape) if variance else None
        offset = self._mean(axes.latitudes[:, None], axes.longitudes[None, :])
        for slices, predictor in self._groups:
            m, v = predictor.grid(lat, lon, variance)
            means[slices] = m.numpy() * self._scale + offset
            if variances is not None and v is not None:
                variances[slices] = v.numpy() * self._scale**2
        return means, variances

    def _where(self, where: Any) -> tuple[GridAxes, Template]:
        if where is not None:
            return axes_of(where)
        if self._source is None:
            raise ValueError("the model was fitted to points: say where, such as predict((longitudes, latitudes)).")
        return axes_of(self._source.frame())

    def _labelled(
        self, values: Array, template: Template, name: str | None, words: str, first: tuple[str, Array] | None = None
    ) -> Any:
        """Values [slices, rows, columns], or with one more axis `first` before these, as a DataArray like the template."""
        xr = require("xarray", "geo", "fields on a grid")
        if first is not None:
            label, places = first
            parts = [self._labelled(part, template, name, words) for part in values]
            return xr.concat(parts, xr.DataArray(places, dims=label, name=label))
        maps = [to_dataarray(part, template, name, self.units_, words) for part in values]
        if self.by is None or self._source is None:
            return maps[0]
        together = xr.concat(maps, xr.DataArray(self._source.slices, dims=self.by, name=self.by))
        return together.transpose(*template.dims) if self.by in template.dims else together

    def sample(self, where: Any = None, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Whole fields drawn from the posterior, without noise: a DataArray with a first dimension `sample`."""
        check_is_fitted(self, "_groups")
        axes, template = self._where(where)
        lat, lon = torch.from_numpy(axes.latitudes.copy()), torch.from_numpy(axes.longitudes.copy())
        seed = self.random_state if random_state is None else random_state
        total = sum(len(slices) for slices, _ in self._groups)
        out = np.empty((n_samples, total, len(lat), len(lon)))
        offset = self._mean(axes.latitudes[:, None], axes.longitudes[None, :])
        for k, (slices, predictor) in enumerate(self._groups):
            out[:, slices] = predictor.samples(lat, lon, n_samples, seed + k).numpy() * self._scale + offset
        return self._labelled(out, template, self.name_, "posterior samples", ("sample", np.arange(n_samples)))

    def fill(self, data: Any) -> Any:
        """The data with their missing cells filled by the mean of the model."""
        check_is_fitted(self, "_groups")
        slices = sum(len(slices) for slices, _ in self._groups)
        if len(read_grid(data).values) != slices:
            raise ValueError(f"the data to fill must have the {slices} slices that were fitted.")
        mean = self.predict(data)
        filled = data.where(np.isfinite(data), mean.transpose(*(dim for dim in data.dims if dim in mean.dims)))
        filled.attrs = dict(data.attrs)
        return filled

    def components(self, where: Any = None, frequencies: Sequence[int] | None = None) -> Any:
        """The mean of single frequencies of the longitude as fields: a DataArray with a first dimension `frequency`.

        `frequencies`: by default 0 to 8, or as many as there are. All of them and the mean function add up to `predict`.
        """
        check_is_fitted(self, "_groups")
        chosen = list(range(min(8, self.t_max_) + 1)) if frequencies is None else [int(t) for t in frequencies]
        if not chosen or min(chosen) < 0 or max(chosen) > self.t_max_:
            raise ValueError(f"frequencies are whole numbers from 0 to {self.t_max_}; got {frequencies!r}.")
        axes, template = self._where(where)
        lat, lon = torch.from_numpy(axes.latitudes.copy()), torch.from_numpy(axes.longitudes.copy())
        total = sum(len(slices) for slices, _ in self._groups)
        out = np.empty((len(chosen), total, len(lat), len(lon)))
        for slices, predictor in self._groups:
            out[:, slices] = predictor.components(lat, lon, chosen).numpy() * self._scale
        first = ("frequency", np.array(chosen))
        return self._labelled(out, template, self.name_, "harmonics of the longitude", first)

    def spectrum(self, latitudes: Array | None = None) -> Array:
        """The power of the mean at every frequency of the longitude, averaged over the globe, [t_max + 1] (slices first)."""
        check_is_fitted(self, "_groups")
        lat = np.linspace(-89.5, 89.5, 180) if latitudes is None else np.asarray(latitudes, np.float64)
        total = np.empty((sum(len(slices) for slices, _ in self._groups), self.t_max_ + 1))
        for slices, predictor in self._groups:
            total[slices] = predictor.spectrum(torch.from_numpy(lat)).numpy() * self._scale**2
        return total if self.by is not None else total[0]

    def scores(self, data: Any, y: Any = None) -> dict[str, float]:
        """RMSE, NLL and 95 % coverage of other data, also with cells weighted by their area (cos of the latitude)."""
        check_is_fitted(self, "_groups")
        if y is None:
            grid = read_grid(data)
            mean, variance = self._on_grid(grid.axes, True)
            assert variance is not None
            present = np.isfinite(grid.values)
            weights = np.broadcast_to(np.cos(np.deg2rad(grid.axes.latitudes))[:, None], grid.values.shape)[present]
            return field_scores(mean[present], variance[present] + self.noise_std_**2, grid.values[present], weights)
        X = checked_points(data)
        mean, variance = self._at_points(X, True)
        assert variance is not None
        return field_scores(mean, variance + self.noise_std_**2, np.asarray(y, np.float64), np.cos(np.deg2rad(X[:, 1])))

    def score(self, data: Any, y: Any = None) -> float:
        """The mean log density of other data."""
        return -self.scores(data, y)["nll"]

    def plot(self, path: str | Path, where: Any = None) -> None:
        """A PNG of the mean and its error bar on a map with coasts; beside it, NAME-spectrum.png with the zonal spectrum."""
        from harmonicgp.diagnostics.maps import Panel, draw_maps, draw_spectrum

        check_is_fitted(self, "_groups")
        axes, _ = self._where(where)
        mean, variance = self._on_grid(axes, True)
        assert variance is not None
        units, name = self.units_ or "", self.name_ or "field"
        panels = [
            Panel(f"{name}: mean", mean[0], units=units),
            Panel("error bar (standard deviation of the field)", np.sqrt(variance[0]), "positive", units),
        ]
        draw_maps(path, axes.longitudes, axes.latitudes, panels)
        power = self.spectrum(axes.latitudes)
        place = Path(path)
        draw_spectrum(place.with_name(f"{place.stem}-spectrum.png"), power[0] if self.by is not None else power)
