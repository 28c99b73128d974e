"""Adapts the lifecycle to Pulumi's dynamic provider, and nothing more.

The engine starts one host process a run, unpickles the provider classes below by reference (so their module path and
names never change) and calls them, four calls at a time. Components create the resources and use `observe` and `review`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

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
from pulumi_trainer.provider.admission.known_queues import Queues
from pulumi_trainer.provider.api.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.api.submission import Draft
from pulumi_trainer.provider.api.unknown import Unknown
from pulumi_trainer.provider.lifecycle import calls, channels, draining, runtimes, volumes
from pulumi_trainer.provider.lifecycle.identity import digest
from pulumi_trainer.provider.lifecycle.releases import held_back
from pulumi_trainer.provider.targets.connection import CONFIGURED, Reach, configure, connect, local
from pulumi_trainer.provider.targets.kubernetes.kubeconfig import is_content
from pulumi_trainer.provider.targets.local import LocalTarget, host_id
from pulumi_trainer.provider.targets.waiting import Source, source

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

__all__ = [
    "Channel",
    "JobSet",
    "QueueGuard",
    "Reach",
    "Runtime",
    "Source",
    "Target",
    "Volume",
    "configure",
    "few_frames",
    "glance",
    "held",
    "held_back",
    "is_content",
    "lacks_namespace",
    "local",
    "observe",
    "queue_objects",
    "queue_versions",
    "queue_work",
    "queues",
    "review",
    "review_volume",
    "runtime",
    "source",
    "vanished",
]

T = TypeVar("T")
Props = dict[str, Any]


def observe(target: Mapping[str, Any], namespace: str, name: str) -> JobStatus | None:
    """The job as its target sees it; None where nothing is known of it."""
    return connect(target).status(namespace, name)


def glance(target: Mapping[str, Any], namespace: str, name: str, uid: str, phase: str) -> JobStatus | None:
    """The job as far as it is known without a request for it alone. uid, phase: as the stack's state has them."""
    return connect(target).glance(namespace, name, uid, phase)


def vanished(target: Mapping[str, Any], namespace: str, name: str, digest: str) -> str:
    """A mark of a job that is as the program says, and that somebody has deleted before it ended; empty: there is none."""
    return connect(target).vanished(namespace, name, digest)


def held(target: Mapping[str, Any], namespace: str, name: str) -> tuple[str, str]:
    """Name and release of the runtime that the job there was made from; empty where that is not known."""
    return connect(target).held(namespace, name)


def review(target: Mapping[str, Any], draft: Draft) -> tuple[list[Problem], list[Problem]]:
    """What this target cannot do with the job, and what it warns of; of a cluster out of reach, that alone."""
    try:
        found = connect(target)
        return found.review(draft.objects, draft.secrets) if isinstance(found, LocalTarget) else found.review(draft)
    except TargetFault as fault:
        return [], [Problem("", f"checked without the cluster: {fault}")]


def queues(target: Mapping[str, Any], namespace: str = "", queue: str = "") -> Queues | None:
    """What a cluster knows of Kueue's queues; queue: the LocalQueue of a job. None: it cannot be asked."""
    try:
        return _cluster(target).queues(namespace, queue) if target["kind"] == "kubernetes" else None
    except TargetFault:
        return None


def review_volume(
    target: Mapping[str, Any], namespace: str, name: str, claim: Mapping[str, Any]
) -> tuple[list[Problem], list[Problem]]:
    """What the cluster cannot give of a claim, and what it warns of; ([], []) for a cluster out of reach."""
    try:
        return _cluster(target).review_volume(namespace, name, claim)
    except TargetFault:
        return [], []


def runtime(target: Mapping[str, Any], kind: str, namespace: str, name: str) -> tuple[bool, Props | None]:
    """Whether the cluster could be asked, and the runtime that it has of that name."""
    try:
        cluster = _cluster(target)
        cluster.at_hand()
        return True, cluster.runtime(kind, namespace, name)
    except TargetFault:
        return False, None


def queue_versions(target: Mapping[str, Any]) -> Mapping[str, Sequence[str]] | None:
    """Version of Kueue's API -> the plurals that the cluster has in it; None for a cluster out of reach."""
    try:
        return _cluster(target).queue_versions()
    except TargetFault:
        return None


