"""`cache list` and `cache prune`: what is shown, what goes, and what stays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.cli import cache as commands
from pulumi_trainer.provider.pod import layer
from pulumi_trainer.provider.targets.local import environments
from pulumi_trainer.provider.targets.local.process import MARK

DAY = 86400
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / ".cache" / "pulumi-trainer"


def aged(path: Path, days: float) -> Path:
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def environment(cache: Path, name: str, days: float = 1, **record: Any) -> Path:
    home = cache / "environments" / name
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "tool").write_bytes(b"x" * 1000)
    known = {"python": "3.12.1", "requirements": ["torch>=2.6"]}
    (home / layer.RECORD).write_text(json.dumps({**known, **record}))
    aged(home / layer.RECORD, days)
    return home


def run(cache: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pulumi_trainer.provider.cli", "cache", *words],
        env={**os.environ, "HOME": str(cache.parent.parent)}, stdin=subprocess.DEVNULL, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout


def listed(cache: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(run(cache, "list", "-o", "json"))}


@pytest.fixture
def job(cache: Path) -> Iterator[Callable[[Path], None]]:
    """Start the processes of a job that runs in an environment."""
    started = []

    def start(home: Path) -> None:
        wait = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
        own = {
            MARK: "a-uid/digits-node-0-0/node",
            "PATH": f"/first:{home}/bin:/bin",
            "PYTHONPATH": f"{home}/lib/python3.12/site-packages",
        }
        supervisor = [*wait, "/project/.pulumi-trainer/jobs/default/digits", "3"]
        for argv, env in ((wait, own), (supervisor, {MARK: "a-uid"})):
            process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
            assert process.stdout and process.stdout.readline()
            started.append(process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_everything_in_the_cache_is_listed_with_its_size(cache: Path) -> None:
    environment(cache, "aaaa", days=3)
    (cache / "environments" / "cccc").mkdir()
    (cache / "sources").mkdir()
    (cache / "sources" / f"{'d' * 64}.tar.gz").write_bytes(b"x" * 500)
    for kind in ("catalogues", "projects"):
        (cache / kind / "eeee" / COMMIT).mkdir(parents=True)
    (cache / "leases").mkdir()
    found = listed(cache)
    assert {name: (each["kind"], each["size"] > 400) for name, each in found.items()} == {
        "aaaa": ("environment", True),
        "cccc": ("environment", False),
        "d" * 64: ("code archive", True),
        COMMIT: ("git project", False),
    }
    assert (found["aaaa"]["python"], found["aaaa"]["requirements"]) == ("3.12.1", ["torch>=2.6"])
    text = run(cache, "list")
    for shown in ("KIND", "catalogue  ", "3 days ago", "installation interrupted", "1.1 kB"):
        assert shown in text, text


def test_an_empty_cache(cache: Path) -> None:
    assert json.loads(run(cache, "list", "--output", "json")) == []
    assert "has no environments" in run(cache, "list")
    assert run(cache, "prune") == "Nothing to remove.\n"
    assert "invalid choice: 'xml'" in run(cache, "list", "-o", "xml", code=2)
    assert run(cache, "list", "-o", "yaml") == "[]\n"


def test_what_a_running_job_uses_stays(cache: Path, job: Callable[[Path], None]) -> None:
    used, unused = environment(cache, "aaaa"), environment(cache, "bbbb")
    job(used)
    found = listed(cache)
    assert found["aaaa"]["jobs"] == ["default/digits"] and found["bbbb"]["jobs"] == []
    out = run(cache, "prune", "--yes")
    assert "kept environment aaaa: used by default/digits" in out and "Removed 1 entry, 1.1 kB." in out
    assert used.exists() and not unused.exists()
    assert [each.name for each in used.parent.iterdir() if each.is_dir()] == ["aaaa"]


def test_what_was_used_a_moment_ago_and_what_is_being_installed_stays(cache: Path) -> None:
    recent, half = environment(cache, "aaaa", days=0), cache / "environments" / "bbbb"
    half.mkdir()
    (cache / "sources").mkdir()
    archive = cache / "sources" / f"{'d' * 64}.tar.gz"
    archive.touch()
    with (cache / "environments" / "bbbb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = run(cache, "prune", "--yes")
    assert recent.exists() and half.exists() and archive.exists()
    assert "kept environment bbbb: it is being installed" in out
    assert "kept environment aaaa: used in the last ten minutes" in out
    run(cache, "prune", "--yes")
    assert not half.exists(), "nobody installs it"


def test_an_environment_that_comes_into_use_before_it_is_removed_stays(
    cache: Path, job: Callable[[Path], None]
) -> None:
    home = environment(cache, "aaaa")
    job(home)
    assert environments.remove_environment(home) == "used by default/digits" and home.exists()


def test_only_what_is_old_enough_goes(cache: Path) -> None:
    environment(cache, "aaaa", days=40)
    environment(cache, "bbbb", days=20)
    assert "Would remove 1 entry" in run(cache, "prune", "--older-than", "30d", "--dry-run")
    assert len(listed(cache)) == 2, "--dry-run"
    assert "but stdin is not a terminal" in run(cache, "prune", "--older-than", "30d", code=1)
    assert len(listed(cache)) == 2, "nobody has agreed"
    run(cache, "prune", "--older-than", "30d", "--yes")
    assert [*listed(cache)] == ["bbbb"]
    out = run(cache, "prune", "--older-than", "yesterday", code=1)
    assert "error: --older-than: invalid duration 'yesterday'" in out


def test_a_removal_that_was_interrupted_leaves_no_part_of_a_project(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Source(git=, revision=)` takes the folder of a commit as it is there."""
    monkeypatch.setenv("HOME", str(cache.parent.parent))
    commit = cache / "projects" / "eeee" / COMMIT
    commit.mkdir(parents=True)
    for name in ("train.py", "model.py"):
        (commit / name).touch()
    aged(commit, 1)

    def killed(path: Path) -> None:
        (path / "train.py").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "remove_tree", killed)
    with pytest.raises(KeyboardInterrupt):
        commands.prune(0, dry_run=False, yes=True)
    assert not commit.exists()
    run(cache, "prune", "--yes")
    assert [*commit.parent.iterdir()], "it is removed when nobody has used it for a while"


