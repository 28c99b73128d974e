"""`usage` of jobs in a real queue, while they run and after their JobSets are gone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from pulumi_trainer.provider.jobs.usage import USER as USER_OF_JOB
from pulumi_trainer.provider.jobs.usage import current_user
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.lifecycle.usage_sums import month_of
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SUMS_NAME
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.policy.admission_policies import render_user_policy

from . import least
from .conftest import USER
from .jobs import jobset, pod_template, slip, submission, until
from .test_queue import client, queue  # noqa: F401 (fixtures)

Document = dict[str, Any]
_ADMISSION = "admissionregistration.k8s.io/v1"
POLICY = Kind(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", False)
BINDING = Kind(_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", False)


def usage(kubeconfig: Path, *arguments: str) -> Document:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "usage", "--kubeconfig", str(kubeconfig), "-o", "json"]
    done = subprocess.run([*argv, *arguments], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: Document = json.loads(done.stdout)
    return found


def in_queue(name: str, cpus: int, queue: str, **simulate: str) -> Document:  # noqa: F811
    job = jobset(name, simulate=simulate)
    job["metadata"]["labels"] = {QUEUE: queue}
    pod_template(job)["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpus)}}
    return job


def test_jobs_count_while_they_run_and_after_they_are_gone(
    root: Client,
    client: Client,  # noqa: F811
    namespace: str,
    queue: str,  # noqa: F811
    user_kubeconfig: Path,
) -> None:
    slip(root, submission(namespace, in_queue("endless", 2, queue, outcome="forever"), code=False))
    place = ("-n", namespace, "--by", "queue")
    running = until(lambda: usage(user_kubeconfig, *place)["rows"])
    assert [(row["queue"], row["jobs"], row["running"]) for row in running] == [(f"{namespace}/{queue}", 1, 1)]
    until(lambda: usage(user_kubeconfig, *place)["total"]["cpuHours"] >= 0.001)
    slip(root, submission(namespace, in_queue("waits", 2, queue, run="2s"), code=False))
    assert usage(user_kubeconfig, "-n", namespace)["total"]["running"] == 1, "the other one waits"
    root.delete(JOBSET, namespace, "endless", propagation="Background")
    target = KubernetesTarget(client, cluster=lambda: "", mode="jobset", namespace=namespace)
    until(lambda: (found := target.jobs.status(namespace, "waits")) is not None and found.phase == "Succeeded")
    record = root.get(CONFIG_MAP, namespace, "waits")
    assert record is not None
    kept = json.loads(record["data"]["usage"])
    assert (kept["user"], kept["queue"], kept["cpus"]) == (current_user(), queue, 2)
    assert kept["since"] <= float(record["data"]["finished"])
    before = usage(user_kubeconfig, "-n", namespace, "--by", "job")
    root.delete(JOBSET, namespace, "waits", propagation="Background")
    until(lambda: root.get(JOBSET, namespace, "waits") is None)
    after = usage(user_kubeconfig, "-n", namespace, "--by", "job")
    rows = {row["job"]: row for row in after["rows"]}
    assert rows[f"{namespace}/waits"] in before["rows"]
    assert rows[f"{namespace}/endless"]["incomplete"] == 1, "nobody has seen its end"


def test_the_user_whom_the_api_server_names(
    root: Client,
    client: Client,  # noqa: F811
    namespace: str,
    user_kubeconfig: Path,
) -> None:
    policy, binding = render_user_policy(f"users-{namespace}", [namespace])
    account = f"system:serviceaccount:{namespace}:{USER}"
    shown = f"{account} (annotated)"

    def user_of(name: str, kind: Kind = JOBSET) -> str | None:
        found: str | None = (root.get(kind, namespace, name) or {})["metadata"].get("annotations", {}).get(USER_OF_JOB)
        return found

    def users() -> set[str]:
        return {row["user"] for row in usage(user_kubeconfig, "-n", namespace, "--by", "user")["rows"]}

    try:
        root.apply(POLICY, policy)
        root.apply(BINDING, binding)
        forged = jobset("forged", simulate={"outcome": "forever"})
        forged["metadata"]["annotations"] = {USER_OF_JOB: "somebody-else"}

        def tried() -> str | None:
            root.delete(JOBSET, namespace, "forged", propagation="Background")
            until(lambda: root.get(JOBSET, namespace, "forged") is None)
            client.create(JOBSET, {**forged, "metadata": {**forged["metadata"], "namespace": namespace}})
            return user_of("forged")

        until(lambda: tried() == account)  # once the server has read the policy
        root.patch(JOBSET, namespace, "forged", {"metadata": {"annotations": {USER_OF_JOB: "somebody-else"}}})
        assert user_of("forged") == account
        root.patch(JOBSET, namespace, "forged", {"metadata": {"annotations": {USER_OF_JOB: None}}})
        assert user_of("forged") == account, "nobody takes the name out either"
        slip(client, submission(namespace, jobset("waits", simulate={"run": "2s"}), code=False))
        assert until(users) == {shown}
        target = KubernetesTarget(client, cluster=lambda: "", mode="jobset", namespace=namespace)
        until(lambda: (found := target.jobs.status(namespace, "waits")) is not None and found.phase == "Succeeded")
        record = root.get(CONFIG_MAP, namespace, "waits")
        assert record is not None
        kept = json.loads(record["data"]["usage"])
        assert (kept["user"], kept["annotated"]) == (account, True)
        train_job = {
            "apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": {"name": "digits", "namespace": namespace},
            "spec": {"runtimeRef": {"name": "torch-none"}, "suspend": True},
        }  # fmt: skip
        with pytest.raises(ApiError, match=r"torch-none.* not found"):
            root.apply(TRAIN_JOB, train_job, dry_run=True)  # the policy itself takes it
    finally:
        for kind, document in ((BINDING, binding), (POLICY, policy)):
            root.delete(kind, "", document["metadata"]["name"])


def test_what_deleted_jobs_have_used_stays(
    root: Client,
    client: Client,  # noqa: F811
    namespace: str,
    queue: str,  # noqa: F811
    user_kubeconfig: Path,
) -> None:
    def cpu_hours() -> float:
        return float(usage(user_kubeconfig, "-n", namespace)["total"]["cpuHours"] or 0)

    target = KubernetesTarget(client, cluster=lambda: "", mode="jobset", namespace=namespace)
    slip(root, submission(namespace, in_queue("endless", 2, queue, outcome="forever"), code=False))
    slip(root, submission(namespace, in_queue("waits", 2, queue, outcome="forever"), code=False))
    until(lambda: cpu_hours() >= 0.001)
    assert target.jobs.delete(namespace, "waits") is None
    assert root.get(CONFIG_MAP, namespace, SUMS_NAME) is None, "it has used nothing"
    before = cpu_hours()
    assert target.jobs.delete(namespace, "endless") is None
    found = usage(user_kubeconfig, "-n", namespace, "--by", "queue")
    (row,) = found["rows"]
    assert (row["queue"], row["jobs"], row["running"]) == (f"{namespace}/{queue}", 1, 0)
    assert row["cpuHours"] >= before
    assert target.jobs.delete(namespace, "endless") is None
    assert usage(user_kubeconfig, "-n", namespace)["total"]["cpuHours"] == row["cpuHours"]
    sums = root.get(CONFIG_MAP, namespace, SUMS_NAME)
    assert sums is not None
    (kept,) = json.loads(sums["data"][month_of(time.time())])
    assert (kept["user"], kept["queue"], kept["jobs"]) == (current_user(), queue, 1)


def test_the_permissions_for_all_namespaces(
    root: Client, admin: ApiClient, namespace: str, user_kubeconfig: Path
) -> None:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "usage", "-A", "--kubeconfig", str(user_kubeconfig)]

    def is_refused() -> bool:  # a server that has just started is named instead
        refused = subprocess.run(argv, capture_output=True, text=True, check=False)
        return refused.returncode == 1 and "rbac --usage" in refused.stderr

    until(is_refused)
    least.grant(admin, namespace, USER, [*least.EVERYTHING, *rbac.usage_permissions()])
    assert usage(user_kubeconfig, "-A")["unseen"] == []
