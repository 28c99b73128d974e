"""`pulumi-trainer validate` and `render` of files: what is printed, where, and the exit code."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents_support import WRONG, runtime, thing, train_job
from pulumi_trainer import runtimes
from pulumi_trainer.provider.cli import documents as commands
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kueue.prices import PRICE
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.service import jobs
from pulumi_trainer.provider.service import stack as stacks
from pulumi_trainer.provider.trainer.releases import NEWEST
from test_start_answers import FLAVOR, team, workload
from test_starts import Visibility

CASES = Path(__file__).parents[1] / "golden" / "cases"
KEYS = ["admitted", "stage", "errors", "warnings", "objects", "status"]


class Ran:
    """The command line in this process. file: documents in a file of the test's folder, or its text."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.capsys, self.monkeypatch = folder, capsys, monkeypatch
        self.out = self.err = ""

    def file(self, *content: Any, name: str = "jobs.yaml") -> str:
        text = content[0] if isinstance(content[0], (str, bytes)) else yaml.safe_dump_all(content)
        (self.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    def __call__(self, *args: str, stdin: bytes = b"") -> int:
        self.monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *args])
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self.monkeypatch.chdir(self.folder)
        with pytest.raises(SystemExit) as ended:
            cli.main()
            raise SystemExit(0)
        self.out, self.err = self.capsys.readouterr()
        assert "Traceback" not in self.err
        return int(ended.value.code or 0)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return Ran(tmp_path, capsys, monkeypatch)


def test_admitted(run: Ran) -> None:
    assert run("validate", run.file(runtime(), train_job())) == 0
    assert run.out == (
        "jobs.yaml, document 1, line 1: ClusterTrainingRuntime rt is admitted\n"
        "jobs.yaml, document 2, line 23: TrainJob team/job is admitted\n"
    )


def test_refused_says_file_document_line_field_why_and_what_to_do(run: Ran) -> None:
    text = yaml.safe_dump_all([runtime(), train_job()]) + "  trainer:\n    numNodes: -1\n    image: 1.10\n"
    assert run("validate", run.file(text)) == 1
    assert (
        "jobs.yaml, document 2, line 23: TrainJob team/job is refused by Trainer's webhook, which cannot decode it\n"
        in run.out
    )
    assert (
        'error: spec.trainer.image (line 34): must be a string, not a decimal number. Hint: write it in quotes: "1.10"'
        in run.out
    )
    assert run("validate", "--trainer-version", NEWEST.version, run.file(text.replace("1.10", "a"))) == 1
    assert "team/job is refused by the schema\n" in run.out
    assert "  error: spec.trainer.numNodes (line 33): should be greater than or equal to 0\n" in run.out


def test_a_misspelt_runtime_gets_the_nearest_name_of_the_catalogue(run: Ran) -> None:
    job = train_job()
    job["spec"]["runtimeRef"]["name"] = "torch-distributd"
    assert run("validate", run.file(job)) == 1
    assert "torch-distributd' among the documents. Hint: did you mean torch-distributed?\n" in run.out
    assert run("validate", "--mode", "trainer", run.file(job)) == 1
    assert "did you mean" not in run.out


