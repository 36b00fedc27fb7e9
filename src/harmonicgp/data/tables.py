"""Frames to numbers: categories, dates and missing values, the same from pandas, polars and Arrow.

A fitted encoder is a value: one entry for each column that was seen, with all that is needed to encode new rows, and a
state of plain numbers, text and lists that goes into a model file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from operator import index as as_integer
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np

Kind: TypeAlias = Literal["longitude", "latitude"] | tuple[Literal["periodic"], float]
Missing: TypeAlias = Literal["refuse", "impute"]
Array: TypeAlias = np.ndarray[Any, Any]
Series: TypeAlias = nw.Series[Any]

MAX_LEVELS = 20  #: columns of 0 and 1 that one column of text may become
CHUNK = 65536  #: rows that are turned into Python objects at a time

_DAY = 86_400_000_000  # microseconds
_HOUR = 3_600_000_000
_YEAR = 365.25  # days
_FAR = 2**61  # microseconds from 1970 that we count to: differences stay within int64
_EPOCH = datetime(1970, 1, 1)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)  # Python's own reader takes week numbers and 20240101 too
_TIME = re.compile(r"\d\d:\d\d(:\d\d([.,]\d+)?)?", re.ASCII)

_ROLES = {
    "Boolean": "number",
    "String": "text",
    "Categorical": "category",
    "Enum": "category",
    "Date": "date",
    "Datetime": "date",
    "Duration": "duration",
    "Time": "time",
}
_TYPES = (
    ("text", str),
    ("number", (Real, Decimal, np.bool_)),
    ("date", date),
    ("duration", timedelta),
    ("time", time),
)
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


def check_kinds(columns: Mapping[str | int, Kind] | None, names: Sequence[str] | None, d: int) -> dict[int, Kind]:
    """What is said of the d columns, by column number; `names` is None for a plain array.

    Examples:
        >>> check_kinds({"lon": "longitude", "lat": "latitude", -1: ("periodic", 24)}, ["lat", "lon", "hour"], 3)
        {1: 'longitude', 0: 'latitude', 2: ('periodic', 24.0)}
    """
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a dict from columns to kinds; got {type(columns).__name__}.")
    kinds: dict[int, Kind] = {}
    for key, kind in columns.items():
        number = _column_number(key, names, d)
        if number in kinds:
            raise ValueError(f"columns speaks twice of the same column: {key!r} is column {number}.")
        kinds[number] = _check_kind(key, kind)
    counts = Counter(kinds.values())
    pairs: tuple[tuple[Kind, Kind], ...] = ("latitude", "longitude"), ("longitude", "latitude")
    for kind, partner in pairs:
        if counts[kind] > 1:
            raise ValueError(
                f"columns declares more than one {kind}: one pair of latitude and longitude is understood."
            )
        if counts[kind] and not counts[partner]:
            rather = " (a longitude alone is ('periodic', 360))" if kind == "longitude" else ""
            raise ValueError(f"columns declares a {kind} and no {partner}: name both{rather}.")
    return kinds


def _column_number(key: object, names: Sequence[str] | None, d: int) -> int:
    if isinstance(key, str):
        if names is None:
            raise ValueError(f"columns names {key!r}, but the inputs are an array without names: use column numbers.")
        if key not in names:
            raise ValueError(f"columns names {key!r}, which is not in the table; it has {_listed(names)}.")
        return list(names).index(key)
    try:
        number = as_integer(key)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(key, bool):
        raise ValueError(f"the keys of columns are names or numbers of columns; got {key!r}.")
    if not -d <= number < d:
        raise ValueError(f"columns speaks of column {number}; there are {d}, numbered from 0.")
    return number % d


def _check_kind(key: object, kind: object) -> Kind:
    if kind == "longitude" or kind == "latitude":
        return kind
    if isinstance(kind, tuple | list) and len(kind) == 2 and kind[0] == "periodic":
        period = kind[1]
        if isinstance(period, Real) and not isinstance(period, bool) and 0 < float(period) < math.inf:
            return ("periodic", float(period))
        raise ValueError(f"column {key!r}: a period must be a positive number; got {period!r}.")
    raise ValueError(f"column {key!r}: a kind is 'longitude', 'latitude' or ('periodic', period); got {kind!r}.")


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
        x = _floats(chunk, _allowed_role(self, chunk), self.role, self.name)
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
        periods = {"time of day": 24.0, "day of week": 7.0, "day of year": _YEAR}
        if self.kind is not None:
            own: list[tuple[str, Kind | None]] = [(self.name, self.kind)]
        else:
            own = [(f"{self.name} (trend)", None)]
            own += [(f"{self.name} ({part})", ("periodic", periods[part])) for part in self.parts]
        return [*own, (f"{self.name} missing", None)] if self.flagged else own

    def encode(self, chunk: Series) -> tuple[Array, Array]:
        """The columns [n, k] of these rows, and a mask of the rows where the date is missing."""
        utc, wall, gone = _instants(chunk, _allowed_role(self, chunk), self.zone, self.name)
        if self.fill is not None:
            utc, wall = (np.where(gone, fill, clock) for fill, clock in zip(self.fill, (utc, wall), strict=True))
        columns = [(utc - self.origin) / _DAY, *(_part(wall, part) for part in self.parts)]
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
        texts = _texts(chunk, _allowed_role(self, chunk))
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
            missing: Missing = "refuse") -> TableEncoder:  # fmt: skip
        """Learn levels, origins of dates and medians from a table.

        Args:
            frame: a table of pandas, polars or Arrow.
            columns: kinds by name or number: "longitude", "latitude" or ("periodic", period). Such a column stays one.
            missing: "refuse" or "impute": the median (the lower one of two) for numbers and dates, with a column
                "NAME missing" that marks the rows, and a level "missing" for text.
        """
        if missing not in ("refuse", "impute"):
            raise ValueError(f"missing must be 'refuse' or 'impute'; got {missing!r}.")
        table = _opened(frame)
        names = table.columns
        kinds = check_kinds(columns, names, len(names))
        fitted: list[_Column] = []
        notes: list[str] = []
        gaps: dict[str, int] = {}
        for number, name in enumerate(names):
            role, counts = _role_in_fit(table[name], name, notes)
            column, gaps[name] = _fit_column(table[name], role, counts, kinds.get(number), missing == "impute", notes)
            if column is not None:
                fitted.append(column)
            elif missing == "refuse" or number in kinds:
                raise ValueError(f"column {name!r} has no values at all: drop it.")
            else:
                notes.append(f"{name!r} has no values at all and is left out.")
        if missing == "refuse":
            _refuse_missing(gaps)
        if not fitted:
            raise ValueError(f"none of the columns has a value: {_listed(names)}.")
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
            raise ValueError(f"the table lacks columns of the fit: {_listed(absent)}; it has {_listed(table.columns)}.")
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
        raise ValueError(f"names of columns must be text; got {_listed(odd)}: df.columns = df.columns.astype(str).")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"the table has columns of the same name: {_listed(twice)}; rename or drop one.")
    if not names or not len(frame):
        raise ValueError(f"the table is empty: {len(frame)} rows, {len(names)} columns.")
    return nw.from_native(frame, eager_only=True)


def _listed(names: Sequence[object], most: int = 10) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _chunks(series: Series) -> Iterator[Series]:
    for start in range(0, len(series), CHUNK):
        yield series[start : start + CHUNK]


def _refuse_missing(gaps: Mapping[str, int]) -> None:
    counts = [f"{name!r} ({count} row{'s' * (count > 1)})" for name, count in gaps.items() if count]
    if counts:
        shown = ", ".join(counts[:10]) + (f" and {len(counts) - 10} more columns" if len(counts) > 10 else "")
        raise ValueError(f'values are missing in {shown}: drop those rows, or fit with missing="impute".')


def _role(chunk: Series, name: str) -> str:
    """What these rows hold: a role, or "empty"."""
    known = "number" if chunk.dtype.is_numeric() else _ROLES.get(type(chunk.dtype).__name__)
    if known:
        return known
    if type(chunk.dtype).__name__ not in ("Object", "Unknown"):
        raise ValueError(f"column {name!r} is of type {chunk.dtype}: turn it into numbers, text or dates, or drop it.")
    examples: dict[str, Any] = {}
    for value in _values(chunk):
        if value is not None:
            role = next((role for role, types in _TYPES if isinstance(value, types)), None)
            if role is None:
                raise ValueError(f"column {name!r} holds values of type {type(value).__name__}, such as {value!r:.60}: "
                                 "turn it into numbers, text or dates, or drop it.")  # fmt: skip
            examples.setdefault(role, value)
    if len(examples) > 1:
        shown = " and ".join(f"{role}s ({value!r:.60})" for role, value in examples.items())
        raise ValueError(f"column {name!r} mixes {shown}: make it one of them.")
    return next(iter(examples), "empty")


def _allowed_role(column: _Column, chunk: Series) -> str:
    """What the rows hold, if the column can read it."""
    role = _role(chunk, column.name)
    integers = column.role == "level" and chunk.dtype.is_integer()  # a file whose codes happen to be all digits
    if role != "empty" and role not in _READS[column.role] and not integers:
        raise ValueError(
            f"column {column.name!r} held {_plural(column.role)} in the fit and holds {_plural(role)} now."
        )
    return role


def _plural(role: str) -> str:
    return {"text": "text", "level": "text", "category": "categories"}.get(role, role + "s")


def _role_in_fit(series: Series, name: str, notes: list[str]) -> tuple[str, Counter[str]]:
    """The role of a whole column, and how often each text occurs if it is one of levels."""
    roles = {role: chunk for chunk in _chunks(series) if (role := _role(chunk, name)) != "empty"}
    if len(roles) > 1:
        raise ValueError(f"column {name!r} mixes {' and '.join(_plural(role) for role in roles)}: make it one of them.")
    role = next(iter(roles), "empty")
    if role not in ("text", "category"):
        return role, Counter()
    counts: Counter[str] = Counter()
    for chunk in _chunks(series):
        counts.update(text for text in _texts(chunk, role) if text is not None)
    for read in ("number", "date", "time") if role == "text" and counts else ():
        if all(_parsed(text, read) is not None for text in counts):
            notes.append(f"{name!r} holds {read}s written as text, and is read as {read}s.")
            return read, Counter()
    return ("level" if counts else "empty"), counts


def _fit_column(series: Series, role: str, counts: Counter[str], kind: Kind | None, impute: bool,
                notes: list[str]) -> tuple[_Column | None, int]:  # fmt: skip
    """How a column is encoded, None if it has no values, and how many of its values are missing."""
    name = series.name
    if role == "empty":
        return None, len(series)
    if kind is not None and (role == "level" or (role != "number" and isinstance(kind, str))):
        raise ValueError(f"column {name!r} is declared as {kind!r} and holds {_plural(role)}, not numbers.")
    if role == "level":
        return _fit_levels(name, counts, len(series), impute, notes)
    if role == "date":
        return _fit_dates(series, kind, impute, notes)
    x = np.concatenate([_floats(chunk, _role(chunk, name), role, name) for chunk in _chunks(series)])
    seen = x[~np.isnan(x)]
    n_missing = len(x) - len(seen)
    if not len(seen):
        return None, n_missing
    middle = (len(seen) - 1) // 2
    fill = float(np.partition(seen, middle)[middle]) if impute else None
    if role != "number":
        notes.append(f"{name!r} holds {role}s: used in {'days' if role == 'duration' else 'hours'}.")
    if impute and n_missing:
        notes.append(
            f"{name!r} lacks {n_missing} values: the median {fill:.6g} stands in, '{name} missing' marks them."
        )
    return _Numbers(name, role, kind, fill, impute and n_missing > 0), n_missing


def _fit_dates(series: Series, kind: Kind | None, impute: bool, notes: list[str]) -> tuple[_Dates | None, int]:
    name = series.name
    zone = next((zone for chunk in _chunks(series) if (zone := _zone(chunk, name)) is not None), None)
    chunks = [_instants(chunk, _role(chunk, name), zone, name) for chunk in _chunks(series)]
    utc, wall, gone = (np.concatenate(part) for part in zip(*chunks, strict=True))
    n_missing = int(gone.sum())
    utc, wall = utc[~gone], wall[~gone]
    if not len(utc):
        return None, n_missing
    origin = int(utc.min()) // _DAY * _DAY
    parts = () if kind is not None else tuple(_telling_parts(utc, wall))
    middle = np.argsort(utc, kind="stable")[(len(utc) - 1) // 2]
    fill = (int(utc[middle]), int(wall[middle])) if impute else None
    used = ", ".join((f"days since {np.datetime64(origin // _DAY, 'D')}", *parts))
    notes.append(f"{name!r} holds dates: used as {used}.")
    if impute and n_missing:
        notes.append(f"{name!r} lacks {n_missing} dates: the median stands in, '{name} missing' marks them.")
    return _Dates(name, "date", kind, fill, impute and n_missing > 0, origin, zone, parts), n_missing


def _telling_parts(utc: Array, wall: Array) -> Iterator[str]:
    """The clocks and calendars that differ from the trend and from a constant on these rows."""
    days = (int(utc.max()) - int(utc.min())) / _DAY
    if days > 1 and len(np.unique(wall % _DAY)) > 1:
        yield "time of day"
    if days > 14 and len(np.unique(wall // _DAY % 7)) > 1:
        yield "day of week"
    if days > 1.5 * _YEAR:
        season = _part(wall, "day of year")
        apart = (season - season[0] + _YEAR / 2) % _YEAR
        if np.ptp(apart) > 2:  # not one date a year
            yield "day of year"


def _part(wall: Array, part: str) -> Array:
    """A clock or a calendar: hours since midnight, days since Monday, days of a year of 365.25 days."""
    if part == "time of day":
        return wall % _DAY / _HOUR
    if part == "day of week":
        return (wall + 3 * _DAY) % (7 * _DAY) / _DAY  # 1970 began on a Thursday
    return wall % int(_YEAR * _DAY) / _DAY


def _fit_levels(name: str, counts: Counter[str], n: int, impute: bool, notes: list[str]) -> tuple[_Levels, int]:
    total = counts.total()
    n_missing = n - total
    if len(counts) > 50 and len(counts) > 0.5 * total:
        odd = [text for text in counts if _parsed(text, "number") is None]
        hint = f" Most are numbers, but {odd[0]!r:.60} is not." if len(odd) < 0.5 * len(counts) else ""
        raise ValueError(
            f"column {name!r} holds text that hardly repeats ({len(counts)} different in {total} rows): "
            f"drop it if it is an identifier, or encode it yourself.{hint}"
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


def _values(chunk: Series) -> list[Any]:
    """The values as Python objects, None where missing."""
    gone = chunk.is_null().to_numpy()
    return [
        None if null or (isinstance(value, float) and value != value) else value
        for value, null in zip(chunk.to_list(), gone, strict=True)
    ]


def _texts(chunk: Series, role: str) -> list[str | None]:
    """The values as text; None where missing or blank."""
    if role == "text":
        return [value if isinstance(value, str) and value.strip() else None for value in chunk.to_list()]
    return [None if value is None else str(value) for value in _values(chunk)]


def _parsed(text: str, role: str) -> float | datetime | time | None:
    """A number, a date or a time of day that is written out in `text`, or None."""
    text = text.strip()
    try:
        if role == "number":
            return float(text) if _NUMBER.fullmatch(text) else None
        if role == "date":
            return datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
        return time.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:  # the thirtieth of February
        return None


def _objects(chunk: Series, role: str, read: str, name: str) -> list[Any]:
    """The values as Python objects of role `read`, None where missing, parsed if they are text."""
    if role != "text":
        return _values(chunk)
    texts = _texts(chunk, role)
    values = [None if text is None else _parsed(text, read) for text in texts]
    bad = next((text for text, value in zip(texts, values, strict=True) if text is not None and value is None), None)
    if bad is not None:
        raise ValueError(f"column {name!r} held {read}s in the fit; {bad!r:.60} is none.")
    return values


def _floats(chunk: Series, role: str, read: str, name: str) -> Array:
    """Numbers, durations in days or times of day in hours, as float64; NaN where missing."""
    wide = type(chunk.dtype).__name__ in ("Int128", "UInt128", "Decimal")  # NumPy has none of these
    raw = chunk.cast(nw.Float64).to_numpy() if wide else chunk.to_numpy()
    if role == "duration" and raw.dtype.kind == "m":
        x = raw / np.timedelta64(1, "D")
    elif role == "number" and raw.dtype.kind in "biuf":
        x = raw.astype(np.float64)
    else:
        values = _objects(chunk, role, read, name)
        try:
            x = np.array([_float(value) for value in values])
        except (ArithmeticError, ValueError) as error:
            raise ValueError(f"column {name!r} holds a number beyond float64: {error}.") from None
    if np.isinf(x).any():
        raise ValueError(f"column {name!r} holds infinite values: drop those rows, or make them missing.")
    return x


def _float(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, time):
        return value.hour + value.minute / 60 + (value.second + value.microsecond / 1e6) / 3600
    return float(value)


def _zone(chunk: Series, name: str) -> str | None:
    """The time zone of a column of dates; UTC if each date brings its own."""
    if type(chunk.dtype).__name__ in ("Date", "Datetime"):
        return getattr(chunk.dtype, "time_zone", None)
    role = _role(chunk, name)
    zoned = {_has_zone(value) for value in _objects(chunk, role, "date", name) if value is not None}
    if len(zoned) > 1:
        raise ValueError(f"column {name!r} has dates with a time zone and dates without: make them all alike.")
    return "UTC" if zoned == {True} else None


def _has_zone(value: date) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _instants(chunk: Series, role: str, zone: str | None, name: str) -> tuple[Array, Array, Array]:
    """Microseconds since 1970 by the world's clock and by the wall's in `zone`, and a mask of those missing."""
    own = _zone(chunk, name)
    typed = type(chunk.dtype).__name__ == "Datetime" and own is not None
    universal = chunk.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if typed else chunk
    utc, gone = _microseconds(universal, role, name)
    if not gone.all() and (own is None) != (zone is None):
        raise ValueError(
            f"column {name!r} has dates {'with' if own else 'without'} a time zone; "
            f"the fit had them {'with' if zone else 'without'} one."
        )
    if gone.all() or zone is None or zone == "UTC":
        return utc, utc, gone
    try:
        local = (chunk if own == zone else chunk.dt.convert_time_zone(zone)).dt.replace_time_zone(None)
    except Exception:  # each library has its own: a zone that it does not know, or dates in text
        raise ValueError(f"column {name!r} is in time zone {own}, the fit was in {zone}: convert it.") from None
    return utc, _microseconds(local, role, name)[0], gone


def _microseconds(chunk: Series, role: str, name: str) -> tuple[Array, Array]:
    """Microseconds since 1970, int64, and a mask of those missing."""
    raw = chunk.to_numpy()
    if raw.dtype.kind != "M":
        counts = [None if v is None else _since_1970(v) for v in _objects(chunk, role, "date", name)]
        gone = np.array([count is None for count in counts])
        return np.array([count or 0 for count in counts], np.int64), gone
    gone = np.isnat(raw)
    ticks = np.where(gone, 0, raw.astype(np.int64))
    unit, step = np.datetime_data(raw.dtype)
    if unit == "ns":
        return ticks * step // 1000, gone
    scale = step * {"us": 1, "ms": 1000, "s": 10**6, "D": _DAY}[unit]
    if max(abs(int(ticks.min())), abs(int(ticks.max()))) > _FAR // scale:
        raise ValueError(f"column {name!r} holds dates too far from today to count: check them.")
    return ticks * scale, gone


def _since_1970(value: date) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    epoch = _EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=UTC)
    return (value - epoch) // timedelta(microseconds=1)
