"""Negation of columns and of principal directions."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Negation, PrincipalNegation, strided


def test_the_papers_striding():
    assert strided(7, 3) == ((0, 3, 6), (1, 4), (2, 5))
    assert Negation.strided(7, 3).subsets == strided(7, 3)


def test_principal_negation_keeps_a_sheared_distribution():
    # Figure 4 of the paper: axis negation leaves the distribution, principal negation does not.
    x = torch.randn(4000, 2) @ torch.tensor([[2.0, 1.8], [0.0, 0.5]]) + torch.tensor([3.0, -1.0])
    covariance = torch.cov(x.T)

    def drift(action):
        images = action.orbit(x)
        return max(float((torch.cov(image.T) - covariance).abs().max()) for image in images)

    assert drift(PrincipalNegation(2).fit(x)) < 1e-9
    assert drift(Negation([[0], [1]])) > 1.0
    images = PrincipalNegation(2).fit(x).orbit(x)
    assert_close(images.mean(1), x.mean(0).expand(4, 2))


def test_fitting_returns_a_new_action():
    action = PrincipalNegation(2)
    action.fit(torch.randn(10, 3))
    with pytest.raises(ValueError, match=r"\.fit\(X\)"):
        action.orbit(torch.randn(4, 3))


def test_principal_directions_do_not_flip_between_runs():
    x = torch.randn(50, 4)
    first, second = PrincipalNegation(1).fit(x), PrincipalNegation(1).fit(x.flip(0))
    assert_close(first.directions, second.directions)


def test_principal_directions_of_many_rows_need_little_memory():
    x = torch.randn(300_000, 3) @ torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    V = PrincipalNegation(3).fit(x).directions
    assert_close(V.abs(), torch.eye(3), rtol=0, atol=0.05)
    assert PrincipalNegation(2).fit(torch.randn(3, 5)).directions.shape == (5, 5)  # fewer rows than columns
