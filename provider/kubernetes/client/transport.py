"""One connection to an API server: requests with renewed credentials, and errors in the server's words.

The pool of connections is that of the official client. `client` adds the API verbs and retries; `access` opens the connection.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from pulumi_trainer.provider.kubernetes.client.masking import mask, secret_forms
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section

FIELD_MANAGER = "pulumi-trainer"
JSON = "application/json"
STARTING = 15.0
"""Seconds after a broken connection in which 401 and 403 are retried: a starting API server answers before it has read roles and
accounts."""
_SHOWN = 300
"""Characters of an error answer that is not a Status."""
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

Header = tuple[str, str]


@dataclass(frozen=True)
class Access:
    """How to reach a server; `access` makes it from a kubeconfig.

    Args:
        expires: When the credentials expire, in seconds since the epoch; None for never.
    """

    host: str
    pool: urllib3.PoolManager
    headers: Callable[[], list[Header]]
    where: str = "cluster"
    expires: float | None = None
    cautions: tuple[Problem, ...] = ()
    cluster: str = ""


Configure = Callable[[float], Access]
"""Opens an access within so many seconds."""


class Unreachable(TargetFault):
    """No answer from the API server. passing: Whether a retry may help."""

    retry_after = 0.0

    def __init__(self, where: str, why: str, hint: str = _REACH, *, passing: bool = True) -> None:
        super().__init__(Problem(where, why, hint))
        self.passing = passing


class ApiError(TargetFault):
    """An error answer of the API server.

    `code` is the HTTP status, `reason` the server's word (AlreadyExists, Forbidden, ...), `message` its sentence, `causes` has
    (field, reason, message) for each invalid field, `retry_after` is in seconds.
    """

    def __init__(self, problem: Problem, code: int, status: Mapping[str, Any], retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = problem.why
        self.details: Mapping[str, Any] = section(status.get("details"))
        self.causes = [
            (str(cause.get("field") or ""), str(cause.get("reason") or ""), str(cause.get("message") or ""))
            for cause in mappings(self.details.get("causes"))
        ]
        self.retry_after = retry_after

    @classmethod
    def of_status(cls, status: Mapping[str, Any], code: int, where: str, retry_after: float = 0.0) -> ApiError:
        """Return the error of a Status object."""
        message = str(status.get("message") or f"HTTP status {code}")
        return cls(Problem(where, message, _hint(code, message)), code, status, retry_after)

    @property
    def absent(self) -> bool:
        """Whether the API server has no such object or kind; a 404 of a proxy does not count."""
        return self.code == 404 and (self.reason == "NotFound" or self.message == _NO_SUCH_PATH)


def _hint(code: int, message: str) -> str:
    """Return what to do; nothing for a 403 of webhooks, policies and quotas, which is not about permissions."""
    if message.endswith(_TERMINATED):
        return _WAIT_FOR_DELETION
    if code == 403 and not _NO_RIGHTS.search(message):
        return ""
    return _HINT.get(code, "")


@dataclass(frozen=True)
class Request:
    """A request. where: The name of the object in errors. query: Parameters; empty ones are not sent."""

    method: str
    path: str
    where: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON


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
        for caution in opened.cautions:
            if self._warn is not None and caution not in self._warned:
                self._warned.add(caution)
                self._warn(caution)

    @staticmethod
    def _expired(access: Access, opened: float) -> bool:
        """Return whether credentials have expired; at most every 5 seconds, in case a clock is wrong."""
        return access.expires is not None and time.time() >= max(access.expires, opened + 5)

    def send(
        self, request: Request, timeout: urllib3.Timeout, patience: float, *, stream: bool = False
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, and once more with new credentials if the first are rejected. Return a successful answer.

        Raises ApiError, and Unreachable.
        """
        access = self.access(patience)
        try:
            try:
                return self._send(access, request, timeout, stream)
            except ApiError as refused:
                if refused.code != 401:
                    raise
            with self._lock:  # another caller may have new ones already
                if self._open and self._open[0] is access:
                    self._open = None
            return self._send(self.access(patience), request, timeout, stream)
        except ApiError as refused:
            if refused.code in (401, 403) and time.monotonic() - self._broken < STARTING:
                hint = "the server has just started, and may not know all permissions yet"
                raise Unreachable(request.where, str(refused), hint) from None
            raise

    def _send(
        self, access: Access, request: Request, timeout: urllib3.Timeout, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        credentials = access.headers()
        headers = urllib3.HTTPHeaderDict({"Accept": request.accept, "User-Agent": FIELD_MANAGER})
        headers.extend(credentials)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        query = urlencode({name: value for name, value in request.query.items() if value})
        with self._count:
            self.requests += 1
        try:
            response = access.pool.request(
                request.method,
                "?".join(filter(None, (access.host + request.path, query))),
                body=request.body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=not stream,
            )
            if response.status >= 300:
                raise refusal(response, credentials, request.where)
            return response
        except urllib3.exceptions.HTTPError as broken:
            self._broken = time.monotonic()
            why = f"no answer from {access.host}: {innermost_reason(broken)}"
            raise Unreachable("", why, passing=not _lasts(broken)) from None


def refusal(response: urllib3.BaseHTTPResponse, credentials: list[Header], where: str) -> ApiError:
    """Return the error of an unsuccessful answer, without the credentials of the request, which a proxy may have quoted."""
    if response.status < 400:
        place = urlsplit(response.headers.get("Location") or "")
        why = f"is redirected to {place.scheme}://{place.hostname}, which is not followed"
        return ApiError(Problem(where, why, _REACH), response.status, {})
    secrets = _secrets_in(credentials)
    try:
        decoded = json.loads(response.data)  # without escapes, within which no credentials would be found
        status = json.loads(mask(json.dumps(decoded, ensure_ascii=False), secrets))
    except ValueError:
        status = None
    if not isinstance(status, dict):
        shown = mask(response.data.decode(errors="replace").strip(), secrets)
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        status = {"message": shown}
    retry_after = 0.0
    with suppress(ValueError):
        retry_after = max(0.0, min(float(response.headers.get("Retry-After") or 0), 30.0))
    return ApiError.of_status(status, response.status, where, retry_after)


def document(response: urllib3.BaseHTTPResponse, where: str) -> dict[str, Any]:
    """Return the JSON object of a successful answer. Raises Unreachable for anything else, such as the page of a proxy."""
    try:
        found = json.loads(response.data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        kind = response.headers.get("Content-Type") or "no Content-Type"
        raise Unreachable(where, f"the answer is not a JSON object ({kind})", passing="json" in kind)
    return found


def warnings(response: urllib3.BaseHTTPResponse) -> list[str]:
    """Return the texts of the Warning headers (`299 - "TEXT"`, with backslashes before quotes)."""
    given = ", ".join(response.headers.getlist("Warning"))
    return [re.sub(r"\\(.)", r"\1", text) for text in re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', given)]


@contextmanager
def reading(response: urllib3.BaseHTTPResponse, where: str) -> Iterator[None]:
    """Close a stream at the end, without reading the rest. Raises Unreachable if the connection breaks."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as broken:  # ValueError: after `shut`, or a cut line
        raise Unreachable(where, f"the connection broke: {innermost_reason(broken)}") from None
    finally:
        response.close()


def shut(response: urllib3.BaseHTTPResponse) -> None:
    """End a stream that another thread reads: that thread gets Unreachable. Older releases of urllib3 cannot."""
    with suppress(AttributeError, ValueError, RuntimeError, OSError):
        response.shutdown()


def _secrets_in(headers: list[Header]) -> tuple[str, ...]:
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
    said = re.sub(r"^.*?[>)]: |Failed to establish a new connection: (\[Errno -?\d+\] )?", "", str(reason))
    return said or type(reason).__name__


def _lasts(broken: Exception) -> bool:
    """Return whether a retry does not help: invalid certificates stay invalid, unknown names unknown."""
    if isinstance(broken, urllib3.exceptions.ProxyError):
        return _lasts(broken.original_error)
    if isinstance(broken, urllib3.exceptions.SSLError):
        return re.search("certificate.verify.failed|alert", str(broken), re.IGNORECASE) is not None
    return isinstance(broken, urllib3.exceptions.NameResolutionError)
