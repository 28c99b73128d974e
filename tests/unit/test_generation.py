"""The generation server of a job: what is wrong with one, its replicated job, gang and quota, and what its program answers."""

from __future__ import annotations

import asyncio
import copy
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
import requests
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.plan import runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.tool_job import nodes_have_gpus
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.scripts import run_generation
from pulumi_trainer.provider.targets.generated_secrets import generate_values, keys_to_generate
from pulumi_trainer.provider.targets.local.target import LocalTarget
from pulumi_trainer.provider.trainer import generated
from pulumi_trainer.runtimes import BUILT_IN

from tests.unit.local_support import home, local, log, python, run, step
from tests.unit.local_support import jobset as local_jobset

__all__ = ["home", "local"]

MODEL = {"model_name_or_path": "org/model", "dataset_name": "org/data"}
GPU = {"gpu": 4}


def score(completions: Any, **columns: Any) -> list[float]:
    return [float(len(each)) for each in completions]


def grpo(server: Any = None, config: Any = None, **given: Any) -> trainer.TRLTrainer:
    given = {"method": "grpo", "reward": score, **given}
    return trainer.TRLTrainer(config={**MODEL, **(config or {})}, generation=server, **given)


def served(resources: Any = None, nodes: int = 2, **server: Any) -> trainer.TRLTrainer:
    made = trainer.GenerationServer(resources_per_node=resources, **server)
    return grpo(made, num_nodes=nodes, resources_per_node=resources)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plans a TrainJob; `change` changes the runtime's document."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(made: Any, change: Any = None, mode: Any = "jobset", **given: Any) -> Plan:
        document = copy.deepcopy(BUILT_IN.load("trl-distributed"))
        if change is not None:
            change(document["spec"])
        for finder in ("_runtime_by_name", "from_catalogue"):
            monkeypatch.setattr(runtime_ref, finder, lambda *_: (copy.deepcopy(document), []))
        target = trainer.Kubernetes(context="none", mode=mode, namespace="team")
        args = {"runtime": "r", "target": target, "name": "job", "output": True, **given}

        async def planning() -> Plan:  # an argument that is an Output needs an event loop
            written = made() if callable(made) else made
            return await trainjob_plan.plan(TrainJobArgs("job", **{**args, "trainer": written}))

        return asyncio.run(planning())

    return plan


def problems(plan: Plan) -> list[str]:
    return [str(each) for each in plan.problems]


def jobset(plan: Plan) -> dict[str, Any]:
    assert problems(plan) == []
    return next(document for key, document in plan.made.items() if key.startswith("JobSet/"))


