"""Checks a job against the cluster before it is created: missing objects, permissions, schemas and dry runs.

`review` is for previews and the program in an `up`: a missing object is an error, unless the program creates it before the job.
`missing` is for the moment of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.submission import ANYTHING, Draft, Objects, main_key
from pulumi_trainer.provider.kubernetes.cache import dryrun
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, problems_below
from pulumi_trainer.provider.kubernetes.schema import openapi
from pulumi_trainer.provider.kubernetes.schema.field_errors import UNCHECKED
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.values.resource_quotas import Exceeded
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue import cel_rules as kueue
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE
from pulumi_trainer.provider.kueue.job_webhook import unmanaged_problems
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import adoption
from pulumi_trainer.provider.targets.kubernetes.jobs import record as records
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.preflight import (
    multikueue,
    permissions,
    pod_security,
    schedulers,
    versions,
)
from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.admission import namespace_limits
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.admission.referents import Referent, queue_name, referents, secret_keys
from pulumi_trainer.provider.trainer.kinds import TRAIN_JOB

Review = tuple[list[Problem], list[Problem]]
"""Refusals and warnings."""
Lack = tuple[bool, Problem]
"""Whether it is certain that an object will be missing (a dependency of the job may create it), and the problem."""
Find = Callable[[Kind, str, str], Any]

_CREATE = "create it, or let the TrainJob depend on it (depends_on)"


def review(
    client: Client,
    draft: Draft,
    record: Record | None = None,
    *,
    unfinished: bool = False,
    absent: bool = False,
    queued: bool = False,
) -> Review:
    """Return what the cluster rejects, and its warnings; a single warning if the cluster is out of reach. record: The job's
    record, if it has one. If the digest is equal, the job is unchanged, and only its queue is checked."""
    if record is not None and record.digest == draft.digest and not absent:
        return _review_unchanged(client, draft, unfinished=unfinished, queued=queued)
    facts = Facts.of(client, PLAN_SECONDS)
    namespace = text(draft.namespace)
    try:
        refusals, warnings = _review_new(facts, draft, namespace, record)
        lacking = [*_missing_products(facts, draft), *_missing_objects(facts, draft, namespace)]
        if namespace:
            lacking += _refused_pods(facts, draft, namespace)
        is_taken_over = draft.adopt and _is_there(facts, draft, namespace)
    except TargetFault as fault:
        return multikueue.refusals(draft, client.workers), [unreachable_warning(fault)]
    doubts = list(multikueue.warnings(draft, client.workers))
    only_changed_in_place = (unfinished and not draft.interrupts) or is_taken_over
    if not only_changed_in_place:
        for name, worker in client.workers.items():
            found, uncertain = _missing_in_worker(worker, name, draft, namespace)
            lacking += found
            doubts += uncertain
    for certain, problem in lacking:
        if certain and not only_changed_in_place:
            refusals.append(problem)
        else:
            warnings.append(problem)
    return [*multikueue.refusals(draft, client.workers), *refusals], [*doubts, *warnings]


def _is_there(facts: Facts, draft: Draft, namespace: str) -> bool:
    """Return whether the cluster has a job of that kind and name, whoever made it."""
    kind = versions.known_kind(draft.objects.get(main_key(draft.objects), {}))
    return kind is not None and facts.named(kind, namespace, draft.name) is not None


def _review_unchanged(client: Client, draft: Draft, *, unfinished: bool, queued: bool) -> Review:
    """Return what worker clusters of an unchanged job lack, and warnings about its queue."""
    refusals: list[Problem] = []
    warnings: list[Problem] = []
    if unfinished:
        refusals = multikueue.refusals(draft, client.workers)
    if queued:
        warnings = _queue_warnings(client, draft)
    return refusals, warnings


def _missing_in_worker(worker: Client, name: str, draft: Draft, namespace: str) -> tuple[list[Lack], list[Problem]]:
    """Return what a worker cluster of MultiKueue lacks of what the job needs, and a warning if the worker does not answer."""
    facts = Facts.of(worker, PLAN_SECONDS)
    try:
        found = [*_missing_products(facts, draft), *_missing_objects(facts, draft, namespace)]
    except TargetFault as fault:
        return [], [replace(unreachable_warning(fault), where=f"worker cluster {name}")]
    return [(certain, replace(p, why=f"worker cluster {name}: {p.why}")) for certain, p in found], []


def unreachable_warning(fault: TargetFault) -> Problem:
    """Return the warning that the job was checked without the cluster, and why."""
    return Problem("", f"checked without the cluster: {fault}")


def missing(client: Client, objects: Objects, namespace: str, promised: Collection[str] = ()) -> list[Problem]:
    """Return what has to exist before the job is created and does not, and claims of other owners that the job would mount.

    Objects that the credentials may not read are not checked.

    Args:
        promised: "Kind/name" of what the program creates beside the objects.
    """
    facts = Facts.of(client)
    found = versions.absent_products(objects, facts.served())
    if found:  # installed in the meantime?
        found = versions.absent_products(objects, facts.served_now())
    if facts.find_now(kinds.NAMESPACE, "", namespace) is False:
        return [*found, _no_namespace(namespace)]
    found += _claimed_elsewhere(facts, objects, namespace)
    needed = [r for r in referents(objects, promised) if r.needed]
    return [*found, *(_not_there(each, namespace) for each in _absent(facts, needed, namespace, facts.find_now))]


def _claimed_elsewhere(facts: Facts, objects: Objects, namespace: str) -> Iterator[Problem]:
    """Yield a problem for each claim of volumeClaimPolicies that is a volume of a program: JobSet would mount it."""
    jobsets = [document for key, document in objects.items() if key.startswith("JobSet/")]
    for name in sorted(set(chain.from_iterable(map(claims.policy_claims, jobsets)))):
        found = facts.find(kinds.CLAIM, namespace, name)
        if not isinstance(found, Mapping):
            continue
        owner = owner_labels.owner_of(found).id
        if owner:
            why = f"exists and belongs to {owner_labels.owner_of(found)} ({owner})"
            yield Problem(
                f"volume {namespace}/{name}", why, "rename the template of volumeClaimPolicies, or the TrainJob"
            )


def _record_taken(facts: Facts, namespace: str, name: str) -> Iterator[Problem]:
    """Yield the problem that a ConfigMap that is not a record has the job's name."""
    if facts.named(kinds.CONFIG_MAP, namespace, name) is None:
        return
    found = facts.find(kinds.CONFIG_MAP, namespace, name)
    if not isinstance(found, Mapping):
        return
    record = Record.of(dict(found))
    if not record.is_record:
        yield record.foreign_problem(f"{namespace}/{name}")


