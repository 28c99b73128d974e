"""What a job may touch on this machine, who may read it, and how it ends where it cannot go on; through the real engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow_index import slow_index
from tests.unit.local_support import FULL_DISK

from .conftest import HEAD, Project, eventually

FILLS = """
import pulumi_trainer as trainer

runtime = trainer.ClusterTrainingRuntime(
    "fills",
    ml_policy=trainer.PlainPolicy(num_nodes=1),
    template=trainer.JobSetTemplate(replicated_jobs=[
        trainer.ReplicatedJob(name="prepare", backoff_limit=0, pod_spec={"restart_policy": "Never", "containers": [
            {"name": "prepare", "image": "python:3.12", "command": ["touch", FULL]}]}),
        trainer.ReplicatedJob(name="node", depends_on=[trainer.DependsOn(name="prepare", status="Complete")],
            pod_spec={"restart_policy": "OnFailure", "containers": [
                {"name": "node", "image": "python:3.12", "command": ["true"]}]}),
    ]),
)
trainer.TrainJob("fills", runtime=runtime, wait_for="complete")
"""


@pytest.mark.core
def test_a_full_disk_fails_the_job_and_ends_the_update(project: Project) -> None:
    site = project.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(FULL_DISK)
    project.env["PYTHONPATH"] = str(site)
    project.program(f"FULL = {str(site / 'full')!r}\n{FILLS}", head="")
    result = project.up(ok=False)
    assert re.search(r"Failed \(DiskFull\)\n.*No space left on device. Hint: free some space there", result.out), result
    (site / "full").unlink()
    project.destroy()


ESCAPING = """
import pulumi_trainer as trainer

def runtime(name, volume, beside="beside"):
    image = {"image": "python:3.12", "command": ["true"]}
    return trainer.ClusterTrainingRuntime(
        name,
        ml_policy=trainer.PlainPolicy(num_nodes=1),
        template=trainer.JobSetTemplate(replicated_jobs=[
            trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
                "restart_policy": "Never",
                "containers": [
                    {"name": "node", **image, "volume_mounts": [{"name": "ok", "mount_path": "/ok"}]},
                    {"name": beside, **image},
                ],
                "volumes": [{"name": "ok", "empty_dir": {}}, volume],
            })
        ]),
    )

def work():
    print("up")

for number, made in enumerate([
    runtime("a", {"name": "../../../../../../victim", "empty_dir": {}}),
    runtime("b", {"name": "v", "empty_dir": {}}, beside="../../../log"),
    runtime("c", {"name": "v", "persistent_volume_claim": {"claim_name": "../../made"}}),
]):
    trainer.TrainJob(f"job-{number}", runtime=made, wait_for="complete", trainer=trainer.CustomTrainer(func=work))
"""


def test_names_that_leave_their_folder_are_problems_of_the_plan(project: Project) -> None:
    victim = project.folder / "victim"
    victim.mkdir()
    (victim / "precious").write_text("work of years")
    before = sorted(project.folder.iterdir())
    project.program(ESCAPING, head="")
    for result in (project.preview(ok=False), project.up(ok=False)):
        for field, value, kind in (
            (r"volumes\[\d\].name", "../../../../../../victim", "label"),
            (r"containers\[\d\].name", "../../../log", "label"),
            (r"volumes\[\d\].persistentVolumeClaim.claimName", "../../made", "subdomain"),
        ):
            said = (
                f'{field}: Invalid value: "{re.escape(value)}": a lowercase RFC 1123 {kind} must consist of lower case'
            )
            assert re.search(said, result.out), f"{said}\n{result.out}"
        assert "Traceback" not in result.out
    assert (victim / "precious").read_text() == "work of years"
    made = {p.name for p in project.folder.iterdir()} - {p.name for p in before}
    assert made <= {"__main__.py", "__pycache__"}


SECRET = """
def work():
    import os, sys, tempfile
    print(os.environ["TOKEN"], tempfile.mkdtemp(), oct(os.umask(0)))

