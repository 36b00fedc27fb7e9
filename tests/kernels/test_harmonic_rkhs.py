"""Orthogonality of the harmonic RKHSs, with inner products computed from dense orbit Gram matrices in numpy.

On a finite orbit-closed set O every function of the span of k(., O) is known by its values g on O, and
<g, h> = h^H K_OO^{-1} g. The values come from the library, K_OO from numpy.
"""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import Negation, Rotation
from harmonicgp.kernels import harmonic_gram
from tests import reference as ref
from tests.cases import Case, Motion, cases

#: Without fixed points among the drawn ones, and with kernels whose orbit Gram matrices are well conditioned.
MOTIONS = [
    Motion(Rotation((0, 1), 3), ref.rotation(0, 1, 3), 2, "stationary"),
    Motion(Rotation((0, 1), 4), ref.rotation(0, 1, 4), 2, "stationary"),
    Motion(Negation([[0], [1]]), ref.negation([[0], [1]]), 2, "stationary"),
    Motion(
        Rotation((0, 1), 3) * Negation([2]), ref.product(ref.rotation(0, 1, 3), 1, ref.negation([[2]])), 3, "stationary"
    ),
]


class Orbits:
    """n generic points, their orbits, and the library's k_t(O, x)."""

    def __init__(self, case: Case):
        rng = np.random.default_rng(7)
        self.x = rng.normal(size=(3, case.motion.d)) + 1.5
        self.O = np.concatenate([case.motion.move(self.x, s) for s in ref.elements(case.orders)])
        self.K_OO = case.k(self.O, self.O)
        K = harmonic_gram(case.kernel, case.action, torch.from_numpy(self.O), torch.from_numpy(self.x), "full")
        self.columns = K.detach().to(torch.complex128).numpy()  # k_t(., x_i) by its values on O: [|G|, |O|, n]

    def inner(self, g, h):
        """<g, h> in the RKHS of k, matrices of values [|O|, a], [|O|, b] -> [a, b], linear in g."""
        return (h.conj().T @ np.linalg.solve(self.K_OO, g)).T


def drawn(data) -> tuple[Case, Orbits]:
    motion = data.draw(st.sampled_from(MOTIONS))
    case = data.draw(cases(motion).filter(lambda case: case.kernel_name in ("matern12", "matern32", "2.5 matern32")))
    return case, Orbits(case)


@given(st.data())
def test_orthogonality_lemma(data):
    _, o = drawn(data)
    for t1, g in enumerate(o.columns):
        for t2, h in enumerate(o.columns):
            if t1 != t2:
                np.testing.assert_allclose(o.inner(g, h), 0, atol=1e-8)


@given(st.data())
def test_the_rkhs_of_k_t_has_the_inner_product_of_k(data):
    """<k_t(., x), k_t(., x')> in the RKHS of k is k_t(x', x): the restriction is isometric."""
    case, o = drawn(data)
    for t, g in zip(ref.elements(case.orders), o.columns, strict=True):
        dense = ref.harmonic_kernel(case.k, case.motion.move, case.orders, t, o.x, o.x)
        np.testing.assert_allclose(o.inner(g, g), dense.T, atol=1e-8)


@given(st.data())
def test_disjointness(data):
    """The spans meet only in zero: the ranks of the blocks add up to the rank of their union."""
    _, o = drawn(data)
    ranks = [np.linalg.matrix_rank(g, tol=1e-9) for g in o.columns]
    assert sum(ranks) == np.linalg.matrix_rank(np.hstack(list(o.columns)), tol=1e-9) == len(o.O)


@given(st.data())
def test_orthogonal_sum_and_norm_identity(data):
    """f = sum_t f_t with f_t(x) = <f, k_t(., x)>, and |f|^2 = sum_t |f_t|^2."""
    case, o = drawn(data)
    a = np.random.default_rng(3).normal(size=3)
    f = case.k(o.O, o.x) @ a
    f_t = [g @ a for g in o.columns]
    np.testing.assert_allclose(sum(f_t), f, atol=1e-9)
    norms = []
    for t, (part, columns) in zip(ref.elements(case.orders), zip(f_t, o.columns, strict=True), strict=True):
        # <f, k_t(., x_i)> is f_t(x_i): the values of f_t on the first |x| rows of O, which are x itself.
        np.testing.assert_allclose(o.inner(f[:, None], columns)[0], part[: len(o.x)], atol=1e-8)
        K_t = ref.harmonic_kernel(case.k, case.motion.move, case.orders, t, o.x, o.x)
        norm = (a @ K_t @ a).real  # in the RKHS of k_t
        np.testing.assert_allclose(o.inner(part[:, None], part[:, None])[0, 0].real, norm, atol=1e-8)
        norms.append(norm)
    np.testing.assert_allclose(sum(norms), a @ case.k(o.x, o.x) @ a, rtol=1e-9)
