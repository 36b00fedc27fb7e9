"""Regression with error bars."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from harmonicgp._validation import whole_number
from harmonicgp.estimators.base import TableEstimator
from harmonicgp.estimators.fitting import fit_model
from harmonicgp.estimators.predictive import Noise, Predictive
from harmonicgp.estimators.validation import compare_noise, validate_regression
from harmonicgp.symmetry.options import RegressionOptions, check_options, fresh_seed
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.arrays import n_rows
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.preprocessing import RegressionPreprocessing

#: Rows up to which `sample_y` draws from the covariance.
MAX_DRAWN = 2_000
#: Rows at which `return_cov` is refused.
MAX_COVARIANCE = 10_000


class HarmonicGPRegressor(RegressorMixin, TableEstimator, RegressionOptions):
    """Gaussian process regression: `fit`, then `predict` y with error bars, in its own units.

    The defaults need no tuning: columns are standardised, skewed ones warped if that helps, and the symmetry that does best in
    short fits at equal cost is chosen (`symmetry_` tells it, `print(gp.symmetry_)` shows the table). Up to 2,000 rows the model
    is an exact Gaussian process.

    Args:
        kernel: "matern32" (default), "rbf", "matern12", "matern52", or a GPyTorch kernel, which sees standardised columns.
        symmetry: "auto"; None for one block of inducing points; or an action of `harmonicgp.actions` on the columns.
        n_inducing: inducing points in each block; "auto" by the size of the data.
        share_inducing: whether blocks share their inducing points.
        resolution: "complex" or "real", see `docs/kernels.md`.
        posterior: "auto", "block" (independent blocks) or "joint".
        bound: "tight" or "elbo".
        warp: "auto", None, or "quantile": transform skewed columns to normal first.
        columns: what columns mean: {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}, by name or number; or
            ("image", (height, width)) for rows that are images.
        missing: "refuse" missing inputs of a table, or "impute" them.
        likelihood: "gaussian" noise, or "student_t" for outliers.
        target_transform: None, "log" or "quantile".
        calibration: "auto": where error bars did not cover as they say on the rows held out (up to 2,000 rows: each row in
            turn), their levels are recalibrated; "conformal": always, and those rows stay out of the posterior; None: never.
        neighbours: how many of the nearest training rows correct a prediction for what the inducing points miss; "auto": as many
            as held-out rows ask for, or none. A model with neighbours keeps its training rows, also in its file; 0: none
            (an exact model keeps all inputs, whatever this is).
        max_steps: training steps, at most.
        batch_size: rows of a step.
        learning_rate: Adam's, for inducing points and hyper-parameters.
        time_budget: seconds for the whole fit. It is cut short where needed; with neighbours it goes on while that helps, and
            `notes_` says if it ended early. No longer repeatable bit for bit.
        validation_fraction: share of rows (at most 4,000) that training leaves out, to watch and to set the noise; the final
            posterior sees them, unless calibration needs them apart.
        early_stopping: cool down as soon as the bound on those rows no longer rises.
        checkpoint_dir: a folder; a fit that was killed goes on from there when it is started again.
        callbacks: functions of a dict for every step; one that returns True stops the training.
        dtype: "float32", "float64", or "auto": float64 up to 2,000 rows.
        device: "cpu", "cuda", or "auto" for CUDA where there is one. Untested on CUDA. Predictions are NumPy arrays, and files
            are read on the CPU.
        random_state: a seed.
        progress: a bar, on a terminal.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> gp = HarmonicGPRegressor(max_steps=50).fit(X, np.sin(X[:, 0]))
        >>> mean, std = gp.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))
    """

    preprocessing_: RegressionPreprocessing

    def __sklearn_tags__(self) -> Any:
        """Several targets at once are fine."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> HarmonicGPRegressor:
        """Fit to rows X [N, d] and targets y [N] or [N, P].

        A `sample_weight` of two is two equal rows. `noise_std` [N] are known errors of y, in its units; noise beyond them is
        learned.
        """
        start = time.perf_counter()
        check_options(self, noise_std)
        reader = copy.copy(self)
        preprocessing, rows = RegressionPreprocessing.fit(
            X, y, reader, columns=self.columns, missing=self.missing, transform=self.target_transform,
            sample_weight=sample_weight, noise_std=noise_std,
        )  # fmt: skip
        data = preprocessing.model_rows(rows)
        settings = ModelSettings.of(self, preprocessing, len(data), start)
        model, held_out = fit_model(data, settings, keep_out=self.calibration == "conformal")
        model = validate_regression(model, held_out, data, rows.y, preprocessing.target, self.calibration)
        self._set_fitted(preprocessing, compare_noise(model, data, preprocessing.target_names))
        self._set_names(reader)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> HarmonicGPRegressor:
        """New rows for the posterior; scaling, symmetry, kernel and noise stay. The first call is `fit`.

        For one block or a joint posterior the result is just what all rows together would give at these parameters; with
        independent blocks (`posterior="block"`) the earlier rows' coupling between blocks is forgotten.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight, noise_std)
        check_options(self, noise_std)
        preprocessing, rows = self.preprocessing_.read(X, y, self, self.unused_names(), sample_weight, noise_std)
        self._set_fitted(preprocessing, self.model_.absorb(preprocessing.model_rows(rows)))
        return self

    @property
    def noise_name_(self) -> str | None:
        """The name of the known errors, where they were given."""
        return self.preprocessing_.noise_name

    @property
    def noise_std_(self) -> Array:
        """The standard deviation of the learned noise, [P], in the units of y (of the model under a `target_transform`)."""
        return np.sqrt(Noise.of(self.likelihood_).variance) * self.preprocessing_.component_scale

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, noise_std: Any = None) -> Any:
        """The mean of y at X: [n], or [n, P]; with its standard deviation, or its covariance [n, n] ([P, n, n]), noise included.

        `noise_std` [n] are known errors of the new measurements, added to the learned noise.
        """
        if return_cov:
            if return_std:
                raise ValueError("ask for return_std or for return_cov, not for both.")
            return self._covariance(X, noise_std)
        errors = self._errors(noise_std)
        return self._mean_and_std(X, Predictive.mean, Predictive.std if return_std else None, errors)

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """The latent function, without noise, in the units of y (its median there, under a target_transform)."""
        return self._mean_and_std(X, Predictive.latent_mean, Predictive.latent_std if return_std else None)

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.025, 0.5, 0.975), noise_std: Any = None) -> Array:
        """Quantiles of y, [n, levels] or [n, levels, P]; `noise_std` as in `predict`."""
        p = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
            raise ValueError(f"levels must be numbers between 0 and 1, such as (0.025, 0.975); got {levels!r}.")
        errors = self._errors(noise_std)
        parts = [predictive.quantiles(p) for _, predictive in self._predictives(X, errors)]
        return self.preprocessing_.shape(np.concatenate(parts))

    def log_density(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """Log p(y | X, data) of each row in the units of y, [n] or [n, P]; by the model itself, without calibration."""
        targets, errors = self._targets(y), self._errors(noise_std)
        parts = [p.log_density(targets[part]) for part, p in self._predictives(X, errors, targets)]
        return self.preprocessing_.shape(np.concatenate(parts))

    def pit(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """P(Y <= y | X, data) of each row, [n] or [n, P]: evenly spread if the error bars are right."""
        targets, errors = self._targets(y), self._errors(noise_std)
        parts = [p.cdf(targets[part]) for part, p in self._predictives(X, errors, targets)]
        return self.preprocessing_.shape(np.concatenate(parts))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Draws of y at X, jointly over its rows: [n, samples] or [n, P, samples]; of f with `noise=False`.

        Up to 2,000 rows they come from the covariance; for more, functions are drawn first (`docs/inference.md`).
        """
        check_is_fitted(self, "model_")
        n_samples = whole_number(n_samples, "n_samples", 1)
        seed = fresh_seed(random_state)
        generator = np.random.default_rng(seed)
        paths = None if n_rows(X) <= MAX_DRAWN else self.model_.paths(n_samples, seed)
        parts = []
        for _, rows in self._batches(X):
            f = self.model_.joint_draws(rows, n_samples, generator) if paths is None else paths(rows)
            if noise:
                f = self._predictive(np.zeros(f.shape[1:]), np.zeros(f.shape[1:])).sample_noise(f, generator)
            y = np.moveaxis(self.preprocessing_.target.inverse(np.moveaxis(f, 1, 0)), 0, 1)
            parts.append(np.moveaxis(y, (0, 1, 2), (2, 1, 0)))  # [n, P, samples]
        draws = np.concatenate(parts)
        return draws[:, 0] if self.preprocessing_.flat else draws

    # --- inside -------------------------------------------------------------------------------------------------------

    def _targets(self, y: Any) -> Array:
        check_is_fitted(self, "model_")
        return self.preprocessing_.targets(y)

    def _errors(self, noise_std: Any) -> Array | None:
        """Known noise variances of new rows in model units, [P, n]."""
        check_is_fitted(self, "model_")
        if noise_std is None:
            return None
        check_options(self, noise_std)
        return self.preprocessing_.noise_variances(noise_std)

    def _mean_and_std(
        self,
        X: Any,
        mean: Callable[[Predictive], Array],
        std: Callable[[Predictive], Array] | None,
        errors: Array | None = None,
    ) -> Any:
        """Two functions of the distributions at all rows of X, from one pass; the first alone where `std` is None."""
        functions = [mean] if std is None else [mean, std]
        parts = [[function(p) for function in functions] for _, p in self._predictives(X, errors)]
        values = [self.preprocessing_.shape(np.concatenate(column)) for column in zip(*parts, strict=True)]
        return values[0] if std is None else tuple(values)

    def _predictives(
        self, X: Any, errors: Array | None = None, y: Array | None = None
    ) -> Iterator[tuple[slice, Predictive]]:
        """The distribution of y for the rows of X, piece by piece; `errors` and `y` must have as many rows."""
        for given, name in ((errors, "noise_std"), (None if y is None else y.T, "y")):
            if given is not None and given.shape[1] != n_rows(X):
                raise ValueError(f"{name} has {given.shape[1]} rows, X has {n_rows(X)}.")
        for part, rows in self._batches(X):
            yield part, self._predictive(*self.model_.moments(rows), None if errors is None else errors[:, part])

    def _predictive(self, mean: Array, variance: Array, errors: Array | None = None) -> Predictive:
        model = self.model_
        return Predictive(
            mean, variance, Noise.of(model.likelihood), self.preprocessing_.target, errors, model.calibration
        )

    def _covariance(self, X: Any, noise_std: Any) -> tuple[Array, Array]:
        rows, errors = self._encode(X), self._errors(noise_std)
        target = self.preprocessing_.target
        if target.transform is not None:
            raise ValueError("return_cov is for targets without a target_transform: draw with sample_y instead.")
        if len(rows) > MAX_COVARIANCE:
            raise ValueError(
                f"the covariance of {len(rows)} rows is too large: ask for {MAX_COVARIANCE} at most, or use sample_y."
            )
        mean, cov = self.model_.covariance(rows)
        K = cov + Noise.of(self.likelihood_).variance * np.eye(len(rows))
        if errors is not None:
            if errors.shape[1] != len(rows):
                raise ValueError(f"noise_std has {errors.shape[1]} rows, X has {len(rows)}.")
            K[:, np.arange(len(rows)), np.arange(len(rows))] += errors
        K = K * target.scale[:, None, None] ** 2
        return self.preprocessing_.shape(target.inverse(mean).T), K[0] if self.preprocessing_.flat else K
