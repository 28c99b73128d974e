"""Reads and writes the record of a job: a ConfigMap with the job's name, created first, which owns the job's other objects.

The record has the owner of the job and, once it was observed, how the job ended; it stays after JobSet's TTL has removed the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi_trainer.provider.jobs.attempts import read_attempts
from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.jobs.job_record import JobRecord
from pulumi_trainer.provider.jobs.manual import STOPPED, Override, utc_time
from pulumi_trainer.provider.jobs.progress import kept_progress
from pulumi_trainer.provider.jobs.retention import as_row
from pulumi_trainer.provider.jobs.runs import Identity, Run, fault_of_runs, read_inputs, read_runs
from pulumi_trainer.provider.jobs.status import NOT_CREATED, OUTCOME_UNKNOWN, UNKNOWN_END, JobStatus, Phase
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, Demand, current_user, demand_of
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Problem, Unreadable
from pulumi_trainer.provider.kubernetes.terminal import message as harmless_message
from pulumi_trainer.provider.kubernetes.terminal import plain, plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, plausible_seconds, section
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import drift
from pulumi_trainer.provider.targets.kubernetes.storage.claims import output_path
from pulumi_trainer.provider.trainer.job_status import epoch_seconds
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import MADE_BY, RELEASE, RUNTIME

Document = dict[str, Any]

SELECTOR = f"{owner_labels.RECORD}=true"
"""Label selector of all records."""
SENT = "sent"
"""Key of a record whose job was created, where a TTL, a recreation or a rerun makes that matter."""
BEGUN = "begun"
"""Key of the time when `rerun` began the run, in seconds since the epoch: the record is that of the first run."""
SENDING = "sending"
"""Key of a record whose run `rerun` has begun and not sent yet: if no job is found, the run has never existed."""
COPY = "copy"
"""Value of the label `RECORD` of the ConfigMap that owns the copies of a job's objects in a worker cluster of MultiKueue."""
SUMS = "usage"
"""Value of the label `RECORD` of the ConfigMap with the monthly sums of what deleted jobs have used."""
SUMS_NAME = "pulumi-trainer-usage"
IDENTITY = "identity"
"""Key of id, lineage, parent, cause and place of the run, as JSON."""
EARLIER = "earlier"
"""Key of the earlier runs in a record."""
USAGE = "usage"
"""Key of what the job requests and for whom, which `pulumi-trainer usage` counts."""
METRICS = "metrics-"
"""Prefix of the keys with the metrics of a run and their history; the id of the run follows."""
_MOST_HISTORY = 400_000
"""Bytes of the metrics of all runs, of which the newest are kept: a ConfigMap has 1 MiB, and a record at most 900 KB."""
_MOST_EARLIER = 300_000
"""Bytes of the earlier runs; the oldest ones lose their metrics first."""
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_JOB = 600
"""Characters of the name of another job."""
LONGEST_MESSAGE = 4096
"""Longest stored message of a job, in characters."""
ENDS = (Phase.SUCCEEDED.value, Phase.FAILED.value)
ATTEMPTS = "attempts"
"""Key of the attempts of the run, as they were known when the record was written last."""
PREEMPTOR = "preemptor"
"""Key of JSON with the UID of the Workload that has preempted the job, and the name of its job: Kueue has the UID alone, and the
Workload may be gone."""
OBSERVED = "observed"
"""Key of those inputs of the run that its end adds (`jobs.observed_inputs`): `inputs` are what the plan knew."""
ENDED = ("phase", "reason", "message", "started", "finished", "progress")


