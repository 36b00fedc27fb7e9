"""A fit makes every tensor on its own device, whatever the default device is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation
from tests.estimators.common import assert_same, classifier, labels, outputs, regressor, table

CASES = {
    "exact": (regressor, {}),
    "one block": (regressor, {"symmetry": None, "n_inducing": 9}),
    "blocks": (regressor, {"symmetry": Negation([[0], [1]]), "n_inducing": 9}),
    "student": (regressor, {"likelihood": "student_t", "n_inducing": 9}),
    "two classes": (classifier, {"n_inducing": 9}),
    "three classes": (classifier, {"n_inducing": 9}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_default_device_does_not_matter(name):
    make, arguments = CASES[name]
    X, y = table(60)
    y = labels(X, 2 if name == "two classes" else 3) if make is classifier else y
    expected = outputs(make(**arguments).fit(X, y), X)
    torch.set_default_device("meta")
    try:
        assert_same(outputs(make(**arguments).fit(X, y), X), expected)
    finally:
        torch.set_default_device(None)


def test_the_device_is_checked():
    X, y = table(20)
    with pytest.raises(ValueError, match="device must be one of"):
        regressor(device="tpu").fit(X, y)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="needs a CUDA device"):
            regressor(device="cuda").fit(X, y)
    np.testing.assert_array_equal(regressor(device="auto").fit(X, y).predict(X), regressor().fit(X, y).predict(X))
