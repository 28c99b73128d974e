"""Mode trainer on the real controller: runtimes as objects, and the JobSet that it makes of a TrainJob is the one we render."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from kubernetes.client import ApiClient, CustomObjectsApi
from pulumi_trainer import runtimes
from pulumi_trainer.plan import runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import restore_outputs
from pulumi_trainer.provider.jobs.lineage import with_identity
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.jobs.submission import Objects, Submission, differences
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, Refused, TrainerError
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.job_status import epoch_seconds
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, JOBSET, TRAIN_JOB, TRAINING_RUNTIME, kind_of
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.offline import Cluster
from pulumi_trainer.provider.trainer.pipeline.modes import MULTIKUEUE
from pulumi_trainer.provider.trainer.releases import DEFAULT

from tests.engine.conftest import Project, pulumi_home  # noqa: F401 (a fixture)
from tests.trainer import default_runtime, default_train_job, render

from .jobs import STAYS, left, send, submission, until
from .test_doctor import findings
from .test_owners import second
from .test_up import Lab, head, lab, program  # noqa: F401 (a fixture)

OWNER = Owner("owner", "stack")
"""Of the runtimes that these tests make."""

Document = dict[str, Any]


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


@pytest.fixture
def target(client: Client, namespace: str) -> KubernetesTarget:
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace, mode="trainer")


def in_namespace(name: str, namespace: str) -> Document:
    """A runtime of the catalogue for one namespace: other tests share the cluster."""
    document = runtimes.load(name)
    return {**document, "kind": "TrainingRuntime", "metadata": {**document["metadata"], "namespace": namespace}}


def train_job(namespace: str, runtime: Document, name: str = "job", **spec: Any) -> Document:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": ref, "trainer": {}, **spec},
    }


def as_admitted(root: Client, rendered: Document) -> Document:
    """What the server would store of a rendered object: its defaults, and what the webhooks set."""
    elsewhere = {**copy.deepcopy(rendered)}
    elsewhere["metadata"] = {**elsewhere["metadata"], "namespace": "default"}
    elsewhere["metadata"].pop("ownerReferences", None)  # of an object in another namespace
    if rendered["kind"] == "Secret":  # placeholders of keys that the controller makes
        elsewhere["data"] = dict.fromkeys(rendered["data"], "eA==")
    answer = root.create(kind_of(rendered), elsewhere, dry_run=True)
    answer["metadata"]["ownerReferences"] = rendered["metadata"].get("ownerReferences", [])
    return comparable(answer)


def comparable(document: Document) -> Document:
    """Without what a server sets for each object anew; of what is generated, which keys there are."""
    document = copy.deepcopy(document)
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "namespace"):
        document["metadata"].pop(field, None)
    document.pop("status", None)
    if document["kind"] == "Secret" or document["metadata"]["name"].endswith("-flux-entrypoint"):
        document["data"] = sorted(document["data"])
    for container in _containers(document):
        if any(each["name"].startswith("DMLC_") for each in container.get("env", [])):
            container["env"].sort(
                key=lambda each: str(each["name"])
            )  # the controller runs two plugins in a random order
    return document


def _containers(document: Document) -> Iterator[Document]:
    for job in document.get("spec", {}).get("replicatedJobs", []):
        yield from job["template"]["spec"]["template"]["spec"]["containers"]


def compare(root: Client, namespace: str, rendered: Objects) -> None:
    """What the controller has made, field by field: the test cluster runs the default release."""
    found = []
    for key, mine in rendered.items():
        kind, name = kind_of(mine), mine["metadata"]["name"]
        theirs = until(lambda kind=kind, name=name: root.get(kind, namespace, name))  # type: ignore[misc]
        found += [f"{key}: {path}" for path in differences(comparable(theirs), as_admitted(root, mine))]
    assert found == []


@pytest.mark.parametrize("name", runtimes.names())
def test_the_controller_makes_what_we_render(
    target: KubernetesTarget, client: Client, root: Client, namespace: str, name: str
) -> None:
    runtime = in_namespace(name, namespace)
    target.runtimes.apply(runtime, "owner", "stack")
    nodes = {} if name.startswith("torchtune-") else {"trainer": {"numNodes": 3}}
    document = train_job(namespace, runtime, suspend=True, **nodes)
    target.jobs.create(submission(namespace, document))
    live = client.get(TRAIN_JOB, namespace, "job")
    assert live is not None
    document["metadata"]["uid"] = live["metadata"]["uid"]
    rendered = render(default_runtime(runtime), default_train_job(document), mode="trainer").objects
    assert any(key.startswith("JobSet/") for key in rendered)
    compare(root, namespace, rendered)


def test_the_crds_tell_the_release(target: KubernetesTarget) -> None:
    assert target.trainer_version() == DEFAULT.version


def train(epochs: int) -> None:
    print(epochs)


def asked(name: str) -> dict[str, Any]:
    """What a program says of a job on that runtime; all of it has to come through the controller as we show it."""
    fetched = trainer.Initializer(
        dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca", ignore_patterns=["*.md"]),
        model=trainer.HuggingFaceModelInitializer(storage_uri="hf://meta-llama/Llama-3.2-1B-Instruct"),
    )
    patch = {"manager": "tests/team", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"team": "a"}}}}}
    both = {"suspend": True, "active_deadline_seconds": 600, "runtime_patches": [patch], "output": True}
    if name == "torch-distributed-with-cache":
        cache = trainer.DataCacheInitializer(
            storage_uri="cache://schema/table", metadata_loc="s3://b/m.json", num_data_nodes=2, iam_role="role"
        )
        both["initializer"] = trainer.Initializer(dataset=cache)
    if runtimes.load(name)["metadata"]["labels"][FRAMEWORK] == "torchtune":
        config = trainer.TorchTuneConfig(epochs=2, batch_size=4)
        return {**both, "trainer": trainer.BuiltinTrainer(config=config), "initializer": fetched}
    code = trainer.CustomTrainer(
        func=train, func_args={"epochs": 3}, packages_to_install=["numpy"], num_nodes=2, env={"A": "b"},
        resources_per_node={"cpu": 2, "memory": "1Gi"},
    )  # fmt: skip
    return {**both, "trainer": code}


@pytest.mark.parametrize(
    ("fields", "condition"),
    [({"suspend": True}, "Suspended"), ({"activeDeadlineSeconds": 1}, "Failed"), ({"managedBy": MULTIKUEUE}, "")],
    ids=["suspended", "past its deadline", "of MultiKueue"],
)
def test_the_status_where_the_controller_makes_no_objects(
    root: Client, namespace: str, fields: dict[str, Any], condition: str
) -> None:
    """It cannot read its snapshot of the runtime, or leaves the TrainJob alone: `validate` says the same of both."""
    runtime = in_namespace("torch-distributed", namespace)
    meta = {"name": "job-runtime-snapshot", "namespace": namespace}
    snapshot = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"other": ""}}
    job = train_job(namespace, runtime, **fields)
    for kind, document in ((TRAINING_RUNTIME, runtime), (kinds.CONFIG_MAP, snapshot), (TRAIN_JOB, job)):
        root.create(kind, document)

    def conditions(status: Document | None) -> list[tuple[str, str]]:
        return [(c["type"], c["reason"]) for c in (status or {}).get("conditions") or []]

    def stored() -> Document | None:
        return root.get(TRAIN_JOB, namespace, "job")

    if condition:
        until(lambda: conditions((stored() or {}).get("status")))
    else:
        time.sleep(3)
    live = stored()
    assert live is not None and root.get(JOBSET, namespace, "job") is None
    offline = Cluster("trainer", DEFAULT, now=epoch_seconds(live["metadata"]["creationTimestamp"], 0.0) + 5)
    results = [offline.apply(document) for document in (runtime, snapshot, {**job, "metadata": live["metadata"]})]
    assert results[-1] is not None and results[-1].admitted and not results[-1].objects
    assert conditions(offline.status(results[-1])) == conditions(live.get("status"))
    assert {type_ for type_, _ in conditions(live.get("status"))} == ({condition} if condition else set())


@pytest.mark.parametrize("name", runtimes.names())
def test_a_program_runs_as_it_is_planned(
    target: KubernetesTarget, client: Client, root: Client, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = in_namespace(name, namespace)
    target.runtimes.apply(runtime, "owner", "stack")
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    monkeypatch.setattr(runtime_ref, "_runtime_by_name", lambda *_: (copy.deepcopy(runtime), []))

    async def planning() -> Plan:
        where = trainer.Kubernetes(mode="trainer", namespace=namespace)
        return await trainjob_plan.plan(
            trainjob_plan.TrainJobArgs("job", runtime="r", target=where, name="job", **asked(name))
        )

    plan = asyncio.run(planning())
    assert [str(p) for p in plan.problems] == []
    assert sorted(key.partition("/")[0] for key in plan.objects) in (["ConfigMap", "TrainJob"], ["TrainJob"])
    unknown = {"output": "job-output"}
    objects, planned = (restore_outputs(documents, unknown) for documents in (plan.objects, plan.made))  # type: ignore[arg-type]
    for claim in plan.claims.values():
        target.volumes.create(namespace, claim.name, "urn:a", "stack", claim.spec)
    status = target.jobs.create(Submission(namespace, "job", "owner", "digest", objects, sweep="stack"))
    planned = with_identity(planned, status.identity)

    live = until(lambda: client.get(JOBSET, namespace, "job"))
    for document in planned.values():
        document["metadata"]["ownerReferences"] = live["metadata"]["ownerReferences"]
    assert live["metadata"]["labels"]["team"] == "a"
    compare(root, namespace, planned)


@pytest.fixture
def own(root: Client, namespace: str) -> Iterator[Document]:
    """A ClusterTrainingRuntime of this test's own name."""
    document = runtimes.load("torch-distributed")
    document["metadata"]["name"] = f"torch-{namespace}"
    yield document
    root.delete(CLUSTER_RUNTIME, "", document["metadata"]["name"])


