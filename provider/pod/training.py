"""What a training program calls in its job: checkpoints, the end of a container, and progress.

The file travels with a job whose code imports it, so the image needs no package of ours. It needs the standard library, and
torch only where the program uses torch (docs/guides/training-helper.md).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import atexit
import glob
import json
import os
import re
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from types import FrameType
from typing import Any

from pulumi_trainer.provider.pod import wait_for_gloo  # noqa: F401 (its import makes the end of the process wait)
from pulumi_trainer.provider.pod.shared import find_checkpoint

__all__ = ["Checkpoints", "callback", "checkpoints", "done", "progress", "should_stop"]

_JSON_FILE = "state.json"
_TORCH_FILE = "state.pt"
_SHARDED_FILE = ".metadata"
"""Of torch.distributed.checkpoint, which writes it last."""
_TEMPORARY = ".tmp-"
"""Begins the names of folders that are being written or deleted. They are hidden, so nobody takes them for checkpoints."""
_DIGESTS = ".sha256-"
"""Begins the names of files in which ranks leave the digests of their parts for the one that makes a checkpoint complete."""
_VERIFIED = "verified"
"""Name of the file beside TRAINER_STOP_FILE with the checkpoints that processes of this container have read."""
_ABANDONED = 3600
"""Seconds without a change after which a temporary folder belongs to a process that is gone."""
_INTERVAL = 5
"""Seconds between two lines of progress."""

_fault: Callable[..., str] = find_checkpoint.fault
_digests_of: Callable[[Mapping[str, str]], dict[str, str]] = find_checkpoint.digests
_damage_in: Callable[[str], str] = find_checkpoint.damage
_newest_in: Callable[..., str] = find_checkpoint.newest
_number_of: Callable[[str], int] = find_checkpoint.number_of
_OWN: str = find_checkpoint.OWN
_UPLOADED: str = find_checkpoint.UPLOADED


@dataclass(frozen=True)
class _Saved:
    path: str
    step: int
    time: float


# All ranks


def _group() -> Any:
    """Return `torch.distributed` if it connects several ranks, else None. Nothing imports torch for this."""
    if "torch" not in sys.modules:
        return None
    import torch.distributed as dist

    return dist if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else None


def _reduce(values: list[int], operation: str) -> list[int]:
    """Return the maximum (MAX) or minimum (MIN) of each value over all ranks."""
    dist = _group()
    if dist is None:
        return values
    import torch

    tensor = torch.tensor(values, dtype=torch.int64, device=_device(dist))
    dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
    return [int(value) for value in tensor.tolist()]


def _device(dist: Any) -> str:
    """Return the type of device whose tensors the default process group takes: cpu where it can be."""
    try:
        types = [pair.partition(":")[0] for pair in str(dist.get_backend_config()).split(",")]
    except (AttributeError, RuntimeError):  # releases before 2.1
        types = ["cuda" if dist.get_backend() == "nccl" else "cpu"]
    return "cpu" if "cpu" in types else types[0]


def _from_rank_0(value: Any) -> Any:
    """Return what rank 0 gives, as JSON, on all ranks. torch's own broadcast of objects requires NumPy."""
    dist = _group()
    if dist is None:
        return value
    import torch

    data = json.dumps(value).encode() if dist.get_rank() == 0 else b""
    (size,) = _reduce([len(data)], "MAX")
    tensor = torch.tensor(list(data) or [0] * size, dtype=torch.uint8, device=_device(dist))
    dist.broadcast(tensor, src=0)
    return json.loads(bytes(tensor.tolist()))


def _rank() -> int:
    """Return the number of this process in the job, whatever has started it."""
    if (dist := _group()) is not None:
        return int(dist.get_rank())
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID", "DMLC_TASK_ID", "JOB_COMPLETION_INDEX")
    given = next((os.environ[name] for name in names if os.environ.get(name)), "0")
    return int(given) if given.isdecimal() else 0


