"""Teams as one declaration: their namespaces with limits, roles and queues, and what an update and `destroy` leave."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from pulumi_trainer.provider.kueue.prices import BUDGET

from tests.documented import blocks
from tests.unit.kubernetes_support import Handler, answer, refusal

from .conftest import Project
from .test_cluster_refusals import KUEUE, api  # noqa: F401
from .test_object_owners import Store, store  # noqa: F401

NAMESPACES = "/api/v1/namespaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
(PAGE,) = (block.text for block in blocks("docs/queues.md", __file__))
TEAMS = PAGE.replace("groups=", 'users=["jane"], labels={"cost-centre": "7"}, groups=')
TEAMS += 'guests = trainer.TeamNamespace("guests")\n'
INSIDE = {
    f"{NAMESPACES}/nlp/resourcequotas/team",
    f"{RBAC}/clusterroles/pulumi-trainer:nlp",
    f"{RBAC}/clusterrolebindings/pulumi-trainer-group-nlp-team:nlp",
    f"{RBAC}/clusterrolebindings/pulumi-trainer-user-jane:nlp",
    f"{RBAC}/namespaces/nlp/roles/pulumi-trainer:nlp",
    f"{RBAC}/namespaces/nlp/rolebindings/pulumi-trainer-group-nlp-team:nlp",
    f"{RBAC}/namespaces/nlp/rolebindings/pulumi-trainer-user-jane:nlp",
    "/apis/networking.k8s.io/v1/namespaces/nlp/networkpolicies/team",
}


@pytest.fixture(autouse=True)
def namespaces(store: Store) -> None:  # noqa: F811
    """Only those that were created are there."""
    act = store.act

    def answer_namespaces(handler: Handler) -> None:
        path = urlsplit(handler.path).path
        if handler.command != "GET" or path.rpartition("/")[0] != NAMESPACES or path.endswith("/kube-system"):
            act(handler)
        elif path in store.stored:
            answer(200, store.stored[path])(handler)
        else:
            refusal(404, "NotFound")(handler)

    store.does(answer_namespaces)


def test_a_team_is_one_declaration(project: Project, store: Store) -> None:  # noqa: F811
    project.program(TEAMS, head="")
    project.up()
    made = {path for path in store.stored if "/kueue.x-k8s.io/" not in path}
    assert made == {f"{NAMESPACES}/nlp", f"{NAMESPACES}/guests", *INSIDE}
    namespace = store.stored[f"{NAMESPACES}/nlp"]["metadata"]
    assert namespace["labels"] == {"cost-centre": "7", "pod-security.kubernetes.io/enforce": "restricted"}
    assert namespace["annotations"]["pulumi-trainer.dev/hardening"] == "restricted"
    guests = store.stored[f"{NAMESPACES}/guests"]["metadata"]
    assert guests["labels"] == {"pod-security.kubernetes.io/enforce": "baseline"}
    assert "pulumi-trainer.dev/hardening" not in guests["annotations"]
    assert store.stored[f"{NAMESPACES}/nlp/resourcequotas/team"]["spec"]["hard"] == {
        "pods": "200",
        "requests.storage": "10Ti",
    }
    queue = store.stored[f"{KUEUE}/namespaces/nlp/localqueues/nlp"]
    assert queue["metadata"]["annotations"][BUDGET] == "20000 USD"
    inside = [each for each in project.export()["deployment"]["resources"] if "/namespaces/nlp/" in each.get("id", "")]
    assert len(inside) == 6
    for each in inside:
        assert any("kubernetes:core/v1:Namespace" in urn for urn in each["dependencies"]), each["id"]
    project.preview("--expect-no-changes")
    project.program(TEAMS.replace("200", "300").replace('users=["jane"],', ""), head="")
    project.up()
    assert store.stored[f"{NAMESPACES}/nlp/resourcequotas/team"]["spec"]["hard"]["pods"] == "300"
    assert not [path for path in store.stored if "jane" in path]
    project.destroy()
    assert {*store.stored} == {f"{NAMESPACES}/nlp", f"{NAMESPACES}/guests"}, "jobs and records in them stay"
    project.up()
    assert {*store.stored} >= INSIDE - {path for path in INSIDE if "jane" in path}


def test_a_namespace_of_somebody_else_is_not_taken(project: Project, store: Store) -> None:  # noqa: F811
    about = {"name": "nlp", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []}
    theirs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {**about, "annotations": {}}}
    store.stored[f"{NAMESPACES}/nlp"] = theirs
    project.program(TEAMS, head="")
    refused = project.preview(ok=False).out
    assert "Namespace nlp exists since 2026-01-01T00:00:00Z and was not created by this stack" in refused, refused
    theirs["metadata"] = {**about, "deletionTimestamp": "2026-01-02T00:00:00Z"}
    assert "namespace nlp is being deleted" in project.preview(ok=False).out
