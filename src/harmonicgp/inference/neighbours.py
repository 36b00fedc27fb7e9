"""Prediction with neighbours: f at a new point from the features and from the nearest rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from harmonicgp.features.evaluation import DenseEvaluation
from harmonicgp.features.neighbours import Conditioned, Neighbourhood
from harmonicgp.inference.prediction import Predictor, SamplePaths

#: Points at a time: those of a piece are near each other and share neighbours.
PIECE = 1024


@dataclass(frozen=True, kw_only=True)
class NeighbourPredictor(Predictor):
    """f at new points: mean a~'mu + w'y_N, variance a~' Lambda^{-1} a~ plus that of the residual given the neighbours."""

    neighbourhood: Neighbourhood

    @classmethod
    def of(cls, predictor: Predictor, neighbourhood: Neighbourhood) -> NeighbourPredictor:
        """A predictor with neighbours for its residual."""
        values = {f.name: getattr(predictor, f.name) for f in fields(Predictor)}
        return cls(**values, neighbourhood=neighbourhood)

    @torch.no_grad()
    def marginals(self, x: Any) -> tuple[Tensor, Tensor]:
        """The mean and the variance of f, both [P, n]."""

        def moments(_: Tensor, given: Conditioned) -> Tensor:
            mean, variance = self.posterior.moments(given.evaluation)
            return torch.stack((mean + given.offset, variance + given.evaluation.residual.variance))

        mean, variance = self.gathered(x, moments)
        return mean + self.prior_mean(x), variance

    @torch.no_grad()
    def means(self, x: Any) -> Tensor:
        """The mean alone, [P, n]."""
        u = self.posterior.mean_vector()
        return self.gathered(x, lambda _, given: given.evaluation.project(u) + given.offset) + self.prior_mean(x)

    @torch.no_grad()
    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [P, n] and the covariance [P, n, n] of f.

        Given v, the error of f at a point is e - w'(e_N + noise). The covariance of two such errors is computed from the kernel
        itself, so nothing is approximated beyond the choice of the neighbours.
        """
        self.check(x)
        rows, parts = zip(*self.neighbourhood.pieces(self.whitened, x, PIECE), strict=True)
        order = torch.cat(rows).argsort()
        A = torch.cat([given.evaluation.flat() for given in parts], 1)[:, order].double()
        offset = torch.cat([given.offset for given in parts], 1)[:, order]
        mean = (self.posterior.mean_vector() @ A).to(x.dtype) + offset + self.prior_mean(x)
        numbers = torch.cat([given.neighbours.rows for given in parts])[order]
        weights = torch.cat([given.weights for given in parts])[order]
        total = self._error_covariance(x, numbers, weights) - A.mT @ A + self.posterior.explained(A)
        return mean, (0.5 * (total + total.mT)).expand(self.posterior.n_outputs, len(x), len(x))

    def _error_covariance(self, x: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
        """Of f(x) - w'y_N under the prior, [n, n], for neighbours' numbers and weights [n, k]."""
        near, place = torch.unique(numbers, return_inverse=True)
        observed, view = self.neighbourhood.observed.part(near), self.whitened.view
        W = torch.zeros(len(x), len(near), dtype=torch.float64, device=x.device).scatter_add_(1, place, weights)
        cross = W @ view.zx(observed.X.double(), x.double())
        mixed = torch.cat([view.zx(part, observed.X.double()) @ W.mT for part in observed.X.double().split(PIECE)])
        return view.zx(x.double(), x.double()) - cross - cross.mT + W @ mixed + (W * observed.noise.double()) @ W.mT

    @torch.no_grad()
    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means and variances of the parts of f, [P, blocks + 1, n], and the variance of the remaining residual, [n].

        The last part is that of the neighbours, w'(y_N - A_N'v). The means add up to that of f (without the mean function). The
        parts are correlated.
        """
        self.check(x)
        order = self.features.block_order
        blocks = len(order)

        def parts(rows: Tensor, given: Conditioned) -> Tensor:
            evaluation = self.whitened.dense(x[rows])
            mean, variance = (t[:, order] for t in self.posterior.components(evaluation))
            mixed = tuple(a - b for a, b in zip(evaluation.stacks, given.evaluation.stacks, strict=True))  # A_N w
            near, spread = self.posterior.moments(DenseEvaluation(mixed, evaluation.residual))
            left = given.evaluation.residual.variance.expand_as(near)
            return torch.cat((mean, (given.offset - near)[:, None], variance, spread[:, None], left[:, None]), 1)

        values = self.gathered(x, parts)
        return values[:, : blocks + 1], values[:, blocks + 1 : -1], values[0, -1]

    def paths(self, n_samples: int, seed: int = 0, n_frequencies: int = 2048) -> NeighbourPaths:
        """Functions sampled from the posterior. The result can be called at any points; repeated calls agree.

        The residual is a sample path of the prior by `n_frequencies` random features, corrected by the neighbours.
        """
        generator = torch.Generator().manual_seed(seed)
        paths = self.draw_paths(n_samples, generator, n_frequencies)
        observed = self.neighbourhood.observed
        white = torch.randn(len(paths.update), len(observed), generator=generator, device="cpu", dtype=torch.float64)
        noise = white.to(observed.X) * observed.noise.sqrt()
        prior = torch.cat([paths.prior(part) for part in observed.X.split(PIECE)]).mT
        told = observed.y.repeat(n_samples, 1) - prior - noise
        return NeighbourPaths(self, paths.prior, paths.update, paths.shape, told)

    def gathered(self, x: Any, values: Callable[[Tensor, Conditioned], Tensor]) -> Tensor:
        """Compute values [..., n] of the points x piece by piece, from the points of each piece given their neighbours."""
        self.check(x)
        out: Tensor | None = None
        for rows, given in self.neighbourhood.pieces(self.whitened, x, PIECE):
            piece = values(rows, given)
            if out is None:
                out = piece.new_empty(*piece.shape[:-1], len(x))
            out[..., rows] = piece
        assert out is not None
        return out


@dataclass(frozen=True)
class NeighbourPaths(SamplePaths):
    """Posterior functions by Matheron's rule: f = g + a~'(v - v_g) + w'(y_N - g_N - noise) with g a path of the prior."""

    told: Tensor  #: y - g - noise at the observed rows, [samples P, N]

    @torch.no_grad()
    def __call__(self, x: Any) -> Tensor:
        """The functions at x: [samples, P, n]."""
        predictor: Any = self.predictor

        def values(rows: Tensor, given: Conditioned) -> Tensor:
            return self.prior_at(x[rows]) + given.evaluation.project(self.update) + given.mix(self.told)

        f: Tensor = predictor.gathered(x, values)
        return f.unflatten(0, self.shape) + predictor.prior_mean(x)
