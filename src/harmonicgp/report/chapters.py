"""The parts of a report on data, scores and calibration, in words, tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np

from harmonicgp.report import pictures
from harmonicgp.report.case import Case
from harmonicgp.report.page import Cell, figure, items, line, number, numbers, paragraph, percent, table
from harmonicgp.report.page import pictures as side_by_side
from harmonicgp.report.scores import LEVELS, Array, ClassificationScores, Scores, binomial_band

_MOST_COLUMNS = 60
_MOST_CLASSES = 10
_SHOWN_BINS = 20
_VALIDATION = {
    "rmse": "RMSE",
    "nll": "mean −log density",
    "log_loss": "log loss",
    "coverage": "rows in their 95 % interval",
}


def data(case: Case) -> str:
    """Rows, columns and targets: their smallest, middle and largest values, or their levels."""
    rows, columns = case.table.shape
    words = paragraph(f"{number(rows)} rows and {number(columns)} columns, as given to the report.")
    names = [str(name) for name in getattr(case.model, "encoded_names_", [])]
    declared = {
        names[j]: kind for j, kind in (getattr(case.model, "column_kinds_", None) or {}).items() if j < len(names)
    }
    lines = [_describe(name, values, declared.get(name)) for name, values in _columns(case, _MOST_COLUMNS)]
    for p, name in enumerate(case.names):
        values = case.y[:, p] if case.classes is None else np.array(case.classes, object)[case.y[:, p]]
        lines.append(_describe(f"{name} (target)", values, None))
    head = line("column", Cell("kind"), "missing", "smallest", "median", "largest")
    more = columns - _MOST_COLUMNS
    return words + table("Columns of the rows scored here.", head, lines) + (
        paragraph(f"{number(more)} more columns are not listed.") if more > 0 else ""
    )  # fmt: skip


def _columns(case: Case, most: int) -> Iterator[tuple[str, Array]]:
    if isinstance(case.table, nw.DataFrame):
        for column in case.table[:, :most].iter_columns():
            yield str(column.name), column.to_numpy()
        return
    names = getattr(case.model, "feature_names_in_", None)
    for j in range(min(case.table.shape[1], most)):
        yield (f"x{j}" if names is None else str(names[j])), case.table[:, j]


def _describe(name: str, values: Array, declared: Any) -> list[str | Cell]:
    """A line of the table of columns."""
    if values.dtype.kind in "fiu":
        known = values[np.isfinite(values)]
        kind = (
            "number" if declared is None else declared if isinstance(declared, str) else f"period {number(declared[1])}"
        )
        three = [number(f(known)) for f in (np.min, np.median, np.max)] if len(known) else ["–"] * 3
    elif values.dtype.kind == "M":
        known = np.sort(values[~np.isnat(values)])
        kind = "time"
        three = [_day(known[at]) for at in (0, len(known) // 2, -1)] if len(known) else ["–"] * 3
    else:
        return _levels(name, values)
    return line(name, Cell(kind), number(len(values) - len(known)), *three)


def _day(value: np.datetime64) -> str:
    return str(value.astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")


def _levels(name: str, values: Array) -> list[str | Cell]:
    counts = Counter(None if _is_missing(value) else value for value in values.tolist())
    missing = counts.pop(None, 0)
    known = max(len(values) - missing, 1)
    first = [f"{str(level)[:40]} ({percent(count / known)})" for level, count in counts.most_common(4)]
    words = f"{number(len(counts))} {'level' if len(counts) == 1 else 'levels'}: " + ", ".join(first)
    return [
        name,
        "levels",
        Cell(number(missing), number=True),
        Cell(words + (", …" if len(counts) > 4 else ""), span=3),
    ]


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither true nor false
        return True


def scores_in_words(case: Case) -> str:
    """The scores, what they mean, and the fit's own."""
    caution = paragraph(
        "The fit set the rows scored here aside and has not seen them: the scores tell how the model does on rows like these."
        if case.set_aside
        else "These scores tell how the model does on new rows only if it has not been fitted to the rows scored here. On rows "
        "it was fitted to they flatter it."
    )
    if isinstance(case.scores, ClassificationScores):
        return _classification(case.scores) + caution + _validation(case.model)
    if case.scores.targets:
        return _several(case.scores) + caution + _validation(case.model)
    return target_numbers(case, 0) + caution + _validation(case.model)


