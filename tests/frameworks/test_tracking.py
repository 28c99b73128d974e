"""Experiment trackers with their real packages: one run for all nodes and attempts of a run of a job, and its link."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.conftest import Project
from tests.engine.test_checkpoints import run_cli
from tests.mlflow_server import UV_RUN, history, link_of, mlflow_server, runs_of

pytestmark = pytest.mark.timeout(900)

JOB = """
def job(name, tracking, func, packages, **options):
    made = trainer.TrainJob(
        name,
        runtime=plain,
        trainer=trainer.CustomTrainer(func=func, packages_to_install=packages, **options),
        checkpoint=trainer.CheckpointPolicy(max_restarts=1),
        tracking=tracking,
        wait_for="complete",
    )
    pulumi.export(name, made.tracking_link)

def report():
    import os
    from pulumi_trainer import training
    from pulumi_trainer.provider.pod import training as shown
    points = training.checkpoints()
    found = points.load({}) or {"step": 0}
    print("node", os.environ["JOB_COMPLETION_INDEX"], "run", os.environ.get("MLFLOW_RUN_ID"), flush=True)
    for step in range(found["step"] + 1, 5):
        training.progress(step=step, total=4, loss=1 / step, text="x", broken=float("nan"))
        shown._shown.time = float("-inf")  # each step prints a line
        points.save({}, step=step)
        if step == 2 and not found["step"]:
            raise SystemExit("the first attempt ends here")
"""


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MLflow server."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


def tags(run: Any) -> dict[str, str]:
    return {each["key"]: each["value"] for each in run["data"]["tags"]}


def outputs(project: Project) -> dict[str, Any]:
    done = project.run("stack", "output", "--json")
    return json.loads(done.out)


def test_a_program_that_logs_to_mlflow_continues_its_run_after_a_restart(project: Project, mlflow: str) -> None:
    project.program(
        JOB
        + f"""
def train():
    import mlflow, os
    first = not os.path.exists(os.environ["TRAINER_CHECKPOINT_DIR"] + "/began")
    with mlflow.start_run():
        mlflow.log_metric("loss", 0.5, step=1 if first else 2)
    if first:
        os.makedirs(os.environ["TRAINER_CHECKPOINT_DIR"], exist_ok=True)
        open(os.environ["TRAINER_CHECKPOINT_DIR"] + "/began", "w").close()
        raise SystemExit("the first attempt ends here")

job("own", trainer.MLflow("{mlflow}", experiment="lab one"), train, ["mlflow-skinny"])
"""
    )
    project.up()
    (run,) = runs_of(mlflow, "own-")
    assert history(mlflow, run["info"]["run_id"], "loss") == [(1, 0.5), (2, 0.5)]
    assert run["info"]["status"] == "FINISHED"
    (status,) = json.loads(run_cli(project, "status", "own", "-o", "json"))
    known = tags(run)
    assert known["pulumi-trainer.job"] == status["name"] and known["pulumi-trainer.run"] == status["identity"]["id"]
    link = link_of(mlflow, run)
    assert outputs(project)["own"] == status["tracking"] == link
    assert f"own: {link}" in run_cli(project, "status", "own")
    assert f"Its metrics: {link}" in run_cli(project, "why", "own")


def test_progress_reaches_mlflow_without_its_package(project: Project, mlflow: str) -> None:
    project.program(JOB + f'job("told", trainer.MLflow("{mlflow}"), report, [], num_nodes=2)\n')
    project.up()
    (run,) = runs_of(mlflow, "told-")
    name = run["info"]["run_id"]
    assert history(mlflow, name, "loss") == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3, rel=1e-4)), (4, 0.25)]
    assert run["info"]["status"] == "FINISHED" and not history(mlflow, name, "text")
    logs = [each.read_text() for each in project.root.glob("jobs/*/told-*/logs/*/node.log")]
    assert sorted(set(re.findall(r"node \d run \w+", "".join(logs)))) == [f"node {node} run {name}" for node in (0, 1)]


def test_ranks_of_mpi_have_the_run_of_the_job(project: Project, mlflow: str) -> None:
    program = """
def train():
    import os
    from pulumi_trainer import training
    print("rank", os.environ["OMPI_COMM_WORLD_RANK"], "run", os.environ["MLFLOW_RUN_ID"], flush=True)
    training.progress(step=1, total=1, loss=0.5)

