"""What earlier versions had: removed fields of Trainer, jobs of Training Operator v1, older versions of Kueue's API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents_support import runtime, train_job
from pulumi_trainer.plan.review import refusals
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.admission.training_operator import GUIDE, KINDS
from pulumi_trainer.provider.trainer.releases import DEFAULT

Document = dict[str, Any]
POOL = {"nodeSelector": {"pool": "a"}}
MOUNTS = [{"name": "v", "mountPath": "/v"}]
OVERRIDE = {
    "targetJobs": [{"name": "node"}],
    "metadata": {"labels": {"team": "a"}},
    "spec": {
        "nodeSelector": {"pool": "h100"},
        "containers": [{"name": "node", "env": [{"name": "A", "value": "canary"}], "volumeMounts": MOUNTS}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command on documents in one file, and return its exit code, stdout and stderr."""

    def run(command: str, mode: str, *given: Document, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        file = tmp_path / "jobs.yaml"
        file.write_text(yaml.safe_dump_all(given, sort_keys=False))
        code = cli.run([command, "--mode", mode, *options, str(file)])
        return code, *capsys.readouterr()

    return run


def patches_of(hint: str) -> list[Document]:
    """The patches that a hint writes out."""
    found, _ = json.JSONDecoder().raw_decode(hint.partition("write runtimePatches: ")[2])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_overrides_of_pod_templates_are_written_out_as_patches(mode: str, run: Any) -> None:
    given = runtime(), train_job(podTemplateOverrides=[OVERRIDE])
    code, out, _ = run("validate", mode, *given)
    line = yaml.safe_dump_all(given, sort_keys=False).partition("podTemplateOverrides")[0].count("\n") + 1
    assert code == 1 and f"spec.podTemplateOverrides (line {line}): unknown field: removed in Trainer 2.2" in out
    assert "give the env of node in spec.trainer.env" in out and "canary" not in out
    assert run("render", mode, runtime(), train_job(podTemplateOverrides=[OVERRIDE]))[:2] == (1, "")
    code, out, _ = run("render", mode, runtime(), train_job(runtimePatches=patches_of(out)))
    (jobset,) = yaml.safe_load_all(out)
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert code == 0 and template["metadata"]["labels"] == {"team": "a"}
    assert template["spec"]["nodeSelector"] == {"pool": "h100"} and template["spec"]["volumes"][0]["name"] == "v"
    assert template["spec"]["containers"][0]["volumeMounts"] == MOUNTS


def test_each_override_becomes_a_patch_of_its_own_manager(run: Any) -> None:
    """Overrides of one job: later ones win, as later patches do."""
    first, second = ({**OVERRIDE, "spec": {"nodeSelector": {"pool": name}}} for name in ("a", "b"))
    _, out, _ = run("validate", "jobset", runtime(), train_job(podTemplateOverrides=[first, second]))
    code, out, _ = run("render", "jobset", runtime(), train_job(runtimePatches=patches_of(out)))
    assert code == 0 and "pool: b" in out and "pool: a" not in out


def test_values_of_other_containers_are_not_shown(run: Any) -> None:
    env = [{"name": "TOKEN", "value": "canary"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]
    side = {"name": "side", "env": env}
    given = {"targetJobs": [{"name": "node"}], "spec": {"containers": [side]}}
    _, out, _ = run("validate", "jobset", runtime(), train_job(podTemplateOverrides=[given]))
    assert "canary" not in out and '{"name": "TOKEN", "value": "..."}' in out and "valueFrom" in out


@pytest.mark.parametrize(
    ("spec", "version", "patch"),
    [
        (
            {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"pool": "a"}}]}, "2.1",
            {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": POOL}}}}]}},
        ),
        ({"labels": {"team": "a"}}, "2.2", {"metadata": {"labels": {"team": "a"}}}),
        ({"annotations": {"team": "a"}}, "2.2", {"metadata": {"annotations": {"team": "a"}}}),
    ],
)  # fmt: skip
def test_other_fields_of_train_jobs(spec: Document, version: str, patch: Document, run: Any) -> None:
    _, out, _ = run("validate", "trainer", runtime(), train_job(**spec))
    assert f"removed in Trainer {version}" in out
    (written,) = patches_of(out)
    assert written == {"manager": "example.com/team", "trainingRuntimeSpec": {"template": patch}}
    assert run("validate", "jobset", runtime(), train_job(runtimePatches=[written]))[0] == 0


@pytest.mark.parametrize(
    ("torch", "hint"),
    [
        ({"numProcPerNode": "auto"}, "and numProcPerNode in spec.trainer of the TrainJob"),
        ({"numProcPerNode": 4}, "and numProcPerNode: 4 in spec.trainer of the TrainJob"),
        ({"elasticPolicy": {"minNodes": 1, "maxNodes": 4, "maxRestarts": 3}}, "give numNodes, and failurePolicy.maxRestarts in"),
    ],
)  # fmt: skip
def test_fields_of_runtimes(torch: Document, hint: str, run: Any) -> None:
    given = runtime(mlPolicy={"numNodes": 1, "torch": torch})
    for mode in ("jobset", "trainer"):
        code, out, _ = run("validate", mode, given)
        assert code == 1 and "unknown field: removed in Trainer 2.2. Hint: write torch: {}, " in out and hint in out
    [problem] = refusals(given, DEFAULT)
    assert hint in problem.hint


