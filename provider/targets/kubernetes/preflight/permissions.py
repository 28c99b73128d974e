"""Checks whether the credentials have the permissions that a job needs, with one SelfSubjectRulesReview per namespace.

If the server cannot list all rules (`incomplete`: it has authorizers other than RBAC), each missing permission is checked by
itself. `rbac` has the table of permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.cache.discovery import Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac, versions
from pulumi_trainer.provider.trainer.admission.referents import queue_name
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

Rule = Mapping[str, Any]
"""A PolicyRule of RBAC: apiGroups, resources, verbs, resourceNames."""


def missing(facts: Facts, namespace: str, draft: Draft) -> list[Problem]:
    """Return one problem that lists all permissions that a job needs and the credentials lack."""
    status = facts.rules(namespace)
    rules = status.get("resourceRules") or []
    lacking: list[Rule] = []
    for rule in split_rules(p.rule for p in needed_permissions(draft)):
        if not is_covered(rule, rules):
            lacking.append(rule)
    if status.get("incomplete"):
        lacking = [rule for rule in lacking if not facts.allowed(namespace, *_asked(rule))]
    if not lacking:
        return []
    why = f"the credentials may not {'; '.join(_words(lacking))} in namespace {namespace}"
    hint = "have these permissions granted: `pulumi-trainer rbac` prints the Role and its binding"
    return [Problem("permissions", why, hint)]


def needed_permissions(draft: Draft) -> list[rbac.Permission]:
    """Return the permissions that this job needs; a role may grant fewer than the printed one, which is for all jobs."""
    objects = {**draft.made, **draft.objects}
    used = {*filter(None, map(versions.known_kind, objects.values()))}
    used |= {kinds.CONFIG_MAP, JOBSET, kinds.JOB, kinds.POD, kinds.NAMESPACE}
    if queue_name(objects):
        used.add(WORKLOAD)
    if draft.secrets:
        used.add(kinds.SECRET)
    if any(key.startswith("PersistentVolumeClaim/") for key in draft.promised):
        used.add(kinds.CLAIM)
    mode: rbac.Mode = "trainer" if TRAIN_JOB in used else "jobset"
    return [p for p in rbac.job_permissions(mode, queues=WORKLOAD in used) if p.kind in used and not p.helps]


def split_rules(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield each rule as rules of one verb for one resource and at most one name."""
    for rule in rules:
        names = rule.get("resourceNames") or [""]
        for group, resource, verb, name in product(rule["apiGroups"], rule["resources"], rule["verbs"], names):
            single = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
            if name:
                single["resourceNames"] = [name]
            yield single


def is_covered(wanted: Rule, rules: Iterable[Rule]) -> bool:
    """Return whether rules allow a single rule of `split_rules`."""
    group, resource, verb, name = _asked(wanted)
    resources = {"*", resource}
    _, slash, subresource = resource.partition("/")
    if slash:
        resources.add(f"*/{subresource}")
    for rule in rules:
        matches_name = not rule.get("resourceNames") or name in rule["resourceNames"]
        if (
            matches_name
            and {verb, "*"} & set(rule.get("verbs") or ())
            and {group, "*"} & set(rule.get("apiGroups") or ())
            and resources & set(rule.get("resources") or ())
        ):
            return True
    return False


def _asked(rule: Rule) -> tuple[str, str, str, str]:
    (group,), (resource,), (verb,) = rule["apiGroups"], rule["resources"], rule["verbs"]
    return group, resource, verb, (rule.get("resourceNames") or [""])[0]


def _words(rules: Iterable[Rule]) -> Iterator[str]:
    """Yield rules as text, for example "create, patch jobsets.jobset.x-k8s.io"."""
    verbs: dict[str, list[str]] = {}
    for group, resource, verb, name in map(_asked, rules):
        of = resource
        if group:
            of = f"{resource}.{group}"
        verbs.setdefault(f"{of} {name}".strip(), []).append(verb)
    for resource, found in verbs.items():
        yield f"{', '.join(dict.fromkeys(found))} {resource}"
