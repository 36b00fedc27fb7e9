from __future__ import annotations

import copy
import json
import math

import gpytorch
import pytest
import torch
from gpytorch import kernels as gk
from gpytorch import likelihoods as gl
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import (
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Orthogonal,
    Permutation,
    PrincipalNegation,
    Product,
    Rotation,
    Translation,
)
from harmonicgp.io.container import read_container, write_container
from harmonicgp.io.specs import (
    SpecError,
    action_spec,
    build_action,
    build_kernel,
    build_likelihood,
    kernel_spec,
    likelihood_spec,
)
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel, HarmonicKernel
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood
from tests.cases import motions

D = 3


def through_json(spec):
    back = json.loads(json.dumps(spec, allow_nan=False))
    assert back == spec  # nothing but what JSON holds
    return back


def rebuilt(kernel):
    other = build_kernel(through_json(kernel_spec(kernel)))
    other.load_state_dict(kernel.state_dict(), strict=True)
    return other


def same_kernel(one, two, x):
    assert type(one) is type(two)
    assert str(one) == str(two)
    names = [(name, p.dtype, p.shape, p.requires_grad) for name, p in one.named_parameters()]
    assert names == [(name, p.dtype, p.shape, p.requires_grad) for name, p in two.named_parameters()]
    assert [(c.lower_bound.dtype, c.lower_bound.tolist(), c.upper_bound.tolist()) for c in one.constraints()] == [
        (c.lower_bound.dtype, c.lower_bound.tolist(), c.upper_bound.tolist()) for c in two.constraints()
    ]
    for diag in (False, True):
        A, B = (kernel(x, diag=diag) if diag else kernel(x).to_dense() for kernel in (one, two))
        assert A.dtype == B.dtype
        assert torch.equal(A, B)


# Kernels --------------------------------------------------------------------------------------------------------------

constraint_makers = [
    Positive,
    lambda: Positive(transform=torch.exp, inv_transform=torch.log),
    lambda: GreaterThan(1e-4),
    lambda: GreaterThan(0.1, transform=None),
    lambda: LessThan(30.0),
    lambda: Interval(0.01, 20.0),
    lambda: Interval(0.01, 20.0, initial_value=3.0),
]


@st.composite
def leaves(draw, d=D):
    """A kernel of one part, with lengthscales, constraints and columns of all sorts."""
    choice = draw(st.integers(0, 9))
    active = draw(st.none() | st.permutations(range(d)).map(lambda dims: dims[: max(1, d - 1)]))
    width = d if active is None else len(active)
    keywords = {"active_dims": active, **draw(st.sampled_from([{}, {"ard_num_dims": width}]))}
    match choice:
        case 0:
            kernel = gk.RBFKernel(**keywords)
        case 1:
            kernel = gk.MaternKernel(nu=draw(st.sampled_from([0.5, 1.5, 2.5])), **keywords)
        case 2:
            kernel = gk.RQKernel(**keywords)
        case 3:
            kernel = gk.PeriodicKernel(**keywords)
        case 4:
            kernel = gk.LinearKernel(**keywords)
        case 5:
            kernel = gk.PolynomialKernel(power=draw(st.sampled_from([1, 2, 2.0])), **keywords)
        case 6:
            kernel = gk.CosineKernel(**keywords)
        case 7:
            kernel = gk.ConstantKernel(active_dims=active)
        case 8:
            kernel = ArcCosineKernel(order=draw(st.integers(0, 2)), **keywords)
        case _:
            kernel = GlobeKernel(draw(st.sampled_from([gk.RBFKernel, gk.MaternKernel]))(), active_dims=[0, 1])
    return _settle(draw, kernel)


def _settle(draw, kernel):
    for name, parameter in list(kernel.named_parameters(recurse=False)):
        if draw(st.booleans()):
            kernel.register_constraint(name, draw(st.sampled_from(constraint_makers))())
        parameter.data.add_(draw(st.floats(0.2, 1.5)) * torch.rand_like(parameter) + 0.2)
        parameter.requires_grad_(draw(st.booleans()))
    return kernel


