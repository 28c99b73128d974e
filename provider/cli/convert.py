"""`convert`: writes a Pulumi project from YAML, and prints how its objects relate to those of the YAML."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.cli.new_project import project_name
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line
from pulumi_trainer.provider.kubernetes.values.documents import Document, documents
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.machine.extras import requirement

SAME, DIFFERENT, UNUSABLE = 0, 1, 2
"""Exit codes."""
_CONVERTER = "pulumi_trainer.convert"
_HELM = re.compile(
    rb"\{\{-?\s*(?:\$|\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|(?:include|toYaml|if|else|end|range|with|define)\b)"
)


def convert(files: list[str], folder: Path, *, force: bool) -> int:
    """Write a project from documents in files, print the comparison, and return the exit code."""
    try:
        read = [(str(each), each.content) for each in _read(files)]
        answer = run_converter({"documents": read, "name": project_name(folder)})
        if not answer["objects"]:
            print_refused(answer["refused"])
            raise Invalid(Problem("", f"found nothing that can be converted in {', '.join(files)}"))
        hint = "give another folder with -o, or replace them with --force"
        write_files(folder, answer["files"], hint, force=force)
    except Invalid as error:
        print_line(f"error: {error}", error=True)
        return UNUSABLE
    return _print_summary(folder, answer)


def _read(files: Iterable[str]) -> Iterator[Document]:
    for name in files:
        if name != "-":
            _refuse_helm(Path(name))
        yield from documents(name, sys.stdin.buffer if sys.stdin else None)


def _refuse_helm(file: Path) -> None:
    """Raise Invalid if a file has templates of Helm, whose values are not known here. Other errors are left to its reader."""
    if not file.is_file():
        return
    with file.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(2**16), b""), 1):
            if _HELM.search(line):
                hint = "render it first: helm template CHART | pulumi-trainer convert -"
                raise Invalid(Problem(f"{file}, line {number}", "is a template of Helm", hint))


def run_converter(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the converter, a process of its own as it loads Pulumi; it runs in an empty folder, from which Python
    cannot import anything.
    """
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-m", _CONVERTER],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            cwd=empty,
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Invalid(Problem("", f"this is a fault of pulumi-trainer: the converter failed: {last}", "report it"))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def write_files(folder: Path, files: Mapping[str, str], hint: str, *, force: bool = False) -> None:
    """Write the files of the project. A link in the place of one is replaced, not followed. Raises Invalid.

    Args:
        hint: What to do if the folder has one of the files, and `force` is not given.
    """
    contents = {**files, "requirements.txt": f"{requirement('kubernetes')}\n"}
    taken = [name for name in contents if os.path.lexists(folder / name)]
    if taken and not force:
        why = f"already has {', '.join(taken)}; no file was written"
        raise Invalid(Problem(str(folder), why, hint))
    for name in contents:  # the converter has checked the names
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise Invalid(Problem(name, "leads out of the folder of the project"))
    for parent in sorted({(folder / name).parent for name in contents}):
        if parent != folder and (parent.is_symlink() or parent.parent.is_symlink()):
            raise Invalid(
                Problem(str(parent), "is a link, or in one", "remove the link, or give another folder with -o")
            )
    try:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, content.encode())
    except OSError as error:
        raise Invalid(Problem(str(error.filename or folder), f"cannot be written: {error.strerror}")) from None


def _print_summary(folder: Path, answer: Mapping[str, Any]) -> int:
    """Print how the objects relate to those of the files, and return the exit code."""
    objects = answer["objects"]
    print_line(f"Wrote {folder}: {plural(len(objects), 'object')}")
    code = SAME
    for each in objects:
        verdict = "the same"
        if each["differences"]:
            code, verdict = DIFFERENT, "not the same"
        elif each["notes"]:
            verdict = "the same but for"
        print_line(f"  {plain(each['title'])}: {verdict}")
        for difference in each["differences"]:
            print_line(f"    difference: {plain(difference)}")
        for note in each["notes"]:
            print_line(f"    {plain(note)}")
    if answer["refused"]:
        code = DIFFERENT
        print_refused(answer["refused"])
    return code


def print_refused(refused: Iterable[str]) -> None:
    """Print what is not in the program."""
    for problem in refused:
        print_line(f"not converted: {plain(problem)}", error=True)
