"""Predictions of numbers: mean, error bars, quantiles, densities, draws, all in the units of y."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from harmonicgp._validation import whole_number
from harmonicgp.estimators.base import HarmonicGPBase, fresh_seed
from harmonicgp.estimators.predictive import Conformal, Noise, Predictive
from harmonicgp.likelihoods import observe
from harmonicgp.tables.arrays import known_errors, n_rows, numbers, plain_array
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.targets import Target

#: Rows up to which `sample_y` draws from the covariance.
MAX_DRAWN = 2_000
#: Rows at which `return_cov` and `sample_y` with covariance are refused.
MAX_COVARIANCE = 10_000


class PredictsNumbers(HarmonicGPBase):
    """The half of HarmonicGPRegressor that comes after `fit`."""

    _target: Target
    _one: bool  #: y was given as one target, not as a column
    _calibration: tuple[Conformal, ...]  #: one a target, or none

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
        return Noise(*observe(self.likelihood_).predictive_noise())

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

    def _component_scale(self) -> Array:
        return np.ones(1) if self._target.transform is not None else self._target.scale

    def _flat(self) -> bool:
        return self._one

    def _shape(self, values: Array) -> Array:
        """[..., P] as the user gave y: without the last axis for one target."""
        return values[..., 0] if self._one else values
