"""What a problem refuses: data, noise, types and shapes that cannot be fitted."""

from __future__ import annotations

import gpytorch
import pytest
import torch

from harmonicgp.actions import Negation
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.likelihoods import RobustMaxLikelihood
from harmonicgp.training import fit
from tests.inference.common import data, make_kernel
from tests.training.common import BRIEF, noisy


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (torch.randn(5, 2), torch.tensor([0.0, float("nan"), 0, 0, 0]), "y has NaN or infinite values, first in row 1"),
        (torch.randn(5, 2), torch.tensor([0.0, 0, 0, float("inf"), 0]), "first in row 3"),
        (torch.randn(5, 2) * float("nan"), torch.zeros(5), "X has NaN"),
        (torch.randn(5, 2), torch.zeros(4), "the rows of X"),
        (torch.randn(0, 2), torch.zeros(0), "empty"),
    ],
)
def test_bad_data_are_refused(X, y, words):
    with pytest.raises(ValueError, match=words):
        fit(SparseFeatures(make_kernel(), torch.randn(3, 2)), noisy(), X.double(), y.double())


def test_bad_noise_and_types():
    X, y = data(5, 2)
    features = SparseFeatures(make_kernel(), X)
    for noise in (torch.ones(4), -torch.ones(5), torch.full((5,), float("nan"))):
        with pytest.raises(ValueError, match="finite variances"):
            fit(features, noisy(), X, y, noise=noise)
    with pytest.raises(TypeError, match="torch tensor"):
        fit(features, noisy(), X, [1.0] * 5)
    with pytest.raises(TypeError, match="GPyTorch likelihood"):
        fit(features, "gaussian", X, y)


def test_a_mean_function_of_the_wrong_shape_is_refused():
    X, y = data(50, 2)
    linear = torch.nn.Linear(2, 1).double()
    for likelihood, target in ((noisy(), y), (gpytorch.likelihoods.BernoulliLikelihood(), (y > 0).double())):
        with pytest.raises(ValueError, match="squeeze"):
            fit(SparseFeatures(make_kernel(), X[:5]), likelihood, X, target, mean=linear, schedule=BRIEF)
        fit(
            SparseFeatures(make_kernel(), X[:5]),
            likelihood,
            X,
            target,
            mean=lambda x: linear(x).squeeze(-1),
            schedule=BRIEF,
        )


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
