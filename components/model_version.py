"""The component of a model version: it registers the output of a job in a model registry once the job has succeeded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import as_sequence, nested_problems, type_problems
from pulumi_trainer.args.registries import KubeflowModelRegistry, MLflowRegistry
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.program import dependencies, messages, session
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.trainjob import TrainJob


class ModelVersionArgs(ComponentArgs):
    """The arguments of `ModelVersion`."""

    job: TrainJob
    registry: MLflowRegistry | KubeflowModelRegistry
    name: str | None = None
    version: str | None = None
    aliases: Sequence[str] | None = None
    retain: bool = True

    def check(self) -> list[Problem]:
        found = [*super().check(), *type_problems(self)]
        wrong = [place for place, alias in enumerate(as_sequence(self.aliases)) if not isinstance(alias, str)]
        found += [Problem(f"aliases[{place}]", "must be a string") for place in wrong]
        if not found:
            name = self.resource_name if self.name is None else self.name
            found += self.registry.name_problems(name, self.version, self.aliases or ())
        return found


class ModelVersion(pulumi.ComponentResource):
    """The output of a TrainJob as a version of a model in a registry.

    `pulumi up` waits for the end of the job and registers its output, with a digest of the files and the record of the run: code,
    data, packages, runtime, and the last metrics. A job that fails registers nothing. Each later run that succeeds is another
    version of the same model, and the same output is registered once.

    Args:
        resource_name: Name of the Pulumi resource.
        job: The job, which has an output volume.
        registry: The registry: `MLflowRegistry(...)` or `KubeflowModelRegistry(...)`.
        name: Name of the model in the registry; default: the resource's name.
        version: Name of the version, in Kubeflow Model Registry; default: name of the job and id of the run. MLflow numbers its
            versions.
        aliases: Aliases that the newest version gets, in MLflow; default: none.
        retain: Whether the versions stay in the registry when the component is destroyed; default: True.
        opts: Resource options.
    """

    misnamed: list[Problem]

    @constructor(ModelVersionArgs)
    def __init__(self) -> None: ...

    def construct(self, args: ModelVersionArgs) -> None:
        """Register the output of the job, once that has succeeded."""
        self.where = f'ModelVersion("{args.resource_name}")'
        self._site, self._opts = session.call_site(), args.opts or pulumi.ResourceOptions()
        super().__init__("trainer:index:ModelVersion", args.resource_name, None, args.opts)
        problems = merge_problems(self.misnamed, nested_problems(args))
        if not problems:
            problems = self._claim(args)
        self._args = args
        self._checked = session.current().spawn(self._check(problems))
        status = None
        if not problems:
            status = args.job.until("complete")
        self._made = asyncio.ensure_future(self._register(status))
        self.version: pulumi.Output[str] = pulumi.Output.from_input(self._output("registered"))
        """The version; empty if the job has failed before it had one."""
        self.url: pulumi.Output[str] = pulumi.Output.from_input(self._output("url"))
        """Address at which the registry shows the version."""
        self.digest: pulumi.Output[str] = pulumi.Output.from_input(self._output("digest"))
        """Digest of the files of the output, as `sha256:...`."""
        self.register_outputs({})

    @property
    def model(self) -> str:
        """Return the name of the model in the registry."""
        return self._args.name or self._args.resource_name

    def _claim(self, args: ModelVersionArgs) -> list[Problem]:
        """Return a problem if the program registers the output of the job as this model twice."""
        if not isinstance(args.registry.url, str):
            return []
        place, where = args.registry.settings, f"{self.where} ({self._site})"
        place.pop("token", None)
        return session.current().claim(
            place, "model version", args.job.name_in_target, args.name or args.resource_name, where
        )

    async def _check(self, problems: list[Problem]) -> bool:
        """Report the problems of the component; return whether it has none, and its job neither."""
        if not problems:
            made = await self._args.job.submitted()
            if made is None:
                return False
            if "output" not in self._args.job.volumes:
                problems = [
                    Problem("job", f"{self._args.job.where} has no output volume", "set output=True on the TrainJob")
                ]
        session.current().problems.extend(problems_below(f"{self.where} ({self._site})", problems))
        return not problems

    async def _register(self, status: pulumi.Output[JobStatus | None] | None) -> dynamic.ModelVersion | None:
        """Return the resource: in an `up` once the job has ended; None if there is nothing to register, as the program fails."""
        if status is None or not await self._checked:
            return None
        preview = pulumi.runtime.is_dry_run()
        reached, is_known = await status.future(), await status.is_known()
        if not preview and not is_known:
            return None
        job = await self._args.job.submitted()
        assert job is not None
        run = self._run(reached, is_known=is_known)
        if isinstance(run, pulumi.Output):
            await self._warn_of_deletion(job)
        inputs = dynamic.ModelVersionInputs(
            target=job.target,
            component=await self.urn.future() or "",
            namespace=job.namespace,
            job=job.name,
            registry=self._args.registry.settings,
            model=self.model,
            run=run,
            version=self._args.version or "",
            aliases=[*(self._args.aliases or ())],
            retain=self._args.retain,
        )
        before = [each for each in await dependencies.explicit(self._opts) if each is not None]
        options = pulumi.ResourceOptions(parent=self, depends_on=[job, *before])
        return dynamic.ModelVersion(self.pulumi_resource_name, inputs, options)

    def _run(self, status: JobStatus | None, *, is_known: bool) -> pulumi.Input[str]:
        """Return the id of the run to register: unknown while it may still succeed, empty if it has not succeeded."""
        if status is not None and status.phase == Phase.SUCCEEDED:
            return status.identity.id
        ended = status is not None and status.terminal
        if pulumi.runtime.is_dry_run() and not (is_known and ended):
            return _unknown()
        phase = "gone" if status is None else status.phase
        messages.warn(f"{self.where}: nothing is registered, because {self._args.job.where} is {phase}", self)
        return ""

    async def _warn_of_deletion(self, job: dynamic.JobSet) -> None:
        """Warn if the version outlives its files, which are in the volume of the job."""
        target = await job.target.future(with_unknowns=True) or {}
        is_copied = target.get("kind") == "local" and isinstance(self._args.registry, MLflowRegistry)
        if is_copied or not self._args.retain or "output" in self._args.job.retained_volumes:
            return
        why = "the registry has the address of the output, which is deleted with the job's volume"
        hint = "keep it with output=trainer.OutputVolume(retain=True) on the TrainJob"
        messages.warn(Problem(self.where, why, hint), self)

    async def _output(self, name: str) -> Any:
        """Return an output of the resource, unknown if there is none."""
        made = await self._made
        if made is None:
            return _unknown()
        return getattr(made, name)


def _unknown() -> pulumi.Output[str]:
    """Return an Output whose value is not known."""
    value: asyncio.Future[str] = asyncio.get_event_loop().create_future()
    known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
    value.set_result("")
    known.set_result(False)
    return pulumi.Output(set(), value, known)
