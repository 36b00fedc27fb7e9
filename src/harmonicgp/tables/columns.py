"""One column: the kind that is declared of it, the role of what it holds, and its values as NumPy has them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from operator import index as as_integer
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np

Kind: TypeAlias = Literal["longitude", "latitude"] | tuple[Literal["periodic"], float]
Array: TypeAlias = np.ndarray[Any, Any]
Series: TypeAlias = nw.Series[Any]

DAY = 86_400_000_000  # microseconds
_HOUR = 3_600_000_000
YEAR = 365.25  # days
SEASONS = 1.5  #: years of dates that tell a season from a trend
_FAR = 2**61  # microseconds from 1970 that we count to: differences stay within int64
_EPOCH = datetime(1970, 1, 1)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)  # Python's own reader takes week numbers and 20240101 too
_OTHER_DATE = re.compile(
    r"(\d{1,2}([/.-])\d{1,2}\2(\d{4}|\d\d)|\d{4}([/.])\d{1,2}\4\d{1,2})([T ].*)?", re.ASCII
)  # whether 03/04 is in March or in April is not for us to guess
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


# What is declared ----------------------------------------------------------------------------------------------------


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
            raise ValueError(f"columns names {key!r}, which is not in the table; it has {listed(names)}.")
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


def listed(names: Sequence[object], most: int = 10) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


# What it holds -------------------------------------------------------------------------------------------------------


def role_of(chunk: Series, name: str) -> str:
    """What these rows hold: a role, or "empty"."""
    known = "number" if chunk.dtype.is_numeric() else _ROLES.get(type(chunk.dtype).__name__)
    if known:
        return known
    if type(chunk.dtype).__name__ not in ("Object", "Unknown"):
        raise ValueError(f"column {name!r} is of type {chunk.dtype}: turn it into numbers, text or dates, or drop it.")
    examples: dict[str, Any] = {}
    for value in _values_of(chunk):
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


def plural(role: str) -> str:
    """The word for several values of a role."""
    return {"text": "text", "level": "text", "category": "categories"}.get(role, role + "s")


# What is read --------------------------------------------------------------------------------------------------------


def _values_of(chunk: Series) -> list[Any]:
    """The values as Python objects, None where missing."""
    gone = chunk.is_null().to_numpy()
    return [
        None if null or (isinstance(value, float) and value != value) else value
        for value, null in zip(chunk.to_list(), gone, strict=True)
    ]


def texts_of(chunk: Series, role: str) -> list[str | None]:
    """The values as text; None where missing or blank."""
    if role == "text":
        return [value if isinstance(value, str) and value.strip() else None for value in chunk.to_list()]
    return [None if value is None else str(value) for value in _values_of(chunk)]


def parse(text: str, role: str) -> float | datetime | time | None:
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


def looks_like_date(text: str) -> bool:
    """Whether a text is a date in another form than ISO's.

    Examples:
        >>> looks_like_date("31/12/2023"), looks_like_date("2023.12.31 08:00"), looks_like_date("A-12")
        (True, True, False)
    """
    return _OTHER_DATE.fullmatch(text.strip()) is not None


def _objects_of(chunk: Series, role: str, read: str, name: str) -> list[Any]:
    """The values as Python objects of role `read`, None where missing, parsed if they are text."""
    if role != "text":
        return _values_of(chunk)
    texts = texts_of(chunk, role)
    values = [None if text is None else parse(text, read) for text in texts]
    bad = next((text for text, value in zip(texts, values, strict=True) if text is not None and value is None), None)
    if bad is not None:
        raise ValueError(f"column {name!r} held {read}s in the fit; {bad!r:.60} is none.")
    return values


def floats_of(chunk: Series, role: str, read: str, name: str) -> Array:
    """Numbers, durations in days or times of day in hours, as float64; NaN where missing."""
    wide = type(chunk.dtype).__name__ in ("Int128", "UInt128", "Decimal")  # NumPy has none of these
    raw = chunk.cast(nw.Float64).to_numpy() if wide else chunk.to_numpy()
    if role == "duration" and raw.dtype.kind == "m":
        x = raw / np.timedelta64(1, "D")
    elif role == "number" and raw.dtype.kind in "biuf":
        x = raw.astype(np.float64)
    else:
        values = _objects_of(chunk, role, read, name)
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


def zone_of(chunk: Series, name: str) -> str | None:
    """The time zone of a column of dates; UTC if each date brings its own."""
    if type(chunk.dtype).__name__ in ("Date", "Datetime"):
        return getattr(chunk.dtype, "time_zone", None)
    role = role_of(chunk, name)
    zoned = {_has_zone(value) for value in _objects_of(chunk, role, "date", name) if value is not None}
    if len(zoned) > 1:
        raise ValueError(f"column {name!r} has dates with a time zone and dates without: make them all alike.")
    return "UTC" if zoned == {True} else None


def _has_zone(value: date) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def instants_of(chunk: Series, role: str, zone: str | None, name: str) -> tuple[Array, Array, Array]:
    """Microseconds since 1970 by the world's clock and by the wall's in `zone`, and a mask of those missing."""
    own = zone_of(chunk, name)
    typed = type(chunk.dtype).__name__ == "Datetime" and own is not None
    universal = chunk.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if typed else chunk
    utc, gone = _microseconds_of(universal, role, name)
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
    return utc, _microseconds_of(local, role, name)[0], gone


def _microseconds_of(chunk: Series, role: str, name: str) -> tuple[Array, Array]:
    """Microseconds since 1970, int64, and a mask of those missing."""
    raw = chunk.to_numpy()
    if raw.dtype.kind != "M":
        counts = [None if v is None else _since_1970(v) for v in _objects_of(chunk, role, "date", name)]
        gone = np.array([count is None for count in counts])
        return np.array([count or 0 for count in counts], np.int64), gone
    gone = np.isnat(raw)
    ticks = np.where(gone, 0, raw.astype(np.int64))
    unit, step = np.datetime_data(raw.dtype)
    if unit == "ns":
        return ticks * step // 1000, gone
    scale = step * {"us": 1, "ms": 1000, "s": 10**6, "D": DAY}[unit]
    if max(abs(int(ticks.min())), abs(int(ticks.max()))) > _FAR // scale:
        raise ValueError(f"column {name!r} holds dates too far from today to count: check them.")
    return ticks * scale, gone


def _since_1970(value: date) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    epoch = _EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=UTC)
    return (value - epoch) // timedelta(microseconds=1)


# Clocks and calendars ------------------------------------------------------------------------------------------------


def telling_parts(utc: Array, wall: Array) -> Iterator[str]:
    """The clocks and calendars that differ from the trend and from a constant on these rows."""
    days = (int(utc.max()) - int(utc.min())) / DAY
    if days > 1 and len(np.unique(wall % DAY)) > 1:
        yield "time of day"
    if days > 14 and len(np.unique(wall // DAY % 7)) > 1:
        yield "day of week"
    if days > SEASONS * YEAR:
        season = calendar_part(wall, "day of year")
        apart = (season - season[0] + YEAR / 2) % YEAR
        if np.ptp(apart) > 2:  # not one date a year
            yield "day of year"


def calendar_part(wall: Array, part: str) -> Array:
    """A clock or a calendar: hours since midnight, days since Monday, days of a year of 365.25 days."""
    if part == "time of day":
        return wall % DAY / _HOUR
    if part == "day of week":
        return (wall + 3 * DAY) % (7 * DAY) / DAY  # 1970 began on a Thursday
    return wall % int(YEAR * DAY) / DAY
