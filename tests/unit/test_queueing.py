"""`TrainJob(queue=, priority=)`: labels of both modes, conflicts, and what belongs to Kueue."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan import runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kueue.fit import FlavorSearch, group_pod_sets
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.queues import teams

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
PODSET = "kueue.x-k8s.io/podset"
RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "r"},
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "x"}]}}},
                        },
                    }
                ]
            }
        }
    },
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    for finder in ("from_catalogue", "_runtime_by_name"):
        monkeypatch.setattr(runtime_ref, finder, lambda *_: (copy.deepcopy(RUNTIME), []))

    def plan(mode: str = "jobset", **given: Any) -> Plan:
        async def planning() -> Plan:
            target = trainer.Kubernetes(mode=mode)  # type: ignore[arg-type]
            made = {k: v() if callable(v) else v for k, v in given.items()}
            return await trainjob_plan.plan(TrainJobArgs("job", runtime="r", target=target, **made))

        return asyncio.run(planning())

    return plan


def main(plan: Plan) -> dict[str, Any]:
    assert [str(p) for p in plan.problems] == []
    (found,) = (o for key, o in plan.objects.items() if key.startswith(("JobSet/", "TrainJob/")))
    return found


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_queue_and_priority_are_labels_of_the_job(planned: Any, mode: str) -> None:
    job = main(planned(mode, queue="team", priority="high", labels={"a": "b"}))
    assert job["kind"] == {"jobset": "JobSet", "trainer": "TrainJob"}[mode]
    assert job["metadata"]["labels"] == {QUEUE: "team", PRIORITY: "high", "a": "b"}


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_suspend_of_a_job_with_a_queue_is_kueues(planned: Any, mode: str) -> None:
    """However the queue was given: a manager that applies the field would take it out of Kueue's hands."""
    for given in ({"queue": "team"}, {"labels": {QUEUE: "team"}}):
        assert "suspend" not in main(planned(mode, **given))["spec"]
        assert "suspend" not in main(planned(mode, suspend=False, **given))["spec"]
        (problem,) = planned(mode, suspend=True, **given).problems
        assert problem.where == "suspend" and "Kueue" in problem.why
    assert main(planned(mode, suspend=True))["spec"]["suspend"] is True
    assert main(planned(mode, suspend=True, priority="high"))["spec"]["suspend"] is True


