"""A fitted model on one page: data, scores, calibration, the course of the fit, what it chose. One file, nothing else."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harmonicgp._extras import require
from harmonicgp._version import __version__
from harmonicgp.backend.files import replacing
from harmonicgp.report import pictures
from harmonicgp.report.case import Case, is_exact, said_already
from harmonicgp.report.chapters import calibration, confusion, data, predictions, scores_in_words, target_numbers
from harmonicgp.report.page import (
    Cell,
    Section,
    code,
    figure,
    items,
    line,
    number,
    page,
    paragraph,
    seconds,
    table,
)
from harmonicgp.report.page import pictures as side_by_side
from harmonicgp.report.scores import Array, ClassificationScores, Scores, take

MOST_TARGETS = 6
_MOST_BARS = 20
_MOST_MARKS = 2000
_LEGEND = {  # of the table of candidates
    "blocks": "the parts that the symmetry splits the model into; 1 is no symmetry",
    "n_inducing": "inducing points of each part",
    "warp": "whether skewed columns were made normal first",
    "posterior": "in training, parts on their own (block) or all together (joint)",
    "finish": "the same at the end of the short fit, when all of its rows are taken in at once",
    "steps": "training steps of the short fit",
    "cost": "operations of the short fit, counted from its sizes: about the same for all candidates of a round",
    "bound": "how well the short fit explains its rows, by row: higher is better, and decides; – where the short fit failed",
    "residual": "the share of the kernel that the inducing points leave, before they are moved: lower is better",
    "distance": "how far inputs that the symmetry has moved are from the others: 0 for a symmetry of the inputs",
    "p_value": "how often chance would put them as far: below 0.01 the inputs do not have this symmetry",
    "round": "1 compares all on few rows, 2 the best of them on more; bounds compare within a round",
    "chosen": "what the model was fitted with",
}


def write_report(
    path: str | Path,
    model: Any,
    X: Any,
    y: Any,
    title: str | None = None,
    noise_std: Any = None,
    file: str | Path | None = None,
    set_aside: bool = False,
) -> Scores | ClassificationScores:
    """Write a page of HTML on a fitted model and rows X, y that it has not been fitted to; returns their scores.

    `noise_std` [n] are known errors of y, which the predictions then have in them; `file` is where the model was saved, and
    `set_aside` says that the fit kept these rows apart, for the words of the page.

    The page holds its own pictures and asks nothing of the network. It appears at `path` when it is complete, or not at all.
    """
    require("matplotlib", "plot", "a report with pictures")
    with replacing(path) as page_file:  # a path that cannot be written shows before the work, not after it
        case = replace(Case.of(model, X, y, noise_std), set_aside=set_aside)
        if file is not None:
            case = replace(case, file=Path(file).name if Path(file).is_absolute() else Path(file).as_posix())
        with said_already():
            html = _page(case, title)
        page_file.write(html.encode("utf-8", "xmlcharrefreplace"))  # a broken name must not cost the page
    return case.scores


def _page(case: Case, title: str | None) -> str:
    name = type(case.model).__name__
    heading = title or f"{name}: {', '.join(case.names[:3])}{', …' if len(case.names) > 3 else ''}"
    rows, columns = case.table.shape
    lead = (
        f"A {name}, looked at on {number(rows)} {'row' if rows == 1 else 'rows'} of {columns} "
        f"{'column' if columns == 1 else 'columns'}. {'Target' if len(case.names) == 1 else 'Targets'}: {', '.join(case.names)}."
    )
    now = datetime.datetime.now(datetime.UTC)
    footer = f"Written by harmonicgp {__version__} on {now:%Y-%m-%d %H:%M} UTC."
    return page(heading, lead, _sections(case), footer)


def _sections(case: Case) -> list[Section]:
    sections = [
        Section("warnings", "What to know first", _warnings(case)),
        Section("data", "The data", data(case)),
        Section("scores", "Scores", scores_in_words(case)),
    ]
    if isinstance(case.scores, ClassificationScores):
        sections += [
            Section("calibration", "Calibration", calibration(case, 0)),
            Section("confusion", "Which classes are taken for which", confusion(case.scores)),
        ]
    elif len(case.names) == 1:
        sections += [
            Section("calibration", "Calibration", calibration(case, 0)),
            Section("predictions", "Predictions and errors", predictions(case, 0)),
        ]
    else:
        sections += [_target(case, p) for p in range(min(len(case.names), MOST_TARGETS))]
    return [
        *sections,
        Section("learning", "Learning curve", _learning(case)),
        Section("harmonics", "Harmonics", _harmonics(case)),
        Section("symmetry", "Symmetry", _symmetry(case.model)),
        Section("inducing", "Inducing points", _inducing(case)),
        Section("timings", "Timings", _timings(case.model)),
        Section("loading", "Use the model again", _loading(case)),
    ]


def _target(case: Case, p: int) -> Section:
    """One of several targets, with all that belongs to it."""
    more = len(case.names) - MOST_TARGETS
    words = paragraph(f"{more} more targets have no section of their own; the table of scores has them all.")
    body = target_numbers(case, p) + calibration(case, p) + predictions(case, p)
    return Section(
        f"target-{p + 1}", f"Target {case.names[p]}", body + (words if more > 0 and p == MOST_TARGETS - 1 else "")
    )


def _warnings(case: Case) -> str:
    """What can harm, then what else was done or found."""
    found = [*case.unseen, *(str(warning) for warning in getattr(case.model, "warnings_", None) or [])]
    notes = [case.beyond] if case.beyond else []
    notes += [str(note) for note in getattr(case.model, "notes_", None) or []]
    first = items(found, "warnings") if found else paragraph("The fit gave no warnings.")
    return first + (items(notes) if notes else "")


def _learning(case: Case) -> str:
    """The bound by steps; words in its place when the model has none."""
    model = case.model
    elbo = getattr(model, "elbo_", None)
    bound = np.nan if elbo is None else float(elbo)
    last = f"The bound at the end is {number(bound)} per row." if np.isfinite(bound) else (
        "The model has no finite bound: it was not fitted by a bound, or the fit failed."
    )  # fmt: skip
    history = getattr(model, "history_", None) or []
    records = np.array([[record.get(key, np.nan) for key in ("step", "bound", "seconds")] for record in history], float)
    records = records.reshape(-1, 3)
    finite = records[np.isfinite(records[:, :2]).all(1)]
    if not len(finite):
        return paragraph(f"{last} The model keeps no history of the bound, so that there is no curve to draw.")
    steps, bounds, times = finite.T
    checks = [(float(r["step"]), float(r["validation"])) for r in history if r.get("validation") is not None]
    checks = [check for check in checks if np.isfinite(check).all()]
    held_out = getattr(model, "validation_", None) is not None
    words = f"{number(steps[-1])} steps" + (f" in {seconds(times[-1])}" if np.isfinite(times[-1]) else "") + f". {last}"
    lost = len(records) - len(finite)
    words += f" {lost} steps had no finite bound and are left out." if lost else ""
    alt = (
        f"Line: the bound per row rises from {number(bounds[0])} to {number(bounds[-1])} in {number(steps[-1])} steps."
    )
    if is_exact(model, len(_points(case))):
        caption = "The log marginal likelihood per row at each step, of all rows; higher is better. A step too far falls back."
    elif (checks and not held_out) or "rows are few" in str(getattr(getattr(model, "symmetry_", None), "reason", "")):
        caption = "The bound of each step, of all rows; higher is better."
    else:
        caption = "The bound of each step is of one batch and so jumps about it; higher is better. The first steps may lie below."
    caption += " Points: the same bound on rows held out in the fit." if checks and held_out else ""
    png = pictures.learning_curve(steps, bounds, times, checks if held_out else [])
    return paragraph(words) + side_by_side([figure(png, alt, caption)])


def _harmonics(case: Case) -> str:
    """The variance over rows of each component's mean."""
    components = getattr(case.model, "predict_components", None)
    if components is None:
        return paragraph("This model does not split its predictions into components.")
    try:
        parts = components(case.part)
    except ValueError as error:  # a joint posterior without its dense matrix has none
        return paragraph(f"The predictions are not split into components: {error}")
    labels, mean = [str(label) for label in parts.labels], np.asarray(parts.mean, np.float64)
    if len(labels) < 2:
        return paragraph("The model has one block: there is nothing to split.")
    variance = mean.reshape(*mean.shape[:2], -1).var(1)  # [T, P]
    several = variance.shape[1] == len(case.names) > 1
    columns = [(f" of {name}", variance[:, p]) for p, name in enumerate(case.names[:MOST_TARGETS])] if several else [
        ("", variance.sum(1))
    ]  # fmt: skip
    figures = [_shares(labels, column, name) for name, column in columns if column.sum() > 0]
    words = paragraph(
        f"The prediction is a sum of {len(labels)} components, each with a symmetry of its own. The bars show the variance of "
        f"each component's mean over {number(len(case.sample))} rows, as a share of their sum: a long bar is a kind of "
        "symmetry that the data have much of."
    )
    return words + (side_by_side(figures) if figures else paragraph("All components are constant over these rows."))


