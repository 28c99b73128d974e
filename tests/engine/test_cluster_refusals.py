"""What a cluster would refuse in an update is refused before anything is changed. The API server is a script that has some
objects and notes each request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS
from pulumi_trainer.provider.trainer.kinds import ALL, TRAIN_JOB
from pulumi_trainer.provider.trainer.releases import DEFAULT, NEWEST

from tests.unit.kubernetes_support import Handler, Server, answer, refusal, server

from .conftest import Project

Document = dict[str, Any]
GROUPS = {kind.group: kind.api_version.rpartition("/")[2] for kind in ALL if kind.group}
KUEUE = f"/apis/{GROUP}/v1beta2"
STACK = "organization/lab/test"


class Api(Server):
    """objects: path of a list -> its items."""

    objects: dict[str, list[Document]]

    @property
    def writes(self) -> list[str]:
        """What was changed, apart from dry runs and questions that are asked by a POST."""
        asked = ("reviews", "dryRun=All")
        return [f"{verb} {path}" for verb, path in self.seen if verb != "GET" and not any(a in path for a in asked)]

    def act(self, handler: Handler) -> None:
        path = urlsplit(handler.path).path
        if handler.command == "POST":
            everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return answer(201, {"status": {"resourceRules": [everything]}})(handler)
        if handler.command != "GET":
            return refusal(500, "InternalError")(handler)
        if path == "/apis":
            groups = [{"name": g, "versions": [{"version": v}]} for g, v in GROUPS.items()]
            return answer(200, {"groups": groups})(handler)
        if path == KUEUE:
            return answer(200, {"resources": [{"name": plural} for plural in (*KINDS.values(), "workloads")]})(handler)
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            name = path.rpartition("/")[2]
            return answer(200, {"kind": "Namespace", "metadata": {"name": name, "uid": f"uid-{name}"}})(handler)
        if "limit=" in handler.path:
            items = self.objects.get(path, [])
            return answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})(handler)
        folder, _, name = path.rpartition("/")
        for each in self.objects.get(folder, []):
            if each["metadata"]["name"] == name:
                return answer(200, each)(handler)
        return refusal(404, "NotFound")(handler)


@pytest.fixture
def api(project: Project, tmp_path: Path) -> Iterator[Api]:
    with server() as made:
        made.__class__ = Api
        assert isinstance(made, Api)
        made.objects = {}
        made.does(made.act)
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        content = {
            "current-context": "c", "contexts": [context], "clusters": [{"name": "c", "cluster": {"server": made.url}}],
            "users": [{"name": "u", "user": {}}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(content))
        project.config("trainer:target", "kubernetes")
        project.config("trainer:kubeconfig", str(tmp_path / "kubeconfig"))
        yield made


def named(kind: str, name: str, spec: Document, namespace: str = "", **metadata: Any) -> Document:
    place = {"namespace": namespace} if namespace else {}
    about = {"name": name, **place, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": about, "spec": spec}


def team(name: str, **marks: str) -> dict[str, list[Document]]:
    """A team of GpuQueues that has a job which runs."""
    ours = {"annotations": {"pulumi-trainer.dev/made-by": STACK, **marks}}
    owner = {"kind": "JobSet", "name": "train", "uid": "j", "controller": True}
    work = named("Workload", "jobset-train", {"queueName": name}, name, ownerReferences=[owner])
    reserved = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    usage = [{"name": "node", "resourceUsage": {"nvidia.com/gpu": "8"}}]
    work["status"] = {
        "conditions": [reserved], "admission": {"clusterQueue": f"gpus-{name}", "podSetAssignments": usage},
    }  # fmt: skip
    return {
        f"{KUEUE}/clusterqueues": [named("ClusterQueue", f"gpus-{name}", {}, **ours)],
        f"{KUEUE}/localqueues": [named("LocalQueue", name, {"clusterQueue": f"gpus-{name}"}, name, **ours)],
        f"{KUEUE}/workloads": [work],
    }


TEAMS = """
import pulumi_trainer as trainer
trainer.GpuQueues("gpus", teams={teams})
"""
LEAVES = "ClusterQueue gpus-nlp: was removed from the program, but is not deleted while it has jobs: "


@pytest.mark.core
def test_a_refused_rename_of_a_team_changes_nothing(project: Project, api: Api) -> None:
    """It makes new queues and deletes the old ones, last."""
    api.objects = team("nlp")
    project.program(TEAMS.replace("{teams}", str({"llm": 16})), head="")
    for arguments in (["preview"], ["up", "--yes", "--skip-preview"]):
        out = project.run(*arguments)
        assert out.code != 0 and LEAVES in out.out, out
        assert "(JobSet nlp/train) holds 8 nvidia.com/gpu" in out.out and "Traceback" not in out.out
    assert api.writes == [] and made(project) == []


def test_a_queue_of_somebody_else_is_found_before_others_are_made(project: Project, api: Api) -> None:
    theirs = {"annotations": {"pulumi-trainer.dev/made-by": "organization/theirs/prod"}}
    api.objects = {f"{KUEUE}/localqueues": [named("LocalQueue", "llm", {"clusterQueue": "other"}, "llm", **theirs)]}
    project.program(TEAMS.replace("{teams}", str({"llm": 16})), head="")
    out = project.up("--skip-preview", ok=False).out
    assert "LocalQueue llm exists since 2026-01-01T00:00:00Z and belongs to the stack organization/theirs/prod" in out
    assert api.writes == [] and made(project) == []


def made(project: Project) -> list[str]:
    """Types of what the stack has in a cluster."""
    types = [r["type"] for r in project.export()["deployment"].get("resources") or []]
    return [each for each in types if each.startswith("kubernetes:") or "dynamic" in each]


JOB = """
def work():
    pass

