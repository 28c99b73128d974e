"""`pulumi-trainer usage`: what records, JobSets and Workloads say about the time for which jobs have run."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes_support import Handler, answer, refusal, server
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli import usage as command
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, USER, Demand, demand_of
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.kueue.prices import BUDGET, PRICE, read_budget, read_price
from pulumi_trainer.provider.kueue.scheduling.durations import Expectation
from pulumi_trainer.provider.lifecycle import usage_sums
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage, earlier_runs, summarize, team_of, uncounted
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, month_of, month_window, sum_up
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.targets.kubernetes.jobs import record, run_end
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.job_durations import read_expectations
from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import read_usage
from pulumi_trainer.provider.trainer.labels import RENAMED_TO

from tests.cluster.jobs import submission

HOUR = 3600.0
NOW = 2_000_000_000.0
Document = dict[str, Any]


def at(hours_ago: float) -> str:
    return datetime.fromtimestamp(NOW - hours_ago * HOUR, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def jobset(name: str = "digits", *, gpus: int = 8, pods: int = 2, queue: str = "red", **more: Any) -> Document:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "500m"}
    pod = {"containers": [{"name": "node", "image": "a", "resources": {"limits": limits}}]}
    job = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": labels,
            "creationTimestamp": at(10),
        },
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]},
        **more,
    }


def live(name: str = "digits", *conditions: tuple[str, str, float], ready: int = 2, **more: Any) -> Document:
    """A JobSet with conditions (type, status, hours ago)."""
    status = {
        "conditions": [{"type": t, "status": s, "lastTransitionTime": at(ago)} for t, s, ago in conditions],
        "replicatedJobsStatus": [{"name": "node", "ready": ready}],
    }
    return jobset(name, status=status, **more)


def configmap(name: str = "digits", *, usage: Any = None, uid: str = "", **data: str) -> Document:
    """A record."""
    text = {} if usage is None else {"usage": usage if isinstance(usage, str) else json.dumps(usage)}
    return {
        "metadata": {
            "name": name, "namespace": "team", "uid": uid or f"record-{name}", "creationTimestamp": at(10),
            "labels": {"pulumi-trainer.dev/record": "true"},
        },
        "data": {"job": f"JobSet/{name}", "sent": "0", **text, **data},
    }  # fmt: skip


def ended(started: float, finished: float, phase: str = "Succeeded") -> dict[str, str]:
    """The end of a job in its record. Arguments: hours ago."""
    return {"phase": phase, "started": str(NOW - started * HOUR), "finished": str(NOW - finished * HOUR)}


def owned(document: Document) -> Document:
    owner = {"kind": "ConfigMap", "name": "a", "uid": f"record-{document['metadata']['name']}"}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


def workload(of: str, *conditions: tuple[str, str, float], kind: str = "JobSet", **status: Any) -> Document:
    shown = [{"type": t, "status": s, "lastTransitionTime": at(ago)} for t, s, ago in conditions]
    owner = {"kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}
    return {
        "metadata": {
            "name": f"w-{of}", "namespace": "team", "labels": {"kueue.x-k8s.io/job-uid": f"uid-{of}"},
            "ownerReferences": [owner],
        },
        "spec": {"queueName": "red"},
        "status": {"conditions": shown, **status},
    }  # fmt: skip


def asked(ask: Callable[[Client], Any], **kinds: Any) -> Any:
    """What a question makes of lists, by plural; a number is the server's refusal."""

    def act(handler: Handler) -> None:
        plural = urlsplit(handler.path).path.rpartition("/")[2]
        found = kinds.get(plural, [])
        step = refusal(found, "No") if isinstance(found, int) else answer(200, {"metadata": {}, "items": found})
        step(handler)

    with server() as there:
        there.does(act)
        return ask(there.client())


def read(**kinds: Any) -> tuple[list[Ran], Any]:
    """What `read_usage` makes of lists."""
    found = asked(lambda client: read_usage(client, "team"), **kinds)
    return found.runs, found


def train_job(name: str, **status: Any) -> Document:
    return {"metadata": {"name": name, "namespace": "team"}, "status": {"trainerStatus": status}}


