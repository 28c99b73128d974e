"""Rules about jobs that do not start: names, order, gangs, host names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.views import completions
from pulumi_trainer.provider.trainer.admission.warnings.view import DEFAULT_NAMESPACE, Step, View, value_or_unknown
from pulumi_trainer.provider.trainer.labels import KAI_SCHEDULER
from pulumi_trainer.provider.trainer.pipeline.info import NODE
from pulumi_trainer.provider.trainer.pipeline.plugins.coscheduling import POD_GROUP_LABEL
from pulumi_trainer.provider.trainer.pipeline.plugins.volcano import GROUP_ANNOTATION

_LONGEST = 63
_HEAD_NODE = ("torch", "jax", "xgboost")
"""Policies that send all nodes to the address of the first one."""
GANGS = {"coscheduling": ("labels", POD_GROUP_LABEL), "volcano": ("annotations", GROUP_ANNOTATION)}
"""Policy -> where Pods name their PodGroup."""
_SCHEDULERS = {"scheduler-plugins-scheduler": "coscheduling", "volcano": "volcano", KAI_SCHEDULER: ""}
"""What gang schedulers are usually called -> the policy that they serve."""


def long_names(view: View) -> Iterator[Problem]:
    """Yield names that are too long for Pods.

    Source: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
    """
    steps = [step for step in view.steps if isinstance(step.name, str)]
    if not steps or not isinstance(view.name, str):
        return
    step = max(steps, key=lambda each: len(_longest_pod(each)))
    taken = len(_longest_pod(step))
    over = len(view.name) + taken - _LONGEST
    if over > 0:
        why = (
            f"has {len(view.name)} characters, but at most {_LONGEST - taken} are possible here: the Pods of"
            f" {step.name} get names like {view.name}{_longest_pod(step)}, which JobSet limits to {_LONGEST}"
        )
        yield Problem("metadata.name", why, f"shorten it by {over}")


def _longest_pod(step: Step) -> str:
    """Return the part of the last Pod's name after the job's name; unknown numbers count as the lowest."""
    return f"-{step.name}-{(step.replicas or 1) - 1}-{(completions(step.job) or 1) - 1}-abcde"


def gang_deadlock(view: View) -> Iterator[Problem]:
    """Yield gangs that wait for Pods which are created only after the gang has run."""
    policy = section(view.runtime, "spec", "podGroupPolicy")
    gang = next((name for name in GANGS if isinstance(policy.get(name), dict)), None)
    if gang is None:
        return
    members = [step for step in view.steps if _group(step, gang) == view.name]
    first = [step for step in _starting_at_once(view) if step in members]
    waiting = [step for step in members if step not in first]
    if not waiting:
        return
    there, wanted = _sum(step.pods for step in first), _sum(step.parallelism for step in members)
    if there is not None and wanted is not None and there >= wanted:
        return
    why = (
        f"the gang starts only when all its Pods exist, including those of {_names(waiting)}; these wait for earlier steps,"
        " whose Pods are not scheduled before the gang starts: the job never starts"
    )
    hint = (
        'use mode="jobset", which creates a PodGroup for each stage, fetch data and models before the job'
        " (DatasetInitializer,"
        " ModelInitializer), or use a runtime without a gang"
    )
    yield Problem(f"spec.podGroupPolicy.{gang}", why, hint)


def _group(step: Step, gang: str) -> Any:
    """Return the PodGroup of a step's Pods."""
    part, name = GANGS[gang]
    return section(step.template, "metadata", part).get(name)


def _starting_at_once(view: View) -> list[Step]:
    if section(view.jobset, "spec", "startupPolicy").get("startupPolicyOrder") == "InOrder":
        return view.steps[:1]
    return [step for step in view.steps if not step.waits_for]


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def depends_on_itself(view: View) -> Iterator[Problem]:
    """Yield replicated jobs that depend on themselves."""
    for step in view.steps:
        if step.name in step.waits_for:
            why = f"{step.name} waits for itself: JobSet admits it, but never starts it"
            yield Problem(f"{step.at}.dependsOn", why, "name an earlier replicated job")


def shared_subdomain(view: View) -> Iterator[Problem]:
    """Yield a subdomain that another JobSet uses: its headless Service belongs to the JobSet that was created first.

    Source: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go
    """
    mine = subdomain(view.jobset)
    about = section(view.jobset, "metadata")
    for other in view.siblings:
        theirs = section(other, "metadata")
        if _namespace(theirs) != _namespace(about) or theirs.get("name") == about.get("name"):
            continue
        if isinstance(mine, str) and mine == subdomain(other):
            why = (
                f"JobSet {theirs.get('name')} has the subdomain {mine} too: both use the Service of the older"
                " JobSet, and when that JobSet is deleted, the nodes of the other no longer find each other"
            )
            where = "spec.template.spec.network.subdomain"
            yield Problem(where, why, "give each JobSet its own, or leave it out: the default is the job's name")


