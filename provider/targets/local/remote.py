"""A node that processes can be started on, and what starts them: here, what sshd and ssh are for `mpirun` in a cluster.

`python remote.py serve` stands in for sshd: it starts what it is asked to in its own environment, so that this is part of
the node's container: its output is in that container's log, and it ends with it. `AGENT` stands in for ssh: it asks the node
at an address, and ends as the command does. Only the user's own processes can ask, since the sockets lie in a folder that
is theirs alone. `plan` puts both into the environment of a job that uses MPI. Standard library only: the agent runs in the
interpreter of the job.
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
"""How the name of Trainer's ConfigMap with the hostfile ends."""
HOSTFILE = "hostfile"
"""Its file: a line `HOST slots=N` for each node."""

FOLDER_ENV = "PULUMI_TRAINER_NODES"
"""Folder of the sockets, each called as its node's address."""
ADDRESS_ENV = "PULUMI_TRAINER_ADDRESS"
"""Address of the node that a process belongs to."""
AGENT_ENV = "PULUMI_TRAINER_AGENT"
"""Path of this file."""

AGENT = f"python3 -c exec(compile(open(__import__('os').environ['{AGENT_ENV}']).read(),'agent','exec'))"
"""The launch agent in Open MPI's words. It cuts them at blanks and colons, so no path may stand in them."""

ATTEMPTS = 100
"""Times that a node is asked which does not listen yet, a tenth of a second apart."""

_SSH_OPTIONS = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"


def variables(folder: str, address: str, root: bool) -> dict[str, str]:
    """What `mpirun`, its daemons and the processes of a job need on this machine. root: whose processes they are.

    Names are those of Open MPI 4 (OMPI_*), which 5 knows too, and of its launcher PRRTE (PRTE_*). The daemons stay in their
    container, and their files in `folder`, which goes with the job. All nodes are this machine: they talk over its loopback
    interface, none binds its processes to the first processors, and who waits lets others go first. The map of processors is
    not shared between daemons (`vmhole`): its place in memory collides with the stack on recent kernels.
    """
    may = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT") if root else ()
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return {
        FOLDER_ENV: folder,
        ADDRESS_ENV: address,
        AGENT_ENV: os.path.abspath(__file__),  # noqa: PTH100
        **{name + end: "1" for name in may for end in ("", "_CONFIRM")},
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


def words(command: str, environment: dict[str, str]) -> list[str]:
    """argv of a command that was written for a shell. `PATH=/opt/bin:$PATH ; export PATH ;` may stand before it, as
    Open MPI writes it when its own folder is known: such assignments go into `environment`.
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
    """Exit code of a command in the environment of this process; what it prints goes where ours goes."""
    environment = dict(os.environ)
    argv = words(command, environment)
    try:
        code = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL).returncode
    except OSError as error:
        print(f"pulumi-trainer: cannot start {argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    return code if code >= 0 else 128 - code


def ask(arguments: list[str]) -> int:
    """The agent: `[options of ssh] HOST COMMAND...`; its exit code is the command's, or 255 as ssh's."""
    _, (host, *rest) = getopt.getopt(arguments, _SSH_OPTIONS)
    command = " ".join(rest)
    if host == os.environ[ADDRESS_ENV]:  # the launcher is a node as well
        return run(command)
    with socket.socket(socket.AF_UNIX) as node:
        if not _reached(node, os.environ[FOLDER_ENV] + "/" + host):
            print(f"pulumi-trainer: no node of this job listens at {host}", file=sys.stderr)
            return 255
        node.sendall(json.dumps(command).encode() + b"\n")
        with node.makefile("rb") as answers:
            answer = answers.read()
    return int(answer) if answer else 255


def _reached(node: socket.socket, path: str) -> bool:
    for _ in range(ATTEMPTS):
        try:
            node.connect(path)
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def serve() -> None:
    """Until it is ended."""
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
            pass  # nobody waits for it any longer


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    sys.exit(ask(sys.argv[1:]))
