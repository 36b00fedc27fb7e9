"""Regression with error bars: fit, predict."""

from __future__ import annotations

from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from harmonicgp.actions import Action, Negation, PrincipalNegation
from harmonicgp.features import Features, HarmonicFeatures, SparseFeatures
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.inducing import median_distance, place
from harmonicgp.inference.posterior import Family
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.training import Schedule, fit

_KERNELS = {
    "rbf": lambda d: gpytorch.kernels.RBFKernel(ard_num_dims=d),
    "matern12": lambda d: gpytorch.kernels.MaternKernel(nu=0.5, ard_num_dims=d),
    "matern32": lambda d: gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=d),
    "matern52": lambda d: gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=d),
}


class HarmonicGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian process regression with inducing points in symmetric blocks.

    Inputs and targets are standardised inside, but for columns that a globe or a periodic kernel or a translation reads in
    degrees or hours; predictions are of y in its own units. `symmetry` is None for one block of inducing points, or an action
    on the standardised columns; `PrincipalNegation(J)` turns the columns to their principal axes first, which suits correlated
    columns (lengthscales then belong to those axes). A kernel of your own starts from its own lengthscales.

    After `fit`: `elbo_`, the bound per row of standardised y, by the bound that was asked for; `history_`, `n_steps_`, `kernel_`.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(300, 2))
        >>> gp = HarmonicGPRegressor(n_inducing=20, max_steps=50).fit(X, np.sin(X[:, 0]))
        >>> mean, std = gp.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))
    """

    def __init__(
        self,
        kernel: str | gpytorch.kernels.Kernel = "matern32",
        symmetry: Action | None = None,
        n_inducing: int = 512,
        share_inducing: bool = True,
        resolution: Resolution = "complex",
        posterior: Family = "block",
        bound: Bound = "tight",
        max_steps: int = 400,
        batch_size: int = 1024,
        learning_rate: float = 0.02,
        refine: bool = True,
        dtype: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.kernel = kernel
        self.symmetry = symmetry
        self.n_inducing = n_inducing
        self.share_inducing = share_inducing
        self.resolution = resolution
        self.posterior = posterior
        self.bound = bound
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.refine = refine
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> HarmonicGPRegressor:
        """Fit to rows X [N, d] and targets y [N]."""
        self._check_arguments()
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 10**6))
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        raw = self._raw_columns(X.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            self._x_mean, self._x_scale = np.where(raw, 0.0, X.mean(0)), np.where(raw, 1.0, _scale(X))
            self._y_mean, self._y_scale = float(y.mean()), float(_scale(y[:, None])[0])
        if not np.isfinite([self._y_mean, self._y_scale, *self._x_mean, *self._x_scale]).all():
            raise ValueError("the values of X or y are too large to standardise: divide them by a constant first.")
        dtype = torch.float32 if self.dtype == "float32" else torch.float64
        standard = (X - self._x_mean) / self._x_scale
        self._axes, action = None, self.symmetry
        if isinstance(action, PrincipalNegation):  # turn the columns instead of the action: lengthscales can stay apart
            directions = action.fit(torch.from_numpy(standard)).directions
            assert directions is not None
            self._axes, action = directions.numpy(), Negation.strided(X.shape[1], action.ways)
        rows, target = self._tensor(X, dtype), torch.from_numpy((y - self._y_mean) / self._y_scale).to(dtype)
        features = self._features(rows, action)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
        ).to(dtype)
        likelihood.noise = 0.1
        schedule = Schedule(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            refine=self.refine,
            seed=self._seed,
        )
        result = fit(features, likelihood, rows, target, family=self.posterior, bound=self.bound, schedule=schedule)
        self.kernel_, self.likelihood_ = getattr(features.view, "kernel", None), likelihood
        self.elbo_, self.history_, self.n_steps_ = result.bound, result.history, len(result.history)
        self._predictor = result.predictor()
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of y at X [n, d], and with `return_std` its standard deviation, noise included."""
        check_is_fitted(self, "_predictor")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, variance = self._predictor.marginals(self._tensor(X, next(self.likelihood_.parameters()).dtype))
        m = mean[0].double().numpy() * self._y_scale + self._y_mean
        if not return_std:
            return m
        total = variance[0].double() + float(self.likelihood_.noise.detach())
        return m, total.sqrt().numpy() * self._y_scale

    def _check_arguments(self) -> None:
        if self.symmetry is not None and not isinstance(self.symmetry, Action):
            raise TypeError(
                f"symmetry must be None or an action of harmonicgp.actions, such as Negation([0]); got {self.symmetry!r}."
            )
        if not (
            isinstance(self.kernel, gpytorch.kernels.Kernel)
            or (isinstance(self.kernel, str) and self.kernel in _KERNELS)
        ):
            raise ValueError(f"kernel must be one of {sorted(_KERNELS)} or a GPyTorch kernel; got {self.kernel!r}.")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f'dtype must be "float32" or "float64"; got {self.dtype!r}.')
        check_resolution(self.resolution)

    def _raw_columns(self, d: int) -> np.ndarray[Any, Any]:
        """Columns whose units mean something to the kernel or the action (degrees, hours): left as they are."""
        raw = np.zeros(d, dtype=bool)
        for axis in self.symmetry.periods if self.symmetry is not None else ():
            raw[axis] = True
        for part in self.kernel.modules() if isinstance(self.kernel, gpytorch.kernels.Kernel) else ():
            if isinstance(part, GlobeKernel | gpytorch.kernels.PeriodicKernel):
                raw[slice(None) if part.active_dims is None else part.active_dims.numpy()] = True
        return raw

    def _tensor(self, X: np.ndarray[Any, Any], dtype: torch.dtype) -> Tensor:
        rows = (X - self._x_mean) / self._x_scale
        return torch.from_numpy(rows if self._axes is None else rows @ self._axes).to(dtype)

    def _features(self, rows: Tensor, action: Action | None) -> Features:
        kernel = self._make_kernel(rows)
        if action is None:
            return SparseFeatures(kernel, place(rows, self.n_inducing, seed=self._seed))
        if self.share_inducing:
            Z = place(rows, self.n_inducing, action=action, seed=self._seed)
        else:
            blocks = action.group.n_blocks(self.resolution)
            sets = [place(rows, self.n_inducing, action=action, seed=self._seed + t) for t in range(blocks)]
            m = min(len(Z) for Z in sets)
            Z = torch.stack([Z[:m] for Z in sets])
        return HarmonicFeatures(kernel, action, Z, self.resolution)

    def _make_kernel(self, rows: Tensor) -> gpytorch.kernels.Kernel:
        if isinstance(self.kernel, gpytorch.kernels.Kernel):
            import copy

            return copy.deepcopy(self.kernel).to(rows.dtype)
        d = rows.shape[-1]
        # Lengthscales of their own for the columns, unless the action would mix them.
        ard = d if self.symmetry is None or isinstance(self.symmetry, Negation | PrincipalNegation) else None
        base = _KERNELS[self.kernel](ard)
        base.lengthscale = median_distance(rows, seed=self._seed, ard=ard is not None)
        kernel = gpytorch.kernels.ScaleKernel(base).to(rows.dtype)
        kernel.outputscale = 1.0
        return kernel


def _scale(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Standard deviations, one where a column is constant."""
    scale = X.std(0)
    return np.where(scale > 1e-12 * np.maximum(np.abs(X).max(0), 1e-300), scale, 1.0)
