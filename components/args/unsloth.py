"""The trainer of Unsloth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_trainer.args.builtin import LoraConfig
from pulumi_trainer.args.fine_tuning import LORA_NAMES, ToolTrainer, has_value, target_modules
from pulumi_trainer.args.trainers import NO_GPU, ONE_GPU
from pulumi_trainer.provider.kubernetes.errors import Problem


class UnslothTrainer(ToolTrainer):
    """SFT by Unsloth on GPUs, with the fields of its `FastLanguageModel.from_pretrained` and of TRL's `SFTConfig`.

    Without `lora`, the whole model is trained (`full_finetuning`). Each process has the whole model on its GPU.

    Args:
        config: Fields of Unsloth and TRL, with their names and types, besides `model_name`, `dataset_name`, `dataset_config`,
            `dataset_train_split` (default: train) and `dataset_test_split` (test). What is left out has their default.
        lora: LoRA instead of training the whole model; default: the whole model. `quantize_base` sets `load_in_4bit`.
        merge_adapter: Whether the adapter is merged into the base model after a training with LoRA. The whole model is in the
            folder `merged` of the output then, beside the adapter. Default: False.
        packages_to_install: Requirements of pip, installed with Unsloth.
        pip_index_urls: Package indexes: the first is the index, the others are extra indexes.
        parameters: Number of the model's parameters, such as "8B" or 8_030_261_248, for the plan's estimate of the memory of each
            GPU; default: what the name of the model states, such as Qwen/Qwen3-8B.
        image: Image of the nodes; default: the runtime's.
        env: Environment variables, as a mapping or as a list of EnvVars.
        num_nodes: Number of nodes; default: the runtime's (`numNodes`).
        resources_per_node: Resources of each node: {"limits": ..., "requests": ...}, or the short form {"gpu": 2,
            "cpu": 3, "memory": "3Gi", "storage": ..., "mig-1g.5gb": 1}, whose requests equal its limits; default: the
            runtime's. One of the two requests a GPU.
        num_proc_per_node: Processes per node; default: the node's GPUs (`numProcPerNode`).
    """

    tool = "unsloth"
    title = "Unsloth"
    model = "model_name"
    quantized = ("load_in_4bit", "load_in_8bit", "load_in_fp8")
    lora_names = {**LORA_NAMES, "lora_rank": "r"}

    def gpu_problems(self, *, on_gpu: bool) -> list[Problem]:
        if on_gpu:
            return []
        return [Problem("resources_per_node", f"Unsloth {NO_GPU}", ONE_GPU)]

    def method_name(self) -> str:
        return "sft"

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        given = {**super().lora_fields(lora), "target_modules": target_modules(lora)}
        quantize: Any = lora.quantize_base
        if not isinstance(quantize, pulumi.Output):
            quantize = quantize is True
        return {"lora": given, "load_in_4bit": quantize}

    def fields_set(self) -> Any:
        if self.lora is not None:
            return super().fields_set()
        # Unsloth's default is the reverse
        return self.with_config({"full_finetuning": True, "load_in_4bit": False}, {})

    def missing(self, config: Mapping[str, Any]) -> list[Problem]:
        for name in ("fsdp", "deepspeed"):
            if has_value(config.get(name)):
                why = "is not supported: with Unsloth, each process has the whole model on its GPU (DDP)"
                return [Problem(f'config["{name}"]', why, "leave it out, or use TRLTrainer")]
        whole, hint = config.get("full_finetuning"), "lora=LoraConfig(...), or leave it out"
        if self.lora is None and whole is False:
            return [
                Problem('config["full_finetuning"]', "is False, but the job has no lora: it would train nothing", hint)
            ]
        if self.lora is not None and whole is True:
            return [
                Problem('config["full_finetuning"]', "is True, with which Unsloth ignores lora", "use one of the two")
            ]
        quantized = [name for name in self.quantized if config.get(name) not in (None, False)]
        if self.lora is None and quantized:
            why = "is set without lora: a quantized model cannot be trained as a whole"
            return [Problem(f'config["{quantized[0]}"]', why, "lora=LoraConfig(...), or leave it out")]
        return []
