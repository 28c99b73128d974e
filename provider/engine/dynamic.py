"""Adapts `lifecycle` to Pulumi's dynamic providers.

The engine starts one host process per run, unpickles the provider classes below by reference (so their module path and
names never change) and calls them, four calls at a time.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar

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
from pulumi_trainer.provider.engine.pulumi_compat import answer_with, few_frames
from pulumi_trainer.provider.engine.values import to_engine, to_plain
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.terminal import message, print_line
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.lifecycle.channels import ChannelInputs, Channels
from pulumi_trainer.provider.lifecycle.draining import QueueGuards, QueueInputs
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.jobs import Jobs
from pulumi_trainer.provider.lifecycle.model_versions import ModelVersionInputs, ModelVersions
from pulumi_trainer.provider.lifecycle.object_guard import ObjectGuards, ObjectInputs
from pulumi_trainer.provider.lifecycle.resource import MALFORMED_STATE, StateCalls, Stored
from pulumi_trainer.provider.lifecycle.runtimes import RuntimeInputs, Runtimes
from pulumi_trainer.provider.lifecycle.stack_targets import TargetInputs, Targets, UsedLabels, label_suffix
from pulumi_trainer.provider.lifecycle.state_format import FORGET, check_format, with_format
from pulumi_trainer.provider.lifecycle.volumes import VolumeInputs, Volumes
from pulumi_trainer.provider.targets.connection import CONFIGURED, configure, connect, warn_with
from pulumi_trainer.provider.targets.local import host_id

__all__ = [  # the components reach the lifecycle through this module
    "ChannelInputs",
    "JobInputs",
    "ModelVersionInputs",
    "ObjectInputs",
    "QueueInputs",
    "RuntimeInputs",
    "TargetInputs",
    "VolumeInputs",
]

T = TypeVar("T")
Props = dict[str, Any]

REFUSALS = "refusals"
"""Input of a preview that `check` fills instead of failing. No state has it."""
_report_refusals: list[Callable[[pulumi.Output[list[str] | None], pulumi.Resource | None], None]] = []


def report_refusals(report: Callable[[pulumi.Output[list[str] | None], pulumi.Resource | None], None]) -> None:
    """Set the function that is called in a preview with the refusals and the parent of each new resource."""
    _report_refusals[:] = [report]


def _with_plain_errors(call: Callable[..., T]) -> Callable[..., T]:
    """Return a provider call that reports mistakes of the user and malformed states to the engine as text, without a
    traceback."""

    @wraps(call)
    def wrapper(*args: Any) -> T:
        try:
            return call(*args)
        except TrainerError as error:
            answer = str(error)
        except MALFORMED_STATE as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            cause = f"{type(error).__name__}: {error}, {Path(last.filename).name}:{last.lineno}"
            answer = message(f"the state of this resource cannot be read ({cause}). {_IF_EDITED}. Hint: {FORGET}")
        answer_with(answer)
        raise Exception(answer)

    return wrapper


_IF_EDITED = "Was the state edited? `pulumi stack export` shows it. If it was not, please report this"


class _Provider(ResourceProvider):
    serialize_as_secret_always = False

    def __init_subclass__(cls) -> None:
        for name in ("check", "diff", "create", "update", "read", "delete"):
            if name in vars(cls):
                setattr(cls, name, _with_plain_errors(vars(cls)[name]))

    def configure(self, req: ConfigureRequest) -> None:
        # In a destroy without --run-program this is the configuration of the last update.
        configure({k: req.config.get(f"trainer:{k}") for k in CONFIGURED})
        warn_with(lambda warning: print_line(f"warning: {warning}"))
        logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it prints a traceback for each error that we raise
        _end_with_parent()

    def _recorded(self, props: Props) -> Props:
        """Return inputs or outputs of the state as plain data; empty for a new resource.

        Raises:
            Refused: They were written by a version with another format.
        """
        plain: Props = to_plain(props)
        if plain:
            kind = type(self).__name__.removesuffix("Provider")
            place = "/".join(filter(None, (text(plain.get("namespace")), text(plain.get("name")))))
            check_format(f"{kind} {place}".strip(), plain)
        return plain


def _note(notes: Iterable[str]) -> None:
    """Print notes as lines that the engine shows."""
    for note in notes:
        print_line(f"note: {note}")


def _random_suffix() -> str:
    """Return what distinguishes two stacks of one name."""
    checkpoints = os.environ.get("PULUMI_SKIP_CHECKPOINTS") not in ("1", "true")
    return label_suffix(secrets.token_hex(4), [host_id(), str(Path.cwd())], checkpoints=checkpoints)


class _LifecycleProvider(_Provider):
    """Passes each call on to `lifecycle`, with plain data."""

    calls: ClassVar[StateCalls[Any, Any]]

    def check(self, olds: Props, news: Props) -> CheckResult:
        plain = to_plain(news)
        is_preview = plain.pop(REFUSALS, None) is not None
        checked = self.calls.check(self._recorded(olds), plain, connect)
        _note(checked.notes)
        inputs, reasons = with_format(checked.inputs), [*map(message, checked.failures)]
        if is_preview and reasons:
            return CheckResult(to_engine({**inputs, REFUSALS: reasons}), [])
        # A failure that names a property would print its value, secrets included.
        return CheckResult(to_engine(inputs), [CheckFailure("", reason) for reason in reasons])

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        if REFUSALS in news:
            return DiffResult(changes=True)
        diff = self.calls.diff(self._recorded(olds), to_plain(news))
        _note(diff.notes)
        return DiffResult(changes=diff.changes, replaces=list(diff.replaces))

    def create(self, props: Props) -> CreateResult:
        id_, outs = self.calls.create(to_plain(props), connect)
        return CreateResult(id_, with_format(outs))

    def update(self, _id: str, olds: Props, news: Props) -> UpdateResult:
        return UpdateResult(with_format(self.calls.update(self._recorded(olds), to_plain(news), connect)))

    def read(self, id_: str, props: Props) -> ReadResult:
        outs, notes = self.calls.read(self._recorded(props), connect)
        _note(notes)
        return ReadResult("", {}) if outs is None else ReadResult(id_, with_format(outs))

    def delete(self, _id: str, props: Props) -> None:
        _note(self.calls.delete(self._recorded(props), connect))


_LABELS = UsedLabels()


class JobSetProvider(_LifecycleProvider):
    calls = StateCalls(Jobs(_LABELS))

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        diff = super().diff(_id, olds, news)
        diff.delete_before_replace = True
        return diff


class VolumeProvider(_LifecycleProvider):
    """Manages a volume that outlives the runs that use it. It keeps its name while its digest is the same."""

    calls = StateCalls(Volumes(_LABELS))


class RuntimeProvider(_LifecycleProvider):
    """Manages a runtime in a cluster in mode trainer."""

    calls = StateCalls(Runtimes())


class ChannelProvider(_LifecycleProvider):
    """Manages the release that a channel points to."""

    calls = StateCalls(Channels())


class ModelVersionProvider(_LifecycleProvider):
    """Manages the versions of a model in a registry."""

    calls = StateCalls(ModelVersions())


class QueueGuardProvider(_LifecycleProvider):
    """Protects a ClusterQueue: Pulumi deletes the guard first, which drains the queue or refuses."""

    calls = StateCalls(QueueGuards())


class ObjectGuardProvider(_LifecycleProvider):
    """Protects objects that pulumi-kubernetes creates: Pulumi changes the guard first, which refuses if another stack has one."""

    calls = StateCalls(ObjectGuards())


class TargetProvider(_LifecycleProvider):
    """Manages a target of a stack; its delete sweeps what a crash has left behind."""

    calls = StateCalls(Targets(_LABELS, _random_suffix, lambda note: _note([note])))


class StackMarkProvider(_Provider):
    """Manages the random part of the owner mark of objects that pulumi-kubernetes creates."""

    def check(self, olds: Props, news: Props) -> CheckResult:
        self._recorded(olds)
        return CheckResult(with_format(news), [])

    def create(self, props: Props) -> CreateResult:
        random = _random_suffix()
        return CreateResult(random, {**props, "random": random})

    def diff(self, _id: str, olds: Props, _news: Props) -> DiffResult:
        self._recorded(olds)
        return DiffResult(changes=False)


class _Resource(Resource):
    """A resource of the stack, with typed inputs; `computed` names the outputs that its creation makes."""

    make_provider: ClassVar[type[_Provider]]
    computed: ClassVar[tuple[str, ...]] = ()
    refusals: pulumi.Output[list[str] | None]
    """In a preview: why `check` refuses the resource. A failure would end the preview, and hide all other problems."""

    def __init__(self, name: str, inputs: Stored | None = None, opts: pulumi.ResourceOptions | None = None) -> None:
        self._opts = opts
        props: Props = dict.fromkeys(self.computed)
        asks = inputs is not None and pulumi.runtime.is_dry_run()
        if inputs is not None:
            props |= inputs.to_state()
        if asks:
            props[REFUSALS] = []
        with few_frames():
            super().__init__(self.make_provider(), name, props, opts)
        if asks:
            for report in _report_refusals:
                report(self.refusals, opts.parent if opts is not None else None)


class JobSet(_Resource, module="trainer", name="JobSet"):
    """The rendered objects of one job, as a resource."""

    make_provider = JobSetProvider
    computed = ("uid", "phase", "owner", "generation")
    namespace: pulumi.Output[str]
    name: pulumi.Output[str]
    uid: pulumi.Output[str]
    phase: pulumi.Output[str]
    owner: pulumi.Output[str]
    target: pulumi.Output[Props]

    def __init__(self, name: str, inputs: JobInputs, opts: pulumi.ResourceOptions) -> None:
        replace = pulumi.ResourceOptions(delete_before_replace=True)
        super().__init__(name, inputs, pulumi.ResourceOptions.merge(replace, opts))


class Volume(_Resource, module="trainer", name="Volume"):
    """A volume of the target, by claim name."""

    make_provider = VolumeProvider
    computed = ("path", "generation")
    namespace: pulumi.Output[str]
    name: pulumi.Output[str]
    path: pulumi.Output[str]
    generation: pulumi.Output[str]
    """Changes with each volume that is created, even if the name stays the same."""


class Runtime(_Resource, module="trainer", name="Runtime"):
    """A runtime in a cluster in mode trainer."""

    make_provider = RuntimeProvider
    computed = ("uid", "owner")
    uid: pulumi.Output[str]


class Channel(_Resource, module="trainer", name="Channel"):
    """The release of a runtime that a channel points to."""

    make_provider = ChannelProvider


class ModelVersion(_Resource, module="trainer", name="ModelVersion"):
    """The versions of a model in a registry."""

    make_provider = ModelVersionProvider
    computed = ("registered", "url", "digest")
    registered: pulumi.Output[str]
    url: pulumi.Output[str]
    digest: pulumi.Output[str]


class QueueGuard(_Resource, module="trainer", name="QueueGuard"):
    """Protects a ClusterQueue: Pulumi deletes the guard before the queue."""

    make_provider = QueueGuardProvider


class ObjectGuard(_Resource, module="trainer", name="ObjectGuard"):
    """Protects objects that pulumi-kubernetes creates: Pulumi changes the guard before it deletes one."""

    make_provider = ObjectGuardProvider


class TargetResource(_Resource, module="trainer", name="Target"):
    make_provider = TargetProvider
    computed = ("cluster", "sweep")
    sweep: pulumi.Output[str]
    """Label of all objects that the stack creates in the target."""
    cluster: pulumi.Output[str | None]
    """Identity of the cluster; None on this machine."""


class StackMark(_Resource, module="trainer", name="StackMark"):
    """The random part of the owner mark of objects that pulumi-kubernetes creates for this stack."""

    make_provider = StackMarkProvider
    computed = ("random",)
    random: pulumi.Output[str]


@lru_cache(maxsize=1)
def _end_with_parent() -> None:
    """End this host with the CLI: after a kill -9 of the CLI it would go on creating objects.

    Between the two may be a shell that survives as well.
    """
    parents = psutil.Process().parents()
    cli = next((p for p in parents if p.name() == "pulumi"), parents[0] if parents else None)

    def watch() -> None:
        while cli is None or (cli.is_running() and cli.status() != psutil.STATUS_ZOMBIE):
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
