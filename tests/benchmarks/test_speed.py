"""The suites of timings: what they count, what they say; timings themselves are not tested."""

from __future__ import annotations

import json

import gpytorch
import numpy as np
import pytest
import torch

from benchmarks import gram, growth, images, memory, page, quality, step
from benchmarks._data import standardised_fold
from benchmarks._rates import Rates, Timing, interleaved, publish
from benchmarks.peers import Task
from experiments import flip_mnist
from experiments._training import scaled
from harmonicgp.actions import Negation

pytestmark = pytest.mark.usefixtures("_single")


@pytest.fixture
def _single():
    torch.set_default_dtype(torch.float32)  # the suites' own


def test_functions_are_timed_in_turn():
    calls = []
    found = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2)
    assert calls == ["a", "b"] * 3  # one to warm up
    assert 0 <= found["a"].low <= found["a"].median <= found["a"].high
    assert str(Timing(0.0123, 0.01, 0.02)) == "12.3 ms (10 to 20)"
    assert str(Timing(2.0, 1.0, 3.0)) == "2 s (1 to 3)"


def test_results_are_kept_where_a_folder_is_given(tmp_path, capsys):
    publish("one", "## One", {"x": 1}, tmp_path / "new")
    assert json.loads((tmp_path / "new" / "one.json").read_text()) == {"x": 1}
    assert (tmp_path / "new" / "one.md").read_text() == "## One\n"
    assert "## One" in capsys.readouterr().out


def test_gram_runs_and_both_paths_agree(monkeypatch, tmp_path):
    monkeypatch.setattr(gram, "machine_rates", lambda: Rates(1e9, 1e9, 1e9))
    monkeypatch.setattr(gram, "CASES", [(Negation.strided(4, 2), 4, 30, 1.0, "complex")])
    assert gram.main(["--output", str(tmp_path)]) == 0
    (case,) = json.loads((tmp_path / "gram.json").read_text())["cases"]
    assert case["relative difference"] < 1e-5
    assert case["evaluations per second"] == pytest.approx(4 * 900 / case["seconds"]["forward"][0])


def test_the_limit_counts_operations():
    parts = step.limit(Rates(1.0, 1.0, 1.0), T=2, m=3, B=5)
    assert parts["products and solves"] == 6 * 2 * 9 * 5 + 2 * 2 * 27
    assert parts["factorisations"] == 2 * 2 * 27 / 3
    assert parts["kernels"] == 2 * 2 * 3 * 8


def test_steps_of_ours_and_of_the_peer_learn():
    X, y = step.data(400, 3)
    features = step.harmonic(X, 20, 2)
    before = features.Z.detach().clone()
    ours, theirs = step.our_step(features, X, y, batch=64), step.svgp_step(X, y, 20, batch=64)
    for _ in range(3):
        ours()
        theirs()
    assert not torch.equal(features.Z, before)


def test_exponents_are_slopes_of_logarithms():
    assert growth.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)


def test_verdicts_of_quality(monkeypatch):
    monkeypatch.setattr(quality, "machine_rates", lambda: Rates(1e9, 1e9, 1e9))

    def point(seconds, nll):
        return {"at": "", "seconds": seconds, "nll": nll, "rmse": 1.0}

    peer = {"set": "kin40k", "model": "adam", "budget": None, "points": [point(300.0, 0.1), point(600.0, -0.2)]}
    ours = {"set": "kin40k", "model": "ours", "budget": 10.0, "points": [point(10.0, 0.0)]}
    assert "was not reached" in quality.page([peer, ours])
    better = {"set": "kin40k", "model": "ours", "budget": 20.0, "points": [point(20.0, -0.3)]}
    assert "is passed in 20.0 s (-0.300): 1/30 of its time" in quality.page([peer, ours, better])


@pytest.mark.parametrize("natural", [False, True])
def test_the_peer_is_looked_at_as_it_trains(natural):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    fold = standardised_fold(*Task(X, X[:, 0], np.arange(60) < 10))
    points = list(quality.svgp(fold, natural, passes=2))
    assert [p["at"] for p in points] == ["2 pass, 2 steps"]
    looked = list(quality.svgp(fold, natural, passes=None, most=0.3, every=0.1))
    assert len(looked) >= 2
    assert all(np.isfinite(p["nll"]) for p in looked)


def test_pages_are_put_together(tmp_path, capsys):
    assert page.main(["--output", str(tmp_path)]) == 1
    assert "holds no results" in capsys.readouterr().err
    publish("step", "## A step", {}, tmp_path)
    publish("gram", "## Gram", {}, tmp_path)
    assert page.main(["--output", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks.md").read_text()
    assert text.startswith("# Benchmarks")
    assert text.index("## Gram") < text.index("## A step")


def test_memory_counts_what_must_be_held():
    held, rise = memory.measure(1, 20, 32)
    assert held == 8 * 3 * 2 * 400 + 4 * (2 * 20 * 32 + 20 * 8)
    assert rise >= 0


def test_a_step_on_images_takes_a_step():
    data = images.images(40)
    name, (_, make) = next(iter(flip_mnist.models(data, data, 5).items()))
    features = make(scaled(gpytorch.kernels.RBFKernel(), data.X), data.X)
    step = images.step_of(features, data)
    before = features.Z.detach().clone()
    step()
    assert name == "flips 4 x 5"
    assert not torch.equal(before, features.Z)
