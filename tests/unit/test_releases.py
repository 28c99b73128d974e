"""What a release does to jobs, which jobs follow it, and what a channel's plan says of it."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import plain_jobs
import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle import runtimes as lifecycle_runtimes
from pulumi_trainer.provider.lifecycle.channels import Channels
from pulumi_trainer.provider.lifecycle.resource import StateCalls
from pulumi_trainer.provider.lifecycle.runtimes import RuntimeInputs
from pulumi_trainer.provider.lifecycle.state_format import FORMAT
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission import default_runtime
from pulumi_trainer.provider.trainer.catalog.versions import by_version, next_version, version_step
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.provider.trainer.runtime_releases import (
    Effect,
    compare,
    effects,
    effects_on,
    follow_refusal,
    level_of,
    taken_release,
)

Document = dict[str, Any]


def torch() -> Document:
    """With a bit of everything."""
    document = runtimes.load("torch-distributed")
    container(document).update(
        command=["sh"], env=[{"name": "A", "value": "1"}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )  # fmt: skip
    pod(document)["volumes"] = [{"name": "data", "emptyDir": {}}]
    return document


def step_of(document: Document, index: int = 0) -> Any:
    return document["spec"]["template"]["spec"]["replicatedJobs"][index]


def pod(document: Document) -> Any:
    return step_of(document)["template"]["spec"]["template"]["spec"]


def container(document: Document) -> Any:
    return pod(document)["containers"][0]


IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


def labelled(document: Document, key: str, part: str = "labels") -> None:
    document["spec"]["template"].setdefault("metadata", {}).setdefault(part, {})[key] = "x"


def sidecar(document: Document) -> None:
    pod(document)["containers"].append({"name": "metrics", "image": "m:1"})


def another_step(document: Document) -> None:
    found = copy.deepcopy(step_of(document))
    found["name"] = "check"
    found["template"]["metadata"]["labels"].clear()
    document["spec"]["template"]["spec"]["replicatedJobs"].append(found)


CHANGES: dict[str, tuple[str, Callable[[Document], Any]]] = {
    "nothing": ("none", lambda d: None),
    "release": ("none", lambda d: d["metadata"]["labels"].update({"pulumi-trainer.dev/release": "9.0.0"})),
    "digest": ("patch", lambda d: container(d).update(image=f"{IMAGE}@sha256:{'0' * 64}")),
    "label": ("patch", lambda d: labelled(d, "team.example/color")),
    "kueue label": ("major", lambda d: labelled(d, "kueue.x-k8s.io/queue-name")),
    "annotation": ("minor", lambda d: labelled(d, "team.example/color", "annotations")),
    "annotation of a controller": (
        "major", lambda d: labelled(d, "kueue.x-k8s.io/podset-required-topology", "annotations")
    ),
    "env added": ("minor", lambda d: container(d)["env"].append({"name": "B", "value": "1"})),
    "env first": ("minor", lambda d: container(d)["env"].insert(0, {"name": "B", "value": "1"})),
    "env from a Secret": (
        "major", lambda d: container(d)["env"].append({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})
    ),
    "env from a Secret or not": (
        "minor",
        lambda d: container(d)["env"].append(
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}
        ),
    ),
    "volume and mount": (
        "minor",
        lambda d: (
            pod(d)["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory"}}),
            container(d)["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"}),
        ),
    ),
    "claim": (
        "major", lambda d: pod(d)["volumes"].append({"name": "s", "persistentVolumeClaim": {"claimName": "shared"}})
    ),
    "port added": ("minor", lambda d: container(d).update(ports=[{"containerPort": 80}])),
    "toleration": ("minor", lambda d: pod(d).update(tolerations=[{"key": "gpu", "operator": "Exists"}])),
    "tag": ("major", lambda d: container(d).update(image="pytorch/pytorch:3")),
    "command": ("major", lambda d: container(d).update(command=["bash"])),
    "env removed": ("major", lambda d: container(d).update(env=[])),
    "env changed": ("major", lambda d: container(d)["env"][0].update(value="2")),
    "volume removed": ("major", lambda d: (pod(d).pop("volumes"), container(d).pop("volumeMounts"))),
    "nodes": ("major", lambda d: d["spec"]["mlPolicy"].update(numNodes=2)),
    "failure policy": ("major", lambda d: d["spec"]["template"]["spec"].update(failurePolicy={"maxRestarts": 1})),
    "gang": ("major", lambda d: d["spec"].update(podGroupPolicy={"coscheduling": {}})),
    "step added": ("major", another_step),
    "step renamed": ("major", lambda d: step_of(d).update(name="worker")),
    "sidecar": ("major", sidecar),
    "node selector": ("major", lambda d: pod(d).update(nodeSelector={"gpu": "h100"})),
    "resources": ("major", lambda d: container(d).update(resources={"limits": {"nvidia.com/gpu": 8}})),
    "launcher": ("major", lambda d: d["metadata"]["labels"].update({"trainer.kubeflow.org/framework": "jax"})),
}  # fmt: skip


@pytest.mark.parametrize(("level", "change"), CHANGES.values(), ids=CHANGES)
def test_levels(level: str, change: Callable[[Document], Any]) -> None:
    before, after = torch(), torch()
    change(after)
    found = compare(before, after, DEFAULT)
    assert level_of(found) == level, [str(e) for e in found]
    assert sorted(map(str, compare(before, after, DEFAULT))) == sorted(map(str, found)), "the same each time"
    if level == "minor":  # taking an addition back could break who uses it
        assert level_of(compare(after, before, DEFAULT)) == "major"


@pytest.mark.parametrize(
    ("old", "new", "level"),
    [
        ("team/torch:2", "team/torch:2@sha256:1", "patch"),
        ("team/torch:2@sha256:1", "team/torch:2@sha256:2", "patch"),
        ("team/torch", "team/torch@sha256:1", "patch"),
        ("team/torch@sha256:1", "team/torch@sha256:2", "major"),
        ("host:5000/torch@sha256:1", "host:5000/torch@sha256:2", "major"),
        ("team/torch@sha256:1", "team/torch", "major"),
    ],
)
def test_digests_without_a_tag_may_be_any_two_images(old: str, new: str, level: str) -> None:
    before, after = torch(), torch()
    container(before)["image"], container(after)["image"] = old, new
    assert level_of(compare(before, after, DEFAULT)) == level


def test_a_digest_of_a_flux_runtime_is_a_patch() -> None:
    """Flux refuses a job that does not say on how many nodes it runs."""
    before = runtimes.load("flux")
    after = copy.deepcopy(before)
    container(after)["image"] = f"{container(before)['image']}@sha256:{'0' * 64}"
    assert level_of(compare(before, after, DEFAULT)) == "patch"
    after["spec"]["mlPolicy"]["flux"]["numProcPerNode"] = 7
    assert level_of(compare(before, after, DEFAULT)) == "major"


def test_the_order_counts_where_it_has_a_meaning() -> None:
    before = torch()
    pod(before)["initContainers"] = [{"name": "download", "image": "x:1"}, {"name": "convert", "image": "x:1"}]
    after = copy.deepcopy(before)
    pod(after)["initContainers"].reverse()
    assert [str(e) for e in compare(before, after, DEFAULT)] == ["step[node].initContainers: has another order"]
    assert level_of(compare(before, after, DEFAULT)) == "major"
    for value, level in (("$(ROOT)/x", "major"), ("x", "none")):
        before = torch()
        container(before)["env"] = [{"name": "ROOT", "value": "/data"}, {"name": "DIR", "value": value}]
        after = copy.deepcopy(before)
        container(after)["env"].reverse()
        assert level_of(compare(before, after, DEFAULT)) == level


def test_the_largest_first_and_in_words() -> None:
    after = torch()
    for name in ("digest", "env added", "command"):
        CHANGES[name][1](after)
    assert [str(e) for e in compare(torch(), after, DEFAULT)][:2] == [
        'step[node].containers[node].command: ["sh"] => ["bash"]',
        'step[node].containers[node].env[B]: added {"name": "B", "value": "1"}',
    ]


def test_a_runtime_that_cannot_be_rendered_here() -> None:
    before = torch()
    before["spec"]["mlPolicy"] = {"numNodes": "two"}
    after = copy.deepcopy(before)
    assert compare(before, after, DEFAULT) == []
    CHANGES["command"][1](after)
    (effect,) = compare(before, after, DEFAULT)
    assert effect.level == "major" and "cannot be rendered here" in effect.what


def test_what_is_not_known_yet_is_no_difference() -> None:
    jobset = {"JobSet/job": {"spec": {"a": 1, "b": 2}}}
    assert effects(jobset, {"JobSet/job": {"spec": {"a": Unknown("x"), "b": 2}}}) == []
    assert effects(jobset, {}) == [Effect("major", "JobSet/job", "removed")]


def test_numbers() -> None:
    assert [version_step("1.2.3", other) for other in ("1.2.3", "1.2.4", "1.2.3-1", "1.3.0", "2.0.0", "0.9.0")] == [
        "none", "patch", "patch", "minor", "major", "major"
    ]  # fmt: skip
    assert [next_version("1.2.3-4", level) for level in ("patch", "minor", "major")] == ["1.2.4", "1.3.0", "2.0.0"]
    assert by_version("1.10.0") > by_version("1.9.0")


@pytest.mark.parametrize(
    ("follow", "after", "effect", "held"),
    [
        ("pin", "1.2.4", "patch", "pinned to 1.2.3"),
        ("pin", "1.2.3", "none", ""),
        ("patch", "1.2.4", "patch", ""),
        ("patch", "1.3.0", "none", "the change is minor"),
        ("patch", "1.2.4", "minor", "minor for this job, although its version number only announces patch"),
        ("minor", "1.3.0", "minor", ""),
        ("minor", "1.3.0", "major", "major for this job, although its version number only announces minor"),
        ("minor", "2.0.0", "none", "the change is major"),
        ("minor", "1.2.2", "none", "1.2.2 is older than its 1.2.3"),
        ("any", "1.2.2", "major", ""),
        ("any", "2.0.0", "major", ""),
    ],
)
def test_how_far_a_job_goes(follow: str, after: str, effect: Any, held: str) -> None:
    said = follow_refusal(follow, "1.2.3", after, effect)
    assert held in said and bool(said) is bool(held)
    assert follow_refusal("minor", "", after) == follow_refusal("minor", "by hand", after) == ""


@pytest.mark.parametrize(
    ("follow", "current", "offered", "withdrawn", "taken"),
    [
        ("minor", "1.0.0", "1.1.0", [], "1.1.0"),
        ("patch", "1.0.0", "2.0.0", [], "1.0.2"),
        ("patch", "1.0.0", "1.1.0", ["1.0.2"], "1.0.1"),
        ("minor", "1.0.0", "2.0.0", [], "1.1.0"),
        ("patch", "1.0.2", "2.0.0", [], "1.0.2"),
        ("pin", "1.0.0", "1.1.0", ["1.0.0"], "1.0.0"),
        ("minor", "1.0.2", "1.1.0", ["1.1.0"], "1.0.2"),
        ("any", "1.0.0", "2.0.0", ["2.0.0"], "1.1.0"),
        ("patch", "1.1.0", "1.0.1", [], "1.1.0"),
        ("patch", "1.1.0", "1.0.1", ["1.1.0"], "1.0.1"),
        ("patch", "1.1.0", "2.0.0", ["1.1.0"], "1.0.2"),
        ("patch", "1.0.0", "2.0.0", ["1.0.0", "1.0.1", "1.0.2"], "1.0.0"),
    ],
)
def test_which_release_a_job_takes(follow: str, current: str, offered: str, withdrawn: list[str], taken: str) -> None:
    known = ["1.0.0", "1.0.1", "1.0.2", "1.1.0", "2.0.0"]
    assert taken_release(follow, current, offered, known, withdrawn) == taken


# A job


class Target:
    """What is asked of a target here; it is its own jobs."""

    @property
    def jobs(self) -> Target:
        return self

    def __init__(self, phase: str = "Running", owner: str = "", consumers: tuple[Consumer, ...] = ()) -> None:
        self.phase, self.owner, self.found, self.asked = phase, owner, list(consumers), 0

    def status(self, namespace: str, name: str) -> JobStatus:
        self.asked += 1
        return JobStatus(name, namespace, owner=self.owner, phase=self.phase, started=1.0, created=1.0)

    def progress(self, status: JobStatus) -> None:
        """No job has reported any."""

    def runs(self, namespace: str, name: str) -> list[Run]:
        return []

    def current_owner(self, namespace: str, name: str) -> None:
        """Nobody has the name of a new job."""

    def presence(self, namespace: str, name: str, beside: Any) -> None:
        """What is there of a job is not asked here."""

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        self.asked += 1
        if self.phase == "gone":
            raise TargetFault("no route")
        return [c for c in self.found if c.runtime == runtime], ""

    def identity(self) -> dict[str, str]:
        return {}


def inputs(release: str, follow: str = "minor", digest: str = "d", **given: Any) -> dict[str, Any]:
    said = {"name": "torch", "digest": release, "release": release, "channel": "stable", "follow": follow}
    objects = {"JobSet/job": {"spec": {"release": release}}} if given.pop("broken", False) else {}
    jobset = {"JobSet/job": {"metadata": {"labels": {"release": release}}, **objects.get("JobSet/job", {})}}
    return {
        "namespace": "team", "name": "job", "digest": digest, "run": "1", "component": "urn", "runtime": said,
        "objects": jobset, "target": {"kind": "local"}, **given,
    }  # fmt: skip


def moved(after: str, target: Target, before: str = "1.2.3", **given: Any) -> plain_jobs.Checked[Any]:
    old = plain_jobs.check({}, inputs(before), lambda _: target).inputs
    target.owner = old["owner"]
    return plain_jobs.check(old, inputs(after, **given), lambda _: target)


@pytest.mark.parametrize(
    ("after", "given", "phase", "note", "replaced"),
    [
        ("1.3.0", {"follow": "pin"}, "Running", "No change: it is pinned to 1.2.3", False),
        ("1.3.0", {"follow": "patch"}, "Running", "No change: the change is minor for this job", False),
        (
            "1.3.0",
            {"broken": True},
            "Running",
            "No change: the change is major for this job, although its version number",
            False,
        ),
        ("1.2.2", {"interrupt": "allow"}, "Running", "No change: 1.2.2 is older", False),
        ("1.3.0", {}, "Running", "On its next run: another run= key", False),
        ("1.3.0", {"interrupt": "allow"}, "Succeeded", "On its next run: it is Succeeded", False),
        ("1.3.0", {"interrupt": "allow"}, "Failed", "On its next run: it is Failed", False),
        ("1.3.0", {"interrupt": "allow"}, "Running", "Replaced: it is Running", True),
        ("1.2.2", {"interrupt": "allow", "follow": "any"}, "Queued", "Replaced: it is Queued", True),
    ],
)
def test_a_job_when_its_channel_moves(after: str, given: dict[str, Any], phase: str, note: str, replaced: bool) -> None:
    target = Target(phase)
    checked = moved(after, target, **given)
    assert not checked.failures and note in checked.notes[0]
    assert checked.inputs["generation"] == 1 + replaced
    assert checked.inputs["runtime"]["release"] == (after if replaced else "1.2.3")
    asked = given.get("interrupt") == "allow" and not note.startswith("No change")
    assert target.asked == asked + replaced, "once more for what the job loses that is replaced"


def test_a_job_leaves_a_withdrawn_release() -> None:
    old = plain_jobs.check({}, inputs("1.2.3"), lambda _: Target("Running")).inputs
    news = inputs("1.2.2", follow="patch")
    news["runtime"]["left"] = "1.2.3"
    checked = plain_jobs.check(old, news, lambda _: Target("Running", owner=old["owner"]))
    assert "On its next run" in checked.notes[0] and checked.inputs["runtime"]["release"] == "1.2.3"
    again = plain_jobs.check(
        old, {**news, "run": "2", "digest": "another"}, lambda _: Target("Succeeded", owner=old["owner"])
    )
    assert not again.failures and again.inputs["runtime"]["release"] == "1.2.2"


def test_a_new_run_takes_the_release_of_its_channel() -> None:
    checked = moved("1.3.0", Target("Succeeded"), digest="another", run="2")
    assert not checked.failures and checked.inputs["runtime"]["release"] == "1.3.0"


@pytest.mark.parametrize(
    ("after", "follow"), [("1.2.2", "minor"), ("1.2.2", "pin"), ("2.0.0", "minor"), ("1.3.0", "patch")]
)
def test_a_new_run_never_takes_a_release_that_it_does_not_follow(after: str, follow: str) -> None:
    """Where the program could not render it with its own."""
    checked = moved(after, Target("Succeeded"), follow=follow, digest="another", run="2")
    assert "The job's own release 1.2.3 is not available" in checked.failures[0]


# A channel

CHANNELS = StateCalls(Channels())
OFFER = {"channel": "stable", "runtime": "torch", "target": {"kind": "local", "sweep": "ours"}, "component": "urn"}


def channel(release: str, releases: tuple[str, ...] = ("1.0.0", "1.1.0"), **given: Any) -> dict[str, Any]:
    document = torch()
    if release != "1.0.0":
        CHANGES["env added"][1](document)
    return {**OFFER, "release": release, "releases": list(releases), "document": document, "digest": release, **given}


def job(name: str, release: str = "1.0.0", follow: str = "minor", **given: Any) -> Consumer:
    return Consumer(f"team/{name}", "torch", release, given.pop("channel", "stable"), follow, **given)


def check(olds: Mapping[str, Any], news: Mapping[str, Any], *jobs: Consumer, phase: str = "") -> tuple[str, str]:
    checked = CHANNELS.check(dict(olds), dict(news), lambda _: Target(phase, consumers=jobs))
    return "\n".join(checked.notes), "\n".join(checked.failures)


def test_what_a_move_says() -> None:
    many = [job(f"job-{i:03}") for i in range(300)]
    others = [job("p", follow="pin"), job("mine", stack="ours", release="1.1.0"), job("x", channel="")]
    notes, failures = check(channel("1.0.0"), channel("1.1.0"), *many, *others)
    assert failures == ""
    assert "channel stable: torch 1.0.0 => 1.1.0: minor for jobs" in notes
    assert "minor step[node].containers[node].env[B]: added" in notes
    assert "jobs at this target that follow the channel: 302" in notes
    assert (
        "300 jobs on the next run (with interrupt=, at the next `pulumi up` of the job's stack): minor for jobs in general,"
        " as theirs cannot be read" in notes
    )
    assert "    team/job-000, team/job-001," in notes
    assert "team/job-009 and 290 more" in notes and "job-010" not in notes
    assert '1 job staying with 1.0.0 (follow="pin"): minor' in notes
    assert "1 job on 1.1.0 already\nchannel stable:     team/mine (of this stack)" in notes
    assert "without the channel, and keep their release: 1\nchannel stable:   team/x" in notes


SLOW = {"1.1.0": "torch@1.1.0 is withdrawn: it is slow"}
FOUR = ("1.0.0", "1.0.1", "1.1.0", "2.0.0")


def test_a_rollback_says_who_keeps_the_bad_release_and_who_leaves_it() -> None:
    jobs = [job("p", "1.1.0", "pin"), job("q", "1.1.0", "patch"), job("x", "1.1.0", channel="")]
    notes, failures = check(channel("1.1.0", FOUR), channel("1.0.1", FOUR, withdrawn=SLOW), *jobs)
    assert failures == "" and "channel stable: torch@1.1.0 is withdrawn: it is slow" in notes
    assert '1 job staying with 1.1.0, which is withdrawn (follow="pin"):' in notes
    assert "1 job keeping 1.1.0: without the channel\nchannel stable:     team/x" in notes
    assert "1 job on the next run (with interrupt=, at the next `pulumi up` of the job's stack):" in notes


def test_a_withdrawal_without_a_move_names_the_jobs() -> None:
    given = channel("2.0.0", FOUR)
    notes, _ = check(given, {**given, "withdrawn": SLOW}, job("q", "1.1.0", "patch"), job("r", "2.0.0"))
    assert 'taking 1.0.1 (follow="patch") on the next run' in notes and "team/q" in notes and "team/r" not in notes
    assert check({**given, "withdrawn": SLOW}, {**given, "withdrawn": SLOW}) == ("", "")


def test_who_follows_patches_takes_the_newest_one_of_its_line() -> None:
    notes, _ = check(channel("1.0.0", FOUR), channel("2.0.0", FOUR), job("q", "1.0.0", "patch"))
    assert '1 job taking 1.0.1 (follow="patch") on the next run' in notes


def test_a_channel_says_no_release_that_it_does_not_carry() -> None:
    lines = [f"1.{minor}.{patch}" for minor in range(12) for patch in (0, 1)]
    jobs = [job("far", "1.0.0", "patch"), job("near", "1.2.0", "patch")]
    notes, _ = check(channel("1.11.0", (*lines,)), channel("1.11.1", (*lines,)), *jobs)
    assert 'taking 1.2.1 (follow="patch") on the next run' in notes and "team/near" in notes
    assert 'staying with 1.0.0 (follow="patch")' in notes and "1.0.1" not in notes


def test_a_move_says_whose_run_it_ends() -> None:
    jobs = [job("a", interrupt="allow", runs=True), job("b", interrupt="refuse", runs=True), job("c", ended=True)]
    notes, _ = check(channel("1.0.0"), channel("1.1.0"), *jobs)
    assert 'at the next `pulumi up` of its stack, which ends its run (interrupt="allow")' in notes
    assert "2 jobs on the next run: minor" in notes


def live(before: Document, **given: Any) -> Document:
    """The JobSet of a job, as a cluster has it: with a server's defaults, and with what the job sets itself."""
    document = default_runtime(before, DEFAULT)
    spec = copy.deepcopy(document["spec"]["template"]["spec"])
    for step in spec["replicatedJobs"]:
        step["replicas"] = 1
        for each in step["template"]["spec"]["template"]["spec"]["containers"]:
            each |= {"terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent", **given}
    return {"metadata": {"name": "a", "namespace": "team", "labels": {}}, "spec": spec}


