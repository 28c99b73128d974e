"""Queries of a program to a target: what exists there, and what the target accepts.

`target` is the `target` input of a resource. The results are advice for the plan. For an unreachable cluster a function returns
its empty result; only `cached_status` and `current_release` raise a fault of the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.submission import Draft, Work
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kueue.api_resources import api_resource
from pulumi_trainer.provider.kueue.prices import Prices
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.durations import Expectations
from pulumi_trainer.provider.lifecycle import channels, interruption, volumes
from pulumi_trainer.provider.lifecycle.channels import ChannelOutputs
from pulumi_trainer.provider.lifecycle.job_inputs import JobOutputs
from pulumi_trainer.provider.lifecycle.resource import MALFORMED_STATE
from pulumi_trainer.provider.lifecycle.rollout import hold_reasons
from pulumi_trainer.provider.lifecycle.state_format import check_format
from pulumi_trainer.provider.lifecycle.usage_report import Row, summarize
from pulumi_trainer.provider.lifecycle.usage_sums import month_of, month_window
from pulumi_trainer.provider.lifecycle.volumes import VolumeOutputs
from pulumi_trainer.provider.targets.connection import TargetInput, connect
from pulumi_trainer.provider.targets.kubernetes.preflight import multikueue
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.runtime_rollout import Rollout, Waves

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

T = TypeVar("T")


def cached_status(
    target: Mapping[str, Any], namespace: str, name: str, uid: str, phase: str, owner: Owner
) -> JobStatus | None:
    """Return the status of a job from the target's cache, without a request for this job alone."""
    return connect(target).jobs.cached_status(namespace, name, uid, phase, owner)


def current_release(target: Mapping[str, Any], namespace: str, name: str) -> tuple[str, str]:
    """Return name and release of the runtime that a job was created from; empty strings if unknown."""
    return connect(target).jobs.runtime_of(namespace, name)


def cluster_identity(target: Mapping[str, Any]) -> str:
    try:
        found = _cluster(target)
        found.reachable_client()
        return found.identity()["cluster"]
    except TrainerError:
        return ""


def cluster_mismatch(target: Mapping[str, Any], cluster: str) -> list[Problem]:
    """Return the problem that a target connects to another cluster than the recorded one."""
    try:
        found = _cluster(target)
        found.reachable_client()
        if found.identity()["cluster"] != cluster:
            values = target.plain if isinstance(target, TargetInput) else target
            connect({**values, "cluster": cluster}).identity()  # the stack's configuration may connect to it
    except Refused as refused:
        return [*refused.problems]
    except TargetFault:
        pass
    return []


def review_job(target: Mapping[str, Any], draft: Draft) -> tuple[list[Problem], list[Problem]]:
    """Return why a target refuses a job, and its warnings. For an unreachable cluster, the only warning reports that."""
    try:
        try:
            found = connect(target)
        except Refused as refusal:
            return [*refusal.problems], []
        if isinstance(found, LocalTarget):
            refused, warned = found.jobs.review(draft.objects, draft.secrets, lambda: found.jobs.has_job(draft))
            return refused, [*warned, *found.jobs.other_settings(draft)]
        return found.jobs.review(draft)
    except TargetFault as fault:
        return multikueue.refusals(draft), [Problem("", f"checked without the cluster: {fault}")]


def trainer_version(target: Mapping[str, Any]) -> str:
    """Return the version of Kubeflow Trainer in a cluster, of those that this package knows; empty if it cannot be read."""
    try:
        return _cluster(target).trainer_version()
    except TrainerError:  # `review_job` reports it
        return ""


def review_volume(
    target: Mapping[str, Any], namespace: str, name: str, claim: Mapping[str, Any], job: str, owner: str, *, adopt: bool
) -> tuple[list[Problem], list[Problem]]:
    """Return why a cluster refuses a claim, and its warnings; ([], []) for an unreachable cluster."""
    no_problems: tuple[list[Problem], list[Problem]] = ([], [])
    return _ask(target, lambda c: c.volumes.review(namespace, name, claim, job, owner, adopt=adopt), no_problems)


def find_queues(
    target: Mapping[str, Any], namespace: str = "", queue: str = "", *, claims: bool = False
) -> Queues | None:
    """Return what decides in a cluster whether a job starts: queues, limits of its namespace, nodes; None if unreadable."""
    if target["kind"] != "kubernetes":
        return None
    from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot

    try:
        cluster = _cluster(target)
        cluster.reachable_client(namespace)
        return queue_snapshot.read_queues(cluster.client, namespace, queue, claims=claims)
    except TrainerError:  # `review_job` reports it
        return None


