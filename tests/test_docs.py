"""Every Python snippet of the README and the docs runs as it is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs" / "design" / "house.md"]
SNIPPETS = [
    pytest.param(code, id=f"{page.name}-{i}")
    for page in PAGES
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)  # as a user has it
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})


def test_links_within_the_repository_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def front_door():
    """What goes wrong with a table, and how the page on troubleshooting begins its line."""
    pd = pytest.importorskip("pandas")
    from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor

    def fitted(X, y, model=HarmonicGPRegressor):
        return model(max_steps=2, progress=False).fit(X, y)

    n = 80
    frame = pd.DataFrame({"age": np.arange(n) / 7, "colour": ["green", "red", "blue", "red"] * 20})
    y = frame.age.to_numpy()
    gaps = frame.assign(age=frame.age.where(frame.index > 2), colour=frame.colour.where(frame.index > 0))
    typos = frame.assign(age=["12,5", "n.v.", *frame.age[2:].round(3).astype(str)])
    column = np.where(np.arange(n) == 3, np.nan, y)[:, None]
    gp = fitted(frame, y)
    return {
        "values are missing in 'age' (3 rows), 'colour' (1 row)": lambda: fitted(gaps, y),
        "column 0 has a missing value (NaN), first in row 3": lambda: fitted(column, y),
        "column 'age' reads as numbers, except '12,5', 'n.v.'": lambda: fitted(typos, y),
        "column 'age' held numbers in the fit; '12,5' is not a number": lambda: gp.predict(typos),
        "column 'name' holds text that hardly repeats (80 values in 80 rows)": lambda: fitted(
            frame.assign(name=[f"n{i}" for i in range(n)]), y
        ),
        "column 'when' holds text that looks like dates, such as '31/12/2023'": lambda: fitted(
            frame.assign(when=pd.date_range("2023-12-31", periods=n).strftime("%d/%m/%Y")), y
        ),
        "'price' has missing values in 3 rows, and had none in the fit": lambda: (
            HarmonicGPRegressor(max_steps=2, progress=False, missing="impute")
            .fit(frame.assign(price=y**2), y)
            .predict(frame.assign(price=(y**2)).assign(price=lambda f: f.price.where(f.index > 2)))
        ),
        "column 'colour' holds levels that were not in the fit ('violet') in 80 rows": lambda: gp.predict(
            frame.assign(colour="violet")
        ),
        "the model was fitted to a table whose columns hold text, dates or gaps": lambda: gp.predict(np.ones((2, 2))),
        "The feature names should match those that were passed during fit": lambda: gp.predict(
            frame[["colour", "age"]]
        ),
        "column 'colour' held text in the fit, but holds numbers now": lambda: gp.predict(frame.assign(colour=1.5)),
        "y holds 'green' in row 0, which is not a number": lambda: fitted(frame, frame.colour),
        "Unknown label type: continuous": lambda: fitted(frame, y, HarmonicGPClassifier),
        "y has 80 classes, more than 50": lambda: fitted(frame, np.arange(n), HarmonicGPClassifier),
    }


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_troubleshooting_begins_with_what_is_said():
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text().split())
    for words, work in front_door().items():
        assert f'"{words}' in page
        with pytest.raises((ValueError, UserWarning), match=re.escape(words)):
            work()


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir())
