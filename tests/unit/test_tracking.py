"""What `tracking=` renders, what its plan refuses, and the link to the run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan import trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.packages import may_be
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.jobs.progress import is_empty, progress, success_note, with_kept
from pulumi_trainer.provider.jobs.runs import Identity
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.tracking import where_tracked
from pulumi_trainer.provider.pod import code
from test_fine_tuning import CLUSTER

SCRIPT = code.source_of(code.TRACK_FILE)


def train() -> None:
    import mlflow  # noqa: F401


def report() -> None:
    from pulumi_trainer import training

    training.progress(step=1)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Plans a TrainJob of a cluster, as a component would."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(tracking: Any, func: Any = train, packages: Any = None, **given: Any) -> Plan:
        async def planning() -> Plan:
            tracker = tracking() if callable(tracking) else tracking
            named = {"runtime": "torch-distributed", "target": CLUSTER, "name": "job", **given}
            own = named.pop("trainer", None) or trainer.CustomTrainer(func=func, packages_to_install=packages)
            return await trainjob_plan.plan(TrainJobArgs("job", **named, trainer=own, tracking=tracker))

        return asyncio.run(planning())

    return plan


def problems(plan: Plan) -> list[str]:
    return [str(problem) for problem in plan.problems]


def environment(plan: Plan, key: str = "JobSet/job") -> list[dict[str, Any]]:
    assert problems(plan) == []
    (step,) = plan.made[key]["spec"]["replicatedJobs"]
    (container,) = step["template"]["spec"]["template"]["spec"]["containers"]
    found: list[dict[str, Any]] = container["env"]
    return found


def values(plan: Plan, prefix: str) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in environment(plan) if each["name"].startswith(prefix)}


def launch(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan.objects["ConfigMap/job-code"]["data"]["launch.json"])
    return found


class TestVariables:
    def test_mlflow(self, planned: Any) -> None:
        plan = planned(trainer.MLflow("http://mlflow:5000"), packages=["mlflow"])
        assert values(plan, "MLFLOW") == {
            "MLFLOW_EXPERIMENT_NAME": "project", "MLFLOW_TRACKING_URI": "http://mlflow:5000"
        }  # fmt: skip
        assert launch(plan)["tracking"] is True
        assert "track_run.py" in plan.objects["ConfigMap/job-code"]["data"]
        assert plan.job.run_inputs["tracking"] == "mlflow http://mlflow:5000 project"

    def test_wandb(self, planned: Any) -> None:
        plan = planned(trainer.WandB(project="digits", entity="team"), packages=["wandb>=0.20"])
        assert values(plan, "WANDB") == {
            "WANDB_MODE": "online", "WANDB_RUN_ID": "job-$(TRAINER_RUN_ID)", "WANDB_NAME": "job-$(TRAINER_RUN_ID)",
            "WANDB_RUN_GROUP": "job", "WANDB_JOB_TYPE": "train", "WANDB_TAGS": "job,$(TRAINER_RUN_ID)",
            "WANDB_RESUME": "allow", "WANDB_PROJECT": "digits", "WANDB_ENTITY": "team",
        }  # fmt: skip
        names = [each["name"] for each in environment(plan)]
        assert names.index("TRAINER_RUN_ID") < names.index("WANDB_RUN_ID"), "Kubernetes knows earlier variables alone"
        assert plan.job.run_inputs["tracking"] == "wandb https://wandb.ai team/digits"
        assert "tracking" not in launch(plan)
        assert "track_run.py" not in plan.objects["ConfigMap/job-code"]["data"]

    @pytest.mark.parametrize(
        ("made", "package", "expected", "about"),
        [
            (
                trainer.WandB(mode="offline"), "wandb",
                {"WANDB_DIR": "/workspace/output", "WANDB_MODE": "offline", "WANDB_RESUME": None}, "wandb offline project",
            ),
            (
                trainer.TensorBoard(), "tensorboardX",
                {"TENSORBOARD_LOGGING_DIR": "/workspace/output/tensorboard/job-$(TRAINER_RUN_ID)"}, "tensorboard files",
            ),
            (
                trainer.Trackio(project="x"), "trackio[gpu]",
                {"TRACKIO_DIR": "/workspace/output/trackio", "TRAINER_TRACKING_PROJECT": "x"}, "trackio files x",
            ),
        ],
    )  # fmt: skip
    def test_what_writes_into_the_output(
        self, planned: Any, made: Any, package: str, expected: dict[str, Any], about: str
    ) -> None:
        plan = planned(made, packages=[package], output=True)
        found = values(plan, "")
        assert {name: found.get(name) for name in expected} == expected
        assert plan.job.run_inputs["tracking"] == about
        (refused,) = problems(planned(made, packages=[package]))
        assert (
            refused
            == f"tracking: {made.title} writes into the output volume, and the job has none. Hint: set output=True"
        )

    def test_what_forwards_progress_travels_with_a_program_that_reports(self, planned: Any) -> None:
        plan = planned(trainer.WandB(), report, ["wandb"])
        data = plan.objects["ConfigMap/job-code"]["data"]
        assert {"track_run.py", "training_tracking.py"} <= data.keys()
        assert (
            launch(plan)["modules"]["pulumi_trainer/provider/pod/shared/training_tracking.py"] == "training_tracking.py"
        )
        assert "training_tracking.py" not in planned(None, report).objects["ConfigMap/job-code"]["data"]

    def test_what_env_sets_wins(self, planned: Any) -> None:
        own = trainer.CustomTrainer(
            func=train, packages_to_install=["wandb"], env={"WANDB_BASE_URL": "https://w.example", "WANDB_PROJECT": "b"}
        )
        plan = planned(trainer.WandB(project="a", entity="c"), trainer=own)
        assert values(plan, "WANDB")["WANDB_PROJECT"] == "b"
        assert plan.job.run_inputs["tracking"] == "wandb https://w.example c/b"
        assert any("env wins" in str(each) for each in plan.warnings)

    def test_mpi_takes_the_run_to_all_nodes(self, planned: Any) -> None:
        plan = planned(trainer.MLflow("http://m:1"), packages=["mlflow"], runtime="deepspeed-distributed")
        across = launch(plan)["across"]
        assert {"MLFLOW_RUN_ID", "TRAINER_TRACKING_RUN", "MLFLOW_TRACKING_URI", "TRAINER_RUN_ID"} <= {*across}

    def test_mode_trainer_keeps_the_order(self, planned: Any) -> None:
        cluster = trainer.Kubernetes(kubeconfig="nowhere", mode="trainer")
        plan = planned(trainer.WandB(), packages=["wandb"], target=cluster)
        names = [each["name"] for each in plan.objects["TrainJob/job"]["spec"]["trainer"]["env"]]
        assert names.index("TRAINER_RUN_ID") < names.index("WANDB_RUN_ID")


class TestSecrets:
    def test_an_output_becomes_a_reference(self, planned: Any) -> None:
        plan = planned(lambda: trainer.WandB(api_key=pulumi.Output.secret("canary")), packages=["wandb"])
        key = {
            "name": "WANDB_API_KEY",
            "valueFrom": {"secretKeyRef": {"name": plan.secret_name, "key": "tracking.WANDB_API_KEY"}},
        }
        assert key in environment(plan)
        assert "canary" not in json.dumps([plan.made, plan.objects, dict(plan.job.run_inputs)])

    def test_a_secret_of_the_cluster(self, planned: Any) -> None:
        plan = planned(trainer.MLflow("https://m", secret_ref="keys"), packages=["mlflow"])
        names = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
        for name in names:
            key = {"name": "keys", "key": name, "optional": True}
            assert {"name": name, "valueFrom": {"secretKeyRef": key}} in environment(plan)
        plan = planned(trainer.WandB(secret_ref="keys"), packages=["wandb"])
        key = {"name": "keys", "key": "WANDB_API_KEY"}
        assert {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": key}} in environment(plan)

    def test_a_plain_text_is_refused(self, planned: Any) -> None:
        (refused,) = problems(planned(trainer.WandB(api_key="canary"), packages=["wandb"]))  # type: ignore[arg-type]
        assert refused.startswith("tracking.api_key: is a plain-text secret") and "canary" not in refused
        (refused, *_) = problems(planned(trainer.MLflow("https://me:canary77@m"), packages=["mlflow"]))
        assert refused.startswith("tracking") and "canary77" not in refused


class TestRefusals:
    def test_a_package_that_nobody_installs(self, planned: Any) -> None:
        expected = (
            "tracking: W&B requires wandb, which neither the packages of the job nor its image have."
            ' Hint: packages_to_install=["wandb"] of the trainer installs it'
        )
        assert problems(planned(trainer.WandB(), packages=["torch", "wandb-testing"])) == [expected]
        assert problems(planned(trainer.WandB(), packages=["torch", "https://example.com/tools.whl"])) == []
        own = trainer.CustomTrainer(func=train, image="registry.example/own:1")
        assert problems(planned(trainer.WandB(), trainer=own)) == []
        command = trainer.CustomTrainer(command=["train"])
        assert problems(planned(trainer.WandB(), trainer=command)) == []

    def test_requirements_count(self, planned: Any, tmp_path: Path) -> None:
        file = tmp_path / "requirements.txt"
        file.write_text("# comment\ntorch==2.6.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
        own = trainer.CustomTrainer(func=train, requirements=str(file))
        assert len(problems(planned(trainer.WandB(), trainer=own))) == 1
        file.write_text("torch==2.6.0\nWandb == 0.20.0  # metrics\n")
        assert problems(planned(trainer.WandB(), trainer=own)) == []

    def test_mlflow_needs_no_package_for_what_is_forwarded(self, planned: Any) -> None:
        assert problems(planned(trainer.MLflow("http://m:1"), report)) == []
        (refused,) = problems(planned(trainer.MLflow("http://m:1"), train))
        assert "MLflow requires mlflow" in refused

    def test_mlflow_with_a_command_of_the_image(self, planned: Any) -> None:
        (refused,) = problems(planned(trainer.MLflow("http://m:1"), trainer=trainer.CustomTrainer(command=["train"])))
        assert refused.startswith("tracking: MLflow requires func, script, module or source")

    @pytest.mark.parametrize(
        ("made", "refused"),
        [
            (lambda: trainer.MLflow("mlruns"), "tracking.uri: 'mlruns' is not the address of a server"),
            (lambda: trainer.MLflow(5000), "tracking.uri: must be a string, not int"),  # type: ignore[arg-type]
            (lambda: trainer.WandB(mode="of"), "tracking.mode: must be one of online, offline, not 'of'"),  # type: ignore[arg-type]
            (lambda: trainer.WandB(project=""), "tracking.project: is empty"),
            (lambda: "mlflow", "tracking: must be MLflow, WandB, TensorBoard or Trackio, not 'mlflow'"),
        ],
    )
    def test_values(self, planned: Any, made: Any, refused: str) -> None:
        found = problems(planned(made, packages=["mlflow", "wandb"]))
        assert len(found) == 1 and found[0].startswith(refused), found

    def test_a_requirement(self) -> None:
        assert not may_be("", ["wandb"]) and not may_be("    --hash=sha256:00", ["wandb"])
        assert may_be(pulumi.Output, ["wandb"]) and may_be("--index-url", ["wandb"]) and may_be("wandb", ["wandb"])


def status(tracking: str, **given: Any) -> JobStatus:
    found = JobStatus("job", "team", identity=Identity(id="t4kz1f", lineage="t4kz1e"), inputs={"tracking": tracking})
    return replace(found, **given)


class TestLink:
    @pytest.mark.parametrize(
        ("tracking", "given", "link"),
        [
            (
                "mlflow http://m:5000/ my lab",
                {"progress": {"tracking": "7/abc"}},
                "http://m:5000/#/experiments/7/runs/abc",
            ),
            ("mlflow http://m:5000 lab", {"progress": None}, ""),
            ("mlflow", {"progress": {"tracking": "7/abc"}}, ""),
            ("mlflow ftp://m lab", {"progress": {"tracking": "7/abc"}}, ""),
            ("wandb https://wandb.ai team/my digits", {}, "https://wandb.ai/team/my%20digits/runs/job-t4kz1f"),
            ("wandb https://wandb.ai digits", {}, ""),
            ("wandb https://wandb.ai team/digits", {"identity": Identity()}, ""),
            ("tensorboard files", {"output": "/a b/t4kz1d"}, "tensorboard --logdir '/a b/t4kz1e/tensorboard'"),
            ("tensorboard files", {"output": "pvc://out/t4kz1e"}, "pvc://out/t4kz1e/tensorboard"),
            ("tensorboard files", {}, ""),
            (
                "trackio files my lab",
                {"output": "/x/r"},
                "TRACKIO_DIR=/x/t4kz1e/trackio trackio show --project 'my lab'",
            ),
            ("wandb offline lab", {"output": "/x/r"}, "wandb sync /x/t4kz1e/wandb/offline-run-*-job-t4kz1f"),
            ("", {}, ""),
        ],
    )
    def test_only_what_is_known(self, tracking: str, given: dict[str, Any], link: str) -> None:
        assert where_tracked(status(tracking, **given)) == link

    def test_the_run_of_mlflow_stays_in_the_progress(self) -> None:
        def read(text: str) -> dict[str, Any]:
            found = progress(f'{{"trainerStatus": {text}}}'.encode(), 1.0)
            assert found is not None
            return found

        first = read('{"tracking": "7/abc"}')
        assert first["tracking"] == "7/abc" and is_empty(first)
        assert success_note(first, restarted=False) == ""
        nothing = with_kept(first, read('{"metrics": []}'))
        assert success_note(nothing, restarted=False).startswith("no step was reported")
        assert with_kept(nothing, read('{"step": 3}'))["tracking"] == "7/abc"
        assert progress(b'{"trainerStatus": {"tracking": "7/../x"}}', 1.0) is None


class Server(ThreadingHTTPServer):
    """Answers as an MLflow server without any run does, or does not answer."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay, self.asked = delay, list[tuple[str, Any, str]]()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """Print nothing of a client that has gone."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = self.path.partition("/api/2.0/mlflow/")[2].partition("?")[0]
        self.server.asked.append((name, json.loads(body or b"null"), self.headers.get("Authorization") or ""))
        time.sleep(self.server.delay)
        answers: dict[str, Any] = {
            "experiments/create": {"experiment_id": "7"},
            "runs/search": {},
            "runs/create": {"run": {"info": {"run_id": "abc"}}},
            "runs/update": {},
        }
        self.send_response(200 if name in answers else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(name, {"message": "no such experiment"})).encode())

    do_GET = do_POST = answer  # noqa: N815  # the names of http.server

    def log_message(self, *_: Any) -> None:
        pass


