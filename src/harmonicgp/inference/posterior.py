"""Gaussian posteriors over the white coordinates v: their common interface, and the posterior stored by precisions.

    q(v) = prod_b N(mu_b, Lambda_b^{-1})        KL(q || N(0, I)) does not depend on the kernel

Several outputs have independent posteriors and share the features: the first axis of every tensor is the outputs, P. Other
posteriors are in `inference.covariances` (roots of covariances, deviations) and `inference.closed_form` (streamed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from harmonicgp.backend.linalg import converted
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.evaluation import (
    Evaluation,
    Roots,
    Shapes,
    diagonal_blocks,
    join_coefficients,
    split_coefficients,
)

Family: TypeAlias = Literal["block", "joint"]


class VariationalPosterior(Protocol):
    """The interface of all posteriors. Features come as an `Evaluation`, dense or as waves.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> features = SparseFeatures(RBFKernel(), torch.randn(4, 2))
        >>> mean, variance = Posterior.prior(features.shapes).moments(features(torch.randn(5, 2)))
        >>> mean.shape, variance.shape
        (torch.Size([1, 5]), torch.Size([1, 5]))
    """

    @property
    def n_outputs(self) -> int:
        """P."""

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """The mean a'mu and the variance a'S a of sum_b a_b'v_b, both [P, *cells], without the residual."""

    def kl(self) -> Tensor:
        """KL(q || N(0, I)), summed over outputs and blocks."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of v, [n, P, F]."""


def block_solver(factors: Sequence[Tensor], shapes: Shapes) -> Callable[[Tensor], Tensor]:
    """The function v -> Lambda^{-1} v for block-diagonal Lambda, [..., F] to [..., F]."""

    def solve(v: Tensor) -> Tensor:
        parts = []
        for part, C, (blocks, f) in zip(v.split([n * f for n, f in shapes], -1), factors, shapes, strict=True):
            u = part.reshape(-1, blocks, f).permute(1, 2, 0)  # [blocks, f, systems]
            parts.append(torch.cholesky_solve(u, C).permute(2, 0, 1).reshape(*v.shape[:-1], blocks * f))
        return torch.cat(parts, -1)

    return solve


def check_family(family: str) -> None:
    """Raise a `ValueError` unless the family is "block" or "joint"."""
    if family not in ("block", "joint"):
        raise ValueError(f'the posterior family must be "block" or "joint"; got {family!r}.')


def arranged(evaluation: Evaluation, family: Family) -> Evaluation:
    """The features in the blocks of the family: unchanged for "block", one block of all features for "joint"."""
    return evaluation if family == "block" else evaluation.dense().joined()


def _trace(C: Tensor, L: Tensor | None) -> Tensor:
    """|C^{-1} L|^2 summed over all blocks, for C and L [P or 1, blocks, f, f]; L None is the identity."""
    norms = C.new_empty(C.shape[:2])
    eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)

    def work(b: slice) -> None:
        right = eye.expand_as(C[:, b]) if L is None else L[:, b]
        torch.linalg.vector_norm(
            torch.linalg.solve_triangular(C[:, b], right, upper=False), dim=(2, 3), out=norms[:, b]
        )

    in_blocks(work, *C.shape[1:3])
    return norms.square().sum()


