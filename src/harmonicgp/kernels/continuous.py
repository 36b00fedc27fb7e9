"""The kernel Fourier transform: harmonic kernels of the whole circle group, the limit of Cyclic(T) as T grows.

A kernel invariant under all rotations of a circle is k = sum_n c_n exp(-i n (phi - phi')), over all whole n, with

    c_n = 1/(2 pi) integral of k(phi - phi') exp(i n (phi - phi')),

and its n-th harmonic kernel is k_n = c_n exp(-i n (phi - phi')). On a grid of T points the frequencies n, n + T, ... are equal:
the discrete k_t is the sum of the continuous k_{t + jT}.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.kernels.functions import KernelLike, check_kernel, kernel_matrix

_LARGE = 1e6  # beyond, the uniform asymptotic expansion is as exact as float64


def _scaled_bessel(n: np.ndarray[Any, Any], z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """exp(-z) I_n(z) for z >= 0 without overflow."""
    with np.errstate(invalid="ignore", divide="ignore"):
        # Debye's uniform expansion, with r - z written without cancellation.
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
        # I_n' = (I_{n-1} + I_{n+1}) / 2, and the derivative of exp(-z) gives -I_n. In float64, because they cancel.
        w = z.double()
        neighbours = _ScaledBessel.apply((n - 1).abs(), w) + _ScaledBessel.apply(n + 1, w)
        return None, gradient * (0.5 * neighbours - _ScaledBessel.apply(n, w)).to(z.dtype)


def scaled_bessel(n: Tensor, z: Tensor) -> Tensor:
    """exp(-z) I_n(z), the scaled modified Bessel function, for whole n and z >= 0; shapes broadcast.

    It never overflows and is differentiable in z.

    Examples:
        >>> import torch
        >>> scaled_bessel(torch.tensor([0, 1]), torch.tensor([1e8, 1e8], dtype=torch.float64)).sqrt().round(decimals=6)
        tensor([0.0063, 0.0063], dtype=torch.float64)
    """
    if not z.is_floating_point():
        raise TypeError(f"z must be floating point; got {z.dtype}.")
    n, z = torch.broadcast_tensors(n.abs(), z)
    if bool((z.detach() < 0).any()):
        raise ValueError("the scaled Bessel function is implemented for z >= 0 only.")
    value: Tensor = _ScaledBessel.apply(n, z)
    return value


def circle_spectrum(kernel: KernelLike, period: float, n_frequencies: int, points: int | None = None) -> Tensor:
    """c_n of a stationary kernel on a circle of the given period, n = 0..n_frequencies-1, by the trapezoid rule.

    The kernel takes inputs [n, 1] and repeats after `period`, as GPyTorch's PeriodicKernel does. The rule has `points` nodes, by
    default 16 for each frequency and at least 1024; for smooth kernels it is exact to rounding.

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
    phi = torch.arange(points, dtype=torch.float64, device="cpu")[:, None] * (float(period) / points)
    row = kernel_matrix(kernel, phi[:1], phi)[0]
    lap = kernel_matrix(kernel, phi[:1], phi[:1] + float(period))[0, 0]
    if float((lap - row[0]).detach().abs()) > 1e-6 * float(row[0].detach().abs()):
        raise ValueError(
            f"the kernel does not repeat after the period {float(period):g}: use a PeriodicKernel of that period."
        )
    return torch.fft.rfft(row).real[:n_frequencies] / points
