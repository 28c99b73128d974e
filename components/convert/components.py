"""Turns documents into calls of components: runtimes, TrainJobs and Kueue's objects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pulumi_trainer.args.naming import schema_at
from pulumi_trainer.args.sources import DataSource, Initializer
from pulumi_trainer.args.trainers import Trainer
from pulumi_trainer.convert import typed
from pulumi_trainer.convert.python_source import Call, Expression
from pulumi_trainer.convert.typed import Untyped, call_of
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, section, text, without
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.queues import checks, flavors, objects
from pulumi_trainer.queues.arguments import CheckParameters, ResourceQuota, Spec
from pulumi_trainer.queues.quotas import AdmissionCheckRule, FlavorQuotas, ResourceGroup
from pulumi_trainer.runtime import ClusterTrainingRuntime, RuntimeArgs, TrainingRuntime
from pulumi_trainer.trainjob import TrainJob

Refer = Callable[[str, str, Any], Any]
"""Returns what names an object in a program, from its kind, namespace and name: its variable, or the name."""

QUEUES: Mapping[str, tuple[type, type[Spec]]] = {
    "Topology": (flavors.Topology, flavors.TopologyArgs),
    "ResourceFlavor": (flavors.ResourceFlavor, flavors.ResourceFlavorArgs),
    "ProvisioningRequestConfig": (checks.ProvisioningRequestConfig, checks.ProvisioningRequestConfigArgs),
    "MultiKueueCluster": (checks.MultiKueueCluster, checks.MultiKueueClusterArgs),
    "MultiKueueConfig": (checks.MultiKueueConfig, checks.MultiKueueConfigArgs),
    "AdmissionCheck": (checks.AdmissionCheck, checks.AdmissionCheckArgs),
    "Cohort": (objects.Cohort, objects.CohortArgs),
    "ClusterQueue": (objects.ClusterQueue, objects.ClusterQueueArgs),
    "LocalQueue": (objects.LocalQueue, objects.LocalQueueArgs),
    "WorkloadPriorityClass": (objects.WorkloadPriorityClass, objects.WorkloadPriorityClassArgs),
}
"""Kind -> component and its arguments."""
RUNTIMES = {"ClusterTrainingRuntime": ClusterTrainingRuntime, "TrainingRuntime": TrainingRuntime}


def queue_call(document: Document, refer: Refer) -> Call:
    """Return the call of the component of a Kueue object of v1beta2. Raises Untyped."""
    kind = document["kind"]
    cls, arguments = QUEUES[kind]
    given = section(document, "spec")
    if kind == "WorkloadPriorityClass":
        given = without(document, "apiVersion", "kind", "metadata")
    rest, made = copy.deepcopy(given), dict[str, Any]()
    for field, (path, convert) in _SPECIAL.get(kind, {}).items():
        value = _pop(rest, path)
        if value is not None:
            made[field] = convert(value, refer)
    made.update(call_of(arguments, rest).arguments)
    for field, referred in arguments.refers.items():
        if isinstance(made.get(field), str):
            made[field] = refer(referred, "", made[field])
    if made.get("namespace_selector") == {}:
        del made["namespace_selector"]
    ordered = _in_order(made, arguments.fields)
    about = section(document, "metadata")
    if kind == "LocalQueue" and text(about.get("namespace")):
        ordered["namespace"] = about["namespace"]
    return Call(cls, {**ordered, **_metadata(about)}, name_of(document))


def runtime_call(document: Document, refer: Refer) -> Call:  # noqa: ARG001  # all converters take it
    """Return the call of the component of a runtime."""
    spec = section(document, "spec")
    about = section(document, "metadata")
    made: dict[str, Any] = {}
    if spec.get("mlPolicy") is not None:
        made["ml_policy"] = typed.ml_policy(spec["mlPolicy"])
    if spec.get("podGroupPolicy") is not None:
        made["pod_group_policy"] = typed.pod_group_policy(spec["podGroupPolicy"])
    made["template"] = typed.jobset_template(spec.get("template"))
    policy = made.get("ml_policy")
    labels = dict(section(about, "labels"))
    if isinstance(policy, Call) and labels.get(FRAMEWORK) == getattr(policy.cls, "framework", ""):
        del labels[FRAMEWORK]
    ordered = _in_order(made, RuntimeArgs.fields)
    return Call(RUNTIMES[document["kind"]], {**ordered, **_metadata({**about, "labels": labels})}, name_of(document))


def train_job_call(document: Document, refer: Refer) -> Call:
    """Return the call of TrainJob. Raises Untyped."""
    about, spec = section(document, "metadata"), section(document, "spec")
    namespace = text(about.get("namespace"))
    made: dict[str, Any] = {"runtime": refer(*runtime_of(document))}
    if section(spec, "trainer"):
        made["trainer"] = _trainer(spec["trainer"])
    if spec.get("initializer") is not None:
        made["initializer"] = _initializer(spec["initializer"])
    if mappings(spec.get("runtimePatches")):
        made["runtime_patches"] = [*map(typed.runtime_patch, spec["runtimePatches"])]
    labels = dict(section(about, "labels"))
    if isinstance(labels.get(QUEUE), str) and labels[QUEUE]:
        made["queue"] = refer("LocalQueue", namespace, labels.pop(QUEUE))
    if isinstance(labels.get(PRIORITY), str) and labels[PRIORITY]:
        made["priority"] = refer("WorkloadPriorityClass", "", labels.pop(PRIORITY))
    if str(labels.get(MAX_EXECUTION, "")).isdigit():
        made["max_execution"] = int(labels.pop(MAX_EXECUTION))
    made |= _metadata({**about, "labels": labels})
    own = call_of(TrainJobArgs, without(spec, "runtimeRef", "trainer", "initializer", "runtimePatches")).arguments
    made |= {**own, "name": name_of(document)}
    ordered = _in_order(made, TrainJobArgs.fields)
    return Call(TrainJob, ordered, name_of(document))


def runtime_of(train_job: Document) -> tuple[str, str, str]:
    """Return kind, namespace and name of the runtime of a TrainJob; the namespace of a ClusterTrainingRuntime is empty."""
    reference = section(train_job, "spec", "runtimeRef")
    kind, namespace = text(reference.get("kind")) or "ClusterTrainingRuntime", ""
    if kind == "TrainingRuntime":
        namespace = text(section(train_job, "metadata").get("namespace"))
    return kind, namespace, text(reference.get("name"))


def _trainer(document: Any) -> Call:
    call = call_of(Trainer, document)
    if "resources_per_node" in call.arguments:
        call.arguments["resources_per_node"] = typed.resources(document.get("resourcesPerNode"))
    return call


def _initializer(document: Any) -> Call:
    call = Call(Initializer)
    for kind in ("dataset", "model"):
        if document.get(kind) is None:
            continue
        source = section(document, kind)
        flat = {**source, "secretRef": section(source, "secretRef").get("name")}
        call.arguments[kind] = call_of(DataSource, {key: each for key, each in flat.items() if each is not None})
        if not isinstance(call.arguments[kind].arguments.get("env", {}), dict):
            raise Untyped(kind)
    if not call.arguments or not document.keys() <= {"dataset", "model"}:
        raise Untyped("initializer")
    return call


def _in_order(made: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return arguments in the order in which their class declares them."""
    return {field: made[field] for field in fields if field in made}


