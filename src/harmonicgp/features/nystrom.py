"""The Nystrom residual trace(K - sum_t Q_t): the part of the kernel that the features miss on a set of inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp._validation import check_points, whole_number
from harmonicgp.features.base import Features


@torch.no_grad()
def trace_error(features: Features, X: Tensor, chunk_size: int = 4096) -> float:
    """trace(K - sum_t Q_t) over the rows X [n, d]; zero if the features represent the kernel there exactly.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> X = torch.randn(20, 2)
        >>> trace_error(SparseFeatures(RBFKernel(), X), X) < 1e-3
        True
    """
    check_points(X, "X")
    whitened = features.whiten()
    return float(sum(whitened(part).residual.variance.double().sum() for _, part in features.pieces(X, chunk_size)))


def minimise_trace_error(
    features: Features, X: Tensor, steps: int = 200, learning_rate: float = 0.02, batch_size: int = 3000, seed: int = 0
) -> list[float]:
    """Move the inducing inputs by Adam to reduce the trace error. Returns the mean residual variance at every step.

    X is [n, d]. The inducing inputs are changed in place, to the best ones of all steps. Hyper-parameters stay unchanged.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> X = torch.linspace(-1, 1, 50)[:, None]
        >>> curve = minimise_trace_error(SparseFeatures(RBFKernel(), X[:3]), X, steps=20)
        >>> len(curve), curve[-1] < curve[0]
        (21, True)
    """
    check_points(X, "X")
    steps = whole_number(steps, "steps", 1)
    inducing = features.inducing()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(inducing, lr=learning_rate)
    best, curve = [p.detach().clone() for p in inducing], []
    for step in range(steps + 1):
        rows = (
            torch.randperm(len(X), generator=generator, device="cpu")[:batch_size]
            if batch_size < len(X)
            else slice(None)
        )
        loss = features(X[rows]).residual.variance.mean()
        curve.append(float(loss.detach()))
        if curve[-1] < min(curve[:-1], default=float("inf")):
            best = [p.detach().clone() for p in inducing]
        if step < steps:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        for p, value in zip(inducing, best, strict=True):
            p.copy_(value)
    return curve
