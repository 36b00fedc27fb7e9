"""Frames to numbers: categories, dates and missing values, the same from pandas, polars and Arrow.

A fitted encoder is a value: one entry for each column that was seen, with all that is needed to encode new rows, and a
state of plain numbers, text and lists that goes into a model file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np

from harmonicgp.data.columns import (
    DAY,
    YEAR,
    Array,
    Kind,
    Series,
    calendar_part,
    check_kinds,
    floats_of,
    instants_of,
    listed,
    parse,
    plural,
    role_of,
    telling_parts,
    texts_of,
    zone_of,
)

__all__ = ["MAX_LEVELS", "Kind", "Missing", "TableEncoder", "check_kinds", "is_frame"]

Missing: TypeAlias = Literal["refuse", "impute"]

MAX_LEVELS = 20  #: columns of 0 and 1 that one column of text may become
CHUNK = 65536  #: rows that are turned into Python objects at a time

_READS = {  # what a column may hold when new rows come, by what it held in the fit
    "number": ("number", "text"),
    "date": ("date", "text"),
    "time": ("time", "text"),
    "duration": ("duration",),
    "level": ("text", "category"),
}


def is_frame(X: object) -> bool:
    """Whether X is a table of pandas, polars or Arrow; a lazy one is refused.

    Examples:
        >>> is_frame([[1.0, 2.0]])
        False
    """
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("this is a LazyFrame, which holds no data yet: use .collect() first.")
    return (
        nw.dependencies.is_pandas_dataframe(X)
        or nw.dependencies.is_polars_dataframe(X)
        or nw.dependencies.is_pyarrow_table(X)
    )


@dataclass(frozen=True)
class _Numbers:
    """A column of numbers: itself; durations in days and times of day in hours."""

    name: str
    role: str
    kind: Kind | None
    fill: float | None  #: stands in for what is missing; None: nothing does
    flagged: bool  #: the fit had missing values, which have a column of their own

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        if self.role == "time" and self.kind is None:
            own: tuple[str, Kind | None] = (f"{self.name} (time of day)", ("periodic", 24.0))
        else:
            own = (self.name, self.kind)
        return [own, (f"{self.name} missing", None)] if self.flagged else [own]

    def encode(self, chunk: Series) -> tuple[Array, Array]:
        """The columns [n, k] of these rows, and a mask of the rows where the value is missing."""
        x = floats_of(chunk, _allowed_role(self, chunk), self.role, self.name)
        gone = np.isnan(x)
        if self.fill is not None:
            x[gone] = self.fill
        return np.stack([x, gone] if self.flagged else [x], 1), gone


@dataclass(frozen=True)
class _Dates:
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
        periods = {"time of day": 24.0, "day of week": 7.0, "day of year": YEAR}
        if self.kind is not None:
            own: list[tuple[str, Kind | None]] = [(self.name, self.kind)]
        else:
            own = [(f"{self.name} (trend)", None)]
            own += [(f"{self.name} ({part})", ("periodic", periods[part])) for part in self.parts]
        return [*own, (f"{self.name} missing", None)] if self.flagged else own

    def encode(self, chunk: Series) -> tuple[Array, Array]:
        """The columns [n, k] of these rows, and a mask of the rows where the date is missing."""
        utc, wall, gone = instants_of(chunk, _allowed_role(self, chunk), self.zone, self.name)
        if self.fill is not None:
            utc, wall = (np.where(gone, fill, clock) for fill, clock in zip(self.fill, (utc, wall), strict=True))
        columns = [(utc - self.origin) / DAY, *(calendar_part(wall, part) for part in self.parts)]
        return np.stack([*columns, gone] if self.flagged else columns, 1), gone


@dataclass(frozen=True)
class _Levels:
    """A column of categories: 0 and 1 for each level, or for the second of two."""

    name: str
    role: str
    fill: str | None
    levels: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The levels that have a column."""
        return tuple(level for level in self.levels if level != "other")[-1:] if len(self.levels) == 2 else self.levels

    @property
    def labels(self) -> list[tuple[str, Kind | None]]:
        return [(f"{self.name}={level}", None) for level in self.own]

    def encode(self, chunk: Series) -> tuple[Array, Array]:
        """The columns [n, k] of these rows, and a mask of the rows where the level is missing."""
        texts = texts_of(chunk, _allowed_role(self, chunk))
        place = {level: number for number, level in enumerate(self.levels)}
        unseen = place.get("other", -1)
        codes = np.array([place.get((self.fill or "") if text is None else text, unseen) for text in texts])
        x = np.stack([codes == place[level] for level in self.own], 1).astype(np.float64)
        return x, np.array([text is None for text in texts])


