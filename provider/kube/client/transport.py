"""One connection to an API server: requests with renewed credentials, answers of bounded size, errors in the server's words.

Answers are not trusted: they may be cut, endless, not JSON, or quote the credentials of the request. `client` adds the API verbs
and retries; `access` opens the connection.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from pulumi_trainer.provider.kube.client.masking import mask, secret_forms
from pulumi_trainer.provider.kube.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kube.values.accessors import mappings, section

JSON = "application/json"
"""Accept header."""
LARGEST = 256 * 2**20
"""Bytes of an answer; a page of the largest objects that etcd accepts has less than half of it."""
MOST_SEPARATORS = 16_000_000
"""Commas and brackets of an answer (an opening one counts twice): Python takes 60 bytes for what follows each, however short."""
LARGEST_ERROR = 2**20
"""Bytes of an error answer."""
STARTING = 15.0
"""Seconds after a broken connection in which 401 and 403 are retried: a starting API server answers before it has read roles and
accounts."""
_CHUNK = 2**16
_REACH = "is the cluster up, and is it the right one (kubeconfig, context)?"
_HINT = {
    401: "log in again, or renew the credentials in the kubeconfig",
    403: "`pulumi-trainer rbac` prints the permissions that are needed",
}
_NO_RIGHTS = re.compile(r'User ".*" cannot ')
"""Message of an API server for missing permissions."""
_TERMINATED = "because it is being terminated"
"""Message of an API server, with status 403, for a namespace that is being deleted."""
_WAIT_FOR_DELETION = "wait until its deletion has finished and create it again, or use another one"
_NO_SUCH_PATH = "404 page not found"
"""Message of an API server for an unknown kind."""


@dataclass(frozen=True)
class Access:
    """How to reach a server; `access` makes it from a kubeconfig.

    Args:
        host: URL of the server.
        pool: The connections.
        headers: Returns the headers with the credentials for a request.
        where: The name of the access in errors.
        expires: When the credentials expire, in seconds since the epoch; None for never.
        cautions: Risks of the access.
        cluster: UID of the cluster; empty if it was not requested.
    """

    host: str
    pool: urllib3.PoolManager
    headers: Callable[[], list[tuple[str, str]]]
    where: str = "cluster"
    expires: float | None = None
    cautions: tuple[Problem, ...] = ()
    cluster: str = ""


class Unreachable(TargetFault):
    """No answer from the API server. passing: Whether a retry may help."""

    def __init__(self, where: str, why: str, hint: str = _REACH, *, passing: bool = True) -> None:
        super().__init__(Problem(where, why, hint))
        self.passing = passing


class ApiError(TargetFault):
    """An error answer of the API server.

    `code` is the HTTP status, `reason` the server's word (AlreadyExists, Forbidden, ...), `message` its sentence, `causes` has
    (field, reason, message) for each invalid field.
    """

    def __init__(self, problem: Problem, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = problem.why
        details = status.get("details")
        self.details: Mapping[str, Any] = section(details)
        self.causes = [
            (str(cause.get("field") or ""), str(cause.get("reason") or ""), str(cause.get("message") or ""))
            for cause in mappings(self.details.get("causes"))
        ]

    @property
    def absent(self) -> bool:
        """Whether the API server has no such object or kind; a 404 of a proxy does not count."""
        return self.code == 404 and (self.reason == "NotFound" or self.message == _NO_SUCH_PATH)


@dataclass(frozen=True)
class Answer:
    """An answer of a server. secrets: The credentials of the request, which must not appear in errors."""

    response: urllib3.BaseHTTPResponse
    where: str
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def status(self) -> int:
        return int(self.response.status)

    @property
    def retry_after(self) -> float:
        """Seconds to wait before the next request, at most 30."""
        try:
            return max(0.0, min(float(self.response.headers.get("Retry-After") or 0), 30.0))
        except ValueError:
            return 0.0

    @property
    def warnings(self) -> list[str]:
        """Texts of the Warning headers (`299 - "TEXT"`, with backslashes before quotes)."""
        given = ", ".join(self.response.headers.getlist("Warning"))
        return [re.sub(r"\\(.)", r"\1", text) for text in re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', given)]

    def document(self, deadline: float) -> dict[str, Any]:
        """Return the JSON object of a successful answer. Raises ApiError, and Unreachable for an answer that is cut."""
        if self.status >= 300:
            raise self._error(self._whole(deadline, LARGEST_ERROR))
        return self.parsed(self._whole(deadline, LARGEST))

    def refusal(self) -> ApiError:
        """Return the error of an answer that is not successful."""
        return self._error(self._whole(time.monotonic() + 10, LARGEST_ERROR))

    def parsed(self, text: bytes) -> dict[str, Any]:
        """Return a JSON object. Raises Unreachable, and TargetFault for one with more values than objects of a cluster have."""
        if text.count(b",") + 2 * (text.count(b"{") + text.count(b"[")) > MOST_SEPARATORS:
            raise TargetFault(Problem(self.where, "the answer has more values than 250 objects have, and was not read"))
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            kind = self.response.headers.get("Content-Type") or "no Content-Type"
            why = f"the answer is not a JSON object ({kind}): {self._shown(text[:200])!r}"
            raise Unreachable(self.where, why, passing="json" in kind)
        return found

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of a stream, without the newline. Raises ApiError, and Unreachable if the connection breaks."""
        rest: list[bytes] = []
        size = 0
        for chunk in self.chunks():
            first, *more = chunk.split(b"\n")
            rest.append(first)
            size += len(first)
            if size > LARGEST:
                raise self._too_large(LARGEST)
            if more:
                yield b"".join(rest)
                yield from more[:-1]
                rest, size = [more[-1]], len(more[-1])
        if line := b"".join(rest):
            yield line

    def chunks(self) -> Iterator[bytes]:
        """Yield the pieces of a stream. Raises ApiError, and Unreachable if the connection breaks."""
        with self:
            if self.status >= 300:
                raise self.refusal()
            yield from self._chunks()

    def shut(self) -> None:
        """End a stream that another thread reads: that thread gets Unreachable. Older releases of urllib3 cannot."""
        with suppress(AttributeError, ValueError, RuntimeError, OSError):
            self.response.shutdown()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        """Close the connection of a stream without reading the rest."""
        self.response.close()

    def _whole(self, deadline: float, largest: int) -> bytes:
        parts, size = [], 0
        for chunk in self._chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > largest:
                self.response.close()
                raise self._too_large(largest)
            if time.monotonic() > deadline + 1:  # the server sends too slowly
                self.response.close()
                raise Unreachable(self.where, "the answer did not end in time")
        return b"".join(parts)

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self.response.stream(_CHUNK, decode_content=False)  # none was asked for
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as broken:  # ValueError: after `shut`
            self.response.close()
            raise Unreachable(self.where, f"the connection broke: {innermost_reason(broken)}") from None

    def _too_large(self, largest: int) -> TargetFault:
        return TargetFault(Problem(self.where, f"the answer has more than {largest // 2**20} MiB, and was not read"))

    def error(self, status: Any) -> ApiError:
        """Return the error of the Status object that a watch ends with."""
        status = self._masked(status)
        code = section(status).get("code")
        return _api_error(code if isinstance(code, int) else 500, status, self.where)

    def _error(self, text: bytes) -> ApiError:
        if self.status < 400:
            place = urlsplit(self.response.headers.get("Location") or "")
            why = f"is redirected to {place.scheme}://{place.hostname}, which is not followed"
            return ApiError(Problem(self.where, why, _REACH), self.status, {})
        try:
            status = self._masked(json.loads(text))
        except (ValueError, RecursionError):
            status = None
        if not isinstance(status, dict):
            shown = self._shown(text)
            if len(shown) > 300:
                shown = f"{shown[:300]}..."
            status = {"message": shown}
        return _api_error(self.status, status, self.where)

    def _shown(self, text: bytes) -> str:
        return self._without_secrets(text.decode(errors="replace").strip())

    def _masked(self, value: Any) -> Any:
        """Return a decoded value without secrets, which may have escapes in JSON."""
        if isinstance(value, str):
            return self._without_secrets(value)
        if isinstance(value, dict):
            return {self._without_secrets(key): self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [*map(self._masked, value)]
        return value

    def _without_secrets(self, text: str) -> str:
        return mask(text, self.secrets)


def _api_error(code: int, status: Any, where: str) -> ApiError:
    document = section(status)
    message = str(document.get("message") or f"HTTP status {code}")
    return ApiError(Problem(where, message, _hint(code, message)), code, document)


def _hint(code: int, message: str) -> str:
    """Return what to do; nothing for a 403 of webhooks, policies and quotas, which is not about permissions."""
    if message.endswith(_TERMINATED):
        return _WAIT_FOR_DELETION
    if code == 403 and not _NO_RIGHTS.search(message):
        return ""
    return _HINT.get(code, "")


Configure = Callable[[float], Access]
"""Opens an access within so many seconds."""


class Connection:
    """The pool of connections and the credentials, shared by all threads. cluster: UID of the cluster, once requested."""

    def __init__(self, configure: Configure, warn: Callable[[Problem], None] | None = None) -> None:
        self._configure = configure
        self._warn = warn
        self._warned: set[Problem] = set()
        self._lock = threading.Lock()
        self._count = threading.Lock()
        self._open: tuple[Access, float] | None = None
        self._fault: tuple[TrainerError, float] | None = None
        self._broken = -STARTING
        self.requests = 0
        self.cluster = ""

    def access(self, patience: float) -> Access:
        """Return the access: the first caller opens it, also after the credentials have expired; others wait for the result.

        Raises what `configure` raises.
        """
        asked = time.monotonic()
        with self._lock:
            if self._open is None or self._expired(*self._open):
                if self._fault and self._fault[1] > asked:
                    raise self._fault[0]
                try:
                    self._open = self._configure(patience), time.time()
                except TrainerError as fault:
                    self._fault = fault, time.monotonic()
                    raise
                self.cluster = self._open[0].cluster or self.cluster
                self._warn_of(self._open[0])
            return self._open[0]

    def _warn_of(self, opened: Access) -> None:
        if self._warn is None:
            return
        for caution in opened.cautions:
            if caution not in self._warned:
                self._warned.add(caution)
                self._warn(caution)

    @staticmethod
    def _expired(access: Access, opened: float) -> bool:
        """Return whether credentials have expired; at most every 5 seconds, in case a clock is wrong."""
        return access.expires is not None and time.time() >= max(access.expires, opened + 5)

    def _renew(self, used: Access) -> None:
        """Forget credentials that were rejected, once for all callers that used them."""
        with self._lock:
            if self._open and self._open[0] is used:
                self._open = None

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        where: str,
        timeout: urllib3.Timeout,
        patience: float,
        accept: str = JSON,
    ) -> Answer:
        """Send a request, and once more with new credentials if the first are rejected. Raises Unreachable."""
        access = self.access(patience)
        answer = self._send(access, method, path, query, body, content_type, where, timeout, accept)
        if answer.status == 401:
            answer.response.close()
            self._renew(access)
            answer = self._send(self.access(patience), method, path, query, body, content_type, where, timeout, accept)
        if answer.status in (401, 403) and time.monotonic() - self._broken < STARTING:
            hint = "the server has just started, and may not know all permissions yet"
            raise Unreachable(where, str(answer.refusal()), hint)
        return answer

    def _send(
        self,
        access: Access,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        where: str,
        timeout: urllib3.Timeout,
        accept: str,
    ) -> Answer:
        credentials = access.headers()
        headers = urllib3.HTTPHeaderDict({"Accept": accept, "Accept-Encoding": "identity", "User-Agent": FIELD_MANAGER})
        headers.extend(credentials)
        if body is not None:
            headers["Content-Type"] = content_type
        url = access.host + path
        asked = urlencode({k: v for k, v in query.items() if v})
        if asked:
            url += f"?{asked}"
        with self._count:
            self.requests += 1
        try:
            response = access.pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as broken:
            self._broken = time.monotonic()
            why = f"no answer from {access.host}: {innermost_reason(broken)}"
            raise Unreachable(where, why, passing=not _lasts(broken)) from None
        return Answer(response, where, credentials_in(credentials))


