"""Training runtimes as components: what a platform team offers, and what TrainJobs are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pulumi
from pulumi_trainer import runtimes
from pulumi_trainer.provider.api.errors import Problem, TrainerError
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.pipeline.policy import Policy

from . import program
from .arguments import Args, camel, metadata, nested_problems
from .frameworks import runtime_problems
from .policies import MLPolicy, PodGroupPolicy
from .resolve import resolve
from .reviews import refusals
from .template import JobSetTemplate

API_VERSION = "trainer.kubeflow.org/v1alpha1"


class RuntimeArgs(Args):
    """`spec` of a runtime, and its metadata."""

    ml_policy: MLPolicy | Policy | Mapping[str, Any] | None = None
    template: JobSetTemplate | Mapping[str, Any] | None = None
    pod_group_policy: PodGroupPolicy | Policy | Mapping[str, Any] | None = None
    labels: Mapping[str, pulumi.Input[str]] | None = None
    annotations: Mapping[str, pulumi.Input[str]] | None = None

    places = {"metadata.": ""}
    mappings = frozenset({"labels", "annotations"})

    def check(self) -> list[Problem]:
        found = super().check()
        for field in ("ml_policy", "pod_group_policy", "template"):
            if isinstance(value := getattr(self, field), type):
                found.append(Problem(field, "is a class", f"give an instance: {value.__name__}(...)"))
        for field, wanted in (("ml_policy", MLPolicy), ("pod_group_policy", PodGroupPolicy)):
            if isinstance(value := getattr(self, field), Args) and not isinstance(value, wanted):
                known = ", ".join(c.__name__ for c in wanted.__subclasses__())
                found.append(Problem(field, f"must be one of {known}, not {type(value).__name__}"))
            if isinstance(value, Policy) and value.parts()[0] != camel(field):
                found.append(Problem(field, f"{type(value).__name__} is for {value.serves}"))
        return found


class ClusterTrainingRuntime(pulumi.ComponentResource):
    """A runtime for all namespaces (ClusterTrainingRuntime, pkg/apis/trainer/v1alpha1/trainingruntime_types.go, v2.3.0).

    With `release` it is one of the catalogue, by its name (`ClusterTrainingRuntime("torch-distributed", release="2.3.0")`);
    else it is what `ml_policy` and `template` say.

    ml_policy: the framework (`TorchPolicy`, `MPIPolicy`, `JAXPolicy`, `XGBoostPolicy`, `FluxPolicy`, `PlainPolicy`, or
    that of a plugin) or a mapping. template: the JobSet that jobs are made from. pod_group_policy: gangs, by
    `CoschedulingPolicy` or `VolcanoPolicy`; default: none. labels: `trainer.kubeflow.org/framework` names what starts user
    code; default: the policy's framework. name: in the documents; default the resource's name. In the default mode nothing
    is made in the cluster: jobs carry what they need.
    """

    kind: ClassVar[str] = "ClusterTrainingRuntime"

    def __init__(
        self,
        resource_name: str,
        *,
        release: str | None = None,
        name: str | None = None,
        ml_policy: MLPolicy | Policy | Mapping[str, Any] | None = None,
        template: JobSetTemplate | Mapping[str, Any] | None = None,
        pod_group_policy: PodGroupPolicy | Policy | Mapping[str, Any] | None = None,
        labels: Mapping[str, pulumi.Input[str]] | None = None,
        annotations: Mapping[str, pulumi.Input[str]] | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **unknown: Any,
    ) -> None:
        site = program.call_site()
        self.where = f'{self.kind}("{resource_name}")'
        args = RuntimeArgs(
            ml_policy=ml_policy, template=template, pod_group_policy=pod_group_policy, labels=labels,
            annotations=annotations, **unknown,
        )  # fmt: skip
        self.plain, found = _document(self.kind, name or resource_name, release, args)
        self.release = release
        self._args = args
        self._site = site
        super().__init__(f"trainer:index:{self.kind}", resource_name, {"document": self.plain}, opts)
        self.problems = program.current().spawn(self._review(found))
        self.register_outputs({})

    async def _review(self, found: list[Problem]) -> bool:
        """Collects what is wrong; True where something is."""
        if not found:
            resolved = await resolve(self.plain, "")
            found = resolved.problems + runtime_problems(resolved.document)
            found = found or refusals(resolved.document)
            found = [replace(p, where=self._args.place(p.where.removeprefix("spec."))) for p in found]
        program.current().problems.extend(p.below(f"{self.where} ({self._site})") for p in found)
        return bool(found)


class TrainingRuntime(ClusterTrainingRuntime):
    """A runtime for one namespace (TrainingRuntime of Kubeflow Trainer v1alpha1)."""

    kind = "TrainingRuntime"


def from_catalogue(reference: str) -> tuple[dict[str, Any], list[Problem]]:
    """A runtime of the catalogue by `name` (its newest release) or `name@release`."""
    name, _, release = reference.partition("@")
    try:
        return runtimes.load(name, release or None), []
    except TrainerError as error:
        return {}, list(error.problems)


def _document(kind: str, name: str, release: str | None, args: RuntimeArgs) -> tuple[dict[str, Any], list[Problem]]:
    if release is not None:
        given = [k for k in ("ml_policy", "template", "pod_group_policy") if getattr(args, k) is not None]
        if given:
            why = f"a release of the catalogue is fixed, and {' and '.join(given)} would change it"
            return {}, [Problem("release", why, "leave release out, or the others")]
        try:
            document = runtimes.load(name, release)
        except TrainerError as error:
            return {}, list(error.problems)
        return {**document, "kind": kind}, nested_problems(args)
    found = nested_problems(args)
    if args.template is None:
        mend = "give template=, or release= of a runtime of the catalogue"
        found.append(Problem("template", "is required", mend))
    if found:
        return {}, found
    about = {"name": name, **metadata(args.labels, args.annotations).get("metadata", {})}
    plain = args.document()
    spec = {camel: plain[camel] for camel in ("mlPolicy", "podGroupPolicy", "template") if camel in plain}
    if isinstance(args.ml_policy, (MLPolicy, Policy)) and args.ml_policy.framework:
        about["labels"] = {FRAMEWORK: args.ml_policy.framework, **about.get("labels", {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": about, "spec": spec}, []
