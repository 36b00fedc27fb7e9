"""Longitudes and latitudes: finding them in a dataset by name or attributes, checks, degrees, and lattices of longitudes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harmonicgp.tables.columns import Array

#: Coordinates this close, in degrees, count as equal.
SAME_DEGREES = 1e-9
#: The most longitudes of a lattice, and the largest distance of a longitude from its lattice point, in steps.
MOST_LONGITUDES, LATTICE_TOLERANCE = 100_000, 1e-3
_SAME_PHASE = 1e-6  # degrees up to which longitudes are one on the circle; less than the tolerance of any lattice
_ROUNDING = 1e-5  # degrees by which float32 radians may lie beyond a pole
_NAMES = {"longitude": ("lon", "longitude"), "latitude": ("lat", "latitude")}
_AXIS = {"longitude": "X", "latitude": "Y"}
_UNITS = {
    kind: tuple(f"degree{s}{letter}" for s in ("", "s") for letter in (f"_{word}", f"_{word[0]}", word[0]))
    for kind, word in (("longitude", "east"), ("latitude", "north"))
}


def quoted(names: Any) -> str:
    """Names for a message."""
    return ", ".join(repr(name) for name in names) or "none"


def coordinate_frame(xr: Any, entries: Mapping[Any, Any]) -> Any:
    """A dataset of one-dimensional coordinates, each of them a dimension."""
    coords = {}
    for name, entry in entries.items():
        array = np.asanyarray(entry)
        if array.ndim != 1:
            raise ValueError(
                f"{name} has shape {list(array.shape)}: a grid has one-dimensional lon and lat, not a mesh of them; pass cells "
                "of other grids as points."
            )
        attrs = dict(getattr(entry, "attrs", {}))
        for kind, names in _NAMES.items():
            if str(name).lower() in names:
                attrs = {"standard_name": kind, "units": _UNITS[kind][3], **attrs}
        coords[name] = (name, array, attrs)
    return xr.Dataset(coords=coords)


def _rank(name: object, attrs: Mapping[Any, Any], kind: str) -> int | None:
    """The rank of the evidence that a coordinate is a longitude or a latitude: 0 its name, 1 to 3 its attributes, None none."""
    units = str(attrs.get("units", "")).strip()
    standard = attrs.get("standard_name")
    if str(name).lower() in _NAMES[kind]:
        return 0
    if standard == kind:
        return 1
    if units.lower() in (unit.lower() for unit in _UNITS[kind]):
        return 2
    angle = units.lower().startswith(("deg", "rad", "°"))
    if standard is None and angle and str(attrs.get("axis", "")).upper() == _AXIS[kind]:
        return 3
    return None


def find_coordinate(frame: Any, kind: str, subject: str) -> str:
    """The name of the longitude or the latitude of a dataset, which must be a dimension. Raises a ValueError without one."""
    ranks = {name: _rank(name, coord.attrs, kind) for name, coord in frame.coords.items()}
    candidates = {name: rank for name, rank in ranks.items() if rank is not None}
    usable = {name: rank for name, rank in candidates.items() if frame[name].dims == (name,)}
    if usable:
        best = [name for name, rank in usable.items() if rank == min(usable.values())]
        if len(best) > 1:
            raise ValueError(f"{subject} has several coordinates of {kind}: {quoted(best)}; drop all but one.")
        return str(best[0])
    if not candidates:
        raise ValueError(
            f"{subject} has no coordinate of {kind}; it has {quoted(frame.coords)}. Name it {_NAMES[kind][0]!r} with "
            f".rename(...), or set its attribute units to {_UNITS[kind][3]!r}. HarmonicGPField takes metres and pixels."
        )
    raise _not_a_dimension(frame, min(candidates, key=lambda name: candidates[name]), kind, subject)


def _not_a_dimension(frame: Any, name: Any, kind: str, subject: str) -> ValueError:
    """The error for a longitude or latitude that is not a dimension: the reason, and what to do."""
    dims = frame[name].dims
    if len(dims) > 1:
        return ValueError(
            f"{name!r} of {subject} runs over {quoted(dims)}: the grid is curvilinear, not a grid of longitudes and latitudes. "
            "Pass its cells as points."
        )
    if not dims:
        return ValueError(f"{name!r} of {subject} is one number, not a dimension: use .expand_dims({name!r}).")
    other = "longitude" if kind == "latitude" else "latitude"
    shared = [c for c, coord in frame.coords.items() if _rank(c, coord.attrs, other) is not None and coord.dims == dims]
    if shared:
        return ValueError(
            f"{name!r} and {shared[0]!r} of {subject} both run over {dims[0]!r}: these are points, not a grid. Use "
            f".unstack({dims[0]!r}) if they were stacked, or pass them as points."
        )
    return ValueError(
        f"{name!r} of {subject} runs over {dims[0]!r}; it must be a dimension itself: "
        f"use .swap_dims({{{dims[0]!r}: {name!r}}})."
    )


def degrees(coord: Any, subject: str) -> Array:
    """A coordinate in degrees, finite and not empty."""
    if coord.dtype.kind not in "fiu":
        raise TypeError(f"{coord.name!r} of {subject} has type {coord.dtype}; degrees must be real numbers.")
    units = str(coord.attrs.get("units", "")).strip().lower()
    values = np.array(coord.values, dtype=np.float64)
    if not len(values):
        raise ValueError(f"{coord.name!r} of {subject} is empty.")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"{coord.name!r} of {subject} is {values[at]} at position {at}: drop cells without coordinates."
        )
    if units.startswith("rad"):
        return np.rad2deg(values)
    if units and "deg" not in units and "°" not in units:
        raise ValueError(f"{coord.name!r} of {subject} is in {units!r}; it must be in degrees or radians.")
    return values


def sort_latitudes(latitudes: Array, name: str, subject: str) -> tuple[Array, Array]:
    """Latitudes from south to north, and the position of each argument among them."""
    outside = np.abs(latitudes) > 90.0 + _ROUNDING
    if outside.any():
        raise ValueError(
            f"{name!r} of {subject} has the latitude {latitudes[outside][0]:g}, beyond ±90 degrees: are longitude and "
            "latitude swapped?"
        )
    order = np.argsort(latitudes)
    ascending = np.clip(latitudes[order], -90.0, 90.0)
    repeats = np.flatnonzero(np.diff(ascending) <= SAME_DEGREES)
    if len(repeats):
        raise ValueError(
            f"{name!r} of {subject} has the latitude {ascending[repeats[0]]:g} twice: drop one of the rows."
        )
    return ascending, np.argsort(order)


def merge_meridians(longitudes: Array, name: str, subject: str) -> tuple[Array, Array]:
    """The positions of the first longitude of each meridian, and the number of the meridian of each longitude.

    A meridian may occur twice, 360 degrees apart or as the first and the last column.
    """
    last = len(longitudes) - 1
    tolerance = min(1e-4, 1e-2 * float(np.median(np.diff(np.sort(longitudes))))) if last else 0.0
    span = float(longitudes.max() - longitudes.min())
    if span > 360.0 + tolerance:
        raise ValueError(f"{name!r} of {subject} spans {span:g} degrees; longitudes may span 360 at most.")
    representatives = np.arange(last + 1)
    by_phase = np.argsort(np.mod(longitudes, 360.0), kind="stable")
    successors = np.roll(by_phase, -1)
    turns = (longitudes[successors] - longitudes[by_phase]) / 360.0
    close = (np.abs(turns - np.rint(turns)) * 360.0 <= tolerance) & (by_phase != successors)
    for pair in zip(by_phase[close].tolist(), successors[close].tolist(), strict=True):
        a, b = min(pair), max(pair)
        gap = abs(longitudes[a] - longitudes[b])
        if SAME_DEGREES < gap < 180.0:
            continue  # two close meridians
        is_seam = span > 180.0 and (a, b) == (0, last)  # the first and the last column
        if (gap < 180.0 and not is_seam) or {representatives[a], representatives[b]} - {a, b}:
            raise ValueError(
                f"{name!r} of {subject} has the longitude {longitudes[b]:g} twice: drop one of the columns."
            )
        representatives[b] = a
    first, columns = np.unique(representatives, return_inverse=True)
    return first, columns


# Lattices of longitudes around the circle -----------------------------------------------------------------------------


def find_lattice(longitudes: Array) -> tuple[int, float] | None:
    """The number n and one longitude of the lattice, 360 / n degrees apart, on which all longitudes lie; None if there is none.

    The step of the lattice is the largest of which all distances are multiples. Longitudes of the lattice may be absent.

    Examples:
        >>> find_lattice(np.arange(-180, 180, 2.5)), find_lattice(np.array([350.0, 355.0, 0.0, 10.0]))
        ((144, 2.5), (72, 350.0))
        >>> find_lattice(np.array([0.0, 0.7, 1.4, 2.1])) is None
        True
    """
    if len(longitudes) < 2 or not np.isfinite(longitudes).all():
        return None
    phases = np.mod(longitudes, 360.0, dtype=np.float64)
    phases[phases >= 360.0] = 0.0  # of a tiny negative number
    phases = np.sort(phases)
    ends = np.concatenate(([phases[0] + 360.0 - phases[-1] > _SAME_PHASE], np.diff(phases) > _SAME_PHASE))
    merged = phases[ends]
    if not 2 <= len(merged) <= MOST_LONGITUDES:
        return None
    # Cut the circle at the widest gap: for a region that gap may not be a multiple of the step.
    cut = int(np.argmax(np.append(np.diff(merged), merged[0] + 360.0 - merged[-1]))) + 1
    origin = float(merged[cut % len(merged)])
    distances = np.mod(np.roll(merged, -cut) - origin, 360.0)
    gaps = np.diff(distances)
    step = _common_step(gaps)
    if step is None:
        return None
    n = round(360.0 * float(np.rint(gaps / step).sum()) / float(distances[-1]))
    if n > MOST_LONGITUDES:
        return None
    steps = (phases - origin) * (n / 360.0)
    return (n, origin) if np.abs(steps - np.rint(steps)).max() <= LATTICE_TOLERANCE else None


def _common_step(gaps: Array) -> float | None:
    """The largest step of which all gaps are multiples, by Euclid's algorithm on rounded numbers; None if it is too small.

    The number of steps in a long gap is certain only if the step is precise. So short gaps come first, and refine the step.
    """
    ascending = np.sort(gaps)
    step, reach = float(ascending[0]), 2.0
    while step > 360.0 / (MOST_LONGITUDES + 0.5):
        short = ascending[: np.searchsorted(ascending, reach * step)]
        counts = np.maximum(np.rint(short / step), 1.0)
        remainders = np.abs(short / step - counts)
        fractions = remainders[remainders > 0.05]
        if len(fractions):
            step, reach = step * min(0.5, float(fractions.min())), 2.0
            continue
        if len(short):
            step = float(short.sum() / counts.sum())
        if len(short) == len(ascending):
            return step
        reach *= 2.0
    return None


def places_on(longitudes: Array, n: int, origin: float) -> Array:
    """The numbers of longitudes on their lattice, 0 to n - 1."""
    return np.mod(np.rint((longitudes - origin) * (n / 360.0)).astype(np.int64), n)
