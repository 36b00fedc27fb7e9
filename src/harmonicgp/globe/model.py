"""The model of a field on the globe: its hyper-parameters, and its numbers of inducing latitudes and frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.features import GlobeGrid, LongitudeFeatures
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.kernels.profiles import log_scale, named_kernel
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.tables.columns import Array

#: The largest mean residual of the features, as a share of the noise. It is small because neighbouring cells share the residual,
#: so that it does not average out as noise does.
RESIDUAL_SHARE = 0.002
#: Up to this many numbers the features are stored in float64.
MOST_FLOAT64 = 20_000_000
#: The default largest number of features for scattered points, whose feature matrix is stored.
MOST_POINT_FEATURES = 4096


@dataclass(frozen=True)
class GlobeModel:
    """The hyper-parameters and sizes of a field, without the posterior.

    Examples:
        >>> model = GlobeModel("rbf", 0.5, 1.0, 0.1, m=4, t_max=3, order=None, meridian=0.0)
        >>> model.latitudes(), model.features().n_features
        (tensor([-67.5000, -22.5000,  22.5000,  67.5000], dtype=torch.float64), 28)
    """

    kernel: str  #: a name of `kernels.profiles.NAMED_PROFILES`
    lengthscale: float  #: in Earth radii
    scale: float  #: the variance of the field
    s2: float  #: the variance of the noise
    m: int  #: the number of inducing latitudes
    t_max: int  #: the highest frequency of the longitude
    order: int | None  #: longitudes of the lattice, or None for the circle group
    meridian: float  #: the longitude of the inducing points
    south: float = -90.0  #: the inducing latitudes are evenly spaced between south and north
    north: float = 90.0

    @property
    def step(self) -> float:
        """Degrees between inducing latitudes."""
        return (self.north - self.south) / self.m

    def latitudes(self) -> Tensor:
        """The inducing latitudes, [m]. A pole is never one of them: all frequencies except t = 0 vanish there."""
        return self.south + (torch.arange(self.m, dtype=torch.float64, device="cpu") + 0.5) * self.step

    def globe_kernel(self) -> gpytorch.kernels.ScaleKernel:
        """The kernel, in float64; its raw parameters are logarithms."""
        return globe_kernel(self.kernel, self.lengthscale, self.scale)

    def observation(self) -> GaussianObservation:
        """The noise, in float64; its raw parameter is a logarithm."""
        return gaussian_observation(self.s2)

    def features(self, latitudes: Tensor | None = None, dtype: torch.dtype = torch.float64) -> LongitudeFeatures:
        """The features, with inducing points at some latitudes, or at `latitudes()`."""
        Z = self.latitudes() if latitudes is None else latitudes
        return LongitudeFeatures(self.globe_kernel(), Z, self.t_max, self.order, self.meridian, dtype)

    def precision(self, dtype: str, rows: int) -> torch.dtype:
        """The dtype of the features of a number of rows: "auto" is float64 if they are few."""
        is_small = (self.t_max + 1) * self.m * rows <= MOST_FLOAT64
        return torch.float64 if dtype == "float64" or (dtype == "auto" and is_small) else torch.float32

    def with_logarithms(self, theta: Array) -> GlobeModel:
        """The same model with lengthscale, scale and noise from their logarithms, [3]."""
        lengthscale, scale, s2 = np.exp(theta).tolist()
        return replace(self, lengthscale=lengthscale, scale=scale, s2=s2)

    @property
    def logarithms(self) -> Array:
        """The logarithms of lengthscale, scale and noise, [3]."""
        return np.log([self.lengthscale, self.scale, self.s2])


def globe_kernel(name: str, lengthscale: float, scale: float) -> gpytorch.kernels.ScaleKernel:
    """A kernel of the straight-line distance (Earth radii), in float64; raw parameters are logarithms."""
    with torch.device("cpu"):
        base = named_kernel(name, lengthscale_constraint=log_scale())
        kernel = gpytorch.kernels.ScaleKernel(GlobeKernel(base), outputscale_constraint=log_scale()).double()
    # As tensors: GPyTorch would round plain numbers to the default dtype.
    base.lengthscale = torch.tensor(lengthscale, dtype=torch.float64, device="cpu")
    kernel.outputscale = torch.tensor(scale, dtype=torch.float64, device="cpu")
    return kernel


def gaussian_observation(s2: float, lower: float = 0.0) -> GaussianObservation:
    """Gaussian noise of variance s2 above a lower limit, in float64; its raw parameter is a logarithm."""
    with torch.device("cpu"):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=log_scale(lower)).double()
    likelihood.noise = torch.tensor(s2, dtype=torch.float64, device="cpu")
    return GaussianObservation(likelihood)


def residual_share(model: GlobeModel, latitudes: Tensor) -> float:
    """The mean residual variance of the features over some latitudes, as a share of the noise.

    Latitudes far apart are uncorrelated: for each latitude only the inducing points around it are used.
    """
    Z = model.latitudes()
    reach = max(12 * model.step, math.degrees(min(3.0, 4 * model.lengthscale)))
    total, longitude = 0.0, torch.tensor([model.meridian], dtype=torch.float64, device=latitudes.device)
    for latitude in latitudes:
        near = Z[(Z - latitude).abs() <= reach]
        features = model.features(near if len(near) else Z[(Z - latitude).abs().argmin()][None])
        with torch.no_grad():
            total += float(features(GlobeGrid(latitude[None], longitude)).residual.variance)
    return total / len(latitudes) / model.s2


def smallest_sizes(model: GlobeModel, latitudes: Tensor) -> GlobeModel:
    """The model with the fewest inducing latitudes and frequencies whose residual is below `RESIDUAL_SHARE` of the noise.

    Both numbers are reduced by the same factor, so that the resolution stays equal in longitude and latitude.
    """
    rows = latitudes.sort().values
    probes = rows[torch.linspace(0, len(rows) - 1, min(5, len(rows)), device=rows.device).long()]
    probes = torch.cat((probes, rows[rows.abs().argmin()][None]))
    if residual_share(model, probes) > RESIDUAL_SHARE:
        return model
    smallest, part = model, 1.0
    for k in range(1, 8):
        trial = part - 0.5**k
        candidate = replace(model, m=max(1, math.ceil(trial * model.m)), t_max=math.ceil(trial * model.t_max))
        if residual_share(candidate, probes) <= RESIDUAL_SHARE:
            smallest, part = candidate, trial
    return smallest


def largest_sizes(rows: int, longitudes: int, extent: float, memory: float) -> tuple[int, int]:
    """The m and t_max that fit into `memory` bytes, for a number of rows over an extent of degrees.

    The memory is that of the features of all rows and two factors of each frequency (float32), and of the kernel's factors and
    their gradient (float64).
    """
    room = 0.75 * memory - 48.0 * rows * longitudes
    return _largest(
        lambda m, t: (t + 1) * m * (4.0 * rows + 24.0 * m) <= room, extent, min(rows, 4096), longitudes // 2
    )


def point_sizes(extent: float) -> tuple[int, int]:
    """The m and t_max with at most `MOST_POINT_FEATURES` features, for points over an extent of degrees."""
    most = MOST_POINT_FEATURES
    return _largest(lambda m, t: m * (2 * t + 1) <= most, extent, most, round(180 * most / extent))


def _largest(fits: Callable[[int, int], bool], extent: float, most: int, highest: int) -> tuple[int, int]:
    """The largest m, up to `most`, that fits together with the t_max, up to `highest`, of the same resolution."""

    def frequencies(m: int) -> int:
        return min(highest, round(180 * m / extent))

    m = 1
    while m < most and fits(m + 1, frequencies(m + 1)):
        m += 1
    return m, frequencies(m)
