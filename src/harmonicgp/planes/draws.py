"""Draws from the posterior of a grid by Matheron's rule, and variances from them with a local prediction as control variate.

For a draw f0 from the prior and simulated data e = f0 + noise, the error f0 - kriging(e) has the covariance of the posterior,
coefficients of the mean included. The error of a local prediction, from the nearest cells alone, is close to it and has a
variance that is known exactly. So its sum of squares corrects that of the errors, by the power r^2, the squared correlation of
the two: relative errors of variances are then sqrt(2 (1 - r^4) / n), never more than those of plain draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harmonicgp.features.planar import Torus
from harmonicgp.planes.conditioning import LocalWeights
from harmonicgp.planes.kriging import GridSystem, Kriging

#: Cells of the torus whose draws are made at a time.
TOGETHER = 1 << 22
#: The residual of conjugate gradients for draws, as a share of the standard deviation of the noise and of the simulated data.
OF_NOISE, OF_DATA = 1e-2, 1e-3
#: Residuals below this need double precision.
SINGLE = 3e-5


@dataclass(frozen=True)
class DrawnVariance:
    """Variances of f on the grid, and their error."""

    variance: Tensor  #: [cells], float64
    error: float  #: the root mean square of the relative Monte-Carlo error of standard deviations


@torch.no_grad()
def posterior_errors(
    kriging: Kriging, prior: Torus, H: Tensor, n: int, seed: int, tolerance: float | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches of draws of the error of kriging [draws, cells], of f0 [draws, cells] and of simulated data [draws, N].

    H [cells, q] is the basis at all cells, and f0 is drawn on the torus `prior`. Errors of the posterior may be far below the
    data, and so is a tolerance of None.
    """
    system = kriging.system
    assert isinstance(system, GridSystem)
    generator = torch.Generator().manual_seed(seed)
    if tolerance is None:
        variance = float(prior.spectrum.mean())  # nearly
        tolerance = min(OF_DATA, OF_NOISE * math.sqrt(float(system.noise.mean()) / max(variance, 1e-300)))
    dtype = torch.float32 if tolerance > SINGLE else torch.float64
    batch, basis = max(1, TOGETHER // system.torus.cells), H.to(dtype)
    for start in range(0, n, batch):
        some = min(batch, n - start)
        f0 = torch.cat([prior.sample(1, generator, dtype) for _ in range(some)]).flatten(1)
        noise = torch.randn(some, len(system.cells), generator=generator, dtype=dtype, device="cpu")
        e = f0[:, system.cells] + noise * system.noise.sqrt().to(dtype)
        alpha, beta = kriging.solve(e, tolerance)
        yield f0 - system.spread(alpha) - beta @ basis.mT, f0, e


@torch.no_grad()
def drawn_variance(
    kriging: Kriging, prior: Torus, H: Tensor, local: LocalWeights, n: int, seed: int, tick: Callable[[int], object]
) -> DrawnVariance:
    """The posterior variance of all cells from n draws; `tick` is called with the number of draws done."""
    cells = len(H)
    sums = torch.zeros(3, cells, dtype=torch.float64, device="cpu")  # of squares: ours, local; of the product
    for errors, f0, e in posterior_errors(kriging, prior, H, n, seed):
        nearby = f0 - torch.from_numpy(np.ascontiguousarray((local.matrix @ e.numpy().T).T))
        for total, product in zip(sums, (errors.square(), nearby.square(), errors * nearby), strict=True):
            total += product.sum(0)
        tick(len(errors))
    known = torch.from_numpy(local.variance)
    tiny = torch.finfo(torch.float64).tiny
    explained = (sums[2].square() / (sums[0] * sums[1]).clamp_min(tiny)).clamp(0.0, 1.0)
    variance = sums[0] / n * (n * known / sums[1].clamp_min(tiny)) ** explained
    return DrawnVariance(variance, math.sqrt(float((1 - explained.square()).mean()) / (2 * n)))
