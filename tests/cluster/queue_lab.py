"""A project with Kueue's objects, whose names are those of one test: the cluster is shared."""

from __future__ import annotations

import os
import secrets
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import Project
from tools.cluster import build
from tools.cluster.cluster import say

from .jobs import jobset, pod_template

HEAD = "import pulumi\nimport pulumi_trainer as trainer\n"


class Lab(Project):
    """name: begins the names of all that the test makes."""

    prefix: str
    namespace: str
    root_client: Client

    def text(self, program: str, **values: Any) -> str:
        given = {"name": self.prefix, "namespace": self.namespace, "more": "", **values}
        return HEAD + textwrap.dedent(program).format(**given)

    def program(self, text: str, head: str = "") -> None:
        super().program(text, head)

    def objects(self, kind: str, version: str = NEWEST) -> dict[str, dict[str, Any]]:
        """Of the test, by name."""
        of = Kind(f"{GROUP}/{version}", kind, KINDS[kind], kind == NAMESPACED)
        found, _ = self.root_client.list(of)
        mine = (
            o
            for o in found
            if o["metadata"]["name"].startswith(self.prefix) or o["metadata"].get("namespace") == self.namespace
        )
        return {o["metadata"]["name"]: o for o in mine}

    def job(self, name: str, *, cpu: str = "1", queue: str = "") -> None:
        """A JobSet of one pod with a core, or more, in a LocalQueue; default: the one that is called like the test."""
        job = jobset(name)
        job["metadata"] |= {"namespace": self.namespace, "labels": {QUEUE: queue or self.prefix}}
        pod_template(job)["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        self.root_client.create(JOBSET, job)

    def running(self) -> set[str]:
        """JobSets of the test that have pods."""
        pods, _ = self.root_client.list(POD, self.namespace)
        return {p["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for p in pods}

    def count(self, version: str = NEWEST) -> dict[str, int]:
        """How many of each kind there are."""
        return {kind: count for kind in KINDS if (count := len(self.objects(kind, version)))}

    def up_of(self, text: str, *, ok: bool = True) -> str:
        """What an update to that program says."""
        self.program(text)
        return self.up(ok=ok).out


def with_plugin() -> str:
    """PATH with this environment's programs, and pulumi-kubernetes' plugin."""
    plugin = build.built([build.PLUGIN], say)[build.PLUGIN] / "bin"
    return os.pathsep.join([str(Path(sys.executable).parent), str(plugin), os.environ["PATH"]])


def lab_on(folder: Path, home: Path, kubeconfig: Path, namespace: str) -> Lab:
    """Its stack goes by that kubeconfig."""
    (folder / "state").mkdir(parents=True)
    made = Lab(folder, home)
    made.env = {"PATH": with_plugin()}
    made.prefix, made.namespace = f"q{secrets.token_hex(3)}", namespace
    made.root_client = open_client({"kubeconfig": str(kubeconfig)})
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": made.name, "runtime": "python", "main": "."}))
    assert made.run("stack", "init").code == 0
    made.config("trainer:kubeconfig", str(kubeconfig))
    made.config("trainer:namespace", namespace)
    return made
