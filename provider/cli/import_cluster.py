"""`import`: writes a Pulumi project that takes over the queues, runtimes and jobs of a cluster as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.cli.convert import DIFFERENT, SAME, UNUSABLE, print_refused, run_converter, write_files
from pulumi_trainer.provider.cli.new_project import project_name
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import Document, name_of
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, join_names, plural
from pulumi_trainer.provider.service.jobs import open_cluster
from pulumi_trainer.provider.service.reach import Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.observe.importable import Importable

_EVERYWHERE = "the cluster"
_OLD_JOBS = "v1_jobs.py"
_HEAD = '''\
"""Jobs of Training Operator v1 as TrainJobs.

`__main__.py` does not import this module: these jobs run on under their controller. Once one of them has ended or may be
stopped, move its TrainJob and its runtime to `__main__.py`.
"""
'''


def import_cluster(where: Where, objects: Sequence[str], folder: Path) -> int:
    """Write a project for a namespace, or for the whole cluster, and return the exit code.

    Args:
        objects: Which objects, each as KIND/NAME; empty for all.
        folder: Folder of the project, which has none yet; `-` prints the program.
    """
    from pulumi_trainer.provider.targets.kubernetes.observe.importable import read_importable

    client, namespace = open_cluster(where)
    if where.everywhere:
        namespace = ""
    found = read_importable(client, namespace)
    origin = f"namespace {namespace}" if namespace else _EVERYWHERE
    try:
        if objects:
            _select(found, objects, origin)
        answer = _written(found, where, folder, namespace, origin)
    except Invalid as error:
        print_line(f"error: {error}", error=True)
        return UNUSABLE
    return _print_summary(folder, answer, found)


def _select(found: Importable, objects: Iterable[str], origin: str) -> None:
    """Leave only the named objects. Raises Invalid if one of them does not exist, or belongs to a stack."""
    selected, old_jobs = list[Document](), list[Document]()
    for wanted in objects:
        named = [each for each in found.objects if _is_named(each, wanted)]
        old = [each for each in found.old_jobs if _is_named(each, wanted)]
        if not named and not old:
            raise Invalid(_missing(found, wanted, origin))
        selected += named
        old_jobs += old
    found.objects, found.old_jobs = selected, old_jobs
    found.left.clear()


def _missing(found: Importable, wanted: str, origin: str) -> Problem:
    """Return why an object cannot be taken over."""
    kind, _, name = wanted.partition("/")
    for title, owner in found.left.items():
        if title.lower().startswith(f"{kind.lower().removesuffix('s')} ") and title.endswith((f" {name}", f"/{name}")):
            return Problem(wanted, f"belongs to {owner}")
    names = [_title(each) for each in (*found.objects, *found.old_jobs)]
    otherwise = "" if origin == _EVERYWHERE else "queues and runtimes of the whole cluster need -A"
    hint = did_you_mean(wanted, names, otherwise)
    if found.unread:
        return Problem(
            wanted, f"is not in {origin}, as far as its objects may be listed ({', '.join(found.unread)} may not)", hint
        )
    return Problem(wanted, f"is not in {origin}", hint)


def _title(document: Document) -> str:
    return f"{document['kind']}/{name_of(document)}".lower()


def _is_named(document: Document, wanted: str) -> bool:
    kind, _, name = wanted.partition("/")
    return name == name_of(document) and kind.lower() in (document["kind"].lower(), f"{document['kind'].lower()}s")


def _written(found: Importable, where: Where, folder: Path, namespace: str, origin: str) -> Mapping[str, Any]:
    """Write the project, and return what it has. Raises Invalid if there is nothing to take over, or already a project."""
    settings = {"trainer:namespace": namespace, "trainer:context": where.context}
    if where.kubeconfig:
        settings["trainer:kubeconfig"] = str(Path(where.kubeconfig).absolute())
    name = project_name(folder)
    request = {
        "adopt": True,
        "documents": [(origin, each) for each in found.objects],
        "name": name,
        "runtimes": found.runtimes,
        "settings": {key: value for key, value in settings.items() if value},
    }
    answer = run_converter(request)
    if not answer["objects"]:
        print_refused(answer["refused"])
        _print_left(found)
        hint = ""
        if found.old_jobs:
            hint = "convert its jobs of Training Operator v1: `kubectl get KIND -A -o yaml | pulumi-trainer convert -`"
        raise Invalid(Problem(origin, "has nothing that a program can take over", hint))
    files = answer["files"]
    if found.old_jobs:
        old = run_converter({"documents": [(origin, each) for each in found.old_jobs], "name": name})
        answer["refused"] += old["refused"]
        source = old["files"].pop("__main__.py")
        files = {**old["files"], **files, _OLD_JOBS: _HEAD + source.partition("\n")[2]}
    if str(folder) == "-":
        print_lines(files["__main__.py"].splitlines())
    else:
        # A program that replaces another one lacks what that one has taken over, and an update would delete it.
        write_files(folder, files, "give another folder with -o")
    return answer


def _print_summary(folder: Path, answer: Mapping[str, Any], found: Importable) -> int:
    """Print what the program takes over and what it does not, and return the exit code."""
    code = DIFFERENT if answer["refused"] or found.unread else SAME
    if str(folder) == "-":
        print_refused(answer["refused"])
        _print_unread(found)
        return code
    objects = answer["objects"]
    kinds = Counter(each["title"].partition(": ")[2].partition(" ")[0] for each in objects)
    shown = ", ".join(plural(count, kind) for kind, count in kinds.items())
    print_line(f"Wrote {folder}, which takes over {plain(shown)}")
    for note, titles in _by_note(objects).items():
        print_line(f"  {plain(join_names(titles, 1))}: {plain(note)}")
    if found.old_jobs:
        print_line(
            f"  {_OLD_JOBS} has {plural(len(found.old_jobs), 'job')} of Training Operator v1, which run on as they are"
        )
    _print_left(found)
    print_refused(answer["refused"])
    print_line(f"Next: cd {folder} && pulumi stack init NAME && pulumi up")
    print_line(
        "It adds marks to these objects (labels, annotations, a record of each job); it starts nothing and changes no spec."
    )
    return code


def _by_note(objects: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the objects that each note is about."""
    found: dict[str, list[str]] = {}
    for each in objects:
        for note in each["notes"]:
            found.setdefault(note, []).append(each["title"].partition(": ")[2])
    return found


def _print_left(found: Importable) -> None:
    by_owner: dict[str, list[str]] = {}
    for title, owner in found.left.items():
        by_owner.setdefault(owner, []).append(title)
    for owner, titles in by_owner.items():
        print_line(f"left alone, of {plain(owner)}: {plain(', '.join(titles))}")
    _print_unread(found)


def _print_unread(found: Importable) -> None:
    if found.unread:
        print_line(f"not read, as you may not list them: {', '.join(found.unread)}", error=True)
