"""Volumes as folders, in jobs that use them, and volumes that outlive jobs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, eventually, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict
from pulumi_trainer.provider.pod import code
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
    local.jobs.delete(NAMESPACE, "job")
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
    local.jobs.delete(NAMESPACE, "job")
    assert [p.name for p in folder.iterdir()] == ["stays-job"]


class TestClaimsOfPolicies:
    """Names are made of a template and a job, so other volumes may have them."""

    def claiming(self, template: str, name: str, **policy: Any) -> dict[str, Any]:
        policies = [{"templates": [{"metadata": {"name": template}, "spec": {}}], **policy}]
        command = python("import sys; open(sys.argv[1], 'a').write('x')", "/x/f")
        return mounted([], {"/x": template}, command, name=name, volumeClaimPolicies=policies)

    @pytest.mark.parametrize("policy", [{}, {"retentionPolicy": {"whenDeleted": "Retain"}}])
    def test_a_volume_of_a_program_is_refused(self, local: LocalTarget, policy: dict[str, Any]) -> None:
        path = Path(local.volumes.create(NAMESPACE, "victim-output", "urn:victim", "stack-1")["path"])
        (path / "weights").write_text("work of years")
        document = self.claiming("victim", "output", **policy)
        where = "volume default/victim-output: exists and belongs to urn:victim"
        (refusal,) = local.jobs.review({"JobSet/output": document})[0]
        assert where in str(refusal)
        with pytest.raises(Conflict, match=where):
            local.jobs.create(submission(document))
        assert local.jobs.status(NAMESPACE, "output") is None
        assert (path / "weights").exists()

    def test_a_claim_of_another_job_is_refused(self, local: LocalTarget) -> None:
        run(local, self.claiming("a", "b-c"))
        other = self.claiming("a-b", "c")
        with pytest.raises(Conflict, match="exists and belongs to job default/b-c"):
            local.jobs.create(submission(other))
        with pytest.raises(Conflict, match="exists and belongs to job default/b-c"):
            local.volumes.create(NAMESPACE, "a-b-c", "urn:other", "")
        assert local.jobs.review({"JobSet/b-c": self.claiming("a", "b-c")})[0] == [], "it is the job's own"
        told = local.jobs.delete(NAMESPACE, "b-c")
        assert str(told).startswith("volume default/a-b-c is deleted with job default/b-c: 1 file, 1 B, last written 2")
        assert run(local, other).phase == "Succeeded"

    def test_one_that_was_there_before_stays(self, local: LocalTarget) -> None:
        before = local.root / "volumes/default/data-job/data/f"
        before.parent.mkdir(parents=True)
        before.write_text("rows")
        run(local, self.claiming("data", "job"))
        assert local.jobs.delete(NAMESPACE, "job") is None
        assert before.read_text() == "rowsx"

    def test_one_taken_by_a_program_in_the_meantime_stays(self, local: LocalTarget) -> None:
        run(local, self.claiming("data", "job"))
        file = local.root / "volumes/default/data-job/volume.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "owner": "urn:other", "job": ""}))
        assert local.jobs.delete(NAMESPACE, "job") is None
        assert file.exists()

    def test_one_that_another_job_mounts_goes_with_that(self, local: LocalTarget) -> None:
        run(local, self.claiming("data", "job"))
        claim = [{"name": "v", "persistentVolumeClaim": {"claimName": "data-job"}}]
        forever = python("import time; time.sleep(600)")
        local.jobs.create(submission(mounted(claim, {"/x": "v"}, forever, name="reader")))
        wait(local, "reader", lambda s: s.phase == "Running")
        assert "volume default/data-job is kept for default/reader" in str(local.jobs.delete(NAMESPACE, "job"))
        assert (local.root / "volumes/default/data-job/data/f").exists()
        local.jobs.delete(NAMESPACE, "reader", grace=0)
        assert not (local.root / "volumes/default/data-job").exists()


def test_the_output_folder_is_told(local: LocalTarget) -> None:
    volumes = [{"name": "out", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    command = python("import sys; open(sys.argv[1], 'w').write('model')", f"{code.OUTPUT_PATH}/model.pt")
    status = run(local, mounted(volumes, {code.OUTPUT_PATH: "out"}, command))
    assert Path(status.output, "model.pt").read_text() == "model"
    assert status.output == str(local.root / "volumes/default/digits-output/data")


class TestVolumesOfThePrograms:
    def test_create_read_delete(self, local: LocalTarget) -> None:
        assert local.volumes.find(NAMESPACE, "data") is None
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        assert Path(made["path"]).is_dir()
        assert local.volumes.find(NAMESPACE, "data") == (made, Owner("owner-1", "stack-1"))
        local.volumes.delete(NAMESPACE, "data", made["generation"])
        assert local.volumes.find(NAMESPACE, "data") is None
        assert not Path(made["path"]).exists()
        local.volumes.delete(NAMESPACE, "data", made["generation"])

    def test_again_keeps_the_data_and_disarms_an_earlier_delete(self, local: LocalTarget) -> None:
        first = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        (Path(first["path"]) / "f").touch()
        second = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        local.volumes.delete(NAMESPACE, "data", first["generation"])
        assert (Path(second["path"]) / "f").exists()

    def test_of_another_owner(self, local: LocalTarget) -> None:
        local.volumes.create(NAMESPACE, "data", "owner-1", "")
        with pytest.raises(Conflict, match="volume default/data: exists and belongs to owner-1"):
            local.volumes.create(NAMESPACE, "data", "owner-2", "")

    @pytest.mark.parametrize("suspend", [True, False])
    def test_it_is_left_to_a_job_that_has_not_finished(self, local: LocalTarget, suspend: bool) -> None:
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        (Path(made["path"]) / "f").touch()
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        local.jobs.create(
            submission(mounted(volumes, {"/d": "v"}, python("import time; time.sleep(120)"), suspend=suspend))
        )
        said = local.volumes.delete(NAMESPACE, "data", made["generation"])
        assert said.startswith("volume default/data is kept for default/job, unfinished since 20")
        assert (Path(made["path"]) / "f").exists()
        local.jobs.delete(NAMESPACE, "job")
        assert not Path(made["path"]).exists(), "it goes with that run of the job"

    def test_one_that_is_wanted_again_does_not_go_with_the_job(self, local: LocalTarget) -> None:
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "")
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        local.jobs.create(submission(mounted(volumes, {"/d": "v"}, python("pass"), suspend=True)))
        assert local.volumes.delete(NAMESPACE, "data", made["generation"])
        again = local.volumes.create(NAMESPACE, "data", "owner-1", "")
        local.jobs.delete(NAMESPACE, "job")
        found = local.volumes.find(NAMESPACE, "data")
        assert found is not None and found[0] == again

    def test_a_sweep_takes_one_that_was_left(self, local: LocalTarget) -> None:
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        (Path(made["path"]) / "f").touch()
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        local.jobs.create(submission(mounted(volumes, {"/d": "v"}, python("pass"), suspend=True), sweep=""))
        local.volumes.delete(NAMESPACE, "data", made["generation"])
        assert local.sweep("stack-1") == ["default/data"]

    def test_what_it_holds_is_described(self, local: LocalTarget) -> None:
        made = local.volumes.create(NAMESPACE, "job-output", "owner-1", "stack-1")
        assert local.volumes.describe(NAMESPACE, "job-output") == ""
        (Path(made["path"]) / "run").mkdir()
        (Path(made["path"]) / "run" / "model.pt").write_bytes(b"x" * 1200)
        held = local.volumes.describe(NAMESPACE, "job-output")
        assert held.startswith("1 file, 1.2 kB, last written 20")

    def test_under_a_finished_job(self, local: LocalTarget) -> None:
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "")
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        run(local, mounted(volumes, {"/d": "v"}, python("pass")))
        local.volumes.delete(NAMESPACE, "data", made["generation"])
        assert local.volumes.find(NAMESPACE, "data") is None

    def test_a_sweep_takes_only_what_is_empty(self, local: LocalTarget) -> None:
        for name, stack in (("empty", "stack-1"), ("full", "stack-1"), ("other", "stack-2")):
            made = local.volumes.create(NAMESPACE, name, "owner-1", stack)
            if name == "full":
                (Path(made["path"]) / "f").touch()
        assert local.sweep("stack-1") == ["default/empty"]
        assert local.volumes.find(NAMESPACE, "full") is not None
        assert local.volumes.find(NAMESPACE, "other") is not None

    def test_a_sweep_tells_what_was_left_to_a_job(self, local: LocalTarget) -> None:
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "stack-1")
        (Path(made["path"]) / "model.pt").write_bytes(b"x" * 1200)
        file = Path(made["path"]).with_name("volume.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "left": True}))
        told: list[str] = []
        assert local.sweep("stack-1", told.append) == ["default/data"]
        assert len(told) == 1 and told[0].startswith(
            "volume default/data is deleted with what is in it: 1 file, 1.2 kB, last written 20"
        )

    def test_a_claim_that_a_job_made_becomes_ours(self, local: LocalTarget) -> None:
        folder = local.root / "volumes/default/data/data"
        folder.mkdir(parents=True)
        (folder / "f").touch()
        made = local.volumes.create(NAMESPACE, "data", "owner-1", "")
        assert (Path(made["path"]) / "f").exists()
        assert json.loads((folder.parent / "volume.json").read_text())["owner"] == "owner-1"


def modes(folder: Path) -> set[int]:
    return {p.stat().st_mode & 0o222 for p in (folder, *folder.rglob("*")) if not p.is_symlink()}


def test_fetched_data_is_read_only_where_it_is_mounted_so(local: LocalTarget, tmp_path: Path) -> None:
    made = local.volumes.create(NAMESPACE, "data", "owner-1", "")
    data = Path(made["path"])
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (data / "sub").mkdir()
    (data / "sub" / "a.txt").write_text("A")
    (data / "link").symlink_to(outside)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    run(local, mounted([volume], {"/d": "v"}, python("pass")))
    assert modes(data) != {0}, "what nobody has fetched is left as it is"
    code.manifest_of(data).write_text("{}")
    run(local, mounted([volume], {"/d": "v"}, python(TREE, "/d/sub"), name="reads"))
    assert log(local, "reads-node-0-0", "reads").splitlines() == ["a.txt 0o444 A"]
    assert modes(data) == {0} and outside.stat().st_mode & 0o222, "a link leads nowhere"
    writable = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    change = "import sys; open(sys.argv[1] + '/sub/a.txt', 'a').write('B')"
    run(local, mounted([writable], {"/d": "v"}, python(change, "/d"), name="writes"))
    assert (data / "sub" / "a.txt").read_text() == "AB" and all(mode & 0o200 for mode in modes(data))
    run(local, mounted([volume], {"/d": "v"}, python("pass"), name="again"))
    assert modes(data) == {0}
    local.volumes.delete(NAMESPACE, "data", made["generation"])
    assert not data.exists()


def test_leases_that_cannot_be_taken_are_tried_again(local: LocalTarget, home: Path) -> None:
    blocked = home / ".cache" / "pulumi-trainer" / "leases"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder must be")
    local.jobs.create(submission(jobset(step())))
    status = wait(local, until=lambda s: s.reason == "WaitingForLeases")
    assert (status.phase, str(blocked) in status.message) == ("Pending", True)
    blocked.unlink()
    assert wait(local).phase == "Succeeded"


def test_a_volume_that_cannot_be_made_is_tried_again(local: LocalTarget) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    blocked = local.root / "volumes" / NAMESPACE
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder must be")
    local.jobs.create(submission(mounted(volumes, {"/d": "v"}, python("print('up')"))))
    status = wait(local, until=lambda s: s.reason == "CannotStartPod")
    assert str(blocked) in status.message
    blocked.unlink()
    assert wait(local).phase == "Succeeded"
    eventually(lambda: log(local) == "up\n")
