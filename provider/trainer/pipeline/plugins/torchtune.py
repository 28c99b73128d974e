"""TorchTune: recipe and config of a job with the command `tune run`, for the Torch plugin.

Model and sizes are read from the name of the runtime. Source:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torchtune.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, listed, text
from pulumi_trainer.provider.kubernetes.values.names import quoted
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER, TRAINER_PORT, Info, TrainJob, head_node
from pulumi_trainer.provider.trainer.pipeline.resources import gpus, resources_per_node

COMMAND = ["tune", "run"]
MODELS = frozenset({"llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B"})
SEVERAL_NODES = "llama3_3/70B"
SMALL_LLAMAS = frozenset({"llama3_2/1B", "llama3_2/3B"})
QWEN = "qwen2_5/1.5B"
MANAGED = frozenset({"output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file"})
"""Configs that the runtime's command gives, and a job may not."""

_SINGLE_DEVICE = {
    "qlora": ("lora_finetune_single_device", "_qlora_single_device"),
    "lora": ("lora_finetune_single_device", "_lora_single_device"),
    "": ("full_finetune_single_device", "_full_single_device"),
}
_ONE_NODE = {
    "qlora": ("lora_finetune_distributed", "_qlora"),
    "lora": ("lora_finetune_distributed", "_lora"),
    "": ("full_finetune_distributed", "_full"),
}
_SEVERAL_NODES = ("full_finetune_distributed", "_full_multinode")


def is_torchtune(train_job: TrainJob) -> bool:
    return (train_job.trainer or {}).get("command") == COMMAND


def validate(info: Info, train_job: TrainJob) -> Iterator[Problem]:
    """Yield the problems of a job that `is_torchtune`. Only its own numNodes counts, not that of the runtime."""
    trainer = train_job.trainer or {}
    name = train_job.runtime_name
    model = _model(name)
    known = not isinstance(name, Unknown)
    if known and model not in MODELS:
        why = f"must have a supported pretrained model, invalid model configured: {model}"
        yield Problem("spec.runtimeRef.name", why)
    nodes: Any = trainer.get("numNodes", 1)
    several = isinstance(nodes, int) and nodes > 1
    if known and several and model != SEVERAL_NODES:
        yield Problem("spec.trainer.numNodes", f"must be 1 for {model} model")
    processes = trainer.get("numProcPerNode", "auto")
    found = _recipe(nodes, processes, gpus(resources_per_node(info, train_job)), _words(trainer.get("args")))
    suffix = ""
    if not isinstance(found, Unknown):
        suffix = found[1]
    if suffix.startswith("_qlora"):
        if model == QWEN:
            yield Problem("spec.runtimeRef.name", f"QLoRA is not supported for {model} model")
        if suffix != "_qlora_single_device" and model in SMALL_LLAMAS:
            why = f"must be auto or 1 for {model} model when using QLoRA"
            yield Problem("spec.trainer.numProcPerNode", why)
            why = f"must have gpu resource with value 1 for {model} model when using QLoRA"
            yield Problem("spec.trainer.resourcesPerNode", why)
    args = _words(trainer.get("args"))
    if several and _tuning(args):
        yield Problem("spec.trainer.numNodes", "LoRA fine-tuning is not supported for multi-node training in TorchTune")
    for place, arg in enumerate(args):
        key = arg.partition("=")[0]
        if key in MANAGED:
            why = f"must not set immutable config {quoted(key)} in trainer args; it is managed by the runtime"
            yield Problem(f"spec.trainer.args[{place}]", why)


def rewrite(info: Info, train_job: TrainJob, processes: int | str | Unknown) -> None:
    """Rewrite the job's command: rendezvous for several processes, recipe, config, and the runtime's overrides."""
    trainer = train_job.trainer
    assert trainer is not None
    nodes: int | Unknown = 1
    if info.trainer_pod_set:
        nodes = info.trainer_pod_set.count
    accelerators = gpus(resources_per_node(info, train_job))
    unknown = first_unknown([nodes, processes, accelerators, trainer.get("args"), train_job.runtime_name])
    if unknown:
        trainer["command"] = [*COMMAND, unknown]
        return
    address = []
    if _has_several_processes(nodes, processes, accelerators):
        address.append(f"--rdzv_endpoint={head_node(train_job)}:{TRAINER_PORT}")
    found = _recipe(nodes, processes, accelerators, _words(trainer.get("args")))
    assert not isinstance(found, Unknown)
    recipe, suffix = found
    config = f"{_model(train_job.runtime_name)}{suffix}"
    trainer["command"] = [*COMMAND, *address, recipe, "--config", config, *_overrides(info)]


def _has_several_processes(nodes: Any, processes: Any, accelerators: Any) -> bool:
    """Return whether several processes train; without a number of processes, each GPU has one."""
    if nodes > 1:
        return True
    if isinstance(processes, int):
        return processes > 1
    return bool(accelerators > 1)


def _model(runtime: Any) -> str:
    """Return the model of a runtime: `torchtune-llama3.2-1b` becomes llama3_2/1B."""
    if not isinstance(runtime, str):
        return ""
    parts = runtime.split("-")
    if len(parts) != 3:
        return ""
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}"


def _recipe(nodes: Any, processes: Any, accelerators: Any, args: list[str]) -> tuple[str, str] | Unknown:
    """Return the recipe, and the suffix of its config's name."""
    unknown = first_unknown([nodes, processes, accelerators])
    if unknown:
        return unknown
    tuning = _tuning(args)
    if nodes == 1 and (processes == 1 or accelerators == 1):
        return _SINGLE_DEVICE[tuning]
    if nodes == 1:
        return _ONE_NODE[tuning]
    if nodes > 1:
        return _SEVERAL_NODES
    return _ONE_NODE[""]


def _tuning(args: list[str]) -> str:
    """Return qlora, lora or an empty text. DoRA is not quantized."""
    if _is_on(args, "model.quantize_base") and not _is_on(args, "model.use_dora"):
        return "qlora"
    if any("model.lora_attn_modules" in arg for arg in args):
        return "lora"
    return ""


def _is_on(args: list[str], config: str) -> bool:
    for arg in args:
        name, equals, value = arg.partition("=")
        if config in name and equals and value.strip().lower() == "true":
            return True
    return False


def _overrides(info: Info) -> list[str]:
    """Return the file options in the commands of the runtime's trainers, which the job's command would lose."""
    overrides: list[str] = []
    for pod_set in info.pod_sets:
        if pod_set.ancestor != TRAINER:
            continue
        for container in items(pod_set.pod_spec, "containers"):
            if container.get("name") == NODE:
                words = _words(container.get("command"))
                overrides += [word for word in words if word.split("=")[0] in MANAGED]
    return overrides


def _words(value: Any) -> list[str]:
    """Return the strings of a list; other items become empty, so that indices stay."""
    return [*map(text, listed(value))]
