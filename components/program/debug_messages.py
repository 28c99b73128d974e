"""Sends the SDK's debug messages to the engine many at a time.

The SDK sends several of them for each resource, whether or not somebody runs `pulumi --debug`, and waits for each answer: with
1,000 jobs a fifth of a preview (docs/benchmarks.md). They keep their order; a process that is killed loses those of its last
0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Timer
from typing import Any

from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc
from pulumi.runtime.settings import get_engine

SECONDS = 0.1
"""How long a message waits for others."""


def gather() -> None:
    """Let debug messages wait for each other from now on."""
    engine = get_engine()
    if isinstance(engine, engine_pb2_grpc.EngineStub) and not isinstance(engine.Log, _Gathered):
        vars(engine)["Log"] = _Gathered(engine.Log)


class _Gathered:
    """The engine's `Log`, with which every other message goes as before."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: list[str] = []

    def __call__(self, request: engine_pb2.LogRequest, *args: Any, **options: Any) -> Any:
        if request.severity != engine_pb2.DEBUG or request.urn:
            return self._send(request, *args, **options)
        with self._lock:
            self._waiting.append(request.message)
            if len(self._waiting) == 1:
                Timer(SECONDS, self._flush).start()  # Python waits for its thread before it exits
        return None

    def _flush(self) -> None:
        with self._lock:
            messages, self._waiting = self._waiting, []
        self._send(engine_pb2.LogRequest(severity=engine_pb2.DEBUG, message="\n".join(messages)))
