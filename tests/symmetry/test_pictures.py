"""The picture of a search shows its numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from harmonicgp.actions import Negation
from harmonicgp.diagnostics import suggest_symmetry
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import SymmetryChoice
from tests.symmetry.common import cloud, row


@pytest.mark.usefixtures("brief")
def test_names_are_not_mathematics(tmp_path):
    X, _ = cloud("negation", 100)
    frame = pd.DataFrame(X, columns=["$a_{b$", "c", "d"])
    suggest_symmetry(frame, X[:, 0], [Negation([0])], progress=False).plot(tmp_path / "names.svg")
    assert (tmp_path / "names.svg").stat().st_size > 1000


def test_a_picture_leaves_the_windows_of_the_caller(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    before = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        choice = SymmetryChoice(Candidate(), None, [row("one block", 1, 1, 1.0), row("a", 2, 1, 1.1, 0.3)])
        choice.plot(tmp_path / "a.png")
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before)
