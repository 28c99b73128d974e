"""The report of a failed job, from what torchrun and Python really print."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from local_support import jobset, python, run, step
from pulumi_trainer.provider.lifecycle.diagnosis import error_output
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import explain_failure, is_consequence, summarize
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.targets.local.failure import (
    LIMIT,
    Failure,
    cause_summary,
    first_cause,
    read_error_file,
    report,
)

AGENT = """\
E1121 07:30:50.652000 29169 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 0
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 386, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{blank}
============================================================
/code/main.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : {when}
  host      : localhost
  rank      : 7 (local_rank: 1)
  exitcode  : -15 (pid: 12400)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 12400
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : {when}
  host      : localhost
  rank      : {rank} (local_rank: 0)
  exitcode  : {code} (pid: 12401)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""

OWN = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/code/main.py", line 12, in <module>
[rank{rank}]:     raise ValueError("boom")
[rank{rank}]:             ^^^^^^
[rank{rank}]: ValueError: boom at rank {rank}
"""

LOST = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/code/main.py", line 9, in <module>
[rank0]:     dist.barrier()
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:14748. This is typical
"""

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


def agent(rank: int, code: int, at: float = NOON) -> str:
    return AGENT.format(blank=" ", rank=rank, code=code, when=time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(at)))


def failed(index: int = 0, **fields: Any) -> Failure:
    given = {
        "step": "node",
        "pod": f"job-node-0-{index}",
        "index": index,
        "container": "node",
        "code": 1,
        "at": NOON + 1,
        "tail": "",
        "log": Path(f"/logs/job-node-0-{index}/node.log"),
    }
    return Failure(**{**given, **fields})


def test_a_plain_program() -> None:
    tail = "epoch 1\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nKeyError: 'k'\n"
    assert report("the verdict", [failed(code=3, tail=tail)]) == (
        "step node, pod job-node-0-0, index 0: exit code 3: KeyError: 'k' (x.py:1) (container node)\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "KeyError: 'k'\n"
        "last other line:\n"
        "  epoch 1\n"
        "log: /logs/job-node-0-0/node.log\n"
        "the verdict"
    )


@pytest.mark.parametrize(
    "before",
    [
        "bar 3",
        "  0%|          | 0/3 [00:00<?, ?it/s]",
        "loading ... ",
        "[default0]:bar 2[default1]:",
        "[default1]:bar 3",
    ],
)
def test_a_progress_bar_before_a_traceback(before: str) -> None:
    traceback = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nKeyError: 'k'\n"
    failure = failed(tail=f"epoch 1\n{before}{traceback}done\n")
    assert f"(container node)\n{traceback}" in report("v", [failure])
    assert cause_summary([failure]) == "exit code 1: KeyError: 'k'"
    assert report("v", [failure]).count("\nKeyError") == 1 and f"\n  {before}" in report("v", [failure])


def test_a_progress_bar_is_shown_in_its_last_state_and_does_not_hide_that_a_failure_is_the_same(
    local: LocalTarget,
) -> None:
    program = (
        "import os, sys; bar = '%'.join(['', *map('\\r{}'.format, range(500))]);"
        "sys.stderr.write(f'{bar} of run {os.getpid()}'); {}['k']"
    )
    status = run(local, jobset(step(command=python(program), job={"backoffLimit": 6})))
    assert (status.phase, status.reason) == ("Failed", "SameFailureTwice")
    assert "\nKeyError: 'k'\n" in status.message and "\n  499 of run " in status.message
    assert "498%" not in status.message  # a process id may contain 498


def test_a_long_traceback_keeps_the_frames_of_the_user() -> None:
    """Those of libraries have an absolute path."""
    deep = '  File "/env/lib/python3.11/site-packages/lib/deep.py", line 7, in step\n    forward()\n' * 70
    step = '  File "src/model.py", line 30, in step\n    lib.forward(self)\n                ^^^^\n'
    main = '  File "train.py", line 4, in main\n    fit(model)\n'
    traceback = f"Traceback (most recent call last):\n{main}{deep}{step}{deep}ValueError: boom\n"
    text = report("v", [failed(tail=traceback)])
    assert f"(container node)\nTraceback (most recent call last):\n{main}" in text and "ValueError: boom\nlog: " in text
    assert f"forward()\n[...]\n{step}[...]\n" in text
    assert len(text) < 4500
    endless = failed(tail=f"Traceback (most recent call last):\n{step * 500}{deep}ValueError: boom\n")
    assert len(report("v", [endless])) < 4500


