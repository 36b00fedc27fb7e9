from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation, Rotation
from harmonicgp.features import SparseFeatures
from harmonicgp.inducing import distinct, median_distance, place


@pytest.mark.parametrize("method", ["kmeans", "rows", "greedy", "grid"])
@pytest.mark.parametrize("action", [None, Negation([[0], [1]]), Rotation((0, 1), 5)], ids=repr)
def test_methods_give_distinct_points_of_the_fundamental_domain(method, action):
    X = torch.randn(300, 2)
    Z = place(X, 16, method, action, kernel=gk.RBFKernel().double())
    assert 1 <= len(Z) <= 16
    assert len(distinct(Z)) == len(Z)
    assert Z.dtype == X.dtype
    if action is not None:
        assert_close(action.fold(Z), Z, rtol=0, atol=1e-9)
    if method in ("kmeans", "rows", "greedy"):
        assert len(Z) == 16
    assert_close(place(X, 16, method, action, kernel=gk.RBFKernel().double()), Z)  # reruns agree


def test_duplicates_and_small_data():
    X = torch.randn(6, 2).repeat(50, 1)
    for method in ("kmeans", "rows", "greedy"):
        assert len(place(X, 20, method, kernel=gk.RBFKernel().double())) == 6  # m > N distinct rows
    mirrored = torch.cat((X[:6], -X[:6]))
    assert len(place(mirrored, 20, "rows", Negation())) == 6
    assert len(place(torch.ones(10, 3), 4)) == 1
    assert len(place(torch.randn(1, 2), 5)) == 1


def test_poles_are_one_point():
    x = torch.tensor([[10.0, 90.0], [50.0, 90.0], [-30.0, 45.0]])
    assert len(place(x, 5, "rows", Longitude(4))) == 2


def test_greedy_leaves_no_place_uncovered():
    X, kernel = torch.randn(500, 2), gk.RBFKernel().double().requires_grad_(False)
    greedy, rows = (
        float(SparseFeatures(kernel, place(X, 60, how, kernel=kernel))(X).residual.variance.detach().max())
        for how in ("greedy", "rows")
    )
    assert greedy < 0.5 * rows


def test_large_data_are_thinned():
    X = torch.randn(150_000, 1, dtype=torch.float32)
    assert place(X, 5).shape == (5, 1)


def test_median_distance():
    X = torch.tensor([[0.0], [1.0], [3.0]])
    assert float(median_distance(X)) == 2.0
    assert_close(
        median_distance(torch.randn(2000, 3), ard=True),
        median_distance(torch.randn(2000, 3)).expand(3),
        rtol=0.2,
        atol=0,
    )
    assert float(median_distance(torch.ones(5, 2))) == 1.0
    assert float(median_distance(torch.ones(1, 2))) == 1.0


def test_bad_input():
    X = torch.randn(30, 2)
    with pytest.raises(ValueError, match="at least 1"):
        place(X, 0)
    with pytest.raises(ValueError, match='method must be "kmeans"'):
        place(X, 3, "random")
    with pytest.raises(ValueError, match="needs the kernel"):
        place(X, 3, "greedy")
    with pytest.raises(ValueError, match="fewer than two points per side"):
        place(torch.randn(30, 9), 10, "grid")
    with pytest.raises(ValueError, match="NaN"):
        place(X * float("nan"), 3)


def test_an_outlier_does_not_swallow_the_other_points():
    X = torch.cat((torch.randn(2000, 1), torch.tensor([[1e9]])))
    assert len(place(X, 100)) > 90
