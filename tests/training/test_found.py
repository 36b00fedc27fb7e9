"""What users and an attack once found in the engine: each must stay found."""

from __future__ import annotations

import importlib
import warnings

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation, Rotation, Translation
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inducing import place
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.collapsed import collapsed_bound
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import gather_statistics, streaming_matvec
from harmonicgp.kernels import GlobeKernel
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood, observe
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, exact_log_evidence, make_kernel, statistics

QUICK = Schedule(max_steps=40, batch_size=128)


def noisy(s2=0.5):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = s2
    return likelihood


@pytest.mark.parametrize("family", ["block", "joint"])
def test_the_final_posterior_is_the_closed_form_at_the_final_hyper_parameters(family):
    """Held-out rows once got features of the refined kernel with factors of the old one."""
    X, y = data(600, 2)
    features, likelihood = HarmonicFeatures(make_kernel(scale=3.0), Rotation((0, 1), 3), X[:10]), noisy()
    result = fit(features, likelihood, X, y, family=family, schedule=QUICK)
    assert result.refinement is not None
    assert abs(np.log(result.refinement.scale)) > 1e-3  # the case that matters
    form = closed_form(statistics(features, X, y), float(likelihood.noise.detach()), family)
    assert_close(result.posterior.mean_vector(), form.posterior.mean_vector(), rtol=0, atol=1e-6)
    assert_close(result.posterior.precisions[0], form.posterior.precisions[0], rtol=1e-6, atol=1e-6)


def test_frozen_scalars_stay_and_constraints_hold():
    X, y = data(400, 2)
    kernel, likelihood = make_kernel(scale=2.0), noisy(0.5)
    kernel.raw_outputscale.requires_grad_(False)
    likelihood.noise_covar.raw_noise.requires_grad_(False)
    fit(SparseFeatures(kernel, X[:10]), likelihood, X, y, schedule=QUICK)
    assert float(likelihood.noise) == pytest.approx(0.5)
    assert float(kernel.outputscale) == pytest.approx(2.0)
    bounded = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Interval(0.2, 0.6)).double()
    fit(SparseFeatures(make_kernel(), X[:10]), bounded, X, y, schedule=QUICK)
    assert 0.2 <= float(bounded.noise.detach()) <= 0.6


def test_refinement_reaches_past_its_first_range():
    X, y = data(800, 2)
    y = y + 20 * torch.randn(800)  # noise variance 400, started at 0.5
    likelihood = noisy()
    fit(SparseFeatures(make_kernel(), X[:10]), likelihood, X, y, schedule=QUICK)
    assert float(likelihood.noise.detach()) > 100


