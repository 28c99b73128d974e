"""Replaces the entrypoints of the catalogue's images, for containers without a command."""

from __future__ import annotations

import sys

from pulumi_trainer.provider.pod import code

_MODULE = "pulumi_trainer.provider.pod.initializers"
_INITIALIZERS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": ("dataset", code.DATASET_PATH),
    "ghcr.io/kubeflow/trainer/model-initializer": ("model", code.MODEL_PATH),
}
"""Image -> kind and output folder."""


def entrypoint(image: str) -> list[str]:
    """Return the argv that replaces an image's entrypoint; empty if unknown, so that the container needs a command.

    Initializers run with the interpreter of this package, not with the one that replaces the training images.
    """
    kind = _INITIALIZERS.get(_repository(image))
    if kind is None:
        return []
    return [sys.executable, "-m", _MODULE, kind[0]]


def variables(image: str) -> dict[str, str]:
    """Return the environment of an image; its paths are those of a container."""
    kind = _INITIALIZERS.get(_repository(image))
    if kind is None:
        return {}
    return {"OUTPUT_DIR": kind[1]}


def _repository(image: str) -> str:
    head, slash, last = image.split("@", 1)[0].rpartition("/")
    return head + slash + last.split(":", 1)[0]
