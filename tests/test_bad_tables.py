"""Bad tables end in a model with finite predictions, or in an error that a user can act on.

Columns and targets are drawn from a list of what real tables hold: gaps, infinities, text, mixed types, constants, duplicates,
huge and tiny scales, dates of all sorts, more columns than rows, a single row, names that are no names.
"""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation, PrincipalNegation

EXAMPLES = 50 if settings.get_current_profile_name() == "ci" else 2000
SECONDS = 20  #: that an example may take
PHASES = set(Phase) - {Phase.explain}  # which traces every line, and takes minutes

# --- columns ----------------------------------------------------------------------------------------------------------


def _holes(x, value, rng):
    x = x.astype(np.float64)
    x[rng.integers(len(x), size=max(1, len(x) // 10))] = value
    return x


def _objects(values, rng, n):
    return pd.Series([values[i] for i in rng.integers(len(values), size=n)], dtype=object)


def _days(rng, n, most=2000):
    return pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.uniform(0, most, n), unit="D").round("s")


#: What a table may hold that can be used as it stands, by name; made from a generator and a number of rows.
GOOD = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, 3.7),
    "zero": lambda rng, n: np.zeros(n),
    "large": lambda rng, n: 1e100 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-200 * rng.normal(size=n),
    "denormal": lambda rng, n: 1e-310 * rng.normal(size=n),
    "offset": lambda rng, n: 1e15 + rng.normal(size=n),
    "outlier": lambda rng, n: np.where(np.arange(n) == 0, 1e30, rng.normal(size=n)),
    "mixed scales": lambda rng, n: 10.0 ** rng.uniform(-100, 100, n),
    "integers": lambda rng, n: rng.integers(-5, 5, n),
    "long": lambda rng, n: rng.integers(-(2**63), 2**63 - 1, n),
    "unsigned": lambda rng, n: rng.integers(0, 2**64 - 1, n, dtype=np.uint64),
    "booleans": lambda rng, n: rng.integers(0, 2, n).astype(bool),
    "float16": lambda rng, n: rng.normal(size=n).astype(np.float16),
    "levels": lambda rng, n: _objects(["red", "green", "blue"], rng, n),
    "one level": lambda rng, n: _objects(["same"], rng, n),
    "odd levels": lambda rng, n: _objects(["other", "missing", "a=b", "ü", "nan", "None", "NA"], rng, n),
    "category": lambda rng, n: pd.Categorical(_objects(["a", "b"], rng, n), categories=["a", "b", "never"]),
    "numbers as categories": lambda rng, n: pd.Categorical(rng.integers(0, 3, n)),
    "numbers as text": lambda rng, n: pd.Series([f"{v:.3f}" for v in rng.normal(size=n)]),
    "dates": lambda rng, n: _days(rng, n),
    "one date": lambda rng, n: pd.DatetimeIndex(["2024-02-29"] * n),
    "zoned dates": lambda rng, n: _days(rng, n).tz_localize("UTC").tz_convert("America/New_York"),
    "dates as objects": lambda rng, n: pd.Series(
        [date(2000, 1, 1) + timedelta(int(i)) for i in rng.integers(0, 900, n)]
    ),
    "dates as text": lambda rng, n: pd.Series(_days(rng, n).strftime("%Y-%m-%d")),
    "durations": lambda rng, n: pd.to_timedelta(rng.uniform(0, 9, n), unit="D"),
    "decimals": lambda rng, n: _objects([Decimal("1.5"), Decimal("-2.25"), Decimal("1e30")], rng, n),
    "nullable": lambda rng, n: pd.array(rng.integers(0, 9, n), dtype="Int64"),
}
#: What has gaps: a model with missing="impute", else an error.
GAPS = {
    "gaps": lambda rng, n: _holes(rng.normal(size=n), np.nan, rng),
    "gaps in integers": lambda rng, n: pd.array(np.where(np.arange(n) % 3 == 0, None, 1), dtype="Int64"),
    "gaps in booleans": lambda rng, n: pd.array(np.where(np.arange(n) % 3 == 0, None, True), dtype="boolean"),
    "gaps in levels": lambda rng, n: _objects(["red", "blue", None, np.nan, pd.NA, ""], rng, n),
    "gaps in dates": lambda rng, n: pd.Series(_days(rng, n)).where(np.arange(n) % 3 > 0),
    "all missing": lambda rng, n: np.full(n, np.nan),
    "none at all": lambda rng, n: pd.Series([None] * n, dtype=object),
}
#: What no model can use.
BAD = {
    "infinite": lambda rng, n: _holes(rng.normal(size=n), np.inf, rng),
    "minus infinity": lambda rng, n: _holes(rng.normal(size=n), -np.inf, rng),
    "huge": lambda rng, n: 1e200 * (1 + rng.random(n)),
    "mixed": lambda rng, n: pd.Series([(1.5, "text", date(2000, 1, 1))[i % 3] for i in range(n)], dtype=object),
    "lists": lambda rng, n: pd.Series([[1, 2]] * n, dtype=object),
    "bytes": lambda rng, n: pd.Series([b"raw"] * n, dtype=object),
    "complex": lambda rng, n: rng.normal(size=n) + 1j,
    "periods": lambda rng, n: pd.period_range("2020-01", periods=n, freq="M"),
    "identifiers": lambda rng, n: pd.Series([f"id-{i}" for i in range(n)]),  # some of it is levels, in short tables
}
#: Those that a plain array of numbers can hold.
NUMERIC = [
    *[
        "normal",
        "constant",
        "zero",
        "large",
        "tiny",
        "denormal",
        "offset",
        "outlier",
        "mixed scales",
        "integers",
        "long",
    ],
    *["unsigned", "booleans", "float16", "gaps", "all missing", "infinite", "minus infinity", "huge", "complex"],
]
NAMES = ["", " ", "a=b", "naïve ✓", "two\nlines", "y", "long" * 30, "0", "%s {}", "column"]


