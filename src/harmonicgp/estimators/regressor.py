"""Regression with error bars."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from harmonicgp.tables.columns import Array
from harmonicgp.tables.preprocessing import RegressionPreprocessing
from harmonicgp.tables.targets import constant_notes

#: Up to this many rows `sample_y` draws from the covariance.
MAX_DRAWN = 2_000
#: Rows of a covariance (`return_cov`), at most.
MAX_COVARIANCE = 10_000


class HarmonicGPRegressor(RegressorMixin, TableEstimator, RegressionOptions):
    """Gaussian process regression: `fit` to rows X and targets y, then `predict` y with error bars.

    The defaults need no tuning. Columns are standardised, and skewed columns are warped if that helps. Short fits at equal cost
    choose the symmetry; `print(gp.symmetry_)` shows the comparison. Up to 2,000 rows the model is an exact Gaussian process.

    Args:
        kernel: "matern32" (default), "rbf", "matern12", "matern52", or a GPyTorch kernel, which sees standardised columns.
        symmetry: "auto"; None for one block of inducing points; or an action of `harmonicgp.actions` on the columns.
        n_inducing: inducing points in each block; "auto" chooses by the size of the data.
        share_inducing: whether blocks share their inducing points.
        resolution: "complex" or "real", see `docs/kernels.md`.
        posterior: "auto", "block" (independent blocks) or "joint".
        bound: "tight" or "elbo".
        warp: "auto", None, or "quantile", which transforms skewed columns to normal.
        columns: kinds of columns by name or number: {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}; or
            ("image", (height, width)) if every row is an image.
        missing: "refuse" raises an error for missing inputs of a table; "impute" replaces them.
        likelihood: "gaussian" noise, or "student_t" for outliers.
        target_transform: None, "log" or "quantile".
        calibration: "auto" recalibrates the levels of error bars if they do not cover as they should on the held-out rows (up to
            2,000 rows, on leave-one-out predictions); "conformal" always does, and held-out rows stay out of the posterior;
            None never does.
        neighbours: how many of the nearest training rows correct a prediction for what the inducing points miss. "auto" chooses
            the number by held-out rows; 0 uses none. A model with neighbours keeps its training rows, also in its file. An exact
            model keeps all inputs in any case.
        max_steps: training steps, at most.
        batch_size: rows of a training step.
        learning_rate: the learning rate of Adam, for inducing points and hyper-parameters.
        time_budget: seconds for the whole fit, which is shortened if necessary. With neighbours it goes on as long as that helps;
            `notes_` says if it ended early. The result is then not reproducible bit for bit.
        validation_fraction: share of rows (at most 4,000) held out from training, to monitor it and to set the noise. The final
            posterior uses them, unless the calibration needs them.
        early_stopping: end the training when the bound on held-out rows no longer rises.
        checkpoint_dir: a folder for checkpoints. If a fit is killed, the same call continues from there.
        callbacks: functions that are called with a dict at every step; training stops if one returns True.
        dtype: "float32", "float64", or "auto": float64 up to 2,000 rows.
        device: "cpu", "cuda", or "auto" for CUDA if it is available. Untested on CUDA. Predictions are NumPy arrays, and files
            are read on the CPU.
        random_state: a seed.
        progress: whether to show a progress bar on a terminal.

    Fitted attributes end in `_`, such as `symmetry_`, `kernel_` and `notes_`; `harmonicgp.estimators.base.TableEstimator` lists
    them.

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
        """Tell scikit-learn that several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> HarmonicGPRegressor:
        """Fit to rows X [N, d] and targets y [N] or [N, P].

        A `sample_weight` of two counts as two equal rows. `noise_std` [N] holds known standard errors of y, in its units; further
        noise is learned.
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
        model = compare_noise(model, data, preprocessing.target_names)
        notes = [*model.notes, *constant_notes(rows.y, preprocessing.target_names)]
        self._set_fitted(preprocessing, replace(model, notes=notes))
        self._set_names(reader)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> HarmonicGPRegressor:
        """Add new rows to the posterior; scaling, symmetry, kernel and noise stay the same. The first call is `fit`.

        For one block or a joint posterior, the result is that of all rows together at these parameters. With independent blocks
        (`posterior="block"`), the coupling between blocks by earlier rows is lost.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight, noise_std)
        check_options(self, noise_std)
        preprocessing, rows = self.preprocessing_.read(X, y, self, self.unused_names(), sample_weight, noise_std)
        self._set_fitted(preprocessing, self.model_.absorb(preprocessing.model_rows(rows)))
        return self

    @property
    def noise_name_(self) -> str | None:
        """The name of the known errors of the fit, if there were any."""
        return self.preprocessing_.noise_name

    @property
    def noise_std_(self) -> Array:
        """The standard deviation of the learned noise, [P], in the units of y (of the model under a `target_transform`)."""
        return np.sqrt(Noise.of(self.likelihood_).variance) * self.preprocessing_.component_scale

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, noise_std: Any = None) -> Any:
        """The mean of y at X, [n] or [n, P]; with the standard deviation in that shape, or the covariance [n, n] or [P, n, n].

        Both include the noise. `noise_std` [n] holds known errors of the new measurements, which are added to the learned noise.
        """
        if return_cov:
            if return_std:
                raise ValueError("set return_std or return_cov, not both.")
            return self._covariance(X, noise_std)
        functions = [lambda p, _: p.mean(), lambda p, _: p.std()]
        return self._for_rows(X, *functions[: 2 if return_std else 1], noise_std=noise_std)

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """The latent function f in the units of y, [n] or [n, P], and its standard deviation; the median under a transform."""
        functions = [lambda p, _: p.latent_mean(), lambda p, _: p.latent_std()]
        return self._for_rows(X, *functions[: 2 if return_std else 1])

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.025, 0.5, 0.975), noise_std: Any = None) -> Array:
        """Quantiles of y, [n, levels] or [n, levels, P]; `noise_std` as in `predict`."""
        p = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
            raise ValueError(f"levels must be numbers between 0 and 1, such as (0.025, 0.975); got {levels!r}.")
        return self._for_rows(X, lambda predictive, _: predictive.quantiles(p), noise_std=noise_std)

    def log_density(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """Log p(y | X, data) of each row in the units of y, [n] or [n, P], without calibration."""
        targets = self._targets(X, y)
        return self._for_rows(X, lambda p, rows: p.log_density(targets[rows]), noise_std=noise_std)

    def pit(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """P(Y <= y | X, data) of each row, [n] or [n, P]; uniformly distributed if the error bars are right."""
        targets = self._targets(X, y)
        return self._for_rows(X, lambda p, rows: p.cdf(targets[rows]), noise_std=noise_std)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Joint draws of y at the rows of X, [n, samples] or [n, P, samples]; of f with `noise=False`.

        Up to 2,000 rows the draws use the covariance; for more rows, they are sample paths (`docs/inference.md`).
        """
        check_is_fitted(self, "model_")
        n_samples = whole_number(n_samples, "n_samples", 1)
        seed = fresh_seed(random_state)
        generator = np.random.default_rng(seed)
        paths = None if len(X) <= MAX_DRAWN else self.model_.paths(n_samples, seed)
        parts = []
        for _, rows in self._batches(X):
            f = self.model_.joint_draws(rows, n_samples, generator) if paths is None else paths(rows)
            if noise:
                none = np.zeros(f.shape[1:])
                predictive = self._predictive(none, none, varying=self.model_.noise_variances(rows))
                f = predictive.sample_noise(f, generator)
            y = np.moveaxis(self.preprocessing_.target.inverse(np.moveaxis(f, 1, 0)), 0, 1)
            parts.append(np.moveaxis(y, (0, 1, 2), (2, 1, 0)))  # [n, P, samples]
        draws = np.concatenate(parts)
        return draws[:, 0] if self.preprocessing_.flat else draws

    # --- inside -------------------------------------------------------------------------------------------------------

    def _targets(self, X: Any, y: Any) -> Array:
        """Observed targets [n, P] of the rows of X."""
        check_is_fitted(self, "model_")
        targets = self.preprocessing_.targets(y)
        if len(targets) != len(X):
            raise ValueError(f"y has {len(targets)} rows, X has {len(X)}.")
        return targets

    def _errors(self, X: Any, noise_std: Any) -> Array | None:
        """Known noise variances of the rows of X in model units, [P, n]."""
        check_is_fitted(self, "model_")
        if noise_std is None:
            return None
        check_options(self, noise_std)
        errors = self.preprocessing_.noise_variances(noise_std)
        if errors.shape[1] != len(X):
            raise ValueError(f"noise_std has {errors.shape[1]} rows, X has {len(X)}.")
        return errors

    def _for_rows(self, X: Any, *functions: Callable[[Predictive, slice], Array], noise_std: Any = None) -> Any:
        """The values of functions of the predictive distribution and of the row numbers, for all rows of X in one pass."""
        errors, parts = self._errors(X, noise_std), []
        for part, rows in self._batches(X):
            known = None if errors is None else errors[:, part]
            predictive = self._predictive(*self.model_.moments(rows), known, self.model_.noise_variances(rows))
            parts.append([function(predictive, part) for function in functions])
        values = [self.preprocessing_.shape(np.concatenate(arrays)) for arrays in zip(*parts, strict=True)]
        return values[0] if len(values) == 1 else tuple(values)

    def _predictive(
        self, mean: Array, variance: Array, errors: Array | None = None, varying: Array | None = None
    ) -> Predictive:
        model, target = self.model_, self.preprocessing_.target
        return Predictive(mean, variance, Noise.of(model.likelihood), target, errors, model.calibration, varying)

    def _covariance(self, X: Any, noise_std: Any) -> tuple[Array, Array]:
        rows, errors = self._encode(X), self._errors(X, noise_std)
        target = self.preprocessing_.target
        if target.transform is not None:
            raise ValueError("return_cov needs target_transform=None: use sample_y instead.")
        if len(rows) > MAX_COVARIANCE:
            raise ValueError(
                f"the covariance of {len(rows)} rows is too large: pass at most {MAX_COVARIANCE} rows, or use sample_y."
            )
        mean, cov = self.model_.covariance(rows)
        varying, diagonal = self.model_.noise_variances(rows), np.arange(len(rows))
        K = cov.copy()
        K[:, diagonal, diagonal] += Noise.of(self.likelihood_).variance if varying is None else varying
        if errors is not None:
            K[:, diagonal, diagonal] += errors
        K = K * target.scale[:, None, None] ** 2
        return self.preprocessing_.shape(target.inverse(mean).T), K[0] if self.preprocessing_.flat else K
