"""`pulumi-trainer import`: a program takes over what others have made in a cluster, and touches none of it."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.convert.upgrade import upgraded
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, QUEUE_PRIORITY
from pulumi_trainer.provider.kueue.objects import KINDS
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB, kind_of

from .jobs import pod_template, until
from .queue_lab import Lab, with_plugin
from .test_queues import lab, pulumi_home  # noqa: F401 (fixtures)

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: NAME}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: NAME}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: NAME}
spec:
  cohortName: NAME
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: NAME
      resources: [{name: cpu, nominalQuota: 4000m, borrowingLimit: 2}, {name: memory, nominalQuota: 64Gi}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: NAME, namespace: SPACE}
spec: {clusterQueue: NAME}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: NAME, labels: {team: a}}
value: 7
"""
JOBS = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: NAME-queued, namespace: SPACE, labels: {kueue.x-k8s.io/queue-name: NAME}}
spec:
  replicatedJobs:
  - name: node
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          metadata: {annotations: {pod-complete.stage.kwok.x-k8s.io/delay: 10m}}
          spec:
            restartPolicy: Never
            containers:
            - {name: node, image: busybox, command: [sleep, "600"], resources: {requests: {cpu: 1, memory: 1Gi}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: NAME-plain, namespace: SPACE}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        template:
          spec:
            restartPolicy: OnFailure
            containers:
            - name: main
              image: busybox
              args: [echo]
              env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: gone, key: token}}}]
              resources: {requests: {cpu: 500m}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: NAME, labels: {trainer.kubeflow.org/framework: torch, app.kubernetes.io/managed-by: Helm}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: pytorch}]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: NAME-tuned, namespace: SPACE}
spec:
  runtimeRef: {name: NAME}
  trainer: {command: [torchrun, train.py], env: [{name: A, value: b}]}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: NAME-short, namespace: SPACE}