_Column: TypeAlias = _Numbers | _Dates | _Levels
_COLUMNS: dict[str, type[Any]] = {"numbers": _Numbers, "dates": _Dates, "levels": _Levels}


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become numbers: made by `fit`, kept as a value, used by `transform`.

    Numbers stay; text becomes a column of 0 and 1 for each level; dates become days since the first, with time of day,
    day of week and day of year where the table spans enough to tell.

    Examples:
        >>> import pyarrow as pa
        >>> table = pa.table({"age": [31, 45, 28], "colour": ["red", "blue", "green"]})
        >>> encoder = TableEncoder.fit(table)
        >>> encoder.encoded_names
        ['age', 'colour=blue', 'colour=green', 'colour=red']
        >>> encoder.transform(table)[0].tolist()
        [31.0, 0.0, 0.0, 1.0]
    """

    names: list[str]  #: the columns of the table, in the order of the fit
    columns: list[_Column]  #: how each is encoded, without those that were left out
    missing: Missing
    notes: list[str]  #: what was done to the columns that a user should know, in sentences

    @classmethod
    def fit(cls, frame: Any, columns: Mapping[str | int, Kind] | None = None,
            missing: Missing = "refuse", weights: Array | None = None) -> TableEncoder:  # fmt: skip
        """Learn levels, origins of dates and medians from a table.

        Args:
            frame: a table of pandas, polars or Arrow.
            columns: kinds by name or number: "longitude", "latitude" or ("periodic", period). Such a column stays one.
            missing: "refuse" or "impute": the median (the lower one of two) for numbers and dates, with a column
                "NAME missing" that marks the rows, and a level "missing" for text.
            weights: how many rows each row stands for; those of weight zero are not there.
        """
        if missing not in ("refuse", "impute"):
            raise ValueError(f"missing must be 'refuse' or 'impute'; got {missing!r}.")
        table = _opened(frame)
        mass = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
        if not (mass > 0).all():
            table, mass = table.filter((mass > 0).tolist()), mass[mass > 0]
        names = table.columns
        kinds = check_kinds(columns, names, len(names))
        fitted: list[_Column] = []
        notes: list[str] = []
        gaps: dict[str, int] = {}
        for number, name in enumerate(names):
            role, counts = _role_in_fit(table[name], name, mass, notes)
            column, gaps[name] = _fit_column(
                table[name], role, counts, kinds.get(number), missing == "impute", mass, notes
            )
            if column is not None:
                fitted.append(column)
            elif missing == "refuse" or number in kinds:
                raise ValueError(f"column {name!r} has no values at all: drop it.")
            else:
                notes.append(f"{name!r} has no values at all and is left out.")
        if missing == "refuse":
            _refuse_missing(gaps)
        if not fitted:
            raise ValueError(f"none of the columns has a value: {listed(names)}.")
        return cls(names, fitted, missing, notes)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, d of them."""
        return [label for column in self.columns for label, _ in column.labels]

    @property
    def kinds(self) -> dict[int, Kind]:
        """The kinds of the encoded columns that have one."""
        kinds = [kind for column in self.columns for _, kind in column.labels]
        return {number: kind for number, kind in enumerate(kinds) if kind is not None}

    def transform(self, frame: Any) -> Array:
        """The numbers of a table, float64 [n, d]: columns are found by name, others are ignored."""
        table = _opened(frame)
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if absent:
            raise ValueError(f"the table lacks columns of the fit: {listed(absent)}; it has {listed(table.columns)}.")
        x = np.empty((len(table), len(self.encoded_names)))
        gaps: Counter[str] = Counter()
        left = 0
        for column in self.columns:
            right, top = left + len(column.labels), 0
            for chunk in _chunks(table[column.name]):
                values, gone = column.encode(chunk)
                x[top : top + len(gone), left:right] = values
                gaps[column.name] += int(gone.sum())
                top += len(gone)
            left = right
        if self.missing == "refuse":
            _refuse_missing(gaps)
        return x

    def state(self) -> dict[str, Any]:
        """All of it as numbers, text, lists and dicts, for JSON; `from_state` makes an equal encoder of it."""
        kinds = {kind: name for name, kind in _COLUMNS.items()}
        columns = [
            {"type": kinds[type(column)]}
            | {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(column).items()}
            for column in self.columns
        ]
        return {"names": list(self.names), "columns": columns, "missing": self.missing, "notes": list(self.notes)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The encoder whose `state` this is."""
        try:
            columns = []
            for entry in state["columns"]:
                fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
                columns.append(_COLUMNS[str(fields.pop("type"))](**fields))
            return cls(list(state["names"]), columns, state["missing"], list(state["notes"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of a TableEncoder: {error!r}.") from None


def _opened(frame: Any) -> nw.DataFrame[Any]:
    if not is_frame(frame):
        raise TypeError(f"a table of pandas, polars or Arrow is needed; got {type(frame).__name__}.")
    names = list(frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ValueError(f"names of columns must be text; got {listed(odd)}: df.columns = df.columns.astype(str).")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"the table has columns of the same name: {listed(twice)}; rename or drop one.")
    if not names or not len(frame):
        raise ValueError(f"the table is empty: {len(frame)} rows, {len(names)} columns.")
    return nw.from_native(frame, eager_only=True)


def _chunks(series: Series) -> Iterator[Series]:
    for start in range(0, len(series), CHUNK):
        yield series[start : start + CHUNK]


def _refuse_missing(gaps: Mapping[str, int]) -> None:
    counts = [f"{name!r} ({count} row{'s' * (count > 1)})" for name, count in gaps.items() if count]
    if counts:
        shown = ", ".join(counts[:10]) + (f" and {len(counts) - 10} more columns" if len(counts) > 10 else "")
        raise ValueError(f'values are missing in {shown}: drop those rows, or fit with missing="impute".')


def _allowed_role(column: _Column, chunk: Series) -> str:
    """What the rows hold, if the column can read it."""
    role = role_of(chunk, column.name)
    integers = column.role == "level" and chunk.dtype.is_integer()  # a file whose codes happen to be all digits
    if role != "empty" and role not in _READS[column.role] and not integers:
        raise ValueError(f"column {column.name!r} held {plural(column.role)} in the fit and holds {plural(role)} now.")
    return role


def _role_in_fit(series: Series, name: str, mass: Array, notes: list[str]) -> tuple[str, Counter[str]]:
    """The role of a whole column, and how often each text occurs if it is one of levels."""
    roles = {role: chunk for chunk in _chunks(series) if (role := role_of(chunk, name)) != "empty"}
    if len(roles) > 1:
        raise ValueError(f"column {name!r} mixes {' and '.join(plural(role) for role in roles)}: make it one of them.")
    role = next(iter(roles), "empty")
    if role not in ("text", "category"):
        return role, Counter()
    counts: Counter[str] = Counter()
    start = 0
    for chunk in _chunks(series):
        for text, weight in zip(texts_of(chunk, role), mass[start:].tolist(), strict=False):
            if text is not None:
                counts[text] += weight
        start += len(chunk)
    for read in ("number", "date", "time") if role == "text" and counts else ():
        if all(parse(text, read) is not None for text in counts):
            notes.append(f"{name!r} holds {read}s written as text, and is read as {read}s.")
            return read, Counter()
    if role == "text":
        _refuse_typos(name, counts)
    return ("level" if counts else "empty"), counts


def _refuse_typos(name: str, counts: Counter[str]) -> None:
    """Refuse a column of numbers or dates in which a few cells are something else."""
    for read in ("number", "date", "time"):
        odd = [text for text in counts if parse(text, read) is None]
        if len(counts) - len(odd) >= 10 and len(odd) <= 0.1 * len(counts):
            shown = ", ".join(repr(text[:40]) for text in odd[:3]) + (", ..." if len(odd) > 3 else "")
            raise ValueError(
                f"column {name!r} reads as {plural(read)}, but for {shown}: mend or empty those cells, or make it text that "
                "cannot be read so."
            )


def _fit_column(series: Series, role: str, counts: Counter[str], kind: Kind | None, impute: bool, mass: Array,
                notes: list[str]) -> tuple[_Column | None, int]:  # fmt: skip
    """How a column is encoded, None if it has no values, and how many of its values are missing."""
    name = series.name
    if role == "empty":
        return None, len(series)
    if kind is not None and (role == "level" or (role != "number" and isinstance(kind, str))):
        raise ValueError(f"column {name!r} is declared as {kind!r} and holds {plural(role)}, not numbers.")
    if role == "level":
        return _fit_levels(name, counts, float(mass.sum()), impute, notes)
    if role == "date":
        return _fit_dates(series, kind, impute, mass, notes)
    x = np.concatenate([floats_of(chunk, role_of(chunk, name), role, name) for chunk in _chunks(series)])
    seen = x[~np.isnan(x)]
    n_missing = len(x) - len(seen)
    if not len(seen):
        return None, n_missing
    fill = float(seen[_middle(seen, mass[~np.isnan(x)])]) if impute else None
    if role != "number":
        notes.append(f"{name!r} holds {role}s: used in {'days' if role == 'duration' else 'hours'}.")
    if impute and n_missing:
        notes.append(
            f"{name!r} lacks {n_missing} values: the median {fill:.6g} stands in, '{name} missing' marks them."
        )
    return _Numbers(name, role, kind, fill, impute and n_missing > 0), n_missing


def _middle(values: Array, mass: Array) -> int:
    """The place of the median, the lower one of two."""
    order = np.argsort(values, kind="stable")
    return int(order[np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())])


def _fit_dates(
    series: Series, kind: Kind | None, impute: bool, mass: Array, notes: list[str]
) -> tuple[_Dates | None, int]:
    name = series.name
    zone = next((zone for chunk in _chunks(series) if (zone := zone_of(chunk, name)) is not None), None)
    chunks = [instants_of(chunk, role_of(chunk, name), zone, name) for chunk in _chunks(series)]
    utc, wall, gone = (np.concatenate(part) for part in zip(*chunks, strict=True))
    n_missing = int(gone.sum())
    utc, wall = utc[~gone], wall[~gone]
    if not len(utc):
        return None, n_missing
    origin = int(utc.min()) // DAY * DAY
    parts = () if kind is not None else tuple(telling_parts(utc, wall))
    middle = _middle(utc, mass[~gone])
    fill = (int(utc[middle]), int(wall[middle])) if impute else None
    used = ", ".join((f"days since {np.datetime64(origin // DAY, 'D')}", *parts))
    notes.append(f"{name!r} holds dates: used as {used}.")
    if impute and n_missing:
        notes.append(f"{name!r} lacks {n_missing} dates: the median stands in, '{name} missing' marks them.")
    return _Dates(name, "date", kind, fill, impute and n_missing > 0, origin, zone, parts), n_missing


def _fit_levels(name: str, counts: Counter[str], n: float, impute: bool, notes: list[str]) -> tuple[_Levels, int]:
    total = counts.total()
    n_missing = round(n - total)
    if len(counts) > 50 and len(counts) > 0.5 * total:
        raise ValueError(
            f"column {name!r} holds text that hardly repeats ({len(counts)} different in {total:g} rows): "
            f"drop it if it is an identifier, or encode it yourself."
        )
    fill = min(counts, key=lambda level: (-counts[level], level)) if impute else None
    if impute and n_missing:
        fill = "missing"
        counts = counts + Counter({fill: n_missing})
        notes.append(f"{name!r} lacks {n_missing} values: they are a level of their own, 'missing'.")
    levels = sorted(counts)
    if len(levels) > MAX_LEVELS:
        own = sorted(
            (level for level in levels if level != "other"),
            key=lambda level: (level != "missing", -counts[level], level),
        )[: MAX_LEVELS - 1]
        levels = sorted([*own, "other"])
        notes.append(f"{name!r} has {len(counts)} levels: the {len(own)} most frequent have a column each, "
                     f"the rest share '{name}=other'.")  # fmt: skip
    return _Levels(name, "level", fill, tuple(levels)), n_missing