def queue_objects(target: Mapping[str, Any], kind: str, version: str) -> Sequence[Mapping[str, Any]]:
    """All objects of a kind of Kueue's that the cluster has, as far as it can be asked."""
    try:
        return _cluster(target).queue_objects(kind, version)
    except TargetFault:
        return []


def queue_work(target: Mapping[str, Any], name: str, version: str) -> Mapping[str, Sequence[str]]:
    """LocalQueue of a ClusterQueue -> what its jobs hold, or that they wait; as far as the cluster can be asked."""
    try:
        return _cluster(target).queue_work(name, version)
    except TargetFault:
        return {}


def lacks_namespace(target: Mapping[str, Any], namespace: str) -> bool:
    """Whether it is certain that the cluster has no such namespace."""
    try:
        return _cluster(target).lacks_namespace(namespace)
    except TargetFault:
        return False


def _cluster(target: Mapping[str, Any]) -> KubernetesTarget:
    """For what only clusters have."""
    return cast("KubernetesTarget", connect(target))


class _Provider(ResourceProvider):
    serialize_as_secret_always = False

    def configure(self, req: ConfigureRequest) -> None:
        # In a destroy this is what stood there at the last update, unless it is told to --run-program.
        configure({k: req.config.get(f"trainer:{k}") for k in CONFIGURED})
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
        checked = volumes.check(_plain(olds), _plain(news))
        return CheckResult(_pulumi(checked.inputs), [CheckFailure("", f) for f in checked.failures])

    def create(self, props: Props) -> CreateResult:
        id_, outs = _told(lambda: volumes.create(_plain(props), connect))
        return CreateResult(id_, outs)

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = volumes.diff(_plain(olds), _plain(news))
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(_told(lambda: volumes.update(_plain(olds), _plain(news), connect)))

    def read(self, id_: str, props: Props) -> ReadResult:
        outs = _told(lambda: volumes.read(_plain(props), connect))
        return ReadResult("", {}) if outs is None else ReadResult(id_, outs)

    def delete(self, _id: str, props: Props) -> None:
        _told(lambda: volumes.delete(_plain(props), connect))


class RuntimeProvider(_Provider):
    """A runtime in a cluster in mode trainer."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        for note in _told(lambda: channels.runtime_notes(_plain(olds), _plain(news), connect)):
            print(f"note: {note}", flush=True)
        return CheckResult(_pulumi(runtimes.check(_plain(olds), _plain(news))), [])

    def create(self, props: Props) -> CreateResult:
        id_, outs = _told(lambda: runtimes.create(_plain(props), _cluster))
        return CreateResult(id_, outs)

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = runtimes.diff(_plain(olds), _plain(news))
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(_told(lambda: runtimes.update(_plain(olds), _plain(news), _cluster)))

    def read(self, id_: str, props: Props) -> ReadResult:
        outs = _told(lambda: runtimes.read(_plain(props), _cluster))
        return ReadResult("", {}) if outs is None else ReadResult(id_, outs)

    def delete(self, _id: str, props: Props) -> None:
        _told(lambda: runtimes.delete(_plain(props), _cluster))


class ChannelProvider(_Provider):
    """Which release of a runtime is in use."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        checked = _told(lambda: channels.check(_plain(olds), _plain(news), connect))
        for note in checked.notes:
            print(f"note: {note}", flush=True)
        return CheckResult(_pulumi(checked.inputs), [CheckFailure("", f) for f in checked.failures])

    def create(self, props: Props) -> CreateResult:
        id_, outs = _told(lambda: channels.create(_plain(props), connect))
        return CreateResult(id_, outs)

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        return DiffResult(changes=channels.diff(_plain(olds), _plain(news)).changes)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(_told(lambda: channels.update(_plain(olds), _plain(news), connect)))

    def delete(self, _id: str, props: Props) -> None:
        _told(lambda: channels.delete(_plain(props), connect))


class QueueGuardProvider(_Provider):
    """Stands before a ClusterQueue: its delete comes first, and takes the work away or refuses."""

    def create(self, props: Props) -> CreateResult:
        id_, outs = _told(lambda: draining.create(_plain(props), _cluster))
        return CreateResult(id_, outs)

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = draining.diff(_plain(olds), _plain(news))
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(_told(lambda: draining.update(_plain(olds), _plain(news))))

    def delete(self, _id: str, props: Props) -> None:
        for note in _told(lambda: draining.delete(_plain(props), _cluster)):
            print(f"note: {note}", flush=True)


