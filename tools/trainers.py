"""Makes the tables of the typed trainers: `python tools/trainers.py [TOOL ...]`, with uv.

For each tool it resolves `runtimes/RUNTIME/requirements.in` into `requirements.txt` with hashes (`--keep` takes the one that is
there), installs that into a temporary environment, and reads names and types of the tool's fields there, for
`components/args/fields/TOOL.json`. torch and the CUDA libraries that it brings are those of the image, and are in neither.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import functools
import hashlib
import importlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
import types
import typing
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "components" / "args" / "fields"
RUNTIMES = {
    "trl": "trl-distributed",
    "transformers": "transformers-distributed",
    "llamafactory": "llamafactory",
    "torchtune": "torchtune-distributed",
    "unsloth": "unsloth",
}
TRL = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
TORCHTUNE = (
    "full_finetune_distributed", "lora_finetune_distributed", "qat_distributed", "knowledge_distillation_distributed",
    "full_dpo_distributed", "lora_dpo_distributed",
)  # fmt: skip
_NULL_IN_ALL = {"seed": "int | None", "max_steps_per_epoch": "int | None", "clip_grad_norm": "float | str | None"}
"""Types of the fields of torchtune that its configurations leave empty."""
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
_OF_THE_IMAGE = re.compile(r"(torch|triton|nvidia-\S+|cuda-\S+)==")
_OTHER_PLATFORM = re.compile(r"sys_platform == '(win32|emscripten|darwin)'")
_LINUX = re.compile(r"sys_platform == 'linux'|'linux' in sys_platform")
_NAMES = {bool: "bool", int: "int", float: "float", str: "str", list: "list", tuple: "list", dict: "dict"}


def lock(runtime: Path) -> None:
    """Resolve the requirements of a runtime, and write the pinned ones."""
    done = subprocess.run(
        [
            "uv", "pip", "compile", "requirements.in", "--universal", "--python-version", "3.11", "--generate-hashes",
            "--no-annotate", "--no-header",
        ],
        cwd=runtime, check=True, capture_output=True, text=True,
    )  # fmt: skip
    blocks = re.split(r"\n(?=\S)", done.stdout.rstrip())
    kept = [block for block in blocks if not _OF_THE_IMAGE.match(block) and _runs_on_linux(block)]
    (runtime / "requirements.txt").write_text("\n".join(kept) + "\n")


def _runs_on_linux(block: str) -> bool:
    return not _OTHER_PLATFORM.search(block) or bool(_LINUX.search(block))


def pins(requirements: str) -> list[str]:
    """Return the pinned requirements of a file without their hashes, and without markers that hold wherever torch runs."""
    lines = (line.rstrip("\\ ") for line in requirements.splitlines() if line and line[0] not in " #")
    return [line if "python_full_version" in line else line.partition(" ;")[0] for line in lines]


def type_names(hint: Any) -> list[str]:
    """Return the JSON types that a field takes: words in quotes for a choice, `any` for a type that is not JSON."""
    if typing.get_origin(hint) is typing.Annotated:
        return type_names(typing.get_args(hint)[0])
    if hint is type(None):
        return ["None"]
    if typing.get_origin(hint) is typing.Literal:
        return [json.dumps(value) if isinstance(value, str) else _NAMES[type(value)] for value in typing.get_args(hint)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(hint) if each is not bytes]
        words = any(isinstance(each, type) and issubclass(each, enum.Enum) for each in members)
        found = [name for each in members if not (words and each is str) for name in type_names(each)]
        return list(dict.fromkeys(found))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [json.dumps(each.value) for each in hint]
    origin = typing.get_origin(hint) or hint
    if origin in (list, tuple) and len(inner := [each for each in typing.get_args(hint) if each is not ...]) == 1:
        element = type_names(inner[0])
        if len(element) == 1 and element[0] in _NAMES.values():
            return [f"list[{element[0]}]"]
    return [_NAMES.get(origin, "any")]


def fields_of(*classes: Any) -> dict[str, str]:
    """Return name -> types of the fields of dataclasses."""
    found = {}
    for cls in classes:
        hints = typing.get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            if field.init and not field.name.startswith("_"):
                choices = field.metadata.get("choices")
                names = [json.dumps(value) for value in choices] if choices else type_names(hints[field.name])
                optional = field.default is None and "None" not in names
                found[field.name] = " | ".join([*names, "None"] if optional else names)
    return found


def _trl() -> dict[str, dict[str, str]]:
    made = {}
    for name in TRL:
        script = importlib.import_module(f"trl.scripts.{name}")
        made[name] = fields_of(*script.make_parser().dataclass_types)
    return made


def _trl_parts() -> dict[str, Any]:
    """Return what else the table of TRL has.

    Returns:
        Digests of the chat `templates` to which TRL adds the markers of `assistant_only_loss` by itself, the defaults of what
        makes a batch of the methods that generate completions (`batches`), and the options of TRL's own program for vLLM.
    """
    folder = Path(str(importlib.import_module("trl").__file__)).with_name("chat_templates")
    marked = {file.name.replace("_training.", ".") for file in folder.glob("*_training.jinja")}
    texts = [(folder / name).read_text(encoding="utf-8") for name in marked if (folder / name).exists()]
    digests = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)  # check_data.py template_digest
    batches = {}
    for name in ("grpo", "rloo"):
        config = next(
            cls
            for cls in importlib.import_module(f"trl.scripts.{name}").make_parser().dataclass_types
            if any(field.name == "num_generations" for field in dataclasses.fields(cls))
        )
        batches[name] = {field.name: field.default for field in dataclasses.fields(config) if field.name in _BATCH}
    server = fields_of(importlib.import_module("trl.scripts.vllm_serve").ScriptArguments)
    return {"templates": sorted(digests), "batches": batches, "vllm_options": [*server]}


def vllm_options(package: str) -> set[str]:
    """Return the options of `vllm serve`, read from the wheel, since vLLM cannot be imported without a GPU.

    Args:
        package: vLLM with its version, as pip takes it.
    """
    with tempfile.TemporaryDirectory() as folder:
        platform = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.12", "--only-binary", ":all:"]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platform, "-d", folder, package],
            check=True,
        )
        (wheel,) = Path(folder).iterdir()
        with zipfile.ZipFile(wheel) as files:
            return set().union(*(options(files.read(f"vllm/{name}").decode()) for name in _WITH_OPTIONS))


_WITH_OPTIONS = ("engine/arg_utils.py", "entrypoints/launchers/cli_args.py")


def options(source: str) -> set[str]:
    """Return the long options that a source adds to a parser, and the fields of its classes of arguments, with underscores."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            found |= {str(word)[2:].replace("-", "_") for word in words if str(word).startswith("--")}
        elif isinstance(node, ast.ClassDef) and node.name.endswith("Args"):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            found |= {each.id for each in fields if isinstance(each, ast.Name)}
    return found


