"""Volumes as folders, in jobs that use them, and volumes that outlive jobs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, eventually, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.errors import Conflict, Refused
from pulumi_trainer.provider.targets.local import LocalTarget

TREE = """
import os, sys
for root in sys.argv[1:]:
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            print(os.path.relpath(path, root), oct(os.stat(path).st_mode & 0o777), open(path).read())
"""


def mounted(volumes: list[dict[str, Any]], mounts: dict[str, str], command: list[str], **job: Any) -> dict[str, Any]:
    """mounts: path -> volume, with its subPath after a colon."""
    given = []
    for path, volume in mounts.items():
        name, _, below = volume.partition(":")
        given.append({"name": name, "mountPath": path, **({"subPath": below} if below else {})})
    return jobset(step(command=command, container_fields={"volumeMounts": given}, pod={"volumes": volumes}), **job)


def test_files_of_config_maps_and_projections(local: LocalTarget) -> None:
    data = config("settings", {"a.txt": "A", "b.txt": "B"})
    data["binaryData"] = {"c.bin": base64.b64encode(b"C").decode()}
    items = [{"key": "a.txt", "path": "deep/a", "mode": 0o600}]
    label = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "all", "configMap": {"name": "settings", "defaultMode": 0o640}},
        {"name": "some", "configMap": {"name": "settings", "items": items}},
        {
            "name": "both",
            "projected": {
                "sources": [{"configMap": {"name": "settings", "items": items}}, {"downwardAPI": {"items": [label]}}]
            },
        },
        {"name": "none", "configMap": {"name": "missing", "optional": True}},
    ]
    mounts = {"/all": "all", "/some": "some", "/both": "both", "/none": "none", "/one": "all:b.txt"}
    read_one = TREE + "print(open('/proc/self/cmdline').read().split(chr(0))[-2].endswith('all/b.txt'))"
    run(local, mounted(volumes, mounts, python(read_one, "/all", "/some", "/both", "/none", "/one")), data)
    assert log(local).splitlines() == [
        "a.txt 0o640 A",
        "b.txt 0o640 B",
        "c.bin 0o640 C",
        "deep/a 0o600 A",
        "name 0o644 job-node-0-0",
        "deep/a 0o600 A",
        "True",
    ]


def test_containers_of_a_pod_share_its_volumes(local: LocalTarget) -> None:
    mounts = [{"name": "v", "mountPath": "/x"}]
    init = {
        "name": "init",
        "image": "x",
        "command": python("import sys; open(sys.argv[1], 'w').write('from init')", "/x/f"),
    }
    pod = {"volumes": [{"name": "v", "emptyDir": {}}], "initContainers": [{**init, "volumeMounts": mounts}]}
    run(
        local,
        jobset(
            step(
                command=python("import sys; print(open(sys.argv[1]).read())", "/x/f"),
                container_fields={"volumeMounts": mounts},
                pod=pod,
            )
        ),
    )
    assert log(local) == "from init\n"


def test_steps_hand_data_on_through_a_claim(local: LocalTarget) -> None:
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    write = step(
        "data",
        python("import sys; open(sys.argv[1], 'w').write('rows')", "/in/f"),
        container_fields={"volumeMounts": [{"name": "data", "mountPath": "/in", "subPath": "d"}]},
        pod={"volumes": claim},
    )
    read = step(
        "node",
        python("import sys; print(open(sys.argv[1]).read())", "/out/d/f"),
        dependsOn=[{"name": "data", "status": "Complete"}],
        container_fields={"volumeMounts": [{"name": "data", "mountPath": "/out"}]},
        pod={"volumes": claim},
    )
    assert run(local, jobset(write, read)).phase == "Succeeded"
    assert log(local) == "rows\n"
    local.delete(NAMESPACE, "job")
    assert (local.root / "volumes/default/shared/data/d/f").read_text() == "rows"


def test_host_path(local: LocalTarget, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("here")
    volumes = [{"name": "h", "hostPath": {"path": str(tmp_path)}}]
    run(local, mounted(volumes, {"/h": "h"}, python("import sys; print(open(sys.argv[1]).read())", "/h/f")))
    assert log(local) == "here\n"


def test_working_directories(local: LocalTarget) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    document = mounted(volumes, {"/w": "v"}, python("import os; print(os.getcwd())"))
    document["spec"]["replicatedJobs"].append(step("plain", python("import os; print(os.getcwd())")))
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["workingDir"] = "/w"
    run(local, document)
    pods = local.root / "jobs/default/job/pods"
    assert log(local) == f"{pods}/job-node-0-0/volumes/v\n"
    assert log(local, "job-plain-0-0") == f"{pods}/job-plain-0-0/scratch\n"


def test_claims_of_a_jobset_go_or_stay_with_it(local: LocalTarget) -> None:
    policies = [
        {"templates": [{"metadata": {"name": "goes"}, "spec": {}}]},
        {"templates": [{"metadata": {"name": "stays"}, "spec": {}}], "retentionPolicy": {"whenDeleted": "Retain"}},
    ]
    command = python("import sys; [open(a, 'w') for a in sys.argv[1:]]", "/g/f", "/s/f")
    document = mounted([], {"/g": "goes", "/s": "stays"}, command, volumeClaimPolicies=policies)
    assert run(local, document).phase == "Succeeded"
    folder = local.root / "volumes" / NAMESPACE
    assert sorted(p.name for p in folder.iterdir()) == ["goes-job", "stays-job"]
    local.delete(NAMESPACE, "job")
    assert [p.name for p in folder.iterdir()] == ["stays-job"]


def test_the_output_folder_is_told(local: LocalTarget) -> None:
    volumes = [{"name": "out", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    command = python("import sys; open(sys.argv[1], 'w').write('model')", f"{code.OUTPUT_PATH}/model.pt")
    status = run(local, mounted(volumes, {code.OUTPUT_PATH: "out"}, command))
    assert Path(status.output, "model.pt").read_text() == "model"
    assert status.output == str(local.root / "volumes/default/digits-output/data")


class TestVolumesOfThePrograms:
    def test_create_read_delete(self, local: LocalTarget) -> None:
        assert local.volume(NAMESPACE, "data") is None
        made = local.create_volume(NAMESPACE, "data", "owner-1", "stack-1")
        assert Path(made["path"]).is_dir()
        assert local.volume(NAMESPACE, "data") == made
        local.delete_volume(NAMESPACE, "data", made["generation"])
        assert local.volume(NAMESPACE, "data") is None
        assert not Path(made["path"]).exists()
        local.delete_volume(NAMESPACE, "data", made["generation"])

    def test_again_keeps_the_data_and_disarms_an_earlier_delete(self, local: LocalTarget) -> None:
        first = local.create_volume(NAMESPACE, "data", "owner-1", "stack-1")
        (Path(first["path"]) / "f").touch()
        second = local.create_volume(NAMESPACE, "data", "owner-1", "stack-1")
        local.delete_volume(NAMESPACE, "data", first["generation"])
        assert (Path(second["path"]) / "f").exists()

    def test_of_another_owner(self, local: LocalTarget) -> None:
        local.create_volume(NAMESPACE, "data", "owner-1", "")
        with pytest.raises(Conflict, match="volume default/data: exists and belongs to owner-1"):
            local.create_volume(NAMESPACE, "data", "owner-2", "")

    @pytest.mark.parametrize("suspend", [True, False])
    def test_not_under_a_job(self, local: LocalTarget, suspend: bool) -> None:
        made = local.create_volume(NAMESPACE, "data", "owner-1", "")
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        local.create(submission(mounted(volumes, {"/d": "v"}, python("import time; time.sleep(120)"), suspend=suspend)))
        with pytest.raises(Refused, match="volume default/data: is mounted by default/job, unfinished since 20"):
            local.delete_volume(NAMESPACE, "data", made["generation"])
        local.delete(NAMESPACE, "job")
        local.delete_volume(NAMESPACE, "data", made["generation"])
        assert local.volume(NAMESPACE, "data") is None

    def test_under_a_finished_job(self, local: LocalTarget) -> None:
        made = local.create_volume(NAMESPACE, "data", "owner-1", "")
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        run(local, mounted(volumes, {"/d": "v"}, python("pass")))
        local.delete_volume(NAMESPACE, "data", made["generation"])
        assert local.volume(NAMESPACE, "data") is None

    def test_a_sweep_takes_only_what_is_empty(self, local: LocalTarget) -> None:
        for name, stack in (("empty", "stack-1"), ("full", "stack-1"), ("other", "stack-2")):
            made = local.create_volume(NAMESPACE, name, "owner-1", stack)
            if name == "full":
                (Path(made["path"]) / "f").touch()
        assert local.sweep("stack-1") == ["default/empty"]
        assert local.volume(NAMESPACE, "full") is not None
        assert local.volume(NAMESPACE, "other") is not None

    def test_a_claim_that_a_job_made_becomes_ours(self, local: LocalTarget) -> None:
        folder = local.root / "volumes/default/data/data"
        folder.mkdir(parents=True)
        (folder / "f").touch()
        made = local.create_volume(NAMESPACE, "data", "owner-1", "")
        assert (Path(made["path"]) / "f").exists()
        assert json.loads((folder.parent / "volume.json").read_text())["owner"] == "owner-1"


def test_leases_that_cannot_be_taken_are_tried_again(local: LocalTarget, home: Path) -> None:
    blocked = home / ".cache" / "pulumi-trainer" / "leases"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder must be")
    local.create(submission(jobset(step())))
    status = wait(local, until=lambda s: s.reason == "WaitingForLeases")
    assert (status.phase, str(blocked) in status.message) == ("Pending", True)
    blocked.unlink()
    assert wait(local).phase == "Succeeded"


def test_a_volume_that_cannot_be_made_is_tried_again(local: LocalTarget) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    blocked = local.root / "volumes" / NAMESPACE
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder must be")
    local.create(submission(mounted(volumes, {"/d": "v"}, python("print('up')"))))
    status = wait(local, until=lambda s: s.reason == "CannotStartPod")
    assert str(blocked) in status.message
    blocked.unlink()
    assert wait(local).phase == "Succeeded"
    eventually(lambda: log(local) == "up\n")
