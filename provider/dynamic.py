"""Adapts the lifecycle to Pulumi's dynamic provider, and nothing more.

The engine starts one host process a run, unpickles the provider classes below by reference (so their module path and
names never change) and calls them, four calls at a time. Components create the resources and use `observe` and `review`.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

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
from pulumi_trainer.provider.api.status import JobStatus, Owner
from pulumi_trainer.provider.api.submission import Draft, Work
from pulumi_trainer.provider.kube.client.kubeconfig import is_content
from pulumi_trainer.provider.kube.errors import (
    Problem,
    Refused,
    TargetFault,
    TrainerError,
)
from pulumi_trainer.provider.kube.terminal import message, plain
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.lifecycle import (
    calls,
    channels,
    draining,
    runtimes,
    volumes,
)
from pulumi_trainer.provider.lifecycle.identity import digest
from pulumi_trainer.provider.lifecycle.releases import held_back
from pulumi_trainer.provider.targets.connection import (
    CONFIGURED,
    Reach,
    configure,
    connect,
    local,
    warn_with,
)
from pulumi_trainer.provider.targets.kubernetes.preflight import multikueue
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
    "channel_refusals",
    "configure",
    "elsewhere",
    "few_frames",
    "folders",
    "glance",
    "held",
    "held_back",
    "interruptions",
    "is_content",
    "lacks_namespace",
    "local",
    "losses",
    "pod_group",
    "queue_objects",
    "queue_versions",
    "queue_work",
    "queues",
    "review",
    "review_volume",
    "runtime",
    "source",
    "warn_with",
]

T = TypeVar("T")
Props = dict[str, Any]


def glance(
    target: Mapping[str, Any], namespace: str, name: str, uid: str, phase: str, owner: Owner
) -> JobStatus | None:
    """The job as far as it is known without a request for it alone. uid, phase, owner: as the stack's state has them; where it
    belongs to somebody else by now, the status says so."""
    return connect(target).glance(namespace, name, uid, phase, owner)


def held(target: Mapping[str, Any], namespace: str, name: str) -> tuple[str, str]:
    """Name and release of the runtime that the job there was made from; empty where that is not known."""
    return connect(target).held(namespace, name)


def elsewhere(target: Mapping[str, Any], cluster: str) -> list[Problem]:
    """Return that a target leads to another cluster than the recorded one; nothing for a cluster out of reach."""
    try:
        found = _cluster(target)
        found.at_hand()
        if found.identity()["cluster"] != cluster:
            reach = target.plain if isinstance(target, Reach) else target
            connect({**reach, "cluster": cluster}).identity()  # the stack's configuration may lead to it
    except Refused as refused:
        return [*refused.problems]
    except TargetFault:
        pass
    return []


def review(target: Mapping[str, Any], draft: Draft) -> tuple[list[Problem], list[Problem]]:
    """What this target cannot do with the job, and what it warns of; of a cluster out of reach, that alone."""
    try:
        found = connect(target)
        if isinstance(found, LocalTarget):
            refused, warned = found.review(draft.objects, draft.secrets, lambda: found.has(draft))
            return refused, [*warned, *found.other_interpreter(draft)]
        return found.review(draft)
    except TargetFault as fault:
        return multikueue.refusals(draft), [Problem("", f"checked without the cluster: {fault}")]


def queues(target: Mapping[str, Any], namespace: str = "", queue: str = "") -> Queues | None:
    """What a cluster knows of Kueue's queues; queue: the LocalQueue of a job. None: it cannot be asked."""
    try:
        return _cluster(target).queues(namespace, queue) if target["kind"] == "kubernetes" else None
    except TargetFault:
        return None


def review_volume(
    target: Mapping[str, Any], namespace: str, name: str, claim: Mapping[str, Any], job: str, owner: str, *, adopt: bool
) -> tuple[list[Problem], list[Problem]]:
    """What the cluster cannot give of a claim, and what it warns of; ([], []) for a cluster out of reach."""
    try:
        return _cluster(target).review_volume(namespace, name, claim, job, owner, adopt=adopt)
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


def pod_group(target: Mapping[str, Any], api_version: str, namespace: str, name: str) -> Props | None:
    """The PodGroup of that name; None where there is none, or the cluster cannot be asked."""
    try:
        return _cluster(target).pod_group(api_version, namespace, name)
    except TargetFault:
        return None


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


