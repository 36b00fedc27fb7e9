"""Rows that lie on one orbit share their features up to a phase: a_t(s.x) = chi_t(s) a_t(x).

Looked for along circles alone (a periodic column, longitude): there data lie on lattices, such as the hours of the day.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.backend.hashes import hashes
from harmonicgp.groups import Group

#: Rows of an orbit, on average, from which sharing pays.
LEAST = 2.0
# Coordinates on a circle that are one place, in units of rounding: what folding and a lattice of decimal numbers add to it.
_ROUNDING = 32.0


class Orbits(NamedTuple):
    """Rows by the orbits they lie on."""

    points: Tensor  #: one of each orbit, in the fundamental domain, [orbits, d]
    places: Tensor  #: the orbit of every row, [n]
    elements: Tensor  #: the place in `group.elements()` of the element that brings every row there, [n]


def find_orbits(action: Action, x: Tensor) -> Orbits | None:
    """The orbits of rows x [n, d], None where they are too many to be worth it, or the action turns no circle."""
    if not _may_share(action, x):
        return None
    elements = action.fold_index(x)
    folded = action.tidy(action.move(x, action.group.elements()[elements]))
    _, first, places = np.unique(_keys(action, folded), return_index=True, return_inverse=True)
    if LEAST * len(first) > len(x):
        return None
    return Orbits(folded[torch.from_numpy(first)], torch.from_numpy(places.reshape(-1)), elements)


def by_orbits(action: Action, X: Tensor) -> Tensor | None:
    """An order of rows X [N, d] that brings those of an orbit together, for passes in chunks; None where few share one."""
    orbits = find_orbits(action, X)
    return None if orbits is None else torch.argsort(orbits.places, stable=True)


def phases(group: Group, frequencies: Tensor, dtype: torch.dtype) -> Tensor:
    """conj(chi_t(s)) for frequencies t [blocks, J] and all elements s, [blocks, |G|]: undoes the move to the orbit's point."""
    turns = torch.zeros(len(frequencies), group.order, dtype=torch.float64, device=frequencies.device)
    for j, T in enumerate(group.orders):
        turns -= (frequencies[:, None, j] * group.elements()[None, :, j] % T).double() / T
    return torch.polar(torch.ones_like(turns), 2 * math.pi * turns).to(dtype)


def _may_share(action: Action, x: Tensor) -> bool:
    """A look at the columns that no element moves: where they differ from row to row there is nothing to share."""
    if not action.periods or x.dim() != 2 or len(x) < 2 or x.device.type != "cpu" or x.requires_grad:
        return False
    w = action.generic_point(x.shape[-1])
    still = (action.images(w[None])[:, 0] == w).all(0)
    if not bool(still.any()):
        return True
    return LEAST * len(np.unique(hashes(x[:, still].detach().double().numpy()))) <= len(x)


def _keys(action: Action, folded: Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A number of every row that rows of one orbit share; where rounding parts two of them, nothing but speed is lost."""
    rows = folded.detach().double().clone()
    for axis, period in action.periods.items():
        step = _ROUNDING * torch.finfo(folded.dtype).eps * max(period, float(rows[:, axis].abs().max()))
        # Off the lattice, so that tidy places are not on an edge.
        rows[:, axis] = (rows[:, axis] / step + 1 / math.pi).round()
    return hashes(rows.numpy())
