"""Brings documents to the newest API: without what servers write, with the fields that took the place of removed ones."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.convert.defaults import without_defaults
from pulumi_trainer.convert.python_source import marker
from pulumi_trainer.plan.runtime_ref import API_VERSION
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    mappings,
    name_of,
    only,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, dns_1123_subdomain
from pulumi_trainer.provider.kueue.objects import GROUP, NEWEST

OVERRIDES = ("podTemplateOverrides", "podSpecOverrides")
"""Fields of Trainer 2.1 and 2.0 with changes of Pods; runtimePatches took their place, and that of `labels` and `annotations`."""
_OF_TORCH = {
    "numProcPerNode": "give TrainJobs num_proc_per_node; without it a node has a process for each GPU",
    "elasticPolicy": "the number of nodes is fixed",
}
"""Removed fields of the policy for PyTorch -> what takes their place."""
NO_NAME = "give the object a name; generateName has no counterpart"
PLACE = ("name", "namespace")
"""Fields of metadata that name an object."""
_OWN_METADATA = ("name", "namespace", "labels", "annotations")
_BY_SERVERS = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "finalizers",
)  # fmt: skip
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def upgraded(document: Document, notes: list[str]) -> Document:
    """Return a document in the newest API, and append what was changed. Raises Invalid.

    Args:
        notes: What the command reports of this object.
    """
    made = without(copy.deepcopy(document), "status")
    made["metadata"] = _metadata(section(document, "metadata"))
    if made["apiVersion"].startswith(f"{GROUP}/") and made["apiVersion"] != f"{GROUP}/{NEWEST}":
        notes.append(f"{made['apiVersion']} became {GROUP}/{NEWEST}")
        made["apiVersion"] = f"{GROUP}/{NEWEST}"
        made["spec"] = _queue_spec(made["kind"], dict(section(made, "spec")))
        if made["kind"] == "WorkloadPriorityClass":
            del made["spec"]
    if made["kind"] == "TrainJob":
        spec = section(made, "spec")
        for name in only(spec, (*OVERRIDES, "labels", "annotations")):
            notes.append(f"spec.{name}, which Trainer has removed, became runtimePatches")
        _patch_overrides(spec)
        if section(spec, "trainer").get("numProcPerNode") == "auto":
            del spec["trainer"]["numProcPerNode"]
            notes.append("numProcPerNode auto, which Trainer has removed, is left out: it is the default")
    torch = section(made, "spec", "mlPolicy", "torch")
    for name, instead in _OF_TORCH.items():
        if made["kind"].endswith("Runtime") and torch.pop(name, None) is not None:
            notes.append(f"mlPolicy.torch.{name}, which Trainer has removed, is left out: {instead}")
    hide_secrets(made, mappings(section(made, "spec", "trainer").get("env")), notes)
    return without_defaults(made)


def derived(kind: str, document: Document, metadata: Iterable[str]) -> Document:
    """Return a document without spec that takes the place of another one, with some of its metadata."""
    about = only(section(document, "metadata"), [*metadata])
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": about}


def _metadata(about: Document) -> Document:
    found = only(about, _OWN_METADATA)
    if not text(found.get("name")):
        raise Invalid(Problem("metadata.name", "is missing", NO_NAME))
    check_place(found)
    other = [*without(about, *_OWN_METADATA, *_BY_SERVERS)]
    if other:
        raise Invalid(Problem(f"metadata.{other[0]}", "has no counterpart in a program", "leave it out"))
    if _LAST_APPLIED in section(found, "annotations"):
        found["annotations"] = without(found["annotations"], _LAST_APPLIED)
    return {name: value for name, value in found.items() if value}


def check_place(about: Document) -> None:
    """Raise Invalid if name or namespace of an object are not valid: files and resources get these names."""
    problems = [Problem("metadata.name", why) for why in dns_1123_subdomain(text(about.get("name")))]
    if about.get("namespace") is not None:
        problems += [Problem("metadata.namespace", why) for why in dns_1123_label(text(about["namespace"]))]
    if problems:
        raise Invalid(*problems)


def _queue_spec(kind: str, spec: Document) -> Document:
    """Return the spec of a Kueue object of v1beta1 or v1alpha1 in v1beta2."""
    for old, new in (("cohort", "cohortName"), ("parent", "parentName")):
        if old in spec and kind in ("ClusterQueue", "Cohort"):
            spec[new] = spec.pop(old)
    names = spec.pop("admissionChecks", None)
    if kind == "ClusterQueue" and names:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in names]}
    fungibility = section(spec, "flavorFungibility")
    for field, old in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if fungibility.get(field) == old:
            fungibility[field] = "MayStopSearch"
    if kind == "MultiKueueCluster" and "kubeConfig" in spec:
        spec["clusterSource"] = {"kubeConfig": spec.pop("kubeConfig")}
    if kind == "AdmissionCheck":
        spec.pop("retryDelayMinutes", None)
    return spec


def _patch_overrides(spec: Document) -> None:
    """Replace the overrides of a TrainJob by runtime patches, and env of the trainer's container by that of the trainer."""
    patches = [*mappings(spec.get("runtimePatches"))]
    for name in OVERRIDES:
        for override in mappings(spec.pop(name, None)):
            pod = only(override, ("metadata", "spec"))
            if name == "podSpecOverrides":
                pod = {"spec": without(override, "targetJobs")}
            _move_env(section(pod, "spec"), spec)
            jobs = [
                {"name": job.get("name"), "template": {"spec": {"template": pod}}}
                for job in mappings(override.get("targetJobs"))
            ]
            manager = f"pulumi-trainer.dev/converted-{len(patches) + 1}"
            template = {"spec": {"replicatedJobs": jobs}}
            patches.append({"manager": manager, "trainingRuntimeSpec": {"template": template}})
    about = only(spec, ("labels", "annotations"))
    if about:
        manager = f"pulumi-trainer.dev/converted-{len(patches) + 1}"
        patches.append({"manager": manager, "trainingRuntimeSpec": {"template": {"metadata": about}}})
    for name in about:
        del spec[name]
    if patches:
        spec["runtimePatches"] = patches


