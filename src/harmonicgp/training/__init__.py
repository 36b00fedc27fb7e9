"""The training loop."""

from harmonicgp.training.fit import Fit, fit
from harmonicgp.training.schedule import Schedule

__all__ = ["Fit", "Schedule", "fit"]