@pytest.fixture
def platform(root: Client, namespace: str) -> KubernetesTarget:
    """Of those who may make runtimes for the whole cluster."""
    return KubernetesTarget(root, cluster=lambda: "", namespace=namespace, mode="trainer")


def test_a_runtime_lives_as_an_object_of_its_own(platform: KubernetesTarget, root: Client, own: Document) -> None:
    target = platform
    name = own["metadata"]["name"]
    uid = target.runtimes.apply(own, "owner", "stack")
    live = target.runtimes.find("ClusterTrainingRuntime", "", name)
    assert live is not None and live["metadata"]["uid"] == uid
    assert live["metadata"]["labels"][owner_labels.MANAGED_BY] == "pulumi-trainer"
    assert live["metadata"]["labels"][owner_labels.STACK] == "stack"

    changed = copy.deepcopy(own)
    changed["spec"]["mlPolicy"]["numNodes"] = 4
    assert target.runtimes.apply(changed, "owner", "stack") == uid
    live = target.runtimes.find("ClusterTrainingRuntime", "", name)
    assert live is not None and live["spec"]["mlPolicy"]["numNodes"] == 4

    with pytest.raises(Conflict, match="another program"):
        target.runtimes.apply(own, "another", "stack")
    with pytest.raises(Conflict, match="exists and is of another stack of this name"):
        target.runtimes.apply(own, "owner", "stack-elsewhere")
    by_hand = {**own, "metadata": {**own["metadata"], "name": f"{name}-hand"}}
    root.create(CLUSTER_RUNTIME, by_hand)
    try:
        with pytest.raises(Conflict, match=f'give TrainJobs runtime="{name}-hand"'):
            target.runtimes.apply(by_hand, "owner", "stack")
    finally:
        root.delete(CLUSTER_RUNTIME, "", f"{name}-hand")

    target.runtimes.delete(own, "of another life", OWNER)
    assert str(target.runtimes.delete(own, uid, Owner("owner", "stack-elsewhere"))) == "another program"
    assert target.runtimes.find("ClusterTrainingRuntime", "", name) is not None
    target.runtimes.delete(own, uid, OWNER)
    assert target.runtimes.find("ClusterTrainingRuntime", "", name) is None
    target.runtimes.delete(own, uid, OWNER)


