"""The supported schemes of a storage URI, and the check of a URI."""

from __future__ import annotations

from collections.abc import Mapping

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.pod.initializers import contract, file, hf, s3
from pulumi_trainer.provider.pod.initializers.source import Scheme

SCHEMES: Mapping[str, Scheme] = {"file": file, "s3": s3, "hf": hf}

FORMS = "file:///PATH, s3://BUCKET/PREFIX or hf://OWNER/NAME[@REVISION][/PATH]"


def split_uri(uri: str) -> tuple[str, str]:
    """Return scheme and location; ("", uri) for a text that is not a URI."""
    scheme, separator, location = uri.partition("://")
    if not separator:
        return "", uri
    return scheme.lower(), location


def check_uri(uri: str, kind: str) -> list[Problem]:
    """Return the problems of a storage URI, without a client library or a request.

    Args:
        uri: The URI; a file:// path must be absolute and exist on this machine.
        kind: The kind of the initializer: "dataset" or "model".

    Raises:
        ValueError: The kind is unknown.
    """
    if kind not in ("dataset", "model"):
        raise ValueError(f"unknown kind of initializer {kind!r} (expected dataset or model)")
    scheme, location = split_uri(uri)
    if not uri:
        return [Problem(contract.STORAGE_URI, "is empty", f"give {FORMS}")]
    if scheme not in SCHEMES:
        if not scheme:
            shown = repr(hide_credentials(uri)[:80])
            return [
                Problem(
                    contract.STORAGE_URI, f"{shown} is not a URI", f"begin a path with file://; supported are {FORMS}"
                )
            ]
        return [Problem(contract.STORAGE_URI, f"{scheme}:// is not supported", f"supported are {FORMS}")]
    if len(uri) > 2048:
        return [Problem(contract.STORAGE_URI, f"has {len(uri)} characters", "at most 2048 are allowed")]
    if not uri.isprintable():
        return [Problem(contract.STORAGE_URI, f"{hide_credentials(uri)!r} contains control characters")]
    return SCHEMES[scheme].check(location, "model" if kind == "model" else "dataset")
