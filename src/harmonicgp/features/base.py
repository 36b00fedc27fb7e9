"""Whitened block features: the common form of all approximations. Inference sees nothing else of them.

    f(x) = sum_b a_b(x)' v_b + residual,   v_b white,   residual variance r(x) = k(x, x) - sum_b |a_b(x)|^2 >= 0

Blocks of equal size are stacked. An approximation has one stack, or two where blocks differ in size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import check_points
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation, Shapes, Stacks
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.kernels.functions import check_kernel, kernel_diagonal, kernel_matrix
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.kernels.globe import GlobeKernel

#: A function of inducing inputs, [..., m, d] -> [..., m, n], such as z -> k(z, x) for points x, or sample paths.
PointFunction: TypeAlias = Callable[[Tensor], Tensor]
#: An index into the last axes of an array of results, and the inputs of these results.
Piece: TypeAlias = tuple[tuple[Any, ...], Any]


class KernelView(Protocol):
    """The interface of kernels for features. z and x may be points of different spaces (patches and images).

    Examples:
        >>> from harmonicgp.features import SparseFeatures
        >>> class InnerProduct:
        ...     zz = zx = lambda self, z, x: z @ x.mT
        ...     xx = lambda self, x: x.square().sum(-1)
        >>> SparseFeatures(InnerProduct(), torch.eye(2))(torch.ones(3, 2)).residual.variance.max() < 1e-4
        tensor(True)
    """

    def zz(self, z1: Tensor, z2: Tensor) -> Tensor:
        """k(z, z'), [..., m1, m2]."""

    def zx(self, z: Tensor, x: Tensor) -> Tensor:
        """k(z, x), [..., m, n]."""

    def xx(self, x: Tensor) -> Tensor:
        """k(x, x), [n]."""


class PointKernel(torch.nn.Module):
    """A GPyTorch kernel as a `KernelView`; z and x are points of one space.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> PointKernel(RBFKernel()).zx(torch.randn(2, 3), torch.randn(5, 3)).shape
        torch.Size([2, 5])
    """

    def __init__(self, kernel: gpytorch.kernels.Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self._grams: dict[int, FusedGram | None] = {}  # the fused path, by the number of columns

    def zz(self, z1: Tensor, z2: Tensor) -> Tensor:
        """k(z, z')."""
        return self._matrix(z1, z2)

    def zx(self, z: Tensor, x: Tensor) -> Tensor:
        """k(z, x)."""
        return self._matrix(z, x)

    def _matrix(self, z: Tensor, x: Tensor) -> Tensor:
        if z.dim() == x.dim() == 2:
            d = x.shape[-1]
            if d not in self._grams:
                self._grams[d] = FusedGram.of(self.kernel, None, "complex", d)
            fused = self._grams[d]
            if fused is not None:
                return fused(x, z)[0][0].mT  # column-major, as LAPACK needs it
        return kernel_matrix(self.kernel, z, x)

    def xx(self, x: Tensor) -> Tensor:
        """k(x, x)."""
        return kernel_diagonal(self.kernel, x, x)


@dataclass(frozen=True)
class Snapshot:
    """A copy of the values of parameters, to detect later changes."""

    parameters: tuple[tuple[Tensor, Tensor], ...]  #: each parameter, and the copy of its value

    @classmethod
    def of(cls, *modules: object) -> Snapshot:
        """The parameters of all modules among the arguments."""
        parameters = (p for m in modules if isinstance(m, torch.nn.Module) for p in m.parameters())
        return cls(tuple((p, p.detach().clone()) for p in dict.fromkeys(parameters)))

    def check(self) -> None:
        """Raise a `RuntimeError` if a parameter has changed since."""
        if not all(torch.equal(p, value) for p, value in self.parameters):
            raise RuntimeError(
                "the kernel or the inducing inputs have changed since these features were whitened: call whiten() again."
            )


class Whitened(ABC):
    """Features after their factorisations, ready to be evaluated on any number of batches.

    The parameters must not change in between: an evaluation then raises a `RuntimeError`.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> whitened = SparseFeatures(RBFKernel(), torch.randn(4, 2)).whiten()
        >>> whitened(torch.randn(5, 2)).cells, whitened(torch.randn(7, 2)).cells
        ((5,), (7,))
    """

    view: KernelView
    snapshot: Snapshot

    @abstractmethod
    def project(self, function: PointFunction) -> Stacks:
        """The whitened coordinates of a function, from its values at the inducing inputs.

        They are linear in the function. For k(., x) they are the features a(x), for a sample of the prior white noise v.
        """

    @abstractmethod
    def explained(self, x: Tensor) -> tuple[Stacks, Tensor]:
        """a(x), and |a(x)|^2 over all blocks [n]."""

    def __call__(self, x: Any) -> Evaluation:
        """a(x) and the residual for a batch x [n, d]."""
        return self.dense(x)

    def dense(self, x: Tensor) -> DenseEvaluation:
        """a(x) and the residual for a batch x [n, d], with the features stored."""
        self.snapshot.check()
        stacks, explained = self.explained(x)
        return DenseEvaluation(stacks, IndependentResidual((self.view.xx(x) - explained).clamp_min(0.0)))


class Features(torch.nn.Module, ABC):
    """Block features with their parameters, those of the kernel and the inducing inputs.

    `docs/design/house.md` shows how to write your own class.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import OrthogonalFeatures
        >>> features = OrthogonalFeatures(RBFKernel(), torch.randn(4, 2), torch.randn(3, 2))
        >>> features.shapes, features.n_features, [tuple(Z.shape) for Z in features.inducing()]
        (((1, 4), (1, 3)), 7, [(4, 2), (3, 2)])
        >>> features(torch.randn(5, 2)).residual.variance.shape
        torch.Size([5])
    """

    def __init__(self, kernel: gpytorch.kernels.Kernel | KernelView) -> None:
        super().__init__()
        if isinstance(kernel, gpytorch.kernels.Kernel):
            check_kernel(kernel)
        elif not all(hasattr(kernel, name) for name in ("zz", "zx", "xx")):
            raise TypeError(f"kernel must be a GPyTorch kernel, or have zz, zx and xx (KernelView); got {kernel!r}.")
        self.view: KernelView = PointKernel(kernel) if isinstance(kernel, gpytorch.kernels.Kernel) else kernel

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """(blocks, features of a block) of every stack."""

    @property
    def n_features(self) -> int:
        """The number of real features in all blocks."""
        return sum(blocks * size for blocks, size in self.shapes)

    @abstractmethod
    def whiten(self) -> Whitened:
        """Compute everything that does not depend on x. Differentiable in Z and hyper-parameters."""

    @property
    def block_order(self) -> list[int]:
        """The position of each block among the blocks of all stacks, concatenated."""
        return list(range(sum(blocks for blocks, _ in self.shapes)))

    def by_orbits(self, X: Tensor) -> Tensor | None:
        """An order of rows X [N, d] that makes passes in chunks cheaper; None if no order does."""
        return None

    def pieces(self, x: Any, size: int) -> Iterator[Piece]:
        """Inputs in pieces of bounded memory, each with its index in the results. Default: `size` rows of x [n, d] at a time."""
        order = self.by_orbits(x) if len(x) > size else None
        for start in range(0, len(x), size):
            rows = slice(start, min(start + size, len(x)))
            place = rows if order is None else order[rows]
            yield (place,), x[place]

    def cells(self, x: Any) -> tuple[int, ...]:
        """The shape of the results at inputs x."""
        return (len(x),)

    def inducing(self) -> list[torch.nn.Parameter]:
        """The inducing inputs."""
        return [p for name, p in self.named_parameters(recurse=False) if name in ("Z", "O")]

    @property
    def inducing_dim(self) -> int:
        """The number of coordinates of an inducing input."""
        return int(self.inducing()[0].shape[-1])

    def check(self, x: Tensor, name: str = "X") -> None:
        """Raise a clear error unless the features can be evaluated at x."""
        check_points(x, name)
        if isinstance(self.view, PointKernel):
            for Z in self.inducing():
                if Z.shape[-1] != x.shape[-1]:
                    raise ValueError(f"{name} has {x.shape[-1]} columns, the inducing inputs have {Z.shape[-1]}.")

    @torch.no_grad()
    def tidy(self) -> None:
        """Move inducing inputs that a step took beyond a pole of the globe to the other side of the pole."""
        for part in self.view.modules() if isinstance(self.view, torch.nn.Module) else ():
            if isinstance(part, GlobeKernel):
                longitude, latitude = (0, 1) if part.active_dims is None else part.active_dims.tolist()
                for Z in self.inducing():
                    beyond = Z[..., latitude].abs() > 90
                    if bool(beyond.any()):
                        reflected = Z[..., latitude].sign() * 180 - Z[..., latitude]
                        Z[..., longitude] = torch.where(beyond, Z[..., longitude] + 180, Z[..., longitude])
                        Z[..., latitude] = torch.where(beyond, reflected, Z[..., latitude]).clamp(-90, 90)

    def forward(self, x: Any) -> Evaluation:
        """a(x) and the residual for one batch. For several batches call `whiten` once and evaluate its result."""
        return self.whiten()(x)


def inducing_parameter(Z: Tensor, learn: bool, name: str = "Z") -> torch.nn.Parameter:
    """A checked copy of inducing inputs as a parameter."""
    return torch.nn.Parameter(check_points(Z, name).detach().clone(), requires_grad=learn)
