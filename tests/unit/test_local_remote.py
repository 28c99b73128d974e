"""What stands in for ssh and sshd, in jobs whose launcher starts processes on their nodes as `mpirun` would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, eventually, jobset, living, log, python, run, step, submission, wait
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local import LocalTarget, local_limits, remote

HOSTS = ("job-node-0-0", "job-node-0-1", "job-launcher-0-0")

LAUNCH = """
import os, subprocess, sys
hosts = [line.split()[0] for line in open("/etc/mpi/hostfile".replace("/etc/mpi", sys.argv[1]))]
agent = [*os.environ["OMPI_MCA_plm_rsh_agent"].split(" "), *os.environ.get("OMPI_MCA_plm_rsh_args", "").split()]
for host in hosts:
    print(host, subprocess.call([*agent, host, sys.argv[2]]), flush=True)
"""


def mpi(command: str, *, launcher: str = LAUNCH, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job of two nodes and a launcher, which is a node as well, and its hostfile."""
    env = [{"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"}]
    launching = {"env": env, "volumeMounts": [{"name": "hosts", "mountPath": "/etc/mpi"}]}
    hosts = {
        "name": "hosts",
        "configMap": {"name": "job-mpi-hostfile", "items": [{"key": "hostfile", "path": "hostfile"}]},
    }
    document = jobset(
        step("node", ["/usr/sbin/sshd", "-De"], pods=2, container_fields={"env": [{"name": "WHO", "value": "a node"}]}),
        step(
            "launcher", python(launcher, "/etc/mpi", command), container_fields=launching, pod={"volumes": [hosts]},
            dependsOn=[{"name": "node", "status": "Ready"}],
        ),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]}, **fields,
    )  # fmt: skip
    return document, config("job-mpi-hostfile", {"hostfile": "".join(f"{host}.job slots=1\n" for host in HOSTS)})


def say(text: str, then: str = "") -> str:
    """As `mpirun` writes a command with its own folder: for a shell."""
    program = f'python3 -S -c "import os, sys, time; print({text}, flush=True); {then or "pass"}"'
    return f" PATH=/opt/mpi:$PATH ; export PATH ; LIB=/opt/lib:$LIB ; export LIB ;  {program}"


def test_a_launcher_starts_processes_on_its_nodes(local: LocalTarget) -> None:
    text = "os.environ['HOSTNAME'], os.environ.get('WHO'), os.environ['PATH'].split(':')[0], os.environ['LIB'], os.getcwd()"
    status = run(local, *mpi(say(text)))
    assert status.phase == "Succeeded", (status.message, log(local, HOSTS[2]))
    pods = local.root / "jobs" / NAMESPACE / "job" / "pods"
    for host in HOSTS[:2]:
        assert log(local, host) == f"{host} a node /opt/mpi /opt/lib: {pods / host / 'scratch'}\n"
    said = log(local, HOSTS[2]).splitlines()
    assert said[2].startswith(f"{HOSTS[2]} None /opt/mpi") and len(said) == 4
    addresses = [line.split() for line in (said[0], said[1], said[3])]
    assert len({address for address, _ in addresses}) == 3, said
    assert all(address.startswith("127.") and code == "0" for address, code in addresses), said


def test_exit_codes_come_back(local: LocalTarget) -> None:
    status = run(local, *mpi(say("''", "sys.exit(int(os.environ['JOB_COMPLETION_INDEX']) + 3)")))
    assert status.phase == "Succeeded"
    assert [line.split()[1] for line in log(local, HOSTS[2]).splitlines() if line.startswith("127")] == ["3", "4", "3"]


def test_a_signal_and_a_missing_program_have_codes_too(local: LocalTarget) -> None:
    run(local, *mpi(say("''", "os.kill(os.getpid(), 9)")))
    assert [line.split()[1] for line in log(local, HOSTS[2]).splitlines() if line.startswith("127")] == ["137"] * 3
    local.jobs.delete(NAMESPACE, "job", grace=0)
    run(local, *mpi("no-such-program --flag"))
    assert "cannot start no-such-program: No such file or directory" in log(local, HOSTS[0])
    assert [line.split()[1] for line in log(local, HOSTS[2]).splitlines() if line.startswith("127")] == ["127"] * 3


def test_a_cancelled_job_leaves_nothing_of_what_was_started(local: LocalTarget, home: Path) -> None:
    local.jobs.create(submission(*mpi(say("'here'", "time.sleep(600)"))))
    eventually(lambda: "here" in log(local, HOSTS[0]))
    started = [p for p in living(home) if "time.sleep(600)" in p.cmdline()[-1]]
    assert len(started) >= 1
    local.jobs.delete(NAMESPACE, "job", grace=0)
    assert not living(home)


def test_a_finished_launcher_ends_what_it_has_left_on_the_nodes(local: LocalTarget, home: Path) -> None:
    there = f"open('{home}/here-' + os.environ['HOSTNAME'], 'w').close()"
    wait_for_all = f"""
import time
while sum(name.startswith("here-") for name in os.listdir("{home}")) < 3:
    time.sleep(0.02)
"""
    behind = LAUNCH.replace("subprocess.call(", "subprocess.Popen(") + wait_for_all
    status = run(local, *mpi(say("'here'", f"{there}; time.sleep(600)"), launcher=behind))
    assert status.phase == "Succeeded" and "here" in log(local, HOSTS[0])
    eventually(lambda: not living(home))


