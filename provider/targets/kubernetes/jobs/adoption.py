"""Decides whether an existing JobSet or TrainJob may be adopted: it must be equal to the job of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.jobs.submission import Submission, another_run
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.targets.kubernetes.jobs import admitted
from pulumi_trainer.provider.trainer.admission import review
from pulumi_trainer.provider.trainer.admission.defaults import with_job_defaults
from pulumi_trainer.provider.trainer.pipeline import Release


def check(live: Mapping[str, Any] | None, run: str, submission: Submission, kind: Kind, trainer: Release) -> None:
    """Check that an existing job can be adopted.

    Args:
        run: The `run` key in the job's record; empty without a record.
        trainer: Release of Trainer that has set the defaults of the existing job.

    Raises:
        Conflict: The job differs in immutable fields; the message names them.
    """
    fixed: list[str] = []
    if live is not None:
        fixed += _changed_immutable_fields(live, submission, kind, trainer)
    fixed += another_run(run, submission)
    if fixed:
        why = f"cannot be adopted: it differs in {', '.join(fixed[:8])}"
        if len(fixed) > 8:
            why += " and more"
        hint = "make the program match the live job, or give the TrainJob another name"
        raise Conflict(Problem(kind.where(submission.namespace, submission.name), why, hint))


def _changed_immutable_fields(
    live: Mapping[str, Any], submission: Submission, kind: Kind, trainer: Release
) -> list[str]:
    wanted = _comparable(review(submission.main, trainer).stored or submission.main)
    live = _comparable(live)
    key = f"{kind.kind}/{submission.name}"
    changes = compare(
        {key: {"spec": admitted.written_spec(admitted.drop_kueue_fields(live, wanted))}},
        {key: {"spec": admitted.written_spec(wanted)}},
    )
    return [change.path.partition(": ")[2] for change in changes if change.effect == "replace"]


def _comparable(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job with the defaults of Kubernetes, and quantities as Go prints them: a JobSet that was applied again keeps its
    own."""
    made = with_job_defaults({**job})
    if made["spec"].get("trainer") == {}:
        del made["spec"]["trainer"]
    for replicated in jobs_of(made):
        for container in replicated.pod.all_containers:
            for amounts in section(container.document, "resources").values():
                if isinstance(amounts, dict):
                    amounts.update({name: canonical(amount) for name, amount in amounts.items()})
    return made


def adoption_note(whose: str, submission: Submission) -> str:
    """Return the plan's note on an adopted job, with the Secrets whose values change. whose: Who owns or created the job, as
    the beginning of the sentence."""
    taken = f"{whose} and is taken over"
    if not submission.secrets:
        return taken
    return f"{taken}; the values of its Secret {', '.join(sorted(submission.secrets))} become those of this program"


def field_managers(live: Mapping[str, Any]) -> str:
    """Return the names of the field managers of an object, except those that only write its status."""
    fields = live["metadata"].get("managedFields") or []
    names = {str(each.get("manager")) for each in fields if each.get("subresource") != "status"}
    return ", ".join(sorted(names)) or "somebody else"


def unadopted_problem(live: Mapping[str, Any], where: str) -> Problem:
    """Return the problem that the name of a job is taken by a job without a record, and `adopt` is not set."""
    why = f"exists since {live['metadata'].get('creationTimestamp')} and was created by {field_managers(live)}"
    return Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True")
