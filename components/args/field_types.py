"""The types that fields of arguments accept, read from their annotations; no other list of these types exists."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin, is_typeddict

import pulumi
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


@dataclass(frozen=True)
class FieldType:
    """The type of a field.

    Attributes:
        classes: Classes of its values; `Sequence` and `Mapping` for lists and mappings, `object` if any value is accepted.
        words: Its values, if it accepts a few words only, or a few words beside `classes`.
    """

    classes: tuple[type, ...]
    words: tuple[str, ...]
    output: bool
    optional: bool

    @property
    def is_container(self) -> bool:
        """Return whether the field accepts only lists or mappings."""
        return bool(self.classes) and {*self.classes} <= {Mapping, Sequence}

    @property
    def is_judged(self) -> bool:
        """Return whether the class of a value is checked here; JSON that may be an Output is checked by the schema of its
        document.
        """
        if self.words or self.is_container or object in self.classes or any(map(is_typeddict, self.classes)):
            return False
        return not self.output or not {*self.classes} <= {str, int, float, bool}

    @property
    def wanted(self) -> str:
        """Return the expected types as text for a message."""
        names = [_NAMES.get(cls) or getattr(cls, "described", cls.__name__) for cls in self.classes]
        if self.output and not self.is_container:
            names.append("Output")
        return " or ".join(names)

    def accepts(self, value: Any) -> bool:
        """Return whether a value is of one of its classes."""
        allowed = [cls for cls in self.classes if cls is not Sequence]
        if Sequence in self.classes:
            allowed += [list, tuple]
        if float in self.classes and not isinstance(value, bool):
            allowed.append(int)
        if self.output:
            allowed.append(pulumi.Output)
        if self.output and self.is_container:
            allowed += [Awaitable, Unknown]
        if self.optional:
            allowed.append(NoneType)
        return isinstance(value, tuple(allowed))


_NAMES: Mapping[type, str] = {
    Mapping: "a mapping",
    Sequence: "a list",
    bool: "True or False",
    str: "a string",
    float: "a number",
}


def field_types(arguments: type) -> dict[str, FieldType]:
    """Return the types of the fields of a class of arguments, by their names."""
    return _read_annotations(arguments)


@cache
def _read_annotations(cls: Any) -> dict[str, FieldType]:
    found: dict[str, FieldType] = {}
    for base in reversed(cls.__mro__):
        names = _Names(vars(sys.modules[base.__module__]))
        for name, annotation in base.__dict__.get("__annotations__", {}).items():
            if name in cls.fields:
                found[name] = _field_type(eval(annotation, {}, names))  # noqa: S307  # code of this package
    return found


class _Names(dict[str, Any]):
    """Names of a module; names that it imports for type checkers only stand for any type."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def _field_type(hint: Any) -> FieldType:
    declared = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = [*map(_runtime_type, declared)]
    words = chain.from_iterable(get_args(member) for member in members if get_origin(member) is Literal)
    origins = [get_origin(member) or member for member in members]
    others = (NoneType, Awaitable, pulumi.Output, Literal)
    classes = [origin for origin in origins if origin not in others]
    return FieldType(tuple(classes), tuple(words), pulumi.Output in origins, NoneType in origins)


def _runtime_type(member: Any) -> Any:
    if isinstance(member, ForwardRef):  # how pulumi.Input names Output
        if not member.__forward_arg__.startswith("Output["):
            return object
        return pulumi.Output
    if member is Any or isinstance(member, TypeVar):
        return object
    return member
