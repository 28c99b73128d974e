"""Training runtimes as components, which TrainJobs are made from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import Args, check_names, child_path, metadata, nested_problems, shown_value, walk
from pulumi_trainer.args.field_types import field_types
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.naming import camel
from pulumi_trainer.args.policies import MLPolicy, PodGroupPolicy
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.template import JobSetTemplate
from pulumi_trainer.plan.job_plan import PlacedJob
from pulumi_trainer.plan.outputs import resolve, restore_outputs
from pulumi_trainer.plan.review import none_problems, refusals
from pulumi_trainer.plan.runtime_ref import API_VERSION, LoadedRuntime, RuntimeSource, deprecation_warnings
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.registered_plugins import policy_names, runtime_problems
from pulumi_trainer.program.removals import names_of_runtimes
from pulumi_trainer.program.targets import Destination, Place
from pulumi_trainer.program.trainer_release import choose_release, configured_release
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.engine.pulumi_compat import aliases_of, known_output
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import section, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline.policy import Policy
from pulumi_trainer.runtimes import BUILT_IN, Deprecation, RuntimeCatalog, Withdrawal


class RuntimeArgs(ComponentArgs):
    """The arguments of `ClusterTrainingRuntime` and `TrainingRuntime`."""

    release: str | None = None
    catalog: RuntimeCatalog | None = None
    name: str | None = None
    ml_policy: MLPolicy | Policy | Mapping[str, Any] | None = None
    template: JobSetTemplate | Mapping[str, Any] | None = None
    pod_group_policy: PodGroupPolicy | Policy | Mapping[str, Any] | None = None
    labels: Mapping[str, pulumi.Input[str]] | None = None
    annotations: Mapping[str, pulumi.Input[str]] | None = None
    force: bool = False
    adopt: bool | Literal["existing"] = False
    target: Destination | None = None

    shipped = ComponentArgs.shipped | {"release", "catalog", "force"}
    api = "ClusterTrainingRuntime.spec"
    places = {"metadata.": ""}

    def check(self) -> list[Problem]:
        found = super().check()
        for field in ("ml_policy", "pod_group_policy", "template"):
            found += _part_problems(field, getattr(self, field), field_types(RuntimeArgs)[field].classes[0])
        return found


def _part_problems(field: str, value: Any, wanted: Any) -> list[Problem]:
    """Return why a value is not a valid part of a runtime: typed arguments of the class `wanted`, a plugin's policy, or a
    mapping.
    """
    if value is None or isinstance(value, (wanted, Mapping, Unknown)):
        return []
    if isinstance(value, type):
        return [Problem(field, "is a class", f"give an instance: {value.__name__}(...)")]
    if isinstance(value, Policy):
        fits = value.parts()[0] == camel(field)
        if fits:
            return []
        return [Problem(field, f"{type(value).__name__} belongs in {value.serves}")]
    known = [policy.__name__ for policy in wanted.__subclasses__()]
    if isinstance(value, Args) and known:
        return [Problem(field, f"must be one of {', '.join(known)}, not {type(value).__name__}")]
    article = "a"
    if wanted is MLPolicy:
        article = "an"
    return [Problem(field, f"must be {article} {wanted.__name__} or a mapping, not {shown_value(value)}")]


class ClusterTrainingRuntime(RuntimeSource, pulumi.ComponentResource):
    """A runtime for all namespaces (ClusterTrainingRuntime, pkg/apis/trainer/v1alpha1/trainingruntime_types.go, v2.3.0).

    With `release` the runtime is the one of this name in a catalogue (`ClusterTrainingRuntime("torch-distributed",
    release="2.3.0")`); otherwise `ml_policy` and `template` define it. In mode jobset nothing is created in the cluster: jobs
    carry what they need. In mode trainer the runtime is created in the cluster of `target`, in those of the TrainJobs that
    use it and in their `workers`, and changed in place; existing jobs keep what they were created with.

    Args:
        resource_name: Name of the Pulumi resource.
        release: Release of a runtime of the catalogue, such as 2.3.0.
        catalog: Catalogue of the release; default: the built-in one.
        name: Name of the runtime in the API and in the catalogue; default: the resource's name.
        ml_policy: Framework: `TorchPolicy`, `MPIPolicy`, `JAXPolicy`, `XGBoostPolicy`, `FluxPolicy`, `TensorFlowPolicy`,
            `PaddlePolicy`, `PlainPolicy`, a plugin's policy, or a mapping (`mlPolicy`).
        template: JobSet that jobs are made from: a `JobSetTemplate` or a mapping (`template`).
        pod_group_policy: Gang scheduling: `CoschedulingPolicy`, `VolcanoPolicy`, `KAIPolicy`, a plugin's policy, or a
            mapping; default: none (`podGroupPolicy`).
        labels: Labels of the runtime; `trainer.kubeflow.org/framework` names what starts user code, default: the
            framework of `ml_policy`.
        annotations: Annotations of the runtime.
        force: Whether the runtime may be deleted while an unfinished TrainJob uses it; default: False.
        adopt: Whether to take over an equal runtime of the cluster that belongs to no program (mode trainer); `existing`: one
            that is missing is refused, and not created. Default: False.
        target: `Local(...)` or `Kubernetes(...)`; default: `trainer:target` of the stack, else Local.
        opts: Resource options.
    """

    kind: ClassVar[str] = "ClusterTrainingRuntime"
    misnamed: list[Problem]

    @constructor(RuntimeArgs)
    def __init__(self) -> None: ...

    def construct(self, args: RuntimeArgs) -> None:
        """Check the runtime, register the component, and create the runtime in mode trainer."""
        site = session.call_site()
        self.where = f'{self.kind}("{args.resource_name}")'
        self.misnamed += check_names(vars(args))
        self.plain, found = runtime_document(self.kind, args, self.misnamed)
        # Before it is registered: the plan would show them, and be refused then.
        exposed = _plain_secrets(self.plain)
        found += _by_argument(args, exposed)
        self.release = args.release
        self.deprecation: Deprecation | Withdrawal | None = None
        if not found:
            self.deprecation = _deprecation(args)
        self._force = bool(args.force)
        self._args = args
        self._site = site
        self._opts = args.opts or pulumi.ResourceOptions()
        self._target = args.target
        self._applied: dict[str, dynamic.Runtime] = {}
        shown = None
        if not exposed:
            shown = _shown(self.plain)
        super().__init__(f"trainer:index:{self.kind}", args.resource_name, {"document": shown}, args.opts)
        self.problems = session.current().spawn(
            self._review(merge_problems(self.misnamed, [*found, *targets.problems(self._target)]))
        )
        self.register_outputs({})

    async def _review(self, found: list[Problem]) -> bool:
        """Report the problems of the runtime; return whether there are any."""
        if not found:
            self._resolved = resolved = await resolve(self.plain, "")
            destination = targets.choose(self._target)
            release = configured_release()
            if targets.mode_of(destination) == "trainer":
                release = await choose_release(destination, await targets.place(destination))
            found = resolved.problems + runtime_problems(resolved.document, release)
            dropped = none_problems("ClusterTrainingRuntime.spec", resolved.document.get("spec"), "spec")
            found = merge_problems(found, dropped)
            found += _plain_secrets(resolved.document)
            found = found or refusals(resolved.document, release)
            if not found and targets.mode_of(destination) == "trainer":
                found = self.secrets
                if not found:
                    try:
                        await self.runtime_resources(destination)
                    except TrainerError as error:
                        found = list(error.problems)
            found = _by_argument(self._args, found)
        session.current().problems.extend(problems_below(f"{self.where} ({self._site})", found))
        return bool(found)

    async def made_from(
        self,
        follow: str,  # noqa: ARG002 (such a runtime is not followed)
        job: PlacedJob,
    ) -> LoadedRuntime:
        """Return the runtime for a job."""
        if await self.problems:
            raise Invalid(Problem("", f"was rejected: fix {self.where} first"))
        needs: list[pulumi.Resource] = []
        if job.mode == "trainer":
            secrets = self.secrets
            if secrets:
                raise Invalid(*secrets)
            needs = await self.runtime_resources(job.destination)
        return LoadedRuntime(document=self.plain, needs=needs, warnings=deprecation_warnings(self.deprecation))

    async def runtime_resources(self, destination: Destination) -> list[pulumi.Resource]:
        """Return the runtime's resources in mode trainer: in the cluster, and in each worker cluster of MultiKueue, whose
        controller merges the runtime and the job there.
        """
        place = await targets.place(destination)
        release = await choose_release(destination, place)
        places = (place, *targets.worker_places(place))
        return [await self._runtime_resource(each, release.version) for each in places]

    async def _runtime_resource(self, place: Place, trainer: str) -> dynamic.Runtime:
        """Return the runtime's resource in one cluster; for a TrainingRuntime, in its namespace."""
        connection = place.target
        document = {**self._resolved.document, "metadata": {**self._resolved.document["metadata"]}}
        if self.kind == "TrainingRuntime":
            document["metadata"]["namespace"] = place.namespace
        cluster = without(session.plain(connection), "namespace")
        where, namespace = f"{self.where} ({self._site})", document["metadata"].get("namespace", "")
        key = str([session.key(cluster), namespace])
        taken = session.current().claim(cluster, self.kind, namespace, document["metadata"]["name"], where)
        if taken:
            raise Invalid(*taken)
        urn, target = await self.urn.future() or "", await session.current().target(connection)
        kept = await self._kept_names(urn, namespace, connection)
        if key not in self._applied:
            name = self._resource_name(namespace, kept)
            inputs = dynamic.RuntimeInputs(
                document=known_output(restore_outputs(document, {**self._resolved.unknown, **place.unknown})),
                target=session.target_input(connection, target),
                component=urn,
                trainer=trainer,
                force=self._force,
                adopt=self._args.adopt,
            )
            options = pulumi.ResourceOptions(
                parent=self,
                depends_on=[target, *place.needs, *self._resolved.depends_on],
                retain_on_delete=self._opts.retain_on_delete,
                protect=self._opts.protect,
            )
            self._applied[key] = dynamic.Runtime(name, inputs, options)
            session.current().promised.add(f"{self.kind}/{document['metadata']['name']}")
        return self._applied[key]

    async def _kept_names(self, urn: str, namespace: Any, connection: Mapping[str, Any]) -> list[str]:
        """Return the runtime's resource names in the stack's state, for a cluster or a namespace in it."""
        stack = await session.current().stack_resources()
        urns = [urn]
        for alias in aliases_of(self):
            former = await pulumi.Output.from_input(alias).future()
            if former:
                urns.append(former)
        return names_of_runtimes(stack, urns, namespace, session.plain(connection))

    def _resource_name(self, namespace: Any, kept: list[str]) -> str:
        """Return the resource name of the runtime for another cluster or namespace.

        The name does not depend on the order of the jobs, which would exchange the runtimes of resources and delete them.
        """
        name = self.pulumi_resource_name
        if namespace and isinstance(namespace, str):
            name = f"{name}-{namespace}"
        counted = (f"{name}-{count}" for count in itertools.count(2))
        taken = {resource.pulumi_resource_name for resource in self._applied.values()}
        return next(each for each in itertools.chain(kept, [name], counted) if each not in taken)

    @property
    def secrets(self) -> list[Problem]:
        """Return a problem for each secret: many can read a runtime in a cluster, and no Secret belongs to it."""
        why = "is secret, but many users of a cluster can read its runtimes"
        hint = "refer to a Secret of the cluster (valueFrom.secretKeyRef), or pass it in the TrainJob's env"
        return [Problem(f"env[{key}]", why, hint) for key in self._resolved.secrets]


