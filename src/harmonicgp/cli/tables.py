"""Tables taken apart for a fit, and put together with its predictions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmonicgp._extras import require
from harmonicgp.cli.failures import UsageError, drop_option
from harmonicgp.cli.options import Columns, check_names, given, is_number
from harmonicgp.cli.words import Speaker, count, listing

#: Options that name a column with a number for each row, by the argument of fit.
_ROW_OPTIONS = {"sample_weight": "--weight", "noise_std": "--noise-std"}


@dataclass(frozen=True)
class TableTask:
    """A table as a fit sees it: the rows that have a target."""

    X: Any  #: the inputs, an Arrow table
    y: Any  #: a Series of one target, a frame of several
    per_row: dict[str, Any]  #: weights and known errors, Series, by the argument of fit
    classify: bool

    @classmethod
    def read(
        cls,
        path: Path,
        targets: list[str],
        kinds: Columns,
        say: Speaker,
        drop: Sequence[str] = (),
        classify: bool = False,
        weight: str | None = None,
        noise_std: str | None = None,
    ) -> TableTask:
        """Read a table and give every column its role. Names that are absent or have two roles are refused."""
        roles = given(sample_weight=weight, noise_std=noise_std)
        options: dict[str, Sequence[str]] = {"--target": targets, "--drop": drop, "--columns": list(kinds)}
        options |= {_ROW_OPTIONS[argument]: [column] for argument, column in roles.items()}
        table = read_rows(path, say, [column for columns in options.values() for column in columns])
        parts: dict[str, str] = {}
        for option, columns in options.items():
            check_names(option, columns, table.column_names, path.name)
            for column in columns:
                if column in parts:
                    raise UsageError(f"the column {column!r} is given twice: as {parts[column]} and as {option}.")
                parts[column] = option
        inputs = [column for column in table.column_names if parts.get(column, "--columns") == "--columns"]
        if not inputs:
            raise UsageError(f"{path.name} has no column left for the inputs.")
        for column in inputs:
            if column not in kinds and _counts_rows(table[column]):
                say("note", f"{column!r} counts the rows: drop it if it is an identifier ({drop_option(column)}).")
        table = with_target(table, targets, path.name, say)
        classes = [target for target in targets if _is_class(table, target, classify)]
        if classes and len(targets) > 1:
            raise UsageError(f"several targets must all be numbers; {classes[0]!r} has classes: fit it on its own.")
        rows = {argument: per_row(table, column, _ROW_OPTIONS[argument]) for argument, column in roles.items()}
        task = count(len(table[targets[0]].unique()), "class") if classes else "regression"
        say("target", f"{listing(targets)} ({task})")
        say("columns", listing(f"{column} ({_part(kinds.get(column), table[column].type)})" for column in inputs))
        for argument, column in roles.items():
            say("weights" if argument == "sample_weight" else "noise", column)
        return cls(table.select(inputs), target_frame(table, targets), rows, bool(classes))

    def __len__(self) -> int:
        return len(self.y)

    def split(self, fraction: float, seed: int) -> tuple[TableTask, TableTask]:
        """Rows to learn from and rows set aside, both in the order of the table; a seed always sets the same aside."""
        import numpy as np

        n = len(self)
        aside = np.zeros(n, dtype=bool)
        wanted = max(round(fraction * n), int(fraction > 0))
        aside[np.random.default_rng(seed).permutation(n)[: min(wanted, n - 1)]] = True
        if self.classify:  # a class that is not learned cannot be scored
            y = np.asarray(self.y)
            aside &= np.isin(y, np.unique(y[~aside]))
        return self._at(~aside), self._at(aside)

    def _at(self, mask: Any) -> TableTask:
        rows = {argument: values[mask] for argument, values in self.per_row.items()}
        return TableTask(self.X.filter(mask), self.y[mask], rows, self.classify)


def read_rows(path: Path, say: Speaker, wanted: Sequence[str | None], levels: Sequence[str] = ()) -> Any:
    """A whole table, an Arrow one, `levels` as they are written; without the index of a pandas table, where it is not wanted."""
    from harmonicgp.tables import stream_rows

    concat = require("pyarrow", "tables", "reading tables").concat_tables
    table = concat(with_codes(batch, written, levels) for batch, written in stream_rows(path))
    say("read", f"{path.name}: {count(table.num_rows, 'row')}, {count(table.num_columns, 'column')}")
    index = unwanted_index(table, wanted)
    say_index(index, say)
    return table.drop_columns(index)


def unwanted_index(table: Any, wanted: Sequence[str | None]) -> list[str]:
    """The columns of a Parquet file that are the index of a pandas table, but for those that are wanted by name."""
    from harmonicgp.tables import index_columns

    index = [name for name in index_columns(table.schema) if name not in wanted]
    return index if len(index) < table.num_columns else []


def say_index(columns: Sequence[str], say: Speaker) -> None:
    """Say which columns are an index and left out."""
    for column in columns:
        say("note", f"{column!r} is the index of a pandas table and is left out; reset_index() makes it a column.")


def _counts_rows(column: Any) -> bool:
    """Whether a column holds whole numbers that rise by one from row to row."""
    import numpy as np

    if "int" not in str(column.type) or column.null_count or len(column) < 3:
        return False
    return bool((np.diff(column.to_numpy().astype(np.int64)) == 1).all())


def with_target(table: Any, targets: Sequence[str], name: str, say: Speaker) -> Any:
    """The rows that have all their targets."""
    compute, rows = require("pyarrow.compute", "tables", "tables"), table
    for target in targets:
        rows = rows.filter(compute.invert(compute.is_null(rows[target], nan_is_null=True)))
    if rows.num_rows == 0:
        raise ValueError(f"no row of {name} has a value of {listing(targets)}.")
    if rows.num_rows < table.num_rows:
        say("left out", f"{count(table.num_rows - rows.num_rows, 'row')} without a target")
    return rows


def target_frame(table: Any, targets: Sequence[str]) -> Any:
    """The targets with their names: a Series of one, a frame of several."""
    require("pandas", "tables", "a table's target")
    types = require("pyarrow.types", "tables", "tables")
    for k, field in enumerate(table.schema):
        if field.name in targets and types.is_decimal(field.type):
            table = table.set_column(k, field.name, table[field.name].cast("float64"))
    frame = table.select(list(targets)).to_pandas()
    return frame[targets[0]] if len(targets) == 1 else frame


def _is_class(table: Any, target: str, classify: bool) -> bool:
    """Whether a target is to be classified."""
    kind = _kind(table.schema.field(target).type)
    if kind not in ("number", "text", "yes/no"):
        raise ValueError(f"the target {target!r} is of type {kind}: make a number or a text of it first.")
    if kind == "text" and not classify:
        values = table[target].unique().to_pylist()
        words = [value for value in values if not is_number(value)]
        if len(words) <= 0.1 * len(values):
            example = f" (but not {words[0]!r})" if words else ""
            raise ValueError(
                f"the target {target!r} is text, yet reads as numbers{example}: mend the column, or pass --classify."
            )
    return classify or kind != "number"


def _kind(arrow_type: Any) -> str:
    """A word for the type of a column."""
    types = require("pyarrow.types", "tables", "tables")
    if types.is_dictionary(arrow_type):
        return _kind(arrow_type.value_type)
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "number"
    if types.is_boolean(arrow_type):
        return "yes/no"
    return "date" if types.is_temporal(arrow_type) else "text" if "string" in str(arrow_type) else str(arrow_type)


def _part(kind: str | tuple[str, float] | None, arrow_type: Any) -> str:
    if kind is None:
        return _kind(arrow_type)
    return kind if isinstance(kind, str) else f"{kind[0]}, {kind[1]:g}"


def per_row(table: Any, column: str, option: str) -> Any:
    """The column that an option names, with a number in each row, as a Series."""
    pandas = require("pandas", "tables", "a table's columns")
    kind, holes = _kind(table.schema.field(column).type), table[column].null_count
    if kind != "number":
        raise UsageError(f"{option} needs a column of numbers; {column!r} is of type {kind}.")
    if holes:
        raise ValueError(f"{count(holes, 'row')} without a value of {column!r} ({option}): fill or drop them first.")
    return pandas.Series(table[column].cast("float64").to_numpy(), name=column)


def known_errors(model: Any, wanted: str | None, table: Any, name: str) -> Any:
    """The known errors of the rows, a Series: the column asked for, or that of the fit; a warning where it is not there."""
    if wanted is not None:
        if hasattr(model, "classes_"):
            raise UsageError("a classification takes no --noise-std.")
        check_names("--noise-std", [wanted], table.column_names, name)
    fitted = getattr(model, "noise_name_", None)
    column = wanted or (fitted if fitted in table.column_names else None)
    if column is not None:
        return per_row(table, column, "--noise-std")
    if fitted is not None:
        warnings.warn(
            f"the model was fitted with known errors of each row ({fitted}): error bars here are without them; give "
            "--noise-std.",
            stacklevel=2,
        )
    return None


def with_codes(batch: Any, written: Any, names: Sequence[str]) -> Any:
    """Columns of levels as they are written, where a file happens to hold digits, dates or true and false alone: 01 is not 1."""
    types, compute = (require(f"pyarrow.{part}", "tables", "reading tables") for part in ("types", "compute"))
    for name in batch.column_names:
        column, texts = batch[name], written[name]
        if name in names and types.is_string(texts.type) and not types.is_string(column.type):
            codes = compute.if_else(compute.is_valid(column), texts, None)
            batch = batch.set_column(batch.column_names.index(name), name, codes)
    return batch
