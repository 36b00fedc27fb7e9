"""Held features as an operator, against one dense matrix."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.features import DenseEvaluation, IndependentResidual
from harmonicgp.features.evaluation import Roots, join_coefficients, split_coefficients

shapes_drawn = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3)


def drawn(shapes, n, P, seed):
    """An evaluation, its matrix A [F, n], coefficients u [P, F] and values y [P, n]."""
    generator = torch.Generator().manual_seed(seed)
    stacks = tuple(torch.randn(blocks, f, n, generator=generator) for blocks, f in shapes)
    A = np.concatenate([a.reshape(-1, n).numpy() for a in stacks])
    u, y = torch.randn(P, len(A), generator=generator), torch.randn(P, n, generator=generator)
    return DenseEvaluation(stacks, IndependentResidual(torch.zeros(n))), A, u, y


@given(shapes=shapes_drawn, n=st.integers(1, 5), P=st.integers(1, 3), seed=st.integers(0, 99))
def test_products_are_those_of_the_matrix(shapes, n, P, seed):
    evaluation, A, u, y = drawn(shapes, n, P, seed)
    assert evaluation.shapes == tuple(shapes)
    np.testing.assert_allclose(evaluation.project(u), u.numpy() @ A, atol=1e-12)
    np.testing.assert_allclose(evaluation.accumulate(y), y.numpy() @ A.T, atol=1e-12)
    every = range(sum(blocks for blocks, _ in shapes))
    np.testing.assert_allclose(evaluation.parts(u, every).sum(1), u.numpy() @ A, atol=1e-12)
    assert torch.equal(join_coefficients(split_coefficients(u, shapes)), u)


@given(shapes=shapes_drawn, n=st.integers(1, 5), seed=st.integers(0, 99))
def test_gram_matrices_and_moments_are_those_of_the_blocks(shapes, n, seed):
    evaluation, A, u, _ = drawn(shapes, n, 1, seed)
    weights = torch.linspace(0.5, 2.0, n)
    blocks = {}

    def work(stack, part, gram):
        blocks.update({(stack, b): gram[i].clone() for i, b in enumerate(range(*part.indices(shapes[stack][0])))})

    evaluation.grams(weights, work)
    roots = [torch.randn(1, number, f, f, generator=torch.Generator().manual_seed(seed)) for number, f in shapes]
    mean, variance = evaluation.moments(split_coefficients(u, shapes), Roots(tuple(roots)))
    np.testing.assert_allclose(mean, u.numpy() @ A, atol=1e-12)
    expected, start = np.zeros(n), 0
    for stack, (number, f) in enumerate(shapes):
        for b in range(number):
            a = A[start : start + f]
            start += f
            np.testing.assert_allclose(blocks[stack, b], (a * weights.numpy()) @ a.T, atol=1e-12)
            expected += ((roots[stack][0, b].numpy() @ a) ** 2).sum(0)
    np.testing.assert_allclose(variance[0], expected, atol=1e-12)
