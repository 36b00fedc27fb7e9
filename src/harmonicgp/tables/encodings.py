"""How one column becomes numbers. The encoding is kept in the model file, so that new rows are encoded as in the fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from harmonicgp.tables.columns import (
    Array,
    Series,
    fit_role,
    floats_of,
    instants_of,
    plural,
    role_of,
    texts_of,
    zone_of,
)
from harmonicgp.tables.kinds import Kind
from harmonicgp.tables.notices import IdentifierColumnError, UnseenGapsWarning, UnseenLevelsWarning, UnseenWarning

_DAY = 86_400_000_000  # microseconds
_YEAR = 365.25  # days
_SEASONS = 1.5  # years of dates that it takes to tell a season from a trend
#: The start, the length and the unit of each clock and calendar; 1970 began on a Thursday.
_CALENDARS = {
    "time of day": (0, _DAY, _DAY // 24),
    "day of week": (-3 * _DAY, 7 * _DAY, _DAY),
    "day of year": (0, int(_YEAR * _DAY), _DAY),
}
MAX_LEVELS = 20  #: indicator columns of one column of text, at most
MAX_RARE = 10_000  #: rare levels that are stored to tell them from new ones, at most

_OTHER_DATE = re.compile(
    r"(\d{1,2}([/.-])\d{1,2}\2(\d{4}|\d\d)|\d{4}([/.])\d{1,2}\4\d{1,2})([T ].*)?", re.ASCII
)  # not read as dates: 03/04 may be in March or in April
_READS = {  # the roles that a column of new rows may have, by its role in the fit
    "number": ("number", "text"),
    "date": ("date", "text"),
    "time": ("time", "text"),
    "duration": ("duration",),
    "level": ("text", "category"),
}

Label: TypeAlias = tuple[str, Kind | None]
Encoded: TypeAlias = tuple[Array, int, Sequence[UnseenWarning]]


@dataclass(frozen=True)
class Measured:
    """A column of values with a median, which replaces missing values."""

    name: str
    role: str
    kind: Kind | None
    fill: Any  #: replaces missing values; None: they stay missing
    flagged: bool  #: whether the fit had missing values, which an extra column marks

    def labelled(self, labels: list[Label]) -> list[Label]:
        """All labels. `labels` are those of the columns of values; a kind that the user declares replaces them."""
        declared: list[Label] = [(self.name, self.kind)] if self.kind is not None else labels
        return [*declared, (f"{self.name} missing", None)] if self.flagged else declared

    def encoded(self, columns: list[Array], missing: Array) -> Encoded:
        """Columns of values as `encode` returns them; `missing` [n] marks the rows without a value."""
        gaps = int(missing.sum())
        unseen = [UnseenGapsWarning(self.name, gaps, "the median")] if gaps and not self.flagged else []
        return np.stack([*columns, missing] if self.flagged else columns, 1), gaps, unseen


@dataclass(frozen=True)
class Numbers(Measured):
    """A column of numbers: itself; durations in days and times of day in hours."""

    fill: float | None

    @classmethod
    def fit(cls, series: Series, role: str, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Numbers | None, int]:  # fmt: skip
        """The encoding of a column (None if it has no values), and the number of missing values."""
        name, x = series.name, floats_of(series, role)
        present = ~np.isnan(x)
        n_missing = int((~present).sum())
        if not present.any():
            return None, n_missing
        fill = float(x[present][_median(x[present], mass[present])]) if impute else None
        if role != "number":
            notes.append(f"{name!r} holds {role}s: used in {'days' if role == 'duration' else 'hours'}.")
        if impute and n_missing:
            notes.append(
                f"{name!r} has {n_missing} missing values: the median {fill:.6g} replaces them, '{name} missing' marks them."
            )
        return cls(name, role, kind, fill, impute and n_missing > 0), n_missing

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        clock: Label = (f"{self.name} (time of day)", ("periodic", 24.0))
        return self.labelled([clock if self.role == "time" else (self.name, None)])

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, the number of missing values, and warnings."""
        x = floats_of(series, self.role)
        missing = np.isnan(x)
        return self.encoded([x if self.fill is None else np.where(missing, self.fill, x)], missing)


