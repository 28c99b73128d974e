"""`import`: what is read of a cluster, and the project that takes it over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.cli import import_cluster
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.targets.kubernetes.jobs.runtime_objects import RuntimeObjects
from pulumi_trainer.provider.targets.kubernetes.observe.importable import Importable, read_importable
from pulumi_trainer.provider.trainer.releases import DEFAULT

QUEUES = """
kind: ResourceFlavor
metadata: {name: any}
spec: {}
---
kind: ClusterQueue
metadata: {name: nlp}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: "8"}]}]
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  flavorFungibility: {whenCanBorrow: MayStopSearch, whenCanPreempt: TryNextFlavor}
  preemption: {reclaimWithinCohort: Never, withinClusterQueue: Never, borrowWithinCohort: {policy: Never}}
  stopPolicy: None
---
kind: LocalQueue
metadata: {name: main, namespace: team}
spec: {clusterQueue: nlp, stopPolicy: None}
"""
JOBSET = """
kind: JobSet
metadata: {name: train, namespace: team, uid: u1, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: false
  network: {enableDNSHostnames: true, publishNotReadyAddresses: true}
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  replicatedJobs:
  - name: node
    groupName: default
    replicas: 1
    template:
      metadata: {}
      spec:
        completionMode: Indexed
        parallelism: 1
        completions: 1
        template:
          metadata: {labels: {kueue.x-k8s.io/podset: node}}
          spec:
            restartPolicy: Never
            nodeSelector: {zone: a, gpu: h100}
            containers: [{name: node, image: busybox, command: [sleep, "1"], resources: {}}]
status: {restarts: 0}
"""
WORKLOAD = """
kind: Workload
metadata: {name: w, namespace: team, ownerReferences: [{kind: JobSet, name: train, uid: u1, controller: true}]}
spec:
  podSets: [{name: node, template: {spec: {nodeSelector: {zone: a}}}}]
"""
RUNTIME = """
kind: ClusterTrainingRuntime
metadata: {name: mine, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        groupName: default
        replicas: 1
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: pytorch}]}}}
---
kind: TrainJob
metadata: {name: tuned, namespace: team}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: mine}
  trainer: {command: [python, train.py]}
  suspend: false
  managedBy: trainer.kubeflow.org/trainjob-controller
  runtimePatches:
  - {manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {replicatedJobs: []}}}}
