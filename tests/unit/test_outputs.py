"""Copies of outputs: whole or not there, nothing from outside, nothing outside; and what a hostile archive cannot do."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from pulumi_trainer.provider.cli import output_copy
from pulumi_trainer.provider.cli.destinations import open_destination
from pulumi_trainer.provider.cli.output_copy import (
    OTHER_RECORD,
    RECORD,
    Copied,
    ends_on_signals,
    read_folder,
    receive,
    record_name,
)
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault

from tests.moto_server import moto_server


def record_of(copied: Copied) -> bytes:
    return json.dumps({"run": "1", "copy": {"at": "now", **copied.to_dict()}}).encode()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output with all that an output can have."""
    folder = tmp_path / "data"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "model.pt").write_bytes(os.urandom(3_000_000))
    (folder / "deep" / "er" / "log ä.txt").write_text("hello")
    (folder / "nothing").touch()
    (folder / "run.sh").write_text("#!")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("deep/er")
    (folder / "deep" / "best").symlink_to("../model.pt")
    (folder / "absolute").symlink_to(folder / "model.pt")
    (folder / "in-the-pod").symlink_to("/workspace/output/model.pt")
    return folder


def copy(source: Path, destination: str, *, overwrite: bool = False) -> Copied:
    with open_destination(destination, str(source), overwrite=overwrite) as to:
        with read_folder(str(source)) as pieces:
            copied = receive(pieces, to, ["/workspace/output", str(source)])
        to.finish(record_name(copied), record_of(copied), copied)
    return copied


