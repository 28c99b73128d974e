"""Which run the new run of a job continues, in one sentence of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from pulumi_trainer.provider.api.checkpoints import saves_checkpoints
from pulumi_trainer.provider.api.lineage import CHANGED, CREATED, UNFINISHED, Continuation, choose_continued
from pulumi_trainer.provider.api.runs import Run
from pulumi_trainer.provider.api.status import JobStatus, Phase
from pulumi_trainer.provider.api.submission import from_state
from pulumi_trainer.provider.kube.errors import TrainerError
from pulumi_trainer.provider.kube.values.accessors import section, text
from pulumi_trainer.provider.kube.values.unknown import Unknown


class Target(Protocol):
    """The methods that show the runs of a job."""

    def status(self, namespace: str, name: str) -> JobStatus | None: ...
    def runs(self, namespace: str, name: str) -> list[Run]: ...
    def progress(self, status: JobStatus) -> dict[str, Any] | None: ...


def new_identity_input(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the first run of a job."""
    return {"cause": CREATED, "place": inputs.get("place", "")}


def identity_input(inputs: Mapping[str, Any], earlier: list[Run]) -> dict[str, Any]:
    """Return what is known of a new run of a job, before its target creates it.

    Args:
        inputs: Inputs of the new run.
        earlier: The earlier runs of the job, the newest last.

    Raises:
        Invalid: `resume` names a run that the job does not have.
    """
    place = inputs.get("place", "")
    if isinstance(place, Unknown):
        return {"cause": CHANGED, "place": place}
    return choose_continued(earlier, inputs.get("resume", UNFINISHED), place).identity(CHANGED, place).to_dict()


def continuation_note(olds: Mapping[str, Any], news: Mapping[str, Any], target: Target) -> tuple[str, str]:
    """Return which run a new run of a job continues, and from which step, as its target shows it now.

    Returns:
        The sentence, empty if the job keeps nothing for its next run; and where the checkpoints are of an unfinished run that
        the new one does not continue because it looks elsewhere, else empty.

    Args:
        olds: Inputs of the run before.
        news: Inputs of the new run.
        target: The target of the run before.

    Raises:
        Invalid: `resume` names a run that the job does not have.
    """
    where, other = (f"{each['namespace']}/{each['name']}" for each in (olds, news))
    place = news.get("place", "")
    if not place and not olds.get("place"):
        return "", ""
    if where == other and isinstance(place, Unknown):
        return f"{where}: which run the new run continues is known when the place of its checkpoints is", ""
    try:
        earlier = target.runs(olds["namespace"], olds["name"])
    except TrainerError as fault:
        return f"{where}: which run the new run continues is not known: {fault}", ""
    if where != other:
        has_succeeded = bool(earlier) and earlier[-1].phase == Phase.SUCCEEDED
        left = "" if has_succeeded else text(olds.get("place"))
        return f"{other} starts anew: the runs of {where} belong to a job of another name", left
    found = choose_continued(earlier, news.get("resume", UNFINISHED), place)
    if found.run is not None:
        return f"{where}: the new run continues run {found.run.id} {_from_step(olds, found, earlier, target)}", ""
    why = found.why or "no earlier run is recorded"
    return f"{where}: the new run starts anew: {why}", found.left


def _from_step(olds: Mapping[str, Any], found: Continuation, earlier: list[Run], target: Target) -> str:
    """Return from which step a run continues another one."""
    if not saves_checkpoints(from_state(olds["objects"])):
        return "in its folder, where a program that looks finds the files of that run. resume=False starts anew"
    unknown = "from its newest checkpoint; the job has not reported whether it has one. resume=False starts anew"
    if found.run != earlier[-1]:
        return unknown
    progress: dict[str, Any] | None = None
    with suppress(TrainerError):
        status = target.status(olds["namespace"], olds["name"])
        if status is not None:
            progress = target.progress(status) or status.progress
    saved = section(progress, "checkpoint").get("step")
    if saved is None:
        return unknown
    return f"from its newest checkpoint, which is of step {saved:,} as far as the job has reported. resume=False starts anew"
