"""Classification with probabilities."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from harmonicgp.estimators.base import TableEstimator
from harmonicgp.estimators.fitting import fit_model
from harmonicgp.likelihoods import observe
from harmonicgp.symmetry.options import check_options
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.arrays import plain_array
from harmonicgp.tables.columns import Array
from harmonicgp.tables.preprocessing import ClassificationPreprocessing
from harmonicgp.training.finish import Validation


class HarmonicGPClassifier(ClassifierMixin, TableEstimator):
    """Gaussian process classification of two or many classes: `fit`, `predict`, `predict_proba`.

    Two classes have one latent function with a probit likelihood. More classes have a latent function each, with a softmax
    likelihood. The arguments are those of `HarmonicGPRegressor`, without those for numeric targets (`bound`, `likelihood`,
    `target_transform`, `calibration`, `neighbours`). `harmonicgp.estimators.base.TableEstimator` lists the fitted attributes.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> gp = HarmonicGPClassifier(max_steps=30).fit(X, np.where(X[:, 0] > 0, "right", "left"))
        >>> gp.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
        ['right', 'left']
    """

    preprocessing_: ClassificationPreprocessing

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HarmonicGPClassifier:
        """Fit to rows X [N, d] and classes y [N], numbers or text. A `sample_weight` of two counts as two equal rows."""
        start = time.perf_counter()
        check_options(self)
        reader = copy.copy(self)
        preprocessing, rows = ClassificationPreprocessing.fit(
            X, y, reader, columns=self.columns, missing=self.missing, sample_weight=sample_weight
        )
        data = preprocessing.model_rows(rows)
        model, held_out = fit_model(data, ModelSettings.of(self, preprocessing, len(data), start))
        scores = None if held_out is None else _scores(held_out, rows.y[:, 0].astype(int), model.likelihood)
        self._set_fitted(preprocessing, replace(model, validation=scores))
        self._set_names(reader)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> HarmonicGPClassifier:
        """Add new rows to the posterior at the present parameters. The first call is `fit`, and must have all classes."""
        if not hasattr(self, "model_"):
            self.fit(X, y, sample_weight)
            labels = [] if classes is None else np.asarray(classes).tolist()
            unseen = [label for label in labels if label not in self.classes_.tolist()]
            if unseen:
                raise ValueError(f"the first call of partial_fit needs rows of every class; it has none of {unseen}.")
            return self
        rows = self.preprocessing_.read(X, y, self, self.unused_names(), sample_weight)
        self._set_fitted(self.preprocessing_, self.model_.absorb(self.preprocessing_.model_rows(rows)))
        return self

    @property
    def classes_(self) -> Array:
        """The classes, sorted."""
        return self.preprocessing_.classes

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, [n, classes], in the order of `classes_`."""
        parts = [_probabilities(*self.model_.moments(rows), self.likelihood_) for _, rows in self._batches(X)]
        return np.concatenate(parts)

    def predict(self, X: Any) -> Array:
        """The most probable class, [n]."""
        check_is_fitted(self, "model_")
        return self.classes_[self.predict_proba(X).argmax(-1)]

    def predict_f(self, X: Any, return_std: bool = False) -> Any:
        """The mean of the latent functions, [n] for two classes or [n, classes], and their standard deviations."""
        parts = [self.model_.moments(rows) for _, rows in self._batches(X)]
        mean, variance = (np.concatenate(which, -1).T for which in zip(*parts, strict=True))
        if self.preprocessing_.flat:
            mean, variance = mean[:, 0], variance[:, 0]
        return (mean, np.sqrt(variance)) if return_std else mean

    def log_density(self, X: Any, y: Any) -> Array:
        """Log p(y | X, data) of each row, [n]; minus infinity for classes that were not in the fit."""
        check_is_fitted(self, "model_")
        labels = np.asarray(plain_array(y))
        if len(labels) != len(X):
            raise ValueError(f"y has {len(labels)} rows, X has {len(X)}.")
        place = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        is_class = self.classes_[place] == labels
        with np.errstate(divide="ignore"):
            return np.where(is_class, np.log(self.predict_proba(X)[np.arange(len(labels)), place]), -np.inf)


def _probabilities(mean: Array, variance: Array, likelihood: Any) -> Array:
    """Probabilities [n, classes] from the moments [P, n] of the latent functions."""
    with torch.device("cpu"):  # PyTorch's Sobol engine takes the default device
        m, v = torch.from_numpy(mean.T.copy()), torch.from_numpy(variance.T.copy())
        P: Array = observe(likelihood).class_probabilities(m, v).numpy()
    return P / P.sum(-1, keepdims=True)


def _scores(held_out: Validation, numbers: Array, likelihood: Any) -> dict[str, Any]:
    """Scores of the held-out rows; `numbers` [N] are the classes of all rows."""
    mean, variance = held_out.mean.double().cpu().numpy(), held_out.variance.double().cpu().numpy()
    P, y = _probabilities(mean, variance, likelihood), numbers[held_out.rows.cpu().numpy()]
    return {
        "method": "held-out",
        "rows": float(len(y)),
        "accuracy": float((P.argmax(-1) == y).mean()),
        "nll": float(-np.log(P[np.arange(len(y)), y]).mean()),
    }
