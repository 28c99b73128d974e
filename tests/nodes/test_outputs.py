"""Outputs of real pods: listed, and copied out of their claims."""

from __future__ import annotations

import json
from pathlib import Path

from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac

from tests.cluster.conftest import USER
from tests.cluster.jobs import submission
from tests.cluster.least import made

from .conftest import PATIENCE, Lab, jobset

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
    lab.target.create_volume(lab.namespace, "digits-output", "urn:a", "stack", {"accessMode": "ReadWriteOnce"})
    volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    mounts = [{"name": "output", "mountPath": "/workspace/output"}]
    document = jobset("digits", WRITES, pod={"volumes": volumes}, container={"volumeMounts": mounts})
    lab.target.create(submission(lab.namespace, document, code=False))
    lab.ended("digits")
    (listed,) = json.loads(lab.said("outputs", "digits", "--json"))
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
    left = [
        pod.metadata.name for pod in lab.pods() if "-copy-" in pod.metadata.name and not pod.metadata.deletion_timestamp
    ]
    assert not left
