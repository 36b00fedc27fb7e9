"""Gaussian processes for 10^4 to 10^7 rows, by the harmonic decomposition of symmetric kernels."""

from harmonicgp._version import __version__
from harmonicgp.groups import Cyclic, Group

__all__ = ["Cyclic", "Group", "__version__"]