trainer.TrainJob("job", runtime=plain, wait_for="complete", output=True, trainer=trainer.CustomTrainer(
    func=work, env={"TOKEN": pulumi.Config().require_secret("token")},
))
"""


@pytest.mark.core
def test_nobody_else_can_read_what_a_job_printed(project: Project) -> None:
    project.program(SECRET)
    project.config("token", "canary-80f1", "--secret")
    os.umask(0o022)
    project.up()
    token, temporary, umask = project.logs("job").split()
    assert (token, umask) == ("canary-80f1", "0o22")
    assert not Path(temporary).exists() and not Path(temporary).parent.exists()
    everything = [project.root, *project.root.rglob("*")]
    assert len(everything) > 20
    open_ = [p for p in everything if p.lstat().st_mode & 0o077]
    assert all(p.is_file() and "volumes" in p.parts for p in open_), (
        open_
    )  # files of ConfigMaps have the modes they ask for


ENDINGS = """
def work():
    raise ValueError("there is no such column")

trainer.TrainJob("job", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work))
"""


def test_the_same_failure_twice_ends_the_up_and_says_why_at_the_first(project: Project) -> None:
    head = HEAD.replace("backoff_limit=0", "backoff_limit=6")
    project.program(ENDINGS, head=head)
    out = project.up(ok=False).out
    said = "(BackOff): job-"
    assert said in out and "failed and will be started again: exit code 1: ValueError: there is no such column" in out
    assert "has failed twice in the same way within seconds, so it is not tried again on this machine" in out
    assert project.job("job").steps[0].failed == 2


LIMITED = """
def work():
    held = bytearray(b"x") * (400 << 20)
    import time
    time.sleep(120)

trainer.TrainJob("job", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
    func=work, resources_per_node={"memory": "300Mi"},
))
"""


def test_a_job_that_reaches_its_memory_limit_says_so(project: Project) -> None:
    project.program(LIMITED)
    out = project.up(ok=False).out
    assert "index 0: memory limit 300Mi reached (container node)" in out, out
    assert "Hint: raise resources_per_node, or use a smaller batch" in out, out
    for command in ("status", "why"):
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", command]
        shown = subprocess.run(
            argv, cwd=project.folder, env=project.environment, text=True, capture_output=True, check=True
        )
        assert "memory limit 300Mi reached" in shown.stdout, shown.stdout
    attempts = project.job("job").attempts
    assert [(each.cause, each.detail) for each in attempts] == [("OOMKilled", "memory limit 300Mi reached")]


INSTALLING = """
def work():
    print("never")

trainer.TrainJob("job", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
    func=work, packages_to_install=["no-such-package-anywhere==1"],
))
"""


def test_while_packages_are_installed_the_job_is_starting(project: Project) -> None:
    project.env = {"PIP_NO_INDEX": "1", "HOME": str(project.folder / "home")}
    project.program(INSTALLING)
    out = project.up(ok=False).out
    assert "Starting: installing no-such-package-anywhere==1" in out, out
    assert ": Running" not in out
    assert "cause: Because no-such-package-anywhere was not found in the provided package locations" in out


def test_status_shows_the_progress_of_an_installation_for_all_ranks(project: Project) -> None:
    with slow_index(project.folder) as index:
        project.env = {"PIP_INDEX_URL": index.url, "HOME": str(project.folder / "home")}
        program = INSTALLING.replace("no-such-package-anywhere==1", "large").replace(
            "func=work,", "func=work, num_nodes=2,"
        )
        project.program(program)
        update = project.start("up", "--yes", "--skip-preview")
        shown = "installing large (downloading large, 0 of 8 MB)"
        eventually(lambda: (found := project.job("job")) and found.message == shown)
        argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "status"]
        status = subprocess.run(
            argv, cwd=project.folder, env=project.environment, text=True, capture_output=True, check=True
        )
        assert shown in status.stdout, status.stdout
        index.go_on.set()
        out, _ = update.communicate(timeout=120)
    assert update.returncode == 0 and "Starting: installing large" in out, out
    assert "is installing them" not in out


def test_an_index_that_does_not_answer_ends_the_up_and_says_why_at_the_first_attempt(project: Project) -> None:
    project.env = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "HOME": str(project.folder / "home")}
    program = INSTALLING.replace("func=work,", 'func=work, env={"PIP_RETRIES": "1"},')
    project.program(program, head=HEAD.replace("backoff_limit=0", "backoff_limit=6"))
    out = project.up(ok=False).out
    again = next(line for line in out.splitlines() if "(BackOff): job-" in line)
    assert "exit code 1: Failed to fetch: http://127.0.0.1:9/simple/no-such-package-anywhere/" in again, out
    assert "Connection refused" in again
    assert "has failed twice in the same way, so it is not tried again on this machine" in out
    assert project.job("job").steps[0].failed == 2


def test_a_requirement_that_pip_cannot_read_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(INSTALLING.replace("no-such-package-anywhere==1", "scikit learn"))
    out = project.preview(ok=False).out
    assert "trainer.packages_to_install[0]: 'scikit learn' is not a valid requirement" in out
    project.program(INSTALLING.replace("no-such-package-anywhere==1", "numpy; rm -rf /"))
    out = project.preview(ok=False).out
    assert "trainer.packages_to_install[0]: 'numpy; rm -rf /' is not a valid requirement" in out


TORCH = """
import pulumi_trainer as trainer

