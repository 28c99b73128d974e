"""Rendering beyond the golden cases: modes, unknown leaves, Pod sets, what is refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline import MergeFailed, Mode, core, registry
from pulumi_trainer.provider.trainer.releases import DEFAULT

from tests.trainer import default_runtime, default_train_job, fields, render, validate

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(policy: dict[str, Any] | None = None, **template: Any) -> dict[str, Any]:
    """An initializer and two nodes."""

    def job(name: str, step: str, container: str, **more: Any) -> dict[str, Any]:
        pod = {"containers": [{"name": container, "image": f"{name}:1", **more}]}
        return {"name": name, "template": {"metadata": {"labels": {STEP: step}}, "spec": {"template": {"spec": pod}}}}

    jobs = [
        job("dataset-initializer", "dataset-initializer", "dataset-initializer"),
        job("node", "trainer", "node", command=["torchrun"], args=["train.py"]),
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {
            "mlPolicy": {"numNodes": 2, "torch": {}} if policy is None else policy,
            "template": {"spec": {"replicatedJobs": jobs, **template}},
        },
    }


def train_job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "ns"},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


def rendered(rt: dict[str, Any], tj: dict[str, Any], mode: Mode = "jobset") -> dict[str, Any]:
    return render(default_runtime(rt), default_train_job(tj), mode=mode).objects["JobSet/digits"]


def node(jobset: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = nodes(jobset)["template"]["spec"]["containers"][0]
    return container


def nodes(jobset: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = jobset["spec"]["replicatedJobs"][1]["template"]["spec"]
    return spec


def env(jobset: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value") for e in node(jobset)["env"]}


def patch(pod_spec: dict[str, Any], job: str = "node") -> dict[str, Any]:
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod_spec}}}}]
    return {"manager": "example.io/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


class TestModes:
    @pytest.mark.parametrize(("own", "wanted"), [(None, 60), (30, 30), (90, 60), (Unknown("own"), Unknown("own"))])
    def test_deadline_moves_to_the_trainers_job(self, own: Any, wanted: Any) -> None:
        rt, tj = runtime(), train_job(activeDeadlineSeconds=60)
        if own is not None:
            rt["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["activeDeadlineSeconds"] = own
        jobset = rendered(rt, tj)
        assert nodes(jobset)["activeDeadlineSeconds"] == wanted
        assert "activeDeadlineSeconds" not in jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert nodes(rendered(rt, tj, "trainer")).get("activeDeadlineSeconds") == own


class TestUnknown:
    """An unknown leaf arrives wherever it decides a value, and nothing else is lost."""

    def test_num_nodes(self) -> None:
        unknown = Unknown("n")
        jobset = rendered(runtime(), train_job(trainer={"numNodes": unknown}))
        assert nodes(jobset)["parallelism"] is nodes(jobset)["completions"] is unknown
        assert env(jobset)["PET_NNODES"] is unknown
        assert env(jobset)["PET_NPROC_PER_NODE"] == "1"
        assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 1

    def test_num_nodes_of_the_runtime(self) -> None:
        unknown = Unknown("n")
        jobset = rendered(runtime({"numNodes": unknown, "torch": {}}), train_job(trainer={}))
        assert nodes(jobset)["parallelism"] is unknown

    def test_carried_on(self) -> None:
        value, image, word, uri = (Unknown(t) for t in ("value", "image", "word", "uri"))
        trainer = {"image": image, "command": ["python", word], "env": [{"name": "A", "value": value}]}
        jobset = rendered(runtime(), train_job(trainer=trainer, initializer={"dataset": {"storageUri": uri}}))
        assert node(jobset)["image"] is image
        assert node(jobset)["command"][1] is word
        assert env(jobset)["A"] is value
        first = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
        assert first["env"] == [{"name": "STORAGE_URI", "value": uri}]

    @pytest.mark.parametrize("name", ["cpu", "nvidia.com/gpu"])
    def test_computed(self, name: str) -> None:
        unknown = Unknown("quantity")
        jobset = rendered(runtime(), train_job(trainer={"resourcesPerNode": {"limits": {name: unknown}}}))
        assert node(jobset)["resources"] == {"limits": {name: unknown}}
        assert env(jobset)["PET_NPROC_PER_NODE"] is unknown
        assert env(jobset)["PET_NNODES"] == "2"

    def test_known_gpus_decide_without_the_unknown_cpus(self) -> None:
        limits = {"cpu": Unknown("cpu"), "nvidia.com/gpu": 2}
        jobset = rendered(runtime(), train_job(trainer={"resourcesPerNode": {"limits": limits}}))
        assert env(jobset)["PET_NPROC_PER_NODE"] == "auto"

    def test_patched(self) -> None:
        unknown = Unknown("zone")
        jobset = rendered(runtime(), train_job(runtimePatches=[patch({"nodeSelector": {"zone": unknown}})]))
        assert nodes(jobset)["template"]["spec"]["nodeSelector"]["zone"] is unknown

    def test_any_leaf(self) -> None:
        tj = train_job(
            trainer={
                "image": "img:2",
                "command": ["python"],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "numNodes": 2,
                "numProcPerNode": 2,
                "resourcesPerNode": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            },
            initializer={"dataset": {"storageUri": "hf://a", "secretRef": {"name": "s"}, "env": []}},
            runtimePatches=[patch({"tolerations": [{"key": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]})],
            activeDeadlineSeconds=5,
            suspend=True,
        )
        places = [p for p in leaves(tj) if p[0] == "spec"]
        assert len(places) == 18
        for place in places:
            changed = copy.deepcopy(tj)
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = Unknown("leaf")
            jobset = rendered(runtime(), changed)
            arrives = place[1] != "runtimeRef" and place[-1] != "manager"
            assert ("Unknown" in repr(jobset)) == arrives, place

    def test_whole_lists(self) -> None:
        unknown = Unknown("all")
        jobset = rendered(runtime(), train_job(trainer={"env": unknown, "args": unknown}))
        assert node(jobset)["env"] is node(jobset)["args"] is unknown
        assert rendered(runtime(replicatedJobs=unknown), train_job())["spec"]["replicatedJobs"] is unknown


def leaves(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all scalars."""
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from leaves(value, (*at, key))
    else:
        yield at


