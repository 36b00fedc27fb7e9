"""Features of harmonic kernels: T small factorisations instead of one large one."""

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
from harmonicgp.features.orbits import Orbits, by_orbits, find_orbits
from harmonicgp.groups import Resolution
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.kernels.harmonic import HarmonicTransform
from harmonicgp.kernels.invariance import check_invariant


class HarmonicFeatures(Features):
    """a_t(x) = L_t^{-1} k_t(Z_t, x) with L_t L_t^H = k_t(Z_t, Z_t), for every block t of the resolution.

    Z [m, d] is shared by all blocks: the stacked features are then those of the whole orbit of Z. Z [blocks, m, d] has separate
    inducing inputs for each block. In the complex resolution a self-conjugate frequency has m real features, every other pair
    2m in one block, the real and the imaginary parts. `frequencies` keeps only these blocks (places in
    `group.frequencies(resolution)`); the others go into the residual, so that bounds remain bounds.

    Rows on one orbit of a periodic column share their features up to a phase, which saves most of the work.

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
                'features need the "complex" or the "real" resolution: "full" contains every conjugate pair twice.'
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
        self._block_grams: list[FusedGram | None] = []  # one for each block with separate inducing inputs
        if self._gram is not None and self.Z.dim() == 3:
            self._block_grams = [self._fused([t], []) for t in self._real] + [
                self._fused([], [t]) for t in self._paired
            ]
        if check:
            kernel = getattr(self.view, "kernel", self.view.zz)
            check_invariant(kernel, action, dim=self.Z.shape[-1], like=[self.Z], learnable=True)

    @property
    def action(self) -> Action:
        """The action on Z."""
        return self.transform.action

    @property
    def block_frequencies(self) -> Tensor:
        """The frequency t of every block, integers [blocks, J], in the order of `Predictor.components`."""
        return self.action.group.frequencies(self.transform.resolution)[self.keep]

    @property
    def block_order(self) -> list[int]:
        """The stacks have the blocks of m features first, then those of 2m; this order is by frequency."""
        stacked = self._real + self._paired
        return [stacked.index(t) for t in self.keep]

    @property
    def shapes(self) -> Shapes:
        """A stack of blocks of m features, and one of blocks of 2m for pairs of frequencies."""
        m = self.Z.shape[-2]
        stacks = ((len(self._real), m), (len(self._paired), 2 * m))
        return tuple(shape for shape in stacks if shape[0])

    @property
    def _turns(self) -> bool:
        """Whether an element multiplies every block by a phase. A block of the real resolution has two different phases."""
        return self.transform.resolution == "complex" or self.action.group.is_real

    def by_orbits(self, X: Tensor) -> Tensor | None:
        """An order that keeps the rows of an orbit together; None if few rows share an orbit."""
        return by_orbits(self.action, X) if self._turns else None

    @torch.no_grad()
    def energies(self) -> Tensor:
        """The mean of k_t(z, z) over Z for every block of the resolution: how much variance each carries."""
        K = self.transform(self._points_of(self.Z), self.Z)
        return K.real.diagonal(dim1=-2, dim2=-1).mean(-1)

    def _points_of(self, Z: Tensor) -> PointFunction:
        return lambda z: self.view.zz(z, Z)

    def grams(self, x: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """k_t(Z, x), or k_t(Z, Z) without x, for the real blocks and for the complex ones; None for a kind without blocks."""
        fused = self._gram
        if fused is None:
            function = self._points_of(self.Z) if x is None else (lambda z: self.view.zx(z, x))
            return self._selected(self.transform(function, self.Z))
        if self.Z.dim() == 2:
            # k_t(x, z)^H is k_t(z, x) in column-major order, as LAPACK needs it
            real, paired = fused(self.Z if x is None else x, self.Z)
            return (real.mT if self._real else None), (paired.mH if self._paired else None)
        places = self._real + self._paired
        Z = self.Z if places == list(range(len(self.Z))) else self.Z[places]
        matrices, n = fused.each(x, Z, self._block_grams), len(self._real)  # type: ignore[arg-type]
        reals, pairs = [real.mH for real, _ in matrices[:n]], [paired.mH for _, paired in matrices[n:]]
        return (torch.cat(reals) if reals else None), (torch.cat(pairs) if pairs else None)

    def _fused(self, reals: list[int], pairs: list[int]) -> FusedGram | None:
        kernel = self.view.kernel if type(self.view) is PointKernel else None
        return FusedGram.of(kernel, self.action, self.transform.resolution, self.Z.shape[-1], reals, pairs)

    def whiten(self) -> Whitened:
        """Compute one Cholesky factor for each block."""
        Ks = self.grams()
        variance = sum(K.detach().real.diagonal(dim1=-2, dim2=-1).sum(0) for K in Ks if K is not None)
        factors = tuple(None if K is None else _factor(K, variance) for K in Ks)  # type: ignore[arg-type]
        return _HarmonicWhitened(self.view, Snapshot.of(self, self.view), self.Z, self, factors)

    def _selected(self, K: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The real and the complex blocks among all blocks of the transform."""
        real = K[self._real] if len(self._real) < len(K) else K
        return (
            (real.real if real.is_complex() else real) if self._real else None,
            K[self._paired] if self._paired else None,
        )


def _factor(K: Tensor, variance: Tensor) -> tuple[Factor, Tensor | None]:
    """The factor, and which blocks are above rounding [blocks], None if all are. At fixed points k_t(z, .) = 0 for most t."""
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
        return self._whitened(self.features._selected(self.features.transform(function, self.Z)))[0]

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        orbits = find_orbits(self.features.action, x) if self.features._turns else None
        if orbits is None:
            return self._whitened(self.features.grams(x))
        stacks, squares = self._whitened(self.features.grams(orbits.points))
        return self._turned(stacks, orbits), squares[orbits.places]

    def _turned(self, stacks: Stacks, orbits: Orbits) -> Stacks:
        """The features of all rows, from those of one row of each orbit."""
        features, results = self.features, []
        group, k = features.action.group, len(orbits.points)
        frequencies = group.frequencies("complex")
        kinds = [blocks for blocks in (features._real, features._paired) if blocks]
        # For nearly complete orbits all images are computed first, then the rows are selected; else the other way round.
        complete = k * group.order <= 2 * len(orbits.places)
        for blocks, stack in zip(kinds, stacks, strict=True):
            dtype = torch.promote_types(stack.dtype, torch.complex64)
            chi = group.characters(dtype, frequencies[blocks]).conj()  # undoes the move to the point of the orbit
            if complete:
                a, chi = stack[..., None, :], chi[:, None, :, None]
            else:
                a, chi = stack.index_select(-1, orbits.places), chi[:, None, orbits.elements]
            if blocks is features._real:
                images = [a * chi.real]
            else:
                x, y = a.chunk(2, 1)
                images = [x * chi.real - y * chi.imag, x * chi.imag + y * chi.real]
            if complete:
                rows = orbits.elements * k + orbits.places
                images = [image.flatten(-2).index_select(-1, rows) for image in images]
            results.append(torch.cat(images, -2))
        return tuple(results)

    def _whitened(self, Ks: tuple[Tensor | None, Tensor | None]) -> tuple[Stacks, Tensor]:
        stacks, squares = [], []
        for factor, K in zip(self.factors, Ks, strict=True):
            if factor is not None and K is not None:
                solver, alive = factor
                a, square = solver.whiten(K, alive)
                stacks.append(torch.cat((a.real, a.imag), -2) if a.is_complex() else a)
                squares.append(square)
        return tuple(stacks), torch.stack(squares).sum(0)