class TestProblems:
    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (
                grpo(trainer.GenerationServer(), method="sft", reward=None),
                "generation: generates completions for grpo and rloo, not for sft",
            ),
            (grpo({"image": "x"}), "generation: must be GenerationServer"),
            (
                grpo(trainer.GenerationServer(), {"use_vllm": True}),
                'config["use_vllm"]: cannot be combined with generation, which sets it',
            ),
            (
                grpo(trainer.GenerationServer(), {"vllm_server_base_url": "http://x"}),
                'config["vllm_server_base_url"]: cannot be combined with generation, which sets it',
            ),
            (
                grpo(trainer.GenerationServer(), {"vllm_max_model_length": 1024}),
                'config["vllm_max_model_length"]: applies to vLLM in the nodes',
            ),
            (
                grpo(trainer.GenerationServer(), {"vllm_structured_outputs_regex": "a*"}),
                'config["vllm_structured_outputs_regex"]: needs vLLM',
            ),
            (
                served(GPU, tensor_parallel_size=8),
                "generation.tensor_parallel_size: is 8, but the server requests 4 GPUs",
            ),
            (
                served(GPU, tensor_parallel_size=0),
                "generation.tensor_parallel_size: must be a whole number of at least 1",
            ),
            (served(GPU, config={"max-logprobs": 3}), 'generation.config["max-logprobs"]: is set by the job'),
            (
                served(GPU, config={"max_modl_len": 3}),
                'generation.config["max_modl_len"]: unknown option of vLLM 0.30.0. Hint: did you mean max_model_len?',
            ),
            (served(None, config={"x-y-z": 3}), "unknown option of vLLM 0.30.0. Hint: `vllm serve --help` lists them"),
            (served(GPU, config={"tensor_parallel_size": 3}), "give tensor_parallel_size= beside config"),
            (served(GPU, config={"--x": 3}), 'generation.config["--x"]: not a valid name of a vLLM option'),
            (served(None, config=["x"]), "generation.config: must be a mapping"),
            (served(None, env={"A": None}), 'generation.env["A"]: must be a string, not None'),
            (served({"gpus": {}}), "generation.resources_per_node"),
            (served(None, num_nodes=2), "generation.num_nodes: unknown field. Hint: use resources_per_node="),
            (
                grpo(config={"use_vllm": True, "vllm_mode": "server"}, packages_to_install=["vllm"]),
                'config["use_vllm"]: is True with vllm_mode="server", but the job has no server',
            ),
            (
                grpo(config={"use_vllm": True}, resources_per_node=GPU),
                'config["use_vllm"]: is True, but vLLM is not installed',
            ),
        ],
    )
    def test_what_cannot_work_is_refused(self, made: Any, expected: str) -> None:
        said = [str(each) for each in nested_problems(made)]
        assert any(expected in each for each in said), said

    @pytest.mark.parametrize(
        "made",
        [
            served(),
            served(GPU, tensor_parallel_size=2, config={"max_model_len": 4096}, env={"A": "1"}, image="own"),
            served(GPU, config={"async-scheduling": True, "no_enable_prefix_caching": True, "chat_template": "x"}),
            served(GPU, config={"of_another_release": 1}, image="own"),
            grpo(trainer.GenerationServer(), {"vllm_server_timeout": 60.0}, method="rloo"),
            grpo(config={"use_vllm": False}),
            grpo(config={"use_vllm": True}, resources_per_node=GPU, packages_to_install=["vllm"]),
            grpo(config={"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://x"}, image="own"),
        ],
    )
    def test_what_works_is_not(self, made: Any) -> None:
        assert [str(each) for each in [*nested_problems(made), *made.argument_problems(made.arguments())]] == []

    @pytest.mark.parametrize(
        ("made", "without", "with_gpus"),
        [
            (grpo(trainer.GenerationServer()), "", "generation.resources_per_node: requests no GPU, but the nodes do"),
            (
                grpo(trainer.GenerationServer(resources_per_node=GPU)),
                "generation.resources_per_node: requests GPUs, but the nodes do not",
                "",
            ),
            (
                grpo(config={"use_vllm": True}, packages_to_install=["vllm"]),
                'config["use_vllm"]: is True: vLLM would run in the nodes, which request no GPU',
                "",
            ),
            (
                trainer.TRLTrainer(
                    method="sft",
                    config=MODEL,
                    lora=trainer.LoraConfig(quantize_base=True),
                    packages_to_install=["bitsandbytes"],
                ),
                "lora.quantize_base: quantization of TRL needs a GPU, but the nodes request none",
                "",
            ),
        ],
    )
    def test_gpus_of_the_job_and_of_its_runtime_count(
        self, made: Any, without: str, with_gpus: str, planned: Any
    ) -> None:
        """A platform team may request them in the runtime, so that no job has to."""

        def add_gpus(spec: dict[str, Any]) -> None:
            pod = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 8}}

        written = copy.copy(made)
        written.num_nodes = 2
        asking = copy.copy(written)
        asking.resources_per_node = GPU
        for plan, expected in (
            (planned(written), without), (planned(written, add_gpus), with_gpus), (planned(asking), with_gpus),
        ):  # fmt: skip
            assert len(problems(plan)) == bool(expected), problems(plan)
            assert not expected or problems(plan)[0].startswith(f"trainer.{expected}")

    @pytest.mark.parametrize(
        ("resources", "gpus"), [({"limits": {"cpu": 4}}, False), ({"limits": Unknown("x")}, True), (Unknown("x"), True)]
    )
    def test_resources_that_are_not_known_may_be_gpus(self, resources: Any, gpus: bool) -> None:
        pod = {"containers": [{"name": "node", "resources": resources}]}
        job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
        assert nodes_have_gpus([{"spec": {"replicatedJobs": [job]}}]) is gpus

    def test_a_value_that_is_not_json(self, planned: Any) -> None:
        (said,) = problems(planned(served(GPU, config={"max_model_len": {1}})))
        assert said.startswith('trainer.generation.config["max_model_len"]'), said

    def test_trainer_s_controller_cannot_render_it(self, planned: Any) -> None:
        (said,) = problems(planned(served(), mode="trainer"))
        assert said.startswith("trainer.generation: requires mode jobset") and "neither add a replicated job" in said

    def test_a_runtime_with_a_replicated_job_of_this_name(self, planned: Any) -> None:
        def add(spec: dict[str, Any]) -> None:
            jobs = spec["template"]["spec"]["replicatedJobs"]
            jobs.append({**copy.deepcopy(jobs[0]), "name": "generation"})
            del jobs[1]["template"]["metadata"]

        (said,) = problems(planned(served(), add))
        assert "adds a replicated job generation, but the runtime has one too" in said


