"""A release of Kubeflow Trainer as a value: what rendering and review need to know of it.

`releases` has the releases that this package knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pulumi_trainer.provider.kubernetes.schema.definition import Kind, read_kinds
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates
from pulumi_trainer.provider.kubernetes.values.typed import GoTypes
from pulumi_trainer.provider.trainer.pipeline.interface import Plugin


@dataclass(frozen=True, eq=False)
class Release:
    """A release of Kubeflow Trainer, or a commit, with the release of JobSet that it is built with.

    Args:
        folder: Folder with `schemas.json` and `go_types.txt`, which `make record` writes.
        plugins: Its plugins in the order of each phase and of the objects that they build, the JobSet's last.
        failure_is_final: Whether its controller leaves a TrainJob failed whose JobSet is gone.
    """

    version: str
    folder: Path
    predicates: Predicates
    plugins: tuple[Plugin, ...]
    failure_is_final: bool = True

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of Trainer and JobSet by name, with the schemas of their CRDs."""
        return read_kinds(self.folder / "schemas.json", self.predicates)

    @cached_property
    def go(self) -> GoTypes:
        """The Go types into which its controller and webhooks decode documents."""
        return GoTypes((self.folder / "go_types.txt").read_text(encoding="utf-8"))
