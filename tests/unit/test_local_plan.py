"""Environment, argv and folders of a container, without starting one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from local_support import config, container, jobset, python, step, submission
from pulumi_trainer.provider.kubernetes.errors import Refused
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local import machine
from pulumi_trainer.provider.targets.local.environment import base_environment, expand
from pulumi_trainer.provider.targets.local.plan import ContainerPlan, PodId, Site, output_folder, plan_pod
from pulumi_trainer.provider.trainer.labels import trainer_step


def site(**fields: Any) -> Site:
    given = {
        "root": Path("/root-folder"),
        "folder": Path("/root-folder/jobs/default/job"),
        "uid": "uid-1",
        "python": sys.executable,
        "environments": Path("/environments"),
        "user_environment": {"PATH": "/bin"},
    }
    return Site(**{**given, **fields})


def planned(
    document: dict[str, Any], *others: dict[str, Any], who: PodId | None = None, **fields: Any
) -> ContainerPlan:
    secrets = fields.pop("secrets", {})
    gpus = fields.pop("gpus", [])
    who = who or PodId("node", 0, 0)
    return plan_pod(submission(document, *others).objects, document, who, site(**fields), gpus, secrets).containers[-1]


def env_of(*variables: dict[str, Any], others: tuple[dict[str, Any], ...] = (), **fields: Any) -> dict[str, str]:
    more = fields.pop("container_fields", {})
    document = jobset(step(container_fields={"env": list(variables), **more}))
    return planned(document, *others, **fields).env


class TestExpansion:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y2"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(NO)", "$(NO)"),
            ("$(A", "$(A"),
            ("$(B)$(A$$$(", "2$(A$$("),
            ("$A ${A}", "$A ${A}"),
            ("$", "$"),
            ("$$", "$"),
        ],
    )
    def test_as_kubernetes_does_it(self, text: str, expected: str) -> None:
        assert expand(text, {"A": "1", "B": "2"}) == expected

    def test_variables_see_those_before_them(self) -> None:
        env = env_of(
            {"name": "LATE", "value": "$(BASE)"}, {"name": "BASE", "value": "b"}, {"name": "X", "value": "$(BASE)/x"}
        )
        assert (env["LATE"], env["X"]) == ("$(BASE)", "b/x")

    def test_argv_sees_all_of_the_spec_and_nothing_of_this_machine(self) -> None:
        document = jobset(
            step(command=["run", "$(A)", "$$(A)", "$(PATH)"], container_fields={"env": [{"name": "A", "value": "1"}]})
        )
        assert planned(document).argv == ["run", "1", "$(A)", "$(PATH)"]


class TestSources:
    def test_field_refs(self) -> None:
        labels = {"metadata": {"labels": {"mine": "L"}, "annotations": {"note": "N"}}}
        one = step(pods=2, replicas=2)
        one["template"]["spec"]["template"].update(labels)
        paths = {
            "NAME": "metadata.name",
            "NS": "metadata.namespace",
            "L": "metadata.labels['mine']",
            "N": "metadata.annotations['note']",
            "NONE": "metadata.labels['none']",
            "INDEX": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
            "IP": "status.podIP",
            "HOST": "status.hostIP",
            "JOBSET": "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
            "UID": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
            "RJOB": "metadata.labels['jobset.sigs.k8s.io/replicatedjob-name']",
            "REPLICAS": "metadata.labels['jobset.sigs.k8s.io/replicatedjob-replicas']",
            "GLOBAL": "metadata.labels['jobset.sigs.k8s.io/job-global-index']",
            "ALL": "metadata.labels['jobset.sigs.k8s.io/global-replicas']",
            "JOB": "metadata.annotations['jobset.sigs.k8s.io/job-index']",
            "ATTEMPT": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
            "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
        }
        one["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = [
            {"name": k, "valueFrom": {"fieldRef": {"fieldPath": v}}} for k, v in paths.items()
        ]
        document = jobset(step("data", replicas=3), one)
        env = planned(document, who=PodId("node", 1, 1, restarts=4), addresses={"job-node-1-1": "127.64.0.9"}).env
        expected = {
            "NAME": "job-node-1-1",
            "NS": "default",
            "L": "L",
            "N": "N",
            "NONE": "",
            "INDEX": "1",
            "IP": "127.64.0.9",
            "HOST": "127.0.0.1",
            "JOBSET": "job",
            "UID": "uid-1",
            "RJOB": "node",
            "REPLICAS": "2",
            "GLOBAL": "4",
            "ALL": "5",
            "JOB": "1",
            "ATTEMPT": "4",
            "JOB_NAME": "job-node-1",
        }
        assert {k: env[k] for k in expected} == expected
        assert (env["JOB_COMPLETION_INDEX"], env["HOSTNAME"]) == ("1", "job-node-1-1")

    def test_all_pods_of_an_attempt_have_one_job(self) -> None:
        """As in a cluster, where JobSet makes the Jobs anew for each attempt."""
        one = step("node", replicas=2, pods=2)
        ref = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}
        one["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "UID", "valueFrom": ref}]
        pods = [PodId("node", 0, 0), PodId("node", 0, 1), PodId("node", 1, 0), PodId("node", 0, 0, restarts=1)]
        first, second, other_job, later = [planned(jobset(one), who=pod).env["UID"] for pod in pods]
        assert first == second and len({first, other_job, later}) == 3

    @pytest.mark.parametrize(
        ("resource", "divisor", "expected"),
        [
            ("limits.cpu", None, "3"),
            ("limits.cpu", "1m", "2500"),
            ("requests.cpu", "1m", "500"),
            ("limits.memory", "1Mi", "1536"),
            ("requests.memory", "1Gi", "2"),
            ("requests.ephemeral-storage", None, "0"),
        ],
    )
    def test_resource_field_refs(self, resource: str, divisor: str | None, expected: str) -> None:
        ref = {"resource": resource, **({"divisor": divisor} if divisor else {})}
        limits = {"limits": {"cpu": "2500m", "memory": "1.5Gi"}, "requests": {"cpu": "500m"}}
        env = env_of({"name": "R", "valueFrom": {"resourceFieldRef": ref}}, container_fields={"resources": limits})
        assert env["R"] == expected

    def test_a_missing_limit_is_the_machine(self) -> None:
        env = env_of({"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}})
        assert int(env["R"]) == machine.memory() > 1 << 20

    def test_config_maps_and_secrets(self) -> None:
        data = config("settings", {"A": "1", "B": "/workspace/x"})
        env = env_of(
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "A"}}},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "Z", "optional": True}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "A", "value": "mine"},
            others=(data,),
            container_fields={
                "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "P_", "secretRef": {"name": "s"}}]
            },
            secrets={"s": {"k": "value"}},
        )
        assert (env["ONE"], env["TOKEN"], env["P_k"], env["A"], env["B"]) == (
            "1",
            "value",
            "value",
            "mine",
            "/workspace/x",
        )
        assert "NONE" not in env


class TestSurroundings:
    def test_only_what_describes_the_machine_goes_in(self) -> None:
        ours = {
            "HOME": "/h",
            "PATH": "/bin",
            "LC_ALL": "C",
            "https_proxy": "p",
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "PYTHONPATH": "/x",
        }
        assert base_environment(ours, "/env/bin/python") == {
            "HOME": "/h",
            "LC_ALL": "C",
            "https_proxy": "p",
            "PATH": f"/env/bin{os.pathsep}/bin",
        }

    @pytest.mark.parametrize(("limit", "threads"), [("2", "2"), ("1500m", "2"), ("100m", "1"), (None, None)])
    def test_a_cpu_limit_bounds_threads(self, limit: str | None, threads: str | None) -> None:
        more = {"resources": {"limits": {"cpu": limit}}} if limit else {}
        assert env_of(container_fields=more).get("OMP_NUM_THREADS") == threads
        own = env_of({"name": "OMP_NUM_THREADS", "value": "7"}, container_fields=more)
        assert own["OMP_NUM_THREADS"] == "7"

    def test_names_of_ours(self) -> None:
        env = env_of({"name": "GLOO_SOCKET_IFNAME", "value": "eth7"}, gpus=[2, 5])
        assert env["CUDA_VISIBLE_DEVICES"] == "2,5"
        assert env["GLOO_SOCKET_IFNAME"] == "eth7"
        assert env[code.ENVIRONMENTS_ENV] == "/environments"
        assert Path(env[code.LAYER_ENV]).name == "layer.py"
        assert env["PULUMI_TRAINER_JOB"] == "uid-1/job-node-0-0/node"
        assert env_of()["CUDA_VISIBLE_DEVICES"] == ""

    @pytest.mark.parametrize("name", ["python", "python3"])
    def test_python_is_the_interpreter_in_use(self, name: str) -> None:
        assert planned(jobset(step(command=[name, "x.py"])), python="/env/bin/python").argv == [
            "/env/bin/python",
            "x.py",
        ]

    def test_args_follow_the_command(self) -> None:
        one = planned(jobset(step(command=["a"], container_fields={"args": ["b", 3]})))
        assert one.argv == ["a", "b", "3"]

    @pytest.mark.parametrize("tag", ["", ":latest", ":v2.3.0@sha256:0123", "@sha256:0123"])
    @pytest.mark.parametrize("what", ["dataset", "model"])
    def test_entrypoints_of_the_catalogue(self, what: str, tag: str) -> None:
        image = f"ghcr.io/kubeflow/trainer/{what}-initializer{tag}"
        one = step(pod={"containers": [{"name": "init", "image": image, "args": ["x"]}]})
        expected = [sys.executable, "-m", "pulumi_trainer.provider.pod.initializers", what, "x"]
        assert planned(jobset(one), python="/other/bin/python").argv == expected


class TestMounts:
    MOUNTS: tuple[dict[str, Any], ...] = (
        {"name": "scratch", "mountPath": "/workspace"},
        {"name": "out", "mountPath": code.OUTPUT_PATH, "subPathExpr": "runs/$(RUN)"},
        {"name": "code", "mountPath": code.CODE_PATH},
        {"name": "token", "mountPath": "/token"},
        {"name": "host", "mountPath": "/host", "subPath": "sub"},
    )
    VOLUMES: tuple[dict[str, Any], ...] = (
        {"name": "scratch", "emptyDir": {}},
        {"name": "out", "persistentVolumeClaim": {"claimName": "claim-1"}},
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "token", "secret": {"secretName": "s"}},
        {"name": "host", "hostPath": {"path": "/usr"}},
    )

    def document(self, **fields: Any) -> dict[str, Any]:
        more = {"volumeMounts": list(self.MOUNTS), "env": [{"name": "RUN", "value": "7"}], **fields}
        return jobset(step(command=["x"], container_fields=more, pod={"volumes": list(self.VOLUMES)}))

    def test_folders(self) -> None:
        mounts = planned(self.document()).mounts
        pod = "/root-folder/jobs/default/job/pods/job-node-0-0/volumes"
        assert mounts == {
            "/workspace": f"{pod}/scratch",
            "/workspace/output": "/root-folder/volumes/default/claim-1/data/runs/7",
            "/etc/pulumi-trainer/code": f"{pod}/code",
            "/token": f"/dev/shm/pulumi-trainer-{os.getuid()}-uid-1/job-node-0-0/token",
            "/host": "/usr/sub",
        }

    @pytest.mark.parametrize("run", ["../../etc", "..", "a/../../b"])
    def test_an_expression_that_leaves_its_volume(self, run: str) -> None:
        with pytest.raises(Refused, match="leads out of its folder"):
            planned(self.document(env=[{"name": "RUN", "value": run}]))

    def test_an_expression_with_an_absolute_path_stays_in_its_volume(self) -> None:
        mounts = planned(self.document(env=[{"name": "RUN", "value": "/etc"}])).mounts
        assert mounts[code.OUTPUT_PATH] == "/root-folder/volumes/default/claim-1/data/runs/etc"

    def test_the_secrets_folder_is_in_no_job_folder(self) -> None:
        assert not planned(self.document()).mounts["/token"].startswith("/root-folder")

    def test_everything_literal_is_rewritten_and_secrets_are_not(self) -> None:
        env = [
            {"name": "RUN", "value": "7"},
            {"name": "OUT", "value": "/workspace/output/model"},
            {"name": "REF", "value": "$(OUT).pt"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]
        document = self.document(args=["--out=$(OUT)"], workingDir="/workspace/sub", env=env)
        one = planned(document, secrets={"s": {"k": "/workspace/output"}})
        out = "/root-folder/volumes/default/claim-1/data/runs/7/model"
        assert (one.env["OUT"], one.env["REF"], one.argv) == (out, f"{out}.pt", ["x", f"--out={out}"])
        assert one.env["SECRET"] == "/workspace/output"
        assert str(one.cwd).endswith("/volumes/scratch/sub")

    def test_the_output_folder_of_rank_0(self) -> None:
        document = self.document()
        assert output_folder(document, submission(document).objects, site()).endswith("/claim-1/data/runs/7")
        plain = jobset(step())
        assert output_folder(plain, submission(plain).objects, site()) == ""

    def test_claims_of_volume_claim_policies(self) -> None:
        policies = [{"templates": [{"metadata": {"name": "cache"}, "spec": {}}]}]
        mounted = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
        one = planned(jobset(step(container_fields=mounted), volumeClaimPolicies=policies))
        assert one.mounts == {"/cache": "/root-folder/volumes/default/cache-job/data"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("a"), step("node"), step("b")], "node"),
        ([step("a"), step("b")], "b"),
        ([{**step("a")}, step("node")], "node"),
    ],
)
def test_the_step_of_rank_0(steps: list[dict[str, Any]], expected: str) -> None:
    assert trainer_step(jobset(*steps)) == expected
    steps[0]["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    assert trainer_step(jobset(*steps)) == "a"


def test_a_second_container_has_its_own_mounts() -> None:
    containers = [
        container(python("1"), "first", volumeMounts=[{"name": "v", "mountPath": "/a"}]),
        container(["x", "/a", "/b"], "second", volumeMounts=[{"name": "v", "mountPath": "/b"}]),
    ]
    pod = {"containers": containers, "volumes": [{"name": "v", "emptyDir": {}}]}
    assert planned(jobset(step(pod=pod))).argv[1] == "/a"
