"""The format number of a resource's state: each provider writes it, and refuses what another version has written."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.dynamic import ResourceProvider
from pulumi_trainer.provider.engine import dynamic, host
from pulumi_trainer.provider.kubernetes.errors import Refused
from pulumi_trainer.provider.lifecycle.state_format import FORMAT
from pulumi_trainer.provider.service import stack
from pulumi_trainer.provider.targets import queries

PROVIDERS = [getattr(dynamic, name) for name in host._PROVIDERS]
OTHER_FORMATS = [pytest.param({"format": FORMAT + 1}, id="another"), pytest.param({}, id="none")]
STATE = {"namespace": "team", "name": "digits"}


@pytest.mark.parametrize("given", OTHER_FORMATS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_state_of_another_format_is_refused(provider: type[ResourceProvider], given: dict[str, Any]) -> None:
    made, old = provider(), {**STATE, **given}
    calls = [lambda: made.check(old, STATE), lambda: made.diff("id", old, STATE)]
    if provider is not dynamic.StackMarkProvider:  # its deletion reads nothing
        calls += [lambda: made.update("id", old, STATE), lambda: made.delete("id", old)]
    if provider not in (dynamic.StackMarkProvider, dynamic.TargetProvider):  # their refresh reads nothing
        calls.append(lambda: made.read("id", old))
    kind = provider.__name__.removesuffix("Provider")
    for call in calls:
        with pytest.raises(Exception, match="use that version, for example to destroy the stack") as raised:
            call()
        assert str(raised.value).startswith(
            f"{kind} team/digits: its state was written by another version of pulumi-trainer, "
        )
        assert "`pulumi state delete --target-dependents URN`" in str(raised.value)


class Calls:
    """The lifecycle of a resource that returns what it gets."""

    def __getattr__(self, name: str) -> Any:
        if name == "create":
            return lambda props, *_: ("id", props)
        if name == "read":
            return lambda props, *_: (props, [])
        if name == "update":
            return lambda _olds, news, *_: news
        return lambda _olds, news, *_: type(
            "Checked", (), {"inputs": news, "failures": (), "notes": (), "changes": False, "replaces": ()}
        )()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_writes_the_format(provider: type[ResourceProvider], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "calls", Calls(), raising=False)
    made, given = provider(), {**STATE, "document": {}}
    inputs = made.check({}, given).inputs
    assert inputs == {**given, "format": FORMAT}
    assert made.check(inputs, given).inputs == inputs
    outputs = made.create(inputs).outs
    assert outputs is not None and outputs["format"] == FORMAT
    assert not made.diff("id", outputs, inputs).changes
    read = made.read("id", outputs).outs
    assert read is not None and read["format"] == FORMAT
    if provider is not dynamic.StackMarkProvider:
        updated = made.update("id", outputs, inputs).outs
        assert updated is not None and updated["format"] == FORMAT


@pytest.mark.parametrize("given", OTHER_FORMATS)
def test_what_a_plan_and_a_command_read_of_it(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    old = {**STATE, **given, "urn": "urn:x"}
    note = "urn:x was removed from the program, but its state cannot be read"
    assert queries.job_interruptions(old) == queries.volume_losses(old) == (note,)
    assert queries.channel_refusals(old, lambda _: True) == []
    exported = (
        f'{{"deployment": {{"resources": [{{"urn": "urn:x", "type": "{stack._TYPE}", "inputs": {{"format": 9}}}}]}}}}'
    )
    monkeypatch.setattr(stack, "_pulumi", lambda *_: exported)
    with pytest.raises(
        Refused, match="urn:x: its state was written by another version of pulumi-trainer, in format 9;"
    ):
        stack.read_state(None)