def _transformers() -> dict[str, dict[str, str]]:
    from transformers import TrainingArguments

    own = {"model_name_or_path": "str", "dataset_name": "str", "dataset_config": "str | None"}
    own |= {"dataset_train_split": "str", "dataset_test_split": "str", "text_column": "str", "max_length": "int"}
    return {"language-modeling": {**fields_of(TrainingArguments), **own}}


def _llamafactory() -> dict[str, dict[str, str]]:
    fields = fields_of(*importlib.import_module("llamafactory.hparams.parser")._TRAIN_ARGS)
    stages = re.findall(r'"(\w+)"', fields.pop("stage"))
    templates = importlib.import_module("llamafactory.data.template").TEMPLATES
    fields["template"] = " | ".join([*map(json.dumps, sorted(templates)), "None"])
    return dict.fromkeys((stage for stage in stages if stage != "ppo"), fields)


def _torchtune() -> dict[str, dict[str, str]]:
    made = {}
    for recipe, configs in _torchtune_configs().items():
        found: dict[str, list[str]] = {}
        for config in configs.values():
            for name, value in config.items():
                found.setdefault(name, []).append(_NAMES.get(type(value), "None"))
        kinds = {name: _of_values(name, types) for name, types in found.items()}
        made[recipe] = {**_read_by(recipe), **kinds}
    return made


def _of_values(name: str, types: list[str]) -> str:
    """Return the types of a field of torchtune, from those of its values."""
    if name in _NULL_IN_ALL:
        return _NULL_IN_ALL[name]
    distinct = sorted({*types, *(["list"] if name == "dataset" else [])} - {"None"}) or ["any"]
    return " | ".join([*distinct, "None"] if "None" in types else distinct)


