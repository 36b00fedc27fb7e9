"""The report on a fitted model: one page of HTML on data, scores, calibration, and the fit."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from harmonicgp._extras import require
from harmonicgp._version import __version__
from harmonicgp.backend.files import replacing
from harmonicgp.report import data_sections, model_sections
from harmonicgp.report.case import Case
from harmonicgp.report.novelty import ignore_unseen
from harmonicgp.report.page import Section, render
from harmonicgp.report.scores import ClassificationScores, Scores


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
    """Write a page of HTML on a fitted model and on rows X, y that were not in the fit. Return the scores of these rows.

    Args:
        path: the file. An earlier file is replaced when the new page is complete.
        model: a fitted estimator.
        X: rows, a frame or an array [n, d].
        y: targets, [n] or [n, P].
        title: the heading of the page.
        noise_std: known errors of y, [n], which are added to the predictions.
        file: where the model was saved, for the example that loads it.
        set_aside: whether the rows were held out from the fit, for the text on the scores.

    The page contains its pictures and needs no network.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from harmonicgp import HarmonicGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> gp = HarmonicGPRegressor(max_steps=20, progress=False).fit(X[::2], np.sin(X[::2, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(f"{folder}/report.html", gp, X[1::2], np.sin(X[1::2, 0])).rows
        20
    """
    for module in ("matplotlib", "jinja2"):
        require(module, "plot", "a report with pictures")
    with replacing(path) as page_file:  # a path that cannot be written fails before the work
        case = Case.of(model, X, y, noise_std)
        model_file = Path(file or "model.hgp")
        with ignore_unseen():
            sections = _sections(
                case, set_aside, model_file.name if model_file.is_absolute() else model_file.as_posix()
            )
        name, (rows, columns) = type(model).__name__, case.table.shape
        html = render(
            title or f"{name}: {', '.join(case.names[:3])}{', …' if len(case.names) > 3 else ''}",
            sections,
            model=name,
            rows=rows,
            columns=columns,
            targets=case.names,
            version=__version__,
            time=datetime.datetime.now(datetime.UTC),
        )
        page_file.write(
            html.encode("utf-8", "xmlcharrefreplace")
        )  # a name with broken characters must not prevent the page
    return case.scores


def _sections(case: Case, set_aside: bool, file: str) -> list[Section]:
    """All sections, from warnings to the example that loads the model."""
    warnings = [*(str(warning) for warning in case.novelty.unseen), *case.fact("warnings_", [])]
    notes = [note for note in (case.novelty.sentence(case.model), *case.fact("notes_", [])) if note]
    saved = {"file": json.dumps(file, ensure_ascii=False), "classes": case.classes is not None}
    return [
        Section("warnings", "What to know first", {"warnings": warnings, "notes": notes}),
        Section("data", "The data", data_sections.data(case)),
        Section("scores", "Scores", data_sections.scores(case, set_aside)),
        *data_sections.results(case),
        Section("learning", "Learning curve", model_sections.learning(case)),
        Section("harmonics", "Harmonics", model_sections.harmonics(case)),
        Section("symmetry", "Symmetry", model_sections.symmetry(case)),
        Section("inducing", "Inducing points", model_sections.inducing(case)),
        Section("timings", "Timings", {"timings": case.fact("timings_", {})}),
        Section("loading", "Use the model again", saved),
    ]
