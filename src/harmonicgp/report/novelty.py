"""What in new rows differs from the rows of the fit: new levels, new missing values, values out of range."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonicgp.tables.kinds import listed
from harmonicgp.tables.notices import UnseenWarning

MOST_NAMES = 10


@dataclass(frozen=True)
class Novelty:
    """What in some rows is new to a model. The values for the batches of a table can be added."""

    rows: int = 0
    out_of_range: int = 0  #: rows outside the range that a column had in the fit
    columns: tuple[str, ...] = ()  #: the columns with such rows
    unseen: tuple[UnseenWarning, ...] = ()  #: one warning for each column with new levels or new missing values

    @classmethod
    def of(cls, model: Any, X: Any) -> Novelty:
        """Compare rows X with those of the fit. The result holds the `UnseenWarning`s; only other warnings are shown."""
        if not hasattr(model, "beyond"):
            return cls(len(X))
        with warnings.catch_warnings(record=True, action="always", category=UnseenWarning) as caught:
            masks = model.beyond(X)
        messages = [each.message for each in caught]
        for message in messages:
            if not isinstance(message, UnseenWarning):
                warnings.warn(message, stacklevel=2)
        count = int(np.any(list(masks.values()), axis=0).sum()) if masks else 0
        return cls(len(X), count, tuple(masks), tuple(m for m in messages if isinstance(m, UnseenWarning)))

    def __add__(self, other: Novelty) -> Novelty:
        unseen: dict[tuple[type, str], UnseenWarning] = {}
        for message in self.unseen + other.unseen:
            key = type(message), message.column
            unseen[key] = unseen[key] + message if key in unseen else message
        columns = tuple(dict.fromkeys(self.columns + other.columns))
        return Novelty(self.rows + other.rows, self.out_of_range + other.out_of_range, columns, tuple(unseen.values()))

    def sentence(self, model: Any) -> str:
        """How many rows are out of range, in which columns, and what follows; empty if there are none.

        Examples:
            >>> from types import SimpleNamespace
            >>> model = SimpleNamespace(encoded_names_=["age", "when (trend)"])
            >>> Novelty(10_000, 312, ("when (trend)", "age")).sentence(model)
            '312 of 10,000 rows are outside the range of the fit in age, when (trend): the model extrapolates there, with wider
            error bars.'
        """
        if not self.out_of_range:
            return ""
        order = {name: place for place, name in enumerate(model.encoded_names_)}
        names = sorted(self.columns, key=lambda name: order.get(name, len(order)))
        verb = "is" if self.out_of_range == 1 else "are"
        effect = "" if hasattr(model, "classes_") else ", with wider error bars"
        return (
            f"{self.out_of_range:,} of {self.rows:,} rows {verb} outside the range of the fit in "
            f"{listed(names, MOST_NAMES, str)}: the model extrapolates there{effect}."
        )


def ignore_unseen() -> AbstractContextManager[object]:
    """A context in which no `UnseenWarning` is shown, because a `Novelty` holds them."""
    return warnings.catch_warnings(action="ignore", category=UnseenWarning)
