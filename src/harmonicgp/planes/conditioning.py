"""Sparse matrices of a Gaussian process given nearest values: a root of the precision, and weights of local predictions.

With weights w and variances d of every row given its k nearest earlier rows, in random order (Vecchia's approximation),

    (K + D)^{-1} ~ S'S,    S = diag(d)^{-1/2} (I - W)

S'S preconditions the exact system, takes part in the likelihood, and whitens mean functions of scattered points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import gpytorch
import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from harmonicgp.backend.threads import side_by_side
from harmonicgp.features import PointKernel
from harmonicgp.features.nearest import NearestIndex, Neighbours, earlier
from harmonicgp.features.neighbours import factor, residual_covariances
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.tables.columns import Array

#: Rows whose neighbours are factorised at a time, each piece by one thread.
PIECE = 1024


@dataclass(frozen=True)
class LocalWeights:
    """Predictions of points from their nearest rows: weights [n, N] and the variances of f that are left."""

    matrix: sparse.csr_array
    variance: Array  #: [n]


@torch.no_grad()
def precision_root(
    kernel: gpytorch.kernels.Kernel, X: Tensor, noise: Tensor, k: int, seed: int, dtype: type = np.float32
) -> sparse.csr_array:
    """S [N, N] with S'S near the inverse of K + diag(noise), for rows X [N, d] in float64; exact for k = N - 1.

    Examples:
        >>> import torch
        >>> X, noise = torch.arange(4.0).double()[:, None], torch.full((4,), 0.1, dtype=torch.float64)
        >>> S = precision_root(gpytorch.kernels.RBFKernel().double(), X, noise, 3, 0, np.float64)
        >>> K = gpytorch.kernels.RBFKernel().double()(X).to_dense().detach() + torch.diag(noise)
        >>> bool(np.allclose((S.T @ S).toarray(), K.inverse().numpy()))
        True
    """
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed), device="cpu")
    rows, errors = X[order], noise[order]
    near = earlier(metric_coordinates(kernel, rows), k)
    weights, variance = _weights(kernel, rows, rows, errors, near)
    root = (variance + errors.numpy()) ** -0.5
    matrix = sparse.eye_array(len(X), format="csr", dtype=dtype) - _matrix(weights.astype(dtype), near, len(X))
    matrix = sparse.diags_array(root.astype(dtype)) @ matrix
    return sparse.csr_array(sparse.csr_array(matrix)[:, np.argsort(order.numpy())])


@torch.no_grad()
def local_weights(
    kernel: gpytorch.kernels.Kernel, X: Tensor, noise: Tensor, at: Tensor, k: int, dtype: type = np.float32
) -> LocalWeights:
    """Simple kriging of points `at` [n, d] from their k nearest rows of X [N, d], all in float64."""
    near = NearestIndex(metric_coordinates(kernel, X)).nearest(metric_coordinates(kernel, at), k)
    weights, variance = _weights(kernel, X, at, noise, near)
    return LocalWeights(_matrix(weights.astype(dtype), near, len(X)), variance)


def _weights(
    kernel: gpytorch.kernels.Kernel, X: Tensor, at: Tensor, noise: Tensor, near: Neighbours
) -> tuple[Array, Array]:
    """Weights [n, k] and variances [n] of points given these rows, in pieces."""
    view = PointKernel(kernel)
    weights, variance = np.empty((len(at), near.k)), np.empty(len(at))

    def work(part: slice) -> None:
        some = near.part(part)
        c = residual_covariances(view, at[part], X[some.rows], some.present)
        C = c.among
        C.diagonal(dim1=-2, dim2=-1).add_(torch.where(some.present, noise[some.rows], 1.0))
        w = torch.cholesky_solve(c.cross[..., None], factor(C, c.rounding))[..., 0]
        weights[part] = w.numpy()
        variance[part] = (c.prior - (w * c.cross).sum(-1)).clamp_min(0.0).numpy()

    side_by_side([partial(work, slice(start, start + PIECE)) for start in range(0, len(at), PIECE)])
    return weights, variance


def _matrix(weights: Array, near: Neighbours, N: int) -> sparse.csr_array:
    """Weights [n, k] as a sparse matrix [n, N]; those of absent neighbours are zero."""
    n, k = weights.shape
    index = np.int32 if max(n * k, N) < 2**31 else np.int64
    starts = np.arange(0, n * k + 1, max(k, 1), dtype=index) if k else np.zeros(n + 1, index)
    return sparse.csr_array((weights.ravel(), near.rows.numpy().astype(index).ravel(), starts), shape=(n, N))
