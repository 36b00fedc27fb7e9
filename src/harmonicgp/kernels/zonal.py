"""Harmonics of the longitude: c_t(latitude, latitude') of a kernel on the globe, for many latitudes at once.

    k((lon, lat), (lon', lat')) = sum over |t| <= n/2 of c_t(lat, lat') exp(i t (lon - lon'))

for longitudes on a lattice of n (the group Cyclic(n)), by the discrete Fourier transform of the kernel along it; or, for the RBF
kernel, whose harmonics fall faster than any power, for all longitudes (the circle group), by a transform so long that what it
folds back is below rounding. Pairs of latitudes at which the kernel is zero to rounding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp.kernels.fused import Shape
from harmonicgp.kernels.orbit import Profile

#: Kernel values below this share of the variance are zero.
NEGLIGIBLE = 1e-17
#: Numbers of a tile, in float64.
_TILE = 1 << 22
_RADIANS = math.pi / 180


class _Value(torch.autograd.Function):
    """f(t) of a profile, with its own derivative: right at distance zero."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, parameter: Tensor, profile: Profile) -> Tensor:
        f = profile.value(t.clone(), float(parameter.detach()))
        ctx.save_for_backward(t, f, parameter)
        ctx.profile = profile
        return f

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, None]:
        t, f, parameter = ctx.saved_tensors
        slope, turned = ctx.profile.slope(t, f, float(parameter.detach()))
        by_parameter = None if turned is None else (g * turned).sum().to(parameter.dtype).reshape(parameter.shape)
        return g * slope, by_parameter, None


@dataclass(frozen=True)
class ZonalKernel:
    """A kernel on the globe, taken apart: scale * f(chord^2 / lengthscale^2), all in float64."""

    shape: Shape

    @classmethod
    def of(cls, kernel: gpytorch.kernels.Kernel) -> ZonalKernel:
        """From ScaleKernel(GlobeKernel(...)) or GlobeKernel(...) of an RBF, Matern or rational quadratic kernel."""
        shape = Shape.of(kernel)
        if shape is None or shape.globe is None or not shape.profile.stationary:
            raise TypeError(
                "harmonics of the longitude are those of a GlobeKernel of an RBF, Matern or rational quadratic kernel, scaled "
                f"or not; got {type(kernel).__name__}."
            )
        return cls(shape)

    @property
    def is_smooth(self) -> bool:
        """Whether the harmonics fall so fast that a finite transform is exact to rounding at all longitudes."""
        return self.shape.profile.name == "rbf"

    @property
    def lengthscale(self) -> Tensor:
        """In Earth radii."""
        value: Tensor = self.shape.base.lengthscale
        return value.reshape(()).double()

    @property
    def scale(self) -> Tensor:
        """k(x, x)."""
        return self.shape.scale(torch.zeros((), dtype=torch.float64))

    def profile(self, t: Tensor) -> Tensor:
        """F of squared distances in lengthscales."""
        value: Tensor = _Value.apply(t, self.shape.parameter(t).double(), self.shape.profile)
        return value

    def reach(self) -> float:
        """The chord beyond which the kernel is zero to rounding, at most the diameter 2."""
        with torch.no_grad():
            t = torch.logspace(-6, 12, 400, dtype=torch.float64)
            t = t[self.profile(t) > NEGLIGIBLE]
            return min(2.0, 1.05 * math.sqrt(float(t.max())) * float(self.lengthscale.detach()))

    def nodes(self, t_max: int) -> int:
        """Longitudes of a transform that is exact to rounding up to t_max, for a smooth kernel: c_t ~ exp(-t^2 l^2 / 2)."""
        alias = math.sqrt(-2 * math.log(NEGLIGIBLE)) / float(self.lengthscale.detach())
        return max(int(t_max + alias) + 2, 2 * t_max + 2)


