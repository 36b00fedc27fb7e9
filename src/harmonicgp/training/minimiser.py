"""SciPy's quasi-Newton minimiser for a few numbers. It returns the best point and survives failed evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import minimize

from harmonicgp.backend.linalg import NotPositiveDefiniteError

Array: TypeAlias = "np.ndarray[Any, Any]"
#: A value and its slopes at a point.
Objective: TypeAlias = Callable[[Array], tuple[float, Array]]


class StopMinimisingError(Exception):
    """Raised by an objective to end the search, with the value at the current point."""

    def __init__(self, value: float) -> None:
        super().__init__(value)
        self.value = value


@dataclass(frozen=True)
class Minimum:
    """The best point of a search."""

    x: Array
    value: float
    inverse: Array  #: an estimate of the inverse of the curvature there


def minimise(
    function: Objective, x: Array, limits: Array, max_evaluations: int, ftol: float = 1e-8, gtol: float = 1e-6
) -> Minimum:
    """L-BFGS-B from x [n] within limits [n, 2].

    If the function fails (a matrix without a Cholesky factor, a value that is not finite), the search steps back.

    Examples:
        >>> import numpy as np
        >>> found = minimise(lambda x: (float(x @ x), 2 * x), np.ones(2), np.array([[-2.0, 2.0]] * 2), 20)
        >>> bool(np.abs(found.x).max() < 1e-4)
        True
    """
    best: tuple[float, Array] = (math.inf, x.copy())

    def guarded(point: Array) -> tuple[float, Array]:
        nonlocal best
        try:
            value, slope = function(point)
        except NotPositiveDefiniteError:
            value, slope = math.inf, np.zeros_like(point)
        except StopMinimisingError as stop:
            best = min(best, (stop.value, point.copy()), key=lambda pair: pair[0])
            raise
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return 1e10, np.zeros_like(point)
        if value < best[0]:
            best = value, point.copy()
        return value, slope

    inverse = np.eye(len(x))
    options = {"maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": ftol, "gtol": gtol}
    try:
        result = minimize(guarded, x, jac=True, method="L-BFGS-B", bounds=limits.tolist(), options=options)  # type: ignore[call-overload]
        inverse = np.asarray(result.hess_inv.todense())
    except StopMinimisingError:
        pass
    return Minimum(best[1], best[0], inverse)
