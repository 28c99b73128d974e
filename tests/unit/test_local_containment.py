"""Names out of documents stay in the job's folder: they are refused, and where they are not, nothing outside is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, jobset, log, python, run, step, submission
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Invalid, Refused
from pulumi_trainer.provider.targets.local import LocalTarget, local_limits, paths
from pulumi_trainer.provider.targets.local.paths import inside, make_folder, remove_tree

from tests.trainer import review_jobset

LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
OUT = "../../../../../../victim"
"""From the folder of a pod's volumes to beside the target's root."""


def of_volume(**fields: Any) -> dict[str, Any]:
    volume = {"name": "v", "emptyDir": {}, **fields}
    if len(volume) > 2:
        del volume["emptyDir"]
    mounts = [{"name": volume["name"], "mountPath": "/v"}]
    return jobset(step(container_fields={"volumeMounts": mounts}, pod={"volumes": [volume]}))


def of_container(**fields: Any) -> dict[str, Any]:
    return jobset(step(container_fields=fields, pod={"volumes": [{"name": "v", "emptyDir": {}}]}))


def of_items(kind: str, **item: Any) -> dict[str, Any]:
    ref = {} if kind == "downwardAPI" else {"secretName" if kind == "secret" else "name": "s", "optional": True}
    return of_volume(**{kind: {**ref, "items": [item]}})


NAMES = [
    (of_volume(name=OUT), "volumes[0].name", LABEL),
    (of_volume(name="."), "volumes[0].name", LABEL),
    (of_volume(name="a.b"), "volumes[0].name", "must not contain dots"),
    (of_volume(name=""), "volumes[0].name", "Required value"),
    (of_volume(persistentVolumeClaim={"claimName": "../../x"}), "persistentVolumeClaim.claimName", SUBDOMAIN),
    (of_volume(persistentVolumeClaim={"claimName": "/tmp/x"}), "persistentVolumeClaim.claimName", SUBDOMAIN),
    (of_volume(persistentVolumeClaim={}), "persistentVolumeClaim.claimName", "Required value"),
    (of_volume(hostPath={"path": "/tmp/../etc"}), "hostPath.path", "must not contain '..'"),
    (of_items("configMap", key="a", path="../a"), "configMap.items[0].path", "must not contain '..'"),
    (of_items("configMap", key="a", path="..a"), "configMap.items[0].path", "must not start with '..'"),
    (of_items("configMap", path="a"), "configMap.items[0].key", "Required value"),
    (of_items("secret", key="a", path="/a"), "secret.items[0].path", "must be a relative path"),
    (of_items("downwardAPI", path="b/../../a"), "downwardAPI.items[0].path", "must not contain '..'"),
    (
        of_volume(projected={"sources": [{"configMap": {"name": "s", "items": [{"key": "a", "path": "../a"}]}}]}),
        "projected.sources[0].configMap.items[0].path",
        "must not contain '..'",
    ),
    (of_container(name="../../x"), "containers[0].name", LABEL),
    (of_container(name="x\n"), "containers[0].name", LABEL),
    (of_container(name=""), "containers[0].name", "Required value"),
    (of_container(env=[{"name": "A=B", "value": "x"}]), "env[0].name", "printable ASCII characters other than '='"),
    (of_container(env=[{"name": "", "value": "x"}]), "env[0].name", "Required value"),
    (
        of_container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "../k"}}}]),
        "env[0].valueFrom.secretKeyRef.key",
        "a valid config key must consist of",
    ),
    (
        of_container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "../x"}]),
        "volumeMounts[0].subPath",
        "must not contain '..'",
    ),
    (
        of_container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": "/x"}]),
        "volumeMounts[0].subPathExpr",
        "must be a relative path",
    ),
    (of_container(volumeMounts=[{"name": "v", "mountPath": ""}]), "volumeMounts[0].mountPath", "Required value"),
]


@pytest.mark.parametrize(("document", "field", "why"), NAMES)
def test_names_are_refused_in_the_words_of_the_api_server(document: dict[str, Any], field: str, why: str) -> None:
    found = [p for p in review_jobset(document) if p.where.endswith(field)]
    assert why in "; ".join(p.why for p in found), review_jobset(document)
    assert not any("\n" in str(p) for p in found)


@pytest.mark.parametrize(("document", "field", "why"), NAMES)
def test_a_state_that_somebody_has_changed_is_refused_as_well(
    local: LocalTarget, document: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(Invalid) as refused:
        local.jobs.create(submission(document))
    assert f"{field}: " in str(refused.value) and why in str(refused.value)
    assert not local.root.exists()


def test_an_init_container_is_a_container() -> None:
    inits = [{"name": "../x", "image": "x", "command": ["x"]}]
    document = jobset(step(pod={"initContainers": inits}))
    assert [p.where.rpartition("spec.")[2] for p in review_jobset(document)] == ["initContainers[0].name"]


@pytest.fixture
def unguarded(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTarget]:
    """The first protection has a hole."""
    monkeypatch.setattr(local_limits, "invalid_names", lambda _: [])
    yield local


class TestWithoutAdmission:
    """The second protection alone: every path is compared with its folder before anything is made or removed."""

    def victim(self, local: LocalTarget) -> Path:
        folder = local.root.parent / "victim"
        folder.mkdir(exist_ok=True)
        (folder / "precious").write_text("work of years")
        return folder

    def outside(self, local: LocalTarget) -> set[str]:
        """Everything beside the target's root."""
        found = (p for p in local.root.parent.rglob("*") if local.root not in (p, *p.parents))
        return {str(p) for p in found if "/home/" not in str(p) and p.name != "home"}

    @pytest.mark.parametrize("beside", ["emptyDir", "secret"])
    @pytest.mark.parametrize("name", [OUT, "..", "../../..", "a/../../../b", ".", "x\0y"])
    def test_a_volume(self, unguarded: LocalTarget, beside: str, name: str) -> None:
        victim = self.victim(unguarded)
        before = self.outside(unguarded)
        source: dict[str, Any] = {} if beside == "emptyDir" else {"secretName": "s", "optional": True}
        volumes = [{"name": "ok", "emptyDir": {}}, {"name": name, beside: source}]
        status = run(unguarded, jobset(step(pod={"volumes": volumes})))
        assert (status.phase, status.reason) == ("Failed", "CannotStartPod")
        assert "leads out of its folder" in status.message or "not a valid path" in status.message
        assert (victim / "precious").read_text() == "work of years"
        assert self.outside(unguarded) == before

    def test_a_claim(self, unguarded: LocalTarget) -> None:
        before = self.outside(unguarded)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "../../../made"}}]
        assert run(unguarded, jobset(step(pod={"volumes": volumes}))).reason == "CannotStartPod"
        assert self.outside(unguarded) == before

    def test_the_name_of_a_container(self, unguarded: LocalTarget) -> None:
        before = self.outside(unguarded)
        status = run(unguarded, jobset(step(container_fields={"name": "../../../../../../log"})))
        assert status.reason == "CannotStartPod"
        assert self.outside(unguarded) == before

    def test_keys_and_paths_of_files(self, unguarded: LocalTarget) -> None:
        victim = self.victim(unguarded)
        before = self.outside(unguarded)
        data = config("settings", {OUT + "/precious": "overwritten"})
        mounted = of_volume(configMap={"name": "settings"})
        assert run(unguarded, mounted, data).reason == "CannotStartPod"
        assert (victim / "precious").read_text() == "work of years"
        assert self.outside(unguarded) == before

    def test_a_claim_template(self, unguarded: LocalTarget) -> None:
        victim = self.victim(unguarded)
        policies = [{"templates": [{"metadata": {"name": "innocent"}, "spec": {}}]}]
        with pytest.raises(Invalid):
            run(
                unguarded,
                json.loads(
                    json.dumps(jobset(step(), volumeClaimPolicies=policies)).replace("innocent", "../../../../victim/x")
                ),
            )
        run(unguarded, jobset(step(), volumeClaimPolicies=policies))
        (file,) = (unguarded.root / "jobs").glob("*/*/record.json")
        honest = file.read_text()
        file.write_text(honest.replace("innocent", "../../../../victim/x"))
        with pytest.raises(Invalid):
            unguarded.jobs.delete(NAMESPACE, "job")
        assert (victim / "precious").exists()
        file.write_text(honest)

    def test_the_namespace_of_the_jobset(self, unguarded: LocalTarget) -> None:
        before = self.outside(unguarded)
        document = of_volume(persistentVolumeClaim={"claimName": "c"})
        document["metadata"]["namespace"] = "../../../made"
        assert run(unguarded, document).reason == "CannotStartPod"
        assert self.outside(unguarded) == before


