"""A frozen predictor: the factorisations done once, the posterior held, nothing cached behind your back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.features.base import Features, Stacks, Whitened
from harmonicgp.inference.closed_form import chunks
from harmonicgp.inference.posterior import Posterior, flatten
from harmonicgp.inference.sampling import PriorPath

MeanFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Predictor:
    """f at new inputs, from features, a posterior and a mean function, all as they were when it was made.

    Later changes of the features' parameters do not reach it: make a new one.
    """

    features: Features
    whitened: Whitened
    posterior: Posterior
    mean: MeanFunction | None = None
    chunk_size: int = 4096

    @classmethod
    def freeze(cls, features: Features, posterior: Posterior, mean: MeanFunction | None = None,
               chunk_size: int = 4096) -> Predictor:  # fmt: skip
        """Copy the parameters and factorise."""
        whole_number(chunk_size, "chunk_size", 1)
        features = copy.deepcopy(features).requires_grad_(False)
        with torch.no_grad():
            whitened = features.whiten()
        frozen_mean = copy.deepcopy(mean).requires_grad_(False) if isinstance(mean, torch.nn.Module) else mean
        return cls(features, whitened, posterior, frozen_mean, chunk_size)

    @torch.no_grad()
    def marginals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance of f, both [P, n], in chunks of bounded memory."""
        self._check(x)
        order = self.features.by_orbits(x) if len(x) > self.chunk_size else None
        means, variances = [], []
        for rows in chunks(len(x), self.chunk_size):
            part = x[rows] if order is None else x[order[rows]]
            stacks, residual = self.whitened(part)
            mean, variance = self.posterior.moments(stacks)
            means.append(mean + self._mean(part))
            variances.append(variance + residual)
        mean, variance = torch.cat(means, -1), torch.cat(variances, -1)
        if order is None:
            return mean, variance
        back = order.argsort()
        return mean[:, back], variance[:, back]

    @torch.no_grad()
    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [P, n] and the full covariance [P, n, n] of f: a'(Lambda^{-1} - I)a + k(x, x')."""
        self._check(x)
        stacks, _ = self.whitened(x)
        mean, _ = self.posterior.moments(stacks)
        A = flatten(stacks).double()
        K = self.whitened.view.zx(x, x).double() - A.mT @ A
        K = 0.5 * (K + K.mT)
        total = (K + self.posterior.explained(A)).expand(self.posterior.n_outputs, *K.shape)
        return mean + self._mean(x), total

    @torch.no_grad()
    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One posterior for each block: means and variances [P, blocks, n], and the residual variance [n].

        Blocks of harmonic features come in the order of their frequencies (`HarmonicFeatures.block_frequencies`).

        With the block family the parts are independent: means, and variances with the residual, add up to `marginals`
        (without the mean function). Under a joint posterior variances are marginal and do not add up.
        """
        self._check(x)
        order = self.features.block_order
        means, variances, residuals = [], [], []
        for rows in chunks(len(x), self.chunk_size):
            stacks, residual = self.whitened(x[rows])
            parts = self.posterior.components(stacks)
            means.append(torch.cat([mean for mean, _ in parts], 1)[:, order])
            variances.append(torch.cat([variance for _, variance in parts], 1)[:, order])
            residuals.append(residual)
        return torch.cat(means, -1), torch.cat(variances, -1), torch.cat(residuals)

    def paths(self, n_samples: int, seed: int = 0, n_frequencies: int = 2048) -> SamplePaths:
        """Functions drawn from the posterior: call the result at any inputs, as often as you like, consistently.

        The part that the inducing points leave open is a path of the prior by `n_frequencies` random features, so that its
        variance is right to about n_frequencies^(-1/2).
        """
        generator = torch.Generator().manual_seed(seed)
        P = self.posterior.n_outputs
        d = self.features.inducing_dim
        prior = PriorPath.draw(getattr(self.features.view, "kernel", None), d, n_samples * P, generator, n_frequencies)
        with torch.no_grad():
            start = flatten(self.whitened.project(prior))  # what the path already has in the features, [F, samples P]
            v = self.posterior.sample(n_samples, generator).flatten(0, 1)  # [samples P, F]
        return SamplePaths(self, prior, v - start.mT.double(), (n_samples, P))

    def _check(self, x: Tensor) -> None:
        self.features.check(x, "x")
        Z = next(iter(self.features.parameters()), x)
        if Z.dtype != x.dtype:
            raise TypeError(f"x is {x.dtype}; this predictor was fitted in {Z.dtype}: use x.to({Z.dtype}).")

    def _mean(self, x: Tensor) -> Tensor | float:
        return 0.0 if self.mean is None else self.mean(x)


@dataclass(frozen=True)
class SamplePaths:
    """Posterior functions by Matheron's rule: f = prior path + a(x)'(v - the path's own v)."""

    predictor: Predictor
    prior: PriorPath
    update: Tensor  #: [samples P, F]
    shape: tuple[int, int]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """The functions at x [n, d]: [samples, P, n]."""
        self.predictor._check(x)
        values = []
        for rows in chunks(len(x), self.predictor.chunk_size):
            stacks: Stacks = self.predictor.whitened(x[rows]).stacks
            A = flatten(stacks)
            f = self.prior(x[rows]).mT + self.update.to(A.dtype) @ A
            values.append(f.unflatten(0, self.shape) + self.predictor._mean(x[rows]))
        return torch.cat(values, -1)
