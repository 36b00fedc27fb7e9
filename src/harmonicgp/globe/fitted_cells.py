"""A fitted field with further dimensions or covariates: a `HarmonicGPRegressor` of its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import pack, unpack
from harmonicgp.globe.cells import CellInputs, CellTable, frame_from_state, frame_state
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import Place
from harmonicgp.globe.reading import check_points
from harmonicgp.tables.columns import Array

#: Options that the regressor of the cells has too.
_SHARED = ("posterior", "bound", "dtype", "random_state", "progress", "device")


@dataclass(frozen=True)
class FittedCells:
    """A regressor on the rows of a table of cells, and a mean function."""

    regressor: HarmonicGPRegressor
    mean: MeanFunction
    cells: CellInputs
    frame: Any  #: a DataArray on the fitted grid; None with covariates, which it does not have

    @property
    def inputs(self) -> list[str]:
        """Longitude and latitude, further dimensions, covariates."""
        return self.cells.names

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise, in the units of the data."""
        return float(self.regressor.noise_std_[0])

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        gp = self.regressor
        return {
            "regressor_": gp,
            "neighbours_": gp.neighbours_,
            "kernel_": str(gp.kernel),
            "elbo_": gp.elbo_,
            "noise_std_": self.noise_std,
            "n_inducing_": len(gp.inducing_points()),
            "n_features_": gp.model_.n_features,
        }

    # Predictions ------------------------------------------------------------------------------------------------------

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `where`, which has the covariates, or that of the DataArray `like`; None is the fitted grid."""
        if where is None and self.frame is None:
            raise ValueError("the model has covariates: say where, with a Dataset that has them.")
        return self.cells.place(self.frame if where is None else where, like)

    def on_grid(self, place: Place, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field, [slices, rows, columns]; NaN where a covariate is missing."""
        mean, spread = (part.reshape(place.shape) for part in self._moments(place.rows))
        return mean, spread if variance else None

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field at points [n, inputs]: [n]."""
        mean, spread = self._moments(check_points(X, self.inputs))
        return mean, spread if variance else None

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        means, stds = _where_complete(rows, 2, lambda known: self.regressor.predict_f(known, return_std=True))
        return means + self.mean(rows[:, 1], rows[:, 0]), stds**2

    def samples(self, place: Place, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, slices, rows, columns]; NaN where a covariate is missing."""
        rows = place.rows
        draws = _where_complete(rows, n, lambda known: self.regressor.sample_y(known, n, seed, noise=False).T)
        return (draws + self.mean(rows[:, 1], rows[:, 0])).reshape(n, *place.shape)

    def components(self, *_: Any) -> NoReturn:
        """Raises: only maps have components and a spectrum."""
        raise ValueError(
            f"components and spectra are of maps alone: this field has the further inputs {', '.join(self.inputs[2:])}. "
            "Fit one slice, or slices by=..."
        )

    frequencies = spectrum = components

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        regressor, regressor_tensors = pack(self.regressor.to_file())
        frame, frame_tensors = (None, {}) if self.frame is None else frame_state(self.frame)
        cells = self.cells
        header = {
            "mean": self.mean.kind,
            "cells": {"dims": list(cells.dims), "covariates": list(cells.covariates), "kinds": list(cells.kinds)},
            "regressor": regressor,
            "frame": frame,
        }
        tensors = {f"regressor.{name}": tensor for name, tensor in regressor_tensors.items()}
        tensors |= {f"frame.{name}": tensor for name, tensor in frame_tensors.items()}
        return header, tensors | self.mean.tensors()

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedCells:
        """From a file."""
        cells = CellInputs(*(tuple(map(str, header["cells"][name])) for name in ("dims", "covariates", "kinds")))
        return cls(
            HarmonicGPRegressor.from_file(unpack(header["regressor"], _part(tensors, "regressor."))),
            MeanFunction.from_tensors(header["mean"], tensors),
            cells,
            None if header["frame"] is None else frame_from_state(header["frame"], _part(tensors, "frame.")),
        )


def fit_cells(table: CellTable, options: Options) -> tuple[FittedCells, dict[str, Any]]:
    """Fit the cells as rows of a table. Also gives further fitted attributes of the estimator."""
    _check_options(table, options)
    grid, rows, notes = table.grid, table.rows, list(table.grid.notes)
    mean = MeanFunction.of(options.mean, *grid.axes.cells, grid.values)
    values = (grid.values - mean(*grid.axes.cells)).ravel()
    present, complete = np.isfinite(values), np.isfinite(rows).all(1)
    if (present & ~complete).any():
        notes.append(f"{int((present & ~complete).sum()):,} cells without a covariate are not used.")
    used = present & complete
    if used.sum() < 3:
        raise ValueError(f"{used.sum()} cells have a value and all covariates: at least three are needed.")
    errors = None if table.noise is None else np.sqrt(table.noise).ravel()[used]
    if errors is not None and np.isnan(errors).any():
        raise ValueError("noise_std is missing where the data have a value.")
    regressor = HarmonicGPRegressor(
        kernel="matern32" if options.kernel == "auto" else options.kernel,
        columns={0: "longitude", 1: "latitude"},
        n_inducing="auto" if options.n_inducing is None else options.n_inducing,
        neighbours="auto" if options.neighbours is None else options.neighbours,
        **{name: getattr(options, name) for name in _SHARED},
    ).fit(rows[used], values[used], noise_std=errors)
    frame = None if table.inputs.covariates or grid.template is None else grid.template.frame.drop_attrs()
    return FittedCells(regressor, mean, table.inputs, frame), {"notes_": notes}


def _check_options(table: CellTable, options: Options) -> None:
    """Raise for arguments that only maps have."""
    if options.by is not None:
        raise ValueError(
            f"by={options.by!r} fits slices that are maps: beside it there can be no further inputs "
            f"({', '.join(name for name in table.inputs.names[2:] if name != options.by)}). Choose one slice, or leave by= out."
        )
    given = options.of_waves
    if given:
        raise ValueError(
            f"{', '.join(given)} can be given for maps; of a field with the inputs "
            f"{', '.join(table.inputs.names[2:])} all is learned."
        )


def _where_complete(rows: Array, n: int, values: Callable[[Array], Any]) -> Array:
    """N values of every row that has no gap, [n, rows]; NaN for the others."""
    complete = np.isfinite(rows).all(1)
    result = np.full((n, len(rows)), np.nan)
    if complete.any():
        result[:, complete] = values(rows[complete])
    return result


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
