"""Words that matplotlib may draw, and a figure in a style of its own."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.io.drawing import styled_figure, text

matplotlib = pytest.importorskip("matplotlib")


@given(st.text(alphabet=st.characters(), max_size=60), st.integers(2, 40))
def test_text_is_one_short_line(words, most):
    line = text(words, most)
    assert line.isprintable()
    assert len(line.replace(r"\$", "$")) <= most
    if words.isprintable() and len(words) <= most and "$" not in words:
        assert line == words


def test_hostile_words_are_drawn_and_settings_come_back():
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"text.usetex": True}):
        with styled_figure(2, 1, {"font.size": 7}, "a test") as figure:
            assert matplotlib.rcParams["font.size"] == 7
            assert not matplotlib.rcParams["text.usetex"]
            figure.suptitle(text(r"$\frac{$ & 温度 \ud800"))
            figure.savefig(BytesIO(), format="png")
        assert matplotlib.rcParams["text.usetex"]
    assert tuple(figure.get_size_inches()) == (2, 1)
    assert dict(matplotlib.rcParams) == before
