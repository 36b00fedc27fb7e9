"""Fields on the globe and their features: rows of a grid share their features, so a row costs what a point costs.

A block of frequency t is a_t(latitude) cos(t longitude), or with the sine: coefficients go to rows by a product with every A_t
[m, rows], and along the rows by one with the waves of the longitudes. `inference.field_closed_form` has the posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.longitude import LongitudeFeatures, LongitudeWhitened
from harmonicgp.inference.posterior import Posterior

_RADIANS = math.pi / 180
#: Features and factors below this are zero in single precision.
TINY = 1e-18


@dataclass(frozen=True)
class Field:
    """Values on a grid of latitudes and longitudes (degrees), some missing; several fields share the cells they have."""

    latitudes: Tensor  #: [rows], float64
    longitudes: Tensor  #: [columns], float64
    values: Tensor  #: [P, rows, columns], anything where a cell is missing
    present: Tensor  #: [rows, columns], bool
    noise: Tensor | None = None  #: known noise variances v, [rows, columns]

    def __post_init__(self) -> None:
        rows, columns = self.values.shape[1:]
        if (rows, columns) != (len(self.latitudes), len(self.longitudes)) or self.present.shape != (rows, columns):
            raise ValueError(
                f"values of {rows} x {columns} cells do not fit {len(self.latitudes)} latitudes and {len(self.longitudes)} "
                f"longitudes, or the {tuple(self.present.shape)} cells that are present."
            )

    @property
    def n_cells(self) -> int:
        """Cells with a value."""
        return int(self.present.sum())

    def precision(self, s2: float, dtype: torch.dtype) -> Tensor:
        """D, [rows, columns]."""
        if self.noise is None:
            return self.present.to(dtype) / s2
        return torch.where(self.present, 1.0 / (s2 + self.noise.double()), 0.0).to(dtype)

    def rows(self, chosen: slice | Tensor) -> Field:
        """Some of its rows."""
        noise = None if self.noise is None else self.noise[chosen]
        return Field(self.latitudes[chosen], self.longitudes, self.values[:, chosen], self.present[chosen], noise)


@dataclass(frozen=True)
class Waves:
    """Cosines and sines of some longitudes, [t_max + 1, columns] each; sines of frequencies that have none are zero."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, features: LongitudeFeatures, longitudes: Tensor, dtype: torch.dtype) -> Waves:
        """Longitudes in degrees, all on the lattice."""
        angle, left = features.offsets(longitudes)
        if bool(left.any()):
            raise ValueError(
                f"longitudes lie off the lattice of {features.order} around {features.meridian}: use the circle group "
                "(RBF kernel), or take them as scattered points."
            )
        return cls.at(features, angle, dtype)

    @classmethod
    def at(cls, features: LongitudeFeatures, angle: Tensor, dtype: torch.dtype) -> Waves:
        """Angles in degrees from the meridian."""
        t = torch.arange(features.t_max + 1, dtype=torch.float64)[:, None]
        phase = t * (angle * _RADIANS)
        sin = phase.sin()
        sin[features.n_sines + 1 :] = 0.0
        return cls(phase.cos().to(dtype), sin.to(dtype))


def narrowed(a: Tensor, dtype: torch.dtype) -> Tensor:
    """In another precision, and nothing where it nears the subnormal numbers, whose products are slower by orders."""
    if dtype == a.dtype:
        return a
    return torch.where(a.abs() < TINY, 0.0, a).to(dtype)


@dataclass(frozen=True)
class Parallels:
    """Whitened features of the rows of a grid, and what they leave."""

    whitened: LongitudeWhitened
    latitudes: Tensor
    A: Tensor  #: [t_max + 1, m, rows]
    residual: Tensor  #: [rows], float64

    @classmethod
    @torch.no_grad()
    def of(cls, whitened: LongitudeWhitened, latitudes: Tensor, dtype: torch.dtype) -> Parallels:
        """In chunks of rows."""
        f = whitened.features
        A = torch.empty(f.t_max + 1, len(f.Z), len(latitudes), dtype=dtype)
        residual = torch.empty(len(latitudes), dtype=torch.float64)
        for rows in whitened.chunks(latitudes):
            a = whitened.parallels(latitudes[rows])
            residual[rows] = (whitened.variance() - a.square().sum((0, 1))).clamp_min(0.0)
            A[..., rows] = narrowed(a, dtype)
        return cls(whitened, latitudes, A, residual)

    @property
    def features(self) -> LongitudeFeatures:
        """What they are features of."""
        return self.whitened.features

    def to_rows(self, u: Tensor) -> Tensor:
        """Coefficients [P, 2, t_max + 1, m] of cosines and sines to those along every row, [2, P, rows, t_max + 1]."""
        P = len(u)
        flat = u.to(self.A.dtype).permute(2, 1, 0, 3).reshape(len(self.A), 2 * P, -1)  # [t, 2P, m]
        along = torch.bmm(flat, self.A)  # [t, 2P, rows]
        return along.permute(1, 2, 0).reshape(2, P, len(self.latitudes), len(self.A))

    def from_rows(self, c: Tensor) -> Tensor:
        """The transpose: [2, P, rows, t_max + 1] -> [P, 2, t_max + 1, m]."""
        P = c.shape[1]
        flat = c.permute(3, 2, 0, 1).reshape(len(self.A), len(self.latitudes), 2 * P)  # [t, rows, 2P]
        out = torch.bmm(self.A, flat.to(self.A.dtype))  # [t, m, 2P]
        return out.reshape(len(self.A), -1, 2, P).permute(3, 2, 0, 1)


