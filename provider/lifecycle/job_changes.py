"""What has changed in the inputs of a job: the reasons for a new run, its code, its secrets, and the image of a fetch."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.runs import COMMIT, read_inputs
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values.accessors import only, texts, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.lifecycle.changes import compare, queue_of
from pulumi_trainer.provider.lifecycle.data import next_run
from pulumi_trainer.provider.lifecycle.interruption import may_interrupt, own_status, status_if_reachable, wait_hint
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.resource import Checked, Props
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs
from pulumi_trainer.provider.lifecycle.target import Connect

_OF_CODE = ("code", "arguments", "packages")
"""Inputs of a run that are part of its code."""


def replacement_reasons(olds: JobInputs, news: JobInputs, connect: Connect) -> list[str]:
    """Return why a change starts a new run; empty if it happens in place."""
    changes = [c for c in compare(olds.documents, news.documents) if c.effect != "update"]
    reasons = [*map(str, changes)]
    if changes and all(c.effect == "waiting" for c in changes) and _is_queued(olds, connect):
        reasons = []
    if olds.run != news.run:
        reasons.insert(0, f"run {olds.run!r} => {news.run!r}")
    changed = _changed_arguments(olds, news)
    if changed:
        reasons.append(f"func_args: {', '.join(changed)}")
    if is_refilled(olds, news):
        reasons.append("its volume is created again")
    if (olds.namespace, olds.name) != (news.namespace, news.name):
        kept = ""
        if olds.namespace == news.namespace:
            kept = f' (name="{olds.name}" keeps it)'
        reasons.insert(0, f"name {olds.where} => {news.where}{kept}")
    return reasons


def is_refilled(olds: JobInputs, news: JobInputs) -> bool:
    """Return whether the volume that a fetch fills was made anew."""
    return bool((olds.fills or news.fills) != news.fills)


def _changed_arguments(olds: JobInputs, news: JobInputs) -> list[str]:
    """Return the names of the function arguments that have changed, except secret ones. The objects do not show them."""
    arguments = texts([olds.arguments, news.arguments])
    if len(arguments) < 2:
        return []
    before, after = map(json.loads, arguments)
    return [name for name in {**before, **after} if _as_json(before, name) != _as_json(after, name)]


def _as_json(arguments: Props, name: str) -> str:
    """Return an argument as JSON, which distinguishes 1, 1.0 and true; empty if it is not given."""
    if name not in arguments:
        return ""
    return json.dumps(arguments[name], sort_keys=True)


def _is_queued(olds: JobInputs, connect: Connect) -> bool:
    """Return whether Kueue has suspended the job; a job whose status is not readable counts as running."""
    status = own_status(olds, connect)
    return status is not None and status.phase == Phase.QUEUED


def moved_queue_note(olds: JobInputs, news: JobInputs) -> tuple[str, ...]:
    """Return a note if a waiting job moves to another queue, as Kueue may admit it in its present queue before the update."""
    before, after = queue_of(olds.documents), queue_of(news.documents)
    if not before or before == after or isinstance(after, Unknown):
        return ()
    return (
        f"{olds.where} waits in queue {before} and moves to queue {after} without a new run; if Kueue admits it before the"
        " update, the update is refused and the job continues",
    )


def kept_code_note(olds: JobInputs, news: JobInputs) -> tuple[str, ...]:
    """Return a note if nothing but the code has changed, and a change of the code does not run the job again."""
    rest = news.without_code
    if not rest or olds.without_code != rest or olds.digest == news.digest:
        return ()
    changes = changed_inputs(read_inputs(olds.run_inputs), read_inputs(news.run_inputs))
    shown = ", ".join(f"{name} {changes[name]}" for name in _OF_CODE if name in changes) or "its code has changed"
    return (f"{olds.where}: {shown}; {next_run(olds.run)} runs the new code (rerun_on)",)


def changed_inputs_note(olds: JobInputs, news: JobInputs, shown: str) -> tuple[str, ...]:
    """Return a note with the inputs in which a new run differs from the one before. shown: Name of one that has its own note."""
    before, after = read_inputs(olds.run_inputs), read_inputs(news.run_inputs)
    if isinstance(news.digest, Unknown):  # what a preview does not know yet is left out of the inputs
        before = only(before, after)
    changes = changed_inputs(without(before, COMMIT, shown), without(after, COMMIT, shown))
    if not changes:
        return ()
    return (f"{olds.where}: {'; '.join(f'{name} {change}' for name, change in changes.items())}",)


def changed_secrets(olds: JobInputs, news: JobInputs) -> list[str]:
    """Return "Secret/key" of each value that has changed; an unknown value does not count."""
    before, after = olds.secrets_of(olds.name), news.secrets_of(olds.name)
    changed = []
    for name in filter(before.__contains__, after):
        for key, value in after[name].items():
            is_comparable = key in before[name] and not isinstance(value, Unknown)
            if is_comparable and before[name][key] != value:
                changed.append(f"{name}/{key}")
    return changed


def secret_revisions(olds: JobInputs, changed: Collection[str]) -> dict[str, int]:
    """Return how often each value of the job's Secret has changed in place, with those that change now."""
    return {**olds.secret_revisions, **{key: olds.secret_revisions.get(key, 0) + 1 for key in changed}}