def test_what_is_used_while_the_user_is_asked_stays(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(cache.parent.parent))
    commit = cache / "projects" / "eeee" / COMMIT
    commit.mkdir(parents=True)
    aged(commit, 1)
    monkeypatch.setattr(commands, "_confirmed", lambda _: [os.utime(commit)])
    commands.prune(0, dry_run=False, yes=False)
    assert commit.exists() and f"kept git project {COMMIT}: used in the last ten minutes" in capsys.readouterr().out


def test_links_are_not_followed(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "below").mkdir(parents=True)
    (outside / "file").write_text("mine")
    home = environment(cache, "aaaa")
    (home / "linked").symlink_to(outside)
    (cache / "environments" / "bbbb").symlink_to(outside)
    (cache / "sources").symlink_to(outside)
    aged(outside, 40)
    assert [*listed(cache)] == ["aaaa"]
    run(cache, "prune", "--yes")
    assert not home.exists() and (outside / "file").read_text() == "mine" and (outside / "below").exists()


def test_the_name_of_a_runs_environment_is_forgotten_with_it(cache: Path) -> None:
    environment(cache, "aaaa"), environment(cache, "bbbb", days=0)
    runs = {name: cache / "environments" / f"{name}.run" for name in ("one", "two")}
    for file, key in zip(runs.values(), ("aaaa", "bbbb"), strict=True):
        file.write_text(key)
        aged(file, 1)
    run(cache, "prune", "--yes")
    assert not runs["one"].exists() and runs["two"].exists()


def test_what_requirements_hold_is_not_trusted(cache: Path) -> None:
    environment(cache, "aaaa", requirements=["a\x1b]0;title\x07b"])
    assert "\x1b" not in run(cache, "list")


def test_what_another_program_removes_meanwhile_is_left_out(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the folder in which a plan makes the archive of a project."""
    monkeypatch.setenv("HOME", str(cache.parent.parent))
    is_symlink = Path.is_symlink

    def removed_afterwards(path: Path) -> bool:
        found = is_symlink(path)
        if path.name.startswith(".new-"):
            shutil.rmtree(path)
        return found

    for folder in ("environments", "sources", "catalogues/eeee", "projects/eeee"):
        (cache / folder / ".new-1").mkdir(parents=True)
    aged(environment(cache, "aaaa"), 1)
    monkeypatch.setattr(Path, "is_symlink", removed_afterwards)
    commands.list_all("json")
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["aaaa"]
    assert not [*cache.rglob(".new-1")]


def test_an_environment_that_another_program_has_removed_is_removed(cache: Path) -> None:
    gone = environment(cache, "aaaa")
    shutil.rmtree(gone)
    assert environments.remove_environment(gone) == ""
