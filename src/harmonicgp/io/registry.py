"""The classes that can be saved, by their names in files. Files can build nothing else.

Every class of kernels, actions and likelihoods is registered, those of the library and the user's own alike: its name, the class,
and the constructor arguments to save, each an attribute of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias, get_args

import torch
from torch import Tensor

from harmonicgp.io.fields import Fields, SpecError

#: Reads one field of a spec.
Reader: TypeAlias = Callable[[Fields, str], Any]
#: A type such as `int` or `list[int] | None`, or a reader.
FieldType: TypeAlias = Any
_TYPES: tuple[Any, ...] = (int, float, bool, list[int], list[list[int]], Tensor, torch.dtype)


def reader_of(kind: FieldType) -> Reader:
    """The reader of a field type."""
    options = [option for option in get_args(kind) if option is not NoneType]
    if kind in _TYPES or (len(options) == 1 and NoneType in get_args(kind) and options[0] in _TYPES):
        return lambda fields, key: fields.read(key, kind)
    if not callable(kind) or isinstance(kind, type) or options:
        types = ", ".join(one.__name__ if isinstance(one, type) else str(one) for one in _TYPES)
        raise TypeError(f"a saved field is one of {types}, one of these `| None`, or a reader; got {kind!r}.")
    return kind


@dataclass(frozen=True)
class Kind:
    """How instances of a registered class are written and read."""

    name: str
    type: type[Any]
    fields: Mapping[str, Reader]  #: constructor arguments, attributes of the same name
    children: str | tuple[str, ...]  #: the attribute with a list of children, or one attribute for each child
    make: Callable[..., Any]  #: builds an instance from the children and the fields
    parameters: str  #: the name of the submodule with the parameters; empty for the module itself

    def children_of(self, value: Any) -> list[Any]:
        """The children of an instance."""
        if isinstance(self.children, str):
            return list(getattr(value, self.children))
        return [getattr(value, name) for name in self.children]

    def holder(self, module: Any) -> Any:
        """The module with the parameters of an instance."""
        return getattr(module, self.parameters) if self.parameters else module


class Registry:
    """The registered kernels, actions or likelihoods, by name."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.kinds: dict[str, Kind] = {}

    def add(
        self,
        name: str,
        cls: type[Any],
        fields: Mapping[str, FieldType],
        children: str | tuple[str, ...] = (),
        make: Callable[..., Any] | None = None,
        parameters: str = "",
    ) -> None:
        """Register a class. The name of another class is refused; a new definition of the same class replaces the old one."""
        if not isinstance(cls, type):
            raise TypeError(f"a {self.noun} is registered by its class; got {cls!r}.")
        old = self.kinds.get(name)
        if old is not None and (old.type.__module__, old.type.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"the name {name!r} belongs to {old.type.__module__}.{old.type.__qualname__}: use another."
            )
        readers = {field: reader_of(kind) for field, kind in fields.items()}
        self.kinds[name] = Kind(name, cls, readers, children, make or cls, parameters)

    def kind_of(self, value: Any) -> Kind:
        """The kind of a value of exactly this class: a file would lose the changes of a subclass."""
        for kind in self.kinds.values():
            if type(value) is kind.type:
                return kind
        raise SpecError(
            f"a {type(value).__name__} cannot be saved; the {self.noun}s that can be are {', '.join(self.kinds)}. Build the "
            f"{self.noun} from these, or register your own class with register_{self.noun}."
        )


ACTIONS, KERNELS, LIKELIHOODS = Registry("action"), Registry("kernel"), Registry("likelihood")
