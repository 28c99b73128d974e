"""What every component that runs something has in common: one resource with the rendered objects, and the wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem, TrainerError
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.lifecycle.identity import digest
from pulumi_trainer.provider.pipeline import Rendered

from . import program
from .arguments import python_path
from .resolve import Resolved, has_unknown, put_back
from .reviews import jobset_refusals
from .volumes import Claim


@dataclass
class Plan:
    """What is to be submitted.

    content: what the user wrote; its digest decides whether the job is the same. resolved: carries unknown and secret
    values. runtime: name and digest of the runtime. claims: token of an unknown leaf in the objects -> the volume whose name
    it is. problems: the job is not submitted while there are any. warnings: what will go wrong, and is not wrong in itself.
    """

    name: str
    namespace: Any
    target: dict[str, Any]
    run: str = "1"
    interrupt: str = "refuse"
    adopt: bool = False
    content: Any = None
    objects: Objects = field(default_factory=dict)
    resolved: Resolved = field(default_factory=lambda: Resolved(None))
    runtime: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def secret_name(self) -> str:
        """The Secret that holds the values of secret Outputs."""
        return f"{self.name}-env"

    def rendered(self, render: Callable[[], Rendered], place: Callable[[str], str] = python_path) -> None:
        """Renders, and reviews what came out. place: the argument that stands at a path of the documents."""
        try:
            self.objects.update(render().objects)
        except TrainerError as error:
            self.problems += [replace(p, where=place(p.where)) for p in error.problems]
            return
        for key, document in self.objects.items():
            if key.startswith("JobSet/"):
                self.problems += [p.below(key) for p in jobset_refusals(document)]


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


def _progress(progress: dict[str, Any]) -> dict[str, Any]:
    """Trainer's trainerStatus, with its metrics by name."""
    return {**progress, "metrics": {m["name"]: m["value"] for m in progress.get("metrics", [])}}


class Job(pulumi.ComponentResource):
    """A component with one JobSet resource."""

    where: str

    def start(self, plan: Callable[[], Any], wait_for: str, site: str, opts: pulumi.ResourceOptions | None) -> None:
        """Submits what `plan` (a coroutine function) says, and waits as far as `wait_for`."""
        self._site = site
        self._opts = opts or pulumi.ResourceOptions()
        self.volumes: dict[str, dynamic.Volume] = {}
        self._resource = program.current().spawn(self._submit(plan))
        self.status = self.until(wait_for)

    @property
    def outputs(self) -> pulumi.Output[dict[str, Any]]:
        """All outputs in one, those that say something."""
        return self.status.apply(lambda status: {name: value for name, of in OUTPUTS.items() if (value := of(status))})

    def until(self, wait_for: str) -> pulumi.Output[JobStatus | None]:
        """The job's status once it has come as far as `wait_for`; unknown in a preview of a job that is not there."""
        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        return pulumi.Output({self}, self._wait(wait_for, known), known)

    async def _submit(self, make_plan: Callable[[], Any]) -> dynamic.JobSet | None:
        plan: Plan = await make_plan()
        here = program.current()
        if not plan.problems:
            secrets = {plan.secret_name: set(plan.resolved.secrets)} if plan.resolved.secrets else {}
            refusals, warnings = dynamic.review(plan.target, plan.objects, secrets)
            plan.problems += refusals
            for warning in (*plan.warnings, *warnings):
                pulumi.log.warn(str(warning), self)
        if plan.problems:
            where = f"{self.where} ({self._site})"
            here.problems += [replace(p, where=python_path(p.where)).below(where) for p in plan.problems]
            return None
        # As a plain string: as an Output, a child's property would depend on its own parent.
        return self._register(plan, here.target(plan.target), await self.urn.future() or "")

    def _register(self, plan: Plan, target: dynamic.Target, urn: str) -> dynamic.JobSet:
        connection = {**plan.target, "sweep": target.sweep}
        unknown = plan.resolved.unknown
        for token, claim in plan.claims.items():
            self.volumes[token] = claim.resource(connection, plan.namespace, self, target, urn)
            unknown[token] = self.volumes[token].name
        content: Any = digest(plan.content)[:32]
        if has_unknown(plan.content):
            content = pulumi.Output.all(*unknown.values()).apply(str)  # as unknown as they are
        props = {
            "namespace": plan.namespace,
            "name": plan.name,
            "objects": _known(put_back(plan.objects, unknown)),
            "digest": content,
            "run": plan.run,
            "runtime": put_back(plan.runtime, unknown),
            "target": connection,
            "component": urn,
            **({"interrupt": plan.interrupt} if plan.interrupt != "refuse" else {}),
            **({"adopt": True} if plan.adopt else {}),
        }
        if plan.resolved.secrets:
            props["secrets"] = {plan.secret_name: plan.resolved.secrets}
        return dynamic.JobSet(
            self._name, props, self.child_options([target, *self.volumes.values(), *plan.resolved.depends_on])
        )

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

    async def _wait(self, wait_for: str, known: asyncio.Future[bool]) -> JobStatus | None:
        try:
            resource = await self._resource
            exists = resource is None or await resource.uid.is_known()
            known.set_result(exists)
        except BaseException as error:
            known.set_exception(error)
            raise
        if resource is None or not exists:
            return None
        target, namespace, name = [await o.future() for o in (resource.target, resource.namespace, resource.name)]
        assert target is not None and namespace is not None and name is not None
        try:
            if pulumi.runtime.is_dry_run() or wait_for == "created":
                return self._told(dynamic.observe(target, namespace, name), None)
            status = await program.current().watch.until(wait_for, target, namespace, name, self)
        except TrainerError as error:
            raise pulumi.RunError(f"{self.where}: {error}") from None
        return self._told(status, wait_for)

    def _told(self, status: JobStatus | None, waited_for: str | None) -> JobStatus | None:
        """A job that has failed fails a wait for it, and is a warning elsewhere."""
        if status is None or status.phase not in (Phase.FAILED, Phase.DELETED):
            return status
        text = (
            f"{self.where} {status.phase} ({status.reason})\n{status.message}\n"
            "It is not run again while the program stays as it is: change what is wrong, give it another run= key, or use"
            f" `pulumi up --replace '**{self._name}'`"
        )
        if waited_for:
            raise pulumi.RunError(text)
        pulumi.log.warn(text, self)
        return status


def _known(value: Any) -> pulumi.Output[Any]:
    """A known Output that may hold unknown ones deep inside, so that the engine shows all the rest."""
    loop = asyncio.get_event_loop()
    future: asyncio.Future[Any] = loop.create_future()
    future.set_result(value)
    known: asyncio.Future[bool] = loop.create_future()
    known.set_result(True)
    return pulumi.Output(set(), future, known)
