"""kill -9 of the provider between any two requests: what it leaves converges, and can be removed.

A proxy counts requests and kills the process that sent one, just before the server sees it or just after it has acted; for
every k until the call survives. The calls are those of the provider, in a process each.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB, TRAINING_RUNTIME

from .driver import Driver, Ended
from .faults_support import eventually, gone, inputs, left, listed
from .proxy import After, Before, Fault, Lose, Proxy, nth

MOMENTS: dict[str, Callable[[Callable[[], None]], Fault]] = {"before": Before, "after": After}


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver() as made:
        yield made


@pytest.fixture
def admin_client(cluster: Any) -> Client:
    return open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})


@pytest.fixture
def proxy(cluster: Any) -> Iterator[Proxy]:
    with Proxy(cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def kubeconfig(proxy: Proxy, user_kubeconfig: Path, tmp_path: Path) -> Path:
    """Of the least role, through the proxy."""
    return proxy.kubeconfig(tmp_path / "kubeconfig", like=user_kubeconfig)


def killed_at(proxy: Proxy, driver: Driver, number: int, moment: str, call: str, *args: Any) -> Ended:
    """How a call ends whose process is killed at its `number`th request; a call with fewer requests survives."""
    proxy.reset()
    pid = driver.begin(call, *args)
    proxy.rule = nth(number, MOMENTS[moment](lambda: os.kill(pid, signal.SIGKILL)))
    ended = driver.end()
    proxy.reset()
    return ended


def each_kill(proxy: Proxy, driver: Driver, moment: str, prepare: Callable[[str], tuple[Any, ...]]) -> Iterator[str]:
    """For every k until the call survives: the name of a job whose call was killed at its kth request.

    prepare: name -> the call and its arguments.
    """
    for number in range(1, 100):
        name = f"job-{number}"
        ended = killed_at(proxy, driver, number, moment, *prepare(name))
        assert not ended.error, ended.error
        yield name
        if not ended.killed:
            assert number > 2, "the call makes requests"
            return
    pytest.fail("the call never ends")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("suspend", [True, False], ids=["suspended", "running"])
def test_a_killed_create_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str, suspend: bool
) -> None:
    def job(name: str) -> Any:
        return inputs(namespace, name, kubeconfig, secret="canary-4711", suspend=suspend)

    for name in each_kill(proxy, driver, moment, lambda name: ("create", job(name))):
        before = {j["metadata"]["uid"] for j in listed(admin_client, JOBSET, namespace)}
        _, outputs = driver.ok("create", job(name))
        jobsets = listed(admin_client, JOBSET, namespace)
        assert [j["metadata"]["name"] for j in jobsets] == [name]
        assert before <= {j["metadata"]["uid"] for j in jobsets}, "what was made is kept, not made again"
        assert {f"ConfigMap/{name}", f"ConfigMap/{name}-code", f"Secret/{name}-env"} <= set(
            left(admin_client, namespace)
        )
        driver.ok("delete", outputs)
        gone(admin_client, namespace, 0.0 if suspend else 5.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_killed_create_leaves_is_swept(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    """`destroy` without an `up`: the state knows nothing of the job, and the stack's target sweeps."""

    def job(name: str) -> Any:
        return inputs(namespace, name, kubeconfig, secret="canary-4711")

    for name in each_kill(proxy, driver, moment, lambda name: ("create", job(name))):
        driver.ok("sweep", job(name)["target"], "stack-1")
        gone(admin_client, namespace, 0.0)


def made_from(admin_client: Client, namespace: str) -> None:
    """The runtime of `train_inputs`."""
    runtime = runtimes.load("torch-distributed")
    metadata = {**runtime["metadata"], "namespace": namespace}
    admin_client.create(TRAINING_RUNTIME, {**runtime, "kind": "TrainingRuntime", "metadata": metadata})


