"""Candidates of the search: the shapes that a model of a table can have."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from harmonicgp.actions import (
    Action,
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Permutation,
    PrincipalNegation,
    Rotation,
    Translation,
)
from harmonicgp.actions.negation import strided
from harmonicgp.inference.posterior import Family
from harmonicgp.symmetry.evidence import (
    FEW,
    angles_test,
    by_counts,
    enough_places,
    invariance_test,
    one_a_place,
)
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Columns, Inputs

Axes: TypeAlias = Literal["raw", "principal"]


@dataclass(frozen=True)
class Candidate:
    """The shape of a model: axes, symmetry (`ways` of negation, 0 for one block, or an action), warping, posterior."""

    axes: Axes = "raw"
    ways: int = 0
    warp: bool = False
    posterior: Family = "block"
    declared: Action | None = None
    periods: tuple[tuple[int, float], ...] = ()  #: encoded columns that the user did not declare periodic
    shown: str = field(default="", compare=False)  #: the name, if that needs names or numbers of columns of the table

    def columns(self, columns: Columns) -> Columns:
        """The columns of the model, with `periods`."""
        return columns.with_periods(self.periods) if self.periods else columns

    @property
    def blocks(self) -> int:
        """The number of blocks at complex resolution."""
        return self.declared.group.n_blocks("complex") if self.declared is not None else 2**self.ways

    @property
    def name(self) -> str:
        """The name in tables and sentences."""
        if self.shown or self.declared is not None:
            return self.shown or f"{self.declared!r}"
        symmetry = "one block" if self.ways == 0 else f"negation in {self.ways} way{'s' if self.ways > 1 else ''}"
        return f"{symmetry}, {'columns' if self.axes == 'raw' else 'principal axes'}"

    def action(self, inputs: Inputs) -> Action | None:
        """The action on model inputs; None for one block."""
        if self.declared is not None or self.ways == 0:
            return self.declared
        return negation_of(inputs.plain, self.ways)


def negation_of(columns: Sequence[int], ways: int) -> Negation:
    """The negation of columns in so many ways, each of which negates about as many columns.

    Examples:
        >>> negation_of([1, 2, 4], 2)
        Negation([[1, 4], [2]])
    """
    return Negation([[columns[i] for i in subset] for subset in strided(len(columns), ways)])


def candidates(columns: Columns, warp: bool | None, family: Family | None) -> Iterator[Candidate]:
    """All candidates that follow from the columns, one block on raw columns first; `warp` None tries both."""
    first: Family = family or "block"
    plain = sum(j not in columns.kinds for j in columns.used)
    if columns.image is not None:
        h, w = columns.image
        yield Candidate(posterior=first)
        flips = tuple(axis for axis, pixels in enumerate((h, w)) if pixels > 1)
        if flips:
            yield Candidate(posterior=first, declared=ImageFlip((h, w), flips))
        for step in (4, 2):
            if h % step == 0 and w % step == 0 and 1 < (h // step) * (w // step) <= 64:
                yield Candidate(posterior=first, declared=ImageShift((h, w), step))
                break
        return
    declared = list(_declared(columns))
    for warped in (False, True) if warp is None and columns.skewed else (bool(warp and columns.skewed),):
        for axes in ("raw", "principal") if plain > 1 else ("raw",):
            for ways in range(min(3, plain) + 1):
                yield Candidate(axes, ways, warped, first)
        for action in declared:
            yield Candidate("raw", 0, warped, first, action)


def _declared(columns: Columns) -> Iterator[Action]:
    for i, j in enumerate(columns.used):
        kind = columns.kinds.get(j)
        if kind == "longitude":
            yield Longitude(12, axis=i)
            yield Longitude(24, axis=i)
        elif isinstance(kind, tuple):
            for order in _orders(kind[1]):
                yield Translation(axis=i, period=kind[1], order=order)


def _orders(period: float) -> tuple[int, ...]:
    """Orders of shifts by a part of the period: whole numbers stay whole where possible (a week has seven days)."""
    whole = tuple(order for order in (6, 12) if period == round(period) and period % order == 0)
    return whole or ((int(period),) if period in (5.0, 7.0, 10.0) else (6, 12))


# --- generated from the data ------------------------------------------------------------------------------------------

#: The number of columns whose pairs are tested for rotations, the orders tested, and how many rotations are candidates at most.
PLANES, ORDERS, MOST_ROTATIONS = 8, (12, 8, 6, 5, 4, 3), 2
#: Rows that candidates are generated from, at most.
LOOKED = 20_000
#: Columns of one permutation, at most.
MOST_EXCHANGED = 12
#: A symmetry that the user did not name becomes a candidate from this p-value.
LIKELY = 0.015


def generated(
    columns: Columns,
    X: Array,
    counts: Array | None,
    family: Family | None,
    seed: int,
    until: float = math.inf,
    warps: Sequence[bool] = (False,),
) -> Iterator[Candidate]:
    """Rotations of a plane and permutations of columns under which the rows look the same; none for images.

    There are no rotations for fewer than 300 rows, which do not tell a square from a disc. The tests stop at the time `until`.
    """
    if columns.image is not None:
        return
    sample = X[by_counts(len(X), counts, LOOKED, seed)]
    inputs = Inputs.fit(sample, None, columns)
    plain = inputs.plain
    if len(plain) < 2:
        return
    rows = torch.from_numpy(inputs.transform(sample))
    planes: list[tuple[int, float, Action]] = []
    for i, j in itertools.combinations(plain[:PLANES], 2) if len(rows) >= FEW else ():
        if time.perf_counter() > until:
            return
        points = one_a_place(rows[:, [i, j]])
        if len(points) < FEW:
            continue
        fits = [(o, p) for o, p in zip(ORDERS, angles_test(points, ORDERS), strict=True) if p >= 0.05]
        planes += [(order, p, Rotation((i, j), order)) for order, p in fits[:1]]  # the largest that fits the plane
    planes.sort(key=lambda each: (-each[0], -each[1]))
    likely = [rotation for _, _, rotation in planes[: 2 * MOST_ROTATIONS]]
    rotations = [each for each in likely if time.perf_counter() < until and _looks_the_same(each, rows, seed)]
    permutations = exchanges(rows, plain, seed)
    actions = rotations[:MOST_ROTATIONS]
    actions += [each for each in permutations if time.perf_counter() < until and _looks_the_same(each, rows, seed)]
    for warp in warps:
        for action in actions:
            yield Candidate(posterior=family or "block", declared=action, warp=warp)


def _looks_the_same(action: Action, rows: Tensor, seed: int) -> bool:
    return enough_places(action, rows) and invariance_test(action, rows, seed=seed).p_value >= LIKELY


#: Whole numbers from 0 or 1 with this many values look like weekdays, months, hours, minutes, degrees, days of a year.
CALENDAR = {7: 7.0, 12: 12.0, 24: 24.0, 60: 60.0, 360: 360.0, 365: 365.25, 366: 365.25}
#: Other columns that go from 0 to these, or from minus to plus half of them, look like hours, degrees and radians.
CIRCLES = (24.0, 360.0, 2 * math.pi)


def guessed(columns: Columns, X: Array, family: Family | None, warps: Sequence[bool] = (False,)) -> Iterator[Candidate]:
    """Shifts of columns that look like hours, months, days or angles, and are not declared periodic.

    One block with the periodic kernel comes first, so that the gain of the kernel is told from that of the symmetry.
    """
    for i, j in enumerate(columns.used):
        period = None if columns.image is not None or j in columns.kinds else _period(X[:, j])
        if period is not None:
            shifts = [None, *(Translation(axis=i, period=period, order=order) for order in _orders(period))]
            for warp in warps:
                for shift in shifts:
                    yield Candidate(posterior=family or "block", declared=shift, periods=((j, period),), warp=warp)


def _period(x: Array) -> float | None:
    """The period of a column that fills a usual range from end to end; None for others."""
    low, high = float(x.min()), float(x.max())
    if (x == np.round(x)).all():
        count = int(high + 1 - low)
        is_filled = low in (0.0, 1.0) and len(np.unique(x[:10_000])) > 0.8 * count
        return CALENDAR.get(count) if is_filled else None
    for period in CIRCLES:
        for start in (0.0, -period / 2):
            ends = start <= low < start + 0.02 * period and start + 0.98 * period < high <= start + period * (1 + 1e-6)
            if ends and len(np.unique((x[:10_000] - start) // (period / 24))) >= 24:
                return period
    return None


def exchanges(rows: Tensor, plain: list[int], seed: int) -> Iterator[Action]:
    """Cyclic permutations of columns with equal distributions, one for each group of such columns."""
    remaining = list(plain)
    values = one_a_place(rows, _mask(plain, rows)).numpy()
    while remaining:
        first = remaining.pop(0)
        alike = [j for j in remaining if ks_2samp(values[:, first], values[:, j], method="asymp").pvalue >= LIKELY]
        alike = alike[: MOST_EXCHANGED - 1]
        if alike:
            remaining = [j for j in remaining if j not in alike]
            cycle, order = [first, *alike], list(range(rows.shape[1]))
            for a, b in zip(cycle, [*cycle[1:], first], strict=True):
                order[a] = b
            yield Permutation(order)


def _mask(columns: Sequence[int], rows: Tensor) -> Tensor:
    mask = torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device)
    mask[list(columns)] = True
    return mask


# --- named by the user ----------------------------------------------------------------------------------------------------


def offered(action: Action, columns: Columns, names: Sequence[str], warp: bool, family: Family) -> Candidate:
    """An action of the user as a candidate; it names columns by number."""
    action.check_dim(len(names))
    if action.group.order < 2:
        raise ValueError(f"{action!r} moves nothing: its group has one element.")
    if isinstance(action, PrincipalNegation):
        if action.directions is not None:
            raise ValueError(
                f"give {action!r} before it is fitted: its directions are those of the standardised columns."
            )
        return Candidate("principal", action.ways, warp, family)
    for j, period in action.periods.items():
        kind = columns.kinds.get(j)
        if isinstance(kind, tuple) and kind[1] != period:
            raise ValueError(f"{action!r} has a period of {period:g}, but {names[j]} is declared {kind}.")
    circles = tuple((j, period) for j, period in action.periods.items() if j not in columns.kinds)
    return Candidate("raw", 0, warp, family, action, circles)
