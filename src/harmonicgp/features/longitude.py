"""Features on the globe with one inducing point a latitude: harmonics of the longitude, in closed form along each parallel.

All inducing points lie on one meridian. So the harmonic Gram matrices K_t are real, and a pair {t, -t} is two blocks of m,

    a_t(x) cos(t lon)  and  a_t(x) sin(t lon),      a_t(lat) = L_t^{-1} c_t(Z, lat) sqrt(2)   (1 where t = -t)

with longitudes counted from that meridian. Points of one parallel share a_t: a whole row of a grid costs one column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import first_order, whole_number
from harmonicgp.actions.translation import check_latitude
from harmonicgp.backend.linalg import Factor
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.base import Features, KernelView, Piece, PointFunction, Snapshot, Whitened
from harmonicgp.features.evaluation import Shapes, Stacks
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.features.waves import WaveEvaluation, Waves, narrowed
from harmonicgp.kernels.zonal import ZonalKernel, zonal_block, zonal_offset_spectrum, zonal_spectrum, zonal_tiles

#: Longitudes this near to a lattice, in its steps, lie on it: the rounding of float32 degrees.
ON_LATTICE = 1e-3
#: Offsets from a lattice that differ by less than this, in its steps, are one: columns of one grid then share their features.
SAME_OFFSET = 1e-10
#: Numbers that a chunk of columns may hold.
_CHUNK = 1 << 25


@dataclass(frozen=True)
class GlobeGrid:
    """The cells of a grid of latitudes [rows] and longitudes [columns], degrees in float64.

    Examples:
        >>> import torch
        >>> GlobeGrid(torch.tensor([0.0, 10.0]), torch.tensor([5.0])).points()[:, 0]
        tensor([[ 5.,  0.],
                [ 5., 10.]])
    """

    latitudes: Tensor
    longitudes: Tensor

    def points(self) -> Tensor:
        """(longitude, latitude) of every cell, [rows, columns, 2]."""
        latitude, longitude = torch.meshgrid(self.latitudes, self.longitudes, indexing="ij")
        return torch.stack((longitude, latitude), -1)


class LongitudeFeatures(Features):
    """Blocks of all frequencies |t| <= t_max of the longitude, m inducing latitudes each.

    Args:
        kernel: a `GlobeKernel` of an RBF, Matern or rational quadratic kernel, scaled or not.
        latitudes: of the inducing points, [m], degrees; sorted here.
        t_max: the largest frequency kept.
        order: n of the group Cyclic(n): for a grid, its longitudes around the whole circle. None is the circle group, all
            longitudes, for the RBF kernel only: the harmonics of others fall too slowly for a finite transform.
        meridian: the longitude of the inducing points; for a grid, one of its own.
        dtype: the precision of the features of grids.

    Inputs are points [n, 2], longitude and latitude, or a `GlobeGrid`.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.kernels import GlobeKernel
        >>> features = LongitudeFeatures(GlobeKernel(RBFKernel()), torch.linspace(-80, 80, 5), t_max=3)
        >>> features.shapes, features.n_features
        (((7, 5),), 35)
        >>> evaluation = features(torch.tensor([[10.0, 20.0], [30.0, -50.0]]))
        >>> evaluation.cells, evaluation.dense().stacks[0].shape
        ((2,), torch.Size([7, 5, 2]))
    """

    def __init__(
        self,
        kernel: gpytorch.kernels.Kernel,
        latitudes: Tensor,
        t_max: int,
        order: int | None = None,
        meridian: float = 0.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(kernel)
        self.dtype = dtype
        self.zonal = ZonalKernel.of(kernel)
        if latitudes.dim() != 1 or len(latitudes) == 0 or not torch.isfinite(latitudes).all():
            raise ValueError(f"latitudes must be [m] finite numbers; got shape {tuple(latitudes.shape)}.")
        check_latitude(latitudes, "latitudes")
        self.t_max = whole_number(t_max, "t_max", 0)
        self.order = None if order is None else whole_number(order, "order", 1)
        if self.order is None and not self.zonal.is_smooth:
            raise ValueError(
                "without an order, the circle group, the kernel must be RBF: the harmonics of others fall too slowly to be cut "
                "off. Give the number of longitudes of the grid, or use Longitude(T) with free inducing inputs."
            )
        if self.order is not None and self.t_max > self.order // 2:
            raise ValueError(f"{self.order} longitudes have the frequencies 0 to {self.order // 2}; got t_max={t_max}.")
        if not math.isfinite(meridian):
            raise ValueError(f"meridian must be a finite longitude; got {meridian}.")
        self.meridian = float(meridian)
        ordered = latitudes.detach().clone().sort().values
        Z = torch.stack((torch.full_like(ordered, self.meridian), ordered), -1)
        self.Z = torch.nn.Parameter(Z, requires_grad=False)

    @property
    def latitudes(self) -> Tensor:
        """Of the inducing points, rising, in degrees, float64."""
        return self.Z[:, 1].detach().double().contiguous()

    @property
    def n_sines(self) -> int:
        """Blocks of sines: frequencies that are not their own conjugates."""
        return self.t_max - int(self.order is not None and 2 * self.t_max == self.order and self.t_max > 0)

    @property
    def shapes(self) -> Shapes:
        """One stack: cosines of t = 0 .. t_max, then sines of t = 1 .. ."""
        return ((self.t_max + 1 + self.n_sines, len(self.Z)),)

    @property
    def block_frequencies(self) -> Tensor:
        """The frequency t of every block, integers [blocks, 1], in the order of `Predictor.components`."""
        return torch.tensor([*range(self.t_max + 1), *range(1, self.n_sines + 1)], device="cpu")[self.block_order, None]

    @property
    def block_order(self) -> list[int]:
        """By frequency, the cosine before the sine."""
        cosines, n = self.t_max + 1, self.n_sines
        return [i for t in range(cosines) for i in ([t, cosines + t - 1] if 1 <= t <= n else [t])]

    def multiplicity(self) -> Tensor:
        """How many of t, -t each block stands for, [t_max + 1]."""
        t = torch.arange(self.t_max + 1, device=self.Z.device)
        return torch.where((t == 0) | (t > self.n_sines), 1.0, 2.0).double()

    def nodes(self) -> int:
        """Longitudes of the transform."""
        return self.zonal.nodes(self.t_max) if self.order is None else self.order

    def offsets(self, longitude: Tensor) -> tuple[Tensor, Tensor]:
        """Longitudes from the meridian as a place of the lattice, in degrees, and what is left, all zero on it."""
        angle = longitude.double() - self.meridian
        if self.order is None:
            return angle, torch.zeros_like(angle)
        step = 360.0 / self.order
        place = torch.round(angle / step)
        left = angle - place * step
        left = torch.where(left.abs() <= ON_LATTICE * step, torch.zeros_like(left), left)
        left = (left / (SAME_OFFSET * step)).round() * (SAME_OFFSET * step)
        return (place % self.order) * step, left

    def check(self, x: Any, name: str = "X") -> None:
        """Raise a clear error unless x is a `GlobeGrid` or points [n, 2]."""
        if isinstance(x, GlobeGrid):
            check_latitude(x.latitudes, name)
        else:
            super().check(x, name)

    def cells(self, x: Any) -> tuple[int, ...]:
        """(rows, columns) of a grid, (n,) of points."""
        return (len(x.latitudes), len(x.longitudes)) if isinstance(x, GlobeGrid) else super().cells(x)

    @property
    def chunk(self) -> int:
        """Parallels whose features stay small."""
        return max(1, _CHUNK // ((self.t_max + 1) * len(self.Z)))

    def pieces(self, x: Any, size: int) -> Iterator[Piece]:
        """Rows of a grid, columns of one lattice at a time; or points that share parallels."""
        if isinstance(x, GlobeGrid):
            _, left = self.offsets(x.longitudes)
            for offset in left.unique():
                columns = (left == offset).nonzero()[:, 0]
                for rows in _slices(len(x.latitudes), self.chunk):
                    yield (rows, columns), GlobeGrid(x.latitudes[rows], x.longitudes[columns])
            return
        parallels, place = self.parallels_of(x)
        order = torch.argsort(place, stable=True)
        edges = torch.arange(0, len(parallels) + self.chunk, self.chunk, device=place.device)
        ends = torch.searchsorted(place[order].contiguous(), edges).tolist()
        for start, stop in pairwise(ends):
            if stop > start:
                yield (order[start:stop],), x[order[start:stop]]

    def parallels_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The different (latitude, offset from the lattice) of points x [n, 2], and which each point has."""
        _, left = self.offsets(x[:, 0])
        parallels, place = torch.unique(torch.stack((x[:, 1].double(), left), -1), dim=0, return_inverse=True)
        return parallels, place

    def whiten(self) -> LongitudeWhitened:
        """One Cholesky factor for each frequency. Gradients pass through the evaluations."""
        with torch.no_grad():
            K = zonal_spectrum(self.zonal, self.latitudes, self.latitudes, self.t_max, self.nodes())
            K *= self.multiplicity()[:, None, None]
            factor = Factor.of(K, float(self.zonal.scale.detach()))
            alive = K.diagonal(dim1=-2, dim2=-1).amax(-1) > factor.jitter
        return LongitudeWhitened(self.view, Snapshot.of(self, self.view), self, factor, alive)


