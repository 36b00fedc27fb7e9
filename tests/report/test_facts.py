"""What a report reads from a model, and says where there is nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harmonicgp import HarmonicGPRegressor
from harmonicgp.diagnostics import write_report
from harmonicgp.report.facts import Origin, is_exact, symmetry_origin
from tests.report.common import LinearModel, check, table


def test_what_a_model_lacks_is_said_in_words(tmp_path, quick):
    X, y = table(80)

    class Bare(LinearModel):
        predict_components = inducing_points = None

    model = Bare().fit(X, y)
    for name in ("history_", "symmetry_", "validation_", "timings_", "warnings_", "column_kinds_", "target_names_"):
        delattr(model, name)
    model.elbo_, model.inducing_points = float("nan"), lambda: None
    write_report(tmp_path / "r.html", model, X, y)
    page = check(tmp_path / "r.html")
    for key, words in {
        "warnings": "no warnings",
        "scores": "held out no rows",
        "learning": "no finite bound",
        "harmonics": "does not split",
        "symmetry": "one block",
        "inducing": "does not say where",
        "timings": "no timings",
    }.items():
        assert words in page.sections[key]


def test_small_tables_are_told_of_as_they_are(tmp_path, quick):
    """No search, no rows held out, no batches, an inducing point at every row."""
    X, y = table(60, d=2)
    exact = HarmonicGPRegressor(max_steps=15, progress=False).fit(X, y)
    asked = HarmonicGPRegressor(max_steps=15, symmetry=None, progress=False).fit(X, y)
    few = HarmonicGPRegressor(max_steps=60, likelihood="student_t", n_inducing=8, progress=False).fit(X, y)
    pages = []
    for model in (exact, asked, few):
        write_report(tmp_path / "r.html", model, X, y, file="runs/y.hgp", set_aside=model is exact)
        pages.append({key: " ".join(words.split()) for key, words in check(tmp_path / "r.html").sections.items()})
    assert "No symmetry was searched for (60 rows are few" in pages[0]["symmetry"]
    assert "It was given, not searched for" in pages[1]["symmetry"]
    for page in pages[:2]:
        assert "Every row is an inducing point" in page["inducing"]
        assert "log marginal likelihood" in page["learning"]
    assert "8 inducing points" in pages[2]["inducing"]
    assert any("validation" in record for record in few.history_)
    for page in pages:
        assert "one batch" not in page["learning"]
        assert "held out" not in page["learning"]
        assert 'load_model("runs/y.hgp")' in page["loading"]
    assert "These rows were held out from the fit" in pages[0]["scores"]
    assert "only if it was not fitted" not in pages[0]["scores"]
    assert "only if it was not fitted" in pages[1]["scores"]


@pytest.mark.parametrize(
    ("model", "origin"),
    [
        ({"symmetry": "auto", "symmetry_": SimpleNamespace(table=[{"name": "a"}])}, Origin.SEARCH),
        ({"symmetry": "auto", "symmetry_": SimpleNamespace(table=[])}, Origin.FEW_ROWS),
        ({"symmetry": None, "symmetry_": SimpleNamespace(table=[])}, Origin.REQUEST),
        (
            {"symmetry": "auto", "kernel": object(), "symmetry_": SimpleNamespace(table=[], action=None)},
            Origin.OWN_KERNEL,
        ),
        ({"symmetry": object(), "kernel": object(), "symmetry_": SimpleNamespace(action=object())}, Origin.REQUEST),
    ],
)
def test_why_a_model_has_its_symmetry(model, origin):
    assert symmetry_origin(SimpleNamespace(**model)) is origin


def test_a_model_of_an_older_file_is_exact_if_it_was_fitted_as_one():
    def old(**changes):
        settings = {"likelihood": "gaussian", "symmetry": "auto", "n_inducing": "auto", "validation_fraction": 0.0}
        choice = SimpleNamespace(table=[], action=None)
        return SimpleNamespace(**(settings | {"symmetry_": choice, "validation_": None} | changes))

    assert is_exact(old())
    assert is_exact(old(symmetry=None, validation_fraction=0.1))
    assert not is_exact(old(symmetry=None))
    assert not is_exact(old(n_inducing=8))
    assert not is_exact(old(likelihood="student_t"))
    assert not is_exact(old(validation_={"method": "held-out"}))
