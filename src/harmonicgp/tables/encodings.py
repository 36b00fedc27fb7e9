"""How one column becomes numbers. An encoding is a value that a model file keeps: new rows are encoded as those of the fit."""

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
_SEASONS = 1.5  # years of dates that tell a season from a trend
#: The start, the length and the unit of each clock and calendar; 1970 began on a Thursday.
_CALENDARS = {
    "time of day": (0, _DAY, _DAY // 24),
    "day of week": (-3 * _DAY, 7 * _DAY, _DAY),
    "day of year": (0, int(_YEAR * _DAY), _DAY),
}
MAX_LEVELS = 20  #: columns of 0 and 1 that one column of text may become
MAX_RARE = 10_000  #: rare levels that are kept by name, to tell them from new ones

_OTHER_DATE = re.compile(
    r"(\d{1,2}([/.-])\d{1,2}\2(\d{4}|\d\d)|\d{4}([/.])\d{1,2}\4\d{1,2})([T ].*)?", re.ASCII
)  # whether 03/04 is in March or in April is not for us to guess
_READS = {  # what a column may hold when new rows come, by what it held in the fit
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
    """A column of values that have a median, which stands in for those that are missing."""

    name: str
    role: str
    kind: Kind | None
    fill: Any  #: stands in for what is missing; None: nothing does
    flagged: bool  #: the fit had missing values, which have a column of their own

    def labelled(self, labels: list[Label]) -> list[Label]:
        """The labels of all columns; `labels` are those of the columns of values, where the user declares no kind."""
        declared: list[Label] = [(self.name, self.kind)] if self.kind is not None else labels
        return [*declared, (f"{self.name} missing", None)] if self.flagged else declared

    def encoded(self, columns: list[Array], gone: Array) -> Encoded:
        """Columns of values as `encode` returns them; `gone` marks the rows without a value."""
        gaps = int(gone.sum())
        unseen = [UnseenGapsWarning(self.name, gaps, "the median")] if gaps and not self.flagged else []
        return np.stack([*columns, gone] if self.flagged else columns, 1), gaps, unseen


@dataclass(frozen=True)
class Numbers(Measured):
    """A column of numbers: itself; durations in days and times of day in hours."""

    @classmethod
    def fit(cls, series: Series, role: str, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Numbers | None, int]:  # fmt: skip
        """The encoding of a column, None if it has no values, and how many values are missing."""
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
                f"{name!r} lacks {n_missing} values: the median {fill:.6g} stands in, '{name} missing' marks them."
            )
        return cls(name, role, kind, fill, impute and n_missing > 0), n_missing

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        clock: Label = (f"{self.name} (time of day)", ("periodic", 24.0))
        return self.labelled([clock if self.role == "time" else (self.name, None)])

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, how many values are missing, and warnings."""
        x = floats_of(series, self.role)
        gone = np.isnan(x)
        return self.encoded([x if self.fill is None else np.where(gone, self.fill, x)], gone)


@dataclass(frozen=True)
class Dates(Measured):
    """A column of dates: days since the first, and the clocks and calendars that the data can tell apart.

    The date that stands in is in microseconds, by the world's clock and by the wall's.
    """

    origin: int  #: microseconds since 1970
    zone: str | None
    parts: tuple[str, ...]

    @classmethod
    def fit(cls, series: Series, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Dates | None, int]:  # fmt: skip
        """The encoding of a column, None if it has no dates, and how many dates are missing."""
        name, zone = series.name, zone_of(series)
        utc, wall, gone = instants_of(series, zone)
        n_missing = int(gone.sum())
        utc, wall = utc[~gone], wall[~gone]
        if not len(utc):
            return None, n_missing
        origin, days = int(utc.min()) // _DAY * _DAY, (int(utc.max()) - int(utc.min())) / _DAY
        calendars = () if kind is not None else tuple(_telling_parts(days, wall))
        middle = _median(utc, mass[~gone])
        fill = (int(utc[middle]), int(wall[middle])) if impute else None
        used = ", ".join((f"days since {np.datetime64(origin // _DAY, 'D')}", *calendars))
        short = kind is None and days <= _SEASONS * _YEAR
        why = "; no period of a year, which takes a year and a half of dates to learn" if short else ""
        notes.append(f"{name!r} holds dates: used as {used}{why}.")
        if impute and n_missing:
            notes.append(f"{name!r} lacks {n_missing} dates: the median stands in, '{name} missing' marks them.")
        return cls(name, "date", kind, fill, impute and n_missing > 0, origin, zone, calendars), n_missing

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        labels: list[Label] = [(f"{self.name} (trend)", None)]
        for part in self.parts:
            _, length, unit = _CALENDARS[part]
            labels.append((f"{self.name} ({part})", ("periodic", length / unit)))
        return self.labelled(labels)

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, how many dates are missing, and warnings."""
        utc, wall, gone = instants_of(series, self.zone)
        if self.fill is not None:
            utc, wall = (np.where(gone, fill, clock) for fill, clock in zip(self.fill, (utc, wall), strict=True))
        return self.encoded([(utc - self.origin) / _DAY, *(_calendar_part(wall, part) for part in self.parts)], gone)


@dataclass(frozen=True)
class Levels:
    """A column of categories: 0 and 1 for each level, or for the second of two."""

    name: str
    role: str
    fill: str | None
    levels: tuple[str, ...]
    rare: tuple[str, ...] | None = None  #: what shares the level "other"; None: not known

    @classmethod
    def fit(cls, name: str, counts: Counter[str], rows: float, impute: bool, notes: list[str],
            warnings: list[str]) -> tuple[Levels, int]:  # fmt: skip
        """The encoding of a column, from the weight of each text, and how many values are missing."""
        total = counts.total()
        n_missing = round(rows - total)
        if len(counts) > 50 and len(counts) > 0.5 * total:
            dates = [text for text in counts if _OTHER_DATE.fullmatch(text.strip())]
            if len(dates) > 0.5 * len(counts):
                raise ValueError(
                    f"column {name!r} holds text that looks like dates, such as {dates[0]!r:.40}: write them as ISO dates "
                    "(2023-12-31), which are read."
                )
            raise IdentifierColumnError(name, len(counts), total)
        fill = min(counts, key=lambda level: (-counts[level], level)) if impute else None
        if impute and n_missing:
            fill = "missing"
            counts = counts + Counter({fill: n_missing})
            notes.append(f"{name!r} lacks {n_missing} values: they are a level of their own, 'missing'.")
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
        """The levels that have a column."""
        return tuple(level for level in self.levels if level != "other")[-1:] if len(self.levels) == 2 else self.levels

    @property
    def labels(self) -> list[Label]:
        """Names and kinds of the encoded columns."""
        return [(f"{self.name}={level}", None) for level in self.indicators]

    def encode(self, series: Series) -> Encoded:
        """The columns [n, k] of these rows, how many levels are missing, and warnings."""
        place = {level: number for number, level in enumerate(self.levels)}
        rest = place.get("other", -1)
        seen = place | dict.fromkeys(self.rare or (), rest)
        lumped = self.rare is None and rest >= 0  # what shares the level "other" is not known
        numbers: dict[str | None, int] = {}  # of the texts, in the order in which they come
        codes = np.fromiter((numbers.setdefault(t, len(numbers)) for t in texts_of(series)), np.int64, len(series))
        counts = dict(zip(numbers, np.bincount(codes).tolist(), strict=True))
        gaps = counts.pop(None, 0)
        new = {str(text): count for text, count in counts.items() if text not in seen and not lumped}
        notices: list[UnseenWarning] = []
        if new:
            two = repr(self.levels[0]) if len(self.levels) == 2 else "none of the known levels"
            notices.append(
                UnseenLevelsWarning(self.name, list(new), sum(new.values()), "'other'" if rest >= 0 else two)
            )
        if gaps and self.fill != "missing":
            notices.append(UnseenGapsWarning(self.name, gaps, f"the most frequent level {self.fill!r}"))
        places = np.array([seen.get((self.fill or "") if text is None else text, rest) for text in numbers])
        return (places[:, None] == [place[level] for level in self.indicators])[codes], gaps, notices


Column: TypeAlias = Numbers | Dates | Levels
COLUMNS: dict[str, type[Any]] = {"numbers": Numbers, "dates": Dates, "levels": Levels}


def fit_encoding(series: Series, kind: Kind | None, impute: bool, mass: Array, notes: list[str],
                 warnings: list[str]) -> tuple[Column | None, int]:  # fmt: skip
    """The encoding of a column, None if it has no values, and how many of its values are missing.

    `mass` are the weights of the rows. Sentences for the user go to `notes`, those about what can harm to `warnings`.
    """
    name = series.name
    role, counts = fit_role(series, mass, notes)
    if role == "empty":
        return None, len(series)
    if kind is not None and (role == "level" or (role != "number" and isinstance(kind, str))):
        raise ValueError(f"column {name!r} is declared as {kind!r} and holds {plural(role)}, not numbers.")
    if role == "level":
        return Levels.fit(name, counts, float(mass.sum()), impute, notes, warnings)
    if role == "date":
        return Dates.fit(series, kind, impute, mass, notes)
    return Numbers.fit(series, role, kind, impute, mass, notes)


def encode(column: Column, series: Series) -> Encoded:
    """The columns [n, k] of new rows, how many of their values are missing, and warnings."""
    role = role_of(series)
    integers = column.role == "level" and series.dtype.is_integer()  # a file whose codes happen to be all digits
    if role != "empty" and role not in _READS[column.role] and not integers:
        raise ValueError(f"column {column.name!r} held {plural(column.role)} in the fit and holds {plural(role)} now.")
    return column.encode(series)


def _telling_parts(days: float, wall: Array) -> Iterator[str]:
    """The clocks and calendars that differ from the trend and from a constant on rows that span so many days."""
    if days > 1 and len(np.unique(wall % _DAY)) > 1:
        yield "time of day"
    if days > 14 and len(np.unique(wall // _DAY % 7)) > 1:
        yield "day of week"
    if days > _SEASONS * _YEAR:
        season = _calendar_part(wall, "day of year")
        if np.ptp((season - season[0] + _YEAR / 2) % _YEAR) > 2:  # not one date a year
            yield "day of year"


def _calendar_part(wall: Array, part: str) -> Array:
    """Hours since midnight, days since Monday, or days of a year of 365.25 days."""
    start, length, unit = _CALENDARS[part]
    return (wall - start) % length / unit


def _median(values: Array, mass: Array) -> int:
    """The place of the weighted median, the lower one of two."""
    order = np.argsort(values, kind="stable")
    return int(order[np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())])
