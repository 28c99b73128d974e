"""References to images: registry, repository, tag and digest.

Source: https://github.com/distribution/reference/blob/v0.6.0/reference.go
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem

_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """A reference to an image."""

    text: str
    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def moves(self) -> bool:
        """Whether the reference is expected to name another image some day."""
        return not self.digest and self.tag in _MOVING


_MOVING = ("", "latest", "main", "master", "nightly", "edge", "dev")


def parse_image(text: str) -> Image:
    """Return a reference to an image, completed as Docker does it."""
    rest, _, digest = text.partition("@")
    head, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    path = f"{head}{slash}{name}"
    first, slash, below = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, below
    else:
        registry, repository = "docker.io", path if slash else f"library/{path}"
    named = _REPOSITORY.fullmatch(repository) and _REGISTRY.fullmatch(registry)
    tagged = ":" not in last or _TAG.fullmatch(tag)
    if not named or not tagged or ("@" in text and not _DIGEST.fullmatch(digest)):
        raise Invalid(Problem(text, "not a valid image reference", "expected: REGISTRY/REPOSITORY:TAG"))
    return Image(text, registry, repository, tag, digest)
