"""The sections of a report on the rows: data, scores, calibration, confusion, predictions, as values for templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.report import pictures
from harmonicgp.report.case import Case
from harmonicgp.report.page import Section
from harmonicgp.report.scores import LEVELS, ClassificationScores, Scores, binomial_band
from harmonicgp.tables.arrays import is_missing
from harmonicgp.tables.columns import Array

_MOST_COLUMNS = 60
_MOST_CLASSES = 10
_MOST_LEVELS = 4
_SHOWN_BINS = 20


def data(case: Case) -> dict[str, Any]:
    """Columns and targets with their smallest, median and largest values, or with their levels."""
    names = case.encoded_names
    declared = {names[j]: kind for j, kind in case.fact("column_kinds_", {}).items() if j < len(names)}
    rows, n_columns = case.table.shape
    return {
        "rows": rows,
        "n_columns": n_columns,
        "columns": [_summary(name, values, declared.get(name, "number")) for name, values in _columns(case)],
        "targets": [
            _summary(name, case.y[:, p] if case.classes is None else np.array(case.classes, object)[case.y[:, p]])
            for p, name in enumerate(case.names)
        ],
        "more": max(n_columns - _MOST_COLUMNS, 0),
    }


def _columns(case: Case) -> Iterator[tuple[str, Array]]:
    if isinstance(case.table, nw.DataFrame):
        for column in case.table[:, :_MOST_COLUMNS].iter_columns():
            yield str(column.name), column.to_numpy()
        return
    names = getattr(case.model, "feature_names_in_", None)
    for j in range(min(case.table.shape[1], _MOST_COLUMNS)):
        yield (f"x{j}" if names is None else str(names[j])), case.table[:, j]


def _summary(name: str, values: Array, kind: str | tuple[str, float] = "number") -> dict[str, Any]:
    """A row of the table: smallest, median and largest of numbers and dates, the first levels of other values."""
    if values.dtype.kind in "fiu":
        present = values[np.isfinite(values)]
        three: tuple[Any, ...] = (present.min(), np.median(present), present.max()) if len(present) else ()
    elif values.dtype.kind == "M":
        present, kind = np.sort(values[~np.isnat(values)]), "time"
        three = tuple(_day(present[k]) for k in (0, len(present) // 2, -1)) if len(present) else ()
    else:
        counts = Counter(value for value in values.tolist() if not is_missing(value))
        levels = [(str(level)[:40], count / counts.total()) for level, count in counts.most_common(_MOST_LEVELS)]
        missing = len(values) - counts.total()
        return {"name": name, "kind": "levels", "missing": missing, "n_levels": len(counts), "levels": levels}
    return {"name": name, "kind": kind, "missing": len(values) - len(present), "three": three}


def _day(value: np.datetime64) -> str:
    return str(value.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")


def scores(case: Case, held_out: bool) -> dict[str, Any]:
    """The scores, and those of the rows that the fit itself held out."""
    validation = case.fact("validation_", {})
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
        values |= {"body": "scores_target.html", "scores": case.scores, "spread": float(case.y.std())}
    return values


def results(case: Case) -> list[Section]:
    """The sections on calibration and predictions, for a classifier, for one target, or for each of the first targets."""
    scores = case.scores
    if isinstance(scores, ClassificationScores):
        return [
            Section("calibration", "Calibration", _reliability_values(scores), "reliability.html"),
            Section("confusion", "Which classes are taken for which", _confusion_values(scores)),
        ]
    if not scores.targets:
        return [
            Section("calibration", "Calibration", _calibration_values(scores)),
            Section("predictions", "Predictions and errors", _prediction_values(case, 0)),
        ]
    sections = []
    for p, name in enumerate(case.shown_targets):
        values = _calibration_values(scores.targets[p]) | _prediction_values(case, p)
        values |= {"spread": float(case.y[:, p].std()), "more": 0}
        sections.append(Section(f"target-{p + 1}", f"Target {name}", values, "target.html"))
    sections[-1].values["more"] = len(case.names) - len(sections)
    return sections


def _calibration_values(scores: Scores) -> dict[str, Any]:
    """Coverage and PIT; `level` is the level with the worst coverage, or 90 % if all are within chance."""
    half = len(scores.pit) // 2
    inside = np.cumsum(scores.pit[half:] + scores.pit[:half][::-1]) / scores.rows
    levels, shares = np.array(LEVELS), np.array([scores.coverage[level] for level in LEVELS])
    low, high = binomial_band(scores.rows, levels, 1 - 0.05 / len(LEVELS))  # corrected for the number of levels
    by_chance = (low <= shares) & (shares <= high)
    distances = np.where(by_chance, 0, np.abs(shares - levels) / np.sqrt(levels * (1 - levels)))
    level = 0.9 if by_chance.all() else LEVELS[int(distances.argmax())]
    return {
        "scores": scores,
        "intervals": list(zip(LEVELS, *binomial_band(scores.rows, levels), strict=True)),
        "curve": pictures.draw(pictures.coverage_curve, np.arange(1, half + 1) / half, inside, scores.rows),
        "histogram": pictures.draw(pictures.pit_bars, scores.pit.reshape(_SHOWN_BINS, -1).sum(1)),
        "calibrated": by_chance.all(),
        "level": level,
        "slight": abs(scores.coverage[level] - level) < 0.2 * min(level, 1 - level),
    }


def _reliability_values(scores: ClassificationScores) -> dict[str, Any]:
    two = len(scores.classes) == 2
    label = f"predicted probability of {scores.classes[1]}" if two else "probability of the predicted class"
    bins = scores.reliability
    return {
        "label": label,
        "gap": float(np.nansum(bins.counts * np.abs(bins.predicted - bins.observed)) / scores.rows),
        "bins": [(p, q) for p, q in zip(bins.predicted, bins.observed, strict=True) if not np.isnan(p)],
        "picture": pictures.draw(pictures.reliability, bins, label),
    }


def _confusion_values(scores: ClassificationScores) -> dict[str, Any]:
    """Rows by class and predicted class; only the most frequent classes if there are many."""
    counts, names = scores.confusion, [str(label) for label in scores.classes]
    others = 0
    if len(names) > _MOST_CLASSES:
        order = np.argsort(-counts.sum(1), kind="stable")
        first = np.sort(order[: _MOST_CLASSES - 1])
        others = len(names) - len(first)
        group = np.full(len(names), len(first))
        group[first] = np.arange(len(first))
        members = np.eye(_MOST_CLASSES, dtype=np.int64)[group]
        counts, names = members.T @ counts @ members, [*(names[k] for k in first), f"{others} others"]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    lines = [(name, list(zip(counts[i], shares[i], strict=True))) for i, name in enumerate(names)]
    return {"names": names, "lines": lines, "others": others}


def _prediction_values(case: Case, p: int) -> dict[str, Any]:
    predicted = np.asarray(case.model.predict(case.sample_rows), np.float64).reshape(len(case.sample), -1)[:, p]
    observed, name = case.observed[:, p], case.names[p]
    return {
        "name": name,
        "drawn": len(case.sample),
        "rows": len(case.y),
        "smallest": observed.min(),
        "largest": observed.max(),
        "agreement": pictures.draw(pictures.predicted_observed, predicted, observed, name),
        "residuals": pictures.draw(pictures.residuals, predicted, observed, name),
    }
