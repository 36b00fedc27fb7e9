"""Placement of inducing inputs, and initial lengthscales."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from harmonicgp._validation import check_points, whole_number
from harmonicgp.actions import Action
from harmonicgp.kernels.functions import KernelLike, kernel_diagonal, kernel_matrix

Placement: TypeAlias = Literal["kmeans", "greedy", "rows", "grid"]
#: The placement uses at most this many random rows.
MAX_ROWS = 100_000


def place(
    X: Tensor,
    m: int,
    method: Placement = "kmeans",
    action: Action | None = None,
    kernel: KernelLike | None = None,
    seed: int = 0,
    counts: Tensor | None = None,
    units: Tensor | None = None,
) -> Tensor:
    """At most m inducing inputs for the rows X [N, d]: [m, d], or fewer if the data have fewer distinct points.

    - "kmeans": cluster centres of at most 10^5 rows; "rows": random rows;
    - "greedy": rows that reduce the kernel's residual variance most (needs `kernel`);
    - "grid": a lattice over the range of each coordinate, for few dimensions.

    With an `action`, for inducing inputs that the blocks share, points are first folded into a fundamental domain, and
    duplicates are dropped: two points of one orbit would make every block singular. `counts` [N] are weights of the rows in
    k-means, and `units` [d] what counts as a distance of one in each column.

    Examples:
        >>> import torch
        >>> place(torch.randn(100, 2), 5).shape
        torch.Size([5, 2])
    """
    check_points(X, "X")
    m = whole_number(m, "the number of inducing points", 1)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    rows, weights = X.detach(), counts
    if len(rows) > MAX_ROWS:
        sample = torch.randperm(len(rows), generator=generator, device="cpu")[:MAX_ROWS].to(rows.device)
        rows, weights = rows[sample], None if weights is None else weights[sample]
    if action is not None:
        rows = action.fold(rows)
    if method == "grid":
        Z = _grid(rows, m)
    else:
        all_rows, rows = rows, distinct(rows)
        if len(rows) <= m:
            return rows
        if method == "kmeans":
            step = torch.ones_like(rows[0]) if units is None else units.to(rows)
            Z = step * _kmeans((rows if weights is None else all_rows) / step, m, seed, weights)
        elif method == "rows":
            Z = rows[torch.randperm(len(rows), generator=generator, device="cpu")[:m].to(rows.device)]
        elif method == "greedy":
            if kernel is None:
                raise ValueError('method="greedy" needs the kernel whose variance is to be reduced.')
            Z = _greedy(rows, m, kernel)
        else:
            raise ValueError(f'method must be "kmeans", "greedy", "rows" or "grid"; got {method!r}.')
    return distinct(action.fold(Z)) if action is not None else distinct(Z)


def distinct(X: Tensor) -> Tensor:
    """The rows of X [N, d] without repetitions (up to a millionth of each column's spread), in their order.

    Examples:
        >>> import torch
        >>> distinct(torch.tensor([[1.0], [0.0], [1.0]]))
        tensor([[1.],
                [0.]])
    """
    low, high = X.amin(0), X.amax(0)
    quarters = torch.tensor([0.25, 0.75], dtype=torch.float64, device=X.device)
    quartiles = torch.quantile(X[:: max(1, len(X) // 10_000)].double(), quarters, dim=0)
    spread = (quartiles[1] - quartiles[0]).to(X)  # robust to outliers
    width = torch.where(spread > 0, spread, high - low).clamp_min(torch.finfo(X.dtype).tiny)
    keys = ((X - low) / width * 1e6).double().clamp_max(9e18).round().to(torch.int64)
    _, first = np.unique(keys.cpu().numpy(), axis=0, return_index=True)
    return X[np.sort(first)]


def _kmeans(rows: Tensor, m: int, seed: int, counts: Tensor | None = None) -> Tensor:
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(m, n_init=1, random_state=seed, batch_size=max(4096, 2 * m), max_iter=20, init="random")
    weights = None if counts is None else counts.double().cpu().numpy()
    return torch.from_numpy(model.fit(rows.double().cpu().numpy(), sample_weight=weights).cluster_centers_).to(rows)


@torch.no_grad()
def _greedy(rows: Tensor, m: int, kernel: KernelLike) -> Tensor:
    """Pivoted Cholesky: each new point is the row with the largest residual variance."""
    residual = kernel_diagonal(kernel, rows, rows).double().clone()
    V = torch.zeros(m, len(rows), dtype=torch.float64, device=rows.device)
    pivots: list[int] = []
    start = float(residual.max())
    for i in range(m):
        j = int(residual.argmax())
        if float(residual[j]) <= 1e-10 * start:
            break
        row = kernel_matrix(kernel, rows[j : j + 1], rows)[0].double() - V[:i, j] @ V[:i]
        V[i] = row / residual[j].sqrt()
        residual = (residual - V[i].square()).clamp_min(0.0)
        residual[j] = 0.0
        pivots.append(j)
    return rows[pivots]


def _grid(rows: Tensor, m: int) -> Tensor:
    """At most m points of a regular lattice over the range of each coordinate."""
    d = rows.shape[-1]
    side = int(m ** (1 / d) + 1e-9)
    if side < 2 and m > 1:
        raise ValueError(
            f'a grid of {m} points in {d} dimensions has fewer than two points per side: use method="kmeans".'
        )
    low, high = rows.amin(0), rows.amax(0)
    # cell centres, so that no point sits on the edge of a fundamental domain
    lines = [
        low[i] + (high[i] - low[i]) * (torch.arange(side, dtype=rows.dtype, device=rows.device) + 0.5) / side
        for i in range(d)
    ]
    return torch.cartesian_prod(*lines).reshape(-1, d)


def median_distance(X: Tensor, seed: int = 0, ard: bool = False) -> Tensor:
    """The median heuristic for lengthscales: the median distance of pairs of at most 1000 rows, [1], or [d] with `ard`.

    With `ard` every coordinate gets the same number, because the distance depends on all coordinates. For a `GlobeKernel`, whose
    lengthscale is in Earth radii, pass `unit_vectors(X)`.

    Examples:
        >>> import torch
        >>> median_distance(torch.tensor([[0.0], [1.0], [3.0]]))
        tensor([2.])
    """
    check_points(X, "X")
    rows = X.detach()
    if len(rows) > 1000:
        generator = torch.Generator(device="cpu").manual_seed(seed)
        rows = rows[torch.randperm(len(rows), generator=generator, device="cpu")[:1000].to(rows.device)]
    distances = torch.pdist(rows.double()) if len(rows) > 1 else rows.new_ones(1, dtype=torch.float64)
    positive = distances[distances > 1e-6 * distances.max()]  # nearly equal rows do not determine a scale
    median = float(positive.median()) if len(positive) else 1.0
    return torch.full((X.shape[-1] if ard else 1,), median, dtype=X.dtype, device=X.device)
