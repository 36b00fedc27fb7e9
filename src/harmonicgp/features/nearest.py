"""Nearest rows: tables of neighbours, and tiles of rows that are near each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

#: Dimensions of a cloud of points up to which a tree is faster than distances to all points.
TREE_DIMENSIONS = 9.0
#: Points above which distances to all take too long: a tree then finds near ones, not always the nearest.
LARGE = 100_000
#: How much farther than the nearest point a point found there may be, as a share of the distance. In practice: a few per cent.
SLACK = 3.0


@dataclass(frozen=True)
class Neighbours:
    """The numbers of at most k neighbours of each of n rows."""

    rows: Tensor  #: [n, k]; any number where there is no neighbour
    present: Tensor  #: [n, k]

    @property
    def k(self) -> int:
        """The largest number of neighbours."""
        return self.rows.shape[1]

    def part(self, rows: Tensor | slice) -> Neighbours:
        """The neighbours of some of the rows."""
        return Neighbours(self.rows[rows], self.present[rows])


class NearestIndex:
    """A search among points [N, D], built once: by a tree, or by distances to all points where there are many dimensions.

    Above 100,000 points in many dimensions the tree gives points that are near, not always the nearest.

    Examples:
        >>> import torch
        >>> index = NearestIndex(torch.tensor([[0.0], [1.0], [5.0]]))
        >>> index.nearest(torch.tensor([[4.0]]), 2).rows
        tensor([[2, 1]])
    """

    def __init__(self, points: Tensor) -> None:
        self.points = points
        array = np.ascontiguousarray(points.cpu().numpy())
        few = dimensions(array) <= TREE_DIMENSIONS
        self._slack = 0.0 if few else SLACK
        self._tree = KDTree(array, balanced_tree=False) if few or len(array) > LARGE else None
        self._all = NearestNeighbors(algorithm="brute").fit(array)

    def rows(self, queries: Tensor, k: int) -> Tensor:
        """The numbers of the k nearest points to each query [n, D], the nearest first: [n, k]."""
        array = np.ascontiguousarray(queries.cpu().numpy())
        if self._tree is None:
            found = self._all.kneighbors(array, n_neighbors=k, return_distance=False)
        else:
            found = self._tree.query(array, np.arange(1, k + 1), eps=self._slack, workers=-1)[1]
        return torch.from_numpy(np.asarray(found, dtype=np.int64)).to(self.points.device)

    def nearest(self, queries: Tensor, k: int) -> Neighbours:
        """The k nearest points to each query [n, D], or all points if there are fewer."""
        k = min(k, len(self.points))
        if k == 0 or len(queries) == 0:
            return _none(len(queries), k, queries.device)
        rows = self.rows(queries, k)
        return Neighbours(rows, torch.ones_like(rows, dtype=torch.bool))


def dimensions(points: np.ndarray[Any, Any]) -> float:
    """The effective dimension of points [N, D]: (sum of e)^2 / sum of e^2 for the eigenvalues e of their covariance."""
    some = points[:: max(1, len(points) // 10_000)].astype(np.float64)
    values = np.linalg.eigvalsh(np.atleast_2d(np.cov(some.T))) if len(some) > 1 else np.zeros(1)
    return float(values.sum() ** 2 / max(float((values**2).sum()), 1e-300))


def earlier(points: Tensor, k: int, start: int = 0) -> Neighbours:
    """For each point [N, D] from number `start` on, the k nearest of the points before it; the first few have fewer."""
    return nearest_below(points, points[start:], torch.arange(start, len(points), device=points.device), k)


def nearest_below(points: Tensor, queries: Tensor, below: Tensor, k: int, spare: int = 16) -> Neighbours:
    """For each query [n, D], the k nearest of the points [N, D] with a number smaller than `below` [n], which must not decrease.

    Points are in random order. The queries with the largest `below` are searched among all points: about half of the nearest
    ones are allowed. Then the points are halved. Each search finds 2 k + `spare` points, so that most queries get k.
    """
    k = min(k, max(int(below.max()), 0)) if len(below) else 0
    table = _none(len(queries), k, points.device)
    last = len(queries)
    while last > 0 and k > 0:
        stop = int(below[last - 1])
        if stop == 0:
            break
        halved = stop > 4 * k
        begin = int(torch.searchsorted(below, stop // 2)) if halved else 0
        width = min(2 * k + spare, stop) if halved else stop
        found = NearestIndex(points[:stop]).rows(queries[begin:last], width)
        before = found < below[begin:last, None]
        place = before.cumsum(1) - 1
        row, column = (before & (place < k)).nonzero(as_tuple=True)
        table.rows[begin + row, place[row, column]] = found[row, column]
        table.present[begin + row, place[row, column]] = True
        last = begin
    return table


def tiles(points: Tensor, size: int) -> list[Tensor]:
    """The rows of points [N, D] in tiles of at most `size` that are near each other: halves of halves at the median."""
    coordinates = points.cpu().numpy()
    pending, done = [np.arange(len(coordinates))], []
    while pending:
        rows = pending.pop()
        if len(rows) <= size:
            done.append(torch.from_numpy(rows).to(points.device))
            continue
        sample = coordinates[rows if len(rows) < 10_000 else rows[:: len(rows) // 5_000]]
        column = coordinates[rows, int(sample.var(0).argmax())]
        order = np.argpartition(column, len(rows) // 2)
        pending += [rows[order[len(rows) // 2 :]], rows[order[: len(rows) // 2]]]
    return done


def _none(n: int, k: int, device: torch.device) -> Neighbours:
    rows = torch.zeros(n, k, dtype=torch.long, device=device)
    return Neighbours(rows, torch.zeros_like(rows, dtype=torch.bool))
