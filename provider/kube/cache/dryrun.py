"""What the server and its webhooks would answer to an object, by a dry run of the apply that would create it.

Secrets are not sent, and neither is anything with a value that is not known yet. An object that would
replace a live one is tried under another name of the same length: what cannot change in place is `lifecycle.changes`' matter.
"""

from __future__ import annotations

import hashlib
import json
import random
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kube.client.client import UNTYPED, ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import Problem

Document = dict[str, Any]

PATIENCE = 5.0
"""Seconds for all webhooks together."""
LONGEST = 300
"""Characters of the server's words that are told; it likes to repeat the whole value."""


@dataclass(frozen=True)
class Answer:
    """refusals: what the server has against the object. warnings: what will come of it. failed: why it could not be tried.
    exists: there is an object of that name, which has kept it from being judged as a new one."""

    refusals: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    failed: tuple[Problem, ...] = ()
    exists: bool = False


def shape(document: Mapping[str, Any], name: str) -> str:
    """Equal for objects that differ in nothing but their job's name, or in the code of a ConfigMap: a server takes both, or
    none."""
    if document["kind"] == "ConfigMap":
        document = {**document, "data": sorted(document.get("data") or {})}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.replace(name, "\0" * len(name)).encode()).hexdigest()


def renamed(document: Mapping[str, Any]) -> Document:
    """The same object under a name that nothing else has, as long as its own."""
    meta = document["metadata"]
    name = str(meta["name"])
    while True:
        tail = "".join(random.choices(string.ascii_lowercase, k=min(8, len(name))))  # noqa: S311 (no secret)
        if not name.endswith(tail):
            return {**document, "metadata": {**meta, "name": name[: len(name) - len(tail)] + tail}}


def tried(
    client: Client, kind: Kind, document: Mapping[str, Any], judge: Callable[[Document], Iterable[Problem]]
) -> Answer:
    """Sends the object. judge: returns warnings about the object as the server would store it. Raises Unreachable."""
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
        mend = "is the controller running that this webhook belongs to?" if "webhook" in message else ""
        return Answer(failed=(Problem("", f"could not be tried in the cluster: {brief(message)}", mend),))
    causes = [c for c in error.causes if "some validation rules were not checked" not in c[2]]
    webhook = f"{message.split(': ', 1)[0]}: " if message.startswith("admission webhook") else ""
    if causes and error.code in (400, 422):
        found = [Problem(_field(f), webhook + brief(said), type=reason) for f, reason, said in causes]
        return Answer(refusals=tuple(dict.fromkeys(found)))
    return Answer(refusals=(Problem("", brief(message)),))


def _field(path: str) -> str:
    return "" if path == "<nil>" else path


def brief(message: str) -> str:
    """The server's words, without the value in the middle of them that is longer than anybody reads."""
    if len(message) <= LONGEST:
        return message
    half = LONGEST // 2
    return f"{message[:half]} ... {message[-half:]}"
