"""`convert`: programs from YAML, and the comparison of what they declare with the YAML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.args.naming import schema_at
from pulumi_trainer.args.trainers import Trainer
from pulumi_trainer.convert import conversion, program, proof
from pulumi_trainer.convert.conversion import Conversion
from pulumi_trainer.convert.evaluate import evaluate
from pulumi_trainer.convert.python_source import Call, Secret, comment_lines, literal, statement
from pulumi_trainer.convert.typed import python_names, snake_case
from pulumi_trainer.provider.cli import convert as command
from pulumi_trainer.provider.kubernetes.values.accessors import name_of

from tests.documented import blocks
from tests.golden.golden_cases import CASES, NAMES

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz12345678"


def converted(text: str) -> Conversion:
    documents = [each for each in yaml.safe_load_all(text) if each]
    return conversion.convert([(f"document {place}", each) for place, each in enumerate(documents, 1)])


def only(found: Conversion) -> conversion.Result:
    assert [str(each) for each in found.refused] == []
    assert len(found.results) == 1, found.results
    return found.results[0]


# -- layout ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        'say "x"',
        "it's",
        "a\nb",
        "tab\t",
        "\\",
        "\u202e",
        "é",
        "\x00",
        "\ud800",
        '"""',
        "{x}",
        "'\"",
        "\u2028#",
    ],
)
def test_a_literal_is_the_text_on_one_line(text: str) -> None:
    written = literal(text)
    assert eval(written) == text
    assert len(written.splitlines()) == 1 and all(each.isprintable() for each in written)


def test_a_comment_cannot_become_code() -> None:
    lines = list(comment_lines("a\nimport os; os.system('x')\r\u2028b " + "word " * 40, "    "))
    assert all(line.startswith("    #") for line in lines) and len(lines) > 2
    assert "".join(lines).splitlines() == ["".join(lines)]


def test_secrets_are_read_from_the_configuration() -> None:
    assert statement("x", Call(Trainer, {"env": {"A": Secret("a")}})) == (
        'x = trainer.Trainer(env={"A": config.require_secret("a")})\n'
    )


@pytest.mark.parametrize(
    ("api", "python"),
    [
        ("hostIPs", "host_ips"), ("podIP", "pod_ip"), ("hostIPC", "host_ipc"), ("volumeMounts", "volume_mounts"),
        ("enableDNSHostnames", "enable_dns_hostnames"), ("setHostnameAsFQDN", "set_hostname_as_fqdn"), ("name", "name"),
    ],
)  # fmt: skip
def test_names_of_fields(api: str, python: str) -> None:
    assert snake_case(api) == python


def test_names_of_users_stay() -> None:
    pod = {"nodeSelector": {"gpuModel": "a100"}, "containers": [{"volumeMounts": [{"mountPath": "/x"}]}]}
    path = "ClusterTrainingRuntime.spec.template.spec.replicatedJobs.template.spec.template.spec"
    assert python_names(schema_at(path), pod) == {
        "node_selector": {"gpuModel": "a100"}, "containers": [{"volume_mounts": [{"mount_path": "/x"}]}],
    }  # fmt: skip


# -- recorded inputs ---------------------------------------------------------------------------------------------------

DIFFERENT = {
    "f-init-empty-objects", "f-init-model-only", "f-init-trainer", "i-empty-image-command", "i-unknown-fields", "u-runtimeref",
    "u-runtimeref-kind", "y-init-both-no-job", "y-init-no-container", "y-init-no-volumemount", "y-limit-dataset-env-129",
    "y-many-errors", "y-many-webhook-errors", "y-name-hyphen", "y-name-upper", "y-no-runtimeref", "y-runtime-not-found-cluster",
    "y-runtime-not-found-namespaced", "y-runtimeref-empty-name", "y-runtimeref-group", "y-runtimeref-group-empty",
    "z-rt-empty-spec", "z-rt-no-spec", "z-rt-policy-only",
}  # fmt: skip
"""Recorded inputs that no program can declare: without a runtime, or with values that the components reject."""


def recorded(name: str) -> Conversion:
    documents = [each for each in yaml.safe_load_all((CASES / name / "input.yaml").read_text()) if each]
    return conversion.convert([(name, each) for each in documents if program.is_convertible(each)])


