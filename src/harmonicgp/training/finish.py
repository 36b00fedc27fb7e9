"""Natural-gradient steps on the whole data, for likelihoods without a closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.features.base import Features
from harmonicgp.inference.closed_form import chunks, diagonal_blocks
from harmonicgp.inference.posterior import Posterior, flatten
from harmonicgp.inference.prediction import MeanFunction
from harmonicgp.likelihoods.observation import Observation


@torch.no_grad()
def full_data_step(
    features: Features,
    observation: Observation,
    posterior: Posterior,
    X: Tensor,
    y: Tensor,
    mean: MeanFunction | None = None,
    rho: float = 1.0,
    chunk_size: int = 4096,
) -> tuple[Posterior, float]:
    """One step of length rho on all rows, and sum_n e_n at the posterior it started from.

    The same step as on a batch, with the joint mean solved directly: S = A lambda A' is summed over chunks, one matrix [F, F]
    for each output.
    """
    whitened, P, F = features.whiten(), posterior.n_outputs, features.n_features
    S = torch.zeros(P, F, F, dtype=torch.float64)
    b = torch.zeros(P, F, dtype=torch.float64)
    total = 0.0
    mu = posterior.mean_vector()
    for rows in chunks(len(X), chunk_size):
        stacks, residual = whitened(X[rows])
        m, v = posterior.moments(stacks)
        shifted = m if mean is None else m + mean(X[rows])
        total += float(observation.expected(y[:, rows], shifted, v + residual).sum())
        g, lam = observation.sites(y[:, rows], shifted, v + residual)
        A = flatten(stacks)
        for p in range(P):
            S[p] += ((A * lam[p]) @ A.mT).double()
        b += ((g + lam * m) @ A.mT).double()
    old = torch.stack([_dense(posterior, p) for p in range(P)])
    eye = torch.eye(F, dtype=torch.float64)
    H = (1 - rho) * old + rho * (eye + 0.5 * (S + S.mT))
    rhs = (1 - rho) * (old @ mu[..., None])[..., 0] + rho * b
    new = torch.cholesky_solve(rhs[..., None], torch.linalg.cholesky(H))[..., 0]
    if posterior.family == "joint":
        return Posterior.from_precisions("joint", [new[:, None]], [H[:, None]]), total
    shapes = [(m.shape[1], m.shape[2]) for m in posterior.means]
    by_output = [diagonal_blocks(H[p], shapes) for p in range(P)]
    precisions = [torch.stack([blocks[i] for blocks in by_output]) for i in range(len(shapes))]
    parts = new.split([n * f for n, f in shapes], -1)
    means = [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]
    return Posterior.from_precisions("block", means, precisions), total


def _dense(posterior: Posterior, p: int) -> Tensor:
    """Lambda of one output as a dense matrix, block-diagonal for the block family."""
    blocks = [block for Lambda in posterior.precisions for block in Lambda[min(p, len(Lambda) - 1)]]
    return torch.block_diag(*blocks)
