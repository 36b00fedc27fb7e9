"""Searches that take no time."""

from __future__ import annotations

import pytest

from harmonicgp.symmetry import search as searching


@pytest.fixture
def brief(monkeypatch):
    """One round of tiny fits: tests and words are as ever, bounds are not."""
    monkeypatch.setattr(searching, "ROUNDS", (searching.TrialRound(4000, 16, 2, 512),))