def work():
    print("up")

torch = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")
for name, packages in (("lacks", []), ("brings", ["torch"]), ("may-bring", ["lightning"])):
    trainer.TrainJob(
        name, runtime=torch, trainer=trainer.CustomTrainer(func=work, packages_to_install=packages),
        target=trainer.Local(python=pulumi.Config().require("python")),
    )
"""


def test_a_program_that_is_missing_is_a_problem_of_the_plan(project: Project, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    path = [folder for folder in project.environment["PATH"].split(os.pathsep) if not Path(folder, "torchrun").exists()]
    project.env = {"PATH": os.pathsep.join(path)}
    project.program(TORCH, head="import pulumi\n")
    project.config("python", str(bare / "bin/python"))
    result = project.preview(ok=False)
    said = "torchrun is not on PATH, and torch is not in packages_to_install"
    refused = [line for line in result.out.splitlines() if said in line]
    assert any('TrainJob("lacks")' in line and 'add packages_to_install=["torch"]' in line for line in refused), result
    assert not any('TrainJob("brings")' in line for line in refused)
    assert any("JobSet/may-bring" in line for line in refused) and "warning" in result.out, result


ELSEWHERE = """
trainer.TrainJob("elsewhere", runtime=plain, target=trainer.Local(root=ROOT), trainer=trainer.CustomTrainer(command=["true"]))
"""


def test_a_root_that_cannot_be_made_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(ELSEWHERE.replace("ROOT", "None"))
    absent = project.folder / "not-mounted" / "trainer"
    project.root.symlink_to(absent)
    said = f"target.root: {project.root} is a link to {absent}, which does not exist"
    assert said in project.preview(ok=False).out
    assert said in project.up(ok=False).out
    project.root.unlink()
    (project.folder / "loop").symlink_to("loop")
    for root, why in (
        (str(project.folder / "loop"), "Too many levels of symbolic links"),
        ("/proc/x", "cannot be made: /proc does not accept files"),
        (str(project.folder / "Pulumi.yaml" / "x"), "Pulumi.yaml is not a folder"),
    ):
        project.program(ELSEWHERE.replace("ROOT", repr(root)))
        out = project.preview(ok=False).out
        assert root in out and why in out and "Traceback" not in out, out


UNSTARTABLE = """
given = (
    {"command": [""]}, {"command": ["echo", "a\\0b"]}, {"command": ["true"], "env": {"A": "a\\0b"}},
)
for number, one in enumerate(given):
    trainer.TrainJob(f"job-{number}", runtime=plain, trainer=trainer.CustomTrainer(**one))
"""


def test_what_no_process_can_be_given_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(UNSTARTABLE)
    out = project.preview(ok=False).out
    assert 'TrainJob("job-0")' in out and "command[0]: is empty: it names the program to start" in out, out
    assert "command[1]: holds a NUL" in out and "env[A].value: holds a NUL" in out, out


BLOCKS = """
def work():
    import os, sys
    os.mkfifo(os.environ["TORCHELASTIC_ERROR_FILE"])
    sys.exit(3)

trainer.TrainJob("blocks", runtime=plain, trainer=trainer.CustomTrainer(func=work), wait_for="complete")
"""


def test_a_job_cannot_block_its_supervisor(project: Project) -> None:
    project.program(BLOCKS)
    assert "exit code 3" in project.up(ok=False).out
    assert project.job("blocks").phase == "Failed"
