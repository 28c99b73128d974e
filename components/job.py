"""What every component that runs something has in common: one resource with the rendered objects, and the wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem, TrainerError
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.api.submission import Draft, Objects, to_state
from pulumi_trainer.provider.api.unknown import Unknown, first_unknown
from pulumi_trainer.provider.lifecycle.identity import digest
from pulumi_trainer.provider.pipeline import Rendered

from . import program
from .arguments import python_path, walk
from .resolve import Resolved, known, put_back
from .reviews import jobset_refusals
from .volumes import Claim
from .watch import Watched


@dataclass
class Plan:
    """What is to be submitted.

    content: what the user wrote; its digest decides whether the job is the same. resolved: carries unknown and secret
    values. runtime: name and digest of the runtime. claims: token of an unknown leaf in the objects -> the volume whose name
    it is. made: what runs in the end; in mode trainer its controller makes it of the objects, else it is among them. needs:
    resources that have to be there before. problems: the job is not submitted while there are any. warnings: what will go
    wrong, and is not wrong in itself. notes: what else is to be known.
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
    made: Objects = field(default_factory=dict)
    needs: list[pulumi.Resource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def secret_name(self) -> str:
        """The Secret that holds the values of secret Outputs."""
        return f"{self.name}-env"

    def rendered(
        self, render: Callable[[], Rendered], place: Callable[[str], str] = python_path, mode: str = "jobset"
    ) -> None:
        """Renders, and reviews what came out. place: the argument that stands at a path of the documents."""
        try:
            self.made = render().objects
        except TrainerError as error:
            self.problems += [replace(p, where=place(p.where)) for p in error.problems]
            return
        if mode == "jobset":
            self.objects.update(self.made)
        for key, document in self.made.items():
            if key.startswith("JobSet/"):
                self.problems += [p.below(key) for p in jobset_refusals(document)]

    @property
    def content_digest(self) -> Any:
        """Of what the user wrote; unknown as long as something in it is."""
        return first_unknown(self.content) or digest(self.content)[:32]

    def review(self, promised: frozenset[str] = frozenset()) -> tuple[list[Problem], list[Problem]]:
        """What the target refuses, and what it warns of. promised: "Kind/name" of what the program makes beside."""

        def named(_: str, leaf: Any) -> Any:
            claim = self.claims.get(leaf.token) if isinstance(leaf, Unknown) else None
            return claim.name if claim else leaf

        draft = Draft(
            namespace=self.namespace,
            name=self.name,
            digest=self.content_digest,
            objects=walk(self.objects, named),
            made=walk(self.made, named),
            secrets={self.secret_name: set(self.resolved.secrets)} if self.resolved.secrets else {},
            promised=promised | {claim.key for claim in self.claims.values()},
            adopt=self.adopt,
        )
        reviews = [dynamic.review(self.target, draft)]
        reviews += [claim.review(self.target, self.namespace) for claim in self.claims.values()]
        return [p for refused, _ in reviews for p in refused], [p for _, told in reviews for p in told]


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
    """A component with one JobSet resource. It registers no outputs of its own: that makes the engine write the whole state once
    more for each job."""

    where: str

    _sweep: Any = ""
    _timeouts: Mapping[str, Any] = MappingProxyType({})

    def start(
        self,
        plan: Callable[[], Any],
        wait_for: str,
        site: str,
        opts: pulumi.ResourceOptions | None,
        timeouts: Mapping[str, Any] | None = None,
    ) -> None:
        """Submits what `plan` (a coroutine function) says, and waits as far as `wait_for`, but not longer than `timeouts`."""
        self._timeouts = timeouts if isinstance(timeouts, Mapping) else {}
        self._site = site
        self._opts = opts or pulumi.ResourceOptions()
        self.volumes: dict[str, dynamic.Volume] = {}
        program.current().hold()
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
        here = program.current()
        await here.turn()
        plan: Plan = await make_plan()
        if not plan.problems:
            here.reserve(plan.target)
            if plan.target["kind"] == "kubernetes":
                here.clusters.append(plan.target)
            refusals, warnings = await asyncio.to_thread(plan.review, frozenset(here.makes(plan.namespace)))
            plan.problems += refusals
            for warning in (*filter(here.first, plan.warnings), *filter(here.news, warnings)):
                pulumi.log.warn(str(warning), self)
            for note in plan.notes:
                pulumi.log.info(note, self)
        if plan.problems:
            where = f"{self.where} ({self._site})"
            here.problems += [replace(p, where=python_path(p.where)).below(where) for p in plan.problems]
            return None
        # As a plain string: as an Output, a child's property would depend on its own parent.
        return self._register(plan, here.target(plan.target), await self.urn.future() or "")

    def _register(self, plan: Plan, target: dynamic.Target, urn: str) -> dynamic.JobSet:
        connection = program.bound(plan.target, target)
        self._sweep = target.sweep
        unknown = plan.resolved.unknown
        for token, claim in plan.claims.items():
            program.current().promised.add(claim.key)
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
            **({"interrupt": plan.interrupt} if plan.interrupt != "refuse" else {}),
            **({"adopt": True} if plan.adopt else {}),
            **({"retain": True} if self._opts.retain_on_delete else {}),
        }
        if again := isinstance(content, str) and dynamic.vanished(plan.target, plan.namespace, plan.name, content):
            props["again"] = again
        if plan.resolved.secrets:
            props["secrets"] = {plan.secret_name: plan.resolved.secrets}
        return dynamic.JobSet(
            self._name,
            props,
            self.child_options([target, *self.volumes.values(), *plan.needs, *plan.resolved.depends_on]),
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
                uid, phase = [await o.future() or "" for o in (resource.uid, resource.phase)]
                return self._told(dynamic.glance(target, namespace, name, uid, phase), None)
            stack = await self._sweep.future() or "" if isinstance(self._sweep, pulumi.Output) else ""
            watched = Watched(target, namespace, name, stack, self, wait_for, self._timeouts)
            status = await program.current().watch.until(watched)
        except TrainerError as error:
            raise pulumi.RunError(f"{self.where}: {error}") from None
        if status is None:
            pulumi.log.warn(
                f"{namespace}/{name} is not there any more: `pulumi refresh`, then `pulumi up` makes it again", self
            )
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
