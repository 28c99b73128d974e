"""file://, and what all schemes share: manifest, staging, names, the program itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from initializers_support import QUICK, command, environment, tree
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.machine.extras import install_command
from pulumi_trainer.provider.pod.code import manifest_of
from pulumi_trainer.provider.pod.initializers import (
    Manifest,
    check_uri,
    contract,
    fetch,
    fetching,
    file,
    fingerprint,
    manifest,
)
from pulumi_trainer.provider.pod.initializers.__main__ import main
from pulumi_trainer.provider.pod.initializers.file_names import MANIFEST, STAGING, check_paths
from pulumi_trainer.provider.pod.initializers.progress import Meter, Progress
from pulumi_trainer.provider.pod.initializers.source import Count, Entry


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a few files, one of several parts."""
    folder = tmp_path / "source"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.csv").write_bytes(b"1,2,3\n")
    (folder / "empty").write_bytes(b"")
    (folder / "sub" / "big.bin").write_bytes(os.urandom(5 * QUICK.part + 17))
    (folder / "sub" / "deep" / "é .txt").write_text("text")
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the files whose content was read for copying."""
    seen: list[str] = []
    real = file._Folder.download

    def download(self: Any, entry: Entry, path: Path, count: Count) -> Any:
        seen.append(entry.key)
        return real(self, entry, path, count)

    monkeypatch.setattr(file._Folder, "download", download)
    return seen


def get(uri: str | Path, output: Path, **env: str) -> Manifest:
    text = f"file://{uri}" if isinstance(uri, Path) else uri
    return fetch("dataset", text, output, env=env, tuning=QUICK)


def test_a_folder(source: Path, output: Path) -> None:
    seen: list[Progress] = []
    done = fetch("dataset", f"file://{source}", output, env={}, report=seen.append, tuning=QUICK)
    assert tree(output) == tree(source)
    assert not (output / STAGING).exists()
    assert manifest.read(output) == done
    assert done.complete
    assert [f.path for f in done.files] == sorted(tree(source))
    assert seen[-1].percent == 100
    assert all(p.percent < 100 for p in seen[:-1])


def test_the_manifest_lies_beside_the_data(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = get(source, output)
    assert sorted(p.name for p in output.parent.iterdir()) == [".out.pulumi-trainer.json", "out", "source"]
    for path in tree(output):
        (output / path).unlink()
    assert manifest.read(output) is None, "what was emptied by hand holds nothing"
    (source / "a.csv").write_text("another")
    assert get(source, output).revision != done.revision
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == output)
    manifest_of(output).unlink()
    get(source, output)
    assert (output / MANIFEST).exists() and not manifest_of(output).exists(), "nothing can be kept beside a mount point"


def test_a_fingerprint_is_that_of_the_content(source: Path, output: Path) -> None:
    first = fingerprint(f"file://{source}", [])
    done = get(source, output)
    assert first == done.revision
    (source / "a.csv").touch()
    assert fingerprint(f"file://{source}", []) == first
    (source / "a.csv").write_bytes(b"1,2,4\n")
    assert fingerprint(f"file://{source}", []) != first
    assert fingerprint(f"file://{source}", ["a.csv"]) == fingerprint(f"file://{source}", ["a.*"])
    (source / "link").symlink_to("/etc/hostname")
    with pytest.raises(TargetFault, match="leads out of the folder"):
        fingerprint(f"file://{source}", [])


def test_of_a_large_folder_sizes_and_times_count(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_HASHED", 10)
    monkeypatch.setattr(file, "digests", lambda *_: pytest.fail("a plan reads no large folder"))
    first = fingerprint(f"file://{source}", [])
    assert fingerprint(f"file://{source}", []) == first
    (source / "a.csv").write_bytes(b"1,2,4\n")
    assert fingerprint(f"file://{source}", []) != first
    before = fingerprint(f"file://{source}", [])
    os.utime(source / "a.csv", (2e9, 2e9))
    assert fingerprint(f"file://{source}", []) != before


def test_a_file(source: Path, output: Path) -> None:
    get(source / "a.csv", output)
    assert tree(output) == {"a.csv": b"1,2,3\n"}


def test_ignore_patterns(source: Path, output: Path) -> None:
    get(source, output, IGNORE_PATTERNS=" *.bin ,, sub/deep/* ")
    assert set(tree(output)) == {"a.csv", "empty"}
    with pytest.raises(TargetFault, match=r"none of its 4 files match the patterns: \* are ignored"):
        get(source, output.with_name("other"), IGNORE_PATTERNS="*")
    assert not list(output.with_name("other").iterdir())


def test_second_run_reads_nothing_and_keeps_the_revision(source: Path, output: Path, reads: list[str]) -> None:
    first = get(source, output)
    assert reads
    reads.clear()
    (source / "a.csv").write_bytes(b"changed since")
    assert get(source, output) == first
    assert reads == []
    assert (output / "a.csv").read_bytes() == b"1,2,3\n"


def test_second_run_writes_nothing(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get(source, output)
    monkeypatch.setattr(fetching.staging, "locked", lambda path: pytest.fail("the lock was taken"))
    assert get(source, output) == first


def test_missing_and_damaged_files_are_mended(source: Path, output: Path, reads: list[str]) -> None:
    get(source, output)
    reads.clear()
    (output / "a.csv").unlink()
    (output / "sub" / "deep" / "é .txt").write_text("longer text")
    get(source, output)
    assert sorted(reads) == ["a.csv", "sub/deep/é .txt"]
    assert tree(output) == tree(source)


def test_a_source_that_changed_does_not_hint_an_older_revision(source: Path, output: Path) -> None:
    get(source, output)
    (output / "a.csv").unlink()
    (source / "empty").write_text("no more")
    with pytest.raises(TargetFault, match=r"has changed since it was fetched.*another volume"):
        get(source, output)


def test_another_uri_replaces_only_what_was_fetched(source: Path, output: Path) -> None:
    output.mkdir()
    (output / "sub").mkdir()
    (output / "sub" / "mine").write_text("not fetched")
    get(source, output)
    get(source / "a.csv", output)
    assert tree(output) == {"a.csv": b"1,2,3\n", "sub/mine": b"not fetched"}


def test_a_failed_fetch_leaves_the_earlier_one(source: Path, output: Path, tmp_path: Path) -> None:
    get(source / "a.csv", output)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "link").symlink_to("/etc/hostname")
    with pytest.raises(TargetFault):
        get(tmp_path / "bad", output)
    before = manifest.read(output)
    assert before is not None
    assert before.complete
    assert tree(output) == {"a.csv": b"1,2,3\n"}


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/etc", "leads out of the folder"),
        ("/etc/hostname", "leads out of the folder"),
        ("../outside", "leads out of the folder"),
        ("sub", "link to a folder"),
        ("nowhere", "No such file"),
        ("link", "(?i)symlink loop|symbolic link"),
    ],
)
def test_links(source: Path, output: Path, target: str, why: str) -> None:
    (source.parent / "outside").write_text("secret of somebody else")
    (source / "link").symlink_to(target)
    with pytest.raises(TargetFault, match=why) as caught:
        get(source, output)
    assert f"{source}/link" in str(caught.value)
    assert tree(output) == {}


def test_a_link_inside_is_followed(source: Path, output: Path) -> None:
    (source / "link").symlink_to("sub/deep/é .txt")
    get(source, output)
    assert (output / "link").read_text() == "text"
    assert not (output / "link").is_symlink()


def test_special_files(source: Path, output: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(TargetFault, match="pipe: is neither a file nor a folder"):
        get(source, output)


def test_overlap(source: Path) -> None:
    for place in (source, source / "sub" / "out", source.parent):
        with pytest.raises(TargetFault, match="overlaps with the output folder"):
            get(source, place)


def test_a_source_that_changes_while_it_is_read(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = file._Folder.download

    def download(self: Any, entry: Entry, path: Path, count: Count) -> Any:
        if entry.key == "a.csv":
            (source / "a.csv").write_bytes(b"3,2,1\n")
        return real(self, entry, path, count)

    monkeypatch.setattr(file._Folder, "download", download)
    with pytest.raises(TargetFault, match=r"a\.csv: the downloaded data has another checksum"):
        get(source, output)
    assert tree_without_staging(output) == {}


def tree_without_staging(output: Path) -> dict[str, bytes]:
    return {k: v for k, v in tree(output).items() if not k.startswith(STAGING)}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("/etc/passwd", "absolute"),
        ("a\0b", "NUL"),
        ("a//b", "empty"),
        ("./a", "'.' component"),
        ("", "empty"),
        ("x" * 256, "too long"),
        ("d/" * 2100 + "f", "too long"),
        ("\ud800", "not valid Unicode text"),
        (MANIFEST, "reserved for this program"),
        (f"{STAGING}/journal", "reserved for this program"),
    ],
)
def test_hostile_names(name: str, why: str, tmp_path: Path) -> None:
    (found,) = check_paths(["good", name], tmp_path)
    assert why in str(found)
    assert len(str(found)) < 400


def test_colliding_names(tmp_path: Path) -> None:
    assert "both a file and a folder" in str(check_paths(["a", "a/b"], tmp_path)[0])
    assert "twice" in str(check_paths(["a", "a"], tmp_path)[0])
    assert check_paths(["a/b", "a/c", "b", "..a", "a b\n"], tmp_path) == []


def test_links_in_the_output_folder_lead_nowhere(source: Path, output: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    output.mkdir()
    (output / "sub").symlink_to(outside)
    with pytest.raises(TargetFault, match="out/sub is not a folder"):
        get(source, output)
    (output / "sub").unlink()
    (output / STAGING).symlink_to(outside)
    with pytest.raises(TargetFault, match="is a symbolic link"):
        get(source, output)
    (output / STAGING).unlink()
    (output / "a.csv").symlink_to(outside / "a.csv")
    get(source, output)
    assert list(outside.iterdir()) == []
    assert tree(output) == tree(source)


def test_a_hostile_manifest_deletes_nothing_outside(source: Path, output: Path, tmp_path: Path) -> None:
    get(source / "a.csv", output)
    precious = tmp_path / "precious"
    precious.write_text("keep")
    data = json.loads(manifest_of(output).read_text())
    data["files"][0]["path"] = "../precious"
    manifest_of(output).write_text(json.dumps(data))
    get(source, output)
    assert precious.read_text() == "keep"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"version": 1}', "[" * 100_000, '{"version": 9}', "infinite"]
)
def test_a_damaged_manifest_is_none(source: Path, output: Path, text: str) -> None:
    get(source, output)
    if text == "infinite":
        found = json.loads(manifest_of(output).read_text())
        found["files"][0]["size"] = float("inf")
        text = json.dumps(found)
    manifest_of(output).write_text(text)
    assert manifest.read(output) is None
    assert get(source, output).complete


@pytest.mark.parametrize("what", ["out", "nowhere", "folder", "fifo"])
def test_what_no_fetch_accepts_may_be_ignored(source: Path, output: Path, tmp_path: Path, what: str) -> None:
    """Such as the links of an environment, which the plan accepts."""
    before = get(source, output).revision
    hidden = source / ".venv"
    hidden.mkdir()
    if what == "fifo":
        os.mkfifo(hidden / "x")
    else:
        (hidden / "x").symlink_to({"out": __file__, "nowhere": "/nowhere", "folder": tmp_path}[what])
    other = output.with_name("other")
    with pytest.raises(TargetFault):
        get(source, other)
    fetched = get(source, other, IGNORE_PATTERNS=".venv/*")
    assert fetched.revision == before and not any(f.path.startswith(".venv") for f in fetched.files)


def test_a_folder_in_place_of_a_file(source: Path, output: Path) -> None:
    (output / "a.csv").mkdir(parents=True)
    with pytest.raises(TargetFault, match=r"a\.csv is a folder.*remove it"):
        get(source, output)


def test_no_room(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"total": 100, "used": 90, "free": 10})
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(TargetFault, match=r"no space left: 327.7 kB are needed and 10 B are free"):
        get(source, output)
    assert tree(output) == {}


def test_a_disk_that_fills_up(source: Path, output: Path) -> None:
    """A limit on the size of files stands for the full disk: the same path through the kernel, another errno."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    env = environment(f"file://{source}", output)
    done = subprocess.run(command(before=limit), env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no space left" in done.stderr
    assert "free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree_without_staging(output) == {}
    assert manifest.read(output) is None
    done = subprocess.run(command(), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tree(output) == tree(source)


def test_an_output_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file")
    for place in (tmp_path / "plain", tmp_path / "plain" / "below"):
        with pytest.raises(TargetFault, match=r"plain.*(Not a directory|File exists)"):
            get(source, place)


_STEPS = {
    "before the first byte": "real = staging.Staging.plan\nstaging.Staging.plan = lambda *a: os._exit(9)\n",
    "in the middle of a download": (
        "real = transfer.Transfer._fetch_file\ndef fetch_file(self, *a):\n    real(self, *a)\n    os._exit(9)\n"
        "transfer.Transfer._fetch_file = fetch_file\n"
    ),
    "before anything is moved": (
        "real = manifest.write\ndef write(*a):\n    real(*a)\n    os._exit(9)\nfetching.manifest.write = write\n"
    ),
    "between two moves": (
        "import pathlib\nreal = pathlib.Path.replace\ncount = []\ndef replace(self, target):\n"
        "    done = real(self, target)\n    count.append(1) if '/data/' in str(self) else None\n"
        "    os._exit(9) if len(count) == 2 else None\n    return done\npathlib.Path.replace = replace\n"
    ),
    "before the manifest": (
        "real = manifest.write\ndef write(output, m, folder):\n    os._exit(9) if m.complete else real(output, m, folder)\n"
        "fetching.manifest.write = write\n"
    ),
    "before the staging folder goes": (
        "real = staging.Staging.clear\ndef clear(self):\n    os._exit(9) if manifest.read(self.folder.parent) else real(self)\n"
        "staging.Staging.clear = clear\n"
    ),
}


@pytest.mark.parametrize("step", _STEPS)
def test_killed_at_each_step(source: Path, output: Path, step: str) -> None:
    _killed(source, output, step)
    found = manifest.read(output)
    if step != "before the staging folder goes":
        assert found is None or not found.complete
    # What is in place under a name is whole, even now.
    assert all(tree(source)[k] == v for k, v in tree_without_staging(output).items())
    assert get(source, output).complete
    assert tree(output) == tree(source)
    (source / "sub" / "deep" / "é .txt").unlink()
    get(source / "sub", output)
    assert tree(output) == tree(source / "sub")


def test_what_was_verified_before_a_kill_is_not_copied_again(source: Path, output: Path, reads: list[str]) -> None:
    _killed(source, output, "before anything is moved")
    staged = {p.name: p for p in (output / STAGING / "data").iterdir()}
    damaged = next(p for p in staged.values() if p.read_bytes() == b"1,2,3\n")
    damaged.write_bytes(b"6,6,6\n")  # torn by a crash of the machine
    get(source, output)
    assert set(reads) == {"a.csv"}
    assert tree(output) == tree(source)


def _killed(source: Path, output: Path, step: str) -> None:
    imports = "from pulumi_trainer.provider.pod.initializers import fetching, manifest, staging, transfer\n"
    env = environment(f"file://{source}", output)
    done = subprocess.run(command(before=imports + _STEPS[step]), env=env, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr


def test_a_source_that_changed_after_a_kill(source: Path, output: Path) -> None:
    """Nothing was complete, so the newest is fetched, whatever lies in place already."""
    _killed(source, output, "before the manifest")
    (source / "a.csv").write_bytes(b"3,2,1\n")
    get(source, output)
    assert tree(output) == tree(source)


def test_a_staging_folder_that_leads_elsewhere(source: Path, output: Path, tmp_path: Path) -> None:
    _killed(source, output, "in the middle of a download")
    data, outside = output / STAGING / "data", tmp_path / "outside"
    data.rename(outside)
    before = tree(outside)
    data.symlink_to(outside)
    fetch("dataset", f"file://{source}", output, env={})
    assert tree(outside) == before
    assert tree(output) == tree(source)


def test_two_at_once(source: Path, output: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits, and finds it complete."""
    gate, waiting = threading.Event(), threading.Event()
    monkeypatch.setattr(fetching.staging.log, "info", lambda *a: waiting.set())
    real = file._Folder.listing

    def listing(self: Any, recorded: str) -> Any:
        assert gate.wait(30)
        return real(self, recorded)

    monkeypatch.setattr(file._Folder, "listing", listing)
    done: list[Manifest] = []
    threads = [threading.Thread(target=lambda: done.append(get(source, output))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert waiting.wait(30)
    gate.set()
    for thread in threads:
        thread.join(30)
    assert len(done) == 2
    assert done[0] == done[1]
    assert len(reads) == len(set(reads))
    assert not (output / STAGING).exists()


def test_check_uri(source: Path) -> None:
    assert check_uri(f"file://{source}", "dataset") == []
    assert check_uri(f"FILE://{source}/a.csv", "model") == []
    for uri, why in {
        "": "is empty",
        "data.csv": "'data.csv' is not a URI. Hint: begin a path with file://; supported are file:///PATH, s3://BUCKET/PREFIX or hf://",
        "gs://bucket/x": "gs:// is not supported",
        "cache://schema/table": "cache:// is not supported",
        "file://relative": "not an absolute path",
        "file://host/data": "not an absolute path",
        "file:///no/such/file": "No such file",
        "file:///dev/null": "neither a file nor a folder",
        "file:///etc/\0": "control characters",
        "s3://b/" + "k" * 3000: "characters",
        "s3://": "not a valid bucket name",
        "s3://key:canary@bucket/x": "has credentials in it",
        "s3://buc ket/x": "not a valid bucket name",
        "hf://owner": "not a valid repository name",
        "hf://owner/na me": "not a valid repository name",
        "hf://datasets/owner/name": "since the initializer already is one for a",
        "hf://owner/name/../other/x": "not a valid path in a repository",
        "hf://owner/name/..": "not a valid path in a repository",
        "hf://owner/name@v1/a//b": "not a valid path in a repository",
        "hf://hf_canary@owner/name": "pass a token as ACCESS_TOKEN",
    }.items():
        (problem,) = check_uri(uri, "dataset")
        assert problem.where == "STORAGE_URI"
        assert why in str(problem), uri
        assert "canary" not in str(problem)
    for uri in (
        "s3://bucket",
        "s3://bucket/a b/ü",
        "hf://o/n",
        "hf://o/n/",
        "hf://o/n@v1",
        "hf://o/n@refs/convert/parquet/a/b.c",
    ):
        assert check_uri(uri, "dataset") == []


def test_checking_loads_no_client() -> None:
    code = (
        "import sys\nfrom pulumi_trainer.provider.pod.initializers import check_uri\ncheck_uri('s3://b/x', 'model')\n"
        "check_uri('hf://o/n', 'model')\nprint([m for m in sys.modules if m.split('.')[0] in "
        "('boto3', 'botocore', 'huggingface_hub', 'pulumi', 'kubernetes', 'httpx', 'httpx2')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize(("scheme", "module"), [("s3://bucket", "boto3"), ("hf://o/n", "huggingface_hub")])
def test_a_missing_extra(scheme: str, module: str, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = {"boto3": "s3", "huggingface_hub": "hub"}[module]
    message = f"which is not installed ({module} is missing). Hint: {install_command(extra)}"
    with pytest.raises(TargetFault, match=re.escape(message)):
        get(scheme, output)


def test_wrong_variables(output: Path) -> None:
    for env in ({"ACCESS_KEY_ID": "canary"}, {"SECRET_ACCESS_KEY": "canary"}):
        with pytest.raises(Invalid, match="is missing, but the other half") as caught:
            get("s3://bucket", output, **env)
        assert "canary" not in str(caught.value)
    for env in ({"ACCESS_TOKEN": "canary\nx"}, {"HF_TOKEN": "canary canary"}, {"HF_ENDPOINT": "ftp://canary"}):
        with pytest.raises(Invalid) as caught:
            get("hf://o/n", output, **env)
        assert "canary" not in str(caught.value)
    with pytest.raises(Invalid, match="ENDPOINT: is not an http"):
        get("s3://bucket", output, ENDPOINT="ftp://x", ACCESS_KEY_ID="abcd", SECRET_ACCESS_KEY="abcd")
    assert list(output.iterdir()) == []


def test_the_program(source: Path, output: Path) -> None:
    done = subprocess.run(command("model"), env=environment(f"file://{source}", output), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last = lines[-1]["trainerStatus"]
    assert last["progressPercentage"] == 100
    assert last["estimatedRemainingSeconds"] == 0
    assert last["metrics"] == [{"name": "bytes", "value": str(sum(map(len, tree(source).values())))}]
    assert "is complete in" in done.stderr
    assert tree(output) == tree(source)


def test_exit_codes(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, env, code, words in [
        ("dataset", {}, 2, "STORAGE_URI: is empty"),
        ("dataset", {"STORAGE_URI": "gs://x"}, 2, "gs:// is not supported"),
        ("model", {"STORAGE_URI": "file:///no/such/place"}, 2, "No such file"),
        ("model", {"STORAGE_URI": f"file://{tmp_path}", "OUTPUT_DIR": "here"}, 2, "OUTPUT_DIR: 'here' is relative"),
        ("model", {"STORAGE_URI": f"file://{tmp_path / 'void'}"}, 1, "has no files"),
    ]:
        (tmp_path / "void").mkdir(exist_ok=True)
        assert main([kind], {"OUTPUT_DIR": str(output), **env}) == code, env
        written = capsys.readouterr()
        assert words in written.err
        assert written.err.count("\n") == 1
        assert written.out == ""
    with pytest.raises(SystemExit) as caught:
        main(["weights"], {})
    assert caught.value.code == 2


def test_a_mistake_of_ours_is_one_line_too(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("the canary-token leaks")

    monkeypatch.setattr(fetching, "_fetch_missing", broken)
    env = {"STORAGE_URI": f"file://{source}", "OUTPUT_DIR": str(output), "ACCESS_TOKEN": "canary-token"}
    assert main(["dataset"], env) == 1
    written = capsys.readouterr().err
    assert "unexpected RuntimeError: the [secret] leaks" in written
    assert written.count("\n") == 1


def test_default_folders() -> None:
    assert contract.DEFAULT_OUTPUT == {"dataset": "/workspace/dataset", "model": "/workspace/model"}


def test_progress_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("pulumi_trainer.provider.pod.initializers.progress.time.monotonic", lambda: clock[0])
    seen: list[Progress] = []
    meter = Meter(seen.append, total=1000, files=2)
    meter.add_reused_file(200)
    for _ in range(32):
        clock[0] += 0.125
        meter.add("a", 10)
    assert [p.done for p in seen] == [280, 360, 440, 520]
    assert [p.seconds_left for p in seen] == [9, 8, 7, 6]
    assert seen[0].trainer_status() == {
        "trainerStatus": {
            "progressPercentage": 28,
            "estimatedRemainingSeconds": 9,
            "metrics": [{"name": "bytes", "value": "280"}],
        }
    }


@pytest.fixture(autouse=True)
def _no_logging_left() -> Iterator[None]:
    """`main` adds a handler on stderr, which pytest replaces from test to test."""
    yield
    import logging

    logging.getLogger("pulumi_trainer.provider.pod.initializers").handlers.clear()