def test_recorded_inputs_are_converted(record_property: Any) -> None:
    different = {}
    for name in NAMES:
        found = recorded(name)
        differences = [each for result in found.results for each in result.differences]
        if found.refused or differences:
            different[name] = [*map(str, found.refused), *differences]
    record_property("equal", len(NAMES) - len(different))
    print(f"{len(NAMES) - len(different)} of {len(NAMES)} recorded inputs are equal")
    assert different.keys() == DIFFERENT, different.keys() ^ DIFFERENT


def test_what_is_explained_in_recorded_inputs() -> None:
    notes = {note for name in NAMES[::6] for result in recorded(name).results for note in result.notes}
    known = (proof.TRAINER_ADDED, proof.LABEL_ADDED, "pulumi")
    known += ("is not in the program: TrainJob", "the API server refuses it, in the file too: ")
    assert not [each for each in notes if not each.startswith(known) and "the later document counts" not in each]


# -- proof -------------------------------------------------------------------------------------------------------------

RUNTIME_AND_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch, namespace: a, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, image: "torch:1"}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job, namespace: a}
spec:
  runtimeRef: {kind: TrainingRuntime, name: torch}
  trainer: {numNodes: 2, command: [torchrun, train.py]}
"""


@pytest.mark.parametrize(
    ("written", "planted", "difference"),
    [
        ("num_nodes=2", "num_nodes=3", "spec.trainer.numNodes: 2 became 3"),
        ('"torch:1"', '"torch:2"', "'torch:1' became 'torch:2'"),
        ('name="job"', 'name="other"', "the program does not declare this object"),
        ("num_nodes=2", "nodes=2", "the component rejects it: "),
    ],
)
def test_a_planted_difference_is_found(
    monkeypatch: pytest.MonkeyPatch, written: str, planted: str, difference: str
) -> None:
    write = program.write_source

    def plant(*args: Any) -> str:
        source = write(*args)
        assert written in source
        return source.replace(written, planted)

    assert [result.differences for result in converted(RUNTIME_AND_JOB).results] == [[], []]
    monkeypatch.setattr(conversion, "write_source", plant)
    found = [each for result in converted(RUNTIME_AND_JOB).results for each in result.differences]
    assert found and difference in found[0]


def test_a_planted_difference_of_a_v1_job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = program.write_source
    monkeypatch.setattr(conversion, "write_source", lambda *args: write(*args).replace('"train.py"', '"other.py"'))
    found = [each for result in converted(PYTORCH).results for each in result.differences]
    assert any("command" in each for each in found)


def test_a_runtime_of_several_jobs_is_written_once() -> None:
    second = RUNTIME_AND_JOB.partition("---")[2].replace("name: job", "name: 2-job")
    found = converted(f"{RUNTIME_AND_JOB}---{second}")
    assert found.source.count("trainer.TrainingRuntime(") == 1 and found.source.count("runtime=torch,") == 2
    assert [result.differences for result in found.results] == [[], [], []]


def test_equal_names_in_two_namespaces_and_names_that_are_no_identifiers() -> None:
    other = RUNTIME_AND_JOB.replace("namespace: a", "namespace: class")
    found = converted(f"{RUNTIME_AND_JOB}---{other}")
    assert [result.differences for result in found.results] == [[]] * 4
    for text in ('"class-torch"', '"a-torch"', 'class_namespace = trainer.Kubernetes(namespace="class")'):
        assert text in found.source, found.source


def test_overrides_of_trainer_2_1_become_patches() -> None:
    job = yaml.safe_load(RUNTIME_AND_JOB.partition("---")[2])
    pod = {"nodeSelector": {"gpu": "a100"}, "containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}
    job["spec"]["podTemplateOverrides"] = [{"targetJobs": [{"name": "node"}], "spec": pod}]
    job["spec"]["labels"] = {"team": "a"}
    runtime = yaml.safe_load(RUNTIME_AND_JOB.partition("---")[0])
    runtime["spec"]["mlPolicy"]["torch"] = {"numProcPerNode": "auto"}
    found = converted(yaml.safe_dump_all([runtime, job]))
    assert 'labels={"team": "a"}' in found.source and "trainer.TorchPolicy(num_nodes=1)" in found.source
    assert 'node_selector={"gpu": "a100"}' in found.source and 'env={"A": "1"}' in found.source
    assert [result.differences for result in found.results] == [[], []]


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_secret_in_env_becomes_a_setting() -> None:
    text = RUNTIME_AND_JOB.replace("numNodes: 2,", f"env: [{{name: HF_TOKEN, value: {TOKEN}}}],")
    found = converted(text)
    assert 'env={"HF_TOKEN": config.require_secret("job-hf-token")}' in found.source
    assert "pulumi config set --secret job-hf-token" in str(found.results)
    assert TOKEN not in str(found) and not found.results[1].differences


@pytest.mark.parametrize("words", ["[train, --token, {}]", "[train, --api-key={}]"])
def test_a_secret_elsewhere_is_not_converted(words: str) -> None:
    found = converted(RUNTIME_AND_JOB.replace("[torchrun, train.py]", words.format(TOKEN)))
    assert "holds a secret in plain text" in str(found.refused[0]) and TOKEN not in str(found)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob", "JobSet"])
def test_no_secret_of_other_jobs_is_shown(kind: str) -> None:
    text = {"PyTorchJob": PYTORCH, "TFJob": TENSORFLOW, "JobSet": JOBSET}[kind]
    found = converted(text.replace("# env", f"env: [{{name: WANDB_API_KEY, value: {TOKEN}}}]"))
    assert TOKEN not in str(found)
    assert (not found.refused) == (kind == "PyTorchJob")


# -- jobs of Training Operator v1 --------------------------------------------------------------------------------------

PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: nlp}}
spec:
  pytorchReplicaSpecs:
    Master: &role
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata: {annotations: {sidecar.istio.io/inject: "false"}}
        spec:
          nodeSelector: {gpu: a100}
          tolerations: [{key: gpu, operator: Exists}]
          containers:
            - name: pytorch
              image: mnist:1
              command: [python3, train.py, --epochs=1]
              resources: {limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}
              volumeMounts: [{name: code, mountPath: /code}]
              # env
          volumes: [{name: code, configMap: {name: code}}]
    Worker: {<<: *role, replicas: 2}
"""
TENSORFLOW = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dist, namespace: team-a}
spec:
  runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 60, backoffLimit: 3, activeDeadlineSeconds: 3600, suspend: true}
  tfReplicaSpecs:
    PS:
      replicas: 2
      restartPolicy: ExitCode
      template:
        spec:
          containers:
            - name: tensorflow
              image: tf:1
              # env
    Worker:
      replicas: 3
      template: {spec: {containers: [{name: tensorflow, image: "tf:1", command: [python, train.py]}]}}
