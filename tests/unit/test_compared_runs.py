"""`runs JOB RUN RUN`: what differed in two runs that need not be neighbours, also in the files of their project."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.cli import runs as command
from pulumi_trainer.provider.jobs.retention import as_row
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.service.reach import ReachedJob, Where

WAS, NOW = "a" * 64, "b" * 64


def archive(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return made.getvalue()


def run(name: str, digest: str, lr: float, phase: str = "Succeeded") -> Run:
    code = f"python -m train of project {digest[:12]}"
    inputs = {"code": code, "arguments": json.dumps({"lr": lr, "steps": 5}), "nodes": "1"}
    return Run("1", phase, id=name, lineage=name, inputs=inputs, created=1.0)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Run]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    source_archives.store(WAS, lambda: archive({"a.py": "x = 1\n", "old.py": "", "same.py": "y"}))
    source_archives.store(NOW, lambda: archive({"a.py": "x = 2\n", "new.py": "", "same.py": "y"}))
    found = [run("r1", WAS, 0.1), run("r2", WAS, 0.2), run("r3", NOW, 0.2, "Failed"), run("r3", NOW, 0.2)]
    monkeypatch.setattr(command, "chosen_jobs", lambda *_: [ReachedJob("team", "digits")])
    monkeypatch.setattr(command, "read_runs_of", lambda _: found)
    return found


def shown(capsys: pytest.CaptureFixture[str], *names: str, output: str = "table") -> Any:
    command.compare("digits", Where(), names, output=output)
    printed = capsys.readouterr().out
    return json.loads(printed) if output == "json" else printed.splitlines()


@pytest.mark.usefixtures("known")
def test_inputs_and_files_of_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "r1", "r3") == [
        "digits r1: Succeeded, created 1970-01-01 00:00:01 UTC",
        "digits r3: Succeeded, created 1970-01-01 00:00:01 UTC",
        "  code       python -m train of project aaaaaaaaaaaa -> python -m train of project bbbbbbbbbbbb",
        '  arguments  {"lr": 0.1} -> {"lr": 0.2}',
        "  a.py changed",
        "    @@ -1 +1 @@",
        "    -x = 1",
        "    +x = 2",
        "  new.py added",
        "  old.py removed",
    ]
    found = shown(capsys, "r3", "r1", output="json")
    assert [each["id"] for each in found["runs"]] == ["r3", "r1"]
    assert found["changed"]["arguments"] == '{"lr": 0.2} -> {"lr": 0.1}', "the order is that of the command"
    assert found["files"] == {"a.py": "changed", "new.py": "removed", "old.py": "added"}
    assert shown(capsys, "r1", "r2", output="json")["files"] == {}
    assert shown(capsys, "r2", "r2")[-1].startswith("  the same code, arguments")


@pytest.mark.usefixtures("known")
def test_a_project_that_is_not_in_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    source_archives.archive_path(WAS).unlink()
    assert shown(capsys, "r1", "r3")[-1] == (
        "  the code of one of the runs is not in the cache of this machine, so its lines cannot be compared"
    )
    assert shown(capsys, "r1", "r3", output="json")["files"] is None
    source_archives.archive_path(NOW).write_bytes(b"damaged")
    assert shown(capsys, "r1", "r3", output="json")["files"] is None


@pytest.mark.parametrize(
    ("codes", "files"),
    [
        ((f"{WAS[:12]}", f"{NOW[:12]}"), ["a.py", "new.py", "old.py"]),
        ((f"{WAS[:12]} of project {'c' * 12}", f"{NOW[:12]} of project {'c' * 12}"), ["a.py", "new.py", "old.py"]),
        ((f"trl grpo, score {WAS[:12]}, size {WAS[:12]}", f"trl grpo, score {NOW[:12]}"), ["a.py", "new.py", "old.py"]),
        ((f"{WAS[:12]} (git {NOW[:12]})", f"{WAS[:12]} (git {'c' * 12})"), []),
        ((f'["python", "{WAS[:12]}"]', f'["python", "{NOW[:12]}"]'), []),
        ((f"{WAS[:12]}", "trl sft"), []),
        ((f"{WAS[:12]}", "c" * 12), None),
    ],
)
def test_code_of_every_kind(
    known: list[Run], capsys: pytest.CaptureFixture[str], codes: tuple[str, str], files: list[str] | None
) -> None:
    for at, code in enumerate(codes):
        known[at] = replace(known[at], inputs={"code": code})
    found = shown(capsys, "r1", "r2", output="json")["files"]
    assert (found if found is None else [*found]) == files


@pytest.mark.usefixtures("known")
def test_ids_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid, match=r"RUN: no run 'r33' is recorded for this job. Hint: did you mean r3"):
        shown(capsys, "r1", "r33")
    for names in (["r1"], ["r1", "r2", "r3"]):
        with pytest.raises(Invalid, match=rf"runs: compares two runs, not {len(names)} \(r1"):
            shown(capsys, *names)


def test_a_run_of_which_a_row_is_left_is_not_compared(known: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    known[0] = as_row(known[0])
    with pytest.raises(Invalid, match=r"the inputs of run r1 are not kept.* Hint: keep_runs= of the TrainJob"):
        shown(capsys, "r1", "r2")
