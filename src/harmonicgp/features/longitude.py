"""Features on the globe with one inducing point per latitude: harmonics of the longitude, in closed form along each parallel.

All inducing points lie on one meridian. So the harmonic Gram matrices K_t are real, and a pair {t, -t} gives two blocks of m,

    a_t(x) cos(t lon)  and  a_t(x) sin(t lon),      a_t(lat) = L_t^{-1} c_t(Z, lat) sqrt(2)   (1 where t = -t)

with longitudes counted from that meridian. Points of one parallel share a_t: a whole row of a grid costs as much as a point.
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

#: Longitudes up to this many steps from a lattice point are on it: the rounding of float32 degrees.
ON_LATTICE = 1e-3
#: Offsets from a lattice that differ by less than this many steps are equal: columns of one grid then share their features.
SAME_OFFSET = 1e-10
#: The most numbers of a chunk of columns.
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
        t_max: the largest frequency.
        order: n of the group Cyclic(n): for a grid, the number of longitudes around the whole circle. None is the circle group,
            for all longitudes and the RBF kernel only: the harmonics of other kernels fall too slowly for a finite transform.
        meridian: the longitude of the inducing points; for a grid, one of its longitudes.
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
                "without an order (the circle group) the kernel must be RBF: the harmonics of other kernels fall too slowly. "
                "Give the number of longitudes of the grid as order, or use Longitude(T) with free inducing inputs."
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
        """Latitudes of the inducing points, ascending, in degrees, float64."""
        return self.Z[:, 1].detach().double().contiguous()

    @property
    def n_sines(self) -> int:
        """The number of blocks of sines: frequencies that are not their own conjugates."""
        return self.t_max - int(self.order is not None and 2 * self.t_max == self.order and self.t_max > 0)

    @property
    def shapes(self) -> Shapes:
        """One stack: the cosines of t = 0 .. t_max, then the sines of t = 1 .. n_sines."""
        return ((self.t_max + 1 + self.n_sines, len(self.Z)),)

    @property
    def block_frequencies(self) -> Tensor:
        """The frequency t of every block, integers [blocks, 1], in the order of `Predictor.components`."""
        return torch.tensor([*range(self.t_max + 1), *range(1, self.n_sines + 1)], device="cpu")[self.block_order, None]

    @property
    def block_order(self) -> list[int]:
        """The blocks in the order of their frequencies, the cosine before the sine."""
        cosines, n = self.t_max + 1, self.n_sines
        return [i for t in range(cosines) for i in ([t, cosines + t - 1] if 1 <= t <= n else [t])]

    def multiplicity(self) -> Tensor:
        """The number of different frequencies among t and -t, one or two, [t_max + 1]."""
        t = torch.arange(self.t_max + 1, device=self.Z.device)
        return torch.where((t == 0) | (t > self.n_sines), 1.0, 2.0).double()

    def nodes(self) -> int:
        """The number of longitudes of the Fourier transform."""
        return self.zonal.nodes(self.t_max) if self.order is None else self.order

    def offsets(self, longitude: Tensor) -> tuple[Tensor, Tensor]:
        """Longitudes from the meridian as the nearest lattice points and the offsets from these, in degrees."""
        angle = longitude.double() - self.meridian
        if self.order is None:
            return angle, torch.zeros_like(angle)
        step = 360.0 / self.order
        place = torch.round(angle / step)
        offset = angle - place * step
        offset = torch.where(offset.abs() <= ON_LATTICE * step, torch.zeros_like(offset), offset)
        offset = (offset / (SAME_OFFSET * step)).round() * (SAME_OFFSET * step)
        return (place % self.order) * step, offset

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
        """The number of parallels whose features are computed at a time."""
        return max(1, _CHUNK // ((self.t_max + 1) * len(self.Z)))

    def pieces(self, x: Any, size: int) -> Iterator[Piece]:
        """Rows of a grid with columns of equal offset from the lattice; or points of the same parallels."""
        if isinstance(x, GlobeGrid):
            _, offsets = self.offsets(x.longitudes)
            for offset in offsets.unique():
                columns = (offsets == offset).nonzero()[:, 0]
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
        """The distinct pairs (latitude, offset from the lattice) of points x [n, 2], and the number of each point's pair."""
        _, offsets = self.offsets(x[:, 0])
        parallels, place = torch.unique(torch.stack((x[:, 1].double(), offsets), -1), dim=0, return_inverse=True)
        return parallels, place

    def whiten(self) -> LongitudeWhitened:
        """Compute one Cholesky factor for each frequency. Gradients pass through the evaluations."""
        with torch.no_grad():
            K = zonal_spectrum(self.zonal, self.latitudes, self.latitudes, self.t_max, self.nodes())
            K *= self.multiplicity()[:, None, None]
            factor = Factor.of(K, float(self.zonal.scale.detach()))
            alive = K.diagonal(dim1=-2, dim2=-1).amax(-1) > factor.jitter
        return LongitudeWhitened(self.view, Snapshot.of(self, self.view), self, factor, alive)