@dataclass(frozen=True)
class Dates(Measured):
    """A column of dates: days since the first date, and the parts (time of day, ...) that the data can tell apart.

    `fill` holds microseconds since 1970, in UTC and in local time.
    """

    fill: tuple[int, int] | None
    origin: int  #: microseconds since 1970
    zone: str | None
    parts: tuple[str, ...]

    @classmethod
    def fit(cls, series: Series, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Dates | None, int]:  # fmt: skip
        """The encoding of a column (None if it has no dates), and the number of missing dates."""
        name, zone = series.name, zone_of(series)
        utc, local, missing = instants_of(series, zone)
        n_missing = int(missing.sum())
        utc, local = utc[~missing], local[~missing]
        if not len(utc):
            return None, n_missing
        origin, days = int(utc.min()) // _DAY * _DAY, (int(utc.max()) - int(utc.min())) / _DAY
        parts = () if kind is not None else tuple(_distinct_parts(days, local))
        middle = _median(utc, mass[~missing])
        fill = (int(utc[middle]), int(local[middle])) if impute else None
        columns = ", ".join((f"days since {np.datetime64(origin // _DAY, 'D')}", *parts))
        short = kind is None and days <= _SEASONS * _YEAR
        why = "; no yearly period, which takes a year and a half of dates to learn" if short else ""
        notes.append(f"{name!r} holds dates: used as {columns}{why}.")
        if impute and n_missing:
            notes.append(
                f"{name!r} has {n_missing} missing dates: the median replaces them, '{name} missing' marks them."
            )
        return cls(name, "date", kind, fill, impute and n_missing > 0, origin, zone, parts), n_missing

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        labels: list[Label] = [(f"{self.name} (trend)", None)]
        for part in self.parts:
            _, length, unit = _CALENDARS[part]
            labels.append((f"{self.name} ({part})", ("periodic", length / unit)))
        return self.labelled(labels)

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, the number of missing dates, and warnings."""
        utc, local, missing = instants_of(series, self.zone)
        if self.fill is not None:
            utc, local = (np.where(missing, fill, time) for fill, time in zip(self.fill, (utc, local), strict=True))
        parts = (_calendar_part(local, part) for part in self.parts)
        return self.encoded([(utc - self.origin) / _DAY, *parts], missing)


@dataclass(frozen=True)
class Levels:
    """A column of categories: 0 and 1 for each level, or for the second of two."""

    name: str
    role: str
    fill: str | None
    levels: tuple[str, ...]
    rare: tuple[str, ...] | None = None  #: the levels that share "other"; None: not stored

    @classmethod
    def fit(cls, name: str, counts: Counter[str], rows: float, impute: bool, notes: list[str],
            warnings: list[str]) -> tuple[Levels, int]:  # fmt: skip
        """The encoding of a column from the weight of each text, and the number of missing values."""
        total = counts.total()
        n_missing = round(rows - total)
        if len(counts) > 50 and len(counts) > 0.5 * total:
            dates = [text for text in counts if _OTHER_DATE.fullmatch(text.strip())]
            if len(dates) > 0.5 * len(counts):
                raise ValueError(
                    f"column {name!r} holds text that looks like dates, such as {dates[0]!r:.40}: write ISO dates, such as "
                    "2023-12-31."
                )
            raise IdentifierColumnError(name, len(counts), total)
        fill = min(counts, key=lambda level: (-counts[level], level)) if impute else None
        if impute and n_missing:
            fill = "missing"
            counts = counts + Counter({fill: n_missing})
            notes.append(f"{name!r} has {n_missing} missing values: they are the level 'missing'.")
        levels = sorted(counts)
        rare: tuple[str, ...] | None = ()
        if len(levels) > MAX_LEVELS:
            frequent = sorted(
                (level for level in levels if level != "other"),
                key=lambda level: (level != "missing", -counts[level], level),
            )[: MAX_LEVELS - 1]
            levels, others = sorted([*frequent, "other"]), sorted(counts.keys() - set(frequent))
            rare = tuple(others) if len(others) <= MAX_RARE else None
            warnings.append(f"{name!r} has {len(counts)} levels: the {len(frequent)} most frequent have a column "
                                    f"each, the rest share '{name}=other'.")  # fmt: skip
        return cls(name, "level", fill, tuple(levels), rare), n_missing

    @property
    def indicators(self) -> tuple[str, ...]:
        """The levels that have an indicator column."""
        return tuple(level for level in self.levels if level != "other")[-1:] if len(self.levels) == 2 else self.levels

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        return [(f"{self.name}={level}", None) for level in self.indicators]

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, the number of missing levels, and warnings."""
        place = {level: number for number, level in enumerate(self.levels)}
        rest = place.get("other", -1)
        place_of_text = place | dict.fromkeys(self.rare or (), rest)
        lumped = self.rare is None and rest >= 0  # rare and new levels cannot be told apart
        numbers: dict[str | None, int] = {}  # of the texts, in their order
        codes = np.fromiter((numbers.setdefault(t, len(numbers)) for t in texts_of(series)), np.int64, len(series))
        counts = dict(zip(numbers, np.bincount(codes).tolist(), strict=True))
        gaps = counts.pop(None, 0)
        new = {str(text): count for text, count in counts.items() if text not in place_of_text and not lumped}
        notices: list[UnseenWarning] = []
        if new:
            fate = repr(self.levels[0]) if len(self.levels) == 2 else "none of the levels of the fit"
            notices.append(
                UnseenLevelsWarning(self.name, list(new), sum(new.values()), "'other'" if rest >= 0 else fate)
            )
        if gaps and self.fill != "missing":
            notices.append(UnseenGapsWarning(self.name, gaps, f"the most frequent level {self.fill!r}"))
        places = np.array([place_of_text.get((self.fill or "") if text is None else text, rest) for text in numbers])
        return (places[:, None] == [place[level] for level in self.indicators])[codes], gaps, notices


