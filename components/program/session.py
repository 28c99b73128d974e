"""What the components of one program share: their problems, their targets and their watch.

Components append problems and skip their resource; one `RunError` at the end tells all of them, since a provider could
only tell those of the first resource that fails.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pulumi
from pulumi.runtime.settings import SETTINGS, _get_rpc_manager
from pulumi.runtime.stack import run_pulumi_func
from pulumi_trainer.program import debug_messages, queue_lints
from pulumi_trainer.program.queue_lints import ABOUT_QUEUES
from pulumi_trainer.program.removals import (
    Planned,
    Resources,
    losses,
    names_of_target,
    read_stack,
    recorded_cluster,
    refusals,
)
from pulumi_trainer.program.targets import CONFIGURATION
from pulumi_trainer.program.watch import Watch
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.identity import short_digest

EXIT = (
    "The program called sys.exit() before its resources were registered; Pulumi would delete everything in the stack. "
    "Nothing was changed.\nHint: let the program end by itself, or raise an exception"
)


_COMPONENT = re.compile(r'\w+\(".*?"\) \(.*?:\d+\)')
"""How a problem begins: its component, and where the program makes it."""


async def _until_cancelled() -> None:
    await asyncio.get_event_loop().create_future()


@dataclass
class Program:
    """One run of a Pulumi program. promised: "Kind/name" of what it makes in a cluster beside its jobs' objects. queues: its
    objects of Kueue's, in v1beta2; they change while what is not known yet becomes known. clusters: the `target` inputs of
    clusters that it sends jobs to. jobsets: by the subdomain of their Pods. channels: their names. jobs: by namespace/name.
    queue_of: the queue of each job, by the job's name, as the program gives it. named: its jobs, by name. made: kind, name and
    parent of its components -> file and line. fingerprints: of the files that jobs read, by URI and patterns. registered: the
    resources of its jobs and volumes. cautions: what is unwise about the access to its clusters."""

    problems: list[Problem] = field(default_factory=list)
    targets: dict[str, dynamic.Target] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    jobsets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    channels: set[str] = field(default_factory=set)
    jobs: dict[str, Planned] = field(default_factory=dict)
    queue_of: dict[str, Any] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    queues: list[dict[str, Any]] = field(default_factory=list)
    clusters: list[Mapping[str, Any]] = field(default_factory=list)
    named: dict[str, list[Any]] = field(default_factory=dict)
    made: dict[tuple[str, str, pulumi.Resource | None], str] = field(default_factory=dict)
    fingerprints: dict[tuple[str, ...], asyncio.Future[str]] = field(default_factory=dict)
    registered: list[dynamic.JobSet | dynamic.Volume] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _telling: bool = False
    _held: bool = False
    _reported: asyncio.Task[pulumi.RunError | None] | None = None
    _turn: asyncio.Future[None] | None = None
    _stack: asyncio.Future[Resources] | None = None
    _claimed: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    _end: asyncio.Task[None] | None = None
    _elsewhere: dict[str, asyncio.Future[list[Problem]]] = field(default_factory=dict)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the rest of a component's construction, which has to await Outputs. Its problems are told at the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        if not self._telling:
            self._telling = True
            _: pulumi.Output[bool] = pulumi.Output.from_input(self._tell())  # awaited with all other outputs
        return task

    def construct(self, kind: str, name: str, parent: pulumi.Resource | None) -> None:
        """Remember a component of the program. Raises RunError where there is one of that name: Pulumi would end the program with
        no more than a URN."""
        if self._end is None:
            self._end = asyncio.ensure_future(_until_cancelled())
            self._end.add_done_callback(self._refuse_exit)
            debug_messages.gather()
            if pulumi.runtime.is_dry_run():  # which tells what leaves the program; to ask costs the state a provider
                self.look_back()
            self.spawn(asyncio.sleep(0))
        site = call_site()
        first = self.made.setdefault((kind, name, parent), site)
        if first is not site:
            raise pulumi.RunError(
                f'{kind}("{name}") ({site}): there is one of this name at {first}; give each its own name'
            )

    def claim(self, target: dict[str, Any], kind: str, namespace: Any, name: Any, where: str) -> list[Problem]:
        """Remember an object that a component makes at a target; a problem if another component makes one of that name."""
        if isinstance(namespace, Unknown):
            return []
        first = self._claimed.setdefault((key(target), kind, str(namespace), str(name)), where)
        if first == where:
            return []
        return [Problem("name", f"{first} makes {kind} {name!r} too", f"give each {kind} a name of its own")]

    def hold(self) -> None:
        """Called by each job. Pulumi awaits RPCs one after the other, and then Outputs by a look at all of them each time that
        one is known: with hundreds of jobs most of the program's time. None of our RPCs has begun when the program has run, so
        there has to be another one until the resources are registered."""
        if not self._held:
            self._held = True
            self._reported = self._reported or asyncio.ensure_future(self._report())
            _get_rpc_manager().rpcs.append(self._reported)

    def look_back(self) -> asyncio.Future[Resources]:
        """Return what the stack has; it is asked once for the whole program."""
        if self._stack is None:
            self._stack = asyncio.ensure_future(read_stack())
        return self._stack

    async def elsewhere(self, connection: dict[str, Any]) -> list[Problem]:
        """Return that a connection leads to another cluster than the one where the stack has its jobs."""
        name = self.reserve(connection, await self.look_back())
        if name not in self._elsewhere:
            self._elsewhere[name] = asyncio.ensure_future(self._compared(connection, name))
        return await self._elsewhere[name]

    async def _compared(self, connection: dict[str, Any], name: str) -> list[Problem]:
        if connection["kind"] != "kubernetes":
            return []
        recorded = recorded_cluster(await self.look_back(), name)
        return await asyncio.to_thread(dynamic.elsewhere, connection, recorded) if recorded else []

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

    async def _report(self) -> pulumi.RunError | None:
        """Return the error that tells all problems, once all is known. If an exception ends the program, show them beside it."""
        await self._quiet()
        if self.queues:
            refused, told = await queue_lints.of_queues(self.queues, self.clusters)
            self.problems += refused
            for warning in filter(self.news, told):
                pulumi.log.warn(str(warning))
        for caution in dict.fromkeys(self.cautions):
            pulumi.log.warn(str(caution))
        if self._stack is not None and pulumi.runtime.is_dry_run():
            stack = await self._stack
            self.problems += await refusals(stack, self.channels, self.jobs)
            for text in [] if self.problems else await losses(stack, self.registered):
                pulumi.log.warn(text)
        if not self.problems:
            return None
        results = [task.result() for task in self._tasks if not task.cancelled() and task.exception() is None]
        for resource in results:  # what is right is not cut off by what is wrong elsewhere
            if isinstance(resource, pulumi.CustomResource):
                await resource.id.future()
        if len(results) == len(self._tasks) and not _ends_with_exception():
            return self.refusal()
        pulumi.log.error(str(self.refusal()))
        return None

    async def _tell(self) -> bool:
        self._reported = self._reported or asyncio.ensure_future(self._report())
        if refusal := await self._reported:
            raise refusal
        for task in self._tasks:
            task.result()
        return True

    def _refuse_exit(self, _: asyncio.Task[None]) -> None:
        """Fail a program that ends itself by sys.exit(), when Pulumi cancels its tasks: none of its components has been
        registered, and Pulumi takes exit code 0 for a program without resources, whose stack it empties."""
        exit_ = sys.exc_info()[1]
        if not isinstance(exit_, SystemExit):
            return
        if self.problems:
            pulumi.log.error(str(self.refusal()))
        if not exit_.code:
            pulumi.log.error(EXIT)
            raise SystemExit(1)

    def refusal(self) -> pulumi.RunError:
        """Return the error that tells all problems found so far."""
        unique = list(dict.fromkeys(map(_placed, sorted(self.problems, key=self._order()))))
        count = "1 problem" if len(unique) == 1 else f"{len(unique)} problems"
        lines = "\n".join(f"  {p}" for p in unique)
        return pulumi.RunError(f"{count}; nothing was sent for what is named here:\n{lines}")

    def _order(self) -> Callable[[Problem], int]:
        """Return what orders problems as the program makes their components; those of no component come last."""
        places = {f'{kind}("{name}") ({site})': at for at, ((kind, name, _), site) in enumerate(self.made.items())}

        def place(problem: Problem) -> int:
            named = _COMPONENT.match(problem.where)
            return places.get(named[0], len(places)) if named else len(places)

        return place

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

    def reserve(self, connection: dict[str, Any], stack: Resources = ()) -> str:
        """The name of the resource that stands for a target: that which the stack has for it, else in the order in which jobs
        ask for it."""
        at, known = key(connection), plain(connection)
        namespace = known.get("namespace")
        kind = f"{known['kind']}-{namespace}" if isinstance(namespace, str) else str(known["kind"])
        counted = (f"{kind}-{count}" if count > 1 else kind for count in itertools.count(1))
        names = itertools.chain(names_of_target(stack, kind, known), counted)
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
    known = {k: v if not isinstance(v, pulumi.Output) else "unknown" for k, v in plain(connection).items()}
    return str(sorted(known.items(), key=lambda item: item[0]))


def plain(connection: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a target is reached, without what is resolved where it is used."""
    return connection.plain if isinstance(connection, dynamic.Reach) else connection


