"""kill -9 of the provider's host, or of all of Pulumi, at a request of a real `up` or `destroy`: the next command converges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulumi_trainer.provider.trainer.kinds import JOBSET

from .jobs import left, until
from .proxy import After, Proxy, kill_tree, nth
from .test_up import PLAIN, Lab, head, lab, pulumi_home  # noqa: F401 (fixtures)


@pytest.fixture
def proxy(cluster: Any) -> Iterator[Proxy]:
    with Proxy(cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def behind(lab: Lab, proxy: Proxy, user_kubeconfig: Path, tmp_path: Path) -> Lab:  # noqa: F811
    """The stack reaches its cluster through the proxy."""
    lab.config("trainer:kubeconfig", str(proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig)))
    lab.program(PLAIN, head())
    return lab


def kill_host(pid: int) -> None:
    """The dynamic provider's host alone; the engine lives on."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pulumi.dynamic" in " ".join(process.cmdline()):
                process.kill()


KILLS = {"host": kill_host, "all": kill_tree}


def killed(lab: Lab, proxy: Proxy, victim: str, number: int, *command: str) -> None:  # noqa: F811
    """A command that is killed when the server has done the `number`th thing that it was told to do."""
    pids: list[int] = []
    proxy.reset()
    proxy.rule = nth(number, After(lambda: KILLS[victim](pids[0])), lambda r: r.writes)
    process = lab.start(*command, "--yes", "--skip-preview")
    pids.append(process.pid)
    process.communicate(timeout=120)
    assert process.returncode != 0, "it was killed"
    proxy.reset()
    lab.run("cancel", "--yes")


@pytest.mark.parametrize("victim", KILLS)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("checkpoints", [True, False])
def test_up_after_a_killed_up(behind: Lab, proxy: Proxy, victim: str, number: int, checkpoints: bool) -> None:
    if not checkpoints:  # the engine writes its state at the end alone
        behind.env = {"PULUMI_EXPERIMENTAL": "1", "PULUMI_SKIP_CHECKPOINTS": "1"}
    killed(behind, proxy, victim, number, "up")
    made = {j["metadata"]["uid"] for j in behind.root_client.list(JOBSET, behind.namespace)[0]}
    behind.up()
    jobs = {j["metadata"]["uid"] for j in behind.root_client.list(JOBSET, behind.namespace)[0]}
    assert len(jobs) == 1 and made <= jobs
    behind.pods(2)
    behind.preview("--expect-no-changes")
    behind.destroy()
    assert left(behind.root_client, behind.namespace) == []


@pytest.mark.parametrize("number", [1, 2])
def test_destroy_after_a_killed_up(behind: Lab, proxy: Proxy, number: int) -> None:
    killed(behind, proxy, "all", number, "up")
    assert left(behind.root_client, behind.namespace)
    behind.destroy()
    until(lambda: left(behind.root_client, behind.namespace) == [])


@pytest.mark.parametrize("victim", KILLS)
def test_destroy_after_a_killed_destroy(behind: Lab, proxy: Proxy, victim: str) -> None:
    behind.up()
    behind.pods(2)
    killed(behind, proxy, victim, 1, "destroy")
    behind.destroy()
    assert left(behind.root_client, behind.namespace) == []
