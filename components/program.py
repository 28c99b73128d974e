"""What the components of one program share: their problems, their targets and their watch.

Components append problems and skip their resource; one `RunError` at the end tells all of them, since a provider could
only tell those of the first resource that fails.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime.settings import _get_rpc_manager
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.lifecycle.identity import short_digest

from . import lints
from .lints import ABOUT_QUEUES
from .watch import Watch


@dataclass
class Program:
    """One run of a Pulumi program. promised: "Kind/name" of what it makes in a cluster beside its jobs' objects. queues: its
    objects of Kueue's, in v1beta2; they change while what is not known yet becomes known. clusters: the `target` inputs of
    clusters that it sends jobs to. jobsets: by the subdomain of their Pods."""

    problems: list[Problem] = field(default_factory=list)
    targets: dict[str, dynamic.Target] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    jobsets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    queues: list[dict[str, Any]] = field(default_factory=list)
    clusters: list[Mapping[str, Any]] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _telling: bool = False
    _held: bool = False
    _turn: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the rest of a component's construction, which has to await Outputs. Its problems are told at the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        if not self._telling:
            self._telling = True
            _: pulumi.Output[bool] = pulumi.Output.from_input(self._tell())  # awaited with all other outputs
        return task

    def hold(self) -> None:
        """Called by each job. Pulumi awaits RPCs one after the other, and then Outputs by a look at all of them each time that
        one is known: with hundreds of jobs most of the program's time. None of our RPCs has begun when the program has run, so
        there has to be another one until the resources are registered."""
        if not self._held:
            self._held = True
            _get_rpc_manager().rpcs.append(asyncio.ensure_future(self._quiet()))

    async def turn(self) -> None:
        """Lets its callers go on one after the other, in the order of their calls: the first jobs are with the engine while the
        others are rendered."""
        before, mine = self._turn, asyncio.get_event_loop().create_future()
        self._turn = mine
        if before is not None:
            await before
        asyncio.get_event_loop().call_soon(mine.set_result, None)

    def tell(self, problems: Iterable[Problem]) -> None:
        """Adds problems that no component has."""
        self.problems.extend(problems)
        self.spawn(asyncio.sleep(0))

    async def _quiet(self) -> None:
        while pending := [t for t in self._tasks if not t.done()]:
            await asyncio.wait(pending)

    async def _tell(self) -> bool:
        await self._quiet()
        if self.queues:
            refused, told = await lints.of_queues(self.queues, self.clusters)
            self.problems += refused
            for warning in filter(self.news, told):
                pulumi.log.warn(str(warning))
        submitted = [resource for task in self._tasks if isinstance(resource := task.result(), pulumi.CustomResource)]
        if self.problems:
            for resource in submitted:  # what is right is not cut off by what is wrong elsewhere
                await resource.id.future()
            unique = list(dict.fromkeys(self.problems))
            count = "1 problem" if len(unique) == 1 else f"{len(unique)} problems"
            lines = "\n".join(f"  {p}" for p in unique)
            raise pulumi.RunError(f"{count}; nothing was sent for what is named here:\n{lines}")
        return True

    def makes(self, namespace: Any) -> set[str]:
        """ "Kind/name" of what it makes that a job of a namespace may name."""
        queues = [(d.get("kind"), d.get("metadata") or {}) for d in self.queues]
        near = {f"{kind}/{m.get('name')}" for kind, m in queues if m.get("namespace", namespace) == namespace}
        return self.promised | near

    def first(self, warning: Problem) -> bool:
        """Whether a warning of a job is to be told: what is wrong with a queue is told of the first job in it."""
        return not warning.where.startswith(ABOUT_QUEUES) or self.news(warning)

    def news(self, warning: Problem) -> bool:
        """Whether a warning of a target is to be told: what is true of all its jobs is told of the first."""
        text = str(warning)
        known = "/" not in warning.where and text in self._told
        self._told.add(text)
        return not known

    def reserve(self, connection: dict[str, Any]) -> str:
        """The name of the resource that stands for a target, given in the order in which jobs ask for it."""
        at, plain = key(connection), _plain(connection)
        namespace = plain.get("namespace")
        kind = f"{plain['kind']}-{namespace}" if isinstance(namespace, str) else str(plain["kind"])
        names = (f"{kind}-{count}" if count > 1 else kind for count in itertools.count(1))
        return self._names.setdefault(at, next(name for name in names if name not in self._names.values()))

    def target(self, connection: dict[str, Any]) -> dynamic.Target:
        """The resource that stands for a target in this stack; one for all jobs there."""
        at = key(connection)
        if at not in self.targets:
            name = self.reserve(connection)
            stack = short_digest([pulumi.get_project(), pulumi.get_stack(), name], 20)
            needs = connection.needs if isinstance(connection, dynamic.Reach) else ()
            options = pulumi.ResourceOptions(depends_on=list(needs))
            self.targets[at] = dynamic.Target(name, {"target": connection, "stack": stack}, options)
        return self.targets[at]


def bound(connection: Mapping[str, Any], target: dynamic.Target) -> dict[str, Any]:
    """The `target` input of what belongs to a target: in the cluster where that was made, and in no other."""
    cluster = {"cluster": target.cluster} if connection["kind"] == "kubernetes" else {}
    return {**connection, **cluster, "sweep": target.sweep}


def key(connection: dict[str, Any]) -> str:
    """Equal for connections to the same target, as far as their values are known."""
    known = {k: v if not isinstance(v, pulumi.Output) else "unknown" for k, v in _plain(connection).items()}
    return str(sorted(known.items(), key=lambda item: item[0]))


def _plain(connection: Mapping[str, Any]) -> Mapping[str, Any]:
    return connection.plain if isinstance(connection, dynamic.Reach) else connection


_programs: WeakKeyDictionary[asyncio.AbstractEventLoop, Program] = WeakKeyDictionary()


def current() -> Program:
    """The program that is being run."""
    loop = asyncio.get_event_loop()
    if loop not in _programs:
        _programs[loop] = Program()
    return _programs[loop]


def call_site() -> str:
    """`file:line` of the program that constructs a component."""
    here = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
