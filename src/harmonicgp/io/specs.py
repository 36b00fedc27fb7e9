"""Kernels, actions and likelihoods as JSON and back. Only registered classes are built: a file cannot choose other code.

A spec has the structure: the class, its constructor arguments, its children, and the dtype and constraint of each parameter and
whether it is frozen. The values of parameters are separate: load the `state_dict()` of the original into the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from gpytorch import constraints, kernels, likelihoods
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus

from harmonicgp.io.fields import DTYPES, Fields, SpecError
from harmonicgp.io.registry import ACTIONS, KERNELS, LIKELIHOODS, Kind, Registry

Spec: TypeAlias = dict[str, Any]

_DEEPEST = 10  # levels of kernels within kernels; the time that GPyTorch needs doubles with each level
#: The constructor of each constraint, and the bounds that it has.
_CONSTRAINTS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "Positive": (constraints.Positive, ()),
    "GreaterThan": (partial(constraints.GreaterThan, 0.0), ("lower_bound",)),
    "LessThan": (partial(constraints.LessThan, 0.0), ("upper_bound",)),
    "Interval": (partial(constraints.Interval, 0.0, 1.0), ("lower_bound", "upper_bound")),
}
_TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "softplus": (torch.nn.Softplus(), inv_softplus),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
    "exp": (torch.exp, torch.log),
    "none": (None, None),
}


def kernel_spec(kernel: kernels.Kernel) -> Spec:
    """The structure of a kernel of registered classes, for JSON. Its values are in `kernel.state_dict()`.

    Examples:
        >>> from gpytorch.kernels import MaternKernel
        >>> import harmonicgp.kernels
        >>> spec = kernel_spec(MaternKernel(nu=1.5))
        >>> spec["class"], spec["nu"]
        ('MaternKernel', 1.5)
    """
    return _spec(kernel, KERNELS)


def build_kernel(spec: object) -> kernels.Kernel:
    """The kernel of a spec, on the CPU, ready for `load_state_dict`."""
    return _build(spec, KERNELS, "kernel")


def likelihood_spec(likelihood: likelihoods.Likelihood) -> Spec:
    """The structure of a likelihood of a registered class, for JSON. Its values are in `likelihood.state_dict()`."""
    return _spec(likelihood, LIKELIHOODS)


def build_likelihood(spec: object) -> likelihoods.Likelihood:
    """The likelihood of a spec, on the CPU, ready for `load_state_dict`."""
    return _build(spec, LIKELIHOODS, "likelihood")


def action_spec(action: Any) -> Spec | None:
    """An action of a registered class, with all values, for JSON; None for None.

    Examples:
        >>> from harmonicgp.actions import Rotation
        >>> action_spec(Rotation((0, 1), 4))
        {'class': 'Rotation', 'plane': [0, 1], 'order': 4}
    """
    return None if action is None else _spec(action, ACTIONS)


def build_action(spec: object) -> Any:
    """The action of a spec; None for None."""
    return None if spec is None else _build(spec, ACTIONS, "action")


def _spec(value: Any, registry: Registry) -> Spec:
    """The spec of a value. Raises a `SpecError` when saving, if loading would fail or give a different value."""
    spec, noun = _node(value, registry, 0), registry.noun
    if registry is ACTIONS:
        _build(spec, registry, noun)
        return spec
    _check_module(value, noun)
    before, after = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in module.state_dict().items()}
        for module in (value, _build(spec, registry, noun))
    )
    differences = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if differences:
        raise SpecError(
            f"the {noun} was changed after its construction, in {', '.join(differences)}, and would not come back the same: "
            "pass everything to its constructor."
        )
    return spec


def _node(value: Any, registry: Registry, depth: int) -> Spec:
    kind, noun = registry.kind_of(value), registry.noun
    if depth > _DEEPEST:
        raise SpecError(f"the {noun} is nested more than {_DEEPEST} deep: use fewer sums, products and scales.")
    spec = {"class": kind.name, **{field: _plain(getattr(value, field), noun) for field in kind.fields}}
    if isinstance(value, kernels.Kernel):
        spec["active_dims"] = None if value.active_dims is None else value.active_dims.tolist()
    if registry is not ACTIONS:
        holder = kind.holder(value)
        spec["parameters"] = {
            name: {
                "dtype": _plain(parameter.dtype, noun),
                "frozen": not parameter.requires_grad,
                "constraint": _constraint(holder.constraint_for_parameter_name(name), f"{name} of the {noun}", noun),
            }
            for name, parameter in holder.named_parameters(recurse=False)
        }
    if hasattr(value, "quadrature"):  # not in the state dict, and rounded to the default dtype of its construction
        rule = value.quadrature
        spec["quadrature"] = {
            "dtype": _plain(rule.locations.dtype, noun),
            "locations": rule.locations.tolist(),
            "weights": rule.weights.tolist(),
        }
    if kind.children:
        spec["children"] = [_node(child, registry, depth + 1) for child in kind.children_of(value)]
    return spec


def _build(spec: object, registry: Registry, where: str, parents: tuple[Kind, ...] = ()) -> Any:
    """The value of a spec that is nested in instances of the kinds `parents`."""
    fields = Fields(spec, where)
    if len(parents) > _DEEPEST:
        raise fields.error("it is nested too deep")
    kind = fields.choice("class", registry.kinds)
    if registry is ACTIONS and kind in parents:
        raise fields.error("a product within a product is never written")
    arguments = {field: read(fields, field) for field, read in kind.fields.items()}
    parts: list[Any] = []
    if kind.children:
        parts = fields.items("children", exactly=None if isinstance(kind.children, str) else len(kind.children))
    children = [_build(part, registry, f"{where}.children[{i}]", (*parents, kind)) for i, part in enumerate(parts)]
    with torch.device("cpu"):  # GPyTorch makes parameters on the default device
        value = fields.construct(kind.make, *children, **arguments)
        if registry is not ACTIONS:
            _set_parameters(kind.holder(value), fields.take("parameters"), where)
    if isinstance(value, kernels.Kernel):
        active = fields.read("active_dims", list[int] | None)
        value.active_dims = None if active is None else torch.tensor(active, dtype=torch.long, device="cpu")
    if hasattr(value, "quadrature"):
        _set_quadrature(value.quadrature, fields.take("quadrature"))
    fields.end()
    return value


# Writing --------------------------------------------------------------------------------------------------------------


def _plain(value: Any, noun: str) -> Any:
    """The value in types of JSON: lists for tuples and tensors, Python's numbers for NumPy's, names for dtypes."""
    if isinstance(value, tuple | list):
        return [_plain(item, noun) for item in value]
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if name not in DTYPES:
            raise SpecError(f"the {noun} has numbers of {value}, which cannot be saved: use {noun}.double().")
        return name
    return value.tolist() if hasattr(value, "tolist") else value


def _constraint(constraint: Any, where: str, noun: str) -> Spec:
    """The spec of the constraint of a parameter."""
    for name, (make, bounds) in _CONSTRAINTS.items():
        if type(constraint) is getattr(make, "func", make):
            values = {bound: getattr(constraint, bound).tolist() for bound in bounds}
            return {"class": name, "transform": _transform(constraint, where), **values,
                    "dtype": _plain(constraint.lower_bound.dtype, noun)}  # fmt: skip
    raise SpecError(
        f"{where} has the constraint {type(constraint).__name__}, which cannot be saved: use one of "
        f"{', '.join(_CONSTRAINTS)} of gpytorch.constraints."
    )


def _transform(constraint: Any, where: str) -> str:
    """The name of the transform of a constraint."""
    transform, inverse = constraint._transform, constraint._inv_transform
    if transform is None:
        return "none"
    if type(transform) is torch.nn.Softplus and (transform.beta, transform.threshold) == (1.0, 20.0):
        transform = _TRANSFORMS["softplus"][0]  # a copy of it
    for name, pair in _TRANSFORMS.items():
        if (transform, inverse) == pair:
            return name
    raise SpecError(
        f"the constraint of {where} has another transform, which cannot be saved: use softplus, sigmoid, or exp with "
        "inv_transform=torch.log."
    )


def _check_module(module: Any, noun: str) -> None:
    """Raise a `SpecError` for properties that a spec cannot represent."""
    if module.batch_shape if isinstance(module, kernels.Kernel) else any(p.numel() != 1 for p in module.parameters()):
        raise SpecError(f"the {noun} is a batch of several, which cannot be saved: use one without batch_shape.")
    for name, *_ in module.named_priors():
        raise SpecError(f"the {noun} has a prior, {name}, and priors cannot be saved: leave it out.")
    parameters = [id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False)]
    if len(set(parameters)) < len(parameters):
        raise SpecError(
            f"the {noun} has one parameter in two places, and would come back with two: use copy.deepcopy for one of them."
        )


# Reading --------------------------------------------------------------------------------------------------------------


def _set_parameters(module: Any, spec: object, where: str) -> None:
    """Give the parameters of a new module the dtypes and constraints of a spec, and freeze those that were frozen."""
    fields = Fields(spec, f"{where}.parameters")
    for name, parameter in list(module.named_parameters(recurse=False)):
        entry = Fields(fields.take(name), f"{where}.parameters.{name}")
        parameter.data = parameter.data.to(entry.choice("dtype", DTYPES))
        parameter.requires_grad_(not entry.read("frozen", bool))
        constraint = _build_constraint(entry.take("constraint"), f"{where}.{name}_constraint", parameter.shape)
        module.register_constraint(name, constraint)
        entry.end()
    fields.end()


def _set_quadrature(rule: Any, spec: object) -> None:
    fields = Fields(spec, "likelihood.quadrature")
    dtype = fields.choice("dtype", DTYPES)
    locations, weights = fields.tensor("locations", 1), fields.tensor("weights", 1)
    fields.end()
    if len(locations) == 0 or locations.shape != weights.shape:
        raise fields.error("it has no weight for each location")
    rule.locations, rule.weights, rule.num_locs = locations.to(dtype), weights.to(dtype), len(locations)


def _build_constraint(spec: object, where: str, shape: torch.Size) -> Any:
    fields = Fields(spec, where)
    make, bounds = fields.choice("class", _CONSTRAINTS)
    transform, inverse = fields.choice("transform", _TRANSFORMS)
    dtype = fields.choice("dtype", DTYPES)
    constraint = make(transform=transform, inv_transform=inverse).to(dtype)
    for bound in bounds:
        value = fields.tensor(bound).to(dtype)
        fields.construct(torch.broadcast_to, value, shape)
        setattr(constraint, bound, value)
    fields.end()
    if not bool((constraint.lower_bound < constraint.upper_bound).all()):
        raise fields.error("the interval is empty")
    return constraint