class TestJobSet:
    def test_the_pod_is_made_from_that_of_the_nodes(self, planned: Any) -> None:
        def change(spec: dict[str, Any]) -> None:
            pod = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            pod |= {"nodeSelector": {"gpu": "h100"}, "serviceAccountName": "team"}
            pod["containers"][0]["env"] = [{"name": "FROM", "value": "runtime"}]

        server = trainer.GenerationServer(env={"B": "server"}, image="own:1")
        made = grpo(server, num_nodes=2, env={"A": "nodes", "B": "nodes"})
        generation, node = jobs_of(jobset(planned(made, change)))
        assert generation.pod.spec["nodeSelector"] == node.pod.spec["nodeSelector"] == {"gpu": "h100"}
        assert generation.pod.spec["serviceAccountName"] == "team"
        (container,) = generation.pod.containers
        assert container.document["image"] == "own:1" and container.name == "generation"
        env = {each["name"]: each.get("value") for each in container.env}
        assert {"FROM": "runtime", "A": "nodes", "B": "server", "TRAINER_ROLE": "generation"}.items() <= env.items()
        assert not {"PET_NNODES", "TRAINER_OUTPUT_DIR", "TRAINER_GENERATION_URL"} & env.keys()
        (trains,) = node.pod.containers
        url = {each["name"]: each.get("value") for each in trains.env}["TRAINER_GENERATION_URL"]
        assert url == "http://job-generation-0-0.job:8000"

    def test_it_waits_for_what_the_nodes_wait_for(self, planned: Any) -> None:
        def change(spec: dict[str, Any]) -> None:
            jobs = spec["template"]["spec"]["replicatedJobs"]
            jobs.insert(0, {**copy.deepcopy(jobs[0]), "name": "prepare"})
            del jobs[0]["template"]["metadata"]
            jobs[1]["dependsOn"] = [{"name": "prepare", "status": "Complete"}]

        prepare, generation, node = jobset(planned(served(), change))["spec"]["replicatedJobs"]
        assert "dependsOn" not in prepare
        assert generation["dependsOn"] == node["dependsOn"] == [{"name": "prepare", "status": "Complete"}]

    def test_the_nodes_decide_when_it_is_complete_and_any_failure_restarts_all(self, planned: Any) -> None:
        spec = jobset(planned(served()))["spec"]
        assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["node"]}
        assert spec["failurePolicy"]["maxRestarts"] == 3
        rules = [rule["action"] for rule in spec["failurePolicy"]["rules"]]
        assert rules == ["FailJobSet", "RestartJobSetAndIgnoreMaxRestarts"], "what would fail again is not tried again"
        for job in spec["replicatedJobs"]:
            assert job["template"]["spec"]["backoffLimit"] == 0
            assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        policy = trainer.CheckpointPolicy(steps=5, max_restarts=7)
        assert jobset(planned(served(), checkpoint=policy))["spec"]["failurePolicy"]["maxRestarts"] == 7

    @pytest.mark.parametrize("policy", ["coscheduling", "volcano"])
    def test_one_gang_has_all_pods(self, planned: Any, policy: str) -> None:
        plan = planned(served(GPU, nodes=3), lambda spec: spec.update(podGroupPolicy={policy: {}}))
        (group,) = [o for key, o in plan.made.items() if o["kind"] == "PodGroup"]
        assert group["spec"]["minMember"] == 4
        assert group["spec"]["minResources"]["nvidia.com/gpu"] == "16"
        made = jobset(plan)["spec"]["replicatedJobs"]
        assert len(made) == 2 and not any("dependsOn" in job for job in made), "all Pods start at once"

    def test_quota_and_summary_count_both_roles(self, planned: Any) -> None:
        plan = planned(served(GPU, nodes=3), queue="team")
        sets = pod_sets(jobset(plan))
        assert [(each.name, each.count) for each in sets] == [("generation", 1), ("node", 3)]
        assert sum((each.requests() or {})["nvidia.com/gpu"] for each in sets) == 16
        assert (plan.job.summary["nodes"], plan.job.summary["gpus"]) == (3, 16)
        rows = {row["step"]: (row["pods"], row["resources"]) for row in plan.job.summary["containers"]}
        assert rows == {"generation": (1, "nvidia.com/gpu=4"), "node": (3, "nvidia.com/gpu=4")}

    def test_another_server_is_a_change_and_none_leaves_the_digest(self, planned: Any) -> None:
        plain, with_server, other = planned(grpo()), planned(served()), planned(served(None, env={"A": "1"}))
        assert "generation" not in json.dumps(plain.content, default=str)
        assert with_server.content != other.content
        assert with_server.job.runtime["digest"] == plain.job.runtime["digest"], "that of the runtime in the catalogue"

    def test_vllm_replaces_packages_that_it_does_not_work_with(self, planned: Any) -> None:
        for made, wanted in ((served(GPU), True), (served(), False)):
            plan = planned(made)
            (data,) = [o["data"] for key, o in plan.objects.items() if key.startswith("ConfigMap/")]
            launch = json.loads(data["launch.json"])
            assert (table("trl")["vllm"][0] in launch["install"]) is wanted
            names = [each.partition("==")[0] for each in launch["install"] if ";" not in each]
            assert len(names) == len(set(names))
            assert launch["roles"]["generation"]["entry"][0].endswith("run_generation.py")
            assert json.loads(data["func_args.json"])["generation"] == {"backend": "vllm" if wanted else "transformers"}


