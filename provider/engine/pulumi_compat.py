"""Every use of an undocumented or private part of Pulumi's Python SDK and engine.

Tested with the releases from `OLDEST` to `NEWEST`. If a release lacks one of these parts, the import of this module ends with the
name of that part and the releases to install. The hooks of the host of dynamic providers are in `provider/engine/host`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from threading import Lock, Timer
from types import FrameType
from typing import Any

import grpc  # type: ignore[import-untyped]
import pulumi

OLDEST = "3.246.0"
NEWEST = "3.272.0"
"""The releases of the package `pulumi` that `make test-pulumi` has passed with. `tools/pulumi/` pins the same."""


def _hook(module: str, *names: str) -> Any:
    try:
        found: Any = import_module(module)
        for name in names:
            found = getattr(found, name)
        return found
    except (ImportError, AttributeError):
        raise _lacking(module, *names) from None


def _resource_field(name: str) -> str:
    """Return the name of a field that each resource of the SDK has. Raises pulumi.RunError if they do not."""
    if name not in _hook("pulumi", "Resource", "__annotations__"):
        raise _lacking("pulumi", "Resource", name)
    return name


def _lacking(*names: str) -> pulumi.RunError:
    return pulumi.RunError(
        f"pulumi {version('pulumi')} has no {'.'.join(names)}, which pulumi-trainer needs.\n"
        f"Hint: pip install 'pulumi>={OLDEST},<={NEWEST}' (the releases that pulumi-trainer was tested with)"
    )


_settings = _hook("pulumi.runtime.settings", "SETTINGS")
_rpc_manager = _hook("pulumi.runtime.settings", "_get_rpc_manager")
_engine = _hook("pulumi.runtime.settings", "get_engine")
_monitor = _hook("pulumi.runtime.settings", "get_monitor")
_root_resource = _hook("pulumi.runtime.settings", "get_root_resource")
_log_request = _hook("pulumi.runtime.proto.engine_pb2", "LogRequest")
_debug = _hook("pulumi.runtime.proto.engine_pb2", "DEBUG")
_engine_stub = _hook("pulumi.runtime.proto.engine_pb2_grpc", "EngineStub")
_program_code = _hook("pulumi.runtime.stack", "run_pulumi_func", "__code__")
_configuration = _hook("pulumi.runtime.config", "CONFIG")
_rpc = _hook("pulumi.runtime.rpc")
_is_input_type = _hook("pulumi._types", "is_input_type")
_input_type_to_dict = _hook("pulumi._types", "input_type_to_dict")
_children = _resource_field("_childResources")
_aliases = _resource_field("_aliases")


def await_with_rpcs(task: asyncio.Task[Any]) -> None:
    """Make the SDK await a task together with its RPCs, before it looks at Outputs.

    The SDK awaits RPCs one after the other, and then looks at all Outputs each time that one of them is known.
    """
    _rpc_manager().rpcs.append(task)


def has_failed() -> bool:
    """Return whether the program ends with an exception of its own or of Pulumi's. A RunError of ours would replace it."""
    failed = [output for output in _settings.outputs if _exception_of(output)]
    return bool(failed or _rpc_manager().unhandled_exception or _exception_of_program())


def forget_failed_outputs(error: Exception) -> None:
    """Keep the SDK from ending the program with the traceback of an exception that is reported as a problem."""
    failed = [output for output in _settings.outputs if _exception_of(output) is error]
    _settings.outputs.difference_update(failed)


def _exception_of(output: asyncio.Future[Any]) -> BaseException | None:
    return output.exception() if output.done() and not output.cancelled() else None


def _exception_of_program() -> BaseException | None:
    """Return the exception that has ended the code of the program. The SDK keeps it in a variable until all RPCs are done."""
    for task in asyncio.all_tasks():
        awaited: Any = task.get_coro()
        while awaited is not None:
            if getattr(awaited, "cr_code", None) is _program_code:
                raised: BaseException | None = awaited.cr_frame.f_locals.get("ex")
                return raised
            awaited = getattr(awaited, "cr_await", None)
    return None


async def read_stack_outputs() -> Mapping[str, Mapping[str, Any]]:
    """Return `type` and `outputs` of each resource of the current stack, by URN.

    What the engine raises for a stack that was never brought up differs by backend.
    """
    found = await pulumi.runtime.invoke_async(
        "pulumi:pulumi:readStackResourceOutputs", {"stackName": pulumi.get_stack()}
    )
    outputs: Mapping[str, Mapping[str, Any]] = found["outputs"]
    return outputs


def configuration_keys() -> list[str]:
    """Return the full names of all keys of the stack's configuration, such as `trainer:target`."""
    return [*pulumi.runtime.get_config_env(), *_configuration.get()]


def is_input_type(value: Any) -> bool:
    """Return whether a value is an instance of an input class of a Pulumi package, such as pulumi_kubernetes' `PodSpecArgs`."""
    return bool(_is_input_type(type(value)))


def fields_of_input_type(value: Any) -> dict[str, Any]:
    """Return the fields of an instance of an input class by the names of the API."""
    fields: dict[str, Any] = _input_type_to_dict(value)
    return fields