def test_how_long_jobs_run_by_their_progress_and_earlier_runs() -> None:
    earlier = [
        Run(str(i), phase, NOW, NOW - 60, {}, NOW - 60 - 100 * i) for i, phase in enumerate(("", *["Succeeded"] * 6))
    ]
    earlier[2] = Run("2", "Failed", NOW, NOW - 60, {}, NOW - 80)
    records = [
        configmap("often", earlier=record.runs_as_text(earlier), **ended(2, 1)),
        configmap("failed", **ended(2, 1, "Failed")),
        configmap("edited", earlier="[{", phase="Succeeded", started="x", finished="7"),
    ]
    jobs = [
        train_job("reports", estimatedRemainingSeconds=90, lastUpdatedTime=at(1)),
        train_job("timeless", estimatedRemainingSeconds=90),
        train_job("silent"),
        train_job("forged", estimatedRemainingSeconds="soon", lastUpdatedTime=at(1)),
    ]
    assert asked(read_expectations, configmaps=records, trainjobs=jobs) == {
        "team/often": Expectation(runs=(300, 400, 500, 600, HOUR)),
        "team/reports": Expectation(NOW - HOUR, 90),
    }
    assert asked(read_expectations, configmaps=403, trainjobs=404) == {}


def gpu_hours(runs: list[Ran], since: float = 100) -> float:
    return summarize(runs, "team", NOW - since * HOUR, NOW, {})[1].gpu_hours


def test_what_a_jobset_requests() -> None:
    assert demand_of(jobset(), "jane") == Demand("jane", "red", 16, 1)
    assert demand_of(jobset(queue="")).queue == ""
    mig = jobset()
    mig["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"nvidia.com/mig-1g.5gb": 3}
    }
    assert demand_of(mig).gpus == 6


def test_a_train_job_without_resources_of_its_own_is_unknown() -> None:
    train_job: Document = {"kind": "TrainJob", "metadata": {"name": "a"}, "spec": {"trainer": {"numNodes": 4}}}
    assert demand_of(train_job) == Demand("", "")
    train_job["spec"]["trainer"]["resourcesPerNode"] = {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "3"}}
    assert demand_of(train_job) == Demand("", "", 8, 12)


def test_a_new_record_has_what_is_counted_and_stays_small() -> None:
    text = record.document(submission("team", jobset()))["data"]["usage"]
    known = Demand.from_text(text)
    assert (known.queue, known.gpus, known.cpus) == ("red", 16, 1)
    assert known.user
    assert len(text) < 200


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"gpus": "many", "queue": 3, "since": -1}', '{"gpus": NaN}'])
def test_an_edited_record_is_unknown(text: Any) -> None:
    assert Demand.from_text(text) == NOTHING_KNOWN


def test_ended_jobs_count_by_their_records() -> None:
    usage = {"user": "jane", "queue": "red", "gpus": 16, "cpus": 4}
    runs, _ = read(configmaps=[configmap(usage=usage, **ended(5, 3)), configmap("old", **ended(5, 3))])
    rows, total = summarize(runs, "user", NOW - 100 * HOUR, NOW, {})
    nothing = {**dict.fromkeys(total.numbers(), 0), "cost": {}}
    assert [(row.key, row.numbers()) for row in rows] == [
        ("jane", {**nothing, "jobs": 1, "gpuHours": 32, "cpuHours": 8, "unpriced": 1}),
        ("unknown", {**nothing, "jobs": 1, "cpuHours": None, "incomplete": 1}),
    ]
    assert total.numbers()["jobs"] == 2


def test_the_window_cuts_what_began_before_it() -> None:
    runs = [Ran("team", "a", Demand(gpus=4), NOW - 10 * HOUR, NOW - HOUR)]
    assert gpu_hours(runs) == pytest.approx(36)
    assert gpu_hours(runs, since=3) == pytest.approx(8)
    assert summarize(runs, "team", NOW - 0.5 * HOUR, NOW, {})[0] == []


def test_a_running_job_counts_until_now() -> None:
    running = owned(live("digits", ("Suspended", "False", 2)))
    runs, _ = read(configmaps=[configmap()], jobsets=[running])
    assert gpu_hours(runs) == pytest.approx(32)
    row = summarize(runs, "queue", 0, NOW, {})[0][0]
    assert (row.key, row.gpus, len(row.running)) == ("team/red", 16, 1)


def test_a_job_that_waits_or_is_suspended_counts_nothing() -> None:
    suspended = owned(live("digits", ("Suspended", "True", 2), ready=0))
    suspended["spec"]["suspend"] = True
    runs, _ = read(configmaps=[configmap()], jobsets=[suspended])
    assert runs == []