def train_inputs(namespace: str, name: str, kubeconfig: Path, *, suspend: bool = True) -> Any:
    """Inputs of a job in mode trainer."""
    made = inputs(namespace, name, kubeconfig, secret="canary-4711")
    spec = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "torch-distributed"},
        "trainer": {"numNodes": 1}, "suspend": suspend,
    }  # fmt: skip
    train = {"apiVersion": TRAIN_JOB.api_version, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}
    code = {key: each for key, each in made["objects"].items() if key.startswith("ConfigMap/")}
    objects = {**code, f"TrainJob/{name}": train}
    return {**made, "objects": objects, "target": {**made["target"], "mode": "trainer"}}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_create_in_mode_trainer(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    """Every second one is finished, the others are swept."""
    made_from(admin_client, namespace)

    def job(name: str) -> Any:
        return train_inputs(namespace, name, kubeconfig)

    for name in each_kill(proxy, driver, moment, lambda name: ("create", job(name))):
        if int(name.rpartition("-")[2]) % 2:
            before = {j["metadata"]["uid"] for j in listed(admin_client, TRAIN_JOB, namespace)}
            _, outputs = driver.ok("create", job(name))
            (train,) = listed(admin_client, TRAIN_JOB, namespace)
            assert before <= {train["metadata"]["uid"]}, "what was made is kept, not made again"
            driver.ok("delete", outputs)
        else:
            driver.ok("sweep", job(name)["target"], "stack-1")
        gone(admin_client, namespace, 5.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_delete_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    made: dict[str, Any] = {}

    def prepare(name: str) -> tuple[Any, ...]:
        _, made[name] = driver.ok("create", inputs(namespace, name, kubeconfig))
        return "delete", made[name]

    for name in each_kill(proxy, driver, moment, prepare):
        driver.ok("delete", made[name])
        gone(admin_client, namespace, 0.0)
        driver.ok("delete", made[name])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_delete_in_mode_trainer(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    """It is finished by the next delete, alone or before a create, or by a sweep."""
    made_from(admin_client, namespace)
    made: dict[str, Any] = {}

    def job(name: str) -> Any:
        return train_inputs(namespace, name, kubeconfig, suspend=False)

    def prepare(name: str) -> tuple[Any, ...]:
        _, made[name] = driver.ok("create", job(name))
        eventually(lambda: listed(admin_client, kinds.POD, namespace))
        return "delete", made[name]

    for name in each_kill(proxy, driver, moment, prepare):
        match int(name.rpartition("-")[2]) % 3:
            case 0:
                driver.ok("delete", made[name])
            case 1:
                driver.ok("sweep", job(name)["target"], "stack-1")
            case 2:
                driver.ok("delete", made[name])
                _, again = driver.ok("create", job(name))
                (train,) = listed(admin_client, TRAIN_JOB, namespace)
                assert not train["metadata"].get("deletionTimestamp")
                driver.ok("delete", again)
        gone(admin_client, namespace, 5.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_delete_is_followed_by_a_create(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    """A replacement that was killed between the two: the earlier run may still be on its way out."""
    made: dict[str, Any] = {}

    def prepare(name: str) -> tuple[Any, ...]:
        _, made[name] = driver.ok("create", inputs(namespace, name, kubeconfig, suspend=False))
        return "delete", made[name]

    for name in each_kill(proxy, driver, moment, prepare):
        new = inputs(namespace, name, kubeconfig, digest="digest-2", suspend=False)
        driver.ok("delete", made[name])  # as the engine does again, its state still holding the earlier run
        _, outputs = driver.ok("create", new)
        assert outputs["uid"] != made[name]["uid"]
        (jobset,) = listed(admin_client, JOBSET, namespace)
        assert not jobset["metadata"].get("deletionTimestamp")
        assert jobset["metadata"]["annotations"]["pulumi-trainer.dev/digest"] == "digest-2"
        driver.ok("delete", outputs)
        gone(admin_client, namespace, 5.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_update_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    made: dict[str, Any] = {}

    def changed(name: str) -> Any:
        return inputs(namespace, name, kubeconfig, suspend=False, digest="digest-2")

    def prepare(name: str) -> tuple[Any, ...]:
        _, made[name] = driver.ok("create", inputs(namespace, name, kubeconfig))
        return "update", made[name], changed(name)

    for name in each_kill(proxy, driver, moment, prepare):
        outputs = driver.ok("update", made[name], changed(name))
        assert outputs["uid"] == made[name]["uid"] and outputs["digest"] == "digest-2"
        (jobset,) = listed(admin_client, JOBSET, namespace)
        assert jobset["spec"]["suspend"] is False
        driver.ok("delete", outputs)
        gone(admin_client, namespace, 5.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_sweep_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    target = inputs(namespace, "any", kubeconfig)["target"]

    def prepare(name: str) -> tuple[Any, ...]:
        for each in ("a", "b"):
            driver.ok("create", inputs(namespace, f"{name}-{each}", kubeconfig))
        driver.ok("create", inputs(namespace, f"{name}-other", kubeconfig, sweep="stack-2"))
        return "sweep", target, "stack-1"

    for name in each_kill(proxy, driver, moment, prepare):
        driver.ok("sweep", target, "stack-1")
        names = [j["metadata"]["name"] for j in listed(admin_client, JOBSET, namespace)]
        assert names == [f"{name}-other"], "another stack's stays"
        driver.ok("sweep", target | {"sweep": "stack-2"}, "stack-2")
        gone(admin_client, namespace, 0.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_creation_or_deletion_of_a_volume_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    """One that nothing but a sweep knows goes by that."""
    target = inputs(namespace, "any", kubeconfig)["target"]
    made: dict[str, Any] = {}

    def volume(name: str) -> Any:
        claim = {"accessMode": "ReadWriteOnce"}
        return {
            "namespace": namespace, "name": name, "component": f"urn:{name}", "target": target, "digest": "d", "claim": claim,
        }  # fmt: skip

    for name in each_kill(proxy, driver, moment, lambda name: ("create_volume", volume(name))):
        if int(name.rpartition("-")[2]) % 2:
            _, outputs = driver.ok("create_volume", volume(name))
            assert [c["metadata"]["name"] for c in listed(admin_client, kinds.CLAIM, namespace)] == [name]
            driver.ok("delete_volume", outputs)
        else:
            driver.ok("sweep", target, "stack-1")
        gone(admin_client, namespace, 5.0)

    def prepare(name: str) -> tuple[Any, ...]:
        _, made[name] = driver.ok("create_volume", volume(name))
        return "delete_volume", made[name]

    for name in each_kill(proxy, driver, moment, prepare):
        driver.ok("delete_volume", made[name])
        gone(admin_client, namespace, 0.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_adoption_is_finished_by_the_next(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path, moment: str
) -> None:
    uids: dict[str, str] = {}

    def prepare(name: str) -> tuple[Any, ...]:
        job = inputs(namespace, name, kubeconfig, adopt=True)
        jobset = job["objects"][f"JobSet/{name}"]
        byhand = {**jobset, "metadata": {"name": name, "namespace": namespace}}
        uids[name] = admin_client.create(JOBSET, byhand)["metadata"]["uid"]
        return "create", job

    for name in each_kill(proxy, driver, moment, prepare):
        _, outputs = driver.ok("create", inputs(namespace, name, kubeconfig, adopt=True))
        (jobset,) = listed(admin_client, JOBSET, namespace)
        assert jobset["metadata"]["uid"] == uids[name]
        driver.ok("delete", outputs)
        gone(admin_client, namespace, 0.0)


def test_a_lost_answer_to_any_request_of_a_create_makes_one_job(
    proxy: Proxy, driver: Driver, admin_client: Client, namespace: str, kubeconfig: Path
) -> None:
    """The server acts, its answer is lost, and the client asks again."""
    for number in range(1, 100):
        name = f"job-{number}"
        proxy.reset()
        proxy.rule = nth(number, Lose())
        _, outputs = driver.ok("create", inputs(namespace, name, kubeconfig, secret="canary-4711"))
        count = proxy.count()
        proxy.reset()
        (jobset,) = listed(admin_client, JOBSET, namespace)
        (owner,) = jobset["metadata"]["ownerReferences"]
        assert owner["uid"] == outputs["uid"]
        proxy.rule = nth(number, Lose())
        driver.ok("delete", outputs)
        gone(admin_client, namespace, 0.0)
        if number > count:
            assert number > 3
            return
    pytest.fail("the call never ends")