@lru_cache(maxsize=8)
def _cosines(n: int, t_max: int) -> Tensor:
    """[n // 2 + 1, t_max + 1]: the transform of an even sequence of n numbers, from its first half."""
    s = torch.arange(n // 2 + 1)
    weights = torch.full((len(s),), 2.0 / n, dtype=torch.float64)
    weights[0] = 1.0 / n
    if n % 2 == 0:
        weights[-1] = 1.0 / n
    angles = (s[:, None] * torch.arange(t_max + 1)) % n  # whole numbers: no digit is lost
    with torch.inference_mode(False):
        return weights[:, None] * torch.cos(angles.double() * (2 * math.pi / n))


def zonal_tiles(kernel: ZonalKernel, p: Tensor, q: Tensor, order: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of pairs of latitudes (degrees; p rising), whose kernel is not zero: all of those of some q in one tile."""
    reach = 2 * math.asin(min(1.0, kernel.reach() / 2)) / _RADIANS  # of the chord, as an angle
    width, i = order // 2 + 1, 0
    while i < len(q):
        j = min(len(q), i + max(1, _TILE // (width * len(p))))
        while True:
            low, high = float(q[i:j].min()) - reach, float(q[i:j].max()) + reach
            first, last = (int(torch.searchsorted(p, torch.tensor(edge, dtype=p.dtype))) for edge in (low, high))
            more = min(len(q), i + max(1, _TILE // (width * max(1, last - first))))
            if more <= j or more - j < (j - i) // 4:
                break
            j = more
        yield slice(first, last), slice(i, j)
        i = j


def zonal_block(kernel: ZonalKernel, p: Tensor, q: Tensor, t_max: int, order: int) -> Tensor:
    """c_t(p, q) for t = 0 .. t_max over a lattice of `order` longitudes, [t_max + 1, len(p), len(q)], differentiable."""
    p, q = p.double() * _RADIANS, q.double() * _RADIANS
    inverse = kernel.lengthscale**-2
    across = 4 * torch.sin(0.5 * (p[:, None] - q[None])).square() * inverse
    along = 4 * p.cos()[:, None] * q.cos()[None].clamp_min(0.0) * inverse
    turns = torch.sin(torch.arange(order // 2 + 1, dtype=torch.float64) * (math.pi / order)).square()
    t = across[..., None] + along[..., None] * turns
    k = kernel.profile(t)
    return kernel.scale * (k @ _cosines(order, t_max)).permute(2, 0, 1)


@torch.no_grad()
def zonal_offset_spectrum(kernel: ZonalKernel, p: Tensor, q: Tensor, offset: Tensor, t_max: int, order: int) -> Tensor:
    """The same between p at longitude 0 and places (offset, q) off the lattice: complex, [t_max + 1, len(p), len(q)].

    k_t(z, x) = 1/n sum_s conj(chi_t(s)) k(z, s.x), offsets in degrees, one for each of q.
    """
    out = torch.empty(t_max + 1, len(p), len(q), dtype=torch.complex128)
    p, q = p.double() * _RADIANS, q.double() * _RADIANS
    inverse = kernel.lengthscale**-2
    turns = torch.arange(order, dtype=torch.float64) * (2 * math.pi / order)
    for part in torch.arange(len(q)).split(max(1, _TILE // (order * len(p)))):
        across = 4 * torch.sin(0.5 * (p[:, None] - q[part])).square() * inverse
        along = 4 * p.cos()[:, None] * q[part].cos().clamp_min(0.0) * inverse
        angles = offset[part].double()[:, None] * _RADIANS + turns
        k = kernel.profile(across[..., None] + along[..., None] * torch.sin(0.5 * angles).square())
        out[..., part] = kernel.scale * (torch.fft.fft(k, dim=-1)[..., : t_max + 1] / order).permute(2, 0, 1)
    return out


def zonal_spectrum(kernel: ZonalKernel, p: Tensor, q: Tensor, t_max: int, order: int) -> Tensor:
    """c_t(p, q), all of it, without a graph: [t_max + 1, len(p), len(q)]."""
    out = torch.zeros(t_max + 1, len(p), len(q), dtype=torch.float64)
    with torch.no_grad():
        for rows, columns in zonal_tiles(kernel, p, q, order):
            if rows.stop > rows.start:
                out[:, rows, columns] = zonal_block(kernel, p[rows], q[columns], t_max, order)
    return out
