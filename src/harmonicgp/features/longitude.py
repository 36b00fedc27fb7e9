"""Features on the globe with one inducing point a latitude: harmonics of the longitude, in closed form along each parallel.

All inducing points lie on one meridian, so that the harmonic Gram matrices K_t are real and a pair {t, -t} is two blocks of m,

    a_t(x) cos(t lon)  and  a_t(x) sin(t lon),      a_t(lat) = L_t^{-1} c_t(Z, lat) sqrt(2)   (1 where t = -t)

with longitudes counted from that meridian. Points of one parallel share a_t: a whole row of a grid costs one column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions.translation import check_latitude
from harmonicgp.backend.linalg import Factor
from harmonicgp.features.base import Features, KernelView, PointFunction, Stacks, Whitened
from harmonicgp.kernels.zonal import ZonalKernel, zonal_offset_spectrum, zonal_spectrum

#: Longitudes this near to a lattice, in its steps, lie on it: the rounding of float32 degrees.
ON_LATTICE = 1e-3
#: Numbers that a chunk of columns may hold.
_CHUNK = 1 << 25


class LongitudeFeatures(Features):
    """Blocks of all frequencies |t| <= t_max of the longitude, m inducing latitudes each.

    Args:
        kernel: a `GlobeKernel` of an RBF, Matern or rational quadratic kernel, scaled or not.
        latitudes: of the inducing points, [m], degrees; sorted here.
        t_max: the largest frequency kept.
        order: n of the group Cyclic(n): for a grid, its longitudes around the whole circle. None is the circle group, all
            longitudes, for the RBF kernel only: the harmonics of others fall too slowly for a finite transform.
        meridian: the longitude of the inducing points; for a grid, one of its own.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.kernels import GlobeKernel
        >>> features = LongitudeFeatures(GlobeKernel(RBFKernel()), torch.linspace(-80, 80, 5), t_max=3)
        >>> features.shapes, features.n_features
        (((7, 5),), 35)
        >>> with torch.no_grad():
        ...     stacks, residual = features(torch.tensor([[10.0, 20.0], [30.0, -50.0]]))
        >>> stacks[0].shape, residual.shape
        (torch.Size([7, 5, 2]), torch.Size([2]))
    """

    def __init__(
        self,
        kernel: gpytorch.kernels.Kernel,
        latitudes: Tensor,
        t_max: int,
        order: int | None = None,
        meridian: float = 0.0,
    ) -> None:
        super().__init__(kernel)
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
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """One stack: cosines of t = 0 .. t_max, then sines of t = 1 .. ."""
        return ((self.t_max + 1 + self.n_sines, len(self.Z)),)

    @property
    def block_frequencies(self) -> Tensor:
        """The frequency t of every block, integers [blocks, 1], in the order of `Predictor.components`."""
        return torch.cat((torch.arange(self.t_max + 1), torch.arange(1, self.n_sines + 1)))[self.block_order, None]

    @property
    def block_order(self) -> list[int]:
        """By frequency, the cosine before the sine."""
        cosines, n = self.t_max + 1, self.n_sines
        return [i for t in range(cosines) for i in ([t, cosines + t - 1] if 1 <= t <= n else [t])]

    def multiplicity(self) -> Tensor:
        """How many of t, -t each block stands for, [t_max + 1]."""
        t = torch.arange(self.t_max + 1)
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
        return (place % self.order) * step, left

    def whiten(self) -> LongitudeWhitened:
        """One Cholesky factor for each frequency. Without a graph: see `inference.fields` for gradients."""
        K = zonal_spectrum(self.zonal, self.latitudes, self.latitudes, self.t_max, self.nodes())
        with torch.no_grad():
            K *= self.multiplicity()[:, None, None]
            variance = float(self.zonal.scale.detach())
            factor = Factor.of(K, variance)
            alive = K.diagonal(dim1=-2, dim2=-1).amax(-1) > factor.jitter
        return LongitudeWhitened(self.view, self, factor, alive)


@dataclass(frozen=True)
class LongitudeWhitened(Whitened):
    """The factors, and the features of parallels."""

    view: KernelView
    features: LongitudeFeatures
    factor: Factor
    alive: Tensor  #: [t_max + 1], frequencies that are more than rounding

    @torch.no_grad()
    def parallels(self, latitudes: Tensor, offsets: Tensor | None = None) -> Tensor:
        """a_t of whole parallels, [t_max + 1, m, n], float64; complex where places lie off the lattice by `offsets` [n]."""
        f = self.features
        Z = f.latitudes
        if offsets is None or not bool(offsets.any()):
            K = zonal_spectrum(f.zonal, Z, latitudes.double(), f.t_max, f.nodes())
        else:
            K = zonal_offset_spectrum(f.zonal, Z, latitudes, offsets, f.t_max, f.nodes())
        K *= f.multiplicity()[:, None, None]
        if not K.is_complex():
            return self._solved(K)
        return torch.complex(self._solved(K.real.contiguous()), self._solved(K.imag.contiguous()))

    def _solved(self, K: Tensor) -> Tensor:
        return self.factor.whiten(K, None if bool(self.alive.all()) else self.alive)[0]

    def chunks(self, latitudes: Tensor, most: int | None = None) -> Iterator[slice]:
        """Of columns, so that features stay small."""
        size = max(1, _CHUNK // ((self.features.t_max + 1) * len(self.features.Z)))
        size = size if most is None else min(size, most)
        return (slice(i, min(i + size, len(latitudes))) for i in range(0, len(latitudes), size))

    def variance(self) -> float:
        """k(x, x)."""
        return float(self.features.zonal.scale.detach())

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        """a(x), and |a(x)|^2 over all blocks; points of one parallel share the work."""
        f = self.features
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in f.parameters()):
            raise RuntimeError(
                "these features have no gradient of their own: evaluate them within torch.no_grad(); hyper-parameters are "
                "learned by inference.fields.field_bound."
            )
        check_latitude(x[:, 1])
        angle, left = f.offsets(x[:, 0])
        unique, places = torch.unique(torch.stack((x[:, 1].double(), left), -1), dim=0, return_inverse=True)
        a = self.parallels(unique[:, 0], unique[:, 1])[..., places]  # [t_max + 1, m, n]
        phase = torch.arange(f.t_max + 1)[:, None] * (angle * (math.pi / 180))
        cos, sin = phase.cos()[:, None], phase.sin()[:, None]
        squares = (a.abs().square()).sum((0, 1))
        if a.is_complex():
            cosines, sines = a.real * cos - a.imag * sin, a.real * sin + a.imag * cos
        else:
            cosines, sines = a * cos, a * sin
        if f.n_sines < f.t_max and a.is_complex():  # the highest is its own conjugate: what is imaginary is rounding
            squares = squares - a.imag[-1].square().sum(0)
        return (torch.cat((cosines, sines[1 : f.n_sines + 1])).to(x.dtype),), squares.to(x.dtype)

    def project(self, function: PointFunction) -> Stacks:
        """By the transform of the function along the parallels of the inducing points."""
        f, n = self.features, self.features.nodes()
        turns = torch.arange(n, dtype=torch.float64) * (360.0 / n)
        Z = f.Z.detach().double()
        around = torch.stack((f.meridian + turns[:, None].expand(n, len(Z)), Z[:, 1].expand(n, -1)), -1)
        values = torch.stack([function(points.to(f.Z.dtype)).double() for points in around], 0)  # [n, m, samples]
        hat = torch.fft.fft(values, dim=0)[: f.t_max + 1] / n * f.multiplicity()[:, None, None]
        # <f, k_t(z, .)> is the conjugate of what k_t(z, x) is in x
        return (
            torch.cat((self._solved(hat.real.contiguous()), -self._solved(hat.imag.contiguous())[1 : f.n_sines + 1])),
        )