@st.composite
def nested(draw, depth=3):
    choice = draw(st.integers(0, 3)) if depth else 0
    if choice == 0:
        return draw(leaves())
    if choice == 1:
        return _settle(draw, gk.ScaleKernel(draw(nested(depth - 1))))
    parts = [draw(nested(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    return (gk.AdditiveKernel if choice == 2 else gk.ProductKernel)(*parts)


# GPyTorch factorises sums of linear kernels on the way to a dense matrix, and says so where they have no full rank
@pytest.mark.filterwarnings("ignore:A not p.d.:linear_operator.utils.warnings.NumericalWarning")
@given(kernel=nested(), single=st.booleans(), default=st.sampled_from([torch.float32, torch.float64]))
def test_kernels_come_back_bit_for_bit(kernel, single, default):
    kernel = kernel.to(torch.float32 if single else torch.float64)
    torch.manual_seed(1)
    x = torch.rand(4, D, dtype=torch.float32 if single else torch.float64)
    torch.set_default_dtype(default)  # as the session that loads has it
    try:
        same_kernel(kernel, rebuilt(kernel), x)
        same_kernel(kernel, rebuilt(copy.deepcopy(kernel)), x)
    finally:
        torch.set_default_dtype(torch.float64)


def test_spec_is_structure_only():
    kernel = gk.ScaleKernel(gk.MaternKernel(nu=1.5, ard_num_dims=2, active_dims=[2, 0]))
    before = kernel_spec(kernel)
    kernel.outputscale, kernel.base_kernel.lengthscale = 7.0, torch.tensor([[1.0, 9.0]])
    assert kernel_spec(kernel) == before
    assert before["children"][0]["nu"] == 1.5
    assert before["children"][0]["active_dims"] == before["active_dims"] == [2, 0]


def test_bounds_of_several_numbers_and_of_another_dtype():
    kernel = gk.RBFKernel(ard_num_dims=2)
    torch.set_default_dtype(torch.float32)
    kernel.register_constraint("raw_lengthscale", Interval(torch.tensor([0.1, 0.2]), torch.tensor([1.0, 2.0])))
    torch.set_default_dtype(torch.float64)
    other = rebuilt(kernel)
    same_kernel(kernel, other, torch.rand(3, 2))
    assert other.raw_lengthscale_constraint.lower_bound.dtype == torch.float32
    assert other.raw_lengthscale.dtype == torch.float64


def test_a_scale_keeps_columns_that_differ_from_its_base():
    kernel = gk.ScaleKernel(gk.RBFKernel(active_dims=[1]))
    kernel.active_dims = None
    same_kernel(kernel, rebuilt(kernel), torch.rand(3, 2))


def test_kernel_through_a_file(tmp_path):
    kernel = gk.ScaleKernel(gk.RBFKernel(lengthscale_constraint=GreaterThan(0.5))) + gk.LinearKernel()
    write_container(tmp_path / "k", "model", 1, {"kernel": kernel_spec(kernel)}, kernel.state_dict())
    found = read_container(tmp_path / "k", "model", 1)
    other = build_kernel(found.header["kernel"])
    other.load_state_dict(found.tensors, strict=True)
    same_kernel(kernel, other, torch.rand(4, 2))


class MyRBF(gk.RBFKernel):
    pass


def _changed(kernel):
    kernel.register_buffer("extra", torch.ones(2))
    return kernel


def _tied():
    part = gk.RBFKernel()
    return part + gk.ScaleKernel(part)


def _deep():
    kernel = gk.RBFKernel()
    for _ in range(11):
        kernel = gk.ScaleKernel(kernel)
    return kernel


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (MyRBF, "a MyRBF cannot be saved; the kernels that can be are ScaleKernel, RBFKernel,"),
        (lambda: gk.ScaleKernel(MyRBF()), "a MyRBF cannot be saved"),
        (lambda: gk.SpectralMixtureKernel(num_mixtures=2), "Build the kernel from these"),
        (lambda: HarmonicKernel(gk.RBFKernel(), Negation([0])), "a HarmonicKernel cannot be saved"),
        (lambda: torch.matmul, "cannot be saved; the kernels that can be"),
        (lambda: None, "a NoneType cannot be saved"),
        (lambda: gk.RBFKernel(batch_shape=torch.Size([2])), "use one without batch_shape"),
        (lambda: gk.ScaleKernel(gk.RBFKernel(), batch_shape=torch.Size([2])), "use one without batch_shape"),
        (lambda: gk.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 1.0)), "prior, lengthscale_prior"),
        (lambda: gk.ScaleKernel(gk.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 1.0))), "has a prior"),
        (lambda: gk.RBFKernel(lengthscale_constraint=Positive(transform=torch.exp)), "has another transform"),
        (lambda: gk.RBFKernel(lengthscale_constraint=type("Mine", (Positive,), {})()), "has the constraint Mine"),
        (lambda: _changed(gk.RBFKernel()), "was changed after its construction, in extra"),
        (_tied, "one parameter in two places"),
        (_deep, "nested more than 10 deep"),
    ],
)
def test_refuses_kernels_that_would_not_come_back(make, text):
    with pytest.raises(SpecError) as caught:
        kernel_spec(make())
    assert text in str(caught.value)


