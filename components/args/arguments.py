"""Base of the typed arguments, and their way to a document.

A class of arguments declares its fields once, with `pulumi.Input` types, for editors and type checkers. At run time it
only keeps what was given: what is wrong is found later, by the component, which knows its own name and can tell all
problems at once. Names are the API's in snake_case; a document has the API's camelCase.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.naming import api_names, camel, snake
from pulumi_trainer.args.signatures import bind
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kube.values.yaml_values import MAX_DEPTH
from pulumi_trainer.provider.pipeline.policy import Policy
from typing_extensions import Self, dataclass_transform


class _Position:
    """Stands for a field without a default that may be given by position."""


def positional(*, kw_only: bool) -> Any:  # noqa: ARG001  # type checkers read it (PEP 681)
    """Declare a field that is required and may be given by position: `level: str = positional(kw_only=False)`."""
    return _Position()


@dataclass_transform(kw_only_default=True, field_specifiers=(positional,))
class Args:
    """Typed arguments; every field takes an `Input`."""

    fields: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[str] = ""
    """Where the API has these fields, such as `TrainJob.spec.trainer`: what its schema says decides which keys of mappings are
    its names."""
    converters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Fields that become something else than their own value in camelCase."""
    shipped: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no part of the document."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields with free-form data, which travel as JSON."""
    lists: ClassVar[frozenset[str]] = frozenset()
    mappings: ClassVar[frozenset[str]] = frozenset()
    """Fields that are taken apart before their document is checked: they have to be what they are said to be."""
    places: ClassVar[Mapping[str, str]] = {}
    """Where the document has another shape: start of a path in it -> start of the argument's; the first that fits."""
    __slots__ = ("__dict__", "__weakref__", "misnamed")
    __signature__: ClassVar[inspect.Signature] = inspect.Signature()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [n for n in cls.__dict__.get("__annotations__", {}) if not _is_class_var(cls, n)]
        cls.fields = (*cls.fields, *(n for n in own if n not in cls.fields))
        cls.__signature__ = _signature(cls)

    def __init__(self, *unnamed: Any, **named: Any) -> None:
        given, self.misnamed = bind(self.__signature__, unnamed, named)
        self.__dict__.update(given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(k for k in self.__dict__)})"  # values may be secret

    def check(self) -> list[Problem]:
        """What is wrong with the names of the arguments; lists and mappings that are none."""
        found = [*self.misnamed]
        for field in (f for f in self.fields if f in self.lists or f in self.mappings):
            value = self.__dict__.get(field)
            right: tuple[type, ...] = ((list, tuple) if field in self.lists else ()) + (
                (Mapping,) if field in self.mappings else ()
            )
            right += (pulumi.Output, Awaitable) if _is_input(type(self), field) else ()
            if value is not None and not isinstance(value, right):
                wanted = " or ".join(w for f, w in ((self.mappings, "a mapping"), (self.lists, "a list")) if field in f)
                found.append(Problem(field, f"must be {wanted}, not {type(value).__name__}"))
        return found

    def accepted(self) -> Self:
        """Return a copy without what `check` refuses, here and in arguments inside, so that the rest can be judged as well."""
        made = copy.copy(self)
        refused = {field for p in self.check() if (field := re.split(r"[.\[]", p.where)[0]) in self.fields}
        for name, value in self.__dict__.items():
            empty = getattr(type(self), name, None)
            made.__dict__[name] = empty if name in refused else value.accepted() if isinstance(value, Args) else value
        return made

    def document(self) -> dict[str, Any]:
        """The API object: fields that were given, in camelCase; nested arguments likewise."""
        given = {
            k: self.converters[k](v) if k in self.converters else to_document(v)
            for k, v in self.__dict__.items()
            if k in self.fields and k not in self.shipped and v is not None
        }
        return api_names(self.api, given) if self.api else {camel(k): v for k, v in given.items()}

    def place(self, where: str) -> str:
        """The argument that stands at a path of the document: `mpi.numProcPerNode` -> `num_proc_per_node`."""
        for start, own in self.places.items():
            rest = where.removeprefix(start)
            if where.startswith(start) and (not rest or rest[0] in ".[" or start[-1] == "."):
                where = (own + rest).lstrip(".")
                break
        if (found := _SEGMENT.match(where)) is None:
            return where
        field = next((f for f in self.fields if camel(f).lower() == found["name"].lower()), snake(found["name"]))
        value, at = self.__dict__.get(field), (found["key"] or "")[1:-1]
        if at and isinstance(value, (list, tuple)) and at.isdigit() and int(at) < len(value):
            value = value[int(at)]
        rest = value.place(found["rest"]) if isinstance(value, (Args, Policy)) else python_path(found["rest"])
        start = f"{field}[{at}]" if at else field
        return f"{start}{rest}" if rest[:1] in ("", "[") else f"{start}.{rest}"