def queue_work(target: Mapping[str, Any], name: str, version: str) -> Sequence[Work]:
    """What the jobs of a ClusterQueue hold, or that they wait; as far as the cluster can be asked."""
    try:
        return _cluster(target).queue_work(name, version)
    except TargetFault:
        return []


def folders(target: Mapping[str, Any], namespace: str, revision: str) -> list[Path]:
    """Return the folders of the volumes on this machine that were fetched with that digest, whatever their jobs are called."""
    return cast("LocalTarget", connect(target)).folders(namespace, revision)


def lacks_namespace(target: Mapping[str, Any], namespace: str) -> bool:
    """Whether it is certain that the cluster has no such namespace."""
    try:
        return _cluster(target).lacks_namespace(namespace)
    except TargetFault:
        return False


def channel_refusals(outputs: Mapping[str, Any], uses: Callable[[str], bool]) -> list[Problem]:
    """Return why a channel of the stack cannot be removed, as far as its target can be asked. uses: whether a job of that
    namespace/name, which uses it now, will then."""
    try:
        return channels.removal_refusals(_plain(dict(outputs)), connect, uses)
    except TrainerError:
        return []


def losses(outputs: Mapping[str, Any]) -> Sequence[str]:
    """Return what is in a volume of the stack that leaves the program, if a job has written it."""
    becomes = "has left the program, and is to be deleted unless it was retained,"
    return _as_far_as_known(outputs, lambda: volumes.losses(_plain(dict(outputs)), connect, becomes))


def interruptions(outputs: Mapping[str, Any]) -> Sequence[str]:
    """Return that a job of the stack leaves the program while it is unfinished."""
    return _as_far_as_known(outputs, lambda: calls.interruptions(_plain(dict(outputs)), connect))


_NOT_UNDERSTOOD = (KeyError, TypeError, AttributeError)
"""What a state raises that somebody has edited."""


def _as_far_as_known(outputs: Mapping[str, Any], ask: Callable[[], Sequence[str]]) -> Sequence[str]:
    try:
        return ask()
    except _NOT_UNDERSTOOD:
        return (f"{outputs.get('urn')} leaves the program, and what the state holds of it is not understood",)


def _cluster(target: Mapping[str, Any]) -> KubernetesTarget:
    """For what only clusters have."""
    return cast("KubernetesTarget", connect(target))


def _answering(call: Callable[..., T]) -> Callable[..., T]:
    """Errors meant for the user cross the process boundary as their text alone; so does that a state was not understood."""

    @wraps(call)
    def told(*args: Any) -> T:
        try:
            return call(*args)
        except TrainerError as error:
            text = str(error)
        except _NOT_UNDERSTOOD as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            found = f"{type(error).__name__}: {error}, {Path(last.filename).name}:{last.lineno}"
            text = f"what the state holds of this resource is not understood ({found}). {_EDITED}"
        _answer(text)
        raise Exception(text)

    return told


_EDITED = (
    "Was it edited, or written by a newer version? `pulumi stack export` shows it; `pulumi state delete URN` forgets the"
    " resource; what it stands for goes with the stack. If neither is so, please report this"
)


class _Provider(ResourceProvider):
    serialize_as_secret_always = False

    def __init_subclass__(cls) -> None:
        for name in ("check", "diff", "create", "update", "read", "delete"):
            if name in vars(cls):
                setattr(cls, name, _answering(vars(cls)[name]))

    def configure(self, req: ConfigureRequest) -> None:
        # In a destroy this is what stood there at the last update, unless it is told to --run-program.
        configure({k: req.config.get(f"trainer:{k}") for k in CONFIGURED})
        warn_with(lambda warning: print(f"warning: {warning}", flush=True))
        logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it prints a traceback for each error that we raise
        _end_with_parent()


_IN_USE: set[str] = set()
"""Labels of jobs and volumes that the program has, in this process, which serves one update: jobs keep the label of the target
that they were made with, and that may leave the program before them."""


def _in_use(checked: CheckResult) -> CheckResult:
    """Return checked inputs, whose label is in use from now on."""
    label = checked.inputs["target"].get("sweep")
    if isinstance(label, str):
        _IN_USE.add(label)
    return checked