def _read_by(recipe: str) -> dict[str, str]:
    """Return name -> types of the fields that the program of a recipe reads, as far as it has a default for them."""
    torchtune = importlib.import_module("torchtune")
    text = Path(torchtune.__path__[0]).with_name("recipes").joinpath(f"{recipe}.py").read_text()
    found = dict.fromkeys(re.findall(r"\bcfg\.(\w+)\b(?!\()", text), "any")
    found |= dict.fromkeys(re.findall(r'cfg\.get\(\s*"(\w+)"', text), "any")
    return found | dict.fromkeys(re.findall(r'cfg\.get\(\s*"(\w+)",\s*(?:True|False)\b', text), "bool")


def _torchtune_configs() -> dict[str, dict[str, dict[str, Any]]]:
    """Return recipe -> name -> fields of the configurations that torchtune has."""
    conf = importlib.import_module("omegaconf").OmegaConf
    registry = importlib.import_module("torchtune._recipe_registry")
    folder = Path(str(registry.__file__)).parents[1] / "recipes" / "configs"
    made = {}
    for recipe in registry.get_all_recipes():
        if recipe.name in TORCHTUNE:
            loaded = {each.name: conf.load(folder / each.file_path) for each in recipe.configs}
            made[recipe.name] = {name: conf.to_container(each) for name, each in loaded.items()}
    return {name: made[name] for name in TORCHTUNE}


def _torchtune_parts() -> dict[str, Any]:
    """Return the components of each configuration of torchtune, and the arguments of all components."""
    configs: dict[str, dict[str, dict[str, str]]] = {}
    named = set()
    for recipe, each in _torchtune_configs().items():
        configs[recipe] = {name: _components_of(config) for name, config in each.items()}
        for parts in configs[recipe].values():
            named |= set(parts.values())
    named |= {f"{package}.{name}" for package in _packages() for name in _public(package)}
    components = {name: fields for name in sorted(named) if (fields := _arguments(name)) is not None}
    return {"configs": configs, "components": components}


def _components_of(config: dict[str, Any]) -> dict[str, str]:
    nodes = {name: node for name, node in config.items() if isinstance(node, dict)}
    return {name: node["_component_"] for name, node in nodes.items() if "_component_" in node}


def _packages() -> list[str]:
    """Return the packages of torchtune whose components a configuration names."""
    import pkgutil

    models = importlib.import_module("torchtune.models")
    found = [f"torchtune.models.{each.name}" for each in pkgutil.iter_modules(models.__path__) if each.ispkg]
    inner = ("datasets", "modules.loss", "rlhf.loss", "training", "training.lr_schedulers", "training.metric_logging")
    return [*found, *(f"torchtune.{name}" for name in inner)]


def _public(package: str) -> list[str]:
    try:
        module = importlib.import_module(package)
    except ImportError:  # those for images need torchvision
        return []
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    kinds = (type, types.FunctionType, functools.partial)
    return [
        name for name in getattr(module, "__all__", own) if isinstance(getattr(module, name), kinds) and name[0] != "_"
    ]


def _arguments(component: str) -> dict[str, str] | None:
    """Return name -> types of the arguments of a component, `**` if it takes others; None if it cannot be imported."""
    package, _, name = component.rpartition(".")
    try:
        found = getattr(importlib.import_module(package), name)
        parameters = inspect.signature(found).parameters.values()
    except (ImportError, AttributeError, ValueError):
        return None
    target, constructor = getattr(found, "func", found), "__init__"
    try:
        hints = typing.get_type_hints(getattr(target, constructor) if isinstance(target, type) else target)
    except NameError:
        hints = {}
    made = {}
    for each in parameters:
        types_ = _of_json(type_names(hints.get(each.name, object)))
        optional = each.default is None and "None" not in types_
        made[each.name] = " | ".join([*types_, "None"] if optional else types_)
        if each.kind is each.VAR_KEYWORD:
            del made[each.name]
            made["**"] = "any"
    return made


def _of_json(names: list[str]) -> list[str]:
    """Return types without `any`, such as a tensor beside a number, if there are others."""
    return [name for name in names if name != "any" or {*names} <= {"any", "None"}]


