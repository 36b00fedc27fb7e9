"""What a report is about: a fitted model, rows, targets, scores, and a sample of rows to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.diagnostics.scores import (
    Array,
    ClassificationScores,
    Scores,
    Table,
    as_table,
    as_targets,
    class_numbers,
    classification_scores,
    regression_scores,
    take,
    target_names,
)

MOST_POINTS = 5000
MOST_NAMES = 10


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

    @classmethod
    def of(cls, model: Any, X: Any, y: Any) -> Case:
        """Score the model and draw the sample."""
        table, classes = as_table(X), None
        if hasattr(model, "predict_proba"):
            classes = np.asarray(model.classes_).tolist()
            values = class_numbers(y, classes)
            scores: Scores | ClassificationScores = classification_scores(model, X, y)
        else:
            values = as_targets(y)
            scores = regression_scores(model, X, values)
        n = table.shape[0]
        rows = np.arange(n)
        if n > MOST_POINTS:
            rows = np.sort(np.random.default_rng(0).choice(n, MOST_POINTS, replace=False))
        values = values.reshape(n, -1)
        masks = model.beyond(X) if hasattr(model, "beyond") else {}
        words = beyond_in_words(rows_beyond(masks), n, list(masks), classes is not None) if masks else ""
        names = target_names(model, values.shape[1])
        return cls(model, table, values, names, classes, scores, rows, take(table, rows), words)

    @property
    def observed(self) -> Array:
        """The targets of the sample, [s, P]."""
        return self.y[self.sample]

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