@dataclass(frozen=True)
class LongitudeWhitened(Whitened):
    """The Cholesky factors of `LongitudeFeatures`; evaluates the features of parallels."""

    view: KernelView
    snapshot: Snapshot
    features: LongitudeFeatures
    factor: Factor
    alive: Tensor  #: [t_max + 1], whether each frequency is above rounding

    def __call__(self, x: Any) -> WaveEvaluation:
        """The waves of a `GlobeGrid`, or of points [n, 2]; differentiable in the kernel's parameters on the lattice."""
        self.snapshot.check()
        f = self.features
        if isinstance(x, GlobeGrid):
            (angle, offsets), latitudes, place, dtype = f.offsets(x.longitudes), x.latitudes, None, f.dtype
            if bool((offsets != offsets[0]).any()):
                raise ValueError(
                    f"longitudes lie off the lattice of {f.order} around {f.meridian}: use the circle group (RBF kernel), or "
                    "pass the cells as points."
                )
            offsets = offsets[:1].expand(len(latitudes))
        else:
            (angle, _), (parallels, place), dtype = f.offsets(x[:, 0]), f.parallels_of(x), torch.float64
            latitudes, offsets = parallels.unbind(-1)
        check_latitude(latitudes)
        if bool(offsets.any()):
            A = self.parallels(latitudes, offsets)
            squares = A.abs().square()
            if f.n_sines < f.t_max:  # the highest frequency is its own conjugate: its imaginary part is rounding
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
        """a_t of whole parallels, [t_max + 1, m, n], float64; complex with `offsets` [n] from the lattice."""
        f = self.features
        if offsets is None:
            return self._solved(zonal_spectrum(f.zonal, f.latitudes, latitudes.double(), f.t_max, f.nodes()))
        return self._solved(zonal_offset_spectrum(f.zonal, f.latitudes, latitudes, offsets, f.t_max, f.nodes()))

    def _solved(self, K: Tensor) -> Tensor:
        """The whitened harmonics of t and -t together, [t_max + 1, m, n]; K is overwritten."""
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
        """The whitened coordinates of a function, from its Fourier transform along the parallels of the inducing points."""
        f, n = self.features, self.features.nodes()
        Z = f.Z.detach().double()
        turns = torch.arange(n, dtype=torch.float64, device=Z.device) * (360.0 / n)
        orbit = torch.stack((f.meridian + turns[:, None].expand(n, len(Z)), Z[:, 1].expand(n, -1)), -1)
        values = torch.stack([function(points.to(f.Z.dtype)).double() for points in orbit], 0)  # [n, m, samples]
        v = self._solved(torch.fft.fft(values, dim=0)[: f.t_max + 1] / n)
        # <f, k_t(z, .)> is conjugate to k_t(z, x) as a function of x
        return (torch.cat((v.real, -v.imag[1 : f.n_sines + 1])),)


class _Parallels(torch.autograd.Function):
    """The features of parallels and their squares, differentiable in the kernel's parameters.

    The backward pass evaluates the kernel again.
    """

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
        by_square = (2 * g_explained).to(A.dtype)
        product = torch.zeros_like(L)  # G A', summed over the rows
        sums = [torch.zeros_like(p) for p in ctx.parameters]
        for rows in _slices(len(latitudes), f.chunk):
            G = L.new_empty(T, len(Z), rows.stop - rows.start)

            def work(t: slice, rows: slice = rows, G: Tensor = G) -> None:
                a = A[t, :, rows]
                g = torch.addcmul(gA[t, :, rows], a, by_square[rows]).mul_(alive[t])
                product[t] += g @ a.mT
                torch.linalg.solve_triangular(L[t].mT, g.double(), upper=True, out=G[t])
                G[t] *= twice[t]

            in_blocks(work, T, len(Z))
            _add_gradients(f, Z, latitudes[rows], G, ctx.parameters, sums)
        gK = factor.carried(product)
        for t in range(T):
            gK[t] = (0.5 * float(twice[t])) * (gK[t] + gK[t].mT)
        _add_gradients(f, Z, Z, gK, ctx.parameters, sums)
        return None, None, None, *sums


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _add_gradients(
    f: LongitudeFeatures, p: Tensor, q: Tensor, gradient: Tensor, parameters: tuple[Tensor, ...], sums: list[Tensor]
) -> None:
    """Add the gradients of the kernel's parameters, from those of c_t(p, q), tile by tile."""
    for rows, columns in zonal_tiles(f.zonal, p, q, f.nodes()):
        with torch.enable_grad():
            block = zonal_block(f.zonal, p[rows], q[columns], f.t_max, f.nodes())
            parts = torch.autograd.grad(block, parameters, gradient[:, rows, columns], allow_unused=True)
        for total, part in zip(sums, parts, strict=True):
            if part is not None:
                total += part
