"""Scores of a fitted model on rows: errors, densities, coverage. Rows are processed in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from scipy.stats import binom
from sklearn.metrics import confusion_matrix
from sklearn.utils import gen_batches

from harmonicgp._validation import whole_number
from harmonicgp.tables.columns import Array

Table = nw.DataFrame[Any] | Array

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
PIT_BINS = 200  # edges at multiples of 0.005: central intervals of 1 %, 2 %, ... begin and end at edges
RELIABILITY_BINS = 10


@dataclass(frozen=True)
class Scores:
    """Scores of a regression on some rows. With several targets these are means, and `targets` holds the scores of each.

    All numbers are in the units of y. `nll` is the mean of -log p(y | x). `coverage` and `width` are those of the central
    intervals by level; the width is a mean over rows. `pit` counts the rows by P(Y <= y) in equal bins of [0, 1].

    Examples:
        >>> from harmonicgp import HarmonicGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> gp = HarmonicGPRegressor(max_steps=20, progress=False).fit(X[::2], np.sin(X[::2, 0]))
        >>> scores = regression_scores(gp, X[1::2], np.sin(X[1::2, 0]))
        >>> scores.rows, scores.rmse < 0.1, list(scores.coverage)
        (20, True, [0.5, 0.8, 0.9, 0.95, 0.99])
    """

    target: str
    rows: int
    rmse: float
    mae: float
    r2: float
    nll: float
    coverage: dict[float, float]
    width: dict[float, float]
    pit: Array = field(repr=False, compare=False)
    targets: tuple[Scores, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The numbers as values for JSON, without the PIT counts."""
        plain: dict[str, Any] = {key: getattr(self, key) for key in ("target", "rows", "rmse", "mae", "r2", "nll")}
        for key in ("coverage", "width"):
            plain[key] = {f"{level:g}": value for level, value in getattr(self, key).items()}
        if self.targets:
            plain["targets"] = [each.as_dict() for each in self.targets]
        return plain


@dataclass(frozen=True)
class Reliability:
    """Rows by predicted probability, in ten equal bins.

    Examples:
        >>> from harmonicgp import HarmonicGPClassifier
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> gp = HarmonicGPClassifier(max_steps=5, progress=False).fit(X[::2], X[::2, 0] > 0)
        >>> reliability = classification_scores(gp, X[1::2], X[1::2, 0] > 0).reliability
        >>> reliability.counts.sum(), reliability.predicted.shape
        (np.int64(20), (10,))
    """

    counts: Array  #: rows of each bin, [10]
    predicted: Array  #: the mean predicted probability, [10]; NaN for an empty bin
    observed: Array  #: the observed frequency, [10]; NaN for an empty bin


