"""The bound of rows given their neighbours, against the exact Gaussian process."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from harmonicgp.features import SparseFeatures
from harmonicgp.features.groups import RowGroups
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.statistics import sum_statistics
from harmonicgp.likelihoods import observe
from harmonicgp.training.neighbour_scores import given_piece
from harmonicgp.training.neighbours import NeighbourProblem, learn_alone, repeats, row_noise
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule
from tests.inference.common import data, exact_log_evidence, feature_draws, make_kernel


def likelihood(s2=0.2):
    noise = gpytorch.likelihoods.GaussianLikelihood().double()
    noise.noise = s2
    return noise


def problem(features, X, y, s2=0.2, noise=None, counts=None):
    y = y[None] if y.dim() == 1 else y
    return Problem(features, observe(likelihood(s2)), X, y, None, noise, "elbo", counts)


def grouped(features, X, y, s2=0.2, size=5, near=1000, **known):
    """Rows in groups; by default every earlier row is near."""
    return NeighbourProblem.of(problem(features, X, y, s2, **known), RowGroups.of(X, size=size, k=near))


@torch.no_grad()
def optimum(rows: NeighbourProblem):
    """The joint posterior, and the evidence of the model."""
    s2 = float(rows.observation.noise())
    piece = given_piece(rows.evaluate(rows.features.whiten()), s2)
    form = closed_form(sum_statistics([piece], rows.features.shapes, len(rows.y), rows.N), s2, "joint", "elbo")
    return form.posterior, form.bound - len(rows.y) * float(repeats(rows).sum())


@given(drawn=feature_draws(), seed=st.integers(0, 99), s2=st.floats(0.05, 2.0), size=st.integers(1, 16))
@settings(deadline=None)
def test_all_earlier_rows_give_the_evidence_of_the_exact_process(drawn, seed, s2, size):
    features, kernel, d = drawn
    X, y = data(15, d, seed)
    _, evidence = optimum(grouped(features, X, y, s2, size))
    assert evidence == pytest.approx(exact_log_evidence(kernel, X, y, s2), rel=1e-8)


@given(drawn=feature_draws(), k=st.integers(0, 20))
@settings(deadline=None)
def test_the_bound_at_the_joint_optimum_is_the_evidence(drawn, k):
    features, _, d = drawn
    X, y = data(12, d)
    rows = grouped(features, X, y, size=3, near=k)
    q, evidence = optimum(rows)
    assert rows.total(q, features.whiten()) == pytest.approx(evidence, rel=1e-8)
    for other in (0.9, 1.1):  # any other posterior is below it
        worse = type(q).from_precisions("joint", [m * other for m in q.means], [L * other for L in q.precisions])
        assert rows.total(worse, features.whiten()) < evidence


@given(drawn=feature_draws(), seed=st.integers(0, 9))
@settings(deadline=None)
def test_no_neighbours_are_fitc(drawn, seed):
    features, kernel, d = drawn
    X, y = data(10, d, seed)
    _, evidence = optimum(NeighbourProblem.of(problem(features, X, y), RowGroups.singles(10)))
    with torch.no_grad():
        A = features.whiten().dense(X).flat()
        Q, K = (A.mT @ A).numpy(), kernel(X).to_dense().numpy()
    fitc = Q + np.diag(np.diag(K - Q) + 0.2)
    assert evidence == pytest.approx(multivariate_normal(np.zeros(10), fitc).logpdf(y.numpy()), rel=1e-8)


def test_batches_are_unbiased():
    X, y = data(200, 2)
    rows = grouped(SparseFeatures(make_kernel(), X[:6]), X, y, size=7, near=5)
    q, _ = optimum(rows)
    whitened = rows.features.whiten()
    with torch.no_grad():
        whole = float(rows.terms(q, rows.evaluate(whitened)).sum())
        parts = [rows.batch(torch.tensor([group])) for group in range(len(rows.groups))]
        assert sum(float(part.terms(q, part.evaluate(whitened)).sum()) for part in parts) == pytest.approx(whole)
    draws = rows.batches(Schedule(batch_size=64))
    numbers = torch.cat([rows.batch(draws.draw()).groups.numbers for _ in range(draws.N // draws.size)])
    assert len(set(numbers.tolist())) == len(numbers) >= 180  # each row once, but for the last groups


def test_repeats_are_equal_rows():
    X, y = data(9, 2)
    counts = torch.tensor([1.0, 2, 1, 3, 1, 1, 2, 1, 1]).double()
    features = SparseFeatures(make_kernel(), X[:3])
    _, counted = optimum(grouped(features, X, y, counts=counts))
    every = torch.repeat_interleave(torch.arange(9), counts.long())
    assert counted == pytest.approx(exact_log_evidence(make_kernel(), X[every], y[every], 0.2), rel=1e-8)


def test_known_noise_and_several_outputs():
    X, y = data(9, 2)
    noise = torch.linspace(0.0, 1.0, 9).double()
    both = torch.stack((y, y.cos()))
    _, evidence = optimum(grouped(SparseFeatures(make_kernel(), X[:3]), X, both, noise=noise))
    exact = sum(exact_log_evidence(make_kernel(), X, each, (0.2 + noise).numpy()) for each in both)
    assert evidence == pytest.approx(exact, rel=1e-8)


def test_a_whole_step_reaches_the_optimum():
    X, y = data(30, 2)
    rows = grouped(SparseFeatures(make_kernel(), X[:5]), X, y, near=4)
    q, _ = optimum(rows)
    prior = type(q).prior(rows.features.shapes, "joint", shared=True)
    stepped = rows.step(prior, rows.evaluate(), 1.0, 1.0)
    assert torch.allclose(stepped.mean_vector(), q.mean_vector(), atol=1e-8)


def test_the_nearest_neighbour_likelihood_finds_noise_and_lengthscale():
    g = torch.Generator().manual_seed(0)
    X = torch.rand(1500, 1, generator=g).double() * 40
    y = torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(1500, generator=g).double()
    rows = problem(SparseFeatures(make_kernel(lengthscale=20.0), X[:3]), X, y, s2=1.0)
    learn_alone(rows, 10, 300, 0.1, seed=0, batch=256)
    assert float(rows.observation.noise().detach()) == pytest.approx(0.09, rel=0.3)
    assert float(rows.features.view.kernel.base_kernel.lengthscale.detach()) < 5


def test_other_noise_is_refused():
    X, y = data(5, 2)
    student = gpytorch.likelihoods.StudentTLikelihood().double()
    rows = Problem(SparseFeatures(make_kernel(), X[:3]), observe(student), X, y[None], None, None, "elbo")
    with pytest.raises(TypeError, match="Gaussian noise"):
        row_noise(rows)
