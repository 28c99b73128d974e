"""What goes wrong: killed supervisors and ranks, programs that do not end, floods of output, secrets."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_support import (
    NAMESPACE,
    OVERWRITTEN,
    QUICK,
    config,
    eventually,
    jobset,
    kill_supervisor,
    living,
    log,
    python,
    run,
    step,
    submission,
    supervisor_of,
    wait,
)
from pulumi_trainer.provider.kubernetes.errors import Invalid, Unreadable
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.targets.local import process as processes
from pulumi_trainer.provider.targets.local.paths import _temporary_prefix, remove_tree
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.process import MARK
from pulumi_trainer.provider.targets.local.store import JobFolder

CANARY = "canary-0f3c9b"

FAMILY = """
import os, signal, subprocess, sys, time
child = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]
subprocess.Popen(child)
subprocess.Popen(child, start_new_session=True)
print("up", flush=True)
time.sleep(float(sys.argv[1]))
"""


def family(home: Path) -> list[psutil.Process]:
    """Container processes and their children."""
    found = []
    for process in living(home):
        with suppress(psutil.Error):  # a supervisor may end while we look
            if "/" in process.environ().get(MARK, ""):
                found.append(process)
    return found


HIDDEN = """
import os, subprocess, sys
hidden = subprocess.Popen(["env", "-i", "sleep", "300"], start_new_session=True)
print(hidden.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can adopt orphans")
def test_a_process_that_has_left_its_session_and_its_environment_ends_with_the_job(local: LocalTarget) -> None:
    assert run(local, jobset(step(command=python(HIDDEN)))).phase == "Succeeded"
    eventually(lambda: not psutil.pid_exists(int(log(local))))


ORPHANS = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
print("up", flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can adopt orphans")
def test_orphans_that_have_ended_do_not_pile_up(local: LocalTarget) -> None:
    local.jobs.create(submission(jobset(step(command=python(ORPHANS)))))
    eventually(lambda: local.logs.files(NAMESPACE, "job") and "up" in log(local))
    supervisor = supervisor_of(local)

    def is_zombie(child: psutil.Process) -> bool:
        try:
            return bool(child.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:  # reaped since it was listed
            return False

    eventually(lambda: not any(map(is_zombie, supervisor.children())))
    local.jobs.delete(NAMESPACE, "job")


DEEP = """
import os, sys
os.chdir(os.environ[sys.argv[1]])
for _ in range(2500):
    os.mkdir("d"), os.chdir("d")
"""


@pytest.fixture
def left_to_pytest(local: LocalTarget) -> Iterator[None]:
    """Nothing deep, which pytest cannot remove, also where a test fails."""
    yield
    remove_tree(local.root)


@pytest.mark.usefixtures("left_to_pytest")
def test_folders_deeper_than_python_follows_are_removed_with_the_job(local: LocalTarget) -> None:
    assert run(local, jobset(step(command=python(DEEP, "TMPDIR")))).phase == "Succeeded"
    assert not list(Path(tempfile.gettempdir()).glob(f"{_temporary_prefix(local.jobs.list_all()[0].uid)}*"))
    local.jobs.delete(NAMESPACE, "job")
    assert [*local.jobs.list_all()] == []


@pytest.mark.usefixtures("left_to_pytest")
def test_output_deeper_than_python_follows_is_described_and_removed(local: LocalTarget) -> None:
    made = local.volumes.create(NAMESPACE, "out", "owner-1", "")
    deep = "import os\nos.chdir('/out')\nopen('f', 'w').write('x')\nfor _ in range(2500): os.mkdir('d'), os.chdir('d')"
    pod = {"volumes": [{"name": "out", "persistentVolumeClaim": {"claimName": "out"}}]}
    mounts = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    assert run(local, jobset(step(command=python(deep), container_fields=mounts, pod=pod))).phase == "Succeeded"
    assert local.volumes.describe(NAMESPACE, "out").startswith("1 file, 1 B")
    local.jobs.delete(NAMESPACE, "job")
    local.volumes.delete(NAMESPACE, "out", made["generation"])
    assert local.volumes.find(NAMESPACE, "out") is None


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A process of the user that belongs to no job."""
    variables = {name: value for name, value in os.environ.items() if name not in (MARK, "HOME")}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env=variables) as started:
        yield psutil.Process(started.pid)
        started.kill()


class TestSupervisorLost:
    def test_its_processes_are_ended_and_the_job_has_failed(self, local: LocalTarget, home: Path) -> None:
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120"), pods=2))))
        eventually(lambda: log(local) and log(local, "job-node-0-1"))
        wait(local, until=lambda s: s.phase == "Running")
        supervisor = kill_supervisor(local)
        assert len(family(home)) == 6
        status = local.jobs.status(NAMESPACE, "job")
        assert status is not None
        assert (status.phase, status.reason) == ("Failed", "SupervisorLost")
        assert f"pid {supervisor.pid}" in status.message and "`pulumi-trainer rerun` starts it again" in status.message
        assert status.finished > 0
        assert [(s.phase, s.active, s.ready) for s in status.steps] == [("Failed", 0, 0)]
        assert not living(home)
        assert local.jobs.status(NAMESPACE, "job") == status

    def test_the_last_words_of_its_log_are_in_the_message(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(step(command=python("import time; time.sleep(120)")))))
        wait(local, until=lambda s: s.phase == "Running")
        with (local.root / "jobs/default/job/supervisor.log").open("a") as file:
            file.write("Traceback\nMemoryError: no more\n")
        kill_supervisor(local)
        assert wait(local).message.endswith("supervisor.log, which ends with: MemoryError: no more")

    def test_the_next_creation_finds_out_as_well(self, local: LocalTarget, home: Path) -> None:
        asked = submission(jobset(step(command=python(FAMILY, "120"))))
        local.jobs.create(asked)
        eventually(lambda: log(local))
        wait(local, until=lambda s: s.phase == "Running")
        kill_supervisor(local)
        eventually(lambda: not [p for p in living(home) if p not in family(home)])
        assert local.jobs.create(asked).reason == "SupervisorLost"
        assert not living(home)

    def test_what_hides_from_its_group_and_ignores_term_is_found_by_its_mark(
        self, local: LocalTarget, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pulumi_trainer.provider.targets.local.supervision.LOST_GRACE", 0.2)
        hidden = (
            "import os, signal, time\n"
            "if os.fork(): time.sleep(120)\n"
            "os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "if os.fork(): os._exit(0)\n"
            "signal.signal(signal.SIGHUP, signal.SIG_IGN); print('up', flush=True); time.sleep(120)"
        )
        local.jobs.create(submission(jobset(step(command=python(hidden)))))
        eventually(lambda: log(local))
        wait(local, until=lambda s: s.phase == "Running")
        kill_supervisor(local)
        status = wait(local)
        assert status.reason == "SupervisorLost"
        assert not living(home)

    def test_deletion_needs_no_supervisor(self, local: LocalTarget, home: Path) -> None:
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
        eventually(lambda: log(local))
        kill_supervisor(local)
        local.jobs.delete(NAMESPACE, "job")
        assert not living(home)
        assert local.jobs.status(NAMESPACE, "job") is None

    @pytest.mark.skipif(sys.platform != "linux", reason="shows the variables of a process as they are")
    def test_processes_that_overwrite_their_mark_are_found_in_the_jobs_folder(self, local: LocalTarget) -> None:
        titled = (
            f"{OVERWRITTEN}\nimport os, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
            "overwrite(); print(os.getpid(), flush=True); time.sleep(120)"
        )
        local.jobs.create(submission(jobset(step(command=python(titled)))))
        eventually(lambda: len(log(local).split()) == 2)
        pids = [int(pid) for pid in log(local).split()]
        assert not any(MARK in psutil.Process(pid).environ() for pid in pids)
        kill_supervisor(local)
        assert wait(local).reason == "SupervisorLost"
        left = [p for p in psutil.process_iter() if p.pid in pids and p.status() != psutil.STATUS_ZOMBIE]
        assert left == []

    def test_a_stranger_whose_pid_and_start_are_in_a_file_of_the_job_is_left_alone(
        self, local: LocalTarget, home: Path, stranger: psutil.Process
    ) -> None:
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
        wait(local, until=lambda s: s.phase == "Running")
        who = json.dumps({"pid": stranger.pid, "started": stranger.create_time()})
        with (local.root / "jobs/default/job/processes.jsonl").open("a") as notes:
            notes.write(f'{who}\nnot json\n{{"pid": "x", "started": 1}}\n[]\n')
        kill_supervisor(local)
        (local.root / "jobs/default/job/supervisor.json").write_text(who)
        assert wait(local).reason == "SupervisorLost"
        assert not living(home) and stranger.status() != psutil.STATUS_ZOMBIE

    @pytest.mark.parametrize("pid", ["stranger", "x", None, [], -1, True])
    def test_a_stranger_in_the_place_of_the_supervisor_is_left_alone(
        self, local: LocalTarget, stranger: psutil.Process, monkeypatch: pytest.MonkeyPatch, pid: Any
    ) -> None:
        monkeypatch.setattr("pulumi_trainer.provider.targets.local.supervision.STUCK_SECONDS", 0.2)
        local.jobs.create(submission(jobset(step(), suspend=True)))
        folder = JobFolder(local.root / "jobs/default/job")
        lock = folder.take_supervisor_lock()  # another user of the machine can hold it
        assert lock is not None
        named = stranger.pid if pid == "stranger" else pid
        folder.supervisor.write_text(json.dumps({"pid": named, "started": stranger.create_time()}))
        local.jobs.delete(NAMESPACE, "job", grace=0)
        os.close(lock)
        assert stranger.status() != psutil.STATUS_ZOMBIE

    @pytest.mark.parametrize("uid", ["", "job", "../..", None, 7, "{3f2a77c0-1111-4222-8333-9d0e1a2b3c47}"])
    def test_a_forged_record_ends_nothing(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch, uid: Any) -> None:
        local.jobs.create(submission(jobset(step(), suspend=True)))
        record = local.root / "jobs/default/job/record.json"
        JobFolder(record.parent).write_status(replace(local.jobs.list_all()[0], phase="Running"))
        own = record.read_text()
        record.write_text(json.dumps({**json.loads(own), "uid": uid}))
        ended = list[psutil.Process]()  # without the check of the uid: all processes of the user
        monkeypatch.setattr(processes, "end_processes", lambda found, grace: ended.extend(found))
        monkeypatch.setattr(processes, "_kill_all", lambda find: ended.extend(find()))
        why = f"is not a valid record of a job: its uid is {uid!r}, not a UUID"
        for call in (local.jobs.status, local.jobs.delete):
            with pytest.raises(Unreadable, match=re.escape(why)):
                call(NAMESPACE, "job")
        assert why in local.jobs.list_all()[0].message
        with subprocess.Popen(["sleep", "60"], env={MARK: ""}) as other:
            found = processes.processes_with_mark("", record.parent)
            other.kill()
        assert ended == found == []
        record.write_text(own)

    def test_a_supervisor_ended_by_a_signal(self, local: LocalTarget, home: Path) -> None:
        """The machine shuts down, or somebody has found the process."""
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
        wait(local, until=lambda s: s.phase == "Running")
        supervisor_of(local).terminate()
        status = wait(local)
        assert (status.phase, status.reason) == ("Failed", "SupervisorLost")
        assert "(ended by a signal)" in status.message
        assert not family(home)

    def test_a_stuck_supervisor_is_killed_by_deletion(
        self, local: LocalTarget, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
        eventually(lambda: len(family(home)) == 3)
        supervisor_of(local).suspend()
        monkeypatch.setattr("pulumi_trainer.provider.targets.local.supervision.STUCK_SECONDS", 0.5)
        local.jobs.delete(NAMESPACE, "job", grace=0)
        assert not living(home)


class TestEnding:
    def test_a_killed_rank_fails_its_job(self, local: LocalTarget, home: Path) -> None:
        local.jobs.create(submission(jobset(step(command=python(FAMILY, "120"), pods=2))))
        eventually(lambda: len(family(home)) == 6)
        [rank] = [
            p
            for p in family(home)
            if p.environ()[MARK].endswith("/job-node-0-1/node") and p.pid == os.getpgid(p.pid) and p.children()
        ]
        rank.kill()
        status = wait(local)
        assert status.phase == "Failed"
        assert status.message.startswith("step node, pod job-node-0-1, index 1: signal 9 (SIGKILL), exit code 137")
        assert not family(home)

    def test_what_a_container_leaves_behind_goes_with_it(self, local: LocalTarget, home: Path) -> None:
        assert run(local, jobset(step(command=python(FAMILY, "0.1")))).phase == "Succeeded"
        assert not family(home)

    def test_a_program_that_ignores_term_is_killed_after_its_grace(self, local: LocalTarget, home: Path) -> None:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(120)"
        local.jobs.create(submission(jobset(step(command=python(code), pod={"terminationGracePeriodSeconds": 1}))))
        eventually(lambda: log(local))
        local.jobs.delete(NAMESPACE, "job")
        assert not living(home)

    def test_grace_is_given(self, local: LocalTarget, tmp_path: Path) -> None:
        code = (
            "import signal, sys, time\n"
            "def end(*_): time.sleep(float(sys.argv[2])); open(sys.argv[1], 'w'); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(120)"
        )
        slow, quick = tmp_path / "slow", tmp_path / "quick"
        for file, seconds, grace in ((slow, "0.5", None), (quick, "60", 0.0)):
            local.jobs.create(submission(jobset(step(command=python(code, str(file), seconds)))))
            eventually(lambda: log(local))
            local.jobs.delete(NAMESPACE, "job", grace=grace)
        assert slow.exists()
        assert not quick.exists()

    def test_term_comes_after_the_clock_was_set(self, local: LocalTarget, tmp_path: Path) -> None:
        code = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], 'w'), sys.exit(0)))\n"
            "print('up', flush=True); time.sleep(120)"
        )
        local.jobs.create(submission(jobset(step(command=python(code, str(tmp_path / "told"))))))
        eventually(lambda: log(local))
        file = local.root / "jobs/default/job/supervisor.json"
        who = json.loads(file.read_text())
        file.write_text(json.dumps({**who, "started": time.time() - 3600}))
        local.jobs.delete(NAMESPACE, "job", grace=3.0)
        assert (tmp_path / "told").exists()

    def test_term_comes_once(self, local: LocalTarget, tmp_path: Path) -> None:
        code = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1], 'a').write('t'))\n"
            "print('up', flush=True)\n"
            "while True: time.sleep(120)"
        )
        local.jobs.create(submission(jobset(step(command=python(code, str(tmp_path / "told"))))))
        eventually(lambda: log(local))
        local.jobs.delete(NAMESPACE, "job", grace=3.0)
        assert (tmp_path / "told").read_text() == "t"

    def test_the_whole_group_gets_term(self, local: LocalTarget, tmp_path: Path) -> None:
        child = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], 'w'), sys.exit(0)))\n"
            "print('up', flush=True); time.sleep(120)"
        )
        shell = f"""python3 -S -c "{child}" {tmp_path / "told"} & wait; sleep 3"""
        local.jobs.create(submission(jobset(step(command=["bash", "-c", shell]))))
        eventually(lambda: log(local))
        local.jobs.delete(NAMESPACE, "job")
        assert (tmp_path / "told").exists()


class TestOutput:
    def test_a_flood_is_bounded_on_disk_and_its_end_is_kept(self, local: LocalTarget) -> None:
        local.jobs.tuning = Tuning(log_bytes=1 << 20, log_files=3)
        code = "import sys\nline = 'x' * 1000 + '\\n'\nfor _ in range(30000): sys.stdout.write(line)\nprint('the end')"
        local.jobs.create(submission(jobset(step(command=python(code)))))
        folder = local.root / "jobs/default/job/logs/job-node-0-0"
        most = 0
        while not (status := wait(local, until=lambda s: True)).terminal:
            with suppress(FileNotFoundError):
                most = max(most, sum(f.stat().st_size for f in folder.glob("*")))
        assert status.phase == "Succeeded"
        assert sorted(f.name for f in folder.glob("node*")) == ["node.log", "node.log.1", "node.log.2"]
        assert max(most, sum(f.stat().st_size for f in folder.glob("node*"))) <= 3 << 20
        assert list(local.logs.tail(NAMESPACE, "job", lines=2))[-1][2] == "the end"

    def test_odd_output(self, local: LocalTarget) -> None:
        code = (
            "import os, sys\n"
            "os.write(1, b'\\xff\\xfe\\x00 no text\\n'); os.write(1, b'[' * 300000 + b'\\n')\n"
            "os.write(1, b'{\"trainerStatus\": ' + b'[' * 50000 + b'\\n'); os.write(2, b'without end')"
        )
        status = run(local, jobset(step(command=python(code))))
        assert (status.phase, status.progress) == ("Succeeded", None)
        assert log(local).endswith("without end\n")

    def test_both_outputs_keep_their_lines_whole(self, local: LocalTarget) -> None:
        code = (
            "import os\n"
            "for _ in range(500):\n"
            " os.write(1, b'o' * 50); os.write(2, b'e' * 50)\n"
            " os.write(1, b'\\n'); os.write(2, b'\\n')"
        )
        run(local, jobset(step(command=python(code))))
        assert set(log(local).splitlines()) == {"o" * 50, "e" * 50}

    def test_a_program_that_closes_its_outputs_runs_on(self, local: LocalTarget) -> None:
        code = "import os, time; os.close(1); os.close(2); time.sleep(0.5); os._exit(7)"
        assert "exit code 7" in run(local, jobset(step(command=python(code)))).message


WRITTEN = {
    "token": "".join(random.Random(7).choices(string.ascii_lowercase + string.digits, k=910)),
    "pem": "-----BEGIN X KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwgg7sAgEAAoIBAQC7VJTUt9Us8cKj\n-----END X KEY-----\n",
    "back": "domain\\user7Pw",
    "quotes": "it's\"s\u00e9cret of their own\u20ac7",
    "json": json.dumps({"private_key": "MIIEvQIBADANBgkqh\nkiG9w0BAQEF", "n": [None, "kiG9w0BAQEFAAS"]}, indent=1),
}
"""Secrets that are long, have several lines, or look different in Python's and JSON's spelling."""


def parts(secret: str, text: str) -> list[str]:
    """Return the stretches of eight letters and digits of a secret's lines that stand in a text, however it is written."""
    *lines, text = (re.sub(r"[^a-zA-Z0-9]", "", line) for line in (*secret.splitlines(), text))
    pieces = {line[i : i + 8] for line in lines for i in range(len(line) - 7)}
    return sorted(piece for piece in pieces if piece in text)


class TestSecrets:
    def document(self, code: str) -> dict[str, object]:
        env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "token"}}}]
        more = {"env": env, "volumeMounts": [{"name": "s", "mountPath": "/etc/creds"}]}
        pod = {"volumes": [{"name": "s", "secret": {"secretName": "creds", "defaultMode": 0o400}}]}
        return jobset(step(command=python(code, "/etc/creds/token"), container_fields=more, pod=pod))

    def test_they_reach_the_program_and_nothing_else(self, local: LocalTarget, home: Path, tmp_path: Path) -> None:
        code = (
            "import os, sys, time, pathlib\n"
            "file = pathlib.Path(sys.argv[1])\n"
            "print(len(os.environ['TOKEN']), file.read_text() == os.environ['TOKEN'], oct(file.stat().st_mode), flush=True)\n"
            "time.sleep(120)"
        )
        local.jobs.create(submission(self.document(code), secrets={"creds": {"token": CANARY}}))
        eventually(lambda: log(local))
        assert log(local) == f"{len(CANARY)} True 0o100400\n"
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                assert CANARY not in " ".join(process.cmdline()) or process.pid == os.getpid()
        assert CANARY not in str(supervisor_of(local).environ())
        self.nowhere(tmp_path)
        [folder] = Path("/dev/shm").glob(f"pulumi-trainer-{os.getuid()}-{wait(local, until=lambda s: True).uid}")
        assert folder.stat().st_mode & 0o777 == 0o700
        local.jobs.delete(NAMESPACE, "job")
        assert not folder.exists()
        self.nowhere(tmp_path)

    def test_not_even_in_the_report_of_a_failure(self, local: LocalTarget, tmp_path: Path) -> None:
        status = run(
            local,
            self.document("import os; raise SystemExit('denied: ' + os.environ['TOKEN'])"),  # type: ignore[arg-type]
            secrets={"creds": {"token": CANARY}},
        )
        assert "denied: [secret]" in status.message
        assert CANARY in log(local), "what a program prints is its own"
        for file in ("status.json", "record.json", "supervisor.log"):
            assert CANARY not in (local.root / "jobs/default/job" / file).read_text()

    @pytest.mark.parametrize("kind", sorted(WRITTEN))
    def test_nor_a_part_of_one_nor_another_spelling(self, local: LocalTarget, kind: str) -> None:
        code = (
            "import json, os, sys; token = os.environ['TOKEN']\n"
            "print(dict(os.environ))\n"
            "print(json.dumps({'key': json.dumps(token)}), json.dumps(token, ensure_ascii=False))\n"
            "print(token)\n"
            "print(' '.join(token.split()), token.encode())\n"
            "raise PermissionError('401 for Authorization: Bearer ' + token, KeyError({'a': token}))"
        )
        status = run(local, self.document(code), secrets={"creds": {"token": WRITTEN[kind]}})  # type: ignore[arg-type]
        shown = status.message + (local.root / "jobs/default/job/status.json").read_text()
        assert "Bearer [secret]" in status.message
        assert not parts(WRITTEN[kind], shown)

    def test_nor_where_the_output_that_is_kept_begins_within_one(self, local: LocalTarget) -> None:
        code = "import os, sys; sys.exit(os.environ['TOKEN'] * 200)"
        status = run(local, self.document(code), secrets={"creds": {"token": WRITTEN["token"]}})  # type: ignore[arg-type]
        assert "last line:\n  [...]" in status.message
        assert not parts(WRITTEN["token"], status.message)

    def test_nor_in_the_reason_of_a_further_attempt(self, local: LocalTarget) -> None:
        code = "import os, random, sys; sys.exit(f'{random.random()} Bearer ' + os.environ['TOKEN'])"
        document = self.document(code)
        document["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 9  # type: ignore[index]
        local.jobs.tuning = replace(QUICK, backoff=600.0)
        local.jobs.create(submission(document, secrets={"creds": {"token": WRITTEN["token"]}}))  # type: ignore[arg-type]
        status = wait(local, until=lambda s: s.reason == "BackOff")
        assert "exit code 1: " in status.message and "Bearer [secret]" in status.message
        assert not parts(WRITTEN["token"], status.message)

    def test_nor_in_what_torchrun_knows_or_in_progress(self, local: LocalTarget) -> None:
        code = (
            "import json, os, sys; token = os.environ['TOKEN']\n"
            "metrics = [{'name': 'of', 'value': token}, {'name': 'loss', 'value': 0.5}]\n"
            "print(json.dumps({'trainerStatus': {'metrics': metrics}}), flush=True)\n"
            "json.dump({'message': {'message': 'x', 'extraInfo': {'py_callstack': 'ValueError: ' + repr(token)}}},"
            " open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); sys.exit(1)"
        )
        status = run(local, self.document(code), secrets={"creds": {"token": WRITTEN["back"]}})  # type: ignore[arg-type]
        assert "ValueError: '[secret]'" in status.message
        assert status.progress is not None
        assert status.progress["metrics"] == {"of": "[secret]", "loss": "0.5"}
        assert set(local.jobs.runs(NAMESPACE, "job")[-1].metrics) == {"of", "loss"}

    def test_a_lost_supervisor_leaves_none(self, local: LocalTarget) -> None:
        document = self.document("print('up', flush=True); import time; time.sleep(120)")
        uid = local.jobs.create(submission(document, secrets={"creds": {"token": CANARY}})).uid  # type: ignore[arg-type]
        eventually(lambda: log(local))
        assert list(Path("/dev/shm").glob(f"*{uid}*"))
        wait(local, until=lambda s: s.phase == "Running")
        kill_supervisor(local)
        wait(local)
        assert not list(Path("/dev/shm").glob(f"*{uid}*"))

    def test_a_suspended_job_keeps_none_but_the_name_of_their_folder(self, local: LocalTarget, home: Path) -> None:
        """Who could make a folder of that name in the meantime would keep the job from going on."""
        document = self.document("print('up', flush=True); import time; time.sleep(120)")
        asked = submission(document, secrets={"creds": {"token": CANARY}})  # type: ignore[arg-type]
        folder = Path(f"/dev/shm/pulumi-trainer-{os.getuid()}-{local.jobs.create(asked).uid}")
        eventually(lambda: log(local))
        (folder / "socket").touch()
        suspended = {**document, "spec": {**document["spec"], "suspend": True}}  # type: ignore[dict-item]
        local.jobs.update(submission(suspended, secrets={"creds": {"token": CANARY}}))
        eventually(lambda: not living(home))
        assert list(folder.iterdir()) == []
        local.jobs.delete(NAMESPACE, "job")
        assert not folder.exists()

    def test_none_in_argv(self, local: LocalTarget) -> None:
        env = [
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "token"}}},
            {"name": "URL", "value": "https://u:$(TOKEN)@host"},
        ]
        document = jobset(step(command=["run", "$(URL)"], container_fields={"env": env}))
        with pytest.raises(
            Invalid, match=r"\$\(URL\) would put a secret where every user .* read URL from the environment"
        ):
            local.jobs.create(submission(document, secrets={"creds": {"token": CANARY}}))
        whole = jobset(
            step(command=["run", "$(token)"], container_fields={"envFrom": [{"secretRef": {"name": "creds"}}]})
        )
        with pytest.raises(Invalid, match="would put a secret"):
            local.jobs.create(submission(whole, secrets={"creds": {"token": CANARY}}))

    @staticmethod
    def nowhere(folder: Path) -> None:
        for file in folder.rglob("*"):
            if file.is_file():
                assert CANARY not in file.read_text(errors="replace"), file


