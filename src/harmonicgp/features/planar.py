"""Features of a regular grid in a region as planar waves: the complete harmonic decomposition of a stationary kernel on a torus.

The grid is put on a torus large enough that it does not meet itself. Shifts by cells are a symmetry, the whole torus is one
orbit, and one inducing point gives every harmonic: with lambda the Fourier transform of the kernel's first row on M cells,

    k(x, x') = sum_t a_t(x) a_t(x'),    a_t(x) = sqrt(lambda_t / M) (cos + sin)(2 pi t.x)

The residual is zero on the grid, so this is the exact Gaussian process. Products with the covariance are Fourier transforms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from harmonicgp.features.evaluation import DenseEvaluation, Evaluation, GramWork, Roots, Shapes
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.kernels.functions import KernelLike, kernel_matrix

#: Correlations below this are zero: beyond the lag where they are, the grid may meet itself on the torus.
NEGLIGIBLE = 1e-12
#: The torus grows at most to this many cells, or to four times the smallest one.
LARGEST = 1 << 22
#: Points of the kernel's first row that are evaluated at a time.
_POINTS = 1 << 20


@dataclass(frozen=True)
class Torus:
    """A grid on a torus, and the spectrum of a stationary kernel there.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
        >>> torus = Torus.of(MaternKernel(nu=0.5), (3, 4), (1.0, 1.0))
        >>> covariance = torus.covariance(torch.eye(12, dtype=torch.float64).view(12, 3, 4)).flatten(1)
        >>> torch.allclose(covariance[0, :2], torch.tensor([1.0, math.exp(-1 / math.log(2))], dtype=torch.float64))
        True
    """

    shape: tuple[int, ...]  #: of the grid
    size: tuple[int, ...]  #: of the torus
    spectrum: Tensor  #: lambda for half of the frequencies, [*size[:-1], size[-1] // 2 + 1] in float64
    clipped: float  #: the sum of the negative lambda over that of all: the largest error of a correlation of `sample`

    @classmethod
    @torch.no_grad()
    def of(cls, kernel: KernelLike, shape: Sequence[int], steps: Sequence[float], tolerance: float = 1e-11) -> Torus:
        """The torus of a grid whose cells have these distances, for a stationary kernel.

        It is the smallest one, enlarged until the spectrum is not negative but
        for a share `tolerance` of the variance. That, or more if the torus would become too large, is clipped.
        """
        torus = cls.smallest(kernel, shape, steps)
        most = max(LARGEST, 4 * torus.cells)
        while torus.clipped > tolerance:
            size = torus.size
            axis = max(range(len(size)), key=lambda j: _far_correlation(kernel, j, size, steps) * (shape[j] > 1))
            larger = [_fast(math.ceil(1.5 * n)) if j == axis else n for j, n in enumerate(size)]
            if math.prod(larger) > most:
                break
            torus = cls._on(kernel, shape, steps, larger)
        return torus

    @classmethod
    @torch.no_grad()
    def smallest(cls, kernel: KernelLike, shape: Sequence[int], steps: Sequence[float]) -> Torus:
        """The smallest torus on which `covariance` is exact; its spectrum may be negative."""
        reaches = [_reach(kernel, axis, n, steps) for axis, n in enumerate(shape)]
        size = [_fast(min(2 * n - 2, n + reach)) for n, reach in zip(shape, reaches, strict=True)]
        return cls._on(kernel, shape, steps, size)

    @classmethod
    def _on(cls, kernel: KernelLike, shape: Sequence[int], steps: Sequence[float], size: Sequence[int]) -> Torus:
        lags = [torch.arange(n, dtype=torch.float64, device="cpu") for n in size]
        lags = [torch.minimum(lag, len(lag) - lag) * step for lag, step in zip(lags, steps, strict=True)]
        row = torch.empty(math.prod(size), dtype=torch.float64, device="cpu")
        origin = torch.zeros(1, len(size), dtype=torch.float64, device="cpu")
        lead, stride = lags[0], max(1, _POINTS * size[0] // math.prod(size))
        for start in range(0, size[0], stride):  # slabs of the first axis
            mesh = torch.meshgrid(lead[start : start + stride], *lags[1:], indexing="ij")
            points = torch.stack([part.reshape(-1) for part in mesh], -1)
            begin = start * (math.prod(size) // size[0])
            row[begin : begin + len(points)] = kernel_matrix(kernel, origin, points)[0]
        row = row.view(*size)
        spectrum = torch.fft.rfftn(row).real.contiguous()
        weights = torch.full((spectrum.shape[-1],), 2.0, dtype=torch.float64, device="cpu")
        weights[0] = 1.0
        if size[-1] % 2 == 0:
            weights[-1] = 1.0
        negative = float((spectrum.clamp_max(0.0) * weights).sum())
        return cls(tuple(shape), tuple(size), spectrum, -negative / (math.prod(size) * float(row.flatten()[0])))

    @property
    def cells(self) -> int:
        """The number of cells of the torus."""
        return math.prod(self.size)

    def covariance(self, values: Tensor) -> Tensor:
        """K v for values [P, *shape] on the grid; exact, also where the spectrum is clipped for samples."""
        return self._crop(self._filtered(values, self.spectrum))

    def sample(self, n: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draws from the prior on the grid, [n, *shape]."""
        white = torch.randn(n, *self.size, generator=generator, dtype=dtype, device="cpu")
        return self._crop(self._filtered(white, self.spectrum.clamp_min(0.0).sqrt())).contiguous()

    def _filtered(self, values: Tensor, factors: Tensor) -> Tensor:
        """Multiply frequencies by factors: values [P, ...], zero beyond their shape, to [P, *size]."""
        axes = tuple(range(1, values.dim()))
        waves = torch.fft.rfftn(values, s=self.size, dim=axes)
        waves *= factors.to(values.dtype)
        return torch.fft.irfftn(waves, s=self.size, dim=axes)

    def _crop(self, values: Tensor) -> Tensor:
        return values[(slice(None), *(slice(0, n) for n in self.shape))]

    def whole_spectrum(self) -> Tensor:
        """lambda of all frequencies, clipped at zero, [*size]."""
        row = torch.fft.irfftn(self.spectrum.clamp_min(0.0), s=self.size)
        return torch.fft.fftn(row).real.clamp_min(0.0)


