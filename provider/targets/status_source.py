"""Provides the status of jobs to the program's watch: from a cluster's watches, or from the job folders on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.status import JobStatus, describe
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import is_notice
from pulumi_trainer.provider.targets.connection import connect
from pulumi_trainer.provider.targets.local import LocalTarget


class Source(Protocol):
    """The status of jobs of one namespace. Only `first` and `conclude` may wait for the target."""

    def first(self, name: str) -> JobStatus | None: ...

    def changed(self) -> set[str] | None:
        """Return the jobs whose status may have changed since the last call; None if unknown."""
        ...

    def status(self, name: str) -> JobStatus | None: ...

    def why(self, name: str) -> str:
        """Return one paragraph: what the job waits for or why it has ended, and what to do."""
        ...

    def conclude(self, name: str) -> JobStatus | None:
        """Return the status of a job that runs or has ended, with what its Pods have printed about it."""
        ...

    def trouble(self) -> str:
        """Return why updates are missing; empty if they arrive. Raise TargetFault if they will not arrive later either."""
        ...

    def leave(self, name: str) -> None: ...


def source(target: Mapping[str, Any], namespace: str, stack: str, note: Callable[[str], None]) -> Source:
    found = connect(target)
    if isinstance(found, LocalTarget):
        return _LocalSource(found, namespace)
    return _watched(found, namespace, stack, note)


def log_lines(target: Mapping[str, Any], namespace: str, name: str, step: str, lines: int) -> Iterator[str]:
    """Yield the log lines of the first pod of a step until the job ends, of the existing ones the last `lines`.

    torchrun's notice at the start of a job is left out, and lines that are empty but for the name of their process.
    """
    found, pod = connect(target), f"{name}-{step}-0-0"
    if isinstance(found, LocalTarget):
        of_pods = found.logs.tail(namespace, name, step, lines=lines, follow=True)
        for each, _, text in of_pods:
            if each == pod and not is_notice(text):
                yield text
        return
    from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection
    from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail

    of_cluster: Any = found
    for line in tail(of_cluster.client, namespace, name, LogSelection(step, lines), follow=True):
        if line.pod.startswith(f"{pod}-") and not is_notice(line.text):
            yield line.text


@lru_cache(maxsize=64)
def _watched(target: Any, namespace: str, stack: str, note: Callable[[str], None]) -> Source:
    from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer

    trainer = target.mode == "trainer"
    made: Source = Observer(target.client, namespace, stack=stack, trainer=trainer, note=note).start()
    return made


class _LocalSource:
    """Reads the status of jobs of this machine from their folders."""

    def __init__(self, target: LocalTarget, namespace: str) -> None:
        self._target, self._namespace = target, namespace

    def first(self, name: str) -> JobStatus | None:
        return self.status(name)

    def changed(self) -> set[str] | None:
        return None

    def status(self, name: str) -> JobStatus | None:
        return self._target.jobs.status(self._namespace, name)

    def why(self, name: str) -> str:
        status = self.status(name)
        if status is None:
            return f"{self._namespace}/{name} is not known here."
        state = f"{self._namespace}/{name} is {describe(status)}"
        if status.message:
            return f"{state}: {status.message}."
        return f"{state}."

    def conclude(self, name: str) -> JobStatus | None:
        return self.status(name)

    def trouble(self) -> str:
        return ""

    def leave(self, name: str) -> None: ...