def test_the_difference_of_each_job_is_that_of_its_own_objects() -> None:
    """One has another image and command than the runtime, which the release changes."""
    old, new = torch(), torch()
    container(new).update(image="torch:2", command=["bash"])
    container(new)["env"].append({"name": "B", "value": "1"})
    plain_job = effects_on(live(old), old, new, DEFAULT)
    assert [effect.path.rpartition(".")[2] for effect in plain_job or ()] == ["command", "image", "env[B]"]
    own = effects_on(live(old, image="mine:1", command=["python"]), old, new, DEFAULT)
    assert [(effect.level, effect.path.rpartition(".")[2]) for effect in own or ()] == [("minor", "env[B]")]
    assert effects_on(live(old, env=[{"name": "B", "value": "mine"}]), old, new, DEFAULT) == (plain_job or [])[:2]
    assert effects_on(live(old), old, old, DEFAULT) == []
    removed = torch()
    pod(removed)["volumes"] = []
    (gone,) = effects_on(live(old), old, removed, DEFAULT) or ()
    assert gone.path.endswith("volumes[data]") and gone.what.startswith("removed")


def test_jobs_with_the_same_difference_are_one_group() -> None:
    before = torch()
    after = copy.deepcopy(before)
    container(after)["image"] = "torch:2"
    about: Any = {"program": "lab/dev", "queue": "gpus", "gpus": 16.0, "runs": True}
    jobs = [
        job("own", follow="any", jobset=live(before, image="mine:1")),
        job("a", follow="any", jobset=live(before), **about),
        job("b", follow="any", jobset=live(before)),
        job("gone", follow="any", queue="gpus", gpus=8.0),
    ]
    given = [{**channel("1.0.0"), "document": before}, {**channel("1.1.0"), "document": after}]
    notes = check(*given, *jobs)[0].replace("channel stable: ", "")
    when = "on the next run (with interrupt=, at the next `pulumi up` of the job's stack)"
    assert f"  2 jobs {when}: major\n    team/a (of lab/dev, queue gpus, 16 GPUs, runs now), team/b" in notes
    assert f"  1 job {when}: nothing changes in their objects\n    team/own" in notes
    assert notes.index("  2 jobs ") < notes.index("  1 job "), "the largest group first"
    assert (
        f"  1 job {when}: major for jobs in general, as theirs cannot be read\n    team/gone (queue gpus, 8 GPUs)"
        in notes
    )


