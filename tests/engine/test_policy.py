"""The summary of a job, as plans show it and as a real policy pack reads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import setup

from tests.documented import blocks

from .conftest import Project

PACK = setup.ROOT / "examples" / "platform-and-teams" / "policy"
RULES = """\
registries: [ghcr.io/acme, nvcr.io/nvidia]
gpus: {"": 16, high: 64}
hostAccess: false
queue: true
checkpoints: [preemptible]
"""
PROGRAM = """
def work():
    print("trained")

trainer.TrainJob(
    "job", runtime=plain, wait_for="complete", labels=LABELS,
    trainer=trainer.CustomTrainer(func=work, num_nodes=NODES, resources_per_node={"nvidia.com/gpu": GPUS}),
)
"""


def program(nodes: str, gpus: str = "8", labels: str = "None") -> str:
    return PROGRAM.replace("NODES", nodes).replace("GPUS", gpus).replace("LABELS", labels)


@pytest.fixture
def pack(tmp_path: Path) -> str:
    """The example's policy pack, with the virtual environment that its requirements ask for."""
    folder = tmp_path / "pack"
    shutil.copytree(PACK, folder, ignore=shutil.ignore_patterns("venv"))
    return installed(folder)


def installed(folder: Path) -> str:
    """Return a policy pack with the virtual environment that its requirements ask for."""
    subprocess.run([setup.VENV / "bin" / "python", "-m", "venv", "--without-pip", folder / "venv"], check=True)
    install = [setup.uv(), "pip", "install", "-q", "--python", folder / "venv", "-r", folder / "requirements.txt"]
    setup.run(*install, env=setup.indexes())
    return str(folder)


def test_the_guide_shows_the_pack() -> None:
    assert [RULES, (PACK / "__main__.py").read_text()] == [block.text for block in blocks("docs/policies.md", __file__)]


def test_the_rules_of_a_file_hold_in_programs_and_as_a_policy_pack(project: Project, tmp_path: Path) -> None:
    project.config("trainer:target", "kubernetes")
    project.config("trainer:kubeconfig", str(project.folder / "none"))
    (project.folder / "policy.yaml").write_text(RULES)
    project.program(program("4"))
    broken = (
        "image python:3.12 is not from ghcr.io/acme or nvcr.io/nvidia",
        "the job has 32 GPUs; jobs without a priority have at most 16",
        "the job has no queue",
    )
    argv = [setup.VENV / "bin" / "pulumi-trainer", "policy", "pack", project.folder / "policy.yaml", tmp_path / "made"]
    subprocess.run(argv, check=True)
    said = project.preview("--policy-pack", installed(tmp_path / "made"), ok=False).out
    assert all(why in said for why in broken), said

    project.config("trainer:policy", "policy.yaml")
    said = project.preview(ok=False).out
    for why, rule in zip(broken, ("registries", "gpus", "queue"), strict=True):
        assert f"{why} ({rule} of policy.yaml)" in said, said
    assert "trainer.resources_per_node: the job has 32 GPUs" in said
    assert "Hint: fewer GPUs, or priority high" in said

    (project.folder / "policy.yaml").write_text(f"{RULES}action: warn\n")
    assert broken[2] in project.preview().out

    (project.folder / "policy.yaml").write_text("teamGpus: {default: 40}\n")
    project.program(program("4") + program("2").replace('"job"', '"second"').replace("def work", "def other"))
    said = project.preview(ok=False).out
    assert (
        "the jobs of namespace default have 48 GPUs together; at most 40 are allowed (teamGpus of policy.yaml)" in said
    )

    (project.folder / "policy.yaml").write_text("teamGpu: {}\n")
    said = project.preview(ok=False).out
    assert "trainer:policy of the stack:" in said and "teamGpu: unknown field. Hint: did you mean teamGpus?" in said


def test_a_policy_pack_reads_what_a_job_asks_for(project: Project, pack: str) -> None:
    project.config("trainer:target", "kubernetes")
    project.config("trainer:kubeconfig", str(project.folder / "none"))
    project.program(program("4"))
    said = project.preview("--policy-pack", pack, ok=False).out
    assert "job asks for 32 GPUs; more than 16 need priority='high'" in said
    for given in (program("2"), program("4", labels="{'kueue.x-k8s.io/priority-class': 'high'}")):
        project.program(given)
        assert "asks for" not in project.preview("--policy-pack", pack).out

    before = 'before = trainer.TrainJob("before", runtime=plain, trainer=trainer.Trainer(command=["true"]))\n'
    project.program(before + program("before.phase.apply(len)"))
    said = project.preview("--policy-pack", pack).out
    assert "value at .summary" in said and "can't be known during preview" in said


def summary(project: Project) -> object:
    (jobset,) = project.resources()
    return jobset["inputs"].get("summary")


def test_the_plan_shows_the_summary(project: Project) -> None:
    project.program(program("1", "0"))
    project.up()
    project.preview("--expect-no-changes")
    container = {
        "step": "node", "container": "node", "pods": 1, "image": "python:3.12", "resources": "nvidia.com/gpu=0",
        "command": "python3 /etc/pulumi-trainer/code/bootstrap.py",
    }  # fmt: skip
    one = {"nodes": 1, "gpus": 0, "images": ["python:3.12"], "containers": [container], "runtime": "plain"}
    assert summary(project) == one

    project.program(program("2", "0"))
    planned = project.preview("--diff").out
    changed = [line.split() for line in planned.splitlines() if "nodes" in line and "=>" in line]
    assert changed.count(["~", "nodes", ":", "1", "=>", "2"]) == 1, planned
    project.up()
    assert summary(project) == {**one, "nodes": 2, "containers": [{**container, "pods": 2}]}
