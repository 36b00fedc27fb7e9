"""The arguments of the estimators, with their checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.utils import check_random_state

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.kernels.profiles import NAMED_PROFILES
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.tables.encoder import Missing
from harmonicgp.tables.targets import Transform
from harmonicgp.training import Schedule
from harmonicgp.training.fit import Callback

#: Neighbours at most.
MAX_NEIGHBOURS = 200


@dataclass(eq=False, repr=False)
class ModelOptions:
    """The constructor arguments that both estimators have, and all those of `HarmonicGPClassifier`.

    The estimators inherit their constructor from here. scikit-learn reads the arguments from its signature, compares
    estimators by identity and prints them itself. The docstring of `HarmonicGPRegressor` explains the arguments.
    """

    kernel: str | gpytorch.kernels.Kernel = "matern32"
    symmetry: str | Action | None = "auto"
    n_inducing: int | str = "auto"
    share_inducing: bool = True
    resolution: Resolution = "complex"
    posterior: str = "auto"
    _: KW_ONLY
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
    random_state: int | np.random.RandomState | None = 0
    progress: bool = True


@dataclass(eq=False, repr=False)
class RegressionOptions(ModelOptions):
    """The constructor arguments of `HarmonicGPRegressor`; its docstring explains them."""

    _: KW_ONLY
    bound: Bound = "tight"
    likelihood: str = "gaussian"
    target_transform: Transform | None = None
    calibration: str | None = "auto"
    neighbours: int | str = "auto"


def is_gaussian(options: ModelOptions) -> bool:
    """Whether the options ask for Gaussian noise."""
    return isinstance(options, RegressionOptions) and options.likelihood == "gaussian"


def bound_of(options: ModelOptions) -> Bound:
    """The bound that training maximises; only Gaussian noise has more than one."""
    return options.bound if isinstance(options, RegressionOptions) and is_gaussian(options) else "elbo"


def make_schedule(options: ModelOptions, **changes: Any) -> Schedule:
    """The schedule of a fit with these options; `changes` are other fields of `Schedule`, which take precedence."""
    settings: dict[str, Any] = {
        "max_steps": options.max_steps,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "time_budget": options.time_budget,
        "validation_fraction": options.validation_fraction,
        "early_stopping": bool(options.early_stopping),
        "progress": bool(options.progress),
    }
    return Schedule(**(settings | changes))


def check_options(options: ModelOptions, noise_std: Any = None) -> None:
    """Raise a clear error for arguments that no model can have; `noise_std` is that of `fit`."""
    if not (options.symmetry is None or options.symmetry == "auto" or isinstance(options.symmetry, Action)):
        raise TypeError(
            'symmetry must be "auto", None for one block, or an action of harmonicgp.actions, such as Negation([0]); '
            f"got {options.symmetry!r}."
        )
    is_name = isinstance(options.kernel, str) and options.kernel in NAMED_PROFILES
    if not (is_name or isinstance(options.kernel, gpytorch.kernels.Kernel)):
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
    make_schedule(options)  # checks the rest
    if isinstance(options, RegressionOptions):
        _check_regression(options, noise_std)


def _check_regression(options: RegressionOptions, noise_std: Any) -> None:
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
        if k > 0 and options.likelihood != "gaussian":
            raise ValueError('neighbours are for likelihood="gaussian": use neighbours=0 with Student-t noise.')
    if options.likelihood == "student_t" and options.target_transform == "log":
        raise ValueError(
            'under target_transform="log" with Student-t noise y has no mean: use likelihood="gaussian", or '
            'target_transform="quantile".'
        )
    if options.calibration == "conformal" and options.validation_fraction == 0:
        raise ValueError('calibration="conformal" needs held-out rows: set validation_fraction above zero.')
    if noise_std is not None and (options.likelihood != "gaussian" or options.target_transform is not None):
        raise ValueError('noise_std needs likelihood="gaussian" and no target_transform: errors are in units of y.')


def _check_names(options: ModelOptions, **allowed: tuple[str | None, ...]) -> None:
    for name, values in allowed.items():
        value = getattr(options, name)
        if value not in values:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, values))}; got {value!r}.")


def fresh_seed(random_state: Any) -> int:
    """A seed drawn from any random state that scikit-learn accepts."""
    return int(check_random_state(random_state).randint(2**31 - 10**6))


def pick_device(name: str) -> torch.device:
    """The device that `device=` names; "auto" is CUDA if it is available."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError('device="cuda" needs a CUDA device and a PyTorch build for it: use device="cpu" or "auto".')
    return torch.device("cuda" if name != "cpu" and available else "cpu")
