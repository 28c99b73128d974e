"""Open MPI's own `mpirun` on the Local target: where its processes run, and what becomes of them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from pulumi_trainer.provider.targets.local.process import MARK

from tests.engine.conftest import Project, eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def mpi(example: Callable[[str], Project]) -> Project:
    return example("mpi")


def training(project: Project, *lines: str, slots: int = 1) -> None:
    """Another function in the place of the example's, which needs no packages."""
    program = project.folder / "__main__.py"
    head, _, rest = program.read_text().partition("def train(")
    _, below, rest = rest.partition("\n\n\n")
    body = "".join(f"    {line}\n" for line in ("import os, sys, time", *lines))
    rest = rest.replace('func_args={"epochs": 30}, ', "").replace(
        ', packages_to_install=["mpi4py", "scikit-learn"]', ""
    )
    rest = rest.replace("run_launcher_as_node=True", f"run_launcher_as_node=True, num_proc_per_node={slots}")
    program.write_text(f"{head}def train():\n{body}{below}{rest}")


def ranks(uid: str) -> dict[str, str]:
    """Rank -> pod of each living process that `mpirun` has started for the job."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            env = process.environ()
            if env.get(MARK, "").startswith(f"{uid}/") and "OMPI_COMM_WORLD_RANK" in env:
                found[env["OMPI_COMM_WORLD_RANK"]] = env[MARK].split("/")[1]
    return found


def marked(uid: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(uid):
                found.append(" ".join(process.cmdline()))
    return found


def test_a_cancelled_job_leaves_no_process_on_any_node(mpi: Project) -> None:
    training(mpi, "time.sleep(600)", slots=2)
    up = mpi.start("up", "--yes", "--skip-preview")
    job = eventually(lambda: mpi.job("mpi"), seconds=120)
    placed = eventually(lambda: len(found := ranks(job.uid)) == 4 and found, seconds=120)
    assert sorted(placed.values()) == [f"{job.name}-launcher-0-0"] * 2 + [f"{job.name}-node-0-0"] * 2
    up.kill()
    up.communicate()
    assert mpi.run("cancel", "--yes").code == 0
    mpi.target.jobs.delete(job.namespace, job.name)
    assert not marked(job.uid)


STEPS = 200
SAVES = (
    "import json",
    "folder, rank = os.environ['TRAINER_CHECKPOINT_DIR'], os.environ['OMPI_COMM_WORLD_RANK']",
    "newest = os.environ.get('TRAINER_RESUME_FROM')",
    "step = json.load(open(newest))['step'] if newest else 0",
    "print('rank', rank, 'starts at step', step, flush=True)",
    f"while step < {STEPS} and not os.path.exists(folder + '/stop'):",
    "    step += 1",
    "    time.sleep(0.05)",
    "    stops = rank == '0' and os.path.exists(os.environ['TRAINER_STOP_FILE'])",
    "    if rank == '0' and (step % 20 == 0 or stops):",
    "        json.dump({'step': step}, open(folder + '/.part', 'w'))",
    "        os.replace(folder + '/.part', f'{folder}/step-{step}.json')",
    "    if stops:",
    "        open(folder + '/stop', 'w').close()",  # in place of an MPI broadcast, which needs a package
    "rank == '1' and os.path.exists(folder + '/stop') and os.remove(folder + '/stop')",
    "print('rank', rank, 'ends at step', step, flush=True)",
)


def test_an_interrupted_launcher_goes_on_from_its_checkpoint(mpi: Project) -> None:
    training(mpi, *SAVES)
    program = mpi.folder / "__main__.py"
    policy = 'checkpoint=trainer.CheckpointPolicy(every="10s", grace=20)'
    program.write_text(program.read_text().replace("runtime=runtime,", f"runtime=runtime, {policy},"))
    up = mpi.start("up", "--yes", "--skip-preview")
    job = eventually(lambda: mpi.job("mpi"), seconds=120)
    eventually(lambda: [*mpi.folder.rglob("checkpoints/step-20.json")], seconds=120)
    launchers = [p for p in mpi.processes("bootstrap.py") if "-launcher-0-0" in p.environ().get(MARK, "")]
    os.kill(min(launchers, key=lambda p: p.pid).pid, signal.SIGTERM)
    out, _ = up.communicate(timeout=120)
    assert up.returncode == 0, out
    log = mpi.logs("mpi")
    first, stopped, again, last = re.findall(r"rank 0 (?:starts|ends) at step (\d+)", log)
    assert (first, last) == ("0", str(STEPS)) and stopped == again != "0", log
    status = mpi.job("mpi")
    assert (status.phase, status.restarts) == ("Succeeded", 1) and not marked(job.uid), status


def test_a_rank_that_fails_fails_the_job(mpi: Project) -> None:
    """The launcher is started again as a cluster would, as often as its Job may."""
    text = (mpi.folder / "__main__.py").read_text()
    (mpi.folder / "__main__.py").write_text(text.replace('ancestor="trainer"', 'ancestor="trainer", backoff_limit=0'))
    body = "rank = os.environ['OMPI_COMM_WORLD_RANK']", "rank == '0' and time.sleep(600)", "sys.exit('the data is bad')"
    training(mpi, *body)
    failed = mpi.up(ok=False)
    assert "the data is bad" in failed.out and "step launcher" in failed.out and "Traceback" not in failed.out, (
        failed.out
    )
    assert not marked(mpi.job("mpi").uid)


def test_deepspeeds_runtime_of_the_catalogue_runs_too(mpi: Project) -> None:
    training(mpi, "print('rank', os.environ['OMPI_COMM_WORLD_RANK'], 'on', os.environ['HOSTNAME'], flush=True)")
    program = mpi.folder / "__main__.py"
    program.write_text(program.read_text().replace("runtime=runtime,", 'runtime="deepspeed-distributed",'))
    mpi.up()
    job = mpi.job("mpi")
    said = sorted(line for line in mpi.logs("mpi").splitlines() if line.startswith("rank"))
    assert said == [f"rank 0 on {job.name}-node-0-0", f"rank 1 on {job.name}-launcher-0-0"]
    assert not marked(job.uid)
