"""Converts documents for the command line: reads them from stdin as JSON, and writes the project and what differs to stdout.

It is a process of its own, since the command line does not load Pulumi.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pulumi_trainer.convert.conversion import convert, take_over


def main() -> None:
    """Answer one request."""
    request: dict[str, Any] = json.load(sys.stdin)
    documents = [(origin, document) for origin, document in request["documents"]]
    if request.get("adopt"):
        conversion = take_over(documents, request["runtimes"])
    else:
        conversion = convert(documents)
    answer = {
        "files": {
            "Pulumi.yaml": conversion.project(request["name"], request.get("settings", {})),
            "__main__.py": conversion.source,
            **conversion.files,
        },
        "objects": [
            {"title": each.title, "notes": each.notes, "differences": each.differences} for each in conversion.results
        ],
        "refused": [str(problem) for problem in conversion.refused],
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
