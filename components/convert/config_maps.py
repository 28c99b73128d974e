"""Turns ConfigMaps, such as those with the code of jobs, into files of the project and resources that have their contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pulumi
from pulumi_trainer.convert.python_source import Call, Expression, literal
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text, without

KIND = "ConfigMap"
FOLDER = "files"
"""Folder of the project with a folder for each ConfigMap."""
HERE = "here"
"""Variable of a program with the project's folder."""
_KEY = re.compile(r"(?!\.\.?$|\.\.)[-._a-zA-Z0-9]{1,253}")
_REFERENCES = ("configMap", "configMapRef", "configMapKeyRef")


class ConfigMap:
    """Stands for the class of pulumi-kubernetes, which is slow to import and need not be installed here."""

    source = "kubernetes.core.v1.ConfigMap"


def is_config_map(document: Document) -> bool:
    """Return whether a document is a ConfigMap."""
    return document.get("kind") == KIND and document.get("apiVersion") == "v1"


def config_map_call(document: Document, folder: str) -> Call:
    """Return the call of the resource. Raises Invalid if files cannot hold the contents.

    Args:
        folder: Folder of its files in `FOLDER`.
    """
    other = without(document, "apiVersion", "kind", "metadata", "data", "immutable")
    if other:
        raise Invalid(Problem(next(iter(other)), "has no file of text", "keep applying this ConfigMap as before"))
    for key, content in section(document, "data").items():
        if not _KEY.fullmatch(key) or not isinstance(content, str):
            raise Invalid(Problem(f"data[{key}]", "is not the name of a file with a text", "the API refuses it too"))
    contents = {
        key: Expression(f"({HERE} / {literal(f'{FOLDER}/{folder}/{key}')}).read_bytes().decode()")
        for key in _data(document)
    }
    arguments: dict[str, Any] = {"metadata": dict(section(document, "metadata")), "data": contents}
    if document.get("immutable") is not None:
        arguments["immutable"] = document["immutable"]
    return Call(ConfigMap, arguments, folder)


def files_of(document: Document, folder: str) -> dict[str, str]:
    """Return the files of a ConfigMap by their paths in the project."""
    return {f"{FOLDER}/{folder}/{key}": content for key, content in _data(document).items()}


def _data(document: Document) -> dict[str, str]:
    return {key: text(content) for key, content in section(document, "data").items()}


def named_config_maps(value: Any) -> Iterator[str]:
    """Yield the names of the ConfigMaps that Pods in a document refer to."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _REFERENCES:
                yield text(section({"": inner}, "").get("name"))
            yield from named_config_maps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from named_config_maps(inner)


def recording_module(found: list[Document]) -> Any:
    """Return a module in place of `pulumi_kubernetes` whose ConfigMaps append the documents that they declare."""

    class Recorded(pulumi.Resource):
        def __init__(self, _: str, *, metadata: Document, data: Document, immutable: Any = None) -> None:
            document: Document = {"apiVersion": "v1", "kind": KIND, "metadata": metadata, "data": data}
            if immutable is not None:
                document["immutable"] = immutable
            found.append(document)

    return SimpleNamespace(core=SimpleNamespace(v1=SimpleNamespace(ConfigMap=Recorded)))
