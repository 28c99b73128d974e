"""Calls of the Local target: creating, taking over, changing, deleting; other hosts, two creators, full disks."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_support import (
    NAMESPACE,
    config,
    eventually,
    jobset,
    living,
    log,
    python,
    run,
    step,
    submission,
    supervisor_of,
    wait,
)
from pulumi_trainer.provider.jobs.status import Owner, Presence
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Refused, TargetFault, Unreadable
from pulumi_trainer.provider.targets.local import LocalTarget, host_id, job_reader, machine, record, store, supervision
from pulumi_trainer.provider.targets.local.store import JobFolder

SLEEP = step(command=python("print('up', flush=True); import time; time.sleep(120)"))


class TestCreate:
    def test_the_same_again_is_taken_over(self, local: LocalTarget) -> None:
        first = local.jobs.create(submission(jobset(SLEEP)))
        supervisor = supervisor_of(local)
        again = local.jobs.create(submission(jobset(SLEEP)))
        assert again.uid == first.uid
        assert supervisor_of(local) == supervisor
        eventually(lambda: log(local))
        assert log(local) == "up\n"

    def test_a_finished_job_is_not_run_again(self, local: LocalTarget) -> None:
        document = jobset(step(command=python("print('once')")))
        done = run(local, document)
        assert local.jobs.create(submission(document)) == done
        assert log(local) == "once\n"

    @pytest.mark.parametrize("root", ["dangling", "/proc/x"])
    def test_a_root_that_cannot_be_made_is_said_at_once(self, root: str, tmp_path: Path) -> None:
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        with pytest.raises(TargetFault, match=f"{root}: cannot be written: (is a link to .*/nowhere|No such file)"):
            LocalTarget(tmp_path / root).jobs.create(submission(jobset(SLEEP)))

    @pytest.mark.parametrize("other", [{"digest": "digest-2"}, {"owner": "owner-2"}])
    def test_something_else_of_that_name_is_a_conflict(self, local: LocalTarget, other: dict[str, str]) -> None:
        local.jobs.create(submission(jobset(SLEEP, suspend=True)))
        with pytest.raises(Conflict, match=r"^default/job: exists since 20.*(, then `pulumi up`|with adopt=True)$"):
            local.jobs.create(submission(jobset(SLEEP, suspend=True), **other))

    def test_adopt(self, local: LocalTarget) -> None:
        mine = local.jobs.create(submission(jobset(SLEEP, suspend=True)))
        theirs = submission(jobset(SLEEP, suspend=True), owner="owner-2", digest="digest-2")
        taken = local.jobs.create(theirs, adopt=True)
        assert (taken.uid, taken.owner, taken.digest) == (mine.uid, "owner-2", "digest-2")
        different = submission(jobset(step(), suspend=True), owner="owner-3")
        with pytest.raises(Conflict, match="cannot be adopted: it differs in JobSet/job"):
            local.jobs.create(different, adopt=True)

    def test_what_cannot_be_done_is_refused_and_nothing_is_written(self, local: LocalTarget) -> None:
        with pytest.raises(Invalid, match="the container of its runtime a command"):
            local.jobs.create(submission(jobset(step(pod={"containers": [{"name": "node", "image": "x"}]}))))
        assert not local.root.exists()

    @pytest.mark.parametrize("name", ["../x", "a/b", "A", "", ".", "a..b"])
    def test_names_become_paths_only_if_they_are_names(self, local: LocalTarget, name: str) -> None:
        with pytest.raises(Invalid, match="is not a name"):
            local.jobs.status(NAMESPACE, name)

    def test_an_unfinished_creation_is_finished(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        """The creator is killed after it wrote the record, before the supervisor has begun."""
        asked = submission(jobset(step(command=python("print('once')"))))
        with monkeypatch.context() as patch:
            patch.setattr(supervision, "start", lambda *_: None)
            local.jobs.create(asked)
        seen = local.jobs.status(NAMESPACE, "job")
        assert seen is not None
        assert (seen.phase, seen.reason) == ("Pending", "NotStarted")
        local.jobs.create(asked)
        assert wait(local).phase == "Succeeded"
        assert log(local) == "once\n"

    def test_an_empty_folder_is_no_job(self, local: LocalTarget) -> None:
        (local.root / "jobs/default/job").mkdir(parents=True)
        assert local.jobs.status(NAMESPACE, "job") is None
        assert local.jobs.list_all() == []
        assert run(local, jobset(step())).phase == "Succeeded"

    def test_a_damaged_record_is_told(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(SLEEP, suspend=True)))
        path = local.root / "jobs/default/job/record.json"
        for text in ("{", "[]", "{}", '{"namespace": 1}'):
            path.write_text(text)
            with pytest.raises(TargetFault, match=r"record\.json"):
                local.jobs.status(NAMESPACE, "job")
        path.unlink()


CREATE = """
import sys, json, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from local_support import jobset, step, python, submission
from pulumi_trainer.provider.targets.local import LocalTarget
target = LocalTarget(sys.argv[1])
go = Path(sys.argv[2])
print("ready", flush=True)
while not go.exists(): time.sleep(0.001)
status = target.jobs.create(submission(jobset(step(command=python("print('once', flush=True); import time; time.sleep(120)")))))
print(status.uid, flush=True)
"""


def test_two_creators_at_once_start_it_once(local: LocalTarget, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CREATE, str(local.root), str(tmp_path / "go"), str(Path(__file__).parent)]
    creators = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for creator in creators:
        assert creator.stdout
        assert creator.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    uids = {creator.communicate()[0].strip() for creator in creators}
    assert len(uids) == 1
    eventually(lambda: log(local))
    assert log(local) == "once\n"
    assert supervisor_of(local).is_running(), "it outlives its creator"
    assert len([p for p in living(Path(os.environ["HOME"])) if "supervisor" in " ".join(p.cmdline())]) == 1


def test_many_calls_at_once(local: LocalTarget) -> None:
    """Four calls come at a time; creating and deleting one job must never mix."""
    asked = submission(jobset(SLEEP, suspend=True))
    faults: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(15):
                uid = local.jobs.create(asked).uid
                local.jobs.status(NAMESPACE, "job")
                try:
                    local.jobs.update(asked)
                except TargetFault as gone:
                    assert "is gone" in str(gone)
                local.jobs.delete(NAMESPACE, "job", uid=uid)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    local.jobs.delete(NAMESPACE, "job")
    assert list((local.root / "jobs/default").iterdir()) == []
    assert list((local.root / "trash").iterdir()) == []


def test_a_file_where_the_folder_must_be(local: LocalTarget) -> None:
    (local.root / "jobs/default").mkdir(parents=True)
    (local.root / "jobs/default/job").touch()
    with pytest.raises(TargetFault, match="jobs/default/job: cannot be written: is not a folder"):
        local.jobs.create(submission(jobset(SLEEP, suspend=True)))


def test_a_second_supervisor_has_no_chance(local: LocalTarget) -> None:
    local.jobs.create(submission(jobset(SLEEP)))
    supervisor_of(local)
    folder = JobFolder.of(local.root, NAMESPACE, "job")
    assert folder.supervised()
    assert folder.take_supervisor_lock() is None


class TestUpdate:
    def test_time_to_live_and_metadata(self, local: LocalTarget) -> None:
        created = local.jobs.create(submission(jobset(SLEEP)))
        document = jobset(SLEEP, ttlSecondsAfterFinished=7)
        document["metadata"]["labels"] = {"a": "b"}
        updated = local.jobs.update(submission(document, digest="digest-2"))
        assert (updated.uid, updated.digest) == (created.uid, "digest-2")
        written = json.loads((local.root / "jobs/default/job/record.json").read_text())
        assert written["objects"]["JobSet/job"]["metadata"]["labels"] == {"a": "b"}
        assert written["created"] == created.created
        wait(local, until=lambda s: s.phase == "Running" and s.digest == "digest-2")

    def test_of_another_owner(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(SLEEP, suspend=True)))
        with pytest.raises(Conflict, match="belongs to another TrainJob of this stack"):
            local.jobs.update(submission(jobset(SLEEP), owner="owner-2"))
        with pytest.raises(Conflict, match="belongs to another program"):
            local.jobs.update(submission(jobset(SLEEP), owner="owner-2", sweep="other-1"))

    def test_of_nothing(self, local: LocalTarget) -> None:
        with pytest.raises(TargetFault, match=r"is gone. Hint: `pulumi preview` shows what"):
            local.jobs.update(submission(jobset(SLEEP)))


class TestDelete:
    def test_ends_everything_and_leaves_nothing(self, local: LocalTarget, home: Path) -> None:
        local.jobs.create(submission(jobset(SLEEP)))
        eventually(lambda: log(local))
        local.jobs.delete(NAMESPACE, "job")
        assert local.jobs.status(NAMESPACE, "job") is None
        assert list((local.root / "jobs/default").iterdir()) == []
        assert list((local.root / "trash").iterdir()) == []
        assert not living(home)
        local.jobs.delete(NAMESPACE, "job")

    def test_only_that_run(self, local: LocalTarget) -> None:
        uid = local.jobs.create(submission(jobset(SLEEP, suspend=True))).uid
        local.jobs.delete(NAMESPACE, "job", uid="another")
        assert local.jobs.status(NAMESPACE, "job") is not None
        local.jobs.delete(NAMESPACE, "job", uid=uid)
        assert local.jobs.status(NAMESPACE, "job") is None

    def test_not_what_another_stack_has_adopted(self, local: LocalTarget) -> None:
        document = jobset(SLEEP, suspend=True)
        uid = local.jobs.create(submission(document, program="lab/one")).uid
        theirs = submission(document, owner="owner-2", sweep="two-1", program="lab/two")
        assert local.jobs.create(theirs, adopt=True).uid == uid
        taker = local.jobs.delete(NAMESPACE, "job", uid=uid, owner=Owner("owner-1", "stack-1"))
        assert str(taker) == "the stack lab/two"
        with pytest.raises(Conflict, match="belongs to the stack lab/two"):
            local.jobs.update(submission(jobset(SLEEP)))
        assert local.sweep("stack-1") == []
        assert (status := local.jobs.status(NAMESPACE, "job")) and status.whose == taker
        assert (seen := local.jobs.presence(NAMESPACE, "job")) and seen.owner == taker
        assert local.jobs.delete(NAMESPACE, "job", uid=uid, owner=taker) is None
        assert local.jobs.presence(NAMESPACE, "job") == Presence()

    def test_not_what_a_stack_of_the_same_name_has_adopted(self, local: LocalTarget) -> None:
        document = jobset(SLEEP, suspend=True)
        uid = local.jobs.create(submission(document)).uid
        with pytest.raises(Conflict, match="belongs to another stack of this name"):
            local.jobs.create(submission(document, sweep="stack-3"))
        local.jobs.create(submission(document, sweep="stack-3"), adopt=True)
        assert local.jobs.delete(NAMESPACE, "job", uid=uid, owner=Owner("owner-1", "stack-1")) is not None
        assert local.jobs.delete(NAMESPACE, "job", uid=uid, owner=Owner("owner-1", "stack-3")) is None

    def test_right_after_creation(self, local: LocalTarget, home: Path) -> None:
        local.jobs.create(submission(jobset(SLEEP)))
        local.jobs.delete(NAMESPACE, "job")
        assert not living(home)

    def test_a_program_may_still_write_while_it_ends(self, local: LocalTarget, tmp_path: Path) -> None:
        code = (
            "import os, signal, sys, time, pathlib\n"  # os.write, as a handler must not print while its program does
            "def end(*_): os.write(1, b'saving\\n'); time.sleep(0.2); os.write(1, b'saved\\n');"
            " pathlib.Path(sys.argv[1]).touch(); sys.exit()\n"
            "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(120)"
        )
        local.jobs.create(submission(jobset(step(command=python(code, str(tmp_path / "saved"))))))
        eventually(lambda: "up" in log(local))
        local.jobs.delete(NAMESPACE, "job")
        assert (tmp_path / "saved").exists()

    def test_a_program_that_takes_its_own_rights_away(self, local: LocalTarget) -> None:
        run(
            local,
            jobset(step(command=python("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a', 0o500)"))),
        )
        local.jobs.delete(NAMESPACE, "job")
        assert list((local.root / "trash").iterdir()) == []

    def test_new_after_deletion(self, local: LocalTarget) -> None:
        first = run(local, jobset(step()))
        local.jobs.delete(NAMESPACE, "job")
        assert run(local, jobset(step())).uid != first.uid


def test_the_folder_removed_by_hand_ends_the_job(local: LocalTarget, home: Path) -> None:
    local.jobs.create(submission(jobset(SLEEP)))
    eventually(lambda: log(local))
    shutil.rmtree(local.root)
    eventually(lambda: not living(home))


def test_jobs_and_sweep(local: LocalTarget) -> None:
    for name, stack in (("a", "stack-1"), ("b", "stack-2"), ("c", "stack-1")):
        local.jobs.create(submission(jobset(SLEEP, name=name, suspend=name != "c"), sweep=stack))
    assert [j.name for j in local.jobs.list_all()] == ["a", "b", "c"]
    assert local.sweep("") == []
    assert local.sweep("stack-1") == ["default/a", "default/c"]
    assert [j.name for j in local.jobs.list_all()] == ["b"]


class TestHosts:
    def test_calls_for_another_host_are_refused(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        local.jobs.create(submission(jobset(SLEEP, suspend=True)))
        local.volumes.create(NAMESPACE, "data", "owner", "")
        for module in (record, job_reader, sys.modules["pulumi_trainer.provider.targets.local.claims"]):
            monkeypatch.setattr(module, "host_id", lambda: "another")
        elsewhere = LocalTarget(local.root)
        asked = submission(jobset(SLEEP, suspend=True))
        for call in (
            lambda: elsewhere.jobs.status(NAMESPACE, "job"),
            lambda: elsewhere.jobs.create(asked),
            lambda: elsewhere.jobs.update(asked),
            lambda: elsewhere.jobs.delete(NAMESPACE, "job"),
            lambda: elsewhere.sweep("stack-1"),
        ):
            with pytest.raises(
                Refused,
                match=rf"default/job: runs on another host, .* \(id {local.jobs.host}\). Hint: use it from there",
            ):
                call()
        with pytest.raises(Refused, match="was made on another host"):
            elsewhere.volumes.find(NAMESPACE, "data")
        assert elsewhere.jobs.list_all() == []
        monkeypatch.undo()
        assert local.jobs.status(NAMESPACE, "job") is not None

    def test_the_id_is_stable_and_tells_nothing(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert host_id() == host_id()
        assert len(host_id()) == 16
        monkeypatch.setattr(machine.Path, "read_text", self.no_machine_id)
        made = host_id()
        assert made == host_id()
        shutil.rmtree(home / ".cache")
        assert made != host_id()

    read_text = Path.read_text

    @staticmethod
    def no_machine_id(path: Path, *args: Any, **more: Any) -> str:
        if str(path) == "/etc/machine-id":
            raise FileNotFoundError
        return TestHosts.read_text(path, *args, **more)


class TestTail:
    def test_last_lines(self, local: LocalTarget) -> None:
        run(local, jobset(step(command=python("for i in range(20): print(i)"), pods=2)))
        lines = list(local.logs.tail(NAMESPACE, "job", lines=2))
        assert lines == [(f"job-node-0-{n}", "node", str(i)) for n in (0, 1) for i in (18, 19)]

    def test_of_a_step(self, local: LocalTarget) -> None:
        run(local, jobset(step("node", python("print('a')")), step("node-x", python("print('b')"))))
        assert list(local.logs.tail(NAMESPACE, "job", "node")) == [("job-node-0-0", "node", "a")]

    def test_follow_until_the_end(self, local: LocalTarget, tmp_path: Path) -> None:
        go = tmp_path / "go"
        code = (
            "import pathlib, time\nprint('one', flush=True)\n"
            f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(.02)\n"
            "print('two')"
        )
        local.jobs.create(submission(jobset(step(command=python(code)))))
        seen = []
        for _, _, line in local.logs.tail(NAMESPACE, "job", follow=True):
            seen.append(line)
            go.touch()
        assert seen == ["one", "two"]

    def test_of_nothing(self, local: LocalTarget) -> None:
        assert list(local.logs.tail(NAMESPACE, "job", follow=True)) == []


class TestWriting:
    def test_a_failure_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "record.json"
        store.write_json(path, {"a": 1})

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(store.os, "fsync", full)
        with pytest.raises(
            TargetFault, match=r"record.json: cannot be written: No space left on device. Hint: free some space"
        ):
            store.write_json(path, {"a": 2})
        assert json.loads(path.read_text()) == {"a": 1}
        assert list(tmp_path.iterdir()) == [path]

    def test_readers_never_see_half_of_it(self, tmp_path: Path) -> None:
        path = tmp_path / "status.json"
        store.write_json(path, {"n": [0] * 5000})
        over = threading.Event()

        def write() -> None:
            for n in range(60):
                store.write_json(path, {"n": [n] * 5000})
            over.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not over.is_set():
            seen = store.read_json(path)
            assert seen is not None
            assert len(set(seen["n"])) == 1
        writer.join()


REFUSING = """
import errno, os, stat, sys
flag, write, fsync = {flag!r}, os.write, os.fsync
def refuse(fd):
    if os.path.exists(flag) and stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
