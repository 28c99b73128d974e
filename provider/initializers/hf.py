"""`hf://OWNER/NAME[@REVISION][/PATH]`: a dataset or a model (by the kind of initializer) of the Hugging Face hub.

Files are at their path in the repository, also below PATH, since Trainer's torchtune arguments count on it. The revision
is a commit; branches and tags are resolved to one. Of a model come the files that upstream asks for. Needs the extra
`hub` (huggingface_hub), whose session, headers and addresses are used.

Its downloads (`hf_hub_download`, `snapshot_download`) are not used. Read and measured in huggingface_hub 1.0.0 and 2.4.0:

- Files of more than 50 GB need hf_xet. With hf_xet, the token is sent to any address that the server names for refreshing it.
- 1.0.0 sends the token over http if the hub redirects to the same host there; 2.4.0 sends the token of a mirror to huggingface.co
  if the mirror redirects there.
- Bodies are decompressed, and are not limited to the file's size: a file of 6 bytes took 200 MiB of the disk.
- A `Retry-After` of any length is waited for, and no failure of another file ends the wait.
- The server's words are lost (a 503 becomes "check your connection"), and signed addresses are logged.
- A name of more than 246 bytes fails, since `.metadata` is appended to it; each file costs a HEAD request more and two files
  below `.cache/huggingface`.

Listings are requested here too: the library's have no timeout and no limit.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pulumi_trainer.provider.api.extras import not_installed
from pulumi_trainer.provider.initializers import contract
from pulumi_trainer.provider.initializers.contract import STORAGE_URI, Kind
from pulumi_trainer.provider.initializers.source import (
    MAX_PAGE_BYTES,
    MAX_PAGE_VALUES,
    MAX_PAGES,
    MIB,
    Chunks,
    Entry,
    FetchRequest,
    Listing,
    Patterns,
    ServerBusy,
    collect_entries,
    skip_bytes,
)
from pulumi_trainer.provider.kube.client.masking import hide_credentials, is_loopback
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kube.values.accessors import section

log = logging.getLogger(__name__)

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
"""What upstream fetches of a model: pkg/initializers/model/huggingface.py of kubeflow/trainer v2.3.0."""
TOKENIZER_FILES = ("*.jinja", "*.tiktoken", "*.bpe")
"""Chat templates, and tokenizers of other formats, which upstream leaves out: without them a model talks in another form."""
MODEL_IGNORED = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
"""Its default for IGNORE_PATTERNS: pkg/initializers/types/types.py."""

DEFAULT_ENDPOINT = "https://huggingface.co"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_LOCATION = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>refs/(?:pr|convert)/[^/@]+|[^/@]+))?(?:/(?P<path>.*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_ERROR_BYTES = 1 << 16
"""Limit on the body of an error response that is read."""


def check(location: str, kind: Kind) -> list[Problem]:
    """Return the problems of a location."""
    match = _LOCATION.fullmatch(location)
    first = location.partition("/")[0]
    if first in ("datasets", "models", "spaces"):
        why = f"hf://{first}/... is not supported, since the initializer already is one for a {kind}"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME")]
    if "@" in first:
        return [Problem(STORAGE_URI, "has text before the owner", "pass a token as ACCESS_TOKEN")]
    if not match:
        why = f"{hide_credentials(location)!r} is not a valid repository name"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME[@REVISION][/PATH]")]
    path = (match["path"] or "").rstrip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        return [Problem(STORAGE_URI, f"{hide_credentials(match['path'])!r} is not a valid path in a repository")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:
    """Return the default patterns: none for a dataset or a PATH, upstream's and `TOKENIZER_FILES` for a model."""
    match = _LOCATION.fullmatch(location)
    if kind == "dataset" or (match and match["path"]):
        return Patterns()
    return Patterns((*MODEL_FILES, *TOKENIZER_FILES), MODEL_IGNORED)


