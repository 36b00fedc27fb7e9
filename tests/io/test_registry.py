"""Kernels, actions and likelihoods from outside the package: they work without a word, and are saved under a name."""

from __future__ import annotations

import runpy
from pathlib import Path

import gpytorch
import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPRegressor, load_model
from harmonicgp.actions import Negation, Product, Rotation, register_action
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.inference.sampling import PriorPath
from harmonicgp.io.fields import SpecError
from harmonicgp.io.registry import ACTIONS, KERNELS, LIKELIHOODS, reader_of
from harmonicgp.io.specs import (
    action_spec,
    build_action,
    build_kernel,
    build_likelihood,
    kernel_spec,
    likelihood_spec,
)
from harmonicgp.kernels import Profile, register_kernel
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.likelihoods import observe, register_likelihood
from harmonicgp.testing import assert_cyclic, assert_decomposition
from harmonicgp.training import Schedule, fit

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_parts.py"


@pytest.fixture
def registries():
    """Those of the library, restored afterwards."""
    before = [(one, dict(one.kinds)) for one in (ACTIONS, KERNELS, LIKELIHOODS)]
    yield
    for registry, kinds in before:
        registry.kinds = kinds


@pytest.fixture
def own(registries):
    return runpy.run_path(str(EXAMPLE))


def test_the_parts_of_the_example_come_back(own):
    action = build_action(action_spec(own["Quarters"](12.0)))
    assert (type(action), action.period, action.group.order) == (own["Quarters"], 12.0, 4)
    product = build_action(action_spec(own["Quarters"](12.0) * Negation([1])))
    assert type(product) is Product
    assert type(product.factors[0]) is own["Quarters"]
    kernel = own["SeasonKernel"].of_period(12.0)
    kernel.matern.lengthscale = 0.3
    other = build_kernel(kernel_spec(kernel))
    other.load_state_dict(kernel.state_dict())
    x = torch.rand(5, 3, dtype=torch.float64)
    assert torch.equal(kernel_matrix(kernel, x, x), kernel_matrix(other, x, x))
    assert not other.periodic.raw_period_length.requires_grad
    assert build_likelihood(likelihood_spec(own["GammaLikelihood"](3.0))).shape == 3.0


def test_the_parts_of_the_example_fit(own, tmp_path):
    rng = np.random.default_rng(0)
    X = np.stack((rng.uniform(0, 12, 80), rng.normal(size=80)), -1)
    action, kernel = own["Quarters"](12.0), own["SeasonKernel"].of_period(12.0)
    points = torch.from_numpy(X)
    assert_cyclic(action, points[:9])
    assert_decomposition(kernel, action, points[:9])
    features = HarmonicFeatures(kernel, action, action.fold(points[:6]))
    likelihood = own["GammaLikelihood"](2.0)
    with pytest.raises(ValueError, match="targets of a gamma likelihood are positive"):
        fit(features, likelihood, points, points[:, 1], schedule=Schedule(max_steps=2))
    result = fit(features, likelihood, points, points[:, 1].exp(), schedule=Schedule(max_steps=5, batch_size=40))
    assert torch.isfinite(result.predictor().marginals(points)[0]).all()
    gp = HarmonicGPRegressor(kernel=kernel, symmetry=action, n_inducing=6, max_steps=3, random_state=0, progress=False)
    gp.fit(X, np.sin(X[:, 0]))
    gp.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(gp.predict(X), loaded.predict(X))
    assert type(loaded.kernel_) is own["SeasonKernel"]
    assert repr(loaded.symmetry_.action) == "Quarters(12.0)"
    random = PriorPath.draw(kernel, 2, 4000, torch.Generator().manual_seed(0))(points[:3])
    covariance = random @ random.mT / 4000
    assert float((covariance - kernel_matrix(kernel, points[:3], points[:3]).detach()).abs().max()) < 0.1


def test_what_is_not_registered_is_neither_written_nor_built(own):
    class Mine(Rotation):
        pass

    class MyKernel(gpytorch.kernels.RBFKernel):
        pass

    with pytest.raises(SpecError, match=r"a Mine cannot be saved.*own_parts.Quarters.*register_action"):
        action_spec(Mine((0, 1), 3))
    with pytest.raises(SpecError, match="register_kernel"):
        kernel_spec(MyKernel())
    with pytest.raises(SpecError, match="'class' must be one of"):
        build_action({"class": "Mine", "plane": [0, 1], "order": 3})
    with pytest.raises(ValueError, match="give register_kernel its random_features"):
        PriorPath.draw(MyKernel(), 2, 1, torch.Generator())
    with pytest.raises(SpecError, match="'period' must be a number"):
        build_action({"class": "own_parts.Quarters", "period": "12"})


def test_a_name_stays_with_its_class(registries):
    class Mine(Rotation):
        pass

    with pytest.raises(ValueError, match=r"the name 'Rotation' belongs to harmonicgp.actions.rotation.Rotation"):
        register_action("Rotation", Mine, plane=list[int], order=int)
    register_action("test.Mine", Mine, plane=list[int], order=int)
    register_action("test.Mine", Mine, plane=list[int], order=int)  # a notebook's cell that is run again
    assert type(build_action(action_spec(Mine((0, 1), 3)))) is Mine
    with pytest.raises(TypeError, match="registered by its class"):
        register_action("test.one", Mine((0, 1), 3))
    with pytest.raises(TypeError, match="a saved field is one of int, float"):
        register_action("test.two", Mine, plane=str)
    assert reader_of(int | None) is not reader_of(int)


def test_a_profile_takes_the_fused_path_with_the_same_answer(registries):
    class Cauchy(gpytorch.kernels.Kernel):
        has_lengthscale = True

        def forward(self, x1, x2, diag=False, **params):
            return 1 / (1 + self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, square_dist=True, diag=diag))

    X = torch.randn(20, 3, dtype=torch.float64)
    plain = SparseFeatures(Cauchy().double(), X[:5])(X)
    assert FusedGram.of(Cauchy(), Negation(), "real", 3, [0, 1]) is None
    profile = Profile("cauchy", lambda t, _: 1 / (1 + t), lambda t, f, _: (-f * f, None))
    register_kernel("test.Cauchy", Cauchy, profile=profile, ard_num_dims=int | None)
    assert FusedGram.of(Cauchy(), Negation(), "real", 3, [0, 1]) is not None
    fused = SparseFeatures(Cauchy().double(), X[:5])(X)
    assert torch.allclose(plain.stacks[0], fused.stacks[0], atol=1e-8)
    assert torch.allclose(plain.residual.variance, fused.residual.variance, atol=1e-8)


def test_inherited_linear_parts_of_another_motion_are_not_used():
    class Other(Negation):
        def move(self, x, s):
            return Negation([1]).move(x, s)

    assert FusedGram.of(gpytorch.kernels.RBFKernel(), Negation([0]), "real", 3, [0, 1]) is not None
    assert FusedGram.of(gpytorch.kernels.RBFKernel(), Other([0]), "real", 3, [0, 1]) is None


def test_subclasses_are_observed_like_their_base():
    class Mine(gpytorch.likelihoods.BernoulliLikelihood):
        pass

    with pytest.raises(ValueError, match="0 and 1"):
        observe(Mine()).check_targets(torch.tensor([[0.5]]))
    register_likelihood(None, Mine)
    observe(Mine()).check_targets(torch.tensor([[0.5]]))
    with pytest.raises(SpecError, match="a Mine cannot be saved"):
        likelihood_spec(Mine())
