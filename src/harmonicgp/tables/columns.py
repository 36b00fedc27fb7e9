"""One column of a table: the role of its values, and the values as NumPy arrays."""

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

CHUNK = 65536  #: rows that are turned into Python objects at a time
_FARTHEST = 70_000  # years from 1970 that we count to: differences in microseconds stay within int64
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


# Roles --------------------------------------------------------------------------------------------------------------


def role_of(series: Series) -> str:
    """What a column holds: a role, or "empty"."""
    role_of_type = "number" if series.dtype.is_numeric() else _ROLES.get(type(series.dtype).__name__)
    if role_of_type:
        return role_of_type
    name = series.name
    if type(series.dtype).__name__ not in ("Object", "Unknown"):
        raise ValueError(f"column {name!r} is of type {series.dtype}: turn it into numbers, text or dates, or drop it.")
    examples: dict[str, Any] = {}
    for value in _values_of(series):
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
    """The role of a column of the fit, and the weight of each text if it is a column of levels."""
    name, role, counts = series.name, role_of(series), Counter[str]()
    if role not in ("text", "category"):
        return role, counts
    for text, weight in zip(texts_of(series), mass.tolist(), strict=True):
        if text is not None:
            counts[text] += weight
    for read in ("number", "date", "time") if role == "text" and counts else ():
        odd = [text for text in counts if _parse(text, read) is None]
        if not odd:
            notes.append(f"{name!r} holds {read}s written as text, and is read as {read}s.")
            return read, Counter()
        if len(counts) - len(odd) >= 10 and len(odd) <= 0.1 * len(counts):
            shown = ", ".join(repr(text[:40]) for text in odd[:3]) + (", ..." if len(odd) > 3 else "")
            raise ValueError(
                f"column {name!r} reads as {read}s, but for {shown}: mend or empty those cells, or make it text that "
                "cannot be read so."
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
    """The values as text; None where missing, or blank and no category."""
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
        elif (found := _parse(value, read)) is not None:
            yield found
        else:
            raise ValueError(f"column {series.name!r} held {read}s in the fit; {value!r:.60} is none.")


def _parse(text: str, role: str) -> float | datetime | time | None:
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


def floats_of(series: Series, read: str) -> Array:
    """Numbers, durations in days or times of day in hours, as float64; NaN where missing."""
    wide = type(series.dtype).__name__ in ("Int128", "UInt128", "Decimal")  # NumPy has none of these
    raw = series.cast(nw.Float64).to_numpy() if wide else series.to_numpy()
    if raw.dtype.kind == "m":
        x = raw / np.timedelta64(1, "D")
    elif raw.dtype.kind in "biuf":
        x = raw.astype(np.float64)
    else:
        try:
            x = np.fromiter(map(_float, _objects_of(series, read)), np.float64, len(series))
        except ArithmeticError as error:
            raise ValueError(f"column {series.name!r} holds a number beyond float64: {error}.") from None
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
    """The time zone of a column of dates; UTC if each date brings its own."""
    if type(series.dtype).__name__ in ("Date", "Datetime"):
        return getattr(series.dtype, "time_zone", None)
    zoned = {_offset(value) is not None for value in _objects_of(series, "date") if value is not None}
    if len(zoned) > 1:
        raise ValueError(f"column {series.name!r} has dates with a time zone and dates without: make them all alike.")
    return "UTC" if zoned == {True} else None


def _offset(value: Any) -> timedelta | None:
    """From the world's clock to that of a date, if it has one."""
    return value.utcoffset() if isinstance(value, datetime) else None


def instants_of(series: Series, zone: str | None) -> tuple[Array, Array, Array]:
    """Microseconds since 1970 by the world's clock and by the wall's in `zone`, and a mask of those missing."""
    name, column_zone = series.name, zone_of(series)
    typed = type(series.dtype).__name__ == "Datetime" and column_zone is not None
    utc, gone = _microseconds_of(series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if typed else series)
    if gone.all():
        return utc, utc, gone
    if (column_zone is None) != (zone is None):
        raise ValueError(
            f"column {name!r} has dates {'with' if column_zone else 'without'} a time zone; "
            f"the fit had them {'with' if zone else 'without'} one."
        )
    if zone is None or zone == "UTC":
        return utc, utc, gone
    try:
        local = (series if column_zone == zone else series.dt.convert_time_zone(zone)).dt.replace_time_zone(None)
    except Exception:  # each library has its own: a zone that it does not know, or dates in text
        raise ValueError(f"column {name!r} is in time zone {column_zone}, the fit was in {zone}: convert it.") from None
    return utc, _microseconds_of(local)[0], gone


def _microseconds_of(series: Series) -> tuple[Array, Array]:
    """Microseconds since 1970, int64, and a mask of those missing."""
    raw = series.to_numpy()
    if raw.dtype.kind != "M":
        raw = np.array([_universal(value) for value in _objects_of(series, "date")], "M8[us]")
    gone = np.isnat(raw)
    if (np.abs(raw[~gone].astype("M8[Y]").astype(np.int64)) > _FARTHEST).any():
        raise ValueError(f"column {series.name!r} holds dates too far from today to count: check them.")
    return np.where(gone, 0, raw.astype("M8[us]").astype(np.int64)), gone


def _universal(value: Any) -> Any:
    """A date by the world's clock."""
    offset = _offset(value)
    return value if offset is None else np.datetime64(value.replace(tzinfo=None), "us") - np.timedelta64(offset)
