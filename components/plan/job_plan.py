"""The plan of a job: the documents to submit and their problems, joined from the results of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import python_path, walk
from pulumi_trainer.plan.outputs import Resolved
from pulumi_trainer.plan.volume_claims import Claim
from pulumi_trainer.program import targets
from pulumi_trainer.program.targets import Destination, Place
from pulumi_trainer.provider.engine.dynamic import JobInputs
from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.jobs.submission import ANYTHING, MAIN, WORKERS, Dispatch, Draft, Objects, secret_name
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission import review_jobset
from pulumi_trainer.provider.trainer.pipeline import Release, Rendered


@dataclass(frozen=True)
class PlacedJob:
    """A job, its target, and the release of Trainer whose rules it follows."""

    name: str
    destination: Destination
    place: Place
    release: Release

    @property
    def cluster(self) -> bool:
        """Return whether the job runs in a cluster."""
        return not isinstance(self.destination, targets.Local)

    @property
    def mode(self) -> Any:
        """Return the mode of the target, jobset or trainer."""
        return targets.mode_of(self.destination)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step of a plan adds to it. claims: Token of an unknown leaf in the objects -> volume with that name."""

    objects: Objects = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    needs: Sequence[pulumi.Resource] = field(default_factory=list)
    problems: Sequence[Problem] = field(default_factory=list)
    warnings: Sequence[Problem] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RenderedJob(StepResult):
    """The rendered objects of a job. made: The objects; in mode trainer the controller creates them."""

    made: Objects = field(default_factory=dict)

    @property
    def jobsets(self) -> Objects:
        """Return the JobSets among the objects."""
        return {key: document for key, document in self.made.items() if key.startswith("JobSet/")}


def render_job(
    renderer: Callable[[Release], Rendered],
    release: Release,
    place: Callable[[str], str] = python_path,
    submitted: Objects | None = None,
) -> RenderedJob:
    """Return the rendered objects and their problems.

    Args:
        place: Returns the argument for a path of the documents.
        submitted: Objects to submit instead of the rendered ones, from which a controller renders these; default: none.
    """
    made: Objects = {}
    problems: list[Problem] = []
    try:
        made = renderer(release).objects
    except TrainerError as error:
        problems += [replace(p, where=place(p.where)) for p in error.problems]
    if submitted is None:
        submitted = made
    rendered = RenderedJob(made=made, objects=submitted)
    for key, document in rendered.jobsets.items():
        problems += problems_below(key, review_jobset(document, release))
    return replace(rendered, problems=problems)


CHECKPOINT_OWNER = Unknown("checkpoint_owner")
"""The owner mark of a new stack, for the folder in S3 with a job's checkpoints."""


def new_job(name: str, namespace: Any, target: Mapping[str, Any], run: str = "1", **given: Any) -> JobInputs:
    """Return the inputs of a job before it is rendered."""
    return JobInputs(name=name, namespace=namespace, target=target, run=run, digest="", objects={}, **given)


