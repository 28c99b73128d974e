"""What a plan refuses of data, models and GPUs of fine-tuning; the files may be hostile."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pulumi_trainer as trainer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.plan import gpu_precision, tool_inputs
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.pod.scripts import run_tool
from pulumi_trainer.provider.pod.shared import check_data

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    made = runpy.run_path(str(ROOT / "examples" / "fine-tuning" / "tiny_model.py"))
    (folder / "model").mkdir()
    made["write_model"](folder / "model")
    made["write_data"](folder / "data")
    return folder


def found(made: Any, dataset: Path | None = None, model: Path | None = None) -> list[str]:
    sources = {
        "dataset": trainer.HuggingFaceDatasetInitializer(storage_uri="hf://org/data"),
        "model": trainer.HuggingFaceModelInitializer(storage_uri="hf://org/model"),
    }
    for kind, path in (("dataset", dataset), ("model", model)):
        if path is not None:
            sources[kind] = types.SimpleNamespace(storage_uri=f"file://{path}")  # type: ignore[assignment]
    given = trainer.Initializer(**sources)  # type: ignore[arg-type]
    return [str(problem) for problem in tool_inputs.input_problems(made, given)]


def trl(method: Any, **config: Any) -> trainer.TRLTrainer:
    return trainer.TRLTrainer(method=method, config=config)


class TestColumns:
    @pytest.mark.parametrize(
        ("method", "data", "needs"),
        [
            ("sft", "preference", "messages, or prompt and completion, or text"),
            ("dpo", "chat", "chosen and rejected"),
            ("kto", "prompts", "prompt and completion and label, or chosen and rejected"),
            ("reward", "chat", "chosen and rejected, or chosen_ids and rejected_ids"),
            ("grpo", "chat", "prompt"),
            ("rloo", "text", "prompt"),
            ("distillation", "text", "prompt"),
        ],
    )
    def test_a_method_of_trl_names_what_it_needs(self, method: str, data: str, needs: str, tiny: Path) -> None:
        (said,) = found(trl(method), tiny / "data" / data)
        assert (
            said.startswith("initializer.dataset: the dataset has the columns ")
            and f"{method} needs {needs}. Hint" in said
        )

    @pytest.mark.parametrize(
        ("method", "data"),
        [
            ("sft", "chat"),
            ("sft", "text"),
            ("dpo", "preference"),
            ("kto", "unpaired"),
            ("kto", "preference"),
            ("grpo", "prompts"),
        ],
    )
    def test_what_fits_is_taken(self, method: str, data: str, tiny: Path) -> None:
        assert found(trl(method), tiny / "data" / data, tiny / "model") == []

    def test_the_column_of_text_has_the_name_that_the_field_gives(self, tiny: Path) -> None:
        made = trainer.TransformersTrainer(config={"text_column": "body"})
        (said,) = found(made, tiny / "data" / "text")
        assert (
            "has the columns text, and language-modeling needs body" in said and 'config={"text_column": ...}' in said
        )
        (said,) = found(trl("sft", dataset_text_field="body"), tiny / "data" / "text")
        assert "or body" in said and 'config={"dataset_text_field": ...}' in said
        assert found(trainer.TransformersTrainer(config={}), tiny / "data" / "text") == []

    def test_a_reward_function_takes_columns_that_there_are(self, tmp_path: Path) -> None:
        (tmp_path / "train.jsonl").write_text('{"prompt": "1 + 1", "answer": "2"}\n')

        def exact(prompts: Any, completions: Any, answer: Any, level: Any = None, **columns: Any) -> list[float]:
            return [1.0 for _ in completions]

        def strict(completions: Any, *, answers: Any, **columns: Any) -> list[float]:
            return [1.0 for _ in completions]

        assert found(trainer.TRLTrainer(method="grpo", config={}, reward=exact), tmp_path) == []
        (said,) = found(trainer.TRLTrainer(method="grpo", config={}, reward=[exact, strict]), tmp_path)
        assert said == (
            "trainer.reward: the reward function strict takes answers, and the dataset has the columns answer, prompt. "
            "Hint: rename the columns of the dataset, or give the parameter a default: answers=None"
        )
        other = trainer.TRLTrainer(method="grpo", config={"dataset_train_split": "other"}, reward=strict)
        assert found(other, tmp_path) == []

    def test_optional_columns_of_llama_factory_may_begin_in_later_lines(self, tmp_path: Path) -> None:
        rows = [{"instruction": "1", "output": "2"}] * 120 + [{"instruction": "1", "output": "2", "system": "3"}] * 30
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        columns = {"prompt": "instruction", "response": "output", "system": "system"}
        described = {"mine": {"file_name": "mine.jsonl", "columns": columns}}
        (tmp_path / "dataset_info.json").write_text(json.dumps(described))
        made = trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "mine"})
        assert found(made, tmp_path) == []
        described["mine"]["columns"] = {**columns, "response": "answer"}
        (tmp_path / "dataset_info.json").write_text(json.dumps(described))
        (said,) = found(made, tmp_path)
        assert "has the columns instruction, output, system, and not answer" in said

    def test_what_the_user_may_not_read_is_a_problem(
        self, tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (said,) = found(trl("sft", model_name_or_path="/workspace/model/" + "x" * 300), model=tiny / "model")
        assert "no such folder" in said

        def denied(_: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", denied)
            (said,) = found(trl("sft"), model=tmp_path)
        assert "of the base model cannot be read: Permission denied. Hint" in said

    def test_a_part_of_the_dataset(self, tiny: Path) -> None:
        (said,) = found(trl("dpo", dataset_name="/workspace/dataset/chat"), tiny / "data")
        assert "has the columns messages" in said
        assert found(trl("dpo", dataset_name="/workspace/dataset/preference"), tiny / "data") == []

    def test_what_other_files_decide_is_left_to_the_job(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"other": 1}\n')
        assert len(found(trl("dpo"), tmp_path)) == 1
        assert (
            found(trl("dpo", dataset_config="x"), tmp_path)
            == []
            == found(trl("dpo", dataset_train_split="x"), tmp_path)
        )
        (tmp_path / "b.jsonl").write_text('{"other": 1}\n')
        assert found(trl("dpo"), tmp_path) == []
        (tmp_path / "b.jsonl").rename(tmp_path / "README.md")
        assert found(trl("dpo"), tmp_path) == [], "its header may choose files"
        assert found(trl("dpo"), tmp_path / "a.jsonl"), "a file"

    def test_later_lines_may_have_the_column(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n{"chosen": "a", "rejected": "b"}\n')
        assert found(trl("dpo"), tmp_path) == []

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "\n",
            "not json\n",
            "[1]\n",
            '{"a": ' + "[" * 100_000,
            "{" * 100_000,
            '{"a": ' + "1" * 10_000 + "}\n",
            "\0",
        ],
    )
    def test_hostile_lines(self, content: str, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(content)
        assert found(trl("dpo"), tmp_path) == []

    def test_a_line_without_an_end_is_not_read_whole(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"a": "' + "x" * (2 << 20) + '"}')
        assert found(trl("dpo"), tmp_path) == []

    def test_a_fifo_is_not_read(self, tmp_path: Path) -> None:
        for name in ("a.jsonl", "tokenizer_config.json", "dataset_info.json"):
            os.mkfifo(tmp_path / name)
        (tmp_path / "config.json").touch()
        assert found(trl("dpo"), tmp_path) == []
        assert found(trl("sft", assistant_only_loss=True), None, tmp_path) == []
        made = trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": "x"})
        assert "is not a JSON object" in found(made, tmp_path)[0]

    @given(st.binary(max_size=60))
    def test_any_bytes(self, content: bytes) -> None:
        row = check_data.read_object(content)
        assert row is None or isinstance(row, dict)

    def test_names_of_a_hostile_dataset_are_one_line(self, tmp_path: Path) -> None:
        row = {f"\x1b[31m{i}\n" + "x" * 300: 1 for i in range(30)}
        (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
        (said,) = found(trl("dpo"), tmp_path)
        assert said.isprintable() and "and 18 more" in said and len(said) < 4000


class TestModel:
    def test_a_folder_that_is_not_a_model(self, tmp_path: Path) -> None:
        (said,) = found(trl("sft"), None, tmp_path)
        assert (
            said.startswith("initializer.model: the folder ")
            and "is not a base model: it has no config.json. Hint: " in said
        )
        (said,) = found(trl("sft", model_name_or_path="/workspace/model/base"), None, tmp_path)
        assert f"{tmp_path}/base is not there" in said
        for name in ("config.json", "adapter_config.json", "weights.gguf"):
            (tmp_path / name).touch()
            assert found(trl("sft"), None, tmp_path) == []
            (tmp_path / name).unlink()

    def test_what_is_not_known_is_not_refused(self, tmp_path: Path) -> None:
        assert found(trl("sft")) == [] == found(trl("sft"), tmp_path / "absent", tmp_path / "absent")

    def test_a_template_without_markers(self, tiny: Path, tmp_path: Path) -> None:
        (said,) = found(trl("sft", assistant_only_loss=True), None, tiny / "model")
        assert said.startswith(
            'trainer.config["assistant_only_loss"]: the chat template of the model has no {% generation %}'
        )
        assert "chat_template_path" in said.partition("Hint: ")[2]
        for config in (
            {"assistant_only_loss": False},
            {"assistant_only_loss": True, "chat_template_path": "x.jinja"},
            {},
        ):
            assert found(trl("sft", **config), None, tiny / "model") == []
        (tmp_path / "config.json").touch()
        (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "old"}')
        assert len(found(trl("sft", assistant_only_loss=True), None, tmp_path)) == 1
        (tmp_path / "chat_template.jinja").write_text("{%- generation -%}x{% endgeneration %}")
        assert found(trl("sft", assistant_only_loss=True), None, tmp_path) == []

    def test_a_template_that_trl_marks_by_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config.json").touch()
        (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
        assert len(found(trl("sft", assistant_only_loss=True), None, tmp_path)) == 1
        monkeypatch.setitem(table("trl"), "templates", [check_data.template_digest("{{ messages }}")])
        assert found(trl("sft", assistant_only_loss=True), None, tmp_path) == []


class TestLlamaFactory:
    def made(self, dataset: str = "tiny") -> trainer.LlamaFactoryTrainer:
        return trainer.LlamaFactoryTrainer(stage="sft", config={"dataset": dataset})

    def test_names_in_dataset_info(self, tiny: Path, tmp_path: Path) -> None:
        assert found(self.made(), tiny / "data" / "alpaca") == []
        (said,) = found(self.made("tiny, other"), tiny / "data" / "alpaca")
        assert said.startswith("trainer.config[\"dataset\"]: dataset_info.json describes no dataset 'other', but tiny")
        assert "has no dataset_info.json" in found(self.made(), tmp_path)[0]

    @pytest.mark.parametrize(
        ("about", "expected"),
        [
            ({"file_name": "absent.json"}, "the file absent.json of the dataset tiny is not there"),
            ({"file_name": "a.jsonl"}, "has the columns question, and not instruction, output"),
            ({"file_name": "a.jsonl", "columns": {"prompt": "question", "response": "answer"}}, "and not answer"),
            ({"file_name": "a.jsonl", "formatting": "sharegpt"}, "and not conversations"),
            ({"file_name": "a.jsonl", "columns": {"prompt": "question"}}, ""),
            ({"hf_hub_url": "org/data"}, ""),
            ({"file_name": 3}, ""),
            (3, "describes no dataset 'tiny'"),
        ],
    )
    def test_its_files_and_columns(self, about: Any, expected: str, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"question": "x"}\n')
        (tmp_path / "dataset_info.json").write_text(json.dumps({"tiny": about}))
        said = found(self.made(), tmp_path)
        assert (expected in said[0]) if expected else said == []


def jobset(pod: dict[str, Any], limits: Any = None, queue: str = "") -> dict[str, Any]:
    container = {"name": "node", "resources": {"limits": {"nvidia.com/gpu": "1"} if limits is None else limits}}
    template = {"template": {"spec": {"template": {"spec": {"containers": [container], **pod}}}}}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "metadata": {"namespace": "ml", "labels": labels},
        "spec": {"replicatedJobs": [{"name": "node", **template}]},
    }


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def kinds(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": "nvidia.com/gpu.product", "operator": operator, "values": [*values]}


def refused(document: dict[str, Any], queues: Queues | None = None, config: Any = None) -> list[str]:
    problems = gpu_precision.precision_problems(config or {"bf16": True}, [document], queues or Queues())
    return [str(problem) for problem in problems]


class TestPrecision:
    @pytest.mark.parametrize(
        "label",
        [
            "nvidia.com/gpu.product=Tesla-V100-SXM2-16GB",
            "nvidia.com/gpu.product=Tesla-T4",
            "nvidia.com/gpu.family=turing",
            "nvidia.com/gpu.compute.major=7",
            "cloud.google.com/gke-accelerator=nvidia-tesla-t4",
            "cloud.google.com/gke-accelerator=nvidia-tesla-p100",
            "karpenter.k8s.aws/instance-gpu-name=v100",
            "node.kubernetes.io/instance-type=g4dn.xlarge",
            "node.kubernetes.io/instance-type=p3.8xlarge",
            "node.kubernetes.io/instance-type=Standard_NC4as_T4_v3",
        ],
    )
    def test_the_kind_that_a_node_selector_names(self, label: str) -> None:
        key, _, value = label.partition("=")
        (said,) = refused(jobset({"nodeSelector": {key: value}}))
        assert said.startswith(f'trainer.config["bf16"]: is True, but the GPUs of the nodes ({label})')
        assert 'Hint: use config={"fp16": True}' in said

    @pytest.mark.parametrize(
        "label",
        [
            "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB",
            "nvidia.com/gpu.product=NVIDIA-RTX-4000-Ada-Generation",
            "nvidia.com/gpu.product=NVIDIA-L4",
            "nvidia.com/gpu.compute.major=9",
            "nvidia.com/gpu.compute.major=x",
            "cloud.google.com/gke-accelerator=nvidia-l4",
            "node.kubernetes.io/instance-type=p4d.24xlarge",
            "node.kubernetes.io/instance-type=Standard_NC40ads_H100_v5",
            "team=t4",
        ],
    )
    def test_another_kind(self, label: str) -> None:
        key, _, value = label.partition("=")
        assert refused(jobset({"nodeSelector": {key: value}})) == []

    def test_an_affinity_for_old_gpus_only(self) -> None:
        assert refused(jobset(affinity([kinds("Tesla-T4", "Tesla-V100-PCIE-16GB")])))
        assert refused(jobset(affinity([kinds("Tesla-T4")], [kinds("Tesla-P100")])))
        assert refused(jobset(affinity([kinds("Tesla-T4", "NVIDIA-L4")]))) == []
        assert refused(jobset(affinity([kinds("Tesla-T4")], [kinds("NVIDIA-L4")]))) == []
        assert refused(jobset(affinity([kinds("Tesla-T4", operator="NotIn")]))) == []

    def test_flavors_of_the_queue(self) -> None:
        def queues(*values: str) -> Queues:
            flavors = [
                {
                    "kind": "ResourceFlavor",
                    "metadata": {"name": value},
                    "spec": {"nodeLabels": {"nvidia.com/gpu.product": value}},
                }
                for value in values
            ]
            group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": value} for value in values]}
            cpus = {"coveredResources": ["cpu"], "flavors": [{"name": "cpus"}]}
            behind = {"kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": {"resourceGroups": [cpus, group]}}
            local = {
                "kind": "LocalQueue", "metadata": {"name": "team", "namespace": "ml"}, "spec": {"clusterQueue": "all"},
            }  # fmt: skip
            return Queues((*flavors, behind, local))

        assert "Tesla-T4" in refused(jobset({}, queue="team"), queues("Tesla-T4", "Tesla-V100"))[0]
        assert refused(jobset({}, queue="team"), queues("Tesla-T4", "NVIDIA-L4")) == []
        assert refused(jobset({}, queue="other"), queues("Tesla-T4")) == []
        assert refused(jobset({}, limits={}, queue="team"), queues("Tesla-T4")) == []

    def test_only_what_is_asked_for(self) -> None:
        old = jobset({"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}})
        assert refused(old, config={"bf16": False, "fp16": True}) == [] == refused(old, config=["bf16"])
        assert [each.partition(":")[0] for each in refused(old, config={"tf32": True, "bf16": True})] == [
            'trainer.config["bf16"]',
            'trainer.config["tf32"]',
        ]

    def test_in_the_job(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        cuda = types.SimpleNamespace(
            is_available=lambda: True,
            is_bf16_supported=lambda including_emulation: False,
            get_device_name=lambda: "Tesla T4",
        )
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
        with pytest.raises(SystemExit, match=r"pulumi-trainer: bf16 is True, and Tesla T4 has no bf16: .* Hint: "):
            run_tool.device({"bf16": True})
        assert "Tesla T4" in json.loads((tmp_path / "error.json").read_text())["message"]["message"]
        assert run_tool.device({"fp16": True}) == {"bf16": False}, "TRL's default is bf16"
        assert importlib.import_module("torch").cuda is cuda


def test_a_model_that_is_given_twice_is_looked_for_nowhere(tiny: Path) -> None:
    both = trl("sft", model_name_or_path=str(tiny / "model"))
    assert not [each for each in found(both, model=tiny / "model") if "initializer.model" in each]
    below = trl("sft", model_name_or_path="/workspace/model/absent")
    assert f"{tiny}/model/absent is not there" in found(below, model=tiny / "model")[0]
