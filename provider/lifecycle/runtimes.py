"""Checks, compares, creates, updates, reads and deletes a runtime in mode trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict, TrainerError
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.lifecycle.channels import find_consumers
from pulumi_trainer.provider.lifecycle.connection import Inputs, Located, with_current_connection
from pulumi_trainer.provider.lifecycle.impact import effect_lines, find_impacts, impact_lines
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource
from pulumi_trainer.provider.lifecycle.target import Connect, ConnectCluster
from pulumi_trainer.provider.trainer.releases import known_release
from pulumi_trainer.provider.trainer.runtime_releases import compare, level_of


@dataclass(frozen=True, kw_only=True)
class _Runtime(Located):
    """What inputs and outputs of a runtime have in common.

    Attributes:
        document: The runtime as the program wrote it; in outputs with the values of the cluster.
        owner: Set by `check`: identity of the runtime in its cluster.
        force: Whether it is deleted although unfinished TrainJobs use it.
        again: Set by `check`: how often it was applied because it was deleted or changed externally.
    """

    document: Any
    owner: Any = ""
    force: bool = False
    again: int = 0

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return kind, namespace and name."""
        metadata = self.document["metadata"]
        return self.document["kind"], metadata.get("namespace", ""), metadata["name"]

    @property
    def where(self) -> str:
        kind, _, name = self.identity
        return f"{kind} {name}"


@dataclass(frozen=True, kw_only=True)
class RuntimeInputs(_Runtime, Inputs):
    """Inputs of a runtime.

    Attributes:
        trainer: Version of Trainer whose rules its jobs follow.
        adopt: Whether an equal runtime that belongs to no program is taken over.
    """

    trainer: str = ""
    adopt: bool | str = False


@dataclass(frozen=True, kw_only=True)
class RuntimeOutputs(_Runtime):
    """Outputs of a runtime. uid: UID of the object."""

    uid: str

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.label)


class Runtimes(Resource[RuntimeInputs, RuntimeOutputs]):
    """Runtimes of a stack.

    A runtime that a resource of the program has is not deleted with the resource that had it before: another resource or a
    replacement.
    """

    inputs, outputs = RuntimeInputs, RuntimeOutputs

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def check(self, olds: RuntimeInputs | None, news: RuntimeInputs, connect: ConnectCluster) -> Checked[RuntimeInputs]:
        """Return the inputs to store, and what a change does to jobs. An update reverts external changes and deletions; a runtime
        of another owner is rejected.

        The owner is computed once and then copied, so that a renamed stack or component keeps its runtime, also if its jobs are
        in another namespace now.
        """
        found = _check(olds, news, connect)
        return replace(found, notes=(*change_notes(olds, news, connect), *found.notes))

    def diff(self, olds: RuntimeOutputs, news: RuntimeInputs) -> Diff:
        if olds.identity != news.identity:
            return Diff(True, ("document",))
        self._uids.add(olds.uid)
        changed = any(getattr(olds, part) != getattr(news, part) for part in ("document", "force", "again"))
        return Diff(changed or olds.connection != news.connection)

    def create(self, inputs: RuntimeInputs, connect: ConnectCluster) -> tuple[str, RuntimeOutputs]:
        outputs = _apply(inputs, connect)
        self._uids.add(outputs.uid)
        return "/".join(filter(None, map(str, inputs.identity))), outputs

    def update(self, outputs: RuntimeOutputs, inputs: RuntimeInputs, connect: ConnectCluster) -> RuntimeOutputs:
        """Update the runtime in place. Existing jobs keep the snapshot that they were created with."""
        target = {**inputs.target, **with_current_connection(outputs, inputs).target}
        return _apply(replace(inputs, target=target), connect)

    def read(self, outputs: RuntimeOutputs, connect: ConnectCluster) -> tuple[RuntimeOutputs | None, list[str]]:
        """Return the outputs with the cluster's values, and notes for the user. None: the runtime is gone, or has another
        owner."""
        runtimes = connect(outputs.target).runtimes
        found = runtimes.find(*outputs.identity)
        if found is None or found["metadata"].get("uid") != outputs.uid:
            return None, []
        owner = runtimes.owner(found)
        if not outputs.whose.owns(owner):
            return None, [f"{_left_alone(outputs, owner)}, and no longer in the state of this stack"]
        return replace(outputs, document=current_fields(outputs.document, found)), []

    def delete(self, outputs: RuntimeOutputs, connect: ConnectCluster) -> list[str]:
        """Delete the runtime, unless another resource has it, and return notes for the user."""
        if outputs.uid in self._uids:
            return []
        runtimes = connect(outputs.target).runtimes
        new_owner = runtimes.delete(outputs.document, outputs.uid, outputs.whose, force=outputs.force)
        return [_left_alone(outputs, new_owner)] if new_owner else []


