"""What a training program calls in its job: checkpoints, the end of a container, and progress.

The file travels with a job whose code imports it, so the image needs no package of ours. It needs the standard library, and
torch only where the program uses torch (docs/guides/training-helper.md).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import atexit
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.pod import wait_for_gloo  # noqa: F401 (its import makes the end of the process wait)
from pulumi_trainer.provider.pod.shared import find_checkpoint, training_stop
from pulumi_trainer.provider.pod.shared.training_files import (
    Saved,
    TEMPORARY,
    has_saved_after,
    newest_here,
    prune,
    complete,
    delete,
    leave_digests,
    mark,
    timestamp,
    touch,
)
from pulumi_trainer.provider.pod.shared.training_ranks import (
    from_rank_0,
    group,
    is_first_of_node,
    own_rank,
    reduce_values,
)
from pulumi_trainer.provider.pod.shared.training_state import (
    Pending,
    as_json,
    Function,
    differing,
    finish_upload,
    has_parts,
    is_state,
    load_state,
    reason,
    reset_names,
    reset_optimizers,
    sharded_dict,
    write_whole,
)

__all__ = ["Checkpoints", "callback", "checkpoints", "done", "progress", "should_stop"]

_INTERVAL = 5
"""Seconds between two lines of progress."""

_fault: Callable[..., str] = find_checkpoint.fault
_number_of: Callable[[str], int] = find_checkpoint.number_of
_OWN: str = find_checkpoint.OWN
_UPLOADED: str = find_checkpoint.UPLOADED


# Checkpoints


class Checkpoints:
    """The checkpoints of a job in a folder; `checkpoints()` returns it.

    All ranks call `save`, `load`, `due` and `wait`, in the same order: they agree on the result through torch.distributed, if
    it is initialised.

    Attributes:
        folder: Where checkpoints are; empty outside of a job, where nothing is saved.
        keep: How many complete checkpoints of its own it keeps.
    """

    def __init__(self, folder: str, *, keep: int, every: float, steps: int) -> None:
        self.folder = folder
        self.keep = keep
        self._every, self._steps = every, steps
        self._last = time.monotonic()
        self._saved: Saved | None = None
        self._start: Saved | None = None
        self._searched = False
        self._pending: Pending | None = None
        self._arguments: dict[str, Any] | None = None
        self._own_group: Any = None
        uploads = bool(folder and os.environ.get("TRAINER_CHECKPOINT_TO"))
        self._in_s3 = uploads and folder == os.environ.get("TRAINER_CHECKPOINT_DIR")
        self._nodes = int(_number_in_env("TRAINER_NUM_NODES")) or 1 if self._in_s3 else 1
        """Number of nodes, if each has a folder of its own, from which checkpoints go to S3; else 1."""

    def _writes(self, *, sharded: bool) -> bool:
        """Return whether this process makes a checkpoint of this kind complete, and deletes old ones."""
        return is_first_of_node() if sharded and self._nodes > 1 else own_rank() == 0

    def latest(self) -> str | None:
        """Return the newest complete checkpoint: one that this process has saved, else the one that the job resumes from.

        Returns:
            Its path; None if the job has none yet. Give it to `resume_from_checkpoint` of Transformers.

        Raises:
            RuntimeError: As for `load`.
        """
        newest = self._newest()
        return None if newest is None else newest.path

    def _newest(self) -> Saved | None:
        if self._saved is None and not self._searched:
            self._start, self._searched = self._search(), True
        return self._saved or self._start

    def _kept(self) -> Saved | None:
        """Return the newest checkpoint that a stop does not lose: of those that go to S3, what is there."""
        if not self._in_s3:
            with suppress(RuntimeError):  # `load` raises it
                return self._newest()
            return None
        marker = os.path.join(self.folder, _UPLOADED)
        try:
            with open(marker, encoding="utf-8") as file:
                name = file.read()
            step = _number_of(name)
            return Saved(os.path.join(self.folder, name), step, os.path.getmtime(marker)) if step >= 0 else None
        except (OSError, ValueError):  # nothing is uploaded yet
            return None

    def _search(self) -> Saved | None:
        """Return the checkpoint that there was before this process has saved any.

        Raises:
            RuntimeError: The checkpoint that the job resumes from does not exist any more; or torchrun has started the ranks
                again after this node has saved checkpoints, and each node has its own.
        """
        is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        path = os.environ.get("TRAINER_RESUME_FROM", "")
        if self.folder != os.environ.get("TRAINER_CHECKPOINT_DIR", ""):
            path = newest_here(self.folder)
        elif is_restarted and self._nodes == 1:  # after some checkpoints, perhaps
            path = newest_here(self.folder) or path
        elif is_restarted and has_saved_after(self.folder, path):
            raise RuntimeError(
                f"{self.folder} has newer checkpoints than the one that this attempt has started from, but the other nodes may"
                " not have them: this rank ends, so that all nodes start again from S3"
            )
        if not path:
            return None
        if not os.path.exists(path):
            raise RuntimeError(
                f"the job resumes from {path} (TRAINER_RESUME_FROM), which does not exist any more: training would start at 0."
                " This rank ends, so that the job finds the newest checkpoint again"
            )
        marker = os.path.join(path, _OWN)
        return Saved(
            path, _number_of(os.path.basename(path)), os.path.getmtime(marker if os.path.exists(marker) else path)
        )

    def due(self, step: int) -> bool:
        """Return whether the policy of the job asks for a checkpoint after this step (`CheckpointPolicy(every=)` or `steps=`).

        With `every`, rank 0 reads its clock and all ranks get the answer. Call it once in each step.

        Args:
            step: Number of the step that is done.

        Returns:
            True if it is time to call `save`. False without `every` and `steps`, and for a step that is saved.
        """
        _shown.trains = True
        if self._saved is not None and self._saved.step == step:
            return False
        if self._steps:
            return step % self._steps == 0
        if not self._every:
            return False
        late = time.monotonic() - self._last >= self._every
        return bool(reduce_values([int(late and own_rank() == 0)], "MAX")[0])

    def save(
        self, state: Mapping[str, Any] | Function, *, step: int, sharded: bool | None = None, async_: bool = False
    ) -> bool:
        """Save a checkpoint, which is complete or not there at all; then delete the oldest ones that are too many.

        A failure, such as a full disk, is printed and does not end the training: earlier checkpoints stay. A step that this
        process has saved or loaded last is not written again; one that an earlier run has left is replaced.

        Args:
            state: What to save. A value with `state_dict()` (model, optimizer, scheduler) is saved by it, any other as it is.
                Without torch these have to be JSON. They are the same on all ranks, except for sharded tensors: one rank writes
                them. Or a function that lets another library write into a folder, such as `lambda folder:
                engine.save_checkpoint(folder)` of DeepSpeed: rank 0 calls it, and with torch.distributed each rank.
            step: Number of steps that are done.
            sharded: Whether each rank writes its part. Default: if the state has a DTensor, as with FSDP2; for a function, with
                torch.distributed.
            async_: Whether training goes on while the checkpoint is written, with `torch.distributed.checkpoint.async_save`. It
                is complete after the next `should_stop`, `save` or `wait` that finds it written.

        Returns:
            Whether the checkpoint is there, or is being written; the same on all ranks. False outside of a job.

        Raises:
            ValueError: `step` is not a number of steps, or the state is neither a mapping nor a function.
        """
        _shown.trains = True
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be an int of at least 0, not {step!r}")
        if not is_state(state):
            raise ValueError(f"the state must be a dict or a function, not {type(state).__name__}")
        self.wait()
        self._last = time.monotonic()
        if not self.folder:
            return False
        path = os.path.join(self.folder, f"step-{step:08}")
        own = self._saved is not None and os.path.basename(self._saved.path) == os.path.basename(path)
        there = own and os.path.isdir(path) and not _fault(path, part=True)
        is_there, token = from_rank_0((there, secrets.token_hex(4)))
        if is_there:
            self._saved = self._saved if self._saved and self._saved.path == path else Saved(path, step, time.time())
            return True
        parts = async_ or (has_parts(state) if sharded is None else sharded)
        made = Pending(path, step, os.path.join(self.folder, f"{TEMPORARY}step-{step:08}-{token}"), parts, token)
        if self._writes(sharded=parts):
            made.attempt(os.makedirs, made.temporary)
        if made.has_failed():
            return self._finish(made)
        if parts and isinstance(state, Mapping):
            made.attempt(self._write_sharded, made, state, async_=async_)
        elif parts or own_rank() == 0:
            made.attempt(write_whole, made.temporary, state)
        if async_ and not made.has_failed():
            self._pending = made
            return True
        return self._finish(made)

    def _write_sharded(self, made: Pending, state: Mapping[str, Any], *, async_: bool) -> None:
        import torch.distributed.checkpoint as dcp

        if async_:
            values, writers = sharded_dict(state), self._group_of_writers()
            saved = dcp.async_save(values, checkpoint_id=made.temporary, process_group=writers)
            upload = getattr(saved, "upload_completion", saved)  # some releases return it beside that of the staging
            pool = ThreadPoolExecutor(1)
            made.future = pool.submit(finish_upload, upload, made.temporary)
            pool.shutdown(wait=False)
        else:
            dcp.save(sharded_dict(state), checkpoint_id=made.temporary)
            leave_digests(made.temporary)

    def _group_of_writers(self) -> Any:
        """Return the process group of the threads that write: in that of the training, their messages would meet those of the
        training in another order on each rank.
        """
        dist = group()
        if dist is not None and self._own_group is None:
            self._own_group = dist.new_group(backend="gloo")
        return self._own_group

    def wait(self) -> bool:
        """Wait until the checkpoint that is being written is complete. Call it before the program ends, after `async_`.

        Returns:
            False if it has failed, on any rank. True if it is complete, or if there was none.
        """
        made, self._pending = self._pending, None
        if made is None:
            return True
        made.attempt(made.result)
        return self._finish(made)

    def _finish(self, made: Pending) -> bool:
        """Return whether all ranks have written their part, and make the checkpoint complete if so."""
        writes = self._writes(sharded=made.sharded)
        if not made.has_failed() and writes:
            more: dict[str, Any] = {}
            if made.sharded and self._nodes > 1:
                more = {"nodes": self._nodes, "token": made.token}
            if self._arguments is not None:
                more["arguments"] = self._arguments
            made.attempt(complete, made.temporary, made.path, made.step, more)
        rank, ranks = own_rank(), 1 << 31
        (first,) = reduce_values([ranks if made.error is None else rank], "MIN")
        failed = first < ranks
        if failed and first == rank:
            text = f"pulumi-trainer: checkpoint of step {made.step} failed: {reason(made.error)}; training goes on"
            print(text, file=sys.stderr, flush=True)
        if not failed:
            self._saved = Saved(made.path, made.step, time.time())
        if writes:
            delete(made.temporary)
            prune(self.folder, self.keep, self._saved, self._start)
        return not failed

    def _adopt(self, folder: str, step: int) -> None:
        """Make the checkpoint of a step of a folder that a tool has written on this rank, on the disk of the checkpoints."""
        path = os.path.join(self.folder, f"step-{step:08}")
        complete(folder, path, step, {})
        self._saved, self._last = Saved(path, step, time.time()), time.monotonic()
        prune(self.folder, self.keep, self._saved, self._start)

    def _seal(self, path: str, step: int) -> None:
        """Write sizes and digests into a checkpoint that another library has written; all ranks call it.

        Uploads to S3 have their own.
        """
        if self._in_s3 or os.path.dirname(path) != self.folder or not os.path.isdir(path):
            return
        reduce_values([0], "MAX")  # all ranks have written their part
        if own_rank() == 0:
            try:
                mark(path, step, {}, {})
            except OSError as error:
                print(f"pulumi-trainer: {path} has no digests: {error}", file=sys.stderr, flush=True)

    def load(
        self, state: Mapping[str, Any] | Function | None = None, *, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Load the newest complete checkpoint, the same one on all ranks. Only load files that jobs of your own have written:
        those of torch may contain code.

        Args:
            state: What was given to `save`, newly made. A value with `load_state_dict()` takes its part in place. A sharded
                checkpoint needs it; without it, the result has state dicts. What a fork resets (`Fork(reset=)`) stays as it is
                here. Or a function that lets another library read the folder, which all ranks call.
            arguments: Hyperparameters of this run, as JSON, such as {"lr": lr}. Each `save` that follows keeps them beside the
                checkpoint, and the log names those that the checkpoint was saved with in another value: a state that it has,
                such as the learning rate of an optimizer, is the old one until the program sets it.

        Returns:
            The values by name, and `step`, the number of steps that are done; with `arguments`, also `differs`: those that
            differ -> the value that the checkpoint was saved with. None if there is no checkpoint, and training starts at the
            beginning.

        Raises:
            RuntimeError: The checkpoint that the job resumes from (TRAINER_RESUME_FROM) is gone, or torchrun has started the
                ranks again on nodes that share no checkpoints (S3). It has to end the program: the job then starts again.
            ValueError: The checkpoint was not made by `save`, it is sharded and there is no `state`, it lacks an object of the
                `state`, or the arguments are not JSON.
        """
        if arguments is not None:
            self._arguments = as_json(arguments)
        newest = self._newest()
        path, step = from_rank_0((newest.path, newest.step) if newest else ("", 0))
        start = os.environ.get("TRAINER_RESUME_FROM", "")
        if path and self._nodes > 1:  # its path on another node may be another one
            is_start = os.path.basename(path) == os.path.basename(start)
            path = start if is_start else os.path.join(self.folder, os.path.basename(path))
        if not path:
            return None
        reset = reset_names(path)
        found = load_state(path, state, reset)
        found["step"] = step if "step" not in reset else 0
        _shown.resumed = found["step"]
        if self._arguments is not None and arguments is not None:
            found["differs"] = differing(path, step, self._arguments)
        self._saved = self._saved or Saved(path, step, newest.time if newest else time.time())
        return found