@dataclass(frozen=True)
class Posterior:
    """q(v) stored by means and precisions, one entry for each stack of blocks. Immutable: updates return a new one.

    `means[i]` is [P, blocks, f], `precisions[i]` is [P or 1, blocks, f, f] in float64, `factors` are their Cholesky factors.
    If the first axis of a precision is 1, all outputs share it (Gaussian noise). The joint family has one stack of one block.

    Examples:
        >>> import torch
        >>> q = Posterior.prior([(2, 3)], n_outputs=1)
        >>> q.mean_vector().shape, abs(float(q.kl())) < 1e-12
        (torch.Size([1, 6]), True)
    """

    family: Family
    means: tuple[Tensor, ...]
    precisions: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]
    working: tuple[Tensor, ...] = ()  #: the factors in the dtype of the features, if that is not float64

    @classmethod
    def prior(
        cls,
        shapes: Shapes,
        family: Family = "block",
        n_outputs: int = 1,
        shared: bool = False,
        device: torch.device | str = "cpu",
    ) -> Posterior:
        """The prior: mean zero, identity precision. With `shared` the outputs share one precision, as under Gaussian noise."""
        check_family(family)
        if family == "joint":
            shapes = [(1, sum(blocks * size for blocks, size in shapes))]
        means = tuple(torch.zeros(n_outputs, *shape, dtype=torch.float64, device=device) for shape in shapes)
        eyes = tuple(
            torch.eye(size, dtype=torch.float64, device=device).repeat(1 if shared else n_outputs, blocks, 1, 1)
            for blocks, size in shapes
        )
        return cls(family, means, eyes, eyes)

    @classmethod
    def from_precisions(cls, family: Family, means: Sequence[Tensor], precisions: Sequence[Tensor]) -> Posterior:
        """From means and precisions, which are at least the identity."""
        means, precisions = tuple(t.contiguous() for t in means), tuple(t.contiguous() for t in precisions)
        return cls(family, means, precisions, tuple(torch.linalg.cholesky(Lambda) for Lambda in precisions))

    def settled(self) -> Posterior:
        """Factorised again as when a model file is read, so that saving and loading does not change the rounding."""
        return Posterior.from_precisions(self.family, self.means, self.precisions)

    def with_means(self, mu: Tensor) -> Posterior:
        """The same precisions with means mu [P, F]."""
        shapes = [(means.shape[1], means.shape[2]) for means in self.means]
        return replace(self, means=tuple(split_coefficients(mu, shapes)))

    def working_in(self, dtype: torch.dtype) -> Posterior:
        """The same posterior, which also stores its factors in another dtype."""
        present = any(factors and factors[0].dtype == dtype for factors in (self.factors, self.working))
        return self if present else replace(self, working=self.roots(dtype).stacks)

    def roots(self, dtype: torch.dtype) -> Roots:
        """The Cholesky factors in a dtype."""
        for factors in (self.factors, self.working):
            if factors and factors[0].dtype == dtype:
                return Roots(factors, inverted=True)
        return Roots(tuple(converted(C, dtype) for C in self.factors), inverted=True)

    def logdet(self) -> Tensor:
        """log|Lambda|, summed over blocks."""
        return torch.stack([2 * C.diagonal(dim1=-2, dim2=-1).log().sum() for C in self.factors]).sum()

    def solve(self, v: Tensor) -> Tensor:
        """Lambda^{-1} v, [n, F] -> [n, F], for outputs that share their precision."""
        shapes = [(C.shape[1], C.shape[2]) for C in self.factors]
        return block_solver([C[0] for C in self.factors], shapes)(v)

    @property
    def n_outputs(self) -> int:
        """P."""
        return self.means[0].shape[0]

    def natural(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(theta, Lambda) with theta = Lambda mu, the natural parameters."""
        theta = tuple((L @ mu[..., None])[..., 0] for L, mu in zip(self.precisions, self.means, strict=True))
        return theta, self.precisions

    def covariances(self) -> tuple[Tensor, ...]:
        """S_b = Lambda_b^{-1}."""
        return tuple(torch.cholesky_inverse(C) for C in self.factors)

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return join_coefficients(self.means)

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """The mean a'mu and the variance a' Lambda^{-1} a, both [P, *cells]; differentiable in the features."""
        features = arranged(evaluation, self.family)
        mean, variance = features.moments(self.means, self.roots(features.dtype))
        return mean, variance.expand_as(mean)

    def explained(self, A: Tensor) -> Tensor:
        """A' Lambda^{-1} A for features A [F, n] in float64, the part of the features in a covariance: [P or 1, n, n]."""
        total, start = A.new_zeros(1, A.shape[1], A.shape[1]), 0
        for mu, C in zip(self.means, self.factors, strict=True):
            blocks, f = mu.shape[1:]
            a = A[start : start + blocks * f].unflatten(0, (blocks, f))
            R = torch.linalg.solve_triangular(C, a, upper=False)  # [P or 1, blocks, f, n]
            total = total + (R.mT @ R).sum(1)
            start += blocks * f
        return total

    def components(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """The mean and the variance of every block's part of f, [P, blocks, n] each, in the order of the stacks.

        Under a joint posterior the parts are correlated: these variances are marginal and do not add up.
        """
        features, every = evaluation.dense(), slice(None)
        if self.family == "block":
            roots = self.roots(features.dtype)
            parts = [roots.apply(i, every, a).square().sum(2) for i, a in enumerate(features.stacks)]
        else:
            by_output = [diagonal_blocks(S[0], features.shapes) for S in self.covariances()[0]]
            covariances = [torch.stack(stack).to(features.dtype) for stack in zip(*by_output, strict=True)]
            parts = [((S @ a) * a).sum(2) for S, a in zip(covariances, features.stacks, strict=True)]
        variance = torch.cat(parts, 1)
        mean = features.parts(self.mean_vector(), range(variance.shape[1]))
        return mean, variance.expand_as(mean)

    def kl(self, prior: Posterior | None = None) -> Tensor:
        """KL(q || p), summed over outputs and blocks; p is N(0, I), or another posterior of the same shapes."""
        total = self.means[0].new_zeros(())
        for i, (mu, C) in enumerate(zip(self.means, self.factors, strict=True)):
            P = mu.shape[0] // C.shape[0]  # outputs that share a precision
            # with precisions C C' of q and L L' of p the trace is |C^{-1} L|^2
            L = None if prior is None else prior.factors[i].expand_as(C)
            shift = mu if prior is None or L is None else ((mu - prior.means[i])[..., None, :] @ L)[..., 0, :]
            logdet = 2 * C.diagonal(dim1=-2, dim2=-1).log().sum()
            if L is not None:
                logdet = logdet - 2 * L.diagonal(dim1=-2, dim2=-1).log().sum()
            total = total + 0.5 * (shift.square().sum() + P * (_trace(C, L) + logdet - C[..., 0].numel()))
        return total

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of v, [n, P, F]."""
        draws = []
        for mu, C in zip(self.means, self.factors, strict=True):
            white = torch.randn(*mu.shape, n, dtype=mu.dtype, generator=generator, device="cpu").to(mu.device)
            v = torch.linalg.solve_triangular(C.mT.expand(*mu.shape[:2], *C.shape[2:]), white, upper=True)
            draws.append((mu[..., None] + v).flatten(1, 2))
        return torch.cat(draws, 1).movedim(-1, 0)

    def state(self) -> dict[str, Tensor]:
        """Tensors by name, for a checkpoint."""
        kinds = {"mean": self.means, "precision": self.precisions, "factor": self.factors}
        return {f"{kind}.{i}": t for kind, tensors in kinds.items() for i, t in enumerate(tensors)}

    @classmethod
    def from_state(cls, family: Family, tensors: dict[str, Tensor]) -> Posterior:
        """The inverse of `state`."""
        check_family(family)
        n = sum(name.startswith("mean.") for name in tensors)
        means, precisions, factors = (
            tuple(tensors[f"{kind}.{i}"] for i in range(n)) for kind in ("mean", "precision", "factor")
        )
        return cls(family, means, precisions, factors)

    def dense_precision(self) -> Tensor:
        """The precisions as dense matrices [P or 1, F, F], block-diagonal for the block family."""
        blocks = ([block for Lambda in self.precisions for block in Lambda[c]] for c in range(len(self.precisions[0])))
        return torch.stack([torch.block_diag(*parts) for parts in blocks])