def test_a_runtime_is_not_deleted_under_an_unfinished_job(
    platform: KubernetesTarget, namespace: str, own: Document
) -> None:
    target = platform
    uid = target.runtimes.apply(own, "owner", "stack")
    target.jobs.create(submission(namespace, train_job(namespace, own, "holds", suspend=True)))
    with pytest.raises(Refused, match=f"is the runtime of TrainJob {namespace}/holds, which has not finished"):
        target.runtimes.delete(own, uid, OWNER)
    target.runtimes.delete(own, uid, OWNER, force=True)
    assert target.runtimes.find("ClusterTrainingRuntime", "", own["metadata"]["name"]) is None
    uid = target.runtimes.apply(own, "owner", "stack")
    target.jobs.delete(namespace, "holds")
    target.runtimes.delete(own, uid, OWNER)
    assert target.runtimes.find("ClusterTrainingRuntime", "", own["metadata"]["name"]) is None


def test_a_runtime_held_by_a_finalizer_is_named(
    platform: KubernetesTarget, root: Client, own: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainers before 2.3 hold a runtime so, by a finalizer that newer ones remove at once."""
    target = platform
    from pulumi_trainer.provider.targets.kubernetes.jobs import runtime_objects as module

    monkeypatch.setattr(module, "GONE_SECONDS", 0.3)
    uid, name = target.runtimes.apply(own, "owner", ""), own["metadata"]["name"]
    finalizer = {"metadata": {"finalizers": ["tests/held"]}}
    root.patch(CLUSTER_RUNTIME, "", name, finalizer)
    with pytest.raises(TrainerError, match=r"is being deleted, but blocked by tests/held. Hint: "):
        target.runtimes.delete(own, uid, OWNER)
    root.patch(CLUSTER_RUNTIME, "", name, {"metadata": {"finalizers": None}})


def test_a_train_job_without_its_runtime_is_refused_in_the_servers_words(
    target: KubernetesTarget, namespace: str
) -> None:
    missing = in_namespace("torch-distributed", namespace)
    with pytest.raises(TrainerError, match="torch-distributed"):
        target.jobs.create(submission(namespace, train_job(namespace, missing)))


@pytest.mark.smoke
def test_a_train_job_runs_and_its_deletion_leaves_nothing(
    target: KubernetesTarget, client: Client, root: Client, namespace: str
) -> None:
    runtime = in_namespace("torch-distributed", namespace)
    pod = {"metadata": {"annotations": {"sim/run": "1s", "sim/outcome": "succeed"}}}
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].update(pod)
    target.runtimes.apply(runtime, "owner", "stack")
    target.jobs.create(submission(namespace, train_job(namespace, runtime, trainer={"numNodes": 2})))

    def complete() -> bool:
        found = client.get(TRAIN_JOB, namespace, "job") or {}
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    until(complete)
    target.jobs.delete(namespace, "job")
    for kind in (TRAIN_JOB, JOBSET, kinds.JOB, kinds.POD):
        assert root.list(kind, namespace)[0] == []
    names = {c["metadata"]["name"] for c in root.list(kinds.CONFIG_MAP, namespace)[0]}
    assert names == {*STAYS}


def test_a_program_in_mode_trainer(lab: Lab, root: Client, namespace: str) -> None:  # noqa: F811
    """The same program as in mode jobset; its runtime and its job are Trainer's own objects."""
    name = f"plain-{namespace}"
    top = head("outcome: forever").replace('"simulated"', f'"{name}"')
    text = program('env={"A": "1"}),')
    lab.config("trainer:mode", "trainer")
    lab.program(text, top)
    shown = lab.preview("--diff").out
    assert "numNodes" in shown and "TrainJob/train-" in shown and "JobSet/train-" not in shown
    lab.up()
    runtime = root.get(CLUSTER_RUNTIME, "", name)
    (job,) = root.list(TRAIN_JOB, namespace)[0]
    assert runtime is not None and job["spec"]["runtimeRef"]["name"] == name
    pods = lab.pods(2)
    lab.preview("--expect-no-changes")
    until(lambda: lab.up() and lab.outputs()["phase"] == "Running")

    lab.program(text, top.replace("num_nodes=1", "num_nodes=3"))
    changed = lab.preview("--diff").out
    assert '"Pending"' not in changed, "the job goes on"
    assert "numNodes: 1 => 3" in changed.replace(" ", " ") or "numNodes" in changed
    lab.up()
    now = root.get(CLUSTER_RUNTIME, "", name)
    assert now is not None and now["spec"]["mlPolicy"]["numNodes"] == 3
    assert now["metadata"]["uid"] == runtime["metadata"]["uid"] and lab.pods(2) == pods, "jobs keep what they have"

    root.patch(CLUSTER_RUNTIME, "", name, {"spec": {"mlPolicy": {"numNodes": 7}}})
    lab.refresh()
    assert "numNodes" in lab.preview("--diff").out, "somebody else's change shows"
    lab.program(text.replace("runtime=simulated", 'runtime="torch-nosuch"'), top)
    assert "torch-nosuch" in lab.preview(ok=False).out
    lab.destroy()
    assert root.get(CLUSTER_RUNTIME, "", name) is None
    until(lambda: left(root, namespace) == [])


def test_a_refused_job_leaves_the_runtime_of_its_program_alone(lab: Lab, root: Client, namespace: str) -> None:  # noqa: F811
    """The preview of `up` refuses both kinds of refusals before the engine updates what the job depends on."""
    name = f"plain-{namespace}"
    top = head("outcome: forever").replace('"simulated"', f'"{name}"')
    lab.config("trainer:mode", "trainer")
    lab.program(program('env={"A": "1"}),'), top)
    lab.up()
    lab.pods(2)
    changed = top.replace("num_nodes=1", "num_nodes=3")
    for refused, why in (('env={"A": "2"}),', 'interrupt="allow"'), ('env={"1 A=": "1"}),', "env")):
        lab.program(program(refused), changed)
        up = lab.run("up", "--yes")
        assert up.code and why in up.out
        assert (root.get(CLUSTER_RUNTIME, "", name) or {})["spec"]["mlPolicy"]["numNodes"] == 1
    lab.destroy()


def test_what_others_do_to_a_runtime_is_seen_by_the_plan_and_taken_back(
    lab: Lab, root: Client, namespace: str  # noqa: F811
) -> None:  # fmt: skip
    name = f"plain-{namespace}"
    top = head("outcome: forever").replace('"simulated"', f'"{name}"')
    lab.config("trainer:mode", "trainer")
    lab.program("", top)
    lab.up()
    lab.preview("--expect-no-changes")
    assert findings(lab) == {}
    added = 'trainer.TrainJob("%s", runtime=simulated, trainer=trainer.Trainer(command=["train"]))\n'

    root.patch(CLUSTER_RUNTIME, "", name, {"metadata": {"labels": {"theirs": "1"}}})
    lab.preview("--expect-no-changes")
    template = ("PATCH", CLUSTER_RUNTIME.path("", name), {"fieldManager": "kubectl-edit"})
    send(root, *template, {"spec": {"mlPolicy": {"numNodes": 4}}})
    note = f"ClusterTrainingRuntime {name}: somebody has changed spec.mlPolicy.numNodes; this update restores"
    (changed,) = findings(lab).values()
    assert (changed["code"], changed["message"]) == ("changed", "somebody has changed spec.mlPolicy.numNodes")
    lab.program(added % "e", top)
    assert note in lab.preview().out
    assert note in lab.up().out
    lab.pods(1)
    assert (root.get(CLUSTER_RUNTIME, "", name) or {})["spec"]["mlPolicy"]["numNodes"] == 1
    assert note not in lab.preview("--expect-no-changes").out

    root.delete(CLUSTER_RUNTIME, "", name, propagation="Background")
    lab.program(added % "e" + added % "f", top)
    assert f"ClusterTrainingRuntime {name}: somebody has deleted it; it is created again" in lab.preview().out
    lab.up()
    lab.pods(2)
    lab.preview("--expect-no-changes", "--refresh")

    live = root.get(CLUSTER_RUNTIME, "", name)
    assert live is not None
    root.delete(CLUSTER_RUNTIME, "", name, propagation="Background")
    by_hand = {**live, "metadata": {"name": name}}
    root.create(CLUSTER_RUNTIME, by_hand)
    lab.program(added % "e" + added % "f" + added % "g", top)
    for refused in (lab.preview(ok=False).out, lab.up(ok=False).out):
        assert f"ClusterTrainingRuntime {name}: exists and is somebody's" in refused, refused
    lab.destroy()
    assert (root.get(CLUSTER_RUNTIME, "", name) or {})["metadata"].get("labels") is None, "it is left alone"
    root.delete(CLUSTER_RUNTIME, "", name)


def test_one_runtime_serves_the_jobs_of_several_namespaces(
    lab: Lab, root: Client, cluster: Any, namespace: str  # noqa: F811
) -> None:  # fmt: skip
    other, name = f"{namespace}-b", f"plain-{namespace}"
    root.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    lab.config("trainer:kubeconfig", str(cluster.kubeconfig))
    top = head("outcome: forever").replace('"simulated"', f'"{name}"')
    lab.config("trainer:mode", "trainer")
    job = 'trainer.TrainJob("%s", runtime=simulated, trainer=trainer.Trainer(command=["train"]), target=%s)\n'
    there = job % ("x", f'trainer.Kubernetes(namespace="{other}")')
    try:
        lab.program(job % ("w", "None"), top)
        lab.up()
        lab.program(job % ("w", "None") + there, top)
        shown = lab.preview("--diff").out
        assert f"{name}-2" not in shown, shown
        lab.up()
        lab.preview("--expect-no-changes", "--refresh")
        lab.program(there, top)
        lab.up()
        lab.preview("--expect-no-changes")
        assert len(root.list(TRAIN_JOB, other)[0]) == 1
        lab.destroy()
        assert root.get(CLUSTER_RUNTIME, "", name) is None
    finally:
        root.delete(kinds.NAMESPACE, "", other)


def test_a_namespaced_runtime_stays_when_jobs_change_their_order_or_leave(
    lab: Lab, root: Client, cluster: Any, namespace: str  # noqa: F811
) -> None:  # fmt: skip
    places = [f"{namespace}-{letter}" for letter in "bcd"]
    name = f"plain-{namespace}"
    for place in places:
        root.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    lab.config("trainer:kubeconfig", str(cluster.kubeconfig))
    lab.config("trainer:mode", "trainer")
    top = head("run: 1s").replace('"simulated"', f'"{name}"').replace("ClusterTrainingRuntime", "TrainingRuntime")
    job = (
        'trainer.TrainJob("in-{0}", runtime=simulated, trainer=trainer.Trainer(command=["true"]),'
        ' wait_for="complete", target=trainer.Kubernetes(namespace="{0}"))\n'
    )

    def uids() -> dict[str, str]:
        found = {place: root.get(TRAINING_RUNTIME, place, name) for place in places}
        return {place: live["metadata"]["uid"] for place, live in found.items() if live is not None}

    def has(*order: str) -> None:
        lab.program("".join(job.format(place) for place in order), top)

    b, c, d = places
    try:
        has(b, c)
        lab.up()
        made = uids()
        assert [*made] == [b, c]
        has(c, b)
        lab.preview("--expect-no-changes")
        lab.up()
        assert uids() == made
        has(d, c, b)
        lab.up()
        now = uids()
        assert {b: now[b], c: now[c]} == made and d in now
        lab.up("--replace", "**Runtime::*")
        assert uids() == now, "the object that was applied again is not deleted as the one before"
        has(d, c)
        lab.up()
        assert uids() == {c: now[c], d: now[d]}
        lab.preview("--expect-no-changes")
        lab.destroy("--run-program")
        assert uids() == {}
    finally:
        for place in places:
            root.delete(kinds.NAMESPACE, "", place)


def test_nothing_starts_anew_while_a_train_job_is_deleted(lab: Lab, root: Client, namespace: str) -> None:  # noqa: F811
    """Trainer makes the JobSet again of a TrainJob that is deleted in the foreground."""
    top = head("outcome: forever").replace('"simulated"', f'"plain-{namespace}"')
    lab.config("trainer:mode", "trainer")
    jobs = "".join(program('), interrupt="allow", run="%s",', name=f"train{i}") for i in range(4))
    lab.program(jobs.replace("%s", "1"), top)
    lab.up()
    lab.pods(8)
    found, version = root.list(JOBSET, namespace)
    first = {each["metadata"]["uid"] for each in found}
    pods = root.list(kinds.POD, namespace)[1]
    lab.program(jobs.replace("%s", "2"), top)
    lab.up()
    until(lambda: len(root.list(JOBSET, namespace)[0]) == 4)
    second = {each["metadata"]["uid"] for each in root.list(JOBSET, namespace)[0]}
    assert not first & second
    lab.pods(8)
    lab.destroy()
    assert left(root, namespace) == []
    assert _added(root, JOBSET, namespace, version) == second
    assert len(_added(root, kinds.POD, namespace, pods)) == 8


def _added(root: Client, kind: kinds.Kind, namespace: str, version: str) -> set[str]:
    """uids of the objects that were made after a resource version."""
    events = root.watch(kind, namespace, version, seconds=1)
    return {each["object"]["metadata"]["uid"] for each in events if each["type"] == "ADDED"}


def test_a_train_job_that_somebody_has_made_is_adopted_with_its_pods(
    lab: Lab, root: Client, admin: ApiClient, namespace: str, own: Document  # noqa: F811
) -> None:  # fmt: skip
    """Made through the official client, as Kubeflow's SDK makes them."""
    pod = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {"sim/outcome": "forever"}}
    root.create(CLUSTER_RUNTIME, own)
    made = train_job(
        namespace, own, "sdk", trainer={"command": ["train"], "numNodes": 2, "env": [{"name": "A", "value": "1"}]}
    )
    del made["metadata"]["namespace"]
    CustomObjectsApi(admin).create_namespaced_custom_object(
        "trainer.kubeflow.org", "v1alpha1", namespace, "trainjobs", made
    )
    pods = lab.pods(2)
    lab.config("trainer:mode", "trainer")
    text = f"""
trainer.TrainJob(
    "train", name="sdk", runtime="{own["metadata"]["name"]}", %s
    trainer=trainer.Trainer(command=["train"], num_nodes=2, env={{"A": "%s"}}),
)
"""
    lab.program(text % ("", "1"), head())
    refused = lab.up(ok=False).out
    assert "was created by" in refused and "adopt=True" in refused and "Traceback" not in refused
    lab.program(text % ("adopt=True,", "2"), head())
    assert "it differs in spec.trainer.env" in (told := lab.up(ok=False).out), told
    lab.program(text % ("adopt=True,", "1"), head())
    lab.up()
    assert lab.pods(2) == pods
    lab.preview("--expect-no-changes", "--refresh")
    lab.destroy()
    until(lambda: left(root, namespace) == [])


