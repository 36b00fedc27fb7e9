"""Loads any model file as the estimator that wrote it."""

from __future__ import annotations

from pathlib import Path

from harmonicgp.estimators.classifier import HarmonicGPClassifier
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import read_model
from harmonicgp.globe.estimator import KIND as GLOBE
from harmonicgp.globe.estimator import HarmonicGPGlobe
from harmonicgp.io.container import kind_of
from harmonicgp.planes.estimator import KIND as FIELD
from harmonicgp.planes.estimator import HarmonicGPField


def load_model(path: str | Path) -> HarmonicGPRegressor | HarmonicGPClassifier | HarmonicGPGlobe | HarmonicGPField:
    """The fitted estimator of a model file, of any of the four classes.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(30, 1))
        >>> file = Path(tempfile.mkdtemp()) / "model.hgp"
        >>> HarmonicGPRegressor(max_steps=5, progress=False).fit(X, X[:, 0]).save(file)
        >>> type(load_model(file)).__name__
        'HarmonicGPRegressor'
    """
    kind = kind_of(path)
    if kind == GLOBE:
        return HarmonicGPGlobe.load(path)
    if kind == FIELD:
        return HarmonicGPField.load(path)
    file = read_model(path)
    estimator = HarmonicGPRegressor if file.estimator == HarmonicGPRegressor.__name__ else HarmonicGPClassifier
    return estimator.from_file(file)