def test_labels_that_are_not_known_yet_keep_the_queue(planned: Any) -> None:
    known = lambda: pulumi.Output.from_input({"a": "b"})  # noqa: E731
    assert main(planned(labels=known, queue="team"))["metadata"]["labels"] == {QUEUE: "team", "a": "b"}
    both = lambda: pulumi.Output.from_input({QUEUE: "other"})  # noqa: E731
    (problem,) = planned(labels=both, queue="team").problems
    assert problem.where == "queue" and "also set" in problem.why


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ({"queue": "a", "labels": {QUEUE: "b"}}, "queue", f"is also set by labels[{QUEUE}]"),
        ({"queue": "a", "labels": {QUEUE: "a"}}, "queue", "also set"),
        ({"priority": "a", "labels": {PRIORITY: "b"}}, "priority", "also set"),
        ({"queue": "Team_A"}, "queue", "'Team_A' is not a valid name"),
        ({"priority": "High"}, "priority", "'High' is not a valid name"),
        ({"labels": {QUEUE: "Team_A"}}, f"labels[{QUEUE}]", "is not a valid name"),
        ({"queue": ""}, "queue", "is empty"),
        ({"queue": 3}, "queue", "must be a string"),
        ({"queue": "q" * 64}, "queue", "63"),
        ({"max_execution": 0}, "max_execution", "a whole number of seconds from 1 to 2147483647, not 0"),
        ({"max_execution": 1.5}, "max_execution", "a whole number of seconds"),
        ({"max_execution": True}, "max_execution", "a whole number of seconds"),
        ({"max_execution": "1h"}, "max_execution", "a whole number of seconds from 1 to 2147483647, not 1h"),
        ({"max_execution": 2**31}, "max_execution", "a whole number of seconds"),
        ({"max_execution": 60, "labels": {LIMIT: "60"}}, "max_execution", "also set"),
        ({"labels": {LIMIT: "x"}}, f"labels[{LIMIT}]", "a whole number of seconds"),
        ({"topology": "rack"}, "topology", "must be Topology"),
        ({"topology": trainer.Required("a b")}, "topology.level", "is not a valid node label"),
        ({"topology": trainer.Required(3)}, "topology.level", "must be a node label"),  # type: ignore[arg-type]
        ({"topology": trainer.Preferred("rack", slice_level="")}, "topology.slice_level", "is not a valid node label"),
        ({"topology": trainer.Required("rack", slice_level="host")}, "topology.slice_size", "is missing"),
        ({"topology": trainer.Unconstrained(slice_size=2)}, "topology.slice_level", "is missing"),
        ({"topology": trainer.Unconstrained(slice_level="host", slice_size=0)}, "topology.slice_size", "above 0"),
        (
            {"topology": trainer.Unconstrained(slice_level="host", slice_size=1.5)},
            "topology.slice_size",
            "whole number",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_argument(planned: Any, given: dict[str, Any], where: str, why: str) -> None:
    found = planned(**given).problems
    assert any(why in p.why for p in found), found
    assert {p.where for p in found} <= {where, "labels", "topology.slice_size"}


def test_a_queue_by_argument_is_the_same_job_as_by_label(planned: Any) -> None:
    assert planned(queue="team").content == planned(labels={QUEUE: "team"}).content
    assert planned(queue="team").content != planned(queue="other").content


# --- topology, time, and resources that make a queue ------------------------------------------------------------------------


def annotations(plan: Plan) -> dict[str, Any]:
    """Of the pods of each step, in the JobSet."""
    jobset = next(d for key, d in plan.made.items() if key.startswith("JobSet/"))
    jobs = jobset["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"].get("metadata", {}).get("annotations", {}) for job in jobs}


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_a_topology_is_said_of_the_pods_that_train(planned: Any, mode: str) -> None:
    sliced = trainer.Required("block", slice_level="rack", slice_size=2)
    work = trainer.Trainer(num_nodes=4)
    plan = planned(mode, queue="team", topology=sliced, trainer=work)
    wanted = {
        f"{PODSET}-required-topology": "block",
        f"{PODSET}-slice-required-topology": "rack",
        f"{PODSET}-slice-size": "2",
    }
    assert annotations(plan) == {"node": wanted}
    assert annotations(planned(mode, queue="team", topology=trainer.Preferred("rack"))) == {
        "node": {f"{PODSET}-preferred-topology": "rack"}
    }
    assert annotations(planned(mode, queue="team", topology=trainer.Unconstrained())) == {
        "node": {f"{PODSET}-unconstrained-topology": "true"}
    }
    if mode == "trainer":
        (patch,) = main(plan)["spec"]["runtimePatches"]
        assert patch["manager"] == "pulumi-trainer.dev/program"


def test_a_topology_stands_beside_code_and_volumes(planned: Any) -> None:
    plan = planned(queue="team", topology=trainer.Required("rack"), output=True)
    (job,) = main(plan)["spec"]["replicatedJobs"]
    template = job["template"]["spec"]["template"]
    assert template["metadata"]["annotations"] and template["spec"]["volumes"]


def test_what_is_not_known_yet_stays_so(planned: Any) -> None:
    unknown: Any = lambda: pulumi.Output(set(), done(None), done(False))  # noqa: E731
    plan = planned(queue="team", max_execution=unknown)
    assert LIMIT in main(plan)["metadata"]["labels"]
    limit = lambda: pulumi.Output.from_input(90.0)  # noqa: E731
    assert main(planned(queue="team", max_execution=limit))["metadata"]["labels"][LIMIT] == "90"


