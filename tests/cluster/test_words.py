"""Every state that a job of a real cluster can be in, brought about there: phase, reason, message and the paragraph that says
why, once by direct questions and once by the watches.

One row each; tests/unit/test_diagnosis.py has the same from documents. Rows run under the least role.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.observe.listing import snapshot_jobs
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB

from .jobs import jobset, pod_template, slip, submission, until

Document = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = Kind(KUEUE, "ResourceFlavor", "resourceflavors", False)
TOPOLOGY = Kind(KUEUE, "Topology", "topologies", False)
FOREVER = {"outcome": "forever"}
GANG = "scheduling.x-k8s.io/pod-group"


@dataclass
class World:
    """A namespace and what is arranged there. made: cluster-wide objects, taken away again."""

    root: Client
    target: KubernetesTarget
    namespace: str
    made: list[tuple[Kind, str]] = field(default_factory=list)

    def make(self, kind: Kind, name: str, **content: Any) -> None:
        namespace = {"namespace": self.namespace} if kind.namespaced else {}
        metadata = {"name": name, **namespace}
        self.root.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content})
        if not kind.namespaced:
            self.made.append((kind, name))

    def queue(self, gpus: int, name: str = "team", **spec: Any) -> None:
        """A LocalQueue of that name, and what stands behind it."""
        own = f"{self.namespace}-{name}"
        self.make(FLAVOR, own, spec=spec.pop("flavor", {}))
        resources = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": own, "resources": resources}]}]
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        behind = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption, **spec}
        self.make(CLUSTER_QUEUE, own, spec=behind)
        self.make(LOCAL_QUEUE, name, spec={"clusterQueue": own})
        if "stopPolicy" not in spec:
            until(lambda: self.takes_jobs(name))

    def takes_jobs(self, queue: str) -> bool:
        found = self.root.get(LOCAL_QUEUE, self.namespace, queue) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return any((c["type"], c["status"]) == ("Active", "True") for c in conditions)

    def cohort(self) -> None:
        """Two queues that lend each other their 8 GPUs."""
        flavor = f"{self.namespace}-shared"
        self.make(FLAVOR, flavor, spec={})
        resources = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": flavor, "resources": resources}]}]
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        for name in ("team", "other"):
            spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
            self.make(CLUSTER_QUEUE, f"{self.namespace}-{name}", spec={**spec, "cohortName": self.namespace})
            self.make(LOCAL_QUEUE, name, spec={"clusterQueue": f"{self.namespace}-{name}"})
        until(lambda: self.takes_jobs("team") and self.takes_jobs("other"))

    def priority(self, name: str, value: int) -> str:
        self.make(QUEUE_PRIORITY, f"{self.namespace}-{name}", value=value, description="of a test")
        return f"{self.namespace}-{name}"

    def submit(self, document: Document) -> None:
        self.target.jobs.create(submission(self.namespace, document, code=False))

    def slip(self, document: Document) -> None:
        """A job that would have been refused, had anybody looked."""
        slip(self.target.client, submission(self.namespace, document, code=False))

    def looks(self, name: str, phase: str, reason: str = "", *, later: float = 0.0) -> bool:
        now = time.time() + later
        status = diagnose(snapshot(self.target.client, self.namespace, name), now)
        return (status.phase, status.reason) == (phase, reason)


def job(
    name: str = "job", *, pods: int = 1, gpus: int = 0, queue: str = "", priority: str = "", **more: Any
) -> Document:
    """A JobSet whose pods ask for GPUs each, in a queue."""
    document = jobset(name, pods=pods, **more)
    labels = {QUEUE: queue, PRIORITY: priority}
    document["metadata"]["labels"] = {k: v for k, v in labels.items() if v}
    if gpus:
        container = pod_template(document)["spec"]["containers"][0]
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return document


def stages() -> Document:
    document = job(simulate={"run": "30s"})
    first, second = document["spec"]["replicatedJobs"] * 2
    depends = [{"name": "node", "status": "Complete"}]
    document["spec"]["replicatedJobs"] = [first, {**second, "name": "after", "dependsOn": depends}]
    return document


def with_pod(document: Document, *, labels: Document | None = None, **spec: Any) -> Document:
    template = pod_template(document)
    template["spec"] |= spec
    template["metadata"] = {**template["metadata"], "labels": labels or {}}
    return document


def restarting(most: int, simulate: Document, **policy: Any) -> Document:
    return job(simulate=simulate, failurePolicy={"maxRestarts": most, **policy})


# --- what the rows bring about ------------------------------------------------------------------------------------------------


def preempted(world: World) -> None:
    world.queue(16)
    low, high = world.priority("low", 1), world.priority("high", 1000)
    world.submit(job(pods=2, gpus=8, queue="team", priority=low))
    until(lambda: world.looks("job", "Running"))
    world.submit(job("other", pods=2, gpus=8, queue="team", priority=high))


def reclaimed(world: World) -> None:
    world.cohort()
    world.submit(job(pods=2, gpus=8, queue="team"))
    until(lambda: world.looks("job", "Running"))
    world.submit(job("other", gpus=8, queue="other"))


def topology(world: World) -> None:
    name = f"{world.namespace}-dc"
    levels = [{"nodeLabel": "sim/block"}, {"nodeLabel": "sim/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    world.make(TOPOLOGY, name, spec={"levels": levels})
    world.queue(64, flavor={"nodeLabels": {"sim/pool": "gpu"}, "topologyName": name})
    document = job(pods=6, gpus=8, queue="team")
    pod_template(document)["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = "sim/block"
    world.submit(document)


def dangling(world: World) -> None:
    world.make(LOCAL_QUEUE, "team", spec={"clusterQueue": f"{world.namespace}-nosuch"})
    world.slip(job(gpus=1, queue="team"))


def deactivated(world: World) -> None:
    world.queue(0)
    world.submit(job(gpus=1, queue="team"))
    found = until(lambda: world.root.list(WORKLOAD, world.namespace)[0])
    world.root.patch(WORKLOAD, world.namespace, found[0]["metadata"]["name"], {"spec": {"active": False}})


def train_job(world: World, queue: str) -> None:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2, "image": "trainer:1"}}
    metadata = {"name": "job", "namespace": world.namespace, "labels": {QUEUE: queue}}
    document = {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": metadata, "spec": spec}
    world.root.create(TRAIN_JOB, document)


def admitted_train_job(world: World) -> None:
    world.queue(8)
    cpu = [{"name": "cpu", "nominalQuota": 8}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": f"{world.namespace}-team", "resources": cpu}]}]
    change = {"spec": {"resourceGroups": groups}}
    world.root.patch(CLUSTER_QUEUE, "", f"{world.namespace}-team", change)
    train_job(world, "team")


def gang_of_more_than_there_is(world: World) -> None:
    gang(world, minResources={"nvidia.com/gpu": 1000})


def gang(world: World, **spec: Any) -> None:
    world.make(POD_GROUP, "job", spec={"minMember": 9, "scheduleTimeoutSeconds": 10, **spec})
    document = with_pod(job(pods=9, gpus=8), labels={GANG: "job"}, schedulerName="scheduler-plugins-scheduler")
    world.submit(document)


def refused_job(world: World) -> None:
    """The webhook lets it pass; as a Job it is refused."""
    document = jobset("job")
    del document["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"]
    world.submit(document)


QUOTA = Kind("v1", "ResourceQuota", "resourcequotas")


def with_quota(pods: int, document: Callable[[], Document]) -> Callable[[World], None]:
    """A job in a namespace that may have so many pods."""

    def arrange(world: World) -> None:
        world.make(QUOTA, "none", spec={"hard": {"pods": str(pods)}})
        until(lambda: (world.root.get(QUOTA, world.namespace, "none") or {}).get("status"))
        world.submit(document())

    return arrange


def limited(world: World) -> None:
    """The second step asks for more than the namespace allows a container."""
    limit = {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}
    world.make(Kind("v1", "LimitRange", "limitranges"), "small", spec={"limits": [limit]})
    document, large = job(simulate=FOREVER), with_pod(job(simulate=FOREVER))
    pod_template(large)["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "64"}}
    document["spec"]["replicatedJobs"] += [{**large["spec"]["replicatedJobs"][0], "name": "large"}]
    time.sleep(1)  # until the admission plugin knows the LimitRange
    world.submit(document)


def restricted(world: World) -> None:
    """PodSecurity admits no pod of the job."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    world.root.patch(kinds.NAMESPACE, "", world.namespace, {"metadata": {"labels": labels}})
    world.submit(job(pods=2))