def test_a_restarted_job_counts_from_its_first_attempt() -> None:
    """The record of a job that has ended has when its JobSet began, and its Jobs only when the last attempt did."""
    restarted = owned(live("digits", ("Suspended", "False", 8), ("Completed", "True", 1)))
    old = Record.of(configmap())
    written = run_end.end_of(old, old.status(Phase.SUCCEEDED), JobView("team", "a", jobset=restarted))["usage"]
    assert Demand.from_text(written) == Demand("", "red", 16, 1, NOW - 8 * HOUR)
    runs, _ = read(configmaps=[configmap(usage=written, **ended(2, 1))])
    assert gpu_hours(runs) == pytest.approx(16 * 7)


def test_kueue_knows_when_a_job_was_admitted_and_how_long_it_ran_before() -> None:
    running = owned(live("digits", ("Suspended", "False", 4)))
    known = workload("digits", ("Admitted", "True", 2), accumulatedPastExecutionTimeSeconds=3600)
    runs, _ = read(configmaps=[configmap()], jobsets=[running], workloads=[known])
    assert gpu_hours(runs) == pytest.approx(16 * 3)


def test_an_evicted_job_whose_time_kueue_does_not_keep_is_incomplete() -> None:
    waiting = owned(live("digits", ("Suspended", "True", 2), ready=0))
    waiting["spec"]["suspend"] = True
    runs, _ = read(configmaps=[configmap()], jobsets=[waiting], workloads=[workload("digits", ("Evicted", "True", 2))])
    total = summarize(runs, "team", NOW - 3 * HOUR, NOW, {})[1]
    assert (total.incomplete, total.jobs) == ({("team", "digits")}, set())


def test_a_job_whose_end_nobody_saw_is_incomplete() -> None:
    runs, _ = read(configmaps=[configmap(usage={"gpus": 1, "queue": ""}, ttl="true")])
    assert summarize(runs, "team", NOW - 20 * HOUR, NOW, {})[1].incomplete == {("team", "digits")}
    assert summarize(runs, "team", NOW - 5 * HOUR, NOW, {})[1].incomplete == set()


def test_jobs_of_others_count_without_a_record() -> None:
    pods = [{"name": "main", "resourceUsage": {"nvidia.com/gpu": "4", "cpu": "2"}}]
    other = workload("sweep", ("Admitted", "True", 3), kind="Job", admission={"podSetAssignments": pods})
    done = workload(
        "done", ("Admitted", "True", 3), ("Finished", "True", 2), kind="Job", admission={"podSetAssignments": pods}
    )
    runs, _ = read(jobsets=[live("theirs", ("Suspended", "False", 1))], workloads=[other, done])
    rows = {row.key: row.gpu_hours for row in summarize(runs, "job", 0, NOW, {})[0]}
    assert rows == pytest.approx({"team/theirs": 16, "team/sweep": 12, "team/done": 4})


def test_a_jobset_of_another_has_the_name_of_a_record() -> None:
    stranger = live("digits", ("Suspended", "False", 1))
    runs, _ = read(configmaps=[configmap(usage={"gpus": 1, "user": "jane"}, **ended(5, 3))], jobsets=[stranger])
    rows = {row.key: row.gpu_hours for row in summarize(runs, "user", 0, NOW, {})[0]}
    assert rows == pytest.approx({"jane": 2, "unknown": 16})


def test_earlier_runs_count_and_an_interrupted_one_until_the_next() -> None:
    demand = Demand("jane", "red", 2, 0)
    runs = [
        Run("1", "Interrupted", NOW - 10 * HOUR, 0.0, {}, NOW - 9 * HOUR, demand),
        Run("2", "Succeeded", NOW - 8 * HOUR, NOW - 5 * HOUR, {}, NOW - 7 * HOUR, demand),
        Run("3", "Failed", NOW - 4 * HOUR, NOW - 3 * HOUR, {}),
    ]
    again = [Run.from_dict(json.loads(json.dumps(run.to_dict()))) for run in runs]
    assert again == runs
    found = [*earlier_runs("team", "digits", again, NOW - 2 * HOUR)]
    assert gpu_hours(found) == pytest.approx(2 * (1 + 2))
    assert summarize(found, "user", 0, NOW, {})[1].incomplete == {("team", "digits")}


