"""Adapts the lifecycle to Pulumi's dynamic provider, and nothing more.

The engine starts one host process a run, unpickles the provider classes below by reference (so their module path and
names never change) and calls them, four calls at a time. Components create the resources and use `observe` and `review`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import psutil
import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)
from pulumi_trainer.provider.api.errors import Problem, TrainerError
from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.api.unknown import Unknown
from pulumi_trainer.provider.lifecycle import calls
from pulumi_trainer.provider.targets.connection import connect, local

__all__ = ["JobSet", "Target", "Volume", "local", "observe", "review"]

T = TypeVar("T")
Props = dict[str, Any]


def observe(target: Mapping[str, Any], namespace: str, name: str) -> JobStatus | None:
    """The job as its target sees it; None where nothing is known of it."""
    return connect(target).status(namespace, name)


def review(
    target: Mapping[str, Any], objects: Objects, secrets: Mapping[str, set[str]]
) -> tuple[list[Problem], list[Problem]]:
    """What this target cannot do with the objects, and what it warns of; ([], []) for a target out of reach.

    secrets: Secret -> its keys, of those that come with the job.
    """
    return connect(target).review(objects, secrets) if target["kind"] == "local" else ([], [])


class _Provider(ResourceProvider):
    serialize_as_secret_always = False

    def configure(self, req: ConfigureRequest) -> None:  # noqa: ARG002
        logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it prints a traceback for each error that we raise
        _end_with_parent()


class JobSetProvider(_Provider):
    """One job."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        checked = _told(lambda: calls.check(_plain(olds), _plain(news), connect))
        for note in checked.notes:
            print(f"note: {note}", flush=True)  # the engine shows what a host prints
        # A failure that names a property would print its value, secrets included.
        return CheckResult(_pulumi(checked.inputs), [CheckFailure("", f) for f in checked.failures])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = calls.diff(_plain(olds), _plain(news))
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces), delete_before_replace=True)

    def create(self, props: Props) -> CreateResult:
        id_, outs = _told(lambda: calls.create(_plain(props), connect))
        return CreateResult(id_, outs)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(_told(lambda: calls.update(_plain(olds), _plain(news), connect)))

    def read(self, id_: str, props: Props) -> ReadResult:
        outs = _told(lambda: calls.read(_plain(props), connect))
        return ReadResult("", {}) if outs is None else ReadResult(id_, outs)

    def delete(self, _id: str, props: Props) -> None:
        _told(lambda: calls.delete(_plain(props), connect))


class VolumeProvider(_Provider):
    """A volume that outlives the runs that use it. It keeps its name while its digest is the same."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        kept = bool(olds) and olds.get("digest") == news.get("digest")
        return CheckResult(olds if kept else news, [])

    def create(self, props: Props) -> CreateResult:
        p = _plain(props)
        made = _told(
            lambda: connect(p["target"]).create_volume(
                p["namespace"], p["name"], owner=p["component"], sweep=p["target"]["sweep"]
            )
        )
        keep = {k: p[k] for k in ("namespace", "name", "target", "digest")}
        return CreateResult(f"{p['namespace']}/{p['name']}", {**keep, **made})

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        names = ("namespace", "name", "digest")
        replaces = [k for k in names if olds.get(k) != news.get(k)]
        return DiffResult(changes=bool(replaces), replaces=replaces)

    def read(self, id_: str, props: Props) -> ReadResult:
        p = _plain(props)
        found = _told(lambda: connect(p["target"]).volume(p["namespace"], p["name"]))
        return ReadResult("", {}) if found is None else ReadResult(id_, {**p, **found})

    def delete(self, _id: str, props: Props) -> None:
        p = _plain(props)
        _told(lambda: connect(p["target"]).delete_volume(p["namespace"], p["name"], p["generation"]))


class TargetProvider(_Provider):
    """One a stack and target; its delete sweeps what a crash has left behind."""

    def create(self, props: Props) -> CreateResult:
        p = _plain(props)
        return CreateResult(p["sweep"], {"target": p["target"], "sweep": p["sweep"]})

    def check(self, olds: Props, news: Props) -> CheckResult:
        return CheckResult(olds or news, [])

    def diff(self, _id: str, _olds: Props, _news: Props) -> DiffResult:
        return DiffResult(changes=False)

    def delete(self, id_: str, props: Props) -> None:
        p = _plain(props)
        _told(lambda: connect(p["target"]).sweep(id_) if p["target"]["kind"] == "local" else [])


class JobSet(Resource, module="trainer", name="JobSet"):
    """The rendered objects of one job, as a resource."""

    namespace: pulumi.Output[str]
    name: pulumi.Output[str]
    uid: pulumi.Output[str]
    target: pulumi.Output[Props]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        outputs = {"uid": None, "phase": None, "owner": None, "generation": None}
        replace = pulumi.ResourceOptions(delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(replace, opts)
        super().__init__(JobSetProvider(), name, {**outputs, **props}, opts)


class Volume(Resource, module="trainer", name="Volume"):
    """A volume of the target, by claim name."""

    name: pulumi.Output[str]
    path: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(VolumeProvider(), name, {"path": None, "generation": None, **props}, opts)


class Target(Resource, module="trainer", name="Target"):
    """A target in use by this stack."""

    sweep: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(TargetProvider(), name, props, opts)


def _plain(value: Any) -> Any:
    """Whole floats back into ints (every number arrives as a float), Pulumi's unknowns into ours."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "__provider"}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return Unknown("") if isinstance(value, pulumi.output.Unknown) else value


def _pulumi(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _pulumi(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_pulumi(v) for v in value]
    return pulumi.output.UNKNOWN if isinstance(value, Unknown) else value


def _told(call: Callable[[], T]) -> T:
    """Errors meant for the user cross the process boundary as their text alone."""
    try:
        return call()
    except TrainerError as error:
        raise Exception(str(error)) from None


@lru_cache(maxsize=1)
def _end_with_parent() -> None:
    """Ends this host with the CLI: after a kill -9 of the CLI it would live on and go on creating. Between them may be a
    shell that lives on as well."""
    above = psutil.Process().parents()
    cli = next((p for p in above if p.name() == "pulumi"), above[0] if above else None)

    def watch() -> None:
        while cli is None or (cli.is_running() and cli.status() != psutil.STATUS_ZOMBIE):
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