# Likelihoods ----------------------------------------------------------------------------------------------------------


def _expected(likelihood, y):
    mean, variance = torch.linspace(-1, 1, 4, dtype=torch.float64), torch.linspace(0.1, 1, 4, dtype=torch.float64)
    if isinstance(likelihood, RobustMaxLikelihood):
        mean, variance = (torch.stack((part, part.flip(0), part), -1) for part in (mean, variance))
        return likelihood.class_probabilities(mean, variance)
    latent = gpytorch.distributions.MultivariateNormal(mean, torch.diag(variance))
    return likelihood.expected_log_prob(y, latent)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [
        gl.GaussianLikelihood,
        lambda: gl.GaussianLikelihood(noise_constraint=Interval(1e-6, 2.0)),
        gl.StudentTLikelihood,
        lambda: gl.StudentTLikelihood(deg_free_constraint=GreaterThan(3.0), noise_constraint=LessThan(5.0)),
        gl.BernoulliLikelihood,
        lambda: RobustMaxLikelihood(3, epsilon=0.01, points=7),
        PoissonLikelihood,
    ],
)
def test_likelihoods_come_back_bit_for_bit(make, default):
    torch.set_default_dtype(default)
    likelihood = make().double()  # its quadrature rounded to the default before
    for parameter in likelihood.parameters():
        parameter.data += 0.3
        parameter.requires_grad_(False)
    torch.set_default_dtype(torch.float64)
    other = build_likelihood(through_json(likelihood_spec(likelihood)))
    other.load_state_dict(likelihood.state_dict(), strict=True)
    assert type(other) is type(likelihood)
    assert str(other) == str(likelihood)
    assert not any(parameter.requires_grad for parameter in other.parameters())
    y = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.equal(_expected(likelihood, y), _expected(other, y))


def test_robust_max_keeps_what_is_in_no_tensor():
    other = build_likelihood(likelihood_spec(RobustMaxLikelihood(5, epsilon=0.25, points=9).float()))
    assert (other.num_classes, other.epsilon, len(other.nodes), other.nodes.dtype) == (5, 0.25, 9, torch.float32)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: gl.SoftmaxLikelihood(num_features=2, num_classes=2), "a SoftmaxLikelihood cannot be saved"),
        (
            lambda: type("Mine", (gl.GaussianLikelihood,), {})(),
            "a Mine cannot be saved; the likelihoods that can be are",
        ),
        (lambda: gl.GaussianLikelihood(batch_shape=torch.Size([2])), "use one without batch_shape"),
        (lambda: gl.StudentTLikelihood(batch_shape=torch.Size([2])), "use one without batch_shape"),
        (lambda: gl.GaussianLikelihood(noise_prior=gpytorch.priors.GammaPrior(2.0, 1.0)), "has a prior"),
    ],
)
def test_refuses_likelihoods_that_would_not_come_back(make, text):
    with pytest.raises(SpecError) as caught:
        likelihood_spec(make())
    assert text in str(caught.value)


# Actions --------------------------------------------------------------------------------------------------------------


def _rotation_matrix(T, dtype):
    a = 2 * math.pi / T
    return torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=dtype)


def same_action(one, two, x):
    assert type(one) is type(two)
    assert repr(one) == repr(two)
    assert (one.group, one.dim, one.min_dim, one.periods) == (two.group, two.dim, two.min_dim, two.periods)
    assert torch.equal(one.orbit(x), two.orbit(x))


