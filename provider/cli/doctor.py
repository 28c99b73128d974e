"""`doctor`: lists what a cluster or this machine has of a stack and its state does not, and the reverse. It changes nothing."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.jobs.status import Owner, may_have_ended
from pulumi_trainer.provider.kubernetes.hand_edits import edits_text, find_edits
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, text
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.objects import GROUP
from pulumi_trainer.provider.lifecycle.ownership import (
    ADOPT,
    JOB,
    VOLUME,
    Expected,
    Finding,
    Found,
    compare,
    pending_creation,
)
from pulumi_trainer.provider.lifecycle.runtimes import changed_by_others
from pulumi_trainer.provider.service import stack as stacks
from pulumi_trainer.provider.service.reach import COMMAND_SECONDS, Where, show_warning
from pulumi_trainer.provider.service.trust import kubeconfig_check
from pulumi_trainer.provider.targets import connection
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.trainer.labels import MADE_BY, random_of_mark

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

_MARK = f"{stacks.DYNAMIC}StackMark"
_TARGETS = (f"{stacks.DYNAMIC}Target", f"{stacks.DYNAMIC}JobSet", f"{stacks.DYNAMIC}Volume", f"{stacks.DYNAMIC}Runtime")
_GUARD = f"{stacks.DYNAMIC}ObjectGuard"
_QUEUE_GUARD = f"{stacks.DYNAMIC}QueueGuard"


@dataclass
class _Place:
    """A target of the stack. namespaces, labels: Those that the state names."""

    where: str
    target: LocalTarget | KubernetesTarget
    kubectl: str = "kubectl"
    namespaces: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)

    @property
    def label(self) -> str:
        """The label of the stack there; empty if it has none yet, or several."""
        if len(self.labels) != 1:
            return ""
        return next(iter(self.labels))


def doctor(where: Where, *, output: str) -> int:
    """Print what differs between a stack's state and its targets, and return the exit code: 1 if something does.

    Args:
        where: The options of the command; those that name a cluster replace the connection that the state has.
    """
    state = stacks.read_state(where.stack or None, where.project)
    settings = {**stacks.configured(where.stack or None, where.project)}
    if where.kubeconfig:
        settings["kubeconfig"] = where.kubeconfig
    if where.context:
        settings["context"] = where.context
    connection.configure(settings)
    connection.warn_with(show_warning)
    places = _places(state.resources, where, state.local_root)
    expected = [*_expected(state.resources, places)]
    random = _random_of_stack(state.resources)
    found: list[Found] = []
    unread: set[tuple[str, str]] = set()
    for place in places.values():
        if isinstance(place.target, LocalTarget):
            found += _on_this_machine(place)
            continue
        from pulumi_trainer.provider.targets.kubernetes.observe.owned_objects import list_owned

        client = place.target.client.within(COMMAND_SECONDS)
        namespaces = [""]
        if not where.everywhere:
            namespaces = sorted({*place.namespaces, where.namespace} - {""})
        owned = list_owned(client, place.where, namespaces, state.program, place.kubectl, place.label, random)
        found += owned.objects
        unread |= {(place.where, kind) for kind in owned.unread}
    labels = {random}
    for place in places.values():
        labels |= place.labels
    labels.discard("")
    findings = [*compare(expected, found, labels, state.program, unread), *map(pending_creation, state.creating)]
    if output != "table":
        listed = [each.to_dict() for each in findings]
        print_data({"findings": listed, "unseen": _names(sorted(unread))}, output)
    else:
        seen = [each for each in expected if (each.where, each.kind) not in unread]
        _print(findings, state.program, sorted(unread), seen, len(expected))
        _print_not_compared(state.resources)
    return 1 if findings else 0


def _random_of_stack(resources: Sequence[Mapping[str, Any]]) -> str:
    """Return the random part of the stack's mark; empty if the state has no mark."""
    for each in resources:
        if each["type"] == _MARK:
            return text(section(each, "outputs").get("random"))
    return ""


