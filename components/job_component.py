"""What every component that runs something has in common: one resource with the rendered objects, and the wait for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import python_path
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import put_back
from pulumi_trainer.program import dependencies, session, targets
from pulumi_trainer.program.absent_outputs import known
from pulumi_trainer.program.removals import JOBSET, URN, Planned, holder
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.watch import Watched
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.progress import written
from pulumi_trainer.provider.api.status import (
    TAKE_BACK,
    JobStatus,
    Owner,
    Phase,
)
from pulumi_trainer.provider.api.submission import to_state
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.terminal import message, plain
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown


async def _located(target: Destination | None) -> tuple[str, str] | None:
    """Return what is equal for destinations of which a name may be taken once; None for one that is refused."""
    if targets.problems(target):
        return None
    place = await targets.place(targets.choose(target))
    return session.key(place.target), str(place.namespace)


def _text(content: Any, unknown: Mapping[str, pulumi.Output[Any]]) -> Any:
    """Return content as JSON; as unknown as what is in it."""
    leaf = first_unknown(content)
    return json.dumps(content) if leaf is None else unknown[leaf.token].apply(str)


OUTPUTS: dict[str, Callable[[JobStatus | None], Any]] = {
    "phase": lambda s: s and s.phase,
    "reason": lambda s: s and s.reason,
    "message": lambda s: s and s.message,
    "steps": lambda s: s and [{k: v for k, v in vars(step).items() if v} for step in s.steps],
    "progress": lambda s: s and s.progress and _progress(s.progress),
    "output_path": lambda s: s and s.output,
    "seconds": lambda s: s and (round(s.finished - s.started, 1) if s.finished and s.started else None),
}
"""Outputs of a job component, from its status; None where the job was refused."""


def _progress(given: dict[str, Any]) -> dict[str, Any]:
    """Trainer's trainerStatus as `Progress` has it: metrics by name. Jobs of earlier versions have the time in seconds."""
    metrics = [m for m in given.get("metrics") or [] if isinstance(m, Mapping) and "name" in m]
    updated = given.get("lastUpdatedTime", "")
    return {
        **given,
        "metrics": {str(m["name"]): str(m.get("value", "")) for m in metrics},
        "lastUpdatedTime": written(updated) if isinstance(updated, (int, float)) else str(updated or ""),
    }