def test_a_field_that_no_version_had_is_dropped_as_a_server_does(run: Any) -> None:
    code, out, _ = run("validate", "trainer", runtime(), train_job(podTemplate={}))
    assert code == 0 and "note: spec.podTemplate: unknown field: the field is dropped" in out


def test_the_argument_of_a_program() -> None:
    given = TrainJobArgs("job", runtime="torch-distributed", pod_template_overrides=[])  # type: ignore[call-arg]
    assert [str(p) for p in given.misnamed] == [
        "pod_template_overrides: unknown field. Hint: use runtime_patches=[RuntimePatch(...)]"
    ]


def v1(kind: str, version: str = "v1", labels: Document | None = None, **spec: Any) -> Document:
    metadata = {"name": "old", "namespace": "team", "labels": labels or {}}
    return {"apiVersion": f"kubeflow.org/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def roles(**replicas: int) -> Document:
    return {role: {"replicas": number, "template": {}} for role, number in replicas.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_jobs_of_training_operator(kind: str, mode: str, run: Any) -> None:
    """Alone, and beside a TrainJob, where they would be taken for one of the documents that nobody judges."""
    for others in ([], [runtime(), train_job()]):
        for command in ("validate", "render"):
            code, out, err = run(command, mode, *others, v1(kind))
            assert code == 1, (out, err)
            assert f"{kind} team/old is refused by Kubeflow Trainer, which does not know this kind" in out + err
            assert (
                f"{kind} is a kind of Training Operator v1, which Kubeflow Trainer replaces. Hint: write a TrainJob"
                in out + err
            )
            assert GUIDE in out + err and "apiVersion: jobset" not in out


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        (
            v1(
                "PyTorchJob", labels={QUEUE: "team-queue"}, nprocPerNode="gpu", pytorchReplicaSpecs=roles(Master=1, Worker=3),
                runPolicy={"backoffLimit": 5, "ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 90, "schedulingPolicy": {}},
                elasticPolicy={},
            ),
            [
                "runtimeRef.name: torch-distributed", "trainer.numNodes: 4", "no numProcPerNode instead of nprocPerNode: gpu",
                f"the label {QUEUE}: team-queue", "failurePolicy.maxRestarts: 5 in", "spec.activeDeadlineSeconds: 90",
                "ttlSecondsAfterFinished: 60 in", "podGroupPolicy in", "a fixed number of nodes", "torchrun",
            ],
        ),
        (v1("PyTorchJob", nprocPerNode="8", pytorchReplicaSpecs=roles(Worker=2)), ["numNodes: 2", "trainer.numProcPerNode: 8"]),
        (v1("MPIJob", slotsPerWorker=4, mpiReplicaSpecs=roles(Launcher=1, Worker=2)), ["numNodes: 2", "numProcPerNode: 4"]),
        (v1("TFJob", tfReplicaSpecs=roles(PS=2, Chief=1, Worker=2)), ["numNodes: 3", "your own runtime with TensorFlowPolicy"]),
        (v1("XGBoostJob", xgbReplicaSpecs=roles(Master=1, Worker=2)), ["xgboost-distributed", "numNodes: 3"]),
        (v1("JAXJob", jaxReplicaSpecs=roles(Worker=2)), ["jax-distributed", "numNodes: 2"]),
        (v1("PaddleJob", paddleReplicaSpecs={"Worker": {}}), ["runtimeRef.name: paddle", "numNodes: 1"]),
        (v1("PyTorchJob", pytorchReplicaSpecs={"Worker": {"replicas": "two"}}), ["torch-distributed"]),
    ],
)  # fmt: skip
def test_what_such_a_job_becomes(document: Document, parts: list[str], run: Any) -> None:
    _, out, _ = run("validate", "jobset", document)
    assert all(part in out for part in parts), out


def test_what_is_named_like_such_a_job(run: Any) -> None:
    assert "MPIJob is a kind of MPI Operator" in run("validate", "jobset", v1("MPIJob", "v2beta1"))[1]
    other = {**v1("MPIJob"), "apiVersion": "example.com/v1"}
    assert run("validate", "jobset", runtime(), train_job(), other)[0] == 0
    nameless = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    assert "PyTorchJob default/ is refused" in run("validate", "jobset", nameless)[1]
    code, out, _ = run("validate", "jobset", v1("PyTorchJob"), options=("-o", "json"))
    found = json.loads(out)
    assert code == 1 and (found["admitted"], found["stage"]) == (False, "training-operator")
    assert "Hint: write a TrainJob" in found["errors"][0]["detail"]


def queue(version: str, **spec: Any) -> Document:
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_documents_of_kueues_older_versions_are_noted(mode: str, run: Any) -> None:
    says = (
        "jobs.yaml, document 1, line 1: apiVersion: Kueue 0.20 and newer do not serve kueue.x-k8s.io/v1beta1. Hint: write"
        " kueue.x-k8s.io/v1beta2, which Kueue serves since 0.15; cohort is cohortName there"
    )
    older, newer = queue("v1beta1", cohort="c"), queue("v1beta2", cohortName="c")
    code, out, _ = run("validate", mode, older, runtime(), train_job())
    assert code == 0 and says in out
    code, out, err = run("render", mode, older, runtime(), train_job())
    assert code == 0 and says in err and says not in out
    _, out, _ = run("validate", mode, older, runtime(), train_job(), options=("-o", "json"))
    assert [warning for warning in json.loads(out)["warnings"] if says in warning]
    assert "v1beta" not in run("validate", mode, newer, runtime(), train_job())[1]
