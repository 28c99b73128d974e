"""Makes the reference pages of the docs site from the code: public names, commands, configuration, the catalogue.

As a program it writes the table of versions into docs/support.md.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import json_output_schemas
import pulumi
import pulumi_trainer
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.program import targets
from pulumi_trainer.provider.cli import commands, parsers
from pulumi_trainer.provider.cli.runtime_table import list_runtimes
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.object_checks import FROZEN
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.trainer.admission.warnings import RULES
from pulumi_trainer.provider.trainer.pipeline import render
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.provider.trainer.upstream import UPSTREAM
from pulumi_trainer.queues.component import FIXED
from pulumi_trainer.runtimes import load

ROOT = Path(__file__).resolve().parents[1]

PAGES = {
    "trainjob": (
        "TrainJob",
        (
            "trainjob",
            "program.watch",
            "args.topology",
            "plan.volume_claims",
            "plan.checkpoint_policy",
            "args.tracking",
            "args.fork",
            "args.patches",
        ),
    ),
    "trainers": (
        "Trainers and code",
        (
            "args.trainers",
            "args.fine_tuning",
            "args.trl",
            "args.generation",
            "args.torchtune",
            "args.unsloth",
            "args.builtin",
            "args.project",
        ),
    ),
    "data": ("Datasets and models", ("datasets", "args.sources")),
    "runtimes": (
        "Runtimes",
        ("runtime", "channel", "provider.trainer.catalog.catalog", "args.policies", "args.template"),
    ),
    "policies": ("Rules for all jobs", ("policy", "provider.trainer.policy.rules")),
    "queues": (
        "Queues",
        (
            "queues.gpus",
            "team_namespace",
            "queues.teams",
            "queues.objects",
            "queues.flavors",
            "queues.checks",
            "queues.quotas",
            "queues.arguments",
        ),
    ),
    "pods": ("PodGroups and network", ("podgroups", "network_policy")),
    "registries": ("Model registries", ("model_version", "args.registries")),
    "targets": ("Targets", ("program.targets",)),
}
"""Page -> title, and the modules whose public names it has."""


def pages() -> dict[str, str]:
    """Return the reference pages by their paths in the site."""
    found = {f"reference/{page}.md": _page(title, modules) for page, (title, modules) in PAGES.items()}
    found["reference/client.md"] = _of_module("Python client", "pulumi_trainer.client", "[Guide](../client.md).")
    text = "A job whose code imports it takes it along ([guide](../guides/training-helper.md))."
    found["reference/training.md"] = _of_module("In a job", "pulumi_trainer.training", text)
    found["reference/plugins.md"] = _plugins()
    found["reference/catalogue-api.md"] = _of_module("Catalogue from Python", "pulumi_trainer.runtimes", "")
    found["reference/command-line.md"] = command_line()
    found["reference/json.md"] = json_output()
    found["reference/configuration.md"] = configuration()
    found["reference/catalogue.md"] = catalogue()
    return found


# Public names


def public_names(modules: Iterable[str]) -> list[str]:
    """Return the public names of `pulumi_trainer` that modules define: components first, in the order of the modules."""
    classes = {name: getattr(pulumi_trainer, name) for name in dir(pulumi_trainer)}
    names: list[str] = []
    for module in modules:
        names += [name for name, each in classes.items() if each.__module__ == f"pulumi_trainer.{module}"]
    return sorted(names, key=lambda name: not issubclass(classes[name], pulumi.ComponentResource))


def _page(title: str, modules: Sequence[str]) -> str:
    sections = [_section(name) for name in public_names(modules)]
    return f"# {title}\n\n{_CHANGES if title in ('TrainJob', 'Queues') else ''}" + "\n".join(sections)


_CHANGES = """The column *change* says what another value does in the next `pulumi up`:

