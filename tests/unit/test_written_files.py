"""Files that commands write beside their input: a link of somebody else in their place is replaced, and not followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from documents_support import runtime, train_job
from pulumi_trainer.provider.cli import documents, new_project
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.targets.local.logs import Log
from pulumi_trainer.provider.trainer.catalog import registry
from pulumi_trainer.provider.trainer.releases import DEFAULT

RUNTIME = Path("runtimes", "ours")
LOCK = Path("runtimes", "catalogue.lock")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of the user that is not below the current folder."""
    file = tmp_path / "home" / ".bashrc"
    file.parent.mkdir()
    file.write_text("mine")
    (tmp_path / "input" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "input")
    monkeypatch.setattr(registry, "find_digest", lambda _: f"sha256:{'0' * 64}")
    Path("a/input.yaml").write_text(yaml.safe_dump_all([runtime(), train_job()]))
    assert new("ours@1.0.0") == 0
    return file


def new(reference: str) -> int:
    return cli.run(["runtime", "new", reference, "--from", "torch-distributed"])


def rotate_log() -> int:
    log = Log(Path("node.log"), 4, 2)
    for _ in range(4):
        log.write(b"lines")
    log.close()
    return 0


WRITERS: dict[str, tuple[Path, Callable[[], int]]] = {
    "validate --batch": (Path("a/actual.json"), lambda: documents.batch(Path(), "jobset", DEFAULT)),
    "runtime new": (RUNTIME / "2.0.0.yaml", lambda: new("ours@2.0.0")),
    "the lock of runtime new": (LOCK, lambda: new("ours@2.0.0")),
    "runtime pin": (RUNTIME / "1.0.1.yaml", lambda: cli.run(["runtime", "pin", "ours@1.0.0"])),
    "runtime check --lock": (LOCK, lambda: cli.run(["runtime", "check", "--lock"])),
    "the log of a job": (Path(".node.log.dropped"), rotate_log),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_replaced(outside: Path, writer: str, dangling: bool) -> None:
    path, write = WRITERS[writer]
    outside.write_text("")  # a valid lock
    if dangling:
        outside.unlink()
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(outside, path.parent))
    try:
        assert write() == 0
    except Invalid as error:
        assert "exists already" in str(error) and not dangling and writer in ("runtime new", "runtime pin")
    else:
        assert writer == "the lock of runtime new" or not path.is_symlink()
    assert outside.exists() is not dangling
    assert dangling or outside.read_text() == ""


def test_a_folder_that_is_a_link_is_not_written_to(outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").rename(outside.parent / "a")
    Path("a").symlink_to(outside.parent / "a")
    assert documents.batch(Path(), "jobset", DEFAULT) == documents.UNUSABLE
    assert capsys.readouterr().err == "error: a/actual.json: cannot be written: a is a link\n"
    assert [each.name for each in (outside.parent / "a").iterdir()] == ["input.yaml"]
    Path("runtimes/theirs").symlink_to(outside.parent)
    with pytest.raises(Invalid, match="is a link, which a catalogue does not read"):
        new("theirs@1.0.0")
    Path("data").symlink_to(outside.parent)
    with pytest.raises(Invalid, match="already has data/digits"):
        new_project.init(Path(), "quickstart")
    assert sorted(each.name for each in outside.parent.iterdir()) == [".bashrc", "a"]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "folder", b"content")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_permissions_of_a_file_are_those_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
