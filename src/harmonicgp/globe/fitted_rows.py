"""Fitted fields whose cells or points are rows of a `HarmonicGPRegressor`.

`FittedRows` has the inputs longitude and latitude, and neighbours: it resolves what waves along the parallels cannot. Fields
with further inputs are in `globe.fitted_cells`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import pack, unpack
from harmonicgp.globe.fields import Points
from harmonicgp.globe.grids import GridData
from harmonicgp.globe.local import LocalModel, local_model
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.options import KERNELS, Options
from harmonicgp.globe.places import Place, Source, place_of
from harmonicgp.globe.reading import check_points, standard_deviation
from harmonicgp.tables.columns import Array

#: Default numbers of inducing points and neighbours: the first model large scales, the second small ones. Held-out values have
#: near neighbours, so they do not determine how many neighbours a hole needs.
INDUCING, NEIGHBOURS = 256, 40
#: Up to this many rows the model is exact.
EXACT = 2_000


@dataclass(frozen=True)
class FieldRows:
    """The values of one map, or of points, as rows of a table; the mean function is subtracted."""

    X: Array  #: [n, inputs], longitude and latitude in degrees first
    y: Array  #: [n]
    noise: Array | None  #: known variances, [n]
    mean: MeanFunction
    notes: tuple[str, ...] = ()

    @classmethod
    def of_points(cls, points: Points, mean: Any) -> FieldRows:
        """From scattered points; `mean` is the argument of the estimator."""
        X, values = points.X.numpy(), points.values.numpy()
        function = MeanFunction.of(mean, X[:, 1], X[:, 0], values)
        noise = None if points.noise is None else points.noise.numpy()
        return cls(X, values[0] - function(X[:, 1], X[:, 0]), noise, function)

    @classmethod
    def of_grid(cls, grid: GridData, inputs: Array, mean: Any) -> FieldRows:
        """From the cells of a grid and their inputs [cells, inputs]. Cells without a value or an input are left out."""
        function = MeanFunction.of(mean, *grid.axes.cells, grid.values)
        values = (grid.values - function(*grid.axes.cells)).ravel()
        present, complete = np.isfinite(values), np.isfinite(inputs).all(1)
        used, notes = present & complete, list(grid.notes)
        if used.sum() < 3:
            raise ValueError(f"{used.sum()} cells have a value and all inputs: at least three are needed.")
        if (present & ~complete).any():
            notes.append(f"{int((present & ~complete).sum()):,} cells without a covariate are not used.")
        noise = None if grid.noise is None else grid.noise.ravel()[used]
        if noise is not None and np.isnan(noise).any():
            raise ValueError("noise_std is missing where the data have a value.")
        return cls(inputs[used], values[used], noise, function, tuple(notes))

    @property
    def noise_std(self) -> Array | None:
        """Known standard errors, [n]."""
        return None if self.noise is None else np.sqrt(self.noise)

    def local_model(self, options: Options) -> LocalModel:
        """Kernel and noise learned from nearest neighbours, for values divided by their standard deviation."""
        scale = standard_deviation(self.y)
        noise = None if self.noise is None else torch.from_numpy(self.noise / scale**2)
        X, y = torch.from_numpy(np.ascontiguousarray(self.X)), torch.from_numpy(self.y / scale)
        names = KERNELS if options.kernel == "auto" else (options.kernel,)
        return local_model(Points(X, y[None], noise), names, options.random_state)


@dataclass(frozen=True)
class RegressorField(ABC):
    """A regressor on the rows of a field, and a mean function. Predictions are in the units of the data, without noise."""

    regressor: HarmonicGPRegressor
    mean: MeanFunction

    @property
    @abstractmethod
    def inputs(self) -> list[str]:
        """Names of the inputs."""

    @abstractmethod
    def rows(self, place: Place) -> Array:
        """The inputs of the cells of a grid, [cells, inputs], longitudes last."""

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

    def on_grid(self, place: Place, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field, [slices, rows, columns]; NaN where a covariate is missing."""
        mean, spread = self._moments(self.rows(place), variance)
        return mean.reshape(place.shape), None if spread is None else spread.reshape(place.shape)

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field at points [n, inputs]: [n]."""
        return self._moments(check_points(X, self.inputs), variance)

    def samples(self, place: Place, n: int, seed: int) -> Array:
        """Samples of the posterior, [n, slices, rows, columns]; NaN where a covariate is missing."""
        rows = self.rows(place)
        draws = _where_complete(rows, n, lambda X: self.regressor.sample_y(self._columns(X), n, seed, noise=False).T)
        return (draws + self.mean(rows[:, 1], rows[:, 0])).reshape(n, *place.shape)

    def _moments(self, rows: Array, variance: bool) -> tuple[Array, Array | None]:
        offset, predict = self.mean(rows[:, 1], rows[:, 0]), self.regressor.predict_f
        if not variance:
            (mean,) = _where_complete(rows, 1, lambda X: predict(self._columns(X)))
            return mean + offset, None
        mean, std = _where_complete(rows, 2, lambda X: predict(self._columns(X), return_std=True))
        return mean + offset, std**2

    def _columns(self, rows: Array) -> Array:
        """Rows [n, inputs] as the regressor takes them."""
        return rows

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        regressor, tensors = pack(self.regressor.to_file())
        tensors = {f"regressor.{name}": tensor for name, tensor in tensors.items()}
        return {"mean": self.mean.kind, "regressor": regressor}, tensors | self.mean.tensors()


def regression_from_state(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[HarmonicGPRegressor, MeanFunction]:
    """The regressor and the mean function of `RegressorField.state`."""
    regressor = HarmonicGPRegressor.from_file(unpack(header["regressor"], tensors_of(tensors, "regressor.")))
    return regressor, MeanFunction.from_tensors(header["mean"], tensors)


def tensors_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _where_complete(rows: Array, n: int, values: Callable[[Array], Any]) -> Array:
    """n values of every row without a gap, [n, rows]; NaN for the others."""
    complete = np.isfinite(rows).all(1)
    result = np.full((n, len(rows)), np.nan)
    if complete.any():
        result[:, complete] = values(rows[complete])
    return result


# Longitude and latitude alone -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedRows(RegressorField):
    """A regressor on longitude and latitude, with neighbours."""

    source: Source | None  #: None for points
    kernel: str  #: its name
    meridian: float  #: longitudes of the regressor are counted from here: float32 then separates near ones

    @property
    def inputs(self) -> list[str]:
        """Longitude and latitude."""
        return ["longitude", "latitude"]

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        kernel, scale = self.regressor.kernel_, float(self.regressor.preprocessing_.component_scale[0])
        return super().attributes() | {
            "kernel_": self.kernel,
            "lengthscale_": float(kernel.base_kernel.base_kernel.lengthscale.detach()),  # type: ignore[union-attr]
            "field_std_": scale * float(kernel.outputscale.detach().sqrt()),  # type: ignore[union-attr]
            "slices_": None,
        }

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `like` or else of `where`; None is the fitted grid."""
        return place_of(self.source, where if like is None else like)

    def rows(self, place: Place) -> Array:
        """Longitude and latitude of the cells of a grid, [cells, 2], longitudes last."""
        return place.axes.points

    def _columns(self, rows: Array) -> Array:
        return from_meridian(rows, self.meridian)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        header, tensors = super().state()
        source, axes = (None, {}) if self.source is None else self.source.state()
        header |= {"rows": {"kernel": self.kernel, "meridian": self.meridian}, "source": source}
        return header, tensors | axes

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedRows:
        """From a file."""
        source, rows = header["source"] and Source.from_state(header["source"], tensors, None), header["rows"]
        return cls(*regression_from_state(header, tensors), source, str(rows["kernel"]), float(rows["meridian"]))


