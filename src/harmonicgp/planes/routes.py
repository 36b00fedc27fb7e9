"""The choice between the plane, for regions, and the globe, for data that go around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harmonicgp.planes.coordinates import geographic_extent
from harmonicgp.planes.reading import outline

#: A region has at most this many degrees of longitude, and lengths of a degree of it that differ by at most this factor.
WIDEST, STEEPEST = 120.0, 2.0


@dataclass(frozen=True)
class Way:
    """The way of a field and the reason."""

    name: str  #: "plane" or "globe"
    note: str


def choose_way(data: Any, y: Any, by: str | None, coordinates: str, asked: str) -> Way:
    """The way of data; `asked` is "auto", "plane" or "globe"."""
    found = outline(data, y, by, coordinates)
    extent = None if found is None else geographic_extent(*found)
    if extent is None:
        if asked == "globe":
            raise ValueError(
                'way="globe" needs longitudes and latitudes: name the coordinates lon and lat, or give coordinates="geographic".'
            )
        return Way("plane", "plane: the coordinates are not longitudes and latitudes.")
    span, steepness = extent
    words = f"{span:.3g} degrees of longitude, whose length varies by a factor of {steepness:.3g}"
    if asked != "auto":
        return Way(asked, f"{asked}, as asked: {words}.")
    if span <= WIDEST and steepness <= STEEPEST:
        return Way("plane", f"plane: {words}. Kilometres about the middle are the coordinates.")
    return Way("globe", f"globe (HarmonicGPGlobe): {words}, too much for a plane.")
