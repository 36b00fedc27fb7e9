"""Kernels, actions and likelihoods as JSON, and back, of registered classes alone: no name in a file chooses code.

A spec is structure: the class, what its constructor was told, children, and of each parameter its dtype, its constraint
and whether it is frozen. Values travel apart, as `state_dict()`: load them, strictly, into what was built.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from gpytorch import constraints, kernels, likelihoods
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus

from harmonicgp.io.fields import Fields, SpecError
from harmonicgp.io.registry import ACTIONS, DTYPES, KERNELS, LIKELIHOODS, Kind, Registry

Spec: TypeAlias = dict[str, Any]

_DEEPEST = 10  # kernels within kernels; GPyTorch takes twice as long to make each further one
#: How to make each constraint, and which bounds are its own.
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


# Kernels --------------------------------------------------------------------------------------------------------------


def kernel_spec(kernel: kernels.Kernel) -> Spec:
    """The structure of a kernel of registered classes, for JSON; its values are in `kernel.state_dict()`.

    Examples:
        >>> from gpytorch.kernels import MaternKernel
        >>> import harmonicgp.kernels
        >>> spec = kernel_spec(MaternKernel(nu=1.5))
        >>> spec["class"], spec["nu"]
        ('MaternKernel', 1.5)
    """
    spec = _kernel_node(kernel, 0)
    _check_module(kernel, "kernel", bool(kernel.batch_shape))
    _check_same_state(kernel, build_kernel(spec), "kernel")
    return spec


def build_kernel(spec: object) -> kernels.Kernel:
    """The kernel of a spec, ready for `load_state_dict`."""
    return _build_kernel(spec, "kernel", 0)


def _kernel_node(kernel: Any, depth: int) -> Spec:
    kind = KERNELS.kind_of(kernel)
    if depth > _DEEPEST:
        raise SpecError(f"the kernel is nested more than {_DEEPEST} deep: use fewer sums, products and scales.")
    spec = _written(kernel, kind)
    spec["active_dims"] = None if kernel.active_dims is None else kernel.active_dims.tolist()
    spec["parameters"] = _parameters(kernel, "kernel")
    if kind.children:
        spec["children"] = [_kernel_node(child, depth + 1) for child in kind.children_of(kernel)]
    return spec


def _build_kernel(spec: object, where: str, depth: int) -> Any:
    fields = Fields(spec, where)
    if depth > _DEEPEST:
        raise fields.error("it is nested too deep")
    kind, values = _read(fields, KERNELS)
    active = fields.optional("active_dims", Fields.wholes)
    parameters = fields.take("parameters")
    children = _build_children(fields, kind, lambda part, place: _build_kernel(part, place, depth + 1))
    fields.end()
    kernel = fields.construct(kind.make, *children, **values)
    kernel.active_dims = None if active is None else torch.tensor(active, dtype=torch.long, device="cpu")
    _set_parameters(kernel, parameters, where)
    return kernel


# Likelihoods ----------------------------------------------------------------------------------------------------------


def likelihood_spec(likelihood: likelihoods.Likelihood) -> Spec:
    """The structure of a likelihood of a registered class, for JSON; its values are in `likelihood.state_dict()`."""
    kind = LIKELIHOODS.kind_of(likelihood)
    spec = _written(likelihood, kind)
    batched = any(parameter.numel() != 1 for parameter in likelihood.parameters())
    _check_module(likelihood, "likelihood", batched)
    spec["parameters"] = _parameters(kind.holder(likelihood), "likelihood")
    if hasattr(
        likelihood, "quadrature"
    ):  # not in the state dict, and rounded as the default dtype was when it was made
        rule = likelihood.quadrature
        spec["quadrature"] = {
            "dtype": _dtype_name(rule.locations.dtype, "likelihood"),
            "locations": rule.locations.tolist(),
            "weights": rule.weights.tolist(),
        }
    _check_same_state(likelihood, build_likelihood(spec), "likelihood")
    return spec


def build_likelihood(spec: object) -> likelihoods.Likelihood:
    """The likelihood of a spec, ready for `load_state_dict`."""
    fields = Fields(spec, "likelihood")
    kind, values = _read(fields, LIKELIHOODS)
    likelihood = fields.construct(kind.make, **values)
    _set_parameters(kind.holder(likelihood), fields.take("parameters"), "likelihood")
    if hasattr(likelihood, "quadrature"):
        _set_quadrature(likelihood.quadrature, fields.take("quadrature"))
    fields.end()
    return likelihood


def _set_quadrature(rule: Any, spec: object) -> None:
    fields = Fields(spec, "likelihood.quadrature")
    dtype = fields.choice("dtype", DTYPES)
    locations, weights = fields.tensor("locations", 1), fields.tensor("weights", 1)
    fields.end()
    if len(locations) == 0 or locations.shape != weights.shape:
        raise fields.error("it has no weight for each location")
    rule.locations, rule.weights, rule.num_locs = locations.to(dtype), weights.to(dtype), len(locations)


# Actions --------------------------------------------------------------------------------------------------------------


def action_spec(action: Any) -> Spec | None:
    """An action of a registered class, whole, for JSON; None for None.

    Examples:
        >>> from harmonicgp.actions import Rotation
        >>> action_spec(Rotation((0, 1), 4))
        {'class': 'Rotation', 'plane': [0, 1], 'order': 4}
    """
    if action is None:
        return None
    kind = ACTIONS.kind_of(action)
    spec = _written(action, kind)
    if kind.children:
        spec["children"] = [action_spec(factor) for factor in kind.children_of(action)]
    build_action(spec)
    return spec


def build_action(spec: object) -> Any:
    """The action of a spec; None for None."""
    return None if spec is None else _build_action(spec, "action", ())


def _build_action(spec: object, where: str, around: tuple[Kind, ...]) -> Any:
    fields = Fields(spec, where)
    kind, values = _read(fields, ACTIONS)
    if kind in around:
        raise fields.error("a product within a product is never written")
    children = _build_children(fields, kind, lambda part, place: _build_action(part, place, (*around, kind)))
    fields.end()
    return fields.construct(kind.make, *children, **values)


# What can be saved ----------------------------------------------------------------------------------------------------


def _written(value: Any, kind: Kind) -> Spec:
    """The name of the class, and its fields."""
    return {"class": kind.name, **{field: _plain(getattr(value, field)) for field in kind.fields}}


def _plain(value: Any) -> Any:
    """In the types of JSON: lists for tuples and tensors, Python's numbers for numpy's, names for dtypes."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, torch.dtype):
        return _dtype_name(value, "likelihood")
    return value.tolist() if hasattr(value, "tolist") else value