def test_the_bootstrap_starts_what_the_role_says(tmp_path: Path) -> None:
    bootstrap = code.source_of(code.BOOTSTRAP_FILE)
    (tmp_path / "bootstrap.py").write_text(bootstrap.read_text())
    (tmp_path / "run_program.py").write_text(bootstrap.with_name("run_program.py").read_text())
    (tmp_path / "other.py").write_text("print('serves')")
    (tmp_path / "main.py").write_text("print('trains')")
    roles = {"generation": {"launcher": [sys.executable], "entry": [str(tmp_path / "other.py")]}}
    (tmp_path / "launch.json").write_text(json.dumps({"install": [], "launcher": [sys.executable], "roles": roles}))
    for role, said in (("generation", "serves\n"), ("", "trains\n"), ("other", "trains\n")):
        argv = [sys.executable, str(tmp_path / "bootstrap.py")]
        done = subprocess.run(argv, env={"TRAINER_ROLE": role, "PATH": ""}, capture_output=True, text=True, check=False)
        assert done.stdout == said, done


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_model_len", 4096, ["--max_model_len", "4096"]),
        ("enforce_eager", True, ["--enforce_eager", "true"]),
        ("speculative-config", {"method": "x"}, ["--speculative_config", '{"method": "x"}']),
        ("enable_chunked_prefill", False, ["--no-enable-chunked-prefill"]),
        ("async_scheduling", True, ["--async-scheduling"]),
        ("max_num_seqs", 64, ["--max-num-seqs", "64"]),
    ],
)
def test_options_of_vllm_become_words(name: str, value: Any, words: list[str]) -> None:
    assert run_generation.option(name, value) == words


def test_the_server_gets_the_token_of_the_hub_by_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {
        "config": {"model_name_or_path": "org/gated", "hub_token": "hush"},
        "generation": {"backend": "vllm", "tensor_parallel_size": 1},
    }
    (tmp_path / "func_args.json").write_text(json.dumps(arguments))
    monkeypatch.setattr(run_generation.run_tool, "here", str(tmp_path))
    for name, value in (("HF_TOKEN", ""), ("TRAINER_GENERATION_HOST", "::1"), ("TRAINER_GENERATION_PORT", "8000")):
        monkeypatch.setenv(name, value)
    started: list[list[str]] = []

    def execv(_: str, argv: list[str]) -> None:
        started.append([*argv, os.environ["HF_TOKEN"]])
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(run_generation, "vllm_command", lambda given, model, options, host, port: [model, host])
    with pytest.raises(SystemExit):
        run_generation.serve()
    assert started == [["org/gated", "::1", "hush"]]


