"""What a report is about: a fitted model, rows, targets, scores, and a sample of rows to draw."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.report.scores import (
    Array,
    ClassificationScores,
    Scores,
    Table,
    as_errors,
    as_table,
    as_targets,
    class_numbers,
    classification_scores,
    regression_scores,
    take,
    target_names,
)
from harmonicgp.tables.encoder import UnseenGapsWarning, UnseenLevelsWarning

MOST_POINTS = 5000
MOST_NAMES = 10
UNSEEN = (UnseenLevelsWarning, UnseenGapsWarning)


@dataclass(frozen=True)
class Case:
    """A fitted model and the rows it is looked at on; pictures are of the rows `sample`, at most 5000."""

    model: Any
    table: Table
    y: Array  #: [n, P]; class numbers [n, 1] for a classifier
    names: list[str]  #: of the targets
    classes: list[Any] | None  #: None for a regression
    scores: Scores | ClassificationScores
    sample: Array  #: row numbers, rising
    part: Any  #: those rows of X, as X was given
    beyond: str  #: how many rows lie beyond the data of the fit, in words; empty if none does
    noise_std: Array | None = None  #: known errors of the rows, [n]
    unseen: tuple[str, ...] = ()  #: levels and gaps that the fit has not seen, in words
    set_aside: bool = False  #: whether the fit itself set the rows aside
    file: str = "model.hgp"  #: where the model is

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, noise_std: Any = None) -> Case:
        """Score the model and draw the sample."""
        table, errors, classes = as_table(X), as_errors(noise_std), None
        if hasattr(model, "predict_proba"):
            if errors is not None:
                raise ValueError("noise_std is for regressions: a class has no error of its own.")
            classes = np.asarray(model.classes_).tolist()
        values = as_targets(y) if classes is None else class_numbers(y, classes)
        masks, unseen = what_is_new(model, X)
        for message in unseen:
            warnings.warn(message, stacklevel=3)
        with said_already():
            scores: Scores | ClassificationScores = (
                regression_scores(model, X, values, noise_std=errors)
                if classes is None
                else classification_scores(model, X, y)
            )
        n = table.shape[0]
        rows = np.arange(n)
        if n > MOST_POINTS:
            rows = np.sort(np.random.default_rng(0).choice(n, MOST_POINTS, replace=False))
        values = values.reshape(n, -1)
        words = beyond_in_words(rows_beyond(masks), n, list(masks), classes is not None) if masks else ""
        names = target_names(model, values.shape[1])
        part, told = take(table, rows), tuple(str(message) for message in unseen)
        return cls(model, table, values, names, classes, scores, rows, part, words, errors, told)

    @property
    def observed(self) -> Array:
        """The targets of the sample, [s, P]."""
        return self.y[self.sample]

    def known(self, rows: Array) -> dict[str, Array]:
        """Known errors of some rows, as a model's methods take them."""
        return {} if self.noise_std is None else {"noise_std": self.noise_std[rows]}

    def columns(self, wanted: list[int]) -> Array | None:
        """Encoded columns of the sample, [s, k], where X holds them as they are; else None."""
        names = [str(name) for name in self.model.encoded_names_]
        if isinstance(self.table, nw.DataFrame):
            own = {str(name): name for name in self.table.columns}
            found = [self.table.get_column(own[names[j]]) for j in wanted if names[j] in own]
            if len(found) < len(wanted) or not all(column.dtype.is_numeric() for column in found):
                return None
            return np.column_stack([np.asarray(column.to_numpy(), np.float64)[self.sample] for column in found])
        if self.table.shape[1] != len(names) or self.table.dtype.kind not in "fiub":
            return None
        return self.table[self.sample][:, wanted].astype(np.float64)


def is_exact(model: Any, inducing: int) -> bool:
    """Whether a fitted model has an inducing point at every row of its fit, as small tables under Gaussian noise have."""
    choice = getattr(model, "symmetry_", None)
    if getattr(model, "likelihood", None) != "gaussian" or getattr(choice, "action", None) is not None:
        return False
    found = getattr(model, "validation_", None)
    if found is not None:  # models from files of older versions have none where they are exact
        return bool(found.get("method") == "leave-one-out")
    if str(getattr(choice, "reason", "")).startswith(f"{inducing} rows are few"):
        return True
    return bool(getattr(model, "n_inducing", None) == "auto" and getattr(model, "validation_fraction", 0) > 0)


def what_is_new(model: Any, X: Any) -> tuple[dict[str, Array], list[Any]]:
    """What a model's `beyond` gives, and the warnings of levels and gaps that its fit has not seen."""
    if not hasattr(model, "beyond"):
        return {}, []
    with warnings.catch_warnings(record=True) as caught:
        for kind in UNSEEN:
            warnings.simplefilter("always", kind)
        masks = model.beyond(X)
    for message in (each.message for each in caught):
        if not isinstance(message, UNSEEN):
            warnings.warn(message, stacklevel=2)
    return masks, [each.message for each in caught if isinstance(each.message, UNSEEN)]


@contextmanager
def said_already() -> Iterator[None]:
    """Levels and gaps that the fit has not seen give no warnings in here."""
    with warnings.catch_warnings():
        for kind in UNSEEN:
            warnings.simplefilter("ignore", kind)
        yield


def rows_beyond(masks: Mapping[str, Array]) -> int:
    """How many rows lie beyond the data in some column, from what a model's `beyond` gives."""
    return int(np.any(list(masks.values()), axis=0).sum()) if masks else 0


def beyond_in_words(rows: int, total: int, columns: Sequence[str], classes: bool) -> str:
    """How many rows lie beyond the data of the fit, in which columns, and what that means.

    Examples:
        >>> beyond_in_words(312, 10_000, ["when (trend)", "age"], classes=False)
        '312 of 10,000 rows lie beyond the data of the fit in when (trend), age: their error bars widen, their means lean
        on the model.'
    """
    shown = ", ".join(columns[:MOST_NAMES]) + (f" and {len(columns) - MOST_NAMES} more" if columns[MOST_NAMES:] else "")
    one = rows == 1
    words = f"{rows:,} of {total:,} rows {'lies' if one else 'lie'} beyond the data of the fit in {shown}: "
    if classes:
        return words + ("its" if one else "their") + " probabilities lean on the model."
    if one:
        return words + "its error bar widens, its mean leans on the model."
    return words + "their error bars widen, their means lean on the model."
