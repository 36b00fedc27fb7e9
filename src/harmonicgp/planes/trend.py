"""Mean functions: a constant, or linear in the coordinates, and covariates; their coefficients are integrated out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.tables.columns import Array

MEANS = ("constant", "linear")


@dataclass(frozen=True)
class Trend:
    """The basis of a mean function, with columns of mean zero and standard deviation one in the fit.

    Examples:
        >>> trend = Trend.of("linear", np.array([[0.0], [2.0]]), np.zeros((2, 0)))
        >>> trend.basis(np.array([[4.0]]), np.zeros((1, 0)))
        tensor([[1., 3.]], dtype=torch.float64)
    """

    kind: str
    centre: tuple[float, ...]  #: of the columns: coordinates if linear, then covariates
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.kind not in MEANS:
            raise ValueError(f'mean must be "constant" or "linear"; got {self.kind!r}.')
        numbers = np.array([*self.centre, *self.scale])
        if len(self.centre) != len(self.scale) or not np.isfinite(numbers).all():
            raise ValueError("a mean function whose numbers are not finite.")

    @classmethod
    def of(cls, kind: str, X: Array, covariates: Array) -> Trend:
        """For the observed places X [n, d] and their covariates [n, c]; constant coordinates are left out by a scale of zero."""
        columns = np.column_stack((X, covariates)) if kind == "linear" else covariates
        spread = columns.std(0)
        return cls(kind, tuple(columns.mean(0).tolist()), tuple(spread.tolist()))

    def basis(self, X: Array, covariates: Array) -> Tensor:
        """The basis at places, [n, q], the constant first."""
        columns = np.column_stack((X, covariates)) if self.kind == "linear" else covariates
        scale = np.array(self.scale)
        parts = ((columns - np.array(self.centre)) / np.where(scale > 0, scale, 1.0))[:, scale > 0]
        return torch.from_numpy(np.column_stack((np.ones(len(X)), parts)))

    def state(self) -> dict[str, Any]:
        """For the header of a file."""
        return {"kind": self.kind, "centre": list(self.centre), "scale": list(self.scale)}

    @classmethod
    def from_state(cls, header: Mapping[str, Any]) -> Trend:
        """From a file."""
        centre, scale = (tuple(float(v) for v in header[name]) for name in ("centre", "scale"))
        return cls(str(header["kind"]), centre, scale)
