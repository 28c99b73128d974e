"""The record of a job in a cluster: a ConfigMap named like the job, created first, which owns all its other objects.

It says whose the job is and, once somebody has seen it, how it ended: that stays when JobSet's TTL has removed the job.
Written by `target`, read by it and by previews.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.api.labels import MADE_BY, RELEASE, RUNTIME
from pulumi_trainer.provider.api.status import (
    OUTCOME_UNKNOWN,
    JobStatus,
    Owner,
    Phase,
)
from pulumi_trainer.provider.api.submission import Submission
from pulumi_trainer.provider.kube.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.terminal import message as harmless_message
from pulumi_trainer.provider.kube.terminal import plain
from pulumi_trainer.provider.kube.values.accessors import rows, section
from pulumi_trainer.provider.lifecycle.status import seconds
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import drift
from pulumi_trainer.provider.targets.kubernetes.storage.claims import output_path

Document = dict[str, Any]

SELECTOR = f"{marks.RECORD}=true"
"""Label selector of all records."""
SENT = "sent"
"""Key of a record: there once the job has been made, where that has to be known."""
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST = 4096
"""Characters of a message of a job."""
_ENDS = (Phase.SUCCEEDED.value, Phase.FAILED.value)
_ENDED = ("phase", "reason", "message", "started", "finished", "progress")


@dataclass(frozen=True)
class Record:
    """uid: identity of this run of the job. phase: the last one that was written down, empty while it runs. ttl: whether
    the job removes itself. deleting: it is on its way out. sent: the job has been made. applied: see
    `drift`. kind: of the job. output: where what it writes is kept. runtime, release, channel, channel_of, follow: what it was
    made from. program: "project/stack" that it belongs to, empty in records of earlier versions."""

    namespace: str
    name: str
    uid: str
    owner: str
    digest: str
    run: str
    stack: str
    created: float
    version: str
    deleting: bool
    ttl: bool
    ours: bool
    retained: bool
    sent: bool
    kind: Kind
    output: str
    applied: Mapping[str, Any]
    ended: Mapping[str, str]
    runtime: str = ""
    release: str = ""
    channel: str = ""
    channel_of: str = ""
    follow: str = ""
    program: str = ""

    def foreign(self, where: str) -> Problem:
        """Return that a ConfigMap of somebody else's has this name."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.created))
        why = f"a ConfigMap of that name exists since {since} and is not a record of a job"
        return Problem(where, why, "give the TrainJob another name")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Record:
        """From the ConfigMap as the server has it."""
        meta, data = document["metadata"], section(document, "data")
        labels, said = section(meta, "labels"), section(meta, "annotations")
        return cls(
            namespace=str(meta.get("namespace", "")),
            name=str(meta["name"]),
            uid=str(meta.get("uid", "")),
            owner=str(said.get(marks.OWNER, "")),
            digest=str(said.get(marks.DIGEST, "")),
            run=str(said.get(marks.RUN, "")),
            stack=str(labels.get(marks.STACK, "")),
            created=seconds(meta.get("creationTimestamp"), 0.0),
            version=str(meta.get("resourceVersion", "")),
            deleting=bool(meta.get("deletionTimestamp")),
            ttl=data.get("ttl") == "true",
            ours=labels.get(marks.RECORD) == "true",
            retained=said.get(marks.RETAIN) == "true",
            sent=SENT in data,
            output=plain(str(data.get("output", ""))),
            kind=TRAIN_JOB if str(data.get("job")).startswith("TrainJob/") else JOBSET,
            applied=_object(data.get("applied")),
            ended={k: str(data[k]) for k in _ENDED if k in data},
            runtime=str(labels.get(RUNTIME, "")),
            release=str(labels.get(RELEASE, "")),
            channel=str(said.get(marks.CHANNEL, "")),
            channel_of=str(said.get(marks.CHANNEL_OF, "")),
            follow=str(said.get(marks.FOLLOW, "")),
            program=str(said.get(MADE_BY, "")),
        )

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.stack, self.program)

    @property
    def terminal(self) -> bool:
        """Whether the end of the job has been written down."""
        return self.ended.get("phase") in _ENDS

    def status(self, phase: Phase, reason: str = "", message: str = "") -> JobStatus:
        """What is known of a job of which nothing else is left."""
        return JobStatus(
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
            owner=self.owner,
            digest=self.digest,
            phase=phase.value,
            output=self.output,
            reason=plain(reason)[:_LONGEST],
            message=harmless_message(message)[:_LONGEST],
            created=self.created,
            stack=self.stack,
            program=self.program,
        )

    def without_job(self) -> JobStatus:
        """The status of a job whose JobSet is gone: as it was written down, else what can be said."""
        if self.terminal:
            ended = self.ended
            status = self.status(Phase(ended["phase"]), ended.get("reason", ""), ended.get("message", ""))
            status.started, status.finished = _number(ended.get("started")), _number(ended.get("finished"))
            status.progress = _object(ended.get("progress")) or None
            return status
        if self.ttl:
            why = "it has a TTL and is gone: it has ended, and nobody was there to see how"
            return self.status(Phase.DELETED, OUTCOME_UNKNOWN, why)
        return self.status(Phase.DELETED, "DeletedByOthers", "somebody has deleted it before it ended")

    def reference(self) -> Document:
        """The ownerReference of the job's other objects. Not as their controller: that place is for who runs them."""
        return {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": False,
            "blockOwnerDeletion": True,
        }