def find_runtime(target: Mapping[str, Any], kind: str, namespace: str, name: str) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the cluster has answered, and its runtime of that name; None if not found."""

    def find(cluster: KubernetesTarget) -> tuple[bool, dict[str, Any] | None]:
        cluster.reachable_client()
        return True, cluster.runtimes.find(kind, namespace, name)

    no_answer: tuple[bool, dict[str, Any] | None] = (False, None)
    return _ask(target, find, no_answer)


def find_object(target: Mapping[str, Any], kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
    """Return an object of a cluster; None if not found, or for an unreachable cluster."""
    return _ask(target, lambda cluster: cluster.reachable_client(namespace).get(kind, namespace, name), None)


def team_roles(mode: str, namespace: str, subjects: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the roles with what jobs of a namespace need, and their bindings. subjects: Kind (Group or User) and name of those
    who run jobs."""
    from pulumi_trainer.provider.targets.kubernetes.preflight import rbac

    permissions = rbac.job_permissions("trainer" if mode == "trainer" else "jobset")
    bound = [rbac.Subject(*each) for each in subjects]
    return [*rbac.objects(permissions, [namespace], bound, of=f":{namespace}")]


def list_unfinished_jobs(target: Mapping[str, Any], namespace: str) -> Sequence[Mapping[str, Any]]:
    """Return the JobSets of a namespace that have not ended. Raise TargetFault if they cannot be listed."""
    found, _ = _cluster(target).reachable_client(namespace).list(JOBSET, namespace)
    return [each for each in found if not section(each, "status").get("terminalState")]


def queue_api_versions(target: Mapping[str, Any]) -> Mapping[str, Sequence[str]] | None:
    """Return each version of Kueue's API with the plurals that the cluster serves in it; None for an unreachable cluster."""
    return _ask(target, lambda cluster: cluster.queues.served_versions(), None)


def list_queue_objects(target: Mapping[str, Any], kind: str, version: str) -> Sequence[Mapping[str, Any]]:
    """Return the cluster's objects of one of Kueue's kinds; [] for an unreachable cluster."""
    from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot

    return _ask(target, lambda cluster: queue_snapshot.list_objects(cluster.client, kind, version), [])


def list_cluster_queues(target: Mapping[str, Any], version: str) -> Sequence[Mapping[str, Any]]:
    """Return the cluster's ClusterQueues. Raise TargetFault if they cannot be listed."""
    return _cluster(target).reachable_client().list(api_resource("ClusterQueue", version))[0]


def list_queued_work(target: Mapping[str, Any]) -> Sequence[dict[str, Any]] | None:
    """Return the LocalQueues and Workloads of a cluster, as far as they may be listed; None for an unreachable cluster."""
    from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot

    return _ask(target, lambda cluster: queue_snapshot.list_queued_work(cluster.reachable_client()), None)


def job_durations(target: Mapping[str, Any], running: Sequence[str]) -> Expectations:
    """Return what is known of how long the jobs of a cluster run; {} for an unreachable cluster. running: Those whose logs are
    read, as namespace/name."""
    from pulumi_trainer.provider.targets.kubernetes.observe import job_durations

    return _ask(target, lambda cluster: job_durations.read_expectations(cluster.reachable_client(), running), {})


def job_start(target: Mapping[str, Any], namespace: str, name: str, queue: str) -> str:
    """Return behind whom a job waits, and when it starts; empty if that is not known. queue: Its LocalQueue, if known."""
    from pulumi_trainer.provider.targets.kubernetes.observe import job_starts

    def find(cluster: KubernetesTarget) -> str:
        places = [(namespace, queue)] if queue else []
        return job_starts.read_starts(cluster.reachable_client(namespace), places).get(f"{namespace}/{name}", "")

    return _ask(target, find, "")


def list_runs(target: Mapping[str, Any], namespace: str, name: str) -> Sequence[Run]:
    """Return the runs of a job, the newest last; [] if it has none, or if they cannot be read."""
    try:
        return connect(target).jobs.runs(namespace, name)
    except TrainerError:
        return []


