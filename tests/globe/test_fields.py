"""Fields on the globe against dense references: features, posterior, bound and gradients."""

from __future__ import annotations

import torch

from harmonicgp.globe.fields import coupling
from tests.features.common import grid


def test_coupling_tells_holes_from_scattered_gaps():
    even, holed = grid(2.0, hole=False), grid(2.0, hole=False)
    generator = torch.Generator().manual_seed(0)
    even.present[:] = torch.rand(even.present.shape, generator=generator) < 0.7
    holed.present[20:60, 30:90] = False
    assert coupling(even.precision(0.3), even.longitudes) < 0.1
    assert coupling(holed.precision(0.3), holed.longitudes) > 0.1
