"""Rows conditioned in groups, against dense Gaussian conditionals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonicgp.features import SparseFeatures
from harmonicgp.features.groups import RowGroups, condition_groups
from harmonicgp.features.neighbours import ObservedRows
from tests.inference.common import data, make_kernel


def model(n=17, seed=0):
    X, y = data(n, 3, seed)
    kernel = make_kernel()
    noise = torch.linspace(0.2, 0.6, n).double()
    return SparseFeatures(kernel, X[:4] + 0.1), kernel, ObservedRows(X, torch.stack((y, y.cos())), noise)


@given(
    N=st.integers(1, 60),
    start=st.integers(0, 50),
    size=st.integers(1, 20),
    k=st.integers(0, 70),
    seed=st.integers(0, 9),
)
def test_groups_hold_each_row_once_and_near_rows_come_earlier(N, start, size, k, seed):
    start = min(start, N - 1)
    points = torch.randn(N, 2, generator=torch.Generator().manual_seed(seed))
    groups = RowGroups.of(points, start, size, k, seed)
    assert sorted(groups.numbers.tolist()) == list(range(start, N))
    members = [set(r[p].tolist()) for r, p in zip(groups.rows.rows, groups.rows.present, strict=True)]
    near = [set(r[p].tolist()) for r, p in zip(groups.near.rows, groups.near.present, strict=True)]
    assert max(map(len, members)) <= size
    # Near rows lie before `start` or in groups that come earlier in one order of all groups.
    of = {row: i for i, rows in enumerate(members) for row in rows}
    follows = {i: {of[row] for row in rows if row >= start} for i, rows in enumerate(near)}
    done = set()
    while len(done) < len(members):
        ready = {i for i in follows if i not in done and follows[i] <= done}
        assert ready, "groups condition on each other in a circle"
        done |= ready
    # As many as there are: k for all but the first.
    assert all(len(rows) <= k for rows in near)
    assert sum(len(rows) == min(k, start) for rows in near) >= 1


@pytest.mark.parametrize(("size", "k"), [(5, 6), (17, 0), (1, 3), (4, 100)])
@pytest.mark.parametrize("held", [False, True])
def test_conditionals_are_those_of_the_dense_residual(size, k, held):
    features, kernel, observed = model()
    groups = RowGroups.of(observed.X, 2, size, k)
    with torch.no_grad():
        whitened = features.whiten()
        evaluation = whitened.dense(observed.X)
        C = (kernel(observed.X).to_dense() - evaluation.flat().mT @ evaluation.flat()).numpy()
        rows = condition_groups(features.view, whitened, observed.with_features(whitened) if held else observed, groups)
    A, noise, y = evaluation.flat().numpy(), observed.noise.numpy(), observed.y.numpy()
    place = 0
    for g in range(len(groups)):
        near = groups.near.rows[g][groups.near.present[g]].tolist()
        for i in groups.rows.rows[g][groups.rows.present[g]].tolist():
            w = np.linalg.solve(C[np.ix_(near, near)] + np.diag(noise[near]), C[near, i]) if near else np.zeros(0)
            d = C[i, i] - C[i, near] @ w + noise[i]
            assert np.allclose(rows.evaluation.flat()[:, place].numpy(), A[:, i] - A[:, near] @ w, atol=1e-9)
            assert np.allclose(rows.y[:, place].numpy(), y[:, i] - y[:, near] @ w, atol=1e-9)
            assert float(rows.d[place]) == pytest.approx(d, rel=1e-9)
            assert float(rows.evaluation.residual.variance[place]) == pytest.approx(d - noise[i], abs=1e-9)
            near.append(i)
            place += 1
    assert place == rows.y.shape[1]


def test_without_features_the_residual_is_all_of_f():
    features, kernel, observed = model()
    groups = RowGroups.of(observed.X, 0, 17, 0)
    with torch.no_grad():
        rows = condition_groups(features.view, None, observed, groups)
    K = kernel(observed.X).to_dense().detach().numpy() + np.diag(observed.noise.numpy())
    expected = np.linalg.slogdet(K)[1]
    assert rows.evaluation is None
    assert float(rows.d.log().sum()) == pytest.approx(expected, rel=1e-9)
    quadratic = float((rows.y[0].square() / rows.d).sum())
    assert quadratic == pytest.approx(observed.y[0].numpy() @ np.linalg.solve(K, observed.y[0].numpy()), rel=1e-9)


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 99))
def test_gradients_reach_kernel_noise_and_inducing_inputs(seed):
    X, y = data(7, 2, seed)
    groups = RowGroups.of(X, 0, 3, 2)

    def value(Z, lengthscale, scale, noise):
        kernel = make_kernel()
        del kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale
        kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale = scale, lengthscale
        features = SparseFeatures(kernel, X[:3])
        del features.Z
        features.Z = Z
        rows = condition_groups(features.view, features.whiten(), ObservedRows(X, y[None], noise), groups)
        return rows.evaluation.flat().square().sum() + rows.y.sin().sum() + rows.d.log().sum()

    inputs = [X[:3] + 0.2, torch.tensor([[0.3]]), torch.tensor(0.4), torch.linspace(0.1, 0.5, 7)]
    inputs = [t.double().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(value, inputs, atol=1e-6)


def test_pieces_hold_all_groups():
    groups = RowGroups.of(torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), 0, 8, 4)
    pieces = list(groups.split(1 << 17))
    assert len(pieces) > 1
    assert torch.equal(torch.cat([piece.numbers for piece in pieces]), groups.numbers)


def test_single_rows_have_no_near_rows():
    groups = RowGroups.singles(5, 2)
    assert groups.numbers.tolist() == [2, 3, 4]
    assert groups.near.k == 0
