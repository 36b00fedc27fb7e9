"""The arguments of the estimator as one checked value."""

from __future__ import annotations

import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.options import KERNELS, RULES, Options
from harmonicgp.kernels.profiles import NAMED_PROFILES
from tests.globe.common import options


def test_every_argument_has_a_rule():
    free = {"mean", "random_state", "progress"}  # the mean is checked when it is read
    assert RULES.keys() | free == HarmonicGPGlobe().get_params().keys()
    assert set(KERNELS) <= NAMED_PROFILES.keys()
    assert options(n_inducing=7.0).n_inducing == 7
    assert options().t_max is None
    assert options(device="auto").torch_device().type in ("cpu", "cuda")
    for name in RULES:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            options(**{name: -1.5})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("kernel", ["auto", *KERNELS], ["cubic", 3, None]),
        ("n_inducing", ["auto", 1, 7.0], [0, 2.5, True, "many", None]),
        ("t_max", ["auto", 0], [-1, 0.5, float("nan")]),
        ("lengthscale", [None, 1, 1e-3], [0, -1.0, float("inf"), "1"]),
        ("memory", [1e9], [0, None]),
        ("by", [None, "time"], [3]),
        ("max_evaluations", [1, 3.0], [0, "auto"]),
        ("n_draws", [2], [1]),
        ("device", ["cpu", "cuda", "auto"], ["tpu"]),
    ],
)
def test_values_that_an_argument_may_have(name, good, bad):
    for value in good:
        found = getattr(options(**{name: value}), name)
        assert found == (None if name in ("n_inducing", "t_max") and value == "auto" else value)
    for value in bad:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            options(**{name: value})


def test_what_is_given_is_fixed_and_old_files_have_no_device():
    assert options().fixed == (False, False, False)
    assert options(lengthscale=0.5, noise_level=1.0).fixed == (True, False, True)
    arguments = HarmonicGPGlobe().get_params()
    del arguments["device"]
    assert Options.of(arguments).torch_device().type == "cpu"
