"""The distribution of y at new inputs: mean, standard deviation, quantiles, density, all in the units of y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import gpytorch
import numpy as np
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import kstwobign

from harmonicgp.likelihoods import observe
from harmonicgp.tables.inputs import Array, Warp
from harmonicgp.tables.targets import Target

#: Held-out rows below which levels are left as they are.
MIN_CALIBRATION = 200
#: The logarithm of the tail of Student-t noise that is left out, and how far out its density must hold, in scales.
_TAIL, _FAR = 25.0, 100.0
_STEPS = 100  # of Newton's method for a quantile, at most: ten or so are taken
_SMALLEST = 1e-16  # a calibrated level stays this far from zero and one, where quantiles are infinite
_LARGEST = 1e300  # of a mean or a standard deviation, where a logarithm spreads over hundreds
_ROWS = 4096  # at a time, where every row meets every knot


@dataclass(frozen=True)
class Noise:
    """Noise of model targets: Gaussian of variance s2, or Student-t of squared scale s2 and `df` degrees of freedom.

    Student-t noise is a mixture of Gaussians whose precision g is gamma-distributed. With f Gaussian, y is then a mixture of
    Gaussians too. The trapezoidal rule in log g makes it a finite one: its error falls exponentially with the step, for
    light and for heavy tails.
    """

    s2: float
    df: float | None = None

    @classmethod
    def of(cls, likelihood: gpytorch.likelihoods.Likelihood) -> Noise:
        """The noise of a likelihood of GPyTorch."""
        return cls(*observe(likelihood).predictive_noise())

    def mixture(self) -> tuple[Array, Array]:
        """Variances, and logarithms of weights, of the noise's Gaussian parts: both [k]."""
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
        """The variance; infinite for two degrees of freedom or fewer."""
        if self.df is None:
            return self.s2
        return self.s2 * self.df / (self.df - 2) if self.df > 2 else np.inf


@dataclass(frozen=True)
class Conformal:
    """A map of probability levels that makes intervals cover as they say, learned on rows that were held out.

    `pit` are the values P(Y <= y) of the held-out rows under the model, sorted; `weights` how many rows each stands for. If they
    are not spread evenly, the level at which a share p of them lies below takes the place of p. Coverage is then right on
    average over new rows like the held-out ones, to about 1/(n + 1) for n of them, whatever the model.
    """

    pit: Array
    weights: Array | None = None

    @classmethod
    def of(cls, pit: Array, weights: Array | None = None) -> Conformal:
        """From values in any order."""
        order = np.argsort(pit, kind="stable")
        return cls(pit[order], None if weights is None else weights[order])

    def _shares(self) -> Array:
        """The share of rows below each value, with 0 and 1 around them."""
        w = np.ones(len(self.pit)) if self.weights is None else self.weights
        return np.concatenate(([0.0], np.cumsum(w) / (w.sum() + w.mean()), [1.0]))

    def level(self, p: Array) -> Array:
        """The model's level to use for the wanted level p."""
        level = np.interp(p, self._shares(), np.concatenate(([0.0], self.pit, [1.0])))
        return level.clip(_SMALLEST, 1 - _SMALLEST)

    def probability(self, u: Array) -> Array:
        """The calibrated probability of the model's level u."""
        knots, first = np.unique(np.concatenate(([0.0], self.pit, [1.0])), return_index=True)
        return np.interp(u, knots, self._shares()[first])


def uneven(pit: Array, weights: Array | None) -> bool:
    """Whether enough held-out rows say that levels are wrong: Kolmogorov's test at one in a hundred."""
    order = np.argsort(pit)
    w = np.ones(len(pit)) if weights is None else weights[order]
    n = w.sum() ** 2 / (w**2).sum()
    below = np.cumsum(w) / w.sum()
    distance = max(np.abs(below - pit[order]).max(), np.abs(below - w / w.sum() - pit[order]).max())
    return bool(n >= MIN_CALIBRATION and kstwobign.sf(distance * math.sqrt(n)) < 0.01)


