"""The fit loop."""

from harmonicgp.training.fit import Callback, Fit, fit
from harmonicgp.training.schedule import Schedule

__all__ = ["Callback", "Fit", "Schedule", "fit"]
