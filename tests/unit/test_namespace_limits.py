"""What LimitRanges, ResourceQuotas, RuntimeClasses and nodes do to the Pods of a job: tests/cluster/test_causes.py holds the
words against a real API server and scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.fit import reason_not_fitting
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import complete_queues
from pulumi_trainer.provider.trainer.admission.namespace_limits import exceeded_quotas, pod_refusals, pods_without_node

Document = dict[str, Any]
GPU = "nvidia.com/gpu"


def limit(kind: str = "Container", **rules: Document) -> Document:
    return {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits", "namespace": "team"},
        "spec": {"limits": [{"type": kind, **rules}]},
    }  # fmt: skip


def quota(hard: Document, used: Document | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": "team"},
        "spec": {"hard": hard, **spec}, "status": {"used": used or {}},
    }  # fmt: skip


def step(
    name: str = "node", pods: int = 1, after: str = "", spec: Document | None = None, **resources: Any
) -> Document:
    pod = {"containers": [{"name": name, "resources": resources}], **(spec or {})}
    found: Document = {
        "name": name, "template": {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod}}},
    }  # fmt: skip
    return {**found, "dependsOn": [{"name": after, "status": "Complete"}]} if after else found


def jobset(*steps: Document) -> Document:
    return {"kind": "JobSet", "metadata": {"name": "job", "namespace": "team"}, "spec": {"replicatedJobs": list(steps)}}


def refused(job: Document, *known: Document) -> list[str]:
    return [problem.why for problem in pod_refusals(job, complete_queues(known))]


@pytest.mark.parametrize(
    ("rules", "resources", "words"),
    [
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        ({"max": {"cpu": "1"}}, {}, ""),
        (
            {"max": {"cpu": "1"}}, {"requests": {"cpu": "2"}},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        ({"min": {"cpu": "1"}}, {"limits": {"cpu": "500m"}}, "minimum cpu usage per Container is 1, but request is 500m"),
        ({"min": {"cpu": "1"}}, {}, ""),
        ({"kind": "Pod", "min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"kind": "Pod", "max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"limits": {"cpu": "3"}}, ""),
    ],
)  # fmt: skip
def test_a_limit_range_refuses_in_the_servers_words(rules: Document, resources: Document, words: str) -> None:
    found = refused(jobset(step(**resources)), limit(**rules))
    assert found == ([words] if words else [])
    assert refused(jobset(step(**resources)), {**limit(**rules), "metadata": {"name": "a", "namespace": "other"}}) == []


def test_unknown_pods_are_not_refused() -> None:
    job = jobset(step(limits=Unknown("u")))
    assert refused(job, limit(max={"cpu": "1"})) == []
    assert exceeded_quotas(job, complete_queues([quota({"pods": "0"})])) == []


def test_a_quota_of_cpu_wants_requests_which_a_limit_range_can_give() -> None:
    lacking = "failed quota: team: must specify limits.cpu for: node; requests.cpu for: node"
    hard = quota({"requests.cpu": "10", "limits.cpu": "10", "pods": "5"})
    assert refused(jobset(step(requests={"memory": "1Gi"})), hard) == [lacking]
    assert refused(jobset(step()), hard, limit(default={"cpu": "1"})) == []


def short(job: Document, *known: Document, used: bool = False) -> dict[str, str]:
    found = exceeded_quotas(job, complete_queues(known), used=used)
    return {each.resource: f"{each.requested} of {each.hard}, {each.used} used" for each in found}


def test_the_whole_gang_counts_and_what_others_use_if_asked() -> None:
    gpus = quota({f"requests.{GPU}": "16"}, {f"requests.{GPU}": "8"})
    gang = jobset(step(pods=2, limits={GPU: 8}))
    assert short(gang, gpus) == {}
    assert short(gang, gpus, used=True) == {f"requests.{GPU}": "16 of 16, 8 used"}
    assert short(jobset(step(pods=3, limits={GPU: 8})), gpus) == {f"requests.{GPU}": "24 of 16, 0 used"}


def test_steps_that_wait_for_the_end_of_others_do_not_count_together() -> None:
    hard = quota({"pods": "2"})
    assert short(jobset(step("data"), step(pods=2, after="data")), hard) == {}
    assert short(jobset(step("data"), step(pods=2)), hard) == {"pods": "3 of 2, 0 used"}


def test_what_pods_use_by_the_names_of_quotas() -> None:
    hard = {"cpu": "1", "limits.memory": "1Gi", "count/pods": "1", "count/jobs.batch": "1", "services": "0"}
    job = jobset(step(pods=2, requests={"cpu": "1"}, limits={"memory": "1Gi"}))
    assert short(job, quota(hard)) == {
        "cpu": "2 of 1, 0 used", "limits.memory": "2Gi of 1Gi, 0 used", "count/pods": "2 of 1, 0 used",
    }  # fmt: skip
    overhead = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "500m"}}}
    kata = jobset(step(spec={"runtimeClassName": "kata"}, requests={"cpu": "1"}))
    assert short(kata, quota({"cpu": "1"}), overhead) == {"cpu": "1500m of 1, 0 used"}
    assert short(jobset(step()), quota({"cpu": "1"}), limit(defaultRequest={"cpu": "2"})) == {"cpu": "2 of 1, 0 used"}


@pytest.mark.parametrize(
    ("scope", "spec", "counts"),
    [
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
        ({"scopes": ["BestEffort"]}, {}, True),
        ({"scopes": ["NotBestEffort"]}, {}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
         {"priorityClassName": "high"}, True),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
         {}, False),
    ],
)  # fmt: skip
def test_scopes(scope: Document, spec: Document, counts: bool) -> None:
    assert bool(short(jobset(step(spec=spec)), quota({"pods": "0"}, **scope))) is counts


# --- what Kueue counts ------------------------------------------------------------------------------------------------------


def kueue(kind: str, name: str, **spec: Any) -> Document:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_kueue_counts_defaults_of_limit_ranges_and_overhead() -> None:
    overhead = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "1"}}}
    known = complete_queues([limit(default={"cpu": "4"}, defaultRequest={"cpu": "2"}), overhead])
    (counted,) = pod_sets(jobset(step(pods=2, spec={"runtimeClassName": "kata"})), known)
    assert counted.requests() == {"cpu": 6}
    (counted,) = pod_sets(jobset(step(limits={"cpu": "3"})), known)
    assert counted.requests() == {"cpu": 2}, "Kueue adds the default of a request before it looks at limits"

    resources = [{"name": "cpu", "nominalQuota": 1}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    queue = kueue("ClusterQueue", "q", resourceGroups=groups)
    documents = [queue, kueue("ResourceFlavor", "f")]
    assert reason_not_fitting(jobset(step()), queue, complete_queues(documents)) is None
    found = reason_not_fitting(jobset(step()), queue, complete_queues([*documents, limit(default={"cpu": "4"})]))
    assert found is not None and found.cause == "capacity"


# --- nodes ------------------------------------------------------------------------------------------------------------------


def node(name: str, gpus: int = 4, taint: str = "", note: str = "", **labels: str) -> Document:
    metadata = {"name": name, "labels": labels, "annotations": {note: "1"} if note else {}}
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "8", GPU: str(gpus)}},
    }  # fmt: skip


def no_node(spec: Document, gpus: int, *nodes: Document) -> str:
    found = [*pods_without_node(jobset(step(spec=spec, limits={GPU: gpus} if gpus else {})), complete_queues(nodes))]
    return found[0][1].why if found else ""


def affinity(*expressions: Document) -> Document:
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def test_the_closest_miss() -> None:
    assert no_node({}, 8, node("a"), node("b", 2)) == "no node has 8 nvidia.com/gpu: the largest has 4"
    assert no_node({}, 8, node("a", 0)) == "no node has 8 nvidia.com/gpu: none has any"
    assert no_node({}, 4, node("a")) == ""
    assert no_node({"nodeSelector": {"gpu": "h100"}}, 1, node("a", gpu="a100"), node("b")) == (
        "none of 2 nodes matches its node selector or affinity (gpu=h100)"
    )
    assert no_node({}, 1, node("a", taint="gpu")) == (
        "all 1 nodes have taints that it does not tolerate, such as gpu:NoSchedule"
    )
    assert no_node({}, 1, node("a", taint="node.kubernetes.io/unschedulable")) == "", "cordoned, for some time"
    assert no_node({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, 1, node("a", taint="gpu")) == ""
    assert no_node({"nodeSelector": {"gpu": "h100"}}, 8, node("a", 8), node("b", 4, gpu="h100")) == (
        "no node has 8 nvidia.com/gpu: the largest has 4"
    )


def test_all_pods_need_room() -> None:
    known = complete_queues([node("a"), node("b", 8)])
    found = [why.why for _, why in pods_without_node(jobset(step(pods=4, limits={GPU: 4})), known)]
    assert found == ["the nodes have room for 3 of 4 Pods (4 nvidia.com/gpu each)"]
    assert [*pods_without_node(jobset(step(pods=3, limits={GPU: 4})), known)] == []


def test_a_flavor_chooses_the_nodes() -> None:
    known = complete_queues([node("a", 8, gpu="h100"), node("b", 8, taint="special", gpu="a100")])
    job = jobset(step(limits={GPU: 8}))
    h100, a100 = (kueue("ResourceFlavor", name, nodeLabels={"gpu": name}) for name in ("h100", "a100"))
    tolerant = kueue("ResourceFlavor", "t", nodeLabels={"gpu": "a100"}, tolerations=[{"operator": "Exists"}])
    for flavors, count in (([h100], 0), ([a100], 1), ([tolerant], 0), ([a100, h100], 0)):
        assert len([*pods_without_node(job, known, flavors)]) == count, flavors


def test_affinity() -> None:
    a100 = node("a", gpu="a100", size="8")
    assert no_node(affinity({"key": "gpu", "operator": "In", "values": ["h100"]}), 1, a100)
    assert no_node(affinity({"key": "gpu", "operator": "DoesNotExist"}), 1, a100)
    for fits in (
        {"key": "gpu", "operator": "In", "values": ["a100"]},
        {"key": "gpu", "operator": "NotIn", "values": ["h100"]},
        {"key": "size", "operator": "Gt", "values": ["4"]},
    ):
        assert no_node(affinity({"key": "gpu", "operator": "DoesNotExist"}, fits), 1, a100) == ""


def test_no_false_alarm_without_nodes_or_with_an_autoscaler() -> None:
    assert no_node({}, 8) == "", "a cluster without nodes makes them"
    job = jobset(step(limits={GPU: 8}))
    made = node("a", note="cluster-autoscaler.kubernetes.io/scale-down-disabled")
    ((_, found),) = pods_without_node(job, complete_queues([made]))
    assert found.on_demand
    ((_, found),) = pods_without_node(job, complete_queues([node("a")]))
    assert not found.on_demand
