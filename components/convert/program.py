"""Writes the source of a converted program."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.convert.components import QUEUES, RUNTIMES, component_call, runtime_of
from pulumi_trainer.convert.config_maps import HERE, config_map_call, files_of, is_config_map, named_config_maps
from pulumi_trainer.convert.config_maps import KIND as CONFIG_MAP
from pulumi_trainer.convert.findings import Findings
from pulumi_trainer.convert.gpu_queues import Group, find_group, references
from pulumi_trainer.convert.python_source import Call, Expression, Secret, key_of_marker, pulumi_yaml, statement
from pulumi_trainer.convert.typed import snake_case
from pulumi_trainer.convert.upgrade import is_marked, upgraded
from pulumi_trainer.provider.jobs.submission import EXISTING
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, place_of, section, text
from pulumi_trainer.runtimes import BUILT_IN

_RESERVED = {"config", "pulumi", "trainer", "kubernetes", "Path", HERE, *dir(builtins)}
_ORDER = [CONFIG_MAP, *QUEUES, *RUNTIMES, "TrainJob"]
_SUFFIXES = {
    "ClusterTrainingRuntime": "runtime",
    "TrainingRuntime": "runtime",
    "LocalQueue": "queue",
    "TrainJob": "job",
    CONFIG_MAP: "files",
}
_GROUPS = {
    **dict.fromkeys(QUEUES, "kueue.x-k8s.io/"),
    **dict.fromkeys([*RUNTIMES, "TrainJob"], "trainer.kubeflow.org/"),
}

Key = tuple[str, str, str]
"""Kind, namespace ("" for cluster-wide kinds), name."""


@dataclass
class Part(Findings):
    """An object of the program, from one document of the files.

    Attributes:
        document: The document of the newest API that the program has to declare.
        origin: Where the document is, for messages.
        comments: Argument -> comments above it.
        is_grouped: Whether a component that declares several objects declares it.
        adopt: Whether the program takes over the object, which is in a cluster.
        mode: Mode of its target; empty: that of the project.
    """

    document: Document
    origin: str
    comments: dict[str, list[str]] = field(default_factory=dict)
    call: Call | None = None
    is_grouped: bool = False
    adopt: bool = False
    mode: str = ""

    @property
    def key(self) -> Key:
        """Return kind, namespace and name."""
        return key_of(self.document)

    @property
    def title(self) -> str:
        return title(self.origin, self.document)


def title(origin: str, document: Document) -> str:
    """Return where an object is, with its kind, namespace and name."""
    return f"{origin}: {' '.join([document['kind'], '/'.join(filter(None, place_of(document)))])}".strip()


def key_of(document: Document) -> Key:
    """Return kind, namespace and name of a document."""
    kind = text(document.get("kind"))
    namespace = ""
    if kind in ("TrainJob", "TrainingRuntime", "LocalQueue", CONFIG_MAP):
        namespace = text(section(document, "metadata").get("namespace"))
    return kind, namespace, name_of(document)


def is_convertible(document: Document) -> bool:
    """Return whether a program can declare the object of a document."""
    if is_config_map(document):
        return True
    group = _GROUPS.get(text(document.get("kind")))
    return group is not None and text(document.get("apiVersion")).startswith(group)


def parts_of(documents: Iterable[tuple[str, Document]], refused: list[Problem]) -> list[Part]:
    """Return the objects of the program, and append what cannot be converted.

    Args:
        documents: Each with where it is, for messages.
    """
    found: dict[Key, Part] = {}
    for origin, document in documents:
        notes = list[str]()
        try:
            part = Part(upgraded(document, notes), origin, notes=notes)
        except Invalid as error:
            refused += problems_below(title(origin, document), error.problems)
            continue
        if part.key in found:
            part.notes.append(f"{found[part.key].origin} has this object too: the later document counts")
        found[part.key] = part
    return sorted(found.values(), key=lambda part: (_ORDER.index(part.key[0]), _depth(part, found)))


def _depth(part: Part, parts: Mapping[Key, Part]) -> int:
    """Return how many cohorts are above a cohort: these are created before it."""
    depth, above = 0, part
    while above.key[0] == "Cohort" and depth <= len(parts):
        parent = ("Cohort", "", text(section(above.document, "spec").get("parentName")))
        if parent not in parts:
            break
        depth, above = depth + 1, parts[parent]
    return depth


def write_source(
    parts: list[Part], refused: list[Problem], files: dict[str, str], runtimes: Container[Key] = ()
) -> str:
    """Return the source of the program, and append what cannot be converted; such parts are removed from the list.

    Args:
        files: Is filled with the files that the program reads, by their paths.
        runtimes: Runtimes of the cluster that jobs may name.
    """
    names = _Names(parts)
    groups = [_write_group(group, parts, names) for group in _groups(parts)]
    for part in [*parts]:
        if part.is_grouped:
            continue
        try:
            if part.key[0] == CONFIG_MAP:
                part.call = _config_map(part, names, files)
                continue
            part.call = _with_place(component_call(part.document, names.refer), part, names)
            _check_runtime(part, runtimes)
            _add_dependencies(part, parts, names)
        except TrainerError as error:
            refused += problems_below(part.title, error.problems)
            parts.remove(part)
    body = [_statement(variable, call, names) for variable, call in groups]
    body += [_statement(names.variable(part.key), part.call, names) for part in parts if part.call is not None]
    origin = "converted from YAML by `pulumi-trainer convert`"
    if any(part.adopt for part in parts):
        origin = "taken over from a cluster by `pulumi-trainer import`"
    head = [f'"""Training jobs and queues, {origin}."""\n\n']
    if files:
        head.append("from pathlib import Path\n\n")
    if names.has_secrets or names.has_dependencies:
        head.append("import pulumi\n")
    if files:
        head.append("import pulumi_kubernetes as kubernetes\n")
    head.append("import pulumi_trainer as trainer\n\n")
    if files:
        head.append(f"{HERE} = Path(__file__).parent\n")
    if names.has_secrets:
        head.append("config = pulumi.Config()\n")
    for (namespace, mode), variable in names.targets.items():
        if variable in names.used:
            arguments = {"namespace": namespace}
            if mode:
                arguments["mode"] = mode
            head.append(statement(variable, Call(_Kubernetes, arguments)))
    return "".join([*head, *body])


def _check_runtime(part: Part, runtimes: Container[Key]) -> None:
    """Raise Invalid if a TrainJob names a runtime that nothing has."""
    if part.key[0] != "TrainJob" or part.call is None or isinstance(part.call.arguments["runtime"], Expression):
        return
    key = runtime_of(part.document)
    if key in runtimes or (key[0] == "ClusterTrainingRuntime" and key[2] in BUILT_IN.names()):
        return
    why = f"{key[0]} {key[2]!r} is neither in the catalogue nor among the objects that could be converted"
    hint = "give the file with this runtime too"
    if part.adopt:
        why, hint = (
            f"{key[0]} {key[2]!r} is not in the program",
            "import it too; a runtime of another stack cannot be named",
        )
    raise Invalid(Problem("spec.runtimeRef", why, hint))


def _config_map(part: Part, names: _Names, files: dict[str, str]) -> Call:
    """Return the call of a ConfigMap, and add its files."""
    _, namespace, name = part.key
    folder = f"{namespace}-{name}".strip("-") if names.is_ambiguous(part.key) else name
    call = config_map_call(part.document, folder)
    names.variable(part.key)
    files |= files_of(part.document, folder)
    return call


def _add_dependencies(part: Part, parts: Iterable[Part], names: _Names) -> None:
    """Let a TrainJob depend on the ConfigMaps of the program that its Pods refer to."""
    if part.key[0] != "TrainJob" or part.call is None:
        return
    namespace, runtime_key = part.key[1], runtime_of(part.document)
    documents = [part.document, *(each.document for each in parts if each.key == runtime_key)]
    found = list[Expression]()
    for name in dict.fromkeys(named_config_maps(documents)):
        variable = names.refer(CONFIG_MAP, namespace, name)
        if isinstance(variable, Expression):
            found.append(variable)
    if found:
        names.has_dependencies = True
        part.call.arguments["opts"] = Call(_ResourceOptions, {"depends_on": found})


class _ResourceOptions:
    """Stands for the class of Pulumi."""

    source = "pulumi.ResourceOptions"


class _Kubernetes:
    """Stands for the class of this name, which would be slow to import."""


_Kubernetes.__name__ = "Kubernetes"


class _Names:
    """The variables of a program."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._taken = {*_RESERVED, *keyword.kwlist, *keyword.softkwlist}
        self.targets: dict[tuple[str, str], str] = {}
        """Namespace and mode -> variable."""
        self.has_secrets = self.has_dependencies = False
        self.used: set[str] = set()
        keys = [part.key for part in parts]
        for place in dict.fromkeys((text(section(p.document, "metadata").get("namespace")), p.mode) for p in parts):
            if place[0]:
                self.targets[place] = self.new("_".join(filter(None, place)), "namespace")
        self._variables = {key: self.new(key[2], _SUFFIXES.get(key[0], snake_case(key[0]))) for key in keys}
        self._written = set[Key]()
        self._members: dict[Key, tuple[str, Expression]] = {}
        self._same: dict[tuple[str, str], int] = {}
        for kind, _, name in keys:
            self._same[kind, name] = self._same.get((kind, name), 0) + 1

    def new(self, name: str, suffix: str) -> str:
        """Return a new variable for a name. suffix: What it ends with if the name alone is taken."""
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or suffix
        if plain[0].isdigit():
            plain = f"{suffix}_{plain}"
        wanted, count = plain, 2
        while wanted in self._taken:
            wanted = f"{plain}_{suffix}"
            if wanted in self._taken:
                wanted, count = f"{plain}_{suffix}_{count}", count + 1
        self._taken.add(wanted)
        return wanted

    def refer(self, kind: str, namespace: str, name: Any) -> Any:
        """Return the variable of an object that the program has created before, or the name of another one."""
        key = (kind, namespace, name)
        if key in self._members:
            variable, expression = self._members[key]
            self.used.add(variable)
            return expression
        if key not in self._written:
            return name
        self.used.add(self._variables[key])
        return Expression(self._variables[key])

    def add_member(self, key: Key, variable: str, expression: Expression | None) -> None:
        """Remember the expression for an object that another component declares; None for one that is named."""
        if expression is not None:
            self._members[key] = (variable, expression)

    def variable(self, key: Key) -> str:
        """Return the variable of an object."""
        self._written.add(key)
        return self._variables[key]

    def is_ambiguous(self, key: Key) -> bool:
        """Return whether another object of the kind has the name in another namespace."""
        return self._same[key[0], key[2]] > 1


