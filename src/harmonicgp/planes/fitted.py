"""Fitted fields of three kinds, with one interface: a few values (exact, dense), a grid (exact, waves), and scattered points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from harmonicgp.features.planar import Torus
from harmonicgp.inference.sampling import PriorPath
from harmonicgp.planes.conditioning import LocalWeights, local_weights, precision_root
from harmonicgp.planes.draws import drawn_variance, posterior_errors
from harmonicgp.planes.kriging import (
    DenseSystem,
    GridSystem,
    Kriging,
    exact_covariance,
    exact_moments,
    log_evidence,
)
from harmonicgp.planes.places import FieldData, FieldModel, Places
from harmonicgp.planes.preconditioning import near_inverse

#: Fields with at most this many values are dense.
FEW = 2000
#: Points of a joint sample of a dense field at most.
MOST_JOINT = 5000
#: Neighbours: of local variances, of new points among cells, and of new points among scattered ones.
LOCAL, CELLS, SCATTERED = 16, 24, 40
#: What draws may miss of the variance since the spectrum is clipped, as a share of the noise.
HARMLESS = 0.01
#: Points whose neighbours are held at a time.
CHUNK = 1 << 18

Tick = Callable[[int], object]


class FittedRegion(Protocol):
    """Fields that predict anywhere, in model units, without noise."""

    kind: ClassVar[str]
    data: FieldData
    model: FieldModel

    def moments(self, at: Places | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of f, [P, n]; None is the fitted places."""

    def samples(self, at: Places | None, n: int, seed: int) -> Tensor:
        """Draws from the posterior of f, [n, P, places]."""

    def state(self) -> dict[str, Tensor]:
        """Tensors for a file, besides data and model."""


