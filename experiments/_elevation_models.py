"""The models of the Earth experiment, each a function of a `Split`: SVGP, the paper's harmonic GP, and SKI.

All have an RBF kernel of the chord between places, a zero mean, and Gaussian noise that starts at 0.1. Lengthscales start in
proportion to the distance of neighbouring inducing points: a median distance would make their matrices singular.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from torch import Tensor

from benchmarks._data import load_npz
from harmonicgp.actions import Longitude
from harmonicgp.features import HarmonicFeatures
from harmonicgp.globe.estimator import field_scores
from harmonicgp.globe.relief import load_relief
from harmonicgp.kernels import GlobeKernel
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.training import Schedule, fit
from harmonicgp.training.schedule import Batches

Array: TypeAlias = np.ndarray[Any, Any]
#: Places [n, 2], longitude and latitude in degrees, to the mean and the variance of y there, noise included, both [n].
Marginals: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

Z = 1.959964  # the 97.5 % point of the normal distribution
NOISE = 0.1
#: Lengthscale at the start, in distances of neighbouring inducing points.
REACH = 1.5
CHUNK = 2048
#: SKI goes through its training points for every chunk, but takes some 300 kB of memory for each point of one.
SKI_CHUNK = 8192
UNBOUNDED = 10**9  #: steps
TESTED = 50_000  #: test points that are predicted


# Data ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Heights on a grid and who sees them: 72 % train, 20 % test, the rest is for validation."""

    longitudes: Array  #: degrees, [cols]
    latitudes: Array  #: degrees, [rows]
    heights: Array  #: standardised by the training heights, float32, [rows, cols]
    train: Array  #: mask, [rows, cols]
    test: Array  #: mask, [rows, cols]
    scale: float  #: kilometres, the standard deviation of the training heights
    centre: float  #: kilometres, their mean

    def points(self, places: Array) -> tuple[Tensor, Tensor]:
        """X [n, 2], longitude and latitude in degrees, and y [n] at places of the flattened grid, float32."""
        row, col = np.divmod(places, len(self.longitudes))
        X = np.stack((self.longitudes[col], self.latitudes[row]), -1).astype(np.float32)
        return torch.from_numpy(X), torch.from_numpy(self.heights[row, col])


def load_split(size: str) -> Split:
    """The grid of a size: "small" at 1 degree is in the library; "medium" (0.5) and "paper" (0.1) need etopo5.npz."""
    if size == "small":
        return make_split(*load_relief())
    if size not in ("medium", "paper"):
        raise ValueError(f"size must be small, medium or paper; got {size!r}.")
    data = load_npz("etopo5")
    longitudes, latitudes = -179.95 + 0.1 * np.arange(3600), -89.95 + 0.1 * np.arange(1800)
    if size == "medium":
        longitudes, latitudes = longitudes[2::5], latitudes[2::5]
    lon, lat = data["lon"], data["lat"]
    rows = np.rint((latitudes - lat[0]) / (lat[1] - lat[0])).astype(int)
    cols = np.rint((longitudes - lon[0]) % 360 / (lon[1] - lon[0])).astype(int) % len(lon)
    return make_split(longitudes, latitudes, data["height"][rows[:, None], cols] / np.float32(1000))


def make_split(longitudes: Array, latitudes: Array, heights: Array) -> Split:
    """Masks by NumPy's legacy generator with seed 0, and heights [rows, cols] in kilometres standardised."""
    u = np.random.RandomState(0).rand(*heights.shape)
    train, test = u < 0.72, u >= 0.8
    known = heights[train].astype(np.float64)
    centre, scale = float(known.mean()), float(known.std())
    standardised = ((heights - centre) / scale).astype(np.float32)
    return Split(longitudes, latitudes, standardised, train, test, scale, centre)


# Scores --------------------------------------------------------------------------------------------------------------


def scores(mean: Array, variance: Array, y: Array, latitudes: Array) -> dict[str, float]:
    """RMSE, NLL and coverage of the central 95 % of N(mean, variance), all [n]; then weighted by area, cos(latitude)."""
    mean, variance, y = (np.asarray(a, np.float64) for a in (mean, variance, y))
    return field_scores(mean, variance, y, np.cos(np.deg2rad(np.asarray(latitudes, np.float64))))


@dataclass(frozen=True)
class Result:
    """A trained model: what it took, and how well it predicts the test points."""

    name: str
    seconds: float  #: of training
    steps: int
    memory_bytes: int  #: rise of the peak, in training and over the test points
    scores: dict[str, float]
    marginals: Marginals
    chunk: int = CHUNK

    def predict(self, latitudes: Array, longitudes: Array) -> Array:
        """The mean on a grid, [rows, cols], of standardised heights."""
        rows, cols = len(latitudes), len(longitudes)
        mean = np.empty(rows * cols, np.float32)
        for start in range(0, rows * cols, self.chunk):
            row, col = np.divmod(np.arange(start, min(start + self.chunk, rows * cols)), cols)
            X = np.stack((np.asarray(longitudes)[col], np.asarray(latitudes)[row]), -1).astype(np.float32)
            mean[start : start + len(X)] = self.marginals(torch.from_numpy(X))[0].numpy()
        return mean.reshape(rows, cols)


