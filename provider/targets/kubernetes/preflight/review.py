"""What a cluster has against a job before it is created: asked in previews, and by the program in an `up`.

`review` is for the program: what is missing is an error, unless the program makes it before the job. `missing` is for the moment
of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from pulumi_trainer.provider.admission.rules import PREDICATES
from pulumi_trainer.provider.api.kinds import TRAIN_JOB
from pulumi_trainer.provider.api.submission import ANYTHING, Draft, Objects, main_key
from pulumi_trainer.provider.kube.cache import dryrun
from pulumi_trainer.provider.kube.cache.discovery import PATIENCE, Facts
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import Client
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.schema import openapi
from pulumi_trainer.provider.kube.values.accessors import rows, section
from pulumi_trainer.provider.kube.values.unknown import first_unknown
from pulumi_trainer.provider.kueue import rules as kueue
from pulumi_trainer.provider.kueue.job_webhook import unmanaged
from pulumi_trainer.provider.kueue.resources import LOCAL_QUEUE
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import adoption
from pulumi_trainer.provider.targets.kubernetes.jobs import record as records
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.preflight import (
    multikueue,
    permissions,
    schedulers,
    versions,
)
from pulumi_trainer.provider.targets.kubernetes.preflight.referents import Referent, referents
from pulumi_trainer.provider.targets.kubernetes.storage import claims

Found = tuple[list[Problem], list[Problem]]
"""Refusals and warnings."""
Lack = tuple[bool, Problem]
"""What is missing, and whether that is certain: a dependency of the job may make it."""
Find = Callable[[Kind, str, str], Any]

_CREATE = "create it, or let the TrainJob depend on it (depends_on)"


def review(
    client: Client, draft: Draft, record: Record | None = None, *, unfinished: bool = False, absent: bool = False
) -> Found:
    """Return what the cluster refuses, and what it warns of; without a cluster that it cannot be asked, and why.

    Args:
        record: The job's, if it has one. With the same digest the job is unchanged, and nothing is asked for it.
        unfinished: Whether a run of the job goes on, which an `up` can only change in place unless it may interrupt it.
        absent: Whether the job itself is not there, so that an `up` creates it.
    """
    if record is not None and record.digest == draft.digest and not absent:
        return [], []
    facts = Facts.of(client, PATIENCE)
    namespace = draft.namespace if isinstance(draft.namespace, str) else ""
    try:
        refusals, warnings = _reviewed(facts, draft, namespace, record)
        lacking = [*_lacking_products(facts, draft), *_lacking(facts, draft, namespace)]
    except TargetFault as fault:
        return multikueue.refusals(draft), [unseen(fault)]
    if unfinished and not draft.interrupts:
        warnings += [p for _, p in lacking]
    else:
        refusals += [p for certain, p in lacking if certain]
        warnings += [p for certain, p in lacking if not certain]
    return [*multikueue.refusals(draft), *refusals], [*multikueue.warnings(draft), *warnings]


def unseen(fault: TargetFault) -> Problem:
    """That the cluster could not be asked, and why."""
    return Problem("", f"checked without the cluster: {fault}")


def missing(client: Client, objects: Objects, namespace: str, promised: Collection[str] = ()) -> list[Problem]:
    """What must be there before the job is created, and is not, and claims that it would take from others. What the credentials
    may not read is not judged.

    Raises TargetFault where the cluster cannot be asked.
    """
    facts = Facts.of(client)
    found = versions.absent(objects, facts.served())
    if found:  # installed in the meantime?
        found = versions.absent(objects, facts.served_now())
    if facts.find_now(kinds.NAMESPACE, "", namespace) is False:
        return [*found, _no_namespace(namespace)]
    found += _claimed_elsewhere(facts, objects, namespace)
    needed = [r for r in referents(objects, promised) if r.needed]
    return [*found, *(_not_there(each, namespace) for each in _gone(facts, needed, namespace, facts.find_now))]


def _claimed_elsewhere(facts: Facts, objects: Objects, namespace: str) -> Iterator[Problem]:
    """Yield the claims of volumeClaimPolicies that are volumes of a program: JobSet would mount them."""
    names = {name for key, each in objects.items() if key.startswith("JobSet/") for name in claims.policy_claims(each)}
    for name in sorted(names):
        found = facts.find(kinds.CLAIM, namespace, name)
        if isinstance(found, Mapping) and (owner := claims.written_owner(found)):
            why = f"exists and belongs to {claims.whose(found)} ({owner})"
            yield Problem(
                f"volume {namespace}/{name}", why, "rename the template of volumeClaimPolicies, or the TrainJob"
            )


def _record_taken(facts: Facts, namespace: str, name: str) -> Iterator[Problem]:
    """Yield that a ConfigMap has the name of the record of a job that has none."""
    if facts.named(kinds.CONFIG_MAP, namespace, name) is None:
        return
    found = facts.find(kinds.CONFIG_MAP, namespace, name)
    if isinstance(found, Mapping) and not (record := Record.of(dict(found))).ours:
        yield record.foreign(f"{namespace}/{name}")


def _no_namespace(namespace: str) -> Problem:
    return Problem("namespace", f"namespace {namespace} does not exist", _CREATE)


def _lacking_products(facts: Facts, draft: Draft) -> Iterator[Lack]:
    certain = ANYTHING not in draft.awaited
    yield from ((certain, problem) for problem in versions.absent(draft.objects, facts.served()))


def _lacking(facts: Facts, draft: Draft, namespace: str) -> Iterator[Lack]:
    """Yield what `missing` will find, unless the program makes it before the job."""
    certain = ANYTHING not in draft.awaited
    if namespace and facts.find(kinds.NAMESPACE, "", namespace) is False:
        if not _is_made(draft, kinds.NAMESPACE, namespace):
            yield certain, _no_namespace(namespace)
    elif namespace:
        for each in _gone(facts, _referents(draft), namespace, facts.find):
            if each.needed and not _is_made(draft, each.kind, each.name):
                yield certain, _not_there(each, namespace)


def _is_made(draft: Draft, kind: Kind, name: str) -> bool:
    """Return whether a dependency of the job makes it, as far as is known."""
    return f"{kind.kind}/{name}" in draft.awaited or f"{kind.kind}/" in draft.awaited


def _referents(draft: Draft) -> list[Referent]:
    own = (f"{kinds.SECRET.kind}/{name}" for name in draft.secrets)
    return referents({**draft.made, **draft.objects}, [*draft.promised, *own])


def _reviewed(facts: Facts, draft: Draft, namespace: str, record: Record | None) -> Found:
    served, objects = facts.served(), draft.objects
    refusals, warnings = versions.outdated(objects, served), schedulers.idle(facts, {**draft.made, **objects})
    described = {key: _described(facts, key, document, served) for key, document in objects.items()}
    refusals += [p for found in described.values() for p in found]
    if namespace and facts.find(kinds.NAMESPACE, "", namespace) is not False:
        refusals += _claimed_elsewhere(facts, objects, namespace)
        if record is None:
            refusals += _record_taken(facts, namespace, draft.name)
        forbidden = permissions.missing(facts, namespace, draft)
        refusals += forbidden
        warnings += _doubts(facts, _referents(draft), namespace)
        if not forbidden:
            names = [*objects, *(f"{kinds.SECRET.kind}/{name}" for name in draft.secrets)]
            strange = dict(_strange(facts, dict.fromkeys(names), draft, namespace))
            refusals += strange.values()
            sound = {
                key: _placed(document, namespace)
                for key, document in objects.items()
                if not described[key] and key not in strange
            }
            refused, told = _tried(facts, sound, draft, record)
            refusals += refused
            warnings += told
    return refusals, warnings


def _described(
    facts: Facts, key: str, document: Mapping[str, Any], served: Mapping[str, Collection[str]]
) -> list[Problem]:
    """What the schema of the cluster's own CRD says."""
    kind = versions.known(document)
    if kind is None or kind.group not in versions.PRODUCTS or not _is_served(kind, served):
        return []
    schema = facts.schema(kind, {**PREDICATES, **kueue.PREDICATES})
    return (
        []
        if schema is None
        else [p.below(key) for p in openapi.problems(schema, document, kind, partial(versions.newer, kind))]
    )