def _names(unread: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of kinds that could not be listed, with their places."""
    return [f"{kind} of {place}" for place, kind in unread]


def _print(
    findings: Sequence[Finding],
    program: str,
    unread: Sequence[tuple[str, str]],
    seen: Sequence[Expected],
    expected: int,
) -> None:
    for each in findings:
        name = "/".join(filter(None, (each.namespace, each.name)))
        resource = ""
        if each.resource and each.resource != each.name:
            resource = f" ({each.resource})"
        print_line(f"{each.kind} {name}{resource} in {each.where}: {each.message}")
        for effect, command in each.settle:
            print_line(f"  {command}  # {effect}")
    if unread:
        print_line(f"not seen: {', '.join(_names(unread))} (no permission to list them)")
    if findings:
        return
    if not seen:
        print_line(f"None of the {expected} objects in the state of {program} could be checked.")
        return
    of, compared = f"{len(seen)} of the {expected}", sum(each.changes is not None for each in seen)
    if len(seen) == expected:
        of = f"All {expected}"
    line = f"{of} objects in the state of {program} exist and belong to it"
    if compared:
        line += f"; {compared} of them were compared with what was applied, and are unchanged"
    print_line(f"{line}.")


def _print_not_compared(resources: Sequence[Mapping[str, Any]]) -> None:
    """Print how many objects of the stack the command does not compare, by kind."""
    kinds = Counter[str]()
    for each in resources:
        kind = str(each["type"])
        is_ours = MADE_BY in section(each, "inputs", "metadata", "annotations")
        if is_ours and kind.startswith("kubernetes:") and not kind.startswith(f"kubernetes:{GROUP}/"):
            kinds[kind.rpartition(":")[2]] += 1
    if kinds:
        names = join_names([f"{kind} ({count})" for kind, count in sorted(kinds.items())])
        print_line(f"not compared: {names}; `pulumi preview` compares them")


def _places(resources: Sequence[Mapping[str, Any]], where: Where, local_root: str) -> dict[str, _Place]:
    """Return the targets in the state, by the input `target` without label and namespace."""
    places: dict[str, _Place] = {}
    check = kubeconfig_check(where.project, where.kubeconfig)
    clusters, named = _recorded_clusters(resources), _named_connection(where)
    for each in resources:
        given = section(each, "inputs", "target")
        if each["type"] in (*_TARGETS, _GUARD) and given:
            reached = {**given, **clusters.get(_key(given), {})}
            if "cluster" not in reached:
                reached |= named
            place = places.setdefault(_key(given), _place(reached, check))
            namespaces = (given.get("namespace"), section(each, "inputs").get("namespace"))
            place.namespaces |= {name for name in namespaces if isinstance(name, str)}
            sweeps = (given.get("sweep"), section(each, "outputs").get("sweep"))
            place.labels |= {label for label in sweeps if isinstance(label, str) and label}
    if places or where.cluster or not local_root:
        return places or {"": _place({"kind": "kubernetes", "namespace": where.namespace or "default"}, check)}
    return {"": _place({"kind": "local", "root": local_root}, check)}


def _named_connection(where: Where) -> dict[str, str]:
    """Return the connection that the command names, for targets of which no cluster is recorded."""
    if where.kubeconfig:
        return {"kubeconfig": where.kubeconfig, "context": where.context or "", "content": ""}
    if where.context:
        return {"context": where.context}
    return {}


def _recorded_clusters(resources: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the UID of the cluster of each target as a setting: another connection counts only if it leads there."""
    found: dict[str, dict[str, str]] = {}
    for each in resources:
        outputs = section(each, "outputs")
        cluster = text(section(outputs, "target").get("cluster")) or text(outputs.get("cluster"))
        if each["type"] in (*_TARGETS, _QUEUE_GUARD) and cluster:
            found[_key(section(each, "inputs", "target"))] = {"cluster": cluster}
    return found


def _key(target: Mapping[str, Any]) -> str:
    parts = ("kind", "host", "root", "cluster", "kubeconfig", "context", "content")
    return json.dumps({part: target.get(part) for part in parts}, sort_keys=True)


def _place(given: Mapping[str, Any], check: Callable[[str], None]) -> _Place:
    target = connection.connect(given, check)
    if isinstance(target, LocalTarget):
        return _Place(str(target.root), target)
    context, kubeconfig = given.get("context"), given.get("kubeconfig")
    command = ["kubectl"]
    if isinstance(kubeconfig, str) and kubeconfig:
        command.append(f"--kubeconfig {shlex.quote(kubeconfig)}")
    if isinstance(context, str) and context:
        command.append(f"--context {shlex.quote(context)}")
    where = f"the cluster of context {context}" if context else "the cluster"
    return _Place(where, target, " ".join(command))


def _expected(resources: Sequence[Mapping[str, Any]], places: Mapping[str, _Place]) -> Iterator[Expected]:
    """Yield the jobs, volumes, runtimes and Kueue objects in the state."""
    clusters = [each.where for each in places.values() if not isinstance(each.target, LocalTarget)]
    guarded = _place_of_objects(resources, places)
    for each in resources:
        inputs, outputs = section(each, "inputs"), section(each, "outputs")
        resource, kind = str(each["urn"]).rpartition("::")[2], str(each["type"])
        if kind.startswith(f"kubernetes:{GROUP}/") and clusters:
            yield _queue(each, resource, guarded.get(str(each["urn"]), clusters[0]))
            continue
        target = section(inputs, "target")
        if kind not in _TARGETS[1:] or not target:
            continue
        where = places[_key(target)].where
        label = text(section(outputs, "target").get("sweep")) or text(target.get("sweep"))
        name, namespace = text(inputs.get("name")), text(inputs.get("namespace"))
        if kind == _TARGETS[1]:
            owner = Owner(text(inputs.get("owner")), label)
            lost = target.get("kind") == "local" and may_have_ended(text(outputs.get("phase")))
            yield Expected(where, JOB, namespace, name, resource, owner, text(outputs.get("uid")), stays_gone=lost)
        elif kind == _TARGETS[2]:
            owner = Owner("", label)
            yield Expected(where, VOLUME, namespace, name, resource, owner, text(outputs.get("generation")))
        else:
            document = section(inputs, "document")
            metadata = section(document, "metadata")
            name, namespace = text(metadata.get("name")), text(metadata.get("namespace"))
            owner = Owner(text(inputs.get("owner")), label)
            at = where, text(document.get("kind")), namespace, name
            changes = partial(_changes_of_runtime, places[_key(target)].target, document, owner)
            yield Expected(*at, resource, owner, text(outputs.get("uid")), changes=changes)


def _place_of_objects(resources: Sequence[Mapping[str, Any]], places: Mapping[str, _Place]) -> dict[str, str]:
    """Return the cluster of each object of pulumi-kubernetes by its URN: that of the guard that was created after it."""
    found = dict[str, str]()
    for each in resources:
        target = section(each, "inputs", "target")
        if each["type"] == _GUARD and target:
            found |= dict.fromkeys(map(str, listed(each.get("dependencies"))), places[_key(target)].where)
    return found


def _queue(each: Mapping[str, Any], resource: str, where: str) -> Expected:
    """Return an object of Kueue's in the state. Its owner is the stack, by its name and the random part of its mark."""
    namespace, _, name = str(each.get("id", "")).rpartition("/")
    mark = text(section(each, "inputs", "metadata", "annotations").get(MADE_BY))
    owner = Owner(program_of(str(each["urn"])), random_of_mark(mark))
    kind = str(each["type"]).rpartition(":")[2]
    applied, wanted = section(each, "outputs"), section(each, "inputs")

    def changes(live: Mapping[str, Any]) -> str:
        return edits_text(find_edits(applied, live, wanted))

    return Expected(where, kind, namespace, name, resource, owner, changes=changes)


def _changes_of_runtime(target: Any, document: Mapping[str, Any], owner: Owner, _: Mapping[str, Any]) -> str:
    """Return what others have changed in a runtime, as its preview would say it."""
    return changed_by_others(target.runtimes.edited(document, document, owner.id, owner.stack) or [])


def _on_this_machine(place: _Place) -> list[Found]:
    """Return the jobs and volumes below the root of a target."""
    assert isinstance(place.target, LocalTarget)
    found = []
    for job in place.target.jobs.list_all():
        folder = place.target.root / "jobs" / job.namespace / job.name
        delete = f"rm -r {shlex.quote(str(folder))}"
        if not job.terminal:
            delete = f"(it is {job.phase}; once it has ended) {delete}"
        fault = job.message if job.record_lost else ""
        at = (place.where, JOB, job.namespace, job.name)
        found.append(Found(*at, job.whose, job.uid, delete, ADOPT, fault=fault))
    for namespace, name, stack, generation in place.target.volumes.owned():
        folder = place.target.root / "volumes" / namespace / name
        delete = f"rm -r {shlex.quote(str(folder))}"
        found.append(Found(place.where, VOLUME, namespace, name, Owner("", stack), generation, delete))
    return found
