"""What the components of one program share: their problems, their targets and their watch.

Components append problems and skip their resource; one `RunError` at the end tells all of them, since a provider could
only tell those of the first resource that fails.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.lifecycle.identity import short_digest

from .watch import Watch


@dataclass
class Program:
    """One run of a Pulumi program."""

    problems: list[Problem] = field(default_factory=list)
    targets: dict[str, dynamic.Target] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    jobsets: list[dict[str, Any]] = field(default_factory=list)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _telling: bool = False

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs the rest of a component's construction, which has to await Outputs. Its problems are told at the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        if not self._telling:
            self._telling = True
            _: pulumi.Output[bool] = pulumi.Output.from_input(self._tell())  # awaited with all other outputs
        return task

    def tell(self, problems: Iterable[Problem]) -> None:
        """Adds problems that no component has."""
        self.problems.extend(problems)
        self.spawn(asyncio.sleep(0))

    async def _tell(self) -> bool:
        while pending := [t for t in self._tasks if not t.done()]:
            await asyncio.wait(pending)
        submitted = [resource for task in self._tasks if isinstance(resource := task.result(), pulumi.CustomResource)]
        if self.problems:
            for resource in submitted:  # what is right is not cut off by what is wrong elsewhere
                await resource.id.future()
            unique = list(dict.fromkeys(self.problems))
            count = "1 problem" if len(unique) == 1 else f"{len(unique)} problems"
            lines = "\n".join(f"  {p}" for p in unique)
            raise pulumi.RunError(f"{count}; nothing was sent for what is named here:\n{lines}")
        return True

    def target(self, connection: dict[str, Any]) -> dynamic.Target:
        """The resource that stands for a target in this stack; one for all jobs there."""
        key = str(sorted(connection.items(), key=lambda item: item[0]))
        if key not in self.targets:
            kind = connection["kind"]
            same = sum(1 for k in self.targets.values() if k._name.startswith(kind))
            name = f"{kind}-{same + 1}" if same else kind
            sweep = short_digest([pulumi.get_project(), pulumi.get_stack(), name], 20)
            self.targets[key] = dynamic.Target(name, {"target": connection, "sweep": sweep})
        return self.targets[key]


_programs: WeakKeyDictionary[asyncio.AbstractEventLoop, Program] = WeakKeyDictionary()


def current() -> Program:
    """The program that is being run."""
    loop = asyncio.get_event_loop()
    if loop not in _programs:
        _programs[loop] = Program()
    return _programs[loop]


def call_site() -> str:
    """`file:line` of the program that constructs a component."""
    here = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
