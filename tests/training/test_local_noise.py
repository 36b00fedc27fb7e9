"""Whether the noise varies: excesses of rows predicted from the others, and the choice by held-out rows."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.features import SparseFeatures
from harmonicgp.features.nearest import NearestIndex
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.likelihoods import observe
from harmonicgp.training.exact import fit_exact
from harmonicgp.training.finish import Split
from harmonicgp.training.local_noise import (
    HeldOutErrors,
    choose,
    held_out_errors,
    learn_local_noise,
    left_out_excess,
    nearest_others,
)
from harmonicgp.training.neighbour_scores import GivenRows, Start
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule
from tests.inference.common import make_kernel

S2 = 0.09


def start_of(X, m=12, s2=S2):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = s2
    features = SparseFeatures(make_kernel(lengthscale=0.5), X[:m].clone())
    return Start(features, observe(likelihood.double()))


@torch.no_grad()
def given_rows(n=3000, held=800, varying=True, k=10, seed=0, counts=None):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n + held, 1, generator=g, dtype=torch.float64) * 6
    deviation = torch.where(X[:, 0] < 3, 0.05, 0.42) if varying else torch.full_like(X[:, 0], S2**0.5)
    y = X[:, 0].sin() + deviation * torch.randn(n + held, generator=g, dtype=torch.float64)
    start = start_of(X)
    c = None if counts is None else torch.full((n + held,), counts, dtype=torch.float64)
    problem = Problem(start.features, start.observation, X, y[None], None, None, "tight", c)
    split = Split(problem.part(slice(0, n)), problem.part(slice(n, None)), torch.arange(n, n + held))
    rows = GivenRows(start, split, k)
    form = closed_form(rows.statistics(S2), S2, "joint", "elbo")
    mean, variance = rows.moments(form, S2)
    return rows, form, held_out_errors(rows.held, mean, variance, S2), deviation[n:]


def test_noise_that_varies_is_found():
    rows, form, errors, deviation = given_rows()
    found = learn_local_noise(rows, form, S2, 1.0, errors)
    assert found is not None
    noise = found.noise(rows.trained.features.view.kernel)
    x = torch.tensor([[1.0], [2.0], [4.0], [5.0]], dtype=torch.float64)
    variances = noise.variances(x)[0]
    assert float(variances[:2].max()) < 0.25 * float(variances[2:].min())
    assert float(variances[2:].mean().sqrt()) == pytest.approx(0.42, rel=0.25)
    gain = errors.mean(errors.densities(found.smoothing.variances)) - errors.mean(errors.densities(S2))
    best = errors.mean(errors.densities(deviation.square()[None])) - errors.mean(errors.densities(S2))
    assert 0.6 * best < gain < 1.05 * best


def test_constant_noise_stays_constant():
    found = [
        learn_local_noise(*(rows := given_rows(varying=False, seed=seed))[:2], S2, 1.0, rows[2]) for seed in range(6)
    ]
    assert found == [None] * 6


def test_no_time_left_looks_at_the_first_rows_only():
    rows, form, errors, _ = given_rows(n=12_000)
    found = learn_local_noise(rows, form, S2, 1.0, errors, until=0.0)
    assert found is not None
    assert len(found.X) == 10_000
    joined = found.joined(rows.held.X, errors)
    assert len(joined.X) == joined.excess.shape[1] == 10_800


def test_excess_is_that_of_a_model_that_has_not_seen_the_row():
    """All other rows are neighbours: against a dense leave-one-out computation."""
    rows, form, _, _ = given_rows(n=20, held=5, k=19)
    excess = left_out_excess(rows, form, S2, 1.0, torch.arange(20))
    K = rows.trained.features.view.zx(rows.trained.X, rows.trained.X).detach()
    P = torch.linalg.inv(K + S2 * torch.eye(20, dtype=torch.float64))
    y = rows.trained.centred()[0]
    error, total = (P @ y) / P.diagonal(), 1 / P.diagonal()  # of each row from all others
    expected = (error.square() - (total - S2)).clamp_min(0.0)
    torch.testing.assert_close(excess[0], expected, rtol=1e-8, atol=1e-10)
    assert float(expected.max()) > 0.1


def test_rows_that_stand_for_several_have_the_noise_of_one():
    rows, form, _, _ = given_rows(n=500, held=100, varying=False)
    one = left_out_excess(rows, form, S2, 1.0, torch.arange(100))
    some, form4, _, _ = given_rows(n=500, held=100, varying=False, counts=4.0)
    four = left_out_excess(some, form4, S2, 1.0, torch.arange(100))
    assert float(one.mean().detach()) == pytest.approx(S2, rel=0.4)
    assert float(four.mean().detach()) == pytest.approx(
        float(one.mean().detach()), rel=0.1
    )  # y repeats, so its error does


def exact_problem(n=600, varying=True, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=g, dtype=torch.float64) * 6
    deviation = torch.where(X[:, 0] < 3, 0.05, 0.42) if varying else torch.full_like(X[:, 0], S2**0.5)
    y = X[:, 0].sin() + deviation * torch.randn(n, generator=g, dtype=torch.float64)
    start = start_of(X, m=n)
    return Problem(start.features, start.observation, X, y[None], None, None, "tight", None)


def test_an_exact_model_learns_it_from_rows_in_turn():
    ending = fit_exact(exact_problem(), Schedule(max_steps=20, progress=False))
    assert ending.local_noise is not None
    variances = ending.predictor().noise_variances(torch.tensor([[1.0], [5.0]], dtype=torch.float64))
    assert float(variances[0, 0]) < 0.2 * float(variances[0, 1])
    assert ending.validation.noise.shape == (1, 600)


@pytest.mark.parametrize(("n", "varying"), [(600, False), (150, True)])
def test_an_exact_model_of_constant_noise_or_few_rows_keeps_it_constant(n, varying):
    ending = fit_exact(exact_problem(n, varying), Schedule(max_steps=20, progress=False))
    assert ending.local_noise is None
    assert ending.predictor().noise_variances(torch.zeros(1, 1, dtype=torch.float64)) is None


@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 10_000))
def test_the_nearest_others_never_hold_the_row_itself(n, k, seed):
    points = torch.randint(0, 4, (n, 2), generator=torch.Generator().manual_seed(seed)).float()  # with copies
    part = torch.arange(n)
    table = nearest_others(NearestIndex(points), part, k)
    assert table.k == min(k, n - 1)
    assert not bool((table.rows == part[:, None]).any())
    assert all(len(set(row)) == table.k for row in table.rows.tolist())
    distances = torch.cdist(points, points).fill_diagonal_(float("inf")).sort(dim=1).values[:, : table.k]
    torch.testing.assert_close(torch.cdist(points, points).gather(1, table.rows).sort(dim=1).values, distances)


def step_noise(n=2000, held=600, ratio=30.0, seed=0):
    """Errors of a known f whose noise is loud on one side, as held-out rows and as excesses of others."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n + held, 1, generator=g, dtype=torch.float64)
    deviation = torch.where(x[:, 0] < 0.5, 1 / ratio, 1.0)
    squares = (deviation * torch.randn(n + held, generator=g, dtype=torch.float64)).square()[None]
    s2 = float(deviation.square().mean())
    errors = HeldOutErrors(squares[:, n:], torch.zeros(1, held).double(), s2, torch.ones(held).double())
    near = NearestIndex(x[:n].float()).nearest(x[n:].float(), 80).rows
    return errors, squares[:, :n], {True: near}, deviation[n:], x[n:, 0]