class TestPodSets:
    @pytest.mark.parametrize(
        ("trainer", "template"), [({"numNodes": Unknown("n")}, {}), ({}, {"network": {"subdomain": Unknown("n")}})]
    )
    def test_no_endpoints_of_what_is_unknown(self, trainer: Any, template: Any) -> None:
        rt = default_runtime(runtime(**template))
        info, job, _ = core.read(rt, default_train_job(train_job(trainer=trainer)), DEFAULT)
        core.build(info, job, DEFAULT)
        assert list(info.pod_sets[1].endpoints()) == []

    def test_what_may_be_there_all_the_same(self) -> None:
        """Nothing is missing as long as not all jobs and containers are known."""
        policy = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}}
        tj = default_train_job(train_job(trainer={}, initializer={"model": {}}))
        assert len(validate(default_runtime(runtime(policy)), tj)) == 2
        with pytest.raises(Invalid):
            render(default_runtime(runtime(policy)), tj)
        for place in (
            (),
            (2,),
            (1, "name"),
            (1, "template"),
            (1, "template", "spec", "template", "spec", "containers"),
        ):
            rt = default_runtime(runtime(policy))
            rt["spec"]["template"]["spec"]["replicatedJobs"].append({"name": "last", "template": {}})
            holder = rt["spec"]["template"]["spec"]
            for key in (path := ("replicatedJobs", *place))[:-1]:
                holder = holder[key]
            holder[path[-1]] = Unknown("u")
            assert validate(rt, tj) == (), place
            render(rt, tj)
        rt = default_runtime(runtime(policy))
        rt["spec"]["template"] = Unknown("u")
        assert validate(rt, tj) == ()


class TestTrainer:
    def test_an_empty_command_clears_beside_patches_too(self) -> None:
        change = patch({"serviceAccountName": "sa"})
        tj = train_job(trainer={"command": [], "args": []}, runtimePatches=[change])
        assert not {"command", "args"} & node(rendered(runtime(), tj)).keys()