@pytest.mark.parametrize("level", [1.0, 10.0, 50.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_of_any_size_converge(level, dtype):
    X, f = data(500, 2)
    rate = level * torch.exp(0.5 * f)
    counts = torch.poisson(rate, generator=torch.Generator().manual_seed(0))
    features = HarmonicFeatures(make_kernel().to(dtype), Negation(), X[:20].to(dtype))
    result = fit(
        features, PoissonLikelihood(), X.to(dtype), counts.to(dtype), schedule=Schedule(max_steps=300, batch_size=128)
    )
    mean, _ = result.predictor().marginals(X.to(dtype))
    correlation = float(torch.corrcoef(torch.stack((mean[0].double(), f)))[0, 1])
    assert correlation > 0.75  # at level 300, from a prior mean of zero, steps are short; a mean= does better
    assert np.isfinite(result.bound)


def test_the_bound_of_a_likelihood_that_is_not_gaussian_is_the_elbo_at_the_final_posterior():
    X, y = data(300, 2)
    likelihood, target = gpytorch.likelihoods.BernoulliLikelihood().double(), (y > 0).double()
    for passes in (0, 2):
        features = SparseFeatures(make_kernel(), X[:10])
        result = fit(
            features, likelihood, X, target, schedule=Schedule(max_steps=30, batch_size=64, full_passes=passes)
        )
        evaluation = features(X)
        m, v = result.posterior.moments(evaluation)
        residual = evaluation.residual.variance
        value = float(observe(likelihood).expected(target[None], m, v + residual).detach().sum()) - float(
            result.posterior.kl()
        )
        assert result.bound == pytest.approx(value / 300, abs=1e-9)


def test_a_mean_function_of_the_wrong_shape_is_refused():
    X, y = data(50, 2)
    linear = torch.nn.Linear(2, 1).double()
    for likelihood, target in ((noisy(), y), (gpytorch.likelihoods.BernoulliLikelihood(), (y > 0).double())):
        with pytest.raises(ValueError, match="squeeze"):
            fit(SparseFeatures(make_kernel(), X[:5]), likelihood, X, target, mean=linear, schedule=QUICK)
        fit(
            SparseFeatures(make_kernel(), X[:5]),
            likelihood,
            X,
            target,
            mean=lambda x: linear(x).squeeze(-1),
            schedule=QUICK,
        )


def test_a_learnable_period_is_refused():
    kernel = gk.ScaleKernel(gk.PeriodicKernel()).double()
    kernel.base_kernel.period_length = 24.0
    Z = 24 * torch.rand(5, 1)
    with pytest.raises(ValueError, match="requires_grad_"):
        HarmonicFeatures(kernel, Translation(0, 24.0, 4), Z)
    kernel.base_kernel.raw_period_length.requires_grad_(False)
    HarmonicFeatures(kernel, Translation(0, 24.0, 4), Z)


def test_second_inducing_inputs_on_the_first_ones():
    """Rounding of coinciding points once put the bound 6 nats above the evidence."""
    for seed in (5, 168):
        X, y = data(30, 2, seed)
        for nu in (0.5, 1.5):
            kernel = make_kernel(nu)
            features = OrthogonalFeatures(kernel, X[:15], X[10:])
            bound = closed_form(statistics(features, X, y), 0.01, "joint", "tight").bound
            assert bound <= exact_log_evidence(kernel, X, y, 0.01) + 1e-5
            whole = closed_form(statistics(SparseFeatures(kernel, X), X, y), 0.01, "joint", "tight").bound
            assert bound == pytest.approx(whole, abs=1e-2)


def test_training_over_a_pole():
    longitude, latitude = 360 * torch.rand(300) - 180, 180 * torch.rand(300) - 90
    X = torch.stack((longitude, latitude), 1)
    y = torch.cos(torch.deg2rad(longitude)) * torch.cos(torch.deg2rad(latitude))
    Z = torch.tensor([[0.0, 90.0], [20.0, -90.0], [10.0, 89.99], [-60.0, 20.0], [40.0, -30.0]])
    kernel = gk.ScaleKernel(GlobeKernel(gk.MaternKernel(nu=1.5))).double()
    features = HarmonicFeatures(kernel, Longitude(4), Z)
    result = fit(features, noisy(0.01), X, y, schedule=Schedule(max_steps=60, batch_size=64, learning_rate=0.5))
    assert float(features.Z.detach()[:, 1].abs().max()) <= 90
    mean, _ = result.predictor().marginals(X)
    assert float((mean[0] - y).square().mean().sqrt()) < 0.1


def test_components_come_in_the_order_of_their_frequencies():
    longitude, latitude = 360 * torch.rand(800) - 180, 120 * torch.rand(800) - 60
    X = torch.stack((longitude, latitude), 1)
    kernel = gk.ScaleKernel(GlobeKernel(gk.RBFKernel())).double()
    for resolution in ("complex", "real"):
        for n in (1, 2, 3):
            y = torch.cos(n * torch.deg2rad(longitude)) * torch.cos(torch.deg2rad(latitude)) ** n
            features = HarmonicFeatures(kernel, Longitude(6), place(X, 15, action=Longitude(6)), resolution)
            form = closed_form(statistics(features, X, y), 0.01)
            means, _, _ = Predictor.freeze(features, form.posterior).components(X)
            energy = means[0].square().mean(-1)
            assert int(features.block_frequencies[int(energy.argmax()), 0]) == n


def test_streaming_bounds_stay_below_and_joint_covariances_agree():
    X, y = data(300, 2)
    features = HarmonicFeatures(make_kernel(), Negation([[0], [1]]), (X[:12] + 0.5).abs()).requires_grad_(False)
    whitened = features.whiten()
    dense, sparse = (gather_statistics(whitened, features.shapes, X, y[None], dense=d) for d in (True, False))
    matvec = streaming_matvec(whitened, X)
    exact = closed_form(dense, 1e-4, "block").bound
    for iterations in (1, 3, 10, 1000):
        cut = closed_form(sparse, 1e-4, "block", matvec=matvec, max_iterations=iterations).bound
        assert cut <= exact + 1e-4
    form = closed_form(sparse, 0.1, "block", matvec=matvec)
    streamed = Predictor.freeze(features, StreamedPosterior.of(form.posterior, matvec, 0.1))
    joint = Predictor.freeze(features, closed_form(dense, 0.1, "joint").posterior)
    for a, b in zip(streamed.covariance(X[:6]), joint.covariance(X[:6]), strict=True):
        assert_close(a, b, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="dense matrix"):
        streamed.components(X[:3])
    with pytest.raises(ValueError, match="dense matrix"):
        streamed.paths(1)
    hard = StreamedPosterior(form.posterior, lambda v: v + matvec(v) / 1e-8, 1e-12, 2)
    with pytest.warns(UserWarning, match="did not reach"):
        hard.moments(whitened(X[:3]))


def test_many_features_are_fitted_without_their_matrix(monkeypatch):
    """The path above MAX_DENSE, with the limit brought down."""
    for module in ("inference.statistics", "training.fit", "training.finish"):
        monkeypatch.setattr(importlib.import_module(f"harmonicgp.{module}"), "MAX_DENSE", 10)
    X, y = data(200, 2)
    found = {}
    for family in ("block", "joint"):
        features = HarmonicFeatures(make_kernel(), Negation(), X[:10])
        result = fit(features, noisy(), X, y, family=family, schedule=QUICK)
        assert result.iterations > 0
        assert isinstance(result.posterior, StreamedPosterior) == (family == "joint")
        found[family] = result.predictor().marginals(X[:5])
    assert_close(found["block"][0], found["joint"][0], rtol=0, atol=1e-5)
    labels = (y > 0).double()
    plan = Schedule(max_steps=20, batch_size=100)
    features, bernoulli = (
        HarmonicFeatures(make_kernel(), Negation(), X[:10]),
        gpytorch.likelihoods.BernoulliLikelihood(),
    )
    result = fit(features, bernoulli.double(), X, labels, schedule=plan)
    assert -0.7 < result.bound < 0


def test_small_noise_in_float32():
    X = torch.randn(5000, 2, dtype=torch.float32)
    y = torch.sin(X[:, 0])
    features = HarmonicFeatures(gk.ScaleKernel(gk.RBFKernel()).float(), Negation.strided(2, 2), X[:60].abs())
    for s2 in (1e-4, 1e-6):
        assert np.isfinite(closed_form(statistics(features, X, y), s2, "joint").bound)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-7)
    ).float()
    likelihood.noise = 1e-5
    result = fit(features, likelihood, X, y, schedule=QUICK)
    assert bool(torch.isfinite(result.predictor().marginals(X)[0]).all())


