"""Rules of a platform team as policies of a real API server: it refuses the jobs that plans, files and policy packs refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.policy.admission_policies import render_policies
from pulumi_trainer.provider.trainer.policy.rules import JobRules, find_broken
from pulumi_trainer.provider.trainer.policy.summary import summarize

from .jobs import until

Document = dict[str, Any]
KINDS = {kind.kind: kind for kind in (ADMISSION_POLICY, ADMISSION_POLICY_BINDING)}
JOBS = 200
RULES = JobRules(
    registries=["ghcr.io/acme", "nvcr.io", "docker.io/library"],
    digests=False,
    gpus={"": 8, "high": 32},
    host_access=False,
    queue=True,
    checkpoints=["preemptible"],
)
IMAGES = (
    *["ghcr.io/acme/train:1", "python:3.12", "nvcr.io/nvidia/pytorch:26.01@sha256:" + "0" * 64] * 4,
    "docker.io/python", "index.docker.io/library/python", "EVIL/python",
    "ghcr.io/acme-evil/train", "ghcr.io.evil.com/acme/train", "nvcr.io:5000/a", "evil/python", "quay.io/a/b:1",
)  # fmt: skip


@contextmanager
def enforced(root: Client, namespace: str, rules: JobRules, refused: Document) -> Iterator[None]:
    """Have rules hold in a namespace. refused: A job that they refuse, to know from when on they hold."""
    made = render_policies(rules, f"rules-{namespace}", [namespace])
    try:
        for document in made:
            root.apply(KINDS[document["kind"]], document)
        until(lambda: answer(root, refused))
        yield
    finally:
        for document in reversed(made):
            root.delete(KINDS[document["kind"]], "", document["metadata"]["name"])


def answer(root: Client, job: Document) -> str:
    """Return the rule by which the server refuses a job; empty if it takes it."""
    try:
        root.apply(JOBSET if job["kind"] == "JobSet" else TRAIN_JOB, job, dry_run=True)
    except ApiError as error:
        before, denied, reason = str(error).partition("denied request: ")
        assert denied, before
        return reason.partition(":")[0]
    return ""


def a_container(made: random.Random, name: str) -> Document:
    container: Document = {"name": name, "image": made.choice(IMAGES)}
    gpus = made.choice([0, 0, 0, 1, 2, "4"])
    if gpus:
        part = made.choice(["limits", "limits", "both"])
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus, "cpu": "1"}}
        if part == "both":
            container["resources"]["requests"] = {"nvidia.com/gpu": gpus, "memory": "1Gi"}
    if made.random() < 0.03:
        container["securityContext"] = {"privileged": True}
    elif made.random() < 0.1:
        container["securityContext"] = {"privileged": False}
    elif made.random() < 0.1:
        added = made.choice(["SYS_ADMIN", "IPC_LOCK", "NET_BIND_SERVICE", "ALL"])
        container["securityContext"] = {"capabilities": {"add": [added]}}
    if made.random() < 0.03:
        container["ports"] = [{"containerPort": 1, "hostPort": 1}]
    if made.random() < 0.3:
        container["env"] = [{"name": made.choice(["TRAINER_CHECKPOINT_DIR", "OTHER"]), "value": "/x"}]
    return container


def a_job(made: random.Random, namespace: str, name: str) -> Document:
    """Return a JobSet of one or two steps, with what rules are about."""
    steps = []
    for place in range(made.choice([1, 1, 2])):
        pod: Document = {"containers": [a_container(made, "node")], "restartPolicy": "Never"}
        if made.random() < 0.3:
            pod["containers"].append(a_container(made, "logs"))
        if made.random() < 0.4:
            pod["initContainers"] = [a_container(made, "setup")]
            if made.random() < 0.5:
                pod["initContainers"][0]["restartPolicy"] = "Always"
        if made.random() < 0.05:
            pod[made.choice(["hostNetwork", "hostPID", "hostIPC"])] = made.choice([True, False])
        if made.random() < 0.1:
            pod["volumes"] = [{"name": "tools", "image": {"reference": made.choice(IMAGES)}}]
        elif made.random() < 0.05:
            pod["volumes"] = [{"name": "node", "hostPath": {"path": "/"}}, {"name": "empty", "emptyDir": {}}]
        job: Document = {"template": {"spec": pod}}
        if made.random() < 0.6:
            job["parallelism"] = job["completions"] = made.choice([1, 2, 4])
        if made.random() < 0.1:
            job["completions"] = 1
        step: Document = {"name": f"step{place}", "template": {"spec": job}}
        if made.random() < 0.3:
            step["replicas"] = made.choice([1, 2])
        steps.append(step)
    metadata: Document = {"name": name, "namespace": namespace}
    labels = {}
    if made.random() < 0.85:
        labels[QUEUE] = made.choice(["nlp", "nlp", "preemptible"])
    if made.random() < 0.3:
        labels[PRIORITY] = made.choice(["high", "low"])
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"suspend": True, "replicatedJobs": steps},
    }


def first_broken(rules: JobRules, job: Document) -> str:
    broken = find_broken(rules, summarize(job, job, 1, {"name": "torch"}, Queues()))
    return broken[0].rule if broken else ""


def foreign(namespace: str) -> Document:
    """Return a job that every set of rules of these tests refuses."""
    job = a_job(random.Random(0), namespace, "foreign")
    job["metadata"].pop("labels", None)
    job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil/a"
    return job


def test_the_server_and_the_plan_say_the_same_of_each_job(root: Client, namespace: str) -> None:
    made = random.Random(47)
    jobs = [a_job(made, namespace, f"job-{number}") for number in range(JOBS)]
    with enforced(root, namespace, RULES, foreign(namespace)):
        said = [(job, answer(root, job), first_broken(RULES, job)) for job in jobs]
    assert [(job, server, plan) for job, server, plan in said if server != plan] == []
    found = [plan for _, _, plan in said]
    assert {"", "registries", "gpus", "hostAccess", "queue", "checkpoints"} <= {*found}, found
    assert 20 < found.count("") < JOBS - 20


def test_digests(root: Client, namespace: str) -> None:
    made, rules = random.Random(48), JobRules(digests=True)
    jobs = [a_job(made, namespace, f"job-{number}") for number in range(20)]
    with enforced(root, namespace, rules, foreign(namespace)):
        assert [answer(root, job) for job in jobs] == [first_broken(rules, job) for job in jobs]


def test_what_runs_stays_until_it_gets_another_queue(root: Client, namespace: str) -> None:
    job = foreign(namespace)
    root.apply(JOBSET, job)
    with enforced(root, namespace, RULES, {**job, "metadata": {"name": "other", "namespace": namespace}}):
        root.patch(JOBSET, namespace, "foreign", {"metadata": {"annotations": {"note": "kept"}}})
        with pytest.raises(ApiError, match="registries: images must be from"):
            root.patch(JOBSET, namespace, "foreign", {"metadata": {"labels": {QUEUE: "other"}}})


def test_a_train_job_needs_the_queue_itself(root: Client, namespace: str) -> None:
    """Its JobSet, which the controller makes, has no label."""
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"containers": [{"name": "node", "image": "python:3.12"}]}
    step = {"name": "node", "template": {"metadata": {"labels": ancestor}, "spec": {"template": {"spec": pod}}}}
    runtime: Document = {
        "apiVersion": TRAINING_RUNTIME.api_version,
        "kind": "TrainingRuntime",
        "metadata": {"name": "plain", "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [step]}}},
    }
    job: Document = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "suspend": True},
    }
    root.apply(TRAINING_RUNTIME, runtime)
    with enforced(root, namespace, JobRules(queue=True), foreign(namespace)):
        with pytest.raises(ApiError, match="queue: the job needs a queue"):
            root.apply(TRAIN_JOB, job, dry_run=True)
        job["metadata"]["labels"] = {QUEUE: "nlp"}
        uid = root.apply(TRAIN_JOB, job)["metadata"]["uid"]
        made = until(lambda: root.get(JOBSET, namespace, "digits"))
        assert QUEUE not in made["metadata"].get("labels", {})
        forged = foreign(namespace)
        owner = {
            "apiVersion": TRAIN_JOB.api_version,
            "kind": "TrainJob",
            "name": "digits",
            "uid": uid,
            "controller": True,
        }
        forged["metadata"]["ownerReferences"] = [owner]
        assert answer(root, forged) == "queue", "the controller gives a JobSet the name of its TrainJob"


def test_runtimes_of_train_jobs(root: Client, namespace: str) -> None:
    """The runtimes need not exist: who refuses the job says why."""
    job: Document = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {"runtimeRef": {"name": "torch-none"}, "suspend": True},
    }
    (policy, binding) = render_policies(JobRules(runtimes=["torch-*", "jax.x"]), f"rules-{namespace}", [namespace])
    assert policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == ["trainjobs"]
    try:
        for document in (policy, binding):
            root.apply(KINDS[document["kind"]], document)
        job["spec"]["runtimeRef"]["name"] = "jaxax"
        until(lambda: "the runtime must be torch-* or jax.x" in refusal_of(root, job))
        job["spec"]["runtimeRef"]["name"] = "torch-none"
        assert "runtime 'torch-none' not found" in refusal_of(root, job)
    finally:
        for document in (binding, policy):
            root.delete(KINDS[document["kind"]], "", document["metadata"]["name"])


def refusal_of(root: Client, job: Document) -> str:
    with pytest.raises(ApiError) as refused:
        root.apply(TRAIN_JOB, job, dry_run=True)
    return str(refused.value)