def target_numbers(case: Case, p: int) -> str:
    """One target's scores in numbers and a sentence."""
    scores = _scores(case, p)
    boxes = [
        ("RMSE", number(scores.rmse)),
        ("mean absolute error", number(scores.mae)),
        ("R²", number(scores.r2)),
        ("mean −log density", number(scores.nll)),
        ("rows in the 90 % interval", percent(scores.coverage[0.9])),
    ]
    spread = float(case.y[:, p].std())
    words = (
        f"Predictions of {scores.target} are off by {number(scores.rmse)} (root mean square), where the mean of these "
    )
    words += f"{number(scores.rows)} rows as the only prediction would be off by {number(spread)}"
    words += (
        f": R² is {number(scores.r2)}." if np.isfinite(scores.r2) else "; they are all equal, so that R² says nothing."
    )
    if not np.isfinite(scores.nll):
        words += " Some rows have no density at all under the model: look for outliers or a wrong unit."
    return numbers(boxes) + paragraph(words)


def _several(scores: Scores) -> str:
    head = line("target", "rows", "RMSE", "MAE", "R²", "−log density", "in 90 %", "width of 90 %")
    lines = []
    for each in (*scores.targets, scores):
        values = [number(each.rows), *map(number, (each.rmse, each.mae, each.r2, each.nll))]
        values += [percent(each.coverage[0.9]), number(each.width[0.9])]
        lines.append(line(each.target, *values))
    return table("Scores of each target, in its own units; the last line is their plain mean.", head, lines)


def _classification(scores: ClassificationScores) -> str:
    share = scores.confusion.sum(1).max() / scores.rows
    boxes = [
        ("accuracy", percent(scores.accuracy)),
        ("log loss", number(scores.log_loss)),
        ("Brier score", number(scores.brier)),
    ]
    return numbers(boxes) + paragraph(
        f"{percent(scores.accuracy)} of {number(scores.rows)} rows get their own class; always naming the most frequent class "
        f"would be right for {percent(float(share))}. Log loss and Brier score judge the probabilities; lower is better."
    )


def _validation(model: Any) -> str:
    """What the fit found on the rows that it held out itself."""
    found = getattr(model, "validation_", None)
    if not found:
        return paragraph("The fit held out no rows of its own.")
    names = {key: key if isinstance(value, dict) else _VALIDATION.get(key, key) for key, value in found.items()}
    lines = [f"{names[key]}: {_value(key, value)}" for key, value in found.items() if key not in ("rows", "method")]
    rows = f"{number(found['rows'])} rows" if "rows" in found else "the rows"
    if found.get("method") == "leave-one-out":
        return paragraph(f"In the fit, each of {rows} predicted from all the others:") + items(lines)
    return paragraph(f"On {rows} that the fit held out itself:") + items(lines)


def _value(key: str, value: Any) -> str:
    show = percent if key in ("coverage", "accuracy") else number
    if isinstance(value, dict):
        return ", ".join(f"{percent(float(level))} interval {_value(key, part)}" for level, part in value.items())
    return ", ".join(show(float(each)) for each in np.ravel(value))


def calibration(case: Case, p: int) -> str:
    """Do the probabilities come true? Coverage and PIT for numbers, reliability for classes."""
    if isinstance(case.scores, ClassificationScores):
        return _reliability(case.scores)
    scores = _scores(case, p)
    lines = []
    for level in LEVELS:
        low, high = binomial_band(scores.rows, level)
        cells = (percent(scores.coverage[level]), f"{percent(low)} to {percent(high)}", number(scores.width[level]))
        lines.append(line(percent(level), *cells))
    head = line("interval", "rows inside", "by chance (95 %)", "mean width")
    half = len(scores.pit) // 2
    inside = np.cumsum(scores.pit[half:] + scores.pit[:half][::-1]) / scores.rows
    curve = pictures.coverage_curve(np.arange(1, half + 1) / half, inside, scores.rows)
    bars = pictures.pit_bars(scores.pit.reshape(_SHOWN_BINS, -1).sum(1))
    held = ", ".join(f"{percent(scores.coverage[level])} in the {percent(level)} interval" for level in LEVELS)
    figures = [
        figure(
            curve,
            f"Curve of rows inside against level: {held}.",
            "Rows inside the central intervals of every level. Below the dashed line: too sure; above: too wary.",
        ),
        figure(
            bars,
            "Histogram of P(Y ≤ y), flat when calibrated.",
            "Where in its predicted distribution each y lies. Flat: calibrated. U: too sure. Hump: too wary. Tilt: biased.",
        ),
    ]
    return (
        paragraph(_verdict(scores)) + table("Central intervals of the prediction.", head, lines) + side_by_side(figures)
    )


