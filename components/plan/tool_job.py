"""What the rendered job of a fine-tuning tool lacks for the fields: batches of whole groups, and the paths of its inputs."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pulumi_trainer.args.arguments import as_mapping, quoted
from pulumi_trainer.args.fine_tuning import LOST, OUTPUT_HINT, is_below
from pulumi_trainer.args.torchtune import flat, nested
from pulumi_trainer.args.trainers import asks_for_gpu
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural, short_repr
from pulumi_trainer.provider.kubernetes.views import Container, jobs_of
from pulumi_trainer.provider.pod.code import WORKSPACE
from pulumi_trainer.provider.trainer.admission.warnings.storage import PASSING
from pulumi_trainer.provider.trainer.pipeline.info import NODE
from pulumi_trainer.provider.trainer.pipeline.resources import gpus

_MODELS = (
    "teacher_model_name_or_path",
    "reward_model_name_or_path",
    "teacher_checkpointer.checkpoint_dir",
    "ref_checkpointer.checkpoint_dir",
)
"""Fields that name a further model."""


def nodes_have_gpus(jobsets: Iterable[Document]) -> bool:
    """Return whether the nodes get GPUs, from the job or its runtime; true if this is not known."""
    resources = [node.document.get("resources") for node in tool_nodes(jobsets)]
    return not resources or any(first_unknown(each) is not None or asks_for_gpu(each) for each in resources)


def batch_problems(config: Any, defaults: Mapping[str, int], jobsets: Iterable[Document]) -> list[Problem]:
    """Return why TRL would refuse the batches of GRPO or RLOO, which contain all generations of each of their prompts."""
    if not defaults or not isinstance(config, Mapping):
        return []
    given: dict[str, Any] = {**defaults}
    for name, value in config.items():
        if value is not None:
            given[name] = value
    group, steps = given.get("num_generations"), given.get("steps_per_generation")
    whole = given.get("generation_batch_size")
    if whole is not None and steps is not None:
        why = "is set, and so is steps_per_generation, which determines it"
        return [Problem('config["generation_batch_size"]', why, "leave one of the two out")]
    if type(group) is not int:
        return []
    if group < 2:
        why = f"must be at least 2, not {group}: scores are compared within the generations of a prompt"
        return [Problem('config["num_generations"]', why)]
    processes = next(filter(None, map(_processes, jobsets)), 0)
    factors = [given["per_device_train_batch_size"], processes, steps or given["gradient_accumulation_steps"]]
    if not all(type(each) is int and each > 0 for each in factors):
        return _indivisible_batch(whole, group)
    batch, made = factors[0] * processes, f"{factors[0]} per device * {plural(processes, 'rank')}"
    if type(whole) is int and whole % batch:
        why = f"is {whole}, and the global batch size ({made}) does not divide it"
        return [Problem('config["generation_batch_size"]', why, "change one of the three")]
    if whole is not None:
        return _indivisible_batch(whole, group)
    return _indivisible(math.prod(factors), group, f"the generation batch ({made} * {plural(factors[2], 'step')})")


def _indivisible_batch(size: Any, group: int) -> list[Problem]:
    """Return that the field `generation_batch_size` is not divisible by a group; empty if its type is another one."""
    if type(size) is not int:
        return []
    return _indivisible(size, group, f"generation_batch_size ({size})")


def _indivisible(size: int, group: int, shown: str) -> list[Problem]:
    if size % group == 0:
        return []
    why = f"is {group}, and {shown} must be divisible by it: a batch contains all generations of a prompt"
    return [Problem('config["num_generations"]', why, "change batch size, number of ranks or num_generations")]


def _processes(jobset: Document) -> int:
    """Return the number of processes that torchrun starts; 0 if it is not known."""
    for node in tool_nodes([jobset]):
        env = {text(each.get("name")): each.get("value") for each in node.env}
        count = env.get("PET_NPROC_PER_NODE")
        if count in ("auto", "gpu"):
            count = gpus(section(node.document, "resources")) or ""
        if str(count).isdecimal() and str(env.get("PET_NNODES")).isdecimal():
            return int(str(count)) * int(str(env["PET_NNODES"]))
    return 0


def describe_batch(config: Any, jobsets: Iterable[Document]) -> str:
    """Return what makes a batch of Transformers' Trainer, where epochs and not `max_steps` decide how many steps there are.

    Returns:
        The factors; empty if `max_steps` decides, or if they are not known.
    """
    given = as_mapping(config)
    factors = [*map(given.get, ("max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"))]
    processes = next(filter(None, map(_processes, jobsets)), 0)
    if not processes or any(each is not None and type(each) is not int for each in factors) or (factors[0] or 0) > 0:
        return ""
    _, size, accumulated = factors
    found = f"{size or 'the default'} per device * {plural(processes, 'rank')}"
    if (accumulated or 1) > 1:
        found += f" * {accumulated} accumulated"
    return found


def parallel_problems(config: Any, jobsets: Iterable[Document]) -> list[Problem]:
    """Return why torchtune cannot split its model between the processes of the job."""
    size = as_mapping(config).get("tensor_parallel_dim")
    processes = next(filter(None, map(_processes, jobsets)), 0)
    if type(size) is not int or size < 1 or processes % size == 0:
        return []
    why = f"is {size}, which does not divide the number of processes, {processes}"
    return [Problem('config["tensor_parallel_dim"]', why, "change it, num_nodes or num_proc_per_node")]


def path_warnings(fields: Iterable[str], config: Any, jobsets: Iterable[Document]) -> list[Problem]:
    """Return the models and datasets of this machine that no volume of the Pods of a cluster has."""
    found = []
    for where, path in _own_paths(fields, config, jobsets):
        if _exists_on_this_machine(path):
            why = f"{path} is on this machine, and no volume of the Pods has it"
            hint = "fetch it by initializer=, mount a volume there, or ignore this if the image has it"
            found.append(Problem(f"trainer.{where}", why, hint))
    return found


def missing_paths(fields: Iterable[str], config: Any, jobsets: Iterable[Document]) -> list[Problem]:
    """Return the models and datasets that neither this machine nor a volume of a job that runs on it has."""
    hint = "give the path of a file or folder of this machine, or a name of the hub"
    own = _own_paths(fields, config, jobsets)
    return [
        Problem(where, f"{path} does not exist on this machine", hint)
        for where, path in own
        if path.startswith("/") and not _exists_on_this_machine(path)
    ]


def _own_paths(fields: Iterable[str], config: Any, jobsets: Iterable[Document]) -> Iterator[tuple[str, str]]:
    """Yield field and path of the models and datasets that are in no volume of the Pods."""
    known, mounted = dict(flat(nested(config))), [WORKSPACE, *_mount_paths(jobsets)]
    for name in (*fields, *_MODELS):
        path = known.get(name)
        if not isinstance(path, str) or not path.startswith(("/", "./", "../", "~")):
            continue
        if not any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in mounted):
            yield f"config[{quoted(name)}]", path


def lost_output_problems(config: Any, jobsets: Iterable[Document], *, cluster: bool) -> list[Problem]:
    """Return a problem if the tool would write its result where nothing outlives the Pods."""
    path = as_mapping(config).get("output_dir")
    if not isinstance(path, str) or (path.startswith("/") and not cluster):
        return []
    if any(is_below(posixpath.normpath(path), place) for place in _lasting_paths(jobsets)):
        return []
    why = f"is {short_repr(path)}, which is on no volume that outlives the Pods of the job: {LOST}"
    return [Problem('config["output_dir"]', why, f"leave it out, and {OUTPUT_HINT}; or mount a volume there")]


def _lasting_paths(jobsets: Iterable[Document]) -> Iterator[str]:
    """Yield where the containers of the tool mount volumes that outlive their Pods."""
    for job in chain.from_iterable(map(jobs_of, jobsets)):
        passing = [volume.get("name") for volume in job.pod.volumes if volume.keys() & {*PASSING}]
        for container in job.pod.containers:
            for mount in container.mounts:
                if container.name == NODE and mount.get("name") not in passing:
                    yield text(mount.get("mountPath")).rstrip("/")


def _exists_on_this_machine(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def _mount_paths(jobsets: Iterable[Document]) -> Iterator[str]:
    for node in tool_nodes(jobsets):
        for volume_mount in node.mounts:
            path = text(volume_mount.get("mountPath"))
            if path:
                yield path


def tool_nodes(jobsets: Iterable[Document]) -> Iterator[Container]:
    """Yield the containers in which the tool runs."""
    for job in chain.from_iterable(map(jobs_of, jobsets)):
        for container in job.pod.containers:
            if container.name == NODE:
                yield container
