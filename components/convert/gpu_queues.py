"""Finds Kueue's objects that are one `GpuQueues`: a candidate counts only if it declares exactly the same objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.convert.evaluate import evaluate
from pulumi_trainer.convert.python_source import Call, Expression, literal, statement
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, section, text, without
from pulumi_trainer.provider.kueue.objects import BOUNDLESS, with_canonical_quantities
from pulumi_trainer.queues.gpus import GPU, PRIORITIES, STEP, GpuQueues
from pulumi_trainer.queues.teams import Team


@dataclass
class Group:
    """A GpuQueues and the documents that it declares. variables: Id of a document -> its expression, after the variable."""

    call: Call
    documents: list[Document]
    variables: dict[int, str]


def find_group(documents: Sequence[Document], cohort: Document) -> Group | None:
    """Return the GpuQueues of a cohort that declares the same objects as the documents; None if there is none.

    Args:
        documents: All Kueue objects, in v1beta2.
    """
    name = name_of(cohort)
    queues, flavors = list[Document](), list[Document]()
    classes, quotas = list[Document](), dict[str, dict[str, Any]]()
    for each in documents:
        if each["kind"] == "ClusterQueue" and section(each, "spec").get("cohortName") == name:
            queues.append(each)
            quotas = {**_quotas(each), **quotas}
        elif each["kind"] == "WorkloadPriorityClass":
            classes.append(each)
    for each in documents:
        if each["kind"] == "ResourceFlavor" and name_of(each) in quotas:
            flavors.append(each)
    teams, local_queues = dict[str, Any](), list[Document]()
    for queue in queues:
        own = [each for each in documents if section(each, "spec").get("clusterQueue") == name_of(queue)]
        if len(own) != 1 or name_of(queue) != f"{name}-{name_of(own[0])}":
            return None
        local_queues += own
        teams[name_of(own[0])] = _team(queue, own[0])
    covered = next(iter(quotas.values()), {})
    resource = next(iter(covered), "")
    if not teams or not flavors or not resource:
        return None
    arguments: dict[str, Any] = {"teams": teams}
    kinds = {name_of(each): section(each, "spec").get("nodeLabels") for each in flavors}
    if kinds != {name: None}:
        arguments["gpus"] = kinds
    priorities = {name_of(each): each.get("value") for each in classes}
    if priorities != {each: (place - 1) * STEP for place, each in enumerate(PRIORITIES)}:
        arguments["priorities"] = priorities
    if resource != GPU:
        arguments["resource"] = resource
    others = without(covered, resource)
    if others != without(BOUNDLESS, "pods"):
        arguments["others"] = others
    call = Call(GpuQueues, arguments, name)
    members = [*flavors, cohort, *queues, *local_queues, *classes]
    if not _declares(call, members):
        return None
    variables: dict[int, str] = {}
    for field, objects in (("queues", local_queues), ("priorities", classes)):
        for each in objects:
            variables[id(each)] = f".{field}[{literal(name_of(each))}]"
    return Group(call, members, variables)


def _quotas(queue: Document) -> dict[str, dict[str, Any]]:
    """Return flavor -> resource -> nominal quota of the first resource group."""
    found: dict[str, dict[str, Any]] = {}
    for group in mappings(section(queue, "spec").get("resourceGroups"))[:1]:
        for flavor in mappings(group.get("flavors")):
            quotas = mappings(flavor.get("resources"))
            found[text(flavor.get("name"))] = {text(each.get("name")): each.get("nominalQuota") for each in quotas}
    return found


def _team(queue: Document, local_queue: Document) -> Any:
    """Return the share of a team: its number of GPUs, or a call of Team."""
    shares, limits = dict[str, Any](), dict[str, Any]()
    for group in mappings(section(queue, "spec").get("resourceGroups"))[:1]:
        for flavor in mappings(group.get("flavors")):
            first = next(iter(mappings(flavor.get("resources"))), {})
            shares[text(flavor.get("name"))] = _number(first.get("nominalQuota"))
            limits = first
    gpus: Any = shares
    if len(shares) == 1:
        gpus = next(iter(shares.values()))
    made: dict[str, Any] = {"gpus": gpus}
    namespace = section(local_queue, "metadata").get("namespace")
    if namespace != name_of(local_queue):
        made["namespace"] = namespace
    if limits.get("borrowingLimit") is not None:
        made["borrowing"] = _number(limits["borrowingLimit"])
    if limits.get("lendingLimit") is not None:
        made["lending"] = _number(limits["lendingLimit"])
    weight = section(queue, "spec", "fairSharing").get("weight")
    if weight is not None:
        made["weight"] = weight
    if section(local_queue, "spec").get("stopPolicy") == "Hold":
        made["hold"] = True
    if len(made) == 1:
        return gpus
    return Call(Team, made)


def _number(amount: Any) -> Any:
    if str(amount).isdigit():
        return int(amount)
    return amount


def _declares(call: Call, documents: Sequence[Document]) -> bool:
    """Return whether a component declares exactly these objects."""
    try:
        declared = evaluate(f"import pulumi_trainer as trainer\n{statement('', call)}")
        made = list[Document]()
        for each in declared:
            if each.problems:
                return False
            made.append(each.document)
        return _by_key(made) == _by_key(documents)
    except (TrainerError, TypeError, ValueError, AttributeError):  # what the arguments of a guess may cause
        return False


def _by_key(documents: Iterable[Document]) -> Mapping[tuple[str, str], Any]:
    return {(each["kind"], name_of(each)): with_canonical_quantities(each) for each in documents}


def references(group: Group, variable: str) -> dict[int, Expression]:
    """Return the expressions that name the objects of a group. variable: That of the component."""
    return {place: Expression(f"{variable}{suffix}") for place, suffix in group.variables.items()}
