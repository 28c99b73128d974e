"""Reads who starts the training processes of a torch runtime, and whether that program reads the PET_* variables of Trainer.

torchrun does: https://github.com/pytorch/pytorch/blob/v2.10.0/torch/distributed/argparse_util.py. The others are judged by their
sources, named at each.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.admission.warnings.view import View, number

_CONNECTS = re.compile(
    r"torchrun|torch\.distributed\.(run|launch)|torch_xla|mpirun|srun|horovodrun|tune run"
    r"|PET_\w*|MASTER_ADDR|RANK\b|WORLD_SIZE|NNODES|JOB_COMPLETION_INDEX"
)
"""Parts of a command that connects nodes: launchers, and variables that a user sets or reads by hand."""
_CONNECTING_VARIABLES = ("RANK", "WORLD_SIZE", "NNODES", "MIN_NNODES")

_PYTHON = re.compile(r"python[0-9.]*")
SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_SHELL_OPTION = re.compile(r"-[a-z]*c")
_SEPARATORS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BEFORE_COMMANDS = (
    "then", "else", "do", "!", "{", "time", "exec", "env", "nohup", "nice", "numactl", "tini", "dumb-init", "sudo", "stdbuf",
    "timeout", "gosu", "su-exec",
)  # fmt: skip
"""Words of a shell, and programs that start the command behind their options."""
_WITH_WORD = ("timeout", "gosu", "su-exec")
"""Those that take a word before the command: a time, or a user."""
_RUNNERS = {
    "uv": "-p --python --with --with-editable --with-requirements --extra --group --only-group --env-file --package --project"
    " --directory --index --default-index --index-url --extra-index-url",
    "conda": "-n --name -p --prefix --cwd",
    "mamba": "-n --name -p --prefix --cwd",
    "poetry": "-C --directory -P --project",
    "pdm": "-p --project",
    "pipenv": "",
    "hatch": "-e --env -p --project",
    "pixi": "-e --environment --manifest-path",
    "rye": "",
}
"""Program whose `run` starts the command behind it -> its options that a value follows."""
_WRAPPERS = (
    "coverage", "nsys", "ncu", "py-spy", "opentelemetry-instrument", "ddtrace-run", "doppler", "dotenv", "aws-vault", "uvx", "uv",
    "xvfb-run",
)  # fmt: skip
"""Programs that start the first program which is known among their words."""
_MODULES = {
    "trl": ["trl"],
    "axolotl.cli.train": ["axolotl", "train"],
    "accelerate.commands.launch": ["accelerate", "launch"],
    "accelerate.commands.accelerate_cli": ["accelerate"],
    "deepspeed.launcher.runner": ["deepspeed"],
    "axolotl.cli.main": ["axolotl"],
    "llamafactory.cli": ["llamafactory-cli"],
}
"""Modules of launchers -> their programs."""


@dataclass(frozen=True)
class Launch:
    """A program that starts training on one node only.

    Args:
        why: What it does in place of reading PET_*.
        hint: How nodes are connected with it.
        uses_node: Whether it starts a process for each GPU of its node.
        ignores_variables: Whether it does the same with options that name the PET_* variables.
    """

    why: str
    hint: str
    uses_node: bool = True
    ignores_variables: bool = False


def not_torchrun(view: View) -> Iterator[Problem]:
    """Yield a torch runtime whose command starts no launcher that reads PET_*: each node then trains its own model."""
    if not view.has_policy("torch"):
        return
    launch = find_launch(view)
    if launch is None:
        return
    processes = number((view.trainer or {}).get("numProcPerNode"))
    if view.several_nodes:
        what = f"{view.nodes} nodes train {view.nodes} models"
    elif not launch.uses_node and (view.gpus > 1 or (processes or 1) > 1):
        what = "it trains in one process while the others stay idle"
    else:
        return
    field = "args"
    if (view.trainer_container or {}).get("command"):
        field = "command"
    yield Problem(f"spec.trainer.{field}", f"{launch.why}: {what}, without an error", launch.hint)


def find_launch(view: View) -> Launch | None:
    """Return what starts the training if it connects no nodes; None if it does, or is unknown."""
    words = view.words
    if words is None or is_bootstrapped(words):
        return None
    connecting = set[str]()
    for word in words:
        connecting |= {match[0] for match in _CONNECTS.finditer(_without_printed(word))}
    by_hand = not all(match.startswith("PET_") for match in connecting)
    if by_hand or any(map(view.variable, _CONNECTING_VARIABLES)):
        return None
    has_command = bool((view.trainer_container or {}).get("command"))
    if not has_command and _SHELL_OPTION.fullmatch(words[0]):
        words = ["sh", *words]  # the entrypoint of the image is a shell, here and below
    elif not has_command and " " in words[0]:
        words = ["sh", "-c", *words]
    elif not has_command and words[0].endswith(".py"):
        return None
    launch = _launch(words, view)
    if connecting and launch is not None and not launch.ignores_variables:
        return None
    return launch


def _without_printed(word: str) -> str:
    """Return a word of a command without what a shell only prints, and without comments, if it is a script."""
    is_script = " " in word or "\n" in word
    return _PRINTED.sub("", _COMMENT.sub("", word)) if is_script else word


_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
_PRINTED = re.compile(r"(?m)(?:^|(?<=[;&|]))\s*(?:echo|printf)\s[^;&|\n>]*(?=[;&|\n]|$)")


def is_bootstrapped(words: list[str]) -> bool:
    """Return whether a command starts code that travels with the job, whose launcher the plan chooses."""
    return f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}" in words


def _launch(words: list[str], view: View) -> Launch | None:
    words = _unwrapped(words)
    program = words[0].rpartition("/")[2] if words else ""
    if program in SHELLS:
        script = next((after for word, after in pairwise(words) if _SHELL_OPTION.fullmatch(word)), "")
        return _launch_of_script(script, view)
    if program in _RUNNERS and words[1:2] == ["run"]:
        return _launch_by_runner(program, words[2:], view)
    if program.endswith(".py") or _PYTHON.fullmatch(program) or program == "ipython":
        return _launch_of_python(words, view)
    if program in _WRAPPERS:
        return _launch_in_wrapper(words[1:], view)
    reads = _LAUNCHERS.get(program)
    return None if reads is None else reads([program, *words[1:]], view)


def _launch_in_wrapper(words: list[str], view: View) -> Launch | None:
    """Return what the first known program among some words starts."""
    for place, word in enumerate(words):
        program = word.rpartition("/")[2]
        if program.endswith(".py") or _PYTHON.fullmatch(program) or program in (*SHELLS, *_LAUNCHERS):
            return _launch(words[place:], view)
    return None


def _unwrapped(words: list[str]) -> list[str]:
    """Return a command without variables, options and programs before it."""
    place = skipped = 0
    while place < len(words):
        program = words[place].rpartition("/")[2]
        option = place and words[place].startswith("-")
        if program in _BEFORE_COMMANDS:
            skipped = program in _WITH_WORD
        elif skipped and not option:
            skipped = False
        elif not option and not _ASSIGNMENT.fullmatch(words[place]):
            break
        place += 1
    return words[place:]


def _launch_of_script(script: str, view: View) -> Launch | None:
    """Return the first launch of a shell script that starts no other script or, at its end, another program."""
    found: Launch | None = None
    commands = [command for command in map(_unwrapped, _commands(script)) if command]
    for command in commands:
        program = command[0]
        launch = _launch(command, view)
        may_connect = program in SHELLS or program.endswith(".sh") or ("/" in program and command is commands[-1])
        if launch is None and may_connect:
            return None
        found = found or launch
    return found


def _commands(script: str) -> Iterator[list[str]]:
    """Yield the commands of a shell script as words; without regard to quotes where these do not match."""
    text = script.replace("\\\n", " ").replace("\n", " ; ")
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = [*lexer]
    except ValueError:
        yield from (part.split() for part in _SEPARATORS.split(script))
        return
    command: list[str] = []
    for word in words:
        if _SEPARATORS.fullmatch(word):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _launch_by_runner(runner: str, words: list[str], view: View) -> Launch | None:
    """Return what `uv run` and its like start. Source: https://docs.astral.sh/uv/reference/cli/#uv-run"""
    with_value, place = _RUNNERS[runner].split(), 0
    while place < len(words) and words[place].startswith("-"):
        if words[place] in ("-m", "--module"):
            break
        place += 1 + (words[place] in with_value)
    rest = words[place:]
    if rest and rest[0] in ("-m", "--module"):
        rest = ["python", "-m", *rest[1:]]
    if rest and rest[0] in _RUNNERS:
        return None
    launch = _launch(rest, view)
    if launch is None or launch.uses_node:
        return launch
    return Launch(launch.why, f"start the program with `{runner} run torchrun`", uses_node=False)


