"""New rows for a fitted model: the closed form on all rows at the same hyper-parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation, Rotation
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import gather_statistics
from tests.estimators.common import assert_same, classifier, labels, outputs, regressor, table


def expected(gp, X, y, family, noise=None, counts=None):
    """Moments of f at X from the closed form on all rows, in model units."""
    predictor = gp.model_.predictor
    rows = torch.from_numpy(gp.model_.inputs.transform(X))
    target = torch.from_numpy((y - gp.preprocessing_.target.centre[0]) / gp.preprocessing_.target.scale[0])[None]
    s2 = float(gp.likelihood_.noise.detach())
    weights = None if noise is None else torch.from_numpy(s2 / (s2 + (noise / gp.preprocessing_.target.scale[0]) ** 2))
    statistics = gather_statistics(predictor.whitened, predictor.features.shapes, rows, target, weights, counts=counts)
    posterior = closed_form(statistics, s2, family).posterior
    mean, variance = Predictor(predictor.features, predictor.whitened, posterior).marginals(rows)
    return (
        mean[0].numpy() * gp.preprocessing_.target.scale[0] + gp.preprocessing_.target.centre[0],
        np.sqrt(variance[0].numpy()) * gp.preprocessing_.target.scale[0],
    )


@pytest.mark.parametrize(
    ("arguments", "n", "family"),
    [
        ({}, 80, "block"),
        ({"n_inducing": 15, "symmetry": None}, 80, "block"),
        ({"n_inducing": 15, "symmetry": None, "bound": "elbo", "warp": "quantile"}, 80, "block"),
        ({"n_inducing": 10, "symmetry": Negation([[0], [1]]), "posterior": "joint"}, 80, "joint"),
        ({"n_inducing": 8, "symmetry": Rotation((0, 1), 3), "posterior": "joint"}, 80, "joint"),
        ({"n_inducing": 20, "symmetry": None, "dtype": "float64", "batch_size": 512, "neighbours": 0}, 4400, "block"),
    ],
    ids=str,
)
def test_the_second_half_gives_the_closed_form_on_all_rows(arguments, n, family):
    X, y = table(n)
    half = n // 2
    gp = regressor(**arguments).fit(X[:half], y[:half])
    before = gp.predict_f(X)
    gp.partial_fit(X[half:], y[half:])
    mean, std = expected(gp, X, y, family)
    said, said_std = gp.predict_f(X, return_std=True)
    np.testing.assert_allclose(said, mean, rtol=1e-8)
    np.testing.assert_allclose(said_std, std, rtol=1e-7)
    assert np.abs(said - before).max() > 1e-3 * y.std()


def test_in_any_number_of_parts():
    X, y = table(80)
    gp = regressor().fit(X[:40], y[:40])
    for part in np.array_split(np.arange(40, 80), 7):
        gp.partial_fit(X[part], y[part])
    mean, std = expected(gp, X, y, "block")
    np.testing.assert_allclose(gp.predict_f(X), mean, rtol=1e-8)
    np.testing.assert_allclose(gp.predict_f(X, return_std=True)[1], std, rtol=1e-7)


def test_known_noise_and_weights():
    X, y = table(60)
    noise = np.linspace(0.1, 5, 60)
    weight = np.arange(60) % 3 + 1.0
    gp = regressor().fit(X[:30], y[:30], noise_std=noise[:30], sample_weight=weight[:30])
    gp.partial_fit(X[30:], y[30:], noise_std=noise[30:], sample_weight=weight[30:])
    mean, std = expected(gp, X, y, "block", noise, torch.from_numpy(weight))
    np.testing.assert_allclose(gp.predict_f(X), mean, rtol=1e-8)
    np.testing.assert_allclose(gp.predict_f(X, return_std=True)[1], std, rtol=1e-7)


def test_several_targets_one_by_one():
    X, Y = table(60, P=2)
    gp = regressor().fit(X[:30], Y[:30]).partial_fit(X[30:], Y[30:])
    s2 = float(gp.likelihood_.noise.detach())
    predictor, rows = gp.model_.predictor, torch.from_numpy(gp.model_.inputs.transform(X))
    targets = torch.from_numpy(gp.preprocessing_.target.forward(Y))
    statistics = gather_statistics(predictor.whitened, predictor.features.shapes, rows, targets)
    posterior = closed_form(statistics, s2, "block").posterior
    mean, _ = Predictor(predictor.features, predictor.whitened, posterior).marginals(rows)
    np.testing.assert_allclose(gp.predict_f(X), gp.preprocessing_.target.inverse(mean.numpy()).T, rtol=1e-8)


def test_the_first_call_is_fit():
    X, y = table(40)
    assert_same(outputs(regressor().partial_fit(X, y), X, y), outputs(regressor().fit(X, y), X, y))
    assert_same(
        outputs(classifier().partial_fit(X, labels(X), classes=["low", "mid"]), X),
        outputs(classifier().fit(X, labels(X)), X),
    )


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_what_is_learned_shows(likelihood):
    """Rows far from the first half are predicted only after they were seen."""
    X, _ = table(120, d=1)
    X = np.sort(X, 0)
    y = np.sin(X[:, 0]) * 10
    gp = regressor(likelihood=likelihood, max_steps=40, n_inducing=50, symmetry=None)
    gp.fit(X[::2], y[::2])
    before = gp.predict(X[1::2], return_std=True)[1]
    gp.partial_fit(X[1::2], y[1::2])
    assert (gp.predict_f(X[1::2], return_std=True)[1] < before).all()


def test_classes():
    X, _ = table(200)
    for classes in (2, 3):
        y = labels(X, classes)
        gp = classifier(max_steps=30, n_inducing=40).fit(X[:40], y[:40])
        before = gp.log_density(X[40:], y[40:]).mean()
        gp.partial_fit(X[40:], y[40:])
        assert gp.log_density(X[40:], y[40:]).mean() > before


def test_refused():
    X, y = table(40)
    gp = regressor().fit(X, y)
    with pytest.raises(ValueError, match="features"):
        gp.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="must have 1 targets"):
        gp.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="outside the domain of"):
        regressor(target_transform="log").fit(X, y).partial_fit(X, -y)
    with pytest.raises(ValueError, match="classes that were not in the fit: \\['top'\\]"):
        classifier().fit(X, labels(X)).partial_fit(X[:1], ["top"])
    with pytest.raises(ValueError, match="rows of every class; it has none of \\['top'\\]"):
        classifier().partial_fit(X, labels(X), classes=["low", "mid", "top"])
