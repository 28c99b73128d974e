"""What of Pulumi's SDK is used beyond its documentation, held against the installed release."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pulumi
import pytest
from google.protobuf import json_format, struct_pb2
from pulumi.runtime import rpc
from pulumi_trainer.provider.engine import pulumi_compat
from pulumi_trainer.provider.engine.values import to_engine, to_plain
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

ROOT = Path(pulumi_compat.__file__).parents[1]
PRIVATE = re.compile(
    r"pulumi\._\w|pulumi\.runtime\.(?!is_dry_run)|^from pulumi\.(?!dynamic import)|\b_get_rpc_manager\b|_depends_on_list"
    r"|\b_childResources\b|\._aliases\b|\bpulumi\.output\."
)


def test_the_installed_release_is_one_that_was_tested() -> None:
    installed, oldest, newest = (tuple(map(int, v.split("."))) for v in (
        version("pulumi"), pulumi_compat.OLDEST, pulumi_compat.NEWEST
    ))  # fmt: skip
    assert oldest <= installed <= newest, (
        f"pulumi {version('pulumi')} has not been tested: pin it in tools/pulumi/newest.txt, set NEWEST in"
        " provider/engine/pulumi_compat.py, and run `make test-pulumi`"
    )


def test_a_part_that_a_release_lacks_is_named_with_the_releases_to_install() -> None:
    with pytest.raises(pulumi.RunError, match=r"has no pulumi\.runtime\.settings\._no_such_part.*\nHint: pip install"):
        pulumi_compat._hook("pulumi.runtime.settings", "_no_such_part")
    with pytest.raises(pulumi.RunError, match=r"has no pulumi\.no_such_module\.part"):
        pulumi_compat._hook("pulumi.no_such_module", "part")
    with pytest.raises(pulumi.RunError, match=r"has no pulumi\.Resource\._noSuchField.*\nHint: pip install"):
        pulumi_compat._resource_field("_noSuchField")


def test_no_other_module_uses_private_parts_of_pulumi() -> None:
    sources = [p for p in ROOT.rglob("*.py") if p.name != "pulumi_compat.py" and ".venv" not in p.parts]
    assert len(sources) > 100
    assert [str(p) for p in sources if PRIVATE.search(p.read_text())] == []


def test_the_exception_of_a_program_is_found_where_the_sdk_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = pulumi_compat._rpc_manager()  # of this process: other tests leave their RPCs there
    for name, value in (("rpcs", []), ("unhandled_exception", None)):
        monkeypatch.setattr(manager, name, value)
    monkeypatch.setattr(pulumi_compat._settings, "outputs", set())
    raised = ValueError("in the program")

    def program() -> None:
        raise raised

    async def ask() -> tuple[bool, BaseException | None]:
        seen: list[BaseException | None] = []

        async def look() -> None:
            seen.append(pulumi_compat._exception_of_program())

        pulumi_compat.await_with_rpcs(asyncio.ensure_future(look()))
        with pytest.raises(ValueError, match="in the program"):
            await pulumi.runtime.stack.run_pulumi_func(program)
        return bool(seen), seen[0] if seen else None

    assert asyncio.new_event_loop().run_until_complete(ask()) == (True, raised)


def test_few_frames_puts_the_limit_back() -> None:
    with pulumi_compat.few_frames(2):
        assert sys.tracebacklimit == 7
    assert not hasattr(sys, "tracebacklimit")


QUICK_PROGRAM = """
from grpc import RpcError
from pulumi.runtime.proto.engine_pb2 import DEBUG, INFO, LogRequest
from pulumi_trainer.provider.engine.pulumi_compat import _GatheredLog

def send(request):
    print([request.message])
    if "engine has ended" in request.message:
        raise RpcError()

log = _GatheredLog(send)
for message in ("first", "second", %r):
    log(LogRequest(severity=DEBUG, message=message))
log(LogRequest(severity=INFO, message="at once"))
"""


@pytest.mark.parametrize("last", ["last", "the engine has ended"])
def test_the_last_debug_messages_of_a_program_are_sent_before_it_exits(last: str) -> None:
    ran = subprocess.run([sys.executable, "-c", QUICK_PROGRAM % last], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["['at once']", f"['first\\nsecond\\n{last}']"]
    assert (ran.returncode, ran.stderr) == (0, "")


def resource(urn: str) -> pulumi.Resource:
    return pulumi.resource.DependencyResource(urn)


def test_what_depends_on_a_component_awaits_a_child_that_was_added() -> None:
    async def urns() -> list[str]:
        class Component(pulumi.ComponentResource):
            def __init__(self) -> None:
                pulumi.Resource.__init__(self, "", "", False, None, None, False, True)
                self._remote = False

        parent = Component()
        pulumi_compat.add_child(parent, resource("urn:child"))
        return [*await pulumi.runtime.resource._expand_dependencies({parent}, from_resource=None)]

    assert asyncio.new_event_loop().run_until_complete(urns()) == ["urn:child"]


def test_aliases_are_read_where_the_sdk_keeps_them() -> None:
    async def aliases() -> list[object]:
        renamed = resource("urn:new")
        vars(renamed)["_aliases"] = ["urn:old"]
        return [*pulumi_compat.aliases_of(renamed)]

    assert asyncio.new_event_loop().run_until_complete(aliases()) == ["urn:old"]


def test_unknown_values_are_those_of_the_sdk() -> None:
    async def unknown() -> object:
        return await pulumi.Output.from_input(pulumi.output.UNKNOWN).future(with_unknowns=True)

    value = asyncio.new_event_loop().run_until_complete(unknown())
    received = rpc.deserialize_properties(json_format.ParseDict({"new": rpc.UNKNOWN}, struct_pb2.Struct()), True)
    assert pulumi.contains_unknowns({"deep": [value]}) and not pulumi.contains_unknowns({"deep": [1]})
    assert to_plain(received) == {"new": Unknown("")} and to_plain("04da6b54") == "04da6b54"
    assert to_engine([Unknown("")]) == [pulumi.UNKNOWN]


class Call:
    """The call of a provider that grpc serves, as far as errors need it."""

    details = "Exception calling application"

    def set_details(self, text: str) -> None:
        self.details = text

    def abort(self, code: str, details: str) -> None:
        self.details = details


@pytest.mark.parametrize("aborts", [False, True], ids=["before 3.260", "from 3.260 on"])
def test_the_answer_to_a_call_that_fails_is_our_text_alone(aborts: bool) -> None:
    def serve(context: Call) -> None:
        pulumi_compat.answer_with("the queue is full")
        if aborts:
            context.abort("UNKNOWN", "Traceback (most recent call last):")

    call = Call()
    serve(call)
    assert call.details == "the queue is full"
