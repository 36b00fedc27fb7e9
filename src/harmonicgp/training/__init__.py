"""The fit loop."""

from harmonicgp.training.fit import Fit, Schedule, fit

__all__ = ["Fit", "Schedule", "fit"]
