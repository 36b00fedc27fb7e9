"""Fixtures of this room."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)