def _no_namespace(namespace: str) -> Problem:
    return Problem("namespace", f"namespace {namespace} does not exist", _CREATE)


def _missing_products(facts: Facts, draft: Draft) -> Iterator[Lack]:
    certain = ANYTHING not in draft.awaited
    for problem in versions.absent_products(draft.objects, facts.served()):
        yield certain, problem


def _missing_objects(facts: Facts, draft: Draft, namespace: str) -> Iterator[Lack]:
    """Yield what `missing` would find, except what the program creates before the job."""
    certain = ANYTHING not in draft.awaited
    if namespace and facts.find(kinds.NAMESPACE, "", namespace) is False:
        if not _is_made(draft, kinds.NAMESPACE, namespace):
            yield certain, _no_namespace(namespace)
    elif namespace:
        for each in _absent(facts, _referents(draft), namespace, facts.find):
            if each.needed and not _is_made(draft, each.kind, each.name):
                yield certain, _not_there(each, namespace)


def _is_made(draft: Draft, kind: Kind, name: str) -> bool:
    """Return whether a dependency of the job creates an object, as far as is known."""
    return f"{kind.kind}/{name}" in draft.awaited or f"{kind.kind}/" in draft.awaited


def _referents(draft: Draft) -> list[Referent]:
    return referents({**draft.made, **draft.objects}, [*draft.promised, *secret_keys(draft.secrets)])


