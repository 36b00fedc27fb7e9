"""The arc-cosine kernels of Cho and Saul (2009): infinitely wide networks of one hidden layer."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.kernels.profiles import ANGLE, profile_value
from harmonicgp.kernels.records import FeatureMap, register_kernel


class ArcCosineKernel(gpytorch.kernels.Kernel):
    """k_n(x, x') = 1/pi |u|^n |u'|^n J_n(angle between u and u'), with u = (x / lengthscale, sqrt(bias_variance)).

    `order` 0, 1 or 2 is the network's activation: a step, a ramp (ReLU), a squared ramp. An inner-product kernel, so
    invariant under every orthogonal matrix that keeps its lengthscales.

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
        self.register_parameter("raw_bias_variance", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, 1)))
        self.register_constraint("raw_bias_variance", gpytorch.constraints.Positive())

    @property
    def bias_variance(self) -> Tensor:
        """The variance of the hidden units' bias; it keeps the angle defined at the origin."""
        value: Tensor = self.raw_bias_variance_constraint.transform(self.raw_bias_variance)
        return value

    @bias_variance.setter
    def bias_variance(self, value: float | Tensor) -> None:
        value = torch.as_tensor(value).to(self.raw_bias_variance)
        if not bool((value > 0).all() & torch.isfinite(value).all()):
            raise ValueError(
                f"bias_variance must be positive: at the origin the angle would not exist; got {value.tolist()}."
            )
        self.initialize(raw_bias_variance=self.raw_bias_variance_constraint.inverse_transform(value))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The Gram matrix [..., n1, n2], or its diagonal [..., n]."""
        bias = self.bias_variance[..., 0]
        u1, u2 = x1 / self.lengthscale, x2 / self.lengthscale
        norm1 = ((u1 * u1).sum(-1) + bias).sqrt()
        norm2 = ((u2 * u2).sum(-1) + bias).sqrt()
        root = bias.sqrt()
        # Directions first, products after: norms of any size stay in range.
        v1, v2, w1, w2 = u1 / norm1[..., None], u2 / norm2[..., None], root / norm1, root / norm2
        if diag:
            cosine, norms = (v1 * v2).sum(-1) + w1 * w2, norm1 * norm2
            cosine = (
                torch.where((x1 == x2).all(-1), torch.ones_like(cosine), cosine) if not cosine.requires_grad else cosine
            )
        else:
            cosine = v1 @ v2.mT + w1[..., :, None] * w2[..., None, :]
            norms = norm1[..., :, None] * norm2[..., None, :]
        return norms**self.order * profile_value(ANGLE, cosine, self.order)


def _network_features(kernel: ArcCosineKernel, generator: torch.Generator, n: int) -> FeatureMap:
    """sqrt(2/n) relu(w.u)^order: the hidden layer whose limit the kernel is."""
    lengthscale = kernel.lengthscale.detach().double().reshape(-1)
    bias = kernel.bias_variance.detach().double().reshape(())
    weights: dict[int, Tensor] = {}

    def features(x: Tensor) -> Tensor:
        d = x.shape[-1]
        if d not in weights:  # the width is known at the first call, and fixed from then on
            weights[d] = torch.randn(d + 1, n, generator=generator, dtype=torch.float64, device="cpu")
        h = (x / lengthscale) @ weights[d][:d] + bias.sqrt() * weights[d][d]
        return math.sqrt(2 / n) * (h > 0).to(h) * h**kernel.order

    return features


register_kernel(
    "ArcCosineKernel", ArcCosineKernel, profile=ANGLE, random_features=_network_features,
    order=int, ard_num_dims=int | None,
)  # fmt: skip
