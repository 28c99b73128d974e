"""Removes what runs that are too old have in the output volume of a job: a Job with a Pod that mounts the volume.

The Pod starts where a Pod of the job runs, so that a volume of one node is never attached to another one first. It has the image
and the user of the job's node and no rights in the cluster. The Job belongs to the record of the job, and goes after its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.pod.code import OUTPUT_PATH
from pulumi_trainer.provider.targets.kubernetes.copy_pod import node_spec, pod_document
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

Document = dict[str, Any]

_DEADLINE = 24 * 3600
_KEPT_SECONDS = 600
"""How long the finished Job stays, for who wants to see its Pod."""


def remove_outdated_folders(client: Client, record: Record, submission: Submission) -> str:
    """Create the Job that removes the folders of the lineages that a new run removes from its output volume, if there are any.
    Return why the folders stay; empty if they are removed, or if there are none. The new run goes on in any case."""
    lineages = record.identity.removed_lineages
    claim, _, folder = record.output.removeprefix(claims.path("")).partition("/")
    if not lineages or not record.output.startswith(claims.path("")) or folder != record.identity.lineage:
        return ""
    stays = f"{record.namespace}/{record.name}: folders of earlier runs stay in claim {claim} ({', '.join(lineages)})"
    try:
        found = client.get(kinds.CLAIM, record.namespace, claim)
        if "ReadWriteOncePod" in section(found, "spec").get("accessModes", ()):
            return f"{stays}: one Pod at a time can mount it"
        client.create(kinds.JOB, _job(record, submission, claim, lineages))
    except TrainerError as error:
        return f"{stays}: {error}"
    return ""


def _job(record: Record, submission: Submission, claim: str, lineages: list[str]) -> Document:
    pod = pod_document(record, _node_spec(submission), claim, "")
    (container,) = pod["spec"]["containers"]
    container |= {
        "name": "remove",
        "command": ["rm", "-rf", "--", *(f"{OUTPUT_PATH}/{lineage}" for lineage in lineages)],
        "volumeMounts": [{"name": "output", "mountPath": OUTPUT_PATH}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "256Mi"}},
    }
    selector = {"matchLabels": {JOBSET_NAME: record.name}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = {**pod["spec"], "affinity": affinity}
    del spec["activeDeadlineSeconds"]
    metadata = pod["metadata"]
    return {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {**metadata, "name": metadata["name"].replace("-copy-", "-remove-")},
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": _DEADLINE,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": spec},
        },
    }


def _node_spec(submission: Submission) -> Mapping[str, Any]:
    """Return the spec of the pod of rank 0; empty if only a controller renders it."""
    if submission.main["kind"] != JOBSET.kind:
        return {}
    return node_spec(submission.main)
