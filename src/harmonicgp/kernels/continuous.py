"""The kernel Fourier transform: harmonic kernels of the whole circle group, the limit of Cyclic(T) as T grows.

A kernel invariant under all rotations of a circle is k = sum_n c_n exp(-i n (phi - phi')), over all whole n, with

    c_n = 1/(2 pi) integral of k(phi - phi') exp(i n (phi - phi')),

and its n-th harmonic kernel is k_n = c_n exp(-i n (phi - phi')). On a grid of T points the frequencies n, n + T, ...
cannot be told apart: the discrete k_t is the sum of the continuous k_{t + jT}.
"""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import numpy as np
import torch
from scipy import special
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions.translation import check_latitude
from harmonicgp.kernels.functions import KernelLike, check_kernel, kernel_matrix
from harmonicgp.kernels.globe import GlobeKernel

_LARGE = 1e6  # beyond, the uniform asymptotic expansion is as exact as float64


def _scaled_bessel(n: np.ndarray[Any, Any], z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """exp(-z) I_n(z) for z >= 0 without overflow."""
    with np.errstate(invalid="ignore", divide="ignore"):
        # Debye's uniform expansion, with r - z written so that nothing cancels.
        r = np.hypot(n, z)
        big = np.exp(n * n / (r + z) - n * np.arcsinh(n / z)) / np.sqrt(2 * np.pi * r)
        big = big * (1 + 1 / (8 * r) - 5 * (n / r) ** 2 / (24 * r))
    exact = special.ive(n, np.minimum(z, _LARGE))
    return np.asarray(np.where(z > _LARGE, big, exact))


class _ScaledBessel(torch.autograd.Function):
    """exp(-z) I_n(z), z >= 0, with its derivative in z."""

    @staticmethod
    def forward(ctx: Any, n: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(n, z)
        value = _scaled_bessel(n.detach().cpu().double().numpy(), z.detach().cpu().double().numpy())
        return torch.from_numpy(np.ascontiguousarray(value)).to(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        n, z = ctx.saved_tensors
        # I_n' = (I_{n-1} + I_{n+1}) / 2, and the factor exp(-z) brings -I_n; they cancel, so in float64.
        w = z.double()
        around = _ScaledBessel.apply((n - 1).abs(), w) + _ScaledBessel.apply(n + 1, w)
        return None, gradient * (0.5 * around - _ScaledBessel.apply(n, w)).to(z.dtype)


def scaled_bessel(n: Tensor, z: Tensor) -> Tensor:
    """exp(-z) I_n(z), the scaled modified Bessel function, for whole n and z >= 0; shapes broadcast.

    Never overflows, and differentiable in z.

    Examples:
        >>> import torch
        >>> scaled_bessel(torch.tensor([0, 1]), torch.tensor([1e8, 1e8], dtype=torch.float64)).sqrt().round(decimals=6)
        tensor([0.0063, 0.0063], dtype=torch.float64)
    """
    if not z.is_floating_point():
        raise TypeError(f"z must be floating point; got {z.dtype}.")
    n, z = torch.broadcast_tensors(n.abs(), z)
    if bool((z.detach() < 0).any()):
        raise ValueError("the scaled Bessel function is needed, and implemented, for z >= 0 only.")
    value: Tensor = _ScaledBessel.apply(n, z)
    return value


def circle_spectrum(kernel: KernelLike, period: float, n_frequencies: int, points: int | None = None) -> Tensor:
    """c_n of a stationary kernel on a circle of the given period, n = 0..n_frequencies-1, by the trapezoid rule.

    The kernel takes inputs [n, 1] and repeats after `period` (GPyTorch's PeriodicKernel, say). The rule uses
    `points` nodes, by default 16 a frequency and at least 1024; for smooth kernels it is exact to rounding.

    Examples:
        >>> from gpytorch.kernels import PeriodicKernel
        >>> kernel = PeriodicKernel()
        >>> kernel.period_length = 24.0
        >>> circle_spectrum(kernel, 24.0, 4).shape
        torch.Size([4])
    """
    n_frequencies = whole_number(n_frequencies, "n_frequencies", 1)
    check_kernel(kernel)
    if not (math.isfinite(period) and period > 0):
        raise ValueError(f"the period must be a positive number; got {period}.")
    points = whole_number(points or max(1024, 16 * n_frequencies), "points", 2 * n_frequencies)
    phi = torch.arange(points, dtype=torch.float64)[:, None] * (float(period) / points)
    row = kernel_matrix(kernel, phi[:1], phi)[0]
    lap = kernel_matrix(kernel, phi[:1], phi[:1] + float(period))[0, 0]
    if float((lap - row[0]).detach().abs()) > 1e-6 * float(row[0].detach().abs()):
        raise ValueError(
            f"the kernel does not repeat after the period {float(period):g}: use a PeriodicKernel of that period."
        )
    return torch.fft.rfft(row).real[:n_frequencies] / points


def longitude_spectrum(
    kernel: GlobeKernel, latitude1: Tensor, latitude2: Tensor, n_frequencies: int, points: int | None = None
) -> Tensor:
    """c_n(latitude1, latitude2) of a kernel on the globe, n = 0..n_frequencies-1: [n_frequencies, n1, n2].

    k((lon, lat), (lon', lat')) = sum over whole n of c_|n|(lat, lat') exp(-i n (lon - lon')), latitudes in degrees.
    For the RBF kernel, scaled or not, in closed form,

        c_n = exp(-(1 - cos(lat - lat')) / l^2) ive(n, cos(lat) cos(lat') / l^2),

    exact at any longitude and positive semi-definite for each n; otherwise by the trapezoid rule with `points` nodes
    (default: 16 a frequency, at least 1024; give more where the lengthscale is below their spacing).

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
    scale: Tensor | float = 1.0
    base = kernel.base_kernel
    check_kernel(kernel)
    while type(base) is gpytorch.kernels.ScaleKernel:
        scale, base = scale * base.outputscale, base.base_kernel
    p, q = latitude1[:, None] * (math.pi / 180), latitude2[None, :] * (math.pi / 180)
    if type(base) is gpytorch.kernels.RBFKernel and base.active_dims is None and points is None:
        inverse = base.lengthscale.reshape(()) ** -2
        n = torch.arange(n_frequencies, device=p.device)[:, None, None]
        z = (p.cos() * q.cos() * inverse).clamp_min(0.0)  # a latitude of 90 may round below zero
        return scale * torch.exp(-2 * torch.sin(0.5 * (p - q)).square() * inverse) * scaled_bessel(n, z)
    points = whole_number(points or max(1024, 16 * n_frequencies), "points", 2 * n_frequencies)
    longitude = torch.arange(points, dtype=latitude1.dtype, device=p.device) * (360.0 / points)
    x1 = torch.stack((torch.zeros_like(latitude1), latitude1), -1)
    x2 = torch.stack(
        (longitude[:, None].expand(-1, len(latitude2)), latitude2[None, :].expand(points, -1)), -1
    )  # [points, n2, 2]
    K = kernel_matrix(kernel, x1, x2)  # [points, n1, n2]
    return torch.fft.rfft(K, dim=0).real[:n_frequencies] / points
