"""Makes the kernel, the features and the likelihood of a model of a table from names, columns and rows."""

from __future__ import annotations

import copy
import math
from typing import Literal

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.features import Features, HarmonicFeatures, SparseFeatures
from harmonicgp.groups import Resolution
from harmonicgp.inducing import median_distance, place
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors
from harmonicgp.kernels.profiles import log_scale, named_kernel
from harmonicgp.likelihoods import SoftmaxBoundLikelihood
from harmonicgp.tables.inputs import Inputs


def make_kernel(
    kernel: str | gpytorch.kernels.Kernel, inputs: Inputs, action: Action | None, rows: Tensor, seed: int
) -> gpytorch.kernels.Kernel:
    """A copy of the user's kernel, or a new kernel by name with lengthscales from the median distance of the rows.

    A kernel by name is a product: each plain column has its own lengthscale, columns that the action mixes share one, longitude
    and latitude have a globe kernel, and each periodic column has a periodic kernel.
    """
    if isinstance(kernel, gpytorch.kernels.Kernel):
        return copy.deepcopy(kernel).to(rows.device, rows.dtype)
    with torch.device(rows.device):  # GPyTorch makes parameters on the default device
        return _kernel_of_name(kernel, inputs, action, rows, seed)


def _kernel_of_name(
    kernel: str, inputs: Inputs, action: Action | None, rows: Tensor, seed: int
) -> gpytorch.kernels.Kernel:
    parts: list[gpytorch.kernels.Kernel] = []
    plain, kinds = inputs.plain, inputs.kinds
    mixed = {i for part in action.mixed_columns(inputs.d) for i in part} if action is not None else set()
    for columns, ard in (([i for i in plain if i not in mixed], True), ([i for i in plain if i in mixed], False)):
        if columns:
            part = _stationary(kernel, len(columns) if ard else None, columns if len(columns) < inputs.d else None)
            part.lengthscale = median_distance(rows[:, columns], seed=seed, ard=ard)
            parts.append(part)
    for i, kind in kinds.items():
        if kind == "longitude":
            globe = [i, next(j for j, other in kinds.items() if other == "latitude")]
            base = _stationary(kernel, None, None)
            base.lengthscale = 0.3 * float(median_distance(unit_vectors(rows[:, globe].double()), seed=seed))
            parts.append(GlobeKernel(base, active_dims=globe))
        elif isinstance(kind, tuple):
            periodic = gpytorch.kernels.PeriodicKernel(active_dims=[i], lengthscale_constraint=log_scale())
            periodic.period_length = kind[1]
            periodic.raw_period_length.requires_grad_(False)
            periodic.lengthscale = 1.0
            parts.append(periodic)
    product = parts[0] if len(parts) == 1 else gpytorch.kernels.ProductKernel(*parts)
    scaled = gpytorch.kernels.ScaleKernel(product, outputscale_constraint=log_scale()).to(rows.dtype)
    scaled.outputscale = 1.0
    return scaled


def _stationary(name: str, d: int | None, active: list[int] | None) -> gpytorch.kernels.Kernel:
    return named_kernel(name, ard_num_dims=d, active_dims=active, lengthscale_constraint=log_scale())


def make_noise(name: str, dtype: torch.dtype, device: torch.device) -> gpytorch.likelihoods.Likelihood:
    """The likelihood of a standardised target: "gaussian", or "student_t", which starts with four degrees of freedom."""
    with torch.device(device):
        if name == "student_t":
            heavy = gpytorch.likelihoods.StudentTLikelihood(
                deg_free_constraint=log_scale(2.01), noise_constraint=log_scale(1e-6)
            ).to(dtype)
            heavy.noise, heavy.deg_free = 0.1, 4.0
            return heavy
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=log_scale(1e-6)).to(dtype)
        likelihood.noise = 0.1
        return likelihood


def make_class_likelihood(n_classes: int, dtype: torch.dtype, device: torch.device) -> gpytorch.likelihoods.Likelihood:
    """A probit likelihood for two classes; for more, a softmax with a latent function for each class."""
    with torch.device(device):
        likelihood = gpytorch.likelihoods.BernoulliLikelihood() if n_classes == 2 else SoftmaxBoundLikelihood(n_classes)
        return likelihood.to(dtype)


def make_features(
    kernel: gpytorch.kernels.Kernel,
    action: Action | None,
    rows: Tensor,
    n_inducing: int,
    *,
    share: bool = True,
    resolution: Resolution = "complex",
    counts: Tensor | None = None,
    method: Literal["kmeans", "rows"] = "kmeans",
    seed: int = 0,
) -> Features:
    """Features with one block, or one block for each harmonic of the action; inducing inputs are placed among the rows."""
    units = _units(kernel, rows)
    if action is None:
        return SparseFeatures(kernel, place(rows, n_inducing, method, seed=seed, counts=counts, units=units))
    if share:
        Z = place(rows, n_inducing, method, action=action, seed=seed, counts=counts, units=units)
    else:
        blocks = action.group.n_blocks(resolution)
        sets = [
            place(rows, n_inducing, method, action, seed=seed + t, counts=counts, units=units) for t in range(blocks)
        ]
        m = min(len(Z) for Z in sets)
        Z = torch.stack([Z[:m] for Z in sets])
    return HarmonicFeatures(kernel, action, Z, resolution)


def _units(kernel: gpytorch.kernels.Kernel, rows: Tensor) -> Tensor:
    """What counts as a distance of one in each column, [d]: a radian where it is periodic, and so not standardised."""
    units = torch.ones_like(rows[0])
    for part in kernel.modules():
        if isinstance(part, gpytorch.kernels.PeriodicKernel) and part.active_dims is not None:
            units[part.active_dims] = part.period_length.detach().reshape(-1).to(units) / (2 * math.pi)
    return units
