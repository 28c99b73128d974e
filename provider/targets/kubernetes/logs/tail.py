"""The lines of a job's pods: those that are there, then those that come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulumi_trainer.provider.api.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.kube.client.client import Client
from pulumi_trainer.provider.kube.client.kinds import POD
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.targets.kubernetes.logs.following import Following
from pulumi_trainer.provider.targets.kubernetes.logs.loglines import Line
from pulumi_trainer.provider.targets.kubernetes.logs.logsources import steps, trimmed
from pulumi_trainer.provider.targets.kubernetes.logs.podlogs import Positions, Wish, history


def tail(
    client: Client,
    namespace: str,
    name: str,
    wish: Wish,
    *,
    follow: bool = False,
    note: Callable[[str], None] | None = None,
) -> Iterator[Line]:
    """Lines that are there, by time; follow: then those that come, until the job has ended.

    note: told what happens besides, such as a connection that breaks. Raises TargetFault, Invalid for a step that is none.
    """
    note = note or _silent
    pods, _ = client.list(POD, namespace, labels=wish.labels(name), keep=trimmed)
    if wish.step and not pods:
        _check_step(client, namespace, name, wish.step)
    positions: Positions = {}
    yield from history(client, namespace, pods, wish, positions, note)
    if follow:
        yield from Following(client, namespace, name, wish, positions, note).lines(pods)


def _silent(_: str) -> None: ...


def _check_step(client: Client, namespace: str, name: str, step: str) -> None:
    """A step that the job does not have is a mistake; one that has not begun is none."""
    jobset = client.get(JOBSET, namespace, name)
    known = [str(r.get("name")) for r in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or []]
    if jobset is None and client.get(TRAIN_JOB, namespace, name) is not None:
        return
    if step not in known:
        known = known or steps(client.list(POD, namespace, labels=Wish().labels(name), keep=trimmed)[0])
        mend = f"it has: {', '.join(known)}" if known else ""
        raise TargetFault(Problem(f"{namespace}/{name}", f"has no step {step}", mend))
