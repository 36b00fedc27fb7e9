"""The sections on the rows of a report: data, scores, calibration, confusion, predictions. Each is values for a template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.report import pictures
from harmonicgp.report.case import Case
from harmonicgp.report.facts import fact
from harmonicgp.report.page import Section
from harmonicgp.report.scores import LEVELS, Array, ClassificationScores, Scores, binomial_band
from harmonicgp.tables.arrays import is_missing

_MOST_COLUMNS = 60
_MOST_CLASSES = 10
_MOST_LEVELS = 4
_SHOWN_BINS = 20


# Data ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnSummary:
    """A line of the table of columns: three values of numbers and dates, or the first levels of anything else."""

    name: str
    kind: str | tuple[str, float]  #: number, time, levels, or as declared
    missing: int
    values: tuple[Any, Any, Any] | None = None  #: smallest, median, largest; None where there are none
    n_levels: int = 0
    levels: tuple[tuple[str, float], ...] = ()  #: the most frequent levels and their shares


def data(case: Case) -> Section:
    """Rows, columns and targets: their smallest, middle and largest values, or their levels."""
    names = case.encoded_names
    kinds = fact(case.model, "column_kinds_", {})
    declared = {names[j]: kind for j, kind in kinds.items() if j < len(names)}
    columns = [_summary(name, values, declared.get(name, "number")) for name, values in _columns(case)]
    targets = [
        _summary(name, case.y[:, p] if case.classes is None else np.array(case.classes, object)[case.y[:, p]], "number")
        for p, name in enumerate(case.names)
    ]
    rows, n_columns = case.table.shape
    values = {
        "rows": rows,
        "n_columns": n_columns,
        "columns": columns,
        "targets": targets,
        "more": max(n_columns - _MOST_COLUMNS, 0),
    }
    return Section("data", "The data", "data.html", values)


def _columns(case: Case) -> Iterator[tuple[str, Array]]:
    if isinstance(case.table, nw.DataFrame):
        for column in case.table[:, :_MOST_COLUMNS].iter_columns():
            yield str(column.name), column.to_numpy()
        return
    names = getattr(case.model, "feature_names_in_", None)
    for j in range(min(case.table.shape[1], _MOST_COLUMNS)):
        yield (f"x{j}" if names is None else str(names[j])), case.table[:, j]


def _summary(name: str, values: Array, kind: str | tuple[str, float]) -> ColumnSummary:
    if values.dtype.kind in "fiu":
        finite = values[np.isfinite(values)]
        three = (finite.min(), np.median(finite), finite.max()) if len(finite) else None
        return ColumnSummary(name, kind, len(values) - len(finite), three)
    if values.dtype.kind == "M":
        dates = np.sort(values[~np.isnat(values)])
        days = (_day(dates[0]), _day(dates[len(dates) // 2]), _day(dates[-1])) if len(dates) else None
        return ColumnSummary(name, "time", len(values) - len(dates), days)
    counts = Counter(None if is_missing(value) else value for value in values.tolist())
    missing = counts.pop(None, 0)
    total = max(len(values) - missing, 1)
    levels = tuple((str(level)[:40], count / total) for level, count in counts.most_common(_MOST_LEVELS))
    return ColumnSummary(name, "levels", missing, n_levels=len(counts), levels=levels)


def _day(value: np.datetime64) -> str:
    return str(value.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")


# Scores -------------------------------------------------------------------------------------------------------------


def scores(case: Case, held_out: bool) -> Section:
    """The scores and what they mean, and those of the rows that the fit held out itself."""
    validation = fact(case.model, "validation_", {})
    values: dict[str, Any] = {
        "held_out": held_out,
        "validation": {key: value for key, value in validation.items() if key not in ("rows", "method")},
        "validation_rows": validation.get("rows"),
        "in_turn": validation.get("method") == "leave-one-out",
    }
    if isinstance(case.scores, ClassificationScores):
        share = float(case.scores.confusion.sum(1).max() / case.scores.rows)
        values |= {"body": "scores_classes.html", "scores": case.scores, "share": share}
    elif case.scores.targets:
        values |= {"body": "scores_targets.html", "scores": case.scores}
    else:
        values |= {"body": "scores_target.html", **_target_values(case, 0)}
    return Section("scores", "Scores", "scores.html", values)


def _target_values(case: Case, p: int) -> dict[str, Any]:
    return {"scores": case.target_scores(p), "spread": float(case.y[:, p].std())}


def targets(case: Case) -> list[Section]:
    """A section for each of the first targets, with all that belongs to it."""
    more = len(case.names) - len(case.shown_targets)
    return [
        Section(
            f"target-{p + 1}",
            f"Target {name}",
            "target.html",
            _target_values(case, p)
            | _calibration_values(case.target_scores(p))
            | _prediction_values(case, p)
            | {"more": more if p == len(case.shown_targets) - 1 else 0},
        )
        for p, name in enumerate(case.shown_targets)
    ]


# Calibration --------------------------------------------------------------------------------------------------------


def calibration(case: Case) -> Section:
    """Do the probabilities come true? Coverage and PIT for numbers, reliability for classes."""
    if isinstance(case.scores, ClassificationScores):
        return Section("calibration", "Calibration", "reliability.html", _reliability_values(case.scores))
    return Section("calibration", "Calibration", "calibration.html", _calibration_values(case.scores))


def _calibration_values(scores: Scores) -> dict[str, Any]:
    half = len(scores.pit) // 2
    inside = np.cumsum(scores.pit[half:] + scores.pit[:half][::-1]) / scores.rows
    odd = [level for level in LEVELS if not _by_chance(scores, level)]
    distances = {level: abs(scores.coverage[level] - level) / np.sqrt(level * (1 - level)) for level in odd}
    level = max(odd, key=distances.__getitem__, default=0.9)
    return {
        "scores": scores,
        "intervals": [(level, *binomial_band(scores.rows, level)) for level in LEVELS],
        "curve": pictures.coverage_curve(np.arange(1, half + 1) / half, inside, scores.rows),
        "histogram": pictures.pit_bars(scores.pit.reshape(_SHOWN_BINS, -1).sum(1)),
        "calibrated": not odd,
        "level": level,  #: the worst, or 90 %
        "slight": abs(scores.coverage[level] - level) < 0.2 * min(level, 1 - level),
    }


def _by_chance(scores: Scores, level: float) -> bool:
    """Whether chance explains the coverage of a level, one of several."""
    low, high = binomial_band(scores.rows, level, 1 - 0.05 / len(LEVELS))
    return low <= scores.coverage[level] <= high


def _reliability_values(scores: ClassificationScores) -> dict[str, Any]:
    two = len(scores.classes) == 2
    label = f"predicted probability of {scores.classes[1]}" if two else "probability of the predicted class"
    bins = scores.reliability
    return {
        "label": label,
        "gap": float(np.nansum(bins.counts * np.abs(bins.predicted - bins.observed)) / scores.rows),
        "bins": [(p, q) for p, q in zip(bins.predicted, bins.observed, strict=True) if not np.isnan(p)],
        "picture": pictures.reliability(bins, label),
    }


def confusion(scores: ClassificationScores) -> Section:
    """Rows by class and predicted class; the most frequent classes where there are many."""
    counts, names = scores.confusion, [str(label) for label in scores.classes]
    others = 0
    if len(names) > _MOST_CLASSES:
        order = np.argsort(-counts.sum(1), kind="stable")
        first = np.sort(order[: _MOST_CLASSES - 1])
        others = len(names) - len(first)
        group = np.full(len(names), len(first))
        group[first] = np.arange(len(first))
        pooled = np.zeros((_MOST_CLASSES, _MOST_CLASSES), np.int64)
        np.add.at(pooled, (group[:, None], group[None]), counts)
        counts, names = pooled, [*(names[k] for k in first), f"{others} others"]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    lines = [(name, list(zip(counts[i], shares[i], strict=True))) for i, name in enumerate(names)]
    values = {"names": names, "lines": lines, "others": others}
    return Section("confusion", "Which classes are taken for which", "confusion.html", values)


# Predictions --------------------------------------------------------------------------------------------------------


def predictions(case: Case) -> Section:
    """Observed against predicted values, and the residuals."""
    return Section("predictions", "Predictions and errors", "predictions.html", _prediction_values(case, 0))


def _prediction_values(case: Case, p: int) -> dict[str, Any]:
    predicted = np.asarray(case.model.predict(case.sample_rows), np.float64).reshape(len(case.sample), -1)[:, p]
    observed, name = case.observed[:, p], case.names[p]
    return {
        "name": name,
        "drawn": len(case.sample),
        "rows": len(case.y),
        "smallest": observed.min(),
        "largest": observed.max(),
        "agreement": pictures.predicted_observed(predicted, observed, name),
        "residuals": pictures.residuals(predicted, observed, name),
    }
