"""Model files: safetensors with a JSON header. Loading a file runs no code from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.backend.threads import stop_spinning
from harmonicgp.estimators.model import FittedModel
from harmonicgp.estimators.plausible import check_constraints, check_finite, check_model, check_plain
from harmonicgp.estimators.predictive import Conformal
from harmonicgp.features import Features, HarmonicFeatures, SparseFeatures
from harmonicgp.features.neighbours import Neighbourhood, ObservedRows
from harmonicgp.inference.closed_form import StreamedPosterior
from harmonicgp.inference.local_noise import LocalNoise
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.prediction import Predictor
from harmonicgp.io.container import UNREADABLE, ModelFileError, read_container
from harmonicgp.io.specs import (
    action_spec,
    build_action,
    build_kernel,
    build_likelihood,
    kernel_spec,
    likelihood_spec,
)
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, bound_of
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import Inputs
from harmonicgp.tables.preprocessing import (
    ClassificationPreprocessing,
    ColumnEncoding,
    RegressionPreprocessing,
    image_size,
)
from harmonicgp.tables.targets import Target

FORMAT = 1
#: Fields of a fitted model that are plain values, by name in the file.
_PLAIN = {
    f"{name}_": name
    for name in ("elbo", "modelled_cost", "history", "timings", "notes", "warnings", "ranges", "validation")
} | {"_seed": "seed"}
#: Other plain values of the file.
_OTHERS = ("n_steps_", "n_features_in_", "encoded_names_", "target_names_", "_one")
_OPTIONS: dict[str, type[ModelOptions]] = {
    "HarmonicGPRegressor": RegressionOptions,
    "HarmonicGPClassifier": ModelOptions,
}


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file: the arguments of an estimator, and the values of its fit."""

    estimator: str  #: the name of its class
    arguments: dict[str, Any]
    preprocessing: RegressionPreprocessing | ClassificationPreprocessing
    model: FittedModel
    n_features: int  #: columns of X
    feature_names: list[str] | None


def read_model(path: str | Path) -> ModelFile:
    """The content of a model file, with tensors on the CPU."""
    stop_spinning()
    container = read_container(Path(path), "model", FORMAT)
    try:
        return unpack(container.header, container.tensors)
    except UNREADABLE as error:
        reason = " ".join(f"{error!r}".split())  # errors of PyTorch may have several lines
        raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error


