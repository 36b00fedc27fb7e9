"""Radial and inner-product kernels as functions of one number: a record for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from torch import Tensor

#: From an inner-product kernel and points [n, d], divided by lengthscales: the points whose inner products are the arguments of
#: f, a further coordinate [n, 1] of them, and factors [n] of the result, or None.
Lift: TypeAlias = Callable[[Any, Tensor], tuple[Tensor, Tensor, Tensor | None]]


@dataclass(frozen=True)
class Profile:
    """A kernel as a function f of one number t: the squared distance (clamped at zero), or the inner product.

    `value(t, parameter)` returns f(t) and may overwrite t. `slope(t, f, parameter)` returns f'(t) and df/dparameter. Both keep
    the shape of t. `register_kernel(..., profile=)` takes a profile.

    Examples:
        >>> cauchy = Profile("cauchy", lambda t, _: 1 / (1 + t), lambda t, f, _: (-f.square(), None))
        >>> cauchy.value(torch.tensor([0.0, 1.0]), 0.0), cauchy.stationary
        (tensor([1.0000, 0.5000]), True)
    """

    name: str
    value: Callable[[Tensor, float], Tensor]
    slope: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor | None]]
    code: int | None = None  #: its number in the C file; without a number PyTorch computes it
    parameter: str = ""  #: the attribute of the kernel that is the parameter of f
    lift: Lift | None = None  #: for kernels of inner products; None for kernels of distances
    #: Random lengths of n frequencies of the spectral density, relative to an RBF kernel of the same lengthscale.
    radii: Callable[[Any, int, torch.Generator], Tensor] | None = None
    make: Callable[..., gpytorch.kernels.Kernel] | None = None  #: makes a kernel, if estimators know it by this name

    @property
    def stationary(self) -> bool:
        """Whether t is a squared distance."""
        return self.lift is None


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, parameter: Tensor | float, profile: Profile) -> Tensor:
        f = profile.value(t.clone(), float(parameter))
        ctx.save_for_backward(t, f)
        ctx.parameter, ctx.profile = parameter.detach() if isinstance(parameter, Tensor) else parameter, profile
        return f

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, None]:
        t, f = ctx.saved_tensors
        slope, by_parameter = ctx.profile.slope(t, f, float(ctx.parameter))
        if by_parameter is None or not isinstance(ctx.parameter, Tensor):
            return g * slope, None, None
        return g * slope, (g * by_parameter).sum().to(ctx.parameter).reshape(ctx.parameter.shape), None


def profile_value(profile: Profile, t: Tensor, parameter: Tensor | float = 0.0) -> Tensor:
    """f(t), differentiable by the slope of the profile, which is right at distance zero too."""
    value: Tensor = _Value.apply(t, parameter, profile)
    return value


# Values and slopes ----------------------------------------------------------------------------------------------------


def _rbf(t: Tensor, _: float) -> Tensor:
    return t.mul_(-0.5).exp_()


def _matern12(t: Tensor, _: float) -> Tensor:
    return t.sqrt_().neg_().exp_()


def _matern12_slope(t: Tensor, f: Tensor, _: float) -> tuple[Tensor, None]:
    r = t.sqrt()
    kink = r < (1e-150 if t.dtype == torch.float64 else 1e-18)  # f has a kink at zero: the slope is taken as zero
    return torch.where(kink, torch.zeros_like(f), -0.5 * f / r.masked_fill(kink, 1.0)), None


def _matern32(t: Tensor, _: float) -> Tensor:
    r = t.mul_(3.0).sqrt_()
    return torch.exp(-r).mul_(r.add_(1.0))


def _matern52(t: Tensor, _: float) -> Tensor:
    r = t.mul_(5.0).sqrt_()
    return torch.exp(-r).mul_(1 + r * (1 + r / 3))


def _matern52_slope(t: Tensor, f: Tensor, _: float) -> tuple[Tensor, None]:
    r = (5 * t).sqrt()
    return (-5 / 6) * (1 + r) * r.neg().exp(), None


def _rational_quadratic_slope(t: Tensor, f: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    base = 1 + t / (2 * alpha)
    return -0.5 * f / base, f * ((base - 1) / base - base.log())


def _power_slope(t: Tensor, f: Tensor, power: float) -> tuple[Tensor, None]:
    return power * t ** (power - 1) if power > 0 else torch.zeros_like(t), None


def _offset_lift(kernel: Any, x: Tensor) -> tuple[Tensor, Tensor, None]:
    """The offset of a polynomial as a further coordinate."""
    return x, kernel.offset.reshape(()).sqrt().expand(len(x), 1), None


def _angle(c: Tensor, order: float) -> Tensor:
    """J_n / pi of the arc-cosine kernels as a function of c = cos(theta), n = 0, 1, 2.

    J_0 = pi - theta, J_1 = sin(theta) + (pi - theta) cos(theta), J_2 = 3 sin cos + (pi - theta)(1 + 2 cos^2).
    """
    c = c.clamp(-1.0, 1.0)
    rest = math.pi - torch.acos(c)
    if order == 0:
        return rest / math.pi
    sin = (1 - c * c).sqrt()
    return (sin + rest * c if order == 1 else 3 * sin * c + rest * (1 + 2 * c * c)) / math.pi


def _angle_slope(c: Tensor, f: Tensor, order: float) -> tuple[Tensor, None]:
    """dJ_n/dc = n^2 J_{n-1}, which avoids the 0/0 of autograd at equal points."""
    if order > 0:
        return order**2 * profile_value(ANGLE, c, order - 1), None
    sin2 = 1 - c * c
    edge = sin2 <= 4 * torch.finfo(c.dtype).eps  # a kink, like that of |x - x'| at zero: the slope is taken as zero
    return torch.where(edge, torch.zeros_like(c), sin2.masked_fill(edge, 1.0).rsqrt() / math.pi), None


def directions_lift(kernel: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors of (x, sqrt(bias)), and powers of the lengths, for an arc-cosine kernel and x [..., n, d]."""
    bias = kernel.bias_variance[..., 0]
    norm = (x.square().sum(-1) + bias).sqrt()
    return x / norm[..., None], (bias.sqrt() / norm)[..., None], norm**kernel.order