@dataclass(frozen=True)
class ClassificationScores:
    """Scores of a classifier on some rows.

    `brier` is the mean squared error of the probabilities, summed over classes (halved for two classes, as in scikit-learn).
    `reliability` is that of the second class for two classes, else that of the predicted class. `confusion` counts rows by class
    (down) and predicted class (across).

    Examples:
        >>> from harmonicgp import HarmonicGPClassifier
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> gp = HarmonicGPClassifier(max_steps=5, progress=False).fit(X[::2], X[::2, 0] > 0)
        >>> scores = classification_scores(gp, X[1::2], X[1::2, 0] > 0)
        >>> scores.accuracy > 0.8, scores.confusion.shape
        (True, (2, 2))
    """

    target: str
    rows: int
    accuracy: float
    log_loss: float
    brier: float
    reliability: Reliability = field(repr=False, compare=False)
    classes: tuple[Any, ...] = field(repr=False)
    confusion: Array = field(repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """The numbers as values for JSON, without reliability and confusion."""
        return {key: getattr(self, key) for key in ("target", "rows", "accuracy", "log_loss", "brier")}


def rmse(y: Any, predicted: Any) -> float:
    """The root of the mean squared error.

    Examples:
        >>> rmse([1.0, 2.0], [1.0, 4.0])
        1.414...
    """
    error = np.asarray(y, np.float64) - np.asarray(predicted, np.float64)
    return float(np.sqrt(np.mean(error**2)))


def coverage(pit: Any, levels: Sequence[float] = LEVELS) -> Array:
    """The share of rows whose PIT lies in the central interval of each level: [L] from pit [n], [L, P] from [n, P].

    Examples:
        >>> coverage([0.01, 0.2, 0.5, 0.9], levels=[0.5, 0.9])
        array([0.25, 0.75])
    """
    pit = _check_pit(pit)
    if not all(0 <= level <= 1 for level in levels):
        raise ValueError(f"levels must lie between 0 and 1; got {list(levels)}: write 0.9 for 90 %.")
    distance = np.abs(pit - 0.5)
    return np.array([np.mean(distance <= level / 2, axis=0) for level in levels])


def pit_histogram(pit: Any, bins: int = 20) -> Array:
    """Rows by PIT in equal bins of [0, 1]: counts [bins] from pit [n], [bins, P] from [n, P]. Flat for a calibrated model.

    Examples:
        >>> pit_histogram([0.01, 0.2, 0.5, 0.9], bins=4)
        array([2, 0, 1, 1])
    """
    whole_number(bins, "bins", 1)
    return np.apply_along_axis(lambda column: np.histogram(column, bins, (0.0, 1.0))[0], 0, _check_pit(pit))


def binomial_band(rows: Any, share: Any, probability: float = 0.95) -> tuple[Any, Any]:
    """The interval of the observed share of independent rows, by chance, if the true share is `share`.

    Examples:
        >>> low, high = binomial_band(100, 0.9)
        >>> print(f"{low:.2f} to {high:.2f}")
        0.84 to 0.95
    """
    low, high = binom.interval(probability, rows, share)
    return low / rows, high / rows


def regression_scores(model: Any, X: Any, y: Any, chunk_size: int = 65536, noise_std: Any = None) -> Scores:
    """Scores of a fitted regressor on rows X with targets y, [n] or [n, P], which should not be rows of the fit.

    `noise_std` [n] holds known errors of y, which are added to the predictions.

    Examples:
        >>> from harmonicgp import HarmonicGPRegressor
        >>> X = np.random.default_rng(0).normal(size=(40, 1))
        >>> gp = HarmonicGPRegressor(max_steps=20, progress=False).fit(X[:30], np.sin(X[:30, 0]))
        >>> regression_scores(gp, X[30:], np.sin(X[30:, 0])).rows
        10
    """
    table, values, errors = as_table(X), as_targets(y), as_errors(noise_std)
    n = _same_rows(table, values)
    if errors is not None and len(errors) != n:
        raise ValueError(f"X has {n} rows and noise_std has {len(errors)}: give one error a row.")
    P, L = values.size // n, len(LEVELS)
    tails = [0.5 + sign * level / 2 for sign in (-1, 1) for level in LEVELS]
    parts = []
    for rows in gen_batches(n, whole_number(chunk_size, "chunk_size", 1)):
        part, target = take(table, rows), values[rows]
        m, noise = len(target), {} if errors is None else {"noise_std": errors[rows]}
        quantiles = _shaped(model.predict_quantiles(part, tails, **noise), (m, 2 * L, P), "predict_quantiles")
        error = target.reshape(m, P) - _shaped(model.predict(part, **noise), (m, P), "predict")
        density = _shaped(model.log_density(part, target, **noise), (m, P), "log_density")
        pit = _shaped(model.pit(part, target, **noise), (m, P), "pit")
        parts.append((error, density, pit, (quantiles[:, L:] - quantiles[:, :L]).sum(0, keepdims=True)))
    error, density, pit, width = (np.concatenate(each) for each in zip(*parts, strict=True))
    squared, values = np.mean(error**2, axis=0), values.reshape(n, P)
    spread = np.where(np.ptp(values, axis=0) > 0, values.var(0), np.nan)  # the variance of a constant would be rounding
    covered, width, counts = coverage(pit), width.sum(0) / n, pit_histogram(pit, PIT_BINS)
    by_target = tuple(
        Scores(
            target=name,
            rows=n,
            rmse=float(np.sqrt(squared[p])),
            mae=float(np.abs(error[:, p]).mean()),
            r2=float(1 - squared[p] / spread[p]),
            nll=-float(density[:, p].mean()),
            coverage=dict(zip(LEVELS, covered[:, p].tolist(), strict=True)),
            width=dict(zip(LEVELS, width[:, p].tolist(), strict=True)),
            pit=counts[:, p],
        )
        for p, name in enumerate(target_names(model, P))
    )
    return by_target[0] if P == 1 else _mean_scores(by_target)


def classification_scores(model: Any, X: Any, y: Any, chunk_size: int = 65536) -> ClassificationScores:
    """Scores of a fitted classifier on rows X with labels y [n], which should not be rows of the fit.

    Examples:
        >>> from harmonicgp import HarmonicGPClassifier
        >>> X = np.random.default_rng(0).normal(size=(40, 1))
        >>> gp = HarmonicGPClassifier(max_steps=20, progress=False).fit(X[:30], X[:30, 0] > 0)
        >>> classification_scores(gp, X[30:], X[30:, 0] > 0).classes
        (False, True)
    """
    table, classes = as_table(X), np.asarray(model.classes_).tolist()
    labels = class_numbers(y, classes)
    n, K = _same_rows(table, labels), len(classes)
    parts = []
    for rows in gen_batches(n, whole_number(chunk_size, "chunk_size", 1)):
        truth, p = labels[rows], np.asarray(model.predict_proba(take(table, rows)))
        if p.shape != (len(truth), K):
            raise ValueError(f"predict_proba gave shape {p.shape} for {len(truth)} rows and {K} classes.")
        smallest = np.finfo(p.dtype).eps
        p = p.astype(np.float64)
        p_true = p[np.arange(len(truth)), truth]
        loss, brier = -np.log(np.maximum(p_true, smallest)), (p**2).sum(1) - 2 * p_true + 1
        parts.append((loss, brier, p.argmax(1), p[:, 1] if K == 2 else p.max(1)))
    loss, brier, best, stated = (np.concatenate(each) for each in zip(*parts, strict=True))
    occurred = labels == (1 if K == 2 else best)
    place = np.clip((stated * RELIABILITY_BINS).astype(int), 0, RELIABILITY_BINS - 1)
    counts, predicted, observed = (np.bincount(place, each, RELIABILITY_BINS) for each in (None, stated, occurred))
    with np.errstate(invalid="ignore"):
        reliability = Reliability(counts, predicted / counts, observed / counts)
    return ClassificationScores(
        target=target_names(model, 1)[0],
        rows=n,
        accuracy=float(np.mean(best == labels)),
        log_loss=float(loss.mean()),
        brier=float(brier.mean()) / (2 if K == 2 else 1),
        reliability=reliability,
        classes=tuple(classes),
        confusion=confusion_matrix(labels, best, labels=range(K)),
    )


def score_rows(model: Any, X: Any, y: Any, noise_std: Any = None) -> Scores | ClassificationScores:
    """The scores of a fitted classifier or regressor on rows X, y."""
    if not hasattr(model, "predict_proba"):
        return regression_scores(model, X, y, noise_std=noise_std)
    if noise_std is not None:
        raise ValueError("noise_std is for regressions: classes have no known errors.")
    return classification_scores(model, X, y)


def as_table(X: Any) -> Table:
    """X as a table for `take`: a frame (pandas, polars, pyarrow) through narwhals, else an array [n, d]."""
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"X is a lazy frame ({type(X).__name__}), which has no rows yet: call .collect() on it first.")
    if isinstance(frame, nw.DataFrame):
        return frame
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must be a frame or an array [n, d], one row a line; got shape {array.shape}.")
    return array