@dataclass(frozen=True)
class LongitudeWhitened(Whitened):
    """The factors, and the features of parallels."""

    view: KernelView
    snapshot: Snapshot
    features: LongitudeFeatures
    factor: Factor
    alive: Tensor  #: [t_max + 1], frequencies that are more than rounding

    def __call__(self, x: Any) -> WaveEvaluation:
        """The waves of a `GlobeGrid`, or of points [n, 2]; differentiable in the kernel's parameters on the lattice."""
        self.snapshot.check()
        f = self.features
        if isinstance(x, GlobeGrid):
            (angle, left), latitudes, place, dtype = f.offsets(x.longitudes), x.latitudes, None, f.dtype
            if bool((left != left[0]).any()):
                raise ValueError(
                    f"longitudes lie off the lattice of {f.order} around {f.meridian}: use the circle group (RBF kernel), or "
                    "take them as scattered points."
                )
            offsets = left[:1].expand(len(latitudes))
        else:
            (angle, _), (parallels, place), dtype = f.offsets(x[:, 0]), f.parallels_of(x), torch.float64
            latitudes, offsets = parallels.unbind(-1)
        check_latitude(latitudes)
        if bool(offsets.any()):
            A = self.parallels(latitudes, offsets)
            squares = A.abs().square()
            if f.n_sines < f.t_max:  # the highest frequency is its own conjugate: what is imaginary is rounding
                squares[-1] = A.real[-1].square()
            explained = squares.sum((0, 1))
        else:
            parameters = [p for p in f.view.parameters() if p.requires_grad]  # type: ignore[attr-defined]
            A, explained = _Parallels.apply(self, latitudes, dtype, *parameters)
        variance = (f.zonal.scale - explained).clamp_min(0.0)
        waves = Waves.at(angle, f.t_max, f.n_sines, len(latitudes), place, dtype)
        residual = IndependentResidual(variance[:, None] if place is None else variance[place])
        return WaveEvaluation(A, f.n_sines, waves, residual)

    @torch.no_grad()
    def parallels(self, latitudes: Tensor, offsets: Tensor | None = None) -> Tensor:
        """a_t of whole parallels, [t_max + 1, m, n], float64; complex where places lie off the lattice by `offsets` [n]."""
        f = self.features
        if offsets is None:
            return self._solved(zonal_spectrum(f.zonal, f.latitudes, latitudes.double(), f.t_max, f.nodes()))
        return self._solved(zonal_offset_spectrum(f.zonal, f.latitudes, latitudes, offsets, f.t_max, f.nodes()))

    def _solved(self, K: Tensor) -> Tensor:
        """Harmonics [t_max + 1, m, n] of both t and -t, whitened; K is overwritten."""
        K *= self.features.multiplicity()[:, None, None]
        if K.is_complex():
            return torch.complex(self._whiten(K.real.contiguous()), self._whiten(K.imag.contiguous()))
        return self._whiten(K)

    def _whiten(self, K: Tensor) -> Tensor:
        return self.factor.whiten(K, None if bool(self.alive.all()) else self.alive)[0]

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        """a(x), and |a(x)|^2 over all blocks, in the precision of x."""
        evaluation = self(x).dense()
        explained = self.view.xx(x) - evaluation.residual.variance
        return tuple(a.to(x.dtype) for a in evaluation.stacks), explained.to(x.dtype)

    def project(self, function: PointFunction) -> Stacks:
        """By the transform of the function along the parallels of the inducing points."""
        f, n = self.features, self.features.nodes()
        Z = f.Z.detach().double()
        turns = torch.arange(n, dtype=torch.float64, device=Z.device) * (360.0 / n)
        around = torch.stack((f.meridian + turns[:, None].expand(n, len(Z)), Z[:, 1].expand(n, -1)), -1)
        values = torch.stack([function(points.to(f.Z.dtype)).double() for points in around], 0)  # [n, m, samples]
        v = self._solved(torch.fft.fft(values, dim=0)[: f.t_max + 1] / n)
        # <f, k_t(z, .)> is the conjugate of what k_t(z, x) is in x
        return (torch.cat((v.real, -v.imag[1 : f.n_sines + 1])),)