@pytest.mark.parametrize(
    ("action", "d"),
    [
        (Negation(), 3),
        (Negation([0, 2]), 3),
        (Negation([[0], [2, 1]]), 3),
        (
            PrincipalNegation(2).fit(
                torch.tensor([[0.0, 0.1, 1.0], [1.0, 3.0, 0.2], [2.0, 2.0, 1.0], [0.3, 0.5, 4.0]])
            ),
            3,
        ),
        (Rotation((2, 0), 5), 3),
        (Translation(1, 24.0, 3, start=-12.0), 2),
        (Longitude(6, axis=1), 3),
        (Permutation([1, 2, 0, 4, 3]), 5),
        (ImageFlip((2, 3, 2), axes=(1,)), 12),
        (ImageShift((4, 6), (2, 3)), 24),
        (Orthogonal(_rotation_matrix(3, torch.float64)), 2),
        (Orthogonal(_rotation_matrix(720, torch.float32)), 2),
        (Orthogonal(torch.tensor([[0, 1], [1, 0]])), 2),
        (Rotation((0, 1), 3) * Negation([2]) * Translation(3, 7.0, 2), 4),
        (Product(Negation([0])), 2),
    ],
    ids=repr,
)
def test_actions_come_back(action, d):
    x = torch.rand(4, d, dtype=torch.float64)
    same_action(action, build_action(through_json(action_spec(action))), x)


@given(motion=motions())
def test_drawn_actions_come_back(motion):
    torch.manual_seed(0)
    x = torch.rand(3, motion.d, dtype=torch.float64)
    same_action(motion.action, build_action(through_json(action_spec(motion.action))), x)


def test_no_action_and_one_not_fitted():
    assert action_spec(None) is None
    assert build_action(None) is None
    action = build_action(action_spec(PrincipalNegation(2)))
    assert repr(action) == "PrincipalNegation(2)"
    assert action.mean is None


def test_refuses_actions_of_other_classes():
    class Mine(Negation):
        pass

    for action in (Mine([0]), Product(Mine([0]), Negation([1])), "Negation"):
        with pytest.raises(SpecError, match="cannot be saved; the actions that can be are Negation"):
            action_spec(action)


# Hostile specs --------------------------------------------------------------------------------------------------------

KERNEL = kernel_spec(gk.ScaleKernel(gk.MaternKernel(nu=1.5, ard_num_dims=2, active_dims=[0, 1])) + gk.ConstantKernel())
LIKELIHOOD = likelihood_spec(gl.StudentTLikelihood())
ROBUST = likelihood_spec(RobustMaxLikelihood(3))
PRINCIPAL = action_spec(PrincipalNegation(1).fit(torch.tensor([[0.0, 1.0], [2.0, 3.0], [5.0, 4.0]])))
PRODUCT = action_spec(Rotation((0, 1), 3) * Translation(2, 7.0, 2) * Negation([[3]]))
IMAGE = action_spec(ImageShift((4, 6), (2, 3)))
ORTHOGONAL = action_spec(Orthogonal(_rotation_matrix(3, torch.float64)))
BUILT = [
    (build_kernel, KERNEL),
    (build_likelihood, LIKELIHOOD),
    (build_likelihood, ROBUST),
    (build_action, PRINCIPAL),
    (build_action, PRODUCT),
    (build_action, IMAGE),
    (build_action, ORTHOGONAL),
]
ODD = [
    None,
    True,
    -1,
    0,
    2.5,
    10**12,
    1e400,
    math.nan,
    "",
    "os.system",
    "__class__",
    [],
    [[]],
    {},
    {"class": "os"},
    ["a"],
]


def places(spec, path=()):
    """Every key and every item in a spec."""
    items = spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(spec, path, value):
    spec = copy.deepcopy(spec)
    inner = spec
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return spec


@pytest.mark.parametrize(("build", "spec"), BUILT, ids=lambda value: value["class"] if isinstance(value, dict) else "")
def test_odd_values_anywhere_are_refused_or_understood(build, spec):
    build(spec)
    understood = total = 0
    for path in places(spec):
        for value in ODD:
            total += 1
            try:
                build(replaced(spec, path, value))
                understood += 1
            except SpecError:
                pass
    assert understood < 0.25 * total


