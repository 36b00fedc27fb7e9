"""Fixtures of this room."""

from __future__ import annotations

import pytest

from harmonicgp.globe import HarmonicGPGlobe


@pytest.fixture(scope="session")
def fitted():
    """A map with holes, fitted."""
    from tests.globe.common import QUICK, field, holes  # which needs xarray

    return HarmonicGPGlobe(kernel="rbf", **QUICK).fit(holes(field()))
