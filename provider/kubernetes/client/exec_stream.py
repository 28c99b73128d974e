"""Runs a command in a container and reads what it prints: `pods/exec` of the Kubernetes API, over a WebSocket.

The first byte of each message is its channel: 1 is standard output, 2 standard error, 3 a Status with the exit code
(v4.channel.k8s.io). The WebSocket library of the official client is used directly: `kubernetes.stream` keeps what arrives faster
than it is read in memory, sends no impersonation, and loses the words of a refusal.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3
from pulumi_trainer.provider.kubernetes.client.transport import Access, Unreachable, refusal
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section

_PROTOCOL = "v4.channel.k8s.io"
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3
_MOST_ERRORS = 4000
"""Bytes of standard error that a failure quotes."""
CONNECT_SECONDS = 20.0


class CommandFailed(TargetFault):
    """The command has failed. code: Its exit code; None if it was not started."""

    def __init__(self, problem: Problem, code: int | None) -> None:
        super().__init__(problem)
        self.code = code


def run(access: Access, path: str, container: str, argv: Sequence[str], where: str, idle: float) -> Iterator[bytes]:
    """Yield the standard output of a command in the pieces in which it arrives; give up after `idle` seconds without data.

    Raises:
        ApiError: The server refuses.
        CommandFailed: The command has ended with another exit code than 0.
        Unreachable: The connection broke before the command has ended.
    """
    import websocket

    query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", each) for each in argv)]
    connection = _connect(access, f"{path}?{urlencode(query)}", where)
    errors = b""
    try:
        connection.settimeout(idle)
        while True:
            operation, data = connection.recv_data(control_frame=True)
            if operation == websocket.ABNF.OPCODE_CLOSE:
                raise Unreachable(where, "the connection ended before the command")
            if operation not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) or len(data) < 2:
                continue
            channel, content = data[0], data[1:]
            if channel == _OUTPUT:
                yield content
            elif channel == _ERRORS:
                errors = (errors + content)[-_MOST_ERRORS:]
            elif channel == _STATUS:
                _check(content, errors, where)
                return
    except websocket.WebSocketTimeoutException:
        raise Unreachable(where, f"no data has arrived for {idle:.0f} s") from None
    except (websocket.WebSocketException, OSError) as broken:
        raise Unreachable(where, f"the connection broke: {str(broken) or type(broken).__name__}") from None
    finally:
        connection.shutdown()


def _connect(access: Access, path: str, where: str) -> Any:
    import websocket

    headers = access.headers()
    secure = access.host.startswith("https")
    settings = access.pool.connection_pool_kw
    tls = {"context": settings.get("ssl_context"), "server_hostname": settings.get("server_hostname")}
    connection = websocket.WebSocket(sslopt=tls if secure else None, skip_utf8_validation=True)
    try:
        connection.connect(  # type: ignore[no-untyped-call]
            f"ws{access.host.removeprefix('http')}{path}",
            header=[f"{name}: {value}" for name, value in headers],
            subprotocols=[_PROTOCOL],
            suppress_origin=True,
            timeout=CONNECT_SECONDS,
            **_proxy(access, where),
        )
    except websocket.WebSocketBadStatusException as refused:
        body = refused.resp_body or b""
        response = urllib3.HTTPResponse(io.BytesIO(body), status=refused.status_code, preload_content=False)
        raise refusal(response, headers, where) from None
    except (websocket.WebSocketException, OSError) as broken:
        raise Unreachable(where, f"no WebSocket to {access.host}: {str(broken) or type(broken).__name__}") from None
    return connection


def _proxy(access: Access, where: str) -> dict[str, Any]:
    """Return the options for the proxy of an access; without one, the environment does not count a second time."""
    proxy = getattr(access.pool, "proxy", None)
    if proxy is None and type(access.pool) is not urllib3.PoolManager:
        raise TargetFault(Problem(where, "a command in a pod cannot be reached through a SOCKS proxy"))
    if proxy is None:
        return {"http_no_proxy": ["*"]}
    login = tuple((proxy.auth or "").split(":", 1)) if proxy.auth else None
    return {
        "http_proxy_host": proxy.host,
        "http_proxy_port": proxy.port,
        "http_proxy_auth": login,
        "proxy_type": "http",
        "http_no_proxy": ["none.invalid"],
    }


def _check(content: bytes, errors: bytes, where: str) -> None:
    """Raise CommandFailed unless the Status of a command is Success."""
    try:
        status = section(json.loads(content))
    except ValueError:
        status = {}
    if status.get("status") == "Success":
        return
    code = None
    for cause in mappings(section(status, "details").get("causes")):
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            code = int(str(cause["message"]))
    words = errors.decode(errors="replace").strip() or str(status.get("message") or "the command has failed")
    raise CommandFailed(Problem(where, words), code)
