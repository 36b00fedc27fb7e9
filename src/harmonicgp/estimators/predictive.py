"""The distribution of y at new inputs: mean, standard deviation, quantiles and density, in the units of y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import gpytorch
import numpy as np
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import kstwobign

from harmonicgp.likelihoods import observe
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Warp
from harmonicgp.tables.targets import Target

#: Levels are not recalibrated by fewer held-out rows.
MIN_CALIBRATION = 200
#: Student-t noise as a finite mixture: the logarithm of the tail that is left out, and up to how many scales it must hold.
_TAIL, _FAR = 25.0, 100.0
_STEPS = 100  # of Newton's method for a quantile, at most; about ten are usual
_SMALLEST = 1e-16  # the distance of calibrated levels from zero and one, where quantiles are infinite
_LARGEST = 1e300  # limit of a mean or a standard deviation under a logarithm
_ROWS = 4096  # rows at a time in computations of all rows with all knots


@dataclass(frozen=True)
class Noise:
    """Noise of model targets: Gaussian with variance s2, or Student-t with squared scale s2 and `df` degrees of freedom.

    Student-t noise is a mixture of Gaussians with gamma-distributed precision g. If f is Gaussian, y is a mixture of Gaussians
    too. The trapezoidal rule in log g makes this mixture finite; its error decreases exponentially with the step.
    """

    s2: float
    df: float | None = None

    @classmethod
    def of(cls, likelihood: gpytorch.likelihoods.Likelihood) -> Noise:
        """The noise of a GPyTorch likelihood."""
        return cls(*observe(likelihood).predictive_noise())

    def mixture(self) -> tuple[Array, Array]:
        """Variances and log weights of the Gaussian components of the noise, both [k]."""
        if self.df is None:
            return np.array([self.s2]), np.zeros(1)
        half = self.df / 2
        step = min(0.45, 0.9 * (half + 0.5) ** -0.5)
        tail = _TAIL / half
        low = max(tail + np.sqrt(2 * tail), np.log1p(_FAR**2 / self.df) + 4 * step)
        high = min(np.sqrt(2 * tail), 1 + np.log1p(tail))
        u = step * np.arange(-np.ceil(low / step), np.ceil(high / step) + 1)
        log_weights = half * (u - np.expm1(u))
        return self.s2 * np.exp(-u), log_weights - logsumexp(log_weights)

    @property
    def variance(self) -> float:
        """The variance of the noise; infinite for two degrees of freedom or fewer."""
        if self.df is None:
            return self.s2
        return self.s2 * self.df / (self.df - 2) if self.df > 2 else np.inf


@dataclass(frozen=True)
class Conformal:
    """A map of probability levels, learned on held-out rows, that gives intervals their nominal coverage.

    `pit` holds the values P(Y <= y) of the held-out rows under the model, sorted, and `weights` how many rows each stands for.
    The map replaces the level p by the level below which a share p of these values lies. On average over new rows like the n
    held-out ones, coverage is then correct to about 1/(n + 1), whatever the model.
    """

    pit: Array
    weights: Array | None = None

    @classmethod
    def of(cls, pit: Array, weights: Array | None = None) -> Conformal:
        """From values in any order."""
        order = np.argsort(pit, kind="stable")
        return cls(pit[order], None if weights is None else weights[order])

    def _knots(self) -> tuple[Array, Array]:
        """The share of rows below each value, and the values; both rise from 0 to 1.

        A part of 1/(n + 1) of the values is the share itself: equal values, as of rows without errors, leave no interval empty.
        """
        w = np.ones(len(self.pit)) if self.weights is None else self.weights
        shares = np.concatenate(([0.0], np.cumsum(w) / (w.sum() + w.mean()), [1.0]))
        values = np.concatenate(([0.0], self.pit, [1.0]))
        return shares, values + (shares - values) / (len(w) + 1)

    def level(self, p: Array) -> Array:
        """The level of the model that has the calibrated level p."""
        return np.interp(p, *self._knots()).clip(_SMALLEST, 1 - _SMALLEST)

    def probability(self, u: Array) -> Array:
        """The calibrated level of the model's level u."""
        shares, values = self._knots()
        return np.interp(u, values, shares)


def uneven(pit: Array, weights: Array | None) -> bool:
    """Whether the PIT values of enough held-out rows are not uniform, by Kolmogorov's test at the level 0.01."""
    order = np.argsort(pit)
    w = np.ones(len(pit)) if weights is None else weights[order]
    n = w.sum() ** 2 / (w**2).sum()
    below = np.cumsum(w) / w.sum()
    distance = max(np.abs(below - pit[order]).max(), np.abs(below - w / w.sum() - pit[order]).max())
    return bool(n >= MIN_CALIBRATION and kstwobign.sf(distance * math.sqrt(n)) < 0.01)