"""
V1_JOB = """
kind: PyTorchJob
metadata: {name: old, namespace: team}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: pytorch, image: pytorch, command: [python, train.py]}]}}
"""


class Server:
    """A client of a cluster with these objects. refused: Plurals that may not be listed."""

    def __init__(self, *texts: str, refused: tuple[str, ...] = ()) -> None:
        self.objects = [each for text in texts for each in yaml.safe_load_all(text)]
        self.refused, self.asked = refused, list[tuple[str, str]]()

    def list(self, kind: Kind, namespace: str = "") -> tuple[list[dict[str, Any]], str]:
        self.asked.append((kind.plural, namespace))
        if kind.plural in self.refused:
            raise ApiError(Problem("", f"{kind.plural} is forbidden"), 403, {"reason": "Forbidden"})
        found = [each for each in self.objects if each["kind"] == kind.kind]
        if not found and kind.group in ("kubeflow.org", "trainer.kubeflow.org"):
            raise ApiError(Problem("", "the server could not find the requested resource"), 404, {"reason": "NotFound"})
        return [each for each in found if namespace in ("", each["metadata"].get("namespace"))], ""


def read(*texts: str, namespace: str = "", refused: tuple[str, ...] = ()) -> Importable:
    return read_importable(Server(*texts, refused=refused), namespace)  # type: ignore[arg-type]


def names(found: Importable) -> list[str]:
    return [f"{each['kind']} {each['metadata']['name']}" for each in found.objects]


def written(
    patch: pytest.MonkeyPatch, folder: Path, *texts: str, objects: tuple[str, ...] = (), everywhere: bool = True
) -> int:
    patch.setattr(import_cluster, "open_cluster", lambda _: (Server(*texts), "team"))
    return import_cluster.import_cluster(Where(everywhere=everywhere), objects, folder)


def test_all_that_belongs_to_no_stack_is_read_with_one_list_of_each_kind() -> None:
    server = Server(QUEUES, JOBSET, WORKLOAD, RUNTIME)
    found = read_importable(server, "")  # type: ignore[arg-type]
    assert names(found) == [
        "ResourceFlavor any",
        "ClusterQueue nlp",
        "LocalQueue main",
        "ClusterTrainingRuntime mine",
        "TrainJob tuned",
        "JobSet train",
    ]
    assert len(server.asked) <= 25 and not found.left and not found.unread


def test_of_a_namespace_only_what_is_in_it() -> None:
    found = read(QUEUES, JOBSET, WORKLOAD, RUNTIME, namespace="team")
    assert names(found) == ["LocalQueue main", "TrainJob tuned", "JobSet train"]
    assert [each["metadata"]["name"] for each in found.runtimes] == ["mine"]


def test_what_kueue_adds_on_admission_is_not_read() -> None:
    jobset = read(JOBSET, WORKLOAD).objects[0]
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "a"} and "labels" not in template["metadata"]
    (job,) = [each for each in read(RUNTIME).objects if each["kind"] == "TrainJob"]
    assert "runtimePatches" not in job["spec"]


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"annotations": {"pulumi-trainer.dev/made-by": "acme/gpus/prod/1a2b"}}, "the stack acme/gpus/prod"),
        ({"annotations": {"pulumi-trainer.dev/owner": "0123"}}, "another stack, whose name is not recorded"),
    ],
)
def test_objects_of_stacks_are_left_alone(metadata: dict[str, Any], owner: str) -> None:
    (job, *_) = yaml.safe_load_all(JOBSET)
    found = read(yaml.safe_dump({**job, "metadata": {**job["metadata"], **metadata}}), WORKLOAD)
    assert found.objects == [] and found.left == {"JobSet team/train": owner}


def test_what_is_being_deleted_or_made_by_a_train_job_is_not_taken_over() -> None:
    job = yaml.safe_load(JOBSET)
    owner = {"kind": "TrainJob", "name": "train", "controller": True}
    for metadata in ({"deletionTimestamp": "2026-11-29T00:00:00Z"}, {"ownerReferences": [owner]}):
        assert read(yaml.safe_dump({**job, "metadata": {**job["metadata"], **metadata}})).objects == []


def test_kinds_that_may_not_be_listed_are_named_and_the_rest_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read(QUEUES, RUNTIME, refused=("clusterqueues",))
    assert "ClusterQueue nlp" not in names(found) and "LocalQueue main" in names(found)
    assert found.unread == ["clusterqueues"]
    server = Server(QUEUES, refused=("clusterqueues",))
    monkeypatch.setattr(import_cluster, "open_cluster", lambda _: (server, "team"))
    assert import_cluster.import_cluster(Where(everywhere=True), [], tmp_path / "p") == 1
    assert "not read, as you may not list them: clusterqueues" in capsys.readouterr().err


def test_the_program_is_what_a_person_would_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert written(monkeypatch, tmp_path / "p", QUEUES, JOBSET, WORKLOAD, RUNTIME) == 0
    source = (tmp_path / "p" / "__main__.py").read_text()
    queue = source[source.index("trainer.ClusterQueue(") : source.index("main = ")]
    assert "preemption" not in queue and "stop_policy" not in queue and 'adopt="existing"' in queue
    assert 'mode="jobset"' in source  # a JobSet stays one in a cluster with Kubeflow Trainer
    assert source.count('adopt="existing"') == 6 and "managed_by" not in source and "gpu" not in source
    settings = yaml.safe_load((tmp_path / "p" / "Pulumi.yaml").read_text())
    assert settings["config"] == {"trainer:target": "kubernetes", "trainer:mode": "trainer"}
    out = capsys.readouterr().out
    assert (
        "which takes over 1 JobSet, 1 ResourceFlavor, 1 ClusterQueue, 1 LocalQueue, 1 ClusterTrainingRuntime, 1 TrainJob"
        in out
    )
    assert "it starts nothing and changes no spec" in out


def test_a_job_names_a_runtime_that_is_not_in_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert written(monkeypatch, tmp_path / "p", RUNTIME, everywhere=False) == 0
    source = (tmp_path / "p" / "__main__.py").read_text()
    assert 'runtime="mine"' in source and "ClusterTrainingRuntime" not in source


def test_a_project_that_is_there_is_never_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new program would lack what the other one has taken over, and an update would delete that."""
    assert written(monkeypatch, tmp_path / "p", QUEUES) == 0
    before = (tmp_path / "p" / "__main__.py").read_text()
    assert written(monkeypatch, tmp_path / "p", RUNTIME) == 2
    err = capsys.readouterr().err
    assert "already has Pulumi.yaml, __main__.py" in err and "--force" not in err
    assert (tmp_path / "p" / "__main__.py").read_text() == before


def test_jobs_of_v1_are_in_a_module_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = V1_JOB.replace("kind:", "apiVersion: kubeflow.org/v1\nkind:", 1)
    assert written(monkeypatch, tmp_path / "p", QUEUES, old) == 0
    assert "PyTorchJob" not in (tmp_path / "p" / "__main__.py").read_text()
    assert 'trainer.TrainJob(\n    "old"' in (tmp_path / "p" / "v1_jobs.py").read_text()
    assert "v1_jobs.py has 1 job of Training Operator v1, which run on as they are" in capsys.readouterr().out


