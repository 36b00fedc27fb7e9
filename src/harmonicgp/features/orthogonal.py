"""Two sets of inducing points, the second for the residual of the first: SOLVE-GP (Shi, Titsias and Mnih 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
import torch
from torch import Tensor

from harmonicgp.backend.linalg import Factor
from harmonicgp.features.base import Features, KernelView, PointFunction, Snapshot, Whitened, inducing_parameter
from harmonicgp.features.evaluation import Shapes, Stacks


class OrthogonalFeatures(Features):
    """The paper's `M+M`: the features of Z, and those of O for the residual kernel of Z.

    With q_Z(x, x') = a_Z(x)' a_Z(x'), the second block is L_O^{-1} (k - q_Z)(O, x), L_O L_O' = (k - q_Z)(O, O). Stacked,
    the two are the features of Z and O together, at the cost of two small factorisations.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> features = OrthogonalFeatures(RBFKernel(), torch.randn(5, 2), torch.randn(3, 2))
        >>> features.shapes
        ((1, 5), (1, 3))
    """

    def __init__(
        self,
        kernel: gpytorch.kernels.Kernel | KernelView,
        Z: Tensor,
        O: Tensor,  # noqa: E741
        learn_inducing: bool = True,
    ) -> None:
        super().__init__(kernel)
        self.Z = inducing_parameter(Z, learn_inducing)
        self.O = inducing_parameter(O, learn_inducing, "O")

    @property
    def shapes(self) -> Shapes:
        """Two blocks, in one stack if they have the same size."""
        m, o = self.Z.shape[-2], self.O.shape[-2]
        return ((2, m),) if m == o else ((1, m), (1, o))

    def whiten(self) -> Whitened:
        """Compute the factor of k(Z, Z), and that of the Schur complement (k - q_Z)(O, O)."""
        K = self.view.zz(self.Z, self.Z)
        variance = K.diagonal(dim1=-2, dim2=-1)
        first = Factor.of(K, variance)
        A = first.solve(self.view.zz(self.Z, self.O))  # a_Z(O), [m, o]
        K_O = self.view.zz(self.O, self.O) - A.mT @ A
        # Points of O that Z explains up to rounding, such as a point of both, get features of zero.
        used = K_O.detach().diagonal() > 30 * torch.finfo(K_O.dtype).eps ** 0.5 * variance.detach().max()
        K_O = torch.where(used[:, None] & used, K_O, torch.diag_embed(variance.detach().max().expand(len(used))))
        second = Factor.of(K_O, variance, what="second inducing inputs")
        return _OrthogonalWhitened(
            self.view, Snapshot.of(self, self.view), self.Z, self.O, first, second, A, used[:, None]
        )


@dataclass(frozen=True)
class _OrthogonalWhitened(Whitened):
    view: KernelView
    snapshot: Snapshot
    Z: Tensor
    O: Tensor  # noqa: E741
    first: Factor
    second: Factor
    A: Tensor  #: a_Z(O), [m, o]
    used: Tensor  #: [o, 1], whether Z leaves some variance at each point of O

    def project(self, function: PointFunction) -> Stacks:
        return self._whitened(function)[0]

    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        return self._whitened(lambda z: self.view.zx(z, x))

    def _whitened(self, function: PointFunction) -> tuple[Stacks, Tensor]:
        a, first = self.first.whiten(function(self.Z))
        b, second = self.second.whiten((function(self.O) - self.A.mT @ a) * self.used)
        stacks = (a[None], b[None]) if a.shape[-2] != b.shape[-2] else (torch.stack((a, b)),)
        return stacks, first + second