"""
MPI = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 2
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: mpi-launcher, image: pi, command: [mpirun, -n, "4", pi]}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: mpi-worker, image: pi, resources: {limits: {cpu: 1}}}]}}
"""
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: js, namespace: team-b, labels: {team: b}}
spec:
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 2
          completions: 2
          backoffLimit: 0
          template:
            spec:
              containers:
                - name: main
                  image: bash
                  command: [bash, -c, "echo hi\\nsleep 1"]
                  # env
"""


def job_of(kind: str, field: str, container: str, **roles: int) -> str:
    """Return a job whose roles have equal Pods."""
    pod: dict[str, Any] = {"containers": [{"name": container, "image": "i:1", "command": ["python", "train.py"]}]}
    pod["containers"][0] |= {
        "ports": [{"name": "x", "containerPort": 1}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    specs = {r: {"replicas": n, "restartPolicy": "OnFailure", "template": {"spec": pod}} for r, n in roles.items()}
    about = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "job", "namespace": "a"}}
    return yaml.safe_dump({**about, "spec": {field: specs}})


V1 = {
    "PyTorchJob": PYTORCH,
    "TFJob": TENSORFLOW,
    "MPIJob": MPI,
    "MPIJob of v1": MPI.replace("v2beta1", "v1"),
    "XGBoostJob": job_of("XGBoostJob", "xgbReplicaSpecs", "xgboost", Master=1, Worker=2),
    "JAXJob": job_of("JAXJob", "jaxReplicaSpecs", "jax", Worker=2),
    "PaddleJob": job_of("PaddleJob", "paddleReplicaSpecs", "paddle", Worker=2),
    "PaddleJob with servers": job_of("PaddleJob", "paddleReplicaSpecs", "paddle", Master=1, Worker=2),
    "TFJob with a chief": job_of("TFJob", "tfReplicaSpecs", "tensorflow", Chief=1, Worker=2, Evaluator=1),
    "TFJob of one": job_of("TFJob", "tfReplicaSpecs", "tensorflow", Worker=1),
    "JobSet": JOBSET,
}


@pytest.mark.parametrize("name", V1)
def test_pods_of_other_jobs_are_the_same_but_for_what_is_explained(name: str) -> None:
    result = only(converted(V1[name]))
    assert result.differences == []
    assert bool(result.notes) == (name != "JobSet"), result.notes


def test_a_pytorch_job_without_more_uses_the_runtime_of_the_catalogue() -> None:
    job = yaml.safe_load(job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Master=1, Worker=3))
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0].pop("ports", None)
    found = converted(yaml.safe_dump(job))
    assert 'runtime="torch-distributed"' in found.source and "TrainingRuntime" not in found.source
    assert '"MASTER_ADDR", "value": "job-node-0-0.job"' in found.source
    assert "trainer:mode" not in found.project("x", {})


def test_a_pytorch_job_keeps_its_pods() -> None:
    source = converted(PYTORCH).source
    for text in (
        'node_selector": {"gpu": "a100"}', '"config_map": {"name": "code"}', 'queue="nlp"', "num_nodes=3",
        'resources_per_node={"gpu": 1}', 'command=["python3", "train.py", "--epochs=1"]',
        'pod_annotations={"sidecar.istio.io/inject": "false"}',
    ):  # fmt: skip
        assert text in source, source


def test_the_example_of_the_docs() -> None:
    given, written = blocks("docs/compare/migrate.md", __file__)
    found = converted(given.text)
    assert found.source == written.text and only(found).differences == []


def test_torchrun_gets_no_variables_that_it_sets_itself() -> None:
    text = PYTORCH.replace("python3, train.py", "torchrun, train.py")
    assert "MASTER_ADDR" not in converted(text).source
    assert "MASTER_ADDR is set by torchrun for each process" in only(converted(text)).notes
    assert "MASTER_ADDR" in converted(text.replace("--epochs=1", "--m=$(MASTER_ADDR)")).source


def test_what_has_no_counterpart_is_a_comment_at_its_place() -> None:
    job = yaml.safe_load(job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker=2))
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 2}
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = ["--host=job-worker-1"]
    found = converted(yaml.safe_dump(job))
    assert "    # elasticPolicy (1 to 2 nodes) of the PyTorchJob is left out" in found.source
    assert 'args=["--host=job-node-0-1.job"]' in found.source and only(found).differences == []
    assert "host names of Pods in commands, arguments and variables became those of the new Pods" in only(found).notes


def test_different_pods_of_master_and_worker_are_a_difference() -> None:
    job = yaml.safe_load(job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Master=1, Worker=2))
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = {
        "spec": {"containers": [{"name": "pytorch", "image": "other"}]}
    }
    assert "Master and Worker have different Pods" in only(converted(yaml.safe_dump(job))).differences[0]


def test_rules_of_the_run_policy_are_kept() -> None:
    found = converted(TENSORFLOW)
    for text in (
        "ttl_seconds_after_finished=60", "active_deadline_seconds=3600", "suspend=True", "backoff_limit=3", "backoff_limit=0",
        "values=list(range(1, 128))", 'target_replicated_jobs=["node"]',
    ):  # fmt: skip
        assert text in found.source, found.source


def test_jobs_with_equal_runtimes_share_one() -> None:
    found = converted(f"{PYTORCH}---{PYTORCH.replace('name: mnist', 'name: other')}")
    assert found.source.count("trainer.TrainingRuntime(") == 1
    assert [result.differences for result in found.results] == [[], []]


def test_names_that_jobs_and_runtimes_of_the_files_have() -> None:
    own = RUNTIME_AND_JOB.partition("---")[0].replace("{name: torch, namespace: a", "{name: mnist, namespace: team-a")
    found = converted(f"{own}---{PYTORCH}")
    assert not found.refused and [result.differences for result in found.results] == [[], []]
    assert '"mnist-converted"' in found.source
    found = converted(f"{PYTORCH}---{PYTORCH.replace('epochs=1', 'epochs=2')}")
    assert "another job of the files has this name" in str(found.refused[0]) and len(found.results) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("- name: pytorch", "- name: main"), "must have at least one container with name pytorch"),
        (("image: mnist:1", ""), "image: must be required"),
        (("Master: &role", "Chief: &role"), "unknown role (expected Master, Worker)"),
        (("name: mnist,", "name: 1-Mnist,"), "DNS-1035"),
        (("replicas: 1", "replicas: 2"), "must be 1"),
        (("replicas: 2", "replicas: 99999999999"), "must be 0 to 100000"),
    ],
)
def test_what_its_own_webhook_refuses_is_not_converted(change: tuple[str, str], why: str) -> None:
    found = converted(PYTORCH.replace(*change))
    assert not found.results and any(why in str(each) for each in found.refused), found.refused


# -- queues ------------------------------------------------------------------------------------------------------------

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}, topologyName: racks, tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: more}
spec:
  provisioningClassName: queued.gke.io
  managedResources: [nvidia.com/gpu]
  podSetUpdates: {nodeSelector: [{key: pool, valueFromProvisioningClassDetail: Pool}]}
  retryStrategy: {backoffLimitCount: 2}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: MultiKueueCluster
metadata: {name: east}
spec: {kubeConfig: {location: east, locationType: Secret}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: clusters}
spec: {clusters: [east]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: more}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: more}
---
apiVersion: kueue.x-k8s.io/v1alpha1
kind: Cohort
metadata: {name: team}
spec: {parent: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-a, labels: {team: a}}
spec:
  cohort: team
  namespaceSelector: {matchLabels: {team: a}}
  queueingStrategy: StrictFIFO
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  preemption:
    withinClusterQueue: LowerPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  admissionChecks: [more]
  fairSharing: {weight: "2"}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu, cpu]
      flavors:
        - name: a100
          resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4}, {name: cpu, nominalQuota: "96"}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team-a, namespace: team-a}
spec: {clusterQueue: team-a, stopPolicy: Hold}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
description: first
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: team-a, kueue.x-k8s.io/priority-class: high}}
spec: {runtimeRef: {name: torch-distributed}, trainer: {numNodes: 2}}
"""
GPU_QUEUES = """
import pulumi_trainer as trainer
trainer.GpuQueues(
    "gpu", teams={"nlp": 16, "vision": trainer.Team(gpus=8, namespace="team-vision", borrowing=4)}, gpus={"a100": {"gpu": "a100"}}
)
"""