def credentials_in(headers: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the credentials in headers in all their forms, the longest first."""
    parts: set[str] = set()
    for name, value in headers:
        if name == "Authorization":
            parts |= {value, *value.split()[1:]}
    for part in list(parts):
        with suppress(ValueError):  # the header of Basic has the password in base64
            parts |= {*base64.b64decode(part, validate=True).decode().split(":", 1)}
    return secret_forms(part for part in parts if len(part) > 5)


def innermost_reason(broken: Exception) -> str:
    """Return the innermost reason of an error of urllib3, without the pool's name."""
    reason: Any = getattr(broken, "reason", None) or getattr(broken, "original_error", None) or broken
    return re.sub(r"^.*?[>)]: ", "", str(reason)) or type(reason).__name__


def _lasts(broken: Exception) -> bool:
    """Return whether a retry does not help: invalid certificates stay invalid, unknown names unknown."""
    if isinstance(broken, urllib3.exceptions.ProxyError):
        return _lasts(broken.original_error)
    if isinstance(broken, urllib3.exceptions.NameResolutionError):
        return True
    for cause in (broken, *broken.args, broken.__cause__):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        if isinstance(cause, ssl.SSLError) and "alert" in str(getattr(cause, "reason", "") or "").lower():
            return True
    return False


FIELD_MANAGER = "pulumi-trainer"
