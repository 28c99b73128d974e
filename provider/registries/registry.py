"""What is registered in a model registry, and what each registry does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials, is_loopback
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault

MLFLOW = "mlflow"
KUBEFLOW = "kubeflow"
TITLES = {MLFLOW: "MLflow", KUBEFLOW: "Kubeflow Model Registry"}
"""Kind of a registry -> its name."""
ADDRESSES = {MLFLOW: "uri", KUBEFLOW: "server"}
"""Kind of a registry -> the argument with the URL of its server."""


@dataclass(frozen=True)
class Registration:
    """The output of a run, to be registered as a version of a model.

    Attributes:
        version: Name of the version; empty: the registry numbers it, or it is named after job and run.
        source: URI of the output.
        folder: Folder of this machine that has the output; empty for one in a cluster.
        identity: What no other version has: model, stack, job, run and digest, by the name of their tag.
        facts: What else is known of the run, as text, by the name of its tag.
        inputs: What the run was made from, such as code, data and packages.
        metrics: Last value of each metric, as text.
        started: When the run began, in seconds since the epoch; 0 if not known.
        finished: When it ended, likewise.
    """

    model: str
    version: str
    aliases: Sequence[str]
    source: str
    folder: str
    project: str
    namespace: str
    job: str
    run: str
    identity: Mapping[str, str]
    facts: Mapping[str, str]
    inputs: Mapping[str, str]
    metrics: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    finished: float = 0.0

    @property
    def tags(self) -> dict[str, str]:
        """All that is known of the output, as text."""
        found = {**self.identity, **self.facts}
        found |= {f"trainer.input.{name}": text for name, text in self.inputs.items()}
        return found | {f"trainer.metric.{name}": text for name, text in self.metrics.items()}


@dataclass(frozen=True)
class Registered:
    """A version in a registry. url: Where it is shown, or served as JSON."""

    version: str
    url: str


class ModelRegistry(Protocol):
    """A model registry. All methods may be repeated, and raise TargetFault if the registry does not answer or refuses.

    Args:
        before: Aliases that the version has been given, and that are taken away if they are not among `aliases`.
    """

    def register(self, given: Registration) -> Registered: ...
    def has(self, model: str, version: str) -> bool: ...
    def set_aliases(self, model: str, version: str, aliases: Sequence[str], before: Sequence[str]) -> None: ...
    def remove(self, model: str, version: str) -> None: ...


def registry_name(kind: str, uri: str) -> str:
    """Return kind and address of a registry, for messages."""
    return f"{TITLES[kind]} at {hide_credentials(uri)}"


def address_problems(kind: str, url: str, *, has_token: bool) -> Iterator[Problem]:
    """Yield why a URL cannot be that of a registry, or why a token cannot be sent there."""
    place, shown = ADDRESSES[kind], hide_credentials(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield Problem(place, f"must be a URL with http:// or https://, not {shown!r}")
    elif parts.username is not None or parts.password is not None:
        why = f"has credentials, which plan and state would show: {shown}"
        yield Problem(place, why, "leave them out, and use token=")
    if has_token and parts.scheme == "http" and not is_loopback(url):
        yield Problem("token", f"{shown} would get it unencrypted", "use https://")


def no_answer(where: str, why: str) -> TargetFault:
    """Return the error of a registry that does not answer."""
    return TargetFault(Problem(where, f"does not answer: {why}"))


def refusal(where: str, why: str) -> TargetFault:
    """Return the error of a registry that refuses."""
    return TargetFault(Problem(where, f"refuses: {why}"))


def aliases_text(aliases: Sequence[str]) -> str:
    """Return aliases for a message; empty if there are none."""
    if not aliases:
        return ""
    noun = "alias" if len(aliases) == 1 else "aliases"
    return f" with the {noun} {', '.join(aliases)}"