def test_all_kinds_of_kueue() -> None:
    found = converted(QUEUES)
    assert not found.refused and [result.differences for result in found.results] == [[]] * 12, found.results
    for text in (
        "topology=racks", "cohort=team", "admission_checks=[more", "flavor=a100", "cluster_queue=team_a", "parent=all",
        "queue=team_a", "priority=high", 'when_can_preempt="MayStopSearch"', 'namespace_selector={"match_labels": {"team": "a"}}',
    ):  # fmt: skip
        assert text in found.source, found.source


def test_queues_that_are_gpu_queues_become_one_component() -> None:
    documents = [each.document for each in evaluate(GPU_QUEUES)]
    found = converted(yaml.safe_dump_all(documents))
    assert found.source.count("trainer.GpuQueues(") == 1 and "trainer.ClusterQueue(" not in found.source
    assert [result.differences for result in found.results] == [[]] * 9
    other = next(each for each in documents if name_of(each) == "gpu-nlp")
    other["spec"]["queueingStrategy"] = "StrictFIFO"
    found = converted(yaml.safe_dump_all(documents))
    assert "trainer.GpuQueues(" not in found.source and found.source.count("trainer.ClusterQueue(") == 2
    assert [result.differences for result in found.results] == [[]] * 9


# -- the program -------------------------------------------------------------------------------------------------------


