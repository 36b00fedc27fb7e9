"""Checks of the values of a model file. A false value raises a `ValueError`; nothing is read or written here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.estimators.model import FittedModel
from harmonicgp.estimators.predictive import Noise
from harmonicgp.io.fields import has_type
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Inputs, Warp
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, RegressionPreprocessing

#: The types of the plain values of a file.
_TYPES: dict[str, Any] = {
    "elbo_": float,
    "modelled_cost_": Any,  # NaN in files of older versions
    "history_": list[dict[str, Any]],
    "timings_": dict[str, float],
    "notes_": list[str],
    "warnings_": list[str],
    "ranges_": list[tuple[float, float]] | None,
    "validation_": dict[str, Any] | None,
    "_seed": int,
    "n_steps_": int,
    "n_features_in_": int,
    "encoded_names_": list[str],
    "target_names_": list[str],
    "_one": bool,
}
#: The last part of the names of the limits of parameters, which may be infinite.
_LIMITS = ("lower_bound", "upper_bound")
#: Inducing inputs at which a model is tried.
_TRIED = 8


def check_plain(plain: Mapping[str, Any]) -> None:
    """Plain values have the types with which they are written."""
    for name, value in plain.items():
        _require(has_type(value, _TYPES[name]), f"{name} in the header")


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """All numbers are finite, but for the limits of parameters."""
    for name, tensor in tensors.items():
        limit = name.rpartition(".")[2] in _LIMITS
        _require(limit or not tensor.is_floating_point() or bool(tensor.isfinite().all()), f"numbers in {name}")


def check_constraints(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The limits of parameters are those of the header, and parameters stay within them and finite."""
    for name, limit in module.state_dict().items():
        if name.rpartition(".")[2] in _LIMITS:
            _require(torch.equal(limit, tensors[name].to(limit)), name)
    parts = [(name, part) for name, part in module.named_modules() if isinstance(part, gpytorch.Module)]
    for prefix, part in parts:
        for name, _ in part.named_parameters(recurse=False):
            constraint = part.constraint_for_parameter_name(name)
            if constraint is not None:
                value = constraint.transform(tensors[f"{prefix}.{name}" if prefix else name])
                inside = (value >= constraint.lower_bound) & (value <= constraint.upper_bound) & value.isfinite()
                positive = bool((constraint.lower_bound < 0).any()) or bool((value > 0).all())
                _require(bool(inside.all()) and positive, name)


def check_model(
    model: FittedModel,
    preprocessing: RegressionPreprocessing | ClassificationPreprocessing,
    n_features: int,
    feature_names: Any,
) -> None:
    """Shapes and values of all parts fit together, and predictions at inducing inputs are finite."""
    encoding, P = preprocessing.columns, model.predictor.posterior.n_outputs
    d, encoder = len(encoding.names), encoding.encoder
    _require(encoder is None or encoder.encoded_names == encoding.names, "names of encoded columns")
    given = d if encoder is None else len(encoder.names)
    _require(n_features == given, "number of columns")
    labels = feature_names if encoder is None else encoder.names
    _require(feature_names is None or (feature_names == labels and len(labels) == given), "names of columns")
    _require(model.ranges is None or len(model.ranges) == d, "ranges of columns")
    _check_inputs(model.inputs, d)
    if isinstance(preprocessing, RegressionPreprocessing):
        _require(len(preprocessing.target_names) == P, "targets")
        _check_target(preprocessing, model, P)
    else:
        _require(preprocessing.n_latent == P and len(set(preprocessing.classes.tolist())) > 1, "classes")
    features, posterior = model.predictor.features, model.predictor.posterior
    shapes = features.shapes
    if posterior.family == "joint":
        shapes = ((1, sum(blocks * m for blocks, m in shapes)),)
    for (blocks, m), mean, Lambda in zip(shapes, posterior.means, posterior.precisions, strict=True):
        _require(mean.shape == (P, blocks, m), "means of the posterior")
        _require(Lambda.shape in ((P, blocks, m, m), (1, blocks, m, m)), "precisions of the posterior")
    Z = features.inducing()[0]
    places = Z.reshape(-1, Z.shape[-1])[:: max(1, Z.shape[-2] // _TRIED)][:_TRIED]
    mean, variance = model.predictor.marginals(places)
    _require(bool(mean.isfinite().all() and variance.isfinite().all() and (variance >= 0).all()), "predictions")


def _check_inputs(inputs: Inputs, d: int) -> None:
    order, k = inputs.order, inputs.d
    _require(order.shape == (k,) and order.dtype.kind == "i" and bool(((order >= 0) & (order < d)).all()), "columns")
    _require(inputs.centre.shape == inputs.scale.shape == (k,) and bool((inputs.scale > 0).all()), "scales of columns")
    _require(all(0 <= i < k for i in inputs.kinds) and all(0 <= j < d for j in inputs.warps), "kinds of columns")
    plain = len(inputs.plain)
    _require(inputs.axes is None or inputs.axes.shape == (plain, plain), "axes")
    for warp in inputs.warps.values():
        _check_warp(warp)


def _check_target(preprocessing: RegressionPreprocessing, model: FittedModel, P: int) -> None:
    target, noise = preprocessing.target, Noise.of(model.likelihood)
    _require(target.transform in (None, "log", "quantile"), "transform of the target")
    _require(
        target.centre.shape == target.scale.shape == (P,) and bool((target.scale > 0).all()), "scale of the target"
    )
    _require(len(target.warps) == (P if target.transform == "quantile" else 0), "warps of the target")
    for warp in target.warps:
        _check_warp(warp)
    _require(bool(np.isfinite(target.inverse(np.array([[-1.0, 1.0]] * P))).all()), "scale of the target")
    _require(np.isfinite(noise.s2) and noise.s2 > 0 and (noise.df is None or noise.df > 0), "noise")
    _require(len(model.calibration) in (0, P), "calibration")
    for each in model.calibration:
        weights = np.ones(len(each.pit)) if each.weights is None else each.weights
        _require(each.pit.ndim == 1 and weights.shape == each.pit.shape, "calibration")
        in_range = bool(((each.pit >= 0) & (each.pit <= 1)).all()) and _rises(each.pit, strictly=False)
        _require(in_range and bool((weights >= 0).all()) and weights.sum() > 0, "calibration")


def _check_warp(warp: Warp) -> None:
    values, scores = warp.values, warp.scores
    _require(values.ndim == 1 and values.shape == scores.shape and len(values) > 0, "knots of a warp")
    _require(_rises(values) and _rises(scores), "knots of a warp")


def _rises(values: Array, strictly: bool = True) -> bool:
    steps = np.diff(values)
    return bool((steps > 0).all() if strictly else (steps >= 0).all())


def _require(holds: bool, what: str) -> None:
    """Raise a `ValueError` unless a rule holds."""
    if not holds:
        raise ValueError(f"the {what} cannot be those of a fitted model")
