"""Identity, changes, and the calls of a provider, on plain data."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.api.errors import Refused
from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.api.submission import Submission, from_state, to_state
from pulumi_trainer.provider.api.unknown import Unknown
from pulumi_trainer.provider.lifecycle import calls
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.lifecycle.identity import digest, job_name


class Target:
    """Keeps what it is asked to create."""

    def __init__(self, phase: str = "Running") -> None:
        self.phase, self.asked = phase, list[tuple[str, Any]]()
        self.jobs: dict[str, JobStatus] = {}
        self.elsewhere = False

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        self.asked.append(("create", submission))
        self.jobs[submission.name] = JobStatus(
            submission.name, submission.namespace, "uid-1", submission.owner, submission.digest, self.phase, created=1.0
        )
        return self.jobs[submission.name]

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:
        self.asked.append(("update", submission))
        return self.jobs[submission.name]

    def status(self, namespace: str, name: str) -> JobStatus | None:
        if self.elsewhere:
            raise Refused("ran on another host")
        return self.jobs.get(name)

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        return {}

    def identity(self) -> dict[str, str]:
        if self.elsewhere:
            raise Refused("is another cluster")
        return {}

    def delete(self, namespace: str, name: str, *, uid: str = "") -> None:
        self.asked.append(("delete", uid))
        self.jobs.pop(name, None)


def objects(**spec: Any) -> dict[str, Any]:
    pod = {"nodeSelector": {"a": "1"}, "containers": [{"name": "node", "image": spec.pop("image", "x:1")}]}
    step = {"name": "node", "replicas": 1, "template": {"spec": {"template": {"metadata": {}, "spec": pod}}}}
    return {"JobSet/j": {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {"replicatedJobs": [step], **spec}}}


def inputs(**changed: Any) -> dict[str, Any]:
    base = {
        "namespace": "default", "name": "j", "objects": objects(), "digest": "d1", "run": "1",
        "runtime": {"name": "torch", "digest": "r1"}, "target": {"kind": "local", "sweep": "s"}, "interrupt": "refuse",
        "adopt": False, "component": "urn:1",
    }  # fmt: skip
    return {**base, **changed}


def checked(olds: dict[str, Any], news: dict[str, Any], target: Target) -> calls.Checked:
    return calls.check(olds, news, lambda _: target)


def first(target: Target) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs of a job that was created."""
    made = checked({}, inputs(), target).inputs
    return made, calls.create(made, lambda _: target)[1]


def test_the_owner_is_computed_once_and_kept() -> None:
    target = Target("Succeeded")
    made, _ = first(target)
    again = checked({}, inputs(), target).inputs
    assert made["owner"] == again["owner"]  # a create that crashed finds its own object
    assert checked({}, inputs(component="urn:2"), target).inputs["owner"] != made["owner"]
    renamed = checked(made, inputs(component="urn:2", digest="d2", objects=objects(image="x:2")), target).inputs
    assert renamed["owner"] == made["owner"]


def test_an_unknown_digest_makes_an_unknown_owner() -> None:
    assert isinstance(checked({}, inputs(digest=Unknown("x")), Target()).inputs["owner"], Unknown)


def test_objects_are_kept_as_text_where_they_are_known() -> None:
    other = {"kind": "ConfigMap", "data": {"a": "\u00e4", "b": Unknown("x")}}
    kept = to_state({**objects(), "ConfigMap/c": other})
    assert isinstance(kept["JobSet/j"], str) and kept["ConfigMap/c"] == other
    assert from_state(kept) == {**objects(), "ConfigMap/c": other}


@pytest.mark.parametrize("form", [to_state, dict])
def test_stacks_that_kept_objects_as_they_are_go_on(form: Any) -> None:
    target = Target("Running")
    made = checked({}, inputs(objects=form(objects())), target).inputs
    calls.create(made, lambda _: target)
    assert checked(made, inputs(objects=to_state(objects())), target).inputs == made
    news = inputs(digest="d2", objects=to_state(objects(image="x:2")))
    assert "containers[node].image" in checked(made, news, target).failures[0]


def test_the_same_digest_keeps_the_old_objects_whatever_is_rendered_now() -> None:
    target = Target("Succeeded")
    made, outs = first(target)
    result = checked(made, inputs(name="j-other", objects=objects(image="newer:2"), component="urn:2"), target)
    assert result.inputs == made
    assert calls.diff(outs, result.inputs).changes is False


def test_a_newer_runtime_is_a_note() -> None:
    target = Target("Succeeded")
    made, _ = first(target)
    result = checked(made, inputs(runtime={"name": "torch", "digest": "r2"}), target)
    assert result.inputs == made and "torch has changed since" in result.notes[0]


def test_a_change_of_the_code_replaces() -> None:
    target = Target("Succeeded")
    made, outs = first(target)
    result = checked(made, inputs(digest="d2", objects=objects(image="x:2")), target)
    assert not result.failures
    diff = calls.diff(outs, result.inputs)
    assert diff.changes and diff.replaces == ("generation",)


