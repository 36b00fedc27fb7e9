"""Reading JSON that may hold anything: what is missing, of a wrong type, too large or left over is refused."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

_T = TypeVar("_T")

LARGEST = 10**6  #: of the whole numbers in a spec: more would only fill the memory


class SpecError(ValueError):
    """Something cannot be saved, or a saved spec is not valid; the message says what, and what to do."""


class Fields:
    """A spec that is read key by key: what is missing, of a wrong type, or left over is a `SpecError`."""

    def __init__(self, spec: object, where: str) -> None:
        self.where = where
        if not isinstance(spec, dict):
            raise self.error(f"it must be an object; got {reprlib.repr(spec)}")
        self._left = dict(spec)

    def error(self, text: str) -> SpecError:
        """The error to raise, with the place in the spec."""
        return SpecError(f"the saved {self.where} is not valid: {text}.")

    def take(self, key: str) -> Any:
        """Remove a key and return its value."""
        if key not in self._left:
            raise self.error(f"{key!r} is missing")
        return self._left.pop(key)

    def end(self) -> None:
        """Raise if any key is left over."""
        if self._left:
            raise self.error(f"{reprlib.repr(next(iter(self._left)))} is not known here")

    def construct(self, make: Callable[..., Any], *arguments: Any, **facts: Any) -> Any:
        """Call `make`; its errors become a `SpecError`."""
        given = {fact: value for fact, value in facts.items() if value is not None}
        try:
            return make(*arguments, **given)
        except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
            raise self.error(str(error).rstrip(".")) from error

    def optional(self, key: str, read: Callable[[Fields, str], _T]) -> _T | None:
        """None, or what `read` reads."""
        if key in self._left and self._left[key] is None:
            return self.take(key)
        return read(self, key)

    def choice(self, key: str, among: Mapping[str, _T]) -> _T:
        """One of the values of a mapping, by name."""
        value = self.take(key)
        if not isinstance(value, str) or value not in among:
            own = " (is it a class of your own? Import the module that registers it first)" if key == "class" else ""
            raise self.error(f"{key!r} must be one of {', '.join(among)}; got {reprlib.repr(value)}{own}")
        return among[value]

    def whole(self, key: str, most: int = LARGEST) -> int:
        """A whole number from 0 to `most`."""
        return self._whole(self.take(key), key, most)

    def _whole(self, value: object, key: str, most: int = LARGEST) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise self.error(f"{key!r} must be a whole number from 0 to {most}; got {reprlib.repr(value)}")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.take(key)
        if type(value) not in (int, float) or not abs(value) < 1e300:
            raise self.error(f"{key!r} must be a number; got {reprlib.repr(value)}")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.take(key)
        if not isinstance(value, bool):
            raise self.error(f"{key!r} must be true or false; got {reprlib.repr(value)}")
        return value

    def items(self, key: str, exactly: int | None = None) -> list[Any]:
        """A non-empty list, of `exactly` as many items if given."""
        value = self.take(key)
        if not isinstance(value, list) or len(value) < 1 or len(value) != (exactly or len(value)):
            raise self.error(f"{key!r} must be a list of {exactly or 'one or more'}; got {reprlib.repr(value)}")
        return value

    def wholes(self, key: str) -> list[int]:
        """A list of whole numbers."""
        return [self._whole(item, key) for item in self.items(key)]

    def lists_of_wholes(self, key: str) -> list[list[int]]:
        """A list of lists of whole numbers."""
        lists = self.items(key)
        if not all(isinstance(one, list) for one in lists):
            raise self.error(f"{key!r} must be a list of lists; got {reprlib.repr(lists)}")
        return [[self._whole(item, key) for item in one] for one in lists]

    def tensor(self, key: str, dim: int | None = None) -> Tensor:
        """Finite numbers, nested as the axes are, in float64."""
        value = self.take(key)
        flat = list(value) if isinstance(value, list) else [value]
        while any(isinstance(item, list) for item in flat):
            flat = list(itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in flat))
        if not all(type(item) in (int, float) and abs(item) < 1e300 for item in flat):
            raise self.error(f"{key!r} must hold finite numbers")
        tensor: Tensor = self.construct(torch.tensor, value, dtype=torch.float64)
        if dim is not None and tensor.dim() != dim:
            raise self.error(f"{key!r} must have {dim} axes; it has {tensor.dim()}")
        return tensor
