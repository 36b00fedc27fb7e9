"""Encoded columns to model inputs: unused columns are dropped, skewed columns are warped, and all are standardised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from harmonicgp.tables.columns import Array
from harmonicgp.tables.kinds import Kind, listed, read_kinds

#: Columns with a larger skewness than this are candidates for warping.
SKEWED = 1.5
#: Knots of a warp, at most.
KNOTS = 200
_LARGEST = 1e150
#: Where inputs end, in standard deviations and in units of raw columns: every kernel is at its prior long before. Squares of
#: farther ones, divided by a small lengthscale, would leave the range of float32.
_FARTHEST, _FARTHEST_RAW = 1e8, 1e15


@dataclass(frozen=True)
class Warp:
    """A monotone map of a column to a normal distribution: piecewise linear through quantiles, linear beyond them."""

    values: Array  #: rising, [knots]
    scores: Array  #: rising, [knots]

    @classmethod
    def fit(cls, x: Array, counts: Array | None = None) -> Warp:
        """Fit to at most `KNOTS` quantiles of x [N]; each knot has the middle rank of its value."""
        values, inverse = np.unique(x, return_inverse=True)
        mass = np.bincount(inverse, weights=counts, minlength=len(values))
        ranks = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
        if len(values) > KNOTS:
            places = np.unique(np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], KNOTS)).clip(0, len(values) - 1))
            values, ranks = values[places], ranks[places]
        scores = ndtri(ranks)
        rising = np.concatenate(([True], np.diff(scores) > 1e-9))
        return cls(values[rising], scores[rising])

    @property
    def slope(self) -> float:
        """The slope of the map beyond its knots: the slope from the first knot to the last; 1 for a single knot."""
        return float(np.ptp(self.scores) / np.ptp(self.values)) if len(self.values) > 1 else 1.0

    def __call__(self, x: Array) -> Array:
        """Normal scores of values x."""
        beyond = x - np.clip(x, self.values[0], self.values[-1])
        return np.interp(x, self.values, self.scores) + self.slope * beyond

    def inverse(self, z: Array) -> Array:
        """Values at normal scores z."""
        beyond = z - np.clip(z, self.scores[0], self.scores[-1])
        return np.interp(z, self.scores, self.values) + beyond / self.slope

    def log_slope(self, x: Array) -> Array:
        """The logarithm of the slope of the map at x, for densities."""
        if len(self.values) < 2:
            return np.zeros_like(x)
        place = np.clip(np.searchsorted(self.values, x, side="right") - 1, 0, len(self.values) - 2)
        slopes = np.diff(self.scores) / np.diff(self.values)
        outside = (x < self.values[0]) | (x > self.values[-1])
        return np.log(np.where(outside, self.slope, slopes[place]))


@dataclass(frozen=True)
class Columns:
    """The encoded columns that a model uses, and their properties."""

    used: tuple[int, ...]  #: in the order of the model's columns
    kinds: Mapping[int, Kind] = field(default_factory=dict)  #: by encoded column
    raw: frozenset[int] = (
        frozenset()
    )  #: columns that keep their units: those with a kind, and those that a kernel reads
    skewed: tuple[int, ...] = ()
    image: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()  #: columns that repeat others and are not used

    @classmethod
    def as_given(cls, X: Array, counts: Array | None, kinds: Mapping[int, Kind], raw: Sequence[int] = ()) -> Columns:
        """All columns in their order, for a kernel or an action that names columns by number."""
        raw_columns = frozenset(kinds) | frozenset(raw)
        scales = {j: moments(X[:, j], counts) for j in range(X.shape[1]) if j not in raw_columns}
        return cls(tuple(range(X.shape[1])), dict(kinds), raw_columns, _skewed(X, counts, scales))

    @classmethod
    def find(
        cls,
        X: Array,
        counts: Array | None,
        kinds: Mapping[int, Kind],
        names: Sequence[str],
        image: tuple[int, int] | None = None,
    ) -> Columns:
        """Choose the columns, those with a kind first. Constant and duplicate columns are dropped, with a note."""
        special = sorted(kinds, key=lambda j: ({"longitude": 0, "latitude": 1}.get(str(kinds[j]), 2), j))
        plain = [j for j in range(X.shape[1]) if j not in kinds]
        if image is not None:
            return cls(tuple(plain), {}, image=image)
        scales, notes = {j: moments(X[:, j], counts) for j in plain}, []
        constants = [j for j in plain if is_constant(X[:, j], scales[j])]
        if constants:
            notes.append(f"constant columns are not used: {listed([names[j] for j in constants], 8, str)}.")
        variables = [j for j in plain if j not in constants]
        duplicates = _duplicates(X, counts, variables, scales)
        for j, other in duplicates.items():
            notes.append(f"{column_phrase(names[j])} repeats {names[other]} and is not used.")
        unique_columns = [j for j in variables if j not in duplicates]
        skewed = _skewed(X, counts, {j: scales[j] for j in unique_columns})
        if not unique_columns and not special:
            unique_columns = plain[:1]  # a model needs at least one column
        used = (*special, *unique_columns)
        return cls(used, dict(kinds), frozenset(special), skewed, None, tuple(notes), tuple(duplicates))

    def with_periods(self, periods: Iterable[tuple[int, float]]) -> Columns:
        """The columns with some of them declared periodic."""
        kinds: dict[int, Kind] = {j: ("periodic", period) for j, period in periods}
        return replace(
            self,
            kinds={**self.kinds, **kinds},
            raw=self.raw | frozenset(kinds),
            skewed=tuple(j for j in self.skewed if j not in kinds),
        )


@dataclass(frozen=True)
class Inputs:
    """How encoded columns become model inputs."""

    order: Array  #: encoded column of every model column, before the rotation to `axes`
    kinds: Mapping[int, Kind]  #: by model column
    centre: Array
    scale: Array
    warps: Mapping[int, Warp] = field(default_factory=dict)  #: by encoded column
    axes: Array | None = None  #: [plain, plain], columns are directions

    @property
    def d(self) -> int:
        """The number of model columns."""
        return len(self.order)

    @property
    def plain(self) -> list[int]:
        """Model columns without a kind."""
        return [i for i in range(self.d) if i not in self.kinds]

    @classmethod
    def fit(
        cls, X: Array, counts: Array | None, columns: Columns, warp: bool = False, principal: bool = False
    ) -> Inputs:
        """From encoded rows X [N, d]."""
        warps = {j: Warp.fit(X[:, j], counts) for j in columns.skewed} if warp else {}
        order = np.array(columns.used, dtype=np.int64)
        kinds = {i: columns.kinds[j] for i, j in enumerate(columns.used) if j in columns.kinds}
        centre, scale = np.zeros(len(order)), np.ones(len(order))
        for i, j in enumerate(columns.used):
            if j not in columns.raw:
                x = warps[j](X[:, j]) if j in warps else X[:, j]
                centre[i], scale[i] = moments(x, counts)
        if columns.image:  # one scale for all pixels, because a symmetry moves them
            pixels = X[:, order].reshape(-1)
            centre[:], scale[:] = moments(pixels, None if counts is None else counts.repeat(len(order)))
        inputs = cls(order, kinds, centre, scale, warps)
        if not principal or len(inputs.plain) < 2:
            return inputs
        rows = inputs.transform(X)[:, inputs.plain]
        weighted = rows if counts is None else rows * counts[:, None]
        _, V = np.linalg.eigh(rows.T @ weighted)
        V = V[:, ::-1]
        largest = V[np.abs(V).argmax(0), np.arange(V.shape[1])]
        return replace(inputs, axes=V * np.sign(largest))  # fixes the sign of each direction

    def transform(self, X: Array) -> Array:
        """Encoded rows [n, d] to model inputs [n, k] in float64."""
        rows = np.empty((len(X), self.d))
        for i, j in enumerate(self.order):
            x = self.warps[j](X[:, j]) if j in self.warps else X[:, j]
            if self.kinds.get(i) == "longitude":
                rows[:, i] = (x + 180.0) % 360.0 - 180.0
            elif isinstance(kind := self.kinds.get(i), tuple):
                rows[:, i] = x % kind[1]  # here, because float32 would not hold the phase of large numbers
            else:
                farthest = _FARTHEST_RAW if (self.centre[i], self.scale[i]) == (0.0, 1.0) else _FARTHEST
                with np.errstate(over="ignore"):
                    rows[:, i] = ((x - self.centre[i]) / self.scale[i]).clip(-farthest, farthest)
        if self.axes is not None:
            rows[:, self.plain] = rows[:, self.plain] @ self.axes
        return rows

    def inverse(self, rows: Array, d: int) -> Array:
        """Model inputs [n, k] back to d encoded columns [n, d]; NaN in columns that the model does not use."""
        rows = np.array(rows, dtype=np.float64)
        if self.axes is not None:
            rows[:, self.plain] = rows[:, self.plain] @ self.axes.T
        out = np.full((len(rows), d), np.nan)
        for i, j in enumerate(self.order):
            x = rows[:, i] * self.scale[i] + self.centre[i]
            out[:, j] = self.warps[j].inverse(x) if j in self.warps else x
        return out

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A JSON part and arrays, for a model file."""
        arrays = {"order": self.order, "centre": self.centre, "scale": self.scale}
        if self.axes is not None:
            arrays["axes"] = self.axes
        for j, warp in self.warps.items():
            arrays |= {f"warp.{j}.values": warp.values, f"warp.{j}.scores": warp.scores}
        return {"kinds": list(self.kinds.items()), "warped": [int(j) for j in sorted(self.warps)]}, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Inputs:
        """What `state` gave."""
        warps = {int(j): Warp(arrays[f"warp.{j}.values"], arrays[f"warp.{j}.scores"]) for j in header["warped"]}
        kinds = read_kinds(header["kinds"])
        return cls(arrays["order"], kinds, arrays["centre"], arrays["scale"], warps, arrays.get("axes"))


