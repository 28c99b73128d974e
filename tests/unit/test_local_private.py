"""What other users of the machine can read, and what they can stand in the way of."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_support import (
    NAMESPACE,
    eventually,
    jobset,
    kill_supervisor,
    living,
    log,
    python,
    run,
    step,
    submission,
    wait,
)
from pulumi_trainer.provider.kubernetes.errors import Refused
from pulumi_trainer.provider.pod import layer
from pulumi_trainer.provider.targets.local import LocalTarget, paths, remote
from pulumi_trainer.provider.targets.local.leases import Leases

STRANGER = 12345
CANARY = "canary-5d1f77"


def open_to_others(root: Path) -> list[str]:
    """Whatever below a folder another user could read, or reach; a living job's files come and go meanwhile."""
    found = []
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                if not path.is_symlink() and path.stat().st_mode & 0o077:
                    found.append(str(path))
    return found


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def job(command: list[str], **fields: Any) -> dict[str, Any]:
    claim = {"name": "out", "persistentVolumeClaim": {"claimName": "out"}}
    mounts = [{"name": "out", "mountPath": "/out", "subPath": "run"}, {"name": "scratch", "mountPath": "/scratch"}]
    pod = {"volumes": [claim, {"name": "scratch", "emptyDir": {}}]}
    return jobset(step(command=command, container_fields={"volumeMounts": mounts}, pod=pod), **fields)


class TestModes:
    def test_nobody_else_can_read_what_a_job_leaves(self, local: LocalTarget, home: Path) -> None:
        local.volumes.create(NAMESPACE, "data", "owner-1", "")
        assert run(local, job(python(f"print('{CANARY}')"))).phase == "Succeeded"
        assert CANARY in log(local)
        names = {p.name for p in local.root.rglob("*")}
        assert {"record.json", "status.json", "supervisor.log", "node.log", "lock", "volume.json"} <= names
        assert open_to_others(local.root) == []
        assert open_to_others(home / ".cache/pulumi-trainer/leases") == []

    def test_while_it_runs_and_when_it_has_failed(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(step(command=python("print('up', flush=True); input()")))))
        eventually(lambda: local.logs.files(NAMESPACE, "job"))
        assert open_to_others(local.root) == []
        wait(local)
        assert open_to_others(local.root) == []

    def test_user_code_keeps_the_users_umask(self, local: LocalTarget) -> None:
        code = "import os, sys; os.mkdir(sys.argv[1] + '/d'); open(sys.argv[1] + '/d/f', 'w'); print(oct(os.umask(0)))"
        os.umask(0o027)
        run(local, job(python(code, "/out")))
        made = local.root / "volumes/default/out/data/run/d"
        assert log(local) == "0o27\n"
        assert [oct(p.stat().st_mode & 0o777) for p in (made, made / "f")] == ["0o750", "0o640"]
        assert (local.root / "volumes").stat().st_mode & 0o777 == 0o700

    def test_folders_that_others_can_read_are_closed(self, local: LocalTarget) -> None:
        for folder in ("jobs/default/job/logs", "volumes/default/data/data", "trash"):
            (local.root / folder).mkdir(parents=True, mode=0o755)
        local.volumes.create(NAMESPACE, "data", "owner-1", "")
        run(local, jobset(step()))
        local.jobs.delete(NAMESPACE, "job")
        assert open_to_others(local.root) == []

    def test_a_root_that_holds_something_else_stays_as_it_is(self, local: LocalTarget) -> None:
        local.root.mkdir(mode=0o755)
        (local.root / "site").mkdir(mode=0o755)
        run(local, jobset(step()))
        assert [local.root.stat().st_mode & 0o777, (local.root / "jobs").stat().st_mode & 0o777] == [0o755, 0o700]
        local.jobs.delete(NAMESPACE, "job")
        local.root.chmod(0o775)
        with pytest.raises(Refused, match=r"others may change it \(mode 775\).*chmod go-w"):
            local.jobs.create(submission(jobset(step())))


