"""A fitted model of a table: from encoded rows to the latent function f, in model units."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.estimators.predictive import Conformal
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.prediction import Predictor
from harmonicgp.likelihoods.observation import Bound, observe
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Inputs
from harmonicgp.tables.rows import ModelRows
from harmonicgp.training.full_data import absorb
from harmonicgp.training.neighbour_finish import absorb_neighbours
from harmonicgp.training.problem import Problem

#: The tolerance of the range of a column, as a share of the range.
NEAR = 0.01


@dataclass(frozen=True)
class Components:
    """The components of f, one for each harmonic, in the units of y."""

    labels: list[str]
    mean: Array  #: [T, n], or [T, n, P]
    std: Array  #: [T, n], or [T, n, P]
    residual_std: Array  #: of the part that no inducing point explains, [n] or [n, P]


@dataclass(frozen=True)
class FittedModel:
    """The result of a fit. Rows are encoded columns [n, d]; rows and predictions are NumPy arrays."""

    inputs: Inputs  #: encoded columns to model inputs
    predictor: Predictor
    kernel: gpytorch.kernels.Kernel | None
    likelihood: gpytorch.likelihoods.Likelihood
    bound: Bound
    choice: SymmetryChoice
    elbo: float  #: the bound per row
    history: list[dict[str, Any]]
    timings: dict[str, float]
    modelled_cost: float
    seed: int
    ranges: list[list[float]] | None  #: smallest and largest value of every encoded column; None for old files
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    validation: dict[str, Any] | None = None  #: scores of held-out rows
    calibration: tuple[Conformal, ...] = ()  #: one for each target, or none

    def moments(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of f, both [P, n]."""
        mean, variance = self.predictor.marginals(self._tensor(rows))
        return _array(mean), _array(variance)

    def noise_variances(self, rows: Array) -> Array | None:
        """The variance of the noise at each row, [P, n]; None where it is that of the likelihood."""
        variances = self.predictor.noise_variances(self._tensor(rows))
        return None if variances is None else _array(variances)

    def covariance(self, rows: Array) -> tuple[Array, Array]:
        """The mean [P, n] and the covariance [P, n, n] of f."""
        mean, covariance = self.predictor.covariance(self._tensor(rows))
        return _array(mean), _array(covariance)

    def joint_draws(self, rows: Array, n_samples: int, generator: np.random.Generator) -> Array:
        """Draws of f from its covariance, [samples, P, n]."""
        mean, covariance = self.covariance(rows)
        values, V = np.linalg.eigh(covariance)  # [P, n], [P, n, n]
        root = V * np.sqrt(values.clip(min=0.0))[:, None, :]
        white = generator.standard_normal((n_samples, *mean.shape))
        draws: Array = mean + np.einsum("pij,spj->spi", root, white)
        return draws

    def paths(self, n_samples: int, seed: int) -> Callable[[Array], Array]:
        """Sample paths of the posterior, as a function from rows to [samples, P, n]."""
        paths = self.predictor.paths(n_samples, seed=seed)
        return lambda rows: _array(paths(self._tensor(rows)))

    def components(self, rows: Array, scale: Array, flat: bool) -> Components:
        """The components of f, multiplied by `scale` [P]; `flat` drops the axis of the outputs."""
        mean, variance, residual = self.predictor.components(self._tensor(rows))
        m, s = (_array(t).transpose(1, 2, 0) * scale for t in (mean, variance.clamp_min(0).sqrt()))
        r = _array(residual.double().sqrt())[:, None] * scale
        if flat:
            m, s, r = m[..., 0], s[..., 0], r[..., 0]
        return Components(self._labels(), m, s, r)

    def inducing_points(self, d: int) -> Array:
        """The inducing inputs in the units of the d encoded columns, [m, d]; NaN in columns that the model does not use."""
        Z = torch.cat([Z.detach().reshape(-1, Z.shape[-1]) for Z in self.predictor.features.inducing()])
        return self.inputs.inverse(_array(Z), d)

    def out_of_range(self, rows: Array, exempt: Collection[int]) -> dict[int, Array]:
        """A mask [n] for each encoded column, except those in `exempt`, that has rows outside the range of the fit."""
        masks: dict[int, Array] = {}
        for j, (low, high) in enumerate(self.ranges or ()):
            tolerance = NEAR * (high - low) or 1e-6 * abs(low)  # for a constant column, its rounding
            outside = (rows[:, j] < low - tolerance) | (rows[:, j] > high + tolerance)
            if j not in exempt and outside.any():
                masks[j] = outside
        return masks

    def absorb(self, data: ModelRows) -> FittedModel:
        """The model after new rows, at the present hyper-parameters."""
        X, y, noise, counts = data.tensors(self.inputs, *self._place())
        old = self.predictor
        problem = Problem(old.features, observe(self.likelihood), X, y, None, noise, self.bound, counts)
        if isinstance(old, NeighbourPredictor):
            predictor: Predictor = absorb_neighbours(old, problem)
        else:
            posterior = absorb(problem, old.whitened, old.posterior).settled()
            predictor = replace(old, posterior=posterior)
        ranges = self.ranges
        if ranges is not None:
            ends = zip(ranges, data.X.min(0).tolist(), data.X.max(0).tolist(), strict=True)
            ranges = [[min(low, least), max(high, most)] for (low, high), least, most in ends]
        return replace(self, predictor=predictor, ranges=ranges)

    @property
    def n_features(self) -> int:
        """The number of features of all blocks together."""
        return self.predictor.features.n_features

    @property
    def neighbours(self) -> int:
        """How many training rows correct a prediction; 0 for none."""
        return self.predictor.neighbourhood.k if isinstance(self.predictor, NeighbourPredictor) else 0

    def _labels(self) -> list[str]:
        return [*self._block_labels(), *(["neighbours"] if self.neighbours else [])]

    def _block_labels(self) -> list[str]:
        features = self.predictor.features
        frequencies = getattr(features, "block_frequencies", None)
        if frequencies is None:
            return ["all"] if len(features.block_order) == 1 else [f"block {b}" for b in features.block_order]
        return ["t = " + ",".join(str(int(v)) for v in t) for t in frequencies]

    def _place(self) -> tuple[torch.dtype, torch.device]:
        Z = self.predictor.features.inducing()[0]
        return Z.dtype, Z.device

    def _tensor(self, rows: Array) -> Tensor:
        dtype, device = self._place()
        return torch.from_numpy(self.inputs.transform(rows)).to(device, dtype)


def _array(tensor: Tensor) -> Array:
    return tensor.double().cpu().numpy()
