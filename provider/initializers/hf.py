"""`hf://OWNER/NAME[@REVISION][/PATH]`: a dataset or a model (by the kind of initializer) of the Hugging Face hub.

Files lie at their path in the repository, also below PATH, since Trainer's torchtune arguments count on it. The revision
is a commit; branches and tags are resolved to one. Of a model come the files that upstream asks for. Needs the extra
`hub` (huggingface_hub), whose session, headers and addresses are used; its own download is not, as its requests for a
listing know no timeout and its cache would hold everything twice.
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
    LARGEST_PAGE,
    MIB,
    MOST_PAGES,
    MOST_SEPARATORS,
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
from pulumi_trainer.provider.kube.client.masking import hide_credentials, is_loopback
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TargetFault

log = logging.getLogger(__name__)

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
"""What upstream fetches of a model: pkg/initializers/model/huggingface.py of kubeflow/trainer v2.3.0."""
MODEL_IGNORED = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")
"""Its default for IGNORE_PATTERNS: pkg/initializers/types/types.py."""

DEFAULT_ENDPOINT = "https://huggingface.co"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_LOCATION = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>refs/(?:pr|convert)/[^/@]+|[^/@]+))?(?:/(?P<path>.*))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WORDS = 1 << 16
"""Bytes of an error's body that are read."""


def check(location: str, kind: Kind) -> list[Problem]:
    match = _LOCATION.fullmatch(location)
    first = location.partition("/")[0]
    if first in ("datasets", "models", "spaces"):
        why = f"hf://{first}/... is not the form of an initializer, which knows from its kind that it is a {kind}"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME")]
    if "@" in first:
        return [Problem(STORAGE_URI, "has something before the owner", "give a token as ACCESS_TOKEN")]
    if not match:
        why = f"{hide_credentials(location)!r} names no repository"
        return [Problem(STORAGE_URI, why, "write hf://OWNER/NAME[@REVISION][/PATH]")]
    path = (match["path"] or "").rstrip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        return [Problem(STORAGE_URI, f"{hide_credentials(match['path'])!r} is no path in a repository")]
    return []


def patterns(location: str, kind: Kind) -> Patterns:
    """A PATH says by itself what is wanted."""
    match = _LOCATION.fullmatch(location)
    if kind == "dataset" or (match and match["path"]):
        return Patterns()
    return Patterns(MODEL_FILES, MODEL_IGNORED)


def connect(order: Order) -> _Repository:
    return _Repository(order)


