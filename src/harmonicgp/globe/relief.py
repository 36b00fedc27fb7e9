"""The relief of the Earth at one degree, part of the library (ETOPO5, NOAA, public domain)."""

from __future__ import annotations

from importlib import resources
from typing import Any, NamedTuple

import numpy as np


class Relief(NamedTuple):
    """Heights in kilometres on a grid of cell centres."""

    longitude: np.ndarray[Any, Any]  #: degrees, -179.5 to 179.5, [360]
    latitude: np.ndarray[Any, Any]  #: degrees, -89.5 to 89.5, [180]
    height: np.ndarray[Any, Any]  #: kilometres, [180, 360]


def load_relief() -> Relief:
    """The embedded grid: 180 x 360 heights of land and sea floor.

    Examples:
        >>> load_relief().height.shape
        (180, 360)
    """
    with resources.files("harmonicgp.globe").joinpath("relief.npz").open("rb") as file, np.load(file) as arrays:
        return Relief(
            arrays["longitude"].astype(np.float64),
            arrays["latitude"].astype(np.float64),
            arrays["height"].astype(np.float64) / 1000,
        )