class _OfLifecycle(_Provider):
    """What each call does is a function of a module of `lifecycle`, on plain data."""

    calls: ClassVar[Any]

    def check(self, olds: Props, news: Props) -> CheckResult:
        checked = self.calls.check(_plain(olds), _plain(news), connect)
        _note(checked.notes)
        # A failure that names a property would print its value, secrets included.
        return CheckResult(_pulumi(checked.inputs), [CheckFailure("", message(f)) for f in checked.failures])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = self.calls.diff(_plain(olds), _plain(news))
        _note(diff.notes)
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces))

    def create(self, props: Props) -> CreateResult:
        id_, outs = self.calls.create(_plain(props), connect)
        return CreateResult(id_, outs)

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(self.calls.update(_plain(olds), _plain(news), connect))

    def read(self, id_: str, props: Props) -> ReadResult:
        outs, notes = self.calls.read(_plain(props), connect)
        _note(notes)
        return ReadResult("", {}) if outs is None else ReadResult(id_, outs)

    def delete(self, _id: str, props: Props) -> None:
        _note(self.calls.delete(_plain(props), connect))


class JobSetProvider(_OfLifecycle):
    """One job."""

    calls: ClassVar[Any] = calls

    def check(self, olds: Props, news: Props) -> CheckResult:
        return _in_use(super().check(olds, news))

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = super().diff(_id, olds, news)
        diff.delete_before_replace = True
        return diff


class VolumeProvider(_OfLifecycle):
    """A volume that outlives the runs that use it. It keeps its name while its digest is the same."""

    calls: ClassVar[Any] = volumes

    def check(self, olds: Props, news: Props) -> CheckResult:
        return _in_use(super().check(olds, news))


class RuntimeProvider(_OfLifecycle):
    """A runtime in a cluster in mode trainer."""

    calls: ClassVar[Any] = runtimes

    def check(self, olds: Props, news: Props) -> CheckResult:
        _note(channels.runtime_notes(_plain(olds), _plain(news), connect))
        return super().check(olds, news)


class ChannelProvider(_OfLifecycle):
    """Which release of a runtime is in use."""

    calls: ClassVar[Any] = channels


class QueueGuardProvider(_OfLifecycle):
    """Stands before a ClusterQueue: its delete comes first, and takes the work away or refuses."""

    calls: ClassVar[Any] = draining


class TargetProvider(_Provider):
    """One a stack and target; its delete sweeps what a crash has left behind."""

    def create(self, props: Props) -> CreateResult:
        p = _plain(props)
        identity = connect(p["target"]).identity()
        where = {**p["target"], **identity}
        # Two stacks may have one name: of two clones, or one after the other was renamed. The state alone tells them apart. Where
        # the engine writes that at the end alone, an `up` that follows one that was killed has to find the same label.
        lasting = os.environ.get("PULUMI_SKIP_CHECKPOINTS") not in ("1", "true")
        own = secrets.token_hex(4) if lasting else digest([host_id(), str(Path.cwd())])[:8]
        label = f"{p['stack']}-{own}"
        return CreateResult(label, {"target": where, "sweep": label, "cluster": identity.get("cluster")})

    def check(self, olds: Props, news: Props) -> CheckResult:
        old, new = _plain(olds), _plain(news)
        return CheckResult(_pulumi(calls.rerouted(old, new)) if old else news, [])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        return DiffResult(changes=calls.leads_elsewhere(_plain(olds), _plain(news)))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        outs = calls.rerouted(_plain(olds), _plain(news))
        connect(outs["target"]).identity()  # a way that leads elsewhere is not written down
        return UpdateResult(outs)

    def delete(self, id_: str, props: Props) -> None:
        if id_ in _IN_USE:
            return
        p = _plain(props)
        swept = connect(p["target"]).sweep(id_, lambda note: _note([note]))
        _note(f"{name} has the label {id_} of this stack and is deleted" for name in swept)


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
    owner: pulumi.Output[str]
    target: pulumi.Output[Props]

    def __init__(self, name: str, props: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        outputs = {"uid": None, "phase": None, "owner": None, "generation": None}
        replace = pulumi.ResourceOptions(delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(replace, opts)
        super().__init__(JobSetProvider(), name, {**outputs, **props}, opts)


class Volume(_Resource, module="trainer", name="Volume"):
    """A volume of the target, by claim name."""

    namespace: pulumi.Output[str]
    name: pulumi.Output[str]
    path: pulumi.Output[str]
    generation: pulumi.Output[str]
    """New with each volume that is made, also where the name is the same."""

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


def _note(notes: Iterable[str]) -> None:
    """Prints notes as lines that the engine shows."""
    for note in notes:
        print(f"note: {plain(note)}", flush=True)


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
