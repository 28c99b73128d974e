"""A training whose completions a server in a Pod of its own generates: weights arrive there, a lost server restarts all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import Project, eventually

from .conftest import ROOT, SECONDS, run_with
from .methods import GENERATES, METHODS
from .test_methods import check_all, logged
from .test_resume import checkpoints, end_of

pytestmark = [pytest.mark.whole, pytest.mark.timeout(2 * SECONDS)]

KILLED = f"""job(
    "killed", "prompts",
    trainer.TRLTrainer(
        method="grpo", reward=letters, config={{**COMMON, {GENERATES}}}, generation=trainer.GenerationServer(), **NODES
    ),
    checkpoint=trainer.CheckpointPolicy(steps=5, grace=60), wait_for="running",
)"""


def test_a_server_generates_with_the_weights_of_the_nodes(train: Callable[..., Project], tiny: Path) -> None:
    projects: list[Project] = []

    def kept(*jobs: str) -> Project:
        projects.append(train(*jobs))
        return projects[-1]

    check_all([method for method in METHODS if method.served], kept, tiny)
    (project,) = projects
    logs = project.logs("trl-grpo-server-")
    updates = [int(each) for each in re.findall(r"got new weights, update (\d+)", logs)]
    assert updates == [*range(1, 21)], "once for each step"
    assert "generates with" in logs and "with transformers" in logs, logs[-3000:]
    difference = logged(logs, "sampling/sampling_logp_difference/max")
    assert len(difference) >= 20 and max(difference) < 1e-3, "the server's probabilities are those of the nodes"


COMMAND = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["TRAINER_ROLE"] = "generation"
import run_generation, torch
from trl.scripts import vllm_serve
torch.cuda.device_count = lambda: 8
asked = {"config": {"max_model_len": 4096, "enforce_eager": True, "async-scheduling": True, "max_num_seqs": 64}}
options = {"revision": "main", "trust_remote_code": True}
argv = run_generation.vllm_command(asked, "org/model", options, "10.0.0.1", 8000)
assert argv[:3] == [sys.executable, "-m", "trl.scripts.vllm_serve"]
known, others = vllm_serve.make_parser().parse_args_and_config(argv[3:], return_remaining_strings=True)
print("command", json.dumps(vllm_serve.build_command(known, others)))
"""


def test_trl_reads_the_command_line_of_vllm() -> None:
    said = run_with("trl", COMMAND, str(ROOT / "provider" / "pod" / "scripts"))
    words = json.loads(said.rpartition("command ")[2])
    assert words[4:9] == ["org/model", "--host", "10.0.0.1", "--port", "8000"]
    pairs = {**dict(zip(words[5::2], words[6::2], strict=False)), **dict(zip(words[6::2], words[7::2], strict=False))}
    assert (pairs["--tensor-parallel-size"], pairs["--max-model-len"], pairs["--revision"]) == ("8", "4096", "main")
    assert pairs["--max-num-seqs"] == "64" and pairs["--middleware"] == "run_generation.Guard"
    assert {"--enforce-eager", "--async-scheduling", "--trust-remote-code", "--weight-transfer-config"} <= {*words}


MERGED = """
import sys, threading, types
from contextlib import nullcontext
sys.path.insert(0, sys.argv[1])
import os
import peft, requests, run_generation, torch, transformers
os.environ["TRAINER_GENERATION_TOKEN"] = "of the job"
generator = run_generation.Generator(sys.argv[2], {}, 1)
server = run_generation.Server(("127.0.0.1", 0), generator)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert requests.post(f"http://127.0.0.1:{server.server_address[1]}/update_weights", data=b"x").status_code == 401
run_generation.use_token()
run_generation.use_http()
from trl.generation.vllm_generation import VLLMClient, VLLMGeneration
client = VLLMClient(base_url=f"http://127.0.0.1:{server.server_address[1]}")
base = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "o_proj"]))
for name, parameter in model.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(parameter, std=0.5)
nodes = types.SimpleNamespace(model=model, _dist=types.SimpleNamespace(gather_params=lambda _: nullcontext(), is_fsdp=False))
nodes._fix_param_name_to_vllm = types.MethodType(VLLMGeneration._fix_param_name_to_vllm, nodes)
client.update_named_params([], VLLMGeneration._iter_named_params(nodes))
prompts = [[5, 6, 7, 8], [9, 10]]
made = client.generate(prompts, n=2, max_tokens=6, temperature=0.7)
worst = 0.0
for at, (tokens, scores) in enumerate(zip(made["completion_ids"], made["logprobs"])):
    prompt = prompts[at // 2]
    with torch.no_grad():
        expected = (model(torch.tensor([prompt + tokens])).logits[0] / 0.7).log_softmax(-1)
    for place, (token, score) in enumerate(zip(tokens, scores)):
        worst = max(worst, abs(score[0] - float(expected[len(prompt) - 1 + place, token])))
print("worst", worst)
"""


def test_merged_adapters_arrive_and_probabilities_are_those_of_the_temperature(tiny: Path) -> None:
    said = run_with("trl", MERGED, str(ROOT / "provider" / "pod" / "scripts"), str(tiny / "model"))
    assert float(said.rpartition("worst ")[2]) < 1e-4, said


def test_a_killed_server_restarts_all_from_the_newest_checkpoint(train: Callable[..., Project]) -> None:
    project = train(KILLED)
    eventually(lambda: checkpoints(project, "killed"), SECONDS)
    (server,) = project.processes("run_generation.py")
    server.kill()
    status = eventually(lambda: end_of(project, "killed"), SECONDS)
    logs = project.logs("killed-")
    assert (status.phase, status.restarts) == ("Succeeded", 1), (status, logs[-3000:])
    starts = [int(step) for step in re.findall(r"world size 2, from step (\d+) to 20", logs)]
    assert starts[0] == 0 and starts[1] >= 5 and len(starts) == 2, starts
    assert logs.count("got new weights, update 1\n") == 2, "the new server has the weights of the checkpoint"
