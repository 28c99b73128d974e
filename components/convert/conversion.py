"""The whole conversion: documents to a program, and the comparison of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pulumi_trainer.convert.program import Part, is_convertible, parts_of, write_project, write_source
from pulumi_trainer.convert.proof import prove
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, place_of

_NO_COMPONENT = "has no component in pulumi-trainer"
_KEEP = "keep applying it as before, or use a resource of pulumi-kubernetes"


@dataclass
class Result:
    """How the objects of a program relate to an object of the files.

    Attributes:
        notes: What differs, each with its reason.
        differences: What differs without a reason.
    """

    title: str
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@dataclass
class Conversion:
    """A converted program and how it relates to the documents. refused: What could not be converted."""

    source: str
    parts: list[Part]
    results: list[Result]
    refused: list[Problem]

    def project(self, name: str) -> str:
        """Return the content of Pulumi.yaml."""
        return write_project(name, self.parts)


def convert(documents: Iterable[tuple[str, Document]]) -> Conversion:
    """Return the program for documents, compared with them.

    Args:
        documents: Each with where it is, for messages.
    """
    refused, given = list[Problem](), list[tuple[str, Document]]()
    for origin, document in documents:
        if is_convertible(document):
            given.append((origin, document))
        else:
            where = f"{origin}: {document['kind']} {'/'.join(filter(None, place_of(document)))}".strip()
            refused.append(Problem(where, _NO_COMPONENT, _KEEP))
    parts = parts_of(given, refused)
    source = write_source(parts, refused)
    prove(source, parts)
    results = [Result(_title(part), part.notes, part.differences) for part in parts]
    return Conversion(source, parts, results, refused)


def _title(part: Part) -> str:
    kind, namespace, name = part.key
    return f"{kind} {'/'.join(filter(None, (namespace, name)))} ({part.origin})"
