"""The schemes of a storage URI, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Mapping

from pulumi_trainer.provider.initializers import (
    contract,
    file,
    hf,
    s3,
)
from pulumi_trainer.provider.initializers.source import Scheme
from pulumi_trainer.provider.kube.client.masking import hide_credentials
from pulumi_trainer.provider.kube.errors import Problem

SCHEMES: Mapping[str, Scheme] = {"file": file, "s3": s3, "hf": hf}

FORMS = "file:///PATH, s3://BUCKET/PREFIX or hf://OWNER/NAME[@REVISION][/PATH]"


def split(uri: str) -> tuple[str, str]:
    """Scheme and location; ("", uri) for what is no URI."""
    scheme, separator, location = uri.partition("://")
    return (scheme.lower(), location) if separator else ("", uri)


def check_uri(uri: str, kind: str) -> list[Problem]:
    """What is wrong with a storage URI of a `kind` ("dataset" or "model") initializer; loads no client, asks no server.

    A file:// path must be absolute and exist on this machine.
    """
    if kind not in ("dataset", "model"):
        raise ValueError(f"an initializer is of kind dataset or model, not {kind!r}")
    scheme, location = split(uri)
    if not uri:
        return [Problem(contract.STORAGE_URI, "is empty", f"give {FORMS}")]
    if scheme not in SCHEMES:
        shown = f"{scheme}://" if scheme else repr(hide_credentials(uri)[:80])
        return [Problem(contract.STORAGE_URI, f"{shown} is not supported", f"supported are {FORMS}")]
    if len(uri) > 2048:
        return [Problem(contract.STORAGE_URI, f"has {len(uri)} characters", "at most 2048 are allowed")]
    if not uri.isprintable():
        return [Problem(contract.STORAGE_URI, f"{hide_credentials(uri)!r} holds control characters")]
    return SCHEMES[scheme].check(location, "model" if kind == "model" else "dataset")
