"""What is made of a trainer: a document, and the code that travels with the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.code.source_tree import SourceTree
from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.pod.code import MAIN_FILE


@dataclass(frozen=True)
class Code:
    """User code before its Outputs are known.

    Attributes:
        script: Text of the file that the launcher starts; empty if it starts a file of the project.
        entry: File of the project that the launcher starts; empty if the user's command starts the code.
        path: Folders of the project that modules are imported from.
    """

    script: str
    func_args: Any
    packages: Any
    index_urls: Any
    framework: str
    source: str | None = None
    entry: Sequence[str] | None = None
    path: Sequence[str] | None = None
    requirements: str | None = None
    tool: str | None = None
    modules: Mapping[str, str] | None = None
    server: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the fields for the digest of a job; those that few jobs have are left out if they are None."""
        few = ("source", "entry", "path", "requirements", "tool", "modules", "server")
        return {name: value for name, value in vars(self).items() if name not in few or value is not None}


@dataclass(frozen=True)
class Compiled:
    """A trainer as a document (`spec.trainer`), the code that travels with the job, and its problems.

    Attributes:
        func: Function whose signature func_args must match, once they are known.
        line: Line of the program's file in which the function begins.
        file: Name of the file of the function or script in tracebacks.
        check: Returns the problems of the arguments of a tool, once they are known.
        server: Document of the generation server of a tool.
        prints: Name of a tool that prints its arguments; empty for another one.
        rewards: For each function that a tool calls, the entries of the launch file with which tracebacks name its file.
    """

    document: dict[str, Any]
    code: Code | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    func: Callable[..., Any] | None = None
    exact: bytes | None = None
    tree: SourceTree | None = None
    line: int = 1
    file: str = ""
    training: bool = False
    check: Callable[[Any], list[Problem]] | None = None
    server: dict[str, Any] | None = None
    prints: str = ""
    rewards: tuple[Mapping[str, Any], ...] = ()

    @property
    def script_name(self) -> str:
        """The name under which its script is kept for comparisons: that of the function, as in `train()`, or of the file."""
        if self.func is not None:
            return f"{self.func.__name__}()"
        return self.file or MAIN_FILE


def digest_of_script(name: str, script: str) -> str:
    """Return the digest of a script with its name: files of several projects may have the same text."""
    return digest([name, script])
