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

from collections.abc import Sequence

import torch
from torch import Tensor

from harmonicgp.features.base import Stacks
from harmonicgp.inference.posterior import Posterior, arrange
from harmonicgp.linalg import cholesky, conjugate_gradients, symmetric_product


def _forth(stacks: Stacks, parts: Sequence[Tensor]) -> Tensor:
    """sum_b a_b' u_b, [P, n]. Products of matrices, not einsum, which copies features that are laid out by columns."""
    pairs = zip(stacks, parts, strict=True)
    return torch.stack([(u.to(a.dtype).transpose(0, 1) @ a).sum(0) for a, u in pairs]).sum(0)


def _back(a: Tensor, values: Tensor) -> Tensor:
    """a_b values, [P, blocks, f] in float64."""
    return (values.to(a.dtype).expand(len(a), -1, -1) @ a.mT).transpose(0, 1).double()


def _factor(Lambda: Tensor) -> Tensor:
    C, info = cholesky(Lambda)
    if bool(info.any()):
        raise torch.linalg.LinAlgError("a precision has no Cholesky factor: the step was too long.")  # type: ignore[attr-defined]
    return C


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
    precisions = []
    level = float(lam_precision.flatten()[0])
    even = bool((lam_precision == level).all())  # one noise for all rows, none repeated: no weights
    for a, Lambda in zip(stacks, posterior.precisions, strict=True):
        root = a[None] if even else a * lam_precision.sqrt()[:, None, None, :].to(a.dtype)  # [P, blocks, f, B]
        new = torch.add((1 - rho) * Lambda, symmetric_product(root), alpha=rho * scale * (level if even else 1.0))
        new.diagonal(dim1=-2, dim2=-1).add_(rho)
        precisions.append(new)
    factors = tuple(_factor(Lambda) for Lambda in precisions)

    means, old = posterior.means, posterior.precisions
    feature_mean = _forth(stacks, means)
    target = scale * (g.detach() + lam * feature_mean)  # [P, B]
    rhs = [
        (1 - rho) * (Lambda @ mu[..., None])[..., 0] + rho * _back(a, target)
        for a, mu, Lambda in zip(stacks, means, old, strict=True)
    ]
    if sum(len(a) for a in stacks) == 1:  # one block: its own solve is the joint one
        (b,), (C,) = rhs, factors
        mean = torch.cholesky_solve(b[..., None], C.expand(*b.shape[:2], *C.shape[2:]))[..., 0]
        return Posterior(posterior.family, (mean,), tuple(precisions), factors)

    sizes = [mu[0].numel() for mu in means]
    shapes = [mu.shape for mu in means]

    def unpack(v: Tensor) -> list[Tensor]:
        return [part.reshape(shape) for part, shape in zip(v.split(sizes, -1), shapes, strict=True)]

    def pack(parts: list[Tensor]) -> Tensor:
        return torch.cat([part.flatten(1) for part in parts], -1)

    def matvec(v: Tensor) -> Tensor:
        parts = unpack(v)
        coupled = (rho * scale) * lam * _forth(stacks, parts)
        return pack([
            (1 - rho) * (Lambda @ u[..., None])[..., 0] + rho * u + _back(a, coupled)
            for a, u, Lambda in zip(stacks, parts, old, strict=True)
        ])  # fmt: skip

    halves = [C.to(a.dtype) for a, C in zip(stacks, factors, strict=True)]  # a preconditioner need not be exact

    def precondition(v: Tensor) -> Tensor:
        parts = []
        for u, C in zip(unpack(v), halves, strict=True):
            w = torch.linalg.solve_triangular(C, u[..., None].to(C.dtype), upper=False)
            parts.append(torch.linalg.solve_triangular(C.mT, w, upper=True)[..., 0].double())
        return pack(parts)

    solution, _ = conjugate_gradients(matvec, pack(rhs), precondition, pack(list(means)), tolerance, max_iterations)
    return Posterior(posterior.family, tuple(unpack(solution)), tuple(precisions), factors)
