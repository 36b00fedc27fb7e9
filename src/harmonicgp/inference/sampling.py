"""Sample paths of the prior: functions one can evaluate anywhere, by random features of the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import gpytorch
import torch
from scipy.special import ive
from torch import Tensor

from harmonicgp.kernels.arccosine import ArcCosineKernel
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors

#: [..., n, d] -> random features [..., n, R] with k(x, x') ~ phi(x) . phi(x')
FeatureMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PriorPath:
    """Functions drawn from (nearly) GP(0, k): f(x) = phi(x) w with random features phi and white weights w.

    In posterior sampling they stand for the part of f that the inducing points leave open, so that the error of the random
    features, of order R^{-1/2}, touches the residual only.
    """

    feature_map: FeatureMap
    weights: Tensor  #: [R, samples]

    @classmethod
    def draw(
        cls, kernel: object, dim: int, n_samples: int, generator: torch.Generator, n_frequencies: int = 2048
    ) -> PriorPath:
        """Paths on `dim` columns for RBF, Matern, rational quadratic, periodic, linear, arc-cosine and globe kernels, sums,
        products and scalings of them.
        """
        with torch.no_grad():
            feature_map = random_features(kernel, generator, n_frequencies)
            size = feature_map(torch.zeros(1, dim, dtype=torch.float64)).shape[-1]
        return cls(feature_map, torch.randn(size, n_samples, generator=generator, dtype=torch.float64))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """[..., n, d] -> [..., n, samples]."""
        return (self.feature_map(x.double()) @ self.weights).to(x.dtype)


def random_features(kernel: object, generator: torch.Generator, n: int) -> FeatureMap:
    """A map phi with phi(x) . phi(x') close to k(x, x'), n frequencies for every stationary part."""
    inner = _simple_features(kernel, generator, n) if isinstance(kernel, gpytorch.kernels.Kernel) else None
    if inner is None:
        raise _unknown(kernel)
    active = getattr(kernel, "active_dims", None)
    base = getattr(kernel, "base_kernel", None)
    if type(kernel) is gpytorch.kernels.ScaleKernel and getattr(base, "active_dims", None) is not None:
        active = None  # a scaling takes its base's for its own: the base selects, once
    if active is None:
        return inner
    return lambda x: inner(x.index_select(-1, active))


def _simple_features(kernel: gpytorch.kernels.Kernel, generator: torch.Generator, n: int) -> FeatureMap | None:
    kind = type(kernel)
    if kind is gpytorch.kernels.ScaleKernel:
        base, scale = random_features(kernel.base_kernel, generator, n), kernel.outputscale.detach().double().sqrt()
        return lambda x: base(x) * scale
    if kind is gpytorch.kernels.AdditiveKernel:
        parts = [random_features(part, generator, n) for part in kernel.kernels]
        return lambda x: torch.cat([part(x) for part in parts], -1)
    if kind is gpytorch.kernels.ProductKernel:
        # E over independent pairs of features: multiply them one by one, each scaled to unit length a feature
        parts = [random_features(part, generator, n) for part in kernel.kernels]
        return _product_features(parts, generator, n)
    if kind is GlobeKernel:
        base = random_features(kernel.base_kernel, generator, n)
        return lambda x: base(unit_vectors(x))
    if kind is gpytorch.kernels.LinearKernel:
        variance = kernel.variance.detach().double().reshape(-1).sqrt()
        return lambda x: x * variance
    if kind is gpytorch.kernels.PeriodicKernel:
        return _periodic_features(kernel, generator, n)
    if kind is ArcCosineKernel:
        return _network_features(kernel, generator, n)
    if kind in (gpytorch.kernels.RBFKernel, gpytorch.kernels.MaternKernel, gpytorch.kernels.RQKernel):
        return _fourier_features(kernel, generator, n)
    return None


def _gamma(shape: float, size: int, generator: torch.Generator) -> Tensor:
    """Gamma(shape, 1) draws from a given generator (torch's own sampler takes none)."""
    import numpy as np

    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).gamma(shape, size=size))


