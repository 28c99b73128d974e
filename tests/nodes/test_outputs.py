"""Outputs of real pods: listed, and copied out of their claims."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.jobs.runs import Identity
from pulumi_trainer.provider.lifecycle.model_versions import ModelVersionInputs, ModelVersions
from pulumi_trainer.provider.pod.scripts import digest_output
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac

from tests.cluster.conftest import USER
from tests.cluster.jobs import submission
from tests.cluster.least import made
from tests.engine.conftest import HEAD
from tests.model_registry_server import model_registry_server
from tools.cluster.images import MACHINE

from .conftest import PATIENCE, Lab, jobset
from .examples import Example

WRITES = """
import os, pathlib
out = pathlib.Path("/workspace/output")
(out / "deep").mkdir()
(out / "model.pt").write_bytes(bytes(range(256)) * 100_000)
(out / "deep" / "log").write_text("hello")
(out / "latest").symlink_to("deep")
(out / "away").symlink_to("/etc/passwd")
os.mkfifo(out / "pipe")
"""


def test_an_output_is_copied_out_of_its_claim(lab: Lab, admin: ApiClient, tmp_path: Path) -> None:
    lab.target.volumes.create(lab.namespace, "digits-output", "urn:a", "stack", {"accessMode": "ReadWriteOnce"})
    volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    mounts = [{"name": "output", "mountPath": "/workspace/output"}]
    document = jobset("digits", WRITES, pod={"volumes": volumes}, container={"volumeMounts": mounts})
    lab.target.jobs.create(submission(lab.namespace, document, code=False))
    lab.ended("digits")
    (listed,) = json.loads(lab.said("outputs", "digits", "-o", "json"))
    assert (listed["where"], listed["retained"], listed["phase"]) == ("pvc://digits-output", False, "Succeeded")

    process = lab.cli("outputs", "digits", "--copy", str(tmp_path / "copy"))
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and f"pulumi-trainer rbac -n {lab.namespace} --outputs" in errors, errors
    subject = rbac.Subject("ServiceAccount", USER, lab.namespace)
    for role in rbac.objects(rbac.output_permissions(), [lab.namespace], [subject], of="-outputs"):
        if not role["kind"].startswith("Cluster"):
            made(client.RbacAuthorizationV1Api(admin), role, lab.namespace)
    process = lab.cli("outputs", "digits", "--copy", str(tmp_path / "copy"))
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "2 files, 25.6 MB copied" in out, errors
    assert "away is left out: it is a link" in errors and "pipe is left out" in errors
    assert (tmp_path / "copy" / "model.pt").read_bytes() == bytes(range(256)) * 100_000
    assert (tmp_path / "copy" / "latest" / "log").read_text() == "hello"
    assert json.loads((tmp_path / "copy" / "run.json").read_text())["phase"] == "Succeeded"
    registered(lab, tmp_path / "copy")
    left = [
        pod.metadata.name for pod in lab.pods() if "-copy-" in pod.metadata.name and not pod.metadata.deletion_timestamp
    ]
    assert not left


def registered(lab: Lab, copy: Path) -> None:
    """A Pod computes the digest beside the claim: that of the files that were copied."""
    (copy / "run.json").unlink()
    status = lab.target.jobs.status(lab.namespace, "digits")
    assert status is not None
    with model_registry_server() as registry:
        inputs = ModelVersionInputs(
            target={"kind": "kubernetes"}, component="urn:pulumi:dev::lab::trainer:index:ModelVersion::digits",
            namespace=lab.namespace, job="digits", registry={"kind": "kubeflow", "uri": registry.url}, model="digits",
            run=status.identity.id,
        )  # fmt: skip
        _, outputs = ModelVersions().create(inputs, lambda _: lab.target)
        ((_,), (version,), (artifact,)) = registry.objects.values()
    assert artifact["uri"] == "pvc://digits-output" and outputs.versions == [version["name"]]
    known = digest_output.digest(str(copy))
    assert outputs.digest == f"sha256:{known['sha256']}" and known["files"] == 2
    assert version["customProperties"]["trainer.bytes"]["string_value"] == str(known["size"])


PROGRAM = """
def train(word):
    import json, os, pathlib
    print(json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": "0.25"}]}}), flush=True)
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "model.txt").write_text(word)

