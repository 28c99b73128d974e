"""What only real pods show: names, networks, streams of logs, memory that runs out, volumes, images that are not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.values.accessors import conditions, true_condition
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.cluster.jobs import submission
from tests.engine.conftest import eventually

from .conftest import PATIENCE, Lab, apart, jobset

MEET = """
import os, socket, time
mine = int(os.environ["JOB_COMPLETION_INDEX"])
other = f"pair-node-0-{1 - mine}.pair"
deadline = time.monotonic() + 60
while True:
    try:
        socket.gethostbyname(other)
        break
    except OSError:
        assert time.monotonic() < deadline, f"no address of {other}"
        time.sleep(0.1)
if mine == 0:
    with socket.create_server(("", 4000)) as server:
        there, address = server.accept()
        print("heard", there.recv(99).decode(), flush=True)
else:
    while True:
        try:
            with socket.create_connection((other, 4000), 5) as there:
                there.sendall(socket.gethostname().encode())
            break
        except OSError:
            assert time.monotonic() < deadline, f"{other} does not listen"
            time.sleep(0.1)
"""


def test_pods_on_two_nodes_reach_each_other_by_the_names_of_jobset(lab: Lab) -> None:
    lab.run("pair", MEET, pods=2, pod=apart())
    lab.ended("pair")
    assert {p.spec.node_name for p in lab.pods()} == {"node1", "node2"}
    assert "heard pair-node-0-1" in lab.said("logs", "pair")


def test_logs_are_followed_as_they_are_printed(lab: Lab) -> None:
    lab.run("talks", "import time\nfor i in range(40): print('tick', i); time.sleep(0.1)\ntime.sleep(3)")
    process = lab.cli("logs", "--follow", "talks")
    assert process.stdout
    first = process.stdout.readline()
    assert first.endswith("tick 0\n")
    assert not lab.status("talks").terminal, "it came while the job ran"
    rest = process.stdout.read()
    assert process.wait(PATIENCE) == 0
    assert [line.split()[-1] for line in (first + rest).splitlines()] == [str(i) for i in range(40)]
    lab.ended("talks")


def test_a_container_that_needs_more_memory_than_it_may(lab: Lab) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    lab.run("hungry", "print('begins')\nkept = [bytes(range(256)) * 4096 for _ in range(200)]", container=limits)
    failed = lab.ended("hungry", "Failed")
    assert "OOMKilled" in f"{failed.reason} {failed.message}" and "137" in failed.message, failed
    (pod,) = lab.pods()
    why = lab.said("why", "hungry")
    assert "OOMKilled" in why and pod.spec.node_name in why and pod.metadata.name in why, why


def test_the_exit_code_and_the_last_lines_of_what_fails(lab: Lab) -> None:
    lab.run("fails", "import sys\nfor i in range(30): print('line', i)\nprint('the reason')\nsys.exit(7)")
    failed = lab.ended("fails", "Failed")
    assert "exit code 7" in failed.message, failed
    why = lab.said("why", "fails")
    assert "exit code 7" in why and "line 29" in why and "the reason" in why and "line 0\n" not in why, why


def test_a_container_that_fails_again_and_again(lab: Lab) -> None:
    lab.run("loops", "print('not today')\nraise SystemExit(3)", pod={"restartPolicy": "OnFailure"}, backoff=6)
    lab.until("loops", lambda s: s.reason == "CrashLoopBackOff")
    eventually(lambda: "exit code 3" in (why := lab.said("why", "loops")) and "not today" in why, PATIENCE)


def test_the_error_of_a_container_outlives_its_pod(lab: Lab) -> None:
    """Kubernetes deletes pods that restart their containers in place at the backoff limit: as all runtimes of Trainer do."""
    code = "def load(): raise ValueError('no data')\nprint('epoch 1')\nload()"
    lab.run("loses", code, pod={"restartPolicy": "OnFailure"}, backoff=1)
    observer = Observer(open_client({"kubeconfig": str(lab.kubeconfig)}), lab.namespace).start()
    try:
        observer.first("loses")
        eventually(lambda: (status := observer.status("loses")) is not None and status.terminal, PATIENCE)
        failed = observer.conclude("loses")
    finally:
        observer.stop()
    assert failed is not None and failed.phase == "Failed"
    eventually(lambda: not lab.pods(), PATIENCE)
    why = lab.said("why", "loses")
    for text in (failed.message, why):
        assert "exit code 1" in text and "ValueError: no data" in text and "epoch 1" in text, text


def test_a_job_that_ends_does_not_seem_to_start(lab: Lab) -> None:
    """A Pod that has ended is not ready any more, and its Job counts it some moments later."""
    observer = Observer(open_client({"kubeconfig": str(lab.kubeconfig)}), lab.namespace).start()
    phases = dict[str, None]()
    try:
        lab.run("ends", "import time, os; time.sleep(2 + int(os.environ['JOB_COMPLETION_INDEX']))", pods=2)
        observer.first("ends")

        def ended() -> bool:
            status = observer.status("ends")
            if status is not None and phases.keys() >= {"Running"}:
                assert status.phase in ("Running", "Succeeded"), status
            phases[status.phase if status is not None else ""] = None
            return status is not None and status.terminal

        eventually(ended, PATIENCE)
    finally:
        observer.stop()
    assert [*phases][-2:] == ["Running", "Succeeded"], phases


def test_pods_that_nobody_has_seen_fail(lab: Lab) -> None:
    lab.run("unseen", "raise SystemExit(3)", pod={"restartPolicy": "OnFailure"}, backoff=0)
    reached = open_client({"kubeconfig": str(lab.kubeconfig)})
    eventually(lambda: true_condition(conditions(reached.get(JOBSET, lab.namespace, "unseen")), "Failed"), PATIENCE)
    eventually(lambda: not lab.pods(), PATIENCE)
    why = lab.said("why", "unseen")
    assert "has deleted the Pods and their logs at that limit (restartPolicy OnFailure)" in why, why


def test_the_last_progress_of_a_job_that_nobody_has_watched(lab: Lab) -> None:
    line = json.dumps({"trainerStatus": {"progressPercentage": 100, "metrics": [{"name": "loss", "value": "0.25"}]}})
    lab.run("learns", f"print({line!r})")
    reached = open_client({"kubeconfig": str(lab.kubeconfig)})
    eventually(lambda: true_condition(conditions(reached.get(JOBSET, lab.namespace, "learns")), "Completed"), PATIENCE)
    assert "loss 0.25" in lab.said("status", "learns")
    assert (lab.status("learns").progress or {})["metrics"] == {"loss": "0.25"}
    reached.delete(JOBSET, lab.namespace, "learns")
    eventually(lambda: not lab.pods(), PATIENCE)
    assert "loss 0.25" in lab.said("status", "learns"), "its record has it"
    assert "metrics  loss 0.25" in lab.said("runs", "learns")


def test_an_image_that_is_not_there(lab: Lab) -> None:
    lab.run("absent", "pass", container={"image": "example.com/nobody/nothing:1"})
    lab.until("absent", lambda s: s.reason in ("ErrImagePull", "ImagePullBackOff"))
    why = lab.said("why", "absent")
    assert "example.com/nobody/nothing:1" in why and "not found" in why, why


def test_an_image_name_that_is_none(lab: Lab) -> None:
    lab.run("misspelt", "pass", container={"image": "Example.com/UPPER:1:2"})
    lab.until("misspelt", lambda s: s.reason == "InvalidImageName")
    why = lab.said("why", "misspelt")
    assert "Example.com/UPPER:1:2" in why and "cannot be pulled" in why, why


def test_a_key_that_is_not_there(lab: Lab) -> None:
    lab.core.create_namespaced_config_map(lab.namespace, {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    env = [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}}]
    lab.run("unset", "pass", container={"env": env})
    lab.until("unset", lambda s: s.reason == "CreateContainerConfigError")
    why = lab.said("why", "unset")
    assert "couldn't find key b in ConfigMap" in why and "Create what it refers to" in why, why
    lab.core.patch_namespaced_config_map("settings", lab.namespace, {"data": {"b": "2"}})
    lab.ended("unset")


def test_a_volume_of_a_secret_that_goes_before_the_job_starts(lab: Lab) -> None:
    secret = {"metadata": {"name": "nobody"}, "stringData": {"k": "v"}}
    lab.core.create_namespaced_secret(lab.namespace, secret)
    volumes = [{"name": "keys", "secret": {"secretName": "nobody"}}]
    mounts = {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}
    lab.run("unmounted", "pass", pod={"volumes": volumes}, container=mounts, suspend=True)
    lab.core.delete_namespaced_secret("nobody", lab.namespace)
    lab.target.client.patch(JOBSET, lab.namespace, "unmounted", {"spec": {"suspend": False}})
    lab.until("unmounted", lambda s: s.reason == "FailedMount")
    why = lab.said("why", "unmounted")
    assert 'secret "nobody" not found' in why and "keys" in why, why
    lab.core.create_namespaced_secret(lab.namespace, secret)
    lab.ended("unmounted")


def test_a_command_that_is_not_there(lab: Lab) -> None:
    lab.run("mistyped", "pass", container={"command": ["tochrun"]})
    failed = lab.ended("mistyped", "Failed")
    assert "StartError" in f"{failed.reason} {failed.message}" and "tochrun" in failed.message, failed
    assert "Correct its command" in lab.said("why", "mistyped")


SHARE = """
import os, pathlib, time
mine, folder = os.environ["JOB_COMPLETION_INDEX"], pathlib.Path("/data")
(folder / mine).write_text(mine)
deadline = time.monotonic() + 60
while sorted(p.name for p in folder.iterdir()) != ["0", "1"]:
    assert time.monotonic() < deadline
    time.sleep(0.1)