class TrainingRuntime(ClusterTrainingRuntime):
    """A runtime for one namespace (TrainingRuntime of Kubeflow Trainer v1alpha1), otherwise as `ClusterTrainingRuntime`.

    Args:
        resource_name: Name of the Pulumi resource.
        release: Release of a runtime of the catalogue, such as 2.3.0.
        catalog: Catalogue of the release; default: the built-in one.
        name: Name of the runtime in the API and in the catalogue; default: the resource's name.
        ml_policy: Framework: `TorchPolicy`, `MPIPolicy`, `JAXPolicy`, `XGBoostPolicy`, `FluxPolicy`, `TensorFlowPolicy`,
            `PaddlePolicy`, `PlainPolicy`, a plugin's policy, or a mapping (`mlPolicy`).
        template: JobSet that jobs are made from: a `JobSetTemplate` or a mapping (`template`).
        pod_group_policy: Gang scheduling: `CoschedulingPolicy`, `VolcanoPolicy`, `KAIPolicy`, a plugin's policy, or a
            mapping; default: none (`podGroupPolicy`).
        labels: Labels of the runtime; `trainer.kubeflow.org/framework` names what starts user code, default: the
            framework of `ml_policy`.
        annotations: Annotations of the runtime.
        force: Whether the runtime may be deleted while an unfinished TrainJob uses it; default: False.
        adopt: Whether to take over an equal runtime of the cluster that belongs to no program (mode trainer); `existing`: one
            that is missing is refused, and not created. Default: False.
        target: `Local(...)` or `Kubernetes(...)`; default: `trainer:target` of the stack, else Local.
        opts: Resource options.
    """

    kind = "TrainingRuntime"


