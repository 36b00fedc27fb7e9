"""Classification with probabilities."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from harmonicgp.actions import Action
from harmonicgp.estimators.base import HarmonicGPBase, fresh_seed
from harmonicgp.estimators.reading import is_table
from harmonicgp.estimators.saving import SavedModel
from harmonicgp.groups import Resolution
from harmonicgp.likelihoods import SoftmaxBoundLikelihood, observe
from harmonicgp.tables.arrays import is_missing, n_rows, plain_array, target_names, validated, weights_of
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.rows import Rows, merge
from harmonicgp.training import Callback, Fit

#: With more classes than this, fit costs and memory grow too large.
MAX_CLASSES = 50


class HarmonicGPClassifier(SavedModel, ClassifierMixin, HarmonicGPBase):
    """Gaussian process classification of two or many classes: `fit`, `predict`, `predict_proba`.

    Two classes have one latent function through the normal distribution function; more have one each, and
    their softmax. Arguments are those of `HarmonicGPRegressor`, without what belongs to a numeric target.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> gp = HarmonicGPClassifier(max_steps=30).fit(X, np.where(X[:, 0] > 0, "right", "left"))
        >>> gp.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
        ['right', 'left']
    """

    def __init__(
        self,
        kernel: str | gpytorch.kernels.Kernel = "matern32",
        symmetry: str | Action | None = "auto",
        n_inducing: int | str = "auto",
        share_inducing: bool = True,
        resolution: Resolution = "complex",
        posterior: str = "auto",
        warp: str | None = "auto",
        columns: Any = None,
        missing: str = "refuse",
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
        self.warp = warp
        self.columns = columns
        self.missing = missing
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HarmonicGPClassifier:
        """Fit to rows X [N, d] and classes y [N], numbers or text. A `sample_weight` of two is two equal rows."""
        distinct = self._prepare(X, y, sample_weight)
        result = self._fit_rows(distinct, distinct.y.T, None, self._likelihood)
        self._validate(result, distinct.y[:, 0].astype(int))
        return self

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Distinct rows with class numbers."""
        self._start = time.perf_counter()
        self._check_arguments()
        self._seed = fresh_seed(self.random_state)
        rows, labels, weight = self._rows(X, y, sample_weight, reset=True)
        used = labels if weight is None else labels[weight > 0]
        self.classes_ = np.unique(used)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()}: a classifier needs at least two.")
        if len(self.classes_) > MAX_CLASSES:
            raise ValueError(
                f"y has {len(self.classes_)} classes, more than {MAX_CLASSES}: is it a number? Then use HarmonicGPRegressor."
            )
        self._describe(rows)
        numbers = np.searchsorted(self.classes_, labels)  # a class of weight zero may be unknown: dropped below
        distinct = merge(rows, numbers[:, None].astype(np.float64), None, weight)
        self._one = len(self.classes_) == 2
        return distinct

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> HarmonicGPClassifier:
        """New rows for the posterior, at the present parameters. The first call is `fit`; all classes must be in it."""
        if not hasattr(self, "_predictor"):
            self.fit(X, y, sample_weight)
            unseen = (
                [] if classes is None else [c for c in np.asarray(classes).tolist() if c not in self.classes_.tolist()]
            )
            if unseen:
                raise ValueError(
                    f"the first call of partial_fit needs rows of every class; there are none of {unseen}."
                )
            return self
        rows, labels, weight = self._rows(X, y, sample_weight, reset=False)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"y has classes that fit has not seen: {unknown.tolist()}.")
        numbers = np.searchsorted(self.classes_, labels)
        distinct = merge(rows, numbers[:, None].astype(np.float64), None, weight)
        self._absorb(distinct.X, distinct.y.T, None, distinct.counts)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, [n, classes], in the order of `classes_`."""
        return np.concatenate([self._probabilities(*self._moments(rows)) for _, rows in self._batches(X)])

    def predict(self, X: Any) -> Array:
        """The most probable class, [n]."""
        check_is_fitted(self, "_predictor")
        return self.classes_[self.predict_proba(X).argmax(-1)]

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """The latent functions, [n] for two classes or [n, classes], and their standard deviations."""
        parts = [self._moments(rows) for _, rows in self._batches(X)]
        mean, variance = (np.concatenate(which, -1).T for which in zip(*parts, strict=True))
        mean, std = (mean[:, 0], np.sqrt(variance[:, 0])) if self._one else (mean, np.sqrt(variance))
        return (mean, std) if return_std else mean

    def log_density(self, X: Any, y: Any) -> Array:
        """Log p(y | X, data) of each row, [n]."""
        check_is_fitted(self, "_predictor")
        labels = np.asarray(plain_array(y))
        if len(labels) != n_rows(X):
            raise ValueError(f"y has {len(labels)} rows, X has {n_rows(X)}.")
        place = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        known = self.classes_[place] == labels
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(self.predict_proba(X)[np.arange(len(labels)), place]), -np.inf)

    def _likelihood(self, dtype: torch.dtype) -> gpytorch.likelihoods.Likelihood:
        if len(self.classes_) == 2:
            return gpytorch.likelihoods.BernoulliLikelihood()
        return SoftmaxBoundLikelihood(len(self.classes_))

    def _probabilities(self, mean: Array, variance: Array) -> Array:
        m, v = torch.from_numpy(mean.T.copy()), torch.from_numpy(variance.T.copy())
        P: Array = observe(self.likelihood_).class_probabilities(m, v).numpy()
        return P / P.sum(-1, keepdims=True)

    def _rows(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Array, Array, Array | None]:
        if y is None:
            raise ValueError("HarmonicGPClassifier requires y to be passed, but the target y is None.")
        if reset:
            self.target_names_ = target_names(y) or ["y"]
        y = plain_array(y)
        given = np.asarray(y)
        if given.dtype.kind in "Of" and any(map(is_missing, given.ravel().tolist())):
            raise ValueError("y has missing values: drop those rows.")
        kinds = {type(v).__name__ for v in given.ravel().tolist()} if given.dtype.kind == "O" else set()
        if "str" in kinds and len(kinds) > 1:
            raise ValueError(
                f"y has labels of mixed types, {', '.join(sorted(kinds))}: make them all text, or all numbers."
            )
        if given.dtype.kind == "f" and np.isinf(given).any():
            raise ValueError("y has infinite values: drop those rows.")
        if is_table(X):
            weight = weights_of(sample_weight, X)
            rows = self._encode(X, reset, weight)
            check_consistent_length(rows, y)
        else:
            if reset:
                self._table = None
            rows, y = validated(self, X, y, reset=reset)
            weight = weights_of(sample_weight, rows)
            if not reset:
                rows = self._encode(X)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return rows, labels, weight

    def _validate(self, result: Fit, numbers: Array) -> None:
        self.validation_: dict[str, Any] | None = None
        held = result.validation
        if held is None:
            return
        P = self._probabilities(held.mean.double().numpy(), held.variance.double().numpy())
        y = numbers[held.rows.numpy()]
        self.validation_ = {
            "method": "held-out",
            "rows": float(len(y)),
            "accuracy": float((P.argmax(-1) == y).mean()),
            "nll": float(-np.log(P[np.arange(len(y)), y]).mean()),
        }
