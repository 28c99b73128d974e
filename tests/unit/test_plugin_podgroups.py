"""Gangs: the PodGroups of coscheduling and Volcano, and the requests that they sum up."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from plugin_support import container, job, pods, problems, rendered, runtime, train_job
from pulumi_trainer.plugins import ComponentBuilderPlugin, EnforcePodGroupPolicyPlugin, Policy
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline import registry

from tests.trainer import default_runtime, default_train_job, render

LABEL = "scheduling.x-k8s.io/pod-group"
ANNOTATION = "scheduling.k8s.io/group-name"
QUEUE = "scheduling.volcano.sh/queue-name"


def gang(*jobs: dict[str, Any], policy: Any = None, nodes: int = 2, **template: Any) -> dict[str, Any]:
    policy = {"coscheduling": {}} if policy is None else policy
    return runtime({"numNodes": nodes}, *jobs, gang=policy, **template)


def group(rt: dict[str, Any], tj: dict[str, Any] | None = None) -> dict[str, Any]:
    return rendered(rt, tj or train_job({}))["PodGroup/digits"]


def minimum(*containers: dict[str, Any], nodes: int = 1, **pod: Any) -> Any:
    return group(gang(job("node", None, *containers, **pod), nodes=nodes))["spec"]["minResources"]


def requests(**amounts: Any) -> dict[str, Any]:
    return container(resources={"requests": amounts})


class TestCoscheduling:
    def test_a_runtime_without_defaults(self) -> None:
        with pytest.raises(Invalid, match=r"spec\.podGroupPolicy\.coscheduling\.scheduleTimeoutSeconds: is missing"):
            render(gang(), train_job({}))


class TestVolcano:
    def volcano(self, *jobs: dict[str, Any], queue: Any = None, **policy: Any) -> dict[str, Any]:
        metadata = {} if queue is None else {"annotations": {QUEUE: queue}}
        rt = gang(*jobs, policy={"volcano": policy})
        rt["spec"]["template"]["metadata"] = metadata
        return rt

    def test_a_runtime_without_defaults(self) -> None:
        rt = self.volcano(networkTopology={"highestTierAllowed": 2})
        found = render(rt, train_job({})).objects["PodGroup/digits"]["spec"]
        assert found["networkTopology"] == {"mode": "", "highestTierAllowed": 2}
        with pytest.raises(Invalid, match=r"networkTopology\.highestTierAllowed: is missing"):
            render(self.volcano(networkTopology={}), train_job({}))

    def told(self, *priorities: str) -> list[str]:
        jobs = [job(f"j{i}", "", priorityClassName=name) for i, name in enumerate(priorities)]
        asked: list[tuple[str, str, str]] = []

        def exists(*what: str) -> bool:
            asked.append(what)  # type: ignore[arg-type]
            return what[2] == "high"

        found = problems(self.volcano(*jobs), train_job({}), exists)
        assert all(kind == "PriorityClass" and namespace == "" for kind, namespace, _ in asked)
        assert {p.where for p in found} <= {"spec.templateSpec.priorityClassName"}
        return [p.why for p in found]

    def test_the_webhook_looks_for_priority_classes(self) -> None:
        why = 'PriorityClass "{0}" doesn\'t exist: priorityclasses.scheduling.k8s.io "{0}" not found'
        assert self.told("high") == []
        assert self.told("a", "high", "b", "b") == [why.format(name) for name in "abb"]

    @pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
    def test_a_system_class_ends_the_check(self, name: str) -> None:
        assert self.told(name, "a") == []
        assert len(self.told("a", name, "b")) == 1

    def test_without_a_cluster_nobody_looks(self) -> None:
        assert problems(self.volcano(job("node", priorityClassName="a")), train_job({})) == []

    def test_unknown_values(self) -> None:
        unknown = Unknown("u")
        rt = self.volcano(job("node", priorityClassName=unknown), queue=unknown)
        assert problems(rt, train_job({}), lambda *_: False) == []
        spec = group(rt)["spec"]
        assert spec["queue"] is spec["priorityClassName"] is unknown
        assert group(self.volcano(networkTopology=unknown))["spec"]["networkTopology"] is unknown


def after(name: str, *others: str, status: str = "Complete", step: Any = None, **pod: Any) -> dict[str, Any]:
    depends = [{"name": other, "status": status} for other in others]
    return {**job(name, step, requests(cpu=1), **pod), "dependsOn": depends}


def staged(rt: dict[str, Any], mode: Any = "jobset") -> dict[str, Any]:
    return render(default_runtime(rt), default_train_job(train_job({})), mode=mode).objects


def groups(rt: dict[str, Any], mode: Any = "jobset") -> dict[str, Any]:
    """Name of each PodGroup -> (minMember, replicated jobs whose Pods name it)."""
    objects = staged(rt, mode)
    found = {d["metadata"]["name"]: (d["spec"]["minMember"], []) for d in objects.values() if d["kind"] == "PodGroup"}
    for replicated in objects["JobSet/digits"]["spec"]["replicatedJobs"]:
        about = replicated["template"]["spec"]["template"]["metadata"]
        name = about.get("labels", {}).get(LABEL) or about.get("annotations", {})[ANNOTATION]
        found[name][1].append(replicated["name"])
    return found


class TestStages:
    """In mode jobset a gang is what starts together."""

    INITIALIZERS = (job("dataset-initializer", "dataset-initializer"), job("model-initializer", "model-initializer"))

    @pytest.mark.parametrize("policy", ["coscheduling", "volcano"])
    def test_trainers_do_not_wait_for_initializers(self, policy: str) -> None:
        node = after("node", "dataset-initializer", "model-initializer")
        rt = gang(*copy.deepcopy(self.INITIALIZERS), node, policy={policy: {}}, nodes=4)
        assert groups(rt) == {
            "digits.dataset-initializer": (2, ["dataset-initializer", "model-initializer"]),
            "digits.node": (4, ["node"]),
        }
        assert groups(rt, mode="trainer") == {"digits": (6, ["dataset-initializer", "model-initializer", "node"])}

    def test_each_has_its_own_resources_and_the_policy_of_all(self) -> None:
        rt = gang(job("data", "", requests(cpu=3)), after("node", "data"), nodes=4)
        objects = staged(rt)
        assert list(objects) == ["PodGroup/digits.data", "PodGroup/digits.node", "JobSet/digits"]
        assert objects["PodGroup/digits.data"]["spec"] == {
            "minMember": 1, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60,
        }  # fmt: skip
        assert objects["PodGroup/digits.node"]["spec"] == {
            "minMember": 4, "minResources": {"cpu": "4"}, "scheduleTimeoutSeconds": 60,
        }  # fmt: skip
        assert objects["PodGroup/digits.node"]["metadata"] == {"name": "digits.node", "namespace": "ns"}

    def test_a_dependency_that_has_to_be_ready_comes_first_too(self) -> None:
        rt = gang(job("node"), after("launcher", "node", status="Ready", step=""), after("log", "node", step=""))
        wanted = {"digits.node": (2, ["node"]), "digits.launcher": (1, ["launcher"]), "digits.log": (1, ["log"])}
        assert groups(rt) == wanted

    def test_in_order_each_waits_for_the_one_before(self) -> None:
        rt = gang(job("a", ""), job("node"), startupPolicy={"startupPolicyOrder": "InOrder"})
        assert groups(rt) == {"digits.a": (1, ["a"]), "digits.node": (2, ["node"])}

    def test_volcano_keeps_queue_topology_and_the_priority_of_the_stage(self) -> None:
        rt = gang(
            job("data", "", priorityClassName="low"), after("node", "data", priorityClassName="high"),
            policy={"volcano": {"networkTopology": {}}},
        )  # fmt: skip
        rt["spec"]["template"]["metadata"] = {"annotations": {QUEUE: "q"}}
        objects = staged(rt)
        for name, priority in (("data", "low"), ("node", "high")):
            spec = objects[f"PodGroup/digits.{name}"]["spec"]
            assert (spec["queue"], spec["priorityClassName"]) == ("q", priority)
            assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 1}

    def test_both_schedulers(self) -> None:
        rt = gang(job("data", ""), after("node", "data"), policy={"coscheduling": {}, "volcano": {}})
        assert list(staged(rt)) == [
            "PodGroup/digits.data", "PodGroup/digits.node",
            "PodGroup.scheduling.volcano.sh/digits.data", "PodGroup.scheduling.volcano.sh/digits.node", "JobSet/digits",
        ]  # fmt: skip

    @pytest.mark.parametrize("depends", [Unknown("u"), [Unknown("u")], [{"name": Unknown("u"), "status": "Complete"}]])
    def test_what_waits_for_something_unknown_is_by_itself(self, depends: Any) -> None:
        rt = gang(job("data", ""), {**job("node"), "dependsOn": depends}, {**job("more", ""), "dependsOn": depends})
        assert list(groups(rt)) == ["digits.data", "digits.node", "digits.more"]

    def test_labels_that_are_not_known_stay_so(self) -> None:
        unknown = Unknown("u")
        node = after("node", "data")
        node["template"]["spec"]["template"]["metadata"] = {"labels": unknown}
        objects = staged(gang(job("data", ""), node))
        assert pods(objects)["template"]["metadata"]["labels"] is unknown
        assert pods(objects, "data")["template"]["metadata"]["labels"] == {LABEL: "digits.data"}


class TestMembers:
    def test_of_all_jobs_and_their_replicas(self) -> None:
        first = {**job("dataset-initializer", "dataset-initializer"), "replicas": 1}
        other = {**job("aux", "", requests(cpu=1)), "replicas": 3}
        other["template"]["spec"]["parallelism"] = 4
        rt = gang(first, job("node"), other)
        assert staged(rt)["PodGroup/digits"]["spec"]["minMember"] == 1 + 2 + 3 * 4
        assert staged(rt)["PodGroup/digits"]["spec"]["minResources"] == {"cpu": "12"}
        assert groups(rt, mode="trainer") == {"digits": (1 + 2 + 4, ["dataset-initializer", "node", "aux"])}

    def test_replicas_that_are_not_known(self) -> None:
        unknown = Unknown("r")
        other = {**job("aux", "", requests(cpu=1)), "replicas": unknown}
        assert staged(gang(job("node"), other))["PodGroup/digits"]["spec"]["minMember"] is unknown


class TestRequests:
    def test_the_largest_init_container(self) -> None:
        first, second = (
            {**requests(**r), "name": f"i{i}"} for i, r in enumerate(({"cpu": 3}, {"cpu": 2, "memory": 5}))
        )
        assert minimum(requests(cpu=1, memory=7), initContainers=[first, second]) == {"cpu": "3", "memory": "7"}

    def test_sidecars_run_on(self) -> None:
        """Beside all later init containers, and beside the containers."""
        early, side, late = (
            {**requests(cpu=cpu), "name": f"i{cpu}", **more}
            for cpu, more in ((4, {}), (2, {"restartPolicy": "Always"}), (3, {}))
        )
        assert minimum(requests(cpu=1), initContainers=[early, side, late]) == {"cpu": "5"}
        assert minimum(requests(cpu=1), initContainers=[early, side]) == {"cpu": "4"}
        assert minimum(requests(cpu=4), initContainers=[side, late]) == {"cpu": "6"}
        assert minimum(container(), initContainers=[side, {**side, "name": "s2"}]) == {"cpu": "4"}

    def test_those_of_the_pod_replace_the_sum(self) -> None:
        own = {"requests": {"cpu": 2, "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 9, "ephemeral-storage": 1}}
        found = minimum(requests(cpu=5, memory=1, **{"nvidia.com/gpu": 1}), resources=own)
        assert found == {"cpu": "2", "hugepages-2Mi": "4Mi", "memory": "1", "nvidia.com/gpu": "1"}
        assert minimum(requests(cpu=5, memory=9), resources={"requests": {"memory": 2}}) == {"cpu": "5", "memory": "2"}
        assert minimum(requests(cpu=5), resources={"limits": {"cpu": 1}}) == {"cpu": "5"}

    def test_overhead_is_added(self) -> None:
        found = minimum(requests(cpu=1), overhead={"cpu": "250m", "memory": "120Mi"}, runtimeClassName="kata", nodes=2)
        assert found == {"cpu": "2500m", "memory": "240Mi"}

    @pytest.mark.parametrize(
        ("amounts", "wanted"),
        [
            (["1Gi", "1G"], "2073741824"),
            (["1G", "1Gi"], "2073741824"),
            (["1Gi", "1024M"], "2048576Ki"),
            (["0Gi", "1024"], "1024"),
            (["1024", "0Gi"], "1024"),
            (["1Ki", "1024"], "2Ki"),
            (["1024", "1Ki"], "2048"),
            (["1e3", "1k"], "2e3"),
            (["1k", "1e3"], "2k"),
            (["1", "-3"], "-2"),
            (["2Gi", "-1Gi"], "1Gi"),
            (["1Ki", "500m"], "1024500m"),
            (["9E", "9E"], "18E"),
            (["9000E", "9000E"], "18"),
            (["1n", "1"], "1000000001n"),
        ],
    )
    def test_format_of_the_first_that_is_not_zero(self, amounts: list[str], wanted: str) -> None:
        containers = [{**requests(memory=amount), "name": f"c{i}"} for i, amount in enumerate(amounts)]
        assert minimum(*containers) == {"memory": wanted}

    def test_between_jobs_too(self) -> None:
        jobs = [job("a", "", requests(memory="0Mi")), job("b", "", requests(memory="1Gi"))]
        jobs += [job("c", "", requests(memory="1024M"))]
        assert group(gang(*jobs))["spec"]["minResources"] == {"memory": "2048576Ki"}


class TestUnknown:
    def test_counts(self) -> None:
        unknown = Unknown("n")
        rt, tj = gang(job("node", None, requests(cpu=1))), train_job({"numNodes": unknown})
        assert group(rt, tj)["spec"]["minMember"] is unknown
        assert group(rt, tj)["spec"]["minResources"] == {"cpu": unknown}

    def test_one_amount_hides_no_other(self) -> None:
        unknown = Unknown("q")
        first = {**requests(cpu=1, memory=unknown), "name": "i", "restartPolicy": "Always"}
        found = minimum(requests(cpu=unknown, memory=1, disk=1), initContainers=[first], overhead={"cpu": 1})
        assert found == {"cpu": unknown, "disk": "1", "memory": unknown}
        limits = container(resources={"limits": {"cpu": unknown}, "requests": {"cpu": 1}})
        assert minimum(limits) == {"cpu": "1"}

    @pytest.mark.parametrize(
        "pod",
        [
            {"containers": Unknown("u")},
            {"initContainers": Unknown("u")},
            {"initContainers": [Unknown("u")]},
            {"initContainers": [container("i", resources=Unknown("u"))]},
            {"initContainers": [container("i", resources={"requests": Unknown("u")})]},
            {"resources": Unknown("u")},
            {"resources": {"requests": Unknown("u")}},
            {"overhead": Unknown("u")},
        ],
    )
    def test_what_may_request_anything(self, pod: dict[str, Any]) -> None:
        assert minimum(**pod) == Unknown("u")

    def test_policy_and_pods(self) -> None:
        unknown = Unknown("u")
        rt = gang(policy={"coscheduling": {"scheduleTimeoutSeconds": unknown}})
        assert group(rt)["spec"]["scheduleTimeoutSeconds"] is unknown
        assert list(rendered(gang(policy=unknown), train_job({}))) == ["JobSet/digits"]
        node = job("node")
        node["template"]["spec"]["template"]["metadata"] = {"labels": unknown}
        assert pods(rendered(gang(node), train_job({})))["template"]["metadata"]["labels"] is unknown


def test_the_podgroup_of_a_plugin_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class ElasticPolicy(Policy):
        serves = "podGroupPolicy.elastic"

    class Elastic(EnforcePodGroupPolicyPlugin, ComponentBuilderPlugin):
        name = "Elastic"
        policies = (ElasticPolicy,)

        def enforce_pod_group_policy(self, info: Any, train_job: Any) -> None:
            info.pod_labels[LABEL] = train_job.name

        def build(self, info: Any, train_job: Any) -> Any:
            metadata = {"name": train_job.name, "namespace": train_job.namespace}
            yield {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": {}}

    monkeypatch.setattr(registry, "_registered", [])
    registry.register_plugin(Elastic())
    assert "PodGroup/digits" in rendered(gang(job("node"), policy={"elastic": {}}), train_job({}), mode="jobset")
