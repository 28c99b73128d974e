"""Base of the typed arguments, and their way to a document.

A class of arguments declares its fields once, with `pulumi.Input` types, for editors and type checkers. At run time it
only keeps what was given: what is wrong is found later, by the component, which knows its own name and can tell all
problems at once. Names are the API's in snake_case; a document has the API's camelCase.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.pipeline.policy import Policy
from typing_extensions import dataclass_transform

FREE_MAPS = frozenset(
    {
        "labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead", "data",
        "stringData", "volumeAttributes", "options", "capacity",
    }
)  # fmt: skip
"""Fields whose keys are the user's own words, so they are never renamed."""

UNKNOWN_FIELD = "unknown field"


@dataclass_transform(kw_only_default=True)
class Args:
    """Typed arguments; every field takes an `Input`."""

    fields: ClassVar[tuple[str, ...]] = ()
    converters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Fields that become something else than their own value in camelCase."""
    shipped: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no part of the document."""
    lists: ClassVar[frozenset[str]] = frozenset()
    mappings: ClassVar[frozenset[str]] = frozenset()
    """Fields that are taken apart before their document is checked: they have to be what they are said to be."""
    places: ClassVar[Mapping[str, str]] = {}
    """Where the document has another shape: start of a path in it -> start of the argument's; the first that fits."""
    beside: ClassVar[tuple[str, ...]] = ()
    """What the component takes beside these fields: somebody may have meant it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [n for n in cls.__dict__.get("__annotations__", {}) if not _is_class_var(cls, n)]
        cls.fields = (*cls.fields, *own)

    def __init__(self, *unnamed: Any, **given: Any) -> None:
        if unnamed:
            fields = ", ".join(f"{field}=" for field in self.fields[: len(unnamed)])
            raise TypeError(f"{type(self).__name__} takes its arguments by name: {type(self).__name__}({fields}...)")
        self.__dict__.update(given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(k for k in self.__dict__)})"  # values may be secret

    def check(self) -> list[Problem]:
        """Fields that the class does not have, with the nearest right name; lists and mappings that are none."""
        found = unknown_fields(self.__dict__, self.fields, self.beside)
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

    def document(self) -> dict[str, Any]:
        """The API object: fields that were given, in camelCase; nested arguments likewise."""
        return {
            camel(k): self.converters[k](v) if k in self.converters else to_document(v, camel(k) in FREE_MAPS)
            for k, v in self.__dict__.items()
            if k in self.fields and k not in self.shipped and v is not None
        }

    def place(self, where: str) -> str:
        """The argument that stands at a path of the document: `mpi.numProcPerNode` -> `num_proc_per_node`."""
        for start, own in self.places.items():
            rest = where.removeprefix(start)
            if where.startswith(start) and (not rest or rest[0] in ".[" or start[-1] == "."):
                where = (own + rest).lstrip(".")
                break
        if (found := _SEGMENT.match(where)) is None:
            return where
        field = next((f for f in self.fields if camel(f) == found["name"]), snake(found["name"]))
        value, at = self.__dict__.get(field), found["at"]
        if at and isinstance(value, (list, tuple)) and at.isdigit() and int(at) < len(value):
            value = value[int(at)]
        rest = value.place(found["rest"]) if isinstance(value, (Args, Policy)) else python_path(found["rest"])
        return ".".join(part for part in (f"{field}[{at}]" if at else field, rest) if part)


_SEGMENT = re.compile(r"(?P<name>\w+)(\[(?P<at>[^]]*)\])?\.?(?P<rest>.*)")


def _is_input(cls: type, name: str) -> bool:
    """Whether the whole of a field may be an Output."""
    return next(str(c.__annotations__[name]) for c in cls.__mro__ if name in c.__annotations__).startswith(
        "pulumi.Input["
    )


def _is_class_var(cls: type, name: str) -> bool:
    return "ClassVar" in str(cls.__annotations__[name])


def metadata(labels: Any, annotations: Any) -> dict[str, Any]:
    """A document's `metadata`, where there are labels or annotations."""
    given = {"labels": labels, "annotations": annotations}
    found = {k: to_document(v, free=True) for k, v in given.items() if v is not None and v != {}}
    return {"metadata": found} if found else {}


