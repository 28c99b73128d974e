"""What users have reported of other tools: small inputs of that kind, and what `validate` and `render` say of them in both modes.

`recorded/reported/NAME` has runtime.yaml and job.yaml. Where it was reported, each was admitted without a word, and then failed,
hung or trained something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kubernetes.views import jobs_of

REPORTED = Path(__file__).parent / "recorded" / "reported"
MODES = ("jobset", "trainer")


@dataclass
class Answers:
    """What both commands answer to a case: exit codes, what `validate` says, and the JobSet that `render` prints."""

    codes: tuple[int, int]
    said: str
    jobset: dict[str, Any] | None

    def env(self, step: str) -> dict[str, Any]:
        (job,) = (each for each in jobs_of(self.jobset) if each.name == step)
        return {each["name"]: each.get("value") for each in job.pod.containers[0].env}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[[str, str], Answers]:
    def ask(name: str, mode: str) -> Answers:
        files = [str(file) for file in sorted((REPORTED / name).glob("*.yaml"), reverse=True)]
        judged = cli.run(["validate", "--mode", mode, *files])
        said = capsys.readouterr().out
        rendered = cli.run(["render", "--mode", mode, *files])
        objects = [*yaml.safe_load_all(capsys.readouterr().out)]
        return Answers((judged, rendered), said, next((each for each in objects if each["kind"] == "JobSet"), None))

    return ask


Ask = Callable[[str, str], Answers]


def test_open_mpi_5_runs_on_all_nodes(ask: Ask) -> None:
    """All ranks ran on the launcher, and the job was complete: https://github.com/kubeflow/trainer/issues/4028"""
    name = "openmpi5-runs-on-one-node"
    mine, theirs = ask(name, "jobset"), ask(name, "trainer")
    assert mine.codes == theirs.codes == (0, 0)
    added = {key: value for key, value in mine.env("launcher").items() if key.startswith("PRTE_MCA_")}
    assert added == {
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile", "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
        "PRTE_MCA_prte_set_default_slots": "1", "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
    }  # fmt: skip
    assert "warning" not in mine.said and not any(key.startswith("PRTE_") for key in theirs.env("launcher"))
    assert "warning: PT151: spec.mlPolicy.mpi.mpiImplementation: Open MPI 5 ignores" in theirs.said
    assert "starts all ranks on the launcher instead of 3 nodes" in theirs.said


@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_replaces_sshd_of_the_workers(mode: str, ask: Ask) -> None:
    """The launcher had nobody to connect to: https://github.com/kubeflow/trainer/issues/4030"""
    found = ask("mpi-label-on-workers-replaces-sshd", mode)
    assert found.codes == (0, 0)
    assert "warning: PT154: spec.trainer.command: applies to node and launcher" in found.said
    assert "replaces /usr/sbin/sshd -De of node" in found.said
    (node,) = (each for each in jobs_of(found.jobset) if each.name == "node")
    assert node.pod.containers[0].document["command"] == ["mpirun", "python", "train.py"], "as Trainer renders it"


@pytest.mark.parametrize("mode", MODES)
def test_a_ttl_that_runs_the_initializer_again(mode: str, ask: Ask) -> None:
    """https://github.com/kubernetes-sigs/jobset/issues/279"""
    found = ask("job-ttl-runs-initializer-again", mode)
    where = "spec.template.spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished"
    assert found.codes == (0, 0)
    assert f"warning: PT152: {where}: deletes the Job of dataset-initializer 60 seconds after its end" in found.said
    assert "write ttlSecondsAfterFinished into spec.template.spec instead" in found.said


@pytest.mark.parametrize("mode", MODES)
def test_overrides_that_a_server_drops(mode: str, ask: Ask) -> None:
    """The job went to other nodes: https://github.com/NVIDIA/aicr/pull/724"""
    found = ask("v21-podtemplateoverrides", mode)
    assert (found.codes, found.jobset) == ((1, 1), None)
    assert "error: spec.podTemplateOverrides (line 11): unknown field: removed in Trainer 2.2" in found.said
    assert "write runtimePatches: [" in found.said and '{"nodeSelector": {"example.com/pool": "h100"}' in found.said


@pytest.mark.parametrize("mode", MODES)
def test_a_job_of_training_operator(mode: str, ask: Ask) -> None:
    """A user asks how all nodes restart if one fails: https://github.com/kubeflow/trainer/issues/2269"""
    found = ask("v1-pytorchjob-restart-all", mode)
    assert (found.codes, found.jobset) == ((1, 1), None)
    assert "PyTorchJob is a kind of Training Operator v1" in found.said
    for part in ("trainer.numNodes: 2", "kueue.x-k8s.io/queue-name: team-queue", "failurePolicy.maxRestarts: 5"):
        assert part in found.said


@pytest.mark.parametrize("mode", MODES)
def test_an_mpi_implementation_that_nobody_has_written(mode: str, ask: Ask) -> None:
    """https://github.com/kubeflow/trainer/issues/4025"""
    found = ask("mpi-implementation-mpich", mode)
    assert (found.codes, found.jobset) == ((1, 1), None)
    assert 'spec.mlPolicy.mpi.mpiImplementation (line 9): supported values: "OpenMPI", ""' in found.said
    assert "not found" not in found.said


@pytest.mark.parametrize("mode", MODES)
def test_gpus_that_are_requested_without_a_limit(mode: str, ask: Ask) -> None:
    """Nothing appeared, and the error was in a controller's log: https://github.com/kubeflow/trainer/issues/2363"""
    found = ask("gpu-in-requests-only", mode)
    assert "nvidia.com/gpu" in found.said and "imit must be set for non overcommitable resources" in found.said
    assert (mode, found.codes) == (mode, (1, 1))


@pytest.mark.parametrize("mode", MODES)
def test_an_address_that_stands_in_two_places(mode: str, ask: Ask) -> None:
    """The job trained on other data than its spec says: https://github.com/kubeflow/trainer/issues/3955"""
    found = ask("initializer-env-beats-storage-uri", mode)
    assert "hf://team/data" in found.said and "hf://somebody/else" in found.said
    assert found.codes[0] == found.codes[1]
    if found.jobset is not None:
        assert found.env("dataset-initializer")["STORAGE_URI"] == "hf://somebody/else", "as Trainer renders it"
