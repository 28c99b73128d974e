"""An offline cluster: applies documents one after the other, as an API server and Trainer's controller would.

Admission accepts or rejects a document, accepted ones are stored, and after each TrainJob (and each JobSet of one) the controller
reconciles once: objects, then status. Source:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/controller/trainjob_controller.go
"""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from pulumi_trainer.provider.jobs.cost import cost_of, estimate_time, flavors_of, time_limit
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text, without
from pulumi_trainer.provider.kueue import configuration, queue_state
from pulumi_trainer.provider.kueue.configuration import configuration_of, is_configuration
from pulumi_trainer.provider.kueue.job_webhook import queued_problems
from pulumi_trainer.provider.kueue.prices import Prices
from pulumi_trainer.provider.kueue.queue_state import is_known_kind
from pulumi_trainer.provider.kueue.scheduling.answer import answer, contender_of
from pulumi_trainer.provider.kueue.scheduling.durations import Expect, expect_nothing
from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender
from pulumi_trainer.provider.kueue.workload_reasons import belongs_to
from pulumi_trainer.provider.trainer.admission import namespace_limits, review, training_operator
from pulumi_trainer.provider.trainer.admission.jobset import pod_refusals
from pulumi_trainer.provider.trainer.admission.multikueue import cluster_queue_of
from pulumi_trainer.provider.trainer.admission.removed_fields import is_removed, unknown_field_problems
from pulumi_trainer.provider.trainer.admission.runtime import CLUSTER_WIDE, NAMESPACED
from pulumi_trainer.provider.trainer.admission.warnings import (
    REFUSED,
    Queues,
    Severities,
    Taints,
    Warning,
    complete_queues,
    gpu_taints,
    subdomain,
    warnings,
)
from pulumi_trainer.provider.trainer.admission.warnings.table import NEVER_START
from pulumi_trainer.provider.trainer.job_status import (
    epoch_seconds,
    exceeded_deadline,
    forget_failure,
    is_finished,
    train_job_status,
)
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, JOBSET, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.offline.later_problems import about_others, without_rejected
from pulumi_trainer.provider.trainer.offline.render_limit import RenderLimit
from pulumi_trainer.provider.trainer.offline.snapshots import SUFFIX, runtime_of_snapshot
from pulumi_trainer.provider.trainer.pipeline import Mode, Release, render
from pulumi_trainer.provider.trainer.pipeline.modes import queued_object

Key = tuple[str, str, str, str]
"""API group, kind, namespace ("" for cluster-wide kinds), name."""

RUNTIMES = (CLUSTER_WIDE, NAMESPACED)
UID = "11111111-1111-1111-1111-111111111111"
"""UID of a TrainJob that has none: the same documents give the same objects."""

_FIRST_STEPS = ("decode", "mutating-webhook", "schema")
"""Steps that look at each field by itself."""
_MOST_ROUNDS = 10
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
_OWN = {kind.kind: kind for kind in (JOBSET, TRAIN_JOB, TRAINING_RUNTIME, CLUSTER_RUNTIME)}
_GROUPS = {"PriorityClass": "scheduling.k8s.io"}
_NAMESPACED = frozenset(
    ("TrainJob", "TrainingRuntime", "JobSet", "PodGroup", *queue_state.MAKERS, *queue_state.NAMESPACED)
)
_CERTIFICATE = ("kubeflow-system", "kubeflow-trainer-webhook-cert")


