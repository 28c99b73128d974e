"""Fetching datasets and models."""

from __future__ import annotations

from pulumi_trainer.provider.api.errors import Problem


def check_uri(uri: str, kind: str) -> list[Problem]:
    """What is wrong with a URI."""
    return []
