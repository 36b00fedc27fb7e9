"""A fitted model as a value: made without an estimator, changed by copies, packed and unpacked."""

from __future__ import annotations

import numpy as np

from harmonicgp.actions import Negation
from harmonicgp.estimators.saving import ModelFile, pack, unpack
from tests.estimators.common import fitted, regressor, table


def test_a_model_without_an_estimator():
    X, y = table(40)
    _, preprocessing, _, model, held_out = fitted()
    mean, variance = model.moments(X)
    assert mean.shape == variance.shape == (1, 40)
    assert len(held_out.rows) == 40  # each in turn
    gp = regressor().fit(X, y)
    np.testing.assert_array_equal(preprocessing.target.inverse(mean)[0], gp.predict(X))
    f, covariance = model.covariance(X[:5])
    np.testing.assert_allclose(np.diagonal(covariance[0]), variance[0, :5], rtol=1e-6)
    np.testing.assert_allclose(f, mean[:, :5], rtol=1e-6)
    assert model.joint_draws(X[:5], 3, np.random.default_rng(0)).shape == model.paths(3, 0)(X[:5]).shape == (3, 1, 5)
    assert model.inducing_points(3).shape == (40, 3)
    assert model.out_of_range(X, ()) == {}
    far = X + np.array([0, 1e6, 0])
    assert list(model.out_of_range(far, ())) == [1]
    assert model.out_of_range(far, (1,)) == {}


def test_absorbing_leaves_the_model_as_it_was():
    X, _ = table(40)
    _, _, data, model, _ = fitted(symmetry=Negation([0]), n_inducing=6)
    before = model.moments(X)
    after = model.absorb(data).moments(X)
    np.testing.assert_array_equal(model.moments(X), before)
    assert (after[1] < before[1]).all()
    parts = model.components(X[:4], np.ones(1), flat=True)
    assert parts.labels == ["t = 0", "t = 1"]
    assert parts.mean.shape == parts.std.shape == (2, 4)


def test_a_file_holds_values():
    X, _ = table(40)
    options, preprocessing, _, model, _ = fitted(n_inducing=6)
    arguments = {name: getattr(options, name) for name in vars(options)}
    file = ModelFile("HarmonicGPRegressor", arguments, preprocessing, model, 3, None)
    again = unpack(*pack(file))
    np.testing.assert_array_equal(again.model.moments(X), model.moments(X))
    assert again.preprocessing.columns == preprocessing.columns
    assert again.arguments == arguments
    assert again.model.choice.origin == model.choice.origin == "few rows"
