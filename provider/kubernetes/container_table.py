"""Lists the containers of a JobSet with what decides how they run: image, command and resources."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

from pulumi_trainer.provider.kubernetes.device_claims import DeviceClaim, claims_of_container, device_claims
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import Container, Pod, ReplicatedJob, jobs_of

ClaimsOf: TypeAlias = Callable[[Pod], Iterable[DeviceClaim]]

LONGEST = 200
"""Maximum characters of a command: one may be a whole script."""


class ContainerRow(TypedDict):
    """One container of a replicated job.

    Attributes:
        command: Command and arguments as a shell reads them, at most 200 characters; empty for those of the image.
        resources: Limit of each resource, or its request if it has no limit, or both as REQUEST..LIMIT if they differ; then the
            claims of devices.
    """

    step: str
    container: str
    pods: int
    image: str
    command: str
    resources: str


def container_table(jobset: Mapping[str, Any], claims_of: ClaimsOf = device_claims) -> list[dict[str, Any]]:
    """Return a `ContainerRow` for each container of a JobSet. A value that is not known yet stays an unknown leaf."""
    rows: list[dict[str, Any]] = []
    for job in jobs_of(jobset):
        claims = claims_of(job.pod)
        rows += (_row(job, container, claims) for container in job.pod.all_containers)
    return rows


def _row(job: ReplicatedJob, container: Container, claims: Iterable[DeviceClaim]) -> dict[str, Any]:
    document = container.document
    pods: Any = job.pods
    if pods is None:
        pods = first_unknown(job.document)
    words = [document.get("command"), document.get("args")]
    return {
        "step": job.name,
        "container": container.name,
        "pods": pods,
        "image": document.get("image", ""),
        "command": first_unknown(words) or _command([*listed(words[0]), *listed(words[1])]),
        "resources": first_unknown(document.get("resources")) or _resources(section(document, "resources"), claims),
    }


def _command(words: list[Any]) -> str:
    text = " ".join(shlex.join(map(str, words)).split())
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 3]}..."


def _resources(resources: Mapping[str, Any], claims: Iterable[DeviceClaim]) -> str:
    requests, limits = section(resources, "requests"), section(resources, "limits")
    amounts = []
    for name in sorted({*requests, *limits}):
        request, limit = requests.get(name, limits.get(name)), limits.get(name, requests.get(name))
        if str(request) == str(limit):
            amounts.append(f"{name}={limit}")
        else:
            amounts.append(f"{name}={request}..{limit}")
    for claim in claims_of_container({"resources": resources}, claims):
        amounts.append(f"claim {claim}")
    return ", ".join(amounts)
