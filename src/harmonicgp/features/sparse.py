"""One set of inducing points: the features of SVGP."""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
from torch import Tensor

from harmonicgp.backend.linalg import Factor
from harmonicgp.features.base import Features, KernelView, PointFunction, Snapshot, Whitened, inducing_parameter
from harmonicgp.features.evaluation import Shapes, Stacks


class SparseFeatures(Features):
    """One block, a(x) = L^{-1} k(Z, x) with L L' = k(Z, Z).

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> features = SparseFeatures(RBFKernel(), torch.randn(5, 2))
        >>> evaluation = features(torch.randn(7, 2))
        >>> evaluation.stacks[0].shape, evaluation.residual.variance.shape
        (torch.Size([1, 5, 7]), torch.Size([7]))
    """

    def __init__(self, kernel: gpytorch.kernels.Kernel | KernelView, Z: Tensor, learn_inducing: bool = True) -> None:
        super().__init__(kernel)
        self.Z = inducing_parameter(Z, learn_inducing)

    @property
    def shapes(self) -> Shapes:
        """One block of m features."""
        return ((1, self.Z.shape[-2]),)

    def whiten(self) -> Whitened:
        """Compute the Cholesky factor L of k(Z, Z)."""
        K = self.view.zz(self.Z, self.Z)
        return _SparseWhitened(
            self.view, Snapshot.of(self, self.view), self.Z, Factor.of(K, K.diagonal(dim1=-2, dim2=-1))
        )


@dataclass(frozen=True)
class _SparseWhitened(Whitened):
    view: KernelView
    snapshot: Snapshot
    Z: Tensor
    factor: Factor

    def project(self, function: PointFunction) -> Stacks:
        return (self.factor.solve(function(self.Z))[None],)

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        a, squares = self.factor.whiten(self.view.zx(self.Z, x))
        return (a[None],), squares