def _launch_of_python(words: list[str], view: View) -> Launch | None:
    rest = [word for word in words[1:] if not re.fullmatch("-[uBEIOsS]+", word)]
    module = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else ""
    if module in ("pip", "ensurepip", "venv", "uv"):
        return None
    if module in _MODULES:
        return _launch([*_MODULES[module], *rest[2:]], view)
    why = "starts Python without torchrun, which reads the PET_* variables"
    return Launch(why, "put torchrun in front instead of python", uses_node=False)


def _accelerate(words: list[str], view: View) -> Launch | None:
    """Read `accelerate launch`: it starts torch.distributed.run, which reads PET_*, only for several GPUs on a node.

    On a node with one GPU it starts the program without RANK and WORLD_SIZE, even with `--num_machines` and `--machine_rank`.

    Source: https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/commands/launch.py
    """
    if words[1:2] != ["launch"] or _starts_torchrun(words, view):
        return None
    why, hint = (
        f"starts accelerate launch, {_ONE_PROCESS}",
        "start the program with torchrun instead of accelerate launch",
    )
    return Launch(why, hint, ignores_variables=True)


_ONE_PROCESS = "which starts one process on such a node and reads no PET_* variable"
_DISTRIBUTED = {
    *("--multi-gpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm", "--tpu", "--mpirun-hostfile"),
    *("--config-file", "--accelerate-config"),
}
"""Options of accelerate that start torch.distributed.run, or may do so."""


