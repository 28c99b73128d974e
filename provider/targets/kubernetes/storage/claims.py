"""Creates, changes and deletes volumes that outlive jobs: the PersistentVolumeClaims of a program.

No record owns a claim; its annotations have the owner. A generation, new with each creation, keeps a late deletion of an earlier
claim from deleting a later one of the same name.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import chain
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.status import NAMESAKE, Loss, Owner
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.views import Pod, jobs_of
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.storage import classes
from pulumi_trainer.provider.trainer.job_status import epoch_seconds
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME, patched_jobs

Document = dict[str, Any]
T = TypeVar("T")
Place = tuple[str, str]
"""(namespace, name)"""

SIZE = "20Gi"
"""Default size of a volume, as in upstream's runtimes for datasets and models."""
GENERATION = f"{owner_labels.DOMAIN}/generation"

GONE_SECONDS = 20.0
"""How long a delete waits until the claim is gone."""
ATTEMPTS = 10
"""How often a change of a claim is tried while others change it."""
_POLL = 0.1


def create(
    client: Client, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any], generation: str = ""
) -> dict[str, str]:
    """Create a claim if it does not exist; existing data stays. Safe to repeat.

    Args:
        claim: size, storageClass, accessMode and retain of the program (`components.volumes`).
        generation: Generation of the claim in the manager cluster of MultiKueue, if this is its copy; empty for a new one.
    """
    wanted = _document(namespace, name, owner, sweep, claim)
    if generation:
        wanted["metadata"]["annotations"][GENERATION] = generation

    def attempt(found: Document | None) -> Document | None:
        if found is not None and found["metadata"].get("deletionTimestamp"):
            _await_gone(client, namespace, name, found["metadata"]["uid"])
            return None
        if found is None:
            missing = classes.missing(client, _where(namespace, name), str(claim.get("storageClass") or ""))
            if missing:
                raise TargetFault(missing)  # the claim would stay Pending
            try:
                return client.create(kinds.CLAIM, wanted)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                return None
        _check_owner(found, owner, sweep)
        differing = _immutable(found, wanted)
        if differing:
            why = f"exists, but {' and '.join(differing)} cannot change"
            raise Conflict(Problem(_where(namespace, name), why, _ANEW.format(namespace=namespace, name=name)))
        annotations = {owner_labels.RETAIN: None, **wanted["metadata"]["annotations"]}
        # no JobSet owns the claim any more
        about = {"labels": wanted["metadata"]["labels"], "annotations": annotations, "ownerReferences": None}
        return _patch(client, found, about)

    taken = _change(client, namespace, name, attempt)
    if claim.get("size") and _requested_bytes(taken) < _requested_bytes(wanted):
        update(client, namespace, name, _annotation(taken, GENERATION), claim)
    return _outputs(taken)


def _change(client: Client, namespace: str, name: str, attempt: Callable[[Document | None], T | None]) -> T:
    """Return the result of a change of a claim, which is given the claim and returns None if the claim has changed meanwhile."""
    for number in range(ATTEMPTS):
        if number:
            time.sleep(_POLL * number)
        result = attempt(client.get(kinds.CLAIM, namespace, name))
        if result is not None:
            return result
    why = f"has changed during each of {ATTEMPTS} attempts to change it"
    raise TargetFault(Problem(_where(namespace, name), why, "find out what changes it, and run `pulumi up` again"))


def _patch(client: Client, found: Document, metadata: Document, **more: Any) -> Document | None:
    """Patch a claim as it was read; None if it has changed since, or is gone."""
    meta = found["metadata"]
    change = {"metadata": {"resourceVersion": meta["resourceVersion"], **metadata}, **more}
    try:
        return client.patch(kinds.CLAIM, meta["namespace"], meta["name"], change)
    except ApiError as error:
        if error.code == 409 or error.absent:
            return None
        raise


def _requested_bytes(claim: Document) -> Fraction:
    """Return the storage that a claim requests; 0 if it names none that is valid."""
    try:
        size = section(claim, "spec", "resources", "requests").get("storage")
        return Quantity.parse(str(size)).amount
    except ValueError:
        return Fraction(0)


