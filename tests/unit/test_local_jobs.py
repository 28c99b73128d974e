"""JobSets that really run: order, restarts, limits, policies, suspension, ends."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, container, eventually, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.targets.local.job_reader import _expire
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder
from pulumi_trainer.provider.trainer.pipeline.disruptions import fail_at_final_errors

FAIL_TWICE = """
import sys, pathlib
seen = pathlib.Path(sys.argv[1]); n = len(seen.read_text()) if seen.exists() else 0
seen.write_text("x" * (n + 1)); print("try", n + 1); sys.exit(0 if n >= 2 else 5)
"""
SLEEP = "import time; time.sleep(120)"


def test_a_job_succeeds(local: LocalTarget) -> None:
    status = run(
        local, jobset(step(command=python("import os; print('index', os.environ['JOB_COMPLETION_INDEX'])"), pods=2))
    )
    assert (status.phase, status.reason) == ("Succeeded", "AllJobsCompleted")
    assert 0 < status.created <= status.started <= status.finished
    [node] = status.steps
    assert (node.name, node.phase, node.count, node.succeeded, node.active, node.failed) == (
        "node",
        "Succeeded",
        2,
        2,
        0,
        0,
    )
    assert 0 < node.started <= node.finished
    assert (log(local), log(local, "job-node-0-1")) == ("index 0\n", "index 1\n")
    assert Path(status.logs).is_dir()


def test_running_shows_steps_and_what_waits(local: LocalTarget) -> None:
    needed = [{"name": "data", "status": "Complete"}]
    document = jobset(step("data", python(SLEEP), pods=2), step("node", pods=3, dependsOn=needed))
    local.jobs.create(submission(document))
    status = wait(local, until=lambda s: s.steps[0].ready == 2)
    assert status.phase == "Running"
    assert [(s.name, s.phase, s.count, s.active, s.ready) for s in status.steps] == [
        ("data", "Running", 2, 2, 2),
        ("node", "Pending", 3, 0, 0),
    ]


def test_steps_run_in_the_order_of_depends_on(local: LocalTarget, tmp_path: Path) -> None:
    say = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    file = str(tmp_path / "order")
    needed = [{"name": "a", "status": "Complete"}]
    document = jobset(
        step("a", python(say, file, "a"), pods=3, job={"parallelism": 1}),
        step("b", python(say, file, "b"), dependsOn=needed),
    )
    assert run(local, document).phase == "Succeeded"
    assert Path(file).read_text() == "aaab"


def test_depends_on_ready(local: LocalTarget, tmp_path: Path) -> None:
    file = tmp_path / "go"
    waits = f"import time, pathlib\nwhile not pathlib.Path({str(file)!r}).exists(): time.sleep(0.02)"
    document = jobset(
        step("head", python(waits)),
        step("node", python(f"open({str(file)!r}, 'w')"), dependsOn=[{"name": "head", "status": "Ready"}]),
    )
    assert run(local, document).phase == "Succeeded"


def test_a_running_job_gets_a_failure_policy(local: LocalTarget, tmp_path: Path) -> None:
    go, seen = tmp_path / "go", tmp_path / "seen"
    code = f"""
    import pathlib, sys, time
    go, seen = pathlib.Path({str(go)!r}), pathlib.Path({str(seen)!r})
    again = seen.exists()
    seen.touch()
    while not go.exists(): time.sleep(0.02)
    sys.exit(0 if again else 3)
    """
    old = jobset(step(command=python(textwrap.dedent(code))))
    new = jobset(step(command=python(textwrap.dedent(code))), failurePolicy={"maxRestarts": 1})
    local.jobs.create(submission(old))
    wait(local, until=lambda _: seen.exists())
    local.jobs.update(submission(new, digest="second"))
    wait(local, until=lambda s: s.digest == "second")
    go.touch()
    status = wait(local)
    assert (status.phase, status.restarts) == ("Succeeded", 1)


class TestInPlace:
    """restartPolicy OnFailure."""

    def test_restarts_until_it_succeeds(self, local: LocalTarget, tmp_path: Path) -> None:
        command = python(FAIL_TWICE, str(tmp_path / "n"))
        status = run(local, jobset(step(command=command, pod={"restartPolicy": "OnFailure"}, job={"backoffLimit": 6})))
        assert status.phase == "Succeeded"
        assert (status.steps[0].restarts, status.steps[0].failed, status.restarts) == (2, 0, 0)
        assert log(local) == "try 1\npulumi-trainer: attempt 2\ntry 2\npulumi-trainer: attempt 3\ntry 3\n"

    def test_is_the_default(self, local: LocalTarget, tmp_path: Path) -> None:
        document = jobset(step(command=python(FAIL_TWICE, str(tmp_path / "n"))))
        job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
        del job["backoffLimit"], job["template"]["spec"]["restartPolicy"]
        assert run(local, document).phase == "Succeeded"

    def test_gives_up_at_the_limit(self, local: LocalTarget, tmp_path: Path) -> None:
        command = python(FAIL_TWICE, str(tmp_path / "n"))
        status = run(local, jobset(step(command=command, pod={"restartPolicy": "OnFailure"}, job={"backoffLimit": 2})))
        assert (status.phase, status.reason) == ("Failed", "FailedJobs")
        assert (tmp_path / "n").read_text() == "xx"
        assert "BackoffLimitExceeded" in status.message

    def test_shows_the_back_off(self, local: LocalTarget) -> None:
        local.jobs.tuning = local.jobs.tuning.__class__(backoff=30)
        local.jobs.create(
            submission(
                jobset(
                    step(
                        command=python("raise SystemExit(1)"),
                        pod={"restartPolicy": "OnFailure"},
                        job={"backoffLimit": 3},
                    )
                )
            )
        )
        status = wait(local, until=lambda s: s.reason == "BackOff")
        assert status.message == "job-node-0-0 failed and will be started again: exit code 1: it printed nothing"


class TestNewPods:
    """restartPolicy Never."""

    def test_a_new_pod_has_fresh_folders(self, local: LocalTarget, tmp_path: Path) -> None:
        pod = {"volumes": [{"name": "v", "emptyDir": {}}]}
        more = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        command = python(
            "import os, sys; print(os.listdir('/dev/null'.replace('/dev/null', sys.argv[2])), os.listdir('.'));"
            "open(sys.argv[2] + '/here', 'w'); open('there', 'w');" + FAIL_TWICE.strip().replace("\n", ";"),
            str(tmp_path / "n"),
            "/v",
        )
        status = run(local, jobset(step(command=command, container_fields=more, pod=pod, job={"backoffLimit": 3})))
        assert (status.phase, status.steps[0].failed, status.steps[0].restarts) == ("Succeeded", 2, 2)
        assert log(local).count("[] []\n") == 3

    def test_backoff_limit(self, local: LocalTarget, tmp_path: Path) -> None:
        status = run(local, jobset(step(command=python(FAIL_TWICE, str(tmp_path / "n")), job={"backoffLimit": 1})))
        assert status.phase == "Failed"
        assert (tmp_path / "n").read_text() == "xx"

    def test_pod_failure_policy(self, local: LocalTarget, tmp_path: Path) -> None:
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [5]}}
        job = {"backoffLimit": 6, "podFailurePolicy": {"rules": [rule]}}
        status = run(local, jobset(step(command=python(FAIL_TWICE, str(tmp_path / "n")), job=job)))
        assert status.phase == "Failed"
        assert (tmp_path / "n").read_text() == "x"
        assert "PodFailurePolicy: Container node for pod default/job-node-0-0 failed with exit code 5" in status.message

    def test_one_failed_pod_ends_the_others(self, local: LocalTarget) -> None:
        code = "import os, time, sys; sys.exit(3) if os.environ['JOB_COMPLETION_INDEX'] == '1' else time.sleep(120)"
        status = run(local, jobset(step(command=python(code), pods=2)))
        assert status.phase == "Failed"
        assert status.message.startswith("step node, pod job-node-0-1, index 1: exit code 3 (container node)")

    def test_indexes_fail_alone_with_a_limit_per_index(self, local: LocalTarget) -> None:
        code = "import os, sys; sys.exit(os.environ['JOB_COMPLETION_INDEX'] == '0')"
        status = run(
            local, jobset(step(command=python(code), pods=2, job={"backoffLimit": None, "backoffLimitPerIndex": 1}))
        )
        assert (status.steps[0].succeeded, status.steps[0].failed) == (1, 2)
        assert "FailedIndexes" in status.message


class TestContainers:
    def test_init_containers_run_in_order_before_the_others(self, local: LocalTarget, tmp_path: Path) -> None:
        say = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
        file = str(tmp_path / "order")
        inits = [container(python(say, file, n), f"init-{n}") for n in "12"]
        assert (
            run(local, jobset(step(command=python(say, file, "m"), pod={"initContainers": inits}))).phase == "Succeeded"
        )
        assert Path(file).read_text() == "12m"
        assert [c for _, c, _ in local.logs.files(NAMESPACE, "job")] == []

    def test_a_failed_init_container_fails_the_pod(self, local: LocalTarget) -> None:
        inits = [container(python("raise SystemExit(4)"), "init")]
        status = run(local, jobset(step(command=python("print('never')"), pod={"initContainers": inits})))
        assert "exit code 4 (container init)" in status.message
        assert log(local) == ""

    def test_a_failed_init_container_is_restarted_in_place(self, local: LocalTarget, tmp_path: Path) -> None:
        inits = [container(python(FAIL_TWICE, str(tmp_path / "n")), "init")]
        pod = {"initContainers": inits, "restartPolicy": "OnFailure"}
        status = run(local, jobset(step(pod=pod, job={"backoffLimit": 6})))
        assert (status.phase, status.steps[0].restarts) == ("Succeeded", 2)

    def test_a_sidecar_runs_beside_and_ends_with_the_pod(self, local: LocalTarget, tmp_path: Path) -> None:
        file = tmp_path / "beside"
        sidecar = container(
            python(f"import time; open({str(file)!r}, 'a').write('s'); time.sleep(120)"), "side", restartPolicy="Always"
        )
        main = f"import time, pathlib\nwhile not pathlib.Path({str(file)!r}).exists(): time.sleep(0.02)"
        assert run(local, jobset(step(command=python(main), pod={"initContainers": [sidecar]}))).phase == "Succeeded"

    def test_a_sidecar_that_ends_is_restarted(self, local: LocalTarget, tmp_path: Path) -> None:
        file = tmp_path / "beside"
        sidecar = container(python(f"open({str(file)!r}, 'a').write('s')"), "side", restartPolicy="Always")
        main = f"import time, pathlib\nwhile len(pathlib.Path({str(file)!r}).read_text()) < 3: time.sleep(0.02)"
        document = jobset(
            step(
                command=python(f"open({str(file)!r}, 'a')\n{main}"),
                pod={"initContainers": [sidecar]},
                job={"backoffLimit": 100},
            )
        )
        assert run(local, document).phase == "Succeeded"

    def test_all_containers_of_a_pod_must_succeed(self, local: LocalTarget) -> None:
        containers = [container(python("print('one')"), "one"), container(python("raise SystemExit(2)"), "two")]
        status = run(local, jobset(step(pod={"containers": containers})))
        assert "exit code 2 (container two)" in status.message
        assert [c for _, c, _ in local.logs.files(NAMESPACE, "job")] == ["one"]

    @pytest.mark.parametrize(
        ("command", "said"),
        [
            (["no-such-program"], "cannot start no-such-program: not found on PATH"),
            (["/"], "cannot start /: Permission denied"),
        ],
    )
    def test_a_command_that_cannot_be_started(self, local: LocalTarget, command: list[str], said: str) -> None:
        status = run(local, jobset(step(command=command)))
        assert status.phase == "Failed"
        assert said in status.message
        assert said in log(local)


ENDS_WELL = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(120)"


class TestDeadlines:
    def test_of_a_job(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=python(SLEEP), job={"activeDeadlineSeconds": 1})))
        assert (status.phase, status.reason) == ("Failed", "FailedJobs")
        assert "DeadlineExceeded: Job was active longer than specified deadline" in status.message

    @pytest.mark.parametrize("code", [SLEEP, ENDS_WELL])
    def test_of_a_pod(self, local: LocalTarget, code: str) -> None:
        status = run(local, jobset(step(command=python(code), pod={"activeDeadlineSeconds": 1})))
        assert (status.phase, status.steps[0].failed) == ("Failed", 1)
        why = "DeadlineExceeded: Pod was active on the node longer than the specified deadline (container node)"
        assert status.message.startswith(f"step node, pod job-node-0-0, index 0: {why}\n"), status.message
        assert "SIGTERM" not in status.message


class TestWhole:
    """Restarts and success of the whole JobSet."""

    def test_restarts(self, local: LocalTarget, tmp_path: Path) -> None:
        say = python("import sys; open(sys.argv[1], 'a').write('d')", str(tmp_path / "d"))
        needed = [{"name": "data", "status": "Complete"}]
        node = step(command=python(FAIL_TWICE, str(tmp_path / "n")), dependsOn=needed)
        status = run(local, jobset(step("data", say), node, failurePolicy={"maxRestarts": 2}))
        assert (status.phase, status.restarts) == ("Succeeded", 2)
        assert (tmp_path / "d").read_text() == "ddd", "finished Jobs are made anew as well"

    @pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
    def test_a_restart_waits_until_all_pods_are_gone(self, local: LocalTarget, tmp_path: Path, strategy: str) -> None:
        code = """
            import os, pathlib, signal, sys, time
            folder, again = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1], "again")
            def note(word):
                with open(folder / "order", "a") as file:
                    file.write(word + " ")
            def leave(*_):
                (folder / "leaving").touch()
                while not (folder / "go").exists():
                    time.sleep(0.01)
                note("gone")
                again.touch()
                sys.exit(1)
            if os.environ["JOB_COMPLETION_INDEX"] == "1":
                signal.signal(signal.SIGTERM, leave)
                (folder / "ready").touch()
                while not again.exists():
                    signal.pause()
            else:
                while not (folder / "ready").exists():
                    time.sleep(0.01)
                note("start")
                sys.exit(not again.exists())
        """
        node = step(command=python(textwrap.dedent(code), str(tmp_path)), pods=2)
        policy = {"maxRestarts": 1, "restartStrategy": strategy}
        local.jobs.create(submission(jobset(node, failurePolicy=policy)))
        wait(local, until=lambda _: (tmp_path / "leaving").exists())
        (tmp_path / "go").touch()
        assert wait(local).phase == "Succeeded"
        assert (tmp_path / "order").read_text() == "start gone start "

    @pytest.mark.parametrize(
        ("rule", "reason"),
        [
            ("", "1 of 3"),
            ("host", "1, which does not count towards the maximum of 3, by rule host of its failure policy"),
            ("interrupted", "1, which does not count towards the maximum of 3, since its program was asked to stop"),
        ],
    )
    def test_shows_that_it_restarts(self, local: LocalTarget, rule: str, reason: str) -> None:
        first = "import os, sys, time; sys.exit(9) if os.environ['ATTEMPT'] == '0' else time.sleep(120)"
        env = [
            {
                "name": "ATTEMPT",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}},
            }
        ]
        needed = [{"name": "node", "status": "Complete"}]
        inits = [container(python(first), "first", env=env)]
        rules = [{"name": rule, "action": "RestartJobSetAndIgnoreMaxRestarts"}] if rule else []
        policy = {"maxRestarts": 3, "rules": rules}
        document = jobset(step(pod={"initContainers": inits}), step("late", dependsOn=needed), failurePolicy=policy)
        local.jobs.create(submission(document))
        status = wait(local, until=lambda s: s.phase == "Restarting")
        assert (status.reason, status.restarts) == (reason, 1)
        assert "exit code 9" in status.message

    def test_gives_up_at_the_maximum(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=python("raise SystemExit(3)")), failurePolicy={"maxRestarts": 1}))
        assert (status.phase, status.reason, status.restarts) == ("Failed", "ReachedMaxRestarts", 1)
        assert "exit code 3" in status.message

    def test_an_error_that_would_come_again_is_not_tried_again(self, local: LocalTarget) -> None:
        given = jobset(step(command=python("raise SystemExit(65)"), job={"backoffLimit": 4}))
        labels = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
        given["spec"]["replicatedJobs"][0]["template"]["metadata"] = labels
        given["spec"]["failurePolicy"] = {"maxRestarts": 5}
        status = run(local, fail_at_final_errors(given))
        assert (status.phase, status.reason, status.restarts) == ("Failed", "FailJobSetFailurePolicyAction", 0)
        assert status.steps[0].failed == 1

    @pytest.mark.parametrize(
        ("report", "note"),
        [
            ('{"step": 0}', "0 steps were done"),
            ('{"step": 9, "resumedFrom": 9, "progressPercentage": 100}', "nothing was left to do (0 steps)"),
        ],
    )
    def test_a_run_without_a_step_says_so(self, local: LocalTarget, report: str, note: str) -> None:
        status = run(local, jobset(step(command=python(f"""print('{{"trainerStatus": {report}}}')"""))))
        assert (status.phase, status.note) == ("Succeeded", note)
        (found,) = local.jobs.runs(status.namespace, status.name)
        assert Run.from_dict(found.to_dict()).note == note

    def test_any_success_ends_the_rest(self, local: LocalTarget) -> None:
        document = jobset(step("a", python(SLEEP)), step("b"), successPolicy={"operator": "Any"})
        status = run(local, document)
        assert status.phase == "Succeeded"
        assert [(s.name, s.succeeded, s.active) for s in status.steps] == [("a", 0, 0), ("b", 1, 0)]


class TestSuspend:
    def document(self, tmp_path: Path, suspend: bool, **fields: Any) -> dict[str, Any]:
        say = python("import sys; open(sys.argv[1], 'a').write('d')", str(tmp_path / "data"))
        code = (
            "import time, os, sys, pathlib; print('up', flush=True)\n"
            f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.02)"
        )
        needed = [{"name": "data", "status": "Complete"}]
        return jobset(step("data", say), step("node", python(code), dependsOn=needed), suspend=suspend, **fields)

    def test_a_suspended_job_has_no_process(self, local: LocalTarget, tmp_path: Path) -> None:
        status = local.jobs.create(submission(self.document(tmp_path, True)))
        assert (status.phase, status.reason) == ("Suspended", "SuspendedJobs")
        assert {s.phase for s in status.steps} == {"Suspended"}
        assert local.jobs.status(NAMESPACE, "job") == status
        assert sorted(p.name for p in (local.root / "jobs/default/job").iterdir()) == ["lock", "record.json"]

    def test_resume_suspend_and_resume(self, local: LocalTarget, tmp_path: Path) -> None:
        created = local.jobs.create(submission(self.document(tmp_path, True)))
        assert local.jobs.update(submission(self.document(tmp_path, False), digest="digest-2")).phase == "Starting"
        running = wait(local, until=lambda s: s.steps[1].ready == 1)
        assert (running.uid, running.digest) == (created.uid, "digest-2")
        eventually(lambda: "up\n" in log(local))
        local.jobs.update(submission(self.document(tmp_path, True)))
        suspended = wait(local, until=lambda s: s.phase == "Suspended")
        assert [s.phase for s in suspended.steps] == ["Succeeded", "Suspended"]
        eventually(lambda: not JobFolder.of(local.root, NAMESPACE, "job").supervised())
        (tmp_path / "go").touch()
        local.jobs.update(submission(self.document(tmp_path, False)))
        assert wait(local).phase == "Succeeded"
        assert (tmp_path / "data").read_text() == "d", "a finished Job is not run again"
        assert log(local).count("up\n") == 2

    def test_a_change_of_mind_while_it_ends(self, local: LocalTarget, tmp_path: Path) -> None:
        slow = (
            "import os, signal, sys, time\n"
            "def end(*_):\n"
            "    while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "print('up', flush=True); time.sleep(120)"
        )
        go = tmp_path / "go"
        pod = {"terminationGracePeriodSeconds": 60}

        def document(suspend: bool) -> dict[str, Any]:
            return jobset(step(command=python(slow, str(go)), pod=pod), suspend=suspend)

        local.jobs.create(submission(document(False)))
        eventually(lambda: log(local) == "up\n")
        local.jobs.update(submission(document(True)))
        wait(local, until=lambda s: s.reason == "Ending")
        local.jobs.update(submission(document(False)))
        go.touch()
        eventually(lambda: log(local).count("up\n") == 2)
        assert wait(local, until=lambda s: s.phase == "Running").steps[0].active == 1


class TestTimeToLive:
    def test_logs_go_and_the_outcome_stays(self, local: LocalTarget) -> None:
        status = run(local, jobset(step(command=python("print('x')")), ttlSecondsAfterFinished=0))
        folder = local.root / "jobs" / NAMESPACE / "job"
        eventually(lambda: not [p for p in folder.iterdir() if p.is_dir()])
        again = local.jobs.status(NAMESPACE, "job")
        assert again is not None
        assert (again.phase, again.uid) == ("Succeeded", status.uid)
        assert local.logs.files(NAMESPACE, "job") == []
        assert (
            local.jobs.create(submission(jobset(step(command=python("print('x')")), ttlSecondsAfterFinished=0))).uid
            == status.uid
        )

    def test_a_status_removes_nothing_while_a_new_run_begins(self, local: LocalTarget) -> None:
        run(local, jobset(step(command=python("print('x')")), ttlSecondsAfterFinished=3600))
        folder = JobFolder.of(local.root, NAMESPACE, "job")
        record = Record.read(folder)
        record.jobset["spec"]["ttlSecondsAfterFinished"] = 0
        record.write(folder)
        with folder.guard():
            assert local.jobs.status(NAMESPACE, "job") is not None and log(local) == "x\n"
        _expire(folder, replace(record, uid="of the run before"))
        assert log(local) == "x\n"
        assert local.jobs.status(NAMESPACE, "job") is not None and not folder.logs.exists()

    def test_later(self, local: LocalTarget) -> None:
        document = jobset(step(command=python("print('x')")), ttlSecondsAfterFinished=3600)
        run(local, document)
        assert log(local) == "x\n"
        document["spec"]["ttlSecondsAfterFinished"] = 0
        local.jobs.update(submission(document))
        assert local.logs.files(NAMESPACE, "job") == []


class TestProgress:
    def test_of_rank_0_only(self, local: LocalTarget) -> None:
        code = (
            "import json, os, sys\n"
            "n = int(os.environ['JOB_COMPLETION_INDEX'])\n"
            "print('{\"trainerStatus\": broken')\n"
            "print(json.dumps({'trainerStatus': {'progressPercentage': 40 + n, 'estimatedRemainingSeconds': 7,"
            " 'metrics': [{'name': 'loss', 'value': '0.5'}]}}))\n"
            "print(json.dumps({'trainerStatus': {'progressPercentage': 900}}))\n"
            "print(json.dumps({'trainerStatus': {'progressPercentage': 99}}), file=sys.stderr)\n"
        )
        progress = run(local, jobset(step(command=python(code), pods=2))).progress
        assert progress is not None
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", progress.pop("lastUpdatedTime"))
        assert progress == {"progressPercentage": 40, "estimatedRemainingSeconds": 7, "metrics": {"loss": "0.5"}}


def test_the_record_holds_what_identifies_the_job(local: LocalTarget) -> None:
    run(local, jobset(step()), run="run-7")
    record = json.loads((local.root / "jobs/default/job/record.json").read_text())
    assert (record["owner"], record["digest"], record["run"], record["stack"]) == (
        "owner-1",
        "digest-1",
        "run-7",
        "stack-1",
    )
    assert record["host"] == local.jobs.host
