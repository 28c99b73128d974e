"""The record of a run has the revisions of its data, which containers report in their termination messages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from initializers_support import Hub
from pulumi_trainer.plan import report_data
from pulumi_trainer.provider.api.fetched_data import Revision, message_of, split_message, with_revisions
from pulumi_trainer.provider.initializers import __main__ as initializer
from pulumi_trainer.provider.initializers import fetch
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose
from pulumi_trainer.provider.lifecycle.diagnosis.containers import exit_text

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLANNED = {"code": "8c1f0b6a2d3e", "dataset": "data 5d72ab01"}
KEPT = {"metadata": {"name": "job"}, "spec": {"replicatedJobs": [{"name": "node", "replicas": 1}]}}


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    found.add("datasets/org/digits", {"README.md": b"# data", "train/a.csv": b"1,2", "train/b.csv": b"3"})
    yield found
    found.close()


def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path | str) -> dict[str, Revision]:
    """What a node writes whose dataset is in the folder."""
    log = tmp_path / "termination-log"
    log.write_text("")
    monkeypatch.setenv("TRAINER_DATASET_DIR", str(folder))
    report_data.report(str(log))
    found, rest = split_message(log.read_text())
    assert rest == ""
    return found


def test_the_commit_that_upstreams_initializer_leaves(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "workspace" / "dataset"
    huggingface_hub.snapshot_download("org/digits", repo_type="dataset", local_dir=folder, endpoint=hub.url)
    assert (folder / "train" / "a.csv").read_bytes() == b"1,2"
    commit = hub.repositories["datasets/org/digits"].refs["main"]
    assert reported(tmp_path, monkeypatch, folder) == {"dataset": Revision(commit)}


@pytest.mark.parametrize("mounted", [False, True], ids=["beside the folder", "in the folder"])
def test_the_manifest_of_our_initializer(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, mounted: bool
) -> None:
    folder = tmp_path / "workspace" / "dataset"
    if mounted:
        monkeypatch.setattr(os.path, "ismount", lambda path: path == folder)
    done = fetch("dataset", "hf://org/digits", folder, env={"HF_ENDPOINT": hub.url})
    assert (folder / ".pulumi-trainer.json").exists() is mounted
    expected = Revision(done.revision, "hf://org/digits")
    assert reported(tmp_path, monkeypatch, f"{folder}/") == {"dataset": expected}


def test_names_and_sizes_where_nothing_else_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dataset"
    assert reported(tmp_path, monkeypatch, folder) == {}
    folder.mkdir()
    assert reported(tmp_path, monkeypatch, folder) == {}
    (folder / "a").write_text("one")
    first = reported(tmp_path, monkeypatch, folder)
    assert first["dataset"].by_size and first["dataset"].revision.startswith("files ")
    assert with_revisions(PLANNED, first)["dataset"] == f"data 5d72ab01 {first['dataset'].revision}"
    (folder / "a").write_text("other")
    assert reported(tmp_path, monkeypatch, folder) != first
    monkeypatch.setattr(report_data, "MOST_FILES", 0)
    assert reported(tmp_path, monkeypatch, folder) == {}, "listing more would keep the training waiting"


@pytest.mark.parametrize("manifest", ["[" * 100_000, "{}", "[]", '{"complete": false, "revision": "1", "uri": "x"}'])
def test_a_damaged_manifest_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / ".pulumi-trainer.json").write_text(manifest)
    assert reported(tmp_path, monkeypatch, folder)["dataset"].by_size


def test_a_node_without_a_termination_log_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    monkeypatch.setenv("TRAINER_DATASET_DIR", str(tmp_path))
    report_data.report(str(tmp_path / "none" / "log"))


@pytest.mark.parametrize("local", [False, True])
def test_an_initializer_reports_what_it_has_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, local: bool
) -> None:
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("one")
    monkeypatch.setattr(initializer, "TERMINATION_LOG", log)
    env = {"STORAGE_URI": f"file://{tmp_path}/data", "OUTPUT_DIR": f"{tmp_path}/dataset"}
    if local:
        env["PULUMI_TRAINER_LAYER"] = "layer.py"
    assert initializer.main(["dataset"], env) == 0
    found, _ = split_message(log.read_text())
    assert {kind: each.uri for kind, each in found.items()} == ({} if local else {"dataset": env["STORAGE_URI"]})


@pytest.mark.parametrize(
    ("planned", "fetched", "expected"),
    [
        ("hf://org/digits", Revision(COMMIT), f"hf://org/digits {COMMIT}"),
        ("data 5d72ab01", Revision(COMMIT), f"data {COMMIT}"),
        ("data 5d72ab01", Revision(COMMIT, "hf://org/digits"), f"hf://org/digits {COMMIT}"),
        ("", Revision(COMMIT), COMMIT),
    ],
)
def test_a_revision_replaces_the_version_of_the_volume(planned: str, fetched: Revision, expected: str) -> None:
    assert with_revisions({"dataset": planned}, {"dataset": fetched}) == {"dataset": expected}


@pytest.mark.parametrize(
    "message",
    [
        "",
        "out of memory",
        '{"pulumi-trainer": 3}',
        '{"pulumi-trainer": ' + "[" * 100_000,
        '{"pulumi-trainer": {"dataset": {"revision": ["x"]}, "code": {"revision": "y"}}}',
        '{"pulumi-trainer": {"dataset": "x", "model": {"uri": "hf://a/b"}}}',
    ],
    ids=range(6),
)
def test_any_program_may_write_a_message(message: str) -> None:
    assert split_message(message)[0] == {}


def test_a_message_is_harmless() -> None:
    found, rest = split_message(message_of("model", Revision("\x1b[2J" + "x" * 5000, "hf://a/\x07b")) + "killed\n")
    assert len(found["model"].revision) <= 200 and "\x1b" not in found["model"].revision
    assert "\x07" not in found["model"].uri and rest == "killed\n"


def ended(name: str, code: int, message: str, created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/jobset-name": "job"}
    return {
        "metadata": {"name": name, "creationTimestamp": created, "labels": labels},
        "status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "node", "state": state}]},
    }


def test_the_status_of_a_job_has_what_its_pods_have_read() -> None:
    by_size = message_of("dataset", Revision("files 8c1f0b6a2d3e"))
    pods = [
        ended("new", 0, message_of("dataset", Revision("new")), "2026-01-02T00:00:00Z"),
        ended("old", 0, message_of("dataset", Revision("old"))),
        ended("vague", 0, by_size, "2026-01-03T00:00:00Z"),
        ended("model", 0, message_of("model", Revision(COMMIT, "hf://org/model"))),
    ]
    status = diagnose(JobView("team", "job", jobset=KEPT, pods=pods), 0.0)
    assert status.inputs == {"dataset": "new", "model": f"hf://org/model {COMMIT}"}
    status = diagnose(JobView("team", "job", jobset=KEPT, pods=pods[2:3]), 0.0)
    assert status.inputs == {"dataset": "files 8c1f0b6a2d3e"}


@pytest.mark.parametrize(("rest", "shown"), [("", "exit code 3"), ("out of memory\n", "exit code 3: out of memory")])
def test_no_failure_is_explained_by_what_was_read(rest: str, shown: str) -> None:
    message = message_of("dataset", Revision(COMMIT)) + rest
    assert exit_text({"exitCode": 3, "reason": "Error", "message": message}) == shown


def test_a_refusal_of_a_tool_replaces_the_report(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(json.dumps({"pulumi-trainer": {"dataset": {"revision": "x" * 500}}}) + "\n")
    source = Path(report_data.__file__).with_name("run_tool.py").read_text()
    begin = source.index("def refuse(")
    text = source[begin : source.index("\ndef ", begin)].replace("/dev/termination-log", str(log))
    names: dict[str, Any] = {}
    exec(f"import contextlib, json, os, sys, time\n{text}", names)
    with pytest.raises(SystemExit):
        names["refuse"]("größer als erlaubt", "a smaller one")
    assert log.read_text() == "pulumi-trainer: größer als erlaubt. Hint: a smaller one"