@dataclass(frozen=True, kw_only=True)
class Record(JobRecord):
    """The record of a job, as the server has it.

    Args:
        applied: The applied values that `drift` compares.
        ended: Phase, reason, message, times and progress of the ended job; empty while it runs.
        runtime: Name of the runtime that the job was rendered from.
        channel_of: "project/stack" of the channel.
        copy_of: UID of the record in the manager cluster, if this is the owner of copies in a worker cluster; else empty.
        sending: Whether `rerun` has begun the run, and has not recorded that it sent the job.
        histories: Id of a run -> its metrics with their history (`Run.history_text`).
        preemptor: UID of the Workload that has preempted it last -> the job of this Workload, as in "team/llama (high)".
    """

    version: str
    deleting: bool
    ttl: bool
    is_record: bool
    retained: bool
    sent: bool
    kind: Kind
    applied: Mapping[str, Any]
    ended: Mapping[str, str]
    runtime: str = ""
    release: str = ""
    channel: str = ""
    channel_of: str = ""
    follow: str = ""
    interrupt: str = ""
    demand: Demand = NOTHING_KNOWN
    copy_of: str = ""
    sending: bool = False
    histories: Mapping[str, str] = field(default_factory=dict, repr=False)
    fault: str = ""
    preemptor: Mapping[str, str] = field(default_factory=dict)

    def foreign_problem(self, where: str) -> Problem:
        """Return the problem that a ConfigMap that is not a record has the job's name."""
        since = utc_time(self.created)
        why = f"a ConfigMap of that name exists since {since} and is not a record of a job"
        return Problem(where, why, "give the TrainJob another name")

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Record:
        """Return the record of a ConfigMap as the server has it."""
        meta, data = document["metadata"], section(document, "data")
        labels, annotations = section(meta, "labels"), section(meta, "annotations")
        kind = JOBSET
        if str(data.get("job")).startswith("TrainJob/"):
            kind = TRAIN_JOB
        copy_of = ""
        if labels.get(owner_labels.RECORD) == COPY:
            copy_of = str(annotations.get(owner_labels.RECORD, ""))
        return cls(
            namespace=str(meta.get("namespace", "")),
            name=str(meta["name"]),
            uid=str(meta.get("uid", "")),
            owner=str(annotations.get(owner_labels.OWNER, "")),
            digest=str(annotations.get(owner_labels.DIGEST, "")),
            run=str(annotations.get(owner_labels.RUN, "")),
            stack=str(labels.get(owner_labels.STACK, "")),
            created=seconds(data.get(BEGUN)) or epoch_seconds(meta.get("creationTimestamp"), 0.0),
            version=str(meta.get("resourceVersion", "")),
            deleting=bool(meta.get("deletionTimestamp")),
            ttl=data.get("ttl") == "true",
            is_record=labels.get(owner_labels.RECORD) == "true",
            retained=annotations.get(owner_labels.RETAIN) == "true",
            sent=SENT in data,
            output=plain(str(data.get("output", ""))),
            kind=kind,
            applied=_object(data.get("applied")),
            ended={k: str(data[k]) for k in ENDED if k in data},
            runtime=str(labels.get(RUNTIME, "")),
            release=str(labels.get(RELEASE, "")),
            channel=str(annotations.get(owner_labels.CHANNEL, "")),
            channel_of=str(annotations.get(owner_labels.CHANNEL_OF, "")),
            follow=str(annotations.get(owner_labels.FOLLOW, "")),
            interrupt=str(annotations.get(owner_labels.INTERRUPT, "")),
            program=str(annotations.get(MADE_BY, "")),
            inputs=read_inputs({**_object(data.get("inputs")), **_object(data.get(OBSERVED))}),
            identity=Identity.from_dict(_object(data.get(IDENTITY))),
            earlier=read_runs(parse(data.get(EARLIER))),
            override=Override.from_text(str(annotations.get(owner_labels.OVERRIDE, ""))),
            demand=Demand.from_text(data.get(USAGE)),
            attempts=read_attempts(parse(data.get(ATTEMPTS))),
            copy_of=copy_of,
            sending=SENDING in data,
            histories={key.removeprefix(METRICS): str(data[key]) for key in data if key.startswith(METRICS)},
            fault=_fault(meta, data),
            preemptor={uid: plain_field(job, _LONGEST_JOB) for uid, job in _object(data.get(PREEMPTOR)).items()},
        )

    def check(self) -> None:
        """Check that nobody has edited the runs of the record."""
        if self.fault:
            raise Unreadable(Problem("", self.fault))

    @property
    def terminal(self) -> bool:
        return self.ended.get("phase") in ENDS

    @property
    def removes_itself(self) -> bool:
        """Whether a job that is missing has been removed by its TTL: it has one, and was created."""
        return self.ttl and self.sent

    @property
    def stop_note(self) -> str:
        """Who has stopped the job with `pulumi-trainer`; empty if nobody has."""
        if self.ended.get("reason") != STOPPED:
            return ""
        return harmless_message(self.ended.get("message", ""))

    def override_note(self, job: Mapping[str, Any]) -> str:
        """Return who has suspended or resumed the job; empty if nobody has, or if the job is not so any longer."""
        if self.override is None or self.override.differs(section(job, "spec").get("suspend")):
            return ""
        return self.override.note

    def status(self, phase: Phase, reason: str = "", message: str = "") -> JobStatus:
        """Return a status with the data of the record alone."""
        shown = harmless_message(message)[:LONGEST_MESSAGE]
        return self.recorded_status(phase.value, plain(reason)[:LONGEST_MESSAGE], shown)

    def runs(self, status: JobStatus) -> list[Run]:
        """Return the runs of the job, the newest last. status: Status of the current one."""
        earlier = [replace(run, history_text=self.histories.get(run.id, "")) for run in self.earlier]
        if self.sending and status.phase == Phase.DELETED:
            return earlier
        return self.all_runs(status, self.demand, earlier, self.histories.get(self.identity.id, ""))

    def last_status(self) -> JobStatus:
        """Return the status of a job whose JobSet or TrainJob is gone: the recorded end, otherwise Deleted."""
        if self.terminal:
            ended = self.ended
            status = self.status(Phase(ended["phase"]), ended.get("reason", ""), ended.get("message", ""))
            status.started, status.finished = seconds(ended.get("started")), seconds(ended.get("finished"))
            status.progress = kept_progress(_object(ended.get("progress")))
            return status
        if self.removes_itself:
            why = "it was deleted by its TTL after its end, and its result was not recorded"
            return self.status(Phase.DELETED, OUTCOME_UNKNOWN, why)
        if self.sending:
            return self.status(Phase.DELETED, NOT_CREATED, "its new run was recorded, but not created")
        return self.status(Phase.DELETED, OUTCOME_UNKNOWN, UNKNOWN_END)

    def owner_reference(self) -> Document:
        """Return the ownerReference of the job's other objects. It is not a controller reference, which belongs to whoever runs
        them."""
        return {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": False,
            "blockOwnerDeletion": True,
        }


