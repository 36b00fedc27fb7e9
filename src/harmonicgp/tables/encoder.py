"""Frames to numbers: categories, dates and missing values, the same from pandas, polars and Arrow.

A fitted encoder is a value: one entry for each column that was seen, with all that is needed to encode new rows, and a
state of plain numbers, text and lists that goes into a model file.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np

from harmonicgp.tables.columns import (
    DAY,
    SEASONS,
    YEAR,
    Array,
    Kind,
    Series,
    check_kinds,
    floats_of,
    instants_of,
    listed,
    looks_like_date,
    parse,
    plural,
    role_of,
    telling_parts,
    texts_of,
    zone_of,
)
from harmonicgp.tables.encodings import (
    COLUMNS,
    Column,
    Dates,
    Levels,
    Numbers,
    UnseenGapsWarning,
    UnseenLevelsWarning,
)

__all__ = [
    "MAX_LEVELS",
    "Kind",
    "Missing",
    "TableEncoder",
    "UnseenGapsWarning",
    "UnseenLevelsWarning",
    "check_kinds",
    "is_frame",
]

Missing: TypeAlias = Literal["refuse", "impute"]

MAX_LEVELS = 20  #: columns of 0 and 1 that one column of text may become
MAX_RARE = 10_000  #: rare levels that are kept by name, to tell them from new ones
CHUNK = 65536  #: rows that are turned into Python objects at a time


def is_frame(X: object) -> bool:
    """Whether X is a table of pandas, polars or Arrow; a lazy one is refused.

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