LIMITS = "t.SECONDS, t.WAIT, t.PAUSE = 0.5, 1, 0.2"
START = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import track_run as t; {LIMITS}; "


def start(url: str, then: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    known = {"TRAINER_TRACKING": "mlflow", "MLFLOW_TRACKING_URI": url, "MLFLOW_EXPERIMENT_NAME": "lab"}
    known |= {"TRAINER_RUN_ID": "t4kz1f", "TRAINER_TRACKING_NAME": "job-t4kz1f", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", f"{START}t.start(); {then}"],
        env={**known, **env},
        capture_output=True,
        text=True,
        check=True,
    )


class TestStart:
    def test_node_0_makes_the_run_with_its_tags(self) -> None:
        server = Server()
        done = start(server.url, "import os; print(os.environ['MLFLOW_RUN_ID']); t.end(0)", MLFLOW_TRACKING_TOKEN="key")
        assert done.stdout.splitlines() == ['{"trainerStatus": {"tracking": "7/abc"}}', "abc"] and not done.stderr
        asked = {name: given for name, given, _ in server.asked}
        tags = {each["key"]: each["value"] for each in asked["runs/create"]["tags"]}
        assert tags == {"pulumi-trainer.job": "job", "pulumi-trainer.run": "t4kz1f", "mlflow.runName": "job-t4kz1f"}
        assert {key for *_, key in server.asked} == {"Bearer key"}
        assert asked["runs/update"]["status"] == "FINISHED" and asked["runs/update"]["end_time"]

    @pytest.mark.parametrize(("code", "expected"), [(1, "FAILED"), (143, "KILLED"), (-15, "KILLED"), (-9, "FAILED")])
    def test_the_end_of_an_attempt(self, code: int, expected: str) -> None:
        server = Server()
        start(server.url, f"t.end({code})")
        assert server.asked[-1][1]["status"] == expected

    @pytest.mark.parametrize(
        "own", [{"JOB_COMPLETION_INDEX": "1"}, {"JOB_COMPLETION_INDEX": "0", "TRAINER_NODE_OFFSET": "1"}]
    )
    def test_other_nodes_make_none(self, own: dict[str, str]) -> None:
        server = Server()
        done = start(server.url, "os = t.os; os.environ['TRAINER_TRACKING_RUN'] = '7/abc'; t.end(143)", **own)
        assert "node 0 has made no run within 1 seconds; training goes on" in done.stderr and not done.stdout
        assert not {"experiments/create", "runs/create", "runs/update"} & {name for name, *_ in server.asked}

    def test_a_server_that_hangs_costs_its_time_limit(self) -> None:
        done = start(Server(delay=3).url, "t.end(0)")
        assert done.stderr.count("\n") == 1 and "timed out; training goes on" in done.stderr and not done.stdout

    def test_basic_authentication(self) -> None:
        server = Server()
        start(server.url, MLFLOW_TRACKING_USERNAME="me", MLFLOW_TRACKING_PASSWORD="pw", MLFLOW_TRACKING_TOKEN="key")
        assert {key for *_, key in server.asked} == {"Basic bWU6cHc="}


def test_a_plan_with_tracking_imports_no_tracker(planned: Any) -> None:
    trackers = ("mlflow", "wandb", "trackio", "tensorboard", "tensorboardX")
    loaded = {name: sys.modules.pop(name) for name in trackers if name in sys.modules}
    planned(trainer.WandB(), packages=["wandb"])
    assert not {*trackers} & sys.modules.keys()
    sys.modules.update(loaded)
