"""Rotated logs, progress lines, and reading logs again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.cli import logs as printing
from pulumi_trainer.provider.jobs.progress import progress
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.service import logs as commands
from pulumi_trainer.provider.service.logs import Selection, _local_lines, log_lines, parse_rank
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets import status_source
from pulumi_trainer.provider.targets.local import LocalTarget, logs
from pulumi_trainer.provider.targets.local.logs import CHUNK, Follow, Log, Pipe, dropped_bytes, files, last_lines, show


class TestLog:
    def test_rotates_by_size_and_keeps_so_many(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "pod" / "node.log", size=100, keep=3)
        for i in range(60):
            log.write(b"%09d\n" % i)
        log.close()
        names = sorted(p.name for p in (tmp_path / "pod").glob("node.log*"))
        assert names == ["node.log", "node.log.1", "node.log.2"]
        text = "".join((tmp_path / "pod" / n).read_text() for n in reversed(names))
        assert text.split() == [f"{i:09d}" for i in range(30, 60)]

    def test_goes_on_where_an_earlier_attempt_ended(self, tmp_path: Path) -> None:
        for letter in (b"x", b"y", b"z"):
            log = Log(tmp_path / "node.log", size=100, keep=2)
            log.write(letter * 48 + b"\n")
            log.close()
        assert (tmp_path / "node.log").read_text() == "z" * 48 + "\n"
        assert (tmp_path / "node.log.1").stat().st_size == 98

    def test_what_is_missing_is_noted_at_the_end_if_there_is_space_by_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        log = Log(tmp_path / "node.log", size=100, keep=2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            log.write(b"lost\n")
        log.close()
        assert (tmp_path / "node.log").read_text() == "\npulumi-trainer: 5 bytes of output are missing: no space\n"
        assert log.lost_bytes == 5

    def test_keeps_the_newest_part_in_memory(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "node.log", size=1 << 30, keep=2)
        for i in range(100_000):
            log.write(b"%09d\n" % i)
        assert log.tail.endswith(b"000099999\n")
        assert len(log.tail) <= 1 << 17
        log.begin_attempt()
        assert not log.tail
        log.close()


class TestPipe:
    def test_whole_lines_and_the_rest_at_the_end(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        log, lines = Log(tmp_path / "node.log", 1 << 20, 2), []
        pipe = Pipe(reader, log, lines.append)
        assert pipe.pump()
        os.write(writer, b'{"trainerStatus": 1}\nhalf')
        assert pipe.pump()
        assert (tmp_path / "node.log").read_text() == '{"trainerStatus": 1}\n'
        os.write(writer, b" a line")
        pipe.drain()
        os.close(writer)
        assert not pipe.pump()
        assert (tmp_path / "node.log").read_text() == '{"trainerStatus": 1}\nhalf a line\n'
        assert lines == [b'{"trainerStatus": 1}']
        os.close(reader)

    def test_a_writer_without_end_is_left(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        pipe = Pipe(reader, Log(tmp_path / "node.log", 1 << 20, 2))
        os.write(writer, b"held open by a stranger")
        pipe.drain()
        assert (tmp_path / "node.log").read_text() == "held open by a stranger\n"
        os.close(reader)
        os.close(writer)


class TestProgress:
    def test_all_of_it(self) -> None:
        line = (
            b'{"trainerStatus": {"progressPercentage": 50, "estimatedRemainingSeconds": 0, "other": 1,'
            b' "metrics": [{"name": "loss", "value": "0.25"}, {"name": "epoch", "value": 3}]}}'
        )
        assert progress(line, 12.5) == {
            "progressPercentage": 50,
            "estimatedRemainingSeconds": 0,
            "metrics": {"loss": "0.25", "epoch": "3"},
            "lastUpdatedTime": "1970-01-01T00:00:12Z",
        }

    @pytest.mark.parametrize(
        "line",
        [
            b"epoch 1",
            b'{"trainerStatus": ',
            b'{"trainerStatus": 5}',
            b'{"trainerStatus": {}}',
            b'{"trainerStatus": {"progressPercentage": 101}}',
            b'{"trainerStatus": {"progressPercentage": -1}}',
            b'{"trainerStatus": {"progressPercentage": "50"}}',
            b'{"trainerStatus": {"progressPercentage": true}}',
            b'{"trainerStatus": {"progressPercentage": -0.5}}',
            b'{"trainerStatus": {"progressPercentage": NaN}}',
            b'{"trainerStatus": {"estimatedRemainingSeconds": -5}}',
            b'{"trainerStatus": {"metrics": "x"}}',
            b'{"trainerStatus": ' + b"[" * 60_000,
            b'{"trainerStatus": {"progressPercentage": 5}, "x": "' + b"x" * 70_000 + b'"}',
            b' {"trainerStatus": {"progressPercentage": 5}}',
            b"\xff\xfe",
        ],
    )
    def test_not_a_status(self, line: bytes) -> None:
        assert progress(line, 1.0) is None

    @pytest.mark.parametrize(
        "metric",
        [
            "1",
            "null",
            '{"name": "a"}',
            '{"name": "", "value": "1"}',
            '{"name": "a", "value": null}',
            '{"name": "a", "value": "' + "1" * 65 + '"}',
            '{"name": "' + "a" * 65 + '", "value": "1"}',
            '{"name": "a", "value": "\\u001b[2J"}',
        ],
    )
    def test_a_bad_metric_is_left_out(self, metric: str) -> None:
        found = progress(b'{"trainerStatus": {"metrics": [%s, {"name": "b", "value": "1"}]}}' % metric.encode(), 1.0)
        assert found is not None
        assert found["metrics"] == {"b": "1"}

    def test_numbers_that_a_program_plainly_means(self) -> None:
        """A fraction of a percent, and a loss that is no number any more, which a user has to see."""
        line = (
            b'{"trainerStatus": {"progressPercentage": 40.5, "estimatedRemainingSeconds": 12.9, "step": 7.0, "metrics":'
            b' [{"name": "loss", "value": NaN}, {"name": "norm", "value": Infinity}, {"name": "low", "value": -Infinity}]}}'
        )
        assert progress(line, 0) == {
            "progressPercentage": 40,
            "estimatedRemainingSeconds": 12,
            "step": 7,
            "metrics": {"loss": "nan", "norm": "inf", "low": "-inf"},
            "lastUpdatedTime": "1970-01-01T00:00:00Z",
        }

    def test_a_line_of_several_processes(self) -> None:
        """torchrun begins each line with its process; the status is that of the first one."""
        line = b'{"trainerStatus": {"progressPercentage": 5}}'
        assert progress(b"[default0]:" + line, 1.0) == progress(line, 1.0)
        assert progress(b"[default1]:" + line, 1.0) is None
        assert progress(b"[default10]:" + line, 1.0) is None

    def test_the_step_and_the_newest_checkpoint(self) -> None:
        checkpoint = {"step": 40, "time": "2026-01-31T12:00:00Z"}
        line = json.dumps({"trainerStatus": {"step": 42, "checkpoint": {**checkpoint, "path": "x"}}}).encode()
        found = progress(line, 0)
        assert found == {"step": 42, "checkpoint": checkpoint, "lastUpdatedTime": "1970-01-01T00:00:00Z"}

    @pytest.mark.parametrize(
        "checkpoint",
        [
            "5",
            "{}",
            '{"step": 5}',
            '{"step": -1, "time": "x"}',
            '{"step": true, "time": "x"}',
            '{"step": 1.5, "time": "x"}',
            '{"step": 5, "time": ""}',
            '{"step": 5, "time": 7}',
            '{"step": 5, "time": "\\u001b[2J"}',
            '{"step": 5, "time": "' + "x" * 65 + '"}',
            '{"step": 9223372036854775808, "time": "x"}',
        ],
    )
    def test_a_bad_checkpoint_or_step_is_left_out(self, checkpoint: str) -> None:
        line = f'{{"trainerStatus": {{"step": -1, "progressPercentage": 5, "checkpoint": {checkpoint}}}}}'
        assert progress(line.encode(), 0) == {"progressPercentage": 5, "lastUpdatedTime": "1970-01-01T00:00:00Z"}

    def test_at_most_256_metrics(self) -> None:
        metrics = [{"name": f"m{i}", "value": "1"} for i in range(300)]
        found = progress(json.dumps({"trainerStatus": {"metrics": metrics}}).encode(), 1.0)
        assert found is not None
        assert len(found["metrics"]) == 256


class TestReading:
    def test_a_line_ends_with_a_line_feed_and_nothing_else(self, tmp_path: Path) -> None:
        path, odd = tmp_path / "a.log", "one\x0btwo\x0cthree\x1cfour\x85five\u2028six\u2029seven\rEIGHT"
        path.write_bytes(f"{odd}\n\n0\n".encode())
        assert last_lines(path, 9) == [odd, "", "0"] == [*Follow().new_lines(path)]

    def test_last_lines_reach_into_the_rotated_file(self, tmp_path: Path) -> None:
        path = tmp_path / "node.log"
        path.write_text("3\n4\n")
        path.with_name("node.log.1").write_text("1\n2\n")
        assert last_lines(path, 3) == ["2", "3", "4"]
        assert last_lines(path, 1) == ["4"]
        assert last_lines(path, 0) == []
        assert last_lines(path, 9) == ["1", "2", "3", "4"]
        assert last_lines(tmp_path / "none.log", 3) == []

    def test_what_was_rotated_away_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log = Log(tmp_path / "jobs/ns/job/logs/job-node-0-0/node.log", size=10, keep=3)
        for i in range(6):
            log.write(f"line {i}..\n".encode())
        log.close()
        assert dropped_bytes(log.path) == 27
        job = ReachedJob("ns", "job", local=LocalTarget(tmp_path))
        assert [line.text for line in _local_lines(job, Selection())] == [f"line {i}.." for i in (3, 4, 5)]
        assert "job-node-0-0: the first 27 bytes of its log were replaced by newer ones" in capsys.readouterr().err

    def test_lines_name_the_files_of_the_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file of the log has what the job has printed."""
        log, line = (
            Log(tmp_path / "jobs/ns/job/logs/job-node-0-0/node.log", size=1 << 20, keep=3),
            '  File "{}a.py", line 1',
        )
        log.write(line.format("/tmp/main.py-9hnq904w/").encode() + b"\n")
        log.close()
        local = LocalTarget(tmp_path)
        monkeypatch.setattr(status_source, "connect", lambda _: local)
        (printed,) = log_lines([ReachedJob("ns", "job", local=local)], Selection())
        assert printed.text == line.format("")
        assert [*status_source.log_lines({}, "ns", "job", "node", 9)] == [line.format("")]
        assert "/tmp/main.py-9hnq904w/a.py" in log.path.read_text()

    def test_up_shows_neither_the_notice_of_torchrun_nor_the_empty_lines_of_its_processes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = "W1127 03:35:41.714000 25964 torch/distributed/run.py:982] "
        notice = (
            "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
        )
        hidden = [
            start,
            f"{start}{'*' * 41}",
            start + notice,
            f"{start}{'*' * 41}",
            "[default0]:",
            "[default0]:[rank0]: ",
        ]
        kept = [
            "[default0]:bar 0[default1]:",
            "",
            f"[default1]:{notice}",
            f"{start}--use-env is deprecated",
            "E1127 03:35:42.215000 25965 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)",
        ]
        log = Log(tmp_path / "jobs/ns/job/logs/job-node-0-0/node.log", size=1 << 20, keep=3)
        log.write("".join(f"{line}\n" for line in [*hidden, *kept]).encode())
        log.close()
        local = LocalTarget(tmp_path)
        monkeypatch.setattr(status_source, "connect", lambda _: local)
        assert [*status_source.log_lines({}, "ns", "job", "node", 99)] == kept
        assert next(iter(log_lines([ReachedJob("ns", "job", local=local)], Selection()))).text == start

    def test_one_process_of_a_node(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for node in (0, 1):
            log = Log(tmp_path / f"jobs/ns/job/logs/job-node-0-{node}/node.log", size=1 << 20, keep=3)
            log.write(b"W1123 torchrun\n[default0]:a\n[default1]: b\n[default1]:\n")
            log.close()
        job = ReachedJob("ns", "job", local=LocalTarget(tmp_path))

        def shown(node: int | None = None, process: int | None = None) -> list[str]:
            return [line.text for line in log_lines([job], Selection(node=node, process=process))]

        assert len(shown()) == 8 and len(shown(1)) == 4
        assert shown(1, 1) == ["[default1]: b", "[default1]:"] and shown(2) == shown(0, 2) == []
        (line,) = log_lines([job], Selection(node=1, process=0))
        assert (line.to_dict()["rank"], line.to_dict()["process"], line.to_dict()["line"]) == (1, 0, "a")
        for text in ("", "x", "1.", "-1", "1.2.3", "9" * 9):
            with pytest.raises(Invalid, match=r"--rank: invalid rank"):
                parse_rank(text)
        assert parse_rank("3") == (3, None) and parse_rank("3.12") == (3, 12)

    def test_the_last_lines_of_a_process_are_counted_without_those_of_the_others(self, tmp_path: Path) -> None:
        log = Log(tmp_path / "jobs/ns/job/logs/job-node-0-0/node.log", size=20, keep=9)
        for text in ("1]:a", "0]:b", "1]:c", "0]:d", "0]:e [default1]:"):
            log.write(f"[default{text}\n".encode())
        log.close()
        job = ReachedJob("ns", "job", local=LocalTarget(tmp_path))

        def shown(lines: int, node: int = 0, process: int | None = 1) -> list[str]:
            return [line.text for line in log_lines([job], Selection(lines=lines, node=node, process=process))]

        assert shown(1) == ["[default1]:c"] and shown(0) == []
        assert shown(2) == shown(9) == ["[default1]:a", "[default1]:c"]
        assert shown(1, process=None) == ["[default0]:e [default1]:"]
        wrong = Selection(lines=1, node=0, process=2)
        with pytest.raises(Invalid, match=r"available: 0\.0, 0\.1$"):
            commands._check_process([job], wrong, "--rank")

    def test_a_cut_line_is_no_line_of_the_process_that_it_mentions(self, tmp_path: Path) -> None:
        """The end of the log that is read first begins within a line."""
        path, end = tmp_path / "node.log", "[default1]:b".ljust(CHUNK + 511, "y")
        path.write_text(f"[default1]:a\n[default0]:{end}\n")
        assert last_lines(path, 1, matches=lambda line: line.startswith("[default1]:")) == ["[default1]:a"]

    def test_following_begins_with_the_last_lines_of_the_process(self, tmp_path: Path) -> None:
        path = tmp_path / "job-node-0-0/node.log"
        path.parent.mkdir()
        path.write_text("1 a\n1 b\n2 c\n")

        def done() -> bool:
            with path.open("a") as file:
                file.write("1 d\n2 e\n")
            return True

        followed = show(lambda: [("pod", "node", path)], 1, done, lambda _: lambda line: line.startswith("1"))
        assert [line for _, _, line in followed] == ["1 b", "1 d", "2 e"], "the command filters the new lines"

    def test_a_process_that_has_printed_nothing_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        printed = {0: b"W1123 torchrun\n[default0]:a\n[default2]:b\n", 1: b"alone\n", 2: b""}
        for node, text in printed.items():
            log = Log(tmp_path / f"jobs/ns/job/logs/job-node-0-{node}/node.log", size=1 << 20, keep=3)
            log.write(text)
            log.close()
        job = ReachedJob("ns", "job", local=LocalTarget(tmp_path))
        monkeypatch.setattr(printing, "chosen_jobs", lambda *_: [job])
        monkeypatch.setattr(commands, "_check_node", lambda *_: None)
        why = "--rank: job: no line of process 1 is among the lines of node 0 that were read. Hint: available: 0.0, 0.2"
        with pytest.raises(Invalid, match=re.escape(why)):
            printing.logs("job", Where(), Selection(node=0, process=1))
        with pytest.raises(Invalid, match=r"its lines name no process; `--rank 1` shows them"):
            printing.logs("job", Where(), Selection(node=1, process=0))
        printing.logs("job", Where(), Selection(node=2, process=0))
        assert "job: nothing was printed" in capsys.readouterr().err
        printing.logs("job", Where(), Selection(node=0, process=2))
        assert capsys.readouterr().out.strip().endswith("b")

    def test_follow_across_rotation(self, tmp_path: Path) -> None:
        path, follow = tmp_path / "node.log", Follow()
        path.write_text("1\n2\nhal")
        assert list(follow.new_lines(path)) == ["1", "2"]
        with path.open("a") as file:
            file.write("f\n3\n")
        path.rename(path.with_name("node.log.1"))
        path.write_text("4\n")
        assert list(follow.new_lines(path)) == ["half", "3", "4"]
        assert list(follow.new_lines(path)) == []

    def test_follow_across_several_rotations(self, tmp_path: Path) -> None:
        """A reader may be slow: a pager, or a terminal that waits."""
        log, follow = Log(tmp_path / "node.log", size=1000, keep=10), Follow()
        read: list[str] = []
        for lines in (range(5), range(5, 400), range(400, 401)):
            for i in lines:
                log.write(f"line {i:04}\n".encode())
            read += follow.new_lines(log.path)
        assert read == [f"line {i:04}" for i in range(401)]
        assert [*Follow().new_lines(log.path)] == read, (
            "a log that was rotated before its first read is read from its start"
        )

    @pytest.mark.parametrize("more", [95, 104, 119])
    def test_follow_says_that_lines_were_rotated_away(self, tmp_path: Path, more: int) -> None:
        """A new file may have the inode of the removed one."""
        log, follow = Log(tmp_path / "node.log", size=100, keep=3), Follow()
        for i in range(5):
            log.write(f"line {i:04}\n".encode())
        assert len([*follow.new_lines(log.path)]) == 5
        for i in range(5, more):
            log.write(f"line {i:04}\n".encode())
        note, *lines = follow.new_lines(log.path)
        first = dropped_bytes(log.path) // 10
        assert lines == [f"line {i:04}" for i in range(first, more)]
        assert note == (
            f"pulumi-trainer: output is missing here: the first {first * 10:,} bytes of this log were replaced by newer ones"
        )
        assert [*follow.new_lines(log.path)] == []

    def test_follow_while_the_files_are_renamed(self, tmp_path: Path) -> None:
        path, follow = tmp_path / "node.log", Follow()
        path.write_text("1\n")
        assert [*follow.new_lines(path)] == ["1"]
        path.write_text("1\nnot read yet\n")
        path.rename(tmp_path / "node.log.2")  # .1 has moved to .2, and the newest not yet to .1
        path.write_text("2\n")
        assert [*follow.new_lines(path)] == ["not read yet", "2"]

    def test_follow_of_a_new_run(self, tmp_path: Path) -> None:
        path, follow = tmp_path / "node.log", Follow()
        path.write_text("1\n2\n")
        assert [*follow.new_lines(path)] == ["1", "2"]
        path.unlink()
        path.write_text("3\n4\n5\n")
        assert [*follow.new_lines(path)] == ["3", "4", "5"]

    def test_files_in_order(self, tmp_path: Path) -> None:
        for name in ("job-node-0-10", "job-node-0-2", "job-node-x-0-0", "job-node-1-0"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "node.log").touch()
            (tmp_path / name / "node.log.1").touch()
        assert [f[0] for f in files(tmp_path, "job", "node")] == ["job-node-0-2", "job-node-0-10", "job-node-1-0"]
        assert len(files(tmp_path, "job")) == 4
        assert files(tmp_path / "none", "job") == []


def test_long_lines_are_whole_and_none_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    (tmp_path / "node.log.1").write_text("".join(f"OLD {i}\n" for i in range(1000)))
    lines = [f"{i} " + "x" * 4000 for i in range(200)]
    log.write_text("\n".join(lines) + "\n")
    assert last_lines(log, 100) == lines[-100:]
    assert last_lines(log, 250) == [*(f"OLD {i}" for i in range(950, 1000)), *lines]


def test_a_rotation_while_a_log_is_read_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, follow = tmp_path / "node.log", Follow()
    log.write_text("".join(f"old {i}\n" for i in range(1000)))
    follow.skip(log)
    with log.open("a") as more:
        more.write("old 1000\n")
    read = logs._from

    def rotate(*given: Any) -> Any:
        found = read(*given)
        monkeypatch.setattr(logs, "_from", read)
        log.rename(tmp_path / "node.log.1")
        log.write_text("new 0\n")
        return found

    monkeypatch.setattr(logs, "_from", rotate)
    assert [*follow.new_lines(log)] == ["old 1000"]
    assert [*follow.new_lines(log)] == ["new 0"]
