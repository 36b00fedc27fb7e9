"""The features of some rows as an operator: all operations of inference on features.

With A [F, n] the features of n rows, stacked over blocks,

    project      A'u                  the part of f with coefficients u
    accumulate   A y                  the transpose
    grams        A_b diag(w) A_b'     block by block
    moments      a'mu and sum_b |R_b a_b|^2, the mean and the variance under a posterior with covariances R_b'R_b

There are two implementations. `DenseEvaluation` stores the features. `WaveEvaluation` (features.waves) stores those of the
parallels of a globe, and the waves along them. The shape of the rows is `cells`: (n,) for a batch, (rows, columns) for a grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend.linalg import symmetric_product
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.residual import Residual

#: (blocks, features of a block) of every stack.
Shapes: TypeAlias = Sequence[tuple[int, int]]
#: Features by blocks, each stack [blocks, features, n].
Stacks: TypeAlias = tuple[Tensor, ...]
#: A function of the number of a stack, a slice of its blocks, and their Gram matrices [blocks, f, f] in float64.
GramWork: TypeAlias = Callable[[int, slice, Tensor], None]


def total_over_blocks(parts: Sequence[Tensor]) -> Tensor:
    """The sum of the contributions of single stacks. Every sum over blocks ends here."""
    return parts[0] if len(parts) == 1 else torch.stack(tuple(parts)).sum(0)


def split_coefficients(u: Tensor, shapes: Shapes) -> list[Tensor]:
    """Coefficients [P, F] by stacks, [P, blocks, f] each."""
    parts = u.split([blocks * f for blocks, f in shapes], -1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]


def join_coefficients(parts: Sequence[Tensor]) -> Tensor:
    """Coefficients by stacks [P, blocks, f] as [P, F]."""
    return torch.cat([part.flatten(1) for part in parts], -1)


def diagonal_blocks(S: Tensor, shapes: Shapes) -> tuple[Tensor, ...]:
    """The diagonal blocks of [F, F], one tensor [blocks, f, f] for each stack."""
    result, start = [], 0
    for blocks, f in shapes:
        places = [slice(start + i * f, start + (i + 1) * f) for i in range(blocks)]
        result.append(torch.stack([S[i, i] for i in places]))
        start += blocks * f
    return tuple(result)


@dataclass(frozen=True)
class Roots:
    """Matrices R_b with R_b'R_b the covariance of a block, stored directly or as Cholesky factors C_b = R_b^{-1}."""

    stacks: tuple[Tensor, ...]  #: [P or 1, blocks, f, f] for every stack
    inverted: bool = False  #: whether the stacks are C_b

    def apply(self, stack: int, blocks: slice, a: Tensor) -> Tensor:
        """R_b a_b for features a [blocks, f, n]: [P or 1, blocks, f, n]."""
        R = self.stacks[stack][:, blocks]
        if not self.inverted:
            return R @ a
        return torch.linalg.solve_triangular(R, a.expand(len(R), *a.shape), upper=False)


class Evaluation(ABC):
    """The features of some rows, and their residual. P counts outputs, F features, and n or `cells` rows.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> evaluation = SparseFeatures(RBFKernel(), torch.randn(4, 2))(torch.randn(5, 2))
        >>> evaluation.project(torch.ones(1, 4)).shape, evaluation.accumulate(torch.ones(1, 5)).shape
        (torch.Size([1, 5]), torch.Size([1, 4]))
    """

    residual: Residual

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """(blocks, features of a block) of every stack."""

    @property
    @abstractmethod
    def cells(self) -> tuple[int, ...]:
        """The shape of the rows."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision of the features."""

    @abstractmethod
    def project(self, u: Tensor) -> Tensor:
        """A'u, [P, F] -> [P, *cells]; without a gradient."""

    @abstractmethod
    def accumulate(self, values: Tensor) -> Tensor:
        """A y, [P, *cells] -> [P, F] in float64; without a gradient."""

    @abstractmethod
    def grams(self, weights: Tensor, work: GramWork) -> None:
        """Call `work` with the matrices A_b diag(w) A_b' of all blocks, for weights w [*cells]; without a gradient."""

    @abstractmethod
    def moments(self, means: Sequence[Tensor], roots: Roots) -> tuple[Tensor, Tensor]:
        """sum_b a_b'mu_b [P, *cells] and sum_b |R_b a_b|^2 [P or 1, *cells]; differentiable in the features."""

    @abstractmethod
    def parts(self, u: Tensor, blocks: Sequence[int]) -> Tensor:
        """a_b'u_b of single blocks, [P, F] -> [P, len(blocks), *cells]; without a gradient."""

    @abstractmethod
    def dense(self) -> DenseEvaluation:
        """The same features, stored, with the rows in one axis."""

    @abstractmethod
    def detach(self) -> Evaluation:
        """The same without a graph."""