@pytest.mark.parametrize(
    ("news", "reason"),
    [
        ({"digest": "d2", "objects": objects(image="x:2")}, "containers[node].image"),
        ({"digest": "d2", "run": "2"}, "run '1' => '2'"),
        ({"digest": "d2", "secrets": {"j-env": {"A": "b"}}}, "a secret value changed"),
        ({"digest": "d2", "name": "k"}, "name default/j => default/k"),
    ],
)
def test_running_work_is_not_interrupted_by_accident(news: dict[str, Any], reason: str) -> None:
    target = Target("Running")
    made, _ = first(target)
    result = checked(made, inputs(**news), target)
    assert len(result.failures) == 1
    assert reason in result.failures[0] and "is Running since 1970-01-01 00:00:01 UTC" in result.failures[0]
    assert 'interrupt="allow"' in result.failures[0]
    assert not checked(made, inputs(**news, interrupt="allow"), target).failures
    target.jobs["j"].phase = "Failed"
    assert not checked(made, inputs(**news), target).failures
    assert [what for what, _ in target.asked] == ["create"]  # nothing was touched


def test_a_job_of_another_host_is_not_replaced() -> None:
    target = Target()
    made, _ = first(target)
    target.elsewhere = True
    assert checked(made, inputs(digest="d2", objects=objects(image="x:2")), target).failures == ("ran on another host",)


def test_suspending_is_an_update_in_place() -> None:
    target = Target("Running")
    made, outs = first(target)
    result = checked(made, inputs(digest="d2", objects=objects(suspend=True)), target)
    assert not result.failures
    diff = calls.diff(outs, result.inputs)
    assert diff.changes and not diff.replaces
    assert calls.update(outs, result.inputs, lambda _: target)["digest"] == "d2"


def test_an_unknown_value_is_no_difference_yet() -> None:
    target = Target("Running")
    made, outs = first(target)
    result = checked(made, inputs(digest=Unknown("x"), objects=objects(image=Unknown("x"))), target)
    assert not result.failures
    assert calls.diff(outs, result.inputs).changes is None


def test_a_changed_secret_is_seen_without_a_digest_of_it() -> None:
    target = Target("Succeeded")
    news = inputs(secrets={"j-env": {"A": "one"}})
    made = checked({}, news, target).inputs
    _, outs = calls.create(made, lambda _: target)
    assert "one" not in str(outs)
    result = checked(made, inputs(secrets={"j-env": {"A": "two"}}), target)
    assert calls.diff(outs, result.inputs).replaces == ("generation",)


def test_read_and_delete() -> None:
    target = Target("Succeeded")
    _, outs = first(target)
    assert calls.read(outs, lambda _: target) == outs
    target.jobs["j"].owner = "someone else"
    assert calls.read(outs, lambda _: target) is None
    calls.delete(outs, lambda _: target)
    assert target.asked[-1] == ("delete", "uid-1")