def update(client: Client, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
    """Change the size or `retain` of a claim."""
    size: Document = {}
    if claim.get("size"):
        size = {"spec": {"resources": {"requests": {"storage": claim["size"]}}}}
    kept: dict[str, str | None] = {owner_labels.RETAIN: None}
    if claim.get("retain"):
        kept[owner_labels.RETAIN] = "true"

    def attempt(found: Document | None) -> Document | None:
        if found is None:
            raise TargetFault(Problem(_where(namespace, name), "is gone", "run `pulumi refresh`, then `pulumi up`"))
        if _annotation(found, GENERATION) != generation:
            raise Conflict(
                Problem(
                    _where(namespace, name),
                    f"belongs to {owner_labels.owner_of(found)}",
                    "give the resource another name",
                )
            )
        try:
            return _patch(client, found, {"annotations": kept}, **size)
        except ApiError as error:
            if not size or error.code not in (403, 422):
                raise
            hint = "a claim never shrinks, and grows once it is bound, if its StorageClass has allowVolumeExpansion"
            raise TargetFault(Problem(_where(namespace, name), error.message.partition("\n")[0], hint)) from None

    _change(client, namespace, name, attempt)


def relabel(client: Client, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
    """Write another owner and stack's label on a claim of that generation."""
    metadata = {"annotations": {owner_labels.OWNER: owner}, "labels": {owner_labels.STACK: sweep}}

    def attempt(found: Document | None) -> Document | None:
        if found is None or _annotation(found, GENERATION) != generation:
            return {}
        return _patch(client, found, metadata)

    _change(client, namespace, name, attempt)


def read(client: Client, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
    """Return path and generation of a claim, and its owner; None if no claim of a program was found."""
    found = client.get(kinds.CLAIM, namespace, name)
    if found is None or found["metadata"].get("deletionTimestamp") or not _annotation(found, GENERATION):
        return None
    return _outputs(found), owner_labels.owner_of(found)


def describe(client: Client, namespace: str, name: str) -> str:
    """Return size and age of a claim; empty if it was never bound, so that it has no data. No API shows the data itself."""
    found = client.get(kinds.CLAIM, namespace, name)
    if found is None:
        return ""
    return _description(found)


def _description(claim: Document) -> str:
    if section(claim, "status").get("phase") == "Pending":
        return ""
    return f"a claim of {_capacity(claim) or 'unknown size'}, made {claim['metadata'].get('creationTimestamp')}"


def _capacity(claim: Document) -> str:
    """Return the size of a claim as a quantity: what it has, or else what it requests."""
    has = section(claim, "status", "capacity") or section(claim, "spec", "resources", "requests")
    return str(has.get("storage", ""))


def output(client: Client, namespace: str, uri: str) -> Output | None:
    """Return the facts about the output of a job; None if its claim is gone."""
    name = uri.removeprefix(path("")).partition("/")[0]
    if not name:
        return None
    found = client.get(kinds.CLAIM, namespace, name)
    if found is None:
        return None
    with suppress(ValueError):
        capacity = int(Quantity.parse(_capacity(found)).amount)
        created = epoch_seconds(found["metadata"].get("creationTimestamp"), 0.0)
        return Output(uri, capacity, created=created, retained=_annotation(found, owner_labels.RETAIN) == "true")
    return None


def delete(client: Client, namespace: str, name: str, generation: str) -> Owner | str:
    """Delete a claim of that generation with all its data.

    A claim that unfinished JobSets mount is deleted with the last of these JobSets. A claim that only Pods of finished jobs mount
    is deleted with these Pods.

    Returns:
        The owner of a claim of another generation, or a note that the claim stays for unfinished JobSets; empty otherwise.
    """

    def mine(found: Mapping[str, Any]) -> bool:
        return _annotation(found, GENERATION) == generation

    def leave(found: Document | None) -> str | None:
        jobsets: list[Document] = []
        if found is not None and mine(found):
            jobsets = _unfinished_jobsets(client, namespace, name)
        if found is None or not jobsets:
            return ""
        owners = [{"apiVersion": JOBSET.api_version, "kind": "JobSet", **job} for job in jobsets]
        if _patch(client, found, {"ownerReferences": owners}) is None:
            return None
        users = ", ".join(f"JobSet {namespace}/{job['name']}" for job in jobsets)
        return f"{_where(namespace, name)} is kept for {users}, which has not finished, and is deleted with it"

    note = _change(client, namespace, name, leave)
    if note:
        return note
    found = client.delete_if(kinds.CLAIM, namespace, name, mine)
    if found is None:
        return ""
    if not mine(found):
        return owner_labels.owner_of(found)
    _await_gone(client, namespace, name, str(found["metadata"]["uid"]), lingering=True)
    return ""


def _unfinished_jobsets(client: Client, namespace: str, name: str) -> list[Document]:
    """Return the unfinished JobSets that mount a claim. Raises Refused if another unfinished Pod mounts it."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        jobsets = _unfinished(client, namespace, name)
        others = _others(client, namespace, name, jobsets)
        if not others or time.monotonic() > deadline or _others(client, namespace, name, None):
            break
        time.sleep(_POLL)  # Pods of a JobSet that is gone: the garbage collector deletes them
    for user in others:
        why = f"is mounted by {user}, which has not finished"
        raise Refused(Problem(_where(namespace, name), why, "wait until it has finished, or delete it first"))
    return jobsets


def list_claims(client: Client, namespace: str, name: str = "") -> dict[Place, Document]:
    """Return the claims with owner and deletionTimestamp, by namespace and name."""

    def keep(found: Document) -> Document:
        meta = found["metadata"]
        marks = {
            "labels": {owner_labels.STACK: section(meta, "labels").get(owner_labels.STACK)},
            "annotations": {owner_labels.OWNER: section(meta, "annotations").get(owner_labels.OWNER)},
        }
        return {"metadata": {**{k: meta.get(k) for k in ("namespace", "name", "deletionTimestamp")}, **marks}}

    fields = ""
    if name:
        fields = f"metadata.name={name}"
    found, _ = client.list(kinds.CLAIM, namespace, fields=fields, keep=keep, whole=False)
    return {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}


def loss_of(there: Mapping[Place, Document], place: Place, owner: Owner | None = None) -> Loss:
    """Return whether a claim was deleted, is being deleted, or belongs to another owner."""
    found = there.get(place)
    if found is None:
        return Loss.GONE
    if owner is not None and not is_owned_by(found, owner):
        return Loss.TAKEN
    if found["metadata"]["deletionTimestamp"]:
        return Loss.LEAVING
    return Loss.NONE


def is_owned_by(found: Mapping[str, Any], owner: Owner) -> bool:
    """Return whether a claim belongs to an owner, either by id or by stack: the id changes when the stack is renamed."""
    by = owner_labels.owner_of(found)
    return bool(by.id) and (by.id == owner.id or by.stack == owner.stack)


def sweep(client: Client, namespace: str, label: str, note: Callable[[str], None] = lambda _: None) -> list[str]:
    """Delete the claims with the stack's label that are not mounted and not retained, and return their names."""
    found, _ = client.list(kinds.CLAIM, namespace, labels=f"{owner_labels.STACK}={label}")
    swept = []
    for claim in found:
        place, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        if claim["metadata"].get("deletionTimestamp"):
            continue  # another call has swept it
        if _annotation(claim, owner_labels.RETAIN) != "true" and not any(_users(client, place, name)):
            left = client.delete_if(kinds.CLAIM, place, name, lambda found: owner_labels.owner_of(found).stack == label)
            if left is None or owner_labels.owner_of(left).stack == label:
                swept.append(f"{place}/{name}")
                description = _description(claim)
                if description:
                    note(f"volume {place}/{name} is deleted with what is in it: {description}")
    return swept


def review(client: Client, namespace: str, name: str, claim: Mapping[str, Any]) -> classes.Verdict:
    """Return why the cluster cannot provide a claim that does not exist yet, as refusals and warnings."""
    storage_class, mode = str(claim.get("storageClass") or ""), str(claim["accessMode"])
    return classes.review(client, _where(namespace, name), storage_class, mode, chosen=bool(claim.get("chosen")))


def path(name: str) -> str:
    """Return the URI of a claim's content, in the form that KServe reads: `pvc://CLAIM`."""
    return f"pvc://{name}"


def output_path(job: Mapping[str, Any]) -> str:
    """Return the URI of the folder `code.OUTPUT_PATH` of the pods of a JobSet or TrainJob; empty if no claim is mounted there.

    If each run has a folder of its own, that folder is below it and has the UID of the JobSet as its name.
    """
    for pod in _pods(job):
        claims = _claims(pod)
        for container in pod.containers:
            for mount in container.mounts:
                if mount.get("mountPath") == code.OUTPUT_PATH and mount.get("name") in claims:
                    return "/".join(filter(None, (path(claims[mount["name"]]), str(mount.get("subPath") or ""))))
    return ""


def claims_of(jobset: Mapping[str, Any]) -> set[str]:
    """Return the names of the claims that pods of the JobSet mount."""
    return set(chain.from_iterable(_claims(pod).values() for pod in _pods(jobset)))


def policy_claims(jobset: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the claims that JobSet creates for `volumeClaimPolicies`, as far as they are known."""
    job = section(jobset, "metadata").get("name")
    for policy in section(jobset, "spec").get("volumeClaimPolicies") or []:
        for template in section(policy).get("templates") or []:
            name = section(template, "metadata").get("name")
            if isinstance(name, str) and isinstance(job, str):
                yield f"{name}-{job}"


def _document(namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any]) -> Document:
    annotations = {owner_labels.OWNER: owner, GENERATION: secrets.token_hex(8)}
    if claim.get("retain"):
        annotations[owner_labels.RETAIN] = "true"
    spec: Document = {
        "accessModes": [claim.get("accessMode") or "ReadWriteOnce"],
        "resources": {"requests": {"storage": claim.get("size") or SIZE}},
    }
    if claim.get("storageClass"):
        spec["storageClassName"] = claim["storageClass"]
    labels = {owner_labels.MANAGED_BY: FIELD_MANAGER}
    if sweep:
        labels[owner_labels.STACK] = sweep
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


_ANEW = (
    "use its values; or, to start with an empty volume: kubectl delete pvc -n {namespace} {name},"
    " then `pulumi refresh` and `pulumi up`"
)


def _immutable(found: Document, wanted: Document) -> list[str]:
    """Return the immutable fields that differ. A ReadWriteMany claim also serves a program that needs ReadWriteOnce."""
    before, after = found["spec"], wanted["spec"]
    differing = []
    if after.get("storageClassName") not in (None, before.get("storageClassName")):
        differing.append(f"its storage class ({before.get('storageClassName')})")
    if not set(after["accessModes"]) & {*before["accessModes"]} and classes.MANY not in before["accessModes"]:
        differing.append(f"its access mode ({', '.join(before['accessModes'])})")
    return differing


def ownership_problems(found: Document, owner: str) -> list[Problem]:
    """Return a problem if a claim does not belong to that owner."""
    theirs = _annotation(found, owner_labels.OWNER)
    if theirs == owner:
        return []
    why = "exists and was not created by this program"
    if theirs:
        why = f"exists and belongs to {owner_labels.owner_of(found)} ({theirs})"
    where = _where(found["metadata"]["namespace"], found["metadata"]["name"])
    return [Problem(where, why, "give the TrainJob another name; deleting the claim deletes its content")]


def _check_owner(found: Document, owner: str, sweep: str) -> None:
    """Raise Conflict if a claim belongs to another owner. A retained claim belongs to any later stack of the same name."""
    problems = ownership_problems(found, owner)
    if problems:
        raise Conflict(*problems)
    namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
    stack = (found["metadata"].get("labels") or {}).get(owner_labels.STACK)
    if stack not in (None, sweep) and _annotation(found, owner_labels.RETAIN) != "true":
        take = f"kubectl annotate pvc -n {namespace} {name} {owner_labels.RETAIN}=true"
        hint = f"give the resource another name, delete the claim, or take it over: {take}, and `pulumi up`"
        raise Conflict(Problem(_where(namespace, name), f"exists and belongs to {NAMESAKE}", hint))


def _users(client: Client, namespace: str, name: str) -> Iterator[str]:
    """Yield the unfinished JobSets, suspended ones too, and the other unfinished pods that mount the claim."""
    jobsets = _unfinished(client, namespace, name)
    for job in jobsets:
        yield f"JobSet {namespace}/{job['name']}"
    yield from _others(client, namespace, name, jobsets)


def _unfinished(client: Client, namespace: str, name: str) -> list[dict[str, str]]:
    """Return name and UID of the unfinished JobSets that mount a claim."""

    def job(found: Document) -> Document | None:
        finished = (found.get("status") or {}).get("terminalState")
        if not finished and name in claims_of(found):
            return {k: found["metadata"][k] for k in ("name", "uid")}
        return None

    try:
        return client.list(JOBSET, namespace, keep=job)[0]
    except ApiError as error:
        if error.code != 404:  # JobSet has been removed from the cluster
            raise
        return []


def _others(client: Client, namespace: str, name: str, jobsets: Sequence[Mapping[str, str]] | None) -> list[str]:
    """Return the unfinished pods that mount a claim and do not belong to these JobSets; None: to any JobSet."""
    beside: set[str] | None = None
    if jobsets is not None:
        beside = {job["name"] for job in jobsets}
    return _mounting(client, namespace, name, finished=False, beside=beside)


def _mounting(
    client: Client, namespace: str, name: str, *, finished: bool, beside: Collection[str] | None = ()
) -> list[str]:
    """Return the pods that mount the claim. beside: JobSets whose pods do not count; None for all JobSets."""

    def pod(found: Document) -> Document | None:
        ended = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        jobset = (found["metadata"].get("labels") or {}).get(JOBSET_NAME)
        does_not_count = jobset in beside if beside is not None else jobset is not None
        mounts = name in _claims(Pod(found.get("spec") or {})).values()
        if ended != finished or not mounts or does_not_count:
            return None
        metadata: Document = found["metadata"]
        return metadata

    return [f"Pod {namespace}/{found['name']}" for found in client.list(kinds.POD, namespace, keep=pod)[0]]


def _await_gone(client: Client, namespace: str, name: str, uid: str, *, lingering: bool = False) -> None:
    """Wait until a claim is gone. lingering: Whether to return while only pods of finished jobs mount the claim: it is deleted
    with them."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        found = client.get(kinds.CLAIM, namespace, name)
        if found is None or found["metadata"]["uid"] != uid:
            return
        finalizers = found["metadata"].get("finalizers") or []
        late = time.monotonic() > deadline
        pods: list[str] = []
        if late or finalizers == [_PROTECTION]:
            pods = _mounting(client, namespace, name, finished=True)
        if lingering and finalizers == [_PROTECTION] and pods:
            return
        if late:
            blockers = ", ".join([*finalizers, *pods]) or "an unknown cause"
            hint = "remove the cause; is the controller manager running?"
            raise TargetFault(Problem(_where(namespace, name), f"is being deleted, but blocked by {blockers}", hint))
        time.sleep(_POLL)


_PROTECTION = "kubernetes.io/pvc-protection"
"""Finalizer of all claims, removed when no pod object mounts them any more, not even one that has finished."""


def _outputs(found: Document) -> dict[str, str]:
    return {"path": path(found["metadata"]["name"]), "generation": _annotation(found, GENERATION)}


def _annotation(found: Mapping[str, Any], name: str) -> str:
    return str((found["metadata"].get("annotations") or {}).get(name) or "")


def _pods(job: Mapping[str, Any]) -> list[Pod]:
    """Return the pods of a JobSet, or the pods in the runtimePatches of a TrainJob."""
    patched = chain.from_iterable(map(patched_jobs, items(job.get("spec"), "runtimePatches")))
    return [replicated.pod for replicated in chain(jobs_of(job), patched)]


def _claims(pod: Pod) -> dict[str, str]:
    found: dict[str, str] = {}
    for volume in pod.volumes:
        if volume.get("persistentVolumeClaim"):
            found[volume["name"]] = volume["persistentVolumeClaim"]["claimName"]
    return found


def _where(namespace: str, name: str) -> str:
    return f"volume {namespace}/{name}"