def pack(file: ModelFile) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A JSON header and tensors on the CPU."""
    model, preprocessing = file.model, file.preprocessing
    columns = preprocessing.columns.state()
    others = (len(model.history), file.n_features, columns["names"], preprocessing.target_names, preprocessing.flat)
    header: dict[str, Any] = {
        "estimator": file.estimator,
        "arguments": _arguments(file.arguments, model.seed),
        "table": columns["table"],
        "column_kinds": columns["kinds"],
        "feature_names": file.feature_names,
        "plain": {name: getattr(model, field) for name, field in _PLAIN.items()}
        | dict(zip(_OTHERS, others, strict=True)),
        "classes": None,
        "noise_name": None,
    }
    tensors: dict[str, Tensor] = {}
    for part, more in (_pack_model(model), _pack_targets(preprocessing, model.calibration)):
        header, tensors = header | part, tensors | more
    if isinstance(file.arguments["kernel"], gpytorch.kernels.Kernel):
        tensors |= _with_prefix("argument.", file.arguments["kernel"].state_dict())
    return header, {name: tensor.cpu() for name, tensor in tensors.items()}


def unpack(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ModelFile:
    """The inverse of `pack`, on the CPU."""
    with torch.device("cpu"):  # GPyTorch makes parameters on the default device
        return _unpack(header, tensors)


def _unpack(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ModelFile:
    check_finite(tensors)
    arguments = _read_arguments(header["arguments"], tensors)
    options = _OPTIONS[header["estimator"]](**arguments)
    plain = dict(header["plain"])
    if not plain.keys() <= {*_PLAIN, *_OTHERS}:
        raise KeyError(sorted(plain.keys() - {*_PLAIN, *_OTHERS})[0])
    check_plain(plain)
    columns = {"table": header["table"], "names": plain["encoded_names_"], "kinds": header["column_kinds"]}
    encoding = ColumnEncoding.from_state(columns, image_size(options.columns))
    preprocessing = _unpack_targets(options, encoding, plain, header, tensors)
    values: dict[str, Any] = {"notes": [], "ranges": None, "modelled_cost": math.nan}  # for files of older versions
    values |= {field: plain[name] for name, field in _PLAIN.items() if name in plain}
    calibration = tuple(Conformal(*tensors[f"calibration.{i}"].numpy()) for i in range(header.get("calibration", 0)))
    model = _unpack_model(header, tensors, {**values, "calibration": calibration, "bound": bound_of(options)})
    check_model(model, preprocessing, plain["n_features_in_"], header["feature_names"])
    return ModelFile(
        header["estimator"], arguments, preprocessing, model, plain["n_features_in_"], header["feature_names"]
    )


def _pack_model(model: FittedModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    predictor = model.predictor
    posterior = predictor.posterior
    if isinstance(posterior, StreamedPosterior):
        raise ValueError(
            'a joint posterior of this size needs the training data and cannot be saved: fit with posterior="block", or '
            "with fewer inducing points."
        )
    inputs, arrays = model.inputs.state()
    Z = predictor.features.inducing()[0].detach()
    header: dict[str, Any] = {
        "inputs": inputs,
        "dtype": str(Z.dtype).removeprefix("torch."),
        "kernel": kernel_spec(model.kernel),
        "likelihood": likelihood_spec(model.likelihood),
        "features": _features_header(predictor.features),
        "posterior": {"family": posterior.family, "stacks": len(posterior.means)},
        "symmetry": model.choice.state(),
    }
    # The kernel of the predictor, with which predictions are made.
    kernel = predictor.features.view.kernel  # type: ignore[attr-defined]
    tensors = _with_prefix("inputs.", arrays) | {"Z": Z}
    tensors |= _with_prefix("kernel.", kernel.state_dict()) | _with_prefix("likelihood.", model.likelihood.state_dict())
    for i, (mean, Lambda) in enumerate(zip(posterior.means, posterior.precisions, strict=True)):
        tensors |= {f"posterior.mean.{i}": mean, f"posterior.precision.{i}": Lambda}
    if isinstance(predictor, NeighbourPredictor):
        observed = predictor.neighbourhood.observed
        header["neighbours"] = predictor.neighbourhood.k
        tensors |= {"rows.X": observed.X, "rows.y": observed.y, "rows.noise": observed.noise}
    if (local := predictor.local_noise) is not None:
        numbers = {"k": local.k, "strength": local.strength, "scale": local.scale}
        header["local_noise"] = {"by_kernel": local.kernel is not None, **numbers}
        tensors["noise.excess"] = local.excess
        if not torch.equal(local.X, tensors.get("rows.X", Z)):
            tensors["noise.X"] = local.X
    return header, tensors


def _unpack_model(header: Mapping[str, Any], tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> FittedModel:
    if {"float32": torch.float32, "float64": torch.float64}[header["dtype"]] != tensors["Z"].dtype:
        raise ValueError(f"dtype {header['dtype']} of inducing inputs in {tensors['Z'].dtype}")
    kernel, likelihood = build_kernel(header["kernel"]), build_likelihood(header["likelihood"])
    for module, prefix in ((kernel, "kernel."), (likelihood, "likelihood.")):
        check_constraints(module, _tensors(tensors, prefix))
        module.load_state_dict(_tensors(tensors, prefix))
    action = build_action(header["features"].get("action"))
    features = _features(header["features"], kernel, action, tensors["Z"])
    stacks, family = range(header["posterior"]["stacks"]), header["posterior"]["family"]
    if family not in get_args(Family):
        raise KeyError(family)
    posterior = Posterior.from_precisions(
        family,
        [tensors[f"posterior.mean.{i}"] for i in stacks],
        [tensors[f"posterior.precision.{i}"] for i in stacks],
    )
    predictor = Predictor.freeze(features, posterior)
    if header.get("neighbours"):
        observed = ObservedRows(*(tensors[f"rows.{name}"] for name in ("X", "y", "noise")))
        observed.check(features.inducing_dim)
        neighbourhood = Neighbourhood.of(predictor.features.view.kernel, observed, int(header["neighbours"]))  # type: ignore[attr-defined]
        predictor = NeighbourPredictor.of(predictor, neighbourhood)
    predictor = replace(predictor, local_noise=_local_noise(header, tensors, kernel))
    return FittedModel(
        inputs=Inputs.from_state(header["inputs"], _arrays(tensors, "inputs.")),
        predictor=predictor,
        kernel=kernel,
        likelihood=likelihood,
        choice=SymmetryChoice.from_state(header["symmetry"], action),
        **values,
    )


def _local_noise(
    header: Mapping[str, Any], tensors: Mapping[str, Tensor], kernel: gpytorch.kernels.Kernel
) -> LocalNoise | None:
    spec = header.get("local_noise")
    if spec is None:
        return None
    rows = tensors.get("rows.X", tensors["Z"])
    X, excess = tensors.get("noise.X", rows), tensors["noise.excess"]
    if X.shape[1:] != rows.shape[1:] or len(excess) != len(tensors["posterior.mean.0"]):
        raise ValueError("rows of a local noise whose shapes do not fit the model")
    k, strength, scale = int(spec["k"]), float(spec["strength"]), float(spec["scale"])
    return LocalNoise.of(kernel if spec["by_kernel"] else None, X, excess, k, strength, scale)


def _pack_targets(
    preprocessing: RegressionPreprocessing | ClassificationPreprocessing, calibration: tuple[Conformal, ...]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if isinstance(preprocessing, ClassificationPreprocessing):
        classes = preprocessing.classes
        dtype = classes.dtype.str if classes.dtype.kind != "O" else "O"
        return {"classes": {"dtype": dtype, "values": classes.tolist()}}, {}
    target, arrays = preprocessing.target.state()
    header = {"target": target, "noise_name": preprocessing.noise_name, "calibration": len(calibration)}
    tensors = _with_prefix("target.", arrays)
    for i, c in enumerate(calibration):
        weights = np.ones(len(c.pit)) if c.weights is None else c.weights
        tensors[f"calibration.{i}"] = torch.from_numpy(np.stack((c.pit, weights)))
    return header, tensors


def _unpack_targets(
    options: ModelOptions,
    encoding: ColumnEncoding,
    plain: Mapping[str, Any],
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> RegressionPreprocessing | ClassificationPreprocessing:
    names, labels = plain["target_names_"], header["classes"]
    classes = None if labels is None else np.array(labels["values"], dtype=np.dtype(_dtype_name(labels["dtype"])))
    if isinstance(options, RegressionOptions):
        target = Target.from_state(header["target"], _arrays(tensors, "target."))
        return RegressionPreprocessing(encoding, target, names, plain["_one"], header.get("noise_name"))
    if classes is None:
        raise KeyError("classes")
    return ClassificationPreprocessing(encoding, classes, names)


def _arguments(arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The constructor arguments as JSON, without callbacks and the folder of checkpoints."""
    arguments = {**arguments, "callbacks": None, "checkpoint_dir": None}
    if isinstance(arguments["kernel"], gpytorch.kernels.Kernel):
        arguments["kernel"] = kernel_spec(arguments["kernel"])
    if isinstance(arguments["symmetry"], Action):
        arguments["symmetry"] = action_spec(arguments["symmetry"])
    if not (arguments["random_state"] is None or isinstance(arguments["random_state"], int | np.integer)):
        arguments["random_state"] = seed
    columns = arguments["columns"]
    if isinstance(columns, Mapping):
        arguments["columns"] = [[key, list(k) if isinstance(k, tuple | list) else k] for key, k in columns.items()]
    elif isinstance(columns, tuple):
        arguments["columns"] = {"image": list(columns[1])}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in arguments.items()}