Column: TypeAlias = Numbers | Dates | Levels
#: The classes by name in a file, with the roles that each has.
COLUMNS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "numbers": (Numbers, ("number", "time", "duration")),
    "dates": (Dates, ("date",)),
    "levels": (Levels, ("level",)),
}


def fit_encoding(series: Series, kind: Kind | None, impute: bool, mass: Array, notes: list[str],
                 warnings: list[str]) -> tuple[Column | None, int]:  # fmt: skip
    """The encoding of a column (None if it has no values), and the number of missing values.

    `mass` [n] holds the weights of the rows. Sentences for the user are appended to `notes` and, on what can harm predictions,
    to `warnings`.
    """
    name = series.name
    role, counts = fit_role(series, mass, notes)
    if role == "empty":
        return None, len(series)
    if kind is not None and (role == "level" or (role != "number" and isinstance(kind, str))):
        raise ValueError(f"column {name!r} is declared {kind!r}, but holds {plural(role)}, not numbers.")
    if role == "level":
        return Levels.fit(name, counts, float(mass.sum()), impute, notes, warnings)
    if role == "date":
        return Dates.fit(series, kind, impute, mass, notes)
    return Numbers.fit(series, role, kind, impute, mass, notes)


def encode(column: Column, series: Series) -> Encoded:
    """The columns [n, k] of new rows, the number of missing values, and warnings."""
    role = role_of(series)
    integers = column.role == "level" and series.dtype.is_integer()  # a file in which all codes are digits
    if role != "empty" and role not in _READS[column.role] and not integers:
        raise ValueError(f"column {column.name!r} held {plural(column.role)} in the fit, but holds {plural(role)} now.")
    return column.encode(series)


def _distinct_parts(days: float, local: Array) -> Iterator[str]:
    """The parts of dates that are neither constant nor a trend, for rows that span so many days."""
    if days > 1 and len(np.unique(local % _DAY)) > 1:
        yield "time of day"
    if days > 14 and len(np.unique(local // _DAY % 7)) > 1:
        yield "day of week"
    if days > _SEASONS * _YEAR:
        season = _calendar_part(local, "day of year")
        if np.ptp((season - season[0] + _YEAR / 2) % _YEAR) > 2:  # more than one date a year
            yield "day of year"


def _calendar_part(local: Array, part: str) -> Array:
    """Hours since midnight, days since Monday, or days of a year of 365.25 days."""
    start, length, unit = _CALENDARS[part]
    return (local - start) % length / unit


def _median(values: Array, mass: Array) -> int:
    """The index of the weighted median, the lower one of two."""
    order = np.argsort(values, kind="stable")
    return int(order[np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())])
