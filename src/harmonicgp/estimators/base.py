"""What regression and classification share: from a table to a fitted model, and back to predictions of f."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from tqdm import tqdm

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action, PrincipalNegation
from harmonicgp.data.tables import Kind, TableEncoder, check_kinds, is_frame
from harmonicgp.estimators.arrays import validated
from harmonicgp.estimators.candidates import (
    KERNELS,
    ONE_BLOCK,
    Candidate,
    affordable,
    candidates,
    finish_cost,
    inducing_for,
    make_features,
    make_kernel,
    step_cost,
)
from harmonicgp.estimators.inputs import Array, Columns, Inputs, check_size
from harmonicgp.estimators.rows import Rows
from harmonicgp.estimators.saving import read_choice, write_choice
from harmonicgp.estimators.search import Data, SymmetryChoice, Trials, search
from harmonicgp.features import Features, SparseFeatures
from harmonicgp.groups import Resolution, check_resolution
from harmonicgp.inference.closed_form import MAX_DENSE, chunks
from harmonicgp.inference.posterior import Family
from harmonicgp.inference.prediction import Predictor
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import Bound, observe
from harmonicgp.training import Callback, Fit, Schedule, fit
from harmonicgp.training.exact import fit_exact
from harmonicgp.training.full_data import absorb
from harmonicgp.training.problem import Problem

#: Up to this many rows a model has an inducing point for each: no search, no batches, no rows held out.
SMALL = 2000
#: Rows of a prediction at a time.
CHUNK = 65_536


MakeLikelihood: TypeAlias = Callable[[torch.dtype], gpytorch.likelihoods.Likelihood]


@dataclass(frozen=True)
class Components:
    """The parts of f, one for each harmonic, in the units of y."""

    labels: list[str]
    mean: Array  #: [T, n], or [T, n, P]
    std: Array  #: [T, n], or [T, n, P]
    residual_std: Array  #: what no inducing point sees, [n], or [n, P]


class HarmonicGPBase(BaseEstimator):
    """Not for use by itself: see HarmonicGPRegressor and HarmonicGPClassifier."""

    # Arguments, set by the subclasses' __init__.
    kernel: str | gpytorch.kernels.Kernel
    symmetry: str | Action | None
    n_inducing: int | str
    share_inducing: bool
    resolution: Resolution
    posterior: str
    warp: str | None
    columns: Any
    missing: str
    max_steps: int
    batch_size: int
    learning_rate: float
    time_budget: float | None
    validation_fraction: float
    early_stopping: bool
    checkpoint_dir: str | Path | None
    callbacks: Sequence[Callback] | None
    dtype: str
    random_state: Any
    progress: bool

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _check_arguments(self) -> None:
        if not (self.symmetry is None or self.symmetry == "auto" or isinstance(self.symmetry, Action)):
            raise TypeError(
                'symmetry must be "auto", None for one block, or an action of harmonicgp.actions, such as Negation([0]); '
                f"got {self.symmetry!r}."
            )
        if not (
            isinstance(self.kernel, gpytorch.kernels.Kernel)
            or (isinstance(self.kernel, str) and self.kernel in KERNELS)
        ):
            raise ValueError(f"kernel must be one of {sorted(KERNELS)} or a GPyTorch kernel; got {self.kernel!r}.")
        for name, allowed in (
            ("posterior", ("auto", "block", "joint")),
            ("warp", ("auto", None, "quantile")),
            ("missing", ("refuse", "impute")),
            ("dtype", ("auto", "float32", "float64")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}.")
        if self.n_inducing != "auto":
            m = whole_number(self.n_inducing, "n_inducing", 1)
            if self.posterior == "joint" and isinstance(self.symmetry, Action):
                features = m * self.symmetry.group.order
                if features > MAX_DENSE:
                    raise ValueError(
                        f'a joint posterior of {features} features is too large: use posterior="block", or at most '
                        f"{MAX_DENSE // self.symmetry.group.order} inducing points a block."
                    )
        check_resolution(self.resolution)
        self._schedule()  # checks the rest

    def _schedule(self, **changes: Any) -> Schedule:
        settings: dict[str, Any] = {
            "max_steps": self.max_steps,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "time_budget": self.time_budget,
            "validation_fraction": self.validation_fraction,
            "early_stopping": bool(self.early_stopping),
            "progress": bool(self.progress),
        }
        return Schedule(**(settings | changes))

    # --- tables to numbers --------------------------------------------------------------------------------------------

    def _encode(self, X: Any, reset: bool = False, weights: Array | None = None) -> Array:
        """Rows as float64 numbers [n, d]; with `reset` the encoding is learned."""
        if is_table(X):
            self._check_names(X, reset)
            if reset:
                self._table: TableEncoder | None = TableEncoder.fit(X, self._declared(), self.missing, weights)  # type: ignore[arg-type]
                return self._table.transform(X)
            if self._table is not None:
                return self._table.transform(X)
        elif reset:
            self._table = None
        elif self._table is not None and len(self._table.names) != len(self._table.encoded_names):
            raise ValueError(
                "the model was fitted to a table whose columns hold text, dates or gaps: give a table with the columns "
                f"{', '.join(self._table.names)}."
            )
        rows: Array = validated(self, X, reset=reset)
        return rows

    def _check_names(self, X: Any, reset: bool) -> None:
        """Learn or compare the names of a table's columns."""
        names = getattr(X, "column_names", None)  # Arrow's, which scikit-learn does not read
        if names is None:
            validate_data(self, X, skip_check_array=True, reset=reset)
        elif reset:
            self.feature_names_in_, self.n_features_in_ = np.array(names, dtype=object), len(names)
        elif list(names) != list(getattr(self, "feature_names_in_", names)):
            raise ValueError(
                "the columns of X should be those of fit, in the same order: "
                f"{', '.join(map(str, self.feature_names_in_))}; got {', '.join(names)}."
            )

    def _declared(self) -> Mapping[str | int, Kind] | None:
        if self.columns is None or self._image() is not None:
            return None
        if not isinstance(self.columns, Mapping):
            raise TypeError(
                'columns must be a dict such as {"lon": "longitude", "lat": "latitude", "hour": ("periodic", 24)}, or '
                f'("image", (height, width)); got {self.columns!r}.'
            )
        return self.columns

    def _image(self) -> tuple[int, int] | None:
        """The height and width, where every row is an image."""
        if isinstance(self.columns, tuple) and len(self.columns) == 2 and self.columns[0] == "image":
            h, w = self.columns[1]
            return whole_number(h, "the height of an image", 1), whole_number(w, "the width of an image", 1)
        return None

    def _describe(self, X: Array) -> None:
        """Names and kinds of the encoded columns."""
        if self._table is not None:
            self.encoded_names_, self.column_kinds_ = list(self._table.encoded_names), dict(self._table.kinds)
        else:
            self.encoded_names_ = [f"column {j}" for j in range(X.shape[1])]
            self.column_kinds_ = check_kinds(self._declared() or {}, None, X.shape[1])
        image = self._image()
        if image is not None and image[0] * image[1] != X.shape[1]:
            raise ValueError(
                f"images of {image[0]} x {image[1]} need {image[0] * image[1]} columns; X has {X.shape[1]}."
            )
        check_size(X, self.encoded_names_)
        for j, kind in self.column_kinds_.items():
            if kind == "latitude" and np.abs(X[:, j]).max() > 90:
                raise ValueError(
                    f"column {self.encoded_names_[j]} is declared a latitude and reaches {np.abs(X[:, j]).max():g} degrees: "
                    "are longitude and latitude swapped?"
                )

    # --- fitting ------------------------------------------------------------------------------------------------------

    def _settle(
        self, rows: Rows, target: Array, noise: Array | None, likelihood: MakeLikelihood, search_small: bool = False
    ) -> Data:
        """Which columns, which precision, and which symmetry; target [P, N] and noise variances [N] in model units."""
        self._small = len(rows.X) <= SMALL
        wide = len(rows.X) <= (SMALL if self._exact_noise() else 500)
        self._dtype = {"float32": torch.float32, "float64": torch.float64}.get(
            self.dtype, torch.float64 if wide else torch.float32
        )
        kinds, image = self.column_kinds_, self._image()
        if isinstance(self.symmetry, Action) or isinstance(self.kernel, gpytorch.kernels.Kernel):
            columns = Columns.as_given(rows.X, rows.counts, kinds, self._raw_columns(rows.X.shape[1]))
        else:
            columns = Columns.find(rows.X, rows.counts, kinds, self.encoded_names_, image)
        self.warnings_ = [*(self._table.notes if self._table is not None else ()), *columns.notes]
        data = Data(rows.X, target, noise, rows.counts, columns)
        observed = observe(likelihood(self._dtype))
        # Under Gaussian noise outputs share their precision; otherwise each has its own, and steps are tried and mended.
        self._outputs = 1 if observed.is_gaussian else 3 * observed.n_latent(len(target))
        self.timings_ = {"prepare": time.perf_counter() - self._start}
        kept = self._choice_file()
        recalled = None if kept is None else read_choice(kept, self._fingerprint(data))
        self._recalled = None if recalled is None else recalled[1]  # inducing points of an earlier run of this fit
        self.symmetry_ = self._choose(data, likelihood, search_small) if recalled is None else recalled[0]
        self.timings_["search"] = time.perf_counter() - self._start - self.timings_["prepare"]
        return data

    def _fit_rows(
        self, rows: Rows, target: Array, noise: Array | None, likelihood: MakeLikelihood, keep_out: bool = False
    ) -> Fit:
        """Choose a shape, then fit it."""
        data = self._settle(rows, target, noise, likelihood)
        N, small, start = len(rows.X), self._small, self._start
        candidate = self.symmetry_.candidate
        principal = candidate.axes == "principal"
        self._inputs = Inputs.fit(rows.X, rows.counts, data.columns, candidate.warp, principal)
        action = self.symmetry_.action or candidate.action(self._inputs)
        self.symmetry_.action = action
        X, y, known, counts = data.tensors(self._inputs, self._dtype)
        m = self._recalled or self._how_many(N, action, candidate)
        kept = self._choice_file()
        if kept is not None and self._recalled is None:
            write_choice(kept, self._fingerprint(data), self.symmetry_, m)
        kernel = make_kernel(self.kernel, self._inputs, action, X, self._seed)
        observed = observe(likelihood(self._dtype))
        exact = small and action is None and m >= N and observed.is_gaussian and not keep_out
        features: Features
        if exact:
            features = SparseFeatures(kernel, X, learn_inducing=False)
        else:
            features = make_features(
                kernel,
                action,
                X,
                m,
                share=self.share_inducing,
                resolution=self.resolution,
                counts=counts,
                seed=self._seed,
            )
        self.timings_["prepare"] = time.perf_counter() - start - self.timings_["search"]
        plan = self._plan(N, small, keep_out)
        callbacks = tuple(self.callbacks or ())
        bound: Bound = self._bound_name() or ("tight" if observed.is_gaussian else "elbo")
        if exact:
            result = fit_exact(Problem(features, observed, X, y, None, known, bound, counts), plan, callbacks)
        else:
            family = (
                self.posterior if self.posterior != "auto" else ("joint" if candidate.posterior == "joint" else "auto")
            )
            result = fit(
                features,
                observed.likelihood,
                X,
                y,
                noise=known,
                counts=counts,
                family=family,  # type: ignore[arg-type]
                bound=bound,
                schedule=plan,
                callbacks=callbacks,
            )
        self._keep(result)
        if kept is not None:
            kept.unlink(missing_ok=True)
        used = getattr(features, "Z", X).shape[-2]
        shape = (action, used, min(plan.batch_size, N))
        step = step_cost(*shape, "joint" if self.posterior == "joint" else candidate.posterior, self._outputs)
        self.modelled_cost_ = self.symmetry_.cost + self.n_steps_ * step + finish_cost(action, used, N)
        return result

    def _choice_file(self) -> Path | None:
        """Where what was chosen is kept until the fit is done."""
        return None if self.checkpoint_dir is None else Path(self.checkpoint_dir) / "fit.choice"

    def _fingerprint(self, data: Data) -> str:
        """A digest of data and arguments: a choice serves the fit that made it, and no other."""
        free = ("callbacks", "checkpoint_dir", "progress", "time_budget")
        facts = {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in free}
        digest = hashlib.sha256(repr((sorted(facts.items()), self._seed)).encode())
        for array in (data.X, data.target, data.noise, data.counts):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _plan(self, N: int, small: bool, keep_out: bool) -> Schedule:
        """The schedule for N rows."""
        changes: dict[str, Any] = {"seed": self._seed, "keep_out": keep_out}
        if small:
            changes["batch_size"] = max(self.batch_size, N)
            if not keep_out:
                changes["validation_fraction"] = 0.0
        if self.time_budget is not None:
            changes["time_budget"] = max(self.time_budget - (time.perf_counter() - self._start), 1e-2)
        if self.checkpoint_dir is not None:
            changes["checkpoint"] = Path(self.checkpoint_dir) / "fit.checkpoint"
        return self._schedule(**changes)

    def _bound_name(self) -> Bound | None:
        return None

    def _keep(self, result: Fit) -> None:
        """The fitted attributes."""
        self.kernel_, self.likelihood_ = getattr(result.features.view, "kernel", None), result.observation.likelihood
        self.elbo_, self.history_, self.n_steps_ = result.bound, result.history, len(result.history)
        self.timings_ |= {name: float(value) for name, value in result.seconds.items()}
        self._predictor = result.predictor()

    def _raw_columns(self, d: int) -> list[int]:
        """Columns whose units mean something to the kernel or the action (degrees, hours): left as they are."""
        raw = set(self.symmetry.periods) if isinstance(self.symmetry, Action) else set()
        for part in self.kernel.modules() if isinstance(self.kernel, gpytorch.kernels.Kernel) else ():
            if isinstance(part, GlobeKernel | gpytorch.kernels.PeriodicKernel):
                raw |= set(range(d)) if part.active_dims is None else set(part.active_dims.tolist())
        return sorted(raw)

    def _choose(self, data: Data, likelihood: MakeLikelihood, search_small: bool) -> SymmetryChoice:
        """The candidate to fit: as told, or by a search."""
        warp = {"auto": None, None: False, "quantile": True}[self.warp]
        family: Family | None = None if self.posterior == "auto" else self.posterior  # type: ignore[assignment]
        if isinstance(self.symmetry, Action):
            if isinstance(self.symmetry, PrincipalNegation):
                plain = Candidate("principal", self.symmetry.ways, bool(warp), family or "block")
                self.symmetry.check_dim(data.X.shape[1])
                return SymmetryChoice(plain, None, reason="as asked")
            return SymmetryChoice(Candidate("raw", 0, bool(warp), family or "block"), self.symmetry, reason="as asked")
        if isinstance(self.kernel, gpytorch.kernels.Kernel):
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason="a kernel of your own")
        if self.symmetry is None:
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason="as asked")
        if self._small and not search_small:
            reason = f"{len(data.X)} rows are few: nothing to gain by a symmetry"
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason=reason)
        options = list(candidates(data.columns, warp, family))
        trials = Trials(
            self.kernel,
            lambda: likelihood(self._dtype),
            self._outputs,
            self._bound_name(),
            self._dtype,
            self.learning_rate,
            self._seed,
        )
        until = math.inf if self.time_budget is None else self._start + 0.3 * self.time_budget
        # disable=None: quiet where there is no terminal
        with tqdm(desc="search", unit=" fits", disable=None if self.progress else True, leave=False) as bar:

            def tell(name: str) -> None:
                bar.update()
                bar.set_postfix_str(name)

            return search(data, options, trials, self.posterior, tell, until)

    def _exact_noise(self) -> bool:
        """Whether noise is Gaussian, so that small tables have an exact model."""
        return False

    def _how_many(self, N: int, action: Action | None, candidate: Candidate) -> int:
        """Inducing points a block."""
        small, outputs = self._small, self._outputs
        if self.n_inducing != "auto":
            return int(self.n_inducing)
        if small and action is None and self._exact_noise():
            return N
        batch = min(self.batch_size, N)
        allowance = step_cost(None, min(ONE_BLOCK if outputs == 1 else ONE_BLOCK // 2, N), batch, "block")
        if self.time_budget is not None:
            left = self.time_budget - (time.perf_counter() - self._start)
            allowance = min(allowance, affordable(left, N, self.max_steps, batch))
        most = int(MAX_DENSE / math.sqrt(outputs))
        if small:
            allowance = min(allowance, step_cost(None, min(256, N), batch, "block"))
        return max(inducing_for(allowance, action, batch, candidate.posterior, outputs, N, most), 1)

    # --- predicting ---------------------------------------------------------------------------------------------------

    def _inputs_of(self, X: Array) -> Tensor:
        return torch.from_numpy(self._inputs.transform(X)).to(self._dtype)

    def _batches(self, X: Any) -> Iterator[tuple[slice, Array]]:
        """Encoded rows of X in pieces of bounded memory."""
        check_is_fitted(self, "_predictor")
        rows = self._encode(X)
        for part in chunks(len(rows), CHUNK):
            yield part, rows[part]

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of f in model units, [P, n]."""
        mean, variance = self._predictor.marginals(self._inputs_of(rows))
        return mean.double().numpy(), variance.double().numpy()

    def _absorb(self, X: Array, target: Array, noise: Array | None, counts: Array | None) -> None:
        """New rows for the posterior, at the present hyper-parameters."""
        data = Data(X, target, noise, counts, Columns(tuple(range(X.shape[1]))))
        x, y, known, weights = data.tensors(self._inputs, self._dtype)
        predictor = self._predictor
        observation = observe(self.likelihood_)
        bound: Bound = self._bound_name() or ("tight" if observation.is_gaussian else "elbo")
        problem = Problem(predictor.features, observation, x, y, None, known, bound, weights)
        posterior = absorb(problem, predictor.whitened, predictor.posterior)
        self._predictor = Predictor(predictor.features, predictor.whitened, posterior, None, predictor.chunk_size)

    def predict_components(self, X: Any) -> Components:
        """The parts of f, one for each harmonic, in the units of y (of f itself under a transformed target or classes).

        Means add up to the latent function less its level. Under the block posterior the parts are independent; under a
        joint one their standard deviations are marginal and do not add up.
        """
        check_is_fitted(self, "_predictor")
        rows = self._encode(X)
        mean, variance, residual = self._predictor.components(self._inputs_of(rows))
        scale = self._component_scale()
        m, s = (t.double().numpy().transpose(1, 2, 0) * scale for t in (mean, variance.clamp_min(0).sqrt()))
        r = residual.double().sqrt().numpy()[:, None] * scale
        if self._flat():
            m, s, r = m[..., 0], s[..., 0], r[..., 0]
        return Components(self._labels(), m, s, r)

    def _component_scale(self) -> Array:
        return np.ones(1)

    def _flat(self) -> bool:
        return self._predictor.posterior.n_outputs == 1

    def _labels(self) -> list[str]:
        features = self._predictor.features
        frequencies = getattr(features, "block_frequencies", None)
        if frequencies is None:
            return ["all"] if len(features.block_order) == 1 else [f"block {b}" for b in features.block_order]
        return ["t = " + ",".join(str(int(v)) for v in t) for t in frequencies]

    def inducing_points(self) -> Array:
        """The inducing inputs in the units of the encoded columns, [m, d]; NaN in columns that the model does not use."""
        check_is_fitted(self, "_predictor")
        Z = torch.cat([Z.detach().reshape(-1, Z.shape[-1]) for Z in self._predictor.features.inducing()])
        return self._inputs.inverse(Z.double().numpy(), len(self.encoded_names_))


def is_table(X: Any) -> bool:
    """Whether X is a frame with names; one without (numbered columns) is an array."""
    return is_frame(X) and all(isinstance(name, str) for name in getattr(X, "column_names", X.columns))


def fresh_seed(random_state: Any) -> int:
    """A seed from scikit-learn's kinds of random state."""
    return int(check_random_state(random_state).randint(2**31 - 10**6))
