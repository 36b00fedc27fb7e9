"""Coordinates of a region: what they are (CF conventions), checks, a plane for them, and lattices of evenly spaced ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonicgp.tables.columns import Array

#: Kilometres of a degree of latitude.
DEGREE = 111.195
#: Coordinates may lie this share of a step off their lattice, and a lattice have this many places for each coordinate.
OFF_LATTICE, GAPS = 0.02, 4
_NAMES = {
    "longitude": ("lon", "longitude", "long"),
    "latitude": ("lat", "latitude"),
    "length": ("x", "y", "z", "easting", "northing", "depth", "height", "altitude", "elevation"),
}
_METRES = {"m": 1.0, "km": 1e3, "cm": 1e-2, "mm": 1e-3, "ft": 0.3048, "feet": 0.3048, "foot": 0.3048, "mi": 1609.344}
_METRES |= {
    word + s: _METRES[u] for word, u in (("metre", "m"), ("meter", "m"), ("kilometre", "km")) for s in ("", "s")
}
_METRES |= {word + s: _METRES[u] for word, u in (("kilometer", "km"), ("centimetre", "cm")) for s in ("", "s")}


@dataclass(frozen=True)
class Coordinate:
    """One coordinate of the places: its name, kind and units."""

    name: str
    kind: str  #: "longitude", "latitude", "length", "time" or "number"
    units: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("longitude", "latitude", "length", "time", "number"):
            raise ValueError(f"the coordinate {self.name} has the kind {self.kind!r}, which is not known.")

    @classmethod
    def of(
        cls, name: str, dtype: np.dtype[Any], attrs: Mapping[Any, Any], geographic: bool | None = None
    ) -> Coordinate:
        """By its name and attributes; `geographic` says whether names such as lon count (None: yes)."""
        units = str(attrs.get("units", "")).strip()
        standard, word, plain = str(attrs.get("standard_name", "")), name.lower(), units.lower()
        if dtype.kind == "M" or " since " in plain:
            return cls(name, "time", "days" if dtype.kind == "M" else units)
        if dtype.kind not in "fiu":
            raise TypeError(f"the coordinate {name!r} has type {dtype}; coordinates must be numbers or dates.")
        for kind, sides in (("longitude", ("east", "e")), ("latitude", ("north", "n"))):
            words = {f"degree{s}{sep}{side}" for s in ("", "s") for sep in ("_", "") for side in sides}
            angle = plain in ("", "°") or plain.startswith("deg")
            if geographic is not False and (standard == kind or plain in words or (word in _NAMES[kind] and angle)):
                return cls(name, kind, "degrees")
        is_length = plain in _METRES or standard.startswith("projection_") or attrs.get("axis") in ("X", "Y", "Z")
        return cls(name, "length" if is_length or word in _NAMES["length"] else "number", units)

    def numbers(self, values: Any) -> Array:
        """Values as finite float64; times as days since 2000."""
        array = np.asarray(values)
        if array.dtype.kind == "M":
            if np.isnat(array).any():
                raise ValueError(f"the coordinate {self.name!r} has a missing date: drop it.")
            return np.asarray((array - np.datetime64("2000-01-01")) / np.timedelta64(1, "D"), np.float64)
        array = array.astype(np.float64)
        bad = ~np.isfinite(array)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"the coordinate {self.name!r} is {array.ravel()[first]} at position {first}: drop places without coordinates."
            )
        if self.kind == "latitude" and np.abs(array).max(initial=0.0) > 90 + 1e-6:
            worst = array.ravel()[np.abs(array).argmax()]
            raise ValueError(f"a latitude ({self.name!r}) is {worst:g}: longitude and latitude may be swapped.")
        if self.kind == "longitude" and np.abs(array).max(initial=0.0) > 540:
            raise ValueError(f"the longitude {self.name!r} reaches {np.abs(array).max():g} degrees: is it in metres?")
        return array


@dataclass(frozen=True)
class Plane:
    """A map from coordinates to a plane, on which the kernel is stationary.

    Longitudes and latitudes become kilometres about the middle of the region. Lengths get one unit. All else is only shifted.

    Examples:
        >>> plane = Plane.of(
        ...     [Coordinate("x", "length", "m"), Coordinate("y", "length", "km")], np.array([[0, 0], [2000, 3]])
        ... )
        >>> plane(np.array([[3000.0, 4.0]])), plane.units
        (array([[2000., 2500.]]), ('m', 'm'))
    """

    coordinates: tuple[Coordinate, ...]
    origin: tuple[float, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = {len(self.coordinates), len(self.origin), len(self.factors)}
        if len(sizes) > 1 or not np.isfinite([*self.origin, *self.factors]).all() or 0.0 in self.factors:
            raise ValueError("a plane whose coordinates, origin and factors do not fit together.")

    @classmethod
    def of(cls, coordinates: Sequence[Coordinate], points: Array) -> Plane:
        """The plane of points [n, d], or of the corners of a grid."""
        if not 1 <= len(coordinates) <= 3:
            raise ValueError(
                f"a field has one to three axes; got {len(coordinates)}: {', '.join(c.name for c in coordinates)}. Give by= to "
                "fit the slices of one as separate fields, or use HarmonicGPRegressor."
            )
        kinds = [c.kind for c in coordinates]
        if ("longitude" in kinds) != ("latitude" in kinds) and "length" in kinds[:2]:
            raise ValueError(f"mixed coordinates: {_words(coordinates)}. Use two degrees or two lengths.")
        metres = [_METRES.get(c.units.lower()) if c.kind == "length" else None for c in coordinates]
        flat = [m for m, c in zip(metres[:2], coordinates, strict=False) if c.kind == "length"]
        if None in flat and any(flat):
            raise ValueError(f"mixed units: {_words(coordinates)}. Set the attribute units of both, such as 'm'.")
        first = next((m for m in metres if m), 1.0)
        origin, factors = [], []
        for c, column, length in zip(coordinates, points.T, metres, strict=True):
            origin.append(
                middle_longitude(column) if c.kind == "longitude" else 0.5 * float(column.min() + column.max())
            )
            factors.append(length / first if length else 1.0)
        if "longitude" in kinds and "latitude" in kinds:
            lon, lat = kinds.index("longitude"), kinds.index("latitude")
            factors[lon], factors[lat] = DEGREE * max(float(np.cos(np.deg2rad(origin[lat]))), 0.01), DEGREE
        return cls(tuple(coordinates), tuple(origin), tuple(factors))

    def __call__(self, points: Array) -> Array:
        """Points [n, d] on the plane."""
        shifted = points - np.array(self.origin)
        for j, c in enumerate(self.coordinates):
            if c.kind == "longitude":
                shifted[:, j] = np.mod(shifted[:, j] + 180.0, 360.0) - 180.0
        return shifted * np.array(self.factors)

    @property
    def units(self) -> tuple[str, ...]:
        """The units on the plane, axis by axis."""
        first = next((c.units for c in self.coordinates if c.kind == "length"), "")
        geographic = {"longitude": "km", "latitude": "km", "length": first}
        both = {"longitude", "latitude"} <= {c.kind for c in self.coordinates}
        return tuple(
            geographic.get(c.kind, c.units) if both or c.kind == "length" else c.units for c in self.coordinates
        )

    def state(self) -> dict[str, Any]:
        """For the header of a file."""
        rows = [[c.name, c.kind, c.units] for c in self.coordinates]
        return {"coordinates": rows, "origin": list(self.origin), "factors": list(self.factors)}

    @classmethod
    def from_state(cls, header: Mapping[str, Any]) -> Plane:
        """From a file."""
        coordinates = tuple(Coordinate(*(str(part) for part in row)) for row in header["coordinates"])
        origin, factors = (tuple(float(v) for v in header[name]) for name in ("origin", "factors"))
        return cls(coordinates, origin, factors)


def _words(coordinates: Sequence[Coordinate]) -> str:
    return ", ".join(f"{c.name!r} in {c.units or 'no units'}" for c in coordinates)


def middle_longitude(longitudes: Array) -> float:
    """The middle of longitudes on the circle, opposite to the widest gap."""
    around = np.unique(np.mod(longitudes, 360.0))
    gaps = np.diff(around, append=around[0] + 360.0)
    start = around[(int(gaps.argmax()) + 1) % len(around)]
    return float(np.mod(start + 0.5 * (360.0 - gaps.max()) + 180.0, 360.0) - 180.0)


def geographic_extent(coordinates: Sequence[Coordinate], points: Array) -> tuple[float, float] | None:
    """Degrees of longitude, and the largest ratio of the lengths of a degree of it; None for other coordinates."""
    kinds = [c.kind for c in coordinates]
    if "longitude" not in kinds or "latitude" not in kinds:
        return None
    around = np.unique(np.mod(points[:, kinds.index("longitude")], 360.0))
    span = 360.0 - float(np.diff(around, append=around[0] + 360.0).max())
    latitudes = points[:, kinds.index("latitude")]
    low = 0.0 if latitudes.min() < 0 < latitudes.max() else float(np.abs(latitudes).min())
    cosines = np.cos(np.deg2rad([low, min(float(np.abs(latitudes).max()), 89.9)]))
    return span, float(cosines[0] / cosines[1])


@dataclass(frozen=True)
class Lattice:
    """Evenly spaced places, and which of them coordinates take."""

    step: float
    size: int
    index: Array  #: the place of every coordinate, whole numbers

    @classmethod
    def of(cls, values: Array, name: str, distinct: bool = True) -> Lattice | None:
        """The lattice of coordinates [n] on the plane; None if they are unevenly spaced.

        With `distinct`, equal coordinates raise a ValueError.
        """
        levels = np.sort(values)
        gaps = np.diff(levels)
        extent = float(levels[-1] - levels[0])
        same = gaps <= 1e-9 * max(extent, float(np.abs(levels).max()), 1e-300)
        if distinct and same.any():
            raise ValueError(
                f"the coordinate {name!r} has {int(same.sum())} repeated value(s), the first at position "
                f"{int(np.flatnonzero(values == levels[int(same.argmax())])[0])}: drop or average repeated rows."
            )
        if extent == 0 or same.all():
            return cls(1.0, 1, np.zeros(len(values), np.int64))
        smallest = float(gaps[~same].min())
        count = round(extent / smallest)
        if count + 1 > GAPS * (len(values) - int(same.sum())) + 8:
            return None
        step = extent / count
        place = (values - levels[0]) / step
        index = np.rint(place).astype(np.int64)
        return None if np.abs(place - index).max() > OFF_LATTICE else cls(step, count + 1, index)