class TestSecrets:
    TOKEN = "hf_" + "abcdefghij0123456789abcd"

    @pytest.mark.parametrize(
        ("server", "where"),
        [
            ({"config": {"hf_token": TOKEN}}, "trainer.generation.config.hf_token"),
            ({"env": {"HF_TOKEN": TOKEN}}, "trainer.generation.env"),
        ],
    )
    def test_a_plain_one_is_refused(self, planned: Any, server: dict[str, Any], where: str) -> None:
        (said,) = problems(planned(served(GPU, **server)))
        assert said.startswith(where) and "is a plain-text secret" in said, said

    def test_one_in_a_reward_function_is_refused(self, planned: Any) -> None:
        def judge(completions: Any, **columns: Any) -> list[float]:
            key = "hf_abcdefghij0123456789abcd"
            return [float(len(key)) for _ in completions]

        (said,) = problems(planned(grpo(reward=judge)))
        assert said.startswith("trainer.reward: holds a plain-text secret") or "secret" in said, said

    def test_a_secret_option_of_the_server_would_be_shown(self, planned: Any) -> None:
        def made() -> Any:
            return served(GPU, config={"hf_token": pulumi.Output.secret("hush")})

        (said,) = problems(planned(made))
        assert said == (
            'trainer.generation.config["hf_token"]: is secret, but would be an argument of a command, which log and '
            "process list show. Hint: give it in env, such as HF_TOKEN or VLLM_API_KEY"
        )


