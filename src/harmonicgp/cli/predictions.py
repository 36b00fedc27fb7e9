"""Predictions of a table: rows in batches, and the columns that a model adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.models import load_fitted
from harmonicgp.cli.options import check_names, inputs_of
from harmonicgp.cli.tables import errors_column, per_row, say_index, unwanted_index, with_codes
from harmonicgp.cli.words import Speaker, count, listing, say_novelty

BATCH_ROWS = 65536  #: rows that are held at a time


def predict_table(
    model: Path,
    table: Path,
    output: Path,
    say: Speaker,
    keep: list[str],
    levels: Mapping[str, float],
    latent: bool,
    noise_std: str | None,
) -> None:
    """Predict the rows of a table and write them to a file.

    `keep` are columns of the table to write, all if it is empty; `levels` are quantiles by the ends of their column names;
    `noise_std` is the column of known errors.
    """
    from tqdm import tqdm

    from harmonicgp.report.novelty import Novelty, ignore_unseen
    from harmonicgp.tables import TableWriter, stream_rows

    fitted, novelty = load_fitted(model), Novelty()
    if hasattr(fitted, "classes_") and (levels or latent):
        option = "--quantiles" if levels else "--latent"
        raise UsageError(f"{model.name} is a classification: it has no {option}.")
    wanted = [*fitted.feature_names_in_, *keep, noise_std, getattr(fitted, "noise_name_", None)]
    added, index, errors = list[str](), list[str](), None
    with (
        TableWriter(output) as writer,
        tqdm(unit=" rows", unit_scale=True, disable=not say.progress) as bar,
        ignore_unseen(),
    ):
        for batch, written in stream_rows(table, batch_rows=BATCH_ROWS):
            index = unwanted_index(batch, wanted)
            batch, written = batch.drop_columns(index), written.drop_columns(index)
            inputs = inputs_of(fitted, batch.column_names, model.name, table.name)
            X = with_codes(batch.select(inputs), written, [name for name in fitted.level_names() if name in inputs])
            check_names("--keep", keep, batch.column_names, table.name)
            novelty += Novelty.of(fitted, X)
            errors = errors_column(fitted, noise_std, batch, table.name)
            passed_on = batch if writer.typed else written
            passed_on = passed_on.select(list(dict.fromkeys(keep))) if keep else passed_on
            known_errors = per_row(batch, errors) if errors else None
            new = predicted_columns(fitted, X, passed_on.column_names, levels, latent, known_errors)
            writer.write(with_columns(passed_on, new, table.name))
            added = list(new)
            bar.update(batch.num_rows)
    say_index(index, say)
    if errors:
        say("noise", errors)
    say("predicted", f"{count(novelty.rows, 'row')} of {table.name}: {listing(added)}")
    say("written", str(output))
    say_novelty(novelty, fitted, say)


def predicted_columns(
    model: Any, X: Any, taken: Sequence[str], levels: Mapping[str, float], latent: bool, noise_std: Any = None
) -> dict[str, Any]:
    """The columns that a prediction adds, by their names."""
    import numpy as np

    names, n = list(model.target_names_), X.num_rows
    columns: dict[str, Any] = {}
    if hasattr(model, "classes_"):
        p, classes = model.predict_proba(X), np.asarray(model.classes_)
        column = names[0] if names[0] not in taken else f"{names[0]}_predicted"  # the truth stays beside it
        return {column: classes[p.argmax(1)]} | {f"{names[0]}_p_{value}": p[:, k] for k, value in enumerate(classes)}
    mean, std = (part.reshape(n, -1) for part in model.predict(X, return_std=True, noise_std=noise_std))
    f = [part.reshape(n, -1) for part in model.predict_f(X, return_std=True)] if latent else []
    q = None
    if levels:
        q = model.predict_quantiles(X, list(levels.values()), noise_std=noise_std).reshape(n, len(levels), -1)
    for k, name in enumerate(names):
        columns |= {f"{name}_mean": mean[:, k], f"{name}_std": std[:, k]}
        if q is not None:
            columns |= {f"{name}_{end}": q[:, i, k] for i, end in enumerate(levels)}
        if f:
            columns |= {f"{name}_f_mean": f[0][:, k], f"{name}_f_std": f[1][:, k]}
    return columns


def with_columns(table: Any, new: Mapping[str, Any], name: str) -> Any:
    """A table with columns added; a name that is taken already is refused."""
    import pyarrow

    for column, values in new.items():
        if column in table.column_names:
            raise UsageError(f"{name} has a column {column!r} already: rename it, or name with --keep what to write.")
        table = table.append_column(column, pyarrow.array(values))
    return table
