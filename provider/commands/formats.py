"""Output formats of commands: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

Format = Literal["table", "json", "yaml"]
LogFormat = Literal["text", "json"]


def print_data(data: Any, output: str) -> None:
    """Print plain data. output: json or yaml."""
    if output == "yaml":
        import yaml

        yaml.safe_dump(data, sys.stdout, sort_keys=False, width=2**16)
    else:
        print(json.dumps(data, indent=2))
