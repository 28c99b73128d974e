"""Checkpoint policies: rules of the JobSet, what the first process of a container does with signals, the newest checkpoint."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulumi_trainer import CheckpointPolicy, Fork, OutputVolume, TRLTrainer
from pulumi_trainer.code import user_code
from pulumi_trainer.plan import mounts
from pulumi_trainer.plan.checkpoint_policy import output_of
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.jobs.lineage import ASSIGNED, FORKED
from pulumi_trainer.provider.jobs.progress import progress
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod import training as training_module
from pulumi_trainer.provider.pod.shared import find_checkpoint
from pulumi_trainer.provider.targets.local.jobset_controller import Exit, JobSet
from pulumi_trainer.provider.trainer.pipeline import Disruptions
from pulumi_trainer.provider.trainer.pipeline.disruptions import (
    DISRUPTED,
    FAIL,
    FINAL,
    RESTART,
    STOPPED,
    USELESS,
    fail_at_final_errors,
    tolerate_disruptions,
    tolerates,
)

from tests.trainer import review_jobset


def jobset(job: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "node", "image": "a"}]
    trains = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": containers, **(pod or {})}}, **(job or {})},
        },
    }
    fetches = {
        "name": "dataset-initializer",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}},
            "spec": {"template": {"spec": {"containers": containers}}},
        },
    }
    about = {"name": "job", "namespace": "team"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": about,
        "spec": {"replicatedJobs": [fetches, trains], **spec},
    }


class TestRules:
    def test_only_pods_that_train_have_them(self) -> None:
        made = tolerate_disruptions(jobset(), Disruptions())
        fetch, node = jobs_of(made)
        assert fetch.document == jobset()["spec"]["replicatedJobs"][0]
        assert node.job["podFailurePolicy"] == {"rules": [DISRUPTED, STOPPED]}
        assert (node.job["backoffLimit"], node.pod.spec["restartPolicy"]) == (0, "Never")
        assert made["spec"]["failurePolicy"] == {
            "maxRestarts": 3,
            "restartStrategy": "BlockingRecreate",
            "rules": [dict(RESTART)],
        }
        assert review_jobset(made) == []
        assert tolerates(node) and not tolerates(fetch)

    def test_what_the_runtime_declares_stays(self) -> None:
        own = {"action": "FailJobSet", "name": "mine", "onJobFailureReasons": ["DeadlineExceeded"]}
        policy = {"maxRestarts": 7, "restartStrategy": "Recreate", "rules": [own]}
        ignores = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}
        made = tolerate_disruptions(
            jobset({"backoffLimit": 4, "podFailurePolicy": {"rules": [ignores]}}, failurePolicy=policy), Disruptions()
        )
        node = jobs_of(made)[1]
        assert node.job["backoffLimit"] == 4
        assert node.job["podFailurePolicy"]["rules"] == [ignores, DISRUPTED, STOPPED]
        assert made["spec"]["failurePolicy"] == {**policy, "rules": [dict(RESTART), own]}
        again = tolerate_disruptions(made, Disruptions(max_restarts=0))["spec"]["failurePolicy"]
        assert again["maxRestarts"] == 0 and again["rules"] == [dict(RESTART), own]

    def test_containers_that_restart_in_place_stay(self) -> None:
        given = jobset(pod={"restartPolicy": "OnFailure"})
        made = tolerate_disruptions(given, Disruptions())
        assert made["spec"]["replicatedJobs"] == given["spec"]["replicatedJobs"]
        assert not tolerates(jobs_of(made)[1])

    def test_an_error_that_would_come_again_fails_the_job_at_once(self) -> None:
        fetch, node = jobs_of(fail_at_final_errors(jobset({"backoffLimit": 4})))
        assert fetch.document == jobset()["spec"]["replicatedJobs"][0]
        assert node.job["podFailurePolicy"] == {"rules": [USELESS]} and node.job["backoffLimit"] == 4
        assert node.pod.spec["restartPolicy"] == "Never"
        assert "failurePolicy" not in fail_at_final_errors(jobset())["spec"], (
            "without one, a failed Job fails the JobSet"
        )
        made = fail_at_final_errors(tolerate_disruptions(jobset(), Disruptions()))
        assert made["spec"]["failurePolicy"]["rules"] == [dict(FAIL), dict(RESTART)]
        assert jobs_of(made)[1].job["podFailurePolicy"]["rules"] == [DISRUPTED, STOPPED, USELESS]
        assert review_jobset(made) == []
        in_place = jobset(pod={"restartPolicy": "OnFailure"})
        assert fail_at_final_errors(in_place)["spec"]["replicatedJobs"] == in_place["spec"]["replicatedJobs"]

    @pytest.mark.parametrize(("code", "action"), [(FINAL, "Failed"), (1, "Restart"), (143, "Restart")])
    def test_this_machine_follows_the_rules(self, code: int, action: str) -> None:
        made = JobSet(fail_at_final_errors(tolerate_disruptions(jobset(), Disruptions())))
        made.start_ready(1.0)
        made.jobs[1].pod_failed(0, [Exit("node", code)], 2.0, "team/pod")
        verdict = made.verdict()
        assert verdict is not None and verdict.action == action


PLACE = "expected: s3://BUCKET/PREFIX with letters, digits and . _ = + - only, and without credentials or parameters"


class TestPolicy:
    def test_variables(self) -> None:
        policy = CheckpointPolicy(every="10m", keep=5, grace=120)
        assert policy.check() == []
        assert {each["name"]: each["value"] for each in policy.variables("torch")} == {
            "TRAINER_CHECKPOINT_DIR": "/workspace/output/checkpoints",
            "TRAINER_CHECKPOINT_EVERY": "600",
            "TRAINER_CHECKPOINT_KEEP": "5",
            "TRAINER_CHECKPOINT_GRACE": "120",
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "120",
        }
        names = [each["name"] for each in CheckpointPolicy(steps=500).variables("jax")]
        assert "TRAINER_CHECKPOINT_STEPS" in names and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in names
        assert policy.pod_grace == 130

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"every": "yesterday"}, "every: invalid duration 'yesterday' (expected for example 90s, 15m, 2h)"),
            ({"every": "0s"}, "every: must be at least one second, not '0s'"),
            ({"every": -5}, "every: must be at least one second, not -5"),
            ({"every": 1.5}, "every: must be int or a string, not 1.5"),
            ({"every": "1m", "steps": 5}, "steps: cannot be combined with every. Hint: set only one of the two"),
            ({"steps": 0}, "steps: must be at least 1, not 0"),
            ({"keep": 0}, "keep: must be at least 1, not 0"),
            ({"grace": -1}, "grace: must be at least 0, not -1"),
            ({"grace": "5m"}, "grace: must be int, not '5m'"),
            ({"grace": True}, "grace: must be a number, not True"),
            ({"every": True}, "every: must be a number, not True"),
            ({"grace": 10**6}, "grace: must be at most 604800 seconds (7 days), not 1000000"),
            ({"max_restarts": -1}, "max_restarts: must be at least 0, not -1"),
            ({"to": 3}, "to: must be OutputVolume or a string or Output, not 3"),
            ({"to": "gs://bucket"}, f"to: not a valid S3 location: 'gs://bucket'. Hint: {PLACE}"),
            ({"to": "s3://bucket/../x"}, f"to: not a valid S3 location: 's3://bucket/../x'. Hint: {PLACE}"),
            ({"evry": "1m"}, "evry: unknown field. Hint: did you mean every?"),
        ],
    )
    def test_mistakes(self, given: dict[str, Any], problem: str) -> None:
        assert [str(found) for found in CheckpointPolicy(**given).check()] == [problem]

    def test_the_volume(self) -> None:
        mine = OutputVolume(size="5Gi")
        assert output_of(False, None) is None
        assert output_of(mine, CheckpointPolicy()) is mine
        assert output_of(False, CheckpointPolicy(to=mine)) is mine
        assert isinstance(output_of(False, CheckpointPolicy()), OutputVolume)
        assert isinstance(output_of(True, None), OutputVolume)
        assert output_of(False, CheckpointPolicy(to="s3://bucket/prefix")) is None
        assert output_of(mine, CheckpointPolicy(to="s3://bucket/prefix")) is mine

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("90s", 90), ("1h30m", 5400), ("2d", 172800), ("", None), ("5", None), ("-5m", None), ("1m 30s", None)],
    )
    def test_durations(self, text: str, seconds: int | None) -> None:
        assert parse_duration(text) == seconds


IDS = "`pulumi-trainer runs JOB` lists the ids of a job's runs"


class TestFork:
    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"run": "T4kz"}, f"run: 'T4kz' is not a valid id of a run. Hint: {IDS}"),
            ({"run": 5}, "run: must be a string, not 5"),
            ({"run": "t4kz1f", "step": -1}, "step: must be a number of steps, not -1"),
            ({"run": "t4kz1f", "step": True}, "step: must be a number of steps, not True"),
            ({"run": "t4kz1f", "reset": ["a,b"]}, "reset[0]: must be the name of a part of the checkpoint, not 'a,b'"),
            ({"run": "t4kz1f", "stp": 1}, "stp: unknown field. Hint: did you mean step?"),
        ],
    )  # fmt: skip
    def test_mistakes(self, given: dict[str, Any], problem: str) -> None:
        assert [str(found) for found in Fork(**given).check()] == [problem]

    @pytest.mark.parametrize("named", [{}, {"reset": None}, {"reset": []}])
    def test_nothing_to_reset(self, named: dict[str, Any]) -> None:
        fork = Fork("t4kz1f", **named)
        folders = mounts.Folders({"output": "claim"}, checkpoint=CheckpointPolicy(), fork=fork)
        assert fork.check() == [] and mounts._fork_values(folders, fork).keys() == {"TRAINER_FORK_FOLDER"}

    def test_conflicts_with_other_arguments(self) -> None:
        def problems(**given: Any) -> list[str]:
            return [
                str(found)
                for found in TrainJobArgs("j", runtime="plain", fork=Fork("t4kz1f", reset=["lr"]), **given).check()
            ]

        assert problems() == ["fork: requires a checkpoint policy. Hint: set checkpoint=CheckpointPolicy(...)"]
        with_policy = {"checkpoint": CheckpointPolicy()}
        assert problems(**with_policy) == []
        assert problems(**with_policy, resume=False) == [
            "fork: cannot be combined with resume=. Hint: leave one of the two out"
        ]
        found = problems(
            **with_policy, trainer=TRLTrainer("sft", packages_to_install=["trl"], config={"model_name_or_path": "m"})
        )
        assert found[0].startswith("fork.reset[0]: must be one of optimizer, not 'lr'"), found

    @pytest.mark.parametrize(
        ("to", "folder"), [(None, "/workspace/fork/checkpoints"), ("p/dev/team/j", "p/dev/team/j/" + FORKED)]
    )
    def test_what_a_node_is_told(self, to: str | None, folder: str) -> None:
        saved = to and f"{to}/{ASSIGNED}"
        fork = Fork("t4kz1f", step=20, reset=["lr", "step"])
        folders = mounts.Folders({"output": "claim"}, checkpoint=CheckpointPolicy(), s3_folder=saved, fork=fork)
        assert mounts._fork_values(folders, fork) == {
            "TRAINER_FORK_FOLDER": folder, "TRAINER_FORK_STEP": "20", "TRAINER_FORK_RESET": "lr,step",
        }  # fmt: skip
        _, mounted = mounts._mount_folders(folders)
        origins = [each for each in mounted if each.get("subPath") == FORKED]
        own = {"name": "trainer-output", "mountPath": "/workspace/fork", "readOnly": True, "subPath": FORKED}
        assert origins == ([] if to else [own])
        (problem,) = mounts._fork_problems(folders, None, training=False)
        assert "with an image's own command nothing finds the checkpoint" in str(problem)
        (problem,) = mounts._fork_problems(folders, {"script": "a"}, training=False)
        assert str(problem).startswith("fork.reset: has no effect: the code does not import pulumi_trainer.training")
        assert mounts._fork_problems(folders, {"script": "a"}, training=True) == []


def complete(path: Path, **files: str) -> None:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_text(content)
    marker = {"files": {name: len(content) for name, content in files.items()}}
    (path / ".complete").write_text(json.dumps(marker))


class TestNewestCheckpoint:
    def test_none(self, tmp_path: Path) -> None:
        assert find_checkpoint.newest(str(tmp_path / "checkpoints")) == ""

    def test_the_highest_number_that_is_complete(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for step in (900, 1000, 99):
            complete(tmp_path / f"step-{step}", model="abc")
        (tmp_path / "step-2000").mkdir()
        (tmp_path / "step-3000.tmp").mkdir()
        complete(tmp_path / ".hidden-9000", model="abc")
        complete(tmp_path / "best", model="abc")
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / "step-1000")
        assert capsys.readouterr().err.splitlines() == [
            f"pulumi-trainer: skips {tmp_path}/step-2000: nothing marks it as complete",
            f"pulumi-trainer: resumes from {tmp_path}/step-1000",
        ]

    @pytest.mark.parametrize("found", ["trainer_state.json", ".metadata", "_CHECKPOINT_METADATA"])
    def test_what_tools_mark_as_complete(self, tmp_path: Path, found: str) -> None:
        (tmp_path / "checkpoint-5").mkdir()
        (tmp_path / "checkpoint-5" / found).write_text("{}")
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / "checkpoint-5")
        (tmp_path / "checkpoint-5" / "checkpoint-is-incomplete.txt").touch()
        assert find_checkpoint.newest(str(tmp_path)) == ""

    @pytest.mark.parametrize(
        "break_it",
        [
            lambda path: (path / "model").write_text("ab"),
            lambda path: (path / "model").unlink(),
            lambda path: (path / ".complete").write_text("{"),
            lambda path: (path / ".complete").write_text("[]"),
            lambda path: (path / ".complete").write_text('{"files": 3}'),
            lambda path: (path / ".complete").write_bytes(b"\xff\xfe"),
        ],
    )
    def test_a_damaged_one_is_skipped(self, tmp_path: Path, break_it: Any) -> None:
        for step in (1, 2):
            complete(tmp_path / f"step-{step}", model="abc")
        break_it(tmp_path / "step-2")
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / "step-1")

    def test_garbage_of_the_right_size_is_skipped(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for step in (1, 2):
            points = training_module.Checkpoints(str(tmp_path), keep=3, every=0, steps=0)
            assert points.save({"at": step}, step=step)
        saved = tmp_path / "step-00000002/state.json"
        saved.write_text("x" * saved.stat().st_size)
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / "step-00000001")
        why = "state.json is damaged: its SHA-256 is not that of .complete"
        assert f"skips {saved.parent}: {why}" in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["[]", '{"model": 3}', '{"gone": "0"}', '"x"', "3"])
    def test_digests_that_are_not_valid(self, tmp_path: Path, text: str) -> None:
        for step in (1, 2):
            complete(tmp_path / f"step-{step}", model="abc")
        marker = tmp_path / "step-2/.complete"
        marker.write_text(marker.read_text()[:-1] + f', "sha256": {text}}}')
        expected = "step-2" if text == "[]" else "step-1"
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / expected)

    def test_a_truncated_state_of_transformers_is_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoint-5").mkdir()
        (tmp_path / "checkpoint-5" / "trainer_state.json").write_text('{"global_step": 5')
        assert find_checkpoint.newest(str(tmp_path)) == ""

    def test_files(self, tmp_path: Path) -> None:
        (tmp_path / "model-10.pt").write_text("a")
        (tmp_path / "model-20.pt").touch()
        (tmp_path / "zero_to_fp32.py").write_text("of DeepSpeed")
        assert find_checkpoint.newest(str(tmp_path)) == str(tmp_path / "model-10.pt")


ADOPTS = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Program that becomes another one, which gets the orphans of its children (PR_SET_CHILD_SUBREAPER)."""


