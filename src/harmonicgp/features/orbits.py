"""Rows on one orbit share their features up to a phase: a_t(s.x) = chi_t(s) a_t(x).

Only circles are searched (a periodic column, longitude): there data lie on lattices, such as the hours of the day.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.backend.hashes import hashes

#: Sharing features pays from this mean number of rows per orbit.
LEAST = 2.0
# Coordinates of a circle that differ by up to this many roundings are equal: folding and decimal lattices add some rounding.
_ROUNDING = 32.0


class Orbits(NamedTuple):
    """Rows by the orbits they lie on."""

    points: Tensor  #: one point of each orbit, in the fundamental domain, [orbits, d]
    places: Tensor  #: the number of the orbit of every row, [n]
    elements: Tensor  #: the place in `group.elements()` of the element that moves each row to its point, [n]


def find_orbits(action: Action, x: Tensor) -> Orbits | None:
    """The orbits of rows x [n, d]; None if they are too many for a gain, or if the action moves no circle.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Translation
        >>> hours = torch.arange(48.0)[:, None] % 24
        >>> find_orbits(Translation(axis=0, period=24.0, order=12), hours).points.shape
        torch.Size([2, 1])
    """
    if not _may_share(action, x):
        return None
    elements = action.fold_index(x)
    folded = action.tidy(action.move(x, action.group.elements()[elements]))
    _, first, places = np.unique(_keys(action, folded), return_index=True, return_inverse=True)
    if LEAST * len(first) > len(x):
        return None
    return Orbits(folded[torch.from_numpy(first)], torch.from_numpy(places.reshape(-1)), elements)


def by_orbits(action: Action, X: Tensor) -> Tensor | None:
    """An order of rows X [N, d] that keeps the rows of an orbit together, for passes in chunks; None if few share an orbit."""
    orbits = find_orbits(action, X)
    return None if orbits is None else torch.argsort(orbits.places, stable=True)


def _may_share(action: Action, x: Tensor) -> bool:
    """A quick test on the columns that no element moves: rows can share an orbit only if these columns repeat."""
    if not action.periods or x.dim() != 2 or len(x) < 2 or x.device.type != "cpu" or x.requires_grad:
        return False
    w = action.generic_point(x.shape[-1])
    is_fixed = (action.images(w[None])[:, 0] == w).all(0)
    if not bool(is_fixed.any()):
        return True
    return LEAST * len(np.unique(hashes(x[:, is_fixed].detach().double().numpy()))) <= len(x)


def _keys(action: Action, folded: Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A number for every row, equal for rows of one orbit. If rounding separates two such rows, only speed is lost."""
    rows = folded.detach().double().clone()
    for axis, period in action.periods.items():
        step = _ROUNDING * torch.finfo(folded.dtype).eps * max(period, float(rows[:, axis].abs().max()))
        # Shifted, so that round numbers are not at the edge of a cell.
        rows[:, axis] = (rows[:, axis] / step + 1 / math.pi).round()
    return hashes(rows.numpy())
