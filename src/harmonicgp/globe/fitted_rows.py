"""A fitted field whose cells or points are rows with neighbours: what waves along the parallels cannot resolve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import pack, unpack
from harmonicgp.globe.fields import Points
from harmonicgp.globe.grids import GridAxes, GridData
from harmonicgp.globe.local import LocalModel, local_model
from harmonicgp.globe.mean import MeanFunction
from harmonicgp.globe.options import KERNELS, Options
from harmonicgp.globe.places import Place, Source, place_of
from harmonicgp.globe.reading import check_points, standard_deviation
from harmonicgp.tables.columns import Array

#: Inducing points and neighbours, unless given: the first carry what reaches far, the second the rest. Held-out values have near
#: ones and cannot tell how many neighbours a hole needs.
INDUCING, NEIGHBOURS = 256, 40
#: Rows up to which the model is exact.
EXACT = 2_000


@dataclass(frozen=True)
class FieldRows:
    """The values of a grid or of points as rows of longitude and latitude, less a mean function."""

    X: Array  #: [n, 2], longitude and latitude in degrees
    y: Array  #: [n]
    noise: Array | None  #: known variances, [n]
    mean: MeanFunction
    source: Source | None  #: None for points

    @classmethod
    def of(cls, data: GridData | Points, options: Options) -> FieldRows:
        """Of one map, or of points."""
        if isinstance(data, Points):
            X, y = data.X.numpy(), data.values.numpy()[0]
            noise, mean = data.noise, MeanFunction.of(options.mean, X[:, 1], X[:, 0], y[None])
            return cls(X, y - mean(X[:, 1], X[:, 0]), None if noise is None else noise.numpy(), mean, None)
        axes, values = data.axes, data.values
        mean = MeanFunction.of(options.mean, *axes.cells, values)
        present = np.isfinite(values[0]).ravel()
        errors = None if data.noise is None else data.noise[0].ravel()[present]
        if errors is not None and np.isnan(errors).any():
            raise ValueError("noise_std is missing where the data have a value.")
        X = grid_rows(axes)[present]
        y = values[0].ravel()[present] - mean(X[:, 1], X[:, 0])
        source = None if data.template is None else Source.of(data, None)
        return cls(X, y, errors, mean, source)

    def local(self, options: Options) -> LocalModel:
        """Kernel and noise as near values tell them, in units of their standard deviation."""
        scale = standard_deviation(self.y)
        noise = None if self.noise is None else torch.from_numpy(self.noise / scale**2)
        X, y = torch.from_numpy(np.ascontiguousarray(self.X)), torch.from_numpy(self.y / scale)
        names = KERNELS if options.kernel == "auto" else (options.kernel,)
        return local_model(Points(X, y[None], noise), names, options.random_state)


def grid_rows(axes: GridAxes) -> Array:
    """The cells of a grid as rows of longitude and latitude, longitudes last: [cells, 2]."""
    latitudes, longitudes = np.broadcast_arrays(*axes.cells)
    return np.stack((longitudes.ravel(), latitudes.ravel()), 1)


def from_meridian(rows: Array, meridian: float) -> Array:
    """Rows whose longitudes are counted from a meridian, from -180 to 180."""
    return np.stack((np.mod(rows[:, 0] - meridian + 180.0, 360.0) - 180.0, rows[:, 1]), 1)


@dataclass(frozen=True)
class FittedRows:
    """A regressor on longitude and latitude, and a mean function."""

    inputs: ClassVar[list[str]] = ["longitude", "latitude"]

    regressor: HarmonicGPRegressor
    mean: MeanFunction
    source: Source | None  #: None for points
    kernel: str  #: its name
    meridian: float  #: longitudes of the regressor are counted from here, for float32 to tell near ones apart

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise, in the units of the data."""
        return float(self.regressor.noise_std_[0])

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        gp, kernel = self.regressor, self.regressor.kernel_
        scale = float(gp.preprocessing_.component_scale[0])
        return {
            "regressor_": gp,
            "neighbours_": gp.neighbours_,
            "kernel_": self.kernel,
            "elbo_": gp.elbo_,
            "lengthscale_": float(kernel.base_kernel.base_kernel.lengthscale.detach()),  # type: ignore[union-attr]
            "field_std_": scale * float(kernel.outputscale.detach().sqrt()),  # type: ignore[union-attr]
            "noise_std_": self.noise_std,
            "n_inducing_": len(gp.inducing_points()),
            "n_features_": gp.model_.n_features,
            "slices_": None,
        }

    # Predictions ------------------------------------------------------------------------------------------------------

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `like` or else of `where`; None is the fitted grid."""
        return place_of(self.source, where if like is None else like)

    def on_grid(self, place: Place, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field, [1, rows, columns]."""
        mean, spread = self._moments(grid_rows(place.axes), variance)
        return mean.reshape(place.shape), None if spread is None else spread.reshape(place.shape)

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance of the field at points, [n]."""
        return self._moments(check_points(X), variance)

    def _moments(self, rows: Array, variance: bool) -> tuple[Array, Array | None]:
        offset, X = self.mean(rows[:, 1], rows[:, 0]), from_meridian(rows, self.meridian)
        if not variance:
            return self.regressor.predict_f(X) + offset, None
        mean, std = self.regressor.predict_f(X, return_std=True)
        return mean + offset, std**2

    def samples(self, place: Place, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, 1, rows, columns]."""
        rows = grid_rows(place.axes)
        X = from_meridian(rows, self.meridian)
        draws = self.regressor.sample_y(X, n, seed, noise=False).T + self.mean(rows[:, 1], rows[:, 0])
        return np.asarray(draws.reshape(n, *place.shape))

    def components(self, *_: Any) -> NoReturn:
        """Raises: only waves have frequencies."""
        raise ValueError(
            "this field is made of rows with neighbours, which have no frequencies: fit it with neighbours=0 for components "
            "and spectra."
        )

    frequencies = spectrum = components

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        regressor, regressor_tensors = pack(self.regressor.to_file())
        source, tensors = (None, {}) if self.source is None else self.source.state()
        header = {
            "mean": self.mean.kind,
            "rows": {"kernel": self.kernel, "meridian": self.meridian},
            "regressor": regressor,
            "source": source,
        }
        tensors = tensors | {f"regressor.{name}": tensor for name, tensor in regressor_tensors.items()}
        return header, tensors | self.mean.tensors()

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedRows:
        """From a file."""
        prefix = "regressor."
        parts = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        return cls(
            HarmonicGPRegressor.from_file(unpack(header["regressor"], parts)),
            MeanFunction.from_tensors(header["mean"], tensors),
            header["source"] and Source.from_state(header["source"], tensors, None),
            str(header["rows"]["kernel"]),
            float(header["rows"]["meridian"]),
        )