def _starts_torchrun(words: list[str], view: View) -> bool:
    """Return whether accelerate starts torch.distributed.run, or may do so."""
    options = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("-")}
    if options & _DISTRIBUTED:
        return True
    one_process = re.search(r"--num[-_]processes[= ]1(?!\d)", " ".join(words))
    return "--cpu" not in options and not one_process and _may_have_several_devices(view)


def _may_have_several_devices(view: View) -> bool:
    container = view.trainer_container or {}
    if first_unknown(container.get("resources")) is not None or section(container, "resources").get("claims"):
        return True
    limits = section(container, "resources", "limits")
    return view.gpus > 1 or any("/" in name and "gpu" not in name.lower() for name in limits)


def _trl(words: list[str], view: View) -> Launch | None:
    """Read `trl METHOD`, which starts accelerate with the program of the method.

    Source: https://github.com/huggingface/trl/blob/v1.16.0/trl/cli/commands/training.py
    """
    method = "".join(words[1:2])
    if method not in ("sft", "dpo", "grpo", "kto", "reward", "rloo", "distillation") or _starts_torchrun(words, view):
        return None
    return Launch(
        f"starts trl {method} by accelerate, {_ONE_PROCESS}", f"start it with `torchrun -m trl.scripts.{method}`"
    )


