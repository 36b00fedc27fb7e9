"""How one column becomes numbers. An encoding is a value that a model file keeps: new rows are encoded as those of the fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from harmonicgp.tables.columns import (
    DAY,
    SEASONS,
    YEAR,
    Array,
    Series,
    calendar_part,
    chunks_of,
    fit_role,
    floats_of,
    instants_of,
    looks_like_date,
    plural,
    role_of,
    telling_parts,
    texts_of,
    zone_of,
)
from harmonicgp.tables.kinds import Kind
from harmonicgp.tables.notices import (
    IdentifierColumnError,
    UnseenGapsWarning,
    UnseenLevelsWarning,
    UnseenWarning,
)

MAX_LEVELS = 20  #: columns of 0 and 1 that one column of text may become
MAX_RARE = 10_000  #: rare levels that are kept by name, to tell them from new ones

_READS = {  # what a column may hold when new rows come, by what it held in the fit
    "number": ("number", "text"),
    "date": ("date", "text"),
    "time": ("time", "text"),
    "duration": ("duration",),
    "level": ("text", "category"),
}


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: itself; durations in days and times of day in hours."""

    name: str
    role: str
    kind: Kind | None
    fill: float | None  #: stands in for what is missing; None: nothing does
    flagged: bool  #: the fit had missing values, which have a column of their own

    @classmethod
    def fit(cls, series: Series, role: str, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Numbers | None, int]:  # fmt: skip
        """The encoding of a column, None if it has no values, and how many values are missing."""
        name = series.name
        x = np.concatenate([floats_of(chunk, role_of(chunk, name), role, name) for chunk in chunks_of(series)])
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
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        if self.role == "time" and self.kind is None:
            label: tuple[str, Kind | None] = (f"{self.name} (time of day)", ("periodic", 24.0))
        else:
            label = (self.name, self.kind)
        return [label, (f"{self.name} missing", None)] if self.flagged else [label]

    def notices(self, gaps: int, unseen: Counter[str]) -> list[UnseenWarning]:
        """Warnings about rows that hold what the fit has not seen: so many gaps."""
        return [UnseenGapsWarning(self.name, gaps, "the median")] if gaps and not self.flagged else []

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

    @classmethod
    def fit(cls, series: Series, kind: Kind | None, impute: bool, mass: Array,
            notes: list[str]) -> tuple[Dates | None, int]:  # fmt: skip
        """The encoding of a column, None if it has no dates, and how many dates are missing."""
        name = series.name
        zone = next((zone for chunk in chunks_of(series) if (zone := zone_of(chunk, name)) is not None), None)
        parts = [instants_of(chunk, role_of(chunk, name), zone, name) for chunk in chunks_of(series)]
        utc, wall, gone = (np.concatenate(part) for part in zip(*parts, strict=True))
        n_missing = int(gone.sum())
        utc, wall = utc[~gone], wall[~gone]
        if not len(utc):
            return None, n_missing
        origin = int(utc.min()) // DAY * DAY
        calendars = () if kind is not None else tuple(telling_parts(utc, wall))
        middle = _median(utc, mass[~gone])
        fill = (int(utc[middle]), int(wall[middle])) if impute else None
        used = ", ".join((f"days since {np.datetime64(origin // DAY, 'D')}", *calendars))
        short = kind is None and (int(utc.max()) - int(utc.min())) / DAY <= SEASONS * YEAR
        why = "; no period of a year, which takes a year and a half of dates to learn" if short else ""
        notes.append(f"{name!r} holds dates: used as {used}{why}.")
        if impute and n_missing:
            notes.append(f"{name!r} lacks {n_missing} dates: the median stands in, '{name} missing' marks them.")
        return cls(name, "date", kind, fill, impute and n_missing > 0, origin, zone, calendars), n_missing

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        periods = {"time of day": 24.0, "day of week": 7.0, "day of year": YEAR}
        if self.kind is not None:
            labels: list[tuple[str, Kind | None]] = [(self.name, self.kind)]
        else:
            labels = [(f"{self.name} (trend)", None)]
            labels += [(f"{self.name} ({part})", ("periodic", periods[part])) for part in self.parts]
        return [*labels, (f"{self.name} missing", None)] if self.flagged else labels

    def notices(self, gaps: int, unseen: Counter[str]) -> list[UnseenWarning]:
        """Warnings about rows that hold what the fit has not seen: so many gaps."""
        return [UnseenGapsWarning(self.name, gaps, "the median")] if gaps and not self.flagged else []

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

    @classmethod
    def fit(cls, name: str, counts: Counter[str], rows: float, impute: bool, notes: list[str],
            warnings: list[str]) -> tuple[Levels, int]:  # fmt: skip
        """The encoding of a column, from the weight of each text, and how many values are missing."""
        n_missing = round(rows - counts.total())
        _refuse_identifiers(name, counts)
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
    def labels(self) -> list[tuple[str, Kind | None]]:
        """Names and kinds of the encoded columns."""
        return [(f"{self.name}={level}", None) for level in self.indicators]

    def notices(self, gaps: int, unseen: Counter[str]) -> list[UnseenWarning]:
        """Warnings about rows that hold what the fit has not seen: so many gaps, and these levels."""
        notices: list[UnseenWarning] = []
        if unseen:
            two = repr(self.levels[0]) if len(self.levels) == 2 else "none of the known levels"
            fate = "'other'" if "other" in self.levels else two
            notices.append(UnseenLevelsWarning(self.name, list(unseen), unseen.total(), fate))
        if gaps and self.fill != "missing":
            notices.append(UnseenGapsWarning(self.name, gaps, f"the most frequent level {self.fill!r}"))
        return notices

    def encode(self, chunk: Series) -> Encoded:
        """The columns [n, k] of these rows, a mask of the rows where the level is missing, and levels that are new."""
        texts = texts_of(chunk, allowed_role(self, chunk))
        place = {level: number for number, level in enumerate(self.levels)}
        rest = place.get("other", -1)
        codes = np.array([place.get((self.fill or "") if text is None else text, rest) for text in texts])
        x = np.stack([codes == place[level] for level in self.indicators], 1).astype(np.float64)
        unseen: Counter[str] = Counter()
        if self.rare is not None or "other" not in place:
            seen = place.keys() | (self.rare or ())
            unseen.update(text for text in texts if text is not None and text not in seen)
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


def _median(values: Array, mass: Array) -> int:
    """The place of the weighted median, the lower one of two."""
    order = np.argsort(values, kind="stable")
    return int(order[np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())])


def _refuse_identifiers(name: str, counts: Counter[str]) -> None:
    """Refuse text of which more than half is different in every row."""
    total = counts.total()
    if len(counts) <= 50 or len(counts) <= 0.5 * total:
        return
    dates = [text for text in counts if looks_like_date(text)]
    if len(dates) > 0.5 * len(counts):
        raise ValueError(
            f"column {name!r} holds text that looks like dates, such as {dates[0]!r:.40}: write them as ISO dates "
            "(2023-12-31), which are read."
        )
    raise IdentifierColumnError(name, len(counts), total)