def _parameters(module: Any, noun: str) -> Spec:
    """What is to be known of the parameters that are a module's own."""
    return {
        name: {
            "dtype": _dtype_name(parameter.dtype, noun),
            "frozen": not parameter.requires_grad,
            "constraint": _constraint(module.constraint_for_parameter_name(name), f"{name} of the {noun}", noun),
        }
        for name, parameter in module.named_parameters(recurse=False)
    }


def _dtype_name(dtype: torch.dtype, noun: str) -> str:
    for name, known in DTYPES.items():
        if dtype == known:
            return name
    raise SpecError(f"the {noun} has numbers of {dtype}, which cannot be saved: use {noun}.double().")


def _constraint(constraint: Any, where: str, noun: str) -> Spec:
    for name, (make, bounds) in _CONSTRAINTS.items():
        if type(constraint) is getattr(make, "func", make):
            values = {bound: getattr(constraint, bound).tolist() for bound in bounds}
            return {"class": name, "transform": _transform(constraint, where), **values,
                    "dtype": _dtype_name(constraint.lower_bound.dtype, noun)}  # fmt: skip
    raise SpecError(
        f"{where} has the constraint {type(constraint).__name__}, which cannot be saved: use one of "
        f"{', '.join(_CONSTRAINTS)} of gpytorch.constraints."
    )


def _transform(constraint: Any, where: str) -> str:
    transform, inverse = constraint._transform, constraint._inv_transform
    if transform is None:
        return "none"
    if type(transform) is torch.nn.Softplus and (transform.beta, transform.threshold) == (1.0, 20.0):
        transform = _TRANSFORMS["softplus"][0]  # copies of it are as good
    for name, pair in _TRANSFORMS.items():
        if (transform, inverse) == pair:
            return name
    raise SpecError(
        f"the constraint of {where} has a transform of its own, which cannot be saved: use softplus, sigmoid, or exp "
        "with inv_transform=torch.log."
    )


def _check_module(module: Any, noun: str, batched: bool) -> None:
    """Refuse what a spec would lose."""
    if batched:
        raise SpecError(f"the {noun} is a batch of several, which cannot be saved: use one without batch_shape.")
    for name, *_ in module.named_priors():
        raise SpecError(f"the {noun} has a prior, {name}, and priors cannot be saved: leave it out.")
    parameters = [id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False)]
    if len(set(parameters)) < len(parameters):
        raise SpecError(
            f"the {noun} has one parameter in two places, and would come back with two: use copy.deepcopy for one of them."
        )


def _check_same_state(module: Any, rebuilt: Any, noun: str) -> None:
    """Refuse at saving what would fail at loading."""
    there, here = (
        {name: (value.shape, value.dtype) for name, value in one.state_dict().items()} for one in (module, rebuilt)
    )
    odd = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
    if odd:
        raise SpecError(
            f"the {noun} was changed after it was made, in {', '.join(odd)}, and would not come back the same: pass "
            "what it needs to its constructor."
        )


# What is read ---------------------------------------------------------------------------------------------------------


def _read(fields: Fields, registry: Registry) -> tuple[Kind, dict[str, Any]]:
    """The kind that a spec names, and what its constructor is told."""
    kind = fields.choice("class", registry.kinds)
    return kind, {field: read(fields, field) for field, read in kind.fields.items()}


def _build_children(fields: Fields, kind: Kind, build: Callable[[object, str], Any]) -> list[Any]:
    if not kind.children:
        return []
    parts = fields.items("children", exactly=None if isinstance(kind.children, str) else len(kind.children))
    return [build(part, f"{fields.where}.children[{i}]") for i, part in enumerate(parts)]


def _set_parameters(module: Any, spec: object, where: str) -> None:
    """Give a new module's own parameters the dtypes and constraints of a spec, and freeze those that were frozen."""
    fields = Fields(spec, f"{where}.parameters")
    for name, parameter in list(module.named_parameters(recurse=False)):
        entry = Fields(fields.take(name), f"{where}.parameters.{name}")
        parameter.data = parameter.data.to(entry.choice("dtype", DTYPES))
        parameter.requires_grad_(not entry.flag("frozen"))
        constraint = _build_constraint(entry.take("constraint"), f"{where}.{name}_constraint", parameter.shape)
        module.register_constraint(name, constraint)
        entry.end()
    fields.end()


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
