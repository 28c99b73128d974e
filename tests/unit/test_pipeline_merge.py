"""Strategic merge and typed documents, where the golden cases do not reach."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.strategic_merge import MergeError
from pulumi_trainer.provider.kubernetes.values.typed import Findings, dotted_path
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import as_go_struct, fields, strategic_merge


def pod(**fields: Any) -> dict[str, Any]:
    return dict(fields)


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


class TestMerge:
    @pytest.mark.parametrize(
        ("original", "patch", "wanted"),
        [
            ("a b c", "x", "x a b c"),
            ("a b c", "b", "a b c"),
            ("a b c", "c a", "b c a"),
            ("a b c", "b x", "a b x c"),
            ("a b c", "x b y", "x a b y c"),
            ("", "x y", "x y"),
            ("a", "", "a"),
        ],
    )
    def test_order_of_merged_lists(self, original: str, patch: str, wanted: str) -> None:
        merged = strategic_merge("PodSpec", pod(volumes=named(*original.split())), pod(volumes=named(*patch.split())))
        assert [v["name"] for v in merged["volumes"]] == wanted.split()

    def test_lists_without_key_are_replaced(self) -> None:
        merged = strategic_merge("PodSpec", pod(tolerations=[{"key": "a"}]), pod(tolerations=[{"key": "b"}]))
        assert merged == {"tolerations": [{"key": "b"}]}

    def test_finalizers_are_a_set(self) -> None:
        merged = strategic_merge("ObjectMeta", {"finalizers": ["a", "b"]}, {"finalizers": ["c", "b"]})
        assert merged == {"finalizers": ["c", "a", "b"]}

    def test_null_removes(self) -> None:
        original = {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {}}], "defaultMode": 1}}]}
        patch = {"volumes": [{"name": "v", "projected": {"sources": None, "defaultMode": 2}}]}
        merged = strategic_merge("PodSpec", original, patch)
        assert merged["volumes"] == [{"name": "v", "projected": {"defaultMode": 2}}]

    def test_directives_in_free_maps(self) -> None:
        original = {"nodeSelector": {"zone": "a", "disk": "ssd"}}
        deleted = strategic_merge("PodSpec", original, {"nodeSelector": {"$patch": "delete", "x": "y"}})
        assert deleted == {"nodeSelector": {}}
        replaced = strategic_merge("PodSpec", original, {"nodeSelector": {"$patch": "replace", "x": "y"}})
        assert replaced == {"nodeSelector": {"x": "y"}}
        assert strategic_merge("PodSpec", {}, {"nodeSelector": {"$patch": "replace", "x": "y"}}) == {}
        listed = {f"$deleteFromPrimitiveList/{key}": value for key, value in (("zone", "b"), ("none", "c"), ("", "d"))}
        assert strategic_merge("PodSpec", original, {"nodeSelector": listed}) == {
            "nodeSelector": {"zone": "b", "disk": "ssd"}
        }

    @pytest.mark.parametrize(
        "key",
        [
            "$patch",
            "$retainKeys",
            "$setElementOrder/zone",
            "$setElementOrderzone",
            "$deleteFromPrimitiveList",
            "$deleteFromPrimitiveLists/zone",
        ],
    )
    def test_bad_directives(self, key: str) -> None:
        with pytest.raises(MergeError):
            strategic_merge("PodSpec", {"nodeSelector": {"zone": "a"}}, {"nodeSelector": {key: "merge"}})

    def test_directives_below_what_is_new(self) -> None:
        term = {"labelSelector": {"matchLabels": {"$patch": "replace", "a": "b"}}, "topologyKey": "z"}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, {"$patch": "delete"}]}}
        merged = strategic_merge("PodSpec", {}, {"affinity": affinity})["affinity"]["podAffinity"]
        assert merged == {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "topologyKey": "z"}]}

    def test_scalars_are_replaced(self) -> None:
        assert strategic_merge("PodSpec", {"hostname": "a"}, {"hostname": "b"}) == {"hostname": "b"}
        assert strategic_merge("PodSpec", {"volumes": []}, {"volumes": []}) == {"volumes": []}

    def test_an_item_without_its_key(self) -> None:
        with pytest.raises(MergeError, match="an item of imagePullSecrets has no name"):
            strategic_merge("PodSpec", {"imagePullSecrets": named("a")}, {"imagePullSecrets": [{}]})

    def test_unknown_values(self) -> None:
        unknown = Unknown("u")
        assert strategic_merge("PodSpec", {"hostname": unknown}, {"hostname": "a"}) == {"hostname": "a"}
        assert strategic_merge("PodSpec", {"volumes": unknown}, {"volumes": named("a")}) == {"volumes": unknown}
        assert strategic_merge("PodSpec", {"volumes": named("a")}, {"volumes": unknown}) == {"volumes": unknown}
        merged = strategic_merge("PodSpec", {"volumes": [unknown]}, {"volumes": named("a")})
        assert merged == {"volumes": [{"name": "a"}, unknown]}

    def test_nothing_is_changed(self) -> None:
        original = {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}
        patch = {"containers": [{"name": "a", "env": [{"name": "Y"}]}, {"name": "b"}], "nodeSelector": {"a": None}}
        before = copy.deepcopy((original, patch))
        strategic_merge("PodSpec", original, patch)
        assert (original, patch) == before


class TestTyped:
    def read(self, type_: str, value: Any, *, applied: bool = True) -> tuple[Any, list[str]]:
        findings = Findings()
        result = as_go_struct(type_, value, None, findings, applied=applied)
        return result, [str(p) for p in [*findings.problems, *findings.notes]]

    def test_zero_values(self) -> None:
        mount = {"name": "v", "mountPath": "", "readOnly": False, "subPath": ""}
        assert self.read("VolumeMount", mount) == ({"name": "v", "mountPath": ""}, [])
        given = {"shareProcessNamespace": False, "hostIPC": False, "volumes": [], "nodeSelector": {}}
        assert self.read("PodSpec", given) == ({"shareProcessNamespace": False}, [])

    def test_written_though_not_given(self) -> None:
        assert self.read("PodTemplateSpec", {}) == ({"metadata": {}, "spec": {}}, [])
        assert self.read("PodTemplateSpec", {}, applied=False)[0]["spec"] == {"containers": None}
        selector = {"resource": "limits.cpu"}
        assert self.read("ResourceFieldSelector", selector)[0] == {"resource": "limits.cpu", "divisor": "0"}

    def test_batch_and_jobset_have_policies_of_the_same_name(self) -> None:
        assert "rules" in fields(fields("JobSpec")["successPolicy"].kind)
        assert "operator" in fields(fields("JobSetSpec")["successPolicy"].kind)

    def test_quantities(self) -> None:
        given = {"limits": {"memory": "1024Mi", "cpu": 2}}
        assert self.read("ResourceRequirements", given) == ({"limits": {"cpu": "2", "memory": "1Gi"}}, [])

    @pytest.mark.parametrize(
        ("type_", "value", "why"),
        [
            ("Container", {"env": {}}, "env: must be a list, not a mapping"),
            ("Container", {"tty": "yes"}, "tty: must be true or false, not a string"),
            ("ContainerPort", {"containerPort": 2**31}, "containerPort: must fit into 32 bits"),
            ("ContainerPort", {"containerPort": True}, "containerPort: must be a whole number, not true or false"),
            ("HTTPGetAction", {"port": 1.5}, "port: must be a whole number or a string, not a decimal number"),
            ("PodSpec", {"nodeSelector": {1: "a"}}, "nodeSelector: must be a mapping by strings, not a mapping"),
            ("PodSpec", {"containers": ["a"]}, "containers[0]: must be a mapping, not a string"),
            ("ResourceRequirements", {"limits": {"a.io/b": "x"}}, "limits['a.io/b']: must be a quantity"),
            ("Container", {"imag": "a"}, "imag: unknown field, ignored"),
        ],
    )
    def test_findings(self, type_: str, value: Any, why: str) -> None:
        _, found = self.read(type_, value)
        assert len(found) == 1
        assert found[0].startswith(why)

    def test_paths(self) -> None:
        assert dotted_path(None) == ""
        assert dotted_path((((None, "spec"), "jobs"), 3)) == "spec.jobs[3]"