def nested_problems(value: Any, path: str = "") -> list[Problem]:
    """What is wrong with arguments, and with arguments inside them."""
    if isinstance(value, Args):
        found = [p.below(path) if path else p for p in value.check()]
        for name, inner in value.__dict__.items():
            found += nested_problems(inner, f"{path}.{name}" if path else name)
        return found
    if isinstance(value, (list, tuple)):
        return [p for i, v in enumerate(value) for p in nested_problems(v, f"{path}[{i}]")]
    if isinstance(value, Mapping):
        return [p for k, v in value.items() for p in nested_problems(v, f"{path}[{k}]")]
    return []


def unknown_fields(given: Mapping[str, Any], known: tuple[str, ...], beside: tuple[str, ...] = ()) -> list[Problem]:
    """A problem for each name that is not known."""
    return [Problem(name, UNKNOWN_FIELD, _nearest(name, (*known, *beside))) for name in given if name not in known]


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(snake(name), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"


def said(value: Any) -> str:
    """A value that is wrong, in an error: of an Output or a resource, what it is."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if isinstance(value, (str, int, float, dict, list, tuple, type(None))) else type(value).__name__


def to_document(value: Any, free: bool = False) -> Any:
    """Arguments, pulumi-kubernetes arguments, lists and mappings into plain documents; Outputs stay where they are.

    Mappings may use the API's names or Python's; keys of free maps (labels, limits, ...) stay as they are.
    """
    if isinstance(value, (Args, Policy)):
        return value.document()
    if isinstance(value, Mapping):
        return {
            (k if free else camel(k)): to_document(v, camel(k) in FREE_MAPS) for k, v in value.items() if v is not None
        }
    if isinstance(value, (list, tuple)):
        return [to_document(v) for v in value]
    if is_input_type(value):
        return to_document(pulumi._types.input_type_to_dict(value))
    return value


def is_input_type(value: Any) -> bool:
    return pulumi._types.is_input_type(type(value))


def camel(name: str) -> str:
    """num_nodes -> numNodes; a name without underscores stays."""
    if "_" not in name.strip("_") or not name.islower():
        return name
    head, *rest = name.split("_")
    text = head + "".join(p.capitalize() for p in rest)
    return _ODD_CAMEL.get(text, text)


_ODD_CAMEL = {"enableDnsHostnames": "enableDNSHostnames", "podIp": "podIP", "hostIpc": "hostIPC", "hostPid": "hostPID",
              "clusterIp": "clusterIP", "hostIp": "hostIP", "downwardApi": "downwardAPI",
              "setHostnameAsFqdn": "setHostnameAsFQDN", "volumeId": "volumeID", "pdId": "pdID", "diskUri": "diskURI",
              "datasetUuid": "datasetUUID", "targetWwns": "targetWWNs"}  # fmt: skip


def snake(name: str) -> str:
    """numNodes -> num_nodes."""
    text = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return text.lstrip("_") if not name.startswith("_") else text


def python_path(where: str) -> str:
    """A document's path in the words of the program: `trainer.numNodes` -> `trainer.num_nodes`. Keys in brackets are the
    user's own, and rendered objects (`JobSet/...`) have the API's names."""
    if "/" in where.partition(".")[0]:
        return where
    return re.sub(r"\[[^]]*\]|\w+", lambda word: word[0] if word[0][0] == "[" else snake(word[0]), where)


def walk(value: Any, visit: Callable[[str, Any], Any], path: str = "") -> Any:
    """A copy of a document in which `visit(path, leaf)` has replaced every leaf."""
    if isinstance(value, dict):
        return {k: walk(v, visit, f"{path}.{k}" if path else str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [walk(v, visit, f"{path}[{i}]") for i, v in enumerate(value)]
    return visit(path, value)