class Container:
    """The first process of a container, with the code that a policy ships."""

    def __init__(
        self, folder: Path, program: str, launcher: list[str] | None = None, checkpoints: bool = True,
        install: list[str] | None = None, first: str = "", imports: bool = False,
    ) -> None:  # fmt: skip
        self.checkpoints = folder / "checkpoints"
        place = folder / "code"
        place.mkdir()
        files = user_code.files(
            textwrap.dedent(program), None, install, None, "", checkpoints=checkpoints, training=imports
        )
        launch = json.loads(files["launch.json"])
        files["launch.json"] = json.dumps({**launch, **({"launcher": launcher} if launcher else {})})
        for name, content in files.items():
            (place / name).write_text(content)
        env = {**os.environ, "TRAINER_CHECKPOINT_DIR": str(self.checkpoints), "TRAINER_CHECKPOINT_GRACE": "3"}
        command = [sys.executable, place / "bootstrap.py"]
        if first:
            command = [sys.executable, "-c", first, *command]
        self.process = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out

    def terminate(self) -> tuple[int, str]:
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self.process.send_signal(signal.SIGTERM)
        return self.end()


def training(monkeypatch: pytest.MonkeyPatch, folder: Path, argv: list[str]) -> Any:
    """Return the process that starts a program, before it does. Its module finds the others beside it."""
    monkeypatch.syspath_prepend(code.source_of(code.RUN_FILE).parent)
    monkeypatch.syspath_prepend(Path(find_checkpoint.__file__).parent)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    files = {"TRAINER_STOP_FILE": str(folder / "stop")}
    return importlib.import_module("run_with_checkpoints").Training(argv, files, False)


