"""What a run was made from, as far as only the run itself can tell: what its plan names may be another thing the next day.

These are the revisions of its data, the digests of its images and the versions of packages that the program does not pin. In a
cluster, initializers and the nodes that train write their part into their termination message, a file whose text the kubelet
adds to the status of the Pod: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pulumi_trainer.provider.jobs.runs import LONGEST, read_inputs
from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import section

DATA = ("dataset", "model")
PACKAGES = "packages"
PYTHON = "python"
TERMINATION_LOG = "/dev/termination-log"
"""Default of `terminationMessagePath`."""
_KEY = "pulumi-trainer"
_LONGEST_REVISION = 200
_DIGITS = 12
"""Characters of the digest of an image."""
_VERSION = re.compile(r"(?:^| )[0-9a-f]{8,64}\Z")
"""Version of a volume behind the name of its data, as the plan knows it."""
_FILES = re.compile(r"files [0-9a-f]{12}")
"""A revision that is only a digest of names and sizes: nothing else was left beside the data."""
_DIGEST = re.compile(r" sha256:[0-9a-f]{12}(?=, |\Z)")


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
        return _FILES.fullmatch(self.revision) is not None


@dataclass(frozen=True)
class Observed:
    """What the containers of a run show.

    Attributes:
        data: Kind of data -> what was fetched.
        packages: Names and versions of the installed packages whose version the program does not pin.
        python: Version of this machine's Python, which replaces the image.
        images: Image as the JobSet names it -> sha256 of what was pulled.
    """

    data: Mapping[str, Revision] = field(default_factory=dict)
    packages: str = ""
    python: str = ""
    images: Mapping[str, str] = field(default_factory=dict)

    def merged(self, later: Observed) -> Observed:
        """Return this with what containers that began later show."""
        known = {
            kind: each for kind, each in later.data.items() if not each.by_size or self.data.get(kind, each).by_size
        }
        return Observed(
            {**self.data, **known},
            later.packages or self.packages,
            later.python or self.python,
            {**self.images, **later.images},
        )


def fetch_message(kind: str, fetched: Revision) -> str:
    return json.dumps({_KEY: {kind: asdict(fetched)}}) + "\n"


def split_message(message: str) -> tuple[Observed, str]:
    """Return what a container reports, and the rest of its termination message. message: The message, which any program of the
    container may have written."""
    first, _, rest = message.partition("\n")
    if not first.startswith(f'{{"{_KEY}"'):
        return Observed(), message
    try:
        given = section(json.loads(first), _KEY)
    except (ValueError, RecursionError):
        return Observed(), message
    found = {}
    for kind in DATA:
        about = section(given, kind)
        revision = plain_field(about.get("revision"), _LONGEST_REVISION)
        if revision:
            found[kind] = Revision(revision, plain_field(about.get("uri"), LONGEST))
    return Observed(found, plain_field(given.get(PACKAGES), LONGEST)), rest


def with_observed(inputs: Mapping[str, str], observed: Observed) -> dict[str, str]:
    """Return what identifies the inputs of a run, with what was observed. inputs: Name -> text as the plan knows it, without
    what was observed; of data the name, and the version of its volume."""
    found = dict(inputs)
    for kind, each in observed.data.items():
        found[kind] = _with_revision(found.get(kind, ""), each)
    if observed.packages:
        found[PACKAGES] = f"{found.get(PACKAGES, '')}; installed {observed.packages}"
    if observed.python:
        found[PYTHON] = observed.python
    if observed.images and "image" in found:
        found["image"] = _with_digests(found["image"], observed.images)
    return read_inputs({name: _cut(text) for name, text in found.items()})


def without_digests(images: str) -> str:
    """Return the images of a run as the plan names them."""
    return _DIGEST.sub("", images)


def _with_revision(planned: str, fetched: Revision) -> str:
    name = fetched.uri or _VERSION.sub("", planned)
    if fetched.by_size:
        name = planned
    return f"{name} {fetched.revision}".strip()


def _cut(text: str) -> str:
    """Return a text of at most `LONGEST` characters; of a longer one the beginning and a digest."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]}... {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def _with_digests(planned: str, images: Mapping[str, str]) -> str:
    """Return the images of a run with digests. planned: An image, or `STEP: IMAGE` for each, separated by commas."""
    named = []
    for each in planned.split(", "):
        image = each.rpartition(": ")[2]
        digest = images.get(image, "")
        if digest and "@sha256:" not in image:
            each = f"{each} sha256:{digest[:_DIGITS]}"
        named.append(each)
    return ", ".join(named)
