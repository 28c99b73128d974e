"""What jobs of one machine share: addresses, ports and GPUs."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, eventually, jobset, log, python, run, step, submission, supervisor_of, wait
from pulumi_trainer.provider.targets.local import LocalTarget, machine
from pulumi_trainer.provider.targets.local import leases as leases_module
from pulumi_trainer.provider.targets.local.leases import Leases
from pulumi_trainer.provider.targets.local.machine import GPU, LINUX

HOLD = "print('up', flush=True); import time; time.sleep(120)"
SHOW = "import os; print('gpus', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        tmp_path,
        monkeypatch,
        "".join(
            f"GPU {i}: NVIDIA H200 (UUID: GPU-{i}-{uuid.uuid4()})\\n  MIG 1g Device 0: (UUID: MIG-0)\\n"
            for i in range(4)
        ),
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, then: str = "") -> None:
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / "nvidia-smi"
    stand_in.write_text(f"#!/bin/sh\n[ \"$1\" = -L ] || exit 9\nprintf '{output}'\n{then}\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def gpus(count: int, **fields: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: count}}, **fields}


class TestAddresses:
    def test_every_pod_of_every_job_has_its_own(self, tmp_path: Path) -> None:
        first, second = Leases(tmp_path), Leases(tmp_path)
        names = [f"pod-{i}" for i in range(300)]
        seed = str(tmp_path)
        mine, theirs = first.addresses(names, seed), second.addresses(names, seed)
        everything = [*mine.values(), *theirs.values()]
        assert len(set(everything)) == (600 if LINUX else 1)
        for address in (everything[0], everything[-1]):
            with socket.socket() as server:
                server.bind((address, 0))
        first.release()
        third = Leases(tmp_path)
        assert third.addresses(names, seed) == mine
        second.release()
        third.release()

    def test_pods_reach_each_other_by_name(self, local: LocalTarget) -> None:
        code = (
            "import os, socket, sys, time\n"
            "port = int(sys.argv[2])\n"
            "if os.environ['JOB_COMPLETION_INDEX'] == '0':\n"
            "    s = socket.create_server((os.environ['IP'], port)); c, who = s.accept()\n"
            "    print(c.recv(9).decode(), who[0] == os.environ['PEER'])\n"
            "else:\n"
            "    while True:\n"
            "        try: c = socket.create_connection((sys.argv[1], port), source_address=(os.environ['IP'], 0)); break\n"
            "        except OSError: time.sleep(.02)\n"
            "    c.sendall(b'hello')\n"
        )
        env = [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "PEER", "value": "job-node-0-1.job.default.svc"},
        ]
        document = jobset(step(command=python(code, "job-node-0-0.job", "7001"), pods=2, container_fields={"env": env}))
        assert run(local, document).phase == "Succeeded"
        assert log(local) == "hello True\n"


class TestPorts:
    def test_a_free_port_stays(self, tmp_path: Path) -> None:
        """Another program may take one of the ports in between, but hardly all."""
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(10)]
            for probe in probes:
                probe.bind(("", 0))
            free = [probe.getsockname()[1] for probe in probes]
        leases = Leases(tmp_path)
        ports = leases.ports([*free, *free])
        leases.release()
        assert ports.keys() == set(free) and any(port == given for port, given in ports.items())

    def test_a_port_of_another_job_or_program_is_replaced(self, tmp_path: Path) -> None:
        first, second = Leases(tmp_path / "home"), Leases(tmp_path / "another-home" if LINUX else tmp_path / "home")
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            used = server.getsockname()[1]
            assert first.ports([used])[used] != used
        [port] = first.ports([used]).values()
        assert second.ports([port])[port] not in (port, used)
        first.release()
        second.release()

    @pytest.mark.parametrize(("outgoing", "expected"), [("32768 60999", range(20000, 32768)), ("1024 65535", None)])
    def test_no_outgoing_connection_takes_it_before_the_job_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outgoing: str, expected: range | None
    ) -> None:
        (tmp_path / "range").write_text(outgoing)
        monkeypatch.setattr(leases_module, "OUTGOING_PORTS", tmp_path / "range")
        leases = Leases(tmp_path)
        with socket.create_server(("", 0)) as server:
            used = server.getsockname()[1]
            other = leases.ports([used])[used]
        leases.release()
        assert other != used and (expected is None or other in expected)

    def test_two_jobs_with_one_port(self, local: LocalTarget) -> None:
        """Both listen on all addresses, as PyTorch's store does."""
        code = (
            "import os, socket, time\n"
            "s = socket.create_server(('', int(os.environ['PORT'])))\n"
            "print(os.environ['PORT'], os.environ['URL'], flush=True); time.sleep(120)"
        )
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        env = [{"name": "PORT", "value": str(port)}, {"name": "URL", "value": f"tcp://localhost:{port}"}]
        fields = {"env": env, "ports": [{"containerPort": port}]}
        seen = set()
        for name in ("a", "b"):
            local.jobs.create(submission(jobset(step(command=python(code), container_fields=fields), name=name)))
            text = eventually(lambda name=name: log(local, f"{name}-node-0-0", name))
            used, url = text.split()
            assert url.endswith(f":{used}")
            seen.add(used)
        assert len(seen) == 2
        assert str(port) in seen


