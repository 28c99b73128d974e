"""Volumes that outlive jobs: PersistentVolumeClaims of the program.

No record owns them. Annotations say whose they are; a generation, new with each create, keeps a late delete of an earlier
life from ending a later one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.kinds import JOBSET
from pulumi_trainer.provider.api.status import NAMESAKE, Loss, Owner
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Problem,
    Refused,
    TargetFault,
)
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.lifecycle.identity import program_of
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.storage import classes

Document = dict[str, Any]
Place = tuple[str, str]
"""(namespace, name)"""

SIZE = "20Gi"
"""Of a volume whose size nobody gave; as much as upstream's runtimes ask for datasets and models."""
GENERATION = f"{marks.DOMAIN}/generation"

_JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""Label of the pods of a JobSet."""

GONE_SECONDS = 20.0
"""How long a delete waits for the claim to be gone."""
_POLL = 0.1


def create(
    client: Client, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any]
) -> dict[str, str]:
    """{"path", "generation"} of the claim, made if it is missing; data stays. Safe to repeat.

    claim: size, storageClass, accessMode, retain as the program says (`components.volumes`). Raises Conflict for a claim
    that is not ours, or ours and different in what cannot change.
    """
    wanted = _document(namespace, name, owner, sweep, claim)
    while True:
        found = client.get(kinds.CLAIM, namespace, name)
        if found is not None and found["metadata"].get("deletionTimestamp"):
            _await_gone(client, namespace, name, found["metadata"]["uid"])
            continue
        if found is None:
            if missing := classes.missing(client, _where(namespace, name), str(claim.get("storageClass") or "")):
                raise TargetFault(missing)  # the claim would be made, and wait for ever
            try:
                return _told(client.create(kinds.CLAIM, wanted))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                continue
        _check_ours(found, owner, sweep)
        if differing := _immutable(found, wanted):
            why = f"exists, and {' and '.join(differing)} of a claim cannot change"
            raise Conflict(Problem(_where(namespace, name), why, _ANEW.format(namespace=namespace, name=name)))
        change = {"metadata": {k: wanted["metadata"][k] for k in ("labels", "annotations")}}
        about = {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "ownerReferences": None,
        }  # left to no job any more
        change["metadata"] |= about
        try:
            return _told(client.patch(kinds.CLAIM, namespace, name, change))
        except ApiError as error:
            if not (error.code == 409 or error.absent):
                raise


def update(client: Client, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
    """A larger size, or another `retain`, of that generation; the class has to allow it, in the server's words where it does not.
    Raises Conflict if it is another's by now."""
    size = {"spec": {"resources": {"requests": {"storage": claim["size"]}}}} if claim.get("size") else {}
    kept = {marks.RETAIN: "true" if claim.get("retain") else None}
    while True:
        found = client.get(kinds.CLAIM, namespace, name)
        if found is None:
            raise TargetFault(Problem(_where(namespace, name), "is gone", "run `pulumi refresh`, then `pulumi up`"))
        if _annotation(found, GENERATION) != generation:
            raise Conflict(
                Problem(_where(namespace, name), f"belongs to {whose(found)}", "give the resource another name")
            )
        about = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": kept}
        try:
            client.patch(kinds.CLAIM, namespace, name, {**size, "metadata": about})
            return
        except ApiError as error:
            if error.code == 409:
                continue  # it has changed since it was read
            if not size or error.code not in (403, 422):
                raise
            mend = "a claim grows once it is bound, and if its StorageClass has allowVolumeExpansion"
            raise TargetFault(Problem(_where(namespace, name), error.message.partition("\n")[0], mend)) from None


