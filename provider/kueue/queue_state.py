"""What is known of Kueue's objects: those of a program, and those of a cluster that it reaches.

Documents are plain and of v1beta2, with ResourceFlavors, Topologies and Nodes among them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import Document, listed, section
from pulumi_trainer.provider.kueue.quota import Tree, tree

NAMESPACED = ("LocalQueue",)


@dataclass(frozen=True)
class Queues:
    """whole: kinds of which all are known, so that what is not here does not exist. below: what holds where the documents do
    not say otherwise: a cluster's, which many jobs of a program share."""

    documents: tuple[Document, ...] = ()
    whole: frozenset[str] = frozenset()
    below: Queues | None = None

    def find(self, kind: str, name: Any, namespace: Any = "") -> Document | None:
        """An object by its name; namespace: of a LocalQueue."""
        if not isinstance(name, str) or not isinstance(namespace, Hashable):
            return None
        found = self._by_name.get((kind, namespace if kind in NAMESPACED else "", name))
        return self.below.find(kind, name, namespace) if found is None and self.below is not None else found

    def lacks(self, kind: str, name: Any, namespace: Any = "") -> bool:
        """Whether it is certain that there is none of that name."""
        sure = isinstance(name, str) and bool(name) and self.has_all(kind)
        return sure and self.find(kind, name, namespace) is None

    def has_all(self, kind: str) -> bool:
        """Whether all objects of a kind are known."""
        return kind in self.whole or (self.below is not None and self.below.has_all(kind))

    def of(self, kind: str) -> list[Document]:
        own = [d for d in self.documents if d.get("kind") == kind]
        return own if self.below is None else [*own, *(d for d in self.below.of(kind) if _key(d) not in self._by_name)]

    @cached_property
    def tree(self) -> Tree:
        own = any(d.get("kind") in ("ClusterQueue", "Cohort") for d in self.documents)
        if self.below is not None and not own:
            return self.below.tree
        return tree([*self.of("ClusterQueue"), *self.of("Cohort")])

    @cached_property
    def _by_name(self) -> dict[tuple[str, Any, Any], Document]:
        keys = [(_key(document), document) for document in self.documents]
        return {key: document for key, document in keys if None not in key}

    def levels(self, flavor: Document) -> list[str] | None:
        """Node labels of a flavor's topology, the widest first; none: it has no topology; None: not known."""
        name = section(flavor, "spec").get("topologyName")
        if not name:
            return []
        found = self.find("Topology", name)
        return (
            None
            if found is None
            else [str(section(e).get("nodeLabel")) for e in listed(section(found, "spec").get("levels"))]
        )


def among(documents: Iterable[Document]) -> Queues:
    """Of documents that belong together, such as the files of a command: a kind that is there at all is there as a whole."""
    known = [
        d for d in documents if str(d.get("apiVersion", "")).startswith("kueue.x-k8s.io/") or d.get("kind") == "Node"
    ]
    kinds = {str(d.get("kind")) for d in known}
    return Queues(tuple(known), frozenset(kinds | ({"Cohort"} if "ClusterQueue" in kinds else set())))


def _key(document: Document) -> tuple[str, Any, Any]:
    metadata, kind = section(document, "metadata"), str(document.get("kind"))
    namespace = (metadata.get("namespace") or "default") if kind in NAMESPACED else ""
    name = metadata.get("name")
    return kind, namespace if isinstance(namespace, Hashable) else None, name if isinstance(name, str) else None