def from_meridian(rows: Array, meridian: float) -> Array:
    """Rows [n, 2] with longitudes counted from a meridian, from -180 to 180."""
    return np.stack((np.mod(rows[:, 0] - meridian + 180.0, 360.0) - 180.0, rows[:, 1]), 1)


def fit_rows(
    rows: FieldRows, local: LocalModel, source: Source | None, options: Options
) -> tuple[FittedRows, dict[str, Any]]:
    """Fit rows by inducing points and neighbours. Also returns further fitted attributes of the estimator.

    The kernel stays as it was learned from nearest neighbours; held-out rows choose the noise.
    """
    regressor = HarmonicGPRegressor(
        kernel=local.kernel,
        symmetry=None,
        columns={0: "longitude", 1: "latitude"},
        n_inducing=options.n_inducing or ("auto" if len(rows.y) <= EXACT else INDUCING),
        neighbours=NEIGHBOURS if options.neighbours is None else options.neighbours,
        max_steps=0,
        calibration=None,
        **options.of_regressor,
    )
    angle = np.deg2rad(rows.X[:, 0])
    meridian = float(np.rad2deg(np.arctan2(np.sin(angle).mean(), np.cos(angle).mean())))
    regressor.fit(from_meridian(rows.X, meridian), rows.y, noise_std=rows.noise_std)
    return FittedRows(regressor, rows.mean, source, local.name, meridian), {"kernels_": local.densities}