def race(world: World) -> None:
    """JobSet's controller does so now and then; here it is certain."""
    said = 'admission webhook "mjob.kb.io" denied the request: JobSet.jobset.x-k8s.io "job" not found'
    about = {"kind": "JobSet", "name": "job", "namespace": world.namespace}
    world.make(kinds.EVENT, "job.race", involvedObject=about, type="Warning", reason="JobCreationFailed", message=said)
    world.submit(job(simulate=FOREVER))


def deleted(world: World) -> None:
    world.submit(job())
    until(lambda: world.looks("job", "Running"))
    world.root.delete(JOBSET, world.namespace, "job")


def expired(world: World) -> None:
    world.submit(job(simulate={"run": "200ms"}, ttlSecondsAfterFinished=0))


@dataclass(frozen=True)
class Row:
    """message, why: regular expressions that are found there. later: seconds that are taken to have passed. watched: whether
    the watches see it as well: it is a job of ours, and needs no time to pass."""

    name: str
    arrange: Callable[[World], None]
    phase: str
    reason: str
    message: str
    why: str
    later: float = 0.0
    watched: bool = True


def submitted(document: Callable[[], Document]) -> Callable[[World], None]:
    return lambda world: world.submit(document())


def queued(gpus: int, document: Callable[[], Document], **spec: Any) -> Callable[[World], None]:
    def arrange(world: World) -> None:
        world.queue(gpus, **spec)
        world.slip(document())

    return arrange