@pytest.mark.parametrize(("build", "spec"), BUILT, ids=lambda value: value["class"] if isinstance(value, dict) else "")
def test_missing_and_unknown_keys_are_refused(build, spec):
    for path in places(spec):
        if isinstance(path[-1], str):
            less = copy.deepcopy(spec)
            inner = less
            for key in path[:-1]:
                inner = inner[key]
            del inner[path[-1]]
            with pytest.raises(SpecError, match=f"'{path[-1]}' is missing"):
                build(less)
            inner[path[-1]] = copy.deepcopy(spec)
            inner["batch_shape"] = [2]
            with pytest.raises(SpecError):
                build(less)
    with pytest.raises(SpecError, match="'batch_shape' is not known here"):
        build({**spec, "batch_shape": [2]})
    for odd in ("RBFKernel", ["RBFKernel"], 3, True):
        with pytest.raises(SpecError, match="must be an object"):
            build(odd)


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "SpectralMixtureKernel", "Kernel", "__init__", "ScaleKernel "]
)
def test_other_class_names_are_refused(name):
    for build, spec in BUILT:
        with pytest.raises(SpecError, match="'class' must be one of"):
            build({**spec, "class": name})


@pytest.mark.parametrize(
    ("build", "spec", "path", "value", "text"),
    [
        (build_kernel, KERNEL, ("children", 0, "children", 0, "nu"), 1.7, "kernel.children[0].children[0] is not valid: nu"),
        (build_kernel, KERNEL, ("children",), [], "'children' must be a list of one or more"),
        (build_kernel, KERNEL, ("children", 0, "children"), [KERNEL, KERNEL], "'children' must be a list of 1"),
        (build_kernel, KERNEL, ("children", 0, "children", 0, "ard_num_dims"), 10**9, "whole number from 0 to 1000000"),
        (build_action, PRINCIPAL, ("mean",), [1.0], "shapes of mean and directions do not match"),
        (build_action, PRINCIPAL, ("mean",), None, "shapes of mean and directions do not match"),
        (build_action, PRINCIPAL, ("directions", 0, 0), 0.0, "the directions are not orthogonal"),
        (build_action, PRINCIPAL, ("directions", 0), [1.0], "the saved action is not valid: expected sequence"),
        (build_action, ORTHOGONAL, ("order",), 4, "the order is 3, not 4"),
        (build_action, ORTHOGONAL, ("matrix", 0, 0), 1.0, "is not orthogonal"),
        (build_action, IMAGE, ("shape",), [10**6, 10**6], "the image is too large"),
        (build_action, PRODUCT, ("children", 0), PRODUCT, "a product within a product"),
        (build_action, PRODUCT, ("children", 2), action_spec(Negation([0])), "must commute"),
        (build_likelihood, LIKELIHOOD, ("quadrature", "weights"), [1.0], "no weight for each location"),
        (build_likelihood, ROBUST, ("points",), 10**5, "from 0 to 1000"),
        (build_likelihood, ROBUST, ("epsilon",), 2.0, "must be in (0, 1)"),
    ],
)  # fmt: skip
def test_says_what_is_wrong_with_a_spec(build, spec, path, value, text):
    with pytest.raises(SpecError) as caught:
        build(replaced(spec, path, value))
    assert text in str(caught.value)


def test_constraints_that_are_none():
    spec = kernel_spec(gk.RBFKernel(ard_num_dims=2, lengthscale_constraint=Interval(0.1, 1.0)))
    place = ("parameters", "raw_lengthscale", "constraint")
    for change, text in [
        ({"lower_bound": 2.0}, "the interval is empty"),
        ({"lower_bound": math.nan}, "must hold finite numbers"),
        ({"lower_bound": [0.1, 0.2, 0.3]}, "is not valid"),
        ({"transform": "tanh"}, "'transform' must be one of softplus, sigmoid, exp, none; got 'tanh'"),
        ({"class": "Module"}, "'class' must be one of Positive"),
        ({"dtype": "complex64"}, "'dtype' must be one of"),
    ]:
        with pytest.raises(SpecError) as caught:
            build_kernel(replaced(spec, place, {**spec["parameters"]["raw_lengthscale"]["constraint"], **change}))
        assert text in str(caught.value)


def test_a_spec_nested_too_deep():
    spec = kernel_spec(gk.AdditiveKernel(gk.RBFKernel()))
    deep = spec
    for _ in range(5000):
        deep = {**spec, "children": [deep]}
    with pytest.raises(SpecError, match="nested too deep"):
        build_kernel(deep)


def test_messages_stay_short():
    with pytest.raises(SpecError) as caught:
        build_kernel({**KERNEL, "class": "x" * 10**6})
    assert len(str(caught.value)) < 1000