def test_another_stack_adopts_a_train_job_with_code_and_is_refused_its_runtime(
    lab: Lab, root: Client, namespace: str  # noqa: F811
) -> None:  # fmt: skip
    name = f"plain-{namespace}"
    top = head("outcome: forever").replace('"simulated"', f'"{name}"')
    lab.config("trainer:mode", "trainer")
    lab.program(program('), name="a0",'), top)
    lab.up()
    pods = lab.pods(2)
    second(lab)
    belongs = (
        f"ClusterTrainingRuntime {name}: exists and is another program's. Hint: to use the"
        " existing runtime, give TrainJobs runtime="
    )
    lab.program(program('), name="a1",'), top)
    assert belongs in lab.preview(ok=False).out
    theirs = program('), name="a0", adopt=True,').replace("runtime=simulated", f'runtime="{name}"')
    lab.program(theirs.replace("num_nodes=2", "num_nodes=1"), head())
    for refused in (lab.preview(ok=False).out, lab.up(ok=False).out):
        assert "cannot be adopted: it differs in spec.trainer.numNodes" in refused, refused
    lab.program(theirs, head())
    lab.preview()
    lab.up()
    assert lab.pods(2) == pods
    lab.preview("--expect-no-changes")
    lab.destroy()
    lab.stack = "test"
    lab.destroy()
    assert left(root, namespace) == []


def test_a_runtime_by_name_is_the_clusters_own(lab: Lab, root: Client, namespace: str, own: Document) -> None:  # noqa: F811
    """One of the platform's, which no catalogue has; where there is none, the preview and the server refuse."""
    name = own["metadata"]["name"]
    own["spec"]["mlPolicy"]["numNodes"] = 2
    pod = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": {"sim/outcome": "forever"}}
    root.create(CLUSTER_RUNTIME, own)
    lab.config("trainer:mode", "trainer")
    text = f'trainer.TrainJob("train", runtime="{name}", trainer=trainer.Trainer(command=["train"]))'
    lab.program(text, head())
    assert "warning" not in lab.preview().out
    lab.up()
    lab.pods(2)
    missing = text.replace(name, "paddle")
    lab.program(missing.replace('"train"', '"other"', 1), head())
    said = lab.preview(ok=False).out
    assert "the cluster has no ClusterTrainingRuntime 'paddle'" in said, said
    assert "ClusterTrainingRuntime paddle does not exist" in said, said
    assert "paddle" in lab.up(ok=False).out
    lab.destroy()
    assert root.get(CLUSTER_RUNTIME, "", name) is not None, "it is not the program's"
