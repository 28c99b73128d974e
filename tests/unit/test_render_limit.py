"""How many replicated jobs one call of `validate` or `render` takes: some KiB of YAML could keep it busy for hours."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents_support import runtime, thing, train_job
from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.trainer.admission.warnings import Severities
from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN
from pulumi_trainer.provider.trainer.offline import RenderLimit, render_limit
from pulumi_trainer.provider.trainer.releases import DEFAULT


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(render_limit, "MOST_REPLICATED_JOBS", 20)
    monkeypatch.chdir(tmp_path)


def large_runtime(jobs: int = 5) -> dict[str, Any]:
    made = runtime()
    (first,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    others = [{**copy.deepcopy(first), "name": f"other-{number}"} for number in range(jobs - 1)]
    for each in others:
        each["template"].pop("metadata", None)
    made["spec"]["template"]["spec"]["replicatedJobs"] = [first, *others]
    return made


def write(*found: dict[str, Any], name: str = "all.yaml") -> str:
    Path(name).write_text(yaml.safe_dump_all(found))
    return name


def numbered(count: int, **spec: Any) -> list[dict[str, Any]]:
    return [train_job({"name": f"job-{number}"}, **spec) for number in range(count)]


def validate(*found: dict[str, Any]) -> int:
    return documents.validate([write(*found)], "jobset", DEFAULT, "text", Severities.of())


def test_train_jobs_count_with_the_replicated_jobs_of_their_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(large_runtime(), *numbered(3)) == documents.ADMITTED
    capsys.readouterr()
    assert validate(large_runtime(), *numbered(5)) == documents.UNUSABLE
    shown = capsys.readouterr()
    assert shown.out.count("is admitted") == 4, "what was judged before is shown"
    assert "all.yaml, document 5, line " in shown.err and shown.err.endswith(
        ": spec.runtimeRef: all documents up to here have more than 20 replicated jobs to render. Hint: check the files in"
        " several calls; a document of more than 4 KiB counts as several replicated jobs, and so does a TrainJob beside many"
        " nodes and other objects, or after many others if there are Workloads\n"
    )


def test_rejected_train_jobs_count(capsys: pytest.CaptureFixture[str]) -> None:
    """The webhook has merged their runtime, and each step after the one that rejects them is asked as well."""
    assert validate(large_runtime(), *numbered(4, trainer={"numNodes": -1})) == documents.UNUSABLE
    assert "to render" in capsys.readouterr().err


def test_large_documents_count_as_several(capsys: pytest.CaptureFixture[str]) -> None:
    made = runtime()
    (job,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": f"A{number}", "value": ""} for number in range(700)]
    assert validate(made, *numbered(1)) == documents.ADMITTED
    assert validate(made, *numbered(4)) == documents.UNUSABLE
    env = [{"name": f"A{number}", "value": "x" * 200} for number in range(120)]
    assert validate(runtime(), *numbered(1, trainer={"env": env})) == documents.ADMITTED
    assert validate(runtime(), *numbered(4, trainer={"env": env})) == documents.UNUSABLE
    assert "to render" in capsys.readouterr().err


def test_nodes_count_that_each_job_is_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [thing("Node", f"node-{number}", "v1", metadata={"name": f"node-{number}"}) for number in range(200)]
    assert validate(runtime(), *nodes, *numbered(3)) == documents.ADMITTED
    assert validate(runtime(), *nodes, *numbered(5)) == documents.UNUSABLE
    assert "to render" in capsys.readouterr().err


def test_jobs_count_before_which_a_job_may_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With Workloads in the documents, the answer about the start of each job follows those before it."""
    api, flavor = "kueue.x-k8s.io/v1beta2", {"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": 4}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    kueue = [
        thing("ResourceFlavor", "gpu", api, metadata={"name": "gpu"}),
        thing(
            "ClusterQueue",
            "all",
            api,
            metadata={"name": "all"},
            spec={"namespaceSelector": {}, "resourceGroups": groups},
        ),
        thing("LocalQueue", "team", api, metadata={"name": "team", "namespace": "team"}, spec={"clusterQueue": "all"}),
    ]
    pods = {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1"}}}]}
    sets = [{"name": "main", "count": 1, "template": {"spec": pods}}]
    metadata = {"name": "w", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}
    workload = thing("Workload", "w", api, metadata=metadata, spec={"queueName": "team", "podSets": sets})
    jobs = numbered(40, trainer={"resourcesPerNode": {"requests": {"cpu": "1"}}})
    for job in jobs:
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    monkeypatch.setattr(render_limit, "MOST_REPLICATED_JOBS", 50)
    assert validate(runtime(), *kueue, *jobs) == documents.ADMITTED
    assert validate(runtime(), *kueue, workload, *jobs) == documents.UNUSABLE
    assert "to render" in capsys.readouterr().err


def test_changes_of_a_jobset_count(capsys: pytest.CaptureFixture[str]) -> None:
    """The controller renders its TrainJob again."""
    changes = [
        thing("JobSet", "job-0", "jobset.x-k8s.io/v1alpha2", metadata={"name": "job-0", "namespace": "team"})
    ] * 3
    assert validate(large_runtime(), *numbered(1), *changes[:2]) == documents.ADMITTED
    assert validate(large_runtime(), *numbered(1), *changes) == documents.UNUSABLE
    assert "to render" in capsys.readouterr().err


def test_all_files_of_a_batch_count(capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abcd":
        Path(name).mkdir()
        write(large_runtime(), *numbered(1), name=f"{name}/input.yaml")
    assert documents.batch(Path(), "jobset", DEFAULT) == documents.UNUSABLE
    shown = capsys.readouterr()
    assert shown.out == "2 admitted, 0 refused, 2 could not be used\n" and shown.err.count("to render") == 2
    admitted = [json.loads(Path(name, "actual.json").read_text())["admitted"] for name in "abcd"]
    assert admitted == [True, True, False, False]


@pytest.mark.parametrize("name", BUILT_IN.names())
def test_ten_thousand_train_jobs_of_a_runtime_of_the_catalogue(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    limit, (made,) = RenderLimit(), numbered(1, trainer={"numNodes": 4, "env": [{"name": "A", "value": "1"}]})
    limit.add("spec", BUILT_IN.load(name), made)
    assert limit._replicated_jobs * 10_000 <= render_limit.MOST_REPLICATED_JOBS


def test_jobs_with_one_subdomain_are_compared_with_one_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Else each of n jobs would be compared with all others, and have as many warnings."""
    made = runtime()
    made["spec"]["template"]["spec"]["network"] = {"subdomain": "shared"}
    assert validate(made, *numbered(5)) == documents.ADMITTED
    found = [line for line in capsys.readouterr().out.splitlines() if "has the subdomain shared too" in line]
    assert len(found) == 4 and all("JobSet job-0 has the subdomain" in line for line in found)


def _pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return found


def _depend_on_the_first(job: dict[str, Any]) -> None:
    job["dependsOn"] = [{"name": "node", "status": "Complete"}]


def _run_on(job: dict[str, Any]) -> None:
    _pod(job)["containers"][0]["command"] = ["/usr/sbin/sshd", "-De"]


def _add_a_server(job: dict[str, Any]) -> None:
    _pod(job)["containers"].append({"name": "side", "image": "nginx", "ports": [{"containerPort": 80}]})


def _mount_a_volume(job: dict[str, Any]) -> None:
    pod = _pod(job)
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": job["name"]}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]


@pytest.mark.parametrize("change", [dict, _depend_on_the_first, _run_on, _add_a_server, _mount_a_volume])
def test_the_work_for_a_runtime_is_in_proportion_to_its_replicated_jobs(
    change: Callable[[dict[str, Any]], object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the limit would not bound the time: to compare each of 1,500 with all others takes seconds for each TrainJob."""
    monkeypatch.setattr(render_limit, "MOST_REPLICATED_JOBS", 1000)

    def calls(jobs: int) -> int:
        made = large_runtime(jobs)
        found = made["spec"]["template"]["spec"]["replicatedJobs"]
        for each in found[1:]:
            change(each)
        made["spec"]["template"]["spec"]["successPolicy"] = {
            "operator": "All",
            "targetReplicatedJobs": [each["name"] for each in found],
        }
        counted = 0

        def count(*_: object) -> None:
            nonlocal counted
            counted += 1

        sys.setprofile(count)
        try:
            validate(made, *numbered(1))
        finally:
            sys.setprofile(None)
        return counted

    calls(2)  # loads what is loaded once
    assert calls(120) < 2.2 * calls(60)
    assert capsys.readouterr().out.count("TrainJob team/job-0 is admitted") == 3