class _Repository:
    def __init__(self, order: Order) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            from huggingface_hub import get_session, hf_hub_url
            from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
        except ImportError:
            raise not_installed("huggingface_hub", "hf://") from None
        match = _LOCATION.fullmatch(order.location)
        assert match is not None  # `check` has been asked
        self._repo, self._path = match["repo"], (match["path"] or "").strip("/")
        self._revision = unquote(match["revision"] or "main")
        self._kind, self._timeout = order.kind, order.tuning.timeout
        self._endpoint = (order.env.get(contract.HF_ENDPOINT) or DEFAULT_ENDPOINT).rstrip("/")
        if not self._endpoint.startswith(("http://", "https://")) or "@" in self._endpoint:
            raise Invalid(Problem(contract.HF_ENDPOINT, "is no http(s) URL", "write https://HOST[:PORT]"))
        token = contract.secret(order.env, contract.ACCESS_TOKEN) or contract.secret(order.env, contract.HF_TOKEN)
        if token and self._endpoint.lower().startswith("http://"):
            if not is_loopback(self._endpoint):
                why = "is an http:// address, and anybody on the network could read the token"
                raise Invalid(Problem(contract.HF_ENDPOINT, why, "write https://HOST[:PORT], or give no token"))
            log.warning("%s: the token is sent unencrypted, though not beyond this machine", contract.HF_ENDPOINT)
        self._has_token = bool(token)
        self._headers = build_hf_headers(token=token or False, library_name="pulumi-trainer")
        self._session, self._url = get_session, hf_hub_url
        self._commit = ""

    def listing(self, recorded: str) -> Listing:
        if _COMMIT.fullmatch(recorded):
            self._commit = recorded
        else:
            answer, _ = self._json("GET", f"revision/{quote(self._revision, safe='')}")
            self._commit = str(answer.get("sha")) if isinstance(answer, dict) else ""
            if not _COMMIT.fullmatch(self._commit):
                raise self._odd("the server names no commit")
        return Listing(self._commit, gathered(map(self._entry, self._files()), self._odd))

    def inspect(self, entry: Entry) -> Entry:
        return entry

    def read(self, entry: Entry, start: int, stop: int) -> tuple[Entry, Chunks]:
        url = self._url(self._repo, entry.key, repo_type=self._kind, revision=self._commit, endpoint=self._endpoint)
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if (start, stop) != (0, entry.size):
            headers["Range"] = f"bytes={start}-{stop - 1}"
        session = self._session()
        request = session.build_request("GET", url, headers=headers, timeout=self._timeout)
        response = session.send(request, stream=True, follow_redirects=True)
        if response.status_code not in (200, 206) or _is_compressed(response):
            with closing(response):
                self._refuse(response, self.where(entry))
        return entry, _chunks(response, start if response.status_code == 200 else 0)

    def where(self, entry: Entry) -> str:
        return f"hf://{self._repo}@{self._commit}/{entry.key}"

    def _files(self) -> Iterator[dict[str, Any]]:
        """Everything at PATH, which may be a file."""
        if self._path:
            found, _ = self._json("POST", f"paths-info/{self._commit}", data={"paths": [self._path], "expand": "false"})
            for item in self._items(found):
                if item.get("type") == "file":
                    yield item
                    return
        below = f"/{quote(self._path)}" if self._path else ""
        cursor: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            found, more = self._json("GET", f"tree/{self._commit}{below}", params={"recursive": "true", **cursor})
            yield from (item for item in self._items(found) if item.get("type") == "file")
            # Only the cursor of the next page's address is taken, so that the token goes to no other host.
            before, cursor = cursor, {k: v for k, v in parse_qsl(urlsplit(more).query) if k == "cursor"}
            if not cursor:
                return
            if cursor == before:
                break
        raise self._odd("a listing has no end")

    def _items(self, found: Any) -> list[dict[str, Any]]:
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self._odd("a listing is no list of files")
        return found

    def _entry(self, item: dict[str, Any]) -> Entry:
        """LFS files are known by their sha256, the others by git's blob id."""
        path, blob, size, lfs = item.get("path"), item.get("oid"), item.get("size"), item.get("lfs")
        sha256 = lfs.get("oid") if isinstance(lfs, dict) else None
        if not isinstance(path, str) or not isinstance(blob, str) or not isinstance(size, int):
            raise self._odd(f"a file has no path, size or id: {str(item)[:200]}")
        if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            return Entry(path, path, size, sha256, {"sha256": sha256})
        return Entry(path, path, size, blob, {"git": blob} if _COMMIT.fullmatch(blob) else {})

    def _json(self, method: str, path: str, **arguments: Any) -> tuple[Any, str]:
        """The answer, and the address of its next page."""
        url = f"{self._endpoint}/api/{self._kind}s/{self._repo}/{path}"
        headers = {**self._headers, "Accept-Encoding": "identity"}
        session = self._session()
        request = session.build_request(method, url, headers=headers, timeout=self._timeout, **arguments)
        with closing(session.send(request, stream=True, follow_redirects=True)) as response:
            if response.status_code != 200 or _is_compressed(response):
                self._refuse(response, self._uri())
            text = bytearray()
            for chunk in response.iter_raw():
                text += chunk
                if len(text) > LARGEST_PAGE:
                    raise self._odd(f"a listing's page has more than {LARGEST_PAGE // MIB} MiB")
        if text.count(b",") + 2 * (text.count(b"{") + text.count(b"[")) > MOST_SEPARATORS:
            raise self._odd("a listing's page has more values than files have")
        return json.loads(text), str(response.links.get("next", {}).get("url", ""))

    def _uri(self) -> str:
        return f"hf://{self._repo}@{self._commit or self._revision}{'/' if self._path else ''}{self._path}"

    def _odd(self, why: str) -> TargetFault:
        mend = f"is {self._endpoint} ({contract.HF_ENDPOINT}) a Hugging Face hub?"
        return TargetFault(Problem(self._uri(), why, mend))

    def _refuse(self, response: Any, where: str) -> None:
        if _is_compressed(response):
            raise TargetFault(Problem(where, "the answer is compressed, which was not asked for", self._endpoint))
        status = response.status_code
        said = response.headers.get("x-error-message") or _said(response) or response.reason_phrase
        words = f"{status} {said}"
        if status >= 500 or status in (408, 425, 429):
            raise Busy(words, retry_after(response.headers))
        mends = []
        if status in (401, 403):
            token = "the token may not read it" if self._has_token else "no token is given"
            mends.append(
                f"{token}: give access_token= (ACCESS_TOKEN), accept the terms of a gated repository on its page"
            )
        if status in (401, 404):
            mends.append(f"look at owner, name, revision and path; it is asked for as a {self._kind}")
        mend = "; ".join(mends) or f"look at {self._endpoint}"
        raise TargetFault(Problem(where, words, mend))


def _is_compressed(response: Any) -> bool:
    """Whether an answer is longer than what comes over the network, without a limit."""
    return bool(response.headers.get("Content-Encoding", "identity") not in ("", "identity"))


def _said(response: Any) -> str:
    """The `error` of a JSON body, or its text if that is short."""
    text = b""
    with suppress(Exception):
        for chunk in response.iter_raw():
            text += chunk
            if len(text) > _WORDS:
                break
    with suppress(ValueError, AttributeError, RecursionError):
        return str(json.loads(text).get("error", ""))[:300]
    words = text.decode(errors="replace")
    return words if len(words) < 200 and "<" not in words else ""


def _chunks(response: Any, skip: int) -> Chunks:
    try:
        yield from window(response.iter_raw(), skip)
    finally:
        response.close()
