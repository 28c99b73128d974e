"""What the images of the catalogue start when a container names no command."""

from __future__ import annotations

import sys

from pulumi_trainer.provider.api import code

_MODULE = "pulumi_trainer.provider.initializers"
_INITIALIZERS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": ("dataset", code.DATASET_PATH),
    "ghcr.io/kubeflow/trainer/model-initializer": ("model", code.MODEL_PATH),
}
"""Image -> kind and output folder."""


def entrypoint(image: str) -> list[str]:
    """argv; empty: not known here, so the container needs a command. Ours run with the interpreter that has this package,
    whatever stands in for the training images."""
    kind = _INITIALIZERS.get(_repository(image))
    return [sys.executable, "-m", _MODULE, kind[0]] if kind else []


def variables(image: str) -> dict[str, str]:
    """What an image has in its environment: paths in it are a container's, so they are mapped like all others."""
    kind = _INITIALIZERS.get(_repository(image))
    return {"OUTPUT_DIR": kind[1]} if kind else {}


def _repository(image: str) -> str:
    head, slash, last = image.split("@", 1)[0].rpartition("/")
    return head + slash + last.split(":", 1)[0]
