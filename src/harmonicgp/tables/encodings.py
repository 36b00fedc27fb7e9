"""How one column becomes numbers: values, kept in a model file, that encode new rows as they did those of the fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from harmonicgp.tables.columns import (
    DAY,
    YEAR,
    Array,
    Kind,
    Series,
    calendar_part,
    floats_of,
    instants_of,
    plural,
    role_of,
    texts_of,
)

_SHOWN = 3  # levels that a warning names

_READS = {  # what a column may hold when new rows come, by what it held in the fit
    "number": ("number", "text"),
    "date": ("date", "text"),
    "time": ("time", "text"),
    "duration": ("duration",),
    "level": ("text", "category"),
}


class UnseenWarning(UserWarning):
    """Values of a column that the fit has not seen. Those of two parts of a table add up."""

    column: str
    rows: int  #: rows that hold such values
    fate: str  #: what stands in for them

    def __add__(self, other: Self) -> Self:
        raise NotImplementedError


class UnseenLevelsWarning(UnseenWarning):
    """Levels of a column that the fit has not seen."""

    def __init__(self, column: str, levels: Sequence[str], rows: int, fate: str) -> None:
        super().__init__(column, levels, rows, fate)  # what pickling needs
        self.column, self.levels, self.rows, self.fate = column, tuple(levels[: _SHOWN + 1]), rows, fate

    def __str__(self) -> str:
        shown = ", ".join(repr(level[:40]) for level in self.levels[:_SHOWN])
        return (
            f"column {self.column!r} holds levels that the fit has not seen "
            f"({shown}{', ...' * (len(self.levels) > _SHOWN)}) in {self.rows:,} row{'s' * (self.rows != 1)}: "
            f"they count as {self.fate}, and error bars do not know of it."
        )

    def __add__(self, other: Self) -> Self:
        levels = tuple(dict.fromkeys(self.levels + other.levels))
        return type(self)(self.column, levels, self.rows + other.rows, self.fate)


class UnseenGapsWarning(UnseenWarning):
    """Missing values in a column that had none in the fit."""

    def __init__(self, column: str, rows: int, fate: str) -> None:
        super().__init__(column, rows, fate)
        self.column, self.rows, self.fate = column, rows, fate

    def __str__(self) -> str:
        one = self.rows == 1
        return (
            f"{self.column!r} lacks {'a value' if one else 'values'} in {self.rows:,} row{'s' * (not one)} and lacked none "
            f"in the fit: {'it is' if one else 'they are'} filled with {self.fate}, and error bars do not know of it."
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(self.column, self.rows + other.rows, self.fate)


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: itself; durations in days and times of day in hours."""

    name: str
    role: str
    kind: Kind | None
    fill: float | None  #: stands in for what is missing; None: nothing does
    flagged: bool  #: the fit had missing values, which have a column of their own

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        if self.role == "time" and self.kind is None:
            own: tuple[str, Kind | None] = (f"{self.name} (time of day)", ("periodic", 24.0))
        else:
            own = (self.name, self.kind)
        return [own, (f"{self.name} missing", None)] if self.flagged else [own]

    @property
    def filling(self) -> str:
        """What stands in for a value that is missing, where the fit lacked none; empty where it lacked some."""
        return "" if self.flagged else "the median"

    def encode(self, chunk: Series) -> Encoded:
        """The columns [n, k] of these rows, and a mask of the rows where the value is missing."""
        x = floats_of(chunk, allowed_role(self, chunk), self.role, self.name)
        gone = np.isnan(x)
        if self.fill is not None:
            x[gone] = self.fill
        return np.stack([x, gone] if self.flagged else [x], 1), gone, Counter()


@dataclass(frozen=True)
class Dates:
    """A column of dates: days since the first, and the clocks and calendars that the data can tell apart."""

    name: str
    role: str
    kind: Kind | None
    fill: tuple[int, int] | None  #: as microseconds of the world's clock and of the wall's
    flagged: bool
    origin: int  #: microseconds since 1970
    zone: str | None
    parts: tuple[str, ...]

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        periods = {"time of day": 24.0, "day of week": 7.0, "day of year": YEAR}
        if self.kind is not None:
            own: list[tuple[str, Kind | None]] = [(self.name, self.kind)]
        else:
            own = [(f"{self.name} (trend)", None)]
            own += [(f"{self.name} ({part})", ("periodic", periods[part])) for part in self.parts]
        return [*own, (f"{self.name} missing", None)] if self.flagged else own

    @property
    def filling(self) -> str:
        """What stands in for a date that is missing, where the fit lacked none; empty where it lacked some."""
        return "" if self.flagged else "the median"

    def encode(self, chunk: Series) -> Encoded:
        """The columns [n, k] of these rows, and a mask of the rows where the date is missing."""
        utc, wall, gone = instants_of(chunk, allowed_role(self, chunk), self.zone, self.name)
        if self.fill is not None:
            utc, wall = (np.where(gone, fill, clock) for fill, clock in zip(self.fill, (utc, wall), strict=True))
        columns = [(utc - self.origin) / DAY, *(calendar_part(wall, part) for part in self.parts)]
        return np.stack([*columns, gone] if self.flagged else columns, 1), gone, Counter()


@dataclass(frozen=True)
class Levels:
    """A column of categories: 0 and 1 for each level, or for the second of two."""

    name: str
    role: str
    fill: str | None
    levels: tuple[str, ...]
    rare: tuple[str, ...] | None = None  #: what shares the level "other"; None: not known

    @property
    def own(self) -> tuple[str, ...]:
        """The levels that have a column."""
        return tuple(level for level in self.levels if level != "other")[-1:] if len(self.levels) == 2 else self.levels

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        return [(f"{self.name}={level}", None) for level in self.own]

    @property
    def fate(self) -> str:
        """What a level counts as that the fit has not seen."""
        if "other" in self.levels:
            return "'other'"
        return repr(self.levels[0]) if len(self.levels) == 2 else "none of the known levels"

    @property
    def filling(self) -> str:
        """What stands in for a level that is missing, where the fit lacked none; empty where it lacked some."""
        return "" if self.fill == "missing" else f"the most frequent level {self.fill!r}"

    def encode(self, chunk: Series) -> Encoded:
        """The columns [n, k] of these rows, a mask of the rows where the level is missing, and levels that are new."""
        texts = texts_of(chunk, allowed_role(self, chunk))
        place = {level: number for number, level in enumerate(self.levels)}
        rest = place.get("other", -1)
        codes = np.array([place.get((self.fill or "") if text is None else text, rest) for text in texts])
        x = np.stack([codes == place[level] for level in self.own], 1).astype(np.float64)
        unseen: Counter[str] = Counter()
        if self.rare is not None or "other" not in place:
            known = place.keys() | (self.rare or ())
            unseen.update(text for text in texts if text is not None and text not in known)
        return x, np.array([text is None for text in texts]), unseen


Encoded: TypeAlias = tuple[Array, Array, Counter[str]]
Column: TypeAlias = Numbers | Dates | Levels
COLUMNS: dict[str, type[Any]] = {"numbers": Numbers, "dates": Dates, "levels": Levels}


def allowed_role(column: Column, chunk: Series) -> str:
    """What the rows hold, if the column can read it."""
    role = role_of(chunk, column.name)
    integers = column.role == "level" and chunk.dtype.is_integer()  # a file whose codes happen to be all digits
    if role != "empty" and role not in _READS[column.role] and not integers:
        raise ValueError(f"column {column.name!r} held {plural(column.role)} in the fit and holds {plural(role)} now.")
    return role
