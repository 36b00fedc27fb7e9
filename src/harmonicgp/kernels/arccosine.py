"""The arc-cosine kernels of Cho and Saul (2009): infinitely wide networks of one hidden layer."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number


class _Angular(torch.autograd.Function):
    """J_n as a function of c = cos(theta), n = 0, 1, 2, with derivatives that stay finite at theta = 0.

    J_0 = pi - theta, J_1 = sin(theta) + (pi - theta) cos(theta), J_2 = 3 sin cos + (pi - theta)(1 + 2 cos^2), and
    dJ_n/dc = n^2 J_{n-1}: where autograd would meet 0/0 at coincident points, the ladder does not.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor, n: int) -> Tensor:
        ctx.save_for_backward(c)
        ctx.n = n
        c = c.clamp(-1.0, 1.0)
        rest = math.pi - torch.acos(c)
        if n == 0:
            return rest
        sin = (1 - c * c).sqrt()
        return sin + rest * c if n == 1 else 3 * sin * c + rest * (1 + 2 * c * c)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (c,) = ctx.saved_tensors
        if ctx.n > 0:
            return gradient * ctx.n**2 * _Angular.apply(c, ctx.n - 1), None
        sin2 = 1 - c * c
        edge = sin2 <= 4 * torch.finfo(c.dtype).eps  # a kink, as of |x - x'| at zero: no direction is up
        return torch.where(edge, torch.zeros_like(c), gradient * sin2.masked_fill(edge, 1.0).rsqrt()), None


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
        J: Tensor = _Angular.apply(cosine, self.order)
        return norms**self.order * J / math.pi
