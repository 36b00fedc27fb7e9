"""The parts of an action's inner products, against the images of the points themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import ImageFlip, ImageShift, Negation, Permutation, PrincipalNegation, Rotation, linear

_POINTS = torch.randn(60, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 3.0
ACTIONS = {
    "negation of some": Negation([[3, 0], [20, 7, 8]]),
    "negation of all": Negation(),
    "four ways": Negation.strided(24, 4),
    "principal": PrincipalNegation(3).fit(_POINTS),
    "plane": Rotation((2, 5), 6),
    "flips": ImageFlip((4, 6)),
    "rolls": ImageShift((4, 6), 1),
    "coarse rolls": ImageShift((4, 6), (2, 3)),
    "channels": ImageShift((2, 4, 3), (1, 1)),
    "cycle": Permutation([*range(1, 24), 0]),
}


def check(action, d, seed):
    """Inner products about the fixed point, of values and of gradients."""
    rng = torch.Generator().manual_seed(seed)
    parts = action.linear_parts(d)
    assert parts is not None
    x, v = (torch.randn(n, d, dtype=torch.float64, generator=rng) for n in (5, 4))
    x, v = x.requires_grad_(), v.requires_grad_()
    images = action.orbit(x + parts.center) - parts.center
    expected = torch.einsum("sid,jd->sij", images, v)
    U, V = parts.left(x), parts.right(v)
    pieces = [U[:, a:b] @ V[:, a:b].mT for a, b in zip((0, *parts.ends), parts.ends, strict=False)]
    found = torch.einsum("sk,kij->sij", parts.C, torch.stack(pieces))
    assert torch.allclose(found, expected, atol=1e-10 * d)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=rng)
    for ours, theirs in zip(
        torch.autograd.grad((found * weights).sum(), (x, v)),
        torch.autograd.grad((expected * weights).sum(), (x, v)),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-9 * d)


@pytest.mark.parametrize("transform", ["products", "FFTs"])
@given(name=st.sampled_from(sorted(ACTIONS)), seed=st.integers(0, 999))
def test_the_parts_add_up_to_the_inner_product_of_images(transform, name, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "MAX_PRODUCT", 10**6 if transform == "products" else 0)
        check(ACTIONS[name], 24, seed)


@pytest.mark.parametrize("action", [Negation.strided(784, 4), ImageFlip((28, 28)), ImageShift((28, 28), 4)], ids=repr)
def test_whole_images(action):
    check(action, 784, 0)