def test_a_move_without_the_cluster() -> None:
    notes, failures = check(channel("1.0.0"), channel("1.1.0"), phase="gone")
    assert failures == "" and "1.0.0 => 1.1.0" in notes and "could not list the jobs that use it: no route" in notes
    assert "jobs at this target that follow the channel: unknown" in notes, "never 0"


@pytest.mark.parametrize(
    "fault", [TargetFault("no route"), ApiError(Problem("", "cannot list configmaps"), 403, {"reason": "Forbidden"})]
)
def test_a_channel_is_not_removed_where_nobody_may_see_who_uses_it(
    fault: TrainerError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview says it, with any role that may bring the stack up."""

    def consumers(_: str) -> tuple[list[Consumer], str]:
        raise fault

    target = Target()
    target.consumers = consumers  # type: ignore[method-assign]
    monkeypatch.setattr(queries, "connect", lambda _: target)
    outputs = {**CHANNELS.check({}, channel("1.0.0"), lambda _: Target()).inputs, "names": [], "format": FORMAT}
    (refused,) = queries.channel_refusals(outputs, lambda _: True)
    assert refused.where.startswith("channel ") and "whether jobs use it is not known" in refused.why
    assert "set force=True" in refused.hint


def test_nothing_is_asked_where_nothing_moves() -> None:
    target = Target()
    assert not CHANNELS.check(channel("1.0.0"), channel("1.0.0"), lambda _: target).notes and target.asked == 0


def test_a_release_in_use_is_not_removed() -> None:
    gone = channel("1.1.0", ("1.1.0",))
    _, failures = check(channel("1.1.0"), gone, job("a"), job("b", release="1.1.0"), job("c", ended=True))
    assert (
        "no longer has release 1.0.0, but 2 jobs use it, 1 of which may still run: team/a (1.0.0), team/c" in failures
    )
    assert "1 job uses it" in check(channel("1.1.0"), gone, job("a", channel=""))[1], "without the channel, too"
    assert check(channel("1.1.0"), gone, job("b", release="1.1.0")) == ("", "")
    assert check(channel("1.1.0"), {**gone, "force": True}, job("a")) == ("", "")


def test_a_channel_keeps_its_runtime() -> None:
    assert "create another channel" in check(channel("1.0.0"), {**channel("1.0.0"), "runtime": "jax"})[1]


def test_a_channel_in_use_is_not_removed() -> None:
    target = Target(consumers=(job("a"), job("x", channel="other")))
    id_, outputs = CHANNELS.create(channel("1.0.0"), lambda _: target)
    assert id_ == "stable" and "document" not in outputs
    with pytest.raises(Refused, match=r"1 job uses it, 1 of which may still run: team/a \(1.0.0\). Hint: remove"):
        CHANNELS.delete(outputs, lambda _: target)
    forced = CHANNELS.update(outputs, channel("1.0.0", force=True), lambda _: target)
    assert CHANNELS.diff(outputs, channel("1.0.0", force=True)).changes
    assert not CHANNELS.diff(outputs, channel("1.0.0")).changes and CHANNELS.diff(outputs, channel("1.1.0")).changes
    CHANNELS.delete(forced, lambda _: target)
    target.found.clear()
    CHANNELS.delete(outputs, lambda _: target)


def runtime_notes(olds: dict[str, Any], news: dict[str, Any], connect: Any) -> list[str]:
    before = RuntimeInputs.from_state(olds) if olds else None
    return lifecycle_runtimes.change_notes(before, RuntimeInputs.from_state(news), connect)


def test_what_a_changed_runtime_says() -> None:
    """Of mode trainer, which has one of each name."""
    old = {"document": torch(), "target": {}}
    new = copy.deepcopy(old)
    new["document"]["metadata"]["name"] = old["document"]["metadata"]["name"] = "torch"
    target = Target(consumers=(job("a"), job("b", channel="")))
    assert runtime_notes(old, new, lambda _: target) == [] and target.asked == 0
    assert runtime_notes({}, new, lambda _: target) == []
    later = copy.deepcopy(new)
    later["document"]["spec"]["mlPolicy"]["numNodes"] = Unknown("nodes")
    assert runtime_notes(old, later, lambda _: target) == []
    CHANGES["command"][1](new["document"])
    notes = "\n".join(runtime_notes(old, new, lambda _: target))
    assert "ClusterTrainingRuntime torch: it changes: major for jobs" in notes and '=> ["bash"]' in notes
    assert "2 jobs in this cluster that keep their current version until they run again: major for" in notes
    assert "team/a, team/b" in notes
    assert "could not list the jobs" in "\n".join(runtime_notes(old, new, lambda _: Target("gone")))


# An offer of another stack


def packed(documents: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(documents).encode())).decode()


def offered() -> dict[str, Any]:
    documents = packed({"2.3.0": runtimes.load("torch-distributed")})
    parts = {"channel": "stable", "runtime": "torch-distributed", "release": "2.3.0"}
    return {**parts, "documents": documents, "deprecated": {}, "withdrawn": {"2.3.0": "it is slow"}}


def test_an_offer_comes_back_as_it_was() -> None:
    from pulumi_trainer.plan.offer import Offer

    offer = Offer.read(offered())
    assert offer.documents == {"2.3.0": runtimes.load("torch-distributed")}
    assert Offer.read(json.loads(json.dumps(offer.output))) == offer


def test_an_offer_is_short() -> None:
    """It is printed at each `pulumi up` of the platform's stack."""
    from pulumi_trainer.plan.offer import Offer
    from pulumi_trainer.provider.trainer.runtime_releases import CARRIED

    documents = {f"1.{n}.0": runtimes.load("torchtune-llama3.2-1b") for n in range(CARRIED)}
    for number, document in documents.items():
        document["metadata"]["labels"]["pulumi-trainer.dev/release"] = number
    offer = Offer("stable", "torchtune-llama3.2-1b", "1.1.0", documents)
    assert len(json.dumps(documents)) > 20_000 and len(json.dumps(offer.output)) < 1_500
    assert Offer.read(offer.output) == offer


BOMB = packed("0" * 2**25)


@pytest.mark.parametrize(
    "change",
    [
        {"documents": packed({})}, {"documents": packed({"2.3.0": "x"})}, {"documents": packed({"../x": {}, "2.3.0": {}})},
        {"release": "9.9.9"}, {"channel": ""}, {"runtime": "other"}, {"more": 1}, {"deprecated": []},
        {"deprecated": {"2.3.0": "\x1b[2J"}}, {"withdrawn": {"2.3.0": "a\nb"}}, {"channel": "a\nb"},
        {"documents": packed(
            {"2.3.0": {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch-distributed"}, "spec": 1}})},
        {"documents": packed({"2.3.0": {"metadata": {"name": "torch-distributed"}}})},
        {"documents": {"2.3.0": runtimes.load("torch-distributed")}}, {"documents": "stable"}, {"documents": "e30="},
        {"documents": None}, {"documents": BOMB}, {"documents": offered()["documents"][:-24]},
    ],
)  # fmt: skip
def test_an_offer_that_is_none(change: dict[str, Any]) -> None:
    from pulumi_trainer.plan.offer import Offer

    with pytest.raises(Invalid):
        Offer.read({**offered(), **change})
    with pytest.raises(Invalid):
        Offer.read("stable")


def urn(stack: str) -> str:
    return f"urn:pulumi:{stack}::lab::trainer:index:RuntimeChannel::stable"


def test_a_channel_counts_no_jobs_of_a_channel_of_another_stack() -> None:
    jobs = job("own", channel_of="lab/dev"), job("theirs", channel_of="lab/second"), job("offered")
    target = Target(consumers=jobs)
    given = channel("1.0.0", component=urn("dev"))
    _, outputs = CHANNELS.create(given, lambda _: target)
    with pytest.raises(Refused, match=r"2 jobs use it, 2 of which may still run: team/offered .*, team/own"):
        CHANNELS.delete(outputs, lambda _: target)
    notes, _ = check(given, channel("1.1.0", component=urn("dev")), *jobs)
    assert (
        "jobs at this target that follow the channel: 2" in notes
        and "without the channel, and keep their release: 1" in notes
    )


def test_a_channel_of_a_renamed_stack_counts_the_jobs_of_before() -> None:
    target = Target(consumers=(job("before", channel_of="lab/dev"), job("after", channel_of="lab/prod")))
    inputs = channel("1.0.0", component=urn("dev"))
    _, outputs = CHANNELS.create(inputs, lambda _: target)
    for stack in ("prod", "main", "main"):
        changes = inputs["component"] != urn(stack)
        inputs = CHANNELS.check(inputs, channel("1.0.0", component=urn(stack)), lambda _: target).inputs
        assert CHANNELS.diff(outputs, inputs).changes is changes
        outputs = CHANNELS.update(outputs, inputs, lambda _: target)
    assert outputs["names"] == ["lab/main", "lab/dev", "lab/prod"]
    with pytest.raises(Refused, match="2 jobs use it"):
        CHANNELS.delete(outputs, lambda _: target)