def beside(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_copy_is_the_output_with_its_record(output: Path, tmp_path: Path) -> None:
    to = tmp_path / "there" / "copy"
    copied = copy(output, str(to))
    assert copied.notes == [] and len(copied.files) == 4
    for file in ("model.pt", "deep/er/log ä.txt", "nothing", "run.sh"):
        assert (to / file).read_bytes() == (output / file).read_bytes()
        assert int((to / file).stat().st_mtime) == int((output / file).stat().st_mtime)
    assert (to / "empty").is_dir() and os.access(to / "run.sh", os.X_OK)
    assert str((to / "latest").readlink()) == "deep/er" and str((to / "deep" / "best").readlink()) == "../model.pt"
    assert str((to / "absolute").readlink()) == str((to / "in-the-pod").readlink()) == "model.pt"
    assert (to / "run.json").read_bytes() == record_of(copied)
    assert beside(to.parent) == ["copy"], "nothing else is left"


def test_links_and_special_files_bring_nothing_from_outside(output: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (output / "out").symlink_to("../secret")
    (output / "deep" / "up").symlink_to("../../secret")
    (output / "etc").symlink_to("/etc")
    (output / "whole").symlink_to(".")
    os.mkfifo(output / "pipe")
    copied = copy(output, str(tmp_path / "copy"))
    left_out = {note.partition(" is left out")[0] for note in copied.notes}
    assert left_out == {"out", "deep/up", "etc", "whole", "pipe"}
    assert not left_out & {str(p.relative_to(tmp_path / "copy")) for p in (tmp_path / "copy").rglob("*")}


def test_a_folder_that_is_not_empty_is_refused(output: Path, tmp_path: Path) -> None:
    to = tmp_path / "mine"
    to.mkdir()
    copy(output, str(to))
    with pytest.raises(Invalid, match=r"not empty. Hint: --overwrite"):
        copy(output, str(to))
    (output / "model.pt").unlink()
    copy(output, str(to), overwrite=True)
    assert not (to / "model.pt").exists() and (to / "run.sh").exists()
    assert beside(tmp_path) == ["data", "mine"]


def test_only_an_earlier_copy_is_ever_removed(output: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("years")
    for _ in range(2):
        with pytest.raises(Invalid, match=r"is not a copy of an output: it has no valid run\.json"):
            copy(output, str(home), overwrite=True)
        (home / "run.json").write_text('{"of": "something else"}')
    assert (home / "thesis").read_text() == "years"
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(Invalid, match="is a link"):
        copy(output, str(tmp_path / "link"))


def test_what_others_have_put_into_a_copy_is_not_removed(output: Path, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    copy(output, str(to))
    copy(output, str(to / "another"))
    (to / "deep" / "notes.md").write_text("mine")
    with pytest.raises(Invalid, match=r"not part of the earlier copy: another/absolute, .* and \d+ more"):
        copy(output, str(to), overwrite=True)
    shutil.rmtree(to / "another")
    with pytest.raises(Invalid, match=r"not part of the earlier copy: deep/notes\.md\. Hint: move them elsewhere"):
        copy(output, str(to), overwrite=True)
    assert (to / "deep" / "notes.md").read_text() == "mine"
    (to / "deep" / "notes.md").unlink()
    copy(output, str(to), overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_others_put_there_during_a_copy_is_not_removed(output: Path, tmp_path: Path, overwrite: bool) -> None:
    to = tmp_path / "copy"
    if overwrite:
        copy(output, str(to))
    with (
        pytest.raises(Invalid, match="not part of the earlier copy: notes.md" if overwrite else "is not empty"),
        open_destination(str(to), str(output), overwrite=overwrite) as there,
        read_folder(str(output)) as pieces,
    ):
        copied = receive(pieces, there, [])
        to.mkdir(exist_ok=True)
        (to / "notes.md").write_text("mine")
        there.finish(record_name(copied), record_of(copied), copied)
    assert (to / "notes.md").read_text() == "mine" and beside(tmp_path) == ["copy", "data"]


def test_a_copy_into_the_output_or_around_it_is_refused(output: Path, tmp_path: Path) -> None:
    for to in (output, output / "deep" / "copy", tmp_path):
        with pytest.raises(Invalid, match="overlap"):
            copy(output, str(to), overwrite=True)


def test_an_output_with_a_run_json_of_its_own_keeps_it(output: Path, tmp_path: Path) -> None:
    (output / "run.json").write_text("mine")
    for overwrite in (False, True):
        copied = copy(output, str(tmp_path / "copy"), overwrite=overwrite)
    assert (tmp_path / "copy" / "run.json").read_text() == "mine"
    assert (tmp_path / "copy" / "run.pulumi-trainer.json").read_bytes() == record_of(copied)


def forged(*paths: str, content: bytes = b"none") -> str:
    """A record that a job writes into its output. content: That of files of others, as far as the job knows it."""
    files = [{"path": path, "size": len(content), "sha256": sha256(content).hexdigest()} for path in paths]
    return json.dumps({"run": "1", "copy": {"at": "now", "files": files, "links": {"linked": "notes.md"}, "notes": []}})


NOTES = ("notes.md", "eval/results.csv")


@pytest.mark.parametrize("removed", [False, True], ids=["our record is there", "our record is gone"])
def test_a_record_in_the_output_removes_no_file_of_the_user(output: Path, tmp_path: Path, removed: bool) -> None:
    to = tmp_path / "copy"
    known = b"none!" if removed else b"mine!"
    (output / RECORD).write_text(forged(*NOTES, "model.pt", "linked", RECORD, content=known))
    copy(output, str(to))
    if removed:
        (to / OTHER_RECORD).unlink()
    for path in NOTES:
        (to / path).parent.mkdir(exist_ok=True)
        (to / path).write_text("mine!")
    (to / "linked").symlink_to("model.pt")
    with pytest.raises(Invalid, match=r"not part of the earlier copy|have changed since they were copied"):
        copy(output, str(to), overwrite=True)
    assert [(to / path).read_text() for path in NOTES] == ["mine!"] * 2


def test_a_file_of_a_copy_that_the_user_has_changed_is_not_removed(output: Path, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    copy(output, str(to))
    script = (to / "run.sh").stat()
    (to / "run.sh").write_text("!#")  # as long as before
    os.utime(to / "run.sh", ns=(script.st_atime_ns, script.st_mtime_ns))
    with pytest.raises(Invalid, match=r"has files that have changed since they were copied: run\.sh\. Hint: move them"):
        copy(output, str(to), overwrite=True)
    (to / "run.sh").write_text("#!")
    (to / "latest").unlink()
    (to / "latest").symlink_to("/etc")
    with pytest.raises(Invalid, match=r"have changed since they were copied: latest"):
        copy(output, str(to), overwrite=True)
    (to / "latest").unlink()
    with (
        pytest.raises(Invalid, match=r"have changed since they were copied: run\.sh"),
        open_destination(str(to), str(output), overwrite=True) as there,
        read_folder(str(output)) as pieces,
    ):
        copied = receive(pieces, there, [])
        (to / "run.sh").write_text("changed during the copy")
        there.finish(record_name(copied), record_of(copied), copied)
    assert (to / "run.sh").read_text() == "changed during the copy"


def test_space_is_checked_before_anything_is_written(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2_000_000))
    with pytest.raises(TargetFault, match=r"the output has 3\.0 MB, but only 2\.0 MB are free"):
        copy(output, str(tmp_path / "copy"))
    assert beside(tmp_path) == ["data"]


class Cut(Exception):
    """Ends a copy in its middle, as Ctrl-C does."""


def test_a_copy_that_ends_early_leaves_nothing(output: Path, tmp_path: Path) -> None:
    def some(pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield next(pieces)
        raise Cut

    with (
        pytest.raises(Cut),
        open_destination(str(tmp_path / "copy"), str(output), overwrite=False) as to,
        read_folder(str(output)) as pieces,
    ):
        receive(some(pieces), to, [])
    assert beside(tmp_path) == ["data"]


def test_what_changes_meanwhile_is_noted_and_sent_with_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.mkfifo(folder / "a")  # never opened
    (folder / "log").write_bytes(b"x" * 20_000_000)
    stop = threading.Event()

    def write() -> None:
        with (folder / "log").open("ab") as log:
            while not stop.is_set():
                log.write(b"y" * 1000)
                log.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copied = copy(folder, str(tmp_path / "copy"))
    finally:
        stop.set()
        writer.join()
    assert "log: changed while it was copied" in copied.notes
    assert (tmp_path / "copy" / "log").stat().st_size == copied.files[0].size >= 20_000_000


def test_the_sender_refuses_a_link_instead_of_a_folder(output: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(output)
    with pytest.raises(TargetFault, match="link is not a folder"):
        copy(tmp_path / "link", str(tmp_path / "copy"))


def archive(*members: tuple[str, Any], end: Any = None) -> Iterator[bytes]:
    """An archive with these members: text of a file, `->TARGET` for a link, None for a folder, bytes of a type."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as tar:
        for name, content in (("start", "{}"), *members, *([("end", json.dumps(end))] if end is not None else [])):
            info = tarfile.TarInfo(name)
            data = b""
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, bytes):
                info.type, info.linkname = content, "data/a"
            elif content.startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, content[2:]
            else:
                data = content.encode()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return iter([out.getvalue()])


A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afe48bb"
"""SHA-256 of "a"."""


@pytest.mark.parametrize(
    ("members", "end", "why"),
    [
        ([("data/../x", "a")], {"sha256": [A]}, "leads out of the output"),
        ([("/etc/x", "a")], {"sha256": [A]}, "is not a path in the output"),
        ([("data//etc/x", "a")], {"sha256": [A]}, "is not a path in the output"),
        ([("data/a/./../b", None)], {"sha256": []}, "leads out of the output"),
        ([("data/l", "->data"), ("data/l/x", "->y")], {"sha256": []}, "is below a link"),
        ([("data/l", "->y"), ("data/l/x", "a")], {"sha256": [A + "b"]}, "cannot be written|SHA-256"),
        ([("data/a", "a"), ("data/a", "a")], {"sha256": [A, A]}, "cannot be written"),
        ([("data/a", "a")], {"sha256": ["0" * 64]}, "SHA-256 of received files"),
        ([("data/a", "a")], {"sha256": []}, "SHA-256 of received files"),
        ([("data/a", "a")], None, "its end is missing"),
        ([("end", '{"sha256": []}'), ("data/a", "a")], None, "is not an archive of the output"),
        ([("end", "[")], None, "cannot be read"),
    ],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, members: list[Any], end: Any, why: str
) -> None:
    with pytest.raises(TargetFault, match=why), open_destination(str(tmp_path / "copy"), "", overwrite=False) as to:
        copied = receive(archive(*members, end=end), to, ["/workspace/output"])
        to.finish("run.json", record_of(copied), copied)
    assert beside(tmp_path) == []


@pytest.mark.parametrize("mtime", ["1e300", "nan"])
def test_a_time_that_no_file_has_is_refused(tmp_path: Path, mtime: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("start", b'{"bytes": 1}'), ("data/a", b"x"), ("end", b'{"sha256": [], "changed": 5}')):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {"mtime": mtime}
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(TargetFault), open_destination(str(tmp_path / "copy"), "", overwrite=False) as to:
        receive(iter([out.getvalue()]), to, [])
    assert beside(tmp_path) == []


def test_devices_and_hard_links_of_an_archive_are_not_made(tmp_path: Path) -> None:
    with open_destination(str(tmp_path / "copy"), "", overwrite=False) as to:
        members = [("data/device", tarfile.CHRTYPE), ("data/hard", tarfile.LNKTYPE), ("data/pipe", tarfile.FIFOTYPE)]
        copied = receive(archive(*members, end={"sha256": []}), to, [])
        to.finish("run.json", record_of(copied), copied)
    assert beside(tmp_path / "copy") == ["run.json"]


def test_an_archive_that_is_cut_is_not_a_copy(output: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-I", output_copy.send_output.__file__, str(output)]
    whole = subprocess.run(argv, capture_output=True, check=True).stdout
    for size in (0, 100, 5_000, len(whole) // 2, len(whole) - 11_000):
        with pytest.raises(TargetFault), open_destination(str(tmp_path / "copy"), "", overwrite=False) as to:
            receive(iter([whole[:size]]), to, [])
    assert beside(tmp_path) == ["data"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket of moto's server, which boto3 finds in the environment."""
    with moto_server() as url:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "key-of-mine",
            "AWS_SECRET_ACCESS_KEY": "secret-of-mine",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="models")
        yield client


def keys(client: Any, prefix: str = "") -> dict[str, int]:
    found = client.list_objects_v2(Bucket="models", Prefix=prefix).get("Contents", [])
    return {item["Key"]: item["Size"] for item in found}


def test_a_copy_to_s3(bucket: Any, output: Path) -> None:
    (output / "large").write_bytes(b"z" * 20_000_000)  # in parts
    copied = copy(output, "s3://models/digits/1")
    files = {f"digits/1/{each.path}": each.size for each in copied.files}
    linked = dict.fromkeys(("deep/best", "absolute", "in-the-pod"), 3_000_000)
    links = {f"digits/1/{path}": size for path, size in linked.items()}
    there = keys(bucket)
    assert there.pop("digits/1/run.json") and there == {**files, **links}
    body = bucket.get_object(Bucket="models", Key="digits/1/model.pt")["Body"].read()
    assert body == (output / "model.pt").read_bytes()
    assert any(note.startswith("latest is left out") for note in copied.notes)

    with pytest.raises(Invalid, match=r"s3://models/digits/1/ is not empty. Hint: --overwrite"):
        copy(output, "s3://models/digits/1/")
    (output / "model.pt").unlink()
    copy(output, "s3://models/digits/1/", overwrite=True)
    assert "digits/1/model.pt" not in keys(bucket) and "digits/1/large" in keys(bucket)


def test_a_copy_to_s3_that_ends_early_has_no_record_and_can_be_replaced(bucket: Any, output: Path) -> None:
    copy(output, "s3://models/a")

    def some(pieces: Iterator[bytes]) -> Iterator[bytes]:
        for count, piece in enumerate(pieces):
            if count == 2:
                raise Cut
            yield piece

    with (
        pytest.raises(Cut),
        open_destination("s3://models/a", "", overwrite=True) as to,
        read_folder(str(output)) as pieces,
    ):
        receive(some(pieces), to, [])
    assert "a/run.json" not in keys(bucket)
    with pytest.raises(Invalid, match="a copy there is not complete"):
        copy(output, "s3://models/a")
    copy(output, "s3://models/a", overwrite=True)
    assert "a/run.json" in keys(bucket) and "a/run.json.begun" not in keys(bucket)


def test_what_others_have_put_below_the_prefix_of_a_copy_stays(bucket: Any, output: Path) -> None:
    copy(output, "s3://models")
    bucket.put_object(Bucket="models", Key="datasets/train.bin", Body=b"1")
    copy(output, "s3://models/b")
    (output / "model.pt").unlink()
    (output / "nothing").unlink()
    copied = copy(output, "s3://models", overwrite=True)
    there = keys(bucket)
    assert there["datasets/train.bin"] == 1 and "b/model.pt" in there and "b/run.json" in there
    assert "model.pt" not in there and "nothing" not in there and "run.json" in there
    (output / "run.sh").unlink()
    with pytest.raises(Cut), open_destination("s3://models", "", overwrite=True) as to:
        to.begin(1, {"model.pt"})
        raise Cut
    copy(output, "s3://models", overwrite=True)
    there = keys(bucket)
    assert copied.files and "run.sh" not in there and "b/run.sh" in there and "datasets/train.bin" in there


def test_what_others_have_put_at_the_path_of_a_file_is_not_replaced(bucket: Any, output: Path) -> None:
    (output / "model.pt").rename(output.parent / "model.pt")
    copy(output, "s3://models/a")
    before = keys(bucket)
    bucket.put_object(Bucket="models", Key="a/model.pt", Body=b"MINE")
    (output.parent / "model.pt").rename(output / "model.pt")
    with pytest.raises(
        Invalid,
        match=r"s3://models/a/ has objects that are not part of the earlier copy and would be replaced: model\.pt\. Hint",
    ):
        copy(output, "s3://models/a", overwrite=True)
    assert keys(bucket) == {**before, "a/model.pt": 4}, "nothing has changed"
    bucket.delete_object(Bucket="models", Key="a/model.pt")
    copy(output, "s3://models/a", overwrite=True)


@pytest.mark.parametrize("state", ["complete", "our record is gone", "incomplete"])
def test_a_record_in_the_output_removes_no_object_of_others(bucket: Any, output: Path, state: str) -> None:
    known = b"none" if state == "our record is gone" else b"theirs"
    (output / RECORD).write_text(forged("other-model.bin", RECORD, content=known))
    copy(output, "s3://models/team")
    if state != "complete":
        bucket.delete_object(Bucket="models", Key=f"team/{OTHER_RECORD}")
    if state == "incomplete":
        begun = json.dumps({"copy": {"files": [{"path": key.removeprefix("team/")} for key in keys(bucket)]}})
        bucket.put_object(Bucket="models", Key="team/run.json.begun", Body=begun)
    bucket.put_object(Bucket="models", Key="team/other-model.bin", Body=b"theirs")
    (output / RECORD).unlink()
    if state == "our record is gone":
        with pytest.raises(Invalid, match="not part of the earlier copy and would be replaced"):
            copy(output, "s3://models/team", overwrite=True)
        assert keys(bucket)["team/other-model.bin"] == 6
        return
    copy(output, "s3://models/team", overwrite=True)
    there = keys(bucket)
    assert there["team/other-model.bin"] == 6
    assert json.loads(bucket.get_object(Bucket="models", Key="team/run.json")["Body"].read())["copy"]["files"]
    assert f"team/{OTHER_RECORD}" not in there


def test_an_object_of_a_copy_that_others_have_replaced_stays(bucket: Any, output: Path) -> None:
    copy(output, "s3://models/a")
    for path in ("model.pt", "deep/best", "nothing"):
        bucket.put_object(Bucket="models", Key=f"a/{path}", Body=b"theirs")
    for path in ("model.pt", "deep/best", "nothing"):
        (output / path).unlink()
    copy(output, "s3://models/a", overwrite=True)
    there = keys(bucket)
    assert [there[f"a/{path}"] for path in ("model.pt", "deep/best", "nothing")] == [6, 6, 6]
    assert "a/absolute" not in there, "a link is a copy of its file, which is gone"
    (output / "nothing").touch()
    with pytest.raises(Invalid, match=r"would be replaced: nothing\. Hint"):
        copy(output, "s3://models/a", overwrite=True)


def test_an_endpoint_that_is_not_a_url(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(TargetFault, match=r"Invalid endpoint: localhost:9000. Hint: .* AWS_ENDPOINT_URL"):
        copy(output, "s3://models/a")


def test_objects_of_others_are_never_removed(bucket: Any, output: Path) -> None:
    bucket.put_object(Bucket="models", Key="theirs/x", Body=b"1")
    bucket.put_object(Bucket="models", Key="theirs-too", Body=b"1")
    with pytest.raises(Invalid, match="is not a copy of an output"):
        copy(output, "s3://models/theirs", overwrite=True)
    assert keys(bucket, "theirs") == {"theirs/x": 1, "theirs-too": 1}


def test_an_empty_folder_stays_the_same_folder(tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the current folder of a shell, or a mount point."""
    place = tmp_path / "there"
    place.mkdir()
    number = place.stat().st_ino
    monkeypatch.chdir(place)
    copy(output, ".")
    assert place.stat().st_ino == number and {"model.pt", RECORD, "latest", "deep", "empty"} <= {*beside(place)}
    assert beside(tmp_path) == ["data", "there"] and not [name for name in beside(place) if name.startswith(".")]
    with pytest.raises(Invalid, match="there is the current folder, which cannot be replaced"):
        copy(output, ".", overwrite=True)
    monkeypatch.chdir(tmp_path)
    copy(output, "there", overwrite=True)


def test_what_others_write_into_an_empty_folder_stays(tmp_path: Path, output: Path) -> None:
    place = tmp_path / "there"
    place.mkdir()
    with (
        pytest.raises(Invalid, match="there is no longer empty"),
        open_destination(str(place), str(output), overwrite=False) as to,
    ):
        with read_folder(str(output)) as pieces:
            copied = receive(pieces, to, [])
        (place / "notes.txt").write_text("mine")
        to.finish(RECORD, b"{}", copied)
    assert beside(place) == ["notes.txt"]


def test_an_output_with_the_second_name_of_the_record_is_refused(tmp_path: Path, output: Path) -> None:
    """A later copy would take it for the record."""
    (output / OTHER_RECORD).write_text(forged("notes.md"))
    with pytest.raises(TargetFault, match=r"has a file run\.pulumi-trainer\.json, .*Hint: rename it"):
        copy(output, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("link", [True, False])
def test_an_output_with_both_names_of_the_record_is_refused(tmp_path: Path, output: Path, link: bool) -> None:
    (output / RECORD).write_text("mine")
    if link:
        (output / OTHER_RECORD).symlink_to("model.pt")
    else:
        (output / OTHER_RECORD).write_text("mine too")
    with pytest.raises(TargetFault, match=r"has files run.json and run.pulumi-trainer.json.*rename one"):
        copy(output, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("link", [True, False])
def test_a_file_with_the_name_of_the_mark_is_refused(bucket: Any, output: Path, link: bool) -> None:
    if link:
        (output / "run.json.begun").symlink_to("run.sh")
    else:
        (output / "run.json.begun").write_text("mine")
    with pytest.raises(TargetFault, match="marks a copy which is not complete"):
        copy(output, "s3://models/x")


def test_a_signal_that_is_ignored_ends_nothing() -> None:
    """As with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("s3://", "the name of the bucket is not valid"),
        ("s3://a", "the name of the bucket is not valid"),
        ("s3://user:pass@bucket/x", "^--copy: the name of the bucket is not valid. Hint: write s3://BUCKET/PREFIX"),
        ("gs://bucket/x", "neither a folder nor s3"),
    ],
)
def test_what_is_no_place(place: str, why: str) -> None:
    with pytest.raises(Invalid, match=why), open_destination(place, "", overwrite=False):
        pytest.fail("it is no place")


def test_a_bucket_that_is_not_there(bucket: Any, output: Path) -> None:
    with pytest.raises(TargetFault, match="does not exist") as refused:
        copy(output, "s3://no-such-bucket/x")
    assert "secret-of-mine" not in str(refused.value)
