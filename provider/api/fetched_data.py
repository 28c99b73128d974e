"""Which data a run has read: URI and revision of its dataset and its model, known once they are fetched.

In a cluster, initializers and the nodes that train write them into their termination message, a file whose text the kubelet
adds to the status of the Pod: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pulumi_trainer.provider.api.runs import LONGEST, read_inputs
from pulumi_trainer.provider.kube.terminal import plain_field
from pulumi_trainer.provider.kube.values.accessors import section

KINDS = ("dataset", "model")
TERMINATION_LOG = "/dev/termination-log"
"""Default of `terminationMessagePath`."""
_KEY = "pulumi-trainer"
_LONGEST_REVISION = 200
_VERSION = re.compile(r" [0-9a-f]{8,64}\Z")
"""Version of a volume behind the name of its data, as the plan knows it."""
_BY_SIZE = "files "
"""Beginning of a revision that is only a digest of names and sizes: nothing else was left beside the data."""


@dataclass(frozen=True)
class Revision:
    """A dataset or a model that was fetched.

    Attributes:
        revision: Commit of a repository, or a digest of ETags or of files; `files DIGEST` is one of names and sizes alone.
        uri: What was fetched; empty if not known.
    """

    revision: str
    uri: str = ""

    @property
    def by_size(self) -> bool:
        """Whether the revision does not tell the content of files of equal size apart."""
        return self.revision.startswith(_BY_SIZE)


def message_of(kind: str, fetched: Revision) -> str:
    """Return the termination message of an initializer.

    Args:
        kind: Kind of the data: dataset or model.
        fetched: What was fetched.
    """
    return json.dumps({_KEY: {kind: asdict(fetched)}}) + "\n"


def split_message(message: str) -> tuple[dict[str, Revision], str]:
    """Return kind -> revision of the data that a container has read, and the rest of its termination message.

    Args:
        message: The message, which any program of the container may have written.
    """
    first, _, rest = message.partition("\n")
    if not first.startswith(f'{{"{_KEY}"'):
        return {}, message
    try:
        given = section(json.loads(first), _KEY)
    except (ValueError, RecursionError):
        return {}, message
    found = {}
    for kind in KINDS:
        about = section(given, kind)
        revision = plain_field(about.get("revision"), _LONGEST_REVISION)
        if revision:
            found[kind] = Revision(revision, plain_field(about.get("uri"), LONGEST))
    return found, rest


def with_revisions(inputs: Mapping[str, str], fetched: Mapping[str, Revision]) -> dict[str, str]:
    """Return what identifies the inputs of a run, with the revisions of its data instead of the versions that the plan knew.

    Args:
        inputs: Name -> text as the plan knows it: of data the name, and the version of its volume.
        fetched: Kind of data -> what was fetched.
    """
    found = dict(inputs)
    for kind, each in fetched.items():
        planned = found.get(kind, "")
        name = each.uri or _VERSION.sub("", planned)
        if each.by_size:
            name = planned
        found[kind] = f"{name} {each.revision}".strip()
    return read_inputs(found)
