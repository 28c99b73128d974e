"""A cluster of documents: what an API server and Trainer's controller would make of them, one after the other.

The command line feeds it. Admission decides, the store keeps what was admitted, and after each TrainJob (and each
JobSet of one) the controller goes once round: objects, then status. As upstream, of which only what decides about
objects and status is here: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/controller/trainjob_controller.go
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.admission import review
from pulumi_trainer.provider.admission.jobset import pod_refusals
from pulumi_trainer.provider.admission.kinds import kinds, schema_of
from pulumi_trainer.provider.admission.runtime import CLUSTER_WIDE, NAMESPACED
from pulumi_trainer.provider.admission.warnings import (
    Queues,
    Severities,
    Taints,
    among,
    gpu_taints,
    subdomain,
    warnings,
)
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema.strict import unknown_fields
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kueue.job_webhook import queued_problems
from pulumi_trainer.provider.lifecycle.status import (
    exceeded_deadline,
    finished,
    seconds,
    train_job_status,
)
from pulumi_trainer.provider.offline.snapshots import SUFFIX, frozen
from pulumi_trainer.provider.pipeline import Mode, render

Document = dict[str, Any]
Key = tuple[str, str, str, str]
"""API group, kind, namespace ("" for what has none), name."""

RUNTIMES = (CLUSTER_WIDE, NAMESPACED)
UID = "11111111-1111-1111-1111-111111111111"
"""Of a TrainJob that has none: the same documents give the same objects."""

CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
_GROUPS = {"PriorityClass": "scheduling.k8s.io"}
_NAMESPACED = frozenset(
    ("TrainJob", "TrainingRuntime", "JobSet", "PodGroup", "ConfigMap", "Secret", "PersistentVolumeClaim", "LocalQueue")
)
_CONTROL = "oracle/v1"
"""API version of documents that are no objects but say what the cluster is like: OracleConfig has feature gates,
OracleDelete deletes what its `target` names."""

_CERTIFICATE = ("kubeflow-system", "kubeflow-trainer-webhook-cert")


@dataclass
class Result:
    """What became of a runtime or a TrainJob. stage, errors: which step refuses, and why: one of `admission`'s, or
    "jobset" for what JobSet has against the rendered one, "pods" for what the server has against its Pods, or "warning" for
    warnings that were made errors. objects: what
    the controller applied, in that order. notes: why it applied none, and what will fail later. found: warnings with codes.
    """

    kind: str
    namespace: str
    name: str
    stage: str | None
    errors: tuple[Problem, ...]
    warnings: tuple[str, ...]
    objects: list[Document] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    found: tuple[Problem, ...] = ()

    @property
    def admitted(self) -> bool:
        return self.stage is None

    def refuse(self, stage: str, errors: Iterable[Problem]) -> None:
        self.stage, self.errors, self.objects = stage, tuple(errors), []


class Cluster:
    """What documents have made so far. mode: as `render`'s; in "jobset" there is no controller that would leave
    existing objects alone, and what JobSet refuses is refused.

    catalogue: a runtime that the documents don't have, by name; None if that has none either. now: seconds since the
    epoch, the time of all that happens here (default: of the clock). severities: which warnings are told, and which refuse.
    pods: whether what is refused when Pods are made refuses the TrainJob, which no server does.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        catalogue: Callable[[str], Document | None] | None = None,
        now: float | None = None,
        severities: Severities | None = None,
        pods: bool = False,
    ) -> None:
        self._pods = pods
        self.severities = severities or Severities()
        self.mode: Mode = mode
        self.now = time.time() if now is None else now
        self._now = datetime.fromtimestamp(int(self.now), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.gates: dict[str, bool] = {}
        self._catalogue = catalogue
        self._stored: dict[Key, bytes | Document] = {}
        self._taken: list[Problem] = []
        self._places: dict[Key, None] = {}
        self._known: tuple[Taints | None, Queues] | None = None
        self._subdomains: dict[tuple[str, Any], dict[Key, None]] = {}

    def apply(self, document: Document) -> Result | None:
        """Creates or updates what the document says; None where it is neither a runtime nor a TrainJob.

        Raises Invalid: nothing that a cluster could have.
        """
        if document["apiVersion"] == _CONTROL:
            self._control(document)
            return None
        kind, key = document["kind"], _key(document)
        if kind == "TrainJob" or kind in RUNTIMES:
            return self._admit(key, document)
        self._put(key, {**(self.get(key) or {}), **document} if kind == "JobSet" else document)
        self._round(key)
        return None

    def get(self, key: Key) -> Document | None:
        """What is stored; not to be changed."""
        stored = self._stored.get(key)
        return json.loads(stored) if isinstance(stored, bytes) else stored

    def status(self, result: Result) -> Document:
        """The status of a TrainJob as the last round left it."""
        stored = self.get(_of(result.kind, result.namespace, result.name)) if result.kind == "TrainJob" else None
        return dict((stored or {}).get("status") or {})

    def _admit(self, key: Key, document: Document) -> Result:
        old = self.get(key)
        self._taken = []
        verdict = review(document, old=old, lookup=self._lookup, now=self._now, mode=self.mode)
        result = Result(*key[1:], verdict.stage, verdict.errors, verdict.warnings, notes=self._taken)
        if verdict.stored is None:
            return result
        if verdict.unknown and self.mode == "jobset":
            result.refuse("decode", unknown_fields(schema_of(key[1]), verdict.unknown))
            return result
        dropped = unknown_fields(schema_of(key[1]), verdict.unknown)
        result.notes += (Problem(p.where, "unknown field: it is dropped", p.mend) for p in dropped)
        self._put(key, self._with_server_fields(verdict.stored, document, old))
        if key[1] == "TrainJob":
            result.objects, notes = self._reconcile(key)
            notes += self._queued(key, result.objects)
            errors = self._warn(key, result)
            against = [n for n in notes if n.where.startswith("JobSet/")]
            if against and self.mode == "jobset":  # where nobody stands between us and JobSet
                result.refuse("jobset", against)
            else:
                result.notes += notes
            if result.admitted and self._pods and (wrong := _of_pods(result.objects)):
                result.refuse("pods", wrong)
            if errors and result.admitted:
                result.refuse("warning", errors)
        return result

    def _warn(self, key: Key, result: Result) -> tuple[Problem, ...]:
        """Writes warnings into the result; those that are errors."""
        train_job = self.get(key) or {}
        try:
            runtime = self._runtime(train_job)
        except Invalid:
            return ()
        siblings = self._sharing(key[2], result.objects)
        if self._known is None:
            places = [self.get(place) or {} for place in self._places]
            self._known = gpu_taints(places), among(places)
        taints, queues = self._known
        found = warnings(runtime, train_job, result.objects, siblings=siblings, taints=taints, queues=queues)
        errors, result.found = self.severities.split(found, train_job)
        return errors

    def _queued(self, key: Key, objects: Iterable[Document]) -> list[Problem]:
        """What Kueue's webhooks have against a job with a queue."""
        jobset = next((document for document in objects if document["kind"] == "JobSet"), None)
        job = jobset if self.mode == "jobset" else self.get(key)
        if jobset is None or job is None:
            return []
        return [p.below(f"JobSet/{key[3]}") for p in queued_problems(job, jobset)]

    def _sharing(self, namespace: str, objects: Iterable[Document]) -> list[Document]:
        """JobSets of the namespace with the subdomain of one of these."""
        wanted = [subdomain(document) for document in objects if document["kind"] == "JobSet"]
        keys = [key for each in wanted for key in self._subdomains.get((namespace, each), ())]
        return [document for key in keys if (document := self.get(key))]

    def _with_server_fields(self, stored: Document, document: Document, old: Document | None) -> Document:
        given, before = document.get("metadata") or {}, (old or {}).get("metadata") or {}
        metadata = {
            **stored["metadata"],
            "uid": before.get("uid") or given.get("uid") or UID,
            "creationTimestamp": before.get("creationTimestamp") or given.get("creationTimestamp") or self._now,
        }
        kept = {"status": old["status"]} if old and "status" in old else {}
        return {**{k: v for k, v in stored.items() if k != "status"}, "metadata": metadata, **kept}

    def _lookup(self, kind: str, namespace: str, name: str) -> Document | None:
        key = _of(kind, namespace, name)
        found = self.get(key)
        if found is not None or kind != CLUSTER_WIDE or self._catalogue is None:
            return found
        if (document := self._catalogue(name)) is None:
            return None
        verdict = review(document)
        if verdict.stored is None:
            return None
        self._put(key, verdict.stored)
        why = f"{name} is not among the documents, and was taken from the catalogue"
        self._taken.append(Problem("spec.runtimeRef", why))
        return verdict.stored

    def _round(self, key: Key) -> None:
        """The controller sees a change of a JobSet."""
        train_job = _of("TrainJob", *key[2:])
        if key[:2] == ("jobset.x-k8s.io", "JobSet") and train_job in self._stored:
            self._reconcile(train_job)

    def _reconcile(self, key: Key) -> tuple[list[Document], list[Problem]]:
        """One round of the controller: the TrainJob's objects, and what is odd about it. They are applied unless the
        TrainJob has finished or is another controller's."""
        train_job = self.get(key) or {}
        jobset = _of("JobSet", *key[2:])
        managed_by = train_job["spec"].get("managedBy", CONTROLLER)
        if self.mode == "trainer" and managed_by != CONTROLLER:
            why = f"is {managed_by}: Trainer's controller leaves the TrainJob alone and makes no objects of it"
            return [], [Problem("spec.managedBy", why)]
        objects, notes = self._build(train_job)
        if not finished(train_job):
            for document in objects:
                notes += self._applied(document)
        created = seconds(train_job["metadata"]["creationTimestamp"], self.now)
        status = train_job_status(train_job, self.get(jobset), created=created, now=self.now)
        if not exceeded_deadline(train_job) and exceeded_deadline({"status": status}):
            self._stored.pop(jobset, None)
        self._put(key, {**train_job, "status": status})
        return objects, notes

    def _build(self, train_job: Document) -> tuple[list[Document], list[Problem]]:
        try:
            runtime = self._runtime(train_job)
            rendered = render(runtime, train_job, mode=self.mode, status_server_ca=self._status_server_ca())
        except Invalid as error:
            return [], [Problem(p.where, f"nothing is built: {p.why}", p.mend, p.type) for p in error.problems]
        objects = [d for d in rendered.objects.values() if self.mode == "jobset" or not self._left_alone(d, train_job)]
        return objects, list(rendered.notes)

    def _runtime(self, train_job: Document) -> Document:
        """The runtime as it was when the TrainJob first came. Raises Invalid."""
        metadata, reference = train_job["metadata"], train_job["spec"]["runtimeRef"]
        live = self.get(_of(reference["kind"], metadata["namespace"], reference["name"]))
        if self.mode == "jobset" and live is not None:
            return live
        key = _of("ConfigMap", metadata["namespace"], metadata["name"] + SUFFIX)
        if (snapshot := self._stored.get(key)) is not None:
            return frozen(self.get(key) or {}, train_job) if isinstance(snapshot, bytes) else snapshot
        if live is None:
            raise Invalid(Problem("spec.runtimeRef", f"there is no {reference['kind']} {reference['name']}"))
        self._stored[key] = live  # the runtime itself: nothing else is to be read from a snapshot of our own
        return live

    def _status_server_ca(self) -> str | None:
        """The certificate of the server that jobs report to; None while the gate is off. Raises Invalid."""
        if not self.gates.get("trainJobStatus"):
            return None
        data = (self.get(("", "Secret", *_CERTIFICATE)) or {}).get("data")
        try:
            certificate = base64.b64decode(data["ca.crt"], validate=True).decode() if isinstance(data, dict) else ""
        except (KeyError, TypeError, ValueError):
            certificate = ""
        if not certificate:
            raise Invalid(Problem(f"Secret/{_CERTIFICATE[1]}", "has no ca.crt, which the gate TrainJobStatus needs"))
        return certificate

    def _left_alone(self, document: Document, train_job: Document) -> bool:
        """Whether the controller does not touch what there is of this object."""
        old = self.get(_key(document))
        suspended = train_job["spec"].get("suspend") is True
        if old is None:
            return False
        if document["kind"] == "JobSet":
            return not suspended and section(old, "spec").get("suspend") is not True
        return (document["kind"] == "PodGroup" and not suspended) or document.get("type") == "kubernetes.io/ssh-auth"

    def _applied(self, document: Document) -> list[Problem]:
        """Stores an object of the controller; what JobSet has against it, in which case it is not stored."""
        key = _key(document)
        if document["kind"] != "JobSet":
            self._put(key, document)
            return []
        old = self.get(key) if self.mode == "trainer" else None  # else `lifecycle` decides between update and new run
        verdict = review(document, lookup=self._lookup)
        if old is not None and verdict.stored is not None:
            # Applying leaves the defaults of the first time where they are.
            verdict = review(verdict.stored, old=old, lookup=self._lookup)
        if verdict.stored is None:
            where = f"JobSet/{document['metadata']['name']}"
            return [p.below(where) for p in verdict.problems()]
        self._put(key, {**verdict.stored, **({"status": old["status"]} if old and "status" in old else {})})
        return []

    def _control(self, document: Document) -> None:
        if document["kind"] == "OracleConfig":
            self.gates = {k: v for k, v in document.items() if isinstance(v, bool)}
        elif document["kind"] == "OracleDelete":
            target = section(document, "target")
            if not all(isinstance(target.get(name), str) for name in ("apiVersion", "kind")):
                raise Invalid(Problem("target", "has to say apiVersion, kind and metadata of what is deleted"))
            key = _key(target)
            self._stored.pop(key, None)
            self._round(key)

    def _put(self, key: Key, document: Document) -> None:
        """Runtimes as they are, since all their TrainJobs share them; all else in a compact form."""
        if key[1] == "JobSet":
            self._subdomains.setdefault((key[2], subdomain(document)), {})[key] = None
        elif key[1] == "Node" or key[0] == "kueue.x-k8s.io":
            self._places[key], self._known = None, None
        self._stored[key] = document if key[1] in RUNTIMES else json.dumps(document).encode()


def _of_pods(objects: Iterable[Document]) -> list[Problem]:
    jobsets = [document for document in objects if document["kind"] == "JobSet"]
    return [p.below(f"JobSet/{each['metadata']['name']}") for each in jobsets for p in pod_refusals(each)]


def _key(document: Document) -> Key:
    """Raises Invalid: another API version than the one that the kind has here, or an object without a name."""
    kind, version = document["kind"], document["apiVersion"]
    known = kinds().get(kind)
    if known is not None and version != known.api_version:
        raise Invalid(Problem("apiVersion", f"must be {known.api_version} for a {kind}, not {version}"))
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        if known is None:
            raise Invalid(Problem("metadata.name", f"a {kind} needs a name, a string"))
        name = ""  # admission says what is wrong with it
    return version.rpartition("/")[0], kind, _namespace(kind, metadata.get("namespace")), name


def _of(kind: str, namespace: str, name: str) -> Key:
    known = kinds().get(kind)
    return known.group if known else _GROUPS.get(kind, ""), kind, _namespace(kind, namespace), name


def _namespace(kind: str, given: Any) -> str:
    return (given if isinstance(given, str) and given else "default") if kind in _NAMESPACED else ""
