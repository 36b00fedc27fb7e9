"""One column of a table: the role of its values, and the values as NumPy arrays."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Series: TypeAlias = nw.Series[Any]

CHUNK = 65536  #: rows that are turned into Python objects at a time
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


# Roles --------------------------------------------------------------------------------------------------------------


def chunks_of(series: Series) -> Iterator[Series]:
    """The series in pieces of `CHUNK` rows."""
    for start in range(0, len(series), CHUNK):
        yield series[start : start + CHUNK]


def role_of(chunk: Series, name: str) -> str:
    """What these rows hold: a role, or "empty"."""
    role_of_type = "number" if chunk.dtype.is_numeric() else _ROLES.get(type(chunk.dtype).__name__)
    if role_of_type:
        return role_of_type
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


def fit_role(series: Series, mass: Array, notes: list[str]) -> tuple[str, Counter[str]]:
    """The role of a whole column, and the weight of each text if it is a column of levels."""
    name = series.name
    roles = {role: chunk for chunk in chunks_of(series) if (role := role_of(chunk, name)) != "empty"}
    if len(roles) > 1:
        raise ValueError(f"column {name!r} mixes {' and '.join(plural(role) for role in roles)}: make it one of them.")
    role = next(iter(roles), "empty")
    if role not in ("text", "category"):
        return role, Counter()
    counts: Counter[str] = Counter()
    start = 0
    for chunk in chunks_of(series):
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


# Values --------------------------------------------------------------------------------------------------------------


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
    column_zone = zone_of(chunk, name)
    typed = type(chunk.dtype).__name__ == "Datetime" and column_zone is not None
    universal = chunk.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if typed else chunk
    utc, gone = _microseconds_of(universal, role, name)
    if not gone.all() and (column_zone is None) != (zone is None):
        raise ValueError(
            f"column {name!r} has dates {'with' if column_zone else 'without'} a time zone; "
            f"the fit had them {'with' if zone else 'without'} one."
        )
    if gone.all() or zone is None or zone == "UTC":
        return utc, utc, gone
    try:
        local = (chunk if column_zone == zone else chunk.dt.convert_time_zone(zone)).dt.replace_time_zone(None)
    except Exception:  # each library has its own: a zone that it does not know, or dates in text
        raise ValueError(f"column {name!r} is in time zone {column_zone}, the fit was in {zone}: convert it.") from None
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