_KEY = r'\["(?:[^"\\]|\\.)*"\]|\[[^]]*\]'
_SEGMENT = re.compile(rf"(?P<name>\w+)(?P<key>{_KEY})?\.?(?P<rest>.*)")


def _is_input(cls: type, name: str) -> bool:
    """Whether the whole of a field may be an Output."""
    return next(str(c.__annotations__[name]) for c in cls.__mro__ if name in c.__annotations__).startswith(
        "pulumi.Input["
    )


def _signature(cls: type[Args]) -> inspect.Signature:
    """What a call of the class takes: a field without a default is required."""

    def parameter(name: str) -> inspect.Parameter:
        annotation = next(c.__annotations__[name] for c in cls.__mro__ if name in c.__dict__.get("__annotations__", {}))
        default = getattr(cls, name, inspect.Parameter.empty)
        if isinstance(default, _Position):
            return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    return inspect.Signature(sorted(map(parameter, cls.fields), key=lambda p: p.kind))


def _is_class_var(cls: type, name: str) -> bool:
    return "ClassVar" in str(cls.__annotations__[name])


def metadata(labels: Any, annotations: Any) -> dict[str, Any]:
    """A document's `metadata`, where there are labels or annotations."""
    given = {"labels": labels, "annotations": annotations}
    found = {k: to_document(v) for k, v in given.items() if v is not None and v != {}}
    return {"metadata": found} if found else {}


def nested_problems(value: Any, path: str = "", above: tuple[int, ...] = ()) -> list[Problem]:
    """What is wrong with arguments, and with arguments inside them."""
    if isinstance(value, str):
        return [] if value.isascii() or _is_text(value) else [Problem(path, "not text: holds half of a surrogate pair")]
    if not isinstance(value, (Args, list, tuple, Mapping)):
        return []
    if found := nesting_problems(value, path, above):
        return found
    above = (*above, id(value))
    if isinstance(value, Args):
        found = [p.below(path) if path else p for p in value.check()]
        for name, inner in value.__dict__.items():
            found += nested_problems(inner, f"{path}.{name}" if path else name, above) if name not in value.free else []
        return found
    if isinstance(value, Mapping):
        return [p for k, v in value.items() for p in nested_problems(v, f"{path}[{quoted(k)}]", above)]
    return [p for i, v in enumerate(value) for p in nested_problems(v, f"{path}[{i}]", above)]


def check_names(given: dict[str, Any]) -> list[Problem]:
    """Return what keeps `name` and `namespace` of an object from being names, and take that out of `given`."""
    found = []
    for field, types in (("name", (str,)), ("namespace", (str, pulumi.Output))):
        value = given.get(field)
        if value is not None and not isinstance(value, types):
            wrong = [Problem(field, f"must be text, not {said(value)}")]
        else:
            wrong = nested_problems(value, field)
        if wrong:
            found += wrong
            given[field] = None
    return found


