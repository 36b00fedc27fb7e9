"""Memory that stays with the process while a loop runs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from harmonicgp.backend import memory as _memory
from harmonicgp.backend.memory import memory_kept


def test_memory_is_kept_within_and_given_back_after():
    said = []

    class Library:
        def mallopt(self, what, value):
            said.append((what, value))

        def malloc_trim(self, left):
            said.append(("trim", left))

    _memory._glibc.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_memory, "_glibc", Library)
        with suppress(RuntimeError), memory_kept():
            first = len(said)
            with memory_kept():
                pass
            assert len(said) == first == 2
            raise RuntimeError("mine")
        assert said[-1] == ("trim", 64 << 20)
        assert said[-2] == (-1, 64 << 20)


def test_memory_is_left_to_who_sets_it():
    _memory._glibc.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
        assert _memory._glibc() is None
        with memory_kept():
            pass
    _memory._glibc.cache_clear()