class TestRefusals:
    def test_all_policies_of_trainer_have_a_plugin(self) -> None:
        for type_, part in (("MLPolicy", "mlPolicy"), ("PodGroupPolicy", "podGroupPolicy")):
            for name in (name for name, how in fields(type_).items() if how.struct):
                assert f"{part}.{name}" in registry.served_policies(DEFAULT.plugins)

    def test_a_policy_without_plugin_is_not_left_out(self) -> None:
        without = replace(DEFAULT, plugins=tuple(p for p in DEFAULT.plugins if p.name not in ("JAX", "Volcano")))
        rt = runtime({"jax": {}})
        rt["spec"]["podGroupPolicy"] = {"volcano": {}}
        with pytest.raises(Invalid) as caught:
            core.read(default_runtime(rt), default_train_job(train_job()), without)
        assert [(p.where, p.why) for p in caught.value.problems] == [
            ("spec.mlPolicy.jax", "jax is not supported by this version"),
            ("spec.podGroupPolicy.volcano", "volcano is not supported by this version"),
        ]

    def test_a_policy_that_nobody_knows_is_a_note(self) -> None:
        found = render(default_runtime(runtime({"ray": {}})), default_train_job(train_job())).notes
        assert [n.where for n in found] == ["spec.mlPolicy.ray"]

    def test_an_empty_gang_policy_is_none(self) -> None:
        rt = runtime()
        rt["spec"]["podGroupPolicy"] = {}
        assert rendered(rt, train_job()) == rendered(runtime(), train_job())

    @pytest.mark.parametrize("name", [None, "", 5, Unknown("name")])
    def test_no_name(self, name: Any) -> None:
        tj = train_job()
        tj["metadata"]["name"] = name
        with pytest.raises(Invalid, match=r"metadata\.name: a TrainJob needs a name"):
            rendered(runtime(), tj)

    def test_all_wrong_types_at_once_without_their_values(self) -> None:
        trainer = {"numNodes": "hunter2", "env": [{"name": "A", "value": 1}], "image": ["hunter2"]}
        with pytest.raises(Invalid) as caught:
            rendered(runtime(), train_job(trainer=trainer))
        assert [str(p) for p in caught.value.problems] == [
            "spec.trainer.image: must be a string, not a list",
            "spec.trainer.env[0].value: must be a string, not a number. Hint: write it in quotes",
            "spec.trainer.numNodes: must be a whole number, not a string",
        ]

    def test_wrong_types_in_the_runtime(self) -> None:
        rt = runtime()
        rt["spec"]["template"]["spec"]["replicatedJobs"][1]["replicas"] = 1.5
        rt["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 2**31}
        with pytest.raises(Invalid) as caught:
            rendered(rt, train_job())
        assert [p.where for p in caught.value.problems] == [
            "spec.template.spec.replicatedJobs[1].replicas",
            "spec.template.spec.failurePolicy.maxRestarts",
        ]

    @pytest.mark.parametrize("key", ["$retainKeys", "$setElementOrder/cpu"])
    def test_directives_among_resources(self, key: str) -> None:
        trainer = {"resourcesPerNode": {"limits": {key: "1"}}}
        rt = runtime()
        pod = rt["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
        pod["containers"][0]["resources"] = {"limits": {"cpu": 1}}
        with pytest.raises(MergeFailed, match=r"spec\.trainer\.resourcesPerNode"):
            rendered(rt, train_job(trainer=trainer))

    def test_patches_that_cannot_be_merged(self) -> None:
        rt = runtime()
        rt["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {
            "a": "b"
        }
        tj = train_job(runtimePatches=[patch({"nodeSelector": {"$patch": "merge"}})])
        with pytest.raises(MergeFailed, match=r"spec\.runtimePatches\[0\]: \$patch must be replace or delete"):
            validate(default_runtime(rt), default_train_job(tj))

    @pytest.mark.parametrize("value", ["x", [], 5])
    def test_no_mapping_where_one_belongs(self, value: Any) -> None:
        for path in ((), ("template",)):
            rt, tj = runtime(), train_job()
            holder = rt if not path else rt["spec"]
            holder["spec" if not path else path[0]] = value
            with pytest.raises(Invalid, match="must be a mapping"):
                rendered(rt, tj)
        with pytest.raises(Invalid, match="spec: must be a mapping"):
            rendered(runtime(), {**train_job(), "spec": value})

    def test_unknown_fields_are_notes(self) -> None:
        tj = train_job(trainer={"numNode": 2}, elasticPolicy={})
        notes = render(default_runtime(runtime()), default_train_job(tj)).notes
        assert {n.where for n in notes} == {"spec.trainer.numNode", "spec.elasticPolicy"}


def test_bytes_do_not_depend_on_the_order_of_fields() -> None:
    rt, tj = default_runtime(runtime()), default_train_job(train_job(trainer={"numNodes": 2, "image": "a"}))
    turned = json.loads(json.dumps(tj), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert json.dumps(render(rt, tj).objects) == json.dumps(render(rt, turned).objects)


def test_import_is_cheap() -> None:
    code = "import sys, pulumi_trainer.provider.trainer.pipeline; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pulumi_trainer.provider.trainer.pipeline" in loaded
    assert not {"pydantic", "pulumi", "kubernetes", "yaml"} & set(loaded)
