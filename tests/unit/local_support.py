"""Small JobSets for the tests of the Local target, and a target that leaves no process behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.target import LocalTarget

NAMESPACE = "default"
QUICK = Tuning(backoff=0.05, settle=0.3)


def python(code: str, *args: str) -> list[str]:
    """argv of a container that runs a few lines of Python."""
    return ["python3", "-S", "-c", code, *args]


OVERWRITTEN = """
import ctypes
def overwrite():  # as setproctitle does
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    ctypes.memset(int(fields[47]), 0, int(fields[48]) - int(fields[47]))
"""
"""A function that overwrites the variables of its process, which other processes see in /proc."""


def container(command: list[str], name: str = "node", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/train:1", "command": command, **fields}


def step(
    name: str = "node",
    command: list[str] | None = None,
    *,
    pods: int = 1,
    replicas: int = 1,
    container_fields: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A replicated job. container_fields, pod, job: more of the container, the pod's spec, the Job's spec."""
    own = [container(command or python("pass"), **(container_fields or {}))]
    template = {
        "spec": {"containers": own, "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, **(pod or {})}
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **(job or {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def jobset(*steps: dict[str, Any], name: str = "job", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicatedJobs": list(steps), **spec},
    }


def config(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def submission(document: dict[str, Any], *others: dict[str, Any], **fields: Any) -> Submission:
    name = document["metadata"]["name"]
    objects = {f"{o['kind']}/{o['metadata']['name']}": o for o in (document, *others)}
    known = {"owner": "owner-1", "digest": "digest-1", "sweep": "stack-1"}
    return Submission(NAMESPACE, name, objects=objects, **{**known, **fields})


def wait(
    target: LocalTarget,
    name: str = "job",
    until: Callable[[JobStatus], bool] = lambda s: s.terminal,
    seconds: float = 60,
) -> JobStatus:
    """The first status that `until` accepts."""
    deadline = time.monotonic() + seconds
    while True:
        status = target.jobs.status(NAMESPACE, name)
        if status is not None and until(status):
            return status
        assert time.monotonic() < deadline, f"still {status}"
        time.sleep(0.02)


def eventually(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
    return found


def run(target: LocalTarget, document: dict[str, Any], *others: dict[str, Any], **fields: Any) -> JobStatus:
    """Runs a job to its end."""
    target.jobs.create(submission(document, *others, **fields))
    return wait(target, document["metadata"]["name"])


def log(target: LocalTarget, pod: str = "job-node-0-0", job: str = "job") -> str:
    files = target.logs.files(NAMESPACE, job)
    return "".join(path.read_text(errors="replace") for name, _, path in files if name == pod)


def supervisor_of(target: LocalTarget, job: str = "job") -> psutil.Process:
    """The job's supervisor, as soon as it has said who it is."""
    file = target.root / "jobs" / NAMESPACE / job / "supervisor.json"
    import json

    return psutil.Process(json.loads(eventually(lambda: file.exists() and file.read_text()))["pid"])


def kill_supervisor(target: LocalTarget, job: str = "job") -> psutil.Process:
    """Kill the job's supervisor, and return it when it is gone: for a moment, a dying process is not to be told apart."""
    supervisor = supervisor_of(target, job)
    supervisor.kill()
    supervisor.wait()
    return supervisor


def living(home: Path) -> list[psutil.Process]:
    """Processes that a target with this home has started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own: leases and caches are in it, and its processes are known by it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    yield folder
    _, left = psutil.wait_procs(living(folder), timeout=5)  # on a busy machine a supervisor needs a moment to end
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    assert not left, f"processes survived the test: {left}"


@pytest.fixture
def local(home: Path, tmp_path: Path) -> Iterator[LocalTarget]:
    target = LocalTarget(tmp_path / "root", python=sys.executable)
    target.jobs.tuning = QUICK
    yield target
    for file in (target.root / "jobs").glob("*/*/record.json"):
        target.jobs.delete(file.parent.parent.name, file.parent.name, grace=0)


FULL_DISK = """
import errno, functools, os, sys

here = os.path.dirname(__file__)

def refuse(real, makes, path, *given, **named):
    if os.path.exists(here + "/full") and makes(path, *given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return real(path, *given, **named)

def new(path, flags=0, *_):
    return bool(flags & os.O_CREAT) and not os.path.exists(path) and str(path).startswith(os.path.dirname(here))

if "supervisor" in " ".join(sys.orig_argv):
    # Objects, not functions: pathlib of Python 3.10 keeps them as attributes of a class, where a function becomes a method.
    os.open = functools.partial(refuse, os.open, new)
    os.mkdir = functools.partial(refuse, os.mkdir, lambda path, *_: str(path).startswith(os.path.dirname(here)))
"""
"""A `sitecustomize.py` for the supervisor: while a file `full` lies beside it, nothing new can be made on the disk."""