def document(submission: Submission) -> Document:
    """The ConfigMap of a job that is about to be created."""
    spec = submission.main.get("spec") or {}
    ttl = spec.get("ttlSecondsAfterFinished") is not None
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": submission.name,
            "namespace": submission.namespace,
            "labels": {**labels(submission), marks.RECORD: "true"},
            "annotations": {**notes(submission), **({marks.RETAIN: "true"} if submission.retain else {})},
        },
        "data": {
            "job": f"{submission.main['kind']}/{submission.name}",
            "ttl": "true" if ttl else "false",
            "output": output_path(submission.main),
            "applied": json.dumps(drift.applied(submission.main), separators=(",", ":")),
        },
    }


def labels(submission: Submission) -> dict[str, str]:
    """Labels of all objects of a job."""
    stack = {marks.STACK: submission.sweep} if submission.sweep else {}
    made_from = {RUNTIME: submission.runtime.get("name"), RELEASE: submission.runtime.get("release")}
    told = {k: v for k, v in made_from.items() if isinstance(v, str) and _LABEL.fullmatch(v)}
    return {marks.MANAGED_BY: FIELD_MANAGER, marks.JOB: submission.name, **stack, **told}


def notes(submission: Submission) -> dict[str, str]:
    """Annotations of the record and of the job itself."""
    own = {marks.OWNER: submission.owner, marks.DIGEST: submission.digest, marks.RUN: submission.run}
    parts = {marks.CHANNEL: "channel", marks.CHANNEL_OF: "of", marks.FOLLOW: "follow"}
    channel = {mark: submission.runtime.get(part) for mark, part in parts.items()}
    return {**own, **{k: str(v) for k, v in {**channel, MADE_BY: submission.program}.items() if v}}


def change(submission: Submission, version: str) -> Document:
    """A merge patch that makes the record, as it was in that resourceVersion, one of this submission."""
    free = dict.fromkeys((marks.CHANNEL, marks.CHANNEL_OF, marks.FOLLOW, MADE_BY)), dict.fromkeys((RUNTIME, RELEASE))
    said = {**free[0], **notes(submission), marks.RETAIN: "true" if submission.retain else None}
    found = {**free[1], **labels(submission)}
    return {"metadata": {"resourceVersion": version, "annotations": said, "labels": found}}


def find(client: Client, namespace: str, name: str) -> Record | None:
    """The ConfigMap of that name, record or not; None: there is none."""
    found = client.get(CONFIG_MAP, namespace, name)
    return Record.of(found) if found is not None else None


def write_end(client: Client, record: Record, status: JobStatus) -> None:
    """Writes down how a job has ended, unless that has been done. Not being able to is no fault of the job."""
    if record.terminal or record.deleting or status.phase not in _ENDS:
        return
    ended = {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message[:_LONGEST],
        "started": str(status.started),
        "finished": str(status.finished),
        **({"progress": json.dumps(status.progress)} if status.progress else {}),
    }
    change = {"metadata": {"uid": record.uid}, "data": ended}
    try:
        client.within(5.0).patch(CONFIG_MAP, record.namespace, record.name, change)
    except (ApiError, Unreachable):
        return


def _object(text: Any) -> dict[str, Any]:
    """A JSON object that somebody may have edited."""
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str | None) -> float:
    try:
        found = float(text or 0.0)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def belongs(found: Mapping[str, Any], run: str) -> bool:
    """Return whether an object is of that run of a job, and not another one of its name.

    Args:
        found: A JobSet or TrainJob or an object beside it, or its metadata alone.
        run: The UID of the record.
    """
    owners = {each.get("uid") for each in rows(section(found, "metadata").get("ownerReferences"))}
    return run in owners or section(found, "metadata", "annotations").get(marks.RECORD) == run


def look(client: Client, kind: Kind, namespace: str, name: str) -> Document | None:
    """The object of that name; of a Secret its metadata, as who may list Secrets need not be allowed to get them."""
    if kind is not SECRET:
        return client.get(kind, namespace, name)
    found, _ = client.list(kind, namespace, fields=f"metadata.name={name}", whole=False)
    return next(iter(found), None)


def job_of(found: Mapping[str, Any]) -> str:
    """Return the name of the job that an object says it belongs to; empty if it says none."""
    return str(section(found, "metadata", "labels").get(marks.JOB) or "")


def others(found: Mapping[str, Any], where: str = "") -> Problem:
    """Return that an object has the name of one beside a job, and is not the job's."""
    why = (
        f"exists and belongs to the job {job}" if (job := job_of(found)) else "exists and was not made by this program"
    )
    return Problem(where, why, "delete it if nothing needs it, or give the TrainJob another name")