job = trainer.TrainJob(
    "digits", name="digits", runtime=plain, output=True,
    trainer=trainer.CustomTrainer(func=train, func_args={"word": "one"}),
)
registry = trainer.KubeflowModelRegistry(server="@SERVER")
pulumi.export("version", trainer.ModelVersion("digits", job=job, registry=registry).version)
"""


def test_the_output_of_a_program_is_registered(examples: Callable[[str], Example], admin: ApiClient) -> None:
    """A user without the role for outputs is told which one; then each run is registered where its output is."""
    project = examples("quickstart")
    with model_registry_server() as registry:
        text = PROGRAM.replace("@SERVER", registry.url)
        project.program(text, head=HEAD.replace("python:3.12", MACHINE))
        told = project.up(ok=False).out
        assert f"pulumi-trainer rbac -n {project.namespace} --outputs" in told and "Traceback" not in told
        assert not registry.requests
        subject = rbac.Subject("ServiceAccount", USER, project.namespace)
        for role in rbac.objects(rbac.output_permissions(), [project.namespace], [subject], of="-outputs"):
            if not role["kind"].startswith("Cluster"):
                made(client.RbacAuthorizationV1Api(admin), role, project.namespace)
        project.up()
        (first,) = registry.objects["artifacts"]
        assert re.fullmatch(r"pvc://digits-output/\w+", first["uri"])
        assert first["uri"].endswith(f"/{first['modelSourceId']}")
        (version,) = registry.objects["model_versions"]
        assert version["customProperties"]["trainer.metric.loss"]["string_value"] == "0.25"
        assert project.outputs()["version"] == version["name"] and "updated" not in project.up().out
        project.edit('"word": "one"', '"word": "two"')
        project.up()
        assert [each["uri"] == first["uri"] for each in registry.objects["artifacts"]] == [True, False]
        project.destroy()


AGAIN = """
import os, pathlib, time
pathlib.Path("/workspace/output/model").write_text("x")
end = time.monotonic() + 60
while len(os.listdir("/all")) > 1 and FIRST != "1" and time.monotonic() < end:
    time.sleep(0.5)
print("left:", *os.listdir("/all"), flush=True)
"""


def test_a_new_run_removes_the_folder_of_an_old_one(lab: Lab, admin: ApiClient) -> None:
    subject = rbac.Subject("ServiceAccount", USER, lab.namespace)
    for role in rbac.objects(rbac.job_permissions(), [lab.namespace], [subject], of="-all"):
        if not role["kind"].startswith("Cluster"):
            made(client.RbacAuthorizationV1Api(admin), role, lab.namespace)
    lab.target.volumes.create(lab.namespace, "digits-output", "urn:a", "stack", {"accessMode": "ReadWriteOnce"})
    volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    paths = [{"mountPath": "/workspace/output", "subPath": ASSIGNED}, {"mountPath": "/all"}]
    mounts = [{"name": "output", **each} for each in paths]
    names = list[str]()
    for first in ("1", ""):
        code = AGAIN.replace("FIRST", repr(first))
        document = jobset("digits", code, pod={"volumes": volumes}, container={"volumeMounts": mounts})
        earlier = lab.target.jobs.runs(lab.namespace, "digits") if names else []
        if names:
            earlier = [replace(each, phase="Failed") for each in earlier]
            lab.target.jobs.delete(lab.namespace, "digits", replaced=True)
        sent = submission(lab.namespace, document, code=False, keep_runs=1, earlier=earlier)
        lab.target.jobs.create(replace(sent, identity=Identity(cause="changed", place="digits-output")))
        names.append(lab.ended("digits").identity.id)
    assert f"left: {names[1]}\n" in lab.said("logs", "digits")
    assert [run.place for run in lab.target.jobs.runs(lab.namespace, "digits")] == ["", "digits-output"]
