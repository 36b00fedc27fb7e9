"""Kernels, actions and likelihoods as JSON, and back, from closed lists of classes: no name in a file chooses code.

A spec is structure: the class, what its constructor was told, children, and of each parameter its dtype, its constraint
and whether it is frozen. Values travel apart, as `state_dict()`: load them, strictly, into what was built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from gpytorch import constraints, kernels, likelihoods
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

from harmonicgp import actions
from harmonicgp.actions import Action
from harmonicgp.io.fields import LARGEST, READERS, Fields, SpecError
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood, SoftmaxBoundLikelihood

Spec: TypeAlias = dict[str, Any]

_DEEPEST = 10  # kernels within kernels; GPyTorch takes twice as long to make each further one


class _Kind(NamedTuple):
    """A class that can be saved: the constructor arguments to keep, attributes of the same name, and its children."""

    type: type[Any]
    facts: tuple[str, ...] = ()
    children: str = ""  # the attribute that holds them


_KERNELS = {
    "ScaleKernel": _Kind(kernels.ScaleKernel, ("ard_num_dims",), "base_kernel"),
    "RBFKernel": _Kind(kernels.RBFKernel, ("ard_num_dims",)),
    "MaternKernel": _Kind(kernels.MaternKernel, ("nu", "ard_num_dims")),
    "RQKernel": _Kind(kernels.RQKernel, ("ard_num_dims",)),
    "PeriodicKernel": _Kind(kernels.PeriodicKernel, ("ard_num_dims",)),
    "LinearKernel": _Kind(kernels.LinearKernel, ("ard_num_dims",)),
    "PolynomialKernel": _Kind(kernels.PolynomialKernel, ("power", "ard_num_dims")),
    "CosineKernel": _Kind(kernels.CosineKernel, ("ard_num_dims",)),
    "ConstantKernel": _Kind(kernels.ConstantKernel),
    "AdditiveKernel": _Kind(kernels.AdditiveKernel, (), "kernels"),
    "ProductKernel": _Kind(kernels.ProductKernel, (), "kernels"),
    "ArcCosineKernel": _Kind(ArcCosineKernel, ("order", "ard_num_dims")),
    "GlobeKernel": _Kind(GlobeKernel, ("ard_num_dims",), "base_kernel"),
}
_ACTIONS = {
    "Negation": _Kind(actions.Negation, ("subsets",)),
    "PrincipalNegation": _Kind(actions.PrincipalNegation, ("ways",)),
    "Rotation": _Kind(actions.Rotation, ("plane", "order")),
    "Translation": _Kind(actions.Translation, ("axis", "period", "order", "start")),
    "Longitude": _Kind(actions.Longitude, ("order", "axis")),
    "Permutation": _Kind(actions.Permutation, ("permutation",)),
    "ImageFlip": _Kind(actions.ImageFlip, ("shape", "axes")),
    "ImageShift": _Kind(actions.ImageShift, ("shape", "steps")),
    "Orthogonal": _Kind(actions.Orthogonal),
    "Product": _Kind(actions.Product, (), "factors"),
}
_LIKELIHOODS = {
    "GaussianLikelihood": _Kind(likelihoods.GaussianLikelihood),
    "StudentTLikelihood": _Kind(likelihoods.StudentTLikelihood),
    "BernoulliLikelihood": _Kind(likelihoods.BernoulliLikelihood),
    "RobustMaxLikelihood": _Kind(RobustMaxLikelihood, ("num_classes", "epsilon")),
    "SoftmaxBoundLikelihood": _Kind(SoftmaxBoundLikelihood, ("num_classes",)),
    "PoissonLikelihood": _Kind(PoissonLikelihood),
}
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
_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


# Kernels --------------------------------------------------------------------------------------------------------------


def kernel_spec(kernel: kernels.Kernel) -> Spec:
    """The structure of a kernel of the closed list, for JSON; its values are in `kernel.state_dict()`.

    Examples:
        >>> from gpytorch.kernels import MaternKernel
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
    name, kind = _kind(kernel, _KERNELS, "kernel")
    if depth > _DEEPEST:
        raise SpecError(f"the kernel is nested more than {_DEEPEST} deep: use fewer sums, products and scales.")
    spec = {"class": name, **_facts(kernel, kind)}
    spec["active_dims"] = None if kernel.active_dims is None else kernel.active_dims.tolist()
    spec["parameters"] = _parameters(kernel, "kernel")
    if kind.children:
        held = getattr(kernel, kind.children)
        children = [held] if kind.children == "base_kernel" else list(held)
        spec["children"] = [_kernel_node(child, depth + 1) for child in children]
    return spec


