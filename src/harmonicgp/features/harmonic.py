"""The harmonic kernels' features: T small factorisations in place of one large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.backend.linalg import Factor
from harmonicgp.features.base import (
    Features,
    KernelView,
    PointFunction,
    PointKernel,
    Snapshot,
    Whitened,
    inducing_parameter,
)
from harmonicgp.features.evaluation import Shapes, Stacks
from harmonicgp.features.orbits import Orbits, by_orbits, find_orbits, phases
from harmonicgp.groups import Resolution
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.kernels.harmonic import HarmonicTransform
from harmonicgp.kernels.invariance import check_invariant


class HarmonicFeatures(Features):
    """a_t(x) = L_t^{-1} k_t(Z_t, x) with L_t L_t^H = k_t(Z_t, Z_t), for every block t of the resolution.

    Z [m, d] is shared by the blocks (then the stacked features are those of the whole orbit of Z), or [blocks, m, d] gives
    each its own. In the complex resolution a self-conjugate frequency gives m real features, another pair 2m: the real
    and the imaginary parts, one block. `frequencies` keeps only those blocks (places in `group.frequencies(resolution)`);
    what they leave out stays in the residual, so that bounds stay bounds.

    Rows that lie on one orbit of a periodic column are found, and share their features up to a phase.

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
        self._gram = self._fused(self._real, self._paired)
        self._block_grams: list[FusedGram | None] = []  # one for each block, where each has inducing inputs of its own
        if self._gram is not None and self.Z.dim() == 3:
            self._block_grams = [self._fused([t], []) for t in self._real] + [
                self._fused([], [t]) for t in self._paired
            ]
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
    def shapes(self) -> Shapes:
        """A stack of blocks of m, and one of blocks of 2m where frequencies come in pairs."""
        m = self.Z.shape[-2]
        both = ((len(self._real), m), (len(self._paired), 2 * m))
        return tuple(shape for shape in both if shape[0])

    @property
    def _turns(self) -> bool:
        """Whether an element turns every block by a phase; in the real resolution a block holds two that turn apart."""
        return self.transform.resolution == "complex" or self.action.group.is_real

    def by_orbits(self, X: Tensor) -> Tensor | None:
        """Rows of one orbit together, where many share one."""
        return by_orbits(self.action, X) if self._turns else None

    @torch.no_grad()
    def energies(self) -> Tensor:
        """The mean of k_t(z, z) over Z for every block of the resolution: how much variance each carries."""
        K = self.transform(self._points_of(self.Z), self.Z)
        return K.real.diagonal(dim1=-2, dim2=-1).mean(-1)

    def _points_of(self, Z: Tensor) -> PointFunction:
        return lambda z: self.view.zz(z, Z)

    def grams(self, x: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """k_t(Z, x), or k_t(Z, Z), for the real blocks and for the complex ones; None where there are none of a kind."""
        fused = self._gram
        if fused is None:
            function = self._points_of(self.Z) if x is None else (lambda z: self.view.zx(z, x))
            return self._chosen(self.transform(function, self.Z))
        if self.Z.dim() == 2:
            # k_t(x, z)^H is k_t(z, x), laid out column by column as LAPACK wants it
            real, paired = fused(self.Z if x is None else x, self.Z)
            return (real.mT if self._real else None), (paired.mH if self._paired else None)
        alone = [(t, 0) for t in self._real] + [(t, 1) for t in self._paired]
        places = [t for t, _ in alone]
        Z = self.Z if places == list(range(len(self.Z))) else self.Z[places]
        matrices = fused.each(x, Z, self._block_grams)  # type: ignore[arg-type]
        own = [both[kind].mH for both, (_, kind) in zip(matrices, alone, strict=True)]
        first, rest = own[: len(self._real)], own[len(self._real) :]
        return (torch.cat(first) if first else None), (torch.cat(rest) if rest else None)

    def _fused(self, reals: list[int], pairs: list[int]) -> FusedGram | None:
        kernel = self.view.kernel if type(self.view) is PointKernel else None
        return FusedGram.of(kernel, self.action, self.transform.resolution, self.Z.shape[-1], reals, pairs)

    def whiten(self) -> Whitened:
        """One Cholesky factor for each block."""
        Ks = self.grams()
        variance = sum(K.detach().real.diagonal(dim1=-2, dim2=-1).sum(0) for K in Ks if K is not None)
        factors = tuple(None if K is None else _factor(K, variance) for K in Ks)  # type: ignore[arg-type]
        return _HarmonicWhitened(self.view, Snapshot.of(self, self.view), self.Z, self, factors)

    def _chosen(self, K: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The real blocks and the complex ones, of all."""
        real = K[self._real] if len(self._real) < len(K) else K
        return (
            (real.real if real.is_complex() else real) if self._real else None,
            K[self._paired] if self._paired else None,
        )


def _factor(K: Tensor, variance: Tensor) -> tuple[Factor, Tensor | None]:
    """The factor, and which blocks are more than rounding [blocks], None if all: at a fixed point k_t(z, .) = 0 for most t."""
    factor = Factor.of(K, variance)
    alive = K.detach().real.diagonal(dim1=-2, dim2=-1).amax(-1) > factor.jitter
    return factor, None if bool(alive.all()) else alive


@dataclass(frozen=True)
class _HarmonicWhitened(Whitened):
    view: KernelView
    snapshot: Snapshot
    Z: Tensor
    features: HarmonicFeatures
    factors: tuple[tuple[Factor, Tensor | None] | None, ...]

    def project(self, function: PointFunction) -> Stacks:
        return self._whitened(self.features._chosen(self.features.transform(function, self.Z)))[0]

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        orbits = find_orbits(self.features.action, x) if self.features._turns else None
        if orbits is None:
            return self._whitened(self.features.grams(x))
        stacks, squares = self._whitened(self.features.grams(orbits.points))
        return self._turned(stacks, orbits), squares[orbits.places]

    def _turned(self, stacks: Stacks, orbits: Orbits) -> Stacks:
        """The features of all rows from those of one row of each orbit."""
        features, turned = self.features, []
        group, k = features.action.group, len(orbits.points)
        frequencies = group.frequencies("complex")
        kinds = [blocks for blocks in (features._real, features._paired) if blocks]
        # Orbits that are nearly whole are turned by every element and looked up, the others looked up and turned row by row.
        whole = k * group.order <= 2 * len(orbits.places)
        for blocks, stack in zip(kinds, stacks, strict=True):
            chi = phases(group, frequencies[blocks], torch.promote_types(stack.dtype, torch.complex64))
            if whole:
                a, chi, rows = stack[..., None, :], chi[:, None, :, None], orbits.elements * k + orbits.places
            else:
                a, chi, rows = stack.index_select(-1, orbits.places), chi[:, None, orbits.elements], None
            if blocks is features._real:
                images = [a * chi.real]
            else:
                x, y = a.chunk(2, 1)
                images = [x * chi.real - y * chi.imag, x * chi.imag + y * chi.real]
            found = images if rows is None else [image.flatten(-2).index_select(-1, rows) for image in images]
            turned.append(torch.cat(found, -2))
        return tuple(turned)

    def _whitened(self, Ks: tuple[Tensor | None, Tensor | None]) -> tuple[Stacks, Tensor]:
        stacks, squares = [], []
        for factor, K in zip(self.factors, Ks, strict=True):
            if factor is not None and K is not None:
                solver, alive = factor
                a, square = solver.whiten(K, alive)
                stacks.append(torch.cat((a.real, a.imag), -2) if a.is_complex() else a)
                squares.append(square)
        return tuple(stacks), torch.stack(squares).sum(0)
