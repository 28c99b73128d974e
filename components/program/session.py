"""The state that the components of one program share: their problems, their targets and their watch.

Components append problems and skip their resource. One `RunError` at the end reports all of them; a provider could only report
those of the first resource that fails.
"""

from __future__ import annotations

import asyncio
import dis
import itertools
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import pulumi
from pulumi_trainer.program import budgets, messages, queue_lints, targets
from pulumi_trainer.program.budgets import Started
from pulumi_trainer.program.object_owner import ObjectOwner, Place, guarded_object
from pulumi_trainer.program.queue_lints import ABOUT_QUEUES
from pulumi_trainer.program.removals import (
    Planned,
    Resources,
    jobs_by_name,
    losses,
    names_of_others,
    names_of_target,
    read_stack,
    recorded_cluster,
    refusals,
)
from pulumi_trainer.program.removed_queues import review_undeclared
from pulumi_trainer.program.severities import by_severity
from pulumi_trainer.program.targets import CONFIGURATION, Destination
from pulumi_trainer.program.watch import Watch
from pulumi_trainer.provider.engine import dynamic, pulumi_compat
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kubernetes.values.names import in_author_words
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.kueue.scheduling.snapshot import Contender
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.targets.connection import TargetInput, of_job, warn_with
from pulumi_trainer.provider.trainer.admission.author_hints import for_author
from pulumi_trainer.provider.trainer.labels import MADE_BY

EXIT = (
    "The program called sys.exit() before its resources were registered; Pulumi would delete everything in the stack. "
    "Nothing was changed.\nHint: let the program end by itself, or raise an exception"
)


_COMPONENT = re.compile(r'\w+\(".*?"\) \(.*?:\d+\)')
"""Prefix of a problem: its component, and the component's line in the program."""


@dataclass(frozen=True)
class _Guarded:
    """An object that `Program.guard` protects."""

    place: Place
    made: pulumi.Resource
    guarded: dict[str, Any]
    mark: pulumi.Input[str]
    connection: dict[str, Any]
    restored: Mapping[str, Any]


async def _until_cancelled() -> None:
    await asyncio.get_event_loop().create_future()