def _review_new(facts: Facts, draft: Draft, namespace: str, record: Record | None) -> Review:
    """Return what the cluster rejects of a new or changed job, and its warnings."""
    served, objects = facts.served(), draft.objects
    refusals, warnings = (
        versions.outdated_products(objects, served),
        schedulers.scheduler_problems(facts, {**draft.made, **objects}),
    )
    unchecked: dict[str, list[Problem]] = {}
    described: dict[str, list[Problem]] = {}
    for key, document in objects.items():
        problems = _described(facts, key, document, served)
        described[key] = [problem for problem in problems if problem.type != UNCHECKED]
        unchecked[key] = [problem for problem in problems if problem.type == UNCHECKED]
    refusals += chain.from_iterable(described.values())
    if namespace and facts.find(kinds.NAMESPACE, "", namespace) is not False:
        refusals += _claimed_elsewhere(facts, objects, namespace)
        if record is None:
            refusals += _record_taken(facts, namespace, draft.name)
        forbidden = permissions.missing(facts, namespace, draft)
        refusals += forbidden
        warnings += _warn_of_missing_references(facts, _referents(draft), namespace)
        if not forbidden:
            names = [*objects, *secret_keys(draft.secrets)]
            strange = dict(_objects_of_others(facts, dict.fromkeys(names), draft, namespace))
            refusals += strange.values()
            sound: dict[str, dict[str, Any]] = {}
            for key, document in objects.items():
                if not described[key] and key not in strange:
                    sound[key] = _placed(document, namespace)
            for key, answer in _dry_run_answers(facts, sound, draft, record):
                refusals += problems_below(key, answer.refusals)
                warnings += problems_below(key, (*answer.warnings, *answer.failed))
                if not answer.failed:
                    del unchecked[key]  # the server has checked all rules
            refused, noted = pod_security.judge(facts, {**draft.made, **objects}, namespace)
            refusals += refused
            warnings += noted
        if record is None:
            warnings += _quotas_in_use(facts, draft, namespace)
    return refusals, [*warnings, *chain.from_iterable(unchecked.values())]


def _refused_pods(facts: Facts, draft: Draft, namespace: str) -> Iterator[Lack]:
    """Yield why LimitRanges and ResourceQuotas of the namespace refuse the job's Pods."""
    certain = not any(made == ANYTHING or made.startswith(f"{kinds.LIMIT_RANGE.kind}/") for made in draft.awaited)
    known = queue_snapshot.read_limits(facts, namespace)
    for key, jobset in _jobsets(draft, namespace):
        for problem in namespace_limits.pod_refusals(jobset, known):
            yield certain, problem.below(key)


def _quotas_in_use(facts: Facts, draft: Draft, namespace: str) -> Iterator[Problem]:
    """Yield warnings about quota of the namespace that a new job needs and others use now. A job in a queue waits anyway."""
    known = queue_snapshot.read_limits(facts, namespace)
    for key, jobset in _jobsets(draft, namespace):
        if queue_name({key: jobset}):
            continue
        never = {(each.quota, each.resource) for each in namespace_limits.exceeded_quotas(jobset, known)}
        for each in namespace_limits.exceeded_quotas(jobset, known, used=True):
            if (each.quota, each.resource) not in never:
                yield _quota_in_use(each, namespace)


