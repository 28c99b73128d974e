"""Checkpoints in S3, against moto's server with one in front of it that misbehaves: what the first process of a container
uploads, what the next one starts from, and what it says when S3 fails.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from initializers_support import Answer, Loopback, forward
from initializers_support import tree as all_files
from pulumi_trainer.code import user_code
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.shared import find_checkpoint

from tests.moto_server import moto_server

KEY, SECRET = "AKIACANARYKEYID", "canary-secret-access-key"
SCRIPTS = code.source_of(code.SYNC_FILE).parent


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url.removeprefix("http://")


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("AWS_", "TRAINER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass
class Place:
    """A bucket of its own, and the server in front of it."""

    front: Loopback
    client: Any
    bucket: str
    job: str = "ckpt/lab/test/default/job"
    folder: str = "ckpt/lab/test/default/job/t4kz1f"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.front.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-west-1",
            "TRAINER_CHECKPOINT_TO": f"s3://{self.bucket}/ckpt/",
            "TRAINER_CHECKPOINT_FOLDER": "lab/test/default/job/t4kz1f",
            "TRAINER_CHECKPOINT_GRACE": "3",
            "TRAINER_CHECKPOINT_KEEP": "2",
        }

    @property
    def where(self) -> str:
        return f"s3://{self.bucket}/{self.folder}/"

    def objects(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        found = []
        for page in pages:
            found += [each["Key"].removeprefix(f"{self.folder}/") for each in page.get("Contents", [])]
        return sorted(key.removeprefix(f"{self.job}/") for key in found)

    def key(self, name: str) -> str:
        """The owner is that of the job's folder, everything else is in the folder of the lineage."""
        return f"{self.job if name == 'owner.json' else self.folder}/{name}"

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=self.key(key))["Body"].read())

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.key(key), Body=body)

    def put_checkpoint(self, name: str, content: dict[str, bytes], node: int = 0, **manifest: Any) -> None:
        listed = {file: {"size": len(body), "sha256": sha256(body).hexdigest()} for file, body in content.items()}
        for file, body in content.items():
            self.put(f"{name}/node-{node}/{file}", body)
        text = {"nodes": 1, "token": "", "single": False, "files": listed, **manifest}
        self.put(f"manifests/{name}/node-{node}.json", json.dumps(text).encode())


