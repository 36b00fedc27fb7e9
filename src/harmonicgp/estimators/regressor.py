"""Regression with error bars: fit, predict."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import (
    _check_y,
    check_consistent_length,
    check_is_fitted,
)

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action
from harmonicgp.estimators.arrays import known_errors, n_rows, numbers, plain_array, target_names, validated, weights_of
from harmonicgp.estimators.base import HarmonicGPBase, fresh_seed
from harmonicgp.estimators.candidates import make_gaussian, make_student_t
from harmonicgp.estimators.inputs import Array
from harmonicgp.estimators.predictive import Conformal, Noise, Predictive, uneven
from harmonicgp.estimators.reading import is_table
from harmonicgp.estimators.rows import Rows, merge
from harmonicgp.estimators.saving import SavedModel
from harmonicgp.estimators.search import SymmetryChoice
from harmonicgp.estimators.targets import Target, Transform
from harmonicgp.groups import Resolution
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.training import Callback, Fit

#: Rows up to which `sample_y` draws from the covariance.
MAX_DRAWN = 2_000
#: Rows at which `return_cov` and `sample_y` with covariance are refused.
MAX_COVARIANCE = 10_000


class HarmonicGPRegressor(SavedModel, RegressorMixin, HarmonicGPBase):
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
        calibration: "auto": where error bars did not cover as they say on the rows held out (above 2,000 rows), their levels are
            mended; "conformal": always, and those rows stay out of the posterior; None: the model's own.
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

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, noise_std: Any = None) -> Any:
        """The mean of y at X: [n], or [n, P]; with its standard deviation, or its covariance [n, n] ([P, n, n]), noise included.

        `noise_std` [n] are known errors of the new measurements, added to the learned noise.
        """
        if return_cov:
            if return_std:
                raise ValueError("ask for return_std or for return_cov, not for both.")
            return self._covariance(X, noise_std)
        means, stds = [], []
        known = None if noise_std is None else self._known(noise_std)
        for _, predictive in self._predictives(X, known):
            means.append(predictive.mean())
            if return_std:
                stds.append(predictive.std())
        mean = self._shape(np.concatenate(means))
        return (mean, self._shape(np.concatenate(stds))) if return_std else mean

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """The latent function, without noise, in the units of y (its median there, under a target_transform)."""
        means, stds = [], []
        for _, p in self._predictives(X):
            means.append(self._target.inverse(p.mean_f).T)
            if return_std:
                root = np.sqrt(p.variance_f)
                if self._target.transform is None:
                    stds.append((root * self._target.scale[:, None]).T)
                else:
                    high, low = (self._target.inverse(p.mean_f + sign * root) for sign in (1, -1))
                    stds.append(0.5 * (high - low).T)
        mean = self._shape(np.concatenate(means))
        return (mean, self._shape(np.concatenate(stds))) if return_std else mean

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.025, 0.5, 0.975), noise_std: Any = None) -> Array:
        """Quantiles of y, [n, levels] or [n, levels, P]; `noise_std` as in `predict`."""
        p = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if p.ndim != 1 or not ((p > 0) & (p < 1)).all():
            raise ValueError(f"levels must be numbers between 0 and 1, such as (0.025, 0.975); got {levels!r}.")
        known = None if noise_std is None else self._known(noise_std)
        parts = [predictive.quantiles(p) for _, predictive in self._predictives(X, known)]
        return self._shape(np.concatenate(parts))

    def log_density(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """Log p(y | X, data) of each row in the units of y, [n] or [n, P]; by the model itself, without calibration."""
        targets, known = self._targets(y), None if noise_std is None else self._known(noise_std)
        return self._shape(
            np.concatenate([p.log_density(targets[part]) for part, p in self._predictives(X, known, targets)])
        )

    def pit(self, X: Any, y: Any, noise_std: Any = None) -> Array:
        """P(Y <= y | X, data) of each row, [n] or [n, P]: evenly spread if the error bars are right."""
        targets, known = self._targets(y), None if noise_std is None else self._known(noise_std)
        return self._shape(np.concatenate([p.cdf(targets[part]) for part, p in self._predictives(X, known, targets)]))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Draws of y at X, jointly over its rows: [n, samples] or [n, P, samples]; of f with `noise=False`.

        Up to 2,000 rows they come from the covariance; for more, functions are drawn first (`docs/inference.md`).
        """
        check_is_fitted(self, "_predictor")
        n_samples = whole_number(n_samples, "n_samples", 1)
        seed = fresh_seed(random_state)
        generator = np.random.default_rng(seed)
        few = n_rows(X) <= MAX_DRAWN
        paths = None if few else self._predictor.paths(n_samples, seed=seed)
        parts = []
        for _, rows in self._batches(X):
            x = self._inputs_of(rows)
            f = self._joint_draws(x, n_samples, generator) if paths is None else paths(x).double().numpy()
            if noise:
                f = self._predictive(np.zeros(f.shape[1:]), np.zeros(f.shape[1:])).sample_noise(f, generator)
            y = np.moveaxis(self._target.inverse(np.moveaxis(f, 1, 0)), 0, 1)
            parts.append(np.moveaxis(y, (0, 1, 2), (2, 1, 0)))  # [n, P, samples]
        draws = np.concatenate(parts)
        return draws[:, 0] if self._one else draws

    def _joint_draws(self, x: torch.Tensor, n_samples: int, generator: np.random.Generator) -> Array:
        """Draws of f from its covariance, [samples, P, n]."""
        mean, covariance = self._predictor.covariance(x)
        values, V = np.linalg.eigh(covariance.double().numpy())  # [P, n], [P, n, n]
        root = V * np.sqrt(values.clip(min=0.0))[:, None, :]
        white = generator.standard_normal((n_samples, *mean.shape))
        draws: Array = mean.double().numpy() + np.einsum("pij,spj->spi", root, white)
        return draws

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check_options(self, noise_std: Any) -> None:
        for name, allowed in (
            ("likelihood", ("gaussian", "student_t")),
            ("target_transform", (None, "log", "quantile")),
            ("calibration", ("auto", None, "conformal")),
            ("bound", ("tight", "elbo")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}.")
        if self.likelihood == "student_t" and self.target_transform == "log":
            raise ValueError(
                'under target_transform="log" with Student-t noise y has no mean: use likelihood="gaussian", or '
                'target_transform="quantile".'
            )
        if self.calibration == "conformal" and self.validation_fraction == 0:
            raise ValueError('calibration="conformal" needs rows held out: give validation_fraction above zero.')
        if noise_std is not None and (self.likelihood != "gaussian" or self.target_transform is not None):
            raise ValueError('noise_std needs likelihood="gaussian" and no target_transform: errors are in units of y.')

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

    def _targets(self, y: Any) -> Array:
        check_is_fitted(self, "_predictor")
        targets = np.asarray(numbers(y), dtype=np.float64)
        targets = targets.reshape(len(targets), -1)
        if targets.shape[1] != len(self.target_names_):
            raise ValueError(f"y must have {len(self.target_names_)} targets, as in fit; got shape {targets.shape}.")
        if np.isnan(targets).any():
            raise ValueError(
                f"y has missing values, first in row {int(np.isnan(targets).any(1).argmax())}: drop those rows."
            )
        return targets

    def _known(self, noise_std: Any) -> Array:
        check_is_fitted(self, "_predictor")
        self._check_options(noise_std)
        errors = np.atleast_1d(np.asarray(plain_array(noise_std), dtype=np.float64))
        return (known_errors(errors, len(errors))[None] / self._target.scale[:, None]) ** 2

    def _predictives(
        self, X: Any, known: Array | None = None, y: Array | None = None
    ) -> Iterator[tuple[slice, Predictive]]:
        """The distribution of y for the rows of X, piece by piece; `known` and `y` must have as many rows."""
        for given, name in ((known, "noise_std"), (None if y is None else y.T, "y")):
            if given is not None and given.shape[1] != n_rows(X):
                raise ValueError(f"{name} has {given.shape[1]} rows, X has {n_rows(X)}.")
        for part, rows in self._batches(X):
            mean, variance = self._moments(rows)
            yield part, self._predictive(mean, variance, None if known is None else known[:, part])

    def _predictive(self, mean: Array, variance: Array, known: Array | None = None) -> Predictive:
        return Predictive(mean, variance, self._noise(), self._target, known, self._calibration)

    def _noise(self) -> Noise:
        likelihood = self.likelihood_
        df = (
            float(likelihood.deg_free.detach())
            if isinstance(likelihood, gpytorch.likelihoods.StudentTLikelihood)
            else None
        )
        return Noise(float(likelihood.noise.detach()), df)

    def _covariance(self, X: Any, noise_std: Any) -> tuple[Array, Array]:
        check_is_fitted(self, "_predictor")
        if self._target.transform is not None:
            raise ValueError("return_cov is for targets without a target_transform: draw with sample_y instead.")
        rows = self._encode(X)
        if len(rows) > MAX_COVARIANCE:
            raise ValueError(
                f"the covariance of {len(rows)} rows is too large: ask for {MAX_COVARIANCE} at most, or use sample_y."
            )
        mean, cov = self._predictor.covariance(self._inputs_of(rows))
        K = cov.double().numpy() + self._noise().variance * np.eye(len(rows))
        if noise_std is not None:
            known = self._known(noise_std)
            if known.shape[1] != len(rows):
                raise ValueError(f"noise_std has {known.shape[1]} rows, X has {len(rows)}.")
            K[:, np.arange(len(rows)), np.arange(len(rows))] += known
        K = K * self._target.scale[:, None, None] ** 2
        return self._shape(self._target.inverse(mean.double().numpy()).T), K[0] if self._one else K

    def _validate(self, result: Fit, y: Array, known: Array | None, conformal: bool) -> None:
        """Scores of the held-out rows, and the calibration that they give."""
        self.validation_: dict[str, float] | None = None
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
            "rows": float(len(rows) if weights is None else weights.sum()),
            "rmse": math.sqrt(average((predictive.mean() - observed) ** 2)),
            "nll": -average(predictive.log_density(observed)),
            "coverage": average((np.abs(pit - 0.5) < 0.475).astype(float)),
        }
        if conformal or (self.calibration == "auto" and any(uneven(column, weights) for column in pit.T)):
            self._calibration = tuple(Conformal.of(column, weights) for column in pit.T)

    def _component_scale(self) -> Array:
        return np.ones(1) if self._target.transform is not None else self._target.scale

    def _flat(self) -> bool:
        return self._one

    def _shape(self, values: Array) -> Array:
        """[..., P] as the user gave y: without the last axis for one target."""
        return values[..., 0] if self._one else values


def suggest_symmetry(X: Any, y: Any, **arguments: Any) -> SymmetryChoice:
    """The choice that `HarmonicGPRegressor(**arguments).fit(X, y)` would make, with its table; nothing else is fitted.

    Small tables, which a fit takes without a search, are searched here too.
    """
    model = HarmonicGPRegressor(**arguments)
    model._settle(*model._prepare(X, y, None, None), model._likelihood, search_small=True)
    return model.symmetry_