def test_an_address_of_nobody(local: LocalTarget, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setenv(remote.ADDRESS_ENV, "127.64.0.1")
    monkeypatch.setenv(remote.FOLDER_ENV, str(local.root))
    assert remote.run_on_node(["-x", "-p", "22", "127.64.0.9", "true"]) == 255
    assert "no node of this job listens at 127.64.0.9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "expected", "path"),
    [
        ("orted -mca ess env", ["orted", "-mca", "ess", "env"], "/bin"),
        (
            'orted -mca orte_hnp_uri "1.0;tcp://127.0.0.1:9" ',
            ["orted", "-mca", "orte_hnp_uri", "1.0;tcp://127.0.0.1:9"],
            "/bin",
        ),
        ("PATH=/o:$PATH ; export PATH ; /o/orted a=b", ["/o/orted", "a=b"], "/o:/bin"),
        ("PATH=/o:${PATH}; export PATH; /o/orted '$PATH #x'", ["/o/orted", "$PATH #x"], "/o:/bin"),
        ("PATH=/o:$NONE prted", ["prted"], "/o:"),
    ],
)
def test_commands_are_read_without_a_shell(command: str, expected: list[str], path: str) -> None:
    environment = {"PATH": "/bin"}
    assert remote.parse_command(command, environment) == expected
    assert environment["PATH"] == path


def test_the_agent_survives_how_open_mpi_cuts_its_words() -> None:
    """It may not hold a path: the project may lie in a folder with a blank or a colon in its name."""
    assert ":" not in remote.AGENT and len(remote.AGENT.split(" ")) == 3
    environment = remote.mpi_variables("/f", "127.64.0.1", root=False)
    assert Path(environment[remote.AGENT_ENV]).samefile(remote.__file__)
    assert not any("ROOT" in name for name in environment)
    assert {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} <= remote.mpi_variables(
        "/f", "a", root=True
    ).keys()


def test_jobs_without_mpi_have_none_of_it(local: LocalTarget) -> None:
    run(local, jobset(step(command=python("import os; print([v for v in os.environ if 'MPI' in v or 'NODES' in v])"))))
    assert log(local) == "[]\n"


def test_a_variable_of_the_job_wins(local: LocalTarget) -> None:
    document, hosts = mpi("true", launcher="import os; print(os.environ['OMPI_MCA_btl'])")
    launcher = document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]
    launcher["env"].append({"name": "OMPI_MCA_btl", "value": "self,tcp"})
    run(local, document, hosts)
    assert log(local, HOSTS[2]) == "self,tcp\n"


def test_mpirun_has_to_be_there(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = submission(*mpi("true")).objects
    monkeypatch.setenv("PATH", "/nowhere")
    (problem,), _ = local_limits.missing_programs(objects, local.jobs.python)
    assert "needs mpirun" in problem.why and "openmpi-bin" in problem.hint
    assert problem in local.jobs.review(objects, {})[0]
    assert local_limits.missing_programs(submission(jobset(step())).objects, local.jobs.python) == ([], [])


def test_what_starts_user_code_is_mapped_like_its_arguments(local: LocalTarget) -> None:
    data = {code.LAUNCH_FILE: json.dumps({"across": ["mpirun", "--hostfile", "/etc/mpi/hostfile"]}), "own": "/etc/mpi"}
    mounts = [{"name": "code", "mountPath": "/code"}, {"name": "hosts", "mountPath": "/etc/mpi"}]
    volumes = [{"name": name, "configMap": {"name": name}} for name in ("code", "hosts")]
    show = python(
        "import sys; print(open(sys.argv[1] + '/launch.json').read(), open(sys.argv[1] + '/own').read())", "/code"
    )
    fields = {"container_fields": {"volumeMounts": mounts}, "pod": {"volumes": volumes}}
    run(local, jobset(step(command=show, **fields)), config("code", data), config("hosts", {"hostfile": ""}))
    folder = local.root / "jobs" / NAMESPACE / "job" / "pods" / "job-node-0-0" / "volumes" / "hosts"
    assert log(local) == json.dumps({"across": ["mpirun", "--hostfile", f"{folder}/hostfile"]}) + " /etc/mpi\n"


def test_a_suspended_job_starts_its_nodes_again(local: LocalTarget) -> None:
    document, hosts = mpi(say("'here'"), suspend=True)
    local.jobs.create(submission(document, hosts))
    document["spec"]["suspend"] = False
    local.jobs.update(submission(document, hosts))
    assert wait(local).phase == "Succeeded" and "here" in log(local, HOSTS[1])


def test_mlx_gets_the_library_that_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for a file of Open MPI's development package."""
    monkeypatch.setattr("ctypes.util.find_library", {"mpi": "libmpi.so.40"}.get)
    assert remote.mpi_variables("/f", "a", root=False)["MLX_MPI_LIBNAME"] == "libmpi.so.40"
    monkeypatch.setattr("ctypes.util.find_library", dict[str, str]().get)
    assert "MLX_MPI_LIBNAME" not in remote.mpi_variables("/f", "a", root=False)


def test_ranks_of_two_jobs_meet_at_two_ports(local: LocalTarget) -> None:
    """All nodes share the network of this machine, and torch.distributed listens on all of its addresses."""
    ports = []
    for name in ("one", "two"):
        prints = "import os, time; print(os.environ['MASTER_PORT'], flush=True); time.sleep(600)"
        document, hosts = mpi("true", launcher=prints)
        launcher = document["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
        launcher["volumes"][0]["configMap"]["name"] = hosts["metadata"]["name"] = f"{name}-mpi-hostfile"
        document["metadata"]["name"] = name
        local.jobs.create(submission(document, hosts))
        eventually(lambda name=name: log(local, f"{name}-launcher-0-0", name))
        ports.append(log(local, f"{name}-launcher-0-0", name))
    for name in ("one", "two"):
        local.jobs.delete(NAMESPACE, name, grace=0)
    assert len({*ports}) == 2, ports