def read(client: Client, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
    """{"path", "generation"}, and whose it is; None if there is none of any program's."""
    found = client.get(kinds.CLAIM, namespace, name)
    if found is None or found["metadata"].get("deletionTimestamp") or not _annotation(found, GENERATION):
        return None
    return _told(found), whose(found)


def describe(client: Client, namespace: str, name: str) -> str:
    """Return size and age of a claim; empty if it has never been bound, so that nothing is in it. What is in it no API tells."""
    found = client.get(kinds.CLAIM, namespace, name)
    return "" if found is None else _held(found)


def _held(claim: Document) -> str:
    status = claim.get("status") or {}
    if status.get("phase") == "Pending":
        return ""
    asked = (claim["spec"].get("resources") or {}).get("requests") or {}
    size = (status.get("capacity") or asked).get("storage", "unknown size")
    return f"a claim of {size}, made {claim['metadata'].get('creationTimestamp')}"


def delete(client: Client, namespace: str, name: str, generation: str) -> Owner | str:
    """With all its data; only that generation: whose another one is is returned. One that unfinished JobSets mount is left to
    them, and goes with the last of them; returns that. Raises Refused while another unfinished Pod mounts it. What pods of
    finished jobs still mount goes with them."""

    def mine(found: Mapping[str, Any]) -> bool:
        return _annotation(found, GENERATION) == generation

    deadline = time.monotonic() + GONE_SECONDS
    while (found := client.get(kinds.CLAIM, namespace, name)) is not None and mine(found):
        jobsets = _unfinished(client, namespace, name)
        others = _others(client, namespace, name, jobsets)
        if others and time.monotonic() < deadline and not _others(client, namespace, name, None):
            time.sleep(_POLL)  # Pods of a JobSet that is gone: the garbage collector deletes them
            continue
        for user in others:
            why = f"is mounted by {user}, which has not finished"
            raise Refused(Problem(_where(namespace, name), why, "wait until it has finished, or delete it first"))
        if not jobsets:
            break
        owners = [{"apiVersion": JOBSET.api_version, "kind": "JobSet", **job} for job in jobsets]
        change = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "ownerReferences": owners}}
        try:
            client.patch(kinds.CLAIM, namespace, name, change)
        except ApiError as error:
            if not (error.code == 409 or error.absent):
                raise
            continue
        users = ", ".join(f"JobSet {namespace}/{job['name']}" for job in jobsets)
        return f"{_where(namespace, name)} stays for {users}, unfinished, and goes with it"
    found = client.delete_if(kinds.CLAIM, namespace, name, mine)
    if found is None:
        return ""
    if not mine(found):
        return whose(found)
    _await_gone(client, namespace, name, str(found["metadata"]["uid"]), lingering=True)
    return ""


def whose(found: Mapping[str, Any]) -> Owner:
    """Return the owner that is written on a claim."""
    urn = _annotation(found, marks.OWNER)
    return Owner(urn, str((found["metadata"].get("labels") or {}).get(marks.STACK) or ""), program_of(urn))


def claims_there(client: Client, namespace: str, name: str = "") -> dict[Place, Document]:
    """Return the claims of a namespace (empty: of all), with what says whose they are, and whether they are being deleted. name:
    of the only one that is asked for."""

    def keep(found: Document) -> Document:
        meta = found["metadata"]
        said = {
            "labels": {marks.STACK: section(meta, "labels").get(marks.STACK)},
            "annotations": {marks.OWNER: section(meta, "annotations").get(marks.OWNER)},
        }
        return {"metadata": {**{k: meta.get(k) for k in ("namespace", "name", "deletionTimestamp")}, **said}}

    fields = f"metadata.name={name}" if name else ""
    found, _ = client.list(kinds.CLAIM, namespace, fields=fields, keep=keep, whole=False)
    return {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}


def loss(there: Mapping[Place, Document], place: Place, owner: Owner | None = None) -> Loss:
    """Return what has become of a claim. there: see `claims_there`. owner: who has made it, where that is known."""
    if (found := there.get(place)) is None:
        return Loss.GONE
    if owner is not None and not is_of(found, owner):
        return Loss.TAKEN
    return Loss.LEAVING if found["metadata"]["deletionTimestamp"] else Loss.NONE


def is_of(found: Mapping[str, Any], owner: Owner) -> bool:
    """Return whether a claim was made by that owner, which has another id since its stack was renamed, or by one of its names."""
    by = whose(found)
    return bool(by.id) and (by.id == owner.id or by.stack == owner.stack)


def written_owner(found: Mapping[str, Any]) -> str:
    """Return the id of the owner that is written on a claim; empty for one that no program has made."""
    return _annotation(found, marks.OWNER)