class TestLinks:
    """What user code leaves in its folders leads nowhere else."""

    LINK = "import os, sys; os.symlink(sys.argv[1], sys.argv[2])"

    def test_a_link_in_a_volume_is_not_written_through(self, local: LocalTarget, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
        whole = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        below = {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "link/deep"}]}
        link = python(self.LINK, str(tmp_path / "elsewhere"), "/v/link")
        first = step("first", link, pod=claim, container_fields=whole)
        second = step("second", pod=claim, container_fields=below, dependsOn=[{"name": "first", "status": "Complete"}])
        status = run(local, jobset(first, second))
        assert (status.phase, status.reason) == ("Failed", "CannotStartPod")
        assert "leads out of its folder" in status.message
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_a_link_in_place_of_a_folder_is_removed_and_not_followed(self, local: LocalTarget, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o500)
        (elsewhere / "kept").mkdir(mode=0o500)
        link = python(
            "import os, sys; os.rmdir(sys.argv[2]); os.symlink(sys.argv[1], sys.argv[2])", str(elsewhere), "/v"
        )
        volumes = [{"name": "v", "emptyDir": {}}]
        mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        assert (
            run(local, jobset(step(command=link, container_fields=mounts, pod={"volumes": volumes}))).phase
            == "Succeeded"
        )
        local.jobs.delete(NAMESPACE, "job")
        assert (elsewhere / "kept").is_dir()
        assert elsewhere.stat().st_mode & 0o777 == 0o500

    def test_the_volumes_folder_of_a_claim_is_not_a_link(self, local: LocalTarget, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        folder = local.root / "volumes/default"
        folder.mkdir(parents=True)
        (folder / "data").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(Refused, match="'volumes/default/data/data': leads out of its folder"):
            local.volumes.create(NAMESPACE, "data", "owner-1", "")
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_the_root_may_be_a_link(self, local: LocalTarget, tmp_path: Path) -> None:
        (tmp_path / "large").mkdir()
        local.root.symlink_to(tmp_path / "large")
        run(local, jobset(step(command=python("print('up')"))))
        assert log(local) == "up\n"
        assert (tmp_path / "large/jobs/default/job/record.json").exists()


class TestAnotherRoot:
    """A state that somebody has changed names another folder of the same user as `root`."""

    @pytest.fixture
    def own(self, local: LocalTarget) -> Path:
        """A folder of the user's own, where the job's would be."""
        folder = local.root / "jobs/default/job"
        folder.mkdir(parents=True)
        local.root.chmod(0o755)
        folder.chmod(0o755)
        (folder / "thesis.txt").write_text("work of years")
        return folder

    def test_a_folder_without_a_record_is_refused(self, local: LocalTarget, own: Path) -> None:
        for call in (
            lambda: local.jobs.delete(NAMESPACE, "job", uid="u", owner=Owner("owner-1")),
            lambda: local.jobs.update(submission(jobset(step()))),
        ):
            with pytest.raises(
                Refused, match=r"has no record.json of a job, and holds 'thesis.txt'; nothing there was"
            ):
                call()
        assert local.jobs.status(NAMESPACE, "job") is None
        assert [p.name for p in own.iterdir()] == ["thesis.txt"]
        assert {p.stat().st_mode & 0o777 for p in (own, local.root)} == {0o755}

    def test_what_a_crash_leaves_before_the_record_goes(self, local: LocalTarget) -> None:
        folder = local.root / "jobs/default/job"
        folder.mkdir(parents=True)
        (folder / "lock").touch()
        (folder / ".record.json.17-00ff").touch()
        assert local.jobs.delete(NAMESPACE, "job") is None
        assert not folder.exists()

    def test_a_job_of_another_owner_stays(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(step(), suspend=True)))
        assert local.jobs.delete(NAMESPACE, "job", owner=Owner("somebody")) is not None
        assert (local.root / "jobs/default/job/record.json").exists()

    @pytest.mark.parametrize("name", ["../../../own", "..", "a/b", "/etc", "a\\0", ""])
    def test_a_name_that_leads_out(self, local: LocalTarget, tmp_path: Path, name: str) -> None:
        (tmp_path / "own").mkdir()
        (local.root / "jobs/default").mkdir(parents=True)
        for namespace, called in ((NAMESPACE, name), (name, "job")):
            with pytest.raises(Invalid, match="not a name that Kubernetes accepts"):
                local.jobs.delete(namespace, called)
            with pytest.raises(Invalid, match="not a name that Kubernetes accepts"):
                local.volumes.delete(namespace, called, "g")
        assert (tmp_path / "own").is_dir()

    @pytest.mark.parametrize("record", [True, False])
    def test_a_link_in_place_of_the_folder(self, local: LocalTarget, tmp_path: Path, record: bool) -> None:
        other = LocalTarget(tmp_path / "other")
        other.jobs.create(submission(jobset(step(), suspend=True)))
        real = other.root / "jobs/default/job"
        if not record:
            (real / "record.json").rename(real / "kept.json")
        before = sorted(p.name for p in real.iterdir())
        (local.root / "jobs/default").mkdir(parents=True)
        (local.root / "jobs/default/job").symlink_to(real)
        with pytest.raises(Refused, match="leads out of its folder"):
            local.jobs.delete(NAMESPACE, "job")
        assert sorted(p.name for p in real.iterdir()) == before
        (local.root / "jobs/default/job").unlink()

    def test_a_trash_folder_of_the_user_is_not_emptied(self, local: LocalTarget) -> None:
        (local.root / "trash").mkdir(parents=True)
        (local.root / "trash/thesis.txt").write_text("work of years")
        local.jobs.create(submission(jobset(step(), suspend=True)))
        local.jobs.delete(NAMESPACE, "job")
        assert [p.name for p in (local.root / "trash").iterdir()] == ["thesis.txt"]

    def test_a_volume_without_its_file_stays(self, local: LocalTarget) -> None:
        own = local.root / "volumes/default/data"
        own.mkdir(parents=True)
        (own / "thesis.txt").write_text("work of years")
        assert local.volumes.delete(NAMESPACE, "data", "g") == ""
        assert (own / "thesis.txt").exists()


