"""The arguments of the estimators as values."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature

import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.symmetry.options import (
    ModelOptions,
    RegressionOptions,
    bound_of,
    check_options,
    fresh_seed,
    is_gaussian,
    make_schedule,
    pick_device,
)


@pytest.mark.parametrize(
    ("options", "estimator"), [(ModelOptions, HarmonicGPClassifier), (RegressionOptions, HarmonicGPRegressor)]
)
def test_options_are_the_arguments_of_the_estimators(options, estimator):
    arguments = {name: each.default for name, each in signature(estimator).parameters.items()}
    assert {field.name: field.default for field in fields(options)} == arguments


def test_options_are_checked():
    check_options(ModelOptions())
    for arguments, words in (
        ({"device": "tpu"}, "device"),
        ({"warp": "log"}, "warp"),
        ({"n_inducing": 0}, "n_inducing"),
    ):
        with pytest.raises(ValueError, match=words):
            check_options(ModelOptions(**arguments))
    assert pick_device("cpu").type == "cpu"


def test_the_tight_bound_is_of_gaussian_noise():
    assert bound_of(RegressionOptions()) == "tight"
    assert bound_of(RegressionOptions(bound="elbo")) == "elbo"
    assert bound_of(RegressionOptions(likelihood="student_t")) == "elbo"
    assert bound_of(ModelOptions()) == "elbo"
    assert is_gaussian(RegressionOptions())
    assert not is_gaussian(RegressionOptions(likelihood="student_t"))
    assert not is_gaussian(ModelOptions())


def test_the_schedule_is_that_of_the_options():
    told = {
        "max_steps": 7,
        "batch_size": 11,
        "learning_rate": 0.3,
        "time_budget": 5.0,
        "validation_fraction": 0.2,
        "early_stopping": False,
        "progress": False,
    }
    schedule = make_schedule(ModelOptions(**told))
    assert {name: getattr(schedule, name) for name in told} == told
    changed = make_schedule(ModelOptions(**told), max_steps=9, keep_out=True)
    assert (changed.max_steps, changed.keep_out, changed.batch_size) == (9, True, 11)


@pytest.mark.parametrize(
    ("arguments", "noise_std", "words"),
    [
        ({"likelihood": "laplace"}, None, "likelihood must be one of 'gaussian', 'student_t'; got 'laplace'"),
        ({"bound": "upper"}, None, "bound must be one of"),
        ({"likelihood": "student_t", "target_transform": "log"}, None, "no mean"),
        ({"calibration": "conformal", "validation_fraction": 0}, None, "needs held-out rows"),
        ({"likelihood": "student_t"}, 1.0, "noise_std needs"),
        ({"target_transform": "quantile"}, 1.0, "noise_std needs"),
    ],
    ids=str,
)
def test_arguments_of_a_regression_that_do_not_go_together(arguments, noise_std, words):
    check_options(RegressionOptions(), noise_std=1.0)
    with pytest.raises(ValueError, match=words):
        check_options(RegressionOptions(**arguments), noise_std)


def test_a_joint_posterior_is_as_large_as_memory_allows():
    most = MAX_DENSE // 4
    arguments = {"symmetry": Negation([[0], [1]]), "posterior": "joint"}
    check_options(ModelOptions(n_inducing=most, **arguments))
    with pytest.raises(ValueError, match=f"at most {most} inducing points a block"):
        check_options(ModelOptions(n_inducing=most + 1, **arguments))
    check_options(ModelOptions(n_inducing=most + 1, **(arguments | {"posterior": "block"})))


def test_seeds():
    assert fresh_seed(3) == fresh_seed(np.int64(3)) == fresh_seed(np.random.RandomState(3)) != fresh_seed(4)
    state = np.random.RandomState(3)
    assert fresh_seed(state) != fresh_seed(state)  # a state goes on
    assert 0 <= fresh_seed(None) < 2**31


@pytest.mark.parametrize("available", [False, True])
def test_devices(available, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type == ("cuda" if available else "cpu")
    if available:
        assert pick_device("cuda").type == "cuda"
    else:
        with pytest.raises(ValueError, match="needs a CUDA device"):
            pick_device("cuda")
