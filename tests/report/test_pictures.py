"""Pictures of a report."""

from __future__ import annotations

import matplotlib
import matplotlib.image

from harmonicgp.diagnostics import write_report
from tests.report.common import LinearModel, check, table


def test_the_settings_of_matplotlib_are_neither_used_nor_changed(tmp_path):
    X, y = table(50)
    with matplotlib.rc_context({"text.usetex": True, "figure.dpi": 37}):
        before = dict(matplotlib.rcParams)
        write_report(tmp_path / "r.html", LinearModel().fit(X, y), X, y)
        assert dict(matplotlib.rcParams) == before
    check(tmp_path / "r.html")
