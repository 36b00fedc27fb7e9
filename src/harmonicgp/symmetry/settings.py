"""Settings of one fit: the options, and what follows from them and from the rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import gpytorch
import torch

from harmonicgp.actions import Action
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.symmetry.factories import make_class_likelihood, make_noise
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, fresh_seed, pick_device
from harmonicgp.tables.inputs import Columns
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, ColumnEncoding, RegressionPreprocessing
from harmonicgp.tables.rows import ModelRows
from harmonicgp.training.neighbour_search import NEIGHBOURS

#: Up to this many rows a model has an inducing point for each: no search, no batches, no rows held out.
SMALL = 2000
#: Up to this many rows a model of noise that is not Gaussian runs in float64.
DOUBLE = 500


@dataclass(frozen=True)
class ModelSettings:
    """What a model of a table is fitted by, beside its rows."""

    options: ModelOptions
    encoding: ColumnEncoding
    make_likelihood: Callable[[torch.dtype, torch.device], gpytorch.likelihoods.Likelihood]
    n_precisions: int  #: precisions to be learned, as the cost counts them
    n_rows: int
    start: float  #: when the fit began, of `time.perf_counter`
    seed: int
    dtype: torch.dtype
    device: torch.device
    estimator: str  #: the name of its class

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian: closed forms apply, and outputs share their precision."""
        return self.options.is_gaussian

    def likelihood(self) -> gpytorch.likelihoods.Likelihood:
        """A new likelihood, at its start."""
        return self.make_likelihood(self.dtype, self.device)

    @property
    def small(self) -> bool:
        """Whether rows are so few that a search has nothing to gain."""
        return self.n_rows <= SMALL

    @property
    def neighbours(self) -> int:
        """The neighbours that a comparison of models counts with; 0 where the model has none."""
        k = getattr(self.options, "neighbours", 0)
        if not self.is_gaussian or self.small:
            return 0
        return NEIGHBOURS if k == "auto" else int(k)

    def until(self, share: float = 1.0) -> float:
        """When a share of the time budget is over, of `time.perf_counter`."""
        budget = self.options.time_budget
        return math.inf if budget is None else self.start + share * budget

    def seconds(self) -> float:
        """Since the fit began."""
        return time.perf_counter() - self.start

    def columns_of(self, data: ModelRows, by_number: bool = False) -> Columns:
        """The columns that the model uses: all of them, as given, where a kernel or an action names them by number."""
        encoding = self.encoding
        by_number = (by_number or isinstance(self.options.symmetry, Action)) and encoding.image is None
        if by_number or isinstance(self.options.kernel, gpytorch.kernels.Kernel):
            raw = raw_columns(self.options.symmetry, self.options.kernel, len(encoding.names))
            return Columns.as_given(data.X, data.counts, encoding.kinds, raw)
        return Columns.find(data.X, data.counts, encoding.kinds, encoding.names, encoding.image)


def raw_columns(symmetry: Any, kernel: Any, d: int) -> list[int]:
    """Of d columns those whose units mean something to the action or the kernel (degrees, hours): left as they are."""
    raw = set(symmetry.periods) if isinstance(symmetry, Action) else set()
    for part in kernel.modules() if isinstance(kernel, gpytorch.kernels.Kernel) else ():
        if isinstance(part, GlobeKernel | gpytorch.kernels.PeriodicKernel):
            raw |= set(range(d)) if part.active_dims is None else set(part.active_dims.tolist())
    return sorted(raw)


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Gradients can be taken, whatever the caller has turned off around a fit."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def regression_settings(
    options: RegressionOptions, preprocessing: RegressionPreprocessing, data: ModelRows, start: float
) -> ModelSettings:
    """Settings of a regression."""
    # Without Gaussian noise each output has a precision of its own, and steps are tried and repeated.
    precisions = 1 if options.is_gaussian else 3 * len(data.target)
    make = partial(make_noise, options.likelihood)
    return _settings(options, preprocessing.columns, make, precisions, len(data), start, "HarmonicGPRegressor")


def classification_settings(
    options: ModelOptions, preprocessing: ClassificationPreprocessing, data: ModelRows, start: float
) -> ModelSettings:
    """Settings of a classification."""
    classes = len(preprocessing.classes)
    precisions = 3 * (1 if classes == 2 else classes)
    make = partial(make_class_likelihood, classes)
    return _settings(options, preprocessing.columns, make, precisions, len(data), start, "HarmonicGPClassifier")


def _settings(
    options: ModelOptions,
    encoding: ColumnEncoding,
    make_likelihood: Callable[[torch.dtype, torch.device], gpytorch.likelihoods.Likelihood],
    precisions: int,
    n_rows: int,
    start: float,
    estimator: str,
) -> ModelSettings:
    wide = n_rows <= (SMALL if options.is_gaussian else DOUBLE)
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    return ModelSettings(
        options,
        encoding,
        make_likelihood,
        precisions,
        n_rows,
        start,
        fresh_seed(options.random_state),
        dtypes.get(options.dtype, torch.float64 if wide else torch.float32),
        pick_device(options.device),
        estimator,
    )