@pytest.mark.usefixtures("four_gpus")
class TestGpus:
    def test_are_counted(self) -> None:
        assert machine.gpus() == 4

    def test_pods_get_disjoint_ones(self, local: LocalTarget) -> None:
        assert run(local, jobset(step(command=python(SHOW), pods=2, container_fields=gpus(2)))).phase == "Succeeded"
        assert sorted([log(local), log(local, "job-node-0-1")]) == ["gpus 0,1\n", "gpus 2,3\n"]

    @pytest.mark.parametrize(
        ("visible", "usable"),
        [
            (None, [0, 1, 2, 3]), ("2,3", [2, 3]), ("3, 1", [3, 1]), ("GPU-2,0", [2, 0]), ("", []), ("-1", []),
            ("1,-1,2", [1]), ("1,1", [1]), ("7", []), ("GPU-", []), ("MIG-0", []),
        ],
    )  # fmt: skip
    def test_what_the_user_sees(self, visible: str | None, usable: list[int]) -> None:
        assert machine.visible_gpus(visible) == usable

    def test_jobs_get_those_that_the_user_sees(self, local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-3")
        assert run(local, jobset(step(command=python(SHOW), container_fields=gpus(1)))).phase == "Succeeded"
        assert log(local) == "gpus 2\n"
        refusals, _ = local.jobs.review(submission(jobset(step(pods=3, container_fields=gpus(1)))).objects)
        assert "needs 3 GPUs at one time, but this machine has 2 (CUDA_VISIBLE_DEVICES=2,GPU-3)" in str(refusals[0])

    def test_none_asked_for_none_seen(self, local: LocalTarget) -> None:
        run(local, jobset(step(command=python(SHOW))))
        assert log(local) == "gpus \n"

    def test_none_asked_for_none_seen_whatever_env_says(self, local: LocalTarget) -> None:
        run(
            local,
            jobset(
                step(command=python(SHOW), container_fields={"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "1"}]})
            ),
        )
        assert log(local) == "gpus \n"

    def test_are_given_on_to_the_next_pod_of_the_job(self, local: LocalTarget) -> None:
        document = jobset(step(command=python(SHOW), pods=3, job={"parallelism": 1}, container_fields=gpus(4)))
        assert run(local, document).phase == "Succeeded"

    def test_too_few_are_a_refusal(self, local: LocalTarget) -> None:
        refusals, _ = local.jobs.review(submission(jobset(step(pods=5, container_fields=gpus(1)))).objects)
        assert [str(r) for r in refusals] == [
            "JobSet/job: nvidia.com/gpu: needs 5 GPUs at one time, but this machine has 4. Hint: ask for fewer (num_nodes,"
            " resources_per_node), or use the Kubernetes target"
        ]

    def test_steps_after_each_other_need_no_more_than_one_of_them(self, local: LocalTarget) -> None:
        needed = [{"name": "a", "status": "Complete"}]
        document = jobset(
            step("a", pods=4, container_fields=gpus(1)), step("b", pods=4, container_fields=gpus(1), dependsOn=needed)
        )
        assert local.jobs.review(submission(document).objects)[0] == []

    def test_a_job_waits_for_those_of_another(self, local: LocalTarget) -> None:
        local.jobs.create(submission(jobset(step(command=python(HOLD), container_fields=gpus(3)), name="first")))
        eventually(lambda: log(local, "first-node-0-0", "first"))
        local.jobs.create(submission(jobset(step(command=python(SHOW), container_fields=gpus(2)), name="second")))
        status = wait(local, "second", until=lambda s: s.reason != "")
        assert (status.phase, status.reason) == ("Pending", "WaitingForGPUs")
        assert status.message == "needs 2 of 4 GPUs: behind first"
        third = jobset(step(command=python(SHOW), container_fields=gpus(1)), name="third")
        assert run(local, third).phase == "Succeeded", "who waits holds nothing"
        supervisor = supervisor_of(local, "first")
        supervisor.kill()
        assert wait(local, "first").reason == "SupervisorLost"
        assert wait(local, "second").phase == "Succeeded", "a dead holder gives back what it held"

    @pytest.mark.skipif(not LINUX, reason="leases of other systems are files")
    def test_a_job_waits_for_those_of_another_user(self, local: LocalTarget, tmp_path: Path) -> None:
        other = Leases(tmp_path / "home-of-another" / "leases")
        assert other.gpus(3, range(4), "theirs") == ([0, 1, 2], [])
        local.jobs.create(submission(jobset(step(command=python(SHOW), container_fields=gpus(2)))))
        status = wait(local, until=lambda s: s.reason != "")
        assert (status.phase, status.reason) == ("Pending", "WaitingForGPUs")
        assert status.message == "needs 2 of 4 GPUs: behind a job with another home folder"
        one = jobset(step(command=python(SHOW), container_fields=gpus(1)), name="one")
        assert run(local, one).phase == "Succeeded" and log(local, "one-node-0-0", "one") == "gpus 3\n"
        other.release()
        assert wait(local).phase == "Succeeded"

    @pytest.mark.skipif(not LINUX, reason="leases of other systems are files")
    def test_a_gpu_is_one_whatever_its_index_in_a_container(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        outside = Leases(tmp_path / "outside")
        assert outside.gpus(1, [2]) == ([2], [])
        third = machine.listed_gpus()[2]
        monkeypatch.setattr(leases_module, "listed_gpus", lambda: {0: third, 1: f"GPU-{uuid.uuid4()}"})
        inside = Leases(tmp_path / "inside")
        assert inside.gpus(1, [0]) == ([], ["a job with another home folder"])
        assert inside.gpus(1, [0, 1]) == ([1], [])
        outside.release()
        assert inside.gpus(1, [0]) == ([0], [])
        inside.release()

    def test_a_waiting_job_can_be_deleted(self, local: LocalTarget) -> None:
        held = Leases()
        assert held.gpus(4, range(4)) == ([0, 1, 2, 3], [])
        local.jobs.create(submission(jobset(step(container_fields=gpus(1)))))
        status = wait(local, until=lambda s: s.reason == "WaitingForGPUs")
        assert status.message == "needs 1 of 4 GPUs: behind other jobs of this machine", "the holder has left no name"
        local.jobs.delete(NAMESPACE, "job")
        held.release()


def test_a_single_gpu_is_one(local: LocalTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, monkeypatch, "GPU 0: x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refusals, _ = local.jobs.review(submission(jobset(step(container_fields=gpus(1)))).objects)
    assert "needs 1 GPU at one time, but this machine has 0 (CUDA_VISIBLE_DEVICES=)" in str(refusals[0])


@pytest.mark.parametrize(("output", "then"), [("GPU 0: x", "exit 9"), ("No devices were found", ""), ("", "")])
def test_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, then: str) -> None:
    program(tmp_path, monkeypatch, output, then)
    assert machine.gpus() == 0


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() == 0
