"""What other documents of a set say about a TrainJob: what the API server refuses, and what its Pods wait for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from documents_support import thing
from pulumi_trainer.provider.kubernetes.pod_security import standard_violations
from pulumi_trainer.provider.kubernetes.values.documents import parse
from pulumi_trainer.provider.trainer.offline import Cluster, Result, Verdicts, judge
from pulumi_trainer.provider.trainer.releases import DEFAULT
from warnings_support import ANCESTOR

Document = dict[str, Any]
MODES = pytest.mark.parametrize("mode", ["jobset", "trainer"])
API = "trainer.kubeflow.org/v1alpha1"
HARDENED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
PS = "pod-security.kubernetes.io"


def runtime(pod: Document | None = None, container: Document | None = None, **job_set: Any) -> Document:
    """A runtime with two nodes."""
    trains = {"name": "node", "image": "example.com/train:1", **(container or {})}
    given = dict(pod or {})
    metadata = given.pop("metadata", {})
    template: Document = {"spec": {"containers": [trains], **given}}
    if metadata:
        template["metadata"] = metadata
    step = {"name": "node", "template": {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": {"template": template}}}
    spec = {
        "mlPolicy": {"numNodes": job_set.pop("nodes", 2), "torch": {}},
        "template": {"spec": {"replicatedJobs": [*job_set.pop("before", []), step], **job_set}},
    }
    return thing("ClusterTrainingRuntime", version=API, metadata={"name": "team-torch"}, spec=spec)


def train_job(**spec: Any) -> Document:
    given = {"runtimeRef": {"name": "team-torch"}, "trainer": {"command": ["torchrun", "train.py"]}, **spec}
    return thing("TrainJob", version=API, metadata={"name": "llama", "namespace": "team"}, spec=given)


def of(kind: str, name: str, namespace: str = "team", version: str = "v1", **rest: Any) -> Document:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **rest.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def namespace(name: str = "team", annotations: Document | None = None, **labels: str) -> Document:
    return of("Namespace", name, "", metadata={"labels": labels, "annotations": annotations or {}})


def judged(*documents: Document, mode: Any = "jobset") -> Result:
    verdicts = Verdicts()
    for _ in judge(parse(yaml.safe_dump_all(documents), "set.yaml"), Cluster(mode, DEFAULT, explain=True), verdicts):
        pass
    assert verdicts.last is not None
    return verdicts.last


def refused(*documents: Document, mode: Any = "jobset") -> list[str]:
    """Why the API server refuses the Pods."""
    found = judged(*documents, mode=mode)
    assert found.stage in (None, "pods"), found
    return [problem.why for problem in found.errors]


def warned(*documents: Document, mode: Any = "jobset") -> list[str]:
    found = judged(*documents, mode=mode)
    assert found.admitted, found
    return [str(problem) for problem in found.found]


@MODES
def test_pod_security_of_the_namespace_refuses_pods_in_its_words(mode: Any) -> None:
    documents = runtime({"hostNetwork": True}), train_job()
    (why,) = refused(*documents, namespace(**{f"{PS}/enforce": "restricted"}), mode=mode)
    assert why == (
        'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true), allowPrivilegeEscalation != false'
        ' (container "node" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container'
        ' "node" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "node" must set'
        ' securityContext.runAsNonRoot=true), seccompProfile (pod or container "node" must set'
        ' securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    baseline = {f"{PS}/enforce": "baseline", f"{PS}/enforce-version": "v1.30"}
    assert refused(*documents, namespace(**baseline), mode=mode) == [
        'violates PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true)'
    ]
    for other in (namespace("other", **baseline), namespace(**{f"{PS}/warn": "restricted"}), namespace()):
        assert refused(*documents, other, mode=mode) == []
    hardened = runtime(container={"securityContext": HARDENED})
    assert refused(hardened, train_job(), namespace(**{f"{PS}/enforce": "restricted"}), mode=mode) == []


PLAIN = {"name": "a", "securityContext": HARDENED}


@pytest.mark.parametrize(
    ("level", "containers", "pod", "found"),
    [
        ("baseline", [{"name": "a"}], {"securityContext": {"runAsUser": 0}}, []),
        ("privileged", [{"name": "a", "securityContext": {"privileged": True}}], {"hostPID": True}, []),
        (
            "baseline",
            [
                {"name": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "IPC_LOCK", "KILL"]}}},
                {"name": "b", "ports": [{"hostPort": 80}, {"hostPort": 22}], "securityContext": {"privileged": True}},
            ],
            {"hostPID": True, "hostIPC": True, "volumes": [{"name": "v", "hostPath": {}}, {"name": "n", "nfs": {}}]},
            [
                'non-default capabilities (container "a" must not include "IPC_LOCK", "SYS_ADMIN" in'
                " securityContext.capabilities.add)",
                "host namespaces (hostPID=true, hostIPC=true)",
                'hostPath volumes (volume "v")',
                'hostPort (container "b" uses hostPorts 22, 80)',
                'privileged (container "b" must not set securityContext.privileged=true)',
            ],
        ),
        (
            "baseline",
            [{"name": "a", "securityContext": {"procMount": "Unmasked", "seccompProfile": {"type": "Unconfined"}}}],
            {
                "securityContext": {
                    "seLinuxOptions": {"type": "spc_t", "user": "u"},
                    "appArmorProfile": {"type": "Unconfined"},
                    "sysctls": [{"name": "net.core.somaxconn"}, {"name": "net.ipv4.tcp_rmem"}],
                }
            },
            [
                'forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")',
                'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
                'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set)',
                'seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
                "forbidden sysctls (net.core.somaxconn)",
            ],
        ),
        (
            "restricted",
            [PLAIN, {"name": "b", "securityContext": {**HARDENED, "capabilities": {"add": ["KILL"]}, "runAsUser": 0}}],
            {"volumes": [{"name": "v", "hostPath": {}}, {"name": "n", "nfs": {}}, {"name": "e", "emptyDir": {}}]},
            [
                'unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"]; container "b"'
                ' must not include "KILL" in securityContext.capabilities.add)',
                'restricted volume types (volumes "v", "n" use restricted volume types "hostPath", "nfs")',
                'runAsUser=0 (container "b" must not set runAsUser=0)',
            ],
        ),
        (
            "restricted",
            [{**PLAIN, "securityContext": {**HARDENED, "runAsNonRoot": False}}, PLAIN],
            {"securityContext": {"runAsNonRoot": False}},
            ['runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)'],
        ),
    ],
)
def test_the_levels_of_pod_security(level: str, containers: list[Document], pod: Document, found: list[str]) -> None:
    assert [*standard_violations({"containers": containers, **pod}, level)] == found
