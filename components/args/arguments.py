"""Base class of the typed arguments, and their conversion to documents.

A class of arguments declares its fields once, with `pulumi.Input` types, for editors and type checkers. The constructor stores
the values without checks; the component reports all problems at once, with its own name. Fields are the API's names in
snake_case; a document has the API's camelCase.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from types import ModuleType
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.field_types import field_types
from pulumi_trainer.args.naming import api_names, camel, snake
from pulumi_trainer.args.signatures import bind, not_one_of
from pulumi_trainer.provider.engine.pulumi_compat import fields_of_input_type, is_input_type
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.yaml_values import MAX_DEPTH
from pulumi_trainer.provider.trainer.pipeline.policy import Policy
from typing_extensions import Self, dataclass_transform


class _Position:
    """Marks a field without a default that may be passed by position."""


def positional(*, kw_only: bool) -> Any:  # noqa: ARG001  # type checkers read it (PEP 681)
    """Declare a required field that may be passed by position: `level: str = positional(kw_only=False)`."""
    return _Position()


@dataclass_transform(kw_only_default=True, field_specifiers=(positional,))
class Args:
    """Typed arguments; every field takes an `Input`."""

    fields: ClassVar[tuple[str, ...]] = ()
    api: ClassVar[str] = ""
    """Path of these fields in the API, such as `TrainJob.spec.trainer`; the schema at this path decides which keys of mappings
    are the API's names.
    """
    converters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Field -> function that converts its value, for fields whose document is not their own value in camelCase."""
    shipped: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not part of the document."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Fields with free-form data, which travel as JSON."""
    without: ClassVar[frozenset[str]] = frozenset()
    """Inherited fields that the class does not take."""
    documents: ClassVar[frozenset[str]] = frozenset()
    """Fields with a document, whose paths are those of its YAML."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Names that are not fields -> the argument to use instead."""
    paths: ClassVar[Mapping[str, str]] = {}
    """Field -> its path in the document, where that is not its name in camelCase; an empty value is left out there."""
    places: ClassVar[Mapping[str, str]] = {}
    """Prefix of a path in the document -> prefix of the argument's path, where the two differ; the first match counts."""
    __slots__ = ("__dict__", "__weakref__", "misnamed")
    __signature__: ClassVar[inspect.Signature] = inspect.Signature()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherited = chain.from_iterable(getattr(base, "fields", ()) for base in reversed(cls.__mro__[1:]))
        own = [n for n in cls.__dict__.get("__annotations__", {}) if not _is_class_var(cls, n)]
        cls.fields = tuple(name for name in dict.fromkeys([*inherited, *own]) if name not in cls.without)
        cls.__signature__ = _signature(cls)

    def __init__(self, *unnamed: Any, **named: Any) -> None:
        given, self.misnamed = bind(self.__signature__, unnamed, named, self.elsewhere)
        self.__dict__.update({field: plain_value(value) for field, value in given.items()})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.__dict__)})"  # values may be secret

    def check(self) -> list[Problem]:
        """Return problems with the names of the arguments, and with values that must be lists or mappings."""
        found = [*self.misnamed]
        for field, expected in field_types(type(self)).items():
            value = self.__dict__.get(field)
            if expected.is_container and value is not None and not expected.accepts(value):
                hint = ""
                if isinstance(value, str) and expected.wanted == "a list":
                    hint = f'give {field}=["...", ...]'
                found.append(Problem(field, f"must be {expected.wanted}, not {type(value).__name__}", hint))
        return found

    @classmethod
    def required(cls) -> list[str]:
        """Return the fields without a default."""
        return [name for name, p in cls.__signature__.parameters.items() if p.default is inspect.Parameter.empty]

    def accepted(self) -> Self:
        """Return a copy without the values that `nested_problems` rejects, here and in nested arguments; the others can be
        checked.
        """
        made = copy.copy(self)
        for name, value in self.__dict__.items():
            if isinstance(value, Args):
                made.__dict__[name] = value.accepted()
            elif name not in self.free and nested_problems(value):
                made.__dict__[name] = getattr(type(self), name, None)
        for problem in self.check():
            field = re.split(r"[.\[]", problem.where)[0]
            if field in self.fields and field in self.__dict__:
                made.__dict__[field] = getattr(type(self), field, None)
        return made

    def document(self) -> dict[str, Any]:
        """Return the API object: the fields with a value, in camelCase, with nested arguments converted."""
        given: dict[str, Any] = {}
        for name, value in self.__dict__.items():
            if name not in self.fields or name in self.shipped or value is None:
                continue
            value = self.converted(name, value)
            if name not in self.paths or value not in ({}, []):
                given[name] = value
        if self.api:
            given = api_names(self.api, given)
        document: dict[str, Any] = {}
        for name, value in given.items():
            *above, last = self.paths.get(name, camel(name)).split(".")
            holder = document
            for step in above:
                holder = holder.setdefault(step, {})
            holder[last] = value
        return document

    def converted(self, field: str, value: Any) -> Any:
        """Return the value of a field as it is in the document."""
        if field in self.converters and not isinstance(value, Unknown):
            return self.converters[field](value)
        return to_document(value)

    def place(self, where: str) -> str:
        """Return the argument for a path of the document: `mpi.numProcPerNode` -> `num_proc_per_node`."""
        for field, path in self.paths.items():
            if where == path or where.startswith((f"{path}.", f"{path}[")):
                where = field + where[len(path) :]
                break
        inside = [field for field, path in self.paths.items() if path.startswith(f"{where}.")]
        if len(inside) == 1:
            return inside[0]
        for start, own in self.places.items():
            rest = where.removeprefix(start)
            if where.startswith(start) and (not rest or rest[0] in ".[" or start[-1] == "."):
                where = (own + rest).lstrip(".")
                break
        found = _SEGMENT.match(where)
        if found is None:
            return where
        field = next((f for f in self.fields if camel(f).lower() == found["name"].lower()), snake(found["name"]))
        value, at = self.__dict__.get(field), (found["key"] or "")[1:-1]
        if at and isinstance(value, (list, tuple)) and at.isdigit() and int(at) < len(value):
            value = value[int(at)]
        if field in self.documents:
            rest = found["rest"]
        elif isinstance(value, (Args, Policy)):
            rest = value.place(found["rest"])
        else:
            rest = python_path(found["rest"])
        start = field
        if at:
            start = f"{field}[{at}]"
        if rest[:1] in ("", "["):
            return f"{start}{rest}"
        return f"{start}.{rest}"


