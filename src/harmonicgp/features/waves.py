"""Features of the globe as waves along parallels: the evaluation that never holds the features of single cells.

The block of frequency t is a_t(latitude) cos(t longitude), or with the sine. So coefficients go to the rows of a grid by a
product with every A_t [m, rows], and along the rows by a product with the waves of the longitudes: a row costs what a point
costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation, GramWork, Roots, Shapes
from harmonicgp.features.residual import IndependentResidual

_RADIANS = math.pi / 180
#: Features and factors below this are zero in single precision: products of subnormal numbers are slower by orders.
TINY = 1e-18
#: Points that are handled at a time.
_POINTS = 1 << 14


def narrowed(a: Tensor, dtype: torch.dtype) -> Tensor:
    """In another precision; numbers near the subnormal ones become zero."""
    return a if dtype == a.dtype else torch.where(a.abs() < TINY, 0.0, a).to(dtype)


class Waves(Protocol):
    """Cosines and sines along the rows: how coefficients of rows become values of cells, and back."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of the cells."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the waves."""

    def spread(self, c: Tensor) -> Tensor:
        """Coefficients along rows [2, P, rows, T] to values [P, *cells]."""

    def gather(self, values: Tensor) -> Tensor:
        """The transpose: values [P, *cells] to [2, P, rows, T]."""

    def powers(self, weights: Tensor) -> Tensor:
        """The sums of w cos^2 and w sin^2 over the cells of every row, [*cells] -> [2, T, rows]."""

    def variance(self, V: Tensor) -> Tensor:
        """What goes with cos^2, sin^2 and, if V has it, cos sin: [2 or 3, T, rows] -> [*cells]."""

    def single(self, t: int, c: Tensor, s: Tensor) -> Tensor:
        """C cos(t lon) + s sin(t lon) of one frequency, for coefficients [P, rows]: [P, *cells]."""

    def row_of_cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """For every cell, in one axis: its row [n], and its waves [T, n]."""


def waves_at(t_max: int, n_sines: int, angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos(t angle) and sin(t angle), [t_max + 1, n] each, angles in degrees; sines above `n_sines` are zero."""
    t = torch.arange(t_max + 1, dtype=torch.float64, device=angle.device)[:, None]
    phase = t * (angle.double() * _RADIANS)
    sin = phase.sin()
    sin[n_sines + 1 :] = 0.0
    return phase.cos().to(dtype), sin.to(dtype)


@dataclass(frozen=True)
class GridWaves:
    """Waves of the columns of a grid, which all rows share: [T, columns]."""

    rows: int
    cos: Tensor
    sin: Tensor

    @property
    def cells(self) -> tuple[int, ...]:
        """(rows, columns)."""
        return self.rows, self.cos.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the waves."""
        return self.cos.dtype

    def spread(self, c: Tensor) -> Tensor:
        """By a product with the waves."""
        return c[0] @ self.cos + c[1] @ self.sin

    def gather(self, values: Tensor) -> Tensor:
        """By a product with their transpose."""
        return torch.stack((values @ self.cos.mT, values @ self.sin.mT))

    def powers(self, weights: Tensor) -> Tensor:
        """By a product with their squares."""
        w = weights.to(self.dtype)
        return torch.stack(tuple((w @ wave.square().mT).mT for wave in (self.cos, self.sin)))

    def variance(self, V: Tensor) -> Tensor:
        """By products with squares."""
        total = V[0].mT @ self.cos.square() + V[1].mT @ self.sin.square()
        return total if len(V) == 2 else total + V[2].mT @ (self.cos * self.sin)

    def single(self, t: int, c: Tensor, s: Tensor) -> Tensor:
        """An outer product."""
        return c[..., None] * self.cos[t] + s[..., None] * self.sin[t]

    def row_of_cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row after row."""
        rows = torch.arange(self.rows, device=self.cos.device).repeat_interleave(self.cos.shape[1])
        return rows, self.cos.repeat(1, self.rows), self.sin.repeat(1, self.rows)


