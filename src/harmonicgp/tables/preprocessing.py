"""Preprocessing: the columns and targets of a user to numbers, fitted once.

scikit-learn's validation records `n_features_in_` and `feature_names_in_` on an estimator and names it in messages. For this
reason, methods that read X take an `estimator`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, check_consistent_length, validate_data

from harmonicgp._validation import whole_number
from harmonicgp.tables.arrays import is_missing, known_errors, numbers, plain_array, target_names, validate, weights_of
from harmonicgp.tables.columns import Array
from harmonicgp.tables.encoder import Missing, TableEncoder, is_frame
from harmonicgp.tables.inputs import check_size, column_phrase
from harmonicgp.tables.kinds import Kind, check_kinds, read_kinds, undeclared_places
from harmonicgp.tables.rows import ModelRows, Rows, merge
from harmonicgp.tables.targets import Target, Transform

#: Classes at most; with more, time and memory of a fit grow too large.
MAX_CLASSES = 50


@dataclass(frozen=True)
class ColumnEncoding:
    """How the columns of a table or an array become encoded columns of numbers."""

    encoder: TableEncoder | None  #: None for an array
    names: list[str]  #: of the encoded columns
    kinds: dict[int, Kind]  #: by encoded column
    image: tuple[int, int] | None = None  #: height and width, if every row is an image

    @classmethod
    def fit(
        cls, X: Any, estimator: BaseEstimator, columns: Any = None, missing: Missing = "refuse", weights: Any = None
    ) -> tuple[ColumnEncoding, Array]:
        """The encoding of X, and its encoded rows [n, d]; `columns` and `missing` are those of the estimators."""
        image = image_size(columns)
        declared = None if image is not None else columns
        if is_table(X):
            names = getattr(X, "column_names", None)  # Arrow's, which scikit-learn does not read
            if names is None:
                validate_data(estimator, X, skip_check_array=True, reset=True)
            else:
                estimator.feature_names_in_, estimator.n_features_in_ = np.array(names, dtype=object), len(names)
            encoder = TableEncoder.fit(X, declared, missing, weights_of(weights, X))
            rows = encoder.transform(X, warn=False)  # rows of weight zero may hold new levels
            encoding = cls(encoder, encoder.encoded_names, encoder.kinds, image)
            ranges = list(zip(rows.min(0).tolist(), rows.max(0).tolist(), strict=True))
            places = undeclared_places(encoding.names, ranges, encoding.kinds) if image is None else None
            encoder.notes.extend([] if places is None else [places])
        else:
            rows = validate(estimator, X, reset=True)
            d = rows.shape[1]
            encoding = cls(None, [f"column {j}" for j in range(d)], check_kinds(declared, None, d), image)
        if image is not None and image[0] * image[1] != rows.shape[1]:
            h, w = image
            raise ValueError(f"images of {h} x {w} need {h * w} columns; X has {rows.shape[1]}.")
        check_size(rows, encoding.names)
        for j, kind in encoding.kinds.items():
            if kind == "latitude" and np.abs(rows[:, j]).max() > 90:
                name, largest = column_phrase(encoding.names[j]), np.abs(rows[:, j]).max()
                raise ValueError(
                    f"{name} is declared a latitude, but reaches {largest:g} degrees: are longitude and latitude swapped?"
                )
        return encoding, rows

    def encode(self, X: Any, estimator: BaseEstimator, unused: Sequence[str] = ()) -> Array:
        """Encoded rows [n, d] of new data; Arrow tables may lack the `unused` columns."""
        if is_table(X):
            names = getattr(X, "column_names", None)  # Arrow's, which scikit-learn does not read
            if names is None:
                validate_data(estimator, X, skip_check_array=True, reset=False)
            if self.encoder is not None:
                expected = [name for name in self.encoder.names if name in (names or ()) or name not in unused]
                if names is not None and list(names) != expected:
                    raise ValueError(
                        "the columns of X must be those of fit, in the same order: "
                        f"{', '.join(self.encoder.names)}; got {', '.join(names)}."
                    )
                return self.encoder.transform(X, idle=unused)
        elif self.encoder is not None and len(self.encoder.names) != len(self.names):
            raise ValueError(
                "the model was fitted to a table whose columns hold text, dates or gaps: give a table with the columns "
                f"{', '.join(self.encoder.names)}."
            )
        arrow = hasattr(X, "column_names")  # a model of an array takes the columns of Arrow tables in their order
        rows: Array = validate(estimator, plain_array(X) if arrow else X, reset=False)
        return rows

    @property
    def notes(self) -> list[str]:
        """What was done to the columns of a table."""
        return [] if self.encoder is None else list(self.encoder.notes)

    @property
    def warnings(self) -> list[str]:
        """What in the columns of a table can harm predictions."""
        return [] if self.encoder is None else list(self.encoder.warnings)

    def level_names(self) -> list[str]:
        """The columns of a table that are categories."""
        return [] if self.encoder is None else [c.name for c in self.encoder.columns if c.role == "level"]

    def unused_names(self, used: Sequence[int]) -> list[str]:
        """The columns of a table that none of the `used` encoded columns comes from."""
        if self.encoder is None:
            return []
        sources = [column.name for column in self.encoder.columns for _ in column.labels]
        names = {sources[j] for j in used}
        return [name for name in self.encoder.names if name not in names]

    def state(self) -> dict[str, Any]:
        """A JSON part, for a model file, without the image size, which is in `columns=` of the estimator."""
        return {
            "table": None if self.encoder is None else self.encoder.state(),
            "names": self.names,
            "kinds": list(self.kinds.items()),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], image: tuple[int, int] | None) -> ColumnEncoding:
        """What `state` gave."""
        encoder = None if state["table"] is None else TableEncoder.from_state(state["table"])
        return cls(encoder, list(state["names"]), read_kinds(state["kinds"]), image)


@dataclass(frozen=True)
class RegressionPreprocessing:
    """Turns columns and numeric targets into model rows, and predictions back into the units of y."""

    columns: ColumnEncoding
    target: Target
    target_names: list[str]
    flat: bool  #: whether y was one target [N], not columns
    noise_name: str | None = None  #: the name of the known errors, if there are any

    @classmethod
    def fit(
        cls, X: Any, y: Any, estimator: BaseEstimator, *, columns: Any = None, missing: Missing = "refuse",
        transform: Transform | None = None, sample_weight: Any = None, noise_std: Any = None,
    ) -> tuple[RegressionPreprocessing, Rows]:  # fmt: skip
        """The preprocessing of a table, and its distinct rows."""
        encoding, rows = ColumnEncoding.fit(X, estimator, columns, missing, sample_weight)
        targets = _numeric_targets(y, rows, estimator)
        P = 1 if targets.ndim == 1 else targets.shape[1]
        names = target_names(y)
        if len(names) != P:
            names = ["y"] if P == 1 else [f"y{i}" for i in range(P)]
        distinct, noise_name = _distinct(rows, targets, noise_std, weights_of(sample_weight, rows))
        target = Target.fit(distinct.y, distinct.counts, transform, names)
        return cls(encoding, target, names, targets.ndim == 1, noise_name), distinct

    def read(
        self, X: Any, y: Any, estimator: BaseEstimator, unused: Sequence[str], sample_weight: Any, noise_std: Any
    ) -> tuple[RegressionPreprocessing, Rows]:
        """The preprocessing, with the name of the known errors, and the distinct rows of new data."""
        rows = self.columns.encode(X, estimator, unused)
        targets = _numeric_targets(y, rows, estimator).reshape(len(rows), -1)
        self._check_number(targets)
        distinct, noise_name = _distinct(rows, targets, noise_std, weights_of(sample_weight, rows))
        return (self if noise_std is None else replace(self, noise_name=noise_name)), distinct

    def model_rows(self, rows: Rows) -> ModelRows:
        """The rows with targets and known noise variances in model units."""
        noise = None if rows.noise is None else (rows.noise / self.target.scale[0]) ** 2
        target = self.target.forward(rows.y)
        if not np.isfinite(target).all():
            raise ValueError(f"y has values outside the domain of target_transform={self.target.transform!r}.")
        return ModelRows(rows.X, target, noise, rows.counts)

    def targets(self, y: Any) -> Array:
        """Observed targets [n, P] of new rows, in the units of y."""
        targets = np.asarray(numbers(y), dtype=np.float64)
        targets = targets.reshape(len(targets), -1)
        self._check_number(targets)
        missing = np.isnan(targets).any(1)
        if missing.any():
            raise ValueError(f"y has missing values, first in row {int(missing.argmax())}: drop those rows.")
        return targets

    def _check_number(self, targets: Array) -> None:
        if targets.shape[1] != len(self.target_names):
            raise ValueError(f"y must have {len(self.target_names)} targets, as in fit; got shape {targets.shape}.")

    def noise_variances(self, noise_std: Any) -> Array:
        """Known errors of new rows as variances in model units, [P, n]."""
        errors = np.atleast_1d(np.asarray(plain_array(noise_std), dtype=np.float64))
        return (known_errors(errors, len(errors))[None] / self.target.scale[:, None]) ** 2

    @property
    def n_latent(self) -> int:
        """The number of latent functions: one for each target."""
        return len(self.target_names)

    @property
    def component_scale(self) -> Array:
        """The factor that turns a component of f into the units of y, [P]; ones under a transform."""
        return np.ones(1) if self.target.transform is not None else self.target.scale

    def shape(self, values: Array) -> Array:
        """Values [..., P] in the shape of y: without the last axis if y was one target [N]."""
        return values[..., 0] if self.flat else values


@dataclass(frozen=True)
class ClassificationPreprocessing:
    """Turns columns and class labels into model rows."""

    columns: ColumnEncoding
    classes: Array  #: sorted labels
    target_names: list[str]

    @classmethod
    def fit(
        cls, X: Any, y: Any, estimator: BaseEstimator, *, columns: Any = None, missing: Missing = "refuse",
        sample_weight: Any = None,
    ) -> tuple[ClassificationPreprocessing, Rows]:  # fmt: skip
        """The preprocessing of a table, and its distinct rows."""
        encoding, rows = ColumnEncoding.fit(X, estimator, columns, missing, sample_weight)
        labels = _labels(y, rows, estimator)
        weight = weights_of(sample_weight, rows)
        classes = np.unique(labels if weight is None else labels[weight > 0])
        if len(classes) < 2:
            raise ValueError(f"y has one class, {classes.tolist()}: a classifier needs at least two.")
        if len(classes) > MAX_CLASSES:
            raise ValueError(
                f"y has {len(classes)} classes, more than {MAX_CLASSES}: is it a number? Then use HarmonicGPRegressor."
            )
        preprocessing = cls(encoding, classes, target_names(y) or ["y"])
        return preprocessing, preprocessing._merged(rows, labels, weight)

    def read(self, X: Any, y: Any, estimator: BaseEstimator, unused: Sequence[str], sample_weight: Any) -> Rows:
        """Distinct rows of new data."""
        rows = self.columns.encode(X, estimator, unused)
        labels = _labels(y, rows, estimator)
        unseen = np.setdiff1d(labels, self.classes)
        if len(unseen):
            raise ValueError(f"y has classes that were not in the fit: {unseen.tolist()}.")
        return self._merged(rows, labels, weights_of(sample_weight, rows))

    def _merged(self, rows: Array, labels: Array, weight: Array | None) -> Rows:
        numbers_ = np.searchsorted(self.classes, labels)  # wrong for unknown classes of weight zero, which merge drops
        return merge(rows, numbers_[:, None].astype(np.float64), None, weight)

    def model_rows(self, rows: Rows) -> ModelRows:
        """Rows with class numbers as targets."""
        return ModelRows(rows.X, rows.y.T, None, rows.counts)

    @property
    def n_latent(self) -> int:
        """The number of latent functions: one for two classes, else one for each class."""
        return 1 if self.flat else len(self.classes)

    @property
    def flat(self) -> bool:
        """Whether there is only one latent function, as for two classes."""
        return len(self.classes) == 2

    @property
    def component_scale(self) -> Array:
        """The factor of the components: one, as latent functions have no units."""
        return np.ones(1)


def is_table(X: Any) -> bool:
    """Whether X is a frame whose columns have names; a frame with numbered columns counts as an array."""
    return is_frame(X) and all(isinstance(name, str) for name in getattr(X, "column_names", X.columns))


def image_size(columns: Any) -> tuple[int, int] | None:
    """The height and width if `columns` declares that every row is an image, else None."""
    if not (isinstance(columns, tuple) and len(columns) == 2 and columns[0] == "image"):
        return None
    size = columns[1]
    if not isinstance(size, Sequence) or isinstance(size, str) or len(size) != 2:
        raise TypeError(
            f'columns=("image", (height, width)) takes two whole numbers; got {size!r}. Images have one value per pixel: '
            "convert colours to grey, or use them as plain columns."
        )
    h, w = size
    return whole_number(h, "the height of an image", 1), whole_number(w, "the width of an image", 1)


def _require_target(y: Any, name: str) -> None:
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")


def _numeric_targets(y: Any, rows: Array, estimator: BaseEstimator) -> Array:
    """Targets [N] or [N, P] as float64."""
    _require_target(y, "HarmonicGPRegressor")
    targets = _check_y(numbers(y), estimator=estimator, multi_output=True, y_numeric=True)
    check_consistent_length(rows, targets)
    return np.asarray(targets, dtype=np.float64)


def _distinct(rows: Array, targets: Array, noise_std: Any, weight: Array | None) -> tuple[Rows, str | None]:
    """Distinct rows with targets [N] or [N, P], and the name of their known errors."""
    targets = targets.reshape(len(rows), -1)
    if noise_std is None:
        return merge(rows, targets, None, weight), None
    if targets.shape[1] > 1:
        raise ValueError("noise_std is for one target; fit the targets one by one.")
    errors = known_errors(noise_std, len(rows))
    return merge(rows, targets, errors, weight), (target_names(noise_std) or ["noise_std"])[0]


def _labels(y: Any, rows: Array, estimator: BaseEstimator) -> Array:
    """Labels [N]. Raises for labels that are missing, infinite or of mixed types."""
    _require_target(y, "HarmonicGPClassifier")
    y = np.asarray(plain_array(y))
    if y.dtype.kind in "Of" and any(map(is_missing, y.ravel().tolist())):
        raise ValueError("y has missing values: drop those rows.")
    types = {type(v).__name__ for v in y.ravel().tolist()} if y.dtype.kind == "O" else set()
    if "str" in types and len(types) > 1:
        raise ValueError(
            f"y has labels of mixed types, {', '.join(sorted(types))}: convert all to text, or all to numbers."
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError("y has infinite values: drop those rows.")
    labels: Array = _check_y(y, estimator=estimator)
    check_consistent_length(rows, labels)
    check_classification_targets(labels)
    return labels
