"""Writes and reads the state in a checkpoint of `pulumi_trainer.training`, without what a fork resets."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.pod.shared import find_checkpoint, training_ranks
from pulumi_trainer.provider.pod.shared.training_files import leave_digests, touch
from pulumi_trainer.provider.pod.shared.training_ranks import own_rank, reduce_values

_JSON_FILE = "state.json"
_TORCH_FILE = "state.pt"
_SHARDED_FILE = ".metadata"
"""Of torch.distributed.checkpoint, which writes it last."""
_OWN: str = find_checkpoint.OWN


@dataclass
class Pending:
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
        return bool(reduce_values([int(self.error is not None)], "MAX")[0])

    @property
    def written(self) -> bool:
        return self.future is None or bool(self.future.done())

    def result(self) -> None:
        if self.future is not None:
            self.future.result()


def reason(error: BaseException | None) -> str:
    """Return an error in one line; of those of several ranks, which torch puts into one, the first."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, Mapping) and failures:
        error = next(iter(failures.values()))[0]
    return " ".join(str(error).split())[:500] or type(error).__name__


def finish_upload(upload: Any, folder: str) -> None:
    """Wait until the files are written, then write their digests."""
    upload.result()
    leave_digests(folder)


Function = Callable[[str], Any]
"""Writes or reads the files of a checkpoint in a folder, as another library has them."""


def is_state(state: Any) -> bool:
    """Return whether `save` takes it. An object with a state of its own, such as a model, is no function that writes files."""
    return isinstance(state, Mapping) or (callable(state) and not hasattr(state, "state_dict"))


def write_whole(folder: str, state: Mapping[str, Any] | Function) -> None:
    if not isinstance(state, Mapping):
        state(folder)
        return
    values = {name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in state.items()}
    if "torch" in sys.modules:
        import torch

        with open(os.path.join(folder, _TORCH_FILE), "wb") as file:
            torch.save(values, file)
    else:
        with open(os.path.join(folder, _JSON_FILE), "w", encoding="utf-8") as text:
            json.dump(values, text)


def load_state(path: str, state: Mapping[str, Any] | Function | None, reset: set[str]) -> dict[str, Any]:
    """Return what a checkpoint has, apart from what a fork resets, which stays as the program has made it.

    Raises:
        ValueError: As for `Checkpoints.load`; or neither the state nor its optimizers have what is reset.
    """
    if state is not None and not isinstance(state, Mapping):
        check_reset(reset, {"step"})
        state(path)
        return {}
    own = {name: value for name, value in (state or {}).items() if name in reset}
    taken = {name: value for name, value in (state or {}).items() if name not in reset}
    options, rates = _options(taken, reset), _rates(taken) if "lr" in reset else []
    names = _option_names(taken)
    found = _read(path, taken if state is not None else None)
    check_reset(reset, {"step", *(state or {}), *names}, saved=found)
    for optimizer, number, values in options:
        _set_options(optimizer.param_groups[number], values, keeps_place=bool(rates))
    for schedule, base in rates:
        schedule.base_lrs = base
    return {**{name: value for name, value in found.items() if name not in reset}, **own}


def _read(path: str, state: Mapping[str, Any] | None) -> dict[str, Any]:
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


def has_parts(state: Mapping[str, Any] | Function) -> bool:
    """Return whether several ranks write a state: its tensors are sharded, or it is a function and torch connects the ranks."""
    if not isinstance(state, Mapping):
        return training_ranks.group() is not None
    return is_sharded(state)


def is_sharded(state: Any) -> bool:
    """Return whether a value contains a tensor of which each rank has a part."""
    if type(state).__name__ in ("DTensor", "ShardedTensor"):
        return True
    if hasattr(state, "parameters") and hasattr(state, "modules"):
        fsdp1 = any(type(each).__name__ == "FullyShardedDataParallel" for each in state.modules())
        return fsdp1 or any(map(is_sharded, state.parameters()))
    if isinstance(state, Mapping):
        return any(map(is_sharded, state.values()))
    return isinstance(state, (list, tuple)) and any(map(is_sharded, state))


def sharded_dict(state: Mapping[str, Any]) -> dict[str, Any]:
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

    found = sharded_dict(state)
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


def reset_names(path: str | None) -> set[str]:
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


def check_reset(names: set[str], known: set[str], saved: Iterable[str] = ()) -> None:
    """Check what a fork resets. saved: What the checkpoint has."""
    unknown = sorted(names - known)
    if not unknown:
        return
    touch(os.environ.get("TRAINER_FINAL_FILE", ""))  # another attempt would fail likewise
    if {*unknown} <= {*saved}:
        given = ", ".join(f"{name!r}: ..." for name in unknown)
        raise ValueError(f"Fork(reset={unknown}): load() knows no other value. Hint: give it one, load({{{given}}})")
    can = ", ".join(sorted(known))
    raise ValueError(f"unknown name in Fork(reset={unknown}). Hint: this program can reset: {can}")


def reset_optimizers(optimizers: Iterable[Any], path: str | None) -> None:
    """Clear the states of optimizers that a library has loaded from the checkpoint that a fork starts from, if it resets them."""
    names = reset_names(path)
    check_reset(names, {"optimizer"})
    if names:
        for optimizer in optimizers:
            getattr(optimizer, "optimizer", optimizer).state.clear()
        if own_rank() == 0:
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


def as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as they are read from a file."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(arguments)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the arguments must be JSON: {error}") from None
    return found


def differing(path: str, step: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a checkpoint was saved with in another value, by name, and print them."""
    try:
        with open(os.path.join(path, _OWN), encoding="utf-8") as marker:
            saved = json.load(marker).get("arguments") or {}
    except (OSError, ValueError, AttributeError):
        saved = {}
    found = {name: saved[name] for name in saved if name not in arguments or arguments[name] != saved[name]}
    if found and own_rank() == 0:
        pairs = [f"{name} {value!r} (now {arguments.get(name)!r})" for name, value in found.items()]
        text = f"pulumi-trainer: the checkpoint of step {step} was saved with {', '.join(pairs)}"
        print(text, file=sys.stderr, flush=True)
    return found