def done(value: Any) -> Any:
    future: asyncio.Future[Any] = asyncio.get_event_loop().create_future()
    future.set_result(value)
    return future


def test_another_topology_or_limit_is_another_job(planned: Any) -> None:
    contents = [
        planned(queue="team", **given).content
        for given in (
            {}, {"topology": trainer.Required("rack")}, {"topology": trainer.Preferred("rack")}, {"max_execution": 60},
        )
    ]  # fmt: skip
    assert all(contents.count(each) == 1 for each in contents)
    assert "topology" not in contents[0]["written"], "jobs of before there was one are the same"


def test_a_runtime_of_its_own_topology(planned: Any) -> None:
    """What both say is refused as Kueue refuses it, and in one place."""
    jobs = [trainer.JobPatch(name="node", pod=trainer.PodPatch(annotations={f"{PODSET}-preferred-topology": "rack"}))]
    patch = trainer.RuntimePatch(manager="a.b/c", jobs=jobs)
    (problem,) = planned(queue="team", topology=trainer.Required("rack"), runtime_patches=[patch]).problems
    assert problem.why.startswith("must not contain more than one topology annotation")
    assert planned(topology=trainer.Required("rack"), runtime_patches=[patch]).problems == [], (
        "without a queue nobody reads it"
    )


def test_what_only_a_queue_reads(planned: Any) -> None:
    found = planned(topology=trainer.Required("rack"), max_execution=60).warnings
    told = [(str(w).partition(":")[0], w.where) for w in found if "without a queue" in w.why]
    assert [code for code, _ in told] == ["PT207", "PT207"] and ("PT207", "max_execution") in told


