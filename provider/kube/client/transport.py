"""One connection to an API server: requests with credentials that are renewed, answers of bounded size, errors in its words.

Answers are not trusted: they may be cut, endless, no JSON, or quote the credentials that they were asked with. `client` puts
the API's verbs and the patience on top; `access` makes what a connection is opened with.
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

JSON = "application/json"
"""What answers are asked for."""
LARGEST = 256 * 2**20
"""Bytes of an answer; a page of the largest objects that etcd takes is not half of it."""
MOST_SEPARATORS = 16_000_000
"""Commas and brackets of an answer (an opening one counts twice): Python takes 60 bytes for what follows each, however short."""
LARGEST_ERROR = 2**20
"""Bytes of a refusal."""
STARTING = 15.0
"""Seconds after a broken connection in which a refusal is not believed: an API server that starts answers before it has read
roles and accounts."""
_CHUNK = 2**16
_REACH = "is the cluster up, and is it the right one (kubeconfig, context)?"
_MEND = {
    401: "log in again, or mend the credentials of the kubeconfig",
    403: "`pulumi-trainer rbac` prints the permissions that are needed",
}
_NO_RIGHTS = re.compile(r'User ".*" cannot ')
"""What an API server says of those."""
_TERMINATED = "because it is being terminated"
"""What an API server says, with status 403, of a namespace in which nothing can be made any more."""
_GOING = "wait until it is gone, and create it again, or use another one"
_NO_SUCH_PATH = "404 page not found"
"""What an API server says of a kind that it does not know."""


@dataclass(frozen=True)
class Access:
    """How to reach a server, as `access` makes it of a kubeconfig.

    host: URL. headers: those of a request, its credentials. where: how errors call it. expires: when the credentials have to
    be made anew, in seconds since the epoch. cautions: what is unwise about it. cluster: its UID, if that was looked at.
    """

    host: str
    pool: urllib3.PoolManager
    headers: Callable[[], list[tuple[str, str]]]
    where: str = "cluster"
    expires: float | None = None
    cautions: tuple[Problem, ...] = ()
    cluster: str = ""


class Unreachable(TargetFault):
    """No answer from the API server. passing: it may be back in a moment."""

    def __init__(self, where: str, why: str, mend: str = _REACH, *, passing: bool = True) -> None:
        super().__init__(Problem(where, why, mend))
        self.passing = passing


class ApiError(TargetFault):
    """The server's refusal. code: HTTP status. reason: its machine word (AlreadyExists, Forbidden, ...). message: its
    sentence. causes: (field, reason, message) of each field that is wrong."""

    def __init__(self, problem: Problem, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(problem)
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = problem.why
        details = status.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, dict) else {}
        causes = self.details.get("causes")
        self.causes = [
            (str(c.get("field") or ""), str(c.get("reason") or ""), str(c.get("message") or ""))
            for c in (causes if isinstance(causes, list) else [])
            if isinstance(c, dict)
        ]

    @property
    def absent(self) -> bool:
        """An API server says that there is no such object or kind; a 404 of anybody else in between means nothing."""
        return self.code == 404 and (self.reason == "NotFound" or self.message == _NO_SUCH_PATH)


@dataclass(frozen=True)
class Answer:
    """secrets: what it was asked with, and may not be told."""

    response: urllib3.BaseHTTPResponse
    where: str
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def status(self) -> int:
        return int(self.response.status)

    @property
    def retry_after(self) -> float:
        """Seconds that the server asks for, at most 30."""
        try:
            return max(0.0, min(float(self.response.headers.get("Retry-After") or 0), 30.0))
        except ValueError:
            return 0.0

    def document(self, deadline: float) -> dict[str, Any]:
        """The JSON object, if the status says that all is well. Raises ApiError, and Unreachable for one that is cut."""
        if self.status >= 300:
            raise self._error(self._whole(deadline, LARGEST_ERROR))
        return self.parsed(self._whole(deadline, LARGEST))

    def refusal(self) -> ApiError:
        """What a status that is not well says."""
        return self._error(self._whole(time.monotonic() + 10, LARGEST_ERROR))

    def parsed(self, text: bytes) -> dict[str, Any]:
        """A JSON object. Raises Unreachable, and TargetFault for one with more values than objects of a cluster have."""
        if text.count(b",") + 2 * (text.count(b"{") + text.count(b"[")) > MOST_SEPARATORS:
            raise TargetFault(Problem(self.where, "the answer has more values than 250 objects have, and was not read"))
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            kind = self.response.headers.get("Content-Type") or "nothing said of its type"
            said = self._shown(text[:200])
            why = f"the answer is no JSON object ({kind}): {said!r}"
            raise Unreachable(self.where, why, passing="json" in kind)
        return found

    def lines(self) -> Iterator[bytes]:
        """Of a stream, as they come, without the newline. Raises ApiError, and Unreachable when the connection breaks."""
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
        """Of a stream, as they come. Raises ApiError, and Unreachable when the connection breaks."""
        with self:
            if self.status >= 300:
                raise self.refusal()
            yield from self._chunks()

    def shut(self) -> None:
        """Ends a stream that another thread waits for: that gets Unreachable. Older releases of urllib3 cannot."""
        with suppress(AttributeError, ValueError, RuntimeError, OSError):
            self.response.shutdown()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        """Closes the connection of a stream: what is left in it is not read."""
        self.response.close()

    def _whole(self, deadline: float, largest: int) -> bytes:
        parts, size = [], 0
        for chunk in self._chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > largest:
                self.response.close()
                raise self._too_large(largest)
            if time.monotonic() > deadline + 1:  # it drips
                self.response.close()
                raise Unreachable(self.where, "the answer did not end in time")
        return b"".join(parts)

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self.response.stream(_CHUNK, decode_content=False)  # none was asked for
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as broken:  # ValueError: after `shut`
            self.response.close()
            raise Unreachable(self.where, f"the connection broke: {said(broken)}") from None

    def _too_large(self, largest: int) -> TargetFault:
        return TargetFault(Problem(self.where, f"the answer has more than {largest // 2**20} MiB, and was not read"))

    def error(self, status: Any) -> ApiError:
        """The Status object that a watch ends with."""
        status = self._masked(status)
        code = status.get("code") if isinstance(status, dict) else None
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
            status = {"message": shown if len(shown) <= 300 else f"{shown[:300]}..."}
        return _api_error(self.status, status, self.where)

    def _shown(self, text: bytes) -> str:
        return self._without_secrets(text.decode(errors="replace").strip())

    def _masked(self, value: Any) -> Any:
        """A decoded value without secrets: in its JSON they may be written with escapes."""
        if isinstance(value, str):
            return self._without_secrets(value)
        if isinstance(value, dict):
            return {self._without_secrets(key): self._masked(item) for key, item in value.items()}
        return [self._masked(item) for item in value] if isinstance(value, list) else value

    def _without_secrets(self, text: str) -> str:
        return mask(text, self.secrets)


def _api_error(code: int, status: Any, where: str) -> ApiError:
    told = status if isinstance(status, dict) else {}
    message = str(told.get("message") or f"HTTP status {code}")
    return ApiError(Problem(where, message, _mend(code, message)), code, told)


def _mend(code: int, message: str) -> str:
    """A refusal need not be one for want of rights: webhooks, policies and quotas forbid as well."""
    if message.endswith(_TERMINATED):
        return _GOING
    return "" if code == 403 and not _NO_RIGHTS.search(message) else _MEND.get(code, "")


Configure = Callable[[float], Access]
"""Opens an access within so many seconds."""


class Connection:
    """The pool of connections and the credentials, shared by all threads. cluster: its identity, once somebody has asked."""

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
        """Opened by the first who asks, and again when the credentials have expired; those who wait for it meanwhile share
        what comes of it. Raises what `configure` raises."""
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
                self._tell_cautions(self._open[0])
            return self._open[0]

    def _tell_cautions(self, opened: Access) -> None:
        for caution in opened.cautions if self._warn else ():
            if caution not in self._warned and self._warn:
                self._warned.add(caution)
                self._warn(caution)

    @staticmethod
    def _expired(access: Access, opened: float) -> bool:
        """At most every 5 seconds: whose clock is wrong?"""
        return access.expires is not None and time.time() >= max(access.expires, opened + 5)

    def _renew(self, used: Access) -> None:
        """Once for all who were refused with the same credentials."""
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
        """Sends a request; once more with new credentials where those it was sent with are not accepted. Raises Unreachable."""
        access = self.access(patience)
        answer = self._send(access, method, path, query, body, content_type, where, timeout, accept)
        if answer.status == 401:
            answer.response.close()
            self._renew(access)
            answer = self._send(self.access(patience), method, path, query, body, content_type, where, timeout, accept)
        if answer.status in (401, 403) and time.monotonic() - self._broken < STARTING:
            raise Unreachable(
                where, str(answer.refusal()), "the server has just started, and may not know all permissions yet"
            )
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
        asked = urlencode({k: v for k, v in query.items() if v})
        with self._count:
            self.requests += 1
        try:
            response = access.pool.request(
                method,
                access.host + path + (f"?{asked}" if asked else ""),
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as broken:
            self._broken = time.monotonic()
            why = f"no answer from {access.host}: {said(broken)}"
            raise Unreachable(where, why, passing=not _lasts(broken)) from None
        return Answer(response, where, _secrets(credentials))


def _secrets(headers: list[tuple[str, str]]) -> tuple[str, ...]:
    """The credentials in headers, the longest first."""
    values = [value for name, value in headers if name == "Authorization"]
    parts = {part for value in values for part in (value, *value.split()[1:]) if len(part) > 5}
    for part in list(parts):
        with suppress(ValueError):  # a password is in the header of Basic in base64
            parts |= {word for word in base64.b64decode(part, validate=True).decode().split(":", 1) if len(word) > 5}
    return secret_forms(parts)


def said(broken: Exception) -> str:
    """The innermost reason in an error of urllib3, which holds the pool's name around it."""
    reason: Any = getattr(broken, "reason", None) or getattr(broken, "original_error", None) or broken
    return re.sub(r"^.*?[>)]: ", "", str(reason)) or type(reason).__name__


def _lasts(broken: Exception) -> bool:
    """Certificates that are wrong stay wrong; so do names that nobody knows."""
    if isinstance(broken, urllib3.exceptions.ProxyError):
        return _lasts(broken.original_error)
    causes = (broken, *broken.args, broken.__cause__)
    return isinstance(broken, urllib3.exceptions.NameResolutionError) or any(
        isinstance(cause, ssl.SSLCertVerificationError) or "alert" in str(getattr(cause, "reason", "") or "").lower()
        for cause in causes
        if isinstance(cause, ssl.SSLError)
    )


FIELD_MANAGER = "pulumi-trainer"
