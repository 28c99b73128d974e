"""`s3://BUCKET[/PREFIX]`: all objects below a prefix, or the one object of that name; any S3-compatible server.

The prefix ends at a `/`: `s3://b/data` is `data/...`, not `database/...`. The revision is a digest of keys, ETags and
sizes. A GET is bound to the listed ETag, so what is fetched is one state of the object. Needs the extra `s3` (boto3), whose
transfer manager downloads; it compares large objects with no checksum, so each object's is requested (`_checksums`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.machine.extras import not_installed
from pulumi_trainer.provider.pod.initializers import contract
from pulumi_trainer.provider.pod.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.pod.initializers.source import (
    MAX_FILES,
    RUN_AGAIN,
    Count,
    Entry,
    FetchRequest,
    Listing,
    Patterns,
)

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_MD5 = re.compile(r"[0-9a-f]{32}")
_HINTS = {
    400: "see the server's message, and check ENDPOINT and REGION",
    401: "check ACCESS_KEY_ID and SECRET_ACCESS_KEY",
    403: "check ACCESS_KEY_ID and SECRET_ACCESS_KEY, and their permissions s3:ListBucket and s3:GetObject",
    404: "check the names of bucket and key, and ENDPOINT and REGION",
    412: "the object was changed while it was fetched; run it again",
}


def check(location: str, kind: Kind) -> list[Problem]:  # noqa: ARG001
    bucket = location.partition("/")[0]
    if "@" in bucket or ":" in bucket:
        why = "has credentials in it, or a bucket name that is not valid"
        return [Problem(STORAGE_URI, why, "give credentials as ACCESS_KEY_ID and SECRET_ACCESS_KEY")]
    if not _BUCKET.fullmatch(bucket):
        return [Problem(STORAGE_URI, f"{bucket!r} is not a valid bucket name", "write s3://BUCKET/PREFIX")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:  # noqa: ARG001
    """Return no patterns: upstream's `get_config_from_env` overrides the default for models (pkg/initializers/utils/utils.py)."""
    return Patterns()


def connect(request: FetchRequest) -> _Bucket:
    return _Bucket(request)


class _Bucket:
    def __init__(self, request: FetchRequest) -> None:
        self._bucket, _, prefix = request.location.partition("/")
        self._prefix, self._folder = prefix.strip("/"), prefix.endswith("/")
        self._anonymous = False
        self._client = self._create_client(request)
        self._client.meta.events.register("provide-client-params.s3.GetObject", self._bind_version)
        self._versions: dict[str, str] = {}
        self._transfers = _transfer_manager(self._client, request)

    def listing(self, recorded: str) -> Listing:  # noqa: ARG002
        with self._errors(self._prefix):
            below = [*map(self._entry, islice(self._objects_below(), MAX_FILES + 1))]
            single = [e for e in self._single_object() if e.size or not below]
        entries = [*single, *below]
        self._versions = {e.key: e.version for e in entries}
        text = json.dumps(sorted([e.key, e.version, e.size] for e in entries))
        return Listing(hashlib.sha256(text.encode()).hexdigest(), entries)

    def download(self, entry: Entry, path: Path, count: Count) -> Mapping[str, str]:
        with self._errors(entry.key):
            listed = _Listed(entry, count)
            self._transfers.download(self._bucket, entry.key, str(path), subscribers=[listed]).result()
            at = {"Bucket": self._bucket, "Key": entry.key, "IfMatch": entry.version}
            return _checksums(entry, self._client.head_object(**at, ChecksumMode="ENABLED"))

    def address(self, entry: Entry) -> str:
        return self._uri(entry.key)

    def _uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def _bind_version(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the parameters of a GET of the object that was listed; the transfer manager binds only ranges to it."""
        return {**params, "IfMatch": self._versions[params["Key"]]}

    def _single_object(self) -> Iterator[Entry]:
        """Yield the object whose key is the prefix itself; it would be the first of the listing."""
        if not self._prefix or self._folder:
            return
        answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        for item in answer.get("Contents", []):
            if item["Key"] == self._prefix:
                yield replace(self._entry(item), path=self._prefix.rpartition("/")[2])

    def _objects_below(self) -> Iterator[Mapping[str, Any]]:
        """Yield the objects below the prefix, except the empty ones that represent folders."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        for item in chain.from_iterable(page.get("Contents", []) for page in pages):
            if not item["Key"].endswith("/") or item["Size"]:
                yield item

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        """Return the entry of an object. A leading `/` after the prefix is removed, as upstream."""
        key = item["Key"]
        return Entry(key[len(self._prefix) :].lstrip("/"), key, int(item["Size"]), item["ETag"])

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise TargetFault for an answer with an error: boto3 has repeated what may pass. Errors of the connection stay."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            FlexibleChecksumError,
            HTTPClientError,
            IncompleteReadError,
        )
        from botocore.exceptions import ConnectionError as Unreachable
        from s3transfer.exceptions import S3DownloadFailedError

        try:
            yield
        except ClientError as error:
            raise self._refusal(key, error.response) from None
        except S3DownloadFailedError as error:
            raise TargetFault(Problem(self._uri(key), str(error), _HINTS[412])) from None
        except (HTTPClientError, Unreachable, IncompleteReadError, FlexibleChecksumError):
            raise
        except BotoCoreError as error:
            raise TargetFault(Problem(self._uri(key), str(error), "check the credentials and the endpoint")) from None

    def _refusal(self, key: str, response: Any) -> TargetFault:
        """Return the exception for an error response, with the server's words."""
        error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        status, code = int(metadata.get("HTTPStatusCode", 0)), str(error.get("Code", ""))
        message = str(error.get("Message", ""))
        if code != str(status):
            message = f"{code}: {message}"
        hint = _HINTS.get(status, "see the server's message")
        if status >= 500 or status == 429:
            hint = RUN_AGAIN
        if self._anonymous:
            hint = f"no credentials were found, so the request was not signed; {hint}"
        return TargetFault(Problem(self._uri(key), f"{status} {message}", hint))

    def _create_client(self, request: FetchRequest) -> Any:
        """Return a client with the given credentials, or those that boto3 finds (AWS_* variables, profile, web identity,
        instance role), or none, for a public bucket. With ROLE_ARN, that role is assumed."""
        try:
            import boto3
            import botocore.session
            from botocore import UNSIGNED
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise not_installed("boto3", "s3://") from None
        env, tuning = request.env, request.tuning
        core = botocore.session.Session()
        region = env.get(contract.REGION) or core.get_config_variable("region") or "us-east-1"
        core.set_config_variable("region", region)
        key = contract.read_credential(env, contract.ACCESS_KEY_ID)
        secret = contract.read_credential(env, contract.SECRET_ACCESS_KEY)
        if bool(key) != bool(secret):
            missing = contract.SECRET_ACCESS_KEY if key else contract.ACCESS_KEY_ID
            raise Invalid(Problem(missing, "is missing, but the other half of the credentials is set"))
        if key:
            core.set_credentials(key, secret)
        settings: dict[str, Any] = {
            "connect_timeout": min(10.0, tuning.timeout),
            "read_timeout": tuning.timeout,
            "retries": {"mode": "standard", "total_max_attempts": 5},
            "max_pool_connections": 2 * tuning.threads,
        }
        endpoint = _endpoint(env.get(contract.ENDPOINT, ""))
        if endpoint:
            settings["s3"] = {"addressing_style": "path"}
        try:
            role = env.get(contract.ROLE_ARN)
            if role:
                core = _assume_role(core, role, region)
            elif core.get_credentials() is None:
                self._anonymous, settings["signature_version"] = True, UNSIGNED
            session = boto3.Session(botocore_session=core)
            return session.client("s3", endpoint_url=endpoint or None, config=Config(**settings))
        except (BotoCoreError, ValueError) as error:
            hint = "check the variables of the initializer"
            raise Invalid(Problem(f"s3://{request.location}", str(error), hint)) from None