def _build_kernel(spec: object, where: str, depth: int) -> Any:
    fields = Fields(spec, where)
    if depth > _DEEPEST:
        raise fields.error("it is nested too deep")
    kind = fields.choice("class", _KERNELS)
    facts = {fact: READERS[fact](fields, fact) for fact in kind.facts}
    active = fields.optional("active_dims", Fields.wholes)
    parameters, children = fields.take("parameters"), []
    if kind.children:
        parts = fields.items("children", exactly=1 if kind.children == "base_kernel" else None)
        children = [_build_kernel(part, f"{where}.children[{i}]", depth + 1) for i, part in enumerate(parts)]
    fields.end()
    kernel = fields.construct(kind.type, *children, **facts)
    kernel.active_dims = None if active is None else torch.tensor(active, dtype=torch.long)
    _set_parameters(kernel, parameters, where)
    return kernel


# Likelihoods ----------------------------------------------------------------------------------------------------------


def likelihood_spec(likelihood: likelihoods.Likelihood) -> Spec:
    """The structure of a likelihood of the closed list, for JSON; its values are in `likelihood.state_dict()`."""
    name, kind = _kind(likelihood, _LIKELIHOODS, "likelihood")
    spec = {"class": name, **_facts(likelihood, kind)}
    batched = any(parameter.numel() != 1 for parameter in likelihood.parameters())
    _check_module(likelihood, "likelihood", batched)
    spec["parameters"] = _parameters(_holder(likelihood), "likelihood")
    if kind.type is RobustMaxLikelihood:
        spec["points"], spec["dtype"] = len(likelihood.nodes), _dtype_name(likelihood.nodes, "likelihood")
    if hasattr(
        likelihood, "quadrature"
    ):  # not in the state dict, and rounded as the default dtype was when it was made
        rule = likelihood.quadrature
        spec["quadrature"] = {
            "dtype": _dtype_name(rule.locations, "likelihood"),
            "locations": rule.locations.tolist(),
            "weights": rule.weights.tolist(),
        }
    _check_same_state(likelihood, build_likelihood(spec), "likelihood")
    return spec


def build_likelihood(spec: object) -> likelihoods.Likelihood:
    """The likelihood of a spec, ready for `load_state_dict`."""
    fields = Fields(spec, "likelihood")
    kind = fields.choice("class", _LIKELIHOODS)
    facts = {fact: READERS[fact](fields, fact) for fact in kind.facts}
    dtype = None
    if kind.type is RobustMaxLikelihood:
        facts["points"], dtype = fields.whole("points", most=1000), fields.choice("dtype", _DTYPES)
    likelihood = fields.construct(kind.type, **facts)
    if dtype is not None:
        likelihood.to(dtype)
    _set_parameters(_holder(likelihood), fields.take("parameters"), "likelihood")
    if hasattr(likelihood, "quadrature"):
        _set_quadrature(likelihood.quadrature, fields.take("quadrature"))
    fields.end()
    return likelihood


def _holder(likelihood: Any) -> Any:
    """The module that holds the parameters."""
    return likelihood.noise_covar if type(likelihood) is likelihoods.GaussianLikelihood else likelihood


def _set_quadrature(rule: Any, spec: object) -> None:
    fields = Fields(spec, "likelihood.quadrature")
    dtype = fields.choice("dtype", _DTYPES)
    locations, weights = fields.tensor("locations", 1), fields.tensor("weights", 1)
    fields.end()
    if len(locations) == 0 or locations.shape != weights.shape:
        raise fields.error("it has no weight for each location")
    rule.locations, rule.weights, rule.num_locs = locations.to(dtype), weights.to(dtype), len(locations)


# Actions --------------------------------------------------------------------------------------------------------------


def action_spec(action: Action | None) -> Spec | None:
    """An action of the closed list, whole, for JSON; None for none.

    Examples:
        >>> from harmonicgp.actions import Rotation
        >>> action_spec(Rotation((0, 1), 4))
        {'class': 'Rotation', 'plane': [0, 1], 'order': 4}
    """
    if action is None:
        return None
    name, kind = _kind(action, _ACTIONS, "action")
    spec = {"class": name, **_facts(action, kind)}
    if isinstance(action, actions.PrincipalNegation):
        spec["mean"] = None if action.mean is None else action.mean.tolist()
        spec["directions"] = None if action.directions is None else action.directions.tolist()
    elif isinstance(action, actions.Orthogonal):
        spec["matrix"], spec["order"] = action.matrix.tolist(), action.group.order
    elif isinstance(action, actions.Product):
        spec["children"] = [action_spec(factor) for factor in action.factors]
    build_action(spec)
    return spec


def build_action(spec: object) -> Action | None:
    """The action of a spec; None for None."""
    return None if spec is None else _build_action(spec, "action", 0)


def _build_action(spec: object, where: str, depth: int) -> Action:
    fields = Fields(spec, where)
    kind = fields.choice("class", _ACTIONS)
    facts = {fact: READERS[fact](fields, fact) for fact in kind.facts}
    if kind.type is actions.PrincipalNegation:
        return _build_principal(fields, facts["ways"])
    if kind.type is actions.Orthogonal:
        return _build_orthogonal(fields)
    children = []
    if kind.type is actions.Product:
        if depth > 0:
            raise fields.error("a product within a product is never written")
        parts = fields.items("children")
        children = [_build_action(part, f"{where}.children[{i}]", depth + 1) for i, part in enumerate(parts)]
    fields.end()
    if math.prod(facts.get("shape", ())) > LARGEST:
        raise fields.error("the image is too large")
    if "steps" in facts:
        facts["step"] = facts.pop("steps")
    action: Action = fields.construct(kind.type, *children, **facts)
    return action


