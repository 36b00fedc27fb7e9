"""Natural-gradient steps for any likelihood that do not diverge for coupled blocks.

With e_n = E_q log p(y_n | f_n), g_n = d e_n / d mean_n and lambda_n = -2 d e_n / d variance_n (clipped at zero),

    Lambda_b <- (1 - rho) Lambda_b + rho (I + N/B sum_n lambda_n a_bn a_bn').

The data couple the means of the blocks. Separate steps would be block Jacobi, which diverges for strongly coupled blocks and rho
above 2 / blocks. Instead the joint mean takes a proximal step: it minimises

    rho (batch estimate of the negative bound, quadratic at q) + (1 - rho)/2 |mu - mu_old|^2 in the metric Lambda_old,

that is, it solves

    [(1 - rho) Lambda_old + rho (I + N/B A lambda A')] mu = (1 - rho) Lambda_old mu_old + rho N/B A (g + lambda A'mu_old)

over all blocks. The block diagonal of this matrix is the new Lambda, so conjugate gradients with this preconditioner take a few
iterations. For full data and Gaussian noise the bound is quadratic, and the error shrinks by 1 / (1 + rho/(1-rho) * eigenvalue)
in every direction: the steps converge for every 0 < rho <= 1 and any coupling. For other likelihoods the caller checks the step
(`training.problem`). With one block it is the ordinary natural-gradient step.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harmonicgp.backend.linalg import conjugate_gradients, factorise, symmetric_product
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.evaluation import DenseEvaluation, join_coefficients, split_coefficients
from harmonicgp.inference.posterior import Posterior


def _back(a: Tensor, values: Tensor, u: Tensor, Lambda: Tensor, rho: float) -> Tensor:
    """a_b values + (1 - rho) Lambda_b u_b, [P, blocks, f] in float64."""
    out, rows = torch.empty_like(u), values.to(a.dtype)

    def work(b: slice) -> None:
        product = (rows.expand(len(a[b]), -1, -1) @ a[b].mT).transpose(0, 1)
        torch.add(product, (Lambda[:, b] @ u[:, b, :, None])[..., 0], alpha=1 - rho, out=out[:, b])

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
    first = float(lam.flatten()[0])
    is_constant = bool((lam == first).all())  # as for one noise and no repeated rows: no weights are needed
    root = None if is_constant else lam.sqrt()[:, None, None, :].to(a.dtype)
    weight = rho * scale * (first if is_constant else 1.0)
    new, C = torch.empty_like(Lambda), torch.empty_like(Lambda)
    info = torch.zeros(Lambda.shape[:2], dtype=torch.int32, device=Lambda.device)

    def work(b: slice) -> None:
        S = symmetric_product(a[None, b] if root is None else a[b] * root)
        mixed = torch.mul(Lambda[:, b], 1 - rho, out=new[:, b]).add_(S, alpha=weight)
        mixed.diagonal(dim1=-2, dim2=-1).add_(rho)
        C[:, b] = mixed
        for p in range(len(C)):
            factorise(C[p, b], info[p, b])

    in_blocks(work, len(a), a.shape[1])
    if bool(info.any()):
        raise torch.linalg.LinAlgError("a precision has no Cholesky factor: the step is too long.")  # type: ignore[attr-defined]
    return new, C


@torch.no_grad()
def natural_gradient_step(
    posterior: Posterior,
    evaluation: DenseEvaluation,
    g: Tensor,
    lam: Tensor,
    scale: float,
    rho: float,
    max_iterations: int = 12,
    tolerance: float = 1e-3,
) -> Posterior:
    """The posterior after one step of length rho on a batch.

    `evaluation` has the features of the batch (without gradients), `g` and `lam` [P, B] are the slopes of the likelihood at the
    current posterior (`Observation.sites`), `scale` is N/B.

    Examples:
        >>> import gpytorch
        >>> from harmonicgp.features import SparseFeatures
        >>> features = SparseFeatures(gpytorch.kernels.RBFKernel(), torch.randn(3, 2))
        >>> q = Posterior.prior(features.shapes, shared=True)
        >>> g, lam = torch.randn(1, 8), torch.ones(1, 8)
        >>> natural_gradient_step(q, features(torch.randn(8, 2)), g, lam, scale=1.0, rho=0.5).mean_vector().shape
        torch.Size([1, 3])
    """
    if not 0 < rho <= 1:
        raise ValueError(f"the step length rho must be in (0, 1]; got {rho}.")
    features = evaluation.detach() if posterior.family == "block" else evaluation.detach().joined()
    stacks, lam = features.stacks, lam.detach().clamp_min(0.0)
    by_precision = lam[: len(posterior.precisions[0])]  # one row if the outputs share a precision
    pairs = [
        _precisions(a, Lambda, by_precision, scale, rho) for a, Lambda in zip(stacks, posterior.precisions, strict=True)
    ]
    precisions, factors = (tuple(part) for part in zip(*pairs, strict=True))

    means, old = posterior.means, posterior.precisions
    mu = posterior.mean_vector()
    target = scale * (g.detach() + lam * features.project(mu))  # [P, B]
    rhs = [_back(a, rho * target, u, Lambda, rho) for a, u, Lambda in zip(stacks, means, old, strict=True)]
    if sum(len(a) for a in stacks) == 1:  # one block: the joint system is that of the block
        (b,), (C,) = rhs, factors
        mean = torch.cholesky_solve(b[..., None], C.expand(*b.shape[:2], *C.shape[2:]))[..., 0]
        return Posterior(posterior.family, (mean,), precisions, factors)

    def matvec(v: Tensor) -> Tensor:
        coupled = (rho * scale) * lam * features.project(v)
        return join_coefficients([
            _back(a, coupled, u, Lambda, rho).add_(u, alpha=rho)
            for a, u, Lambda in zip(stacks, split_coefficients(v, features.shapes), old, strict=True)
        ])  # fmt: skip

    candidate = Posterior(posterior.family, means, precisions, factors).working_in(features.dtype)
    preconditioner = candidate.roots(features.dtype).stacks  # low precision is enough

    def precondition(v: Tensor) -> Tensor:
        parts = zip(split_coefficients(v, features.shapes), preconditioner, strict=True)
        return join_coefficients([_solved(C, u) for u, C in parts])

    solution, _ = conjugate_gradients(matvec, join_coefficients(rhs), precondition, mu, tolerance, max_iterations)
    return replace(candidate, means=tuple(split_coefficients(solution, features.shapes)))