def _namespace(metadata: Document) -> Any:
    return metadata.get("namespace") or DEFAULT_NAMESPACE


def subdomain(jobset: Document) -> Any:
    """Return the subdomain of a JobSet's host names; None if its Pods have no host names."""
    network = section(jobset, "spec", "network")
    if network.get("enableDNSHostnames") is False:
        return None
    return network.get("subdomain") or section(jobset, "metadata").get("name")


def address_without_pod(view: View) -> Iterator[Problem]:
    """Yield that no Pod has the address of the first node, which is always `<job>-node-0-0.<job>`.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go
    """
    if (
        not view.has_policy(*_HEAD_NODE)
        or view.trainer is None
        or not view.trainers
        or not view.steps_known
        or _own_rendezvous(view)
    ):
        return
    step, network = view.trainers[0], section(view.jobset, "spec", "network")
    first = f"{view.name}-{NODE}-0-0.{view.name}"
    own = network.get("subdomain")
    if isinstance(step.name, str) and step.name != NODE:
        why = f"the nodes look for {first}, which does not exist: the trainer's replicated job is called {step.name}"
        yield Problem(f"{step.at}.name", why, f"call it {NODE}")
    elif isinstance(own, str) and own not in ("", view.name):
        why = f"the nodes look for {first}, but their names are {view.name}-{NODE}-0-0.{own}"
        yield Problem("spec.template.spec.network.subdomain", why, "leave it out")
    elif network.get("enableDNSHostnames") is False and view.several_nodes:
        why = f"the nodes look for {first}, but without DNS hostnames they have no names"
        yield Problem("spec.template.spec.network.enableDNSHostnames", why, "leave it out")


def _own_rendezvous(view: View) -> bool:
    return any("--master" in word or "--rdzv" in word for word in view.words or ())


def volcano_without_scheduler(view: View) -> Iterator[Problem]:
    """Yield steps of a Volcano gang without its scheduler, which neither Trainer nor this package sets.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/volcano/volcano.go
    """
    hint = "write volcano, or the name of your Volcano scheduler"
    yield from _without_scheduler(view, "volcano", "it is Volcano", hint)


def coscheduling_without_scheduler(view: View) -> Iterator[Problem]:
    """Yield steps of a coscheduling gang without its scheduler; the name is that of the second scheduler in the Helm chart.

    https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/manifests/install/charts/as-a-second-scheduler/values.yaml
    """
    hint = "write scheduler-plugins-scheduler, or the name of your scheduler"
    yield from _without_scheduler(view, "coscheduling", "it has the coscheduling plugin", hint)


def _without_scheduler(view: View, gang: str, unless: str, hint: str) -> Iterator[Problem]:
    """Yield steps of a gang with the cluster's default scheduler. unless: Which default scheduler does not harm."""
    without = _with_scheduler(view, gang, _unset)
    if without:
        why = (
            f"the Pods of {_names(without)} go to the cluster's default scheduler, which starts them one by one unless"
            f" {unless}"
        )
        yield Problem(_scheduler_of(without[0]), why, hint)


def foreign_scheduler(view: View) -> Iterator[Problem]:
    """Yield steps of a gang with the scheduler of another kind of gang."""
    for gang in GANGS:
        others = tuple(name for name, whose in _SCHEDULERS.items() if whose != gang)
        foreign = _with_scheduler(view, gang, others.__contains__)
        if foreign:
            name = foreign[0].pod.spec["schedulerName"]
            does = "starts the Pods one by one"
            if name == KAI_SCHEDULER:
                does = "creates its own PodGroups"
            why = f"the runtime requests a PodGroup of {gang}, which {name} ignores: it {does}"
            yield Problem(
                _scheduler_of(foreign[0]), why, "leave podGroupPolicy out, or name the scheduler that belongs to it"
            )


def _with_scheduler(view: View, gang: str, wanted: Callable[[Any], bool]) -> list[Step]:
    """Return the steps of a runtime with that gang whose scheduler is as wanted."""
    if not isinstance(section(view.runtime, "spec", "podGroupPolicy").get(gang), dict):
        return []
    where = ("template", "spec", "template", "spec", "schedulerName")
    return [step for step in view.steps if wanted(value_or_unknown(step.document, *where))]


def _unset(scheduler: Any) -> bool:
    return not scheduler or scheduler == "default-scheduler"


def _names(steps: list[Step]) -> str:
    return ", ".join(str(step.name) for step in steps)


def _scheduler_of(step: Step) -> str:
    return f"{step.at}.template.spec.template.spec.schedulerName"
