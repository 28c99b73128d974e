"""What the images of the catalogue start when a container names no command."""

from __future__ import annotations

import sys

_MODULE = "pulumi_trainer.provider.initializers"
_ENTRYPOINTS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": [sys.executable, "-m", _MODULE, "dataset"],
    "ghcr.io/kubeflow/trainer/model-initializer": [sys.executable, "-m", _MODULE, "model"],
}
"""Image -> argv. Ours run with the interpreter that has this package, whatever stands in for the training images."""


def entrypoint(image: str) -> list[str]:
    """Empty: not known here, so the container needs a command."""
    repository = image.split("@", 1)[0]
    head, slash, last = repository.rpartition("/")
    return list(_ENTRYPOINTS.get(head + slash + last.split(":", 1)[0], []))
