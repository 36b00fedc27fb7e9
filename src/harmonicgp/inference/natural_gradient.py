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

from harmonicgp.features.base import Stacks
from harmonicgp.inference.posterior import Posterior, arrange
from harmonicgp.linalg import conjugate_gradients


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
    for a, Lambda in zip(stacks, posterior.precisions, strict=True):
        weighted = a * (rho * scale * lam_precision)[:, None, None, :].to(a.dtype)  # [P, blocks, f, B]
        new = (1 - rho) * Lambda + (weighted @ a.mT).to(Lambda.dtype)
        new.diagonal(dim1=-2, dim2=-1).add_(rho)
        precisions.append(new)
    factors = tuple(torch.linalg.cholesky(Lambda) for Lambda in precisions)

    means, old = posterior.means, posterior.precisions
    feature_mean = sum(torch.einsum("bfn,pbf->pn", a, mu.to(a.dtype)) for a, mu in zip(stacks, means, strict=True))
    target = scale * (g.detach() + lam * feature_mean)  # [P, B]
    rhs = [
        (1 - rho) * (Lambda @ mu[..., None])[..., 0] + rho * torch.einsum("bfn,pn->pbf", a, target.to(a.dtype)).double()
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
        coupled = sum(torch.einsum("bfn,pbf->pn", a, u.to(a.dtype)) for a, u in zip(stacks, parts, strict=True))
        coupled = (rho * scale) * lam * coupled
        return pack([
            (1 - rho) * (Lambda @ u[..., None])[..., 0] + rho * u + torch.einsum("bfn,pn->pbf", a, coupled.to(a.dtype)).double()
            for a, u, Lambda in zip(stacks, parts, old, strict=True)
        ])  # fmt: skip

    def precondition(v: Tensor) -> Tensor:
        return pack([
            torch.cholesky_solve(u[..., None], C.expand(*u.shape[:2], *C.shape[2:]))[..., 0]
            for u, C in zip(unpack(v), factors, strict=True)
        ])  # fmt: skip

    solution, _ = conjugate_gradients(matvec, pack(rhs), precondition, pack(list(means)), tolerance, max_iterations)
    return Posterior(posterior.family, tuple(unpack(solution)), tuple(precisions), factors)