def _read_arguments(header: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    arguments = dict(header)
    for name, build in (("symmetry", build_action), ("kernel", build_kernel)):
        if isinstance(arguments[name], dict):
            arguments[name] = build(arguments[name])
    if isinstance(arguments["kernel"], gpytorch.kernels.Kernel):
        arguments["kernel"].load_state_dict(_tensors(tensors, "argument."))
    columns = arguments["columns"]
    if isinstance(columns, dict):
        arguments["columns"] = ("image", tuple(columns["image"]))
    elif isinstance(columns, list):
        arguments["columns"] = {key: tuple(kind) if isinstance(kind, list) else kind for key, kind in columns}
    return arguments


def _features_header(features: Features) -> dict[str, Any]:
    if isinstance(features, HarmonicFeatures):
        return {
            "class": "harmonic",
            "action": action_spec(features.action),
            "resolution": features.transform.resolution,
            "frequencies": list(features.keep),
        }
    return {"class": "sparse"}


def _features(header: Mapping[str, Any], kernel: gpytorch.kernels.Kernel, action: Action | None, Z: Tensor) -> Features:
    if header["class"] == "sparse":
        return SparseFeatures(kernel, Z)
    if action is None:
        raise KeyError("action")
    return HarmonicFeatures(kernel, action, Z, header["resolution"], header["frequencies"], check=False)


def _dtype_name(name: str) -> str:
    if name != "O" and np.dtype(name).kind not in "biufU":
        raise TypeError(f"classes of type {name}")
    return name


def _tensors(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _arrays(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Array]:
    return {name: value.numpy() for name, value in _tensors(tensors, prefix).items()}


def _with_prefix(prefix: str, values: Mapping[str, Tensor | Array]) -> dict[str, Tensor]:
    tensors = {}
    for name, value in values.items():
        tensors[prefix + name] = value if isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    return tensors
