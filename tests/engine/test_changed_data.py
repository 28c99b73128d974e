"""Changed data is never ignored in silence, and the old data stays until the new is complete."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .conftest import Project
from .test_datasets import INLINE, claims, prepared

PROGRAM = """
def read():
    import os, pathlib
    for folder in ("TRAINER_DATASET_DIR", "TRAINER_MODEL_DIR"):
        for file in sorted(pathlib.Path(os.environ.get(folder, "/nowhere")).glob("*")):
            print("file", file.name, file.read_text(), flush=True)

data = trainer.DatasetInitializer("data", storage_uri="file://first")
base = trainer.ModelInitializer("base", storage_uri="file://weights")
trainer.TrainJob(
    "one", runtime=plain, wait_for="complete", run="1", initializer=trainer.Initializer(dataset=data, model=base),
    trainer=trainer.CustomTrainer(func=read),
)
"""


@contextmanager
def refusing_hub() -> Iterator[str]:
    """A hub that has no repository: its address."""

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_an_edited_file_is_told_and_the_next_run_trains_on_it(project: Project) -> None:
    prepared(project)
    project.program(PROGRAM)
    project.up()
    assert "file a.txt AAA" in project.logs("one")
    uid = project.job("one").uid
    project.preview("--expect-no-changes")

    (project.folder / "first" / "a.txt").touch()
    project.preview("--expect-no-changes")  # its content counts, not its time
    (project.folder / "first" / "a.txt").write_text("EDITED")
    (project.folder / "weights" / "model.txt").write_text("NEW")
    planned = project.preview().out
    said = [line.strip() for line in planned.splitlines() if line.strip().startswith("note: ")]
    assert len(said) == 2 and all("-> " in line and line.endswith('; run="2" trains on it') for line in said), planned
    assert "note: default/one-b3ff0: dataset data " in planned and "note: default/one-b3ff0: model base " in planned
    assert 'run="2" trains on it' in project.up().out
    assert project.job("one").uid == uid, "a finished job stays finished"
    assert 'run="2" trains on it' in project.preview("--expect-no-changes").out, "for as long as it is true"

    project.program(PROGRAM.replace('run="1"', 'run="2"'))
    assert "trains on it" not in project.up().out
    assert "file a.txt EDITED" in project.logs("one") and "file model.txt NEW" in project.logs("one")
    assert "trains on it" not in project.preview("--expect-no-changes").out
    assert len(claims(project)) == 2, "what nothing uses has gone"


@pytest.mark.core
def test_an_edited_file_of_a_source_inside_a_job_is_told(project: Project) -> None:
    prepared(project)
    project.program(INLINE.replace("RUNTIME", 'stepped, run="one"'))
    project.up()
    project.preview("--expect-no-changes")
    (project.folder / "first" / "a.txt").write_text("EDITED")
    assert "dataset file://first " in (planned := project.preview("--expect-no-changes").out), planned
    assert "; another run= trains on it" in planned
    project.program(INLINE.replace("RUNTIME", 'stepped, run="two"'))
    project.up()
    assert "EDITED" in project.logs("inline")
    shutil.rmtree(project.folder / "first")
    assert "-> unreadable" in project.preview("--expect-no-changes").out, "and the job that has ended stays"


def test_a_failed_fetch_leaves_the_data_of_before(project: Project) -> None:
    prepared(project)
    project.program(PROGRAM)
    project.up()
    before = claims(project)
    with refusing_hub() as hub:
        wrong = f'"data", storage_uri="hf://nobody/nothing", env={{"HF_ENDPOINT": "{hub}"}}'
        project.program(PROGRAM.replace('"data", storage_uri="file://first"', wrong))
        for options in ([], ["--continue-on-error"]):
            out = project.up(*options, ok=False).out
            assert 'DatasetInitializer("data") Failed' in out and "404" in out, out
            assert set(before) < set(claims(project))
    assert [f.read_text() for p in before for f in (p / "data").glob("a.txt")] == ["AAA"]
    project.program(PROGRAM)
    project.up()
    assert claims(project) == before, "back to what was there, and the empty one is gone"
    assert [f.read_text() for p in before for f in (p / "data").glob("a.txt")] == ["AAA"]


def test_a_volume_that_is_made_anew_is_filled_anew(project: Project) -> None:
    prepared(project)
    project.program(PROGRAM)
    project.up()
    (volume,) = project.root.glob("volumes/default/data-*")
    shutil.rmtree(volume)
    project.refresh()
    planned = project.preview().out
    assert "JobSet data replace" in planned and "JobSet base" not in planned and "JobSet one" not in planned, planned
    project.up()
    assert (volume / "data" / "a.txt").read_text() == "AAA"
    project.preview("--expect-no-changes")


LISTED = PROGRAM.replace("file.read_text()", "oct(file.stat().st_mode & 0o222)")


def test_a_job_finds_its_data_alone_and_may_not_change_it(project: Project) -> None:
    prepared(project)
    project.program(LISTED)
    project.up()
    listed = [line for line in project.logs("one").splitlines() if line.startswith("file")]
    assert listed == ["file a.txt 0o0", "file model.txt 0o0"]
    (jobset,) = (r["inputs"]["objects"] for r in project.resources() if r["urn"].endswith("::one"))
    mounts = next(d for k, d in jobset.items() if k.startswith("JobSet/"))["spec"]["replicatedJobs"][0]["template"][
        "spec"
    ]
    container = mounts["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {m["name"]: m.get("readOnly") for m in container if "code" not in m["name"]} == {
        "trainer-dataset": True,
        "trainer-model": True,
    }
    project.program(LISTED.replace('storage_uri="file://first"', 'storage_uri="file://first", writable=True'))
    project.up()
    listed = [line for line in project.logs("one").splitlines() if line.startswith("file")]
    assert listed == ["file a.txt 0o200", "file model.txt 0o0"]
    project.program(LISTED.replace('storage_uri="file://first"', 'storage_uri="file://first", writable="yes"'))
    assert "writable: must be True or False, not 'yes'" in project.preview(ok=False).out


WRITER = """
def write():
    import os, pathlib
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "model.pt").write_text("x" * 1200)