def catalogue_argument_problems(error: TrainerError) -> list[Problem]:
    """Return the problems of a catalogue by argument: `release` for an unknown release, `catalog` for an invalid catalogue."""
    found = []
    for problem in error.problems:
        if not problem.where:
            problem = problem.below("release")
        elif problem.where != "catalog":
            problem = replace(problem, where="catalog", why=f"{problem.where}: {problem.why}")
        found.append(problem)
    return found


def _deprecation(args: RuntimeArgs) -> Deprecation | Withdrawal | None:
    catalog = args.catalog or BUILT_IN
    if not args.release:
        return None
    place = args.name or args.resource_name, args.release
    return catalog.withdrawal(*place) or catalog.deprecation(*place)


def _plain_secrets(document: Mapping[str, Any]) -> list[Problem]:
    """Return the plain-text secrets in a runtime."""
    shown = {part: section(document, "metadata").get(part) for part in ("labels", "annotations")}
    return plaintext_secrets.problems({**shown, "spec": document.get("spec")}, "")


def _with_own_metadata(released: dict[str, Any], args: RuntimeArgs) -> tuple[dict[str, Any], list[Problem]]:
    """Return the metadata of a release with the labels and annotations of a program, which cannot change those of the release."""
    about, problems = {**released}, list[Problem]()
    for part, given in metadata(args.labels, args.annotations).get("metadata", {}).items():
        if not isinstance(given, Mapping):
            continue
        known = section(released, part)
        for key, value in given.items():
            if value != known.get(key, value):
                problems.append(Problem(f"{part}[{key}]", "is set by the release", "leave it out"))
        about[part] = {**given, **known}
    return about, problems


