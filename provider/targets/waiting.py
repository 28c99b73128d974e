"""Where the program's watch gets its news from: a cluster's watches, or a look at each job on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from pulumi_trainer.provider.api.status import JobStatus, describe
from pulumi_trainer.provider.targets.connection import connect
from pulumi_trainer.provider.targets.local import LocalTarget


class Source(Protocol):
    """Jobs of one namespace, for whoever waits for some of them. All but `first` and `conclude` return at once."""

    def first(self, name: str) -> JobStatus | None:
        """The job that somebody waits for from now on; None: nothing is known of it."""
        ...

    def changed(self) -> set[str] | None:
        """Jobs that may have another status since the last call; None: nobody knows."""
        ...

    def status(self, name: str) -> JobStatus | None:
        """What it is doing; None: nothing is known of it."""
        ...

    def why(self, name: str) -> str:
        """One paragraph: what it waits for, or why it has ended, and what to do."""
        ...

    def conclude(self, name: str) -> JobStatus | None:
        """The status of a job that has ended, with all that can be said of its end."""
        ...

    def trouble(self) -> str:
        """Why there is no news, if there should be; raises TargetFault where waiting is in vain."""
        ...

    def leave(self, name: str) -> None:
        """Nobody waits for it any more."""
        ...


def source(target: Mapping[str, Any], namespace: str, stack: str, note: Callable[[str], None]) -> Source:
    """The same one for all jobs of a namespace. stack: label of the program's jobs; note: is told what cannot be seen."""
    found = connect(target)
    return _Asked(found, namespace) if isinstance(found, LocalTarget) else _watched(found, namespace, stack, note)


@lru_cache(maxsize=64)
def _watched(target: Any, namespace: str, stack: str, note: Callable[[str], None]) -> Source:
    from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer

    trainer = target.mode == "trainer"
    made: Source = Observer(target.client, namespace, stack=stack, trainer=trainer, note=note).start()
    return made


class _Asked:
    """Jobs of this machine: their folders are looked into."""

    def __init__(self, target: LocalTarget, namespace: str) -> None:
        self._target, self._namespace = target, namespace

    def first(self, name: str) -> JobStatus | None:
        return self.status(name)

    def changed(self) -> set[str] | None:
        return None

    def status(self, name: str) -> JobStatus | None:
        return self._target.status(self._namespace, name)

    def why(self, name: str) -> str:
        status = self.status(name)
        if status is None:
            return f"{self._namespace}/{name} is not known here."
        return f"{self._namespace}/{name} is {describe(status)}" + (f": {status.message}." if status.message else ".")

    def conclude(self, name: str) -> JobStatus | None:
        return self.status(name)

    def trouble(self) -> str:
        return ""

    def leave(self, name: str) -> None: ...
