"""The base of all components that run a job: one resource with the rendered objects, and the wait for the job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import as_mapping, python_path
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import restore_outputs
from pulumi_trainer.program import dependencies, messages, session, targets
from pulumi_trainer.program.removals import JOBSET, URN, Planned, urn_of_job
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.watch import Watched
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.engine.pulumi_compat import add_child, aliases_of, known_output
from pulumi_trainer.provider.jobs.manual import STOPPED
from pulumi_trainer.provider.jobs.progress import kept_progress
from pulumi_trainer.provider.jobs.status import NOT_STARTED, TAKE_BACK, JobStatus, Owner, Phase
from pulumi_trainer.provider.jobs.submission import to_state
from pulumi_trainer.provider.jobs.tracking import where_tracked
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import message, plain
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.start_answers import start_notes, waiting_notes


async def _name_scope(target: Destination | None) -> tuple[str, str] | None:
    """Return a value that is equal for destinations in which a name must be unique; None for a rejected destination."""
    if targets.problems(target):
        return None
    place = await targets.place(targets.choose(target))
    return session.key(place.target), str(place.namespace)


def _text(content: Any, unknown: Mapping[str, pulumi.Output[Any]]) -> Any:
    """Return content as JSON; an Output if the content has unknown or secret values."""
    leaf = first_unknown(content)
    if leaf is None:
        return json.dumps(content)
    return unknown[leaf.token].apply(str)


def _outputs(status: JobStatus | None) -> dict[str, Any]:
    return _with_value({name: of(status) for name, of in OUTPUTS.items()})


def _with_value(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


OUTPUTS: dict[str, Callable[[JobStatus | None], Any]] = {
    "phase": lambda s: s and s.phase,
    "reason": lambda s: s and s.reason,
    "message": lambda s: s and s.message,
    "steps": lambda s: s and [_with_value(vars(step)) for step in s.steps],
    "progress": lambda s: (
        s and s.progress and {"metrics": {}, "lastUpdatedTime": "", **(kept_progress(s.progress) or {})}
    ),
    "output_path": lambda s: s and s.output,
    "tracking_link": lambda s: s and where_tracked(s),
    "run_inputs": lambda s: s and s.inputs,
    "seconds": lambda s: s and _seconds(s),
}
"""Outputs of a job component, from its status; None if the job was rejected."""


def _seconds(status: JobStatus) -> float | None:
    """Return how long a job ran; None if it has not ended."""
    if not status.finished or not status.started:
        return None
    return round(status.finished - status.started, 1)


class JobComponent(pulumi.ComponentResource):
    """A component with one JobSet resource. It registers no outputs of its own, which would make the engine write the whole state
    once more for each job.
    """

    where: str
    misnamed: list[Problem]
    refused = False
    another_run = "It does not run again while the program stays the same: fix the cause, set another run= key, or use"
    """How to run a failed job again; a command follows."""
    has_run_key = True
    """Whether the component has the argument `run`."""

    may_fail = False
    """Whether a failure of the job is a warning although the program waits for it."""

    expected_hours: float | None = None
    """Hours that the program expects a run to take."""

    _sweep: Any = ""
    _timeouts: Mapping[str, Any] = MappingProxyType({})

    def start(
        self,
        name: str,
        target: Destination | None,
        plan: Callable[[], Any],
        wait_for: str,
        site: str,
        opts: pulumi.ResourceOptions | None,
        timeouts: Mapping[str, Any] | None = None,
    ) -> None:
        """Submit the job, and wait for it."""
        self._named = (name, target)
        self.wait_for = wait_for
        self.to_the_end = wait_for == "complete"
        session.current().named.setdefault(name, []).append(self)
        self._timeouts = as_mapping(timeouts)
        self._site = site
        self._opts = opts or pulumi.ResourceOptions()
        self.volumes: dict[str, dynamic.Volume] = {}
        self.retained_volumes = set[str]()
        self._log_step = ""
        self._before = list[pulumi.Resource]()
        session.current().await_with_rpcs()
        self._resource = session.current().spawn(self._submit(plan))
        self.status = self._until(wait_for, at_least=True)
        add_child(self, _Reached(self))

    @property
    def name_in_target(self) -> str:
        """Return the name of its JobSet or TrainJob."""
        return self._named[0]

    async def submitted(self) -> dynamic.JobSet | None:
        """Return the resource of the job; None if the plan has rejected it."""
        resource: dynamic.JobSet | None = await self._resource
        return resource

    @property
    def outputs(self) -> pulumi.Output[dict[str, Any]]:
        """Return all outputs with a value as one."""
        return self.status.apply(_outputs)

    @property
    def reached(self) -> pulumi.Output[JobStatus | None]:
        """Return the job's status once it has reached its `wait_for`; unknown in an `up` if it has failed before."""
        if self.to_the_end and self.wait_for != "complete":
            return self.until(self.wait_for)
        return self.status

    def until(self, wait_for: str) -> pulumi.Output[JobStatus | None]:
        """Return the job's status once it has reached `wait_for`; unknown in a preview of a job that does not exist."""
        self.to_the_end |= wait_for == "complete"
        return self._until(wait_for)

    def _until(self, wait_for: str, *, at_least: bool = False) -> pulumi.Output[JobStatus | None]:
        """Return the job's status once it has reached `wait_for`.

        Args:
            at_least: Wait for the end of the job if another output of the program does, so that all outputs show the same moment.
        """
        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        return pulumi.Output({self}, self._wait(wait_for, known, at_least=at_least), known)

    async def _submit(self, make_plan: Callable[[], Any]) -> dynamic.JobSet | None:
        here = session.current()
        await here.await_turn()
        plan: Plan = await make_plan()
        self._before = [*plan.needs, *plan.resolved.depends_on]
        problems = merge_problems(self.misnamed, plan.problems) + await self._duplicate_name_problems()
        here.jobs[f"{plan.namespace}/{plan.name}"] = Planned(plan.content_digest, plan.job.runtime.get("channel", ""))
        problems = problems or self._object_conflicts(plan)
        problems = problems or await self._review(plan)
        if problems:
            self.refused = True
            where = f"{self.where} ({self._site})"
            here.problems += [replace(p, where=python_path(p.where)).below(where) for p in problems]
            return None
        # As a plain string: as an Output, a child's property would depend on its own parent.
        made = self._register(plan, await here.target(plan.target), await self.urn.future() or "")
        if pulumi.runtime.is_dry_run():
            here.answer(self._answer(plan, made))
        return made

    async def _review(self, plan: Plan) -> list[Problem]:
        """Return why the target would reject the job; log warnings and notes."""
        here = session.current()
        if plan.target["kind"] == "kubernetes":
            here.clusters.append(plan.target)
        before = [*await dependencies.explicit(self._opts), *self._before]
        promised, awaited = frozenset(here.created_objects(plan.namespace)), await dependencies.made_by(before)
        warnings = list[Problem]()
        refusals = [*await here.cluster_mismatch(plan.target), *await self._name_problems(plan)]
        if not refusals:
            refusals, warnings = await asyncio.to_thread(plan.review, promised, awaited, await self.urn.future() or "")
        for warning in (*filter(here.should_report, plan.warnings), *filter(here.is_unreported, warnings)):
            messages.warn(warning, self)
        for note in plan.notes:
            if here.is_unreported(Problem("", note)):  # jobs of one project have the same notes about its files
                messages.info(note, self)
        return refusals

    async def _name_problems(self, plan: Plan) -> list[Problem]:
        """Return a problem if another resource of the stack has this job's name in its target, for example before a rename.

        A job with an alias, or that adopts, has no such problem.
        """
        cluster, namesakes = await session.current().cluster(plan.target), await session.current().stack_jobs()
        same_name = namesakes.get((plan.namespace, plan.name), ())
        urn_of_other = urn_of_job(same_name, session.plain(plan.target), cluster)
        urn, name = await self.urn.future() or "", self.pulumi_resource_name
        if not urn_of_other or plan.job.adopt or urn_of_other == f"{urn.removesuffix(f'::{name}')}${JOBSET}::{name}":
            return []
        other = urn_of_other.rpartition("::")[2]
        if aliases_of(self):
            stack = await session.current().stack_resources()
            if not {urn, urn_of_other.replace(f"${JOBSET}", "")} <= {str(outputs[URN]) for _, outputs in stack}:
                return []
            why = (
                f"belongs to {other!r}, but a rejected update has also left {name!r} in the stack, so no alias applies"
            )
            return [Problem("name", f"{plan.namespace}/{plan.name} {why}", f"run `pulumi state delete '{urn}'` first")]
        if any(job.pulumi_resource_name == other for job in chain.from_iterable(session.current().named.values())):
            hint = "give this job another name with name="
        else:
            alias = f"opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name={other!r})])"
            hint = f"if {other!r} was renamed, set {alias}; else give this job another name with name="
        return [Problem("name", f"in the stack, {plan.namespace}/{plan.name} belongs to {other!r}", hint)]

    async def _duplicate_name_problems(self) -> list[Problem]:
        """Return a problem for each other job of the program that has the same name at the same target."""
        name, target = self._named
        others = [job for job in session.current().named[name] if job is not self]
        if not others:
            return []
        scope = await _name_scope(target)
        if scope is None:
            return []
        found = list[Problem]()
        for job in others:
            if await _name_scope(job._named[1]) == scope:
                why = f"{job.where} ({job._site}) has the name {name!r} too"
                found.append(Problem("name", why, "give each job its own name"))
        return found

    def _object_conflicts(self, plan: Plan) -> list[Problem]:
        """Return a problem if another component of the program creates an object with the name of one of the job's."""
        if plan.target["kind"] != "kubernetes":
            return []
        keys = {f"ConfigMap/{plan.name}", *plan.objects, *plan.made}  # the first is the record of the job
        keys |= {claim.key for claim in plan.claims.values()}
        if plan.resolved.secrets:
            keys.add(f"Secret/{plan.secret_name}")
        where = f"{self.where} ({self._site})"
        found = list[Problem]()
        for key in sorted(keys):
            kind, _, name = key.partition("/")
            found += session.current().claim(plan.target, kind, plan.namespace, name, where)
        return [replace(p, hint="give one of the two another name with name=") for p in found[:1]]

    def _register(self, plan: Plan, target: dynamic.TargetResource, urn: str) -> dynamic.JobSet:
        self._sweep = target.sweep
        self._log_step = plan.log_step
        unknown = {**plan.resolved.unknown}
        retained = bool(self._opts.retain_on_delete)  # children do not inherit it, and a job keeps what it has written
        for token, each in plan.claims.items():
            claim = replace(each, retain=each.retain or retained)
            if claim.retain:
                self.retained_volumes.add(token)
            session.current().promised.add(claim.key)
            namespace = restore_outputs(plan.namespace, unknown)
            place = session.target_input(plan.with_workers([claim.key]), target)
            self.volumes[token] = claim.resource(place, namespace, self, target, urn, adopt=bool(plan.job.adopt))
            unknown[token] = self.volumes[token].name
        digest = plan.content_digest
        if isinstance(digest, Unknown):
            digest = pulumi.Output.all(*unknown.values()).apply(str)  # as unknown as they are
        unknown |= {f"{token}.generation": volume.generation for token, volume in self.volumes.items()}
        inputs = replace(
            dynamic.JobInputs.from_state(restore_outputs(plan.job.to_state(), unknown)),
            target=session.target_input(plan.with_workers(plan.copied_objects), target),
            component=urn,
            objects=known_output(restore_outputs(to_state(plan.objects), unknown)),
            digest=digest,
            retain=retained,
        )
        if plan.arguments is not None:
            inputs = replace(inputs, arguments=_text(plan.arguments, unknown))
        if plan.resolved.secrets:
            inputs = replace(inputs, secrets={plan.secret_name: plan.resolved.secrets})
        made = dynamic.JobSet(
            self.pulumi_resource_name, inputs, self.child_options([target, *self.volumes.values(), *self._before])
        )
        session.current().registered += [made, *self.volumes.values()]
        return made

    def child_options(self, depends_on: list[pulumi.Resource]) -> pulumi.ResourceOptions:
        """Return options for the JobSet: children do not inherit these options, which are meant for the job."""
        given = self._opts
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=depends_on,
            ignore_changes=given.ignore_changes,
            replace_on_changes=given.replace_on_changes,
            retain_on_delete=given.retain_on_delete,
            custom_timeouts=given.custom_timeouts,
            deleted_with=given.deleted_with,
        )

    async def _wait(self, wait_for: str, known: asyncio.Future[bool], *, at_least: bool) -> JobStatus | None:
        with session.current().watch.expect_end():
            status, is_known = await self._reach(wait_for, at_least=at_least)
        known.set_result(is_known)
        return status

    async def _reach(self, wait_for: str, *, at_least: bool) -> tuple[JobStatus | None, bool]:
        """Return the status of the job once it has reached a stage, and whether the outputs of the job are known.

        In an `up` they are unknown if the wait has failed: nothing is made of them then, and other outputs have their values.
        """
        preview = pulumi.runtime.is_dry_run()
        if not preview and not await _have_reached(await dependencies.explicit(self._opts)):
            return None, False
        resource = await self._resource
        if at_least and self.to_the_end:
            wait_for = "complete"
        if resource is None:
            return None, not preview  # a preview knows nothing of a refused job: no function of the program gets a None
        if not preview and not await _have_reached(self._before):
            return None, False
        if not await resource.uid.is_known():
            return None, False
        target, namespace, name = [await o.future() for o in (resource.target, resource.namespace, resource.name)]
        assert target is not None and namespace is not None and name is not None
        try:
            uid, phase, owner_id = [await o.future() or "" for o in (resource.uid, resource.phase, resource.owner)]
            owner = Owner(owner_id, str(target.get("sweep") or ""))
            now = queries.cached_status(target, namespace, name, uid, phase, owner)
            waits = not preview and wait_for != "created"
            if now is not None and not owner.owns(now.whose):
                text = (
                    f"{self.where}: {namespace}/{name} {now.whose.adopted_from(owner)}. It is left alone. {TAKE_BACK}"
                )
                return now, self._report(text, fails=waits)
            is_lost = now is not None and now.unknown_end and target.get("kind") == "local"
            if not waits or is_lost:
                return now, self._check_failure(now, wait_for if waits else None)
            stack = ""
            if isinstance(self._sweep, pulumi.Output):
                stack = await self._sweep.future() or ""
            watched = Watched(target, namespace, name, stack, self, wait_for, self._timeouts, self._log_step)
            status = await session.current().watch.until(watched)
        except TrainerError as error:
            return None, self._report(f"{self.where}: {error}", fails=True)
        if status is None:
            messages.warn(
                f"{namespace}/{name} no longer exists. Run `pulumi refresh`, then `pulumi up`, to create it again", self
            )
        return status, self._check_failure(status, wait_for)

    async def _answer(self, plan: Plan, made: dynamic.JobSet) -> None:
        """Log in a preview what the queue would do now with a new run, at whose expense or behind whom, and what it will cost; of
        an existing job, behind whom it waits.
        """
        if await made.uid.is_known():
            notes = await waiting_notes(plan, await self.status.future())
        else:
            documents = session.current().queues_of(targets.choose(self._named[1]))
            notes = await start_notes(plan, documents, self.expected_hours)
        for note in notes:
            messages.info(note, self)

    def _report(self, text: str, *, fails: bool) -> bool:
        """Report what is wrong with the job: as an error at the end of the program, or as a warning."""
        if fails:
            session.current().fail(text)
        else:
            messages.warn(text, self)
        return not fails

    def _check_failure(self, status: JobStatus | None, waited_for: str | None) -> bool:
        """Report a failed job, as a warning if it may fail or the program does not wait for it; and one that cannot start, if the
        program waits for it.
        """
        fails = bool(waited_for) and not self.may_fail
        if status is None:
            return True
        if waited_for and status.reason == NOT_STARTED:
            text = f"{self.where} {status.phase} ({status.reason})\n{message(status.message)}"
            return self._report(text, fails=fails)
        if status.phase not in (Phase.FAILED, Phase.DELETED, Phase.UNKNOWN):
            return True
        text = f"{self.where} {status.phase} ({plain(status.reason)})\n{message(status.message)}\n{self._next_step(status)}"
        return self._report(text, fails=fails)

    def _next_step(self, status: JobStatus) -> str:
        """Return what to do about a job that has failed. Nothing is wrong with one that a user has stopped."""
        if status.reason == STOPPED and self.has_run_key:
            return (
                f"It stays stopped while the program stays the same: use `pulumi-trainer rerun {self.pulumi_resource_name}`"
                " or set another run= key to run it again, or remove it from the program"
            )
        return f"{self.another_run} `pulumi up --replace '**{self.pulumi_resource_name}'`"


async def _have_reached(resources: Iterable[pulumi.Resource | None]) -> bool:
    """Wait for the jobs among some resources, as what depends on them does. Return False if the wait for one has failed."""
    return all([await each.reached.is_known() for each in resources if isinstance(each, JobComponent)])


class _Reached(pulumi.CustomResource):
    """Makes `depends_on=[job]` wait for the job's `wait_for`.

    Pulumi asks each child of the job for its URN. This child answers with the URN of the job's JobSet, once the job has reached
    its `wait_for`. The engine does not know this resource.
    """

    def __init__(self, job: JobComponent) -> None:
        super().__init__("", "", dependency=True)
        self.__dict__["urn"] = self
        self._job = job

    async def future(self) -> str:
        """Return the URN, as the Output of a URN does."""
        is_known = await self._job.reached.is_known()
        resource = await self._job._resource
        if resource is not None and not is_known and not pulumi.runtime.is_dry_run():
            await session.current().raise_failures()
        if resource is not None:
            return await resource.urn.future() or ""
        if pulumi.runtime.is_dry_run():
            return ""  # all problems of the program are reported at its end
        here = session.current()
        here.problems.append(Problem(self._job.where, "what depends on it is not created either"))
        raise here.refusal(here.problems)
