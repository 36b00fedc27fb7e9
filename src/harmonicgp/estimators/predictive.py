"""The distribution of y at new inputs: mean, standard deviation, quantiles, density, all in the units of y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri, roots_genlaguerre

from harmonicgp.estimators.inputs import Array
from harmonicgp.estimators.targets import Target

_NODES = 24
_BISECTIONS = 60


@dataclass(frozen=True)
class Noise:
    """Noise of model targets: Gaussian of variance s2, or Student-t of squared scale s2 and `df` degrees of freedom.

    Student-t noise is a mixture of Gaussians whose precision is gamma-distributed. With f Gaussian, y is then a mixture of
    Gaussians too; a Gauss-Laguerre rule makes it a finite one.
    """

    s2: float
    df: float | None = None

    def mixture(self) -> tuple[Array, Array]:
        """Variances and weights [k] of the noise's Gaussian parts."""
        if self.df is None:
            return np.array([self.s2]), np.ones(1)
        half = self.df / 2
        nodes, weights = roots_genlaguerre(_NODES, half - 1)[:2]
        return self.s2 * half / nodes, weights / weights.sum()

    @property
    def variance(self) -> float:
        """The variance; infinite for two degrees of freedom or fewer."""
        if self.df is None:
            return self.s2
        return self.s2 * self.df / (self.df - 2) if self.df > 2 else np.inf


@dataclass(frozen=True)
class Conformal:
    """A map of probability levels that makes intervals cover as they say, learned on rows that were held out.

    `pit` are the values P(Y <= y) of the held-out rows under the model, sorted. If they are not spread evenly, the level at
    which a share p of them lies below takes the place of p. Coverage is then right on average over new rows like the
    held-out ones, to about 1/(n + 1) for n of them, whatever the model.
    """

    pit: Array

    def level(self, p: Array) -> Array:
        """The model's level to use for the wanted level p."""
        n = len(self.pit)
        return np.interp(p, np.arange(n + 2) / (n + 1), np.concatenate(([0.0], self.pit, [1.0])))

    def probability(self, u: Array) -> Array:
        """The calibrated probability of the model's level u."""
        n = len(self.pit)
        knots, first = np.unique(np.concatenate(([0.0], self.pit, [1.0])), return_index=True)
        return np.interp(u, knots, (np.arange(n + 2) / (n + 1))[first])


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
        return self._by_levels()[0].T

    def std(self) -> Array:
        """The standard deviation of y, [n, P]; calibrated, half the width of the central 68.3 %."""
        if self.calibration:
            low, high = np.moveaxis(self.quantiles((float(ndtr(-1.0)), float(ndtr(1.0)))), 1, 0)
            return 0.5 * (high - low)
        if self.target.transform is None:
            return (np.sqrt(self._variance()) * self.target.scale[:, None]).T
        if self.target.transform == "log":
            return self._lognormal()[1].T
        return self._by_levels()[1].T

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
        variances, weights = self._parts()
        with np.errstate(invalid="ignore"):
            square = (z - self.mean_f)[..., None] ** 2
            logs = -0.5 * np.log(2 * np.pi * variances) - 0.5 * square / variances
            value = logsumexp(logs, axis=-1, b=weights) + self.target.log_slope(y)
        return np.where(np.isfinite(value), value, -np.inf).T

    def sample_noise(self, f: Array, generator: np.random.Generator) -> Array:
        """Draws of f [samples, P, n] with noise added, in model units."""
        variances, weights = self._parts()
        inner = variances - self.variance_f[..., None]
        choice = generator.choice(len(weights), p=weights, size=f.shape)
        chosen = np.take_along_axis(np.broadcast_to(inner, (*f.shape, len(weights))), choice[..., None], -1)[..., 0]
        return f + np.sqrt(chosen.clip(min=0.0)) * generator.standard_normal(f.shape)

    def _variance(self) -> Array:
        return self.variance_f + self.noise.variance + (0.0 if self.known is None else self.known)

    def _parts(self) -> tuple[Array, Array]:
        """Variances [P, n, k] and weights [k] of the mixture that z is."""
        parts, weights = self.noise.mixture()
        base = self.variance_f if self.known is None else self.variance_f + self.known
        return base[..., None] + parts, weights

    def _cdf(self, z: Array) -> Array:
        variances, weights = self._parts()
        return (ndtr((z - self.mean_f)[..., None] / np.sqrt(variances)) * weights).sum(-1)

    def _quantile(self, i: int, p: Array) -> Array:
        """Quantiles of z_i, [n, levels]."""
        every, weights = self._parts()
        variances, mean = every[i], self.mean_f[i][:, None]
        if len(weights) == 1:
            return mean + np.sqrt(variances) * ndtri(p)
        low = (np.sqrt(variances)[:, None, :] * ndtri(p)[:, None]).min(-1)  # the mixture's lies between its parts'
        high = (np.sqrt(variances)[:, None, :] * ndtri(p)[:, None]).max(-1)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = (ndtr(middle[..., None] / np.sqrt(variances)[:, None, :]) * weights).sum(-1) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return mean + 0.5 * (low + high)

    def _lognormal(self) -> tuple[Array, Array]:
        scale = self.target.scale[:, None]
        v = self._variance() * scale**2
        with np.errstate(over="ignore"):
            mean = np.exp(self.mean_f * scale + self.target.centre[:, None] + 0.5 * v)
            return mean, mean * np.sqrt(np.expm1(v))

    def _by_levels(self, n: int = 200) -> tuple[Array, Array]:
        """Mean and standard deviation as averages over evenly spaced levels."""
        levels = (np.arange(n) + 0.5) / n
        values = self.target.inverse(np.stack([self._quantile(i, levels) for i in range(len(self.mean_f))]))
        return values.mean(-1), values.std(-1)