def behind_another(world: World) -> None:
    world.queue(16)
    world.submit(job("other", pods=2, gpus=8, queue="team"))
    until(lambda: world.looks("other", "Running"))
    world.submit(job(pods=2, gpus=8, queue="team"))


CRASH = {"outcome": "fail", "run": "200ms", "exit-code": "3"}
OOM = {**CRASH, "exit-code": "137", "reason": "OOMKilled"}
ONCE = {**CRASH, "only-attempt": "0"}
AGAIN = [
    {"name": "host", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["BackoffLimitExceeded"]}
]
FIRST = r"\(first failed job: job-node-0\)"

ROWS = [
    Row("done", submitted(lambda: job(pods=2, simulate={"run": "200ms"})), "Succeeded", "AllJobsCompleted",
        "^jobset completed successfully$", "all is done"),
    Row("failed", submitted(lambda: job(simulate=CRASH)), "Failed", "FailedJobs",
        rf"{FIRST}\ncontainer node of pod job-node-0-0-\w+ on node gpu-\d: exit code 3",
        r"exit code 3(\n  last line:\n    a simulated pod prints nothing\n|\. )Fix the cause"),
    Row("restarts used up", submitted(lambda: restarting(1, OOM)), "Failed", "ReachedMaxRestarts",
        r"reaching max number of restarts .*\n.*exit code 137 \(OOMKilled\)", "It needs more memory than its limit"),
    Row("restarting", submitted(lambda: restarting(3, {**ONCE, "start": "3s"})), "Restarting", "DefaultFailurePolicy",
        rf"^restart 1 of 3: applying RestartJobSet failure policy action {FIRST}",
        "because no rule of its failure policy matches"),
    Row("restarting by a rule", submitted(lambda: restarting(3, {**ONCE, "start": "3s"}, rules=AGAIN)),
        "Restarting", "FailurePolicy_host", "restart 1, which does not count towards the maximum of 3", "by rule host"),
    Row("restarted, then fine", submitted(lambda: restarting(3, ONCE)), "Succeeded", "AllJobsCompleted", "", "all is done"),
    Row("running", submitted(job), "Running", "", "^$", "its pods run"),
    Row("suspended", submitted(lambda: job(suspend=True)), "Suspended", "SuspendedJobs", "jobset is suspended",
        "Set suspend to False"),
    Row("a stage that waits", submitted(stages), "Running", "DependsOn", "after waits for node to be completed", "after waits"),
    Row("no node has room", submitted(lambda: job(pods=2, gpus=64)), "Starting", "Unschedulable",
        r"2 pods without a node, such as job-node-0-\d-\w+: 0/\d+ nodes are available: .*Insufficient nvidia.com/gpu",
        "2 of its 2 pods find no node"),
    Row("gated", submitted(lambda: with_pod(job(), schedulingGates=[{"name": "example.com/wait"}])), "Starting",
        "SchedulingGated", "non-empty scheduling gates", "1 pod may not be scheduled yet"),
    Row("image", submitted(lambda: job(simulate={"outcome": "imagepull", "start": "100ms"})), "Starting", "ErrImagePull",
        r'on node gpu-\d: failed to pull and unpack image "trainer:1": not found', "its image trainer:1 cannot be pulled"),
    Row("image, after a while", submitted(lambda: job(simulate={"outcome": "imagepull", "start": "100ms"})), "Starting",
        "ImagePullBackOff", 'Back-off pulling image|failed to pull', "Correct the image's name"),
    Row("crash loop", submitted(lambda: with_pod(job(simulate={**CRASH, "outcome": "crashloop"}), restartPolicy="OnFailure")),
        "Starting", "CrashLoopBackOff", r"container node of pod job-node-0-0-\w+ on node gpu-\d: exit code 3",
        "ends soon after each start"),
    Row("a Job that is refused", refused_job, "Pending", "JobCreationFailed", "spec.completions: Required value",
        "the cluster rejects what JobSet's controller creates"),
    Row("pods that are refused", with_quota(0, job), "Starting", "FailedCreate", "exceeded quota: none",
        "the cluster rejects its pods"),
    Row("pods of a gang that are refused", with_quota(3, lambda: job(pods=5, simulate=FOREVER)), "Starting", "FailedCreate",
        "^2 of 5 pods cannot be created: .*exceeded quota: none", "the cluster rejects 2 of its 5 pods: .*exceeded quota"),
    Row("a step that the namespace's limits refuse", limited, "Starting", "FailedCreate",
        "^1 of 2 pods cannot be created: .*maximum cpu usage per Container is 2", "the cluster rejects 1 of its 2 pods: .*cpu"),
    Row("pods that PodSecurity refuses", restricted, "Starting", "FailedCreate", 'violates PodSecurity "restricted',
        "the cluster rejects its pods: .*violates PodSecurity"),
    Row("a race that harms nobody", race, "Running", "", "^$", "its pods run"),
    Row("gang", gang, "Starting", "WaitingForGang", r"^\d of 9 pods of PodGroup job \(\w+\) have a node: .*Insufficient",
        "its 9 pods start together or not at all"),
    Row("gang, and the whole cluster is too small", gang_of_more_than_there_is, "Starting", "WaitingForGang",
        r"^0 of 9 pods of PodGroup job \(\w+\) have a node: .*resource gap: map\[nvidia.com/gpu",
        r"but only 0 have a node \(\w+\): the cluster lacks 9\d\d nvidia.com/gpu for all of them together. Free or add nodes"),
    Row("no such scheduler", submitted(lambda: with_pod(job(pods=2), schedulerName="nobody")), "Starting", "NoScheduler",
        "^2 pods of scheduler nobody pending for", "Is the scheduler nobody installed and running", 40, False),
    Row("queue: waits", behind_another, "Queued", "Pending", "insufficient unused quota for nvidia.com/gpu in flavor .*, 16 more",
        r"it waits in the LocalQueue team: 16 more of nvidia.com/gpu must become free in flavor \S+. It starts by itself"),
    Row("queue: never", queued(16, lambda: job(pods=3, gpus=8, queue="team")), "Queued", "Pending",
        r"current podset request \(24\) > maximum capacity \(16\)",
        r"it requests 24 of nvidia.com/gpu, .* never have more than 16 in flavor \S+. Unless .* cannot be read, it never starts"),
    Row("queue: not covered", queued(16, lambda: with_pod(job(queue="team"), containers=[
        {"name": "node", "image": "trainer:1", "resources": {"limits": {"amd.com/gpu": 1}}}])), "Queued", "Pending",
        "resource amd.com/gpu unavailable in ClusterQueue", "no quota for amd.com/gpu at all"),
    Row("queue: none", lambda w: w.slip(job(queue="nosuch")), "Queued", "Inadmissible", "LocalQueue nosuch doesn't exist",
        "LocalQueue nosuch does not exist in its namespace. Correct queue="),
    Row("queue: leads nowhere", dangling, "Queued", "Inadmissible", "ClusterQueue .*-nosuch doesn't exist",
        "which does not exist"),
    Row("queue: held", queued(16, lambda: job(gpus=1, queue="team"), stopPolicy="Hold"), "Queued", "Inadmissible",
        "ClusterQueue .* is inactive", "is inactive: it is stopped"),
    Row("queue: admitted", queued(16, lambda: job(gpus=1, queue="team")), "Running", "", "^$", "its pods run"),
    Row("queue: done", queued(16, lambda: job(gpus=1, queue="team", simulate={"run": "200ms"})), "Succeeded", "AllJobsCompleted",
        "jobset completed successfully", "all is done"),
    Row("queue: preempted", preempted, "Queued", "Preempted", "^Preempted to accommodate .* 16 more needed",
        r"stopped it for (another job in /\S+|\S+/other \(\S+\)), which has a higher priority in its own queue"),
    Row("queue: reclaimed", reclaimed, "Queued", "Preempted", "preemptor path: /.*-other; preemptee path: /.*-team",
        "whose queue reclaims quota that it had lent"),
    Row("queue: topology", topology, "Queued", "Pending", r"allows to fit only \d out of 6 pod\(s\)",
        r"there is quota, but in one domain of topology \S+ only \d of its 6 pods have room"),
    Row("queue: deactivated", deactivated, "Queued", "Deactivated", "", "Kueue does not start it again by itself"),
    Row("TrainJob: no queue", lambda w: train_job(w, "nosuch"), "Queued", "Inadmissible", "LocalQueue nosuch doesn't exist",
        "LocalQueue nosuch does not exist", watched=False),
    Row("TrainJob: admitted, done", admitted_train_job, "Succeeded", "AllJobsCompleted", "", "all is done", watched=False),
    Row("deleted", deleted, "Deleted", "OutcomeUnknown", "it is not known whether it had ended", "it no longer exists"),
    Row("its time to live is over", expired, "Deleted", "OutcomeUnknown", "it was deleted by its TTL", "it no longer exists",
        watched=False),
]  # fmt: skip


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


