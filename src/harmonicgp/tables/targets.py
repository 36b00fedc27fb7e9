"""Targets to model targets, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Warp, check_size, is_constant, moments

Transform: TypeAlias = Literal["log", "quantile"]

#: The size of a logarithm of targets at most: exponentials of larger ones leave the range of floats.
_LARGEST = 690.0


@dataclass(frozen=True)
class Target:
    """Monotone maps of targets to model targets with mean zero and variance one."""

    transform: Transform | None
    centre: Array  #: [P]
    scale: Array  #: [P]
    warps: tuple[Warp, ...] = ()

    @classmethod
    def fit(
        cls, y: Array, counts: Array | None = None, transform: Transform | None = None, names: Sequence[str] = ()
    ) -> Target:
        """Fit the maps to targets y [N, P]."""
        labels = list(names) or (["y"] if y.shape[1] == 1 else [f"y{i}" for i in range(y.shape[1])])
        check_size(y, labels)
        if transform is not None and transform not in get_args(Transform):
            raise ValueError(f'target_transform must be None, "log" or "quantile"; got {transform!r}.')
        if transform == "log" and bool((y <= 0).any()):
            j = int(y.min(0).argmin())
            raise ValueError(
                f'target_transform="log" needs positive targets; the smallest {labels[j]} is {y[:, j].min():g}. Shift the '
                'target, or use "quantile".'
            )
        warps = tuple(Warp.fit(column, counts) for column in y.T) if transform == "quantile" else ()
        plain = cls(transform, np.zeros(y.shape[1]), np.ones(y.shape[1]), warps)
        scales = [moments(column, counts) for column in plain.forward(y)]
        centre, scale = (np.array(part) for part in zip(*scales, strict=True))
        return cls(transform, centre, scale, warps)

    def forward(self, y: Array) -> Array:
        """Model targets [P, n] of targets [n, P]; NaN where the transform has no value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.transform == "log":
                z = np.log(y).T
            elif self.transform == "quantile":
                z = np.stack([warp(column) for warp, column in zip(self.warps, y.T, strict=True)])
            else:
                z = y.T
        return (z - self.centre[:, None]) / self.scale[:, None]

    def inverse(self, z: Array) -> Array:
        """Targets of model targets [P, ...], in the same shape."""
        wide = (slice(None),) + (None,) * (z.ndim - 1)
        z = z * self.scale[wide] + self.centre[wide]
        if self.transform == "log":
            return np.exp(z.clip(-_LARGEST, _LARGEST))
        if self.transform == "quantile":
            return np.stack([warp.inverse(part) for warp, part in zip(self.warps, z, strict=True)])
        return z

    def log_slope(self, y: Array) -> Array:
        """The logarithm of the slope dz/dy, [P, n], at targets y [n, P]."""
        base = -np.log(self.scale)[:, None]
        if self.transform == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                return base - np.log(y).T
        if self.transform == "quantile":
            return base + np.stack([warp.log_slope(column) for warp, column in zip(self.warps, y.T, strict=True)])
        return base + np.zeros_like(y.T)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """A JSON part and arrays, for a model file."""
        arrays = {"centre": self.centre, "scale": self.scale}
        for i, warp in enumerate(self.warps):
            arrays |= {f"warp.{i}.values": warp.values, f"warp.{i}.scores": warp.scores}
        return {"transform": self.transform, "warps": len(self.warps)}, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Target:
        """What `state` gave."""
        warps = tuple(Warp(arrays[f"warp.{i}.values"], arrays[f"warp.{i}.scores"]) for i in range(header["warps"]))
        return cls(header["transform"], arrays["centre"], arrays["scale"], warps)


def constant_notes(y: Array, names: Sequence[str]) -> list[str]:
    """Sentences on targets y [N, P] that do not vary, or by no more than rounding."""
    notes = []
    for name, column in zip(names, y.T, strict=True):
        if np.ptp(column) == 0:
            notes.append(f"{name} does not vary: predictions are its only value.")
        elif is_constant(column, moments(column, None)):
            notes.append(f"{name} varies by less than a billionth of its size: subtract its mean to fit what varies.")
    return notes
