"""The harmonic kernel decomposition: an invariant kernel as a sum of orthogonal kernels.

    k_t(x, x') = 1/|G| sum_s conj(chi_t(s)) k(x, s.x') = 1/|G| sum_s chi_t(s) k(s.x, x')

The code computes the second form, in which the first argument moves: in inference it is the few inducing inputs, and the second
argument may be a point of another space (images against inducing patches).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.kernels.functions import KernelLike, check_kernel, kernel_diagonal, kernel_matrix
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.kernels.invariance import check_invariant


@dataclass(frozen=True)
class HarmonicTransform:
    """The transform 1/|G| sum_s chi_t(s) g(s.z) of functions g of points, by blocks. It takes k(., x) to k_t(., x)."""

    action: Action
    resolution: Resolution = "complex"

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        if not isinstance(self.action, Action):
            raise TypeError(f"action must be an action of harmonicgp.actions; got {self.action!r}.")

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return self.action.group.n_blocks(self.resolution)

    def __call__(self, function: Callable[[Tensor], Tensor], z: Tensor, separate: bool | None = None) -> Tensor:
        """The blocks [blocks, m, ...] of a function [..., m, d] -> [..., m, ...], at points z [m, d], or [blocks, m, d].

        With `separate` (default: for three-dimensional z) the first axis of the function's values is the blocks, not the orbit.
        """
        if z.dim() == 3 if separate is None else separate:
            return self._accumulate(function, z)
        # sum_s chi_t(s) K_s: for real K the conjugate of the transform; for complex K the elements are inverted first.
        K, group = function(self.action.images(z)), self.action.group
        if K.is_complex():
            return group.harmonics(K.index_select(0, group.inverses().to(K.device)), self.resolution)
        k = group.harmonics(K, self.resolution)
        return k.conj().resolve_conj() if k.is_complex() else k

    def _accumulate(self, function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        """One element at a time: never [blocks, |G|, m, n] at once."""
        group = self.action.group
        weights = group.weights(self.resolution).conj()  # chi_t(s) / |G|, folded: [blocks, |G|]
        elements = group.elements().to(z.device)
        total: Tensor | None = None
        for s in range(group.order):
            K = function(self.action.move(z, elements[s]))
            if K.is_complex() and self.resolution != "full":
                group.harmonics(K[None].expand(group.order, *K.shape), self.resolution)  # raises the clear error
            dtype = torch.promote_types(K.dtype, torch.complex64) if weights.is_complex() else K.dtype
            w = weights[:, s].to(device=K.device, dtype=dtype).reshape(-1, *[1] * (K.dim() - 1))
            total = w * K if total is None else total + w * K
        assert total is not None
        return total


@dataclass(frozen=True)
class HarmonicKernel:
    """The harmonic kernels of a kernel under an action, for Gram matrices block by block.

    `kernel` is a GPyTorch kernel or a function k(x1, x2) -> [..., n1, n2]. It must be invariant, k(s.x, s.x') = k(x, x'). The
    constructor checks this on a few points, also after small changes of the learned parameters, because a kernel that is
    invariant only at its initial values would lose the property in training. `check=False` skips the check.

    Examples:
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
    #: The number of columns, for the check; needed if neither action nor kernel determines it.
    dim: int | None = None
    #: The fused path for each number of columns, constructed at the first use.
    _grams: dict[int, FusedGram | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        HarmonicTransform(self.action, self.resolution)  # checks both
        check_kernel(self.kernel)
        if self.check:
            check_invariant(self.kernel, self.action, dim=self.dim, learnable=True)

    @property
    def transform(self) -> HarmonicTransform:
        """The Fourier transform over the group."""
        return HarmonicTransform(self.action, self.resolution)

    @property
    def n_blocks(self) -> int:
        """The number of harmonic kernels."""
        return self.transform.n_blocks

    def gram(self, x1: Tensor, x2: Tensor) -> Tensor:
        """k_t(x1, x2) for every block t: [n1, d], [n2, d] -> [blocks, n1, n2].

        Either input may have a separate set of points for each block, [blocks, n, d]. Differentiable in both inputs and in the
        parameters of the kernel.
        """
        separate = self._separate(x1, "x1") | self._separate(x2, "x2")
        if x1.shape[-1] != x2.shape[-1]:
            raise ValueError(
                f"x1 has {x1.shape[-1]} columns and x2 has {x2.shape[-1]}: they must be points of one space."
            )
        if x1.dtype != x2.dtype:
            raise TypeError(f"x1 is {x1.dtype} and x2 is {x2.dtype}: bring both to one dtype.")
        fused = None if separate else self._fused(x1.shape[-1])
        if fused is None:
            return self.transform(lambda moved: kernel_matrix(self.kernel, moved, x2), x1, separate)
        real, paired = fused(x1, x2)
        return paired if fused.plan.pairs else real

    def _fused(self, d: int) -> FusedGram | None:
        """The fused path for all blocks of the real or the complex resolution; None if kernel or action has none."""
        group = self.action.group
        if self.resolution == "full" and not group.is_real:
            return None
        if d not in self._grams:
            blocks, real = range(self.n_blocks), self.resolution == "real" or group.is_real
            reals, pairs = (blocks, ()) if real else ((), blocks)
            self._grams[d] = FusedGram.of(self.kernel, self.action, self.resolution, d, reals, pairs)
        return self._grams[d]

    def diagonal(self, x: Tensor) -> Tensor:
        """k_t(x, x), real: [n, d] or [blocks, n, d] -> [blocks, n]."""

        def function(moved: Tensor) -> Tensor:
            return kernel_diagonal(self.kernel, moved, x.expand(moved.shape))

        k = self.transform(function, x, self._separate(x, "x"))
        return k.real if k.is_complex() else k

    def _separate(self, x: Tensor, name: str) -> bool:
        """Whether x has a separate set of points for each block."""
        self.action.check(x, name)
        if x.dim() == 2 or (x.dim() == 3 and x.shape[0] == self.n_blocks):
            return x.dim() == 3
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

    x1 and x2 are [n, d], or [blocks, n, d] with separate points for each block. The result is real in the real resolution and
    for groups whose ways all have order 2; otherwise it is complex. `check=False` skips the invariance check.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
        >>> from harmonicgp.actions import Negation
        >>> kernel, x = MaternKernel(nu=1.5), torch.randn(5, 3)
        >>> K = harmonic_gram(kernel, Negation.strided(3, 2), x, x)
        >>> bool((K.sum(0) - kernel(x).to_dense()).abs().max() < 1e-5)
        True
    """
    return _prepared(kernel, action, (x1, x2), resolution, check).gram(x1, x2)


def harmonic_diagonal(
    kernel: KernelLike, action: Action, x: Tensor, resolution: Resolution = "complex", check: bool = True
) -> Tensor:
    """The diagonals k_t(x, x) of the harmonic kernels, real: [blocks, n].

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Negation
        >>> harmonic_diagonal(RBFKernel(), Negation(), torch.zeros(1, 2))[:, 0].tolist()  # nothing odd at the origin
        [1.0, 0.0]
    """
    return _prepared(kernel, action, (x,), resolution, check).diagonal(x)


def _prepared(
    kernel: KernelLike, action: Action, inputs: tuple[Tensor, ...], resolution: Resolution, check: bool
) -> HarmonicKernel:
    harmonic = HarmonicKernel(kernel, action, resolution, check=False)
    for i, x in enumerate(inputs):
        action.check(x, f"x{i + 1}")
    if check:
        d = inputs[0].shape[-1]
        check_invariant(kernel, action, dim=d, like=[x for x in inputs if x.shape[-1] == d])
    return harmonic
