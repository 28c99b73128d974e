"""The releases of Kubeflow Trainer that this package knows, one folder each.

A folder has the schemas of the CRDs and the Go types as `make record` has read them from the release's own module, and a
`RELEASE` with its plugins and with what it does otherwise than the newest.
"""

from __future__ import annotations

from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import commit_8c0f5059b, v2_3_0

DEFAULT = v2_3_0.RELEASE
"""The newest release that has a number, which clusters run."""

NEWEST = commit_8c0f5059b.RELEASE

RELEASES: dict[str, Release] = {release.version: release for release in (DEFAULT, NEWEST)}
"""By version, the oldest first."""


def known_release(version: str | None) -> Release:
    """Return the release of a version; the default one for another version or none."""
    return RELEASES.get(version or "", DEFAULT)