trainer.TrainJob(
    "slots", runtime="deepspeed-distributed", trainer=trainer.CustomTrainer(func=train, num_nodes=2),
    tracking=trainer.MLflow(URI), wait_for="complete",
)
"""
    project.program(f"URI = {mlflow!r}\n{program}")
    project.up()
    (run,) = runs_of(mlflow, "slots-")
    name = run["info"]["run_id"]
    assert history(mlflow, name, "loss") == [(1, 0.5)] and run["info"]["status"] == "FINISHED"
    shown = re.findall(r"rank (\d) run (\w+)", run_cli(project, "logs", "slots"))
    assert sorted(set(shown)) == [("0", name), ("1", name)]


def test_a_server_that_does_not_answer_costs_one_line(project: Project) -> None:
    project.program(JOB + 'job("alone", trainer.MLflow("http://127.0.0.1:9"), report, [])\n')
    project.up()
    (log,) = [each.read_text() for each in project.root.glob("jobs/*/alone-*/logs/*/node.log")]
    assert len(re.findall("pulumi-trainer: MLflow: .*refused; training goes on", log)) == 2, log  # one of each attempt
    assert log.count("MLflow") == 2 and outputs(project)["alone"] == ""


READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
for path in sys.argv[1:]:
    data, at = open(path, "rb").read(), 7
    while at + 7 <= len(data):
        _, size, kind = struct.unpack("<IHB", data[at:at + 7])
        assert kind == 1, "a record of one part"
        record = wandb_internal_pb2.Record.FromString(data[at + 7:at + 7 + size])
        at += 7 + size
        if record.WhichOneof("record_type") == "run":
            run = record.run
            print(json.dumps([run.run_id, run.project, run.run_group, run.job_type, [*run.tags], run.display_name]))
        if record.WhichOneof("record_type") == "history":
            items = {(each.key or ".".join(each.nested_key)): json.loads(each.value_json) for each in record.history.item}
            print(json.dumps({name: items[name] for name in ("step", "loss")}))
"""

READ_TENSORBOARD = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1])
found.Reload()
print([(each.step, round(each.value, 3)) for each in found.Scalars("loss")])
"""


def python_with(package: str, program: str, *args: str) -> str:
    argv = [*UV_RUN, "--with", package, "python", "-c", program, *args]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def identity(project: Project, job: str) -> tuple[str, str]:
    """Return the names of a job and of its run."""
    (status,) = json.loads(run_cli(project, "status", job, "-o", "json"))
    return status["name"], status["identity"]["id"]


def test_wandb_offline_writes_one_run_for_both_attempts(project: Project) -> None:
    project.program(JOB + 'job("bias", trainer.WandB(project="digits", mode="offline"), report, ["wandb"])\n')
    project.up()
    name, run = identity(project, "bias")
    files = sorted(project.root.glob("volumes/*/*/data/*/wandb/offline-run-*/*.wandb"))
    assert len(files) == 2, "one for each attempt"
    found = [json.loads(line) for line in python_with("wandb", READ_WANDB, *map(str, files)).splitlines()]
    about = [each for each in found if isinstance(each, list)]
    assert about[0] == about[-1] == [f"{name}-{run}", "digits", name, "train", [name, run], f"{name}-{run}"]
    assert [each["step"] for each in found if isinstance(each, dict)] == [1, 2, 3, 4]
    assert outputs(project)["bias"] == f"wandb sync {files[0].parents[1]}/offline-run-*-{name}-{run}"


def test_tensorboard_has_one_folder_for_both_attempts(project: Project) -> None:
    project.program(JOB + 'job("board", trainer.TensorBoard(), report, ["tensorboard"])\n')
    project.up()
    name, run = identity(project, "board")
    (folder,) = project.root.glob("volumes/*/*/data/*/tensorboard")
    read = python_with("tensorboard", READ_TENSORBOARD, str(folder / f"{name}-{run}"))
    assert read.strip() == "[(1, 1.0), (2, 0.5), (3, 0.333), (4, 0.25)]"
    assert outputs(project)["board"] == f"tensorboard --logdir {folder}"


def test_a_program_with_its_own_event_files_gets_no_others(project: Project) -> None:
    own = """
def train():
    import os
    from tensorboardX import SummaryWriter
    from pulumi_trainer import training
    writer = SummaryWriter(os.environ["TENSORBOARD_LOGGING_DIR"])
    writer.add_scalar("loss", 0.5, 1)
    writer.close()
    training.progress(step=1, total=1, loss=9)

job("own", trainer.TensorBoard(), train, ["tensorboardX"])
"""
    project.program(JOB + own)
    project.up()
    (file,) = project.root.glob("volumes/*/*/data/*/tensorboard/*/*")
    assert python_with("tensorboard", READ_TENSORBOARD, str(file.parent)).strip() == "[(1, 0.5)]"


def test_trackio_continues_its_run(project: Project) -> None:
    project.program(JOB + 'job("deck", trainer.Trackio(), report, ["trackio"])\n')
    project.up()
    name, run = identity(project, "deck")
    (file,) = project.root.glob("volumes/*/*/data/*/trackio/lab.db")
    with sqlite3.connect(file) as database:
        rows = database.execute("select run_id, run_name, step, metrics from metrics order by step").fetchall()
        ((about,),) = database.execute("select config from configs").fetchall()
    assert len({each[0] for each in rows}) == 1 and {each[1] for each in rows} == {f"{name}-{run}"}
    assert [(step, round(json.loads(metrics)["loss"], 3)) for _, _, step, metrics in rows] == [
        (1, 1.0), (2, 0.5), (3, 0.333), (4, 0.25),
    ]  # fmt: skip
    assert json.loads(about)["_Group"] == name
    assert outputs(project)["deck"] == f"TRACKIO_DIR={file.parent} trackio show --project lab"