@dataclass
class Program:
    """One run of a Pulumi program.

    Attributes:
        promised: "Kind/name" of objects that the program creates in a cluster beside those of its jobs.
        queues: Kueue's objects of the program, in v1beta2, by cluster (`targets.cluster_key`); they change when values become
            known.
        queue_targets: The `target` inputs of these clusters, once they are known.
        has_network_policies: Whether the program makes NetworkPolicies, which may admit what those of a cluster do not.
        hardening: Cluster and namespace -> why its jobs are hardened; empty if its component does not want that.
        unmade_queues: Clusters of queues that are checked and not created, as the stack's target is Local.
        jobsets: The JobSets of the program, by the subdomain of their Pods.
        made: Kind, name and parent of a component -> file and line.
        fingerprints: Fingerprints of the files that jobs read, by URI and patterns.
        gpus_of_jobs: Cluster and namespace -> job -> its GPUs, of the jobs that are planned so far.
    """

    problems: list[Problem] = field(default_factory=list)
    targets: dict[str, dynamic.TargetResource] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    jobsets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    channels: set[str] = field(default_factory=set)
    jobs: dict[str, Planned] = field(default_factory=dict)
    queue_of: dict[str, Any] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    queues: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    queue_targets: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    hardening: dict[tuple[str, str], str] = field(default_factory=dict)
    unmade_queues: set[str] = field(default_factory=set)
    has_network_policies: bool = False
    clusters: list[Mapping[str, Any]] = field(default_factory=list)
    named: dict[str, list[Any]] = field(default_factory=dict)
    made: dict[tuple[str, str, pulumi.Resource | None], str] = field(default_factory=dict)
    fingerprints: dict[tuple[str, ...], asyncio.Future[str]] = field(default_factory=dict)
    registered: list[dynamic.JobSet | dynamic.Volume] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    failures: dict[str, None] = field(default_factory=dict)
    contenders: list[Contender] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    gpus_of_jobs: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    _answers: list[asyncio.Task[None]] = field(default_factory=list)
    _reported_warnings: set[str] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _reporting: bool = False
    _is_late: bool = False
    _reported_problems: int = 0
    _held: bool = False
    projects: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Folder, include and exclude -> the project, or why it is rejected."""
    _reported: asyncio.Task[pulumi.RunError | None] | None = None
    _turn: asyncio.Future[None] | None = None
    _stack: asyncio.Future[Resources] | None = None
    _stack_jobs: Mapping[tuple[Any, Any], Sequence[Mapping[str, Any]]] | None = None
    _claimed: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    _end: asyncio.Task[None] | None = None
    _mismatches: dict[str, asyncio.Future[list[Problem]]] = field(default_factory=dict)
    _clusters: dict[str, asyncio.Future[str]] = field(default_factory=dict)
    _owner: ObjectOwner | None = None
    _mark: dynamic.StackMark | None = None
    _guarded: dict[str, list[_Guarded]] = field(default_factory=dict)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run the rest of a component's construction, which awaits Outputs; report its problems at the end of the program."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        if self._is_late:
            _: pulumi.Output[bool] = pulumi.Output.from_input(self._raise_late_refusal(task))
        elif not self._reporting:
            self._reporting = True
            _ = pulumi.Output.from_input(self._raise_refusal())  # awaited with all other outputs
        return task

    def answer(self, work: Coroutine[Any, Any, None]) -> None:
        """Await an answer about a job of a preview; after all of them report what the plan uses and costs."""
        self._answers.append(asyncio.ensure_future(work))
        if len(self._answers) == 1:
            _: pulumi.Output[None] = pulumi.Output.from_input(self._report_costs())

    async def _report_costs(self) -> None:
        await self._wait_for_tasks()
        await asyncio.gather(*self._answers, return_exceptions=True)  # a resource that fails ends the program itself
        total = budgets.total_note(self.started)
        notes, found = await budgets.judge_budgets(self.started)
        found += await budgets.judge_names(self.started, [*itertools.chain.from_iterable(self.queues.values())])
        errors, warnings = by_severity(found, {})
        for note in filter(None, (total, *notes)):
            messages.info(note)
        for warning in warnings:
            messages.warn(warning)
        for error in errors:
            self.fail(str(error))

    def register(self, kind: str, name: str, parent: pulumi.Resource | None) -> None:
        """Register a component of the program.

        Raises:
            RunError: Another component has the name; Pulumi's own error would contain only the URN.
        """
        if self._end is None:
            self._end = asyncio.ensure_future(_until_cancelled())
            self._end.add_done_callback(self._refuse_exit)
            pulumi_compat.gather_debug_messages()
            if (
                pulumi.runtime.is_dry_run()
            ):  # for the resources that are removed; reading the stack adds a provider to the state
                self.stack_resources()
            else:
                pulumi_compat.export_known_values()
            self.spawn(asyncio.sleep(0))
        site = call_site()
        first = self.made.setdefault((kind, name, parent), site)
        if first is not site:
            raise messages.failure(
                f'{kind}("{name}") ({site}): another {kind} at {first} has the same name. Hint: give each a name of its own'
            )

    def claim(self, target: dict[str, Any], kind: str, namespace: Any, name: Any, where: str) -> list[Problem]:
        """Register an object that a component creates at a target; return a problem if another component creates one of that
        name.

        Args:
            namespace: Its namespace; an unknown one cannot be compared. Empty for an object of the cluster.
        """
        if isinstance(namespace, Unknown):
            return []
        first = self._claimed.setdefault((key(target), kind, str(namespace), str(name)), where)
        if first == where:
            return []
        return [Problem("name", f"{first} makes {kind} {name!r} too", f"give each {kind} a name of its own")]

    def await_with_rpcs(self) -> None:
        """Await the resources of the program together with Pulumi's RPCs. Each job calls this method.

        Pulumi awaits RPCs one after the other, but checks all Outputs each time that one is known, which takes most of the
        program's time with hundreds of jobs. When the program has run, no RPC has begun, so another awaitable has to precede the
        resources.
        """
        if not self._held:
            self._held = True
            self._reported = self._reported or asyncio.ensure_future(self._report())
            pulumi_compat.await_with_rpcs(self._reported)

    def stack_resources(self) -> asyncio.Future[Resources]:
        """Return the resources in the stack's state, which are read once for the whole program."""
        if self._stack is None:
            self._stack = asyncio.ensure_future(read_stack())
        return self._stack

    async def stack_jobs(self) -> Mapping[tuple[Any, Any], Sequence[Mapping[str, Any]]]:
        """Return the outputs of the JobSets in the stack's state, by namespace and name."""
        if self._stack_jobs is None:
            self._stack_jobs = jobs_by_name(await self.stack_resources())
        return self._stack_jobs

    async def object_owner(self) -> ObjectOwner:
        """Return this stack as the owner of objects that pulumi-kubernetes creates."""
        if self._owner is None:
            self._owner = ObjectOwner.of(await self.stack_resources())
        return self._owner

    async def owner_mark(self, place: Place, live: Mapping[str, Any]) -> pulumi.Input[str]:
        """Return the owner mark for an object: an Output if it has the random part, which the first such object draws."""
        owner = await self.object_owner()
        return owner.kept_mark(place, live) or await self.stack_mark()

    async def stack_mark(self) -> pulumi.Output[str]:
        """Return the owner mark of this stack, which the first object that it gives it to draws."""
        self._mark = self._mark or dynamic.StackMark("stack")
        return pulumi.Output.concat((await self.object_owner()).name, "/", self._mark.random)

    def guard(
        self,
        made: pulumi.Resource,
        kind: Kind,
        metadata: Mapping[str, Any],
        connection: dict[str, Any],
        restored: Mapping[str, Any],
    ) -> None:
        """Let an object of pulumi-kubernetes be deleted only while it belongs to this stack.

        Args:
            restored: What reverts changes by hand (`hand_edits.restoration`); empty: nothing was changed.
        """
        place = kind.group, kind.kind, text(metadata.get("namespace")), text(metadata["name"])
        mark = metadata["annotations"][MADE_BY]
        guarded = _Guarded(place, made, guarded_object(kind, metadata), mark, connection, restored)
        self._guarded.setdefault(key(connection), []).append(guarded)

    async def _register_guards(self) -> None:
        """Create a guard for the objects of each cluster, after all of them and the guards of queues: one check of all objects
        precedes all deletions.
        """
        queues = [result for result in self._results() if isinstance(result, dynamic.QueueGuard)]
        for number, at in enumerate(sorted(self._guarded), 1):
            guarded = sorted(self._guarded[at], key=lambda each: each.place)
            inputs = dynamic.ObjectInputs(
                target=guarded[0].connection,
                objects=[each.guarded for each in guarded],
                restored=[{**each.guarded, **each.restored} for each in guarded if each.restored],
                stack=(await self.object_owner()).name,
                mark=next((each.mark for each in guarded if isinstance(each.mark, pulumi.Output)), ""),
            )
            options = pulumi.ResourceOptions(depends_on=[*queues, *(each.made for each in guarded)])
            name = "objects"
            if number > 1:
                name = f"objects-{number}"
            dynamic.ObjectGuard(name, inputs, options)

    def _results(self) -> list[Any]:
        """Return what those tasks return that have succeeded."""
        return [task.result() for task in self._tasks if task.done() and not _has_failed(task)]

    async def cluster_mismatch(self, connection: dict[str, Any]) -> list[Problem]:
        """Return a problem if a connection leads to another cluster than the one that has the stack's jobs."""
        name = await self._reserve(connection)
        if name not in self._mismatches:
            self._mismatches[name] = asyncio.ensure_future(self._compared(connection, name))
        return await self._mismatches[name]

    async def _compared(self, connection: dict[str, Any], name: str) -> list[Problem]:
        if connection["kind"] != "kubernetes":
            return []
        recorded = recorded_cluster(await self.stack_resources(), name)
        if not recorded or recorded == await self.cluster(connection):
            return []
        return await asyncio.to_thread(queries.cluster_mismatch, connection, recorded)

    async def cluster(self, connection: dict[str, Any]) -> str:
        """Return the identity of a connection's cluster; empty if the stack has no such target, or the cluster is unreachable."""
        if connection["kind"] != "kubernetes" or not names_of_target(await self.stack_resources(), plain(connection)):
            return ""
        at = key(connection)
        if at not in self._clusters:
            self._clusters[at] = asyncio.ensure_future(asyncio.to_thread(queries.cluster_identity, connection))
        return await self._clusters[at]

    async def await_turn(self) -> None:
        """Let callers continue one after the other, in the order of their calls.

        The engine can then start the first jobs while the others are rendered.
        """
        before, mine = self._turn, asyncio.get_event_loop().create_future()
        self._turn = mine
        if before is not None:
            await before
        asyncio.get_event_loop().call_soon(mine.set_result, None)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Report problems that belong to no component."""
        self.problems.extend(problems)
        self.spawn(asyncio.sleep(0))

    def await_refusals(self, refusals: pulumi.Output[list[str] | None], component: pulumi.Resource | None) -> None:
        """Add what the provider finds wrong with a resource of a component to the problems of the preview."""
        self.spawn(self._add_refusals(refusals, component))

    async def _add_refusals(self, refusals: pulumi.Output[list[str] | None], component: pulumi.Resource | None) -> None:
        with suppress(Exception):  # a resource that fails ends the program itself
            found = await refusals.future() or []
            for reason in found:
                argument, separator, rest = reason.partition(": ")
                problem = Problem("", reason)
                if separator and argument.isidentifier():
                    problem = Problem(argument, rest)
                place = self._place_of(component)
                self.problems.append(problem.below(place) if place else problem)

    def _place_of(self, component: pulumi.Resource | None) -> str:
        """Return the prefix of the problems of a component; empty for None."""
        for (kind, name, _), site in self.made.items():
            if component is not None and (kind, name) == (type(component).__name__, component.pulumi_resource_name):
                return f'{kind}("{name}") ({site})'
        return ""

    def fail(self, text: str) -> None:
        """Let the program end with a failure, once it waits for no other job: Pulumi ends it with the first error."""
        if not self.failures:
            _: pulumi.Output[None] = pulumi.Output.from_input(self.raise_failures())
        self.failures[text] = None

    async def raise_failures(self) -> None:
        """Raise a RunError with all failures, once the program waits for no job."""
        await self.watch.end()
        raise messages.failure("\n\n".join(self.failures))

    async def _wait_for_tasks(self) -> None:
        while True:
            pending = [task for task in self._tasks if not task.done()]
            if not pending:
                return
            await asyncio.wait(pending)

    async def _report(self) -> pulumi.RunError | None:
        """Return the error with all problems, once all are known. If an exception ends the program, log the problems."""
        await self._wait_for_tasks()
        self._is_late = True
        for cluster, queues in self.queues.items():
            if cluster in self.unmade_queues:  # warnings about queues depend on their cluster
                continue
            target = self.queue_targets.get(cluster) or next(iter(self.clusters), None)
            refused, warnings = await queue_lints.queue_problems(queues, target)
            self.problems += refused
            for warning in filter(self.is_unreported, warnings):
                messages.warn(warning)
        for caution in dict.fromkeys(self.cautions):
            messages.warn(caution)
        if self._stack is not None and pulumi.runtime.is_dry_run():
            stack = await self._stack
            self.problems += await refusals(stack, self.channels, self.jobs)
            if not self.queues:
                owner = await self.object_owner()
                refused, warnings = await asyncio.to_thread(review_undeclared, stack, owner, self.queue_of)
                self.problems += refused
                for warning in warnings:
                    messages.warn(warning)
            if not self.problems:
                for text in await losses(stack, self.registered):
                    messages.warn(text)
        if not self.problems:
            if not pulumi_compat.has_failed():
                await self._register_guards()
            return None
        await self._await_creation()
        self._reported_problems = len(self.problems)
        failed = any(task.done() and _has_failed(task) for task in self._tasks)
        if not failed and not pulumi_compat.has_failed():
            return self.refusal(self.problems)
        messages.error(self.refusal(self.problems))
        return None

    async def _await_creation(self) -> None:
        """Wait until the valid resources are created, so that problems do not interrupt them."""
        for resource in self._results():
            if isinstance(resource, pulumi.CustomResource):
                await resource.id.future()

    async def _raise_refusal(self) -> bool:
        self._reported = self._reported or asyncio.ensure_future(self._report())
        refusal = await self._reported
        if refusal:
            raise refusal
        for task in filter(asyncio.Task.done, self._tasks):
            task.result()
        return True

    async def _raise_late_refusal(self, task: asyncio.Task[Any]) -> bool:
        """Report the problems of components that the program constructs after the report, for example once an Output is known."""
        if self._reported:
            await asyncio.wait([self._reported])
        await self._wait_for_tasks()
        late, self._reported_problems = self.problems[self._reported_problems :], len(self.problems)
        if late:
            await self._await_creation()
            refusal = self.refusal(late)
            if not pulumi_compat.has_failed():
                raise refusal
            messages.error(refusal)  # Pulumi raises one exception
        task.result()
        return True

    def _refuse_exit(self, _: asyncio.Task[None]) -> None:
        """Fail a program that calls sys.exit(), when Pulumi cancels its tasks.

        None of its components has been registered, and Pulumi takes exit code 0 for a program without resources, whose stack it
        empties.
        """
        exit_ = sys.exc_info()[1]
        if not isinstance(exit_, SystemExit):
            return
        if self.problems:
            messages.error(self.refusal(self.problems))
        if not exit_.code:
            messages.error(EXIT)
            raise SystemExit(1)

    def refusal(self, problems: Iterable[Problem]) -> pulumi.RunError:
        """Return the error with problems."""
        unique = list(dict.fromkeys(map(_placed, sorted(problems, key=self._order()))))
        lines = "\n".join(f"  {p}" for p in unique)
        count = plural(len(unique), "problem")
        return messages.failure(f"{count} found. These resources were not created or changed:\n{lines}")

    def _order(self) -> Callable[[Problem], int]:
        """Return a sort key for problems: the order of their components in the program, problems without a component last."""
        places = dict[str, int]()
        for at, ((kind, name, _), site) in enumerate(self.made.items()):
            places[f'{kind}("{name}") ({site})'] = at

        def place(problem: Problem) -> int:
            component = _COMPONENT.match(problem.where)
            if component is None:
                return len(places)
            return places.get(component[0], len(places))

        return place

    def created_objects(self, namespace: Any) -> set[str]:
        """Return "Kind/name" of the program's objects that a job of a namespace may refer to."""
        found = {*self.promised}
        for document in itertools.chain.from_iterable(self.queues.values()):
            metadata = document.get("metadata") or {}
            if metadata.get("namespace", namespace) == namespace:
                found.add(f"{document.get('kind')}/{metadata.get('name')}")
        return found

    def queues_of(self, destination: Destination) -> list[dict[str, Any]]:
        """Return Kueue's objects that the program creates in the cluster of a destination: those of the same settings, and those
        of the stack's cluster, which may be the same one."""
        keys = dict.fromkeys(("", targets.cluster_key(destination)))
        return [*itertools.chain.from_iterable(self.queues.get(each, []) for each in keys)]

    def should_report(self, warning: Problem) -> bool:
        """Return whether to report a warning of a job. A warning about a queue is reported only for the first job in it."""
        return not warning.where.startswith(ABOUT_QUEUES) or self.is_unreported(warning)

    def is_unreported(self, warning: Problem) -> bool:
        """Return whether a warning of a target was not reported yet. A warning that applies to all its jobs is reported once."""
        text = str(warning)
        known = "/" not in warning.where and text in self._reported_warnings
        self._reported_warnings.add(text)
        return not known

    async def _reserve(self, connection: dict[str, Any]) -> str:
        """Return the resource name of a target: that in the stack's state, else a new one in the order of the jobs."""
        at, known = key(connection), plain(connection)
        if at in self._names:
            return self._names[at]
        stack, cluster = await self.stack_resources(), await self.cluster(connection)
        others = {*names_of_others(stack, known), *self._names.values()}
        names = itertools.chain(names_of_target(stack, known, cluster), _names(known))
        return self._names.setdefault(at, next(name for name in names if name not in others))

    async def target(self, connection: dict[str, Any]) -> dynamic.TargetResource:
        """Return the resource of a target in this stack; one for all its jobs."""
        at = key(connection)
        name = await self._reserve(connection)
        if at not in self.targets:
            stack = short_digest([pulumi.get_project(), pulumi.get_stack(), name], 20)
            needs: list[pulumi.Resource] = []
            if isinstance(connection, TargetInput):
                needs += connection.needs
            options = pulumi.ResourceOptions(depends_on=needs)
            self.targets[at] = dynamic.TargetResource(
                name, dynamic.TargetInputs(target=connection, stack=stack), options
            )
        return self.targets[at]


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Return whether a task that is done was cancelled or has raised an exception."""
    return task.cancelled() or task.exception() is not None


def _names(connection: Mapping[str, Any]) -> Iterator[str]:
    """Yield names for a target. A cluster's name contains the namespace; a dot, which no namespace has, precedes the number."""
    namespace = connection.get("namespace")
    if isinstance(namespace, str):
        first, separator = f"{connection['kind']}-{namespace}", "."
    else:
        first, separator = str(connection["kind"]), "-"
    yield first
    for count in itertools.count(2):
        yield f"{first}{separator}{count}"