class TestFoldersOfOthers:
    """Whoever owns a folder can replace what is in it."""

    @pytest.mark.parametrize("folder", ["", "jobs", "jobs/default", "jobs/default/job"])
    def test_a_job_is_refused(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
        (local.root / folder).mkdir(parents=True)
        uid = os.getuid()
        monkeypatch.setattr(paths.os, "getuid", lambda: STRANGER)
        said = rf"root[^:]*: belongs to another user \(uid {uid}; this is uid {STRANGER}\), who .*Hint: run as that user, remove"
        with pytest.raises(Refused, match=said):
            local.jobs.create(submission(jobset(step())))

    def test_a_volume_is_refused(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        local.root.mkdir()
        monkeypatch.setattr(paths.os, "getuid", lambda: STRANGER)
        with pytest.raises(Refused, match="belongs to another user"):
            local.volumes.create(NAMESPACE, "data", "owner-1", "")

    def test_a_link_of_another_user_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "mine")
        own = os.stat_result

        def lstat(path: Path) -> own:
            found = os.lstat(path)
            return own((*found[:4], STRANGER, *found[5:]))

        monkeypatch.setattr(Path, "lstat", lstat)
        with pytest.raises(Refused, match=f"uid {STRANGER}"):
            paths.make_folder(tmp_path / "link", tmp_path / "link")

    def test_leases_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "leases").mkdir()
        monkeypatch.setattr(paths.os, "getuid", lambda: STRANGER)
        with pytest.raises(Refused, match="leases: belongs to another user"):
            Leases(tmp_path / "leases")

    def test_cached_environments_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(layer.os, "getuid", lambda: STRANGER)
        with pytest.raises(SystemExit, match="belongs to another user, whose programs are not run"):
            layer.layer(["a-package"], tmp_path)

    @pytest.mark.parametrize("squat", ["open", "other"])
    def test_a_node_does_not_listen_in_a_folder_of_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squat: str
    ) -> None:
        tmp_path.chmod(0o777 if squat == "open" else 0o700)
        monkeypatch.setenv(remote.FOLDER_ENV, str(tmp_path))
        monkeypatch.setenv(remote.ADDRESS_ENV, "127.64.0.1")
        if squat == "other":
            monkeypatch.setattr(remote.os, "getuid", lambda: STRANGER)
        with pytest.raises(SystemExit, match="is not a folder of this user alone"):
            remote.serve()


class TestLeases:
    """Names of leases are anybody's to take."""

    def test_whoever_takes_every_name_keeps_no_job_from_starting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Leases, "_take_name", lambda *_: False)
        leases = Leases(tmp_path / "leases")
        addresses = leases.addresses([f"pod-{i}" for i in range(300)], "seed")
        assert len(set(addresses.values())) == 300
        (port,) = leases.ports([29500]).values()
        assert port != 29500
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))

    def test_a_name_that_is_taken_is_respected(self, tmp_path: Path) -> None:
        one, other = Leases(tmp_path / "leases"), Leases(tmp_path / "leases")
        try:
            assert not {*one.addresses(["a"], "seed").values()} & {*other.addresses(["a"], "seed").values()}
        finally:
            one.release()
            other.release()


class TestTemporaryFiles:
    CODE = (
        "import os, sys, tempfile, time; f = tempfile.mkdtemp(); print(f, oct(os.stat(os.path.dirname(f)).st_mode & 0o777))\n"
        "sys.stdout.flush(); time.sleep(float(sys.argv[1]))"
    )

    def test_each_pod_has_a_folder_of_its_own_that_goes_with_it(self, local: LocalTarget, temporary: Path) -> None:
        run(local, jobset(step(command=python(self.CODE, "0"), pods=2)))
        said = [log(local, f"job-node-0-{i}").split() for i in range(2)]
        folders = {str(Path(folder).parent) for folder, _ in said}
        assert len(folders) == 2
        assert all(Path(f).parent == temporary and Path(f).name.startswith("pulumi-trainer-") for f in folders)
        assert [mode for _, mode in said] == ["0o700", "0o700"]
        assert list(temporary.iterdir()) == []

    def test_a_socket_fits_in(self, local: LocalTarget) -> None:
        """Its path has 107 bytes at most; data loaders and managers make such."""
        code = "from multiprocessing import Manager\nif __name__ == '__main__': print(list(Manager().list([1])))"
        deep = step(command=python(code), name="n" * 40)
        assert run(local, jobset(deep, name="j" * 15)).phase == "Succeeded"

    @pytest.mark.parametrize("end", ["delete", "lost", "suspend"])
    def test_it_goes_however_the_job_ends(self, local: LocalTarget, home: Path, temporary: Path, end: str) -> None:
        document = jobset(step(command=python(self.CODE, "120")))
        local.jobs.create(submission(document))
        eventually(lambda: log(local))
        assert len(list(temporary.iterdir())) == 1
        if end == "suspend":
            local.jobs.update(submission({**document, "spec": {**document["spec"], "suspend": True}}))
            eventually(lambda: not living(home))
        elif end == "lost":
            wait(local, until=lambda s: s.phase == "Running")
            kill_supervisor(local)
            wait(local)
        else:
            local.jobs.delete(NAMESPACE, "job")
        assert list(temporary.iterdir()) == []

    def test_a_program_may_name_another(self, local: LocalTarget, temporary: Path, tmp_path: Path) -> None:
        env = [{"name": "TMPDIR", "value": str(tmp_path)}]
        run(local, jobset(step(command=python(self.CODE, "0"), container_fields={"env": env})))
        assert Path(log(local).split()[0]).parent == tmp_path