def test_a_record_keeps_the_start_of_its_runs() -> None:
    known = Record.of(configmap(usage={"gpus": 2}))
    (run,) = known.runs(JobStatus("digits", "team", phase="Failed", started=5.0, finished=6.0))
    assert (run.started, run.usage.gpus) == (5.0, 2)


@pytest.mark.parametrize(
    ("queue", "cluster_queue", "team"),
    [
        ("nlp", "gpus-nlp", "nlp"),
        ("nlp", "", "nlp"),
        ("user-queue", "vision", "vision"),
        ("vision", "vision", "vision"),
    ],
)
def test_the_team_of_a_queue(queue: str, cluster_queue: str, team: str) -> None:
    assert team_of(queue, cluster_queue) == team


def test_teams_are_those_of_the_queues() -> None:
    queue = {"metadata": {"name": "red", "namespace": "team"}, "spec": {"clusterQueue": "vision"}}
    runs, found = read(jobsets=[live("a", ("Suspended", "False", 1)), live("b", queue="")], localqueues=[queue])
    rows = summarize(runs, "team", 0, NOW, found.teams)[0]
    assert {row.key for row in rows} == {"vision", "none"}


def test_what_may_not_be_listed_is_named() -> None:
    _, found = read(configmaps=[configmap()], workloads=403, localqueues=404)
    assert found.unseen == ["localqueues", "workloads"]
    with pytest.raises(TargetFault, match="rbac --usage"):
        read(configmaps=403, jobsets=403)


def test_lists_are_read_in_pages() -> None:
    many = [configmap(f"job-{i}", usage={"gpus": 1, "queue": ""}, **ended(2, 1)) for i in range(500)]

    def act(handler: Handler) -> None:
        path = urlsplit(handler.path)
        query = parse_qs(path.query)
        if not path.path.endswith("configmaps"):
            answer(200, {"metadata": {}, "items": []})(handler)
            return
        begin, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        more = {"continue": str(begin + limit)} if begin + limit < len(many) else {}
        answer(200, {"metadata": more, "items": many[begin : begin + limit]})(handler)

    with server() as there:
        there.does(act)
        found = read_usage(there.client(), "team")
        pages = [path for _, path in there.seen if "configmaps" in path]
    assert len(found.runs) == 500
    assert len(pages) == 2


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    runs = [
        Ran("team", "a", Demand("jane", "red", 4, 8), time.time() - 2 * HOUR),
        Ran("team", "b", Demand("jim", "blue", 2, 1), time.time() - 3 * HOUR, time.time() - HOUR),
        Ran("team", "c", NOTHING_KNOWN, time.time() - 3 * HOUR, time.time() - HOUR),
    ]
    monkeypatch.setattr(command, "open_cluster", lambda _: (None, "team"))
    known = ClusterUsage(runs, {("team", "blue"): "vision"}, {}, ["localqueues"])
    monkeypatch.setattr(command, "_of_cluster", lambda *_: known)
    window = command.read_window("", options.pop("since", 30 * 86400))
    command.usage([Where(namespace="team")], **{"window": window, "by": "team", "output": "table", **options})
    out, err = capsys.readouterr()
    assert "not seen: localqueues (teams)" in err
    return out


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(monkeypatch, capsys).splitlines()
    assert lines[0].split("  ")[0] == "team"
    assert [line.split() for line in lines[1:5]] == [
        ["red", "1", "1", "4", "8.0", "16.0"],
        ["vision", "1", "0", "0", "4.0", "2.0"],
        ["unknown", "1", "0", "0", "0.0", "-"],
        ["total", "3", "1", "4", "12.0", "18.0"],
    ]
    assert lines[-1] == "GPUs or times of 1 job are only partly known: team/c"


def test_csv_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(monkeypatch, capsys, output="csv", by="job").splitlines()
    assert rows[0] == "job,jobs,running,gpus,gpuHours,cpuHours,incomplete,unpriced"
    assert rows[1].startswith("team/a,1,1,4.0,8.0,16.0,0,1")
    found = json.loads(printed(monkeypatch, capsys, output="json", by="queue"))
    assert set(found) == {"by", "since", "until", "rows", "total", "unseen"}
    assert [row["queue"] for row in found["rows"]] == ["team/red", "team/blue", "unknown"]
    assert found["total"]["gpuHours"] == pytest.approx(12)


