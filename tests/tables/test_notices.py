"""Warnings and errors about columns."""

from __future__ import annotations

import pickle

from harmonicgp.tables import (
    IdentifierColumnError,
    MissingValuesError,
    UndeclaredColumnsError,
    UnseenGapsWarning,
    UnseenLevelsWarning,
)


def test_warnings_of_two_parts_make_one():
    parts = [UnseenLevelsWarning("c", levels, 2, "'other'") for levels in (["a", "b"], ["b", "c", "d", "e"])]
    assert "('a', 'b', 'c', ...) in 4 rows" in str(parts[0] + parts[1])
    assert "('a', 'b') in 4 rows" in str(parts[0] + parts[0])


def test_errors_and_warnings_have_fields_and_can_be_sent_to_another_process():
    missing = MissingValuesError({f"c{k}": k + 1 for k in range(12)})
    identifier = IdentifierColumnError("who", 80, 81.0)
    levels, gaps = UnseenLevelsWarning("c", ["a", "b", "c", "d"], 5, "'other'"), UnseenGapsWarning("c", 1, "the median")
    undeclared = UndeclaredColumnsError("Translation(0, 24.0, 6)", "hour", {"hour": ("periodic", 24.0)})
    assert str(missing).endswith("'c9' (10 rows) and 2 more: drop those rows, or fit with missing=\"impute\".")
    for notice in (missing, identifier, undeclared, levels, gaps):
        again = pickle.loads(pickle.dumps(notice))
        assert type(again) is type(notice)
        assert str(again) == str(notice)
        assert vars(again) == vars(notice)
