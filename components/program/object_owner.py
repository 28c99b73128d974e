"""The owner mark of objects that pulumi-kubernetes creates, and which of a cluster's objects belong to this stack.

The mark is ORGANIZATION/PROJECT/STACK/RANDOM. Backends that teams run themselves all say `organization`, so only the random part,
which the stack's state has, distinguishes two stacks of one name. pulumi-kubernetes creates without force, so the API server
itself refuses to overwrite the mark of another stack. An object that a user has given to a stack by hand keeps its mark, which
has no random part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_trainer.program.removals import Resources
from pulumi_trainer.provider.jobs.status import NAMESAKE
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import MADE_BY, stack_of_mark

_MARK = "pulumi-python:dynamic/trainer:StackMark"
_PLUGIN = "pulumi-kubernetes"
"""Prefix of the field managers of pulumi-kubernetes."""
Place = tuple[str, str, str, str]
"""API group, kind, namespace (empty for cluster scope) and name of an object."""


def stack_name() -> str:
    """Return organization, project and stack."""
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"


@dataclass(frozen=True)
class ObjectOwner:
    """The running program's stack as the owner of objects.

    Attributes:
        recorded: Objects in the stack's state, as the server returned them.
    """

    name: str
    mark: str
    recorded: Mapping[Place, Mapping[str, Any]]

    @classmethod
    def of(cls, stack: Resources) -> ObjectOwner:
        """Return the owner with what the stack's state has of it."""
        name = stack_name()
        randoms = [text(outputs.get("random")) for type_, outputs in stack if type_ == _MARK]
        recorded = dict[Place, Mapping[str, Any]]()
        for type_, outputs in stack:
            version, _, kind = type_.removeprefix("kubernetes:").rpartition(":")
            metadata = section(outputs, "metadata")
            if type_.startswith("kubernetes:") and metadata:
                group = version.rpartition("/")[0].removeprefix("core")
                place = group, kind, text(metadata.get("namespace")), text(metadata.get("name"))
                recorded[place] = outputs
        mark = ""
        if randoms and randoms[0]:
            mark = f"{name}/{randoms[0]}"
        return cls(name, mark, recorded)

    def owns(self, target: Mapping[str, Any], kind: Kind, metadata: Mapping[str, Any]) -> bool:
        """Return whether an object of a cluster belongs to this stack.

        A mark without a random part was given by hand. Once pulumi-kubernetes has applied it, it counts only for an object of the
        state: another stack of this name may have been given the object.
        """
        maker = mark_of(metadata)
        if maker == self.mark != "":
            return True
        if maker != self.name:
            return False
        namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
        known = section(self.recorded.get((kind.group, kind.kind, namespace, name), {}), "metadata")
        if known and known.get("uid") in (None, metadata.get("uid")):
            return True
        live = queries.find_object(target, kind, namespace, name)
        return live is not None and not _is_marked_by_plugin(section(live, "metadata"))

    def kept_mark(self, place: Place, live: Mapping[str, Any]) -> str:
        """Return the mark without a random part that an object keeps, as another one would be a change or a conflict. Empty: it
        gets the mark with the random part.
        """
        kept = mark_of(live) or mark_of(section(self.recorded.get(place, {}), "metadata"))
        if kept != self.name:
            return ""
        return kept

    def called(self, maker: str) -> str:
        """Return another owner in a message. maker: Its mark; not empty."""
        other = stack_of_mark(maker)
        if other == self.name:
            return NAMESAKE
        return f"the stack {other}"

    def foreign_object(self, kind: Kind, metadata: Mapping[str, Any], *, may_adopt: bool = False) -> tuple[str, str]:
        """Return why an object that has the name of a new one cannot be taken, and what to do.

        Args:
            may_adopt: Whether the component has the argument `adopt`, which takes over what belongs to no stack.
        """
        maker, namespace = mark_of(metadata), text(metadata.get("namespace"))
        belongs = "was not created by this stack"
        if maker:
            belongs = f"belongs to {self.called(maker)}"
        option = ""
        if namespace:
            option = f"-n {namespace} "
        place = f"{'.'.join(filter(None, (kind.plural, kind.group)))} {option}{metadata['name']}"
        take = f"kubectl annotate --overwrite {place} {MADE_BY}={self.name}"
        if maker == self.name:  # kubectl does not become the manager of a value that it does not change
            take = f"kubectl annotate {place} {MADE_BY}- && {take}"
        why = f"{kind.kind} {metadata['name']} exists since {metadata.get('creationTimestamp')} and {belongs}"
        if may_adopt and not maker:
            return why, "choose another name, or take it over with adopt=True"
        return why, f"choose another name, or give it to this stack: {take}"


def guarded_object(kind: Kind, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as an input of its guard. metadata: Its name and namespace; values may be Outputs."""
    where = {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "plural": kind.plural, **where}


def mark_of(metadata: Mapping[str, Any]) -> str:
    """Return the owner mark of an object; empty if it has none."""
    return text(section(metadata, "annotations").get(MADE_BY))


def _is_marked_by_plugin(metadata: Mapping[str, Any]) -> bool:
    """Return whether pulumi-kubernetes has written the mark of an object, for whatever stack."""
    for entry in mappings(metadata.get("managedFields")):
        fields = section(entry, "fieldsV1", "f:metadata", "f:annotations")
        if f"f:{MADE_BY}" in fields and text(entry.get("manager")).startswith(_PLUGIN):
            return True
    return False
