"""Checks of arguments: a clear error instead of a NaN or a wrong answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index as as_integer
from typing import Any

import torch
from torch import Tensor


def check_points(x: Tensor, name: str = "x") -> Tensor:
    """Return `x` if it is a real, finite, non-empty batch of points [..., n, d]; else raise a clear error."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch tensor; got {type(x).__name__}: use torch.as_tensor(...).")
    if x.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor; inputs must be dense: use {name}.to_dense().")
    if x.is_complex():
        raise TypeError(f"{name} is complex; inputs must be real numbers (only kernels may be complex-valued).")
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}; inputs must be floating point: use {name}.double() or .float().")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} has dtype {x.dtype}; inputs must be float32 or float64.")
    if x.dim() < 2:
        raise ValueError(
            f"{name} must hold one point per row, [n, d]; got shape {tuple(x.shape)}: "
            f"use {name}[:, None] for n points in one dimension, {name}[None] for one point."
        )
    if x.numel() == 0:
        raise ValueError(f"{name} is empty, shape {tuple(x.shape)}: at least one point and one dimension are needed.")
    if not math.isfinite(x.detach().sum()) and not torch.isfinite(x).all():  # a finite sum is of finite numbers
        row = int((~torch.isfinite(x.reshape(-1, x.shape[-1]))).any(-1).nonzero()[0])
        raise ValueError(f"{name} has NaN or infinite values, first in row {row}: drop or impute those rows.")
    return x


def whole_number(value: object, name: str, at_least: int) -> int:
    """`value` as an int if it is a whole number of at least `at_least`; else raise a clear error.

    Examples:
        >>> whole_number(3.0, "n", 1)
        Traceback (most recent call last):
        TypeError: n must be a whole number; got 3.0.
    """
    try:
        number = as_integer(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number; got {value!r}.") from None
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}; got {number}.")
    return number


def coordinates(values: Sequence[int], name: str) -> tuple[int, ...]:
    """`values` as a tuple of distinct coordinate numbers 0, 1, 2, ..."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a list of coordinate numbers; got {values!r}.")
    result = tuple(whole_number(value, f"a coordinate of {name}", 0) for value in values)
    if not result:
        raise ValueError(f"{name} is empty: name at least one coordinate.")
    if len(set(result)) != len(result):
        raise ValueError(f"{name} names a coordinate twice: {list(result)}.")
    return result


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass that has no second derivatives: it raises if `create_graph=True`."""

    @wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "features and Gram matrices have first derivatives only: call backward or grad without create_graph=True."
            )
        return backward(ctx, *gradients)

    return checked