def _answer(connection: socket.socket) -> bytes:
    """One answer of the server, which arrives in several pieces."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(1000)
    length = int(found.lower().partition(b"content-length:")[2].split()[0])
    while len(found.partition(b"\r\n\r\n")[2]) < length:
        found += connection.recv(1000)
    return found


class TestServer:
    """What the server without vLLM answers to wrong and to large requests. No model is loaded for these."""

    TOKEN = "0123456789abcdef" * 4

    @pytest.fixture
    def address(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        monkeypatch.setenv("TRAINER_GENERATION_TOKEN", self.TOKEN)
        generator = object.__new__(run_generation.Generator)
        generator.name, generator.vocabulary, generator.longest, generator.most = "org/model", 512, 64, 1000
        generator.update = lambda body: run_generation.need(False, f"{len(body)} bytes")
        generator.finish = lambda: 1 / 0
        server = run_generation.Server(("127.0.0.1", 0), generator)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        server.server_close()
        thread.join()

    def ask(
        self, address: str, path: str, body: bytes | None = None, given: str | None = f"Bearer {TOKEN}"
    ) -> tuple[int, Any]:
        asked = urllib.request.Request(f"{address}{path}", data=body)
        if given is not None:
            asked.add_header("Authorization", given)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def test_what_trl_asks_first(self, address: str) -> None:
        assert self.ask(address, "/health") == (200, {})
        assert self.ask(address, "/v1/models")[1]["data"][0]["id"] == "org/model"
        about = self.ask(address, "/server_info?config_format=json")[1]["vllm_config"]
        assert about["model_config"] == {"logprobs_mode": "processed_logprobs"} and about["weight_transfer_config"]
        assert self.ask(address, "/other")[0] == self.ask(address, "/v1/chat/completions", b"{}")[0] == 404
        assert self.ask(address, "/reset_prefix_cache", b"") == (200, {"success": True})

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (["x"], "must be a JSON object"),
            ({"prompt": [[1]], "stop": "x"}, "not supported: stop"),
            ({"prompt": []}, "prompt must be"),
            ({"prompt": "text"}, "prompt must be"),
            ({"prompt": [[]]}, "prompt must be"),
            ({"prompt": [[512]]}, "prompt must be"),
            ({"prompt": [[-1]]}, "prompt must be"),
            ({"prompt": [[True]]}, "prompt must be"),
            ({"prompt": [[1]], "n": 10**9}, "n must be a number from 1 to 1024"),
            ({"prompt": [[1]], "max_tokens": 1.5}, "max_tokens must be"),
            ({"prompt": [[1]], "max_tokens": 64}, "prompt and completion have 65 tokens, the model takes 64"),
            ({"prompt": [[1] * 40] * 4000, "n": 1000}, "more than 4194304 tokens"),
            ({"prompt": [[1]], "logprobs": 5}, "logprobs must be 0"),
            ({"prompt": [[1]], "temperature": float("nan")}, "temperature must be"),
            ({"prompt": [[1]], "top_p": "1"}, "top_p must be"),
        ],
    )
    def test_a_wrong_request(self, address: str, asked: Any, expected: str) -> None:
        status, answer = self.ask(address, "/v1/completions", json.dumps(asked).encode())
        assert status == 400 and expected in answer["error"], answer

    def test_what_is_not_json(self, address: str) -> None:
        for body in (b"\xff", b"{", b"[" * 100_000):
            assert self.ask(address, "/v1/completions", body)[0] == 400

    def test_a_body_has_a_limit_and_a_length(self, address: str) -> None:
        assert self.ask(address, "/update_weights", b"x" * 1000) == (400, {"error": "1000 bytes"})
        assert self.ask(address, "/update_weights", b"x" * 1001)[0] == 413
        host, port = address.removeprefix("http://").split(":")
        for length in (b"-1", b"1e3", "\u0663".encode(), b"9" * 5000):
            with socket.create_connection((host, int(port)), timeout=30) as raw:
                head = f"POST /update_weights HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.TOKEN}\r\nContent-Length: "
                raw.sendall(head.encode() + length + b"\r\n\r\n")
                assert b" 413 " in raw.recv(100)

    def test_its_own_fault_is_no_traceback_for_others(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.ask(address, "/finish_weight_update", b"{}") == (500, {"error": "see the log of the server"})
        assert "ZeroDivisionError" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "given",
        [None, "", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0", "Bearer \xe4\xff"],
    )
    def test_nobody_is_answered_without_the_token_of_the_job(self, address: str, given: str | None) -> None:
        assert self.ask(address, "/health", given=given) == (200, {}), "TRL asks it without credentials"
        for path, body in (
            ("/v1/models", None),
            ("/server_info", None),
            ("/other", None),
            ("/v1/completions", b"{}"),
            ("/update_weights", b"x" * 900),
            ("/update_weights", b"x" * 2000),
            ("//health/../update_weights", b"x"),
            ("/update_weights?/health", b"x"),
        ):
            answer = self.ask(address, path, body, given=given)
            assert answer == (401, {"error": "the token of the job is missing or wrong"}), path
        assert self.ask(address, "/health", b"", given=given)[0] == 404

    def test_connections_of_strangers_do_not_keep_the_nodes_out(self, address: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        place = (host, int(port))
        with socket.create_connection(place, timeout=30) as nodes:
            request = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.TOKEN}\r\n\r\n".encode()
            nodes.sendall(request)
            assert b" 200 " in _answer(nodes)
            idle = [socket.create_connection(place, timeout=30) for _ in range(run_generation.STRANGERS + 1)]
            assert idle[0].recv(1) == b"", "the oldest is closed"
            assert self.ask(address, "/v1/models")[0] == 200
            nodes.sendall(request)
            assert b" 200 " in _answer(nodes), "a connection that has shown the token stays"
            for each in idle:
                each.close()


class TestToken:
    """The token of a job: in its Secret, in both roles, and in what each of the two servers wants."""

    @pytest.mark.parametrize("resources", [GPU, None])
    def test_both_roles_have_it_and_no_plan_shows_it(self, planned: Any, resources: Any) -> None:
        plan = planned(served(resources))
        (secret,) = [document for document in plan.objects.values() if document["kind"] == "Secret"]
        assert secret["metadata"] == {"name": "job-generation", "namespace": "team"}
        assert secret["data"] == {"token": generated.GENERATED_TOKEN} and secret["immutable"]
        wanted = {"secretKeyRef": {"name": "job-generation", "key": "token"}}
        for role in jobs_of(jobset(plan)):
            (container,) = role.pod.containers
            variables = {each["name"]: each.get("valueFrom") for each in container.env}
            assert variables["TRAINER_GENERATION_TOKEN"] == wanted
        assert "Secret/job-generation" in plan.copied_objects, "a worker cluster gets it as well"
        assert not [each for each in planned(grpo()).objects if each.startswith("Secret/")]

    def test_each_job_has_its_own(self) -> None:
        made = [generate_values({"token": generated.GENERATED_TOKEN})["token"] for _ in range(2)]
        assert made[0] != made[1] and all(re.fullmatch(b"[0-9a-f]{64}", each) for each in made)
        assert keys_to_generate({"token": generated.GENERATED_TOKEN, "other": "eA=="}) == ["token"]

    def test_on_this_machine_it_is_the_same_in_both_roles_and_on_no_disk(self, local: LocalTarget) -> None:
        reference = {"secretKeyRef": {"name": "job-generation", "key": "token"}}
        env = {"env": [{"name": "TOKEN", "valueFrom": reference}]}
        digest = python("import hashlib, os; print(hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())")
        roles = [step(name, digest, container_fields=env) for name in ("generation", "node")]
        secret = {
            "kind": "Secret",
            "metadata": {"name": "job-generation"},
            "data": {"token": generated.GENERATED_TOKEN},
        }
        assert run(local, local_jobset(*roles), secret).phase == "Succeeded"
        said = {log(local, f"job-{name}-0-0") for name in ("generation", "node")}
        assert len(said) == 1 and re.fullmatch(r"[0-9a-f]{64}\n", said.pop())
        record = json.loads((local.root / "jobs/default/job/record.json").read_text())
        assert record["objects"]["Secret/job-generation"]["data"] == {"token": generated.GENERATED_TOKEN}

    def test_vllm_gets_it_by_its_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(
            sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(device_count=lambda: 2))
        )
        monkeypatch.setenv("TRAINER_GENERATION_TOKEN", "hush")
        argv = run_generation.vllm_command({"config": {"max_num_seqs": 8}}, "org/model", {}, "10.0.0.1", 8000)
        assert argv[argv.index("--middleware") + 1] == "run_generation.Guard" and "hush" not in " ".join(argv)

    @pytest.mark.parametrize(
        ("kind", "path", "given", "passes"),
        [
            ("http", "/update_weights", b"Bearer hush", True),
            ("http", "/update_weights", b"Bearer no", False),
            ("http", "/update_weights", None, False),
            ("http", "/v1/models", None, False),
            ("http", "/health", None, True),
            ("websocket", "/v1/realtime", None, False),
            ("websocket", "/v1/realtime", b"Bearer hush", True),
            ("lifespan", None, None, True),
        ],
    )
    def test_the_middleware_of_vllm(
        self, monkeypatch: pytest.MonkeyPatch, kind: str, path: str | None, given: bytes | None, passes: bool
    ) -> None:
        monkeypatch.setenv("TRAINER_GENERATION_TOKEN", "hush")
        sent: list[dict[str, Any]] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "passed"})

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": kind}
        if path is not None:
            scope |= {"path": path, "headers": [(b"host", b"x")]}
        if given is not None:
            scope["headers"].append((b"authorization", given))
        asyncio.run(run_generation.Guard(app)(scope, None, send))
        refused = {"http": ["http.response.start", "http.response.body"], "websocket": ["websocket.close"]}
        assert [each["type"] for each in sent] == (["passed"] if passes else refused[kind])
        if kind == "http" and not passes:
            assert sent[0]["status"] == 401

    def test_the_client_of_trl_sends_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Also where a `.netrc` has credentials for all hosts."""
        seen: list[str | None] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.headers.get("Authorization"))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        class Client:
            """Begins as the client of TRL does."""

            def __init__(self, base_url: str) -> None:
                self.session = requests.Session()
                self.base_url = base_url
                self.check_server(1.0)
                self.session.get(f"{base_url}/v1/models", timeout=30)

            def check_server(self, total_timeout: float = 0.0) -> None:
                requests.get(f"{self.base_url}/health", timeout=30)

        (tmp_path / "netrc").write_text("default login me password own\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        monkeypatch.setenv("TRAINER_GENERATION_TOKEN", "hush")
        for name in ("trl", "trl.generation", "trl.generation.vllm_client"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules["trl.generation.vllm_client"].VLLMClient = Client  # type: ignore[attr-defined]
        run_generation.use_token()
        with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            Client(f"http://127.0.0.1:{server.server_address[1]}")
            server.shutdown()
        assert seen[1] == "Bearer hush" and "hush" not in str(seen[0])
