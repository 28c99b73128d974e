"""Calls of the provider in processes of their own, which tests may kill: one request between life and death each.

`python -m tests.cluster.driver` reads a line of JSON for each call, forks (everything is imported by then, so a call costs
milliseconds), says the child's pid, lets it go on when told so, and says how it has ended. `Driver` is the other end.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Props = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """killed: by a signal. error: what the user would be told. value: what the call returned."""

    killed: bool
    error: str = ""
    value: Any = None


class Driver:
    """One driver; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)

    def begin(self, call: str, *args: Any) -> int:
        """The pid of a process that makes the call once `end` is asked."""
        self._say({"call": call, "args": args})
        return int(self._heard()["pid"])

    def end(self) -> Ended:
        """Lets it go on, and waits for it."""
        self._say({})
        return Ended(**self._heard())

    def run(self, call: str, *args: Any) -> Ended:
        """A call that nobody kills. call: create, update, read, delete (as in `lifecycle.jobs`), sweep; create_volume and so on
        (as in `lifecycle.volumes`)."""
        self.begin(call, *args)
        return self.end()

    def ok(self, call: str, *args: Any) -> Any:
        """What a call that has to succeed returns."""
        ended = self.run(call, *args)
        assert not ended.killed and not ended.error, ended
        return ended.value

    def _say(self, line: Props) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def _heard(self) -> Props:
        assert self._process.stdout
        return dict(json.loads(self._process.stdout.readline()))


def _call(name: str, args: list[Any]) -> Any:
    from pulumi_trainer.provider.lifecycle.jobs import Jobs
    from pulumi_trainer.provider.lifecycle.resource import StateCalls
    from pulumi_trainer.provider.lifecycle.stack_targets import UsedLabels
    from pulumi_trainer.provider.lifecycle.volumes import Volumes
    from pulumi_trainer.provider.targets.connection import connect

    if name == "sweep":
        target, label = args
        return connect(target).sweep(label)
    call = name.partition("_")[0]
    kind: Any = Volumes if name.endswith("_volume") else Jobs
    return getattr(StateCalls(kind(UsedLabels())), call)(*args, connect)


def _child(name: str, args: list[Any], out: int) -> None:
    from pulumi_trainer.provider.kubernetes.errors import TrainerError

    try:
        said: Props = {"killed": False, "value": _call(name, args)}
    except TrainerError as error:
        said = {"killed": False, "error": str(error)}
    except BaseException as error:
        said = {"killed": False, "error": f"TRACEBACK {type(error).__name__}: {error}"}
    os.write(out, json.dumps(said).encode())
    os._exit(0)


def main() -> None:
    from pulumi_trainer.provider.lifecycle import jobs  # noqa: F401
    from pulumi_trainer.provider.targets import connection, kubernetes  # noqa: F401

    for module in pkgutil.iter_modules(kubernetes.__path__, f"{kubernetes.__name__}."):
        importlib.import_module(module.name)
    importlib.import_module("kubernetes.config.kube_config")

    for line in sys.stdin:
        asked = json.loads(line)
        go_read, go_write = os.pipe()
        out_read, out_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            os.read(go_read, 1)
            _child(asked["call"], asked["args"], out_write)
        os.close(out_write)
        os.close(go_read)
        print(json.dumps({"pid": pid}), flush=True)
        sys.stdin.readline()
        os.write(go_write, b"x")
        os.close(go_write)
        with os.fdopen(out_read) as pipe:
            said = pipe.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"killed": True}) if os.WIFSIGNALED(status) else said, flush=True)


if __name__ == "__main__":
    main()