def fit_rows(rows: FieldRows, local: LocalModel, options: Options) -> tuple[FittedRows, dict[str, Any]]:
    """Condition the field on inducing points and neighbours, at a kernel that is known. Also gives further attributes.

    The kernel stays as near values have it: what held-out rows choose is the noise.
    """
    few = len(rows.y) <= EXACT
    regressor = HarmonicGPRegressor(
        kernel=local.kernel,
        symmetry=None,
        columns={0: "longitude", 1: "latitude"},
        n_inducing=options.n_inducing or ("auto" if few else INDUCING),
        neighbours=NEIGHBOURS if options.neighbours is None else options.neighbours,
        posterior=options.posterior,
        bound=options.bound,
        max_steps=0,
        calibration=None,
        dtype=options.dtype,
        device=options.device,
        random_state=options.random_state,
        progress=options.progress,
    )
    angle = np.deg2rad(rows.X[:, 0])
    meridian = float(np.rad2deg(np.arctan2(np.sin(angle).mean(), np.cos(angle).mean())))
    errors = None if rows.noise is None else np.sqrt(rows.noise)
    regressor.fit(from_meridian(rows.X, meridian), rows.y, noise_std=errors)
    return FittedRows(regressor, rows.mean, rows.source, local.name, meridian), {"kernels_": local.densities}
