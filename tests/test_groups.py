from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic, Group
from tests import reference as ref

groups = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(lambda orders: Group(tuple(orders)))
ALWAYS = [
    Cyclic(1),
    Cyclic(2),
    Cyclic(3),
    Cyclic(2) ** 3,
    Cyclic(3) * Cyclic(4),
    Cyclic(7) ** 2,
    Cyclic(2) * Cyclic(3),
]


@given(groups)
def test_a_group_is_a_value_and_prints_as_it_parses(group):
    again = eval(repr(group), {"Cyclic": Cyclic})
    assert again == group
    assert hash(again) == hash(group)
    assert len({group, again}) == 1
    assert group.order == len(group.elements()) == np.prod(group.orders)


def test_products_and_powers():
    assert Cyclic(2) ** 3 == Cyclic(2) * Cyclic(2) * Cyclic(2)
    assert repr(Cyclic(2) ** 3) == "Cyclic(2)**3"
    assert repr(Cyclic(2) ** 2 * Cyclic(3)) == "Cyclic(2)**2 * Cyclic(3)"
    assert Cyclic(2) * Cyclic(3) != Cyclic(3) * Cyclic(2)
    assert Cyclic(6) != Cyclic(2) * Cyclic(3)


@given(groups)
def test_elements_index_and_inverses(group):
    elements = [tuple(s) for s in group.elements().tolist()]
    assert elements == ref.elements(group.orders)
    assert [group.index(s) for s in elements] == list(range(group.order))
    for s, place in zip(elements, group.inverses().tolist(), strict=True):
        assert all((a + b) % T == 0 for a, b, T in zip(s, elements[place], group.orders, strict=True))


@given(groups)
def test_characters_are_orthogonal_homomorphisms(group):
    chi = group.characters().numpy()
    dense = np.array([[np.conj(group.order * ref.dft_entry(group.orders, t, s)) for s in ref.elements(group.orders)]
                      for t in ref.elements(group.orders)])  # fmt: skip
    np.testing.assert_allclose(chi, dense, atol=1e-12)
    np.testing.assert_allclose(chi @ chi.conj().T, group.order * np.eye(group.order), atol=1e-10)
    elements = group.elements()
    for r in elements:
        shifted = [group.index(s) for s in elements + r]
        np.testing.assert_allclose(chi[:, shifted], chi * chi[:, [group.index(r)]], atol=1e-12)


@given(groups)
def test_conjugate_pairs_cover_every_frequency_once(group):
    seen = [t for a, b in group.conjugate_pairs for t in {a, b}]
    assert sorted(seen) == list(range(group.order))
    chi = group.characters()
    for a, b in group.conjugate_pairs:
        assert_close(chi[b], chi[a].conj(), rtol=0, atol=1e-12)
    assert len(group.conjugate_pairs) == group.n_blocks("complex")