class _Parallels(torch.autograd.Function):
    """The features of parallels and their squares, from the kernel's parameters; the backward pass evaluates the kernel again."""

    @staticmethod
    def forward(
        ctx: Any, whitened: LongitudeWhitened, latitudes: Tensor, dtype: torch.dtype, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        f = whitened.features
        A = torch.empty(f.t_max + 1, len(f.Z), len(latitudes), dtype=dtype, device=latitudes.device)
        explained = torch.empty(len(latitudes), dtype=torch.float64, device=latitudes.device)
        for rows in _slices(len(latitudes), f.chunk):
            a = whitened.parallels(latitudes[rows])
            explained[rows] = a.square().sum((0, 1))
            A[..., rows] = narrowed(a, dtype)
        ctx.save_for_backward(A)
        ctx.whitened, ctx.latitudes, ctx.parameters = whitened, latitudes, parameters
        return A, explained

    @staticmethod
    @first_order
    def backward(ctx: Any, gA: Tensor, g_explained: Tensor) -> tuple[Tensor | None, ...]:
        (A,) = ctx.saved_tensors
        whitened, latitudes = ctx.whitened, ctx.latitudes
        f, factor = whitened.features, whitened.factor
        L, Z, T = factor.L, f.latitudes, f.t_max + 1
        twice, alive = f.multiplicity()[:, None, None], whitened.alive.to(A.dtype)[:, None, None]
        double = (2 * g_explained).to(A.dtype)
        product = torch.zeros_like(L)  # G A', summed over the rows
        sums = [torch.zeros_like(p) for p in ctx.parameters]
        for rows in _slices(len(latitudes), f.chunk):
            G = L.new_empty(T, len(Z), rows.stop - rows.start)

            def work(t: slice, rows: slice = rows, G: Tensor = G) -> None:
                a = A[t, :, rows]
                g = torch.addcmul(gA[t, :, rows], a, double[rows]).mul_(alive[t])
                product[t] += g @ a.mT
                torch.linalg.solve_triangular(L[t].mT, g.double(), upper=True, out=G[t])
                G[t] *= twice[t]

            in_blocks(work, T, len(Z))
            _pass_on(f, Z, latitudes[rows], G, ctx.parameters, sums)
        gK = factor.carried(product)
        for t in range(T):
            gK[t] = (0.5 * float(twice[t])) * (gK[t] + gK[t].mT)
        _pass_on(f, Z, Z, gK, ctx.parameters, sums)
        return None, None, None, *sums


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _pass_on(
    f: LongitudeFeatures, p: Tensor, q: Tensor, gradient: Tensor, parameters: tuple[Tensor, ...], sums: list[Tensor]
) -> None:
    """Add the gradients that c_t(p, q) hands to the kernel's parameters, tile by tile."""
    for rows, columns in zonal_tiles(f.zonal, p, q, f.nodes()):
        with torch.enable_grad():
            block = zonal_block(f.zonal, p[rows], q[columns], f.t_max, f.nodes())
            parts = torch.autograd.grad(block, parameters, gradient[:, rows, columns], allow_unused=True)
        for total, part in zip(sums, parts, strict=True):
            if part is not None:
                total += part
