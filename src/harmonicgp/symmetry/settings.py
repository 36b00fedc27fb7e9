"""Settings of one fit: the options, and what follows from them and from the rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import gpytorch
import torch

from harmonicgp.actions import Action
from harmonicgp.inference.posterior import Family
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.symmetry.factories import make_class_likelihood, make_noise
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, bound_of, fresh_seed, is_gaussian, pick_device
from harmonicgp.tables.inputs import Columns
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, ColumnEncoding, RegressionPreprocessing
from harmonicgp.tables.rows import ModelRows
from harmonicgp.training.neighbour_search import NEIGHBOURS

#: Up to this many rows a model has an inducing point for each: no search, no batches, no rows held out.
SMALL = 2000
#: Up to this many rows a model whose noise is not Gaussian runs in float64.
DOUBLE = 500


@dataclass(frozen=True)
class ModelSettings:
    """All that a fit needs to know beside its rows."""

    options: ModelOptions
    preprocessing: RegressionPreprocessing | ClassificationPreprocessing
    n_rows: int
    n_precisions: int  #: precisions to be learned, as the cost model counts them
    start: float  #: when the fit began, of `time.perf_counter`
    seed: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(
        cls,
        options: ModelOptions,
        preprocessing: RegressionPreprocessing | ClassificationPreprocessing,
        n_rows: int,
        start: float,
    ) -> ModelSettings:
        """Settings for `n_rows` distinct rows; `random_state` is drawn from here."""
        gaussian = is_gaussian(options)
        # Without Gaussian noise each latent function has its own precision, and steps are tried and repeated.
        n_precisions = 1 if gaussian else 3 * preprocessing.n_latent
        default = torch.float64 if n_rows <= (SMALL if gaussian else DOUBLE) else torch.float32
        dtype = {"float32": torch.float32, "float64": torch.float64}.get(options.dtype, default)
        seed, device = fresh_seed(options.random_state), pick_device(options.device)
        return cls(options, preprocessing, n_rows, n_precisions, start, seed, dtype, device)

    @property
    def encoding(self) -> ColumnEncoding:
        """How the columns of the table become encoded columns."""
        return self.preprocessing.columns

    @property
    def estimator(self) -> str:
        """The class name of the estimator."""
        return "HarmonicGPRegressor" if isinstance(self.options, RegressionOptions) else "HarmonicGPClassifier"

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is Gaussian: closed forms apply, and outputs share their precision."""
        return is_gaussian(self.options)

    @property
    def bound(self) -> Bound:
        """The bound that training maximises; only Gaussian noise has more than one."""
        return bound_of(self.options)

    @property
    def family(self) -> Family | None:
        """The family of the posterior; None leaves it to a search."""
        return None if self.options.posterior == "auto" else self.options.posterior  # type: ignore[return-value]

    @property
    def warp(self) -> bool | None:
        """Whether skewed columns are warped; None leaves it to a search."""
        return {"auto": None, None: False, "quantile": True}[self.options.warp]

    def likelihood(self) -> gpytorch.likelihoods.Likelihood:
        """A new likelihood with its starting values."""
        if isinstance(self.preprocessing, ClassificationPreprocessing):
            return make_class_likelihood(len(self.preprocessing.classes), self.dtype, self.device)
        assert isinstance(self.options, RegressionOptions)
        return make_noise(self.options.likelihood, self.dtype, self.device)

    @property
    def small(self) -> bool:
        """Whether the rows are so few that a search has nothing to gain."""
        return self.n_rows <= SMALL

    @property
    def requested_neighbours(self) -> int | Literal["auto"]:
        """`neighbours=` of the estimator; 0 where the noise is not Gaussian."""
        k = self.options.neighbours if isinstance(self.options, RegressionOptions) and self.is_gaussian else 0
        return "auto" if k == "auto" else int(k)

    @property
    def neighbours(self) -> int:
        """The number of neighbours with which models are compared; 0 where the model has none."""
        k = self.requested_neighbours
        return 0 if self.small else NEIGHBOURS if k == "auto" else k

    def until(self, share: float = 1.0) -> float:
        """When a share of the time budget is over, of `time.perf_counter`."""
        budget = self.options.time_budget
        return math.inf if budget is None else self.start + share * budget

    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.start

    def columns_of(self, data: ModelRows, by_number: bool = False) -> Columns:
        """The columns that the model uses: all, in their order, if a kernel or an action names columns by number."""
        encoding = self.encoding
        by_number = (by_number or isinstance(self.options.symmetry, Action)) and encoding.image is None
        if by_number or isinstance(self.options.kernel, gpytorch.kernels.Kernel):
            raw = raw_columns(self.options.symmetry, self.options.kernel, len(encoding.names))
            return Columns.as_given(data.X, data.counts, encoding.kinds, raw)
        return Columns.find(data.X, data.counts, encoding.kinds, encoding.names, encoding.image)


def raw_columns(symmetry: Any, kernel: Any, d: int) -> list[int]:
    """Of d columns those whose units matter to the action or the kernel (degrees, hours); they are not standardised."""
    raw = set(symmetry.periods) if isinstance(symmetry, Action) else set()
    for part in kernel.modules() if isinstance(kernel, gpytorch.kernels.Kernel) else ():
        if isinstance(part, GlobeKernel | gpytorch.kernels.PeriodicKernel):
            raw |= set(range(d)) if part.active_dims is None else set(part.active_dims.tolist())
    return sorted(raw)


@contextmanager
def gradients_enabled() -> Iterator[None]:
    """Enable gradients inside a fit, even if the caller has disabled them around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
