"""Finds secrets that somebody wrote in clear: names and shapes of well-known credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pulumi_trainer.provider.api.errors import Problem

_NAMES = re.compile(r"(^|_)(PASSWORD|PASSWD|SECRET|API_KEY|SECRET_ACCESS_KEY|ACCESS_TOKEN|AUTH_TOKEN|HF_TOKEN)$")
_SHAPES = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{32,}|-----BEGIN [A-Z ]*PRIVATE KEY-----)"
)


def problems(env: Any, where: str) -> list[Problem]:
    """Variables of `env` (a list of EnvVars) whose plain value is a secret by its name or its shape."""
    found = []
    for variable in env if isinstance(env, Iterable) else ():
        value, name = variable.get("value"), str(variable.get("name"))
        if isinstance(value, str) and value and (_NAMES.search(name.upper()) or _SHAPES.search(value)):
            mend = f'use pulumi.Config().require_secret("{name}"), or valueFrom.secretKeyRef'
            found.append(
                Problem(f'{where}["{name}"]', "is a plain-text secret; it would stand in plan and state", mend)
            )
    return found
