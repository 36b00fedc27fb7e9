"""The harmonic kernels' features: T small factorisations in place of one large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.features.base import (
    Features,
    KernelView,
    PointFunction,
    Stacks,
    Whitened,
    inducing_parameter,
    solve_lower,
)
from harmonicgp.groups import Resolution
from harmonicgp.kernels.harmonic import HarmonicTransform
from harmonicgp.kernels.invariance import check_invariant
from harmonicgp.linalg import safe_cholesky


class HarmonicFeatures(Features):
    """a_t(x) = L_t^{-1} k_t(Z_t, x) with L_t L_t^H = k_t(Z_t, Z_t), for every block t of the resolution.

    Z [m, d] is shared by the blocks (then the stacked features are those of the whole orbit of Z), or [blocks, m, d] gives
    each its own. In the complex resolution a self-conjugate frequency gives m real features, another pair 2m: the real
    and the imaginary parts, one block. `frequencies` keeps only those blocks (places in `group.frequencies(resolution)`);
    what they leave out stays in the residual, so that bounds stay bounds.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> features = HarmonicFeatures(RBFKernel(), Rotation((0, 1), 4), torch.randn(5, 2))
        >>> [tuple(stack.shape) for stack in features(torch.randn(7, 2)).stacks]
        [(2, 5, 7), (1, 10, 7)]
    """

    def __init__(
        self,
        kernel: gpytorch.kernels.Kernel | KernelView,
        action: Action,
        Z: Tensor,
        resolution: Resolution = "complex",
        frequencies: Sequence[int] | None = None,
        learn_inducing: bool = True,
        check: bool = True,
    ) -> None:
        super().__init__(kernel)
        if resolution == "full":
            raise ValueError(
                'features need the "complex" or the "real" resolution: "full" has every conjugate pair twice.'
            )
        if not isinstance(action, Action):
            raise TypeError(f"action must be an action of harmonicgp.actions, such as Negation([0]); got {action!r}.")
        self.Z = inducing_parameter(Z, learn_inducing)
        action.check(self.Z, "Z")
        self.transform = HarmonicTransform(action, resolution)
        n = self.transform.n_blocks
        self.keep = list(range(n)) if frequencies is None else sorted({int(t) for t in frequencies})
        if not self.keep or self.keep[0] < 0 or self.keep[-1] >= n:
            raise ValueError(f"frequencies must name some of the {n} blocks, 0 to {n - 1}; got {frequencies!r}.")
        if self.Z.dim() == 3 and self.Z.shape[0] != n:
            raise ValueError(
                f"separate inducing inputs need one set for each of the {n} blocks; got {self.Z.shape[0]}."
            )
        real = set(range(n))
        if resolution == "complex":
            real = {i for i, (t, minus_t) in enumerate(action.group.conjugate_pairs) if t == minus_t}
        self._real = [t for t in self.keep if t in real]
        self._paired = [t for t in self.keep if t not in real]
        if check:
            kernel = getattr(self.view, "kernel", self.view.zz)
            check_invariant(kernel, action, dim=self.Z.shape[-1], like=[self.Z], learnable=True)

    @property
    def action(self) -> Action:
        """How Z moves."""
        return self.transform.action

    @property
    def block_frequencies(self) -> Tensor:
        """The frequency t of every block, integers [blocks, J], in the order of `Predictor.components`."""
        return self.action.group.frequencies(self.transform.resolution)[self.keep]

    @property
    def block_order(self) -> list[int]:
        """Blocks of m come first in the stacks, those of 2m after; here by frequency."""
        stacked = self._real + self._paired
        return [stacked.index(t) for t in self.keep]

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """A stack of blocks of m, and one of blocks of 2m where frequencies come in pairs."""
        m = self.Z.shape[-2]
        both = ((len(self._real), m), (len(self._paired), 2 * m))
        return tuple(shape for shape in both if shape[0])

    @torch.no_grad()
    def energies(self) -> Tensor:
        """The mean of k_t(z, z) over Z for every block of the resolution: how much variance each carries."""
        K = self.transform(self._points_of(self.Z), self.Z)
        return K.real.diagonal(dim1=-2, dim2=-1).mean(-1)

    def _points_of(self, Z: Tensor) -> PointFunction:
        return lambda z: self.view.zz(z, Z)

    def whiten(self) -> Whitened:
        """One Cholesky factor for each block."""
        K = self.transform(self._points_of(self.Z), self.Z)
        variance = K.detach().real.diagonal(dim1=-2, dim2=-1).sum(0)  # the blocks add up to k(z, z)
        factors = tuple(
            None if not places else _factor(self._choose(K, places, real), variance)
            for places, real in ((self._real, True), (self._paired, False))
        )
        return _HarmonicWhitened(self.view, self.Z, self, factors)

    @staticmethod
    def _choose(K: Tensor, places: list[int], real: bool) -> Tensor:
        K = K if len(places) == len(K) else K[places]
        return K.real if real and K.is_complex() else K


def _factor(K: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """L, and which blocks are more than rounding [blocks, 1, 1]: at a fixed point k_t(z, .) = 0 for most t."""
    L, jitter = safe_cholesky(K, variance)
    alive = K.detach().real.diagonal(dim1=-2, dim2=-1).amax(-1) > jitter
    return L, alive[:, None, None]


@dataclass(frozen=True)
class _HarmonicWhitened(Whitened):
    view: KernelView
    Z: Tensor
    features: HarmonicFeatures
    factors: tuple[tuple[Tensor, Tensor] | None, ...]

    def project(self, function: PointFunction) -> Stacks:
        K = self.features.transform(function, self.Z)  # [blocks, m, n]
        stacks = []
        for factor, places, real in zip(
            self.factors, (self.features._real, self.features._paired), (True, False), strict=True
        ):
            if factor is not None:
                L, alive = factor
                a = solve_lower(L, self.features._choose(K, places, real)) * alive
                stacks.append(torch.cat((a.real, a.imag), -2) if a.is_complex() else a)
        return tuple(stacks)