def sweep(client: Client, namespace: str, label: str, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Deletes the claims with the stack's label that nobody mounts, less those that are to be kept; returns their names.

    tell: called with size and age of each that may hold something.
    """
    found, _ = client.list(kinds.CLAIM, namespace, labels=f"{marks.STACK}={label}")
    swept = []
    for claim in found:
        place, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        if claim["metadata"].get("deletionTimestamp"):
            continue  # another call has swept it
        if _annotation(claim, marks.RETAIN) != "true" and not any(_users(client, place, name)):
            left = client.delete_if(kinds.CLAIM, place, name, lambda found: whose(found).stack == label)
            if left is None or whose(left).stack == label:
                swept.append(f"{place}/{name}")
                if held := _held(claim):
                    tell(f"volume {place}/{name} is deleted with what is in it: {held}")
    return swept


def review(client: Client, namespace: str, name: str, claim: Mapping[str, Any]) -> classes.Verdict:
    """What the cluster cannot give, of a claim that is not there yet."""
    storage_class, mode = str(claim.get("storageClass") or ""), str(claim["accessMode"])
    return classes.review(client, _where(namespace, name), storage_class, mode, chosen=bool(claim.get("chosen")))


def path(name: str) -> str:
    """How a claim's content is called, in the form that KServe reads: `pvc://CLAIM`."""
    return f"pvc://{name}"


def output_path(job: Mapping[str, Any]) -> str:
    """Where the folder `code.OUTPUT_PATH` of the pods of a JobSet or TrainJob is kept; empty where no claim is mounted there.
    With a folder of its own for each run, that has the name of the JobSet's uid below it."""
    for pod in _pods(job):
        claims = _claims(pod)
        for container in pod.get("containers") or []:
            for mount in container.get("volumeMounts") or []:
                if mount.get("mountPath") == code.OUTPUT_PATH and mount.get("name") in claims:
                    return "/".join(filter(None, (path(claims[mount["name"]]), str(mount.get("subPath") or ""))))
    return ""


def claims_of(jobset: Mapping[str, Any]) -> set[str]:
    """Names of the claims that pods of the JobSet mount."""
    return {claim for pod in _pods(jobset) for claim in _claims(pod).values()}


def policy_claims(jobset: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the claims that JobSet makes for `volumeClaimPolicies`, as far as they are known."""
    job = _at(jobset, "metadata", "name")
    for policy in _at(jobset, "spec", "volumeClaimPolicies") or []:
        for template in _at(policy, "templates") or []:
            name = _at(template, "metadata", "name")
            if isinstance(name, str) and isinstance(job, str):
                yield f"{name}-{job}"


def _document(namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any]) -> Document:
    annotations = {marks.OWNER: owner, GENERATION: secrets.token_hex(8)}
    if claim.get("retain"):
        annotations[marks.RETAIN] = "true"
    spec: Document = {
        "accessModes": [claim.get("accessMode") or "ReadWriteOnce"],
        "resources": {"requests": {"storage": claim.get("size") or SIZE}},
    }
    if claim.get("storageClass"):
        spec["storageClassName"] = claim["storageClass"]
    labels = {marks.MANAGED_BY: FIELD_MANAGER, **({marks.STACK: sweep} if sweep else {})}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


_ANEW = (
    "give the values that it has; or, to begin anew without its data: kubectl delete pvc -n {namespace} {name},"
    " then `pulumi refresh` and `pulumi up`"
)


def _immutable(found: Document, wanted: Document) -> list[str]:
    """What differs and cannot be changed; a mode that several nodes can mount serves one as well."""
    before, after = found["spec"], wanted["spec"]
    differing = []
    if after.get("storageClassName") not in (None, before.get("storageClassName")):
        differing.append(f"its storage class ({before.get('storageClassName')})")
    if not set(after["accessModes"]) & {*before["accessModes"]} and classes.MANY not in before["accessModes"]:
        differing.append(f"its access mode ({', '.join(before['accessModes'])})")
    return differing


def taken(found: Document, owner: str) -> list[Problem]:
    """Return that a claim is not that owner's."""
    theirs = _annotation(found, marks.OWNER)
    if theirs == owner:
        return []
    why = f"exists and belongs to {whose(found)} ({theirs})" if theirs else "exists and was not made by this program"
    where = _where(found["metadata"]["namespace"], found["metadata"]["name"])
    return [Problem(where, why, "give the TrainJob another name; whoever deletes the claim deletes what is in it")]


def _check_ours(found: Document, owner: str, sweep: str) -> None:
    """One that is kept when its stack goes is any later stack's of that name."""
    if problems := taken(found, owner):
        raise Conflict(*problems)
    namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
    stack = (found["metadata"].get("labels") or {}).get(marks.STACK)
    if stack not in (None, sweep) and _annotation(found, marks.RETAIN) != "true":
        take = f"kubectl annotate pvc -n {namespace} {name} {marks.RETAIN}=true"
        mend = f"give the resource another name, delete the claim, or take it over: {take}, and `pulumi up`"
        raise Conflict(Problem(_where(namespace, name), f"exists and belongs to {NAMESAKE}", mend))


def _users(client: Client, namespace: str, name: str) -> Iterator[str]:
    """Who mounts the claim and has not finished: JobSets, also suspended ones, and pods of anybody else."""
    jobsets = _unfinished(client, namespace, name)
    yield from (f"JobSet {namespace}/{job['name']}" for job in jobsets)
    yield from _others(client, namespace, name, jobsets)


def _unfinished(client: Client, namespace: str, name: str) -> list[dict[str, str]]:
    """Return name and uid of the JobSets that mount a claim and have not finished."""

    def job(found: Document) -> Document | None:
        finished = (found.get("status") or {}).get("terminalState")
        return {k: found["metadata"][k] for k in ("name", "uid")} if not finished and name in claims_of(found) else None

    try:
        return client.list(JOBSET, namespace, keep=job)[0]
    except ApiError as error:
        if error.code != 404:  # JobSet has been removed from the cluster
            raise
        return []


def _others(client: Client, namespace: str, name: str, jobsets: Sequence[Mapping[str, str]] | None) -> list[str]:
    """Return the unfinished pods that mount a claim and belong to none of the JobSets; None: to no JobSet at all."""
    beside = None if jobsets is None else {job["name"] for job in jobsets}
    return _mounting(client, namespace, name, finished=False, beside=beside)


def _mounting(
    client: Client, namespace: str, name: str, *, finished: bool, beside: Collection[str] | None = ()
) -> list[str]:
    """Pods that mount the claim and have finished, or have not. beside: JobSets whose pods do not count; None: of all."""

    def pod(found: Document) -> Document | None:
        ended = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        jobset = (found["metadata"].get("labels") or {}).get(_JOBSET_NAME)
        theirs = jobset is not None if beside is None else jobset in beside
        mounts = name in _claims(found.get("spec") or {}).values()
        return found["metadata"] if ended == finished and mounts and not theirs else None

    return [f"Pod {namespace}/{found['name']}" for found in client.list(kinds.POD, namespace, keep=pod)[0]]


def _await_gone(client: Client, namespace: str, name: str, uid: str, *, lingering: bool = False) -> None:
    """lingering: a claim may stay that only pods of finished jobs hold: it goes with them."""
    deadline = time.monotonic() + GONE_SECONDS
    while (found := client.get(kinds.CLAIM, namespace, name)) is not None and found["metadata"]["uid"] == uid:
        finalizers = found["metadata"].get("finalizers") or []
        late = time.monotonic() > deadline
        pods = _mounting(client, namespace, name, finished=True) if late or finalizers == [_PROTECTION] else []
        if lingering and finalizers == [_PROTECTION] and pods:
            return
        if late:
            held = ", ".join([*finalizers, *pods]) or "nothing that shows"
            mend = "it goes when that has gone; is the controller manager running?"
            raise TargetFault(Problem(_where(namespace, name), f"is being deleted, and held by {held}", mend))
        time.sleep(_POLL)


_PROTECTION = "kubernetes.io/pvc-protection"
"""Finalizer of all claims, removed when no pod object mounts them any more, not even one that has finished."""


def _told(found: Document) -> dict[str, str]:
    return {"path": path(found["metadata"]["name"]), "generation": _annotation(found, GENERATION)}


def _annotation(found: Mapping[str, Any], name: str) -> str:
    return str((found["metadata"].get("annotations") or {}).get(name) or "")


def _pods(job: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Specs of the pods of a JobSet; of a TrainJob what its patches say of them."""
    spec = job.get("spec") or {}
    patched = [
        _at(p, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") for p in spec.get("runtimePatches") or []
    ]
    for replicated in chain(spec.get("replicatedJobs") or [], *(jobs for jobs in patched if isinstance(jobs, list))):
        pod = _at(replicated, "template", "spec", "template", "spec")
        yield pod if isinstance(pod, dict) else {}


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _claims(pod: Mapping[str, Any]) -> dict[str, str]:
    """Volume -> claim."""
    return {v["name"]: c["claimName"] for v in pod.get("volumes") or [] if (c := v.get("persistentVolumeClaim"))}


def _where(namespace: str, name: str) -> str:
    return f"volume {namespace}/{name}"