@dataclass(frozen=True)
class Predictive:
    """The distribution of y at n inputs, from the moments of f."""

    mean_f: Array  #: [P, n]
    variance_f: Array  #: [P, n]
    noise: Noise
    target: Target
    errors: Array | None = None  #: known noise variances of the new rows, in model units, [P, n]
    calibration: tuple[Conformal, ...] = ()  #: one for each target, or none
    varying: Array | None = None  #: the noise variance of each row, [P, n], where it is not that of `noise`

    def mean(self) -> Array:
        """E y, [n, P]."""
        if self.target.transform is None:
            return self.target.inverse(self.mean_f).T
        if self.target.transform == "log":
            return self._lognormal()[0].T
        return self._warped()[0].T

    def std(self) -> Array:
        """The standard deviation of y, [n, P]; with a calibration, half the width of the central 95 % interval over 1.96."""
        if self.calibration:
            low, high = np.moveaxis(self.quantiles((0.025, 0.975)), 1, 0)
            return (high - low) / (2 * float(ndtri(0.975)))
        if self.target.transform is None:
            return (np.sqrt(self._variance()) * self.target.scale[:, None]).T
        if self.target.transform == "log":
            return self._lognormal()[1].T
        return self._warped()[1].T

    def latent_mean(self) -> Array:
        """The median of the latent function in the units of y, [n, P]."""
        return self.target.inverse(self.mean_f).T

    def latent_std(self) -> Array:
        """The standard deviation of the latent function in the units of y, [n, P]; under a transform, half the 68 % interval."""
        root = np.sqrt(self.variance_f)
        if self.target.transform is None:
            return (root * self.target.scale[:, None]).T
        high, low = (self.target.inverse(self.mean_f + sign * root) for sign in (1, -1))
        return 0.5 * (high - low).T

    def quantiles(self, levels: Sequence[float] | Array) -> Array:
        """Quantiles of y, [n, levels, P]."""
        p = np.asarray(levels, dtype=np.float64)
        parts = []
        for i in range(len(self.mean_f)):
            parts.append(self._quantile(i, self.calibration[i].level(p) if self.calibration else p))
        return np.moveaxis(self.target.inverse(np.stack(parts)), 0, -1)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n, P], [n, P]."""
        z = self.target.forward(y)
        u = self._cdf(np.where(np.isnan(z), -np.inf, z))
        if self.calibration:
            u = np.stack([c.probability(row) for c, row in zip(self.calibration, u, strict=True)])
        return u.T

    def log_density(self, y: Array) -> Array:
        """Log p(y) for y [n, P], without calibration, [n, P]; minus infinity where y is impossible."""
        z = self.target.forward(y)
        variances, _ = self._parts()
        with np.errstate(invalid="ignore"):
            square = (z - self.mean_f)[..., None] ** 2
            logs = self.noise.mixture()[1] - 0.5 * np.log(2 * np.pi * variances) - 0.5 * square / variances
            value = logsumexp(logs, axis=-1) + self.target.log_slope(y)
        return np.where(np.isfinite(value), value, -np.inf).T

    def sample_noise(self, f: Array, generator: np.random.Generator) -> Array:
        """Draws of f [samples, P, n] plus noise, in model units."""
        variances, weights = self._parts()
        inner = variances - self.variance_f[..., None]
        choice = np.asarray(generator.choice(len(weights), p=weights, size=f.shape))
        variance = np.take_along_axis(np.broadcast_to(inner, (*f.shape, len(weights))), choice[..., None], -1)[..., 0]
        return f + np.sqrt(variance.clip(min=0.0)) * generator.standard_normal(f.shape)

    def _variance(self) -> Array:
        noise = self.noise.variance if self.varying is None else self.varying
        return self.variance_f + noise + (0.0 if self.errors is None else self.errors)

    def _parts(self) -> tuple[Array, Array]:
        """Variances [P, n, k] and weights [k] of the mixture of Gaussians that z has."""
        parts, log_weights = self.noise.mixture()
        base = self.variance_f if self.errors is None else self.variance_f + self.errors
        parts = parts if self.varying is None else self.varying[..., None]
        return base[..., None] + parts, np.exp(log_weights)

    def _cdf(self, z: Array) -> Array:
        variances, weights = self._parts()
        return (ndtr((z - self.mean_f)[..., None] / np.sqrt(variances)) * weights).sum(-1)

    def _quantile(self, i: int, p: Array) -> Array:
        """Quantiles of z_i, [n, levels]."""
        all_variances, weights = self._parts()
        variances, mean = all_variances[i], self.mean_f[i][:, None]
        if len(weights) == 1:
            return mean + np.sqrt(variances) * ndtri(p)
        std = np.sqrt(variances)[:, None, :]
        lower = np.minimum(p, 1 - p)  # the mixture is symmetric, and its lower tail is more accurate
        return mean - np.sign(0.5 - p) * _lower_quantile(std, weights, lower)

    def _lognormal(self) -> tuple[Array, Array]:
        scale = self.target.scale[:, None]
        v = self._variance() * scale**2
        with np.errstate(over="ignore"):
            mean = np.exp(self.mean_f * scale + self.target.centre[:, None] + 0.5 * v).clip(1 / _LARGEST, _LARGEST)
            return mean, (mean * np.sqrt(np.expm1(v))).clip(1 / _LARGEST, _LARGEST)

    def _warped(self) -> tuple[Array, Array]:
        """Mean and standard deviation of y as a piecewise linear function of z."""
        variances, weights = self._parts()
        mean, std = np.empty_like(self.mean_f), np.empty_like(self.mean_f)
        for i, original in enumerate(self.target.warps):
            unit = (
                float(np.ptp(original.values)) or 1.0
            )  # squares of tiny and huge targets would leave the range of floats
            warp = Warp(original.values / unit, original.scores)
            slopes = np.diff(warp.values) / np.diff(warp.scores)
            least = np.append(slopes, 1 / warp.slope).min()  # y has at least this share of the variance of z
            centre = self.mean_f[i] * self.target.scale[i] + self.target.centre[i]
            for rows in (slice(start, start + _ROWS) for start in range(0, len(centre), _ROWS)):
                first, second = 0.0, 0.0
                for k, weight in enumerate(weights):
                    moments = _warped_moments(warp, centre[rows], np.sqrt(variances[i, rows, k]) * self.target.scale[i])
                    first, second = first + weight * moments[0], second + weight * moments[1]
                variance = weights @ variances[i, rows].T * self.target.scale[i] ** 2
                mean[i, rows] = (warp.inverse(centre[rows]) + first) * unit
                std[i, rows] = (
                    np.sqrt(np.maximum(second - first**2, least**2 * variance)) * unit
                )  # rounding may cancel all
        return mean, std


def _lower_quantile(std: Array, weights: Array, p: Array) -> Array:
    """Minus the quantiles at levels p <= 1/2 of mixtures of N(0, std^2), [n, levels], from std [n, 1, k]."""
    goal = ndtri(p)
    ends = std * goal[:, None]  # the mixture's quantile lies between those of its parts
    low, high = ends.min(-1), ends.max(-1)
    x = goal / np.sqrt((weights / std**2).sum(-1))
    for _ in range(_STEPS):
        # Newton's method on normal scores, where a Gaussian is a straight line; bisection if a step leaves the bracket
        t = x[..., None] / std
        below = (ndtr(t) * weights).sum(-1)
        density = (np.exp(-0.5 * t**2) / std * weights).sum(-1)
        low, high = np.where(below < p, x, low), np.where(below < p, high, x)
        score = ndtri(below)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x - (score - goal) * np.exp(-0.5 * score**2) / density
        new = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        step = np.abs(new - x)
        x = new
        if bool((step <= 1e-12 * np.abs(x)).all()):
            break
    return -x


def _warped_moments(warp: Warp, mean: Array, std: Array) -> tuple[Array, Array]:
    """E h and E h^2 of h = y - y(mean) for z ~ N(mean, std^2), both [n], where y is the inverse of the warp.

    This is exact: y is linear between knots and beyond them, and moments of a Gaussian on an interval have a closed form.
    """
    z, y, outside = warp.scores, warp.values, warp.slope
    slopes = np.concatenate(([1 / outside], np.diff(y) / np.diff(z), [1 / outside]))
    t = (z - mean[:, None]) / std[:, None]  # [n, knots]
    cdf, pdf = ndtr(t), np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    n = len(mean)
    mass = np.diff(cdf, axis=1, prepend=np.zeros((n, 1)), append=np.ones((n, 1)))
    first = -np.diff(pdf, axis=1, prepend=np.zeros((n, 1)), append=np.zeros((n, 1)))
    second = mass - np.diff(t * pdf, axis=1, prepend=np.zeros((n, 1)), append=np.zeros((n, 1)))
    corner = np.concatenate(([0], np.arange(len(z))))  # one knot of each piece
    level = y[corner] + slopes * (mean[:, None] - z[corner]) - warp.inverse(mean)[:, None]
    slope = slopes * std[:, None]
    one = (level * mass + slope * first).sum(1)
    return one, (level**2 * mass + 2 * level * slope * first + slope**2 * second).sum(1)
