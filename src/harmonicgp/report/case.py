"""The data of a report: a fitted model, rows, targets, scores, and a sample of the rows for pictures."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.report.novelty import Novelty, ignore_unseen
from harmonicgp.report.scores import (
    ClassificationScores,
    Scores,
    Table,
    as_errors,
    as_table,
    as_targets,
    class_numbers,
    score_rows,
    take,
    target_names,
)
from harmonicgp.tables.columns import Array

MOST_POINTS = 5000
MOST_TARGETS = 6  #: targets with pictures of their own


def is_exact(model: Any) -> bool:
    """Whether a model is an exact GP, with an inducing point at every row, as for small tables with Gaussian noise."""
    symmetry = getattr(model, "symmetry_", None)
    if getattr(model, "likelihood", None) != "gaussian" or getattr(symmetry, "action", None):
        return False
    if (validation := getattr(model, "validation_", None)) is not None:
        return bool(validation.get("method") == "leave-one-out")
    if getattr(model, "n_inducing", None) != "auto":  # files of older versions have no scores for exact models
        return False
    return getattr(symmetry, "origin", None) == "few rows" or (getattr(model, "validation_fraction", None) or 0) > 0


@dataclass(frozen=True)
class Case:
    """A fitted model, and the rows on which it is scored. Pictures show the rows `sample`, at most 5,000."""

    model: Any
    table: Table
    y: Array  #: [n, P]; class numbers [n, 1] for a classifier
    names: list[str]  #: of the targets
    classes: list[Any] | None  #: None for a regression
    scores: Scores | ClassificationScores
    sample: Array  #: row numbers in increasing order
    novelty: Novelty
    noise_std: Array | None  #: known errors of the rows, [n]

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, noise_std: Any = None) -> Case:
        """Score the model on rows X, y and draw the sample."""
        table, classes = as_table(X), None
        if hasattr(model, "predict_proba"):
            classes = np.asarray(model.classes_).tolist()
        values = as_targets(y) if classes is None else class_numbers(y, classes)
        novelty = Novelty.of(model, X)
        for message in novelty.unseen:
            warnings.warn(message, stacklevel=3)
        with ignore_unseen():
            scores = score_rows(model, X, y, noise_std)
        sample = np.arange(scores.rows)
        if scores.rows > MOST_POINTS:
            sample = np.sort(np.random.default_rng(0).choice(scores.rows, MOST_POINTS, replace=False))
        values = values.reshape(scores.rows, -1)
        names = target_names(model, values.shape[1])
        return cls(model, table, values, names, classes, scores, sample, novelty, as_errors(noise_std))

    def fact(self, name: str, default: Any) -> Any:
        """A public attribute of the model, or the default if the model lacks it or it is None."""
        value = getattr(self.model, name, None)
        return default if value is None else value

    @property
    def origin(self) -> str | None:
        """The origin of the model's symmetry; None for a model without a symmetry."""
        return getattr(self.fact("symmetry_", None), "origin", None)

    @property
    def exact(self) -> bool:
        """Whether the model is an exact GP."""
        return is_exact(self.model)

    @property
    def encoded_names(self) -> list[str]:
        """The names of the encoded columns of the model."""
        return [str(name) for name in self.fact("encoded_names_", [])]

    @property
    def sample_rows(self) -> Any:
        """The sampled rows of X, in the form of X."""
        return take(self.table, self.sample)

    @property
    def shown_targets(self) -> list[str]:
        """The first few targets, which have their own pictures."""
        return self.names[:MOST_TARGETS]

    @property
    def observed(self) -> Array:
        """The targets of the sample, [s, P]."""
        return self.y[self.sample]

    def columns(self, places: list[int]) -> Array | None:
        """Encoded columns of the sample, [s, k]; None if X does not hold them unchanged."""
        names = self.encoded_names
        if isinstance(self.table, nw.DataFrame):
            by_name = {str(name): name for name in self.table.columns}
            series = [self.table.get_column(by_name[names[j]]) for j in places if names[j] in by_name]
            if len(series) < len(places) or not all(column.dtype.is_numeric() for column in series):
                return None
            return np.column_stack([np.asarray(column.to_numpy(), np.float64)[self.sample] for column in series])
        if self.table.shape[1] != len(names) or self.table.dtype.kind not in "fiub":
            return None
        return self.table[self.sample][:, places].astype(np.float64)
