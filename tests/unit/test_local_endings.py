"""Jobs that cannot go on end, and say why: failures that repeat themselves, Pods that cannot be started, full disks; and what
a job does before user code runs.
"""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_support import FULL_DISK, NAMESPACE, config, eventually, jobset, log, python, run, step, submission, wait
from pulumi_trainer.code import user_code
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local import LocalTarget, local_limits
from pulumi_trainer.provider.targets.local.failure import QUICK, Failure, Repeats
from pulumi_trainer.provider.targets.local.plan import launch_file, packages

MISSING = python("import sys; sys.exit('no module of that name')")
DIFFERENT = python(
    "import os, sys; f = '../../n'; n = os.path.getsize(f) if os.path.exists(f) else 0; open(f, 'a').write('x');"
    "sys.exit('attempt ' + str(n))"
)
"""Says something else each time: how often it has been started."""


REFUSED = """\
error: Request failed after 1 retry in 1.9s
  cause: Failed to fetch: http://index/simple/no-such-package/
  cause: client error (Connect)
  cause: Connection refused (os error 111)
"""
NOT_INSTALLED = REFUSED + "pulumi-trainer: the packages could not be installed (see above)\n"


def first_failure(local: LocalTarget, *documents: dict[str, Any]) -> JobStatus:
    """Return the status of a job between its first failure and the next attempt, and delete the job."""
    quickly, local.jobs.tuning = local.jobs.tuning, replace(local.jobs.tuning, backoff=600.0)
    local.jobs.create(submission(*documents))
    waits = wait(local, until=lambda s: s.reason == "BackOff" or s.terminal)
    local.jobs.delete(NAMESPACE, "job")
    local.jobs.tuning = quickly
    return waits


class TestTheSameFailureTwice:
    def test_a_pod_that_is_replaced(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=MISSING, job={"backoffLimit": 6})))
        assert (status.phase, status.reason, status.steps[0].failed) == ("Failed", "SameFailureTwice", 2)
        assert "no module of that name" in status.message
        assert (
            "job-node-0-0 has failed twice in the same way within seconds, so it is not tried again" in status.message
        )

    def test_a_container_that_is_restarted_in_place(self, local: LocalTarget) -> None:
        pod = {"restartPolicy": "OnFailure"}
        status = run(local, jobset(step(command=MISSING, pod=pod, job={"backoffLimit": 6})))
        assert (status.phase, status.reason, status.steps[0].restarts) == ("Failed", "SameFailureTwice", 1)

    def test_a_program_that_is_not_there(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=["no-such-program"], job={"backoffLimit": 6})))
        assert status.reason == "SameFailureTwice"
        assert "cannot start no-such-program: not found on PATH" in status.message

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            (python("import sys; sys.exit(1)"), "exit code 1"),
            (python("raise SystemExit(152)"), "exit code 152"),
            (python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), "signal 11 (SIGSEGV), exit code 139"),
            (["bash", "-c", "exit 7"], "exit code 7"),
        ],
    )
    @pytest.mark.parametrize("policy", ["Never", "OnFailure"])
    def test_a_program_that_fails_in_silence(
        self, local: LocalTarget, policy: str, command: list[str], told: str
    ) -> None:
        document = jobset(step(command=command, pod={"restartPolicy": policy}, job={"backoffLimit": 6}))
        waits = first_failure(local, document)
        assert waits.message.endswith(f"failed and will be started again: {told}: it printed nothing")
        status = run(local, document)
        assert (status.phase, status.reason) == ("Failed", "SameFailureTwice")
        assert f"{told} (container node)\nit printed nothing\nlog: " in status.message

    def test_restarts_of_the_whole_job(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=MISSING), failurePolicy={"maxRestarts": 5}))
        assert (status.phase, status.reason, status.restarts) == ("Failed", "SameFailureTwice", 1)

    @pytest.mark.parametrize("policy", ["Never", "OnFailure"])
    def test_different_failures_follow_the_backoff_limit(self, local: LocalTarget, policy: str) -> None:
        status = run(local, jobset(step(command=DIFFERENT, pod={"restartPolicy": policy}, job={"backoffLimit": 3})))
        assert "BackoffLimitExceeded" in status.message
        assert log(local).count("attempt ") >= 3

    @pytest.mark.parametrize(("further", "failed"), [(True, 4), (False, 2)])
    def test_progress(self, local: LocalTarget, further: bool, failed: int) -> None:
        code = (
            "import json, os, sys; f = '../../n'; n = os.path.getsize(f) if os.path.exists(f) else 0; open(f, 'a').write('x');"
            f"print(json.dumps({{'trainerStatus': {{'progressPercentage': 10 + n * {int(further)}}}}}), flush=True);"
            "sys.exit('bad')"
        )
        status = run(local, jobset(step(command=python(code), job={"backoffLimit": 3})))
        assert (status.phase, status.reason == "SameFailureTwice") == ("Failed", not further)
        assert status.steps[0].failed == failed

    def test_a_killed_one_says_nothing_about_the_next(self, local: LocalTarget) -> None:
        command = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        status = run(local, jobset(step(command=command, job={"backoffLimit": 2})))
        assert ("BackoffLimitExceeded" in status.message, status.steps[0].failed) == (True, 3)

    @pytest.mark.parametrize(
        ("job", "fields"),
        [
            ({"backoffLimit": 9, "backoffLimitPerIndex": 2}, {}),
            (
                {
                    "backoffLimit": 2,
                    "podFailurePolicy": {
                        "rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]
                    },
                },
                {},
            ),
            (
                {"backoffLimit": 2},
                {
                    "failurePolicy": {
                        "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["x"]}]
                    }
                },
            ),
        ],
        ids=["per index", "ignored", "endless"],
    )
    def test_rules_of_the_job_that_ask_for_more(
        self, local: LocalTarget, job: dict[str, Any], fields: dict[str, Any]
    ) -> None:
        status = run(local, jobset(step(command=MISSING, job=job), **fields))
        assert (status.reason != "SameFailureTwice", status.steps[0].failed) == (True, 3)

    def test_a_success_in_between(self, local: LocalTarget) -> None:
        """Each of two indexes fails, one after the other, and differently each time."""
        status = run(local, jobset(step(command=DIFFERENT, pods=2, job={"parallelism": 1, "backoffLimit": 4})))
        assert "BackoffLimitExceeded" in status.message