@dataclass(frozen=True)
class ExactField:
    """A few values: everything is exact, at any place."""

    kind: ClassVar[str] = "exact"
    data: FieldData
    model: FieldModel
    parts: list[tuple[Tensor, Kriging, Tensor]]  #: numbers of fields, their kriging and their values

    @classmethod
    def of(cls, data: FieldData, model: FieldModel) -> ExactField:
        """Factorise every pattern of observed places."""
        parts = []
        for fields, rows, noise in data.patterns():
            some = data.places.part(rows)
            kriging = Kriging.of(DenseSystem.of(model.kernel, some.X, noise + model.s2), some.H)
            parts.append((fields, kriging, data.y[fields][:, rows]))
        return cls(data, model, parts)

    def moments(self, at: Places | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of f, [P, n]."""
        at = self.data.places if at is None else at
        mean = torch.empty(len(self.data.y), len(at.X), dtype=torch.float64, device="cpu")
        variance = torch.empty_like(mean)
        for fields, kriging, y in self.parts:
            mean[fields], variance[fields] = exact_moments(kriging, y, at.X, at.H)
        return mean, variance

    def samples(self, at: Places | None, n: int, seed: int) -> Tensor:
        """Draws from the posterior of f, [n, P, places]."""
        at = self.data.places if at is None else at
        if len(at.X) > MOST_JOINT:
            raise ValueError(
                f"samples at {len(at.X):,} places of a field with few values are limited to {MOST_JOINT:,}: draw fewer "
                "places, or every second cell."
            )
        generator = torch.Generator().manual_seed(seed)
        out = torch.empty(n, len(self.data.y), len(at.X), dtype=torch.float64, device="cpu")
        for fields, kriging, y in self.parts:
            mean, _ = exact_moments(kriging, y, at.X, at.H)
            values, vectors = torch.linalg.eigh(exact_covariance(kriging, at.X, at.H))
            root = vectors * values.clamp_min(0.0).sqrt()
            white = torch.randn(n, len(fields), len(at.X), generator=generator, dtype=torch.float64, device="cpu")
            out[:, fields] = mean + white @ root.mT
        return out

    def log_evidence(self) -> Tensor:
        """log p(y) of every field, [P]."""
        out = torch.empty(len(self.data.y), dtype=torch.float64, device="cpu")
        for fields, kriging, y in self.parts:
            out[fields] = log_evidence(kriging, y)
        return out

    def state(self) -> dict[str, Tensor]:
        """Nothing more: loading factorises again."""
        return {}


@dataclass(frozen=True)
class GridField:
    """A grid: the mean is exact, variances come from draws. New places are kriged from the posterior of the nearest cells."""

    kind: ClassVar[str] = "grid"
    data: FieldData
    model: FieldModel
    mean: Tensor  #: [P, cells]
    variance: Tensor  #: [P, cells]
    beta: Tensor  #: coefficients of the mean function, [P, q]
    error: float = 0.0  #: relative error of standard deviations
    clipped: float = 0.0  #: the share of the spectrum that draws miss
    residual: float = 0.0  #: of conjugate gradients, as a share of the data

    def __post_init__(self) -> None:
        shapes = self.mean.shape == self.variance.shape == self.data.y.shape and self.data.places.shape is not None
        numbers = (self.mean, self.variance, self.beta)
        if not shapes or not all(bool(torch.isfinite(t).all()) for t in numbers) or bool((self.variance < 0).any()):
            raise ValueError("the mean or the variance of a field does not fit its data.")

    @classmethod
    @torch.no_grad()
    def of(cls, data: FieldData, model: FieldModel, n_draws: int, seed: int, tick: Tick = lambda _: None) -> GridField:
        """Solve for the mean and draw for the variance, pattern by pattern."""
        mean, variance = torch.empty_like(data.y), torch.empty_like(data.y)
        beta = torch.empty(len(data.y), data.places.H.shape[1], dtype=torch.float64, device="cpu")
        torus, prior = _toruses(data, model)
        worst, residual = 0.0, 0.0
        for fields, rows, noise in data.patterns():
            kriging = _kriging(torus, prior, data, model, rows, noise, seed)
            for p in fields:
                mean[p], beta[p], left = _mean(kriging, data.places, data.y[p, rows])
                residual = max(residual, left)
            local = local_weights(model.kernel, data.places.X[rows], noise + model.s2, data.places.X, LOCAL)
            drawn = drawn_variance(kriging, prior, data.places.H, local, n_draws, seed, tick)
            variance[fields], worst = drawn.variance, max(worst, drawn.error)
        return cls(data, model, mean, variance, beta, worst, prior.clipped, residual)

    def moments(self, at: Places | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of f, [P, n]; new places take the errors of the nearest cells as fully correlated."""
        if at is None:
            return self.mean, self.variance
        rest = (self.mean - self.beta @ self.data.places.H.mT).numpy().T
        std = self.variance.sqrt().numpy().T
        means, variances = [], []
        for start in range(0, len(at.X), CHUNK):
            some = at.part(slice(start, start + CHUNK))
            local = self._cells_near(some)
            means.append(torch.from_numpy(local.matrix @ rest).mT + self.beta @ some.H.mT)
            variances.append(torch.from_numpy(local.variance + (local.matrix @ std).T ** 2))
        return torch.cat(means, -1), torch.cat(variances, -1)

    def _cells_near(self, at: Places) -> LocalWeights:
        X = self.data.places.X
        return local_weights(self.model.kernel, X, torch.zeros_like(X[:, 0]), at.X, CELLS, np.float64)

    @torch.no_grad()
    def samples(self, at: Places | None, n: int, seed: int) -> Tensor:
        """Draws from the posterior of f, [n, P, places]."""
        draws = torch.empty(n, *self.data.y.shape, dtype=torch.float64, device="cpu")
        torus, prior = _toruses(self.data, self.model)
        for fields, rows, noise in self.data.patterns():
            kriging = _kriging(torus, prior, self.data, self.model, rows, noise, seed)
            for j, p in enumerate(fields):
                errors = posterior_errors(kriging, prior, self.data.places.H, n, seed + 1 + 7919 * j)
                draws[:, p] = self.mean[p] + torch.cat([part for part, _, _ in errors]).double()
        if at is None:
            return draws
        local, generator = self._cells_near(at), torch.Generator().manual_seed(seed)
        trend, own = self.beta @ at.H.mT, self.beta @ self.data.places.H.mT
        near = (local.matrix @ (draws - own).flatten(0, 1).numpy().T).T
        white = torch.randn(n, len(self.beta), len(at.X), generator=generator, dtype=torch.float64, device="cpu")
        root = torch.from_numpy(local.variance).sqrt()
        return torch.from_numpy(near).view_as(white) + trend + root * white

    def state(self) -> dict[str, Tensor]:
        """Moments of the cells."""
        return {"mean": self.mean, "variance": self.variance, "beta": self.beta}


def _toruses(data: FieldData, model: FieldModel) -> tuple[Torus, Torus]:
    """The smallest torus, for products, and one without a negative spectrum, for draws."""
    places = data.places
    assert places.shape is not None
    assert places.steps is not None
    share = HARMLESS * model.s2 / model.prior_variance(places.X)
    products = Torus.smallest(model.kernel, places.shape, places.steps)
    return products, Torus.of(model.kernel, places.shape, places.steps, min(share, 1e-3))


def _kriging(
    torus: Torus, prior: Torus, data: FieldData, model: FieldModel, rows: Tensor, known: Tensor, seed: int
) -> Kriging:
    some, noise = data.places.part(rows), known + model.s2
    return Kriging.of(
        GridSystem(torus, rows, noise, near_inverse(model.kernel, prior, some.X, rows, noise, seed)), some.H
    )


def _mean(kriging: Kriging, places: Places, y: Tensor) -> tuple[Tensor, Tensor, float]:
    """The mean of all cells, the coefficients of the mean function, and the residual of the solution, for values [N]."""
    alpha, beta = kriging.solve(y[None])
    system = kriging.system
    assert isinstance(system, GridSystem)
    residual = system.residual(alpha, y[None] - beta @ kriging.H.mT)
    return system.spread(alpha)[0] + places.H @ beta[0], beta[0], residual


@dataclass(frozen=True)
class ScatteredField:
    """Many scattered points: every prediction is kriged from the nearest values."""

    kind: ClassVar[str] = "scattered"
    data: FieldData
    model: FieldModel
    beta: Tensor  #: coefficients of the mean function, [P, q]
    factor: Tensor  #: the Cholesky factor of their precision, [q, q]

    @classmethod
    @torch.no_grad()
    def of(cls, data: FieldData, model: FieldModel, seed: int) -> ScatteredField:
        """Coefficients of the mean by generalised least squares with the sparse precision."""
        places = data.places
        root = precision_root(model.kernel, places.X, _noise(data, model), LOCAL, seed, np.float64)
        H, y = (torch.from_numpy(root @ t.numpy()) for t in (places.H, data.y.mT.contiguous()))
        L, info = torch.linalg.cholesky_ex(H.mT @ H)
        if int(info):
            raise ValueError('the functions of the mean are not independent on the data: use mean="constant".')
        return cls(data, model, torch.cholesky_solve(H.mT @ y, L).mT, L)

    def moments(self, at: Places | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of f, [P, n]."""
        at = self.data.places if at is None else at
        parts = [self._moments(at.part(slice(i, i + CHUNK))) for i in range(0, len(at.X), CHUNK)]
        mean, variance = (torch.cat([part[i] for part in parts], -1) for i in (0, 1))
        return mean, variance.expand_as(mean)

    def _moments(self, at: Places) -> tuple[Tensor, Tensor]:
        local, places = self._values_near(at), self.data.places
        rest = (self.data.y - self.beta @ places.H.mT).numpy().T
        mean = torch.from_numpy(local.matrix @ rest).mT + self.beta @ at.H.mT
        R = at.H - torch.from_numpy(local.matrix @ places.H.numpy())
        extra = torch.linalg.solve_triangular(self.factor, R.mT, upper=False).square().sum(0)
        return mean, torch.from_numpy(local.variance) + extra

    def _values_near(self, at: Places) -> LocalWeights:
        noise = _noise(self.data, self.model)
        return local_weights(self.model.kernel, self.data.places.X, noise, at.X, SCATTERED, np.float64)

    @torch.no_grad()
    def samples(self, at: Places | None, n: int, seed: int) -> Tensor:
        """Draws by Matheron's rule, from random features of the kernel and the local weights, [n, P, places]."""
        at, places = self.data.places if at is None else at, self.data.places
        generator, P = torch.Generator().manual_seed(seed), len(self.data.y)
        local: sparse.csr_array = self._values_near(at).matrix
        mean, _ = self.moments(at)
        path = PriorPath.draw(self.model.kernel, places.X.shape[1], n * P, generator)
        before, after = (torch.cat([path(x) for x in X.split(8192)]) for X in (places.X, at.X))
        white = torch.randn(before.shape, generator=generator, dtype=torch.float64, device="cpu")
        simulated = before + _noise(self.data, self.model).sqrt()[:, None] * white
        R = at.H - torch.from_numpy(local @ places.H.numpy())
        trend = torch.randn(self.factor.shape[0], n * P, generator=generator, dtype=torch.float64, device="cpu")
        errors = after - torch.from_numpy(local @ simulated.numpy())
        errors += R @ torch.linalg.solve_triangular(self.factor.mT, trend, upper=True)
        return mean + errors.mT.reshape(n, P, -1)

    def state(self) -> dict[str, Tensor]:
        """Coefficients of the mean function."""
        return {"beta": self.beta, "factor": self.factor}


def _noise(data: FieldData, model: FieldModel) -> Tensor:
    """The noise variances of scattered points, [n]."""
    known = torch.zeros_like(data.y[0]) if data.noise is None else data.noise[0]
    return known + model.s2


AnyField = ExactField | GridField | ScatteredField


def fit_places(data: FieldData, model: FieldModel, n_draws: int, seed: int, tick: Tick = lambda _: None) -> AnyField:
    """The fitted field of its kind: dense for few values, else waves for a grid and neighbours for points."""
    most = int(torch.isfinite(data.y).sum(1).max())
    if most <= FEW and (data.places.shape is None or len(data.y) * len(data.places.X) * most**2 <= 4e11):
        return ExactField.of(data, model)
    if data.places.shape is not None:
        return GridField.of(data, model, n_draws, seed, tick)
    return ScatteredField.of(data, model, seed)


def field_from(kind: str, data: FieldData, model: FieldModel, tensors: dict[str, Any]) -> AnyField:
    """The fitted field of a file."""
    if kind == ExactField.kind:
        return ExactField.of(data, model)
    if kind == GridField.kind:
        return GridField(data, model, tensors["mean"], tensors["variance"], tensors["beta"])
    if kind == ScatteredField.kind:
        return ScatteredField(data, model, tensors["beta"], tensors["factor"])
    raise ValueError(f"a field of the kind {kind!r} is not known.")