def _shares(labels: list[str], variance: Array, name: str) -> str:
    shares = variance / variance.sum()
    order = np.argsort(-shares, kind="stable")
    names, values = [labels[t] for t in order], shares[order]
    if len(names) > _MOST_BARS:
        rest = len(names) - _MOST_BARS + 1
        names, values = [*names[:-rest], f"{rest} others"], np.append(values[:-rest], values[-rest:].sum())
    alt = (
        "Bars: "
        + ", ".join(f"{label} {100 * share:.1f} %" for label, share in zip(names[:5], values, strict=False))
        + "."
    )
    return figure(pictures.bars(names, values), alt, f"Share of variance per harmonic{name}, largest first.")


def _symmetry(model: Any) -> str:
    """The candidates of the search, the chosen one marked."""
    symmetry = getattr(model, "symmetry_", None)
    if symmetry is None:
        return paragraph("The model has one block of inducing points and no symmetry.")
    words = paragraph(f"Chosen: {symmetry.name}.")
    rows = list(getattr(symmetry, "table", None) or [])
    if not rows:
        reason = str(getattr(symmetry, "reason", "") or "as asked")
        if reason == "as asked":
            return words + paragraph(
                "It was given, not searched for, so that there are no other candidates to compare."
            )
        return words + paragraph(f"No symmetry was searched for ({reason}).")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    chosen = [i for i, row in enumerate(rows) if _is_chosen(row, symmetry.name)]
    numeric = [any(_is_number(row.get(key)) for row in rows) for key in keys]
    head = [Cell(str(key).replace("_", " "), right) for key, right in zip(keys, numeric, strict=True)]
    cells = [[Cell(_plain(row.get(key)), right) for key, right in zip(keys, numeric, strict=True)] for row in rows]
    for i in chosen:
        cells[i][0] = replace(cells[i][0], text=f"✓ {cells[i][0].text}")  # not by colour alone
    legend = [f"{str(key).replace('_', ' ')}: {_LEGEND[key]}." for key in keys if key in _LEGEND]
    return words + table("Candidates; the chosen one is marked.", head, cells, chosen) + items(legend, "soft")


