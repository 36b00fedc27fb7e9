"""Approximations as whitened block features plus a residual."""

from harmonicgp.features.base import Features, KernelView, PointKernel, Whitened
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation
from harmonicgp.features.harmonic import HarmonicFeatures
from harmonicgp.features.longitude import GlobeGrid, LongitudeFeatures
from harmonicgp.features.orthogonal import OrthogonalFeatures
from harmonicgp.features.residual import IndependentResidual, Residual
from harmonicgp.features.sparse import SparseFeatures
from harmonicgp.features.waves import WaveEvaluation

__all__ = [
    "DenseEvaluation",
    "Evaluation",
    "Features",
    "GlobeGrid",
    "HarmonicFeatures",
    "IndependentResidual",
    "KernelView",
    "LongitudeFeatures",
    "OrthogonalFeatures",
    "PointKernel",
    "Residual",
    "SparseFeatures",
    "WaveEvaluation",
    "Whitened",
]