def month_usage(
    target: Mapping[str, Any], namespace: str, queue: str, unit: str, prices: Prices
) -> tuple[float, list[str]]:
    """Return what the team of a LocalQueue is known to have used in this calendar month, and what is not known of it.

    Args:
        unit: A currency, or `GPU_HOURS`.
        prices: Prices by flavor.
    """
    from pulumi_trainer.provider.targets.kubernetes.observe import job_usage

    try:
        client = _cluster(target).reachable_client(namespace)
        found = job_usage.read_usage(client, namespace, prices=prices)
    except TrainerError as fault:
        return 0.0, [f"what it has used: {fault}"]
    now, team = time.time(), found.teams.get((namespace, queue), queue)
    rows, _ = summarize(found.runs, "team", month_window(month_of(now))[0], now, found.teams, found.deleted)
    used, gaps = next((row for row in rows if row.key == team), Row(team)).amount(unit)
    return used, [*gaps, *(f"what it has used: {kind} cannot be listed" for kind in found.unseen)]


def queue_work(target: Mapping[str, Any], name: str, version: str) -> Sequence[Work]:
    """Return the running and waiting jobs of a ClusterQueue. Raise TargetFault if they cannot be listed."""
    return _cluster(target).queues.list_work(name, version)


def list_queue_work(target: Mapping[str, Any], name: str, version: str) -> Sequence[Work]:
    """Return the running and waiting jobs of a ClusterQueue; [] if they cannot be listed."""
    return _ask(target, lambda _: queue_work(target, name, version), [])


def lacks_namespace(target: Mapping[str, Any], namespace: str) -> bool:
    """Return whether the cluster certainly lacks a namespace; False for an unreachable cluster."""
    from pulumi_trainer.provider.targets.kubernetes.queues import queue_snapshot

    return _ask(target, lambda cluster: queue_snapshot.lacks_namespace(cluster.client, namespace), False)


def hardens_jobs(target: Mapping[str, Any], namespace: str) -> bool:
    """Return whether a namespace wants its jobs hardened; False for an unreachable cluster."""
    from pulumi_trainer.provider.targets.kubernetes.preflight import pod_security

    return _ask(target, lambda cluster: pod_security.hardens_jobs(cluster.client, namespace), False)


def _cluster(target: Mapping[str, Any]) -> KubernetesTarget:
    return cast("KubernetesTarget", connect(target))


def _ask(target: Mapping[str, Any], ask: Callable[[KubernetesTarget], T], otherwise: T) -> T:
    """Return the answer of a cluster; `otherwise` if it is unreachable."""
    try:
        return ask(_cluster(target))
    except TargetFault:
        return otherwise


def rollout_holds(target: Mapping[str, Any], runtime: str, release: str, rollout: Rollout, waves: Waves) -> list[str]:
    """Return why the next wave of a channel does not move yet, whatever the time is."""
    try:
        return hold_reasons(connect(target).jobs, runtime, release, rollout, waves, time.time())
    except TrainerError as fault:
        return [f"whether its jobs have failed is not known: {fault}"]


def channel_refusals(outputs: Mapping[str, Any], uses: Callable[[str], bool]) -> list[Problem]:
    """Return why a channel of the stack cannot be removed; empty if it can, or if its state cannot be read. uses: Returns for
    the namespace/name of a job that uses the channel whether it still does after the update."""
    try:
        check_format("", outputs)
        return channels.removal_refusals(ChannelOutputs.from_state(outputs), connect, uses)
    except TargetFault as fault:
        hint = "make its target reachable, or set force=True and run `pulumi up` before it is removed"
        return [Problem(f"channel {outputs['channel']}", f"whether jobs use it is not known: {fault}", hint)]
    except (TrainerError, *MALFORMED_STATE):  # its deletion is refused
        return []


def volume_losses(outputs: Mapping[str, Any]) -> Sequence[str]:
    """Return a note on a volume that leaves the program: the output that is lost, or where it stays. outputs: As in the state."""
    return _unless_malformed(outputs, lambda: volumes.removal_notes(VolumeOutputs.from_state(outputs), connect))


def job_interruptions(outputs: Mapping[str, Any]) -> Sequence[str]:
    """Return a note if a job leaves the program while it is unfinished, from the job's outputs in the state."""
    return _unless_malformed(outputs, lambda: interruption.removal_notes(JobOutputs.from_state(outputs), connect))


def _unless_malformed(outputs: Mapping[str, Any], read: Callable[[], Sequence[str]]) -> Sequence[str]:
    try:
        check_format("", outputs)
        return read()
    except (Refused, *MALFORMED_STATE):
        return (f"{outputs.get('urn')} was removed from the program, but its state cannot be read",)
