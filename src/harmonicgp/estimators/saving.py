"""One file for a model: safetensors with a JSON header. Loading runs nothing that the file brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, get_args

import gpytorch
import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.estimators.predictive import Conformal
from harmonicgp.features import Features, HarmonicFeatures, SparseFeatures
from harmonicgp.inference.closed_form import StreamedPosterior
from harmonicgp.inference.posterior import Family, Posterior
from harmonicgp.inference.prediction import Predictor
from harmonicgp.io.container import ModelFileError, kind_of, read_container, write_container
from harmonicgp.io.specs import (
    action_spec,
    build_action,
    build_kernel,
    build_likelihood,
    kernel_spec,
    likelihood_spec,
)
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.tables.encoder import TableEncoder
from harmonicgp.tables.inputs import Array, Inputs
from harmonicgp.tables.targets import Target

FORMAT = 1
#: Fitted attributes that are plain values.
_PLAIN = (
    "elbo_",
    "modelled_cost_",
    "history_",
    "n_steps_",
    "n_features_in_",
    "encoded_names_",
    "target_names_",
    "timings_",
    "notes_",
    "warnings_",
    "ranges_",
    "validation_",
)
_PRIVATE = ("_one", "_seed")


class SavedModel:
    """`save` and `load` for the estimators."""

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all."""
        check_is_fitted(self, "_predictor")
        header, tensors = pack(self)
        write_container(Path(path), "model", FORMAT, header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model of a file that `save` wrote."""
        model = load_model(path)
        if not isinstance(model, cls):
            raise ModelFileError(
                f"{path} holds a {type(model).__name__}: use {type(model).__name__}.load, or load_model."
            )
        return model


def load_model(path: str | Path) -> Any:
    """The estimator of a file, whichever it is."""
    from harmonicgp.globe.estimator import HarmonicGPGlobe
    from harmonicgp.globe.saving import KIND

    if kind_of(path) == KIND:
        return HarmonicGPGlobe.load(path)
    container = read_container(Path(path), "model", FORMAT)
    try:
        return unpack(container.header, container.tensors)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{error!r}".split())  # torch's take several lines
        raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error


def pack(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A JSON header and tensors."""
    predictor: Predictor = model._predictor
    posterior = predictor.posterior
    if isinstance(posterior, StreamedPosterior):
        raise ValueError(
            'a joint posterior of this size lives on the training data and cannot be saved: fit with posterior="block", or '
            "with fewer inducing points."
        )
    inputs, arrays = model._inputs.state()
    tensors = {f"inputs.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    if isinstance(model.kernel, gpytorch.kernels.Kernel):
        tensors |= {f"argument.{name}": value for name, value in model.kernel.state_dict().items()}
    header: dict[str, Any] = {
        "estimator": type(model).__name__,
        "arguments": _arguments(model),
        "table": None if model._table is None else model._table.state(),
        "inputs": inputs,
        "dtype": str(model._dtype).removeprefix("torch."),
        "kernel": kernel_spec(model.kernel_),
        "likelihood": likelihood_spec(model.likelihood_),
        "features": _features_header(predictor.features),
        "posterior": {"family": posterior.family, "stacks": len(posterior.means)},
        "symmetry": _symmetry_header(model.symmetry_),
        "column_kinds": [[j, list(k) if isinstance(k, tuple) else k] for j, k in model.column_kinds_.items()],
        "feature_names": [str(n) for n in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
        "plain": {name: getattr(model, name) for name in (*_PLAIN, *_PRIVATE)},
        "classes": _classes_header(model),
        "noise_name": getattr(model, "noise_name_", None),
    }
    # The predictor's own features: with its whitened ones they are what predictions were made of.
    kernel = predictor.features.view.kernel  # type: ignore[attr-defined]
    tensors |= {f"kernel.{name}": value for name, value in kernel.state_dict().items()}
    tensors |= {f"likelihood.{name}": value for name, value in model.likelihood_.state_dict().items()}
    tensors["Z"] = predictor.features.inducing()[0].detach()
    for i, (mean, Lambda) in enumerate(zip(posterior.means, posterior.precisions, strict=True)):
        tensors |= {f"posterior.mean.{i}": mean, f"posterior.precision.{i}": Lambda}
    target: Target | None = getattr(model, "_target", None)
    if target is not None:
        header["target"], arrays = target.state()
        tensors |= {f"target.{name}": torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
        header["calibration"] = len(model._calibration)
        for i, c in enumerate(model._calibration):
            weights = np.ones(len(c.pit)) if c.weights is None else c.weights
            tensors[f"calibration.{i}"] = torch.from_numpy(np.stack((c.pit, weights)))
    return header, tensors


def unpack(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The estimator that `pack` took apart."""
    from harmonicgp.estimators.classifier import HarmonicGPClassifier
    from harmonicgp.estimators.regressor import HarmonicGPRegressor

    known: dict[str, Any] = {c.__name__: c for c in (HarmonicGPRegressor, HarmonicGPClassifier)}
    arguments = dict(header["arguments"])
    for name, build in (("symmetry", build_action), ("kernel", build_kernel)):
        if isinstance(arguments[name], dict):
            arguments[name] = build(arguments[name])
    if isinstance(arguments["kernel"], gpytorch.kernels.Kernel):
        arguments["kernel"].load_state_dict(_tensors(tensors, "argument."))
    arguments["columns"] = _columns_from(arguments["columns"])
    model = known[header["estimator"]](**arguments)
    model.notes_, model.ranges_ = [], None  # which older files do not have
    model.noise_name_ = header.get("noise_name")
    for name, value in header["plain"].items():
        if name not in (*_PLAIN, *_PRIVATE):
            raise KeyError(name)
        setattr(model, name, value)
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.column_kinds_ = {
        int(j): ("periodic", float(k[1])) if isinstance(k, list) else k for j, k in header["column_kinds"]
    }
    model._table = None if header["table"] is None else TableEncoder.from_state(header["table"])
    model._inputs = Inputs.from_state(header["inputs"], _arrays(tensors, "inputs."))
    model._dtype = {"float32": torch.float32, "float64": torch.float64}[header["dtype"]]
    model.kernel_, model.likelihood_ = build_kernel(header["kernel"]), build_likelihood(header["likelihood"])
    model.kernel_.load_state_dict(_tensors(tensors, "kernel."))
    model.likelihood_.load_state_dict(_tensors(tensors, "likelihood."))
    features = _features(header["features"], model.kernel_, tensors["Z"])
    stacks, family = range(header["posterior"]["stacks"]), header["posterior"]["family"]
    if family not in get_args(Family):
        raise KeyError(family)
    posterior = Posterior.from_precisions(
        family,
        [tensors[f"posterior.mean.{i}"] for i in stacks],
        [tensors[f"posterior.precision.{i}"] for i in stacks],
    )
    model._predictor = Predictor.freeze(features, posterior)
    model.symmetry_ = _symmetry(header["symmetry"], header["features"])
    if header.get("target") is not None:
        model._target = Target.from_state(header["target"], _arrays(tensors, "target."))
        model._calibration = tuple(
            Conformal(*tensors[f"calibration.{i}"].numpy()) for i in range(header["calibration"])
        )
    if header["classes"] is not None:
        model.classes_ = np.array(header["classes"]["values"], dtype=np.dtype(_dtype_name(header["classes"]["dtype"])))
    return model


def _arguments(model: Any) -> dict[str, Any]:
    """The constructor's arguments as JSON; callbacks are not kept."""
    arguments = dict(model.get_params(deep=False))
    arguments["callbacks"] = None
    if isinstance(arguments["kernel"], gpytorch.kernels.Kernel):
        arguments["kernel"] = kernel_spec(arguments["kernel"])
    if isinstance(arguments["symmetry"], Action):
        arguments["symmetry"] = action_spec(arguments["symmetry"])
    if not (arguments["random_state"] is None or isinstance(arguments["random_state"], int | np.integer)):
        arguments["random_state"] = model._seed
    if arguments["checkpoint_dir"] is not None:
        arguments["checkpoint_dir"] = None  # a place on the machine that fitted
    columns = arguments["columns"]
    if isinstance(columns, Mapping):
        arguments["columns"] = [[key, list(k) if isinstance(k, tuple | list) else k] for key, k in columns.items()]
    elif isinstance(columns, tuple):
        arguments["columns"] = {"image": list(columns[1])}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in arguments.items()}


def _columns_from(columns: Any) -> Any:
    if isinstance(columns, dict):
        return ("image", tuple(columns["image"]))
    if isinstance(columns, list):
        return {key: tuple(kind) if isinstance(kind, list) else kind for key, kind in columns}
    return None


def write_choice(path: Path, fingerprint: str, choice: SymmetryChoice, n_inducing: int) -> None:
    """What a fit has chosen, beside its checkpoints: one that goes on need not (in a time budget: could not) choose again."""
    header = {
        "fingerprint": fingerprint,
        "symmetry": _symmetry_header(choice),
        "action": action_spec(choice.action),
        "n_inducing": n_inducing,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_container(path, "choice", FORMAT, header, {})


def read_choice(path: Path, fingerprint: str) -> tuple[SymmetryChoice, int] | None:
    """The choice of an earlier run of the same fit, or None."""
    if not path.exists():
        return None
    try:
        header = read_container(path, "choice", FORMAT).header
    except ModelFileError as error:
        raise ModelFileError(f"{error} Delete the file to start the fit anew.") from None
    if header["fingerprint"] != fingerprint:
        return None
    choice = _symmetry(header["symmetry"], {"class": "sparse"})
    choice.action = build_action(header["action"])
    return choice, int(header["n_inducing"])


def _features_header(features: Features) -> dict[str, Any]:
    if isinstance(features, HarmonicFeatures):
        return {
            "class": "harmonic",
            "action": action_spec(features.action),
            "resolution": features.transform.resolution,
            "frequencies": list(features.keep),
        }
    return {"class": "sparse"}


def _features(header: Mapping[str, Any], kernel: gpytorch.kernels.Kernel, Z: Tensor) -> Features:
    if header["class"] == "sparse":
        return SparseFeatures(kernel, Z)
    action = build_action(header["action"])
    if action is None:
        raise KeyError("action")
    return HarmonicFeatures(kernel, action, Z, header["resolution"], header["frequencies"], check=False)


def _symmetry_header(choice: SymmetryChoice) -> dict[str, Any]:
    candidate = asdict(choice.candidate) | {"declared": None}
    declared = None if choice.candidate.declared is None else action_spec(choice.candidate.declared)
    return {
        "candidate": candidate,
        "declared": declared,
        "table": choice.table,
        "reason": choice.reason,
        "cost": choice.cost,
    }


def _symmetry(header: Mapping[str, Any], features: Mapping[str, Any]) -> SymmetryChoice:
    declared = None if header["declared"] is None else build_action(header["declared"])
    known = dict(header["candidate"])
    periods = tuple((int(j), float(period)) for j, period in known.get("periods", ()))
    candidate = Candidate(**(known | {"declared": declared, "periods": periods}))
    action = build_action(features["action"]) if features["class"] == "harmonic" else None
    return SymmetryChoice(candidate, action, list(header["table"]), header["reason"], header["cost"])


def _classes_header(model: Any) -> dict[str, Any] | None:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    return {"dtype": classes.dtype.str if classes.dtype.kind != "O" else "O", "values": classes.tolist()}


def _dtype_name(name: str) -> str:
    if name != "O" and np.dtype(name).kind not in "biufU":
        raise TypeError(f"classes of type {name}")
    return name


def _tensors(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _arrays(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Array]:
    return {name: value.numpy() for name, value in _tensors(tensors, prefix).items()}