def test_an_outlier_does_not_swallow_the_other_points():
    X = torch.cat((torch.randn(2000, 1), torch.tensor([[1e9]])))
    assert len(place(X, 100)) > 90


def test_reruns_and_global_state():
    X, y = data(120, 2)
    labels = (y > 0).double() + (y > 0.7).double()
    softmax = [
        gpytorch.likelihoods.SoftmaxLikelihood(num_features=3, num_classes=3, mixing_weights=False) for _ in range(2)
    ]
    before = torch.random.get_rng_state()
    means = [
        fit(
            SparseFeatures(make_kernel(), X[:6]), likelihood.double(), X, labels, schedule=QUICK
        ).posterior.mean_vector()
        for likelihood in softmax
    ]
    assert torch.equal(*means)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "arguments",
    [
        {"optimizer": "sgd"},
        {"gradient_batch": "samee"},
        {"max_steps": -3},
        {"batch_size": 0},
        {"full_passes": -1},
        {"validation_fraction": 1.5},
        {"rho": 5.0},
        {"rho": 0.0},
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
    ],
    ids=str,
)
def test_schedules_are_checked(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Schedule(**arguments)


def test_doors_of_fit():
    X, y = data(40, 2)
    features = SparseFeatures(make_kernel(), X[:5])
    for wrong, error, words in (
        ({"schedule": {"max_steps": 3}}, TypeError, "Schedule"),
        ({"mean": 1.0}, TypeError, "mean must be a function"),
        ({"family": "diagonal"}, ValueError, "family"),
        ({"bound": "loose"}, ValueError, "bound must be one of"),
    ):
        with pytest.raises(error, match=words):
            fit(features, noisy(), X, y, **wrong)
    with pytest.raises(ValueError, match="3 columns"):
        fit(features, noisy(), torch.randn(40, 3), y)
    with pytest.raises(TypeError, match="one dtype"):
        fit(features, noisy(), X.float(), y.float())
    with pytest.raises(TypeError, match=r"\.float\(\)"):
        fit(SparseFeatures(make_kernel(), X[:5].float()), noisy(), X.float(), y.float())
    with pytest.raises(TypeError, match="features must be"):
        fit("sparse", noisy(), X, y)
    with pytest.raises(TypeError, match="noise="):
        fit(features, gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(40)), X, y)
    with pytest.raises(TypeError, match="batch_shape"):
        fit(features, gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([2])), X, y)
    bernoulli = gpytorch.likelihoods.BernoulliLikelihood().double()
    with pytest.raises(ValueError, match="0 and 1"):
        fit(features, bernoulli, X, (y > 0).double() + 1)
    with pytest.raises(ValueError, match="would ignore it"):
        fit(features, bernoulli, X, (y > 0).double(), noise=torch.ones(40))
    with pytest.raises(ValueError, match="use bound"):
        fit(features, bernoulli, X, (y > 0).double(), bound="tight")
    with pytest.raises(ValueError, match="one row of class numbers"):
        fit(features, RobustMaxLikelihood(3), X, torch.zeros(3, 40))
    with pytest.raises(TypeError, match="zz, zx and xx"):
        SparseFeatures("rbf", X)
    with pytest.raises(TypeError, match="such as Negation"):
        HarmonicFeatures(make_kernel(), Negation, X)


