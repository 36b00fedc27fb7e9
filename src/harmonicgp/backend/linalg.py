"""The Cholesky factorisation of the library, with its rules for jitter, and conjugate gradients for several systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend.lapack import potrf
from harmonicgp.backend.threads import LARGE, in_blocks

#: Jitter starts at this multiple of the rounding of the dtype in which the matrix was computed.
_ROUNDINGS = 10.0
#: The factorisation fails if it needs more jitter than this share of the kernel's variance.
_LIMIT = 1e-2


class NotPositiveDefiniteError(ValueError):
    """A kernel matrix has no Cholesky factor. The message names the matrix and what to do."""


class _Versions:
    """Matrices in several precisions; each conversion is made once."""

    def __init__(self, L: Tensor) -> None:
        self.versions = {L.dtype: L}

    def __call__(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self.versions:
            self.versions[dtype] = converted(next(iter(self.versions.values())), dtype)
        return self.versions[dtype]


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor of K = L L^H with jitter, in float64. Solves are in the dtype of the right-hand side.

    The gradients of A = L^{-1} B do not go through the gradient of L. They only need

        gB = L^{-H} gA,     gK = -1/2 L^{-H} (P + P^H) L^{-1},   P the lower triangle of gA A^H with its diagonal halved.

    So `_carrier` replaces L in the graph, and its gradient is P.

    Examples:
        >>> import torch
        >>> factor = Factor.of(4 * torch.eye(2, dtype=torch.float64), 4.0)
        >>> factor.solve(torch.ones(2, 1, dtype=torch.float64)).round(decimals=6).flatten()
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """

    L: Tensor  #: detached
    jitter: Tensor  #: [...]
    _carrier: Tensor
    _narrow: _Versions

    @classmethod
    def of(cls, K: Tensor, variance: Tensor | float, what: str = "inducing inputs") -> Factor:
        """See `safe_cholesky`."""
        L, jitter = safe_cholesky(K.detach(), variance, what)
        narrow = _Versions(L)
        return cls(L, jitter, _Carry.apply(K, narrow), narrow)

    def carried(self, P: Tensor) -> Tensor:
        """The gradient of K from P = gA A^H, for the gradient gA of A = L^{-1} B; P is overwritten."""
        return _carried(P, self._narrow(P.dtype), P.mT)

    def solve(self, B: Tensor) -> Tensor:
        """L^{-1} B."""
        return self.whiten(B)[0]

    def whiten(self, B: Tensor, alive: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A = L^{-1} B, zero for blocks that are not `alive` [blocks], and |A|^2 of each column over rows and blocks, [n]."""
        if self.L.is_complex() and not B.is_complex():
            B = B.to(B.dtype.to_complex())
        elif B.is_complex() and not self.L.is_complex():
            raise TypeError(
                "a real factor solves for real matrices: solve for the real and the imaginary part separately."
            )
        solution: tuple[Tensor, Tensor] = _Solve.apply(self._carrier, B, self._narrow(B.dtype), alive)
        return solution


class _Carry(torch.autograd.Function):
    """The carrier of a `Factor`: zeros in the forward pass. The backward pass turns P, summed over all solves, into gK."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, narrow: _Versions) -> Tensor:
        ctx.narrow, ctx.dtype = narrow, K.dtype
        return K.new_zeros(()).expand(K.shape)

    @staticmethod
    @first_order
    def backward(ctx: Any, P: Tensor) -> tuple[Tensor, None]:
        return _carried(P, ctx.narrow(P.dtype)).to(ctx.dtype), None


def _carried(P: Tensor, L: Tensor, gK: Tensor | None = None) -> Tensor:
    """-1/2 L^{-H} (P + P^H) L^{-1}, for the lower triangle P with its diagonal halved; gK may share the memory of P."""
    gK = P.new_empty(P.shape).mT if gK is None else gK  # column-major, as K usually is
    factors, lower, result = (_blocks(t) for t in (L, P, gK))

    def work(b: slice) -> None:
        half = lower[b].tril().mul_(-0.5)
        half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        g = torch.add(half, half.mH, out=result[b])
        torch.linalg.solve_triangular(factors[b], g, upper=False, left=False, out=g)
        torch.linalg.solve_triangular(factors[b].mH, g, upper=True, out=g)

    in_blocks(work, len(result), P.shape[-1])
    return gK


class _Solve(torch.autograd.Function):
    """A = L^{-1} B and its squared norms by column."""

    @staticmethod
    def forward(ctx: Any, carrier: Tensor, B: Tensor, L: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        B = B.detach()
        B = B.contiguous() if B.dim() > 3 else B  # so that its blocks are a view
        A = torch.empty_like(B)  # with the strides of B
        factors, right, result = (_blocks(t) for t in (L.expand(*B.shape[:-2], *L.shape[-2:]), B, A))
        norms = A.real.new_empty(len(result), A.shape[-1])

        def work(b: slice) -> None:
            torch.linalg.solve_triangular(factors[b], right[b], upper=False, out=result[b])
            if alive is not None:
                result[b] *= alive[b, None, None]
            torch.linalg.vector_norm(result[b], dim=-2, out=norms[b])

        in_blocks(work, len(result), A.shape[-2])
        ctx.save_for_backward(L, A)
        ctx.alive, ctx.shape = alive, carrier.shape
        return A, norms.square_().sum(0)

    @staticmethod
    @first_order
    def backward(
        ctx: Any, gA: Tensor | None, by_squares: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        L, A = ctx.saved_tensors
        if gA is None and by_squares is None:
            return None, None, None, None
        P = _unfilled(A, A.shape[-2]) if ctx.needs_input_grad[0] else None
        gB = torch.empty_like(A) if ctx.needs_input_grad[1] else None
        factors, features = _blocks(L.expand(*A.shape[:-2], *L.shape[-2:])), _blocks(A)
        by_features = None if gA is None else _blocks(gA)
        twice = None if by_squares is None else 2 * by_squares

        def work(b: slice) -> None:
            a = features[b]
            g = torch.empty_like(a) if gB is None else _blocks(gB)[b]
            if by_features is not None and twice is not None:
                torch.addcmul(by_features[b], a, twice.to(a.dtype), out=g)
            elif twice is not None:
                g.copy_(a * twice)
            elif by_features is not None:
                g.copy_(by_features[b])
            if ctx.alive is not None:
                g *= ctx.alive[b, None, None]
            if P is not None:
                lower_product(g, a, _blocks(P)[b])
            if gB is not None:
                torch.linalg.solve_triangular(factors[b].mH, g, upper=True, out=g)

        in_blocks(work, len(features), A.shape[-2])
        return None if P is None else P.sum_to_size(ctx.shape), gB, None, None


def _blocks(t: Tensor) -> Tensor:
    """A batch of matrices with one axis before the last two; a view."""
    return t[None] if t.dim() == 2 else t.flatten(0, -3)


def _unfilled(A: Tensor, m: int) -> Tensor:
    """Memory for a lower triangle. The rest is never read, except by PyTorch's anomaly detection, which needs zeros."""
    return A.new_zeros(*A.shape[:-1], m) if torch.is_anomaly_enabled() else A.new_empty(*A.shape[:-1], m)


def lower_product(A: Tensor, B: Tensor, out: Tensor | None = None) -> Tensor:
    """The lower triangle of A B^H [..., m, m], computed in slabs of rows. Entries above it are undefined."""
    m = A.shape[-2]
    if out is None:
        out = _unfilled(A, m)
    slabs = _slabs(m) if m >= LARGE else [0, m]
    for first, last in pairwise(slabs):
        out[..., first:last, :last] = A[..., first:last, :] @ B[..., :last, :].mH
    return out


def symmetric_product(A: Tensor) -> Tensor:
    """A A' [..., m, m] for real A, at little more than half the work.

    Examples:
        >>> import torch
        >>> symmetric_product(torch.tensor([[1.0, 2.0]]))
        tensor([[5.]])
    """
    out = lower_product(A, A)
    if A.shape[-2] >= LARGE:
        for first, last in pairwise(_slabs(A.shape[-2])):
            out[..., :first, first:last] = out[..., first:last, :first].mT
    return out


def _slabs(m: int) -> list[int]:
    """The ends of slabs of rows: four slabs, or more of 256 rows."""
    count = max(4, m // 256)
    return [m * k // count for k in range(count + 1)]


def cholesky(K: Tensor, shift: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The float64 factors and LAPACK's info for the lower triangles of K [..., m, m]; `shift` [...] is added to diagonals."""
    L = torch.empty(K.shape, dtype=torch.complex128 if K.is_complex() else torch.float64, device=K.device)
    info = torch.zeros(K.shape[:-2], dtype=torch.int32, device=K.device)
    matrices, factors, codes = _blocks(K), _blocks(L), info.view(-1)
    shifts = None if shift is None else shift.reshape(-1, 1)

    def work(b: slice) -> None:
        block = factors[b].copy_(matrices[b])
        if shifts is not None:
            block.diagonal(dim1=-2, dim2=-1).add_(shifts[b])
        factorise(block, codes[b])

    in_blocks(work, len(matrices), K.shape[-1])
    return L, info


def factorise(K: Tensor, info: Tensor) -> None:
    """Overwrite K [blocks, m, m] with the Cholesky factors of its lower triangles, and `info` [blocks] with LAPACK's info."""
    routine = potrf(K.dtype) if K.device.type == "cpu" and K.shape[-1] >= LARGE else None
    if routine is None:
        L, codes = torch.linalg.cholesky_ex(K)
        K.copy_(L)
        info.copy_(codes)
        return
    for b in range(len(K)):
        info[b] = routine(K[b])
    K.tril_()


def converted(L: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices [..., m, n] in another precision, converted in parallel."""
    if L.dtype == dtype:
        return L
    out = torch.empty(L.shape, dtype=dtype, device=L.device)
    source, target = _blocks(L), _blocks(out)

    def work(b: slice) -> None:
        target[b] = source[b]

    in_blocks(work, len(source), L.shape[-2])
    return out


def inverse_factor(C: Tensor) -> Tensor:
    """C^{-1} of lower triangular matrices [..., m, m]."""
    eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device).expand_as(C)
    return torch.linalg.solve_triangular(C, eye, upper=False)


def safe_cholesky(K: Tensor, variance: Tensor | float, what: str = "inducing inputs") -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors, in float64 or complex128, of Hermitian matrices [..., m, m], and the jitter used [...].

    The jitter is absolute: 10 eps(dtype) times `variance`, the typical k(z, z) of the *whole* kernel. So the features of a block
    with little energy vanish; jitter relative to the diagonal of the block would turn rounding errors into features. If the
    factorisation of a block fails, its jitter is multiplied by ten.
    """
    real = torch.finfo(K.dtype)
    scale = float(torch.as_tensor(variance, device=K.device).detach().double().max())
    if not (bool(torch.isfinite(K.sum())) and scale > 0 and scale < float("inf")):
        raise NotPositiveDefiniteError(
            f"the kernel matrix of the {what} has NaN or infinite entries ({K.dtype}): a hyper-parameter is too large or too "
            "small. Lower the learning rate, or standardise the inputs and targets."
        )
    jitter = torch.full(K.shape[:-2], _ROUNDINGS * float(real.eps) * scale, dtype=torch.float64, device=K.device)
    while True:
        L, info = cholesky(K, jitter)
        failed = info != 0
        if not bool(failed.any()):
            return L, jitter
        jitter = torch.where(failed, 10 * jitter, jitter)
        if float(jitter.max()) > _LIMIT * scale:
            block = tuple(failed.nonzero()[0].tolist())
            raise NotPositiveDefiniteError(
                f"block {block} of the kernel matrix of the {what} has no Cholesky factor, computed in {real.dtype} with "
                f"jitter up to {float(jitter.max()) / 10:.1e}. Usually two inducing inputs are equal, or on one orbit of the "
                "action: fold them into a fundamental domain and drop duplicates (harmonicgp.inducing does both), use fewer "
                "of them, or compute in float64."
            )


def conjugate_gradients(
    matvec: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor],
    x0: Tensor | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
) -> tuple[Tensor, int]:
    """Solve H x = b for positive definite H and b [..., n], one system for each index of the leading axes.

    Returns x and the number of iterations. It stops when the norm of every residual is below `tolerance` times that of its
    right-hand side. The quadratic form decreases in every iteration, so that x is never worse than x0.

    Examples:
        >>> import torch
        >>> x, iterations = conjugate_gradients(lambda v: 2 * v, torch.ones(1, 3), lambda v: v)
        >>> x
        tensor([[0.5000, 0.5000, 0.5000]])
    """
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    r = b - matvec(x) if x0 is not None else b.clone()
    goal = tolerance * b.norm(dim=-1, keepdim=True)
    z = precondition(r)
    p, rz = z.clone(), (r * z).sum(-1, keepdim=True)
    for iteration in range(max_iterations):
        unsolved = r.norm(dim=-1, keepdim=True) > goal
        if not bool(unsolved.any()):
            return x, iteration
        Hp = matvec(p)
        curvature = (p * Hp).sum(-1, keepdim=True)
        active = unsolved & (curvature > 0)
        if not bool(active.any()):
            return x, iteration
        alpha = torch.where(active, rz / curvature.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(rz))
        x = x + alpha * p
        r = r - alpha * Hp
        z = precondition(r)
        rz_new = (r * z).sum(-1, keepdim=True)
        p = z + torch.where(rz > 0, rz_new / rz.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(rz)) * p
        rz = rz_new
    return x, max_iterations