def score_test(split: Split, marginals: Marginals, chunk: int = CHUNK) -> dict[str, float]:
    """Scores on the test points, or on `TESTED` of them, predicted a chunk at a time."""
    places = np.flatnonzero(split.test)
    if len(places) > TESTED:
        places = np.sort(np.random.default_rng(0).choice(places, TESTED, replace=False))
    mean, variance = np.empty(len(places), np.float32), np.empty(len(places), np.float32)
    for start in range(0, len(places), chunk):
        part = slice(start, start + chunk)
        m, v = marginals(split.points(places[part])[0])
        mean[part], variance[part] = m.numpy(), v.numpy()
    return scores(mean, variance, split.heights.ravel()[places], split.latitudes[places // len(split.longitudes)])


# Models --------------------------------------------------------------------------------------------------------------


def spread(m: int, turns: int = 1, seed: int = 0) -> Tensor:
    """M places even over the globe, [m, 2] in degrees; moved to one of `turns` sectors, they are even over that.

    A golden-ratio lattice over a sector, each point then turned at random: no two are near in the orbits of one another.
    """
    generator = torch.Generator().manual_seed(seed)
    i = torch.arange(m, dtype=torch.float64)
    latitude = torch.asin((2 * i + 1) / m - 1) * (180 / math.pi)
    within = (i * (math.sqrt(5) - 1) / 2 + torch.rand((), generator=generator, dtype=torch.float64)) % 1.0
    sector = torch.randint(turns, (m,), generator=generator)
    return torch.stack(((sector + within) * (360.0 / turns) - 180.0, latitude), -1).float()


def start_kernel(points: int) -> gpytorch.kernels.RBFKernel:
    """An RBF kernel for so many inducing points on the unit sphere."""
    kernel = gpytorch.kernels.RBFKernel()
    kernel.lengthscale = REACH * math.sqrt(4 * math.pi / points)
    return kernel


def start_likelihood() -> gpytorch.likelihoods.GaussianLikelihood:
    """Gaussian noise."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    return likelihood.float()


def scaled(kernel: gpytorch.kernels.Kernel) -> gpytorch.kernels.ScaleKernel:
    """With an output scale that starts at one."""
    kernel = gpytorch.kernels.ScaleKernel(kernel)
    kernel.outputscale = 1.0
    return kernel


def check_budget(seconds: float | None, steps: int | None) -> tuple[float, int]:
    """Both limits, the one not given without bound."""
    if seconds is None and steps is None:
        raise ValueError("give seconds, steps, or both: training must end.")
    if (seconds is not None and not seconds > 0) or (steps is not None and steps < 1):
        raise ValueError(f"seconds and steps must be positive; got {seconds} and {steps}.")
    return math.inf if seconds is None else seconds, UNBOUNDED if steps is None else steps


class SparseGP(gpytorch.models.ApproximateGP):
    """Whitened SVGP with a full covariance, inputs and inducing points in space."""

    def __init__(self, inducing: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def svgp(
    split: Split,
    points: int,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    batch: int = 256,
    seed: int = 0,
) -> Result:
    """GPyTorch's SVGP on unit vectors, float32: inducing points even over the globe, Adam 0.01 for everything."""
    until, most = check_budget(seconds, steps)
    with peak_rise() as rise:
        start = time.perf_counter()
        torch.manual_seed(seed)
        X, y = split.points(np.flatnonzero(split.train))
        model = SparseGP(unit_vectors(spread(points, seed=seed)), scaled(start_kernel(points))).float()
        likelihood = start_likelihood()
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
        adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
        draws = Batches(len(y), batch, seed)
        done = 0
        while done < most and (done == 0 or time.perf_counter() - start < until):  # a step at the least
            rows = draws.draw()
            adam.zero_grad()
            (-bound(model(unit_vectors(X[rows])), y[rows])).backward()
            adam.step()
            done += 1
        trained = time.perf_counter() - start
        model.eval()
        noise = likelihood.noise.detach()

        @torch.no_grad()
        def marginals(x: Tensor) -> tuple[Tensor, Tensor]:
            f = model(unit_vectors(x))
            return f.mean, f.variance + noise

        found = score_test(split, marginals)
    return Result(f"SVGP {points}", trained, done, rise(), found, marginals)


def hvgp(
    split: Split,
    T: int,
    points: int,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    batch: int = 256,
    seed: int = 0,
) -> Result:
    """The paper's way: T turns of the globe, real blocks with `points` inducing points each, Adam 0.01 for everything."""
    _, most = check_budget(seconds, steps)
    with peak_rise() as rise:
        start = time.perf_counter()
        X, y = split.points(np.flatnonzero(split.train))
        action = Longitude(T)
        blocks = action.group.n_blocks("real")
        places = torch.stack([spread(points, T, seed + t) for t in range(blocks)])
        kernel = scaled(GlobeKernel(start_kernel(blocks * points))).float()
        features = HarmonicFeatures(kernel, action, places, resolution="real")
        likelihood = start_likelihood()
        left = None if seconds is None else max(seconds - (time.perf_counter() - start), 1e-3)
        plan = Schedule(
            max_steps=most,
            batch_size=batch,
            learning_rate=0.01,
            optimizer="adam",
            finish=False,
            time_budget=left,
            seed=seed,
            progress=False,
        )
        result = fit(features, likelihood, X, y, bound="elbo", schedule=plan)
        trained = time.perf_counter() - start
        predictor = result.predictor(CHUNK)
        noise = likelihood.noise.detach()

        def marginals(x: Tensor) -> tuple[Tensor, Tensor]:
            mean, variance = predictor.marginals(x)
            return mean[0].float(), (variance[0] + noise).float()

        found = score_test(split, marginals)
    return Result(f"HVGP {blocks} x {points}", trained, len(result.history), rise(), found, marginals)


class InterpolatedGP(gpytorch.models.ExactGP):
    """An exact GP whose kernel is interpolated from a cube of grid^3 points around the unit sphere."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood, grid: int) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        cell = 2.0 / (grid - 5)  # two cells and a bit beyond the sphere on every side, for cubic interpolation
        base = gpytorch.kernels.RBFKernel()
        base.lengthscale = 2 * REACH * cell
        bounds = ((-1 - 2.01 * cell, 1 + 2.01 * cell),) * 3
        self.covar_module = scaled(gpytorch.kernels.GridInterpolationKernel(base, grid, grid_bounds=bounds))

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@contextmanager
def interpolation() -> Iterator[None]:
    """Variances by LOVE, conjugate gradients as they are, and sparse matrices unchecked (PyTorch warns unless told).

    The preconditioner looks up single entries, 64^2 weights each in three dimensions: it would take most of the time.
    """
    settings = gpytorch.settings
    with (
        settings.fast_pred_var(),
        settings.max_preconditioner_size(0),
        torch.sparse.check_sparse_tensor_invariants(False),
    ):
        yield


def ski(
    split: Split,
    rows: int = 600_000,
    grid: int = 100,
    *,
    steps: int = 30,
    limit: float = 3600.0,
    seed: int = 0,
    report: Callable[[str], object] = print,
) -> Result | None:
    """GPyTorch's SKI on some training points, with grid^3 inducing points, Adam 0.1, variances by LOVE.

    Training has half of `limit` seconds. Where all of it takes longer, or more memory than there is, the answer is None
    and `report` gets the reason.
    """
    if grid < 8:
        raise ValueError(f"grid must be at least 8 points a side, for cubic interpolation; got {grid}.")
    name = f"SKI {grid}^3"
    try:
        with peak_rise() as rise, time_limit(limit), interpolation():
            start = time.perf_counter()
            torch.manual_seed(seed)
            places = np.flatnonzero(split.train)
            chosen = np.random.default_rng(seed).choice(places, min(rows, len(places)), replace=False)
            X, y = split.points(chosen)
            likelihood = start_likelihood()
            model = InterpolatedGP(unit_vectors(X), y, likelihood, grid).float()
            evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
            adam = torch.optim.Adam(model.parameters(), lr=0.1)
            done = 0
            while done < steps and time.perf_counter() - start < limit / 2:
                adam.zero_grad()
                (-evidence(model(model.train_inputs[0]), y)).backward()
                adam.step()
                done += 1
            trained = time.perf_counter() - start
            model.eval()
            likelihood.eval()
            noise = likelihood.noise.detach()

            @torch.no_grad()
            def marginals(x: Tensor) -> tuple[Tensor, Tensor]:
                with interpolation():
                    f = model(unit_vectors(x))
                    return f.mean, f.variance + noise

            found = score_test(split, marginals, SKI_CHUNK)
    except TimeoutError:
        report(f"{name} on {rows:,} points: not done in {limit:g} s.")
        return None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        report(f"{name} on {rows:,} points: out of memory.")
        return None
    return Result(name, trained, done, rise(), found, marginals, SKI_CHUNK)


# What it takes -------------------------------------------------------------------------------------------------------


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError within when the seconds have passed; where there are no alarms, or in a thread, do nothing."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def peak_rise() -> Iterator[Callable[[], int]]:
    """A function that gives the bytes by which the peak of memory rose since the beginning of the block; 0 but on Linux."""
    with suppress(OSError):  # the peak is counted anew; where that cannot be, an earlier, higher one hides a lower
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    before = _memory("VmRSS")
    yield lambda: max(_memory("VmHWM") - before, 0)


def _memory(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":")), 0)
