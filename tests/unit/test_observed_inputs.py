"""The record of a run has what only the run can tell: revisions of data, digests of images, versions of packages."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import huggingface_hub
import pytest
from initializers_support import Hub
from pulumi_trainer.provider.jobs.observed_inputs import (
    Observed,
    Revision,
    fetch_message,
    split_message,
    with_observed,
    without_digests,
)
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose, keep
from pulumi_trainer.provider.lifecycle.diagnosis.containers import exit_text
from pulumi_trainer.provider.lifecycle.run_changes import changed_inputs
from pulumi_trainer.provider.pod.initializers import __main__ as initializer
from pulumi_trainer.provider.pod.initializers import fetch
from pulumi_trainer.provider.pod.scripts import report_inputs
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.jobs.run_end import end_of
from pulumi_trainer.provider.targets.local.machine import python_version
from pulumi_trainer.provider.targets.local.pod_processes import ContainerProcess

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHA256 = "ab" * 32
KEPT = {"metadata": {"name": "job"}, "spec": {"replicatedJobs": [{"name": "node", "replicas": 1}]}}


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()
    found.add("datasets/org/digits", {"README.md": b"# data", "train/a.csv": b"1,2", "train/b.csv": b"3"})
    yield found
    found.close()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A termination log, which exists before a container writes it."""
    made = tmp_path / "termination-log"
    made.touch()
    real = open

    def opened(path: Any, mode: str = "r", **more: Any) -> Any:
        return real(made if path == "/dev/termination-log" else path, mode, **more)

    monkeypatch.setattr(report_inputs, "open", opened, raising=False)
    return made


def reported(log: Path, install: list[str] | None = None) -> Observed:
    """What a node reports."""
    log.write_text("")
    report_inputs.report(install or [])
    found, rest = split_message(log.read_text())
    assert rest == ""
    return found


def read(log: Path, folder: Path | str, monkeypatch: pytest.MonkeyPatch) -> Revision | None:
    """What a node reports whose dataset is in the folder."""
    monkeypatch.setenv("TRAINER_DATASET_DIR", str(folder))
    return reported(log).data.get("dataset")