def export_known_values() -> None:
    """Make stack outputs that are unknown at the end of an `up`, such as those of a failed job, null in the state, which would
    have the engine's mark of unknown values there.
    """
    stack = _root_resource()
    if stack is not None:
        register = stack.register_outputs
        vars(stack)["register_outputs"] = lambda outputs: register(_with_nulls(outputs))


def _with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nulls(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_nulls(each) for each in value]
    if not isinstance(value, pulumi.Output):
        return value

    async def is_known() -> bool:
        return True

    return pulumi.Output(value.resources(), value.future(), is_known(), value.is_secret())


def add_child(parent: pulumi.Resource, child: pulumi.Resource) -> None:
    """Add a child that the engine does not know: what depends on the parent awaits the URN of each child.

    Args:
        child: A resource that is not registered; its `urn` resolves when the parent counts as done.
    """
    children: set[pulumi.Resource] = getattr(parent, _children)
    children.add(child)


def aliases_of(resource: pulumi.Resource) -> Sequence[pulumi.Input[str]]:
    """Return the former URNs of a resource, those that its parent's aliases imply included."""
    aliases: Sequence[pulumi.Input[str]] = getattr(resource, _aliases)
    return aliases


def known_output(value: Any) -> pulumi.Output[Any]:
    """Return a known Output that may hold unknown ones deep inside, so that the engine shows everything else."""
    loop = asyncio.get_event_loop()
    content: asyncio.Future[Any] = loop.create_future()
    content.set_result(value)
    is_known: asyncio.Future[bool] = loop.create_future()
    is_known.set_result(True)
    return pulumi.Output(set(), content, is_known)


@contextmanager
def few_frames(count: int = 0) -> Iterator[None]:
    """Limit the stack frames that the SDK sends to the engine with the resource that is constructed inside.

    The engine keeps these frames. With hundreds of jobs they are a third of the state, which is written whole each time, and
    they name folders of this machine.

    Args:
        count: How many frames stay of those that lead to the constructor; one is the line of a program.
    """
    before = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = _SDK_FRAMES + count
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


_SDK_FRAMES = 5
"""From the SDK's look at the stack up to the constructor of a concrete resource (pulumi.runtime.resource)."""


def answer_with(text: str) -> None:
    """Make an error's text the whole answer of the provider call that is being served.

    grpc writes "Exception calling application:" before it, unless the call was given its details; from 3.260 on Pulumi's host of
    dynamic providers aborts the call with a traceback as its details. The host keeps the call in a variable of the frame that has
    called the provider.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        call = frame.f_locals.get("context")
        if call is not None and hasattr(call, "set_details"):
            call.set_details(text)
            call.abort = lambda code, _traceback, abort=call.abort: abort(code, text)
            return
        frame = frame.f_back


def answer_imports_with(text: str) -> None:
    """Make a text the answer to `pulumi import` of this process, Pulumi's host: it sends no properties, and it would fail with
    a KeyError.
    """
    deserialize = _rpc.deserialize_properties

    def refuse_import(props_struct: Any, keep_unknowns: bool | None = None, keep_internal: bool | None = True) -> Any:
        found = deserialize(props_struct, keep_unknowns, keep_internal)
        if not found and sys._getframe(1).f_code.co_name == "Read":
            answer_with(text)
            raise KeyError(text)
        return found

    _rpc.deserialize_properties = refuse_import


DEBUG_SECONDS = 0.1
"""How long a debug message waits for others."""


def gather_debug_messages() -> None:
    """Send the SDK's debug messages to the engine many at a time from now on.

    The SDK sends several of them for each resource, also without `pulumi --debug`, and waits for each answer: with
    1,000 jobs a fifth of a preview (docs/benchmarks.md). They keep their order. A killed process loses those of its last 0.1 s.
    """
    engine = _engine()
    if not isinstance(engine, _engine_stub) or isinstance(engine.Log, _GatheredLog):
        return
    log = _GatheredLog(engine.Log)
    vars(engine)["Log"] = log
    monitor = _monitor()
    end_program: Any = getattr(monitor, "SignalAndWaitForShutdown", None)

    def flush_and_end(*args: Any, **options: Any) -> Any:
        log.flush()  # the engine shows no message that comes after this call
        return end_program(*args, **options)

    if end_program is not None:
        vars(monitor)["SignalAndWaitForShutdown"] = flush_and_end


class _GatheredLog:
    """The engine's `Log`. Messages of other severities are sent at once."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: list[str] = []

    def __call__(self, request: Any, *args: Any, **options: Any) -> Any:
        if request.severity != _debug or request.urn:
            return self._send(request, *args, **options)
        with self._lock:
            self._waiting.append(request.message)
            if len(self._waiting) == 1:
                Timer(DEBUG_SECONDS, self.flush).start()  # Python waits for its thread before it exits
        return None

    def flush(self) -> None:
        """Send the messages that wait."""
        with self._lock:
            messages, self._waiting = self._waiting, []
        if not messages:
            return
        with suppress(grpc.RpcError):  # an engine that has ended reads no more of them
            self._send(_log_request(severity=_debug, message="\n".join(messages)))