- **update** changes the object in place. So do all arguments of components without this column.
- **new run** ends the run and starts another one; an unfinished run only with `interrupt="allow"` or `"checkpoint"`.
- **next run** has an effect when the job runs again.
- **replace** deletes the object and creates another one; **another job** is a replacement of the job and its Pulumi resource.
- **none** changes no object of the job.
- **another name**: the field never changes in a cluster. Give the object another name.

"""


def _section(name: str) -> str:
    """Return heading, description and table of arguments of a public name."""
    item = getattr(pulumi_trainer, name)
    summary, described = read_docstring(item)
    parts = [f"## {name} {{#{name}}}", summary]
    if issubclass(item, Enum):
        parts.append(_table(("name", "value"), [(f"`{name}.{each.name}`", f"`{each.value}`") for each in item]))
    elif issubclass(item, dict):  # a TypedDict
        rows = [(f"`{key}`", _code(kind), described.get(key, "")) for key, kind in item.__annotations__.items()]
        parts.append(_table(("key", "type", "meaning"), rows))
    elif name == "RuntimeCatalog":
        parts.append(_methods(item, ("from_dir", "from_git", "from_package")))
    else:
        parts.append(_arguments(name, item, described))
        outputs = _properties(item)
        if outputs:
            parts += ["Outputs:", _table(("output", "type", "meaning"), outputs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def read_docstring(item: Any) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring without its sections, and what `Args:` or `Attributes:` say by name."""
    text = inspect.cleandoc(item.__doc__ or "")
    summary = re.split(r"\n(?:Args|Attributes|Returns|Raises|Example):\n", f"{text}\n", maxsplit=1)[0].strip()
    described: dict[str, str] = {}
    for section in re.findall(r"\n(?:Args|Attributes):\n((?:    .*\n|\n)*)", f"{text}\n"):
        for name, meaning in re.findall(r"^    (\w+): (.*(?:\n     .*)*)", section, re.MULTILINE):
            described[name] = " ".join(meaning.split())
    return summary, described


def _arguments(name: str, item: Any, described: Mapping[str, str]) -> str:
    effects = _effects(name)
    rows = []
    for parameter in inspect.signature(item).parameters.values():
        effect = [effects.get(parameter.name, "")] if effects else []
        kind, default = _code(parameter.annotation), _default(parameter)
        rows.append((f"`{parameter.name}`", kind, default, *effect, described.get(parameter.name, "")))
    if not rows:
        return ""
    return _table(("argument", "type", "default", *(["change"] if effects else []), "meaning"), rows)


def _properties(item: Any) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of the public properties that a component defines."""
    found = []
    for name, member in vars(item).items():
        if isinstance(member, property) and not name.startswith("_"):
            kind = inspect.signature(member.fget).return_annotation if member.fget else ""
            meaning = " ".join((member.__doc__ or "").split()).removeprefix("Return ")
            found.append((f"`{name}`", _code(kind), meaning))
    return found


def _methods(item: Any, names: Sequence[str]) -> str:
    """Return a section for each method, with its arguments."""
    parts = []
    for name in names:
        method = getattr(item, name)
        summary, described = read_docstring(method)
        parts.append(f"### {item.__name__}.{name} {{#{item.__name__}.{name}}}\n\n{summary}")
        parts.append(_arguments(name, method, described))
    return "\n\n".join(parts)


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    return "" if parameter.default is None else f"`{parameter.default!r}`"


def _code(annotation: Any) -> str:
    """Return a type as code; that an argument may be an Output or missing shows in its name and default."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = getattr(annotation, "__forward_arg__", text).removesuffix(" | None")
    return f"`{text.replace('sources.', '')}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, cells))} |" for cells in lines)


def _cell(text: str) -> str:
    """Return a cell with `|` escaped, except in code, where Python-Markdown would show the backslash."""
    parts = text.split("`")
    return "`".join(part if i % 2 else part.replace("|", "\\|") for i, part in enumerate(parts))


# What a change does