@dataclass
class Table:
    """A table, a target, and arguments; the names of columns that must be refused, and whether the target must."""

    X: Any
    y: Any
    refused: list[str]
    target: str
    bad_target: bool
    arguments: dict[str, Any]
    described: str

    def __repr__(self) -> str:
        return self.described


def _missing(column):
    return column.isna() | column.astype(object).map(lambda value: isinstance(value, str) and not value)


def _targets(kind, rng, n):
    plain = rng.normal(size=n)
    return {
        "normal": lambda: plain,
        "constant": lambda: np.full(n, 7.0),
        "zero": lambda: np.zeros(n),
        "large": lambda: 1e100 * plain,
        "tiny": lambda: 1e-200 * plain,
        "offset": lambda: 1e12 + plain,
        "outlier": lambda: np.where(np.arange(n) == 0, 1e30, plain),
        "integers": lambda: rng.integers(0, 5, n),
        "long": lambda: rng.integers(-(2**63), 2**63 - 1, n),
        "booleans": lambda: rng.integers(0, 2, n).astype(bool),
        "numbers as text": lambda: np.array([f"{v:.1f}" for v in plain]),
        "numbers as objects": lambda: plain.astype(object),
        "series": lambda: pd.Series(plain, name="tar get"),
        "nullable": lambda: pd.Series(rng.integers(0, 3, n), dtype="Int64"),
        "frame": lambda: pd.DataFrame({"a": plain, "b": rng.normal(size=n)}),
        "one column": lambda: plain[:, None],
        "labels": lambda: rng.choice(["yes", "no", "perhaps"], n),
        "labels as categories": lambda: pd.Series(pd.Categorical(rng.choice(["yes", "no"], n))),
        "labels as strings": lambda: pd.Series(rng.choice(["yes", "no"], n), dtype="string"),
        "gap": lambda: _holes(plain, np.nan, rng),
        "infinite": lambda: _holes(plain, np.inf, rng),
        "huge": lambda: 1e200 * plain,
        "None": lambda: np.where(np.arange(n) == 0, None, plain.astype(object)),
        "mixed": lambda: np.array([("text", 1.5)[i % 2] for i in range(n)], dtype=object),
        "gap in labels": lambda: pd.Series(np.where(np.arange(n) == 0, None, "yes"), dtype=object),
        "dates": lambda: _days(rng, n),
        "too short": lambda: plain[:-1],
        "complex": lambda: plain + 1j,
    }[kind]()


