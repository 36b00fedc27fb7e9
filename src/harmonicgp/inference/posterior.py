"""Gaussian posteriors over the white coordinates v, block by block or jointly.

    q(v) = prod_b N(mu_b, Lambda_b^{-1})        KL(q || N(0, I)) does not depend on the kernel

Several outputs have independent posteriors and share the features: every tensor has the outputs P as its first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from harmonicgp._validation import first_order
from harmonicgp.backend.linalg import converted
from harmonicgp.backend.threads import in_blocks
from harmonicgp.features.base import Stacks

Family: TypeAlias = Literal["block", "joint"]
Shapes: TypeAlias = Sequence[tuple[int, int]]


def arrange(stacks: Stacks, family: Family) -> Stacks:
    """The stacks as the family sees them: as they are, or all features as one block [1, F, n]."""
    if family == "block":
        return stacks
    return (torch.cat([stack.flatten(0, 1) for stack in stacks])[None],)


def flatten(stacks: Stacks) -> Tensor:
    """All features in one axis, [F, n]."""
    return torch.cat([stack.flatten(0, 1) for stack in stacks]) if len(stacks) > 1 else stacks[0].flatten(0, 1)


@torch.no_grad()
def across(stacks: Stacks, parts: Sequence[Tensor]) -> Tensor:
    """sum_b a_b' u_b, [P, n], for u [P, blocks, f], without a gradient.

    Products of matrices, not einsum, which copies features that are laid out by columns.
    """
    total = []
    for a, u in zip(stacks, parts, strict=True):
        rows, each = u.to(a.dtype).transpose(0, 1), a.new_empty(len(a), len(u), a.shape[-1])
        in_blocks(partial(_product, rows, a, each), *a.shape[:2])
        total.append(each.sum(0))
    return torch.stack(total).sum(0)


def _product(x: Tensor, y: Tensor, into: Tensor, b: slice) -> None:
    torch.matmul(x[b], y[b], out=into[b])


class _Moments(torch.autograd.Function):
    """Mean and variance of a'v for one stack, [blocks, f, n]; the posterior is a constant."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, mu: Tensor, C: Tensor) -> tuple[Tensor, Tensor]:
        a = a.detach()
        T, f, n = a.shape
        R = a.mT.new_empty(len(C), T, n, f).mT  # [P or 1, blocks, f, n], laid out as LAPACK wants it
        means, norms = a.new_empty(T, len(mu), n), a.new_empty(len(C), T, n)

        def work(b: slice) -> None:
            torch.linalg.solve_triangular(C[:, b], a[None, b].expand(len(C), -1, -1, -1), upper=False, out=R[:, b])
            torch.linalg.vector_norm(R[:, b], dim=2, out=norms[:, b])
            torch.matmul(mu[:, b].transpose(0, 1), a[b], out=means[b])

        in_blocks(work, T, f)
        ctx.save_for_backward(mu, C, R)
        return means.sum(0), norms.square_().sum(1)

    @staticmethod
    @first_order
    def backward(ctx: Any, g_mean: Tensor, g_variance: Tensor) -> tuple[Tensor, None, None]:
        mu, C, R = ctx.saved_tensors
        _, T, f, n = R.shape
        into = R.new_empty(T, n, f)  # transposed, as the features are
        double, by_mean = (2 * g_variance)[:, None, None], g_mean.mT

        def work(b: slice) -> None:
            own = into[b].mT[None] if len(C) == 1 else torch.empty_like(R[:, b])
            torch.mul(R[:, b], double, out=own)
            torch.linalg.solve_triangular(C[:, b].mT, own, upper=True, out=own)
            if len(C) > 1:
                torch.sum(own.mT, 0, out=into[b])
            into[b].baddbmm_(by_mean.expand(len(into[b]), -1, -1), mu[:, b].transpose(0, 1))

        in_blocks(work, T, f)
        return into.mT, None, None


