"""The arc-cosine kernels of Cho and Saul (2009): infinitely wide networks with one hidden layer."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.kernels.profiles import ANGLE, directions_lift, profile_value
from harmonicgp.kernels.records import FeatureMap, drawn_features, register_kernel


class ArcCosineKernel(gpytorch.kernels.Kernel):
    """k_n(x, x') = 1/pi |u|^n |u'|^n J_n(angle between u and u'), with u = (x / lengthscale, sqrt(bias_variance)).

    `order` 0, 1 or 2 is the activation of the network: a step, a ramp (ReLU), a squared ramp. It is an inner-product kernel, so
    it is invariant under every orthogonal matrix that preserves its lengthscales.

    Examples:
        >>> import torch
        >>> ArcCosineKernel(order=1)(torch.randn(4, 3)).to_dense().shape
        torch.Size([4, 4])
    """

    has_lengthscale = True

    def __init__(self, order: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.order = whole_number(order, "the order of an arc-cosine kernel", 0)
        if self.order > 2:
            raise ValueError(f"arc-cosine kernels are implemented for the orders 0, 1 and 2; got {order}.")
        start = self.raw_lengthscale.new_zeros(*self.batch_shape, 1, 1)
        self.register_parameter("raw_bias_variance", torch.nn.Parameter(start))
        self.register_constraint("raw_bias_variance", gpytorch.constraints.Positive())

    @property
    def bias_variance(self) -> Tensor:
        """The variance of the bias of the hidden units. It makes the angle well defined at the origin."""
        value: Tensor = self.raw_bias_variance_constraint.transform(self.raw_bias_variance)
        return value

    @bias_variance.setter
    def bias_variance(self, value: float | Tensor) -> None:
        raw = self.raw_bias_variance
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((value > 0).all() & torch.isfinite(value).all()):
            raise ValueError(
                f"bias_variance must be positive, or the angle is undefined at the origin; got {value.tolist()}."
            )
        self.initialize(raw_bias_variance=self.raw_bias_variance_constraint.inverse_transform(value))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The Gram matrix [..., n1, n2], or its diagonal [..., n]."""
        # Directions are computed before products, so that large norms do not overflow.
        (v1, w1, norm1), (v2, w2, norm2) = (directions_lift(self, x / self.lengthscale) for x in (x1, x2))
        v1, v2 = torch.cat((v1, w1), -1), torch.cat((v2, w2), -1)
        if not diag:
            return norm1[..., :, None] * norm2[..., None, :] * profile_value(ANGLE, v1 @ v2.mT, self.order)
        cosine = (v1 * v2).sum(-1)
        if not cosine.requires_grad:
            cosine = torch.where((x1 == x2).all(-1), torch.ones_like(cosine), cosine)
        return norm1 * norm2 * profile_value(ANGLE, cosine, self.order)


def _network_features(kernel: ArcCosineKernel, generator: torch.Generator, n: int) -> FeatureMap:
    """sqrt(2/n) relu(w.u)^order: a hidden layer of n units, whose limit is the kernel."""
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)
    bias = kernel.bias_variance.detach().double().reshape(())

    def weights(d: int) -> Tensor:
        return torch.randn(d + 1, n, generator=generator, dtype=torch.float64, device="cpu")

    def features(x: Tensor, w: Tensor) -> Tensor:
        h = (x / lengthscale) @ w[:-1] + bias.sqrt() * w[-1]
        return math.sqrt(2 / n) * (h > 0).to(h) * h**kernel.order

    return drawn_features(weights, features)


register_kernel(
    "ArcCosineKernel", ArcCosineKernel, profile=ANGLE, random_features=_network_features,
    order=int, ard_num_dims=int | None,
)  # fmt: skip
