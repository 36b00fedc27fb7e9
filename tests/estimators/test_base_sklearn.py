"""The estimators among scikit-learn's: its own checks, clones, pipelines, searches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation
from tests.estimators.common import classifier, labels, regressor, table


@parametrize_with_checks([HarmonicGPRegressor(max_steps=15), HarmonicGPClassifier(max_steps=15)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_clones_know_arguments_and_no_data(make):
    X, _ = table(30)
    gp = make(n_inducing=7, symmetry=Negation([0]), columns={2: ("periodic", 24)})
    copy = clone(gp.fit(X, labels(X) if make is classifier else X[:, 0]))
    assert {k: repr(v) for k, v in copy.get_params().items()} == {k: repr(v) for k, v in gp.get_params().items()}
    with pytest.raises(NotFittedError):
        copy.predict(X)
    with pytest.raises(NotFittedError):
        copy.predict_components(X)
    assert copy.set_params(n_inducing=9).n_inducing == 9
    with pytest.raises(ValueError, match="Invalid parameter"):
        copy.set_params(n_inducings=9)


def test_kinds():
    assert is_regressor(regressor())
    assert is_classifier(classifier())


def test_pipelines():
    X, y = table(50)
    pipe = make_pipeline(StandardScaler(), regressor()).fit(X, y)
    mean, std = pipe.predict(X, return_std=True)
    assert mean.shape == std.shape == (50,)
    np.testing.assert_allclose(mean, regressor().fit(X, y).predict(X), rtol=1e-6)  # columns are standardised anyway
    chosen = ColumnTransformer([("a", "passthrough", [0]), ("b", PolynomialFeatures(2), [1, 2])])
    assert make_pipeline(chosen, regressor()).fit(X, y).score(X, y) > 0.5
    assert make_pipeline(StandardScaler(), classifier(n_inducing=10)).fit(X, labels(X)).predict_proba(X).shape == (
        50,
        2,
    )


def test_pipelines_pass_weights_on():
    X, y = table(40)
    weight = np.arange(40) % 2 * 1.0
    pipe = make_pipeline(StandardScaler(with_mean=False, with_std=False), regressor())
    pipe.fit(X, y, harmonicgpregressor__sample_weight=weight)
    half = weight > 0
    np.testing.assert_array_equal(pipe.predict(X), regressor().fit(X[half], y[half]).predict(X))


def test_cross_validation_and_search():
    X, y = table(60)
    scores = cross_val_score(regressor(max_steps=15), X, y, cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.5
    assert cross_val_predict(classifier(n_inducing=10), X, labels(X, 3), cv=3, method="predict_proba").shape == (60, 3)
    search = GridSearchCV(regressor(), {"kernel": ["rbf", "matern32"], "target_transform": [None, "log"]}, cv=2)
    search.fit(X, y)
    assert set(search.best_params_) == {"kernel", "target_transform"}
    assert search.predict(X).shape == (60,)
    best = GridSearchCV(classifier(n_inducing=8), {"symmetry": [None, Negation([0])]}, cv=2, scoring="neg_log_loss")
    assert np.isfinite(best.fit(X, labels(X)).best_score_)


def test_other_estimators_around_it():
    X, Y = table(40, P=2)
    assert MultiOutputRegressor(regressor()).fit(X, Y).predict(X).shape == (40, 2)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_sparse_matrices_are_refused_clearly(make):
    X, _ = table(30)
    y = labels(X) if make is classifier else X[:, 0]
    for matrix in (sparse.csr_matrix(X), sparse.csr_array(X)):
        with pytest.raises(TypeError, match=r"[Ss]parse data was passed.*dense"):
            make().fit(matrix, y)
        with pytest.raises(TypeError, match=r"[Ss]parse data was passed.*dense"):
            make(n_inducing=5).fit(X, y).predict(matrix)


def test_lists_and_integers_will_do():
    gp = regressor().fit([[1], [2], [3], [4]], [1, 2, 3, 4])
    assert gp.predict([[2]]).shape == (1,)
    with pytest.raises(ValueError, match="Reshape your data"):
        gp.predict([2])
