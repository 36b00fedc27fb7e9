"""How long and how fast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
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

    `early_stopping` watches the bound on held-out rows (on all rows where none are held out and a batch holds them all): when
    it no longer rises, the fit goes on to the last fifth of its course, so that it still cools down. `time_budget`
    seconds hold for the whole of `fit`, the finish included. With `checkpoint`, a file, a fit that was killed goes on where it
    was and ends with the same result.
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
    set_aside: bool = False  #: hold rows out in any case, for what comes after the fit
    keep_out: bool = False  #: leave held-out rows out of the final posterior too, for calibration
    early_stopping: bool = False
    time_budget: float | None = None  #: seconds
    checkpoint: Path | None = None
    checkpoint_every: int = 20  #: steps
    full_passes: int = 3  #: full-data natural-gradient steps of the finish, where there is no closed form
    chunk_size: int = 4096  #: rows at a time in passes over the data
    seed: int = 0
    progress: bool = True  #: a bar, on a terminal

    def __post_init__(self) -> None:
        whole_number(self.max_steps, "max_steps", 0)
        whole_number(self.batch_size, "batch_size", 1)
        whole_number(self.full_passes, "full_passes", 0)
        whole_number(self.max_validation, "max_validation", 0)
        whole_number(self.checkpoint_every, "checkpoint_every", 1)
        whole_number(self.chunk_size, "chunk_size", 1)
        whole_number(self.seed, "seed", 0)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}.")
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho must be in (0, 1]; got {self.rho}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in [0, 1); got {self.validation_fraction}.")
        if self.time_budget is not None and not 0 < self.time_budget < math.inf:
            raise ValueError(f"time_budget must be a positive number of seconds; got {self.time_budget}.")
        for name, value, allowed in (
            ("gradient_batch", self.gradient_batch, get_args(GradientBatch)),
            ("optimizer", self.optimizer, get_args(Optimizer)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")

    def rho_at(self, step: int, share: float) -> float:
        """Almost whole natural-gradient steps at first, then falling to 0.02 with the learning rate."""
        return 0.9 if step < 3 else max(self.rho * (1 - share), 0.02)

    def rate_at(self, share: float) -> float:
        """Adam's course: from a half to the whole in the first tenth, then along a cosine to a fortieth."""
        if self.optimizer == "adam":
            return 1.0
        return 0.5 + 5 * share if share < 0.1 else 0.025 + 0.4875 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


@dataclass
class Course:
    """Where a fit stands: `share` runs from 0 to 1 and sets all rates."""

    plan: Schedule
    step: int = 0
    share: float = 0.0
    best: float = -math.inf
    stale: int = 0  #: checks since the watched bound last rose
    cooling: bool = False
    kl: float = 0.0  #: KL(q || p) a row, when it was last looked at
    seconds: float = 0.0  #: spent before a resumption

    COOL = 0.8  #: where a fit that no longer improves goes on
    PATIENCE = 3
    TOLERANCE = 1e-3  #: nats a row

    @property
    def done(self) -> bool:
        """Whether the course is run."""
        return self.share >= 1 - 1e-9 or self.step >= self.plan.max_steps

    @property
    def check_every(self) -> int:
        """Steps from one look at the watched bound to the next."""
        return max(self.plan.max_steps // 25, 4)

    def advance(self, elapsed_share: float = 0.0) -> None:
        """One step on; `elapsed_share` is that of a time budget."""
        self.step += 1
        self.share = min(max(self.share + 1 / self.plan.max_steps, elapsed_share), 1.0)

    def watch(self, value: float) -> None:
        """A new value of the watched bound."""
        if value > self.best + self.TOLERANCE:
            self.best, self.stale = value, 0
            return
        self.stale += 1
        if self.stale >= self.PATIENCE and not self.cooling and self.share >= 0.15:
            self.share, self.cooling = max(self.share, self.COOL), True

    def state(self) -> dict[str, float]:
        """All that changes, for a checkpoint."""
        return {name: getattr(self, name) for name in ("step", "share", "best", "stale", "cooling", "kl")}


class Batches:
    """Row numbers without replacement, pass after pass; all rows where they fit into a batch.

    The k-th draw depends on the seed and k alone, so that a fit can be taken up anywhere.
    """

    def __init__(self, N: int, size: int, seed: int) -> None:
        self.N, self.size, self.seed = N, size, seed
        self.drawn = 0
        self._order: tuple[int, Tensor] = (-1, torch.empty(0, device="cpu"))

    @property
    def whole(self) -> bool:
        """Whether a batch holds all rows."""
        return self.size >= self.N

    def draw(self) -> Tensor:
        """The next batch."""
        k, self.drawn = self.drawn, self.drawn + 1
        if self.whole:
            return torch.arange(self.N, device="cpu")
        turn, place = divmod(k, self.N // self.size)
        if self._order[0] != turn:
            generator = torch.Generator().manual_seed(self.seed + 1_000_003 * turn)
            self._order = (turn, torch.randperm(self.N, generator=generator, device="cpu"))
        return self._order[1][place * self.size : (place + 1) * self.size]