for name in @NAMES:
    trainer.TrainJob(
        name, runtime=plain, wait_for="complete", output=True, trainer=trainer.CustomTrainer(func=write), target=@TARGET,
    )
"""


def writers(*names: str, target: str = "None") -> str:
    return WRITER.replace("@NAMES", repr(names)).replace("@TARGET", target)


def test_output_that_goes_is_told(project: Project) -> None:
    project.program(writers("one", "two"))
    project.up()
    assert "with the output in it" not in project.preview("--expect-no-changes").out
    project.program(writers("two"))
    planned = project.preview().out
    warning = (
        "volume default/one-b3ff0-output was removed from the program, and will be deleted"
        " unless it was retained, with the output"
    )
    assert warning in planned and "1 file, 1.2 kB, last written 20" in planned, planned
    assert "two-b3ff0-output" not in planned
    done = project.up().out
    assert (
        "note: volume default/one-b3ff0-output is deleted with the output in it: 1 file, 1.2 kB, last written 20"
        in done
    )

    cluster = 'trainer.Kubernetes(kubeconfig="nowhere.yaml")'
    project.program(writers("two", target=cluster))
    planned = project.run("preview").out
    assert "note: volume default/two-b3ff0-output will be deleted with the output in it: 1 file, 1.2 kB" in planned, (
        planned
    )
    project.program(writers("two"))
    assert "is deleted with the output in it: 1 file, 1.2 kB" in project.destroy().out


@contextmanager
def locked_hub() -> Iterator[tuple[str, list[str]]]:
    """A hub that takes no token: its address, and the tokens that it was sent."""
    tokens: list[str] = []

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(str(self.headers.get("Authorization")))
            self.send_error(401)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        server.server_close()


LOCKED = """
secret = pulumi.Config().require_secret("token")
trainer.DatasetInitializer("data", storage_uri="hf://nobody/nothing", access_token=secret, env={"HF_ENDPOINT": "HUB"})
"""


def test_a_failed_fetch_is_tried_again_with_another_token(project: Project) -> None:
    with locked_hub() as (hub, tokens):
        project.program(LOCKED.replace("HUB", hub))
        project.config("token", "hf_wrong", "--secret")
        first = project.up(ok=False).out
        assert "runs again once its arguments or the values of its secrets have changed" in first, first
        assert "pulumi up --replace '**data'" in first and "run=" not in first, first
        assert set(tokens) == {"Bearer hf_wrong"}
        tokens.clear()
        assert "run=" not in project.up(ok=False).out and not tokens, "nothing has changed"
        project.config("token", "hf_right", "--secret")
        assert "is Failed, and new secret value in Secret" in project.preview("--diff").out
        project.up(ok=False)
        assert set(tokens) == {"Bearer hf_right"}
        tokens.clear()
        project.up("--replace", "**data", ok=False)
        assert set(tokens) == {"Bearer hf_right"}, "what the message names"


REFERRED = """
trainer.DatasetInitializer(
    "data", storage_uri="hf://nobody/nothing", secret_ref="NAME", target=trainer.Kubernetes(kubeconfig="/nonexistent")
)
"""


def test_another_secret_is_another_fetch(project: Project) -> None:
    digests = []
    for name in ("token", "token", "corrected"):
        project.program(REFERRED.replace("NAME", name))
        out = project.preview("--json").out
        steps = json.loads(out[out.index("{") :])["steps"]
        digests += [s["newState"]["inputs"]["digest"] for s in steps if s["newState"]["type"].endswith(":Volume")]
    assert digests[0] == digests[1] != digests[2] and len(digests) == 3


@contextmanager
def silent_hub() -> Iterator[tuple[str, threading.Event]]:
    """A hub that takes requests and does not answer: its address, and what is set with the first request."""
    asked, over = threading.Event(), threading.Event()

    class Wait(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            over.wait(120)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Wait)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_a_source_is_corrected_while_it_is_fetched(project: Project) -> None:
    prepared(project)
    source = 'trainer.DatasetInitializer("data", storage_uri="URI", env={"HF_ENDPOINT": "HUB"})\n'
    with silent_hub() as (hub, asked):
        project.program(source.replace("URI", "hf://nobody/nothing").replace("HUB", hub))
        process = project.start("up", "--yes", "--skip-preview")
        assert asked.wait(120)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=120)
        project.program(source.replace("URI", "file://first").replace("HUB", hub))
        assert "replace" in project.preview().out
        project.up()
    (folder,) = (Path(r["outputs"]["path"]) for r in project.resources("Volume"))
    assert (folder / "a.txt").read_text() == "AAA"
    project.preview("--expect-no-changes")