def test_a_message_of_the_bootstrap_is_shown_whole() -> None:
    refused = (
        f"pulumi-trainer: the project in /{'long/' * 60} is not what was sent. Hint: `pulumi-trainer rerun` sends it"
    )
    failure = failed(tail=f"{refused}\n")
    assert report("the verdict", [failure]) == (
        "step node, pod job-node-0-0, index 0: exit code 1 (container node)\n"
        f"last line:\n  {refused}\nlog: /logs/job-node-0-0/node.log\nthe verdict"
    )
    assert cause_summary([failure]) == f"exit code 1: {refused}"


def test_lines_that_are_only_the_traceback_are_not_repeated() -> None:
    traceback = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nKeyError: 'k'\n"
    assert report("the verdict", [failed(tail=traceback)]) == (
        "step node, pod job-node-0-0, index 0: exit code 1: KeyError: 'k' (x.py:1) (container node)\n"
        f"{traceback}log: /logs/job-node-0-0/node.log\nthe verdict"
    )
    text = report("v", [failed(1, tail=OWN.format(rank=1) + agent(1, 3))])
    assert "boom at rank 1" in text and "lines:" not in text


def test_pips_lines_about_packages_are_left_out() -> None:
    pip = "Collecting torch\nRequirement already satisfied: numpy in /env (2.0)\n"
    assert explain_failure(f"{pip}epoch 1\n{pip}ERROR: no\n", "0") == ["last 2 lines:", "  epoch 1", "  ERROR: no"]


def test_the_last_lines_are_those_before_a_long_traceback() -> None:
    epochs = "".join(f"[default0]:epoch {at}\n[default0]:\n" for at in range(30))
    frames = "".join(f'[default0]:  File "x.py", line {at}, in f\n' for at in range(30))
    tail = f"{epochs}[default0]:Traceback (most recent call last):\n{frames}[default0]:KeyError: 'k'\n"
    shown = "".join(f"  [default0]:epoch {at}\n" for at in range(10, 30))
    assert f"KeyError: 'k'\nlast 20 other lines:\n{shown}log: " in report("v", [failed(tail=tail)])


def test_a_rank_of_torchrun() -> None:
    text = report("v", [failed(1, tail="epoch 1\n" + OWN.format(rank=1) + agent(1, 3))])
    assert text.startswith(
        "step node, pod job-node-0-1, rank 1: exit code 3: ValueError: boom at rank 1 (container node: exit code 1)\n"
        "Traceback (most recent call last):\n"
        '  File "/code/main.py", line 12, in <module>\n'
        '    raise ValueError("boom")\n'
        "            ^^^^^^\n"
        "ValueError: boom at rank 1\n"
        "last other line:\n"
        "  epoch 1\n"
        "log: "
    )
    assert "ChildFailedError" not in text, "torchrun's own words say nothing new"


@pytest.mark.parametrize(
    ("rank", "index", "line", "shown"),
    [
        (3, 1, "[default0]:epoch 1\n", "rank 3 (logs --rank 1.0)"),
        (3, 1, "[default1]:epoch 1\n", "rank 3 (logs --rank 1)"),
        (1, 1, "epoch 1\n", "rank 1"),
        (1, 1, "[default0]:epoch 1\n", "rank 1 (logs --rank 1.0)"),
    ],
)
def test_a_rank_is_named_as_the_command_line_takes_it(rank: int, index: int, line: str, shown: str) -> None:
    """The process only if the lines of the log name it."""
    assert f", {shown}: exit code 1 (" in report("v", [failed(index, tail=line + agent(rank, 1))])


