"""The residual e(x) = f(x) - a(x)'v of the features, itself a Gaussian process.

A residual has two properties at a set of rows: its variance, and its cost in the bound under Gaussian noise. The independent
residual treats e as independent noise at every row. Another model of the residual can replace it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Residual(Protocol):
    """The residual of f at some rows.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> residual = SparseFeatures(RBFKernel(), torch.zeros(1, 2))(torch.randn(5, 2)).residual
        >>> residual.variance.shape, residual.cost(torch.tensor(0.1), tight=True).shape
        (torch.Size([5]), torch.Size([5]))
    """

    @property
    def variance(self) -> Tensor:
        """r(x) = k(x, x) - sum_b |a_b(x)|^2, never negative; its shape broadcasts to that of the rows."""

    def cost(self, s2: Tensor, tight: bool) -> Tensor:
        """The amount that the residual subtracts from each row's term of the bound, at noise variance s2."""


@dataclass(frozen=True)
class IndependentResidual:
    """Independent noise of variance r(x) at every row.

    Examples:
        >>> import torch
        >>> IndependentResidual(torch.tensor([1.0])).cost(torch.tensor(0.5), tight=False)
        tensor([1.])
    """

    variance: Tensor  #: [n], or [rows, 1] for a grid whose cells share it along each row

    def cost(self, s2: Tensor, tight: bool) -> Tensor:
        """r/(2 s2) for the ELBO; 1/2 log(1 + r/s2) for the tight bound (Titsias 2025)."""
        ratio = self.variance / s2
        return 0.5 * (ratio.log1p() if tight else ratio)