def connect(request: FetchRequest) -> _Repository:
    """Return the source of a repository.

    Raises:
        Invalid: HF_ENDPOINT or a credential is not valid, or huggingface_hub is not installed.
    """
    return _Repository(request)


class _Repository:
    def __init__(self, request: FetchRequest) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            from huggingface_hub import get_session, hf_hub_url
            from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
        except ImportError:
            raise not_installed("huggingface_hub", "hf://") from None
        match = _LOCATION.fullmatch(request.location)
        assert match is not None  # `check` has accepted it
        self._repo, self._path = match["repo"], (match["path"] or "").strip("/")
        self._revision = unquote(match["revision"] or "main")
        self._kind, self._timeout = request.kind, request.tuning.timeout
        self._endpoint = (request.env.get(contract.HF_ENDPOINT) or DEFAULT_ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")) or "@" in self._endpoint:
            raise Invalid(Problem(contract.HF_ENDPOINT, "is not an http(s) URL", "write https://HOST[:PORT]"))
        self._token = contract.read_credential(request.env, contract.ACCESS_TOKEN) or contract.read_credential(
            request.env, contract.HF_TOKEN
        )
        if self._token:
            self._require_https()
        headers = build_hf_headers(token=self._token or False, library_name="pulumi-trainer")
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._session, self._url = get_session, hf_hub_url
        self._commit = ""

    def listing(self, recorded: str) -> Listing:
        if _COMMIT.fullmatch(recorded):
            self._commit = recorded
        else:
            answer, _ = self._json("GET", f"revision/{quote(self._revision, safe='')}")
            self._commit = ""
            if isinstance(answer, dict):
                self._commit = str(answer.get("sha"))
            if not _COMMIT.fullmatch(self._commit):
                raise self._listing_fault("the server returned no commit id")
        return Listing(self._commit, collect_entries(map(self._entry, self._files()), self._listing_fault))

    def with_checksums(self, entry: Entry) -> Entry:
        return entry

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        url = self._url(self._repo, entry.key, repo_type=self._kind, revision=self._commit, endpoint=self._endpoint)
        headers = {**self._headers}
        if (start, stop) != (0, entry.size):
            headers["Range"] = f"bytes={start}-{stop - 1}"
        response = self._send("GET", url, self.address(entry), headers=headers)
        skip = start if response.status_code == 200 else 0
        return entry, _chunks(response, skip)

    def address(self, entry: Entry) -> str:
        return f"hf://{self._repo}@{self._commit}/{entry.key}"

    def _require_https(self) -> None:
        if not self._endpoint.lower().startswith("http://"):
            return
        if not is_loopback(self._endpoint):
            why = "is an http:// address, so others on the network could read the token"
            raise Invalid(Problem(contract.HF_ENDPOINT, why, "write https://HOST[:PORT], or give no token"))
        log.warning("%s: the token is sent unencrypted, though not beyond this machine", contract.HF_ENDPOINT)

    def _files(self) -> Iterator[dict[str, Any]]:
        """Yield all files at PATH, which may be a single file."""
        if self._path:
            items, _ = self._json("POST", f"paths-info/{self._commit}", data={"paths": [self._path], "expand": "false"})
            file = next(self._only_files(items), None)
            if file:
                yield file
                return
        below = f"/{quote(self._path)}" if self._path else ""
        cursor: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            items, next_page = self._json("GET", f"tree/{self._commit}{below}", params={"recursive": "true", **cursor})
            yield from self._only_files(items)
            # Only the cursor of the next page's address is used, so that the token is sent to no other host.
            before = cursor
            cursor = {k: v for k, v in parse_qsl(urlsplit(next_page).query) if k == "cursor"}
            if not cursor:
                return
            if cursor == before:
                break
        raise self._listing_fault("the listing does not end")

    def _only_files(self, items: Any) -> Iterator[dict[str, Any]]:
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self._listing_fault("the listing is not a list of files")
        return (item for item in items if item.get("type") == "file")

    def _entry(self, item: dict[str, Any]) -> Entry:
        """Return the entry of a file. The version is the SHA-256 of an LFS file, git's blob id of another one."""
        path, blob, size, lfs = item.get("path"), item.get("oid"), item.get("size"), item.get("lfs")
        sha256 = section(lfs).get("oid")
        if not isinstance(path, str) or not isinstance(blob, str) or not isinstance(size, int):
            raise self._listing_fault(f"a file has no path, size or id: {str(item)[:200]}")
        if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            return Entry(path, path, size, sha256, {"sha256": sha256})
        checks = {}
        if _COMMIT.fullmatch(blob):
            checks["git"] = blob
        return Entry(path, path, size, blob, checks)

    def _json(self, method: str, path: str, **arguments: Any) -> tuple[Any, str]:
        """Return the response of the API and the address of its next page, within the limits of a page."""
        url = f"{self._endpoint}/api/{self._kind}s/{self._repo}/{path}"
        text = bytearray()
        with closing(self._send(method, url, self._uri(), headers=self._headers, **arguments)) as response:
            for chunk in response.iter_raw():
                text += chunk
                if len(text) > MAX_PAGE_BYTES:
                    raise self._listing_fault(f"a page of the listing has more than {MAX_PAGE_BYTES // MIB} MiB")
        if text.count(b",") + 2 * (text.count(b"{") + text.count(b"[")) > MAX_PAGE_VALUES:
            raise self._listing_fault("a page of the listing has more values than files can have")
        return json.loads(text), str(response.links.get("next", {}).get("url", ""))

    def _send(self, method: str, url: str, address: str, **arguments: Any) -> Any:
        """Return an open response with status 200 or 206 that is not compressed: unpacking it would have no limit."""
        session = self._session()
        request = session.build_request(method, url, timeout=self._timeout, **arguments)
        response = session.send(request, stream=True, follow_redirects=True)
        compressed = response.headers.get("Content-Encoding", "identity") not in ("", "identity")
        if response.status_code in (200, 206) and not compressed:
            return response
        with closing(response):
            if compressed:
                raise TargetFault(
                    Problem(address, "the response is compressed, which was not requested", self._endpoint)
                )
            raise self._error(response, address)

    def _uri(self) -> str:
        uri = f"hf://{self._repo}@{self._commit or self._revision}"
        if self._path:
            uri += f"/{self._path}"
        return uri

    def _listing_fault(self, why: str) -> TargetFault:
        hint = f"is {self._endpoint} ({contract.HF_ENDPOINT}) a Hugging Face hub?"
        return TargetFault(Problem(self._uri(), why, hint))

    def _error(self, response: Any, address: str) -> Exception:
        """Return the exception for an error response, with the server's words."""
        status = response.status_code
        reason = response.headers.get("x-error-message") or _error_message(response) or response.reason_phrase
        if status >= 500 or status in (408, 425, 429):
            return ServerBusy(f"{status} {reason}", response.headers)
        hints = []
        if status in (401, 403):
            token = "the token may not read it" if self._token else "no token is given"
            hints.append(
                f"{token}: give access_token= (ACCESS_TOKEN), accept the terms of a gated repository on its page"
            )
        if status in (401, 404):
            hints.append(f"check owner, name, revision and path; it was requested as a {self._kind}")
        return TargetFault(Problem(address, f"{status} {reason}", "; ".join(hints) or f"look at {self._endpoint}"))


def _error_message(response: Any) -> str:
    """Return the `error` of a JSON body, or the body if it is short text."""
    body = b""
    with suppress(Exception):
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > _MAX_ERROR_BYTES:
                break
    with suppress(ValueError, AttributeError, RecursionError):
        return str(json.loads(body).get("error", ""))[:300]
    text = body.decode(errors="replace")
    if len(text) >= 200 or "<" in text:
        return ""
    return text


def _chunks(response: Any, skip: int) -> Chunks:
    try:
        yield from skip_bytes(response.iter_raw(), skip)
    finally:
        response.close()