class Job(pulumi.ComponentResource):
    """A component with one JobSet resource. It registers no outputs of its own: that makes the engine write the whole state once
    more for each job."""

    where: str
    misnamed: list[Problem]
    refused = False
    another_run = (
        "It is not run again while the program stays as it is: change what is wrong, give it another run= key, or use"
    )
    """What starts a failed job again, up to a command."""

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
        """Submits what `plan` (a coroutine function) says, and waits as far as `wait_for`, but not longer than `timeouts`. name,
        target: of the job, as they were given."""
        self._named = (name, target)
        self.wait_for = wait_for
        self.to_the_end = wait_for == "complete"
        session.current().named.setdefault(name, []).append(self)
        self._timeouts = timeouts if isinstance(timeouts, Mapping) else {}
        self._site = site
        self._opts = opts or pulumi.ResourceOptions()
        self.volumes: dict[str, dynamic.Volume] = {}
        session.current().hold()
        self._resource = session.current().spawn(self._submit(plan))
        self.status = self._until(wait_for, at_least=True)
        self._childResources.add(_Reached(self))

    @property
    def outputs(self) -> pulumi.Output[dict[str, Any]]:
        """All outputs in one, those that say something."""
        return self.status.apply(lambda status: {name: value for name, of in OUTPUTS.items() if (value := of(status))})

    def until(self, wait_for: str) -> pulumi.Output[JobStatus | None]:
        """The job's status once it has come as far as `wait_for`; unknown in a preview of a job that is not there."""
        self.to_the_end |= wait_for == "complete"
        return self._until(wait_for)

    def _until(self, wait_for: str, *, at_least: bool = False) -> pulumi.Output[JobStatus | None]:
        """at_least: until the job has ended if the program waits for that anywhere: all outputs tell of the same moment then."""
        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        return pulumi.Output({self}, self._wait(wait_for, known, at_least=at_least), known)

    async def _submit(self, make_plan: Callable[[], Any]) -> dynamic.JobSet | None:
        here = session.current()
        await here.turn()
        plan: Plan = await make_plan()
        plan.problems = merge_problems(self.misnamed, plan.problems) + await self._namesakes()
        here.jobs[f"{plan.namespace}/{plan.name}"] = Planned(
            (plan.content_digest, plan.former_digest), plan.runtime.get("channel", "")
        )
        if not plan.problems:
            if plan.target["kind"] == "kubernetes":
                here.clusters.append(plan.target)
            before = [*await dependencies.explicit(self._opts), *plan.needs, *plan.resolved.depends_on]
            promised, awaited = frozenset(here.makes(plan.namespace)), await dependencies.made_by(before)
            refusals, warnings = [*await here.elsewhere(plan.target), *await self._held(plan)], list[Problem]()
            if not refusals:
                refusals, warnings = await asyncio.to_thread(
                    plan.review, promised, awaited, await self.urn.future() or ""
                )
            plan.problems += refusals
            for warning in (*filter(here.first, plan.warnings), *filter(here.news, warnings)):
                pulumi.log.warn(str(warning), self)
            for note in plan.notes:
                pulumi.log.info(note, self)
        if plan.problems:
            self.refused = True
            where = f"{self.where} ({self._site})"
            here.problems += [replace(p, where=python_path(p.where)).below(where) for p in plan.problems]
            return None
        # As a plain string: as an Output, a child's property would depend on its own parent.
        return self._register(plan, here.target(plan.target), await self.urn.future() or "")

    async def _held(self, plan: Plan) -> list[Problem]:
        """Return a problem where another resource of the stack has this job's name in its target, as one does that was renamed
        with an alias; nothing for a job that has an alias itself, or adopts."""
        stack = await session.current().look_back()
        held = holder(stack, session.plain(plan.target), plan.namespace, plan.name)
        urn = await self.urn.future() or ""
        if not held or plan.adopt or held == f"{urn.removesuffix(f'::{self._name}')}${JOBSET}::{self._name}":
            return []
        other = held.rpartition("::")[2]
        if self._aliases:
            if not {urn, held.replace(f"${JOBSET}", "")} <= {str(outputs[URN]) for _, outputs in stack}:
                return []
            why = f"is the job of {other!r}, and a refused update has left {self._name!r} beside it: no alias applies"
            return [Problem("name", f"{plan.namespace}/{plan.name} {why}", f"run `pulumi state delete '{urn}'` first")]
        if any(job._name == other for jobs in session.current().named.values() for job in jobs):
            hint = "give this one another name there: name="
        else:
            alias = f"opts=pulumi.ResourceOptions(aliases=[pulumi.Alias(name={other!r})])"
            hint = f"if it is that one, renamed, say {alias}; else give this one another name there: name="
        return [Problem("name", f"the stack has {plan.namespace}/{plan.name} as the job of {other!r}", hint)]

    async def _namesakes(self) -> list[Problem]:
        """Return a problem for each other job of the program that has the same name at the same place."""
        name, target = self._named
        others = [job for job in session.current().named[name] if job is not self]
        mine = await _located(target) if others else None
        same = [job for job in others if mine is not None and await _located(job._named[1]) == mine]
        hint = "give each job a name of its own"
        return [Problem("name", f"{job.where} ({job._site}) is called {name!r} too", hint) for job in same]

    def _register(self, plan: Plan, target: dynamic.Target, urn: str) -> dynamic.JobSet:
        connection = session.bound(plan.target, target)
        self._sweep = target.sweep
        unknown = plan.resolved.unknown
        for token, claim in plan.claims.items():
            session.current().promised.add(claim.key)
            self.volumes[token] = claim.resource(connection, put_back(plan.namespace, unknown), self, target, urn)
            unknown[token] = self.volumes[token].name
        content = plan.content_digest
        if isinstance(content, Unknown):
            content = pulumi.Output.all(*unknown.values()).apply(str)  # as unknown as they are
        props = {
            "namespace": put_back(plan.namespace, unknown),
            "name": plan.name,
            "objects": known(put_back(to_state(plan.objects), unknown)),
            "digest": content,
            "run": plan.run,
            "runtime": put_back(plan.runtime, unknown),
            "target": connection,
            "component": urn,
            **({"arguments": _text(plan.arguments, unknown)} if plan.arguments is not None else {}),
            **({"formerDigest": plan.former_digest} if plan.former_digest else {}),
            **({"data": plan.data} if plan.data else {}),
            **({"fills": self.volumes[plan.fills].generation} if plan.fills else {}),
            **({"interrupt": plan.interrupt} if plan.interrupt != "refuse" else {}),
            **({"adopt": True} if plan.adopt else {}),
            **({"retain": True} if self._opts.retain_on_delete else {}),
        }
        if plan.resolved.secrets:
            props["secrets"] = {plan.secret_name: plan.resolved.secrets}
        made = dynamic.JobSet(
            self._name,
            props,
            self.child_options([target, *self.volumes.values(), *plan.needs, *plan.resolved.depends_on]),
        )
        session.current().registered += [made, *self.volumes.values()]
        return made

    def child_options(self, depends_on: list[pulumi.Resource]) -> pulumi.ResourceOptions:
        """A component's options do not reach its children by themselves; these mean the job itself."""
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
        try:
            resource = await self._resource
            wait_for = "complete" if at_least and self.to_the_end else wait_for
            # In a preview nothing is known of a refused job, so that no function of the program gets a None.
            exists = not pulumi.runtime.is_dry_run() if resource is None else await resource.uid.is_known()
            known.set_result(exists)
        except BaseException as error:
            known.set_exception(error)
            raise
        if resource is None or not exists:
            return None
        target, namespace, name = [await o.future() for o in (resource.target, resource.namespace, resource.name)]
        assert target is not None and namespace is not None and name is not None
        try:
            uid, phase, owner_id = [await o.future() or "" for o in (resource.uid, resource.phase, resource.owner)]
            owner = Owner(owner_id, str(target.get("sweep") or ""))
            now = dynamic.glance(target, namespace, name, uid, phase, owner)
            if now is not None and not owner.owns(now.whose):
                return self._lost(now, wait_for)
            if pulumi.runtime.is_dry_run() or wait_for == "created":
                return await self._judged(now, None)
            stack = await self._sweep.future() or "" if isinstance(self._sweep, pulumi.Output) else ""
            watched = Watched(target, namespace, name, stack, self, wait_for, self._timeouts)
            status = await session.current().watch.until(watched)
        except TrainerError as error:
            raise pulumi.RunError(f"{self.where}: {error}") from None
        if status is None:
            pulumi.log.warn(
                f"{namespace}/{name} is not there any more: `pulumi refresh`, then `pulumi up` makes it again", self
            )
        return await self._judged(status, wait_for)

    def _lost(self, status: JobStatus, waited_for: str) -> JobStatus:
        """A job that another stack has adopted fails a wait for it in an `up`, and is a warning elsewhere."""
        text = f"{self.where}: {status.namespace}/{status.name} {status.whose.adopted}. It is left alone. {TAKE_BACK}"
        if waited_for != "created" and not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(text)
        pulumi.log.warn(text, self)
        return status

    async def _judged(self, status: JobStatus | None, waited_for: str | None) -> JobStatus | None:
        """Return the status. A job that has failed fails a wait for it, and is a warning elsewhere."""
        if status is None or status.phase not in (Phase.FAILED, Phase.DELETED):
            return status
        text = (
            f"{self.where} {status.phase} ({plain(status.reason)})\n{message(status.message)}\n"
            f"{self.another_run} `pulumi up --replace '**{self._name}'`"
        )
        if waited_for:
            raise pulumi.RunError(await session.current().watch.failures(text))
        pulumi.log.warn(text, self)
        return status


class _Reached(pulumi.CustomResource):
    """Makes `depends_on=[job]` wait: it stands among the job's children, each of which Pulumi asks for its URN. This one answers
    with the URN of the job's own resource, once the job has come as far as its `wait_for`. The engine never sees it."""

    def __init__(self, job: Job) -> None:
        super().__init__("", "", dependency=True)
        self.__dict__["urn"] = self
        self._job = job

    async def future(self) -> str:
        """Return the URN, as the Output of one does. Raises RunError if the job fails or was refused."""
        job = self._job
        further = job.to_the_end and job.wait_for != "complete"
        await (job.until(job.wait_for) if further else job.status).future()
        resource = await self._job._resource
        if resource is not None:
            return await resource.urn.future() or ""
        if pulumi.runtime.is_dry_run():
            return ""  # all problems of the program are told at its end
        here = session.current()
        here.problems.append(Problem(self._job.where, "what depends on it is not created either"))
        raise here.refusal()
