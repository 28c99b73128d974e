"""The trainers for fine-tuning: tools whose program is their own, and whose fields are arguments.

Names and types of the fields are those of one release of the tool (`fields/TOOL.json`, made by tools/trainers.py), so a plan
refuses what the tool would ignore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import as_mapping, drop_none, quoted, to_document, type_problems
from pulumi_trainer.args.builtin import LoraConfig
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.trainers import NO_GPU, ONE_GPU, Trainer, asks_for_gpu, size_problems
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, short_repr
from pulumi_trainer.provider.pod import code

_FOLDER = Path(__file__).with_name("fields")

_CLASSES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "dict": (Mapping,),
    "list": (list, tuple),
    "None": (type(None),),
    "any": (object,),
}
_WORDS = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "dict": "a mapping",
    "list": "a list",
}

_MOST_LISTED = 60
"""Words that a message lists."""

LORA_NAMES = {name: name for name in ("lora_rank", "lora_alpha", "lora_dropout", "use_dora")}
MODULES = {"output_proj": "o_proj"}
"""Projection in torchtune -> in Transformers, where the two differ."""
MLP = ("gate_proj", "up_proj", "down_proj")
LOST = "the trained model would be lost"
OUTPUT_HINT = "give the job output=True"


@cache
def table(tool: str) -> dict[str, Any]:
    """Return the table of a tool: `release`, `packages`, types of the `fields` of all methods and of each of `methods`."""
    found: dict[str, Any] = json.loads((_FOLDER / f"{tool}.json").read_text(encoding="utf-8"))
    return found


class ToolTrainer(Trainer):
    """Base of the trainers whose program is that of a tool; torchrun starts it on each node.

    Args:
        config: Fields of the tool, with its names and types. What is left out has the tool's default.
        lora: LoRA instead of training the whole model; default: the whole model.
        merge_adapter: Whether the adapter is merged into the base model after a training with LoRA. The whole model is in the
            folder `merged` of the output then, beside the adapter. Default: False.
        packages_to_install: Requirements of pip, installed with the tool.
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

    config: pulumi.Input[Mapping[str, Any]] | None = None
    lora: LoraConfig | None = None
    merge_adapter: bool = False
    packages_to_install: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    pip_index_urls: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    parameters: int | str | None = None

    without = frozenset({"command", "args"})
    shipped = frozenset({"config", "lora", "merge_adapter", "packages_to_install", "pip_index_urls", "parameters"})
    free = frozenset({"config"})

    tool: ClassVar[str]
    """Name of the tool's package and of its table."""
    title: ClassVar[str]
    """Name of the tool in messages."""
    model: ClassVar[str] = "model_name_or_path"
    dataset: ClassVar[str] = "dataset_name"
    """Fields that a model and a dataset of the initializer set."""
    other_dataset: ClassVar[str] = ""
    """Field that the tool reads in place of `dataset` where it is set; empty if it has none."""
    quantized: ClassVar[tuple[str, ...]] = ("load_in_4bit", "load_in_8bit")
    """Fields that need a GPU."""
    quantizer: ClassVar[str] = "bitsandbytes"
    """Package that quantization needs; empty if the tool brings it."""
    prints_fields: ClassVar[bool] = False
    """Whether the tool writes its fields into its log or its output."""
    method_field: ClassVar[str] = "method"
    """Argument that names the method."""
    lora_names: ClassVar[Mapping[str, str]] = LORA_NAMES
    """Field of LoraConfig -> field of the tool, where the value is the same."""

    def check(self) -> list[Problem]:
        found = merge_problems(self.misnamed, [*super().check(), *type_problems(self), *size_problems(self.parameters)])
        if self.merge_adapter is True and isinstance(self.config, (Mapping, type(None))):
            found += problems_below("merge_adapter", self.adapter_problems(self.config or {}))
        return found

    def gpu_problems(self, *, on_gpu: bool) -> list[Problem]:
        """Return what needs a GPU in nodes without one, and the reverse."""
        if on_gpu or not self.quantizes():
            return []
        why = f"quantization of {self.title} {NO_GPU}"
        where = "config"
        if self.lora is not None and self.lora.quantize_base:
            where = "lora.quantize_base"
        return [Problem(where, why, f"{ONE_GPU}, or leave quantization out")]

    def adapter_problems(self, config: Mapping[str, Any]) -> list[Problem]:
        """Return why there is no adapter that could be merged into the base model."""
        if self.lora is not None or self.has_adapter(config):
            return []
        return [Problem("", "is True, but the job trains no adapter", "lora=LoraConfig(...), or leave it out")]

    def has_adapter(self, config: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return whether fields of the tool ask for an adapter of LoRA."""
        return False

    def _installs(self, package: str) -> bool:
        """Return whether a package is installed with the tool; true if this is not known."""
        given = self.packages_to_install
        if not isinstance(given, (list, tuple)):
            return given is not None
        return any(not isinstance(each, str) or each.startswith(package) for each in given)

    def method_name(self) -> str:
        """Return the method, by its name in the table."""
        return getattr(self, self.method_field) or ""

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        """Return LoRA as fields of the tool."""
        return drop_none({name: getattr(lora, field) for field, name in self.lora_names.items()})

    def fields_set_by_lora(self) -> dict[str, Any]:
        """Return the fields of the tool that `lora` sets; empty without it."""
        if isinstance(self.lora, LoraConfig):
            return self.lora_fields(self.lora)
        return {}

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions that travel with the job."""
        return []

    def quantizes(self) -> bool:
        """Return whether the frozen model is quantized, as far as this is known."""
        given = as_mapping(self.config)
        asked = any(given.get(name) not in (None, False) for name in self.quantized)
        return asked or (isinstance(self.lora, LoraConfig) and self.lora.quantize_base is True)

    def fields_set(self) -> Any:
        """Return the fields that the program sets, as one mapping; an Output if config is one."""
        return self.with_config({}, self.fields_set_by_lora())

    def with_config(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
        """Return the fields of config over those before it and below those after it; an Output if config is one."""
        given = to_document(self.config or {})
        if isinstance(given, pulumi.Output):
            return given.apply(lambda known: {**before, **known, **after})
        if isinstance(given, dict):
            return {**before, **given, **after}
        return given

    def arguments(self) -> dict[str, Any]:
        """Return what the tool's program gets as JSON."""
        made: dict[str, Any] = {"method": self.method_name(), "config": self.fields_set()}
        functions = self.functions()
        if functions:
            made["rewards"] = [getattr(each, "__name__", "") for each in functions]
        if isinstance(self.resources_per_node, Mapping) and asks_for_gpu(self.resources_per_node):
            made["gpu"] = True
        if self.merge_adapter is True:
            made["merge"] = True
        return made

    def backend(self) -> str:
        """Return what generates in the generation server; empty without one."""
        return ""

    def server(self) -> dict[str, Any] | None:
        """Return the document of the generation server; None without one."""
        return None

    def argument_problems(self, arguments: Any) -> list[Problem]:
        """Return the problems of the fields, once their Outputs are known."""
        config = as_mapping(arguments).get("config")
        if config is None or isinstance(config, Unknown):
            return []
        if not isinstance(config, Mapping):
            return [Problem("config", f"must be a mapping, not {short_repr(config)}")]
        found = list[Problem]()
        lora = self.fields_set_by_lora()
        written = as_mapping(self.config)
        types = self._types()
        for name, value in config.items():
            where = f"config[{quoted(name)}]"
            if name in lora and name in written:
                found.append(Problem(where, "cannot be combined with lora, which sets it", "leave one of the two out"))
            elif name not in lora and name not in types:
                found.append(self._unknown_option(where, name, types))
            elif name not in lora:
                found += field_problems(where, value, types[name])
        return [*found, *self.missing(config)]

    def missing(self, config: Mapping[str, Any]) -> list[Problem]:  # noqa: ARG002
        """Return the fields that the method requires."""
        return []

    def job_problems(self, fetched: Collection[str], policy: Any, *, output: bool) -> list[Problem]:
        """Return conflicts with the other arguments of the job.

        Args:
            fetched: What the initializer fetches: `model`, `dataset`.
            policy: The checkpoint policy; None without one.
            output: Whether the job has an output volume.
        """
        if self.config is not None and not isinstance(self.config, Mapping):
            return []
        config = as_mapping(self.config)
        found = list[Problem]()
        kinds = {"model": (self.model, code.MODEL_PATH), "dataset": (self.dataset, code.DATASET_PATH)}
        for kind, (name, path) in kinds.items():
            value, where = config.get(name), f"config[{quoted(name)}]"
            if kind in fetched and value is not None and not is_below(value, path):
                found.append(given_twice(where, kind, path))
            elif kind not in fetched and value is None and not self._has_other(kind):
                hint = f"give its name or path here, or initializer=Initializer({kind}=...)"
                found.append(Problem(where, f"is required: the job has no {kind}", hint))
        if "dataset" in fetched:
            found += self._other_dataset_problems(config.get(self.other_dataset))
        found += output_problems(config.get("output_dir"), output=output, policy=policy)
        if policy is not None:
            found += _policy_problems(config, policy)
        if found:  # the last check of this trainer: a field that is missing is often a misspelt one
            types = self._types()
            lora = self.fields_set_by_lora()
            for name in config:
                if name not in types and name not in lora:
                    found.append(self._unknown_option(f"config[{quoted(name)}]", name, types))
        return found

    def _types(self) -> dict[str, str]:
        return {**table(self.tool)["fields"], **table(self.tool)["methods"].get(self.method_name(), {})}

    def _has_other(self, kind: str) -> bool:
        return kind == "dataset" and bool(as_mapping(self.config).get(self.other_dataset))

    def _other_dataset_problems(self, given: Any) -> Iterator[Problem]:
        """Yield where `other_dataset` names data that are not those of the initializer, which the tool would ignore."""
        where = f"config[{quoted(self.other_dataset)}]"
        if isinstance(given, str) and not is_below(given, code.DATASET_PATH):
            yield given_twice(where, "dataset", code.DATASET_PATH)
        if isinstance(given, (list, tuple)):
            for at, each in enumerate(given):
                sources = as_mapping(each).values()
                if sources and not any(is_below(source, code.DATASET_PATH) for source in sources):
                    yield given_twice(f"{where}[{at}]", "dataset", code.DATASET_PATH)

    def _unknown_option(self, where: str, name: Any, known: Mapping[str, str]) -> Problem:
        about = table(self.tool)
        others = [method for method, fields in about["methods"].items() if name in fields]
        of = ""
        if len(about["methods"]) > 1 and self.method_name():
            of = f"{self.method_name()} in "
        why = f"unknown field of {of}{self.title} {about['release']}"
        if others:
            return Problem(where, f"{why}, but of {', '.join(others)}")
        return Problem(where, why, did_you_mean(str(name), known, f"`pulumi-trainer` knows its {len(known)} fields"))


def is_below(value: Any, folder: str) -> bool:
    """Return whether a value, or one in it, is a path in a folder."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return any(is_below(each, folder) for each in value)
    return isinstance(value, str) and f"{value}/".startswith(f"{folder}/")


def given_twice(where: str, kind: str, path: str) -> Problem:
    """Return the problem that a field and the initializer name a model or a dataset."""
    why = f"cannot be combined with the {kind} of initializer="
    return Problem(where, why, f"leave one of the two out, or give a path below {path}")


def output_problems(given: Any, *, output: bool, policy: Any) -> Iterator[Problem]:
    """Yield why the folder of a tool's result is not the output volume of its job."""
    where = 'config["output_dir"]'
    if given is None and not output:
        yield Problem(where, f"is not set, and the job has no output volume: {LOST}", OUTPUT_HINT)
    elif output and policy is None and given is not None and not is_below(given, code.OUTPUT_PATH):
        why = "cannot be combined with output=, which sets it"
        yield Problem(where, why, f"leave one of the two out, or give a path below {code.OUTPUT_PATH}")


def _policy_problems(config: Mapping[str, Any], policy: Any) -> Iterator[Problem]:
    """Yield the fields of Transformers' Trainer that do not work with the checkpoints of a policy."""
    sets_interval = policy.steps is not None or policy.every is not None
    taken = ["resume_from_checkpoint", "save_total_limit", "output_dir"]
    if sets_interval:
        taken += ["save_strategy", "save_steps"]
    for name in taken:
        if config.get(name) is not None:
            why = "cannot be combined with checkpoint=, which sets it"
            yield Problem(f"config[{quoted(name)}]", why, "leave one of the two out")
    if config.get("load_best_model_at_end") is True and sets_interval:
        why = "needs checkpoints after each evaluation, but checkpoint= says when they are saved"
        yield Problem('config["load_best_model_at_end"]', why, "leave it out, or steps and every of checkpoint=")
    if config.get("push_to_hub") is True and not policy.in_s3:
        why = "would upload the checkpoints of checkpoint= too, since they are in the output"
        hint = (
            'save them in S3, checkpoint=CheckpointPolicy(to="s3://BUCKET/PREFIX"), or upload the output after the job'
        )
        yield Problem('config["push_to_hub"]', why, hint)


def has_value(given: Any, pattern: str = ".*") -> bool:
    """Return whether a field is set.

    Args:
        pattern: Pattern of the value, or of one in a list; default: any value but False and empty ones.
    """
    values = [given]
    if isinstance(given, (list, tuple)):
        values = [*given]
    known = (each for each in values if each and not isinstance(each, Unknown))
    return any(re.fullmatch(pattern, str(each), re.DOTALL) for each in known)


def field_problems(where: str, value: Any, types: str) -> list[Problem]:
    """Return a problem if a value is known and not of one of the types, as the table names them."""
    if isinstance(value, Unknown):
        return []
    return problems_below(where, _type_problems(value, types))


def _type_problems(value: Any, types: str) -> list[Problem]:
    """Return a problem if a value is not of one of the types, as the table names them."""
    names = types.split(" | ")
    if any(_is_of(value, name) for name in names):
        return []
    words = [json.loads(name) for name in names if name[0] == '"']
    expected = [_wanted(name) for name in names if name != "None" and name[0] != '"']
    if len(words) > _MOST_LISTED:
        expected.append(f"one of the {len(words)} names that the tool has")
    elif words:
        expected.append("one of " + ", ".join(map(str, words)))
    hint = ""
    if isinstance(value, str):
        hint = did_you_mean(value, words)
    return [Problem("", f"must be {' or '.join(expected)}, not {short_repr(value)}", hint)]


def _wanted(name: str) -> str:
    if name.startswith("list["):
        return {"str": "a list of strings", "float": "a list of numbers"}.get(name[5:-1], "a list")
    return _WORDS.get(name, name)


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, Unknown):
        return True
    if name.startswith("list["):
        return isinstance(value, (list, tuple)) and all(_is_of(each, name[5:-1]) for each in value)
    if name[0] == '"':
        return bool(value == json.loads(name))
    if isinstance(value, bool):
        return name in ("bool", "any")
    return isinstance(value, _CLASSES.get(name, (object,)))


def target_modules(lora: LoraConfig) -> Any:
    """Return the names of the projections in Transformers."""

    def named(modules: Any, mlp: Any, output: Any) -> list[str]:
        listed = [str(MODULES.get(each, each)) for each in modules]
        if mlp:
            listed += MLP
        if output:
            listed.append("lm_head")
        return listed

    modules = to_document(lora.lora_attn_modules)
    given = [modules, lora.apply_lora_to_mlp, lora.apply_lora_to_output]
    parts = [*given]
    if isinstance(modules, list):
        parts += modules
    if any(isinstance(each, pulumi.Output) for each in parts):
        return pulumi.Output.all(*given).apply(lambda known: named(*known))
    return named(*given)


def _at_least_two(modules: list[str]) -> list[str]:
    """Return names of modules so that TRL takes them as names: it hands a single one to PEFT as a pattern of the whole path."""
    if len(modules) == 1:
        return modules * 2
    return modules


class TransformersTrainer(ToolTrainer):
    """Training of a causal language model on text by `transformers.Trainer`, with the fields of `TrainingArguments`.

    Besides these, `config` takes `model_name_or_path`, `dataset_name`, `dataset_config`, `dataset_train_split` (default: train),
    `dataset_test_split` (test), `text_column` (text) and `max_length` of a sample in tokens (1024).

    Args:
        config: Fields of Transformers, with its names and types. What is left out has Transformers' default.
        lora: LoRA instead of training the whole model; default: the whole model.
        merge_adapter: Whether the adapter is merged into the base model after a training with LoRA. The whole model is in the
            folder `merged` of the output then, beside the adapter. Default: False.
        packages_to_install: Requirements of pip, installed with Transformers.
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

    tool = "transformers"
    title = "Transformers"
    lora_names = {**LORA_NAMES, "lora_rank": "r"}
    quantized = ()

    def check(self) -> list[Problem]:
        found = super().check()
        if isinstance(self.lora, LoraConfig) and self.lora.quantize_base:
            found = [problem for problem in found if problem.where != "lora.quantize_base"]
            found.append(Problem("lora.quantize_base", "is not supported here", "use TRLTrainer"))
        return found

    def method_name(self) -> str:
        return "language-modeling"

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        return {"lora": {**super().lora_fields(lora), "target_modules": target_modules(lora)}}


class LlamaFactoryTrainer(ToolTrainer):
    """Training by LLaMA-Factory, with the fields of its YAML files.

    A dataset of the initializer becomes `dataset_dir`, a folder with `dataset_info.json`; `dataset` names what it describes.

    Args:
        stage: sft, pt, dpo, kto or rm; required.
        config: Fields of LLaMA-Factory, with its names and types. What is left out has LLaMA-Factory's default.
        lora: LoRA; default: what `finetuning_type` says, which is LoRA too if it is left out.
        merge_adapter: Whether the adapter is merged into the base model after a training with LoRA. The whole model is in the
            folder `merged` of the output then, beside the adapter. Default: False.
        packages_to_install: Requirements of pip, installed with LLaMA-Factory.
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

    stage: Literal["sft", "pt", "dpo", "kto", "rm"] | None = None

    shipped = ToolTrainer.shipped | {"stage"}
    tool = "llamafactory"
    title = "LLaMA-Factory"
    method_field = "stage"
    dataset = "dataset_dir"
    other_dataset = "tokenized_path"
    quantized = ("quantization_bit",)

    def check(self) -> list[Problem]:
        found = super().check()
        if self.stage is None:
            found.append(Problem("stage", f"is required: one of {', '.join(table(self.tool)['methods'])}"))
        if str(self.stage) == "ppo":
            why = (
                f"ppo is not offered: that of LLaMA-Factory {table(self.tool)['release']} requires TRL 0.9.6 or older, and"
                " everything else in it a newer one"
            )
            found = [problem for problem in found if problem.where != "stage"]
            found.append(Problem("stage", why, 'use dpo, or TRLTrainer(method="grpo") or "rloo"'))
        return found

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        modules = target_modules(lora)
        if isinstance(modules, pulumi.Output):
            modules = modules.apply(",".join)
        else:
            modules = ",".join(modules)
        made = {"finetuning_type": "lora", **super().lora_fields(lora), "lora_target": modules}
        if lora.quantize_base is True:
            made["quantization_bit"] = 4
        elif isinstance(lora.quantize_base, pulumi.Output):
            made["quantization_bit"] = lora.quantize_base.apply(lambda quantize: 4 if quantize else None)
        return made

    def has_adapter(self, config: Mapping[str, Any]) -> bool:
        return bool(config.get("finetuning_type", "lora") == "lora")

    def adapter_problems(self, config: Mapping[str, Any]) -> list[Problem]:
        found, why = super().adapter_problems(config), "and the adapter does not belong to the base model alone then"
        for name in ("pissa_init", "adapter_name_or_path"):
            if config.get(name):
                found.append(Problem("", f'config["{name}"] is set, {why}', "leave one of the two out"))
        return found

    def missing(self, config: Mapping[str, Any]) -> list[Problem]:
        found = []
        if config.get("dataset") is None:
            why = "is required: names of datasets in dataset_info.json, separated by commas"
            found.append(Problem('config["dataset"]', why))
        if config.get("do_train") is False:
            found.append(Problem('config["do_train"]', "is False: the job would train nothing", "leave it out"))
        return found

    def job_problems(self, fetched: Collection[str], policy: Any, *, output: bool) -> list[Problem]:
        found = super().job_problems(fetched, policy, output=output)
        # Its hparams/parser.py says so of the whole model; of LoRA, the checkpoints lack a file that resuming needs.
        if policy is not None and self.stage == "rm":
            why = "LLaMA-Factory cannot resume rm, so checkpoint= would train from the beginning again, or fail"
            found.append(Problem("stage", why, 'leave checkpoint= out, or use TRLTrainer(method="reward")'))
        return found

    def _has_other(self, kind: str) -> bool:  # LLaMA-Factory's default is the folder `data`
        return kind == "dataset"
