"""The ConfigMap with the code of a job, as a volume of its Pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from pulumi_trainer.code import entry_source, user_code
from pulumi_trainer.code.compiled import Compiled, digest_of_script
from pulumi_trainer.code.source_tree import SourceFile, SourceTree
from pulumi_trainer.plan.job_plan import StepResult
from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code as paths

MOST_NAMED = 10
"""Files that a note about files that stay behind names."""


def ship_code(
    name: str, namespace: Any, code: dict[str, Any], compiled: Compiled, env: list[dict[str, Any]], *, cluster: bool
) -> StepResult:
    """Return the ConfigMap with the code. The target adds the archive of a project."""
    names = [e["name"] for e in env if not isinstance(e, Unknown)]
    content, tree = _content(code, compiled, names), compiled.tree
    _keep_texts(code, compiled)
    annotations: dict[str, Any] = {}
    problems, notes = list[Problem](), list[str]()
    if tree is not None:
        try:
            source_archives.store(tree.digest, lambda: tree.archive)
        except TrainerError as error:
            problems += problems_below("trainer.source", error.problems)
        annotations[paths.SOURCE_DIGEST] = tree.digest
        notes = _notes_of_files(tree)
        capacity = entry_source.LIMIT - _size(content)
        if cluster and len(tree.archive) > capacity and tree.storage:
            annotations[paths.SOURCE_ADDRESS] = tree.address
            content = _content(code, compiled, names, {"address": tree.address, "limit": tree.most_bytes})
        elif cluster and len(tree.archive) > capacity:
            problems.append(_too_large(tree, capacity, code["entry"] or ()))
    if _size(content) > entry_source.LIMIT:
        why = f"code and func_args have {_size(content)} bytes, but a ConfigMap holds at most {entry_source.LIMIT}"
        problems.append(Problem("trainer", why, "pass large values as a file in a volume"))
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = annotations
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
    return StepResult(objects={f"ConfigMap/{name}": config_map}, problems=problems, notes=notes)


def _keep_texts(code: Mapping[str, Any], compiled: Compiled) -> None:
    """Write the functions and the script of a job into the user's cache: `pulumi-trainer runs` compares their lines."""
    texts = {compiled.script_name: code["script"]}
    if code.get("tool"):
        names = listed(section(code, "func_args").get("rewards"))
        texts = {f"{name}()": code["modules"][f"reward_{at}.py"] for at, name in enumerate(names)}
    for name, written in texts.items():
        if written:
            tree = SourceTree({name: SourceFile(written.encode(errors="replace"))})
            with suppress(TrainerError):  # nothing but this comparison needs it
                source_archives.store(digest_of_script(name, written), lambda: tree.archive)  # noqa: B023  # called at once


def _content(
    code: dict[str, Any], compiled: Compiled, env: list[str], stored: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    data = user_code.files(
        **code, env=env, stored=stored, line=compiled.line, file=compiled.file, training=compiled.training,
        rewards=compiled.rewards,
    )  # fmt: skip
    if compiled.exact is not None:
        return user_code.with_exact_script(data, compiled.exact)
    return {"data": data}


def _size(content: Mapping[str, Mapping[str, Any]]) -> int:
    values = chain.from_iterable(part.values() for part in content.values())
    return sum(len(str(value).encode()) for value in values)


def _notes_of_files(tree: SourceTree) -> list[str]:
    """Return notes with the files that stay behind although no argument of the user names them."""
    left_out = {
        "files that may contain secrets": tree.withheld,
        "files that a .gitignore names": tree.ignored,
        "links to files that stay behind": tree.links,
        "submodules that are not checked out": tree.absent,
    }
    notes = []
    for what, files in left_out.items():
        if files:
            notes.append(f"{what} do not travel with the job: {_listed_files(files)}")
    pointers = tree.lfs_pointers
    if pointers:
        notes.append(
            f"files of Git LFS that are not checked out (git lfs pull) travel as pointers: {_listed_files(pointers)}"
        )
    if tree.unmatched:  # links to folders are not followed
        notes.append(f"no file of the project matches these patterns of include: {_listed_files(tree.unmatched)}")
    return notes


def _listed_files(names: Sequence[str]) -> str:
    first = plain(", ".join(names[:MOST_NAMED]))
    more = len(names) - MOST_NAMED
    if more > 0:
        return f"{first} and {more:,} more"
    return first


def _too_large(tree: SourceTree, capacity: int, started: Sequence[str]) -> Problem:
    """Return the problem of a project that a ConfigMap cannot hold, with large files that could stay behind: none with code."""
    why = f"has {len(tree.archive):,} bytes when compressed, and a ConfigMap holds {capacity:,} beside the code"
    sizes = {path: len(file.content) for path, file in tree.files.items() if not path.endswith(".py")}
    large = [path for path, size in sizes.items() if size > capacity / 100 and path not in started]
    largest = ", ".join(sorted(large, key=lambda path: -sizes[path])[:3])
    such_as = f", such as {largest}" if largest else ""
    hint = f'leave large files out (exclude=[...]){such_as}, or give Source(storage="s3://BUCKET/PREFIX")'
    return Problem("trainer.source", why, hint)


def code_volume(config_map: str, secret: str) -> dict[str, Any]:
    """Return the volume with the code."""
    if not secret:
        return {"name": paths.CODE_VOLUME, "configMap": {"name": config_map}}
    file = {"key": paths.ARGS_FILE, "path": paths.ARGS_FILE}
    sources = [{"configMap": {"name": config_map}}, {"secret": {"name": secret, "items": [file]}}]
    return {"name": paths.CODE_VOLUME, "projected": {"sources": sources}}