def test_results_are_formatted_and_typed(tmp_path: Path) -> None:
    texts = {**V1, "queues": QUEUES, "runtime": RUNTIME_AND_JOB, "code": CODE}
    texts["gpu"] = yaml.safe_dump_all(each.document for each in evaluate(GPU_QUEUES))
    for name in ("c-mpi-all", "g-patch-env", "d-qlora", *NAMES[::25]):
        if name in NAMES:
            texts[name] = (CASES / name / "input.yaml").read_text()
    files = []
    for place, text in enumerate(texts.values()):
        documents = [each for each in yaml.safe_load_all(text) if each and each["apiVersion"] != "oracle/v1"]
        file = tmp_path / f"program_{place}.py"
        file.write_text(conversion.convert([("x", each) for each in documents]).source)
        files.append(str(file))
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", *files], capture_output=True, text=True
    )
    assert formatted.returncode == 0, formatted.stdout
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.yaml"
    file.write_text(RUNTIME_AND_JOB)
    return file


def test_the_command_writes_a_project(jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.convert([str(jobs)], tmp_path / "out", force=False) == 0
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "Pulumi.yaml",
        "__main__.py",
        "requirements.txt",
    ]
    project = yaml.safe_load((tmp_path / "out" / "Pulumi.yaml").read_text())
    assert project["config"] == {"trainer:target": "kubernetes", "trainer:mode": "trainer"}
    assert "TrainJob a/job: the same\n" in capsys.readouterr().out