def test_single_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert written(monkeypatch, Path("-"), QUEUES, JOBSET, WORKLOAD, objects=("clusterqueues/nlp",)) == 0
    out = capsys.readouterr().out
    assert 'trainer.ClusterQueue(\n    "nlp"' in out and "LocalQueue" not in out and 'flavor="any"' in out
    assert written(monkeypatch, tmp_path / "p", QUEUES, objects=("gpu/x",)) == 2
    assert capsys.readouterr().err == "error: gpu/x: is not in the cluster\n"
    assert written(monkeypatch, tmp_path / "p", QUEUES, objects=("gpu/x",), everywhere=False) == 2
    assert "need -A" in capsys.readouterr().err
    assert written(monkeypatch, tmp_path / "p", QUEUES, objects=("clusterqueue/npl",)) == 2
    assert "clusterqueue/npl: is not in the cluster. Hint: did you mean clusterqueue/nlp?" in (capsys.readouterr().err)


def test_a_job_that_the_program_would_change_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods whose number of a Job is not that of nodes have no counterpart in a TrainJob."""
    job = yaml.safe_load(JOBSET)
    job["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 2
    del job["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"]
    assert written(monkeypatch, tmp_path / "p", QUEUES, yaml.safe_dump(job), WORKLOAD) == 1
    assert "TrainJob" not in (tmp_path / "p" / "__main__.py").read_text()
    assert "JobSet team/train: the program would change it: " in capsys.readouterr().err


def test_an_empty_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert written(monkeypatch, tmp_path / "p") == 2
    assert "the cluster: has nothing that a program can take over" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_a_train_job_with_a_secret_in_plain_text_is_left_out_and_its_value_is_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = "hf_abcdefghijklmnopqrstuvwxyz12345678"
    runtime, job = yaml.safe_load_all(RUNTIME)
    job["spec"]["trainer"]["env"] = [{"name": "HF_TOKEN", "value": token}]
    assert written(monkeypatch, tmp_path / "p", yaml.safe_dump(runtime), yaml.safe_dump(job)) == 1
    shown = capsys.readouterr()
    assert "TrainJob team/tuned: the program would change it: a variable is a secret in plain text" in shown.err
    everything = "".join(file.read_text() for file in (tmp_path / "p").iterdir()) + shown.out + shown.err
    assert token not in everything and "TrainJob(" not in everything


def test_what_kueue_alone_suspends_is_not_suspended_by_the_program() -> None:
    _, job = yaml.safe_load_all(RUNTIME)
    queued = {**job, "metadata": {**job["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "main"}}}
    suspended = {**queued, "spec": {**job["spec"], "suspend": True}}
    assert "suspend" not in read(yaml.safe_dump(suspended)).objects[0]["spec"]


def test_settings_are_written_as_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(import_cluster, "open_cluster", lambda _: (Server(QUEUES), "team"))
    assert import_cluster.import_cluster(Where(everywhere=True, context="a #b: 1e3"), [], tmp_path / "p") == 0
    settings = yaml.safe_load((tmp_path / "p" / "Pulumi.yaml").read_text())
    assert settings["config"]["trainer:context"] == "a #b: 1e3"


def test_what_a_controller_makes_is_left_to_it() -> None:
    owner = {"kind": "RayJob", "name": "ray", "controller": True}
    job = yaml.safe_load(JOBSET)
    found = read(yaml.safe_dump({**job, "metadata": {**job["metadata"], "ownerReferences": [owner]}}))
    assert found.objects == [] and found.left == {"JobSet team/train": "RayJob ray"}


def test_the_label_that_a_program_sets_itself_is_not_imported() -> None:
    runtime, _ = yaml.safe_load_all(RUNTIME)
    runtime["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    assert [*read(yaml.safe_dump(runtime)).objects[0]["metadata"]["labels"]] == ["trainer.kubeflow.org/framework"]


def test_a_cluster_with_jobs_of_v1_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = V1_JOB.replace("kind:", "apiVersion: kubeflow.org/v1\nkind:", 1)
    assert written(monkeypatch, tmp_path / "p", old) == 2
    assert "convert its jobs of Training Operator v1: " in capsys.readouterr().err


@pytest.mark.parametrize("adopt", [True, "existing"])
def test_a_runtime_that_is_missing_is_created_or_refused(adopt: bool | str) -> None:
    runtime, _ = yaml.safe_load_all(RUNTIME)
    nothing = SimpleNamespace(get=lambda *_: None)
    objects = RuntimeObjects(nothing, lambda: nothing, lambda: DEFAULT)  # type: ignore[arg-type, return-value]
    if adopt is True:
        assert objects.check(runtime, "me", "stack", adopt=adopt) == ""
        return
    with pytest.raises(Conflict, match="ClusterTrainingRuntime mine: does not exist"):
        objects.check(runtime, "me", "stack", adopt=adopt)