def _is_served(kind: Kind, served: Mapping[str, Collection[str]]) -> bool:
    return not kind.group or kind.api_version.rpartition("/")[2] in served.get(kind.group, ())


def _gone(facts: Facts, named: Iterable[Referent], namespace: str, find: Find) -> Iterator[Referent]:
    """Yield what certainly does not exist. What the credentials may not read is not judged."""
    served = facts.served()
    yield from (r for r in named if _is_served(r.kind, served) and find(r.kind, namespace, r.name) is False)


def _not_there(referent: Referent, namespace: str) -> Problem:
    kind = referent.kind
    where = f" in namespace {namespace}" if kind.namespaced else ""
    hint = _CREATE if referent.needed else "without it only public images can be pulled"
    if kind == LOCAL_QUEUE:
        hint = "set trainer:namespace to the namespace of that queue, or create it (depends_on)"
    return Problem(referent.where, f"{kind.kind} {referent.name} does not exist{where}", hint)


def _doubts(facts: Facts, named: Collection[Referent], namespace: str) -> Iterator[Problem]:
    """Yield what a job is created without, and may never run without."""
    optional = [each for each in named if not each.needed]
    yield from (_not_there(each, namespace) for each in _gone(facts, optional, namespace, facts.find))
    for each in named:
        if each.kind == LOCAL_QUEUE and _is_served(each.kind, facts.served()):
            yield from _inactive(facts.find(each.kind, namespace, each.name), each)


