"""Features of the globe as waves along parallels: an evaluation that never stores the features of single cells.

The block of frequency t is a_t(latitude) cos(t longitude), or with the sine. So A'u takes a product with every A_t [m, rows],
which gives coefficients of waves for each row, and a product with the waves of the longitudes. A row costs as much as a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation, GramWork, Roots, Shapes
from harmonicgp.features.residual import IndependentResidual

#: Features and factors below this become zero in single precision: products of subnormal numbers are orders slower.
TINY = 1e-18
#: The number of points processed at a time.
_POINTS = 1 << 14


def narrowed(a: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another dtype; numbers whose products would be subnormal become zero."""
    return a if dtype == a.dtype else torch.where(a.abs() < TINY, 0.0, a).to(dtype)


def by_kind(blocks: Tensor, T: int) -> Tensor:
    """Values of blocks [P, blocks, ...] as those of cosines and sines, [P, 2, T, ...]; zero for frequencies without a sine."""
    out = blocks.new_zeros(len(blocks), 2, T, *blocks.shape[2:])
    out[:, 0], out[:, 1, 1 : blocks.shape[1] - T + 1] = blocks[:, :T], blocks[:, T:]
    return out


def by_block(values: Tensor, n_sines: int) -> Tensor:
    """The transpose of `by_kind`: [P, 2, T, ...] -> [P, blocks, ...]."""
    return torch.cat((values[:, 0], values[:, 1, 1 : n_sines + 1]), 1)


@dataclass(frozen=True)
class Waves:
    """cos(t lon) and sin(t lon), [T, n] each: for the n columns of a grid, or for n points on its rows."""

    rows: int  #: the number of rows
    cos: Tensor
    sin: Tensor
    place: Tensor | None  #: the row of every point, [n]; None for a grid

    @classmethod
    def at(cls, angle: Tensor, t_max: int, n_sines: int, rows: int, place: Tensor | None, dtype: torch.dtype) -> Waves:
        """The waves of t = 0 .. t_max at angles [n] in degrees; sines above `n_sines` are zero."""
        t = torch.arange(t_max + 1, dtype=torch.float64, device=angle.device)[:, None]
        phase = t * torch.deg2rad(angle.double())
        sin = phase.sin()
        sin[n_sines + 1 :] = 0.0
        return cls(rows, phase.cos().to(dtype), sin.to(dtype), place)

    @property
    def cells(self) -> tuple[int, ...]:
        """(rows, columns) of a grid, (n,) of points."""
        n = self.cos.shape[1]
        return (self.rows, n) if self.place is None else (n,)

    def spread(self, c: Tensor) -> Tensor:
        """From coefficients of the rows [2, P, rows, T] to values [P, *cells]."""
        return self._spread(c.to(self.cos.dtype), (self.cos, self.sin))

    def gather(self, values: Tensor) -> Tensor:
        """The transpose of `spread`, from values [P, *cells] to [2, P, rows, T]."""
        return self._gather(values.to(self.cos.dtype), (self.cos, self.sin))

    def variance(self, V: Tensor) -> Tensor:
        """The sum of V_0 cos^2, V_1 sin^2 and, if there is a V_2, V_2 cos sin: [2 or 3, T, rows] -> [*cells]."""
        pairs = ((self.cos, self.cos), (self.sin, self.sin), (self.cos, self.sin))[: len(V)]
        return self._spread(V.to(self.cos.dtype).mT[:, None], [a * b for a, b in pairs])[0]

    def powers(self, weights: Tensor) -> Tensor:
        """The sums of w cos^2 and w sin^2 over the cells of every row, [*cells] -> [2, T, rows]."""
        squares = (self.cos.square(), self.sin.square())
        return self._gather(weights.to(self.cos.dtype)[None], squares)[:, 0].mT

    def _spread(self, c: Tensor, waves: Sequence[Tensor]) -> Tensor:
        """The sum over k of c_k [P, rows, T] times the wave k [T, n]."""
        total: Any = 0
        for part, wave in zip(c, waves, strict=True):
            if self.place is None:
                total = total + part @ wave
            else:
                pieces = zip(self.place.split(_POINTS), wave.mT.split(_POINTS), strict=True)
                total = total + torch.cat([(part[:, place] * piece).sum(-1) for place, piece in pieces], -1)
        return total

    def _gather(self, values: Tensor, waves: Sequence[Tensor]) -> Tensor:
        """The transpose of `_spread`."""
        if self.place is None:
            return torch.stack([values @ wave.mT for wave in waves])
        out = values.new_zeros(len(waves), len(values), self.rows, len(self.cos))
        for wave, total in zip(waves, out, strict=True):
            pieces = (self.place.split(_POINTS), values.split(_POINTS, -1), wave.mT.split(_POINTS))
            for place, numbers, piece in zip(*pieces, strict=True):
                total.index_add_(1, place, numbers[..., None] * piece)
        return out


