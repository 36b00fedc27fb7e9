"""The arguments of `HarmonicGPGlobe` as one checked value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from harmonicgp.likelihoods.observation import Bound
from harmonicgp.symmetry.options import pick_device

#: Names of the kernels of the straight-line distance.
KERNELS = ("rbf", "matern12", "matern32", "matern52")


def _rule(holds: Callable[[Any], bool], words: str) -> Any:
    """A dataclass field with a condition on its value, and the condition in words."""
    return field(metadata={"holds": holds, "words": words})


def _one_of(*names: str) -> Any:
    words = ", ".join(f'"{name}"' for name in names)
    return _rule(lambda value: isinstance(value, str) and value in names, f"one of {words}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _whole(least: int, auto: bool = False) -> Any:
    def holds(value: Any) -> bool:
        whole = _is_number(value) and not isinstance(value, bool) and value >= least and value == int(value)
        return whole or (auto and isinstance(value, str) and value == "auto")

    return _rule(holds, ('"auto" or ' if auto else "") + f"a whole number of at least {least}")


def _positive(optional: bool) -> Any:
    return _rule(lambda value: (optional and value is None) or (_is_number(value) and value > 0), "a positive number")


@dataclass(frozen=True)
class Options:
    """Checked arguments of `HarmonicGPGlobe`, which documents them. A size of "auto" is None here."""

    mean: Any  #: checked by `MeanFunction.of`
    random_state: int
    progress: bool
    kernel: str = _one_of("auto", *KERNELS)
    n_inducing: int | None = _whole(1, auto=True)
    t_max: int | None = _whole(0, auto=True)
    lengthscale: float | None = _positive(optional=True)
    field_std: float | None = _positive(optional=True)
    noise_level: float | None = _positive(optional=True)
    memory: float = _positive(optional=False)
    neighbours: int | None = _whole(0, auto=True)
    by: str | None = _rule(lambda value: value is None or isinstance(value, str), "the name of a dimension")
    posterior: str = _one_of("auto", "block", "joint")
    max_evaluations: int = _whole(1)
    full_evaluations: int = _whole(0)
    n_draws: int = _whole(2)
    dtype: str = _one_of("auto", "float32", "float64")
    bound: Bound = _one_of("tight", "elbo")  # noqa: RUF009
    device: str = _one_of("cpu", "cuda", "auto")
    error_bars: str = _one_of("checked", "always")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Options:
        """Check the arguments of the estimator; raises a ValueError for the first wrong one."""
        values = {
            "device": "cpu",
            "neighbours": "auto",
            "error_bars": "checked",
            **arguments,
        }  # files of earlier versions have none
        for name, rule in RULES.items():
            if not rule["holds"](values[name]):
                raise ValueError(f"{name} must be {rule['words']}; got {values[name]!r}.")
        for name in ("n_inducing", "t_max", "neighbours", "n_draws", "max_evaluations", "full_evaluations"):
            values[name] = None if values[name] == "auto" else int(values[name])
        return cls(**values)

    @property
    def of_waves(self) -> list[str]:
        """Names of the arguments that the user gave and that only maps of waves have."""
        names = ("lengthscale", "field_std", "noise_level", "t_max")
        return [name for name in names if getattr(self, name) is not None]

    @property
    def of_regressor(self) -> dict[str, Any]:
        """The arguments that a `HarmonicGPRegressor` has too."""
        names = ("posterior", "bound", "dtype", "random_state", "progress", "device")
        return {name: getattr(self, name) for name in names}

    @property
    def fixed(self) -> tuple[bool, bool, bool]:
        """Whether the user gave lengthscale, variance and noise."""
        return self.lengthscale is not None, self.field_std is not None, self.noise_level is not None

    def torch_device(self) -> torch.device:
        """The device of the computation; "auto" is CUDA if there is one."""
        return pick_device(self.device)


#: The conditions on the arguments, by name.
RULES = {argument.name: argument.metadata for argument in fields(Options) if argument.metadata}