def test_the_traceback_is_that_of_the_process_that_failed() -> None:
    """Lines of others may come within it, and within that of torchrun, which has no prefix."""
    frame = '[default1]:  File "train.py", line 6, in <module>\n'
    own = f"[default1]:Traceback (most recent call last):\n[default0]:hello\n{frame}[default1]:KeyError: 1\n"
    first, launcher = agent(3, 1).replace("local_rank: 0)", "local_rank: 1)").split("    sys.exit", 1)
    failure = failed(1, tail=f"{own}{first}[default0]:done\n    sys.exit{launcher}")
    traceback = 'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\nKeyError: 1\nlast'
    assert traceback in report("v", [failure])
    assert cause_summary([failure]) == "exit code 1: KeyError: 1"


def test_a_pod_of_a_cluster_is_explained_as_a_process_here() -> None:
    lines = explain_failure("epoch 1\n" + OWN.format(rank=3) + agent(3, 3), "1")
    assert lines[0] == "rank 3 (logs --rank 1): exit code 3"
    assert lines[1:3] == ["Traceback (most recent call last):", '  File "/code/main.py", line 12, in <module>']
    assert lines[-3:] == ["ValueError: boom at rank 3", "last other line:", "  epoch 1"]
    killed = explain_failure("epoch 1\n" + LOST + agent(2, -9), "2")
    assert killed[:2] == ["rank 2: signal 9 (SIGKILL), exit code 137", "last 5 lines:"]
    assert explain_failure("a\n  rank : 1\n  exitcode : 1\n=====\n", "0")[0] == "last 4 lines:", (
        "only torchrun's own words name a rank"
    )
    assert explain_failure("", "0") == []
    long = OWN.format(rank=1).replace("ValueError: boom", f"ValueError: boom {'x' * 200}")
    assert summarize(explain_failure(long, "1")) == f"ValueError: boom {'x' * 143}[...]"
    both = explain_failure(OWN.format(rank=1) + LOST, "1")
    assert (
        "ValueError: boom at rank 1" in both and not is_consequence(both) and is_consequence(explain_failure(LOST, "0"))
    )


ABORTED = """\
[default0]:rank 0: starts after step 0
[default0]:[rank0]: Traceback (most recent call last):
[default0]:[rank0]:   File "train.py", line 67, in <module>
[default0]:[rank0]:     print(rows.sum().item())
[default0]:[rank0]:           ^^^^^^^^^^^^^^^^^
[default0]:[rank0]: torch.AcceleratorError: CUDA error: device-side assert triggered
[default0]:[rank0]: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
[default0]:[rank0]:[E1127 08:46:54.820063557 ProcessGroupNCCL.cpp:2119] [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group \
watchdog thread terminated with exception: CUDA error: device-side assert triggered
[default0]:terminate called after throwing an instance of 'c10::DistBackendError'
[default0]:frame #4: <unknown function> + 0x129ecc (0x7f25b7129ecc in /lib/x86_64-linux-gnu/libc.so.6)
"""


def test_what_the_watchdog_of_nccl_aborts_has_a_traceback() -> None:
    failure = failed(tail=ABORTED + agent(0, -6))
    assert cause_summary([failure]) == (
        "signal 6 (SIGABRT), exit code 134: torch.AcceleratorError: CUDA error: device-side assert triggered"
    )
    assert report("v", [failure]).splitlines()[1:3] == [
        "Traceback (most recent call last):",
        '  File "train.py", line 67, in <module>',
    ]
    assert '  File "train.py", line 67, in <module>' in explain_failure(failure.tail, "0")
    killed = failed(tail=ABORTED + agent(0, -9))
    assert "Traceback" not in report("v", [killed]).splitlines()[1], "a killed process has not failed by itself"


def test_a_long_exception_keeps_its_beginning_in_one_line() -> None:
    reason = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."
    raised = f'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\n{reason} {"GPU 0 " * 90}\n'
    shown = cause_summary([failed(tail=raised)])
    assert shown.startswith(f"exit code 1: {reason} GPU 0") and shown.endswith("[...]") and len(shown) < 330
    line = f"{'file ' * 90}not found"
    assert cause_summary([failed(tail=line)]).endswith("not found")


