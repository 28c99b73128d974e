"""Dry runs: what the server and its webhooks answer to an apply that would create an object.

Secrets are not sent, and neither is anything with a value that is not known yet. An object that would replace a live one is tried
under another name of the same length: `lifecycle.changes` handles what cannot change in place.
"""

from __future__ import annotations

import hashlib
import json
import random
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import UNTYPED, ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document

WEBHOOK_SECONDS = 5.0
"""Seconds for all webhooks together."""
LONGEST = 300
"""Characters of the server's message that are shown; it often repeats the whole value."""


@dataclass(frozen=True)
class Answer:
    """The result of a dry run.

    Args:
        warnings: Warnings about the object as it would be stored.
        exists: Whether an object of that name exists, so that the object was not checked as a new one.
    """

    refusals: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    failed: tuple[Problem, ...] = ()
    exists: bool = False


def shape_digest(document: Mapping[str, Any], name: str) -> str:
    """Return a digest that is equal for objects which a server accepts or rejects alike.

    Such objects differ only in the name of their job, or in the contents of a ConfigMap.

    Args:
        name: Name of its job, which does not count wherever the object has it.
    """
    if document["kind"] == "ConfigMap":
        document = {**document, "data": sorted(document.get("data") or {})}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.replace(name, "\0" * len(name)).encode()).hexdigest()


def renamed(document: Mapping[str, Any]) -> Document:
    """Return an object under a random name of the same length."""
    meta = document["metadata"]
    name = str(meta["name"])
    while True:
        tail = "".join(random.choices(string.ascii_lowercase, k=min(8, len(name))))  # noqa: S311 (no secret)
        if not name.endswith(tail):
            return {**document, "metadata": {**meta, "name": name[: len(name) - len(tail)] + tail}}


def dry_run(
    client: Client, kind: Kind, document: Mapping[str, Any], judge: Callable[[Document], Iterable[Problem]]
) -> Answer:
    """Return the result of a dry run. Raises Unreachable."""
    try:
        answer = client.apply(kind, document, dry_run=True)
    except ApiError as error:
        return _refused(error)
    if answer.get("metadata", {}).get("resourceVersion"):  # only what is stored has one
        return Answer(exists=True)
    return Answer(warnings=tuple(judge(answer)))


def _refused(error: ApiError) -> Answer:
    message = error.message
    if error.code == 404:  # the namespace, or the kind: neither is judged here
        return Answer()
    if error.code == 409:
        return Answer(exists=True)
    if (error.code >= 500 and UNTYPED not in message) or error.code == 429 or "does not support dry run" in message:
        hint = ""
        if "webhook" in message:
            hint = "is the controller running that this webhook belongs to?"
        return Answer(failed=(Problem("", f"could not be checked in the cluster: {brief(message)}", hint),))
    causes = [c for c in error.causes if "some validation rules were not checked" not in c[2]]
    webhook = ""
    if message.startswith("admission webhook"):
        webhook = f"{message.split(': ', 1)[0]}: "
    if causes and error.code in (400, 422):
        problems: list[Problem] = []
        for field, reason, text in causes:
            where = "" if field == "<nil>" else field
            problems.append(Problem(where, webhook + brief(text), type=reason))
        return Answer(refusals=tuple(dict.fromkeys(problems)))
    return Answer(refusals=(Problem("", brief(message)),))


def brief(message: str) -> str:
    """Return a server's message without the middle part if it is too long."""
    if len(message) <= LONGEST:
        return message
    half = LONGEST // 2
    return f"{message[:half]} ... {message[-half:]}"
