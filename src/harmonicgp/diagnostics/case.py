"""What a report is about: a fitted model, rows, targets, scores, and a sample of rows to draw."""

from __future__ import annotations

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
        return cls(model, table, values, target_names(model, values.shape[1]), classes, scores, rows, take(table, rows))

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