@pytest.mark.parametrize("seed", range(3))
def test_quiet_and_loud_rows_both_get_their_noise(seed):
    errors, excess, near, deviation, x = step_noise(seed=seed)
    way = choose(errors, excess, near)
    loud, quiet = x > 0.7, x < 0.3
    inside = errors.squares[0] < 1.96**2 * way.variances[0]
    assert 0.88 < float(inside[loud].double().mean()) < 0.99
    assert float((way.variances[0].sqrt() / deviation)[loud].mean()) == pytest.approx(1.0, abs=0.12)
    assert float((way.variances[0].sqrt() / deviation)[quiet].mean()) == pytest.approx(1.0, abs=0.5)


def test_a_few_heavy_rows_do_not_decide():
    false = 0
    for seed in range(12):
        g = torch.Generator().manual_seed(seed)
        x = torch.rand(2200, 1, generator=g)
        squares = torch.randn(1, 2200, generator=g, dtype=torch.float64).square()
        counts = torch.where(torch.rand(200, generator=g) < 0.03, 1.0, 0.001).double()
        errors = HeldOutErrors(squares[:, 2000:], torch.zeros(1, 200).double(), 1.0, counts)
        near = NearestIndex(x[:2000]).nearest(x[2000:], 80).rows
        false += choose(errors, squares[:, :2000], {True: near}) is not None
    assert false <= 1


def test_a_target_without_excess_keeps_its_noise():
    errors, excess, near, _, _ = step_noise()
    both = HeldOutErrors(
        torch.cat((errors.squares, 0 * errors.squares)), errors.variance.expand(2, -1), errors.noise, errors.counts
    )
    filled = both.positive(torch.cat((excess, 0 * excess)))
    assert bool((filled[1] == errors.noise).all())
    way = choose(both, filled, near)
    assert float(way.variances[0].max() / way.variances[0].min()) > 30


def test_single_outliers_do_not_hide_noise_that_varies():
    errors, excess, near, deviation, _ = step_noise()
    squares = errors.squares.clone()
    squares[0, int(deviation.argmax())] = 2000.0  # a loud row, whose gain is hundreds of nats
    outliers = HeldOutErrors(squares, errors.variance, errors.noise, errors.counts)
    way = choose(outliers, excess, near)
    assert way is not None
    gains = outliers.densities(way.variances) - outliers.densities(errors.noise)
    assert float(gains.mean()) < 3 * float(gains.std()) / len(gains) ** 0.5  # by unlimited gains it would not be clear