def has_unknown_secrets(news: JobInputs) -> bool:
    """Return whether a value of the job's Secret is not known yet."""
    return any_unknown(chain.from_iterable(secret.values() for secret in news.secrets.values()))


def secret_note(olds: JobInputs, changed: Sequence[str], connect: Connect) -> str:
    """Return which values of a job's Secret have changed, without showing them, and when the job reads them."""
    status = own_status(olds, connect)
    reads = "a job reads it when its Pods start"
    if status is not None:
        when = "at the next run"
        if status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SUSPENDED):
            when = "when it starts"
        reads = f"the job is {status.phase}: applies {when}"
    return f"{olds.where}: new secret value in Secret {', '.join(changed)}; {reads}"


def unknown_note(olds: JobInputs, news: JobInputs, connect: Connect) -> str:
    """Return what an update may do to a job whose values a preview does not know yet."""
    note = "it depends on values that are not known yet, and may start a new run"
    status = own_status(olds, connect)
    if status is None:
        return f"{olds.where}: {note}"
    if status.terminal:
        return f"{olds.where} is {status.phase}: {note}"
    ends = "which would end the current run"
    if not may_interrupt(olds, news):
        ends = f"which is refused until the current run has finished. {wait_hint(status, olds, news)}"
    return f"{olds.where} is {status.phase}: {note}, {ends}"


def check_fetch(
    olds: JobInputs, news: JobInputs, checked: Checked[JobInputs], changed: Collection[str], connect: Connect
) -> Checked[JobInputs]:
    """Return the checked inputs of a fetch whose image or secret has changed, neither of which creates another volume.

    It runs again if it has failed, and with another image also if none of its Pods has started.

    Args:
        changed: "Secret/key" of the values that have changed.
    """
    before, after = _images(olds), _images(news)
    new_image = news.target.get("kind") == "kubernetes" and None not in after and before != after
    if not new_image and not changed:
        return checked
    status = status_if_reachable(olds, connect)
    phase = "out of reach"
    if status is not None:
        phase = status.phase
    if phase == Phase.FAILED or (new_image and phase in (Phase.PENDING, Phase.STARTING)):
        change = f"new secret value in Secret {', '.join(changed)}"
        if new_image:
            change = "its image has changed"
        return Checked(new_run(olds, news), notes=(f"{olds.where} is {phase}, and {change}: it runs again",))
    if not new_image or any(key.startswith("ConfigMap/") for key in olds.objects):  # the image of some job
        return checked
    name = news.resource
    images = f"the image {_listed(before)}; image={_listed(after)} is for the next fetch"
    hint = f"`pulumi up --replace '**{name}'` fetches again"
    return replace(checked, notes=(*checked.notes, f"{olds.where} is {phase} with {images}. {hint}"))


def new_run(olds: JobInputs, news: JobInputs) -> JobInputs:
    """Return the inputs of the next run of a job."""
    return replace(news, owner=olds.owner, generation=olds.generation + 1)


def _listed(images: set[str | None]) -> str:
    return ", ".join(sorted(map(str, images)))


def _images(inputs: JobInputs) -> set[str | None]:
    """Return the images of a fetch; None stands for one that is not known yet."""
    found: set[str | None] = set()
    for key, document in inputs.documents.items():
        if not key.startswith("JobSet/"):
            continue
        for container in chain.from_iterable(job.pod.containers for job in jobs_of(document)):
            image: Any = container.document.get("image")
            found.add(image if isinstance(image, str) else None)
    return found