class TestInside:
    @pytest.mark.parametrize(
        "name", ["", ".", "..", "../x", "a/../../x", "a/..", "a/../b", "/etc", "out", "x\0", "out/x"]
    )
    def test_refused(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "out").symlink_to(tmp_path)
        with pytest.raises(Refused):
            inside(folder, name)

    @pytest.mark.parametrize("name", ["x", "a/b", ".hidden", "..x", "a\nb", "in"])
    def test_taken(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "in").symlink_to(tmp_path / "x")
        assert inside(tmp_path, name) == tmp_path / name

    def test_a_loop_of_links(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises((Refused, OSError)):
            make_folder(tmp_path / "loop/x", tmp_path)

    def test_no_name_leads_out(self, tmp_path: Path) -> None:
        """Every word of up to four letters out of those that matter in paths."""
        from itertools import product

        for length in range(1, 5):
            for letters in product("./a", repeat=length):
                try:
                    found = inside(tmp_path, "".join(letters))
                except Refused:
                    continue
                assert tmp_path in found.resolve().parents


def test_remove_tree_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o500


def test_a_temporary_folder_without_the_one_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell of nix or Slurm removes its folder when it ends; the job goes on."""
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr(paths, "_TEMPORARY", (tmp_path / "machine",))
    made = paths.make_temporary(tmp_path / "gone", "uid-1")
    assert made.parent == tmp_path / "machine"
    paths.remove_temporaries(tmp_path / "gone", "uid-1")
    assert not made.exists()


def test_a_temporary_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = paths.make_temporary(tmp_path, "uid-1")
    other = paths.make_temporary(tmp_path, "uid-2")
    monkeypatch.setattr(paths.os, "getuid", lambda: 12345)
    paths.remove_temporaries(tmp_path, "uid-1")
    assert made.is_dir()
    monkeypatch.undo()
    paths.remove_temporaries(tmp_path, "uid-1")
    assert not made.exists() and other.is_dir()
