"""Writes the files of a new Pulumi project from a template of this package."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.machine.extras import requirement

TEMPLATES = {
    "quickstart": "quickstart",
    "gpu-cluster": "gpu-cluster",
    "platform": "platform-and-teams/platform",
    "team": "platform-and-teams/team",
}
"""Template -> its folder."""

_FOLDER = Path(__file__).parents[2] / "templates"
"""In a clone this is `examples/`."""
_OWN_REQUIREMENT = re.compile(r"^pulumi-trainer(?:\[(\w+)\])?$", re.MULTILINE)


def init(directory: Path, template: str) -> None:
    """Write a new project and print what to do next."""
    if template not in TEMPLATES:
        raise Invalid(Problem("--template", f"unknown template {template!r}", f"available: {', '.join(TEMPLATES)}"))
    folder = _FOLDER / TEMPLATES[template]
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )  # which installers write
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    existing = [name for name in contents if _is_taken(directory, name)]
    if existing:
        why = f"already has {', '.join(existing)}; no file was written"
        raise Invalid(Problem(str(directory), why, "give another folder, or remove these files"))
    name = json.dumps(project_name(directory))  # quoted, else 2026 would be a number
    contents["Pulumi.yaml"] = re.sub(r"^name: .*", f"name: {name}", contents["Pulumi.yaml"].decode(), count=1).encode()
    requirements = contents["requirements.txt"].decode()
    contents["requirements.txt"] = _OWN_REQUIREMENT.sub(lambda line: requirement(line[1] or ""), requirements).encode()
    try:
        _write(directory, contents)
    except OSError as error:
        raise Invalid(Problem(str(error.filename), f"cannot be written: {error.strerror}")) from None
    print_line(f"Created {directory} with {', '.join(contents)}")
    print_line(f"Next: cd {shlex.quote(str(directory))}, and follow README.md")


def project_name(directory: Path) -> str:
    """Return the name of a folder, as far as Pulumi accepts it for a project."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", directory.resolve().name)[:100] or "training"


def _is_taken(directory: Path, name: str) -> bool:
    """Return whether a folder has a file or a link of a name, or a link in the place of a folder above it."""
    is_below_link = (directory / name).parent.resolve() != (directory.resolve() / name).parent
    return is_below_link or os.path.lexists(directory / name)


def _write(directory: Path, contents: dict[str, bytes]) -> None:
    """Write new files. If one cannot be written, remove those that have been, and the folders made for them."""
    made: list[Path] = []
    try:
        for name, content in contents.items():
            file = directory / name
            for folder in reversed((file.parent, *file.parent.parents)):
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
            with file.open("xb") as new:
                made.append(file)
                new.write(content)
    except OSError as error:
        error.filename = error.filename or str(made[-1])
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()
        raise