@given(groups)
def test_folded_frequencies(group):
    assert len(group.folded_frequencies) == group.n_blocks("real") == np.prod([T // 2 + 1 for T in group.orders])
    folded = {tuple(min(t, T - t) for t, T in zip(s, group.orders, strict=True)) for s in ref.elements(group.orders)}
    assert set(group.folded_frequencies) == folded


def test_counts_of_the_paper():
    assert Cyclic(12).n_blocks("real") == 7
    assert Cyclic(24).n_blocks("real") == 13
    assert (Cyclic(7) ** 2).n_blocks("real") == 16
    assert (Cyclic(7) ** 2).n_blocks("complex") == 25
    assert (Cyclic(2) ** 3).n_blocks("real") == (Cyclic(2) ** 3).n_blocks("complex") == 8


def dense_weights(group, resolution):
    """The matrix of a resolution, as its formula says."""
    chi, t, s = group.characters().conj(), group.frequencies(resolution), group.elements()
    if resolution == "full":
        return chi / group.order
    if resolution == "complex":
        first, second = torch.tensor(group.conjugate_pairs).mT
        return chi[first] * (1.0 + (first != second).double())[:, None] / group.order
    orders = torch.tensor(group.orders)
    cosines = torch.cos(2 * torch.pi * (t[:, None] * s % orders).double() / orders).prod(-1)
    return torch.where(2 * t % orders == 0, 1.0, 2.0).double().prod(-1, keepdim=True) * cosines / group.order


@pytest.mark.parametrize("group", ALWAYS, ids=repr)
@pytest.mark.parametrize("resolution", ["full", "complex", "real"])
def test_weights_are_those_of_the_formula(group, resolution):
    weights = group.weights(resolution)
    assert weights.is_complex() == (resolution != "real" and not group.is_real)
    wide = torch.complex128
    assert_close(weights.to(wide), dense_weights(group, resolution).to(wide), rtol=0, atol=1e-15)


@pytest.mark.parametrize("group", ALWAYS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_transforms_equal_the_dense_matrices(group, dtype):
    values = torch.randn(group.order, 2, 3, dtype=dtype)
    wide = torch.complex128
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 1e-12}
    spectrum = group.fourier(values)
    assert_close(spectrum.to(wide), torch.tensordot(group.characters().conj() / group.order, values.to(wide), 1),
                 **tolerance)  # fmt: skip
    assert_close(group.inverse_fourier(spectrum).to(wide), values.to(wide), **tolerance)
    for resolution in ("full", "complex", "real") if not values.is_complex() else ("full",):
        blocks = group.harmonics(values, resolution)
        dense = torch.tensordot(dense_weights(group, resolution).to(wide), values.to(wide), 1)
        assert blocks.shape == (group.n_blocks(resolution), 2, 3)
        assert_close(blocks.to(wide), dense, **tolerance)
        assert len(group.frequencies(resolution)) == group.n_blocks(resolution)
        total = blocks.sum(0)
        if not values.is_complex():
            assert_close(total.real.to(wide), values[0].to(wide), **tolerance)
            assert total.dtype.is_complex == (resolution != "real" and not group.is_real)


@given(groups, st.integers(0, 2**32 - 1))
def test_transforms_property(group, seed):
    values = torch.randn(group.order, 2, generator=torch.Generator().manual_seed(seed))
    for resolution in ("full", "complex", "real"):
        dense = torch.tensordot(dense_weights(group, resolution).to(torch.complex128), values.to(torch.complex128), 1)
        assert_close(group.harmonics(values, resolution).to(torch.complex128), dense, rtol=0, atol=1e-12)


@given(st.integers(1, 6), st.integers(1, 6))
def test_the_two_way_transform_is_nested_one_way_transforms(a, b):
    values = torch.randn(a * b, 3)
    inner = torch.stack([Cyclic(b).fourier(row) for row in values.reshape(a, b, 3)])
    nested = Cyclic(a).fourier(inner.reshape(a, -1)).reshape(a * b, 3)
    both = (Cyclic(a) * Cyclic(b)).fourier(values)
    assert_close(both.to(torch.complex128), nested.to(torch.complex128), rtol=0, atol=1e-12)


def test_gradients_pass_through_the_transforms():
    for group in ALWAYS:
        values = torch.randn(group.order, 2, requires_grad=True)
        for resolution in ("full", "complex", "real"):
            assert torch.autograd.gradcheck(lambda v, g=group, r=resolution: g.harmonics(v, r), values)


@pytest.mark.parametrize("order", [0, -3])
def test_an_order_below_one_is_refused(order):
    with pytest.raises(ValueError, match="T >= 1"):
        Cyclic(order)


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match="whole numbers"):
        Cyclic(2.5)
    with pytest.raises(ValueError, match="exponent"):
        Cyclic(2) ** 0
    with pytest.raises(TypeError):
        Cyclic(2) * 3
    with pytest.raises(ValueError, match="2 whole numbers"):
        (Cyclic(2) ** 2).index(1)
    with pytest.raises(TypeError, match="whole numbers"):
        Cyclic(2).index("a")
    with pytest.raises(ValueError, match="first axis of length 4"):
        Cyclic(4).fourier(torch.zeros(3))
    with pytest.raises(ValueError, match="resolution must be one of"):
        Cyclic(4).harmonics(torch.zeros(4), "folded")
    with pytest.raises(ValueError, match="full"):
        Cyclic(4).harmonics(torch.zeros(4, dtype=torch.complex128), "real")
