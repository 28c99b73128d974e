"""`Local(isolation="bwrap")` with the real bubblewrap: what a container sees, how it ends, and a training through the engine."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
from pathlib import Path

import psutil
import pytest
from pulumi_trainer.provider.targets.local import process
from pulumi_trainer.provider.targets.local.process import MARK
from pulumi_trainer.provider.targets.local.target import LocalTarget

from tests.engine.conftest import Project
from tests.unit.local_support import (
    NAMESPACE,
    config,
    eventually,
    home,
    jobset,
    kill_supervisor,
    living,
    local,
    log,
    python,
    run,
    step,
    submission,
    wait,
)  # fmt: skip

from .test_frameworks import SECONDS

__all__ = ["home", "local"]

pytestmark = [
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux, and elsewhere the plan refuses it"),
]


@pytest.fixture
def isolated(local: LocalTarget) -> LocalTarget:
    local.jobs.isolation = "bwrap"
    return local


def test_how_a_container_ends(isolated: LocalTarget, home: Path) -> None:
    assert run(isolated, jobset(step(command=python("print('well')"), name="node"))).phase == "Succeeded"
    codes = {
        "import sys; sys.exit(3)": "exit code 3",
        "import os; os.kill(os.getpid(), 9)": "signal 9 (SIGKILL), exit code 137",
    }
    for number, (code, said) in enumerate(codes.items()):
        status = run(isolated, jobset(step(command=python(code)), name=f"fails-{number}"))
        assert said in status.message, status.message
    absent = run(isolated, jobset(step(command=["no-such-program"]), name="absent"))
    assert "cannot start no-such-program" in absent.message
    eventually(lambda: not living(home))


SAVES = (
    "import os, signal, sys, time\n"
    "def end(*_): os.write(1, b'saving\\n'); time.sleep(0.5); os.write(1, b'saved\\n'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(120)"
)


@pytest.mark.parametrize("shell", [False, True], ids=["itself", "below a shell that ends first"])
def test_time_to_save_a_checkpoint(isolated: LocalTarget, home: Path, shell: bool) -> None:
    command = ["bash", "-c", 'python3 -S -c "$0" & wait', SAVES] if shell else python(SAVES)
    isolated.jobs.create(submission(jobset(step(command=command))))
    file = eventually(
        lambda: [path for _, _, path in isolated.logs.files(NAMESPACE, "job") if "up" in path.read_text()]
    )
    kept = file[0].open()  # the folder of the job goes with it
    isolated.jobs.delete(NAMESPACE, "job")
    assert "saved" in kept.read()
    eventually(lambda: not living(home))


def test_a_job_whose_supervisor_was_killed_leaves_no_process(isolated: LocalTarget, home: Path) -> None:
    isolated.jobs.create(
        submission(jobset(step(command=python("import time; print('up', flush=True); time.sleep(120)"))))
    )
    eventually(lambda: "up" in log(isolated))
    kill_supervisor(isolated)
    assert wait(isolated).phase == "Failed"
    isolated.jobs.delete(NAMESPACE, "job")
    eventually(lambda: not living(home))


WRITES = """
import os, sys
for path in sys.argv[1:]:
    try:
        open(os.path.join(path, "new"), "w").close()
        print(path, "written")
    except OSError as error:
        print(path, error.strerror)
"""


def test_what_a_container_may_write(isolated: LocalTarget, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "host")}},
    ]
    paths = {f"/{volume['name']}": volume["name"] for volume in volumes}
    mounts = [{"name": name, "mountPath": path} for path, name in paths.items()]
    mounts.append({"name": "data", "mountPath": "/read", "readOnly": True, "subPath": "below"})
    (isolated.root / "volumes/default/data/data/below").mkdir(parents=True)
    command = python(WRITES, *paths, "/read", str(isolated.root), str(tmp_path), "/etc")
    document = jobset(step(command=command, container_fields={"volumeMounts": mounts}, pod={"volumes": volumes}))
    assert run(isolated, document, config("settings", {"a": "b"})).phase == "Succeeded", log(isolated)
    said = [line.partition(" ")[2] for line in log(isolated).splitlines()]
    assert said[:5] == ["Read-only file system", "written", "written", "written", "Read-only file system"]
    assert "Read-only file system" in said[-1]
    assert (tmp_path / "host/new").exists() and not (tmp_path / "new").exists() and not (isolated.root / "new").exists()


ESCAPES = """
import os, sys
place, private = sys.argv[1:]
pod = os.path.dirname(os.path.dirname(os.getcwd()))
print("sees", *sorted(os.listdir(place)), flush=True)
try:
    open(os.path.join(place, "authorized_keys"), "w").close()