def test_nothing_of_the_users_environment_leaks(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", CANARY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    local.jobs.create(
        submission(
            jobset(step(command=python("import os, time; print(dict(os.environ), flush=True); time.sleep(120)")))
        )
    )
    eventually(lambda: log(local))
    assert CANARY not in log(local)
    assert CANARY not in str(supervisor_of(local).environ())


def test_func_args_are_rewritten_and_code_arrives_byte_for_byte(local: LocalTarget) -> None:
    code = (
        "import pathlib, sys\n"
        "print(*[pathlib.Path(sys.argv[1], f).read_text() for f in ('func_args.json', 'main.py')], sep='\\n')"
    )
    source = 'print("$HOME `id` $(A) /workspace/x $$")\n'
    data = config("code", {"func_args.json": '{"out": "/workspace/x", "n": 1}', "main.py": source})
    mounts = [{"name": "code", "mountPath": "/code"}, {"name": "w", "mountPath": "/workspace"}]
    pod = {"volumes": [{"name": "code", "configMap": {"name": "code"}}, {"name": "w", "emptyDir": {}}]}
    run(local, jobset(step(command=python(code, "/code"), container_fields={"volumeMounts": mounts}, pod=pod)), data)
    folder = local.root / "jobs/default/job/pods/job-node-0-0/volumes/w"
    assert log(local) == f'{{"out": "{folder}/x", "n": 1}}\n{source}\n'


