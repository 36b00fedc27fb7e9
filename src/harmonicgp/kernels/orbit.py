"""The orbit sum: harmonic Gram matrices of a kernel of distances or inner products, in one fused pass.

    K_t[i, j] = scale sum_s W[t, s] f( a_i + b_j + sum_k C[s, k] u_i^(k) . v_j^(k) )

Under a linear action only the inner product s.x . x' changes with s, and it is a weighted sum of a few parts with weights C[s]
(`actions.linear`). f is the kernel's profile (`kernels.profiles`). Nothing of size |G| m n is ever stored: compiled code works in
the cache of the processor; without a compiler PyTorch works in tiles of rows. The backward pass computes f again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend import native
from harmonicgp.backend.threads import cuts, side_by_side
from harmonicgp.groups import Group, Resolution
from harmonicgp.kernels.profiles import Profile

#: Up to this group order compiled code sums over the elements. Above, matrix products do, and only f is compiled,
MAX_OWN_ORDER = 16
#: and above this order FFTs do.
MAX_DENSE_ORDER = 64
#: Up to this width of u, over all parts, compiled code computes the inner products. Above, matrix products do.
MAX_OWN_WIDTH = 48
#: Numbers of a tile of the PyTorch path.
_TILE = 1 << 20
#: Below this number of evaluations of f a second thread costs more than it saves.
_SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Plan:
    """The constants of an orbit sum: the weights of the group, the parts of the inner product, and the profile."""

    group: Group
    resolution: Resolution
    reals: tuple[int, ...]  #: places of the blocks whose matrices are real
    pairs: tuple[int, ...]  #: places of the blocks whose matrices are complex
    ends: tuple[int, ...]  #: the end of each part among the columns of u
    C: Tensor  #: [|G|, parts], float64
    rest: bool  #: whether no element changes the first part
    negation: bool  #: whether each other part is negated by one way
    profile: Profile

    @cached_property
    def W(self) -> Tensor:
        """Real weights, [reals + 2 pairs, |G|]: real blocks, then real parts, then imaginary ones."""
        weights = self.group.weights(self.resolution).conj()
        real, paired = weights[list(self.reals)], weights[list(self.pairs)]
        parts = [paired.real, paired.imag] if self.pairs else []
        return torch.cat([real.real if real.is_complex() else real, *parts])

    @cached_property
    def ways(self) -> int:
        """J if the transform is a Walsh-Hadamard transform over all blocks, else 0."""
        is_hadamard = self.group.is_real and self.reals == tuple(range(self.group.order))
        return self.group.order.bit_length() - 1 if is_hadamard else 0

    def weighing(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """C and W on the device and in the dtype of a tensor."""
        return self.C.to(like).contiguous(), self.W.to(like)

    @cached_property
    def places(self) -> Tensor:
        """The ends, for compiled code."""
        return torch.tensor(self.ends, dtype=torch.int64, device="cpu")

    @cached_property
    def runs(self) -> list[tuple[slice, slice, int]]:
        """Runs of consecutive parts of equal width: the slice of parts, the slice of columns of u, and the width."""
        runs: list[tuple[slice, slice, int]] = []
        for k, (start, end) in enumerate(pairwise((0, *self.ends))):
            if runs and runs[-1][2] == end - start:
                runs[-1] = (slice(runs[-1][0].start, k + 1), slice(runs[-1][1].start, end), end - start)
            else:
                runs.append((slice(k, k + 1), slice(start, end), end - start))
        return runs

    def is_compiled(self, like: Tensor) -> bool:
        """Whether f is compiled for the device of a tensor."""
        return self.profile.code is not None and like.device.type == "cpu" and native.available()

    def is_native(self, like: Tensor) -> bool:
        """Whether compiled code computes the whole sum in one pass."""
        return (self.group.order <= MAX_OWN_ORDER or self.ways > 0) and self.is_compiled(like)


def orbit_sum(
    plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: Tensor, parameter: Tensor
) -> tuple[Tensor, Tensor]:
    """The matrices [reals, m, n] and, complex, [pairs, m, n], from a [m], b [n], U [m, width], V [width, n] and two scalars.

    Differentiable once in all arguments. Mixed precisions are converted to the widest; half precision is refused.
    """
    dtype = reduce(torch.promote_types, (t.dtype for t in (a, b, U, V)))
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"kernel matrices are computed in float32 or float64, not in {dtype}: use .float() or .double()."
        )
    real, paired = _OrbitSum.apply(*(t.to(dtype) for t in (a, b, U, V)), scale, parameter, plan)
    return real, torch.view_as_complex(paired)


class _OrbitSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: Tensor, parameter: Tensor, plan: Plan
    ) -> tuple[Tensor, Tensor]:
        a, b, U, V = (t.detach().contiguous() for t in (a, b, U, V))
        ctx.save_for_backward(a, b, U, V, scale, parameter)
        ctx.plan = plan
        m, n = len(a), len(b)
        real, paired = U.new_empty(len(plan.reals), m, n), U.new_empty(len(plan.pairs), m, n, 2)
        forward = _native_forward if plan.is_native(U) else _torch_forward
        forward(plan, a, b, U, V, float(scale), float(parameter), real, paired)
        return real, paired

    @staticmethod
    @first_order
    def backward(ctx: Any, g_real: Tensor, g_paired: Tensor) -> tuple[Tensor | None, ...]:
        a, b, U, V, scale, parameter = ctx.saved_tensors
        plan: Plan = ctx.plan
        backward = _native_backward if plan.is_native(U) else _torch_backward
        g_real, g_paired = g_real.contiguous(), g_paired.contiguous()
        by_a, by_b, by_U, by_V, sum_f, sum_df = backward(
            plan, a, b, U, V, float(scale), float(parameter), g_real, g_paired
        )
        by_scale = torch.as_tensor(sum_f, dtype=scale.dtype, device=scale.device).reshape(scale.shape)
        by_parameter = torch.as_tensor(sum_df * float(scale), dtype=parameter.dtype, device=parameter.device)
        return by_a, by_b, by_U, by_V, by_scale, by_parameter.reshape(parameter.shape), None


# Compiled ------------------------------------------------------------------------------------------------------------


def _compiled(
    name: str,
    plan: Plan,
    sizes: tuple[int, int, int],
    scale: float,
    parameter: float,
    pieces: list[tuple[int, int]],
    *tensors: Tensor | list[Tensor] | None,
) -> None:
    """Call a compiled function for all pieces (first, last) in parallel. A piece gets all tensors and its item of each list."""
    (m, n, width), group, profile = sizes, plan.group, plan.profile
    assert profile.code is not None
    problem = native.OrbitProblem(
        m, n, len(plan.ends), width, group.order, len(plan.reals), len(plan.pairs), int(plan.rest), plan.ways,
        int(plan.negation and 2**plan.ways == group.order), profile.code, parameter, scale,
    )  # fmt: skip
    dtype = next(t.dtype for t in tensors if isinstance(t, Tensor))
    call = native.function(name, dtype)

    def piece(k: int) -> int:  # it refers to the tensors, so that they live as long as it runs
        arguments = [t[k] if isinstance(t, list) else t for t in tensors]
        addresses = [None if t is None or t.numel() == 0 else t.data_ptr() for t in arguments]
        return call(ctypes.byref(problem), *pieces[k], *addresses)

    if any(side_by_side([partial(piece, k) for k in range(len(pieces))])):
        raise MemoryError("there is not enough memory for the work space of the orbit sum.")


def _products(plan: Plan, U: Tensor, V: Tensor) -> Tensor:
    """The parts of the inner products, [parts, m, n]: one batched product for each run of parts of equal width."""
    comps = U.new_empty(len(plan.ends), U.shape[0], V.shape[1])
    for parts, columns, width in plan.runs:
        torch.bmm(_left(U, columns, width), V[columns].unflatten(0, (-1, width)), out=comps[parts])
    return comps


def _left(U: Tensor, columns: slice, width: int) -> Tensor:
    """The columns of a run of parts, [parts, m, width]."""
    return U[:, columns].unflatten(1, (-1, width)).transpose(0, 1)


def _backward_products(plan: Plan, by_comps: Tensor, U: Tensor, V: Tensor, by_U: Tensor, by_V: Tensor) -> None:
    """The backward pass of `_products`: writes the gradient of U and adds to that of V."""
    for parts, columns, width in plan.runs:
        v = V[columns].unflatten(0, (-1, width))
        by_U[:, columns] = torch.bmm(by_comps[parts], v.mT).transpose(0, 1).flatten(1)
        by_V[columns] += torch.bmm(_left(U, columns, width).mT, by_comps[parts]).flatten(0, 1)


def _native_forward(
    plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: float, parameter: float, real: Tensor, paired: Tensor
) -> None:
    (m, width), n = U.shape, V.shape[1]
    comps = _products(plan, U, V) if width > MAX_OWN_WIDTH else None
    ranges = cuts(m, plan.group.order * m * n // _SMALL)
    inputs = (a, b, U, V, comps, plan.places, *plan.weighing(U))
    _compiled("forward", plan, (m, n, width), scale, parameter, ranges, *inputs, real, paired)


def _native_backward(
    plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: float, parameter: float, real: Tensor, paired: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, float]:
    (m, width), n = U.shape, V.shape[1]
    comps = _products(plan, U, V) if width > MAX_OWN_WIDTH else None
    ranges = cuts(m, plan.group.order * m * n // _SMALL)
    by_a, by_U = torch.empty_like(a), torch.empty_like(U)
    by_b = b.new_zeros(len(ranges), n)
    by_V = V.new_zeros(1 if comps is not None else len(ranges), width, n)
    by_comps = None if comps is None else torch.empty_like(comps)
    totals = torch.zeros(len(ranges), 2, dtype=torch.float64, device="cpu")
    inputs = (a, b, U, V, comps, plan.places, *plan.weighing(U), real, paired)
    outputs = (by_a, list(by_b), by_U, None if comps is not None else list(by_V), by_comps, list(totals))
    _compiled("backward", plan, (m, n, width), scale, parameter, ranges, *inputs, *outputs)
    if by_comps is not None:
        _backward_products(plan, by_comps, U, V, by_U, by_V[0])
    sum_f, sum_df = totals.sum(0).tolist()
    return by_a, by_b.sum(0), by_U, by_V.sum(0), sum_f, sum_df


# In tiles of rows: products by PyTorch, f compiled if possible --------------------------------------------------------


def _tiles(plan: Plan, m: int, n: int) -> Iterator[slice]:
    step = max(1, _TILE // (plan.group.order * n))
    for start in range(0, m, step):
        yield slice(start, min(start + step, m))


def _arguments(plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, C: Tensor) -> Tensor:
    """The arguments of f, [|G|, rows, n]."""
    parts = _products(plan, U, V)
    t = (C @ parts.flatten(1)).unflatten(1, parts.shape[1:])
    t += a[:, None] + b[None]
    return t.clamp_(min=0.0) if plan.profile.stationary else t


def _values(plan: Plan, t: Tensor, parameter: float) -> Tensor:
    """f(t); t is overwritten."""
    if not plan.is_compiled(t):
        return plan.profile.value(t, parameter)
    _compiled("values", plan, (1, 1, 1), 1.0, parameter, cuts(t.numel(), t.numel() // _SMALL), t)
    return t


def _slopes(plan: Plan, t: Tensor, g: Tensor, parameter: float) -> tuple[Tensor, float, float]:
    """The products g f'(t), and the sums of g f(t) and of g df/dparameter; t may be overwritten."""
    if not plan.is_compiled(t):
        f = plan.profile.value(t.clone(), parameter)
        slope, by_parameter = plan.profile.slope(t, f, parameter)
        sum_df = 0.0 if by_parameter is None else float((g * by_parameter).sum(dtype=torch.float64))
        return slope * g, float((g * f).sum(dtype=torch.float64)), sum_df
    pieces = cuts(t.numel(), t.numel() // _SMALL)
    totals = torch.zeros(len(pieces), 2, dtype=torch.float64, device="cpu")
    _compiled("slopes", plan, (1, 1, 1), 1.0, parameter, pieces, t, g.contiguous(), list(totals))
    sum_f, sum_df = totals.sum(0).tolist()
    return t, sum_f, sum_df


def _transformed(plan: Plan, f: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """[|G|, rows, n] -> [reals, rows, n] and [pairs, rows, n, 2]."""
    if plan.group.order <= MAX_DENSE_ORDER or plan.group.is_real:
        if plan.ways:
            return plan.group.harmonics(f), f.new_empty(0, *f.shape[1:], 2)
        out = (W @ f.flatten(1)).unflatten(1, f.shape[1:])
        real, re, im = out.split([len(plan.reals), len(plan.pairs), len(plan.pairs)])
        return real, torch.stack((re, im), -1)
    K = plan.group.harmonics(f, plan.resolution)
    if not K.is_complex():
        return K[list(plan.reals)], f.new_empty(0, *f.shape[1:], 2)
    K = K.conj()
    return K[list(plan.reals)].real, torch.view_as_real(K[list(plan.pairs)].resolve_conj())


def _torch_forward(
    plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: float, parameter: float, real: Tensor, paired: Tensor
) -> None:
    C, W = plan.weighing(U)
    for rows in _tiles(plan, len(a), len(b)):
        f = _values(plan, _arguments(plan, a[rows], b, U[rows], V, C), parameter)
        real[:, rows], paired[:, rows] = _transformed(plan, f.mul_(scale), W)


def _torch_backward(
    plan: Plan, a: Tensor, b: Tensor, U: Tensor, V: Tensor, scale: float, parameter: float, real: Tensor, paired: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, float]:
    C, W = plan.weighing(U)
    by_a, by_U, by_b, by_V = torch.empty_like(a), torch.empty_like(U), torch.zeros_like(b), torch.zeros_like(V)
    sum_f = sum_df = 0.0
    for rows in _tiles(plan, len(a), len(b)):
        g = torch.cat((real[:, rows], paired[:, rows, :, 0], paired[:, rows, :, 1]))
        g = plan.group.harmonics(g) if plan.ways else (W.mT @ g.flatten(1)).unflatten(1, g.shape[1:])
        t = _arguments(plan, a[rows], b, U[rows], V, C)
        by_t, tile_f, tile_df = _slopes(plan, t, g, parameter)
        sum_f, sum_df, by_t = sum_f + tile_f, sum_df + tile_df, by_t.mul_(scale)
        over_elements = by_t.sum(0)
        by_a[rows], by_b = over_elements.sum(1), by_b + over_elements.sum(0)
        by_parts = (C.mT @ by_t.flatten(1)).unflatten(1, by_t.shape[1:])
        _backward_products(plan, by_parts, U[rows], V, by_U[rows], by_V)
    return by_a, by_b, by_U, by_V, sum_f, sum_df
