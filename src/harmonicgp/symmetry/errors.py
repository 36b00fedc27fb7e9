"""Errors of a symmetry, with what a caller needs to say them in other words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class UndeclaredColumnsError(ValueError):
    """An action goes around columns that the user has not declared: a kernel by name does not repeat along them."""

    def __init__(self, action: Any, around: str, kinds: Mapping[str | int, Any]) -> None:
        super().__init__(
            f"symmetry={action!r} goes around {around or 'columns'}, which the kernel must know: give "
            f"columns={dict(kinds)!r} too."
        )
        self.kinds = dict(kinds)  #: what to declare, as `columns=` of an estimator takes it