def document(submission: Submission) -> Document:
    spec = submission.main.get("spec") or {}
    ttl = spec.get("ttlSecondsAfterFinished") is not None
    annotations = job_annotations(submission)
    if submission.retain:
        annotations[owner_labels.RETAIN] = "true"
    data = {
        "job": f"{submission.main['kind']}/{submission.name}",
        "ttl": "true" if ttl else "false",
        **identity_data(submission),
        "applied": json.dumps(drift.changeable_fields(submission.main), separators=(",", ":")),
        **_inputs(submission),
        **usage(submission),
    }
    if submission.earlier:
        data[EARLIER] = runs_as_text(submission.earlier)
        data |= histories_as_data({run.id: run.history_text for run in submission.earlier})
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": submission.name,
            "namespace": submission.namespace,
            "labels": {**labels(submission), owner_labels.RECORD: "true", owner_labels.RUN_ID: submission.identity.id},
            "annotations": annotations,
        },
        "data": data,
    }


def copy_document(submission: Submission, run: str) -> Document:
    """Return the ConfigMap that owns the copies of a job's objects in a worker cluster. run: UID of the job's record."""
    made = document(submission)
    labels_, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
    metadata = {
        **made["metadata"],
        "labels": {**labels_, owner_labels.RECORD: COPY},
        "annotations": {**annotations, owner_labels.RECORD: run},
    }
    return {**made, "metadata": metadata, "data": {"job": made["data"]["job"]}}


def _inputs(submission: Submission) -> dict[str, str]:
    if not submission.inputs:
        return {}
    return {"inputs": json.dumps(submission.inputs)}


def identity_data(submission: Submission) -> dict[str, str]:
    """Return the identity of a run and the folder of its output, as its record has them."""
    identity = json.dumps(submission.identity.to_dict())
    return {IDENTITY: identity, "output": output_path(submission.main)}


def usage(submission: Submission) -> dict[str, str]:
    """Return what a new run requests, as its record has it."""
    found = demand_of(submission.main, current_user())
    if found.gpus is None:
        found = replace(found, gpus=submission.gpus)
    return {USAGE: found.to_text()}


def labels(submission: Submission) -> dict[str, str]:
    found = {owner_labels.MANAGED_BY: FIELD_MANAGER, owner_labels.JOB: submission.name}
    if submission.sweep:
        found[owner_labels.STACK] = submission.sweep
    for label, part in ((RUNTIME, "name"), (RELEASE, "release")):
        value = submission.runtime.get(part)
        if isinstance(value, str) and _LABEL.fullmatch(value):
            found[label] = value
    return found


_CHANNEL = {
    owner_labels.CHANNEL: "channel",
    owner_labels.CHANNEL_OF: "of",
    owner_labels.FOLLOW: "follow",
    owner_labels.INTERRUPT: "interrupt",
}
"""Annotation -> part of a submission's runtime, of a job that follows a channel."""


def job_annotations(submission: Submission) -> dict[str, str]:
    """Return the annotations of the record and of the job itself."""
    found = {
        owner_labels.OWNER: submission.owner,
        owner_labels.DIGEST: submission.digest,
        owner_labels.RUN: submission.run,
    }
    for mark, part in _CHANNEL.items():
        value = submission.runtime.get(part)
        if value:
            found[mark] = str(value)
    if submission.program:
        found[MADE_BY] = str(submission.program)
    return found


