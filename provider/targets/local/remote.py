"""Replaces sshd and ssh for `mpirun` on this machine.

`python remote.py serve` replaces sshd: it runs commands in its own environment, so that they belong to the node's container:
their output is in its log, and they end with it. `AGENT` replaces ssh: it sends a command to the node at an address, and exits
with the command's exit code. Only processes of the user can connect, because the folder of the sockets is private. `plan` adds
both to the environment of a job that uses MPI. Standard library only: the agent runs in the interpreter of the job.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import threading
import time

HOSTFILE_MAP = "-mpi-hostfile"
"""Suffix of the name of Trainer's ConfigMap with the hostfile."""
HOSTFILE = "hostfile"
"""Key in that ConfigMap: a line `HOST slots=N` for each node."""

FOLDER_ENV = "PULUMI_TRAINER_NODES"
"""Variable with the folder of the sockets, each named by its node's address."""
ADDRESS_ENV = "PULUMI_TRAINER_ADDRESS"
"""Variable with the address of the node that a process belongs to."""
AGENT_ENV = "PULUMI_TRAINER_AGENT"
"""Variable with the path of this file."""

AGENT = f"python3 -c exec(compile(open(__import__('os').environ['{AGENT_ENV}']).read(),'agent','exec'))"
"""The launch agent as a setting of Open MPI, which splits it at blanks and colons, so it must not contain a path."""

ATTEMPTS = 100
"""Attempts to connect to a node that does not listen yet, a tenth of a second apart."""

_SSH_OPTIONS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"


def mpi_variables(folder: str, address: str, root: bool) -> dict[str, str]:
    """Return the variables that `mpirun`, its daemons and the processes of a job need on this machine.

    Names are those of Open MPI 4 (OMPI_*), which 5 supports too, and of its launcher PRRTE (PRTE_*). The daemons stay in their
    containers. All nodes are this machine: they communicate over its loopback interface, do not bind processes to the first
    processors, and yield when idle. The map of processors is not shared between daemons (`vmhole`), because its address collides
    with the stack on recent kernels. MLX looks for `libmpi.so`, a file of Open MPI's development package, unless it has a name.

    Args:
        folder: Folder of the sockets and of the daemons' files, which is removed with the job.
    """
    import ctypes.util  # the agent needs none

    allow = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
             "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")  # fmt: skip
    loopback = "lo" if sys.platform == "linux" else "lo0"
    library = ctypes.util.find_library("mpi")
    return {
        **({"MLX_MPI_LIBNAME": library} if library else {}),
        FOLDER_ENV: folder,
        ADDRESS_ENV: address,
        AGENT_ENV: os.path.abspath(__file__),  # noqa: PTH100
        **(dict.fromkeys(allow, "1") if root else {}),
        "OMPI_MCA_plm_rsh_agent": AGENT,
        "PRTE_MCA_plm_ssh_agent": AGENT,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_orte_tmpdir_base": folder,
        "PRTE_MCA_prte_tmpdir_base": folder,
        "OMPI_MCA_btl_vader_backing_directory": folder,
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "OMPI_MCA_if_base_retain_loopback": "1",
        "OMPI_MCA_oob_tcp_if_include": loopback,
        "OMPI_MCA_btl_tcp_if_include": loopback,
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,vader,tcp",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_rtc_hwloc_vmhole": "none",
    }


def parse_command(command: str, environment: dict[str, str]) -> list[str]:
    """Return the argv of a shell command, and add its assignments to `environment`.

    Open MPI writes `PATH=/opt/bin:$PATH ; export PATH ;` before a command if its own folder is known.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    for word in lexer:
        assigned = re.fullmatch(r"(?s)([A-Za-z_]\w*)=(.*)", word)
        if word == ";":
            found = []
        elif assigned and not found:
            environment[assigned[1]] = re.sub(r"\$\{?(\w+)\}?", lambda m: environment.get(m[1], ""), assigned[2])
        else:
            found.append(word)
    return found


def run(command: str) -> int:
    """Run a shell command with the environment and the output of this process, and return its exit code."""
    environment = dict(os.environ)
    argv = parse_command(command, environment)
    try:
        code = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL).returncode
    except OSError as error:
        print(f"pulumi-trainer: cannot start {argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    return code if code >= 0 else 128 - code


def run_on_node(arguments: list[str]) -> int:
    """Run a command on a node, and return its exit code, or 255 like ssh. arguments: `[options of ssh] HOST COMMAND...`."""
    _, (host, *rest) = getopt.getopt(arguments, _SSH_OPTIONS)
    command = " ".join(rest)
    if host == os.environ[ADDRESS_ENV]:  # the launcher is also a node
        return run(command)
    with socket.socket(socket.AF_UNIX) as node:
        if not _connect(node, os.environ[FOLDER_ENV] + "/" + host):
            print(f"pulumi-trainer: no node of this job listens at {host}", file=sys.stderr)
            return 255
        node.sendall(json.dumps(command).encode() + b"\n")
        with node.makefile("rb") as answers:
            answer = answers.read()
    return int(answer) if answer else 255


def _connect(node: socket.socket, path: str) -> bool:
    for _ in range(ATTEMPTS):
        try:
            node.connect(path)
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def serve() -> None:
    """Run the commands that agents send to this node, until this process is killed."""
    folder = os.environ[FOLDER_ENV]
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    made = os.lstat(folder)
    if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid() or made.st_mode & 0o077:
        sys.exit(f"pulumi-trainer: {folder} is not a folder of this user alone, so nobody is answered there")
    path = folder + "/" + os.environ[ADDRESS_ENV]
    if os.path.exists(path):  # noqa: PTH110 (of an earlier start of this container)
        os.unlink(path)  # noqa: PTH108
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(128)
        while True:
            threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


def _answer(asker: socket.socket) -> None:
    with asker, asker.makefile("rb") as text:
        code = run(json.loads(text.readline()))
        try:
            asker.sendall(str(code).encode())
        except OSError:
            pass  # the agent has exited


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    sys.exit(run_on_node(sys.argv[1:]))
