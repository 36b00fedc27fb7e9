"""What the two estimators of tables have in common once they are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from harmonicgp.estimators.model import Components, FittedModel
from harmonicgp.estimators.saving import FORMAT, ModelFile, pack, read_model
from harmonicgp.inference.statistics import chunks
from harmonicgp.io.container import ModelFileError, write_container
from harmonicgp.symmetry.options import ModelOptions
from harmonicgp.symmetry.settings import raw_columns
from harmonicgp.tables.columns import Array
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, RegressionPreprocessing

#: Rows that are predicted at a time.
CHUNK = 65_536


class TableEstimator(BaseEstimator, ModelOptions):
    """Files, fitted attributes and components of the two estimators.

    Attributes:
        preprocessing_: what turns columns and targets into model rows, and predictions back.
        model_: the fitted model of the latent function.
        n_features_in_: the number of columns of X.
        feature_names_in_: their names, if X had names.
        symmetry_: the symmetry of the model, and the table of candidates it was chosen from.
        kernel_: the fitted kernel, on standardised inputs.
        likelihood_: the fitted likelihood, of standardised targets.
        elbo_: the bound per row at the end of the fit.
        history_: a record of every training step.
        n_steps_: the number of training steps.
        timings_: seconds of each part of the fit.
        modelled_cost_: the cost of the fit in floating-point operations, computed from shapes alone.
        validation_: scores of the held-out rows; None if there were none.
        neighbours_: how many training rows correct a prediction; 0 if the model keeps none.
        ranges_: the smallest and the largest value of every encoded column; None for files of older versions.
        notes_: what was done to the columns.
        warnings_: what can harm the predictions.
        encoded_names_: the names of the encoded columns.
        column_kinds_: the kinds of the encoded columns that have one.
        target_names_: the names of the targets.
    """

    preprocessing_: RegressionPreprocessing | ClassificationPreprocessing
    model_: FittedModel
    n_features_in_: int

    def _set_fitted(
        self, preprocessing: RegressionPreprocessing | ClassificationPreprocessing, model: FittedModel
    ) -> None:
        """Set the fitted attributes, all from these two values."""
        self.preprocessing_, self.model_ = preprocessing, model
        self.symmetry_ = model.choice
        self.kernel_ = model.kernel
        self.likelihood_ = model.likelihood
        self.elbo_ = model.elbo
        self.history_ = model.history
        self.n_steps_ = len(model.history)
        self.timings_ = model.timings
        self.modelled_cost_ = model.modelled_cost
        self.validation_ = model.validation
        self.neighbours_ = model.neighbours
        self.ranges_ = model.ranges
        self.notes_ = model.notes
        self.warnings_ = model.warnings
        self.encoded_names_ = preprocessing.columns.names
        self.column_kinds_ = preprocessing.columns.kinds
        self.target_names_ = preprocessing.target_names

    def _set_names(self, reader: BaseEstimator) -> None:
        """Set the columns of X that scikit-learn recorded on a copy, so that a failed fit leaves an earlier one unchanged."""
        self.n_features_in_ = reader.n_features_in_
        names = getattr(reader, "feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one file. An earlier file is replaced when the new one is complete."""
        write_container(Path(path), "model", FORMAT, *pack(self.to_file()))

    def to_file(self) -> ModelFile:
        """The content of the file of a fitted estimator."""
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
        """The fitted estimator of a file that `save` wrote."""
        file = read_model(path)
        if file.estimator != cls.__name__:
            raise ModelFileError(f"{path} holds a {file.estimator}: use {file.estimator}.load, or load_model.")
        return cls.from_file(file)

    @classmethod
    def from_file(cls, file: ModelFile) -> Self:
        """The fitted estimator with the content of a file."""
        estimator = cls(**file.arguments)
        estimator._set_fitted(file.preprocessing, file.model)
        estimator.n_features_in_ = file.n_features
        if file.feature_names is not None:
            estimator.feature_names_in_ = np.array(file.feature_names, dtype=object)
        return estimator

    # --- rows ---------------------------------------------------------------------------------------------------------

    def level_names(self) -> list[str]:
        """The columns of a table that are categories for the model."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.level_names()

    def unused_names(self) -> list[str]:
        """The columns of a table that the model does not use, because they are constant or repeat others."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.unused_names(self.model_.inputs.order.tolist())

    def beyond(self, X: Any) -> dict[str, Array]:
        """Out-of-range rows: a mask [n] for each encoded column that has rows outside the range of the fit.

        The range is widened by a hundredth on both sides. For a column that was constant in the fit, any change counts. There are
        no masks for periodic columns, longitudes, latitudes and images, nor for models from files of older versions.
        """
        rows, columns = self._encode(X), self.preprocessing_.columns
        if columns.image is not None:
            return {}
        exempt = {*columns.kinds, *raw_columns(self.symmetry, self.kernel, rows.shape[1])}
        return {columns.names[j]: mask for j, mask in self.model_.out_of_range(rows, exempt).items()}

    def predict_components(self, X: Any) -> Components:
        """The components of f, one for each harmonic, in the units of y (of f for a transformed target or classes).

        The means add up to the latent function minus its constant level. Under a block posterior the components are independent.
        Under a joint posterior they are not: their standard deviations are marginal.
        """
        rows, preprocessing = self._encode(X), self.preprocessing_
        return self.model_.components(rows, preprocessing.component_scale, preprocessing.flat)

    def inducing_points(self) -> Array:
        """The inducing inputs in the units of the encoded columns, [m, d]; NaN in columns that the model does not use."""
        check_is_fitted(self, "model_")
        return self.model_.inducing_points(len(self.encoded_names_))

    def _encode(self, X: Any) -> Array:
        """Encoded rows [n, d] of new data."""
        check_is_fitted(self, "model_")
        return self.preprocessing_.columns.encode(X, self, self.unused_names())

    def _batches(self, X: Any) -> Iterator[tuple[slice, Array]]:
        """The encoded rows of X in batches, each with its row numbers as a slice."""
        rows = self._encode(X)
        for part in chunks(len(rows), CHUNK):
            yield part, rows[part]
