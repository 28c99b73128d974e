"""Devices that nodes claim by Dynamic Resource Allocation: processes, warnings, quota, usage and summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.plan.tool_job import nodes_have_gpus
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.jobs.usage import demand_of
from pulumi_trainer.provider.kubernetes.container_table import container_table
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.trainer.admission.warnings import gpu_taints
from pulumi_trainer.provider.trainer.policy.summary import summarize
from warnings_support import Document, found, job, runtime, step

from tests.documented import blocks
from tests.trainer import default_runtime, default_train_job, render

TORCHRUN = ["torchrun", "train.py"]
CLAIMED = {"resources": {"limits": {"cpu": "4", "memory": "64Gi"}, "claims": [{"name": "gpus"}]}}
POD = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight"}]}
OURS = {"PT147", "PT148", "PT149", "PT220", "PT221"}


def exact(count: int = 8, name: str = "gpus", device: str = "gpu.nvidia.com", **more: Any) -> Document:
    asked = {"deviceClassName": device, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": asked}


def template(*requests: Document, name: str = "eight", namespace: str = "default") -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"spec": {"devices": {"requests": [*requests]}}},
    }  # fmt: skip


def device_class(name: str, **spec: Any) -> Document:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def claiming(policy: Document | None = None, pod: Document | None = None, **container: Any) -> Document:
    """A runtime whose nodes claim eight GPUs."""
    given = step(pod=POD if pod is None else pod, container={**CLAIMED, **container})
    return runtime(policy or {"torch": {}, "numNodes": 2}, given)


def told(given: Document, trainer: Document, *known: Document, mode: str = "trainer", **more: Any) -> dict[str, str]:
    """The warnings of this file's codes, and the reason of each."""
    all_ = found(given, job(trainer, **more.pop("spec", {})), mode, queues=complete_queues(known), **more)
    return {each.code: f"{each.why}. {each.hint}" for each in all_ if each.code in OURS}


def rendered(given: Document, trainer: Document, mode: Any) -> Document:
    made = render(default_runtime(given), default_train_job(job(trainer)), mode=mode).objects
    return next(each for each in made.values() if each["kind"] == "JobSet")


