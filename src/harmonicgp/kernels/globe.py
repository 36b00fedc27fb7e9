"""Kernels on the globe: any isotropic kernel of the chord between two places."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions.translation import check_latitude
from harmonicgp.kernels.functions import kernel_diagonal, kernel_matrix
from harmonicgp.kernels.records import FeatureMap, random_features, register_kernel


def unit_vectors(x: Tensor) -> Tensor:
    """(longitude, latitude) in degrees as points of the unit sphere, [..., 2] -> [..., 3].

    Examples:
        >>> import torch
        >>> unit_vectors(torch.tensor([[90.0, 0.0]])).round(decimals=6).abs()
        tensor([[0., 1., 0.]])
    """
    longitude, latitude = torch.deg2rad(x).unbind(-1)
    return torch.stack((latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()), -1)


class GlobeKernel(gpytorch.kernels.Kernel):
    """An isotropic kernel of the straight-line (chordal) distance between places, in Earth radii.

    The inputs are longitude and latitude in degrees. For inputs with further columns use `active_dims=[0, 1]` and multiply by a
    kernel of the other columns.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
        >>> kernel = GlobeKernel(MaternKernel(nu=1.5))
        >>> north = torch.tensor([[0.0, 90.0], [123.0, 90.0]])  # one place, two names
        >>> bool((kernel(north).to_dense() - 1).abs().max() < 1e-5)
        True
    """

    def __init__(self, base_kernel: gpytorch.kernels.Kernel, **kwargs: Any) -> None:
        if not isinstance(base_kernel, gpytorch.kernels.Kernel):
            raise TypeError(f"base_kernel must be a GPyTorch kernel; got {base_kernel!r}.")
        for part in base_kernel.modules():
            if isinstance(part, gpytorch.kernels.Kernel) and (part.ard_num_dims or 1) > 1:
                raise ValueError(
                    "a globe kernel must be isotropic: with different lengthscales along the axes of space it would depend on "
                    "the longitude. Use a base kernel without ard_num_dims."
                )
        super().__init__(**kwargs)
        self.base_kernel = base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The Gram matrix of the base kernel on unit vectors, [..., n1, n2], or its diagonal [..., n]."""
        for x in (x1, x2):
            if x.shape[-1] != 2:
                raise ValueError(
                    f"a globe kernel takes two columns, longitude and latitude in degrees; got {x.shape[-1]}: "
                    "use active_dims=[i, j] to name them."
                )
            check_latitude(x[..., 1])
        evaluate = kernel_diagonal if diag else kernel_matrix
        return evaluate(self.base_kernel, unit_vectors(x1), unit_vectors(x2))


def _globe_features(kernel: GlobeKernel, generator: torch.Generator, n: int) -> FeatureMap:
    base = random_features(kernel.base_kernel, generator, n)
    return lambda x: base(unit_vectors(x))


register_kernel(
    "GlobeKernel", GlobeKernel, random_features=_globe_features, children=("base_kernel",), ard_num_dims=int | None
)
