"""The sections of a report on the model: learning curve, harmonics, symmetry, inducing points."""

from __future__ import annotations

from typing import Any

import numpy as np

from harmonicgp.report import pictures
from harmonicgp.report.case import Case
from harmonicgp.report.scores import take
from harmonicgp.tables.columns import Array

_MOST_BARS = 20
_MOST_MARKS = 2000


def learning(case: Case) -> dict[str, Any]:
    """The bound at every step; no picture if the model has no history."""
    history, held_out = case.fact("history_", []), bool(case.fact("validation_", {}))
    records = np.array([[r.get(key, np.nan) for key in ("step", "bound", "seconds")] for r in history], float)
    records = records.reshape(-1, 3)
    finite = records[np.isfinite(records[:, :2]).all(1)]
    values: dict[str, Any] = {"bound": float(case.fact("elbo_", np.nan)), "picture": None}
    if len(finite):
        steps, bounds, seconds = finite.T
        checks = [(float(r["step"]), float(r["validation"])) for r in history if r.get("validation") is not None]
        checks = [check for check in checks if np.isfinite(check).all()]
        values |= {
            "picture": pictures.draw(pictures.learning_curve, steps, bounds, seconds, checks if held_out else []),
            "steps": steps[-1],
            "seconds": seconds[-1],
            "first": bounds[0],
            "last": bounds[-1],
            "lost": len(records) - len(finite),
            "exact": case.exact,
            "all_rows": (bool(checks) and not held_out) or case.origin == "few rows",
            "checked": bool(checks) and held_out,
        }
    return values


def harmonics(case: Case) -> dict[str, Any]:
    """The variance over rows of each component's mean."""
    components = getattr(case.model, "predict_components", None)
    if components is None:
        return {"n": 0, "obstacle": ""}
    try:
        parts = components(case.sample_rows)
    except ValueError as error:  # a streamed joint posterior has no components
        return {"n": 0, "obstacle": str(error)}
    labels, mean = [str(label) for label in parts.labels], np.asarray(parts.mean, np.float64)
    if len(labels) < 2:
        return {"n": 1}
    variance = mean.reshape(*mean.shape[:2], -1).var(1)  # [T, P]
    columns = [("", variance.sum(1))]
    if variance.shape[1] == len(case.names) > 1:
        columns = [(name, variance[:, p]) for p, name in enumerate(case.shown_targets)]
    shares = [(name, *_largest_shares(labels, column)) for name, column in columns if column.sum() > 0]
    return {
        "n": len(labels),
        "rows": len(case.sample),
        "pictures": [
            (name, names, values, pictures.draw(pictures.bars, names, values)) for name, names, values in shares
        ],
    }


def _largest_shares(labels: list[str], variance: Array) -> tuple[list[str], Array]:
    """The components sorted by their share of the variance; if there are many, the smallest are pooled."""
    shares = variance / variance.sum()
    order = np.argsort(-shares, kind="stable")
    names, values = [labels[t] for t in order], shares[order]
    if len(names) > _MOST_BARS:
        rest = len(names) - _MOST_BARS + 1
        names, values = [*names[:-rest], f"{rest} others"], np.append(values[:-rest], values[-rest:].sum())
    return names, values


def symmetry(case: Case) -> dict[str, Any]:
    """The candidates of the search; the chosen one is marked."""
    choice = case.fact("symmetry_", None)
    values: dict[str, Any] = {"name": None}
    if choice is not None:
        keys = list(dict.fromkeys(key for row in choice.table for key in row))
        values = {
            "name": choice.name,
            "origin": choice.origin,
            "reason": choice.reason,
            "keys": keys,
            "numeric": [key for key in keys if any(_is_number(row.get(key)) for row in choice.table)],
            "rows": [(row["chosen"], [row.get(key) for key in keys]) for row in choice.table],
        }
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def inducing(case: Case) -> dict[str, Any]:
    """The positions of the inducing points on the globe, in the plane, or along a line."""
    names = case.encoded_names
    points = case.fact("inducing_points", lambda: None)()
    Z = np.zeros((0, len(names))) if points is None else np.reshape(points, (-1, len(names)))
    kinds = {kind: column for column, kind in case.fact("column_kinds_", {}).items()}
    globe = "longitude" in kinds and "latitude" in kinds
    places = [kinds["longitude"], kinds["latitude"]] if globe else list(range(len(names)))
    exact = case.exact
    x = case.columns(places) if len(places) <= 2 and len(Z) else None
    values: dict[str, Any] = {
        "n": len(Z),
        "exact": exact,
        "names": names,
        "dims": len(places),
        "hidden": x is None,
        "curves": [],
        "map": None,
    }
    if x is not None:
        Z = Z[np.linspace(0, len(Z) - 1, min(len(Z), _MOST_MARKS)).astype(int)]
        values["marks"] = len(Z)
        if len(places) == 1:
            values["curves"] = _curves(case, x[:, 0], Z[:, 0])
        elif not exact:  # an exact model has a point at every row
            values |= _map(case, x, Z[:, places], [names[j] for j in places], globe)
    return values


def _curves(case: Case, x: Array, z: Array) -> list[tuple[str, bytes]]:
    """Predictions along one column: a picture for each target, or one of the probabilities."""
    finite = np.flatnonzero(np.isfinite(x))
    rows = finite[np.argsort(x[finite], kind="stable")]
    name, part = case.encoded_names[0], take(case.table, case.sample[rows])
    if case.classes is not None:
        probabilities = np.asarray(case.model.predict_proba(part))
        shown = [1] if len(case.classes) == 2 else list(range(min(len(case.classes), pictures.MOST_CLASSES)))
        labels = [f"P({case.classes[k]})" for k in shown]
        return [
            (
                "",
                pictures.draw(
                    pictures.curve, x[rows], None, probabilities[:, shown], labels, None, z, name, "probability"
                ),
            )
        ]
    noise = {} if case.noise_std is None else {"noise_std": case.noise_std[case.sample[rows]]}
    mean = np.asarray(case.model.predict(part)).reshape(len(rows), 1, -1)
    band = np.asarray(case.model.predict_quantiles(part, [0.05, 0.95], **noise)).reshape(len(rows), 2, -1)
    curves = []
    for p, target in enumerate(case.shown_targets):
        lines, y = (mean[..., p], ["mean"], band[..., p]), case.observed[rows, p]
        curves.append((target, pictures.draw(pictures.curve, x[rows], y, *lines, z, name, target)))
    return curves


def _map(case: Case, x: Array, z: Array, names: list[str], globe: bool) -> dict[str, Any]:
    """Rows and inducing points in the plane, or on the globe by longitude and latitude."""
    rows = np.isfinite(x).all(1)
    x, colour = x[rows], case.observed[rows, 0]
    if globe:  # longitudes of rows and points in the same range of 360 degrees
        west = -180.0 if x[:, 0].min() < 0 else 0.0
        x, z = (np.column_stack([(a[:, 0] - west) % 360 + west, a[:, 1]]) for a in (x, z))
    few = case.classes is not None and len(case.classes) <= pictures.MOST_CLASSES
    classes = [str(label) for label in case.classes or ()] if few else []
    picture = pictures.draw(pictures.plane, x, colour, z, names, case.names[0], classes, globe)
    return {"map": picture, "rows": len(x), "axes": names, "target": case.names[0]}