def _move_env(pod: Document, spec: Document) -> None:
    for container in mappings(pod.get("containers")):
        if container.get("name") == "node" and "env" in container:
            trainer = spec.setdefault("trainer", {})
            overridden = mappings(container.pop("env"))
            names = {variable.get("name") for variable in overridden}
            kept = [each for each in mappings(trainer.get("env")) if each.get("name") not in names]
            trainer["env"] = [*kept, *overridden]


def hide_secrets(document: Document, variables: Iterable[Document], notes: list[str]) -> None:
    """Replace the plain-text secrets in variables by markers. Raises Invalid for those elsewhere in the document.

    Args:
        variables: The variables of the document that become those of a TrainJob; a runtime has no secrets.
        notes: What the command reports of this object.
    """
    for variable in variables:
        if plaintext_secrets.problems([variable], "env"):
            key = secret_key(name_of(document), text(variable.get("name")))
            variable["value"] = marker(key)
            note = f"env {variable['name']} was a secret in plain text. Set it: `pulumi config set --secret {key}`"
            if note not in notes:
                notes.append(note)
    shown = {
        "spec": document.get("spec"),
        "data": document.get("data"),
        "metadata": without(section(document, "metadata"), "name", "namespace"),
    }
    found = plaintext_secrets.problems(shown, "")
    if found:
        why = f"holds a secret in plain text at {found[0].where}"
        hint = "put it into a Secret: variables refer to it by valueFrom.secretKeyRef, arguments by $(NAME) of such a variable"
        raise Invalid(Problem("", why, hint))


def secret_key(job: str, variable: str) -> str:
    """Return the key of the stack's configuration for a secret variable of a job."""
    return re.sub(r"[^a-z0-9]+", "-", f"{job}-{variable}".lower()).strip("-")


def is_marked(value: Any) -> bool:
    """Return whether a value stands for a secret."""
    return isinstance(value, str) and value.startswith("<secret ")
