"""From rows and settings to a model: its size, its course, its cost, and a fit that was killed."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator

from harmonicgp.actions import Negation, Rotation
from harmonicgp.estimators import fitting
from harmonicgp.estimators.fitting import fit_model
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.cost import finish_cost, step_cost
from harmonicgp.symmetry.options import RegressionOptions
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.preprocessing import RegressionPreprocessing
from tests.estimators.common import QUICK, regressor, table


def test_a_fit_learns_whatever_is_turned_off_around_it():
    X, y = table(120)
    plain = regressor(max_steps=10).fit(X, y)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            gp = regressor(max_steps=10).fit(X, y)
        assert gp.elbo_ == plain.elbo_
        assert gp.n_steps_ == plain.n_steps_ > 1


def settings_of(n=60, **arguments):
    """Rows of two columns and one target, and the settings of their fit."""
    X, y = table(n, d=2)
    options = RegressionOptions(**(QUICK | arguments))
    preprocessing, rows = RegressionPreprocessing.fit(X, y, BaseEstimator())
    data = preprocessing.model_rows(rows)
    return data, ModelSettings.of(options, preprocessing, len(data), time.perf_counter())


def everything(model):
    """All numbers of a model."""
    tensors = [*model.predictor.features.state_dict().values(), *model.likelihood.state_dict().values()]
    steps = [{name: value for name, value in record.items() if name != "seconds"} for record in model.history]
    return [tensor.tolist() for tensor in tensors], model.elbo, steps


# --- the size and the course of a fit -------------------------------------------------------------------------------------


def test_small_tables_have_a_point_for_each_row_and_no_batches():
    data, settings = settings_of(60, batch_size=16)
    assert fitting._n_inducing(settings, None, Candidate()) == 60
    assert fitting._n_inducing(replace(settings, n_rows=2001), None, Candidate()) < 2001
    plan = fitting._schedule(settings, keep_out=False)
    assert (plan.batch_size, plan.validation_fraction, plan.seed) == (60, 0.0, settings.seed)
    plan = fitting._schedule(settings, keep_out=True)
    assert (plan.batch_size, plan.validation_fraction, plan.keep_out) == (60, 0.1, True)
    plan = fitting._schedule(replace(settings, n_rows=2001), keep_out=False)
    assert (plan.batch_size, plan.validation_fraction) == (16, 0.1)
    model, _ = fit_model(data, settings)
    np.testing.assert_array_equal(model.predictor.features.inducing()[0].detach(), model.inputs.transform(data.X))


@pytest.mark.parametrize("n_rows", [300, 5000, 10**6])
@pytest.mark.parametrize("action", [None, Negation([[0], [1]]), Rotation((0, 1), 5)], ids=repr)
def test_blocks_get_what_one_block_would_cost(n_rows, action):
    """1,024 points in one block, half of them where outputs have precisions of their own, 256 in a small table."""
    _, settings = settings_of(likelihood="student_t")
    for precisions, one_block in ((1, 1024), (3, 512)):
        each = replace(settings, n_rows=n_rows, n_precisions=precisions)
        m = fitting._n_inducing(each, action, Candidate(declared=action))
        batch = min(1024, n_rows)
        allowance = step_cost(None, min(256 if n_rows <= 2000 else one_block, n_rows), batch, "block")
        assert step_cost(action, m, batch, "block", precisions) <= allowance
        assert step_cost(action, m + 1, batch, "block", precisions) > allowance or m == n_rows


def test_a_number_that_is_asked_for_is_taken():
    for symmetry in (None, Negation([0])):
        data, settings = settings_of(60, n_inducing=7, symmetry=symmetry)
        assert fit_model(data, settings)[0].predictor.features.inducing()[0].shape == (7, 2)


def test_little_time_is_for_few_points(monkeypatch):
    _, settings = settings_of(time_budget=10.0)
    big = replace(settings, n_rows=50_000)
    asked = []

    def affordable(seconds, N, steps, batch, device):
        asked.append((N, steps, batch))
        assert 5 < seconds <= 10
        return step_cost(None, 100, batch, "block")

    monkeypatch.setattr(fitting, "affordable", affordable)
    assert fitting._n_inducing(big, None, Candidate()) == 100
    assert asked == [(50_000, QUICK["max_steps"], 1024)]
    assert fitting._schedule(big, keep_out=False).time_budget < 10
    late = replace(big, start=big.start - 100)
    assert fitting._schedule(late, keep_out=False).time_budget == 0.01  # a fit that is late still ends well


@pytest.mark.parametrize("arguments", [{"symmetry": None}, {"symmetry": Negation([0]), "posterior": "joint"}], ids=str)
def test_the_modelled_cost_is_that_of_steps_and_finish(arguments):
    data, settings = settings_of(60, n_inducing=7, early_stopping=False, **arguments)
    model, _ = fit_model(data, settings)
    action, family = model.choice.action, "joint" if "posterior" in arguments else "block"
    assert len(model.history) == QUICK["max_steps"]
    expected = QUICK["max_steps"] * step_cost(action, 7, 60, family) + finish_cost(action, 7, 60)
    assert model.modelled_cost == pytest.approx(expected)


def test_a_model_knows_its_rows():
    data, settings = settings_of(30)
    model, _ = fit_model(data, settings)
    np.testing.assert_array_equal(model.ranges, [[x.min(), x.max()] for x in data.X.T])
    assert model.seed == settings.seed
    assert {"prepare", "search"} <= set(model.timings)


@pytest.mark.parametrize("noise", ["known", "student_t"])
def test_rows_that_are_kept_out_say_nothing(noise):
    """Whatever their targets are, the model is the same; without `keep_out` the final posterior has seen them.

    (Gaussian noise that is learned ends with its level and the scale of f refined on these rows; neighbours are chosen on
    them.)
    """
    likelihood = "gaussian" if noise == "known" else noise
    arguments = {"n_inducing": 8, "symmetry": None, "validation_fraction": 0.2, "neighbours": 0}
    data, settings = settings_of(2100, likelihood=likelihood, **arguments)
    data = replace(data, noise=np.full(2100, 0.01) if noise == "known" else None)
    for keep_out in (True, False):
        model, held_out = fit_model(data, settings, keep_out)
        rows = held_out.rows.numpy()
        assert len(rows) == 420
        target = data.target.copy()
        target[:, rows] += 1.0
        other, _ = fit_model(replace(data, target=target), settings, keep_out)
        assert np.array_equal(other.moments(data.X[:50]), model.moments(data.X[:50])) is keep_out


# --- a fit that is killed -------------------------------------------------------------------------------------------------


def stop(record):
    if record["step"] == 2:
        raise KeyboardInterrupt


def test_a_fit_that_goes_on_does_not_choose_again(tmp_path, monkeypatch):
    arguments = {"n_inducing": 7, "symmetry": Negation([0]), "early_stopping": False}
    straight, _ = fit_model(*settings_of(**arguments))
    folder = tmp_path / "new"
    data, settings = settings_of(checkpoint_dir=folder, callbacks=[stop], **arguments)
    with pytest.raises(KeyboardInterrupt):
        fit_model(data, settings)
    assert (folder / "fit.choice").exists()
    monkeypatch.setattr(fitting, "choose_symmetry", lambda *_: pytest.fail("it chose again"))
    data, settings = settings_of(checkpoint_dir=folder, time_budget=1e3, **arguments)  # more time is no other fit
    model, _ = fit_model(data, settings)
    assert repr(model.choice.action) == repr(Negation([0]))
    assert everything(model) == everything(straight)
    assert not (folder / "fit.choice").exists()