@dataclass
class Result:
    """The result for a runtime or a TrainJob.

    Args:
        stage: The step that rejects it; None if it is admitted. One of `admission`'s, or "jobset" if JobSet rejects the rendered
            JobSet, "pods" if the server rejects its Pods, "warning" if a warning counts as an error, "training-operator" if
            Kubeflow Trainer does not know the kind.
        notes: Why it has applied no objects, and what will fail later.
        later: What later steps would reject if the rejected fields were not there: each step with its problem.
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
    later: list[tuple[str, Problem]] = field(default_factory=list)

    @property
    def admitted(self) -> bool:
        """Whether no step rejects it."""
        return self.stage is None

    def refuse(self, stage: str, errors: Iterable[Problem]) -> None:
        """Record that a step rejects it."""
        self.stage, self.errors, self.objects = stage, tuple(errors), []


class Cluster:
    """A cluster with the objects of all documents applied so far.

    Args:
        mode: As in `render`. In "jobset" no controller leaves existing objects alone, and what JobSet rejects is rejected.
        catalogue: Returns a runtime by name that the documents lack; None if not found.
        now: Time of all events, in seconds since the epoch. Default: the current time.
        explain: Whether to answer beyond the servers: a rejection of Pods rejects the TrainJob, and so does, in mode "trainer", a
            field that Trainer has removed; the error of a TrainJob names its runtime if this is rejected, instead of that it does
            not exist.
        limit: Of all clusters of a call. Default: one for this cluster.

    Attributes:
        below: Objects of a real cluster, which documents override; None for none.
        expect: Returns what is known of how long its jobs run.
    """

    def __init__(
        self,
        mode: Mode,
        release: Release,
        *,
        catalogue: Callable[[str], Document | None] | None = None,
        now: float | None = None,
        severities: Severities | None = None,
        explain: bool = False,
        limit: RenderLimit | None = None,
    ) -> None:
        self._explain = explain
        self._limit = limit or RenderLimit()
        self.below: Queues | None = None
        self.expect: Expect = expect_nothing
        self._refused_runtimes: set[Key] = set()
        self.severities = severities or Severities(lenient=not explain)
        self.mode: Mode = mode
        self.release = release
        if now is None:
            now = time.time()
        self.now = now
        self._now = datetime.fromtimestamp(int(self.now), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.gates: dict[str, bool] = {}
        self._catalogue = catalogue
        self._stored: dict[Key, bytes | Document] = {}
        self._from_catalogue: list[Problem] = []
        self._given: dict[Key, None] = {}
        self._contenders: list[Contender] = []
        self._known: tuple[Taints | None, Queues] | None = None
        self._subdomains: dict[tuple[str, Any], dict[Key, None]] = {}

    def apply(self, document: Document) -> Result | None:
        """Create or update an object, and return the result for a runtime, a TrainJob or a job of Training Operator v1; None for
        other kinds.
        """
        if training_operator.is_job(document):
            return _unknown_to_trainer(document)
        if is_configuration(document):
            document = configuration_of(document)
        kind, key = document["kind"], _key(document)
        if kind == "TrainJob" or kind in RUNTIMES:
            result = self._admit(key, document)
            if self._explain:
                result.later = list(self._ask_later_steps(key, document, result))
            return result
        if kind == "JobSet":
            document = {**(self.get(key) or {}), **document}
        self._put(key, document)
        if is_known_kind(document):
            self._given[key], self._known = None, None
        self._after_change(key)
        return None

    def delete(self, target: Document) -> None:
        """Delete an object. target: apiVersion, kind and metadata of the object."""
        key = _key(target)
        self._stored.pop(key, None)
        self._after_change(key)

    def get(self, key: Key) -> Document | None:
        """Return a stored object, which the caller must not change."""
        stored = self._stored.get(key)
        if isinstance(stored, bytes):
            stored = json.loads(stored)
        return stored

    def status(self, result: Result) -> Document:
        """Return the status of a TrainJob after the last reconciliation."""
        if result.kind != "TrainJob":
            return {}
        stored = self.get(_of(result.kind, result.namespace, result.name))
        return dict((stored or {}).get("status") or {})

    def _admit(self, key: Key, document: Document) -> Result:
        self._count(key, document)
        old = self.get(key)
        self._from_catalogue = []
        verdict = review(document, self.release, old=old, lookup=self._lookup, now=self._now, mode=self.mode)
        result = Result(*key[1:], verdict.stage, verdict.errors, verdict.warnings, notes=self._from_catalogue)
        dropped = unknown_field_problems(document, self.release, verdict.unknown)
        if verdict.stored is None:
            if self._explain and self.mode == "jobset":
                for problem in dropped:
                    result.later.append(("decode", problem))
            return self._refused(key, result, document)
        refused = self._refused_fields(key[1], dropped)
        if refused:
            result.refuse("decode", refused)
            return self._refused(key, result, document)
        self._refused_runtimes.discard(key)
        for problem in dropped:
            result.notes.append(Problem(problem.where, f"{problem.why}: the field is dropped", problem.hint))
        self._put(key, self._with_server_fields(verdict.stored, document, old))
        if key[1] == "TrainJob":
            result.objects, notes = self._reconcile(key)
            notes += self._queued(key, result.objects)
            errors = self._warn(key, result)
            refusals = [n for n in notes if n.where.startswith("JobSet/")]
            if refusals and (self.mode == "jobset" or self._explain):  # Trainer's controller repeats it for ever
                result.refuse("jobset", refusals)
            else:
                result.notes += notes
            if result.admitted and self._explain:
                coded = [error for error in errors if error.code in REFUSED]
                by_server = self._of_pods(result.objects, lambda jobset, _: pod_refusals(jobset, self.release))
                refused_pods = [*by_server, *self._of_pods(result.objects, namespace_limits.pod_refusals), *coded]
                if refused_pods:
                    result.refuse("pods", refused_pods)
            if errors and result.admitted:
                result.refuse("warning", errors)
            if result.admitted and self._explain:
                result.found += tuple(self._of_pods(result.objects, namespace_limits.pod_warnings))
                never = any(isinstance(each, Warning) and each.code in NEVER_START for each in result.found)
                jobset = next((document for document in result.objects if document["kind"] == "JobSet"), None)
                if not never and jobset is not None:
                    result.notes += [*self._start_notes(key, jobset), *self._cost_notes(key, jobset)]
        return result

    def _cost_notes(self, key: Key, jobset: Document) -> Iterator[Problem]:
        """Yield what a job costs by its time limit; nothing if no flavor among the documents has a price."""
        _, queues = self._facts()
        prices = Prices.of(queues.of("ResourceFlavor"))
        train_job = self.get(key) if self.mode == "trainer" else None
        limit = estimate_time(None, [], time_limit(jobset, train_job), None)
        queued = queued_object(self.get(key) or {}, jobset, self.mode)
        cost = cost_of(jobset, limit, flavors_of(cluster_queue_of(queued, queues)), prices)
        if prices.by_flavor and cost is not None and str(cost):
            yield Problem("", str(cost))

    def _start_notes(self, key: Key, jobset: Document) -> list[Problem]:
        """Return what Kueue would do with a job now; nothing if Workloads, on which this depends, are not known."""
        _, queues = self._facts()
        if not queues.has_all("Workload"):
            return []
        workloads = [each for each in queues.of("Workload") if not belongs_to(each, *key[2:])]
        now = float(self.now)
        contender = contender_of(jobset, queues, now, self.get(key) if self.mode == "trainer" else None)
        if contender is None:
            return []
        found = answer(queues, workloads, contender, self._contenders, now=now, expect=self.expect)[0]
        self._contenders.append(contender)
        return [Problem("", found)]

    def _count(self, key: Key, document: Document) -> None:
        """Count what a runtime has, or what is rendered for a TrainJob."""
        if key[1] in RUNTIMES:
            self._limit.add("spec.template.spec.replicatedJobs", document)
        else:
            runtime, known = self.get(_runtime_of(key, document)) or {}, (len(self._given), len(self._contenders))
            self._limit.add("spec.runtimeRef", runtime, document, objects=known[0], earlier=known[1])

    def _refused_fields(self, kind: str, dropped: list[Problem]) -> list[Problem]:
        """Return the dropped fields for which a document is rejected; others are only noted."""
        if self.mode == "jobset":
            return dropped
        if not self._explain:
            return []
        return [problem for problem in dropped if is_removed(kind, problem.where)]

    def _ask_later_steps(self, key: Key, document: Document, result: Result) -> Iterator[tuple[str, Problem]]:
        """Yield what the steps after the one that rejects a document would reject, each with its step."""
        yield from result.later
        rejected = [problem for _, problem in result.later]
        for _ in range(_MOST_ROUNDS):
            if result.stage not in _FIRST_STEPS:
                return
            rejected += result.errors
            remaining = without_rejected(document, result.errors)
            if remaining is None:
                return
            document = remaining
            result = self._copy()._admit(key, document)
            for problem in about_others(result.errors, rejected):
                yield text(result.stage), problem

    def _copy(self) -> Cluster:
        """Return a cluster with the same objects, whose changes leave this one as it is."""
        other = copy.copy(self)
        other._stored, other._refused_runtimes = {**self._stored}, {*self._refused_runtimes}
        other._given = {**self._given}
        other._subdomains = {key: {**found} for key, found in self._subdomains.items()}
        return other

    def _refused(self, key: Key, result: Result, document: Document) -> Result:
        """Return the result of a rejected document; that of a TrainJob names its runtime, if this is rejected as well."""
        if key[1] in RUNTIMES:
            self._refused_runtimes.add(key)
            return result
        runtime = _runtime_of(key, document)
        if self._explain and result.stage == "validating-webhook" and self._lacks_refused(runtime):
            kind = runtime[1]
            why = f"{kind} {runtime[3]} was refused, so the TrainJob cannot be checked further"
            result.errors = (Problem("spec.runtimeRef", why, f"correct the {kind} first"),)
        return result

    def _lacks_refused(self, key: Key) -> bool:
        return key in self._refused_runtimes and key not in self._stored

    def _warn(self, key: Key, result: Result) -> tuple[Warning, ...]:
        """Write warnings into the result, and return those that count as errors."""
        train_job = self.get(key) or {}
        try:
            runtime = self._runtime(train_job)
        except Invalid:
            return ()
        siblings = self._sharing(key[2], result.objects)
        taints, queues = self._facts()
        found = warnings(
            runtime,
            train_job,
            result.objects,
            self.release,
            siblings=siblings,
            taints=taints,
            queues=queues,
            mode=self.mode,
        )
        errors, result.found = self.severities.split(found, train_job)
        return errors

    def known_objects(self) -> Queues:
        """Return what the documents hold of what decides whether a job starts."""
        return self._facts()[1]

    def _facts(self) -> tuple[Taints | None, Queues]:
        """Return what the documents hold of nodes, queues, limits of namespaces, and what Pods refer to."""
        if self._known is None:
            documents = [self.get(each) or {} for each in self._given]
            queues = replace(complete_queues(documents), below=self.below)
            placing = [*queues.of("ClusterQueue"), *queues.of("Node"), *queues.of("ResourceFlavor")]
            self._known = gpu_taints(placing), queues
        return self._known

    def _of_pods(
        self, objects: Iterable[Document], rule: Callable[[Document, Queues], Iterable[Problem]]
    ) -> Iterator[Problem]:
        """Yield what a rule finds in the Pods of JobSets."""
        for document in objects:
            if document["kind"] == "JobSet":
                yield from problems_below(
                    f"JobSet/{document['metadata']['name']}", rule(document, self.known_objects())
                )

    def _queued(self, key: Key, objects: Iterable[Document]) -> list[Problem]:
        """Return why Kueue's webhooks refuse a job with a queue."""
        jobset = next((document for document in objects if document["kind"] == "JobSet"), None)
        if jobset is None:
            return []
        job = queued_object(self.get(key) or {}, jobset, self.mode)
        queue = self.known_objects().queue_of(job)
        return problems_below(f"JobSet/{key[3]}", queued_problems(job, jobset, queue))

    def _sharing(self, namespace: str, objects: Iterable[Document]) -> list[Document]:
        """Return the oldest other JobSet of a namespace with the same subdomain, for each of the objects that has one."""
        found: list[Document] = []
        for document in objects:
            if document["kind"] == "JobSet":
                keys = self._subdomains.get((namespace, subdomain(document)), {})
                others = (key for key in keys if key in self._stored and key != _key(document))
                found += filter(None, map(self.get, islice(others, 1)))
        return found

    def _with_server_fields(self, stored: Document, document: Document, old: Document | None) -> Document:
        """Return an admitted object with UID, creation time and status."""
        given, earlier = document.get("metadata") or {}, (old or {}).get("metadata") or {}
        metadata = {
            **stored["metadata"],
            "uid": earlier.get("uid") or given.get("uid") or UID,
            "creationTimestamp": earlier.get("creationTimestamp") or given.get("creationTimestamp") or self._now,
        }
        found = {**without(stored, "status"), "metadata": metadata}
        if old and "status" in old:
            found["status"] = old["status"]
        return found

    def _lookup(self, kind: str, namespace: str, name: str) -> Document | None:
        key = _of(kind, namespace, name)
        found = self.get(key)
        if found is not None or kind != CLUSTER_WIDE or self._catalogue is None or self._lacks_refused(key):
            return found
        document = self._catalogue(name)
        if document is None:
            return None
        verdict = review(document, self.release)
        if verdict.stored is None:
            return None
        self._put(key, verdict.stored)
        why = f"{name} is not among the documents, and was taken from the catalogue"
        self._from_catalogue.append(Problem("spec.runtimeRef", why))
        return verdict.stored

    def _after_change(self, key: Key) -> None:
        """Reconcile the TrainJob of a JobSet that has changed."""
        train_job = _of("TrainJob", *key[2:])
        if key[:2] == ("jobset.x-k8s.io", "JobSet") and train_job in self._stored:
            self._count(train_job, self.get(train_job) or {})
            self._reconcile(train_job)

    def _reconcile(self, key: Key) -> tuple[list[Document], list[Problem]]:
        """Reconcile a TrainJob, and return its objects and notes.

        Objects are applied unless the TrainJob has finished or belongs to another controller.
        """
        train_job = self.get(key) or {}
        jobset = _of("JobSet", *key[2:])
        managed_by = train_job["spec"].get("managedBy", CONTROLLER)
        if self.mode == "trainer" and managed_by != CONTROLLER:
            why = f"is {managed_by}: Trainer's controller leaves the TrainJob alone and makes no objects of it"
            return [], [Problem("spec.managedBy", why)]
        if not self.release.failure_is_final:
            train_job = forget_failure(train_job)
        objects, notes = self._build(train_job)
        if not is_finished(train_job):
            for document in objects:
                notes += self._applied(document)
        created = epoch_seconds(train_job["metadata"]["creationTimestamp"], self.now)
        status = train_job_status(train_job, self.get(jobset), created=created, now=self.now)
        if not exceeded_deadline(train_job) and exceeded_deadline({"status": status}):
            self._stored.pop(jobset, None)
        self._put(key, {**train_job, "status": status})
        return objects, notes

    def render_elsewhere(self, train_job: Document) -> list[Document]:
        """Return what the controller of another cluster, such as a worker of MultiKueue, would build of a TrainJob."""
        return self._build(train_job)[0]

    def _build(self, train_job: Document) -> tuple[list[Document], list[Problem]]:
        try:
            runtime = self._runtime(train_job)
            rendered = render(
                runtime, train_job, self.release, mode=self.mode, status_server_ca=self._status_server_ca()
            )
        except Invalid as error:
            return [], [Problem(p.where, f"nothing is built: {p.why}", p.hint, p.type) for p in error.problems]
        objects = list(rendered.objects.values())
        if self.mode != "jobset":
            objects = [document for document in objects if not self._left_alone(document, train_job)]
        return objects, list(rendered.notes)

    def _runtime(self, train_job: Document) -> Document:
        """Return the runtime as it was when the TrainJob was created. Raises Invalid."""
        metadata, reference = train_job["metadata"], train_job["spec"]["runtimeRef"]
        live = self.get(_of(reference["kind"], metadata["namespace"], reference["name"]))
        if self.mode == "jobset" and live is not None:
            return live
        key = _of("ConfigMap", metadata["namespace"], metadata["name"] + SUFFIX)
        snapshot = self._stored.get(key)
        if snapshot is not None:
            if not isinstance(snapshot, bytes):
                return snapshot
            return runtime_of_snapshot(self.get(key) or {}, train_job)
        if live is None:
            raise Invalid(Problem("spec.runtimeRef", f"{reference['kind']} {reference['name']} does not exist"))
        self._stored[key] = live  # only the runtime is read from a stored snapshot
        return live

    def _status_server_ca(self) -> str | None:
        """Return the certificate of the server that jobs report to; None while the gate is off. Raises Invalid."""
        if not self.gates.get("trainJobStatus"):
            return None
        data = (self.get(("", "Secret", *_CERTIFICATE)) or {}).get("data")
        certificate = ""
        try:
            if isinstance(data, dict):
                certificate = base64.b64decode(data["ca.crt"], validate=True).decode()
        except (KeyError, TypeError, ValueError):
            pass
        if not certificate:
            raise Invalid(Problem(f"Secret/{_CERTIFICATE[1]}", "has no ca.crt, which the gate TrainJobStatus needs"))
        return certificate

    def _left_alone(self, document: Document, train_job: Document) -> bool:
        """Return whether the controller does not change the existing object."""
        old = self.get(_key(document))
        suspended = train_job["spec"].get("suspend") is True
        if old is None:
            return False
        if document["kind"] == "JobSet":
            return not suspended and section(old, "spec").get("suspend") is not True
        return (document["kind"] == "PodGroup" and not suspended) or document.get("type") == "kubernetes.io/ssh-auth"

    def _applied(self, document: Document) -> list[Problem]:
        """Store an object of the controller, or return why JobSet refuses it."""
        key = _key(document)
        if document["kind"] != "JobSet":
            self._put(key, document)
            return []
        old = None
        if self.mode == "trainer":  # else `lifecycle` decides between update and new run
            old = self.get(key)
        verdict = review(document, self.release, lookup=self._lookup)
        if old is not None and verdict.stored is not None:
            # Applying leaves the defaults of the first time where they are.
            verdict = review(verdict.stored, self.release, old=old, lookup=self._lookup)
        if verdict.stored is None:
            where = f"JobSet/{document['metadata']['name']}"
            return problems_below(where, verdict.problems())
        stored = {**verdict.stored}
        if old and "status" in old:
            stored["status"] = old["status"]
        self._put(key, stored)
        return []

    def _put(self, key: Key, document: Document) -> None:
        """Store runtimes as they are, since all their TrainJobs share them, and other objects in a compact form."""
        if key[1] == "JobSet":
            self._subdomains.setdefault((key[2], subdomain(document)), {})[key] = None
        if key[1] in RUNTIMES:
            self._stored[key] = document
        else:
            self._stored[key] = json.dumps(document).encode()