spec: {runtimeRef: {name: NAME}}
"""


@pytest.fixture
def made(lab: Lab, root: Client) -> list[dict[str, Any]]:  # noqa: F811
    """What others have made."""
    text = (QUEUES + "---" + JOBS).replace("NAME", lab.prefix).replace("SPACE", lab.namespace)
    documents = [*yaml.safe_load_all(text)]
    for document in documents:
        root.create(kind_of(document), document)
    until(lambda: lab.running() >= {f"{lab.prefix}-queued"})
    return documents


def run_import(
    within: Lab, kubeconfig: Path, made: list[dict[str, Any]], folder: str
) -> subprocess.CompletedProcess[str]:
    names = [f"{each['kind']}/{each['metadata']['name']}".lower() for each in made]
    argv = ["pulumi-trainer", "import", "-A", "--kubeconfig", str(kubeconfig), "-o", folder, *names]
    return subprocess.run(argv, cwd=within.folder, env=within.environment, capture_output=True, text=True, check=False)


def imported(lab: Lab, kubeconfig: Path, made: list[dict[str, Any]]) -> Lab:  # noqa: F811
    """The project that `import` has written, with a stack."""
    done = run_import(lab, kubeconfig, made, "imported")
    assert done.returncode == 0, done.stdout + done.stderr
    project = Lab(lab.folder / "imported", lab.home)
    project.env = {"PATH": with_plugin()}
    project.prefix, project.namespace, project.root_client = lab.prefix, lab.namespace, lab.root_client
    (project.folder / "state").mkdir()
    assert project.run("stack", "init").code == 0
    return project


@pytest.fixture
def project(lab: Lab, cluster: Any, made: list[dict[str, Any]]) -> Lab:  # noqa: F811
    return imported(lab, cluster.kubeconfig, made)


def state(client: Client, made: list[dict[str, Any]]) -> Mapping[str, Any]:
    """UID and spec of the objects."""
    found = {}
    for each in made:
        about = each["metadata"]
        live = client.get(resource_of(each), about.get("namespace", ""), about["name"])
        assert live is not None
        found[f"{each['kind']} {about['name']}"] = (live["metadata"]["uid"], live.get("spec") or {})
    return found


def resource_of(document: dict[str, Any]) -> Kind:
    kind = document["kind"]
    plural = KINDS.get(kind, f"{kind.lower()}s")
    return Kind(document["apiVersion"], kind, plural, "namespace" in document["metadata"])


def test_a_cluster_becomes_a_program_that_touches_nothing(
    project: Lab, root: Client, cluster: Any, made: list[dict[str, Any]]
) -> None:
    before, running = state(root, made), project.running()
    plan = project.preview().out
    assert "These objects exist and are taken over as they are: " in plan and "is taken over" in plan
    assert "starts now" not in plan  # the job of the queue runs
    assert state(root, made) == before
    project.up()
    assert state(root, made) == before and project.running() >= running
    project.preview("--expect-no-changes")
    project.preview("--expect-no-changes", "--refresh")
    again = run_import(project, cluster.kubeconfig, made[:1], "again")
    assert again.returncode == 2 and "belongs to the stack organization/imported/test" in again.stderr

    changed = (project.folder / "__main__.py").read_text()
    for old, new in (
        (f"    cohort={project.prefix}_cohort,\n", ""),
        ('nominal_quota="4"', 'nominal_quota="6"'),
        (', borrowing_limit="2"', ""),
    ):
        assert changed.count(old) == 1
        changed = changed.replace(old, new)
    project.program(changed)
    project.up()
    spec = project.objects("ClusterQueue")[project.prefix]["spec"]
    assert "cohortName" not in spec  # kubectl had this field too, and an apply removes only fields of its own
    assert spec["resourceGroups"][0]["flavors"][0]["resources"][0] == {"name": "cpu", "nominalQuota": "6"}
    project.preview("--expect-no-changes")


def test_what_differs_or_belongs_to_another_stack_is_refused(
    project: Lab, root: Client, made: list[dict[str, Any]]
) -> None:
    written = (project.folder / "__main__.py").read_text()
    before = state(root, made)
    project.program(written.replace('image": "pytorch"', 'image": "torch"'))
    refused = project.preview(ok=False).out
    assert f"ClusterTrainingRuntime {project.prefix}: is not taken over" in refused
    assert "containers[node].image. Hint" in refused
    project.program(written.replace('nominal_quota="4"', 'nominal_quota="5"'))
    for refused in (project.preview(ok=False).out, project.up(ok=False).out):
        assert f"ClusterQueue {project.prefix} is not taken over, as the program would change it: " in refused
        assert "nominalQuota 4 -> 5" in refused
    assert state(root, made) == before
    project.program(written.replace('adopt="existing"', "adopt=False"))
    assert "choose another name, or take it over with adopt=True" in project.preview(ok=False).out
    project.program(written)
    project.up()
    other = Lab(project.folder / "other", project.home)
    other.env, other.stack = project.env, "second"
    (other.folder / "state").mkdir(parents=True)
    for name in ("Pulumi.yaml", "__main__.py"):
        (other.folder / name).write_text((project.folder / name).read_text())
    assert other.run("stack", "init").code == 0
    assert f"ClusterTrainingRuntime {project.prefix}: exists and is another program's" in other.preview(ok=False).out
    assert state(root, made) == before


def test_what_is_gone_is_not_created_and_does_not_train_again(project: Lab, root: Client) -> None:
    job = f"{project.prefix}-short"
    why = {
        QUEUE_PRIORITY: f"the cluster has no WorkloadPriorityClass {project.prefix} that can be listed",
        TRAIN_JOB: f"{project.namespace}/{job}: does not exist",
    }
    for kind, name in ((QUEUE_PRIORITY, project.prefix), (TRAIN_JOB, job)):
        root.delete(kind, project.namespace, name)
        until(lambda at=(kind, project.namespace, name): root.get(*at) is None)
        assert why[kind] in project.preview(ok=False).out
        assert root.get(kind, project.namespace, name) is None


def test_quantities_that_somebody_has_applied_again(
    lab: Lab,  # noqa: F811
    root: Client,
    cluster: Any,
    made: list[dict[str, Any]],
) -> None:
    """Kueue's and JobSet's webhooks write them as Go does, but only when an object is created."""
    groups = copy.deepcopy(made[2]["spec"]["resourceGroups"])
    cpu, memory = groups[0]["flavors"][0]["resources"]
    cpu["nominalQuota"], memory["nominalQuota"] = 10, "1024Mi"
    root.patch(CLUSTER_QUEUE, "", lab.prefix, {"spec": {"resourceGroups": groups}})
    jobset = root.get(JOBSET, lab.namespace, f"{lab.prefix}-plain")
    assert jobset is not None
    pod_template(jobset)["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "0.5"}}
    jobset = root.patch(
        JOBSET, lab.namespace, f"{lab.prefix}-plain", {"spec": {"replicatedJobs": jobset["spec"]["replicatedJobs"]}}
    )
    assert pod_template(jobset)["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "0.5"}}
    uids = {name: uid for name, (uid, _) in state(root, made).items()}
    project = imported(lab, cluster.kubeconfig, made)
    project.up()
    project.preview("--expect-no-changes")
    assert {name: uid for name, (uid, _) in state(root, made).items()} == uids
    root.patch(CLUSTER_QUEUE, "", lab.prefix, {"spec": {"resourceGroups": groups}})
    assert "was changed by hand" not in project.preview().out


CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)


def crd(kind: str, served: str) -> dict[str, Any]:
    """The CRD of a kind of Training Operator or MPI Operator, without its schema."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": served, "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.kubeflow.org"}, "spec": spec}


