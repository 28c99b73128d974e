"""`exporter`: serves Prometheus metrics of jobs and queues. Watches feed it, so that a scrape sends no requests."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kueue.occupancy import Queue, Share
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage, gpu_seconds, labels_of_usage
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, UsageSum
from pulumi_trainer.provider.machine.extras import not_installed
from pulumi_trainer.provider.service.jobs import in_cluster_of_stack, open_cluster
from pulumi_trainer.provider.service.reach import Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.observe.job_metrics import JobFacts, JobMetrics

PREFIX = "pulumi_trainer_"
USAGE_SECONDS = 300.0
START = 60.0
"""Seconds in which the cluster has to answer first."""

_QUEUE, _JOB = ("cluster_queue", "cohort"), ("namespace", "job", "queue")
_SHARE = (*_QUEUE, "flavor", "resource")
METRICS: dict[str, tuple[str, Sequence[str]]] = {
    "queue_nominal_quota": ("Quota of a ClusterQueue itself.", _SHARE),
    "queue_used_quota": ("Quota that the Workloads of a ClusterQueue have reserved.", _SHARE),
    "queue_borrowed_quota": ("Used quota beyond the ClusterQueue's own.", _SHARE),
    "queue_waiting_workloads": ("Workloads that wait in a ClusterQueue.", _QUEUE),
    "queue_admitted_workloads": ("Workloads that have quota of a ClusterQueue.", _QUEUE),
    "queue_active": ("1 if a ClusterQueue admits Workloads, else 0.", _QUEUE),
    "jobs": ("Jobs, ended ones included while their records exist.", ("namespace", "queue", "phase")),
    "job_gpus": ("GPUs that an unfinished job occupies.", _JOB),
    "job_queued_seconds": ("Seconds for which a job has been waiting in its queue.", _JOB),
    "job_progress_ratio": ("Share of an unfinished job that is done, as reported to Kubeflow Trainer.", _JOB),
    "job_restarts_total": ("Restarts of the JobSet of an unfinished job.", _JOB),
    "gpu_seconds_total": ("GPUs times seconds of jobs, deleted ones included.", ("namespace", "team", "queue", "user")),
    "exporter_kind_readable": ("1 if the watch of a kind works, else 0.", ("kind",)),
}
"""Metric without `PREFIX` -> help and labels. One series a job only for unfinished jobs."""


def exporter(where: Where, *, port: int, address: str) -> None:
    """Serve metrics until the process is ended."""
    try:
        import prometheus_client
    except ImportError:
        raise not_installed("prometheus_client", "exporter") from None
    from pulumi_trainer.provider.targets.kubernetes.observe.job_metrics import JobMetrics
    from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import read_usage

    where = in_cluster_of_stack(where)
    client, namespace = open_cluster(where)
    client.within(START).cluster_id()  # a cluster out of reach is reported now
    watched = "" if where.everywhere else namespace
    source = JobMetrics(client, watched).start()
    used = GpuSeconds(partial(read_usage, client, watched))
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    registry.register(Collector(source, used.seconds))
    try:
        server, thread = prometheus_client.start_http_server(port, address, registry)
    except OSError as error:
        why = f"cannot listen on {address}:{port}: {error.strerror or error}"
        raise TargetFault(Problem("exporter", why, "choose another --port")) from None
    ended = threading.Event()
    threading.Thread(target=used.read_until, args=(ended,), name="usage", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    place = "all namespaces" if where.everywhere else f"namespace {namespace}"
    print_line(f"metrics of {place}: http://{address}:{server.server_address[1]}/metrics")
    for plural, works in source.readable():
        if not works:
            print_line(f"{plural} cannot be watched; `pulumi-trainer rbac --usage` prints the permissions")
    ended.wait()
    source.stop()
    server.shutdown()
    thread.join()


class GpuSeconds:
    """The GPU-seconds of jobs by the labels of their metric, read every few minutes.

    Attributes:
        seconds: Labels -> GPU-seconds. They never fall, as Prometheus takes that for a restart: what a record had that somebody
            has deleted by hand stays counted, until the exporter is started again.
    """

    def __init__(self, read: Callable[[], ClusterUsage]) -> None:
        self._read = read
        self._last: dict[tuple[str, ...], float] = {}
        self._lost: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.seconds: dict[tuple[str, ...], float] = {}

    def read_until(self, ended: threading.Event) -> None:
        """Read again and again until an event is set."""
        while True:
            try:
                self.read_once(time.time())
            except TrainerError as error:
                print_line(f"gpu_seconds_total is not up to date: {error}", error=True)
            if ended.wait(USAGE_SECONDS):
                return

    def read_once(self, now: float) -> None:
        found = self._read()
        sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        every: list[Ran | UsageSum] = [*found.runs, *found.deleted]
        for used in every:
            sums[labels_of_usage(used, found.teams)] += gpu_seconds(used, now)
        for labels in {*sums, *self._last}:
            lost = max(0.0, self._last.get(labels, 0.0) - sums[labels])
            self._lost[labels] += lost
            self._last[labels] = sums[labels]
            self.seconds[labels] = sums[labels] + self._lost[labels]


class Collector:
    """Turns what is watched into metrics, each time that Prometheus asks."""

    def __init__(self, source: JobMetrics, used: Mapping[tuple[str, ...], float]) -> None:
        self._source = source
        self._used = used

    def collect(self) -> Iterable[Any]:
        """Return the families of metrics, as prometheus_client wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = {}
        for name, (text, labels) in METRICS.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            families[name] = family(PREFIX + name, text, labels=labels)

        def add(name: str, labels: Sequence[str], value: float) -> None:
            families[name].add_metric(labels, value)

        for queue in self._source.cluster_queues():
            _add_queue(add, queue)
        jobs = self._source.jobs()
        for labels, count in Counter((job.namespace, job.queue, job.phase.value) for job in jobs).items():
            add("jobs", labels, count)
        now = time.time()
        for job in jobs:
            if not job.phase.terminal:
                _add_job(add, job, now)
        for of_usage, value in [*self._used.items()]:
            add("gpu_seconds_total", of_usage, value)
        for kind, works in self._source.readable():
            add("exporter_kind_readable", [kind], float(works))
        return families.values()


Add = Callable[[str, Sequence[str], float], None]


def _add_queue(add: Add, queue: Queue) -> None:
    labels = [queue.name, queue.behind]
    add("queue_waiting_workloads", labels, queue.pending)
    add("queue_admitted_workloads", labels, queue.admitted)
    add("queue_active", labels, float(not queue.inactive))
    for share in queue.shares:
        _add_share(add, labels, share)


def _add_share(add: Add, labels: Sequence[str], share: Share) -> None:
    of_share = [*labels, share.flavor, share.resource]
    add("queue_used_quota", of_share, float(share.used))
    add("queue_nominal_quota", of_share, float(share.nominal or 0))
    add("queue_borrowed_quota", of_share, float(share.borrowed or 0))


def _add_job(add: Add, job: JobFacts, now: float) -> None:
    labels = [job.namespace, job.name, job.queue]
    add("job_gpus", labels, job.gpus)
    add("job_restarts_total", labels, job.restarts)
    if job.progress is not None:
        add("job_progress_ratio", labels, job.progress)
    if job.queued_since:
        add("job_queued_seconds", labels, max(0.0, now - job.queued_since))