_known: dict[str, Checkpoints] = {}


def checkpoints(folder: str | os.PathLike[str] | None = None) -> Checkpoints:
    """Return the checkpoints of the job, as its policy sets them (`TrainJob(checkpoint=trainer.CheckpointPolicy(...))`).

    Args:
        folder: Another folder. Default: TRAINER_CHECKPOINT_DIR of the job; without it, nothing is saved or found.

    Returns:
        The same object for each call with the same folder.
    """
    place = os.environ.get("TRAINER_CHECKPOINT_DIR", "") if folder is None else os.fspath(folder)
    if place not in _known:
        given = {name: _number_in_env(f"TRAINER_CHECKPOINT_{name.upper()}") for name in ("keep", "every", "steps")}
        keep, steps = int(given["keep"] or 3), int(given["steps"])
        _known[place] = Checkpoints(place, keep=keep, every=given["every"], steps=steps)
    return _known[place]


def _number_in_env(name: str) -> float:
    try:
        return max(float(os.environ.get(name) or 0), 0)
    except ValueError:
        return 0


# The end of a container


def should_stop(*, every: int = 1) -> bool:
    """Return whether training has to save a checkpoint and end, since the container of some rank is about to be stopped.

    Call it once in each step, on all ranks: through torch.distributed, if it is initialised, all get the same answer. With NCCL
    that waits for the GPU. The first call makes SIGTERM no longer end the process, if the program has no handler of its own.

    Args:
        every: Ask the other ranks only in each such call, the same number on all ranks.

    Returns:
        True from the first call on in which any rank had to stop. The container then counts as interrupted, and not as complete,
        if the program ends. False outside of a job.
    """
    _shown.trains = True
    training_stop.handle_sigterm()
    if training_stop.stop.agreed:
        return True
    training_stop.stop.calls += 1
    if training_stop.stop.calls % max(every, 1) and group() is not None:
        return False
    file = os.environ.get("TRAINER_STOP_FILE", "")
    here = training_stop.stop.signaled or bool(file and os.path.exists(file))
    writing = [each for each in _known.values() if each._pending is not None]
    unwritten = any(not each._pending.written for each in writing if each._pending is not None)
    stop, waits = reduce_values([int(here), int(unwritten)], "MAX")
    if not waits:
        for each in writing:
            each.wait()
    if stop:
        training_stop.stop.agreed = True
        touch(file)
    return bool(stop)


