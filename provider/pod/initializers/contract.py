"""The variables of an initializer: Trainer's names and defaults, and which values are secret.

A variable is a field of the configuration in capitals (pkg/initializers/types/types.py and utils/utils.py of
https://github.com/kubeflow/trainer/tree/v2.3.0). OUTPUT_DIR is an addition; upstream always writes to its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pulumi_trainer.provider.kubernetes.client.masking import mask, secret_forms
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.pod import code

Kind = Literal["dataset", "model"]
Mask = Callable[[str], str]
"""Hides secrets in a text."""

STORAGE_URI = "STORAGE_URI"
OUTPUT_DIR = "OUTPUT_DIR"
IGNORE_PATTERNS = "IGNORE_PATTERNS"
"""Comma-separated fnmatch patterns; a file whose name matches one is not fetched."""

ACCESS_TOKEN = "ACCESS_TOKEN"  # noqa: S105
HF_TOKEN = "HF_TOKEN"  # noqa: S105
"""Hugging Face's own name, used if ACCESS_TOKEN is not set."""
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
"""Variables whose values appear in no output and in no error."""


def ignore_patterns(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the patterns of IGNORE_PATTERNS; None if the variable is not set or empty, as upstream."""
    value = env.get(IGNORE_PATTERNS)
    if not value:
        return None
    return tuple(p.strip() for p in value.split(",") if p.strip())


def read_credential(env: Mapping[str, str], name: str) -> str:
    """Return a credential, empty if it is not set. Raise Invalid, which does not show the value, if it cannot be sent in a
    header."""
    value = env.get(name, "").strip()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise Invalid(
            Problem(name, "contains white space or characters that are not valid in a credential", "copy it again")
        )
    return value


def secret_mask(env: Mapping[str, str]) -> Mask:
    """Return a function that hides the values of `SECRETS` in a text: a server may send back what it received."""
    values = {env.get(name, "").strip() for name in SECRETS}
    forms = secret_forms(value for value in values if len(value) > 3)
    return lambda text: mask(text, forms)


def mask_error(error: TrainerError, mask_secrets: Mask) -> TrainerError:
    problems = [Problem(mask_secrets(p.where), mask_secrets(p.why), mask_secrets(p.hint)) for p in error.problems]
    return type(error)(*problems)
