"""Inducing variables that are sums over an orbit: the lemmas of the appendix, against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.actions import Translation
from harmonicgp.kernels import harmonic_gram, harmonic_parts, interdomain_covariance, interdomain_cross_covariance
from tests import reference as ref
from tests.cases import FIXED_MOTIONS, Case, Motion, cases, points


@pytest.mark.parametrize("motion", FIXED_MOTIONS, ids=lambda m: repr(m.action))
@given(data=st.data())
def test_interdomain_covariances(motion, data):
    """k(x, w_t) = k_t(x, z); k(w_t, w'_t) = k_t(z, z') (first lemma); zero across frequencies (second lemma)."""
    if motion.action.group.order > 12:
        motion = Motion(Translation(0, 24.0, 3), ref.translation(0, 24.0, 3), 1, "periodic")
    case = data.draw(cases(motion, n=2))
    x, z1, z2 = (torch.from_numpy(data.draw(points(motion, n))) for n in (3, 2, 2))
    scale = float(np.abs(case.k(case.x, case.x)).max()) + 1.0
    cross = interdomain_cross_covariance(case.kernel, case.action, x, z1).detach().numpy()
    K = interdomain_covariance(case.kernel, case.action, z1, z2).detach().numpy()
    ours = harmonic_gram(case.kernel, case.action, z1, z2, "full").detach().numpy()
    for i, t in enumerate(ref.elements(case.orders)):
        dense = ref.harmonic_kernel(case.k, motion.move, case.orders, t, x.numpy(), z1.numpy())
        np.testing.assert_allclose(cross[i], dense, atol=1e-6 * scale)
        np.testing.assert_allclose(K[i, i], ours[i], atol=1e-6 * scale)
        for j in range(len(K)):
            if i != j:
                np.testing.assert_allclose(K[i, j], 0, atol=1e-6 * scale)


def scale(case: Case) -> float:
    return 1.0 + float(np.abs(case.k(case.x, case.x)).max())


@given(st.data())
def test_a_function_splits_into_its_parts(data):
    """f_t(x) = sum_s F^H_ts f(G^s x): for f = k(., z) the parts are k_t(., z), and for any f they add up."""
    case = data.draw(cases(data.draw(st.sampled_from(FIXED_MOTIONS)), n=4))
    z = torch.from_numpy(data.draw(points(case.motion, 1)))
    parts = harmonic_parts(lambda x: case.kernel(x, z).to_dense()[..., 0], case.action, case.points)
    K = harmonic_gram(case.kernel, case.action, case.points, z, "full")[..., 0]
    assert_close(parts.to(torch.complex128), K.to(torch.complex128), rtol=0, atol=1e-7 * scale(case))
    g = harmonic_parts(lambda x: torch.sin(x).sum(-1) ** 3, case.action, case.points)
    assert_close(g.sum(0).real, torch.sin(case.points).sum(-1) ** 3)
    with pytest.raises(ValueError, match="must map"):
        harmonic_parts(lambda x: x, case.action, case.points)