def update_patch(submission: Submission, version: str) -> Document:
    """Return the merge patch that updates a record for a submission. version: resourceVersion of the record that was read; the
    server rejects the patch if the record was changed since."""
    no_release = dict.fromkeys((RUNTIME, RELEASE))
    no_channel = dict.fromkeys((*_CHANNEL, MADE_BY))
    retain = "true" if submission.retain else None
    annotations = {**no_channel, **job_annotations(submission), owner_labels.RETAIN: retain}
    metadata = {"annotations": annotations, "labels": {**no_release, **labels(submission)}}
    patch: Document = {"metadata": {"resourceVersion": version, **metadata}}
    data = _inputs(submission)
    if data:
        patch["data"] = data
    return patch


def find(client: Client, namespace: str, name: str) -> Record | None:
    """Return the ConfigMap of that name, whether it is a record or not; None if not found."""
    found = client.get(CONFIG_MAP, namespace, name)
    if found is None:
        return None
    return Record.of(found)


def runs_as_text(runs: Sequence[Run]) -> str:
    """Return runs as a record has them: if they are too long, the oldest ones as rows, or without metrics, or not at all."""
    texts = [json.dumps(run.to_dict()) for run in runs]
    for number, row in enumerate(map(as_row, runs)):
        for shorter in (row, replace(row, metrics={})):
            if sum(map(len, texts)) > _MOST_EARLIER:
                texts[number] = json.dumps(shorter.to_dict())
    while sum(map(len, texts)) > _MOST_EARLIER:
        del texts[0]
    return f"[{','.join(texts)}]"


def histories_as_data(histories: Mapping[str, str]) -> dict[str, str]:
    """Return the metrics of runs as the data of a record, of as many of the newest runs as it may have."""
    kept: dict[str, str] = {}
    left = _MOST_HISTORY
    for run in sorted(histories, key=lambda name: int(name or "0", 36), reverse=True):
        left -= len(histories[run].encode())
        if left < 0:
            break
        if run and histories[run]:
            kept[f"{METRICS}{run}"] = histories[run]
    return kept


def _fault(meta: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return what is not valid in the runs of a record; else empty. meta, data: Those of the ConfigMap."""
    why = ""
    for key in (IDENTITY, EARLIER):
        if key in data and parse(data[key]) is None:
            why = f"{key} is {data[key]!r:.80}, not JSON"
    if BEGUN in data and not seconds(data[BEGUN]):
        why = f"{BEGUN} is {data[BEGUN]!r:.80}, not seconds since the epoch"
    why = why or fault_of_runs(parse(data.get(IDENTITY, "{}")), parse(data.get(EARLIER, "[]")))
    if not why:
        return ""
    where = f"ConfigMap {meta.get('namespace', '')}/{meta['name']}"
    return f"{where}: is not a valid record of a job: {why}. Something else has changed it: put that back"


def _object(text: Any) -> dict[str, Any]:
    """Return a JSON object from text that may have been edited; empty if it is not valid."""
    return section(parse(text))


def seconds(text: str | None) -> float:
    """Return a time in a record, which may have been edited; 0 if it is not valid."""
    try:
        return plausible_seconds(float(text or 0.0))
    except ValueError:
        return 0.0


def belongs(found: Mapping[str, Any], run: str) -> bool:
    """Return whether an object is of that run of a job, and not another one of its name."""
    owners = {each.get("uid") for each in mappings(section(found, "metadata").get("ownerReferences"))}
    return run in owners or section(found, "metadata", "annotations").get(owner_labels.RECORD) == run


def get_metadata(client: Client, kind: Kind, namespace: str, name: str) -> Document | None:
    """Return the object of that name; None if not found. Of a Secret only the metadata, because nothing here needs its values."""
    return client.get(kind, namespace, name, whole=kind is not SECRET)


def job_name_of(found: Mapping[str, Any]) -> str:
    """Return the name of the job in an object's label; empty if it has none."""
    return str(section(found, "metadata", "labels").get(owner_labels.JOB) or "")


def name_taken_problem(found: Mapping[str, Any], where: str = "") -> Problem:
    """Return the problem that the name of an object beside a job is taken by an object that does not belong to the job."""
    why = "exists and was not created by this program"
    job = job_name_of(found)
    if job:
        why = f"exists and belongs to the job {job}"
    return Problem(where, why, "delete it if nothing needs it, or give the TrainJob another name")