def _is_text(value: str) -> bool:
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def nesting_problems(value: Any, path: str, above: tuple[int, ...]) -> list[Problem]:
    """What keeps a document from being written: it contains itself, or has too many levels. above: ids of what holds it."""
    if id(value) in above:
        return [Problem(path, "contains itself")]
    return [Problem(path, f"has more than {MAX_DEPTH} levels")] if len(above) > MAX_DEPTH else []


def sound(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Arguments in which what their classes refuse is not known, so that all else can be judged at the same time."""
    if isinstance(value, (Args, list, tuple, dict)) and nesting_problems(value, "", above):
        return Unknown("")
    above = (*above, id(value))
    if isinstance(value, Args):
        made = copy.copy(value)
        made.__dict__.update({name: sound(given, above) for name, given in value.__dict__.items()})
        for found in filter(None, (_PLACE.match(p.where) for p in value.check() if p not in value.misnamed)):
            field, at = found["field"], found["at"]
            given = made.__dict__.get(field)
            listed = [*given] if isinstance(given, (list, tuple)) else []
            if at is not None and int(at) < len(listed):
                listed[int(at)] = Unknown(field)
            made.__dict__[field] = listed if at is not None and listed else Unknown(field)
        return made
    if isinstance(value, (list, tuple)):
        return [sound(each, above) for each in value]
    return {name: sound(given, above) for name, given in value.items()} if isinstance(value, dict) else value


_PLACE = re.compile(r"(?P<field>\w+)(?:\[(?P<at>\d+)\])?")


def said(value: Any) -> str:
    """A value that is wrong, in an error: of an Output or a resource, what it is."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if isinstance(value, (str, int, float, dict, list, tuple, type(None))) else type(value).__name__


def to_document(value: Any) -> Any:
    """Return arguments, pulumi-kubernetes arguments, lists and mappings as plain documents. Outputs stay where they are, and
    so do the keys of mappings: which of them are names of the API is for `api_names` to say.
    """
    if isinstance(value, (Args, Policy)):
        return value.document()
    if isinstance(value, Mapping):
        return {k: to_document(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_document(v) for v in value]
    if is_input_type(value):
        return to_document(pulumi._types.input_type_to_dict(value))
    return pulumi.Output.from_input(value) if isinstance(value, Awaitable) else value


def is_input_type(value: Any) -> bool:
    return pulumi._types.is_input_type(type(value))


def python_path(where: str) -> str:
    """A document's path in the words of the program: `trainer.numNodes` -> `trainer.num_nodes`. Keys in brackets are the
    user's own, and rendered objects (`JobSet/...`) have the API's names."""
    if "/" in where.partition(".")[0]:
        return where
    where, free, keys = where.partition("func_args")  # below are the user's own keys
    if free:
        return python_path(where) + free + keys
    return _WORD.sub(lambda word: word[0] if word[0][0] == "[" else snake(word[0]), where)


_WORD = re.compile(rf"{_KEY}|\w+")


def below(path: str, key: Any) -> str:
    """The path of a key: `a.b`, and `a["x.y/z"]` where the key is not a plain name."""
    if isinstance(key, str) and _PLAIN.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quoted(key)}]"


def walk(
    value: Any, visit: Callable[[str, Any], Any], path: str = "", key_path: Callable[[str, Any], str] = below
) -> Any:
    """A copy of a document in which `visit(path, leaf)` has replaced every leaf. No two leaves have the same path.

    key_path: makes the path of a key.
    """
    if isinstance(value, dict):
        return {k: walk(v, visit, key_path(path, k), key_path) for k, v in value.items()}
    if isinstance(value, list):
        return [walk(v, visit, f"{path}[{i}]", key_path) for i, v in enumerate(value)]
    return visit(path, value)


_PLAIN = re.compile(r"\w+")


def quoted(key: Any) -> str:
    """A key as a program writes it in brackets: text in double quotes, in one line."""
    if not isinstance(key, str):
        return repr(key)
    return json.dumps(str.__str__(key), ensure_ascii=not key.isprintable())