def variables(given: Document, trainer: Document, mode: Any) -> Document:
    (node,) = rendered(given, trainer, mode)["spec"]["replicatedJobs"]
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", [])} | {
        "command": container.get("command")
    }


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_claims_that_the_builder_drops_are_refused_or_warned_of(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a runtime, resourceClaims and claims reach the JobSet; in resourcesPerNode they do not."""
    given = claiming(resources={"limits": {"cpu": "4"}}, pod={})
    train_job = job({"command": TORCHRUN, "resourcesPerNode": {"claims": [{"name": "gpus"}], "limits": {"cpu": 4}}})
    group = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([{**group, **given}, {**group, "kind": "TrainJob", **train_job}]))
    assert cli.run(["validate", "--mode", mode, str(file)]) == (1 if mode == "jobset" else 0)
    line = next(each for each in capsys.readouterr().out.splitlines() if "PT148" in each)
    assert line.strip().startswith("error" if mode == "jobset" else "warning")
    assert "the container node does not get gpus" in line and "into the runtime" in line
    ignored = ["validate", "--mode", mode, "--ignore", "PT148", str(file)]
    assert cli.run(ignored) == 0


@pytest.mark.parametrize(("mode", "processes"), [("jobset", "auto"), ("trainer", "32")])
def test_the_runtime_of_the_documentation(mode: Any, processes: str) -> None:
    (block,) = blocks("docs/on-a-cluster.md", __file__)
    claim, given = yaml.safe_load_all(block.text)
    train_job = job({"command": TORCHRUN})
    train_job["metadata"]["namespace"] = "team"
    all_ = found(given, train_job, mode, queues=complete_queues([claim]))
    assert [each.code for each in all_] == ([] if mode == "jobset" else ["PT147"])
    assert variables(given, {"command": TORCHRUN}, mode)["PET_NPROC_PER_NODE"] == processes
    with_number = job({"command": TORCHRUN, "numProcPerNode": 8})
    with_number["metadata"]["namespace"] = "team"
    assert found(given, with_number, mode, queues=complete_queues([claim])) == []


class TestDroppedClaims:
    def test_resources_of_a_job_drop_those_of_the_runtime(self) -> None:
        limits = {"command": TORCHRUN, "resourcesPerNode": {"limits": {"memory": "100Gi"}}}
        assert "drops the claims of the runtime's container node: gpus" in told(claiming(), limits)["PT148"]
        (node,) = rendered(claiming(), limits, "jobset")["spec"]["replicatedJobs"]
        assert "claims" not in node["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]

    @pytest.mark.parametrize("given", [claiming(), runtime({"torch": {}})])
    def test_nothing_is_dropped(self, given: Document) -> None:
        assert "PT148" not in told(given, {"command": TORCHRUN})
        limits = {"limits": {"cpu": 1}}
        assert ("PT148" in told(given, {"command": TORCHRUN, "resourcesPerNode": limits})) is (
            given != runtime({"torch": {}})
        )


class TestProcesses:
    def test_torchrun_counts_claimed_gpus_in_mode_jobset(self) -> None:
        assert variables(claiming(), {"command": TORCHRUN}, "jobset")["PET_NPROC_PER_NODE"] == "auto"
        assert variables(claiming(), {"command": TORCHRUN}, "trainer")["PET_NPROC_PER_NODE"] == "4"
        assert variables(claiming(), {"numProcPerNode": 2}, "jobset")["PET_NPROC_PER_NODE"] == "2"

    def test_dropped_claims_do_not_count(self) -> None:
        own = {"resourcesPerNode": {"limits": {"cpu": "3"}}}
        assert variables(claiming(), own, "jobset")["PET_NPROC_PER_NODE"] == "3"

    def test_torchtune_starts_the_recipe_for_several_gpus(self) -> None:
        one_cpu = {"resources": {"claims": [{"name": "gpus"}]}}
        given = claiming({"torch": {}, "numNodes": 1}, **one_cpu)
        given["metadata"]["name"] = "torchtune-llama3.2-1b"
        train_job = {"metadata": {"name": "job"}, "spec": {"runtimeRef": {"name": "torchtune-llama3.2-1b"}}}
        train_job["spec"]["trainer"] = {"command": ["tune", "run"]}
        recipes = {}
        for mode in ("jobset", "trainer"):
            made = render(default_runtime(given), default_train_job(train_job), mode=mode).objects  # type: ignore[arg-type]
            recipes[mode] = "single_device" in str(made)
        assert recipes == {"jobset": False, "trainer": True}

    @pytest.mark.parametrize(
        ("policy", "mode", "words"),
        [
            (
                {"torch": {}},
                "trainer",
                "4 processes are computed for a node that claims 8 GPUs by gpus (ResourceClaimTemplate eight: 8 of",
            ),
            ({"mpi": {"numProcPerNode": 1}}, "trainer", "1 process is computed for a node that claims 8 GPUs"),
            ({"mpi": {"numProcPerNode": 1}}, "jobset", "1 process is computed for a node that claims 8 GPUs"),
            ({"xgboost": {}}, "jobset", "extendedResourceName"),
        ],
    )
    def test_claimed_gpus_without_processes(self, policy: Document, mode: str, words: str) -> None:
        assert words in told(claiming(policy), {"command": TORCHRUN}, template(exact()), mode=mode)["PT147"]

    def test_what_is_not_known_is_not_counted(self) -> None:
        why = told(claiming(), {"command": TORCHRUN})["PT147"]
        assert "claims devices, among them an unknown number of GPUs by gpus (ResourceClaimTemplate eight)" in why
        assert "give the number of GPUs that a node claims" in why
        every = template(exact(allocationMode="All"))
        assert "unknown number of GPUs" in told(claiming(), {"command": TORCHRUN}, every)["PT147"]
        elsewhere = template(exact(), namespace="other")
        assert "unknown number of GPUs" in told(claiming(), {"command": TORCHRUN}, elsewhere)["PT147"]

    @pytest.mark.parametrize(
        ("given", "trainer", "known"),
        [
            (claiming(), {"numProcPerNode": 8}, [template(exact())]),
            (claiming(), {"command": ["torchrun", "--nproc_per_node", "8", "train.py"]}, [template(exact())]),
            (claiming(), {}, [template(exact(4))]),
            (claiming(), {}, [template(exact(1, device="nic.example.com")), device_class("nic.example.com")]),
            (claiming(resources={"limits": {"nvidia.com/gpu": 4}, "claims": [{"name": "gpus"}]}), {}, []),
            (claiming(resources={"limits": {"cpu": "4"}}), {}, [template(exact())]),
            (claiming({"mpi": {"numProcPerNode": 8}}), {}, [template(exact())]),
            (claiming({"jax": {}}), {}, [template(exact())]),
        ],
        ids=[
            "given",
            "an option",
            "as many CPUs",
            "a NIC",
            "GPUs in limits",
            "not of this container",
            "of the runtime",
            "jax",
        ],
    )
    def test_processes_that_are_right(self, given: Document, trainer: Document, known: list[Document]) -> None:
        assert "PT147" not in told(given, {"command": TORCHRUN, **trainer}, *known)

    def test_auto_without_gpus_is_the_number_of_cpus(self) -> None:
        known = [template(exact(1, device="nic.example.com")), device_class("nic.example.com")]
        assert "a process for each CPU of the machine" in told(claiming(), {}, *known, mode="jobset")["PT147"]
        assert "PT147" not in told(claiming(), {}, template(exact()), mode="jobset")
        assert "PT147" not in told(claiming(), {}, mode="jobset")

    @pytest.mark.parametrize(
        ("request_", "known", "gpus"),
        [
            (exact(), [], 8),
            ({"name": "gpus", "deviceClassName": "gpu.nvidia.com", "count": 2}, [], 2),  # v1beta1
            ({"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com"}}, [], 1),
            (exact(2, device="mig.nvidia.com"), [], 2),
            (exact(2, device="h100"), [device_class("h100", extendedResourceName="nvidia.com/gpu")], 2),
            (exact(2, device="h100"), [device_class("h100", selectors=[{"cel": {"expression": "'gpu' in x"}}])], 2),
            (
                {"name": "gpus", "firstAvailable": [{"deviceClassName": f"gpu.{name}", "count": 3} for name in "ab"]},
                [],
                3,
            ),
        ],
    )
    def test_gpus_of_a_request(self, request_: Document, known: list[Document], gpus: int) -> None:
        why = told(claiming(), {}, template(request_), *known)["PT147"]
        assert f"claims {gpus} GPUs" in why

    def test_a_container_gets_the_requests_that_it_names(self) -> None:
        claims = [{"name": "gpus", "request": "half"}]
        given = claiming(resources={"limits": {"cpu": "1"}, "claims": claims})
        assert "claims 4 GPUs" in told(given, {}, template(exact(8), exact(4, "half")))["PT147"]
        admin = template(exact(4), exact(8, "monitor", adminAccess=True))
        assert "claims 4 GPUs" in told(claiming(resources={"claims": [{"name": "gpus"}]}), {}, admin)["PT147"]


CPUS = {"resources": {"limits": {"cpu": "32", "memory": "64Gi"}}}


class TestProcessesForCpus:
    def note(self, container: Document, trainer: Document, policy: Document | None = None) -> list[Any]:
        given = runtime(policy or {"torch": {}}, step(container=container))
        return [each for each in found(given, job(trainer), "jobset") if each.code == "PT149"]

    def test_many(self) -> None:
        (note,) = self.note(CPUS, {"command": TORCHRUN})
        assert note.is_note
        assert "starts 32 processes, one for each CPU, each with 2Gi of its 64Gi of memory" in note.why
        (note,) = self.note({}, {"command": TORCHRUN, "resourcesPerNode": {"requests": {"cpu": 9, "memory": "900Mi"}}})
        assert "9 processes, one for each CPU, each with 100Mi of its 900Mi" in note.why
        (note,) = self.note({"resources": {"limits": {"cpu": "32"}}}, {"command": TORCHRUN})
        assert note.why.endswith("one for each CPU")

    @pytest.mark.parametrize(
        ("container", "trainer", "policy"),
        [
            (CPUS, {"command": TORCHRUN, "numProcPerNode": 32}, None),
            (CPUS, {"command": ["python", "train.py"]}, None),
            (CPUS, {"command": ["torchrun", "--nproc-per-node=1", "train.py"]}, None),
            (CPUS, {"command": TORCHRUN}, {"mpi": {}}),
            ({"resources": {"limits": {"cpu": "4"}}}, {"command": TORCHRUN}, None),
            ({"resources": {"limits": {"cpu": "32", "nvidia.com/gpu": 1}}}, {"command": TORCHRUN}, None),
        ],
    )
    def test_few_or_wanted(self, container: Document, trainer: Document, policy: Document | None) -> None:
        assert self.note(container, trainer, policy) == []


def test_claimed_gpus_count_as_gpus() -> None:
    known = complete_queues([template(exact(2))])
    taints = gpu_taints(
        [{"kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
          "status": {"allocatable": {"nvidia.com/gpu": "8"}}}]
    )  # fmt: skip

    def codes(trainer: Document, known: Queues) -> set[str]:
        return {each.code for each in found(claiming(), job(trainer), "jobset", queues=known, taints=taints)}

    few, many = {"command": TORCHRUN, "numProcPerNode": 1}, {"command": TORCHRUN, "numProcPerNode": 4}
    assert {"PT106", "PT111"} <= codes(few, known)
    assert {"PT112", "PT126"} <= codes(many, known)
    assert not {"PT106", "PT111", "PT112", "PT126"} & (codes(few, Queues()) | codes(many, Queues()))
    enough = {"resourcesPerNode": {"limits": {"cpu": 1}}}
    assert "PT119" not in codes(enough, known)


class TestRefusedByKubernetes:
    """The words of kube-apiserver 1.36."""

    def refused(self, pod: Document, claims: list[Document]) -> list[str]:
        given = claiming(pod=pod, resources={"claims": claims})
        return [each.why for each in found(given, job({}), "jobset") if each.code == "PT141"]

    def test_claims_of_containers(self) -> None:
        missing = 'Not found: "gpu": must be one of the names in pod.spec.resourceClaims'
        assert self.refused(POD, [{"name": "gpu"}]) == [f"{missing}: gpus"]
        assert self.refused({}, [{"name": "gpu"}]) == [f"{missing} which is empty"]
        assert self.refused(POD, [{"name": "gpus"}]) == []

    def test_claims_of_pods(self) -> None:
        both = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "a", "resourceClaimName": "b"}]}
        (why,) = self.refused(both, [])
        assert why.endswith("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
        (why,) = self.refused({"resourceClaims": [{"name": "gpus"}]}, [])
        assert why.endswith("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        twice = {"resourceClaims": [*POD["resourceClaims"], *POD["resourceClaims"]]}
        assert "PT141" in str(found(claiming(pod=twice), job({}), "jobset"))


def queue(covered: dict[str, Any]) -> list[Document]:
    group = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in covered.items()]
    groups = [{"coveredResources": [*covered], "flavors": [{"name": "f", "resources": resources}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return [
        {**group, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}},
        {**group, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec},
        {
            **group,
            "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": "default"},
            "spec": {"clusterQueue": "q"},
        },
    ]


def configuration(**mappings: list[str]) -> Document:
    mapped = [{"name": name, "deviceClassNames": classes} for name, classes in mappings.items()]
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resources": {"deviceClassMappings": mapped},
    }  # fmt: skip


class TestKueue:
    def told(self, *known: Document, pod: Document | None = None, **labels: str) -> dict[str, str]:
        train_job = job({"command": TORCHRUN, "numProcPerNode": 8})
        train_job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q", **labels}
        all_ = found(claiming(pod=pod), train_job, "jobset", queues=complete_queues(known))
        return {each.code: each.why for each in all_ if each.code.startswith("PT2")}

    def test_devices_use_quota(self) -> None:
        quota = {"cpu": 100, "memory": "1Ti"}
        known = template(exact()), configuration(h100=["gpu.nvidia.com"])
        assert self.told(*known, *queue({**quota, "h100": 16})) == {}
        assert "request (16) > maximum capacity (15)" in self.told(*known, *queue({**quota, "h100": 15}))["PT203"]
        assert "no quota for h100" in self.told(*known, *queue(quota))["PT202"]
        assert self.told(template(exact()), *queue(quota)) == {}, "Kueue's configuration is not known"

    def test_an_unmapped_class(self) -> None:
        why = self.told(template(exact()), configuration(h100=["other"]))["PT221"]
        assert why.endswith("DeviceClass gpu.nvidia.com is not mapped in DRA configuration for podset node")
        assert self.told(template(exact()), configuration(h100=["gpu.nvidia.com"])) == {}
        assert self.told(configuration(h100=["other"])) == {}, "the claim is not known"
        assert self.told(template(exact()), configuration(h100=["other"]), **{"kueue.x-k8s.io/queue-name": ""}) == {}

    def test_an_extended_resource_uses_the_quota_of_its_class(self) -> None:
        """Kueue counts nvidia.com/gpu in limits as h100, if the DeviceClass that stands for it is mapped."""
        given = claiming(pod={}, resources={"limits": {"nvidia.com/gpu": 8}})
        train_job = job({"command": TORCHRUN})
        train_job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
        stands = device_class("h100.example.com", extendedResourceName="nvidia.com/gpu")
        for mapped, words in (("h100.example.com", "no quota for h100"), ("other", "no quota for nvidia.com/gpu")):
            known = [stands, configuration(h100=[mapped]), *queue({"cpu": 1})]
            all_ = found(given, train_job, "jobset", queues=complete_queues(known))
            assert words in next(each.why for each in all_ if each.code == "PT202")

    def test_counters_have_a_quota_of_their_own(self) -> None:
        mapped = configuration(memory_of_gpus=["gpu.nvidia.com"])
        mapped["resources"]["deviceClassMappings"][0]["sources"] = [{"counter": {"name": "memory"}}]
        assert self.told(template(exact()), mapped, *queue({"cpu": 100, "memory": "1Ti"})) == {}

    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (
                {"name": "g", "firstAvailable": [{"deviceClassName": "gpu.a"}]},
                "FirstAvailable device selection is not supported",
            ),
            (exact(adminAccess=True), "AdminAccess is not supported"),
            (exact(allocationMode="All"), "AllocationMode 'All' is not supported"),
        ],
    )
    def test_requests_that_kueue_does_not_support(self, request_: Document, words: str) -> None:
        assert self.told(template(request_))["PT220"].endswith(words)
        assert "PT220" not in self.told(template(exact()))

    def test_a_claim_that_pods_share(self) -> None:
        shared = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "one"}]}
        assert self.told(pod=shared)["PT220"].endswith("does not support use of resource claims")
        assert self.told(pod=shared, **{"kueue.x-k8s.io/queue-name": ""}) == {}


class TestCounting:
    def test_summary_and_usage(self) -> None:
        jobset, known = rendered(claiming(), {}, "jobset"), complete_queues([template(exact())])
        (row,) = container_table(jobset, lambda pod: known.claims_of(pod, ""))
        assert row["resources"].endswith("claim gpus (ResourceClaimTemplate eight: 8 of gpu.nvidia.com)")
        (row,) = container_table(jobset)
        assert row["resources"] == "cpu=4, memory=64Gi, claim gpus (ResourceClaimTemplate eight)"
        assert summarize(jobset, {}, 2, {}, known)["gpus"] == 16
        assert "gpus" not in summarize(jobset, {}, 2, {}, Queues())
        assert demand_of(jobset).gpus is None
        assert demand_of(jobset).cpus == 8

    def test_a_record_has_what_the_plan_has_counted(self) -> None:
        jobset = {"kind": "JobSet", **rendered(claiming(), {}, "jobset")}
        sent = Submission("default", "job", "owner", "digest", {"JobSet/job": jobset}, gpus=16)
        assert '"gpus":16' in record.usage(sent)["usage"]
        unknown = Submission("default", "job", "owner", "digest", {"JobSet/job": jobset})
        assert "gpus" not in record.usage(unknown)["usage"]

    def test_a_shared_claim_counts_once(self) -> None:
        shared = {"resourceClaims": [{"name": "gpus", "resourceClaimName": "eight"}]}
        claim = {**template(), "kind": "ResourceClaim", "spec": {"devices": {"requests": [exact()]}}}
        jobset = rendered(claiming(pod=shared), {}, "jobset")
        assert summarize(jobset, {}, 2, {}, complete_queues([claim]))["gpus"] == 8

    def test_claims_beside_gpus_in_limits_are_of_other_devices(self) -> None:
        both = claiming(resources={"limits": {"nvidia.com/gpu": 4}, "claims": [{"name": "gpus"}]})
        jobset = rendered(both, {}, "jobset")
        assert demand_of(jobset).gpus == summarize(jobset, {}, 2, {}, Queues())["gpus"] == 8

    def test_tools_for_gpus_run_on_claimed_devices(self) -> None:
        assert nodes_have_gpus([rendered(claiming(), {}, "jobset")])
        assert not nodes_have_gpus([rendered(claiming(resources={"limits": {"cpu": "4"}}), {}, "jobset")])
