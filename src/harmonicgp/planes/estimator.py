"""The estimator of fields in a region, on a plane or on the globe: fit a map with holes, predict it with error bars."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import gpytorch
import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from harmonicgp._validation import whole_number
from harmonicgp.globe import HarmonicGPGlobe
from harmonicgp.globe.estimator import KIND as GLOBE
from harmonicgp.globe.estimator import field_scores
from harmonicgp.io.container import ModelFileError, kind_of, read_container, write_container
from harmonicgp.planes.fitted import ExactField, GridField, fit_places
from harmonicgp.planes.frames import GridFrame
from harmonicgp.planes.learning import KERNELS, Given, learn
from harmonicgp.planes.maps import draw_region
from harmonicgp.planes.places import FieldData, FieldModel, Places
from harmonicgp.planes.reading import RegionData, read_region
from harmonicgp.planes.region import FittedPlane
from harmonicgp.planes.routes import choose_way
from harmonicgp.planes.trend import MEANS, Trend
from harmonicgp.tables.columns import Array

#: The kind and the version of a model file.
KIND, FORMAT = "field", 1
#: Fitted attributes that a file holds as plain values.
_PLAIN = (
    "way_", "notes_", "seconds_", "name_", "units_", "kernel_", "kernels_", "lengthscale_", "field_std_", "noise_std_",
    "std_error_", "clipped_",
)  # fmt: skip
#: Kilometres of an Earth radius, the unit of lengthscales on the globe.
_RADIUS = 6371.0


@dataclass(eq=False, repr=False)
class HarmonicGPField(BaseEstimator):
    """A Gaussian process for a field in a region, on a plane or on the globe: `fit` a map with holes, `predict` it everywhere.

    On a regular grid the model is the exact Gaussian process, by Fourier transforms. Scattered points are predicted from their
    nearest values. Up to 2,000 values are exact anywhere. Longitudes and latitudes that go around the globe are given to
    `HarmonicGPGlobe`. Missing cells are NaN.

    Args:
        kernel: "matern12", "matern32", "matern52", "rbf", "auto" (the one with the highest likelihood), or a stationary GPyTorch
            kernel, whose parameters are learned. Named kernels have a lengthscale for every axis.
        mean: "constant" or "linear" in the coordinates. Its coefficients, and those of covariates, are integrated out.
        by: the dimension, such as "time", whose slices are separate fields with shared hyper-parameters.
        coordinates: "auto" (names and CF attributes say what they are; arrays are planar), "geographic" or "plane".
        way: "plane", "globe", or "auto": by the extent of longitudes and latitudes.
        lengthscale: one number, or one for each axis: kilometres for longitudes and latitudes, else in units of the coordinates.
            None learns it.
        field_std: the standard deviation of the field, in units of the data; None learns it.
        noise_level: the standard deviation of the noise, in units of the data; None learns it.
        n_draws: draws of the posterior that give the error bars of large grids. `std_error_` is their error.
        random_state: a seed.
        progress: show a bar on a terminal.

    Attributes:
        way_: "plane" or "globe".
        notes_: the choices that were made and why, in words.
        kernel_: name of the kernel.
        kernels_: mean log density of a value given earlier ones, for each kernel that was tried.
        lengthscale_: by the name of the coordinate. On the globe one number in kilometres.
        field_std_: standard deviation of the field.
        noise_std_: standard deviation of the noise that was learned.
        std_error_: relative Monte-Carlo error of error bars; 0 if they are exact.
        clipped_: the share of the variance that draws miss since the spectrum on the torus was clipped.
        name_: name of the field, or None.
        units_: units of the field, or None.
        seconds_: duration of the fit.
        field_: the fitted plane, `FittedPlane`, or None.
        globe_: the fitted `HarmonicGPGlobe`, or None.

    Examples:
        >>> import numpy as np
        >>> rows, columns = np.mgrid[:20, :30]
        >>> scene = np.sin(rows / 4) + np.cos(columns / 5)
        >>> scene[5:10, 8:14] = np.nan  # a cloud
        >>> gp = HarmonicGPField(kernel="matern52", progress=False).fit(scene)
        >>> mean, std = gp.predict(return_std=True)
        >>> mean.shape, bool(abs(mean[7, 11] - np.sin(7 / 4) - np.cos(11 / 5)) < 0.2)
        ((20, 30), True)
    """

    kernel: Any = "auto"
    _: KW_ONLY
    mean: str = "constant"
    by: str | None = None
    coordinates: str = "auto"
    way: str = "auto"
    lengthscale: Any = None
    field_std: float | None = None
    noise_level: float | None = None
    n_draws: int = 24
    random_state: int = 0
    progress: bool = True

    # Fitting ----------------------------------------------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None, noise_std: Any = None) -> Self:
        """Fit a field.

        Args:
            data: a DataArray; a Dataset; a NumPy grid; or points, [n, axes] or a data frame with columns lon and lat, x and y, or
                easting and northing (and z, depth or time). Further columns are covariates.
            y: values of the points, or the name of the target in a Dataset, whose other variables are covariates.
            noise_std: known standard errors: one number, or one for each value. The learned noise is added.

        If a fit fails, the attributes of an earlier fit stay unchanged.
        """
        start = time.perf_counter()
        self._check()
        way = choose_way(data, y, self.by, self.coordinates, self.way)
        fit = self._fit_globe if way.name == "globe" else self._fit_plane
        attributes = fit(data, y, noise_std)
        attributes["notes_"] = [way.note, *attributes["notes_"]]
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        for name, value in (attributes | {"way_": way.name, "seconds_": time.perf_counter() - start}).items():
            setattr(self, name, value)
        return self

    def _check(self) -> None:
        """Raise a ValueError for a wrong argument."""
        choices = {"mean": MEANS, "coordinates": ("auto", "geographic", "plane"), "way": ("auto", "plane", "globe")}
        if isinstance(self.kernel, str):
            choices["kernel"] = ("auto", *KERNELS)
        elif not isinstance(self.kernel, gpytorch.kernels.Kernel):
            raise TypeError(f"kernel must be a name or a GPyTorch kernel; got {self.kernel!r}.")
        for name, values in choices.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}; got {getattr(self, name)!r}.")
        for name in ("field_std", "noise_level", "lengthscale"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value).all() and (np.asarray(value) > 0).all()):
                raise ValueError(f"{name} must be positive; got {value!r}.")
        whole_number(self.n_draws, "n_draws", 2)

    def _fit_globe(self, data: Any, y: Any, noise_std: Any) -> dict[str, Any]:
        if not isinstance(self.kernel, str):
            raise ValueError('kernels of your own are for the plane: give way="plane", or a kernel by name.')
        scale = None if self.lengthscale is None else float(np.max(self.lengthscale)) / _RADIUS
        globe = HarmonicGPGlobe(
            self.kernel, mean=self.mean, by=self.by, lengthscale=scale, field_std=self.field_std,
            noise_level=self.noise_level, random_state=self.random_state, progress=self.progress,
        ).fit(data, y, noise_std)  # fmt: skip
        return _globe_attributes(globe)

    def _fit_plane(self, data: Any, y: Any, noise_std: Any) -> dict[str, Any]:
        region = read_region(data, y, noise_std, self.by, self.coordinates)
        scale, trend, field_data = _model_data(region, self.mean)
        given = self._given(region, scale)
        with tqdm(desc="fit", unit=" steps", disable=None if self.progress else True, leave=False) as bar:
            learned = learn(field_data.field_rows(), self.kernel, given, self.random_state, bar.update)
            model = FieldModel(learned.kernel, learned.s2)
            field = fit_places(field_data, model, self.n_draws, self.random_state, bar.update)
        frames = (region.frame, None) if region.shape else (None, region.frame)
        fitted = FittedPlane(
            field, region.plane, trend, scale, region.names, frames[0], region.cells, self.coordinates, frames[1]
        )
        error, clipped = (field.error, field.clipped) if isinstance(field, GridField) else (0.0, 0.0)
        return {
            "notes_": [*region.notes, *_notes(field, self.n_draws)], "name_": region.name, "units_": region.units,
            "kernel_": learned.name, "kernels_": learned.densities, "lengthscale_": fitted.lengthscales(),
            "field_std_": scale * learned.variance**0.5, "noise_std_": scale * learned.s2**0.5, "std_error_": error,
            "clipped_": clipped, "field_": fitted, "globe_": None,
        }  # fmt: skip

    def _given(self, region: RegionData, scale: float) -> Given:
        """The hyper-parameters that the user gave, in model units."""
        lengthscale = None
        if self.lengthscale is not None:
            d = region.X.shape[1]
            numbers = np.asarray(self.lengthscale, np.float64)
            if numbers.ndim and numbers.shape != (d,):
                raise ValueError(f"lengthscale must be one number or {d}, one for each axis; got {self.lengthscale!r}.")
            lengthscale = torch.from_numpy(np.broadcast_to(numbers, (d,)).copy())
        variances = [None if v is None else (v / scale) ** 2 for v in (self.field_std, self.noise_level)]
        return Given(lengthscale, *variances)

    # Predictions ------------------------------------------------------------------------------------------------------

    def predict(self, where: Any = None, return_std: bool = False) -> Any:
        """The mean of the data, and the standard deviation of a new observation, noise included.

        Args:
            where: a DataArray or Dataset with the coordinates of the fit, or a tuple of axes; the results are DataArrays. Or
                points, an array or a data frame; the results are arrays. None is the fitted grid, or the fitted points.
            return_std: return (mean, std).
        """
        return self._predict(where, return_std, noise=True)

    def predict_f(self, where: Any = None, return_std: bool = False) -> Any:
        """As `predict`, for the field itself, without noise."""
        return self._predict(where, return_std, noise=False)

    def _predict(self, where: Any, return_std: bool, noise: bool) -> Any:
        check_is_fitted(self, "way_")
        if self.globe_ is not None:
            call = self.globe_.predict if noise else self.globe_.predict_f
            return call(_globe_place(where), return_std)
        mean, variance, frame = self.field_.moments(where)
        std = np.sqrt(variance + (self.noise_std_**2 if noise else 0.0))
        words = "standard deviation of a new observation" if noise else "standard deviation of the field"
        named = self._labelled(mean, frame, self.name_, "posterior mean")
        if not return_std:
            return named
        return named, self._labelled(std, frame, None if self.name_ is None else f"{self.name_}_std", words)

    def _labelled(self, values: Array, frame: GridFrame | None, name: str | None, words: str, first: Any = None) -> Any:
        if frame is None:
            return values[..., 0, :] if values.shape[-2] == 1 else values
        attrs = {"long_name": words} | ({"units": self.units_} if self.units_ else {})
        return frame.labelled(values, name, attrs, first)

    def sample(self, where: Any = None, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Samples of the posterior without noise (conditional simulations), with a first dimension `sample`."""
        check_is_fitted(self, "way_")
        n = whole_number(n_samples, "n_samples", 1)
        seed = self.random_state if random_state is None else random_state
        if self.globe_ is not None:
            return self.globe_.sample(_globe_place(where), n, seed)
        draws, frame = self.field_.samples(where, n, seed)
        return self._labelled(draws, frame, self.name_, "posterior samples", ("sample", np.arange(n)))

    def fill(self, data: Any) -> Any:
        """The data with the missing cells filled by the mean."""
        mean = self.predict(data if hasattr(data, "dims") else None)
        if hasattr(data, "data_vars"):
            data = data[self.name_]
        if hasattr(data, "dims"):
            filled = data.where(np.isfinite(data), mean)
            filled.attrs = dict(data.attrs)
            return filled
        return np.where(np.isfinite(data), data, mean)

    def scores(self, data: Any, y: Any = None) -> dict[str, float]:
        """RMSE, NLL and coverage of 95 % intervals on other data: a grid with values, or points with y."""
        check_is_fitted(self, "way_")
        if self.globe_ is not None:
            return self.globe_.scores(data, y)
        mean, std = self.predict(data if y is not None or hasattr(data, "dims") else None, return_std=True)
        if hasattr(data, "data_vars"):
            data = data[self.name_]
        values = data if y is None else y
        mean, std, values = (
            np.asarray(part.transpose(*mean.dims) if hasattr(part, "dims") else part, float)
            for part in (mean, std, values)
        )
        some = np.isfinite(values)
        found = field_scores(mean[some], std[some] ** 2, values[some], np.ones(int(some.sum())))
        return {name: value for name, value in found.items() if not name.endswith("_by_area")}

    def score(self, data: Any, y: Any = None) -> float:
        """The mean log density of other data per value."""
        return -self.scores(data, y)["nll"]

    def plot(self, path: str | Path) -> None:
        """Write a PNG: the data with their holes, the mean, the error bar and a sample; the first of several slices."""
        check_is_fitted(self, "way_")
        if self.globe_ is not None:
            self.globe_.plot(path)
            return
        draw_region(path, self.field_, self.name_ or "field", self.units_ or "", self.random_state)

    # Files ------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all. It holds the data. On the globe it is a file of `HarmonicGPGlobe`."""
        check_is_fitted(self, "way_")
        if self.globe_ is not None:
            self.globe_.save(path)
            return
        header, tensors = self.field_.state()
        arguments = self.get_params(deep=False)
        if not isinstance(self.kernel, str):
            arguments["kernel"] = None  # the fitted kernel is that of the model
        if self.lengthscale is not None:
            arguments["lengthscale"] = np.asarray(self.lengthscale, float).tolist()
        header |= {"arguments": arguments, "plain": {name: getattr(self, name) for name in _PLAIN}}
        write_container(Path(path), KIND, FORMAT, header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote."""
        if kind_of(path) == GLOBE:
            gp = cls()
            for name, value in (_globe_attributes(HarmonicGPGlobe.load(path)) | {"way_": "globe"}).items():
                setattr(gp, name, value)
            return gp
        container = read_container(Path(path), KIND, FORMAT)
        try:
            return cls._from_file(container.header, container.tensors)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
            reason = " ".join(f"{error!r}".split())
            raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error

    @classmethod
    def _from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        field = FittedPlane.from_state(header, tensors)
        plain, arguments = header["plain"], dict(header["arguments"])
        if set(plain) != set(_PLAIN):
            raise ValueError("attributes that are not those of a field")
        numbers = [plain[name] for name in ("field_std_", "noise_std_", "std_error_", "clipped_", "seconds_")]
        if not np.isfinite(numbers).all() or min(numbers) < 0:
            raise ValueError("numbers of a field that are not finite")
        if arguments["kernel"] is None:
            arguments["kernel"] = field.field.model.kernel
        gp = cls(**arguments)
        gp._check()
        for name, value in (plain | {"field_": field, "globe_": None}).items():
            setattr(gp, name, value)
        return gp


def _model_data(region: RegionData, mean: str) -> tuple[float, Trend, FieldData]:
    """The scale of the values, the mean function, and the data in model units."""
    present = np.isfinite(region.values)
    observed = region.values[present]
    largest = float(np.abs(observed).max())
    if largest > 1e150 or 0 < largest < 1e-150:
        raise ValueError(f"the values reach {largest:.3g}: divide or multiply them by a constant.")
    spread = float(observed.std())
    scale = spread if spread > 1e-12 * largest else (largest or 1.0)
    any_field = present.any(0)
    if region.noise is not None and not np.isfinite(region.noise[present]).all():
        raise ValueError("noise_std must be a number wherever the data have a value.")
    trend = Trend.of(mean, region.X[any_field], region.covariates[any_field])
    places = Places(
        torch.from_numpy(region.X), trend.basis(region.X, region.covariates), region.shape, region.steps
    )  # fmt: skip
    noise = None if region.noise is None else torch.from_numpy(region.noise / scale**2)
    return scale, trend, _scattered(FieldData(places, torch.from_numpy(region.values / scale), noise))


def _scattered(data: FieldData) -> FieldData:
    """Cells of an irregular grid without those that are missing."""
    if data.places.shape is not None:
        return data
    present = torch.isfinite(data.y)
    if not torch.equal(present.any(0), present.all(0)):
        raise ValueError(
            "slices on an unevenly spaced grid must have the same missing cells: fit them one by one, or interpolate the "
            "coordinates to an even spacing."
        )
    rows = present[0].nonzero()[:, 0]
    noise = None if data.noise is None else data.noise[:, rows]
    return FieldData(data.places.part(rows), data.y[:, rows], noise)


def _notes(field: Any, n_draws: int) -> list[str]:
    """What was computed, in words."""
    n = int(torch.isfinite(field.data.y).sum())
    if isinstance(field, ExactField):
        return [f"{n:,} values: exact, error bars included."]
    if isinstance(field, GridField):
        note = f"a grid with {n:,} values: the mean is exact; error bars come from {n_draws} draws, to {100 * field.error:.1f} %."
        clipped = (
            f"error bars and samples miss {100 * field.clipped:.2g} % of the variance: the torus had to be clipped."
        )
        slow = (
            f"conjugate gradients stopped at a residual of {field.residual:.1g}: the kernel is smooth for this noise."
        )
        return [note, *([clipped] if field.clipped > 1e-4 else []), *([slow] if field.residual > 1e-4 else [])]
    return [f"{n:,} scattered points: predictions use the nearest values."]


def _globe_attributes(globe: HarmonicGPGlobe) -> dict[str, Any]:
    """Attributes of a field that has taken the globe's way."""
    scale = getattr(globe, "lengthscale_", None)
    return {
        "globe_": globe, "field_": None, "notes_": list(globe.notes_), "name_": globe.name_, "units_": globe.units_,
        "kernel_": globe.kernel_, "kernels_": getattr(globe, "kernels_", {}), "noise_std_": globe.noise_std_,
        "lengthscale_": None if scale is None else _RADIUS * scale, "field_std_": getattr(globe, "field_std_", None),
        "std_error_": 0.0, "clipped_": 0.0, "seconds_": globe.seconds_,
    }  # fmt: skip


def _globe_place(where: Any) -> Any:
    """Points of a data frame for the globe."""
    return where if not hasattr(where, "columns") else read_points_frame(where)


def read_points_frame(frame: Any) -> Array:
    """Longitude and latitude of a data frame, [n, 2]."""
    columns = {str(column).lower()[:3]: column for column in frame.columns}
    return np.asarray(frame[[columns["lon"], columns["lat"]]], np.float64)
