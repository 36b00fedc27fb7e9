"""What rows hold that the fit has not seen: new levels, new gaps, values out of range."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonicgp.tables.notices import UnseenWarning

MOST_NAMES = 10


@dataclass(frozen=True)
class Novelty:
    """What is new to a model in some rows. Those of the parts of a table add up."""

    rows: int = 0
    out_of_range: int = 0  #: rows beyond the range that a column had in the fit
    columns: tuple[str, ...] = ()  #: the columns where they are
    unseen: tuple[UnseenWarning, ...] = ()  #: levels and gaps that the fit has not seen, one warning for each column

    @classmethod
    def of(cls, model: Any, X: Any) -> Novelty:
        """Compare rows with those of the fit. The `UnseenWarning`s are returned, not shown; other warnings are shown."""
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
        """How many rows are out of range, in which columns, and what that means; empty if none is.

        Examples:
            >>> from types import SimpleNamespace
            >>> model = SimpleNamespace(encoded_names_=["age", "when (trend)"])
            >>> Novelty(10_000, 312, ("when (trend)", "age")).sentence(model)
            '312 of 10,000 rows lie beyond the data of the fit in age, when (trend): their error bars widen, their means
            lean on the model.'
        """
        if not self.out_of_range:
            return ""
        order = {name: place for place, name in enumerate(model.encoded_names_)}
        names = sorted(self.columns, key=lambda name: order.get(name, len(order)))
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        one = self.out_of_range == 1
        words = (
            f"{self.out_of_range:,} of {self.rows:,} rows {'lies' if one else 'lie'} beyond the data of the fit in "
            f"{', '.join(names[:MOST_NAMES])}{more}: "
        )
        if hasattr(model, "classes_"):
            return words + ("its" if one else "their") + " probabilities lean on the model."
        if one:
            return words + "its error bar widens, its mean leans on the model."
        return words + "their error bars widen, their means lean on the model."


def ignore_unseen() -> AbstractContextManager[object]:
    """Inside, no `UnseenWarning` is shown: a `Novelty` holds them."""
    return warnings.catch_warnings(action="ignore", category=UnseenWarning)