def _check(olds: RuntimeInputs | None, news: RuntimeInputs, connect: ConnectCluster) -> Checked[RuntimeInputs]:
    owner = news.component
    if not isinstance(owner, Unknown):
        owner = digest([owner])[:20]
    if olds is not None and olds.owner:
        owner = olds.owner
    inputs = replace(news, owner=owner)
    if first_unknown(news.document) is not None:
        return Checked(inputs)
    if olds is not None and olds.identity == news.identity:
        kept = replace(inputs, target=with_current_connection(olds, news).target, again=olds.again)
        return _check_edits(olds, kept, connect)
    target = inputs.known_target
    if target is None:
        return Checked(inputs)
    try:
        since = connect(target).runtimes.check(inputs.document, inputs.owner, target.get("sweep"), adopt=inputs.adopt)
    except Conflict as refused:
        return Checked(inputs, (str(refused),))
    except TrainerError:
        return Checked(inputs)
    if not since:
        return Checked(inputs)
    return Checked(inputs, notes=(f"{inputs.where} exists since {since} and is taken over as it is",))


def _check_edits(olds: RuntimeInputs, inputs: RuntimeInputs, connect: ConnectCluster) -> Checked[RuntimeInputs]:
    """Return the inputs of a runtime that the cluster has, or had: with another `again` if somebody has changed or deleted it."""
    target = inputs.known_target
    if target is None:
        return Checked(inputs)
    about = inputs.document, olds.document, inputs.owner, str(target.get("sweep") or "")
    try:
        edited = connect(target).runtimes.edited(*about)
    except Conflict as refused:
        return Checked(inputs, (str(refused),))
    except TrainerError:
        return Checked(inputs)
    if edited == []:
        return Checked(inputs)
    what = "somebody has deleted it; it is created again"
    if edited is not None:
        what = f"{changed_by_others(edited)}; this update restores the values of the program"
    return Checked(replace(inputs, again=olds.again + 1), notes=(f"{inputs.where}: {what}",))


def changed_by_others(paths: Sequence[str]) -> str:
    """Return that somebody has changed fields of a runtime; empty for none."""
    if not paths:
        return ""
    return f"somebody has changed {join_names([*paths], 5)}"


def _apply(inputs: RuntimeInputs, connect: ConnectCluster) -> RuntimeOutputs:
    runtimes, sweep = connect(inputs.target).runtimes, inputs.target.get("sweep", "")
    uid = runtimes.apply(inputs.document, inputs.owner, sweep, adopt=inputs.adopt)
    return RuntimeOutputs.of(inputs, target=inputs.location, uid=uid)


def change_notes(olds: RuntimeInputs | None, news: RuntimeInputs, connect: Connect) -> list[str]:
    """Return what a changed runtime of mode trainer does to jobs, and which jobs were created from it."""
    if olds is None or first_unknown([olds.document, news.document]) is not None:
        return []
    if olds.document.get("spec") == news.document.get("spec"):
        return []
    trainer = known_release(news.trainer)
    found = compare(olds.document, news.document, trainer)
    lines = [f"it changes: {level_of(found)} for jobs", *effect_lines(found)]
    jobs, note = find_consumers(news.identity[2], news, connect)
    outcome = "in this cluster that keep their current version until they run again"
    for impact in find_impacts(jobs or (), olds.document, news.document, found, trainer, lambda *_: outcome):
        lines += impact_lines(impact, found, news.target.get("sweep", ""))
    if note:
        lines.append(note)
    return [f"{news.where}: {line}" for line in lines]


def _left_alone(outputs: RuntimeOutputs, new_owner: Owner) -> str:
    return f"{outputs.where} belongs to {new_owner} now. It is left alone"


def current_fields(written: Any, live: Any) -> Any:
    """Return the current values of the fields that the program wrote, without defaults and other managers' fields. live: The
    document as the server has it, or the same part. A list of another length counts as a whole."""
    if isinstance(written, dict) and isinstance(live, dict):
        return {k: current_fields(v, live[k]) for k, v in written.items() if k in live}
    if isinstance(written, list) and isinstance(live, list) and len(written) == len(live):
        return [current_fields(a, b) for a, b in zip(written, live, strict=True)]
    return live
