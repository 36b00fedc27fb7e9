"""One Cholesky for the whole library, with rules for jitter, and conjugate gradients for several systems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from harmonicgp._threads import cuts, side_by_side
from harmonicgp._validation import first_order

#: Jitter starts at this many roundings of the dtype in which the matrix was computed.
_ROUNDINGS = 10.0
#: and is given up above this share of the kernel's own variance.
_LIMIT = 1e-2
#: Columns that a blocked factorisation takes at a time.
_PANEL = 128


class NotPositiveDefiniteError(ValueError):
    """A kernel matrix has no Cholesky factor; the message says which, and what to do."""


@dataclass(frozen=True)
class Factor:
    """K = L L^H with jitter, in float64, and the solves with it, in the dtype of what is solved for.

    Gradients take a shorter way than through L: of A = L^{-1} B they need no solve but those that reach B and K,

        gB = L^{-H} gA,     gK = -1/2 L^{-H} (P + P^H) L^{-1},   P the lower triangle of gA A^H with its diagonal halved,

    so that `_carrier`, which takes L's place in the graph, carries P where L would carry a gradient of its own.
    """

    L: Tensor  #: detached
    jitter: Tensor  #: [...]
    _carrier: Tensor

    @classmethod
    def of(cls, K: Tensor, variance: Tensor | float, what: str = "inducing inputs") -> Factor:
        """See `safe_cholesky`."""
        L, jitter = safe_cholesky(K.detach(), variance, what)
        return cls(L, jitter, _Carry.apply(K, L))

    def solve(self, B: Tensor) -> Tensor:
        """L^{-1} B."""
        A: Tensor = _Solve.apply(self._carrier, B, self.L)
        return A


class _Carry(torch.autograd.Function):
    """Nothing forwards; backwards from P, summed over all solves, to the gradient of K."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, L: Tensor) -> Tensor:
        ctx.save_for_backward(L)
        ctx.dtype = K.dtype
        return K.new_zeros(()).expand(K.shape)

    @staticmethod
    @first_order
    def backward(ctx: Any, P: Tensor) -> tuple[Tensor, None]:
        (L,) = ctx.saved_tensors
        L = L.to(P.dtype)
        half = P.tril()
        half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        inner = torch.linalg.solve_triangular(L.mH, half + half.mH, upper=True)
        gK = torch.linalg.solve_triangular(L, inner, upper=False, left=False)
        return gK.mul_(-0.5).to(ctx.dtype), None


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, carrier: Tensor, B: Tensor, L: Tensor) -> Tensor:
        L = L.to(B.dtype)
        A = torch.linalg.solve_triangular(L, B, upper=False)
        ctx.save_for_backward(L, A)
        return A

    @staticmethod
    @first_order
    def backward(ctx: Any, gA: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        L, A = ctx.saved_tensors
        P = lower_product(gA, A) if ctx.needs_input_grad[0] else None
        gB = torch.linalg.solve_triangular(L.mH, gA, upper=True) if ctx.needs_input_grad[1] else None
        return P, gB, None


def lower_product(A: Tensor, B: Tensor) -> Tensor:
    """A B^H [..., m, m], of which only the lower triangle is filled: slabs of rows, each as far as it is needed."""
    m = A.shape[-2]
    if m < 128:
        return A @ B.mH
    # What is above the slabs is never read, but by PyTorch's own search for NaN.
    out = A.new_zeros(*A.shape[:-1], m) if torch.is_anomaly_enabled() else A.new_empty(*A.shape[:-1], m)
    for first, last in pairwise(_slabs(m)):
        out[..., first:last, :last] = A[..., first:last, :] @ B[..., :last, :].mH
    return out


def symmetric_product(A: Tensor) -> Tensor:
    """A A' [..., m, m] of real A, at little more than half the work."""
    out = lower_product(A, A)
    if A.shape[-2] >= 128:
        for first, last in pairwise(_slabs(A.shape[-2])):
            out[..., :first, first:last] = out[..., first:last, :first].mT
    return out


def _slabs(m: int) -> list[int]:
    """Where slabs of rows end: four, or more of 256 rows."""
    count = max(4, m // 256)
    return [m * k // count for k in range(count + 1)]


def cholesky(K: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.linalg.cholesky_ex` of a batch of matrices [..., m, m], from their lower triangles, side by side."""
    m = K.shape[-1]
    if m <= _PANEL:
        L, info = torch.linalg.cholesky_ex(K)
        return L, info
    flat = K.reshape(-1, m, m)
    L, info = torch.zeros_like(flat), torch.zeros(len(flat), dtype=torch.int32, device=K.device)
    side_by_side([partial(_cholesky, flat[i:j], L[i:j], info[i:j]) for i, j in cuts(len(flat))])
    return L.reshape(K.shape), info.reshape(K.shape[:-2])


def _cholesky(K: Tensor, L: Tensor, info: Tensor) -> None:
    """By panels, into L, which is zero above its diagonal: PyTorch's own spends half its time on clearing what is above."""
    m = K.shape[-1]
    for first in range(0, m, _PANEL):
        last = min(first + _PANEL, m)
        done, here, below = slice(0, first), slice(first, last), slice(last, m)
        rest = K[:, first:, here]
        if first:
            rest = rest - L[:, first:, done] @ L[:, here, done].mH
        corner, failed = torch.linalg.cholesky_ex(rest[:, : last - first])
        info += (failed + first) * ((failed != 0) & (info == 0))
        L[:, here, here] = corner
        if last < m:
            L[:, below, here] = torch.linalg.solve_triangular(
                corner.mH, rest[:, last - first :], upper=True, left=False
            )


def safe_cholesky(K: Tensor, variance: Tensor | float, what: str = "inducing inputs") -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors, in float64 or complex128, of Hermitian matrices [..., m, m], and the jitter used [...].

    Jitter is absolute: 10 eps(dtype) times `variance`, the typical k(z, z) of the *whole* kernel. A block of little energy
    then gets features that vanish; jitter relative to the block's own diagonal would blow its rounding up to features.
    It is raised tenfold, for those blocks only, where the factorisation fails.
    """
    real = torch.finfo(K.dtype)
    scale = float(torch.as_tensor(variance).detach().double().max())
    if not (bool(torch.isfinite(K.sum())) and scale > 0 and scale < float("inf")):
        raise NotPositiveDefiniteError(
            f"the kernel matrix of the {what} has NaN or infinite entries ({K.dtype}): a hyper-parameter has left the "
            "range of numbers. Lower the learning rate, or standardise the inputs and targets."
        )
    wide = torch.complex128 if K.is_complex() else torch.float64
    shifted = K.to(wide, copy=True)  # of which the lower triangle is read
    jitter = torch.full(K.shape[:-2], _ROUNDINGS * float(real.eps) * scale, dtype=torch.float64, device=K.device)
    added = torch.zeros_like(jitter)
    while True:
        shifted.diagonal(dim1=-2, dim2=-1).add_((jitter - added)[..., None])
        added = jitter
        L, info = cholesky(shifted)
        failed = info != 0
        if not bool(failed.any()):
            return L, jitter
        jitter = torch.where(failed, 10 * jitter, jitter)
        if float(jitter.max()) > _LIMIT * scale:
            block = tuple(failed.nonzero()[0].tolist())
            raise NotPositiveDefiniteError(
                f"block {block} of the kernel matrix of the {what} has no Cholesky factor, computed in {real.dtype} with "
                f"jitter up to {float(jitter.max()) / 10:.1e}. Most often two inducing inputs coincide, or lie on one orbit "
                "of the action: fold them into a fundamental domain and drop duplicates (harmonicgp.inducing does both), "
                "use fewer of them, or compute in float64."
            )


def conjugate_gradients(
    matvec: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor],
    x0: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> tuple[Tensor, int]:
    """Solve H x = b for positive definite H, systems in the leading axes [..., n], and the iterations taken.

    Stops when every residual is below `tolerance` times its right-hand side. The quadratic form decreases with every
    iteration, so that a run cut short is still an improvement on x0.
    """
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    r = b - matvec(x) if x0 is not None else b.clone()
    goal = tolerance * b.norm(dim=-1, keepdim=True)
    z = precondition(r)
    p, rz = z.clone(), (r * z).sum(-1, keepdim=True)
    for iteration in range(max_iterations):
        open_ = r.norm(dim=-1, keepdim=True) > goal
        if not bool(open_.any()):
            return x, iteration
        Hp = matvec(p)
        curvature = (p * Hp).sum(-1, keepdim=True)
        going = open_ & (curvature > 0)
        if not bool(going.any()):
            return x, iteration
        alpha = torch.where(going, rz / curvature.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(rz))
        x = x + alpha * p
        r = r - alpha * Hp
        z = precondition(r)
        rz_new = (r * z).sum(-1, keepdim=True)
        p = z + torch.where(rz > 0, rz_new / rz.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(rz)) * p
        rz = rz_new
    return x, max_iterations
