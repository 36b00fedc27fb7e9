from __future__ import annotations

import torch

from harmonicgp.actions import Negation
from harmonicgp.diagnostics import minimise_trace_error, trace_error
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from tests.inference.common import make_kernel


def test_trace_error_is_the_dense_trace():
    kernel, X, Z = make_kernel(), torch.randn(50, 2), torch.randn(6, 2)
    k = kernel(Z, X).to_dense()
    dense = float((kernel(X, diag=True).sum() - (k * torch.linalg.solve(kernel(Z).to_dense(), k)).sum()).detach())
    assert abs(trace_error(SparseFeatures(kernel, Z), X, chunk_size=7) - dense) < 1e-8


def test_more_points_leave_less_and_minimising_leaves_less_still():
    kernel, X = make_kernel(), torch.randn(200, 2)
    Z = X[:6].abs()
    one = trace_error(SparseFeatures(kernel, Z), X)
    for features in (OrthogonalFeatures(kernel, Z, X[10:16]), HarmonicFeatures(kernel, Negation([[0], [1]]), Z)):
        start = trace_error(features, X)
        assert start < one
        hyper = [p.detach().clone() for p in kernel.parameters()]
        curve = minimise_trace_error(features, X, steps=40)
        end = trace_error(features, X)
        assert end < start
        assert abs(end / len(X) - min(curve)) < 1e-6
        assert all(torch.equal(a, b) for a, b in zip(hyper, kernel.parameters(), strict=True))