def is_referred(document: Document) -> bool:
    """Return whether the verdict on a TrainJob depends on a document of this kind."""
    return document.get("kind") in RUNTIMES or is_known_kind(document)


def _key(document: Document) -> Key:
    """Return the key of an object."""
    kind, version = document["kind"], document["apiVersion"]
    known = _OWN.get(kind)
    if known is not None and version != known.api_version:
        raise Invalid(Problem("apiVersion", f"must be {known.api_version} for a {kind}, not {version}"))
    metadata = document.get("metadata")
    metadata = section(metadata)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        if known is None and kind != configuration.KIND:
            raise Invalid(Problem("metadata.name", f"a {kind} needs a name, a string"))
        name = ""  # reported by admission
    return version.rpartition("/")[0], kind, _namespace(kind, metadata.get("namespace")), name


def _unknown_to_trainer(document: Document) -> Result:
    metadata = section(document, "metadata")
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    problem = training_operator.successor(document)
    return Result(document["kind"], namespace or "default", name, training_operator.STAGE, (problem,), ())


def _of(kind: str, namespace: str, name: str) -> Key:
    group = _OWN[kind].group if kind in _OWN else _GROUPS.get(kind, "")
    return group, kind, _namespace(kind, namespace), name


def _runtime_of(key: Key, train_job: Document) -> Key:
    """Return the key of the runtime of a TrainJob with a key."""
    reference = section(train_job, "spec", "runtimeRef")
    return _of(text(reference.get("kind")) or CLUSTER_WIDE, key[2], text(reference.get("name")))


def _namespace(kind: str, given: Any) -> str:
    if kind not in _NAMESPACED:
        return ""
    return text(given) or "default"