@dataclass(frozen=True)
class PointWaves:
    """Waves of single points [T, n], each on a row."""

    rows: int
    place: Tensor  #: the row of every point, [n]
    cos: Tensor
    sin: Tensor

    @property
    def cells(self) -> tuple[int, ...]:
        """(n,)."""
        return (len(self.place),)

    @property
    def dtype(self) -> torch.dtype:
        """Of the waves."""
        return self.cos.dtype

    def _parts(self) -> tuple[Tensor, ...]:
        return torch.arange(len(self.place), device=self.place.device).split(_POINTS)

    def spread(self, c: Tensor) -> Tensor:
        """Every point looks up its row."""
        values = []
        for part in self._parts():
            at = c[:, :, self.place[part]]  # [2, P, n, T]
            values.append((at[0] * self.cos[:, part].mT).sum(-1) + (at[1] * self.sin[:, part].mT).sum(-1))
        return torch.cat(values, -1)

    def gather(self, values: Tensor) -> Tensor:
        """Every point adds to its row."""
        out = values.new_zeros(2, len(values), self.rows, len(self.cos))
        for part in self._parts():
            for kind, wave in enumerate((self.cos, self.sin)):
                out[kind].index_add_(1, self.place[part], values[:, part, None] * wave[:, part].mT)
        return out

    def powers(self, weights: Tensor) -> Tensor:
        """Every point adds to its row."""
        out = self.cos.new_zeros(2, len(self.cos), self.rows)
        for kind, wave in enumerate((self.cos, self.sin)):
            out[kind].index_add_(1, self.place, weights.to(self.dtype) * wave.square())
        return out

    def variance(self, V: Tensor) -> Tensor:
        """Every point looks up its row."""
        values = []
        for part in self._parts():
            cos, sin = self.cos[:, part], self.sin[:, part]
            waves = torch.stack((cos.square(), sin.square(), cos * sin)[: len(V)])
            values.append((V[..., self.place[part]] * waves).sum((0, 1)))
        return torch.cat(values)

    def single(self, t: int, c: Tensor, s: Tensor) -> Tensor:
        """Every point looks up its row."""
        return c[:, self.place] * self.cos[t] + s[:, self.place] * self.sin[t]

    def row_of_cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """As they are."""
        return self.place, self.cos, self.sin