def test_no_file_is_overwritten_and_no_link_followed(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, mine = tmp_path / "out", tmp_path / "mine.py"
    out.mkdir()
    mine.write_text("mine")
    (out / "__main__.py").symlink_to(mine)
    assert command.convert([str(jobs)], out, force=False) == 2
    assert "already has __main__.py; no file was written" in capsys.readouterr().err
    assert [*out.iterdir()] == [out / "__main__.py"]
    assert command.convert([str(jobs)], out, force=True) == 0
    assert mine.read_text() == "mine" and not (out / "__main__.py").is_symlink()


def test_other_kinds_are_named_and_the_rest_is_converted(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.write_text(f"{RUNTIME_AND_JOB}---\napiVersion: v1\nkind: Service\nmetadata: {{name: code}}\n")
    assert command.convert([str(jobs)], tmp_path / "out", force=False) == 1
    out, err = capsys.readouterr()
    assert "TrainJob a/job: the same" in out and "Service code: has no component in pulumi-trainer" in err


CODE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: train-code, namespace: a}
data:
  train.py: |
    print("hello")
  lr: "0.1"
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: reads, namespace: a}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {env: [{name: LR, valueFrom: {configMapKeyRef: {name: train-code, key: lr}}}]}
"""


def test_code_in_a_config_map_becomes_files(jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.write_text(CODE)
    out = tmp_path / "out"
    assert command.convert([str(jobs)], out, force=False) == 0, capsys.readouterr()
    assert "ConfigMap a/train-code: the same\n" in capsys.readouterr().out
    assert (out / "files/train-code/train.py").read_text() == 'print("hello")\n'
    source = (out / "__main__.py").read_text()
    assert '"train.py": (here / "files/train-code/train.py").read_bytes().decode(),' in source
    assert "opts=pulumi.ResourceOptions(depends_on=[train_code])," in source, "else the job may start before it"
    (made,) = (
        each.document for each in evaluate(source, {"files/train-code/train.py": "x", "files/train-code/lr": "1"})[1:]
    )
    assert made["data"] == {"train.py": "x", "lr": "1"}, "the files count from now on"
    again = converted(CODE.replace("namespace: a", "namespace: b") + "---" + CODE)
    assert sorted(again.files) == [f"files/{each}-train-code/{key}" for each in "ab" for key in ("lr", "train.py")]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("train.py:", "../train.py:"), "data[../train.py]: is not the name of a file"),
        (("  train.py: |", "  ..: |"), "data[..]: is not the name of a file"),
        (('lr: "0.1"', "lr: 0.1"), "data[lr]: is not the name of a file with a text"),
        (("\ndata:", "\nbinaryData: {a: AA==}\ndata:"), "binaryData: has no file of text"),
        (('"0.1"', TOKEN), "holds a secret in plain text at data.lr"),
    ],
)
def test_config_maps_that_are_not_files(change: tuple[str, str], why: str) -> None:
    found = converted(CODE.replace(*change))
    assert [why in str(each) for each in found.refused] == [True], found.refused
    assert found.files == {} and "depends_on" not in found.source and TOKEN not in str(found.refused)


def test_files_are_not_written_through_a_link(jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.write_text(CODE)
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "files").symlink_to(elsewhere)
    assert command.convert([str(jobs)], out, force=True) == 2
    assert "is a link, or in one" in capsys.readouterr().err and not [*elsewhere.iterdir()]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nimage: {{ .Values.image }}\n", "jobs.yaml, line 2: is a template of Helm"),
        ("{{- if .Values.x }}\n", "helm template CHART | pulumi-trainer convert -"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", "found nothing that can be converted"),
        ("apiVersion: [\n", "not valid YAML"),
    ],
)
def test_files_that_cannot_be_used(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    jobs.write_text(text)
    assert command.convert([str(jobs)], tmp_path / "out", force=False) == 2
    assert why in capsys.readouterr().err and not (tmp_path / "out").exists()


HOSTILE = '"""\nimport os\nos.system("touch pwned")\n# ${HOME} {x} \\'