def _is_chosen(row: dict[str, Any], name: str) -> bool:
    return bool(row["chosen"]) if "chosen" in row else any(value == name for value in row.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    return number(value) if value is None or isinstance(value, bool | int | float | np.number) else str(value)


def _points(case: Case) -> Array:
    """The inducing points [m, d]; none where the model does not say."""
    points = getattr(case.model, "inducing_points", lambda: None)()
    d = len(case.model.encoded_names_)
    return np.zeros((0, d)) if points is None else np.asarray(points, np.float64).reshape(-1, d)


def _inducing(case: Case) -> str:
    """Where the inducing points are: on the globe, in the plane, or along a line."""
    Z = _points(case)
    if not len(Z):
        return paragraph("This model does not say where its inducing points are.")
    names = [str(name) for name in case.model.encoded_names_]
    kinds = {kind: column for column, kind in (getattr(case.model, "column_kinds_", None) or {}).items()}
    globe = "longitude" in kinds and "latitude" in kinds
    wanted = [kinds["longitude"], kinds["latitude"]] if globe else list(range(len(names)))
    count = f"{number(len(Z))} inducing points carry what the model has learned."
    exact = is_exact(case.model, len(Z))
    if exact:
        count = f"Every row is an inducing point: the model is an exact Gaussian process of {number(len(Z))} different rows."
    if exact and len(wanted) > 1:  # a map would be a carpet of crosses
        return paragraph(count)
    if len(wanted) > 2:
        return paragraph(f"{count} They lie in {len(names)} columns, too many for a map.")
    x = case.columns(wanted)
    if x is None:
        return paragraph(f"{count} There is no map: {', '.join(names)} are not columns of X as given.")
    Z = Z[np.linspace(0, len(Z) - 1, min(len(Z), _MOST_MARKS)).astype(int)]
    if len(wanted) == 1:
        return paragraph(count) + side_by_side(_curves(case, x[:, 0], Z[:, 0], names[0]))
    return paragraph(count) + side_by_side([_map(case, x, Z[:, wanted], [names[j] for j in wanted], globe)])


def _curves(case: Case, x: Array, z: Array, name: str) -> list[str]:
    """The fit along one column, for each target."""
    order = np.argsort(x[np.isfinite(x)], kind="stable")
    rows = np.flatnonzero(np.isfinite(x))[order]
    part, alt = (
        take(case.table, case.sample[rows]),
        f"Curve: predictions against {name}, {len(z)} inducing points as ticks.",
    )
    if case.classes is not None:
        p = np.asarray(case.model.predict_proba(part))
        shown = [1] if len(case.classes) == 2 else list(range(min(len(case.classes), pictures.MOST_CLASSES)))
        labels = [f"P({case.classes[k]})" for k in shown]
        png = pictures.curve(x[rows], None, p[:, shown], labels, None, z, name, "probability")
        return [figure(png, alt, f"Probabilities along {name}; ticks are inducing points.")]
    P = len(case.names)
    mean = np.asarray(case.model.predict(part)).reshape(-1, P)
    band = np.asarray(case.model.predict_quantiles(part, [0.05, 0.95], **case.known(case.sample[rows])))
    band = band.reshape(-1, 2, P)
    return [
        figure(
            pictures.curve(
                x[rows], case.observed[rows, p], mean[:, p : p + 1], ["mean"], band[:, :, p], z, name, case.names[p]
            ),
            alt,
            f"{case.names[p]} along {name}: mean and 90 % interval of y; ticks are inducing points.",
        )
        for p in range(min(P, MOST_TARGETS))
    ]


def _map(case: Case, x: Array, z: Array, names: list[str], globe: bool) -> str:
    """Rows and inducing points in the plane, or on the globe by longitude and latitude."""
    rows = np.isfinite(x).all(1)
    x, colour = x[rows], case.observed[rows, 0]
    if globe:  # whole turns mean nothing: bring both to the window that the rows lie in
        west = -180.0 if x[:, 0].min() < 0 else 0.0
        x, z = (np.column_stack([(a[:, 0] - west) % 360 + west, a[:, 1]]) for a in (x, z))
    classes = (
        [str(label) for label in case.classes] if case.classes and len(case.classes) <= pictures.MOST_CLASSES else []
    )
    png = pictures.plane(x, colour, z, names, case.names[0], classes, globe)
    alt = (
        f"Map: {len(x)} rows by {names[0]} and {names[1]}, coloured by {case.names[0]}, with {len(z)} inducing points."
    )
    return figure(png, alt, f"Rows coloured by {case.names[0]}; crosses are inducing points.")


def _timings(model: Any) -> str:
    timings = dict(getattr(model, "timings_", None) or {})
    if not timings:
        return paragraph("The model keeps no timings.")
    timings["together"] = sum(timings.values())
    rows = [line(str(name), seconds(float(value))) for name, value in timings.items()]
    return table("Time of the fit.", line("part", "time"), rows)


def _loading(case: Case) -> str:
    model, file = case.model, json.dumps(case.file, ensure_ascii=False)
    lines = f"from harmonicgp import load_model\n\nmodel = load_model({file})\n"
    lines += (
        "model.predict_proba(X)" if hasattr(model, "predict_proba") else "mean, std = model.predict(X, return_std=True)"
    )
    told = "X has the columns of the table above, without the target; the file is what model.save wrote."
    return paragraph(told) + code(lines)
