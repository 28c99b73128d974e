"""What an initializer is told by its environment: Trainer's names and defaults, and which values are secret.

Names: a field of the configuration in capitals (pkg/initializers/types/types.py and utils/utils.py of
https://github.com/kubeflow/trainer/tree/v2.3.0). OUTPUT_DIR is ours; upstream always writes to its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.kube.client.masking import mask, secret_forms
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError

Kind = Literal["dataset", "model"]

STORAGE_URI = "STORAGE_URI"
OUTPUT_DIR = "OUTPUT_DIR"
IGNORE_PATTERNS = "IGNORE_PATTERNS"
"""Comma-separated; a name that matches one of them (fnmatch) is left out."""

ACCESS_TOKEN = "ACCESS_TOKEN"  # noqa: S105
HF_TOKEN = "HF_TOKEN"  # noqa: S105
"""Hugging Face's own name, where ACCESS_TOKEN is not set."""
HF_ENDPOINT = "HF_ENDPOINT"

ENDPOINT = "ENDPOINT"
REGION = "REGION"
ROLE_ARN = "ROLE_ARN"
ACCESS_KEY_ID = "ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "SECRET_ACCESS_KEY"  # noqa: S105

DEFAULT_OUTPUT: Mapping[Kind, str] = {"dataset": code.DATASET_PATH, "model": code.MODEL_PATH}

SECRETS = (
    ACCESS_TOKEN, HF_TOKEN, ACCESS_KEY_ID, SECRET_ACCESS_KEY,
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip
"""Variables whose values are in no output and in no error."""


def ignore_patterns(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """The user's patterns; None: not said. An empty value says nothing, as upstream."""
    given = env.get(IGNORE_PATTERNS)
    return tuple(p.strip() for p in given.split(",") if p.strip()) if given else None


def secret(env: Mapping[str, str], name: str) -> str:
    """A credential, empty where there is none. One that could not stand in a header is refused without showing it."""
    value = env.get(name, "").strip()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise Invalid(Problem(name, "holds spaces or characters that no credential has", "copy it again"))
    return value


def scrubber(env: Mapping[str, str]) -> Callable[[str], str]:
    """Hides the values of `SECRETS` in a text, whoever wrote it: a server may send back what it was sent."""
    given = {env.get(name, "").strip() for name in SECRETS}
    values = secret_forms(value for value in given if len(value) > 3)
    return lambda text: mask(text, values)


def scrubbed(error: TrainerError, scrub: Callable[[str], str]) -> TrainerError:
    """The same error without secrets."""
    return type(error)(*(Problem(scrub(p.where), scrub(p.why), scrub(p.mend)) for p in error.problems))
