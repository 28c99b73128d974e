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


def test_the_hint_of_pod_security_offers_hardening_for_what_it_changes() -> None:
    restricted = namespace(**{f"{PS}/enforce": "restricted"})
    (root,) = judged(runtime(), train_job(), restricted).errors
    assert 'TrainJob(hardening="restricted")' in root.hint
    (host,) = judged(runtime({"hostNetwork": True}), train_job(), restricted).errors
    assert host.hint.startswith("leave out of the runtime: host namespaces (hostNetwork=true).")
    assert "hardening" not in host.hint


@MODES
def test_pod_security_of_the_namespace_warns_in_its_words(mode: Any) -> None:
    documents = runtime({"hostNetwork": True}), train_job()
    warns = {f"{PS}/warn": "baseline", f"{PS}/warn-version": "v1.30", f"{PS}/enforce": "privileged"}
    (warning,) = (each for each in warned(namespace(**warns), *documents, mode=mode) if "PodSecurity" in each)
    assert warning.startswith(
        "JobSet/llama.spec.replicatedJobs[0].template.spec.template.spec:"
        ' would violate PodSecurity "baseline:v1.30": host namespaces (hostNetwork=true). Hint: '
    )
    for silent in ({f"{PS}/audit": "restricted"}, {f"{PS}/warn": "privileged"}, {f"{PS}/warn-version": "v1.30"}):
        assert not any("PodSecurity" in each for each in warned(namespace(**silent), *documents, mode=mode))
    both = namespace(**{f"{PS}/warn": "restricted", f"{PS}/enforce": "baseline"})
    assert "would violate" not in "".join(refused(*documents, both, mode=mode)), "the server warns of no refused Pod"


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


SECRET = {"data": {"HF_TOKEN": "eA=="}}


def env(**source: Any) -> Document:
    return {"env": [{"name": "A", "valueFrom": source}]}


def volume(**source: Any) -> Document:
    return {"volumes": [{"name": "v", **source}]}


@MODES
@pytest.mark.parametrize(
    ("pod", "name", "other", "words"),
    [
        (
            {"serviceAccountName": "robot"},
            "robot",
            of("ServiceAccount", "other"),
            'error looking up service account team/robot: serviceaccount "robot" not found',
        ),
        (
            {"priorityClassName": "high"},
            "high",
            of("PriorityClass", "low", "", "scheduling.k8s.io/v1", value=1),
            "no PriorityClass with name high was found",
        ),
        (
            {"runtimeClassName": "gvisor"},
            "gvisor",
            of("RuntimeClass", "kata", "", "node.k8s.io/v1", handler="kata"),
            'pod rejected: RuntimeClass "gvisor" not found',
        ),
    ],
)
def test_missing_objects_without_which_no_pod_is_made(
    pod: Document, name: str, other: Document, words: str, mode: Any
) -> None:
    documents = runtime(pod), train_job()
    assert refused(*documents, other, mode=mode) == [words]
    there = {**other, "metadata": {**other["metadata"], "name": name}}
    assert refused(*documents, there, mode=mode) == []
    assert refused(*documents, mode=mode) == [], "no document is about such objects"


def test_service_accounts_count_in_their_namespace() -> None:
    documents = runtime({"serviceAccountName": "robot"}), train_job()
    assert refused(*documents, of("ServiceAccount", "robot", "other")) != []
    assert refused(*documents, of("ServiceAccount", "another", "other")) == [], "the set is about other namespaces"
    assert refused(*documents, of("ServiceAccount", "robot", "other"), of("ServiceAccount", "robot")) == []
    assert refused(*documents, namespace()) != []
    assert refused(runtime({"serviceAccountName": "default"}), train_job(), namespace()) == []
    assert refused(runtime({"priorityClassName": "system-node-critical"}), train_job(), namespace()) == []