@dataclass(frozen=True)
class DenseEvaluation(Evaluation):
    """Stored features, in stacks of blocks of equal size.

    Examples:
        >>> import torch
        >>> from harmonicgp.features import IndependentResidual
        >>> evaluation = DenseEvaluation((torch.ones(2, 3, 5),), IndependentResidual(torch.zeros(5)))
        >>> evaluation.shapes, evaluation.cells, evaluation.project(torch.ones(1, 6))[0, 0]
        (((2, 3),), (5,), tensor(6.))
    """

    stacks: Stacks  #: [blocks, f, n]
    residual: Residual

    @property
    def shapes(self) -> Shapes:
        """(blocks, features of a block) of every stack."""
        return tuple((len(a), a.shape[1]) for a in self.stacks)

    @property
    def cells(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.stacks[0].shape[-1],)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the stacks."""
        return self.stacks[0].dtype

    def flat(self) -> Tensor:
        """All features in one axis, [F, n]."""
        return (
            torch.cat([a.flatten(0, 1) for a in self.stacks]) if len(self.stacks) > 1 else self.stacks[0].flatten(0, 1)
        )

    def joined(self) -> DenseEvaluation:
        """All features as one block, for the joint family."""
        return DenseEvaluation((self.flat()[None],), self.residual)

    def scaled(self, root: float) -> DenseEvaluation:
        """The features times a number, with the same residual."""
        return self if root == 1.0 else DenseEvaluation(tuple(a * root for a in self.stacks), self.residual)

    def dense(self) -> DenseEvaluation:
        """Itself."""
        return self

    @torch.no_grad()
    def project(self, u: Tensor) -> Tensor:
        """A'u."""
        parts = []
        for a, part in zip(self.stacks, split_coefficients(u, self.shapes), strict=True):
            # Matrix products: einsum would copy column-major features.
            product = a.new_empty(len(a), len(u), a.shape[-1])
            in_blocks(partial(_multiply, part.to(a.dtype).transpose(0, 1), a, product), *a.shape[:2])
            parts.append(product.sum(0))
        return total_over_blocks(parts)

    @torch.no_grad()
    def accumulate(self, values: Tensor) -> Tensor:
        """A y."""
        A = self.flat()
        return (values.to(A.dtype) @ A.mT).double()

    @torch.no_grad()
    def grams(self, weights: Tensor, work: GramWork) -> None:
        """The matrices A_b diag(w) A_b', a whole stack at a time."""
        for i, a in enumerate(self.stacks):
            work(i, slice(0, len(a)), symmetric_product(a.double() * weights.double().sqrt()))

    def moments(self, means: Sequence[Tensor], roots: Roots) -> tuple[Tensor, Tensor]:
        """Mean [P, n] and variance [P or 1, n], summed over the stacks."""
        parts = [
            _Moments.apply(a, mu.to(a.dtype), R, roots.inverted)
            for a, mu, R in zip(self.stacks, means, roots.stacks, strict=True)
        ]
        mean, variance = (total_over_blocks([part[i] for part in parts]) for i in (0, 1))
        return mean, variance

    @torch.no_grad()
    def parts(self, u: Tensor, blocks: Sequence[int]) -> Tensor:
        """a_b'u_b of single blocks, [P, len(blocks), n]."""
        pairs = zip(self.stacks, split_coefficients(u, self.shapes), strict=True)
        products = torch.cat([torch.einsum("bfn,pbf->pbn", a, part.to(a.dtype)) for a, part in pairs], 1)
        return products[:, list(blocks)]

    def detach(self) -> DenseEvaluation:
        """The same without a graph."""
        return DenseEvaluation(tuple(a.detach() for a in self.stacks), self.residual)


def _multiply(x: Tensor, y: Tensor, out: Tensor, b: slice) -> None:
    """Write the products x_b y_b of some blocks to `out`."""
    torch.matmul(x[b], y[b], out=out[b])


class _Moments(torch.autograd.Function):
    """Mean and variance of a'v for one stack [blocks, f, n].

    With roots R the backward pass also computes the gradients of mu and R (for the posterior that Adam trains). With Cholesky
    factors C = R^{-1} it computes those of the features only.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, R: Tensor, inverted: bool) -> tuple[Tensor, Tensor]:
        a, mu, R = a.detach(), mu.detach(), R.detach()
        T, f, n = a.shape
        Ra = a.mT.new_empty(len(R), T, n, f).mT  # [P or 1, blocks, f, n], column-major, as LAPACK needs it
        means, norms = a.new_empty(T, len(mu), n), a.new_empty(len(R), T, n)

        def work(b: slice) -> None:
            if inverted:
                torch.linalg.solve_triangular(R[:, b], a[None, b].expand(len(R), -1, -1, -1), upper=False, out=Ra[:, b])
            else:
                torch.matmul(R[:, b], a[None, b], out=Ra[:, b])
            torch.linalg.vector_norm(Ra[:, b], dim=2, out=norms[:, b])
            torch.matmul(mu[:, b].transpose(0, 1), a[b], out=means[b])

        in_blocks(work, T, f)
        ctx.inverted = inverted
        ctx.save_for_backward(mu, R, Ra, a if any(ctx.needs_input_grad[1:3]) else a.new_empty(0))
        return means.sum(0), norms.square_().sum(1)

    @staticmethod
    @first_order
    def backward(ctx: Any, g_mean: Tensor, g_variance: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        mu, R, Ra, a = ctx.saved_tensors
        _, T, f, n = Ra.shape
        ga = Ra.new_empty(T, n, f)  # transposed, as the features are
        twice, by_mean = (2 * g_variance)[:, None, None], g_mean.mT
        by_R = torch.empty_like(R) if ctx.needs_input_grad[2] else None

        def work(b: slice) -> None:
            g = ga[b].mT[None] if len(R) == 1 and ctx.inverted else torch.empty_like(Ra[:, b])
            torch.mul(Ra[:, b], twice, out=g)
            if by_R is not None:
                by_R[:, b] = g @ a[b].mT
            if ctx.inverted:
                torch.linalg.solve_triangular(R[:, b].mT, g, upper=True, out=g)
            else:
                g = R[:, b].mT @ g
            if len(R) > 1 or not ctx.inverted:
                torch.sum(g.mT, 0, out=ga[b])
            ga[b].baddbmm_(by_mean.expand(len(ga[b]), -1, -1), mu[:, b].transpose(0, 1))

        in_blocks(work, T, f)
        by_mu = torch.einsum("bfn,pn->pbf", a, g_mean) if ctx.needs_input_grad[1] else None
        return ga.mT, by_mu, by_R, None
