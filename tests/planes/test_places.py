"""Data of several fields: patterns of holes, checks, and the state of a model."""

from __future__ import annotations

import pytest
import torch

from harmonicgp.planes.places import FieldData, FieldModel, Places, data_from, data_tensors
from tests.planes.test_learning import scaled


def data(y, noise=None):
    X = torch.arange(y.shape[1]).double()[:, None]
    return FieldData(Places(X, torch.ones_like(X), (y.shape[1],), (1.0,)), y, noise)


def test_fields_with_the_same_holes_and_noise_are_one_pattern():
    y = torch.zeros(4, 5).double()
    y[1, 2] = y[3, 2] = float("nan")
    noise = torch.ones_like(y)
    noise[3] = 2.0
    found = [fields.tolist() for fields, _, _ in data(y, noise).patterns()]
    assert found == [[0, 2], [1], [3]]
    assert [len(rows.y) for rows in data(y).field_rows()] == [5, 5, 4, 4]


def test_what_does_not_fit_together_is_refused():
    y = torch.zeros(1, 3).double()
    for bad, noise in ((torch.full_like(y, torch.inf), None), (y[0], None), (y, y[:, :2])):
        with pytest.raises(ValueError, match="do not fit"):
            data(bad if bad.dim() == 2 else y, noise if noise is not None else (y[:, :1] if bad.dim() == 1 else None))
    with pytest.raises(ValueError, match="not finite"):
        FieldModel(scaled("rbf", (1.0,), 1.0), float("nan"))


def test_state_round_trip():
    model = FieldModel(scaled("matern52", (2.0, 3.0), 0.5).requires_grad_(False), 0.1)
    again = FieldModel.from_state(*model.state())
    X = torch.randn(4, 2).double()
    torch.testing.assert_close(again.kernel(X).to_dense(), model.kernel(X).to_dense(), rtol=0, atol=0)
    assert model.prior_variance(X) == pytest.approx(0.5)
    before = data(torch.randn(2, 3).double(), torch.ones(2, 3).double())
    after = data_from(data_tensors(before), [3], [1.0])
    assert torch.equal(after.y, before.y)
    assert after.places.shape == (3,)