@MODES
@pytest.mark.parametrize(
    ("code", "pod", "container", "kind"),
    [
        ("PT166", {}, env(secretKeyRef={"name": "x", "key": "HF_TOKEN"}), "Secret"),
        ("PT166", {}, {"envFrom": [{"secretRef": {"name": "x"}}]}, "Secret"),
        ("PT166", volume(secret={"secretName": "x", "items": [{"key": "HF_TOKEN", "path": "t"}]}), {}, "Secret"),
        ("PT166", volume(projected={"sources": [{"secret": {"name": "x"}}]}), {}, "Secret"),
        ("PT167", {}, env(configMapKeyRef={"name": "x", "key": "HF_TOKEN"}), "ConfigMap"),
        ("PT167", volume(configMap={"name": "x"}), {}, "ConfigMap"),
        ("PT168", volume(persistentVolumeClaim={"claimName": "x"}), {}, "PersistentVolumeClaim"),
        ("PT169", {"imagePullSecrets": [{"name": "x"}]}, {}, "Secret"),
    ],
)
def test_missing_objects_that_pods_wait_for(
    code: str, pod: Document, container: Document, kind: str, mode: Any
) -> None:
    documents = runtime(pod, container), train_job()

    def told(*others: Document) -> list[str]:
        return [each.partition(": ")[0] for each in warned(*documents, *others, mode=mode) if f"{kind} x" in each]

    assert told(of(kind, "other")) == told(namespace()) == told(of(kind, "x", "other")) == [code]
    assert told() == told(of(kind, "another", "other")) == told(namespace("other")) == []
    there = {**SECRET, "type": "kubernetes.io/dockerconfigjson"} if code == "PT169" else SECRET
    assert told(of(kind, "x", **there)) == told(of(kind, "x"), namespace(), of(kind, "x", "other")) == []


def test_keys_that_are_missing() -> None:
    documents = runtime(container=env(secretKeyRef={"name": "x", "key": "HF_TOKEN"})), train_job()
    wrong = of("Secret", "x", stringData={"HF_TOKN": "t", "a": "b"})
    (found,) = warned(*documents, wrong)
    assert "Secret x has no key HF_TOKEN, but HF_TOKN, a: the Pods of node do not start" in found
    assert "did you mean HF_TOKN?" in found
    optional = runtime(container=env(secretKeyRef={"name": "x", "key": "HF_TOKEN", "optional": True}))
    assert warned(optional, train_job(), wrong) == []
    assert warned(*documents, of("Secret", "x"), namespace()) == [], "its keys are written later"


@pytest.mark.parametrize(
    "maker",
    [
        of("ExternalSecret", "e", version="external-secrets.io/v1", spec={"target": {"name": "x"}}),
        of("SealedSecret", "x", version="bitnami.com/v1alpha1", spec={"encryptedData": {"HF_TOKEN": "A"}}),
    ],
)
def test_secrets_that_a_controller_makes(maker: Document) -> None:
    documents = runtime(container=env(secretKeyRef={"name": "x", "key": "HF_TOKEN"})), train_job(), namespace()
    assert warned(*documents, maker) == []
    assert warned(*documents, {**maker, "metadata": {"name": "x", "namespace": "other"}, "spec": {}}) != []


def test_a_kubeflow_profile_is_a_namespace_with_a_quota_accounts_and_a_mesh() -> None:
    documents = runtime({"serviceAccountName": "default-editor"}), train_job()
    quota = {"resourceQuotaSpec": {"hard": {"cpu": "8"}}}
    profile = of("Profile", "team", "", version="kubeflow.org/v1", spec=quota)
    (found,) = refused(*documents, profile)
    assert "failed quota: kf-resource-quota: must specify cpu for: node" in found
    free = {**profile, "spec": {}}
    assert refused(*documents, free) == []
    (account,) = refused(runtime({"serviceAccountName": "robot"}), train_job(), free)
    assert 'serviceaccount "robot" not found' in account
    assert coded("PT307", *documents, free) != [] == coded("PT307", *documents)
    of_another = {**free, "apiVersion": "example.com/v1"}
    assert coded("PT307", *documents, of_another) == []


def test_what_the_job_and_every_namespace_have_is_not_missing() -> None:
    own = volume(configMap={"name": "kube-root-ca.crt"})
    assert warned(runtime(own), train_job(), namespace()) == []


