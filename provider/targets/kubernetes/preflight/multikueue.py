"""What the pods of a job need that MultiKueue does not send along: it copies the job, and nothing that the job refers to.

Pure functions on drafts.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.api.submission import MAIN, Draft
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kueue.resources import LOCAL_QUEUE, QUEUE_PRIORITY
from pulumi_trainer.provider.targets.kubernetes.preflight.referents import Referent, referents

_OF_KUEUE = (LOCAL_QUEUE, QUEUE_PRIORITY)


def refusals(draft: Draft) -> list[Problem]:
    """Return what the program makes for the job, which then exists in this cluster alone."""
    own = [key for key in draft.objects if key.partition("/")[0] not in MAIN]
    own += [f"{kinds.SECRET.kind}/{name}" for name in draft.secrets]
    promised = {*draft.promised}
    own += [key for each in _needed(draft) if (key := f"{each.kind.kind}/{each.name}") in promised]
    if not draft.workers or not own:
        return []
    what = ", ".join(sorted({key.replace("/", " ") for key in own}))
    why = f"MultiKueue sends the job to {draft.workers}, and what its pods need stays in this cluster: {what}"
    hint = "choose a queue without MultiKueue, or put code into the image and name what the worker clusters have"
    return [Problem("queue", why, hint)]


def warnings(draft: Draft) -> Iterator[Problem]:
    """Yield what the job only names: whether the worker clusters have it cannot be seen from here."""
    brought = {*draft.promised, *(f"{kinds.SECRET.kind}/{name}" for name in draft.secrets)}
    named = [
        f"{each.kind.kind} {each.name}" for each in _needed(draft) if f"{each.kind.kind}/{each.name}" not in brought
    ]
    if draft.workers and named:
        why = f"MultiKueue sends the job to {draft.workers}, which need to have in its namespace: {', '.join(named)}"
        yield Problem("queue", why, "create them there as well")


def _needed(draft: Draft) -> list[Referent]:
    found = referents({**draft.made, **draft.objects})
    return [each for each in found if each.kind not in _OF_KUEUE and each.needed]
