"""Jobs of a gang scheduler, as a program's policy makes them, in either mode."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

from tests.cluster.gangs_support import step
from tests.cluster.jobs import until
from tests.cluster.programs import plan, sent

Document = dict[str, Any]
PRIORITY_CLASS = kinds.Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False)


@dataclass
class Gangs:
    """A namespace, whose jobs are sent under the least role."""

    root: Client
    client: Client
    namespace: str
    patch: pytest.MonkeyPatch
    mode: str = "jobset"

    @property
    def target(self) -> KubernetesTarget:
        return KubernetesTarget(self.client, cluster=lambda: "", namespace=self.namespace, mode=self.mode)

    def runtime(self, policy: Any, *steps: Document, nodes: int = 4, **metadata: Any) -> Document:
        """With a policy of the package; metadata: of the JobSet."""
        template = {"metadata": metadata, "spec": {"replicatedJobs": list(steps)}}
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"name": "r", "namespace": self.namespace},
            "spec": {
                "mlPolicy": {"numNodes": nodes, "torch": {}},
                **({"podGroupPolicy": given} if (given := policy.document()) else {}),
                "template": policy.template(template),
            },
        }

    def step(self, name: str = "node", gpus: int = 8, run: str = "1s", **pod: Any) -> Document:
        """A replicated job on the nodes of this test, whose scheduler the policy names. pod: more fields of its pods."""
        made = step(name, self.namespace, gpus=gpus, simulate={"run": run})
        spec = made["template"]["spec"]["template"]["spec"]
        del spec["schedulerName"]
        spec.update(pod)
        return made

    def priority(self, name: str, value: int) -> str:
        """A PriorityClass of this test; its name."""
        named = f"{self.namespace}-{name}"
        metadata = {"name": named}
        document = {
            "apiVersion": PRIORITY_CLASS.api_version,
            "kind": "PriorityClass",
            "metadata": metadata,
            "value": value,
        }
        self.root.create(PRIORITY_CLASS, document)
        return named

    def submit(self, runtime: Document, name: str = "job", **given: Any) -> None:
        made = plan(self.patch, runtime, self.namespace, self.mode, name=name, **given)
        if self.mode == "trainer":
            self.target.runtimes.apply(runtime, "owner", "stack")
        self.target.jobs.create(sent(made))

    def looks(self, name: str = "job") -> JobStatus:
        return diagnose(snapshot(self.client, self.namespace, name), time.time())

    def why(self, name: str = "job") -> str:
        seen, now = snapshot(self.client, self.namespace, name), time.time()
        return explain(seen, diagnose(seen, now), now)

    def becomes(self, phase: str, name: str = "job") -> None:
        until(lambda: self.looks(name).phase == phase)

    def says(self, pattern: str, name: str = "job") -> str:
        """The paragraph of `why`, once the pattern is there."""
        last = [""]

        def look() -> str:
            last[0] = self.why(name)
            return last[0] if re.search(pattern, last[0]) else ""

        try:
            return until(look)
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not in: {last[0]}") from None

    def with_node(self, name: str = "job", step: str = "node") -> list[str]:
        """Nodes of the pods of a step that have one."""
        labels = f"jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/replicatedjob-name={step}"
        pods, _ = self.root.list(kinds.POD, self.namespace, labels=labels)
        return sorted(p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName"))