@dataclass(frozen=True)
class WaveEvaluation(Evaluation):
    """Features A_t [m, rows] of parallels for t = 0 .. t_max, and the waves along them.

    The blocks are those of the cosines of t = 0 .. t_max, then those of the sines of t = 1 .. n_sines. Off the lattice of
    longitudes A is complex, and the features are Re(A_t w_t) and Im(A_t w_t) for the wave w_t = cos + i sin. Such an evaluation
    can predict, but has no Gram matrices and no gradient.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import GlobeGrid, LongitudeFeatures
        >>> from harmonicgp.kernels import GlobeKernel
        >>> features = LongitudeFeatures(GlobeKernel(RBFKernel()), torch.linspace(-80, 80, 5), t_max=3)
        >>> evaluation = features(GlobeGrid(torch.linspace(-60, 60, 4).double(), 45 * torch.arange(8.0).double()))
        >>> evaluation.cells, evaluation.project(torch.ones(1, features.n_features)).shape
        ((4, 8), torch.Size([1, 4, 8]))
    """

    A: Tensor  #: [T, m, rows]
    n_sines: int
    waves: Waves
    residual: IndependentResidual  #: of the rows of a grid [rows, 1], or of points [n]

    @property
    def shapes(self) -> Shapes:
        """One stack."""
        return ((len(self.A) + self.n_sines, self.A.shape[1]),)

    @property
    def cells(self) -> tuple[int, ...]:
        """(rows, columns) of a grid, (n,) of points."""
        return self.waves.cells

    @property
    def dtype(self) -> torch.dtype:
        """The precision of A, or of its real part."""
        return self.A.real.dtype

    def along(self, u: Tensor) -> Tensor:
        """From coefficients [P, F] to those of the waves along every row, [2, P, rows, T]."""
        T, m = self.A.shape[:2]
        return _along(self.A, by_kind(u.unflatten(-1, (-1, m)), T))

    @torch.no_grad()
    def project(self, u: Tensor) -> Tensor:
        """A'u, [P, *cells]: first to the rows, then along them."""
        return self.waves.spread(self.along(u))

    @torch.no_grad()
    def accumulate(self, values: Tensor) -> Tensor:
        """A y, [P, F]: first along the rows, then to the blocks."""
        self._check_real("sums over rows")
        c = self.waves.gather(values)  # [2, P, rows, T]
        T, rows, P = len(self.A), self.A.shape[2], c.shape[1]
        flat = c.permute(3, 2, 0, 1).reshape(T, rows, 2 * P).to(self.A.dtype)
        out = torch.bmm(self.A, flat)  # [T, m, 2P]
        return by_block(out.reshape(T, -1, 2, P).permute(3, 2, 0, 1), self.n_sines).flatten(1).double()

    @torch.no_grad()
    def grams(self, weights: Tensor, work: GramWork) -> None:
        """The matrices A_t diag(sum_j w_ij cos^2(t lon_j)) A_t', and those with sines."""
        self.grams_from_powers(self.waves.powers(weights).double(), work)

    def grams_from_powers(self, powers: Tensor, work: GramWork) -> None:
        """The same from the sums of `Waves.powers`, [2, T, rows]."""
        self._check_real("Gram matrices")

        def multiply(kind: int, t: slice, b: slice) -> None:
            A = self.A[t].double()
            work(0, b, (A * powers[kind, t, None]) @ A.mT)

        self._each_block(multiply)

    def _each_block(self, work: Callable[[int, slice, slice], None]) -> None:
        """Call `work(kind, t, blocks)` in parallel, for the frequencies and blocks of the cosines (0), then of the sines (1)."""
        T, m = self.A.shape[:2]
        in_blocks(lambda b: work(0, b, b), T, m)
        in_blocks(lambda b: work(1, slice(1 + b.start, 1 + b.stop), slice(T + b.start, T + b.stop)), self.n_sines, m)

    def moments(self, means: Sequence[Tensor], roots: Roots) -> tuple[Tensor, Tensor]:
        """Mean [P, *cells] and variance [1, *cells]; differentiable in real features."""
        (mu,), (R,) = means, roots.stacks
        if self.A.is_complex():
            return self._moments(mu, roots)
        moments: tuple[Tensor, Tensor] = _WaveMoments.apply(self.A, mu, R, roots, self)
        return moments

    @torch.no_grad()
    def _moments(self, mu: Tensor, roots: Roots) -> tuple[Tensor, Tensor]:
        """The variance along a row is a sum of cos^2, sin^2 and, off the lattice, cos sin."""
        dtype = roots.stacks[0].dtype
        parts = [narrowed(part, dtype) for part in ((self.A.real, self.A.imag) if self.A.is_complex() else (self.A,))]
        V = parts[0].new_zeros(1 + len(parts), len(self.A), self.A.shape[2])

        def add(kind: int, t: slice, b: slice) -> None:
            real, *imaginary = (roots.apply(0, b, part[t])[0] for part in parts)
            V[kind, t] += real.square().sum(1)
            for i in imaginary:
                V[1 - kind, t] += i.square().sum(1)
                V[2, t] += (4 * kind - 2) * (real * i).sum(1)

        self._each_block(add)
        return self.project(mu.flatten(1)), self.waves.variance(V).clamp_min(0.0)[None]

    @torch.no_grad()
    def parts(self, u: Tensor, blocks: Sequence[int]) -> Tensor:
        """The parts of single blocks [P, len(blocks), *cells]; a block is the cosine or the sine of one frequency."""
        T, m = self.A.shape[:2]
        coefficients, values = u.unflatten(-1, (-1, m)), []
        for block in blocks:
            t, kind = (block, 0) if block < T else (block - T + 1, 1)
            frequency, kinds = slice(t, t + 1), u.new_zeros(len(u), 2, 1, m)
            kinds[:, kind, 0] = coefficients[:, block]
            waves = replace(self.waves, cos=self.waves.cos[frequency], sin=self.waves.sin[frequency])
            values.append(waves.spread(_along(self.A[frequency], kinds)))
        return torch.stack(values, 1)

    def dense(self) -> DenseEvaluation:
        """The features of every cell."""
        place = self.waves.place
        a = self.A[..., None] if place is None else self.A[..., place]
        cos, sin = (wave.to(self.dtype)[:, None] for wave in (self.waves.cos, self.waves.sin))
        if place is None:
            cos, sin = cos[:, None], sin[:, None]
        cosines, sines = a.real * cos, a.real * sin
        if a.is_complex():
            cosines, sines = cosines - a.imag * sin, sines + a.imag * cos
        variance = self.residual.variance.expand(self.cells).reshape(-1)
        stack = torch.cat((cosines, sines[1 : self.n_sines + 1])).flatten(2)
        return DenseEvaluation((stack,), IndependentResidual(variance))

    def detach(self) -> WaveEvaluation:
        """The same without a graph."""
        return replace(self, A=self.A.detach(), residual=IndependentResidual(self.residual.variance.detach()))

    def _check_real(self, what: str) -> None:
        if self.A.is_complex():
            raise ValueError(f"{what} need points on the lattice of longitudes; these lie off the lattice.")