def test_doors_of_the_closed_form_and_the_predictor():
    X, y = data(40, 2)
    features = SparseFeatures(make_kernel(), X[:5])
    stats = statistics(features, X, y)
    for wrong in ({"s2": 0.0}, {"s2": -1.0}, {"s2": float("nan")}, {"s2": 0.1, "scale": 0.0}, {"s2": 0.1, "family": "x"},
                  {"s2": 0.1, "bound": "predictive"}):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be|closed form"):
            closed_form(stats, **wrong)
    with pytest.raises(TypeError, match="Gaussian noise"):
        collapsed_bound(features, observe(PoissonLikelihood()), X, y)
    predictor = Predictor.freeze(features, closed_form(stats, 0.1).posterior)
    for method in (predictor.marginals, predictor.covariance, predictor.components, predictor.paths(1)):
        for x, error, words in (
            (torch.randn(3, 3), ValueError, "3 columns"),
            (torch.randn(0, 2), ValueError, "empty"),
            (torch.full((3, 2), float("nan")), ValueError, "NaN"),
            (np.zeros((3, 2)), TypeError, "torch tensor"),
            (torch.randn(3, 2, dtype=torch.float32), TypeError, "fitted in"),
        ):
            with pytest.raises(error, match=words):
                method(x)
    with pytest.raises(ValueError, match="chunk_size"):
        Predictor.freeze(features, closed_form(stats, 0.1).posterior, chunk_size=0)


def test_callbacks_may_answer_with_numpy():
    X, y = data(40, 2)
    result = fit(
        SparseFeatures(make_kernel(), X[:5]),
        noisy(),
        X,
        y,
        schedule=QUICK,
        callbacks=[lambda r: np.bool_(r["step"] == 2)],
    )
    assert len(result.history) == 2


def test_no_warnings_on_an_ordinary_fit():
    X, y = data(100, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(SparseFeatures(make_kernel(), X[:5]), noisy(), X.requires_grad_(), y, schedule=QUICK)
