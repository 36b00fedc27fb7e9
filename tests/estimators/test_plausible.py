"""False values in well-formed model files: each is refused in one line."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from harmonicgp import load_model
from harmonicgp.estimators.saving import FORMAT
from harmonicgp.io.container import ModelFileError, read_container, write_container
from tests.estimators.common import regressor, table


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.hgp"
    regressor(n_inducing=8, symmetry=None, target_transform="quantile", warp="quantile").fit(*table(40)).save(path)
    return read_container(path, "model", FORMAT)


def refused(path, header, tensors):
    write_container(path, "model", FORMAT, header, tensors)
    with pytest.raises(ModelFileError, match="not a model that this version of harmonicgp can read") as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name",
    [
        "target.centre",
        "target.scale",
        "target.warp.0.scores",
        "likelihood.noise_covar.raw_noise",
        "likelihood.noise_covar.raw_noise_constraint.lower_bound",
        "kernel.raw_outputscale",
        "posterior.mean.0",
        "posterior.precision.0",
        "inputs.centre",
        "inputs.scale",
        "Z",
    ],
)
def test_numbers_that_are_not_finite(original, tmp_path, name, value):
    tensor = original.tensors[name].clone()
    tensor.view(-1)[0] = value
    refused(tmp_path / "m.hgp", original.header, original.tensors | {name: tensor})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("target.scale", lambda t: 0 * t),
        ("inputs.scale", lambda t: -t),
        ("inputs.order", lambda t: t + 7),
        ("inputs.centre", lambda t: t[:-1]),
        ("target.centre", lambda t: t[:0]),
        ("target.warp.0.scores", lambda t: t.flip(0)),
        ("posterior.mean.0", lambda t: t[..., :-1]),
        ("posterior.precision.0", lambda t: -t),
        ("likelihood.noise_covar.raw_noise", lambda t: t + 1e6),
        ("likelihood.noise_covar.raw_noise_constraint.lower_bound", lambda t: t - 1),
        ("Z", lambda t: t[None, None]),
    ],
)
def test_implausible_values(original, tmp_path, name, change):
    tensor = change(original.tensors[name].clone()).contiguous()
    refused(tmp_path / "m.hgp", original.header, original.tensors | {name: tensor})


FALSE_VALUES = (math.inf, math.nan, 1e300, -3, "x", None, [], True)
PLAIN = ("n_features_in_", "_seed", "timings_", "ranges_", "history_")
#: A seed may be negative, and a file may be without ranges or steps.
ALLOWED = (("_seed", -3), ("ranges_", None), ("history_", []))


@pytest.mark.parametrize(("name", "value"), [pair for pair in product(PLAIN, FALSE_VALUES) if pair not in ALLOWED])
def test_plain_values_of_other_types(original, tmp_path, name, value):
    header = original.header | {"plain": original.header["plain"] | {name: value}}
    refused(tmp_path / "m.hgp", header, original.tensors)


def test_integers_that_are_infinite_elsewhere(original, tmp_path):
    for part, value in (("neighbours", math.inf), ("calibration", math.inf)):
        refused(tmp_path / "m.hgp", original.header | {part: value}, original.tensors)
    posterior = original.header["posterior"] | {"stacks": math.inf}
    refused(tmp_path / "m.hgp", original.header | {"posterior": posterior}, original.tensors)


def test_the_file_as_it_was_written_is_read(original, tmp_path):
    write_container(tmp_path / "m.hgp", "model", FORMAT, original.header, original.tensors)
    mean, std = load_model(tmp_path / "m.hgp").predict(table(5)[0], return_std=True)
    assert torch.isfinite(torch.as_tensor([*mean, *std])).all()
