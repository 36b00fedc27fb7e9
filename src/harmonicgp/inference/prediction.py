"""A frozen predictor: the factorisations done once, the posterior held, nothing cached behind your back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.features.base import Features, Whitened
from harmonicgp.inference.posterior import VariationalPosterior
from harmonicgp.inference.sampling import PriorPath

MeanFunction: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Predictor:
    """f at new inputs, from features, a posterior and a mean function, all as they were when it was made.

    Inputs are what the features take: points [n, d], or the grid of a globe. Results have the shape of its cells. Later
    changes of the features' parameters do not reach the predictor: make a new one.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import Posterior
        >>> features = SparseFeatures(RBFKernel(), torch.randn(5, 2))
        >>> predictor = Predictor.freeze(features, Posterior.prior(features.shapes))
        >>> mean, variance = predictor.marginals(torch.randn(7, 2))
        >>> mean.shape, variance.shape
        (torch.Size([1, 7]), torch.Size([1, 7]))
    """

    features: Features
    whitened: Whitened
    posterior: Any  #: a `VariationalPosterior`
    mean: MeanFunction | None = None
    chunk_size: int = 4096

    @classmethod
    def freeze(
        cls,
        features: Features,
        posterior: VariationalPosterior,
        mean: MeanFunction | None = None,
        chunk_size: int = 4096,
    ) -> Predictor:
        """Copy the parameters and factorise."""
        whole_number(chunk_size, "chunk_size", 1)
        features = copy.deepcopy(features).requires_grad_(False)
        with torch.no_grad():
            whitened = features.whiten()
        frozen_mean = copy.deepcopy(mean).requires_grad_(False) if isinstance(mean, torch.nn.Module) else mean
        return cls(features, whitened, posterior, frozen_mean, chunk_size)

    @torch.no_grad()
    def marginals(self, x: Any) -> tuple[Tensor, Tensor]:
        """The mean and the variance of f, both [P, *cells], in pieces of bounded memory."""
        self.check(x)
        out: tuple[Tensor, Tensor] | None = None
        for place, part in self.features.pieces(x, self.chunk_size):
            evaluation = self.whitened(part)
            mean, variance = self.posterior.moments(evaluation)
            variance = variance + evaluation.residual.variance
            if out is None:
                shape = (len(mean), *self.features.cells(x))
                out = mean.new_empty(shape), mean.new_empty(shape)
            out[0][:, *place], out[1][:, *place] = mean + self.prior_mean(part), variance
        assert out is not None
        return out

    @torch.no_grad()
    def means(self, x: Any) -> Tensor:
        """The mean alone, [P, *cells]."""
        self.check(x)
        return self._assembled(x, lambda evaluation: self.posterior.mean(evaluation))

    @torch.no_grad()
    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [P, n] and the full covariance [P, n, n] of f: a'(Lambda^{-1} - I)a + k(x, x')."""
        self.check(x)
        evaluation = self.whitened.dense(x)
        mean, _ = self.posterior.moments(evaluation)
        A = evaluation.flat().double()
        K = self.whitened.view.zx(x, x).double() - A.mT @ A
        K = 0.5 * (K + K.mT)
        total = (K + self.posterior.explained(A)).expand(self.posterior.n_outputs, *K.shape)
        return mean + self.prior_mean(x), total

    @torch.no_grad()
    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One posterior for each block: means and variances [P, blocks, n], and the residual variance [n].

        Blocks of harmonic features come in the order of their frequencies (`HarmonicFeatures.block_frequencies`).

        With the block family the parts are independent: means, and variances with the residual, add up to `marginals`
        (without the mean function). Under a joint posterior variances are marginal and do not add up.
        """
        self.check(x)
        order = self.features.block_order
        means, variances, residuals = [], [], []
        for start in range(0, len(x), self.chunk_size):
            evaluation = self.whitened.dense(x[start : start + self.chunk_size])
            mean, variance = self.posterior.components(evaluation)
            means.append(mean[:, order])
            variances.append(variance[:, order])
            residuals.append(evaluation.residual.variance)
        return torch.cat(means, -1), torch.cat(variances, -1), torch.cat(residuals)

    @torch.no_grad()
    def block_means(self, x: Any, blocks: Sequence[int]) -> Tensor:
        """The mean of single blocks, by their places in the stacks, [P, len(blocks), *cells]."""
        self.check(x)
        u = self.posterior.mean_vector()
        return self._assembled(x, lambda evaluation: evaluation.parts(u, blocks), len(blocks))

    def _assembled(self, x: Any, values: Callable[[Any], Tensor], *middle: int) -> Tensor:
        """Values of all pieces in their places, [P, *middle, *cells]."""
        out: Tensor | None = None
        for place, part in self.features.pieces(x, self.chunk_size):
            piece = values(self.whitened(part))
            if out is None:
                out = piece.new_empty(len(piece), *middle, *self.features.cells(x))
            out[:, *(slice(None) for _ in middle), *place] = piece
        assert out is not None
        return out

    def paths(self, n_samples: int, seed: int = 0, n_frequencies: int = 2048) -> SamplePaths:
        """Functions drawn from the posterior: call the result at any inputs, as often as you like, consistently.

        The part that the inducing points leave open is a path of the prior by `n_frequencies` random features, so that its
        variance is right to about n_frequencies^(-1/2).
        """
        return self.draw_paths(n_samples, torch.Generator().manual_seed(seed), n_frequencies)

    def draw_paths(self, n_samples: int, generator: torch.Generator, n_frequencies: int) -> SamplePaths:
        """The same with a generator."""
        P, d = self.posterior.n_outputs, self.features.inducing_dim
        prior = PriorPath.draw(getattr(self.features.view, "kernel", None), d, n_samples * P, generator, n_frequencies)
        with torch.no_grad():
            start = torch.cat(
                [a.flatten(0, 1) for a in self.whitened.project(prior)]
            )  # the path's own v, [F, samples P]
            v = self.posterior.sample(n_samples, generator).flatten(0, 1)  # [samples P, F]
        return SamplePaths(self, prior, v - start.mT.double(), (n_samples, P))

    def check(self, x: Any) -> None:
        """Raise a clear error unless f can be predicted at x."""
        self.features.check(x, "x")
        Z = next(iter(self.features.parameters()), x)
        if isinstance(x, Tensor) and Z.dtype != x.dtype:
            raise TypeError(f"x is {x.dtype}; this predictor was fitted in {Z.dtype}: use x.to({Z.dtype}).")

    def prior_mean(self, x: Any) -> Tensor | float:
        """The mean function at x, [*cells] or [P, *cells]."""
        return 0.0 if self.mean is None else self.mean(x)


@dataclass(frozen=True)
class SamplePaths:
    """Posterior functions by Matheron's rule: f = prior path + a(x)'(v - the path's own v)."""

    predictor: Predictor
    prior: PriorPath
    update: Tensor  #: [samples P, F]
    shape: tuple[int, int]

    @torch.no_grad()
    def __call__(self, x: Any) -> Tensor:
        """The functions at x: [samples, P, *cells]."""
        predictor = self.predictor
        predictor.check(x)
        out: Tensor | None = None
        for place, part in predictor.features.pieces(x, predictor.chunk_size):
            f = self.prior_at(part) + predictor.whitened(part).project(self.update)
            values = f.unflatten(0, self.shape)
            if predictor.mean is not None:
                values = values + predictor.mean(part)
            if out is None:
                out = values.new_empty(*self.shape, *predictor.features.cells(x))
            out[:, :, *place] = values
        assert out is not None
        return out

    def prior_at(self, x: Any) -> Tensor:
        """The prior's paths at inputs, [samples P, *cells]; a grid is taken row by row."""
        if isinstance(x, Tensor):
            return self.prior(x).mT
        return torch.stack([self.prior(row).mT for row in x.points()], 1)