_JOB: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "labels": ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {"a": "2"}}}),
    "annotations": ({"metadata": {"annotations": {"a": "1"}}}, {"metadata": {"annotations": {"a": "2"}}}),
    "queue": ({"metadata": {"labels": {QUEUE: "a"}}}, {"metadata": {"labels": {QUEUE: "b"}}}),
    "priority": (
        {"metadata": {"labels": {QUEUE: "a", PRIORITY: "low"}}},
        {"metadata": {"labels": {QUEUE: "a", PRIORITY: "high"}}},
    ),
    "max_execution": (
        {"metadata": {"labels": {QUEUE: "a", MAX_EXECUTION: "60"}}},
        {"metadata": {"labels": {QUEUE: "a", MAX_EXECUTION: "90"}}},
    ),
    "suspend": ({"spec": {"suspend": False}}, {"spec": {"suspend": True}}),
    "active_deadline_seconds": ({"spec": {"activeDeadlineSeconds": 60}}, {"spec": {"activeDeadlineSeconds": 90}}),
    "trainer": ({"spec": {"trainer": {"image": "a"}}}, {"spec": {"trainer": {"image": "b"}}}),
    "managed_by": ({}, {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
}
"""Argument of TrainJob -> two TrainJobs that differ in it; what the change does is computed from them."""

_EFFECTS = {
    "update": "update",
    "replace": "new run",
    "waiting": "update while the job waits in its queue; then new run",
}
_STARTING = {
    **dict.fromkeys(("runtime", "follow", "keep_runs"), "next run"),
    **dict.fromkeys(
        ("output", "tracking", "resume", "fork", "run", "topology", "flavors", "runtime_patches", "initializer"),
        "new run",
    ),
    **dict.fromkeys(("name", "target"), "new run, of another name or in another place"),
    "hardening": "new run",
    "logs": "none; with `keep` next run",
    "checkpoint": "new run",
    "resource_name": "another job",
    **dict.fromkeys(
        ("rerun_on", "wait_for", "may_fail", "expected_hours", "timeouts", "interrupt", "adopt", "opts"), "none"
    ),
}
"""Arguments that are not in the TrainJob's document, or that several documents have."""


def _effects(name: str) -> dict[str, str]:
    """Return what a change of each argument does, where the code knows; empty for other classes."""
    if name == "TrainJob":
        return job_effects()
    item: Any = getattr(pulumi_trainer, name, None)
    kind = getattr(item, "kind", None)
    if kind not in {*FROZEN, *FIXED}:
        return {}
    fixed = {field.removeprefix("spec."): "replace" for field in FIXED.get(kind, ())}
    fixed |= dict.fromkeys(FROZEN.get(kind, ()), "another name")
    found = {}
    for argument in inspect.signature(item).parameters:
        field = _camel(argument)
        near = [known for known in fixed if known in (field, f"{field}Name")]
        effect = fixed[near[0]] if near else "update"
        found[argument] = "replace" if argument in ("name", "namespace", "target", "resource_name") else effect
    return {**found, "opts": ""}


def job_effects() -> dict[str, str]:
    """Return what a change of each argument of TrainJob does."""
    computed = {argument: _EFFECTS[_effect(*jobs)] for argument, jobs in _JOB.items()}
    found = {**_STARTING, **computed}
    missing = inspect.signature(TrainJobArgs).parameters.keys() ^ found.keys()
    if missing:
        raise ValueError(f"tools/docs_reference.py: what does a change of these arguments of TrainJob do? {missing}")
    return found


def _effect(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changes = compare(_rendered(before), _rendered(after))
    effects = {change.effect for change in changes}
    return next(effect for effect in ("replace", "waiting", "update") if effect in effects)


def _rendered(job: Mapping[str, Any]) -> Any:
    train_job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "team", **job.get("metadata", {})},
        "spec": {"runtimeRef": {"name": "plain"}, "trainer": {}, **job.get("spec", {})},
    }
    return render(load("plain"), train_job, DEFAULT).objects


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


# Pages of mkdocstrings