trainer.TrainJob(
    "job", name="job", runtime=plain, queue="team", output=OUTPUT,
    trainer=trainer.CustomTrainer(func=work, env={"TOKEN": pulumi.Output.secret("x")}) if CODE else trainer.Trainer(image="a"),
)
"""


def multikueue(controller: str = "kueue.x-k8s.io/multikueue") -> dict[str, list[Document]]:
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "elsewhere"}]}}
    parameters = {"apiGroup": GROUP, "kind": "MultiKueueConfig", "name": "workers"}
    check = {"controllerName": controller, "parameters": parameters}
    return {
        f"{KUEUE}/namespaces/default/localqueues": [named("LocalQueue", "team", {"clusterQueue": "gpus"}, "default")],
        f"{KUEUE}/clusterqueues": [named("ClusterQueue", "gpus", checks)],
        f"{KUEUE}/admissionchecks": [named("AdmissionCheck", "elsewhere", check)],
        f"{KUEUE}/multikueueconfigs": [named("MultiKueueConfig", "workers", {"clusters": ["w1", "w2"]})],
    }


def test_a_job_that_multikueue_sends_away_without_what_it_needs(project: Project, api: Api) -> None:
    api.objects = multikueue()
    project.program(JOB.replace("OUTPUT", "True").replace("CODE", "True"))
    out = " ".join(project.preview(ok=False).out.split())
    why = (
        "queue: MultiKueue sends the job to w1, w2 (AdmissionCheck elsewhere of ClusterQueue"
        " gpus), but these objects, which its pods need,"
    )
    what = (
        "stay in this cluster: ConfigMap job-code, PersistentVolumeClaim job-output, Secret job-env. Hint: name w1, w2"
    )
    assert f"{why} {what}" in out
    project.program(JOB.replace("OUTPUT", "False").replace("CODE", "False"))
    assert "MultiKueue" not in project.preview().out, "nothing of it stays"
    api.objects = multikueue("example.com/budget")
    project.program(JOB.replace("OUTPUT", "True").replace("CODE", "True"))
    assert "MultiKueue" not in project.preview().out, "another check keeps the job here"
    assert api.writes == []


def test_a_runtime_that_the_program_makes_is_not_missing(project: Project, api: Api) -> None:
    api.objects = multikueue("example.com/budget")
    project.config("trainer:mode", "trainer")
    project.program(JOB.replace("OUTPUT", "False").replace("CODE", "True"))
    assert "does not exist" not in project.preview().out
    program = (
        JOB.replace("OUTPUT", "False").replace("CODE", "True").replace("runtime=plain", 'runtime="torch-distributed"')
    )
    project.program(program)
    assert "ClusterTrainingRuntime torch-distributed does not exist" in project.preview(ok=False).out


def test_a_job_with_a_secret_of_its_own_and_one_that_is_missing(project: Project, api: Api) -> None:
    api.objects = multikueue("example.com/budget")
    patch = """runtime_patches=[trainer.RuntimePatch(manager="me.dev/me", jobs=[trainer.JobPatch(
        name="node", pod=trainer.PodPatch(service_account_name="robot"))])],"""
    project.program(JOB.replace("OUTPUT", f"False, {patch[:-1]}").replace("CODE", "True"))
    out = project.preview(ok=False).out
    assert "1 problem found" in out and "ServiceAccount robot does not exist in namespace default" in out
    assert "job-env" not in out and api.writes == []


COLLIDING = """
def train():
    pass

