"""A frozen predictor: the factorisations done once, the posterior held, nothing cached behind your back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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

    whitened: Whitened
    posterior: Posterior
    mean: MeanFunction | None = None
    kernel: object = None  #: for sample paths
    chunk_size: int = 4096

    @classmethod
    def freeze(cls, features: Features, posterior: Posterior, mean: MeanFunction | None = None,
               chunk_size: int = 4096) -> Predictor:  # fmt: skip
        """Copy the parameters and factorise."""
        import copy

        features = copy.deepcopy(features).requires_grad_(False)
        with torch.no_grad():
            whitened = features.whiten()
        frozen_mean = copy.deepcopy(mean).requires_grad_(False) if isinstance(mean, torch.nn.Module) else mean
        return cls(whitened, posterior, frozen_mean, getattr(features.view, "kernel", None), chunk_size)

    @torch.no_grad()
    def marginals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance of f, both [P, n], in chunks of bounded memory."""
        means, variances = [], []
        for rows in chunks(len(x), self.chunk_size):
            stacks, residual = self.whitened(x[rows])
            mean, variance = self.posterior.moments(stacks)
            means.append(mean + self._mean(x[rows]))
            variances.append(variance + residual)
        return torch.cat(means, -1), torch.cat(variances, -1)

    @torch.no_grad()
    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [P, n] and the full covariance [P, n, n] of f: a'(Lambda^{-1} - I)a + k(x, x')."""
        stacks, _ = self.whitened(x)
        mean, _ = self.posterior.moments(stacks)
        A = flatten(stacks).double()
        K = self.whitened.view.zx(x, x).double() - A.mT @ A
        K = 0.5 * (K + K.mT)
        total = K.expand(self.posterior.n_outputs, *K.shape).clone()
        start = 0
        for mu, C in zip(self.posterior.means, self.posterior.factors, strict=True):
            blocks, f = mu.shape[1:]
            a = A[start : start + blocks * f].unflatten(0, (blocks, f))
            R = torch.linalg.solve_triangular(C, a, upper=False)  # [P or 1, blocks, f, n]
            total += (R.mT @ R).sum(1)
            start += blocks * f
        return mean + self._mean(x), total

    @torch.no_grad()
    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One posterior for each block: means and variances [P, blocks, n], and the residual variance [n].

        With the block family the parts are independent: means, and variances with the residual, add up to `marginals`
        (without the mean function). Under a joint posterior variances are marginal and do not add up.
        """
        means, variances, residuals = [], [], []
        for rows in chunks(len(x), self.chunk_size):
            stacks, residual = self.whitened(x[rows])
            parts = self.posterior.components(stacks)
            means.append(torch.cat([mean for mean, _ in parts], 1))
            variances.append(torch.cat([variance for _, variance in parts], 1))
            residuals.append(residual)
        return torch.cat(means, -1), torch.cat(variances, -1), torch.cat(residuals)

    def paths(self, n_samples: int, seed: int = 0, n_frequencies: int = 2048) -> SamplePaths:
        """Functions drawn from the posterior: call the result at any inputs, as often as you like, consistently."""
        generator = torch.Generator().manual_seed(seed)
        P = self.posterior.n_outputs
        prior = PriorPath.draw(self.kernel, n_samples * P, generator, n_frequencies)
        with torch.no_grad():
            start = flatten(self.whitened.project(prior))  # what the path already has in the features, [F, samples P]
            v = self.posterior.sample(n_samples, generator).flatten(0, 1)  # [samples P, F]
        return SamplePaths(self, prior, v - start.mT.double(), (n_samples, P))

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
        values = []
        for rows in chunks(len(x), self.predictor.chunk_size):
            stacks: Stacks = self.predictor.whitened(x[rows]).stacks
            A = flatten(stacks)
            f = self.prior(x[rows]).mT + self.update.to(A.dtype) @ A
            values.append(f.unflatten(0, self.shape) + self.predictor._mean(x[rows]))
        return torch.cat(values, -1)