def _metadata(about: Document) -> dict[str, Any]:
    return {part: about[part] for part in ("labels", "annotations") if about.get(part)}


def _pop(document: Document, path: str) -> Any:
    *above, last = path.split(".")
    for step in above:
        document = section(document, step)
    return document.pop(last, None)


def _resource_groups(groups: Any, refer: Refer) -> Any:
    return [_resource_group(each, refer) for each in mappings(groups)]


def _resource_group(group: Document, refer: Refer) -> Call:
    made = list[Call]()
    for flavor in mappings(group.get("flavors")):
        quotas = {quota.get("name"): _quota(quota) for quota in mappings(flavor.get("resources"))}
        name = refer("ResourceFlavor", "", flavor.get("name"))
        made.append(Call(FlavorQuotas, {"flavor": name, "resources": quotas}))
    call = Call(ResourceGroup, {"flavors": made})
    covered = group.get("coveredResources")
    if not made or covered != [*made[0].arguments["resources"]]:
        call.arguments["covered_resources"] = covered
    return call


def _quota(quota: Document) -> Any:
    own = without(quota, "name")
    if own.keys() == {"nominalQuota"}:
        return own["nominalQuota"]
    return call_of(ResourceQuota, own)


def _checks_of_queue(strategy: Any, refer: Refer) -> Any:
    made = list[Any]()
    for check in mappings(section({"": strategy}, "").get("admissionChecks")):
        name = refer("AdmissionCheck", "", check.get("name"))
        on_flavors = [refer("ResourceFlavor", "", each) for each in check.get("onFlavors") or []]
        if on_flavors:
            name = Call(AdmissionCheckRule, {"check_name": name, "on_flavors": on_flavors})
        made.append(name)
    return made


