"""The course of a fit: how share, batches, early stopping and time run, and what a fit keeps of them."""

from __future__ import annotations

import math
import time

import gpytorch
import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.symmetry import search
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel


def low_level(n=400, dtype=torch.float64, callbacks=(), likelihood=None, target=None, **plan):
    X, y = data(n, 2)
    features = HarmonicFeatures(make_kernel().to(dtype), Negation(), X[:10].to(dtype))
    y = y if target is None else target(y)
    likelihood = (likelihood or gpytorch.likelihoods.GaussianLikelihood()).to(dtype)
    schedule = Schedule(**({"max_steps": 40, "batch_size": 64} | plan))
    return fit(features, likelihood, X.to(dtype), y.to(dtype), schedule=schedule, callbacks=callbacks)


def table(n=2500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.normal(size=n)


def test_easy_data_stop_early_and_are_learned_all_the_same():
    X, _ = table(8000)
    y = X[:, 0] + np.random.default_rng(1).normal(size=len(X))
    arguments = {"symmetry": None, "n_inducing": 20, "progress": False}
    early = HarmonicGPRegressor(**arguments).fit(X, y)
    late = HarmonicGPRegressor(**arguments, early_stopping=False).fit(X, y)
    assert late.n_steps_ == 400
    assert 80 < early.n_steps_ < 360
    assert early.score(X, X[:, 0]) > 0.98
    assert early.elbo_ > late.elbo_ - 0.05
    watched = [record["validation"] for record in early.history_ if "validation" in record]
    assert len(watched) == early.n_steps_ // 16
    assert not any("validation" in record for record in late.history_)


def test_early_stopping_of_a_classifier_and_of_whole_batches():
    X, _ = table()
    y = X[:, 0] + np.random.default_rng(1).normal(size=len(X)) > 0
    arguments = {"symmetry": None, "n_inducing": 10, "batch_size": 128, "progress": False}
    model = HarmonicGPClassifier(max_steps=200, **arguments).fit(X, y)
    assert 40 < model.n_steps_ < 200
    assert model.score(X, X[:, 0] > 0) > 0.95
    few = HarmonicGPClassifier(max_steps=200, **arguments).fit(X[:300], y[:300])  # one batch, nothing held out
    assert 40 < few.n_steps_ < 200
    assert few.validation_ is None


def test_history_tells_steps_bounds_and_seconds():
    result = low_level(max_steps=25, early_stopping=True)
    assert [record["step"] for record in result.history] == list(range(1, 26))
    assert all(math.isfinite(record["bound"]) and record["bound"] > -100 for record in result.history)
    seconds = [record["seconds"] for record in result.history]
    assert seconds == sorted(seconds)
    assert [record["step"] for record in result.history if "validation" in record] == [4, 8, 12, 16, 20, 24]
    assert set().union(*result.history) == {"step", "bound", "seconds", "validation"}
    assert set(result.seconds) == {"train", "finish"}


def test_bounds_of_the_history_are_those_of_the_model():
    """With all rows in every step the last bound is just under what the closed form gives."""
    result = low_level(300, batch_size=300, max_steps=60, refine=False, learning_rate=1e-9)
    assert result.history[-1]["bound"] == pytest.approx(result.bound, abs=1e-6)


@pytest.mark.parametrize("model", [HarmonicGPRegressor, HarmonicGPClassifier], ids=lambda c: c.__name__)
@pytest.mark.parametrize("n", [100, 2500])
def test_no_steps_still_make_a_model(model, n):
    X, y = table(n)
    y = y if model is HarmonicGPRegressor else y > 0.5
    gp = model(symmetry=None, n_inducing=30, max_steps=0).fit(X, y)
    assert gp.history_ == []
    assert gp.n_steps_ == 0
    assert np.isfinite(gp.elbo_)
    assert gp.score(X, y) > 0.5  # the posterior is that of the starting values


def test_callbacks_stop_and_all_are_called():
    calls = {"first": 0, "second": 0}

    def first(record):
        calls["first"] += 1
        return record["step"] == 5

    def second(record):
        calls["second"] += 1
        return "nonsense"  # only True stops

    result = low_level(callbacks=[first, second])
    assert len(result.history) == calls["first"] == calls["second"] == 5
    assert len(low_level(callbacks=[lambda record: np.bool_(record["step"] == 3)]).history) == 3
    X, y = table(200)
    for model, target in ((HarmonicGPRegressor, y), (HarmonicGPClassifier, y > 0)):
        gp = model(callbacks=[lambda record: record["step"] >= 4]).fit(X, target)
        assert gp.n_steps_ == 4


def test_an_error_in_a_callback_comes_through():
    def broken(record):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        low_level(callbacks=[broken])


def parts(gp):
    posterior = gp.model_.predictor.posterior
    tensors = [*gp.model_.predictor.features.state_dict().values(), *gp.likelihood_.state_dict().values()]
    return [t.tolist() for t in (*tensors, *posterior.means, *posterior.precisions)]


@pytest.fixture
def brief_search(monkeypatch):
    sizes = ((600, 16, 8, 128), (900, 24, 8, 128), (900, 24, 16, 128))
    monkeypatch.setattr(search, "ROUNDS", tuple(search.TrialRound(*size) for size in sizes))


@pytest.mark.parametrize("model", [HarmonicGPRegressor, HarmonicGPClassifier], ids=lambda c: c.__name__)
def test_one_seed_one_model_bit_for_bit(model, brief_search):
    X, y = table()
    y = y if model is HarmonicGPRegressor else np.digitize(y, [0.0, 1.0])
    first, second = (model(max_steps=3, batch_size=256, n_inducing=40).fit(X, y) for _ in range(2))
    assert first.symmetry_.table == second.symmetry_.table
    assert len(first.symmetry_.table) > 4
    assert parts(first) == parts(second)
    assert first.elbo_ == second.elbo_
    if model is HarmonicGPRegressor:
        assert np.array_equal(first.predict(X), second.predict(X))
    else:
        assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    other = model(max_steps=3, batch_size=256, n_inducing=40, random_state=1).fit(X, y)
    assert parts(other) != parts(first)


@pytest.mark.slow
@pytest.mark.parametrize("model", [HarmonicGPRegressor, HarmonicGPClassifier], ids=lambda c: c.__name__)
def test_one_seed_one_model_with_all_defaults(model):
    X, y = table()
    y = y if model is HarmonicGPRegressor else y > 0.5
    first, second = (model(max_steps=5).fit(X, y) for _ in range(2))
    assert first.symmetry_.table == second.symmetry_.table
    assert parts(first) == parts(second)
    assert first.elbo_ == second.elbo_


def test_the_state_of_the_generators_does_not_matter_and_is_left_alone():
    X, y = table()
    arguments = {"symmetry": Rotation((0, 1), 3), "n_inducing": 10, "max_steps": 5, "batch_size": 256}
    first = HarmonicGPRegressor(**arguments).fit(X, y)
    torch.manual_seed(123)
    np.random.seed(321)  # noqa: NPY002
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    second = HarmonicGPRegressor(**arguments).fit(X, y)
    assert parts(first) == parts(second)
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    "options", [{"neighbours": 0}, {"neighbours": 10}, None], ids=["alone", "neighbours", "classes"]
)
def test_float32_agrees_with_float64(options):
    """Within a hundredth of a standard deviation of y, or of one in probability."""
    X, y = table()
    model, y = (HarmonicGPClassifier, y > 0.5) if options is None else (HarmonicGPRegressor, 100 + 7 * y)
    arguments = {"symmetry": Negation([[0], [1]]), "n_inducing": 24, "max_steps": 60, "batch_size": 256} | (
        options or {}
    )
    single, double = (model(dtype=dtype, **arguments).fit(X, y) for dtype in ("float32", "float64"))
    # with neighbours a search by held-out rows follows, whose steps rounding can turn
    assert abs(single.elbo_ - double.elbo_) < (5e-2 if arguments.get("neighbours") else 1e-2)
    if options is not None:
        (mean, std), (mean64, std64) = (gp.predict(X, return_std=True) for gp in (single, double))
        assert np.abs(mean - mean64).max() < 0.05 * y.std()
        assert np.sqrt(np.mean((mean - mean64) ** 2)) < 0.01 * y.std()
        assert np.abs(std / std64 - 1).max() < 0.05
    else:
        assert np.abs(single.predict_proba(X) - double.predict_proba(X)).mean() < 0.01


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_time_budget_cuts_a_fit_short_and_leaves_a_model():
    X, y = table(3000)
    start = time.perf_counter()
    gp = HarmonicGPRegressor(symmetry=None, time_budget=2.0, max_steps=100_000, early_stopping=False).fit(X, y)
    assert time.perf_counter() - start < 8  # the machine may be busy
    assert 0 < gp.n_steps_ < 100_000
    assert gp.score(X, y) > 0.5


