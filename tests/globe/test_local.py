"""Kernel and noise from near values, and what features of a resolution leave."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harmonicgp.globe.fields import Points
from harmonicgp.globe.local import LocalModel, local_model
from harmonicgp.globe.model import globe_kernel
from tests.globe.common import rough_field


def test_the_kernel_that_made_the_field_is_chosen():
    """A field of an exponential covariance: its smoothness, its slope at zero (variance / lengthscale), its noise."""
    field = rough_field(50)
    lat, lon = np.meshgrid(field.lat, field.lon, indexing="ij")
    X = torch.from_numpy(np.stack((lon.ravel(), lat.ravel()), 1))
    y = torch.from_numpy(field.values.ravel() - float(field.mean()))
    local = local_model(Points(X, y[None]), ("rbf", "matern12", "matern52"), 0)
    assert local.name == "matern12"
    assert local.densities.keys() == {"rbf", "matern12", "matern52"}
    assert max(local.densities, key=lambda name: local.densities[name]) == "matern12"
    slope = float(local.kernel.outputscale) / math.degrees(local.lengthscale)
    assert slope == pytest.approx(1.0, rel=0.35)  # as `rough_field` has it
    assert math.sqrt(local.s2) == pytest.approx(0.1, rel=0.5)
    assert not any(p.requires_grad for p in local.kernel.parameters())


def test_one_name_is_not_compared():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(0, 1, (300, 2)))
    noise = torch.full((300,), 0.04)
    points = Points(X, torch.from_numpy(rng.normal(size=(1, 300))), noise)
    local = local_model(points, ("matern32",), 0)
    assert local.name == "matern32"
    assert local.densities == {}


def test_residual_share_against_its_definition():
    """k(x, x) - k_x' K^{-1} k_x over the noise, of the middle of a lattice; none for a lattice far finer than the kernel."""
    kernel = globe_kernel("matern12", 0.05, 2.0)
    local = LocalModel("matern12", kernel, 0.1, {})
    assert local.residual_share(90.0, 90.0, 0.0) == pytest.approx(2.0 / 0.1, rel=1e-6)  # knows nothing
    shares = [local.residual_share(h, h, 40.0) for h in (0.01, 0.1, 1.0)]
    assert 0 < shares[0] < shares[1] < shares[2] < 20
    # an exponential kernel leaves in proportion to the distance
    assert shares[1] / shares[0] == pytest.approx(10, rel=0.05)
    smooth = LocalModel("rbf", globe_kernel("rbf", 0.5, 2.0), 0.1, {})
    assert smooth.residual_share(1.0, 1.0, 0.0) < 1e-6