def _with_place(call: Call, part: Part, names: _Names) -> Call:
    """Return the call with its target, a unique resource name, the secrets of its trainer, and its comments."""
    kind, namespace, name = part.key
    names.variable(part.key)
    if names.is_ambiguous(part.key):
        call.first = f"{namespace}-{name}".strip("-")
        call.arguments.setdefault("name", name)
    if kind in ("TrainJob", "TrainingRuntime") and namespace:
        variable = names.targets[namespace, part.mode]
        names.used.add(variable)
        call.arguments["target"] = Expression(variable)
    if part.adopt:
        call.arguments["adopt"] = EXISTING
    trainer = call.arguments.get("trainer")
    if isinstance(trainer, Call):
        names.has_secrets |= _read_secrets(trainer)
    call.comments = {argument: lines for argument, lines in part.comments.items() if argument in call.arguments}
    return call


def _read_secrets(trainer: Call) -> bool:
    """Let a trainer read the variables that are markers from the configuration; return whether there are any."""
    env, found = trainer.arguments.get("env"), False
    places: list[tuple[Any, Any]] = []
    if isinstance(env, dict):
        places += [(env, name) for name in env]
    else:
        places += [(variable, "value") for variable in mappings(env)]
    for holder, key in places:
        if is_marked(holder.get(key)):
            holder[key], found = Secret(key_of_marker(holder[key])), True
    return found


