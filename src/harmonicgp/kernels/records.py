"""The properties of each class of kernels: its profile, its random features, and how it is saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import gpytorch
import torch
from scipy.special import ive
from torch import Tensor

from harmonicgp.io.registry import KERNELS, FieldType
from harmonicgp.kernels.profiles import MATERN12, MATERN32, MATERN52, POWER, RATIONAL_QUADRATIC, RBF, Profile

#: [..., n, d] -> random features [..., n, R] with k(x, x') ~ phi(x) . phi(x')
FeatureMap: TypeAlias = Callable[[Tensor], Tensor]
#: A function of a kernel, a generator and a number of frequencies.
DrawFeatures: TypeAlias = Callable[[Any, torch.Generator, int], FeatureMap]

_MAX_POWER = 15


@dataclass(frozen=True)
class KernelRecord:
    """The profile and the random features of a class of kernels. Classes that are not registered have neither."""

    profile: Callable[[Any], Profile | None] = lambda kernel: None
    random_features: DrawFeatures | None = None


_RECORDS: dict[type, KernelRecord] = {}


def record_of(kernel: object) -> KernelRecord:
    """The record of exactly this kernel's class: a subclass may compute anything."""
    return _RECORDS.get(type(kernel), KernelRecord())


def register_kernel(
    name: str,
    cls: type[gpytorch.kernels.Kernel],
    /,
    *,
    profile: Profile | Callable[[Any], Profile | None] | None = None,
    random_features: DrawFeatures | None = None,
    children: str | tuple[str, ...] = (),
    make: Callable[..., Any] | None = None,
    **fields: FieldType,
) -> None:
    """Register your own class of kernels.

    Features and estimators accept any kernel. A registered one can be saved, and has the options below.

    To define which points are near, for neighbours, give the class a method `metric_coordinates(x)`: from x [n, d] in float64 to
    a real tensor [n, D] whose Euclidean distances order points as the kernel does. Without it, columns are divided by the
    kernel's `lengthscale`, or stay unchanged if it has none (`harmonicgp.kernels.metric.metric_coordinates`).

    Args:
        name: the name in files. Register the class before you save and before you load.
        cls: the class. Files store instances of exactly this class, not of its subclasses.
        profile: a `Profile`, or a function from a kernel to a `Profile` or None; with it Gram matrices take the fused path.
        random_features: a function of a kernel, a generator and n. It returns a map phi with phi(x) . phi(x') close to k(x, x'),
            in float64. Without it `sample_y` refuses many rows.
        children: names of attributes that are kernels, or the name of one attribute that is a list of kernels. They are the first
            arguments of `make`.
        make: builds the kernel from children and fields; the class itself by default.
        fields: constructor arguments to save, each an attribute of the same name, with its type: `int` (not negative), `float`,
            `bool`, `list[int]`, or one of these `| None`. Parameters and `active_dims` are saved automatically.

    Examples:
        >>> class Halved(gpytorch.kernels.RBFKernel):
        ...     def forward(self, *args, **kwargs):
        ...         return super().forward(*args, **kwargs) / 2
        >>> register_kernel("docs.Halved", Halved, ard_num_dims=int | None)
    """
    KERNELS.add(name, cls, fields, children, make)
    choose = profile if callable(profile) else (lambda kernel: profile)
    _RECORDS[cls] = KernelRecord(choose, random_features)


# Random features ------------------------------------------------------------------------------------------------------


def random_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    """A map phi with phi(x) . phi(x') close to k(x, x'), with n frequencies for every stationary part.

    Examples:
        >>> phi = random_features(gpytorch.kernels.RBFKernel(), torch.Generator().manual_seed(0), 8)
        >>> phi(torch.zeros(3, 2, dtype=torch.float64)).shape
        torch.Size([3, 16])
    """
    draw = record_of(kernel).random_features
    if draw is None:
        raise ValueError(
            "sample paths are implemented for RBF, Matern, rational quadratic, periodic, linear, arc-cosine and globe kernels "
            f"and their sums, products and scalings, not for {type(kernel).__name__}: draw from `covariance` at fixed inputs "
            "instead, or give register_kernel its random_features."
        )
    inner, active = draw(kernel, generator, n), kernel.active_dims
    base = getattr(kernel, "base_kernel", None)
    if type(kernel) is gpytorch.kernels.ScaleKernel and getattr(base, "active_dims", None) is not None:
        active = None  # a ScaleKernel copies the active_dims of its base: only the base selects columns
    if active is None:
        return inner
    return lambda x: inner(x.index_select(-1, active))


def drawn_features(draw: Callable[[int], Tensor], features: Callable[[Tensor, Tensor], Tensor]) -> FeatureMap:
    """The map x -> features(x, draw(d)); the random numbers draw(d) are made once, at the first x with d columns."""
    numbers: dict[int, Tensor] = {}

    def feature_map(x: Tensor) -> Tensor:
        d = x.shape[-1]
        if d not in numbers:
            numbers[d] = draw(d)
        return features(x, numbers[d])

    return feature_map


