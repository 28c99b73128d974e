"""Reads the output of a job out of its claim: a Pod that mounts it read-only, and a script whose output is read from that Pod.

No request of the API reads a claim, and logs are cut when they are long; so an archive is the output of `pods/exec`. The Pod has
the image and the user of the job's node, no rights in the cluster, and an owner reference to the record of the job. It is deleted
afterwards; should this process be killed, the Pod ends by itself when nothing has read from it for `IDLE_SECONDS`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from pulumi_trainer.provider.jobs.observed_inputs import without_digests
from pulumi_trainer.provider.jobs.output_facts import Content
from pulumi_trainer.provider.kubernetes import pod_security
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.exec_stream import CommandFailed
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import items, mappings, section
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.pod.code import OUTPUT_PATH
from pulumi_trainer.provider.pod.scripts import digest_output, send_output
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import trainer_step

Document = dict[str, Any]

START_SECONDS = 600.0
"""How long the Pod may take until it runs: a volume is attached and an image is pulled."""
IDLE_SECONDS = 300
"""After how many seconds without a reader the Pod ends."""
LASTING_SECONDS = 24 * 3600
_POLL = 0.5
_CONTAINER = "copy"
_WAIT = f"""
import os, time
idle = 0
while idle < {IDLE_SECONDS}:
    time.sleep(5)
    others = [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
    idle = 0 if others else idle + 5
"""
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions")
_GROUPS = ("fsGroup", "fsGroupChangePolicy", "supplementalGroups")
RULE = "create, get and delete pods; create and get pods/exec"


@contextmanager
def archive(client: Client, record: Record, uri: str, image: str) -> Iterator[Iterator[bytes]]:
    """Provide the archive of `send_output` of a job's output. image: Image with python3; empty for that of the job's node."""
    with _run(client, record, uri, image, send_output) as pieces:
        yield pieces


def digest(client: Client, record: Record, uri: str) -> Content:
    """Return what identifies the content of a job's output, which stays in the cluster."""
    with _run(client, record, uri, "", digest_output) as pieces:
        return Content.from_json(uri, b"".join(pieces))


@contextmanager
def _run(client: Client, record: Record, uri: str, image: str, script: ModuleType) -> Iterator[Iterator[bytes]]:
    """Provide what a script prints about the folder of an output. The Pod is deleted at the end."""
    claim, _, folder = uri.removeprefix(claims.path("")).partition("/")
    if not claim or ".." in folder.split("/"):
        raise TargetFault(Problem(uri, "not a valid path of an output"))
    node = node_spec(client.get(JOBSET, record.namespace, record.name))
    document = pod_document(record, node, claim, image)
    document["spec"].update(_placement(client, record.namespace, claim))
    name = document["metadata"]["name"]
    try:
        _create(client, document)
        _await_running(client, record.namespace, name)
        argv = ["python3", "-c", Path(str(script.__file__)).read_text("utf-8"), f"{OUTPUT_PATH}/{folder}".rstrip("/")]
        pieces = client.execute(record.namespace, name, _CONTAINER, argv, idle=IDLE_SECONDS)
        with closing(_with_hints(pieces, record.namespace)) as found:  # type: ignore[type-var]
            yield found
    finally:
        _delete(client, record.namespace, name)


def _with_hints(pieces: Iterator[bytes], namespace: str) -> Iterator[bytes]:
    try:
        yield from pieces
    except ApiError as error:
        raise _without_right(error, namespace) from None
    except CommandFailed as error:
        if error.code is None or error.code in (126, 127):
            raise _without_python(str(error)) from None
        raise


def _create(client: Client, document: Document) -> None:
    metadata = document["metadata"]
    try:
        # Who may only create Pods fails here, and leaves none behind.
        client.get(kinds.POD, metadata["namespace"], metadata["name"])
        client.create(kinds.POD, document)
    except ApiError as error:
        raise _without_right(error, metadata["namespace"]) from None


def _without_right(error: ApiError, namespace: str) -> TargetFault:
    """Return the error with the rule that is missing, if the server has refused for want of a right."""
    if error.code != 403 or " cannot " not in error.message:  # else a quota or a policy
        return error
    hint = f"reading an output needs the right to {RULE}: pulumi-trainer rbac -n {namespace} --outputs | kubectl apply -f -"
    return TargetFault(Problem(error.problems[0].where, error.message, hint))


def _without_python(why: str) -> TargetFault:
    return TargetFault(Problem("", f"the image of the job cannot run python3: {why}", "--image names one with python3"))


def _delete(client: Client, namespace: str, name: str) -> None:
    """Delete the Pod, also if the answer to its creation was lost."""
    try:
        client.within(20.0).delete(kinds.POD, namespace, name, propagation="Background")
    except TrainerError as error:
        print_line(f"note: Pod {namespace}/{name} is still there, and ends by itself: {error}", error=True)


def pod_document(record: Record, theirs: Mapping[str, Any], claim: str, image: str) -> Document:
    """Return the Pod that mounts the output of a job. theirs: Spec of the pod of the job's node; empty if it is not known."""
    containers = sorted(items(theirs, "containers"), key=lambda each: each.get("name") != "node")
    container = containers[0] if containers else {}
    chosen = image or str(container.get("image") or "") or _recorded_image(record)
    if not chosen:
        why = "the cluster does not have the job's pods any more, and its record has no image"
        raise TargetFault(Problem(f"{record.namespace}/{record.name}", why, "--image names one with python3"))
    of_pod, of_container = section(theirs, "securityContext"), section(container, "securityContext")
    user = {key: value for key, value in {**of_pod, **of_container}.items() if key in _USER}
    groups = {key: value for key, value in of_pod.items() if key in _GROUPS}
    shared = {key: theirs[key] for key in ("imagePullSecrets", "tolerations") if key in theirs}
    metadata: Document = {
        "name": f"{record.name[:40].rstrip('-.').replace('.', '-')}-copy-{secrets.token_hex(4)}",
        "namespace": record.namespace,
        "labels": {owner_labels.MANAGED_BY: FIELD_MANAGER},
        "ownerReferences": [{**record.owner_reference(), "blockOwnerDeletion": False}],
    }
    copier = {
        "name": _CONTAINER,
        "image": chosen,
        "command": ["python3", "-c", _WAIT],
        "volumeMounts": [{"name": "output", "mountPath": OUTPUT_PATH, "readOnly": True}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        **shared,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LASTING_SECONDS,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **user, **groups},
        "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [copier],
    }
    if record.inputs.get("hardening") == "restricted":  # also when the pods that say so are gone
        spec = pod_security.harden(spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def node_spec(jobset: Document | None) -> Mapping[str, Any]:
    """Return the spec of the pod of rank 0; empty if the job is gone."""
    if jobset is None:
        return {}
    rank_0 = trainer_step(jobset)
    return next(step.pod.spec for step in jobs_of(jobset) if step.name == rank_0)


def _recorded_image(record: Record) -> str:
    """Return the image of the node in the record's inputs, which name the images of all steps if they differ."""
    for each in without_digests(record.inputs.get("image", "")).split(", "):
        step, _, image = each.rpartition(": ")
        if step in ("", "node") and " " not in image:  # a long text was cut
            return image
    return ""


def _placement(client: Client, namespace: str, claim: str) -> Document:
    """Return the affinity to the node of a pod that uses the claim: a ReadWriteOnce volume cannot be attached to a second one."""

    def node_name(pod: Document) -> Document | None:
        volumes = mappings(section(pod, "spec").get("volumes"))
        mounted = [section(volume, "persistentVolumeClaim").get("claimName") for volume in volumes]
        running = section(pod, "status").get("phase") == "Running" and section(pod, "spec").get("nodeName")
        return {"node": running} if running and claim in mounted else None

    found, _ = client.list(kinds.POD, namespace, keep=node_name)
    if not found:
        return {}
    match = {"key": "metadata.name", "operator": "In", "values": [found[0]["node"]]}
    required = {"nodeSelectorTerms": [{"matchFields": [match]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _await_running(client: Client, namespace: str, name: str) -> None:
    """Wait until the Pod runs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        found = client.get(kinds.POD, namespace, name)
        if found is None:
            raise TargetFault(Problem(f"Pod {namespace}/{name}", "somebody has deleted it"))
        phase = section(found, "status").get("phase")
        if phase == "Running":
            return
        why, lasting = _obstacle(found)
        if phase in ("Failed", "Succeeded") or lasting:
            if "python3" in why:
                raise _without_python(why)
            raise TargetFault(Problem(f"Pod {namespace}/{name}", why or f"has ended: {phase}", _hint_for_pod(why)))
        if time.monotonic() > deadline:
            waits = "; ".join(filter(None, (why, *_warnings(client, namespace, name))))
            late = f"does not run after {START_SECONDS:.0f} s: {waits or 'the cluster gives no reason'}"
            raise TargetFault(Problem(f"Pod {namespace}/{name}", late, _hint_for_pod(waits)))
        time.sleep(_POLL)


_LASTING = (
    "CreateContainerError",
    "CreateContainerConfigError",
    "InvalidImageName",
    "ImagePullBackOff",
    "RunContainerError",
)


def _obstacle(pod: Mapping[str, Any]) -> tuple[str, bool]:
    """Return what the Pod waits for or how it has failed, and whether waiting does not help."""
    status = section(pod, "status")
    for container in mappings(status.get("containerStatuses")):
        for state in ("terminated", "waiting"):
            found = section(container, "state", state)
            if found:
                reason = str(found.get("reason") or state)
                words = ": ".join(filter(None, (reason, str(found.get("message") or ""))))
                return words, state == "terminated" or reason in _LASTING
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "is not scheduled"), False
    return str(status.get("message") or ""), False


def _warnings(client: Client, namespace: str, name: str) -> list[str]:
    """Return the warnings about the Pod; [] if events cannot be read."""
    fields = f"involvedObject.kind=Pod,involvedObject.name={name},type=Warning"
    with suppress(TrainerError):
        found, _ = client.list(kinds.EVENT, namespace, fields=fields)
        return list(dict.fromkeys(str(event.get("message") or "") for event in found))[-3:]
    return []


def _hint_for_pod(why: str) -> str:
    if "Multi-Attach" in why or "ReadWriteOncePod" in why or "already used" in why:
        return (
            "a pod on another node uses the volume, which only one node can mount; copy the output when that pod"
            " has ended"
        )
    return "see the events of the Pod: kubectl describe"
