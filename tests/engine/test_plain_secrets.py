"""Secrets that a program holds in clear are problems of its plan, wherever they stand, and the plan never shows them."""

from __future__ import annotations

import re

import pytest

from .conftest import Project

PROGRAM = """
CANARY = "canary" + "1234567890" * 3
TOKEN = "hf_" + CANARY

trainer.ClusterTrainingRuntime("leaky", ml_policy=trainer.PlainPolicy(num_nodes=1), template=trainer.JobSetTemplate(
    replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec={"containers": [
        {"name": "node", "image": "x", "env": [{"name": "RUNTIME_KEY_API_KEY", "value": CANARY}]}
    ]})]))

def work(conf=None):
    pass

trainer.TrainJob("env", runtime=plain, trainer=trainer.CustomTrainer(
    func=work, env={"GITHUB_TOKEN": CANARY, "DB_PASS": CANARY, "KAGGLE_KEY": CANARY, "MAX_TOKENS": "4096"},
    func_args={"conf": {"token": CANARY}, "auth": ["alice", CANARY], "dsn": "https://x/y?api_key=" + CANARY},
    packages_to_install=["git+https://me:" + CANARY + "@host/x.git"], pip_index_urls=["https://me:" + CANARY + "@index/simple"],
), annotations={"note": TOKEN, "vault.corp/token": CANARY}, labels={"who": "ghp_" + CANARY}, run="ghp_" + CANARY)
trainer.ClusterTrainingRuntime(
    "marked", ml_policy=trainer.PlainPolicy(num_nodes=1), labels={"example.com/token": "canary1234567890"},
    annotations={"vault.corp/secret": CANARY}, template=trainer.JobSetTemplate(
        labels={"api-key": "canary1234567890"}, annotations={"note": TOKEN},
        replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec={"containers": [{"name": "node", "image": "x"}]})]))
trainer.WorkloadPriorityClass("high", value=1, annotations={"note": TOKEN}, labels={"example.com/token": "canary1234567890"})
trainer.CoschedulingPodGroup("gang", min_member=1, annotations={"vault.corp/password": CANARY})
trainer.TrainJob("lists", runtime=plain, trainer=trainer.CustomTrainer(
    func=work, func_args={"conf": {"passwords": [CANARY, CANARY], "pair": ["DB_PASSWORD", CANARY]}},
    env={"DB_PASSWORD_PROD": CANARY, "GITHUB_TOKEN_2": CANARY, "HF_PAT": CANARY, "MYSECRET": CANARY},
    pip_index_urls=["https://canary1234@index/simple"],
), labels={"api-token": "canary1234567890"})
trainer.DatasetInitializer("s3", storage_uri="s3://bucket/x", endpoint="https://me:" + CANARY + "@host")
trainer.TrainJob("args", runtime=plain, trainer=trainer.Trainer(
    image="x", command=["train", "--api-key=" + CANARY], args=["--token", CANARY, "--pad-token", "<pad>"],
), initializer=trainer.Initializer(
    dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://a/b", env={"MY_PASSWORD": CANARY}),
), runtime_patches=[trainer.RuntimePatch(manager="example.com/me", jobs=[trainer.JobPatch(
    name="node", pod=trainer.PodPatch(containers=[trainer.ContainerPatch(name="side", env={"API_KEY": CANARY})]),
)])])
"""
PLACES = [
    'trainer.env["GITHUB_TOKEN"]', 'trainer.env["DB_PASS"]', "trainer.func_args.conf.token",
    'trainer.env["KAGGLE_KEY"]', "trainer.func_args.auth[1]", "trainer.func_args.dsn", "annotations.vault.corp/token",
    "trainer.packages_to_install[0]",
    "trainer.pip_index_urls[0]", "annotations.note", "labels.who", "run", "endpoint", "trainer.command[1]", "trainer.args[1]",
    'trainer.env["DB_PASSWORD_PROD"]', 'trainer.env["GITHUB_TOKEN_2"]', 'trainer.env["HF_PAT"]', 'trainer.env["MYSECRET"]',
    "trainer.func_args.conf.passwords[0]", "trainer.func_args.conf.passwords[1]", "trainer.func_args.conf.pair[1]",
    "labels.api-token", "labels.example.com/token",
    "annotations.vault.corp/secret", "template.labels.api-key", "template.annotations.note", "annotations.vault.corp/password",
    'initializer.dataset.env["MY_PASSWORD"]', '["API_KEY"]', '["RUNTIME_KEY_API_KEY"]',
]  # fmt: skip