"""


def test_a_volume_that_two_nodes_write(lab: Lab) -> None:
    made = lab.target.volumes.create(
        lab.namespace, "shared", "owner", "stack", {"accessMode": "ReadWriteMany", "size": "1Gi"}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    lab.run("both", SHARE, pods=2, pod={**apart(), "volumes": volumes}, container=mounts)
    lab.ended("both")
    assert {p.spec.node_name for p in lab.pods()} == {"node1", "node2"}
    lab.run("later", "import os; print(sorted(os.listdir('/data')))", pod={"volumes": volumes}, container=mounts)
    lab.ended("later")
    assert "['0', '1']" in lab.said("logs", "later")
    for name in ("both", "later"):
        lab.target.jobs.delete(lab.namespace, name)
    lab.target.volumes.delete(lab.namespace, "shared", made["generation"])
    assert lab.target.volumes.find(lab.namespace, "shared") is None


def test_in_a_pod_the_service_account_is_enough(lab: Lab) -> None:
    program = str(Path(sys.executable).with_name("pulumi-trainer"))
    argv = [program, "status", "-o", "json", "--namespace", lab.namespace]
    account = {"serviceAccountName": "trainer-user"}
    lab.target.jobs.create(
        submission(lab.namespace, jobset("looks", "", container={"command": argv}, pod=account), code=False)
    )
    lab.ended("looks")
    printed = lab.core.read_namespaced_pod_log(lab.pods()[0].metadata.name, lab.namespace)
    assert [job["name"] for job in json.loads(printed)] == ["looks"]


def test_what_a_pod_does_when_it_is_asked_to_end_is_waited_for(lab: Lab) -> None:
    code = """
import pathlib, signal, sys, time
def end(*_):
    time.sleep(2)
    pathlib.Path("/data/ended").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready")
time.sleep(600)
"""
    made = lab.target.volumes.create(
        lab.namespace, "kept", "owner", "stack", {"accessMode": "ReadWriteMany", "size": "1Gi"}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    lab.run("slow", code, pod={"terminationGracePeriodSeconds": 30, "volumes": volumes}, container=mounts)
    eventually(lambda: lab.pods() and lab.pods()[0].status.phase == "Running", 120)
    eventually(lambda: "ready" in lab.said("logs", "slow"), 60)
    lab.target.jobs.delete(lab.namespace, "slow")
    assert lab.pods() == []
    lab.run("looks", "import os; print(os.listdir('/data'))", pod={"volumes": volumes}, container=mounts)
    lab.ended("looks")
    assert "['ended']" in lab.said("logs", "looks")
    lab.target.jobs.delete(lab.namespace, "looks")
    lab.target.volumes.delete(lab.namespace, "kept", made["generation"])
