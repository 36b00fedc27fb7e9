"""Helpers of the tests of this room."""

from __future__ import annotations

import torch


def spd(batch, m, dtype=torch.float64):
    A = torch.randn(batch, m, m + 5, dtype=dtype)
    return A @ A.mH / m