def _of_module(title: str, module: str, text: str) -> str:
    names = __import__(module, fromlist=["*"]).__all__
    blocks = "\n".join(f"::: {module}.{name}\n" for name in names)
    return f"# {title}\n\nModule `{module}`. {text}\n\n{blocks}"


def _plugins() -> str:
    page = _of_module("Plugins", "pulumi_trainer.plugins", "[Guide](../plugins.md).")
    return f"{page}\n::: pulumi_trainer.register_plugin\n"


# Commands

_EXIT_CODES = """| exit code | |
| --- | --- |
| 0 | done; `validate`: all documents are admitted; `doctor`: state and target agree |
| 1 | an error, on stderr in one line; `validate`, `render`, `runtime check`: a file is refused; `doctor`: a difference |
| 2 | invalid options or arguments; `validate`, `render`: the input cannot be used |
"""


def json_output() -> str:
    """Return the page of what commands print with `-o json`."""
    parts = [f"# JSON output\n\n{inspect.cleandoc(json_output_schemas.__doc__ or '')}"]
    for command, entry in json_output_schemas.SCHEMAS.items():
        summary, _ = read_docstring(entry)
        parts.append(f"## {command} -o json {{#{command.replace(' ', '-')}}}\n\n{summary}")
        parts += [_keys(each) for each in _nested(entry)]
    return "\n\n".join(parts) + "\n"


def _keys(entry: Any) -> str:
    _, described = read_docstring(entry)
    rows = [(f"`{key}`", _code(kind), described.get(key, "")) for key, kind in entry.__annotations__.items()]
    return f"`{entry.__name__}`\n\n{_table(('key', 'type', 'meaning'), rows)}"


def _nested(entry: Any) -> list[Any]:
    """Return a TypedDict and those that its keys name."""
    found = [entry]
    for kind in get_type_hints(entry).values():
        for each in filter(is_typeddict, _parts(kind)):
            found += [other for other in _nested(each) if other not in found]
    return found


def _parts(kind: Any) -> Iterable[Any]:
    """Yield a type and the types in its brackets."""
    yield kind
    for each in get_args(kind):
        yield from _parts(each)


def command_line() -> str:
    """Return the page of all commands and their options."""
    about = "[What jobs are doing](../cli.md) shows what the commands print."
    sections = [_command_section(name, command) for name, command in sorted(commands.COMMANDS.items())]
    return "\n\n".join(["# Command line", about, _EXIT_CODES.strip(), *sections]) + "\n"


def _command_section(name: str, command: parsers.Command) -> str:
    rows = [
        (", ".join(f"`{each}`" for each in _shown_names(argument)), argument.settings["help"])
        for argument in command.arguments
        if argument.settings["help"] != argparse.SUPPRESS
    ]
    text = f"## pulumi-trainer {name}\n\n{command.about} {command.more}".strip()
    return f"{text}\n\n{_table(('argument', 'meaning'), rows)}"


def _shown_names(argument: parsers.Argument) -> tuple[str, ...]:
    """Return an option's names, or what stands for an argument in the help."""
    if argument.names[0].startswith("-"):
        return argument.names
    return (str(argument.settings["metavar"]),)


# Configuration, catalogue, warnings

_OWN = {
    "target": "Where jobs run that have no `target`. Default: `local`.",
    "warnings": "Severity of warnings by code, such as `trainer:warnings.PT112`: `ignore`, `warning` or `error`"
    " ([warnings](../warnings.md)).",
    "prices": "Price of an hour of a GPU by flavor, such as `trainer:prices.h100`: a number, in US dollars, or `3.20 EUR`. It"
    " comes before the annotation of the ResourceFlavor ([review a plan](../guides/review-a-plan.md)).",
    "policy": "File with the rules of the platform team ([guide](../policies.md)), below the project's folder",
    "budget": "What a team may use in a calendar month, by its LocalQueue, such as `trainer:budget.nlp`: `20000 USD` or"
    " `5000 GPU-hours`. It comes before the annotation of the LocalQueue ([review a plan](../guides/review-a-plan.md)).",
    "version": "Version of Kubeflow Trainer whose rules plans apply. Default: in mode `trainer` that of the cluster's CRDs, else"
    f" `{DEFAULT.version}`.",
}