def failed(tmp_path: Path, **fields: Any) -> Failure:
    known: dict[str, Any] = {"step": "node", "pod": "pod-0", "index": 0, "container": "node", "code": 1, "ran": 1.0}
    known |= {"at": 100.0, "tail": "same words\n", "log": tmp_path / "log"}
    return Failure(**{**known, **fields})


class TestRepeats:
    @pytest.mark.parametrize(
        ("fields", "again"),
        [
            ({}, True),
            ({"tail": "more before\nsame words\n\n"}, True),
            ({"tail": "other words\n"}, False),
            ({"code": 2}, False),
            ({"pod": "pod-1"}, False),
            ({"container": "other"}, False),
            ({"ran": QUICK}, False),
            ({"at": 100.0}, False),
            ({"code": 137}, False),
            ({"ran": QUICK, "tail": NOT_INSTALLED}, False),
        ],
    )
    def test_the_second_one(self, tmp_path: Path, fields: dict[str, Any], again: bool) -> None:
        repeats = Repeats()
        assert not repeats.is_repeated(failed(tmp_path), 0.0)
        assert repeats.is_repeated(failed(tmp_path, **{"at": 105.0, **fields}), 0.0) is again

    def test_packages_that_cannot_be_installed_however_long_that_takes(self, tmp_path: Path) -> None:
        repeats = Repeats()
        assert not repeats.is_repeated(failed(tmp_path, ran=100.0, tail=NOT_INSTALLED), 0.0)
        again = NOT_INSTALLED.replace("1.9s", "2.4s")
        assert repeats.is_repeated(failed(tmp_path, ran=100.0, tail=again, at=300.0), 0.0)
        other = NOT_INSTALLED.replace("no-such-package", "another")
        assert not repeats.is_repeated(failed(tmp_path, ran=100.0, tail=other, at=500.0), 0.0)

    def test_an_input_that_a_tool_refuses_however_long_its_imports_take(self, tmp_path: Path) -> None:
        repeats = Repeats()
        slow = {"ran": 100.0, "traceback": "pulumi-trainer: the dataset has no split 'x', but train. Hint: y"}
        assert not repeats.is_repeated(failed(tmp_path, **slow), 0.0)
        assert repeats.is_repeated(failed(tmp_path, **slow, at=300.0), 0.0)
        assert not repeats.is_repeated(failed(tmp_path, **{**slow, "traceback": "ValueError: x"}, at=500.0), 0.0)

    @pytest.mark.parametrize("place", ["main-{1}/main.py", "modules-{1}/pulumi_trainer/training.py"])
    def test_places_in_memory_and_temporary_folders_differ(self, tmp_path: Path, place: str) -> None:
        repeats = Repeats()
        words = "<object at 0x7f{0}> in /tmp/pulumi-trainer-0a1b2c3d-{1}/" + place
        assert not repeats.is_repeated(failed(tmp_path, tail=words.format("aa", "k3jd_9")), 0.0)
        assert repeats.is_repeated(failed(tmp_path, tail=words.format("bb", "7hdk2x"), at=105.0), 0.0)

    def test_progress_or_a_success_in_between(self, tmp_path: Path) -> None:
        repeats = Repeats()
        repeats.is_repeated(failed(tmp_path), 0.0)
        assert not repeats.is_repeated(failed(tmp_path, at=105.0), 104.5)
        repeats.is_repeated(failed(tmp_path, at=110.0), 0.0)
        repeats.clear()
        assert not repeats.is_repeated(failed(tmp_path, at=115.0), 0.0)

    def test_one_that_lost_its_peer(self, tmp_path: Path) -> None:
        repeats = Repeats()
        tail = "Traceback (most recent call last):\n  x\nRuntimeError: Connection closed by peer\n"
        repeats.is_repeated(failed(tmp_path, tail=tail), 0.0)
        assert not repeats.is_repeated(failed(tmp_path, tail=tail, at=105.0), 0.0)


