"""How a program names its cluster, through the real engine: what is secret stays so, and no other cluster is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster
from tools.cluster.build import PLUGIN, built

from .queue_lab import with_plugin
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)


def program(target: str, more: str = "") -> str:
    return f"""
{more}
job = trainer.TrainJob(
    "train", runtime=simulated, suspend=True, trainer=trainer.Trainer(image="trainer:1", command=["train"]),
    target=trainer.Kubernetes({target}),
)
"""


def token_of(kubeconfig: Path) -> str:
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    return str(user["user"]["token"])


@pytest.fixture
def bare(lab: Lab, user_kubeconfig: Path) -> Lab:  # noqa: F811
    """Without a kubeconfig in its configuration, and without one of this machine."""
    assert lab.run("config", "rm", "trainer:kubeconfig").code == 0
    lab.env = {"KUBECONFIG": "/nosuch", "HOME": str(lab.folder)}
    return lab


def test_the_content_of_a_kubeconfig_is_secret_wherever_it_lies(bare: Lab, user_kubeconfig: Path) -> None:
    token = token_of(user_kubeconfig)
    bare.config("kubeconfig", user_kubeconfig.read_text(), "--secret")
    content = 'content=pulumi.Config().require_secret("kubeconfig")'
    bare.program(program(content), head())
    out = [bare.preview("--diff"), bare.up(), bare.up("--expect-no-changes"), bare.refresh(), bare.preview("--diff")]
    assert list(bare.jobs()) == ["train"]
    assert token not in bare.stack_text() and token not in "".join(map(str, out))
    (job,) = bare.resources()
    assert job["outputs"]["target"]["content"]["ciphertext"] and job["inputs"]["target"]["content"]["ciphertext"]
    # A path instead of it: nothing of the content may stay behind, least of all in clear.
    bare.program(program(f'kubeconfig="{user_kubeconfig}"'), head())
    bare.up()
    (job,) = bare.resources()
    assert job["outputs"]["target"]["kubeconfig"] == str(user_kubeconfig)
    assert "content" not in {**job["outputs"]["target"], **job["inputs"]["target"]}
    assert token not in bare.stack_text()
    bare.program(program(content), head())
    bare.up()
    assert token not in bare.stack_text()
    # Destroy does not run the program.
    bare.program("raise SystemExit('not run')", "")
    assert token not in str(bare.destroy())
    assert bare.jobs() == {}


def test_plain_text_is_refused_before_anything_is_asked(bare: Lab, user_kubeconfig: Path) -> None:
    token = token_of(user_kubeconfig)
    text = json.dumps(user_kubeconfig.read_text())
    for target in (f"content={text}", f"content=pulumi.Output.from_input({text})"):
        bare.program(program(target), head())
        result = bare.preview(ok=False)
        assert "content: is plain text, so the plan and the state would show its credentials" in result.out, result
        assert token not in result.out
    bare.program(program(f"kubeconfig={json.dumps(chr(10) + token)}"), head())
    result = bare.preview(ok=False)
    assert "kubeconfig: must be the path of a kubeconfig file, not its content" in result.out, result
    assert token not in result.out and "Traceback" not in result.out


def test_an_explicit_provider(bare: Lab, user_kubeconfig: Path, namespace: str) -> None:
    plugin = built([PLUGIN], print)[PLUGIN] / "bin"
    bare.env["PATH"] = os.pathsep.join([str(plugin), bare.environment["PATH"]])
    assert bare.run("config", "rm", "trainer:namespace").code == 0
    bare.config("kubeconfig", user_kubeconfig.read_text(), "--secret")
    more = f"""
import pulumi_kubernetes
given = pulumi_kubernetes.Provider(
    "given", kubeconfig=pulumi.Config().require_secret("kubeconfig"), context="test", namespace="{namespace}"
)
"""
    bare.program(program("provider=given", more), head())
    bare.preview()
    bare.up()
    assert list(bare.jobs()) == ["train"]
    assert token_of(user_kubeconfig) not in bare.stack_text()
    bare.up("--expect-no-changes")
    bare.destroy()
    assert bare.jobs() == {}


def test_nothing_is_made_in_or_taken_from_another_cluster(
    lab: Lab,  # noqa: F811
    user_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    lab.program(program(""), head())
    lab.up()
    elsewhere = Cluster.start(tmp_path / "elsewhere", components=("etcd", "apiserver"))
    try:
        lab.config("trainer:kubeconfig", str(elsewhere.kubeconfig))
        other = open_client({"kubeconfig": str(elsewhere.kubeconfig)})
        before = other.list(CONFIG_MAP)[0]
        # A further job of the stack, with a current context that leads elsewhere.
        second = program("").replace('"train"', '"second"', 1)
        lab.program(program("") + second, head())
        result = lab.up(ok=False)
        assert "is another cluster" in result.out and "than the recorded one" in result.out, result
        assert "does not exist" not in result.out and "has no JobSet" not in result.out, result
        assert "is another cluster" in lab.preview(ok=False).out
        lab.destroy()
        assert lab.jobs() == {}
        assert {o["metadata"]["uid"] for o in other.list(CONFIG_MAP)[0]} == {o["metadata"]["uid"] for o in before}
    finally:
        elsewhere.stop()


def test_credentials_that_were_replaced(lab: Lab, user_kubeconfig: Path, tmp_path: Path) -> None:  # noqa: F811
    """The program's kubeconfig is gone; the configuration has another one, and wins."""
    first = tmp_path / "first"
    first.write_text(user_kubeconfig.read_text())
    lab.program(program(f'kubeconfig="{first}"'), head())
    lab.up()
    content: dict[str, Any] = yaml.safe_load(first.read_text())
    content["users"][0]["user"] = {"token": "replaced"}
    first.write_text(yaml.safe_dump(content))
    lab.destroy()
    assert lab.jobs() == {}


def test_a_preview_of_queues_alone_warns_of_a_server_that_is_not_verified(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    content: dict[str, Any] = yaml.safe_load(user_kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    cluster.pop("certificate-authority-data", None)
    cluster.pop("certificate-authority", None)
    cluster["insecure-skip-tls-verify"] = True
    user_kubeconfig.write_text(yaml.safe_dump(content))
    lab.program('trainer.ResourceFlavor("gpus", node_labels={"kind": "gpu"})\n', "import pulumi_trainer as trainer\n")
    lab.env = {"PATH": with_plugin()}
    warning = "insecure-skip-tls-verify: the server's certificate is not verified"
    assert lab.preview().out.partition("Diagnostics:")[2].count(warning) == 1
    lab.program(program("") + program("").replace('"train"', '"second"', 1), head())
    shown = lab.preview().out.partition("Diagnostics:")[2]
    assert shown.partition("pulumi:pulumi:Stack")[2].partition("\n\n")[0].count(warning) == 1, shown
