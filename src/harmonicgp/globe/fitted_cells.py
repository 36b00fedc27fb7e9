"""A fitted field with further dimensions or covariates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.globe.cells import CellInputs, CellTable, frame_from_state, frame_state
from harmonicgp.globe.fitted_rows import FieldRows, RegressorField, regression_from_state, tensors_of
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import Place
from harmonicgp.tables.columns import Array


@dataclass(frozen=True)
class FittedCells(RegressorField):
    """A regressor on longitude, latitude, further dimensions and covariates."""

    cells: CellInputs
    frame: Any  #: a DataArray on the fitted grid; None with covariates, which it does not have

    @property
    def inputs(self) -> list[str]:
        """Longitude and latitude, further dimensions, covariates."""
        return self.cells.names

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `where`, which has the covariates, or that of the DataArray `like`; None is the fitted grid."""
        if where is None and self.frame is None:
            raise ValueError("the model has covariates: give a Dataset that contains them.")
        return self.cells.place(self.frame if where is None else where, like)

    def rows(self, place: Place) -> Array:
        """All inputs of the cells of a grid, [cells, inputs]."""
        rows: Array = place.rows
        return rows

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        header, tensors = super().state()
        frame, axes = (None, {}) if self.frame is None else frame_state(self.frame)
        cells = self.cells
        header |= {
            "cells": {"dims": list(cells.dims), "covariates": list(cells.covariates), "kinds": list(cells.kinds)},
            "frame": frame,
        }
        return header, tensors | {f"frame.{name}": tensor for name, tensor in axes.items()}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedCells:
        """From a file."""
        cells = CellInputs(*(tuple(map(str, header["cells"][name])) for name in ("dims", "covariates", "kinds")))
        frame = header["frame"] and frame_from_state(header["frame"], tensors_of(tensors, "frame."))
        return cls(*regression_from_state(header, tensors), cells, frame)


def fit_cells(table: CellTable, options: Options) -> tuple[FittedCells, dict[str, Any]]:
    """Fit the cells as rows of a table. Also returns further fitted attributes of the estimator."""
    _check_options(table.inputs.names[2:], options)
    rows = FieldRows.of_grid(table.grid, table.rows, options.mean)
    regressor = HarmonicGPRegressor(
        kernel="matern32" if options.kernel == "auto" else options.kernel,
        columns={0: "longitude", 1: "latitude"},
        n_inducing="auto" if options.n_inducing is None else options.n_inducing,
        neighbours="auto" if options.neighbours is None else options.neighbours,
        **options.of_regressor,
    ).fit(rows.X, rows.y, noise_std=rows.noise_std)
    template = table.grid.template
    frame = None if table.inputs.covariates or template is None else template.frame.drop_attrs()
    return FittedCells(regressor, rows.mean, table.inputs, frame), {"notes_": list(rows.notes)}


def _check_options(further: list[str], options: Options) -> None:
    """Raise a ValueError for arguments that only maps have; `further` are the inputs besides longitude and latitude."""
    if options.by is not None:
        others = ", ".join(name for name in further if name != options.by)
        raise ValueError(
            f"by={options.by!r} fits slices that are maps, which cannot have further inputs ({others}): choose one slice, or "
            "leave by= out."
        )
    if options.of_waves:
        raise ValueError(
            f"{', '.join(options.of_waves)} can be given for maps only: a field with the inputs {', '.join(further)} learns "
            "everything."
        )