def spread(c: Tensor, waves: Waves) -> Tensor:
    """Coefficients along rows [2, P, rows, t_max + 1] as a field [P, rows, columns]."""
    return c[0] @ waves.cos + c[1] @ waves.sin


def gathered(F: Tensor, waves: Waves) -> Tensor:
    """A field [P, rows, columns] against every wave: [2, P, rows, t_max + 1]."""
    return torch.stack((F @ waves.cos.mT, F @ waves.sin.mT))


@dataclass(frozen=True)
class FieldPosterior:
    """Q(v) over all blocks: a mean, and for each block the inverse of the Cholesky factor of its precision."""

    mean: Tensor  #: [P, 2, t_max + 1, m], float64; sines of frequencies that have none are zero
    M: Tensor  #: [2, t_max + 1, m, m], Lambda^{-1} = M' M
    draws: Tensor | None = (
        None  #: deviations [S, 2, t_max + 1, m] of the joint posterior, whose mean square is its covariance
    )

    def variances(self, a: Tensor, imaginary: Tensor | None = None) -> Tensor:
        """Of features [t_max + 1, m, n] along a row: what goes with cos^2, sin^2 and cos sin, [3, t_max + 1, n].

        With an imaginary part (places off the lattice) the waves of a place are Re cos - Im sin and Re sin + Im cos.
        """
        out = torch.zeros(3, len(a), a.shape[-1], dtype=a.dtype)

        def work(t: slice) -> None:
            c, s = self.M[0, t].to(a.dtype) @ a[t], self.M[1, t].to(a.dtype) @ a[t]
            out[0, t], out[1, t] = c.square().sum(1), s.square().sum(1)
            if imaginary is not None:
                ci, si = self.M[0, t].to(a.dtype) @ imaginary[t], self.M[1, t].to(a.dtype) @ imaginary[t]
                out[0, t] += si.square().sum(1)
                out[1, t] += ci.square().sum(1)
                out[2, t] = 2 * ((s * si).sum(1) - (c * ci).sum(1))

        in_blocks(work, len(a), a.shape[1])
        return out

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """N draws of v, [n, P, 2, t_max + 1, m]."""
        if self.draws is not None:
            mixing = torch.randn(n * len(self.mean), len(self.draws), dtype=torch.float64, generator=generator)
            shift = torch.tensordot(mixing / math.sqrt(len(self.draws)), self.draws.double(), 1)
            return self.mean + shift.unflatten(0, (n, len(self.mean)))
        white = torch.randn(n, *self.mean.shape, dtype=torch.float64, generator=generator).to(self.M.dtype)
        return self.mean + torch.einsum("ctab,npcta->npctb", self.M, white).double()

    @classmethod
    def of_blocks(cls, posterior: Posterior, features: LongitudeFeatures) -> FieldPosterior:
        """From a posterior of blocks."""
        (mu,), (C,) = posterior.means, posterior.factors
        T, n = features.t_max + 1, features.n_sines
        mean = torch.zeros(len(mu), 2, T, mu.shape[-1], dtype=torch.float64)
        mean[:, 0], mean[:, 1, 1 : n + 1] = mu[:, :T], mu[:, T:]
        inverse = torch.linalg.solve_triangular(
            C[0], torch.eye(C.shape[-1], dtype=C.dtype).expand_as(C[0]), upper=False
        )
        M = torch.zeros(2, T, *C.shape[-2:], dtype=torch.float64)
        M[0], M[1, 1 : n + 1] = inverse[:T], inverse[T:]
        return cls(mean, M)
