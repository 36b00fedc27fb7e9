"""The page: numbers for people, and what a browser sees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from harmonicgp.diagnostics import write_report
from harmonicgp.report.page import number, percent, seconds
from tests.report.common import HOSTILE, POLICY, LinearClassifier, LinearModel, check, table


def test_numbers_for_people():
    values = (2026, 2026.0, 0.123456, -3.0, 123456.7, 1.0e9, 10**9, 1e-9, float("inf"), float("nan"), None, True)
    expected = ["2026", "2026", "0.1235", "-3", "123,457", "1e+09", "1,000,000,000", "1e-09", "∞", "–", "–", "yes"]
    assert [number(value) for value in values] == expected
    assert [percent(share) for share in (0.9, 0.9123, 1.0, float("nan"))] == ["90 %", "91.2 %", "100 %", "–"]
    times = [seconds(value) for value in (0.034, 0.0, 0.14, 12.3, 75, 59.7, 3660, float("nan"))]
    assert times == ["< 0.1 s", "0 s", "0.14 s", "12 s", "1 min 15 s", "60 s", "1 h 1 min", "–"]


PROBE = """<script>addEventListener("load", () => parent.postMessage({
    inner: innerWidth, page: document.documentElement.scrollWidth, pictures: [...document.images].map(i => i.naturalWidth),
    titles: [...document.querySelectorAll("h1, h2, h3, caption span")].map(t => t.getBoundingClientRect().right),
    spilt: [...document.querySelectorAll("h1, h2, h3, th")].filter(t => t.scrollWidth > t.clientWidth).length
}, "*"))</script>"""


FRAMES = """<!DOCTYPE html><title>frames</title><pre id="found"></pre><script>
addEventListener("message", e => { document.getElementById("found").textContent += JSON.stringify(e.data) + "\\n"; });
</script><iframe src="copy.html" style="width:1280px;height:900px;border:0"></iframe>
<iframe src="copy.html" style="width:400px;height:900px;border:0"></iframe>"""


def browse(browser, page, folder):
    """The page's DOM after loading, and what it had to say on the console."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
    ]
    flags += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--dump-dom"]
    run = subprocess.run([browser, *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return run.stdout, [line for line in run.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["targets", "classes"])
def test_in_a_browser(tmp_path, task):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no chromium, chromium-browser or google-chrome on the path")
    X, y = table(300, 3)
    frame = pd.DataFrame(X, columns=[HOSTILE[0], "a_very_long_name_" * 8, "lat"])
    if task == "targets":
        model, y = LinearModel({0: "longitude", 2: "latitude"}), np.column_stack([y, -y])
    else:
        model, y = LinearClassifier(), np.array([f"class {k} " + "long" * 10 for k in np.argsort(np.argsort(y)) // 25])
    model.fit(frame, y)
    model.warnings_ = ["x" * 300]
    path = tmp_path / "report.html"
    write_report(path, model, frame, y, title="T" * 120)
    n_pictures = len(check(path).images)
    _, console = browse(browser, path, tmp_path)
    assert console == []  # the policy of the page forbids nothing that the page needs
    text = path.read_text(encoding="utf-8")
    (tmp_path / "copy.html").write_text(text.replace(POLICY, PROBE), encoding="utf-8")
    (tmp_path / "frames.html").write_text(FRAMES, encoding="utf-8")
    dom, console = browse(browser, tmp_path / "frames.html", tmp_path)
    assert console == []
    found = [json.loads(line) for line in re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)[1].split("\n") if line]
    assert sorted(frame["inner"] for frame in found) == [400, 1280]
    for view in found:
        assert view["page"] <= view["inner"]
        assert max(view["titles"]) <= view["inner"]  # long titles are wrapped, those of wide tables too
        assert view["spilt"] == 0
        assert len(view["pictures"]) == n_pictures
        assert min(view["pictures"]) > 0