@dataclass
class _Remarks:
    """What was done to the columns that a user should know, in sentences: as information, and what can harm."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become numbers: made by `fit`, kept as a value, used by `transform`.

    Numbers stay; text becomes a column of 0 and 1 for each level; dates become days since the first, with time of day,
    day of week and day of year where the table spans enough to tell.

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
    columns: list[Column]  #: how each is encoded, without those that were left out
    missing: Missing
    notes: list[str]  #: what was done to the columns that a user should know, in sentences
    warnings: list[str] = field(default_factory=list)  #: those of them that can harm

    @classmethod
    def fit(cls, frame: Any, columns: Mapping[str | int, Kind] | None = None,
            missing: Missing = "refuse", weights: Array | None = None) -> TableEncoder:  # fmt: skip
        """Learn levels, origins of dates and medians from a table.

        Args:
            frame: a table of pandas, polars or Arrow.
            columns: kinds by name or number: "longitude", "latitude" or ("periodic", period). Such a column stays one.
            missing: "refuse" or "impute": the median (the lower one of two) for numbers and dates, with a column
                "NAME missing" that marks the rows, and a level "missing" for text.
            weights: how many rows each row stands for; those of weight zero are not there.
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
        remarks = _Remarks()
        gaps: dict[str, int] = {}
        for number, name in enumerate(names):
            role, counts = _role_in_fit(table[name], name, mass, remarks.notes)
            column, gaps[name] = _fit_column(
                table[name], role, counts, kinds.get(number), missing == "impute", mass, remarks
            )
            if column is not None:
                fitted.append(column)
            elif missing == "refuse" or number in kinds:
                raise ValueError(f"column {name!r} has no values at all: drop it.")
            else:
                remarks.warnings.append(f"{name!r} has no values at all and is left out.")
        if missing == "refuse":
            _refuse_missing(gaps)
        if not fitted:
            raise ValueError(f"none of the columns has a value: {listed(names)}.")
        return cls(names, fitted, missing, remarks.notes, remarks.warnings)

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
        """The numbers of a table, float64 [n, d]: columns are found by name, others are ignored; `idle` ones may be absent.

        Levels that the fit has not seen give an `UnseenLevelsWarning` for each column that has some, gaps in a column that had
        none in the fit an `UnseenGapsWarning`, unless `warn` is off.
        """
        table = _opened(frame)
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if not set(absent) <= set(idle):
            absent = [name for name in absent if name not in idle]
            raise ValueError(f"the table lacks columns of the fit: {listed(absent)}; it has {listed(table.columns)}.")
        x = np.empty((len(table), len(self.encoded_names)))
        gaps: Counter[str] = Counter()
        unseen: dict[str, Counter[str]] = {}
        left = 0
        for column in self.columns:
            right, top = left + len(column.labels), 0
            unseen[column.name] = Counter()
            if column.name in absent:
                x[:, left:right] = 0.0
            for chunk in _chunks(table[column.name]) if column.name not in absent else ():
                values, gone, new = column.encode(chunk)
                x[top : top + len(gone), left:right] = values
                gaps[column.name] += int(gone.sum())
                unseen[column.name].update(new)
                top += len(gone)
            left = right
        if self.missing == "refuse":
            _refuse_missing(gaps)
        for column in self.columns if warn else ():
            if isinstance(column, Levels) and (new := unseen[column.name]):
                warnings.warn(UnseenLevelsWarning(column.name, list(new), new.total(), column.fate), stacklevel=2)
            if gaps[column.name] and column.filling:
                warnings.warn(UnseenGapsWarning(column.name, gaps[column.name], column.filling), stacklevel=2)
        return x

    def state(self) -> dict[str, Any]:
        """All of it as numbers, text, lists and dicts, for JSON; `from_state` makes an equal encoder of it."""
        kinds = {kind: name for name, kind in COLUMNS.items()}
        columns = [
            {"type": kinds[type(column)]}
            | {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(column).items()}
            for column in self.columns
        ]
        return {
            "names": list(self.names),
            "columns": columns,
            "missing": self.missing,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TableEncoder:
        """The encoder whose `state` this is."""
        try:
            columns = []
            for entry in state["columns"]:
                fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
                columns.append(COLUMNS[str(fields.pop("type"))](**fields))
            told = list(state["notes"]), list(state.get("warnings", ()))  # older files have notes only
            return cls(list(state["names"]), columns, state["missing"], *told)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of a TableEncoder: {error!r}.") from None


def _opened(frame: Any) -> nw.DataFrame[Any]:
    if not is_frame(frame):
        raise TypeError(f"a table of pandas, polars or Arrow is needed; got {type(frame).__name__}.")
    names = list(frame.column_names if nw.dependencies.is_pyarrow_table(frame) else frame.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ValueError(f"names of columns must be text; got {listed(odd)}: df.columns = df.columns.astype(str).")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"the table has columns of the same name: {listed(twice)}; rename or drop one.")
    if not names or not len(frame):
        raise ValueError(f"the table is empty: {len(frame)} rows, {len(names)} columns.")
    return nw.from_native(frame, eager_only=True)


def _chunks(series: Series) -> Iterator[Series]:
    for start in range(0, len(series), CHUNK):
        yield series[start : start + CHUNK]


def _refuse_missing(gaps: Mapping[str, int]) -> None:
    counts = [f"{name!r} ({count} row{'s' * (count > 1)})" for name, count in gaps.items() if count]
    if counts:
        shown = ", ".join(counts[:10]) + (f" and {len(counts) - 10} more columns" if len(counts) > 10 else "")
        raise ValueError(f'values are missing in {shown}: drop those rows, or fit with missing="impute".')


def _role_in_fit(series: Series, name: str, mass: Array, notes: list[str]) -> tuple[str, Counter[str]]:
    """The role of a whole column, and how often each text occurs if it is one of levels."""
    roles = {role: chunk for chunk in _chunks(series) if (role := role_of(chunk, name)) != "empty"}
    if len(roles) > 1:
        raise ValueError(f"column {name!r} mixes {' and '.join(plural(role) for role in roles)}: make it one of them.")
    role = next(iter(roles), "empty")
    if role not in ("text", "category"):
        return role, Counter()
    counts: Counter[str] = Counter()
    start = 0
    for chunk in _chunks(series):
        for text, weight in zip(texts_of(chunk, role), mass[start:].tolist(), strict=False):
            if text is not None:
                counts[text] += weight
        start += len(chunk)
    for read in ("number", "date", "time") if role == "text" and counts else ():
        if all(parse(text, read) is not None for text in counts):
            notes.append(f"{name!r} holds {read}s written as text, and is read as {read}s.")
            return read, Counter()
    if role == "text":
        _refuse_typos(name, counts)
    return ("level" if counts else "empty"), counts


def _refuse_typos(name: str, counts: Counter[str]) -> None:
    """Refuse a column of numbers or dates in which a few cells are something else."""
    for read in ("number", "date", "time"):
        odd = [text for text in counts if parse(text, read) is None]
        if len(counts) - len(odd) >= 10 and len(odd) <= 0.1 * len(counts):
            shown = ", ".join(repr(text[:40]) for text in odd[:3]) + (", ..." if len(odd) > 3 else "")
            raise ValueError(
                f"column {name!r} reads as {plural(read)}, but for {shown}: mend or empty those cells, or make it text that "
                "cannot be read so."
            )


def _fit_column(series: Series, role: str, counts: Counter[str], kind: Kind | None, impute: bool, mass: Array,
                remarks: _Remarks) -> tuple[Column | None, int]:  # fmt: skip
    """How a column is encoded, None if it has no values, and how many of its values are missing."""
    name = series.name
    if role == "empty":
        return None, len(series)
    if kind is not None and (role == "level" or (role != "number" and isinstance(kind, str))):
        raise ValueError(f"column {name!r} is declared as {kind!r} and holds {plural(role)}, not numbers.")
    if role == "level":
        return _fit_levels(name, counts, float(mass.sum()), impute, remarks)
    if role == "date":
        return _fit_dates(series, kind, impute, mass, remarks.notes)
    x = np.concatenate([floats_of(chunk, role_of(chunk, name), role, name) for chunk in _chunks(series)])
    seen = x[~np.isnan(x)]
    n_missing = len(x) - len(seen)
    if not len(seen):
        return None, n_missing
    fill = float(seen[_middle(seen, mass[~np.isnan(x)])]) if impute else None
    if role != "number":
        remarks.notes.append(f"{name!r} holds {role}s: used in {'days' if role == 'duration' else 'hours'}.")
    if impute and n_missing:
        remarks.notes.append(
            f"{name!r} lacks {n_missing} values: the median {fill:.6g} stands in, '{name} missing' marks them."
        )
    return Numbers(name, role, kind, fill, impute and n_missing > 0), n_missing


def _middle(values: Array, mass: Array) -> int:
    """The place of the median, the lower one of two."""
    order = np.argsort(values, kind="stable")
    return int(order[np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())])


