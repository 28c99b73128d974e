"""Asks the API server whether Pod Security of the namespace admits the Pods of a job.

Its admission plugin refuses Pods and not the JobSet that they come from, so each distinct Pod is created in a dry run. This
needs the permission to create Pods, which everybody who may create JobSets has in effect.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes import pod_security
from pulumi_trainer.provider.kubernetes.cache import dryrun
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text, without
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.trainer.labels import HARDENING

_REFUSED = "violates PodSecurity "
_WARNED = "would violate PodSecurity "
_NO_MATTER = ("serviceAccountName", "serviceAccount", "priorityClassName", "nodeName", "schedulingGates")
"""Fields that Pod Security does not read, and for which the API server would look up other objects first."""
_OF_CONTAINERS = ("image", "command", "args", "env", "resources", "volumeMounts")
_HINT = 'give the job hardening="restricted", or all jobs of the stack: pulumi config set trainer:hardening restricted'
_OWN = "change the field in the runtime or in the patch that sets it, or ask for another level of the namespace"


def judge(facts: Facts, objects: Objects, namespace: str) -> tuple[list[Problem], list[Problem]]:
    """Return what Pod Security refuses, and its warnings."""
    levels = _levels(facts.find(kinds.NAMESPACE, "", namespace))
    if levels is not None and not {"enforce", "warn"} & levels.keys():
        return [], []
    refusals: list[Problem] = []
    warnings: list[Problem] = []
    for where, spec in _pods(objects):
        answer = _answer(facts, spec, namespace)
        refusals += [p.below(where) for p in answer.refusals]
        warnings += [p.below(where) for p in answer.warnings]
        if answer.failed and levels and "enforce" in levels:
            why = f"namespace {namespace} enforces Pod Security {levels['enforce']!r}, and the Pods could not be tried"
            warnings.append(replace(answer.failed[0], where=where, why=f"{why}: {answer.failed[0].why}"))
            break
    return refusals, warnings


def hardens_jobs(client: Client, namespace: str) -> bool:
    """Return whether a namespace wants its jobs hardened; False if it cannot be read."""
    found = Facts.of(client, PLAN_SECONDS).find(kinds.NAMESPACE, "", namespace)
    return isinstance(found, dict) and section(found, "metadata", "annotations").get(HARDENING) == "restricted"


def _levels(namespace: Document | bool) -> Mapping[str, str] | None:
    """Return the levels of a namespace's labels by mode, except the one that admits everything; None if it cannot be read."""
    if namespace is False:
        return {}
    if not isinstance(namespace, dict):
        return None
    labels = section(namespace, "metadata", "labels")
    levels: dict[str, str] = {}
    for mode in ("enforce", "warn"):
        level = text(labels.get(f"{pod_security.LABEL}{mode}"))
        if level not in ("", "privileged"):
            levels[mode] = level
    return levels


def _pods(objects: Objects) -> Iterator[tuple[str, Document]]:
    """Yield path and spec of the Pods that are completely known."""
    for key, document in objects.items():
        if not key.startswith("JobSet/"):
            continue
        for job in jobs_of(document):
            if job.pod.spec and first_unknown(job.pod.spec) is None:
                yield f"{key}.{job.pod.at}", job.pod.spec


def _answer(facts: Facts, spec: Document, namespace: str) -> dryrun.Answer:
    """Return the answer for a Pod. Pods that Pod Security judges alike share one request."""
    shape = namespace, json.dumps(_relevant(spec), sort_keys=True)
    with facts.alone("pod security", shape):
        known: dryrun.Answer | None = facts.recall("pod security", shape)
        if known is None:
            known = _dry_run_pod(facts, spec, namespace)
            facts.remember("pod security", shape, known)
        return known


def _relevant(spec: Document) -> Document:
    """Return a Pod without the parts of containers and volumes in which the Pods of similar jobs differ."""
    found = dict(spec)
    for part in ("initContainers", "containers"):
        if part in spec:
            found[part] = [without(each, *_OF_CONTAINERS) for each in spec[part]]
    volumes = [{**dict.fromkeys(volume), "name": volume.get("name")} for volume in spec.get("volumes", [])]
    return {**found, "volumes": volumes}


def _dry_run_pod(facts: Facts, spec: Document, namespace: str) -> dryrun.Answer:
    metadata = {"name": f"pod-security-{secrets.token_hex(4)}", "namespace": namespace}
    tried = {**without(spec, *_NO_MATTER), "automountServiceAccountToken": False}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": tried}
    heard: list[str] = []
    hint = _OWN
    if {*pod_security.violations(spec)} - {*pod_security.violations(pod_security.harden(spec))}:
        hint = _HINT
    try:
        facts.client.within(dryrun.WEBHOOK_SECONDS).create(kinds.POD, pod, dry_run=True, warnings=heard)
    except ApiError as error:
        _, refused, reasons = error.message.partition(_REFUSED)
        if refused:
            return dryrun.Answer(refusals=(Problem("", f"{refused}{reasons}", hint, "FieldValueForbidden"),))
        if "exceeded quota" in error.message:  # checked after Pod Security
            return dryrun.Answer()
        return dryrun.Answer(failed=(_not_checked(error, namespace),))
    except TargetFault as fault:
        return dryrun.Answer(failed=tuple(fault.problems))
    return dryrun.Answer(warnings=tuple(Problem("", text_, hint) for text_ in heard if text_.startswith(_WARNED)))


def _not_checked(error: ApiError, namespace: str) -> Problem:
    hint = ""
    if error.code == 403 and " cannot create " in error.message:
        hint = f"have the permission granted to create Pods: pulumi-trainer rbac -n {namespace} prints the Role"
    return Problem("", dryrun.brief(error.message), hint)
