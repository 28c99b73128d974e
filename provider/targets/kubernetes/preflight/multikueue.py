"""Finds what the pods of a job need that MultiKueue does not send to the worker cluster: it copies only the job itself.

Code, Secrets and output volumes of a job are copied to the worker clusters that the program reaches. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pulumi_trainer.provider.api.kinds import CLUSTER_RUNTIME, TRAINING_RUNTIME
from pulumi_trainer.provider.api.submission import MAIN, Draft
from pulumi_trainer.provider.kube.client import api_resources as kinds
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE, QUEUE_PRIORITY
from pulumi_trainer.provider.targets.kubernetes.preflight.referents import Referent, referents

_RUNTIMES = (CLUSTER_RUNTIME.kind, TRAINING_RUNTIME.kind)
_OF_KUEUE = (LOCAL_QUEUE, QUEUE_PRIORITY)


def refusals(draft: Draft, workers: Collection[str] = ()) -> list[Problem]:
    """Return the objects that the program creates for the job, which only exist in this cluster.

    Args:
        draft: The job.
        workers: Names of the worker clusters that the program reaches.
    """
    if draft.dispatch is None:
        return []
    unreached = [name for name in draft.dispatch.clusters if name not in workers]
    own = {key for key in map(_key, _needed(draft)) if key in {*draft.promised} - {*draft.claims}}
    if workers and not unreached:
        own = {key for key in own if key.partition("/")[0] not in _RUNTIMES}  # the program creates them there as well
    else:
        own |= {key for key in draft.objects if key.partition("/")[0] not in MAIN}
        own |= {f"{kinds.SECRET.kind}/{name}" for name in draft.secrets}
        own |= {key for key in map(_key, _needed(draft)) if key in {*draft.claims}}
    if not own:
        return []
    what = ", ".join(sorted(key.replace("/", " ") for key in own))
    why = (
        f"MultiKueue sends the job to {draft.dispatch}, but these objects, which its pods need, stay in this"
        f" cluster: {what}"
    )
    hint = (
        "choose a queue without MultiKueue, or put the code into the image and use objects that exist in the worker"
        " clusters"
    )
    if unreached or not workers:
        names = ", ".join(unreached) or "them"
        hint = f"name {names} in target=Kubernetes(workers=...) or trainer:workers, so that they get copies; or {hint}"
    return [Problem("queue", why, hint)]


def warnings(draft: Draft, workers: Collection[str] = ()) -> Iterator[Problem]:
    """Yield a warning with the objects that the job only references: they have to exist in the worker clusters, which cannot be
    checked from here unless the program reaches them.

    Args:
        draft: The job.
        workers: Names of the worker clusters that the program reaches.
    """
    if draft.dispatch is None or (workers and all(name in workers for name in draft.dispatch.clusters)):
        return
    brought = {*draft.promised, *(f"{kinds.SECRET.kind}/{name}" for name in draft.secrets)}
    named = [key.replace("/", " ", 1) for key in map(_key, _needed(draft)) if key not in brought]
    if named:
        why = f"MultiKueue sends the job to {draft.dispatch}, where its namespace must have: {', '.join(named)}"
        yield Problem("queue", why, "create these objects there")


def _key(referent: Referent) -> str:
    return f"{referent.kind.kind}/{referent.name}"


def _needed(draft: Draft) -> list[Referent]:
    found = referents({**draft.made, **draft.objects})
    return [each for each in found if each.kind not in _OF_KUEUE and each.needed]