def target_input(connection: Mapping[str, Any], target: dynamic.TargetResource) -> dict[str, Any]:
    """Return the `target` input for resources of a target, which belong to its cluster and no other."""
    made = {**of_job(connection)}
    if connection["kind"] == "kubernetes":
        made["cluster"] = target.cluster
    made["sweep"] = target.sweep
    return made


def key(connection: dict[str, Any]) -> str:
    """Return a text that is equal for connections to the same target, as far as their values are known."""
    known: dict[str, Any] = {}
    for name, value in plain(connection).items():
        if isinstance(value, pulumi.Output):
            known[name] = "unknown"
        else:
            known[name] = value
    return str(sorted(known.items(), key=lambda item: item[0]))


def plain(connection: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a connection without the values that are resolved on use."""
    if isinstance(connection, TargetInput):
        return connection.plain
    return connection


_programs: WeakKeyDictionary[asyncio.AbstractEventLoop, Program] = WeakKeyDictionary()


def current() -> Program:
    """Return the running program."""
    loop = asyncio.get_event_loop()
    if loop not in _programs:
        _programs[loop] = Program()
        warn_with(_programs[loop].cautions.append)
        dynamic.report_refusals(_programs[loop].await_refusals)
    return _programs[loop]


def _placed(problem: Problem) -> Problem:
    """Return a problem in words for its author; without its component if it is one of the stack's configuration, which is the
    same for all components.
    """
    if problem.type == CONFIGURATION:
        return replace(problem, where="")
    return for_author(replace(problem, why=in_author_words(problem.why)))


class UnknownName(AttributeError, pulumi.RunError):
    """A program uses a name that the package does not have. Pulumi prints it without a traceback, as it has the line."""


class UnknownImport(ImportError, pulumi.RunError):
    """The same in `from pulumi_trainer import name`, where Python would replace an AttributeError by a message without hint."""


def unknown_name(why: str, user: FrameType) -> UnknownName | UnknownImport:
    """Return the error of a name that the package does not have."""
    imports = dis.opname[user.f_code.co_code[user.f_lasti]] == "IMPORT_FROM"
    message = f"{call_site()}: {why}"
    if imports:
        return UnknownImport(message)
    return UnknownName(message)


def call_site() -> str:
    """Return `file:line` of the program that constructs a component."""
    here = str(Path(__file__).parents[1])
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
