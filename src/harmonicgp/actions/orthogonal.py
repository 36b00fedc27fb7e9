"""The action of an orthogonal matrix R with R^T = I."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions.base import Action, register_action
from harmonicgp.groups import Cyclic

_TOLERANCE = 1e-6


class Orthogonal(Action):
    """Multiplies points by an orthogonal matrix R, g.x = R x. The order is the smallest T with R^T = I.

    Without `order` T is searched for up to 1024.

    Examples:
        >>> import torch
        >>> Orthogonal(torch.tensor([[0.0, -1.0], [1.0, 0.0]])).group
        Cyclic(4)
    """

    def __init__(self, matrix: Tensor, order: int | None = None) -> None:
        R = matrix if isinstance(matrix, Tensor) else torch.as_tensor(matrix, device="cpu")
        if R.is_complex():
            raise TypeError("the matrix is complex; points are real, so the matrix must be real and orthogonal.")
        rounding = torch.finfo(R.dtype).eps if R.is_floating_point() else 0.0
        R = R.detach().to(torch.float64)
        if R.dim() != 2 or R.shape[0] != R.shape[1] or R.numel() == 0:
            raise ValueError(f"an orthogonal matrix is square; got shape {tuple(R.shape)}.")
        if not torch.isfinite(R).all():
            raise ValueError("the matrix has NaN or infinite entries.")
        I = torch.eye(R.shape[0], dtype=torch.float64, device=R.device)  # noqa: E741
        error = float((R @ R.mT - I).abs().max())
        if error > _TOLERANCE:
            raise ValueError(f"the matrix is not orthogonal: R R' differs from I by {error:.2g}.")
        if order is not None:
            order = whole_number(order, "the order of Orthogonal", 1)
        T, power, limit = 1, R, order or 1024
        while (error := float((power - I).abs().max())) > _TOLERANCE + 4 * T * rounding:
            if limit == T:
                if order is None:
                    raise ValueError(
                        f"R^T is not the identity for any T up to {T}: the matrix has no finite order here."
                    )
                raise ValueError(f"R^{order} is not the identity, it differs by {error:.2g}: give the right order.")
            T, power = T + 1, R @ power
        if order is not None and order != T:
            raise ValueError(f"R^{T} is the identity already: the order is {T}, not {order}.")
        if T == 1 and float((R - I).abs().max()) > 4 * rounding:
            raise ValueError("the matrix is the identity up to rounding: it moves nothing.")
        self.matrix = R
        self.group = Cyclic(T)
        powers = [I]
        for _ in range(T - 1):
            powers.append(R @ powers[-1])
        self._powers = torch.stack(powers)
        self.dim = self.min_dim = R.shape[0]

    @classmethod
    def of_digits(cls, matrix: Tensor, order: int) -> Orthogonal:
        """The action of a float64 matrix that may have been converted from a lower precision.

        The tolerance for R^T = I depends on the rounding, so such a matrix is converted back first.
        """
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            if torch.equal(matrix.to(dtype).double(), matrix):
                try:
                    return cls(matrix.to(dtype), order)
                except ValueError:
                    continue
        return cls(matrix, order)

    @property
    def order(self) -> int:
        """The smallest T with R^T = I."""
        return self.group.order

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points multiplied by R^s."""
        R = self._powers.to(x)  # [T, d, d]
        if s.dim() == 1:
            return x @ R[s[0]].mT
        if s.shape[-2] == 1:  # one element for all points of a slice, as in an orbit
            return x @ R[s[..., 0, 0]].mT
        result = x
        for k in range(1, len(R)):  # T products, instead of one matrix for each point
            result = torch.where(s == k, x @ R[k].mT, result)
        return result

    @property
    def repr_parses(self) -> bool:
        """No: it does not show the matrix."""
        return False

    def __repr__(self) -> str:
        return f"Orthogonal(<{self.dim} x {self.dim} matrix>, order={self.order})"


register_action(
    "Orthogonal",
    Orthogonal,
    make=Orthogonal.of_digits,
    matrix=Tensor,
    order=lambda fields, key: fields.whole(key, most=10**5),
)
