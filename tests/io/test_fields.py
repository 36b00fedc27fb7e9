"""A spec that may hold anything, read key by key."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.io.fields import LARGEST, Fields, SpecError

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


def read(method, value, *arguments, **options):
    fields = Fields({"key": value}, "thing")
    found = getattr(fields, method)("key", *arguments, **options)
    fields.end()
    return found


def is_whole(value):
    return type(value) is int and 0 <= value <= LARGEST


def is_number(value):
    return type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e300


def is_list(value, allowed):
    return isinstance(value, list) and len(value) > 0 and all(map(allowed, value))


ALLOWED = {
    int: is_whole,
    float: is_number,
    bool: lambda value: type(value) is bool,
    list[int]: lambda value: is_list(value, is_whole),
    list[list[int]]: lambda value: is_list(value, lambda item: is_list(item, is_whole)),
    int | None: lambda value: value is None or is_whole(value),
    list[int] | None: lambda value: value is None or is_list(value, is_whole),
}


@pytest.mark.parametrize("kind", ALLOWED, ids=str)
@given(value=anything)
def test_values_of_the_right_type_come_back_and_others_are_refused(kind, value):
    if ALLOWED[kind](value):
        assert read("read", value, kind) == value
    else:
        with pytest.raises(SpecError, match="the saved thing is not valid: 'key' must be"):
            read("read", value, kind)


@given(value=anything)
def test_tensors_are_finite_numbers_of_one_shape(value):
    try:
        tensor = read("tensor", value)
    except SpecError:
        return
    assert tensor.dtype == torch.float64
    assert tensor.device.type == "cpu"
    assert torch.isfinite(tensor).all()
    np.testing.assert_array_equal(tensor, np.array(value, dtype=np.float64))


def test_tensors_have_the_axes_that_are_asked_for():
    assert read("tensor", [[1, 2.5], [3, 4]], dim=2).shape == (2, 2)
    for value, words in (
        ([1.0], "must have 2 axes"),
        ([[1.0], [2.0, 3.0]], "not valid"),
        ([[math.nan]], "finite"),
        ([[True]], "finite"),
    ):
        with pytest.raises(SpecError, match=words):
            read("tensor", value, dim=2)


def test_lists_of_a_length_and_numbers_up_to_a_limit():
    assert read("items", ["a", 2], 2) == ["a", 2]
    assert read("whole", 10, most=10) == 10
    for method, value, options in (("items", [1], {"exactly": 2}), ("items", [], {}), ("whole", 11, {"most": 10})):
        with pytest.raises(SpecError, match="'key' must be"):
            read(method, value, **options)


def test_missing_and_left_over_keys():
    fields = Fields({"a": 1, "b": None}, "kernel")
    assert fields.read("b", int | None) is None
    with pytest.raises(SpecError, match="the saved kernel is not valid: 'c' is missing"):
        fields.read("c", int | None)
    with pytest.raises(SpecError, match="'a' is not known here"):
        fields.end()
    assert fields.whole("a") == 1
    fields.end()
    with pytest.raises(SpecError, match="must be an object"):
        Fields([1], "kernel")


def test_names_choose_a_value_and_errors_of_a_class_become_those_of_the_spec():
    choices = {"one": 1, "two": 2}
    assert read("choice", "two", choices) == 2
    for value in ("three", 1, None, ["one"]):
        with pytest.raises(SpecError, match="must be one of one, two"):
            read("choice", value, choices)
    fields = Fields({}, "action")
    assert fields.construct(dict, [("a", 1)], b=2, c=None) == {"a": 1, "b": 2}  # None is left out
    with pytest.raises(SpecError, match="the saved action is not valid: math domain error"):
        fields.construct(math.sqrt, -1)