def queued() -> dict[str, dict[str, Any]]:
    """Files of a job and of what it refers to; its Pods are larger than the namespace allows."""
    limit = {"type": "Container", "max": {"cpu": "1"}}
    about = {"name": "limits", "namespace": "team"}
    labels = {"kueue.x-k8s.io/queue-name": "queue", "kueue.x-k8s.io/priority-class": "high"}
    return {
        "limits.yaml": {"apiVersion": "v1", "kind": "LimitRange", "metadata": about, "spec": {"limits": [limit]}},
        "job.yaml": train_job({"labels": labels}, trainer={"resourcesPerNode": {"limits": {"cpu": "2"}}}),
        "runtime.yaml": runtime(),
        "queue.yaml": {
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "queue", "namespace": "team"},
            "spec": {"clusterQueue": "gpus", "stopPolicy": "Hold"},
        },
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_the_order_of_files_changes_no_verdict(run: Ran, mode: str) -> None:
    files = queued()
    for name, document in files.items():
        run.file(document, name=name)
    verdicts = set()
    for order in permutations(files):
        assert run("validate", "--mode", mode, *order) == 1
        verdicts.add(run.out)
    (verdict,) = verdicts
    assert "maximum cpu usage per Container is 1, but limit is 2" in verdict and "spec.stopPolicy: is Hold" in verdict
    assert run("validate", "--mode", mode, "job.yaml", "runtime.yaml", "queue.yaml") == 0, "without the limit"


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
@pytest.mark.parametrize("name", ["rt", "torch-distributed"])
def test_a_refused_runtime_is_not_reported_as_missing(run: Ran, mode: str, name: str) -> None:
    """Nor is the runtime of that name in the catalogue taken instead."""
    wrong = runtime()
    wrong["metadata"]["name"] = name
    wrong["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": {"mpiImplementation": "MPICH"}}
    files = run.file(wrong, name="runtime.yaml"), run.file(train_job(runtimeRef={"name": name}), name="job.yaml")
    for order in (files, files[::-1]):
        assert run("validate", "--mode", mode, *order) == 1
        assert f"ClusterTrainingRuntime {name} is refused by the schema" in run.out
        supported = 'supported values: "OpenMPI", ""'
        assert f"spec.mlPolicy.mpi.mpiImplementation (line 8): {supported}" in run.out, run.out
        why = f"ClusterTrainingRuntime {name} was refused, so the TrainJob cannot be checked further"
        assert f"spec.runtimeRef (line 7): {why}. Hint: correct the ClusterTrainingRuntime first" in run.out, run.out
        assert "not found" not in run.out and "catalogue" not in run.out
        assert run("validate", "--mode", mode, "-o", "json", *order) == 1
        (error,) = json.loads(run.out)["errors"]
        assert error["detail"] == why


@pytest.mark.parametrize(
    ("written", "quoted"), [("0x10", '"0x10"'), ("yes", '"yes"'), ("1e9", '"1e9"'), ("010", '"010"')]
)
def test_what_should_have_been_quoted(written: str, quoted: str, run: Ran) -> None:
    text = (
        yaml.safe_dump_all([runtime(), train_job()]) + f"  trainer:\n    env:\n    - name: A\n      value: {written}\n"
    )
    assert run("validate", run.file(text)) == 1
    assert (
        "spec.trainer.env[0].value (line 35): must be a string, not" in run.out
        and f"write it in quotes: {quoted}" in run.out
    )


def test_several_files_are_one_cluster(run: Ran) -> None:
    files = [run.file(runtime(), name="a.yaml"), run.file(json.dumps(train_job()), name="b.json")]
    assert run("validate", "--mode", "trainer", *files) == 0
    assert run("validate", "--mode", "trainer", *reversed(files)) == 0
    assert run("validate", "--mode", "trainer", files[1]) == 1
    assert "among the documents" in run.out


def test_the_catalogue_in_mode_jobset_only(run: Ran) -> None:
    file = run.file(train_job(runtimeRef={"name": "torch-distributed"}))
    assert run("validate", file) == 0
    assert (
        "note: spec.runtimeRef: torch-distributed is not among the documents, and was taken from the catalogue"
        in run.out
    )
    assert run("validate", "--mode", "trainer", file) == 1
    assert (
        "Hint: give the file of the runtime too: the runtimes of the catalogue are used in mode jobset only" in run.out
    )
    assert run("validate", run.file(train_job(runtimeRef={"name": "none"}))) == 1


def test_what_is_printed_has_no_anchors(run: Ran) -> None:
    """Several containers of this job share the variables that the plugin adds."""
    job = str(CASES / "b-torch-envinjection" / "input.yaml")
    for command in (["render"], ["render", "--mode", "trainer"], ["validate", "-o", "yaml"]):
        assert run(*command, job) == 0
        assert not [event for event in yaml.parse(run.out) if getattr(event, "anchor", None)], run.out


def test_json_and_yaml(run: Ran) -> None:
    file = run.file(runtime(), train_job())
    assert run("validate", "--output", "json", file) == 0
    found = json.loads(run.out)
    assert list(found) == KEYS and found["admitted"] is True and found["stage"] is None
    assert [o["kind"] for o in found["objects"]] == ["JobSet"]
    assert run("validate", "--output", "yaml", file) == 0
    assert yaml.safe_load(run.out) == found
    assert run("render", "--output", "json", file) == 0
    assert json.loads(run.out) == found
    assert run("validate", "--output", "json", run.file(runtime(), train_job(activeDeadlineSeconds=0))) == 1
    assert set(json.loads(run.out)["errors"][0]) == {"field", "type", "detail"}