def _inactive(found: Any, referent: Referent) -> Iterator[Problem]:
    """Yield why a LocalQueue takes no jobs now: it may do so later, or hold them on purpose."""
    conditions = (found.get("status") or {}).get("conditions") or [] if isinstance(found, Mapping) else []
    for condition in conditions:
        if condition.get("type") == "Active" and condition.get("status") == "False":
            said = dryrun.brief(f"{condition.get('message')} ({condition.get('reason')})")
            yield Problem(referent.where, f"LocalQueue {referent.name} takes no jobs now: {said}")


def _tried(facts: Facts, objects: Objects, draft: Draft, record: Record | None) -> Found:
    """What the dry runs say."""
    refusals: list[Problem] = []
    warnings: list[Problem] = []
    served = facts.served()
    for key, document in objects.items():
        kind = versions.known(document)
        if kind is None or kind == kinds.SECRET or not _is_served(kind, served) or first_unknown(document) is not None:
            continue
        if kind == TRAIN_JOB and not _has_runtime(facts, document):
            continue  # its webhook asks for the runtime
        taken = record is not None or draft.adopt
        answer = _answer(facts, kind, document, draft.name, taken=taken)
        refusals += [p.below(key) for p in answer.refusals]
        warnings += [p.below(key) for p in (*answer.warnings, *answer.failed)]
    return refusals, warnings


def _strange(facts: Facts, keys: Iterable[str], draft: Draft, namespace: str) -> Iterator[tuple[str, Problem]]:
    """Yield the keys of the objects beside a job whose names others have, and that this is so."""
    for key in keys:
        kind = kinds.SECRET if key.startswith("Secret/") else versions.known(draft.objects[key])
        if key == main_key(draft.objects) or kind is None or not _is_served(kind, facts.served()):
            continue
        found = facts.named(kind, namespace, key.partition("/")[2])
        if found is not None and draft.name not in _jobs_of(found):
            yield key, records.others(found, key)


def _jobs_of(found: Mapping[str, Any]) -> set[Any]:
    """Return the job of an object beside it, and who owns the object, such as Trainer's TrainJob of that name."""
    owners = {each.get("name") for each in rows(section(found, "metadata").get("ownerReferences"))}
    return {records.job_of(found), *owners}


def _answer(facts: Facts, kind: Kind, document: dict[str, Any], name: str, *, taken: bool) -> dryrun.Answer:
    """Objects that differ in nothing but the job's name are tried once; what could not be tried is not tried again.

    taken: there may be an object of that name, and the job is to replace or to adopt it.
    """
    meta = document["metadata"]
    held = not taken and facts.named(kind, meta["namespace"], meta["name"]) is not None
    shape = kind, taken, held and meta["name"], dryrun.shape(document, name)
    with facts.alone("dry run", shape):
        known: dryrun.Answer | None = facts.recall("dry run", shape)
        if known is not None:
            return known
        if facts.recall("no dry run", kind):
            return dryrun.Answer()
        return _tried_now(facts, kind, document, shape, taken=taken)


def _tried_now(facts: Facts, kind: Kind, document: dict[str, Any], shape: Any, *, taken: bool) -> dryrun.Answer:
    try:
        client = facts.client.within(dryrun.PATIENCE)
        answer = dryrun.tried(client, kind, dryrun.renamed(document) if taken else document, unmanaged)
        if not taken and (answer.exists or answer.refusals):
            answer = _live(client, kind, document) or answer
    except TargetFault as fault:
        answer = dryrun.Answer(failed=fault.problems)
    if answer.failed:
        facts.remember("no dry run", kind, True)
    elif not answer.refusals:  # their words may hold the name
        facts.remember("dry run", shape, answer)
    return answer


def _live(client: Client, kind: Kind, document: dict[str, Any]) -> dryrun.Answer | None:
    """What to say if an object of that name is there already."""
    meta = document["metadata"]
    found = client.get(kind, str(meta["namespace"]), str(meta["name"]))
    if found is None:
        return None
    if (found["metadata"].get("labels") or {}).get(marks.MANAGED_BY) == FIELD_MANAGER:
        return dryrun.tried(client, kind, dryrun.renamed(document), unmanaged)
    return dryrun.Answer((adoption.unasked(found, ""),))


def _has_runtime(facts: Facts, train_job: Mapping[str, Any]) -> bool:
    found = [r for r in referents({"TrainJob/": dict(train_job)}) if r.where == "TrainJob/.spec.runtimeRef.name"]
    return all(facts.find(r.kind, str(train_job["metadata"]["namespace"]), r.name) is not False for r in found)


def _placed(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}