def priced(name: str, price: str) -> Document:
    return {"metadata": {"name": name, "annotations": {PRICE: price}}}


def cluster_queue(name: str, *flavors: str) -> Document:
    quota = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
    kinds = [{"name": flavor, "resources": quota} for flavor in flavors]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": kinds}]},
    }


def local_queue(name: str, behind: str, **annotations: str) -> Document:
    metadata = {"name": name, "namespace": "team", "annotations": annotations}
    return {"metadata": metadata, "spec": {"clusterQueue": behind}}


def cost(**kinds: Any) -> tuple[dict[str, float], set[tuple[str, str]]]:
    total = summarize(read(**kinds)[0], "team", NOW - 100 * HOUR, NOW, {})[1]
    return total.cost, total.unpriced


def test_the_price_is_that_of_the_flavor_that_kueue_has_assigned() -> None:
    prices = [priced("h100", "3 USD"), priced("a100", "2 EUR")]
    running = owned(live("digits", ("Suspended", "False", 4)))
    admission = {"podSetAssignments": [{"name": "node", "flavors": {"nvidia.com/gpu": "a100", "cpu": "x86"}}]}
    known = workload("digits", ("Admitted", "True", 2), admission=admission)
    given = {"configmaps": [configmap()], "jobsets": [running], "resourceflavors": prices}
    assert cost(**given, workloads=[known]) == ({"EUR": pytest.approx(64)}, set())
    queues = {"localqueues": [local_queue("red", "gpus-red")]}
    assert cost(**given, **queues, clusterqueues=[cluster_queue("gpus-red", "h100")])[0] == {"USD": pytest.approx(192)}
    several = cost(**given, **queues, clusterqueues=[cluster_queue("gpus-red", "h100", "a100")])
    assert (
        several
        == cost(**given)
        == cost(**{**given, "resourceflavors": 403}, workloads=[known])
        == ({}, {("team", "digits")})
    )


def test_the_record_of_an_ended_job_has_its_flavor() -> None:
    restarted = owned(live("digits", ("Suspended", "False", 8), ("Completed", "True", 1)))
    admission = {"podSetAssignments": [{"name": "node", "flavors": {"nvidia.com/gpu": "h100"}}]}
    view = JobView("team", "a", jobset=restarted, workload=workload("digits", admission=admission))
    old = Record.of(configmap())
    written = run_end.end_of(old, old.status(Phase.SUCCEEDED), view)["usage"]
    assert Demand.from_text(written).flavor == "h100"
    found = cost(configmaps=[configmap(usage=written, **ended(2, 1))], resourceflavors=[priced("h100", "0.5 USD")])
    assert found == ({"USD": pytest.approx(16 * 7 * 0.5)}, set())


def test_a_renamed_team_keeps_its_budget_and_usage() -> None:
    queues = [
        local_queue("nlp", "gpus-old", **{BUDGET: "5000 GPU-hours"}),
        local_queue("old", "gpus-old", **{BUDGET: "5000 GPU-hours", RENAMED_TO: "nlp"}),
    ]
    _, found = read(localqueues=[*queues, local_queue("more", "gpus-old")])  # one of the team's queues has no budget
    assert {*found.teams.values()} == {"nlp"} and {team: str(b) for team, b in found.budgets.items()} == {
        "nlp": "5,000 GPU-hours"
    }


def moment(*when: int) -> float:
    return datetime(*when, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type]


def test_a_month_begins_and_ends_in_utc() -> None:
    assert month_of(1_793_530_800.0) == "2026-11"
    assert month_window("2026-11") == (moment(2026, 11, 1), moment(2026, 12, 1))
    assert month_window("2026-12") == (moment(2026, 12, 1), moment(2027, 1, 1))


def sums_of(*runs: Ran, now: float) -> dict[str, list[dict[str, Any]]]:
    data = usage_sums.sums_patch("team", {}, {"uid": runs}, now)
    return {month: json.loads(text or "") for month, text in data.items() if month != usage_sums.BOOKED}