def done() -> None:
    """Say that the program has finished its work: the container then counts as complete although it was about to be stopped.

    Call it on all ranks after the last step, when the results are saved. Outside of a job it does nothing.
    """
    touch(os.environ.get("TRAINER_DONE_FILE", ""))


# Progress


@dataclass
class _Shown:
    """The progress that this process has printed.

    Attributes:
        first: Step and time of the first call, from which the rate is.
        latest: Arguments of the latest call: step, total and the metrics.
        trains: Whether the program has called what it calls in each step.
    """

    first: tuple[int, float] | None = None
    time: float = float("-inf")
    resumed: int = 0
    line: Mapping[str, Any] | None = None
    latest: tuple[int, int | None, Mapping[str, Any]] | None = None
    trains: bool = False


_shown = _Shown()


def progress(*, step: int, total: int | None = None, loss: Any = None, **metrics: Any) -> None:
    """Print the progress of the job: `pulumi up`, `pulumi-trainer status` and `job.progress` show it.

    Call it in each step, on any rank: rank 0 prints one line in 5 seconds, and the last one when the program ends.

    Args:
        step: Number of steps that are done.
        total: Number of all steps, for the percentage and the remaining time.
        loss: The loss; a tensor is read only when the line is printed.
        metrics: Other values by name.
    """
    if own_rank() != 0:
        return
    now = time.monotonic()
    _shown.first = _shown.first or (step, now)
    _shown.latest = step, total, metrics if loss is None else {"loss": loss, **metrics}
    last = total is not None and step >= total
    if now - _shown.time >= _INTERVAL or last:
        _print(_status(*_shown.latest))


