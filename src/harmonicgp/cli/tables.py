"""Reads tables and splits them into inputs, targets, weights and errors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmonicgp._extras import require
from harmonicgp.cli.failures import UsageError, drop_option
from harmonicgp.cli.options import Columns, check_names, is_number, without_defaults
from harmonicgp.cli.words import Speaker, count, listing

#: Options that name a column with a number for each row, by argument of `fit`.
_ROW_OPTIONS = {"sample_weight": "--weight", "noise_std": "--noise-std"}


@dataclass(frozen=True)
class TableTask:
    """The parts of a table for a fit, without rows that lack a target."""

    X: Any  #: the inputs, an Arrow table
    y: Any  #: a Series for one target, a frame for several
    per_row: dict[str, Any]  #: weights and known errors as Series, by argument of `fit`
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
        """Read a table and give every column its role. Raises for absent columns, and for columns with two roles."""
        roles = without_defaults(sample_weight=weight, noise_std=noise_std)
        options: dict[str, Sequence[str]] = {"--target": targets, "--drop": drop, "--columns": list(kinds)}
        options |= {_ROW_OPTIONS[argument]: [column] for argument, column in roles.items()}
        table = read_rows(path, say, [column for columns in options.values() for column in columns])
        parts: dict[str, str] = {}
        for option, columns in options.items():
            check_names(option, columns, table.column_names, path.name)
            for column in columns:
                if column in parts:
                    raise UsageError(f"the column {column!r} is named twice: by {parts[column]} and by {option}.")
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
        """Training rows and held-out rows, both in the order of the table. Equal seeds give equal splits."""
        import numpy as np

        n = len(self)
        is_held_out = np.zeros(n, dtype=bool)
        size = min(max(round(fraction * n), int(fraction > 0)), n - 1)
        is_held_out[np.random.default_rng(seed).permutation(n)[:size]] = True
        if self.classify:  # the training rows must have all classes
            y = np.asarray(self.y)
            is_held_out &= np.isin(y, np.unique(y[~is_held_out]))
        return self._at(~is_held_out), self._at(is_held_out)

    def _at(self, mask: Any) -> TableTask:
        rows = {argument: values[mask] for argument, values in self.per_row.items()}
        return TableTask(self.X.filter(mask), self.y[mask], rows, self.classify)


def read_rows(path: Path, say: Speaker, names: Sequence[str | None], levels: Sequence[str] = ()) -> Any:
    """A whole table as an Arrow table, with the columns `levels` as text; without a pandas index that is not among `names`."""
    from harmonicgp.tables import stream_rows

    concat = require("pyarrow", "tables", "reading tables").concat_tables
    table = concat(with_codes(batch, written, levels) for batch, written in stream_rows(path))
    say("read", f"{path.name}: {count(table.num_rows, 'row')}, {count(table.num_columns, 'column')}")
    index = unwanted_index(table, names)
    say_index(index, say)
    return table.drop_columns(index)


def unwanted_index(table: Any, names: Sequence[str | None]) -> list[str]:
    """The columns of a Parquet file that are the index of a pandas table, except those among `names`."""
    from harmonicgp.tables import index_columns

    index = [name for name in index_columns(table.schema) if name not in names]
    return index if len(index) < table.num_columns else []


def say_index(columns: Sequence[str], say: Speaker) -> None:
    """Print which columns are left out because they are an index."""
    for column in columns:
        say("note", f"{column!r} is the index of a pandas table and is left out; reset_index() makes it a column.")


def _counts_rows(column: Any) -> bool:
    """Whether a column holds whole numbers that increase by one from row to row."""
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
    """The targets with their names: a Series for one target, a frame for several."""
    require("pandas", "tables", "a table's target")
    types = require("pyarrow.types", "tables", "tables")
    for k, field in enumerate(table.schema):
        if field.name in targets and types.is_decimal(field.type):
            table = table.set_column(k, field.name, table[field.name].cast("float64"))
    frame = table.select(list(targets)).to_pandas()
    return frame[targets[0]] if len(targets) == 1 else frame


def _is_class(table: Any, target: str, classify: bool) -> bool:
    """Whether a target has classes."""
    kind = _kind(table.schema.field(target).type)
    if kind not in ("number", "text", "yes/no"):
        raise ValueError(f"the target {target!r} is of type {kind}: convert it to numbers or text first.")
    if kind == "text" and not classify:
        values = table[target].unique().to_pylist()
        words = [value for value in values if not is_number(value)]
        if len(words) <= 0.1 * len(values):
            example = f" (except {words[0]!r})" if words else ""
            raise ValueError(
                f"the target {target!r} is text, but reads as numbers{example}: correct the column, or pass --classify."
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
    """The numeric column that an option names, as a Series. Raises for missing values."""
    pandas = require("pandas", "tables", "a table's columns")
    kind, n_missing = _kind(table.schema.field(column).type), table[column].null_count
    if kind != "number":
        raise UsageError(f"{option} needs a column of numbers; {column!r} is of type {kind}.")
    if n_missing:
        raise ValueError(
            f"{count(n_missing, 'row')} without a value of {column!r} ({option}): fill or drop them first."
        )
    return pandas.Series(table[column].cast("float64").to_numpy(), name=column)


def known_errors(model: Any, noise_std: str | None, table: Any, name: str) -> Any:
    """The known errors of the rows as a Series: the column `noise_std`, or that of the fit. Warns if the latter is absent."""
    if noise_std is not None:
        if hasattr(model, "classes_"):
            raise UsageError("a classification takes no --noise-std.")
        check_names("--noise-std", [noise_std], table.column_names, name)
    name_in_fit = getattr(model, "noise_name_", None)
    column = noise_std or (name_in_fit if name_in_fit in table.column_names else None)
    if column is not None:
        return per_row(table, column, "--noise-std")
    if name_in_fit is not None:
        warnings.warn(
            f"the model was fitted with known errors of each row ({name_in_fit}): error bars here do not include them; give "
            "--noise-std.",
            stacklevel=2,
        )
    return None


def with_codes(batch: Any, written: Any, names: Sequence[str]) -> Any:
    """The batch with the columns `names` as the original text, even if it reads as numbers or dates: the level 01 is not 1."""
    types, compute = (require(f"pyarrow.{part}", "tables", "reading tables") for part in ("types", "compute"))
    for name in batch.column_names:
        column, texts = batch[name], written[name]
        if name in names and types.is_string(texts.type) and not types.is_string(column.type):
            codes = compute.if_else(compute.is_valid(column), texts, None)
            batch = batch.set_column(batch.column_names.index(name), name, codes)
    return batch