def moments(x: Array, counts: Array | None) -> tuple[float, float]:
    """Weighted mean and standard deviation (1 for a constant), without overflow for tiny and huge values."""
    unit = float(np.abs(x).max()) or 1.0
    u = x / unit
    mean = float(np.average(u, weights=counts))
    std = float(np.sqrt(np.average((u - mean) ** 2, weights=counts)))
    if std <= 1e-12:
        return mean * unit, 1.0
    return mean * unit, std * unit


def is_constant(x: Array, scale: tuple[float, float]) -> bool:
    """Whether x varies by no more than rounding; `scale` holds its mean and standard deviation."""
    return scale[1] == 1.0 and float(np.ptp(x / (np.abs(x).max() or 1.0))) <= 1e-9


def check_size(X: Array, names: Sequence[str]) -> None:
    """Raise for values that would overflow; the error names the column."""
    largest = np.abs(X).max(0)
    if largest.max(initial=0.0) > _LARGEST:
        j = int(largest.argmax())
        raise ValueError(
            f"{column_phrase(names[j])} reaches {largest[j]:.3g}: divide it by a constant, or take its logarithm."
        )


def _skewed(X: Array, counts: Array | None, scales: Mapping[int, tuple[float, float]]) -> tuple[int, ...]:
    """The skewed columns with more than a few values; `scales` holds means and standard deviations."""
    skewed = []
    for j, (mean, std) in scales.items():
        x = X[:, j]
        if not is_constant(x, (mean, std)):
            skewness = float(np.average(((x - mean) / std).clip(-1e3, 1e3) ** 3, weights=counts))
            if abs(skewness) > SKEWED and len(np.unique(x[:10_000])) > 10:
                skewed.append(j)
    return tuple(skewed)