def take(table: Table, rows: slice | Array) -> Any:
    """Some rows of a table, in its original type."""
    part = table[rows]
    return part.to_native() if isinstance(part, nw.DataFrame) else part


def as_targets(y: Any) -> Array:
    """Targets as float64, [n] or [n, P]."""
    try:
        values = np.asarray(y).astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError("y must hold numbers; for labels use a classifier and classification_scores.") from None
    if values.ndim not in (1, 2):
        raise ValueError(f"y must be [n] or [n, P], one row a line; got shape {values.shape}.")
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(1)))
        raise ValueError(f"y has missing or infinite values, first in row {row}: drop those rows from X and y.")
    return values


def as_errors(noise_std: Any) -> Array | None:
    """Known errors of the rows as float64 [n]; None if there are none."""
    return None if noise_std is None else np.asarray(noise_std, np.float64).reshape(-1)


def class_numbers(y: Any, classes: Sequence[Any]) -> Array:
    """Labels as class numbers, [n]."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label a row, [n]; got shape {labels.shape}.")
    number = {label: k for k, label in enumerate(classes)}
    numbers = np.fromiter((number.get(label, -1) for label in labels.tolist()), np.int64, len(labels))
    if (numbers < 0).any():
        unknown = sorted({repr(label) for label in labels[numbers < 0].tolist()})
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise ValueError(f"y has labels that were not in the fit: {shown}. Drop those rows from X and y.")
    return numbers


def target_names(model: Any, P: int) -> list[str]:
    """The names of P targets: those of the model if it has them."""
    names = getattr(model, "target_names_", None)
    if names is not None and len(names) == P:
        return [str(name) for name in names]
    return ["y"] if P == 1 else [f"y{p}" for p in range(P)]


def _same_rows(table: Table, y: Array) -> int:
    n = table.shape[0]
    if len(y) != n:
        raise ValueError(f"X has {n} rows and y has {len(y)}: give one target a row.")
    if n == 0:
        raise ValueError("X has no rows: scores need at least one.")
    return n


def _shaped(values: Any, shape: tuple[int, ...], method: str) -> Array:
    """Predictions of a model as an array of this shape; [n] counts as [n, 1]."""
    array = np.asarray(values, np.float64)
    if array.shape not in (shape, shape[:-1] if shape[-1] == 1 else shape):
        raise ValueError(
            f"{method} gave shape {array.shape}, but y needs {shape}: y and the targets of the model differ."
        )
    return array.reshape(shape)


def _check_pit(pit: Any) -> Array:
    array = np.asarray(pit, np.float64)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise ValueError(f"pit must be [n] or [n, P] with at least one row; got shape {array.shape}.")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError("pit must lie between 0 and 1, without NaN: it is P(Y <= y), such as model.pit(X, y).")
    return array


def _mean_scores(by_target: tuple[Scores, ...]) -> Scores:
    values: dict[str, Any] = {
        key: float(np.mean([getattr(scores, key) for scores in by_target])) for key in ("rmse", "mae", "r2", "nll")
    }
    for key in ("coverage", "width"):
        values[key] = {level: float(np.mean([getattr(scores, key)[level] for scores in by_target])) for level in LEVELS}
    pit = np.sum([scores.pit for scores in by_target], axis=0)
    return Scores(f"mean of {len(by_target)} targets", by_target[0].rows, **values, pit=pit, targets=by_target)
