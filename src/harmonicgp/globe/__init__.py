"""Fields on the globe: grids, the model, learning, the estimator and maps."""

from harmonicgp.globe.estimator import HarmonicGPGlobe

__all__ = ["HarmonicGPGlobe"]