_KEY = r'\["(?:[^"\\]|\\.)*"\]|\[[^]]*\]'
_SEGMENT = re.compile(rf"(?P<name>\w+)(?P<key>{_KEY})?\.?(?P<rest>.*)")


def _signature(cls: type[Args]) -> inspect.Signature:
    """Return the signature of the class's constructor; a field without a default is required."""

    def parameter(name: str) -> inspect.Parameter:
        annotation = next(c.__annotations__[name] for c in cls.__mro__ if name in c.__dict__.get("__annotations__", {}))
        default = getattr(cls, name, inspect.Parameter.empty)
        if isinstance(default, _Position):
            return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    return inspect.Signature(sorted(map(parameter, cls.fields), key=lambda p: (p.kind, p.name == "opts")))


def _is_class_var(cls: type, name: str) -> bool:
    return "ClassVar" in str(cls.__annotations__[name])


def metadata(labels: Any, annotations: Any) -> dict[str, Any]:
    """Return a document's `metadata` with labels and annotations; empty if it has neither."""
    given = {"labels": labels, "annotations": annotations}
    found = {k: to_document(v) for k, v in given.items() if v is not None and v != {}}
    if not found:
        return {}
    return {"metadata": found}


def nested_problems(value: Any, path: str = "", above: tuple[int, ...] = ()) -> list[Problem]:
    """Return the problems of arguments, including nested ones.

    Args:
        path: Path of the value in the call, which the paths of its problems start with; empty for the arguments of the call
            itself.
        above: Identities (`id`) of the values around this one, to find a value that contains itself; only the recursion sets it.
    """
    if isinstance(value, str):
        if value.isascii() or _is_text(value):
            return []
        return [Problem(path, "not text: holds half of a surrogate pair")]
    if not isinstance(value, (Args, list, tuple, Mapping)):
        return []
    found = nesting_problems(value, path, above)
    if found:
        return found
    above = (*above, id(value))
    if isinstance(value, Args):
        found = [*value.check()]
        if path:
            found = problems_below(path, found)
        for name, inner in value.__dict__.items():
            if name not in value.free:
                found += nested_problems(inner, child_path(path, name), above)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            found += nested_problems(inner, f"{path}[{quoted(key)}]", above)
    else:
        for index, inner in enumerate(value):
            found += nested_problems(inner, f"{path}[{index}]", above)
    return found


def type_problems(args: Args) -> list[Problem]:
    """Return the values of a wrong type, in fields that no schema checks later."""
    found = []
    for field, expected in field_types(type(args)).items():
        value = getattr(args, field)
        if field in args.free or (value is None and expected.optional):
            continue
        if expected.words and not expected.output:
            if not expected.classes or not expected.accepts(value):
                found += not_one_of(field, value, expected.words, expected.wanted)
        elif expected.is_judged and not expected.accepts(value):
            found.append(Problem(field, f"must be {expected.wanted}, not {shown_value(value)}"))
    return found


