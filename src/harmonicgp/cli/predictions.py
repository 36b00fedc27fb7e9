"""Predicts the rows of a table in batches, and writes them with the columns that the model adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.models import load_fitted
from harmonicgp.cli.options import check_names, input_names, inputs_of
from harmonicgp.cli.tables import known_errors, say_index, unwanted_index, with_codes
from harmonicgp.cli.words import Speaker, count, listing, say_novelty

BATCH_ROWS = 65536  #: rows in memory at a time


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

    `keep` names the columns of the table to write (all if it is empty); `levels` are quantile levels by the suffix of their
    column; `noise_std` names the column of known errors.
    """
    from tqdm import tqdm

    from harmonicgp.report.novelty import Novelty, ignore_unseen
    from harmonicgp.tables import TableWriter, stream_rows

    fitted, novelty = load_fitted(model), Novelty()
    if hasattr(fitted, "classes_") and (levels or latent):
        option = "--quantiles" if levels else "--latent"
        raise UsageError(f"{model.name} is a classification: it has no {option}.")
    per_row = [noise_std, getattr(fitted, "noise_name_", None)]
    names = [*input_names(fitted), *keep, *per_row]
    added, index, errors = list[str](), list[str](), None
    with (
        TableWriter(output) as writer,
        tqdm(unit=" rows", unit_scale=True, disable=not say.progress) as bar,
        ignore_unseen(),
    ):
        for batch, written in stream_rows(table, batch_rows=BATCH_ROWS):
            index = unwanted_index(batch, names)
            batch, written = batch.drop_columns(index), written.drop_columns(index)
            inputs = inputs_of(fitted, batch.column_names, model.name, table.name, per_row=per_row)
            X = with_codes(batch.select(inputs), written, fitted.level_names())
            check_names("--keep", keep, batch.column_names, table.name)
            novelty += Novelty.of(fitted, X)
            errors = known_errors(fitted, noise_std, batch, table.name)
            result = batch if writer.typed else written
            result = result.select(list(dict.fromkeys(keep))) if keep else result
            new = predicted_columns(fitted, X, result.column_names, levels, latent, errors)
            added = list(new)
            for column, values in new.items():
                if column in result.column_names:
                    advice = "rename it, or choose the columns to write with --keep"
                    raise UsageError(f"{table.name} already has a column {column!r}: {advice}.")
                result = result.append_column(column, [values])
            writer.write(result)
            bar.update(batch.num_rows)
    say_index(index, say)
    if errors is not None:
        say("noise", errors.name)
    say("predicted", f"{count(novelty.rows, 'row')} of {table.name}: {listing(added)}")
    say("written", str(output))
    say_novelty(novelty, fitted, say)


def predicted_columns(
    model: Any, X: Any, present: Sequence[str], levels: Mapping[str, float], latent: bool, noise_std: Any
) -> dict[str, Any]:
    """The columns that a prediction adds to the `present` ones, by name."""
    import numpy as np

    names, n = list(model.target_names_), X.num_rows
    if hasattr(model, "classes_"):
        p, classes = model.predict_proba(X), np.asarray(model.classes_)
        column = names[0] if names[0] not in present else f"{names[0]}_predicted"  # the table holds the true classes
        return {column: classes[p.argmax(1)]} | {f"{names[0]}_p_{value}": p[:, k] for k, value in enumerate(classes)}
    parts = dict(zip(("mean", "std"), model.predict(X, return_std=True, noise_std=noise_std), strict=True))
    if levels:
        quantiles = model.predict_quantiles(X, list(levels.values()), noise_std=noise_std)
        parts |= {end: quantiles[:, i] for i, end in enumerate(levels)}
    if latent:
        parts |= zip(("f_mean", "f_std"), model.predict_f(X, return_std=True), strict=True)
    columns = {end: values.reshape(n, -1) for end, values in parts.items()}
    return {f"{name}_{end}": values[:, k] for k, name in enumerate(names) for end, values in columns.items()}
