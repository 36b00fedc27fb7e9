"""The arguments of the estimators as values."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature

import pytest

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, check_options, pick_device


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
