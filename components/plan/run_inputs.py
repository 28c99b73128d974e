"""What identifies the inputs of a run, each as a short text: the job's record keeps them, and a later run is compared to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.api.runs import LONGEST
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.values.unknown import first_unknown
from pulumi_trainer.provider.kube.views import jobs_of
from pulumi_trainer.provider.lifecycle.identity import short_digest

_DIGITS = 12
"""Characters of a digest."""


def describe_inputs(
    code: Mapping[str, Any], trainer: Mapping[str, Any], arguments: Any, runtime: Mapping[str, Any],
    data: Mapping[str, Mapping[str, str]], objects: Mapping[str, Any],
) -> dict[str, str]:  # fmt: skip
    """Return name -> text for each input of a run that is known.

    Args:
        code: The code that travels with the job; empty if the image has it.
        trainer: Trainer section of the TrainJob.
        arguments: Arguments of the function, without secret values.
        runtime: Name, digest and release of the runtime.
        data: Kind -> name and version of the data.
        objects: The rendered objects.
    """
    if code.get("func_args") is None:
        arguments = trainer.get("args")
    found = {
        "code": _describe_code(code, trainer),
        "arguments": arguments,
        "packages": _describe_packages(code),
        "image": _describe_images(objects),
        "runtime": _describe_runtime(runtime),
    }
    for kind, about in data.items():  # packages of this machine have a version beside their list
        found[kind] = " ".join(filter(None, [found.get(kind), about["name"], about["version"]]))
    return {name: _text(value) for name, value in found.items() if value and first_unknown(value) is None}


def _describe_code(code: Mapping[str, Any], trainer: Mapping[str, Any]) -> Any:
    if not code:
        return trainer.get("command")
    if first_unknown(code) is not None:
        return ""
    if code.get("source") is None:
        return short_digest(code.get("script"), _DIGITS)
    start = code.get("entry") or [short_digest(code.get("script"), _DIGITS)]
    return f"{' '.join(start)} of project {code['source'][:_DIGITS]}"


def _describe_packages(code: Mapping[str, Any]) -> Any:
    listed = code.get("packages") or []
    if first_unknown(listed) is not None:
        return ""
    file = ""
    if code.get("requirements"):
        file = f"requirements {short_digest(code['requirements'], _DIGITS)}"
    return " ".join(filter(None, [file, *listed]))


def _describe_runtime(runtime: Mapping[str, Any]) -> str:
    if first_unknown(runtime) is not None:
        return ""
    return f"{named_release(runtime)} {runtime.get('digest', '')}"


def named_release(runtime: Mapping[str, Any]) -> str:
    """Return name and release of a runtime: `name@release`, or the name alone if it has no release."""
    name = runtime.get("name", "")
    if runtime.get("release"):
        return f"{name}@{runtime['release']}"
    return str(name)


def _describe_images(objects: Mapping[str, Any]) -> str:
    """Return the images of all steps; one that all of them have is named once."""
    found = []
    for key, document in objects.items():
        if key.startswith("JobSet/"):
            found += [each for each in images_of(document) if isinstance(each[1], str)]
    images = dict.fromkeys(found)
    distinct = {str(image) for _, image in images}
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"{step}: {image}" for step, image in images)


def images_of(jobset: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield step and image of each container of a JobSet, except init containers; an image may be unknown."""
    for job in jobs_of(jobset):
        for container in job.pod.containers:
            image = section(container.document).get("image")
            if image is not None:
                yield job.name, image


def _text(value: Any) -> str:
    """Return a value as text; of a long one the beginning and a digest."""
    text = value
    if not isinstance(text, str):
        text = json.dumps(text, sort_keys=True)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 20]}... {short_digest(value, _DIGITS)}"
