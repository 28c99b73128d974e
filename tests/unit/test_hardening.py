"""`hardening="restricted"`: what Pods get, in both modes, and which runtimes cannot have it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan import runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.kubernetes import pod_security
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.trainer.pipeline.hardening import MANAGER
from pulumi_trainer.runtimes import BUILT_IN

Document = dict[str, Any]
PROFILE = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pod(security: Any = None, *, context: Any = None, **spec: Any) -> Document:
    container: Document = {"name": "node", "image": "i"} | ({} if security is None else {"securityContext": security})
    return {"containers": [container], **({} if context is None else {"securityContext": context}), **spec}


def work() -> None:
    print("work")


class TestPods:
    def test_a_pod_that_says_nothing_gets_all_of_it(self) -> None:
        given = pod()
        made = pod_security.harden(given)
        assert made["automountServiceAccountToken"] is False
        groups = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}
        assert made["securityContext"] == {**PROFILE, "runAsUser": 1000, "runAsGroup": 1000, **groups}
        (container,) = made["containers"]
        assert container["securityContext"] == CONTAINER
        assert container["env"] == [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "nonroot"}]
        assert container["volumeMounts"] == [{"name": "writable-tmp", "mountPath": "/tmp"}]
        assert made["volumes"] == [{"name": "writable-tmp", "emptyDir": {}}]
        assert [*pod_security.violations(made)] == [] and len([*pod_security.violations(given)]) == 5
        assert given == pod(), "the spec is not changed"
        assert pod_security.harden(made) == made

    @pytest.mark.parametrize(
        ("container", "whole"), [({"runAsUser": 65532}, None), (None, {"runAsUser": 7}), (None, {"runAsNonRoot": True})]
    )
    def test_the_user_of_a_runtime_stays_with_its_home(self, container: Any, whole: Any) -> None:
        made = pod_security.harden(pod(container, context=whole))
        assert "env" not in made["containers"][0] and "volumes" not in made
        assert made["securityContext"].get("runAsUser") == (whole or {}).get("runAsUser")
        assert made["containers"][0]["securityContext"] == {**(container or {}), **CONTAINER}
        assert [*pod_security.violations(made)] == []

    def test_only_containers_that_name_no_user_get_one(self) -> None:
        spec = pod({"runAsUser": 5})
        spec["initContainers"] = [{"name": "init", "image": "i", "env": [{"name": "HOME", "value": "/data"}]}]
        made = pod_security.harden(spec)
        assert "runAsUser" not in made["securityContext"]
        (init,) = made["initContainers"]
        assert init["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, **CONTAINER}
        assert init["env"] == [{"name": "USER", "value": "nonroot"}, {"name": "HOME", "value": "/data"}]
        assert [*pod_security.violations(made)] == []

    def test_what_is_as_strict_stays(self) -> None:
        context = {
            "runAsUser": 7, "fsGroup": 8, "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
        }  # fmt: skip
        capabilities = {"drop": ["NET_RAW"], "add": ["NET_BIND_SERVICE"]}
        made = pod_security.harden(pod({"capabilities": capabilities}, context=context, volumes=[{"name": "v"}]))
        assert made["securityContext"] == {"runAsNonRoot": True, **context}
        assert made["containers"][0]["securityContext"]["capabilities"] == {**capabilities, "drop": ["ALL"]}
        assert made["volumes"] == [{"name": "v"}] and [*pod_security.violations(made)] == []

    def test_a_mount_at_tmp_stays(self) -> None:
        spec = pod()
        spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/tmp/"}]
        made = pod_security.harden({**spec, "volumes": [{"name": "v", "emptyDir": {}}]})
        assert made["volumes"] == [{"name": "v", "emptyDir": {}}]
        assert made["containers"][0]["volumeMounts"] == [{"name": "v", "mountPath": "/tmp/"}]

    @pytest.mark.parametrize(
        ("spec", "violation"),
        [
            (pod({"privileged": True}), "privileged ("),
            (pod({"allowPrivilegeEscalation": True}), "allowPrivilegeEscalation != false ("),
            (pod({"capabilities": {"add": ["SYS_ADMIN"]}}), 'must not include "SYS_ADMIN"'),
            (pod({"runAsUser": 0}), 'runAsUser=0 (container "node"'),
            (pod(context={"runAsUser": 0}), "runAsUser=0 (pod"),
            (pod({"runAsNonRoot": False}), "runAsNonRoot != true (container"),
            (pod(context={"runAsNonRoot": False}), "runAsNonRoot != true (pod"),
            (pod({"seccompProfile": {"type": "Unconfined"}}), "seccompProfile ("),
            (pod(hostNetwork=True), "host namespaces (hostNetwork=true)"),
            (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), 'restricted volume type "hostPath"'),
            (pod(automountServiceAccountToken=True), "service account token ("),
        ],
    )
    def test_what_contradicts_stays_and_is_told(self, spec: Document, violation: str) -> None:
        assert any(violation in each for each in pod_security.violations(pod_security.harden(spec)))

    @pytest.mark.parametrize(
        "spec",
        [pod(Unknown("a")), pod(context=Unknown("a")), pod({"runAsUser": Unknown("a")}), pod(volumes=Unknown("a"))],
    )
    def test_unknown_values_are_left_alone(self, spec: Document) -> None:
        made = pod_security.harden(spec)
        for part in spec.keys() - {"containers"}:
            assert isinstance(spec[part], Unknown) and made[part] is spec[part]
        assert not any("Unknown" in each for each in pod_security.violations(made))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Plans a TrainJob on a runtime document."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(document: Document, mode: Any = "jobset", **given: Any) -> Plan:
        for finder in ("_runtime_by_name", "from_catalogue"):
            monkeypatch.setattr(runtime_ref, finder, lambda *_: (copy.deepcopy(document), []))
        target = trainer.Kubernetes(mode=mode, namespace="team")

        async def planning() -> Plan:
            args = {"runtime": "r", "target": target, "name": "job", "hardening": "restricted", **given}
            return await trainjob_plan.plan(TrainJobArgs("job", **args))

        return asyncio.run(planning())

    yield plan
    pulumi.runtime.set_all_config({})


def specs(plan: Plan) -> dict[str, Document]:
    """Pod specs of a plan's JobSet by step."""
    assert [str(p) for p in plan.problems] == []
    jobset = next(document for key, document in plan.made.items() if key.startswith("JobSet/"))
    return {job.name: job.pod.spec for job in jobs_of(jobset)}