@pytest.fixture
def place(moto: str) -> Iterator[Place]:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://{moto}", **keys)
    bucket = f"b-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    found = Place(Loopback(forward(moto)), client, bucket)
    yield found
    found.front.close()


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The modules `s3` and `sync_checkpoints` as the first process imports them, without long waits."""
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.syspath_prepend(Path(find_checkpoint.__file__).parent)
    s3, sync = importlib.import_module("s3"), importlib.import_module("sync_checkpoints")
    for module, values in (
        (s3, {"DELAY": 0.001, "TIMEOUT": 60}),
        (sync, {"PERIOD": 0.01, "POLL": 0.01, "SETTLED": 0.05}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    return s3, sync


def tree(folder: Path) -> dict[str, bytes]:
    """The files of checkpoints below a folder, without the one that names the newest checkpoint in S3."""
    return {name: body for name, body in all_files(folder).items() if not name.endswith(".uploaded")}


@dataclass
class Node:
    """Uploads and restores of one node, in this process."""

    place: Place
    sync: Any
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    variables: dict[str, str] = field(default_factory=dict)
    uploads: Any = None

    def start(self, node: int = 0, nodes: int = 1, **variables: str) -> str:
        given = {**self.place.environment, "JOB_COMPLETION_INDEX": str(node), "TRAINER_NUM_NODES": str(nodes)}
        for name, value in {**given, **self.variables, **variables}.items():
            self.monkeypatch.setenv(name, value)
        self.uploads = self.sync.Uploads(str(self.folder))
        STARTED.append(self.uploads)
        return str(self.uploads.restore())

    def finish(self) -> str:
        self.uploads.start()
        return str(self.uploads.finish(lambda: 0.0))


STARTED: list[Any] = []


@pytest.fixture(autouse=True)
def ended_threads() -> Iterator[None]:
    """Ends the threads of a test: one that tries again for ever would sleep in other tests."""
    yield
    for uploads in STARTED:
        uploads.find_next = lambda _: ""
        uploads.ending.set()
        if uploads.is_alive():
            uploads.join(20)
    STARTED.clear()


@pytest.fixture
def node(place: Place, modules: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(place, modules[1], tmp_path / "checkpoints", monkeypatch)


def save(folder: Path, name: str, files: dict[str, bytes] | None = None, **marker: Any) -> Path:
    """Save a checkpoint as `pulumi_trainer.training` does."""
    files = {"model.pt": name.encode()} if files is None else files
    made = folder / f".tmp-{name}"
    for file, body in files.items():
        (made / file).parent.mkdir(parents=True, exist_ok=True)
        (made / file).write_bytes(body)
    text = {"files": {file: len(body) for file, body in files.items()}, **marker}
    text["sha256"] = {file: sha256(body).hexdigest() for file, body in files.items()}
    (made / ".complete").write_text(json.dumps(text))
    made.rename(folder / name)
    return folder / name


class TestUpload:
    def test_a_checkpoint_is_there_once_its_manifest_is(self, node: Node, place: Place) -> None:
        assert node.start() == ""
        body = {"model.pt": b"weights", "more/data.bin": b"", "with space+and%.txt": b"x"}
        save(node.folder, "step-10", body, step=10)
        assert node.finish() == ""
        prefix = "step-10/node-0/"
        files = {prefix + ".complete", *(prefix + file for file in body)}
        assert {*place.objects()} == {*files, "manifests/step-10/node-0.json"}
        assert {file: place.get(prefix + file) for file in body} == body
        manifest = json.loads(place.get("manifests/step-10/node-0.json"))
        assert manifest["nodes"] == 1 and manifest["files"]["model.pt"] == {
            "size": 7,
            "sha256": sha256(b"weights").hexdigest(),
        }
        puts = [request.path.rpartition("/")[2] for request in place.front.requests if request.method == "PUT"]
        assert puts[-1] == "node-0.json" and {*node.folder.iterdir()} == {
            node.folder / "step-10",
            node.folder / ".uploaded",
        }

    def test_what_is_saved_comes_back(self, node: Node, place: Place, tmp_path: Path) -> None:
        node.start()
        saved = tree(save(node.folder, "step-10", {"model.pt": os.urandom(3000), "a/b/c.bin": b"c"}))
        assert node.finish() == ""
        node.folder = tmp_path / "other"
        assert node.start() == str(tmp_path / "other/step-10")
        assert tree(node.folder) == {f"step-10/{file}": body for file, body in saved.items()}
        assert node.finish() == "" and not [r for r in place.front.requests if r.method == "PUT" and "other" in r.path]

    def test_garbage_of_the_right_size_is_not_uploaded(self, node: Node, place: Place, tmp_path: Path) -> None:
        node.start()
        save(node.folder, "step-10")
        assert node.finish() == ""
        node.start()
        (save(node.folder, "step-20") / "model.pt").write_bytes(b"x" * len("step-20"))
        monkey = node.monkeypatch
        monkey.setattr(node.uploads, "grace", 0)
        why = "model.pt is damaged: its SHA-256 is not that of .complete"
        assert node.finish() == f"step-20 is not in {node.uploads.store.where}: {why}; the newest there is step-10"
        for folder in (node.folder, tmp_path / "other"):
            node.folder = folder
            assert node.start() == str(folder / "step-10")

    def test_a_file_is_a_checkpoint_too(self, node: Node, place: Place, tmp_path: Path) -> None:
        node.start()
        (node.folder / "model-7.pt").write_bytes(b"seven")
        assert node.finish() == ""
        node.folder = tmp_path / "other"
        assert node.start() == str(tmp_path / "other/model-7.pt")
        assert tree(node.folder) == {"model-7.pt": b"seven"}

    def test_the_newest_are_kept(self, node: Node, place: Place) -> None:
        place.put("step-1/node-0/left.bin", b"of an upload that was killed")
        node.start()
        node.uploads.start()
        for step in range(10, 60, 10):
            save(node.folder, f"step-{step}")
            wait_until(lambda step=step: f"manifests/step-{step}/node-0.json" in place.objects())
        assert node.uploads.finish(lambda: 0.0) == ""
        wait_until(lambda: len({key.split("/")[0] for key in place.objects()}) == 3)
        assert {key.split("/")[0] for key in place.objects()} == {"manifests", "step-40", "step-50"}
        assert len([key for key in place.objects() if key.startswith("manifests")]) == 2

    def test_what_a_run_saves_that_has_loaded_nothing(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The next run starts from the beginning: its program does not call `load`."""
        place.put_checkpoint("step-1000", {".metadata": b"of the run before"})
        assert node.start() == f"{node.folder}/step-1000"
        node.uploads.start()
        for step in (100, 200, 300):
            save(node.folder, f"step-{step}", {"model.pt": b"%d" % step})
            wait_until(lambda step=step: f"manifests/step-{step}/node-0.json" in place.objects())
        assert node.uploads.finish(lambda: 0.0) == ""
        assert place.get("step-300/node-0/model.pt") == b"300"
        kept = {key.split("/")[1] for key in place.objects() if key.startswith("manifests")}
        assert kept == {"step-200", "step-300", "step-1000"}
        err = capsys.readouterr().err
        assert err.count("the program has saved step-100 and has not continued from step-1000, which stays in") == 1
        assert "Hint: load TRAINER_RESUME_FROM, or set resume=False on the TrainJob" in err

    def test_a_number_that_is_saved_again(self, node: Node, place: Place) -> None:
        """The ranks start again from an earlier checkpoint in the same container."""
        node.start()
        node.uploads.start()
        for number, step in enumerate((10, 20, 30, 20)):
            found = save(node.folder, f"step-{step}.new", {"model.pt": b"%d" % number})
            target = node.folder / f"step-{step}"
            if target.exists():
                target.rename(node.folder / ".tmp-old")
            found.rename(target)
            wait_until(lambda step=step, number=number: has(place, f"step-{step}", "model.pt", b"%d" % number))
        assert node.uploads.finish(lambda: 0.0) == ""

    def test_a_folder_that_is_deleted_file_by_file_is_not_saved_again(self, node: Node, place: Place) -> None:
        node.start()
        node.uploads.start()
        for step in (10, 20):
            made = node.folder / f"checkpoint-{step}"
            made.mkdir()
            for file in ("trainer_state.json", "model", "optimizer"):
                (made / file).write_text("{}")
            wait_until(lambda step=step: f"manifests/checkpoint-{step}/node-0.json" in place.objects())
        (node.folder / "checkpoint-10/model").unlink()
        (node.folder / "checkpoint-20/optimizer").unlink()
        before = len([request for request in place.front.requests if request.method == "PUT"])
        assert node.uploads.finish(lambda: 0.0) == ""
        assert len([request for request in place.front.requests if request.method == "PUT"]) == before

    def test_one_that_is_saved_again_while_its_upload_fails(self, node: Node, place: Place) -> None:
        node.start()
        bad = place.front.fault(lambda r: r.method == "PUT", times=9999, answer=Answer(503, b""))
        save(node.folder, "step-10", {"model.pt": b"old"})
        node.uploads.start()
        wait_until(lambda: node.uploads.pauses > 1)
        (node.folder / "step-10").rename(node.folder / ".tmp-old")
        save(node.folder, "step-10", {"model.pt": b"new"})
        bad.times = 0
        assert node.uploads.finish(lambda: 0.0) == "" and has(place, "step-10", "model.pt", b"new")

    def test_what_nothing_marks_as_complete_is_named(
        self, modules: tuple[Any, Any], node: Node, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        node.monkeypatch.setattr(modules[1], "QUIET", 0.05)
        node.start()
        save(node.folder, "step-10")
        node.uploads.start()
        wait_until(lambda: "manifests/step-10/node-0.json" in place.objects())
        for name, files in {"step-20": ["model.pt"], "best": ["model.pt"], "step-30": []}.items():
            (node.folder / name).mkdir()
            for file in files:
                (node.folder / name / file).write_text("weights")
        needs = "a folder needs .complete, or .metadata or _CHECKPOINT_METADATA or trainer_state.json"
        why = f"nothing marks it as complete ({needs})"
        lost = f"step-20 is not in {place.where}: {why}; the newest there is step-10"
        wait_until(lambda: node.uploads.incomplete)
        assert node.uploads.finish(lambda: 0.0) == lost
        err = capsys.readouterr().err
        assert err.count(f"pulumi-trainer: {lost}\n") == 1, "while it trains, once"
        assert "not uploaded, since their names do not end in a number: best\n" in err

    def test_what_is_marked_in_the_end_is_uploaded(
        self, modules: tuple[Any, Any], node: Node, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        node.monkeypatch.setattr(modules[1], "QUIET", 0)
        node.start()
        node.uploads.start()
        (node.folder / "step-20").mkdir()
        (node.folder / "step-20/model.pt").write_text("weights")
        wait_until(lambda: node.uploads.incomplete)
        (node.folder / "step-20/.metadata").write_text("{}")
        assert node.uploads.finish(lambda: 0.0) == "" and "manifests/step-20/node-0.json" in place.objects()

    @pytest.mark.parametrize("first", [".complete", "model.pt"])
    def test_a_deletion_that_was_killed_is_not_a_checkpoint(self, node: Node, place: Place, first: str) -> None:
        node.start()
        node.uploads.start()
        for step in (10, 20):
            save(node.folder, f"step-{step}", {"model.pt": b"1", ".metadata": b"1"})
            wait_until(lambda step=step: f"manifests/step-{step}/node-0.json" in place.objects())
        (node.folder / "step-10" / first).unlink()
        before = place.objects()
        assert node.uploads.finish(lambda: 0.0) == "" and place.objects() == before

    def test_folders_of_other_lineages_stay(self, node: Node, place: Place) -> None:
        place.client.put_object(Bucket=place.bucket, Key=f"{place.job}/t4kz1a/step-5000/node-0/model.pt", Body=b"x")
        before = place.objects()
        node.start(TRAINER_CHECKPOINT_KEEP="1")
        save(node.folder, "step-1000")
        assert node.finish() == "" and {*before} < {*place.objects()}

    def test_large_files_are_sent_in_parts(
        self, node: Node, place: Place, modules: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(modules[0], "PART", 5 << 20)
        node.start()
        body = os.urandom((12 << 20) + 7)
        save(node.folder, "step-10", {"model.pt": body})
        place.front.fault(lambda r: r.query.get("partNumber") == ["2"], answer=Answer(503, b"<Code>SlowDown</Code>"))
        assert node.finish() == ""
        parts = [r.query["partNumber"] for r in place.front.requests if r.method == "PUT" and "partNumber" in r.query]
        assert parts == [["1"], ["2"], ["2"], ["3"]]
        node.folder = tmp_path / "other"
        place.front.fault(lambda r: r.headers.get("range", "").startswith("bytes=5242880"), cut=100)
        assert node.start()
        assert (node.folder / "step-10/model.pt").read_bytes() == body

    def test_a_part_that_cannot_be_sent_leaves_no_upload_behind(
        self, node: Node, place: Place, modules: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(modules[0], "PART", 5 << 20)
        node.start(TRAINER_CHECKPOINT_GRACE="0")
        save(node.folder, "step-10", {"model.pt": os.urandom(6 << 20)})
        denied = b"<Error><Code>AccessDenied</Code><Message>Not &lt;you&gt;</Message></Error>"
        place.front.fault(lambda r: r.query.get("partNumber") == ["2"], times=99, answer=Answer(403, denied))
        assert "403 AccessDenied" in node.finish()
        sent = [(r.method, *r.query) for r in place.front.requests if "uploadId" in r.query]
        assert sent[:3] == [*[("PUT", "partNumber", "uploadId")] * 2, ("DELETE", "uploadId")]

    def test_requests_are_signed_as_botocore_signs_them(self, modules: tuple[Any, Any]) -> None:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        query = {"list-type": "2", "prefix": "a b/é+%/", "continuation-token": "1/=&x", "uploads": ""}
        url = "https://s3.eu-west-1.amazonaws.com/code/a%20b?"
        url += urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="")
        made = modules[0].sign_headers("GET", url, "eu-west-1", "key", "secret", "token", "0" * 64)
        request = AWSRequest("GET", url, headers={"x-amz-content-sha256": "0" * 64})
        request.context["timestamp"] = made["x-amz-date"]
        request.headers["X-Amz-Date"] = made["x-amz-date"]
        request.headers["x-amz-security-token"] = "token"
        auth = S3SigV4Auth(Credentials("key", "secret", "token"), "s3", "eu-west-1")
        signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        assert made["Authorization"].endswith(f"Signature={signature}")


class TestRestore:
    def test_the_newest_complete_one(self, node: Node, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        for step in (10, 20, 30, 40):
            place.put_checkpoint(f"step-{step}", {"trainer_state.json": b"{}", "model": b"%d" % step})
        place.client.delete_object(Bucket=place.bucket, Key=f"{place.folder}/manifests/step-40/node-0.json")
        place.put("step-30/node-0/model", b"3x")
        assert node.start() == f"{node.folder}/step-20"
        assert tree(node.folder) == {"step-20/trainer_state.json": b"{}", "step-20/model": b"20"}
        assert capsys.readouterr().err.splitlines() == [
            f"pulumi-trainer: skips {place.where}step-30: model is damaged: its SHA-256 is not that of the manifest",
            f"pulumi-trainer: resumes from {node.folder}/step-20, as in {place.where}step-20",
        ]
        manifests = [key for key in place.objects() if key.startswith("manifests/")]
        assert manifests == [f"manifests/step-{step}/node-0.json" for step in (10, 20, 30)], (
            "it stays until a new one of its number is complete"
        )

    @pytest.mark.parametrize(("part", "times"), [("model", 1), ("model", 2), ("manifests/step-20", 2)])
    def test_what_is_damaged_on_its_way_is_read_again(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str], part: str, times: int
    ) -> None:
        place.put_checkpoint("step-10", {"trainer_state.json": b"{}", "model": b"10"})
        place.put_checkpoint("step-20", {"trainer_state.json": b"{}", "model": b"20"})
        place.front.fault(part, times=times, change=lambda body: bytes([body[0] ^ 1]) + body[1:])
        assert node.start() == f"{node.folder}/step-20" and "skips" not in capsys.readouterr().err
        assert (node.folder / "step-20/model").read_bytes() == b"20"

    def test_one_that_was_skipped_is_used_by_the_next_attempt(self, node: Node, place: Place, tmp_path: Path) -> None:
        for step in (10, 20):
            place.put_checkpoint(f"step-{step}", {".metadata": b"%d" % step})
        place.front.fault("step-20/node-0/.metadata", times=3, change=lambda _: b"xx")
        assert node.start() == f"{node.folder}/step-10" and node.finish() == ""
        node.folder = tmp_path / "next"
        assert node.start() == f"{node.folder}/step-20"

    def test_a_checkpoint_is_replaced_once_the_new_one_is_complete(
        self, node: Node, place: Place, tmp_path: Path
    ) -> None:
        """Whatever ends the upload, one of the two can be read."""
        place.put_checkpoint("step-10", {".metadata": b"1"})
        place.put_checkpoint("step-20", {".metadata": b"old", "a": b"old"})
        damaged = place.front.fault("step-20/node-0/", times=99, change=lambda _: b"xxx")
        assert node.start() == f"{node.folder}/step-10"
        damaged.times, gate = 0, threading.Event()
        stalled = place.front.fault(lambda r: r.method == "PUT" and "manifests" in r.path, change=holds(gate))
        save(node.folder, "step-20", {".metadata": b"new", "a": b"new"})
        node.uploads.start()
        wait_until(lambda: stalled.times == 0)
        assert place.get("step-20/node-0/a") == b"old"
        gate.set()
        assert node.uploads.finish(lambda: 0.0) == ""
        node.folder = tmp_path / "next"
        assert node.start() == f"{node.folder}/step-20" and (node.folder / "step-20/a").read_bytes() == b"new"
        wait_until(lambda: "step-20/node-0/a" not in place.objects(), 5)
        assert len([key for key in place.objects() if key.startswith("step-20/")]) == 3

    @pytest.mark.parametrize(
        ("files", "why"),
        [
            ({"../x": b"a"}, "its manifest has a path that is not valid: '../x'"),
            ({"/etc/x": b"a"}, "its manifest has a path that is not valid: '/etc/x'"),
            ({"a/./x": b"a"}, "its manifest has a path that is not valid: 'a/./x'"),
            ({"a//x": b"a"}, "its manifest has a path that is not valid: 'a//x'"),
            ({"x" * 300: b"a"}, f"its manifest has a path that is not valid: {'x' * 100!r}"),
            ({"\ud800": b"a"}, "its manifest has a path that is not valid: '\\ud800'"),
            ({"a": b"a", "a/b": b"b"}, "its manifest has a path that is not valid: "),
            ({"model": b"a"}, "nothing marks it as complete"),
        ],
    )
    def test_hostile_paths(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str], files: dict[str, bytes], why: str
    ) -> None:
        listed = {file: {"size": len(body), "sha256": sha256(body).hexdigest()} for file, body in files.items()}
        place.put_checkpoint(
            "step-20",
            {file: body for file, body in files.items() if "/" not in file and len(file) < 9 and file.isascii()},
            files=listed,
        )
        place.put("step-20/node-0/a/b", b"b")
        place.put_checkpoint("step-10", {".metadata": b"1"})
        assert node.start() == f"{node.folder}/step-10"
        assert f"skips {place.where}step-20: {why}" in capsys.readouterr().err
        assert tree(node.folder.parent) == {"checkpoints/step-10/.metadata": b"1"}

    @pytest.mark.parametrize(
        "manifest",
        [
            b"", b"{", b"[]", b"null", b"\xff", b'{"files": {}}', b"[" * 100_000,
            b'{"nodes": 1, "token": "", "single": false, "files": {"a": {"size": -1, "sha256": "%s"}}}' % (b"0" * 64),
            b'{"nodes": 1, "token": "", "single": false, "files": {"a": {"size": true, "sha256": "%s"}}}' % (b"0" * 64),
            b'{"nodes": 1, "token": "", "single": false, "files": {"a": {"size": 1, "sha256": "00"}}}',
            b'{"nodes": 0, "token": "", "single": false, "files": {}}',
            b'{"nodes": 1, "token": "", "single": true, "files": {}}',
        ],
    )  # fmt: skip
    def test_damaged_manifests(
        self, node: Node, place: Place, manifest: bytes, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.put("manifests/step-20/node-0.json", manifest)
        place.put_checkpoint("step-10", {".metadata": b"1"})
        assert node.start() == f"{node.folder}/step-10"
        assert f"skips {place.where}step-20: its manifest" in capsys.readouterr().err

    def test_none_that_can_be_used_and_none_that_is_lost(self, node: Node, place: Place) -> None:
        """A later release may have written the manifest of the newest one, and of all of them."""
        place.put("manifests/step-20/node-0.json", b'{"version": 2}')
        before = place.objects()
        assert node.start() == "" and place.objects() == before
        save(node.folder, "step-10")
        assert node.finish() == "" and {*before} < {*place.objects()}

    def test_those_that_nobody_can_use_do_not_count(self, node: Node, place: Place) -> None:
        """Else the checkpoints of a training that starts again at zero would be deleted as soon as they are there."""
        for step in (800, 900):
            place.put_checkpoint(f"step-{step}", {"trainer_state.json": b"{}"})
            place.client.delete_object(Bucket=place.bucket, Key=f"{place.folder}/step-{step}/node-0/trainer_state.json")
        assert node.start() == ""
        for step in (10, 20, 30):
            save(node.folder, f"step-{step}")
            node.uploads.upload(f"step-{step}")
            node.uploads.prune()
        found = {key.split("/")[1] for key in place.objects() if key.startswith("manifests")}
        assert found == {"step-20", "step-30", "step-800", "step-900"}
        assert node.start() == f"{node.folder}/step-30"

    @pytest.mark.parametrize("key", ["manifests/step-20/node-0.json", "step-20/node-0/.metadata"])
    def test_what_s3_does_not_give_out_ends_the_container(self, node: Node, place: Place, key: str) -> None:
        place.put_checkpoint("step-10", {".metadata": b"1"})
        place.put_checkpoint("step-20", {".metadata": b"1"})
        before, disabled = place.objects(), b"<Code>KMS.DisabledException</Code><Message>No key</Message>"
        place.front.fault(key, times=99, answer=Answer(400, disabled))
        with pytest.raises(SystemExit, match=r"cannot be used: 400 KMS\.DisabledException: No key"):
            node.start()
        assert place.objects() == before

    @pytest.mark.parametrize(("size", "why"), [(2, "it has more bytes than"), (9, "it has fewer bytes than")])
    def test_sizes_that_lie(
        self, node: Node, place: Place, size: int, why: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.put_checkpoint("step-20", {"model": b"12345"}, files={"model": {"size": size, "sha256": "0" * 64}})
        place.front.fault("step-20/node-0/model", times=99, answer=Answer(206, b"12345"))
        assert node.start() == ""
        assert f"skips {place.where}step-20: model cannot be read: {why} its manifest lists" in capsys.readouterr().err
        assert not tree(node.folder)

    @pytest.mark.parametrize(
        ("body", "why"),
        [(b"<ListBucketResult><a>", "not valid XML"), (b"x" * (9 << 20), "has more than 8388608 bytes")],
    )
    def test_listings_that_cannot_be_read(self, node: Node, place: Place, body: bytes, why: str) -> None:
        place.front.fault(lambda r: "list-type" in r.query, times=99, answer=Answer(200, body))
        with pytest.raises(SystemExit, match=why):
            node.start()

    def test_names_that_lead_elsewhere_are_not_checkpoints(self, node: Node, place: Place) -> None:
        names = ["../step-9", "..", "a/../step-9", ".hidden-9", "step-9.tmp", "best", "step-9/../../x"]
        found = b"".join(
            b"<Contents><Key>%s/manifests/%s/node-0.json</Key></Contents>" % (place.folder.encode(), name.encode())
            for name in names
        )
        place.front.fault(lambda r: "list-type" in r.query, answer=Answer(200, LISTING % (found, b"false", b"")))
        assert node.start() == "" and not tree(node.folder)

    def test_a_redirect_is_not_followed(self, node: Node, place: Place) -> None:
        elsewhere = Loopback(lambda _: Answer(200, LISTING % (b"", b"false", b"")))
        place.front.fault(lambda r: True, answer=Answer(301, b"", {"Location": f"{elsewhere.url}/x"}))
        with pytest.raises(SystemExit, match="cannot be used: 301"):
            node.start()
        assert not elsewhere.requests
        elsewhere.close()

    @pytest.mark.slow
    def test_one_of_a_thousand(self, node: Node, place: Place) -> None:
        for step in range(1000):
            place.put(f"manifests/step-{step}/node-0.json", b"{}")
        place.put_checkpoint("step-1000", {".metadata": b"1"})
        place.front.requests.clear()
        assert node.start() == f"{node.folder}/step-1000"
        listings = [request for request in place.front.requests if "list-type" in request.query]
        assert len(listings) == 2 and len(place.front.requests) == 4, "two pages, a manifest, and a file"

    def test_a_volume_that_is_full(self, node: Node, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.put_checkpoint("step-20", {".metadata": b"12345"})
        monkeypatch.setattr(node.sync.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 4}))
        with pytest.raises(SystemExit, match=r"restored from .*: .*step-20 has 5 bytes, and .* has 4 left"):
            node.start()
        assert not tree(node.folder)

    @pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
    def test_a_volume_that_becomes_full(self, modules: tuple[Any, Any], node: Node, place: Place) -> None:
        place.put_checkpoint("step-20", {".metadata": b"12345"})
        node.start()
        bucket = modules[0].Bucket(place.bucket)
        file = Path("/dev/full").open("wb")  # noqa: SIM115  # it cannot be closed
        with pytest.raises(modules[0].DiskFailed, match="No space left on device"):
            bucket.download(f"{place.folder}/step-20/node-0/.metadata", 5, file)
        with pytest.raises(OSError, match="No space left on device"):
            file.close()

    def test_a_container_that_starts_again_uses_what_it_has(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.put_checkpoint("step-20", {".metadata": b"1"})
        node.start()
        save(node.folder, "step-30")
        assert node.start() == f"{node.folder}/step-30"
        assert node.finish() == ""
        assert "manifests/step-30/node-0.json" in place.objects()
        place.front.requests.clear()
        assert node.start() == f"{node.folder}/step-30" and node.finish() == ""
        assert not [request for request in place.front.requests if request.method == "PUT"]


class TestNodes:
    """Several nodes, each with a folder of its own."""

    def nodes(self, node: Node, tmp_path: Path, count: int = 2) -> list[Node]:
        return [Node(node.place, node.sync, tmp_path / f"node-{i}", node.monkeypatch) for i in range(count)]

    def test_a_sharded_checkpoint_is_complete_with_all_parts(self, node: Node, place: Place, tmp_path: Path) -> None:
        first, second = self.nodes(node, tmp_path)
        assert first.start(0, 2) == second.start(1, 2) == ""
        for number, each in enumerate((first, second)):
            part = {f"__{number}_0.distcp": b"%d" % number, **({".metadata": b"all"} if number == 0 else {})}
            save(each.folder, "step-10", part, nodes=2, token="one", step=10)
        assert first.finish() == ""
        third = self.nodes(node, tmp_path, 3)[2]
        assert third.start(0, 2) == "", "the part of the other node is missing"
        first.start(0, 2)
        save(first.folder, "step-10", {"__0_0.distcp": b"0", ".metadata": b"all"}, nodes=2, token="one", step=10)
        assert first.finish() == second.finish() == ""
        whole = {f"step-10/{file}" for file in ("__0_0.distcp", "__1_0.distcp", ".metadata", ".complete")}
        for number in (0, 1):
            each = Node(place, node.sync, tmp_path / f"again-{number}", node.monkeypatch)
            assert each.start(number, 2) == f"{each.folder}/step-10"
            assert {*tree(each.folder)} == whole
            marker = json.loads((each.folder / "step-10/.complete").read_text())
            assert "nodes" not in marker and marker["step"] == 10 and len(marker["files"]) == 3
            parts = tree(each.folder / "step-10")
            assert marker["sha256"] == {file: sha256(parts[file]).hexdigest() for file in marker["files"]}

    def test_status_counts_on_a_checkpoint_once_all_parts_are_there(
        self, node: Node, place: Place, tmp_path: Path
    ) -> None:
        first = self.nodes(node, tmp_path)[0]
        first.start(0, 2)
        marked = first.folder / ".uploaded"
        save(first.folder, "step-10", {".metadata": b"all"}, nodes=2, token="one")
        first.uploads.start()
        wait_until(lambda: "manifests/step-10/node-0.json" in place.objects())
        place.front.requests.clear()
        wait_until(lambda: len(place.front.requests) > 3)
        assert not marked.exists(), "the part of the other node is missing"
        place.put_checkpoint("step-10", {"__1_0.distcp": b"b"}, 1, nodes=2, token="one")
        wait_until(marked.exists)
        assert marked.read_text() == "step-10" and first.uploads.finish(lambda: 0.0) == ""

    def test_parts_of_two_attempts_are_not_mixed(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.put_checkpoint("step-10", {".metadata": b"a"}, nodes=2, token="one")
        place.put_checkpoint("step-10", {"__1_0.distcp": b"b"}, 1, nodes=2, token="two")
        assert node.start(0, 2) == ""
        assert "step-10: the part of node 1 is of another attempt" in capsys.readouterr().err

    def test_files_of_two_attempts_are_not_mixed(self, node: Node, place: Place, tmp_path: Path) -> None:
        """Of tools whose checkpoints have no token, an earlier attempt may have left the part of one node."""
        place.put_checkpoint("step-10", {".metadata": b"1", "0": b"1"}, nodes=2, attempt="old")
        place.put_checkpoint("step-10", {"1": b"1"}, 1, nodes=2, attempt="old")
        place.put_checkpoint("step-20", {".metadata": b"2", "0": b"2"}, nodes=2, attempt="old")
        place.put_checkpoint("step-20", {"1": b"2"}, 1, nodes=2, attempt="old")
        damaged = place.front.fault("step-20/node-1/1", times=99, change=lambda _: b"x")
        first, second = self.nodes(node, tmp_path)
        for number, each in enumerate((first, second)):
            assert each.start(number, 2, TRAINER_CHECKPOINT_ATTEMPT="new") == f"{each.folder}/step-10"
        damaged.times = 0
        for file, each in (("0", first), ("1", second)):
            (each.folder / "step-20").mkdir()
            (each.folder / "step-20" / file).write_text("new")
        (first.folder / "step-20/.metadata").write_text("new")
        second.uploads.start()
        time.sleep(0.5)
        assert json.loads(place.get("manifests/step-20/node-1.json"))["attempt"] == "old", "the first node has none yet"
        first.uploads.start()
        assert first.uploads.finish(lambda: 0.0) == ""
        third = Node(place, node.sync, tmp_path / "third", node.monkeypatch)
        wait_until(lambda: json.loads(place.get("manifests/step-20/node-1.json"))["attempt"] == "new")
        assert second.uploads.finish(lambda: 0.0) == ""
        assert third.start(0, 2) == f"{third.folder}/step-20"
        assert {(third.folder / "step-20" / file).read_text() for file in (".metadata", "0", "1")} == {"new"}

    def test_parts_of_two_attempts_do_not_count_as_one_that_is_kept(self, node: Node, place: Place) -> None:
        place.put_checkpoint("step-10", {".metadata": b"1"})
        for step in (20, 30):
            place.put_checkpoint(f"step-{step}", {".metadata": b"2"}, nodes=2, attempt="new")
            place.put_checkpoint(f"step-{step}", {"1": b"2"}, 1, nodes=2, attempt="old")
        assert node.start(0, 2, TRAINER_CHECKPOINT_KEEP="2") == f"{node.folder}/step-10"
        save(node.folder, "step-40")
        assert node.finish() == ""
        assert node.start(0, 2) == f"{node.folder}/step-40" and "manifests/step-10/node-0.json" in place.objects()

    def test_other_nodes_wait_for_the_first(self, node: Node, place: Place, tmp_path: Path) -> None:
        second = self.nodes(node, tmp_path)[1]
        second.start(1, 2)
        second.uploads.start()
        for step in (10, 20):
            save(second.folder, f"step-{step}", nodes=2, token="one")
        place.front.requests.clear()
        wait_until(lambda: len(place.front.requests) > 3)
        assert not place.objects()
        place.put_checkpoint("step-10", {".metadata": b"a"}, nodes=2, token="one")
        wait_until(lambda: "manifests/step-10/node-1.json" in place.objects())
        assert second.uploads.finish(lambda: 0.0) == ""
        assert "manifests/step-20/node-1.json" in place.objects(), "at the end, all have the same newest one"

    def test_the_first_node_of_a_role_is_not_that_of_the_job(self, node: Node, place: Place, tmp_path: Path) -> None:
        """As a chief and a worker of TensorFlow, each with index 0 in a Job of its own."""
        chief, worker = self.nodes(node, tmp_path)
        chief.start()
        worker.start(0, 1, TRAINER_NODE_OFFSET="1")
        save(chief.folder, "step-10", {"model.pt": b"chief"})
        assert chief.finish() == ""
        save(worker.folder, "step-10", {"model.pt": b"worker"})
        assert worker.finish() == ""
        assert has(place, "step-10", "model.pt", b"chief"), "what the worker saves is beside it"
        assert "manifests/step-10/node-1.json" in place.objects()

    def test_files_without_a_marker_of_other_nodes(self, node: Node, place: Place, tmp_path: Path) -> None:
        """As Transformers leaves them: the state of the random numbers of each rank on its node, the rest on the first."""
        first, second = self.nodes(node, tmp_path)
        first.start(0, 2)
        second.start(1, 2)
        for file, each in (("trainer_state.json", first), ("rng_state_0.pth", first), ("rng_state_1.pth", second)):
            (each.folder / "checkpoint-10").mkdir(exist_ok=True)
            (each.folder / "checkpoint-10" / file).write_text("{}")
        assert first.finish() == second.finish() == ""
        for number, own in enumerate(({"rng_state_0.pth"}, {"rng_state_0.pth", "rng_state_1.pth"})):
            each = Node(place, node.sync, tmp_path / f"again-{number}", node.monkeypatch)
            assert each.start(number, 2) == f"{each.folder}/checkpoint-10"
            assert {*tree(each.folder)} == {f"checkpoint-10/{file}" for file in {"trainer_state.json", *own}}

    def test_shards_of_other_tools_need_all_nodes(self, node: Node, place: Place, tmp_path: Path) -> None:
        first, second = self.nodes(node, tmp_path)
        first.start(0, 2)
        second.start(1, 2)
        for file, each in ((".metadata", first), ("__0_0.distcp", first), ("__1_0.distcp", second)):
            (each.folder / "step-10").mkdir(exist_ok=True)
            (each.folder / "step-10" / file).write_text("{}")
        assert first.finish() == second.finish() == ""
        assert json.loads(place.get("manifests/step-10/node-0.json"))["nodes"] == 2
        third = Node(place, node.sync, tmp_path / "third", node.monkeypatch)
        assert third.start(1, 2) and len(tree(third.folder)) == 3

    def test_what_only_one_node_has_is_not_used(self, node: Node, place: Place) -> None:
        """The container of one node starts again in place: all nodes have to start from the same checkpoint."""
        place.put_checkpoint("step-10", {".metadata": b"1"})
        node.start(0, 2)
        save(node.folder, "step-20")
        assert node.start(0, 2) == f"{node.folder}/step-10"
        assert {path.name for path in node.folder.iterdir()} == {"step-10", ".uploaded"}


OWNER = "organization/lab/test/0a1b2c3d"
NAMESAKE = "organization/lab/test/99999999"


def own(place: Place) -> list[str]:
    return [key for key in place.objects() if key.startswith("manifests/")]


class TestFork:
    """A fork starts from a checkpoint of another lineage, which stays as it is."""

    def forked(self, node: Node, place: Place, step: str = "", **more: str) -> str:
        node.start(**more)
        folder = place.environment["TRAINER_CHECKPOINT_FOLDER"]
        return str(node.uploads.fork(f"{folder.rpartition('/')[0]}/origin", step))

    @pytest.fixture
    def origin(self, place: Place) -> Place:
        above = place.folder.rpartition("/")[0]
        return Place(place.front, place.client, place.bucket, folder=f"{above}/origin")

    def test_the_checkpoint_of_a_step(self, node: Node, place: Place, origin: Place) -> None:
        for step in (5, 10, 20):
            origin.put_checkpoint(f"step-{step}", {".metadata": str(step).encode()})
        origin.put_checkpoint("step-30", {".metadata": b"1"}, nodes=2)
        before = [key for key in origin.objects() if "t4kz1f" not in key]
        found = Path(self.forked(node, place, "10"))
        assert (found / ".metadata").read_text() == "10" and found.name == "step-10"
        assert Path(self.forked(node, place)).name == "step-20", "the newest that is complete"
        assert node.finish() == "" and not own(place), "nothing of it is uploaded"
        assert node.start() == "", (
            "and it is no checkpoint of this lineage, where a started container would not reset anything"
        )
        save(node.folder, "step-11")
        assert node.start() == f"{node.folder}/step-11" and node.finish() == ""
        assert own(place) == ["manifests/step-11/node-0.json"]
        assert [key for key in origin.objects() if "t4kz1f" not in key] == before

    def test_one_that_is_not_there(self, node: Node, place: Place, origin: Place) -> None:
        origin.put_checkpoint("step-5", {".metadata": b"1"})
        with pytest.raises(
            SystemExit, match=r"no complete checkpoint of step 7 to start from \(steps that are there: 5\)"
        ):
            self.forked(node, place, "7")

    def test_each_node_starts_from_it(self, node: Node, place: Place, origin: Place) -> None:
        origin.put_checkpoint("step-5", {".metadata": b"1"}, nodes=2)
        origin.put_checkpoint("step-5", {"__1_0.distcp": b"2"}, node=1, nodes=2)
        found = Path(self.forked(node, place, "5", JOB_COMPLETION_INDEX="1", TRAINER_NUM_NODES="2"))
        assert sorted(path.name for path in found.iterdir()) == [".metadata", "__1_0.distcp"]


class TestOwner:
    """The folder of a job belongs to one stack, and one attempt of the job saves in it at a time."""

    def owner(self, place: Place) -> dict[str, str]:
        return dict(json.loads(place.get("owner.json")))

    def as_owner(self, node: Node, owner: str, attempt: str = "1", **more: str) -> str:
        return node.start(TRAINER_CHECKPOINT_OWNER=owner, TRAINER_CHECKPOINT_ATTEMPT=attempt, **more)

    def test_the_first_one_gets_it(self, node: Node, place: Place) -> None:
        """Checkpoints that a user has put there have no owner."""
        place.put_checkpoint("step-10", {".metadata": b"1"})
        assert self.as_owner(node, OWNER) == f"{node.folder}/step-10"
        first = self.owner(place)
        assert first["owner"] == OWNER and first["attempt"].startswith("1/") and first["since"].endswith("Z")
        save(node.folder, "step-20")
        assert node.finish() == ""
        assert json.loads(place.get("manifests/step-20/node-0.json"))["attempt"] == first["attempt"]
        assert self.as_owner(node, OWNER, "1"), "a Job that was suspended has the same uid"
        again = self.owner(place)["attempt"]
        assert again.startswith("1/") and again != first["attempt"]

    def test_an_owner_that_somebody_has_deleted(self, node: Node, place: Place) -> None:
        self.as_owner(node, OWNER)
        place.client.delete_object(Bucket=place.bucket, Key=place.key("owner.json"))
        save(node.folder, "step-20")
        assert node.finish() == "" and self.owner(place)["owner"] == OWNER

    @pytest.mark.parametrize("number", [0, 1])
    def test_that_of_another_stack_is_neither_read_nor_written(self, node: Node, place: Place, number: int) -> None:
        place.put_checkpoint("step-10", {".metadata": b"1"})
        self.as_owner(node, OWNER)
        before = {key: place.get(key) for key in place.objects()}
        for other, called in (
            (NAMESAKE, "another stack of this name: in another backend, or destroyed since"),
            ("acme/lab/test/99999999", "the stack 'organization/lab/test'"),
        ):
            place.front.requests.clear()
            with pytest.raises(SystemExit) as ended:
                self.as_owner(node, other, JOB_COMPLETION_INDEX=str(number), TRAINER_NUM_NODES="2")
            assert str(ended.value) == (
                f"pulumi-trainer: s3://{place.bucket}/{place.job}/ belongs to {called}: nothing is read or written there\n"
                "Hint: give CheckpointPolicy another to=, or take the folder over with adopt=True on the TrainJob,"
                " as after `pulumi destroy`"
            )
            assert len(place.front.requests) == 1
        assert {key: place.get(key) for key in place.objects()} == before

    def test_it_is_taken_over(self, node: Node, place: Place) -> None:
        place.put_checkpoint("step-10", {".metadata": b"1"})
        self.as_owner(node, OWNER)
        assert self.as_owner(node, NAMESAKE, TRAINER_CHECKPOINT_ADOPT="1") == f"{node.folder}/step-10"
        assert self.owner(place)["owner"] == NAMESAKE
        with pytest.raises(SystemExit, match="belongs to another stack of this name"):
            self.as_owner(node, OWNER, TRAINER_CHECKPOINT_ADOPT="")

    def test_a_stack_in_another_organization_is_the_same(self, node: Node, place: Place) -> None:
        """As after a transfer: the random part is in its state."""
        self.as_owner(node, OWNER)
        assert self.as_owner(node, OWNER.replace("organization", "acme")) == ""

    def test_the_folders_of_all_lineages_have_one_owner(self, node: Node, place: Place) -> None:
        self.as_owner(node, OWNER, TRAINER_CHECKPOINT_FOLDER="lab/test/default/job/t4kz1a")
        assert place.objects() == ["owner.json"] and self.owner(place)["owner"] == OWNER
        save(node.folder, "step-10")
        assert node.finish() == "" and "t4kz1a/manifests/step-10/node-0.json" in place.objects()

    def test_the_first_save_removes_the_lineages_that_are_too_old(self, node: Node, place: Place) -> None:
        for old in ("t4kz1a", "t4kz1b", "t4kz1c"):
            for name in ("step-1/node-0/a", "manifests/step-1/node-0.json"):
                place.client.put_object(Bucket=place.bucket, Key=f"{place.job}/{old}/{name}", Body=b"1")
        self.as_owner(node, OWNER, TRAINER_CHECKPOINT_REMOVE="t4kz1a,t4kz1b,../x,")
        assert "t4kz1a/step-1/node-0/a" in place.objects(), "until there is something newer"
        save(node.folder, "step-10")
        assert node.finish() == ""
        left = {key.partition("/")[0] for key in place.objects()}
        assert left == {"owner.json", "t4kz1c", "manifests", "step-10"}

    def test_only_the_first_node_removes_them(self, node: Node, place: Place) -> None:
        self.as_owner(node, OWNER, JOB_COMPLETION_INDEX="1", TRAINER_NUM_NODES="2", TRAINER_CHECKPOINT_REMOVE="t4kz1a")
        place.client.put_object(Bucket=place.bucket, Key=f"{place.job}/t4kz1a/x", Body=b"1")
        node.uploads.remove_outdated()
        assert "t4kz1a/x" in place.objects()

    @pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 60_000])
    def test_an_owner_that_cannot_be_read(self, node: Node, place: Place, body: bytes) -> None:
        place.put("owner.json", body)
        with pytest.raises(SystemExit, match=r"cannot be used: .*owner\.json is not valid JSON"):
            self.as_owner(node, OWNER)
        assert place.get("owner.json") == body

    def test_an_earlier_attempt_saves_nothing_more(self, node: Node, place: Place, tmp_path: Path) -> None:
        """As of a worker cluster that MultiKueue has lost, and that comes back."""
        self.as_owner(node, OWNER, "1")
        later = Node(place, node.sync, tmp_path / "later", node.monkeypatch)
        self.as_owner(later, OWNER, "2")
        save(later.folder, "step-10", {"model.pt": b"later"})
        assert later.finish() == ""
        save(node.folder, "step-10", {"model.pt": b"earlier"})
        save(node.folder, "step-20", {"model.pt": b"earlier"})
        stops = list[bool]()
        node.uploads.when_taken = lambda: stops.append(True)
        missing = node.finish()
        assert missing.startswith(f"another attempt of the job saves in {place.where} since 20") and stops == [True]
        assert has(place, "step-10", "model.pt", b"later")
        assert not [key for key in place.objects() if key.startswith("manifests/step-20")]

    def test_other_nodes_wait_for_the_first_of_their_attempt(self, node: Node, place: Place) -> None:
        self.as_owner(node, OWNER, "1")
        second = Node(place, node.sync, node.folder.parent / "second", node.monkeypatch)
        two = {"JOB_COMPLETION_INDEX": "1", "TRAINER_NUM_NODES": "2"}
        self.as_owner(second, OWNER, "2", **two)
        assert self.owner(place)["attempt"].startswith("1/")
        save(second.folder, "step-10", nodes=2, token="one")
        second.uploads.start()
        second.uploads.ending.set()
        wait_until(lambda: second.uploads.pauses > 1)
        assert "manifests/step-10/node-1.json" not in place.objects()
        self.as_owner(node, OWNER, "2", TRAINER_NUM_NODES="2", JOB_COMPLETION_INDEX="0")
        assert second.uploads.finish(lambda: 0.0) == ""
        assert "manifests/step-10/node-1.json" in place.objects()


class TestCredentials:
    def test_web_identity(self, node: Node, place: Place, tmp_path: Path) -> None:
        """As a service account of EKS has it (IRSA)."""
        (tmp_path / "token").write_text("a-jwt\n")
        role = {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x",
        }
        assert node.start(**role, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="") == ""
        asked, listed = place.front.requests
        assert b"WebIdentityToken=a-jwt" in asked.body and "a-jwt" not in asked.path
        assert re.search("Credential=ASIA.*SignedHeaders=.*x-amz-security-token", listed.headers["authorization"])

    @pytest.mark.parametrize("by_file", [True, False])
    def test_the_agent_of_the_node(self, node: Node, place: Place, tmp_path: Path, by_file: bool) -> None:
        """As EKS Pod Identity has it."""
        (tmp_path / "token").write_text("a-token")
        given = {"AccessKeyId": "ASIAAGENT", "SecretAccessKey": "hidden-secret", "Token": "hidden-token"}
        agent = Loopback(lambda _: Answer(200, json.dumps({**given, "Expiration": "2000-01-01T00:00:00Z"}).encode()))
        name = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
        token = {f"{name}_FILE": str(tmp_path / "token")} if by_file else {name: "a-token"}
        variables = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": agent.url + "/v1",
            "HTTP_PROXY": "http://127.0.0.1:1",
            "NO_PROXY": "127.0.0.1",
            **token,
        }
        assert node.start(**variables, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="") == ""
        save(node.folder, "step-10")
        assert node.finish() == ""
        assert {request.headers["authorization"] for request in agent.requests} == {"a-token"}
        assert len(agent.requests) >= len(place.front.requests), "they have expired, so each request renews them"
        assert "Credential=ASIAAGENT/" in place.front.requests[-1].headers["authorization"]
        agent.close()

    def test_an_agent_elsewhere_is_not_asked(self, node: Node) -> None:
        with pytest.raises(
            SystemExit, match=r"no credentials: .* is neither https:// nor on this node: http://evil\.example/x"
        ):
            node.start(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://evil.example/x", AWS_ACCESS_KEY_ID="")

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (b"{", "not valid JSON"),
            (b"[]", "has no credentials"),
            (
                b'{"AccessKeyId": "a\\nb", "SecretAccessKey": "s", "Token": "t", "Expiration": "x"}',
                "has no credentials",
            ),
            (
                b'{"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t", "Expiration": "x"}',
                "no valid time of expiry",
            ),
        ],
    )
    def test_answers_of_an_agent(self, node: Node, body: bytes, why: str) -> None:
        agent = Loopback(lambda _: Answer(200, body))
        with pytest.raises(SystemExit, match=f"no credentials: .*{why}"):
            node.start(AWS_CONTAINER_CREDENTIALS_FULL_URI=agent.url, AWS_ACCESS_KEY_ID="")
        agent.close()

    def test_a_token_that_is_not_there(self, node: Node) -> None:
        role = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x"}
        with pytest.raises(SystemExit, match="no credentials: /nowhere/token cannot be read: No such file"):
            node.start(**role, AWS_ACCESS_KEY_ID="")

    def test_without_credentials_requests_are_not_signed(self, node: Node, place: Place) -> None:
        assert node.start(AWS_ACCESS_KEY_ID="") == ""
        assert "authorization" not in place.front.requests[0].headers

    def test_no_secret_in_a_message(self, node: Node, place: Place) -> None:
        echo = f"<Error><Code>Bad{SECRET}</Code><Message>you\x1b[1m sent {SECRET}</Message></Error>".encode()
        place.front.fault(lambda _: True, times=9, answer=Answer(403, echo))
        with pytest.raises(SystemExit) as ended:
            node.start()
        assert "403 Bad...: you [1m sent ..." in str(ended.value)


class TestFailures:
    """What S3 does wrong while the program trains."""

    def test_a_password_in_the_endpoint_is_not_printed(self, modules: tuple[Any, Any]) -> None:
        bucket = modules[0].Bucket("b", {"AWS_ENDPOINT_URL": "http://minio:S3cretPw@127.0.0.1:9"})
        with pytest.raises(modules[0].Failed, match="the endpoint has a user or a password in it") as failed:
            bucket.call("GET", query={"list-type": "2"}, tries=1)
        assert "S3cretPw" not in str(failed.value) and not failed.value.again

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            (
                {"answer": Answer(500, b"<Error><Code>InternalError</Code><Message>We are sorry</Message></Error>")},
                "500 InternalError: We are sorry",
            ),
            ({"answer": Answer(503, b"")}, "503 Service Unavailable"),
            (
                {"answer": Answer(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")},
                "403 AccessDenied: Access Denied",
            ),
            ({"answer": Answer(200, b""), "cut": 0}, None),
        ],
    )
    def test_the_message_and_what_comes_after(
        self, node: Node, place: Place, capsys: pytest.CaptureFixture[str], fault: dict[str, Any], why: str | None
    ) -> None:
        node.start()
        node.uploads.start()
        save(node.folder, "step-10")
        wait_until(lambda: "manifests/step-10/node-0.json" in place.objects())
        bad = place.front.fault(lambda r: r.method == "PUT", times=9999, **fault)
        if why is None:
            bad.times = 0
        save(node.folder, "step-20")
        message = (
            f"pulumi-trainer: step-20 is not in {place.where}: {why}; training goes on, the newest there is step-10"
        )
        if why is not None:
            wait_until(lambda: node.uploads.pauses > 2)
        bad.times = 0
        wait_until(lambda: "manifests/step-20/node-0.json" in place.objects())
        assert node.uploads.finish(lambda: 0.0) == ""
        err = capsys.readouterr().err
        assert err.count("is not in") == err.count(message) == (0 if why is None else 1), err
        assert f"step-20 is in {place.where}" in err

    def test_nobody_listens(self, node: Node, place: Place, modules: tuple[Any, Any]) -> None:
        node.start()
        place.front.close()
        save(node.folder, "step-10")
        host = os.environ["AWS_ENDPOINT_URL"].partition("://")[2]
        why = f"{host}: [Errno 111] Connection refused"
        assert node.finish() == f"step-10 is not in {place.where}: {why}; the newest there is none"

    def test_a_file_that_goes_away_is_still_uploaded(
        self, node: Node, place: Place, modules: tuple[Any, Any], tmp_path: Path
    ) -> None:
        """The program deletes its old checkpoints while a slow upload of one goes on."""
        node.start()
        save(node.folder, "step-10", {"a": b"1", "b": b"22"})
        gate = threading.Event()
        stalled = place.front.fault(lambda r: r.path.endswith("node-0/a"), change=holds(gate))
        node.uploads.start()
        wait_until(lambda: stalled.times == 0)
        for path in [*(node.folder / "step-10").iterdir()]:
            path.unlink()
        (node.folder / "step-10").rmdir()
        gate.set()
        assert node.uploads.finish(lambda: 0.0) == ""
        assert place.get("step-10/node-0/b") == b"22" and "manifests/step-10/node-0.json" in place.objects()

    def test_a_volume_without_room_for_links(self, node: Node, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        node.start()
        save(node.folder, "step-10")

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(node.sync.shutil, "copytree", full)
        assert node.finish() == "" and "manifests/step-10/node-0.json" in place.objects()


class Container:
    """The first process of a container, with the code that such a policy ships."""

    def __init__(self, place: Place, folder: Path, program: str, **variables: str) -> None:
        code, self.folder = folder / "code", folder
        code.mkdir(parents=True)
        files = user_code.files(
            textwrap.dedent(program), None, None, None, "", checkpoints=True, s3=True, training=True
        )
        for name, content in files.items():
            (code / name).write_text(content)
        env = {**os.environ, **place.environment, "TRAINER_CHECKPOINT_DIR": str(folder / "checkpoints"), **variables}
        self.process = subprocess.Popen(
            [sys.executable, code / "bootstrap.py"], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def kill(self) -> None:
        first = psutil.Process(self.process.pid)
        for process in [*first.children(recursive=True), first]:
            process.kill()
        self.process.communicate(timeout=60)

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.process.returncode, out, err


SAVES = """
    import os, sys, time
    from pulumi_trainer import training
    points = training.checkpoints()
    state = points.load() or {"step": 0}
    print("starts at", state["step"], flush=True)
    for step in range(state["step"] + 1, 1000):
        points.save({"step": step}, step=step)
        if step == int(os.environ.get("LAST", "0")):
            break
        print("step", step, flush=True)
        while not (stop := training.should_stop()) and step % 5 == 0:
            time.sleep(0.01)
        if stop:
            points.save({"step": step}, step=step)
            break
    print("ends at", step, flush=True)
"""


class TestFirstProcess:
    def test_a_finished_program_has_its_last_checkpoint_in_s3(self, place: Place, tmp_path: Path) -> None:
        code, out, err = Container(place, tmp_path / "a", SAVES, LAST="3").end()
        assert (code, out.splitlines()[0]) == (0, "starts at 0"), err
        assert "manifests/step-00000003/node-0.json" in place.objects()
        code, out, err = Container(place, tmp_path / "b", SAVES, LAST="4").end()
        assert (code, out.splitlines()[0]) == (0, "starts at 3"), err
        assert f"resumes from {tmp_path}/b/checkpoints/step-00000003, as in {place.where}step-00000003" in err

    def test_a_finished_program_fails_without_its_last_checkpoint(self, place: Place, tmp_path: Path) -> None:
        place.put_checkpoint("step-1", {".metadata": b"1", "state.json": b'{"step": 1}'})
        place.front.fault(lambda r: r.method == "PUT", times=99, answer=Answer(403, b"<Code>AccessDenied</Code>"))
        code, _, err = Container(
            place, tmp_path, "import os\nopen(os.environ['TRAINER_CHECKPOINT_DIR'] + '/step-2', 'w').write('x')\n"
        ).end()
        why = "403 AccessDenied: <Code>AccessDenied</Code>; the newest there is step-1"
        assert code == 1
        assert (
            f"pulumi-trainer: step-2 is not in {place.where}: {why}; the container fails, so that the job goes on from there\n"
            in err
        )

    def test_sigterm(self, place: Place, tmp_path: Path) -> None:
        container = Container(place, tmp_path / "a", SAVES)
        while container.line() != "step 5\n":
            pass
        container.process.send_signal(signal.SIGTERM)
        code, out, err = container.end()
        assert (code, out) == (143, "ends at 5\n"), err
        assert "manifests/step-00000005/node-0.json" in place.objects()

    def test_sigterm_while_s3_is_slow(self, place: Place, tmp_path: Path) -> None:
        place.put_checkpoint("step-00000001", {".metadata": b"1", "state.json": b'{"step": 1}'})
        gate = threading.Event()
        place.front.fault(lambda r: r.method == "PUT", times=99, change=holds(gate))
        container = Container(place, tmp_path, SAVES.replace('points.load() or {"step": 0}', '{"step": 1}'))
        while container.line() != "step 5\n":
            pass
        begun = time.monotonic()
        container.process.send_signal(signal.SIGTERM)
        code, _, err = container.end()
        gate.set()
        assert code == 143 and time.monotonic() - begun < 30
        assert re.search(
            r"step-0000000\d is not in .*: the grace period is over; the newest there is step-00000001\n", err
        ), err

    def test_killed_half_way(self, place: Place, tmp_path: Path) -> None:
        """The checkpoint that was complete before is the newest one."""
        assert Container(place, tmp_path / "a", SAVES, LAST="4").end()[0] == 0
        gate = threading.Event()
        stalled = place.front.fault(lambda r: r.method == "PUT" and "state.json" in r.path, change=holds(gate))
        container = Container(place, tmp_path / "b", SAVES)
        wait_until(lambda: stalled.times == 0)
        container.kill()
        gate.set()
        code, out, err = Container(place, tmp_path / "c", SAVES, LAST="5").end()
        assert (code, out.splitlines()[0]) == (0, "starts at 4"), err

    def test_a_run_that_loads_nothing(self, place: Place, tmp_path: Path) -> None:
        place.put_checkpoint("step-00000009", {".metadata": b"1", "state.json": b'{"step": 9}'})
        anew = SAVES.replace('points.load() or {"step": 0}', '{"step": 0}')
        code, out, err = Container(place, tmp_path / "b", anew, LAST="3").end()
        assert (code, out.splitlines()[0]) == (0, "starts at 0"), err
        assert "manifests/step-00000003/node-0.json" in place.objects(), err

    def test_a_run_that_loads_nothing_fails_without_its_last_checkpoint(self, place: Place, tmp_path: Path) -> None:
        place.put_checkpoint("step-00000009", {".metadata": b"1", "state.json": b'{"step": 9}'})
        place.front.fault(lambda r: r.method == "PUT", times=99, answer=Answer(403, b"<Code>AccessDenied</Code>"))
        anew = SAVES.replace('points.load() or {"step": 0}', '{"step": 0}')
        code, _, err = Container(place, tmp_path / "b", anew, LAST="3").end()
        assert code == 1 and f"step-00000003 is not in {place.where}: 403 AccessDenied" in err, err

    def test_a_program_whose_checkpoints_nothing_marks_as_complete_fails(self, place: Place, tmp_path: Path) -> None:
        program = """
            import os
            folder = os.environ["TRAINER_CHECKPOINT_DIR"] + "/epoch-3"
            os.mkdir(folder)
            open(folder + "/model.safetensors", "w").write("weights")
        """
        code, _, err = Container(place, tmp_path, program).end()
        assert code == 1 and f"epoch-3 is not in {place.where}: nothing marks it as complete" in err, err
        assert err.count("epoch-3") == 1 and "the container fails, so that the job goes on from there" in err

    def test_another_attempt_ends_it(self, place: Place, tmp_path: Path) -> None:
        """What it saves from then on is lost; as an interruption, the two would end each other for ever."""
        variables = {"TRAINER_CHECKPOINT_OWNER": OWNER, "TRAINER_CHECKPOINT_GRACE": "20"}
        first = Container(place, tmp_path / "a", SAVES, TRAINER_CHECKPOINT_ATTEMPT="1", **variables)
        while first.line() != "step 5\n":
            pass
        wait_until(lambda: "manifests/step-00000005/node-0.json" in place.objects())
        code, out, err = Container(
            place, tmp_path / "b", SAVES, LAST="9", TRAINER_CHECKPOINT_ATTEMPT="2", **variables
        ).end()
        assert (code, out.splitlines()[0]) == (0, "starts at 5"), err
        more = first.folder / "checkpoints" / ".tmp-more"
        more.mkdir()
        (more / ".complete").write_text('{"files": {}}')
        more.rename(more.parent / "step-00000006")
        code, _, err = first.end()
        assert code == 1 and f"pulumi-trainer: another attempt of the job saves in {place.where} since 20" in err, err
        assert "Traceback" not in err

    def test_an_error_of_the_program_is_its_own(self, place: Place, tmp_path: Path) -> None:
        code, _, err = Container(place, tmp_path, SAVES + "    sys.exit(7)\n", LAST="3").end()
        assert code == 7 and "manifests/step-00000003/node-0.json" in place.objects(), err

    def test_s3_fails_at_the_start(self, place: Place, tmp_path: Path) -> None:
        place.front.fault(
            lambda _: True, times=99, answer=Answer(403, b"<Code>AccessDenied</Code><Message>No</Message>")
        )
        code, out, err = Container(place, tmp_path, SAVES).end()
        assert (code, out) == (1, "")
        assert err == f"pulumi-trainer: the checkpoints in {place.where} cannot be used: 403 AccessDenied: No\n"

    def test_s3_is_away_for_a_while_at_the_start(self, place: Place, tmp_path: Path) -> None:
        place.front.fault(lambda _: True, times=5, answer=Answer(503, b""))
        code, _, err = Container(place, tmp_path, SAVES, LAST="1", TRAINER_CHECKPOINT_GRACE="60").end()
        assert code == 0 and "cannot be used: 503 Service Unavailable; tries again" in err


def has(place: Place, name: str, file: str, body: bytes) -> bool:
    """Whether the files of a manifest are in S3 and one of them has this content."""
    if f"manifests/{name}/node-0.json" not in place.objects():
        return False
    folder = json.loads(place.get(f"manifests/{name}/node-0.json"))["folder"]
    return f"{name}/{folder}/{file}" in place.objects() and place.get(f"{name}/{folder}/{file}") == body


def holds(gate: threading.Event) -> Any:
    """What a fault does to an answer that does not come before the gate is open."""

    def wait(body: bytes) -> bytes:
        gate.wait(60)
        return body

    return wait


LISTING = b"<ListBucketResult>%s<IsTruncated>%s</IsTruncated>%s</ListBucketResult>"


def wait_until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
