"""Warnings and errors about the columns of a table, with their facts as fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

from harmonicgp.tables.kinds import Kind, listed

_SHOWN = 3  # levels that a warning names, at most


class UnseenWarning(UserWarning, ABC):
    """Values of a column that were not in the fit. Warnings for two parts of a table can be added.

    Examples:
        >>> first = UnseenLevelsWarning("colour", ["violet"], 2, "'other'")
        >>> total = first + UnseenLevelsWarning("colour", ["pink"], 1, "'other'")
        >>> isinstance(total, UnseenWarning), total.column, total.rows, total.levels
        (True, 'colour', 3, ('violet', 'pink'))
    """

    column: str
    rows: int  #: rows that hold such values
    fate: str  #: what the values are replaced by

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """The warning for both parts."""


class UnseenLevelsWarning(UnseenWarning):
    """Levels of a column that were not in the fit.

    Examples:
        >>> print(UnseenLevelsWarning("colour", ["violet"], 2, "'other'"))
        column 'colour' holds levels that were not in the fit ('violet') in 2 rows: they count as 'other', and error bars do not
        include this.
    """

    def __init__(self, column: str, levels: Sequence[str], rows: int, fate: str) -> None:
        super().__init__(column, levels, rows, fate)  # for pickling
        self.column, self.levels, self.rows, self.fate = column, tuple(levels[: _SHOWN + 1]), rows, fate

    def __str__(self) -> str:
        shown = ", ".join(repr(level[:40]) for level in self.levels[:_SHOWN])
        return (
            f"column {self.column!r} holds levels that were not in the fit "
            f"({shown}{', ...' * (len(self.levels) > _SHOWN)}) in {self.rows:,} row{'s' * (self.rows != 1)}: "
            f"they count as {self.fate}, and error bars do not include this."
        )

    def __add__(self, other: Self) -> Self:
        levels = tuple(dict.fromkeys(self.levels + other.levels))
        return type(self)(self.column, levels, self.rows + other.rows, self.fate)


class UnseenGapsWarning(UnseenWarning):
    """Missing values in a column that had none in the fit.

    Examples:
        >>> UnseenGapsWarning("age", 2, "the median").rows
        2
    """

    def __init__(self, column: str, rows: int, fate: str) -> None:
        super().__init__(column, rows, fate)
        self.column, self.rows, self.fate = column, rows, fate

    def __str__(self) -> str:
        return (
            f"{self.column!r} has missing values in {self.rows:,} row{'s' * (self.rows != 1)}, and had none in the fit: "
            f"they are replaced by {self.fate}, and error bars do not include this."
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(self.column, self.rows + other.rows, self.fate)


class MissingValuesError(ValueError):
    """Columns have missing values, and the model does not impute them.

    Examples:
        >>> print(MissingValuesError({"age": 3}))
        values are missing in 'age' (3 rows): drop those rows, or fit with missing="impute".
    """

    def __init__(self, gaps: Mapping[str, int]) -> None:
        super().__init__(gaps)
        self.gaps = gaps  #: column -> rows without a value

    @property
    def problem(self) -> str:
        """The message without its advice."""
        counts = [f"{name!r} ({rows} row{'s' * (rows > 1)})" for name, rows in self.gaps.items()]
        return f"values are missing in {listed(counts, show=str)}"

    def __str__(self) -> str:
        return f'{self.problem}: drop those rows, or fit with missing="impute".'


class IdentifierColumnError(ValueError):
    """A column of text has a different value in nearly every row.

    Examples:
        >>> print(IdentifierColumnError("name", 80, 80))
        column 'name' holds text that hardly repeats (80 values in 80 rows): drop it if it is an identifier, or encode it
        yourself.
    """

    def __init__(self, column: str, levels: int, rows: float) -> None:
        super().__init__(column, levels, rows)
        self.column, self.levels, self.rows = column, levels, rows

    @property
    def problem(self) -> str:
        """The message without its advice."""
        return f"column {self.column!r} holds text that hardly repeats ({self.levels} values in {self.rows:g} rows)"

    def __str__(self) -> str:
        return f"{self.problem}: drop it if it is an identifier, or encode it yourself."


class UndeclaredColumnsError(ValueError):
    """A symmetry is periodic in columns that the user has not declared periodic, so that the kernel is not periodic in them.

    Examples:
        >>> UndeclaredColumnsError(
        ...     "Translation(axis=0, period=24.0, order=6)", "hour", {"hour": ("periodic", 24.0)}
        ... ).kinds
        {'hour': ('periodic', 24.0)}
    """

    def __init__(self, symmetry: str, around: str, kinds: Mapping[str | int, Kind]) -> None:
        super().__init__(symmetry, around, kinds)
        self.symmetry, self.around = symmetry, around
        self.kinds = dict(kinds)  #: what to declare, as `columns=` of an estimator takes it

    def __str__(self) -> str:
        return (
            f"symmetry={self.symmetry} is periodic in {self.around or 'columns'}, and the kernel must be too: also give "
            f"columns={self.kinds!r}."
        )
