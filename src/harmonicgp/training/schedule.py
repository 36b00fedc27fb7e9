"""The schedule of a fit: its length, rates and batches."""

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
    """The length, rates and batches of a fit.

    - `gradient_batch` is the batch on which Adam takes its gradient: "same", on which q has just stepped; "before", the same
      before q steps on it; or "fresh", another one.
    - `optimizer="adam"` trains everything by Adam at a constant rate, as in the paper.
    - `early_stopping` watches the bound on held-out rows (on all rows if none are held out and a batch holds all). When it no
      longer rises, the fit skips to the last fifth of its course, in which the rates fall.
    - `time_budget` limits the whole of `fit`, the finish included.
    - `checkpoint` is a file. A fit that was killed continues from it and ends with the same result.

    Examples:
        >>> plan = Schedule(max_steps=100, batch_size=256, time_budget=60.0)
        >>> plan.rate_at(0.0), plan.rate_at(0.1)  # Adam's rate, as a factor of `learning_rate`
        (0.5, 1.0)
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
    set_aside: bool = False  #: hold rows out in any case, for steps after the fit
    keep_out: bool = False  #: leave held-out rows out of the final posterior too, for calibration
    early_stopping: bool = False
    time_budget: float | None = None  #: seconds
    checkpoint: Path | None = None
    checkpoint_every: int = 20  #: steps
    full_passes: int = 3  #: full-data natural-gradient steps of the finish, if there is no closed form
    chunk_size: int = 4096  #: rows at a time in passes over the data
    seed: int = 0
    progress: bool = True  #: show a progress bar on a terminal

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
        """The length of a natural-gradient step: 0.9 in the first three steps, then falling from `rho` to 0.02."""
        return 0.9 if step < 3 else max(self.rho * (1 - share), 0.02)

    def rate_at(self, share: float) -> float:
        """Adam's rate as a factor: from 0.5 to 1 in the first tenth, then along a cosine to 0.025."""
        if self.optimizer == "adam":
            return 1.0
        return 0.5 + 5 * share if share < 0.1 else 0.025 + 0.4875 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


@dataclass
class Course:
    """The progress of a fit: `share` runs from 0 to 1 and sets all rates."""

    plan: Schedule
    step: int = 0
    share: float = 0.0
    best: float = -math.inf
    stale: int = 0  #: checks since the watched bound last rose
    cooling: bool = False
    kl: float = 0.0  #: KL(q || p) per row, when it was last computed
    seconds: float = 0.0  #: of earlier runs, before a checkpoint was read

    COOL = 0.8  #: the share to which a fit skips when it no longer improves
    PATIENCE = 3
    TOLERANCE = 1e-3  #: nats per row

    @property
    def done(self) -> bool:
        """Whether the fit is at its end."""
        return self.share >= 1 - 1e-9 or self.step >= self.plan.max_steps

    @property
    def check_every(self) -> int:
        """Steps between two checks of the watched bound."""
        return max(self.plan.max_steps // 25, 4)

    def advance(self, elapsed_share: float = 0.0) -> None:
        """Count a step; `elapsed_share` is the used share of a time budget."""
        self.step += 1
        self.share = min(max(self.share + 1 / self.plan.max_steps, elapsed_share), 1.0)

    def watch(self, value: float) -> None:
        """Take a new value of the watched bound."""
        if value > self.best + self.TOLERANCE:
            self.best, self.stale = value, 0
            return
        self.stale += 1
        if self.stale >= self.PATIENCE and not self.cooling and self.share >= 0.15:
            self.share, self.cooling = max(self.share, self.COOL), True

    def state(self) -> dict[str, float]:
        """The values that change, for a checkpoint."""
        return {name: getattr(self, name) for name in ("step", "share", "best", "stale", "cooling", "kl")}


class Batches:
    """Row numbers without replacement, pass after pass; all rows if they fit into a batch.

    The k-th draw depends only on the seed and k, so that a fit can be resumed at any step.
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