def _is_first_of_node() -> bool:
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return next((os.environ[name] for name in names if os.environ.get(name)), "0") == "0"


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
        self._saved: _Saved | None = None
        self._start: _Saved | None = None
        self._searched = False
        self._pending: _Pending | None = None
        self._arguments: dict[str, Any] | None = None
        self._own_group: Any = None
        uploads = bool(folder and os.environ.get("TRAINER_CHECKPOINT_TO"))
        self._in_s3 = uploads and folder == os.environ.get("TRAINER_CHECKPOINT_DIR")
        self._nodes = int(_number("TRAINER_NUM_NODES")) or 1 if self._in_s3 else 1
        """Number of nodes, if each has a folder of its own, from which checkpoints go to S3; else 1."""

    def _writes(self, *, sharded: bool) -> bool:
        """Return whether this process makes a checkpoint of this kind complete, and deletes old ones."""
        return _is_first_of_node() if sharded and self._nodes > 1 else _rank() == 0

    def latest(self) -> str | None:
        """Return the newest complete checkpoint: one that this process has saved, else the one that the job resumes from.

        Returns:
            Its path; None if the job has none yet. Give it to `resume_from_checkpoint` of Transformers.

        Raises:
            RuntimeError: As for `load`.
        """
        newest = self._newest()
        return None if newest is None else newest.path

    def _newest(self) -> _Saved | None:
        if self._saved is None and not self._searched:
            self._start, self._searched = self._search(), True
        return self._saved or self._start

    def _kept(self) -> _Saved | None:
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
            return _Saved(os.path.join(self.folder, name), step, os.path.getmtime(marker)) if step >= 0 else None
        except (OSError, ValueError):  # nothing is uploaded yet
            return None

    def _search(self) -> _Saved | None:
        """Return the checkpoint that there was before this process has saved any.

        Raises:
            RuntimeError: The checkpoint that the job resumes from does not exist any more; or torchrun has started the ranks
                again after this node has saved checkpoints, and each node has its own.
        """
        is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        path = os.environ.get("TRAINER_RESUME_FROM", "")
        if self.folder != os.environ.get("TRAINER_CHECKPOINT_DIR", ""):
            path = self._newest_here()
        elif is_restarted and self._nodes == 1:  # after some checkpoints, perhaps
            path = self._newest_here() or path
        elif is_restarted and self._has_saved_after(path):
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
        return _Saved(
            path, _number_of(os.path.basename(path)), os.path.getmtime(marker if os.path.exists(marker) else path)
        )

    def _newest_here(self) -> str:
        return _newest_in(self.folder, _verify_once) if os.path.isdir(self.folder) else ""

    def _has_saved_after(self, path: str) -> bool:
        """Return whether this node has a checkpoint, or its part of one, that is newer than another."""
        names, limit = os.listdir(self.folder) if os.path.isdir(self.folder) else [], _number_of(os.path.basename(path))
        return any(
            _number_of(name) > limit and not _fault(os.path.join(self.folder, name), part=True) for name in names
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
        return bool(_reduce([int(late and _rank() == 0)], "MAX")[0])

    def save(self, state: Mapping[str, Any], *, step: int, sharded: bool | None = None, async_: bool = False) -> bool:
        """Save a checkpoint, which is complete or not there at all; then delete the oldest ones that are too many.

        A failure, such as a full disk, is printed and does not end the training: earlier checkpoints stay. A step that this
        process has saved or loaded last is not written again; one that an earlier run has left is replaced.

        Args:
            state: What to save. A value with `state_dict()` (model, optimizer, scheduler) is saved by it, any other as it is.
                Without torch these have to be JSON. They are the same on all ranks, except for sharded tensors: one rank writes
                them.
            step: Number of steps that are done.
            sharded: Whether each rank writes its part, with torch.distributed.checkpoint. Default: if the state has a DTensor, as
                with FSDP2.
            async_: Whether training goes on while the checkpoint is written, with `torch.distributed.checkpoint.async_save`. It
                is complete after the next `should_stop`, `save` or `wait` that finds it written.

        Returns:
            Whether the checkpoint is there, or is being written; the same on all ranks. False outside of a job.

        Raises:
            ValueError: `step` is not a number of steps, or the state is not a mapping.
        """
        _shown.trains = True
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be an int of at least 0, not {step!r}")
        if not isinstance(state, Mapping):
            raise ValueError(f"the state must be a dict, not {type(state).__name__}")
        self.wait()
        self._last = time.monotonic()
        if not self.folder:
            return False
        path = os.path.join(self.folder, f"step-{step:08}")
        own = self._saved is not None and os.path.basename(self._saved.path) == os.path.basename(path)
        there = own and os.path.isdir(path) and not _fault(path, part=True)
        is_there, token = _from_rank_0((there, secrets.token_hex(4)))
        if is_there:
            self._saved = self._saved if self._saved and self._saved.path == path else _Saved(path, step, time.time())
            return True
        parts = async_ or (_is_sharded(state) if sharded is None else sharded)
        made = _Pending(path, step, os.path.join(self.folder, f"{_TEMPORARY}step-{step:08}-{token}"), parts, token)
        if self._writes(sharded=parts):
            made.attempt(os.makedirs, made.temporary)
        if made.has_failed():
            return self._finish(made)
        if parts:
            made.attempt(self._write_sharded, made, state, async_=async_)
        elif _rank() == 0:
            made.attempt(_write_whole, made.temporary, state)
        if async_ and not made.has_failed():
            self._pending = made
            return True
        return self._finish(made)

    def _write_sharded(self, made: _Pending, state: Mapping[str, Any], *, async_: bool) -> None:
        import torch.distributed.checkpoint as dcp

        if async_:
            values, group = _sharded_dict(state), self._group_of_writers()
            saved = dcp.async_save(values, checkpoint_id=made.temporary, process_group=group)
            upload = getattr(saved, "upload_completion", saved)  # some releases return it beside that of the staging
            pool = ThreadPoolExecutor(1)
            made.future = pool.submit(_finish_upload, upload, made.temporary)
            pool.shutdown(wait=False)
        else:
            dcp.save(_sharded_dict(state), checkpoint_id=made.temporary)
            _leave_digests(made.temporary)

    def _group_of_writers(self) -> Any:
        """Return the process group of the threads that write: in that of the training, their messages would meet those of the
        training in another order on each rank.
        """
        dist = _group()
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

    def _finish(self, made: _Pending) -> bool:
        """Return whether all ranks have written their part, and make the checkpoint complete if so."""
        writes = self._writes(sharded=made.sharded)
        if not made.has_failed() and writes:
            more: dict[str, Any] = {}
            if made.sharded and self._nodes > 1:
                more = {"nodes": self._nodes, "token": made.token}
            if self._arguments is not None:
                more["arguments"] = self._arguments
            made.attempt(_complete, made.temporary, made.path, made.step, more)
        rank, ranks = _rank(), 1 << 31
        (first,) = _reduce([ranks if made.error is None else rank], "MIN")
        failed = first < ranks
        if failed and first == rank:
            text = f"pulumi-trainer: checkpoint of step {made.step} failed: {_reason(made.error)}; training goes on"
            print(text, file=sys.stderr, flush=True)
        if not failed:
            self._saved = _Saved(made.path, made.step, time.time())
        if writes:
            _delete(made.temporary)
            self._prune()
        return not failed

    def _adopt(self, folder: str, step: int) -> None:
        """Make the checkpoint of a step of a folder that a tool has written on this rank, on the disk of the checkpoints."""
        path = os.path.join(self.folder, f"step-{step:08}")
        _complete(folder, path, step, {})
        self._saved, self._last = _Saved(path, step, time.time()), time.monotonic()
        self._prune()

    def _seal(self, path: str, step: int) -> None:
        """Write sizes and digests into a checkpoint that another library has written; all ranks call it.

        Uploads to S3 have their own.
        """
        if self._in_s3 or os.path.dirname(path) != self.folder or not os.path.isdir(path):
            return
        _reduce([0], "MAX")  # all ranks have written their part
        if _rank() == 0:
            try:
                _mark(path, step, {}, {})
            except OSError as error:
                print(f"pulumi-trainer: {path} has no digests: {error}", file=sys.stderr, flush=True)

    def _prune(self) -> None:
        """Delete the oldest complete checkpoints that `save` has made, and what processes that were killed have left."""
        try:
            names = os.listdir(self.folder)
            steps = {int(name[5:]): name for name in names if re.fullmatch(r"step-\d{8,}", name)}
            newest = self._saved or self._start
            # later ones are of an earlier run: they stay, and do not count
            own = [steps[step] for step in sorted(steps) if newest is not None and step <= newest.step]
            complete = [
                path for path in (os.path.join(self.folder, name) for name in own) if not _fault(path, part=True)
            ]
            for path in complete[: -max(self.keep, 1)]:
                if self._saved is not None and path == self._saved.path:
                    continue
                hidden = os.path.join(self.folder, f"{_TEMPORARY}{os.path.basename(path)}-{secrets.token_hex(4)}")
                os.rename(path, hidden)
                _delete(hidden)
            if self._saved is None:
                return
            now = os.path.getmtime(self._saved.path)  # by the clock of the volume
            for name in names:
                path = os.path.join(self.folder, name)
                if (
                    name.startswith(_TEMPORARY)
                    and now - max(map(os.path.getmtime, _files(path)), default=0) > _ABANDONED
                ):
                    _delete(path)
        except OSError as error:
            print(f"pulumi-trainer: old checkpoints stay: {error}", file=sys.stderr, flush=True)

    def load(
        self, state: Mapping[str, Any] | None = None, *, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Load the newest complete checkpoint, the same one on all ranks. Only load files that jobs of your own have written:
        those of torch may contain code.

        Args:
            state: What was given to `save`, newly made. A value with `load_state_dict()` takes its part in place. A sharded
                checkpoint needs it; without it, the result has state dicts. What a fork resets (`Fork(reset=)`) stays as it is
                here.
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
            self._arguments = _as_json(arguments)
        newest = self._newest()
        path, step = _from_rank_0((newest.path, newest.step) if newest else ("", 0))
        start = os.environ.get("TRAINER_RESUME_FROM", "")
        if path and self._nodes > 1:  # its path on another node may be another one
            is_start = os.path.basename(path) == os.path.basename(start)
            path = start if is_start else os.path.join(self.folder, os.path.basename(path))
        if not path:
            return None
        reset = _reset_names(path)
        found = self._load(path, state, reset)
        found["step"] = step if "step" not in reset else 0
        _shown.resumed = found["step"]
        if self._arguments is not None and arguments is not None:
            found["differs"] = _differing(path, step, self._arguments)
        self._saved = self._saved or _Saved(path, step, newest.time if newest else time.time())
        return found

    def _load(self, path: str, state: Mapping[str, Any] | None, reset: set[str]) -> dict[str, Any]:
        """Return what a checkpoint has, apart from what a fork resets, which stays as the program has made it.

        Raises:
            ValueError: As for `load`; or neither the state nor its optimizers have what is reset.
        """
        own = {name: value for name, value in (state or {}).items() if name in reset}
        taken = {name: value for name, value in (state or {}).items() if name not in reset}
        options, rates = _options(taken, reset), _rates(taken) if "lr" in reset else []
        names = _option_names(taken)
        found = self._read(path, taken if state is not None else None)
        _check_reset(reset, {"step", *(state or {}), *names}, saved=found)
        for optimizer, number, values in options:
            _set_options(optimizer.param_groups[number], values, keeps_place=bool(rates))
        for schedule, base in rates:
            schedule.base_lrs = base
        return {**{name: value for name, value in found.items() if name not in reset}, **own}

    def _read(self, path: str, state: Mapping[str, Any] | None) -> dict[str, Any]:
        if os.path.exists(os.path.join(path, _SHARDED_FILE)):
            if state is None:
                raise ValueError(f"{path} is sharded: load(state) needs the state that its parts belong to")
            return _load_sharded(path, state)
        if os.path.exists(os.path.join(path, _TORCH_FILE)):
            import torch

            found = torch.load(os.path.join(path, _TORCH_FILE), map_location="cpu", weights_only=False)
        elif os.path.exists(os.path.join(path, _JSON_FILE)):
            with open(os.path.join(path, _JSON_FILE), encoding="utf-8") as file:
                found = json.load(file)
        else:
            raise ValueError(f"{path} was not made by save(): load it as the library that wrote it does")
        objects = {name: value for name, value in (state or {}).items() if hasattr(value, "load_state_dict")}
        lacking = [name for name in objects if name not in found]
        if lacking:
            has = ", ".join(map(repr, found)) or "nothing"
            raise ValueError(
                f"{path} has no {lacking[0]!r} to load; it has {has}: load(state) takes the names of save(state)"
            )
        for name, value in objects.items():
            value.load_state_dict(found[name])
        return {**found, **objects}


def _reset_names(path: str | None) -> set[str]:
    """Return what is not taken from a checkpoint, which a fork may start from."""
    if path is None or path != os.environ.get("TRAINER_RESUME_FROM"):
        return set()
    return {*filter(None, os.environ.get("TRAINER_RESET", "").split(","))}


def _option_names(state: Mapping[str, Any]) -> set[str]:
    """Return the names of the options that a fork can reset, of all optimizers of a state."""
    found: set[str] = set()
    for optimizer in state.values():
        found.update(*getattr(optimizer, "param_groups", []))
    return found - {"params"}


def _check_reset(names: set[str], known: set[str], saved: Iterable[str] = ()) -> None:
    """Check what a fork resets. saved: What the checkpoint has."""
    unknown = sorted(names - known)
    if not unknown:
        return
    _touch(os.environ.get("TRAINER_FINAL_FILE", ""))  # another attempt would fail likewise
    if {*unknown} <= {*saved}:
        given = ", ".join(f"{name!r}: ..." for name in unknown)
        raise ValueError(f"Fork(reset={unknown}): load() knows no other value. Hint: give it one, load({{{given}}})")
    can = ", ".join(sorted(known))
    raise ValueError(f"unknown name in Fork(reset={unknown}). Hint: this program can reset: {can}")


def _reset_optimizers(optimizers: Iterable[Any]) -> None:
    """Clear the states of optimizers that a library has loaded from the checkpoint that a fork starts from, if it resets them."""
    names = _reset_names(checkpoints().latest())
    _check_reset(names, {"optimizer"})
    if names:
        for optimizer in optimizers:
            getattr(optimizer, "optimizer", optimizer).state.clear()
        if _rank() == 0:
            print("pulumi-trainer: the optimizer starts anew (Fork)", flush=True)


def _options(state: Mapping[str, Any], names: set[str]) -> list[tuple[Any, int, dict[str, Any]]]:
    """Return some options of each group of the optimizers of a state, with the optimizer and the number of the group."""
    wanted = {*names, *(["initial_lr"] if "lr" in names else [])}
    found: list[tuple[Any, int, dict[str, Any]]] = []
    for optimizer in state.values():
        groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
        for number, group in enumerate(groups):
            found.append((optimizer, number, {name: group[name] for name in wanted & group.keys()}))
    return found


def _rates(state: Mapping[str, Any]) -> list[tuple[Any, list[float]]]:
    """Return the schedules of a state, each with the learning rates that it starts from."""
    return [(value, [*value.base_lrs]) for value in state.values() if hasattr(value, "base_lrs")]


def _set_options(group: dict[str, Any], values: Mapping[str, Any], *, keeps_place: bool) -> None:
    """Set options of a group of an optimizer. keeps_place: Whether a schedule has changed the learning rate, in proportion."""
    before = group.get("initial_lr", group.get("lr"))
    if keeps_place and "lr" in values and before:
        values = {**values, "lr": group["lr"] * (values.get("initial_lr", values["lr"]) / before)}
    group.update(values)


def _as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as they are read from a file."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(arguments)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the arguments must be JSON: {error}") from None
    return found


def _differing(path: str, step: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a checkpoint was saved with in another value, by name, and print them."""
    try:
        with open(os.path.join(path, _OWN), encoding="utf-8") as marker:
            saved = json.load(marker).get("arguments") or {}
    except (OSError, ValueError, AttributeError):
        saved = {}
    found = {name: saved[name] for name in saved if name not in arguments or arguments[name] != saved[name]}
    if found and _rank() == 0:
        pairs = [f"{name} {value!r} (now {arguments.get(name)!r})" for name, value in found.items()]
        text = f"pulumi-trainer: the checkpoint of step {step} was saved with {', '.join(pairs)}"
        print(text, file=sys.stderr, flush=True)
    return found


@dataclass
class _Pending:
    """A checkpoint that is being written.

    Attributes:
        token: What the parts of all ranks have in common, and no other checkpoint.
        future: Of the thread that writes; None if this process has written its part.
    """

    path: str
    step: int
    temporary: str
    sharded: bool
    token: str
    future: Any = None
    error: BaseException | None = None

    def attempt(self, call: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Call, and keep the error, which torch.distributed.checkpoint derives from BaseException."""
        try:
            call(*args, **options)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.error = error

    def has_failed(self) -> bool:
        """Return whether it has failed on any rank; all ranks wait for one another."""
        return bool(_reduce([int(self.error is not None)], "MAX")[0])

    @property
    def written(self) -> bool:
        return self.future is None or bool(self.future.done())

    def result(self) -> None:
        if self.future is not None:
            self.future.result()


def _reason(error: BaseException | None) -> str:
    """Return an error in one line; of those of several ranks, which torch puts into one, the first."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, Mapping) and failures:
        error = next(iter(failures.values()))[0]
    return " ".join(str(error).split())[:500] or type(error).__name__


def _write_whole(folder: str, state: Mapping[str, Any]) -> None:
    values = {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in state.items()}
    if "torch" in sys.modules:
        import torch

        with open(os.path.join(folder, _TORCH_FILE), "wb") as file:
            torch.save(values, file)
    else:
        with open(os.path.join(folder, _JSON_FILE), "w", encoding="utf-8") as text:
            json.dump(values, text)


def _complete(temporary: str, path: str, step: int, more: Mapping[str, Any]) -> None:
    """Write the marker into a folder whose other files are written, and give it its name. more: As for `_mark`."""
    _mark(temporary, step, _take_digests(temporary), more)
    if os.path.exists(path):  # it is damaged, or an earlier run has left it
        os.rename(path, f"{temporary}-replaced")
        _delete(f"{temporary}-replaced")
    os.rename(temporary, path)
    _flush(os.path.dirname(path))


def _mark(folder: str, step: int, digests: dict[str, str], more: Mapping[str, Any]) -> None:
    """Write the marker with size and digest of each file of a folder, when all of these are on disk.

    Args:
        more: What the marker has besides: `arguments`, if the program has given any; and if it is the part of one node, the
            number of nodes, and a token of the checkpoint.
    """
    own, written = os.path.join(folder, _OWN), os.path.join(folder, f"{_TEMPORARY}marker")
    others = [file for file in _files(folder) if file not in (own, written) and not os.path.isdir(file)]
    files = {os.path.relpath(file, folder): file for file in others}
    with ThreadPoolExecutor(1) as pool:  # reads the files while the disk writes them
        unread = pool.submit(_digests_of, {name: file for name, file in files.items() if name not in digests})
        for file in _files(folder):
            _flush(file)
        digests = {**digests, **unread.result()}
    sizes = {name: os.path.getsize(file) for name, file in files.items()}
    about = {"files": sizes, "sha256": digests, "step": step, "time": _timestamp(time.time()), **more}
    with open(written, "w", encoding="utf-8") as marker:
        json.dump(about, marker)
    _flush(written)
    os.rename(written, own)
    _flush(folder)


def _finish_upload(upload: Any, folder: str) -> None:
    """Wait until the files are written, then write their digests."""
    upload.result()
    _leave_digests(folder)


def _leave_digests(folder: str) -> None:
    """Write the digests of the files that torch.distributed.checkpoint has written on this rank, which has them in memory."""
    names = [name for name in os.listdir(folder) if name.startswith(f"__{_rank()}_")]
    found = _digests_of({name: os.path.join(folder, name) for name in names})
    with open(os.path.join(folder, f"{_DIGESTS}{_rank()}"), "w", encoding="utf-8") as file:
        json.dump(found, file)


def _take_digests(folder: str) -> dict[str, str]:
    """Return the digests that the ranks have left in a folder, and delete their files."""
    found: dict[str, str] = {}
    for path in glob.glob(os.path.join(glob.escape(folder), f"{_DIGESTS}*")):
        with open(path, encoding="utf-8") as file:
            found.update(json.load(file))
        os.remove(path)
    return found


def _verify_once(path: str) -> str:
    """Return what is damaged in a checkpoint; empty if nothing is. One of the processes of a container reads the files."""
    place = os.path.dirname(os.environ.get("TRAINER_STOP_FILE", ""))
    if not place:  # outside of a job
        return _damage_in(path)
    try:
        import fcntl

        marker = os.stat(os.path.join(path, _OWN))
        key = f"{path} {marker.st_ino} {marker.st_mtime_ns}"
        with open(os.path.join(place, _VERIFIED), "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = dict(map(json.loads, file))
            if key not in known:
                known[key] = _damage_in(path)
                file.write(json.dumps([key, known[key]]) + "\n")
                file.flush()
            return str(known[key])
    except (ImportError, OSError, ValueError):  # a folder without locks
        return _damage_in(path)


def _files(folder: str) -> Iterator[str]:
    """Yield a folder and all below it."""
    yield folder
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            yield os.path.join(place, name)


def _flush(path: str) -> None:
    """Wait until a file or folder is on disk, where the file system can do that."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:
        if not os.path.isdir(path):  # some network file systems refuse folders
            raise
    finally:
        os.close(number)


def _delete(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _is_sharded(state: Any) -> bool:
    """Return whether a value contains a tensor of which each rank has a part."""
    if type(state).__name__ in ("DTensor", "ShardedTensor"):
        return True
    if hasattr(state, "parameters") and hasattr(state, "modules"):
        fsdp1 = any(type(each).__name__ == "FullyShardedDataParallel" for each in state.modules())
        return fsdp1 or any(map(_is_sharded, state.parameters()))
    if isinstance(state, Mapping):
        return any(map(_is_sharded, state.values()))
    return isinstance(state, (list, tuple)) and any(map(_is_sharded, state))


def _sharded_dict(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state dicts in which each rank has its part of the tensors, with names that fit any number of ranks."""
    import torch
    from torch.distributed.checkpoint import state_dict as dicts

    found: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, torch.nn.Module):
            found[name] = dicts.get_model_state_dict(value)
        elif isinstance(value, torch.optim.Optimizer):
            found[name] = dicts.get_optimizer_state_dict(_model_of(value, state), value)
        else:
            found[name] = value.state_dict() if hasattr(value, "state_dict") else value
    return found


def _model_of(optimizer: Any, state: Mapping[str, Any]) -> Any:
    """Return the model of the state whose parameters an optimizer has."""
    first = next(iter(optimizer.param_groups[0]["params"]))
    for value in state.values():
        if hasattr(value, "parameters") and any(each is first for each in value.parameters()):
            return value
    raise ValueError("the state has an optimizer without its model, which names the optimizer's tensors")


def _load_sharded(path: str, state: Mapping[str, Any]) -> dict[str, Any]:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as dicts

    found = _sharded_dict(state)
    dcp.load(found, checkpoint_id=path)
    for name, value in state.items():
        if isinstance(value, torch.nn.Module):
            dicts.set_model_state_dict(value, found[name])
        elif isinstance(value, torch.optim.Optimizer):
            dicts.set_optimizer_state_dict(_model_of(value, state), value, optim_state_dict=found[name])
        elif hasattr(value, "load_state_dict"):
            value.load_state_dict(found[name])
        else:
            continue
        found[name] = value
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
        given = {name: _number(f"TRAINER_CHECKPOINT_{name.upper()}") for name in ("keep", "every", "steps")}
        keep, steps = int(given["keep"] or 3), int(given["steps"])
        _known[place] = Checkpoints(place, keep=keep, every=given["every"], steps=steps)
    return _known[place]


def _number(name: str) -> float:
    try:
        return max(float(os.environ.get(name) or 0), 0)
    except ValueError:
        return 0


# The end of a container


@dataclass
class _Stop:
    """What this process knows of the end of its container."""

    signaled: bool = False
    agreed: bool = False
    calls: int = 0


_stop = _Stop()


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
    _handle_sigterm()
    if _stop.agreed:
        return True
    _stop.calls += 1
    if _stop.calls % max(every, 1) and _group() is not None:
        return False
    file = os.environ.get("TRAINER_STOP_FILE", "")
    here = _stop.signaled or bool(file and os.path.exists(file))
    writing = [each for each in _known.values() if each._pending is not None]
    unwritten = any(not each._pending.written for each in writing if each._pending is not None)
    stop, waits = _reduce([int(here), int(unwritten)], "MAX")
    if not waits:
        for each in writing:
            each.wait()
    if stop:
        _stop.agreed = True
        _touch(file)
    return bool(stop)


def _handle_sigterm() -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    _stop.signaled = True


_forking = threading.local()


def _before_fork() -> None:
    """Hold SIGTERM back, which the new process would otherwise lose until it has its own handler."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    """Let a forked process end at SIGTERM, as `Process.terminate()` and the end of a pool of processes expect."""
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _touch(file: str) -> None:
    if file:
        try:
            open(file, "a", encoding="utf-8").close()
        except OSError as error:
            print(f"pulumi-trainer: {file} cannot be written: {error}", file=sys.stderr, flush=True)


def done() -> None:
    """Say that the program has finished its work: the container then counts as complete although it was about to be stopped.

    Call it on all ranks after the last step, when the results are saved. Outside of a job it does nothing.
    """
    _touch(os.environ.get("TRAINER_DONE_FILE", ""))


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
    if _rank() != 0:
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
    if newest:
        found = max(newest, key=lambda each: each.time)
        status["checkpoint"] = {"step": found.step, "time": _timestamp(found.time)}
    return status


def _print(status: Mapping[str, Any]) -> None:
    _shown.time, _shown.line = time.monotonic(), status
    print(json.dumps({"trainerStatus": status}), flush=True)


def _print_latest() -> None:
    """Print the latest progress when the program ends, unless its step and its newest checkpoint are printed."""
    if _shown.latest is None and _shown.resumed and not _shown.trains and _rank() == 0:
        _shown.latest = _shown.resumed, None, {}  # it has done no step
    if _shown.latest is None:
        return
    with suppress(Exception):  # a metric of a broken device, a closed output
        status = _status(*_shown.latest)
        if any(status.get(name) != (_shown.line or {}).get(name) for name in ("step", "checkpoint")):
            _print(status)


atexit.register(_print_latest)


def _text(value: Any) -> str:
    """Return a metric as text; a tensor is a number."""
    if isinstance(value, (str, int)):
        return str(value)[:64]
    try:
        return f"{float(value.detach() if hasattr(value, 'detach') else value):.6g}"
    except (TypeError, ValueError):
        return str(value)[:64]


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


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
                _reset_optimizers([optimizer])
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
            found._saved = _Saved(os.path.join(args.output_dir, f"checkpoint-{step}"), step, time.time())
            found._last = time.monotonic()
            self.unsealed = found._saved.path, step
            if _rank() == 0:
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
