"""Training runtimes as components: what a platform team offers, and what TrainJobs are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import (
    Args,
    below,
    check_names,
    metadata,
    nested_problems,
    said,
    walk,
)
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.naming import camel
from pulumi_trainer.args.policies import MLPolicy, PodGroupPolicy
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.template import JobSetTemplate
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import put_back, resolve
from pulumi_trainer.plan.review import none_problems, refusals
from pulumi_trainer.plan.runtime_ref import API_VERSION, RuntimeSource, deprecated
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.absent_outputs import known
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.plugins import policy_names, runtime_problems
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline.policy import Policy
from pulumi_trainer.runtimes import BUILT_IN, Deprecation, RuntimeCatalog


class RuntimeArgs(Args):
    """`spec` of a runtime, and its metadata."""

    ml_policy: MLPolicy | Policy | Mapping[str, Any] | None = None
    template: JobSetTemplate | Mapping[str, Any] | None = None
    pod_group_policy: PodGroupPolicy | Policy | Mapping[str, Any] | None = None
    labels: Mapping[str, pulumi.Input[str]] | None = None
    annotations: Mapping[str, pulumi.Input[str]] | None = None

    api = "ClusterTrainingRuntime.spec"
    places = {"metadata.": ""}
    mappings = frozenset({"labels", "annotations"})

    def check(self) -> list[Problem]:
        found = super().check()
        for field in ("ml_policy", "pod_group_policy", "template"):
            if isinstance(value := getattr(self, field), type):
                found.append(Problem(field, "is a class", f"give an instance: {value.__name__}(...)"))
        kinds = {"ml_policy": "an MLPolicy", "pod_group_policy": "a PodGroupPolicy", "template": "a JobSetTemplate"}
        for field, kind in kinds.items():
            if not isinstance(value := getattr(self, field), (Args, Policy, Mapping, Unknown, type, type(None))):
                found.append(Problem(field, f"must be {kind} or a mapping, not {said(value)}"))
        for field, wanted in (("ml_policy", MLPolicy), ("pod_group_policy", PodGroupPolicy)):
            if isinstance(value := getattr(self, field), Args) and not isinstance(value, wanted):
                known = ", ".join(c.__name__ for c in wanted.__subclasses__())
                found.append(Problem(field, f"must be one of {known}, not {type(value).__name__}"))
            if isinstance(value, Policy) and value.parts()[0] != camel(field):
                found.append(Problem(field, f"{type(value).__name__} is for {value.serves}"))
        return found


class ClusterTrainingRuntime(RuntimeSource, pulumi.ComponentResource):
    """A runtime for all namespaces (ClusterTrainingRuntime, pkg/apis/trainer/v1alpha1/trainingruntime_types.go, v2.3.0).

    With `release` it is one of a catalogue, by its name (`ClusterTrainingRuntime("torch-distributed", release="2.3.0")`);
    else it is what `ml_policy` and `template` say. catalog: the catalogue; default: the built-in one.

    ml_policy: the framework (`TorchPolicy`, `MPIPolicy`, `JAXPolicy`, `XGBoostPolicy`, `FluxPolicy`, `PlainPolicy`, or
    that of a plugin) or a mapping. template: the JobSet that jobs are made from. pod_group_policy: gangs, by
    `CoschedulingPolicy`, `VolcanoPolicy` or `KAIPolicy`; default: none. labels: `trainer.kubeflow.org/framework` names
    what starts user code; default: the policy's framework. name: in the documents; default the resource's name. In the
    default mode nothing is made in the cluster: jobs carry what they need. In mode trainer it is made there, in the
    cluster of `target` (default: that of the stack) and in those of TrainJobs that use it, and changed in place: jobs
    that exist keep what they were made with. Its deletion is refused while a TrainJob that was made from it has not
    finished, unless it has `force`.
    """

    kind: ClassVar[str] = "ClusterTrainingRuntime"
    misnamed: list[Problem]

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        release: str | None = None,
        catalog: RuntimeCatalog | None = None,
        name: str | None = None,
        ml_policy: MLPolicy | Policy | Mapping[str, Any] | None = None,
        template: JobSetTemplate | Mapping[str, Any] | None = None,
        pod_group_policy: PodGroupPolicy | Policy | Mapping[str, Any] | None = None,
        labels: Mapping[str, pulumi.Input[str]] | None = None,
        annotations: Mapping[str, pulumi.Input[str]] | None = None,
        force: bool = False,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        site = session.call_site()
        self.where = f'{self.kind}("{resource_name}")'
        args = RuntimeArgs(**{field: given[field] for field in RuntimeArgs.fields})
        self.misnamed += check_names(given)
        name, release, catalog = given["name"] or resource_name, given["release"], given["catalog"]
        self.plain, found = _document(self.kind, name, release, args, catalog, self.misnamed)
        # Before it is registered: the plan would show them, and be refused then.
        exposed = plaintext_secrets.problems(self.plain.get("spec"), "spec")
        found += [replace(p, where=args.place(p.where.removeprefix("spec."))) for p in exposed]
        self.release: str | None = release
        self.deprecation = _deprecation(name, release, catalog) if not found else None
        self._force = bool(given["force"])
        self._args = args
        self._site = site
        self._opts = opts or pulumi.ResourceOptions()
        self._target: Destination | None = given["target"]
        self._applied: dict[str, dynamic.Runtime] = {}
        shown = None if exposed else _shown(self.plain)
        super().__init__(f"trainer:index:{self.kind}", resource_name, {"document": shown}, opts)
        self.problems = session.current().spawn(
            self._review(merge_problems(self.misnamed, [*found, *targets.problems(self._target)]))
        )
        self.register_outputs({})

    async def _review(self, found: list[Problem]) -> bool:
        """Collects what is wrong; True where something is."""
        if not found:
            self._resolved = resolved = await resolve(self.plain, "")
            found = resolved.problems + runtime_problems(resolved.document)
            dropped = none_problems("ClusterTrainingRuntime.spec", resolved.document.get("spec"), "spec")
            found = merge_problems(found, dropped)
            found += plaintext_secrets.problems(resolved.document.get("spec"), "spec")
            found = found or refusals(resolved.document)
            destination = targets.choose(self._target)
            if not found and targets.mode_of(destination) == "trainer":
                found = self.secrets
                if not found:
                    try:
                        await self.applied(destination)
                    except TrainerError as error:
                        found = list(error.problems)
            found = [replace(p, where=self._args.place(p.where.removeprefix("spec."))) for p in found]
        session.current().problems.extend(p.below(f"{self.where} ({self._site})") for p in found)
        return bool(found)

    async def made_from(
        self,
        follow: str,  # noqa: ARG002 (such a runtime is not followed)
        plan: Plan,
        destination: Destination,
    ) -> dict[str, Any]:
        plan.warnings += deprecated(self.deprecation)
        if await self.problems:
            raise Invalid(Problem("", f"{self.where} is refused, see there"))
        if targets.mode_of(destination) == "trainer":
            if found := self.secrets:
                raise Invalid(*found)
            plan.needs.append(await self.applied(destination))
        return self.plain

    async def applied(self, destination: Destination) -> dynamic.Runtime:
        """Return the runtime in that cluster, in mode trainer; a TrainingRuntime in that namespace. Raises Invalid if another
        component of the program makes it."""
        place = await targets.place(destination)
        connection = place.target
        document = {**self._resolved.document, "metadata": {**self._resolved.document["metadata"]}}
        if self.kind == "TrainingRuntime":
            document["metadata"]["namespace"] = place.namespace
        cluster = {k: v for k, v in session.plain(connection).items() if k != "namespace"}
        where, namespace = f"{self.where} ({self._site})", document["metadata"].get("namespace", "")
        key = str([session.key(cluster), namespace])
        if taken := session.current().claim(cluster, self.kind, namespace, document["metadata"]["name"], where):
            raise Invalid(*taken)
        urn = await self.urn.future() or ""
        if key not in self._applied:
            target = session.current().target(connection)
            name = f"{self._name}-{len(self._applied) + 1}" if self._applied else self._name
            props = {
                "document": known(put_back(document, {**self._resolved.unknown, **place.unknown})),
                "target": session.bound(connection, target),
                "component": urn,
                **({"force": True} if self._force else {}),
            }
            options = pulumi.ResourceOptions(
                parent=self,
                depends_on=[target, *place.needs, *self._resolved.depends_on],
                retain_on_delete=self._opts.retain_on_delete,
                protect=self._opts.protect,
            )
            self._applied[key] = dynamic.Runtime(name, props, options)
            session.current().promised.add(f"{self.kind}/{document['metadata']['name']}")
        return self._applied[key]

    @property
    def secrets(self) -> list[Problem]:
        """What must not be in a runtime in a cluster, which many read and no Secret goes with."""
        why = "is secret, and a runtime in a cluster is read by everybody"
        mend = "refer to a Secret of the cluster (valueFrom.secretKeyRef), or pass it in the TrainJob's env"
        return [Problem(f"env[{key}]", why, mend) for key in self._resolved.secrets]


class TrainingRuntime(ClusterTrainingRuntime):
    """A runtime for one namespace (TrainingRuntime of Kubeflow Trainer v1alpha1)."""

    kind = "TrainingRuntime"


def of_catalogue(error: TrainerError) -> list[Problem]:
    """What a catalogue refuses, at the argument that is wrong: `release` names what it does not have, or `catalog` is none."""
    return [
        p if p.where == "catalog"
        else replace(p, where="catalog", why=f"{p.where}: {p.why}") if p.where
        else p.below("release")
        for p in error.problems
    ]  # fmt: skip


def _deprecation(name: str, release: str | None, catalog: RuntimeCatalog | None) -> Deprecation | None:
    return (catalog or BUILT_IN).deprecation(name, release) if release else None


def _document(
    kind: str,
    name: str,
    release: str | None,
    args: RuntimeArgs,
    catalog: RuntimeCatalog | None = None,
    misnamed: Sequence[Problem] = (),
) -> tuple[dict[str, Any], list[Problem]]:
    if catalog is not None and (not isinstance(catalog, RuntimeCatalog) or release is None):
        why = "is for a release of it" if release is None else f"must be a RuntimeCatalog, not {said(catalog)}"
        return {}, [Problem("catalog", why, "give release= and catalog=RuntimeCatalog.from_dir(...)")]
    if release is not None and not isinstance(release, str):
        return {}, [Problem("release", f"must be text, such as 2.3.0, not {said(release)}")]
    if release is not None:
        given = [k for k in ("ml_policy", "template", "pod_group_policy") if getattr(args, k) is not None]
        if given:
            why = f"a release of the catalogue is fixed, and {' and '.join(given)} would change it"
            return {}, [Problem("release", why, "leave release out, or the others")]
        try:
            document = (catalog or BUILT_IN).load(name, release)
            _deprecation(name, release, catalog)
        except TrainerError as error:
            return {}, of_catalogue(error)
        return {**document, "kind": kind}, nested_problems(args)
    found = nested_problems(args)
    if args.template is None and not misnamed:
        mend = "give template=, or release= of a runtime of the catalogue"
        found.append(Problem("template", "is required", mend))
    if found:
        return {}, found
    about = {"name": name, **metadata(args.labels, args.annotations).get("metadata", {})}
    if isinstance(args.ml_policy, (MLPolicy, Policy)) and args.ml_policy.framework:
        about["labels"] = {FRAMEWORK: args.ml_policy.framework, **about.get("labels", {})}
    plain = policy_names(args.document())
    spec = {part: plain[part] for part in ("mlPolicy", "podGroupPolicy", "template") if part in plain}
    if isinstance(args.pod_group_policy, PodGroupPolicy):
        spec["template"] = args.pod_group_policy.template(spec["template"])
        spec = {name: part for name, part in spec.items() if name != "podGroupPolicy" or part}
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": about, "spec": spec}
    document, found = json_value(document, "", below)
    return {} if found else document, [replace(p, where=args.place(p.where.removeprefix("spec."))) for p in found]


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """The document as an input of the component, which takes JSON only: what Outputs turn out to be is judged later."""

    def plain(_: str, leaf: Any) -> Any:
        return leaf.apply(lambda value: json_value(value, "")[0]) if isinstance(leaf, pulumi.Output) else leaf

    shown: dict[str, Any] = walk(document, plain)
    return shown
