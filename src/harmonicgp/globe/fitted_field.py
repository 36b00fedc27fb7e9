"""The interface of a fitted field, between the estimator and its two kinds: `FittedMaps` and `FittedCells`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor

from harmonicgp.globe.places import Place
from harmonicgp.tables.columns import Array


class FittedField(Protocol):
    """A field that predicts in the units of the data, without noise. A place goes back to the field that made it."""

    @property
    def has_waves(self) -> bool:
        """Whether it has components and a spectrum."""
        ...

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs."""
        ...

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise."""
        ...

    def attributes(self) -> dict[str, Any]:
        """Fitted attributes of the estimator."""
        ...

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of `where`, or that of the DataArray `like`; None is the fitted grid."""
        ...

    def on_grid(self, place: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance, [slices, rows, columns]."""
        ...

    def at_points(self, X: Any, variance: bool) -> tuple[Array, Array | None]:
        """Mean and variance at points [n, inputs]: [n], or [slices, n]."""
        ...

    def samples(self, place: Any, n: int, seed: int) -> Array:
        """Fields drawn from the posterior, [n, slices, rows, columns]."""
        ...

    def frequencies(self, frequencies: Sequence[int] | None) -> list[int]:
        """Check the frequencies of components; raises ValueError without waves."""
        ...

    def components(self, place: Any, frequencies: list[int]) -> Array:
        """The mean of single frequencies, [frequencies, slices, rows, columns]; raises ValueError without waves."""
        ...

    def spectrum(self, latitudes: Any) -> Array:
        """The power of the mean at each frequency; raises ValueError without waves."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        ...
