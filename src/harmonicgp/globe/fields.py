"""Values on a grid of the globe, values at points, and how unevenly the rows of a grid are observed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.features import GlobeGrid

#: The number of harmonics of the rows that `coupling` computes.
HARMONICS = 16


@dataclass(frozen=True)
class Field:
    """P fields on a grid of latitudes and longitudes (degrees), with the same missing cells."""

    latitudes: Tensor  #: [rows], float64
    longitudes: Tensor  #: [columns], float64
    values: Tensor  #: [P, rows, columns], arbitrary in missing cells
    present: Tensor  #: [rows, columns], bool
    noise: Tensor | None = None  #: known noise variances v, [rows, columns]

    @property
    def n_cells(self) -> int:
        """The number of cells with a value."""
        return int(self.present.sum())

    @property
    def grid(self) -> GlobeGrid:
        """The cells."""
        return GlobeGrid(self.latitudes, self.longitudes)

    @property
    def targets(self) -> Tensor:
        """The values, zero in missing cells, [P, rows, columns]."""
        return torch.where(self.present, self.values, 0.0)

    def precision(self, s2: float) -> Tensor:
        """1 / (s2 + v), zero in missing cells, [rows, columns] in float64."""
        noise = torch.zeros_like(self.present, dtype=torch.float64) if self.noise is None else self.noise.double()
        return torch.where(self.present, 1.0 / (s2 + noise), 0.0)

    def rows(self, index: slice | Tensor) -> Field:
        """The field on some of its rows."""
        noise = None if self.noise is None else self.noise[index]
        return Field(self.latitudes[index], self.longitudes, self.values[:, index], self.present[index], noise)


@dataclass(frozen=True)
class Points:
    """Values at points."""

    X: Tensor  #: [n, 2], longitude and latitude in degrees
    values: Tensor  #: [slices, n]
    noise: Tensor | None = None  #: known noise variances, [n]

    def part(self, rows: Tensor) -> Points:
        """Some of the points."""
        return Points(self.X[rows], self.values[:, rows], None if self.noise is None else self.noise[rows])


def coupling(weights: Tensor, longitudes: Tensor) -> float:
    """How unevenly rows are observed, for weights [rows, columns]: the largest of their first harmonics, as a share.

    Evenly observed rows make the frequencies independent; the value is then near zero.
    """
    weights = weights.double()
    t = torch.arange(1, min(HARMONICS, len(longitudes)) + 1, device=longitudes.device)
    angle = t[:, None] * longitudes.double() * (math.pi / 180)
    parts = torch.complex(weights @ angle.cos().mT, weights @ angle.sin().mT).abs().amax(-1)
    total = weights.sum(-1)
    observed = total > 0
    return float((parts[observed] / total[observed]).square().mean().sqrt())