def _duplicates(
    X: Array, counts: Array | None, columns: list[int], scales: Mapping[int, tuple[float, float]]
) -> dict[int, int]:
    """Columns that are linear functions of an earlier column, with that column."""
    standard = (X[:, columns] - [scales[j][0] for j in columns]) / [scales[j][1] for j in columns]
    weighted = standard if counts is None else standard * counts[:, None]
    total = len(X) if counts is None else float(counts.sum())
    correlation = weighted.T @ standard / total
    originals: dict[int, int] = {}
    for i, j in enumerate(columns):
        for earlier in np.flatnonzero(np.abs(correlation[i, :i]) > 1 - 1e-9):
            if columns[earlier] not in originals and _repeats(X[:, j], X[:, columns[earlier]]):
                originals[j] = columns[earlier]
                break
    return originals


def _repeats(x: Array, other: Array) -> bool:
    """Whether x is a multiple of the other column plus a constant in every row.

    The tolerance is relative to the typical size of x and to each row: a correlation would depend on outliers alone.
    """
    row = int(other.argpartition(len(other) // 2)[len(other) // 2])  # a row with the median value
    u, v = other - other[row], x - x[row]
    farthest = int(np.abs(u).argmax())
    values = np.unique(x)
    bulk = np.median(np.abs(values - np.median(values)))
    return bool((np.abs(v - v[farthest] / u[farthest] * u) <= 1e-6 * (bulk + np.abs(v))).all())


def column_phrase(name: str) -> str:
    """A name for a sentence. Columns of an array are already named "column 3"."""
    return name if name.startswith("column ") else f"column {name}"