class Made(pulumi.ComponentResource):
    """A queue that the program makes."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_queue_by_the_resource_that_makes_it(planned: Any) -> None:
    queue = Made("team")
    plan = planned(queue=queue, priority=Made("high"))
    assert main(plan)["metadata"]["labels"] == {QUEUE: "team", PRIORITY: "high"}
    assert queue in plan.needs, "it has to be there before"
    assert plan.content == planned(queue="team", priority="high").content


class Later(pulumi.ComponentResource):
    """One that makes its object when all of it is known, or nothing."""

    def __init__(self, name: str, made: Any) -> None:
        self.name, self._made = name, made

    async def resources(self) -> list[Any]:
        return [self._made] if self._made is not None else []


def test_a_queue_that_is_made_later_is_waited_for(planned: Any) -> None:
    child = Made("object")
    plan = planned(queue=lambda: Later("team", child))
    assert main(plan)["metadata"]["labels"] == {QUEUE: "team"} and child in plan.needs
    (problem,) = planned(queue=lambda: Later("team", None)).problems
    assert (problem.where, problem.why) == ("queue", "was rejected: fix it first")


@pytest.mark.parametrize("name", [["x"], {"x": 1}, 3])
def test_an_earlier_name_that_is_no_text_is_a_problem(name: Any) -> None:
    share = trainer.Team(gpus=1, renamed_from=name, namespace="z")
    (problem,) = teams._renaming("a", share, {"a": share})
    assert problem.where == "renamed_from" and "must be a name" in problem.why


def test_the_class_of_an_output_volume_may_be_an_output(planned: Any) -> None:
    """Of a StorageClass of the same program, for example."""

    def made(**fields: Any) -> Plan:
        def output() -> Any:
            return trainer.OutputVolume(**{name: pulumi.Output.from_input(value) for name, value in fields.items()})

        return planned(output=output)  # type: ignore[no-any-return]

    plan = made(storage_class="efs", access_mode="ReadWriteMany", size="5Gi")
    assert [str(p) for p in plan.problems] == []
    (found,) = plan.claims.values()
    assert found.spec == {"size": "5Gi", "storageClass": "efs", "accessMode": "ReadWriteMany", "chosen": True}
    (problem,) = made(access_mode="ReadWriteOften").problems
    assert problem.where == "output.access_mode" and "must be one of" in problem.why
    (problem,) = made(size="5GB").problems
    assert problem.where == "output.size"


KINDS = {
    "h100": {"gpu": "h100"},
    "l40s": {"gpu": "l40s"},
    "l40s-nvl": {"gpu": "l40s", "nvlink": "yes"},
    "a100": {"pool": "a"},
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}]
        }
    }
}


def work() -> None: ...


def queues_of_kinds(*kinds: str) -> Queues:
    documents: list[dict[str, Any]] = []
    flavors = []
    for kind in kinds:
        name = f"{kind}-0123ab"
        documents.append({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": KINDS[kind]}})
        flavors.append({"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]})
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
    documents.append({"kind": "ClusterQueue", "metadata": {"name": "gpus"}, "spec": {"resourceGroups": groups}})
    about = {"name": "team", "namespace": "default"}
    documents.append({"kind": "LocalQueue", "metadata": about, "spec": {"clusterQueue": "gpus"}})
    return Queues(tuple(documents))


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_a_job_gets_the_flavors_that_it_names_alone(planned: Any, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = queues_of_kinds("h100", "l40s")
    monkeypatch.setattr(queries, "find_queues", lambda *_, **__: queues)
    code = trainer.CustomTrainer(func=work, resources_per_node={"gpu": 8})
    plan = planned(mode, queue="team", trainer=code, flavors=["h100"])
    main(plan)
    (jobset,) = (made for key, made in plan.made.items() if key.startswith("JobSet/"))
    pods = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pods["affinity"] == AFFINITY and pods["volumes"]
    behind = queues.find("ClusterQueue", "gpus") or {}
    search = FlavorSearch(behind, queues.tree.queues["gpus"], queues)
    (group,) = group_pod_sets(pod_sets(jobset), search) or []
    mismatched = [search.mismatch(f"{kind}-0123ab", group, search.groups[0]) for kind in ("h100", "l40s")]
    assert mismatched == ["", "flavor l40s-0123ab doesn't match node affinity"], "Kueue's rule"


PINNED_JOB = {"name": "node", "template": {"spec": {"template": {"spec": {"affinity": AFFINITY}}}}}
PINNED = {"manager": "a/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [PINNED_JOB]}}}}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"flavors": ["h10"]}, "flavors[0]: queue team has no flavor 'h10'. Hint: did you mean h100?"),
        ({"flavors": ["l40s"]}, "flavors: Kueue cannot tell the nodes of l40s-nvl from those of l40s"),
        ({"flavors": ["h100"], "queue": None}, "flavors: requires queue=, whose flavors they are"),
        ({"flavors": ["h100"], "queue": "other"}, "flavors: the flavors of the queue other are unknown"),
        ({"flavors": ["h100"], "runtime_patches": [PINNED]}, 'the step "node" has a required node affinity already'),
        ({"flavors": "h100"}, "flavors: must be"),
    ],
)
def test_flavors_that_the_job_cannot_have_are_refused(
    planned: Any, given: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "find_queues", lambda *_, **__: queues_of_kinds("h100", "l40s", "l40s-nvl"))
    (problem,) = planned(**{"queue": "team", **given}).problems
    assert why in str(problem), str(problem)


@pytest.mark.parametrize("flavor", ["h100", "a100"])
def test_flavors_without_a_common_label(planned: Any, flavor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real Kueue gives the first of them to a job whose affinity names a label that it does not have."""
    monkeypatch.setattr(queries, "find_queues", lambda *_, **__: queues_of_kinds("h100", "a100"))
    (problem,) = planned(queue="team", flavors=[flavor]).problems
    assert f"from those of {flavor}. Hint: give both flavors a label with one key and two values" in str(problem)
