"""Runs a converted program without an engine, and returns the documents that its components declare.

The program is the converter's own output. Components only record their arguments: nothing is registered, checked in a cluster, or
read from a stack.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pulumi
from pulumi_trainer.args.arguments import Args, nested_problems
from pulumi_trainer.convert.config_maps import recording_module
from pulumi_trainer.convert.python_source import marker
from pulumi_trainer.plan.runtime_ref import from_catalogue
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.trainjob_plan import train_job_document
from pulumi_trainer.plan.written_job import read_written
from pulumi_trainer.program import session
from pulumi_trainer.program.targets import Kubernetes
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.queues.arguments import Spec
from pulumi_trainer.queues.component import QueueObject
from pulumi_trainer.queues.objects import ClusterQueue
from pulumi_trainer.runtime import ClusterTrainingRuntime, RuntimeArgs, runtime_document
from pulumi_trainer.trainjob import TrainJob


@dataclass
class Declared:
    """What a component of a program declares.

    Attributes:
        runtime: Runtime of a TrainJob; empty for other kinds.
        problems: Why the component would be rejected.
    """

    document: Document
    runtime: Document = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def evaluate(
    source: str, files: Mapping[str, str] | None = None, runtimes: Mapping[str, Document] | None = None
) -> list[Declared]:
    """Return what the components of a program declare, ConfigMaps last.

    Args:
        files: Content of the files that the program reads, by their paths beside it; default: none.
        runtimes: Runtimes of the cluster that jobs name, by their names; others are those of the catalogue. Default: none.
    """
    found, config_maps = list[Declared](), list[Document]()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with _recording(found, loop, runtimes or {}), _placed(files or {}) as program, _without_kubernetes(config_maps):
            given = {"__name__": "__main__", "__file__": program}
            exec(compile(source, "__main__.py", "exec"), given)  # noqa: S102  # the converter's own output
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return [*found, *map(Declared, config_maps)]


@contextmanager
def _placed(files: Mapping[str, str]) -> Iterator[str]:
    """Write files into a temporary folder, and yield the path of a program there."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            file = Path(folder, name)
            if ".." in file.parts or not file.is_relative_to(folder):
                raise ValueError(f"{name} leads out of the folder")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode())
        yield str(Path(folder, "__main__.py"))


def _without_kubernetes(config_maps: list[Document]) -> Any:
    return mock.patch.dict(sys.modules, {"pulumi_kubernetes": recording_module(config_maps)})


@contextmanager
def _recording(
    found: list[Declared], loop: asyncio.AbstractEventLoop, runtimes: Mapping[str, Document]
) -> Iterator[None]:
    def declare_runtime(self: Any, args: RuntimeArgs) -> None:
        self.plain, problems = runtime_document(self.kind, args)
        document = copy.deepcopy(self.plain)
        if not document:
            document = {"kind": self.kind, "metadata": {"name": args.name or args.resource_name}}
        if self.kind == "TrainingRuntime":
            document["metadata"].update(_namespace(args.target))
        self.declared = document
        found.append(Declared(document, problems=_problems(self, args) or problems))

    def declare_queue(self: Any, args: Spec) -> None:
        self.resource_name, self.name, self._args = args.resource_name, args.name or args.resource_name, args
        self.above = None
        if getattr(args, "namespace_selector", {}) is None:
            args.namespace_selector = {}  # type: ignore[attr-defined]
        self.document = self._document(getattr(args, "namespace", None))
        found.append(Declared(copy.deepcopy(self.document), problems=_problems(self, args)))

    def declare_job(self: Any, args: TrainJobArgs) -> None:
        runtime: Any = args.runtime
        if isinstance(runtime, str):
            document = runtimes.get(runtime) or from_catalogue(runtime)[0]
        else:
            document = runtime.declared
        problems = _problems(self, args)
        if problems or not document:
            metadata = {"name": args.name, **_namespace(args.target)}
            found.append(Declared({"kind": "TrainJob", "metadata": metadata}, problems=problems))
            return
        written = loop.run_until_complete(read_written(args, copy.deepcopy(document), ""))
        namespace = _namespace(args.target).get("namespace")
        made = train_job_document(str(args.name), namespace, written.fields, written.runtime)
        if namespace is None:
            del made["metadata"]["namespace"]
        found.append(Declared(made, document))

    settings = pulumi.runtime.Settings(project="converted", stack="dev")
    replaced: list[tuple[Any, str, Any]] = [
        (pulumi.runtime.settings, "SETTINGS", settings),
        (pulumi.ComponentResource, "__init__", lambda *_, **__: None),
        (pulumi.ComponentResource, "register_outputs", lambda *_: None),
        (pulumi.Config, "require_secret", lambda _, key: marker(key)),
        (session, "current", mock.MagicMock()),
        (ClusterTrainingRuntime, "construct", declare_runtime),
        (QueueObject, "construct", declare_queue),
        (TrainJob, "construct", declare_job),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(mock.patch.object(ClusterQueue, "construct", declare_queue))
        yield


def _namespace(target: Any) -> dict[str, Any]:
    """Return the namespace of a target as metadata has it; empty without one."""
    if isinstance(target, Kubernetes) and target.namespace is not None:
        return {"namespace": target.namespace}
    return {}


def _problems(component: Any, args: Args) -> list[Problem]:
    return [*component.misnamed, *nested_problems(args)]
