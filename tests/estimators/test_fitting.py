"""From rows and settings to a model."""

from __future__ import annotations

import torch

from tests.estimators.common import regressor, table


def test_a_fit_learns_whatever_is_turned_off_around_it():
    X, y = table(120)
    plain = regressor(max_steps=10).fit(X, y)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            gp = regressor(max_steps=10).fit(X, y)
        assert gp.elbo_ == plain.elbo_
        assert gp.n_steps_ == plain.n_steps_ > 1
