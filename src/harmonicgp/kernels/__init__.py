"""Harmonic kernels of any GPyTorch kernel, and kernels that GPyTorch does not have."""

from harmonicgp.kernels.arccosine import ArcCosineKernel
from harmonicgp.kernels.continuous import circle_spectrum, scaled_bessel
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors
from harmonicgp.kernels.harmonic import HarmonicKernel, harmonic_diagonal, harmonic_gram
from harmonicgp.kernels.interdomain import (
    harmonic_parts,
    interdomain_covariance,
    interdomain_cross_covariance,
)
from harmonicgp.kernels.invariance import check_invariant
from harmonicgp.kernels.profiles import Profile
from harmonicgp.kernels.records import register_kernel
from harmonicgp.kernels.zonal import longitude_spectrum

__all__ = [
    "ArcCosineKernel",
    "GlobeKernel",
    "HarmonicKernel",
    "Profile",
    "check_invariant",
    "circle_spectrum",
    "harmonic_diagonal",
    "harmonic_gram",
    "harmonic_parts",
    "interdomain_covariance",
    "interdomain_cross_covariance",
    "longitude_spectrum",
    "register_kernel",
    "scaled_bessel",
    "unit_vectors",
]
