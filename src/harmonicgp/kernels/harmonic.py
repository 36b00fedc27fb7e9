"""The harmonic kernel decomposition: an invariant kernel as a sum of orthogonal kernels.

    k_t(x, x') = 1/|G| sum_s conj(chi_t(s)) k(x, s.x') = 1/|G| sum_s chi_t(s) k(s.x, x')

The second form is the one computed: the first argument moves, since in inference it is the few inducing inputs, and the
second may live elsewhere (images, against inducing patches).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.kernels.functions import KernelLike, kernel_diagonal, kernel_matrix
from harmonicgp.kernels.invariance import check_invariant


@dataclass(frozen=True)
class HarmonicKernel:
    """A kernel split along an action, ready to give Gram matrices block by block.

    `kernel` is a GPyTorch kernel or a function k(x1, x2) -> [..., n1, n2]. It must be invariant,
    k(s.x, s.x') = k(x, x'); a cheap check on a few points says so at once, and `check=False` turns it off.

    >>> import torch
    >>> from gpytorch.kernels import RBFKernel
    >>> from harmonicgp.actions import Rotation
    >>> kernel, x = HarmonicKernel(RBFKernel(), Rotation((0, 1), 5), dim=2), torch.randn(7, 2)
    >>> kernel.n_blocks, kernel.gram(x, x).shape, kernel.gram(x, x).dtype
    (3, torch.Size([3, 7, 7]), torch.complex64)
    """

    kernel: KernelLike
    action: Action
    resolution: Resolution = "complex"
    check: bool = True
    #: The number of columns, needed by the check where neither action nor kernel fixes it.
    dim: int | None = None

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        if not isinstance(self.action, Action):
            raise TypeError(f"action must be an action of harmonicgp.actions; got {self.action!r}.")
        if self.check:
            check_invariant(self.kernel, self.action, dim=self.dim)

    @property
    def n_blocks(self) -> int:
        """The number of harmonic kernels."""
        return self.action.group.n_blocks(self.resolution)

    def gram(self, x1: Tensor, x2: Tensor) -> Tensor:
        """k_t(x1, x2) for every block t: [n1, d], [n2, d] -> [blocks, n1, n2].

        Either input may have one set of points for each block, [blocks, n, d]. Differentiable in both inputs and in
        the parameters of the kernel.
        """
        blocks1, blocks2 = self._blocks(x1, "x1"), self._blocks(x2, "x2")
        if blocks1 is None and blocks2 is None:
            K = kernel_matrix(self.kernel, self.action._orbit(x1), x2)  # [|G|, n1, n2]
            return self._resolve(K)
        return self._accumulate(lambda moved: kernel_matrix(self.kernel, moved, x2), x1)

    def diagonal(self, x: Tensor) -> Tensor:
        """k_t(x, x), real: [n, d] or [blocks, n, d] -> [blocks, n]."""
        if self._blocks(x, "x") is None:
            k = self._resolve(kernel_diagonal(self.kernel, *torch.broadcast_tensors(self.action._orbit(x), x)))
        else:
            k = self._accumulate(lambda moved: kernel_diagonal(self.kernel, moved, x), x)
        return k.real if k.is_complex() else k

    def _resolve(self, K: Tensor) -> Tensor:
        """The transform over the elements that moved the first argument, the first axis of K."""
        # sum_s chi_t(s) K_s: the conjugate of the transform, for real K; for complex K the elements are inverted first.
        if K.is_complex():
            K = K.index_select(0, self.action.group.inverses().to(K.device))
            return self.action.group.harmonics(K, self.resolution)
        k = self.action.group.harmonics(K, self.resolution)
        return k.conj().resolve_conj() if k.is_complex() else k

    def _accumulate(self, gram: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """sum_s w_ts gram(s.x_t) with one element at a time: never [blocks, |G|, n1, n2] at once."""
        group = self.action.group
        weights = group.weights(self.resolution).conj()  # chi_t(s) / |G|, folded: [blocks, |G|]
        elements = group.elements().to(x.device)
        total: Tensor | None = None
        for s in range(group.order):
            K = gram(self.action._move(x, elements[s]))
            if K.is_complex() and self.resolution != "full":
                group.harmonics(K[None].expand(group.order, *K.shape), self.resolution)  # raises the clear error
            dtype = torch.promote_types(K.dtype, torch.complex64) if weights.is_complex() else K.dtype
            w = weights[:, s].to(device=K.device, dtype=dtype).reshape(-1, *[1] * (K.dim() - 1))
            total = w * K if total is None else total + w * K
        assert total is not None
        return total

    def _blocks(self, x: Tensor, name: str) -> int | None:
        """The number of sets of points in x, None when the blocks share one."""
        self.action.check(x, name)
        if x.dim() == 2:
            return None
        if x.dim() == 3 and x.shape[0] == self.n_blocks:
            return self.n_blocks
        raise ValueError(
            f"{name} must be [n, d], shared by the blocks, or [{self.n_blocks}, n, d], one set for each of the "
            f"{self.n_blocks} blocks of the {self.resolution!r} resolution; got shape {tuple(x.shape)}."
        )


def harmonic_gram(
    kernel: KernelLike,
    action: Action,
    x1: Tensor,
    x2: Tensor,
    resolution: Resolution = "complex",
    check: bool = True,
) -> Tensor:
    """The Gram matrices k_t(x1, x2) of the harmonic kernels of `kernel` under `action`: [blocks, n1, n2].

    - `resolution="full"`: all |G| kernels, complex; they add up to k.
    - `"complex"`: one of each conjugate pair, doubled when t != -t; the real parts add up to k.
    - `"real"`: the paper's folded real kernels; they add up to k.

    x1 and x2 are [n, d], or [blocks, n, d] for inducing inputs of their own for each block. The result is real in the
    real resolution, and for groups of order 2 in every way; else complex. `check=False` skips the invariance check.

    >>> import torch
    >>> from gpytorch.kernels import MaternKernel
    >>> from harmonicgp.actions import Negation
    >>> kernel, x = MaternKernel(nu=1.5), torch.randn(5, 3)
    >>> K = harmonic_gram(kernel, Negation.strided(3, 2), x, x)
    >>> bool((K.sum(0) - kernel(x).to_dense()).abs().max() < 1e-5)
    True
    """
    return _prepared(kernel, action, x1, resolution, check).gram(x1, x2)


def harmonic_diagonal(
    kernel: KernelLike, action: Action, x: Tensor, resolution: Resolution = "complex", check: bool = True
) -> Tensor:
    """The diagonals k_t(x, x) of the harmonic kernels, real: [blocks, n]."""
    return _prepared(kernel, action, x, resolution, check).diagonal(x)


def _prepared(kernel: KernelLike, action: Action, x: Tensor, resolution: Resolution, check: bool) -> HarmonicKernel:
    harmonic = HarmonicKernel(kernel, action, resolution, check=False)
    action.check(x, "x1")
    if check:
        check_invariant(kernel, action, dim=x.shape[-1], like=x)
    return harmonic