def test_signals_of_the_terminal_do_not_reach_a_job(local: LocalTarget) -> None:
    local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
    wait(local, until=lambda s: s.phase == "Running")
    supervisor = supervisor_of(local)
    assert os.getsid(supervisor.pid) == supervisor.pid != os.getsid(0)


@pytest.fixture
def few_open_files() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
    yield 100
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_job_needs_more_open_files_than_one_process_usually_has(local: LocalTarget, few_open_files: int) -> None:
    """Three for each container."""
    command = ["sh", "-c", "ulimit -Sn; sleep 3"]
    status = run(local, jobset(step(command=command, pods=40)))
    assert status.phase == "Succeeded", status.message
    assert {log(local, f"job-node-0-{i}") for i in range(40)} == {f"{few_open_files}\n"}


WAITS_BADLY = """
import os, sys
real = os.waitid
def waitid(*args):
    if os.path.exists({file!r}):
        raise OSError(24, "Too many open files")
    return real(*args)
if any(word.endswith("local.supervisor") for word in sys.orig_argv):
    os.waitid = waitid
"""


def test_a_fault_of_the_supervisor_fails_the_job_with_its_reason(
    local: LocalTarget, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WAITS_BADLY.format(file=str(tmp_path / "bad")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    local.jobs.create(submission(jobset(step(command=python(FAMILY, "120")))))
    wait(local, until=lambda s: s.phase == "Running")
    (tmp_path / "bad").touch()
    status = wait(local)
    assert (status.phase, status.reason) == ("Failed", "SupervisorFailed")
    assert "Too many open files" in status.message and not family(home)
    assert [(s.phase, s.active) for s in status.steps] == [("Failed", 0)]
    assert "Traceback" in (local.root / "jobs/default/job/supervisor.log").read_text()