def test_signals() -> None:
    assert "rank 2 (logs --rank 0): signal 9 (SIGKILL), exit code 137 (container node: exit code 1)" in report(
        "v", [failed(tail=agent(2, -9))]
    )
    assert "index 0: signal 11 (SIGSEGV), exit code 139 (container node)" in report("v", [failed(code=139, signal=11)])
    assert "index 0: exit code 137 (container node)" in report("v", [failed(code=137)])


def test_the_error_file_wins_over_the_log(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    message = {
        "message": "ValueError: deep",
        "extraInfo": {"py_callstack": "Traceback: deep\n", "timestamp": str(int(NOON))},
    }
    file.write_text(json.dumps({"message": message, "errorCode": 1}))
    traceback, traceback_at = read_error_file(file)
    text = report("v", [failed(tail=OWN.format(rank=0) + agent(0, 1), traceback=traceback, traceback_at=traceback_at)])
    assert "Traceback: deep\nlast" in text


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", '{"message": 1}', "[" * 100_000),
        *(f'{{"message": {{"extraInfo": {{"timestamp": {at}}}}}}}' for at in ('"x"', "1" * 400, "NaN", "Infinity")),
    ],
)
def test_an_odd_error_file_does_no_harm(tmp_path: Path, content: str) -> None:
    file = tmp_path / "error.json"
    file.write_text(content)
    traceback, traceback_at = read_error_file(file)
    assert "exit code 1" in report(
        "v", [failed(traceback=traceback or "x", traceback_at=traceback_at, tail="last words")]
    )


def test_an_error_file_that_never_ends_is_not_read(tmp_path: Path) -> None:
    pipe, link, huge = (tmp_path / name for name in ("pipe", "link", "huge"))
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    with huge.open("w") as file:
        file.truncate(1 << 42)
    assert [read_error_file(path) for path in (pipe, link, huge)] == [("", 0.0)] * 3


NEVER = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-13-40_99:00:00\n  rank      : 0\n====="


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("time      : 2026-13-40_99:00:00", "index 0: exit code 1"),
        ("time      : 0001-01-01_00:00:00", "index 0: exit code 1"),
        ("time      : ٢٠٢٦-01-01_00:00:00", "index 0: exit code 1"),
        ("rank      : " + "1" * 5000, "index 0: exit code 1"),
        ("exitcode  : " + "9" * 5000, "index 0: exit code 1"),
        ("exitcode  : -" + "9" * 25, "index 0: exit code 1"),
        ("rank      : ²", "index 0: exit code 1"),
        ("rank      : 3", "rank 3 (logs --rank 0): exit code 1"),
        ("rank      : 3 (local_rank: " + "1" * 5000, "rank 3 (logs --rank 0): exit code 1"),
        ("rank      : 3 (local_rank: ²)", "rank 3 (logs --rank 0): exit code 1"),
        ("exitcode  : -999999999", "index 0: exit code 1000000127"),
    ],
)
def test_a_summary_that_a_job_has_made_up_does_no_harm(line: str, words: str) -> None:
    text = report("v", [failed(tail=f"Root Cause (first observed failure):\n[0]:\n  {line}\n=====\n")])
    assert words in text


def test_a_made_up_summary_ends_no_supervisor(local: LocalTarget) -> None:
    """The exit code is reported, and the job is tried again, as for any other failure."""
    command = python(f"import sys; print({NEVER!r}); sys.exit(3)")
    status = run(local, jobset(step(command=command), failurePolicy={"maxRestarts": 1}))
    assert (status.phase, status.restarts) == ("Failed", 1)
    assert "rank 0: exit code 3" in status.message