def test_what_a_deleted_job_has_used_counts_in_the_months_in_which_it_ran() -> None:
    jane = Demand("jane", "red", 4, 8, flavor="h100")
    ran = [
        Ran("team", "a", jane, moment(2026, 10, 31, 22), moment(2026, 11, 1, 1)),
        Ran("team", "a", jane, moment(2026, 11, 2)),  # still runs
        Ran("team", "a", Demand("jim", "red"), 0.0, known=moment(2026, 11, 1)),
    ]
    november = {"user": "jane", "queue": "red", "flavor": "h100", "jobs": 1, "gpuSeconds": 28_800, "cpuSeconds": 57_600}
    unknown = {"user": "jim", "queue": "red", "jobs": 1, "gpuSeconds": 0, "unknown": 1}
    assert sums_of(*ran, now=moment(2026, 11, 2, 1)) == {
        "2026-11": [november, unknown],
        "2026-10": [{**november, "gpuSeconds": 28_800, "cpuSeconds": 57_600}],
    }


def test_a_job_whose_deletion_is_repeated_counts_once() -> None:
    ran, begin = Ran("team", "a", Demand("jane", "red", 1), moment(2026, 11, 1)), moment(2026, 11, 1)
    once = usage_sums.sums_patch("team", {}, {"uid": [ran]}, begin + HOUR)
    for ended in (begin + HOUR, begin + 60):
        again = usage_sums.sums_patch("team", once, {"uid": [dataclasses.replace(ran, end=ended)]}, begin + 9 * HOUR)
        assert {**again, "booked": ""} == {**once, "booked": ""}
    survived = usage_sums.sums_patch("team", once, {"uid": [ran]}, begin + 3 * HOUR)  # its deletion had failed
    both = usage_sums.read_sums("team", usage_sums.sums_patch("team", survived, {"other": [ran]}, begin + 4 * HOUR))
    assert [each.gpu_seconds for each in both] == [7 * HOUR]


def test_sums_have_a_bounded_size() -> None:
    def of(year: int, month: int, user: str) -> Ran:
        return Ran("team", "a", Demand(user, "red", 1), moment(year, month, 2), moment(year, month, 2, 1))

    many = {f"uid-{i}": [of(2026, month, f"user-{i}") for month in (10, 11)] for i in range(6000)}
    data = usage_sums.sums_patch("team", {}, many, NOW)
    assert len(json.dumps(data)) < 600_000
    october, november = (json.loads(data[month] or "") for month in ("2026-10", "2026-11"))
    assert october == [{"user": "", "queue": "red", "jobs": 6000, "gpuSeconds": 6000 * 3600}]
    assert len(november) == 6000
    years = {"a": [of(year, month, "jane") for year in range(2000, 2030) for month in range(1, 13)]}
    data = usage_sums.sums_patch("team", {}, years, NOW)
    assert [min(month for month in data if month != usage_sums.BOOKED), len(data)] == ["2025-01", 61]


@pytest.mark.parametrize(
    "forged", ["[{", "{}", "[1]", '[{"gpuSeconds": "x", "jobs": -1, "user": 7e9, "cpuSeconds": null}]']
)
def test_sums_that_somebody_has_edited(forged: str) -> None:
    found = usage_sums.read_sums("team", {"2026-11": forged, "2026-13": "[]", "booked": "{"})
    assert sum(each.gpu_seconds for each in found) == 0
    assert usage_sums.sums_patch("team", {"2026-11": forged, "booked": "{"}, {}, NOW)["booked"] == "{}"


def ledger(name: str = "pulumi-trainer-usage", *rows: Document, booked: dict[str, float] | None = None) -> Document:
    metadata = {"name": name, "namespace": "team", "uid": "u", "labels": {"pulumi-trainer.dev/record": "usage"}}
    return {"metadata": metadata, "data": {month_of(NOW): json.dumps(rows), "booked": json.dumps(booked or {})}}


