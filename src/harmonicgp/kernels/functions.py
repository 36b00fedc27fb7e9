"""Kernels as plain functions that return dense tensors, for the harmonic decomposition and the features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import gpytorch
import torch
from torch import Tensor

#: k(x1 [..., n1, d], x2 [..., n2, d]) -> [..., n1, n2], leading axes broadcast; real or complex.
KernelFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
KernelLike: TypeAlias = "gpytorch.kernels.Kernel | KernelFunction"


def check_kernel(kernel: KernelLike) -> None:
    """Raise a TypeError or ValueError unless the argument is one kernel."""
    if isinstance(kernel, gpytorch.kernels.Kernel):
        if kernel.batch_shape:
            raise ValueError(
                f"the kernel is a batch of kernels, batch_shape {tuple(kernel.batch_shape)}, whose axis would be confused with "
                "that of the orbit: decompose each kernel separately."
            )
    elif not callable(kernel) or isinstance(kernel, type):
        raise TypeError(f"kernel must be a GPyTorch kernel or a function k(x1, x2); got {kernel!r}.")


def kernel_matrix(kernel: KernelLike, x1: Tensor, x2: Tensor) -> Tensor:
    """k(x1, x2) as a dense tensor [..., n1, n2], for a GPyTorch kernel or a plain function."""
    lead = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    K = _evaluate(kernel, x1, x2, False) if isinstance(kernel, gpytorch.kernels.Kernel) else kernel(x1, x2)
    return _checked(K, (*lead, x1.shape[-2], x2.shape[-2]))


def kernel_diagonal(kernel: KernelLike, x1: Tensor, x2: Tensor) -> Tensor:
    """k(x1_i, x2_i) for matching rows, [..., n]."""
    if isinstance(kernel, gpytorch.kernels.Kernel):
        return _checked(_evaluate(kernel, x1, x2, True), torch.broadcast_shapes(x1.shape[:-1], x2.shape[:-1]))
    # A plain function returns Gram matrices: here one of size 1 x 1 for each pair of rows.
    return kernel_matrix(kernel, x1[..., None, :], x2[..., None, :])[..., 0, 0]


def _evaluate(kernel: gpytorch.kernels.Kernel, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    """The dense values of a GPyTorch kernel: sums, products and scalings are computed from dense parts.

    GPyTorch itself would multiply lazy operators; those of low rank factorise and add jitter.
    """
    kind = type(kernel)
    if kind is gpytorch.kernels.ScaleKernel:  # it copies the active_dims of its base: only the base selects columns
        scale = kernel.outputscale[..., None] if diag else kernel.outputscale[..., None, None]
        base = kernel.base_kernel
        if base.active_dims is None and kernel.active_dims is not None:
            x1, x2 = x1.index_select(-1, kernel.active_dims), x2.index_select(-1, kernel.active_dims)
        return scale * _evaluate(base, x1, x2, diag)
    if kind in (gpytorch.kernels.AdditiveKernel, gpytorch.kernels.ProductKernel):
        if kernel.active_dims is not None:
            x1, x2 = x1.index_select(-1, kernel.active_dims), x2.index_select(-1, kernel.active_dims)
        parts = [_evaluate(part, x1, x2, diag) for part in kernel.kernels]
        return reduce(torch.add if kind is gpytorch.kernels.AdditiveKernel else torch.mul, parts)
    K = kernel(x1, x2, diag=diag)
    dense: Tensor = K if isinstance(K, Tensor) else K.to_dense()
    return dense


def _checked(K: object, shape: Sequence[int]) -> Tensor:
    """The result of a kernel; raises unless it is a dense tensor of real or complex numbers in this shape."""
    if not isinstance(K, Tensor):
        raise TypeError(f"a kernel must return a dense tensor; got {type(K).__name__}.")
    if tuple(K.shape) != tuple(shape):
        raise ValueError(
            f"a kernel must return one number for each pair of points, {list(shape)}, leading axes included; got shape "
            f"{tuple(K.shape)}."
        )
    if not (K.is_floating_point() or K.is_complex()):
        raise TypeError(f"a kernel must return floating-point or complex numbers; got {K.dtype}.")
    return K