NUMBERS = "normal constant zero large tiny offset outlier integers long booleans"
#: Targets that are fine, that must be refused, and that may be.
TARGETS = {
    HarmonicGPRegressor: (
        [*NUMBERS.split(), "numbers as text", "numbers as objects", "series", "nullable", "frame", "one column"],
        ["gap", "infinite", "huge", "None", "mixed", "labels", "complex", "too short", "dates"],
        ["zero"],
    ),
    HarmonicGPClassifier: (
        ["labels", "labels as categories", "labels as strings", "integers", "booleans", "nullable"],
        ["gap", "infinite", "None", "normal", "constant", "complex", "too short", "gap in labels"],
        ["dates", "mixed"],  # in one row there is nothing mixed
    ),
}


@st.composite
def tables(draw, model, frame):
    n = draw(st.sampled_from([1, 2, 3, 7, 25, 80]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    good, gaps, bad = (sorted(kinds) for kinds in (GOOD, GAPS, BAD))
    if not frame and draw(st.integers(0, 3)):  # an array of numbers; else one of objects
        good, gaps, bad = ([kind for kind in kinds if kind in NUMERIC] for kinds in (good, gaps, bad))
    kinds = draw(st.lists(st.sampled_from(good), min_size=1, max_size=6))
    trouble = draw(st.sampled_from(["none", "gaps", "bad", "wide"]))
    if trouble == "gaps":
        kinds += draw(st.lists(st.sampled_from(gaps), min_size=1, max_size=2))
    elif trouble == "bad":
        kinds.append(draw(st.sampled_from(bad)))
    elif trouble == "wide":
        kinds += ["normal"] * 40
    if draw(st.booleans()):
        kinds.append("duplicate")
    good_targets, bad_targets, other_targets = TARGETS[model]
    target = draw(st.sampled_from(draw(st.sampled_from([good_targets, good_targets, bad_targets, other_targets]))))
    X, columns = {}, []
    for j, kind in enumerate(kinds):
        name = draw(st.sampled_from([f"{kind} {j}", f"{kind} {j}", *NAMES])) if j < 7 else f"{kind} {j}"
        name = name if name not in X else f"{kind} {j}"
        if kind == "duplicate":
            X[name] = X[columns[0][0]]
        else:
            X[name] = pd.Series((GOOD | GAPS | BAD)[kind](rng, n))
        columns.append((name, kind))
    arguments = draw(st.sampled_from(ARGUMENTS[model]))
    imputed = arguments.get("missing") == "impute" and frame
    harmless = ({"mixed"} if n == 1 else set()) | ({"identifiers"} if n < 80 else set())
    refused = [name for name, kind in columns if kind in BAD and kind not in harmless]
    refused += [name for name, kind in columns if kind in GAPS and not imputed and _missing(X[name]).any()]
    refused += [name for name, kind in columns if kind == "duplicate" and columns[0][0] in refused]
    X = pd.DataFrame(X)
    X = X if frame else X.to_numpy()
    described = f"{n} rows, columns {dict(columns)}, target {target}, {arguments}, {'frame' if frame else X.dtype}"
    return Table(X, _targets(target, rng, n), refused, target, target in bad_targets, arguments, described)


COMMON = [
    {},
    {},
    {"missing": "impute"},
    {"missing": "impute", "warp": "quantile"},
    {"dtype": "float32"},
    {"dtype": "float32", "n_inducing": 5, "symmetry": None},
    {"symmetry": Negation([0])},
    {"symmetry": PrincipalNegation(1), "n_inducing": 4, "missing": "impute"},
    {"kernel": "rbf", "n_inducing": 7, "batch_size": 5},
]
ARGUMENTS = {
    HarmonicGPRegressor: [
        *COMMON,
        {"target_transform": "quantile"},
        {"target_transform": "log"},
        {"likelihood": "student_t"},
        {"likelihood": "student_t", "dtype": "float32", "n_inducing": 6},
        {"bound": "elbo", "posterior": "joint"},
    ],
    HarmonicGPClassifier: [*COMMON, {"posterior": "joint", "n_inducing": 6}],
}


# --- what must hold ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def limit(seconds):
    """An error in place of a hang."""

    def late(*_):
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def far(X):
    """The same rows, moved far away in all columns of floating-point numbers."""
    if isinstance(X, pd.DataFrame):
        return X.assign(**{c: far(X[c].to_numpy()) for c in X.columns if X[c].dtype == np.float64})
    if X.dtype.kind != "f":
        return X
    X = X.astype(np.float64)
    spread = X.max(0) - X.min(0)
    return X + 1e6 * np.where(spread > 0, spread, 1.0)


def outcome(model, table):
    """None after a fit with finite predictions, or the error, which must be a clear one."""
    try:
        with limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="The number of unique classes is greater")
            gp = model(max_steps=10, progress=False, **table.arguments).fit(table.X, table.y)
            for rows in (table.X, far(table.X)):
                check_predictions(gp, rows)
    except (ValueError, TypeError) as error:
        return error
    return None


def check(model, table):
    """A good table makes a model; a bad one an error that names the column, or the target."""
    error = outcome(model, table)
    if error is None:
        assert not table.refused, f"{table.refused} should have been refused"
        assert not table.bad_target, f"a target of the kind {table.target!r} should have been refused"
        return
    message = str(error)
    assert isinstance(error, ValueError), repr(error)
    if table.bad_target or table.target in TARGETS[model][2]:
        return  # either may be named: what targets say is tested below
    named = any(name in message or repr(name) in message for name in table.refused)
    assert named or any(words in message for words in UNAVOIDABLE), message


#: Of good columns and a good target: what a transform or a classifier cannot do with them.
UNAVOIDABLE = [
    "positive targets",
    "one class",
    "no column has any values",
]


def check_predictions(gp, rows):
    if isinstance(gp, HarmonicGPClassifier):
        P = gp.predict_proba(rows)
        assert np.isfinite(P).all()
        assert np.allclose(P.sum(1), 1)
        assert set(gp.predict(rows)) <= set(gp.classes_)
        return
    mean, std = gp.predict(rows, return_std=True)
    assert np.isfinite(mean).all(), mean
    assert np.isfinite(std).all(), std
    assert (std >= 0).all()
    assert np.isfinite(gp.predict_quantiles(rows)).all()


@settings(max_examples=EXAMPLES, phases=PHASES)
@given(table=tables(HarmonicGPRegressor, frame=True))
def test_regression_on_frames(table):
    check(HarmonicGPRegressor, table)


@settings(max_examples=EXAMPLES, phases=PHASES)
@given(table=tables(HarmonicGPClassifier, frame=True))
def test_classification_of_frames(table):
    check(HarmonicGPClassifier, table)


@pytest.mark.parametrize("model", [HarmonicGPRegressor, HarmonicGPClassifier], ids=lambda c: c.__name__)
@settings(max_examples=EXAMPLES // 2, phases=PHASES)
@given(data=st.data())
def test_arrays(model, data):
    """Of numbers, or of objects; what must be said of them is tested below."""
    table = data.draw(tables(model, frame=False))
    error = outcome(model, table)
    if table.refused or table.bad_target:
        assert error is not None
    elif table.X.dtype.kind in "biuf" and error is not None and table.target not in TARGETS[model][2]:
        assert any(words in str(error) for words in UNAVOIDABLE), str(error)


# --- one by one -------------------------------------------------------------------------------------------------------

MODELS = [HarmonicGPRegressor, HarmonicGPClassifier]


def rows(n=30):
    X = np.random.default_rng(0).normal(size=(n, 2))
    return X, pd.DataFrame(X, columns=["a", "b"]), (X[:, 0] > 0).astype(float)


def refusal(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model(max_steps=3, progress=False).fit(X, y)
        except (ValueError, TypeError) as error:
            return error
    raise AssertionError("it was taken")


@pytest.mark.parametrize("model", MODELS, ids=lambda c: c.__name__)
def test_shapes_and_containers(model):
    X, frame, y = rows()
    for bad, words in (
        (X[:, 0], "2D"),
        (X[:, :, None], "dim 3"),
        (X[:0], "0 sample"),
        (X[:, :0], "0 feature"),
        (frame[:0], "empty: 0 rows"),
        (frame[[]], "empty: 30 rows, 0 columns"),
        (frame["a"], "2-dimensional"),
        (X + 1j, "Complex"),
        (pd.DataFrame(X, columns=["a", "a"]), "'a'"),
    ):
        error = refusal(model, bad, y[: len(bad)])
        assert isinstance(error, ValueError)
        assert words in str(error)
    sparse = refusal(model, scipy.sparse.csr_matrix(X), y)
    assert isinstance(sparse, TypeError)
    assert "dense" in str(sparse)


@pytest.mark.parametrize("model", MODELS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("fault", ["text", "gap", "infinity", "date"])
def test_arrays_name_the_column_at_fault(model, fault):
    X, _, y = rows()
    X = X.astype(object if fault in ("text", "date") else float)
    X[3, 1] = {"text": "green", "gap": np.nan, "infinity": np.inf, "date": pd.Timestamp("2020-01-01")}[fault]
    error = refusal(model, X, y)
    assert isinstance(error, ValueError)
    assert "column 1" in str(error)


@pytest.mark.parametrize("frame", [True, False], ids=["frame", "array"])
@pytest.mark.parametrize("missing", ["None", "gap"])
@pytest.mark.parametrize("model", MODELS, ids=lambda c: c.__name__)
def test_missing_targets_are_refused_and_said_so(model, missing, frame):
    X, table, y = rows()
    y = y.astype(object if missing == "None" else float)
    y[4] = None if missing == "None" else np.nan
    error = refusal(model, table if frame else X, y)
    assert "y " in str(error)
    assert "NaN" in str(error) or "missing" in str(error)


def test_labels_of_mixed_types_are_refused_and_said_so():
    X, frame, y = rows()
    mixed = np.where(y > 0, "yes", y.astype(object))
    for table in (X, frame):
        error = refusal(HarmonicGPClassifier, table, mixed)
        assert isinstance(error, ValueError)
        assert "y " in str(error)


@pytest.mark.parametrize("model", MODELS, ids=lambda c: c.__name__)
def test_arrays_of_dates_are_refused(model):
    days = pd.date_range("2020-01-01", periods=30).to_numpy()
    assert "dates" in str(refusal(model, np.column_stack([days, days[::-1]]), rows()[2]))


def test_targets_that_are_no_numbers_are_refused_and_said_so():
    X, _, y = rows()
    assert "HarmonicGPClassifier" in str(refusal(HarmonicGPRegressor, X, np.where(y > 0, "yes", "no")))
    assert "dates" in str(refusal(HarmonicGPRegressor, X, pd.date_range("2020-01-01", periods=len(X))))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", ["matern32", "rbf"])
@pytest.mark.parametrize("distance", [1e3, 1e10, 1e25, 1e40, 1e200, 1e308])
def test_predictions_at_any_distance(dtype, kernel, distance):
    X, _, y = rows()
    for model in MODELS:
        gp = model(max_steps=3, dtype=dtype, kernel=kernel, progress=False).fit(X, y)
        check_predictions(gp, np.array([[distance, 0.0], [0.3, -distance], [0.1, 0.1]]))


@pytest.mark.parametrize("seed", range(12))
def test_columns_whose_values_nearly_all_coincide(seed):
    # scaled, most values differ by 1e-9 and less: too little for a lengthscale
    rng = np.random.default_rng(seed)
    X = 10.0 ** rng.uniform(-100, 100, (80, 1))
    gp = HarmonicGPRegressor(max_steps=10, progress=False).fit(X, rng.normal(size=80))
    check_predictions(gp, X)


@pytest.mark.parametrize("seed", [0, 1, 11])
def test_quantiles_of_a_target_with_an_outlier(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(25, 40)), rng.normal(size=25)
    y[0] = 1e30
    check_predictions(HarmonicGPRegressor(max_steps=10, target_transform="quantile", progress=False).fit(X, y), X)


@pytest.mark.parametrize("frame", [True, False], ids=["frame", "array"])
@pytest.mark.parametrize("model", MODELS, ids=lambda c: c.__name__)
def test_missing_values_of_nullable_types_in_targets(model, frame):
    X, table, y = rows()
    for dtype in ("Int64", "Float64", "boolean", "string", "category"):
        if dtype in ("string", "category") and model is HarmonicGPRegressor:
            continue
        target = pd.Series(y > 0 if dtype == "boolean" else y).astype(dtype)
        target[4] = pd.NA
        error = refusal(model, table if frame else X, target)
        assert isinstance(error, ValueError)
        assert "y " in str(error)
        assert "NaN" in str(error) or "missing" in str(error)


def test_an_example_takes_seconds():
    """The slowest that the draws can make: many columns, each idle or odd, and an iterative likelihood."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"{kind} {i}": make(rng, 80) for i in range(3) for kind, make in GOOD.items()})
    start = time.perf_counter()
    gp = HarmonicGPRegressor(max_steps=10, likelihood="student_t", progress=False).fit(X, rng.standard_t(2, 80))
    check_predictions(gp, X)
    assert time.perf_counter() - start < SECONDS