class TestThatCannotStart:
    def test_a_pod_fails_the_job(self, local: LocalTarget) -> None:
        blocked = local.root / "volumes" / NAMESPACE
        blocked.parent.mkdir(parents=True)
        blocked.write_text("a file where a folder must be")
        pod = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
        status = run(local, jobset(step(pod=pod)))
        assert (status.phase, status.reason) == ("Failed", "CannotStartPod")
        assert f"job-node-0-0: {blocked}: is not a folder" in status.message
        assert [s.phase for s in status.steps] == ["Pending"]

    def test_the_other_pods_are_ended(self, local: LocalTarget) -> None:
        blocked = local.root / "volumes" / NAMESPACE
        blocked.parent.mkdir(parents=True)
        blocked.write_text("")
        pod = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
        status = run(local, jobset(step("good", python("import time; time.sleep(120)")), step("bad", pod=pod)))
        assert status.reason == "CannotStartPod"

    def test_leases_fail_it_too(self, local: LocalTarget, home: Path) -> None:
        blocked = home / ".cache/pulumi-trainer/leases"
        blocked.parent.mkdir(parents=True)
        blocked.write_text("a file where a folder must be")
        status = run(local, jobset(step()))
        assert (status.phase, status.reason, str(blocked) in status.message) == ("Failed", "WaitingForLeases", True)


