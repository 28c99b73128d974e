"""A job as it is to be submitted: its documents, and what was found wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import python_path, walk
from pulumi_trainer.plan.outputs import Resolved
from pulumi_trainer.plan.review import jobset_refusals
from pulumi_trainer.plan.volume_claims import Claim
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.submission import (
    ANYTHING,
    Draft,
    Objects,
    secret_name,
)
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.lifecycle.identity import digest
from pulumi_trainer.provider.pipeline import Rendered


@dataclass
class Plan:
    """What is to be submitted.

    content: what the user wrote; its digest decides whether the job is the same. former: as earlier versions had it, where that
    was something else. resolved: carries unknown and secret
    values. runtime: name and digest of the runtime. claims: token of an unknown leaf in the objects -> the volume whose name
    it is. fills: the token of the volume that the job is there to fill. arguments: of the function without what is secret, where
    all of them travel in the job's Secret. data: kind of folder -> name and version of the data
    that the job reads. made: what runs in the end; in mode trainer its controller makes it of the objects, else it is among
    them. workers: the clusters that MultiKueue may send it to, in words. needs: resources that have to be there before.
    problems: the job is not submitted while there are any. warnings: what will go wrong, and is not wrong in itself. notes:
    what else is to be known.
    """

    name: str
    namespace: Any
    target: dict[str, Any]
    run: str = "1"
    interrupt: str = "refuse"
    adopt: bool = False
    content: Any = None
    former: Any = None
    objects: Objects = field(default_factory=dict)
    resolved: Resolved = field(default_factory=lambda: Resolved(None))
    runtime: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    fills: str = ""
    arguments: Any = None
    data: dict[str, dict[str, str]] = field(default_factory=dict)
    made: Objects = field(default_factory=dict)
    workers: str = ""
    needs: list[pulumi.Resource] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def secret_name(self) -> str:
        """The Secret that holds the values of secret Outputs."""
        return secret_name(self.name)

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

    def forget_secret_name(self) -> None:
        """Take the name of the job's own Secret out of its content: it is another one once job or stack are renamed."""
        nameless = walk(self.content, lambda _, leaf: "" if leaf == self.secret_name else leaf)
        if nameless != self.content:
            self.content, self.former = nameless, self.content

    @property
    def former_digest(self) -> str:
        """By which earlier versions knew the job; empty where that is `content_digest`."""
        return "" if self.former is None or first_unknown(self.former) else digest(self.former)[:32]

    def review(
        self, promised: frozenset[str] = frozenset(), awaited: frozenset[str] = frozenset(), urn: str = ""
    ) -> tuple[list[Problem], list[Problem]]:
        """What the target refuses, and what it warns of. promised: "Kind/name" of what the program makes beside. awaited: of what
        the job's dependencies make. urn: of the job's component."""

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
            awaited=awaited,
            adopt=self.adopt,
            interrupts=self.interrupt == "allow",
            workers=self.workers,
        )
        reviews = [dynamic.review(self.target, draft)]
        if not any(made == ANYTHING or made.startswith("StorageClass/") for made in awaited):
            reviews += [
                claim.review(self.target, self.namespace, self.name, urn, adopt=self.adopt)
                for claim in self.claims.values()
            ]
        return [p for refused, _ in reviews for p in refused], [p for _, told in reviews for p in told]
