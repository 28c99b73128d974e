"""One kind of resource: its typed inputs and outputs, how the state of a stack has them, and the calls of its provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

Props = dict[str, Any]

AnyConnect = Callable[[Mapping[str, Any]], Any]
MALFORMED_STATE = (KeyError, TypeError, AttributeError)
"""What functions of the lifecycle raise for a state that was edited."""


class Stored:
    """Base of frozen dataclasses that the state of a stack has: the key of a field is its name in camelCase, and a field has a
    key if it has no default or another value. Leaves of inputs may be `Unknown`, in a program also Outputs."""

    @classmethod
    def from_state(cls: type[S], state: Mapping[str, Any]) -> S:
        """Return inputs or outputs of the state; other keys are ignored. Raise KeyError for a state that lacks a field without
        a default."""
        return cls(**{name: state[key] for name, key, default in _keys(cls) if default is MISSING or key in state})

    @classmethod
    def of(cls: type[S], other: Stored, **given: Any) -> S:
        """Return what another one has under the same names, with given values in place of some, or beside them."""
        shared = {name: getattr(other, name) for name, _, _ in _keys(cls) if hasattr(other, name)}
        return cls(**{**shared, **given})

    def to_state(self) -> Props:
        """Return the fields as the state has them."""
        found = {}
        for name, key, default in _keys(type(self)):
            value = getattr(self, name)
            if default is MISSING or value != default:
                found[key] = value
        return found


S = TypeVar("S", bound=Stored)


def _keys(kind: type[Stored]) -> list[tuple[str, str, Any]]:
    """Return name, key and default of each field of a dataclass."""
    if kind not in _known_keys:
        _known_keys[kind] = [*_find_keys(kind)]
    return _known_keys[kind]


_known_keys: dict[type[Stored], list[tuple[str, str, Any]]] = {}


def _find_keys(kind: Any) -> Iterator[tuple[str, str, Any]]:
    for field in fields(kind):
        first, *others = field.name.split("_")
        default = field.default if field.default_factory is MISSING else field.default_factory()
        yield field.name, first + "".join(map(str.capitalize, others)), default


In = TypeVar("In", bound=Stored)
Out = TypeVar("Out", bound=Stored)


@dataclass(frozen=True)
class Checked(Generic[In]):
    """The result of `check`."""

    inputs: In
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """The result of `diff`.

    Args:
        changes: Whether the resource changes; None if that depends on an unknown value.
        replaces: Inputs that require a replacement.
        notes: Notes for the user.
    """

    changes: bool | None
    replaces: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Resource(ABC, Generic[In, Out]):
    """The calls of the provider of one kind of resource.

    `olds` of `check` are the previous inputs, None for a new resource, and `news` those of the program, whose leaves may be
    unknown. The other calls get what `check` has returned, and outputs. `connect` returns the target of an input `target`. The
    calls raise `TrainerError` if a target cannot be reached, or refuses.
    """

    inputs: ClassVar[type[Any]]
    outputs: ClassVar[type[Any]]

    def check(self, olds: In | None, news: In, connect: AnyConnect) -> Checked[In]:  # noqa: ARG002
        """Return the inputs to store."""
        return Checked(news)

    @abstractmethod
    def diff(self, olds: Out, news: In) -> Diff:
        """Return whether the resource changes. news: In a refresh, the stored inputs."""

    @abstractmethod
    def create(self, inputs: In, connect: AnyConnect) -> tuple[str, Out]:
        """Create the resource and return its id and outputs. Safe to repeat."""

    @abstractmethod
    def update(self, outputs: Out, inputs: In, connect: AnyConnect) -> Out:
        """Change the resource in place."""

    def read(self, outputs: Out, connect: AnyConnect) -> tuple[Out | None, list[str]]:  # noqa: ARG002
        """Return the current outputs, and notes for the user. None: the resource is gone, or belongs to another stack."""
        return outputs, []

    @abstractmethod
    def delete(self, outputs: Out, connect: AnyConnect) -> list[str]:
        """Delete the resource and return notes for the user."""


class StateCalls(Generic[In, Out]):
    """The calls of a resource on the plain data of a state: empty `olds` are those of a new resource."""

    def __init__(self, resource: Resource[In, Out]) -> None:
        self.resource = resource
        self._inputs: type[In] = resource.inputs
        self._outputs: type[Out] = resource.outputs

    def check(self, olds: Props, news: Props, connect: AnyConnect) -> Checked[Any]:
        before = self._inputs.from_state(olds) if olds else None
        found: Checked[Any] = self.resource.check(before, self._inputs.from_state(news), connect)
        return replace(found, inputs=found.inputs.to_state())

    def diff(self, olds: Props, news: Props) -> Diff:
        return self.resource.diff(self._outputs.from_state(olds), self._inputs.from_state(news))

    def create(self, inputs: Props, connect: AnyConnect) -> tuple[str, Props]:
        id_, outputs = self.resource.create(self._inputs.from_state(inputs), connect)
        return id_, outputs.to_state()

    def update(self, outputs: Props, inputs: Props, connect: AnyConnect) -> Props:
        current, wanted = self._outputs.from_state(outputs), self._inputs.from_state(inputs)
        return self.resource.update(current, wanted, connect).to_state()

    def read(self, outputs: Props, connect: AnyConnect) -> tuple[Props | None, list[str]]:
        found, notes = self.resource.read(self._outputs.from_state(outputs), connect)
        return None if found is None else found.to_state(), notes

    def delete(self, outputs: Props, connect: AnyConnect) -> list[str]:
        return self.resource.delete(self._outputs.from_state(outputs), connect)
