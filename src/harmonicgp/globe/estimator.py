"""Fields on the globe: fit a map with holes, predict it anywhere, with error bars."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.backend.memory import memory_kept
from harmonicgp.globe.cells import CellTable, split_dataset
from harmonicgp.globe.closed_form import coupling, field_closed_form, joint_draws
from harmonicgp.globe.data import (
    MAX_UNEVEN,
    MeanFunction,
    Source,
    checked_points,
    checked_values,
    extent_of,
    fields_of,
    known_variances,
    spread,
)
from harmonicgp.globe.fields import Field, FieldPosterior, Parallels
from harmonicgp.globe.fitting_cells import FitsCells
from harmonicgp.globe.grids import GridAxes, GridData, grid_from_points, read_grid
from harmonicgp.globe.learning import (
    BASES,
    GlobeModel,
    Learned,
    few,
    first_guess,
    largest_sizes,
    learn,
    smallest_sizes,
)
from harmonicgp.globe.patches import PatchesLearned, field_patches, learn_patches, patches
from harmonicgp.globe.points import Points, most_features, points_draws, points_statistics, span
from harmonicgp.globe.predicting import PredictsFields
from harmonicgp.globe.prediction import FieldPredictor
from harmonicgp.globe.saving import SavedField
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.tables.inputs import Array

#: Rows whose precision has no harmonic above this share are observed evenly: independent frequencies say it all.
EVEN = 0.1
#: Numbers of features up to which they are kept in float64.
FEW = 20_000_000
#: A residual of this share of the noise is worth a note.
MUCH = 0.5


class HarmonicGPGlobe(SavedField, FitsCells, PredictsFields):
    """A Gaussian process on the globe, in closed form along every parallel: `fit` a map, `predict` it with error bars.

    Frequencies of the longitude up to `t_max`, each with `n_inducing` latitudes: a grid of millions of cells costs its rows.
    Missing cells are NaN. Lengthscale, variance and noise are learned from the bound unless given.

    Further dimensions (time, depth) and covariates become inputs: the cells are then rows of a `HarmonicGPRegressor` with a globe
    kernel times one of the rest (`regressor_`), whose own choices take the place of `t_max`, `memory` and the evaluations.

    Args:
        kernel: "rbf", "matern32", "matern52" of the straight-line distance, or "auto": the one of the highest bound. Matern
            kernels need evenly spaced longitudes.
        n_inducing: inducing latitudes; "auto": the fewest that leave little, within `memory`.
        t_max: the highest frequency of the longitude; "auto" likewise.
        mean: "constant", "linear" (in the coordinates of the sphere), or a DataArray with a field of your own.
        by: the dimension, such as "time", whose slices are maps of their own with shared hyper-parameters.
        lengthscale: in Earth radii; None learns it.
        field_std: the standard deviation of the field, in units of the data; None learns it.
        noise_level: the standard deviation of the noise, in units of the data; None learns it.
        posterior: "block": frequencies are independent, and error bars nearly the same all along a parallel; "joint": they know
            where the holes are; "auto": joint where rows are observed unevenly.
        n_draws: of the joint posterior, from which its variances are estimated; exact up to 2,048 features.
        bound: "tight" or "elbo".
        max_evaluations: of the bound in learning, on strips of latitudes.
        full_evaluations: and on all rows at the end.
        memory: bytes that the model may take.
        dtype: "float32" or "float64", of the features; "auto" is float64 where they are few.
        random_state: a seed.
        progress: a bar, on a terminal.

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

    def __init__(
        self,
        kernel: str = "auto",
        *,
        n_inducing: int | str = "auto",
        t_max: int | str = "auto",
        mean: Any = "constant",
        by: str | None = None,
        lengthscale: float | None = None,
        field_std: float | None = None,
        noise_level: float | None = None,
        posterior: str = "auto",
        n_draws: int = 64,
        bound: Bound = "tight",
        max_evaluations: int = 40,
        full_evaluations: int = 2,
        memory: float = 7e9,
        dtype: str = "auto",
        random_state: int = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.t_max = t_max
        self.mean = mean
        self.by = by
        self.lengthscale = lengthscale
        self.field_std = field_std
        self.noise_level = noise_level
        self.posterior = posterior
        self.n_draws = n_draws
        self.bound = bound
        self.max_evaluations = max_evaluations
        self.full_evaluations = full_evaluations
        self.memory = memory
        self.dtype = dtype
        self.random_state = random_state
        self.progress = progress

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None, noise_std: Any = None) -> Self:
        """Fit a DataArray with longitudes and latitudes, or points: `fit(X, y)` with columns longitude, latitude.

        Of a Dataset y is the name of the variable; all others are covariates. `noise_std`: known standard errors of the cells or
        points, like the data, on top of which noise is learned.
        """
        before = dict(vars(self))
        for name in before.keys() - self.get_params(deep=False).keys():
            delattr(self, name)
        try:
            return self._fit(data, y, noise_std)
        except BaseException:  # an earlier fit stays as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, data: Any, y: Any, noise_std: Any) -> Self:
        start = time.perf_counter()
        self._check_arguments()
        self._cells, self.regressor_, self._frame = None, None, None
        self._sites: list[tuple[Tensor, Tensor]] = []
        covariates: dict[str, Any] = {}
        if hasattr(data, "data_vars"):
            (data, covariates), y = split_dataset(data, y), None
        if y is None and (covariates or self._has_inputs(data)):
            self._fit_cells(CellTable.of(data, covariates), data, noise_std)
            self.seconds_ = time.perf_counter() - start
            return self
        grid, points, errors = self._read(data, y, noise_std)
        self.notes_: list[str] = list(grid.notes) if grid is not None else []
        with memory_kept(), tqdm(total=100, desc="fit", disable=None if self.progress else True, leave=False) as bar:
            if grid is not None:
                self._fit_grid(grid, errors, bar)
            else:
                assert points is not None
                self._fit_points(*points, errors, bar)
        self.seconds_ = time.perf_counter() - start
        return self

    def _check_arguments(self) -> None:
        if self.kernel != "auto" and self.kernel not in BASES:
            raise ValueError(f'kernel must be "auto" or one of {", ".join(BASES)}; got {self.kernel!r}.')
        for name in ("n_inducing", "t_max"):
            value, least = getattr(self, name), int(name == "n_inducing")
            if value != "auto" and not _is_whole(value, least):
                raise ValueError(f'{name} must be "auto" or a whole number of at least {least}; got {value!r}.')
        for name in ("lengthscale", "field_std", "noise_level", "memory"):
            value = getattr(self, name)
            good = isinstance(value, int | float | np.number) and math.isfinite(value) and value > 0
            if not good and (value is not None or name == "memory"):
                raise ValueError(f"{name} must be a positive number; got {value!r}.")
        if self.by is not None and not isinstance(self.by, str):
            raise ValueError(f"by must be the name of a dimension; got {self.by!r}.")
        if self.posterior not in ("auto", "block", "joint"):
            raise ValueError(f'posterior must be "auto", "block" or "joint"; got {self.posterior!r}.')
        for name, least in (("max_evaluations", 1), ("full_evaluations", 0), ("n_draws", 2)):
            if not _is_whole(getattr(self, name), least):
                raise ValueError(f"{name} must be a whole number of at least {least}; got {getattr(self, name)!r}.")
        if self.dtype not in ("auto", "float32", "float64"):
            raise ValueError(f'dtype must be "auto", "float32" or "float64"; got {self.dtype!r}.')
        if self.bound not in ("tight", "elbo"):
            raise ValueError(f'bound must be "tight" or "elbo"; got {self.bound!r}.')

    def _read(
        self, data: Any, y: Any, noise_std: Any
    ) -> tuple[GridData | None, tuple[Array, Array, Array] | None, Array | None]:
        """A grid, or points (longitude, latitude, y), and known variances of the noise."""
        if y is None:
            grid = read_grid(data)
            self.axes_ = grid.axes
            self.name_, self.units_ = grid.name, grid.units
            self._source = Source.of(grid, data, self.by)
            return grid, None, None if noise_std is None else known_variances(noise_std, data)
        X = checked_points(data)
        y = checked_values(y, len(X))
        if self.by is not None:
            raise ValueError("by= takes slices of a DataArray; points have none.")
        errors = None if noise_std is None else known_variances(noise_std, y)
        self.name_, self.units_, self._source = None, None, None
        found = grid_from_points(X[:, 0], X[:, 1], y, errors)
        if found is not None:
            self.axes_ = found.axes
            return found, None, None if found.noise is None else found.noise[None]
        self.axes_ = None
        return None, (X[:, 0], X[:, 1], y), errors

    def _fit_grid(self, grid: GridData, errors: Array | None, bar: Any) -> None:
        axes, values = grid.axes, grid.values
        places = axes.latitudes[:, None], axes.longitudes[None, :]
        self._mean = MeanFunction.of(self.mean, *places, values)
        values = values - self._mean(*places)
        present = np.isfinite(values)
        if present.sum() < 3:
            raise ValueError(f"{present.sum()} cells have a value: at least three are needed.")
        self._scale = spread(values)
        fields = fields_of(axes, values / self._scale, None if errors is None else errors / self._scale**2)
        largest = max((field for _, field in fields), key=lambda field: field.n_cells)
        self.order_ = axes.order
        model = self._start(largest, axes)
        self.model_, self.history_, self.kernels_ = self._learned(model, [field for _, field in fields], bar)
        self._conclude(fields, bar)

    def _start(self, field: Field, axes: GridAxes) -> GlobeModel:
        order = axes.order
        south, north = extent_of(axes)
        columns = axes.order or MAX_UNEVEN
        m, t = largest_sizes(len(field.latitudes), columns, north - south, self.memory)
        m = m if self.n_inducing == "auto" else int(self.n_inducing)
        t = t if self.t_max == "auto" else int(self.t_max)
        if order is not None and t > order // 2:
            raise ValueError(f"{order} longitudes have the frequencies 0 to {order // 2}; got t_max={t}.")
        lengthscale, scale, s2 = first_guess(field, max((north - south) / m, 180 / (t + 1)))
        lengthscale = lengthscale if self.lengthscale is None else self.lengthscale
        scale = scale if self.field_std is None else (self.field_std / self._scale) ** 2
        s2 = s2 if self.noise_level is None else (self.noise_level / self._scale) ** 2
        name = "rbf" if self.kernel == "auto" else self.kernel
        if order is None and name != "rbf":
            raise ValueError(
                f"the kernel {name} needs evenly spaced longitudes that go into 360 degrees: use kernel='rbf', which takes any."
            )
        meridian = float(field.longitudes[0])
        return GlobeModel(name, lengthscale, scale, s2, m, t, order, meridian, south, north)

    def _learned(
        self, model: GlobeModel, fields: Sequence[Field], bar: Any
    ) -> tuple[GlobeModel, list[dict[str, float]], dict[str, float]]:
        fixed = self._fixed
        names = [model.kernel]
        if self.kernel == "auto" and model.order is not None:
            names = ["rbf", "matern32", "matern52"]
        latitudes = fields[0].latitudes
        if all(fixed) and len(names) == 1:
            return self._cut(model, latitudes), [], {}
        if max(coupling(field.present.double(), field.longitudes) for field in few(fields)) > EVEN:
            best, history, scores = self._by_patches(model, names, field_patches(fields, self.random_state), bar)
            return self._cut(best, latitudes), history, scores
        history, scores, evaluations = [], {}, int(self.max_evaluations)
        found: Learned | None = None
        if len(names) > 1:  # a short look at each, on strips
            looks = {
                name: learn(
                    replace(model, kernel=name), fields, self.bound, fixed, max(6, evaluations // 4), self.random_state,
                    partial(self._show_part, bar, k, 2 * len(names)),
                )
                for k, name in enumerate(names)
            }  # fmt: skip
            scores = {name: look.bound for name, look in looks.items()}
            found = max(looks.values(), key=lambda look: look.bound)
            model, history = found.model, [record for look in looks.values() for record in look.history]
            evaluations -= evaluations // 4
        if found is None or not all(fixed):
            found = learn(
                model, fields, self.bound, fixed, evaluations, self.random_state, partial(self._show_part, bar, 1, 2)
            )
            history, scores = history + found.history, {**scores, model.kernel: found.bound}
            model = found.model
        model = self._cut(model, latitudes)
        if self.full_evaluations and not found.whole and not all(fixed):
            dtype = self._precision(model, len(fields[0].latitudes))
            model, more = found.finished(model, fields, self.bound, dtype, int(self.full_evaluations))
            history += more
        return model, history, scores

    def _by_patches(
        self, model: GlobeModel, names: Sequence[str], parts: Sequence[Any], bar: Any
    ) -> tuple[GlobeModel, list[dict[str, float]], dict[str, float]]:
        """Hyper-parameters by the exact marginal likelihood of some of the data, and of the kernels the best."""
        found: dict[str, PatchesLearned] = {}
        for k, name in enumerate(names):
            tell = partial(self._show_part, bar, k, len(names))
            found[name] = learn_patches(
                replace(model, kernel=name), parts, self._fixed, int(self.max_evaluations), tell
            )
        best = max(found.values(), key=lambda each: each.bound)
        history = [record for each in found.values() for record in each.history]
        return best.model, history, {name: each.bound for name, each in found.items()}

    def _cut(self, model: GlobeModel, latitudes: Tensor) -> GlobeModel:
        """The fewest inducing latitudes and frequencies, of those that are not given, that leave little."""
        if "auto" not in (self.n_inducing, self.t_max):
            return model
        cut = smallest_sizes(model, latitudes)
        return replace(
            model,
            m=cut.m if self.n_inducing == "auto" else model.m,
            t_max=cut.t_max if self.t_max == "auto" else model.t_max,
        )

    def _conclude(self, fields: Sequence[tuple[list[int], Field]], bar: Any) -> None:
        """The posterior of every group of slices."""
        self._show(bar, 70)
        features = self.model_.features()
        whitened = features.whiten()
        latitudes = fields[0][1].latitudes
        parallels = Parallels.of(whitened, latitudes, self._precision(self.model_, len(latitudes)))
        self._groups = []
        self._sites = []
        total, cells = 0.0, 0
        tolerance = 1e-9 if parallels.A.dtype == torch.float64 else 1e-5
        for slices, field in fields:
            fit = field_closed_form(parallels, field, self.model_.s2, self.bound, tolerance)
            posterior = fit.posterior
            if self.posterior == "joint" or (
                self.posterior == "auto" and coupling(fit.parts.D, field.longitudes) > EVEN
            ):
                draws = joint_draws(parallels, fit, int(self.n_draws), self.random_state)
                posterior = replace(posterior, draws=draws)
            self._groups.append((slices, FieldPredictor(whitened, posterior)))
            self._sites.append((field.latitudes, fit.parts.weights.float()))
            total, cells = total + fit.bound, cells + field.n_cells * len(slices)
        self.residual_share_ = float(parallels.residual.mean()) / self.model_.s2
        self._finish_attributes(total / cells)
        self._show(bar, 100)

    def _finish_attributes(self, bound: float) -> None:
        if self.residual_share_ > MUCH:
            self.notes_.append(
                f"{self.model_.m} inducing latitudes and frequencies to {self.model_.t_max} leave {self.residual_share_:.2g} "
                "times the noise unexplained: error bars count it. More memory=, n_inducing= and t_max= leave less."
            )
        self.elbo_ = bound - math.log(self._scale)
        self.lengthscale_ = self.model_.lengthscale
        self.field_std_ = math.sqrt(self.model_.scale) * self._scale
        self.noise_std_ = math.sqrt(self.model_.s2) * self._scale
        self.n_inducing_, self.t_max_, self.kernel_ = self.model_.m, self.model_.t_max, self.model_.kernel
        self.n_features_ = self.model_.features().n_features

    def _fit_points(self, longitudes: Array, latitudes: Array, y: Array, errors: Array | None, bar: Any) -> None:
        """Scattered points: the same features, in batches, with the same answer."""
        self._mean = MeanFunction.of(self.mean, latitudes, longitudes, y[None])
        y = y - self._mean(latitudes, longitudes)
        self._scale = spread(y)
        self.order_ = None
        south, north = span(latitudes)
        most = most_features(north - south)
        m, t = (
            size if given == "auto" else int(given)
            for size, given in zip(most, (self.n_inducing, self.t_max), strict=True)
        )
        name = "rbf" if self.kernel == "auto" else self.kernel
        scale = 1.0 if self.field_std is None else (self.field_std / self._scale) ** 2
        s2 = 0.1 if self.noise_level is None else (self.noise_level / self._scale) ** 2
        X = torch.from_numpy(np.column_stack((longitudes, latitudes)))
        cloud = Points(
            X, torch.from_numpy(y / self._scale), None if errors is None else torch.from_numpy(errors / self._scale**2)
        )
        lengthscale = self.lengthscale or min(1.0, 3 * math.radians(max(north - south, 1.0)) / math.sqrt(len(y)) + 0.01)
        model = GlobeModel(name, lengthscale, scale, s2, m, t, None, 0.0, south, north)
        self.history_, self.kernels_ = [], {}
        if not all(self._fixed):
            parts = patches(cloud.X, cloud.y[None], cloud.noise, self.random_state)
            model, self.history_, self.kernels_ = self._by_patches(model, [name], parts, bar)
        # of other kernels a group: their harmonics fall too slowly to be cut by what they leave
        self.model_ = self._cut(model, X[:, 1]) if name == "rbf" else replace(model, order=4 * model.t_max + 2)
        features = self.model_.features()
        whitened = features.whiten()
        form, statistics = points_statistics(features, whitened, cloud, self.model_.s2, self.bound)
        posterior = FieldPosterior.of_blocks(form.posterior, features)
        if self.posterior != "block":
            draws = points_draws(features, statistics, self.model_.s2, int(self.n_draws), self.random_state)
            if draws is None:
                self.notes_.append("too many features for a joint posterior of points: error bars are those of blocks.")
            posterior = replace(posterior, draws=draws)
        self._groups = [([0], FieldPredictor(whitened, posterior))]
        self._sites = []
        self.residual_share_ = float(statistics.residual.mean()) / self.model_.s2
        self._finish_attributes(form.bound / len(y))
        self._show(bar, 100)

    def _show_part(self, bar: Any, k: int, n: int, part: float) -> None:
        self._show(bar, 60 * (k + part) / n)

    @staticmethod
    def _show(bar: Any, percent: float) -> None:
        bar.update(max(0.0, percent - bar.n))

    @property
    def _fixed(self) -> tuple[bool, bool, bool]:
        """Which hyper-parameters are given."""
        return self.lengthscale is not None, self.field_std is not None, self.noise_level is not None

    def _precision(self, model: GlobeModel, rows: int) -> torch.dtype:
        if self.dtype != "auto":
            return torch.float32 if self.dtype == "float32" else torch.float64
        return torch.float64 if (model.t_max + 1) * model.m * rows <= FEW else torch.float32


def _is_whole(value: Any, least: int) -> bool:
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
    return bool(real and value >= least and value == int(value))