def _along(A: Tensor, kinds: Tensor) -> Tensor:
    """From coefficients [P, 2, T, m], by products with A [T, m, rows], to [2, P, rows, T]."""
    if A.is_complex():
        real, imaginary = _along(A.real, kinds), _along(A.imag, kinds)
        return torch.stack((real[0] + imaginary[1], real[1] - imaginary[0]))
    T, P = len(A), len(kinds)
    flat = kinds.to(A.dtype).permute(2, 1, 0, 3).reshape(T, 2 * P, -1)
    return torch.bmm(flat, A).permute(1, 2, 0).reshape(2, P, A.shape[2], T)


class _WaveMoments(torch.autograd.Function):
    """Mean and variance of every cell; differentiable in A, but not in means and roots."""

    @staticmethod
    def forward(
        ctx: Any, A: Tensor, mu: Tensor, R: Tensor, roots: Roots, evaluation: WaveEvaluation
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(A, mu)
        ctx.roots, ctx.evaluation = roots, evaluation.detach()
        return ctx.evaluation._moments(mu, roots)

    @staticmethod
    @first_order
    def backward(ctx: Any, g_mean: Tensor, g_variance: Tensor) -> tuple[Tensor, None, None, None, None]:
        A, mu = ctx.saved_tensors
        roots, evaluation = ctx.roots, ctx.evaluation
        rho = evaluation.waves.gather(g_mean).to(A.dtype)  # [2, P, rows, T]
        powers = evaluation.waves.powers(g_variance.sum(0)).to(A.dtype)  # [2, T, rows]
        kinds = by_kind(mu, len(A)).to(A.dtype)
        gA = torch.empty_like(A)

        def add(kind: int, t: slice, b: slice) -> None:
            R = roots.stacks[0][0, b].to(A.dtype)
            quadratic = (R.mT @ (R @ A[t])).mul_(2 * powers[kind, t, None])
            if kind == 0:
                gA[t] = torch.einsum("pctm,cprt->tmr", kinds[:, :, t], rho[..., t]) + quadratic
            else:
                gA[t] += quadratic

        evaluation._each_block(add)
        return gA, None, None, None, None
