"""What regression and classification share: from numbers to a fitted model, and back to predictions of f."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.estimators.choosing import Choosing, MakeLikelihood
from harmonicgp.estimators.saving import read_choice, write_choice
from harmonicgp.features import Features, SparseFeatures
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import MAX_DENSE, chunks
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import Bound, observe
from harmonicgp.symmetry.candidates import (
    ONE_BLOCK,
    Candidate,
    affordable,
    finish_cost,
    inducing_for,
    make_features,
    make_kernel,
    step_cost,
)
from harmonicgp.symmetry.search import Data
from harmonicgp.tables.inputs import Array, Columns, Inputs
from harmonicgp.tables.rows import Rows
from harmonicgp.training import Fit, Schedule, fit
from harmonicgp.training.exact import fit_exact
from harmonicgp.training.full_data import absorb
from harmonicgp.training.problem import Problem

#: Up to this many rows a model has an inducing point for each: no search, no batches, no rows held out.
SMALL = 2000
#: Rows of a prediction at a time.
CHUNK = 65_536
#: How far from the data of the fit rows are not yet beyond them, as a share of a column's range.
NEAR = 0.01


@contextmanager
def _learning() -> Iterator[None]:
    """Gradients can be taken, whatever the caller has turned off around a fit."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@dataclass(frozen=True)
class Components:
    """The parts of f, one for each harmonic, in the units of y."""

    labels: list[str]
    mean: Array  #: [T, n], or [T, n, P]
    std: Array  #: [T, n], or [T, n, P]
    residual_std: Array  #: what no inducing point sees, [n], or [n, P]


class HarmonicGPBase(Choosing):
    """Not for use by itself: see HarmonicGPRegressor and HarmonicGPClassifier."""

    # --- fitting ------------------------------------------------------------------------------------------------------

    @_learning()
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
        named = (isinstance(self.symmetry, Action) or self._offered is not None) and image is None
        if named or isinstance(self.kernel, gpytorch.kernels.Kernel):
            columns = Columns.as_given(rows.X, rows.counts, kinds, self._raw_columns(rows.X.shape[1]))
        else:
            columns = Columns.find(rows.X, rows.counts, kinds, self.encoded_names_, image)
        self.notes_ = [*(self._table.notes if self._table is not None else ()), *columns.notes]
        self.warnings_ = list(self._table.warnings) if self._table is not None else []
        self.ranges_: list[list[float]] | None = np.stack((rows.X.min(0), rows.X.max(0)), 1).tolist()
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

    @_learning()
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
        posterior = absorb(problem, predictor.whitened, predictor.posterior).settled()
        self._predictor = Predictor(predictor.features, predictor.whitened, posterior, None, predictor.chunk_size)
        if self.ranges_ is not None:
            ends = zip(self.ranges_, X.min(0).tolist(), X.max(0).tolist(), strict=True)
            self.ranges_ = [[min(low, least), max(high, most)] for (low, high), least, most in ends]

    def beyond(self, X: Any) -> dict[str, Array]:
        """Rows beyond the data of the fit: by encoded column that has some, a mask [n] of the rows outside its range.

        A hundredth of the range is allowed for; of a column that was constant, any change counts. Columns that go round (periods,
        longitude), latitudes and images have no such rows; nor have models from files of older versions, which keep no ranges.
        """
        check_is_fitted(self, "_predictor")
        rows = self._encode(X)
        found: dict[str, Array] = {}
        if self.ranges_ is None or self._image() is not None:
            return found
        exempt = {*self.column_kinds_, *self._raw_columns(rows.shape[1])}
        for j in sorted({*range(rows.shape[1])} - exempt):
            low, high = self.ranges_[j]
            near = NEAR * (high - low) or 1e-6 * abs(low)  # of a column that was constant, its rounding
            outside = (rows[:, j] < low - near) | (rows[:, j] > high + near)
            if outside.any():
                found[self.encoded_names_[j]] = outside
        return found

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


def fresh_seed(random_state: Any) -> int:
    """A seed from scikit-learn's kinds of random state."""
    return int(check_random_state(random_state).randint(2**31 - 10**6))
