"""One Cholesky for the whole library, with rules for jitter, and conjugate gradients for several systems at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Jitter starts at this many roundings of the dtype in which the matrix was computed.
_ROUNDINGS = 10.0
#: and is given up above this share of the kernel's own variance.
_LIMIT = 1e-2


class NotPositiveDefiniteError(ValueError):
    """A kernel matrix has no Cholesky factor; the message says which, and what to do."""


def safe_cholesky(K: Tensor, variance: Tensor | float, what: str = "inducing inputs") -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors, in float64 or complex128, of Hermitian matrices [..., m, m], and the jitter used [...].

    Jitter is absolute: 10 eps(dtype) times `variance`, the typical k(z, z) of the *whole* kernel. A block of little energy
    then gets features that vanish; jitter relative to the block's own diagonal would blow its rounding up to features.
    It is raised tenfold, for those blocks only, where the factorisation fails.
    """
    real = torch.finfo(K.dtype)
    scale = float(torch.as_tensor(variance).detach().double().max())
    if not (torch.isfinite(K).all() and scale > 0 and scale < float("inf")):
        raise NotPositiveDefiniteError(
            f"the kernel matrix of the {what} has NaN or infinite entries ({K.dtype}): a hyper-parameter has left the "
            "range of numbers. Lower the learning rate, or standardise the inputs and targets."
        )
    wide = torch.complex128 if K.is_complex() else torch.float64
    K = (0.5 * (K + K.mH)).to(wide)
    eye = torch.eye(K.shape[-1], dtype=torch.float64, device=K.device)
    jitter = torch.full(K.shape[:-2], _ROUNDINGS * float(real.eps) * scale, dtype=torch.float64, device=K.device)
    while True:
        L, info = torch.linalg.cholesky_ex(K + jitter[..., None, None] * eye)
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