class TargetProvider(_Provider):
    """One a stack and target; its delete sweeps what a crash has left behind."""

    def create(self, props: Props) -> CreateResult:
        p = _plain(props)
        identity = _told(lambda: connect(p["target"]).identity())
        where = {**p["target"], **identity}
        # Stacks of one name in two backends are those of two clones. The state keeps it, so a clone may move; a state that a
        # crash has lost gets the same again.
        place = digest([_told(host_id), str(Path.cwd())])[:8]
        label = f"{p['stack']}-{place}"
        return CreateResult(label, {"target": where, "sweep": label, "cluster": identity.get("cluster")})

    def check(self, olds: Props, news: Props) -> CheckResult:
        old, new = _plain(olds), _plain(news)
        return CheckResult(_pulumi(calls.rerouted(old, new)) if old else news, [])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        return DiffResult(changes=calls.way(_plain(olds)) != calls.way(_plain(news)))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        outs = calls.rerouted(_plain(olds), _plain(news))
        _told(lambda: connect(outs["target"]).identity())  # a way that leads elsewhere is not written down
        return UpdateResult(outs)

    def delete(self, id_: str, props: Props) -> None:
        p = _plain(props)
        _told(lambda: connect(p["target"]).sweep(id_))


@contextmanager
def few_frames(count: int = 0) -> Iterator[None]:
    """Around the constructor of a resource. Pulumi's SDK sends the frames of the stack with it, and the engine keeps them: with
    hundreds of jobs a third of the state, which is written whole again and again, and names folders of this machine. count: how
    many stay of those of who constructs it, one being the line of a program."""
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


class _Resource(Resource):
    def __init__(
        self, provider: ResourceProvider, name: str, props: Props, opts: pulumi.ResourceOptions | None
    ) -> None:
        with few_frames():
            super().__init__(provider, name, props, opts)


class JobSet(_Resource, module="trainer", name="JobSet"):
    """The rendered objects of one job, as a resource."""

    namespace: pulumi.Output[str]
    name: pulumi.Output[str]
    uid: pulumi.Output[str]
    phase: pulumi.Output[str]
    target: pulumi.Output[Props]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        outputs = {"uid": None, "phase": None, "owner": None, "generation": None}
        replace = pulumi.ResourceOptions(delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(replace, opts)
        super().__init__(JobSetProvider(), name, {**outputs, **props}, opts)


class Volume(_Resource, module="trainer", name="Volume"):
    """A volume of the target, by claim name."""

    name: pulumi.Output[str]
    path: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(VolumeProvider(), name, {"path": None, "generation": None, **props}, opts)


class Runtime(_Resource, module="trainer", name="Runtime"):
    """A runtime in a cluster in mode trainer."""

    uid: pulumi.Output[str]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(RuntimeProvider(), name, {"uid": None, "owner": None, **props}, opts)


class Channel(_Resource, module="trainer", name="Channel"):
    """The release of a runtime that a channel has."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(ChannelProvider(), name, dict(props), opts)


class QueueGuard(_Resource, module="trainer", name="QueueGuard"):
    """What has to go before a ClusterQueue may."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(QueueGuardProvider(), name, dict(props), opts)


class Target(_Resource, module="trainer", name="Target"):
    """A target in use by this stack."""

    sweep: pulumi.Output[str]
    """Label of all that the stack makes there."""
    cluster: pulumi.Output[str | None]
    """Its identity; None on this machine."""

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(TargetProvider(), name, {"cluster": None, "sweep": None, **props}, opts)


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
        _answer(str(error))
        raise Exception(str(error)) from None


def _answer(text: str) -> None:
    """Makes an error's text the whole answer: grpc writes "Exception calling application:" before it, unless the call was given
    its details. Pulumi's host keeps the call to itself, in the frame that has called us."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        call = frame.f_locals.get("context")
        if call is not None and hasattr(call, "set_details"):
            call.set_details(text)
            return
        frame = frame.f_back


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