def _status(step: int, total: int | None, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return Trainer's `trainerStatus` at a step."""
    status: dict[str, Any] = {"step": int(step)}
    if total:
        status["progressPercentage"] = max(0, min(100, step * 100 // total))
        first, began = _shown.first or (step, 0.0)
        if step > first:
            passed = time.monotonic() - began
            status["estimatedRemainingSeconds"] = max(0, round((total - step) * passed / (step - first)))
    if _shown.resumed:
        status["resumedFrom"] = _shown.resumed
    status["metrics"] = [{"name": name, "value": _text(value)} for name, value in metrics.items()]
    newest = [found for found in (each._kept() for each in _known.values()) if found is not None]
    if os.environ.get("TRAINER_TRACKING_RUN"):  # the last lines of a log have it too
        status["tracking"] = os.environ["TRAINER_TRACKING_RUN"]
    if newest:
        found = max(newest, key=lambda each: each.time)
        status["checkpoint"] = {"step": found.step, "time": timestamp(found.time)}
    return status


def _print(status: Mapping[str, Any]) -> None:
    _shown.time, _shown.line = time.monotonic(), status
    print(json.dumps({"trainerStatus": status}), flush=True)
    if os.environ.get("TRAINER_TRACKING"):
        _tracking().forward(status)


def _tracking() -> Any:
    """Return what forwards progress to the tracker, which travels with a job that has one."""
    from pulumi_trainer.provider.pod.shared import training_tracking

    return training_tracking


def _print_latest() -> None:
    """Print the latest progress when the program ends, unless its step and its newest checkpoint are printed."""
    if _shown.latest is None and _shown.resumed and not _shown.trains and own_rank() == 0:
        _shown.latest = _shown.resumed, None, {}  # it has done no step
    if _shown.latest is None:
        return
    with suppress(Exception):  # a metric of a broken device, a closed output
        status = _status(*_shown.latest)
        if any(status.get(name) != (_shown.line or {}).get(name) for name in ("step", "checkpoint")):
            _print(status)
    if os.environ.get("TRAINER_TRACKING"):
        _tracking().finish()


atexit.register(_print_latest)


def _text(value: Any) -> str:
    """Return a metric as text; a tensor is a number."""
    if isinstance(value, (str, int)):
        return str(value)[:64]
    try:
        return f"{float(value.detach() if hasattr(value, 'detach') else value):.6g}"
    except (TypeError, ValueError):
        return str(value)[:64]


# Hugging Face Transformers


def callback() -> Any:
    """Return a callback for `transformers.Trainer(callbacks=[...])`.

    It saves a checkpoint when the policy of the job asks for one and when the container is about to be stopped, ends the training
    then, and prints what Transformers logs as progress. Use TRAINER_CHECKPOINT_DIR as `output_dir`, and start with
    `train(resume_from_checkpoint=training.checkpoints().latest())`.

    Returns:
        An object of a subclass of `transformers.TrainerCallback`.

    Raises:
        ImportError: Transformers is not installed.
    """
    from transformers import TrainerCallback

    class TransformersCallback(TrainerCallback):  # type: ignore[misc]
        numbers: Mapping[str, float] = {}
        unsealed = ("", 0)

        def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            if state.global_step:
                reset_optimizers([optimizer], checkpoints().latest())
            _shown.resumed = state.global_step
            progress(step=state.global_step, total=max(state.max_steps, 0) or None)
            _shown.time = float("-inf")  # the first line with numbers follows however soon

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if checkpoints().due(state.global_step):
                control.should_save = True
            if should_stop():
                control.should_save = control.should_training_stop = True

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            step, found = state.global_step, checkpoints()
            found._saved = Saved(os.path.join(args.output_dir, f"checkpoint-{step}"), step, time.time())
            found._last = time.monotonic()
            self.unsealed = found._saved.path, step
            if own_rank() == 0:
                with suppress(OSError):  # that of an earlier checkpoint of this step
                    os.remove(os.path.join(found._saved.path, _OWN))

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.unsealed[0]:  # other callbacks may have changed it in on_save
                checkpoints()._seal(*self.unsealed)
                self.unsealed = "", 0

        on_train_end = on_step_begin

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            given = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))}
            if "train_runtime" not in given:  # the summary at the end has no loss of a step
                first = sorted(given, key=lambda name: name not in ("loss", "reward"))
                self.numbers = {name: given[name] for name in first if name not in ("step", "total")}
            progress(step=state.global_step, total=max(state.max_steps, 0) or None, **self.numbers)

    return TransformersCallback()