except OSError as error:
    print(error.strerror)
for path in (place, os.path.dirname(place), pod, os.getcwd()):
    try:
        os.rename(path, path + ".moved")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(private, path)
    except OSError as error:
        print(error.strerror)
sys.exit(1)
"""


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder of the user, with the names of the folders of a Pod."""
    for name in ("data", "volumes/data", "job-node-0-0/volumes/data"):
        folder = tmp_path / "private" / name
        folder.mkdir(parents=True)
        (folder / "of-the-user").touch()
    return tmp_path / "private"


@pytest.mark.parametrize("source", [{"emptyDir": {}}, {"configMap": {"name": "data"}}], ids=["emptyDir", "configMap"])
@pytest.mark.parametrize("job", [{"backoffLimit": 3}, {"backoffLimit": 0}], ids=["Pod", "JobSet"])
@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_restarted_container_does_not_get_what_a_link_in_its_pod_leads_to(
    isolated: LocalTarget, private: Path, source: dict[str, object], job: dict[str, int], policy: str
) -> None:
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = {"volumes": [{"name": "data", **source}], "restartPolicy": policy}
    command = python(ESCAPES, "/data", str(private))
    document = jobset(
        step(command=command, container_fields=mounts, pod=pod, job=job), failurePolicy={"maxRestarts": 2}
    )
    status = run(isolated, document, config("data", {"a": "b"}))
    assert status.phase == "Failed"
    said = log(isolated)
    assert "sees" in said and "of-the-user" not in said, said
    assert status.restarts or said.count("sees") > 1
    assert not [*private.rglob("authorized_keys")], "it was written in a folder of the user"
    assert not [path for path in isolated.root.rglob("*") if path.is_symlink()]


LINKS = """
import os, sys
os.rename(sys.argv[1] + "/sub", sys.argv[1] + "/moved")
os.symlink(sys.argv[2], sys.argv[1] + "/sub")
"""


@pytest.mark.parametrize("claim", [False, True], ids=["emptyDir", "claim"])
@pytest.mark.parametrize("target", ["outside", "moved"])
def test_a_subpath_that_an_init_container_replaces(
    isolated: LocalTarget, private: Path, target: str, claim: bool
) -> None:
    whole, part = ({"name": "data", "mountPath": path} for path in ("/data", "/part"))
    target = target.replace("outside", str(private))
    pod = {
        "volumes": [{"name": "data", **({"persistentVolumeClaim": {"claimName": "d"}} if claim else {"emptyDir": {}})}],
        "initContainers": [
            {"name": "init", "image": "x", "command": python(LINKS, "/data", target), "volumeMounts": [whole]}
        ],
    }
    command = python("import os, sys; print('sees', *os.listdir(sys.argv[1]))", "/part")
    fields = {"volumeMounts": [{**part, "subPath": "sub"}]}
    status = run(isolated, jobset(step(command=command, container_fields=fields, pod=pod)))
    if target == "moved":
        assert status.phase == "Succeeded" and log(isolated).strip() == "sees", (
            "as in Kubernetes, it stays in its volume"
        )
    else:
        assert status.phase == "Failed" and "leads out of its volume, and is not mounted" in status.message
        assert "sees" not in log(isolated)


MPI = """
echo "$OMPI_COMM_WORLD_RANK" > "rank-$OMPI_COMM_WORLD_RANK" && cat "$0/setting"
for path in "$(dirname "$0")" "$(dirname "$(dirname "$0")")"; do mv "$path" "$path.moved"; done
echo >> "$0/setting"; echo end
"""