@dataclass(frozen=True)
class WaveEvaluation(Evaluation):
    """Features A_t [m, rows] of parallels for t = 0 .. t_max, and the waves along them.

    The blocks are those of the cosines of t = 0 .. t_max, then those of the sines of t = 1 .. n_sines. A is complex for places
    off the lattice of longitudes; such evaluations predict, and have no Gram matrices and no gradient.
    """

    A: Tensor  #: [T, m, rows]
    n_sines: int
    waves: Waves
    residual: IndependentResidual  #: of the rows [rows, 1] for a grid, of the points [n] else

    @property
    def shapes(self) -> Shapes:
        """One stack."""
        return ((len(self.A) + self.n_sines, self.A.shape[1]),)

    @property
    def cells(self) -> tuple[int, ...]:
        """Those of the waves."""
        return self.waves.cells

    @property
    def dtype(self) -> torch.dtype:
        """That of A, or of its parts."""
        return self.A.real.dtype

    def _by_kind(self, u: Tensor) -> Tensor:
        """Coefficients [P, F] as those of cosines and sines, [P, 2, T, m]; zero where there is no sine."""
        T, m = self.A.shape[:2]
        u = u.unflatten(-1, (-1, m))
        out = u.new_zeros(len(u), 2, T, m)
        out[:, 0], out[:, 1, 1 : self.n_sines + 1] = u[:, :T], u[:, T:]
        return out

    def _by_block(self, v: Tensor) -> Tensor:
        """The transpose of `_by_kind`: [P, 2, T, m] -> [P, F]."""
        return torch.cat((v[:, 0], v[:, 1, 1 : self.n_sines + 1]), 1).flatten(1)

    def along(self, u: Tensor) -> Tensor:
        """Coefficients [P, F] to those of the waves along every row, [2, P, rows, T]."""
        by_kind = self._by_kind(u)
        if not self.A.is_complex():
            return _along(self.A, by_kind)
        real, imaginary = (_along(part, by_kind) for part in (self.A.real, self.A.imag))
        return torch.stack((real[0] + imaginary[1], real[1] - imaginary[0]))

    @torch.no_grad()
    def project(self, u: Tensor) -> Tensor:
        """To the rows, then along them."""
        return self.waves.spread(self.along(u).to(self.waves.dtype))

    @torch.no_grad()
    def accumulate(self, values: Tensor) -> Tensor:
        """Along the rows, then to the blocks."""
        self._check_real("sums over rows")
        c = self.waves.gather(values.to(self.waves.dtype))  # [2, P, rows, T]
        T, rows, P = len(self.A), self.A.shape[2], c.shape[1]
        flat = c.permute(3, 2, 0, 1).reshape(T, rows, 2 * P).to(self.A.dtype)
        out = torch.bmm(self.A, flat)  # [T, m, 2P]
        return self._by_block(out.reshape(T, -1, 2, P).permute(3, 2, 0, 1)).double()

    @torch.no_grad()
    def grams(self, weights: Tensor, work: GramWork) -> None:
        """A_t diag(sum_j w_ij cos^2(t lon_j)) A_t', and with sines."""
        self.grams_from_powers(self.waves.powers(weights).double(), work)

    def grams_from_powers(self, powers: Tensor, work: GramWork) -> None:
        """The same from the sums over the cells of every row, [2, T, rows]."""
        self._check_real("Gram matrices")

        def of(kind: int) -> Callable[[slice, slice], None]:
            def some(t: slice, b: slice) -> None:
                A = self.A[t].double()
                work(0, b, (A * powers[kind, t, None]) @ A.mT)

            return some

        self._each_block(of(0), of(1))

    def _each_block(self, cosines: Callable[[slice, slice], None], sines: Callable[[slice, slice], None]) -> None:
        """Work on frequencies t and the blocks that belong to them, side by side."""
        T, m = self.A.shape[:2]
        in_blocks(lambda b: cosines(b, b), T, m)
        in_blocks(lambda b: sines(slice(1 + b.start, 1 + b.stop), slice(T + b.start, T + b.stop)), self.n_sines, m)

    def moments(self, means: Sequence[Tensor], roots: Roots) -> tuple[Tensor, Tensor]:
        """Mean and variance along the rows; real features have a gradient."""
        if not self.A.is_complex():
            (mu,), (R,) = means, roots.stacks
            moments: tuple[Tensor, Tensor] = _WaveMoments.apply(self.A, mu, R, roots, self)
            return moments
        V = self._complex_variances(roots).to(self.waves.dtype)
        return self.project(means[0].flatten(1)), self.waves.variance(V).clamp_min(0.0)[None]

    @torch.no_grad()
    def _complex_variances(self, roots: Roots) -> Tensor:
        """A place off the lattice has the waves Re cos - Im sin and Re sin + Im cos: [3, T, rows]."""
        dtype = roots.stacks[0].dtype
        real, imaginary = narrowed(self.A.real, dtype), narrowed(self.A.imag, dtype)
        out = real.new_zeros(3, len(real), real.shape[-1])

        def cosines(t: slice, b: slice) -> None:
            r, i = (roots.apply(0, b, part[t])[0] for part in (real, imaginary))
            out[0, t] += r.square().sum(1)
            out[1, t] += i.square().sum(1)
            out[2, t] -= 2 * (r * i).sum(1)

        def sines(t: slice, b: slice) -> None:
            r, i = (roots.apply(0, b, part[t])[0] for part in (real, imaginary))
            out[1, t] += r.square().sum(1)
            out[0, t] += i.square().sum(1)
            out[2, t] += 2 * (r * i).sum(1)

        self._each_block(cosines, sines)
        return out

    @torch.no_grad()
    def parts(self, u: Tensor, blocks: Sequence[int]) -> Tensor:
        """Block by block: a block is one frequency's cosine or sine."""
        T, m = self.A.shape[:2]
        coefficients, values = u.unflatten(-1, (-1, m)), []
        for block in blocks:
            t, sine = (block, False) if block < T else (block - T + 1, True)
            a = self.A[t]
            real = (coefficients[:, block].to(a.real.dtype) @ a.real).to(self.waves.dtype)
            imaginary = torch.zeros_like(real)
            if a.is_complex():
                imaginary = (coefficients[:, block].to(a.real.dtype) @ a.imag).to(self.waves.dtype)
            values.append(self.waves.single(t, imaginary, real) if sine else self.waves.single(t, real, -imaginary))
        return torch.stack(values, 1)

    def dense(self) -> DenseEvaluation:
        """The features of every cell."""
        row, cos, sin = self.waves.row_of_cells()
        a = self.A[..., row]
        cos, sin = (wave.to(a.real.dtype)[:, None] for wave in (cos, sin))
        if a.is_complex():
            cosines, sines = a.real * cos - a.imag * sin, a.real * sin + a.imag * cos
        else:
            cosines, sines = a * cos, a * sin
        variance = self.residual.variance.expand(self.cells).reshape(-1)
        return DenseEvaluation((torch.cat((cosines, sines[1 : self.n_sines + 1])),), IndependentResidual(variance))

    def detach(self) -> WaveEvaluation:
        """The same without a graph."""
        residual = IndependentResidual(self.residual.variance.detach())
        return WaveEvaluation(self.A.detach(), self.n_sines, self.waves, residual)

    def _check_real(self, what: str) -> None:
        if self.A.is_complex():
            raise ValueError(f"{what} need places on the lattice of longitudes; these lie off it.")


