"""Whether a live JobSet or TrainJob may be taken over as it is: it must say what the program says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.admission import review
from pulumi_trainer.provider.api.submission import Submission, another_run
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import Conflict, Problem
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.targets.kubernetes.jobs import admitted


def check(live: Mapping[str, Any] | None, run: str, submission: Submission, kind: Kind) -> None:
    """Raises Conflict that names each field in which the live job differs and which cannot change any more.

    Args:
        live: The job; None: it has ended, and JobSet's TTL has removed it.
        run: Which run of its program it is, as its record says; empty: it has none.
        submission: What the program wants.
        kind: Of the job.
    """
    fixed = [*(_fixed(live, submission, kind) if live is not None else ()), *another_run(run, submission)]
    if fixed:
        why = f"cannot be adopted: it differs in {', '.join(fixed[:8])}" + (" and more" if len(fixed) > 8 else "")
        mend = "make the program say what is there, or give the TrainJob another name"
        raise Conflict(Problem(kind.where(submission.namespace, submission.name), why, mend))


def _fixed(live: Mapping[str, Any], submission: Submission, kind: Kind) -> list[str]:
    wanted = review(submission.main).stored or submission.main
    key = f"{kind.kind}/{submission.name}"
    changes = compare(
        {key: {"spec": _spec(admitted.without(live, wanted), kind)}}, {key: {"spec": _spec(wanted, kind)}}
    )
    return [change.path.partition(": ")[2] for change in changes if change.effect == "replace"]


def unasked(live: Mapping[str, Any], where: str) -> Problem:
    """That a job of that name is there which no record owns, and nobody has said that it is to be taken over."""
    meta = live["metadata"]
    makers = ", ".join(sorted({str(m.get("manager")) for m in meta.get("managedFields") or []})) or "somebody else"
    why = f"exists since {meta.get('creationTimestamp')} and was made by {makers}"
    return Problem(where, why, "give the TrainJob another name, or take the job over with adopt=True")


def _spec(live: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """The spec without what Kueue has written into it, and without the times at which patches were seen."""
    spec = dict(live["spec"])
    if kind.kind == "TrainJob" and (patches := spec.get("runtimePatches")):
        kept = [p for p in patches if not str(p.get("manager", "")).startswith("kueue.x-k8s.io/")]
        spec.pop("runtimePatches")
        if kept:
            spec["runtimePatches"] = [{k: v for k, v in p.items() if k != "time"} for p in kept]
    return spec