def _fourier_features(kernel: gpytorch.kernels.Kernel, generator: torch.Generator, n: int) -> FeatureMap:
    """sqrt(1/n) (cos w.x, sin w.x), w from the spectral density: Gaussian, or Gaussian over the root of a gamma."""
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)
    radius = torch.ones(n, dtype=torch.float64)
    if type(kernel) is gpytorch.kernels.MaternKernel:  # Student-t with 2 nu degrees of freedom
        nu = float(kernel.nu)
        radius = (nu / _gamma(nu, n, generator)).sqrt()
    elif type(kernel) is gpytorch.kernels.RQKernel:  # RBF whose inverse squared lengthscale is Gamma(alpha)/alpha
        alpha = float(kernel.alpha.detach())
        radius = (_gamma(alpha, n, generator) / alpha).sqrt()
    frequencies: dict[int, Tensor] = {}

    def features(x: Tensor) -> Tensor:
        d = x.shape[-1]
        if d not in frequencies:  # the width is known at the first call, and fixed from then on
            frequencies[d] = torch.randn(n, d, generator=generator, dtype=torch.float64) * radius[:, None] / lengthscale
        phase = x @ frequencies[d].mT
        return torch.cat((phase.cos(), phase.sin()), -1) / math.sqrt(n)

    return features


def _periodic_features(kernel: gpytorch.kernels.Kernel, generator: torch.Generator, n: int) -> FeatureMap:
    """sqrt(1/n) (cos, sin)(2 pi j x / p), whole numbers j from the kernel's Fourier series, a product over columns."""
    period = kernel.period_length.detach().double().reshape(-1)
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)
    frequencies: dict[int, Tensor] = {}

    def features(x: Tensor) -> Tensor:
        d = x.shape[-1]
        if d not in frequencies:
            columns = []
            for scale in lengthscale.expand(d).tolist():
                # exp(-2 sin^2(u/2)/l) = sum_j ive(j, 1/l) cos(j u)
                j = torch.arange(0, int(12 + 12 / scale**0.5) + 1, dtype=torch.float64)
                weights = torch.from_numpy(ive(j.numpy(), 1 / scale)) * torch.where(j == 0, 1.0, 2.0)
                columns.append(torch.multinomial(weights, n, replacement=True, generator=generator).double())
            signs = torch.randint(2, (n, d), generator=generator).double() * 2 - 1  # j and -j are equally likely
            frequencies[d] = torch.stack(columns, -1) * signs * (2 * math.pi / period)
        phase = x @ frequencies[d].mT
        return torch.cat((phase.cos(), phase.sin()), -1) / math.sqrt(n)

    return features


def _network_features(kernel: ArcCosineKernel, generator: torch.Generator, n: int) -> FeatureMap:
    """sqrt(2/n) relu(w.u)^order: the hidden layer the kernel is the limit of."""
    lengthscale, bias = (
        kernel.lengthscale.detach().double().reshape(-1),
        kernel.bias_variance.detach().double().reshape(()),
    )
    weights: dict[int, Tensor] = {}

    def features(x: Tensor) -> Tensor:
        d = x.shape[-1]
        if d not in weights:
            weights[d] = torch.randn(d + 1, n, generator=generator, dtype=torch.float64)
        h = (x / lengthscale) @ weights[d][:d] + bias.sqrt() * weights[d][d]
        return math.sqrt(2 / n) * (h > 0).to(h) * h**kernel.order

    return features


def _product_features(parts: list[FeatureMap], generator: torch.Generator, n: int) -> FeatureMap:
    """phi_i(x) = sqrt(R) prod_k signs phi^k_{j_k(i)}: products of randomly paired features, unbiased."""
    pairing: list[tuple[Tensor, int]] = []

    def features(x: Tensor) -> Tensor:
        values = [part(x) for part in parts]
        if not pairing:
            R = 4 * n
            for value in values:
                size = value.shape[-1]
                pairing.append((torch.randint(size, (R,), generator=generator), size))
        out = None
        for value, (places, size) in zip(values, pairing, strict=True):
            scaled = value[..., places] * math.sqrt(size)
            out = scaled if out is None else out * scaled
        assert out is not None
        return out / math.sqrt(out.shape[-1])

    return features


def _unknown(kernel: object) -> ValueError:
    return ValueError(
        f"sample paths are implemented for RBF, Matern, rational quadratic, periodic, linear, arc-cosine and globe kernels and "
        f"their sums, products and scalings, not for {type(kernel).__name__}: draw from `covariance` at fixed inputs instead."
    )
