"""`pulumi_trainer.training` in one process without torch: what it saves, what a kill leaves, and how it gets into a job."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import types
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.args.project import Source
from pulumi_trainer.args.trainers import CustomTrainer
from pulumi_trainer.code import imports, user_code
from pulumi_trainer.code.compiled import Compiled
from pulumi_trainer.provider.jobs.progress import progress as parsed
from pulumi_trainer.provider.pod import code, training
from pulumi_trainer.provider.pod.shared import find_checkpoint, training_files, training_stop

SOURCE = Path(training.__file__).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The state of a process that has just started, outside of a job."""
    for name in [name for name in os.environ if name.startswith("TRAINER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(training, "_known", {})
    monkeypatch.setattr(training_stop, "stop", training_stop.Stop())
    monkeypatch.setattr(training, "_shown", training._Shown())
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of checkpoints of a job with a policy."""
    folder = tmp_path / "checkpoints"
    for name, value in {
        "CHECKPOINT_DIR": folder, "CHECKPOINT_KEEP": 2, "STOP_FILE": tmp_path / "stop", "DONE_FILE": tmp_path / "done",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"TRAINER_{name}", str(value))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestCheckpoints:
    def test_outside_of_a_job_nothing_happens(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = training.checkpoints()
        assert found.latest() is None and found.load() is None and not found.due(1) and found.wait()
        assert not found.save({"a": 1}, step=1) and not training.should_stop()
        training.done()
        assert not names(tmp_path)

    def test_progress_names_the_checkpoint_that_is_in_s3(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINER_CHECKPOINT_TO", "s3://bucket/prefix")

        def shown() -> Any:
            monkeypatch.setattr(training, "_shown", training._Shown())
            training.progress(step=11)
            return json.loads(capsys.readouterr().out)["trainerStatus"].get("checkpoint", {}).get("step")

        assert training.checkpoints().save({"total": 1}, step=10)
        assert shown() is None, "a stop would lose what is only on this node"
        (job / ".uploaded").write_text("step-00000010")
        assert training.checkpoints().save({"total": 2}, step=11)
        assert shown() == 10
        (job / ".uploaded").write_text("?")
        assert shown() is None

    def test_what_is_saved_is_loaded_by_the_next_attempt(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert training.checkpoints().load() is None
        for step in (5, 10, 15):
            assert training.checkpoints().save({"total": step}, step=step)
            assert training.checkpoints().latest() == str(job / f"step-{step:08}")
        assert names(job) == ["step-00000010", "step-00000015"]
        newest = find_checkpoint.newest(str(job))
        assert newest == str(job / "step-00000015")
        monkeypatch.setattr(training, "_known", {})
        monkeypatch.setenv("TRAINER_RESUME_FROM", newest)
        assert training.checkpoints().latest() == newest
        assert training.checkpoints().load() == {"step": 15, "total": 15}

    def test_arguments_that_differ_are_named(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def attempt(step: int, **arguments: Any) -> Any:
            training._known.clear()
            points = training.checkpoints()
            found = points.load(arguments=arguments or None)
            points.save({"at": step}, step=step)
            monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / f"step-{step:08}"))
            return found

        assert attempt(1, lr=0.1, batch=[8, 4]) is None
        assert attempt(2, lr=0.1, batch=(8, 4)) == {"at": 1, "step": 1, "differs": {}}
        assert capsys.readouterr().err == ""
        assert attempt(3, lr=0.0001, seed=1)["differs"] == {"lr": 0.1, "batch": [8, 4]}
        said = "pulumi-trainer: the checkpoint of step 2 was saved with lr 0.1 (now 0.0001), batch [8, 4] (now None)\n"
        assert capsys.readouterr().err == said
        assert attempt(4) == {"at": 3, "step": 3}
        assert attempt(5, lr=1.0)["differs"] == {}, "of the checkpoint before, nobody knows the arguments"
        with pytest.raises(ValueError, match="the arguments must be JSON"):
            attempt(6, lr=object())

    def test_a_fork_takes_what_it_does_not_reset(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        class Part:
            def __init__(self, **values: Any) -> None:
                vars(self).update(values)

            def state_dict(self) -> dict[str, Any]:
                return vars(self)

            def load_state_dict(self, state: dict[str, Any]) -> None:
                vars(self).update(state)

        def state(lr: float, total: int = 0) -> dict[str, Any]:
            group = {"lr": lr, "initial_lr": lr, "decay": lr}
            return {"optimizer": Part(param_groups=[group]), "schedule": Part(base_lrs=[lr], at=0), "total": total}

        origin = state(0.4, total=7)
        origin["schedule"].at = 20
        origin["optimizer"].param_groups[0]["lr"] = 0.2  # by its schedule
        training.checkpoints(tmp_path / "origin").save(origin, step=20)
        start = str(tmp_path / "origin" / "step-00000020")
        monkeypatch.setenv("TRAINER_RESUME_FROM", start)

        def forked(reset: str) -> Any:
            training._known.clear()
            monkeypatch.setenv("TRAINER_RESET", reset)
            found = training.checkpoints().load(state(0.04))
            assert found is not None
            group = found["optimizer"].param_groups[0]
            return (
                group["lr"],
                group["decay"],
                found["schedule"].base_lrs[0],
                found["schedule"].at,
                found["total"],
                found["step"],
            )

        assert forked("") == (0.2, 0.4, 0.4, 20, 7, 20)
        assert forked("lr") == (pytest.approx(0.02), 0.4, 0.04, 20, 7, 20), "half of it, as by its schedule"
        assert forked("lr,schedule") == (0.04, 0.4, 0.04, 0, 7, 20)
        assert forked("decay,total") == (0.2, 0.04, 0.4, 20, 0, 20)
        assert forked("optimizer,step") == (0.04, 0.04, 0.4, 20, 7, 0)
        final = tmp_path / "final"
        monkeypatch.setenv("TRAINER_FINAL_FILE", str(final))
        assert not final.exists()
        with pytest.raises(ValueError, match=r"unknown name in Fork\(reset=\['batch', 'size'\]\)") as wrong:
            forked("batch,lr,size")
        assert str(wrong.value).endswith("can reset: decay, initial_lr, lr, optimizer, schedule, step, total")
        assert final.exists(), "no other attempt follows"
        final.unlink()
        training._known.clear()
        monkeypatch.setenv("TRAINER_RESET", "total")
        with pytest.raises(
            ValueError, match=r"load\(\) knows no other value. Hint: give it one, load\({'total': ...}\)"
        ):
            training.checkpoints().load()
        assert final.exists(), "the program would end with a KeyError, again and again"
        training._known.clear()
        monkeypatch.setenv("TRAINER_RESET", "lr")
        own = training.checkpoints()
        assert own.save(state(0.1), step=21)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        training._known.clear()
        found = training.checkpoints().load(state(0.04))
        assert found is not None and found["optimizer"].param_groups[0]["lr"] == 0.1, "of its own checkpoint, all"

    def test_a_fork_of_transformers_resets_its_optimizer_alone(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        module = types.ModuleType("transformers")
        module.TrainerCallback = object  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "transformers", module)
        start = job / "checkpoint-10"
        start.mkdir(parents=True)
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(start))

        def begin(reset: str, step: int = 10) -> dict[str, int]:
            monkeypatch.setenv("TRAINER_RESET", reset)
            optimizer, state = SimpleNamespace(state={"exp_avg": 1}), SimpleNamespace(global_step=step, max_steps=20)
            training.callback().on_train_begin(None, state, None, optimizer=SimpleNamespace(optimizer=optimizer))
            return optimizer.state

        assert begin("") == {"exp_avg": 1} and begin("optimizer") == {}
        assert "the optimizer starts anew (Fork)" in capsys.readouterr().out
        with pytest.raises(ValueError, match=r"unknown name in Fork\(reset=\['lr'\]\).*can reset: optimizer"):
            begin("lr,optimizer")

    def test_a_damaged_checkpoint_of_transformers_is_skipped(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        module = types.ModuleType("transformers")
        module.TrainerCallback = object  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "transformers", module)
        callback, args = training.callback(), SimpleNamespace(output_dir=str(job))
        for step in (10, 20):
            state = SimpleNamespace(global_step=step, max_steps=20)
            made = job / f"checkpoint-{step}"
            (made / "global_step").mkdir(parents=True)
            (made / "global_step" / "shard.pt").write_text("0" * 64)
            (made / "model.safetensors").write_text(str(step) * 32)
            (made / "trainer_state.json").write_text("{}")
            callback.on_save(args, state, None)
            (made / "model.safetensors").write_text(str(step + 1) * 32)  # a later callback of on_save
            assert not (made / ".complete").exists()
            (callback.on_train_end if step == 20 else callback.on_step_begin)(args, state, None)
            assert find_checkpoint.newest(str(job)) == str(made)
        (job / "checkpoint-20" / "global_step" / "shard.pt").write_text("0" * 63 + "1")
        assert find_checkpoint.newest(str(job)) == str(job / "checkpoint-10"), "of the right size, but damaged"
        assert "global_step/shard.pt is damaged" in capsys.readouterr().err
        left = sorted(path.name for path in (job / "checkpoint-10").iterdir())
        assert left == [".complete", "global_step", "model.safetensors", "trainer_state.json"]
        (job / "checkpoint-20" / ".tmp-marker").write_text("of a process that was killed")
        callback.on_save(args, SimpleNamespace(global_step=20), None)
        callback.on_train_end(args, SimpleNamespace(global_step=20), None)
        assert find_checkpoint.newest(str(job)) == str(job / "checkpoint-20"), "as another run has saved it again"

    def test_a_folder_of_the_program(self, tmp_path: Path, job: Path) -> None:
        assert training.checkpoints(tmp_path / "own").save({"a": 1}, step=3)
        training._known.clear()
        assert training.checkpoints(tmp_path / "own").load() == {"step": 3, "a": 1} and not job.exists()

    def test_objects_with_a_state_take_it(self, job: Path) -> None:
        class Schedule:
            rate = 1.0

            def state_dict(self) -> dict[str, float]:
                return {"rate": self.rate}

            def load_state_dict(self, state: dict[str, float]) -> None:
                self.rate = state["rate"]

        first, second = Schedule(), Schedule()
        first.rate = 0.5
        training.checkpoints().save({"schedule": first, "seed": 7}, step=1)
        found = training.checkpoints().load({"schedule": second})
        assert found == {"schedule": second, "seed": 7, "step": 1} and second.rate == 0.5

    def test_an_object_that_the_checkpoint_lacks_is_an_error(self, job: Path) -> None:
        """It would train on with the values that it was made with."""

        class Model:
            taken = False

            def state_dict(self) -> dict[str, int]:
                return {"w": 7}

            def load_state_dict(self, _: dict[str, int]) -> None:
                self.taken = True

        training.checkpoints().save({"model": Model(), "step": 3}, step=100)
        model = Model()
        with pytest.raises(
            ValueError, match=r"has no 'net' to load; it has 'model', 'step': load\(state\) takes the names"
        ):
            training.checkpoints().load({"model": model, "net": Model()})
        assert not model.taken
        found = training.checkpoints().load({"model": model})
        assert found == {"model": model, "step": 100} and model.taken

    def test_ranks_that_torchrun_starts_again_go_on_from_the_newest(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        training.checkpoints().save({"total": 1}, step=500)
        monkeypatch.setattr(training, "_known", {})
        assert training.checkpoints().load() is None, "the container started without any"
        monkeypatch.setattr(training, "_known", {})
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        assert training.checkpoints().load() == {"step": 500, "total": 1}

    def test_garbage_of_the_right_size_is_read_once_by_the_ranks_of_a_node(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for step in (10, 20):
            training.checkpoints().save({"total": step}, step=step)
        marker = json.loads((job / "step-00000020/.complete").read_text())
        body = (job / "step-00000020/state.json").read_bytes()
        assert marker["sha256"] == {"state.json": sha256(body).hexdigest()}
        (job / "step-00000020/state.json").write_bytes(b"x" * len(body))
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        read: list[str] = []
        digest = find_checkpoint.digest
        monkeypatch.setattr(find_checkpoint, "digest", lambda path: (read.append(path), digest(path))[1])
        for _ in range(4):
            monkeypatch.setattr(training, "_known", {})
            assert training.checkpoints().load() == {"step": 10, "total": 10}
        assert read == [str(job / f"step-{step:08}/state.json") for step in (20, 10)]
        monkeypatch.delenv("TRAINER_STOP_FILE")
        monkeypatch.setattr(training, "_known", {})
        assert training.checkpoints().load() == {"step": 10, "total": 10} and len(read) == 4

    def test_ranks_leave_the_digests_of_what_they_have_written(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody reads the part of another node."""
        made = job / ".tmp-step"
        made.mkdir(parents=True)
        for name in ("__0_0.distcp", "__1_0.distcp", "__10_0.distcp", ".metadata"):
            (made / name).write_text(name)
        for rank in (0, 1, 10):
            monkeypatch.setenv("RANK", str(rank))
            training_files.leave_digests(str(made))
        read: list[str] = []
        digest = find_checkpoint.digest
        monkeypatch.setattr(find_checkpoint, "digest", lambda path: (read.append(path), digest(path))[1])
        training_files.complete(str(made), str(job / "step-00000001"), 1, {})
        assert read == [str(made / ".metadata")]
        marker = json.loads((job / "step-00000001/.complete").read_text())
        assert marker["sha256"] == {name: sha256(name.encode()).hexdigest() for name in marker["files"]}
        assert len(marker["files"]) == 4 and not find_checkpoint.damage(str(job / "step-00000001"))

    @pytest.mark.parametrize("restarts", ["0", "1"])
    def test_a_checkpoint_that_is_gone_is_an_error(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, restarts: str
    ) -> None:
        """Training would start at the beginning, and its checkpoints would replace those of the one before."""
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000100"))
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        for call in (training.checkpoints().load, training.checkpoints().latest):
            with pytest.raises(
                RuntimeError, match=r"resumes from .*step-00000100 \(TRAINER_RESUME_FROM\), which does not"
            ):
                call()
        training.progress(step=1)
        assert training.checkpoints().save({"a": 1}, step=200)

    @pytest.mark.parametrize("resumed", [True, False])
    @pytest.mark.parametrize("parts", [{}, {"nodes": 2}])
    def test_ranks_that_torchrun_starts_again_on_several_nodes(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool, parts: dict[str, int]
    ) -> None:
        """With S3, each node has a folder of its own, and what it has saved may not be on the others."""
        monkeypatch.setenv("TRAINER_CHECKPOINT_TO", "s3://bucket/prefix")
        monkeypatch.setenv("TRAINER_NUM_NODES", "2")
        training.checkpoints().save({"a": 1}, step=100)
        if resumed:
            monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000100"))
        else:
            (job / "step-00000100").rename(job / ".before")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        monkeypatch.setattr(training, "_known", {})
        assert training.checkpoints().load() == ({"step": 100, "a": 1} if resumed else None), "nothing is saved since"
        for step in (200, 300, 400):
            training.checkpoints().save({"a": 1}, step=step)
            marker = job / f"step-{step:08}/.complete"
            marker.write_text(json.dumps({**json.loads(marker.read_text()), **parts}))
        monkeypatch.setattr(training, "_known", {})
        with pytest.raises(RuntimeError, match="has newer checkpoints than the one that this attempt has started from"):
            training.checkpoints().load()

    def test_a_step_is_saved_once(self, job: Path) -> None:
        training.checkpoints().save({"a": 1}, step=1)
        before = (job / "step-00000001/state.json").stat()
        assert training.checkpoints().save({"a": 2}, step=1)
        assert (job / "step-00000001/state.json").stat() == before

    def test_what_an_earlier_run_has_left_is_replaced(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next run starts from the beginning: its program does not call `load`."""
        for run in ("old", "new"):
            monkeypatch.setattr(training, "_known", {})
            for step in (1, 2, 3, 4):
                assert training.checkpoints().save({"run": run}, step=step)
                kept = [json.loads((job / name / "state.json").read_text())["run"] for name in names(job)]
                assert kept.count(run) == min(step, 2), "old ones with a higher number do not count"
            monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000004"))
        assert kept == ["new", "new"]

    def test_a_step_that_was_loaded_is_not_written_again(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert training.checkpoints().save({"a": 1}, step=5)
        monkeypatch.setattr(training, "_known", {})
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000005"))
        assert training.checkpoints().load() == {"step": 5, "a": 1}
        assert training.checkpoints().save({"a": 2}, step=5) and training.checkpoints().load() == {"step": 5, "a": 1}

    def test_a_damaged_one_is_replaced(self, job: Path) -> None:
        training.checkpoints().save({"a": 1}, step=1)
        (job / "step-00000001/state.json").write_text("{")
        assert training.checkpoints().save({"a": 2}, step=1)
        assert training.checkpoints().load() == {"step": 1, "a": 2} and names(job) == ["step-00000001"]

    def test_what_others_write_stays(self, job: Path) -> None:
        for name in ("checkpoint-1", "step-00000001", ".tmp-step-00000002-aa", "step-2.tmp"):
            (job / name).mkdir(parents=True)
        old = job / ".tmp-step-00000001-bb"
        old.mkdir()
        (old / "state.json").touch()
        for path in (old, old / "state.json"):
            os.utime(path, (time.time() - 7200,) * 2)
        for step in (10, 11, 12):
            training.checkpoints().save({}, step=step)
        assert names(job) == [
            ".tmp-step-00000002-aa", "checkpoint-1", "step-00000001", "step-00000011", "step-00000012", "step-2.tmp",
        ]  # fmt: skip

    def test_a_full_disk_leaves_the_earlier_ones(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        training.checkpoints().save({"a": 1}, step=1)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(json, "dump", full)
            assert training.checkpoints().save({"a": 2}, step=2) is False
        said = capsys.readouterr().err
        assert (
            said
            == "pulumi-trainer: checkpoint of step 2 failed: [Errno 28] No space left on device; training goes on\n"
        )
        assert names(job) == ["step-00000001"] and training.checkpoints().latest() == str(job / "step-00000001")
        assert training.checkpoints().save({"a": 3}, step=3)

    def test_a_folder_that_cannot_be_made(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        job.write_text("a file")
        assert not training.checkpoints().save({}, step=1)
        assert "checkpoint of step 1 failed" in capsys.readouterr().err

    @pytest.mark.parametrize("step", [-1, 1.0, True, "1"])
    def test_a_wrong_step(self, step: Any) -> None:
        with pytest.raises(ValueError, match="step must be"):
            training.checkpoints().save({}, step=step)

    def test_a_state_without_names(self) -> None:
        class Model:
            state_dict = __call__ = dict

        for wrong in ([1], Model()):
            with pytest.raises(ValueError, match=f"must be a dict or a function, not {type(wrong).__name__}"):
                training.checkpoints().save(wrong, step=1)  # type: ignore[arg-type]

    def test_a_function_writes_and_reads_the_files(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(folder: str) -> None:
            assert Path(folder).name.startswith(".")
            Path(folder, "weights").write_text("of another library")

        assert training.checkpoints().save(write, step=5)
        assert not find_checkpoint.fault(str(job / "step-00000005")), "it is complete"
        training._known.clear()
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000005"))
        read: list[str] = []
        load = training.checkpoints().load
        assert load(lambda folder: read.append(Path(folder, "weights").read_text())) == {"step": 5}
        assert read == ["of another library"]
        monkeypatch.setenv("TRAINER_RESET", "step")
        assert load(read.append) == {"step": 0}
        monkeypatch.setenv("TRAINER_RESET", "lr")
        with pytest.raises(ValueError, match="this program can reset: step"):
            load(read.append)

    def test_one_rank_calls_a_function_where_torch_connects_none(
        self, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
        assert training.checkpoints().save(pytest.fail, step=5)
        assert not job.exists()

    def test_a_checkpoint_of_another_library(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (job / "checkpoint-5").mkdir(parents=True)
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "checkpoint-5"))
        assert training.checkpoints().latest() == str(job / "checkpoint-5")
        with pytest.raises(ValueError, match="was not made by save"):
            training.checkpoints().load()

    def test_when_one_is_due(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not training.checkpoints().due(10)
        training._known.clear()
        monkeypatch.setenv("TRAINER_CHECKPOINT_STEPS", "5")
        assert [step for step in range(1, 13) if training.checkpoints().due(step)] == [5, 10]
        training.checkpoints().save({}, step=10)
        assert not training.checkpoints().due(10)
        training._known.clear()
        monkeypatch.delenv("TRAINER_CHECKPOINT_STEPS")
        monkeypatch.setenv("TRAINER_CHECKPOINT_EVERY", "600")
        now = time.monotonic()
        assert not training.checkpoints().due(11)
        monkeypatch.setattr(time, "monotonic", lambda: now + 601)
        assert training.checkpoints().due(11)
        training.checkpoints().save({}, step=11)
        assert not training.checkpoints().due(12)


def killed_after(lines: int, folder: Path, step: int) -> None:
    """Save a checkpoint in a process that ends without any clean-up at one of its lines."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    left = lines

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_filename.endswith(("training.py", "shutil.py", "json/encoder.py")):
            left -= 1
            if left == 0:
                os._exit(0)
        return trace

    sys.settrace(trace)
    try:
        training.Checkpoints(str(folder), keep=1, every=0, steps=0).save({"value": step}, step=step)
    finally:
        os._exit(0)


@settings(max_examples=60)
@given(st.integers(1, 520))
def test_a_kill_at_any_line_leaves_a_complete_checkpoint(lines: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        training.Checkpoints(made, keep=2, every=0, steps=0).save({"value": 1}, step=1)
        training.Checkpoints(made, keep=2, every=0, steps=0).save({"value": 2}, step=2)
        killed_after(lines, folder, 3)
        newest = Path(find_checkpoint.newest(made))
        step = int(newest.name[5:])
        assert step in (2, 3) and json.loads((newest / "state.json").read_text()) == {"value": step}
        assert training.Checkpoints(made, keep=1, every=0, steps=0).save({"value": 4}, step=4)
        assert [name for name in names(folder) if name[0] != "."] == ["step-00000004"]


def test_the_lines_end_after_the_checkpoint(tmp_path: Path) -> None:
    """The kills above reach until the end."""
    training.Checkpoints(str(tmp_path), keep=1, every=0, steps=0).save({}, step=1)
    killed_after(150, tmp_path, 2)
    assert "step-00000002" not in names(tmp_path)
    killed_after(520, tmp_path, 2)
    assert [name for name in names(tmp_path) if name[0] != "."] == ["step-00000002"]


class TestStop:
    def test_sigterm(self, job: Path) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert not training.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert training.should_stop() and training.should_stop(every=10)
        assert (job.parent / "stop").exists() and not (job.parent / "done").exists()
        training.done()
        assert (job.parent / "done").exists()

    def test_processes_that_it_forks_end_at_sigterm(self, job: Path) -> None:
        """`Process.terminate()` and the end of a pool of processes wait for that."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert not training.should_stop()
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)
        assert training.should_stop()

    def test_the_file_of_the_container(self, job: Path) -> None:
        assert not training.should_stop()
        (job.parent / "stop").touch()
        assert training.should_stop()

    def test_a_handler_of_the_program_stays(self, job: Path) -> None:
        got = []
        signal.signal(signal.SIGTERM, lambda *_: got.append(True))
        assert not training.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert got == [True] and not training.should_stop()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
class TestEnd:
    HEAD = """
        import hashlib, os, threading
        from pulumi_trainer.provider.pod import training

        def gloo():
            with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
                file.write("pt_gloo_runloop")
            begun.set()
            work()

        begun = threading.Event()
        threading.Thread(target=gloo, daemon=True).start()
        begun.wait()
    """

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(self.HEAD)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    def test_threads_of_gloo_finish_what_they_do(self) -> None:
        """As theirs, this thread runs without the GIL, needs it once more, and waits for the next collective."""
        done = self.run("""
            def work():
                hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
                os.write(1, b"freed")
                threading.Event().wait()
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "freed", "")

    def test_one_that_never_waits_does_not_keep_the_process(self) -> None:
        done = self.run("""
            def work():
                training.wait_for_gloo.THREAD_SECONDS = 0.2
                while True:
                    hashlib.pbkdf2_hmac("sha256", b"", b"", 1000)
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class TestProgress:
    def lines(self, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        found = [parsed(line.encode(), 0) for line in capsys.readouterr().out.splitlines()]
        return [each for each in found if each is not None]

    def test_all_of_it(self, job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        training.checkpoints().save({}, step=20)
        for step in range(20, 101):
            training.progress(step=step, total=100, loss=1 / step, epoch=1, note="x" * 70)
            now[0] += 0.5
        found = self.lines(capsys)
        assert [each["step"] for each in found] == [*range(20, 101, 10)]
        assert found[1]["estimatedRemainingSeconds"] == 35 and found[1]["progressPercentage"] == 30
        assert found[1]["metrics"] == {"loss": "0.0333333", "epoch": "1", "note": "x" * 64}
        assert found[1]["checkpoint"]["step"] == 20
        assert abs(time.time() - time.mktime(time.strptime(found[1]["checkpoint"]["time"], "%Y-%m-%dT%H:%M:%SZ"))) < 1e5

    def test_it_has_the_step_from_which_it_has_resumed(
        self, job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        training.checkpoints().save({}, step=7)
        monkeypatch.setenv("TRAINER_RESUME_FROM", str(job / "step-00000007"))
        training._known.clear()
        assert training.checkpoints().load() == {"step": 7}
        training.progress(step=7, total=7)
        assert json.loads(capsys.readouterr().out)["trainerStatus"]["resumedFrom"] == 7

    def test_the_last_one_is_printed_when_the_program_ends(self, job: Path) -> None:
        program = """
            from pulumi_trainer import training
            kept = training.checkpoints()
            for step in range(1, 8):
                training.progress(step=step, total=100, loss=1 / step)
                END
            """
        ends = {
            "if step == 7: kept.save({}, step=7)": 7,
            "kept.save({}, step=step)": 7,
            "if step == 3: raise ValueError": 3,
        }
        for end, step in ends.items():
            code = textwrap.dedent(program).replace("END", end)
            done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, text=True)
            lines = [json.loads(line)["trainerStatus"] for line in done.stdout.splitlines()]
            assert [line["step"] for line in lines] == [1, step], lines
            assert lines[-1].get("checkpoint", {}).get("step") == (7 if "save" in end else None), lines
        code = textwrap.dedent(program).replace("END", "pass").replace("step=step", "step=1")
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
        assert done.stdout.count("trainerStatus") == 1, "nothing is printed twice"

    def test_a_program_that_does_no_step_after_its_checkpoint_says_so(self, job: Path) -> None:
        training.checkpoints().save({"total": 1}, step=40)
        program = """
            from pulumi_trainer import training
            points = training.checkpoints()
            points.load()
            for step in range(41, 1 + LAST):
                STEP
            """
        environment = {**os.environ, "TRAINER_RESUME_FROM": str(job / "step-00000040")}

        def printed(last: int, step: str, **more: str) -> list[Any]:
            code = textwrap.dedent(program).replace("LAST", str(last)).replace("STEP", step)
            done = subprocess.run(
                [sys.executable, "-c", code], env={**environment, **more}, stdout=subprocess.PIPE, check=True, text=True
            )
            return [json.loads(line)["trainerStatus"] for line in done.stdout.splitlines()]

        (report,) = printed(40, "pass")
        assert (report["step"], report["resumedFrom"], report["checkpoint"]["step"]) == (40, 40, 40)
        assert printed(40, "pass", RANK="1") == []
        for step in ("points.due(step)", "training.should_stop()", "points.save({}, step=step)"):
            assert printed(41, step) == [], "it trains, and reports no progress"

    def test_other_ranks_print_nothing(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX", "TRAINER_NODE_OFFSET"):
            with monkeypatch.context() as patched:
                patched.setenv(name, "1")
                training.progress(step=1)
        assert not capsys.readouterr().out
        training.progress(step=1)
        assert self.lines(capsys) == [{"step": 1, "metrics": {}, "lastUpdatedTime": "1970-01-01T00:00:00Z"}]


class TestTravel:
    @pytest.fixture(autouse=True)
    def loop(self) -> Iterator[None]:
        """The loop of a program, which another test may have closed."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        yield
        asyncio.set_event_loop(None)
        loop.close()

    @pytest.mark.parametrize(
        ("line", "travels"),
        [
            ("from pulumi_trainer import training", True),
            ("from pulumi_trainer import training as t", True),
            ("import pulumi_trainer.training", True),
            ("from pulumi_trainer.training import progress", True),
            ("def train():\n    import os, pulumi_trainer.training as t", True),
            ("import pulumi_trainer", False),
            ("from pulumi_trainer import TrainJob", False),
            ("from .pulumi_trainer import training", False),
            ("# import pulumi_trainer.training", False),
            ("import training", False),
            ("import pulumi_trainer.training (", False),
        ],
    )
    def test_which_imports_take_it_along(self, line: str, travels: bool) -> None:
        assert imports.imports_training(line) is travels
        assert imports.imports_training(line.encode()) is travels

    def test_only_other_imports_are_warned_about(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(imports, "_is_installed", lambda _: False)
        monkeypatch.setattr(imports, "packages_distributions", dict)
        imports._file_of_program.cache_clear()
        imports._found.cache_clear()
        text = "from pulumi_trainer import training\nimport pulumi_trainer.training\nfrom pulumi_trainer import training, x\n"
        found = imports.missing_imports("func", text + "import pulumi_trainer\n", tmp_path / "a.py")
        imports._file_of_program.cache_clear()
        imports._found.cache_clear()
        assert [problem.why.split(" from ")[0] for problem in found] == [
            "a.py:3 imports pulumi_trainer", "a.py:4 imports pulumi_trainer",
        ]  # fmt: skip

    def test_only_code_that_imports_it_takes_it_along(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text("import b\n")
        (tmp_path / "b.py").write_text("from pulumi_trainer import training\n")
        (tmp_path / "c.py").write_text("print(1)\n")

        async def compiled_in_a_loop(trainer: CustomTrainer) -> Compiled:
            return user_code.compile_trainer(trainer, {}, None)

        def travels(trainer: CustomTrainer) -> bool:
            compiled = asyncio.run(compiled_in_a_loop(trainer))
            assert not compiled.problems and not compiled.warnings
            return compiled.training

        assert travels(CustomTrainer(script=str(tmp_path / "b.py")))
        assert not travels(CustomTrainer(script=str(tmp_path / "c.py")))
        assert travels(CustomTrainer(func=uses_it)) and not travels(CustomTrainer(func=uses_nothing))
        assert travels(CustomTrainer(source=str(tmp_path), script="a.py"))
        assert travels(CustomTrainer(source=str(tmp_path), func=uses_it))
        assert not travels(CustomTrainer(source=Source(str(tmp_path), exclude=["b.py"]), script="c.py"))
        (tmp_path / "pulumi_trainer").mkdir()
        (tmp_path / "pulumi_trainer/training.py").write_text("")
        assert not travels(CustomTrainer(source=Source(str(tmp_path), exclude=["*.log"]), func=uses_it))

    def test_it_runs_where_the_package_is_not_installed(self, tmp_path: Path) -> None:
        script = """
            import os, sys
            from pulumi_trainer import training
            import pulumi_trainer.training as same
            assert training is same and "torch" not in sys.modules
            print(training.__file__)
            print(training.checkpoints().save({"a": 1}, step=7), training.should_stop())
        """
        data = user_code.files(textwrap.dedent(script), None, None, None, "", training=True)
        assert data[code.TRAINING_FILE] == SOURCE and "checkpoints" not in json.loads(data[code.LAUNCH_FILE])
        folder = tmp_path / "code"
        folder.mkdir()
        python = str(Path(sys.executable).resolve())
        launch = {**json.loads(data[code.LAUNCH_FILE]), "launcher": [python]}
        for name, text in {**data, code.LAUNCH_FILE: json.dumps(launch)}.items():
            (folder / name).write_text(text)
        saved = tmp_path / "checkpoints"
        env = {"PATH": os.environ["PATH"], "TRAINER_CHECKPOINT_DIR": str(saved), "TMPDIR": str(tmp_path)}
        argv = [python, str(folder / code.BOOTSTRAP_FILE)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        place, result = done.stdout.splitlines()
        assert place.startswith(str(tmp_path / "modules-")) and result == "True False"
        assert names(saved) == ["step-00000007"]

    def test_it_comes_before_another_release_in_the_image(self, tmp_path: Path) -> None:
        for name in ("", "provider/", "provider/pod/", "provider/pod/shared/"):
            (tmp_path / "image/pulumi_trainer" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "image/pulumi_trainer" / name / "__init__.py").touch()
        (tmp_path / "image/pulumi_trainer/provider/pod/shared/other.py").touch()
        for name, file in code.MODULES.items():
            place = tmp_path / "modules" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(code.source_of(file))
        env = {"PYTHONPATH": os.pathsep.join(str(tmp_path / name) for name in ("modules", "image"))}
        script = (
            "import pulumi_trainer.training, pulumi_trainer.provider.pod.shared.other as other; print(other.__file__)"
        )
        argv = [str(Path(sys.executable).resolve()), "-c", script]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"{tmp_path}/image/pulumi_trainer/provider/pod/shared/other.py\n", done.stderr

    def test_a_job_that_does_not_import_it_has_no_more_files(self) -> None:
        data = user_code.files("", None, None, None, "")
        assert not {code.TRAINING_FILE, code.PACKAGE_FILE, code.CHECKPOINT_FILE} & data.keys()

    def test_it_runs_on_older_pythons(self) -> None:
        room = Path(training.__file__).parent
        texts = [room / "training.py", room / "wait_for_gloo.py", *room.glob("scripts/*.py"), *room.glob("shared/*.py")]
        assert len(texts) > 25
        for text in texts:
            ast.parse(text.read_text(encoding="utf-8"), feature_version=(3, 9))


def uses_it() -> None:
    from pulumi_trainer import training

    training.progress(step=1)


def uses_nothing() -> None:
    print(1)