def _verdict(scores: Scores) -> str:
    """Are the intervals what they say? In a sentence on the worst of them that chance does not explain."""

    def by_chance(level: float) -> bool:
        low, high = binomial_band(scores.rows, level, 1 - 0.05 / len(LEVELS))  # one of several may stray a little more
        return low <= scores.coverage[level] <= high

    def off(level: float) -> float:
        return abs(scores.coverage[level] - level) / float(np.sqrt(level * (1 - level)))

    odd = [level for level in LEVELS if not by_chance(level)]
    level = max(odd, key=off) if odd else 0.9
    got = scores.coverage[level]
    counted = f"{percent(got)} of the rows lie in their {percent(level)} interval"
    if not odd:
        return f"{counted}; at every level below, the rows inside are what a calibrated model gives within chance."
    slightly = "a little " if abs(got - level) < 0.2 * min(level, 1 - level) else ""
    if got < level:
        return f"{counted}: these intervals are {slightly}too narrow, the model is {slightly}too sure of itself."
    return f"{counted}: these intervals are {slightly}too wide, the model is {slightly}too wary."


def _reliability(scores: ClassificationScores) -> str:
    two = len(scores.classes) == 2
    label = f"predicted probability of {scores.classes[1]}" if two else "probability of the predicted class"
    bins = scores.reliability
    pairs = [
        f"called {percent(p)}, came true {percent(q)}"
        for p, q in zip(bins.predicted, bins.observed, strict=True)
        if p == p
    ]
    caption = (
        "On the dashed line probabilities come true as often as they say. Grey: what chance leaves a calibrated model."
    )
    gap = float(np.nansum(bins.counts * np.abs(bins.predicted - bins.observed)) / scores.rows)
    return paragraph(
        f"The {label} and how often it came true differ by {percent(gap)} on average over ten bins."
    ) + side_by_side([figure(pictures.reliability(bins, label), "Reliability: " + "; ".join(pairs) + ".", caption)])


def confusion(scores: ClassificationScores) -> str:
    """Rows by class and predicted class; the most frequent classes where there are many."""
    counts, names = scores.confusion, [str(label) for label in scores.classes]
    words = ""
    if len(names) > _MOST_CLASSES:
        order = np.argsort(-counts.sum(1), kind="stable")
        keep, rest = np.sort(order[: _MOST_CLASSES - 1]), order[_MOST_CLASSES - 1 :]
        group = np.full(len(names), len(keep))
        group[keep] = np.arange(len(keep))
        pooled = np.zeros((_MOST_CLASSES, _MOST_CLASSES), np.int64)
        np.add.at(pooled, (group[:, None], group[None]), counts)
        counts, names = pooled, [*(names[k] for k in keep), f"{len(rest)} others"]
        words = paragraph(f"The {len(keep)} most frequent classes; the {len(rest)} others are taken together.")
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    lines = [
        line(names[i], *(Cell(number(counts[i, j]), number=True, shade=float(share[i, j])) for j in range(len(names))))
        for i in range(len(names))
    ]
    head = line("class \\ predicted", *names)
    return words + table(
        "Rows by their class (down) and the predicted one (across); shade is the share of a line.", head, lines
    )


def predictions(case: Case, p: int) -> str:
    """Observed against predicted, and what is left."""
    predicted = np.asarray(case.model.predict(case.part), np.float64).reshape(len(case.sample), -1)[:, p]
    observed, name = case.observed[:, p], case.names[p]
    drawn = (
        f"{number(len(case.sample))} of {number(len(case.y))} rows drawn"
        if len(case.sample) < len(case.y)
        else "All rows"
    )
    both = f"between {number(observed.min())} and {number(observed.max())}"
    return side_by_side(
        [
            figure(
                pictures.predicted_observed(predicted, observed, name),
                f"Points: observed {name} {both} against predicted, around the line where they agree.",
                f"{drawn}; on the line observed and predicted agree.",
            ),
            figure(
                pictures.residuals(predicted, observed, name),
                f"Points: observed minus predicted {name} against predicted.",
                "What is left should scatter about zero everywhere; a bend is something the model has missed.",
            ),
        ]
    )


def _scores(case: Case, p: int) -> Scores:
    assert isinstance(case.scores, Scores)
    return case.scores.targets[p] if case.scores.targets else case.scores
