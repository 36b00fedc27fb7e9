"""The arguments of the estimators as values, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpytorch
import torch
from sklearn.utils import check_random_state

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.inference.posterior import Family
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.kernels.profiles import NAMED_PROFILES
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.tables.encoder import Missing
from harmonicgp.tables.targets import Transform
from harmonicgp.training import Callback, Schedule

#: Neighbours at most.
MAX_NEIGHBOURS = 200


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The arguments that both estimators have, and all those of `HarmonicGPClassifier`; its docstring explains them."""

    kernel: str | gpytorch.kernels.Kernel = "matern32"
    symmetry: str | Action | None = "auto"
    n_inducing: int | str = "auto"
    share_inducing: bool = True
    resolution: Resolution = "complex"
    posterior: str = "auto"
    warp: str | None = "auto"
    columns: Any = None
    missing: Missing = "refuse"
    max_steps: int = 400
    batch_size: int = 1024
    learning_rate: float = 0.05
    time_budget: float | None = None
    validation_fraction: float = 0.1
    early_stopping: bool = True
    checkpoint_dir: str | Path | None = None
    callbacks: Sequence[Callback] | None = None
    dtype: str = "auto"
    device: str = "cpu"
    random_state: Any = 0
    progress: bool = True

    @property
    def warped(self) -> bool | None:
        """Whether skewed columns are warped; None leaves it to a search."""
        return {"auto": None, None: False, "quantile": True}[self.warp]

    @property
    def family(self) -> Family | None:
        """The family of the posterior; None leaves it to a search."""
        return None if self.posterior == "auto" else self.posterior  # type: ignore[return-value]

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian, so that closed forms apply."""
        return False

    @property
    def bound_used(self) -> Bound:
        """The bound that training raises: one of Gaussian noise, or the only one of other likelihoods."""
        return "elbo"

    def schedule(self, **changes: Any) -> Schedule:
        """The course of the fit."""
        settings: dict[str, Any] = {
            "max_steps": self.max_steps,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "time_budget": self.time_budget,
            "validation_fraction": self.validation_fraction,
            "early_stopping": bool(self.early_stopping),
            "progress": bool(self.progress),
        }
        return Schedule(**(settings | changes))


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(ModelOptions):
    """The arguments of `HarmonicGPRegressor`; its docstring explains them."""

    bound: Bound = "tight"
    likelihood: str = "gaussian"
    target_transform: Transform | None = None
    calibration: str | None = "auto"
    neighbours: int | str = "auto"

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian, so that closed forms apply."""
        return self.likelihood == "gaussian"

    @property
    def bound_used(self) -> Bound:
        """The bound that training raises: one of Gaussian noise, or the only one of other likelihoods."""
        return self.bound if self.is_gaussian else "elbo"


def check_options(options: ModelOptions) -> None:
    """Raise a clear error for arguments that no model can have."""
    if not (options.symmetry is None or options.symmetry == "auto" or isinstance(options.symmetry, Action)):
        raise TypeError(
            'symmetry must be "auto", None for one block, or an action of harmonicgp.actions, such as Negation([0]); '
            f"got {options.symmetry!r}."
        )
    named = isinstance(options.kernel, str) and options.kernel in NAMED_PROFILES
    if not (named or isinstance(options.kernel, gpytorch.kernels.Kernel)):
        raise ValueError(
            f"kernel must be one of {sorted(NAMED_PROFILES)} or a GPyTorch kernel; got {options.kernel!r}."
        )
    _check_names(
        options,
        posterior=("auto", "block", "joint"),
        warp=("auto", None, "quantile"),
        missing=("refuse", "impute"),
        dtype=("auto", "float32", "float64"),
        device=("cpu", "cuda", "auto"),
    )
    if options.n_inducing != "auto":
        m = whole_number(options.n_inducing, "n_inducing", 1)
        order = options.symmetry.group.order if isinstance(options.symmetry, Action) else 1
        if options.posterior == "joint" and order > 1 and m * order > MAX_DENSE:
            raise ValueError(
                f'a joint posterior of {m * order} features is too large: use posterior="block", or at most '
                f"{MAX_DENSE // order} inducing points a block."
            )
    check_resolution(options.resolution)
    options.schedule()  # checks the rest


def check_regression_options(options: RegressionOptions, noise_std: Any = None) -> None:
    """Raise a clear error for arguments of a regression that do not go together."""
    _check_names(
        options,
        likelihood=("gaussian", "student_t"),
        target_transform=(None, "log", "quantile"),
        calibration=("auto", None, "conformal"),
        bound=("tight", "elbo"),
    )
    if options.neighbours != "auto":
        if isinstance(options.neighbours, bool | str | None):
            raise TypeError(f'neighbours must be "auto" or a whole number, 0 for none; got {options.neighbours!r}.')
        k = whole_number(options.neighbours, "neighbours", 0)
        if k > MAX_NEIGHBOURS:
            raise ValueError(
                f"neighbours must be at most {MAX_NEIGHBOURS}: a prediction solves a system of that size at every point; got "
                f"{k}. For more of the data at once use more inducing points."
            )
        if k > 0 and not options.is_gaussian:
            raise ValueError('neighbours are for likelihood="gaussian": use neighbours=0 with Student-t noise.')
    if options.likelihood == "student_t" and options.target_transform == "log":
        raise ValueError(
            'under target_transform="log" with Student-t noise y has no mean: use likelihood="gaussian", or '
            'target_transform="quantile".'
        )
    if options.calibration == "conformal" and options.validation_fraction == 0:
        raise ValueError('calibration="conformal" needs rows held out: give validation_fraction above zero.')
    if noise_std is not None and (options.likelihood != "gaussian" or options.target_transform is not None):
        raise ValueError('noise_std needs likelihood="gaussian" and no target_transform: errors are in units of y.')


def _check_names(options: ModelOptions, **allowed: tuple[str | None, ...]) -> None:
    for name, values in allowed.items():
        value = getattr(options, name)
        if value not in values:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, values))}; got {value!r}.")


def fresh_seed(random_state: Any) -> int:
    """A seed from scikit-learn's kinds of random state."""
    return int(check_random_state(random_state).randint(2**31 - 10**6))


def pick_device(name: str) -> torch.device:
    """The device of an option: "auto" is CUDA where there is one."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError('device="cuda" needs a CUDA device and a PyTorch build for it: use device="cpu" or "auto".')
    return torch.device("cuda" if name != "cpu" and available else "cpu")
