"""Finds what the pods of a job need that MultiKueue does not send to the worker cluster: it copies only the job itself.

Code, Secrets and output volumes of a job are copied to the worker clusters that the program reaches. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pulumi_trainer.provider.jobs.submission import MAIN, Draft
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE, QUEUE_PRIORITY
from pulumi_trainer.provider.trainer.admission.referents import referents, secret_keys
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, TRAINING_RUNTIME

_RUNTIMES = (CLUSTER_RUNTIME.kind, TRAINING_RUNTIME.kind)
_OF_KUEUE = (LOCAL_QUEUE, QUEUE_PRIORITY)


def refusals(draft: Draft, workers: Collection[str] = ()) -> list[Problem]:
    """Return the objects that the program creates for the job, which only exist in this cluster."""
    if draft.dispatch is None:
        return []
    unreached = _unreached(draft.dispatch.clusters, workers)
    needed, claims = {*_needed_keys(draft)}, {*draft.claims}
    own = needed & ({*draft.promised} - claims)
    if workers and not unreached:
        own = _without_kinds(own, _RUNTIMES)  # the program creates them there as well
    else:
        own |= _without_kinds(draft.objects, MAIN)
        own |= {*secret_keys(draft.secrets)}
        own |= needed & claims
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
    """
    if draft.dispatch is None or (workers and not _unreached(draft.dispatch.clusters, workers)):
        return
    brought = {*draft.promised, *secret_keys(draft.secrets)}
    named = [key.replace("/", " ", 1) for key in _needed_keys(draft) if key not in brought]
    if named:
        why = f"MultiKueue sends the job to {draft.dispatch}, where its namespace must have: {', '.join(named)}"
        yield Problem("queue", why, "create these objects there")


def _unreached(clusters: Collection[str], workers: Collection[str]) -> list[str]:
    """Return the worker clusters of a queue that the program does not reach."""
    return [name for name in clusters if name not in workers]


def _without_kinds(keys: Iterable[str], excluded: Collection[str]) -> set[str]:
    """Return the keys "Kind/name" of other kinds than the excluded ones."""
    return {key for key in keys if key.partition("/")[0] not in excluded}


def _needed_keys(draft: Draft) -> Iterator[str]:
    """Yield "Kind/name" of what no pod of the job runs without, except objects of Kueue."""
    for each in referents({**draft.made, **draft.objects}):
        if each.kind not in _OF_KUEUE and each.needed:
            yield f"{each.kind.kind}/{each.name}"
