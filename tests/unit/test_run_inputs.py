"""What identifies the inputs of a run: what a plan records, and what `runs` shows of two records."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any, cast

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.plan import mounts, trainjob_plan
from pulumi_trainer.plan.run_inputs import describe_inputs, describe_nodes
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.cli.runs import _lines
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.jobs.runs import Run, read_inputs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs
from pulumi_trainer.provider.trainer.catalog import git

MODEL = {"model_name_or_path": "org/model", "dataset_name": "org/data"}
LONG = {"lora_target_modules": [f"layers.{i}.self_attn.q_proj" for i in range(60)], "learning_rate": 1e-5}


def score(completions: Any, **columns: Any) -> list[float]:
    return [float(len(each)) for each in completions]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Returns the inputs of a run as a plan for a cluster records them. A trainer with Outputs is given as a function."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    monkeypatch.chdir(tmp_path)  # in no repository

    def plan(made: Any, runtime: str = "") -> dict[str, str]:
        async def planning() -> Any:
            one = made() if callable(made) else made
            named = runtime or table(one.tool)["runtime"]
            target = trainer.Kubernetes(context="none", namespace="ml")
            args = TrainJobArgs("job", runtime=named, target=target, output=True, trainer=one)
            return await trainjob_plan.plan(args)

        found = asyncio.run(planning())
        assert found.problems == []
        return dict(found.job.run_inputs)

    return plan


def grpo(reward: Any, **config: Any) -> trainer.TRLTrainer:
    return trainer.TRLTrainer(method="grpo", reward=reward, config={**MODEL, **config})


SAME = "  the same code, arguments, environment, packages, images, runtime, nodes, resources and data"


def shown(*inputs: dict[str, str]) -> list[str]:
    """Return what `runs` prints of the last of some runs."""
    runs = [Run("1", "Succeeded", inputs=each) for each in inputs]
    lines = _lines(cast(Any, type("Job", (), {"label": "job"})), runs)
    last = max(at for at, line in enumerate(lines) if line.startswith("job"))
    return lines[last + 1 :]


def test_a_reward_function_is_code(planned: Any) -> None:
    before = planned(grpo([score]))

    def changed() -> Any:
        def score(completions: Any, **columns: Any) -> list[float]:
            return [-float(len(each)) for each in completions]

        return score

    after = planned(grpo(changed()))
    assert re.fullmatch(r"trl grpo, score \w{12}", before["code"])
    assert {name for name in before if before[name] != after[name]} == {"code"}
    assert shown(before, after) == [f"  code  {before['code']} -> {after['code']}"]
    assert shown(before, before) == [SAME]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (trainer.TRLTrainer(method="sft", config=MODEL), "trl sft"),
        (trainer.TransformersTrainer(config=MODEL), "transformers language-modeling"),
        (
            trainer.LlamaFactoryTrainer(
                stage="sft", config={"model_name_or_path": "m", "dataset": "d", "template": "llama3"}
            ),
            "llamafactory sft",
        ),
        (
            trainer.TorchTuneTrainer(
                recipe="lora_finetune_distributed",
                base="llama3_2/1B_lora",
                config={"checkpointer.checkpoint_dir": "/m", "tokenizer.path": "/m/original/tokenizer.model"},
            ),
            "torchtune lora_finetune_distributed",
        ),
        (trainer.UnslothTrainer(config={"model_name": "org/model", "dataset_name": "org/data"}), "unsloth sft"),
    ],
)
def test_a_tool_is_named_with_its_method_and_its_packages(planned: Any, made: Any, code: str) -> None:
    made.packages_to_install = ["wandb==0.20"]
    made.resources_per_node = {"gpu": 1}
    found = planned(made)
    release = table(made.tool)["release"]
    assert found["code"] == code
    assert re.fullmatch(rf"{made.tool}@{release} \w{{12}} wandb==0.20", found["packages"])


def test_a_command_of_a_project_is_in_the_arguments(planned: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    command = ["torchrun", "train.py"]
    found = planned(trainer.CustomTrainer(source=str(tmp_path), command=command), runtime="torch-distributed")
    assert re.fullmatch(r"project \w{12}", found["code"])
    assert found["arguments"] == '["torchrun", "train.py"]'
    image = planned(trainer.CustomTrainer(command=command), runtime="torch-distributed")
    assert image["code"] == '["torchrun", "train.py"]' and "arguments" not in image


def test_runs_names_the_fields_that_have_changed(planned: Any) -> None:
    given = {"output_dir": "/workspace/output/of/this/run", "num_generations": 8, "max_completion_length": 256}
    given |= {"logging_steps": 10, "report_to": "none", "run_name": "x" * 200}
    before, after = planned(grpo(score, **given)), planned(grpo(score, **given, learning_rate=1e-5, beta=0.1))
    given["num_generations"] = 4
    last = planned(grpo(score, **given, learning_rate=2e-5))
    assert len(before["arguments"]) > 300
    assert shown(before, after) == ['  arguments  {"config": {}} -> {"config": {"beta": 0.1, "learning_rate": 1e-05}}']
    assert shown(before, after, last) == [
        '  arguments  {"config": {"beta": 0.1, "learning_rate": 1e-05, "num_generations": 8}}'
        ' -> {"config": {"learning_rate": 2e-05, "num_generations": 4}}'
    ]


def described(arguments: Any) -> str:
    return describe_inputs({"script": "x", "func_args": {}}, {}, arguments, {}, {}, {})["arguments"]


def test_arguments_that_are_too_long_begin_with_the_short_ones() -> None:
    long = described({"config": LONG, "method": "sft"})
    assert long.startswith('{"method": "sft", "config": {"learning_rate": 1e-05, "lora_target_modules": ["layers.0.')
    assert len(long) <= 1000 and re.search(r"\.\.\. \w{12}$", long)
    assert described({"b": 1, "a": "longer"}) == '{"a": "longer", "b": 1}'


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ('{"a": 1}', '{"a": 1.0}', '{"a": 1} -> {"a": 1.0}'),
        ('{"a": {"b": 1, "c": 2}}', '{"a": {"c": 3}}', '{"a": {"b": 1, "c": 2}} -> {"a": {"c": 3}}'),
        ('{"a": {"b": 1}}', '{"a": 1}', '{"a": {"b": 1}} -> {"a": 1}'),
        ('["a", "b"]', '["a"]', '["a", "b"] -> ["a"]'),
        ('{"a": 1', '{"a": 2}', '{"a": 1 -> {"a": 2}'),
        ("", '{"a": 2}', 'none -> {"a": 2}'),
        ("[" * 1000, "{}", f"{'[' * 1000} -> {{}}"),
    ],
)
def test_a_change_of_arguments(before: str, after: str, change: str) -> None:
    assert changed_inputs({"arguments": before}, {"arguments": after}) == {"arguments": change}


def test_a_text_that_was_cut_is_compared_by_its_digest() -> None:
    for arguments in ({"a": "x" * 400, "b": 1}, LONG):
        cut, now = f'{{"a": "xxx... {short_digest(arguments, 12)}', described(arguments)
        assert changed_inputs({"arguments": cut}, {"arguments": now}) == {}
        other = f"{cut[:-12]}{'0' * 12}"
        assert changed_inputs({"arguments": other}, {"arguments": now}) == {"arguments": f"{other} -> {now}"}


class TestNodesAndVariables:
    """What a program says of the nodes of its training."""

    def test_of_two_runs_that_differ_only_in_them(self, planned: Any) -> None:
        def trained(**more: Any) -> dict[str, str]:
            return cast(dict[str, str], planned(trainer.CustomTrainer(func=train, **more), runtime="plain"))

        before = trained(env={"SEED": "1", "LEVEL": "info"})
        assert [*read_inputs(before)] == ["code", "environment", "image", "runtime", "nodes"]
        assert before["nodes"] == "1" and before["environment"] == '{"LEVEL": "info", "SEED": "1"}'
        assert shown(before, before) == [SAME]
        assert shown(before, trained(env={"SEED": "2", "LEVEL": "info"}, num_nodes=4)) == [
            '  environment  {"SEED": "1"} -> {"SEED": "2"}',
            "  nodes        1 -> 4",
        ]
        assert shown(before, trained()) == ['  environment  {"LEVEL": "info", "SEED": "1"} -> none']
        wide = trained(num_proc_per_node=4, resources_per_node={"gpu": 4, "cpu": 8})
        assert shown(trained(), wide) == [
            "  processes  none -> 4",
            '  resources  none -> {"cpu": 8, "nvidia.com/gpu": 4}',
        ]
        limited = trained(num_proc_per_node=4, resources_per_node={"limits": {"nvidia.com/gpu": 4}})
        assert limited["resources"] == '{"limits": {"nvidia.com/gpu": 4}}'

    def test_secret_values_are_left_out(self, planned: Any) -> None:
        def described(env: Any) -> str:
            found = planned(lambda: trainer.CustomTrainer(func=train, env=env()), runtime="plain")
            assert "hidden" not in json.dumps(found)
            return cast(str, found["environment"])

        secret = pulumi.Output.secret
        mixed = described(lambda: {"SEED": "1", "HF_TOKEN": secret("hidden")})
        assert mixed == '{"HF_TOKEN": "secret", "SEED": "1"}'
        assert described(lambda: secret({"SEED": "hidden"})) == '{"SEED": "secret"}'
        references = [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
        assert json.loads(described(lambda: references)) == {each["name"]: each["valueFrom"] for each in references}

    def test_of_a_generation_server(self, planned: Any) -> None:
        def made() -> trainer.TRLTrainer:
            env = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_API_KEY": pulumi.Output.secret("hidden")}
            server = trainer.GenerationServer(env=env, resources_per_node={"cpu": 2})
            return trainer.TRLTrainer(method="grpo", reward=[score], config=MODEL, generation=server)

        assert json.loads(planned(made, runtime=table("trl")["runtime"])["generation"]) == {
            "environment": {"VLLM_API_KEY": "secret", "VLLM_LOGGING_LEVEL": "INFO"},
            "resources": {"cpu": 2},
        }

    def test_values_that_are_not_known_yet_are_left_out(self) -> None:
        env = [{"name": "A", "value": "1"}, {"name": "B", "value": Unknown("b")}]
        assert describe_nodes(Unknown("nodes"), {"env": env, "numProcPerNode": 2}, {}, "job") == {"processes": "2"}
        assert describe_nodes(2, {"env": Unknown("env")}, {}, "job") == {"nodes": "2"}


@pytest.mark.parametrize("policy", [None, "File", "FallbackToLogsOnError"])
@pytest.mark.parametrize("more", [{}, {"packages_to_install": ["numpy"]}], ids=["no packages", "packages"])
def test_nodes_report_what_the_plan_does_not_know(
    more: dict[str, Any], policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the message of a failed container is the end of its log, a report would replace it."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    container = {"name": "node", "image": "python:3.12", "terminationMessagePolicy": policy}
    monkeypatch.setattr(mounts, "containers_of", lambda *_: {"node": container})

    async def planning() -> Any:
        target = trainer.Kubernetes(context="none", namespace="ml")
        made = trainer.CustomTrainer(func=train, **more)
        return await trainjob_plan.plan(TrainJobArgs("job", runtime="plain", target=target, trainer=made))

    found = asyncio.run(planning())
    assert found.problems == []
    (code,) = [each["data"] for name, each in found.objects.items() if name.endswith("-code")]
    reports = bool(more) and policy != "FallbackToLogsOnError"
    assert ("report_inputs.py" in code) is ("report" in json.loads(code["launch.json"])) is reports


def train() -> None:
    print("trained")


def test_the_commit_of_a_project_is_not_a_change_from_a_folder() -> None:
    folder, at_tag, at_commit = "train.py of project 1a", " (git v1.2 0123456789ab)", " (git 0123456789ab)"
    for origin in (at_tag, at_commit):
        assert changed_inputs({"code": folder}, {"code": folder + origin}) == {}
        assert changed_inputs({"code": folder + origin}, {"code": folder}) == {}
        assert changed_inputs({"code": f"{folder}b"}, {"code": folder + origin}) == {
            "code": f"{folder}b -> {folder}{origin}"
        }
    assert changed_inputs({"code": folder + at_tag}, {"code": folder + at_commit})


def test_a_long_command_of_a_project_from_git_has_the_digest_of_the_same_folder() -> None:
    code = {"script": "", "entry": ["python", "x" * 2000], "source": "1a" * 32}
    found, before = (describe_inputs(code, {}, None, {}, {}, {}, revision) for revision in ("v1.2 0123456789ab", ""))
    assert len(found["code"]) <= 1000 and changed_inputs(before, found) == {}


def test_the_commit_of_a_project_and_whether_its_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = git.describe_commit.__wrapped__
    project, other = tmp_path / "repository" / "project", tmp_path / "repository" / "other.py"
    assert describe(tmp_path) == ""
    project.mkdir(parents=True)
    argv = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*argv, "init", "-q", ".."], check=True)
    assert describe(project) == "", "no commit"
    (project / "a.py").write_text("1")
    (project / "link").symlink_to("a.py")
    other.write_text("1")
    # what a filter of the repository would run: git status does
    subprocess.run([*argv, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat"], check=True)
    subprocess.run([*argv, "add", ".."], check=True)
    subprocess.run([*argv, "commit", "-qm", "first"], check=True)
    (project.parent / ".git" / "info" / "attributes").write_text("*.py filter=x\n")
    commit = subprocess.run([*argv, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:12]
    assert describe(project) == commit
    other.write_text("2")
    assert (describe(project), describe(project.parent)) == (commit, f"{commit} (with changes)")
    for name in ("a.py", "b.py"):
        (project / name).write_text("3")
        assert describe(project) == f"{commit} (with changes)", name
    (project / "b.py").unlink()
    (project / "a.py").unlink()
    assert describe(project) == f"{commit} (with changes)"
    (project / "a.py").write_text("1")
    monkeypatch.setattr(git, "MAX_OUTPUT", 0)
    assert describe(project) == f"{commit} (changes unknown)" and not (tmp_path / "ran").exists()
    (project / "a.py").write_text("4")
    subprocess.run([*argv, "status"], check=True, capture_output=True)
    assert (tmp_path / "ran").exists(), "the filter that a status would have run"
    assert changed_inputs({"commit": "a"}, {"commit": "b"}) == {"commit": "a -> b"}


def test_runs_shortens_digests_of_data() -> None:
    first, second = ({"dataset": f"s3://data/{name} {name * 64}", "model": "hf://org/m " + "c" * 40} for name in "ab")
    assert shown(first) == [f"  dataset  s3://data/a {'a' * 16}", f"  model    hf://org/m {'c' * 40}"]
    assert shown(first, second) == [f"  dataset  s3://data/a {'a' * 16} -> s3://data/b {'b' * 16}"]