class TestAFullDisk:
    @pytest.fixture
    def full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The disk is full as long as this file is there."""
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(FULL_DISK)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        return folder / "full"

    WORK = python(
        "import os, sys, time; print('up', flush=True)\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.02)\n"
        "sys.exit(int(sys.argv[1]))"
    )
    """Ends with its first argument as soon as its second, a file, is there."""

    @pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (1, "Failed")])
    def test_a_job_that_runs_ends_and_keeps_its_outcome(
        self, local: LocalTarget, full: Path, exit_code: int, phase: str
    ) -> None:
        go = full.with_name("go")
        local.jobs.create(submission(jobset(step(command=[*self.WORK, str(exit_code), str(go)]))))
        eventually(lambda: log(local))
        wait(local, until=lambda s: s.phase == "Running")
        full.touch()
        go.touch()
        assert wait(local).phase == phase
        eventually(lambda: not (local.root / "jobs/default/job/spare").exists())

    def test_output_that_is_lost_to_the_end_is_counted_in_the_message(self, local: LocalTarget, full: Path) -> None:
        code = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print('lost')"
        status = run(local, jobset(step(command=[*python(code), str(full)])))
        assert status.phase == "Succeeded"
        assert status.message.endswith("5 bytes of output are missing from its logs: no space on the disk")

    def test_a_pod_that_cannot_be_made(self, local: LocalTarget, full: Path) -> None:
        go = full.with_name("go")
        first = step("first", [*self.WORK, "0", str(go)])
        local.jobs.create(submission(jobset(first, step(dependsOn=[{"name": "first", "status": "Complete"}]))))
        wait(local, until=lambda s: s.phase == "Running")
        full.touch()
        go.touch()
        status = wait(local)
        assert (status.phase, status.reason) == ("Failed", "DiskFull")
        assert "No space left on device. Hint: free some space there" in status.message

    def test_from_the_beginning(self, local: LocalTarget, full: Path) -> None:
        full.touch()
        status = run(local, jobset(step()))
        assert (status.phase, status.reason) == ("Failed", "DiskFull")
        assert "No space left on device" in status.message

    def test_before_the_job_is_accepted(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        from pulumi_trainer.provider.targets.local import store

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(store.os, "fsync", fail)
        with pytest.raises(TargetFault, match=r"No space left on device. Hint: free some space"):
            local.jobs.create(submission(jobset(step())))

    def test_a_status_that_is_larger_than_its_room(self, local: LocalTarget) -> None:
        status = run(local, jobset(step()))
        folder = store_of(local)
        eventually(lambda: not folder.supervised())
        folder.reserve()
        status.message, status.progress = "m" * 100_000, {"metrics": ["x" * 100_000]}
        status.steps = status.steps * 1000
        folder.status.unlink()
        folder.status.mkdir()  # cannot be replaced by a file
        with pytest.raises(TargetFault):
            folder.write_last(status)
        assert len(folder.spare.read_bytes()) == 32 << 10
        assert json.loads(folder.spare.read_bytes())["status"]["message"] == "m" * 2048


def store_of(local: LocalTarget) -> Any:
    from pulumi_trainer.provider.targets.local.store import JobFolder

    return JobFolder.of(local.root, NAMESPACE, "job")


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def with_code(install: list[str], launcher: str = "python3", **container: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job that starts code as `components.shipping` ships it."""
    bootstrap, runner = (user_code._script_text(name) for name in (code.BOOTSTRAP_FILE, code.RUN_FILE))
    launch = json.dumps({"install": install, "launcher": [launcher]})
    data = {
        code.LAUNCH_FILE: launch,
        code.BOOTSTRAP_FILE: bootstrap,
        code.RUN_FILE: runner,
        code.MAIN_FILE: "print('user code')",
    }
    fields = {"volumeMounts": [{"name": "code", "mountPath": code.CODE_PATH}], **container}
    command = ["python3", f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"]
    pod = {"volumes": [{"name": "code", "configMap": {"name": "job-code"}}]}
    return jobset(step(command=command, container_fields=fields, pod=pod)), config("job-code", data)


class TestPackages:
    def test_the_reason_is_that_of_uv(self, local: LocalTarget, tmp_path: Path) -> None:
        layer = tmp_path / "layer.py"
        layer.write_text(f"import sys; sys.stderr.write({REFUSED!r}); sys.exit(1)")
        document, files = with_code(["no-such-package"], env=[{"name": code.LAYER_ENV, "value": str(layer)}])
        document["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 6
        waits = first_failure(local, document, files)
        why = "Failed to fetch: http://index/simple/no-such-package/; Connection refused (os error 111)"
        assert waits.message.endswith(f"exit code 1: {why}")
        status = run(local, document, files)
        assert (status.reason, status.steps[0].failed) == ("SameFailureTwice", 2)
        assert "has failed twice in the same way, so it is not tried again" in status.message
        assert "cause: Connection refused" in status.message

    LAYER = """
        import os, pathlib, sys, time
        while not os.path.exists(os.environ["GO_ON"]): time.sleep(0.01)
        pathlib.Path(os.environ["PULUMI_TRAINER_INSTALLED"]).touch()
        print("{}")
    """

    def test_a_job_that_installs_is_not_running(self, local: LocalTarget, tmp_path: Path) -> None:
        layer, go_on = tmp_path / "layer.py", tmp_path / "go-on"
        layer.write_text(textwrap.dedent(self.LAYER))
        env = [{"name": code.LAYER_ENV, "value": str(layer)}, {"name": "GO_ON", "value": str(go_on)}]
        document, files = with_code(["torch==2.8.0", "--index-url", "https://user:password@index"], env=env)
        local.jobs.create(submission(document, files))
        status = wait(local, until=lambda s: s.message)
        assert (status.phase, status.reason, status.message) == ("Starting", "", "installing torch==2.8.0")
        assert [(s.phase, s.ready) for s in status.steps] == [("Starting", 0)]
        go_on.touch()
        assert wait(local).phase == "Succeeded"
        assert "user code" in log(local)

    @pytest.mark.parametrize(
        ("install", "shown"),
        [
            ([], ()),
            (["torch", "numpy>=1.2"], ("torch", "numpy>=1.2")),
            (["lightning[extra]==2 ; python_version<'4'"], ("lightning[extra]==2",)),
            (["x @ https://user:pw@host/x.whl"], ("x",)),
            (["git+https://user:pw@host/x", "https://user:pw@host/x.whl"], ("a package from an address",) * 2),
            (["./mine", "-e", "scikit learn"], ("./mine", "scikit learn")),
            (["-r", "/etc/code/requirements.txt", "torch"], ("requirements.txt", "torch")),
            (["torch", "--index-url", "https://user:pw@host", "--extra-index-url", "https://b"], ("torch",)),
        ],
    )
    def test_names_are_shown_and_addresses_are_not(self, install: list[str], shown: tuple[str, ...]) -> None:
        assert packages({"install": install}) == shown

    def test_a_traceback_names_the_files_of_a_project_as_the_project_does(self, local: LocalTarget) -> None:
        file = "project/src/model.py"
        made = f"os.makedirs(os.path.dirname({file!r})); open({file!r}, 'w').write('\\n\\nraise KeyError(1)')"
        command = python(f"import os, runpy; {made}; runpy.run_path(os.path.abspath({file!r}))")
        mounts = {
            "volumeMounts": [{"name": code.SOURCE_VOLUME, "mountPath": code.SOURCE_PATH}],
            "workingDir": code.SOURCE_PATH,
        }
        volumes = {"volumes": [{"name": code.SOURCE_VOLUME, "emptyDir": {}}]}
        status = run(local, jobset(step(command=command, container_fields=mounts, pod=volumes)))
        assert '  File "src/model.py", line 3, in <module>' in status.message, status.message

    def test_a_file_of_requirements_is_named_by_its_packages(self) -> None:
        text = "# ours\ntorch>=2  # here, too\n\n-e .\n--index-url https://user:pw@host\nnumpy==2.1 ; python_version > '3' \\\n"
        text += "    --hash=sha256:0123\nx @ https://user:pw@host/x.whl\n"
        launch = {"install": ["-r", "/etc/code/requirements.txt", "scipy"], "requirements": text.splitlines()}
        assert packages(launch) == ("torch>=2", "numpy==2.1", "x", "scipy")

    def test_code_beside_a_secret(self) -> None:
        document, files = with_code(["torch"])
        pod = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        secret = {"secret": {"secretName": "s", "items": [{"key": "func_args.json", "path": "func_args.json"}]}}
        volume = {"name": "code", "projected": {"sources": [secret, {"configMap": {"name": "job-code"}}]}}
        assert launch_file(pod["containers"][0], [volume], {"ConfigMap/job-code": files})["install"] == ["torch"]

    def test_a_job_with_mpi_that_installs_on_its_nodes_is_not_running(self, local: LocalTarget, tmp_path: Path) -> None:
        layer, go_on = tmp_path / "layer.py", tmp_path / "go-on"
        layer.write_text(textwrap.dedent(self.LAYER))
        agent = "import os, subprocess, sys; a = os.environ['OMPI_MCA_plm_rsh_agent'].split(' '); s = 0\n"
        agent += "for line in open(sys.argv[1]): s |= subprocess.call([*a, line.split()[0], ' '.join(sys.argv[2:])])\n"
        mpirun = write_program(tmp_path / "mpirun", agent + "sys.exit(s)")
        bootstrap, runner = (user_code._script_text(name) for name in (code.BOOTSTRAP_FILE, code.RUN_FILE))
        across = ["python3", str(mpirun), "/etc/mpi/hostfile", "env", "OMPI_COMM_WORLD_RANK=0", "python3"]
        launch = json.dumps({"install": ["torch==2.8.0"], "launcher": ["python3"], "across": across})
        data = {
            code.LAUNCH_FILE: launch,
            code.BOOTSTRAP_FILE: bootstrap,
            code.RUN_FILE: runner,
            code.MAIN_FILE: "print('user code')",
        }
        volumes = [
            {"name": "code", "configMap": {"name": "job-code"}},
            {"name": "hosts", "configMap": {"name": "job-mpi-hostfile"}},
        ]
        mounts = [{"name": "code", "mountPath": code.CODE_PATH}, {"name": "hosts", "mountPath": "/etc/mpi"}]
        env = [{"name": code.LAYER_ENV, "value": str(layer)}, {"name": "GO_ON", "value": str(go_on)}]
        fields = {"volumeMounts": mounts, "env": env}
        document = jobset(
            step("node", ["/usr/sbin/sshd", "-De"], container_fields=fields, pod={"volumes": volumes}),
            step(
                "launcher", ["python3", f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"], container_fields=fields,
                pod={"volumes": volumes}, dependsOn=[{"name": "node", "status": "Ready"}],
            ),
            successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
        )  # fmt: skip
        hosts = config("job-mpi-hostfile", {"hostfile": "job-node-0-0.job slots=1\n"})
        local.jobs.create(submission(document, config("job-code", data), hosts))
        status = wait(local, until=lambda s: s.message)
        assert (status.phase, status.reason, status.message) == ("Starting", "", "installing torch==2.8.0")
        go_on.touch()
        assert wait(local).phase == "Succeeded", (log(local, "job-launcher-0-0"), log(local, "job-node-0-0"))
        assert "user code" in log(local, "job-node-0-0")


def said(python: str) -> str:
    return (
        f"target.python: {python} is not a program that can be started."
        " Hint: give the path of a Python interpreter, or leave python out: it is the one that runs the program"
    )


class TestMissingPrograms:
    @pytest.fixture(autouse=True)
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))
        return folder

    def reviewed(self, *objects: dict[str, Any], python: str = "/no/such/python") -> tuple[list[str], list[str]]:
        named = {f"{o['kind']}/{o['metadata']['name']}": o for o in objects}
        refused, warned = local_limits.missing_programs(named, python)
        return [str(p) for p in refused], [str(p) for p in warned]

    def test_torchrun(self, path: Path, tmp_path: Path) -> None:
        (refused,), warned = self.reviewed(*with_code([], "torchrun"))
        assert (
            "containers[node]: torchrun is not on PATH, and torch is not in packages_to_install. Hint: add packages"
            in refused
        )
        assert warned == []
        for install in (["torch"], ["torch==2.8.0"], ["numpy", "Torch>=2"], ["torch @ https://x/y.whl"]):
            assert self.reviewed(*with_code(install, "torchrun")) == ([], [])
        refused_, (warned_,) = self.reviewed(*with_code(["lightning"], "torchrun"))
        assert (refused_, "torch is not in packages_to_install" in warned_) == ([], True)
        for folder in (path, tmp_path / "python/bin"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "torchrun").touch(mode=0o755)
            assert self.reviewed(*with_code([], "torchrun"), python=f"{folder}/python") == ([], [])

    @pytest.mark.parametrize(
        ("command", "refused"),
        [
            (["no-such-program"], True),
            (["python3", "-c", "x"], False),
            (["/no/such/program"], False),
            (["./program"], False),
            (["$(PROGRAM)"], False),
        ],
    )
    def test_a_command(self, command: list[str], refused: bool) -> None:
        assert bool(self.reviewed(jobset(step(command=command)))[0]) is refused

    @pytest.mark.parametrize("command", [["python", "x.py"], ["python3", "x.py"], ["torchrun", "x.py"], ["/bin/true"]])
    def test_the_interpreter(self, path: Path, command: list[str]) -> None:
        document = jobset(step(command=command), step("other", command=command))
        (path / "file").touch()
        (path / "mine").touch(mode=0o755)
        for each in (str(path), str(path / "file"), "/no/such/python", "python9"):
            found = [str(p) for p in local_limits.missing_interpreter({"JobSet/job": document}, each)]
            assert found == ([said(each)] if command[0].startswith("python") else [])
        for each in (str(path / "mine"), "mine", sys.executable):
            assert local_limits.missing_interpreter({"JobSet/job": document}, each) == []
        assert local_limits.missing_interpreter({"JobSet/job": {"spec": Unknown("spec")}}, "/no/such") == []

    def test_a_path_of_its_own(self) -> None:
        env = [{"name": "PATH", "value": "/opt/tools"}]
        assert self.reviewed(jobset(step(command=["tool"], container_fields={"env": env}))) == ([], [])

    def test_a_job_that_is_there_needs_it_no_more(self, local: LocalTarget) -> None:
        given = submission(jobset(step(command=["no-such-program"])))
        draft = Draft(NAMESPACE, given.name, given.digest, given.objects)

        def reviewed(draft: Draft) -> int:
            return len(local.jobs.review(draft.objects, None, lambda: local.jobs.has_job(draft))[0])

        assert reviewed(draft) == 1
        run(local, given.objects["JobSet/job"])
        assert reviewed(draft) == 0
        for other in (
            {"digest": "another"},
            {"digest": Unknown("digest")},
            {"name": "other"},
            {"namespace": Unknown("n")},
        ):
            assert reviewed(replace(draft, **other)) == 1