def test_text_of_documents_is_never_code(
    jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    documents = [*yaml.safe_load_all(RUNTIME_AND_JOB), yaml.safe_load(PYTORCH)]
    for document in documents:
        document["metadata"]["annotations"] = {HOSTILE: HOSTILE}
    documents[1]["spec"]["trainer"]["args"] = [HOSTILE]
    documents[2]["spec"]["elasticPolicy"] = {"minReplicas": HOSTILE}
    jobs.write_text(yaml.safe_dump_all(documents))
    command.convert([str(jobs)], tmp_path / "out", force=False)
    assert not list(tmp_path.rglob("pwned"))
    assert not [
        line for line in capsys.readouterr().out.splitlines() if line.strip().startswith(("import os", "os.system"))
    ]
    compile((tmp_path / "out" / "__main__.py").read_text(), "__main__.py", "exec")


def test_documents_of_wrong_types_are_refused() -> None:
    for kind in ("TrainJob", "TrainingRuntime"):
        for spec in (
            None,
            [],
            "x",
            {"runtimeRef": "x"},
            {"template": [1]},
            {"trainer": [1], "runtimeRef": {"name": "x"}},
        ):
            document: dict[str, Any] = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "spec": spec}
            found = conversion.convert([("x", {**document, "metadata": {"name": "x"}})])
            assert found.refused or found.results[0].differences or kind == "TrainingRuntime"
    port = PYTORCH.replace("image: mnist:1", "image: mnist:1\n              ports: [{containerPort: .inf}]")
    assert converted(port).results[0].differences
    queue = {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "x"}}
    for field in ("admissionChecksStrategy", "resourceGroups"):
        wrong: dict[str, Any] = {**queue, "spec": {field: {"admissionChecks": [{"name": ["x"], "onFlavors": 1}]}}}
        found = conversion.convert([("x", wrong)])
        assert found.refused or found.results[0].differences
    for kind in ("PyTorchJob", "MPIJob", "TFJob"):
        for spec in (None, [], {"pytorchReplicaSpecs": 1}, {"pytorchReplicaSpecs": {"Worker": []}}):
            document = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
            assert conversion.convert([("x", document)]).refused


