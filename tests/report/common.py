"""Fitted models as the report sees them: Bayesian linear regression on features, with its exact Gaussian predictive."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import BytesIO
from types import SimpleNamespace

import matplotlib
import matplotlib.image
import narwhals as nw
import numpy as np
from scipy.stats import norm


def numbers(X):
    """A table as floats; levels become their number, and dates their days."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.nan_to_num(np.asarray(X, float))
    columns = []
    for column in frame.iter_columns():
        values = column.to_numpy()
        if values.dtype.kind == "M":
            values = values.astype("datetime64[D]").astype(float)
        elif values.dtype.kind not in "fiub":
            values = np.unique([str(value) for value in values], return_inverse=True)[1]
        columns.append(np.nan_to_num(values.astype(float)))
    return np.column_stack(columns)


def features(x):
    """Odd, even and constant functions of the columns: three blocks."""
    return [
        np.ones((len(x), 1)),
        np.hstack([np.cos(2 * x), np.cos(4 * x)]),
        np.hstack([np.sin(2 * x), np.sin(4 * x), x]),
    ]


class LinearModel:
    """The interface of docs/design/front-door.md by conjugate formulas; y [n] or [n, P]."""

    def __init__(self, kinds=None, overconfident=1.0):
        self.column_kinds_ = dict(kinds or {})
        self.overconfident = overconfident
        self.largest_chunk = 0

    def fit(self, X, y):
        y, x = np.asarray(y, float), numbers(X)
        self.one = y.ndim == 1
        y = y.reshape(len(y), -1)
        self.scale = np.maximum(np.abs(x).max(0), 1)
        A = np.hstack(features(x / self.scale))
        self.centre, self.noise = y.mean(0), 0.2 * y.std(0) + 1e-9
        self.precision = np.eye(A.shape[1]) / 100 + A.T @ A / np.mean(self.noise**2)
        self.weights = np.linalg.solve(self.precision, A.T @ (y - self.centre) / np.mean(self.noise**2))
        residual = y - self.centre - A @ self.weights
        self.noise = residual.std(0) + 1e-9
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        d = x.shape[1]
        if isinstance(frame, nw.DataFrame):
            self.feature_names_in_ = np.array(frame.columns, object)
            self.encoded_names_ = [str(name) for name in frame.columns]
        else:
            self.encoded_names_ = [f"x{j}" for j in range(d)]
        self.target_names_ = [str(name) for name in getattr(y, "columns", [f"y{p}" for p in range(y.shape[1])])]
        self.n_features_in_, self.Z = d, x[:: max(len(x) // 20, 1)]
        steps = np.arange(1, 201)
        noise = 0.05 * np.random.default_rng(0).normal(size=200)
        self.history_ = [
            {"step": int(s), "bound": float(-3 * np.exp(-s / 15) - 0.5 + e), "seconds": 0.03 * s}
            | ({"validation": float(-3 * np.exp(-s / 15) - 0.55)} if s % 20 == 0 else {})
            for s, e in zip(steps, noise, strict=True)
        ]
        self.elbo_, self.n_steps_ = -0.51, 200
        table = [
            {"name": "one block", "cost": 1.0e9, "bound": -0.71, "round": 1, "chosen": False},
            {"name": "negation in 2 ways", "cost": 1.0e9, "bound": -0.51, "round": 2, "chosen": True},
            {"name": "negation in 3 ways", "cost": 1.0e9, "bound": None, "round": 1, "chosen": False},
        ]
        self.symmetry_ = SimpleNamespace(name="negation in 2 ways", reason="", origin="search", table=table)
        self.validation_ = {"rmse": 0.31, "nll": 0.2, "coverage": 0.91, "rows": 100}
        self.timings_ = {"prepare": 0.1, "search": 75.0, "train": 6.0, "finish": 4000.0}
        self.warnings_ = ["column b has many missing values: they count as a level of their own."]
        return self

    def _moments(self, X):
        x = numbers(X)
        self.largest_chunk = max(self.largest_chunk, len(x))
        A = np.hstack(features(x / self.scale))
        mean = self.centre + A @ self.weights
        variance = np.sum(A * np.linalg.solve(self.precision, A.T).T, 1)[:, None] + self.noise**2
        return mean, np.sqrt(variance) / self.overconfident

    def _out(self, values):
        return values[..., 0] if self.one else values

    def predict(self, X, return_std=False):
        mean, std = self._moments(X)
        return (self._out(mean), self._out(std)) if return_std else self._out(mean)

    def predict_quantiles(self, X, levels):
        mean, std = self._moments(X)
        return self._out(mean[:, None] + std[:, None] * norm.ppf(np.asarray(levels))[None, :, None])

    def log_density(self, X, y):
        mean, std = self._moments(X)
        return self._out(norm.logpdf(np.asarray(y).reshape(mean.shape), mean, std))

    def pit(self, X, y):
        mean, std = self._moments(X)
        return self._out(norm.cdf(np.asarray(y).reshape(mean.shape), mean, std))

    def predict_components(self, X):
        blocks = features(numbers(X) / self.scale)
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        means = [block @ self.weights[a:b] for block, a, b in zip(blocks, ends, ends[1:], strict=False)]
        mean = self._out(np.stack(means))
        return SimpleNamespace(
            labels=["constant", "even", "odd"], mean=mean, std=0 * mean, residual_std=np.zeros(mean.shape[1])
        )

    def inducing_points(self):
        return self.Z


class LinearClassifier(LinearModel):
    """Probabilities by a softmax of one linear regression a class: not calibrated, and need not be."""

    def fit(self, X, y):
        self.classes_, numbers_ = np.unique(np.asarray(y), return_inverse=True)
        super().fit(X, np.eye(len(self.classes_))[numbers_])
        self.target_names_ = ["species"]
        self.validation_ = {"accuracy": 0.9, "log_loss": 0.3, "rows": 50}
        return self

    def predict_proba(self, X):
        logits = 6 * self._moments(X)[0]
        p = np.exp(logits - logits.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

    predict_quantiles = log_density = pit = None


def table(n=400, d=3, seed=0):
    """Rows in [-1, 1]^d and a smooth target with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    return X, 10 + 3 * np.sin(3 * X[:, 0]) + np.cos(4 * X[:, -1]) + 0.5 * rng.normal(size=n)


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


def label(y):
    return np.where(y > 11, "high", np.where(y < 9, "low", "middle"))
