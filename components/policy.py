"""Rules of a platform team about jobs, and the component `JobPolicy`, which has a cluster's API server enforce them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import as_sequence, check_names, nested_problems, shown_value
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.object_part import Part, PartArgs, all_made
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.drift import Drift
from pulumi_trainer.program.targets import Kubernetes, project_folder
from pulumi_trainer.provider.kubernetes.client.api_resources import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, name_problems
from pulumi_trainer.provider.trainer.policy.admission_policies import render_policies, rules_elsewhere
from pulumi_trainer.provider.trainer.policy.reading import read_rules, rule_problems
from pulumi_trainer.provider.trainer.policy.rules import JobRules

_KINDS = {kind.kind: kind for kind in (ADMISSION_POLICY, ADMISSION_POLICY_BINDING)}


class JobPolicyArgs(ComponentArgs):
    """The arguments of `JobPolicy`."""

    rules: JobRules | str
    namespaces: Sequence[str] | None = None
    drift: Drift | None = None
    name: str | None = None
    target: Kubernetes | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if self.namespaces is not None and (not isinstance(self.namespaces, (list, tuple)) or not self.namespaces):
            why = f"must be a list of names, not {shown_value(self.namespaces)}"
            found.append(Problem("namespaces", why, "leave it out for all namespaces"))
        for place, name in enumerate(as_sequence(self.namespaces)):
            found += name_problems(f"namespaces[{place}]", str(name), dns_1123_label)
        return found


class JobPolicy(pulumi.ComponentResource):
    """Rules about jobs that a cluster's API server enforces for jobs that anybody makes, from any tool.

    It creates a ValidatingAdmissionPolicy for JobSets, one for TrainJobs if a rule is about their queue or runtime, and their
    bindings. They judge what is new, and what gets another queue, priority or number of Pods; what runs stays. The rules
    `channels` and `team_gpus` need more than one object: set `trainer:policy`, and plans check them.

    Args:
        resource_name: Name of the Pulumi resource.
        rules: The rules, or the file that has them, a path below the project's folder.
        namespaces: Namespaces in which they hold; default: all.
        drift: What an update does with objects that were changed by hand, as for `ClusterQueue`.
        name: Name of the policies; default: the resource's name.
        target: Cluster, as `Kubernetes(...)`; default: the target of the stack.
        opts: Resource options.
    """

    misnamed: list[Problem]

    @constructor(JobPolicyArgs)
    def __init__(self) -> None: ...

    def construct(self, args: JobPolicyArgs) -> None:
        where = f'JobPolicy("{args.resource_name}") ({session.call_site()})'
        super().__init__("trainer:index:JobPolicy", args.resource_name, None, args.opts)
        found = [*check_names(vars(args)), *self.misnamed, *targets.problems(args.target)]
        self.name: str = args.name or args.resource_name
        """Name of the policies."""
        found = merge_problems(found, nested_problems(args))
        found += name_problems("name", self.name, dns_1123_label)
        rules, wrong = _read(args.rules)
        found += wrong
        self.register_outputs({"name": self.name})
        if found:
            session.current().problems.extend(problems_below(where, found))
            return
        opts = args.opts or pulumi.ResourceOptions()
        parts: list[Part] = []
        for document in render_policies(rules, self.name, args.namespaces or ()):
            after = pulumi.ResourceOptions(parent=self, protect=opts.protect, depends_on=[*parts] or opts.depends_on)
            part: dict[str, Any] = {
                "resource": _KINDS[document["kind"]],
                "body": {"spec": document["spec"]},
                "of": where,
            }
            name = document["metadata"]["name"]
            common: dict[str, Any] = {"target": args.target, "drift": args.drift, "opts": after}
            parts.append(
                Part(PartArgs(f"{args.resource_name}{name.removeprefix(self.name)}", name=name, **part, **common))
            )
        self.made: asyncio.Task[list[Any]] = session.current().spawn(all_made(parts))


def _read(given: Any) -> tuple[JobRules, list[Problem]]:
    """Return rules, and what is wrong with them."""
    rules, found = JobRules(), list[Problem]()
    if isinstance(given, JobRules):
        rules, found = given, problems_below("rules", rule_problems(given))
    elif isinstance(given, (str, Path)):
        try:
            rules = read_rules(project_folder() / given)
        except Invalid as error:
            for each in error.problems:
                found.append(Problem("rules", f"{each.where}: {each.why}", each.hint))
    else:
        found = [Problem("rules", f"must be JobRules(...) or a file, not {shown_value(given)}")]
    if not found and not render_policies(rules, "any"):
        why = f"a server can judge none of them: {', '.join(rules_elsewhere(rules)) or 'no rule is given'}"
        found.append(Problem("rules", why, "set trainer:policy, and plans check them"))
    return rules, found