class TestFirst:
    def test_the_earliest_wins(self) -> None:
        causes = [failed(0, at=NOON + 2), failed(1, at=NOON + 1), failed(2, at=NOON + 3)]
        cause = first_cause(causes)
        assert cause is not None
        assert cause.failure.index == 1

    @pytest.mark.parametrize("wake", [LOST, "RuntimeError: x\n"])
    def test_who_lost_a_peer_comes_last_even_if_it_ends_first(self, wake: str) -> None:
        """Rank 0 sees the closed connection before the agent of rank 1 has noticed its end."""
        lost = failed(0, at=NOON + 0.5, tail=LOST + agent(0, 1))
        own = failed(1, at=NOON + 0.6, tail=OWN.format(rank=1) + agent(1, 1))
        cause = first_cause([lost, own])
        assert cause is not None
        assert (cause.root.rank, cause.failure.index) == (1, 1)

    def test_who_was_told_to_end_comes_last(self) -> None:
        cause = first_cause([failed(0, at=NOON, code=143), failed(1, at=NOON + 1, code=3)])
        assert cause is not None
        assert cause.code == 3

    def test_what_all_lost_is_told_by_the_first(self) -> None:
        cause = first_cause([failed(1, at=NOON + 1, tail=LOST), failed(0, at=NOON, tail=LOST)])
        assert cause is not None
        assert cause.failure.index == 0

    def test_torchruns_time_counts_where_it_is_clearly_earlier(self) -> None:
        """Its agent may take seconds to end after its rank."""
        slow = failed(1, at=NOON + 4, tail=agent(1, 3, NOON))
        quick = failed(0, at=NOON + 2.5, tail=agent(0, 4, NOON + 2))
        cause = first_cause([quick, slow])
        assert cause is not None
        assert cause.root.rank == 1

    def test_earlier_rounds_do_not_count(self) -> None:
        cause = first_cause([failed(0, at=NOON - 60, code=9), failed(1, at=NOON)])
        assert cause is not None
        assert cause.failure.index == 1

    def test_nobody(self) -> None:
        assert report("only the verdict", []) == "only the verdict"


def test_it_is_bounded() -> None:
    assert len(report("v" * 3000, [failed(tail="x" * 100_000 + "\n" + "y" * 200)])) <= LIMIT
    long = report("v", [failed(tail="Traceback (most recent call last):\n" + "  f\n" * 50_000 + "E: " + "y" * 9000)])
    assert len(long) <= LIMIT
    assert "log: /logs" in long


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):",
        "  barTraceback (most recent call last):\n",
        "=====\n",
        "Traceback (most recent call last):\n  x\n\n",
        "[rank1]: ",
        "\n",
        "Root Cause (first observed failure):\n",
        "Traceback (most recent call last):\n" + "ChildFailedError" * 60_000 + "\n",
    ],
)
def test_hostile_output_does_not_hold_us_up(piece: str) -> None:
    """More than is ever kept of a log, so that time that grows with the square of the length ends in the timeout."""
    assert "exit code 1" in report("v", [failed(tail=piece * (2_000_000 // len(piece)))])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["error: ", "  cause: ", "  cause: x\n", "error: x\n"])
def test_hostile_output_of_an_installation_does_not_either(piece: str) -> None:
    tail = f"error: x\n  cause: {piece * (500_000 // len(piece))}\npulumi-trainer: the packages could not be installed"
    assert "exit code 1" in cause_summary([failed(tail=tail)])


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ('loss 0.5\n{"trainerStatus": {"step": 4}}\n[rank0]: {"trainerStatus": {"step": 5}}\n', "loss 0.5"),
        ('{"trainerStatus": {"step": 4}}\n', "it printed nothing"),
        ('{"trainerStatus": {"step": 4}}\nCUDA error\n\n', "CUDA error"),
    ],
)
def test_a_line_of_progress_is_not_the_cause(tail: str, reason: str) -> None:
    assert cause_summary([failed(tail=tail)]) == f"exit code 1: {reason}"


def test_of_a_long_message_of_this_package_the_reason_is_kept() -> None:
    """It begins with the reason; other lines of a log end with it."""
    own = f"{error_output.OWN_MESSAGE}the bucket refuses the token: {'x' * 2000}"
    assert error_output.shorten_line(own, 160).startswith(own[:900])
    assert error_output.shorten_line("x" * 2000 + " the reason", 160).endswith(" the reason")