@pytest.fixture
def world(cluster: Any, client: Client, namespace: str) -> Iterator[World]:
    root = open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})
    made = World(root, KubernetesTarget(client, cluster=lambda: "", namespace=namespace), namespace)
    yield made
    for document in root.list(JOBSET, namespace)[0]:
        root.delete(JOBSET, namespace, document["metadata"]["name"], propagation="Background")
    for kind, name in reversed(made.made):
        root.delete(kind, "", name, propagation="Background")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_words(row: Row, world: World, client: Client) -> None:
    observer = Observer(client, world.namespace, stack="stack").start()
    try:
        row.arrange(world)
        if row.watched:
            told(row, lambda: watched(observer))
        if row.reason not in PASSING or not row.watched:
            told(row, lambda: asked(row, world))
    finally:
        observer.stop()


def test_a_list_of_all_jobs_says_which_pods_are_refused(world: World, client: Client) -> None:
    """`pulumi-trainer status` without a name."""
    with_quota(3, lambda: job(pods=5, simulate=FOREVER))(world)

    def listed() -> str:
        (seen,) = snapshot_jobs(client, world.namespace)
        status = diagnose(seen, time.time())
        return f"{status.phase} {status.reason} {status.message}"

    until(lambda: re.match(r"Starting FailedCreate 2 of 5 pods cannot be created: .*exceeded quota: none", listed()))


PASSING = ("ErrImagePull", "CrashLoopBackOff", "DefaultFailurePolicy", "FailurePolicy_host")
"""States that are over so soon that they are not waited for twice."""
Told = tuple[str, str, str, str]


def told(row: Row, look: Callable[[], Told]) -> None:
    """Waits until all is told as the row has it."""
    wanted = (f"^{row.phase}$", f"^{row.reason}$", row.message, row.why)
    deadline = time.monotonic() + 120
    while True:
        last = look()
        if all(re.search(pattern, said, re.DOTALL) for pattern, said in zip(wanted, last, strict=True)):
            return
        assert time.monotonic() < deadline, "\n".join(last)
        time.sleep(0.05)


def watched(observer: Observer) -> Told:
    observer.changed()
    status = observer.status("job")
    return (status.phase, status.reason, status.message, observer.why("job")) if status else ("", "", "", "")


def asked(row: Row, world: World) -> Told:
    """By direct questions."""
    seen, now = snapshot(world.target.client, world.namespace, "job"), time.time() + row.later
    status = diagnose(seen, now)
    paragraph = explain(seen, status, now)
    assert paragraph.startswith(f"{world.namespace}/job is {status.phase}")
    return status.phase, status.reason, status.message, paragraph