def _groups(parts: Iterable[Part]) -> Iterator[Group]:
    """Yield the components of the package that declare several of the objects."""
    documents = [part.document for part in parts if part.key[0] in QUEUES]
    for cohort in documents:
        if cohort["kind"] != "Cohort":
            continue
        group = find_group(documents, cohort)
        if group is not None:
            yield group
            return


def _write_group(group: Group, parts: Iterable[Part], names: _Names) -> tuple[str, Call]:
    """Return the variable and the call of a component that declares several objects, which get no calls of their own."""
    members = {id(each) for each in group.documents}
    variable = names.new(group.call.first or "", "queues")
    expressions = references(group, variable)
    for part in parts:
        if id(part.document) in members:
            part.is_grouped = True
            if part.adopt:
                group.call.arguments["adopt"] = EXISTING
            names.add_member(part.key, variable, expressions.get(id(part.document)))
    return variable, group.call


def _statement(variable: str, call: Call, names: _Names) -> str:
    if variable not in names.used:
        variable = ""
    return statement(variable, call)


def write_project(name: str, settings: Mapping[str, str], *, has_trainer: bool) -> str:
    """Return the content of Pulumi.yaml.

    Args:
        settings: Further settings of the stack, such as `trainer:context`.
        has_trainer: Whether the cluster has Kubeflow Trainer, as the objects are for it.
    """
    config = {"trainer:target": "kubernetes"}
    if has_trainer:
        config["trainer:mode"] = "trainer"
    return pulumi_yaml(name, "Training jobs and queues", {**config, **settings})