def test_objects_of_a_controller_say_nothing_about_others() -> None:
    """An MPI job's own Secret is no reason to call the Secret of the next job missing."""
    cluster = Cluster("trainer", DEFAULT, explain=True)
    mpi = runtime(container=env(secretKeyRef={"name": "x", "key": "HF_TOKEN"}))
    launcher = {
        "name": "launcher",
        "template": {
            "metadata": {"labels": {ANCESTOR: "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}},
        },
    }
    mpi["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI"}}
    mpi["spec"]["template"]["spec"]["replicatedJobs"].insert(0, launcher)
    del mpi["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["metadata"]
    for document in (mpi, train_job(), {**train_job(), "metadata": {"name": "next", "namespace": "team"}}):
        result = cluster.apply(document)
    assert result is not None and result.admitted and "PT166" not in str(result.found)


def coded(code: str, *documents: Document, mode: Any = "jobset") -> list[str]:
    return [each for each in warned(*documents, mode=mode) if each.startswith(f"{code}: ")]


@MODES
@pytest.mark.parametrize(
    ("there", "pod", "expected"),
    [
        (namespace(**{"istio-injection": "enabled"}), {}, 'sidecar.istio.io/inject: "false"'),
        (namespace(**{"istio-injection": "enabled"}), {"labels": {"sidecar.istio.io/inject": "false"}}, ""),
        (namespace(**{"istio-injection": "enabled"}), {"annotations": {"sidecar.istio.io/inject": "false"}}, ""),
        (namespace(**{"istio-injection": "disabled"}), {"labels": {"sidecar.istio.io/inject": "true"}}, ""),
        (namespace(**{"istio.io/rev": "1-27"}), {}, "istio.io/rev: 1-27"),
        (namespace(**{"istio.io/rev": "1-27", "istio-injection": "disabled"}), {}, ""),
        (namespace(**{"istio.io/rev": "1-27"}), {"labels": {"sidecar.istio.io/inject": "false"}}, ""),
        (namespace(**{"istio.io/dataplane-mode": "ambient"}), {}, ""),
        (
            namespace(**{"istio-injection": "enabled"}),
            {"annotations": {"traffic.sidecar.istio.io/includeOutboundIPRanges": ""}},
            "",
        ),
        (namespace(annotations={"linkerd.io/inject": "enabled"}), {}, 'linkerd.io/inject: "disabled"'),
        (
            namespace(annotations={"linkerd.io/inject": "enabled"}),
            {"annotations": {"linkerd.io/inject": "disabled"}},
            "",
        ),
        (namespace(), {"annotations": {"linkerd.io/inject": "enabled"}}, "its Pods have linkerd.io/inject: enabled"),
        (namespace(**{"kuma.io/sidecar-injection": "enabled"}), {}, "Kuma adds a proxy"),
        (namespace("other", **{"istio-injection": "enabled"}), {}, ""),
    ],
)
def test_proxies_of_a_mesh(there: Document, pod: Document, expected: str, mode: Any) -> None:
    found = coded("PT307", runtime({"metadata": pod}), train_job(), there, mode=mode)
    assert len(found) == bool(expected) and all(expected in each for each in found), found


def test_a_proxy_beside_a_single_node_only_keeps_the_pod_running() -> None:
    (found,) = coded("PT307", runtime(nodes=1), train_job(), namespace(**{"istio-injection": "enabled"}))
    assert "keeps the Pods running" in found and "NCCL" not in found


def policy(name: str = "p", namespace: str = "team", pods: Document | None = None, **spec: Any) -> Document:
    return of("NetworkPolicy", name, namespace, "networking.k8s.io/v1", spec={"podSelector": pods or {}, **spec})


BOTH = ["Ingress", "Egress"]
DENY = policy("deny", policyTypes=BOTH)
JOB = {"podSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "llama"}}}
SYSTEM = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
DNS = {"to": [SYSTEM], "ports": [{"protocol": "UDP", "port": 53}]}
COMPONENT = policy(
    "own", pods=JOB["podSelector"], policyTypes=BOTH, ingress=[{"from": [JOB]}], egress=[{"to": [JOB]}, DNS]
)
ALL = policy("all", ingress=[{}], egress=[{}])
NO_PEERS = "no traffic between the Pods of node"
NO_DNS = "no traffic from the Pods of node to DNS"


@MODES
@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([DENY], [NO_PEERS, NO_DNS]),
        ([DENY, COMPONENT], []),
        ([DENY, ALL], []),
        ([policy("deny")], [f"{NO_PEERS} (Ingress)"]),
        ([policy("deny", policyTypes=["Egress"], egress=[DNS])], [f"{NO_PEERS} (Egress)"]),
        ([policy("deny", policyTypes=["Egress"], egress=[{"to": [{"podSelector": {}}]}])], [NO_DNS]),
        ([policy("deny", "other", policyTypes=BOTH)], []),
        ([policy("deny", pods={"matchLabels": {"app": "web"}}, policyTypes=BOTH)], []),
        ([policy("named", pods=JOB["podSelector"], policyTypes=["Ingress"])], [NO_PEERS]),
        (
            [policy("ports", ingress=[{"from": [JOB], "ports": [{"port": 29500}]}])],
            ["only at port 29500: NCCL and gloo"],
        ),
        ([policy("udp", ingress=[{"from": [JOB], "ports": [{"protocol": "UDP"}]}])], ["only at port"]),
        ([policy("range", ingress=[{"from": [JOB], "ports": [{"port": 1024, "endPort": 65535}]}])], []),
        ([policy("range", ingress=[{"from": [JOB], "ports": [{"port": 29500}]}, {"from": [JOB]}])], []),
        ([policy("web", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}])], [NO_PEERS]),
        ([policy("cidr", ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])], []),
        ([policy("unknown", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}]}])], []),
        ([policy("system", ingress=[{"from": [SYSTEM]}])], [NO_PEERS]),
        (
            [
                policy("unknown", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"t": "a"}}}]}]),
                namespace(t="b"),
            ],
            [NO_PEERS],
        ),
        ([{**DENY, "apiVersion": "projectcalico.org/v3"}], []),
    ],
)
def test_network_policies(policies: list[Document], expected: list[str], mode: Any) -> None:
    found = coded("PT308", runtime(), train_job(), *policies, mode=mode)
    assert len(found) == len(expected), found
    assert all(words in each for words, each in zip(expected, found, strict=True)), found


