"""What copies the output of a container into the output volume: every line, and the exit code of the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from pulumi_trainer.code import user_code
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.scripts import keep_log

HEAD = "pulumi-trainer: the container started at "


class Container:
    """A container whose bootstrap starts a program, with an output volume."""

    def __init__(self, folder: Path) -> None:
        self.code, self.output = folder / "code", folder / "output"
        self.code.mkdir()
        self.output.mkdir()
        for name in (code.BOOTSTRAP_FILE, code.RUN_FILE, code.KEEP_LOG_FILE):
            (self.code / name).write_text(user_code._script_text(name))
        self.environment = {**os.environ, "TRAINER_RUN_ID": "t1", "HOSTNAME": "a-node-0-0"}

    def start(self, program: str, *, merged: bool = False, **launch: object) -> subprocess.Popen[bytes]:
        given = {
            "install": [],
            "launcher": [],
            "entry": [sys.executable, "-c", program],
            "logs": str(self.output / "logs"),
        }
        (self.code / code.LAUNCH_FILE).write_text(json.dumps({**given, **launch}))
        argv = [sys.executable, str(self.code / code.BOOTSTRAP_FILE)]
        errors = subprocess.STDOUT if merged else subprocess.PIPE
        return subprocess.Popen(argv, env=self.environment, stdout=subprocess.PIPE, stderr=errors)

    def run(self, program: str, *, merged: bool = False, **launch: object) -> tuple[int, bytes, bytes]:
        process = self.start(program, merged=merged, **launch)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err or b""

    @property
    def file(self) -> Path:
        return self.output / "logs" / "t1" / "a-node-0-0.log"

    @property
    def kept(self) -> bytes:
        """What the file has after its first line."""
        head, _, rest = self.file.read_bytes().partition(b"\n")
        assert head.startswith(HEAD.encode())
        return rest


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    yield Container(tmp_path)


def test_the_job_ships_it_only_if_logs_are_kept() -> None:
    for logs in (True, False):
        files = user_code.files("", None, [], [], "torch", logs=logs)
        assert (code.KEEP_LOG_FILE in files) is logs
        assert json.loads(files[code.LAUNCH_FILE]).get("logs") == ("/workspace/output/logs" if logs else None)


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [("", 0), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 15)", -15), ("1 / 0", 1)],
    ids=["done", "code", "sigkill", "sigterm", "traceback"],
)
def test_both_outputs_and_the_exit_code_are_those_of_the_program(
    container: Container, end: str, exit_code: int
) -> None:
    program = f"import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr, flush=True)\n{end}"
    done, out, err = container.run(program)
    assert done == exit_code and out == b"out\n" and err.startswith(b"err\n")
    assert sorted(container.kept.splitlines()) == sorted((out + err).splitlines())


def test_outputs_of_one_file_stay_in_order(container: Container) -> None:
    program = "import os\nfor i in range(2000):\n    os.write(1 + i % 2, b'%d\\n' % i)"
    done, out, _ = container.run(program, merged=True)
    assert done == 0 and out == b"".join(b"%d\n" % i for i in range(2000))
    assert container.kept == out


def test_a_flood_is_kept_whole(container: Container) -> None:
    program = "import sys\nfor i in range(400_000): sys.stdout.write(f'line {i} of a program that prints a lot\\n')"
    done, out, _ = container.run(program)
    assert done == 0 and out.count(b"\n") == 400_000
    assert container.kept == out


def test_lines_of_two_outputs_do_not_mix(container: Container) -> None:
    program = (
        "import os, time\n"
        "for _ in range(20):\n"
        "    os.write(1, b'out')\n"
        "    os.write(2, b'err')\n"
        "    time.sleep(0.01)\n"
        "    os.write(1, b'1\\n')\n"
        "    os.write(2, b'2\\n')"
    )
    done, out, err = container.run(program)
    assert (done, out, err) == (0, b"out1\n" * 20, b"err2\n" * 20)
    assert set(container.kept.split(b"\n")) == {b"out1", b"err2", b""}


def test_a_progress_bar_is_passed_on_at_once(container: Container) -> None:
    process = container.start("import sys, time\nsys.stdout.write('10%\\r')\nsys.stdout.flush()\ntime.sleep(60)")
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 100) == b"10%\r"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM and container.kept == b"10%\r"


def test_messages_of_the_bootstrap_are_kept(container: Container) -> None:
    done, _, err = container.run("", entry=["no-such-program"])
    assert done == 1 and b"no-such-program is not on PATH" in err
    assert container.kept == err


def test_each_start_of_a_container_goes_on_in_the_file_of_its_run(container: Container) -> None:
    container.run("print(1)")
    container.run("print(2)")
    container.environment["TRAINER_RUN_ID"] = "t2"
    container.run("print(3)")
    lines = container.file.read_text().splitlines()
    assert [line for line in lines if not line.startswith(HEAD)] == ["1", "2"] and len(lines) == 4
    assert {file.parent.name for file in container.output.glob("logs/*/*.log")} == {"t1", "t2"}


def test_a_process_that_stays_does_not_hold_up_the_end(container: Container) -> None:
    program = (
        "import subprocess, sys\n"
        "stays = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(stays.pid, flush=True)"
    )
    process = container.start(program)
    assert process.stdout is not None
    stays = int(process.stdout.readline())
    try:
        assert process.wait(timeout=60) == 0
    finally:
        os.kill(stays, signal.SIGKILL)
    assert container.kept == b"%d\n" % stays


def test_without_a_place_the_program_runs_and_says_so(container: Container) -> None:
    (container.output / "logs").write_text("a file")
    done, out, err = container.run("print('trained')")
    assert done == 0 and out == b"trained\n"
    assert b"pulumi-trainer: the log is not kept in " in err and b": Not a directory" in err


def test_a_link_is_not_followed(container: Container, tmp_path: Path) -> None:
    container.file.parent.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("mine")
    container.file.symlink_to(other)
    done, out, err = container.run("print('trained')")
    assert done == 0 and out == b"trained\n" and b"the log is not kept" in err
    assert other.read_text() == "mine"


def test_a_container_without_the_volume_keeps_nothing(container: Container) -> None:
    container.output.rmdir()
    assert container.run("print('serves')") == (0, b"serves\n", b"")
    assert not container.output.exists()


def test_a_rank_that_mpirun_has_started_leaves_its_lines_to_mpirun(container: Container) -> None:
    container.environment["OMPI_COMM_WORLD_RANK"] = "1"
    done, out, _ = container.run("print('rank')", across=["mpirun"])
    assert done == 0 and out == b"rank\n"
    assert not [*container.output.iterdir()]


def test_a_full_disk_does_not_stop_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that fit no more are counted, and the next ones follow when there is room."""
    log = keep_log.Log(tmp_path / "a.log")
    with monkeypatch.context() as patch:
        patch.setattr(keep_log, "put", Mock(side_effect=OSError(28, "No space left on device")))
        log.write(b"lost\n")
        log.write(b"too\n")
    log.write(b"again\n")
    kept = (tmp_path / "a.log").read_bytes().partition(b"\n")[2]
    assert kept == b"\npulumi-trainer: 9 bytes of output are missing: no space\nagain\n"
