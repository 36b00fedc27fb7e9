"""The estimator of fields on the globe: fit a map with missing cells, predict it anywhere with error bars."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.globe import maps
from harmonicgp.globe.cells import CellTable, split_dataset
from harmonicgp.globe.fields import Points
from harmonicgp.globe.fitted_cells import FittedCells
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.fitted_rows import FittedRows
from harmonicgp.globe.grids import GridAxes, GridData, read_grid, to_dataarray
from harmonicgp.globe.options import Options
from harmonicgp.globe.reading import are_points, check_points, check_values, read
from harmonicgp.globe.routes import FittedField, fit_field
from harmonicgp.io.container import UNREADABLE, ModelFileError, read_container, write_container
from harmonicgp.io.fields import has_type
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.tables.columns import Array

#: The kind and the version of a model file.
KIND, FORMAT = "globe", 1
#: Waves that miss more than this share of the variance give no error bars unless asked.
LARGEST_MISSED = 0.05
WAYS_OUT = "Use HarmonicGPField for a region, neighbours=40, or larger n_inducing=, t_max= or memory=."
#: Fitted attributes that a file holds as plain values, with their types where others would do harm.
_PLAIN: dict[str, Any] = dict.fromkeys(
    ("seconds_", "history_", "kernels_", "elbo_", "lengthscale_", "field_std_", "n_features_", "residual_share_"), Any
) | {
    "notes_": list[str], "name_": str | None, "units_": str | None, "noise_std_": float, "n_inducing_": int | None,
    "t_max_": int | None, "kernel_": str | None,
}  # fmt: skip


@dataclass(eq=False, repr=False)
class HarmonicGPGlobe(BaseEstimator):
    """A Gaussian process on the globe, in closed form along every parallel: `fit` a map, `predict` it with error bars.

    The model has the frequencies of the longitude up to `t_max`, each with `n_inducing` latitudes, so a row of a grid costs as
    much as a point. Missing cells are NaN. Lengthscale, variance and noise are learned unless you give them.

    Further dimensions (time, depth) and covariates become inputs. The cells are then rows of a `HarmonicGPRegressor` with a globe
    kernel times a kernel of the other inputs (`regressor_`). It does not use `t_max`, `memory` and the numbers of evaluations.

    Args:
        kernel: "rbf", "matern12", "matern32" or "matern52" of the straight-line distance, or "auto": the kernel with the highest
            bound (waves) or the best predictions from nearest values (neighbours). Matern waves need evenly spaced longitudes.
        n_inducing: number of inducing latitudes; "auto": the fewest that leave a small residual, within `memory`.
        t_max: the highest frequency of the longitude; "auto": as for `n_inducing`.
        mean: "constant", "linear" (in the coordinates of the sphere), or a DataArray with a field.
        neighbours: how many of the nearest values correct a prediction. "auto": only waves if they can resolve the field;
            otherwise (a fine grid over a region, many scattered points) inducing points and 40 neighbours. 0: only waves. A model
            with neighbours stores its data, also in its file.
        by: the dimension, such as "time", whose slices are separate maps with shared hyper-parameters.
        lengthscale: in Earth radii; None learns it.
        field_std: the standard deviation of the field, in units of the data; None learns it.
        noise_level: the standard deviation of the noise, in units of the data; None learns it.
        posterior: "block": frequencies are independent, and error bars nearly equal along a parallel; "joint": error bars are
            wider in holes; "auto": joint if rows are observed unevenly.
        n_draws: samples of the joint posterior that estimate its variances; exact up to 2,048 features.
        bound: "tight" or "elbo".
        max_evaluations: evaluations of the bound in learning, on strips of latitudes.
        full_evaluations: further evaluations on all rows at the end.
        memory: bytes that the model may use.
        dtype: "float32" or "float64", of the features; "auto" is float64 if they are few.
        device: "cpu", "cuda", or "auto": CUDA if there is one. CUDA is untested.
        error_bars: "checked" refuses error bars where the features miss more than 5 % of the variance (`missed_`); "always" gives
            them.
        random_state: a seed.
        progress: show a bar on a terminal.

    Attributes:
        inputs_: names of the inputs.
        axes_: longitudes and latitudes of the fitted grid; None for points.
        order_: number of longitudes of the lattice around the globe that the grid lies on, or None.
        name_: name of the field, or None.
        units_: units of the field, or None.
        notes_: remarks on the data and the fit, in words.
        seconds_: duration of the fit.
        elbo_: the bound per value.
        kernel_: name of the kernel.
        noise_std_: standard deviation of the noise.
        n_inducing_: number of inducing latitudes, or of inducing points with further inputs.
        n_features_: number of features.
        neighbours_: how many values correct a prediction; 0 without neighbours.
        field_: the fitted field, `FittedMaps`, `FittedRows` or `FittedCells`.
        regressor_: the regressor of a field with neighbours or with further inputs; None for waves.
        slices_: coordinates of the slices, or None. This and all following attributes are not set with further inputs.
        lengthscale_: in Earth radii.
        field_std_: standard deviation of the field.
        kernels_: the bound of each kernel that was tried, or the mean log density of a value given its nearest values.
        model_: the hyper-parameters in model units. This and all following attributes are set for waves only.
        t_max_: the highest frequency.
        history_: one record for each evaluation of the bound.
        residual_share_: the mean residual variance of the features, as a share of the noise.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack((rng.uniform(-180, 180, 400), rng.uniform(-90, 90, 400)))  # longitude, latitude
        >>> gp = HarmonicGPGlobe(kernel="rbf", t_max=4, n_inducing=8, max_evaluations=5).fit(
        ...     X, np.sin(np.deg2rad(X[:, 1]))
        ... )
        >>> mean, std = gp.predict(X[:3], return_std=True)
        >>> mean.shape
        (3,)
    """

    kernel: str = "auto"
    _: KW_ONLY
    n_inducing: int | str = "auto"
    t_max: int | str = "auto"
    mean: Any = "constant"
    neighbours: int | str = "auto"
    by: str | None = None
    lengthscale: float | None = None
    field_std: float | None = None
    noise_level: float | None = None
    posterior: str = "auto"
    n_draws: int = 64
    bound: Bound = "tight"
    max_evaluations: int = 40
    full_evaluations: int = 2
    memory: float = 7e9
    dtype: str = "auto"
    device: str = "cpu"
    error_bars: str = "checked"
    random_state: int = 0
    progress: bool = True

    # Fitting ----------------------------------------------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None, noise_std: Any = None) -> Self:
        """Fit a DataArray with longitudes and latitudes, or points: `fit(X, y)` with columns longitude, latitude.

        Args:
            data: a DataArray, a Dataset, or points [n, 2].
            y: values of the points, or the name of the target in a Dataset, whose other variables are covariates.
            noise_std: known standard errors of the cells or points, in the shape of the data; the learned noise is added.

        If a fit fails, the attributes of an earlier fit stay unchanged.
        """
        start = time.perf_counter()
        options = Options.of(self.get_params(deep=False))
        values = read(data, y, noise_std, options.by)
        field, attributes = fit_field(values, options)
        grid = values.grid if isinstance(values, CellTable) else values
        name, units, axes = (None, None, None) if isinstance(grid, Points) else (grid.name, grid.units, grid.axes)
        attributes |= {"name_": name, "units_": units, "seconds_": time.perf_counter() - start}
        self._assign(field, axes, attributes)
        if self.missed_ > LARGEST_MISSED:
            warnings.warn(f"{missed_words(self.missed_)} {WAYS_OUT}", stacklevel=2)
        return self

    def _assign(self, field: FittedField, axes: GridAxes | None, attributes: dict[str, Any]) -> None:
        """Set all fitted attributes, and remove those of an earlier fit that this one does not have."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        order = None if axes is None else axes.order
        values = attributes | field.attributes() | {"field_": field, "axes_": axes, "order_": order}
        for name, value in values.items():
            setattr(self, name, value)

    # Predictions ------------------------------------------------------------------------------------------------------

    def _fitted(self) -> FittedField:
        check_is_fitted(self, "field_")
        field: FittedField = self.field_
        return field

    @property
    def missed_(self) -> float:
        """The share of the variance that the frequencies and inducing latitudes of waves miss; 0 without waves."""
        if not isinstance(self._fitted(), FittedMaps):
            return 0.0
        noise = self.noise_std_**2
        return float(self.residual_share_ * noise / (self.field_std_**2 + noise))

    @property
    def inputs_(self) -> list[str]:
        """Names of the inputs: longitude and latitude, further dimensions, covariates."""
        return self._fitted().inputs

    def predict(self, where: Any = None, return_std: bool = False) -> Any:
        """The mean of the data, and the standard deviation of a new observation, noise included.

        Args:
            where: a DataArray or Dataset with longitudes and latitudes, or a pair of axes (longitudes, latitudes); the results
                are DataArrays. Or points [n, 2], longitude and latitude; the results are arrays [n]. None is the fitted grid.
                Further dimensions and covariates of the fit are needed too (times of points are days since the start of 2000).
            return_std: return (mean, std).
        """
        return self._predict(where, return_std, noise=True)

    def predict_f(self, where: Any = None, return_std: bool = False) -> Any:
        """As `predict`, for the field itself, without noise."""
        return self._predict(where, return_std, noise=False)

    def _predict(self, where: Any, return_std: bool, noise: bool) -> Any:
        field = self._fitted()
        if return_std and self.error_bars == "checked" and self.missed_ > LARGEST_MISSED:
            raise ValueError(f'{missed_words(self.missed_)} {WAYS_OUT} error_bars="always" gives these error bars.')
        place = None if are_points(where) else field.place(where)
        mean, variance = field.at_points(where, return_std) if place is None else field.on_grid(place, return_std)
        std = None if variance is None else np.sqrt(variance + (field.noise_std**2 if noise else 0.0))
        if place is None:
            return mean if std is None else (mean, std)
        named = place.labelled(mean, self.name_, self.units_, "posterior mean")
        if std is None:
            return named
        long_name = "standard deviation of a new observation" if noise else "standard deviation of the field"
        name = None if self.name_ is None else f"{self.name_}_std"
        return named, place.labelled(std, name, self.units_, long_name)

    def sample(self, where: Any = None, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Samples of the posterior, without noise: a DataArray with a first dimension `sample`."""
        field = self._fitted()
        n = whole_number(n_samples, "n_samples", 1)
        place = field.place(where)
        draws = field.samples(place, n, self.random_state if random_state is None else random_state)
        return place.labelled(draws, self.name_, self.units_, "posterior samples", ("sample", np.arange(n)))

    def fill(self, data: Any) -> Any:
        """The data with the missing cells filled by the mean of the model; for a Dataset, the fitted variable."""
        target, grid, mean, _ = self._predict_again(data, False, "the data to fill")
        assert grid.template is not None
        filled = target.where(np.isfinite(target), to_dataarray(mean, grid.template))
        filled.attrs = dict(target.attrs)
        return filled

    def components(self, where: Any = None, frequencies: Sequence[int] | None = None) -> Any:
        """The mean of single frequencies of the longitude: a DataArray with a first dimension `frequency`.

        `frequencies` are 0 to 8 by default, or to `t_max_` if that is smaller. The sum of all components and the mean function
        is `predict`.
        """
        field = self._fitted_waves()
        numbers = field.frequencies(frequencies)
        place = field.place(where)
        parts, first = field.components(place, numbers), ("frequency", np.array(numbers))
        return place.labelled(parts, self.name_, self.units_, "harmonics of the longitude", first)

    def spectrum(self, latitudes: Array | None = None) -> Array:
        """The power of the mean at each frequency of the longitude, averaged over the globe, [t_max + 1] (slices first)."""
        return self._fitted_waves().spectrum(latitudes)

    def _fitted_waves(self) -> FittedMaps:
        """The fitted field, if it is made of waves: only those have frequencies."""
        field = self._fitted()
        if not isinstance(field, FittedMaps):
            raise ValueError(
                f"only maps of waves have frequencies; this field is a regression on {', '.join(field.inputs)}. Fit one map, or "
                "slices by=..., with neighbours=0 for components and spectra."
            )
        return field

    # Scores and pictures ----------------------------------------------------------------------------------------------

    def scores(self, data: Any, y: Any = None) -> dict[str, float]:
        """RMSE, NLL and 95 % coverage on other data; names with `_by_area` weight cells by area (cos of the latitude)."""
        field = self._fitted()
        if y is None:
            _, grid, mean, variance = self._predict_again(data, True, "the data")
            values, latitudes = grid.values, grid.axes.latitudes[:, None]
        else:
            mean, variance = field.at_points(data, True)
            points = check_points(data, field.inputs)
            values, latitudes = np.broadcast_to(check_values(y, len(points)), mean.shape), points[:, 1]
        assert variance is not None
        present = np.isfinite(values) & np.isfinite(mean)
        weights = np.broadcast_to(np.cos(np.deg2rad(latitudes)), mean.shape)[present]
        return field_scores(mean[present], variance[present] + field.noise_std**2, values[present], weights)

    def score(self, data: Any, y: Any = None) -> float:
        """The mean log density of other data per value."""
        return -self.scores(data, y)["nll"]

    def _predict_again(self, data: Any, return_std: bool, subject: str) -> tuple[Any, GridData, Array, Array | None]:
        """The fitted variable of other data, as DataArray and as grid, and the mean and variance at its cells."""
        field = self._fitted()
        target = split_dataset(data, self.name_)[0] if hasattr(data, "data_vars") else data
        grid = read_grid(target)
        mean, variance = field.on_grid(field.place(data, target), return_std)
        if mean.shape != grid.values.shape:
            raise ValueError(
                f"{subject} have {len(grid.values)} maps, the model has {len(mean)}: give the data the coordinates of its slices."
            )
        return target, grid, mean, variance

    def plot(self, path: str | Path, where: Any = None) -> None:
        """Write a PNG with maps of the mean and its error bar; for waves also NAME-spectrum.png with the zonal spectrum.

        Only the first of several slices is drawn.
        """
        field = self._fitted()
        place = field.place(where)
        mean, variance = field.on_grid(place, True)
        assert variance is not None
        units, name = self.units_ or "", self.name_ or "field"
        first = "" if len(mean) == 1 else ", the first slice"
        low, high = np.nanquantile(mean[0], (0.005, 0.995))
        kind: Literal["signed", "positive"] = "signed" if low < 0 < high else "positive"  # such as kelvins
        panels = [
            maps.Panel(f"{name}: mean{first}", mean[0], kind, units),
            maps.Panel("error bar (standard deviation of the field)", np.sqrt(variance[0]), "positive", units),
        ]
        maps.draw_maps(path, place.axes.longitudes, place.axes.latitudes, panels)
        if isinstance(field, FittedMaps):
            power = np.atleast_2d(field.spectrum(place.axes.latitudes))[0]
            file = Path(path)
            maps.draw_spectrum(file.with_name(f"{file.stem}-spectrum.png"), power)

    # Files ------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all. Loading computes the covariance of maps again."""
        header, tensors = self._fitted().state()
        arguments = self.get_params(deep=False)
        if not isinstance(self.mean, str):
            arguments["mean"] = "constant"  # the field itself is among the tensors
        plain = {name: getattr(self, name) for name in _PLAIN if hasattr(self, name)}
        header |= {"arguments": arguments, "order": self.order_, "plain": plain}
        for name in ("latitudes", "longitudes") if self.axes_ is not None else ():
            tensors[f"axes.{name}"] = torch.from_numpy(np.ascontiguousarray(getattr(self.axes_, name)))
        write_container(Path(path), KIND, FORMAT, header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote."""
        container = read_container(Path(path), KIND, FORMAT)
        try:
            return cls._from_file(container.header, container.tensors)
        except UNREADABLE as error:
            reason = " ".join(f"{error!r}".split())
            raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error

    @classmethod
    def _from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        options, axes, plain = Options.of(header["arguments"]), None, dict(header["plain"])
        wrong = [name for name, value in plain.items() if not has_type(value, _PLAIN[name])]
        if wrong:
            raise TypeError(", ".join(wrong))
        if "axes.latitudes" in tensors:
            latitudes, longitudes = (tensors[f"axes.{name}"].numpy() for name in ("latitudes", "longitudes"))
            axes = GridAxes(latitudes, longitudes, header["order"])
        field: FittedField
        if "cells" in header:
            field = FittedCells.from_state(header, tensors)
        elif "rows" in header:
            field = FittedRows.from_state(header, tensors)
        else:
            field = FittedMaps.from_state(header, tensors, options)
        if isinstance(field, FittedMaps) and not math.isclose(
            float(plain["noise_std_"]), field.noise_std, rel_tol=1e-6
        ):
            raise ValueError(f"the noise is {plain['noise_std_']} in the header and {field.noise_std} in the model")
        gp = cls(**({"error_bars": "always"} | header["arguments"]))  # files of earlier versions give them
        gp._assign(field, axes, plain)
        return gp


def missed_words(share: float) -> str:
    """That waves miss a share of the variance."""
    return f"the waves miss {100 * share:.0f} % of the variance of the field, so its error bars say little about it."


def field_scores(mean: Array, variance: Array, y: Array, weights: Array) -> dict[str, float]:
    """RMSE, NLL and coverage of 95 % intervals; names with `_by_area` weight cells by `weights`."""
    if not y.size:
        raise ValueError("no cell has both a value and a prediction: there is nothing to score.")
    error = (y - mean) ** 2
    nll = 0.5 * (np.log(2 * np.pi * variance) + error / variance)
    inside = error <= 1.959963984540054**2 * variance
    scores = {}
    for suffix, weight in (("", None), ("_by_area", weights)):
        scores[f"rmse{suffix}"] = float(np.sqrt(np.average(error, weights=weight)))
        scores[f"nll{suffix}"] = float(np.average(nll, weights=weight))
        scores[f"coverage{suffix}"] = float(np.average(inside, weights=weight))
    return scores
