"""Fitting a field with further dimensions or covariates, by the regressor of tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.data import MeanFunction, known_variances
from harmonicgp.globe.grids import axes_of
from harmonicgp.globe.predicting import PredictsFields
from harmonicgp.likelihoods.observation import Bound


class FitsCells(PredictsFields):
    """What a model of a field does where its cells are rows of a table."""

    kernel: str
    n_inducing: int | str
    t_max: int | str
    mean: Any
    posterior: str
    bound: Bound
    dtype: str
    progress: bool

    def _has_inputs(self, data: Any) -> bool:
        """Whether a DataArray has dimensions, other than those of a map and that of its slices, along which it varies."""
        if not hasattr(data, "dims"):
            return False
        template = axes_of(data)[1]
        if self.by is not None and self.by not in template.extra:
            raise ValueError(f"the data have no dimension {self.by!r} to take slices of.")
        extra = {dim for dim, size in zip(template.extra, template.extra_shape, strict=True) if size > 1}
        return bool(extra - {self.by})

    def _fit_cells(self, table: CellTable, data: Any, noise_std: Any) -> None:
        """Cells as rows of a table."""
        if self.by is not None:
            raise ValueError(
                f"by={self.by!r} fits slices that are maps: beside it there can be no further inputs "
                f"({', '.join(name for name in table.inputs.names[2:] if name != self.by)}). Choose one slice, or leave by= out."
            )
        given = [name for name in ("lengthscale", "field_std", "noise_level") if getattr(self, name) is not None]
        if given or self.t_max != "auto":
            raise ValueError(
                f"{', '.join(given or ['t_max'])} can be given for maps; of a field with the inputs "
                f"{', '.join(table.inputs.names[2:])} all is learned."
            )
        grid, rows = table.grid, table.rows
        self.axes_, self.order_, self.name_, self.units_ = grid.axes, grid.axes.order, grid.name, grid.units
        self.notes_, self._groups = list(grid.notes), []
        self._source, self._cells, self._frame = None, table.inputs, None if table.inputs.covariates else table.frame
        places = grid.axes.latitudes[:, None], grid.axes.longitudes[None, :]
        self._mean = MeanFunction.of(self.mean, *places, grid.values)
        values = (grid.values - self._mean(*places)).ravel()
        present, whole = np.isfinite(values), np.isfinite(rows).all(1)
        if (present & ~whole).any():
            self.notes_.append(f"{int((present & ~whole).sum()):,} cells without a covariate are not used.")
        used = present & whole
        if used.sum() < 3:
            raise ValueError(f"{used.sum()} cells have a value and all covariates: at least three are needed.")
        errors = None
        if noise_std is not None:
            errors = np.sqrt(known_variances(noise_std, data)).ravel()[used]
            if np.isnan(errors).any():
                raise ValueError("noise_std is missing where the data have a value.")
        self.regressor_ = HarmonicGPRegressor(
            kernel="matern32" if self.kernel == "auto" else self.kernel, columns={0: "longitude", 1: "latitude"},
            n_inducing=self.n_inducing, posterior=self.posterior, bound=self.bound, dtype=self.dtype,
            random_state=self.random_state, progress=self.progress,
        ).fit(rows[used], values[used], noise_std=errors)  # fmt: skip
        self._describe_cells()

    def _describe_cells(self) -> None:
        gp = self.regressor_
        assert gp is not None
        self.kernel_, self.elbo_ = str(gp.kernel), gp.elbo_
        self.noise_std_ = float(gp.noise_std_[0])
        self.n_inducing_, self.n_features_ = len(gp.inducing_points()), gp.model_.n_features
