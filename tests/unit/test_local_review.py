"""What the Local target refuses, and what it warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_support import config, container, jobset, step, submission
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.targets.local import LocalTarget, local_limits, volumes
from pulumi_trainer.provider.targets.local.machine import cpus, memory

POD = r"JobSet/job: spec\.replicatedJobs\[node\]\.template\.spec\.template\.spec"


def refused(document: dict[str, Any], *others: dict[str, Any], secrets: local_limits.Keys | None = None) -> list[str]:
    return [str(p) for p in local_limits.refusals(submission(document, *others).objects, secrets)]


def of_env(**value_from: Any) -> dict[str, Any]:
    return jobset(step(container_fields={"env": [{"name": "A", "valueFrom": value_from}]}))


def of_volume(**volume: Any) -> dict[str, Any]:
    return jobset(step(pod={"volumes": [{"name": "v", **volume}]}))


def of_mount(**mount: Any) -> dict[str, Any]:
    fields = {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    return jobset(step(container_fields=fields, pod={"volumes": [{"name": "v", "emptyDir": {}}]}))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            jobset(step(), managedBy="kueue.x-k8s.io/multikueue"),
            "JobSet/job: spec.managedBy: kueue.x-k8s.io/multikueue manages",
        ),
        (
            jobset(step(), failurePolicy={"restartStrategy": "InPlaceRestart"}),
            "JobSet/job: spec.failurePolicy.restartStrategy: the Local target does not support InPlaceRestart",
        ),
        (
            jobset(step(), failurePolicy={"rules": [{"action": "RestartJob"}]}),
            "JobSet/job: spec.failurePolicy.rules[0].action: the Local target does not support RestartJob",
        ),
        (
            jobset(step(job={"completionMode": "NonIndexed"})),
            "completionMode: the Local target does not support NonIndexed",
        ),
        (
            jobset(step(pod={"resourceClaims": [{"name": "a"}]})),
            "resourceClaims: the Local target does not support resource claims",
        ),
        (
            of_volume(nfs={"server": "s", "path": "/p"}),
            "volumes[v].nfs: the Local target does not support this kind of volume",
        ),
        (of_volume(hostPath={"path": "/no/such/folder"}), "volumes[v].hostPath.path: /no/such/folder does not exist"),
        (
            of_volume(projected={"sources": [{"serviceAccountToken": {}}]}),
            "volumes[v].projected.sources[0].serviceAccountToken:",
        ),
        (of_volume(configMap={"name": "none"}), "volumes[v].configMap: ConfigMap none is not part of the job"),
        (of_volume(secret={"secretName": "none"}), "volumes[v].secret: Secret none is not part of the job"),
        (of_mount(mountPath="/"), "mountPath: must not be the root folder"),
        (of_mount(name="w"), "volumeMounts[0].name: the pod has no volume w"),
        (
            jobset(step(container_fields={"volumeDevices": [{}]})),
            "volumeDevices: the Local target does not support block devices",
        ),
        (
            jobset(step(container_fields={"workingDir": "/no/such"})),
            "workingDir: /no/such is neither a folder of this machine",
        ),
        (
            jobset(step(container_fields={"resources": {"limits": {"amd.com/gpu": 1}}})),
            "resources: the Local target does not provide amd.com/gpu",
        ),
        (
            jobset(step(pod={"containers": [{"name": "node", "image": "pytorch/pytorch:2"}]})),
            "command: what image pytorch/pytorch:2 starts",
        ),
        (of_env(fileKeyRef={"path": "a"}), "env[A].valueFrom.fileKeyRef: is not supported by the Local target"),
        (
            of_env(fieldRef={"fieldPath": "spec.restartPolicy"}),
            "env[A].valueFrom.fieldRef: spec.restartPolicy is not supported by the Local target",
        ),
        (of_env(configMapKeyRef={"name": "settings", "key": "b"}), "ConfigMap settings has no key b"),
        (
            of_env(secretKeyRef={"name": "hub", "key": "k"}),
            "Secret hub is not part of the job, and the Local target has no cluster to read it from. Hint: pass",
        ),
        (of_env(secretKeyRef={"name": "creds", "key": "k"}), "Secret creds has no key k"),
        (
            jobset(step(container_fields={"envFrom": [{"secretRef": {"name": "hub"}}]})),
            "envFrom[0].secretRef: Secret hub is not part",
        ),
    ],
)
def test_refusals(document: dict[str, Any], said: str) -> None:
    found = refused(document, config("settings", {"a": "1"}), secrets={"creds": ["token"]})
    assert len(found) == 1, found
    assert said in found[0]
    assert "Hint: " in found[0]


@pytest.mark.parametrize(
    "document",
    [
        jobset(step()),
        jobset(step(), managedBy=local_limits.CONTROLLER),
        of_env(secretKeyRef={"name": "hub", "key": "k", "optional": True}),
        of_env(configMapKeyRef={"name": "settings", "key": "a"}),
        of_env(fieldRef={"fieldPath": "metadata.labels['a']"}),
        of_env(resourceFieldRef={"resource": "limits.cpu"}),
        of_mount(subPath="a/b"),
        jobset(
            step(
                container_fields={"workingDir": "/v/sub", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                pod={"volumes": [{"name": "v", "emptyDir": {}}]},
            )
        ),
        jobset(step(container_fields={"workingDir": "/"})),
        jobset(
            step(
                pod={
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{}],
                    "securityContext": {"runAsUser": 1000},
                    "affinity": {},
                }
            )
        ),
        jobset(step(pod={"containers": [{"name": "d", "image": "ghcr.io/kubeflow/trainer/dataset-initializer"}]})),
    ],
)
def test_what_can_be_done(document: dict[str, Any]) -> None:
    assert refused(document, config("settings", {"a": "1"}), secrets={}) == []


def test_secrets_are_judged_when_they_are_known() -> None:
    assert refused(of_env(secretKeyRef={"name": "hub", "key": "k"})) == []


def test_secret_volumes_need_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = of_volume(secret={"secretName": "creds"})
    assert refused(document, secrets={"creds": ["a"]}) == []
    monkeypatch.setattr(volumes, "MEMORY", tmp_path / "none")
    [found] = refused(document, secrets={"creds": ["a"]})
    assert "a Secret must not be written to a disk" in found


def test_every_container_and_step_is_looked_at() -> None:
    bad = [{"name": "c", "image": "x"}]
    document = jobset(step("a", pod={"initContainers": bad}), step("b", pod={"containers": bad * 2}))
    assert len(refused(document)) == 3
    assert refused(document)[0].startswith(
        "JobSet/job: spec.replicatedJobs[a].template.spec.template.spec.initContainers[c].command: "
    )


def test_more_pods_than_any_machine_starts(local: LocalTarget) -> None:
    (refusal,), _ = local.jobs.review(submission(jobset(step(pods=20_000_000))).objects)
    assert str(refusal).startswith(
        "JobSet/job: needs 20000000 Pods at one time, but the Local target starts at most 1000"
    )
    assert local.jobs.review(submission(jobset(step(pods=1000))).objects)[0] == []


def test_more_open_files_than_a_process_may_have(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_limits, "open_files", lambda: 1024)
    (refusal,), _ = local.jobs.review(submission(jobset(step(pods=520))).objects)
    assert str(refusal).startswith(
        "JobSet/job: needs 1624 open files for its Pods at one time, but a process may have 1024 here (`ulimit -Hn`)"
    )
    assert local.jobs.review(submission(jobset(step(pods=320))).objects)[0] == []


class TestWarnings:
    def test_beyond_the_machine(self, local: LocalTarget) -> None:
        wanted = {"requests": {"cpu": str(cpus()), "memory": str(memory() // 2 + 1)}}
        refusals, warnings = local.jobs.review(
            submission(jobset(step(pods=2, container_fields={"resources": wanted}))).objects
        )
        assert refusals == []
        cpu, ram = map(str, warnings)
        assert cpu.startswith(
            f"JobSet/job: cpu: requests {2 * cpus()} CPUs at one time, but this machine has {cpus()}. Hint: "
        )
        assert ram.startswith("JobSet/job: memory: requests ")

    def test_within_it(self, local: LocalTarget) -> None:
        wanted = {"limits": {"cpu": "500m", "memory": "16Mi"}}
        assert local.jobs.review(submission(jobset(step(container_fields={"resources": wanted}))).objects) == ([], [])

    def test_steps_after_each_other_are_not_added(self) -> None:
        wanted = {"resources": {"requests": {"cpu": cpus()}}}
        needed = [{"name": "a", "status": "Complete"}]
        document = jobset(step("a", container_fields=wanted), step("b", container_fields=wanted, dependsOn=needed))
        assert local_limits.warnings(submission(document).objects) == []

    @pytest.mark.parametrize("field", ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"])
    def test_what_is_left_out(self, field: str) -> None:
        document = jobset(step(container_fields={field: {"tcpSocket": {"port": 1}}}))
        [warning] = local_limits.warnings(submission(document).objects)
        assert f"{field}: is not run by the Local target" in str(warning)


def test_unknown_leaves_are_not_judged(local: LocalTarget) -> None:
    unknown: Any = Unknown("x")
    fields = {
        "image": unknown,
        "command": None,
        "args": [unknown, "a"],
        "env": [
            {"name": "A", "value": unknown},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": unknown, "key": unknown}}},
        ],
        "resources": {"limits": {"cpu": unknown, "nvidia.com/gpu": unknown}},
        "volumeMounts": [{"name": "v", "mountPath": unknown, "subPath": unknown}, unknown],
        "workingDir": unknown,
        "envFrom": unknown,
    }
    one = {k: v for k, v in {**container([]), **fields}.items() if v is not None}
    pod = {
        "containers": [one],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": unknown}}, {"name": "w", "hostPath": unknown}],
    }
    document = jobset(step(pod=pod, job={"parallelism": unknown, "completions": unknown}), suspend=unknown)
    assert local.jobs.review(
        submission(document, {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": unknown}).objects
    ) == ([], [])
    assert local.jobs.review({"JobSet/job": unknown}) == ([], [])
