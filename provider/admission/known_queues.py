"""What is known of Kueue's objects: those of a program, and those of a cluster that it reaches. Called by `warnings`.

Documents are plain and of v1beta2, with ResourceFlavors, Topologies and Nodes among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .quota import Tree, tree
from .reading import listed, mapping
from .verdict import Document

NAMESPACED = ("LocalQueue",)


@dataclass(frozen=True)
class Queues:
    """whole: kinds of which all are known, so that what is not here does not exist."""

    documents: tuple[Document, ...] = ()
    whole: frozenset[str] = frozenset()

    def find(self, kind: str, name: Any, namespace: Any = "") -> Document | None:
        """An object by its name; namespace: of a LocalQueue."""
        return (
            self._by_name.get((kind, namespace if kind in NAMESPACED else "", name)) if isinstance(name, str) else None
        )

    def lacks(self, kind: str, name: Any, namespace: Any = "") -> bool:
        """Whether it is certain that there is none of that name."""
        return isinstance(name, str) and bool(name) and kind in self.whole and self.find(kind, name, namespace) is None

    def of(self, kind: str) -> list[Document]:
        return [d for d in self.documents if d.get("kind") == kind]

    def beside(self, others: Queues) -> Queues:
        """With those of a cluster, where a program does not say otherwise. What a cluster has not, a program may make."""
        own = {_key(d) for d in self.documents}
        rest = [d for d in others.documents if _key(d) not in own]
        return Queues((*self.documents, *rest), self.whole | others.whole)

    @cached_property
    def tree(self) -> Tree:
        return tree(self.documents)

    @cached_property
    def _by_name(self) -> dict[tuple[str, Any, Any], Document]:
        return {key: d for d in self.documents if isinstance((key := _key(d))[2], str)}

    def levels(self, flavor: Document) -> list[str] | None:
        """Node labels of a flavor's topology, the widest first; none: it has no topology; None: not known."""
        name = mapping(flavor, "spec").get("topologyName")
        if not name:
            return []
        found = self.find("Topology", name)
        return (
            None
            if found is None
            else [str(mapping(e).get("nodeLabel")) for e in listed(mapping(found, "spec").get("levels"))]
        )


def among(documents: Iterable[Document]) -> Queues:
    """Of documents that belong together, such as the files of a command: a kind that is there at all is there as a whole."""
    known = [
        d for d in documents if str(d.get("apiVersion", "")).startswith("kueue.x-k8s.io/") or d.get("kind") == "Node"
    ]
    kinds = {str(d.get("kind")) for d in known}
    return Queues(tuple(known), frozenset(kinds | ({"Cohort"} if "ClusterQueue" in kinds else set())))


def _key(document: Document) -> tuple[str, Any, Any]:
    metadata, kind = mapping(document, "metadata"), str(document.get("kind"))
    namespace = metadata.get("namespace") or "default"
    return kind, namespace if kind in NAMESPACED else "", metadata.get("name")