@dataclass(frozen=True, kw_only=True)
class Plan(StepResult):
    """The documents of a job, and its problems.

    Attributes:
        job: Inputs of the resource of the job, without its objects, digest and secrets. A leaf may be unknown: a token of
            `resolved`, or of a claim; the generation of the volume of a claim is TOKEN.generation.
        content: What the user wrote; another digest of it makes another job.
        arguments: Non-secret arguments of the function, if the job's Secret contains all of them.
        log_step: Step whose rank 0 shows its log in `up`; empty: none.
        made: The rendered objects; in mode trainer the controller creates them, else they are part of `objects`.
        dispatch: Clusters that MultiKueue may send the job to; None if it stays in the cluster of its target.
    """

    job: JobInputs
    content: Any = None
    resolved: Resolved = field(default_factory=lambda: Resolved(None))
    arguments: Any = None
    log_step: str = ""
    made: Objects = field(default_factory=dict)
    dispatch: Dispatch | None = None

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return self.job.name

    @property
    def namespace(self) -> Any:
        """Return the namespace of the job."""
        return self.job.namespace

    @property
    def target(self) -> dict[str, Any]:
        """Return the `target` input of the job."""
        target: dict[str, Any] = self.job.target
        return target

    @property
    def secret_name(self) -> str:
        """Return the name of the Secret for the values of secret Outputs."""
        return secret_name(self.name)

    def with_inputs(self, **changes: Any) -> Plan:
        """Return the plan with other inputs of the job."""
        return replace(self, job=replace(self.job, **changes))

    def add(self, step: StepResult, **changes: Any) -> Plan:
        """Return the plan with the result of a step."""
        return replace(
            self,
            objects={**self.objects, **step.objects},
            claims={**self.claims, **step.claims},
            needs=[*self.needs, *step.needs],
            problems=[*self.problems, *step.problems],
            warnings=[*self.warnings, *step.warnings],
            notes=[*self.notes, *step.notes],
            **changes,
        )

    @property
    def content_digest(self) -> Any:
        """Return the digest of what the user wrote; unknown if any part is unknown."""
        return first_unknown(self.content) or digest(self.content)[:32]

    def with_content(self, content: Any) -> Plan:
        """Return the plan with what the user wrote, without the name of the job's own Secret: a rename of the job or the stack
        changes this name.
        """

        def without_name(_: str, leaf: Any) -> Any:
            if leaf == self.secret_name:
                return ""
            return leaf

        return replace(self, content=walk(content, without_name))

    def with_workers(self, copies: Sequence[str]) -> dict[str, Any]:
        """Return the target with the worker clusters that MultiKueue may send the job to.

        Args:
            copies: "Kind/name" of what is copied to them.
        """
        names: Iterable[str] = ()
        if self.dispatch is not None:
            names = self.dispatch.clusters or self.target.get(WORKERS, {})
        return targets.with_workers(self.target, dict.fromkeys(names, copies))

    @property
    def copied_objects(self) -> list[str]:
        """Return "Kind/name" of what the Pods of the job need beside the job itself."""
        found = {key for key in self.objects if key.partition("/")[0] not in MAIN}
        if self.resolved.secrets:
            found.add(f"Secret/{self.secret_name}")
        return sorted(found)

    def review(
        self, promised: frozenset[str] = frozenset(), awaited: frozenset[str] = frozenset(), urn: str = ""
    ) -> tuple[list[Problem], list[Problem]]:
        """Return the target's problems and warnings.

        Args:
            awaited: "Kind/name" of objects that the job's dependencies create.
        """

        def with_claim_name(_: str, leaf: Any) -> Any:
            if isinstance(leaf, Unknown) and leaf.token in self.claims:
                return self.claims[leaf.token].name
            if leaf == CHECKPOINT_OWNER:  # a dry run needs some text
                return "new"
            return leaf

        claims = [claim.key for claim in self.claims.values()]
        secrets = {}
        if self.resolved.secrets:
            secrets[self.secret_name] = set(self.resolved.secrets)
        draft = Draft(
            namespace=self.namespace,
            name=self.name,
            digest=self.content_digest,
            objects=walk(self.objects, with_claim_name),
            made=walk(self.made, with_claim_name),
            secrets=secrets,
            promised=promised | {*claims},
            awaited=awaited,
            adopt=bool(self.job.adopt),
            interrupts=self.job.interrupt != "refuse",
            claims=claims,
            dispatch=self.dispatch,
        )
        target = self.with_workers([])
        reviews = [queries.review_job(target, draft)]
        if not any(made == ANYTHING or made.startswith("StorageClass/") for made in awaited):
            for claim in self.claims.values():
                reviews.append(claim.review(target, self.namespace, self.name, urn, adopt=bool(self.job.adopt)))
        refused, warnings = zip(*reviews, strict=True)
        return [*chain.from_iterable(refused)], [*chain.from_iterable(warnings)]