def test_a_budget_too_short_for_anything_leaves_a_model():
    X, y = table(3000)
    result = HarmonicGPRegressor(symmetry=None, n_inducing=20, time_budget=1e-6).fit(X, y)
    assert result.n_steps_ <= 2
    assert np.isfinite(result.predict(X)).all()
    features = SparseFeatures(make_kernel(), torch.from_numpy(X[:10]))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    plan = Schedule(time_budget=1e-6)
    assert len(fit(features, likelihood, torch.from_numpy(X), torch.from_numpy(y), schedule=plan).history) == 1


@pytest.mark.slow
@pytest.mark.parametrize("budget", [5.0, 15.0, 40.0])
@pytest.mark.parametrize("model", [HarmonicGPRegressor, HarmonicGPClassifier], ids=lambda c: c.__name__)
def test_a_time_budget_is_kept_on_twenty_thousand_rows(model, budget):
    X, y = table(20_000)
    X = np.column_stack([X, np.random.default_rng(5).normal(size=(len(X), 5))])
    y = y if model is HarmonicGPRegressor else y > 0.5
    start, busy = time.perf_counter(), time.process_time()
    gp = model(time_budget=budget).fit(X, y)
    seconds, worked = time.perf_counter() - start, time.process_time() - busy
    passed = f"{seconds:.2f} s passed, {worked:.2f} s worked"
    print(f"{model.__name__}, {budget:g} s: {passed}, {gp.n_steps_} steps, {gp.timings_}")
    # others may use the machine too: what counts is the work done, which on one thread is at most the time passed
    assert min(seconds, worked) < 1.1 * budget
    assert gp.score(X, y) > 0.5


def test_a_round_of_which_nothing_comes_leaves_the_one_before(brief_search, monkeypatch):
    trial, rounds = search.run_trial, []

    def failing(data, candidate, trials, stage, *rest):
        row = trial(data, candidate, trials, stage, *rest)
        rounds.append(stage)
        return row if stage is search.ROUNDS[0] else row | {"bound": None, "density": None}

    monkeypatch.setattr(search, "run_trial", failing)
    X, y = table()
    gp = HarmonicGPRegressor(max_steps=3, batch_size=256, n_inducing=20).fit(X, y)
    assert search.ROUNDS[1] in rounds
    assert "no short fit" not in gp.symmetry_.reason
    (chosen,) = (row for row in gp.symmetry_.table if row["chosen"])
    assert chosen["round"] == 1
    assert chosen["bound"] is not None