for name in ("sweep", "{other}"):
    trainer.TrainJob(
        name, name=name, runtime=plain, output={output},
        trainer=trainer.CustomTrainer(func=train, env={{"TOKEN": pulumi.Output.secret("canary")}}),
    )
"""


@pytest.mark.parametrize(
    ("other", "output", "both"),
    [("sweep-code", False, "ConfigMap 'sweep-code'"), ("sweep-more", True, "")],
    ids=["collides", "fits"],
)
def test_jobs_whose_objects_have_one_name_are_refused_in_the_plan(
    project: Project, api: Api, other: str, output: bool, both: str
) -> None:
    project.program(COLLIDING.format(other=other, output=output))
    shown = project.preview(ok=not both).out
    assert "Traceback" not in shown
    if both:
        found = re.search(
            rf'TrainJob\("(\S+)"\) \(\S+\)\.name: TrainJob\("(\S+)"\) \(__main__.py:23\) makes {both} too', shown
        )
        assert found and {found[1], found[2]} == {"sweep", "sweep-code"}, (
            shown
        )  # the one that was planned last is refused
        assert "give one of the two another name with name=" in shown, shown
    assert api.writes == []


TEMPORARY = """
node = trainer.ReplicatedJob(name="node", pod_spec={"containers": [{"name": "node", "image": "a"}]})
own = trainer.ClusterTrainingRuntime(
    "own", ml_policy=trainer.PlainPolicy(),
    template=trainer.JobSetTemplate(ttl_seconds_after_finished=60, replicated_jobs=[node]),
)
trainer.TrainJob("job", name="job", runtime=own)
"""


def test_the_crds_of_a_cluster_choose_the_rules_of_trainer(project: Project, api: Api) -> None:
    """Only up to 2.3.0, the controller makes a failed job again that its TTL has removed."""
    project.config("trainer:mode", "trainer")
    project.program(TEMPORARY)
    warned = "the controller of Trainer 2.3.0 creates it again"
    assert warned in project.preview().out, "the CRDs cannot be read"
    kind = {"group": TRAIN_JOB.group, "version": "v1alpha1", "kind": "TrainJob"}
    for release, told in ((NEWEST, False), (DEFAULT, True)):
        schema = {**release.kinds["TrainJob"].schema.given, "x-kubernetes-group-version-kind": [kind]}
        described = {"metadata": {"name": "v1alpha1"}, "components": {"schemas": {"TrainJob": schema}}}
        api.objects["/openapi/v3/apis/trainer.kubeflow.org"] = [described]
        assert (warned in project.preview().out) == told
    project.config("trainer:version", NEWEST.version)
    assert warned not in project.preview().out