def is_served(client: Client, kind: Kind) -> bool:
    """Whether a kind is served, as a new one is a little later."""
    try:
        client.list(kind)
    except ApiError:
        return False
    return True


def test_the_cluster_of_a_team_with_jobs_of_training_operator(
    own_cluster: Any,
    pulumi_home: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Two commands: `import`, and `pulumi up`, which touches nothing."""
    client = open_client({"kubeconfig": str(own_cluster.kubeconfig)})
    examples = Path(__file__).parents[2] / "examples" / "migration"
    given = yaml.safe_load_all((examples / "queues.yaml").read_text())
    queues = [upgraded(each, []) for each in given]  # the test cluster converts no versions
    jobs = [*yaml.safe_load_all((examples / "jobs.yaml").read_text())]
    for kind, served in {(each["kind"], each["apiVersion"]) for each in jobs if each["kind"] != "ConfigMap"}:
        client.create(CRD, crd(kind, served.partition("/")[2]))
    for name in {text(each["metadata"].get("namespace")) for each in (*queues, *jobs)} - {""}:
        client.create(NAMESPACE, {"metadata": {"name": name}})
    documents = [*queues, *jobs]
    for each in documents:
        kind = resource_of(each)
        until(lambda kind=kind: is_served(client, kind))
        client.create(kind, each)

    before = state(client, documents)
    project = Lab(tmp_path / "prod", pulumi_home)
    project.env = {"PATH": with_plugin()}
    argv = ["pulumi-trainer", "import", "-A", "--kubeconfig", str(own_cluster.kubeconfig), "-o", str(project.folder)]
    done = subprocess.run(argv, env=project.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "v1_jobs.py has 10 jobs of Training Operator v1, which run on as they are" in done.stdout
    assert "trainer.TrainJob(" not in (project.folder / "__main__.py").read_text()
    assert (project.folder / "v1_jobs.py").read_text().count("trainer.TrainJob(") == 10
    (project.folder / "state").mkdir()
    assert project.run("stack", "init").code == 0
    assert "are taken over as they are" in project.plain_up().out
    assert state(client, documents) == before
    project.preview("--expect-no-changes")
