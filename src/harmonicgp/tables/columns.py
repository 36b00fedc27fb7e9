"""One column of a table: the role of its values, and its values as NumPy arrays."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Series: TypeAlias = nw.Series[Any]

CHUNK = 65536  #: rows that are converted to Python objects at a time
_FARTHEST = 70_000  # years from 1970 at most, so that differences in microseconds stay within int64
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)  # `fromisoformat` also reads week numbers and 20240101
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


def role_of(series: Series) -> str:
    """The role of the values of a column, such as "number" or "date"; "empty" if there are none."""
    role_of_type = "number" if series.dtype.is_numeric() else _ROLES.get(type(series.dtype).__name__)
    if role_of_type:
        return role_of_type
    name = series.name
    if type(series.dtype).__name__ not in ("Object", "Unknown"):
        raise ValueError(f"column {name!r} has type {series.dtype}: convert it to numbers, text or dates, or drop it.")
    examples: dict[str, Any] = {}
    for value in _values_of(series):
        if value is not None:
            role = next((role for role, types in _TYPES if isinstance(value, types)), None)
            if role is None:
                raise ValueError(f"column {name!r} holds values of type {type(value).__name__}, such as {value!r:.60}: "
                                 "convert it to numbers, text or dates, or drop it.")  # fmt: skip
            examples.setdefault(role, value)
    if len(examples) > 1:
        shown = " and ".join(f"{role}s ({value!r:.60})" for role, value in examples.items())
        raise ValueError(f"column {name!r} mixes {shown}: convert it to one of them.")
    return next(iter(examples), "empty")


def plural(role: str) -> str:
    """The plural of a role, for messages."""
    return {"text": "text", "level": "text", "category": "categories"}.get(role, role + "s")


def fit_role(series: Series, mass: Array, notes: list[str]) -> tuple[str, Counter[str]]:
    """The role of a column in the fit and, for a column of levels, the weight of each text."""
    name, role, counts = series.name, role_of(series), Counter[str]()
    if role not in ("text", "category"):
        return role, counts
    for text, weight in zip(texts_of(series), mass.tolist(), strict=True):
        if text is not None:
            counts[text] += weight
    for read in ("number", "date", "time") if role == "text" and counts else ():
        unreadable = [text for text in counts if _parse(text, read) is None]
        if not unreadable:
            notes.append(f"{name!r} holds {read}s as text and is read as {read}s.")
            return read, Counter()
        if len(counts) - len(unreadable) >= 10 and len(unreadable) <= 0.1 * len(counts):
            shown = ", ".join(repr(text[:40]) for text in unreadable[:3]) + (", ..." if len(unreadable) > 3 else "")
            raise ValueError(
                f"column {name!r} reads as {read}s, except {shown}: correct or empty those cells, or write all cells as "
                "other text."
            )
    return ("level" if counts else "empty"), counts


# Values --------------------------------------------------------------------------------------------------------------


def _values_of(series: Series) -> Iterator[Any]:
    """The values as Python objects, None where missing."""
    for start in range(0, len(series), CHUNK):
        chunk = series[start : start + CHUNK]
        for value, null in zip(chunk.to_list(), chunk.is_null().to_numpy(), strict=True):
            yield None if null or (isinstance(value, float) and value != value) else value


def texts_of(series: Series) -> Iterator[str | None]:
    """The values as text; None where a value is missing, or is blank and not a category."""
    categories = _ROLES.get(type(series.dtype).__name__) == "category"
    for value in _values_of(series):
        text = "" if value is None else str(value)
        yield text if text.strip() or (categories and value is not None) else None


def _objects_of(series: Series, read: str) -> Iterator[Any]:
    """The values as Python objects, None where missing or blank; text is read as numbers, dates or times of day."""
    for value in _values_of(series):
        if not isinstance(value, str):
            yield value
        elif not value.strip():
            yield None
        elif (parsed := _parse(value, read)) is not None:
            yield parsed
        else:
            raise ValueError(f"column {series.name!r} held {read}s in the fit; {value!r:.60} is not a {read}.")


def _parse(text: str, role: str) -> float | datetime | time | None:
    """The number, date or time of day that the text stands for, or None."""
    text = text.strip()
    try:
        if role == "number":
            return float(text) if _NUMBER.fullmatch(text) else None
        if role == "date":
            return datetime.fromisoformat(text) if _DATE.fullmatch(text) else None
        return time.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:  # the thirtieth of February
        return None


def floats_of(series: Series, read: str) -> Array:
    """Numbers, durations in days or times of day in hours, as float64; NaN where missing."""
    wide = type(series.dtype).__name__ in ("Int128", "UInt128", "Decimal")  # NumPy lacks these types
    raw = series.cast(nw.Float64).to_numpy() if wide else series.to_numpy()
    if raw.dtype.kind == "m":
        x = raw / np.timedelta64(1, "D")
    elif raw.dtype.kind in "biuf":
        x = raw.astype(np.float64)
    else:
        try:
            x = np.fromiter(map(_float, _objects_of(series, read)), np.float64, len(series))
        except ArithmeticError as error:
            raise ValueError(f"column {series.name!r} holds a number too large for float64: {error}.") from None
    if np.isinf(x).any():
        raise ValueError(f"column {series.name!r} holds infinite values: drop those rows, or make them missing.")
    return x


def _float(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, time):
        return value.hour + value.minute / 60 + (value.second + value.microsecond / 1e6) / 3600
    return float(value)


def zone_of(series: Series) -> str | None:
    """The time zone of a column of dates; UTC if each date has its own, None if they have none."""
    if type(series.dtype).__name__ in ("Date", "Datetime"):
        return getattr(series.dtype, "time_zone", None)
    zoned = {_offset(value) is not None for value in _objects_of(series, "date") if value is not None}
    if len(zoned) > 1:
        raise ValueError(f"column {series.name!r} has dates with and without a time zone: make them all alike.")
    return "UTC" if zoned == {True} else None


def _offset(value: Any) -> timedelta | None:
    """The offset of a date from UTC, if it has one."""
    return value.utcoffset() if isinstance(value, datetime) else None


def instants_of(series: Series, zone: str | None) -> tuple[Array, Array, Array]:
    """Microseconds since 1970 in UTC and in local time of `zone`, both [n], and a mask of missing values."""
    name, column_zone = series.name, zone_of(series)
    typed = type(series.dtype).__name__ == "Datetime" and column_zone is not None
    utc, missing = _microseconds_of(series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if typed else series)
    if missing.all():
        return utc, utc, missing
    if (column_zone is None) != (zone is None):
        raise ValueError(
            f"column {name!r} has dates {'with' if column_zone else 'without'} a time zone; "
            f"the fit had them {'with' if zone else 'without'} one."
        )
    if zone is None or zone == "UTC":
        return utc, utc, missing
    try:
        local = (series if column_zone == zone else series.dt.convert_time_zone(zone)).dt.replace_time_zone(None)
    except Exception:  # libraries raise different errors for an unknown zone, or for dates as text
        raise ValueError(f"column {name!r} is in time zone {column_zone}, the fit was in {zone}: convert it.") from None
    return utc, _microseconds_of(local)[0], missing


def _microseconds_of(series: Series) -> tuple[Array, Array]:
    """Microseconds since 1970 as int64, and a mask of missing values."""
    raw = series.to_numpy()
    if raw.dtype.kind != "M":
        raw = np.array([_to_utc(value) for value in _objects_of(series, "date")], "M8[us]")
    missing = np.isnat(raw)
    if (np.abs(raw[~missing].astype("M8[Y]").astype(np.int64)) > _FARTHEST).any():
        raise ValueError(f"column {series.name!r} holds dates too far from today: check them.")
    return np.where(missing, 0, raw.astype("M8[us]").astype(np.int64)), missing


def _to_utc(value: Any) -> Any:
    """A date in UTC."""
    offset = _offset(value)
    return value if offset is None else np.datetime64(value.replace(tzinfo=None), "us") - np.timedelta64(offset)