def test_deleted_jobs_count_with_those_that_exist() -> None:
    row = {"user": "jane", "queue": "red", "flavor": "h100", "jobs": 3, "gpuSeconds": 36_000, "cpuSeconds": 7200}
    flavor = {"metadata": {"name": "h100", "annotations": {PRICE: "3 USD"}}}
    records = [
        configmap("done", usage={"gpus": 1, "queue": "red", "user": "jim"}, **ended(2, 1)),
        configmap("leaving", usage={"gpus": 100}, **ended(2, 1)),  # counted, and not deleted yet
        ledger("pulumi-trainer-usage", row, booked={"record-leaving": NOW - 0.5 * HOUR, "record-gone": NOW - HOUR}),
    ]
    leaves = owned(live("gone"))  # its Pods still end
    runs, found = read(configmaps=records, jobsets=[leaves], resourceflavors=[flavor])
    (gone,) = (ran for ran in runs if ran.name == "gone")
    assert gone.begin == NOW - HOUR, "what it has used before is in the sums"
    runs.remove(gone)
    begin, end = month_window(month_of(NOW))
    rows, total = summarize(runs, "user", begin, NOW, found.teams, found.deleted)
    assert [(each.key, each.gpu_hours, each.numbers()["jobs"]) for each in rows] == [("jane", 10, 3), ("jim", 1, 1)]
    assert (total.cost, total.cpu_hours, total.unpriced) == ({"USD": 30}, 2, {("team", "done")})
    rows, _ = summarize(runs, "job", begin, NOW, found.teams, found.deleted)
    assert [each.key for each in rows] == ["team/deleted jobs", "team/done"]
    later, _ = summarize(runs, "user", begin + HOUR, NOW, found.teams, found.deleted)
    assert [each.key for each in later] == ["jim"]
    assert [each.gpu_seconds for each in uncounted(found, begin + HOUR)] == [36_000]
    assert uncounted(found, begin) == uncounted(found, end) == []
    only = asked(lambda client: read_usage(client, "team", {("team", "done")}), configmaps=records)
    assert not only.deleted