def _parameters(given: Any, refer: Refer) -> Any:
    found = refer(text(section({"": given}, "").get("kind")), "", given.get("name"))
    if isinstance(found, Expression):
        return found
    return call_of(CheckParameters, given)


def _updates(given: Any, _: Refer) -> Any:
    return {each.get("key"): each.get("valueFromProvisioningClassDetail") for each in mappings(given)}


def _selector(given: Any, _: Refer) -> Any:
    return typed.python_names(schema_at("ClusterQueue.spec.namespaceSelector"), given)


_SPECIAL: Mapping[str, Mapping[str, tuple[str, Callable[[Any, Refer], Any]]]] = {
    "Topology": {"levels": ("levels", lambda given, _: [each.get("nodeLabel") for each in mappings(given)])},
    "Cohort": {"resource_groups": ("resourceGroups", _resource_groups)},
    "ClusterQueue": {
        "resource_groups": ("resourceGroups", _resource_groups),
        "admission_checks": ("admissionChecksStrategy", _checks_of_queue),
        "namespace_selector": ("namespaceSelector", _selector),
    },
    "AdmissionCheck": {"parameters": ("parameters", _parameters)},
    "MultiKueueConfig": {
        "clusters": ("clusters", lambda given, refer: [refer("MultiKueueCluster", "", each) for each in given])
    },
    "ProvisioningRequestConfig": {"node_selector_updates": ("podSetUpdates.nodeSelector", _updates)},
}
"""Kind -> argument -> path in the spec, and what converts its value."""


def component_call(document: Document, refer: Refer) -> Call:
    """Return the call of the component of a document. Raises Invalid if there is none for it.

    Args:
        document: A runtime, a TrainJob, or a Kueue object of v1beta2.
        refer: Returns the variable of a referred object, or its name if the files do not have it.
    """
    kind = document["kind"]
    convert = queue_call
    if kind in RUNTIMES:
        convert = runtime_call
    elif kind == "TrainJob":
        convert = train_job_call
    try:
        return convert(document, refer)
    except Untyped as error:
        why = f"has fields that no argument of {kind} has ({error})"
        raise Invalid(Problem("spec", why, "write this object in Python by hand")) from None
    except (AttributeError, KeyError, TypeError):  # of a part that is a list instead of a mapping, and the like
        hint = "`pulumi-trainer validate` names the field of a runtime or a TrainJob"
        raise Invalid(Problem("spec", "a field has not the type that the API expects", hint)) from None