def _fit_dates(
    series: Series, kind: Kind | None, impute: bool, mass: Array, notes: list[str]
) -> tuple[Dates | None, int]:
    name = series.name
    zone = next((zone for chunk in _chunks(series) if (zone := zone_of(chunk, name)) is not None), None)
    chunks = [instants_of(chunk, role_of(chunk, name), zone, name) for chunk in _chunks(series)]
    utc, wall, gone = (np.concatenate(part) for part in zip(*chunks, strict=True))
    n_missing = int(gone.sum())
    utc, wall = utc[~gone], wall[~gone]
    if not len(utc):
        return None, n_missing
    origin = int(utc.min()) // DAY * DAY
    parts = () if kind is not None else tuple(telling_parts(utc, wall))
    middle = _middle(utc, mass[~gone])
    fill = (int(utc[middle]), int(wall[middle])) if impute else None
    used = ", ".join((f"days since {np.datetime64(origin // DAY, 'D')}", *parts))
    short = kind is None and (int(utc.max()) - int(utc.min())) / DAY <= SEASONS * YEAR
    why = "; no period of a year, which takes a year and a half of dates to learn" if short else ""
    notes.append(f"{name!r} holds dates: used as {used}{why}.")
    if impute and n_missing:
        notes.append(f"{name!r} lacks {n_missing} dates: the median stands in, '{name} missing' marks them.")
    return Dates(name, "date", kind, fill, impute and n_missing > 0, origin, zone, parts), n_missing


def _fit_levels(name: str, counts: Counter[str], n: float, impute: bool, remarks: _Remarks) -> tuple[Levels, int]:
    total = counts.total()
    n_missing = round(n - total)
    if len(counts) > 50 and len(counts) > 0.5 * total:
        dates = [text for text in counts if looks_like_date(text)]
        if len(dates) > 0.5 * len(counts):
            raise ValueError(
                f"column {name!r} holds text that looks like dates, such as {dates[0]!r:.40}: write them as ISO dates "
                "(2023-12-31), which are read."
            )
        raise ValueError(
            f"column {name!r} holds text that hardly repeats ({len(counts)} different in {total:g} rows): "
            f"drop it if it is an identifier, or encode it yourself."
        )
    fill = min(counts, key=lambda level: (-counts[level], level)) if impute else None
    if impute and n_missing:
        fill = "missing"
        counts = counts + Counter({fill: n_missing})
        remarks.notes.append(f"{name!r} lacks {n_missing} values: they are a level of their own, 'missing'.")
    levels = sorted(counts)
    rare: tuple[str, ...] | None = ()
    if len(levels) > MAX_LEVELS:
        own = sorted(
            (level for level in levels if level != "other"),
            key=lambda level: (level != "missing", -counts[level], level),
        )[: MAX_LEVELS - 1]
        levels, others = sorted([*own, "other"]), sorted(counts.keys() - set(own))
        rare = tuple(others) if len(others) <= MAX_RARE else None
        remarks.warnings.append(f"{name!r} has {len(counts)} levels: the {len(own)} most frequent have a column each, "
                                f"the rest share '{name}=other'.")  # fmt: skip
    return Levels(name, "level", fill, tuple(levels), rare), n_missing
