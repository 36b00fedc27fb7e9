"""Reading untrusted JSON: missing, unknown or oversized values and wrong types are refused."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import torch
from torch import Tensor

_T = TypeVar("_T")

LARGEST = 10**6  #: the largest whole number in a spec; larger ones would only fill the memory
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


class SpecError(ValueError):
    """An object cannot be saved, or a saved spec is not valid. The message names the reason and what to do."""


class Fields:
    """A spec that is read key by key. Missing keys, wrong types, large numbers and unknown keys raise a `SpecError`.

    Examples:
        >>> fields = Fields({"order": 4}, "action")
        >>> fields.read("order", int)
        4
        >>> fields.end()
    """

    def __init__(self, spec: object, where: str) -> None:
        self.where = where
        if not isinstance(spec, dict):
            raise self.error(f"it must be an object; got {reprlib.repr(spec)}")
        self._entries = dict(spec)

    def error(self, text: str) -> SpecError:
        """The error to raise; its message has the place in the spec."""
        return SpecError(f"the saved {self.where} is not valid: {text}.")

    def take(self, key: str) -> Any:
        """Remove a key and return its value."""
        if key not in self._entries:
            raise self.error(f"{key!r} is missing")
        return self._entries.pop(key)

    def end(self) -> None:
        """Raise a `SpecError` if some keys were not read."""
        if self._entries:
            raise self.error(f"{reprlib.repr(next(iter(self._entries)))} is not known here")

    def construct(self, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call `make`, without options that are None; its errors become a `SpecError`."""
        options = {name: value for name, value in options.items() if value is not None}
        try:
            return make(*arguments, **options)
        except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
            raise self.error(str(error).rstrip(".")) from error

    def choice(self, key: str, among: Mapping[str, _T]) -> _T:
        """One of the values of a mapping, by name."""
        value = self.take(key)
        if not isinstance(value, str) or value not in among:
            hint = " (for your own class, first import the module that registers it)" if key == "class" else ""
            raise self.error(f"{key!r} must be one of {', '.join(among)}; got {reprlib.repr(value)}{hint}")
        return among[value]

    def whole(self, key: str, most: int = LARGEST) -> int:
        """A whole number from 0 to `most`."""
        value: int = self.take(key)
        self._require(type(value) is int and 0 <= value <= most, key, f"be a whole number from 0 to {most}", value)
        return value

    def items(self, key: str, exactly: int | None = None) -> list[Any]:
        """A list that is not empty, or a list of exactly that many items."""
        value = self.take(key)
        is_valid = isinstance(value, list) and len(value) > 0 and len(value) == (exactly or len(value))
        self._require(is_valid, key, f"be a list of {exactly or 'one or more'}", value)
        return list(value)

    def read(self, key: str, kind: Any) -> Any:
        """A value of a type of `io.registry.reader_of`. Whole numbers are not negative, numbers finite, lists not empty."""
        options = get_args(kind)
        if NoneType in options:
            if key in self._entries and self._entries[key] is None:
                return self.take(key)
            return self.read(key, next(option for option in options if option is not NoneType))
        if get_origin(kind) is list:
            return [Fields({key: item}, self.where).read(key, options[0]) for item in self.items(key)]
        if kind is int:
            return self.whole(key)
        if kind is Tensor:
            return self.tensor(key)
        if kind is torch.dtype:
            return self.choice(key, DTYPES)
        value = self.take(key)
        if kind is bool:
            self._require(isinstance(value, bool), key, "be true or false", value)
        else:
            self._require(_is_finite(value), key, "be a number", value)
        return value

    def tensor(self, key: str, dim: int | None = None) -> Tensor:
        """A float64 tensor of finite numbers, from nested lists."""
        value = self.take(key)
        flat = [value]
        while any(isinstance(item, list) for item in flat):
            flat = list(itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in flat))
        self._require(all(map(_is_finite, flat)), key, "hold finite numbers", value)
        tensor: Tensor = self.construct(torch.tensor, value, dtype=torch.float64, device="cpu")
        self._require(dim is None or tensor.dim() == dim, key, f"have {dim} axes", value)
        return tensor

    def _require(self, is_valid: bool, key: str, rule: str, value: object) -> None:
        if not is_valid:
            raise self.error(f"{key!r} must {rule}; got {reprlib.repr(value)}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def has_type(value: object, kind: Any) -> bool:
    """Whether a value of a JSON header has a type such as `int`, `float | None`, `list[str]` or `tuple[int, int]`.

    Numbers of type `float` are finite and may be whole; lists count as tuples.

    Examples:
        >>> has_type([1, 2.5], list[float]), has_type([1, "a"], tuple[int, int]), has_type(float("inf"), float)
        (True, False, False)
    """
    origin, options = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(has_type(value, option) for option in options)
    if origin is Literal:
        return value in options
    if origin is dict:
        return isinstance(value, dict) and all(has_type(item, options[1]) for item in value.values())
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is list or options[1:] == (Ellipsis,):
            return all(has_type(item, options[0]) for item in value)
        return len(value) == len(options) and all(map(has_type, value, options))
    if kind is float:
        return _is_finite(value)
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