def test_resolvers_ask_by_udp_first() -> None:
    by_tcp = {"to": [SYSTEM], "ports": [{"protocol": "TCP", "port": 53}]}
    mesh = {"to": [JOB]}
    for dns, warned in ((by_tcp, True), (DNS, False)):
        said = coded("PT308", runtime(), train_job(), policy("out", egress=[dns, mesh]))
        assert any("to DNS" in each for each in said) == warned, said


def test_network_policies_do_not_concern_every_job() -> None:
    assert coded("PT308", runtime(nodes=1), train_job(), DENY) == []
    assert coded("PT308", runtime({"hostNetwork": True}), train_job(), DENY) == []


NFS = {"server": "s", "path": "/"}


def test_network_policies_and_data_from_outside() -> None:
    mount = {"name": "initializer", "mountPath": "/data"}
    fetching = {"name": "dataset-initializer", "image": "i", "volumeMounts": [mount]}
    fetches = {
        "name": "dataset-initializer",
        "template": {
            "metadata": {"labels": {ANCESTOR: "dataset-initializer"}},
            "spec": {
                "template": {"spec": {"containers": [fetching], "volumes": [{"name": "initializer", "nfs": NFS}]}}
            },
        },
    }
    given = runtime(nodes=1, before=[fetches])
    job = train_job(initializer={"dataset": {"storageUri": "hf://a/b"}})
    assert "the Pods of dataset-initializer to DNS" in coded("PT308", given, job, DENY)[0]
    (found,) = coded("PT308", given, job, COMPONENT)
    assert "out of the namespace, but they read hf://" in found and "Egress(cidr=...)" in found
    out = policy("out", policyTypes=["Egress"], egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}])
    assert coded("PT308", given, job, COMPONENT, out) == []
    own = {"name": "AWS_ENDPOINT_URL", "value": "http://minio:9000"}
    inside = train_job(initializer={"dataset": {"storageUri": "s3://a/b", "env": [own]}})
    assert coded("PT308", given, inside, COMPONENT) == []


