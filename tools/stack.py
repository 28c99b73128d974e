"""Runs the Pulumi CLI on the stacks of this clone, which it makes on first use.

Called by the Makefile in `.venv`: `stack.py up|preview|preview-kubernetes|logs|down|clean|env`, `stack.py exec PROGRAM ...`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import locks
import psutil
import pulumi_cli
import setup
import yaml
from clone import Clone, environment

STACKS: dict[str, dict[str, str]] = {"local": {}, "kubernetes": {"trainer:target": "kubernetes"}}
"""Stack -> configuration that it begins with, on top of Pulumi.yaml's."""
COMMANDS = {
    "up": ("local", "up", "--yes", "--skip-preview"),
    "preview": ("local", "preview", "--diff"),
    "preview-kubernetes": ("kubernetes", "preview", "--diff"),
    "down": ("local", "destroy", "--yes", "--skip-preview"),
}
"""make target -> stack and command of the CLI."""


def say(text: str) -> None:
    """One short line of progress."""
    print(text, flush=True)


def pulumi(clone: Clone, env: dict[str, str], *argv: str, stdin: str = "") -> str:
    """Output of a command of the CLI that has to succeed."""
    done = subprocess.run(
        ["pulumi", *argv, "--non-interactive"], cwd=clone.root, env=env, input=stdin, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stderr or done.stdout}\npulumi {' '.join(argv)} failed")
    return done.stdout


def make(clone: Clone, env: dict[str, str], stack: str) -> None:
    """Makes the stack on first use. `local` is the one that commands by hand mean when they name none."""
    if stack in clone.stacks():
        return
    say(f"making the stack {stack} in {clone.state.name}/")
    if STACKS[stack]:
        (clone.state / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({"config": STACKS[stack]}))
    pulumi(clone, env, "stack", "init", stack, *([] if stack == "local" else ["--no-select"]))


def hint(clone: Clone, env: dict[str, str], stack: str) -> None:
    """Clears what a killed CLI has left of an earlier run; ends here where another one is still at it."""
    for lock in locks.clear_dead(clone, stack, say):
        sys.exit(
            f"stack {stack} is in use by {lock}. Wait until it is done, or end it. If it is gone for good:\n"
            f'  eval "$(make -s env)" && pulumi cancel --yes {stack}'
        )
    if clone.latest(stack).get("pending_operations"):
        say(f"stack {stack}: what was cut off in the last run is taken up again")
        exported = pulumi(clone, env, "stack", "export", "--stack", stack)
        pulumi(clone, env, "stack", "import", "--stack", stack, stdin=locks.without_pending(exported))


def working(clone: Clone) -> list[str]:
    """Processes that run jobs of this clone."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [process.cwd(), *process.cmdline()]
        except psutil.Error:
            continue
        if any(word.startswith(str(clone.jobs)) for word in told):
            found.append(f"{process.pid} {shlex.join(told[1:])[:100]}")
    return found


def clean(clone: Clone, env: dict[str, str]) -> None:
    """Destroys what any stack holds, so that the state can go; refuses while jobs run that no stack knows of."""
    for stack in clone.stacks():
        if clone.latest(stack).get("resources"):
            hint(clone, env, stack)
            code = subprocess.run(
                ["pulumi", "destroy", "--yes", "--skip-preview", "--stack", stack], cwd=clone.root, env=env, check=False
            ).returncode
            if code:
                sys.exit(f"stack {stack} could not be destroyed: nothing is removed")
    if running := working(clone):
        lines = "\n  ".join(running)
        sys.exit(
            f"processes still work in {clone.jobs.name}/, and no stack knows of them; nothing is removed:\n  {lines}"
        )


def become(clone: Clone, env: dict[str, str], *argv: str) -> NoReturn:
    """The program takes our place, so signals and the exit code are its own."""
    os.chdir(clone.root)
    os.execvpe(argv[0], argv, env)


def main(clone: Clone, command: str, *arguments: str) -> None:
    """One command of the Makefile."""
    watched = (sys.stderr if command == "env" else sys.stdout).isatty()
    try:
        env = environment(clone, pulumi_cli.ensure(setup.CACHE, setup.say), watched)
    except pulumi_cli.Unavailable as error:
        sys.exit(str(error))
    if command == "env":
        for name, value in env.items():
            if os.environ.get(name) != value:
                print(f"export {name}={shlex.quote(value)}")
    elif command == "exec":
        become(clone, env, *arguments)
    elif command == "clean":
        clean(clone, env)
    elif command in ("logs", "down") and "local" not in clone.stacks():
        say("nothing was started here: make up")
    elif command == "logs":
        become(clone, env, "pulumi-trainer", "logs", "--follow", "--stack", "local")
    else:
        stack, *argv = COMMANDS[command]
        make(clone, env, stack)
        if argv[0] != "preview":  # it asks for no lock
            hint(clone, env, stack)
        become(clone, env, "pulumi", *argv, "--stack", stack)


if __name__ == "__main__":
    main(Clone(Path(setup.ROOT)), *sys.argv[1:])
