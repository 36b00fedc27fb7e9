"""A frozen predictor: it factorises once, owns a copy of the features, and has no hidden cache."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.features.base import Features, Whitened
from harmonicgp.features.evaluation import Evaluation
from harmonicgp.inference.local_noise import LocalNoise
from harmonicgp.inference.posterior import VariationalPosterior
from harmonicgp.inference.sampling import PriorPath

MeanFunction: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Predictor:
    """f at new inputs, from features, a posterior and a mean function.

    Inputs are what the features take: points [n, d], with results [P, n], or a `GlobeGrid`, with results [P, rows, columns].
    `freeze` copies the features: later changes of their parameters do not change the predictor.

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
    local_noise: LocalNoise | None = None  #: how the noise varies with the inputs, if it does

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

        def moments(part: Any, evaluation: Evaluation) -> Tensor:
            mean, variance = self.posterior.moments(evaluation)
            total = variance + evaluation.residual.variance
            return torch.stack([t.to(mean.dtype) for t in (mean + self.prior_mean(part), total)])

        mean, variance = self.assembled(x, moments)
        return mean, variance

    def noise_variances(self, x: Any) -> Tensor | None:
        """The variance of the noise at x, [P, *cells]; None where it is that of the likelihood."""
        return None if self.local_noise is None else self.local_noise.variances(x)

    @torch.no_grad()
    def means(self, x: Any) -> Tensor:
        """The mean alone, [P, *cells]."""
        u = self.posterior.mean_vector()
        return self.assembled(x, lambda part, evaluation: evaluation.project(u) + self.prior_mean(part))

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

        With the block family the parts are independent: means add up to those of `marginals` (without the mean function), and
        variances with the residual to its variances. Under a joint posterior the variances are marginal and do not add up.
        """
        order = self.features.block_order

        def parts(_: Any, evaluation: Evaluation) -> Tensor:
            mean, variance = (t[:, order] for t in self.posterior.components(evaluation))
            residual = evaluation.residual.variance.to(mean.dtype).expand_as(mean[:, :1])
            return torch.cat((mean, variance, residual), 1)

        values = self.assembled(x, parts)
        return values[:, : len(order)], values[:, len(order) : -1], values[0, -1]

    @torch.no_grad()
    def block_means(self, x: Any, blocks: Sequence[int]) -> Tensor:
        """The mean of single blocks, by their places in the stacks, [P, len(blocks), *cells]."""
        u = self.posterior.mean_vector()
        return self.assembled(x, lambda _, evaluation: evaluation.parts(u, blocks))

    def assembled(self, x: Any, values: Callable[[Any, Evaluation], Tensor]) -> Tensor:
        """Compute values [..., *cells] of the inputs x piece by piece, from each piece and its features."""
        self.check(x)
        cells, out = self.features.cells(x), None
        for place, part in self.features.pieces(x, self.chunk_size):
            piece = values(part, self.whitened(part))
            if out is None:
                out = piece.new_empty(*piece.shape[: -len(cells)], *cells)
            out[(..., *place)] = piece
        assert out is not None
        return out

    def paths(self, n_samples: int, seed: int = 0, n_frequencies: int = 2048) -> SamplePaths:
        """Functions sampled from the posterior. The result can be called at any inputs; repeated calls agree.

        The residual is a sample path of the prior by `n_frequencies` random features. The relative error of its variance is
        about n_frequencies^(-1/2).
        """
        return self.draw_paths(n_samples, torch.Generator().manual_seed(seed), n_frequencies)

    def draw_paths(self, n_samples: int, generator: torch.Generator, n_frequencies: int) -> SamplePaths:
        """The same with a generator."""
        P, d = self.posterior.n_outputs, self.features.inducing_dim
        prior = PriorPath.draw(getattr(self.features.view, "kernel", None), d, n_samples * P, generator, n_frequencies)
        with torch.no_grad():
            prior_v = torch.cat([a.flatten(0, 1) for a in self.whitened.project(prior)])  # [F, samples P]
            v = self.posterior.sample(n_samples, generator).flatten(0, 1)  # [samples P, F]
        return SamplePaths(self, prior, v - prior_v.mT.double(), (n_samples, P))

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
    """Posterior functions by Matheron's rule: f = g + a(x)'(v - v_g), for a path g of the prior with coordinates v_g.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import Posterior
        >>> features = SparseFeatures(RBFKernel(), torch.randn(5, 2))
        >>> paths = Predictor.freeze(features, Posterior.prior(features.shapes)).paths(3, seed=0)
        >>> paths(torch.randn(7, 2)).shape  # [samples, P, n]
        torch.Size([3, 1, 7])
    """

    predictor: Predictor
    prior: PriorPath
    update: Tensor  #: [samples P, F]
    shape: tuple[int, int]  #: (samples, P)

    @torch.no_grad()
    def __call__(self, x: Any) -> Tensor:
        """The functions at x: [samples, P, *cells]."""
        predictor = self.predictor

        def values(part: Any, evaluation: Evaluation) -> Tensor:
            f = self.prior_at(part) + evaluation.project(self.update)
            return f.unflatten(0, self.shape) + predictor.prior_mean(part)

        return predictor.assembled(x, values)

    def prior_at(self, x: Any) -> Tensor:
        """The paths of the prior at inputs, [samples P, *cells]; a grid is evaluated row by row."""
        if isinstance(x, Tensor):
            return self.prior(x).mT
        return torch.stack([self.prior(row).mT for row in x.points()], 1)
