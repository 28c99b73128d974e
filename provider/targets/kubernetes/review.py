"""What a cluster has against a job before it is created: asked in previews, and by the program in an `up`.

`review` is for the program, which may be about to create what is missing: that is a warning. `missing` is for the moment of
creation, where it is an error. Called by `target`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pulumi_trainer.provider.api.errors import Problem, TargetFault
from pulumi_trainer.provider.api.submission import Draft, Objects
from pulumi_trainer.provider.api.unknown import first_unknown

from . import adoption, dryrun, kinds, marks, permissions, schedulers, schemas, versions
from .client import Client
from .facts import Facts
from .kinds import Kind
from .record import Record
from .referents import Referent, referents

Found = tuple[list[Problem], list[Problem]]
"""Refusals and warnings."""

_CREATE = "create it, or let the TrainJob depend on it (depends_on)"
PATIENCE = 3.0
"""Seconds for a cluster to answer; then the program goes on with what can be told without it."""


def review(client: Client, draft: Draft, record: Record | None = None) -> Found:
    """What the cluster refuses, and what it warns of; without a cluster that it cannot be asked, and why.

    record: of the job, if it has one. With the same digest the job is unchanged, and nothing is asked for it.
    """
    if record is not None and record.digest == draft.digest:
        return [], []
    facts = Facts.of(client, PATIENCE)
    try:
        return _reviewed(facts, draft, draft.namespace if isinstance(draft.namespace, str) else "", record)
    except TargetFault as fault:
        return [], [unseen(fault)]


def unseen(fault: TargetFault) -> Problem:
    """That the cluster could not be asked, and why."""
    return Problem("", f"checked without the cluster: {fault}")


def missing(client: Client, objects: Objects, namespace: str, promised: Collection[str] = ()) -> list[Problem]:
    """What must be there before the job is created, and is not. What the credentials may not read is not judged.

    Raises TargetFault where the cluster cannot be asked.
    """
    facts = Facts.of(client)
    needed = [r for r in referents(objects, promised) if r.needed]
    found = versions.absent(objects, facts.served())
    if found:  # installed in the meantime?
        found = versions.absent(objects, facts.served_now())
    if facts.find_now(kinds.NAMESPACE, "", namespace) is False:
        return [*found, _no_namespace(namespace)]
    gone = [each for each in needed if facts.find_now(each.kind, namespace, each.name) is False]
    return [*found, *_absent(facts, gone, namespace)]  # a queue that takes no jobs yet will, or holds them on purpose


def _no_namespace(namespace: str) -> Problem:
    return Problem("namespace", f"namespace {namespace} does not exist", _CREATE)


def _reviewed(facts: Facts, draft: Draft, namespace: str, record: Record | None) -> Found:
    served, objects = facts.served(), draft.objects
    refusals, warnings = versions.outdated(objects, served), versions.absent(objects, served)
    warnings += schedulers.idle(facts, {**draft.made, **objects})
    described = {key: _described(facts, key, document, served) for key, document in objects.items()}
    refusals += [p for found in described.values() for p in found]
    if namespace and facts.find(kinds.NAMESPACE, "", namespace) is False:
        warnings.append(_no_namespace(namespace))
    elif namespace:
        forbidden = permissions.missing(facts, namespace, draft)
        refusals += forbidden
        warnings += _absent(facts, referents({**draft.made, **objects}, draft.promised), namespace)
        if not forbidden:
            sound = {key: _placed(document, namespace) for key, document in objects.items() if not described[key]}
            refused, told = _tried(facts, sound, draft, record)
            refusals += refused
            warnings += told
    return refusals, [*facts.client.cautions, *warnings]


def _described(
    facts: Facts, key: str, document: Mapping[str, Any], served: Mapping[str, Collection[str]]
) -> list[Problem]:
    """What the schema of the cluster's own CRD says."""
    kind = versions.known(document)
    if kind is None or kind.group not in versions.PRODUCTS or not _is_served(kind, served):
        return []
    schema = facts.schema(kind)
    return [] if schema is None else [p.below(key) for p in schemas.problems(schema, document, kind)]


def _is_served(kind: Kind, served: Mapping[str, Collection[str]]) -> bool:
    return not kind.group or kind.api_version.rpartition("/")[2] in served.get(kind.group, ())


def _absent(facts: Facts, needed: Iterable[Referent], namespace: str) -> list[Problem]:
    served = facts.served()
    return [p for each in needed if _is_served(each.kind, served) and (p := _problem(facts, each, namespace))]


def _problem(facts: Facts, referent: Referent, namespace: str) -> Problem | None:
    kind, name = referent.kind, referent.name
    found = facts.find(kind, namespace, name)
    if found is False:
        where = f" in namespace {namespace}" if kind.namespaced else ""
        mend = _CREATE if referent.needed else "without it only public images can be pulled"
        if kind == kinds.LOCAL_QUEUE:
            mend = "set trainer:namespace to the namespace of that queue, or create it (depends_on)"
        return Problem(referent.where, f"{kind.kind} {name} does not exist{where}", mend)
    if kind == kinds.LOCAL_QUEUE and isinstance(found, Mapping):
        conditions = (found.get("status") or {}).get("conditions") or []
        off = next((c for c in conditions if c.get("type") == "Active" and c.get("status") == "False"), None)
        if off is not None:
            said = dryrun.brief(f"{off.get('message')} ({off.get('reason')})")
            why = f"{kind.kind} {name} takes no jobs now: {said}"
            return Problem(referent.where, why)
    return None


def _tried(facts: Facts, objects: Objects, draft: Draft, record: Record | None) -> Found:
    """What the dry runs say."""
    refusals: list[Problem] = []
    warnings: list[Problem] = []
    served = facts.served()
    for key, document in objects.items():
        kind = versions.known(document)
        if kind is None or kind == kinds.SECRET or not _is_served(kind, served) or first_unknown(document) is not None:
            continue
        if kind == kinds.TRAIN_JOB and not _has_runtime(facts, document):
            continue  # its webhook asks for the runtime
        taken = record is not None or draft.adopt
        answer = _answer(facts, kind, document, draft.name, taken=taken)
        refusals += [p.below(key) for p in answer.refusals]
        warnings += [p.below(key) for p in (*answer.warnings, *answer.failed)]
    return refusals, warnings


def _answer(facts: Facts, kind: Kind, document: dict[str, Any], name: str, *, taken: bool) -> dryrun.Answer:
    """Objects that differ in nothing but the job's name are tried once; what could not be tried is not tried again.

    taken: there may be an object of that name, and the job is to replace or to adopt it.
    """
    shape = kind, taken, dryrun.shape(document, name)
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
        answer = dryrun.tried(client, kind, dryrun.renamed(document) if taken else document)
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
    if (found["metadata"].get("labels") or {}).get(marks.MANAGED_BY) == marks.FIELD_MANAGER:
        return dryrun.tried(client, kind, dryrun.renamed(document))
    return dryrun.Answer((adoption.unasked(found, ""),))


def _has_runtime(facts: Facts, train_job: Mapping[str, Any]) -> bool:
    found = [r for r in referents({"TrainJob/": dict(train_job)}) if r.where == "TrainJob/.spec.runtimeRef.name"]
    return all(facts.find(r.kind, str(train_job["metadata"]["namespace"]), r.name) is not False for r in found)


def _placed(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}
