"""Asks the user before a kubeconfig in the folder of a project, which somebody else may have written, starts a program.

A program of Pulumi is code that runs anyway; commands such as `status` only read a state, and are run in folders of others.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.service.reach import project_file

_SHOWN = 300
"""Characters of a command in a problem; `trust` prints all."""


def trust(file: Path) -> Sequence[str]:
    """Let commands use a kubeconfig of a project's folder until its content changes, and return what it may do. Raise Invalid
    if there is no such file, or the list of trusted files cannot be written."""
    from pulumi_trainer.provider.kubernetes.client.kubeconfig import risks

    if not file.is_file():
        raise Invalid(Problem(str(file), "no such file", "name a kubeconfig"))
    found, record = risks(file), _record()
    trusted = {**_trusted(), str(file.resolve()): _digest(file)}
    try:
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(record, json.dumps(trusted, indent=1).encode(), 0o600)
    except OSError as error:
        raise Invalid(Problem(str(record), f"cannot be written: {error.strerror}")) from None
    return found


def kubeconfig_check(project: str, named: str = "") -> Callable[[str], None]:
    """Return a function that raises TargetFault for a kubeconfig in the folder of a project, or elsewhere in its repository, that
    starts a program or sends a file of another folder, unless the user has trusted it.
    """
    top = _top(Path(project).resolve())

    def check(kubeconfig: str) -> None:
        try:
            path = Path(kubeconfig).expanduser().absolute()
            is_inside = path.is_file() and (top in path.parents or top in path.resolve().parents)
        except (OSError, RuntimeError, ValueError):
            return  # not a path of a file, which is reported when it is read
        if kubeconfig == named or not is_inside:
            return
        from pulumi_trainer.provider.kubernetes.client.kubeconfig import risks

        found = risks(path)
        if found and _trusted().get(str(path.resolve())) != _digest(path):
            why = f"is in the folder of the project, and would {found[0][:_SHOWN]}"
            if len(found) > 1:
                why += f" (and {len(found) - 1} more)"
            hint = f"if you trust whoever has written it: `pulumi-trainer trust {shlex.quote(kubeconfig)}`"
            raise TargetFault(Problem(f"kubeconfig {kubeconfig}", why, hint))

    return check


def _top(folder: Path) -> Path:
    """Return the folder of the repository that a folder is in, unless that is the user's home; else that of its project."""
    above = (folder, *folder.parents)
    for each in above:
        if (each / ".git").exists() and each != Path.home():
            return each
    return next((each for each in above if project_file(each) is not None), folder)


def _record() -> Path:
    return Path.home() / ".config" / "pulumi-trainer" / "trusted.json"


def _trusted() -> dict[str, str]:
    """Return path -> digest of the trusted files; none if the record cannot be read."""
    try:
        found = json.loads(_record().read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return found


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