EDITS = [
    ("spec.suspend", "update", False),
    ("spec.ttlSecondsAfterFinished", "update", False),
    ("metadata.labels.team", "update", False),
    ("spec.replicatedJobs.0.template.spec.template.spec.nodeSelector.a", "replace", False),
    ("spec.replicatedJobs.0.template.spec.template.spec.nodeSelector.a", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.metadata.labels.x", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.spec.tolerations", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.spec.containers.0.image", "replace", True),
    ("spec.replicatedJobs.0.replicas", "replace", True),
    ("spec.successPolicy.operator", "replace", False),
    ("spec.failurePolicy", "update", False),
    ("spec.network.subdomain", "replace", False),
]


@pytest.mark.parametrize(("path", "effect", "suspended"), EDITS)
def test_what_may_change_in_place(path: str, effect: str, suspended: bool) -> None:
    old = objects(suspend=suspended)
    new = copy.deepcopy(old)
    *parents, last = path.split(".")
    value: Any = new["JobSet/j"]
    for part in parents:
        value = value[int(part)] if isinstance(value, list) else value.setdefault(part, {})
    value[last] = True if last == "suspend" else "changed"
    (change,) = compare(old, new)
    assert change.effect == effect, change


def test_a_failure_policy_comes_and_goes_and_stays_what_it_is() -> None:
    none, one, two = objects(), objects(failurePolicy={"maxRestarts": 1}), objects(failurePolicy={"maxRestarts": 2})
    for old, new, effect in ((none, one, "update"), (one, none, "update"), (one, two, "replace")):
        assert [c.effect for c in compare(old, new)] == [effect]


QUEUED = {"kueue.x-k8s.io/queue-name": "red", "kueue.x-k8s.io/priority-class": "low"}
LEVEL = "kueue.x-k8s.io/podset-required-topology"


def of_queue(
    labels: dict[str, str] | None = None, *, level: str = "", selector: str = "1", **spec: Any
) -> dict[str, Any]:
    found = objects(**spec)
    found["JobSet/j"]["metadata"]["labels"] = QUEUED if labels is None else labels
    template = found["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"a": selector}
    template["metadata"] = {"annotations": {LEVEL: level}} if level else {}
    return found


@pytest.mark.parametrize(
    ("change", "effect", "why"),
    [
        ({"kueue.x-k8s.io/queue-name": "blue"}, "waiting", "while the job waits"),
        ({"kueue.x-k8s.io/queue-name": ""}, "replace", "nobody would resume the job"),
        ({"kueue.x-k8s.io/priority-class": "high"}, "update", "at any time"),
        ({"kueue.x-k8s.io/priority-class": ""}, "replace", "cannot be taken"),
        ({"kueue.x-k8s.io/max-exec-time-seconds": "60"}, "waiting", "while the job waits"),
        ({"team": "red"}, "update", "at any time"),
    ],
)
def test_what_may_change_in_a_queue(change: dict[str, str], effect: str, why: str) -> None:
    """Held against the real server in tests/cluster/test_teams.py."""
    labels = {k: v for k, v in {**QUEUED, **change}.items() if v}
    (found,) = compare(of_queue(), of_queue(labels))
    assert found.effect == effect and why in found.why


def test_a_job_does_not_join_a_queue_later() -> None:
    (found,) = compare(of_queue({"team": "red"}), of_queue({"team": "red", "kueue.x-k8s.io/queue-name": "red"}))
    assert found.effect == "replace" and "from the start" in found.why


def test_kueue_reads_a_topology_once() -> None:
    (found,) = compare(of_queue(level="rack"), of_queue(level="block"))
    assert found.effect == "replace" and LEVEL in found.path and "does not read it again" in found.why
    (found,) = compare(of_queue(), of_queue(level="block"))
    assert found.effect == "replace"
    (found,) = compare(of_queue(level="rack"), of_queue(level="rack", selector="2"))
    assert found.effect == "waiting" and "nodeSelector" in found.path
    unknown = of_queue(level="rack")
    unknown["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = Unknown("u")
    assert compare(of_queue(level="rack"), unknown) == []


@pytest.mark.parametrize(
    ("phase", "replaced"), [("Queued", False), ("Running", True), ("Admitted", True), ("Succeeded", True)]
)
def test_what_only_a_waiting_job_may_change_depends_on_whether_it_waits(phase: str, replaced: bool) -> None:
    target = Target(phase)
    made = checked({}, inputs(objects=of_queue()), target).inputs
    calls.create(made, lambda _: target)
    blue = {**QUEUED, "kueue.x-k8s.io/queue-name": "blue"}
    news = inputs(objects=of_queue(blue), digest="d2", interrupt="allow")
    assert (checked(made, news, target).inputs["generation"] == 2) is replaced
    refused = checked(made, {**news, "interrupt": "refuse"}, target).failures
    assert bool(refused) == (replaced and phase != "Succeeded")
    if refused:
        assert "queue-name] (may change only while the job waits)" in refused[0]
    target.elsewhere = True
    assert checked(made, {**news, "interrupt": "refuse"}, target).failures == ("ran on another host",)


def test_names_fit_and_tell_stacks_apart() -> None:
    name = job_name("My_Job.2", "project", "dev")
    assert name.startswith("my-job-2-") and name != job_name("My_Job.2", "project", "prod")
    assert job_name("7b", "p", "s")[0].isalpha()
    assert digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})


def reached(**way: str) -> dict[str, Any]:
    return {"kind": "kubernetes", "cluster": "u-1", "sweep": "s", **way}


def test_another_way_to_the_cluster_is_written_down_and_nothing_is_sent() -> None:
    target = Target()
    made = checked({}, inputs(target=reached(content="old", context="c")), target).inputs
    outs = calls.create(made, lambda _: target)[1]
    assert outs["target"] == {"kind": "kubernetes", "cluster": "u-1", "content": "old", "context": "c"}
    news = checked(made, inputs(target=reached(kubeconfig="new")), target).inputs
    assert news["target"] == reached(kubeconfig="new")  # the engine would store what was secret in clear
    assert calls.diff(outs, news) == calls.Diff(True)
    after = calls.update(outs, news, lambda _: target)
    assert after == {**outs, "target": {"kind": "kubernetes", "cluster": "u-1", "kubeconfig": "new"}}
    assert [call for call, _ in target.asked] == ["create"]
    assert calls.diff(after, news) == calls.Diff(False)


def test_a_way_to_another_cluster_is_not_written_down() -> None:
    target = Target()
    made = checked({}, inputs(target=reached()), target).inputs
    outs = calls.create(made, lambda _: target)[1]
    news = checked(made, inputs(target=reached(kubeconfig="new")), target).inputs
    target.elsewhere = True
    with pytest.raises(Refused, match="another cluster"):
        calls.update(outs, news, lambda _: target)