# Spectral densities ---------------------------------------------------------------------------------------------------


def _gamma(shape: float, size: int, generator: torch.Generator) -> Tensor:
    """Samples of Gamma(shape, 1). PyTorch's sampler takes no generator, so NumPy's gets a seed from it."""
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device="cpu"))
    return torch.from_numpy(np.random.default_rng(seed).gamma(shape, size=size))


def _rbf_radii(kernel: Any, n: int, generator: torch.Generator) -> Tensor:
    return torch.ones(n, dtype=torch.float64, device="cpu")


def _matern_radii(kernel: Any, n: int, generator: torch.Generator) -> Tensor:
    """A Student-t density of 2 nu degrees of freedom."""
    nu = float(kernel.nu)
    return (nu / _gamma(nu, n, generator)).sqrt()


def _rational_quadratic_radii(kernel: Any, n: int, generator: torch.Generator) -> Tensor:
    """An RBF kernel whose inverse squared lengthscale is Gamma(alpha) / alpha."""
    alpha = float(kernel.alpha.detach())
    return (_gamma(alpha, n, generator) / alpha).sqrt()


# The records ----------------------------------------------------------------------------------------------------------


def _matern(nu: float) -> Callable[..., gpytorch.kernels.Kernel]:
    return partial(gpytorch.kernels.MaternKernel, nu=nu)


RBF = Profile(
    "rbf", _rbf, lambda t, f, _: (-0.5 * f, None), 0, radii=_rbf_radii, make=gpytorch.kernels.RBFKernel
)  # fmt: skip
MATERN12 = Profile("matern12", _matern12, _matern12_slope, 1, radii=_matern_radii, make=_matern(0.5))
MATERN32 = Profile(
    "matern32", _matern32, lambda t, f, _: (-1.5 * (3 * t).sqrt().neg().exp(), None), 2, radii=_matern_radii,
    make=_matern(1.5),
)  # fmt: skip
MATERN52 = Profile("matern52", _matern52, _matern52_slope, 3, radii=_matern_radii, make=_matern(2.5))
RATIONAL_QUADRATIC = Profile(
    "rational_quadratic", lambda t, a: (1 + t / (2 * a)) ** -a, _rational_quadratic_slope, 4, "alpha",
    radii=_rational_quadratic_radii,
)  # fmt: skip
POWER = Profile("power", lambda t, p: t**p, _power_slope, 5, "power", _offset_lift)
ANGLE = Profile("angle", _angle, _angle_slope, None, "order", directions_lift)

#: Kernels that estimators know by name.
NAMED_PROFILES = {profile.name: profile for profile in (RBF, MATERN12, MATERN32, MATERN52)}


def named_kernel(name: str, **arguments: Any) -> gpytorch.kernels.Kernel:
    """A kernel by its name in the estimators: "rbf", "matern12", "matern32" or "matern52".

    Examples:
        >>> named_kernel("matern32", ard_num_dims=3).nu
        1.5
    """
    make = NAMED_PROFILES[name].make
    assert make is not None
    return make(**arguments)


def log_scale(lower: float = 0.0) -> gpytorch.constraints.GreaterThan:
    """The constraint of a parameter above a lower limit whose raw value is its logarithm."""
    return gpytorch.constraints.GreaterThan(lower, transform=torch.exp, inv_transform=torch.log)