def _axolotl(words: list[str], view: View) -> Launch | None:
    """Read `axolotl train`, which starts accelerate unless `--launcher` names another program.

    Source: https://github.com/axolotl-ai-cloud/axolotl/blob/v0.19.0/src/axolotl/cli/utils/train.py
    """
    if words[1:2] != ["train"] or _starts_torchrun(words, view):
        return None
    return Launch(f"starts axolotl by accelerate, {_ONE_PROCESS}", "add `--launcher torchrun`")


def _llamafactory(words: list[str], view: View) -> Launch | None:
    """Read `llamafactory-cli train`, whose torchrun gets `--nnodes` from NNODES, otherwise 1.

    Source: https://github.com/hiyouga/LLaMA-Factory/blob/v0.9.5/src/llamafactory/launcher.py
    """
    if words[1:2] != ["train"] or view.variable("USE_RAY"):
        return None
    why = f"starts {words[0]}, which reads NNODES, NODE_RANK and MASTER_ADDR instead of the PET_* variables"
    return Launch(why, f"start `torchrun -m llamafactory.launcher` instead of `{words[0]} train`")


def _swift(words: list[str], view: View) -> Launch | None:
    """Read ms-swift, which starts torch.distributed.run if NPROC_PER_NODE is set.

    Source: https://github.com/modelscope/ms-swift/blob/v4.6.0/swift/cli/main.py
    """
    if words[1:2] not in (["sft"], ["pt"], ["rlhf"]) or view.variable("NPROC_PER_NODE"):
        return None
    why = "starts swift, which starts torchrun only if NPROC_PER_NODE or NNODES is set, and otherwise Python"
    return Launch(why, "set NPROC_PER_NODE in env to the number of GPUs of a node", uses_node=False)


def _deepspeed(words: list[str], view: View) -> Launch | None:
    """Read `deepspeed`, which without a hostfile uses the GPUs of its own node.

    Source: https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/launcher/runner.py
    """
    options = {word.partition("=")[0] for word in words}
    paths = [str(mount.get("mountPath")) for mount in view.first_trainer.pod.mounts] if view.first_trainer else []
    if options & {"-H", "--hostfile", "--launcher", "--autotuning"} or any(path.startswith("/job") for path in paths):
        return None
    why = "starts deepspeed, which takes its nodes from a hostfile instead of the PET_* variables"
    return Launch(why, "start the program with torchrun instead of deepspeed")


def _composer(words: list[str], _view: View) -> Launch | None:
    """Read `composer`, which takes its nodes from options or WORLD_SIZE, NODE_RANK and MASTER_ADDR.

    Source: https://github.com/mosaicml/composer/blob/006ea7ac6e7aafa2d3df6a695c99d0982ca206f0/composer/cli/launcher.py
    """
    if any(word.startswith("--world_size") for word in words):
        return None
    why = "starts composer, which reads WORLD_SIZE, NODE_RANK and MASTER_ADDR instead of the PET_* variables"
    return Launch(why, "start the program with torchrun instead of composer")


def _fabric(words: list[str], _view: View) -> Launch | None:
    """Read `fabric run`, which gives torchrun `--nnodes` from its own option, otherwise 1.

    Source: https://github.com/Lightning-AI/pytorch-lightning/blob/021e6b11da0ee2842011308f67693d5662a4e0db/src/lightning/fabric/cli.py
    """
    if words[1:2] != ["run"] or any(re.match("--num[-_]nodes", word) for word in words):
        return None
    why = "starts fabric run, whose --num-nodes is 1 by default, instead of the value of PET_NNODES"
    return Launch(why, "start the program with torchrun instead of fabric run")


_LAUNCHERS = {
    "composer": _composer,
    "fabric": _fabric,
    "accelerate": _accelerate,
    "accelerate-launch": lambda words, view: _accelerate(["accelerate", "launch", *words[1:]], view),
    "trl": _trl,
    "axolotl": _axolotl,
    "llamafactory-cli": _llamafactory,
    "lmf": _llamafactory,
    "swift": _swift,
    "deepspeed": _deepspeed,
}
