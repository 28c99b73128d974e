"""s3://, against moto's server with one in front of it that misbehaves."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.loaders import create_loader
from initializers_support import QUICK, Answer, Loopback, command, environment, forward, running, tree
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.pod.initializers import Manifest, fetch, manifest, s3
from pulumi_trainer.provider.pod.initializers.file_names import STAGING

from tests.moto_server import moto_server

LOADER = create_loader()
"""Shared: reading the description of S3 takes longer than most of the tests."""
KEY, SECRET = "AKIACANARYKEYID", "canary-secret-access-key"
BIG = os.urandom(3 * QUICK.part + 5)
FILES = {"train/a.csv": b"1,2,3\n", "train/sub/b.txt": b"b", "train/empty": b"", "train/big.bin": BIG}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url.removeprefix("http://")


@pytest.fixture(autouse=True)
def _nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr("botocore.session.create_loader", lambda path: LOADER)
    sleep = time.sleep
    monkeypatch.setattr(
        "time.sleep", lambda seconds: sleep(min(seconds, 0.01))
    )  # of boto3, before it repeats a request


@pytest.fixture(scope="module")
def client(moto: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=f"http://{moto}", **keys)


@pytest.fixture
def store(moto: str, client: Any) -> Iterator[Store]:
    found = Store(moto, client)
    yield found
    found.front.close()


class Store:
    """A bucket of its own, with `FILES` in it."""

    def __init__(self, moto: str, client: Any) -> None:
        self.client = client
        self.bucket = f"b-{uuid.uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=self.bucket)
        self.front = Loopback(forward(moto))
        for key, content in FILES.items():
            self.put(key, content)

    def put(self, key: str, content: bytes, **more: Any) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content, **more)

    @property
    def env(self) -> dict[str, str]:
        return {"ENDPOINT": self.front.url, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "REGION": "eu-west-1"}

    def get(self, output: Path, prefix: str = "train", tuning: Any = QUICK, **env: str) -> Manifest:
        return fetch("dataset", f"s3://{self.bucket}/{prefix}", output, env={**self.env, **env}, tuning=tuning)

    @property
    def contents(self) -> list[str]:
        return [p.removeprefix(f"/{self.bucket}/") for p in self.front.contents]


def below(prefix: str) -> dict[str, bytes]:
    return {k.removeprefix(prefix): v for k, v in FILES.items()}


def nothing(output: Path) -> bool:
    """Nothing is complete, and nothing is in place."""
    return manifest.read(output) is None and all(k.startswith(STAGING) for k in tree(output))


def test_a_prefix(store: Store, tmp_path: Path) -> None:
    done = store.get(tmp_path / "out")
    assert tree(tmp_path / "out") == below("train/")
    assert {f.path: f.sha256 for f in done.files} == {
        k: hashlib.sha256(v).hexdigest() for k, v in below("train/").items()
    }
    ranges = [r for r in store.front.requests if "range" in r.headers]
    assert len(ranges) == 4  # the parts of big.bin
    assert all("if-match" in r.headers for r in store.front.requests if r.content)
    assert len(done.revision) == 64


def test_prefixes_end_at_a_slash(store: Store, tmp_path: Path) -> None:
    store.put("training/other", b"no part of train")
    store.put("train/folder/", b"")
    store.get(tmp_path / "out", "train/")
    assert tree(tmp_path / "out") == below("train/")
    store.get(tmp_path / "one", "train/sub/b.txt")
    assert tree(tmp_path / "one") == {"b.txt": b"b"}
    store.put("train/sub", b"")  # a marker of a folder, in the way of some tools
    store.get(tmp_path / "sub", "train/sub")
    assert tree(tmp_path / "sub") == {"b.txt": b"b"}
    store.put("train/sub", b"a file of that name")
    store.get(tmp_path / "slash", "train/sub/")
    assert tree(tmp_path / "slash") == {"b.txt": b"b"}
    store.get(tmp_path / "both", "train/sub")
    assert tree(tmp_path / "both") == {"b.txt": b"b", "sub": b"a file of that name"}
    store.client.delete_object(Bucket=store.bucket, Key="train/sub")
    store.get(tmp_path / "all", "")
    assert set(tree(tmp_path / "all")) == {*FILES, "training/other"}


def test_many_pages(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = s3._Bucket._create_client

    def create_client(self: Any, request: Any) -> Any:
        client = real(self, request)
        client.meta.events.register(
            "provide-client-params.s3.ListObjectsV2", lambda params, **_: {"MaxKeys": 2, **params}
        )
        return client

    monkeypatch.setattr(s3._Bucket, "_create_client", create_client)
    store.get(tmp_path)
    assert tree(tmp_path) == below("train/")


def test_ignore_patterns_match_the_whole_key(store: Store, tmp_path: Path) -> None:
    store.get(tmp_path, IGNORE_PATTERNS="train/sub/*,*.bin")
    assert set(tree(tmp_path)) == {"a.csv", "empty"}
    assert not any("big" in p for p in store.contents)


def test_models_come_whole_unless_said(store: Store, tmp_path: Path) -> None:
    fetch("model", f"s3://{store.bucket}/train", tmp_path, env=store.env, tuning=QUICK)
    assert "big.bin" in tree(tmp_path)


def test_403_of_a_get_shows_the_servers_words_without_secrets(store: Store, tmp_path: Path) -> None:
    body = f"<Error><Code>AccessDenied</Code><Message>no, {KEY} with {SECRET}</Message></Error>".encode()
    store.front.fault(lambda r: r.path.endswith("a.csv"), times=99, answer=Answer(403, body))
    with pytest.raises(
        TargetFault, match=r"train/a.csv: 403 AccessDenied: no, \[secret\] with \[secret\]. Hint: check"
    ):
        store.get(tmp_path)
    assert store.contents.count("train/a.csv") == 1


def test_403_of_a_listing(store: Store, tmp_path: Path) -> None:
    body = b"<Error><Code>InvalidAccessKeyId</Code><Message>The key does not exist</Message></Error>"
    store.front.fault(f"/{store.bucket}", times=99, answer=Answer(403, body))
    with pytest.raises(TargetFault, match=r"403 InvalidAccessKeyId: The key does not exist. Hint: check ACCESS_KEY_ID"):
        store.get(tmp_path / "out")
    assert len(store.front.requests) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_404(store: Store, tmp_path: Path) -> None:
    with pytest.raises(
        TargetFault, match=r"s3://no-such-bucket-here/.*404 NoSuchBucket.*check the names of bucket and key"
    ):
        fetch("dataset", "s3://no-such-bucket-here/x", tmp_path, env=store.env, tuning=QUICK)
    with pytest.raises(TargetFault, match=rf"s3://{store.bucket}/trai: has no files"):
        store.get(tmp_path, "trai")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_goes_while_it_is_fetched(store: Store, tmp_path: Path) -> None:
    body = b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>"
    store.front.fault(lambda r: r.path.endswith("a.csv"), answer=Answer(404, body))
    with pytest.raises(TargetFault, match=r"train/a\.csv: 404 NoSuchKey"):
        store.get(tmp_path)
    assert nothing(tmp_path)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_busy_then_well(store: Store, tmp_path: Path, status: int) -> None:
    body = b"<Error><Code>InternalError</Code><Message>We are sorry</Message></Error>"
    store.front.fault(lambda r: "list-type" in r.query, answer=Answer(status, body))
    store.front.fault(lambda r: r.path.endswith("a.csv"), times=2, answer=Answer(status, body))
    store.front.fault(lambda r: r.method == "HEAD", answer=Answer(status, b""))
    store.get(tmp_path)
    assert tree(tmp_path) == below("train/")


def test_nobody_listens(tmp_path: Path) -> None:
    gone = Loopback(lambda r: Answer())
    gone.close()
    env = {"ENDPOINT": gone.url, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET}
    with pytest.raises(TargetFault, match=r"Could not connect to the endpoint.*\(4 attempts\)") as caught:
        fetch("dataset", "s3://bucket/x", tmp_path, env=env, tuning=QUICK)
    assert SECRET not in str(caught.value)


def test_a_changed_byte_is_seen(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.front.fault(lambda r: r.path.endswith("a.csv"), change=lambda b: bytes([b[0] ^ 1]) + b[1:])
    store.get(tmp_path)
    assert tree(tmp_path) == below("train/")
    assert "a.csv: " in caplog.text and "checksum" in caplog.text and "again in" in caplog.text
    store.front.fault(
        lambda r: r.content and "bytes=0-" in r.headers.get("range", ""),
        times=99,
        change=lambda b: bytes([b[0] ^ 1]) + b[1:],
    )
    with pytest.raises(TargetFault, match=r"big\.bin: the downloaded data has another checksum.*md5 .*\(4 attempts\)"):
        store.get(tmp_path / "out")
    assert nothing(tmp_path / "out")


def test_multipart_uploads_are_known_by_their_size(store: Store, tmp_path: Path) -> None:
    upload = store.client.create_multipart_upload(Bucket=store.bucket, Key="multi/x")["UploadId"]
    parts = []
    for number, body in enumerate((b"a" * (5 << 20), b"tail"), 1):
        where = {"Bucket": store.bucket, "Key": "multi/x", "UploadId": upload, "PartNumber": number}
        parts.append({"PartNumber": number, "ETag": store.client.upload_part(Body=body, **where)["ETag"]})
    store.client.complete_multipart_upload(
        Bucket=store.bucket, Key="multi/x", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    done = store.get(tmp_path, "multi", replace(QUICK, part=1 << 20))
    assert (tmp_path / "x").read_bytes() == b"a" * (5 << 20) + b"tail"
    assert "-2" in done.files[0].version


def test_checksums_that_can_be_compared() -> None:
    content = b"content"
    entry = s3.Entry("x", "x", len(content), f'"{hashlib.md5(content).hexdigest()}"')
    sha256 = hashlib.sha256(content)
    given = {"ChecksumSHA256": base64.b64encode(sha256.digest()).decode(), "ServerSideEncryption": "aws:kms"}
    assert s3._checksums(entry, {}) == {"md5": hashlib.md5(content).hexdigest()}
    assert s3._checksums(entry, given) == {"sha256": sha256.hexdigest()}
    assert s3._checksums(entry, {"ServerSideEncryption": "AES256", "ChecksumSHA256": "abc=-3"}).keys() == {"md5"}
    assert s3._checksums(entry, {"SSECustomerAlgorithm": "AES256"}) == {}


def test_an_object_that_changes_while_it_is_fetched(store: Store, tmp_path: Path) -> None:
    def changed(body: bytes) -> bytes:
        store.put("train/a.csv", b"4,5,6\n")
        return body

    store.front.fault(lambda r: "list-type" in r.query and "max-keys" not in r.query, change=changed)
    with pytest.raises(TargetFault, match=r"a\.csv: .* did not match expected ETag.*changed while it was fetched"):
        store.get(tmp_path)
    assert nothing(tmp_path)


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "a//b", "./x", "x" * 300, ".incomplete/lock", ".pulumi-trainer.json"]
)
def test_hostile_keys(store: Store, tmp_path: Path, name: str) -> None:
    store.put("bad/" + name, b"hostile")
    with pytest.raises(TargetFault, match=r"so it is not fetched. Hint: rename it"):
        store.get(tmp_path / "deep" / "out", "bad")
    assert tree(tmp_path) == {}
    assert store.contents == []
    store.put("bad/good", b"good")
    store.get(tmp_path / "out", "bad", IGNORE_PATTERNS="*" + name[-3:])
    assert tree(tmp_path / "out") == {"good": b"good"}


def test_no_credentials_means_a_public_bucket(store: Store, tmp_path: Path) -> None:
    for key in FILES:
        store.client.put_object_acl(Bucket=store.bucket, Key=key, ACL="public-read")
    fetch("dataset", f"s3://{store.bucket}/train", tmp_path, env={"ENDPOINT": store.front.url}, tuning=QUICK)
    assert tree(tmp_path) == below("train/")
    assert not any("authorization" in r.headers for r in store.front.requests)
    store.front.fault("/", times=9, answer=Answer(403, b"<Error><Code>AccessDenied</Code></Error>"))
    with pytest.raises(TargetFault, match="no credentials were found, so the request was not signed"):
        fetch("dataset", f"s3://{store.bucket}/x", tmp_path / "out", env={"ENDPOINT": store.front.url}, tuning=QUICK)


def test_a_role(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", store.front.url)
    role = "arn:aws:iam::123456789012:role/reader"
    store.get(tmp_path, ROLE_ARN=role)
    asked = [r for r in store.front.requests if b"AssumeRole" in r.body]
    assert len(asked) == 1
    assert role.encode().replace(b":", b"%3A").replace(b"/", b"%2F") in asked[0].body
    assert KEY in asked[0].headers["authorization"]
    rest = [r for r in store.front.requests if r not in asked]
    assert all("x-amz-security-token" in r.headers and KEY not in r.headers["authorization"] for r in rest)
    assert "eu-west-1" in rest[0].headers["authorization"]
    said = b"<Error><Code>AccessDenied</Code><Message>not authorized to perform: sts:AssumeRole</Message></Error>"
    refusal = Answer(403, b"<ErrorResponse>" + said + b"</ErrorResponse>")
    store.front.fault(lambda r: r.method == "POST", times=9, answer=refusal)
    with pytest.raises(TargetFault, match="403 AccessDenied: not authorized to perform: sts:AssumeRole"):
        store.get(tmp_path / "out", ROLE_ARN=role)


def test_the_program_says_it_in_one_paragraph(store: Store, tmp_path: Path) -> None:
    body = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{SECRET}\nis wrong</Message></Error>".encode()
    store.front.fault("/", times=99, answer=Answer(403, body))
    env = environment(f"s3://{store.bucket}/train", tmp_path / "out", **store.env)
    done = subprocess.run(command("model"), env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        f"model initializer: s3://{store.bucket}/train: 403 SignatureDoesNotMatch: [secret] is"
    )
    assert SECRET not in done.stderr + done.stdout
    assert KEY not in done.stderr + done.stdout


def test_the_program_shows_progress(store: Store, tmp_path: Path) -> None:
    """A line while it waits for a slow server is one whole line of JSON."""
    store.put("slow/x", os.urandom(400_000))
    fault = store.front.fault(lambda r: r.content, stall=300_000)
    with running(command(), environment(f"s3://{store.bucket}/slow", tmp_path / "out", **store.env)) as process:
        while not store.contents:
            assert process.poll() is None
            threading.Event().wait(0.02)
        threading.Event().wait(1.1)
        fault.gate.set()
        assert process.stdout is not None
        lines = [json.loads(line)["trainerStatus"] for line in process.stdout]
    assert lines[-1]["progressPercentage"] == 100
    assert all(0 <= line["progressPercentage"] < 100 for line in lines[:-1])
    assert len(lines) >= 2