UNSLOTH = {
    "use_gradient_checkpointing": '"unsloth" | bool', "load_in_fp8": '"block" | bool', "revision": "str | None",
    "token": "str | None", "rope_scaling": "dict | None",
}  # fmt: skip
"""Types of parameters of `FastLanguageModel.from_pretrained` that their defaults do not show."""
UNSLOTH_LEFT_OUT = {"fast_inference", "gpu_memory_utilization", "float8_kv_cache", "max_lora_rank", "disable_log_stats"}
"""Those for generation by vLLM, which a training does not need."""


def parameters(file: Path, cls: str, function: str) -> dict[str, Any]:
    """Return name -> default of the parameters of a method, from its source; a default that is no constant is `...`."""
    classes = (each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef) and each.name == cls)
    methods = [each for each in next(classes).body if isinstance(each, ast.FunctionDef) and each.name == function]
    given = methods[0].args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    defaults = [each.value if isinstance(each, ast.Constant) else ... for each in given.defaults]
    return {**dict.fromkeys(names, ...), **dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))}


def _unsloth() -> dict[str, dict[str, str]]:
    from importlib.metadata import files

    settings = importlib.import_module("trl").SFTConfig
    # Unsloth cannot be imported without a GPU.
    (loader,) = [each for each in files("unsloth") or () if str(each) == "unsloth/models/loader.py"]
    found = parameters(Path(str(loader.locate())), "FastLanguageModel", "from_pretrained")
    kinds = {name: UNSLOTH.get(name) or _NAMES.get(type(value)) for name, value in found.items()}
    load = {name: kind for name, kind in kinds.items() if kind and name not in UNSLOTH_LEFT_OUT}
    own = {
        "dataset_name": "str",
        "dataset_config": "str | None",
        "dataset_train_split": "str",
        "dataset_test_split": "str",
    }
    return {"sft": {**fields_of(settings), **load, **own}}


READ = {
    "trl": _trl,
    "transformers": _transformers,
    "llamafactory": _llamafactory,
    "torchtune": _torchtune,
    "unsloth": _unsloth,
}
PARTS = {"trl": _trl_parts, "torchtune": _torchtune_parts}
"""What else the table of a tool has."""


def table(tool: str) -> dict[str, Any]:
    """Return the table of a tool that this interpreter can import: `fields` of all methods, and those of each method."""
    from importlib.metadata import version

    methods = READ[tool]()
    first, *others = methods.values()
    shared = {name: kind for name, kind in first.items() if all(each.get(name) == kind for each in others)}
    own = {method: {n: k for n, k in sorted(each.items()) if n not in shared} for method, each in methods.items()}
    parts = PARTS[tool]() if tool in PARTS else {}
    return {"tool": tool, "release": version(tool), "fields": dict(sorted(shared.items())), "methods": own, **parts}


def make(tool: str, *, keep: bool) -> None:
    """Write requirements and table of a tool."""
    runtime = ROOT / "runtimes" / RUNTIMES[tool]
    if not keep:
        lock(runtime)
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run(["uv", "venv", "--quiet", "--python", "3.11", folder], check=True)
        install = ["uv", "pip", "install", "--quiet", "--python", python, "-r", "requirements.txt", "-r", "torch.txt"]
        subprocess.run(install, cwd=runtime, check=True)
        done = subprocess.run([python, __file__, "--read", tool], check=True, stdout=subprocess.PIPE, text=True)
    write(tool, json.loads(done.stdout.splitlines()[-1]))  # imports print


def write(tool: str, found: dict[str, Any]) -> None:
    """Write the table of a tool, with its packages."""
    runtime = ROOT / "runtimes" / RUNTIMES[tool]
    packages = [*(runtime / "torch.txt").read_text().split("\n"), *pins((runtime / "requirements.txt").read_text())]
    made = {"runtime": runtime.name, **found, "packages": [each for each in packages if each]}
    if (vllm := runtime / "vllm.txt").exists():
        made["vllm"] = vllm.read_text().split()
        made["vllm_options"] = sorted({*found["vllm_options"], *vllm_options(made["vllm"][0])})
    (TABLES / f"{tool}.json").write_text(json.dumps(made, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"default: {', '.join(RUNTIMES)}")
    parser.add_argument("--keep", action="store_true", help="take requirements.txt as it is")
    parser.add_argument("--read", metavar="TOOL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        print(json.dumps(table(given.read)))
        return
    for tool in given.tools or RUNTIMES:
        make(tool, keep=given.keep)


if __name__ == "__main__":
    main()
