"""`TorchTuneTrainer`: torchtune's own recipes on any number of nodes, with the keys of its configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import pulumi
from pulumi_trainer.args.arguments import as_mapping, quoted, to_document
from pulumi_trainer.args.builtin import LoraConfig
from pulumi_trainer.args.fine_tuning import ToolTrainer, field_problems, given_twice, is_below, output_problems, table
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, short_repr
from pulumi_trainer.provider.pod import code

Recipe = Literal[
    "full_finetune_distributed", "lora_finetune_distributed", "qat_distributed", "knowledge_distillation_distributed",
    "full_dpo_distributed", "lora_dpo_distributed",
]  # fmt: skip
_COMPONENT = "_component_"
_WITH_LORA = ("lora_finetune_distributed", "lora_dpo_distributed", "knowledge_distillation_distributed")
_LORA = (
    "lora_rank",
    "lora_alpha",
    "lora_dropout",
    "apply_lora_to_mlp",
    "apply_lora_to_output",
    "use_dora",
    "quantize_base",
)


class TorchTuneTrainer(ToolTrainer):
    """Fine-tuning by torchtune, as `tune run RECIPE --config BASE KEY=VALUE` on one node, but on any number of nodes.

    The job sets the paths of the checkpointer, the tokenizer and the dataset to those of its `initializer`. A checkpoint policy
    saves after each epoch but the last, which is all that torchtune can resume from.

    Args:
        recipe: torchtune's name of the recipe, such as full_finetune_distributed; required.
        base: torchtune's name of the configuration that `config` changes, such as llama3_2/1B_full; required.
        config: Keys of the configuration, nested or dotted ("optimizer.lr"), with torchtune's names and types. A mapping that
            names its `_component_` takes the place of the one in `base`; any other changes keys of it.
        lora: LoRA of `model`, for a recipe with LoRA; default: that of `base`.
        merge_adapter: Not supported: `"save_adapter_weights_only": False` in `config` makes torchtune write the merged model.
        packages_to_install: Requirements of pip, installed with torchtune.
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

    recipe: Recipe | None = None
    base: str | None = None

    shipped = ToolTrainer.shipped | {"recipe", "base"}
    tool = "torchtune"
    title = "torchtune"
    model = "checkpointer.checkpoint_dir"
    dataset = "dataset.source"
    prints_fields = True
    method_field = "recipe"
    quantizer = ""
    lora_names = {name: f"model.{name}" for name in _LORA}

    def check(self) -> list[Problem]:
        found, configs = super().check(), table(self.tool)["configs"]
        if self.recipe is None:
            return [*found, Problem("recipe", f"is required: one of {', '.join(configs)}")]
        bases = configs.get(self.recipe, ())
        of = f"a configuration of torchtune for {self.recipe}"
        if self.base is None:
            found.append(Problem("base", f"is required: {of}", f"for example {next(iter(bases), 'llama3_2/1B_full')}"))
        elif bases and self.base not in bases:
            hint = did_you_mean(str(self.base), bases, f"one of {', '.join(bases)}")
            found.append(Problem("base", f"must be {of}, not {short_repr(self.base)}", hint))
        if self.lora is not None and self.recipe not in _WITH_LORA:
            why = f"the recipe {self.recipe} trains the whole model, without LoRA"
            found.append(Problem("lora", why, f"recipe={quoted(_WITH_LORA[0])}, or leave lora out"))
        return found

    def quantizes(self) -> bool:
        model = as_mapping(nested(self.config).get("model"))
        name = model.get(_COMPONENT) or self._component("model") or ""
        asked = model.get("quantize_base") is True or str(name).rpartition(".")[2].startswith("qlora_")
        return asked or super().quantizes()

    def adapter_problems(self, config: Mapping[str, Any]) -> list[Problem]:  # noqa: ARG002
        hint = 'leave it out, with "save_adapter_weights_only": False in config'
        return [Problem("", "is not supported: torchtune merges by itself", hint)]

    def lora_fields(self, lora: LoraConfig) -> dict[str, Any]:
        return {"model.lora_attn_modules": to_document(lora.lora_attn_modules), **super().lora_fields(lora)}

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "base": self.base}

    def argument_problems(self, arguments: Any) -> list[Problem]:
        config = as_mapping(arguments).get("config")
        if config is None or isinstance(config, Unknown):
            return []
        if not isinstance(config, Mapping):
            return [Problem("config", f"must be a mapping, not {short_repr(config)}")]
        about, found = table(self.tool), list[Problem]()
        types = {**about["fields"], **about["methods"].get(self.recipe, {})}
        parts = set[str]().union(*about["configs"].get(self.recipe, {}).values())
        written = dict(flat(nested(self.config)))
        lora = self.fields_set_by_lora()
        for name in written.keys() & lora.keys():
            why = "cannot be combined with lora, which sets it"
            found.append(Problem(f"config[{quoted(name)}]", why, "leave one of the two out"))
        for name, value in nested(config).items():
            if name not in types:
                found.append(self._unknown_option(f"config[{quoted(name)}]", name, types))
                continue
            problems = field_problems(f"config[{quoted(name)}]", value, types[name])
            if name in parts and not problems:
                problems += self._parts_problems(name, value)
            found += problems
        return [*found, *self.missing(config)]

    def missing(self, config: Mapping[str, Any]) -> list[Problem]:
        teacher = "teacher_checkpointer.checkpoint_dir"
        if self.recipe == "knowledge_distillation_distributed" and teacher not in dict(flat(nested(config))):
            return [Problem(f"config[{quoted(teacher)}]", "is required: the folder of the teacher model")]
        return []

    def job_problems(self, fetched: Collection[str], policy: Any, *, output: bool) -> list[Problem]:
        given, found = dict(flat(nested(self.config))), list[Problem]()
        model = given.get("checkpointer.checkpoint_dir")
        for kind, where, value, path in (
            ("model", 'config["checkpointer.checkpoint_dir"]', model, code.MODEL_PATH),
            *(("dataset", *each, code.DATASET_PATH) for each in _sources(nested(self.config).get("dataset"))),
        ):
            if kind in fetched and value is not None and not is_below(value, path):
                found.append(given_twice(where, kind, path))
        if "model" not in fetched and model is None and not isinstance(self.config, pulumi.Output):
            hint = "give its folder here, or initializer=Initializer(model=...)"
            found.append(Problem('config["checkpointer.checkpoint_dir"]', "is required: the job has no model", hint))
        found += output_problems(given.get("output_dir"), output=output, policy=policy)
        if policy is not None:
            found += self._policy_problems(given, policy)
        return found

    def _policy_problems(self, given: Mapping[str, Any], policy: Any) -> list[Problem]:
        """Return what torchtune would ignore of a checkpoint policy, which it follows after each epoch but the last."""
        found = list[Problem]()
        for name in ("steps", "every"):
            value = getattr(policy, name)
            if value is not None:
                why = (
                    f"torchtune only saves checkpoints at the end of an epoch, so it would ignore {name}={value!r}"
                    " of the checkpoint policy"
                )
                hint = f'leave {name} out; config["max_steps_per_epoch"] makes epochs shorter'
                found.append(Problem("recipe", why, hint))
        if given.get("epochs", 1) == 1:
            why = "torchtune saves no checkpoint after the last epoch, so a job of one epoch would save none"
            hint = 'give more epochs; config["max_steps_per_epoch"] makes them shorter'
            found.append(Problem('config["epochs"]', why, hint))
        for name in ("resume_from_checkpoint", "output_dir", "enable_async_checkpointing"):
            if given.get(name) not in (None, False):
                why = "cannot be combined with checkpoint=, which sets it"
                found.append(Problem(f"config[{quoted(name)}]", why, "leave one of the two out"))
        return found

    def _component(self, name: str) -> str | None:
        found: str | None = table(self.tool)["configs"].get(self.recipe, {}).get(self.base, {}).get(name)
        return found

    def _parts_problems(self, name: str, value: Any) -> Iterator[Problem]:
        """Yield the problems of a component, or of each one of a list."""
        nodes = [value]
        if isinstance(value, (list, tuple)):
            nodes = [*value]
        for node in nodes:
            if isinstance(node, Mapping):
                yield from self._part_problems(name, node)

    def _part_problems(self, name: str, node: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the arguments of a component, if the table knows it."""
        known, release = table(self.tool)["components"], table(self.tool)["release"]
        component = node.get(_COMPONENT, self._component(name))
        if component is None and self.base in table(self.tool)["configs"].get(self.recipe, {}):
            why = f"needs a {_COMPONENT}, since {self.base} has no {name}"
            yield Problem(f"config[{quoted(name)}]", why, f'{{"{_COMPONENT}": "...", ...}}')
        if not isinstance(component, str) or component not in known:
            package = f"{component}".rpartition(".")[0]
            if any(each.rpartition(".")[0] == package for each in known if package.startswith("torchtune.")):
                where = f"config[{quoted(f'{name}.{_COMPONENT}')}]"
                yield Problem(where, f"unknown component of torchtune {release}", did_you_mean(str(component), known))
            return
        arguments = known[component]
        for argument, value in node.items():
            where = f"config[{quoted(f'{name}.{argument}')}]"
            if argument in arguments:
                yield from field_problems(where, value, arguments[argument])
            elif argument != _COMPONENT and "**" not in arguments:
                package, _, function = component.rpartition(".")
                other = f"{package}.lora_{function}"
                if argument in known.get(other, ()):
                    hint = f"did you mean {other}?"
                else:
                    hint = did_you_mean(argument, arguments)
                yield Problem(where, f"unknown argument of {component} in torchtune {release}", hint)


def _sources(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield path and value of what a dataset, or each one of a list, is read from."""
    if not isinstance(dataset, (list, tuple)):
        for field, value in _named_data(dataset):
            yield f'config["dataset.{field}"]', value
        return
    for at, each in enumerate(dataset):
        for field, value in _named_data(each):
            yield f'config["dataset"][{at}]["{field}"]', value


def _named_data(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield `source` and `data_files` as far as they name data: a format, and files relative to the dataset's folder, do not."""
    given = as_mapping(dataset)
    files, source = given.get("data_files"), given.get("source")
    if files is None or source not in _FORMATS:
        yield "source", source
    if any(isinstance(each, str) and ("://" in each or each.startswith("/")) for each in _values(files)):
        yield "data_files", files


_FORMATS = frozenset({None, "arrow", "csv", "json", "parquet", "text", "webdataset"})
"""Sources that `datasets.load_dataset` reads files with."""


def _values(files: Any) -> Iterator[Any]:
    if isinstance(files, Mapping):
        files = [*files.values()]
    if isinstance(files, (list, tuple)):
        for each in files:
            yield from _values(each)
    else:
        yield files


def nested(config: Any) -> dict[str, Any]:
    """Return a configuration with dotted keys as nested mappings; what is not known yet is left out."""
    made: dict[str, Any] = {}
    for name, value in as_mapping(config).items():
        *above, last = str(name).split(".")
        node = made
        for part in above:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        if not isinstance(value, Mapping):
            node[last] = value
        elif isinstance(node.get(last), dict):
            node[last] = {**node[last], **nested(value)}
        else:
            node[last] = nested(value)
    return made


def flat(config: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a nested configuration, with their values."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{start}{name}.")
        else:
            yield f"{start}{name}", value
