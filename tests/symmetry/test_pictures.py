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


def test_bars_are_the_numbers_of_the_table():
    pytest.importorskip("matplotlib")
    table = [
        row("one block", 1, 1, 1.0),
        row("same", 2, 1, 1.5, 0.3, residual=0.02, distance=0.01),
        row("far", 2, 1, 0.75, 0.001, residual=0.3, distance=0.4, chosen=True),
    ]
    figure = SymmetryChoice(Candidate(), None, table).plot()
    bound, kernel, inputs = figure.axes
    labels = [text.get_text() for text in bound.get_yticklabels()]
    assert labels == ["far +", "one block", "same *"]  # the first of the ranks on top
    for axis, widths in ((bound, [-0.25, 0.0, 0.5]), (kernel, [3.0, 1.0, 0.2]), (inputs, [0.4, 0.0, 0.01])):
        assert [bar.get_width() for bar in axis.patches] == pytest.approx(widths)
        assert [bar.get_y() + bar.get_height() / 2 for bar in axis.patches] == pytest.approx([0, 1, 2])
        low, high = axis.get_xlim()
        assert low <= min(widths)
        assert max(widths) < high
        assert len({bar.get_facecolor() for bar in axis.patches}) == 3  # by what the inputs say
    words = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    assert words == [
        ["-0.250", "+0.000", "+0.500"],
        ["3.00", "1.00", "0.20"],
        ["0.400  p = 0.001", "", "0.010  p = 0.3"],
    ]
    assert "* suggested: same; + what a fit takes" in figure.get_suptitle()


def test_the_headline_says_what_a_fit_takes():
    pytest.importorskip("matplotlib")
    far = [row("one block", 1, 1, 1.0, chosen=True), row("far", 2, 1, 1.5, 0.001)]
    choice = SymmetryChoice(Candidate(), None, far)
    assert "No symmetry of the inputs was found; + what a fit takes" in choice.plot().get_suptitle()
    choice.cut, choice.instead = True, "an exact model"
    headline = "No symmetry of the inputs was found in the time that there was; a fit to so few rows is an exact model"
    assert headline in choice.plot().get_suptitle()
    assert not any("+" in text.get_text() for text in choice.plot().axes[0].get_yticklabels())
    rounds = SymmetryChoice(Candidate(), None, [*far, row("one block", 1, 2, 2.0)])
    assert [text.get_text() for text in rounds.plot().axes[0].texts] == ["+0.500  round 1", "+0.000  round 2"]
    with pytest.raises(ValueError, match="nothing to draw"):
        SymmetryChoice(Candidate(), None, [row("one block", 1, 1, None)]).plot()