def refusing_write(fd, data):
    refuse(fd)
    return write(fd, data)
def refusing_fsync(fd):
    refuse(fd)
    return fsync(fd)
os.write, os.fsync = refusing_write, refusing_fsync
"""


@pytest.fixture
def small_disk(tmp_path: Path, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(fill, free) a file system of 256 KiB below the target's root. Where none may be mounted, supervisors and the test
    itself get a system that refuses to write in the same way.
    """
    local.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(local.root)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        flag = tmp_path / "full"
        (tmp_path / "site").mkdir()
        code = REFUSING.format(flag=str(flag))
        (tmp_path / "site" / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
        write, fsync = os.write, os.fsync
        exec(code, {})
        yield flag.touch, flag.unlink
        os.write, os.fsync = write, fsync
        return
    ballast = local.root / "ballast"
    yield lambda: fill(ballast), ballast.unlink
    ballast.unlink(missing_ok=True)
    local.jobs.delete(NAMESPACE, "job", grace=0)
    subprocess.run(["umount", "-l", str(local.root)], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)


class TestFullDisk:
    def test_creation_says_where_and_what_to_do(self, local: LocalTarget, small_disk: Any) -> None:
        fill, free = small_disk
        fill()
        data = config("big", {"a": "x" * 100_000})
        with pytest.raises(
            TargetFault, match=r"/root.*: cannot be written: No space left on device. Hint: free some space there"
        ):
            local.jobs.create(submission(jobset(SLEEP, suspend=True), data))
        assert local.jobs.status(NAMESPACE, "job") is None
        free()
        assert local.jobs.create(submission(jobset(SLEEP, suspend=True), data)).phase == "Suspended"

    def test_a_running_job_goes_on_and_its_end_is_written_later(
        self, local: LocalTarget, small_disk: Any, tmp_path: Path
    ) -> None:
        fill, free = small_disk
        go, done = tmp_path / "go", tmp_path / "done"
        code = (
            "import pathlib, time\nprint('up', flush=True)\n"
            f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(.02)\n"
            f"print('y' * 9000, flush=True)\npathlib.Path({str(done)!r}).touch()"
        )
        local.jobs.create(submission(jobset(step(command=python(code)))))
        wait(local, until=lambda s: s.phase == "Running")
        supervisor = supervisor_of(local)
        fill()
        go.touch()
        eventually(done.exists)
        eventually(lambda: not [p for p in living(Path(os.environ["HOME"])) if p != supervisor])
        assert supervisor.is_running()
        status = local.jobs.status(NAMESPACE, "job")
        assert status is not None
        assert status.phase in ("Running", "Succeeded"), (
            "the last that could be written, or its end in the room kept for it"
        )
        free()
        assert wait(local).phase == "Succeeded"
        assert not [p for p in (local.root / "jobs/default/job").iterdir() if p.name.startswith(".")]

    def test_the_log_says_what_is_missing(self, local: LocalTarget, small_disk: Any, tmp_path: Path) -> None:
        fill, free = small_disk
        go, more, went = tmp_path / "go", tmp_path / "more", tmp_path / "went"
        code = (
            "import pathlib, time\n"
            f"def wait(p):\n while not pathlib.Path(p).exists(): time.sleep(.02)\n"
            f"print('up', flush=True); wait({str(go)!r})\n"
            f"print('y' * 200_000, flush=True); open({str(went)!r}, 'w'); wait({str(more)!r})\n"
            "print('end', flush=True)"
        )
        local.jobs.create(submission(jobset(step(command=python(code)))))
        eventually(lambda: log(local))
        fill()
        go.touch()
        eventually(went.exists)  # more than a pipe holds, so the supervisor has had to drop some of it
        free()
        more.touch()
        assert wait(local).phase == "Succeeded"
        # What is still in the pipe when there is space again is written behind the note.
        assert re.search(r"\d{5,6} bytes of output are missing: no space\n(y*\n)?end\n", log(local))


def test_a_claim_that_only_a_pod_mounts_as_output(local: LocalTarget) -> None:
    mounts = {"volumeMounts": [{"name": "out", "mountPath": "/workspace/output"}]}
    pod = {"volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "shared"}}]}
    made = step(command=python("open('/workspace/output/x', 'w')"), container_fields=mounts, pod=pod)
    local.jobs.create(submission(jobset(made), inputs={"code": "abc"}))
    assert wait(local).phase == "Succeeded"


def test_supervisor_is_small(local: LocalTarget) -> None:
    """Nothing but the standard library, psutil, RE2 and what finds uv, so that it starts at once."""
    code = (
        "import sys; before = set(sys.modules); import pulumi_trainer.provider.targets.local.supervisor;"
        "known = sys.stdlib_module_names | {'psutil', 're2', 'uv', 'pulumi_trainer', '__editable___pulumi_trainer'};"
        "print([m for m in set(sys.modules) - before if m.split('.')[0] not in known])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    assert psutil.Process().is_running()


class TestUnreadable:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("[" * 100_000, "cannot be read: maximum recursion depth"),
            ("[]", "does not hold a JSON object"),
            ("{}", "it has no namespace, name, owner, "),
            (None, "its tuning or its objects are not valid"),
        ],
    )
    def test_a_record_costs_its_job_alone(self, local: LocalTarget, text: str | None, why: str) -> None:
        for name in ("bad", "good"):
            local.jobs.create(submission(jobset(SLEEP, suspend=True, name=name)))
        file = local.root / "jobs" / NAMESPACE / "bad" / "record.json"
        whole = file.read_text()
        file.write_text(text if text is not None else json.dumps({**json.loads(whole), "objects": []}))
        seen = {status.name: status for status in local.jobs.list_all()}
        assert seen["good"].phase == "Suspended"
        assert (seen["bad"].phase, seen["bad"].reason) == ("Unknown", "OutcomeUnknown") and why in seen["bad"].message
        assert why in local.jobs.consumers("none")[1] and f"{NAMESPACE}/bad" in local.jobs.consumers("none")[1]
        assert local.sweep("stack-1") == [f"{NAMESPACE}/good"]
        with pytest.raises(Unreadable, match=why):
            local.jobs.delete(NAMESPACE, "bad")
        file.write_text(whole)

    def test_a_record_that_is_a_fifo_is_not_waited_for(self, local: LocalTarget) -> None:
        file = local.root / "jobs" / NAMESPACE / "bad" / "record.json"
        file.parent.mkdir(parents=True)
        os.mkfifo(file)
        (status,) = local.jobs.list_all()
        assert "is not a regular file" in status.message
        file.unlink()

    def test_the_record_of_a_volume_costs_it_alone(self, local: LocalTarget) -> None:
        for name in ("bad", "good"):
            local.volumes.create(NAMESPACE, name, "owner", "stack-1")
        (local.root / "volumes" / NAMESPACE / "bad" / "volume.json").write_text("{}")
        assert local.sweep("stack-1") == [f"{NAMESPACE}/good"]
        with pytest.raises(
            Unreadable, match=r"it has no owner, sweep, generation, host. Hint: .*what the volume holds stays"
        ):
            local.volumes.find(NAMESPACE, "bad")