def test_a_summary_has_jobs_of_one_name_in_several_namespaces(run: Ran) -> None:
    others = [train_job() for _ in range(2)]
    others[1]["metadata"]["namespace"] = "other"
    file = run.file(runtime(), *others)
    assert run("render", "--summary", file) == 0
    assert [line for line in run.out.splitlines() if line.startswith("JobSet")] == [
        "JobSet team/job",
        "JobSet other/job",
    ]
    assert run("render", "--summary", "-o", "json", file) == 0
    assert list(json.loads(run.out)) == ["team/job", "other/job"]


def test_a_summary_shows_what_each_container_gets(run: Ran) -> None:
    document = runtime()
    steps = document["spec"]["template"]["spec"]["replicatedJobs"]
    pod = steps[0]["template"]["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "wait", "image": "wait:1", "command": ["sh", "-c", "sleep 1"]}]
    limits = {"nvidia.com/gpu": 8, "memory": "64Gi"}
    trainer = {
        "numNodes": 2, "image": "own:1", "command": ["torchrun", "a b.py"], "args": ["\x1b[2J", "x" * 300],
        "resourcesPerNode": {"limits": limits, "requests": {"memory": "32Gi"}},
    }  # fmt: skip
    file = run.file(document, train_job(trainer=trainer))
    for mode in ("jobset", "trainer"):
        assert run("render", "--summary", "--mode", mode, file) == 0
        title, head, wait, node = run.out.splitlines()
        assert title == "JobSet job" and head.split() == ["STEP", "CONTAINER", "PODS", "IMAGE", "COMMAND", "RESOURCES"]
        assert wait.split("  ")[0] == "node" and "wait:1  sh -c 'sleep 1'" in wait
        assert "own:1   torchrun 'a b.py'" in node and node.endswith("...  memory=32Gi..64Gi, nvidia.com/gpu=8")
        assert "\x1b" not in run.out and "x" * 200 not in run.out
    assert run("render", "--summary", "-o", "json", file) == 0
    first, second = json.loads(run.out)["job"]
    assert first == {
        "step": "node", "container": "wait", "pods": 2, "image": "wait:1", "command": "sh -c 'sleep 1'", "resources": "",
    }  # fmt: skip
    assert (second["pods"], second["image"], second["resources"]) == (2, "own:1", "memory=32Gi..64Gi, nvidia.com/gpu=8")
    assert run("render", "--summary", run.file(document, train_job(trainer={"numNodes": -1}))) == 1 and run.out == ""


POD = {
    "volumes": [{"name": "../../victim", "emptyDir": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "../x"}}],
    "containers": [
        {"name": "../log", "image": "a", "env": [{"name": "A=B", "value": "1"}],
         "volumeMounts": [{"name": "c", "mountPath": "/c", "subPath": "../up"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_names_that_no_pod_can_have(mode: str, run: Ran) -> None:
    document = runtime()
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    node = pod["containers"]
    pod.update({**POD, "containers": [*node, *POD["containers"]]})
    file = run.file(document, train_job())
    assert run("validate", "--mode", mode, file) == 1
    assert "TrainJob team/job is refused by the API server when its Jobs and Pods are created\n" in run.out
    at = "  error: JobSet/job.spec.replicatedJobs[0].template.spec.template.spec"
    for place, words in (
        ("volumes[0].name", 'Invalid value: "../../victim": a lowercase RFC 1123 label must consist of'),
        ("volumes[1].persistentVolumeClaim.claimName", 'Invalid value: "../x": a lowercase RFC 1123 subdomain must'),
        ("containers[1].name", 'Invalid value: "../log": a lowercase RFC 1123 label must consist of'),
        ("containers[1].env[0].name", 'Invalid value: "A=B": a valid environment variable name must consist only'),
        ("containers[1].volumeMounts[0].subPath", "Invalid value: \"../up\": must not contain '..'"),
    ):
        assert f"{at}.{place}: {words}" in run.out, f"{place}\n{run.out}"
    assert run("validate", "--mode", mode, "-o", "json", file) == 1
    found = json.loads(run.out)
    assert (found["admitted"], found["stage"], found["objects"]) == (False, "pods", []) and len(found["errors"]) == 5
    assert (
        run("render", "--mode", mode, file) == 1 and run.out == "" and "when its Jobs and Pods are created" in run.err
    )
    (run.folder / "case").mkdir()
    run.file(document, train_job(), name="case/input.yaml")
    assert run("validate", "--batch", ".", "--mode", mode) == 0, "no server refuses the TrainJob"


def test_render(run: Ran) -> None:
    assert run("render", run.file(runtime(), train_job(), train_job({"name": "other"}, suspend=True))) == 0
    first, second = yaml.safe_load_all(run.out)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("job", "other") and not run.err
    assert "ownerReferences" not in first["metadata"]
    assert run("render", "--mode", "trainer", "jobs.yaml") == 0
    assert "ownerReferences" in next(yaml.safe_load_all(run.out))["metadata"]


def test_render_prints_nothing_unless_everything_is_admitted(run: Ran) -> None:
    assert run("render", run.file(runtime(), train_job(), train_job({"name": "Other"}))) == 1
    assert run.out == "" and "TrainJob team/Other is refused by the schema" in run.err and "team/job" not in run.err
    assert run("render", run.file(yaml.safe_dump_all([runtime(), train_job()]) + "---\n- 1\n")) == 2
    assert run.out == "" and run.err.startswith("error: jobs.yaml, document 3")


def test_render_tells_notes_on_stderr(run: Ran) -> None:
    assert run("render", run.file(train_job(runtimeRef={"name": "torch-distributed"}))) == 0
    assert "catalogue" in run.err and yaml.safe_load(run.out)["kind"] == "JobSet"


def test_stdin(run: Ran) -> None:
    text = yaml.safe_dump_all([runtime(), train_job()]).encode()
    assert run("validate", "-", stdin=text) == 0
    assert run.out.startswith("stdin, document 1, line 1: ")
    assert run("render", "-", stdin=text) == 0 and "kind: JobSet" in run.out
    assert run("validate", "-", stdin=b"") == 2 and "stdin: contains no document" in run.err


@pytest.mark.parametrize("command", ["validate", "render"])
@pytest.mark.parametrize("name", [n for n in WRONG if not n.startswith("JSON")])
def test_input_that_cannot_be_used(command: str, name: str, run: Ran) -> None:
    text, why = WRONG[name]
    file = run.file(text)
    assert run(command, file) == 2
    assert run.out == "" and run.err.startswith("error: jobs.yaml, ") and why in run.err
    assert run(command, "--output", "json", file) == 2
    found = json.loads(run.out)
    assert list(found) == KEYS and (found["admitted"], found["stage"]) == (False, "decode")
    assert why in found["errors"][0]["field"] + ": " + found["errors"][0]["detail"]


def test_wrong_arguments(run: Ran) -> None:
    for args in (
        ["validate"],
        ["validate", "--mode", "x", "-"],
        ["validate", "--output", "x", "-"],
        ["render", "a", "b"],
        ["validate", "--batch", ".", "a.yaml"],
        ["validate", "--batch", ".", "--context", "prod"],
        ["validate", "--batch", ".", "--kubeconfig", "config"],
    ):
        assert run(*args) == 2 and f"Hint: `pulumi-trainer {args[0]} -h`" in run.err
    assert run("validate", "none.yaml") == 2 and "none.yaml: cannot be read: No such file" in run.err
    assert run("render", "none.json") == 2 and "none.json: cannot be read" in run.err
    assert run("render", "./none") == 2 and "./none: cannot be read" in run.err, "no job has a name with a slash"
    assert run("validate", "--batch", "none") == 2 and "--batch none: is not a folder" in run.err
    assert run() == 2 and "usage" in run.out
    assert run("none") == 2 and "no such command" in run.err
    assert run("validate", "--help") == 0 and "Exit code for documents" in run.out


def test_options_may_stand_between_files(run: Ran) -> None:
    run.file(runtime(), name="a.yaml")
    assert run("validate", "a.yaml", "--mode", "trainer", run.file(train_job())) == 0


def test_errors_of_other_commands_are_one_line(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert run("status", "--stack", "s") == 1
    assert run.err.startswith(
        "error: pulumi: the Pulumi CLI is not on PATH. Hint: install it from https://www.pulumi.com/docs/iac/download-install/"
    )
    assert run("render", "digits") == 1 and run.err.startswith("error: pulumi: ")


def test_a_file_without_a_suffix_is_a_file(run: Ran) -> None:
    assert run("render", run.file(runtime(), train_job(), name="jobs")) == 0


def test_jobs_of_the_stack(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def resources(stack: str | None, wanted: str | None) -> list[stacks.StackJob]:
        asked.append((stack, wanted))
        objects = {"ConfigMap/a": thing("ConfigMap", "a")}
        inputs = JobInputs(namespace="team", name="digits", digest="d", run="1", target={}, objects=objects)
        return [stacks.StackJob("digits", "", inputs)]

    monkeypatch.setattr(stacks, "resources", resources)
    assert run("render", "digits", "--stack", "s") == 0
    assert yaml.safe_load(run.out) == thing("ConfigMap", "a")
    assert run("render", "--output", "json") == 0
    assert json.loads(run.out) == [thing("ConfigMap", "a")]
    assert asked == [("s", "digits"), (None, None)]


def test_batch(run: Ran) -> None:
    good = yaml.safe_dump_all([runtime(), train_job()])
    inputs = {
        "a-bad": "a: [\n", "b-good": good, "c-refused": good + "  activeDeadlineSeconds: 0\n", "d-bytes": b"\xff",
        "e-bomb": WRONG["bomb"][0], "f-empty": "", "g-good": good,
    }  # fmt: skip
    for name, content in inputs.items():
        (run.folder / name).mkdir()
        run.file(content, name=f"{name}/input.yaml")
    (run.folder / "h-none").mkdir()
    (run.folder / "i-folder" / "input.yaml").mkdir(parents=True)
    assert run("validate", "--batch", ".", "--mode", "trainer") == 2
    assert run.out == "2 admitted, 1 refused, 5 could not be used\n"
    assert len(run.err.splitlines()) == 5 and "a-bad/input.yaml, document 1, line 2: not valid YAML" in run.err
    found = {name: json.loads((run.folder / name / "actual.json").read_text()) for name in inputs}
    assert all(list(one) == KEYS for one in found.values())
    assert [one["stage"] for one in found.values()] == ["decode", None, "schema", "decode", "decode", "decode", None]
    assert [one["admitted"] for one in found.values()] == [False, True, False, False, False, False, True]
    assert not (run.folder / "h-none" / "actual.json").exists()
    assert run("render", "--batch", ".") == 2


def test_batch_exit_codes(run: Ran) -> None:
    assert run("validate", "--batch", ".") == 2 and "contains no */input.yaml" in run.err
    (run.folder / "a").mkdir()
    run.file(runtime(), train_job(), name="a/input.yaml")
    assert run("validate", "--batch", ".") == 0
    run.file(runtime(), train_job(activeDeadlineSeconds=0), name="a/input.yaml")
    assert run("validate", "--batch", ".") == 1


def test_batch_goes_on_after_a_fault_of_ours(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.folder / "a").mkdir()
    (run.folder / "b").mkdir()
    for name in ("a", "b"):
        run.file(runtime(), train_job(), name=f"{name}/input.yaml")
    judge = commands.judge

    def faulty(documents: Any, cluster: Any, verdicts: Any) -> Any:
        for document, result in judge(documents, cluster, verdicts):
            if "a/input.yaml" in document.file:
                raise KeyError("oops")
            yield document, result

    monkeypatch.setattr(commands, "judge", faulty)
    (run.folder / "b" / "actual.json").mkdir()
    assert run("validate", "--batch", ".") == 2
    assert "this is a fault of pulumi-trainer: KeyError: 'oops'. Hint: report it" in run.err
    assert "b/actual.json: cannot be written" in run.err
    assert json.loads((run.folder / "a" / "actual.json").read_text())["stage"] == "decode"


FRESH = """
import sys
sys.argv = ["pulumi-trainer", "{command}", *{args!r}]
from pulumi_trainer.provider.cli.main import main
try:
    main()
finally:
    slow = ("pulumi", "pulumi_kubernetes", "kubernetes", "pydantic", "rich", "typer", "boto3", "huggingface_hub", "cryptography")
    print([name for name in sys.modules if name.split(".")[0] in slow], file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["validate", "render"])
def test_nothing_slow_is_loaded(command: str) -> None:
    """Pulumi and clients because these commands promise it, the rest because they have to answer at once."""
    files = [str(CASES / "b-torch-nodes3-cmd" / "input.yaml")]
    code = FRESH.format(command=command, args=files)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_the_catalogue_itself_is_admitted(run: Ran) -> None:
    for name in runtimes.names():
        assert run("validate", run.file(runtimes.load(name))) == 0, run.out


@pytest.mark.parametrize(
    ("shell", "code", "says"),
    [
        ("validate jobs.yaml >/dev/full", 2, "error: cannot write: No space left on device"),
        ("validate - <&-", 2, "error: "),
        ("validate jobs.yaml >&-", 0, ""),
        ("version >&-", 0, ""),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_streams_that_do_not_work(tmp_path: Path, unbuffered: str, shell: str, code: int, says: str) -> None:
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all([runtime(), train_job()]))
    program = f"{sys.executable} -m pulumi_trainer.provider.cli {shell}"
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["sh", "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code and done.stderr.startswith(says) and "Traceback" not in done.stderr


def test_a_terminal_without_unicode_gets_escapes(tmp_path: Path) -> None:
    (tmp_path / "jäb.yaml").write_text(yaml.safe_dump_all([runtime(), train_job()]))
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "validate", "jäb.yaml", "none-ä.yaml"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "none-\\xe4.yaml" in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_the_catalogue_has_runtimes_of_the_cluster_only(run: Ran) -> None:
    job = train_job(runtimeRef={"name": "torch-distributed", "kind": "TrainingRuntime"})
    assert (
        run("validate", run.file(job)) == 1 and "a ClusterTrainingRuntime torch-distributed: leave out kind" in run.out
    )


# --- queues and limits among the documents -----------------------------------------------------------------------------------

QUEUE = "kueue.x-k8s.io/queue-name"


def kueue(kind: str, name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


def team_queue(**spec: Any) -> dict[str, Any]:
    quota = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 64}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    return kueue("ClusterQueue", "q", namespaceSelector={}, resourceGroups=groups, **spec)


def in_queue(name: str) -> dict[str, Any]:
    job = train_job()
    job["metadata"]["labels"] = {QUEUE: name}
    return job


CHECK = {"admissionChecks": [{"name": "budget"}]}


@pytest.mark.parametrize(
    ("queue", "local", "name", "words"),
    [
        ({}, {}, "team", ""),
        ({"stopPolicy": "Hold"}, {}, "team", "PT213: ClusterQueue q: spec.stopPolicy"),
        ({"stopPolicy": "HoldAndDrain"}, {}, "team", "and suspends those that it has admitted"),
        ({}, {"stopPolicy": "Hold"}, "team", "PT213: LocalQueue team: spec.stopPolicy"),
        (
            {},
            {"stopPolicy": "hold"},
            "team",
            "PT213: LocalQueue team: spec.stopPolicy: is 'hold', so the API server rejects",
        ),
        ({"admissionChecksStrategy": CHECK}, {}, "team", "PT210: ClusterQueue q: spec.admissionChecksStrategy"),
        (
            {},
            {},
            "tean",
            "LocalQueue tean does not exist in namespace team: Kueue never admits the job. Hint: did you mean team?",
        ),
    ],
)
def test_stopped_and_missing_queues(run: Ran, queue: Any, local: Any, name: str, words: str) -> None:
    documents = (
        team_queue(**queue),
        kueue("ResourceFlavor", "f"),
        kueue("LocalQueue", "team", "team", clusterQueue="q", **local),
    )
    assert run("validate", run.file(*documents, runtime(), in_queue(name))) == 0
    assert words in run.out and ("PT2" in run.out) is bool(words)


def test_a_job_in_a_queue_that_the_documents_do_not_hold(run: Ran) -> None:
    assert run("validate", run.file(runtime(), in_queue("team"))) == 0
    assert "PT2" not in run.out


def test_what_the_namespace_refuses(run: Ran) -> None:
    def limits(kind: str, namespace: str, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "limits", "namespace": namespace}, "spec": spec}

    job = train_job()
    job["spec"]["trainer"] = {
        **job["spec"].get("trainer", {}),
        "numNodes": 3,
        "resourcesPerNode": {"limits": {"cpu": 2}},
    }
    rules = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    assert run("validate", run.file(limits("LimitRange", "team", **rules), runtime(), job)) == 1
    assert "maximum cpu usage per Container is 1, but limit is 2" in run.out
    assert run("validate", run.file(limits("LimitRange", "other", **rules), runtime(), job)) == 0
    assert run("validate", run.file(limits("ResourceQuota", "team", hard={"limits.cpu": 4}), runtime(), job)) == 0
    assert "PT301: metadata.namespace: its Pods request 6 of limits.cpu in total" in run.out


MISTAKES = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: Job, namespace: team}
spec:
  runtimeRef: {name: torch-distributd}
  trainer:
    numNodes: two
    imag: a
    numProcPerNode: 0
    resourcesPerNode: {limits: {cpu: lots}}
    env:
    - {name: A, value: 3}
    - {name: A, value: x}
"""


def test_mistakes_that_different_steps_reject_are_reported_at_once(run: Ran) -> None:
    assert run("validate", "--trainer-version", NEWEST.version, run.file(MISTAKES)) == 1
    reported = [line.partition(" (line")[0] for line in run.out.splitlines() if line.startswith("  error")]
    assert reported == [
        "  error: spec.trainer.env[0].value",
        "  error: spec.trainer.numNodes",
        "  error: spec.trainer.resourcesPerNode.limits.cpu",
        "  error, by the API server: spec.trainer.imag",
        "  error, by the schema: metadata.name",
        "  error, by the schema: spec.trainer.env[1]",
        "  error, by the schema: spec.trainer.numProcPerNode",
        "  error, by Trainer's webhook: spec.runtimeRef.name",
    ]
    assert "did you mean torch-distributed?" in run.out
    assert run("validate", run.file(MISTAKES), "-o", "json") == 1
    only = [error["field"] for error in json.loads(run.out)["errors"]]  # as a server answers
    assert only == ["spec.trainer.env[0].value", "spec.trainer.numNodes", "spec.trainer.resourcesPerNode.limits.cpu"]


def test_a_correction_of_one_mistake_makes_no_other(run: Ran) -> None:
    """What refers to a rejected field is not rejected because the field is left out for the later steps."""
    document = runtime()
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": 7, "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "7", "mountPath": "/data"}]
    job = train_job()
    job["spec"]["trainer"] = {"numNodes": "2"}
    assert run("validate", run.file(document, job)) == 1
    fields = "volumes[0].name", "numNodes", "correct the ClusterTrainingRuntime"
    lines = [line for line in run.out.splitlines() if line.startswith("  error")]
    assert len(lines) == 3 and all(any(field in line for line in lines) for field in fields)
    assert "correct the ClusterTrainingRuntime first" in run.out
    assert run("validate", run.file(runtime(), job)) == 1
    assert run.out.count("error") == 1


def test_a_mistake_is_reported_once_and_in_its_place(run: Ran) -> None:
    """Neither is a field missing because it was left out, nor has an item another index because one before it was left out."""
    document = runtime()
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0] |= {"name": [], "args": [{} if at in (2, 10) else "a" for at in range(11)]}
    assert run("validate", run.file(document)) == 1
    found = re.findall(r"^  error.*?: spec\S*containers\[0\]\.(\S+?):? ", run.out, re.M)
    assert found == ["args[10]", "args[2]", "name"], run.out


def test_what_later_steps_are_asked_changes_nothing_that_is_stored(run: Ran) -> None:
    wrong = train_job()
    wrong["spec"]["trainer"] = {"numNodes": "2"}
    assert run("validate", run.file(runtime(), wrong, train_job())) == 1
    assert run.out.endswith("TrainJob team/job is admitted\n")
    bad = runtime()
    bad["spec"]["mlPolicy"] = {"numNodes": "2"}
    assert run("validate", run.file(bad, train_job())) == 1
    assert "ClusterTrainingRuntime rt was refused, so the TrainJob cannot be checked further" in run.out


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_the_cost_is_said_if_a_price_is_among_the_documents(run: Ran, mode: str) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/max-exec-time-seconds": "5400"}
    asked = train_job({"name": "llama", "namespace": "nlp", "labels": labels})
    asked["spec"]["trainer"] = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    priced = {**FLAVOR, "metadata": {"name": "h100", "annotations": {PRICE: "3.20 USD"}}}
    queues = [runtime(), *team("nlp", 32)]
    assert run("validate", "--mode", mode, run.file(*queues, priced, asked)) == 0
    assert "note: at most 24 GPU-hours, 77 USD (h100 3.20 USD an hour; its time limit is 1h30m)" in run.out
    assert run("validate", "--mode", mode, run.file(*queues, FLAVOR, asked)) == 0 and "GPU-hours" not in run.out


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_what_kueue_would_do_is_said_if_workloads_are_among_the_documents(run: Ran, mode: str) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    asked = train_job({"name": "llama", "namespace": "nlp", "labels": labels})
    asked["spec"]["trainer"] = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    running = workload("nlp", "mix", 24, "2026-11-01T10:00:00Z")
    queues = [runtime(), FLAVOR, *team("nlp", 32)]
    assert run("validate", "--mode", mode, run.file(*queues, running, asked)) == 0
    assert "note: waits behind nlp/mix (24 h100): 8 h100 more must become free; when it starts is open" in run.out
    assert run("validate", "--mode", mode, run.file(*queues, asked)) == 0
    assert "starts now" not in run.out and "waits behind" not in run.out, "without Workloads nothing is known"


def of_nlp(name: str) -> dict[str, Any]:
    """A TrainJob of team nlp that takes a node of 8 GPUs."""
    asked = train_job({"name": name, "namespace": "nlp", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}})
    asked["spec"]["trainer"] = {"numNodes": 1, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    return asked


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_with_a_context_the_queues_of_the_cluster_decide(run: Ran, mode: str) -> None:
    run.monkeypatch.setattr(jobs, "open_cluster", lambda where: (Visibility(), where.context))
    assert run("validate", "--context", "prod", "--mode", mode, run.file(runtime(), of_nlp("new"))) == 0
    behind = "waits behind nlp/old (8 h100)"
    assert f"note: {behind}, and nlp/llama in its queue: 8 h100 more must become free; when it starts is" in run.out
    assert run("validate", "--context", "prod", "--mode", mode, run.file(runtime(), of_nlp("llama"))) == 0
    assert f"note: {behind}: 8 h100 more" in run.out, "its own Workload is no other job"
    larger = run.file(runtime(), *team("nlp", 64), of_nlp("new"))
    assert run("validate", "--context", "prod", "--mode", mode, larger) == 0
    assert "note: starts now: 8 h100 of gpus-nlp" in run.out, "a document takes the place of the cluster's object"


def test_what_of_a_cluster_cannot_be_read_is_not_known(run: Ran) -> None:
    file, unknown = run.file(runtime(), of_nlp("new")), "note: what Kueue would do with the jobs is not known: "
    run.monkeypatch.setattr(jobs, "open_cluster", lambda _: (Visibility("Workload"), ""))
    assert run("validate", "--context", "prod", file) == 0 and "waits" not in run.out
    assert f"{unknown}Workloads of all namespaces cannot be listed in https://server. Hint: " in run.out
    monkeypatch, away = run.monkeypatch, Visibility()
    monkeypatch.setattr(away, "read", raises(TargetFault(Problem("https://server", "does not answer"))))
    monkeypatch.setattr(jobs, "open_cluster", lambda _: (away, ""))
    assert run("validate", "--context", "prod", file) == 0
    assert f"{unknown}https://server: does not answer" in run.out
    monkeypatch.undo()
    (run.folder / "kubeconfig").write_text("{apiVersion: v1, kind: Config}")
    assert run("validate", "--context", "prod", "--kubeconfig", "kubeconfig", file) == 1
    assert run.err.startswith("error: ") and "prod" in run.err


def raises(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_configuration_of_kueue(wrapped: bool, run: Ran) -> None:
    document: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job"]},
    }  # fmt: skip
    if wrapped:
        data = {"controller_manager_config.yaml": json.dumps(document)}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"}, "data": data}
    job = train_job()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert run("validate", "--mode", "trainer", run.file(runtime(), job, document)) == 0
    assert "PT226" in run.out, run.out
    if wrapped:
        document["data"] = {"controller_manager_config.yaml": "a: [1"}
        assert run("validate", run.file(runtime(), job, document)) == 2
        assert "ConfigMap kueue-manager-config: data[controller_manager_config.yaml]" in run.err
