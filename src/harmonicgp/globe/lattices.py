"""Lattices of longitudes around the circle: which one some longitudes lie on, and their places on it."""

from __future__ import annotations

import numpy as np

from harmonicgp.tables.columns import Array

#: The most longitudes of a lattice, and how far one may lie from its place, in steps.
MOST_LONGITUDES, LATTICE_TOLERANCE = 100_000, 1e-3
_SAME_PHASE = 1e-6  # degrees between longitudes that are one on the circle; less than the tolerance of any lattice


def find_lattice(longitudes: Array) -> int | None:
    """The n of a lattice of n longitudes around the circle, 360 / n apart, on which all of these lie; None without one.

    The step is the largest that all distances are multiples of: some longitudes of the lattice may be absent.

    Examples:
        >>> find_lattice(np.arange(-180, 180, 2.5)), find_lattice(np.array([350.0, 355.0, 0.0, 10.0]))
        (144, 72)
        >>> find_lattice(np.array([0.0, 0.7, 1.4, 2.1])) is None
        True
    """
    lattice = lattice_of(np.unique(np.asarray(longitudes, dtype=np.float64)))
    return None if lattice is None else lattice[0]


def lattice_of(distinct: Array) -> tuple[int, float] | None:
    """The n of the lattice of rising longitudes, and one of them as its origin; None without one."""
    if len(distinct) < 2 or not np.isfinite(distinct).all():
        return None
    phases = np.mod(distinct, 360.0)
    phases[phases >= 360.0] = 0.0  # of a tiny negative number
    phases = np.sort(phases)
    ends = np.concatenate(([phases[0] + 360.0 - phases[-1] > _SAME_PHASE], np.diff(phases) > _SAME_PHASE))
    merged = phases[ends]
    if not 2 <= len(merged) <= MOST_LONGITUDES:
        return None
    # Cut the circle at the widest gap: over a region that gap need be no multiple of the step
    cut = int(np.argmax(np.append(np.diff(merged), merged[0] + 360.0 - merged[-1]))) + 1
    origin = float(merged[cut % len(merged)])
    turned = np.mod(np.roll(merged, -cut) - origin, 360.0)
    gaps = np.diff(turned)
    step = _common_step(gaps)
    if step is None:
        return None
    n = round(360.0 * float(np.rint(gaps / step).sum()) / float(turned[-1]))
    if n > MOST_LONGITUDES:
        return None
    steps = (phases - origin) * (n / 360.0)
    return (n, origin) if np.abs(steps - np.rint(steps)).max() <= LATTICE_TOLERANCE else None


def _common_step(gaps: Array) -> float | None:
    """The largest step of which all gaps are multiples, by Euclid's algorithm on rounded numbers; None if too small.

    A long gap counts its steps only if the step is known well: short gaps come first, and sharpen it.
    """
    rising = np.sort(gaps)
    step, reach = float(rising[0]), 2.0
    while step > 360.0 / (MOST_LONGITUDES + 0.5):
        short = rising[: np.searchsorted(rising, reach * step)]
        counts = np.maximum(np.rint(short / step), 1.0)
        rest = np.abs(short / step - counts)
        odd = rest > 0.05
        if odd.any():
            step, reach = step * min(0.5, float(rest[odd].min())), 2.0
            continue
        if len(short):
            step = float(short.sum() / counts.sum())
        if len(short) == len(rising):
            return step
        reach *= 2.0
    return None


def places_on(longitudes: Array, n: int, origin: float) -> Array:
    """The numbers of longitudes on their lattice, 0 to n - 1."""
    return np.mod(np.rint((longitudes - origin) * (n / 360.0)).astype(np.int64), n)