def _jobsets(draft: Draft, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, document in {**draft.made, **draft.objects}.items():
        if key.startswith("JobSet/"):
            yield key, _placed(document, namespace)


def _quota_in_use(each: Exceeded, namespace: str) -> Problem:
    why = (
        f"the job requests {each.requested} of {each.resource}, but {each.used} of the {each.hard} that"
        f" ResourceQuota {each.quota} allows are in use: some of its Pods are not created until other Pods have ended"
    )
    return Problem("namespace", why, f"kubectl get pods -n {namespace} lists the Pods that use the quota")


def _described(
    facts: Facts, key: str, document: Mapping[str, Any], served: Mapping[str, Collection[str]]
) -> list[Problem]:
    """Return the problems that the schema of the cluster's CRD finds."""
    kind = versions.known_kind(document)
    if kind is None or kind.group not in versions.PRODUCTS or not _is_served(kind, served):
        return []
    schema = facts.schema(kind, {**PREDICATES, **kueue.PREDICATES})
    if schema is None:
        return []
    return problems_below(key, openapi.problems(schema, document, kind, partial(versions.upgrade_hint, kind)))


def _is_served(kind: Kind, served: Mapping[str, Collection[str]]) -> bool:
    return not kind.group or kind.api_version.rpartition("/")[2] in served.get(kind.group, ())


def _absent(facts: Facts, named: Iterable[Referent], namespace: str, find: Find) -> Iterator[Referent]:
    """Yield what certainly does not exist; objects that the credentials may not read are not checked."""
    served = facts.served()
    for each in named:
        if _is_served(each.kind, served) and find(each.kind, namespace, each.name) is False:
            yield each


def _not_there(referent: Referent, namespace: str) -> Problem:
    kind = referent.kind
    where = ""
    if kind.namespaced:
        where = f" in namespace {namespace}"
    hint = _CREATE
    if not referent.needed:
        hint = "without it only public images can be pulled"
    if kind == LOCAL_QUEUE:
        hint = "set trainer:namespace to the namespace of that queue, or create it (depends_on)"
    return Problem(referent.where, f"{kind.kind} {referent.name} does not exist{where}", hint)


def _warn_of_missing_references(facts: Facts, named: Collection[Referent], namespace: str) -> Iterator[Problem]:
    """Yield warnings about missing objects that a job is created without, and may never run without."""
    optional = [each for each in named if not each.needed]
    for each in _absent(facts, optional, namespace, facts.find):
        yield _not_there(each, namespace)
    for each in named:
        if each.kind == LOCAL_QUEUE and _is_served(each.kind, facts.served()):
            yield from _inactive(facts.find(each.kind, namespace, each.name), each)


def _queue_warnings(client: Client, draft: Draft) -> list[Problem]:
    """Return why the LocalQueue of an unchanged job admits no jobs.

    A queue of the same program may be missing as well: the stack's state does not show that it was deleted externally.
    """
    facts, namespace = Facts.of(client, PLAN_SECONDS), draft.namespace
    found: list[Problem] = []
    try:
        for each in referents(draft.objects):
            if each.kind != LOCAL_QUEUE or not _is_served(each.kind, facts.served()):
                continue
            queue = facts.find(each.kind, namespace, each.name)
            if queue is False:
                why = f"LocalQueue {each.name} does not exist in namespace {namespace}: its jobs never start"
                hint = "create it; if this program has it, `pulumi refresh` and `pulumi up` create it again"
                found.append(Problem("queue", why, hint))
            found += _inactive(queue, replace(each, where="queue"))
    except TargetFault as fault:
        return [unreachable_warning(fault)]
    return found


def _inactive(found: Any, referent: Referent) -> Iterator[Problem]:
    """Yield why a LocalQueue admits no jobs now; it may admit them later."""
    if not isinstance(found, Mapping):
        return
    for condition in (found.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Active" and condition.get("status") == "False":
            reason = dryrun.brief(f"{condition.get('message')} ({condition.get('reason')})")
            yield Problem(referent.where, f"LocalQueue {referent.name} admits no jobs now: {reason}")


def _dry_run_answers(
    facts: Facts, objects: Objects, draft: Draft, record: Record | None
) -> Iterator[tuple[str, dryrun.Answer]]:
    """Yield the answers of the dry runs by the keys of the objects; objects with unknown values are left out."""
    served = facts.served()
    for key, document in objects.items():
        kind = versions.known_kind(document)
        if kind is None or kind == kinds.SECRET or not _is_served(kind, served) or first_unknown(document) is not None:
            continue
        if kind == TRAIN_JOB and not _has_runtime(facts, document):
            continue  # the webhook of TrainJobs reads the runtime
        taken = record is not None or draft.adopt
        yield key, _answer(facts, kind, document, draft.name, taken=taken)


def _objects_of_others(
    facts: Facts, keys: Iterable[str], draft: Draft, namespace: str
) -> Iterator[tuple[str, Problem]]:
    """Yield key and problem of each object beside a job whose name is taken by a foreign object."""
    for key in keys:
        kind = kinds.SECRET if key.startswith("Secret/") else versions.known_kind(draft.objects[key])
        if key == main_key(draft.objects) or kind is None or not _is_served(kind, facts.served()):
            continue
        found = facts.named(kind, namespace, key.partition("/")[2])
        if found is not None and draft.name not in _jobs_of(found):
            yield key, records.name_taken_problem(found, key)


def _jobs_of(found: Mapping[str, Any]) -> set[Any]:
    """Return the job in an object's label, and the owners of the object, such as Trainer's TrainJob of that name."""
    owners = {each.get("name") for each in mappings(section(found, "metadata").get("ownerReferences"))}
    return {records.job_name_of(found), *owners}


def _answer(facts: Facts, kind: Kind, document: dict[str, Any], name: str, *, taken: bool) -> dryrun.Answer:
    """Return the answer of a dry run. Objects that differ only in the job's name share one dry run, and a failed dry run is not
    repeated. taken: Whether an object of that name may exist, which the job replaces or adopts."""
    meta = document["metadata"]
    exists = not taken and facts.named(kind, meta["namespace"], meta["name"]) is not None
    shape = kind, taken, exists and meta["name"], dryrun.shape_digest(document, name)
    with facts.alone("dry run", shape):
        known: dryrun.Answer | None = facts.recall("dry run", shape)
        if known is not None:
            return known
        if facts.recall("no dry run", kind):
            return dryrun.Answer()
        return _dry_run(facts, kind, document, shape, taken=taken)


def _dry_run(facts: Facts, kind: Kind, document: dict[str, Any], shape: Any, *, taken: bool) -> dryrun.Answer:
    try:
        client = facts.client.within(dryrun.WEBHOOK_SECONDS)
        tried = document
        if taken:
            tried = dryrun.renamed(document)
        answer = dryrun.dry_run(client, kind, tried, unmanaged_problems)
        if not taken and (answer.exists or answer.refusals):
            answer = _live(client, kind, document) or answer
    except TargetFault as fault:
        answer = dryrun.Answer(failed=fault.problems)
    if answer.failed:
        facts.remember("no dry run", kind, True)
    elif not answer.refusals:  # refusals may contain the job's name
        facts.remember("dry run", shape, answer)
    return answer


def _live(client: Client, kind: Kind, document: dict[str, Any]) -> dryrun.Answer | None:
    """Return the answer for an object whose name is taken; None if it is not."""
    meta = document["metadata"]
    found = client.get(kind, str(meta["namespace"]), str(meta["name"]))
    if found is None:
        return None
    if (found["metadata"].get("labels") or {}).get(owner_labels.MANAGED_BY) == FIELD_MANAGER:
        return dryrun.dry_run(client, kind, dryrun.renamed(document), unmanaged_problems)
    return dryrun.Answer((adoption.unadopted_problem(found, ""),))


def _has_runtime(facts: Facts, train_job: Mapping[str, Any]) -> bool:
    found = [r for r in referents({"TrainJob/": dict(train_job)}) if r.where == "TrainJob/.spec.runtimeRef.name"]
    return all(facts.find(r.kind, str(train_job["metadata"]["namespace"]), r.name) is not False for r in found)


def _placed(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}