def test_mpi_processes_share_a_folder_and_change_no_other(isolated: LocalTarget) -> None:
    hosts = config("job-mpi-hostfile", {"hostfile": "job-launcher-0-0 slots=1\njob-node-0-0 slots=1\n"})
    volumes = {
        "volumes": [
            {"name": "hosts", "configMap": {"name": "job-mpi-hostfile"}},
            {"name": "data", "configMap": {"name": "data"}},
        ]
    }
    fields = {"volumeMounts": [{"name": "hosts", "mountPath": "/etc/mpi"}, {"name": "data", "mountPath": "/data"}]}
    command = ["mpirun", "--hostfile", "/etc/mpi/hostfile", "-np", "2", "sh", "-c", MPI, "/data"]
    document = jobset(
        step("launcher", command, container_fields=fields, pod=volumes),
        step("node", ["/usr/sbin/sshd", "-De"]),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
    )
    status = run(isolated, document, hosts, config("data", {"setting": "from the launcher\n"}))
    said = "".join(path.read_text() for _, _, path in isolated.logs.files(NAMESPACE, "job"))
    assert status.phase == "Succeeded", said
    assert said.count("from the launcher") == said.count("end\n") == 2 and said.count("Read-only file system") >= 4
    scratch = isolated.root / "jobs/default/job/pods/.scratch"
    assert sorted(path.name for path in scratch.iterdir()) == ["rank-0", "rank-1"]


@pytest.mark.parametrize("isolation", ["bwrap", ""], ids=["isolated", "not isolated"])
def test_mpi_on_the_launcher_alone(local: LocalTarget, isolation: str) -> None:
    local.jobs.isolation = isolation
    hosts = config("job-mpi-hostfile", {"hostfile": "job-launcher-0-0 slots=2\n"})
    volumes = {"volumes": [{"name": "hosts", "configMap": {"name": "job-mpi-hostfile"}}]}
    fields = {"volumeMounts": [{"name": "hosts", "mountPath": "/etc/mpi"}]}
    shell = 'ls -d "$OMPI_MCA_orte_tmpdir_base" && touch "$OMPI_MCA_btl_vader_backing_directory/shared" && echo end'
    command = ["mpirun", "--hostfile", "/etc/mpi/hostfile", "-np", "2", "sh", "-c", shell]
    status = run(local, jobset(step("launcher", command, container_fields=fields, pod=volumes)), hosts)
    assert status.phase == "Succeeded" and log(local, "job-launcher-0-0").count("end") == 2


def test_no_secret_is_among_arguments(isolated: LocalTarget) -> None:
    env = {"env": [{"name": "TOKEN", "value": "hush-hush"}]}
    code = "import os, time; print(os.environ['TOKEN'], flush=True); time.sleep(120)"
    isolated.jobs.create(submission(jobset(step(command=python(code), container_fields=env))))
    eventually(lambda: "hush-hush" in log(isolated))
    uid = json.loads((isolated.root / "jobs/default/job/record.json").read_text())["uid"]
    words = []
    for each in psutil.process_iter():
        try:
            if each.environ().get(MARK, "").startswith(uid):
                words += each.cmdline()
        except psutil.Error:
            continue
    assert any(word.endswith("bwrap") for word in words) and not any("hush" in word for word in words)


SYSCTL = """
import os
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness"):
    try:
        with open(path) as file:
            now = file.read()
        open(path, "w").write(now)
        print("written")
    except OSError as error:
        print(error.strerror)
try:
    print("shadow:", open("/etc/shadow").read().strip())
except OSError:
    print("shadow:")
"""


def test_root_can_neither_change_the_kernel_nor_read_passwords(isolated: LocalTarget) -> None:
    assert run(isolated, jobset(step(command=python(SYSCTL)))).phase == "Succeeded", log(isolated)
    said = log(isolated).splitlines()
    assert "written" not in said and len(said) == 3 and said[-1].strip() == "shadow:", said


KEY = """
import ctypes
libc = ctypes.CDLL(None)
key, text = libc.syscall(NUMBER, 10, -3, b"user", b"of-the-user", 0), ctypes.create_string_buffer(20)
print("found", libc.syscall(NUMBER, 11, key, text, 20), text.value)
"""


@pytest.mark.parametrize("way", ["bwrap", ""], ids=["isolated", "not isolated"])
def test_the_keys_of_the_session_are_not_for_a_container(local: LocalTarget, way: str) -> None:
    add_key = {"x86_64": 248, "aarch64": 217}[platform.machine()]
    code = KEY.replace("NUMBER", str(process._KEYCTL[platform.machine()]))
    libc = ctypes.CDLL(None)
    key = libc.syscall(add_key, b"user", b"of-the-user", b"a ticket", 8, -3)
    assert key > 0
    local.jobs.isolation = way
    try:
        assert run(local, jobset(step(command=python(code)))).phase == "Succeeded", log(local)
    finally:
        libc.syscall(process._KEYCTL[platform.machine()], 3, key)
    assert log(local).strip() == ("found -1 b''" if way else "found 8 b'a ticket'")


