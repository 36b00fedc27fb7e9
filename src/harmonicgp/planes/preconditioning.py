"""Approximate inverses of K + D on a grid, which make conjugate gradients converge: waves for smooth fields, neighbours else.

The waves of a torus whose spectrum is above the noise are all of a smooth field. With Phi these m waves on the observed cells,

    (Phi Phi' + D)^{-1} = D^{-1} - D^{-1} Phi (I + Phi' D^{-1} Phi)^{-1} Phi' D^{-1}

and the waves left out, whose spectrum is at most lambda, leave a condition number of at most 1 + lambda / min D. Sums of
products of waves are Fourier coefficients of 1 / D: the matrix of m x m needs one transform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from harmonicgp.features.planar import Torus
from harmonicgp.planes.conditioning import precision_root

#: Waves at most, and the largest condition number with which they are taken.
WAVES, CONDITION = 4000, 100.0
#: Numbers of the tables of waves along an axis at most.
TABLE = 20_000_000
#: Neighbours of the sparse precision, for up to and beyond a number of rows.
NEIGHBOURS, FEWER, MANY = 30, 16, 300_000


@dataclass(frozen=True)
class SparseInverse:
    """S'S of the nearest values: for rough fields, and for noise that is not small."""

    root: sparse.csr_array

    def __call__(self, values: Tensor) -> Tensor:
        """S'S v for values [P, N]."""
        columns = values.numpy().T.astype(self.root.dtype)
        result = self.root.T @ (self.root @ columns)
        return torch.from_numpy(np.ascontiguousarray(result.T)).to(values.dtype)


@dataclass(frozen=True)
class WaveInverse:
    """The inverse of the waves above the noise, and the noise."""

    shape: tuple[int, ...]  #: of the grid
    cells: Tensor  #: numbers of the observed cells, [N]
    noise: Tensor  #: [N]
    tables: list[Tensor]  #: exp(2 pi i t x / M) along each axis, [cells, frequencies]
    place: Tensor  #: of each wave in the box of frequencies, [m]
    scale: Tensor  #: sqrt(lambda / M), [m]
    L: Tensor  #: the Cholesky factor of I + Phi'D^{-1}Phi, [m, m]

    @classmethod
    @torch.no_grad()
    def of(cls, torus: Torus, cells: Tensor, noise: Tensor) -> WaveInverse | None:
        """For a torus whose negative spectrum is negligible; None if too many waves are above the noise."""
        spectrum, least = torus.whole_spectrum().flatten(), float(noise.min())
        m = min(int((spectrum > least).sum()), WAVES, len(spectrum) - 1)
        values, order = spectrum.topk(m + 1)
        if float(values[-1]) > (CONDITION - 1) * least:
            return None
        axes = torch.unravel_index(order[:m], torus.size)
        signed = [torch.where(t > n // 2, t - n, t) for t, n in zip(axes, torus.size, strict=True)]
        reach = [int(t.abs().max()) if m else 0 for t in signed]
        if max(n * (2 * T + 1) for n, T in zip(torus.shape, reach, strict=True)) > TABLE:
            return None
        scale = (values[:m] / torus.cells).sqrt()
        gram = scale[:, None] * _products(torus, cells, noise.reciprocal(), signed, reach) * scale
        gram.diagonal().add_(1.0)
        L, info = torch.linalg.cholesky_ex(gram)
        if int(info):
            return None
        tables = [_waves(n, T, M) for n, T, M in zip(torus.shape, reach, torus.size, strict=True)]
        place = _flat([t + T for t, T in zip(signed, reach, strict=True)], [2 * T + 1 for T in reach])
        return cls(torus.shape, cells, noise, tables, place, scale, L)

    @torch.no_grad()
    def __call__(self, values: Tensor) -> Tensor:
        """The approximate inverse times values [P, N]; in double precision, since large terms cancel."""
        whitened = values.double() / self.noise
        weights = torch.cholesky_solve(self._accumulate(whitened).mT, self.L).mT
        return (whitened - self._project(weights) / self.noise).to(values.dtype)

    def _accumulate(self, values: Tensor) -> Tensor:
        """Phi'v, [P, N] -> [P, m]."""
        sums = torch.zeros(len(values), math.prod(self.shape), dtype=torch.complex128, device=values.device)
        sums[:, self.cells] = values.to(torch.complex128)
        sums = sums.view(-1, *self.shape)
        for table in self.tables:  # each step moves an axis to the end
            sums = torch.tensordot(sums, table.conj(), dims=([1], [0]))
        waves = sums.flatten(1)[:, self.place]
        return self.scale * (waves.real - waves.imag)

    def _project(self, weights: Tensor) -> Tensor:
        """Phi u, [P, m] -> [P, N]."""
        box = [table.shape[1] for table in self.tables]
        sums = torch.zeros(len(weights), math.prod(box), dtype=torch.complex128, device=weights.device)
        sums[:, self.place] = (self.scale * weights).to(torch.complex128)
        sums = sums.view(-1, *box)
        for table in self.tables:
            sums = torch.tensordot(sums, table, dims=([1], [1]))
        waves = sums.flatten(1)[:, self.cells]
        return waves.real + waves.imag


def _waves(n: int, reach: int, size: int) -> Tensor:
    """exp(2 pi i t x / size) of x < n and |t| <= reach, [n, 2 reach + 1]."""
    x, t = torch.arange(n, device="cpu"), torch.arange(-reach, reach + 1, device="cpu")
    angle = (x[:, None] * t).remainder(size).double() * (2 * math.pi / size)
    return torch.polar(torch.ones_like(angle), angle)


def _flat(index: list[Tensor], sizes: list[int]) -> Tensor:
    """Numbers in C order of places in a box."""
    out = torch.zeros_like(index[0])
    for i, n in zip(index, sizes, strict=True):
        out = out * n + i
    return out


def _products(torus: Torus, cells: Tensor, weights: Tensor, signed: list[Tensor], reach: list[int]) -> Tensor:
    """sum_x w(x) (cos + sin)(t.x) (cos + sin)(t'.x) of all pairs of waves, by one transform, [m, m]."""
    grid = weights.new_zeros(math.prod(torus.shape))
    grid[cells] = weights
    box = torch.fft.fftn(grid.view(torus.shape), s=torus.size)
    for axis, (T, n) in enumerate(zip(reach, torus.size, strict=True)):
        box = box.index_select(axis, torch.arange(-2 * T, 2 * T + 1, device="cpu").remainder(n))
    sizes, flat = [4 * T + 1 for T in reach], box.flatten()
    place = _flat(signed, sizes)
    middle = _flat([torch.tensor(2 * T, device="cpu") for T in reach], sizes)
    sums = flat.real[middle + place[:, None] - place]
    sums -= flat.imag[middle + place[:, None] + place]
    return sums


def near_inverse(
    kernel: gpytorch.kernels.Kernel, torus: Torus, X: Tensor, cells: Tensor, noise: Tensor, seed: int
) -> SparseInverse | WaveInverse:
    """The approximate inverse for observed rows X [N, d] in these cells of a grid; `torus` has no negative spectrum."""
    waves = WaveInverse.of(torus, cells, noise)
    if waves is not None:
        return waves
    return SparseInverse(precision_root(kernel, X, noise, NEIGHBOURS if len(X) < MANY else FEWER, seed))
