"""Rules about the memory of GPUs, for trainings whose size is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulumi_trainer.provider.jobs.gpu_memory import GIB, Estimate, Training, changes_that_fit, describe, estimate
from pulumi_trainer.provider.jobs.usage import is_gpu
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kueue.flavor_memory import memory_by_place, memory_of_part
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.trainer.admission.warnings.queues import cluster_queue_of_job
from pulumi_trainer.provider.trainer.admission.warnings.view import View, amount

_TRAINER = "spec.trainer"


def too_little_memory(view: View) -> Iterator[Problem]:
    """Yield the flavors, or the nodes, whose GPUs have less memory than the training needs at the least."""
    training, memory = _placed(view)
    if training is None:
        return
    needs = estimate(training)
    short = {place: size for place, size in memory.items() if needs.total.low > size}
    if short:
        why = f"{describe(training)}: each GPU needs {needs}, but {_shown(short)}"
        yield Problem(_TRAINER, why, _hint(training, needs, memory, min(short.values())))


def uncertain_memory(view: View) -> Iterator[Problem]:
    """Yield what the training needs of each GPU, where their memory is not known, or may be less."""
    training, memory = _placed(view)
    if training is None:
        return
    needs = estimate(training)
    why = f"{describe(training)}: each GPU needs {needs}"
    if not memory:
        hint = 'state the memory of a GPU, GpuQueues(memory={"h100": "80Gi"}), for a warning if it is too little'
        yield Problem(_TRAINER, f"{why}; the memory of the GPUs is not known", hint)
        return
    least = min(memory.values())
    if needs.total.low <= least and not needs.fits(least):
        yield Problem(_TRAINER, f"{why}, and {_shown(memory)}", _hint(training, needs, memory, least))


def _shown(memory: Mapping[str, int]) -> str:
    found = []
    for name, size in memory.items():
        of = f"flavor {name}" if name else "its nodes"
        found.append(f"a GPU of {of} has {size / GIB:.0f} GiB")
    return ", ".join(found)


def _hint(training: Training, needs: Estimate, memory: Mapping[str, int], least: float) -> str:
    """Return the changes with which the training fits, each computed by the same formulas."""
    enough = [name for name, size in memory.items() if name and needs.fits(size)]
    found = [f"flavors={enough!r}{needs.without}"] if enough else []
    found += changes_that_fit(training, least)
    if not found:
        return "none of sharding, LoRA, gradient checkpointing and a smaller batch is known to suffice alone"
    return f"this fits: {', or '.join(found)}"


def _placed(view: View) -> tuple[Training | None, Mapping[str, int]]:
    """Return the training on the GPUs of the job, and the memory of one by flavor; None without GPUs, or if it is not known."""
    training, worker, nodes = view.training, view.worker, view.nodes
    if training is None or worker is None or not nodes:
        return None, {}
    limits = section(view.worker_container, "resources", "limits")
    counts = {name: amount(quantity) for name, quantity in limits.items() if is_gpu(name)}
    if len(counts) != 1:
        return None, {}
    ((resource, count),) = counts.items()
    if count is None or count.value < 1:
        return None, {}
    training = replace(training, gpus=nodes * count.value)
    part = memory_of_part(resource)
    if part is not None:
        return training, {"": part}
    behind = cluster_queue_of_job(view)
    pods = next((pods for pods in pod_sets(view.jobset, view.queues) if pods.name == worker.name), None)
    if pods is None:
        return None, {}
    if view.queue and behind is None:
        return training, {}
    return training, memory_by_place(pods, resource, behind, view.queues)
