"""Predictions of a fitted field, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from harmonicgp._extras import require
from harmonicgp._validation import whole_number
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.globe.cells import CellInputs, Place, split_dataset
from harmonicgp.globe.data import (
    MeanFunction,
    Source,
    are_points,
    checked_points,
    checked_values,
    field_scores,
)
from harmonicgp.globe.grids import GridAxes, axes_of, read_grid, to_dataarray
from harmonicgp.globe.learning import GlobeModel
from harmonicgp.globe.prediction import FieldPredictor
from harmonicgp.tables.inputs import Array


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
    regressor_: HarmonicGPRegressor | None  #: where cells are rows of a table
    _cells: CellInputs | None
    _frame: Any

    @property
    def inputs_(self) -> list[str]:
        """The inputs: longitude and latitude, further dimensions, covariates."""
        return ["longitude", "latitude"] if self._cells is None else self._cells.names

    def predict(self, where: Any = None, return_std: bool = False) -> Any:
        """The data's mean, and the standard deviation of a new observation, noise included.

        `where`: a DataArray or Dataset with longitudes and latitudes, or a pair (longitudes, latitudes) of axes, which gives
        DataArrays; or points [n, 2], longitude and latitude, which gives arrays. None is the grid that was fitted. Further
        dimensions and covariates of the fit must be there too (times of points are days from the year 2000).
        """
        check_is_fitted(self, "_groups")
        return self._predicted(where, return_std, self.noise_std_**2)

    def predict_f(self, where: Any = None, return_std: bool = False) -> Any:
        """The same of the field itself, without noise."""
        check_is_fitted(self, "_groups")
        return self._predicted(where, return_std, 0.0)

    def _predicted(self, where: Any, return_std: bool, s2: float) -> Any:
        if are_points(where):
            mean, variance = self._at_points(where, return_std)
            std = None if variance is None else np.sqrt(variance + s2)
            return (mean, std) if return_std else mean
        place = self._where(where)
        mean, variance = self._on_grid(place, return_std)
        named = self._labelled(mean, place, self.name_, "posterior mean")
        if variance is None:
            return named
        std = np.sqrt(variance + s2)
        words = "standard deviation" + (" of a new observation" if s2 else " of the field")
        return named, self._labelled(std, place, None if self.name_ is None else f"{self.name_}_std", words)

    def _at_points(self, where: Any, variance: bool) -> tuple[Array, Array | None]:
        points = checked_points(where, None if self._cells is None else self._cells.names)
        if self._cells is not None:
            return self._at_rows(points, variance)
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

    def _at_rows(self, rows: Array, variance: bool) -> tuple[Array, Array | None]:
        """By the regressor; not a number where a covariate is missing."""
        assert self.regressor_ is not None
        whole = np.isfinite(rows).all(1)
        means, stds = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        if whole.any():
            means[whole], stds[whole] = self.regressor_.predict_f(rows[whole], return_std=True)
        return means + self._mean(rows[:, 1], rows[:, 0]), stds**2 if variance else None

    def _on_grid(self, place: Place, variance: bool) -> tuple[Array, Array | None]:
        """The mean and the variance of the field, [slices, rows, columns]."""
        axes = place.axes
        if place.rows is not None:
            cells = (-1, len(axes.latitudes), len(axes.longitudes))
            mean, spread = self._at_rows(place.rows, variance)
            return mean.reshape(cells), None if spread is None else spread.reshape(cells)
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
        if place.slices is not None:
            return means[place.slices], None if variances is None else variances[place.slices]
        return means, variances

    def _where(self, where: Any) -> Place:
        if self._cells is not None:
            if where is None and self._frame is None:
                raise ValueError("the model has covariates: say where, with a Dataset that has them.")
            return self._cells.place(self._frame if where is None else where)
        if where is not None:
            axes, template = axes_of(where)
            asked = (
                self.by is not None and hasattr(where, "dims") and (self.by in where.dims or self.by in where.coords)
            )
            if not asked or self._source is None or self.by is None:
                return Place(axes, template)
            chosen, single = self._source.find(self.by, where)
            return Place(axes, template, None, (self.by,) if single else (), chosen)
        if self._source is None:
            raise ValueError("the model was fitted to points: say where, such as (longitudes, latitudes).")
        return Place(*axes_of(self._source.frame()))

    def _only_maps(self, what: str) -> None:
        if self._cells is not None:
            raise ValueError(
                f"{what} of maps alone: this field has the further inputs {', '.join(self._cells.names[2:])}. "
                "Fit one slice, or slices by=..."
            )

    def _labelled(
        self, values: Array, place: Place, name: str | None, words: str, first: tuple[str, Array] | None = None
    ) -> Any:
        """Values [slices, rows, columns], or with one more axis `first` before these, as a DataArray like the template."""
        xr = require("xarray", "geo", "fields on a grid")
        template = place.template
        if first is not None:
            label, places = first
            parts = [self._labelled(part, place, name, words) for part in values]
            return xr.concat(parts, xr.DataArray(places, dims=label, name=label))
        if place.rows is not None:
            return to_dataarray(values, template, name, self.units_, words).squeeze(place.lone)
        maps = [to_dataarray(part, template, name, self.units_, words) for part in values]
        if self.by is None or self._source is None:
            return maps[0]
        labels = self._source.slices if place.slices is None else self._source.slices[place.slices]
        together = xr.concat([part.drop_vars(self.by, errors="ignore") for part in maps],
                             xr.DataArray(labels, dims=self.by, name=self.by))  # fmt: skip
        if place.lone:
            return together.squeeze(self.by)
        return together.transpose(*template.dims) if self.by in template.dims else together

    def sample(self, where: Any = None, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Whole fields drawn from the posterior, without noise: a DataArray with a first dimension `sample`."""
        check_is_fitted(self, "_groups")
        n_samples = whole_number(n_samples, "n_samples", 1)
        place = self._where(where)
        axes = place.axes
        lat, lon = torch.from_numpy(axes.latitudes.copy()), torch.from_numpy(axes.longitudes.copy())
        seed = self.random_state if random_state is None else random_state
        first = ("sample", np.arange(n_samples))
        if place.rows is not None:
            out = self._drawn(place.rows, n_samples, seed).reshape(n_samples, -1, len(lat), len(lon))
            return self._labelled(out, place, self.name_, "posterior samples", first)
        total = sum(len(slices) for slices, _ in self._groups)
        out = np.empty((n_samples, total, len(lat), len(lon)))
        offset = self._mean(axes.latitudes[:, None], axes.longitudes[None, :])
        for k, (slices, predictor) in enumerate(self._groups):
            out[:, slices] = predictor.samples(lat, lon, n_samples, seed + k).numpy() * self._scale + offset
        out = out if place.slices is None else out[:, place.slices]
        return self._labelled(out, place, self.name_, "posterior samples", first)

    def _drawn(self, rows: Array, n_samples: int, seed: int) -> Array:
        assert self.regressor_ is not None
        whole = np.isfinite(rows).all(1)
        draws = np.full((n_samples, len(rows)), np.nan)
        if whole.any():
            draws[:, whole] = self.regressor_.sample_y(rows[whole], n_samples, seed, noise=False).T
        return draws + self._mean(rows[:, 1], rows[:, 0])

    def fill(self, data: Any) -> Any:
        """The data with their missing cells filled by the mean of the model; of a Dataset, the variable that was fitted."""
        check_is_fitted(self, "_groups")
        field = split_dataset(data, self.name_)[0] if hasattr(data, "data_vars") else data
        grid = read_grid(field)
        place = self._where(field) if self._cells is None else self._cells.place(data, field)
        mean, _ = self._on_grid(place, False)
        if mean.shape != grid.values.shape:
            raise ValueError(
                f"the data to fill have {len(grid.values)} maps, the model {len(mean)}: give them the coordinates of its slices."
            )
        assert grid.template is not None
        filled = field.where(np.isfinite(field), to_dataarray(mean, grid.template))
        filled.attrs = dict(field.attrs)
        return filled

    def components(self, where: Any = None, frequencies: Sequence[int] | None = None) -> Any:
        """The mean of single frequencies of the longitude as fields: a DataArray with a first dimension `frequency`.

        `frequencies`: by default 0 to 8, or as many as there are. All of them and the mean function add up to `predict`.
        """
        check_is_fitted(self, "_groups")
        self._only_maps("components are")
        chosen = list(range(min(8, self.t_max_) + 1)) if frequencies is None else list(frequencies)
        if not chosen or not all(isinstance(t, int | np.integer) and 0 <= t <= self.t_max_ for t in chosen):
            raise ValueError(f"frequencies are whole numbers from 0 to {self.t_max_}; got {frequencies!r}.")
        place = self._where(where)
        lat, lon = (torch.from_numpy(a.copy()) for a in (place.axes.latitudes, place.axes.longitudes))
        total = sum(len(slices) for slices, _ in self._groups)
        out = np.empty((len(chosen), total, len(lat), len(lon)))
        for slices, predictor in self._groups:
            out[:, slices] = predictor.components(lat, lon, chosen).numpy() * self._scale
        out = out if place.slices is None else out[:, place.slices]
        first = ("frequency", np.array(chosen))
        return self._labelled(out, place, self.name_, "harmonics of the longitude", first)

    def spectrum(self, latitudes: Array | None = None) -> Array:
        """The power of the mean at every frequency of the longitude, averaged over the globe, [t_max + 1] (slices first)."""
        check_is_fitted(self, "_groups")
        self._only_maps("a spectrum is")
        lat = np.linspace(-89.5, 89.5, 180) if latitudes is None else np.asarray(latitudes, np.float64)
        if lat.ndim != 1 or not lat.size or not (np.abs(lat) <= 90).all():
            raise ValueError("latitudes must be numbers from -90 to 90 degrees.")
        total = np.empty((sum(len(slices) for slices, _ in self._groups), self.t_max_ + 1))
        for slices, predictor in self._groups:
            total[slices] = predictor.spectrum(torch.from_numpy(lat)).numpy() * self._scale**2
        return total if self.by is not None else total[0]

    def scores(self, data: Any, y: Any = None) -> dict[str, float]:
        """RMSE, NLL and 95 % coverage of other data, also with cells weighted by their area (cos of the latitude)."""
        check_is_fitted(self, "_groups")
        if y is None:
            field = split_dataset(data, self.name_)[0] if hasattr(data, "data_vars") else data
            grid = read_grid(field)
            place = self._where(field) if self._cells is None else self._cells.place(data, field)
            mean, variance = self._on_grid(place, True)
            assert variance is not None
            if mean.shape != grid.values.shape:
                raise ValueError(
                    f"the data have {len(grid.values)} maps, the model {len(mean)}: give them the coordinates of its slices."
                )
            present = np.isfinite(grid.values) & np.isfinite(mean)
            weights = np.broadcast_to(np.cos(np.deg2rad(grid.axes.latitudes))[:, None], grid.values.shape)[present]
            return field_scores(mean[present], variance[present] + self.noise_std_**2, grid.values[present], weights)
        mean, variance = self._at_points(data, True)
        assert variance is not None
        points = checked_points(data, None if self._cells is None else self._cells.names)
        values = np.broadcast_to(checked_values(y, len(points)), mean.shape)
        weights = np.broadcast_to(np.cos(np.deg2rad(points[:, 1])), mean.shape)
        return field_scores(mean.ravel(), (variance + self.noise_std_**2).ravel(), values.ravel(), weights.ravel())

    def score(self, data: Any, y: Any = None) -> float:
        """The mean log density of other data."""
        return -self.scores(data, y)["nll"]

    def plot(self, path: str | Path, where: Any = None) -> None:
        """A PNG of the mean and its error bar on a map with coasts; beside it, NAME-spectrum.png with the zonal spectrum.

        Of several slices the first is drawn; with further inputs, without a spectrum.
        """
        from harmonicgp.globe.maps import Panel, draw_maps, draw_spectrum

        check_is_fitted(self, "_groups")
        place = self._where(where)
        axes = place.axes
        mean, variance = self._on_grid(place, True)
        assert variance is not None
        units, name = self.units_ or "", self.name_ or "field"
        first = "" if len(mean) == 1 else ", the first slice"
        low, high = np.nanquantile(mean[0], (0.005, 0.995))
        kind: Literal["signed", "positive"] = "signed" if low < 0 < high else "positive"  # zero is no middle of kelvins
        panels = [
            Panel(f"{name}: mean{first}", mean[0], kind, units),
            Panel("error bar (standard deviation of the field)", np.sqrt(variance[0]), "positive", units),
        ]
        draw_maps(path, axes.longitudes, axes.latitudes, panels)
        if self._cells is not None:
            return
        power = self.spectrum(axes.latitudes)
        file = Path(path)
        draw_spectrum(file.with_name(f"{file.stem}-spectrum.png"), power[0] if self.by is not None else power)
