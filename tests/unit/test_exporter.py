"""`pulumi-trainer exporter`: metrics of watched documents, their names and labels, and the dashboard that queries them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pulumi_trainer.provider.cli.exporter import METRICS, PREFIX, Collector, GpuSeconds
from pulumi_trainer.provider.jobs.usage import Demand
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, UsageSum
from pulumi_trainer.provider.targets.kubernetes.observe.job_metrics import JobMetrics, _kept
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

ROOT = Path(__file__).resolve().parents[2]
Document = dict[str, Any]


def at(seconds_ago: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds_ago, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def jobset(name: str, *, gpus: int = 4, suspend: bool = False, ready: int = 1, **status: Any) -> Document:
    limits = {"nvidia.com/gpu": gpus}
    pod = {"containers": [{"name": "node", "resources": {"limits": limits}}]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": "red"}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, "creationTimestamp": at(60)},
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]},
        "status": {"replicatedJobsStatus": [{"name": "node", "ready": ready}], **status},
    }  # fmt: skip


def record(name: str, **data: str) -> Document:
    return {"metadata": {"name": name, "namespace": "team"}, "data": data}


def workload(job: str, *conditions: Document, queue: str = "red") -> Document:
    owner = {"kind": "JobSet", "name": job}
    return {
        "metadata": {"name": f"w-{job}", "namespace": "team", "ownerReferences": [owner], "creationTimestamp": at(60)},
        "spec": {"queueName": queue},
        "status": {"conditions": list(conditions)},
    }


CLUSTER = {
    "metadata": {"name": "gpus-red"},
    "spec": {
        "cohortName": "gpus",
        "resourceGroups": [{
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}],
        }],
    },
    "status": {
        "reservingWorkloads": 1, "pendingWorkloads": 3,
        "flavorsReservation": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "12"}]}],
        "conditions": [{"type": "Active", "status": "True"}],
    },
}  # fmt: skip


class Fed(JobMetrics):
    """Fed by hand: no watch is started, and no request is sent."""

    def __init__(self) -> None:
        class Nobody:
            def within(self, _: float) -> Nobody:
                return self

        super().__init__(Nobody())  # type: ignore[arg-type]

    def list_(self, kind: Kind, *found: Document) -> None:
        self._listed(kind, [_kept(kind, each) for each in found])

    def event(self, kind: Kind, type_: str, found: Document) -> None:
        self._changed(kind, type_, _kept(kind, found))


def scraped(source: JobMetrics, used: Mapping[Any, float] | None = None) -> dict[str, float]:
    """Metric with its labels -> value, as Prometheus parses it."""
    registry = CollectorRegistry()
    registry.register(Collector(source, used or {}))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name.removeprefix(PREFIX)}{{{labels}}}"] = sample.value
    return found


@pytest.fixture
def source() -> Fed:
    made = Fed()
    made.list_(CLUSTER_QUEUE, CLUSTER)
    made.list_(LOCAL_QUEUE, {"metadata": {"name": "red", "namespace": "team"}, "spec": {"clusterQueue": "gpus-red"}})
    made.list_(CONFIG_MAP, record("runs"), record("done", phase="Succeeded"), record("lost"))
    made.list_(JOBSET, jobset("runs", restarts=2), jobset("waits", suspend=True, ready=0))
    made.list_(WORKLOAD, workload("waits"), {"metadata": {"name": "a", "namespace": "team"}})
    return made


def test_queues(source: Fed) -> None:
    found = scraped(source)
    share = "{cluster_queue=gpus-red,cohort=gpus,flavor=h100,resource=nvidia.com/gpu}"
    assert found[f"queue_nominal_quota{share}"] == 8
    assert found[f"queue_used_quota{share}"] == 12
    assert found[f"queue_borrowed_quota{share}"] == 4
    assert found["queue_waiting_workloads{cluster_queue=gpus-red,cohort=gpus}"] == 3
    assert found["queue_admitted_workloads{cluster_queue=gpus-red,cohort=gpus}"] == 1
    assert found["queue_active{cluster_queue=gpus-red,cohort=gpus}"] == 1


def test_jobs(source: Fed) -> None:
    found = scraped(source)
    runs, waits = ("{job=" + name + ",namespace=team,queue=red}" for name in ("runs", "waits"))
    assert (found[f"job_gpus{runs}"], found[f"job_gpus{waits}"]) == (8, 0)
    assert found[f"job_restarts_total{runs}"] == 2
    assert found[f"job_queued_seconds{waits}"] == pytest.approx(60, abs=5)
    assert f"job_queued_seconds{runs}" not in found
    phases = {key: value for key, value in found.items() if key.startswith("jobs{")}
    assert phases == {
        "jobs{namespace=team,phase=Running,queue=red}": 1,
        "jobs{namespace=team,phase=Queued,queue=red}": 1,
        "jobs{namespace=team,phase=Succeeded,queue=}": 1,
        "jobs{namespace=team,phase=Deleted,queue=}": 1,
    }


def test_ended_jobs_have_no_series_of_their_own(source: Fed) -> None:
    """Or the number of series would grow with every job that was ever run."""
    ended = jobset("runs", conditions=[{"type": "Completed", "status": "True"}])
    source.event(JOBSET, "MODIFIED", ended)
    source.event(JOBSET, "DELETED", jobset("waits"))
    source.event(WORKLOAD, "DELETED", workload("waits"))
    found = scraped(source)
    assert not [key for key in found if key.startswith("job_")]
    assert found["jobs{namespace=team,phase=Succeeded,queue=red}"] == 1


def test_a_changed_job_is_read_again(source: Fed) -> None:
    assert scraped(source)["job_gpus{job=waits,namespace=team,queue=red}"] == 0
    source.event(JOBSET, "MODIFIED", jobset("waits", gpus=2))
    assert scraped(source)["job_gpus{job=waits,namespace=team,queue=red}"] == 4
    source.list_(JOBSET, jobset("runs"))
    assert "job_gpus{job=waits,namespace=team,queue=red}" not in scraped(source)


def test_progress_that_was_reported_to_trainer(source: Fed) -> None:
    status = {"trainerStatus": {"progressPercentage": 40}}
    source.list_(TRAIN_JOB, {"metadata": {"name": "runs", "namespace": "team"}, "spec": {}, "status": status})
    assert scraped(source)["job_progress_ratio{job=runs,namespace=team,queue=red}"] == pytest.approx(0.4)


def test_a_kind_that_is_not_watched_is_said(source: Fed) -> None:
    assert scraped(source)["exporter_kind_readable{kind=workloads}"] == 0


def test_gpu_seconds_of_jobs_and_of_deleted_ones(source: Fed) -> None:
    jane = Demand("jane", "red", 4)
    known = ClusterUsage(
        [Ran("team", "a", jane, 1000.0), Ran("team", "b", jane, 0.0, known=5.0), Ran("team", "c", Demand(), 5.0, 6.0)],
        {("team", "red"): "vision"},
        {},
        [],
        [UsageSum("team", "2026-10", Demand("jane", "red"), gpu_seconds=3600)],
    )
    later = Ran("team", "d", jane, 1000.0, 1010.0)
    found = [known, replace(known, runs=[]), replace(known, runs=[later])]
    used = GpuSeconds(lambda: found.pop(0))
    used.read_once(1010.0)
    expected = {("team", "vision", "red", "jane"): 3640.0, ("team", "unknown", "unknown", "unknown"): 0.0}
    assert used.seconds == expected
    used.read_once(1020.0)
    assert used.seconds == expected, "a counter that falls would count twice"
    used.read_once(1030.0)
    assert used.seconds["team", "vision", "red", "jane"] == 3680
    text = scraped(source, used.seconds)
    assert text["gpu_seconds_total{namespace=team,queue=red,team=vision,user=jane}"] == 3680


def test_a_name_cannot_break_the_format(source: Fed) -> None:
    source.event(JOBSET, "ADDED", jobset('a"\n} 1\\'))
    assert any('a"\n} 1\\' in key for key in scraped(source))


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_the_conventions(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", PREFIX + name)
    text, labels = METRICS[name]
    assert text.endswith(".") and len(set(labels)) == len(labels)
    assert not re.search(r"percent|minutes|hours|_count$|gauge", name), "base units, and no types in names"


def test_the_dashboard_queries_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    queried = set(re.findall(rf"{PREFIX}([a-z_]+)", " ".join(queries)))
    assert queried <= set(METRICS)
    assert set(METRICS) - queried <= {"queue_admitted_workloads"}, "what nobody looks at is of no use"
    for query in queries:
        for name, labels in re.findall(rf"{PREFIX}([a-z_]+)\{{([^}}]*)\}}", query):
            assert set(re.findall(r"(\w+)[=!]", labels)) <= set(METRICS[name][1]), query
        for labels in re.findall(r"by \(([^)]*)\)", query):
            name = re.findall(rf"{PREFIX}([a-z_]+)", query)[0]
            assert set(labels.split(", ")) <= set(METRICS[name][1]), query


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs/platform-teams.md").read_text()
    assert not [name for name in METRICS if f"`{PREFIX}{name}`" not in page]
