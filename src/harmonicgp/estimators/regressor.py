"""Regression with error bars: fit, predict."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import (
    _check_y,
    check_consistent_length,
)

from harmonicgp.actions import Action
from harmonicgp.estimators.base import fresh_seed
from harmonicgp.estimators.predicting import PredictsNumbers
from harmonicgp.estimators.predictive import Conformal, Predictive, uneven
from harmonicgp.estimators.reading import is_table
from harmonicgp.estimators.saving import SavedModel
from harmonicgp.groups import Resolution
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.symmetry.candidates import make_gaussian, make_student_t
from harmonicgp.tables.arrays import known_errors, numbers, target_names, validated, weights_of
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.rows import Rows, merge
from harmonicgp.tables.targets import Target, Transform
from harmonicgp.training import Callback, Fit

#: A variance of noise, in units of that of y, that is as good as none.
NO_NOISE = 1e-5


class HarmonicGPRegressor(SavedModel, RegressorMixin, PredictsNumbers):
    """Gaussian process regression: `fit`, then `predict` y with error bars, in its own units.

    The defaults need no tuning: columns are standardised, skewed ones warped if that helps, and the symmetry whose bound on the
    data is highest at equal cost is chosen (`symmetry_` tells it, `print(gp.symmetry_)` shows the table). Up to 2,000 rows the
    model is an exact Gaussian process.

    Args:
        kernel: "matern32" (default), "rbf", "matern12", "matern52", or a GPyTorch kernel, which sees standardised columns.
        symmetry: "auto"; None for one block of inducing points; or an action of `harmonicgp.actions` on the columns.
        n_inducing: inducing points in each block; "auto" by the size of the data.
        share_inducing: whether blocks share their inducing points.
        resolution: "complex" or "real", see `docs/kernels.md`.
        posterior: "auto", "block" (independent blocks) or "joint".
        bound: "tight" or "elbo".
        warp: "auto", None, or "quantile": make skewed columns normal first.
        columns: what columns mean: {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}, by name or number; or
            ("image", (height, width)) for rows that are images.
        missing: "refuse" missing inputs of a table, or "impute" them.
        likelihood: "gaussian" noise, or "student_t" for outliers.
        target_transform: None, "log" or "quantile".
        calibration: "auto": where error bars did not cover as they say on the rows held out (up to 2,000 rows: each row in
            turn), their levels are mended; "conformal": always, and those rows stay out of the posterior; None: the model's own.
        max_steps: training steps, at most.
        batch_size: rows of a step.
        learning_rate: Adam's, for inducing points and hyper-parameters.
        time_budget: seconds for the whole fit; it is then cut short where needed, and no longer repeatable bit for bit.
        validation_fraction: share of rows (at most 4,000) that training leaves out, to watch and to set the noise; the final
            posterior sees them, unless calibration needs them apart.
        early_stopping: cool down as soon as the bound on those rows no longer rises.
        checkpoint_dir: a folder; a fit that was killed goes on from there when it is started again.
        callbacks: functions of a dict for every step; one that returns True stops the training.
        dtype: "float32", "float64", or "auto": float64 up to 2,000 rows.
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

    def __init__(
        self,
        kernel: str | gpytorch.kernels.Kernel = "matern32",
        symmetry: str | Action | None = "auto",
        n_inducing: int | str = "auto",
        share_inducing: bool = True,
        resolution: Resolution = "complex",
        posterior: str = "auto",
        bound: Bound = "tight",
        warp: str | None = "auto",
        columns: Any = None,
        missing: str = "refuse",
        likelihood: str = "gaussian",
        target_transform: Transform | None = None,
        calibration: str | None = "auto",
        max_steps: int = 400,
        batch_size: int = 1024,
        learning_rate: float = 0.05,
        time_budget: float | None = None,
        validation_fraction: float = 0.1,
        early_stopping: bool = True,
        checkpoint_dir: str | Path | None = None,
        callbacks: Sequence[Callback] | None = None,
        dtype: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        progress: bool = True,
    ) -> None:
        self.kernel = kernel
        self.symmetry = symmetry
        self.n_inducing = n_inducing
        self.share_inducing = share_inducing
        self.resolution = resolution
        self.posterior = posterior
        self.bound = bound
        self.warp = warp
        self.columns = columns
        self.missing = missing
        self.likelihood = likelihood
        self.target_transform = target_transform
        self.calibration = calibration
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.time_budget = time_budget
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.dtype = dtype
        self.random_state = random_state
        self.progress = progress

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
        distinct, target, known = self._prepare(X, y, sample_weight, noise_std)
        self._calibration: tuple[Conformal, ...] = ()
        conformal = self.calibration == "conformal"
        result = self._fit_rows(distinct, target, known, self._likelihood, conformal)
        self._validate(result, distinct.y, known, conformal)
        self._compare_noise(distinct.X, target)
        return self

    def _compare_noise(self, X: Array, target: Array, most: int = 2000) -> None:
        """Warn where targets that share one level of noise differ in it."""
        if len(target) < 2:
            return
        rows = np.linspace(0, len(X) - 1, min(len(X), most)).astype(int)
        mean, _ = self._moments(X[rows])
        left = np.sqrt(np.mean((target[:, rows] - mean) ** 2, axis=1))  # of each target, in its standard deviations
        if left.max() > 1.5 * left.min():
            low, high = (self.target_names_[int(k)] for k in (left.argmin(), left.argmax()))
            self.warnings_.append(
                f"the targets share one level of noise (in units of their standard deviations) and differ in it: error bars of "
                f"{low!r} are too wide, those of {high!r} too narrow. Fit the targets one by one, or with "
                "calibration='conformal'."
            )

    def _prepare(self, X: Any, y: Any, sample_weight: Any, noise_std: Any) -> tuple[Rows, Array, Array | None]:
        """Distinct rows, and targets and known noise variances in model units."""
        self._start = time.perf_counter()
        self._check_arguments()
        self._check_options(noise_std)
        self._seed = fresh_seed(self.random_state)
        rows, targets, weight, noise = self._rows(X, y, sample_weight, noise_std, reset=True)
        self._describe(rows)
        distinct = merge(rows, targets, noise, weight)
        self._target = Target.fit(distinct.y, distinct.counts, self.target_transform, self.target_names_)
        known = None if distinct.noise is None else (distinct.noise / self._target.scale[0]) ** 2
        return distinct, self._target.forward(distinct.y), known

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, noise_std: Any = None) -> HarmonicGPRegressor:
        """New rows for the posterior; scaling, symmetry, kernel and noise stay. The first call is `fit`.

        For one block or a joint posterior the result is just what all rows together would give at these parameters; with
        independent blocks (`posterior="block"`) the earlier rows' coupling between blocks is forgotten.
        """
        if not hasattr(self, "_predictor"):
            return self.fit(X, y, sample_weight, noise_std)
        self._check_options(noise_std)
        rows, targets, weight, noise = self._rows(X, y, sample_weight, noise_std, reset=False)
        distinct = merge(rows, targets, noise, weight)
        known = None if distinct.noise is None else (distinct.noise / self._target.scale[0]) ** 2
        target = self._target.forward(distinct.y)
        if not np.isfinite(target).all():
            raise ValueError(f"y has values that the target_transform {self.target_transform!r} cannot take.")
        self._absorb(distinct.X, target, known, distinct.counts)
        return self

    # --- inside -------------------------------------------------------------------------------------------------------

    def _bound_name(self) -> Bound | None:
        return self.bound if self.likelihood == "gaussian" else None

    def _exact_noise(self) -> bool:
        return self.likelihood == "gaussian"

    def _likelihood(self, dtype: torch.dtype) -> gpytorch.likelihoods.Likelihood:
        return make_student_t(0.1, dtype) if self.likelihood == "student_t" else make_gaussian(0.1, dtype)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, noise_std: Any, reset: bool
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Encoded rows [N, d], targets [N, P], weights and known errors [N]."""
        if y is None:
            raise ValueError("HarmonicGPRegressor requires y to be passed, but the target y is None.")
        names = target_names(y)
        checks = {"multi_output": True, "y_numeric": True}
        if is_table(X):
            weight = weights_of(sample_weight, X)
            rows = self._encode(X, reset, weight)
            targets = _check_y(numbers(y), estimator=self, **checks)
            check_consistent_length(rows, targets)
        else:
            if reset:
                self._table = None
            rows, targets = validated(self, X, numbers(y), reset=reset, **checks)
            weight = weights_of(sample_weight, rows)
            if not reset:
                rows = self._encode(X)
        targets = np.asarray(targets, dtype=np.float64)
        if reset:
            self._one = targets.ndim == 1
            count = 1 if targets.ndim == 1 else targets.shape[1]
            made_up = ["y"] if count == 1 else [f"y{i}" for i in range(count)]
            self.target_names_ = names if len(names) == count else made_up
        elif (1 if targets.ndim == 1 else targets.shape[1]) != len(self.target_names_):
            raise ValueError(f"y must have {len(self.target_names_)} targets, as in fit; got shape {targets.shape}.")
        if noise_std is not None and len(self.target_names_) > 1:
            raise ValueError("noise_std is for one target; fit the targets one by one.")
        if reset or noise_std is not None:
            self.noise_name_ = None if noise_std is None else (target_names(noise_std) or ["noise_std"])[0]
        return (
            rows,
            targets.reshape(len(targets), -1),
            weight,
            None if noise_std is None else known_errors(noise_std, len(rows)),
        )

    def _validate(self, result: Fit, y: Array, known: Array | None, conformal: bool) -> None:
        """Scores of the held-out rows, and the calibration that they give."""
        self.validation_: dict[str, Any] | None = None
        held = result.validation
        if held is None:
            if conformal:
                raise ValueError(
                    'calibration="conformal" needs at least 200 rows, a tenth of them held out: it cannot be had here.'
                )
            return
        rows = held.rows.numpy()
        mean, variance = held.mean.double().numpy(), held.variance.double().numpy()
        noise = None if known is None else np.broadcast_to(known[rows], mean.shape)
        predictive = Predictive(mean, variance, self._noise(), self._target, noise)
        pit, observed = predictive.cdf(y[rows]), y[rows]
        weights = None if held.counts is None else held.counts.double().numpy()

        def average(values: Array) -> float:
            return float(np.average(values.mean(-1), weights=weights))

        self.validation_ = {
            "method": "leave-one-out" if held.in_turn else "held-out",
            "rows": float(len(rows) if weights is None else weights.sum()),
            "rmse": _root_mean_square(predictive.mean() - observed, weights),
            "nll": -average(predictive.log_density(observed)),
            "coverage": average((np.abs(pit - 0.5) < 0.475).astype(float)),
        }
        if held.in_turn and weights is not None and self._noise().s2 < NO_NOISE:
            missed = np.average(((mean - self._target.forward(observed)) ** 2).mean(0), weights=weights)
            if missed > 100 * self._noise().s2:
                self.warnings_.append(
                    "rows that repeat, y and all, say that there is no noise, and each row is predicted badly from the others. "
                    "If they are copies, drop them; if their weights are no counts of measurements, leave the weights out."
                )
        if conformal or (self.calibration == "auto" and any(uneven(column, weights) for column in pit.T)):
            self._calibration = tuple(Conformal.of(column, weights) for column in pit.T)


def _root_mean_square(errors: Array, weights: Array | None) -> float:
    """Of errors [n, P], whatever their size: squares of large and of small numbers leave the range of floating-point ones."""
    largest = float(np.abs(errors).max())
    if not 0 < largest < math.inf:
        return largest
    return largest * math.sqrt(np.average(((errors / largest) ** 2).mean(-1), weights=weights))