def _trace(C: Tensor, L: Tensor | None) -> Tensor:
    """|C^{-1} L|^2 over all blocks, [P or 1, blocks, f, f]; L the identity if it is None."""
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
    """q(v) by means and precisions, one entry a stack. A value: updates make new ones.

    `means[i]` is [P, blocks, f], `precisions[i]` [P or 1, blocks, f, f] in float64, `factors` their Cholesky factors. A
    first axis of 1 says that the outputs share one precision (Gaussian noise).
    """

    family: Family
    means: tuple[Tensor, ...]
    precisions: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]

    @classmethod
    def prior(cls, shapes: Shapes, family: Family = "block", n_outputs: int = 1, shared: bool = False) -> Posterior:
        """Q = p: white. `shared`: the outputs have one precision, as under Gaussian noise."""
        if family not in ("block", "joint"):
            raise ValueError(f'the posterior family must be "block" or "joint"; got {family!r}.')
        if family == "joint":
            shapes = [(1, sum(blocks * size for blocks, size in shapes))]
        means = tuple(torch.zeros(n_outputs, *shape, dtype=torch.float64) for shape in shapes)
        eyes = tuple(
            torch.eye(size, dtype=torch.float64).repeat(1 if shared else n_outputs, blocks, 1, 1)
            for blocks, size in shapes
        )
        return cls(family, means, eyes, eyes)

    @classmethod
    def from_precisions(cls, family: Family, means: Sequence[Tensor], precisions: Sequence[Tensor]) -> Posterior:
        """Factorises the precisions, which are at least the identity."""
        means, precisions = (tuple(t.contiguous() for t in each) for each in (means, precisions))
        return cls(family, means, precisions, tuple(torch.linalg.cholesky(Lambda) for Lambda in precisions))

    def settled(self) -> Posterior:
        """Factorised anew, by the one way that a model file is read by: rounding then is the same before and after it.

        How a factor was found, and how it lies in memory, decides the last digits of what is solved with it.
        """
        return Posterior.from_precisions(self.family, self.means, self.precisions)

    @property
    def n_outputs(self) -> int:
        """P."""
        return self.means[0].shape[0]

    def moved(self, means: tuple[Tensor, ...]) -> Posterior:
        """The same precisions about other means."""
        other = Posterior(self.family, means, self.precisions, self.factors)
        other.__dict__["_narrow"] = self.__dict__.setdefault("_narrow", {})
        return other

    def factors_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The factors in another precision, found once."""
        found: dict[torch.dtype, tuple[Tensor, ...]] = self.__dict__.setdefault("_narrow", {})
        if dtype not in found:
            found[dtype] = tuple(converted(C, dtype) for C in self.factors)
        return found[dtype]

    def natural(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(theta, Lambda) with theta = Lambda mu, the natural parameters."""
        theta = tuple((L @ mu[..., None])[..., 0] for L, mu in zip(self.precisions, self.means, strict=True))
        return theta, self.precisions

    def covariances(self) -> tuple[Tensor, ...]:
        """S_b = Lambda_b^{-1}."""
        return tuple(torch.cholesky_inverse(C) for C in self.factors)

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return torch.cat([mu.flatten(1) for mu in self.means], -1)

    def moments(self, stacks: Stacks) -> tuple[Tensor, Tensor]:
        """The mean a'mu and the variance a' Lambda^{-1} a of sum_b a_b'v_b, both [P, n]; the residual is not in it."""
        parts = [
            _Moments.apply(a, mu.to(a.dtype), C)
            for a, mu, C in zip(arrange(stacks, self.family), self.means, self.factors_in(stacks[0].dtype), strict=True)
        ]
        mean = torch.stack([part[0] for part in parts]).sum(0)
        return mean, torch.stack([part[1] for part in parts]).sum(0).expand_as(mean)

    def mean(self, stacks: Stacks) -> Tensor:
        """The mean a'mu alone, [P, n], without a gradient."""
        return across(arrange(stacks, self.family), self.means)

    def explained(self, A: Tensor) -> Tensor:
        """A' Lambda^{-1} A for features A [F, n] in float64: the features' part of a covariance, [P or 1, n, n]."""
        total, start = torch.zeros(1, A.shape[1], A.shape[1], dtype=A.dtype), 0
        for mu, C in zip(self.means, self.factors, strict=True):
            blocks, f = mu.shape[1:]
            a = A[start : start + blocks * f].unflatten(0, (blocks, f))
            R = torch.linalg.solve_triangular(C, a, upper=False)  # [P or 1, blocks, f, n]
            total = total + (R.mT @ R).sum(1)
            start += blocks * f
        return total

    def components(self, stacks: Stacks) -> tuple[tuple[Tensor, Tensor], ...]:
        """The mean and the variance of every block's part of f, [P, blocks, n] each, a pair for each stack.

        Under a joint posterior the parts are correlated: these variances are marginal and do not add up.
        """
        if self.family == "block":
            parts = []
            for a, mu, C in zip(stacks, self.means, self.factors, strict=True):
                R = torch.linalg.solve_triangular(C.to(a.dtype), a, upper=False)
                mean = torch.einsum("bfn,pbf->pbn", a, mu.to(a.dtype))
                parts.append((mean, R.square().sum(2).expand_as(mean)))
            return tuple(parts)
        S, mu, start, parts = self.covariances()[0][:, 0], self.means[0][:, 0], 0, []
        for a in stacks:
            blocks, f, _ = a.shape
            places = [slice(start + b * f, start + (b + 1) * f) for b in range(blocks)]
            S_b = torch.stack([S[:, i, i] for i in places], 1).to(a.dtype)
            mean = torch.einsum(
                "bfn,pbf->pbn", a, mu[:, start : start + blocks * f].unflatten(1, (blocks, f)).to(a.dtype)
            )
            parts.append((mean, ((S_b @ a) * a).sum(2).expand_as(mean)))
            start += blocks * f
        return tuple(parts)

    def kl(self, prior: Posterior | None = None) -> Tensor:
        """KL(q || p), summed over outputs and blocks; p is N(0, I), or another posterior of the same shapes."""
        total = torch.zeros((), dtype=torch.float64)
        for i, (mu, C) in enumerate(zip(self.means, self.factors, strict=True)):
            P = mu.shape[0] // C.shape[0]  # how many outputs each precision stands for
            # with precisions C C' of q and L L' of p: the trace is |C^{-1} L|^2
            L = None if prior is None else prior.factors[i].expand_as(C)
            shift = mu if prior is None or L is None else ((mu - prior.means[i])[..., None, :] @ L)[..., 0, :]
            trace = _trace(C, L)
            logdet = 2 * C.diagonal(dim1=-2, dim2=-1).log().sum()
            if L is not None:
                logdet = logdet - 2 * L.diagonal(dim1=-2, dim2=-1).log().sum()
            total = total + 0.5 * (shift.square().sum() + P * (trace + logdet - C[..., 0].numel()))
        return total

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """N draws of v, [n, P, F]."""
        draws = []
        for mu, C in zip(self.means, self.factors, strict=True):
            white = torch.randn(*mu.shape, n, dtype=mu.dtype, generator=generator)
            v = torch.linalg.solve_triangular(C.mT.expand(*mu.shape[:2], *C.shape[2:]), white, upper=True)
            draws.append((mu[..., None] + v).flatten(1, 2))
        return torch.cat(draws, 1).movedim(-1, 0)