class TestData:
    def test_the_commit_that_upstreams_initializer_leaves(
        self, hub: Hub, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "workspace" / "dataset"
        huggingface_hub.snapshot_download("org/digits", repo_type="dataset", local_dir=folder, endpoint=hub.url)
        assert (folder / "train" / "a.csv").read_bytes() == b"1,2"
        commit = hub.repositories["datasets/org/digits"].refs["main"]
        assert read(log, folder, monkeypatch) == Revision(commit)

    @pytest.mark.parametrize("mounted", [False, True], ids=["beside the folder", "in the folder"])
    def test_the_manifest_of_our_initializer(
        self, hub: Hub, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, *, mounted: bool
    ) -> None:
        folder = tmp_path / "workspace" / "dataset"
        if mounted:
            monkeypatch.setattr(os.path, "ismount", lambda path: path == folder)
        done = fetch("dataset", "hf://org/digits", folder, env={"HF_ENDPOINT": hub.url})
        assert (folder / ".pulumi-trainer.json").exists() is mounted
        assert read(log, f"{folder}/", monkeypatch) == Revision(done.revision, "hf://org/digits")

    def test_names_and_sizes_where_nothing_else_is_known(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "dataset"
        assert read(log, folder, monkeypatch) is None
        folder.mkdir()
        assert read(log, folder, monkeypatch) is None
        (folder / "a").write_text("one")
        first = read(log, folder, monkeypatch)
        assert first is not None and first.by_size
        (folder / "a").write_text("other")
        assert read(log, folder, monkeypatch) != first
        (folder / "b").touch()
        monkeypatch.setattr(report_inputs, "MOST_FILES", 1)
        looked: list[str] = []
        lstat = os.lstat
        monkeypatch.setattr(os, "lstat", lambda path: looked.append(path) or lstat(path))
        assert read(log, folder, monkeypatch) is None
        assert len(looked) == 1, "looking at more would keep the training waiting"

    def test_no_folders_keep_a_program_from_starting(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python before 3.12 walks folders recursively."""
        (tmp_path / "a" / "b" / "c").mkdir(parents=True)
        (tmp_path / "a.txt").touch()
        found = read(log, tmp_path, monkeypatch)
        assert found is not None and found.by_size
        monkeypatch.setattr(report_inputs, "MOST_FILES", 2)
        assert read(log, tmp_path, monkeypatch) is None, "they are counted as files are"

        def walk(_: str) -> Iterator[Any]:
            raise RecursionError

        monkeypatch.setattr(os, "walk", walk)
        assert read(log, tmp_path, monkeypatch) is None

    @pytest.mark.parametrize(
        "manifest", ["[" * 100_000, "{}", "[]", '{"complete": false, "revision": "1", "uri": "x"}'], ids=range(4)
    )
    def test_a_damaged_manifest_is_none(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
    ) -> None:
        folder = tmp_path / "dataset"
        folder.mkdir()
        (folder / ".pulumi-trainer.json").write_text(manifest)
        found = read(log, folder, monkeypatch)
        assert found is not None and found.by_size

    def test_a_manifest_that_a_repository_has_is_not_its_commit(
        self, hub: Hub, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = '{"complete": true, "revision": "%s", "uri": "hf://a/b"}' % ("x" * 5000)
        commit = hub.add("datasets/org/digits", {".pulumi-trainer.json": made.encode()})
        huggingface_hub.snapshot_download("org/digits", repo_type="dataset", local_dir=tmp_path, endpoint=hub.url)
        assert read(log, tmp_path, monkeypatch) == Revision(commit)
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / ".pulumi-trainer.json").write_text(made)
        assert read(log, tmp_path / "a", monkeypatch) == Revision("x" * 200, "hf://a/b")

    def test_a_manifest_of_odd_texts_keeps_no_program_from_starting(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = {"complete": True, "revision": "1\ud800", "uri": "\ud800" * 1000}
        (tmp_path / ".pulumi-trainer.json").write_text(json.dumps(made))
        assert read(log, tmp_path, monkeypatch) is None, "longer than a termination message"
        (tmp_path / ".pulumi-trainer.json").write_text(json.dumps({**made, "uri": ""}))
        assert read(log, tmp_path, monkeypatch) is not None

    def test_a_container_without_a_termination_log_trains(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.unlink()
        (tmp_path / "a").touch()
        monkeypatch.setenv("TRAINER_DATASET_DIR", str(tmp_path))
        report_inputs.report([])
        assert not log.exists()

    @pytest.mark.parametrize("local", [False, True])
    def test_an_initializer_reports_what_it_has_fetched(
        self, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, *, local: bool
    ) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "a").write_text("one")
        monkeypatch.setattr(initializer, "TERMINATION_LOG", log)
        env = {"STORAGE_URI": f"file://{tmp_path}/data", "OUTPUT_DIR": f"{tmp_path}/dataset"}
        if local:
            env["PULUMI_TRAINER_LAYER"] = "layer.py"
        assert initializer.main(["dataset"], env) == 0
        found, _ = split_message(log.read_text())
        assert [each.uri for each in found.data.values()] == ([] if local else [env["STORAGE_URI"]])


class TestPackages:
    def test_the_versions_of_those_that_the_program_does_not_pin(self, log: Path, tmp_path: Path) -> None:
        requirements = tmp_path / "requirements.txt"
        requirements.write_text("# all\n-e .\nmoto>=1 ; python_version > '3'\npydantic==2.*\n")
        words = ["PyYAML", "pytest[x]==0.1", "not-there", "--trusted-host", "pip", "-c", "pytest", "--pre", "psutil"]
        found = reported(log, [*words, "-r", str(requirements)]).packages
        names = ("pyyaml", "psutil", "moto", "pydantic")
        assert found == ", ".join(f"{name} {metadata.version(name)}" for name in names)

    def test_nothing_that_a_package_has_left_keeps_a_program_from_starting(
        self, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        (tmp_path / "a-1.dist-info").mkdir()
        (tmp_path / "a-1.dist-info" / "METADATA").write_bytes(b"\xff\xfe")
        (tmp_path / "b-2.dist-info").mkdir()
        assert reported(log, ["moto"]) in (Observed(), Observed(packages=f"moto {metadata.version('moto')}"))

    def test_the_local_target_reads_a_file_of_its_own(
        self, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_TRAINER_REPORT", str(tmp_path / "report"))
        report_inputs.report(["moto"])
        assert log.read_text() == ""
        assert split_message((tmp_path / "report").read_text())[0].packages.startswith("moto ")


@pytest.mark.parametrize(
    ("planned", "observed", "expected"),
    [
        ({"dataset": "hf://org/digits"}, Revision(COMMIT), f"hf://org/digits {COMMIT}"),
        ({"dataset": "data 5d72ab01"}, Revision(COMMIT), f"data {COMMIT}"),
        ({"dataset": "data 5d72ab01"}, Revision(COMMIT, "hf://org/digits"), f"hf://org/digits {COMMIT}"),
        ({"dataset": "data 5d72ab01"}, Revision("files 8c1f0b6a2d3e"), "data 5d72ab01 files 8c1f0b6a2d3e"),
        ({}, Revision(COMMIT), COMMIT),
    ],
)
def test_a_revision_stands_behind_the_name_of_the_data(
    planned: dict[str, str], observed: Revision, expected: str
) -> None:
    found = with_observed(planned, Observed({"dataset": observed}))
    assert found == {"dataset": expected}


def test_packages_and_images_stand_behind_what_the_plan_names() -> None:
    planned = {"packages": "torch>=2", "image": "node: a/b:1, launcher: c/d@sha256:" + "0" * 64}
    observed = Observed(packages="torch 2.6.0", images={"a/b:1": SHA256, "c/d@sha256:" + "0" * 64: "0" * 64})
    found = with_observed(planned, observed)
    assert found["packages"] == "torch>=2; installed torch 2.6.0"
    assert found["image"] == f"node: a/b:1 sha256:{SHA256[:12]}, launcher: c/d@sha256:" + "0" * 64
    assert without_digests(found["image"]) == planned["image"]
    assert with_observed({"image": "a/b:1"}, observed)["image"] == f"a/b:1 sha256:{SHA256[:12]}"


def test_the_version_of_another_interpreter(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9.2\n")
    other.chmod(0o755)
    assert python_version(str(other)) == "3.9.2"
    assert python_version(sys.executable) == platform.python_version()
    assert python_version(str(tmp_path / "none")) == python_version("/bin/false") == ""


@pytest.mark.parametrize(
    "message",
    [
        "",
        "out of memory",
        '{"pulumi-trainer": 3}',
        '{"pulumi-trainer": ' + "[" * 100_000,
        '{"pulumi-trainer": {"dataset": {"revision": ["x"]}, "code": {"revision": "y"}, "packages": {"a": 1}}}',
        '{"pulumi-trainer": {"dataset": "x", "model": {"uri": "hf://a/b"}}}',
    ],
    ids=range(6),
)
def test_any_program_may_write_a_message(message: str) -> None:
    assert split_message(message)[0] == Observed()


def test_a_message_is_harmless() -> None:
    message = fetch_message("model", Revision("\x1b[2J" + "x" * 5000, "hf://a/\x07b"))
    found, rest = split_message(message + "killed\n")
    model = found.data["model"]
    assert len(model.revision) <= 200 and "\x1b" not in model.revision
    assert "\x07" not in model.uri and rest == "killed\n"


def ended(name: str, message: str, created: str = "2026-01-01T00:00:00Z", image_id: str = "") -> dict[str, Any]:
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/jobset-name": "job"}
    status = {"name": "node", "image": "docker.io/a/b:1", "imageID": image_id, "state": state}
    pod = {
        "metadata": {"name": name, "creationTimestamp": created, "labels": labels},
        "spec": {"containers": [{"name": "node", "image": "a/b:1"}]},
        "status": {"phase": "Succeeded", "containerStatuses": [status]},
    }
    return keep("Pod", pod)


def test_the_status_of_a_job_has_what_its_pods_report() -> None:
    pods = [
        ended("new", fetch_message("dataset", Revision("new")), "2026-01-02T00:00:00Z"),
        ended("old", fetch_message("dataset", Revision("old")), image_id=f"docker.io/a/b@sha256:{SHA256}"),
        ended("vague", fetch_message("dataset", Revision("files 8c1f0b6a2d3e")), "2026-01-03T00:00:00Z"),
        ended("model", fetch_message("model", Revision(COMMIT, "hf://org/model")), image_id="a/b:1"),
    ]
    view = JobView("team", "job", jobset=KEPT, pods=pods)
    assert diagnose(view, 0.0).inputs == {"dataset": "new", "model": f"hf://org/model {COMMIT}"}
    recorded = diagnose(view, 0.0)
    recorded.inputs = {"image": "a/b:1", "dataset": "data 5d72ab01"}
    view = JobView("team", "job", jobset=KEPT, pods=pods, recorded=recorded)
    assert diagnose(view, 0.0).inputs["image"] == f"a/b:1 sha256:{SHA256[:12]}"
    vague = JobView("team", "job", jobset=KEPT, pods=pods[2:3], recorded=recorded)
    assert diagnose(vague, 0.0).inputs["dataset"] == "data 5d72ab01 files 8c1f0b6a2d3e"


@pytest.mark.parametrize(("rest", "shown"), [("", "exit code 3"), ("out of memory\n", "exit code 3: out of memory")])
def test_no_failure_is_explained_by_what_was_read(rest: str, shown: str) -> None:
    message = fetch_message("dataset", Revision(COMMIT)) + rest
    assert exit_text({"exitCode": 3, "reason": "Error", "message": message}) == shown


def test_long_texts_that_differ_stay_different() -> None:
    long = ", ".join(f"package-{number} 1.0" for number in range(60))
    planned = {"packages": " ".join(f"package-{number}" for number in range(60))}
    found = [with_observed(planned, Observed(packages=packages))["packages"] for packages in (long, f"{long[:-1]}1")]
    assert all(len(each) <= 1000 for each in found) and changed_inputs({"p": found[0]}, {"p": found[1]})


def test_a_list_that_the_reporter_has_cut_hides_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_inputs, "LONGEST", 30)
    packages = reported(log, ["moto", "pydantic", "pyyaml"]).packages
    assert len(packages) < 50 and packages.startswith("moto ")
    first, second = ({"packages": f"requirements {each}; installed {packages}"} for each in "ab")
    assert changed_inputs(first, second)


def test_the_record_of_an_ended_job_is_complete() -> None:
    """What its Pods show is not added once more."""
    pod = ended("one", fetch_message("dataset", Revision("files 8c1f0b6a2d3e")))
    record = Record.of({"metadata": {"name": "job"}, "data": {"inputs": '{"dataset": "data 5d72ab01"}'}})
    running = diagnose(JobView("team", "job", jobset=KEPT, pods=[pod], recorded=record.last_status()), 0.0)
    running.phase = "Succeeded"
    data = {"inputs": '{"dataset": "data 5d72ab01"}', **end_of(record, running, JobView("team", "j"))}
    record = Record.of({"metadata": {"name": "job"}, "data": data})
    view = JobView("team", "job", jobset=KEPT, pods=[pod], recorded=record.last_status())
    assert record.inputs == diagnose(view, 0.0).inputs == {"dataset": "data 5d72ab01 files 8c1f0b6a2d3e"}


@pytest.mark.parametrize(
    "before", ["", "other", '{"pulumi-trainer": {"dataset": {"revision": "1", "uri": "größer"}}}\n']
)
def test_a_refusal_of_a_tool_stands_behind_the_report(log: Path, before: str) -> None:
    log.write_text(before + "y" * 300)
    source = Path(report_inputs.__file__).with_name("run_tool.py").read_text()
    begin = source.index("def refuse(")
    text = source[begin : source.index("\ndef ", begin)].replace("/dev/termination-log", str(log))
    names: dict[str, Any] = {}
    exec(f"import contextlib, json, os, sys, time\n{text}", names)
    for _ in "two ranks":
        with pytest.raises(SystemExit):
            names["refuse"]("größer als erlaubt", "a smaller one")
    found, rest = split_message(log.read_text())
    assert rest == "pulumi-trainer: größer als erlaubt. Hint: a smaller one"
    assert bool(found.data) is before.startswith("{")


def test_a_report_that_is_being_written_is_read_later(tmp_path: Path) -> None:
    report = tmp_path / "report"
    container = SimpleNamespace(plan=SimpleNamespace(reports=True), _report_file=report)
    observed = cast(Any, ContainerProcess.observed).fget
    assert observed(container) is None
    for written in ("", '{"pulumi-trainer": {"packages": "moto 5.2.5"}}'):
        report.write_text(written)
        assert observed(container) is None
    report.write_text('{"pulumi-trainer": {"packages": "moto 5.2.5"}}\n')
    assert observed(container) == Observed(packages="moto 5.2.5")
    container.plan.reports = False
    assert observed(container) is None
