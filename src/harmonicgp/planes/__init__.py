"""Fields in a region or on a plane: exact Gaussian processes on regular grids, and scattered points with neighbours."""

from harmonicgp.planes.estimator import HarmonicGPField

__all__ = ["HarmonicGPField"]