def test_the_example_of_a_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten mixed jobs and five queues: every difference has a reason."""
    files = [str(CASES.parents[2] / "examples" / "migration" / each) for each in ("jobs.yaml", "queues.yaml")]
    code = command.convert(files, tmp_path / "out", force=False)
    out = capsys.readouterr().out
    assert code == 0, out
    source = (tmp_path / "out" / "__main__.py").read_text()
    counts = [source.count(f"trainer.{kind}(") for kind in ("TrainJob", "ClusterQueue", "LocalQueue")]
    assert counts == [10, 5, 5]
    assert "elasticPolicy (1 to 4 nodes, maxRestarts, rdzvBackend) is left out" in out and "# elasticPolicy" in source
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(tmp_path / "out" / "__main__.py")])
    assert checked.returncode == 0


# -- what somebody with fresh eyes has found ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ConfigMap", "TrainJob", "PyTorchJob"])
@pytest.mark.parametrize("place", [{"name": "../../evil"}, {"name": "a", "namespace": "../evil"}])
def test_names_that_are_no_names_are_refused(kind: str, place: dict[str, str]) -> None:
    """Files get the names of ConfigMaps."""
    texts = {"ConfigMap": CODE.partition("---")[0], "TrainJob": CODE.partition("---")[2]}
    document = yaml.safe_load(texts.get(kind) or job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker=1))
    document["metadata"] = {**document["metadata"], **place}
    found = converted(yaml.safe_dump(document))
    assert found.files == {} and found.results == [] and len(found.refused) == 1
    assert "metadata.name" in str(found.refused[0])


def pytorch(command: list[str], limits: dict[str, int] | None = None, **spec: Any) -> conversion.Result:
    job = yaml.safe_load(job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker=2))
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container |= {"command": command, "resources": {"limits": limits or {}}}
    job["spec"] |= spec
    return only(converted(yaml.safe_dump(job)))


def test_how_many_processes_torchrun_starts() -> None:
    def about(found: conversion.Result) -> tuple[list[str], list[str]]:
        notes = [each for each in found.notes if "nprocPerNode" in each]
        return notes, [each for each in found.differences if "nprocPerNode" in each]

    torchrun, gpus = ["torchrun", "t.py"], {"nvidia.com/gpu": 8, "cpu": 16}
    assert about(pytorch(torchrun, gpus)) == about(pytorch(torchrun, gpus, nprocPerNode="gpu")) == ([], [])
    assert about(pytorch(torchrun, gpus, nprocPerNode="4")) == about(pytorch(["python", "t.py"])) == ([], [])
    assert about(pytorch(["torchrun", "--nproc_per_node=2", "t.py"], nprocPerNode="cpu")) == ([], [])
    (note,), rest = about(pytorch(torchrun, {"cpu": 16}))
    assert note.endswith("a process for each CPU of the machine, with Trainer 16") and rest == []
    rest, (difference,) = about(pytorch(torchrun, gpus, nprocPerNode="cpu"))
    assert difference.endswith("a process for each CPU of the machine, with Trainer one for each GPU") and rest == []


def test_fields_that_nothing_reads_are_differences() -> None:
    found = pytorch(["torchrun", "t.py"], bar=2, runPolicy={"managedBy": "example.com/other", "foo": 1})
    assert "spec.bar is not read" in found.differences and "spec.runPolicy.foo is not read" in found.differences
    assert any("managedBy example.com/other" in each for each in found.differences)


def test_the_main_container_of_an_mpi_job() -> None:
    job = yaml.safe_load(V1["MPIJob"])
    for role in job["spec"]["mpiReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        container["name"] = "trains"
        role["template"]["spec"]["containers"] = [{"name": "side", "image": "s:1"}, container]
    job["apiVersion"], job["spec"]["mainContainer"] = "kubeflow.org/v1", "trains"
    runtime = evaluate(converted(yaml.safe_dump(job)).source)[0].document
    for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        containers = replicated["template"]["spec"]["template"]["spec"]["containers"]
        images = {each["name"]: each["image"] for each in containers}
        assert images["side"] == "s:1" != images["node"]


def test_success_policy_of_a_tf_job() -> None:
    job = yaml.safe_load(job_of("TFJob", "tfReplicaSpecs", "tensorflow", Worker=3))
    note = "the job succeeds when all workers have, not when worker 0 has"
    assert note in only(converted(yaml.safe_dump(job))).notes
    job["spec"]["successPolicy"] = "AllWorkers"
    assert note not in only(converted(yaml.safe_dump(job))).notes
    job["spec"]["enableDynamicWorker"] = True
    assert "enableDynamicWorker is left out: TF_CONFIG names all Pods" in only(converted(yaml.safe_dump(job))).notes


def test_an_override_replaces_the_variable_of_the_trainer() -> None:
    text = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: dup}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {env: [{name: A, value: "1"}], numProcPerNode: auto}
  podTemplateOverrides:
  - {targetJobs: [{name: node}], spec: {containers: [{name: node, env: [{name: A, value: "2"}]}]}}
"""
    found = converted(text)
    assert 'env={"A": "2"}' in found.source and only(found).differences == []
    assert any("numProcPerNode auto" in each for each in only(found).notes)


def test_what_the_api_server_refuses_is_said() -> None:
    text = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: dup}
spec: {runtimeRef: {name: torch-distributed}, trainer: {env: [{name: A, value: "1"}, {name: A, value: "2"}]}}
"""
    found = only(converted(text))
    assert [
        each for each in found.notes if "the API server refuses it, in the file too: spec.trainer.env[1]: Dup" in each
    ]
    assert found.differences == []


def test_line_ends_of_code_stay_and_roles_without_pods_are_left_out() -> None:
    crlf = CODE.partition("---")[0].replace('lr: "0.1"', 'lr: "a\\r\\nb"')
    assert only(converted(crlf)).differences == []
    job = job_of("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Master=1, Worker=0)
    assert only(converted(job)).differences == []
    (refused,) = converted(job.replace("name: job", "generateName: job-")).refused
    assert "generateName has no counterpart" in str(refused)
