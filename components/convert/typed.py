"""Turns parts of documents into calls of the typed arguments, by the fields that these classes declare."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pulumi_trainer.args import template
from pulumi_trainer.args.arguments import Args, nested_problems
from pulumi_trainer.args.field_types import field_types
from pulumi_trainer.args.naming import camel, schema_at
from pulumi_trainer.args.patches import ContainerPatch, JobPatch, PodPatch, RuntimePatch
from pulumi_trainer.args.policies import EnvInjectionTarget, MLPolicy, PlainPolicy, PodGroupPolicy, TorchPolicy
from pulumi_trainer.args.template import JobSetTemplate, ReplicatedJob
from pulumi_trainer.args.trainers import ALIASES, Trainer
from pulumi_trainer.convert.python_source import Call, Range, Secret
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.accessors import Document, only, section, text, without
from pulumi_trainer.provider.trainer.labels import ANCESTOR
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE

_ITEMS: Mapping[tuple[type, str], type[Args]] = {
    (template.PodFailurePolicyRule, "on_pod_conditions"): template.OnPodCondition,
    (template.PodFailurePolicy, "rules"): template.PodFailurePolicyRule,
    (template.FailurePolicy, "rules"): template.FailurePolicyRule,
    (ReplicatedJob, "depends_on"): template.DependsOn,
    (JobSetTemplate, "replicated_jobs"): ReplicatedJob,
    (TorchPolicy, "env_injection"): EnvInjectionTarget,
    (RuntimePatch, "jobs"): JobPatch,
    (PodPatch, "containers"): ContainerPatch,
    (PodPatch, "init_containers"): ContainerPatch,
}
"""Class and field -> class of the field's items."""


class Untyped(Exception):  # a part goes without classes then
    """No class has all fields of a part of a document."""


def call_of(cls: type[Args], document: Any) -> Call:
    """Return a call of a class whose document is the given one. Raises Untyped."""
    rest = copy.deepcopy(_flattened(cls, document))
    call = Call(cls)
    for field in cls.fields:
        if field in cls.shipped:
            continue
        value = _take(rest, cls.paths.get(field, camel(field)).split("."))
        if value is not None:
            call.arguments[field] = _argument(cls, field, value)
    if _leaves(rest):
        raise Untyped(cls.__name__)
    return call


def exact_call(cls: type[Args], document: Any) -> Call:
    """Return a call of a class, built and compared with the document. Raises Untyped if they differ."""
    call = call_of(cls, document)
    made = build(call)
    if made.document() != document or nested_problems(made):
        raise Untyped(cls.__name__)
    return call


def build(value: Any) -> Any:
    """Return the object that the source of a call creates; other values stay."""
    if isinstance(value, Call):
        return value.cls(**build(value.arguments))
    if isinstance(value, Range):
        return [*range(value.first, value.last + 1)]
    if isinstance(value, dict):
        return {key: build(each) for key, each in value.items()}
    if isinstance(value, list):
        return [*map(build, value)]
    return value


def ml_policy(document: Any) -> Any:
    """Return the argument `ml_policy`: a call of a policy's class, or the document."""
    known = {each.framework: each for each in MLPolicy.__subclasses__() if each.framework}
    frameworks = [*only(section({"": document}, ""), known)]
    cls: type[Args] = PlainPolicy
    own: Any = document
    if len(frameworks) == 1:
        cls = known[frameworks[0]]
        own = {**without(document, frameworks[0]), **section(document, frameworks[0])}
    return _call_or_document(cls, own, document)


def pod_group_policy(document: Any) -> Any:
    """Return the argument `pod_group_policy`: a call of a policy's class, or the document."""
    for cls in PodGroupPolicy.__subclasses__():
        if cls.scheduler and isinstance(document, dict) and [*document] == [cls.scheduler]:
            return _call_or_document(cls, section(document, cls.scheduler), document)
    return document


def _call_or_document(cls: type[Args], own: Any, document: Any) -> Any:
    try:
        call = call_of(cls, own)
        if build(call).document() == document:
            return call
    except Untyped:
        pass
    return document


def jobset_template(document: Any) -> Any:
    """Return the argument `template`: a call of JobSetTemplate, or the document."""
    try:
        return exact_call(JobSetTemplate, document)
    except Untyped:
        return document


def runtime_patch(document: Any) -> Any:
    """Return an item of `runtime_patches`: a call of RuntimePatch, or the document."""
    try:
        return exact_call(RuntimePatch, document)
    except Untyped:
        return document


def env(variables: Any) -> Any:
    """Return variables as a mapping if all have a value and each is named once; else as the list of the API."""
    if not isinstance(variables, list):
        return variables
    found: dict[str, Any] = {}
    for each in variables:
        is_plain = isinstance(each, dict) and each.keys() == {"name", "value"} and isinstance(each["name"], str)
        if not is_plain or each["name"] in found or not isinstance(each["value"], (str, Secret)):
            return python_names(schema_at("TrainJob.spec.trainer.env"), variables)
        found[each["name"]] = each["value"]
    return found