@MODES
@pytest.mark.parametrize(
    ("container", "network", "nodes", "warns"),
    [
        ({"readinessProbe": {"exec": {"command": ["ready"]}}}, {"publishNotReadyAddresses": False}, 2, True),
        ({"startupProbe": {"exec": {"command": ["ready"]}}}, {"publishNotReadyAddresses": False}, 2, True),
        ({"livenessProbe": {"exec": {"command": ["ready"]}}}, {"publishNotReadyAddresses": False}, 2, False),
        ({"readinessProbe": {"exec": {"command": ["ready"]}}}, {"publishNotReadyAddresses": False}, 1, False),
        ({"readinessProbe": {"exec": {"command": ["ready"]}}}, {}, 2, False),
        ({}, {"publishNotReadyAddresses": False}, 2, False),
    ],
)
def test_addresses_that_wait_for_a_probe(
    container: Document, network: Document, nodes: int, warns: bool, mode: Any
) -> None:
    given = runtime(container=container, nodes=nodes, network=network)
    assert bool(coded("PT309", given, train_job(), mode=mode)) is warns


@MODES
def test_a_jobset_that_jobset_refuses_is_an_error_with_the_length_that_fits(mode: Any) -> None:
    given = runtime(coordinator={"replicatedJob": "node", "jobIndex": 0, "podIndex": 0})

    def result(name: str) -> Result:
        return judged(given, {**train_job(), "metadata": {"name": name, "namespace": "team"}}, mode=mode)

    found = result("a" * 40)
    assert found.stage == "jobset" and not found.objects
    (problem,) = found.errors
    assert "coordinator label" in problem.why and problem.hint == "a name of at most 26 characters fits"
    assert not result("a" * 27).admitted and result("a" * 26).admitted


@pytest.mark.parametrize("name", ["a" * 40, "a"])
def test_the_length_that_fits_beside_a_subdomain(name: str) -> None:
    subdomain = "s" * (40 if name == "a" * 40 else 60)
    given = runtime(coordinator={"replicatedJob": "node"}, network={"subdomain": subdomain})
    (problem,) = judged(given, {**train_job(), "metadata": {"name": name, "namespace": "team"}}).errors
    expected = "a name of at most 13 characters fits"
    if name == "a":
        expected = "a spec.network.subdomain of at most 52 characters fits"
    assert problem.hint == expected


@MODES
@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (
            {"type": "Opaque", "data": {"token": "eA=="}},
            "Secret pull has type Opaque, of which nodes take no credentials",
        ),
        ({"stringData": {"token": "x"}}, "Secret pull has type Opaque, of which nodes take no credentials"),
        ({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}, ""),
        ({}, ""),
    ],
)
def test_pull_secrets_of_a_type_that_nodes_do_not_read(secret: Document, says: str, mode: Any) -> None:
    documents = (
        namespace(),
        of("Secret", "pull", **secret),
        runtime({"imagePullSecrets": [{"name": "pull"}]}),
        train_job(),
    )
    told = [each for each in warned(*documents, mode=mode) if each.startswith("PT169")]
    assert len(told) == bool(says) and all(says in each for each in told)


@MODES
@pytest.mark.parametrize(
    ("pod", "says"),
    [({"restartPolicy": "Always"}, "must be OnFailure or Never in a Job"), ({"restartPolicy": "Never"}, "")],
)
def test_what_the_job_api_refuses_after_jobset(pod: Document, says: str, mode: Any) -> None:
    assert refused(runtime(pod), train_job(), mode=mode) == ([says] if says else [])
