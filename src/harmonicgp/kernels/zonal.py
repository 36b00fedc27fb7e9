"""Harmonics of the longitude: c_t(latitude, latitude') of a kernel on the globe, for many latitudes at once.

    k((lon, lat), (lon', lat')) = sum over |t| <= n/2 of c_t(lat, lat') exp(i t (lon - lon'))

For longitudes on a lattice of n (the group Cyclic(n)) they are the discrete Fourier transform of the kernel along the lattice.
For all longitudes (the circle group) the kernel must be RBF: its harmonics fall so fast that the aliasing of a longer transform
is below rounding. Pairs of latitudes at which the kernel is zero up to rounding are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions.translation import check_latitude
from harmonicgp.kernels.continuous import scaled_bessel
from harmonicgp.kernels.functions import check_kernel, kernel_matrix
from harmonicgp.kernels.fused import Shape
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.kernels.profiles import RBF, profile_value

#: Kernel values below this share of the variance are zero.
NEGLIGIBLE = 1e-17
#: Numbers of a tile, in float64.
_TILE = 1 << 22
_RADIANS = math.pi / 180


@dataclass(frozen=True)
class ZonalKernel:
    """A kernel on the globe as scale * f(chord^2 / lengthscale^2), in float64."""

    shape: Shape
    #: The last matrix of `cosines`.
    _transforms: dict[tuple[int, int], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, kernel: gpytorch.kernels.Kernel) -> ZonalKernel:
        """From ScaleKernel(GlobeKernel(...)) or GlobeKernel(...) of an RBF, Matern or rational quadratic kernel."""
        shape = Shape.of(kernel)
        if shape is None or shape.globe is None or not shape.profile.stationary:
            raise TypeError(
                "harmonics of the longitude need a GlobeKernel of an RBF, Matern or rational quadratic kernel, scaled or not; "
                f"got {type(kernel).__name__}."
            )
        return cls(shape)

    @property
    def is_smooth(self) -> bool:
        """Whether a finite transform is exact to rounding at all longitudes, because the harmonics fall fast enough."""
        return self.shape.profile is RBF

    @property
    def lengthscale(self) -> Tensor:
        """In Earth radii."""
        value: Tensor = self.shape.base.lengthscale
        return value.reshape(()).double()

    @property
    def scale(self) -> Tensor:
        """k(x, x)."""
        return self.shape.scale(torch.zeros((), dtype=torch.float64, device=self.lengthscale.device))

    def profile(self, t: Tensor) -> Tensor:
        """The profile f of squared distances in lengthscales."""
        return profile_value(self.shape.profile, t, self.shape.parameter(t).double())

    def reach(self) -> float:
        """The chord above which the kernel is zero up to rounding, at most the diameter 2."""
        with torch.no_grad():
            t = torch.logspace(-6, 12, 400, dtype=torch.float64, device=self.lengthscale.device)
            t = t[self.profile(t) > NEGLIGIBLE]
            return min(2.0, 1.05 * math.sqrt(float(t.max())) * float(self.lengthscale.detach()))

    def nodes(self, t_max: int) -> int:
        """The longitudes of a transform that is exact to rounding up to t_max, for a smooth kernel: c_t ~ exp(-t^2 l^2 / 2)."""
        alias = math.sqrt(-2 * math.log(NEGLIGIBLE)) / float(self.lengthscale.detach())
        return max(int(t_max + alias) + 2, 2 * t_max + 2)

    @torch.inference_mode(False)
    def cosines(self, n: int, t_max: int) -> Tensor:
        """The matrix of the transform of an even sequence of n numbers, from its first half: [n // 2 + 1, t_max + 1]."""
        if (n, t_max) not in self._transforms:
            s = torch.arange(n // 2 + 1, device="cpu")
            weights = (2.0 - ((s == 0) | (2 * s == n)).double()) / n
            angles = (s[:, None] * torch.arange(t_max + 1, device="cpu")) % n  # exact, as whole numbers
            self._transforms.clear()
            self._transforms[n, t_max] = weights[:, None] * torch.cos(angles.double() * (2 * math.pi / n))
        return self._transforms[n, t_max]

    def at(self, p: Tensor, q: Tensor, angles: Tensor) -> Tensor:
        """k / scale at latitudes p [m] and q [n] in degrees, for differences of longitude [r] or [n, r] in radians: [m, n, r]."""
        p, q = p.double() * _RADIANS, q.double() * _RADIANS
        inverse = self.lengthscale**-2
        across = 4 * torch.sin(0.5 * (p[:, None] - q[None])).square() * inverse
        along = 4 * p.cos()[:, None] * q.cos()[None].clamp_min(0.0) * inverse
        return self.profile(across[..., None] + along[..., None] * torch.sin(0.5 * angles).square())


def zonal_tiles(kernel: ZonalKernel, p: Tensor, q: Tensor, order: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of pairs of latitudes (degrees, p ascending), with all pairs whose kernel is not zero. No q is in two tiles."""
    reach = 2 * math.asin(min(1.0, kernel.reach() / 2)) / _RADIANS  # of the chord, as an angle
    width, i = order // 2 + 1, 0
    while i < len(q):
        j = min(len(q), i + max(1, _TILE // (width * len(p))))
        while True:
            low, high = float(q[i:j].min()) - reach, float(q[i:j].max()) + reach
            first, last = torch.searchsorted(p, torch.tensor([low, high], dtype=p.dtype, device=p.device)).tolist()
            longer = min(len(q), i + max(1, _TILE // (width * max(1, last - first))))
            if longer <= j or longer - j < (j - i) // 4:
                break
            j = longer
        if last > first:
            yield slice(first, last), slice(i, j)
        i = j


def zonal_block(kernel: ZonalKernel, p: Tensor, q: Tensor, t_max: int, order: int) -> Tensor:
    """The coefficients c_t(p, q), t = 0 .. t_max, over `order` longitudes, differentiable: [t_max + 1, len(p), len(q)]."""
    turns = torch.arange(order // 2 + 1, dtype=torch.float64, device=p.device) * (2 * math.pi / order)
    k = kernel.at(p, q, turns)
    return kernel.scale * (k @ kernel.cosines(order, t_max).to(k.device)).permute(2, 0, 1)


@torch.no_grad()
def zonal_offset_spectrum(kernel: ZonalKernel, p: Tensor, q: Tensor, offset: Tensor, t_max: int, order: int) -> Tensor:
    """The coefficients between p at longitude 0 and points (offset, q) off the lattice: complex, [t_max + 1, len(p), len(q)].

    k_t(z, x) = 1/n sum_s conj(chi_t(s)) k(z, s.x). Offsets are in degrees, one for each q.
    """
    out = torch.empty(t_max + 1, len(p), len(q), dtype=torch.complex128, device=p.device)
    turns = torch.arange(order, dtype=torch.float64, device=p.device) * (2 * math.pi / order)
    for part in torch.arange(len(q), device=q.device).split(max(1, _TILE // (order * len(p)))):
        k = kernel.at(p, q[part], offset[part].double()[:, None] * _RADIANS + turns)
        out[..., part] = kernel.scale * (torch.fft.fft(k, dim=-1)[..., : t_max + 1] / order).permute(2, 0, 1)
    return out


def zonal_spectrum(kernel: ZonalKernel, p: Tensor, q: Tensor, t_max: int, order: int) -> Tensor:
    """The coefficients c_t(p, q) of all pairs, without a graph: [t_max + 1, len(p), len(q)]."""
    out = torch.zeros(t_max + 1, len(p), len(q), dtype=torch.float64, device=p.device)
    with torch.no_grad():
        for rows, columns in zonal_tiles(kernel, p, q, order):
            out[:, rows, columns] = zonal_block(kernel, p[rows], q[columns], t_max, order)
    return out


def longitude_spectrum(
    kernel: GlobeKernel, latitude1: Tensor, latitude2: Tensor, n_frequencies: int, points: int | None = None
) -> Tensor:
    """c_n(latitude1, latitude2) of a kernel on the globe, n = 0..n_frequencies-1: [n_frequencies, n1, n2].

    k((lon, lat), (lon', lat')) = sum over whole n of c_|n|(lat, lat') exp(-i n (lon - lon')), latitudes in degrees.
    For the RBF kernel, scaled or not, in closed form,

        c_n = exp(-(1 - cos(lat - lat')) / l^2) ive(n, cos(lat) cos(lat') / l^2),

    exact at any longitude and positive semi-definite for each n. For other kernels by the trapezoid rule with `points` nodes
    (default: 16 for each frequency, at least 1024; give more if the lengthscale is below their spacing).

    Differentiable in latitudes and hyper-parameters.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> latitudes = torch.tensor([0.0, 45.0, 90.0])
        >>> longitude_spectrum(GlobeKernel(RBFKernel()), latitudes, latitudes, 5).shape
        torch.Size([5, 3, 3])
    """
    n_frequencies = whole_number(n_frequencies, "n_frequencies", 1)
    if not isinstance(kernel, GlobeKernel):
        raise TypeError(f"longitude_spectrum takes a GlobeKernel; got {type(kernel).__name__}.")
    for latitude in (latitude1, latitude2):
        check_latitude(latitude, "the argument")
    check_kernel(kernel)
    p, q = latitude1[:, None] * _RADIANS, latitude2[None, :] * _RADIANS
    shape = Shape.of(kernel)
    if shape is not None and shape.profile is RBF and points is None:
        inverse = shape.base.lengthscale.reshape(()) ** -2
        n = torch.arange(n_frequencies, device=p.device)[:, None, None]
        z = (p.cos() * q.cos() * inverse).clamp_min(0.0)  # rounding may give a negative cosine at 90 degrees
        return shape.scale(p) * torch.exp(-2 * torch.sin(0.5 * (p - q)).square() * inverse) * scaled_bessel(n, z)
    points = whole_number(points or max(1024, 16 * n_frequencies), "points", 2 * n_frequencies)
    longitude = torch.arange(points, dtype=latitude1.dtype, device=p.device) * (360.0 / points)
    x1 = torch.stack((torch.zeros_like(latitude1), latitude1), -1)
    x2 = torch.stack(torch.meshgrid(longitude, latitude2, indexing="ij"), -1)  # [points, n2, 2]
    K = kernel_matrix(kernel, x1, x2)  # [points, n1, n2]
    return torch.fft.rfft(K, dim=0).real[:n_frequencies] / points
