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

from .conftest import Project, eventually

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


INSTALLING = """
def work():
    print("never")

trainer.TrainJob("job", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
    func=work, packages_to_install=["no-such-package-anywhere==1"],
))
"""


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
