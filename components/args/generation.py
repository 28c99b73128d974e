"""`GenerationServer`: a Pod beside the nodes of a training that generates the completions which the training scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, as_mapping, drop_none, quoted, to_document
from pulumi_trainer.args.trainers import (
    ONE_GPU,
    asks_for_gpu,
    env_list,
    env_problems,
    image_problems,
    resource_problems,
    resource_requirements,
)
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, short_repr

METHODS = ("grpo", "rloo")
"""Methods of TRL whose completions a server can generate."""

_OF_THE_JOB = (
    "model",
    "host",
    "port",
    "weight_transfer_config",
    "logprobs_mode",
    "max_logprobs",
    "tensor_parallel_size",
)
"""Options of vLLM that the job sets."""
_OF_THE_CLIENT = ("use_vllm", "vllm_mode", "vllm_server_base_url", "vllm_server_host", "vllm_server_port")
"""Fields of TRL that the job sets."""
_OF_THE_NODES = (
    "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size", "vllm_enable_sleep_mode",
    "vllm_model_impl",
)  # fmt: skip
"""Fields of TRL for vLLM in the nodes themselves (`vllm_mode="colocate"`)."""
_OPTION = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_ONE = 'resources_per_node={"gpu": ...}: one Pod generates for all nodes'


class GenerationServer(Args):
    """A server that generates the completions of GRPO or RLOO, in a Pod of its own beside the nodes.

    If the Pod asks for GPUs, the server is vLLM, as TRL starts it (`trl vllm-serve`), and new weights come over NCCL. Else it is
    a small server with Transformers, for laptops and tests, and new weights come over HTTP. It starts with the nodes and ends
    with them: if it fails, all start again.

    Args:
        resources_per_node: Resources of the server's Pod: {"limits": ..., "requests": ...}, or the short form {"gpu": 2,
            "cpu": 3, "memory": "3Gi"}, whose requests equal its limits; default: none, which is a server without GPUs.
        image: Image of the server; default: that of the nodes.
        env: Environment variables besides those of the nodes, as a mapping or as a list of EnvVars.
        tensor_parallel_size: GPUs that share the model; default: all of the Pod.
        config: Options of `vllm serve`, such as {"max_model_len": 4096, "gpu_memory_utilization": 0.8}. A server without GPUs
            does not use them.
    """

    elsewhere = {
        **dict.fromkeys(("num_nodes", "replicas", "nodes", "data_parallel_size"), _ONE),
        **dict.fromkeys(("gpus", "gpu", "resources"), 'resources_per_node={"gpu": ...}'),
    }

    resources_per_node: pulumi.Input[Mapping[str, Any]] | None = None
    image: pulumi.Input[str] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | list[Mapping[str, Any]] | None = None
    tensor_parallel_size: int | None = None
    config: Mapping[str, Any] | None = None

    shipped = frozenset({"tensor_parallel_size", "config"})
    free = frozenset({"config"})
    converters = {"env": env_list, "resources_per_node": resource_requirements}

    def check(self) -> list[Problem]:
        found = [*super().check(), *resource_problems(self.resources_per_node), *env_problems(self.env)]
        found += image_problems(self.image)
        size = self.tensor_parallel_size
        if size is not None and (type(size) is not int or size < 1):
            found.append(
                Problem("tensor_parallel_size", f"must be a whole number of at least 1, not {short_repr(size)}")
            )
        for name in as_mapping(self.config):
            where = f"config[{quoted(name)}]"
            if not isinstance(name, str) or not _OPTION.fullmatch(name):
                found.append(Problem(where, "not a valid name of a vLLM option", 'such as "max_model_len"'))
            elif name.replace("-", "_") in _OF_THE_JOB:
                hint = "leave it out"
                if name.replace("-", "_") == "tensor_parallel_size":
                    hint = "give tensor_parallel_size= beside config"
                found.append(Problem(where, "is set by the job", hint))
        return found

    def arguments(self) -> dict[str, Any]:
        """Return what the server's program gets as JSON."""
        given = {"tensor_parallel_size": self.tensor_parallel_size, "config": to_document(self.config)}
        return drop_none(given)


