"""Kinds of columns that a user declares: longitude, latitude, periodic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

#: What a user declares a column to be, such as "longitude" or ("periodic", 24.0).
Kind: TypeAlias = Literal["longitude", "latitude"] | tuple[Literal["periodic"], float]

#: What people call longitudes and latitudes.
_NAMES = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("long", "lat"))


def check_kinds(columns: Mapping[str | int, Kind] | None, names: Sequence[str] | None, d: int) -> dict[int, Kind]:
    """The declared kinds of d columns, by column number; `names` is None for a plain array.

    Examples:
        >>> check_kinds({"lon": "longitude", "lat": "latitude", -1: ("periodic", 24)}, ["lat", "lon", "hour"], 3)
        {1: 'longitude', 0: 'latitude', 2: ('periodic', 24.0)}
    """
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(
            'columns must be a dict such as {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}, or '
            f'("image", (height, width)); got {columns!r}.'
        )
    kinds: dict[int, Kind] = {}
    for key, kind in columns.items():
        number = _column_number(key, names, d)
        if number in kinds:
            raise ValueError(f"columns names the same column twice: {key!r} is column {number}.")
        kinds[number] = _check_kind(key, kind)
    counts = Counter(map(str, kinds.values()))
    for one, other in (("latitude", "longitude"), ("longitude", "latitude")):
        if counts[one] > 1:
            raise ValueError(
                f"columns declares more than one {one}: only one pair of latitude and longitude is possible."
            )
        if counts[one] and not counts[other]:
            hint = " (for a longitude alone, use ('periodic', 360))" if one == "longitude" else ""
            raise ValueError(f"columns declares a {one} but no {other}: declare both{hint}.")
    return kinds


def _column_number(key: object, names: Sequence[str] | None, d: int) -> int:
    if isinstance(key, str):
        if names is None:
            raise ValueError(f"columns names {key!r}, but the inputs are an array without names: use column numbers.")
        if key not in names:
            raise ValueError(f"columns names {key!r}, which is not in the table; it has {listed(names)}.")
        return list(names).index(key)
    if not isinstance(key, Integral) or isinstance(key, bool):
        raise ValueError(f"the keys of columns must be names or numbers of columns; got {key!r}.")
    number = int(key)
    if not -d <= number < d:
        raise ValueError(f"columns names column {number}; there are {d} columns, numbered from 0.")
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


def read_kinds(entries: Iterable[tuple[int, Any]]) -> dict[int, Kind]:
    """Kinds by column number, from JSON."""
    return {int(j): ("periodic", float(kind[1])) if isinstance(kind, list) else kind for j, kind in entries}


def listed(names: Sequence[object], most: int = 10, show: Callable[[object], str] = repr) -> str:
    """The first `most` names, and the number of the others.

    Examples:
        >>> listed(["a", "b", "c"], most=2)
        "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(show, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def undeclared_places(
    names: Sequence[str], ranges: Sequence[tuple[float, float]], kinds: Mapping[int, Kind]
) -> str | None:
    """A sentence on the first pair of columns that look like longitude and latitude, by name and range, if none is declared.

    Examples:
        >>> undeclared_places(["Lon", "Lat"], [(-9.0, 3.0), (50.0, 59.0)], {})
        "'Lon' and 'Lat' look like longitude and latitude, and count as plain numbers. For distances on the globe, declare them:
        columns={'Lon': 'longitude', 'Lat': 'latitude'} (--columns Lon=longitude,Lat=latitude)."
    """
    if {"longitude", "latitude"} & {*map(str, kinds.values())}:
        return None
    places = {name.lower(): name for name, (low, high) in zip(names, ranges, strict=True) if -180 <= low < high <= 360}
    norths = {name.lower() for name, (low, high) in zip(names, ranges, strict=True) if -90 <= low < high <= 90}
    for east, north in _NAMES:
        for name in places:
            other = name.removesuffix(east) + north
            if name.endswith(east) and other in norths and (name == east or not name.removesuffix(east)[-1].isalnum()):
                lon, lat = places[name], places[other]
                return (
                    f"{lon!r} and {lat!r} look like longitude and latitude, and count as plain numbers. For distances on the "
                    f"globe, declare them: columns={{{lon!r}: 'longitude', {lat!r}: 'latitude'}} "
                    f"(--columns {lon}=longitude,{lat}=latitude)."
                )
    return None
