"""The metric of a kernel: coordinates whose Euclidean distance orders points as the kernel does."""

from __future__ import annotations

import math

import gpytorch
import torch
from torch import Tensor

from harmonicgp.kernels.globe import GlobeKernel, unit_vectors


def metric_coordinates(kernel: object, x: Tensor) -> Tensor:
    """Points x [n, d] in the metric of a kernel, [n, D] in float32.

    Columns are divided by their lengthscales. A periodic column becomes a circle, longitude and latitude a point of the unit
    sphere. The coordinates of the parts of a sum or a product are concatenated. Without a lengthscale columns stay unchanged.

    Your own kernel can define its metric by a method `metric_coordinates(x)`: from x [n, d] in float64, the columns that its
    `forward` gets, to a real tensor [n, D]. The Euclidean distance of the rows must order points as the kernel does: the nearer,
    the larger k(x, x') is. It is called without gradients.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = RBFKernel()
        >>> kernel.lengthscale = 2.0
        >>> metric_coordinates(kernel, torch.tensor([[4.0]]))
        tensor([[2.]])
    """
    with torch.no_grad():
        if not isinstance(kernel, gpytorch.kernels.Kernel):
            return x.float()
        return _coordinates(kernel, x.double()).float()


def _coordinates(kernel: gpytorch.kernels.Kernel, x: Tensor) -> Tensor:
    is_scale = isinstance(kernel, gpytorch.kernels.ScaleKernel)  # it copies the active_dims of its base
    selects = not is_scale or kernel.base_kernel.active_dims is None
    if selects and kernel.active_dims is not None:
        x = x.index_select(-1, kernel.active_dims)
    if hasattr(kernel, "metric_coordinates"):
        return _checked(kernel.metric_coordinates(x), len(x), type(kernel).__name__)
    if is_scale:
        return _coordinates(kernel.base_kernel, x)
    if isinstance(kernel, gpytorch.kernels.AdditiveKernel | gpytorch.kernels.ProductKernel):
        return torch.cat([_coordinates(part, x) for part in kernel.kernels], -1)
    if isinstance(kernel, GlobeKernel):
        return _coordinates(kernel.base_kernel, unit_vectors(x))
    if isinstance(kernel, gpytorch.kernels.PeriodicKernel):
        angle = 2 * math.pi * x / kernel.period_length.double().reshape(-1)
        return torch.cat((angle.cos(), angle.sin()), -1) / kernel.lengthscale.double().reshape(-1).sqrt().repeat(
            2 if kernel.lengthscale.numel() > 1 else 1
        )
    lengthscale = getattr(kernel, "lengthscale", None)
    return x if lengthscale is None else x / lengthscale.double().reshape(-1)


def _checked(points: object, n: int, name: str) -> Tensor:
    """The result of a kernel's own method; raises unless it is a real, finite tensor with n rows."""
    rule = f"{name}.metric_coordinates(x) must return a real tensor [n, D], one row for each row of x"
    if not isinstance(points, Tensor):
        raise TypeError(f"{rule}; got {type(points).__name__}.")
    if points.is_complex():
        raise TypeError(f"{rule}; got {points.dtype}.")
    if points.dim() != 2 or len(points) != n:
        raise ValueError(f"{rule}; for {n} rows got shape {tuple(points.shape)}.")
    finite = torch.isfinite(points).all(-1)
    if not bool(finite.all()):
        row = int((~finite).to(torch.uint8).argmax())
        raise ValueError(f"{rule}; row {row} has a value that is NaN or infinite: {points[row].tolist()[:8]}.")
    return points
