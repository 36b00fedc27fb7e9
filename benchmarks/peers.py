"""The models of the tabular suite: ours with its defaults, and those that people use today.

Each takes a `Task` and `Caps` and gives an `Outcome`; scores are of y divided by the standard deviation of the training y.
The peers' lengthscales start from the median distance of two rows, as ours do: a start at one is lost in thirty columns.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import gpytorch
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from benchmarks._data import Fold, standardised_fold
from harmonicgp._extras import require
from harmonicgp.inducing import median_distance, place

Array: TypeAlias = np.ndarray[Any, Any]
LEVELS = (0.025, 0.975)
Z = 1.959964  # the 97.5 % point of the normal distribution


class Task(NamedTuple):
    """Rows X [N, d], targets y [N], and the mask of the test rows [N]."""

    X: Array
    y: Array
    test: Array

    @property
    def scale(self) -> float:
        """The standard deviation of the training targets."""
        return float(self.y[~self.test].std())


@dataclass(frozen=True)
class Caps:
    """How much the peers may do; ours has no caps but the timeout."""

    svgp_seconds: float = 600.0
    svgp_epochs: int = 50
    svgp_inducing: int = 1024
    sklearn_rows: int = 5000
    sklearn_search_rows: int = 1000
    sklearn_iterations: int = 100
    trees: int = 500
    gpboost_seconds: float = 600.0
    gpboost_rows: int = 100_000
    gpboost_search_rows: int = 3000
    gpboost_test_rows: int = 20_000
    gpboost_iterations: int = 50
    timeout: float = 3600.0


QUICK = Caps(
    svgp_seconds=20,
    sklearn_rows=1000,
    sklearn_search_rows=300,
    sklearn_iterations=20,
    trees=50,
    gpboost_seconds=20,
    gpboost_rows=2000,
    gpboost_search_rows=500,
    gpboost_test_rows=2000,
    gpboost_iterations=5,
    timeout=900,
)


@dataclass(frozen=True)
class Outcome:
    """Scores on the test rows (`nll` is None where a model has no density), and the seconds of fit and prediction."""

    rmse: float
    nll: float | None
    coverage: float
    seconds: float
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not np.isfinite([self.rmse, self.nll or 0.0, self.coverage]).all():
            raise FloatingPointError(f"a score is not finite: RMSE {self.rmse}, NLL {self.nll}.")


def gaussian_scores(mean: Array, variance: Array, y: Array) -> tuple[float, float, float]:
    """RMSE, mean negative log density and coverage of the central 95 % of N(mean, variance)."""
    error = y - mean
    nll = 0.5 * np.log(2 * math.pi * variance) + 0.5 * error**2 / variance
    inside = np.abs(error) <= Z * np.sqrt(variance)
    return float(np.sqrt(np.mean(error**2))), float(nll.mean()), float(inside.mean())


def coverage_between(low: Array, high: Array, y: Array) -> float:
    """The share of y in [low, high], ends included; of a y that repeats one value many times they are that value, rounded."""
    slack = 1e-6 * float(y.std())
    return float(np.mean((low - slack <= y) & (y <= high + slack)))


def run_harmonicgp(task: Task, caps: Caps) -> Outcome:
    """HarmonicGPRegressor() on the table as it is: no argument, no scaling."""
    return score_harmonicgp(task)


def score_harmonicgp(task: Task, **options: Any) -> Outcome:
    """HarmonicGPRegressor(**options) on the table as it is; `details` has the seconds of the fit."""
    from harmonicgp.estimators import HarmonicGPRegressor

    X, y = task.X[task.test], task.y[task.test]
    start = time.perf_counter()
    model = HarmonicGPRegressor(**options).fit(task.X[~task.test], task.y[~task.test])
    fitted = time.perf_counter() - start
    mean, _ = model.predict(X, return_std=True)
    seconds = time.perf_counter() - start
    low, high = model.predict_quantiles(X, LEVELS).T
    rmse = float(np.sqrt(np.mean((y - mean) ** 2))) / task.scale
    nll = -float(np.mean(model.log_density(X, y))) - math.log(task.scale)
    note = model.symmetry_.name + (f", {model.neighbours_} neighbours" if model.neighbours_ else "")
    details = {
        "elbo": float(model.elbo_),
        "timings": model.timings_,
        "warnings": model.warnings_,
        "notes": model.notes_,
        "neighbours": model.neighbours_,
        "inducing": len(model.inducing_points()),
        "fit_seconds": fitted,
    }
    return Outcome(rmse, nll, coverage_between(low, high, y), seconds, note, details)


class _SVGP(gpytorch.models.ApproximateGP):
    """Whitened SVGP with a full covariance, as GPyTorch's documentation sets it up."""

    def __init__(self, inducing: Tensor, kernel: gpytorch.kernels.Kernel, natural: bool = False) -> None:
        kind = gpytorch.variational.CholeskyVariationalDistribution
        kind = gpytorch.variational.NaturalVariationalDistribution if natural else kind
        q = kind(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGPState(NamedTuple):
    """An SVGP at a point of its training; `seconds` of training, evaluations left out."""

    at: str
    seconds: float
    model: Any
    likelihood: Any


def svgp_course(fold: Fold, caps: Caps, batch: int = 1024, seed: int = 0) -> Iterator[SVGPState]:
    """Train, and stop for an evaluation after `svgp_epochs` epochs and, for good, after `svgp_seconds`.

    Our reading of "the better of 50 epochs and ten minutes": training always ends at ten minutes. Where 50 epochs are
    done by then, both points are evaluated; where they are not, ten minutes is the only point.
    """
    start = time.perf_counter()
    torch.manual_seed(seed)
    base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=fold.X.shape[1])
    base.lengthscale = median_distance(fold.X, ard=True)
    model = _SVGP(place(fold.X, caps.svgp_inducing, seed=seed), gpytorch.kernels.ScaleKernel(base)).to(fold.X.dtype)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(fold.X.dtype)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(fold.y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    epoch = 0
    while True:
        model.train()
        likelihood.train()
        for rows in torch.randperm(len(fold.y)).split(batch):
            adam.zero_grad()
            (-bound(model(fold.X[rows]), fold.y[rows])).backward()
            adam.step()
            seconds = time.perf_counter() - start
            if seconds >= caps.svgp_seconds:
                yield SVGPState(f"{caps.svgp_seconds:g} s", seconds, model, likelihood)
                return
        epoch += 1
        if epoch == caps.svgp_epochs:
            yield SVGPState(f"{epoch} epochs", seconds, model, likelihood)
            start = time.perf_counter() - seconds  # the evaluation does not count


@torch.no_grad()
def svgp_point(state: SVGPState, fold: Fold, chunk: int = 2048) -> dict[str, Any]:
    """Scores of an SVGP on the test rows, and the seconds to train it so far and to predict once."""
    start = time.perf_counter()
    state.model.eval()
    state.likelihood.eval()
    marginals = [state.likelihood(state.model(x)) for x in fold.X_test.split(chunk)]
    mean = torch.cat([m.mean for m in marginals]).double().numpy()
    variance = torch.cat([m.variance for m in marginals]).double().numpy()
    seconds = state.seconds + time.perf_counter() - start
    rmse, nll, coverage = gaussian_scores(mean, variance, fold.y_test.double().numpy())
    return {"at": state.at, "rmse": rmse, "nll": nll, "coverage": coverage, "seconds": seconds}


def run_svgp(task: Task, caps: Caps) -> Outcome:
    """GPyTorch's SVGP in float32: ARD Matern-3/2, k-means inducing inputs, Adam 0.01 on batches of 1024.

    Of the points evaluated the one with the better NLL on the test rows counts: a choice in the peer's favour.
    """
    fold = standardised_fold(*task)
    points: list[dict[str, Any]] = []
    try:
        for state in svgp_course(fold, caps):
            points.append(svgp_point(state, fold))
    except (NotPSDError, NanError):
        if not points:  # what was reached before it broke down still counts
            raise
    best = min(points, key=lambda point: point["nll"])
    scores = {key: best[key] for key in ("rmse", "nll", "coverage", "seconds")}
    return Outcome(**scores, note=best["at"], details={"points": points})


def run_sklearn(task: Task, caps: Caps) -> Outcome:
    """scikit-learn's exact GP: hyper-parameters from few rows (its gradient is an n x n x d array), then conditioned on more."""
    from scipy.optimize import Bounds, minimize
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    def search(objective: Any, start: Array, bounds: Array) -> tuple[Array, float]:
        box, most = Bounds(bounds[:, 0], bounds[:, 1]), caps.sklearn_iterations
        found = minimize(objective, start, jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": most})
        return found.x, float(found.fun)

    fold = standardised_fold(*task, dtype=torch.float64)
    X, y, X_test, y_test = (tensor.numpy() for tensor in fold[:4])
    start = time.perf_counter()
    rows = np.random.default_rng(0).permutation(len(y))[: caps.sklearn_rows]
    few = rows[: caps.sklearn_search_rows]
    kernel = ConstantKernel() * Matern(median_distance(fold.X, ard=True).numpy(), nu=1.5) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a lengthscale at its bound: a column without effect
        searched = GaussianProcessRegressor(kernel, optimizer=search).fit(X[few], y[few])
        model = GaussianProcessRegressor(searched.kernel_, optimizer=None).fit(X[rows], y[rows])
    chunks = range(0, len(X_test), 10_000)  # each makes arrays of chunk x rows
    parts = [model.predict(X_test[i : i + 10_000], return_std=True) for i in chunks]  # of y: the white kernel is in it
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    seconds = time.perf_counter() - start
    note = f"kernel from {len(few)} rows, then {len(rows)}"
    return Outcome(*gaussian_scores(mean, std**2, y_test), seconds, note, {"kernel": str(model.kernel_)})


def run_lightgbm(task: Task, caps: Caps) -> Outcome:
    """Boosted trees: the L2 model for RMSE, three quantile models for coverage, stopped early on a tenth of the rows."""
    lightgbm = require("lightgbm", "bench", "the LightGBM peer")

    def fit(**objective: Any) -> Any:
        fixed = {"learning_rate": 0.05, "num_leaves": 31, "seed": 0, "verbosity": -1}  # threads: as OpenMP is told
        train, held_out = lightgbm.Dataset(X[held:], y[held:]), lightgbm.Dataset(X[:held], y[:held])
        stop = lightgbm.early_stopping(50, verbose=False)
        return lightgbm.train({**fixed, **objective}, train, caps.trees, valid_sets=[held_out], callbacks=[stop])

    start = time.perf_counter()
    order = np.random.default_rng(0).permutation(np.flatnonzero(~task.test))
    X, y, held = task.X[order], task.y[order] / task.scale, max(1, len(order) // 10)
    X_test, y_test = task.X[task.test], task.y[task.test] / task.scale
    models = [fit(objective="regression"), *(fit(objective="quantile", alpha=a) for a in (LEVELS[0], 0.5, LEVELS[1]))]
    mean, *quantiles = [model.predict(X_test) for model in models]
    low, _, high = np.sort(quantiles, axis=0)  # quantiles that cross are put in order
    seconds = time.perf_counter() - start
    spread = float(np.mean((y[:held] - models[0].predict(X[:held])) ** 2))  # of rows that the trees were not grown on
    rmse, nll, _ = gaussian_scores(mean, np.full(len(mean), max(spread, 1e-12)), y_test)
    coverage = coverage_between(low, high, y_test)
    trees = [int(model.best_iteration) for model in models]
    return Outcome(rmse, nll, coverage, seconds, f"{trees[0]} trees", {"trees": trees, "std": math.sqrt(spread)})


class Approximation(NamedTuple):
    """What GPBoost calls it, its neighbours, and its inducing points: the numbers are GPBoost's defaults."""

    name: str
    neighbours: int
    inducing: int | None


VECCHIA, VIF = Approximation("vecchia", 20, None), Approximation("full_scale_vecchia", 30, 200)


def run_gpboost(task: Task, caps: Caps, approximation: Approximation = VECCHIA) -> Outcome:
    """GPBoost with ARD Matern-3/2: hyper-parameters from few rows in half the time, then from many in the rest."""
    fold = standardised_fold(*task, dtype=torch.float64)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(fold.y))[: caps.gpboost_rows]
    tests = np.sort(rng.permutation(len(fold.y_test))[: caps.gpboost_test_rows])
    X, y, X_test, y_test = (tensor.numpy() for tensor in fold[:4])
    X, y, X_test, y_test = X[rows], y[rows], X_test[tests], y_test[tests]
    start = time.perf_counter()
    few = min(caps.gpboost_search_rows, len(y))
    found = np.concatenate([[0.1, 1.0], median_distance(fold.X, ard=True).numpy()])  # noise, variance, lengthscales
    search = _GPBoostSearch(approximation, found)
    share = 1.0 if few == len(y) else 0.5
    search.learn(X[:few], y[:few], caps.gpboost_iterations, start + share * caps.gpboost_seconds)
    note = f"{search.iterations} iterations on {few} rows"
    if few < len(y):
        done = search.iterations
        search.learn(X, y, caps.gpboost_iterations, start + caps.gpboost_seconds)
        note += f", {search.iterations - done} on {len(y)}"
    predicted = search.model(X, y).predict(
        y=y, cov_pars=search.found, gp_coords_pred=X_test, predict_var=True, predict_response=True
    )
    seconds = time.perf_counter() - start
    note += f"; {len(y_test)} test rows" if len(y_test) < len(fold.y_test) else ""
    details = {"parameters": [float(p) for p in search.found], "iterations": search.iterations}
    return Outcome(*gaussian_scores(predicted["mu"], predicted["var"], y_test), seconds, note, details)


class _GPBoostSearch:
    """Covariance parameters, improved while the time lasts.

    GPBoost takes no limit of seconds. So L-BFGS runs for one iteration, then for as many as fit into the seconds left by the
    seconds of those before, each time from the parameters that were found.
    """

    def __init__(self, approximation: Approximation, start: Array) -> None:
        self.approximation, self.found, self.iterations = approximation, start, 0
        self.seconds = 0.0  #: of an iteration on a row

    def model(self, X: Array, y: Array) -> Any:
        """A GPBoost model of these rows."""
        gpboost = require("gpboost", "bench", "the GPBoost peer")
        name, neighbours, inducing = self.approximation
        points = {} if inducing is None else {"num_ind_points": min(inducing, len(y) // 2)}
        model = gpboost.GPModel(
            gp_coords=X, cov_function="matern_ard", cov_fct_shape=1.5, likelihood="gaussian", seed=0,
            gp_approx=name, num_neighbors=neighbours, **points,
        )  # fmt: skip
        return model.set_prediction_data(num_neighbors_pred=neighbours)

    def learn(self, X: Array, y: Array, most: int, until: float) -> None:
        """At most so many iterations on these rows; none if, by those on other rows, one would take too long."""
        model, done, ask = self.model(X, y), 0, 1
        while (before := time.perf_counter()) + ask * self.seconds * len(y) <= until and done < most:
            model.fit(y=y, params={"maxit": ask, "init_cov_pars": self.found})
            self.found = np.asarray(model.get_cov_pars(format_pandas=False), np.float64).reshape(-1)
            ran = max(int(model._get_num_optim_iter()), 1)
            done, now = done + ran, time.perf_counter()
            self.seconds = (now - before) / ran / len(y)
            if ran < ask:  # converged
                break
            ask = max(min(most - done, int((until - now) / (self.seconds * len(y)))), 1)
        self.iterations += done


class Model(NamedTuple):
    """How a model is run, what is imported before memory and time are counted, and whose versions its results depend on."""

    run: Callable[[Task, Caps], Outcome]
    modules: tuple[str, ...]
    libraries: tuple[str, ...]
    revision: int = 0  #: raised when what is measured changes: earlier results then no longer count


MODELS = {
    "harmonicgp": Model(run_harmonicgp, ("harmonicgp.estimators",), ("harmonicgp", "torch")),
    "svgp": Model(run_svgp, ("sklearn.cluster",), ("gpytorch", "torch")),
    "sklearn": Model(run_sklearn, ("sklearn.gaussian_process",), ("scikit-learn", "numpy")),
    "lightgbm": Model(run_lightgbm, ("lightgbm",), ("lightgbm",), revision=1),
    "gpboost": Model(run_gpboost, ("gpboost",), ("gpboost",)),
    "gpboost-vif": Model(partial(run_gpboost, approximation=VIF), ("gpboost",), ("gpboost",)),
}
