"""How long and how fast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from harmonicgp._validation import whole_number

GradientBatch: TypeAlias = Literal["same", "before", "fresh"]
Optimizer: TypeAlias = Literal["natural", "adam"]


@dataclass(frozen=True)
class Schedule:
    """The course of a fit.

    `gradient_batch` says on which batch Adam takes its gradient: the one q has just stepped on, the same before q steps, or a
    fresh one. `optimizer="adam"` trains everything by Adam at a constant rate, as the paper's runs.
    """

    max_steps: int = 400
    batch_size: int = 1024
    learning_rate: float = 0.02
    rho: float = 0.3  #: first length of natural-gradient steps
    gradient_batch: GradientBatch = "same"
    optimizer: Optimizer = "natural"
    finish: bool = True  #: closed form (Gaussian), or full-data steps
    refine: bool = True  #: noise and output scale on held-out rows (Gaussian)
    validation_fraction: float = 0.1
    max_validation: int = 4000
    full_passes: int = 3  #: full-data natural-gradient steps of the finish, where there is no closed form
    seed: int = 0
    progress: bool = True  #: a bar, on a terminal

    def __post_init__(self) -> None:
        whole_number(self.max_steps, "max_steps", 0)
        whole_number(self.batch_size, "batch_size", 1)
        whole_number(self.full_passes, "full_passes", 0)
        whole_number(self.max_validation, "max_validation", 0)
        whole_number(self.seed, "seed", 0)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}.")
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho must be in (0, 1]; got {self.rho}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in [0, 1); got {self.validation_fraction}.")
        for name, value, allowed in (
            ("gradient_batch", self.gradient_batch, get_args(GradientBatch)),
            ("optimizer", self.optimizer, get_args(Optimizer)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")

    def rho_at(self, step: int) -> float:
        """Almost whole natural-gradient steps at first, then falling to 0.02 with the learning rate."""
        return 0.9 if step < 3 else max(self.rho * (1 - step / self.max_steps), 0.02)

    def rate_at(self, step: int) -> float:
        """Adam's course: from a half to the whole in the first tenth, then along a cosine to a fortieth."""
        share = step / max(self.max_steps, 1)
        if self.optimizer == "adam":
            return 1.0
        return 0.5 + 5 * share if share < 0.1 else 0.025 + 0.4875 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def batches(N: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers without replacement, pass after pass; all rows where they fit into a batch."""
    while True:
        if size >= N:
            yield torch.arange(N)
            continue
        order = torch.randperm(N, generator=generator)
        yield from order.split(size)[: N // size]