def _fast(n: int) -> int:
    """A length of at least n whose Fourier transform is fast."""
    return int(next_fast_len(max(n, 1), real=True))


def _along(kernel: KernelLike, axis: int, lags: Tensor, steps: Sequence[float]) -> Tensor:
    """Correlations at lags [n] in cells along an axis."""
    points = torch.zeros(len(lags), len(steps), dtype=torch.float64, device="cpu")
    points[:, axis] = lags.double() * steps[axis]
    row = kernel_matrix(kernel, torch.zeros_like(points[:1]), points)[0]
    return row / kernel_matrix(kernel, points[:1] * 0, points[:1] * 0)[0, 0]


def _reach(kernel: KernelLike, axis: int, n: int, steps: Sequence[float]) -> int:
    """The lag in cells from which correlations along an axis are negligible, at most n."""
    values = _along(kernel, axis, torch.arange(n, device="cpu"), steps).abs()
    return int((values > NEGLIGIBLE).nonzero().max()) + 1


def _far_correlation(kernel: KernelLike, axis: int, size: Sequence[int], steps: Sequence[float]) -> float:
    """The correlation half way around the torus along an axis, where the first row has its kink."""
    return float(_along(kernel, axis, torch.tensor([size[axis] // 2], device="cpu"), steps).abs()[0])


@dataclass(frozen=True)
class PlanarEvaluation(Evaluation):
    """Planar waves of a grid: every frequency of the torus is a block with one real feature.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> waves = PlanarEvaluation(Torus.of(RBFKernel(), (4, 5), (0.5, 0.5)))
        >>> bool((waves.dense().flat().square().sum(0) - 1).abs().max() < 1e-8)
        True
    """

    torus: Torus

    @property
    def residual(self) -> IndependentResidual:  # type: ignore[override]
        """Zero on the grid."""
        return IndependentResidual(self._root.new_zeros(self.cells))

    @property
    def shapes(self) -> Shapes:
        """One stack of as many blocks as the torus has cells."""
        return ((self.torus.cells, 1),)

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of the grid."""
        return self.torus.shape

    @property
    def dtype(self) -> torch.dtype:
        """Double precision."""
        return torch.float64

    @property
    def _root(self) -> Tensor:
        """sqrt(lambda_t / M), [*size]."""
        return (self.torus.whole_spectrum() / self.torus.cells).sqrt()

    @property
    def _inside(self) -> tuple[slice, ...]:
        return tuple(slice(0, n) for n in self.torus.shape)

    def _hartley(self, values: Tensor) -> Tensor:
        """The sum over the torus of values times cos + sin, [P, *size] -> [P, *size]."""
        waves = torch.fft.fftn(values, dim=tuple(range(1, values.dim())))
        return waves.real - waves.imag

    def _even(self, values: Tensor, doubled: bool) -> Tensor:
        """Sums of values [*size] times (cos + sin)^2 = 1 + sin at twice the phase, [*size]; `doubled` names the frequencies."""
        total, waves = values.sum(), -torch.fft.fftn(values).imag
        index = torch.meshgrid(
            *((2 * torch.arange(n, device=values.device)) % n for n in self.torus.size), indexing="ij"
        )
        return total + waves[index] if doubled else total + waves

    @torch.no_grad()
    def project(self, u: Tensor) -> Tensor:
        """A'u."""
        waves = self._hartley(self._root * u.double().unflatten(-1, self.torus.size))
        return waves[(slice(None), *self._inside)]

    @torch.no_grad()
    def accumulate(self, values: Tensor) -> Tensor:
        """A y."""
        return (self._root * self._hartley(self._on_torus(values))).flatten(1)

    def _on_torus(self, values: Tensor) -> Tensor:
        """Values of the grid [P, *cells] with zeros around, [P, *size]."""
        out = values.new_zeros(len(values), *self.torus.size, dtype=torch.float64)
        out[(slice(None), *self._inside)] = values.double()
        return out

    @torch.no_grad()
    def grams(self, weights: Tensor, work: GramWork) -> None:
        """sum_x w a_t^2 of all frequencies, by one transform."""
        sums = self._even(self._on_torus(weights[None])[0], doubled=True)
        work(0, slice(0, self.torus.cells), (self._root.square() * sums).reshape(-1, 1, 1))

    @torch.no_grad()
    def moments(self, means: Sequence[Tensor], roots: Roots) -> tuple[Tensor, Tensor]:
        """Mean [P, *cells] and variance [P or 1, *cells]; without a gradient."""
        (mu,), (R,) = means, roots.stacks
        scale = R.double().flatten(1)
        scale = (scale.reciprocal() if roots.inverted else scale).square()
        parts = [self._even(self._root.square() * part.view(*self.torus.size), doubled=True) for part in scale]
        return self.project(mu.flatten(1)), torch.stack(parts)[(slice(None), *self._inside)].clamp_min(0.0)

    @torch.no_grad()
    def parts(self, u: Tensor, blocks: Sequence[int]) -> Tensor:
        """a_t'u_t of single frequencies."""
        alone = torch.zeros(len(blocks), *u.shape, dtype=torch.float64, device=u.device)
        for i, block in enumerate(blocks):
            alone[i, :, block] = u[:, block]
        return self.project(alone.flatten(0, 1)).unflatten(0, alone.shape[:2]).transpose(0, 1)

    @torch.no_grad()
    def dense(self) -> DenseEvaluation:
        """The features of every cell, [frequencies, 1, cells]."""
        units = torch.eye(self.torus.cells, dtype=torch.float64, device="cpu")
        stack = self.project(units).flatten(1)[:, None]
        return DenseEvaluation((stack,), IndependentResidual(self.residual.variance.flatten()))

    def detach(self) -> PlanarEvaluation:
        """Itself: it has no graph."""
        return self
