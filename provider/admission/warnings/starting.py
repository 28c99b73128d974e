"""Rules about what keeps a job from starting: names, order, gangs, host names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.pipeline.info import NODE

from ..reading import mapping
from .view import DEFAULT_NAMESPACE, Document, Step, View, number

_LONGEST = 63
_HEAD_NODE = ("torch", "jax", "xgboost")
"""Policies that send all nodes to the address of the first one."""


def long_names(view: View) -> Iterator[Problem]:
    """https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go"""
    names = [(len(_longest_pod(step)), step) for step in view.steps if isinstance(step.name, str)]
    if not names or not isinstance(view.name, str):
        return
    taken, step = max(names, key=lambda one: one[0])
    over = len(view.name) + taken - _LONGEST
    if over > 0:
        why = (
            f"has {len(view.name)} characters, and JobSet takes up to {_LONGEST - taken} here: the Pods of {step.name}"
            f" get names like {view.name}{_longest_pod(step)}, which may have {_LONGEST}"
        )
        yield Problem("metadata.name", why, f"shorten it by {over}")


def _longest_pod(step: Step) -> str:
    """What stands behind the job's name in the name of its last Pod; with the lowest numbers where they are not known."""
    replicas, completions = (number(n) or 1 for n in (step.document.get("replicas"), step.job.get("completions")))
    return f"-{step.name}-{replicas - 1}-{completions - 1}-abcde"


def gang_that_waits_for_itself(view: View) -> Iterator[Problem]:
    policy = mapping(view.runtime, "spec", "podGroupPolicy")
    gang = next((name for name in ("coscheduling", "volcano") if isinstance(policy.get(name), dict)), None)
    first = _starting_at_once(view)
    waiting = [step for step in view.steps if step not in first]
    if gang is None or not waiting:
        return
    there, wanted = _sum(step.pods for step in first), _sum(step.count for step in view.steps)
    if there is not None and wanted is not None and there >= wanted:
        return
    names = ", ".join(str(step.name) for step in waiting)
    why = (
        f"the gang starts when all its Pods are there, those of {names} too; they are made only when earlier steps have"
        " come as far as they wait for, and those are not scheduled before the gang starts: it waits for ever"
    )
    mend = (
        "fetch data and models before the job (DatasetInitializer, ModelInitializer), or use a runtime without a gang"
    )
    yield Problem(f"spec.podGroupPolicy.{gang}", why, mend)


def _starting_at_once(view: View) -> list[Step]:
    if mapping(view.jobset, "spec", "startupPolicy").get("startupPolicyOrder") == "InOrder":
        return view.steps[:1]
    return [step for step in view.steps if not step.waits_for]


def _sum(counts: Any) -> int | None:
    found = list(counts)
    return None if None in found else sum(found)


def depends_on_itself(view: View) -> Iterator[Problem]:
    for step in view.steps:
        if step.name in step.waits_for:
            why = f"{step.name} waits for itself: JobSet admits that, and never starts it"
            yield Problem(f"{step.at}.dependsOn", why, "name an earlier replicated job")


def shared_subdomain(view: View) -> Iterator[Problem]:
    """The headless Service of a subdomain belongs to the JobSet that came first:
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go"""
    mine = subdomain(view.jobset)
    about = mapping(view.jobset, "metadata")
    for other in view.siblings:
        theirs = mapping(other, "metadata")
        if _namespace(theirs) != _namespace(about) or theirs.get("name") == about.get("name"):
            continue
        if isinstance(mine, str) and mine == subdomain(other):
            why = (
                f"{mine} is the subdomain of JobSet {theirs.get('name')} as well: both use the Service of the one that"
                " comes first, and the other's nodes lose each other when that one is deleted"
            )
            where = "spec.template.spec.network.subdomain"
            yield Problem(where, why, "give each its own, or leave it out: it is then the job's name")


def _namespace(metadata: Document) -> Any:
    return metadata.get("namespace") or DEFAULT_NAMESPACE


def subdomain(jobset: Document) -> Any:
    """Of its Pods' host names; None where they have none."""
    network = mapping(jobset, "spec", "network")
    if network.get("enableDNSHostnames") is False:
        return None
    return network.get("subdomain") or mapping(jobset, "metadata").get("name")


def address_of_nobody(view: View) -> Iterator[Problem]:
    """https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go: the address is
    always `<job>-node-0-0.<job>`."""
    if (
        not view.has_policy(*_HEAD_NODE)
        or view.trainer is None
        or not view.trainers
        or not view.sure
        or _own_rendezvous(view)
    ):
        return
    step, network = view.trainers[0], mapping(view.jobset, "spec", "network")
    first = f"{view.name}-{NODE}-0-0.{view.name}"
    own = network.get("subdomain")
    if isinstance(step.name, str) and step.name != NODE:
        why = f"the nodes look for {first}, and there is none: the trainer's replicated job is called {step.name}"
        yield Problem(f"{step.at}.name", why, f"call it {NODE}")
    elif isinstance(own, str) and own not in ("", view.name):
        why = f"the nodes look for {first}, and are called {view.name}-{NODE}-0-0.{own}"
        yield Problem("spec.template.spec.network.subdomain", why, "leave it out")
    elif network.get("enableDNSHostnames") is False and view.several_nodes:
        why = f"the nodes look for {first}, and nodes have no names without it"
        yield Problem("spec.template.spec.network.enableDNSHostnames", why, "leave it out")


def _own_rendezvous(view: View) -> bool:
    return any(option in word for word in view.words or () for option in ("--master", "--rdzv"))


def volcano_without_scheduler(view: View) -> Iterator[Problem]:
    """Neither Trainer nor we set it:
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/volcano/volcano.go"""
    if not isinstance(mapping(view.runtime, "spec", "podGroupPolicy").get("volcano"), dict):
        return
    if without := [step for step in view.steps if not step.pod.get("schedulerName")]:
        names = ", ".join(str(step.name) for step in without)
        why = (
            f"the Pods of {names} go to the cluster's default scheduler, which starts them singly if it is not Volcano"
        )
        where = f"{without[0].at}.template.spec.template.spec.schedulerName"
        yield Problem(where, why, "write volcano, or what yours is called")