LOOK = """
def look(private):
    import json, os, pathlib, time
    def reads(path):
        try:
            return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100_000).decode(errors="replace")
        except OSError as error:
            return type(error).__name__
    (peer,) = [name for name in ("isolated-a", "isolated-b") if name != os.environ["NAME"]]
    time.sleep(3)
    environments = [reads(f"/proc/{pid}/environ") for pid in os.listdir("/proc") if pid.isdigit()]
    print("found", json.dumps({
        "private": reads(private), "home": reads(os.path.expanduser("~/.ssh")), "docker": reads("/run/docker.sock"),
        "own": sum("NAME=" + os.environ["NAME"] in each for each in environments),
        "others": sum("NAME=" + peer in each for each in environments),
        "folder": reads(os.path.dirname(os.path.dirname(os.path.dirname(os.getcwd())))),
        "jobs": reads(ROOT),
    }))

for name in ("isolated-a", "isolated-b"):
    trainer.TrainJob(name, runtime=plain, target=trainer.Local(isolation="bwrap"), wait_for="complete",
        trainer=trainer.CustomTrainer(func=look, func_args={"private": PRIVATE}, env={"NAME": name}))
"""


def test_a_job_sees_neither_files_nor_processes_of_others(project: Project) -> None:
    private = Path.home() / ".pulumi-trainer-isolation-test"
    private.write_text("a credential")
    jobs = project.folder / ".pulumi-trainer/jobs/default"
    try:
        project.program(LOOK.replace("PRIVATE", repr(str(private))).replace("ROOT", repr(str(jobs))))
        project.up()
    finally:
        private.unlink()
    logs = [each.read_text() for each in (project.folder / ".pulumi-trainer").rglob("node.log")]
    found = [json.loads(line.partition("found ")[2]) for line in "".join(logs).splitlines() if "found " in line]
    assert len(found) == 2
    for each in found:
        assert (each["private"], each["home"], each["docker"]) == ("FileNotFoundError",) * 3
        assert each["own"] and not each["others"] and len(each["jobs"]) == 1


TRAINING = """
def train():
    import os
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    print("the sum is", int(total.item()), "without home:", not os.path.exists(os.path.expanduser("~/.cache/pip")))

trainer.TrainJob("isolated", runtime="torch-distributed", name="isolated", wait_for="complete",
    target=trainer.Local(isolation="bwrap"),
    trainer=trainer.CustomTrainer(func=train, num_nodes=2, packages_to_install=["torch>=2.6,<3", "numpy"]))
"""


def test_two_nodes_that_install_their_packages(project: Project) -> None:
    project.program(TRAINING, head="import pulumi\nimport pulumi_trainer as trainer\n")
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, up
    assert project.logs("isolated").count("the sum is 3 without home: True") == 2


def test_the_plan_says_why_nothing_can_be_isolated(project: Project, tmp_path: Path) -> None:
    job = """
def work():
    pass

trainer.TrainJob("job", runtime=plain, target=trainer.Local(isolation="{}"), trainer=trainer.CustomTrainer(func=work))
"""
    project.program(job.format("docker"))
    assert "target.isolation: must be bwrap, not 'docker'" in project.preview(ok=False).out
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    project.program(job.format("bwrap"))
    project.env = {"PATH": os.pathsep.join([str(tmp_path), project.environment["PATH"]])}
    out = project.preview(ok=False).out
    assert "target.isolation: bwrap does not work here: No permissions to create new namespace" in out, out


def test_a_job_that_was_created_without_isolation_is_told(project: Project) -> None:
    job = """
def work():
    pass

trainer.TrainJob("job", runtime=plain, target=trainer.Local({}), trainer=trainer.CustomTrainer(func=work), wait_for="complete"{})
"""
    isolated, warned = 'isolation="bwrap"', "was created with no isolation, but the program has isolation='bwrap'"
    project.program(job.format("", ""))
    project.up()
    project.program(job.format(isolated, ""))
    assert warned in project.preview().out
    project.program(job.format(isolated, ', run="2"'))
    assert warned not in project.up().out
    assert "was created" not in project.preview("--expect-no-changes").out
