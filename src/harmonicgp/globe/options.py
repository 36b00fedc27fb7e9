"""The arguments of `HarmonicGPGlobe` as one checked value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harmonicgp.likelihoods.observation import Bound

#: Names of the kernels of the straight-line distance.
KERNELS = ("rbf", "matern32", "matern52")


@dataclass(frozen=True)
class Options:
    """Checked arguments of `HarmonicGPGlobe`, which documents them. A size that is "auto" is None here."""

    kernel: str
    n_inducing: int | None
    t_max: int | None
    mean: Any
    by: str | None
    lengthscale: float | None
    field_std: float | None
    noise_level: float | None
    posterior: str
    n_draws: int
    bound: Bound
    max_evaluations: int
    full_evaluations: int
    memory: float
    dtype: str
    device: str
    random_state: int
    progress: bool

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Options:
        """Check the arguments of the estimator; raises ValueError for the first that is wrong."""
        values = {"device": "cpu", **arguments}  # files of earlier versions have no device
        for name, (holds, words) in RULES.items():
            if not holds(values[name]):
                raise ValueError(f"{name} must be {words}; got {values[name]!r}.")
        for name in ("n_inducing", "t_max"):
            values[name] = None if values[name] == "auto" else int(values[name])
        for name in ("n_draws", "max_evaluations", "full_evaluations"):
            values[name] = int(values[name])
        return cls(**values)

    @property
    def fixed(self) -> tuple[bool, bool, bool]:
        """Whether lengthscale, variance and noise are given."""
        return self.lengthscale is not None, self.field_std is not None, self.noise_level is not None

    def torch_device(self) -> torch.device:
        """The device that computes: with "auto" CUDA where there is one."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def _one_of(*names: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _whole(least: int) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        return _is_number(value) and not isinstance(value, bool) and value >= least and value == int(value)

    return holds


def _whole_or_auto(least: int) -> Callable[[Any], bool]:
    return lambda value: (isinstance(value, str) and value == "auto") or _whole(least)(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_positive_or_none(value: Any) -> bool:
    return value is None or _is_positive(value)


#: Of each argument: what must hold, and the words for it. `mean` is checked when it is read.
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kernel": (_one_of("auto", *KERNELS), f'"auto" or one of {", ".join(KERNELS)}'),
    "n_inducing": (_whole_or_auto(1), '"auto" or a whole number of at least 1'),
    "t_max": (_whole_or_auto(0), '"auto" or a whole number of at least 0'),
    "lengthscale": (_is_positive_or_none, "a positive number"),
    "field_std": (_is_positive_or_none, "a positive number"),
    "noise_level": (_is_positive_or_none, "a positive number"),
    "memory": (_is_positive, "a positive number"),
    "by": (lambda value: value is None or isinstance(value, str), "the name of a dimension"),
    "posterior": (_one_of("auto", "block", "joint"), '"auto", "block" or "joint"'),
    "max_evaluations": (_whole(1), "a whole number of at least 1"),
    "full_evaluations": (_whole(0), "a whole number of at least 0"),
    "n_draws": (_whole(2), "a whole number of at least 2"),
    "dtype": (_one_of("auto", "float32", "float64"), '"auto", "float32" or "float64"'),
    "bound": (_one_of("tight", "elbo"), '"tight" or "elbo"'),
    "device": (_one_of("cpu", "cuda", "auto"), '"cpu", "cuda" or "auto"'),
}