MODES = pytest.mark.parametrize("mode", ["jobset", "trainer"])
RESTRICTED = [name for name in BUILT_IN.names() if name != "flux"]


class TestPlans:
    @MODES
    @pytest.mark.parametrize("name", RESTRICTED)
    def test_the_catalogue_runs_so(self, planned: Any, name: str, mode: str) -> None:
        for spec in specs(planned(BUILT_IN.load(name), mode)).values():
            assert [*pod_security.violations(spec)] == []

    def test_flux_runs_so_without_the_controller(self, planned: Any) -> None:
        flux, nodes = BUILT_IN.load("flux"), trainer.Trainer(num_nodes=2)
        (spec,) = specs(planned(flux, trainer=nodes)).values()
        assert [*pod_security.violations(spec)] == []
        found = [str(p) for p in planned(flux, "trainer", trainer=nodes).problems]
        assert found and all(
            'hardening: replicated job "node" cannot be restricted' in each and 'container "flux-installer"' in each
            and 'mode="jobset"' in each for each in found if "token" not in each
        )  # fmt: skip

    @MODES
    def test_sshd_of_mpi_keeps_the_capability_of_its_file(self, planned: Any, mode: str) -> None:
        for spec in specs(planned(BUILT_IN.load("deepspeed-distributed"), mode)).values():
            context = spec["containers"][0]["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
            assert context["runAsUser"] == 1000 and "env" not in {e["name"] for e in spec.get("volumes", [])}

    @MODES
    def test_sshd_as_root_cannot(self, planned: Any, mode: str) -> None:
        runtime = BUILT_IN.load("deepspeed-distributed")
        for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            del job["template"]["spec"]["template"]["spec"]["containers"][0]["securityContext"]
        first, second = map(str, planned(runtime, mode).problems)
        assert first.startswith('hardening: replicated job "node" cannot be restricted: sshd of container "node"')
        assert 'replicated job "launcher"' in second and "runAsUser in the runtime" in second

    def test_the_data_cache_cannot(self, planned: Any) -> None:
        source = trainer.DataCacheInitializer(
            storage_uri="cache://schema/table",
            num_data_nodes=2,
            iam_role="arn:aws:iam::1:role/r",
            metadata_loc="s3://b/m.json",
        )
        plan = planned(
            BUILT_IN.load("torch-distributed-with-cache"), "trainer", initializer=trainer.Initializer(dataset=source)
        )
        (problem,) = plan.problems
        assert problem.where == "hardening" and "token of its service account" in str(problem), problem

    @MODES
    def test_a_patch_that_contradicts_is_a_problem(self, planned: Any, mode: str) -> None:
        container = trainer.ContainerPatch(name="node", security_context={"privileged": True, "runAsUser": 0})
        patch = trainer.RuntimePatch(
            manager="acme.io/x", jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(containers=[container]))]
        )
        found = [str(p) for p in planned(BUILT_IN.load("torch-distributed"), mode, runtime_patches=[patch]).problems]
        assert any('container "node" must not set securityContext.privileged=true' in each for each in found), found
        assert any('container "node" must not set runAsUser=0' in each and 'hardening="none"' in each for each in found)

    def test_in_mode_trainer_the_last_patch_says_it(self, planned: Any) -> None:
        plan = planned(BUILT_IN.load("torch-distributed"), "trainer", trainer=trainer.CustomTrainer(func=work))
        spec = plan.objects["TrainJob/job"]["spec"]
        patch = spec["runtimePatches"][-1]
        assert patch["manager"] == MANAGER
        env = {each["name"]: each["value"] for each in spec["trainer"]["env"]}
        assert env == {"HOME": "/tmp", "USER": "nonroot", "TRAINER_RUN_ID": ASSIGNED}
        (made,) = specs(plan).values()
        mounts = {mount["mountPath"] for mount in made["containers"][0]["volumeMounts"]}
        assert pod_security.TOKEN_PATH in mounts and "automountServiceAccountToken" not in made

    def test_an_own_variable_wins(self, planned: Any) -> None:
        own = trainer.CustomTrainer(func=work, env={"HOME": "/data"})
        for mode in ("jobset", "trainer"):
            (made,) = specs(planned(BUILT_IN.load("torch-distributed"), mode, trainer=own)).values()
            assert [e["value"] for e in made["containers"][0]["env"] if e["name"] == "HOME"] == ["/data"]

    def test_initializers_within_the_job_are_restricted(self, planned: Any) -> None:
        source = trainer.HuggingFaceDatasetInitializer(storage_uri="hf://acme/set")
        runtime = BUILT_IN.load("torchtune-llama3.2-1b")
        for mode in ("jobset", "trainer"):
            made = specs(planned(runtime, mode, initializer=trainer.Initializer(dataset=source)))["dataset-initializer"]
            assert {"HOME": "/tmp"}.items() <= {e["name"]: e.get("value") for e in made["containers"][0]["env"]}.items()

    def test_too_many_patches(self, planned: Any) -> None:
        patches = [trainer.RuntimePatch(manager=f"acme.io/{i}") for i in range(15)]
        plan = planned(
            BUILT_IN.load("torch-distributed"),
            "trainer",
            runtime_patches=patches,
            trainer=trainer.CustomTrainer(func=work),
        )
        assert [p.where for p in plan.problems] == ["runtime_patches"], plan.problems


