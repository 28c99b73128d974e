"""`pulumi-trainer runtime impact`: what another release does to the jobs of a cluster, by their records and JobSets."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes_support import Handler, answer, refusal, server
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli import runtime_impact as command
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from test_releases import container, live, torch

from tests.cluster.jobs import submission

Document = dict[str, Any]
RELEASE = "pulumi-trainer.dev/release"


def stored(name: str, release: str, channel: str, follow: str, **given: Any) -> tuple[Document, Document]:
    """The record of a job and its JobSet, as a cluster has them."""
    jobset = live(torch(), **given)
    jobset |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    jobset["metadata"] |= {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    limits = {"limits": {"nvidia.com/gpu": 8}}
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = limits
    runtime = {"name": "torch-distributed", "release": release, "channel": channel, "follow": follow}
    sent = replace(submission("team", jobset, code=False), runtime=runtime, program="lab/dev")
    made = record.document(sent)
    made["metadata"] |= {"uid": f"record-{name}", "creationTimestamp": "2026-11-01T09:00:00Z"}
    jobset["metadata"]["ownerReferences"] = [{"uid": f"record-{name}"}]
    jobset["metadata"]["creationTimestamp"] = "2026-11-01T09:00:00Z"
    jobset["status"] = {"replicatedJobsStatus": [{"name": "node", "ready": 1, "active": 1}]}
    return made, jobset


JOBS = [
    stored("a", "1.0.0", "stable", "any"), stored("b", "1.0.0", "stable", "any"), stored("own", "1.0.0", "", "", image="mine:1"),
    stored("pinned", "1.0.0", "stable", "pin"), stored("direct", "1.0.0", "", ""), stored("other", "0.9.0", "stable", "any"),
]  # fmt: skip


@pytest.fixture
def releases(tmp_path: Path) -> list[str]:
    old = torch()
    new = copy.deepcopy(old)
    container(new)["image"] = "pytorch/pytorch:2.14.0"
    files = []
    for number, document in (("1.0.0", old), ("1.1.0", new)):
        document["metadata"] = {**document["metadata"], "labels": {**document["metadata"]["labels"], RELEASE: number}}
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(document))
        files.append(str(file))
    return files


def run(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    jobs: list[tuple[Document, Document]] | None = None,
    jobsets: int = 200,
) -> list[str]:
    """Run the command, and return the paths that it has asked for. jobsets: Code of the answer to a list of JobSets."""
    records, made = zip(*(JOBS if jobs is None else jobs), strict=True)

    def act(handler: Handler) -> None:
        plural = urlsplit(handler.path).path.rpartition("/")[2]
        items = {"configmaps": records, "jobsets": made}[plural]
        refused = plural == "jobsets" and jobsets != 200
        step = refusal(jobsets, "No") if refused else answer(200, {"metadata": {}, "items": [*items]})
        step(handler)

    with server() as there:
        there.does(act)
        monkeypatch.setattr(command, "open_cluster", lambda _: (there.client(), "team"))
        monkeypatch.setattr(command, "of_stack", lambda *_: False)
        monkeypatch.setattr(command, "in_cluster_of_stack", lambda where: where)
        assert cli.run(["runtime", "impact", *arguments]) == 0
        return [path for _, path in there.seen]


def test_jobs_are_grouped_by_what_becomes_of_them(
    releases: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = run(monkeypatch, *releases, "-n", "team")
    assert all("/namespaces/team/" in path for path in paths), paths
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("1.1.0.yaml: major") and lines[1].startswith("  major step[node].containers[node].image: ")
    when = "on the next run (with interrupt=, at the next `pulumi up` of the job's stack)"
    at = lines.index(f"2 jobs {when}: major")
    assert [row.split() for row in lines[at + 1 : at + 4]] == [
        ["job", "stack", "queue", "GPUs", "runs", "now"],
        ["team/a", "lab/dev", "gpus", "8", "yes"],
        ["team/b", "lab/dev", "gpus", "8", "yes"],
    ]
    assert "1 job on the first run after their program names the release: major" in lines
    assert '1 job nothing: they stay with 1.0.0 (follow="pin"): major' in lines
    assert "1 job nothing: nothing changes in their objects" in lines
    assert lines[-1] == "not shown: 1 job with other releases of the runtime"


def test_markdown_and_json(
    releases: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = run(monkeypatch, *releases, "-A", "-o", "markdown")
    assert not any("/namespaces/" in path for path in paths)
    text = capsys.readouterr().out
    assert "| `team/a` | `lab/dev` | `gpus` | `8` | `yes` |" in text and text.startswith("### `")
    run(monkeypatch, *releases, "-A", "-o", "json")
    found = json.loads(capsys.readouterr().out)
    assert (found["level"], found["others"]) == ("major", 1)
    assert found["impacts"][0]["jobs"][0] == {
        "job": "team/a",
        "stack": "lab/dev",
        "queue": "gpus",
        "gpus": 8,
        "runs": True,
    }
    own = next(each for each in found["impacts"] if each["jobs"][0]["job"] == "team/own")
    assert (own["effects"], own["level"], own["exact"]) == ([], "none", True)


def test_what_cannot_be_read_is_not_known(
    releases: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, *releases, "-n", "team", jobs=[JOBS[0]], jobsets=403)
    text = capsys.readouterr().out
    assert (
        "1 job on the next run (with interrupt=, at the next `pulumi up` of the job's stack): major for jobs in general,"
        " as theirs cannot be read" in text
    )
    assert text.split()[-5:] == ["team/a", "lab/dev", "gpus", "8", "unknown"]


def test_texts_of_others_have_no_effect_in_markdown(
    releases: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = copy.deepcopy(JOBS[3])
    mark = hostile[0]["metadata"]["annotations"]
    mark[owner_labels.FOLLOW] = "pin"
    mark["pulumi-trainer.dev/made-by"] = "</td> @octocat | [x](http://evil.example)\n# heading"
    run(monkeypatch, *releases, "-A", "-o", "markdown", jobs=[hostile])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "octocat" in line]
    assert row.count("|") == 6 and "`</td> @octocat &#124; [x](http://evil.example)" in row