STOPS = """
    import os, signal, sys, time
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    print("ready", flush=True)
    while not stopped:
        time.sleep(0.01)
    assert os.path.exists(os.environ.get("TRAINER_STOP_FILE", "/"))
"""


class TestFirstProcess:
    def test_a_program_that_stops_counts_as_interrupted(self, tmp_path: Path) -> None:
        assert Container(tmp_path, STOPS).terminate() == (143, "")
        assert [*(tmp_path / "checkpoints").iterdir()] == []

    def test_also_without_a_policy(self, tmp_path: Path) -> None:
        assert Container(tmp_path, STOPS, checkpoints=False).terminate() == (143, "")

    def test_an_error_after_sigterm_is_the_programs_own_without_a_policy(self, tmp_path: Path) -> None:
        assert Container(tmp_path, STOPS + "    sys.exit(5)\n", checkpoints=False).terminate() == (5, "")

    def test_a_program_that_is_done_counts_as_complete(self, tmp_path: Path) -> None:
        done = STOPS + '    open(os.environ["TRAINER_DONE_FILE"], "w").close()\n'
        assert Container(tmp_path, done).terminate() == (0, "")

    def test_a_program_that_stops_because_another_node_has_to(self, tmp_path: Path) -> None:
        stops = 'import os\nopen(os.environ["TRAINER_STOP_FILE"], "w").close()\n'
        assert Container(tmp_path, stops).end() == (143, "")

    def test_a_program_that_goes_on_is_killed_after_its_grace(self, tmp_path: Path) -> None:
        goes_on = """
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ready", flush=True)
            time.sleep(60)
        """
        begun = time.monotonic()
        assert Container(tmp_path, goes_on).terminate() == (143, "")
        assert 2 < time.monotonic() - begun < 30

    def test_a_failure_of_a_peer_that_was_stopped(self, tmp_path: Path) -> None:
        """A node whose peer is evicted fails first; SIGTERM follows, since its Job fails with the peer."""
        container = Container(tmp_path, "import sys\nprint('ready', flush=True)\nsys.exit(1)\n")
        assert container.process.stdout and container.process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        container.process.send_signal(signal.SIGTERM)
        assert container.end() == (143, "")

    @pytest.mark.parametrize("code", [0, 1, 42])
    def test_exit_codes_are_those_of_the_program(self, tmp_path: Path, code: int) -> None:
        assert Container(tmp_path, f"import sys\nsys.exit({code})\n", checkpoints=False).end() == (code, "")

    def test_a_signal_that_ends_the_program_ends_the_container(self, tmp_path: Path) -> None:
        kills = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
        assert Container(tmp_path, kills, checkpoints=False).end() == (-9, "")

    def test_sigterm_that_the_container_has_not_got_is_an_error(self, tmp_path: Path) -> None:
        kills = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
        why = "pulumi-trainer: the program was ended by a SIGTERM that its container did not receive\n"
        assert Container(tmp_path, kills).end() == (1, why)

    @pytest.mark.parametrize("shell", [None, "exec", "", "; exit $?", " || true; echo never"])
    def test_children_of_a_starter_get_the_signal_and_not_the_starter(self, tmp_path: Path, shell: str | None) -> None:
        """Also if a shell starts it."""
        starter = tmp_path / "torchrun"
        starter.write_text(
            f"#!{sys.executable}\n"
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True)\n"
            "code = child.wait()\n"
            "print('starter sees', code, flush=True)\n"
        )
        starter.chmod(0o755)
        launcher = [str(starter)]
        if shell is not None:
            script = f'exec {starter} "$0"' if shell == "exec" else f'{starter} "$0"{shell}'
            launcher = ["bash", "-c", script]
        assert Container(tmp_path, STOPS, launcher).terminate() == (143, "starter sees 0\n")

    @pytest.mark.parametrize("shell", [False, True])
    def test_ranks_that_go_on_are_killed_after_their_grace(self, tmp_path: Path, shell: bool) -> None:
        starter = tmp_path / "torchrun"
        starter.write_text(
            f"#!{sys.executable}\n"
            "import subprocess, sys\n"
            "subprocess.Popen([sys.executable, sys.argv[1]], start_new_session=True).wait()\n"
        )
        starter.chmod(0o755)
        goes_on = """
            import os, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(os.environ["TRAINER_CHECKPOINT_DIR"] + "/pid", "w").write(str(os.getpid()))
            print("ready", flush=True)
            time.sleep(60)
        """
        launcher = ["bash", "-c", f'{starter} "$0"; true'] if shell else [str(starter)]
        begun = time.monotonic()
        assert Container(tmp_path, goes_on, launcher).terminate() == (143, "")
        assert time.monotonic() - begun < 30
        rank = int((tmp_path / "checkpoints" / "pid").read_text())
        assert not psutil.pid_exists(rank) or psutil.Process(rank).status() == psutil.STATUS_ZOMBIE

    @pytest.mark.parametrize("across", [True, False])
    def test_a_container_that_was_killed_leaves_nothing_to_the_next_one(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, across: bool
    ) -> None:
        """With MPI, the folder for the stop file is shared by the nodes; without a temporary folder, too."""
        monkeypatch.syspath_prepend(code.source_of(code.RUN_FILE).parent)
        monkeypatch.syspath_prepend(Path(find_checkpoint.__file__).parent)
        module = importlib.import_module("run_with_checkpoints")
        if not across:
            monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "missing"))
        monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
        first = module.protocol(str(tmp_path / "c"), "", across)["TRAINER_STOP_FILE"]
        Path(first).touch()
        monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
        peer = module.protocol(str(tmp_path / "c"), "", across)["TRAINER_STOP_FILE"]
        Path(peer).touch()
        monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
        assert module.protocol(str(tmp_path / "c"), "", across)["TRAINER_STOP_FILE"] == first
        assert not Path(first).exists() and Path(peer).exists() and len([*(tmp_path / "c").iterdir()]) == 2

    @pytest.mark.parametrize(
        ("argv", "starts"),
        [
            (["torchrun", "main.py"], True),
            (["torchrun", "-m", "mine.train"], True),
            (["python3", "-m", "torch.distributed.run", "main.py"], True),
            (["python3", "-m", "accelerate.commands.launch", "main.py"], True),
            (["python3", "-m", "mine.train"], False),
            (["python3", "torchrun"], False),
        ],
    )
    def test_starters(self, monkeypatch: pytest.MonkeyPatch, argv: list[str], starts: bool) -> None:
        monkeypatch.syspath_prepend(code.source_of(code.RUN_FILE).parent)
        monkeypatch.syspath_prepend(Path(find_checkpoint.__file__).parent)
        assert importlib.import_module("run_with_checkpoints").starts_ranks(argv) is starts

    def test_a_grace_period_of_env_that_is_no_number_is_that_of_the_pod(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("TRAINER_CHECKPOINT_GRACE", "5m")
        assert training(monkeypatch, tmp_path, ["torchrun"]).grace == float("inf")

    @pytest.mark.parametrize("ranks", [[], [8, 9]])
    def test_a_starter_gets_the_signal_once(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ranks: list[int]
    ) -> None:
        """It gets it at once where its children are not known, as on macOS, and otherwise after they have ended: a second signal
        would end torchrun while it waits for ranks that save a checkpoint.
        """
        started, sent = training(monkeypatch, tmp_path, ["torchrun", "main.py"]), []
        started.group, started.running = 7, True
        monkeypatch.setattr(started, "send", lambda pid, number: sent.append(pid))
        monkeypatch.setattr(signal, "setitimer", lambda *_: None)
        monkeypatch.setattr(sys.modules["run_with_checkpoints"], "is_starter", lambda pid: pid == 7)
        monkeypatch.setattr(sys.modules["run_program"], "is_shell", lambda _: False)
        monkeypatch.setattr(sys.modules["run_with_checkpoints"], "children", lambda _: ranks)
        started.stop()
        assert sent == (ranks or [7])
        monkeypatch.setattr(sys.modules["run_with_checkpoints"], "children", lambda _: [])
        for _ in range(20):
            started.tick()
        assert sent == [*ranks, 7]

    def test_a_shell_passes_nothing_on_so_both_get_it(self, tmp_path: Path) -> None:
        script = f"trap 'echo shell got it' TERM; {sys.executable} \"$0\"; echo ended"
        code, out = Container(tmp_path, STOPS, ["bash", "-c", script]).terminate()
        assert (code, sorted(out.splitlines())) == (143, ["ended", "shell got it"])

    @pytest.mark.parametrize("checkpoints", [False, True])
    def test_an_image_with_a_safe_path(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkpoints: bool
    ) -> None:
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        assert Container(tmp_path, "print('runs')\n", checkpoints=checkpoints).end() == (0, "runs\n")

    def test_a_folder_that_cannot_be_used_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoints").touch()
        why = f"pulumi-trainer: TRAINER_CHECKPOINT_DIR '{tmp_path}/checkpoints' cannot be used: File exists\n"
        assert Container(tmp_path, "print('runs')\n").end() == (1, why)

    @pytest.mark.parametrize(
        ("mode", "content", "why"),
        [(0o644, "#!/bin/sh\n", "Permission denied"), (0o755, "echo\n", "Exec format error")],
    )
    def test_a_command_that_cannot_be_started_is_named(self, tmp_path: Path, mode: int, content: str, why: str) -> None:
        script = tmp_path / "run.sh"
        script.write_text(content)
        script.chmod(mode)
        ended = Container(tmp_path, "", [str(script)], checkpoints=False).end()
        assert ended == (1, f"pulumi-trainer: {script} cannot be started: {why}\n")

    def test_while_packages_are_installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernel drops a signal to the first process of a container that has no handler for it."""
        layer = tmp_path / "layer.py"
        layer.write_text("import sys, time\nprint('ready', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
        monkeypatch.setenv(code.LAYER_ENV, str(layer))
        begun = time.monotonic()
        assert Container(tmp_path, "raise SystemExit(3)\n", install=["torch"]).terminate() == (143, "")
        assert time.monotonic() - begun < 30

    @pytest.mark.parametrize(
        ("node", "checkpoints", "imports", "reports"),
        [
            ("0", True, False, True),
            ("0", False, True, True),
            ("0", False, False, False),
            ("1", True, True, False),
            ("0, the first of its role", True, True, False),
        ],
    )
    def test_a_log_shows_that_its_program_should_report(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        node: str,
        checkpoints: bool,
        imports: bool,
        reports: bool,
    ) -> None:
        monkeypatch.setenv("TRAINER_RUN_ID", "t4kz1f")
        index, _, follows = node.partition(", ")
        monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
        monkeypatch.setenv("TRAINER_NODE_OFFSET", str(int(bool(follows))))
        program = "print('begins')"
        code, out = Container(tmp_path, program, checkpoints=checkpoints, imports=imports).end()
        first, *rest = out.splitlines()
        assert (code, rest[-1:] or [first]) == (0, ["begins"])
        assert (progress(first.encode(), 1.0) is not None) == reports, out

    @pytest.mark.parametrize("checkpoints", [False, True])
    @pytest.mark.parametrize(("code", "ends"), [(1, FINAL), (0, 0)])
    def test_an_error_that_would_come_again_has_a_code_of_its_own(
        self, tmp_path: Path, checkpoints: bool, code: int, ends: int
    ) -> None:
        program = f"""
            import os
            from pulumi_trainer import training
            open(os.environ["TRAINER_FINAL_FILE"], "w").close()
            raise SystemExit({code})
        """
        assert Container(tmp_path, program, checkpoints=checkpoints, imports=True).end() == (ends, "")

    @pytest.mark.skipif(
        sys.platform != "linux", reason="elsewhere nobody knows the children of a shell, and all get it"
    )
    @pytest.mark.parametrize("shell", ["bash -c", "a script"])
    def test_a_shell_and_its_program_get_it_and_no_worker_of_the_program(self, tmp_path: Path, shell: str) -> None:
        """The training fails if a worker of a DataLoader ends."""
        worker = tmp_path / "worker.py"
        worker.write_text("import sys\nsys.stdin.read()\n")
        trains = f"""
            import subprocess, sys
            worker = subprocess.Popen([sys.executable, {str(worker)!r}], stdin=subprocess.PIPE)
        """
        saves = '    worker.stdin.close()\n    print("saved, worker", worker.wait(), flush=True)\n'
        script = tmp_path / "run.sh"
        script.write_text(f'#!/bin/bash\n({sys.executable} "$@"; true)\necho never\n')
        script.chmod(0o755)
        launcher = (
            [str(script)] if shell == "a script" else ["bash", "-c", f'({sys.executable} "$0"; true); echo never']
        )
        program = textwrap.dedent(trains) + textwrap.dedent(STOPS + saves)
        assert Container(tmp_path, program, launcher).terminate() == (143, "saved, worker 0\n")

    def test_a_slow_end_of_the_first_process_is_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Python gives signals back to the kernel while it ends, and the timer of the grace period would end it."""
        slow = """
            import builtins, time
            class Slow:
                def __del__(self, sleep=time.sleep):
                    sleep(1.5)
            builtins.slow = Slow()
        """
        (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(slow))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert Container(tmp_path, STOPS).terminate() == (143, "")

    def test_what_a_shell_leaves_has_its_grace_too(self, tmp_path: Path) -> None:
        saves = STOPS + '    time.sleep(1)\n    print("saved", flush=True)\n'
        launcher = ["bash", "-c", f'{sys.executable} "$0"; echo never']
        assert Container(tmp_path, saves, launcher).terminate() == (143, "saved\n")

    @pytest.mark.parametrize("checkpoints", [True, False])
    def test_a_helper_that_a_program_leaves_keeps_nobody_waiting(self, tmp_path: Path, checkpoints: bool) -> None:
        quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
        leaves = f"\n    import subprocess\n    subprocess.Popen(['sleep', '20'], {quiet})\n"
        begun = time.monotonic()
        assert Container(tmp_path, leaves + STOPS, checkpoints=checkpoints).terminate() == (143, "")
        assert time.monotonic() - begun < 18

    @pytest.mark.skipif(
        sys.platform != "linux", reason="only Linux gives orphans to a process other than the first one"
    )
    @pytest.mark.parametrize("checkpoints", [True, False])
    def test_orphans_of_the_program_are_reaped(self, tmp_path: Path, checkpoints: bool) -> None:
        """As in a container, whose first process inherits them."""
        program = """
            import os, subprocess, sys, time
            orphan = "import os; os.fork() and os._exit(0); print(os.getpid(), flush=True)"
            pid = subprocess.run([sys.executable, "-c", orphan], capture_output=True, text=True, check=True).stdout.strip()
            deadline = time.monotonic() + 20
            while os.path.exists("/proc/" + pid) and time.monotonic() < deadline:
                time.sleep(0.05)
            print("reaped" if not os.path.exists("/proc/" + pid) else open("/proc/" + pid + "/stat").read(), flush=True)
        """
        assert Container(tmp_path, program, checkpoints=checkpoints, first=ADOPTS).end() == (0, "reaped\n")

    def test_other_signals_are_passed_on(self, tmp_path: Path) -> None:
        waits = """
            import signal, sys
            signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
            print("ready", flush=True)
            signal.pause()
        """
        container = Container(tmp_path, waits, checkpoints=False)
        assert container.process.stdout and container.process.stdout.readline() == "ready\n"
        container.process.send_signal(signal.SIGUSR1)
        assert container.end() == (7, "")
