"""Approximations as whitened block features plus a residual."""

from harmonicgp.features.base import Evaluation, Features, KernelView, PointKernel, Stacks, Whitened
from harmonicgp.features.harmonic import HarmonicFeatures
from harmonicgp.features.longitude import LongitudeFeatures
from harmonicgp.features.orthogonal import OrthogonalFeatures
from harmonicgp.features.sparse import SparseFeatures

__all__ = [
    "Evaluation",
    "Features",
    "HarmonicFeatures",
    "KernelView",
    "LongitudeFeatures",
    "OrthogonalFeatures",
    "PointKernel",
    "SparseFeatures",
    "Stacks",
    "Whitened",
]
