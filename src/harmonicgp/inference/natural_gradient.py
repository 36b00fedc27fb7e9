"""Natural-gradient steps for any likelihood, in which coupled blocks do not diverge.

With e_n = E_q log p(y_n | f_n), g_n = d e_n / d mean_n and lambda_n = -2 d e_n / d variance_n (clipped at zero),

    Lambda_b <- (1 - rho) Lambda_b + rho (I + N/B sum_n lambda_n a_bn a_bn').

The means of the blocks are coupled by the data. Stepping each by itself is block Jacobi, which diverges for rho above
2 / blocks when the blocks are strongly coupled. Instead the joint mean takes a proximal step: it minimises

    rho (batch estimate of the negative bound, quadratic at q) + (1 - rho)/2 |mu - mu_old|^2 in the metric Lambda_old,

that is, it solves

    [(1 - rho) Lambda_old + rho (I + N/B A lambda A')] mu = (1 - rho) Lambda_old mu_old + rho N/B A (g + lambda A'mu_old)

over all blocks. The block diagonal of this matrix is the new Lambda, so conjugate gradients preconditioned with it take a
few iterations. On full data and under Gaussian noise, where the bound is quadratic, the error shrinks by
1 / (1 + rho/(1-rho) * eigenvalue) in every direction: convergence for every 0 < rho <= 1, whatever the coupling. For other
likelihoods the caller guards the step (`training.problem`). With one block it is the ordinary natural-gradient step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.backend.linalg import conjugate_gradients, factorise, symmetric_product
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.base import Stacks
from harmonicgp.inference.posterior import Posterior, across, arrange


def _back(a: Tensor, values: Tensor, u: Tensor, Lambda: Tensor, rho: float) -> Tensor:
    """a_b values + (1 - rho) Lambda_b u_b, [P, blocks, f] in float64."""
    out, rows = torch.empty_like(u), values.to(a.dtype)

    def work(b: slice) -> None:
        own = (rows.expand(len(a[b]), -1, -1) @ a[b].mT).transpose(0, 1)
        torch.add(own, (Lambda[:, b] @ u[:, b, :, None])[..., 0], alpha=1 - rho, out=out[:, b])

    in_blocks(work, *a.shape[:2])
    return out


def _solved(C: Tensor, u: Tensor) -> Tensor:
    """(C C')^{-1} u in the precision of C, for u [P, blocks, f]."""
    out = torch.empty_like(u)

    def work(b: slice) -> None:
        w = torch.linalg.solve_triangular(C[:, b], u[:, b, :, None].to(C.dtype), upper=False)
        out[:, b] = torch.linalg.solve_triangular(C[:, b].mT, w, upper=True)[..., 0]

    in_blocks(work, *u.shape[1:])
    return out


def _precisions(a: Tensor, Lambda: Tensor, lam: Tensor, scale: float, rho: float) -> tuple[Tensor, Tensor]:
    """(1 - rho) Lambda + rho (I + scale a lambda a') and its Cholesky factor, [P or 1, blocks, f, f]; a is [blocks, f, B]."""
    level = float(lam.flatten()[0])
    even = bool((lam == level).all())  # one noise for all rows, none repeated: no weights
    root = None if even else lam.sqrt()[:, None, None, :].to(a.dtype)
    weight = rho * scale * (level if even else 1.0)
    new, C = torch.empty_like(Lambda), torch.empty_like(Lambda)
    info = torch.zeros(Lambda.shape[:2], dtype=torch.int32)

    def work(b: slice) -> None:
        S = symmetric_product(a[None, b] if root is None else a[b] * root)
        own = torch.mul(Lambda[:, b], 1 - rho, out=new[:, b]).add_(S, alpha=weight)
        own.diagonal(dim1=-2, dim2=-1).add_(rho)
        C[:, b] = own
        for p in range(len(C)):
            factorise(C[p, b], info[p, b])

    in_blocks(work, len(a), a.shape[1])
    if bool(info.any()):
        raise torch.linalg.LinAlgError("a precision has no Cholesky factor: the step was too long.")  # type: ignore[attr-defined]
    return new, C


def natural_gradient_step(
    posterior: Posterior,
    stacks: Stacks,
    g: Tensor,
    lam: Tensor,
    scale: float,
    rho: float,
    max_iterations: int = 12,
    tolerance: float = 1e-3,
) -> Posterior:
    """A new posterior after one step of length rho on a batch.

    `stacks` are the batch's features (no gradient is taken), `g` and `lam` [P, B] the sites at the present posterior,
    `scale` N/B.
    """
    if not 0 < rho <= 1:
        raise ValueError(f"the step length rho must be in (0, 1]; got {rho}.")
    stacks = arrange(tuple(a.detach() for a in stacks), posterior.family)
    lam = lam.detach().clamp_min(0.0)
    lam_precision = lam[: len(posterior.precisions[0])]  # one for all outputs where they share a precision
    new = [
        _precisions(a, Lambda, lam_precision, scale, rho)
        for a, Lambda in zip(stacks, posterior.precisions, strict=True)
    ]
    precisions, factors = (tuple(part) for part in zip(*new, strict=True))

    means, old = posterior.means, posterior.precisions
    feature_mean = across(stacks, means)
    target = scale * (g.detach() + lam * feature_mean)  # [P, B]
    rhs = [_back(a, rho * target, mu, Lambda, rho) for a, mu, Lambda in zip(stacks, means, old, strict=True)]
    if sum(len(a) for a in stacks) == 1:  # one block: its own solve is the joint one
        (b,), (C,) = rhs, factors
        mean = torch.cholesky_solve(b[..., None], C.expand(*b.shape[:2], *C.shape[2:]))[..., 0]
        return Posterior(posterior.family, (mean,), precisions, factors)

    sizes = [mu[0].numel() for mu in means]
    shapes = [mu.shape for mu in means]

    def unpack(v: Tensor) -> list[Tensor]:
        return [part.reshape(shape) for part, shape in zip(v.split(sizes, -1), shapes, strict=True)]

    def pack(parts: list[Tensor]) -> Tensor:
        return torch.cat([part.flatten(1) for part in parts], -1)

    def matvec(v: Tensor) -> Tensor:
        parts = unpack(v)
        coupled = (rho * scale) * lam * across(stacks, parts)
        return pack([
            _back(a, coupled, u, Lambda, rho).add_(u, alpha=rho) for a, u, Lambda in zip(stacks, parts, old, strict=True)
        ])  # fmt: skip

    new_posterior = Posterior(posterior.family, means, precisions, factors)
    halves = new_posterior.factors_in(stacks[0].dtype)  # a preconditioner need not be exact

    def precondition(v: Tensor) -> Tensor:
        return pack([_solved(C, u) for u, C in zip(unpack(v), halves, strict=True)])

    solution, _ = conjugate_gradients(matvec, pack(rhs), precondition, pack(list(means)), tolerance, max_iterations)
    return new_posterior.moved(tuple(unpack(solution)))
