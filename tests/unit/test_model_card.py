"""The model card of a tool's output: what the plan tells, what is kept of the tool's own card, and what is not shown."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi_trainer.plan.card_facts import card_facts
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.provider.pod.scripts import finish_tool, model_card

from tests.unit.test_fine_tuning import MODEL, code, planned, problems, sft

__all__ = ["planned"]

LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "use_dora": True, "target_modules": ["v_proj", "q_proj"]}


def facts_of(plan: Plan) -> dict[str, Any]:
    return dict(json.loads(code(plan)["card.json"]))


class TestFacts:
    def test_what_the_plan_knows(self, planned: Any) -> None:
        facts = facts_of(planned(sft(max_steps=10)))
        assert facts["rows"] == {
            "Tool": "TRL 1.16.0", "Method": "sft", "Base model": "org/model", "Dataset": "org/data",
            "Runtime": "trl-distributed@1.16.0", "Job": facts["rows"]["Job"], "Run": "1",
        }  # fmt: skip
        assert facts["fields"] == {**MODEL, "max_steps": 10} and facts["tags"] == ["trl", "sft"]

    def test_the_data_of_initializers_come_before_fields_and_the_run_is_that_of_the_job(self, planned: Any) -> None:
        made = sft()
        facts = card_facts(made, made.arguments(), {"model": "hf://org/base"}, {})
        assert (facts["model"], facts["rows"]["Base model"]) == ("hf://org/base", "hf://org/base")
        assert facts["dataset"] == "org/data" and facts_of(planned(made, run="2"))["rows"]["Run"] == "2"

    def test_nothing_secret_is_in_it(self, planned: Any) -> None:
        token = "hf_" + "x" * 30
        plan = planned(lambda: sft(hub_token=pulumi.Output.secret(token), model_init_kwargs={"a": [1]}, seed=3))
        assert problems(plan) == []
        (data,) = [o["data"] for name, o in plan.objects.items() if name.startswith("ConfigMap/")]
        assert "func_args.json" not in data, "all arguments are in the Secret"
        facts = json.loads(data["card.json"])
        assert facts["fields"] == {**MODEL, "model_init_kwargs": {"a": [1]}, "seed": 3} and token not in str(data)

    def test_it_is_no_part_of_the_digest(self, planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = planned(sft())
        monkeypatch.setattr("pulumi_trainer.plan.trainjob_plan.with_card_facts", lambda written, *_: written)
        assert planned(sft()).content == plan.content


FACTS: dict[str, Any] = {
    "title": "TRL", "package": "trl", "tags": ["trl", "sft"], "model": "hf://org/base@main", "dataset": "file:///data",
    "fields": {"learning_rate": 0.1, "note": "a | b\n```"},
    "rows": {"Tool": "TRL 1", "Note": "a | b\nc", "Job": "job", "None": "", "Run": "1"},
}  # fmt: skip


def read(folder: Path) -> tuple[dict[str, Any], str]:
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


class TestText:
    def test_a_card_of_its_own(self, tmp_path: Path) -> None:
        model_card.write(str(tmp_path), FACTS, "peft")
        front, text = read(tmp_path)
        assert front == {"base_model": "org/base", "library_name": "peft", "tags": ["trl", "sft"]}
        assert (
            text.startswith("\n# job\n\n")
            and "| Tool | TRL 1 |\n| Note | a \\| b c |\n| Job | job |\n| Run | 1 |\n\n" in text
        )
        assert json.loads(text.partition("```json\n")[2].partition("\n```\n")[0]) == FACTS["fields"]

    def test_the_card_of_the_tool_stays_above(self, tmp_path: Path) -> None:
        front = "base_model: /home/me/model\nlicense: mit\ntags:\n- base_model:adapter:/home/me/model\n- peft\n"
        (tmp_path / "README.md").write_text(f"---\n{front}---\n\n# Theirs\n\nText.")
        for _ in range(2):
            model_card.write(str(tmp_path), {**FACTS, "model": "/home/me/model", "dataset": "org/data"}, "peft")
        data, text = read(tmp_path)
        assert data == {
            "license": "mit", "library_name": "peft", "tags": ["peft", "trl", "sft"], "datasets": ["org/data"],
        }  # fmt: skip
        assert (
            text.startswith("\n# Theirs\n\nText.\n\n<!-- pulumi-trainer: begin -->") and text.count("Training job") == 1
        )
        assert [path.name for path in tmp_path.iterdir()] == ["README.md"]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("org/model", "org/model"), ("hf://org/model", "org/model"), ("hf://org/model@v1", "org/model"),
            ("/workspace/model", ""), ("./org/model", ""), ("s3://bucket/model", ""), ("a/b/c", ""), (None, ""), (3, ""),
        ],
    )  # fmt: skip
    def test_names_of_the_hub(self, value: Any, expected: str) -> None:
        assert model_card.hub_name(value) == expected

    def test_lora(self) -> None:
        assert model_card.lora_text(LORA) == "DoRA, rank 4, alpha 8, dropout 0.0, on q_proj, v_proj"
        assert model_card.lora_text({"r": 1, "target_modules": "all-linear"}).endswith("on all-linear")


class TestInTheJob:
    @pytest.fixture
    def job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "card.json").write_text(json.dumps({**FACTS, "package": "pytest"}))
        (tmp_path / "output").mkdir()
        monkeypatch.setattr(finish_tool, "here", str(tmp_path))
        monkeypatch.syspath_prepend(str(Path(model_card.__file__).parent))
        for name, value in {
            "TRAINER_OUTPUT_DIR": f"{tmp_path}/output",
            "GROUP_WORLD_SIZE": "2",
            "WORLD_SIZE": "4",
        }.items():
            monkeypatch.setenv(name, value)
        return tmp_path

    def ends(self) -> None:
        with finish_tool.result({}, {"model_name_or_path": "base", "output_dir": ""}):
            weights = Path(os.environ["TRAINER_OUTPUT_DIR"], "model.safetensors")
            weights.write_text(secrets.token_hex())

    def test_a_training_that_writes_no_model_fails(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("TRAINER_FINAL_FILE", str(job / "final"))
        self.ends()
        for name in ("training_args.bin", "config.json"):
            with (
                pytest.raises(SystemExit, match=f"it has written no model to {job}/output. Hint: "),
                finish_tool.result({}, {"model_name_or_path": "base", "output_dir": ""}),
            ):
                (job / "output" / name).touch()
        assert (job / "final").exists(), "it is not tried again"

    def test_rank_0_writes_it_when_the_tool_has_ended(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "1")
        self.ends()
        assert not (job / "output" / "README.md").exists()
        monkeypatch.setenv("RANK", "0")
        (job / "output" / "adapter_config.json").write_text(json.dumps(LORA))
        self.ends()
        front, text = read(job / "output")
        assert front["library_name"] == "peft" and front["tags"] == ["trl", "sft", "lora"]
        assert "| Nodes | 2, with 4 processes in all |\n| LoRA | DoRA, rank 4" in text
        assert f"| Tool | TRL {pytest.__version__} |" in text, "the release that is installed"
        for resumed, row in (
            (0, "1 to 40"),
            (20, "21 to 40"),
            (40, "none: the weights are those of an earlier run, step 40"),
        ):
            shown = finish_tool.training._Shown(resumed=resumed, latest=(40, 40, {}))
            monkeypatch.setattr(finish_tool.training, "_shown", shown)
            self.ends()
            assert f"| Steps | {row} |\n" in read(job / "output")[1]
        for key, row in (("1", "t4kz1f"), ("seed 2", 't4kz1f (run="seed 2")')):
            facts = {**FACTS, "package": "pytest", "rows": {**FACTS["rows"], "Run": key}}
            (job / "card.json").write_text(json.dumps(facts))
            monkeypatch.setenv("TRAINER_RUN_ID", "t4kz1f")
            self.ends()
            assert f"| Run | {row} |\n" in read(job / "output")[1]

    def test_a_card_that_cannot_be_written_does_not_fail_the_job(
        self, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("RANK", "0")
        (job / "output" / "README.md").mkdir()
        self.ends()
        assert "README.md could not be written: " in capsys.readouterr().out
