"""Frames to numbers: categories, dates and missing values, with the same result for pandas, polars and Arrow."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_type_hints

import narwhals as nw
import numpy as np

from harmonicgp.io.fields import has_type
from harmonicgp.tables.columns import Array
from harmonicgp.tables.encodings import COLUMNS, Column, encode, fit_encoding
from harmonicgp.tables.kinds import Kind, check_kinds, listed
from harmonicgp.tables.notices import MissingValuesError, UnseenWarning

Missing: TypeAlias = Literal["refuse", "impute"]


def is_frame(X: object) -> bool:
    """Whether X is a table of pandas, polars or Arrow. Raises for a lazy frame.

    Examples:
        >>> is_frame([[1.0, 2.0]])
        False
    """
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("this is a LazyFrame, which holds no data yet: use .collect() first.")
    return (
        nw.dependencies.is_pandas_dataframe(X)
        or nw.dependencies.is_polars_dataframe(X)
        or nw.dependencies.is_pyarrow_table(X)
    )


@dataclass(frozen=True)
class TableEncoder:
    """Turns the columns of a table into numbers. `fit` makes an encoder, which does not change afterwards.

    Numbers stay as they are. Text becomes a column of 0 and 1 for each level. Dates become days since the first date, with
    time of day, day of week and day of year if the dates span enough time.

    Examples:
        >>> import pyarrow as pa
        >>> table = pa.table({"age": [31, 45, 28], "colour": ["red", "blue", "green"]})
        >>> encoder = TableEncoder.fit(table)
        >>> encoder.encoded_names
        ['age', 'colour=blue', 'colour=green', 'colour=red']
        >>> encoder.transform(table)[0].tolist()
        [31.0, 0.0, 0.0, 1.0]
    """

    names: list[str]  #: the columns of the table, in the order of the fit
    columns: list[Column]  #: the encoding of each column that is used
    missing: Missing
    notes: list[str]  #: sentences on what was done to the columns
    warnings: list[str] = field(default_factory=list)  #: sentences on what can harm predictions

    @classmethod
    def fit(cls, frame: Any, columns: Mapping[str | int, Kind] | None = None,
            missing: Missing = "refuse", weights: Array | None = None) -> TableEncoder:  # fmt: skip
        """Learn levels, origins of dates and medians from a table.

        Args:
            frame: a table of pandas, polars or Arrow.
            columns: kinds by name or number: "longitude", "latitude" or ("periodic", period). Such a column stays one column.
            missing: "refuse" or "impute". With "impute", numbers and dates are replaced by the median (the lower of two), and a
                column "NAME missing" marks the rows; text has a level "missing".
            weights: how many rows each row stands for, [n]; rows of weight zero are ignored.
        """
        if missing not in ("refuse", "impute"):
            raise ValueError(f"missing must be 'refuse' or 'impute'; got {missing!r}.")
        table = _opened(frame)
        mass = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
        if not (mass > 0).all():
            table, mass = table.filter((mass > 0).tolist()), mass[mass > 0]
        names = table.columns
        kinds = check_kinds(columns, names, len(names))
        fitted: list[Column] = []
        gaps: dict[str, int] = {}
        notes, warnings = list[str](), list[str]()
        for number, name in enumerate(names):
            kind = kinds.get(number)
            column, gaps[name] = fit_encoding(table[name], kind, missing == "impute", mass, notes, warnings)
            if column is not None:
                fitted.append(column)
            elif missing == "refuse" or number in kinds:
                raise ValueError(f"column {name!r} has no values at all: drop it.")
            else:
                warnings.append(f"{name!r} has no values at all and is left out.")
        if missing == "refuse":
            _refuse_missing(gaps)
        if not fitted:
            raise ValueError(f"no column has any values: {listed(names)}.")
        return cls(names, fitted, missing, notes, warnings)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, d of them."""
        return [label for column in self.columns for label, _ in column.labels]

    @property
    def kinds(self) -> dict[int, Kind]:
        """The kinds of the encoded columns that have one."""
        kinds = [kind for column in self.columns for _, kind in column.labels]
        return {number: kind for number, kind in enumerate(kinds) if kind is not None}

    def transform(self, frame: Any, warn: bool = True, idle: Collection[str] = ()) -> Array:
        """The numbers of a table, float64 [n, d]. Columns are read by name; further columns are ignored.

        Columns named in `idle` may be absent. Unless `warn` is off, each column with levels that were not in the fit gives an
        `UnseenLevelsWarning`, and each column with missing values that had none in the fit an `UnseenGapsWarning`.
        """
        table = _opened(frame)
        absent = [column.name for column in self.columns if column.name not in (*table.columns, *idle)]
        if absent:
            raise ValueError(f"the table lacks columns of the fit: {listed(absent)}; it has {listed(table.columns)}.")
        x = np.zeros((len(table), len(self.encoded_names)))
        gaps: dict[str, int] = {}
        notices: list[UnseenWarning] = []
        left = 0
        for column in self.columns:
            right = left + len(column.labels)
            if column.name in table.columns:
                x[:, left:right], gaps[column.name], unseen = encode(column, table[column.name])
                notices += unseen
            left = right
        if self.missing == "refuse":
            _refuse_missing(gaps)
        for notice in notices if warn else ():
            warnings.warn(notice, stacklevel=2)
        return x

    def state(self) -> dict[str, Any]:
        """The encoder as a JSON part, for a model file."""
        columns = [{"type": type(column).__name__.lower(), **asdict(column)} for column in self.columns]
        return asdict(self) | {"columns": columns}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The encoder with this `state`."""
        try:
            columns = []
            for entry in state["columns"]:
                fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
                kind, roles = COLUMNS[str(fields.pop("type"))]
                hints = get_type_hints(kind)
                wrong = [name for name, value in fields.items() if not has_type(value, hints[name])]
                if wrong or fields["role"] not in roles:
                    raise TypeError(", ".join(wrong) or "role")
                columns.append(kind(**fields))
            notes, warnings = list(state["notes"]), list(state.get("warnings", ()))  # older files have notes only
            return cls(list(state["names"]), columns, state["missing"], notes, warnings)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not the state of a TableEncoder: {error!r}.") from None


def _opened(frame: Any) -> nw.DataFrame[Any]:
    if not is_frame(frame):
        raise TypeError(f"the table must be of pandas, polars or Arrow; got {type(frame).__name__}.")
    names = list(frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns)
    not_text = [name for name in names if not isinstance(name, str)]
    if not_text:
        raise ValueError(f"names of columns must be text; got {listed(not_text)}: df.columns = df.columns.astype(str).")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"the table has columns of the same name: {listed(repeated)}; rename or drop one.")
    if not names or not len(frame):
        raise ValueError(f"the table is empty: {len(frame)} rows, {len(names)} columns.")
    return nw.from_native(frame, eager_only=True)


def _refuse_missing(gaps: Mapping[str, int]) -> None:
    if any(gaps.values()):
        raise MissingValuesError({name: rows for name, rows in gaps.items() if rows})
