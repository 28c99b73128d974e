"""Objects of a cluster that two stacks of one name, in two backends, would both call theirs. Backends that teams run themselves
all say `organization`. The API server is a script that stores objects and refuses conflicts of field managers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.kubernetes_support import Handler, answer, refusal

from . import kubernetes_plugin
from .conftest import Project
from .test_cluster_refusals import GROUP, KUEUE, STACK, Api, Document, api  # noqa: F401

MARK = "pulumi-trainer.dev/made-by"
QUEUES = f"{KUEUE}/clusterqueues"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
OBJECTS = """
import pulumi_trainer as trainer

trainer.ClusterQueue("gpus")
trainer.WorkloadPriorityClass("high", value=7)
trainer.CoschedulingPodGroup("gang", min_member=2)
trainer.NetworkPolicy("jobs")
"""
PLACES = (f"{QUEUES}/gpus", f"{KUEUE}/workloadpriorityclasses/high", f"{GROUPS}/gang", f"{POLICIES}/jobs")


class Store(Api):
    """stored: path of an object -> the object."""

    stored: dict[str, Document]

    def act(self, handler: Handler) -> None:
        path, query = urlsplit(handler.path).path, parse_qs(urlsplit(handler.path).query)
        if handler.command == "PATCH":
            return self.patch(handler, path, query["fieldManager"][0])
        if handler.command == "DELETE":
            return answer(200, self.stored.pop(path))(handler)
        self.objects = {}
        for each, document in self.stored.items():
            self.objects.setdefault(each.rpartition("/")[0], []).append(document)
        return super().act(handler)

    def patch(self, handler: Handler, path: str, manager: str) -> None:
        wanted = json.loads(vars(handler)["body"])
        live = self.stored.get(path)
        if live is None:
            about = {"uid": f"uid-{path}", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
            live = {**wanted, "metadata": {**wanted["metadata"], **about, "annotations": {}, "managedFields": []}}
        marks, mine = live["metadata"]["annotations"], wanted["metadata"].get("annotations", {})
        by_name = {entry["manager"]: entry for entry in live["metadata"]["managedFields"]}
        for key, value in mine.items():
            fields = [
                entry["fieldsV1"]["f:metadata"]["f:annotations"] for name, entry in by_name.items() if name != manager
            ]
            is_kept = "force=true" not in handler.path
            if is_kept and marks.get(key, value) != value and any(f"f:{key}" in field for field in fields):
                return refusal(409, "Conflict", f'conflict with "another manager" of {key}')(handler)
        marks.update(mine)
        live.update({key: value for key, value in wanted.items() if key != "metadata"})
        fields = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in mine}}}
        by_name[manager] = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
        live["metadata"]["managedFields"] = [*by_name.values()]
        self.stored[path] = live
        return answer(200, live)(handler)

    def give(self, path: str, mark: str) -> None:
        """As `kubectl annotate` does: it becomes the only manager of a value that it changes."""
        metadata = self.stored[path]["metadata"]
        metadata["annotations"][MARK] = mark
        for entry in metadata["managedFields"]:
            entry["fieldsV1"]["f:metadata"]["f:annotations"].pop(f"f:{MARK}", None)
        fields = {"f:metadata": {"f:annotations": {f"f:{MARK}": {}}}}
        metadata["managedFields"].append({"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": fields})

    def marks(self) -> list[str]:
        return [self.stored[place]["metadata"]["annotations"][MARK] for place in PLACES]


@pytest.fixture
def store(api: Api, project: Project, tmp_path: Path) -> Store:  # noqa: F811
    """plugin: on PATH."""
    api.__class__ = Store
    assert isinstance(api, Store)
    api.stored = {}
    api.does(api.act)
    project.env["PATH"] = kubernetes_plugin.install(tmp_path, project.environment["PATH"])
    project.program(OBJECTS, head="")
    return api


@pytest.fixture
def namesake(project: Project, store: Store, tmp_path: Path) -> Project:
    """The same program and stack, with a backend of its own."""
    return same_name(project, tmp_path / "other")


def same_name(project: Project, folder: Path) -> Project:
    other = replace(project, folder=folder)
    other.folder.mkdir()
    (other.folder / "state").mkdir()
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(project.folder / name, other.folder)
    assert other.run("stack", "init").code == 0
    other.config("trainer:target", "kubernetes")
    other.config("trainer:kubeconfig", str(project.folder / "kubeconfig"))
    return other


@pytest.mark.core
def test_a_stack_of_the_same_name_takes_and_deletes_nothing(project: Project, namesake: Project, store: Store) -> None:
    project.up()
    (mark,) = set(store.marks())
    assert mark.startswith(f"{STACK}/") and len(mark) == len(STACK) + 9
    project.preview("--expect-no-changes")
    for refused in (namesake.preview(ok=False).out, namesake.up(ok=False).out):
        for kind, name in (("ClusterQueue", "gpus"), ("PodGroup", "gang"), ("NetworkPolicy", "jobs")):
            assert (
                f"{kind} {name} exists since 2026-01-01T00:00:00Z and belongs to another stack of this name" in refused
            )
    namesake.destroy()
    assert set(store.marks()) == {mark}
    project.preview("--expect-no-changes")
    project.program(OBJECTS.replace("value=7", "value=8").replace("min_member=2", "min_member=3"), head="")
    project.up()
    assert set(store.marks()) == {mark}
    project.destroy()
    assert store.stored == {}


def test_an_object_that_is_given_away_is_not_deleted(
    project: Project, namesake: Project, store: Store, tmp_path: Path
) -> None:
    """By the hint of a refused plan; a stack without any object yet has no random part."""
    project.up()
    for place in PLACES:
        store.give(place, STACK)
    namesake.up()
    namesake.preview("--expect-no-changes")
    assert set(store.marks()) == {STACK}
    refused = same_name(project, tmp_path / "third").preview(ok=False).out
    assert "4 problems" in refused and refused.count("belongs to another stack of this name") == 4
    place = "podgroups.scheduling.x-k8s.io -n default gang"
    take = f"kubectl annotate {place} {MARK}- && kubectl annotate --overwrite {place} {MARK}={STACK}"
    assert take in " ".join(refused.split())
    before = dict(store.stored)
    store.give(PLACES[2], "organization/lab/second")
    project.program(OBJECTS.replace('trainer.CoschedulingPodGroup("gang", min_member=2)', ""), head="")
    gone = "PodGroup default/gang: belongs to the stack organization/lab/second now, and is left alone"
    assert gone in project.up(ok=False).out and store.stored == before
    store.give(PLACES[2], STACK)
    for place in PLACES:
        store.give(place, "organization/lab/second")
        refused = project.destroy(ok=False).out
        assert "belongs to the stack organization/lab/second now, and is left alone" in refused, refused
        assert store.stored == before
        store.give(place, STACK)
    namesake.destroy()
    assert store.stored == {}


def test_an_object_that_another_stack_makes_at_the_same_time(project: Project, store: Store) -> None:
    """After the check of the plan: the API server refuses to change its mark."""
    theirs: list[Document] = []

    def first(handler: Handler, path: str, manager: str) -> None:
        if path == PLACES[0] and not theirs:
            theirs.append({"annotations": {MARK: f"{STACK}/00000000"}})
            document = {"apiVersion": f"{GROUP}/v1beta2", "kind": "ClusterQueue", "spec": {"stopPolicy": "Hold"}}
            fields = {"f:metadata": {"f:annotations": {f"f:{MARK}": {}}}}
            entry = {"manager": "pulumi-kubernetes-theirs", "operation": "Apply", "fieldsV1": fields}
            metadata = {"name": "gpus", "uid": "theirs", **theirs[0], "managedFields": [entry]}
            store.stored[path] = {**document, "metadata": metadata}
        Store.patch(store, handler, path, manager)

    vars(store)["patch"] = first
    assert "field conflict" in project.up(ok=False).out
    assert store.stored[PLACES[0]]["spec"] == {"stopPolicy": "Hold"}
    project.destroy()
    assert store.stored[PLACES[0]]["metadata"]["uid"] == "theirs"
