"""Kernel and noise of a field by the nearest-neighbour likelihood on a part of its rows.

Each chosen row is given its nearest among the rows before it, in a random order of all: half of the chosen rows come first in
that order and have far neighbours, which tell the long range; the others come anywhere and have near ones, which tell the noise
and the smoothness. The coefficients of the mean are profiled out. Kernels are compared by this likelihood.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from harmonicgp.backend.threads import side_by_side
from harmonicgp.features import PointKernel
from harmonicgp.features.nearest import nearest_below
from harmonicgp.features.neighbours import ResidualCovariances, factor, residual_covariances
from harmonicgp.kernels.functions import kernel_diagonal
from harmonicgp.kernels.metric import metric_coordinates
from harmonicgp.kernels.profiles import log_scale, named_kernel

#: Names of the kernels that "auto" compares.
KERNELS = ("matern12", "matern32", "matern52", "rbf")
#: Rows and neighbours that compare kernels, and those that learn the best one.
FIRST, FINAL = (1500, 15), (6000, 25)
#: Rows among which neighbours are searched at most.
MOST = 200_000
#: Rows whose neighbours are factorised at a time, each piece by one thread.
PIECE = 1024
#: The smallest noise, as a share of the variance of the values.
LEAST_NOISE = 1e-5


@dataclass(frozen=True)
class RegionRows:
    """The observed rows of one field, in model units and float64."""

    X: Tensor  #: [N, d]
    y: Tensor  #: [N]
    noise: Tensor  #: known noise variances, [N]
    H: Tensor  #: the basis of the mean, [N, q]

    def part(self, rows: Tensor) -> RegionRows:
        """Some of the rows."""
        return RegionRows(self.X[rows], self.y[rows], self.noise[rows], self.H[rows])


@dataclass(frozen=True)
class Given:
    """Hyper-parameters that the user gave, in model units; None is learned."""

    lengthscale: Tensor | None = None  #: [d]
    variance: float | None = None
    noise: float | None = None


@dataclass(frozen=True)
class LearnedKernel:
    """A kernel and a noise variance, in model units."""

    name: str  #: of the kernel
    kernel: gpytorch.kernels.Kernel  #: in float64, without gradients
    s2: float
    densities: dict[str, float]  #: of each kernel that was tried: the mean log density of a value given earlier ones

    @property
    def variance(self) -> float:
        """k(x, x)."""
        origin = torch.zeros(1, _columns(self.kernel), dtype=torch.float64, device="cpu")
        return float(kernel_diagonal(self.kernel, origin, origin)[0])


@dataclass(frozen=True)
class _Stencils:
    """Rows with their neighbours."""

    rows: RegionRows  #: [n]
    near: RegionRows  #: [n, k]
    present: Tensor  #: [n, k]

    @classmethod
    def of(
        cls, fields: Sequence[RegionRows], n: int, k: int, metric: Callable[[Tensor], Tensor], seed: int
    ) -> _Stencils:
        """At most n rows of all fields together."""
        parts = [cls._of_one(field, max(n // len(fields), 1), k, metric, seed) for field in fields]
        width = max(part.present.shape[1] for part in parts)
        parts = [part.padded(width) for part in parts]
        joined = [_joined([getattr(part, name) for part in parts]) for name in ("rows", "near")]
        return cls(joined[0], joined[1], torch.cat([part.present for part in parts]))

    @classmethod
    def _of_one(cls, field: RegionRows, n: int, k: int, metric: Callable[[Tensor], Tensor], seed: int) -> _Stencils:
        generator = torch.Generator().manual_seed(seed)
        rows = field.part(torch.randperm(len(field.y), generator=generator, device="cpu")[:MOST])
        N, first = len(rows.y), min(len(rows.y), max(n // 2, 1))
        later = first + torch.randperm(N - first, generator=generator, device="cpu")[: n - first].sort().values
        targets = torch.cat((torch.arange(first, device="cpu"), later))
        points = metric(rows.X)
        table = nearest_below(points, points[targets], targets, k)
        return cls(rows.part(targets), rows.part(table.rows), table.present)

    def padded(self, k: int) -> _Stencils:
        """With k columns of neighbours; the new ones are absent."""
        more = k - self.present.shape[1]
        if not more:
            return self
        n = len(self.present)
        place = torch.cat((torch.arange(k - more, device="cpu"), torch.zeros(more, dtype=torch.long, device="cpu")))
        if more == k:  # no neighbours at all: any numbers do
            wide = RegionRows(*(t[:, None].expand(n, k, *t.shape[1:]) for t in vars(self.rows).values()))
        else:
            wide = RegionRows(*(t[:, place] for t in vars(self.near).values()))
        absent = torch.zeros(n, more, dtype=torch.bool, device="cpu")
        return _Stencils(self.rows, wide, torch.cat((self.present, absent), 1))

    def cost(self, kernel: gpytorch.kernels.Kernel, s2: float) -> _Cost:
        """Minus the mean log density, with the coefficients of the mean at their best."""
        n = len(self.present)
        parts = [slice(start, start + PIECE) for start in range(0, n, PIECE)]
        pieces = side_by_side([partial(self._solve, kernel, s2, part) for part in parts])
        solutions = torch.cat([solution for _, solution in pieces])  # [n, k, 2 + q]
        w = solutions[..., 0]
        cross, prior = (torch.cat([getattr(c, name).detach() for c, _ in pieces]) for name in ("cross", "prior"))
        d = self.rows.noise + s2 + (prior - (w * cross).sum(-1)).clamp_min(0.0)
        y = self.rows.y - (w * self.near.y).sum(-1)
        H = self.rows.H - (w[..., None] * self.near.H).sum(1)
        root = d.rsqrt()
        beta = torch.linalg.lstsq(H * root[:, None], (y * root)[:, None], driver="gelsd").solution[:, 0]
        r = y - H @ beta
        value = (0.5 * d.log() + 0.5 * r.square() / d).mean() + 0.5 * math.log(2 * math.pi)
        v = solutions[..., 1] - solutions[..., 2:] @ beta
        by_d, by_r = 0.5 * (1 / d - (r / d).square()) / n, r / (d * n)
        covariances = [c for c, _ in pieces]
        return _Cost(float(value), covariances, parts, w, v, by_d, by_r)

    def _solve(self, kernel: gpytorch.kernels.Kernel, s2: float, part: slice) -> tuple[ResidualCovariances, Tensor]:
        """Covariances of some rows, with a graph, and C^{-1}(c, y, H) of their neighbours without one."""
        near, present = RegionRows(*(t[part] for t in vars(self.near).values())), self.present[part]
        covariances = residual_covariances(PointKernel(kernel), self.rows.X[part], near.X, present)
        with torch.no_grad():
            C = covariances.among.detach().clone()
            C.diagonal(dim1=-2, dim2=-1).add_(torch.where(present, near.noise + s2, 1.0))
            values = torch.cat((near.y[..., None], near.H), -1) * present[..., None]
            columns = torch.cat((covariances.cross.detach()[..., None], values), -1)
            return covariances, torch.cholesky_solve(columns, factor(C, covariances.rounding))


@dataclass(frozen=True)
class _Cost:
    """The cost with what its gradient needs.

    w = C^{-1}c makes the variance least, and r = y - w'y_N has the same value and slope as y - w'y_N - v'(c - Cw) with w and
    v = C^{-1}(y_N - H_N beta) held fixed. So the gradient needs no derivative of a factorisation.
    """

    value: float
    covariances: list[ResidualCovariances]
    parts: list[slice]
    w: Tensor  #: [n, k]
    v: Tensor  #: [n, k]
    by_d: Tensor  #: the slope of the cost in the variances, [n]
    by_r: Tensor  #: and in the errors, [n]

    def gradient(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """The slopes in parameters of the kernel."""
        parts = side_by_side([partial(self._gradient, i, parameters) for i in range(len(self.parts))])
        return [torch.stack(slopes).sum(0) for slopes in zip(*parts, strict=True)]

    def _gradient(self, i: int, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
        part, c = self.parts[i], self.covariances[i]
        w, v, by_d, by_r = (t[part] for t in (self.w, self.v, self.by_d, self.by_r))
        mixed = by_d[:, None] * w + by_r[:, None] * v
        outer = mixed[:, :, None] * w[:, None, :]
        cross = -mixed - by_d[:, None] * w
        slopes = torch.autograd.grad([c.among, c.cross, c.prior], list(parameters), [outer, cross, by_d])
        return tuple(slopes)

    def noise_gradient(self) -> Tensor:
        """The slope in the noise variance."""
        by_C = (self.by_d * (1 + self.w.square().sum(-1))).sum()
        return by_C + (self.by_r * (self.v * self.w).sum(-1)).sum()


def _joined(parts: Sequence[RegionRows]) -> RegionRows:
    return RegionRows(*(torch.cat([getattr(part, name) for part in parts]) for name in ("X", "y", "noise", "H")))


def learn(
    fields: Sequence[RegionRows],
    kernel: str | gpytorch.kernels.Kernel,
    given: Given,
    seed: int,
    tick: Callable[[int], object] = lambda _: None,
) -> LearnedKernel:
    """Learn a kernel by name ("auto" compares all), or the parameters of a stationary GPyTorch kernel, and the noise.

    `tick(1)` is called after each evaluation of the likelihood.
    """
    extent = torch.stack([field.X.amax(0) - field.X.amin(0) for field in fields]).amax(0)
    extent = torch.where(extent > 0, extent, 1.0)
    names = KERNELS if isinstance(kernel, str) and kernel == "auto" else (kernel,)
    starts = {_name(each): _start(each, extent, _variance(fields), given) for each in names}
    first, found = _Stencils.of(fields, *FIRST, lambda X: (X / extent).float(), seed), {}
    for name, candidate in starts.items():
        _coarse(first, candidate, extent, given)
        found[name] = _minimise(first, candidate, 40 if len(starts) > 1 else 25, tick)
    best = min(found, key=lambda name: found[name])
    model = starts[best]
    final = _Stencils.of(fields, *FINAL, lambda X: metric_coordinates(model.kernel, X), seed)
    _minimise(final, model, 40, tick)
    s2 = float(model.noise.detach().exp())
    densities = {name: -cost for name, cost in found.items()}
    return LearnedKernel(best, model.kernel.requires_grad_(False), s2, densities if len(densities) > 1 else {})


@dataclass(frozen=True)
class _Candidate:
    kernel: gpytorch.kernels.Kernel
    noise: Tensor  #: the logarithm of the noise variance
    least: float  #: the smallest noise variance


def _name(kernel: str | gpytorch.kernels.Kernel) -> str:
    return kernel if isinstance(kernel, str) else type(kernel).__name__


def _variance(fields: Sequence[RegionRows]) -> float:
    """The variance of the values about the mean function, pooled over fields."""
    total, count = 0.0, 0
    for field in fields:
        beta = torch.linalg.lstsq(field.H, field.y[:, None], driver="gelsd").solution
        total, count = total + float((field.y - (field.H @ beta)[:, 0]).square().sum()), count + len(field.y)
    return max(total / count, 1e-12)


def _start(kernel: str | gpytorch.kernels.Kernel, extent: Tensor, variance: float, given: Given) -> _Candidate:
    """A kernel with first values of the parameters; those that are given do not learn."""
    s2 = 0.1 * variance if given.noise is None else max(given.noise, LEAST_NOISE * variance)
    noise = torch.tensor(math.log(s2), dtype=torch.float64, device="cpu", requires_grad=given.noise is None)
    if not isinstance(kernel, str):
        return _Candidate(copy.deepcopy(kernel).double(), noise, LEAST_NOISE * variance)
    base = named_kernel(kernel, ard_num_dims=len(extent), lengthscale_constraint=log_scale())
    scaled = gpytorch.kernels.ScaleKernel(base, outputscale_constraint=log_scale()).double()
    base.lengthscale = 0.1 * extent if given.lengthscale is None else given.lengthscale
    scaled.outputscale = torch.as_tensor(
        variance if given.variance is None else given.variance, dtype=torch.float64, device="cpu"
    )
    base.raw_lengthscale.requires_grad_(given.lengthscale is None)
    scaled.raw_outputscale.requires_grad_(given.variance is None)
    return _Candidate(scaled, noise, LEAST_NOISE * variance)


@torch.no_grad()
def _coarse(stencils: _Stencils, candidate: _Candidate, extent: Tensor, given: Given) -> None:
    """Start from the best of a few lengthscales and noises."""
    base = getattr(candidate.kernel, "base_kernel", None)
    if base is None or given.lengthscale is not None or not hasattr(base, "raw_lengthscale"):
        return
    middle, costs = float(candidate.noise), {}
    extent = extent.expand_as(base.lengthscale) if base.lengthscale.numel() == len(extent) else extent.mean()
    for share in (0.4, 0.13, 0.04, 0.013):
        for less in (0.1, 1.0) if candidate.noise.requires_grad else (1.0,):
            base.lengthscale, noise = share * extent, middle + math.log(less)
            costs[share, noise] = stencils.cost(candidate.kernel, math.exp(noise)).value
    share, noise = min(costs, key=lambda key: costs[key])
    base.lengthscale = share * extent
    candidate.noise.fill_(noise)


def _minimise(stencils: _Stencils, candidate: _Candidate, iterations: int, tick: Callable[[int], object]) -> float:
    """Minimise the cost by L-BFGS from the present values, which are replaced. Returns the smallest cost."""
    learned = [p for p in candidate.kernel.parameters() if p.requires_grad]
    parameters = [*learned, *([candidate.noise] if candidate.noise.requires_grad else [])]
    if not parameters:
        return stencils.cost(candidate.kernel, math.exp(float(candidate.noise))).value

    def assign(values: np.ndarray[Any, Any]) -> None:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), parameters)

    def evaluate(values: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        assign(values)
        s2 = math.exp(float(candidate.noise.detach()))
        cost = stencils.cost(candidate.kernel, s2)
        slopes = [slope.reshape(-1) for slope in cost.gradient(learned)] if learned else []
        if candidate.noise.requires_grad:
            slopes.append(s2 * cost.noise_gradient().reshape(1))
        tick(1)
        return cost.value, torch.cat(slopes).numpy()

    start = torch.nn.utils.parameters_to_vector(parameters).detach().numpy().copy()
    bounds = [(value - 12.0, value + 8.0) for value in start]
    if candidate.noise.requires_grad:
        bounds[-1] = (math.log(candidate.least), start[-1] + 8.0)
    result = minimize(
        evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations, "ftol": 1e-7}
    )
    assign(result.x)
    return float(result.fun)


def _columns(kernel: gpytorch.kernels.Kernel) -> int:
    """The number of inputs that a kernel with one lengthscale for each has; one if it does not say."""
    found = [module.ard_num_dims for module in kernel.modules() if getattr(module, "ard_num_dims", None)]
    return max(found, default=1)