def check_names(given: dict[str, Any]) -> list[Problem]:
    """Return why `name` and `namespace` of an object are not valid text, and set the invalid ones in `given` to None."""
    found = []
    for field, types in (("name", (str,)), ("namespace", (str, pulumi.Output))):
        value = given.get(field)
        if value is not None and not isinstance(value, types):
            wrong = [Problem(field, f"must be text, not {shown_value(value)}")]
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
    """Return why a document cannot be serialized: it contains itself, or has too many levels."""
    if id(value) in above:
        return [Problem(path, "contains itself")]
    if len(above) > MAX_DEPTH:
        return [Problem(path, f"has more than {MAX_DEPTH} levels")]
    return []


def without_refused(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return arguments with `Unknown` in place of the values that `check` rejects, so that the others can be checked.

    Args:
        above: Identities (`id`) of the values around this one, to find a value that contains itself; only the recursion sets it.
    """
    if isinstance(value, (Args, list, tuple, dict)) and nesting_problems(value, "", above):
        return Unknown("")
    above = (*above, id(value))
    if isinstance(value, Args):
        made = copy.copy(value)
        made.__dict__.update({name: without_refused(given, above) for name, given in value.__dict__.items()})
        for problem in value.check():
            found = _PLACE.match(problem.where)
            if found is None or problem in value.misnamed:
                continue
            field, at = found["field"], found["at"]
            items = [*as_sequence(made.__dict__.get(field))]
            if at is None or not items:
                made.__dict__[field] = Unknown(field)
                continue
            if int(at) < len(items):
                items[int(at)] = Unknown(field)
            made.__dict__[field] = items
        return made
    if isinstance(value, (list, tuple)):
        return [without_refused(each, above) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_refused(given, above) for name, given in value.items()}


_PLACE = re.compile(r"(?P<field>\w+)(?:\[(?P<at>\d+)\])?")


def shown_value(value: Any) -> str:
    """Return a wrong value as text for a message: its repr, the name of a class or module, else its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, (str, int, float, dict, list, tuple, type(None))):
        return repr(value)
    return type(value).__name__


def to_document(value: Any) -> Any:
    """Return arguments, pulumi-kubernetes arguments, lists and mappings as plain documents.

    Outputs stay, and so do the names in mappings, which `api_names` converts.
    """
    if isinstance(value, (Args, Policy)):
        return value.document()
    if isinstance(value, Mapping):
        return {plain_value(k): to_document(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(to_document, value)]
    if is_input_type(value):
        return to_document(fields_of_input_type(value))
    if isinstance(value, Awaitable):
        return pulumi.Output.from_input(value)
    return plain_value(value)


def plain_value(value: Any) -> Any:
    """Return a text, a whole number or a bool of another type, such as a member of an `Enum` or a number of numpy, as the equal
    one of Python's own type; any other value stays.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    return value


def as_mapping(value: Any) -> Mapping[Any, Any]:
    """Return a mapping; empty for any other value."""
    if isinstance(value, Mapping):
        return value
    return {}


def as_sequence(value: Any) -> Sequence[Any]:
    """Return a list or a tuple; empty for any other value."""
    if isinstance(value, (list, tuple)):
        return value
    return ()


def drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping without the names whose value is None."""
    return {name: value for name, value in values.items() if value is not None}


def python_path(where: str) -> str:
    """Return a document's path with the program's names: `trainer.resourcesPerNode` -> `trainer.resources_per_node`.

    Keys in brackets are the user's own, and rendered objects (`JobSet/...`) have the API's names.
    """
    if "/" in where.partition(".")[0]:
        return where
    where, free, keys = where.partition("func_args")  # below are the user's own keys
    if free:
        return python_path(where) + free + keys
    return _WORD.sub(_python_word, where)


def _python_word(found: re.Match[str]) -> str:
    word = found[0]
    if word[0] == "[":
        return word
    return snake(word)


_WORD = re.compile(rf"{_KEY}|\w+")


def child_path(path: str, key: Any) -> str:
    """Return the path of a key: `a.b`, or `a["x.y/z"]` if the key is not a plain name."""
    if isinstance(key, str) and _PLAIN.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{quoted(key)}]"


def walk(
    value: Any, visit: Callable[[str, Any], Any], path: str = "", key_path: Callable[[str, Any], str] = child_path
) -> Any:
    """Return a copy of a document with every leaf replaced by `visit(path, leaf)`.

    Args:
        visit: Called once for each leaf; no two leaves have the same path.
    """
    if isinstance(value, dict):
        return {k: walk(v, visit, key_path(path, k), key_path) for k, v in value.items()}
    if isinstance(value, list):
        return [walk(v, visit, f"{path}[{i}]", key_path) for i, v in enumerate(value)]
    return visit(path, value)


_PLAIN = re.compile(r"\w+")


def quoted(key: Any) -> str:
    """Return a key as Python writes it in brackets: text in double quotes, in one line."""
    if not isinstance(key, str):
        return repr(key)
    return json.dumps(str.__str__(key), ensure_ascii=not key.isprintable())
