"""Every Python snippet of the README and the docs runs as it is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_default_dtype(torch.float32)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
    assert list(tmp_path.iterdir())
