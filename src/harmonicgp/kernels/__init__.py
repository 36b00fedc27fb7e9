"""Harmonic kernels of any GPyTorch kernel, and the kernels GPyTorch lacks."""

from harmonicgp.kernels.arccosine import ArcCosineKernel
from harmonicgp.kernels.continuous import circle_spectrum, longitude_spectrum, scaled_bessel
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors
from harmonicgp.kernels.harmonic import HarmonicKernel, harmonic_diagonal, harmonic_gram
from harmonicgp.kernels.interdomain import (
    harmonic_parts,
    interdomain_covariance,
    interdomain_cross_covariance,
)
from harmonicgp.kernels.invariance import check_invariant

__all__ = [
    "ArcCosineKernel",
    "GlobeKernel",
    "HarmonicKernel",
    "check_invariant",
    "circle_spectrum",
    "harmonic_diagonal",
    "harmonic_gram",
    "harmonic_parts",
    "interdomain_covariance",
    "interdomain_cross_covariance",
    "longitude_spectrum",
    "scaled_bessel",
    "unit_vectors",
]
