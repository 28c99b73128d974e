"""`s3://BUCKET[/PREFIX]`: all objects below a prefix, or the one object of that name; any S3-compatible server.

The prefix ends at a `/`: `s3://b/data` is `data/...`, not `database/...`. The revision is a digest of keys, ETags and
sizes. A GET is bound to the listed ETag, so what is fetched is one state of the object. Needs the extra `s3` (boto3).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.api.extras import not_installed
from pulumi_trainer.provider.initializers import contract
from pulumi_trainer.provider.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.initializers.source import (
    CHUNK,
    MOST_PAGES,
    Busy,
    Chunks,
    Entry,
    Listing,
    Order,
    Patterns,
    gathered,
    retry_after,
    window,
)
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TargetFault

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_MD5 = re.compile(r"[0-9a-f]{32}")
_AGAIN = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestTimeTooSkewed"}
_MENDS = {
    400: "look at the server's words, and at ENDPOINT and REGION",
    401: "look at ACCESS_KEY_ID and SECRET_ACCESS_KEY",
    403: "look at ACCESS_KEY_ID and SECRET_ACCESS_KEY, and whether they may s3:ListBucket and s3:GetObject there",
    404: "look at the bucket's and the key's name, and at ENDPOINT and REGION",
    412: "the object was changed while it was fetched; run it again",
}


def check(location: str, kind: Kind) -> list[Problem]:  # noqa: ARG001
    bucket = location.partition("/")[0]
    if "@" in bucket or ":" in bucket:
        why = "has credentials in it, or a bucket name that is not valid"
        return [Problem(STORAGE_URI, why, "give credentials as ACCESS_KEY_ID and SECRET_ACCESS_KEY")]
    if not _BUCKET.fullmatch(bucket):
        return [Problem(STORAGE_URI, f"{bucket!r} is no name of a bucket", "write s3://BUCKET/PREFIX")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:  # noqa: ARG001
    """None; upstream has a default for models, which its own reading of the environment overrides
    (pkg/initializers/utils/utils.py, get_config_from_env)."""
    return Patterns()


def connect(order: Order) -> _Bucket:
    return _Bucket(order)


class _Bucket:
    def __init__(self, order: Order) -> None:
        self._bucket, _, prefix = order.location.partition("/")
        self._prefix, self._folder = prefix.strip("/"), prefix.endswith("/")
        self._anonymous = False
        self._client = self._connected(order)

    def listing(self, recorded: str) -> Listing:  # noqa: ARG002
        below = gathered(map(self._entry, self._below()), self._odd)
        found = [*(e for e in self._single() if e.size or not below), *below]
        text = json.dumps(sorted([e.key, e.version, e.size] for e in found))
        return Listing(hashlib.sha256(text.encode()).hexdigest(), found)

    def inspect(self, entry: Entry) -> Entry:
        answer = self._call("head_object", entry.key, IfMatch=entry.version, ChecksumMode="ENABLED")
        return _refined(entry, answer)

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        whole = (start, stop) == (0, entry.size)
        extra = {} if whole else {"Range": f"bytes={start}-{stop - 1}"}
        answer = self._call("get_object", entry.key, IfMatch=entry.version, ChecksumMode="ENABLED", **extra)
        if answer.get("ETag", entry.version) != entry.version:
            answer["Body"].close()
            raise TargetFault(Problem(self.where(entry), "is not the object that was listed", _MENDS[412]))
        skip = 0 if whole or answer.get("ContentRange") else start
        return _refined(entry, answer), _chunks(answer["Body"], skip)

    def where(self, entry: Entry) -> str:
        return self._uri(entry.key)

    def _uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"

    def _single(self) -> Iterator[Entry]:
        """The object whose key is the whole prefix; it would be the first of the listing."""
        if not self._prefix or self._folder:
            return
        answer = self._call("list_objects_v2", self._prefix, Prefix=self._prefix, MaxKeys=1)
        for found in answer.get("Contents", []):
            if found["Key"] == self._prefix:
                yield replace(self._entry(found), path=self._prefix.rpartition("/")[2])

    def _below(self) -> Iterator[Mapping[str, Any]]:
        """Without the empty objects that stand for folders."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        more: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            answer = self._call("list_objects_v2", prefix, Prefix=prefix, **more)
            yield from (o for o in answer.get("Contents", []) if not o["Key"].endswith("/") or o["Size"])
            if not answer.get("IsTruncated"):
                return
            before, more = more, {"ContinuationToken": answer.get("NextContinuationToken", "")}
            if more in (before, {"ContinuationToken": ""}):
                break
        raise TargetFault(Problem(self._uri(prefix), "the listing has no end", _MENDS[400]))

    def _entry(self, found: Mapping[str, Any]) -> Entry:
        """A leading `/` after the prefix goes, as upstream."""
        key = found["Key"]
        return Entry(key[len(self._prefix) :].lstrip("/"), key, int(found["Size"]), found["ETag"])

    def _odd(self, why: str) -> TargetFault:
        return TargetFault(Problem(self._uri(self._prefix), why))

    def _call(self, operation: str, key: str, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as Unreachable

        if "Prefix" not in arguments:
            arguments["Key"] = key
        try:
            return dict(getattr(self._client, operation)(Bucket=self._bucket, **arguments))
        except ClientError as error:
            self._refuse(key, error.response)
            raise AssertionError("not reached") from error
        except (HTTPClientError, Unreachable):
            raise
        except BotoCoreError as error:
            raise TargetFault(Problem(self._uri(key), str(error), "look at the credentials and the endpoint")) from None

    def _refuse(self, key: str, response: Any) -> None:
        said, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
        status, code = int(meta.get("HTTPStatusCode", 0)), str(said.get("Code", ""))
        words = (
            f"{status} {code}: {said.get('Message', '')}" if code != str(status) else f"{status} {said.get('Message')}"
        )
        if status >= 500 or status in (408, 429) or code in _AGAIN:
            raise Busy(words, retry_after(meta.get("HTTPHeaders", {})))
        mend = _MENDS.get(status, "look at the server's words")
        if self._anonymous:
            mend = f"no credentials were found, so the request was not signed; {mend}"
        raise TargetFault(Problem(self._uri(key), words, mend))

    def _connected(self, order: Order) -> Any:
        """Credentials: those given, else what boto3 finds (AWS_* variables, profile, web identity, instance role), else
        none: a public bucket. With ROLE_ARN, those of that role, assumed with them."""
        try:
            import boto3
            import botocore.session
            from botocore import UNSIGNED
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise not_installed("boto3", "s3://") from None
        env, tuning = order.env, order.tuning
        core = botocore.session.Session()
        region = env.get(contract.REGION) or core.get_config_variable("region") or "us-east-1"
        core.set_config_variable("region", region)
        key, secret = contract.secret(env, contract.ACCESS_KEY_ID), contract.secret(env, contract.SECRET_ACCESS_KEY)
        if bool(key) != bool(secret):
            missing = contract.SECRET_ACCESS_KEY if key else contract.ACCESS_KEY_ID
            raise Invalid(Problem(missing, "is missing, while the other half of the credentials is given"))
        if key:
            core.set_credentials(key, secret)
        settings: dict[str, Any] = {
            "connect_timeout": min(10.0, tuning.timeout),
            "read_timeout": tuning.timeout,
            "retries": {"total_max_attempts": 1},  # `transfer` repeats
            "max_pool_connections": 2 * tuning.threads,
        }
        endpoint = _endpoint(env.get(contract.ENDPOINT, ""))
        if endpoint:
            settings["s3"] = {"addressing_style": "path"}
        try:
            if role := env.get(contract.ROLE_ARN):
                core = _assumed(core, role, region)
            elif core.get_credentials() is None:
                self._anonymous, settings["signature_version"] = True, UNSIGNED
            session = boto3.Session(botocore_session=core)
            return session.client("s3", endpoint_url=endpoint or None, config=Config(**settings))
        except (BotoCoreError, ValueError) as error:
            raise Invalid(
                Problem(f"s3://{order.location}", str(error), "look at the variables of the initializer")
            ) from None


def _assumed(own: Any, role: str, region: str) -> Any:
    """A session with short-lived credentials of the role, renewed when they end."""
    import botocore.session
    from botocore.credentials import (
        AssumeRoleCredentialFetcher,
        CredentialProvider,
        CredentialResolver,
        DeferredRefreshableCredentials,
    )

    if own.get_credentials() is None:
        why = "there are no credentials to assume the role with"
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
    """https where no scheme is said, as upstream's storage library has it."""
    if not given:
        return ""
    url = given if "://" in given else f"https://{given}"
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise Invalid(Problem(contract.ENDPOINT, "is no http(s) URL", "write https://HOST[:PORT]"))
    return url


def _refined(entry: Entry, answer: Mapping[str, Any]) -> Entry:
    """What can be compared: a SHA256 of the whole object, and the ETag where it is an MD5 (not of several parts, not
    encrypted with a key of its own)."""
    checks: dict[str, str] = {}
    etag = entry.version.strip('"')
    encrypted = answer.get("ServerSideEncryption") not in (None, "AES256") or answer.get("SSECustomerAlgorithm")
    if _MD5.fullmatch(etag) and not encrypted:
        checks["md5"] = etag
    try:
        digest = base64.b64decode(answer.get("ChecksumSHA256") or "", validate=True).hex()
    except (binascii.Error, ValueError):
        digest = ""  # of parts: <digest>-<count>
    if len(digest) == 64:
        checks["sha256"] = digest
    return replace(entry, checks=checks)


def _chunks(body: Any, skip: int) -> Chunks:
    try:
        yield from window(body.iter_chunks(CHUNK), skip)
    finally:
        body.close()
