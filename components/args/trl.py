"""Typed arguments of TRL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import pulumi
from pulumi_trainer.args.arguments import as_mapping
from pulumi_trainer.args.builtin import LoraConfig
from pulumi_trainer.args.fine_tuning import LORA_NAMES, ToolTrainer, _at_least_two, table, target_modules
from pulumi_trainer.args.generation import (
    GenerationServer,
    option_problems,
    pairing_problems,
    server_problems,
    vllm_problems,
)
from pulumi_trainer.args.trainers import asks_for_gpu
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below


class TRLTrainer(ToolTrainer):
    """Fine-tuning by TRL: its scripts `trl.scripts.METHOD`, with the fields of their dataclasses.

    Args:
        method: sft, dpo, kto, reward, grpo, rloo or distillation; required.
        reward: Functions that score completions, for grpo and rloo: `def short(completions, **kwargs)` returns one number for
            each. Their source travels, as that of `CustomTrainer(func=...)`.
        generation: Server that generates the completions of grpo and rloo in a Pod of its own; default: the nodes generate.
        config: Fields of TRL, with its names and types. What is left out has TRL's default.
        lora: LoRA instead of training the whole model; default: the whole model.
        merge_adapter: Whether the adapter is merged into the base model after a training with LoRA. The whole model is in the
            folder `merged` of the output then, beside the adapter. Default: False.
        packages_to_install: Requirements of pip, installed with TRL.
        pip_index_urls: Package indexes: the first is the index, the others are extra indexes.
        parameters: Number of the model's parameters, such as "8B" or 8_030_261_248, for the plan's estimate of the memory of each
            GPU; default: what the name of the model states, such as Qwen/Qwen3-8B.
        image: Image of the nodes; default: the runtime's.
        env: Environment variables, as a mapping or as a list of EnvVars.
        num_nodes: Number of nodes; default: the runtime's (`numNodes`).
        resources_per_node: Resources of each node: {"limits": ..., "requests": ...}, or the short form {"gpu": 2,
            "cpu": 3, "memory": "3Gi", "storage": ..., "mig-1g.5gb": 1}, whose requests equal its limits.
        num_proc_per_node: Processes per node; default: the node's GPUs, else its CPUs (`numProcPerNode`).
    """

    method: Literal["sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation"] | None = None
    reward: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None
    generation: GenerationServer | None = None

    shipped = ToolTrainer.shipped | {"method", "reward", "generation"}
    free = ToolTrainer.free | {"reward"}
    tool = "trl"
    title = "TRL"
    other_dataset = "datasets"
    lora_names = {**LORA_NAMES, "lora_rank": "lora_r", "quantize_base": "load_in_4bit"}

    def check(self) -> list[Problem]:
        found = super().check()
        if self.method is None:
            found.append(Problem("method", f"is required: one of {', '.join(table(self.tool)['methods'])}"))
        found += self._generation_problems()
        if self.reward is None:
            return found
        if self.method not in ("grpo", "rloo", None):
            found.append(
                Problem(
                    "reward", f"scores completions, but {self.method} generates none", "reward= is for grpo and rloo"
                )
            )
        names = [getattr(each, "__name__", "") for each in self.functions()]
        for at, function in enumerate(self.functions()):
            where = "reward"
            if isinstance(self.reward, (list, tuple)):
                where = f"reward[{at}]"
            found += problems_below(where, _reward_problems(function))
            if names.index(names[at]) != at:
                found.append(Problem(where, f"a second function {names[at]}: its scores are logged by name"))
        if isinstance(self.config, Mapping) and self.config.get("reward_funcs") is not None:
            found.append(
                Problem('config["reward_funcs"]', "cannot be combined with reward, which sets it", "use one of the two")
            )
        return found

    def _generation_problems(self) -> list[Problem]:
        config, server = as_mapping(self.config), self.generation
        if not isinstance(server, GenerationServer):
            return vllm_problems(config, installs_vllm=self.image is not None or self._installs("vllm"))
        found = server_problems(server, self.method, config)
        if server.image is None and self.image is None and not self._installs("vllm"):  # else it may be another release
            about = table(self.tool)
            found += option_problems(server, about["vllm_options"], about["vllm"][0].partition("==")[2])
        return found

    def gpu_problems(self, *, on_gpu: bool) -> list[Problem]:
        found = super().gpu_problems(on_gpu=on_gpu)
        if isinstance(self.generation, GenerationServer):
            return found + pairing_problems(trains_on_gpu=on_gpu, generates_on_gpu=self.backend() == "vllm")
        config = as_mapping(self.config)
        if not on_gpu and config.get("use_vllm") is True and config.get("vllm_mode") != "server":
            why = "is True: vLLM would run in the nodes, which request no GPU"
            found.append(Problem('config["use_vllm"]', why, "give generation=GenerationServer(...), or leave it out"))
        return found

    def arguments(self) -> dict[str, Any]:
        if not isinstance(self.generation, GenerationServer):
            return super().arguments()
        backend = {"backend": self.backend()}
        return {**super().arguments(), "generation": {**backend, **self.generation.arguments()}}

    def server(self) -> dict[str, Any] | None:
        if not isinstance(self.generation, GenerationServer):
            return None
        return self.generation.document()

    def backend(self) -> str:
        if not isinstance(self.generation, GenerationServer):
            return ""
        if asks_for_gpu(self.generation.resources_per_node):
            return "vllm"
        return "transformers"

    def functions(self) -> list[Callable[..., Any]]:
        if isinstance(self.reward, (list, tuple)):
            return [*self.reward]
        if self.reward is None:
            return []
        return [cast("Callable[..., Any]", self.reward)]

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        modules = target_modules(lora)
        if isinstance(modules, pulumi.Output):
            modules = modules.apply(_at_least_two)
        else:
            modules = _at_least_two(modules)
        made = {"use_peft": True, **super().lora_fields(lora), "lora_target_modules": modules}
        if self.method == "reward":
            made["lora_task_type"] = "SEQ_CLS"
        return made

    def has_adapter(self, config: Mapping[str, Any]) -> bool:
        return config.get("use_peft") is True

    def missing(self, config: Mapping[str, Any]) -> list[Problem]:
        if self.method == "distillation" and config.get("teacher_model_name_or_path") is None:
            return [Problem('config["teacher_model_name_or_path"]', "is required: the teacher model")]
        scored = bool(self.functions()) or any(map(config.get, ("reward_funcs", "reward_model_name_or_path")))
        if self.method in ("grpo", "rloo") and not scored:
            return [Problem("reward", f"is required: {self.method} has nothing that scores its completions")]
        return []


_PASSED = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)
"""What TRL passes to a reward function besides the columns of the dataset."""


_KEPT = ("prompt", "completion")
"""Columns that TRL does not pass to a reward function."""


def reward_columns(function: Callable[..., Any]) -> list[str]:
    """Return the columns of the dataset that a reward function takes without a default."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    columns = []
    for each in parameters:
        is_required = each.kind in named and each.default is each.empty
        if is_required and each.name not in _PASSED:
            columns.append(each.name)
    return columns


def _reward_problems(function: Any) -> list[Problem]:
    """Return why TRL cannot call a reward function: it passes `completions`, and any columns of the dataset by name."""
    if not inspect.isfunction(function):
        return [Problem("", f"must be a plain function, not {type(function).__name__}", "pass the function itself")]
    if inspect.iscoroutinefunction(function):
        return [
            Problem("", f"{function.__name__} is an async function", f"def {function.__name__}(completions, **kwargs)")
        ]
    parameters = inspect.signature(function).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        why = f"{function.__name__} takes no **kwargs, but TRL also passes the columns of the dataset"
        return [Problem("", why, f"def {function.__name__}(completions, **kwargs)")]
    kinds = (inspect.Parameter.POSITIONAL_ONLY,)
    if any(each.kind in kinds for each in parameters.values()):
        return [
            Problem(
                "",
                f"{function.__name__} has positional-only parameters, but TRL passes arguments by name",
                f"one of {', '.join(sorted(_PASSED))}",
            )
        ]
    for name in reward_columns(function):
        if name in _KEPT:
            why = f"{function.__name__} takes {name}, which TRL does not pass"
            return [Problem("", why, f"did you mean {name}s, the list of all of them?")]
    return []
