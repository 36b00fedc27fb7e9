"""What the two estimators of tables share once they are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import gpytorch
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from harmonicgp.estimators.model import Components, FittedModel
from harmonicgp.estimators.saving import ModelFile, read_model, write_model
from harmonicgp.inference.statistics import chunks
from harmonicgp.io.container import ModelFileError
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.settings import raw_columns
from harmonicgp.tables.inputs import Array
from harmonicgp.tables.kinds import Kind
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, RegressionPreprocessing

#: Rows of a prediction at a time.
CHUNK = 65_536


class TableEstimator(BaseEstimator):
    """Files and fitted attributes of the estimators. A fit sets `preprocessing_` and `model_`; all else is read from them."""

    preprocessing_: RegressionPreprocessing | ClassificationPreprocessing
    model_: FittedModel
    n_features_in_: int

    def _take_names(self, reader: BaseEstimator) -> None:
        """The columns of X as scikit-learn recorded them on a copy: a fit that fails leaves an earlier one as it was."""
        self.n_features_in_ = reader.n_features_in_
        names = getattr(reader, "feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all."""
        write_model(Path(path), self.to_file())

    def to_file(self) -> ModelFile:
        """What a file holds of the fitted estimator."""
        check_is_fitted(self, "model_")
        names = getattr(self, "feature_names_in_", None)
        return ModelFile(
            type(self).__name__,
            self.get_params(deep=False),
            self.preprocessing_,
            self.model_,
            self.n_features_in_,
            None if names is None else [str(name) for name in names],
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model of a file that `save` wrote."""
        file = read_model(path)
        if file.estimator != cls.__name__:
            raise ModelFileError(f"{path} holds a {file.estimator}: use {file.estimator}.load, or load_model.")
        return cls.from_file(file)

    @classmethod
    def from_file(cls, file: ModelFile) -> Self:
        """The estimator of what a file holds."""
        estimator = cls(**file.arguments)
        estimator.preprocessing_, estimator.model_ = file.preprocessing, file.model
        estimator.n_features_in_ = file.n_features
        if file.feature_names is not None:
            estimator.feature_names_in_ = np.array(file.feature_names, dtype=object)
        return estimator

    # --- fitted attributes --------------------------------------------------------------------------------------------

    @property
    def symmetry_(self) -> SymmetryChoice:
        """The symmetry of the model, and the table of candidates it was chosen from."""
        return self.model_.choice

    @property
    def kernel_(self) -> gpytorch.kernels.Kernel | None:
        """The fitted kernel, on standardised inputs."""
        return self.model_.kernel

    @property
    def likelihood_(self) -> gpytorch.likelihoods.Likelihood:
        """The fitted likelihood, of standardised targets."""
        return self.model_.likelihood

    @property
    def elbo_(self) -> float:
        """The bound per row at the end of the fit."""
        return self.model_.elbo

    @property
    def history_(self) -> list[dict[str, Any]]:
        """A record of every training step."""
        return self.model_.history

    @property
    def n_steps_(self) -> int:
        """The number of training steps."""
        return len(self.model_.history)

    @property
    def timings_(self) -> dict[str, float]:
        """Seconds of the parts of the fit."""
        return self.model_.timings

    @property
    def modelled_cost_(self) -> float:
        """The cost of the fit in floating-point operations, from shapes alone."""
        return self.model_.modelled_cost

    @property
    def validation_(self) -> dict[str, Any] | None:
        """Scores of the rows held out, None where there were none."""
        return self.model_.validation

    @property
    def neighbours_(self) -> int:
        """How many training rows correct a prediction; 0 where the model keeps none."""
        return self.model_.neighbours

    @property
    def ranges_(self) -> list[list[float]] | None:
        """The least and the largest value of every encoded column; None for models from files of older versions."""
        return self.model_.ranges

    @property
    def notes_(self) -> list[str]:
        """What was done to the columns."""
        return self.model_.notes

    @property
    def warnings_(self) -> list[str]:
        """What can harm the predictions."""
        return self.model_.warnings

    @property
    def encoded_names_(self) -> list[str]:
        """The names of the encoded columns."""
        return self.preprocessing_.columns.names

    @property
    def column_kinds_(self) -> dict[int, Kind]:
        """The kinds of the encoded columns that have one."""
        return self.preprocessing_.columns.kinds

    @property
    def target_names_(self) -> list[str]:
        """The names of the targets."""
        return self.preprocessing_.target_names

    # --- rows ---------------------------------------------------------------------------------------------------------

    def level_names(self) -> list[str]:
        """The columns of a table that the model reads as categories."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.level_names()

    def unused_names(self) -> list[str]:
        """The columns of a table that the model does not use: constant ones, and those that repeat others."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.unused_names(self.model_.inputs.order.tolist())

    def beyond(self, X: Any) -> dict[str, Array]:
        """Out-of-range rows: by encoded column that has some, a mask [n] of the rows outside the range of the fit.

        A hundredth of the range is allowed for; of a column that was constant, any change counts. Columns that go round (periods,
        longitude), latitudes and images have no such rows; nor have models from files of older versions, which keep no ranges.
        """
        rows, columns = self._encode(X), self.preprocessing_.columns
        if columns.image is not None:
            return {}
        exempt = {*columns.kinds, *raw_columns(self.symmetry, self.kernel, rows.shape[1])}
        return {columns.names[j]: mask for j, mask in self.model_.out_of_range(rows, exempt).items()}

    def predict_components(self, X: Any) -> Components:
        """The parts of f, one for each harmonic, in the units of y (of f itself under a transformed target or classes).

        Means add up to the latent function less its level. Under the block posterior the parts are independent; under a
        joint one their standard deviations are marginal and do not add up.
        """
        rows, preprocessing = self._encode(X), self.preprocessing_
        return self.model_.components(rows, preprocessing.component_scale, preprocessing.flat)

    def inducing_points(self) -> Array:
        """The inducing inputs in the units of the encoded columns, [m, d]; NaN in columns that the model does not use."""
        check_is_fitted(self, "model_")
        return self.model_.inducing_points(len(self.encoded_names_))

    def _encode(self, X: Any) -> Array:
        """Encoded rows of new data."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.encode(X, self, self.unused_names())

    def _batches(self, X: Any) -> Iterator[tuple[slice, Array]]:
        """Encoded rows of X in pieces of bounded memory."""
        rows = self._encode(X)
        for part in chunks(len(rows), CHUNK):
            yield part, rows[part]