_programs: WeakKeyDictionary[asyncio.AbstractEventLoop, Program] = WeakKeyDictionary()


def current() -> Program:
    """The program that is being run."""
    loop = asyncio.get_event_loop()
    if loop not in _programs:
        _programs[loop] = Program()
        dynamic.warn_with(_programs[loop].cautions.append)
    return _programs[loop]


def _placed(problem: Problem) -> Problem:
    """Return a problem of the stack's configuration without the component that met it: it is the same for all of them."""
    return replace(problem, where="") if problem.type == CONFIGURATION else problem


def _ends_with_exception() -> bool:
    """Return whether the program ends with an exception of its own or of Pulumi's; a RunError of ours would replace it."""
    outputs: Any = SETTINGS.outputs  # type: ignore[attr-defined,unused-ignore]  # pyright: ignore[reportAttributeAccessIssue]
    failed = [output for output in outputs if output.done() and not output.cancelled() and output.exception()]
    return bool(failed or _get_rpc_manager().unhandled_exception or _raised())


def _raised() -> BaseException | None:
    """Return the exception that has ended the code of the program. Pulumi keeps it in a variable until all RPCs are done."""
    for task in asyncio.all_tasks():
        awaited: Any = task.get_coro()
        while awaited is not None:
            if getattr(awaited, "cr_code", None) is run_pulumi_func.__code__:
                raised: BaseException | None = awaited.cr_frame.f_locals.get("ex")
                return raised
            awaited = getattr(awaited, "cr_await", None)
    return None


def call_site() -> str:
    """`file:line` of the program that constructs a component."""
    here = str(Path(__file__).parents[1])
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
