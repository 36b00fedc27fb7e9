"""Natural-gradient steps on all rows at once, from the prior or from an earlier posterior."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.features.base import Whitened
from harmonicgp.features.evaluation import diagonal_blocks, split_coefficients
from harmonicgp.inference.posterior import Posterior
from harmonicgp.training.problem import Problem


@torch.no_grad()
def full_data_step(
    problem: Problem,
    whitened: Whitened,
    posterior: Posterior,
    rho: float = 1.0,
    chunk_size: int = 4096,
    prior: Posterior | None = None,
) -> Posterior:
    """One natural-gradient step on all rows. It is shortened until the bound does not fall, and skipped if no length helps.

    It is the same step as on a batch, with the joint mean solved directly: S = A lambda A' is summed over chunks, one matrix
    [F, F] for each precision. `prior`, an earlier posterior, takes the place of N(0, I).
    """
    P, F = posterior.n_outputs, problem.features.n_features
    C = len(posterior.precisions[0])  # one precision for all outputs under Gaussian noise
    S = torch.zeros(C, F, F, dtype=torch.float64, device=problem.X.device)
    b = torch.zeros(P, F, dtype=torch.float64, device=problem.X.device)
    for part in problem.parts(chunk_size):
        sites = part.sites(posterior, whitened.dense(part.X))
        A = sites.features.flat()
        for c in range(C):
            S[c] += ((A * sites.lam[c]) @ A.mT).double()
        b += ((sites.g + sites.lam * sites.mean) @ A.mT).double()
    S = 0.5 * (S + S.mT)
    if prior is None:
        S.diagonal(dim1=-2, dim2=-1).add_(1.0)
    else:
        precision = prior.dense_precision()
        S += precision
        b += (precision @ prior.mean_vector()[..., None])[..., 0]
    old = posterior.dense_precision()
    before = problem.total(posterior, whitened, chunk_size, prior)
    for _ in range(6):
        candidate = _mixed(posterior, old, S, b, rho)
        if candidate is not None:
            after = problem.total(candidate, whitened, chunk_size, prior)
            if after >= before - 1e-8 * abs(before):
                return candidate
        rho = rho / 4
    return posterior


def absorb(problem: Problem, whitened: Whitened, prior: Posterior, passes: int = 6) -> Posterior:
    """The posterior after new rows, with an earlier posterior as their prior.

    Under Gaussian noise one step is the solution. For one block or a joint posterior it equals the closed form on all rows.
    For several independent blocks, the coupling between blocks from the earlier rows is lost.
    """
    q = prior
    for _ in range(1 if problem.observation.is_gaussian else passes):
        q = full_data_step(problem, whitened, q, prior=prior)
    return q


def _mixed(posterior: Posterior, old: Tensor, S: Tensor, b: Tensor, rho: float) -> Posterior | None:
    """The posterior after a step of length rho; None if its precision cannot be factorised."""
    mu = posterior.mean_vector()
    H = (1 - rho) * old + rho * S
    rhs = (1 - rho) * (old @ mu[..., None])[..., 0] + rho * b
    L, info = torch.linalg.cholesky_ex(H)
    if bool((info != 0).any()) or not torch.isfinite(L).all():
        return None
    new = torch.cholesky_solve(rhs[..., None], L.expand(len(rhs), *L.shape[1:]))[..., 0]
    if posterior.family == "joint":
        return Posterior.from_precisions("joint", [new[:, None]], [H[:, None]])
    shapes = [(m.shape[1], m.shape[2]) for m in posterior.means]
    by_output = [diagonal_blocks(H[c], shapes) for c in range(len(H))]
    precisions = [torch.stack([blocks[i] for blocks in by_output]) for i in range(len(shapes))]
    return Posterior.from_precisions("block", split_coefficients(new, shapes), precisions)