@dataclass(frozen=True)
class Predictive:
    """Y at n inputs, from the moments of f."""

    mean_f: Array  #: [P, n]
    variance_f: Array  #: [P, n]
    noise: Noise
    target: Target
    known: Array | None = None  #: known noise variances of the new rows, in model units, [P, n]
    calibration: tuple[Conformal, ...] = ()  #: one a target, or none

    def mean(self) -> Array:
        """E y, [n, P]."""
        if self.target.transform is None:
            return self.target.inverse(self.mean_f).T
        if self.target.transform == "log":
            return self._lognormal()[0].T
        return self._warped()[0].T

    def std(self) -> Array:
        """The standard deviation of y, [n, P]; calibrated, such that 1.96 of them are half the width of the central 95 %."""
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
        """The standard deviation of the latent function in the units of y, [n, P]; half a central interval under a transform."""
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
            wanted = self.calibration[i].level(p) if self.calibration else p
            parts.append(self._quantile(i, wanted))
        return np.moveaxis(self.target.inverse(np.stack(parts)), 0, -1)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) for y [n, P], [n, P]."""
        z = self.target.forward(y)
        u = self._cdf(np.where(np.isnan(z), -np.inf, z))
        if self.calibration:
            u = np.stack([c.probability(row) for c, row in zip(self.calibration, u, strict=True)])
        return u.T

    def log_density(self, y: Array) -> Array:
        """Log p(y) by the model itself, without calibration, [n, P]; minus infinity where y cannot be."""
        z = self.target.forward(y)
        variances, _ = self._parts()
        with np.errstate(invalid="ignore"):
            square = (z - self.mean_f)[..., None] ** 2
            logs = self.noise.mixture()[1] - 0.5 * np.log(2 * np.pi * variances) - 0.5 * square / variances
            value = logsumexp(logs, axis=-1) + self.target.log_slope(y)
        return np.where(np.isfinite(value), value, -np.inf).T

    def sample_noise(self, f: Array, generator: np.random.Generator) -> Array:
        """Draws of f [samples, P, n] with noise added, in model units."""
        variances, weights = self._parts()
        inner = variances - self.variance_f[..., None]
        choice = np.asarray(generator.choice(len(weights), p=weights, size=f.shape))
        chosen = np.take_along_axis(np.broadcast_to(inner, (*f.shape, len(weights))), choice[..., None], -1)[..., 0]
        return f + np.sqrt(chosen.clip(min=0.0)) * generator.standard_normal(f.shape)

    def _variance(self) -> Array:
        return self.variance_f + self.noise.variance + (0.0 if self.known is None else self.known)

    def _parts(self) -> tuple[Array, Array]:
        """Variances [P, n, k] and weights [k] of the mixture that z is."""
        parts, log_weights = self.noise.mixture()
        base = self.variance_f if self.known is None else self.variance_f + self.known
        return base[..., None] + parts, np.exp(log_weights)

    def _cdf(self, z: Array) -> Array:
        variances, weights = self._parts()
        return (ndtr((z - self.mean_f)[..., None] / np.sqrt(variances)) * weights).sum(-1)

    def _quantile(self, i: int, p: Array) -> Array:
        """Quantiles of z_i, [n, levels]."""
        every, weights = self._parts()
        variances, mean = every[i], self.mean_f[i][:, None]
        if len(weights) == 1:
            return mean + np.sqrt(variances) * ndtri(p)
        std = np.sqrt(variances)[:, None, :]
        lower = np.minimum(p, 1 - p)  # the mixture is symmetric, and the lower tail is the accurate one
        return mean - np.sign(0.5 - p) * _lower_quantile(std, weights, lower)

    def _lognormal(self) -> tuple[Array, Array]:
        scale = self.target.scale[:, None]
        v = self._variance() * scale**2
        with np.errstate(over="ignore"):
            mean = np.exp(self.mean_f * scale + self.target.centre[:, None] + 0.5 * v).clip(max=_LARGEST)
            return mean, (mean * np.sqrt(np.expm1(v))).clip(max=_LARGEST)

    def _warped(self) -> tuple[Array, Array]:
        """Mean and standard deviation where y is a piecewise linear function of z."""
        variances, weights = self._parts()
        mean, std = np.empty_like(self.mean_f), np.empty_like(self.mean_f)
        for i, warp in enumerate(self.target.warps):
            centre = self.mean_f[i] * self.target.scale[i] + self.target.centre[i]
            for rows in (slice(start, start + _ROWS) for start in range(0, len(centre), _ROWS)):
                first, second = 0.0, 0.0
                for k, weight in enumerate(weights):
                    moments = _warped_moments(warp, centre[rows], np.sqrt(variances[i, rows, k]) * self.target.scale[i])
                    first, second = first + weight * moments[0], second + weight * moments[1]
                mean[i, rows] = warp.inverse(centre[rows]) + first
                std[i, rows] = np.sqrt(np.maximum(second - first**2, 0.0))  # rounding may leave it below
        return mean, std


def _lower_quantile(std: Array, weights: Array, p: Array) -> Array:
    """Minus the quantiles at levels p <= 1/2 of mixtures of N(0, std^2), std [n, 1, k]: [n, levels]."""
    goal = ndtri(p)
    ends = std * goal[:, None]  # the mixture's quantile lies between those of its parts
    low, high = ends.min(-1), ends.max(-1)
    x = goal / np.sqrt((weights / std**2).sum(-1))
    for _ in range(_STEPS):
        # Newton's method on normal scores, on which a Gaussian is a straight line; halving where it leaves the bracket
        t = x[..., None] / std
        below = (ndtr(t) * weights).sum(-1)
        density = (np.exp(-0.5 * t**2) / std * weights).sum(-1)
        low, high = np.where(below < p, x, low), np.where(below < p, high, x)
        score = ndtri(below)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x - (score - goal) * np.exp(-0.5 * score**2) / density
        new = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        moved = np.abs(new - x)
        x = new
        if bool((moved <= 1e-12 * np.abs(x)).all()):
            break
    return -x


def _warped_moments(warp: Warp, mean: Array, std: Array) -> tuple[Array, Array]:
    """E h and E h^2 of h = y - y(mean) for z ~ N(mean, std^2), both [n], y the inverse of the warp.

    Exact: y is linear between knots and beyond them, and the moments of a Gaussian between two points are known.
    """
    z, y, outside = warp.scores, warp.values, warp.slope
    slopes = np.concatenate(([1 / outside], np.diff(y) / np.diff(z), [1 / outside]))
    t = (z - mean[:, None]) / std[:, None]  # [n, knots]
    cdf, pdf = ndtr(t), np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    n = len(mean)
    mass = np.diff(cdf, axis=1, prepend=np.zeros((n, 1)), append=np.ones((n, 1)))
    first = -np.diff(pdf, axis=1, prepend=np.zeros((n, 1)), append=np.zeros((n, 1)))
    second = mass - np.diff(t * pdf, axis=1, prepend=np.zeros((n, 1)), append=np.zeros((n, 1)))
    corner = np.concatenate(([0], np.arange(len(z))))  # a knot of every piece
    level = y[corner] + slopes * (mean[:, None] - z[corner]) - warp.inverse(mean)[:, None]
    slope = slopes * std[:, None]
    one = (level * mass + slope * first).sum(1)
    return one, (level**2 * mass + 2 * level * slope * first + slope**2 * second).sum(1)
