"""What fields of a fine-tuning tool need, and its nodes lack: packages beside those of its runtime, and GPUs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pulumi_trainer.args.arguments import quoted
from pulumi_trainer.args.fine_tuning import ToolTrainer, has_value, table
from pulumi_trainer.args.torchtune import flat, nested
from pulumi_trainer.args.trainers import NO_GPU, ONE_GPU
from pulumi_trainer.plan.packages import have_folders, images_of_runtime, is_here
from pulumi_trainer.plan.tool_job import tool_nodes
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown

_ANY = r".*"
_PACKAGES: tuple[tuple[str, str, str], ...] = (
    ("deepspeed", _ANY, "deepspeed"),
    ("use_unsloth", _ANY, "unsloth"),
    ("use_liger_kernel", _ANY, "liger-kernel"),
    ("enable_liger_kernel", _ANY, "liger-kernel"),
    ("use_galore", _ANY, "galore-torch"),
    ("use_apollo", _ANY, "apollo-torch"),
    ("use_badam", _ANY, "badam"),
    ("use_adam_mini", _ANY, "adam-mini"),
    ("use_swanlab", _ANY, "swanlab"),
    ("attn_implementation", r"flash_attention_2", "kernels flash-attn"),
    ("attn_implementation", r"flash_attention_3", "kernels flash-attn-3"),
    ("attn_implementation", r"flash_attention_4", "kernels flash-attn-4"),
    ("optim", r"adamw_(bnb_)?8bit|paged_\w+|(lion|ademamix|rmsprop_bnb)(_\w+)?", "bitsandbytes"),
    ("optim", r"adamw_torch_[48]bit", "torchao"),
    ("optim", r"galore_\w+", "galore-torch"),
    ("optim", r"apollo_\w+", "apollo-torch"),
    ("optim", r"schedule_free_\w+", "schedulefree"),
    ("optim", r"(ada)?lomo", "lomo-optim"),
    ("optim", r"grokadamw", "grokadamw"),
    ("optim", r"stable_adamw", "torch-optimi"),
    ("optimizer._component_", r"bitsandbytes\..+", "bitsandbytes"),
    ("report_to", r"azure_ml", "azureml-sdk azureml-core"),
    ("report_to", r"clearml", "clearml"),
    ("report_to", r"codecarbon", "codecarbon"),
    ("report_to", r"comet_ml", "comet-ml"),
    ("report_to", r"dagshub", "dagshub"),
    ("report_to", r"dvclive", "dvclive"),
    ("report_to", r"flyte", "flytekit"),
    ("report_to", r"mlflow", "mlflow mlflow-skinny"),
    ("report_to", r"neptune", "neptune neptune-client"),
    ("report_to", r"swanlab", "swanlab"),
    ("report_to", r"tensorboard", "tensorboard tensorboardx"),
    ("report_to", r"trackio", "trackio"),
    ("report_to", r"wandb", "wandb"),
    ("metric_logger._component_", r".+\.WandBLogger", "wandb"),
    ("metric_logger._component_", r".+\.TensorBoardLogger", "tensorboard"),
    ("metric_logger._component_", r".+\.CometLogger", "comet-ml"),
    ("metric_logger._component_", r".+\.MLFlowLogger", "mlflow mlflow-skinny"),
)
"""Field, pattern of its values, and the packages of which one is needed: what the tools check before the training begins."""
_WITHOUT_OTHERS = frozenset(
    {"bitsandbytes", "deepspeed", "flash-attn", "kernels", "liger-kernel", "tensorboard", "wandb"}
)
"""Packages that install none of the packages above with them."""
_GPUS: tuple[tuple[str, str, str], ...] = (
    ("tf32", _ANY, ""),
    ("use_unsloth", _ANY, ""),
    ("use_liger_kernel", _ANY, ""),
    ("enable_liger_kernel", _ANY, ""),
    ("attn_implementation", r"flash_attention_[234]", "kernels"),
)
"""Field, pattern of its values that fail without a GPU, and a package that may bring them to CPUs."""
_IGNORED: tuple[tuple[str, str, str], ...] = (
    ("fp16", _ANY, "CPUs have no mixed precision with fp16"),
    ("fsdp", r"\w.*", "on CPUs each process has the whole model"),
    ("device", r"cuda.*", "torchtune trains on the CPU"),
)
"""Field, pattern of its values that are ignored without a GPU, and what is so instead."""


class Needs:
    """What the fields of a job need.

    Args:
        cluster: Whether the job runs in a cluster; on this machine, its own packages and accelerators count.
    """

    def __init__(self, trainer: ToolTrainer, config: Any, jobsets: Iterable[Document], *, cluster: bool) -> None:
        self._trainer = trainer
        self._cluster = cluster
        self._nodes = [*tool_nodes(jobsets)]
        self._given: dict[str, Any] = {}
        if isinstance(config, Mapping):
            self._given = {**dict(flat(nested(config))), **config}

    def problems(self) -> list[Problem]:
        """Return the fields that certainly fail."""
        found = [*self._gpu_problems()]
        refused = {each.where for each in found}
        return [*found, *(each for each in self._package_problems() if each.where not in refused)]

    def warnings(self) -> list[Problem]:
        """Return the fields that the tool ignores."""
        found = []
        for field, values, instead in _IGNORED:
            if has_value(self._given.get(field), values) and self._lack_accelerators():
                why = f"is for GPUs, but the nodes request none, and {instead}"
                found.append(Problem(_place(field), why, f"{ONE_GPU}, or leave it out"))
        return found

    def _gpu_problems(self) -> Iterator[Problem]:
        for field, values, brings in _GPUS:
            if not has_value(self._given.get(field), values) or not self._lack_accelerators():
                continue
            if not brings or not self._has(brings):
                yield Problem(_place(field), NO_GPU, f"{ONE_GPU}, or leave it out")

    def _package_problems(self) -> Iterator[Problem]:
        trainer = self._trainer
        if trainer.quantizer and trainer.quantizes() and not self._has(trainer.quantizer):
            why = f"quantization of {trainer.title} needs {trainer.quantizer}, which is not installed"
            yield Problem("packages_to_install", why, f'packages_to_install=["{trainer.quantizer}"]')
        for field, values, listed in _PACKAGES:
            names = listed.split()
            if has_value(self._given.get(field), values) and not any(map(self._has, names)):
                why = f"needs {' or '.join(names)}, which is not installed"
                hint = f'packages_to_install=["{names[0]}"], an image= that has it, or leave the field out'
                yield Problem(_place(field), why, hint)

    def _lack_accelerators(self) -> bool:
        """Return whether the nodes certainly have no accelerator."""
        if not self._cluster and sys.platform != "linux":  # a Mac has one that no job requests
            return False
        resources = [node.document.get("resources") for node in self._nodes]
        return bool(resources) and not any(map(_may_have_device, resources))

    def _has(self, package: str) -> bool:
        """Return whether a package is installed with the tool, or may be."""
        given = self._trainer.packages_to_install or ()
        if package in _pinned(self._trainer.tool) or not isinstance(given, (list, tuple)):
            return True
        if not self._cluster and is_here(package):
            return True
        return self._may_have_others() or any(_may_bring(each, package) for each in given)

    def _may_have_others(self) -> bool:
        """Return whether the nodes may have packages that the plan does not know: of vLLM, another image, or a folder."""
        images = images_of_runtime(table(self._trainer.tool)["runtime"])
        if self._trainer.backend() == "vllm" or any(each.document.get("image") not in images for each in self._nodes):
            return True
        return have_folders(self._nodes)


def _place(field: str) -> str:
    return f"config[{quoted(field)}]"


def _may_have_device(resources: Any) -> bool:
    """Return whether a node requests a device, or this is not known."""
    given = section(resources)
    names = [*section(given, "limits"), *section(given, "requests")]
    is_open = first_unknown(resources) is not None or bool(given.get("claims"))
    return is_open or any("/" in str(name) for name in names)


def _may_bring(requirement: Any, name: str) -> bool:
    """Return whether a requirement is a package, or may install the package with it."""
    try:
        brings = Requirement(requirement)
    except (InvalidRequirement, TypeError):
        return True
    own = canonicalize_name(brings.name)
    return own == name or bool(brings.extras) or own not in _WITHOUT_OTHERS


@cache
def _pinned(tool: str) -> frozenset[str]:
    """Return the names of the packages that the runtime of a tool installs."""
    return frozenset(canonicalize_name(Requirement(each).name) for each in table(tool)["packages"])
