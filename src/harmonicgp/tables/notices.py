"""Warnings and errors about the columns of a table, with fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

from harmonicgp.tables.kinds import Kind

_SHOWN = 3  # levels that a warning names
_MOST_COLUMNS = 10  # that an error names


class UnseenWarning(UserWarning, ABC):
    """Values of a column that the fit has not seen. Those of two parts of a table add up."""

    column: str
    rows: int  #: rows that hold such values
    fate: str  #: what stands in for them

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """The warning of both parts."""


class UnseenLevelsWarning(UnseenWarning):
    """Levels of a column that the fit has not seen."""

    def __init__(self, column: str, levels: Sequence[str], rows: int, fate: str) -> None:
        super().__init__(column, levels, rows, fate)  # what pickling needs
        self.column, self.levels, self.rows, self.fate = column, tuple(levels[: _SHOWN + 1]), rows, fate

    def __str__(self) -> str:
        shown = ", ".join(repr(level[:40]) for level in self.levels[:_SHOWN])
        return (
            f"column {self.column!r} holds levels that the fit has not seen "
            f"({shown}{', ...' * (len(self.levels) > _SHOWN)}) in {self.rows:,} row{'s' * (self.rows != 1)}: "
            f"they count as {self.fate}, and error bars do not know of it."
        )

    def __add__(self, other: Self) -> Self:
        levels = tuple(dict.fromkeys(self.levels + other.levels))
        return type(self)(self.column, levels, self.rows + other.rows, self.fate)


class UnseenGapsWarning(UnseenWarning):
    """Missing values in a column that had none in the fit."""

    def __init__(self, column: str, rows: int, fate: str) -> None:
        super().__init__(column, rows, fate)
        self.column, self.rows, self.fate = column, rows, fate

    def __str__(self) -> str:
        one = self.rows == 1
        return (
            f"{self.column!r} lacks {'a value' if one else 'values'} in {self.rows:,} row{'s' * (not one)} and lacked none "
            f"in the fit: {'it is' if one else 'they are'} filled with {self.fate}, and error bars do not know of it."
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(self.column, self.rows + other.rows, self.fate)


class MissingValuesError(ValueError):
    """Columns have missing values, which are refused."""

    def __init__(self, gaps: Mapping[str, int]) -> None:
        super().__init__(gaps)
        self.gaps = gaps  #: column -> rows without a value

    @property
    def problem(self) -> str:
        """The message without its advice."""
        counts = [f"{name!r} ({rows} row{'s' * (rows > 1)})" for name, rows in self.gaps.items()]
        more = f" and {len(counts) - _MOST_COLUMNS} more columns" if len(counts) > _MOST_COLUMNS else ""
        return f"values are missing in {', '.join(counts[:_MOST_COLUMNS])}{more}"

    def __str__(self) -> str:
        return f'{self.problem}: drop those rows, or fit with missing="impute".'


class IdentifierColumnError(ValueError):
    """Nearly every row of a column of text has a value of its own."""

    def __init__(self, column: str, levels: int, rows: float) -> None:
        super().__init__(column, levels, rows)
        self.column, self.levels, self.rows = column, levels, rows

    @property
    def problem(self) -> str:
        """The message without its advice."""
        return f"column {self.column!r} holds text that hardly repeats ({self.levels} different in {self.rows:g} rows)"

    def __str__(self) -> str:
        return f"{self.problem}: drop it if it is an identifier, or encode it yourself."


class UndeclaredColumnsError(ValueError):
    """A symmetry goes around columns that the user has not declared: a kernel by name does not repeat along them."""

    def __init__(self, symmetry: str, around: str, kinds: Mapping[str | int, Kind]) -> None:
        super().__init__(symmetry, around, kinds)
        self.symmetry, self.around = symmetry, around
        self.kinds = dict(kinds)  #: what to declare, as `columns=` of an estimator takes it

    def __str__(self) -> str:
        return (
            f"symmetry={self.symmetry} goes around {self.around or 'columns'}, which the kernel must know: give "
            f"columns={self.kinds!r} too."
        )