def _along(A: Tensor, by_kind: Tensor) -> Tensor:
    """[P, 2, T, m] through A [T, m, rows] to [2, P, rows, T]."""
    T, P = len(A), len(by_kind)
    flat = by_kind.to(A.dtype).permute(2, 1, 0, 3).reshape(T, 2 * P, -1)
    return torch.bmm(flat, A).permute(1, 2, 0).reshape(2, P, A.shape[2], T)


class _WaveMoments(torch.autograd.Function):
    """Mean and variance of every cell; differentiable in A, with means and roots as constants."""

    @staticmethod
    def forward(
        ctx: Any, A: Tensor, mu: Tensor, R: Tensor, roots: Roots, evaluation: WaveEvaluation
    ) -> tuple[Tensor, Tensor]:
        waves, a = evaluation.waves, narrowed(A.detach(), R.dtype)
        V = a.new_zeros(2, len(A), A.shape[2])

        def of(kind: int) -> Callable[[slice, slice], None]:
            def some(t: slice, b: slice) -> None:
                V[kind, t] = roots.apply(0, b, a[t])[0].square().sum(1)

            return some

        evaluation._each_block(of(0), of(1))
        ctx.save_for_backward(A, mu)
        ctx.roots, ctx.evaluation = roots, evaluation.detach()
        mean = evaluation.project(mu.flatten(1))
        return mean, waves.variance(V.to(waves.dtype)).clamp_min(0.0)[None]

    @staticmethod
    @first_order
    def backward(ctx: Any, g_mean: Tensor, g_variance: Tensor) -> tuple[Tensor, None, None, None, None]:
        A, mu = ctx.saved_tensors
        roots, evaluation = ctx.roots, ctx.evaluation
        rho = evaluation.waves.gather(g_mean).to(A.dtype)  # [2, P, rows, T]
        powers = evaluation.waves.powers(g_variance.sum(0)).to(A.dtype)  # [2, T, rows]
        by_kind = evaluation._by_kind(mu.flatten(1)).to(A.dtype)
        gA = torch.empty_like(A)

        def quadratic(kind: int, t: slice, b: slice) -> Tensor:
            R = roots.stacks[0][0, b].to(A.dtype)
            return (R.mT @ (R @ A[t])).mul_(2 * powers[kind, t, None])

        def cosines(t: slice, b: slice) -> None:
            gA[t] = torch.einsum("pctm,cprt->tmr", by_kind[:, :, t], rho[..., t]) + quadratic(0, t, b)

        def sines(t: slice, b: slice) -> None:
            gA[t] += quadratic(1, t, b)

        evaluation._each_block(cosines, sines)
        return gA, None, None, None, None