def option_problems(server: GenerationServer, known: Sequence[str], release: str) -> list[Problem]:
    """Return the options of a server that vLLM does not have."""
    found = list[Problem]()
    for name in as_mapping(server.config):
        if not isinstance(name, str) or not _OPTION.fullmatch(name):
            continue
        option = name.replace("-", "_")
        if option.removeprefix("no_") not in known:
            hint = did_you_mean(option, known, "`vllm serve --help` lists them")
            found.append(Problem(f"generation.config[{quoted(name)}]", f"unknown option of vLLM {release}", hint))
    return found


def server_problems(server: GenerationServer, method: Any, config: Mapping[str, Any]) -> list[Problem]:
    """Return conflicts of a server with the other arguments of its trainer."""
    found = list[Problem]()
    if method not in (*METHODS, None):
        found.append(Problem("generation", f"generates completions for {' and '.join(METHODS)}, not for {method}"))
    for name in (*_OF_THE_CLIENT, *_OF_THE_NODES):
        if config.get(name) is None:
            continue
        where, hint = f"config[{quoted(name)}]", "leave one of the two out"
        if name in _OF_THE_CLIENT:
            found.append(Problem(where, "cannot be combined with generation, which sets it", hint))
        else:
            why = "applies to vLLM in the nodes, but generation= runs vLLM in its own Pod"
            found.append(Problem(where, why, 'generation=GenerationServer(config={"max_model_len": ...})'))
    if not asks_for_gpu(server.resources_per_node) and config.get("vllm_structured_outputs_regex") is not None:
        why = "needs vLLM, but the server requests no GPU"
        found.append(Problem('config["vllm_structured_outputs_regex"]', why, "leave it out"))
    gpus = _whole_gpus(server.resources_per_node)
    size = server.tensor_parallel_size
    if gpus is not None and isinstance(size, int) and size > gpus:
        why = f"is {size}, but the server requests {gpus} GPUs"
        found.append(Problem("generation.tensor_parallel_size", why, "leave it out: the default is all of them"))
    return found


def pairing_problems(*, trains_on_gpu: bool, generates_on_gpu: bool) -> list[Problem]:
    """Return a problem if only one of nodes and server has GPUs."""
    where = "generation.resources_per_node"
    if trains_on_gpu and not generates_on_gpu:
        why = "requests no GPU, but the nodes do: all nodes would wait for a server that generates on CPUs"
        return [Problem(where, why, ONE_GPU)]
    if generates_on_gpu and not trains_on_gpu:
        why = "requests GPUs, but the nodes do not: vLLM gets new weights over NCCL, which needs GPUs on both sides"
        return [Problem(where, why, f"give the nodes {ONE_GPU} too")]
    return []


def vllm_problems(config: Mapping[str, Any], *, installs_vllm: bool) -> list[Problem]:
    """Return why vLLM cannot generate for a trainer without a generation server."""
    if config.get("use_vllm") is not True:
        return []
    where, hint = 'config["use_vllm"]', "give generation=GenerationServer(...), or leave it out"
    has_server = any(config.get(name) is not None for name in ("vllm_server_base_url", "vllm_server_host"))
    if config.get("vllm_mode") == "server" and not has_server:
        return [Problem(where, 'is True with vllm_mode="server", but the job has no server', hint)]
    if not installs_vllm:
        hint = 'packages_to_install=["vllm"], or an image that has it'
        return [Problem(where, "is True, but vLLM is not installed", hint)]
    return []


def _whole_gpus(resources: Any) -> int | None:
    """Return the whole GPUs that a Pod asks for; None if this is not known."""
    limits = as_mapping(as_mapping(resource_requirements(resources)).get("limits"))
    count = limits.get("nvidia.com/gpu")
    if not isinstance(count, (int, str)) or not str(count).isdecimal():
        return None
    return int(count)