def test_budgets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    begin, _ = month_window(month_of(time.time()))
    dollars = read_price("3 USD")
    runs = [
        Ran("team", "a", Demand("jane", "red", 4), begin - 2 * HOUR, begin + 25 * HOUR, price=dollars),
        Ran("team", "b", Demand("jane", "blue", 2), begin, begin + HOUR),
    ]
    given = {"red": "120 USD", "blue": "4 USD", "green": "5000 GPU-hours"}
    budgets = {team: read_budget(budget) for team, budget in given.items()}
    monkeypatch.setattr(time, "time", lambda: begin + 30 * HOUR)
    monkeypatch.setattr(command, "open_cluster", lambda _: (None, "team"))
    known = ClusterUsage(runs, {}, budgets, [])
    monkeypatch.setattr(command, "_of_cluster", lambda *_: known)
    assert cli.run(["usage", "-n", "team", "--budget"]) == 0
    month = time.strftime("%Y-%m", time.gmtime(begin))
    assert [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()] == [
        f"team used in {month} budget",
        "blue at least 0 USD 4 USD 0 %",
        "green 0 GPU-hours 5,000 GPU-hours 0 %",
        "red 300 USD 120 USD 250 %",
        "",
        "not known of blue: the price of the GPUs of 1 job",
    ]
    assert cli.run(["usage", "-n", "team", "--budget", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["budgets"][2] == {"team": "red", "unit": "USD", "used": 300, "budget": 120, "unknown": []}
    for option in (["--by", "job"], ["--since", "1d"], ["--month", "2026-10"]):
        with pytest.raises(Invalid, match="cannot be combined with --since, --month or --by"):
            cli.run(["usage", "-n", "team", "--budget", *option])
    monkeypatch.setattr(command, "_of_cluster", lambda *_: ClusterUsage([], {}, {}, []))
    cli.run(["usage", "-n", "team", "--budget"])
    assert capsys.readouterr().out == "no team has a budget\n"


def test_months_that_no_calendar_has_and_times_that_are_not_known() -> None:
    for odd in ("0000-05", "1969-12", "2026-00", "9999-12"):
        assert not usage_sums.is_month(odd) and usage_sums.read_sums("team", {odd: '[{"jobs": 1}]'}) == []
    unknown = Ran("team", "a", Demand("jane", "red"), 0.0, known=moment(2026, 12, 5))
    assert summarize([unknown], "user", *month_window("2026-10"), {})[0] == []
    assert summarize([unknown], "user", *month_window("2026-12"), {})[1].incomplete == {("team", "a")}


def test_a_month_instead_of_a_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(time, "time", lambda: moment(2026, 11, 15))
    last = usage_sums.UsageSum("team", "2026-10", Demand("jane", "red"), jobs=2, gpu_seconds=36_000)
    runs = [Ran("team", "new", Demand("jim", "red", 2), moment(2026, 11, 14))]
    monkeypatch.setattr(command, "open_cluster", lambda _: (None, "team"))
    monkeypatch.setattr(command, "_of_cluster", lambda *_: ClusterUsage(runs, {}, {}, [], [last]))
    assert cli.run(["usage", "-n", "team", "--by", "user", "--month", "2026-10"]) == 0
    assert [row.split() for row in capsys.readouterr().out.splitlines()[1:]] == [["jane", "2", "0", "0", "10.0", "-"]]
    assert cli.run(["usage", "-n", "team", "--by", "user", "--since", "30d"]) == 0
    out, err = capsys.readouterr()
    assert [row.split() for row in out.splitlines()[1:]] == [["jim", "1", "1", "2", "48.0", "-"]]
    assert err == "not counted: 10.0 GPU-hours of deleted jobs, of which only the month is known: --month 2026-10\n"
    for month in ("2026-12", "2026-1", "October"):
        with pytest.raises(Invalid, match=f"{month!r} is not a month up to now"):
            cli.run(["usage", "-n", "team", "--month", month])
    with pytest.raises(Invalid, match="cannot be combined with --since"):
        cli.run(["usage", "-n", "team", "--month", "2026-10", "--since", "1d"])


@pytest.mark.parametrize("option", [["--by", "moon"], ["-o", "xml"]])
def test_invalid_options_name_the_valid_ones(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.argv", ["pulumi-trainer", "usage", "-n", "team", *option])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and f"invalid choice: '{option[1]}'" in error
    assert all(f"'{valid}'" in error for valid in {"--by": ("team", "job"), "-o": ("table", "csv")}[option[0]])


def test_a_budget_of_a_stack_counts_deleted_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A team does not get its budget back by `pulumi destroy`."""
    gone = usage_sums.UsageSum("team", month_of(time.time()), Demand("jane", "red"), jobs=1, gpu_seconds=36_000)
    known = ClusterUsage([], {}, {"red": read_budget("20 GPU-hours")}, [], [gone])
    job = SimpleNamespace(local=None, client=SimpleNamespace(host="c"), namespace="team", name="a")
    monkeypatch.setattr(command, "of_stack", lambda *_: True)
    monkeypatch.setattr("pulumi_trainer.provider.service.stack.jobs", lambda *_: [job])
    monkeypatch.setattr(command, "_of_cluster", lambda *_: known)
    command.budgets(Where(stack="dev"), output="json")
    assert json.loads(capsys.readouterr().out)["budgets"][0]["used"] == 10


def test_several_clusters_are_added_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    usage = {"user": "jane", "queue": "red", "gpus": 16, "cpus": 4}
    _, here = read(configmaps=[configmap(usage=usage, **ended(5, 3))])
    _, there = read(configmaps=[configmap(usage=usage, **ended(4, 3))], localqueues=[local_queue("red", "other")])
    clusters = {"east": here, "west": there}
    monkeypatch.setattr(command, "open_cluster", lambda where: (where.context, "team"))
    monkeypatch.setattr(command, "_of_cluster", lambda client, _: clusters[client])
    places, found = [Where(context="east", everywhere=True), Where(context="west", everywhere=True)], {}
    for by in ("user", "team", "job"):
        command.usage(places, window=(NOW - 100 * HOUR, NOW), by=by, output="json")  # type: ignore[arg-type]
        found[by] = {row[by]: row["gpuHours"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert found["user"] == {"jane": 48}
    assert found["team"] == {"red": 32, "other": 16}
    assert found["job"] == {"east/team/digits": 32, "west/team/digits": 16}

    with pytest.raises(Invalid, match="each cluster has its own budgets"):
        cli.run(["usage", "-A", "--budget", "--context", "east", "--context", "west"])


def test_a_user_in_the_annotation_is_marked_and_summed_apart() -> None:
    told = Demand(user="alice", queue="nlp", gpus=2.0)
    named = told.with_user_of({"metadata": {"annotations": {USER: "alice@example.com"}}})
    assert told.with_user_of({}) == told.with_user_of(None) == told
    assert told.with_user_of({"metadata": {"annotations": {USER: ["a"]}}}) == told, "anybody may have written it"
    assert (told.user_shown, named.user_shown) == ("alice", "alice@example.com (annotated)")
    assert Demand.from_text(named.to_text()) == named and "annotated" not in told.to_text()
    same = dataclasses.replace(told, user="alice@example.com")
    runs = [Ran("team", "a", each, 3600.0, 7200.0) for each in (named, same)]
    assert [(each.demand.annotated, each.jobs) for each in sum_up(runs, 9000.0)] == [(True, 1), (False, 1)]
