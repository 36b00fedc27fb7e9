"""What follows from options and rows: precision, cost, time, and the columns that a model uses."""

from __future__ import annotations

import math

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator

from harmonicgp.actions import Longitude, Negation, Product, Translation
from harmonicgp.kernels import GlobeKernel
from harmonicgp.likelihoods import SoftmaxBoundLikelihood
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions
from harmonicgp.symmetry.settings import ModelSettings, gradients_enabled, raw_columns
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, RegressionPreprocessing
from harmonicgp.tables.rows import ModelRows
from tests.symmetry.common import prepared


def of_size(n, targets=1, **arguments):
    """Settings of a regression of n rows."""
    few = np.arange(6.0)
    preprocessing, _ = RegressionPreprocessing.fit(few[:, None], np.column_stack([few] * targets), BaseEstimator())
    return ModelSettings.of(RegressionOptions(**arguments), preprocessing, n, 100.0)


def of_classes(n, classes, **arguments):
    """Settings of a classification of n rows."""
    few = np.arange(12.0)
    preprocessing, _ = ClassificationPreprocessing.fit(few[:, None], few.astype(int) % classes, BaseEstimator())
    return ModelSettings.of(ModelOptions(**arguments), preprocessing, n, 100.0)


@pytest.mark.parametrize(
    ("n", "arguments", "dtype", "small"),
    [
        (2000, {}, torch.float64, True),
        (2001, {}, torch.float32, False),
        (500, {"likelihood": "student_t"}, torch.float64, True),
        (501, {"likelihood": "student_t"}, torch.float32, True),
        (2001, {"dtype": "float64"}, torch.float64, False),
        (9, {"dtype": "float32"}, torch.float32, True),
    ],
    ids=str,
)
def test_few_rows_run_in_double_precision(n, arguments, dtype, small):
    settings = of_size(n, **arguments)
    assert (settings.dtype, settings.small) == (dtype, small)
    assert {parameter.dtype for parameter in settings.likelihood().parameters()} == {dtype}
    assert settings.likelihood() is not settings.likelihood()  # each fit begins with its own


def test_only_gaussian_outputs_share_a_precision():
    assert of_size(50, targets=4).n_precisions == 1
    assert of_size(50, likelihood="student_t").n_precisions * 4 == of_size(50, 4, likelihood="student_t").n_precisions
    assert [of_classes(50, classes).n_precisions // 3 for classes in (2, 3, 4)] == [1, 3, 4]  # latent functions
    softmax = of_classes(50, 3).likelihood()
    assert isinstance(softmax, SoftmaxBoundLikelihood)
    assert (of_classes(500, 3).dtype, of_classes(501, 3).dtype) == (torch.float64, torch.float32)


def test_auto_leaves_it_to_a_search():
    settings = of_size(50)
    assert (settings.warp, settings.family) == (None, None)
    assert [of_size(50, warp=warp).warp for warp in (None, "quantile")] == [False, True]
    assert [of_size(50, posterior=family).family for family in ("block", "joint")] == ["block", "joint"]


def test_what_depends_on_the_noise():
    gaussian, student_t, classes = of_size(50), of_size(50, likelihood="student_t"), of_classes(50, 2)
    assert [s.bound for s in (gaussian, of_size(50, bound="elbo"), student_t, classes)] == [
        "tight",
        "elbo",
        "elbo",
        "elbo",
    ]
    assert [s.is_gaussian for s in (gaussian, student_t, classes)] == [True, False, False]
    assert [s.estimator for s in (gaussian, classes)] == ["HarmonicGPRegressor", "HarmonicGPClassifier"]
    assert [s.requested_neighbours for s in (gaussian, of_size(50, neighbours=7), student_t, classes)] == [
        "auto",
        7,
        0,
        0,
    ]
    assert [s.neighbours for s in (of_size(50, neighbours=7), of_size(2001, neighbours=7))] == [0, 7]


def test_a_share_of_the_budget_is_over_at_a_time():
    assert of_size(50).until(0.1) == math.inf
    settings = of_size(50, time_budget=20.0)
    assert (settings.until(), settings.until(0.3)) == (120.0, 106.0)  # it began at 100


@pytest.mark.parametrize(
    ("symmetry", "kernel", "expected"),
    [
        ("auto", "matern32", []),
        (Negation([0]), "matern32", []),
        (Translation(2, 24.0, 6), "matern32", [2]),
        (Longitude(6, axis=1), "matern32", [1]),
        (Product(Negation([0]), Translation(3, 7.0, 7)), "matern32", [3]),
        (None, gk.ScaleKernel(gk.RBFKernel()), []),
        (None, gk.ScaleKernel(gk.RBFKernel(active_dims=[0]) * gk.PeriodicKernel(active_dims=[3])), [3]),
        (None, gk.ScaleKernel(GlobeKernel(gk.RBFKernel(), active_dims=[2, 1])), [1, 2]),
        (Translation(0, 24.0, 6), gk.PeriodicKernel(active_dims=[2]), [0, 2]),
        (None, gk.PeriodicKernel(), [0, 1, 2, 3]),
    ],
)
def test_columns_whose_units_mean_something_stay_as_they_are(symmetry, kernel, expected):
    assert raw_columns(symmetry, kernel, 4) == expected


def test_what_is_named_by_number_keeps_its_number():
    """Constant columns and repeats are left out only where neither an action nor a kernel counts columns."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 80))
    X = np.column_stack((np.ones(80), a, 2 * a + 1, b))
    rows = ModelRows(X, np.zeros((1, 80)), None, None)

    def used(by_number=False, **arguments):
        options = RegressionOptions(**arguments)
        preprocessing, _ = RegressionPreprocessing.fit(X, a, BaseEstimator(), columns=options.columns)
        return ModelSettings.of(options, preprocessing, len(rows), 0.0).columns_of(rows, by_number)

    assert used().used == (1, 3)
    assert used(symmetry=None).repeats == (2,)
    assert used(by_number=True).used == (0, 1, 2, 3)
    assert used(symmetry=Negation([3])).used == (0, 1, 2, 3)
    assert used(kernel=gk.RBFKernel()).used == (0, 1, 2, 3)
    assert used(symmetry=Translation(3, 24.0, 6), columns={3: ("periodic", 24.0)}).raw == {3}
    assert used(kernel=gk.PeriodicKernel(active_dims=[1])).raw == {1}
    own = type("Own", (gk.Kernel,), {})()  # what it reads is not known
    assert used(kernel=own).raw == set()
    assert used(kernel=own, columns={1: ("periodic", 24.0)}).raw == {1}
    pixels = used(symmetry=Negation([3]), columns=("image", (2, 2)))
    assert (pixels.used, pixels.image) == ((0, 1, 2, 3), (2, 2))


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_on_inside_and_as_before_outside(off):
    x = torch.ones(2, requires_grad=True)
    with off():
        with gradients_enabled():
            (slope,) = torch.autograd.grad((x**3).sum(), x)
            assert not slope.is_inference()
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(slope, [3.0, 3.0])


def test_the_seed_is_the_random_state():
    (_, one), (_, same), (_, other) = (prepared(20, random_state=state) for state in (1, 1, 2))
    assert one.seed == same.seed != other.seed
