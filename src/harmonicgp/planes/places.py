"""Where values are, what is known of their noise, and the model that explains them: all in float64 and model units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp.io.specs import build_kernel, kernel_spec
from harmonicgp.kernels.functions import kernel_diagonal
from harmonicgp.planes.learning import RegionRows


@dataclass(frozen=True)
class Places:
    """Points, or the cells of a grid in C order."""

    X: Tensor  #: [n, d]
    H: Tensor  #: the basis of the mean function, [n, q]
    shape: tuple[int, ...] | None = None  #: of a regular grid
    steps: tuple[float, ...] | None = None  #: the distances of its cells

    def part(self, rows: Tensor | slice) -> Places:
        """Some of them, as points."""
        return Places(self.X[rows], self.H[rows])


@dataclass(frozen=True)
class FieldData:
    """P fields at the same places."""

    places: Places
    y: Tensor  #: [P, n], NaN where a value is missing
    noise: Tensor | None = None  #: known noise variances, [P, n]

    def __post_init__(self) -> None:
        n = len(self.places.X)
        fits = self.y.dim() == 2 and self.y.shape[1] == n and self.places.H.shape[0] == n
        fits = fits and (self.noise is None or self.noise.shape == self.y.shape)
        if not fits or bool(torch.isinf(self.y).any()) or not bool(torch.isfinite(self.places.X).all()):
            raise ValueError("values and places of a field whose shapes or numbers do not fit together.")

    def patterns(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Fields with the same observed places and noise: their numbers, the numbers of the places, known variances there."""
        groups: list[tuple[list[int], Tensor, Tensor]] = []
        for p, present in enumerate(torch.isfinite(self.y)):
            rows = present.nonzero()[:, 0]
            noise = torch.zeros(len(rows), dtype=torch.float64, device="cpu")
            noise = noise if self.noise is None else self.noise[p, rows]
            for fields, others, errors in groups:
                if torch.equal(rows, others) and torch.equal(noise, errors):
                    fields.append(p)
                    break
            else:
                groups.append(([p], rows, noise))
        return [(torch.tensor(fields, device="cpu"), rows, noise) for fields, rows, noise in groups]

    def field_rows(self) -> list[RegionRows]:
        """The observed rows of every field, for learning."""
        parts = []
        for fields, rows, noise in self.patterns():
            some = self.places.part(rows)
            parts += [RegionRows(some.X, self.y[p, rows], noise, some.H) for p in fields]
        return parts


@dataclass(frozen=True)
class FieldModel:
    """A kernel and the variance of the noise that was learned."""

    kernel: gpytorch.kernels.Kernel  #: stationary, in float64, without gradients
    s2: float

    def __post_init__(self) -> None:
        numbers = list(self.kernel.parameters())
        if not (0 < self.s2 < float("inf")) or not all(bool(torch.isfinite(p).all()) for p in numbers):
            raise ValueError("hyper-parameters of a field that are not finite.")

    def prior_variance(self, X: Tensor) -> float:
        """k(x, x)."""
        return float(kernel_diagonal(self.kernel, X[:1], X[:1])[0])

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        tensors = {f"kernel.{name}": value for name, value in self.kernel.state_dict().items()}
        return {"kernel": kernel_spec(self.kernel), "s2": self.s2}, tensors

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FieldModel:
        """From a file."""
        kernel = build_kernel(header["kernel"]).double()
        kernel.load_state_dict({k.removeprefix("kernel."): v for k, v in tensors.items() if k.startswith("kernel.")})
        return cls(kernel.requires_grad_(False), float(header["s2"]))


def data_tensors(data: FieldData) -> dict[str, Tensor]:
    """The data for a file."""
    tensors = {"X": data.places.X, "H": data.places.H, "y": data.y}
    return tensors if data.noise is None else tensors | {"noise": data.noise}


def data_from(tensors: Mapping[str, Tensor], shape: Any, steps: Any) -> FieldData:
    """The data of a file."""
    sizes = None if shape is None else tuple(int(n) for n in shape)
    distances = None if steps is None else tuple(float(step) for step in steps)
    places = Places(tensors["X"].double(), tensors["H"].double(), sizes, distances)
    return FieldData(places, tensors["y"].double(), tensors.get("noise"))