def runtime_document(
    kind: str, args: RuntimeArgs, misnamed: Sequence[Problem] = ()
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document of a runtime, and the problems of its arguments. misnamed: Problems that are known already."""
    name, release, catalog = args.name or args.resource_name, args.release, args.catalog
    if catalog is not None and (not isinstance(catalog, RuntimeCatalog) or release is None):
        if release is None:
            why = "requires release"
        else:
            why = f"must be a RuntimeCatalog, not {shown_value(catalog)}"
        return {}, [Problem("catalog", why, "give release= and catalog=RuntimeCatalog.from_dir(...)")]
    if release is not None:
        return _released_document(kind, args, name, release)
    found = nested_problems(args)
    if args.template is None and not misnamed:
        hint = "give template=, or release= of a runtime of the catalogue"
        found.append(Problem("template", "is required", hint))
    if found:
        return {}, found
    about = {"name": name, **metadata(args.labels, args.annotations).get("metadata", {})}
    if isinstance(args.ml_policy, (MLPolicy, Policy)) and args.ml_policy.framework:
        about["labels"] = {FRAMEWORK: args.ml_policy.framework, **about.get("labels", {})}
    plain = policy_names(args.document())
    spec = {part: plain[part] for part in ("mlPolicy", "podGroupPolicy", "template") if part in plain}
    if isinstance(args.pod_group_policy, PodGroupPolicy):
        spec["template"] = args.pod_group_policy.template(spec["template"])
        if "podGroupPolicy" in spec and not spec["podGroupPolicy"]:
            del spec["podGroupPolicy"]
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": about, "spec": spec}
    document, found = json_value(document, "", child_path)
    if found:
        return {}, _by_argument(args, found)
    return document, []


def _released_document(kind: str, args: RuntimeArgs, name: str, release: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Return the document of a runtime of the catalogue, and the problems of the arguments."""
    if not isinstance(release, str):
        return {}, [Problem("release", f"must be text, such as 2.3.0, not {shown_value(release)}")]
    given = [k for k in ("ml_policy", "template", "pod_group_policy") if getattr(args, k) is not None]
    if given:
        why = f"cannot be combined with {' and '.join(given)}: a release of the catalogue is immutable"
        return {}, [Problem("release", why, f"leave out release, or {' and '.join(given)}")]
    try:
        document = (args.catalog or BUILT_IN).load(name, release)
        _deprecation(args)
    except TrainerError as error:
        return {}, catalogue_argument_problems(error)
    about, clashes = _with_own_metadata(document["metadata"], args)
    return {**document, "kind": kind, "metadata": about}, [*nested_problems(args), *clashes]


def _by_argument(args: RuntimeArgs, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems of a runtime's document with the paths of the arguments."""
    return [replace(p, where=args.place(p.where.removeprefix("spec."))) for p in problems]


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as an input of the component, which accepts only JSON; values of Outputs are checked later."""

    def plain(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, pulumi.Output):
            return leaf
        return leaf.apply(lambda value: json_value(value, "")[0])

    shown: dict[str, Any] = walk(document, plain)
    return shown
