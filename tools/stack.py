"""Runs the Pulumi CLI on a stack of this clone: its own home, backend and passphrase; clears what a killed CLI left.

Called by the Makefile: `stack.py up|preview|logs|down|env [--stack NAME]`. Also imported by the tests.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pulumi_cli
import setup

ROOT = setup.ROOT
STACKS = {"local": "local", "kubernetes": "kubernetes"}
"""Stack of this clone -> its target."""


def environment(root: Path = ROOT) -> dict[str, str]:
    """All that a self-contained run of the CLI needs; nothing is written outside `root` and our cache."""
    cli = pulumi_cli.ensure(setup.CACHE, setup.say)
    folders = [str(setup.VENV / "bin"), *([str(cli)] if cli else [])]
    inherited = {k: v for k, v in os.environ.items() if k not in ("PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE")}
    return {
        **inherited,
        **setup.caches(),
        "PATH": os.pathsep.join([*folders, os.environ.get("PATH", "")]),
        "PULUMI_HOME": str(root / ".pulumi"),
        "PULUMI_BACKEND_URL": f"file://{root / '.pulumi-state'}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase(root)),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DIY_BACKEND_GZIP": "1",
        "PULUMI_TRAINER_PROGRESS": "tty" if sys.stdout.isatty() else "lines",
    }


def passphrase(root: Path) -> Path:
    """The file with the passphrase of this clone's stacks, made on first use, for its owner's eyes only."""
    file = root / ".pulumi-state" / "passphrase"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_urlsafe(32))
    return file


def clear_dead_locks(root: Path, stack: str) -> bool:
    """Removes locks of `stack` whose process on this host is dead; True where there was one. A live one ends us."""
    cleared = False
    for lock in (root / ".pulumi-state" / ".pulumi" / "locks").glob(f"*/*/{stack}/*.json"):
        try:
            held = json.loads(lock.read_text())
            pid, host = int(held["pid"]), str(held["hostname"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a lock that we understand: the CLI will say what it thinks of it
        if host != socket.gethostname():
            sys.exit(
                f"stack {stack} is locked on host {host} by process {pid}; when that is over: pulumi cancel {stack}"
            )
        if alive(pid):
            since = held.get("timestamp", "?")
            sys.exit(f"stack {stack} is in use by process {pid} since {since}: wait for it, or end it")
        print(f"the lock of process {pid}, which is dead, is removed", flush=True)
        lock.unlink(missing_ok=True)
        cleared = True
    return cleared


def alive(pid: int) -> bool:
    """Whether that process is a Pulumi CLI; after a crash the number may be somebody else's."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and "pulumi" in process.name()
    except psutil.Error:
        return False


def drop_pending_operations(stack: str, env: dict[str, str], root: Path = ROOT) -> None:
    """What a killed CLI was about to create: our creates find their own objects, so the marks can go."""
    exported = pulumi(["stack", "export", "--stack", stack], env, root)
    state = json.loads(exported)
    if not (state.get("deployment") or {}).get("pending_operations"):
        return
    del state["deployment"]["pending_operations"]
    print("operations that were cut off are taken up again", flush=True)
    pulumi(["stack", "import", "--stack", stack], env, root, json.dumps(state))


def pulumi(argv: list[str], env: dict[str, str], root: Path, stdin: str | None = None) -> str:
    """Output of a command of the CLI that has to succeed."""
    done = subprocess.run(
        ["pulumi", *argv, "--non-interactive"],
        cwd=root,
        env=env,
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr or done.stdout)
    return done.stdout


def exists(stack: str, root: Path = ROOT) -> bool:
    """Whether the stack was ever made."""
    return any((root / ".pulumi-state" / ".pulumi" / "stacks").glob(f"*/{stack}.json*"))


def ready(stack: str, env: dict[str, str], root: Path = ROOT) -> None:
    """Makes the stack on first use and clears what a killed CLI has left of an earlier run."""
    if not exists(stack, root):
        pulumi(["stack", "init", stack, "--no-select"], env, root)
    if (
        not (root / f"Pulumi.{stack}.yaml").exists()
        or "trainer:target" not in (root / f"Pulumi.{stack}.yaml").read_text()
    ):
        for key, value in config(stack).items():
            pulumi(["config", "set", key, value, "--stack", stack], env, root)
    if clear_dead_locks(root, stack):
        drop_pending_operations(stack, env, root)


def config(stack: str) -> dict[str, str]:
    """Configuration of a new stack. A cluster cannot read a file of this machine, so there the data has a URI."""
    values = {"trainer:target": STACKS[stack]}
    return {**values, "dataset": "s3://datasets/digits"} if stack == "kubernetes" else values


COMMANDS = {
    "up": ["up", "--yes", "--skip-preview"],
    "preview": ["preview", "--diff"],
    "down": ["destroy", "--yes", "--skip-preview"],
}


def main(argv: list[str]) -> int:
    """Exit code of the command."""
    command = argv[0]
    stack = argv[argv.index("--stack") + 1] if "--stack" in argv else "local"
    env = environment()
    if command == "exec":  # tests and checks in the same environment
        os.execvpe(argv[1], argv[1:], env)
    if command in ("down", "logs") and not exists(stack):
        print(f"stack {stack} does not exist: nothing to do")
        return 0
    ready(stack, env)
    if command == "logs":
        return subprocess.run(["pulumi-trainer", "logs", "--stack", stack], cwd=ROOT, env=env, check=False).returncode
    process = subprocess.Popen(["pulumi", *COMMANDS[command], "--stack", stack], cwd=ROOT, env=env)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the CLI got it too, and ends in its own way


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
