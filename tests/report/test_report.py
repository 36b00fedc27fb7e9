from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from io import BytesIO
from types import SimpleNamespace

import matplotlib
import matplotlib.image
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harmonicgp import HarmonicGPRegressor
from harmonicgp._extras import MissingExtraError
from harmonicgp.diagnostics import Scores, write_report
from harmonicgp.report import case, model_sections, pictures
from harmonicgp.report.page import number, percent, seconds
from tests.report.common import LinearClassifier, LinearModel, table

COMMON = ["warnings", "data", "scores", "learning", "harmonics", "symmetry", "inducing", "timings", "loading"]
HOSTILE = ["<script>alert('a')</script>", '"><img src=x onerror=alert(1)>', r"$\frac{$ & _co", "温度 \n\x00"]
VOID = {"meta", "img"}
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"


class Page(HTMLParser):
    """What a browser would see: tags, attributes, text by section."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.images, self.links, self.sections, self.words = [], [], [], [], {}, ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        assert not any(name.startswith("on") for name in values)
        if tag == "img":
            self.images.append(values)
        if tag == "section":
            self.sections[values["id"]] = ""
        self.links += [values[key] for key in ("href", "src", "srcset", "action", "data") if key in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if "section" in self.open:
            key = list(self.sections)[-1]
            self.sections[key] += data


def check(path):
    """The page as parsed, after what every page must be."""
    text = path.read_bytes().decode("utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert page.tags.count("h1") == page.tags.count("title") == page.tags.count("main") == 1
    assert not re.search(r"https?://|@import|url\(", text)
    assert POLICY in text
    for link in page.links:
        assert link.startswith("data:image/png;base64,") or link.removeprefix("#") in page.sections
    for image in page.images:
        png = base64.b64decode(image["src"].partition(",")[2], validate=True)
        pixels = matplotlib.image.imread(BytesIO(png))
        assert pixels.shape[:2] == (2 * int(image["height"]), 2 * int(image["width"]))
        assert np.ptp(pixels[..., :3]) > 0.5  # something is drawn
        assert len(image["alt"]) > 20
    assert not re.search(r"\b(nan|None|inf)\b", page.words)
    return page


@pytest.fixture
def quick(monkeypatch):
    """One small picture for all: for tests of the words."""
    buffer = BytesIO()
    matplotlib.image.imsave(buffer, np.eye(4))
    monkeypatch.setattr(pictures, "draw", lambda *args, **kwargs: buffer.getvalue())


def label(y):
    return np.where(y > 11, "high", np.where(y < 9, "low", "middle"))


def test_regression(tmp_path):
    (X, y), (Xs, ys) = table(), table(5200, seed=1)
    scores = write_report(tmp_path / "report.html", LinearModel().fit(X, y), Xs, ys)
    page = check(tmp_path / "report.html")
    assert isinstance(scores, Scores)
    assert list(page.sections) == [*COMMON[:3], "calibration", "predictions", *COMMON[3:]]
    assert len(page.images) == 6
    assert number(scores.rmse) in page.sections["scores"]
    assert "has not been fitted to" in page.sections["scores"]
    assert "On 100 rows that the fit held out itself" in page.sections["scores"]
    assert percent(scores.coverage[0.9]) in page.sections["calibration"]
    assert "5000 of 5200 rows drawn" in page.sections["predictions"]
    assert "✓ negation in 2 ways" in page.sections["symmetry"]
    assert "✓ one block" not in page.sections["symmetry"]
    assert "too many for a map" in page.sections["inducing"]
    assert "1 h 6 min" in page.sections["timings"]
    assert "many missing values" in page.sections["warnings"]
    assert "from harmonicgp import load_model" in page.sections["loading"]
    assert "rows in their 95 % interval: 91 %" in page.sections["scores"]
    for key in ("cost: operations", "bound: how well", "round: 1 compares"):
        assert key in page.sections["symmetry"]
    assert "warp: " not in page.sections["symmetry"]  # which this table has not
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_hostile_names_and_several_targets(tmp_path, monkeypatch):
    assert case.MOST_TARGETS == 6
    monkeypatch.setattr(case, "MOST_TARGETS", 2)
    rng = np.random.default_rng(0)
    X, y = table(300)
    frame = pd.DataFrame(dict(zip(HOSTILE[:3], X.T, strict=True)))
    frame[HOSTILE[3]] = rng.choice(["<b>", "&amp;", None], 300)
    frame["day"] = pd.Timestamp("2024-02-01") + pd.to_timedelta(rng.integers(0, 90, 300), "D")
    targets = np.column_stack([y * k + rng.normal(size=300) for k in range(4)])
    model = LinearModel().fit(frame, targets)
    model.target_names_ = HOSTILE
    model.symmetry_.table[0]["<i>key</i>"] = "<i>value</i>"
    model.warnings_ = HOSTILE
    components = model.predict_components
    model.predict_components = lambda X: SimpleNamespace(labels=HOSTILE[:3], mean=components(X).mean)
    scores = write_report(tmp_path / "r.html", model, frame, targets, title="\ud800</title><script>")
    page = check(tmp_path / "r.html")
    assert len(scores.targets) == 4
    assert [key for key in page.sections if key.startswith("target")] == ["target-1", "target-2"]
    assert "2 more targets have no section" in page.sections["target-2"]
    assert len(page.images) == 2 * 4 + 1 + 2
    for words in ("<script>alert('a')</script>", '"><img src=x onerror=alert(1)>', "&amp; (", "<b> (", "2024-02-01"):
        assert words in page.sections["data"]
    assert "<i>key</i>" in page.sections["symmetry"]
    assert "</title><script>" in page.words


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier(tmp_path, classes):
    (X, y), (Xs, ys) = table(300, 2), table(200, 2, seed=1)
    of = label if classes == 3 else (lambda y: y > 10)
    scores = write_report(tmp_path / "r.html", LinearClassifier().fit(X, of(y)), Xs, of(ys))
    page = check(tmp_path / "r.html")
    assert list(page.sections) == [*COMMON[:3], "calibration", "confusion", *COMMON[3:]]
    assert percent(scores.accuracy) in page.sections["scores"]
    assert str(scores.confusion[0, 0]) in page.sections["confusion"]
    assert "accuracy: 90 %" in page.sections["scores"]
    assert len(page.images) == 4  # reliability, learning, harmonics, map
    assert "predict_proba" in page.sections["loading"]


def test_many_classes_columns_and_components(tmp_path, quick):
    X, _ = table(400, 70)
    labels = [f"<{k}>" for k in np.argsort(np.argsort(X[:, 0])) // 20]
    model = LinearClassifier().fit(X, labels)
    means = np.sin(np.arange(400.0)) * np.arange(40.0)[:, None]
    model.predict_components = lambda X: SimpleNamespace(labels=[f"t={t}" for t in range(40)], mean=means)
    write_report(tmp_path / "r.html", model, X, labels)
    page = check(tmp_path / "r.html")
    assert "The 9 most frequent classes; the 11 others" in page.sections["confusion"]
    assert "10 more columns" in page.sections["data"]
    assert "20 levels: <" in page.sections["data"]
    assert any(image["alt"].startswith("Bars: t=39") for image in page.images)


@pytest.mark.parametrize("task", ["two targets", "classes", "three classes"])
def test_one_column(tmp_path, task):
    X, y = table(120, 1)
    if task == "two targets":
        y = np.column_stack([y, -y])
        model = LinearModel().fit(X, y)
    else:
        y = label(y) if task == "three classes" else y > 10
        model = LinearClassifier().fit(X, y)
    write_report(tmp_path / "r.html", model, X, y)
    curves = [image for image in check(tmp_path / "r.html").images if image["alt"].startswith("Curve: pred")]
    assert len(curves) == (2 if task == "two targets" else 1)


@pytest.mark.parametrize(
    ("make", "span"), [(pd.DataFrame, 180), (pl.DataFrame, 20), (pa.table, 180)], ids=["pandas", "polars", "pyarrow"]
)
def test_globe(tmp_path, make, span):
    X, y = table(150, 3)
    X *= [span, 60, 1]
    frame = make({"lon": X[:, 0] % 360, "lat": X[:, 1], "height": X[:, 2]})
    model = LinearModel({0: "longitude", 1: "latitude", 2: ("periodic", 24.0)}).fit(frame, y)
    model.Z[0, :2] = -179.5, 3.0
    write_report(tmp_path / "r.html", model, frame, y)
    page = check(tmp_path / "r.html")
    assert "Map: 150 rows by lon and lat" in page.images[-1]["alt"]
    for words in ("longitude", "latitude", "period 24"):
        assert words in page.sections["data"]


def test_plane_and_columns_that_are_not_there(tmp_path):
    X, y = table(150, 2)
    X[5, 1] = np.nan
    model = LinearModel().fit(np.nan_to_num(X), y)
    write_report(tmp_path / "r.html", model, X, y)
    assert "Map: 149 rows by x0 and x1" in check(tmp_path / "r.html").images[-1]["alt"]
    frame = pd.DataFrame({"colour": np.where(X[:, 0] > 0, "red", "blue")})
    model = LinearModel().fit(frame, y)
    model.encoded_names_ = ["colour=red"]
    write_report(tmp_path / "r.html", model, frame, y)
    assert "colour=red are not columns of X" in check(tmp_path / "r.html").sections["inducing"]


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


def test_a_model_without_components_says_why(tmp_path, quick):
    """As a joint posterior does that is too large for its dense matrix."""

    def refuse(X):
        raise ValueError("components need the dense matrix")

    X, y = table()
    model = LinearModel().fit(X, y)
    model.predict_components = refuse
    write_report(tmp_path / "a.html", model, X, y)
    assert "components need the dense matrix" in check(tmp_path / "a.html").words


def test_steps_without_a_bound_and_one_block(tmp_path, quick):
    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.history_[3]["bound"] = float("nan")
    model.history_[19]["validation"] = float("nan")
    model.predict_components = lambda X: SimpleNamespace(labels=["all"], mean=np.zeros((1, len(X))))
    model.symmetry_.table = []
    model.validation_ = {"rmse": [0.1, 0.2], "coverage": {0.9: 0.88}, "rows": 5}
    write_report(tmp_path / "r.html", model, X, y)
    page = check(tmp_path / "r.html")
    assert "1 steps had no finite bound" in page.sections["learning"]
    assert "one block" in page.sections["harmonics"]
    assert "not searched for" in page.sections["symmetry"]
    assert "RMSE: 0.1, 0.2" in page.sections["scores"]
    assert "90 % interval 88 %" in page.sections["scores"]


def test_what_to_know_first(tmp_path, quick):
    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.notes_ = ["dates are used as days.", "column c is constant."]
    rows = np.arange(80)
    model.beyond = lambda X: {"x0": rows < 3, "x2": (rows > 0) & (rows < 5)}
    write_report(tmp_path / "r.html", model, X, y)
    words = " ".join(check(tmp_path / "r.html").sections["warnings"].split())
    assert words.endswith(
        "column b has many missing values: they count as a level of their own. "
        "5 of 80 rows lie beyond the data of the fit in x0, x2: their error bars widen, their means lean on the model. "
        "dates are used as days. column c is constant."
    )
    assert (tmp_path / "r.html").read_text().count('<ul class="warnings">') == 1
    model = LinearClassifier().fit(X, label(y))
    model.beyond = lambda X: {f"x{k}": rows < 1 for k in range(12)}
    write_report(tmp_path / "r.html", model, X, label(y))
    words = check(tmp_path / "r.html").sections["warnings"]
    assert "1 of 80 rows lies beyond the data of the fit in x0, " in words
    assert "x9 and 2 more: its probabilities lean on the model." in words


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
    assert "The fit set the rows scored here aside" in pages[0]["scores"]
    assert "only if it has not been fitted" not in pages[0]["scores"]
    assert "only if it has not been fitted" in pages[1]["scores"]


def test_the_verdict_is_on_the_worst_level(tmp_path, quick):
    """A model that is right about its 90 % interval, and not about the others."""
    (X, y), n = table(1000), 1000
    model = LinearModel().fit(X, y)
    pit = np.linspace(0.05, 0.95, n)
    pit[:50], pit[-50:] = 0.001, 0.999  # beyond all but their 99.8 % interval
    model.pit = lambda part, target: pit[: len(part)]
    write_report(tmp_path / "r.html", model, X, y)
    words = " ".join(check(tmp_path / "r.html").sections["calibration"].split())
    assert "90 % of the rows lie in their 99 % interval: these intervals are too narrow" in words


def test_every_column_of_the_table_of_symmetries_is_explained(tmp_path, quick):
    from harmonicgp.diagnostics import suggest_symmetry

    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.symmetry_ = suggest_symmetry(X, y, n_inducing=8, time_budget=0.1, progress=False)
    assert {"name", *model_sections.LEGEND} == {key for row in model.symmetry_.table for key in row}
    write_report(tmp_path / "r.html", model, X, y)
    words = check(tmp_path / "r.html").sections["symmetry"]
    for key, meaning in model_sections.LEGEND.items():
        assert f"{key.replace('_', ' ')}: {meaning}." in words


@pytest.mark.parametrize("steps", [1, 2])
def test_short_histories_and_a_constant_target(tmp_path, steps):
    X, y = table(30)
    model = LinearModel().fit(X, y)
    model.history_ = model.history_[:steps]
    write_report(tmp_path / "r.html", model, X[:1] if steps == 1 else X, np.full(1 if steps == 1 else 30, 7.0))
    assert "R² says nothing" in check(tmp_path / "r.html").sections["scores"]


@pytest.mark.parametrize(("overconfident", "words"), [(3.0, "too narrow"), (0.3, "too wide"), (1.0, "within chance")])
def test_the_verdict_on_calibration(tmp_path, quick, overconfident, words):
    (X, y), (Xs, ys) = table(1000), table(500, seed=1)
    write_report(tmp_path / "r.html", LinearModel(overconfident=overconfident).fit(X, y), Xs, ys)
    assert words in check(tmp_path / "r.html").sections["calibration"]


def test_a_failure_leaves_the_old_page_alone(tmp_path, quick):
    X, y = table(50)
    model = LinearModel().fit(X, y)
    (tmp_path / "r.html").write_text("old")

    def broken(X):
        raise RuntimeError("broken")

    model.predict_components = broken
    with pytest.raises(RuntimeError, match="broken"):
        write_report(tmp_path / "r.html", model, X, y)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("r.html", "old")]


def test_a_path_that_cannot_be_written_shows_before_the_work(tmp_path):
    X, y = table(50)
    model = LinearModel().fit(X, y)
    with pytest.raises(FileNotFoundError, match="make it first"):
        write_report(tmp_path / "none" / "r.html", model, X, y)
    with pytest.raises(IsADirectoryError, match="name a file"):
        write_report(tmp_path, model, X, y)
    assert model.largest_chunk == 0


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_without_an_optional_module(tmp_path, monkeypatch, module):
    X, y = table(50)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"harmonicgp\[plot\]"):
        write_report(tmp_path / "r.html", LinearModel().fit(X, y), X, y)


def test_the_settings_of_matplotlib_are_neither_used_nor_changed(tmp_path):
    X, y = table(50)
    with matplotlib.rc_context({"text.usetex": True, "figure.dpi": 37}):
        before = dict(matplotlib.rcParams)
        write_report(tmp_path / "r.html", LinearModel().fit(X, y), X, y)
        assert dict(matplotlib.rcParams) == before
    check(tmp_path / "r.html")


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
