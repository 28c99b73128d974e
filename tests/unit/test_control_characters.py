"""Names, messages and log lines of strangers as the commands show them: nothing in them reaches the terminal's own language."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from documents_support import runtime, train_job
from kubernetes_support import refusal, server
from pulumi_trainer.provider.cli import documents, job_status, logs
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Step
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.service import jobs
from pulumi_trainer.provider.service.logs import Selection
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.warnings import Severities
from pulumi_trainer.provider.trainer.releases import DEFAULT

HOSTILE = "x\x1b[2J\x1b]0;owned\x07\x9b1A\u202e\x85\r\nerror: forged\u2066[/b][link=https://evil]\ud800"


def acted_on(text: str) -> list[str]:
    """The characters of an output that a terminal would act on."""
    return [c for c in text if not c.isprintable() and c not in "\n\t"]


class Fake:
    """A job of this machine whose pods, lines and messages are somebody's."""

    def __init__(self, **found: object) -> None:
        self.found = JobStatus("j", "default", phase="Failed", reason=HOSTILE, message=HOSTILE, **found)  # type: ignore[arg-type]

    @property
    def jobs(self) -> Fake:
        return self

    volumes = logs = jobs

    def status(self, *_: object) -> JobStatus:
        return self.found

    cached_status = status

    def runs(self, *_: object) -> list[Run]:
        return [Run("1", HOSTILE, id="t4kz1f", message=HOSTILE)]

    def dropped(self, *_: object) -> list[tuple[str, int]]:
        return []

    def tail(self, *_: object, **__: object) -> list[tuple[str, str, str]]:
        return [(HOSTILE, HOSTILE, HOSTILE)]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ReachedJob:
    found = ReachedJob("default", HOSTILE, local=Fake(  # type: ignore[arg-type]
        steps=[Step(HOSTILE)], progress={"metrics": {"[/b]": "[link=https://evil]1"}}
    ))  # fmt: skip
    for module in (jobs, job_status, logs):
        monkeypatch.setattr(module, "chosen_jobs", lambda *_: [found])
    return found


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    document = train_job({"name": HOSTILE[:-1]})
    document["metadata"]["annotations"] = {"note": HOSTILE[:-1]}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([runtime(), document]))
    documents.validate([str(tmp_path / "a.yaml")], "jobset", DEFAULT, output, Severities.of())
    out, err = capsys.readouterr()
    assert not acted_on(out + err)
    assert output != "text" or not [line for line in out.splitlines() if line.startswith("error: forged")]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_render(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    """What is rendered has the very same values, written so that a terminal does nothing."""
    document = train_job()
    document["spec"]["trainer"] = {"env": [{"name": "A", "value": HOSTILE[:-1]}]}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([runtime(), document]))
    documents.render([str(tmp_path / "a.yaml")], "jobset", DEFAULT, output, Severities.of())
    out, err = capsys.readouterr()
    assert not acted_on(out + err)
    found = json.loads(out)["objects"] if output == "json" else list(yaml.safe_load_all(out))
    (jobset,) = (o for o in found if o["kind"] == "JobSet")
    assert HOSTILE[:-1] in [e["value"] for e in _env(jobset)]


def _env(jobset: dict) -> list[dict]:  # type: ignore[type-arg]
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return [e for c in pod["containers"] for e in c.get("env", []) if "value" in e]


def test_status_and_why(job: ReachedJob, capsys: pytest.CaptureFixture[str]) -> None:
    job_status.status("x", Where(), output="table")
    job_status.why("x", Where())
    job_status.why("x", Where(), output="json")
    job_status.status("x", Where(), output="json")
    out, err = capsys.readouterr()
    assert not acted_on(out + err)
    assert "[/b]" in out and "link=" in out, "brackets are no markup"
    assert not [line for line in out.splitlines() if line.startswith("error: forged")]


def test_logs_on_a_terminal(
    job: ReachedJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    logs.logs("x", Where(), Selection())
    out, _ = capsys.readouterr()
    assert out and not acted_on(out) and out.count("\n") == 1
    logs.logs("x", Where(), Selection(), output="json")
    out, _ = capsys.readouterr()
    assert not acted_on(out) and json.loads(out)["line"] == HOSTILE


def test_the_error_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="jobs") as raised:
        jobs.check_single([ReachedJob("default", HOSTILE)] * 2, "events")
    assert not acted_on(str(raised.value))


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[str]:
    """Kubeconfig of an API server that answers each request with a Status that is somebody's."""
    with server() as made:
        made.does(refusal(403, HOSTILE, HOSTILE))
        content = {
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": made.url}}], "users": [{"name": "u", "user": {}}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(content))
        yield str(tmp_path / "kubeconfig")


@pytest.mark.parametrize(
    "command", [("status", "j"), ("status", "j", "-o", "json"), ("why", "j"), ("logs", "j"), ("events", "j")]
)
def test_the_status_of_an_api_server(
    refusing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *command, "--kubeconfig", refusing, "--namespace", "default"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 1 and "forged" in out + err, out + err
    assert not acted_on(out + err)
    assert not [line for line in (out + err).splitlines() if line.startswith("error: forged")]


def test_the_status_of_an_api_server_in_a_plan(refusing: str) -> None:
    target = {"kind": "kubernetes", "kubeconfig": refusing, "context": "", "sweep": ""}
    refused, warned = queries.review_job(target, Draft("default", "j", "d", {}))
    found = [str(problem) for problem in (*refused, *warned)]
    assert any("forged" in text for text in found), found
    assert not [c for text in found for c in acted_on(text)]
    assert not [line for text in found for line in text.splitlines() if line.startswith("error: forged")]