@pytest.mark.core
def test_every_place_is_told_and_no_value(project: Project) -> None:
    project.program(PROGRAM)
    result = project.preview("--diff", ok=False)
    for place in PLACES:
        assert f"{place}: is a plain-text secret" in result.out, f"{place} is not in\n{result.out}"
    twice = 3  # pip_index_urls[0], annotations.note and labels.example.com/token of two components
    assert result.out.count("is a plain-text secret") == len(PLACES) + twice
    assert "canary1234" not in result.out and "Traceback" not in result.out
    project.up(ok=False)
    assert "canary1234" not in project.stack_text()


WRONG = """
CANARY = "canary" + "1234567890" * 3

def work():
    pass

trainer.DatasetInitializer("keys", storage_uri=f"s3://AKIAX:{CANARY[:10]}/{CANARY}@bucket/x")
trainer.DatasetInitializer("share", storage_uri=f"file://me:{CANARY}@host/share")
trainer.DatasetInitializer("hub", storage_uri=f"hf://me:{CANARY}/x/y@z")
trainer.DatasetInitializer("none", storage_uri=f"me:{CANARY}@host/x")
trainer.TrainJob("scheme", runtime=plain, trainer=trainer.CustomTrainer(func=work), initializer=trainer.Initializer(
    dataset=trainer.HuggingFaceDatasetInitializer(storage_uri=f"https://me:{CANARY}@host/x", env={"MY_PASSWORD": [CANARY]})))
trainer.TrainJob("list", runtime=plain, trainer=trainer.CustomTrainer(func=work, env={"DB_PASSWORD": [CANARY]}))
trainer.TrainJob("mapping", runtime=plain, trainer=trainer.CustomTrainer(func=work, env={"DB_PASSWORD": {"value": CANARY}}))
trainer.TrainJob("number", runtime=plain, trainer=trainer.Trainer(
    image="x", command=["x"], env=[{"name": "DB_PASSWORD", "value": [CANARY]}]))
"""
TOLD = [
    "has credentials in it, or a bucket name that is not valid", "host/share: No such file or directory",
    "must start with hf://, not 'https://host/x'", 'initializer.dataset.env["MY_PASSWORD"]: must be a string, not list',
    'trainer.env["DB_PASSWORD"]: must be a string, not list', 'trainer.env["DB_PASSWORD"]: must be a string, not dict',
    "trainer.env[0].value: must be a string, not list",
]  # fmt: skip


def test_no_message_about_another_mistake_shows_a_value(project: Project) -> None:
    project.program(WRONG)
    result = project.preview("--diff", ok=False)
    assert [text for text in TOLD if text not in result.out] == [], result.out
    assert "canary1234" not in result.out and "Traceback" not in result.out


HUB = """
token = pulumi.Config().require_secret("token")
http = {"HF_ENDPOINT": "http://hub.example.com"}
trainer.DatasetInitializer("fetched", storage_uri="hf://a/b", access_token=token, env=http)
trainer.ModelInitializer("model", storage_uri="hf://a/b", secret_ref="hub", env=http)
inline = trainer.HuggingFaceDatasetInitializer(storage_uri="hf://a/b", access_token=token, env=http)
trainer.TrainJob("inline", runtime="torch-distributed", trainer=trainer.Trainer(command=["true"]),
                 initializer=trainer.Initializer(dataset=inline))
trainer.DatasetInitializer("public", storage_uri="hf://a/b", env=http)
trainer.DatasetInitializer("here", storage_uri="hf://a/b", access_token=token, env={"HF_ENDPOINT": "http://127.0.0.1:8000"})
"""


@pytest.mark.parametrize("target", ["local", "kubernetes"])
def test_a_token_of_a_hub_never_goes_over_http(project: Project, target: str) -> None:
    project.config("token", "hf_canary1234", "--secret")
    project.config("trainer:target", target)
    project.env["KUBECONFIG"] = str(project.folder / "none")
    project.program(HUB)
    result = project.preview(ok=False)
    why = 'env["HF_ENDPOINT"]: is an http:// address, so the token of Hugging Face would be sent unencrypted'
    places = {line.strip().partition(why)[0] for line in result.out.splitlines() if why in line}
    assert {re.sub(r" \(.*\)", "", place) for place in places} == {
        'DatasetInitializer("fetched").', 'ModelInitializer("model").', 'TrainJob("inline").initializer.dataset.',
    }, result.out  # fmt: skip
    assert "canary1234" not in result.out