def resources(document: Any) -> Any:
    """Return resources in the short form if the limits equal the requests; else as the API has them."""
    limits = section({"": document}, "").get("limits")
    if not isinstance(limits, dict) or not limits or document != {"limits": limits, "requests": limits}:
        return document
    short: dict[str, str] = dict(zip(ALIASES.values(), ALIASES, strict=True))
    found: dict[str, Any] = {}
    for name, amount in limits.items():
        found[short.get(str(name), str(name))] = amount
    made = Trainer(resources_per_node=found)
    if made.document() != {"resourcesPerNode": document} or made.check():
        return document
    return found


def python_names(schema: Schema | None, value: Any) -> Any:
    """Return a part of a document with Python's names for the fields of the schema: `volumeMounts` -> `volume_mounts`."""
    if schema is None:
        return value
    if isinstance(value, list):
        return [*map(partial(python_names, schema.items), value)]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, each in value.items():
        name = key
        if key in schema.properties:
            name = snake_case(key)
        found[name] = python_names(schema.properties.get(key), each)
    return found


def snake_case(name: str) -> str:
    """Return a field of the API in snake_case: `hostIPs` -> `host_ips`, `enableDNSHostnames` -> `enable_dns_hostnames`."""
    words = re.sub(r"(?<=[a-z0-9])([A-Z]+s?(?=[A-Z][a-z]|$)|[A-Z])", r"_\1", name)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-rt-z])", "_", words).lower()


def _argument(cls: type[Args], field: str, value: Any) -> Any:
    """Return the value of a field as source has it. Raises Untyped."""
    item = _ITEMS.get((cls, field))
    if item is not None:
        if not isinstance(value, list):
            raise Untyped(field)
        return [*map(partial(call_of, item), value)]
    if field == "env":
        return env(value)
    if cls is template.OnExitCodes and isinstance(value, list) and len(value) > _LONG and _are_consecutive(value):
        return Range(value[0], value[-1])
    for part in field_types(cls)[field].classes:
        if isinstance(part, type) and issubclass(part, Args):
            return call_of(part, value)
    if not cls.api:
        return value
    if cls is ReplicatedJob and field == "pod_spec":
        return python_names(schema_at(f"{cls.api}.template.spec"), value)
    declared = schema_at(cls.api)
    for name, schema in (declared.items or declared).properties.items():
        if name.lower() == camel(field).lower():
            return python_names(schema, value)
    return value


def _are_consecutive(values: list[Any]) -> bool:
    return all(isinstance(each, int) for each in values) and values == [*range(values[0], values[-1] + 1)]


_LONG = 10
"""A longer list of consecutive numbers is written as a range."""


def _take(document: Any, path: list[str]) -> Any:
    """Remove the value at a path from a document and return it; None if not found. Upper and lower case count as equal."""
    *above, last = path
    for step in above:
        document = section({"": document}, "").get(step)
    if not isinstance(document, dict):
        return None
    for key in document:
        if isinstance(key, str) and key.lower() == last.lower():
            return document.pop(key)
    return None


def _leaves(value: Any) -> bool:
    """Return whether anything but empty levels is left of a document."""
    if isinstance(value, dict):
        return any(map(_leaves, value.values()))
    return True


def _flattened(cls: type[Args], document: Any) -> Document:
    """Return the fields of a class at one level, as its constructor takes them. Raises Untyped."""
    if not isinstance(document, dict):
        raise Untyped(cls.__name__)
    flatten = _FLATTEN.get(cls)
    if flatten is None:
        return document
    found = flatten(document)
    return {name: value for name, value in found.items() if value is not None}


def _of_template(document: Document) -> Document:
    about = section(document, "metadata")
    _only(document, "metadata", "spec")
    _only(about, "labels", "annotations")
    return {**section(document, "spec"), "labels": about.get("labels"), "annotations": about.get("annotations")}


_ANCESTORS = {NODE: "trainer", DATASET_INITIALIZER: DATASET_INITIALIZER, MODEL_INITIALIZER: MODEL_INITIALIZER}
"""Replicated job -> default of its ancestor."""


def _of_replicated_job(document: Document) -> Document:
    made = section(document, "template")
    job = section(made, "spec")
    pod = section(job, "template")
    about, pod_about = section(made, "metadata"), section(pod, "metadata")
    _only(made, "metadata", "spec")
    _only(about, "labels", "annotations")
    _only(pod, "metadata", "spec")
    _only(pod_about, "labels", "annotations")
    labels = dict(section(about, "labels"))
    ancestor = labels.pop(ANCESTOR, None)
    if ancestor == _ANCESTORS.get(text(document.get("name"))):
        ancestor = None
    return {
        **without(document, "template"),
        "ancestor": ancestor,
        "labels": labels or None,
        "annotations": about.get("annotations"),
        "podLabels": pod_about.get("labels"),
        "podAnnotations": pod_about.get("annotations"),
        **without(job, "template"),
        "podSpec": pod.get("spec"),
    }


def _of_pod(document: Document) -> Document:
    about = section(document, "metadata")
    _only(document, "metadata", "spec")
    _only(about, "labels", "annotations")
    return {"labels": about.get("labels"), "annotations": about.get("annotations"), **section(document, "spec")}


def _only(document: Document, *names: str) -> None:
    """Raise Untyped if a part has other fields."""
    if not document.keys() <= {*names}:
        raise Untyped(", ".join(map(str, document)))


_FLATTEN: Mapping[type, Callable[[Document], Document]] = {
    JobSetTemplate: _of_template,
    ReplicatedJob: _of_replicated_job,
    PodPatch: _of_pod,
}
