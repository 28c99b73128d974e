"""TorchTune: which recipe and config a `tune run` gets, and what the webhook has against it."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_support import container, env, job, main, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

GPU = "nvidia.com/gpu"
LORA = "model.lora_attn_modules=[q_proj]"
QLORA = "model.quantize_base=True"
SMALL = "torchtune-llama3.2-1b"
LARGE = "torchtune-llama3.3-70b"
FILES = [
    "output_dir=/out",
    "tokenizer.path=/t",
    "epochs=1",
    "checkpointer.checkpoint_dir=/a=b",
    "tokenizer.merges_file",
]


def tune(name: str = SMALL, *jobs: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return runtime({"torch": {}, **policy}, *jobs, name=name)


def trainer(
    nodes: Any = None, processes: Any = None, gpus: Any = None, args: Any = None, **more: Any
) -> dict[str, Any]:
    values = {"numNodes": nodes, "numProcPerNode": processes, "args": args}
    limits = {} if gpus is None else {"resourcesPerNode": {"limits": {GPU: gpus}}}
    return {"command": ["tune", "run"], **{k: v for k, v in values.items() if v is not None}, **limits, **more}


def command(given: dict[str, Any], *jobs: dict[str, Any], name: str = SMALL, **policy: Any) -> Any:
    return main(rendered(tune(name, *jobs, **policy), train_job(given, runtime=name)))["command"]


def told(given: dict[str, Any], name: str = SMALL, *jobs: dict[str, Any]) -> list[tuple[str, str]]:
    return [(p.where, p.why) for p in problems(tune(name, *jobs), train_job(given, runtime=name))]


class TestCommand:
    @pytest.mark.parametrize(
        ("nodes", "processes", "gpus", "args", "recipe", "suffix"),
        [
            (1, None, 1, [], "full_finetune_single_device", "_full_single_device"),
            (1, 1, 8, [], "full_finetune_single_device", "_full_single_device"),
            (None, None, None, [], "full_finetune_single_device", "_full_single_device"),
            (1, None, 1, [LORA], "lora_finetune_single_device", "_lora_single_device"),
            (1, None, 1, [LORA, QLORA], "lora_finetune_single_device", "_qlora_single_device"),
            (1, 2, 1, [QLORA], "lora_finetune_single_device", "_qlora_single_device"),
            (1, None, 2, [], "full_finetune_distributed", "_full"),
            (1, 2, None, [LORA], "lora_finetune_distributed", "_lora"),
            (1, None, 2, [QLORA], "lora_finetune_distributed", "_qlora"),
            (2, None, 1, [], "full_finetune_distributed", "_full_multinode"),
            (2, 1, None, [LORA, QLORA], "full_finetune_distributed", "_full_multinode"),
            (0, 1, 1, [LORA], "full_finetune_distributed", "_full"),
        ],
    )
    def test_recipe(self, nodes: Any, processes: Any, gpus: Any, args: Any, recipe: str, suffix: str) -> None:
        words = command(trainer(nodes, processes, gpus, args))
        assert words[-3:] == [recipe, "--config", f"llama3_2/1B{suffix}"]

    @pytest.mark.parametrize(
        ("nodes", "processes", "gpus", "wanted"),
        [(1, None, 1, False), (2, 1, None, True), (1, 2, None, True), (1, None, 2, True), (1, 1, 8, False)],
    )
    def test_rendezvous_of_several_processes(self, nodes: Any, processes: Any, gpus: Any, wanted: bool) -> None:
        words = command(trainer(nodes, processes, gpus))
        assert words[:2] == ["tune", "run"]
        assert (words[2] == "--rdzv_endpoint=digits-node-0-0.digits:29500") == wanted
        assert len(words) == 5 + wanted

    def test_several_cpus_are_several_processes(self) -> None:
        words = command({"command": ["tune", "run"], "resourcesPerNode": {"requests": {"cpu": "3500m"}}})
        assert words[2].startswith("--rdzv")
        assert words[-1] == "llama3_2/1B_full"

    @pytest.mark.parametrize(
        ("args", "suffix"),
        [
            ([QLORA, "model.use_dora=true"], "_full"),
            ([QLORA, LORA, "model.use_dora=true"], "_lora"),
            ([QLORA, "model.use_dora=false"], "_qlora"),
            (["x.model.quantize_base= TRUE "], "_qlora"),
            (["model.quantize_base=1"], "_full"),
            (["model.quantize_base"], "_full"),
            (["x=model.quantize_base=True"], "_full"),
            (["x=model.lora_attn_modules"], "_lora"),
        ],
    )
    def test_what_makes_lora_and_qlora(self, args: list[str], suffix: str) -> None:
        assert command(trainer(gpus=2, args=args))[-1] == f"llama3_2/1B{suffix}"

    def test_files_of_the_runtimes_command_are_kept(self) -> None:
        jobs = [
            job("dataset", "", container(command=["output_dir=/no"])),
            job("node", None, container("side", command=["output_dir=/no"]), container(command=["tune", *FILES])),
            job("node-2", None, container(command=["output_dir=/two"], args=["tokenizer.path=/no"])),
        ]
        rt = tune(SMALL, *jobs)
        words = rendered(rt, train_job(trainer(gpus=1), runtime=SMALL))["JobSet/digits"]["spec"]["replicatedJobs"][1]
        words = words["template"]["spec"]["template"]["spec"]["containers"][1]["command"]
        kept = ["output_dir=/out", "tokenizer.path=/t", "checkpointer.checkpoint_dir=/a=b", "tokenizer.merges_file"]
        assert words[5:] == [*kept, "output_dir=/two"]

    @pytest.mark.parametrize("words", [["tune"], ["tune", "run", "x"], ["torchrun"], ["tune", "Run"]])
    def test_other_commands_are_left_alone(self, words: list[str]) -> None:
        node = main(rendered(tune(), train_job({"command": words}, runtime=SMALL)))
        assert node["command"] == words
        assert "PET_MASTER_ADDR" in env(node)

    @pytest.mark.parametrize(
        ("name", "model"),
        [("torchtune-llama3.2-3b", "llama3_2/3B"), ("x-a.b.c-1.5b", "a_b_c/1.5B"), ("a-b", ""), ("a-b-c-d", "")],
    )
    def test_the_model_is_in_the_runtimes_name(self, name: str, model: str) -> None:
        assert command(trainer(gpus=1), name=name)[-1] == f"{model}_full_single_device"


class TestWebhook:
    @pytest.mark.parametrize("args", [[LORA], [QLORA], [LORA, QLORA, "model.use_dora=true"]])
    def test_no_lora_on_several_nodes(self, args: list[str]) -> None:
        why = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
        assert told(trainer(2, gpus=1, args=args), LARGE) == [("spec.trainer.numNodes", why)]
        assert told(trainer(2, gpus=1, args=["model.quantize_base=false"]), LARGE) == []

    @pytest.mark.parametrize(
        "given", [trainer(gpus=2, args=[QLORA]), trainer(1, 2, args=[QLORA]), trainer(args=[QLORA])]
    )
    def test_qlora_of_small_llamas_on_one_device(self, given: dict[str, Any]) -> None:
        assert told(given, "torchtune-llama3.2-3b") == [
            ("spec.trainer.numProcPerNode", "must be auto or 1 for llama3_2/3B model when using QLoRA"),
            (
                "spec.trainer.resourcesPerNode",
                "must have gpu resource with value 1 for llama3_2/3B model when using QLoRA",
            ),
        ]
        assert told(given, LARGE) == []

    @pytest.mark.parametrize("given", [trainer(gpus=1, args=[QLORA]), trainer(1, 1, 8, [QLORA])])
    def test_qlora_on_one_device(self, given: dict[str, Any]) -> None:
        assert told(given) == []
        why = "QLoRA is not supported for qwen2_5/1.5B model"
        assert told(given, "torchtune-qwen2.5-1.5b") == [("spec.runtimeRef.name", why)]

    def test_gpus_of_the_runtime(self) -> None:
        one = job("node", None, container(resources={"limits": {GPU: 1}}))
        assert told(trainer(args=[QLORA]), SMALL, one) == []
        assert len(told(trainer(gpus=2, args=[QLORA]), SMALL, one)) == 2

    def test_files_are_the_runtimes(self) -> None:
        args = [
            "epochs=1",
            "output_dir=/x",
            "tokenizer.path",
            "xoutput_dir=1",
            "tokenizer.merges_file==",
            "output_dirs=1",
        ]
        keys = {1: "output_dir", 2: "tokenizer.path", 4: "tokenizer.merges_file"}
        assert told(trainer(gpus=1, args=args)) == [
            (
                f"spec.trainer.args[{place}]",
                f'must not set immutable config "{key}" in trainer args; it is managed by the runtime',
            )
            for place, key in keys.items()
        ]


class TestUnknown:
    @pytest.mark.parametrize(
        "given",
        [
            trainer(Unknown("u")),
            trainer(1, Unknown("u")),
            trainer(1, gpus=Unknown("u")),
            trainer(1, gpus=1, args=Unknown("u")),
            trainer(1, gpus=1, args=["a", Unknown("u")]),
        ],
    )
    def test_the_rest_of_the_command(self, given: dict[str, Any]) -> None:
        assert command(given) == ["tune", "run", Unknown("u")]
        assert told(given) == []

    def test_the_runtimes_name(self) -> None:
        tj = train_job(trainer(2, gpus=1, args=["output_dir=1"]), runtime=SMALL)
        for reference in ({"name": Unknown("u")}, Unknown("u")):
            tj["spec"]["runtimeRef"] = reference
            assert [p.where for p in problems(tune(), tj)] == ["spec.trainer.args[0]"]
            assert main(rendered(tune(), tj))["command"][2] == Unknown("u")