def _waves(x: Tensor, frequencies: Tensor) -> Tensor:
    """sqrt(1/n) (cos w.x, sin w.x) with n frequencies w [n, d]."""
    phase = x @ frequencies.mT
    return torch.cat((phase.cos(), phase.sin()), -1) / math.sqrt(len(frequencies))


def _stationary_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    """Frequencies from the spectral density: Gaussian directions with lengths from the profile."""
    profile = record_of(kernel).profile(kernel)
    assert profile is not None
    assert profile.radii is not None
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)
    radii = profile.radii(kernel, n, generator)

    def frequencies(d: int) -> Tensor:
        normal = torch.randn(n, d, generator=generator, dtype=torch.float64, device="cpu")
        return normal * radii[:, None] / lengthscale

    return drawn_features(frequencies, _waves)


def _periodic_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    """Frequencies 2 pi j / period, with whole numbers j from the kernel's Fourier series, a product over columns."""
    period = kernel.period_length.detach().double().reshape(-1)
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)

    def frequencies(d: int) -> Tensor:
        columns = []
        for scale in lengthscale.expand(d).tolist():
            # exp(-2 sin^2(u/2)/l) = sum_j ive(j, 1/l) cos(j u)
            j = torch.arange(0, int(12 + 12 / scale**0.5) + 1, dtype=torch.float64, device="cpu")
            weights = torch.from_numpy(ive(j.numpy(), 1 / scale)) * torch.where(j == 0, 1.0, 2.0)
            columns.append(torch.multinomial(weights, n, replacement=True, generator=generator).double())
        # j and -j are equally likely
        signs = torch.randint(2, (n, d), generator=generator, device="cpu").double() * 2 - 1
        return torch.stack(columns, -1) * signs * (2 * math.pi / period)

    return drawn_features(frequencies, _waves)


def _linear_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    std = kernel.variance.detach().double().reshape(-1).sqrt()
    return lambda x: x * std


def _scaled_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    base, std = random_features(kernel.base_kernel, generator, n), kernel.outputscale.detach().double().sqrt()
    return lambda x: base(x) * std


def _sum_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    parts = [random_features(part, generator, n) for part in kernel.kernels]
    return lambda x: torch.cat([part(x) for part in parts], -1)


def _product_features(kernel: Any, generator: torch.Generator, n: int) -> FeatureMap:
    return product_features([random_features(part, generator, n) for part in kernel.kernels], generator, n)


def product_features(parts: list[FeatureMap], generator: torch.Generator, n: int) -> FeatureMap:
    """Unbiased features of a product of kernels: products of randomly paired features of its parts.

    phi_i(x) = sqrt(R) prod_k phi^k_{j_k(i)}(x).
    """
    pairing: list[Tensor] = []

    def features(x: Tensor) -> Tensor:
        values = [part(x) for part in parts]
        if not pairing:
            sizes = [value.shape[-1] for value in values]
            pairing.extend(torch.randint(size, (4 * n,), generator=generator, device="cpu") for size in sizes)
        scaled = [v[..., places] * math.sqrt(v.shape[-1]) for v, places in zip(values, pairing, strict=True)]
        return reduce(torch.mul, scaled) / math.sqrt(4 * n)

    return features


# GPyTorch's kernels ---------------------------------------------------------------------------------------------------


def _matern_profile(kernel: gpytorch.kernels.MaternKernel) -> Profile:
    return {0.5: MATERN12, 1.5: MATERN32, 2.5: MATERN52}[kernel.nu]


def _power_profile(kernel: gpytorch.kernels.PolynomialKernel) -> Profile | None:
    power = float(kernel.power)
    return POWER if 0 <= power <= _MAX_POWER and power.is_integer() else None


_ARD: dict[str, Any] = {"ard_num_dims": int | None}
register_kernel(
    "ScaleKernel", gpytorch.kernels.ScaleKernel, random_features=_scaled_features, children=("base_kernel",), **_ARD
)
register_kernel(
    "RBFKernel", gpytorch.kernels.RBFKernel, profile=RBF, random_features=_stationary_features, **_ARD
)  # fmt: skip
register_kernel(
    "MaternKernel", gpytorch.kernels.MaternKernel, profile=_matern_profile, random_features=_stationary_features,
    nu=float, **_ARD,
)  # fmt: skip
register_kernel(
    "RQKernel", gpytorch.kernels.RQKernel, profile=RATIONAL_QUADRATIC, random_features=_stationary_features, **_ARD
)
register_kernel("PeriodicKernel", gpytorch.kernels.PeriodicKernel, random_features=_periodic_features, **_ARD)
register_kernel("LinearKernel", gpytorch.kernels.LinearKernel, random_features=_linear_features, **_ARD)
register_kernel("PolynomialKernel", gpytorch.kernels.PolynomialKernel, profile=_power_profile, power=float, **_ARD)
register_kernel("CosineKernel", gpytorch.kernels.CosineKernel, **_ARD)
register_kernel("ConstantKernel", gpytorch.kernels.ConstantKernel)
register_kernel("AdditiveKernel", gpytorch.kernels.AdditiveKernel, random_features=_sum_features, children="kernels")
register_kernel("ProductKernel", gpytorch.kernels.ProductKernel, random_features=_product_features, children="kernels")
