"""Kernels, likelihoods and features of a table, against formulas and the symmetry that they are made for."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation, Permutation, Product, Rotation, Translation
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.inducing import median_distance
from harmonicgp.likelihoods import SoftmaxBoundLikelihood
from harmonicgp.symmetry.factories import make_class_likelihood, make_features, make_kernel, make_noise
from harmonicgp.tables.inputs import Columns, Inputs

CPU = torch.device("cpu")


def inputs_of(X, kinds=()):
    """Standardised columns but for those of a kind, in the order of the table, and the rows."""
    columns = Columns.as_given(X, None, dict(kinds))
    inputs = Inputs.fit(X, None, columns)
    return inputs, torch.from_numpy(inputs.transform(X))


def mixed_table(n=40):
    """A number, a longitude, a latitude, an hour and two more numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * [1, 1, 1, 1, 5, 0.1]
    X[:, 1], X[:, 2], X[:, 3] = rng.uniform(-180, 180, n), rng.uniform(-80, 80, n), rng.uniform(0, 24, n)
    return inputs_of(X, {1: "longitude", 2: "latitude", 3: ("periodic", 24.0)})


def test_the_kernel_is_the_product_over_kinds():
    """At its start: Matérn 3/2 of numbers and of chords of the globe, and exp(-2 sin^2(pi dt / T)) of hours."""
    inputs, rows = mixed_table()
    kernel = make_kernel("matern32", inputs, None, rows, 0)
    x = rows.numpy()

    def matern(points, scale):
        r = np.sqrt(3) * np.linalg.norm(points[:, None] - points, axis=-1) / scale
        return (1 + r) * np.exp(-r)

    def median(points):
        return np.median(np.linalg.norm(points[:, None] - points, axis=-1)[np.triu_indices(len(points), 1)])

    numbers, (longitude, latitude) = x[:, [0, 4, 5]], np.deg2rad(x[:, 1:3]).T
    globe = np.column_stack(
        (np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude))
    )
    hours = np.exp(-2 * np.sin(np.pi * (x[:, 3, None] - x[:, 3]) / 24) ** 2)
    scale = float(median_distance(torch.from_numpy(numbers)))
    assert scale == pytest.approx(median(numbers), rel=0.01)  # of an even number of distances the lower middle one
    expected = matern(numbers, scale) * matern(globe, 0.3 * float(median_distance(torch.from_numpy(globe)))) * hours
    np.testing.assert_allclose(kernel(rows).to_dense().detach().numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize(
    "action",
    [
        Negation([[0], [4, 5]]),
        Rotation((0, 4), 5),
        Permutation([5, 1, 2, 3, 0, 4]),
        Translation(3, 24.0, 6),
        Longitude(6, axis=1),
        Product(Rotation((5, 0), 3), Translation(3, 24.0, 4)),
    ],
    ids=repr,
)
def test_the_kernel_has_the_symmetry_that_it_is_made_for(name, action):
    """However its free parameters change in training: k(g x, g x') = k(x, x')."""
    inputs, rows = mixed_table(12)
    kernel = make_kernel(name, inputs, action, rows, 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in kernel.parameters():
            if parameter.requires_grad:
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        expected = kernel(rows).to_dense()
        for moved in action.orbit(rows):
            assert_close(kernel(moved).to_dense(), expected, rtol=1e-5, atol=1e-7)


def test_columns_that_are_not_mixed_have_lengthscales_of_their_own():
    inputs, rows = inputs_of(np.random.default_rng(0).normal(size=(30, 4)))
    assert make_kernel("rbf", inputs, None, rows, 0).base_kernel.lengthscale.shape == (1, 4)
    product = make_kernel("rbf", inputs, Rotation((1, 3), 4), rows, 0).base_kernel
    assert [(part.active_dims.tolist(), part.lengthscale.numel()) for part in product.kernels] == [
        ([0, 2], 2),
        ([1, 3], 1),
    ]


def test_periods_are_not_learned():
    inputs, rows = mixed_table()
    kernel = make_kernel("rbf", inputs, None, rows, 0)
    (periodic,) = (part for part in kernel.modules() if isinstance(part, gpytorch.kernels.PeriodicKernel))
    assert not periodic.raw_period_length.requires_grad
    assert periodic.lengthscale.requires_grad


def test_the_users_kernel_is_copied():
    inputs, rows = inputs_of(np.random.default_rng(0).normal(size=(9, 2)))
    mine = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    mine.outputscale = 7.0
    copy = make_kernel(mine, inputs, Rotation((0, 1), 3), rows.float(), 0)
    assert {parameter.dtype for parameter in copy.parameters()} == {torch.float32}
    assert float(copy.outputscale.detach()) == pytest.approx(7.0)
    copy.outputscale = 1.0
    assert float(mine.outputscale.detach()) == pytest.approx(7.0)
    assert mine.raw_outputscale.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_likelihoods_at_their_start(dtype):
    gaussian, heavy = (make_noise(name, dtype, CPU) for name in ("gaussian", "student_t"))
    assert float(gaussian.noise.detach()) == pytest.approx(0.1)
    assert (float(heavy.noise.detach()), float(heavy.deg_free.detach())) == pytest.approx((0.1, 4.0), rel=1e-5)
    two, three = (make_class_likelihood(n, dtype, CPU) for n in (2, 3))
    assert isinstance(two, gpytorch.likelihoods.BernoulliLikelihood)
    assert isinstance(three, SoftmaxBoundLikelihood)
    parameters = [p for likelihood in (gaussian, heavy, two, three) for p in likelihood.parameters()]
    assert {parameter.dtype for parameter in parameters} == {dtype}


def test_degrees_of_freedom_stay_where_the_variance_is_finite():
    heavy = make_noise("student_t", torch.float64, CPU)
    with torch.no_grad():
        heavy.raw_deg_free.fill_(-50.0)
        heavy.raw_noise.fill_(-50.0)
    assert float(heavy.deg_free.detach()) > 2
    assert float(heavy.noise.detach()) >= 1e-6


def test_inducing_points_that_blocks_share_are_in_different_orbits():
    """Two points of one orbit would make every block singular."""
    inputs, rows = inputs_of(np.random.default_rng(0).normal(size=(60, 2)))
    action = Rotation((0, 1), 4)
    rows = action.images(rows).flatten(0, 1)  # every row with its whole orbit
    features = make_features(make_kernel("rbf", inputs, action, rows, 0), action, rows, 20, method="rows")
    assert isinstance(features, HarmonicFeatures)
    Z = features.inducing()[0].detach()
    assert Z.shape == (20, 2)
    distances = torch.cdist(action.images(Z), Z).amin(0)  # from each point to the nearest image of each other
    assert distances.fill_diagonal_(1.0).min() > 1e-3


@pytest.mark.parametrize("resolution", ["complex", "real"])
def test_blocks_that_do_not_share_have_points_of_their_own(resolution):
    inputs, rows = inputs_of(np.random.default_rng(0).normal(size=(60, 2)))
    action = Rotation((0, 1), 5)
    kernel = make_kernel("rbf", inputs, action, rows, 0)
    features = make_features(kernel, action, rows, 7, share=False, resolution=resolution)
    Z = features.inducing()[0].detach()
    assert Z.shape == (action.group.n_blocks(resolution), 7, 2)
    assert len({tuple(block.flatten().tolist()) for block in Z}) == len(Z)


def test_one_block_without_an_action():
    inputs, rows = inputs_of(np.random.default_rng(0).normal(size=(60, 2)))
    kernel = make_kernel("rbf", inputs, None, rows, 0)
    features = make_features(kernel, None, rows, 7, method="rows")
    assert isinstance(features, SparseFeatures)
    Z = features.inducing()[0].detach()
    assert torch.cdist(Z, rows).amin(1).max() == 0  # rows themselves
    heavy = torch.ones(60).index_fill(0, torch.tensor([0]), 1e6)
    (point,) = make_features(kernel, None, rows, 1, counts=heavy).inducing()[0].detach()
    assert_close(point, rows[0], atol=1e-3, rtol=0)  # the centre is where the measurements are