def _build_principal(fields: Fields, ways: int) -> Action:
    mean = fields.optional("mean", partial(Fields.tensor, dim=1))
    V = fields.optional("directions", partial(Fields.tensor, dim=2))
    fields.end()
    action: actions.PrincipalNegation = fields.construct(actions.PrincipalNegation, ways)
    if mean is None and V is None:
        return action
    if mean is None or V is None or V.shape != (len(mean), len(mean)) or len(mean) < ways:
        raise fields.error("mean and directions do not fit each other")
    if float((V @ V.mT - torch.eye(len(V), dtype=V.dtype)).abs().max()) > 1e-6:
        raise fields.error("the directions are not orthogonal")
    action.mean, action.directions, action.dim = mean, V, len(mean)
    return action


def _build_orthogonal(fields: Fields) -> Action:
    matrix, order = fields.tensor("matrix", 2), fields.whole("order", most=10**5)
    fields.end()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # Rounding decides how near R^T must come to I: a matrix that was given in few digits is given so again.
        if torch.equal(matrix.to(dtype).double(), matrix):
            try:
                return actions.Orthogonal(matrix.to(dtype), order)
            except ValueError:
                continue
    action: Action = fields.construct(actions.Orthogonal, matrix, order)
    return action


# What can be saved ----------------------------------------------------------------------------------------------------


def _kind(value: Any, kinds: Mapping[str, _Kind], noun: str) -> tuple[str, _Kind]:
    """The class of a value in the closed list: exactly, since what a subclass changes would be lost."""
    for name, kind in kinds.items():
        if type(value) is kind.type:
            return name, kind
    raise SpecError(
        f"a {type(value).__name__} cannot be saved; the {noun}s that can be are {', '.join(kinds)}. Build the {noun} from "
        "these, or keep the code that makes your own and save what it needs yourself."
    )


def _facts(value: Any, kind: _Kind) -> Spec:
    return {fact: _plain(getattr(value, fact)) for fact in kind.facts}


def _plain(value: Any) -> Any:
    """Lists for tuples, Python's numbers for numpy's."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def _parameters(module: Any, noun: str) -> Spec:
    """What is to be known of the parameters that are a module's own."""
    return {
        name: {
            "dtype": _dtype_name(parameter, noun),
            "frozen": not parameter.requires_grad,
            "constraint": _constraint(module.constraint_for_parameter_name(name), f"{name} of the {noun}", noun),
        }
        for name, parameter in module.named_parameters(recurse=False)
    }


def _dtype_name(tensor: Tensor, noun: str) -> str:
    for name, dtype in _DTYPES.items():
        if tensor.dtype == dtype:
            return name
    raise SpecError(f"the {noun} has numbers of {tensor.dtype}, which cannot be saved: use {noun}.double().")


def _constraint(constraint: Any, where: str, noun: str) -> Spec:
    for name, (make, bounds) in _CONSTRAINTS.items():
        if type(constraint) is getattr(make, "func", make):
            values = {bound: getattr(constraint, bound).tolist() for bound in bounds}
            return {"class": name, "transform": _transform(constraint, where), **values,
                    "dtype": _dtype_name(constraint.lower_bound, noun)}  # fmt: skip
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


def _set_parameters(module: Any, spec: object, where: str) -> None:
    """Give a new module's own parameters the dtypes and constraints of a spec, and freeze those that were frozen."""
    fields = Fields(spec, f"{where}.parameters")
    for name, parameter in list(module.named_parameters(recurse=False)):
        entry = Fields(fields.take(name), f"{where}.parameters.{name}")
        parameter.data = parameter.data.to(entry.choice("dtype", _DTYPES))
        parameter.requires_grad_(not entry.flag("frozen"))
        constraint = _build_constraint(entry.take("constraint"), f"{where}.{name}_constraint", parameter.shape)
        module.register_constraint(name, constraint)
        entry.end()
    fields.end()


def _build_constraint(spec: object, where: str, shape: torch.Size) -> Any:
    fields = Fields(spec, where)
    make, bounds = fields.choice("class", _CONSTRAINTS)
    transform, inverse = fields.choice("transform", _TRANSFORMS)
    dtype = fields.choice("dtype", _DTYPES)
    constraint = make(transform=transform, inv_transform=inverse).to(dtype)
    for bound in bounds:
        value = fields.tensor(bound).to(dtype)
        fields.construct(torch.broadcast_to, value, shape)
        setattr(constraint, bound, value)
    fields.end()
    if not bool((constraint.lower_bound < constraint.upper_bound).all()):
        raise fields.error("the interval is empty")
    return constraint