def _assume_role(own: Any, role: str, region: str) -> Any:
    """Return a session with short-lived credentials of the role, which are renewed when they expire."""
    import botocore.session
    from botocore.credentials import (
        AssumeRoleCredentialFetcher,
        CredentialProvider,
        CredentialResolver,
        DeferredRefreshableCredentials,
    )

    if own.get_credentials() is None:
        why = "no credentials found to assume the role with"
        raise Invalid(Problem(contract.ROLE_ARN, why, "give ACCESS_KEY_ID and SECRET_ACCESS_KEY too"))
    fetcher = AssumeRoleCredentialFetcher(
        own.create_client, own.get_credentials(), role, extra_args={"RoleSessionName": "pulumi-trainer"}
    )

    class Role(CredentialProvider):
        METHOD = CANONICAL_NAME = "assume-role"

        def load(self) -> Any:
            return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)

    session = botocore.session.Session()
    session.set_config_variable("region", region)
    session.register_component("credential_provider", CredentialResolver([Role()]))
    return session


def _endpoint(given: str) -> str:
    """Return the URL of an endpoint: https without a scheme, as in upstream's storage library."""
    if not given:
        return ""
    url = given
    if "://" not in given:
        url = f"https://{given}"
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise Invalid(Problem(contract.ENDPOINT, "is not an http(s) URL", "write https://HOST[:PORT]"))
    return url


class _Listed:
    """Tells the transfer manager what the listing says of an object, which it would request, and counts what arrives."""

    def __init__(self, entry: Entry, count: Count) -> None:
        self._entry, self._count = entry, count

    def on_queued(self, future: Any, **_: Any) -> None:
        future.meta.provide_transfer_size(self._entry.size)
        future.meta.provide_object_etag(self._entry.version)

    def on_progress(self, bytes_transferred: int, **_: Any) -> None:
        self._count(bytes_transferred)


def _transfer_manager(client: Any, request: FetchRequest) -> Any:
    from s3transfer.manager import TransferConfig, TransferManager

    tuning = request.tuning
    config = TransferConfig(
        multipart_threshold=tuning.part,
        multipart_chunksize=tuning.part,
        max_request_concurrency=tuning.threads,
        max_submission_concurrency=tuning.threads,
    )
    return TransferManager(client, config)


def _checksums(entry: Entry, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums of an answer: a SHA-256 of the whole object, and the ETag if it is an MD5 (one part, not encrypted
    with a key of its own)."""
    checks: dict[str, str] = {}
    etag = entry.version.strip('"')
    encrypted = answer.get("ServerSideEncryption") not in (None, "AES256") or answer.get("SSECustomerAlgorithm")
    if _MD5.fullmatch(etag) and not encrypted:
        checks["md5"] = etag
    try:
        digest = base64.b64decode(answer.get("ChecksumSHA256") or "", validate=True).hex()
    except (binascii.Error, ValueError):
        digest = ""  # of several parts: <digest>-<count>
    if len(digest) == 64:
        checks["sha256"] = digest
    return checks