class TestConfiguration:
    def test_the_stack_decides_and_a_job_may_differ(self, planned: Any) -> None:
        runtime = BUILT_IN.load("torch-distributed")
        plain, own = planned(runtime, hardening=None), planned(runtime)
        pulumi.runtime.set_all_config({"trainer:hardening": "restricted"})
        stack, spared = planned(runtime, hardening=None), planned(runtime, hardening="none")
        assert specs(stack) == specs(own) != specs(plain) == specs(spared)
        assert stack.content_digest == plain.content_digest, "existing jobs keep what they have until their next run"
        assert len({plan.content_digest for plan in (plain, own, spared)}) == 3
        assert stack.job.run_inputs["hardening"] == "restricted" and "hardening" not in plain.job.run_inputs

    def test_another_value_is_a_problem(self, planned: Any) -> None:
        runtime = BUILT_IN.load("torch-distributed")
        assert [p.where for p in planned(runtime, hardening="strict").problems] == ["hardening"]
        pulumi.runtime.set_all_config({"trainer:hardening": "baseline"})
        (problem,) = planned(runtime, hardening=None).problems
        assert "trainer:hardening" in str(problem) and "restricted" in str(problem)

    def test_on_this_machine_it_changes_nothing(self, planned: Any) -> None:
        made = planned(
            BUILT_IN.load("torch-distributed"), target=trainer.Local(), trainer=trainer.CustomTrainer(func=work)
        )
        assert "securityContext" not in next(iter(specs(made).values()))