_OF_THE_STACK = "`trainer:hardening` of the stack, else "


def configuration() -> str:
    """Return the page of the keys of a stack's configuration."""
    described = {**read_docstring(pulumi_trainer.Kubernetes)[1], **_OWN}
    described["hardening"] = read_docstring(pulumi_trainer.TrainJob)[1]["hardening"].replace(_OF_THE_STACK, "")
    rows = []
    for key in targets.KEYS:
        values = ", ".join(f"`{value}`" for value in targets.WORDS.get(key, ()))
        rows.append((f"`trainer:{key}`", values, described[key]))
    about = "Arguments of the program win over the configuration. An unknown key is an error of the plan."
    example = "```\npulumi config set trainer:target kubernetes\n```"
    return f"# Configuration of a stack\n\n{about}\n\n{_table(('key', 'values', 'meaning'), rows)}\n\n{example}\n"


def catalogue() -> str:
    """Return the page of the built-in runtimes."""
    parts = [
        "# Catalogue of runtimes",
        '`runtime="NAME"` takes the newest release, `runtime="NAME@RELEASE"` another one.',
    ]
    for entry in list_runtimes():
        name = entry["name"]
        parts.append(f"## {name}\n\n{(ROOT / 'runtimes' / name / 'README.md').read_text().strip()}")
        facts = {
            "releases": ", ".join(entry["releases"]), "framework": entry["framework"],
            "devices": ", ".join(entry["devices"]), "GPUs of a node": str(entry["gpusPerNode"] or ""), "nodes": entry["nodes"],
        }  # fmt: skip
        parts.append(_table(("", ""), [(key, value) for key, value in facts.items() if value]))
    return "\n\n".join(parts) + "\n"


SUPPORT_MARKS = (
    "<!-- support matrix: python tools/docs_reference.py writes it -->",
    "<!-- end of the support matrix -->",
)
"""The lines of docs/support.md around the table of versions."""


def write_support() -> None:
    """Write the table of versions into docs/support.md, so that it can be read without the site."""
    page = ROOT / "docs/support.md"
    before, begin, rest = page.read_text().partition(SUPPORT_MARKS[0])
    _, end, after = rest.partition(SUPPORT_MARKS[1])
    page.write_text(f"{before}{begin}\n\n{support()}\n\n{end}{after}")


def support() -> str:
    """Return the table of the products: the least version, the one that is followed, the one that tests run against."""
    rows = [(p.name, p.needed, p.least, p.followed, p.tested, "<br>".join(p.differences)) for p in UPSTREAM.values()]
    locked = _found(r"^pulumi-kubernetes==([\d.]+)", "tools/requirements.txt")
    oldest = _found(r'"pulumi-kubernetes>=([\d.]+)', "pyproject.toml")
    rows.append(("pulumi-kubernetes", "queues, PodGroups, NetworkPolicy", oldest, "", locked, ""))
    python = _found(r'^requires-python = ">=([\d.]+)', "pyproject.toml")
    rows.append(("CPython", "all", python, "", "the oldest and the newest release of the machine", ""))
    return _table(("product", "needed for", "least", "followed", "run against", "known to differ"), rows)


def _found(pattern: str, file: str) -> str:
    """Return the one match of a pattern in a file of the repository."""
    (found,) = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
    return str(found)


def with_anchors(warnings: str) -> str:
    """Return the page of warnings with an anchor for each code, such as `warnings.md#PT112`."""
    for rule in RULES:
        warnings = warnings.replace(f"| {rule.code} |", f'| <a id="{rule.code}"></a>{rule.code} |', 1)
    return warnings


if __name__ == "__main__":
    write_support()
